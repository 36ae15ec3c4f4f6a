//! A text file the way the user sees it: with what is unsaved in the editor, without byte order
//! mark; and the way back, each change written exactly once.
//!
//! Through the editor where it offers that, so that the user can review and undo; else to the disk.
//! Editors normalise line ends and byte order marks when they save. So a text that an editor could
//! spoil (a mark, anything but `\n`) goes to the disk, unless the editor holds unsaved changes.

use std::path::Path;

use serde_json::{Map, Value};

use super::disk;
use super::path::{Access, Found, Resolved};
use super::seen::{Known, Print};
use super::{Context, Failure};
use crate::event::Location;
use crate::message::Change;
use crate::permission::Need;
use crate::text;

/// A text file.
#[derive(Debug, Clone)]
pub struct Document {
    /// Where it is.
    pub place: Resolved,
    /// Its text, as the user sees it, line ends as they are. Empty for a file that does not exist.
    pub text: String,
    /// Whether it exists.
    pub exists: bool,
    /// Whether it begins with a byte order mark (not part of `text`).
    mark: bool,
    /// What lies on disk.
    disk: Option<Print>,
}

impl Document {
    /// Reads a file to change it. A missing file is an empty document that does not exist.
    ///
    /// # Errors
    /// To the model: directories, binary files, other encodings than UTF-8, files that are too
    /// large or may not be read.
    pub async fn open(place: Resolved, context: &Context) -> Result<Self, Failure> {
        let shown = &place.shown;
        let bytes = match disk::read(&place.real.path) {
            Ok(bytes) => Some(bytes),
            Err(disk::Error::Missing) => None,
            Err(e) => return Err(Failure::Tell(format!("Cannot open {shown}: {e}."))),
        };
        let saved = match bytes.map(String::from_utf8) {
            None => None,
            Some(Ok(text)) if text.contains('\0') => {
                return Err(Failure::Tell(format!("{shown} is a binary file; only text can be edited.")));
            }
            Some(Ok(text)) => Some(text),
            Some(Err(e)) => {
                let encoding = encoding(e.as_bytes());
                return Err(Failure::Tell(format!(
                    "{shown} is not UTF-8 (it looks like {encoding}). It is not edited, because characters would be lost. Use a command that knows the encoding (for example iconv), or ask the user to convert the file."
                )));
            }
        };
        let disk = saved.as_deref().map(Print::of);
        // Only a file the model was allowed to read is asked for; any other is refused in a moment.
        let known = context.seen.known(&place.real.path);
        let buffer = if known.is_some() { context.buffer(&place.path).await } else { None };
        let buffer = buffer.filter(|text| !text.is_empty() || saved.is_some());
        let text = match (buffer, saved) {
            (Some(buffer), Some(saved)) => choose(buffer, saved, known),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => return Ok(Self::nothing(place)),
        };
        let mark = text.starts_with('\u{feff}');
        let text = text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned);
        Ok(Self { place, text, exists: true, mark, disk })
    }

    fn nothing(place: Resolved) -> Self {
        Self { place, text: String::new(), exists: false, mark: false, disk: None }
    }

    /// That the model has read the file, and that it is still as it was then.
    ///
    /// # Errors
    /// To the model: read it (again).
    pub fn check_seen(&self, context: &Context) -> Result<(), Failure> {
        let shown = &self.place.shown;
        match context.seen.known(&self.place.real.path) {
            Some(_) if !self.exists => {
                // Who writes it again has been told.
                context.seen.forget(&self.place.real.path);
                Err(Failure::Tell(format!(
                    "{shown} was removed since it was read (by the user or a command). Nothing was written. If it should exist again, write it once more."
                )))
            }
            None if !self.exists => Ok(()),
            None => Err(Failure::Tell(format!(
                "{shown} has not been read in this session. Read it with the read tool first, then write the edit against what it contains."
            ))),
            Some(known) if known.text == self.print() => Ok(()),
            Some(_) => Err(Failure::Tell(format!(
                "{shown} has changed since it was read (by the user, the editor or a command). Read it again, then write the edit against what it contains now."
            ))),
        }
    }

    /// The model knows this state from now on.
    pub fn note(&self, context: &Context) {
        context.seen.note(&self.place.real.path, Known { text: self.print(), disk: self.disk });
    }

    fn print(&self) -> Print {
        Print::of(&self.text)
    }

    /// The change to a new text, whole, for people.
    pub fn change(&self, new: &str) -> Change {
        let old = self.exists.then(|| self.text.clone());
        Change { path: self.place.path.display().to_string(), old, new: new.into() }
    }

    /// The need to make a change, and the one to leave the project where the file is outside.
    pub fn needs(&self, change: &Change) -> Vec<Need> {
        let mut needs = self.place.real.needs(Access::Edit);
        if let Some(edit) = needs.last_mut() {
            edit.metadata = facts(change);
            edit.changes = vec![change.clone()];
        }
        needs
    }

    /// Where the change begins.
    pub fn location(&self, new: &str) -> Location {
        let same = self.text.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
        let line = if self.exists { u32::try_from(same + 1).ok() } else { None };
        Location { path: self.place.path.clone(), line }
    }

    /// That the file is still what it was when this was read: same place, same content.
    ///
    /// # Errors
    /// To the model, when it is not.
    pub async fn check_unchanged(&self, context: &Context) -> Result<(), Failure> {
        self.place.still()?;
        let now = Self::open(self.place.clone(), context).await?;
        if now.exists == self.exists && now.text == self.text && now.mark == self.mark {
            return Ok(());
        }
        Err(Failure::Tell(format!(
            "{} changed while you were being asked. Nothing was written. Read it again, then write the edit against what it contains now.",
            self.place.shown
        )))
    }

    /// Writes the new text, exactly once, and sees whether it arrived. Directories are made. What
    /// comes back is a sentence for the model where the editor saved something else (it may format
    /// files when it saves them).
    ///
    /// # Errors
    /// To the model, with the system's reason; the old file is whole then.
    pub async fn write(&self, new: &str, context: &Context) -> Result<Option<String>, Failure> {
        let refused = |e: &dyn std::fmt::Display| {
            Failure::Tell(format!("Cannot write {}: {e}. The file is as it was.", self.place.shown))
        };
        if let Some(dir) = self.place.real.path.parent() {
            disk::make_directory(dir).map_err(|e| refused(&e))?;
        }
        let whole = self.with_mark(new);
        let unsaved = self.exists && self.disk != Some(self.print());
        let plain = !whole.starts_with('\u{feff}') && !new.contains('\r') && !self.text.contains('\r');
        if (plain || unsaved) && context.files.write {
            let before = stored(&self.place.real.path);
            if let Some(Ok(())) = context.write_buffer(&self.place.path, &whole).await {
                let after = stored(&self.place.real.path);
                // Where the editor says yes and the disk has not changed, it has not been written.
                if after != before || after.as_deref() == Some(whole.as_bytes()) {
                    let saved = after.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
                    let print = Print::of(&saved);
                    context.seen.note(&self.place.real.path, Known { text: print, disk: Some(print) });
                    let other = print != Print::of(&whole);
                    return Ok(other.then(|| {
                        "The editor changed the text when it saved the file (a formatter, perhaps). Read it again before the next edit.".into()
                    }));
                }
            }
        }
        disk::write(&self.place.real.path, whole.as_bytes()).map_err(|e| refused(&e))?;
        let print = Print::of(new);
        context.seen.note(&self.place.real.path, Known { text: print, disk: Some(print) });
        Ok(None)
    }

    /// Brings back what was here when this was read, after a write or a removal.
    ///
    /// # Errors
    /// To the model, with the system's reason.
    pub async fn restore(&self, context: &Context) -> Result<(), Failure> {
        if self.exists {
            // What was written since is not what this document was read as.
            let text = self.text.clone();
            self.write(&text, context).await.map(drop)
        } else {
            self.remove(context)
        }
    }

    /// The text as it must be written to another file to carry this one's byte order mark along.
    pub fn with_mark(&self, text: &str) -> String {
        if self.mark { format!("\u{feff}{text}") } else { text.to_owned() }
    }

    /// Removes the file.
    ///
    /// # Errors
    /// To the model, with the system's reason.
    pub fn remove(&self, context: &Context) -> Result<(), Failure> {
        disk::remove(&self.place.real.path)
            .map_err(|e| Failure::Tell(format!("Cannot delete {}: {e}.", self.place.shown)))?;
        context.seen.forget(&self.place.real.path);
        Ok(())
    }
}

