//! Limits on open files: 256 is what some systems begin with.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::editor::Editor;
use crate::model::{self, Model};
use crate::project::Project;
use crate::talk::Talk;

const SESSIONS: usize = 200;

/// Two hundred sessions that were all prompted go on in 256 files; one that would be too many is refused
/// with words, and keeps no other from working.
pub fn few() {
    let model = Model::unwatched(model::script(&["text: Here."; 2 * SESSIONS].join("\n---\n")).unwrap());
    let project = Arc::new(Project::new());
    project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
    let editor = Editor::start_through(&project, "ulimit -n 256");
    let mut talk = Talk::of(project.clone(), editor);
    let mut next = 1;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = open(&mut talk, &mut next);
        let session = session["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{session}")).to_owned();
        assert_eq!(said(&mut talk, &mut next, &session), "end_turn", "session {}", sessions.len());
        sessions.push(session);
    }
    for session in sessions.iter().step_by(9) {
        assert_eq!(said(&mut talk, &mut next, session), "end_turn");
    }
    let refused = (0..60).map(|_| open(&mut talk, &mut next)).find(|answer| answer.get("error").is_some());
    let refused = refused.expect("a session too many").to_string();
    assert!(refused.contains("ulimit -n"), "{refused}");
    let call = "call bash {\"command\":\"echo it runs\"}\n---\ntext: Done.";
    model.say(model::script(call).unwrap());
    assert_eq!(said(&mut talk, &mut next, &sessions[0]), "end_turn");
    // One that is closed makes room for another.
    next += 1;
    talk.request(next, "session/close", &json!({ "sessionId": sessions[1] }));
    talk.answer(next);
    let opened = open(&mut talk, &mut next);
    assert!(opened.get("result").is_some(), "{opened}");
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn open(talk: &mut Talk, next: &mut u64) -> Value {
    *next += 1;
    let cwd = talk.project.cwd();
    talk.request(*next, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    talk.answer(*next).0
}

fn said(talk: &mut Talk, next: &mut u64, session: &str) -> Value {
    *next += 1;
    talk.prompt(*next, session, "Are you there?");
    let (answer, updates) = talk.answer(*next);
    assert!(updates.iter().all(|update| update["status"] != "failed"), "{updates:?}");
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"]["stopReason"].clone()
}

/// We may have more files open than we were started with; what we start may not.
pub fn raised() {
    let call = "call bash {\"command\":\"echo $(ulimit -S -n) files\"}\n---\ntext: Done.";
    let model = Model::start(model::script(call).unwrap());
    let project = Arc::new(Project::new());
    project.provider(&model.base(), &json!({ "permission": { "bash": "allow" } }));
    let editor = Editor::start_through(&project, "ulimit -S -n 300");
    let mut talk = Talk::of(project, editor);
    let session = talk.open();
    let limits = std::fs::read_to_string(crate::marathon::proc(talk.editor.pid(), "limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers[0], numbers[1].min(65_536), "{line}");
    talk.prompt(2, &session, "How many?");
    let (_, updates) = talk.answer(2);
    assert!(updates.iter().any(|update| update.to_string().contains("300 files")), "{updates:?}");
    talk.leave();
}
