//! Tests of every tool that changes files against rows of the fault catalogue
//! (`editor-tests/faults.rs`): changes by others, line ends, encodings, file kinds. The rows that
//! need processes are tested there.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::edits::apply_patch;
use crate::edits::edit;
use crate::edits::write;
use crate::files::read;
use crate::test::{TestProject, call};
use crate::{AnyTool, ToolContext, erase};

/// Returns the tools that change files, each with the arguments that change `old` into `new` in the
/// file `f`.
fn tools() -> [(Arc<dyn AnyTool>, Value); 4] {
    let one = json!({ "oldString": "old", "newString": "new" });
    let patch = "*** Begin Patch\n*** Update File: f\n@@\n a\n-old\n+new\n b\n*** End Patch\n";
    [
        (
            erase(edit::EditTool),
            json!({ "filePath": "f", "oldString": "old", "newString": "new" }),
        ),
        (
            erase(edit::EditTool),
            json!({ "filePath": "f", "edits": [one] }),
        ),
        (
            erase(write::WriteTool),
            json!({ "filePath": "f", "content": "a\nnew\nb\n" }),
        ),
        (
            erase(apply_patch::ApplyPatchTool),
            json!({ "patchText": patch }),
        ),
    ]
}

async fn look(context: &ToolContext) {
    call(&erase(read::ReadTool), json!({ "filePath": "f" }), context)
        .await
        .ok();
}

/// Changes by another program in the meantime, and whether each prevents an edit. An addition
/// prevents a replacement of the whole file, and an edit about which the user is being asked.
const CONCURRENT_CHANGES: [(&str, bool); 12] = [
    ("writes something else", true),
    ("appends", true),
    ("empties it", true),
    ("removes it", true),
    ("puts a directory in its place", true),
    ("puts a link to the same text in its place", true),
    ("puts a link to other text in its place", true),
    ("writes the same again", false),
    ("touches it", false),
    ("puts the same file in its place", false),
    ("makes it executable", false),
    // The new line ends are preserved, so the change is not lost either way.
    ("makes other line ends", false),
];

fn change_concurrently(what: &str, fixture: &TestProject) {
    let f = fixture.cwd().join("f");
    let other = fixture.outside().join("other");
    let same = fs::read(&f).unwrap();
    match what {
        "writes something else" => fixture.write("f", "somebody's\nold\n"),
        "appends" => fixture.write(
            "f",
            [&same[..], b"more\n"]
                .concat()
                .iter()
                .map(|b| char::from(*b))
                .collect::<String>(),
        ),
        "empties it" => fixture.write("f", ""),
        "removes it" => fs::remove_file(&f).unwrap(),
        "makes other line ends" => fixture.write("f", "a\r\nold\r\nb\r\n"),
        "puts a directory in its place" => {
            fs::remove_file(&f).unwrap();
            fs::create_dir(&f).unwrap();
        }
        "puts a link to the same text in its place" | "puts a link to other text in its place" => {
            fs::write(
                &other,
                if what.contains("same") {
                    &same[..]
                } else {
                    b"other\nold\n"
                },
            )
            .unwrap();
            fs::remove_file(&f).unwrap();
            symlink(&other, &f).unwrap();
        }
        "writes the same again" => fs::write(&f, &same).unwrap(),
        "touches it" => fs::File::open(&f)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap(),
        "puts the same file in its place" => {
            fs::write(fixture.cwd().join("fresh"), &same).unwrap();
            fs::rename(fixture.cwd().join("fresh"), &f).unwrap();
        }
        "makes it executable" => fs::set_permissions(&f, Permissions::from_mode(0o755)).unwrap(),
        what => panic!("unknown change: {what}"),
    }
}

/// Describes the entry at a path with everything that a user could miss.
fn state(path: &Path) -> String {
    let Ok(data) = fs::symlink_metadata(path) else {
        return "nothing".into();
    };
    match (data.is_symlink(), data.is_dir()) {
        (true, _) => format!(
            "link to {:?}: {:?}",
            fs::read_link(path).unwrap(),
            fs::read(path).ok()
        ),
        (_, true) => "directory".into(),
        _ => format!("{:o} {:?}", data.mode() & 0o7777, fs::read(path).unwrap()),
    }
}

