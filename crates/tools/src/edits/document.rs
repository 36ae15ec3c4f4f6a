//! A text file as the user sees it: with the editor's unsaved changes and without byte order mark;
//! and its changes, each written exactly once.
//!
//! Changes go through the editor if it offers that, so that the user can review and undo; otherwise
//! to the disk. Editors normalise line ends and byte order marks when they save. So a text that an
//! editor could spoil (with a mark or any line end but `\n`) goes to the disk, unless the editor
//! holds unsaved changes.

mod name;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

pub use name::target_by_name;
use serde_json::{Map, Value};

use crate::diagnostics::PlannedChange;
use crate::files::buffer::{choose, is_misread};
use crate::files::disk;
use crate::files::encoding::{self, DecodedText, EncodedSource, NotText};
use crate::files::path::{Access, PathKind, ResolvedPath};
use crate::files::read_tracker::{KnownFile, TextFingerprint};
use crate::files::search::suggest_similar_paths;
use crate::format;
use crate::{Failure, ToolContext, language};
use base::text;
use base::text::diff::common_prefix;
use base::text::shared::SharedText;
use events::{Location, NotWritten};
use permission::{AccessRequest, Action};
use textedit::near_match::{near, numbered};
use textedit::replace::FuzzyMatch;
use transcript::Change;

/// A file to be changed, with its text when it was read.
#[derive(Debug, Clone)]
pub struct Document {
    pub path: ResolvedPath,
    /// The text as the user sees it, with its own line ends. Empty for a file that does not exist.
    pub text: SharedText,
    /// The fingerprint of the text.
    fingerprint: TextFingerprint,
    pub exists: bool,
    /// True if the file begins with a byte order mark (not part of `text`).
    mark: bool,
    /// The bytes on the disk, if they are not those of the text in UTF-8, or need not be.
    source: Option<Arc<EncodedSource>>,
    /// The fingerprint of the text on the disk; `None` if there is none.
    disk: Option<TextFingerprint>,
    /// True if the model knows the whole file, or is about to be shown the parts that it does not
    /// know.
    is_known: bool,
    /// The identity of the file when it was examined, if it is not text or its text was not read;
    /// `None` for a text.
    raw: Option<disk::FileIdentity>,
}

/// The content of a file after a write.
#[derive(Debug)]
pub struct WrittenText {
    /// The text, without byte order mark.
    pub text: SharedText,
    /// Notes for the model on changes made by the editor or a formatter.
    pub notes: Vec<String>,
}

/// The byte order mark.
const MARK: char = '\u{feff}';

/// The maximum number of lines of a shown change. For a longer one, only line numbers are shown.
const MAX_CHANGE_LINES: usize = 12;

/// The maximum size of a shown change, in bytes. For a larger one, only line numbers are shown.
const MAX_CHANGE_BYTES: usize = 1_000;

/// The maximum number of lines of a file that are shown when a change is refused because the file
/// is unread.
const MAX_SHOWN_LINES: usize = 400;

/// The purpose for which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To change a part of it. The editor may have a text that was never saved.
    Change,
    /// To write all of it. The editor is not asked about a file that is not on the disk: before it
    /// is written, [`Document::check_unchanged`] does that.
    Write,
}

impl Document {
    /// Returns the error for the model when the file to be changed does not exist.
    pub async fn missing(&self, context: &ToolContext) -> Failure {
        let instead = suggest_similar_paths(context, &self.path.real.path).await;
        Failure::ForModel(format!("File {} not found.{instead}", self.path.shown))
    }

    /// Reads a file to change it. A missing file is an empty document that does not exist.
    ///
    /// # Errors
    /// To the model: directories, binary files, files that are too large or may not be read.
    pub async fn open(
        resolved_path: ResolvedPath,
        purpose: Purpose,
        context: &ToolContext,
    ) -> Result<Self, Failure> {
        let shown = &resolved_path.shown;
        let bytes = match disk::read(&resolved_path.real.path) {
            Ok(bytes) => Some(bytes),
            Err(disk::Error::Missing) => None,
            Err(e) => return Err(Failure::ForModel(format!("Cannot open {shown}: {e}."))),
        };
        let hint = || context.encoding_hints().of(&resolved_path.real.path);
        let (saved, source) = match bytes.map(|bytes| encoding::decode(bytes, hint)) {
            None => (None, None),
            Some(Ok(DecodedText { text, source })) => (Some(text), source),
            Some(Err(NotText::Binary)) => {
                return Err(Failure::ForModel(format!(
                    "{shown} is a binary file; only text can be edited."
                )));
            }
            Some(Err(NotText::Unsupported(name))) => {
                return Err(Failure::ForModel(format!(
                    "{shown} is {name}, which is not supported. Convert it with iconv, or ask the user to."
                )));
            }
        };
        let disk = saved.as_deref().map(TextFingerprint::of);
        // Only a readable file is requested from the editor; changes to any other file are refused
        // later.
        let known = context.session.seen.known(&resolved_path.real.path);
        let can_exist = saved.is_some() || purpose == Purpose::Change;
        let buffer = if known.is_some() || can_exist && readable(&resolved_path, context) {
            context.read_buffer(&resolved_path.path).await
        } else {
            None
        };
        let buffer = buffer.filter(|text| !text.is_empty() || saved.is_some());
        let buffer = buffer.filter(|text| !is_misread(text, source.as_deref(), disk));
        let disk_alone = if buffer.is_none() { disk } else { None };
        let text = match (buffer, saved) {
            (Some(buffer), Some(saved)) => choose(buffer, saved, known.as_ref()),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => return Ok(Self::absent(resolved_path).encoded_as_named(context)),
        };
        let mark = text.starts_with(MARK);
        let text = unmarked(text);
        let fingerprint = disk_alone.unwrap_or_else(|| TextFingerprint::of(&text));
        let is_known = known.is_some_and(|known| known.text == fingerprint);
        Ok(Self {
            path: resolved_path,
            text: text.into(),
            fingerprint,
            exists: true,
            mark,
            source,
            disk,
            is_known,
            raw: None,
        })
    }

