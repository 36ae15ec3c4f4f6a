//! What is known about a session besides its messages, and how it changes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use base::approvals::Approvals;
use base::environment::Timestamp;
use base::id::{MessageId, SessionId};
use base::text::mark::ReminderMark;
use transcript::{FileChange, Message, ModelRef, Todo};

/// What is known about a session besides its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: SessionId,
    /// The directory it works in; absolute.
    pub cwd: PathBuf,
    /// What that directory is called on every machine that shares the store; none where nobody else does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Further directories; absolute.
    #[serde(default)]
    pub extra: Vec<PathBuf>,
    /// What it is about, once known.
    #[serde(default)]
    pub title: Option<String>,
    /// Who gave it its title.
    #[serde(default)]
    pub titled: TitleSource,
    pub created: Timestamp,
    /// When it was last used.
    pub updated: Timestamp,
    /// What adjutant's notes to its models carry.
    #[serde(default)]
    pub mark: ReminderMark,
    /// The session that delegated to it.
    #[serde(default)]
    pub parent: Option<SessionId>,
    /// How many sessions have delegated on the way here.
    #[serde(default)]
    pub depth: u32,
    /// What the parent may not do, as permission and pattern: nor may anyone here.
    #[serde(default)]
    pub denied: Vec<(String, String)>,
    /// The agent, as chosen; none: as the settings say.
    #[serde(default)]
    pub agent: Option<String>,
    /// The chosen model and effort.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// Whether what the user says while a turn runs is heard in it, as chosen; none: as the settings say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steer: Option<bool>,
    /// How much is asked, as chosen; none: as the settings say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// Its user has put it aside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    #[serde(default)]
    pub todos: Vec<Todo>,
    /// US dollars so far; none while no price was known.
    #[serde(default)]
    pub cost: Option<f64>,
    /// What it changed in the files; none while nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<DiffStats>,
    /// What was spent on turns that were undone for good, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_cost: Option<f64>,
    /// What was undone and can be redone, the latest last. Messages from there on are hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<UndoEntry>,
    /// What was undone before the conversation went on, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_undos: Vec<PastUndo>,
}

/// How many files a session changed, and how many lines it added and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffStats {
    pub files: usize,
    pub additions: usize,
    pub deletions: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoEntry {
    /// The first message that is hidden by it.
    pub from: MessageId,
    /// What it did to the files: `old` comes back with the redo.
    #[serde(default)]
    pub files: Vec<FileChange>,
    /// What it would have done to files that somebody else had changed.
    #[serde(default)]
    pub left: Vec<FileChange>,
    /// False while files may be between old and new: the process was ended meanwhile.
    #[serde(default)]
    pub done: bool,
}

/// An undo whose messages are gone, because the conversation went on. Its files can still be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastUndo {
    /// The first words of the turn; empty where a version of a file was restored.
    pub words: String,
    /// What it did to the files: `old` comes back with a redo.
    pub files: Vec<FileChange>,
    /// A redo has brought the files back, as far as it could.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redone: bool,
}

/// How many of a session's messages are not hidden by what was undone.
pub fn visible(messages: &[Message], undone: &[UndoEntry]) -> usize {
    let from = undone.last().map(|undone| &undone.from);
    from.and_then(|from| messages.iter().position(|m| m.id == *from)).unwrap_or(messages.len())
}

impl Record {
    /// A session that begins now.
    pub fn new(id: SessionId, cwd: PathBuf, now: Timestamp) -> Self {
        Self {
            id,
            cwd,
            place: None,
            extra: Vec::new(),
            title: None,
            titled: TitleSource::default(),
            created: now,
            updated: now,
            mark: ReminderMark::default(),
            parent: None,
            depth: 0,
            denied: Vec::new(),
            agent: None,
            model: None,
            steer: None,
            approvals: None,
            archived: false,
            todos: Vec::new(),
            cost: None,
            changed: None,
            undone_cost: None,
            undone: Vec::new(),
            past_undos: Vec::new(),
        }
    }

    /// This record, as it takes the place of the one `before`: a title that its user gave stays.
    pub(super) fn after(&self, before: Option<&Self>) -> Self {
        let mut record = self.clone();
        if let Some(before) = before.filter(|before| before.titled == TitleSource::User && before.title.is_some()) {
            record.title.clone_from(&before.title);
            record.titled = before.titled;
        }
        record
    }
}

/// Who gave a session its title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TitleSource {
    /// Nobody: words of its first prompt.
    #[default]
    Words,
    Agent,
    /// The user: it stays.
    User,
}

/// Something of a record that is changed by itself, whatever else of it changes at the time.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordChange {
    /// The title its user wants.
    Title(String),
    /// Whether it is put aside.
    Archived(bool),
    /// The agent, and how it is to work.
    Choice {
        agent: String,
        /// The model and effort; none leaves it to the agent.
        model: Option<ModelRef>,
        /// Whether it hears what is said while it works; none leaves it to the settings.
        steer: Option<bool>,
        /// How much is asked; none leaves it to the settings.
        approvals: Option<Approvals>,
    },
}

impl RecordChange {
    pub fn apply(&self, record: &mut Record) {
        match self.clone() {
            Self::Title(title) => {
                record.title = Some(title);
                record.titled = TitleSource::User;
            }
            Self::Archived(archived) => record.archived = archived,
            Self::Choice { agent, model, steer, approvals } => {
                record.agent = Some(agent);
                record.model = model;
                record.steer = steer;
                record.approvals = approvals;
            }
        }
    }
}
