//! The files and lines that the model has seen in this session: the files it has read, with their
//! state; and every line that a result has shown, whichever the tool.
//!
//! The content matters, not the modification time and not the line ends, because an editor may show
//! the same text with other line ends. If a command of the agent changes a file that was as the
//! model knew it, the change counts as the agent's own.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use foldhash::fast::RandomState;

use crate::files::disk;
use crate::files::encoding::{DecodedText, EncodingHint, decode};

use base::lock::lock;

/// A fingerprint of a text, independent of line ends and byte order mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextFingerprint(u64);

impl TextFingerprint {
    pub fn of(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes();
        let mut hasher = DefaultHasher::new();
        let mut from = 0;
        for end in memchr::memmem::find_iter(text, b"\r\n") {
            hasher.write(&text[from..end]);
            from = end + 1;
        }
        hasher.write(&text[from..]);
        Self(hasher.finish())
    }
}

/// The state of a file that the model has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    /// The text that the model has seen.
    pub text: TextFingerprint,
    /// The text on disk at that time; it differs if the editor held unsaved changes. `None` if
    /// there was no text on disk.
    pub disk: Option<TextFingerprint>,
    /// The text itself, to describe later changes. `None` if it is not stored, to limit memory.
    pub was: Option<Arc<str>>,
    /// The state of the file on disk at that time; `None` if there was none.
    stamp: Option<DiskStamp>,
}

/// The length and modification time of a file, which distinguish two states without reading it.
type DiskStamp = (u64, SystemTime);

/// Returns the present stamp of a file.
fn stamp(real: &Path) -> Option<DiskStamp> {
    let data = std::fs::metadata(real).ok()?;
    Some((data.len(), data.modified().ok()?))
}

/// The maximum size of a stored text, in bytes.
const MAX_STORED_TEXT_BYTES: usize = 128 << 10;
/// The maximum size of all stored texts of a session, in bytes. Beyond it all are dropped.
const MAX_STORED_BYTES: usize = 8 << 20;

/// The maximum number of remembered lines of a session. Beyond it all are forgotten, and some may
/// have to be read again.
const MAX_REMEMBERED_LINES: usize = 400_000;

impl KnownFile {
    /// Returns the state of a file whose text the model has seen. The fingerprints are those of
    /// this text and of the text on disk.
    pub fn of(text: &str, fingerprint: TextFingerprint, disk: Option<TextFingerprint>) -> Self {
        let was = (text.len() <= MAX_STORED_TEXT_BYTES).then(|| text.into());
        Self {
            text: fingerprint,
            disk,
            was,
            stamp: None,
        }
    }

    /// Returns the state of a file whose text on disk the model has seen.
    pub fn saved(text: &str) -> Self {
        let fingerprint = TextFingerprint::of(text);
        Self::of(text, fingerprint, Some(fingerprint))
    }
}

/// The files and lines that one session has shown. The mutexes are leaf locks, held only for a
/// look-up.
#[derive(Debug, Default)]
pub struct ReadTracker {
    files: Mutex<FileTable>,
    shown: Mutex<ShownLines>,
}

/// The known states of files.
#[derive(Debug, Default)]
struct FileTable {
    known: HashMap<PathBuf, KnownFile>,
    /// The total bytes of stored texts.
    stored_bytes: usize,
}

/// Hashes of lines, and of pairs of consecutive lines; empty lines do not count.
#[derive(Debug, Default)]
struct ShownLines {
    /// The hash function, which differs in each session.
    hashes: RandomState,
    lines: HashSet<u64, RandomState>,
    pairs: HashSet<(u64, u64), RandomState>,
}

