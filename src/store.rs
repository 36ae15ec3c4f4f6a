//! What is kept: sessions, messages, parts, grants. One SQLite file per session, opened by one
//! process at a time, and one index database that can be rebuilt from them: a damaged file hides
//! no other session, and the lock on a file is how a session open elsewhere is noticed.
//!
//! All SQL lives in this folder, behind domain types: no row id, file path or SQL leaks upward.
//!
//! One thread owns every connection (`store/thread.rs`). Writes are in its queue when their call is first
//! polled, do not wait but for room, and are done in order for each session; [`Store::flush`] waits until everything before it about its session is on the
//! disk, and hardly for what is written about others. What was flushed
//! survives a power cut where the disk honours flushes; what was merely written survives the
//! death of the process.

mod beside;
mod copy;
mod index;
mod lock;
mod migrate;
mod pack;
mod peek;
mod queue;
mod salvage;
mod search;
mod session;
pub mod takeover;
mod thread;
mod wal;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::channel::Sender;
use crate::environment::Timestamp;
use crate::id::{MessageId, PartId, SessionId};
use crate::message::{FileChange, Message, ModelRef, Part, Todo};
use crate::text::mark::Mark;

pub use copy::{forked, renamed};
pub use lock::Holder;
pub use search::{Hit, search};

/// What is known about a session besides its messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The session.
    pub id: SessionId,
    /// The directory it works in; absolute.
    pub cwd: PathBuf,
    /// Further directories.
    #[serde(default)]
    pub extra: Vec<PathBuf>,
    /// What it is about, once known.
    #[serde(default)]
    pub title: Option<String>,
    /// Who said so.
    #[serde(default)]
    pub titled: Titled,
    /// When it began.
    pub created: Timestamp,
    /// When it was last used.
    pub updated: Timestamp,
    /// What adjutant's notes to its models carry.
    #[serde(default)]
    pub mark: Mark,
    /// The session that delegated to it.
    #[serde(default)]
    pub parent: Option<SessionId>,
    /// How many sessions have delegated on the way here.
    #[serde(default)]
    pub depth: u32,
    /// What the parent may not do, as permission and pattern: nor may anyone here.
    #[serde(default)]
    pub denied: Vec<(String, String)>,
    /// The chosen agent.
    #[serde(default)]
    pub agent: Option<String>,
    /// The chosen model and effort.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// Whether what the user says while a turn runs is heard in it, as chosen; none: as the settings say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steer: Option<bool>,
    /// The plan.
    #[serde(default)]
    pub todos: Vec<Todo>,
    /// US dollars so far; none while no price was known.
    #[serde(default)]
    pub cost: Option<f64>,
    /// What it changed in the files; none while nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Changed>,
    /// What was spent on turns that were undone for good, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_cost: Option<f64>,
    /// What was undone and can be redone, the latest last. Messages from there on are hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<Undone>,
}

/// What a session changed in the files, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Files.
    pub files: usize,
    /// Lines that are new.
    pub additions: usize,
    /// Lines that are gone.
    pub deletions: usize,
}

/// Something that was undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
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

/// How many of a session's messages are not hidden by what was undone.
pub fn visible(messages: &[Message], undone: &[Undone]) -> usize {
    let from = undone.last().map(|undone| &undone.from);
    from.and_then(|from| messages.iter().position(|m| m.id == *from)).unwrap_or(messages.len())
}

impl Record {
    /// A session that begins now.
    pub fn new(id: SessionId, cwd: PathBuf, now: Timestamp) -> Self {
        Self {
            id,
            cwd,
            extra: Vec::new(),
            title: None,
            titled: Titled::default(),
            created: now,
            updated: now,
            mark: Mark::default(),
            parent: None,
            depth: 0,
            denied: Vec::new(),
            agent: None,
            model: None,
            steer: None,
            todos: Vec::new(),
            cost: None,
            changed: None,
            undone_cost: None,
            undone: Vec::new(),
        }
    }
}

/// Who gave a session its title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Titled {
    /// Nobody: words of its first prompt.
    #[default]
    Words,
    /// The title agent.
    Agent,
    /// The user: it stays.
    User,
}