/// FW03: a file changes after it was read and before the edit, or while the user is asked. The
/// changes of others are never lost.
#[tokio::test]
async fn fw03_changes_by_others_are_not_lost() {
    for (number, (tool, input)) in tools().into_iter().enumerate() {
        for (what, in_the_way) in CONCURRENT_CHANGES {
            for asked in [false, true] {
                let case = format!(
                    "tool {number}, another program {what}, {}",
                    if asked { "while asked" } else { "before" }
                );
                let fixture = TestProject::new();
                fixture.write("f", "a\nold\nb\n");
                let context = fixture.context();
                look(&context).await;
                let path = fixture.cwd().join("f");
                let result = if asked {
                    let prepared = tool.prepare(input.clone(), &context).await.unwrap();
                    change_concurrently(what, &fixture);
                    let found = state(&path);
                    ((prepared.run)(context.clone()).await, found)
                } else {
                    change_concurrently(what, &fixture);
                    let found = state(&path);
                    (
                        call(&tool, input.clone(), &context)
                            .await
                            .map(|(_, output)| output),
                        found,
                    )
                };
                match result {
                    // The exact quote is changed, and everything that others wrote remains.
                    (Ok(_), _)
                        if !asked
                            && number != 2
                            && ["writes something else", "appends"].contains(&what) =>
                    {
                        let new: &[u8] = if what == "appends" {
                            b"a\nnew\nb\nmore\n"
                        } else {
                            b"somebody's\nnew\n"
                        };
                        assert_eq!(fs::read(&path).unwrap(), new, "{case}");
                    }
                    (Ok(_), _) => {
                        assert!(!in_the_way, "{case}: it was written over");
                        let mode = if what.contains("executable") {
                            0o755
                        } else {
                            fs::metadata(&path).unwrap().mode() & 0o777
                        };
                        let new: &[u8] = if what.contains("line ends") {
                            b"a\r\nnew\r\nb\r\n"
                        } else {
                            b"a\nnew\nb\n"
                        };
                        assert_eq!(state(&path), format!("{mode:o} {new:?}"), "{case}");
                    }
                    (Err(failure), found) => {
                        assert!(
                            in_the_way || (asked && what.contains("line ends")),
                            "{case}: {failure}"
                        );
                        assert_eq!(state(&path), found, "{case}");
                        let message = failure.to_string();
                        let reasons = [
                            "changed since it was read",
                            "was removed since it was read",
                            "changed while you were being asked",
                            "moved or replaced",
                            "has not been read",
                            "Could not find",
                            "Failed to find",
                            "not found",
                            "directory",
                        ];
                        assert!(
                            reasons.iter().any(|reason| message.contains(reason)),
                            "{case}: {message}"
                        );
                    }
                }
                assert!(
                    fs::read(fixture.outside().join("other"))
                        .is_ok_and(|other| other.ends_with(b"old\n") || other.ends_with(b"b\n"))
                        || !what.contains("link")
                );
            }
        }
    }
}

/// FW04: line ends of every kind. Every byte outside the edit is unchanged.
#[tokio::test]
async fn fw04_line_ends_outside_the_edit_do_not_change() {
    const LINES: [&str; 5] = [
        "first line",
        "the old word here",
        "middle",
        "another",
        "the last one",
    ];
    const ENDS: [&[&str]; 8] = [
        &["\n"],
        &["\r\n"],
        &["\r"],
        &["\n", "\r\n"],
        &["\r\n", "\r"],
        &["\n", "\n", "\r\n"],
        &["\r\n", "\r\n", "\n"],
        &["\n", "\r", "\r\n"],
    ];
    const EDITS: [(&str, &str); 6] = [
        ("old", "new"),
        ("first", "1st"),
        ("last one", "end"),
        (" here", ""),
        ("middle", "mid\ndle"),
        ("the old word here\nmiddle", "one line"),
    ];
    let mut made = 0;
    for ends in ENDS {
        for end in ["", ends[0], "\r\n"] {
            let lines = LINES.iter().enumerate().map(|(n, line)| {
                let end = if n + 1 == LINES.len() {
                    end
                } else {
                    ends[n % ends.len()]
                };
                format!("{line}{end}")
            });
            let before: String = lines.collect();
            for (old, new) in EDITS {
                let fixture = TestProject::new();
                fixture.write("f", &before);
                let context = fixture.context();
                look(&context).await;
                let input = json!({ "filePath": "f", "oldString": old, "newString": new });
                let done = call(&erase(edit::EditTool), input, &context).await;
                let after = String::from_utf8(fixture.read("f")).unwrap();
                let first = old.lines().next().unwrap();
                let last = old.lines().last().unwrap();
                let from = before.find(first).unwrap();
                let to = before.find(last).unwrap() + last.len();
                match done {
                    Ok(_) => {
                        let inside = after
                            .strip_prefix(&before[..from])
                            .and_then(|rest| rest.strip_suffix(&before[to..]));
                        let inside = inside
                            .unwrap_or_else(|| panic!("{before:?} became {after:?} by {old:?}"));
                        assert_eq!(
                            inside.replace("\r\n", "\n").replace('\r', "\n"),
                            new,
                            "{before:?}, {old:?}"
                        );
                        made += 1;
                    }
                    // A search over several lines may not find line ends that it does not know.
                    Err(failure) => {
                        assert!(
                            old.contains('\n') && before.contains('\r'),
                            "{before:?}, {old:?}: {failure}"
                        );
                        assert_eq!(after, before);
                    }
                }
            }
        }
    }
    assert!(made >= 24 * 5, "{made}");
}