impl ReadTracker {
    fn files(&self) -> MutexGuard<'_, FileTable> {
        lock(&self.files)
    }

    /// Records that the model has seen or written this file. `real` has its symlinks resolved.
    pub fn record(&self, real: &Path, mut known: KnownFile) {
        known.stamp = stamp(real);
        let mut files = self.files();
        files.stored_bytes += known.was.as_ref().map_or(0, |was| was.len());
        if let Some(before) = files.known.insert(real.into(), known) {
            files.stored_bytes -= before.was.map_or(0, |was| was.len());
        }
        if files.stored_bytes > MAX_STORED_BYTES {
            files.known.values_mut().for_each(|known| known.was = None);
            files.stored_bytes = 0;
        }
    }

    /// Returns the last known state of a file.
    pub fn known(&self, real: &Path) -> Option<KnownFile> {
        self.files().known.get(real).cloned()
    }

    /// Forgets the state of a file, so that it counts as not read.
    pub fn forget(&self, real: &Path) {
        let mut files = self.files();
        if let Some(before) = files.known.remove(real) {
            files.stored_bytes -= before.was.map_or(0, |was| was.len());
        }
    }

    /// Returns the files whose state on disk is the one that the model has seen. Reads metadata
    /// from the disk.
    pub fn unchanged_files(&self) -> Vec<PathBuf> {
        let known: Vec<(PathBuf, Option<DiskStamp>)> = {
            let files = self.files();
            let saved = files
                .known
                .iter()
                .filter(|(_, known)| known.disk == Some(known.text));
            saved
                .map(|(path, known)| (path.clone(), known.stamp))
                .collect()
        };
        known
            .into_iter()
            .filter(|(path, was)| was.is_some() && stamp(path) == *was)
            .map(|(path, _)| path)
            .collect()
    }

    /// Adopts changes to these files since [`ReadTracker::unchanged_files`] as the agent's own:
    /// their present state becomes the known one. Reads the changed files; `hint` names their
    /// encodings.
    pub fn adopt(&self, paths: Vec<PathBuf>, hint: impl Fn(&Path) -> EncodingHint) {
        for path in paths {
            let now = stamp(&path);
            if self.known(&path).is_none_or(|known| known.stamp == now) {
                continue;
            }
            let read = disk::read(&path).map(|bytes| decode(bytes, || hint(&path)));
            match read {
                Ok(Ok(DecodedText { text, .. })) => {
                    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
                    self.record(&path, KnownFile::saved(text));
                }
                // The next read reports the error.
                Ok(Err(_)) | Err(_) => self.forget(&path),
            }
        }
    }

    /// Records that the model has been shown this result of a tool.
    pub fn record_shown(&self, result: &str) {
        let hashes = lock(&self.shown).hashes.clone();
        let mut lines = Vec::new();
        let mut pairs = Vec::new();
        for without_format in LINE_FORMATS {
            let mut before = None;
            for line in result.lines() {
                let Some(line) = without_format(line) else {
                    before = None;
                    continue;
                };
                let Some(line) = line_hash(line, &hashes) else {
                    continue;
                };
                lines.push(line);
                if let Some(before) = before {
                    pairs.push((before, line));
                }
                before = Some(line);
            }
        }
        let mut shown = lock(&self.shown);
        if shown.lines.len() > MAX_REMEMBERED_LINES {
            shown.lines.clear();
            shown.pairs.clear();
        }
        shown.lines.extend(lines);
        shown.pairs.extend(pairs);
    }

    /// Returns whether all lines of a text have been shown, and consecutive ones together.
    pub fn has_shown(&self, text: &str) -> bool {
        let shown = lock(&self.shown);
        let lines: Vec<u64> = text
            .lines()
            .filter_map(|line| line_hash(line, &shown.hashes))
            .collect();
        lines.iter().all(|line| shown.lines.contains(line))
            && lines
                .windows(2)
                .all(|pair| shown.pairs.contains(&(pair[0], pair[1])))
    }
}

/// Returns the hash of a line unless it is empty.
fn line_hash(line: &str, hashes: &RandomState) -> Option<u64> {
    let line = line.trim_end();
    (!line.is_empty()).then(|| hashes.hash_one(line))
}

/// Returns a line without a format.
fn as_it_is(line: &str) -> Option<&str> {
    Some(line)
}