/// A session as it was kept. Its JSON is what is exported and imported.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// What is known about it.
    pub record: Record,
    /// Its history, oldest first.
    pub messages: Vec<Message>,
    /// What could not be read, for the user: empty when all is well.
    pub damage: Vec<String>,
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Newest first.
    pub sessions: Vec<Record>,
    /// Where the next page starts, if there is one.
    pub next: Option<Cursor>,
}

/// A place in a listing: after this moment and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The last session's `updated`.
    pub updated: Timestamp,
    /// The last session's id.
    pub id: SessionId,
}

/// Something kept because the user said "always".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The project's root.
    pub project: String,
    /// The agent it was given to.
    pub agent: String,
    /// The permission's key.
    pub permission: String,
    /// The pattern, as it was shown.
    pub pattern: String,
    /// When.
    pub given: Timestamp,
}

/// Something of a record that is changed by itself, whatever else of it changes at the time.
#[derive(Debug, Clone, PartialEq)]
pub enum Amend {
    /// The title its user wants.
    Title(String),
    /// Who is to speak.
    Choice {
        /// The agent.
        agent: String,
        /// The model and effort; none leaves it to the agent.
        model: Option<ModelRef>,
        /// Whether it hears what is said while it works; none leaves it to the settings.
        steer: Option<bool>,
    },
}

impl Amend {
    /// Makes the change.
    pub fn apply(&self, record: &mut Record) {
        match self.clone() {
            Self::Title(title) => {
                record.title = Some(title);
                record.titled = Titled::User;
            }
            Self::Choice { agent, model, steer } => {
                record.agent = Some(agent);
                record.model = model;
                record.steer = steer;
            }
        }
    }
}

/// How the store fails; for the log, and for the user where a session cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such session.
    #[error("there is no session {0}")]
    NotFound(SessionId),
    /// Another process has the session open.
    #[error("session {id} is open in {holder}; close it there first")]
    Locked {
        /// The session.
        id: SessionId,
        /// Who has it.
        holder: Holder,
    },
    /// A session cannot be imported under an id that is in use.
    #[error("there is a session {0} already")]
    Taken(SessionId),
    /// The file cannot be read as a session.
    #[error("the file of session {id} is damaged ({reason}); it was left as it is: {path}")]
    Damaged {
        /// The session.
        id: SessionId,
        /// What SQLite said.
        reason: String,
        /// Where it lies.
        path: String,
    },
    /// The file was written by a newer adjutant.
    #[error(
        "session {id} was written by a newer adjutant (format {found}, this one knows {known}); update adjutant to open it"
    )]
    Newer {
        /// The session.
        id: SessionId,
        /// The format found.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// The index cannot be read; it is made again from the sessions.
    #[error("the session index is damaged ({0})")]
    DamagedIndex(String),
    /// The index was written by a newer adjutant.
    #[error(
        "the session index was written by a newer adjutant (format {found}, this one knows {known}); update adjutant"
    )]
    NewerIndex {
        /// The format found.
        found: i64,
        /// The newest format known here.
        known: i64,
    },
    /// This process may have no more files open.
    #[error(
        "{open} sessions are open here, and the system allows this process {files} files; close some sessions, or raise the limit (ulimit -n)"
    )]
    TooMany {
        /// Sessions that are open.
        open: usize,
        /// The limit.
        files: u64,
    },
    /// Somebody removed the file, or put another in its place, while it was open here.
    #[error(
        "the session's file was removed or replaced while it was in use: what was said before is lost with it, and what comes from now on is kept: {0}"
    )]
    Removed(String),
    /// It could not be written: a full disk, a read-only directory.
    #[error("the session could not be saved: {0}")]
    Unwritable(String),
}

/// A hand on the store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    jobs: Sender<thread::Job>,
    dir: Arc<Path>,
}

/// Something to be written about a session.
#[derive(Debug)]
enum Entry {
    Record(Box<Record>),
    Amend(Amend),
    Message {
        id: String,
        json: String,
    },
    Part {
        id: String,
        message: String,
        json: String,
    },
    /// A message and all after it are gone.
    Cut {
        from: String,
    },
}

