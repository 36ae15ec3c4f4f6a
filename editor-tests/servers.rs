//! What a page cannot say about MCP servers.

use std::net::TcpStream;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::loopback::Server;
use crate::mcp;
use crate::model::{self, Model};
use crate::program::{adjutant, says};
use crate::project::Project;
use crate::providers;
use crate::talk::Talk;

/// Names, and what to do.
pub const ALL: [(&str, fn()); 4] = [
    ("a server that does not read", does_not_read),
    ("a server that asks without end", asks_without_end),
    ("a server behind a proxy", behind_a_proxy),
    ("a server whose authority is the user's own", vouched_for),
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

/// A call that is larger than the pipe is never read to its end, and neither is the news that it was
/// cancelled. The turn ends all the same, and the session goes on.
fn does_not_read() {
    let call = json!({ "words": "and on and on ".repeat(40 << 10) });
    let script = format!("call deaf_tell {call}\n---\ntext: Still here.");
    let model = Model::start(model::script(&script).unwrap());
    let project = Project::new();
    project.write("deaf.sh", SERVER);
    let server = json!({ "type": "local", "command": ["sh", "deaf.sh"] });
    project.provider(&model.base(), &json!({ "mcp": { "deaf": server } }));
    let mut talk = Talk::new(project);
    let session = talk.open();
    talk.prompt(2, &session, "Tell it everything.");
    while !talk.hear().to_string().contains("in_progress") {}
    talk.say(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    assert_eq!(talk.answer(2).0["result"]["stopReason"], "cancelled");
    talk.prompt(3, &session, "Are you there?");
    assert_eq!(talk.answer(3).0["result"]["stopReason"], "end_turn");
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Answers a call with one question after the other.
const NAGS: &str = r#"
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

/// An editor without forms declines by itself, and that gains the call no time. It is told once.
fn asks_without_end() {
    let model = Model::start(model::script("call nag_ask {}\n---\nsees: did not answer\ntext: Enough.").unwrap());
    let project = Project::new();
    project.write("nag.sh", NAGS);
    let server = json!({ "type": "local", "command": ["sh", "nag.sh"] });
    project.provider(&model.base(), &json!({ "mcp": { "nag": server }, "experimental": { "mcp_timeout": 50 } }));
    let mut talk = Talk::new(project);
    let session = talk.open();
    talk.prompt(2, &session, "Ask it.");
    let (answer, updates) = talk.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let told = updates.iter().filter(|update| update.to_string().contains("this editor cannot show")).count();
    assert_eq!(told, 1, "{updates:?}");
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// What the pretended server answers to a body: nothing to a notification.
fn answer(server: &mcp::Server, body: &str) -> (u16, String) {
    struct Nobody;
    impl mcp::Other for Nobody {
        fn tell(&mut self, _: &Value) {}
        fn ask(&mut self, _: &str, _: Value) -> Value {
            Value::Null
        }
    }
    let Ok(message) = serde_json::from_str(body) else { return (405, String::new()) };
    server.answer(&message, "", &mut Nobody).map_or((202, String::new()), |answer| (200, answer.to_string()))
}

const CALL: [&str; 6] = ["mcp", "call", "far", "say", r#"{"text":"hello"}"#, "--allow"];

/// The user's proxy is on the way to a server elsewhere, and to no other.
fn behind_a_proxy() {
    let server = mcp::Server::default();
    let proxy = Server::start(move |heard| {
        let (status, body) = answer(&server, &heard.body);
        (status, "content-type: application/json\r\n".into(), body)
    });
    let mut project = Project::new();
    project.set("http_proxy", Some(&proxy.base()));
    let entry = json!({ "type": "remote", "url": "http://far.example/mcp" });
    project.write("~/.config/opencode/opencode.json", &json!({ "mcp": { "far": entry } }).to_string());
    assert_eq!(says(&project, &CALL), "hello\n");
    assert!(proxy.heard().iter().all(|heard| heard.path() == "http://far.example/mcp"));
}

/// Who vouches for a server is the user's choice: without it, it is told, with it, it works.
fn vouched_for() {
    let server = mcp::Server::default();
    let (address, stopped, authority) = providers::vouched(move |body| {
        let (status, body) = answer(&server, body);
        (status, "application/json", body)
    });
    let mut project = Project::new();
    project.write("~/authority.pem", &authority);
    let entry = json!({ "type": "remote", "url": format!("https://localhost:{}/mcp", address.port()) });
    project.write("~/.config/opencode/opencode.json", &json!({ "mcp": { "far": entry } }).to_string());
    let refused = adjutant(&project, &CALL, "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("it cannot be reached"), "{refused:?}");
    for variable in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        let pem = project.path("~/authority.pem").display().to_string();
        project.set(variable, Some(&pem));
        assert_eq!(says(&project, &CALL), "hello\n", "{variable}");
        project.set(variable, None);
    }
    stopped.store(true, Ordering::Relaxed);
    TcpStream::connect(address).ok();
}