/// The formats of file lines in results, each as a function that removes the format: unchanged;
/// with a line number; with a path and a number; as in a diff. `None` for a line in another format.
const LINE_FORMATS: [fn(&str) -> Option<&str>; 4] = [
    as_it_is,
    |line| {
        let line = line.trim_start();
        let rest = line
            .strip_prefix("Line ")
            .unwrap_or(line)
            .trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == line.len() {
            return None;
        }
        let bare = rest.strip_prefix(": ").or_else(|| rest.strip_prefix("- "));
        bare.or_else(|| rest.strip_prefix([':', '-', '\t', '|', '\u{2192}']))
    },
    |line| after_number(line, ':').or_else(|| after_number(line, '-')),
    |line| line.strip_prefix(['+', '-', ' ']),
];

/// Returns the text after the first number between two separators, as in `path:12:text`.
fn after_number(line: &str, separator: char) -> Option<&str> {
    line.match_indices(separator).find_map(|(at, _)| {
        let rest = &line[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        rest[digits..].strip_prefix(separator)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_ignores_line_ends_and_mark() {
        assert_eq!(
            TextFingerprint::of("a\r\nb\r\n"),
            TextFingerprint::of("a\nb\n")
        );
        assert_eq!(
            TextFingerprint::of("\u{feff}a\n"),
            TextFingerprint::of("a\n")
        );
        assert_eq!(TextFingerprint::of("a\r\n"), TextFingerprint::of("a\n"));
        for (one, other) in [
            ("a\nb", "ab"),
            ("a\n", "a"),
            ("a\r", "a"),
            ("a\rb", "a\nb"),
            ("", "\n"),
        ] {
            assert_ne!(
                TextFingerprint::of(one),
                TextFingerprint::of(other),
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn shown_lines_count_for_every_tool() {
        let file = "fn a() {\n\n    b();\n}\n";
        // A result, and whether it shows the file.
        let table = [
            (file.to_owned(), true),
            (
                "$ cat f\nfn a() {\n\n    b();\n}  \n[exit code 0]".into(),
                true,
            ),
            ("1: fn a() {\n2: \n3:     b();\n4: }\n".into(), true),
            (
                "     1\tfn a() {\n     2\t\n     3\t    b();\n     4\t}".into(),
                true,
            ),
            ("f:1:fn a() {\nf:2:\nf:3:    b();\nf:4:}".into(), true),
            ("f:1:fn a() {\nf-2-\nf-3-    b();\nf-4-}".into(), true),
            (
                "f:\n  Line 1: fn a() {\n  Line 2: \n  Line 3:     b();\n  Line 4: }".into(),
                true,
            ),
            ("@@ -1,2 +1,4 @@\n fn a() {\n+\n+    b();\n }".into(), true),
            ("1: fn a() {\n4: }\n".into(), false),
            ("fn a() {\n    c();\n}\n    b();\n".into(), false),
            ("fn a() {\n    b(); // more\n}\n".into(), false),
            (String::new(), false),
        ];
        for (result, expected) in table {
            let seen = ReadTracker::default();
            seen.record_shown(&result);
            assert_eq!(seen.has_shown(file), expected, "{result:?}");
        }
        assert!(ReadTracker::default().has_shown("\n"));
    }

    #[test]
    fn change_by_a_command_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let seen = ReadTracker::default();
        for name in ["formatted", "changed before", "left", "removed"] {
            std::fs::write(path(name), "a\n").unwrap();
            seen.record(&path(name), KnownFile::saved("a\n"));
        }
        std::fs::write(path("changed before"), "by the user\n").unwrap();
        let before = seen.unchanged_files();
        assert_eq!(before.len(), 3, "{before:?}");
        std::fs::write(path("formatted"), "\u{feff}a;\n").unwrap();
        std::fs::write(path("changed before"), "by the user, by the command\n").unwrap();
        std::fs::remove_file(path("removed")).unwrap();
        seen.adopt(before, |_| EncodingHint::default());
        let text = |name: &str| seen.known(&path(name)).map(|known| known.text);
        assert_eq!(text("formatted"), Some(TextFingerprint::of("a;\n")));
        assert_eq!(text("changed before"), Some(TextFingerprint::of("a\n")));
        assert_eq!(text("left"), Some(TextFingerprint::of("a\n")));
        assert_eq!(text("removed"), None);
    }
}