    /// Returns the document of a file that does not exist, or of which nothing may be revealed.
    fn absent(resolved_path: ResolvedPath) -> Self {
        Self {
            path: resolved_path,
            text: SharedText::default(),
            fingerprint: TextFingerprint::of(""),
            exists: false,
            mark: false,
            source: None,
            disk: None,
            is_known: true,
            raw: None,
        }
    }

    /// Returns this absent file with the encoding that the user names for it.
    fn encoded_as_named(self, context: &ToolContext) -> Self {
        let hint = context.encoding_hints().of(&self.path.real.path);
        let Some(named) = hint.named().filter(|named| *named != encoding_rs::UTF_8) else {
            return self;
        };
        Self {
            // Other programs recognise UTF-16 by its byte order mark.
            mark: encoding::is_utf16(named),
            source: Some(Arc::new(EncodedSource::empty(named))),
            ..self
        }
    }

    /// Checks that the whole file may be replaced: the model has seen its content, in any way, and
    /// it has not changed since then.
    ///
    /// # Errors
    /// A message for the model with the file's content, which then counts as read.
    pub fn check_whole(&mut self, context: &ToolContext) -> Result<(), Failure> {
        let shown = &self.path.shown;
        let known = context.session.seen.known(&self.path.real.path);
        if !self.exists {
            // The model gets the error below, so a second attempt to write the file succeeds.
            context.session.seen.forget(&self.path.real.path);
            return match known {
                Some(_) => Err(Failure::ForModel(format!(
                    "{shown} was removed since it was read (by the user or a command). Nothing was written. If it should exist again, write it once more."
                ))),
                None => Ok(()),
            };
        }
        if self.is_known || self.readable(context) && self.is_familiar(known.as_ref(), context) {
            self.is_known = true;
            return Ok(());
        }
        if !self.readable(context) {
            return Err(self.unread(known.is_some()));
        }
        Err(self.refuse_unseen("replaced", known.as_ref(), context))
    }

    /// Checks that the file may be removed, like [`Document::check_whole`]. The model need not have
    /// seen a file that is not text, nor one that it may not read without asking, unless it has
    /// read it before.
    ///
    /// # Errors
    /// A message for the model with the file's content, which then counts as read.
    pub fn check_removable(&mut self, context: &ToolContext) -> Result<(), Failure> {
        let known = context.session.seen.known(&self.path.real.path);
        if !self.is_text() || known.is_none() && !self.readable(context) {
            return Ok(());
        }
        if self.is_known || self.readable(context) && self.is_familiar(known.as_ref(), context) {
            return Ok(());
        }
        if !self.readable(context) {
            return Err(self.unread(true));
        }
        Err(self.refuse_unseen("removed", known.as_ref(), context))
    }

    /// Returns whether the model has seen the content of the file, in any way.
    fn is_familiar(&self, known: Option<&KnownFile>, context: &ToolContext) -> bool {
        // An empty file needs no reading, but the model must know if it had content before.
        let is_empty = self.text.trim().is_empty();
        if is_empty {
            known.is_none()
        } else {
            context.session.seen.has_shown(&self.text)
        }
    }

    /// Returns the error, with the file's content, for a file that the model does not know in its
    /// present state. `done` is the refused operation.
    fn refuse_unseen(
        &self,
        done: &str,
        known: Option<&KnownFile>,
        context: &ToolContext,
    ) -> Failure {
        let shown = &self.path.shown;
        let total = self.text.lines().count();
        let why = match known.map(|known| known.was.as_deref().map(|was| changes(was, &self.text)))
        {
            None => {
                format!("{shown} exists, and was not read in this session, so it was not {done}.")
            }
            Some(None) => format!("{shown} has changed since it was read, so it was not {done}."),
            Some(Some(what)) => format!(
                "{shown} has changed since it was read (by the user, the editor or a command), so it was not {done}:{what}"
            ),
        };
        self.record_as_read(context);
        // The same call may follow, which is not a repetition.
        context
            .call
            .facts
            .update(|facts| facts.has_new_information = Some(true));
        let more = if total > MAX_SHOWN_LINES {
            format!("\n(lines 1-{MAX_SHOWN_LINES} of {total})")
        } else {
            String::new()
        };
        let content: Vec<String> = self
            .text
            .lines()
            .take(MAX_SHOWN_LINES)
            .enumerate()
            .map(|(n, line)| format!("{}: {line}", n + 1))
            .collect();
        Failure::ForModel(format!(
            "{why}\n\nThis is what it contains; it counts as read now:\n{}{more}\n\nIf it is to be {done} all the same, send the call again; to change a part of it, edit that part.",
            content.join("\n")
        ))
    }

