//! A turn that is cut off after each of the lines it says: by a cancel, and by the death of the process.
//! Whenever that is, the editor gets one answer, nothing is left open, and the next prompt works: the
//! pretended provider refuses a request in which a call has no result. And a load that something comes
//! between, while the history is on its way.

use std::collections::HashMap;
use std::time::Duration;

use base::id::SessionId;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::editor::{Editor, Hearing};
use crate::laws::Laws;
use crate::model::{self, Model};
use crate::project::Project;

/// Every test of this file, with its name.
pub const ALL: [(&str, fn()); 3] = [
    ("a cancel after any line", || anywhere(Cut::Cancel)),
    ("killed after any line, and loaded again", || anywhere(Cut::Kill)),
    ("something comes between a load", between_a_load),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Cancel,
    Kill,
}

/// Words, calls side by side, a question, two subagents, a last word.
const SCRIPT: &str = r#"
text: Let me see.
call read {"filePath":"a.txt"}
call bash {"command":"echo hi"}
---
call write {"filePath":"b.txt","content":"b\n"}
---
call task {"description":"one","prompt":"Look at part one.","subagent_type":"general"}
call task {"description":"two","prompt":"Look at part two.","subagent_type":"general"}
---
in: Look at part one.
call list {}
---
in: Look at part one.
text: Seen.
---
in: Look at part two.
call list {}
---
in: Look at part two.
text: Seen.
---
text: Done.
"#;

const PATIENCE: Duration = Duration::from_secs(60);

fn anywhere(cut: Cut) {
    let mut line = 1;
    while cut_after(line, cut) {
        line += 1;
    }
    assert!(line > 20, "a turn of {line} lines");
}

/// Cuts the turn off after so many lines. False when it had fewer.
fn cut_after(line: usize, cut: Cut) -> bool {
    let model = Model::start(model::script(SCRIPT).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &json!({ "permission": { "edit": "ask" } }));
    project.write("a.txt", "a\n");
    let mut talk = Talk::start(&project);
    talk.open("session/new", json!({ "cwd": project.cwd(), "mcpServers": [] }));
    // From the first thing it was told on, the session is there.
    talk.ask(2, "session/set_mode", &json!({ "sessionId": talk.session, "modeId": "build" }));
    while talk.hear().unwrap()["id"] != 2 {}
    talk.prompt(10, "Go.");
    let (mut said, mut end) = (0, None);
    while end.is_none() {
        let Some(message) = talk.hear() else { break };
        said += 1;
        end = (message["id"] == 10).then(|| message["result"]["stopReason"].clone());
        if said == line {
            match cut {
                Cut::Cancel => talk.note("session/cancel"),
                Cut::Kill => talk.editor.signal(Signal::KILL),
            }
        }
    }
    let name = format!("{cut:?} after line {line} of {said}");
    // What was not asked for any more is not wanted any more. A last request may still be on its way, from
    // a process that is gone: it gets such an answer as well.
    model.say(model::script(&["text: Here."; 3].join("\n---\n")).unwrap());
    match (cut, &end) {
        (Cut::Cancel, Some(end)) => assert!(end == "cancelled" || end == "end_turn", "{name}: {end}"),
        (Cut::Cancel, None) => panic!("{name}: no answer"),
        (Cut::Kill, _) => {
            drop(talk.editor.finish());
            project.end_leftovers();
            assert_eq!(talk.laws.problems(), Vec::<String>::new(), "{name}");
            let session = talk.session.clone();
            talk = Talk::start(&project);
            talk.open("session/load", json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] }));
        }
    }
    talk.prompt(11, "Are you there?");
    let end = loop {
        let message = talk.hear().unwrap_or_else(|| panic!("{name}: no second answer"));
        if message["id"] == 11 {
            break message;
        }
    };
    assert_eq!(end["result"]["stopReason"], "end_turn", "{name}: {end}");
    let farewell = talk.editor.finish();
    assert!(farewell.status.is_some_and(|status| status.success()), "{name}: {}", farewell.stderr);
    assert_eq!(talk.laws.problems(), Vec::<String>::new(), "{name}");
    assert!(!talk.laws.waiting(), "{name}: {:?}", talk.laws.waiting_for());
    model.say(Vec::new());
    assert_eq!(model.problems(), Vec::<String>::new(), "{name}");
    assert_eq!(project.leftovers(), Vec::<String>::new(), "{name}");
    said >= line
}

/// What comes while a session is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    /// session/cancel.
    Cancel,
    /// The load itself is cancelled.
    NoMore,
    Close,
    Load,
    /// A prompt, and its cancel.
    Prompt,
    /// A mode, and session/cancel: that is about prompts.
    Mode,
}

fn between_a_load() {
    let project = Project::new();
    let model = Model::start(Vec::new());
    project.provider(&model.base(), &json!({}));
    let session = "ses_00000001";
    let data = project.path("~/.local/share/adjutant");
    // More than fits into the pipe and what waits for it: the load waits for the editor.
    crate::history::long(&data, &project.cwd(), &SessionId::new(session), 300, 4_000);
    let all = [Between::Cancel, Between::NoMore, Between::Close, Between::Load, Between::Prompt, Between::Mode];
    for what in all {
        for after in [0, 1, 20] {
            let name = format!("{what:?} after {after} lines of a load");
            comes_between(what, after, session, &project, &model, &name);
        }
    }
}

