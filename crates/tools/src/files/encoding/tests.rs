use encoding_rs::*;
use proptest::prelude::*;

use super::*;
use crate::edits::apply_patch;
use crate::edits::edit;
use crate::edits::write;
use crate::files::grep;
use crate::files::read;
use crate::test::{TestProject, call};
use crate::{ToolContext, erase};
use serde_json::{Value, json};

/// The encodings of the Encoding Standard, except `replacement`, which has no characters.
const ALL: [&Encoding; 39] = [
    UTF_8,
    IBM866,
    ISO_8859_2,
    ISO_8859_3,
    ISO_8859_4,
    ISO_8859_5,
    ISO_8859_6,
    ISO_8859_7,
    ISO_8859_8,
    ISO_8859_8_I,
    ISO_8859_10,
    ISO_8859_13,
    ISO_8859_14,
    ISO_8859_15,
    ISO_8859_16,
    KOI8_R,
    KOI8_U,
    MACINTOSH,
    WINDOWS_874,
    WINDOWS_1250,
    WINDOWS_1251,
    WINDOWS_1252,
    WINDOWS_1253,
    WINDOWS_1254,
    WINDOWS_1255,
    WINDOWS_1256,
    WINDOWS_1257,
    WINDOWS_1258,
    X_MAC_CYRILLIC,
    GBK,
    GB18030,
    BIG5,
    EUC_JP,
    ISO_2022_JP,
    SHIFT_JIS,
    EUC_KR,
    UTF_16BE,
    UTF_16LE,
    X_USER_DEFINED,
];

fn bytes_of(encoding: &'static Encoding, text: &str) -> Vec<u8> {
    encode_text(encoding, text).unwrap()
}

/// Texts that are long enough for their encoding to be certain.
const TEXTS: [(&Encoding, &str); 15] = [
    (GBK, "// 初始化配置文件\nint a = 1; // 读取用户设置\n"),
    (GB18030, "// 初始化配置文件 𠮷 读取用户设置\nint a = 1;\n"),
    (SHIFT_JIS, "// 設定ファイルを読み込む\nint a = 1;\n"),
    (EUC_JP, "// 設定ファイルを読み込む\nint a = 1;\n"),
    (ISO_2022_JP, "// 設定ファイル\nint a = 1;\n"),
    (EUC_KR, "// 설정 파일을 읽고 검사합니다\nint a = 1;\n"),
    (BIG5, "// 讀取設定檔並檢查內容\nint a = 1;\n"),
    (
        WINDOWS_1251,
        "// комментарий: проверка настроек\nint a = 1;\n",
    ),
    (IBM866, "// комментарий: проверка настроек\nint a = 1;\n"),
    (KOI8_U, "// комментарий: проверка настроек\nint a = 1;\n"),
    (
        WINDOWS_1252,
        "// Prüft die Größe für alle Fälle, überträgt Schlüssel für Übergänge, öffnet, schließt\nint a = 1;\n",
    ),
    (UTF_16LE, "\u{feff}// 中文 comment\nint a = 1;\n"),
    (UTF_16BE, "\u{feff}// 中文 comment\nint a = 1;\n"),
    (UTF_16LE, "// plain text without mark\nint a = 1;\n"),
    (UTF_16BE, "// plain text without mark\nint a = 1;\n"),
];

#[test]
fn encodings_are_detected_and_edited() {
    for (encoding, text) in TEXTS {
        let bytes = bytes_of(encoding, text);
        let DecodedText { text: read, source } =
            decode(bytes.clone(), EncodingHint::default).unwrap();
        let source = source.unwrap();
        assert_eq!((source.encoding, &*read), (encoding, text));
        assert!(source.is_certain, "{encoding:?}");
        let new = text.replace("a = 1", "b = 2");
        let wanted = bytes_of(encoding, &new);
        assert_eq!(source.encode(&new), Ok(wanted), "{encoding:?}");
        assert_eq!(source.encode(text), Ok(bytes), "{encoding:?}");
    }
}

