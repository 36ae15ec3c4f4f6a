//! A long run: many steps in one turn, with summaries on the way and much output of tools. The same
//! code runs short as a test (what it leaves behind, never how long it took) and whole as a
//! benchmark (how long a step takes, and what is kept in memory).

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use adjutant::id::SessionId;
use adjutant::store::Store;
use serde_json::{Value, json};

use crate::editor::Editor;
use crate::model::{self, Model, Request};
use crate::project::Project;

/// How long it is.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Steps of the model, each with one call.
    pub steps: usize,
    /// How often the window is full on the way.
    pub compactions: usize,
    /// Bytes of each result, about.
    pub bytes: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// How the turn ended.
    pub end: Value,
    /// The requests for a step, in their order.
    pub steps: Vec<Request>,
    /// After how many steps how many bytes were resident.
    pub memory: Vec<(usize, u64)>,
    /// Open files at the first and at the last look, and threads.
    pub files: (usize, usize),
    /// See `files`.
    pub threads: (usize, usize),
    /// Lines about compactions.
    pub compactions: usize,
    /// Calls that another process finds when it opens the session.
    pub found: usize,
    /// What of the session could not be read.
    pub damage: Vec<String>,
    /// What was wrong with the requests.
    pub problems: Vec<String>,
}

const LINE: usize = 160;

impl Shape {
    /// What the model says.
    pub fn script(self) -> String {
        let lines = self.bytes / LINE;
        let every = self.steps / (self.compactions + 1);
        let mut script = String::new();
        for step in 1..=self.steps {
            let full = self.compactions > 0 && step % every == 0 && step / every <= self.compactions;
            let used = if full { 999_000 } else { 10_000 };
            let call = json!({ "filePath": "big.txt", "offset": step, "limit": lines });
            writeln!(script, "call read {call}\nusage {used} 20\n---").unwrap();
            if full {
                writeln!(script, "without tools\nbegins anew\ntext: ## Objective\nusage 5000 20\n---").unwrap();
            }
        }
        script + "text: That was all.\nusage 10000 20\n"
    }

    pub fn project(self, model: &Model) -> Project {
        let project = Project::new();
        let limit = json!({ "context": 1_000_000, "output": 8_000 });
        let models = json!({ "bench-model": { "limit": limit } });
        project.provider(&model.base(), &json!({ "provider": { "bench": { "models": models } } }));
        let lines = (1..=self.steps + self.bytes / LINE).map(|n| format!("{n:0width$}\n", width = LINE - 8));
        project.write("big.txt", &lines.collect::<String>());
        project
    }
}

/// Runs it, and looks afterwards at what was kept.
pub fn run(shape: Shape, watched: bool) -> Report {
    let script = model::script(&shape.script()).unwrap();
    let model = if watched { Model::start(script) } else { Model::unwatched(script) };
    let project = shape.project(&model);
    let mut talk = Talk::new(&project);
    let session = talk.open(&project);
    talk.prompt(2, &session);
    let pid = talk.editor.pid();
    let (mut done, mut compactions) = (0, 0);
    let mut memory = Vec::new();
    let mut first = None;
    let end = loop {
        let message = talk.hear();
        if message["id"] == 2 {
            break message["result"]["stopReason"].clone();
        }
        let update = &message["params"]["update"];
        let text = update["content"]["text"].as_str().unwrap_or_default();
        compactions += usize::from(text.starts_with("Compacted the conversation"));
        if update["status"] == "completed" {
            done += 1;
            if done == 10 {
                first = Some((count(pid, "fd"), count(pid, "task")));
            }
            if done % (shape.steps / 20).max(1) == 0 {
                memory.push((done, resident(pid)));
            }
        }
    };
    let (files, threads) = first.unwrap_or_default();
    let (files, threads) = ((files, count(pid, "fd")), (threads, count(pid, "task")));
    let steps = model.came().into_iter().filter(|request| request.tools).collect();
    drop(talk.editor.finish());
    let (found, damage) = kept(&project, &session);
    Report { end, steps, memory, files, threads, compactions, found, damage, problems: model.problems() }
}

/// The finished calls of a session as it was kept, and what is wrong with it.
fn kept(project: &Project, session: &str) -> (usize, Vec<String>) {
    let data = project.path("~/.local/share/adjutant");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let stored = Store::start(&data).load(&SessionId::new(session)).await.unwrap();
        let done = |call: &&adjutant::message::Call| matches!(call.state, adjutant::message::CallState::Completed(_));
        let calls = stored.messages.iter().flat_map(|message| message.calls()).filter(done).count();
        (calls, stored.damage)
    })
}

/// The short form: nothing is left behind, nothing is missing.
pub fn shortened() {
    let shape = Shape { steps: 60, compactions: 3, bytes: 4_000 };
    let report = run(shape, true);
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.end, "end_turn");
    assert_eq!(report.steps.len(), shape.steps + 1);
    assert_eq!(report.compactions, shape.compactions);
    assert_eq!((report.found, report.damage), (shape.steps, vec![]));
    let slowest = report.steps.iter().map(|step| step.gap).max();
    let largest = report.steps.iter().map(|step| step.bytes).max().unwrap_or_default();
    assert!(largest < 200_000, "a request of {largest} bytes");
    let resident: Vec<u64> = report.memory.iter().map(|(_, bytes)| bytes >> 20).collect();
    let grown = resident.last().unwrap_or(&0).saturating_sub(resident[0]);
    assert!(grown < 24, "{resident:?} MiB; the slowest step took {slowest:?}");
    assert!(report.files.1 <= report.files.0 + 2, "open files: {:?}", report.files);
    assert!(report.threads.1 <= report.threads.0 + 2, "threads: {:?}", report.threads);
}

/// An editor that only counts.
pub struct Talk {
    pub editor: Editor,
    next: u64,
}

impl Talk {
    pub fn new(project: &Project) -> Self {
        let mut talk = Self { editor: Editor::start(project), next: 10_000 };
        talk.request(0, "initialize", &json!({ "protocolVersion": 1 }));
        while talk.hear()["id"] != 0 {}
        talk
    }

    pub fn open(&mut self, project: &Project) -> String {
        self.next += 1;
        let id = self.next;
        self.request(id, "session/new", &json!({ "cwd": project.cwd(), "mcpServers": [] }));
        loop {
            let message = self.hear();
            if message["id"] == id {
                return message["result"]["sessionId"].as_str().unwrap().to_owned();
            }
        }
    }

    pub fn prompt(&mut self, id: u64, session: &str) {
        let prompt = json!([{ "type": "text", "text": "Go through all of it." }]);
        self.request(id, "session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.editor.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
    }

    pub fn hear(&self) -> Value {
        let line = self.editor.hear(Duration::from_secs(120)).expect("the agent says nothing any more");
        serde_json::from_str(&line).unwrap()
    }
}

pub fn proc(pid: i32, what: &str) -> std::path::PathBuf {
    Path::new("/proc").join(pid.to_string()).join(what)
}

fn count(pid: i32, what: &str) -> usize {
    std::fs::read_dir(proc(pid, what)).map_or(0, Iterator::count)
}

fn resident(pid: i32) -> u64 {
    let status = std::fs::read_to_string(proc(pid, "status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() << 10
}
