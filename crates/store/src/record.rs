//! The record of a session: its properties without its messages, and changes to it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use base::approvals::Approvals;
use base::environment::Timestamp;
use base::id::{MessageId, SessionId};
use base::text::mark::ReminderMark;
use transcript::{FileChange, Message, ModelRef, Todo};

/// The properties of a session, without its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: SessionId,
    /// The working directory; absolute.
    pub cwd: PathBuf,
    /// The name of that directory on every machine that shares the store; `None` if the store is
    /// not shared.
    #[serde(rename = "place", default, skip_serializing_if = "Option::is_none")]
    pub shared_name: Option<String>,
    /// The address of the repository's `origin`, as `host/path`, otherwise `commit:` and the id of
    /// its first commit. A moved directory is recognized by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The directories in addition to `cwd` in which the client lets it work; absolute.
    #[serde(rename = "extra", default)]
    pub additional_directories: Vec<PathBuf>,
    /// The title, once there is one.
    #[serde(default)]
    pub title: Option<String>,
    /// The author of the title.
    #[serde(rename = "titled", default)]
    pub title_source: TitleSource,
    pub created: Timestamp,
    /// The time of the last use.
    pub updated: Timestamp,
    /// The mark of adjutant's notes to the model.
    #[serde(default)]
    pub mark: ReminderMark,
    /// The session that delegated to it; `None` for a session of the user.
    #[serde(default)]
    pub parent: Option<SessionId>,
    /// The number of delegations between a user's session and this one; 0 for a user's session.
    #[serde(default)]
    pub depth: u32,
    /// The restrictions of the parent, which apply here too; replaced whenever the parent continues
    /// the session.
    #[serde(default, skip_serializing_if = "InheritedRestrictions::is_empty")]
    pub inherited: InheritedRestrictions,
    /// The permissions and patterns that its client denies.
    #[serde(default)]
    pub denied: Vec<(String, String)>,
    /// The permissions and patterns about which its client wants the user to be asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<(String, String)>,
    /// Tools that are not sent to a provider that has rejected them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_declarations: Vec<RefusedDeclaration>,
    /// The tools that are left out because of the model's window, if the user was notified of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_tools: Option<LeftOutTools>,
    /// The chosen agent; `None` leaves the choice to the settings.
    #[serde(default)]
    pub agent: Option<String>,
    /// The chosen model and effort.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// The model that answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<ModelRef>,
    /// True if messages of the user are delivered to the running turn, as chosen; `None` leaves the
    /// choice to the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steer: Option<bool>,
    /// The chosen approvals; `None` leaves the choice to the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// True if the user has archived it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    #[serde(default)]
    pub todos: Vec<Todo>,
    /// The cost so far, in US dollars; `None` while no price is known.
    #[serde(default)]
    pub cost: Option<f64>,
    /// The description of its work, once there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<SessionSummary>,
    /// The size of its changes to files; `None` if there are none.
    #[serde(rename = "changed", default, skip_serializing_if = "Option::is_none")]
    pub diff_stats: Option<DiffStats>,
    /// The cost of turns that were undone permanently, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_cost: Option<f64>,
    /// The undos that can be redone, the latest last. The messages from the latest one on are
    /// hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<UndoEntry>,
    /// The undos after which the conversation continued, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_undos: Vec<PastUndo>,
    /// The changes to files that no message records, in order: those of undos, redos and
    /// restorations, and those of deleted messages and their background jobs that were not undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_log: Vec<FileLogEntry>,
}

/// The restrictions that the session of a subagent has from its parent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InheritedRestrictions {
    /// The denied permissions and patterns.
    #[serde(default)]
    pub denied: Vec<(String, String)>,
    /// The permissions and patterns about which the user is asked.
    #[serde(default)]
    pub asked: Vec<(String, String)>,
    #[serde(default)]
    pub approvals: Option<Approvals>,
}

impl InheritedRestrictions {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The declaration of a tool that a provider has rejected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RefusedDeclaration {
    pub provider: String,
    /// The name of the tool.
    pub tool: String,
    /// The digest of its description and schema, in hexadecimal digits.
    pub digest: String,
}

/// The tools that are left out of requests because a model's window is too small for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutTools {
    pub provider: String,
    pub model: String,
    /// The names of the tools, sorted.
    pub tools: Vec<String>,
}

/// A description of a session's work, by the agent `summary`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SessionSummary {
    /// `None` since an undo has removed work that it described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The time of the description, or of that undo.
    pub written: Timestamp,
}

impl SessionSummary {
    /// Removes the text. An older record of another process does not restore it.
    pub fn remove(&mut self) {
        self.text = None;
        self.written = Timestamp(self.written.0.saturating_add(1));
    }
}

/// The undos of a session: while they are the same, a description of its work remains true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undos {
    /// The first hidden message of each undo that can be redone.
    hidden: Vec<MessageId>,
    /// The number of undos after which the conversation continued.
    past: usize,
}

