//! Sessions of OpenCode, for a move to adjutant: an exported session, or a directory of its data.
//!
//! Newer versions store sessions in an SQLite database, older ones in JSON files; an export is one
//! JSON document. The three share their objects, which `convert.rs` translates. OpenCode's files
//! are never opened by SQLite: a database is copied first, so that OpenCode may run in the
//! meantime, and its directory stays as it is.

mod convert;
mod database;
mod files;
mod patch;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};

use self::convert::Converter;
use self::database::Database;
use self::files::Files;
use crate::StreamedSession;
use base::id::SessionId;
use base::lock::lock;
use transcript::Message;

/// The reason why OpenCode's data cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(
        "{0} has no sessions of OpenCode: neither a database opencode.db nor a directory storage/session"
    )]
    Nothing(PathBuf),
    #[error("{path} cannot be read: {why}")]
    Unreadable { path: PathBuf, why: String },
    #[error(
        "{0} changes faster than it can be copied; close OpenCode for a moment, or import what `opencode export` writes"
    )]
    Busy(PathBuf),
    #[error("this is not a session that OpenCode exported: {0}")]
    Shape(String),
}

/// The things of a session that adjutant has no place for, by their names, with their numbers.
#[derive(Debug, Clone, Default)]
pub struct Omitted(Arc<Mutex<BTreeMap<String, usize>>>);

impl Omitted {
    fn add(&self, name: impl Into<String>) {
        self.add_many(name, 1);
    }

    fn add_many(&self, name: impl Into<String>, count: usize) {
        if count > 0 {
            *lock(&self.0).entry(name.into()).or_default() += count;
        }
    }

    /// Returns the parts that were left out so far, sorted by name.
    pub fn list(&self) -> Vec<(String, usize)> {
        lock(&self.0)
            .iter()
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    }
}

/// A message as OpenCode stores it, with its parts.
struct RawMessage {
    info: Value,
    parts: Vec<Value>,
}

/// A session of a data directory.
#[derive(Debug, Clone)]
pub struct FoundSession {
    pub id: SessionId,
    /// The session that delegated to it, if it is there.
    parent: Option<SessionId>,
    /// The number of delegations between a user's session and this one.
    depth: u32,
    source: usize,
}

/// The sessions of a data directory, or of one of its databases.
pub struct DataDirectory {
    databases: Vec<Database>,
    files: Option<Files>,
    sessions: Vec<FoundSession>,
    left_out: Omitted,
}

impl DataDirectory {
    /// Opens a data directory, such as `~/.local/share/opencode`, or a database file. Databases are
    /// copied into `temporary`. Blocks.
    ///
    /// # Errors
    /// Returns [`ReadError`].
    pub fn open(path: &Path, temporary: &Path) -> Result<Self, ReadError> {
        let left_out = Omitted::default();
        let paths = if path.is_dir() {
            database::paths(path)
        } else {
            vec![path.to_path_buf()]
        };
        let databases = paths
            .iter()
            .enumerate()
            .map(|(at, path)| Database::copy(path, &temporary.join(at.to_string())))
            .collect::<Result<Vec<_>, _>>()?;
        let files = path.is_dir().then(|| Files::below(path)).flatten();
        if databases.is_empty() && files.is_none() {
            return Err(ReadError::Nothing(path.to_path_buf()));
        }
        let mut sessions: Vec<FoundSession> = Vec::new();
        let mut known = HashMap::new();
        // The databases first: OpenCode has moved the sessions of its old files into them.
        let lists = databases
            .iter()
            .map(Database::sessions)
            .chain(files.iter().map(|files| Ok(files.sessions(&left_out))));
        for (source, list) in lists.enumerate() {
            for (id, parent) in list? {
                if known.insert(id.clone(), parent.clone()).is_some() {
                    continue;
                }
                sessions.push(FoundSession {
                    id,
                    parent,
                    depth: 0,
                    source,
                });
            }
        }
        for session in &mut sessions {
            let depth = depth(&session.id, &known);
            // No list shows a session whose ancestors are missing, or form a circle.
            let is_lost = usize::try_from(depth).is_ok_and(|depth| depth >= known.len())
                || session
                    .parent
                    .as_ref()
                    .is_some_and(|parent| !known.contains_key(parent));
            if is_lost {
                session.parent = None;
            }
            session.depth = if is_lost { 0 } else { depth };
        }
        // Parents first.
        sessions.sort_by_key(|session| session.depth);
        Ok(Self {
            databases,
            files,
            sessions,
            left_out,
        })
    }

