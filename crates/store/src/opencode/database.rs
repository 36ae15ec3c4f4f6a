//! OpenCode's database: the tables `session`, `message`, `part` and `todo`, whose columns differ
//! between versions.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::{Map, Value, json};

use super::convert::{self, Converter};
use super::{Omitted, RawMessage, ReadError};
use crate::{Error, StreamedSession};
use base::id::SessionId;
use transcript::Message;

/// The number of attempts to copy a database that OpenCode changes in the meantime.
const MAX_COPIES: usize = 20;

/// The files next to a database that belong to it.
const SUFFIXES: [&str; 3] = ["", "-wal", "-journal"];

/// Returns the databases of a data directory: `opencode.db`, and one for each other release
/// channel.
pub(super) fn paths(data: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(data).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = found
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let channel = name
                .strip_prefix("opencode")
                .and_then(|rest| rest.strip_suffix(".db"));
            channel.is_some_and(|channel| channel.is_empty() || channel.starts_with('-'))
                && path.is_file()
        })
        .collect();
    paths.sort();
    paths
}

/// A copy of a database.
pub(super) struct Database {
    /// The original, for messages.
    original: PathBuf,
    copy: Arc<PathBuf>,
}

impl Database {
    /// Copies a database, with its log. Repeats it if OpenCode has written in the meantime.
    pub(super) fn copy(original: &Path, into: &Path) -> Result<Self, ReadError> {
        let unreadable = |e: std::io::Error| ReadError::Unreadable {
            path: original.to_path_buf(),
            why: e.to_string(),
        };
        // SQLite has the log of a linked database next to the file that the link leads to.
        let real = fs::canonicalize(original).map_err(unreadable)?;
        fs::create_dir_all(into).map_err(unreadable)?;
        let copy = into.join("opencode.db");
        for _ in 0..MAX_COPIES {
            let before = stamps(&real);
            for (suffix, stamp) in SUFFIXES.iter().zip(&before) {
                let target = with_suffix(&copy, suffix);
                if stamp.is_none() {
                    fs::remove_file(&target)
                        .or_else(absent)
                        .map_err(unreadable)?;
                    continue;
                }
                match fs::copy(with_suffix(&real, suffix), &target) {
                    Ok(_) => {}
                    // OpenCode has just ended, which removes its log.
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
                    Err(e) => return Err(unreadable(e)),
                }
            }
            if before.first().is_some_and(Option::is_some) && before == stamps(&real) {
                let database = Self {
                    original: original.to_path_buf(),
                    copy: Arc::new(copy),
                };
                database.check()?;
                return Ok(database);
            }
        }
        Err(ReadError::Busy(original.to_path_buf()))
    }

