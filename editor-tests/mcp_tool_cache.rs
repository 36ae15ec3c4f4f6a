//! Cached tools of an MCP server, offered from its last start until it is ready: the first request
//! of a process has them, and a call waits for the server.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::Client;
use crate::model::{self, Answer, Model};
use crate::program::{adjutant, stdout_of};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 8] = [
    (
        "tools of the last start are offered at once",
        tools_of_the_last_start_are_offered_at_once,
    ),
    (
        "client's server is recognised",
        clients_server_is_recognised,
    ),
    (
        "changed list applies from the next turn",
        changed_list_applies_from_the_next_turn,
    ),
    ("failed server fails the call", failed_server_fails_the_call),
    (
        "different entry has no cached tools",
        different_entry_has_no_cached_tools,
    ),
    (
        "project without trust has no cached tools",
        project_without_trust_has_no_cached_tools,
    ),
    ("damaged list is ignored", damaged_list_is_ignored),
    (
        "list changed by a call applies from the next step",
        list_changed_by_a_call_applies_from_the_next_step,
    ),
];

/// A server that waits for a line from the pipe `gate`, if there is one. Its tools are in
/// `tools.txt`.
const SERVER: &str = r#"
[ -p gate ] && read -r word <gate
[ "$word" = die ] && { echo "out of order" >&2; exit 1; }
said() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  case $line in
  *'"method":"initialize"'*)
    said '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"prompts":{}},"serverInfo":{"name":"notes","version":"1"},"instructions":"Notes are short."}' ;;
  *'"method":"tools/list"'*) said "{\"tools\":[$(cat tools.txt)]}" ;;
  *'"method":"prompts/list"'*) said '{"prompts":[{"name":"greet"}]}' ;;
  *'"name":"learn"'*)
    cp learnt.txt tools.txt
    printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
    said '{"content":[{"type":"text","text":"Learnt."}]}' ;;
  *'"method":"tools/call"'*) said '{"content":[{"type":"text","text":"Buy milk."}]}' ;;
  esac
done
"#;

/// Not in the order of their names.
const TOOLS: &str = concat!(
    r#"{"name":"learn","inputSchema":{"type":"object"}},{"name":"find","description":"Finds a note.","#,
    r#""inputSchema":{"type":"object","properties":{"word":{"type":"string"},"at":{"type":"number","minimum":0.5}}},"#,
    r#""annotations":{"readOnlyHint":true}}"#
);

const OTHER_TOOLS: &str = r#"{"name":"learn","inputSchema":{"type":"object"}},{"name":"list","inputSchema":{"type":"object"}}"#;

/// Returns a model that follows a script, and its requests.
fn recorded(script: &str) -> (Model, Arc<Mutex<Vec<Value>>>) {
    let mut answers = model::script(script).unwrap().into_iter();
    let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
    let asked = requests.clone();
    let model = Model::answering_with(move |body| -> Vec<Answer> {
        asked.lock().unwrap().push(body.clone());
        answers.next().into_iter().collect()
    });
    (model, requests)
}

fn entry(more: &[&str]) -> Value {
    let command: Vec<&str> = ["sh", "server.sh"].iter().chain(more).copied().collect();
    json!({ "notes": { "type": "local", "command": command } })
}

/// Returns a project whose user has the server in their settings.
fn project(model: &Model) -> Project {
    let project = Project::new();
    project.write("server.sh", SERVER);
    project.write("tools.txt", TOOLS);
    project.provider(&model.base(), &json!({ "mcp": entry(&[]) }));
    project
}

fn begin(project: impl Into<Arc<Project>>) -> Client {
    Client::capable(project, &json!({ "session": { "notices": {} } }))
}

/// Runs a turn and returns its notices.
fn turn(client: &mut Client, id: u64, session: &str) -> Vec<Value> {
    client.prompt(id, session, "Go on.");
    ended(client, id)
}

fn ended(client: &mut Client, id: u64) -> Vec<Value> {
    let (answer, updates) = client.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    updates
}

fn until(client: &mut Client, text: &str) {
    while !client.receive().to_string().contains(text) {}
}

/// Answers the question whether the project is trusted.
fn trust(client: &mut Client, option: &str) {
    loop {
        let message = client.receive();
        if message["method"] == "session/request_permission" {
            let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
            client.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": outcome }));
            return;
        }
    }
}

/// Makes the server wait until the gate is opened.
fn close_gate(project: &Project) {
    project.shell("mkfifo gate");
}

/// Lets the one server continue that waits.
fn open_gate(project: &Project, word: &str) {
    project.write("gate", &format!("{word}\n"));
    project.shell("rm gate");
}

