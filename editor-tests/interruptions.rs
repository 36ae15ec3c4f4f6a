//! Interrupts a turn after each of its lines: by a cancel, and by the death of the process. Each
//! time the client gets one answer, nothing is left open, and the next prompt works: the mock
//! provider refuses a request in which a call has no result. Also interrupts a load while the
//! history is being sent.

use std::collections::HashMap;
use std::time::Duration;

use base::id::SessionId;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::editor::{Editor, ReadPace};
use crate::invariants::Invariants;
use crate::model::{self, Model};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 3] = [
    ("turn cancelled after any line gets one answer", || {
        interrupt_after_every_line(Interruption::Cancel)
    }),
    ("session killed after any line can be loaded", || {
        interrupt_after_every_line(Interruption::Kill)
    }),
    (
        "interrupted load gets one answer",
        interrupted_load_gets_one_answer,
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    Cancel,
    Kill,
}

/// Text, parallel calls, a question, two subagents, a final text.
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

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

fn interrupt_after_every_line(interruption: Interruption) {
    let mut line = 1;
    while interrupt_after(line, interruption) {
        line += 1;
    }
    assert!(line > 20, "a turn of {line} lines");
}

/// Interrupts the turn after `line` lines. Returns false if it has fewer.
fn interrupt_after(line: usize, interruption: Interruption) -> bool {
    let model = Model::start(model::script(SCRIPT).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &json!({ "permission": { "edit": "ask" } }));
    project.write("a.txt", "a\n");
    let mut client = Client::start(&project);
    client.open(
        "session/new",
        json!({ "cwd": project.cwd(), "mcpServers": [] }),
    );
    // The session is stored from its first change on.
    client.request(
        2,
        "session/set_mode",
        &json!({ "sessionId": client.session, "modeId": "build" }),
    );
    while client.receive().unwrap()["id"] != 2 {}
    client.prompt(10, "Go.");
    let mut received = 0;
    let mut end = None;
    while end.is_none() {
        let Some(message) = client.receive() else {
            break;
        };
        received += 1;
        end = (message["id"] == 10).then(|| message["result"]["stopReason"].clone());
        if received == line {
            match interruption {
                Interruption::Cancel => client.notify("session/cancel"),
                Interruption::Kill => client.editor.signal(Signal::KILL),
            }
        }
    }
    let name = format!("{interruption:?} after line {line} of {received}");
    // The rest of the script is obsolete. A last request may still be on its way, from a process
    // that is gone: it gets such an answer as well.
    model.send(model::script(&["text: Here."; 3].join("\n---\n")).unwrap());
    match (interruption, &end) {
        (Interruption::Cancel, Some(end)) => {
            assert!(end == "cancelled" || end == "end_turn", "{name}: {end}")
        }
        (Interruption::Cancel, None) => panic!("{name}: no answer"),
        (Interruption::Kill, _) => {
            drop(client.editor.finish());
            project.end_leftovers();
            assert_eq!(client.invariants.problems(), Vec::<String>::new(), "{name}");
            let session = client.session.clone();
            client = Client::start(&project);
            client.open(
                "session/load",
                json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] }),
            );
        }
    }
    client.prompt(11, "Are you there?");
    let end = loop {
        let message = client
            .receive()
            .unwrap_or_else(|| panic!("{name}: no second answer"));
        if message["id"] == 11 {
            break message;
        }
    };
    assert_eq!(end["result"]["stopReason"], "end_turn", "{name}: {end}");
    let exit = client.editor.finish();
    assert!(
        exit.status.is_some_and(|status| status.success()),
        "{name}: {}",
        exit.stderr
    );
    assert_eq!(client.invariants.problems(), Vec::<String>::new(), "{name}");
    assert!(
        !client.invariants.waiting(),
        "{name}: {:?}",
        client.invariants.waiting_for()
    );
    model.send(Vec::new());
    assert_eq!(model.problems(), Vec::<String>::new(), "{name}");
    assert_eq!(project.leftovers(), Vec::<String>::new(), "{name}");
    received >= line
}

/// The interruption of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadInterruption {
    /// session/cancel.
    Cancel,
    /// `$/cancel_request` for the load itself.
    CancelRequest,
    Close,
    Load,
    /// session/prompt, then session/cancel.
    Prompt,
    /// session/set_mode, then session/cancel, which affects prompts only.
    Mode,
}

fn interrupted_load_gets_one_answer() {
    let project = Project::new();
    let model = Model::start(Vec::new());
    project.provider(&model.base(), &json!({}));
    let session = "ses_00000001";
    let data = project.path("~/.local/share/adjutant");
    // More than fits into the pipe and the queue: the load waits for the client.
    crate::history::long(&data, &project.cwd(), &SessionId::new(session), 300, 4_000);
    let all = [
        LoadInterruption::Cancel,
        LoadInterruption::CancelRequest,
        LoadInterruption::Close,
        LoadInterruption::Load,
        LoadInterruption::Prompt,
        LoadInterruption::Mode,
    ];
    for what in all {
        for after in [0, 1, 20] {
            let name = format!("{what:?} after {after} lines of a load");
            interrupt_load(what, after, session, &project, &model, &name);
        }
    }
}

