//! A text file the way the user sees it: with what is unsaved in the editor, without byte order
//! mark; and the way back, each change written exactly once.
//!
//! Through the editor where it offers that, so that the user can review and undo; else to the disk.
//! Editors normalise line ends and byte order marks when they save. So a text that an editor could
//! spoil (a mark, anything but `\n`) goes to the disk, unless the editor holds unsaved changes.

mod name;

use std::path::Path;
use std::sync::Arc;

pub use name::itself;
use serde_json::{Map, Value};

use super::disk;
use super::format;
use super::language::{self, Planned};
use super::nearest::{near, numbered};
use super::path::{Access, PathKind, ResolvedPath};
use super::replace::FuzzyMatch;
use super::search::elsewhere;
use super::seen::{KnownFile, TextFingerprint};
use super::{Failure, ToolContext};
use base::text;
use events::{Location, NotWritten};
use permission::{Action, Need, Policy, evaluate};
use transcript::Change;

#[derive(Debug, Clone)]
pub struct Document {
    pub place: ResolvedPath,
    /// Its text, as the user sees it, line ends as they are. Empty for a file that does not exist.
    pub text: String,
    pub exists: bool,
    /// Whether it begins with a byte order mark (not part of `text`).
    mark: bool,
    disk: Option<TextFingerprint>,
    /// The model knows all of it, or hears of what it does not.
    told: bool,
    /// It is no text, or none that is read: what it was when it was looked at.
    raw: Option<disk::FileIdentity>,
}

/// What lies in a file that was written.
#[derive(Debug)]
pub struct WrittenText {
    /// Its text, without byte order mark.
    pub text: String,
    /// For the model: what the editor or a formatter made of it.
    pub notes: Vec<String>,
}

/// How many lines of what has changed are shown, and how many bytes; what is more is told by its place.
const CHANGED: (usize, usize) = (12, 1_000);

/// How much of a file is shown in the place of being changed unread.
const WHOLE: usize = 400;

impl Document {
    /// What the model is told that wants to change a file that is not there.
    pub async fn missing(&self, context: &ToolContext) -> Failure {
        let instead = elsewhere(context, &self.place.real.path).await;
        Failure::Tell(format!("File {} not found.{instead}", self.place.shown))
    }