/// Resolves the place of a file to be written and reads what is there.
///
/// # Errors
/// As [`super::path::resolve`] and [`Document::open`].
pub async fn target(context: &Context, path: &str) -> Result<Document, Failure> {
    let place = super::path::resolve(context, path, Access::Edit)?;
    if place.real.found == Found::Directory && place.real.inside {
        return Err(Failure::Tell(format!("{} is a directory, not a file.", place.shown)));
    }
    if place.real.is_absent() && path.ends_with('/') {
        return Err(Failure::Tell(format!(
            "{} ends with a slash, which names a directory, not a file.",
            text::escaped(path)
        )));
    }
    match Document::open(place.clone(), context).await {
        // What lies outside is not told before it may be looked at: writing it fails then.
        Err(Failure::Tell(_)) if !place.real.inside => Ok(Document::nothing(place)),
        opened => opened,
    }
}

/// What the user sees, when the editor and the disk differ: the editor's text holds unsaved
/// changes, unless the disk has changed since the model saw the file and the editor's text has not:
/// then the editor has not noticed yet.
pub(super) fn choose(buffer: String, saved: String, known: Option<Known>) -> String {
    let (in_buffer, on_disk) = (Print::of(&buffer), Print::of(&saved));
    let stale = known.is_some_and(|known| known.disk.is_some_and(|disk| disk != on_disk) && known.text == in_buffer);
    let empty = buffer.is_empty() && !saved.is_empty();
    if in_buffer == on_disk || stale || empty { saved } else { buffer }
}