    /// Returns the text to write when the whole file is replaced by `content`. A byte order mark is
    /// preserved, not doubled, and a file whose lines all end in `\r\n` retains these ends, even if
    /// the model wrote only `\n`.
    pub fn replacement(&self, content: &str) -> String {
        let content = match content.strip_prefix(MARK) {
            Some(unmarked) if self.exists || self.mark => unmarked,
            _ => content,
        };
        let breaks = self.text.matches('\n').count();
        let returns =
            breaks > 0 && self.text.matches("\r\n").count() == breaks && !content.contains('\r');
        if returns {
            content.replace('\n', "\r\n")
        } else {
            content.to_owned()
        }
    }

    /// Checks that a piece of the file may be changed. The model knows the piece because it has
    /// quoted it; [`Document::check_piece`] handles inexact quotes. Returns a note for the model if
    /// the file has changed since it was read.
    ///
    /// # Errors
    /// A message for the model on files that it may not read without asking: read the file (again).
    pub fn check_quoted(&mut self, context: &ToolContext) -> Result<Option<String>, Failure> {
        if self.is_known {
            return Ok(None);
        }
        let known = context.session.seen.known(&self.path.real.path);
        if !self.readable(context) {
            return Err(self.unread(known.is_some()));
        }
        let Some(known) = known else { return Ok(None) };
        let what = known.was.as_deref().map(|was| changes(was, &self.text));
        self.is_known = what.as_ref().is_some_and(|what| what.contains('\n'));
        let what = what.map_or(".".to_owned(), |what| format!(":{what}"));
        let shown = &self.path.shown;
        Ok(Some(format!(
            "{shown} had changed since you last saw it (by the user, the editor or a command){what}"
        )))
    }

    /// Checks that the model has seen a piece that it has not quoted exactly. `text` is the text
    /// that contains it.
    ///
    /// # Errors
    /// A message for the model with that piece, which then counts as read.
    pub fn check_piece(
        &self,
        text: &str,
        context: &ToolContext,
        fuzzy: &FuzzyMatch,
    ) -> Result<(), Failure> {
        if self.is_known
            || fuzzy
                .original
                .iter()
                .all(|(_, was)| context.session.seen.has_shown(was))
        {
            return Ok(());
        }
        let mut places = Vec::new();
        for (first, was) in &fuzzy.original {
            context.session.seen.record_shown(was);
            let last = first + was.trim_end().matches('\n').count();
            places.push(numbered(text, first.saturating_sub(2), last + 2));
        }
        let differs = match &fuzzy.differences[..] {
            [] => String::new(),
            some => format!("It has {}. ", some.join("; ")),
        };
        Err(Failure::ForModel(format!(
            "The quoted text is not in {} exactly, and this place in it was not shown in this session, so nothing was changed. It was found {}:\n{}\n{differs}If that is the place, send the call again.",
            self.path.shown,
            fuzzy.strategy,
            places.join("\n…\n")
        )))
    }

    /// Describes, for the model, the text of the file that is most similar to a quote that was not
    /// found. Shows nothing of a file that may not be read without asking.
    pub fn nearest(&self, text: &str, wanted: &str, context: &ToolContext) -> String {
        if !self.is_known && !self.readable(context) {
            return "Read the file again and copy the text from there, without the line numbers."
                .into();
        }
        match near(text, wanted) {
            Some(near) => {
                let excerpt = numbered(text, near.first.saturating_sub(1), near.last + 1);
                context.session.seen.record_shown(&excerpt);
                let differs: Vec<String> = near
                    .differences
                    .iter()
                    .map(|differs| format!("\n- {differs}"))
                    .collect();
                format!(
                    "The closest place is at lines {}-{}:\n{excerpt}\nWhat differs:{}",
                    near.first,
                    near.last,
                    differs.concat()
                )
            }
            None if text.lines().count() <= 40 => {
                format!("This is all of the file:\n{}", numbered(text, 1, 40))
            }
            None => {
                "Nothing in the file is similar. Search for one of its words with grep, or read the file."
                    .into()
            }
        }
    }

    /// Returns the error for a file that must be read first; `known` if the model has read an older
    /// state of it.
    fn unread(&self, known: bool) -> Failure {
        let shown = &self.path.shown;
        Failure::ForModel(if known {
            format!(
                "{shown} has changed since it was read (by the user, the editor or a command). Read it again, then write the edit against what it contains now."
            )
        } else {
            format!(
                "{shown} has not been read in this session. Read it with the read tool first, then write the edit against what it contains."
            )
        })
    }