    /// Returns the sessions, those of users before those of subagents.
    pub fn sessions(&self) -> &[FoundSession] {
        &self.sessions
    }

    /// Returns the parts that were left out of the sessions read so far.
    pub fn left_out(&self) -> Vec<(String, usize)> {
        self.left_out.list()
    }

    /// Reads a session. Blocks.
    ///
    /// # Errors
    /// Returns [`ReadError`].
    pub fn read(&self, session: &FoundSession) -> Result<StreamedSession, ReadError> {
        let mut found = match self.databases.get(session.source) {
            Some(database) => database.read(&session.id, &self.left_out)?,
            None => match &self.files {
                Some(files) => files.read(&session.id, &self.left_out)?,
                None => return Err(ReadError::Nothing(session.id.as_str().into())),
            },
        };
        found.record.id = session.id.clone();
        found.record.parent = session.parent.clone();
        found.record.depth = session.depth;
        Ok(found)
    }
}

/// Returns the number of a session's ancestors. A session cannot be its own ancestor, so the count
/// ends at the number of sessions.
fn depth(id: &SessionId, parents: &HashMap<SessionId, Option<SessionId>>) -> u32 {
    let mut depth = 0;
    let mut at = id;
    while let Some(Some(parent)) = parents.get(at)
        && parents.contains_key(parent)
        && usize::try_from(depth).is_ok_and(|depth| depth < parents.len())
    {
        depth += 1;
        at = parent;
    }
    depth
}

/// True if a document is an exported session of OpenCode, by the names of its members.
pub fn is_export(members: &Map<String, Value>) -> bool {
    members.get("info").is_some_and(Value::is_object)
        && members.get("messages").is_some_and(Value::is_array)
}

/// Reads an exported session of OpenCode, and the parts that have no place here.
///
/// # Errors
/// Returns [`ReadError::Shape`].
pub fn import(mut members: Map<String, Value>) -> Result<(StreamedSession, Omitted), ReadError> {
    let left_out = Omitted::default();
    let info = members.remove("info").unwrap_or_default();
    let Some(Value::Array(list)) = members.remove("messages") else {
        return Err(ReadError::Shape("the list of messages is missing".into()));
    };
    let messages = list
        .into_iter()
        .map(|mut message| RawMessage {
            parts: match message.get_mut("parts").map(Value::take) {
                Some(Value::Array(parts)) => parts,
                _ => Vec::new(),
            },
            info: message.get_mut("info").map(Value::take).unwrap_or_default(),
        })
        .collect();
    let feed = whole(&info, &[], messages, &left_out).map_err(ReadError::Shape)?;
    Ok((feed, left_out))
}

/// Converts a session whose messages are in memory. Without a list of its own, the plan is that of
/// the last call that wrote it.
fn whole(
    info: &Value,
    todos: &[Value],
    messages: Vec<RawMessage>,
    left_out: &Omitted,
) -> Result<StreamedSession, String> {
    let mut record = convert::record(info, left_out)?;
    record.todos = if todos.is_empty() {
        messages
            .iter()
            .rev()
            .flat_map(|message| message.parts.iter().rev())
            .find_map(convert::plan)
            .unwrap_or_default()
    } else {
        convert::todos(todos)
    };
    let model = record.model.clone().or_else(|| {
        let mut models = messages
            .iter()
            .filter_map(|message| convert::model(&message.info));
        models.next()
    });
    let mut converter = Converter::new(&record, model, left_out.clone());
    let messages: Vec<Message> = messages
        .into_iter()
        .filter_map(|message| converter.message(&message.info, message.parts))
        .collect();
    Ok(StreamedSession::new(record, messages.into_iter().map(Ok)))
}

#[cfg(test)]
mod tests;