#[test]
fn bytes_are_text_or_not() {
    /// A name, the bytes, and the text or `None`.
    type Row<'a> = (&'a str, &'a [u8], Option<&'a str>);
    let table: &[Row<'_>] = &[
        ("ASCII", b"a\n", Some("a\n")),
        ("UTF-8", "é\n".as_bytes(), Some("é\n")),
        ("UTF-8 with mark", b"\xef\xbb\xbfa", Some("\u{feff}a")),
        (
            "one bad byte",
            b"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 \xff x",
            Some("éééé \u{fffd} x"),
        ),
        (
            "mark and a bad byte",
            b"\xef\xbb\xbfa\xff",
            Some("\u{feff}a\u{fffd}"),
        ),
        ("NUL in a text", b"a\0b\n", Some("a\u{2400}b\n")),
        ("Latin-1", b"caf\xe9 cr\xe8me\n", Some("café crème\n")),
        ("UTF-16", b"\xff\xfea\0\n\0", Some("\u{feff}a\n")),
        ("UTF-32", b"\xff\xfe\0\0a\0\0\0", None),
        ("ELF", b"\x7fELF\0\0", None),
        ("bad byte and NUL", b"a\0\xff", None),
        ("NULs", &[0; 4096], None),
        ("control characters", b"\x01\x02\x03\x04\xffa", None),
        (
            "escape sequences",
            b"\x1b(B\x1b[1mred\x1b$",
            Some("\x1b(B\x1b[1mred\x1b$"),
        ),
    ];
    for (name, bytes, text) in table {
        let read = decode(bytes.to_vec(), EncodingHint::default).ok();
        assert_eq!(read.map(|read| read.text).as_deref(), *text, "{name}");
    }
    // Compressed data is not mistaken for text.
    let mut random = fastrand::Rng::with_seed(7);
    // A short piece of it may have no NUL.
    for (first, length) in [(0, 2_000), (1, 300)].repeat(200) {
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(first..))
            .take(length)
            .collect();
        assert_eq!(
            decode(noise, EncodingHint::default).unwrap_err(),
            NotText::Binary
        );
    }
}