fn interrupt_load(
    what: LoadInterruption,
    after: usize,
    session: &str,
    project: &Project,
    model: &Model,
    name: &str,
) {
    model.send(model::script("begins anew\ntext: Here.").unwrap());
    let mut client = Client::start(project);
    client.session = session.to_owned();
    let load = json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] });
    let mut answers = HashMap::new();
    client.editor.set_read_pace(if after == 0 {
        ReadPace::Nothing
    } else {
        ReadPace::Lines(after)
    });
    client.request(1, "session/load", &load);
    for _ in 0..after {
        client.receive_answer(&mut answers, name);
    }
    match what {
        LoadInterruption::Cancel => client.notify("session/cancel"),
        LoadInterruption::CancelRequest => {
            client.send(&json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": 1 } }))
        }
        LoadInterruption::Close => client.request(2, "session/close", &json!({ "sessionId": session })),
        LoadInterruption::Load => client.request(2, "session/load", &load),
        LoadInterruption::Prompt => {
            client.prompt(2, "Never mind.");
            client.notify("session/cancel");
        }
        LoadInterruption::Mode => {
            client.request(2, "session/set_mode", &json!({ "sessionId": session, "modeId": "build" }));
            client.notify("session/cancel");
        }
    }
    client.editor.set_read_pace(ReadPace::All);
    let asked = 1 + usize::from(!matches!(
        what,
        LoadInterruption::Cancel | LoadInterruption::CancelRequest
    ));
    while answers.len() < asked {
        client.receive_answer(&mut answers, name);
    }
    match what {
        LoadInterruption::CancelRequest => assert!(
            answers[&1]["error"]["code"] == -32_800,
            "{name}: {}",
            answers[&1]
        ),
        _ => assert!(answers[&1]["result"].is_object(), "{name}: {}", answers[&1]),
    }
    if what == LoadInterruption::Prompt {
        assert_eq!(
            answers[&2]["result"]["stopReason"], "cancelled",
            "{name}: {}",
            answers[&2]
        );
    }
    if what == LoadInterruption::Mode {
        assert!(answers[&2]["result"].is_object(), "{name}: {}", answers[&2]);
    }
    // Whether or not the load succeeded, the session can be loaded, and continues.
    client.request(3, "session/load", &load);
    while !answers.contains_key(&3) {
        client.receive_answer(&mut answers, name);
    }
    assert!(answers[&3]["result"].is_object(), "{name}: {}", answers[&3]);
    client.prompt(4, "Are you there?");
    while !answers.contains_key(&4) {
        client.receive_answer(&mut answers, name);
    }
    assert_eq!(
        answers[&4]["result"]["stopReason"], "end_turn",
        "{name}: {}",
        answers[&4]
    );
    let exit = client.editor.finish();
    assert_eq!(exit.problems(0), Vec::<String>::new(), "{name}");
    assert_eq!(client.invariants.problems(), Vec::<String>::new(), "{name}");
    assert!(
        !client.invariants.waiting(),
        "{name}: {:?}",
        client.invariants.waiting_for()
    );
    assert_eq!(model.problems(), Vec::<String>::new(), "{name}");
}

struct Client {
    editor: Editor,
    invariants: Invariants,
    session: String,
}

impl Client {
    fn start(project: &Project) -> Self {
        let mut client = Self {
            editor: Editor::start(project),
            invariants: Invariants::default(),
            session: String::new(),
        };
        client.request(0, "initialize", &json!({ "protocolVersion": 1 }));
        while client.receive().unwrap()["id"] != 0 {}
        client
    }

    fn open(&mut self, method: &str, params: Value) {
        self.request(1, method, &params);
        let answer = loop {
            let message = self.receive().unwrap();
            if message["id"] == 1 {
                break message;
            }
        };
        let session = answer["result"]["sessionId"]
            .as_str()
            .or(params["sessionId"].as_str());
        self.session = session.unwrap_or_else(|| panic!("{answer}")).to_owned();
    }

    fn prompt(&mut self, id: u64, text: &str) {
        let params =
            json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": text }] });
        self.request(id, "session/prompt", &params);
    }

    fn notify(&mut self, method: &str) {
        self.send(
            &json!({ "jsonrpc": "2.0", "method": method, "params": { "sessionId": self.session } }),
        );
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    fn send(&mut self, message: &Value) {
        let line = message.to_string();
        self.invariants.observe_client(&line);
        self.editor.send(&line);
    }

    /// Receives the next line; stores an answer under its id.
    fn receive_answer(&mut self, answers: &mut HashMap<u64, Value>, name: &str) {
        let message = self
            .receive()
            .unwrap_or_else(|| panic!("{name}: no answer"));
        if message.get("method").is_none()
            && let Some(id) = message["id"].as_u64()
        {
            answers.insert(id, message);
        }
    }

    /// Returns the next line; allows questions. `None` if the agent has ended.
    fn receive(&mut self) -> Option<Value> {
        let line = self.editor.receive(RESPONSE_TIMEOUT)?;
        let message = self.invariants.observe_agent(&line)?;
        if message["method"] == "session/request_permission" {
            let yes = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
            self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": yes }));
        }
        Some(message)
    }
}
