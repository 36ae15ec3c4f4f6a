//! The result of an undo or redo, and its text for the user.

use super::super::{changes, interrupted};
use super::judge::Obstacle;
use super::{RestoreContext, SkippedChange, is_prompt};
use base::text;
use base::worktree::Worktree;
use transcript::{FileChange, Message, UnrecordedReason, UnrecordedWrite};

/// The maximum number of entries in a list of the report.
const MAX_ENTRIES: usize = 50;

/// Hints on how to continue, in the terms of the client.
pub struct RevertHints {
    /// A sentence on how to restore the files that were left alone.
    pub force: String,
    /// A sentence on how to try again to restore files.
    pub retry: String,
    /// A sentence on how to redo.
    pub redo: String,
}

/// The result of an undo or redo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevertReport {
    /// The title of the turn's prompt.
    pub prompt_title: String,
    /// The number of messages that the undo hid, or the redo brought back.
    pub message_count: usize,
    /// True if only files were restored, because the conversation has continued since.
    pub files_only: bool,
    /// Files whose content was restored.
    pub restored: Vec<String>,
    /// Files that were removed, because they did not exist in the restored state.
    pub removed: Vec<String>,
    /// Files that were left alone because something would be lost, and why. A forced undo restores
    /// them.
    pub skipped: Vec<(String, String)>,
    /// Files that could not be restored, and why. Another attempt may succeed.
    pub failed: Vec<(String, String)>,
    /// Files that cannot be restored, because the content they need is not stored, or the
    /// present one cannot be stored, and why.
    pub unrestorable: Vec<(String, String)>,
    /// Files that others changed between two changes of the session. The undo reverts only the
    /// session's later change, so it restores the others' version.
    pub changed_between: Vec<String>,
    /// Commands that were interrupted by the end of a process: their file changes are unknown.
    pub interrupted_commands: Vec<String>,
    /// Writes whose earlier state was not stored.
    pub unrecorded: Vec<UnrecordedWrite>,
}

impl RevertReport {
    pub(super) fn record_change(&mut self, change: &FileChange, cx: &RestoreContext) {
        // The model has to read the file again before it edits it.
        if let Some(editor) = &cx.editor {
            editor.session.seen.forget(change.path.as_ref());
        }
        let files = if change.new.is_some() {
            &mut self.restored
        } else {
            &mut self.removed
        };
        files.push(cx.name(change));
    }

    pub(super) fn record_skipped(&mut self, skipped: Vec<SkippedChange>, cx: &RestoreContext) {
        for SkippedChange {
            change,
            obstacle,
            why,
        } in skipped
        {
            let files = match obstacle {
                Obstacle::Caution => &mut self.skipped,
                Obstacle::Failure => &mut self.failed,
                Obstacle::Loss => &mut self.unrestorable,
            };
            files.push((cx.name(&change), why));
        }
    }

    /// Returns the files that were not restored, and why.
    pub fn not_restored(&self) -> impl Iterator<Item = &(String, String)> {
        self.skipped
            .iter()
            .chain(&self.failed)
            .chain(&self.unrestorable)
    }

    /// Sets the facts of the report about the turn: its title, the number of its messages, interrupted
    /// commands and unrecorded writes.
    pub(super) fn set_turn(&mut self, messages: &[Message]) {
        self.message_count = messages.len();
        self.interrupted_commands = interrupted::interrupted_commands(messages);
        self.unrecorded = changes::unrecorded_writes(messages);
        self.prompt_title = messages
            .iter()
            .find(|m| is_prompt(m))
            .map(|m| text::title(&m.visible_text()))
            .unwrap_or_default();
    }

    /// Returns the text for the user after an undo.
    pub fn undo_text(&self, worktree: &Worktree, hints: &RevertHints) -> String {
        let mut text = match self.prompt_title.as_str() {
            "" => "Undone.".to_owned(),
            words => format!("Undone: \"{words}\""),
        };
        text += &self.file_lists(Some(hints));
        if !self.changed_between.is_empty() {
            text = text.trim_end().to_owned()
                + "\n\nYou changed these files between changes of the session; your last version is restored:\n";
            let name =
                |path: &String| format!("`{}`", text::escaped(&worktree.relative(path.as_ref())));
            text += &markdown_list(self.changed_between.iter().map(name));
        }
        if !self.interrupted_commands.is_empty() {
            text = text.trim_end().to_owned()
                + "\n\nThe files these commands changed are unknown, because adjutant was ended while they ran:\n";
            text += &markdown_list(
                self.interrupted_commands
                    .iter()
                    .map(|command| format!("`{}`", command.replace('`', "'"))),
            );
        }
        text = text.trim_end().to_owned() + &self.unrecorded_text(worktree);
        format!("{}\n\n{}", text.trim_end(), hints.redo)
    }

