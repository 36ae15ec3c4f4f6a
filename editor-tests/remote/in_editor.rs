//! MCP servers that live in an editor on another machine.

use serde_json::{Value, json};

use super::socket::Socket;
use super::{Served, model_that, words};
use crate::editor_servers::EditorServers;

/// An editor with a server in it, which answers the requests to it.
struct ServingEditor {
    socket: Socket,
    servers: EditorServers,
    received: Vec<Value>,
}

impl ServingEditor {
    fn connect(address: &str) -> Self {
        let mut socket = Socket::open(address);
        socket.hello();
        Self {
            socket,
            servers: EditorServers::default(),
            received: Vec::new(),
        }
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.servers.observe_client(&json!({ "params": params }));
        self.socket.request(id, method, params);
    }

    /// Receives messages until one fits, and returns it.
    fn receive_until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.socket.receive();
            if message["method"] == "mcp/message" {
                for mut reply in self.servers.answer(&message["id"], &message["params"]) {
                    reply["jsonrpc"] = "2.0".into();
                    self.socket.send(&reply);
                }
            }
            self.received.push(message.clone());
            if fits(&message) {
                return message;
            }
        }
    }

    fn answer(&mut self, id: u64) -> Value {
        self.receive_until(|message| message["id"] == id && message.get("method").is_none())
    }
}

pub(super) fn mcp_server_in_an_editor_ends_and_returns_with_it() {
    let script = r#"call mine_hang {}
---
sees: The connection to the MCP server mine broke
text: Noticed.
---
call mine_say {"text":"back"}
---
sees: back
text: Said."#;
    let (project, model) = model_that(script);
    let served = Served::start(&project, &[]);
    let servers = json!([{ "type": "acp", "name": "mine", "serverId": "s-1" }]);
    let mut first = ServingEditor::connect(&served.address);
    let params = json!({ "cwd": project.cwd(), "mcpServers": servers });
    first.request(1, "session/new", &params);
    let opened = first.answer(1);
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    first.socket.prompt(2, &session, "Wait.");
    first.receive_until(|message| message["params"]["params"]["name"] == "hang");
    drop(first);
    let mut second = ServingEditor::connect(&served.address);
    let params = json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": servers });
    second.request(3, "session/load", &params);
    let loaded = second.answer(3);
    assert!(loaded.get("result").is_some(), "{loaded}");
    // The turn ends without an editor, or is shown here.
    while !words(&second.received).contains("Noticed.") {
        second.receive_until(|message| message["method"] == "session/update");
    }
    second.socket.prompt(4, &session, "Go on.");
    let answered = second.answer(4);
    assert_eq!(answered["result"]["stopReason"], "end_turn", "{answered}");
    assert!(words(&second.received).contains("Said."));
    assert_eq!(model.problems(), Vec::<String>::new());
}