    /// Reads a file to change it. A missing file is an empty document that does not exist.
    ///
    /// # Errors
    /// To the model: directories, binary files, other encodings than UTF-8, files that are too
    /// large or may not be read.
    pub async fn open(place: ResolvedPath, context: &ToolContext) -> Result<Self, Failure> {
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
        let disk = saved.as_deref().map(TextFingerprint::of);
        // Only a file the model may read is asked for; any other is refused in a moment.
        let known = context.session.seen.known(&place.real.path);
        let buffer =
            if known.is_some() || readable(&place, context) { context.buffer(&place.path).await } else { None };
        let buffer = buffer.filter(|text| !text.is_empty() || saved.is_some());
        let text = match (buffer, saved) {
            (Some(buffer), Some(saved)) => choose(buffer, saved, known.as_ref()),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => return Ok(Self::nothing(place)),
        };
        let mark = text.starts_with('\u{feff}');
        let text = text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned);
        let told = known.is_some_and(|known| known.text == TextFingerprint::of(&text));
        Ok(Self { place, text, exists: true, mark, disk, told, raw: None })
    }

    fn nothing(place: ResolvedPath) -> Self {
        Self { place, text: String::new(), exists: false, mark: false, disk: None, told: true, raw: None }
    }

    /// That all of the file may be replaced: the model has read it, in whatever way, and it is still as it was
    /// then.
    ///
    /// # Errors
    /// To the model, with what the file contains, which counts as read.
    pub fn check_whole(&mut self, context: &ToolContext) -> Result<(), Failure> {
        let shown = &self.place.shown;
        let known = context.session.seen.known(&self.place.real.path);
        if !self.exists {
            // Who writes it again has been told.
            context.session.seen.forget(&self.place.real.path);
            return match known {
                Some(_) => Err(Failure::Tell(format!(
                    "{shown} was removed since it was read (by the user or a command). Nothing was written. If it should exist again, write it once more."
                ))),
                None => Ok(()),
            };
        }
        if self.told || self.readable(context) && self.is_familiar(known.as_ref(), context) {
            self.told = true;
            return Ok(());
        }
        if !self.readable(context) {
            return Err(self.unread(known.is_some()));
        }
        Err(self.shown_first("replaced", known.as_ref(), context))
    }

    /// That the file may be removed: as [`Document::check_whole`]. Of what is no text the model sees nothing, and what
    /// is not read without asking need not be read to be removed, unless it was.
    ///
    /// # Errors
    /// To the model, with what the file contains, which counts as read.
    pub fn check_removable(&mut self, context: &ToolContext) -> Result<(), Failure> {
        let known = context.session.seen.known(&self.place.real.path);
        if !self.is_text() || known.is_none() && !self.readable(context) {
            return Ok(());
        }
        if self.told || self.readable(context) && self.is_familiar(known.as_ref(), context) {
            return Ok(());
        }
        if !self.readable(context) {
            return Err(self.unread(true));
        }
        Err(self.shown_first("removed", known.as_ref(), context))
    }

    /// Whether the model has seen what the file holds, in whatever way.
    fn is_familiar(&self, known: Option<&KnownFile>, context: &ToolContext) -> bool {
        // There is nothing to know of an empty file, but that it is one where there was something.
        let is_empty = self.text.trim().is_empty();
        if is_empty { known.is_none() } else { context.session.seen.shows(&self.text) }
    }

    /// The refusal to have a file `done` that the model does not know as it is, with what it contains.
    fn shown_first(&self, done: &str, known: Option<&KnownFile>, context: &ToolContext) -> Failure {
        let shown = &self.place.shown;
        let total = self.text.lines().count();
        let why = match known.map(|known| known.was.as_deref().map(|was| changes(was, &self.text))) {
            None => format!("{shown} exists, and was not read in this session, so it was not {done}."),
            Some(None) => format!("{shown} has changed since it was read, so it was not {done}."),
            Some(Some(what)) => format!(
                "{shown} has changed since it was read (by the user, the editor or a command), so it was not {done}:{what}"
            ),
        };
        self.note(context);
        let more = if total > WHOLE { format!("\n(lines 1-{WHOLE} of {total})") } else { String::new() };
        let content: Vec<String> =
            self.text.lines().take(WHOLE).enumerate().map(|(n, line)| format!("{}: {line}", n + 1)).collect();
        Failure::Tell(format!(
            "{why}\n\nThis is what it contains; it counts as read now:\n{}{more}\n\nIf it is to be {done} all the same, send the call again; to change a part of it, edit that part.",
            content.join("\n")
        ))
    }

    /// What is written where all of the file is to be replaced by `content`. A byte order mark is kept, not doubled, and a file
    /// whose lines all end in `\r\n` stays one, also when the model wrote `\n` throughout.
    pub fn replacement(&self, content: &str) -> String {
        let content = content.strip_prefix('\u{feff}').filter(|_| self.exists).unwrap_or(content);
        let breaks = self.text.matches('\n').count();
        let returns = breaks > 0 && self.text.matches("\r\n").count() == breaks && !content.contains('\r');
        if returns { content.replace('\n', "\r\n") } else { content.to_owned() }
    }

    /// That a piece of the file may be changed where the model knows that piece: it has quoted it, and
    /// [`Document::check_piece`] asks for more where it has not done so exactly. What comes back is a note for the model where
    /// the file has changed since it was read.
    ///
    /// # Errors
    /// To the model, for files that are not read without asking: read it (again).
    pub fn check_quoted(&mut self, context: &ToolContext) -> Result<Option<String>, Failure> {
        if self.told {
            return Ok(None);
        }
        let known = context.session.seen.known(&self.place.real.path);
        if !self.readable(context) {
            return Err(self.unread(known.is_some()));
        }
        let Some(known) = known else { return Ok(None) };
        let what = known.was.as_deref().map(|was| changes(was, &self.text));
        self.told = what.as_ref().is_some_and(|what| what.contains('\n'));
        let what = what.map_or(".".to_owned(), |what| format!(":{what}"));
        let shown = &self.place.shown;
        Ok(Some(format!("{shown} had changed since you last saw it (by the user, the editor or a command){what}")))
    }

    /// That a piece which the model has not quoted exactly is one it has been shown. `text` is what it was found in.
    ///
    /// # Errors
    /// To the model, with that piece, which counts as read.
    pub fn check_piece(&self, text: &str, context: &ToolContext, fuzzy: &FuzzyMatch) -> Result<(), Failure> {
        if self.told || fuzzy.was.iter().all(|(_, was)| context.session.seen.shows(was)) {
            return Ok(());
        }
        let mut places = Vec::new();
        for (first, was) in &fuzzy.was {
            context.session.seen.show(was);
            let last = first + was.trim_end().matches('\n').count();
            places.push(numbered(text, first.saturating_sub(2), last + 2));
        }
        let differs = match &fuzzy.differences[..] {
            [] => String::new(),
            some => format!("It has {}. ", some.join("; ")),
        };
        Err(Failure::Tell(format!(
            "What you quote is not in {} exactly, and this place in it was not shown in this session, so nothing was changed. It was found {}:\n{}\n{differs}If that is the place, send the call again.",
            self.place.shown,
            fuzzy.way,
            places.join("\n…\n")
        )))
    }

    /// Where the file is most like what was not found in it, for the model; nothing for files that are
    /// not read without asking.
    pub fn nearest(&self, text: &str, wanted: &str, context: &ToolContext) -> String {
        if !self.told && !self.readable(context) {
            return "Read the file again and copy the text from there, without the line numbers.".into();
        }
        match near(text, wanted) {
            Some(near) => {
                let place = numbered(text, near.first.saturating_sub(1), near.last + 1);
                context.session.seen.show(&place);
                let differs: Vec<String> = near.differences.iter().map(|differs| format!("\n- {differs}")).collect();
                format!(
                    "The closest place is at lines {}-{}:\n{place}\nWhat differs:{}",
                    near.first,
                    near.last,
                    differs.concat()
                )
            }
            None if text.lines().count() <= 40 => format!("This is all of the file:\n{}", numbered(text, 1, 40)),
            None => "Nothing in the file is like it. Look for a word of it with grep, or read the file.".into(),
        }
    }

    fn unread(&self, known: bool) -> Failure {
        let shown = &self.place.shown;
        Failure::Tell(if known {
            format!(
                "{shown} has changed since it was read (by the user, the editor or a command). Read it again, then write the edit against what it contains now."
            )
        } else {
            format!(
                "{shown} has not been read in this session. Read it with the read tool first, then write the edit against what it contains."
            )
        })
    }

    fn readable(&self, context: &ToolContext) -> bool {
        readable(&self.place, context)
    }

    /// The model knows this state from now on.
    pub fn note(&self, context: &ToolContext) {
        context.session.seen.note(&self.place.real.path, KnownFile::of(&self.text, self.disk));
    }

    /// Whether its text is not what lies on the disk, because the editor holds changes.
    pub fn is_unsaved(&self) -> bool {
        self.exists && self.is_text() && self.disk != Some(TextFingerprint::of(&self.text))
    }

    /// The change to a new text, whole, for people. Of what is no text there is nothing to show; an undo looks at the file.
    pub fn change(&self, new: &str) -> Change {
        let old = (self.exists && self.is_text()).then(|| self.text.clone());
        Change { path: self.place.path.display().to_string(), old, new: new.into(), deleted: false, part: None }
    }

    /// The change that removes the file, for people.
    pub fn deletion(&self) -> Change {
        Change { deleted: true, ..self.change("") }
    }

    /// The need to make a change, and the one to leave the project where the file is outside.
    pub fn needs(&self, change: &Change) -> Vec<Need> {
        let mut needs = self.place.real.needs(Access::Edit);
        if let Some(edit) = needs.last_mut() {
            edit.metadata = facts(change);
            edit.changes = vec![Arc::new(change.clone())];
        }
        needs
    }

    /// The change to a new text, or the removal, for those who look at it before and afterwards.
    pub(super) fn planned(&self, new: Option<&str>) -> Planned {
        let old = self.exists.then(|| self.text.clone());
        Planned { real: self.place.real.path.clone(), old, new: new.map(str::to_owned) }
    }

    pub fn location(&self, new: &str) -> Location {
        let same = self.text.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
        let line = if self.exists && self.is_text() { u32::try_from(same + 1).ok() } else { None };
        Location { path: self.place.path.clone(), line }
    }

    /// That the file is still what it was when this was read: same place, same content.
    ///
    /// # Errors
    /// To the model, when it is not.
    pub async fn check_unchanged(&self, context: &ToolContext) -> Result<(), Failure> {
        self.place.still()?;
        let same = match self.raw {
            Some(was) => disk::identify(&self.place.real.path).is_ok_and(|now| now == was),
            None => {
                let now = Self::open(self.place.clone(), context).await?;
                now.exists == self.exists && now.text == self.text && (now.mark == self.mark || !self.exists)
            }
        };
        if same {
            return Ok(());
        }
        Err(Failure::Tell(format!(
            "{} changed while you were being asked. Nothing was written. Read it again, then write the edit against what it contains now.",
            self.place.shown
        )))
    }

    /// Writes the new text, formatted as the user wants it, and sees whether it arrived. Directories are made.
    ///
    /// # Errors
    /// To the model, with the system's reason; the old file is whole then.
    pub async fn write(&self, new: &str, context: &ToolContext) -> Result<WrittenText, Failure> {
        let real = &self.place.real.path;
        if !format::any(&context.project.settings, real) {
            return self.put(new, false, context).await;
        }
        // Formatters work on the disk; the editor gets what they have made of it, once.
        let (before, whole) = (stored(real), self.with_mark(new));
        self.make_directory()?;
        disk::write(real, whole.as_bytes()).map_err(|e| self.refused(&e))?;
        let done = match format::format(real, context).await {
            Ok(failed) => {
                let formatted = stored(real).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or(whole.clone());
                let formatted = formatted.strip_prefix('\u{feff}').unwrap_or(&formatted).to_owned();
                self.put(&formatted, true, context).await.map(|written| (formatted, failed, written))
            }
            Err(failure) => Err(failure),
        };
        let (formatted, failed, mut written) = match done {
            Ok(done) => done,
            Err(failure) => {
                let back = match &before {
                    Some(before) => disk::write(real, before),
                    None if !self.exists => disk::remove(real),
                    // It was read to be changed, so this does not happen; nothing is removed that was there.
                    None => Ok(()),
                };
                return match back {
                    Ok(()) => Err(failure),
                    Err(e) => Err(Failure::Broken(format!("{failure} What was there could not be put back: {e}"))),
                };
            }
        };
        if formatted != new {
            let what = changes(new, &formatted);
            written.notes.insert(0, format!("A formatter changed the file after that:{what}"));
        }
        written.notes.extend(failed);
        Ok(written)
    }

    fn refused(&self, e: &dyn std::fmt::Display) -> Failure {
        Failure::Tell(format!("Cannot write {}: {e}. The file is as it was.", self.place.shown))
    }

    fn make_directory(&self) -> Result<(), Failure> {
        self.place.real.path.parent().map_or(Ok(()), disk::make_directory).map_err(|e| self.refused(&e))
    }

    /// Writes a text as it is: through the editor, else to the disk, where it may lie already.
    async fn put(&self, new: &str, lies_there: bool, context: &ToolContext) -> Result<WrittenText, Failure> {
        self.make_directory()?;
        let whole = self.with_mark(new);
        let unsaved = self.is_unsaved();
        let plain = !whole.starts_with('\u{feff}') && !new.contains('\r') && !self.text.contains('\r');
        if (plain || unsaved) && context.client.files.write {
            let before = stored(&self.place.real.path);
            let written = context.write_buffer(&self.place.path, &whole).await;
            // A file of the project is the editor's to refuse; of others it may know nothing.
            if let Some(Err(NotWritten::Refused(why))) = &written
                && self.place.real.inside
            {
                return Err(self.refused(&format!("the editor refused: {}", why.trim_end_matches('.'))));
            }
            if let Some(Ok(())) = written {
                let after = stored(&self.place.real.path);
                // Where the editor says yes and the disk has not changed, it has not been written.
                if after != before || after.as_deref() == Some(whole.as_bytes()) {
                    let saved = after.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
                    self.written(&saved, context);
                    let other = TextFingerprint::of(&saved) != TextFingerprint::of(&whole);
                    let note = other.then(|| {
                        let what = changes(&whole, &saved);
                        format!("The editor changed the text when it saved the file (a formatter, perhaps):{what}")
                    });
                    let text = saved.strip_prefix('\u{feff}').map_or_else(|| saved.clone(), str::to_owned);
                    return Ok(WrittenText { text, notes: note.into_iter().collect() });
                }
            }
        }
        if !lies_there {
            disk::write(&self.place.real.path, whole.as_bytes()).map_err(|e| self.refused(&e))?;
        }
        self.written(new, context);
        Ok(WrittenText { text: new.to_owned(), notes: Vec::new() })
    }

    /// The model knows what it has written. Of the rest of the file it knows what it knew before.
    fn written(&self, text: &str, context: &ToolContext) {
        if self.told {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            context.session.seen.note(&self.place.real.path, KnownFile::of(text, Some(TextFingerprint::of(text))));
        } else {
            context.session.seen.forget(&self.place.real.path);
        }
    }

    /// Brings back what was here when this was read, after a write or a removal.
    ///
    /// # Errors
    /// To the model, with the system's reason.
    pub async fn restore(&self, context: &ToolContext) -> Result<(), Failure> {
        if self.exists {
            // What was written since is not what this document was read as.
            self.put(&self.text, false, context).await.map(drop)
        } else {
            self.remove(context)
        }
    }

    /// A text as it is written to this file: with its byte order mark.
    fn with_mark(&self, text: &str) -> String {
        if self.mark { format!("\u{feff}{text}") } else { text.to_owned() }
    }

    /// Removes the file.
    ///
    /// # Errors
    /// To the model, with the system's reason.
    pub fn remove(&self, context: &ToolContext) -> Result<(), Failure> {
        disk::remove(&self.place.real.path).map_err(|e| self.undeletable(&e))?;
        context.session.seen.forget(&self.place.real.path);
        Ok(())
    }
}