#[test]
fn uncertain_encoding_gets_only_changes_that_are_the_same_in_all() {
    /// A name, the bytes, the change, and the new bytes or a part of the error.
    type Row<'a> = (
        &'a str,
        &'a [u8],
        (&'a str, &'a str),
        Result<&'a [u8], &'a str>,
    );
    let table: &[Row<'_>] = &[
        (
            "ASCII far from it",
            b"caf\xe9\nint a;\n",
            ("int a", "long b"),
            Ok(b"caf\xe9\nlong b;\n"),
        ),
        (
            "the same letter",
            b"caf\xe9\nint a;\n",
            ("int a", "é"),
            Ok(b"caf\xe9\n\xe9;\n"),
        ),
        (
            "another letter",
            b"caf\xe9\nint a;\n",
            ("int a", "è"),
            Err("may be windows-1252"),
        ),
        (
            "removal of the line",
            b"// caf\xe9\nint a;\n",
            ("// café\n", ""),
            Ok(b"int a;\n"),
        ),
        (
            "two characters of GBK",
            b"\xd6\xd0\xce\xc4\nint a;\n",
            ("int", "long"),
            Ok(b"\xd6\xd0\xce\xc4\nlong a;\n"),
        ),
        (
            "more of them",
            b"\xd6\xd0\xce\xc4\nint a;\n",
            ("int", "中"),
            Err("it may be GBK, "),
        ),
        (
            "removal of one",
            b"\xd6\xd0\xce\xc4\nint a;\n",
            ("文", ""),
            Ok(b"\xd6\xd0\nint a;\n"),
        ),
        (
            "a letter of one only",
            b"\xd6\xd0\xce\xc4\nint a;\n",
            ("int", "é"),
            Err("not certain"),
        ),
    ];
    for (name, bytes, (from, to), wanted) in table {
        let DecodedText { text, source } = decode(bytes.to_vec(), EncodingHint::default).unwrap();
        let source = source.unwrap();
        assert!(!source.is_certain && !source.possible.is_empty(), "{name}");
        assert!(text.contains(from), "{name}: {text:?}");
        match (source.encode(&text.replacen(from, to, 1)), wanted) {
            (Ok(bytes), Ok(wanted)) => assert_eq!(bytes, *wanted, "{name}"),
            (Err(e), Err(wanted)) => {
                let e = e.to_string();
                assert!(
                    e.contains(wanted) && e.contains("file_encoding"),
                    "{name}: {e}"
                );
            }
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
    // A guess cannot be certain of characters that a similar encoding shares.
    let text = TEXTS[10].1;
    let source = decode(bytes_of(WINDOWS_1252, text), EncodingHint::default).unwrap();
    let source = source.source.unwrap();
    assert!(source.encode(&text.replace("int", "é")).is_ok());
    let e = source.encode(&text.replace("int", "€")).unwrap_err();
    assert!(e.to_string().contains("windows-1252, ISO-8859-15"), "{e}");
}

#[test]
fn character_that_the_encoding_lacks_is_named() {
    for (encoding, text, character) in [
        (GBK, TEXTS[0].1, '🎉'),
        (WINDOWS_1251, TEXTS[7].1, '中'),
        // The encoder has another character for it.
        (SHIFT_JIS, TEXTS[2].1, '¥'),
        (EUC_JP, TEXTS[3].1, '−'),
    ] {
        let source = decode(bytes_of(encoding, text), EncodingHint::default).unwrap();
        let new = text.replace("int", &format!("{character} int"));
        assert_eq!(
            source.source.unwrap().encode(&new),
            Err(EncodeError::Missing {
                character,
                encoding: encoding.name()
            })
        );
    }
}

#[test]
fn states_of_a_file_are_compared_in_its_encoding() {
    let (encoding, text) = TEXTS[0];
    let short = "// 中\n";
    let both = |old: &[u8], new: &[u8]| decode_both(old.to_vec(), new.to_vec());
    let pair = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
    let old = bytes_of(encoding, text);
    // The new state alone would not show its encoding.
    assert_eq!(both(&old, &bytes_of(encoding, short)), pair(text, short));
    assert_eq!(both(b"", &old), pair("", text));
    assert_eq!(both(&old, b""), pair(text, ""));
    // It was converted.
    assert_eq!(both(&old, text.as_bytes()), pair(text, text));
    assert_eq!(both(b"a\n", b"\x7fELF\0\0"), None);
}

#[test]
fn bytes_that_are_not_text_remain() {
    /// A name, the bytes, the change, and the new bytes or a part of the error.
    type Row<'a> = (
        &'a str,
        &'a [u8],
        (&'a str, &'a str),
        Result<&'a [u8], &'a str>,
    );
    let utf8 = b"\xef\xbb\xbf\xc3\xa9 \xff\xfe\nx \xff y\n";
    let table: &[Row<'_>] = &[
        (
            "another line",
            utf8,
            ("x", "é"),
            Ok(b"\xef\xbb\xbf\xc3\xa9 \xff\xfe\n\xc3\xa9 \xff y\n"),
        ),
        (
            "around it",
            utf8,
            ("x \u{fffd} y", "a \u{fffd} b"),
            Ok(b"\xef\xbb\xbf\xc3\xa9 \xff\xfe\na \xff b\n"),
        ),
        (
            "removed",
            utf8,
            ("x \u{fffd} y", "a"),
            Ok(b"\xef\xbb\xbf\xc3\xa9 \xff\xfe\na\n"),
        ),
        (
            "written anew",
            utf8,
            ("é", "\u{fffd}\u{fffd}é"),
            Err("represents a byte"),
        ),
        (
            "one of two",
            b"\xef\xbb\xbf\xffb\xfec\n",
            ("\u{fffd}b", ""),
            Err("not clear"),
        ),
        (
            "before another",
            b"\xef\xbb\xbf\xffb\xfec\n",
            ("\u{fffd}b", "x"),
            Ok(b"\xef\xbb\xbfx\xfec\n"),
        ),
        ("NUL", b"a\0b\n", ("b", "c\0"), Ok(b"a\0c\0\n")),
        (
            "NUL around",
            b"a\0b\n",
            ("a\u{2400}b", "x\u{2400}y"),
            Ok(b"x\0y\n"),
        ),
    ];
    for (name, bytes, (from, to), wanted) in table {
        let DecodedText { text, source } = decode(bytes.to_vec(), EncodingHint::default).unwrap();
        assert!(text.contains(from), "{name}: {text:?}");
        match (source.unwrap().encode(&text.replacen(from, to, 1)), wanted) {
            (Ok(bytes), Ok(wanted)) => assert_eq!(bytes, *wanted, "{name}"),
            (Err(e), Err(wanted)) => assert!(e.to_string().contains(wanted), "{name}: {e}"),
            (found, _) => panic!("{name}: {found:?}"),
        }
    }
}

