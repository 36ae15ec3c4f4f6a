//! A client for tests that are not transcripts.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::editor::{Editor, RESPONSE_TIMEOUT};
use crate::invariants::Invariants;
use crate::project::Project;

/// A client that sends messages, receives answers and checks the invariants.
pub struct Client {
    /// The project; several clients may share it.
    pub project: Arc<Project>,
    /// The editor.
    pub editor: Editor,
    /// The invariants, checked on every message.
    pub invariants: Invariants,
}

impl Client {
    /// Starts an agent in a project and initializes the connection.
    pub fn new(project: impl Into<Arc<Project>>) -> Self {
        let project = project.into();
        let editor = Editor::start(&project);
        Self::of(project, editor)
    }

    /// Initializes the connection to a running agent.
    pub fn of(project: Arc<Project>, editor: Editor) -> Self {
        Self::initialized(project, editor, &json!({}))
    }

    /// Starts an agent in a project, as an editor with these capabilities.
    pub fn capable(project: impl Into<Arc<Project>>, capabilities: &Value) -> Self {
        let project = project.into();
        let editor = Editor::start(&project);
        Self::initialized(project, editor, capabilities)
    }

    fn initialized(project: Arc<Project>, editor: Editor, capabilities: &Value) -> Self {
        let mut client = Self {
            project,
            editor,
            invariants: Invariants::default(),
        };
        client.request(
            0,
            "initialize",
            &json!({ "protocolVersion": 1, "clientCapabilities": capabilities }),
        );
        client.answer(0);
        client
    }

    /// Asks for something.
    pub fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Value) {
        let line = message.to_string();
        self.invariants.observe_client(&line);
        self.editor.send(&line);
    }

    /// Receives the next message.
    pub fn receive(&mut self) -> Value {
        let line = self
            .editor
            .receive(RESPONSE_TIMEOUT)
            .expect("the agent says nothing any more");
        self.invariants
            .observe_agent(&line)
            .expect("a line of JSON")
    }

    /// Waits for the answer to a request; returns it, and the updates before it.
    pub fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut updates = Vec::new();
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return (message, updates);
            }
            updates.push(message["params"]["update"].clone());
        }
    }

    /// Opens a session.
    pub fn open(&mut self) -> String {
        let cwd = self.project.cwd();
        self.request(1, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        self.answer(1).0["result"]["sessionId"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Sends a prompt to a session.
    pub fn prompt(&mut self, id: u64, session: &str, text: &str) {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request(
            id,
            "session/prompt",
            &json!({ "sessionId": session, "prompt": prompt }),
        );
    }

    /// Waits for an agent that was killed, without checking its exit.
    pub fn lost(mut self) -> Arc<Project> {
        self.editor.finish();
        self.project
    }

    /// Ends it, orderly; the project stays.
    pub fn leave(mut self) -> Arc<Project> {
        let exit = self.editor.finish();
        for line in &exit.lines {
            self.invariants.observe_agent(line);
        }
        let mut problems = exit.problems(0);
        problems.extend(self.invariants.problems().iter().cloned());
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
        self.project
    }
}
