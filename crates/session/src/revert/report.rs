//! What an undo or redo did, and its words.

use super::super::{changes, interrupted};
use super::{RestoreContext, is_prompt};
use base::text;
use base::worktree::Worktree;
use transcript::{FileChange, Message, UnkeptReason, UnkeptWrite};

/// How many files a report names one by one.
const NAMED: usize = 50;

/// How the ways on are called where the report is read.
pub struct RevertHints {
    /// What to do about files that were left alone, one sentence.
    pub force: String,
    /// How to redo, one sentence.
    pub redo: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevertReport {
    /// The words the turn began with.
    pub words: String,
    /// How many messages are hidden, or back.
    pub messages: usize,
    /// The conversation went on in between, so the files alone are back.
    pub files_only: bool,
    /// Files that were set back, or again.
    pub set: Vec<String>,
    pub removed: Vec<String>,
    /// Files that were left alone, and why.
    pub left: Vec<(String, String)>,
    /// Files that others changed between two changes of the session's: they have what was there
    /// between them.
    pub between: Vec<String>,
    /// Commands that were cut off by the end of a process: nobody knows what they changed.
    pub unknown: Vec<String>,
    /// Writes whose earlier state was not kept.
    pub unkept: Vec<UnkeptWrite>,
}

impl RevertReport {
    pub(super) fn note(&mut self, change: &FileChange, cx: &RestoreContext) {
        if let Some(editor) = &cx.editor {
            editor.session.seen.forget(change.path.as_ref());
        }
        if change.new.is_some() { &mut self.set } else { &mut self.removed }.push(cx.name(change));
    }

    pub(super) fn describe(&mut self, messages: &[Message]) {
        self.messages = messages.len();
        self.unknown = interrupted::commands(messages);
        self.unkept = changes::unkept(messages);
        self.words = messages.iter().find(|m| is_prompt(m)).map(|m| text::title(&m.visible_text())).unwrap_or_default();
    }

    /// What was undone, in words for the conversation.
    pub fn undone(&self, worktree: &Worktree, phrases: &RevertHints) -> String {
        let mut said = match self.words.as_str() {
            "" => "Undone.".to_owned(),
            words => format!("Undone: \"{words}\""),
        };
        said += &self.files();
        if !self.between.is_empty() {
            said += "\n\nChanges of yours lie between those of the session; what you had made of it is back:\n";
            let name = |path: &String| format!("`{}`", text::escaped(&worktree.relative(path.as_ref())));
            said += &listed(self.between.iter().map(name));
        }
        if !self.unknown.is_empty() {
            said = said.trim_end().to_owned()
                + "\n\nWhat these changed is not known, because adjutant was ended while they ran:\n";
            said += &listed(self.unknown.iter().map(|command| format!("`{}`", command.replace('`', "'"))));
        }
        if !self.left.is_empty() {
            said = said.trim_end().to_owned() + &format!("\n\n{}", phrases.force);
        }
        said = said.trim_end().to_owned() + &self.not_recorded(worktree);
        format!("{}\n\n{}", said.trim_end(), phrases.redo)
    }

    /// What was brought back, in words for the conversation.
    pub fn redone(&self) -> String {
        let said = match (self.words.as_str(), self.files_only) {
            ("", false) => "Brought back.".to_owned(),
            ("", true) => "Brought back what was replaced.".to_owned(),
            (words, false) => format!("Brought back: \"{words}\""),
            (words, true) => {
                format!("Brought back the files of \"{words}\"; the conversation has gone on without that turn.")
            }
        };
        (said + &self.files()).trim_end().to_owned()
    }

    /// What an undo leaves as it is, because nobody knows what it was.
    fn not_recorded(&self, worktree: &Worktree) -> String {
        let line = |UnkeptWrite { what, why }: &UnkeptWrite| {
            let (name, why) = match why {
                UnkeptReason::Further => return "and more, which is not named".to_owned(),
                UnkeptReason::Ignored => (worktree.relative(what.as_ref()), "it is ignored"),
                UnkeptReason::Unreadable => (worktree.relative(what.as_ref()), "it could not be read"),
                UnkeptReason::Large => (worktree.relative(what.as_ref()), "too many files are below it"),
                UnkeptReason::Unreported => (what.replace('`', "'"), "what this changed is not known"),
            };
            format!("`{}`: {why}", text::escaped(&name))
        };
        match listed(self.unkept.iter().map(line)) {
            said if said.is_empty() => said,
            said => format!("\n\nNot recorded, and left as it is:\n{said}"),
        }
    }

    fn files(&self) -> String {
        let mut said = String::new();
        if self.set.is_empty() && self.removed.is_empty() && self.left.is_empty() {
            let nothing = if self.unkept.is_empty() { "\n\nNo file had to be changed." } else { "" };
            return nothing.into();
        }
        if !(self.set.is_empty() && self.removed.is_empty()) {
            said += "\n\n";
            let set = self.set.iter().map(|name| format!("`{name}` is as it was"));
            let removed = self.removed.iter().map(|name| format!("`{name}` is gone"));
            said += &listed(set.chain(removed));
        }
        if !self.left.is_empty() {
            said = said.trim_end().to_owned() + "\n\nLeft alone:\n";
            said += &listed(self.left.iter().map(|(name, why)| format!("`{name}`: {why}")));
        }
        said
    }
}

/// A list in Markdown: the first entries, and the number of the rest.
fn listed(entries: impl Iterator<Item = String>) -> String {
    let mut entries = entries.peekable();
    let mut said: String = entries.by_ref().take(NAMED).map(|entry| format!("- {entry}\n")).collect();
    if entries.peek().is_some() {
        said += &format!("- and {} more\n", entries.count());
    }
    said
}