/// Returns the boundaries by decoding both parts at each position.
fn slow_boundaries(encoding: &'static Encoding, bytes: &[u8], text: &str) -> Vec<Boundary> {
    let is_line = |at: usize| at == 0 || at == bytes.len() || bytes[at - 1] == b'\n';
    let at = (0..=bytes.len()).filter(|at| encoding != ISO_2022_JP || is_line(*at));
    at.filter_map(|byte| {
        let (before, _) = decoded(encoding, &bytes[..byte]);
        let (after, _) = decoded(encoding, &bytes[byte..]);
        (text.strip_prefix(&*before) == Some(&*after)).then_some(Boundary {
            byte,
            text: before.len(),
        })
    })
    .collect()
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => any::<u8>(),
        3 => 0xa1..=0xfe_u8,
        2 => b'a'..=b'z',
        2 => Just(b'\n'),
        1 => Just(b'\r'),
    ];
    let piece = prop_oneof![
        12 => byte.prop_map(|byte| vec![byte]),
        1 => Just(b"\x1b$B0!\x1b(B".to_vec()),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    /// Whatever the bytes are, an edit changes none outside its place, and is read as written.
    #[test]
    fn bytes_outside_an_edit_never_change(
        which in 0..ALL.len(),
        bytes in some_bytes(),
        fresh in some_bytes(),
        (from, size) in (0_usize..20, 0_usize..6),
    ) {
        let encoding = ALL[which];
        let source = EncodedSource::new(encoding, bytes.clone(), true);
        let text = source.text.clone();
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let start = ends[from.min(ends.len() - 1)];
        let end = ends[(from + size).min(ends.len() - 1)].max(start);
        let (piece, is_invalid) = decoded(encoding, &fresh);
        let new = format!("{}{piece}{}", &text[..start], &text[end..]);
        let (same, rest) = textedit::replace::shared(&text, &new);
        match source.encode(&new) {
            Ok(out) => {
                prop_assert_eq!(decoded(encoding, &out).0, new);
                let places = slow_boundaries(encoding, &bytes, &text);
                // Invalid bytes can often be divided in several ways.
                let before = places.iter().map(|boundary| boundary.text).filter(|at| *at <= same).max();
                let after = places.iter().map(|boundary| boundary.text).filter(|at| *at >= text.len() - rest).min();
                let is_open = encoding == ISO_2022_JP && bytes.last() != Some(&b'\n') && before == Some(text.len());
                let has_head = places.iter().any(|boundary| Some(boundary.text) == before && out.starts_with(&bytes[..boundary.byte]));
                let has_tail = places.iter().any(|boundary| Some(boundary.text) == after && out.ends_with(&bytes[boundary.byte..]));
                prop_assert!(is_open || has_head, "{:?} {:?} {:?}", encoding, bytes, out);
                prop_assert!(has_tail, "{:?} {:?} {:?}", encoding, bytes, out);
            }
            Err(e) => {
                let is_exact = encode_text(encoding, &piece).is_ok_and(|bytes| decoded(encoding, &bytes).0 == piece);
                // Characters of these depend on their neighbours.
                let is_joined = encoding == ISO_2022_JP || encoding == BIG5;
                let is_valid = !is_invalid && !source.has_invalid && !source.has_nul && !piece.contains(NUL);
                prop_assert!(is_joined || !is_valid || !is_exact, "{:?} {:?} {:?}: {}", encoding, bytes, new, e);
            }
        }
    }

    /// Each character of an encoding can be inserted at each place of a text in it.
    #[test]
    fn characters_of_an_encoding_are_written(which in 0..ALL.len(), bytes in some_bytes(), at in 0_usize..20) {
        let encoding = ALL[which];
        let (text, is_invalid) = decoded(encoding, &bytes);
        // Bytes that are not text of the encoding are the other test's subject.
        let canonical = match encode_text(encoding, &text) {
            Ok(canonical) if !is_invalid && !text.contains(NUL) => canonical,
            _ => return Ok(()),
        };
        if decoded(encoding, &canonical).0 != text {
            return Ok(());
        }
        let source = EncodedSource::new(encoding, canonical, true);
        let at = text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
        let new = format!("{}{text}{}", &text[..at], &text[at..]);
        if let Ok(wanted) = encode_text(encoding, &new) {
            prop_assert_eq!(source.encode(&new), Ok(wanted), "{:?}", encoding);
        }
    }
}