    /// Returns whether the file may be read without asking the user.
    fn readable(&self, context: &ToolContext) -> bool {
        readable(&self.path, context)
    }

    /// Records that the model knows this state of the file.
    pub fn record_as_read(&self, context: &ToolContext) {
        context
            .session
            .seen
            .record(&self.path.real.path, self.known_file());
    }

    /// Returns this state as one that the model knows.
    fn known_file(&self) -> KnownFile {
        KnownFile::of(&self.text, self.fingerprint, self.disk)
    }

    /// Returns whether its text differs from the disk because the editor holds unsaved changes.
    pub fn is_unsaved(&self) -> bool {
        self.exists && self.is_text() && self.disk != Some(self.fingerprint)
    }

    /// Returns the whole change to a new text, for people. A file that is not text has no old text
    /// to show; undo reads the file itself.
    ///
    /// # Errors
    /// A message for the model if the text cannot be written in the encoding of the file.
    pub fn change(&self, new: SharedText) -> Result<Change, Failure> {
        if self.foreign_bytes(&new)?.is_some() && self.is_unsaved() {
            return Err(Failure::ForModel(format!(
                "{} is not UTF-8 and has unsaved changes in the editor, which may save it in another encoding. Nothing was written. Ask the user to save it first.",
                self.path.shown
            )));
        }
        Ok(self.change_to(new, false))
    }

    /// Returns the change that removes the file, for people.
    pub fn deletion(&self) -> Change {
        self.change_to(SharedText::default(), true)
    }

    /// Returns the change to a new text, which is empty if the file is `deleted`.
    fn change_to(&self, new: SharedText, deleted: bool) -> Change {
        Change {
            path: self.path.path.display().to_string(),
            old: (self.exists && self.is_text()).then(|| self.text.clone()),
            new,
            deleted,
            part: None,
        }
    }

    /// Returns the bytes of a new text in the encoding of the file; `None` if they are those of
    /// UTF-8 and always were.
    fn foreign_bytes(&self, new: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let whole = self.with_mark(new);
        if source.remains_ascii(&whole) {
            return Ok(None);
        }
        let bytes = source.encode(&whole).map_err(|e| {
            Failure::ForModel(format!(
                "Cannot write {}: {e}. Nothing was written.",
                self.path.shown
            ))
        })?;
        let is_utf8 = source.is_utf8() && bytes == whole.as_bytes();
        Ok((!is_utf8).then_some(bytes))
    }

    /// Returns the access request for the change, and the one for leaving the project if the file
    /// is outside.
    pub fn requests(&self, change: &Change) -> Vec<AccessRequest> {
        self.requests_with(change, facts(change))
    }

    /// Returns the access requests of a change with the facts on it.
    pub(crate) fn requests_with(
        &self,
        change: &Change,
        facts: Map<String, Value>,
    ) -> Vec<AccessRequest> {
        let mut requests = self.path.real.requests(Access::Edit);
        if let Some(edit) = requests.last_mut() {
            edit.metadata = facts;
            edit.changes = vec![Arc::new(change.clone())];
        }
        requests
    }

    /// Returns the change to a new text, or the removal, for diagnostics before and after it.
    pub(crate) fn planned(&self, new: Option<&SharedText>) -> PlannedChange {
        let old = self.exists.then(|| self.text.clone());
        PlannedChange {
            real: self.path.real.path.clone(),
            old,
            new: new.cloned(),
        }
    }

    /// Returns the location of the first line in which a new text differs; no line for a new file.
    pub fn location(&self, new: &str) -> Location {
        let start = common_prefix(self.text.as_bytes(), new.as_bytes());
        let start = memchr::memrchr(b'\n', &new.as_bytes()[..start]).map_or(0, |at| at + 1);
        let before = memchr::memchr_iter(b'\n', &new.as_bytes()[..start]).count();
        // Lines that differ in their ends alone are the same.
        let rest = self.text[start..].lines().zip(new[start..].lines());
        let same = before + rest.take_while(|(old, new)| old == new).count();
        let line = if self.exists && self.is_text() {
            u32::try_from(same + 1).ok()
        } else {
            None
        };
        Location {
            path: self.path.path.clone(),
            line,
        }
    }

    /// Checks that the file has not changed since it was read: same path, same content.
    ///
    /// # Errors
    /// A message for the model if it has changed.
    pub async fn check_unchanged(&self, context: &ToolContext) -> Result<(), Failure> {
        self.path.check_unchanged()?;
        let same = match self.raw {
            Some(was) => disk::identify(&self.path.real.path).is_ok_and(|now| now == was),
            // No editor can have unsaved changes.
            None if self.exists && !context.client.files.read => self.is_on_disk()?,
            None => {
                let now = Self::open(self.path.clone(), Purpose::Change, context).await?;
                now.exists == self.exists
                    && now.text == self.text
                    && (!self.exists
                        || now.mark == self.mark && now.source_bytes() == self.source_bytes())
            }
        };
        if same {
            return Ok(());
        }
        Err(Failure::ForModel(format!(
            "{} changed while you were being asked. Nothing was written. Read it again, then write the edit against what it contains now.",
            self.path.shown
        )))
    }

