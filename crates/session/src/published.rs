//! The events of a session for observers outside the conversation, in the format of OpenCode.

use std::path::Path;

use serde_json::{Value, json};

use super::diff::Diff;
use base::environment::{Environment, Timestamp};
use base::id::{MessageId, PartId, SessionId};
use base::text;
use events::Status;
use events::bus::{DELTA, EventBus, Publisher};
use extensions::opencode_format::{self, MessageContext};
use store::Record;
use transcript::{Fault, Message, Part, Todo};

/// The publisher of one session's events, which knows the session's directories.
#[derive(Debug, Clone)]
pub struct SessionEvents {
    pub publisher: Publisher,
    environment: Option<Environment>,
    cwd: String,
    root: String,
}

impl SessionEvents {
    /// Resolves links of the working directory, because observers that may see only some
    /// directories are admitted by the real one.
    pub fn new(
        bus: EventBus,
        environment: &Environment,
        session: SessionId,
        (cwd, root): (&Path, &Path),
    ) -> Self {
        let real = std::fs::canonicalize(cwd);
        let real = real.as_deref().unwrap_or(cwd);
        Self {
            publisher: Publisher::new(bus, environment, session, real),
            environment: Some(environment.clone()),
            cwd: cwd.display().to_string(),
            root: root.display().to_string(),
        }
    }

    /// Returns a publisher without observers.
    pub fn silent(session: SessionId) -> Self {
        Self {
            publisher: Publisher::silent(session),
            environment: None,
            cwd: String::new(),
            root: String::new(),
        }
    }

    /// Returns the publisher of a subagent's session.
    #[must_use]
    pub fn of_subagent(&self, session: SessionId) -> Self {
        Self {
            publisher: self.publisher.of_subagent(session),
            ..self.clone()
        }
    }

