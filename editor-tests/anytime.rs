//! A turn that is cut off after each of the lines it says: by a cancel, and by the death of the process.
//! Whenever that is, the editor gets one answer, nothing is left open, and the next prompt works: the
//! pretended provider refuses a request in which a call has no result.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::editor::Editor;
use crate::laws::Laws;
use crate::model::{self, Model};
use crate::project::Project;

/// Every test of this file, with its name.
pub const ALL: [(&str, fn()); 2] = [
    ("a cancel after any line", || anywhere(Cut::Cancel)),
    ("killed after any line, and loaded again", || anywhere(Cut::Kill)),
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