/// FW05: encodings. An edit changes only the bytes of its own lines, in the file's encoding, or
/// none.
#[tokio::test]
async fn fw05_other_encodings_are_preserved() {
    const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();
    let utf16 = |text: &str, big: bool| {
        let bytes = text.encode_utf16().flat_map(|unit| {
            if big {
                unit.to_be_bytes()
            } else {
                unit.to_le_bytes()
            }
        });
        bytes.collect::<Vec<u8>>()
    };
    let marked = "\u{feff}a\nold\nb\n";
    // The file, and "old", "new" and "ö" in its encoding. Without "ö", the encoding is not certain,
    // or has no such character.
    type Fixture = (Vec<u8>, [Vec<u8>; 2], Option<Vec<u8>>);
    let words = || [b"old".to_vec(), b"new".to_vec()];
    let utf8 = |bytes: &[u8]| (bytes.to_vec(), words(), Some("ö".as_bytes().to_vec()));
    let other = |bytes: &[u8], umlaut: Option<u8>| {
        let umlaut = umlaut.map(|byte| vec![byte]);
        (bytes.to_vec(), words(), umlaut)
    };
    let wide = |big: bool| {
        let words = ["old", "new"].map(|word| utf16(word, big));
        (utf16(marked, big), words, Some(utf16("ö", big)))
    };
    let fixtures: [Fixture; 16] = [
        utf8(b"a\nold\nb\n"),
        utf8(marked.as_bytes()),
        utf8("\u{feff}a\r\nold\r\nb\r\n".as_bytes()),
        utf8("a\nold\nb\nü 🎉 \u{1f468}\u{200d}\u{1f469}\n".as_bytes()),
        utf8("a\nold\nb\ne\u{301} and é\n".as_bytes()),
        utf8("a\nold\nb\n\u{2028}\n".as_bytes()),
        utf8(b"a\nold\nb\n\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f \xff\n"),
        wide(false),
        wide(true),
        other(b"a\nold\nb\ncaf\xe9\n", Some(0xf6)),
        other(b"a\nold\nb\n\xfc\xdf\n", None),
        other(
            b"a\nold\nb\n\x82\xb1\x82\xf1\x82\xc9\x82\xbf\x82\xcd\n",
            None,
        ),
        other(b"a\nold\nb\n\xc4\xe3\xba\xc3\n", None),
        other(b"a\nold\nb\n\xff\n", None),
        other(b"a\nold\nb\n\xed\xa0\x80\n", None),
        other(b"a\nold\nb\n\xf0\x9f\x8e", None),
    ];
    let umlaut = json!({ "filePath": "f", "oldString": "old", "newString": "ö" });
    for (before, [old, new], letter) in &fixtures {
        let replaced = |fresh: &[u8]| {
            let at = before
                .windows(old.len())
                .position(|bytes| bytes == old)
                .unwrap();
            [&before[..at], fresh, &before[at + old.len()..]].concat()
        };
        // All but `write`, which replaces the rest too.
        let ascii = tools()
            .into_iter()
            .filter(|(_, input)| input.get("content").is_none());
        let ascii = ascii.map(|(tool, input)| (tool, input, Some(replaced(new))));
        let fresh = letter.as_deref().map(&replaced);
        for (tool, input, wanted) in ascii.chain([(erase(edit::EditTool), umlaut.clone(), fresh)]) {
            let fixture = TestProject::new();
            fixture.write_bytes("f", before);
            let context = fixture.context();
            look(&context).await;
            let case = format!("{} {input}", String::from_utf8_lossy(before));
            let done = call(&tool, input, &context).await;
            let after = fixture.read("f");
            assert!(
                !after.windows(3).any(|bytes| bytes == REPLACEMENT),
                "{case}"
            );
            match (done, wanted) {
                (Ok(_), Some(wanted)) => assert_eq!(after, wanted, "{case}"),
                (Err(failure), None) => {
                    assert_eq!(after, *before, "{case}");
                    let message = failure.to_string();
                    assert!(message.starts_with("Cannot write f: "), "{case}: {message}");
                }
                (Ok(_), None) => panic!("{case} is written"),
                (Err(failure), Some(_)) => panic!("{case}: {failure}"),
            }
        }
    }
}