    /// Returns the session and its directories, for messages.
    pub fn message_context(&self) -> MessageContext<'_> {
        MessageContext {
            session: self.id(),
            cwd: &self.cwd,
            root: &self.root,
        }
    }

    fn id(&self) -> &str {
        self.publisher.session.as_str()
    }

    fn now(&self) -> Timestamp {
        self.environment
            .as_ref()
            .map_or(Timestamp(0), Environment::now)
    }

    /// Publishes a message that began or ended, with the parts that mark the beginning and the end
    /// of an answer.
    pub fn message(&self, message: &Message) {
        if !self.publisher.is_observed() {
            return;
        }
        let [start, end] = opencode_format::step_parts(self.id(), message);
        self.step_part(end.as_ref());
        let info = || opencode_format::encode_message(&self.message_context(), message);
        self.publisher.publish(
            "message.updated",
            Some(message.id.as_str()),
            || json!({ "sessionID": self.id(), "info": info() }),
        );
        if end.is_none() && message.parts.is_empty() {
            self.step_part(start.as_ref());
        }
    }

    fn step_part(&self, part: Option<&Value>) {
        let Some(part) = part else { return };
        let id = part["id"].as_str();
        self.publisher.publish(
            "message.part.updated",
            id,
            || json!({ "sessionID": self.id(), "part": part, "time": self.now().0 }),
        );
    }

    pub fn removed(&self, message: &MessageId) {
        self.publisher.publish(
            "message.removed",
            None,
            || json!({ "sessionID": self.id(), "messageID": message.as_str() }),
        );
    }

    pub fn part(&self, message: &MessageId, part: &Part) {
        if !self.publisher.is_observed() {
            return;
        }
        let now = self.now();
        let Some(shown) = opencode_format::encode_part(self.id(), message, part, now) else {
            return;
        };
        self.publisher.publish(
            "message.part.updated",
            Some(part.id.as_str()),
            || json!({ "sessionID": self.id(), "part": shown, "time": now.0 }),
        );
    }

    /// Publishes new text of a part.
    pub fn delta(&self, message: &MessageId, part: &PartId, delta: &str) {
        self.publisher.publish(DELTA, Some(part.as_str()), || {
            json!({
                "sessionID": self.id(), "messageID": message.as_str(), "partID": part.as_str(), "field": "text", "delta": delta,
            })
        });
    }

    /// Publishes a new session.
    pub fn created(&self, record: &Record) {
        self.publisher
            .publish("session.created", None, || self.session_properties(record));
    }

    /// Publishes changed properties of the session.
    pub fn updated(&self, record: &Record) {
        self.publisher
            .publish("session.updated", Some(self.id()), || {
                self.session_properties(record)
            });
    }

    /// Publishes that the session was deleted.
    pub fn deleted(&self, record: &Record) {
        self.publisher
            .publish("session.deleted", None, || self.session_properties(record));
    }

    /// Returns the properties of events about the session itself.
    pub fn session_properties(&self, record: &Record) -> Value {
        json!({ "sessionID": self.id(), "info": session_info(record) })
    }

    /// Publishes the present activity. The end of it is published by [`Self::idle`].
    pub fn status(&self, status: &Status) {
        if let Some(status) = status_json(status) {
            self.publisher.publish(
                "session.status",
                None,
                || json!({ "sessionID": self.id(), "status": status }),
            );
        }
    }

    /// Publishes the end of a turn.
    pub fn idle(&self) {
        self.publisher.publish(
            "session.status",
            None,
            || json!({ "sessionID": self.id(), "status": { "type": "idle" } }),
        );
        self.publisher
            .publish("session.idle", None, || json!({ "sessionID": self.id() }));
    }

    /// Publishes the failure of a turn.
    pub fn failed(&self, fault: &Fault) {
        self.publisher.publish(
            "session.error",
            None,
            || json!({ "sessionID": self.id(), "error": opencode_format::encode_error(fault) }),
        );
    }

    /// Publishes that the history was summarised.
    pub fn compacted(&self) {
        self.publisher.publish(
            "session.compacted",
            None,
            || json!({ "sessionID": self.id() }),
        );
    }

    /// Publishes the changes that the session has made to files.
    pub fn diff(&self, diffs: &[Diff]) {
        let one = |diff: &Diff| {
            let patch = text::head(&diff.text, opencode_format::MAX_TEXT_BYTES);
            let mut one = json!({
                "file": diff.path, "patch": patch, "additions": diff.additions, "deletions": diff.deletions,
                "status": diff.status(),
            });
            if patch.len() < diff.text.len() {
                one["truncated"] = true.into();
            }
            one
        };
        self.publisher.publish(
            "session.diff",
            Some(self.id()),
            || json!({ "sessionID": self.id(), "diff": diffs.iter().map(one).collect::<Vec<_>>() }),
        );
    }

    /// Publishes the plan.
    pub fn plan(&self, todos: &[Todo]) {
        self.publisher.publish(
            "todo.updated",
            Some(self.id()),
            || json!({ "sessionID": self.id(), "todos": todos }),
        );
    }

    /// Publishes that a call has changed a file.
    pub fn edited(&self, path: &str) {
        self.publisher
            .publish("file.edited", None, || json!({ "file": path }));
    }

    /// Publishes that the user's prompt was a command.
    pub fn command(&self, (name, arguments): (&str, &str), message: &MessageId) {
        self.publisher.publish("command.executed", None, || {
            json!({
                "name": name, "sessionID": self.id(), "arguments": arguments, "messageID": message.as_str(),
            })
        });
    }

    /// Publishes a question about a permission, under the names of OpenCode 1.18 and of earlier
    /// versions.
    pub fn permission_asked(&self, question: impl Fn() -> Value) {
        for kind in ["permission.asked", "permission.updated"] {
            self.publisher.publish(kind, None, &question);
        }
    }

    /// Publishes the answer to a question: `once`, `always` or `reject`.
    pub fn permission_replied(&self, question: &str, reply: &str) {
        self.publisher.publish("permission.replied", None, || {
            json!({
                "sessionID": self.id(), "requestID": question, "reply": reply,
                "permissionID": question, "response": reply,
            })
        });
    }
}

/// Returns a status in the format of OpenCode; `None` if the session is idle.
pub fn status_json(status: &Status) -> Option<Value> {
    match status {
        Status::Busy | Status::Compacting => Some(json!({ "type": "busy" })),
        Status::Retrying {
            attempt,
            next,
            cause,
            ..
        } => Some(json!({ "type": "retry", "attempt": attempt, "message": cause, "next": next.0 })),
        Status::Idle => None,
    }
}

/// Returns the properties of a session in the format of OpenCode.
fn session_info(record: &Record) -> Value {
    let mut info = json!({
        "id": record.id.as_str(), "slug": record.id.as_str(), "projectID": "project", "directory": record.cwd,
        "title": record.title.as_deref().unwrap_or_default(), "version": env!("CARGO_PKG_VERSION"),
        "time": { "created": record.created.0, "updated": record.updated.0 },
    });
    if let Some(parent) = &record.parent {
        info["parentID"] = parent.as_str().into();
    }
    if let Some(agent) = &record.agent {
        info["agent"] = agent.as_str().into();
    }
    if let Some(model) = &record.model {
        info["model"] = json!({ "id": model.model, "providerID": model.provider });
    }
    info["cost"] = record.cost.unwrap_or_default().into();
    if let Some(undone) = record.undone.last() {
        info["revert"] = json!({ "messageID": undone.from.as_str() });
    }
    if let Some(changed) = &record.diff_stats {
        info["summary"] = json!({
            "additions": changed.additions, "deletions": changed.deletions, "files": changed.files,
        });
    }
    if record.archived {
        info["time"]["archived"] = record.updated.0.into();
    }
    info
}