#[test]
fn editorconfig_and_setting_name_the_encoding() {
    let fixture = TestProject::new();
    fixture.write(
        ".editorconfig",
        "root = true\n[*]\ncharset = utf-8\n[*.{txt,c}]\ncharset = latin1\n[gbk/**]\ncharset=GBK\n",
    );
    fixture.write(
        "inner/.editorconfig",
        "[*.txt]\ncharset = utf-16le\n[x.c]\nindent_size = 2\n",
    );
    fixture.write(
        "odd/.editorconfig",
        "[*\ncharset\n[*]\ncharset = none-such\n",
    );
    // Its pattern would be compared in 2^40 steps.
    let slow = format!("[{}]\ncharset = gbk\n", "{a,?}".repeat(40));
    fixture.write("slow/.editorconfig", &slow);
    let context = fixture.context();
    let hints = |setting| EncodingHints::new(&context.project.worktree, setting);
    let table = [
        ("a.rs", None, Some(UTF_8)),
        ("a.rs", Some(GBK), Some(GBK)),
        ("a.c", Some(GBK), Some(WINDOWS_1252)),
        ("deep/b.txt", None, Some(WINDOWS_1252)),
        ("gbk/b.txt", None, Some(GBK)),
        ("inner/b.txt", None, Some(UTF_16LE)),
        ("inner/x.c", None, Some(WINDOWS_1252)),
        ("odd/b.rs", Some(GBK), Some(GBK)),
        (
            "slow/zaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            None,
            Some(UTF_8),
        ),
    ];
    for (path, setting, wanted) in table {
        let hint = hints(setting).of(&fixture.cwd().join(path));
        assert_eq!(hint.named(), wanted, "{path}");
    }
    // Files above the project do not count.
    std::fs::write(
        fixture.outside().join(".editorconfig"),
        "[*]\ncharset = gbk\n",
    )
    .unwrap();
    assert_eq!(hints(None).of(&fixture.outside().join("a")).named(), None);
}

async fn run(
    tool: Arc<dyn crate::AnyTool>,
    context: &ToolContext,
    input: Value,
) -> Result<String, String> {
    match call(&tool, input, context).await {
        Ok((_, output)) => Ok(output.text),
        Err(e) => Err(e.to_string()),
    }
}

#[tokio::test]
async fn tools_change_files_in_their_encoding() {
    for (encoding, text) in TEXTS {
        // Line ends of Windows, and no line end at the end.
        let text = format!("{}end", text.replace('\n', "\r\n"));
        let fixture = TestProject::new();
        let context = fixture.context();
        let put = |name: &str| fixture.write_bytes(name, &bytes_of(encoding, &text));
        let first = text
            .trim_start_matches('\u{feff}')
            .lines()
            .next()
            .unwrap()
            .to_owned();
        let wanted = |from: &str, to: &str| bytes_of(encoding, &text.replace(from, to));
        for name in ["read", "edit", "multi", "write", "patch", "grep"] {
            put(name);
        }
        let shown = run(erase(read::ReadTool), &context, json!({"filePath": "read"}))
            .await
            .unwrap();
        assert!(shown.contains(&format!("1: {first}\n")), "{shown}");
        assert!(
            shown.contains(&format!(
                "(Encoding: {}. Edits are written in it.)\n",
                encoding.name()
            )),
            "{shown}"
        );
        assert!(
            shown.contains("CRLF line ends; edits preserve that.)"),
            "{shown}"
        );
        // A match across lines, with text of the encoding in the old and the new text.
        let old = format!("{first}\nint a = 1;");
        let new = format!("{first}\nint {first} b;");
        let across = |s: &str| s.replace('\n', "\r\n");
        let input = json!({"filePath": "edit", "oldString": old, "newString": new});
        run(erase(edit::EditTool), &context, input).await.unwrap();
        assert_eq!(
            fixture.read("edit"),
            wanted(&across(&old), &across(&new)),
            "{encoding:?}"
        );
        let edits = json!([{"oldString": "a = 1", "newString": "b = 2"}, {"oldString": "end", "newString": "the end"}]);
        run(
            erase(edit::EditTool),
            &context,
            json!({"filePath": "multi", "edits": edits}),
        )
        .await
        .unwrap();
        assert_eq!(
            fixture.read("multi"),
            bytes_of(
                encoding,
                &text.replace("a = 1", "b = 2").replace("end", "the end")
            )
        );
        let content = text
            .trim_start_matches('\u{feff}')
            .replace("a = 1", "c = 3")
            .replace("\r\n", "\n");
        run(
            erase(read::ReadTool),
            &context,
            json!({"filePath": "write"}),
        )
        .await
        .unwrap();
        run(
            erase(write::WriteTool),
            &context,
            json!({"filePath": "write", "content": content}),
        )
        .await
        .unwrap();
        assert_eq!(
            fixture.read("write"),
            wanted("a = 1", "c = 3"),
            "{encoding:?}"
        );
        let patch = format!(
            "*** Begin Patch\n*** Update File: patch\n*** Move to: moved\n@@\n {first}\n-{}\n+int d;\n*** End Patch",
            text.lines().nth(1).unwrap()
        );
        run(
            erase(apply_patch::ApplyPatchTool),
            &context,
            json!({"patchText": patch}),
        )
        .await
        .unwrap();
        assert_eq!(
            fixture.read("moved"),
            wanted(text.lines().nth(1).unwrap(), "int d;"),
            "{encoding:?}"
        );
        let word = first.trim_start_matches("// ");
        let found = run(
            erase(grep::GrepTool),
            &context,
            json!({"pattern": word, "include": "grep"}),
        )
        .await
        .unwrap();
        assert!(
            found.contains(&format!("  Line 1: {first}")),
            "{encoding:?}: {found}"
        );
    }
}