    /// Returns the text for the user after a redo.
    pub fn redo_text(&self) -> String {
        let text = match (self.prompt_title.as_str(), self.files_only) {
            ("", false) => "Restored.".to_owned(),
            ("", true) => "Restored the replaced files.".to_owned(),
            (words, false) => format!("Restored: \"{words}\""),
            (words, true) => {
                format!(
                    "Restored the files of \"{words}\"; the conversation has continued without that turn."
                )
            }
        };
        (text + &self.file_lists(None)).trim_end().to_owned()
    }

    /// Returns the list of writes that an undo leaves alone, because the earlier content is
    /// unknown.
    fn unrecorded_text(&self, worktree: &Worktree) -> String {
        let line = |UnrecordedWrite { what, why }: &UnrecordedWrite| {
            let (name, why) = match why {
                UnrecordedReason::Further => return "and more".to_owned(),
                UnrecordedReason::Ignored => (worktree.relative(what.as_ref()), "it is ignored"),
                UnrecordedReason::Unreadable => {
                    (worktree.relative(what.as_ref()), "it could not be read")
                }
                UnrecordedReason::Large => (
                    worktree.relative(what.as_ref()),
                    "too many files are below it",
                ),
                UnrecordedReason::AccessList => {
                    (worktree.relative(what.as_ref()), "its access control list")
                }
                UnrecordedReason::Unreported => {
                    (what.replace('`', "'"), "the files it changed are unknown")
                }
            };
            format!("`{}`: {why}", text::escaped(&name))
        };
        match markdown_list(self.unrecorded.iter().map(line)) {
            list if list.is_empty() => list,
            list => format!("\n\nNot recorded, so not restored:\n{list}"),
        }
    }

    /// Returns the lists of files, with hints if there are any for this kind of restoration.
    fn file_lists(&self, hints: Option<&RevertHints>) -> String {
        let mut text = String::new();
        let is_all_restored = self.not_restored().next().is_none();
        if self.restored.is_empty() && self.removed.is_empty() && is_all_restored {
            let nothing = if self.unrecorded.is_empty() {
                "\n\nNo files were changed."
            } else {
                ""
            };
            return nothing.into();
        }
        if !(self.restored.is_empty() && self.removed.is_empty()) {
            text += "\n\n";
            let restored = self
                .restored
                .iter()
                .map(|name| format!("restored `{name}`"));
            let removed = self.removed.iter().map(|name| format!("removed `{name}`"));
            text += &markdown_list(restored.chain(removed));
        }
        let unrestored = [
            (
                "Not restored",
                &self.skipped,
                hints.map(|hints| &hints.force),
            ),
            (
                "Could not be restored",
                &self.failed,
                hints.map(|hints| &hints.retry),
            ),
            ("Cannot be restored", &self.unrestorable, None),
        ];
        for (title, files, hint) in unrestored {
            if files.is_empty() {
                continue;
            }
            let lines = files.iter().map(|(name, why)| format!("`{name}`: {why}"));
            let hint = hint.map_or_else(String::new, |hint| format!("\n{hint}\n"));
            text = format!(
                "{}\n\n{title}:\n{}{hint}",
                text.trim_end(),
                markdown_list(lines)
            );
        }
        text
    }
}

/// Returns a list in Markdown: the first entries, and the number of the rest.
fn markdown_list(entries: impl Iterator<Item = String>) -> String {
    let mut entries = entries.peekable();
    let mut list: String = entries
        .by_ref()
        .take(MAX_ENTRIES)
        .map(|entry| format!("- {entry}\n"))
        .collect();
    if entries.peek().is_some() {
        list += &format!("- and {} more\n", entries.count());
    }
    list
}