/// FW07: properties of a file other than its content.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn fw07_file_properties_survive_an_edit() {
    let (tool, input) = {
        let [first, ..] = tools();
        first
    };
    let fixture = TestProject::new();
    let f = fixture.cwd().join("f");
    let inside = fixture.cwd().join("inside");
    let outside = fixture.outside().join("target");
    for what in [
        "executable",
        "setgid",
        "read-only",
        "link inside",
        "link outside",
        "link to nothing",
        "link to a directory",
        "second name",
        "attributes",
        "sparse",
        "2 GiB",
        "pipe",
    ] {
        for path in [&f, &inside, &outside, &fixture.cwd().join("twin")] {
            fs::remove_file(path).ok();
        }
        fixture.write("f", "a\nold\nb\n");
        match what {
            "executable" => fs::set_permissions(&f, Permissions::from_mode(0o751)).unwrap(),
            "setgid" => fs::set_permissions(&f, Permissions::from_mode(0o2640)).unwrap(),
            "read-only" => fs::set_permissions(&f, Permissions::from_mode(0o444)).unwrap(),
            "link inside" | "link outside" => {
                let target = if what == "link inside" {
                    &inside
                } else {
                    &outside
                };
                fs::rename(&f, target).unwrap();
                symlink(target, &f).unwrap();
            }
            "link to nothing" | "link to a directory" => {
                fs::remove_file(&f).unwrap();
                symlink(
                    if what.ends_with("nothing") {
                        "nowhere"
                    } else {
                        ".git"
                    },
                    &f,
                )
                .unwrap();
            }
            "second name" => fs::hard_link(&f, fixture.cwd().join("twin")).unwrap(),
            "attributes" => {
                let file = fs::File::open(&f).unwrap();
                let kept = rustix::fs::fsetxattr(
                    &file,
                    "user.adjutant",
                    b"kept",
                    rustix::fs::XattrFlags::empty(),
                );
                if kept.is_err() {
                    continue; // a file system without them
                }
            }
            "sparse" | "2 GiB" => {
                let size = if what == "sparse" { 1 << 20 } else { 2 << 30 };
                fs::File::options()
                    .write(true)
                    .open(&f)
                    .unwrap()
                    .set_len(size)
                    .unwrap();
            }
            "pipe" => {
                fs::remove_file(&f).unwrap();
                nix::unistd::mkfifo(&f, nix::sys::stat::Mode::S_IRWXU).unwrap();
            }
            what => panic!("{what}?"),
        }
        let context = fixture.context();
        look(&context).await;
        let before = fs::symlink_metadata(&f).unwrap();
        let done = call(&tool, input.clone(), &context).await;
        let after = fs::symlink_metadata(&f).unwrap();
        let refusal = done
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default();
        match what {
            "executable" | "setgid" | "attributes" | "second name" => {
                done.unwrap();
                assert_eq!(fixture.read("f"), b"a\nnew\nb\n", "{what}");
                assert_eq!(before.mode(), after.mode(), "{what}");
                if what == "second name" {
                    // The file is replaced, so its other name has the complete old content.
                    assert_eq!(fixture.read("twin"), b"a\nold\nb\n");
                }
                if what == "attributes" {
                    let mut value = [0_u8; 8];
                    let size = rustix::fs::getxattr(&f, "user.adjutant", &mut value[..]).unwrap();
                    assert_eq!(&value[..size], b"kept");
                }
            }
            "link inside" | "link outside" => {
                let (requests, _) = done.unwrap();
                let asked = requests
                    .iter()
                    .any(|request| request.permission == "external_directory");
                assert_eq!(asked, what == "link outside");
                assert!(after.is_symlink(), "{what}");
                let target = if what == "link inside" {
                    &inside
                } else {
                    &outside
                };
                assert_eq!(fs::read(target).unwrap(), b"a\nnew\nb\n", "{what}");
            }
            _ => {
                assert!(done.is_err(), "{what} was edited");
                assert_eq!(
                    (before.ino(), before.mode(), before.len()),
                    (after.ino(), after.mode(), after.len()),
                    "{what}"
                );
                let why = match what {
                    "read-only" => "read-only",
                    "2 GiB" => "64 MiB",
                    "sparse" => "binary",
                    "pipe" => "not a regular file",
                    "link to a directory" => "directory",
                    _ => "not found",
                };
                assert!(refusal.contains(why), "{what}: {refusal}");
            }
        }
        fs::set_permissions(&f, Permissions::from_mode(0o644)).ok();
    }
}