    /// Returns whether the file on the disk has the bytes that were read. Reads it piece by piece.
    fn is_on_disk(&self) -> Result<bool, Failure> {
        let mark = if self.mark { "\u{feff}" } else { "" };
        let utf8 = [mark.as_bytes(), self.text.as_bytes()];
        let bytes = self.source_bytes();
        let pieces = bytes.as_ref().map_or(&utf8[..], std::slice::from_ref);
        match disk::has_content(&self.path.real.path, pieces) {
            Err(disk::Error::Missing) => Ok(false),
            found => found
                .map_err(|e| Failure::ForModel(format!("Cannot open {}: {e}.", self.path.shown))),
        }
    }

    /// Writes the new text, runs the formatters, and verifies the result. Missing directories are
    /// created.
    ///
    /// # Errors
    /// A message for the model with the system's reason; the old file is intact then.
    pub async fn write(
        &self,
        new: &SharedText,
        context: &ToolContext,
    ) -> Result<WrittenText, Failure> {
        let real = &self.path.real.path;
        if let Some(bytes) = self.foreign_bytes(new)? {
            return self.write_foreign(new, &bytes, context);
        }
        if !format::has_formatter(&context.project.settings, real) {
            return self.put(new, false, context).await;
        }
        // Formatters work on the disk; then the editor gets the formatted text, once.
        let before = stored(real);
        let whole = self.with_mark(new);
        self.make_directory()?;
        disk::write(real, whole.as_bytes()).map_err(|e| self.refused(&e))?;
        let failed = match format::format(real, context).await {
            Ok(failed) => failed,
            Err(failure) => return Err(self.take_back(before, whole.as_bytes(), failure)),
        };
        let stored = stored(real);
        let formatted = stored
            .as_deref()
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .map_or_else(|| new.clone(), |text| unmarked(text.to_owned()).into());
        let mut written = match self.put(&formatted, true, context).await {
            Ok(written) => written,
            Err(failure) => {
                let ours = stored.as_deref().unwrap_or(whole.as_bytes());
                return Err(self.take_back(before, ours, failure));
            }
        };
        if !formatted.is_same(new) {
            let what = changes(new, &formatted);
            written
                .notes
                .insert(0, format!("A formatter then changed the file:{what}"));
        }
        written.notes.extend(failed);
        Ok(written)
    }

    /// Restores the content `before` after the bytes `ours` were written and a later part of the
    /// write failed, unless something else has written a text to the file since then. Returns the
    /// failure, with a note for the model.
    fn take_back(&self, before: Option<Vec<u8>>, ours: &[u8], failure: Failure) -> Failure {
        let real = &self.path.real.path;
        let is_ours = disk::has_content(real, &[ours]).is_ok_and(|is_ours| is_ours);
        if !is_ours && !format::is_destroyed(real, ours) {
            return match failure {
                Failure::ForModel(why) => Failure::ForModel(format!(
                    "{why} Something else has written it since then, and that text stays in it; read it again."
                )),
                failure => failure,
            };
        }
        let back = match before {
            Some(before) => disk::write(real, &before),
            None if !self.exists => match disk::remove(real) {
                Err(disk::Error::Missing) => Ok(()),
                removed => removed,
            },
            // Unreachable for a document that was read for editing; an existing file is never
            // removed.
            None => Ok(()),
        };
        match back {
            Ok(()) => failure,
            Err(e) => Failure::Broken(format!(
                "{failure} The previous content could not be restored: {e}"
            )),
        }
    }

    /// Writes a text that is not UTF-8. Editors might save it in another encoding, and formatters
    /// expect UTF-8, so neither is used.
    fn write_foreign(
        &self,
        new: &SharedText,
        bytes: &[u8],
        context: &ToolContext,
    ) -> Result<WrittenText, Failure> {
        let real = &self.path.real.path;
        self.make_directory()?;
        disk::write(real, bytes).map_err(|e| self.refused(&e))?;
        self.record_write(new, context);
        let note = format::has_formatter(&context.project.settings, real)
            .then(|| "No formatter was run, because the file is not UTF-8.".to_owned());
        Ok(WrittenText {
            text: new.clone(),
            notes: note.into_iter().collect(),
        })
    }

    /// Returns the bytes that were read from the disk, if [`Self::source`] has them.
    fn source_bytes(&self) -> Option<&[u8]> {
        self.source.as_deref().map(EncodedSource::bytes)
    }

    /// Returns the error for a write that failed.
    fn refused(&self, e: &dyn std::fmt::Display) -> Failure {
        Failure::ForModel(format!(
            "Cannot write {}: {e}. The file is as it was.",
            self.path.shown
        ))
    }

