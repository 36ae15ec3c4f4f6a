//! The JSON files of older versions of OpenCode: `storage/session/PROJECT/SESSION.json`,
//! `storage/message/SESSION/MESSAGE.json`, `storage/part/MESSAGE/PART.json` and
//! `storage/todo/SESSION.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Omitted, RawMessage, ReadError, whole};
use crate::StreamedSession;
use base::id::SessionId;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

pub(super) struct Files {
    storage: PathBuf,
    /// The files of the sessions.
    sessions: BTreeMap<String, PathBuf>,
}

impl Files {
    /// Returns the sessions in the files of a data directory; `None` if there are none.
    pub(super) fn below(data: &Path) -> Option<Self> {
        let storage = data.join("storage");
        let mut sessions = BTreeMap::new();
        for project in entries(&storage.join("session")) {
            for file in entries(&project) {
                if let Some(id) = id(&file) {
                    sessions.insert(id, file);
                }
            }
        }
        (!sessions.is_empty()).then_some(Self { storage, sessions })
    }

    /// Returns the readable sessions, each with its parent.
    pub(super) fn sessions(&self, left_out: &Omitted) -> Vec<(SessionId, Option<SessionId>)> {
        let mut found = Vec::new();
        for (id, file) in &self.sessions {
            match json(file) {
                Ok(info) => found.push((
                    SessionId::new(id.as_str()),
                    info.get("parentID")
                        .and_then(Value::as_str)
                        .map(SessionId::new),
                )),
                Err(_) => left_out.add("unreadable sessions"),
            }
        }
        found
    }

    pub(super) fn read(
        &self,
        session: &SessionId,
        left_out: &Omitted,
    ) -> Result<StreamedSession, ReadError> {
        let Some(file) = self.sessions.get(session.as_str()) else {
            return Err(ReadError::Nothing(self.storage.clone()));
        };
        let unreadable = |why: String| ReadError::Unreadable {
            path: file.clone(),
            why,
        };
        let mut info = json(file).map_err(unreadable)?;
        // A session is found and stored under the name of its file.
        if let Some(members) = info.as_object_mut() {
            members.insert("id".into(), session.as_str().into());
        }
        let mut messages: Vec<RawMessage> = Vec::new();
        let folder = self.storage.join("message").join(session.as_str());
        for file in entries(&folder) {
            let Some(id) = id(&file) else { continue };
            let Ok(mut info) = json(&file) else {
                left_out.add("unreadable messages and parts");
                continue;
            };
            name(&mut info, &id);
            messages.push(RawMessage {
                parts: self.parts(&id, left_out),
                info,
            });
        }
        // The names of the files are their ids, which are sorted by time in one version only.
        messages
            .sort_by_key(|message| message.info["time"]["created"].as_u64().unwrap_or_default());
        let todos = json(&self.storage.join("todo").join(format!("{session}.json")));
        let todos = todos.ok().and_then(|todos| todos.as_array().cloned());
        whole(&info, &todos.unwrap_or_default(), messages, left_out).map_err(unreadable)
    }

    fn parts(&self, message: &str, left_out: &Omitted) -> Vec<Value> {
        let mut parts = Vec::new();
        for file in entries(&self.storage.join("part").join(message)) {
            let Some(id) = id(&file) else { continue };
            match json(&file) {
                Ok(mut part) => {
                    name(&mut part, &id);
                    parts.push(part);
                }
                Err(_) => left_out.add("unreadable messages and parts"),
            }
        }
        parts
    }
}

/// Returns the paths in a directory, sorted by name; none if it cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Returns the id that a file is named after.
fn id(file: &Path) -> Option<String> {
    let is_json = file
        .extension()
        .is_some_and(|extension| extension == "json");
    if !is_json || !file.is_file() {
        return None;
    }
    Some(file.file_stem()?.to_str()?.to_owned())
}

fn json(file: &Path) -> Result<Value, String> {
    let meta = fs::metadata(file).map_err(|e| e.to_string())?;
    // A pipe would block until its writer closes it.
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return Err("not a regular file, or too large".into());
    }
    let text = fs::read_to_string(file).map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

/// Adds the id that the name of the file implies.
fn name(value: &mut Value, id: &str) {
    if let Some(members) = value.as_object_mut() {
        members.entry("id").or_insert_with(|| id.into());
    }
}