/// Resolves the place of a file to be written and reads what is there.
///
/// # Errors
/// As [`super::path::resolve`] and [`Document::open`].
pub async fn target(context: &ToolContext, path: &str) -> Result<Document, Failure> {
    let place = super::path::resolve(context, path, Access::Edit)?;
    if place.real.found == PathKind::Directory && place.real.inside {
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
        Ok(document) => {
            if document.exists && document.place.real.inside && document.readable(context) {
                language::warm(&document.place.real.path, &document.text, context).await;
            }
            Ok(document)
        }
        failed => failed,
    }
}

/// What the user sees, when the editor and the disk differ: the editor's text holds unsaved
/// changes, unless the disk has changed since the model saw the file and the editor's text has not:
/// then the editor has not noticed yet.
pub(super) fn choose(buffer: String, saved: String, known: Option<&KnownFile>) -> String {
    let (in_buffer, on_disk) = (TextFingerprint::of(&buffer), TextFingerprint::of(&saved));
    let stale = known.is_some_and(|known| known.disk.is_some_and(|disk| disk != on_disk) && known.text == in_buffer);
    let empty = buffer.is_empty() && !saved.is_empty();
    if in_buffer == on_disk || stale || empty { saved } else { buffer }
}

/// Whether a file may be read without asking anyone.
fn readable(place: &ResolvedPath, context: &ToolContext) -> bool {
    let Policy { rules, grants, .. } = &*context.policy;
    place.real.needs(Access::Read).iter().all(|need| evaluate(rules, grants, need).action == Action::Allow)
}