    /// Creates the missing directories of the file's path.
    fn make_directory(&self) -> Result<(), Failure> {
        self.path
            .real
            .path
            .parent()
            .map_or(Ok(()), disk::make_directory)
            .map_err(|e| self.refused(&e))
    }

    /// Writes a text as it is, without formatters: through the editor, otherwise to the disk unless
    /// it `is_on_disk` already.
    async fn put(
        &self,
        new: &SharedText,
        is_on_disk: bool,
        context: &ToolContext,
    ) -> Result<WrittenText, Failure> {
        self.make_directory()?;
        let whole = self.with_mark(new);
        let is_plain =
            || !whole.starts_with(MARK) && !new.contains('\r') && !self.text.contains('\r');
        if context.client.files.write && (self.is_unsaved() || is_plain()) {
            let before = stored(&self.path.real.path);
            let written = context.write_buffer(&self.path.path, &whole).await;
            // The editor may refuse a write to a file of the project; it may not know other files.
            if let Some(Err(NotWritten::Refused(why))) = &written
                && self.path.real.is_inside
            {
                return Err(self.refused(&format!(
                    "the editor refused: {}",
                    why.trim_end_matches('.')
                )));
            }
            if let Some(Ok(())) = written {
                let after = stored(&self.path.real.path);
                // If the editor reports success but the disk has not changed, the file was not
                // written.
                if after != before || after.as_deref() == Some(whole.as_bytes()) {
                    let saved = after
                        .and_then(|bytes| String::from_utf8(bytes).ok())
                        .unwrap_or_default();
                    self.record_write(&saved, context);
                    let other = TextFingerprint::of(&saved) != TextFingerprint::of(&whole);
                    let note = other.then(|| {
                        let what = changes(&whole, &saved);
                        format!("The editor changed the text when it saved the file (a formatter, perhaps):{what}")
                    });
                    return Ok(WrittenText {
                        text: unmarked(saved).into(),
                        notes: note.into_iter().collect(),
                    });
                }
            }
        }
        if !is_on_disk {
            disk::write(&self.path.real.path, whole.as_bytes()).map_err(|e| self.refused(&e))?;
        }
        self.record_write(new, context);
        Ok(WrittenText {
            text: new.clone(),
            notes: Vec::new(),
        })
    }

    /// Records a write: the model knows the text, unless it did not know the rest of the file
    /// before.
    fn record_write(&self, text: &str, context: &ToolContext) {
        if self.is_known {
            let text = text.strip_prefix(MARK).unwrap_or(text);
            context
                .session
                .seen
                .record(&self.path.real.path, KnownFile::saved(text));
        } else {
            context.session.seen.forget(&self.path.real.path);
        }
        self.report_edit(context);
    }

    /// Reports that the call has written or removed the file.
    fn report_edit(&self, context: &ToolContext) {
        if let Some(observer) = &context.call.edit_observer {
            observer.edited(&self.path.real.path);
        }
    }

    /// Returns whether the file on the disk still has the text that was written to it.
    pub fn has_written(&self, written: &str) -> bool {
        let Ok(foreign) = self.foreign_bytes(written) else {
            return false;
        };
        let whole = self.with_mark(written);
        let bytes = foreign.as_deref().unwrap_or(whole.as_bytes());
        disk::has_content(&self.path.real.path, &[bytes]).is_ok_and(|is_same| is_same)
    }

    /// Restores the content at the time of reading, after a write or a removal. The caller has
    /// checked that nothing else has written to the file since then ([`Self::has_written`]).
    ///
    /// # Errors
    /// A message for the model, with the system's reason.
    pub async fn restore(&self, context: &ToolContext) -> Result<(), Failure> {
        let foreign = self.source.as_deref().filter(|source| !source.is_utf8());
        if let Some(source) = foreign {
            return self
                .write_foreign(&self.text, source.bytes(), context)
                .map(drop);
        }
        if self.exists {
            // `check_unchanged` does not apply: the file was written after it was read.
            self.put(&self.text, false, context).await.map(drop)
        } else {
            self.remove(context)
        }
    }

    /// Returns a text in the form in which it is written to this file: with its byte order mark.
    fn with_mark<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.mark {
            format!("{MARK}{text}").into()
        } else {
            text.into()
        }
    }

    /// Removes the file.
    ///
    /// # Errors
    /// A message for the model, with the system's reason.
    pub fn remove(&self, context: &ToolContext) -> Result<(), Failure> {
        disk::remove(&self.path.real.path).map_err(|e| self.undeletable(&e))?;
        context.session.seen.forget(&self.path.real.path);
        self.report_edit(context);
        Ok(())
    }
}

/// Resolves the path of a file to be changed and reads the file.
///
/// # Errors
/// Same as [`crate::files::path::resolve`] and [`Document::open`].
pub async fn target(context: &ToolContext, path: &str) -> Result<Document, Failure> {
    target_for(Purpose::Change, context, path).await
}