/// The numbers of files changed, and of lines added and removed, in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffStats {
    pub files: usize,
    pub additions: usize,
    pub deletions: usize,
}

/// An undo that can be redone: it hides the messages from one on, and has restored the files that
/// they changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoEntry {
    /// The first message that it hides.
    pub from: MessageId,
    /// The changes that it made to files: a redo restores `old`.
    #[serde(default)]
    pub files: Vec<FileChange>,
    /// The changes that it skipped because another program had changed the files.
    #[serde(rename = "left", default)]
    pub skipped_files: Vec<FileChange>,
    /// True if the files are completely written; false if the process ended during the undo.
    #[serde(rename = "done", default)]
    pub is_complete: bool,
    /// True if [`Record::file_log`] has its changes.
    #[serde(rename = "logged", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_logged: bool,
}

/// An undo whose messages are deleted because the conversation continued. Its files can still be
/// restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastUndo {
    /// The beginning of the turn's prompt; empty if a version of a file was restored.
    #[serde(rename = "words")]
    pub prompt_title: String,
    /// The changes that it made to files: a redo restores `old`.
    pub files: Vec<FileChange>,
    /// True if a redo has restored the files, as far as possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redone: bool,
}

/// The changes to files between two messages or late changes, one per file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLogEntry {
    /// The last message before them; `None` if they precede all messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<MessageId>,
    /// The number of the last late changes of a message before them; 0 if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after_late: u32,
    pub files: Vec<FileChange>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Returns the number of messages that no undo hides.
pub fn visible(messages: &[Message], undone: &[UndoEntry]) -> usize {
    let from = undone.last().map(|undone| &undone.from);
    from.and_then(|from| messages.iter().position(|m| m.id == *from))
        .unwrap_or(messages.len())
}

impl Record {
    /// Creates the record of a session that begins now.
    pub fn new(id: SessionId, cwd: PathBuf, now: Timestamp) -> Self {
        Self {
            id,
            cwd,
            shared_name: None,
            origin: None,
            additional_directories: Vec::new(),
            title: None,
            title_source: TitleSource::default(),
            created: now,
            updated: now,
            mark: ReminderMark::default(),
            parent: None,
            depth: 0,
            inherited: InheritedRestrictions::default(),
            denied: Vec::new(),
            asked: Vec::new(),
            refused_declarations: Vec::new(),
            left_out_tools: None,
            agent: None,
            model: None,
            answered_by: None,
            steer: None,
            approvals: None,
            archived: false,
            todos: Vec::new(),
            cost: None,
            summary: None,
            diff_stats: None,
            undone_cost: None,
            undone: Vec::new(),
            past_undos: Vec::new(),
            file_log: Vec::new(),
        }
    }

    /// Returns the record of a copy of the session, which begins now and has no parent. All fields
    /// are listed, so that a new one does not compile until it is either inherited or left out.
    pub fn copied(self, now: Timestamp) -> Self {
        let Self {
            id,
            cwd,
            shared_name,
            origin,
            additional_directories,
            title,
            title_source,
            created: _,
            updated: _,
            mark,
            parent: _,
            depth: _,
            inherited,
            denied,
            asked,
            refused_declarations,
            left_out_tools,
            agent,
            model,
            answered_by,
            steer,
            approvals,
            archived: _,
            todos,
            cost,
            summary: _,
            diff_stats,
            undone_cost: _,
            undone: _,
            past_undos: _,
            file_log: _,
        } = self;
        Self {
            shared_name,
            origin,
            additional_directories,
            title,
            title_source,
            mark,
            inherited,
            denied,
            asked,
            refused_declarations,
            left_out_tools,
            agent,
            model,
            answered_by,
            steer,
            approvals,
            todos,
            cost,
            diff_stats,
            ..Self::new(id, cwd, now)
        }
    }

    /// Returns all denied permissions and patterns: those of the parent, then those of the client.
    pub fn all_denied(&self) -> impl Iterator<Item = &(String, String)> {
        self.inherited.denied.iter().chain(&self.denied)
    }

    /// Returns all permissions and patterns about which the user is asked, in the same order.
    pub fn all_asked(&self) -> impl Iterator<Item = &(String, String)> {
        self.inherited.asked.iter().chain(&self.asked)
    }

    /// Returns the undos so far.
    pub fn undos(&self) -> Undos {
        Undos {
            hidden: self.undone.iter().map(|undo| undo.from.clone()).collect(),
            past: self.past_undos.len(),
        }
    }

    /// Returns the description of the session's work, if there is one.
    pub fn description(&self) -> Option<&str> {
        self.summary.as_ref()?.text.as_deref()
    }

