//! A long run: many steps in one turn, with compactions and much output of tools. The same code
//! runs short as a test (of its results, never of its duration) and whole as a benchmark (of the
//! time per step and the memory).

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use base::id::SessionId;
use serde_json::{Value, json};
use store::Store;
use transcript::{Call, CallState};

use crate::editor::Editor;
use crate::model::{self, Model, Request};
use crate::project::Project;
use crate::runtime::block_on;

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Steps of the model, each with one call.
    pub steps: usize,
    /// Number of times that the context window fills up.
    pub compactions: usize,
    /// Number of calls that start a subagent, which makes one call of its own.
    pub subagents: usize,
    /// Bytes of each result, about.
    pub bytes: usize,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// Stop reason of the turn.
    pub end: Value,
    /// The requests for a step of the session itself, in their order.
    pub steps: Vec<Request>,
    /// Resources of the process during the run.
    pub looks: Vec<ResourceSample>,
    /// CPU time it had used when the first step was done, the second …
    pub used: Vec<Duration>,
    /// Lines about compactions.
    pub compactions: usize,
    /// The session as another process loads it.
    pub kept: StoredCounts,
    /// Parts of the session, and of its subagents' sessions, that cannot be read.
    pub damage: Vec<String>,
    /// Problems of the requests to the model.
    pub problems: Vec<String>,
}

/// A look at the process, after so many steps.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceSample {
    pub steps: usize,
    /// Bytes that are resident, and its share of them.
    pub resident: u64,
    pub share: u64,
    pub files: usize,
    pub threads: usize,
}

/// The stored part of a session, counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StoredCounts {
    /// Finished calls, and the bytes of their results.
    pub calls: usize,
    pub output: usize,
    /// Summaries.
    pub summaries: usize,
    /// Messages, and the digest of all of it.
    pub messages: usize,
    pub digest: u32,
    /// Subagents' sessions, and the finished calls in them.
    pub children: usize,
    pub childrens_calls: usize,
}

const LINE: usize = 160;

impl Shape {
    /// Returns the script of the mock provider.
    pub fn script(self) -> String {
        let lines = self.bytes / LINE;
        let every = self.steps / (self.compactions + 1);
        let each = self.steps.checked_div(self.subagents).unwrap_or(usize::MAX);
        let mut script = String::new();
        for step in 1..=self.steps {
            let full =
                self.compactions > 0 && step % every == 0 && step / every <= self.compactions;
            let used = if full { 999_000 } else { 10_000 };
            let read = json!({ "filePath": "big.txt", "offset": step, "limit": lines });
            if step % each == 0 {
                let task = json!({ "description": format!("part {step}"), "prompt": format!("Look at part {step}."),
                    "subagent_type": "general" });
                writeln!(script, "call task {task}\nusage {used} 20\n---").unwrap();
                writeln!(
                    script,
                    "in: Look at part {step}.\ncall read {read}\nusage 9000 20\n---"
                )
                .unwrap();
                writeln!(
                    script,
                    "in: Look at part {step}.\ntext: Seen.\nusage 9000 20\n---"
                )
                .unwrap();
            } else {
                writeln!(script, "call read {read}\nusage {used} 20\n---").unwrap();
            }
            if full {
                writeln!(
                    script,
                    "without tools\nbegins anew\ntext: ## Objective\nusage 5000 20\n---"
                )
                .unwrap();
            }
        }
        script + "text: That was all.\nusage 10000 20\n"
    }

    pub fn project(self, model: &Model) -> Project {
        let project = Project::new();
        let limit = json!({ "context": 1_000_000, "output": 8_000 });
        let models = json!({ "bench-model": { "limit": limit } });
        project.provider(
            &model.base(),
            &json!({ "provider": { "bench": { "models": models } } }),
        );
        let lines = (1..=self.steps + self.bytes / LINE)
            .map(|n| format!("{n:0width$}\n", width = LINE - 8));
        project.write("big.txt", &lines.collect::<String>());
        project
    }
}

/// Runs the turn, samples the process every so many steps, and loads the stored session afterwards.
pub fn run(shape: Shape, watched: bool, every: usize) -> Report {
    let script = model::script(&shape.script()).unwrap();
    let model = if watched {
        Model::start(script)
    } else {
        Model::unwatched(script)
    };
    let project = shape.project(&model);
    let mut client = Client::new(&project);
    let session = client.open(&project);
    client.prompt(2, &session);
    let pid = client.editor.pid();
    let mut done = 0;
    let mut compactions = 0;
    let mut looks = Vec::new();
    let mut used = Vec::new();
    let end = loop {
        let message = client.receive();
        if message["id"] == 2 {
            break message["result"]["stopReason"].clone();
        }
        let update = &message["params"]["update"];
        let text = update["content"]["text"].as_str().unwrap_or_default();
        compactions += usize::from(text.starts_with("Compacted the conversation"));
        if update["status"] == "completed" {
            done += 1;
            used.push(processor(pid));
            if done == 10 || done % every == 0 {
                looks.push(look(pid, done));
            }
        }
    };
    looks.push(look(pid, done));
    let steps = model
        .received_requests()
        .into_iter()
        .filter(|request| request.tools && !request.named)
        .collect();
    drop(client.editor.finish());
    let (kept, damage) = load_counts(&project, &session);
    Report {
        end,
        steps,
        looks,
        used,
        compactions,
        kept,
        damage,
        problems: model.problems(),
    }
}

