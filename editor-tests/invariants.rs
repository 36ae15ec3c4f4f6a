//! Invariants of every conversation, so that no transcript repeats them. They observe both
//! directions, and collect violations instead of panicking, so that a test shows all of them at
//! once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use agent_client_protocol_schema::v1;
use jsonschema::Validator;
use schemars::{Schema, schema_for};
use serde_json::{Value, json};

use crate::invariants_v2::{self, InvariantsV2};

/// The longest line an agent may write, in bytes: an editor with a 10 MiB reader died silently.
const MAX_AGENT_LINE_BYTES: usize = 1 << 20;

/// Schemas of the agent's messages: see [`agent_messages`].
static SCHEMAS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let mut schemas = agent_messages([
        schema_for!(v1::AgentRequest),
        schema_for!(v1::AgentNotification),
        schema_for!(v1::AgentResponse),
        schema_for!(v1::CancelRequestNotification),
        schema_for!(v1::Error),
    ]);
    // Commands run in process groups of adjutant.
    schemas.retain(|message, _| !message.starts_with("terminal/"));
    // ACP's schema no longer has this method.
    let empty = json!({ "type": "object", "additionalProperties": false });
    let empty = jsonschema::validator_for(&empty).unwrap();
    schemas.insert("-> session/set_model".to_owned(), empty);
    schemas
});

/// Returns the schemas of messages that an agent sends, from types that contain them: requests and
/// notifications by method, results by `-> ` and the method they answer, errors by `error`. ACP's
/// schema states the method of each type, and the side that has the method.
pub fn agent_messages(roots: [Schema; 5]) -> HashMap<String, Validator> {
    let mut found = HashMap::new();
    for root in roots {
        let root = root.to_value();
        let definitions = root.get("$defs").and_then(Value::as_object);
        let types = definitions.into_iter().flat_map(|types| types.values());
        for schema in types.chain([&root]) {
            let text = |key: &str| schema.get(key).and_then(Value::as_str);
            let message = match (text("x-side"), text("x-method"), text("title")) {
                (Some("agent"), Some(method), _) => format!("-> {method}"),
                (Some("client" | "protocol"), Some(method), _) => method.to_owned(),
                (None, None, Some("Error")) => "error".to_owned(),
                _ => continue,
            };
            let mut schema = schema.clone();
            schema["$defs"] = root.get("$defs").cloned().unwrap_or_default();
            found.insert(message, jsonschema::validator_for(&schema).unwrap());
        }
    }
    found
}

/// Updates that belong to a turn: they come between a prompt (or a load) and its response.
const OF_A_TURN: &[&str] = &[
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
];

/// The watcher of one connection, from the start of a process to its end.
#[derive(Default)]
pub struct Invariants {
    /// Requests of the editor that wait for an answer: id, method, params.
    pending: BTreeMap<String, (String, Value)>,
    /// Requests of the agent that wait for ours: id to method.
    asked: BTreeMap<String, String>,
    /// Capabilities of the client, from the handshake.
    capabilities: Value,
    sessions: BTreeSet<String>,
    /// MCP servers that live in the editor, by their ids.
    servers: BTreeSet<String>,
    /// Addresses that are open, by their ids.
    addresses: BTreeSet<String>,
    /// Subagents' sessions, and whose they are.
    children: BTreeMap<String, String>,
    /// The commands of each session, as they were sent last since it was opened.
    commands: BTreeMap<String, Value>,
    /// Sessions whose running turn has shown something to the client that waits for its end.
    answering: BTreeSet<String>,
    /// State of every call that was announced, per session.
    calls: BTreeMap<(String, String), String>,
    /// Terminals that were announced, per session.
    terminals: BTreeSet<(String, String)>,
    /// Number of ended turns by session, as far as they can be distinguished.
    turns: BTreeMap<String, usize>,
    /// Turn of each message, by session and message id.
    said: BTreeMap<(String, String), usize>,
    /// Version 2 is spoken.
    second: Option<InvariantsV2>,
    problems: Vec<String>,
}

