//! What a page cannot say about MCP servers.

use serde_json::json;

use crate::model::{self, Model};
use crate::project::Project;
use crate::talk::Talk;

/// Names, and what to do.
pub const ALL: [(&str, fn()); 1] = [("a server that does not read", does_not_read)];

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
