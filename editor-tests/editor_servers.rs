//! MCP servers that live in a client: `mcpServers` of the type `acp`, whose `mcp/message` are
//! answered automatically by the mock server of `mcp.rs`.
//!
//! Their further tools: `hang` (no answer), `refuse` (the client refuses the request), `flood` (ten
//! thousand notifications before the answer). A server with the id `unknown` is given, but not
//! there.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::mcp::{McpPeer, Server};

/// The id of a server that the client gives and does not have.
const UNKNOWN: &str = "unknown";

const FURTHER_TOOLS: [&str; 3] = ["hang", "refuse", "flood"];

/// The servers of a client, by the ids that it gave them.
#[derive(Default)]
pub struct EditorServers {
    servers: BTreeMap<String, EditorServer>,
}

struct EditorServer {
    server: Server,
    /// The requests for changes of lists: the id of the client's protocol, and that of the request
    /// to the server.
    listening: Vec<(Value, Value)>,
}

/// The notifications of a server during a request.
#[derive(Default)]
struct Notifications(Vec<Value>);

impl McpPeer for Notifications {
    fn tell(&mut self, message: &Value) {
        self.0.push(message.clone());
    }

    fn ask(&mut self, _: &str, _: Value) -> Value {
        panic!("a server in a client sends no requests")
    }
}

impl EditorServers {
    /// Observes a message of the client: it may give a session servers.
    pub fn observe_client(&mut self, message: &Value) {
        let servers = message["params"]["mcpServers"].as_array();
        for server in servers.into_iter().flatten() {
            let id = server["serverId"].as_str().filter(|id| *id != UNKNOWN);
            if let ("acp", Some(id)) = (server["type"].as_str().unwrap_or_default(), id) {
                self.servers
                    .entry(id.to_owned())
                    .or_insert_with(|| EditorServer {
                        server: Server::modern(),
                        listening: Vec::new(),
                    });
            }
        }
    }

    /// Observes the cancellation of a request.
    pub fn cancelled(&mut self, id: &Value) {
        for server in self.servers.values_mut() {
            server.listening.retain(|(known, _)| known != id);
        }
    }

    /// Returns the client's messages that follow from a request to a server, without `jsonrpc`.
    pub fn answer(&mut self, id: &Value, params: &Value) -> Vec<Value> {
        let refused =
            |why: &str| vec![json!({ "id": id, "error": { "code": -33001, "message": why } })];
        let Some(server) = self
            .servers
            .get_mut(params["serverId"].as_str().unwrap_or_default())
        else {
            return refused("There is no such server");
        };
        let meta = &params["params"]["_meta"];
        if meta["io.modelcontextprotocol/protocolVersion"] != "2026-07-28"
            || !meta["io.modelcontextprotocol/clientCapabilities"].is_object()
        {
            let error = json!({ "code": -32602, "message": format!("the request lacks its context: {params}") });
            return vec![json!({ "id": id, "result": { "error": error } })];
        }
        let note = |request: &Value, method: &Value, inner: &Value| {
            let params = json!({ "serverId": params["serverId"], "requestId": request, "method": method, "params": inner });
            json!({ "method": "mcp/message", "params": params })
        };
        let request = &params["requestId"];
        let tool = match params["method"].as_str() {
            Some("subscriptions/listen") => {
                server.listening.push((id.clone(), request.clone()));
                let accepted = json!({ "notifications": params["params"]["notifications"] });
                return vec![note(
                    request,
                    &"notifications/subscriptions/acknowledged".into(),
                    &accepted,
                )];
            }
            Some("tools/call") => params["params"]["name"].as_str().unwrap_or_default(),
            _ => "",
        };
        if tool == "hang" {
            return Vec::new();
        }
        if tool == "refuse" {
            return refused("The server was removed");
        }
        let mut messages = Vec::new();
        if tool == "flood" {
            let inner = json!({ "level": "debug", "data": "x".repeat(1_000) });
            let log = note(request, &"notifications/message".into(), &inner);
            messages.extend(std::iter::repeat_n(log, 10_000));
            let result = json!({ "content": [{ "type": "text", "text": "flooded" }] });
            messages.push(json!({ "id": id, "result": { "result": result } }));
            return messages;
        }
        let message = json!({ "id": 1, "method": params["method"], "params": params["params"] });
        let mut notifications = Notifications::default();
        let Some(mut answer) = server.server.answer(&message, "", &mut notifications) else {
            return Vec::new();
        };
        for notification in notifications.0 {
            let is_change = notification["method"]
                .as_str()
                .is_some_and(|method| method.ends_with("list_changed"));
            if !is_change {
                messages.push(note(
                    request,
                    &notification["method"],
                    &notification["params"],
                ));
                continue;
            }
            for (_, listening) in &server.listening {
                let about =
                    json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": listening } });
                messages.push(note(listening, &notification["method"], &about));
            }
        }
        if params["method"] == "tools/list" {
            let tools = answer["result"]["tools"].as_array_mut().unwrap();
            let further = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
            tools.extend(FURTHER_TOOLS.map(further));
        }
        let members = answer.as_object_mut().unwrap();
        members.retain(|name, _| name == "result" || name == "error");
        messages.push(json!({ "id": id, "result": answer }));
        messages
    }
}