#[tokio::test]
async fn editor_gets_no_text_that_it_may_save_otherwise() {
    use crate::test::EditorReply;
    let fixture = TestProject::new();
    let bytes = bytes_of(GBK, TEXTS[0].1);
    fixture.write_bytes("f", &bytes);
    let (context, editor) = fixture.with_editor(EditorReply::Saves);
    let input = json!({"filePath": "f", "oldString": "a = 1", "newString": "a = 2"});
    let path = fixture.cwd().join("f");
    // The editor shows the file in another encoding.
    editor.type_into(&path, &String::from_utf8_lossy(&bytes));
    let shown = run(erase(read::ReadTool), &context, json!({"filePath": "f"}))
        .await
        .unwrap();
    assert!(shown.contains("初始化配置文件"), "{shown}");
    run(erase(edit::EditTool), &context, input.clone())
        .await
        .unwrap();
    assert_eq!(editor.saved(), 0);
    assert_eq!(
        fixture.read("f"),
        bytes_of(GBK, &TEXTS[0].1.replace("a = 1", "a = 2"))
    );
    // It has unsaved changes.
    editor.type_into(&path, TEXTS[0].1);
    let e = run(erase(edit::EditTool), &context, input)
        .await
        .unwrap_err();
    assert!(e.contains("has unsaved changes in the editor"), "{e}");
}

#[tokio::test]
async fn named_encoding_applies_to_new_and_ascii_files() {
    let fixture = TestProject::new();
    fixture.write(
        ".editorconfig",
        "[*.c]\ncharset = gbk\n[*.w]\ncharset = utf-16le\n[*.j]\ncharset = iso-2022-jp\n",
    );
    fixture.write("a.c", "int a;\n");
    fixture.write("a.j", "int a;\n");
    fixture.write_bytes("b.c", b"\xd6\xd0\xce\xc4\n");
    let context = fixture.context();
    let input = json!({"filePath": "a.c", "oldString": "int a;", "newString": "int a; // 中文"});
    run(erase(edit::EditTool), &context, input).await.unwrap();
    assert_eq!(fixture.read("a.c"), b"int a; // \xd6\xd0\xce\xc4\n");
    let input = json!({"filePath": "b.c", "oldString": "中文", "newString": "中文中"});
    run(erase(edit::EditTool), &context, input).await.unwrap();
    assert_eq!(fixture.read("b.c"), b"\xd6\xd0\xce\xc4\xd6\xd0\n");
    run(
        erase(write::WriteTool),
        &context,
        json!({"filePath": "n.c", "content": "中\n"}),
    )
    .await
    .unwrap();
    assert_eq!(fixture.read("n.c"), b"\xd6\xd0\n");
    run(
        erase(write::WriteTool),
        &context,
        json!({"filePath": "n.w", "content": "a\n"}),
    )
    .await
    .unwrap();
    assert_eq!(fixture.read("n.w"), b"\xff\xfea\0\n\0");
    let input = json!({"filePath": "a.j", "oldString": "int a;", "newString": "int a; // 中"});
    run(erase(edit::EditTool), &context, input).await.unwrap();
    assert_eq!(fixture.read("a.j"), b"int a; // \x1b$BCf\x1b(B\n");
    run(
        erase(write::WriteTool),
        &context,
        json!({"filePath": "n.j", "content": "中\n"}),
    )
    .await
    .unwrap();
    assert_eq!(fixture.read("n.j"), b"\x1b$BCf\x1b(B\n");
    let e = run(
        erase(write::WriteTool),
        &context,
        json!({"filePath": "x.c", "content": "🎉\n"}),
    )
    .await
    .unwrap_err();
    assert!(e.contains("🎉 (U+1F389) is not in GBK"), "{e}");
    assert!(!fixture.cwd().join("x.c").exists());
}
