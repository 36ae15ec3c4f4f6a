//! What is kept: sessions, messages, parts, grants. One SQLite file per session, opened by one
//! process at a time, and one index database that can be rebuilt from them: a damaged file hides
//! no other session, and the lock on a file is how a session open elsewhere is noticed.
//!
//! All SQL lives in this folder, behind domain types: no row id, file path or SQL leaks upward.
//!
//! One thread owns every connection (`store/thread.rs`). Writes are queued in order and do not
//! wait; [`Store::flush`] waits until everything before it is on the disk. What was flushed
//! survives a power cut where the disk honours flushes; what was merely written survives the
//! death of the process.

mod index;
mod migrate;
mod session;
mod thread;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::environment::Timestamp;
use crate::id::{MessageId, SessionId};
use crate::message::{Message, ModelRef, Part, Todo};

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
    /// When it began.
    pub created: Timestamp,
    /// When it was last used.
    pub updated: Timestamp,
    /// The session that delegated to it.
    #[serde(default)]
    pub parent: Option<SessionId>,
    /// The chosen agent.
    #[serde(default)]
    pub agent: Option<String>,
    /// The chosen model and effort.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// The plan.
    #[serde(default)]
    pub todos: Vec<Todo>,
    /// US dollars so far; none while no price was known.
    #[serde(default)]
    pub cost: Option<f64>,
}

/// A session as it was kept.
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

/// How the store fails; for the log, and for the user where a session cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such session.
    #[error("there is no session {0}")]
    NotFound(SessionId),
    /// Another process has the session open.
    #[error("session {0} is open in another adjutant process; close it there first")]
    Locked(SessionId),
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
    /// It could not be written: a full disk, a read-only directory.
    #[error("the session could not be saved: {0}")]
    Unwritable(String),
}

/// A hand on the store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    jobs: mpsc::Sender<thread::Job>,
}

/// Something to be written about a session.
#[derive(Debug)]
enum Entry {
    Record(Box<Record>),
    Message { id: String, json: String },
    Part { id: String, message: String, json: String },
}

impl Store {
    /// A store in `dir`. Nothing is opened until it is needed.
    pub fn start(dir: &Path) -> Self {
        Self { jobs: thread::start(dir.to_path_buf()) }
    }

    /// Makes a session known. Its file is made with its first message.
    ///
    /// # Errors
    /// [`Error::Unwritable`].
    pub async fn create(&self, record: &Record) -> Result<(), Error> {
        let record = Box::new(record.clone());
        self.ask(|reply| thread::Job::Create { record, reply }).await
    }

    /// Writes what is known about a session.
    pub async fn record(&self, record: &Record) {
        self.write(&record.id, Entry::Record(Box::new(record.clone()))).await;
    }

    /// Writes a message, without its parts: a new one, or over the one with the same id.
    pub async fn message(&self, session: &SessionId, message: &Message) {
        match serde_json::to_string(message) {
            Ok(json) => self.write(session, Entry::Message { id: message.id.to_string(), json }).await,
            Err(e) => tracing::error!("message {} cannot be written as JSON: {e}", message.id),
        }
    }