    fn error(&self, e: &rusqlite::Error) -> ReadError {
        ReadError::Unreadable {
            path: self.original.clone(),
            why: e.to_string(),
        }
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(
            &*self.copy,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        // The schema may be anyone's.
        connection.pragma_update(None, "trusted_schema", false)?;
        Ok(connection)
    }

    /// Checks that the copy is consistent and has the expected tables.
    fn check(&self) -> Result<(), ReadError> {
        let check = || {
            let connection = self.open()?;
            let state: String =
                connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
            for table in ["session", "message", "part"] {
                connection.prepare(&format!("SELECT id FROM {table}"))?;
            }
            Ok(state)
        };
        match check() {
            Ok(state) if state == "ok" => Ok(()),
            Ok(state) => Err(ReadError::Unreadable {
                path: self.original.clone(),
                why: state,
            }),
            Err(e) => Err(self.error(&e)),
        }
    }

    /// Returns the sessions, oldest first, each with its parent.
    pub(super) fn sessions(&self) -> Result<Vec<(SessionId, Option<SessionId>)>, ReadError> {
        let list = || {
            let connection = self.open()?;
            let rows = rows(
                &connection,
                "SELECT id, parent_id FROM session ORDER BY time_created, id",
                "",
            )?;
            let id = |row: &Map<String, Value>, key: &str| {
                row.get(key).and_then(Value::as_str).map(SessionId::new)
            };
            Ok(rows
                .iter()
                .filter_map(|row| Some((id(row, "id")?, id(row, "parent_id"))))
                .collect())
        };
        list().map_err(|e| self.error(&e))
    }

    /// Reads a session; its messages one at a time.
    pub(super) fn read(
        &self,
        session: &SessionId,
        left_out: &Omitted,
    ) -> Result<StreamedSession, ReadError> {
        let id = session.as_str();
        let read = || {
            let connection = self.open()?;
            let info = rows(&connection, "SELECT * FROM session WHERE id = ?1", id)?;
            let todos = rows(
                &connection,
                "SELECT * FROM todo WHERE session_id = ?1 ORDER BY position",
                id,
            );
            let next = connection.query_row(
                "SELECT COUNT(*) FROM session_message WHERE session_id = ?1",
                [id],
                |row| row.get::<_, u32>(0),
            );
            // Messages may contain whole files, so each is read when it is its turn.
            let messages = rows(
                &connection,
                "SELECT id FROM message WHERE session_id = ?1 ORDER BY time_created, id",
                id,
            )?;
            let messages = messages.into_iter().filter_map(|mut row| row.remove("id"));
            let messages: Vec<String> = messages
                .filter_map(|id| id.as_str().map(str::to_owned))
                .collect();
            // These tables are missing in some versions.
            Ok((
                connection,
                info,
                todos.unwrap_or_default(),
                next.unwrap_or_default(),
                messages,
            ))
        };
        let (connection, info, todos, next, messages) = read().map_err(|e| self.error(&e))?;
        let unreadable = |why: String| ReadError::Unreadable {
            path: self.original.clone(),
            why,
        };
        let info = info.into_iter().next().map(session_info);
        let info = info.ok_or_else(|| unreadable(format!("session {session} is gone")))?;
        let mut record = convert::record(&info, left_out).map_err(unreadable)?;
        let todos: Vec<Value> = todos.into_iter().map(Value::Object).collect();
        record.todos = convert::todos(&todos);
        if messages.is_empty() {
            let next = usize::try_from(next).unwrap_or(usize::MAX);
            left_out.add_many("messages in the next format of OpenCode", next);
        }
        let model = record.model.clone().or_else(|| {
            let mut infos = messages.iter().map(|id| one_info(&connection, id));
            infos.find_map(|info| convert::model(&info.ok()??))
        });
        // Missing in versions that do not count the cost of sessions.
        let costs = child_costs(&connection, id).unwrap_or_default();
        if let Some(cost) = &mut record.cost {
            *cost += costs.values().sum::<f64>();
        }
        let converter = Converter::new(&record, model, left_out.clone());
        let mut converter = converter.with_child_costs(costs);
        let mut messages = messages.into_iter();
        let next = move || next_message(&connection, &mut messages, &mut converter);
        Ok(StreamedSession::new(record, std::iter::from_fn(next)))
    }
}

/// Returns the costs of a session's subagents, each with all below it.
fn child_costs(connection: &Connection, id: &str) -> rusqlite::Result<HashMap<SessionId, f64>> {
    let sql = "WITH RECURSIVE below(child, id) AS (
            SELECT id, id FROM session WHERE parent_id = ?1
            UNION SELECT below.child, session.id FROM session JOIN below ON session.parent_id = below.id
        )
        SELECT below.child AS child, SUM(session.cost) AS cost
        FROM below JOIN session ON session.id = below.id GROUP BY below.child";
    let cost = |row: &Map<String, Value>| {
        let child = SessionId::new(row.get("child")?.as_str()?);
        Some((child, row.get("cost")?.as_f64()?))
    };
    Ok(rows(connection, sql, id)?.iter().filter_map(cost).collect())
}

/// Returns a message without its parts; `None` if it is not in the database.
fn one_info(connection: &Connection, id: &str) -> rusqlite::Result<Option<Value>> {
    let found = rows(connection, "SELECT * FROM message WHERE id = ?1", id)?;
    Ok(found.into_iter().next().map(message_info))
}

