//! Ends of the agent's process: signals in every state, and closed outputs.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::{EXIT_TIMEOUT, RESPONSE_TIMEOUT};
use crate::model::{self, Model};
use crate::parallel::run_in_parallel;
use crate::project::Project;

/// A state of the agent at the moment of the signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    Idle,
    InATurn,
    Asking,
    Loading,
}

pub(super) const STATES: [State; 4] = [State::Idle, State::InATurn, State::Asking, State::Loading];

/// An agent in a state.
pub(super) struct Fixture {
    pub(super) client: Client,
    pub(super) project: Arc<Project>,
    pub(super) session: String,
    _model: Model,
}

impl Fixture {
    pub(super) fn new(state: State) -> Self {
        let script = match state {
            State::InATurn => "text: Once\nhang\n",
            State::Asking => "call bash {\"command\":\"rm -r x\"}\n---\ntext: Done.\n",
            State::Idle | State::Loading => "text: Hello.\n",
        };
        let model = Model::start(model::script(script).unwrap());
        let project = Arc::new(Project::new());
        project.provider(&model.base(), &json!({ "permission": { "bash": "ask" } }));
        let mut client = Client::new(project.clone());
        let session = client.open();
        match state {
            State::Idle => {}
            State::InATurn => {
                client.prompt(2, &session, "Tell me a story.");
                while client.receive()["params"]["update"]["content"]["text"] != "Once" {}
            }
            State::Asking => {
                client.prompt(2, &session, "Remove it.");
                while client.receive()["method"] != "session/request_permission" {}
            }
            State::Loading => {
                let cwd = project.cwd();
                client.request(
                    2,
                    "session/load",
                    &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
                );
            }
        }
        Self {
            client,
            project,
            session,
            _model: model,
        }
    }

    /// Returns whether no process runs any more, and the session is not locked.
    pub(super) fn is_left_clean(&self) -> bool {
        let lock = self
            .project
            .path("~/.local/share/adjutant/sessions")
            .join(format!("{}.lock", self.session));
        self.project.leftovers().is_empty() && !lock.exists()
    }
}

/// FC02: four signals in four states, five times each.
pub(super) fn fc02_signal_ends_the_agent_in_every_state() {
    const SIGNALS: [(Signal, i32); 4] = [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::INT, 130),
        (Signal::PIPE, 0),
    ];
    run_in_parallel(SIGNALS.len() * STATES.len() * 5, |number| {
        let (signal, code) = SIGNALS[number % 4];
        let state = STATES[number / 4 % 4];
        let mut fixture = Fixture::new(state);
        fixture.client.editor.signal(signal);
        if signal == Signal::PIPE {
            // Ignored: a closed pipe shows in the write that fails.
            fixture.client.request(9, "session/list", &json!({}));
            assert!(
                fixture.client.answer(9).0.get("result").is_some(),
                "{state:?}"
            );
        } else {
            // The input stays open: it is the signal that ends it.
            assert!(
                fixture.client.editor.exits_within(EXIT_TIMEOUT),
                "{signal:?}, {state:?}: it stays"
            );
        }
        let gone = fixture.client.editor.finish();
        assert_eq!(
            gone.problems(code),
            Vec::<String>::new(),
            "{signal:?}, {state:?}"
        );
        assert!(
            fixture.is_left_clean(),
            "{signal:?}, {state:?}: {:?}",
            fixture.project.leftovers()
        );
    });
}

/// An agent whose pipes can be closed one by one.
struct Bare {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Bare {
    fn start(project: &Project) -> Self {
        let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
        command.arg("acp").current_dir(project.cwd());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn ask(&mut self, id: u64, method: &str, params: &Value) {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        // Whether it is still read is the question.
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").ok();
    }

    fn until(&mut self, text: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "it says nothing any more"
            );
            if line.contains(text) {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    fn open(&mut self, project: &Project) -> String {
        self.ask(0, "initialize", &json!({ "protocolVersion": 1 }));
        self.until("\"id\":0,");
        self.ask(
            1,
            "session/new",
            &json!({ "cwd": project.cwd(), "mcpServers": [] }),
        );
        self.until("\"id\":1,")["result"]["sessionId"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

/// FC03: closes one output or the other. The agent ends, or works on, and never panics.
pub(super) fn fc03_closed_output_does_not_hang_the_agent() {
    run_in_parallel(20, |number| {
        let flood = format!(
            "text: Once\n{}",
            "text: and upon a time, and again, and on\n".repeat(400)
        );
        let model = Model::start(model::script(&format!("{flood}---\ntext: Well.\n")).unwrap());
        let project = Project::new();
        project.provider(&model.base(), &Value::Null);
        let mut agent = Bare::start(&project);
        let session = agent.open(&project);
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "Tell me a story." }] });
        let of_stdout = number % 2 == 0;
        let mut complaints = agent.child.stderr.take().unwrap();
        if of_stdout {
            let (say, said) = channel();
            thread::spawn(move || {
                let mut text = String::new();
                complaints.read_to_string(&mut text).ok();
                say.send(text).ok();
            });
            if number % 4 == 0 {
                agent.ask(2, "session/prompt", &prompt);
                agent.until("Once");
            }
            let Bare { mut child, lines } = agent;
            drop(lines);
            // The answer has no reader.
            let line = json!({ "jsonrpc": "2.0", "id": 3, "method": "session/list", "params": {} });
            writeln!(child.stdin.as_mut().unwrap(), "{line}").ok();
            let start = Instant::now();
            let pid = Pid::from_child(&child);
            let (leave, left) = channel();
            thread::spawn(move || {
                // Its input stays open for as long as it lives.
                let _input = child.stdin.take();
                leave.send(child.wait()).ok();
            });
            let status = left.recv_timeout(RESPONSE_TIMEOUT);
            if status.is_err() {
                kill_process(pid, Signal::KILL).ok();
            }
            let status = status.expect("it stays, though nobody hears it").unwrap();
            assert!(
                start.elapsed() < EXIT_TIMEOUT + Duration::from_secs(1),
                "{:?}",
                start.elapsed()
            );
            let text = said.recv_timeout(RESPONSE_TIMEOUT).unwrap();
            assert!(!text.contains("panicked"), "{status}: {text}");
            assert!(status.code().is_some(), "{status}");
        } else {
            drop(complaints);
            agent.ask(2, "session/prompt", &prompt);
            assert_eq!(agent.until("\"id\":2,")["result"]["stopReason"], "end_turn");
            drop(agent.child.stdin.take());
            let (say, gone) = channel();
            let pid = Pid::from_child(&agent.child);
            thread::spawn(move || say.send(agent.child.wait()).ok());
            let status = gone.recv_timeout(RESPONSE_TIMEOUT);
            if status.is_err() {
                kill_process(pid, Signal::KILL).ok();
            }
            assert_eq!(status.unwrap().unwrap().code(), Some(0));
        }
        assert_eq!(project.leftovers(), Vec::<String>::new());
    });
}