fn lists(project: &Project) -> Vec<PathBuf> {
    let directory = project.path("~/.local/share/adjutant/mcp-lists");
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

fn unheard(model: &Model) {
    assert_eq!(model.problems(), Vec::<String>::new());
}

const FIND: &str = r#"has: "name":"notes_find"
text: Hello.
---
has: "name":"notes_find"
call notes_find {"word":"milk"}
---
sees: Buy milk.
text: There it is."#;

fn tools_of_the_last_start_are_offered_at_once() {
    let (model, requests) = recorded(FIND);
    let mut client = begin(project(&model));
    let session = client.open();
    turn(&mut client, 2, &session);
    let project = client.leave();
    close_gate(&project);
    let mut client = begin(project.clone());
    let session = client.open();
    until(&mut client, "notes:greet");
    client.prompt(2, &session, "Go on.");
    until(&mut client, "in_progress");
    open_gate(&project, "go");
    ended(&mut client, 2);
    client.leave();
    unheard(&model);
    // Sessions differ in their mark and directory; otherwise their prompts are equal.
    let of = |request: &Value| {
        let prompt_text = request["messages"][0].to_string();
        let prompt_text = prompt_text
            .split_once("<mcp_instructions>")
            .expect("instructions of servers")
            .1
            .split("mark=")
            .next()
            .expect("the text before the mark")
            .to_owned();
        (request["tools"].to_string(), prompt_text)
    };
    let requests = requests.lock().unwrap();
    let (tools, prompt_text) = of(&requests[0]);
    assert!(
        tools.contains("Finds a note.") && prompt_text.contains("Notes are short."),
        "{prompt_text} {tools}"
    );
    for request in &requests[1..] {
        assert_eq!((tools.clone(), prompt_text.clone()), of(request));
    }
    let [list] = &lists(&project)[..] else {
        panic!("{:?}", lists(&project))
    };
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(list), mode(list.parent().unwrap())), (0o600, 0o700));
}