/// Returns the next message that can be converted.
fn next_message(
    connection: &Connection,
    ids: &mut impl Iterator<Item = String>,
    converter: &mut Converter,
) -> Option<Result<Message, Error>> {
    loop {
        let id = ids.next()?;
        let read = || {
            let info = one_info(connection, &id)?.unwrap_or_default();
            let parts = rows(
                connection,
                "SELECT * FROM part WHERE message_id = ?1 ORDER BY id",
                &id,
            )?;
            let parts = parts.into_iter().map(message_info).collect();
            Ok(RawMessage { info, parts })
        };
        let found: rusqlite::Result<RawMessage> = read();
        let found = match found {
            Ok(found) => found,
            Err(e) => {
                return Some(Err(Error::ImportUnreadable(format!(
                    "OpenCode's database: {e}"
                ))));
            }
        };
        if let Some(message) = converter.message(&found.info, found.parts) {
            return Some(Ok(message));
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn absent(e: std::io::Error) -> std::io::Result<()> {
    if e.kind() == std::io::ErrorKind::NotFound {
        Ok(())
    } else {
        Err(e)
    }
}

/// Returns the sizes and times of a database's files.
fn stamps(path: &Path) -> Vec<Option<(u64, SystemTime)>> {
    let stamp = |suffix: &&str| {
        let meta = fs::metadata(with_suffix(path, suffix)).ok()?;
        // A pipe would block until its writer closes it.
        if !meta.is_file() {
            return None;
        }
        Some((meta.len(), meta.modified().ok()?))
    };
    SUFFIXES.iter().map(stamp).collect()
}

/// Returns the rows of a query as objects. Texts that are JSON objects or lists are parsed.
fn rows(connection: &Connection, sql: &str, id: &str) -> rusqlite::Result<Vec<Map<String, Value>>> {
    let mut statement = connection.prepare_cached(sql)?;
    let names: Vec<String> = statement
        .column_names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let object = |row: &Row<'_>| {
        let mut object = Map::new();
        for (at, name) in names.iter().enumerate() {
            object.insert(name.clone(), value(row.get_ref(at)?));
        }
        Ok(object)
    };
    if statement.parameter_count() == 0 {
        return statement.query_map([], object)?.collect();
    }
    statement.query_map([id], object)?.collect()
}

fn value(column: ValueRef<'_>) -> Value {
    match column {
        ValueRef::Null | ValueRef::Blob(_) => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into(),
    }
}

/// Parses a column that contains JSON.
fn parsed(row: &mut Map<String, Value>, column: &str) -> Value {
    match row.remove(column) {
        Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or_default(),
        _ => Value::Null,
    }
}

/// Returns the object of a message or a part: its data, with its ids.
fn message_info(mut row: Map<String, Value>) -> Value {
    let mut data = parsed(&mut row, "data");
    if let (Some(members), Some(id)) = (data.as_object_mut(), row.remove("id")) {
        members.insert("id".into(), id);
    }
    data
}

/// Returns a row of `session` in the form of an export.
fn session_info(mut row: Map<String, Value>) -> Value {
    let model = parsed(&mut row, "model");
    let metadata = parsed(&mut row, "metadata");
    let revert = parsed(&mut row, "revert");
    let permission = parsed(&mut row, "permission");
    let mut take = |column: &str| row.remove(column).unwrap_or_default();
    let mut info = json!({
        "id": take("id"),
        "directory": take("directory"),
        "title": take("title"),
        "cost": take("cost"),
        "summary": {
            "files": take("summary_files"),
            "additions": take("summary_additions"),
            "deletions": take("summary_deletions"),
        },
        "time": {
            "created": take("time_created"),
            "updated": take("time_updated"),
            "archived": take("time_archived"),
        },
        "parentID": take("parent_id"),
        "workspaceID": take("workspace_id"),
        "share": take("share_url"),
        "agent": take("agent"),
    });
    for (key, value) in [
        ("model", model),
        ("metadata", metadata),
        ("revert", revert),
        ("permission", permission),
    ] {
        if !value.is_null() {
            info[key] = value;
        }
    }
    info
}
