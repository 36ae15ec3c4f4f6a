//! Limits on open files: 256 is the initial limit on some systems.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::Editor;
use crate::model::{self, Model};
use crate::project::Project;

const SESSIONS: usize = 200;

/// Two hundred sessions that were all prompted continue in 256 files; one that would be too many is
/// refused with words, and keeps no other from working.
pub fn few_open_files_serve_many_sessions() {
    let model =
        Model::unwatched(model::script(&["text: Here."; 2 * SESSIONS].join("\n---\n")).unwrap());
    let project = Arc::new(Project::new());
    project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
    let editor = Editor::start_through(&project, "ulimit -n 256");
    let mut client = Client::of(project.clone(), editor);
    let mut next = 1;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = open(&mut client, &mut next);
        let session = session["result"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{session}"))
            .to_owned();
        assert_eq!(
            prompt_and_answer(&mut client, &mut next, &session),
            "end_turn",
            "session {}",
            sessions.len()
        );
        sessions.push(session);
    }
    for session in sessions.iter().step_by(9) {
        assert_eq!(
            prompt_and_answer(&mut client, &mut next, session),
            "end_turn"
        );
    }
    let refused = (0..60)
        .map(|_| open(&mut client, &mut next))
        .find(|answer| answer.get("error").is_some());
    let refused = refused.expect("a session too many").to_string();
    assert!(
        refused.contains("ulimit -n") && refused.contains("by MCP servers"),
        "{refused}"
    );
    let call = "call bash {\"command\":\"echo it runs\"}\n---\ntext: Done.";
    model.send(model::script(call).unwrap());
    assert_eq!(
        prompt_and_answer(&mut client, &mut next, &sessions[0]),
        "end_turn"
    );
    // A closed session frees files for another one.
    close(&mut client, &mut next, &sessions[1]);
    let opened = open(&mut client, &mut next);
    assert!(opened.get("result").is_some(), "{opened}");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// An MCP server that is refused because sessions have all files is started when some are free.
pub fn server_without_files_is_started_later() {
    let model = Model::answering_with(|request| {
        let offers_server = request["tools"].to_string().contains("files_");
        let answer = if offers_server { "offered" } else { "missing" };
        model::script(&format!("text: {answer}")).unwrap()
    });
    let project = Arc::new(Project::new());
    project.provider(&model.base(), &json!({}));
    let editor = Editor::start_through(&project, "ulimit -n 128");
    let mut client = Client::of(project, editor);
    let mut next = 1;
    let mut sessions = Vec::new();
    loop {
        let answer = open(&mut client, &mut next);
        match answer["result"]["sessionId"].as_str() {
            Some(session) => sessions.push(session.to_owned()),
            None => break,
        }
    }
    close(&mut client, &mut next, &sessions.pop().unwrap());
    let program = std::env::current_exe().unwrap();
    let server =
        json!({ "name": "files", "command": program, "args": ["--mcp-server"], "env": [] });
    let opened = open_with(&mut client, &mut next, &json!([server]));
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let mut server = |client: &mut Client| {
        next += 1;
        client.prompt(next, &session, "Is the server there?");
        let (_, updates) = client.answer(next);
        let is_text = |update: &&Value| update["sessionUpdate"] == "agent_message_chunk";
        let texts = updates.iter().filter(is_text);
        texts
            .filter_map(|update| update["content"]["text"].as_str())
            .collect::<String>()
    };
    assert_eq!(server(&mut client), "missing");
    for (id, session) in (1_000..).zip(sessions.iter().take(8)) {
        client.request(id, "session/close", &json!({ "sessionId": session }));
        client.answer(id);
    }
    assert_eq!(server(&mut client), "offered");
    client.leave();
}

fn open(client: &mut Client, next: &mut u64) -> Value {
    open_with(client, next, &json!([]))
}

fn open_with(client: &mut Client, next: &mut u64, servers: &Value) -> Value {
    *next += 1;
    let cwd = client.project.cwd();
    client.request(
        *next,
        "session/new",
        &json!({ "cwd": cwd, "mcpServers": servers }),
    );
    client.answer(*next).0
}

fn close(client: &mut Client, next: &mut u64, session: &str) {
    *next += 1;
    client.request(*next, "session/close", &json!({ "sessionId": session }));
    client.answer(*next);
}

fn prompt_and_answer(client: &mut Client, next: &mut u64, session: &str) -> Value {
    *next += 1;
    client.prompt(*next, session, "Are you there?");
    let (answer, updates) = client.answer(*next);
    assert!(
        updates.iter().all(|update| update["status"] != "failed"),
        "{updates:?}"
    );
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"]["stopReason"].clone()
}

/// Checks that adjutant raises its own limit on open files, and not that of its child processes.
pub fn limit_on_open_files_is_raised_for_adjutant_only() {
    let call = "call bash {\"command\":\"echo $(ulimit -S -n) files\"}\n---\ntext: Done.";
    let model = Model::start(model::script(call).unwrap());
    let project = Arc::new(Project::new());
    project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
    let editor = Editor::start_through(&project, "ulimit -S -n 300");
    let mut client = Client::of(project, editor);
    let session = client.open();
    let limits =
        std::fs::read_to_string(crate::long_run::proc(client.editor.pid(), "limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap_or_default();
    let numbers: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(numbers[0], numbers[1].min(65_536), "{line}");
    client.prompt(2, &session, "How many?");
    let (_, updates) = client.answer(2);
    assert!(
        updates
            .iter()
            .any(|update| update.to_string().contains("300 files")),
        "{updates:?}"
    );
    client.leave();
}