fn comes_between(what: Between, after: usize, session: &str, project: &Project, model: &Model, name: &str) {
    model.say(model::script("begins anew\ntext: Here.").unwrap());
    let mut talk = Talk::start(project);
    talk.session = session.to_owned();
    let load = json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] });
    let mut answers = HashMap::new();
    talk.editor.hearing(if after == 0 { Hearing::Nothing } else { Hearing::Lines(after) });
    talk.ask(1, "session/load", &load);
    for _ in 0..after {
        talk.hear_answers(&mut answers, name);
    }
    match what {
        Between::Cancel => talk.note("session/cancel"),
        Between::NoMore => {
            talk.say(&json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": 1 } }))
        }
        Between::Close => talk.ask(2, "session/close", &json!({ "sessionId": session })),
        Between::Load => talk.ask(2, "session/load", &load),
        Between::Prompt => {
            talk.prompt(2, "Never mind.");
            talk.note("session/cancel");
        }
        Between::Mode => {
            talk.ask(2, "session/set_mode", &json!({ "sessionId": session, "modeId": "build" }));
            talk.note("session/cancel");
        }
    }
    talk.editor.hearing(Hearing::All);
    let asked = 1 + usize::from(!matches!(what, Between::Cancel | Between::NoMore));
    while answers.len() < asked {
        talk.hear_answers(&mut answers, name);
    }
    match what {
        Between::NoMore => assert!(answers[&1]["error"]["code"] == -32_800, "{name}: {}", answers[&1]),
        _ => assert!(answers[&1]["result"].is_object(), "{name}: {}", answers[&1]),
    }
    if what == Between::Prompt {
        assert_eq!(answers[&2]["result"]["stopReason"], "cancelled", "{name}: {}", answers[&2]);
    }
    if what == Between::Mode {
        assert!(answers[&2]["result"].is_object(), "{name}: {}", answers[&2]);
    }
    // Whatever became of it, the session can be loaded, and goes on.
    talk.ask(3, "session/load", &load);
    while !answers.contains_key(&3) {
        talk.hear_answers(&mut answers, name);
    }
    assert!(answers[&3]["result"].is_object(), "{name}: {}", answers[&3]);
    talk.prompt(4, "Are you there?");
    while !answers.contains_key(&4) {
        talk.hear_answers(&mut answers, name);
    }
    assert_eq!(answers[&4]["result"]["stopReason"], "end_turn", "{name}: {}", answers[&4]);
    let farewell = talk.editor.finish();
    assert_eq!(farewell.problems(0), Vec::<String>::new(), "{name}");
    assert_eq!(talk.laws.problems(), Vec::<String>::new(), "{name}");
    assert!(!talk.laws.waiting(), "{name}: {:?}", talk.laws.waiting_for());
    assert_eq!(model.problems(), Vec::<String>::new(), "{name}");
}

struct Talk {
    editor: Editor,
    laws: Laws,
    session: String,
}

impl Talk {
    fn start(project: &Project) -> Self {
        let mut talk = Self { editor: Editor::start(project), laws: Laws::default(), session: String::new() };
        talk.ask(0, "initialize", &json!({ "protocolVersion": 1 }));
        while talk.hear().unwrap()["id"] != 0 {}
        talk
    }

    fn open(&mut self, method: &str, params: Value) {
        self.ask(1, method, &params);
        let answer = loop {
            let message = self.hear().unwrap();
            if message["id"] == 1 {
                break message;
            }
        };
        let session = answer["result"]["sessionId"].as_str().or(params["sessionId"].as_str());
        self.session = session.unwrap_or_else(|| panic!("{answer}")).to_owned();
    }

    fn prompt(&mut self, id: u64, words: &str) {
        let params = json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": words }] });
        self.ask(id, "session/prompt", &params);
    }

    fn note(&mut self, method: &str) {
        self.say(&json!({ "jsonrpc": "2.0", "method": method, "params": { "sessionId": self.session } }));
    }

    fn ask(&mut self, id: u64, method: &str, params: &Value) {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    fn say(&mut self, message: &Value) {
        let line = message.to_string();
        self.laws.editor_says(&line);
        self.editor.say(&line);
    }

    /// The next line; an answer is kept under its id.
    fn hear_answers(&mut self, answers: &mut HashMap<u64, Value>, name: &str) {
        let message = self.hear().unwrap_or_else(|| panic!("{name}: no answer"));
        if let Some(id) = message["id"].as_u64().filter(|_| message.get("method").is_none()) {
            answers.insert(id, message);
        }
    }

    /// The next line; a question is answered with yes. None: the agent is gone.
    fn hear(&mut self) -> Option<Value> {
        let line = self.editor.hear(PATIENCE)?;
        let message = self.laws.agent_says(&line)?;
        if message["method"] == "session/request_permission" {
            let yes = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            self.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": yes }));
        }
        Some(message)
    }
}
