//! A conversation without a page.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::editor::{Editor, PATIENCE};
use crate::laws::Laws;
use crate::project::Project;

/// Says things, hears answers, and watches the laws.
pub struct Talk {
    /// Where it happens. Several may happen there at once.
    pub project: Arc<Project>,
    /// The editor.
    pub editor: Editor,
    /// What is watched.
    pub laws: Laws,
}

impl Talk {
    /// Starts an agent in a project, and shakes hands.
    pub fn new(project: impl Into<Arc<Project>>) -> Self {
        let project = project.into();
        let editor = Editor::start(&project);
        Self::of(project, editor)
    }

    /// Shakes hands with an agent that was started.
    pub fn of(project: Arc<Project>, editor: Editor) -> Self {
        Self::shaking_hands(project, editor, &json!({}))
    }

    /// Starts an agent in a project, as an editor with these capabilities.
    pub fn capable(project: impl Into<Arc<Project>>, capabilities: &Value) -> Self {
        let project = project.into();
        let editor = Editor::start(&project);
        Self::shaking_hands(project, editor, capabilities)
    }

    fn shaking_hands(project: Arc<Project>, editor: Editor, capabilities: &Value) -> Self {
        let mut talk = Self { project, editor, laws: Laws::default() };
        talk.request(0, "initialize", &json!({ "protocolVersion": 1, "clientCapabilities": capabilities }));
        talk.answer(0);
        talk
    }

    /// Asks for something.
    pub fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// Says a message.
    pub fn say(&mut self, message: &Value) {
        let line = message.to_string();
        self.laws.editor_says(&line);
        self.editor.say(&line);
    }

    /// The next message.
    pub fn hear(&mut self) -> Value {
        let line = self.editor.hear(PATIENCE).expect("the agent says nothing any more");
        self.laws.agent_says(&line).expect("a line of JSON")
    }

    /// The answer to a request, and the updates before it.
    pub fn answer(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut updates = Vec::new();
        loop {
            let message = self.hear();
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
        self.answer(1).0["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    /// Says words to a session.
    pub fn prompt(&mut self, id: u64, session: &str, words: &str) {
        let prompt = json!([{ "type": "text", "text": words }]);
        self.request(id, "session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
    }

    /// Where the agent was killed: it leaves no farewell.
    pub fn lost(mut self) -> Arc<Project> {
        self.editor.finish();
        self.project
    }

    /// Ends it, orderly; the project stays.
    pub fn leave(mut self) -> Arc<Project> {
        let farewell = self.editor.finish();
        for line in &farewell.lines {
            self.laws.agent_says(line);
        }
        let mut problems = farewell.problems(0);
        problems.extend(self.laws.problems().iter().cloned());
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
        self.project
    }
}