impl Entry {
    /// About how much of it there is to be written.
    fn bytes(&self) -> usize {
        match self {
            Self::Message { json, .. } | Self::Part { json, .. } => json.len(),
            Self::Record(_) | Self::Amend(_) | Self::Cut { .. } => 0,
        }
    }

    /// A whole session, in order.
    fn of(stored: &Stored) -> Vec<Self> {
        let mut entries = vec![Self::Record(Box::new(stored.record.clone()))];
        for message in &stored.messages {
            let json = serde_json::to_string(message).unwrap_or_default();
            entries.push(Self::Message { id: message.id.to_string(), json });
            for part in &message.parts {
                let json = serde_json::to_string(part).unwrap_or_default();
                entries.push(Self::Part { id: part.id.to_string(), message: message.id.to_string(), json });
            }
        }
        entries
    }
}

/// A path with something after its last letter.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Store {
    /// A store in `dir`. Nothing is opened until it is needed.
    pub fn start(dir: &Path) -> Self {
        Self { jobs: thread::start(dir.to_path_buf()), dir: dir.into() }
    }

    /// Where everything is kept.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a session known, and ours. Its file is made with its first message.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub async fn create(&self, record: &Record) -> Result<(), Error> {
        let record = Box::new(record.clone());
        self.ask(|reply| thread::Job::Create { record, reply }).await
    }

    /// Writes what is known about a session. A title that its user gave stays: that is changed by
    /// [`Amend::Title`] alone.
    pub async fn record(&self, record: &Record) {
        self.write(&record.id, Entry::Record(Box::new(record.clone()))).await;
    }

    /// Changes something of what is known about a session.
    pub async fn amend(&self, session: &SessionId, amend: Amend) {
        self.write(session, Entry::Amend(amend)).await;
    }

    /// Writes a message, without its parts: a new one, or over the one with the same id.
    pub async fn message(&self, session: &SessionId, message: &Message) {
        match serde_json::to_string(message) {
            Ok(json) => self.write(session, Entry::Message { id: message.id.to_string(), json }).await,
            Err(e) => tracing::error!("message {} cannot be written as JSON: {e}", message.id),
        }
    }

    /// Removes a message and all that came after it.
    pub async fn cut(&self, session: &SessionId, from: &MessageId) {
        self.write(session, Entry::Cut { from: from.to_string() }).await;
    }

    /// Writes a part: a new one, or over the one with the same id.
    pub async fn part(&self, session: &SessionId, message: &MessageId, part: &Part) {
        let (id, message) = (part.id.to_string(), message.to_string());
        match serde_json::to_string(part) {
            Ok(json) => self.write(session, Entry::Part { id, message, json }).await,
            Err(e) => tracing::error!("part {id} cannot be written as JSON: {e}"),
        }
    }

    /// Waits until everything written about a session so far has been handed to the system: it survives
    /// the end of this process, if not that of the machine. What failed to be written is told by the next
    /// flush.
    pub async fn handed_over(&self, session: &SessionId) {
        let session = session.clone();
        // A store that is gone has nothing to hand over.
        self.ask(|reply| thread::Job::HandOver { session, reply }).await.ok();
    }

    /// Waits until everything written about a session so far is on the disk.
    ///
    /// # Errors
    /// The first failure of a write since the last flush.
    pub async fn flush(&self, session: &SessionId) -> Result<(), Error> {
        let session = session.clone();
        self.ask(|reply| thread::Job::Flush { session, reply }).await
    }

    /// Reads a session, and keeps it open for this process.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn load(&self, session: &SessionId) -> Result<Stored, Error> {
        let session = session.clone();
        self.ask(|reply| thread::Job::Load { session, lean: false, reply }).await.map(|(stored, _)| stored)
    }

    /// As [`Store::load`], but results of calls that no model will see are left in the file: those from
    /// before what the last summary kept. Gives back how many messages that are, from the beginning.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn load_lean(&self, session: &SessionId) -> Result<(Stored, usize), Error> {
        let session = session.clone();
        self.ask(|reply| thread::Job::Load { session, lean: true, reply }).await
    }

    /// Reads some parts of a session whole. What cannot be read is left out.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn parts(&self, session: &SessionId, ids: Vec<PartId>) -> Result<Vec<Part>, Error> {
        let session = session.clone();
        self.ask(|reply| thread::Job::Parts { session, ids, reply }).await
    }

    /// Reads a session as it is now, whoever has it open, and leaves it alone.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Locked`].
    pub async fn peek(&self, session: &SessionId) -> Result<Stored, Error> {
        let session = session.clone();
        self.ask(|reply| thread::Job::Peek { session, reply }).await
    }

    /// Whether there is such a session. Touches nothing.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn has(&self, session: &SessionId) -> Result<bool, Error> {
        let session = session.clone();
        self.ask(|reply| thread::Job::Has { session, reply }).await
    }

    /// Keeps a whole session under its id, which must be free; see [`forked`] and [`renamed`].
    ///
    /// # Errors
    /// [`Error::Taken`] and [`Error::Unwritable`].
    pub async fn import(&self, stored: Stored) -> Result<(), Error> {
        let stored = Box::new(stored);
        self.ask(|reply| thread::Job::Import { stored, reply }).await
    }

    /// Gives a session the title its user wants, for good.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn rename(&self, session: &SessionId, title: &str) -> Result<Record, Error> {
        let (session, title) = (session.clone(), title.to_owned());
        self.ask(|reply| thread::Job::Rename { session, title, reply }).await
    }

    /// The sessions a session delegated to.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn children(&self, session: &SessionId) -> Result<Vec<SessionId>, Error> {
        let session = session.clone();
        self.ask(|reply| thread::Job::Children { session, reply }).await
    }

    /// Lists sessions, newest first, children left out.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn list(&self, cwd: Option<&Path>, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        let cwd = cwd.map(Path::to_path_buf);
        self.ask(|reply| thread::Job::List { cwd, after, limit, reply }).await
    }

    /// Removes a session and its children. Unknown ones are fine.
    ///
    /// # Errors
    /// [`Error::Locked`] and [`Error::Unwritable`].
    pub async fn delete(&self, session: &SessionId) -> Result<(), Error> {
        let session = session.clone();
        self.ask(|reply| thread::Job::Delete { session, reply }).await
    }

    /// Lets go of a session's file: when this returns, another process may open it.
    pub async fn close(&self, session: &SessionId) {
        let session = session.clone();
        // A store whose thread is gone holds no file.
        self.ask(|reply| thread::Job::Close { session, reply }).await.ok();
    }

    /// Writes what is left, lets go of every file, and ends. Later calls fail.
    pub async fn stop(&self) {
        let (reply, stopped) = oneshot::channel();
        if self.jobs.put(thread::Job::Stop { reply }) {
            // A thread that ends without a word has stopped as well.
            stopped.await.ok();
        }
    }

    /// What the user granted in a project.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn grants(&self, project: &str) -> Result<Vec<Grant>, Error> {
        let project = project.to_owned();
        self.ask(|reply| thread::Job::Grants { project: Some(project), reply }).await
    }

    /// What the user granted in any project.
    ///
    /// # Errors
    /// [`Error::Unwritable`] where there is no index to be had.
    pub async fn all_grants(&self) -> Result<Vec<Grant>, Error> {
        self.ask(|reply| thread::Job::Grants { project: None, reply }).await
    }

    /// Forgets a grant.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub async fn revoke(&self, grant: &Grant) -> Result<(), Error> {
        let grant = Box::new(grant.clone());
        self.ask(|reply| thread::Job::Revoke { grant, reply }).await
    }

    /// Keeps a grant.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub async fn grant(&self, grant: &Grant) -> Result<(), Error> {
        let grant = Box::new(grant.clone());
        self.ask(|reply| thread::Job::Grant { grant, reply }).await
    }

    async fn write(&self, session: &SessionId, entry: Entry) {
        let job = thread::Job::Write { session: session.clone(), entry };
        if !self.jobs.send(job).await {
            tracing::error!("the store is gone; session {session} is not saved any more");
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> thread::Job) -> Result<T, Error> {
        let gone = || Error::Unwritable("the store has stopped".into());
        let (reply, answer) = oneshot::channel();
        if !self.jobs.put(job(reply)) {
            return Err(gone());
        }
        answer.await.map_err(|_| gone())?
    }
}

#[cfg(test)]
mod damage;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod power;
#[cfg(test)]
mod tests;