fn clients_server_is_recognised() {
    let (model, _) = recorded(FIND);
    let project = project(&model);
    project.provider(&model.base(), &json!({}));
    let open = |client: &mut Client, key: &str| {
        let script = client.project.path("server.sh");
        let server = json!({ "name": "notes", "command": "/bin/sh", "args": [script], "env": [{ "name": "KEY", "value": key }] });
        let cwd = client.project.cwd();
        client.request(
            1,
            "session/new",
            &json!({ "cwd": cwd, "mcpServers": [server] }),
        );
        client.answer(1).0["result"]["sessionId"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let mut client = begin(project);
    let session = open(&mut client, "secret-1");
    turn(&mut client, 2, &session);
    let project = client.leave();
    close_gate(&project);
    let mut client = begin(project.clone());
    let session = open(&mut client, "secret-2");
    client.prompt(2, &session, "Go on.");
    until(&mut client, "in_progress");
    open_gate(&project, "go");
    ended(&mut client, 2);
    client.leave();
    unheard(&model);
    let list = std::fs::read_to_string(&lists(&project)[0]).unwrap();
    assert!(
        !list.contains("secret") && !list.contains("server.sh"),
        "{list}"
    );
}

fn changed_list_applies_from_the_next_turn() {
    let (model, _) = recorded(
        r#"text: Hello.
---
has: "name":"notes_find"
has not: "name":"notes_list"
call notes_find {}
---
sees: The MCP server notes no longer has a tool "find"; nothing was called.
text: It has none.
---
begins anew
has not: Finds a note.
has: "name":"notes_list"
call notes_list {}
---
sees: Buy milk.
text: There it is."#,
    );
    let mut client = begin(project(&model));
    let session = client.open();
    turn(&mut client, 2, &session);
    let project = client.leave();
    project.write("tools.txt", OTHER_TOOLS);
    close_gate(&project);
    let mut client = begin(project.clone());
    let session = client.open();
    client.prompt(2, &session, "Go on.");
    until(&mut client, "in_progress");
    open_gate(&project, "go");
    let notices = |updates: &[Value]| {
        updates
            .iter()
            .filter(|update| update.to_string().contains("have changed"))
            .count()
    };
    assert_eq!(notices(&ended(&mut client, 2)), 0);
    let updates = turn(&mut client, 3, &session);
    let notice = updates
        .iter()
        .find(|update| update["sessionUpdate"] == "notice")
        .expect("a notice");
    assert_eq!(
        notice["title"],
        "The tools of the MCP server notes have changed: 1 new, 1 gone."
    );
    assert_eq!(notice["description"], "New: list. Gone: find.");
    assert_eq!(notices(&updates), 1);
    client.leave();
    unheard(&model);
}

fn failed_server_fails_the_call() {
    let (model, _) = recorded(
        r#"text: Hello.
---
has: "name":"notes_find"
call notes_find {}
---
sees: The MCP server notes does not work: it ended before it had answered (it wrote: out of order)
has: Finds a note.
text: It does not work.
---
begins anew
has not: Finds a note.
sees: so none of its tools are available
text: It still does not."#,
    );
    let mut client = begin(project(&model));
    let session = client.open();
    turn(&mut client, 2, &session);
    let project = client.leave();
    close_gate(&project);
    let mut client = begin(project.clone());
    let session = client.open();
    client.prompt(2, &session, "Go on.");
    until(&mut client, "in_progress");
    open_gate(&project, "die");
    ended(&mut client, 2);
    turn(&mut client, 3, &session);
    client.leave();
    unheard(&model);
    project.write("server.sh", "exit 1");
    let listed = adjutant(&project, &["mcp"], "");
    assert!(
        String::from_utf8_lossy(&listed.stdout).contains("\nnotes  failed  "),
        "{listed:?}"
    );
}

fn different_entry_has_no_cached_tools() {
    let (model, _) = recorded(
        r#"has: "name":"notes_find"
text: Hello.
---
has not: "name":"notes_find"
text: Another command.
---
has not: "name":"notes_find"
text: Switched off.
---
has: "name":"notes_find"
text: As it was."#,
    );
    let mut client = begin(project(&model));
    let session = client.open();
    turn(&mut client, 2, &session);
    let project = client.leave();
    close_gate(&project);
    let mut off = entry(&[]);
    off["notes"]["enabled"] = json!(false);
    for entry in [entry(&["more"]), off, entry(&[])] {
        project.provider(&model.base(), &json!({ "mcp": entry }));
        let mut client = begin(project.clone());
        let session = client.open();
        turn(&mut client, 2, &session);
        client.leave();
    }
    unheard(&model);
}

fn project_without_trust_has_no_cached_tools() {
    let (model, _) = recorded(
        r#"has: "name":"notes_find"
text: Hello.
---
has not: "name":"notes_find"
text: Without.
---
has: "name":"notes_find"
text: With."#,
    );
    let project = project(&model);
    project.provider(&model.base(), &json!({}));
    project.write("opencode.json", &json!({ "mcp": entry(&[]) }).to_string());
    let mut client = begin(project);
    let session = client.open();
    client.prompt(2, &session, "Go on.");
    trust(&mut client, "yes");
    ended(&mut client, 2);
    let mut project = client.leave();
    close_gate(&project);
    for answer in ["no", "yes"] {
        stdout_of(&project, &["trust", "--revoke"]);
        let mut client = begin(project);
        let session = client.open();
        client.prompt(2, &session, "Go on.");
        trust(&mut client, answer);
        ended(&mut client, 2);
        project = client.leave();
    }
    unheard(&model);
}

fn damaged_list_is_ignored() {
    let (model, _) = recorded(
        r#"has: "name":"notes_find"
text: Hello.
---
has not: "name":"notes_find"
text: Without.
---
has: "name":"notes_find"
text: Started again.
---
has: "name":"notes_find"
text: Known again."#,
    );
    let one_turn = |project: Arc<Project>| {
        let mut client = begin(project);
        let session = client.open();
        turn(&mut client, 2, &session);
        client.leave()
    };
    let project = one_turn(Arc::new(project(&model)));
    for list in lists(&project) {
        let whole = std::fs::read(&list).unwrap();
        std::fs::write(&list, &whole[..whole.len() / 2]).unwrap();
    }
    close_gate(&project);
    let project = one_turn(project);
    project.shell("rm gate");
    let project = one_turn(project);
    close_gate(&project);
    one_turn(project);
    unheard(&model);
}

fn list_changed_by_a_call_applies_from_the_next_step() {
    let (model, _) = recorded(
        r#"text: Hello.
---
has: "name":"notes_find"
call notes_learn {}
---
begins anew
sees: Learnt.
has: "name":"notes_list"
has not: Finds a note.
text: There it is.
---
has: "name":"notes_list"
text: Still there."#,
    );
    let mut client = begin(project(&model));
    let session = client.open();
    turn(&mut client, 2, &session);
    let project = client.leave();
    project.write("learnt.txt", OTHER_TOOLS);
    let mut client = begin(project);
    let session = client.open();
    turn(&mut client, 2, &session);
    let updates = turn(&mut client, 3, &session);
    assert!(
        updates
            .iter()
            .all(|update| update["sessionUpdate"] != "notice"),
        "{updates:?}"
    );
    client.leave();
    unheard(&model);
}