fn stored(real: &Path) -> Option<Vec<u8>> {
    disk::read(real).ok()
}

/// What editors and people's policies may want to know about a change.
pub fn facts(change: &Change) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("filepath".into(), Value::String(change.path.clone()));
    let old = change.old.as_deref().unwrap_or_default();
    // A diff of very large texts takes longer than it is worth to anyone.
    if old.len() + change.new.len() <= 1 << 20 {
        let diff = similar::TextDiff::from_lines(old, &change.new);
        let (mut added, mut removed) = (0, 0);
        for change in diff.iter_all_changes() {
            match change.tag() {
                similar::ChangeTag::Insert => added += 1,
                similar::ChangeTag::Delete => removed += 1,
                similar::ChangeTag::Equal => {}
            }
        }
        facts.insert("additions".into(), Value::from(added));
        facts.insert("deletions".into(), Value::from(removed));
        let name = text::escaped(&change.path);
        let diff = diff.unified_diff().context_radius(3).header(&name, &name).to_string();
        facts.insert("diff".into(), Value::String(text::head(&diff, 64 << 10).to_owned()));
    }
    facts
}

/// What bytes that are no UTF-8 are likely to be. A name for a person, not something to decode by.
pub fn encoding(bytes: &[u8]) -> &'static str {
    match bytes {
        [0xff, 0xfe, 0, 0, ..] => return "UTF-32 LE",
        [0xff, 0xfe, ..] => return "UTF-16 LE",
        [0xfe, 0xff, ..] => return "UTF-16 BE",
        _ => {}
    }
    if bytes.contains(&0) {
        return "binary data";
    }
    // Western texts have single bytes above 0x9f between ASCII letters; in Shift-JIS nearly all
    // kana begin with 0x82 or 0x83; GBK and EUC have their high bytes in pairs.
    let high = bytes.iter().filter(|byte| **byte >= 0x80).count();
    let kana = bytes.iter().filter(|byte| (0x81..=0x83).contains(*byte)).count();
    let paired = bytes.windows(2).filter(|pair| pair[0] >= 0xa1 && pair[1] >= 0xa1).count();
    if kana * 4 >= high {
        "Shift-JIS"
    } else if paired * 3 >= high {
        "EUC or GBK"
    } else {
        "Latin-1 or Windows-1252"
    }
}