/// Resolves the path of a file to be written as a whole, and reads the file if it is on the disk.
///
/// # Errors
/// Same as [`target`].
pub async fn target_to_write(context: &ToolContext, path: &str) -> Result<Document, Failure> {
    target_for(Purpose::Write, context, path).await
}

/// Resolves the path of a file and reads it for a purpose.
async fn target_for(
    purpose: Purpose,
    context: &ToolContext,
    path: &str,
) -> Result<Document, Failure> {
    let resolved_path = crate::files::path::resolve(context, path, Access::Edit)?;
    if resolved_path.real.kind == PathKind::Directory && resolved_path.real.is_inside {
        return Err(Failure::ForModel(format!(
            "{} is a directory, not a file.",
            resolved_path.shown
        )));
    }
    if resolved_path.real.is_absent() && path.ends_with('/') {
        return Err(Failure::ForModel(format!(
            "{} ends with a slash, which names a directory, not a file.",
            text::escaped(path)
        )));
    }
    match Document::open(resolved_path.clone(), purpose, context).await {
        // Nothing is revealed about a file outside before it may be read; writing it fails later.
        Err(Failure::ForModel(_)) if !resolved_path.real.is_inside => {
            Ok(Document::absent(resolved_path))
        }
        Ok(document) => {
            if document.exists && document.path.real.is_inside && document.readable(context) {
                language::open_in_background(&document.path.real.path, &document.text, context)
                    .await;
            }
            Ok(document)
        }
        failed => failed,
    }
}

/// Returns whether a file may be read without asking the user.
fn readable(resolved_path: &ResolvedPath, context: &ToolContext) -> bool {
    resolved_path
        .real
        .requests(Access::Read)
        .iter()
        .all(|request| context.policy.judge(request).action == Action::Allow)
}

/// Describes the difference between two texts: the changed lines if they are few, otherwise their
/// line numbers.
fn changes(was: &str, now: &str) -> String {
    let mut ranges = Vec::new();
    let mut lines = String::new();
    let diff = text::diff::LineDiff::of(was, now);
    for op in diff
        .ops()
        .iter()
        .filter(|op| op.tag() != similar::DiffTag::Equal)
    {
        let new = op.new_range();
        let first = new.start + 1;
        let last = new.end.max(new.start + 1);
        ranges.push(if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        });
        for change in diff.changes(op) {
            let line = change.value().trim_end_matches(['\r', '\n']);
            match change.new_index() {
                None => lines.push_str(&format!("\n- {line}")),
                Some(n) => lines.push_str(&format!("\n+ {}: {line}", n + 1)),
            }
        }
    }
    if lines.matches('\n').count() <= MAX_CHANGE_LINES && lines.len() <= MAX_CHANGE_BYTES {
        return lines;
    }
    let more = if ranges.len() > 10 { " and more" } else { "" };
    ranges.truncate(10);
    format!(" at lines {}{more}.", ranges.join(", "))
}

/// Removes a byte order mark from the beginning of a text.
fn unmarked(mut text: String) -> String {
    if text.starts_with(MARK) {
        text.drain(..MARK.len_utf8());
    }
    text
}

/// Returns the bytes of a file on the disk, if it can be read.
fn stored(real: &Path) -> Option<Vec<u8>> {
    disk::read(real).ok()
}

/// Returns facts on a change for editors and for policies of users.
pub fn facts(change: &Change) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("filepath".into(), Value::String(change.path.clone()));
    let old = change.old.as_deref().unwrap_or_default();
    // A diff of very large texts takes longer than it is worth.
    if old.len() + change.new.len() <= 1 << 20 {
        let diff = text::diff::LineDiff::of(old, &change.new);
        let (added, removed) = diff.count();
        facts.insert("additions".into(), Value::from(added));
        facts.insert("deletions".into(), Value::from(removed));
        let name = text::escaped(&change.path);
        let diff = diff.unified(Some((&name, &name)));
        facts.insert(
            "diff".into(),
            Value::String(text::head(&diff, 64 << 10).to_owned()),
        );
    }
    facts
}