    /// Writes a part: a new one, or over the one with the same id.
    pub async fn part(&self, session: &SessionId, message: &MessageId, part: &Part) {
        let (id, message) = (part.id.to_string(), message.to_string());
        match serde_json::to_string(part) {
            Ok(json) => self.write(session, Entry::Part { id, message, json }).await,
            Err(e) => tracing::error!("part {id} cannot be written as JSON: {e}"),
        }
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
        self.ask(|reply| thread::Job::Load { session, reply }).await
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

    /// Lets go of a session's file, so that another process may open it.
    pub async fn close(&self, session: &SessionId) {
        // A store whose thread is gone holds no file.
        self.jobs.send(thread::Job::Close { session: session.clone() }).await.ok();
    }

    /// Writes what is left, lets go of every file, and ends. Later calls fail.
    pub async fn stop(&self) {
        let (reply, stopped) = oneshot::channel();
        if self.jobs.send(thread::Job::Stop { reply }).await.is_ok() {
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
        if self.jobs.send(job).await.is_err() {
            tracing::error!("the store is gone; session {session} is not saved any more");
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> thread::Job) -> Result<T, Error> {
        let gone = || Error::Unwritable("the store has stopped".into());
        let (reply, answer) = oneshot::channel();
        self.jobs.send(job(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Content, Role, Text, User};

    fn record(id: &str, cwd: &str, updated: u64) -> Record {
        Record {
            id: SessionId::new(id),
            cwd: cwd.into(),
            extra: vec![],
            title: Some(format!("title of {id}")),
            created: Timestamp(1),
            updated: Timestamp(updated),
            parent: None,
            agent: None,
            model: None,
            todos: vec![],
            cost: None,
        }
    }

    fn message(id: &str, words: &[&str]) -> Message {
        let parts = words.iter().enumerate().map(|(n, words)| Part {
            id: crate::id::PartId::new(format!("{id}-{n}")),
            content: Content::Text(Text { text: (*words).into(), ..Text::default() }),
        });
        let model = ModelRef { provider: "p".into(), model: "m".into(), effort: None };
        Message {
            id: MessageId::new(id),
            created: Timestamp(1),
            role: Role::User(User { agent: "build".into(), model, system: None }),
            parts: parts.collect(),
        }
    }

    async fn write(store: &Store, record: &Record, messages: &[Message]) {
        for message in messages {
            store.message(&record.id, message).await;
            for part in &message.parts {
                store.part(&record.id, &message.id, part).await;
            }
        }
    }

    #[tokio::test]
    async fn a_history_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let record = record("ses_00000001", "/w", 5);
        let messages = [message("b", &["one", "two"]), message("a", &["three"])];
        {
            let store = Store::start(dir.path());
            store.create(&record).await.unwrap();
            assert_eq!(store.load(&record.id).await.unwrap().messages, []);
            write(&store, &record, &messages).await;
            // A part that is written again keeps its place.
            store.part(&record.id, &messages[0].id, &messages[0].parts[0]).await;
            store.flush(&record.id).await.unwrap();
            store.close(&record.id).await;
            store.flush(&record.id).await.unwrap();
        }
        let stored = Store::start(dir.path()).load(&record.id).await.unwrap();
        assert_eq!(stored, Stored { record, messages: messages.to_vec(), damage: vec![] });
    }

    #[tokio::test]
    async fn lists_are_paged_and_can_be_rebuilt() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        for n in 0..5u64 {
            let cwd = if n == 3 { "/other" } else { "/w" };
            let record = record(&format!("ses_0000000{n}"), cwd, 10 + n / 2);
            store.create(&record).await.unwrap();
            write(&store, &record, &[message(&format!("m{n}"), &["x"])]).await;
            store.record(&record).await;
            store.flush(&record.id).await.unwrap();
            store.close(&record.id).await;
        }
        let ids = |page: &Page| page.sessions.iter().map(|r| r.id.to_string()).collect::<Vec<_>>();
        let first = store.list(Some(Path::new("/w")), None, 2).await.unwrap();
        assert_eq!(ids(&first), ["ses_00000004", "ses_00000002"]);
        let second = store.list(Some(Path::new("/w")), first.next, 2).await.unwrap();
        assert_eq!(ids(&second), ["ses_00000001", "ses_00000000"]);
        assert_eq!(second.next, None);
        let all = store.list(None, None, 100).await.unwrap();
        drop(store);
        std::fs::write(dir.path().join("index.db"), "not a database, but long enough to be looked at").unwrap();
        let rebuilt = Store::start(dir.path()).list(None, None, 100).await.unwrap();
        assert_eq!(ids(&rebuilt), ids(&all));
    }

    #[tokio::test]
    async fn what_cannot_be_opened_says_why_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sessions")).unwrap();
        let file = |id: &str| dir.path().join("sessions").join(format!("{id}.db"));
        let store = Store::start(dir.path());
        let unknown = store.load(&SessionId::new("ses_nothing1")).await;
        assert_eq!(unknown, Err(Error::NotFound(SessionId::new("ses_nothing1"))));
        std::fs::write(file("ses_garbage1"), vec![b'x'; 9000]).unwrap();
        let damaged = store.load(&SessionId::new("ses_garbage1")).await;
        assert!(matches!(damaged, Err(Error::Damaged { .. })), "{damaged:?}");
        assert_eq!(std::fs::read(file("ses_garbage1")).unwrap(), vec![b'x'; 9000]);
        let newer = rusqlite::Connection::open(file("ses_newer001")).unwrap();
        newer.execute_batch("PRAGMA user_version = 99; CREATE TABLE t(x);").unwrap();
        drop(newer);
        let newer = store.load(&SessionId::new("ses_newer001")).await;
        assert!(matches!(newer, Err(Error::Newer { found: 99, .. })), "{newer:?}");
    }

    #[tokio::test]
    async fn many_may_start_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let stores: Vec<Store> = (0..8).map(|_| Store::start(dir.path())).collect();
        let records: Vec<Record> = (0..8u64).map(|n| record(&format!("ses_0000000{n}"), "/w", n)).collect();
        let made = stores.iter().zip(&records).map(|(store, record)| store.create(record));
        for made in futures_util::future::join_all(made).await {
            made.unwrap();
        }
        let page = stores[0].list(None, None, 100).await.unwrap();
        assert_eq!(page.sessions.len(), 8);
        let names = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
        assert!(!names.into_iter().any(|name| name.to_string_lossy().contains("damaged")));
    }

    #[tokio::test]
    async fn a_newer_index_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let newer = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
        newer.execute_batch("PRAGMA user_version = 99; CREATE TABLE kept(x);").unwrap();
        drop(newer);
        let store = Store::start(dir.path());
        let listed = store.list(None, None, 10).await;
        assert_eq!(listed, Err(Error::NewerIndex { found: 99, known: 1 }));
        let kept = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
        assert_eq!(kept.query_row("SELECT count(*) FROM kept", [], |row| row.get::<_, i64>(0)), Ok(0));
    }
}