#[cfg(test)]
mod tests {
    use super::super::test::{Stage, Way};
    use super::*;

    #[test]
    fn encodings_are_named() {
        let table: &[(&[u8], &str)] = &[
            (b"\xff\xfea\0b\0", "UTF-16 LE"),
            (b"\xfe\xff\0a", "UTF-16 BE"),
            (b"caf\xe9 \xfcber", "Latin-1 or Windows-1252"),
            (b"\x82\xb1\x82\xf1\x82\xc9\x82\xbf\x82\xcd", "Shift-JIS"),
            (b"\xc4\xe3\xba\xc3\xca\xc0\xbd\xe7", "EUC or GBK"),
            (b"a\0\xff", "binary data"),
        ];
        for (bytes, name) in table {
            assert_eq!(encoding(bytes), *name, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn the_editor_writes_or_the_disk() {
        // How the editor behaves, the text before, the text after, who wrote.
        let table = [
            (Way::Saves, "a\n", "b\n", "editor"),
            (Way::Refuses, "a\n", "b\n", "disk"),
            (Way::Lies, "a\n", "b\n", "disk"),
            (Way::Saves, "a\r\n", "b\r\n", "disk"),
            (Way::Saves, "\u{feff}a\n", "\u{feff}b\n", "disk"),
            (Way::Formats, "a\n", "b\n", "editor"),
        ];
        for (way, before, after, writer) in table {
            let stage = Stage::new();
            stage.write("f", before);
            let (context, editor) = stage.with_editor(way);
            let document = target(&context, "f").await.unwrap();
            let note = document.write(after.trim_start_matches('\u{feff}'), &context).await.unwrap();
            assert_eq!(note.is_some(), way == Way::Formats, "{way:?}");
            let expected = if way == Way::Formats { format!("{after}// formatted\n") } else { after.to_owned() };
            assert_eq!(stage.read("f"), expected.as_bytes(), "{way:?} {before:?}");
            assert_eq!(editor.saved(), usize::from(writer == "editor"), "{way:?} {before:?}");
            let known = context.seen.known(&document.place.real.path).unwrap();
            assert_eq!(known.text, Print::of(&expected));
        }
    }

    #[tokio::test]
    async fn unsaved_changes_are_what_is_edited() {
        let stage = Stage::new();
        stage.write("f", "old\n");
        let (context, editor) = stage.with_editor(Way::Saves);
        editor.type_into(&stage.cwd().join("f"), "unsaved\n");
        // The editor is not asked for what was never read.
        let document = target(&context, "f").await.unwrap();
        assert_eq!(document.text, "old\n");
        document.note(&context);
        let document = target(&context, "f").await.unwrap();
        assert_eq!(document.text, "unsaved\n");
        document.note(&context);
        document.check_seen(&context).unwrap();
        // The user goes on typing.
        editor.type_into(&stage.cwd().join("f"), "more\n");
        let failure = document.check_unchanged(&context).await.unwrap_err().to_string();
        assert!(failure.contains("changed while you were being asked"), "{failure}");
        let document = target(&context, "f").await.unwrap();
        assert!(document.check_seen(&context).unwrap_err().to_string().contains("Read it again"));
    }

    #[test]
    fn a_stale_buffer_is_not_mistaken_for_unsaved_changes() {
        let known = |text: &str, disk: &str| Some(Known { text: Print::of(text), disk: Some(Print::of(disk)) });
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
            assert_eq!(choose(buffer.into(), saved.into(), known), expected, "{buffer} {saved}");
        }
    }
}