impl Invariants {
    /// Observes a line of the client. Lines that are not JSON-RPC are covered by `wire.rs`.
    pub fn observe_client(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let Some(method) = message["method"].as_str() else {
            self.asked.remove(&message["id"].to_string());
            return;
        };
        if method == "initialize" {
            let said =
                ["clientCapabilities", "capabilities"].map(|name| message["params"][name].clone());
            self.capabilities = said
                .into_iter()
                .find(|said| !said.is_null())
                .unwrap_or_default();
        }
        if matches!(method, "session/load" | "session/resume")
            && let Some(session) = message["params"]["sessionId"].as_str()
        {
            self.sessions.insert(session.into());
            // A subagent's session that the client opens no longer depends on its parent's turn.
            self.children.remove(session);
        }
        let servers = message["params"]["mcpServers"].as_array();
        for server in servers.into_iter().flatten() {
            if server["type"] == "acp"
                && let Some(id) = server["serverId"].as_str()
            {
                self.servers.insert(id.into());
            }
        }
        if let Some(id) = message.get("id") {
            self.pending
                .insert(id.to_string(), (method.into(), message["params"].clone()));
        }
    }

    /// Observes a line of the agent and returns it parsed.
    pub fn observe_agent(&mut self, line: &str) -> Option<Value> {
        if line.len() > MAX_AGENT_LINE_BYTES {
            self.wrong(format!("a line of {} bytes", line.len()));
        }
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            self.wrong(format!("not JSON: {line}"));
            return None;
        };
        if message["jsonrpc"] != "2.0" {
            self.wrong(format!("not JSON-RPC 2.0: {line}"));
        }
        match message["method"].as_str() {
            Some(method) => self.call(&message, method, line),
            None => self.answer(&message, line),
        }
        Some(message)
    }

    /// Returns whether the client waits for a response.
    pub fn waiting(&self) -> bool {
        !self.pending.is_empty() || self.second.as_ref().is_some_and(InvariantsV2::works)
    }

    /// Returns the requests the editor still waits for.
    pub fn waiting_for(&self) -> Vec<String> {
        self.pending
            .iter()
            .map(|(id, (method, _))| format!("{method} ({id})"))
            .collect()
    }

    /// Returns the violations so far.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    fn wrong(&mut self, what: impl Into<String>) {
        self.problems.push(what.into());
    }

    fn call(&mut self, message: &Value, method: &str, line: &str) {
        self.check(method, &message["params"], line);
        if let Some(id) = message.get("id")
            && self.asked.insert(id.to_string(), method.into()).is_some()
        {
            self.wrong(format!("the id {id} is used twice: {line}"));
        }
        let params = &message["params"];
        if let Some(address) = params["elicitationId"].as_str() {
            // One that was shown is done with once.
            let fits = match method {
                "elicitation/complete" => self.addresses.remove(address),
                _ => self.addresses.insert(address.to_owned()),
            };
            if !fits {
                self.wrong(format!(
                    "the address {address} is not one that is open: {line}"
                ));
            }
            if method == "elicitation/complete" {
                return;
            }
        }
        // These are about the connection, not a session.
        if method == "auth/status_update" {
            return;
        }
        if method == "mcp/message" {
            let server = params["serverId"].as_str().unwrap_or_default();
            if !self.servers.contains(server) {
                self.wrong(format!("the editor gave no such server: {line}"));
            }
            return;
        }
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        if method != "$/cancel_request" && !self.sessions.contains(&session) {
            self.wrong(format!(
                "about a session the editor has not heard of yet: {line}"
            ));
        }
        let update = &params["update"];
        if update["sessionUpdate"] == "subagent_update"
            && let Some(child) = update["sessionId"].as_str()
        {
            // From this point on it may be heard of, as long as its parent's turn runs.
            self.sessions.insert(child.into());
            self.children.insert(child.into(), session.clone());
        }
        let root = self.root(&session).to_owned();
        if method == "session/update" {
            self.command_list(&session, &root, update, line);
        }
        if let Some(second) = &mut self.second {
            let replays = |(method, of): &(String, Value)| {
                method == "session/resume" && of["sessionId"] == root
            };
            let replays = self.pending.values().any(replays);
            let judged = match method {
                "session/update" => second.update((&session, &root), update, replays),
                "session/request_permission" => second.permission(&session, params),
                "elicitation/create"
                    if self.capabilities["elicitation"]
                        [params["mode"].as_str().unwrap_or("form")]
                    .is_null() =>
                {
                    Err("the editor did not offer this".into())
                }
                "elicitation/create" | "$/cancel_request" => Ok(()),
                _ => Err(format!("{method} is not something this editor offers")),
            };
            if let Err(what) = judged {
                self.wrong(format!("{what}: {line}"));
            }
            if method == "session/request_permission" {
                self.options(params, line);
            }
            return;
        }
        match method {
            "session/update" => self.update(&session, &params["update"], line),
            "session/request_permission" => self.permission(&session, params, line),
            "elicitation/create"
                if self.capabilities["elicitation"][params["mode"].as_str().unwrap_or("form")]
                    .is_null() =>
            {
                self.wrong(format!("the editor did not offer this: {line}"));
            }
            "fs/read_text_file" if !self.offers_files("readTextFile") => {
                self.wrong(format!("the editor did not offer {method}: {line}"));
            }
            "fs/write_text_file" if !self.offers_files("writeTextFile") => {
                self.wrong(format!("the editor did not offer {method}: {line}"));
            }
            "fs/read_text_file" | "fs/write_text_file" | "elicitation/create"
            | "$/cancel_request" => {}
            _ => self.wrong(format!(
                "{method} is not something this editor offers: {line}"
            )),
        }
    }

    /// Returns whether the client offers an operation on files.
    fn offers_files(&self, operation: &str) -> bool {
        self.capabilities["fs"][operation] == true
    }

    /// Checks that a list of commands is new and does not interrupt an answer, in both versions.
    fn command_list(&mut self, session: &str, root: &str, update: &Value, line: &str) {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        let answers = match &self.second {
            Some(second) => second.is_running(root),
            None => self.answering.contains(root),
        };
        if kind == "available_commands_update" {
            let sent = update["availableCommands"].clone();
            if self.commands.insert(session.into(), sent.clone()) == Some(sent) {
                self.wrong(format!("the editor has these commands: {line}"));
            }
            if answers {
                self.wrong(format!("a list of commands within an answer: {line}"));
            }
        }
        let prompted = self
            .pending
            .values()
            .any(|(method, params)| method == "session/prompt" && params["sessionId"] == root);
        if OF_A_TURN.contains(&kind) && prompted && !self.loading(session) {
            self.answering.insert(root.into());
        }
    }

    fn update(&mut self, session: &str, update: &Value, line: &str) {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        let speaks = self.root(session);
        let in_turn = self.pending.values().any(|(method, params)| {
            matches!(method.as_str(), "session/prompt" | "session/load")
                && params["sessionId"] == speaks
        });
        let turn = self.turns.get(speaks).copied().unwrap_or_default();
        if OF_A_TURN.contains(&kind) && !in_turn {
            self.wrong(format!("a turn speaks after its response: {line}"));
        }
        if matches!(kind, "agent_message_chunk" | "agent_thought_chunk")
            && !self.loading(session)
            && let Some(message) = update["messageId"].as_str()
            && *self
                .said
                .entry((session.into(), message.into()))
                .or_insert(turn)
                != turn
        {
            self.wrong(format!(
                "a message has the id of one of an earlier turn: {line}"
            ));
        }
        if matches!(kind, "subagent_update" | "session_message")
            && self.capabilities["subagents"].is_null()
        {
            self.wrong(format!("the editor knows no subagents: {line}"));
        }
        for member in ["rawInput", "rawOutput"] {
            if update.get(member).is_some_and(|value| !value.is_object()) {
                self.wrong(format!("{member} is no object: {line}"));
            }
        }
        for content in update["content"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|c| c["type"] == "diff")
        {
            if !content["path"]
                .as_str()
                .is_some_and(|path| path.starts_with('/'))
                || content.get("oldText").is_none()
            {
                self.wrong(format!(
                    "a diff wants an absolute path and an oldText: {line}"
                ));
            }
        }
        self.terminals(session, update, line);
        let Some(call) = update["toolCallId"].as_str() else {
            return;
        };
        let key = (session.to_owned(), call.to_owned());
        let status = update["status"].as_str();
        match (kind, self.calls.get(&key).map(String::as_str)) {
            // A load tells the whole story again, under the same names.
            ("tool_call", Some(_)) if !self.loading(session) => {
                self.wrong(format!("a call is announced twice: {line}"))
            }
            ("tool_call", _) => drop(self.calls.insert(key, status.unwrap_or("pending").into())),
            (_, None) => self.wrong(format!(
                "an update of a call that was never announced: {line}"
            )),
            (_, Some("completed" | "failed"))
                if status.is_some_and(|s| s == "pending" || s == "in_progress") =>
            {
                self.wrong(format!("a call that had ended goes on: {line}"));
            }
            (_, Some(_)) => {
                if let Some(status) = status {
                    self.calls.insert(key, status.into());
                }
            }
        }
    }

    /// Checks that an update uses only terminals that the editor has.
    fn terminals(&mut self, session: &str, update: &Value, line: &str) {
        let meta = &update["_meta"];
        if let Some(new) = meta["terminal_info"]["terminal_id"].as_str() {
            self.terminals.insert((session.into(), new.into()));
        }
        let content = update["content"].as_array().into_iter().flatten();
        let shown = content.filter_map(|content| content["terminalId"].as_str());
        let changed = ["terminal_output", "terminal_exit"]
            .iter()
            .filter_map(|key| meta[key]["terminal_id"].as_str());
        for terminal in shown.chain(changed) {
            let key = (session.to_owned(), terminal.to_owned());
            if !self.terminals.contains(&key) {
                self.wrong(format!("a terminal that was never announced: {line}"));
            }
        }
    }

    /// Returns the session that a subagent works for in the end.
    fn root<'a>(&'a self, mut session: &'a str) -> &'a str {
        while let Some(parent) = self.children.get(session) {
            session = parent;
        }
        session
    }

    fn loading(&self, session: &str) -> bool {
        let speaks = self.root(session);
        self.pending
            .values()
            .any(|(method, params)| method == "session/load" && params["sessionId"] == speaks)
    }

    fn permission(&mut self, session: &str, params: &Value, line: &str) {
        let call = &params["toolCall"];
        let key = (
            session.to_owned(),
            call["toolCallId"].as_str().unwrap_or_default().to_owned(),
        );
        if !self.calls.contains_key(&key) {
            self.wrong(format!(
                "permission is asked for a call that was never announced: {line}"
            ));
        }
        if ["title", "kind", "rawInput"]
            .iter()
            .any(|member| call[member].is_null())
        {
            self.wrong(format!(
                "a permission request wants title, kind and rawInput: {line}"
            ));
        }
        self.options(params, line);
    }

    /// Checks that there is one option per kind, one to allow and one to reject.
    fn options(&mut self, params: &Value, line: &str) {
        let kinds: Vec<&str> = params["options"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|o| o["kind"].as_str())
            .collect();
        // Answers to a question are all for this once.
        let once = kinds.iter().filter(|kind| **kind == "allow_once").count();
        let others: Vec<_> = kinds.iter().filter(|kind| **kind != "allow_once").collect();
        let distinct: BTreeSet<_> = others.iter().collect();
        let apart =
            distinct.len() == others.len() && (once < 2 || !kinds.contains(&"allow_always"));
        // A stored answer is not an answer for this call only.
        let yes = kinds
            .iter()
            .any(|kind| matches!(*kind, "allow_once" | "allow_always"));
        if !apart || !yes || !kinds.contains(&"reject_once") {
            self.wrong(format!(
                "one option per kind, and a way to say yes and no: {line}"
            ));
        }
    }

    fn answer(&mut self, message: &Value, line: &str) {
        let id = message["id"].to_string();
        let result = message.get("result");
        let error = message.get("error");
        if result.is_some() == error.is_some() {
            self.wrong(format!("exactly one of result and error: {line}"));
        }
        if let Some(error) = error {
            self.error(error, line);
        }
        let Some((method, params)) = self.pending.remove(&id) else {
            if id != "null" {
                self.wrong(format!("an answer to no request: {line}"));
            }
            return;
        };
        if matches!(method.as_str(), "session/load" | "session/resume") {
            self.commands
                .remove(params["sessionId"].as_str().unwrap_or_default());
        }
        if let Some(result) = result {
            if method == "initialize" && result["protocolVersion"] == 2 {
                self.second.get_or_insert_default();
            }
            let of = params["sessionId"].as_str().unwrap_or_default();
            let judged = match (&mut self.second, method.as_str()) {
                (Some(second), "session/prompt") => {
                    second.inserted(of);
                    Ok(())
                }
                (Some(second), "session/resume") => {
                    second.resumed(of, !params["replayFrom"].is_null())
                }
                _ => Ok(()),
            };
            if let Err(what) = judged {
                self.wrong(format!("{what}: {line}"));
            }
            self.check(&format!("-> {method}"), result, line);
            if let Some(session) = result["sessionId"].as_str() {
                self.sessions.insert(session.into());
            }
            let commands = &result["availableCommands"];
            if !commands.is_null() {
                let session = result["sessionId"].as_str().unwrap_or(of);
                self.commands.insert(session.into(), commands.clone());
            }
        }
        if method == "session/prompt" && self.second.is_none() {
            let session = params["sessionId"].as_str().unwrap_or_default();
            self.answering.remove(session);
            let open: Vec<_> = self
                .calls
                .iter()
                .filter(|((s, _), status)| {
                    s == session && matches!(status.as_str(), "pending" | "in_progress")
                })
                .map(|((_, call), status)| format!("{call} is {status}"))
                .collect();
            let another = self
                .pending
                .values()
                .any(|(m, p)| m == "session/prompt" && p["sessionId"] == session);
            if !another {
                *self.turns.entry(session.into()).or_default() += 1;
            }
            // A prompt that was cancelled before its session was loaded has ended no turn.
            if !open.is_empty() && !another && !self.loading(session) {
                self.wrong(format!(
                    "calls are left open at the end of the turn: {open:?}"
                ));
            }
        }
    }

    fn error(&mut self, error: &Value, line: &str) {
        self.check("error", error, line);
        let message = error["message"].as_str().unwrap_or_default();
        if message.trim().is_empty() || message.contains('\n') {
            self.wrong(format!("an error message is one line: {line}"));
        }
        let extra = error["data"]
            .as_object()
            .into_iter()
            .flatten()
            .find(|(key, _)| {
                let known = match error["code"].as_i64() {
                    Some(-32002) => *key == "sessionId",
                    Some(-32022) => *key == "requested" || *key == "supported",
                    _ => false,
                };
                !(*key == "details" || known)
            });
        if extra.is_some() {
            self.wrong(format!("an error's data holds `details` only: {line}"));
        }
    }

    fn check(&mut self, what: &str, value: &Value, line: &str) {
        let schemas = if self.second.is_some() {
            &invariants_v2::SCHEMAS
        } else {
            &SCHEMAS
        };
        let Some(schema) = schemas.get(what) else {
            // An answer to something that is not ACP is an error, never a result.
            self.wrong(format!("no schema for {what}: {line}"));
            return;
        };
        let errors: Vec<_> = schema
            .iter_errors(value)
            .map(|e| format!("{} at {}", e, e.instance_path()))
            .collect();
        if !errors.is_empty() {
            self.wrong(format!(
                "it does not fit the schema of {what}: {errors:?}: {line}"
            ));
        }
    }
}
