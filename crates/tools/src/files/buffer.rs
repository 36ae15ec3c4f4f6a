//! The choice between a file's text in the editor and its text on the disk.

use crate::files::encoding::EncodedSource;
use crate::files::read_tracker::{KnownFile, TextFingerprint};

/// Returns the text that the user sees when the editor and the disk differ. The editor's text has
/// unsaved changes, unless the disk has changed since the model saw the file and the editor's text
/// has not: then the editor has not noticed the change yet.
pub(crate) fn choose(buffer: String, saved: String, known: Option<&KnownFile>) -> String {
    let in_buffer = TextFingerprint::of(&buffer);
    let on_disk = TextFingerprint::of(&saved);
    let stale = known.is_some_and(|known| {
        known.disk.is_some_and(|disk| disk != on_disk) && known.text == in_buffer
    });
    let empty = buffer.is_empty() && !saved.is_empty();
    if in_buffer == on_disk || stale || empty {
        saved
    } else {
        buffer
    }
}

/// Returns whether an editor's text is the file's own, but read in another encoding, and so is no
/// unsaved change. `source` is `None` for a file in plain UTF-8. `disk` is the file's own text.
pub(crate) fn is_misread(
    buffer: &str,
    source: Option<&EncodedSource>,
    disk: Option<TextFingerprint>,
) -> bool {
    source.is_some_and(|source| {
        !source.is_utf8()
            && disk != Some(TextFingerprint::of(buffer))
            && source.is_misread_as(buffer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_buffer_is_not_taken_for_unsaved_changes() {
        let known = |text: &str, disk: &str| {
            let disk = TextFingerprint::of(disk);
            Some(KnownFile::of(text, TextFingerprint::of(text), Some(disk)))
        };
        let table = [
            ("a", "a", None, "a"),
            ("b", "a", None, "b"),
            ("", "a", None, "a"),
            ("a", "b", known("a", "a"), "b"),
            ("b", "a", known("a", "a"), "b"),
            ("b", "c", known("a", "a"), "b"),
            ("a\n", "a\r\n", None, "a\r\n"),
        ];
        for (buffer, saved, known, expected) in table {
            assert_eq!(
                choose(buffer.into(), saved.into(), known.as_ref()),
                expected,
                "{buffer} {saved}"
            );
        }
    }
}