    /// Returns this record as the replacement of `before`: a title that the user gave and a newer
    /// summary are preserved.
    pub(super) fn after(&self, before: Option<&Self>) -> Self {
        let mut record = self.clone();
        let Some(before) = before else {
            return record;
        };
        if before.title_source == TitleSource::User && before.title.is_some() {
            record.title.clone_from(&before.title);
            record.title_source = before.title_source;
        }
        let written = |record: &Self| record.summary.as_ref().map(|summary| summary.written);
        if written(before) > written(&record) {
            record.summary.clone_from(&before.summary);
            // The process of the undo did not know the summary.
            if record.undone.len() > before.undone.len()
                && let Some(summary) = &mut record.summary
            {
                summary.remove();
            }
        }
        record
    }
}

/// The author of a session's title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TitleSource {
    /// The first words of the prompt.
    #[default]
    Words,
    Agent,
    /// The user; nothing replaces the title except another choice of the user.
    User,
}

/// A change to one aspect of a record, independent of concurrent changes to the others.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordChange {
    /// The title that the user chose.
    Title(String),
    /// The description of its work. Has no effect if something has been undone since.
    Summary {
        summary: SessionSummary,
        /// The undos of the session that was described.
        undos: Undos,
    },
    /// Archives the session if true, and otherwise takes it out of the archive.
    Archived(bool),
    /// The agent and the options that the user chose.
    Choice {
        agent: String,
        /// The model and effort; `None` leaves them to the agent.
        model: Option<ModelRef>,
        /// True if messages of the user are delivered to the running turn; `None` leaves it to the
        /// settings.
        steer: Option<bool>,
        /// The approvals; `None` leaves them to the settings.
        approvals: Option<Approvals>,
    },
}

impl RecordChange {
    /// Makes the change in `record`.
    pub fn apply(&self, record: &mut Record) {
        match self.clone() {
            Self::Title(title) => {
                record.title = Some(title);
                record.title_source = TitleSource::User;
            }
            Self::Summary { summary, undos } => {
                if record.undos() == undos {
                    record.summary = Some(summary);
                }
            }
            Self::Archived(archived) => record.archived = archived,
            Self::Choice {
                agent,
                model,
                steer,
                approvals,
            } => {
                record.agent = Some(agent);
                record.model = model;
                record.steer = steer;
                // The parent's approvals, with which the session begins, are not a choice.
                let is_inherited =
                    record.approvals.is_none() && approvals == record.inherited.approvals;
                if !is_inherited {
                    record.approvals = approvals;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_approvals_are_stored_only_if_another_level_was_chosen() {
        let mut record = Record {
            inherited: InheritedRestrictions {
                approvals: Some(Approvals::Ask),
                ..InheritedRestrictions::default()
            },
            ..Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(0))
        };
        for (chosen, stored) in [
            (Approvals::Ask, None),
            (Approvals::Default, Some(Approvals::Default)),
            (Approvals::Ask, Some(Approvals::Ask)),
        ] {
            let change = RecordChange::Choice {
                agent: "build".into(),
                model: None,
                steer: None,
                approvals: Some(chosen),
            };
            change.apply(&mut record);
            assert_eq!(record.approvals, stored);
        }
    }

    #[test]
    fn newer_summary_is_preserved_and_an_undo_removes_it() {
        let at = |text: Option<&str>, written: u64| {
            Some(SessionSummary {
                text: text.map(str::to_owned),
                written: Timestamp(written),
            })
        };
        let record = |summary| Record {
            summary,
            ..Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(0))
        };
        for (stored, new, wanted) in [
            // A turn that began before the summary does not remove it.
            (at(Some("a"), 5), None, Some("a")),
            (at(Some("a"), 5), at(Some("b"), 4), Some("a")),
            (at(Some("a"), 5), at(Some("b"), 6), Some("b")),
            (None, None, None),
        ] {
            let after = record(new).after(Some(&record(stored)));
            assert_eq!(after.description(), wanted);
        }
        let stored = record(at(Some("a"), 5));
        let mut undone = stored.clone();
        undone.summary.as_mut().unwrap().remove();
        assert_eq!(undone.after(Some(&stored)).description(), None);
        let entry = UndoEntry {
            from: MessageId::new("msg_1"),
            files: Vec::new(),
            skipped_files: Vec::new(),
            is_complete: true,
            is_logged: true,
        };
        let unaware = Record {
            undone: vec![entry],
            ..record(None)
        };
        let after = unaware.after(Some(&stored));
        assert_eq!(after.description(), None);
        // The description of a session in which something was undone in the meantime.
        for (undos, wanted) in [(stored.undos(), None), (unaware.undos(), Some("c"))] {
            let summary = at(Some("c"), 9).unwrap();
            let mut changed = unaware.clone();
            RecordChange::Summary { summary, undos }.apply(&mut changed);
            assert_eq!(changed.description(), wanted);
        }
        assert_eq!(unaware.after(Some(&after)).description(), None);
    }
}
