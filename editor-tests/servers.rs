//! Tests of MCP servers that cannot be transcripts.

use std::net::TcpStream;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::client::Client;
use crate::loopback::Server;
use crate::mcp;
use crate::model::{self, Model};
use crate::program::{adjutant, stdout_of};
use crate::project::Project;
use crate::providers;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 4] = [
    (
        "server that does not read does not block the session",
        server_that_does_not_read_does_not_block_the_session,
    ),
    (
        "server that asks endlessly does not block the session",
        server_that_asks_endlessly_does_not_block_the_session,
    ),
    (
        "server behind a proxy is reached",
        server_behind_a_proxy_is_reached,
    ),
    (
        "server with the user's own authority is trusted",
        server_with_the_users_own_authority_is_trusted,
    ),
];

/// It answers until its tools are listed.
const SERVER: &str = r#"
for result in \
  '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"deaf","version":"1"}}' \
  '{"tools":[{"name":"tell","inputSchema":{"type":"object"}}]}'
do
  id=
  while [ -z "$id" ]; do
    read -r line
    case $line in *'"id":'*) id=${line#*'"id":'}; id=${id%%,*} ;; esac
  done
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
exec sleep 1000
"#;

/// A call that is larger than the pipe is never read to its end, and neither is the news that it
/// was cancelled. The turn ends all the same, and the session continues.
fn server_that_does_not_read_does_not_block_the_session() {
    let call = json!({ "words": "and on and on ".repeat(40 << 10) });
    let script = format!("call deaf_tell {call}\n---\ntext: Still here.");
    let model = Model::start(model::script(&script).unwrap());
    let project = Project::new();
    project.write("deaf.sh", SERVER);
    let server = json!({ "type": "local", "command": ["sh", "deaf.sh"] });
    project.provider(&model.base(), &json!({ "mcp": { "deaf": server } }));
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Tell it everything.");
    while !client.receive().to_string().contains("in_progress") {}
    client.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    assert_eq!(client.answer(2).0["result"]["stopReason"], "cancelled");
    client.prompt(3, &session, "Are you there?");
    assert_eq!(client.answer(3).0["result"]["stopReason"], "end_turn");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Answers a call with one question after the other.
const QUESTION_FLOOD_SERVER: &str = r#"
said() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  case $line in
  *'"method":"initialize"'*)
    said '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"nag","version":"1"}}' ;;
  *'"method":"tools/list"'*) said '{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}' ;;
  *'"method":"tools/call"'*)
    while printf '{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}\n'; do
      read -r line || exit
    done ;;
  esac
done
"#;

/// Asks a client without forms, which declines automatically; that does not extend the call's
/// timeout. The user gets one notice.
fn server_that_asks_endlessly_does_not_block_the_session() {
    let model = Model::start(
        model::script("call nag_ask {}\n---\nsees: did not answer\ntext: Enough.").unwrap(),
    );
    let project = Project::new();
    project.write("nag.sh", QUESTION_FLOOD_SERVER);
    let server = json!({ "type": "local", "command": ["sh", "nag.sh"] });
    project.provider(
        &model.base(),
        &json!({ "mcp": { "nag": server }, "experimental": { "mcp_timeout": 50 } }),
    );
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Ask it.");
    let (answer, updates) = client.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let notices = updates
        .iter()
        .filter(|update| update.to_string().contains("this editor cannot show"))
        .count();
    assert_eq!(notices, 1, "{updates:?}");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Returns the mock server's answer to a body: empty for a notification.
fn answer(server: &mcp::Server, body: &str) -> (u16, String) {
    struct NoClient;
    impl mcp::McpPeer for NoClient {
        fn tell(&mut self, _: &Value) {}
        fn ask(&mut self, _: &str, _: Value) -> Value {
            Value::Null
        }
    }
    let Ok(message) = serde_json::from_str(body) else {
        return (405, String::new());
    };
    server
        .answer(&message, "", &mut NoClient)
        .map_or((202, String::new()), |answer| (200, answer.to_string()))
}

const CALL: [&str; 6] = [
    "mcp",
    "call",
    "far",
    "say",
    r#"{"text":"hello"}"#,
    "--allow",
];

/// The user's proxy is on the way to a server elsewhere, and to no other.
fn server_behind_a_proxy_is_reached() {
    let server = mcp::Server::default();
    let proxy = Server::start(move |received| {
        let (status, body) = answer(&server, &received.body);
        (status, "content-type: application/json\r\n".into(), body)
    });
    let mut project = Project::new();
    project.set("http_proxy", Some(&proxy.base()));
    let entry = json!({ "type": "remote", "url": "http://far.example/mcp" });
    project.write(
        "~/.config/opencode/opencode.json",
        &json!({ "mcp": { "far": entry } }).to_string(),
    );
    assert_eq!(stdout_of(&project, &CALL), "hello\n");
    assert!(
        proxy
            .received()
            .iter()
            .all(|received| received.path() == "http://far.example/mcp")
    );
}

/// Checks that the user chooses the certificate authority: without it the failure is reported, with
/// it the server works.
fn server_with_the_users_own_authority_is_trusted() {
    let server = mcp::Server::default();
    let (address, stopped, authority) = providers::serve_with_own_authority(move |body| {
        let (status, body) = answer(&server, body);
        (status, "application/json", body)
    });
    let mut project = Project::new();
    project.write("~/authority.pem", &authority);
    let entry =
        json!({ "type": "remote", "url": format!("https://localhost:{}/mcp", address.port()) });
    project.write(
        "~/.config/opencode/opencode.json",
        &json!({ "mcp": { "far": entry } }).to_string(),
    );
    let refused = adjutant(&project, &CALL, "");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("it cannot be reached"),
        "{refused:?}"
    );
    for variable in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        let pem = project.path("~/authority.pem").display().to_string();
        project.set(variable, Some(&pem));
        assert_eq!(stdout_of(&project, &CALL), "hello\n", "{variable}");
        project.set(variable, None);
    }
    stopped.store(true, Ordering::Relaxed);
    TcpStream::connect(address).ok();
}