/// Loads a session and its subagents' sessions; returns the counts and the damage.
fn load_counts(project: &Project, session: &str) -> (StoredCounts, Vec<String>) {
    let data = project.path("~/.local/share/adjutant");
    block_on(async {
        let store = Store::start(&data);
        let stored = store.load(&SessionId::new(session)).await.unwrap();
        let mut kept = StoredCounts {
            messages: stored.messages.len(),
            ..StoredCounts::default()
        };
        kept.digest = crc32fast::hash(serde_json::to_string(&stored.messages).unwrap().as_bytes());
        kept.summaries = stored
            .messages
            .iter()
            .filter(|message| message.is_summary())
            .count();
        for call in stored.messages.iter().flat_map(|message| message.calls()) {
            if let CallState::Completed(done) = &call.state {
                kept.calls += 1;
                kept.output += done.output.len();
            }
        }
        let mut damage = stored.damage;
        for child in store.children(&SessionId::new(session)).await.unwrap() {
            let child = store.load(&child).await.unwrap();
            kept.children += 1;
            let done = |call: &&Call| matches!(call.state, CallState::Completed(_));
            kept.childrens_calls += child
                .messages
                .iter()
                .flat_map(|message| message.calls())
                .filter(done)
                .count();
            damage.extend(child.damage);
        }
        (kept, damage)
    })
}

/// Runs the short form: nothing is left behind, nothing is missing, and the memory is bounded.
pub fn shortened() {
    let shape = Shape {
        steps: 60,
        compactions: 5,
        subagents: 6,
        bytes: 40_000,
    };
    let report = run(shape, true, 10);
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.end, report.damage), (json!("end_turn"), vec![]));
    assert_eq!(report.steps.len(), shape.steps + 1);
    let kept = &report.kept;
    assert_eq!(
        (report.compactions, kept.summaries),
        (shape.compactions, shape.compactions)
    );
    assert_eq!(
        (kept.calls, kept.children, kept.childrens_calls),
        (shape.steps, shape.subagents, shape.subagents)
    );
    let read = (shape.steps - shape.subagents) * shape.bytes / 20 * 19;
    assert!(
        kept.output > read,
        "{} bytes of results are kept, of {read}",
        kept.output
    );
    // As large as the reads between two summaries, however long it continues.
    let largest = report
        .steps
        .iter()
        .map(|step| step.bytes)
        .max()
        .unwrap_or_default();
    let slowest = report.steps.iter().map(|step| step.received).max();
    assert!(report.steps.iter().all(|step| step.gap <= step.received));
    assert!(
        largest < 1_000_000,
        "a request of {largest} bytes; the slowest step took {slowest:?}"
    );
    assert_eq!(report.used.len(), shape.steps);
    assert!(
        report
            .looks
            .iter()
            .all(|look| look.share <= look.resident && look.steps <= shape.steps)
    );
    let first = report.looks[0];
    let last = report.looks[report.looks.len() - 1];
    // The index of searches may be opened, in the background, after the first look.
    const SEARCH_INDEX_FILES: usize = 5;
    assert!(
        last.files <= first.files + SEARCH_INDEX_FILES + 2 && last.threads <= first.threads + 2,
        "{:?}",
        report.looks
    );
    let grown = last.resident.saturating_sub(first.resident) >> 20;
    assert!(grown < 24, "{grown} MiB more: {:?}", report.looks);
}

/// An editor that only counts.
pub struct Client {
    pub editor: Editor,
    next: u64,
}

impl Client {
    pub fn new(project: &Project) -> Self {
        let mut client = Self {
            editor: Editor::start(project),
            next: 10_000,
        };
        client.request(0, "initialize", &json!({ "protocolVersion": 1 }));
        while client.receive()["id"] != 0 {}
        client
    }

    pub fn open(&mut self, project: &Project) -> String {
        self.next += 1;
        let id = self.next;
        self.request(
            id,
            "session/new",
            &json!({ "cwd": project.cwd(), "mcpServers": [] }),
        );
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message["result"]["sessionId"].as_str().unwrap().to_owned();
            }
        }
    }

    pub fn prompt(&mut self, id: u64, session: &str) {
        let prompt = json!([{ "type": "text", "text": "Go through all of it." }]);
        self.request(
            id,
            "session/prompt",
            &json!({ "sessionId": session, "prompt": prompt }),
        );
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.editor.send(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
    }

    pub fn receive(&self) -> Value {
        let line = self
            .editor
            .receive(Duration::from_secs(120))
            .expect("the agent says nothing any more");
        serde_json::from_str(&line).unwrap()
    }
}

pub fn proc(pid: i32, what: &str) -> std::path::PathBuf {
    Path::new("/proc").join(pid.to_string()).join(what)
}

/// Returns the CPU time of the current threads of a process, from the scheduler.
pub fn processor(pid: i32) -> Duration {
    let threads = std::fs::read_dir(proc(pid, "task"))
        .into_iter()
        .flatten()
        .flatten();
    let used = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

fn look(pid: i32, steps: usize) -> ResourceSample {
    let count = |what: &str| std::fs::read_dir(proc(pid, what)).map_or(0, Iterator::count);
    let bytes = |file: &str, key: &str| {
        let text = std::fs::read_to_string(proc(pid, file)).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap_or_default();
        line.trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .unwrap_or_default()
            << 10
    };
    let resident = bytes("status", "VmRSS:");
    let share = bytes("smaps_rollup", "Pss:");
    ResourceSample {
        steps,
        resident,
        share,
        files: count("fd"),
        threads: count("task"),
    }
}