/// Sets the new text of a change to the written one, and returns the facts on it: the `planned`
/// ones, unless a formatter or an editor has changed the text.
pub(crate) fn written_facts(
    change: &mut Change,
    written: SharedText,
    planned: Map<String, Value>,
) -> Map<String, Value> {
    if written.is_same(&change.new) {
        return planned;
    }
    change.new = written;
    facts(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{EditorReply, TestProject};

    #[test]
    fn planned_facts_hold_for_the_planned_text_alone() {
        let change = Change {
            path: "/p/f".into(),
            old: Some("a\n".into()),
            new: "b\n".into(),
            deleted: false,
            part: None,
        };
        let planned = Map::from_iter([("planned".to_owned(), Value::Bool(true))]);
        for (written, is_planned) in [("b\n", true), ("b\nc\n", false)] {
            let mut change = change.clone();
            let found = written_facts(&mut change, written.into(), planned.clone());
            assert_eq!(found == planned, is_planned, "{found:?}");
            assert_eq!(found.get("additions").is_some(), !is_planned, "{found:?}");
            assert_eq!(change.new.as_str(), written);
        }
    }

    #[tokio::test]
    async fn write_goes_through_the_editor_unless_it_could_spoil_the_text() {
        // The editor's reaction, the text before, the text after, the writer.
        let table = [
            (EditorReply::Saves, "a\n", "b\n", "editor"),
            (EditorReply::Refuses, "a\n", "b\n", "disk"),
            (EditorReply::Lies, "a\n", "b\n", "disk"),
            (EditorReply::Saves, "a\r\n", "b\r\n", "disk"),
            (EditorReply::Saves, "\u{feff}a\n", "\u{feff}b\n", "disk"),
            (EditorReply::Formats, "a\n", "b\n", "editor"),
        ];
        for (way, before, after, writer) in table {
            let fixture = TestProject::new();
            fixture.write("f", before);
            let (context, editor) = fixture.with_editor(way);
            let mut document = target(&context, "f").await.unwrap();
            document.check_whole(&context).unwrap_err();
            document = target(&context, "f").await.unwrap();
            let written = document
                .write(&after.trim_start_matches(MARK).into(), &context)
                .await
                .unwrap();
            assert_eq!(
                !written.notes.is_empty(),
                way == EditorReply::Formats,
                "{way:?}"
            );
            let expected = if way == EditorReply::Formats {
                format!("{after}// formatted\n")
            } else {
                after.to_owned()
            };
            assert_eq!(fixture.read("f"), expected.as_bytes(), "{way:?} {before:?}");
            assert_eq!(
                editor.saved(),
                usize::from(writer == "editor"),
                "{way:?} {before:?}"
            );
            let known = context
                .session
                .seen
                .known(&document.path.real.path)
                .unwrap();
            assert_eq!(known.text, TextFingerprint::of(&expected));
        }
    }

    #[tokio::test]
    async fn write_refused_by_the_editor_is_not_made_on_disk() {
        let fixture = TestProject::new();
        fixture.write("f", "a\n");
        let (context, _) = fixture.with_editor(EditorReply::Declines);
        let document = target(&context, "f").await.unwrap();
        let failure = document
            .write(&"b\n".into(), &context)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(
            failure,
            "Cannot write f: the editor refused: the file is locked. The file is as it was."
        );
        assert_eq!(fixture.read("f"), b"a\n");
        // A file outside the editor's project is written on the disk.
        let outside = fixture.outside().join("o");
        std::fs::write(&outside, "a\n").unwrap();
        let document = target(&context, &outside.display().to_string())
            .await
            .unwrap();
        document.write(&"b\n".into(), &context).await.unwrap();
        assert_eq!(std::fs::read(&outside).unwrap(), b"b\n");
    }

    #[tokio::test]
    async fn edits_apply_to_unsaved_text() {
        let fixture = TestProject::new();
        fixture.write("f", "old\n");
        let (context, editor) = fixture.with_editor(EditorReply::Saves);
        editor.type_into(&fixture.cwd().join("f"), "unsaved\n");
        // The editor is not asked for a file that needs permission before it was read.
        fixture.write(".env", "KEY=old\n");
        editor.type_into(&fixture.cwd().join(".env"), "KEY=unsaved\n");
        assert_eq!(target(&context, ".env").await.unwrap().text, "KEY=old\n");
        let document = target(&context, "f").await.unwrap();
        assert_eq!(document.text, "unsaved\n");
        document.record_as_read(&context);
        let mut document = target(&context, "f").await.unwrap();
        document.check_whole(&context).unwrap();
        // The user continues to type.
        editor.type_into(&fixture.cwd().join("f"), "more\n");
        let failure = document
            .check_unchanged(&context)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("changed while you were being asked"),
            "{failure}"
        );
        let mut document = target(&context, "f").await.unwrap();
        let failure = document.check_whole(&context).unwrap_err().to_string();
        assert!(
            failure.contains("has changed since it was read") && failure.contains("1: more"),
            "{failure}"
        );
        target(&context, "f")
            .await
            .unwrap()
            .check_whole(&context)
            .unwrap();
    }

    #[tokio::test]
    async fn file_to_be_created_is_read_through_the_editor_once_and_late() {
        // The text that only the editor has, and whether the file can be written.
        for (typed, is_free) in [(None, true), (Some("typed\n"), false)] {
            let fixture = TestProject::new();
            let (context, editor) = fixture.with_editor(EditorReply::Saves);
            if let Some(typed) = typed {
                editor.type_into(&fixture.cwd().join("new"), typed);
            }
            let document = target_to_write(&context, "new").await.unwrap();
            assert!(!document.exists, "{typed:?}");
            assert_eq!(editor.read(), 0, "{typed:?}");
            let unchanged = document.check_unchanged(&context).await;
            assert_eq!(unchanged.is_ok(), is_free, "{typed:?}");
            assert_eq!(editor.read(), 1, "{typed:?}");
            // A part of the text can be changed.
            assert_eq!(
                target(&context, "new").await.unwrap().text,
                typed.unwrap_or_default()
            );
        }
    }
}