/// What has changed from one text to another: the lines, where they are few, else where they are.
fn changes(was: &str, now: &str) -> String {
    let mut ranges = Vec::new();
    let mut lines = String::new();
    let diff = text::diff::LineDiff::of(was, now);
    for op in diff.ops().iter().filter(|op| op.tag() != similar::DiffTag::Equal) {
        let new = op.new_range();
        let (first, last) = (new.start + 1, new.end.max(new.start + 1));
        ranges.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
        for change in diff.changes(op) {
            let line = change.value().trim_end_matches(['\r', '\n']);
            match change.new_index() {
                None => lines.push_str(&format!("\n- {line}")),
                Some(n) => lines.push_str(&format!("\n+ {}: {line}", n + 1)),
            }
        }
    }
    if lines.matches('\n').count() <= CHANGED.0 && lines.len() <= CHANGED.1 {
        return lines;
    }
    let more = if ranges.len() > 10 { " and more" } else { "" };
    ranges.truncate(10);
    format!(" at lines {}{more}.", ranges.join(", "))
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
        let diff = text::diff::LineDiff::of(old, &change.new);
        let (added, removed) = diff.count();
        facts.insert("additions".into(), Value::from(added));
        facts.insert("deletions".into(), Value::from(removed));
        let name = text::escaped(&change.path);
        let diff = diff.unified(Some((&name, &name)));
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
    use super::super::test::{EditorReply, TestProject};
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
            (EditorReply::Saves, "a\n", "b\n", "editor"),
            (EditorReply::Refuses, "a\n", "b\n", "disk"),
            (EditorReply::Lies, "a\n", "b\n", "disk"),
            (EditorReply::Saves, "a\r\n", "b\r\n", "disk"),
            (EditorReply::Saves, "\u{feff}a\n", "\u{feff}b\n", "disk"),
            (EditorReply::Formats, "a\n", "b\n", "editor"),
        ];
        for (way, before, after, writer) in table {
            let stage = TestProject::new();
            stage.write("f", before);
            let (context, editor) = stage.with_editor(way);
            let mut document = target(&context, "f").await.unwrap();
            document.check_whole(&context).unwrap_err();
            document = target(&context, "f").await.unwrap();
            let written = document.write(after.trim_start_matches('\u{feff}'), &context).await.unwrap();
            assert_eq!(!written.notes.is_empty(), way == EditorReply::Formats, "{way:?}");
            let expected =
                if way == EditorReply::Formats { format!("{after}// formatted\n") } else { after.to_owned() };
            assert_eq!(stage.read("f"), expected.as_bytes(), "{way:?} {before:?}");
            assert_eq!(editor.saved(), usize::from(writer == "editor"), "{way:?} {before:?}");
            let known = context.session.seen.known(&document.place.real.path).unwrap();
            assert_eq!(known.text, TextFingerprint::of(&expected));
        }
    }

    #[tokio::test]
    async fn what_the_editor_refuses_is_not_written_past_it() {
        let stage = TestProject::new();
        stage.write("f", "a\n");
        let (context, _) = stage.with_editor(EditorReply::Declines);
        let document = target(&context, "f").await.unwrap();
        let failure = document.write("b\n", &context).await.unwrap_err().to_string();
        assert_eq!(failure, "Cannot write f: the editor refused: the file is locked. The file is as it was.");
        assert_eq!(stage.read("f"), b"a\n");
        // What lies elsewhere is not its project.
        let outside = stage.outside().join("o");
        std::fs::write(&outside, "a\n").unwrap();
        let document = target(&context, &outside.display().to_string()).await.unwrap();
        document.write("b\n", &context).await.unwrap();
        assert_eq!(std::fs::read(&outside).unwrap(), b"b\n");
    }

    #[tokio::test]
    async fn unsaved_changes_are_what_is_edited() {
        let stage = TestProject::new();
        stage.write("f", "old\n");
        let (context, editor) = stage.with_editor(EditorReply::Saves);
        editor.type_into(&stage.cwd().join("f"), "unsaved\n");
        // What may not be read without asking is not asked for before it was read.
        stage.write(".env", "KEY=old\n");
        editor.type_into(&stage.cwd().join(".env"), "KEY=unsaved\n");
        assert_eq!(target(&context, ".env").await.unwrap().text, "KEY=old\n");
        let document = target(&context, "f").await.unwrap();
        assert_eq!(document.text, "unsaved\n");
        document.note(&context);
        let mut document = target(&context, "f").await.unwrap();
        document.check_whole(&context).unwrap();
        // The user goes on typing.
        editor.type_into(&stage.cwd().join("f"), "more\n");
        let failure = document.check_unchanged(&context).await.unwrap_err().to_string();
        assert!(failure.contains("changed while you were being asked"), "{failure}");
        let mut document = target(&context, "f").await.unwrap();
        let failure = document.check_whole(&context).unwrap_err().to_string();
        assert!(failure.contains("has changed since it was read") && failure.contains("1: more"), "{failure}");
        target(&context, "f").await.unwrap().check_whole(&context).unwrap();
    }

    #[test]
    fn a_stale_buffer_is_not_mistaken_for_unsaved_changes() {
        let known = |text: &str, disk: &str| Some(KnownFile::of(text, Some(TextFingerprint::of(disk))));
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
            assert_eq!(choose(buffer.into(), saved.into(), known.as_ref()), expected, "{buffer} {saved}");
        }
    }
}
