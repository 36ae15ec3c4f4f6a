//! Sessions on disk: loading, listing, appending.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on should say where"
)]
#![expect(clippy::print_stdout, reason = "what is no time is printed")]

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use base::environment::Timestamp;
use base::id::{MessageId, PartId, SessionId};
use base::store_location::{DatabaseLocation, StoreLocation};
use divan::Bencher;
use serde_json::{Value, json};
use store::{Record, Store};
use tempfile::TempDir;
use transcript::{Assistant, Content, Finish, Message, ModelRef, Part, Role, Text, Usage, User};

use crate::database::Database;
use crate::editor::Editor;
use crate::mock_provider::{self, Model};
use crate::project::Project;
use crate::runtime::block_on;

fn id(n: usize) -> SessionId {
    SessionId::new(format!("ses_{n:08}"))
}

fn message(number: usize, text: &str) -> Message {
    let model = ModelRef {
        provider: "p".into(),
        model: "m".into(),
        effort: None,
    };
    let role = if number.is_multiple_of(2) {
        Role::User(User {
            agent: "build".into(),
            model,
        })
    } else {
        Role::Assistant(Assistant {
            parent: MessageId::new(format!("msg_{:016x}aaaaaaaaaa", number - 1)),
            agent: "build".into(),
            model,
            finish: Some(Finish::Stop),
            fault: None,
            summary: false,
            usage: Usage {
                input: 1_000,
                output: 200,
                ..Usage::default()
            },
            cost: Some(0.01),
            completed: Some(Timestamp(2)),
        })
    };
    let content = Content::Text(Text {
        text: text.into(),
        ..Text::default()
    });
    let part = Part {
        id: PartId::new(format!("prt_{number:016x}aaaaaaaaaa")),
        content,
    };
    Message {
        id: MessageId::new(format!("msg_{number:016x}aaaaaaaaaa")),
        created: Timestamp(1),
        role,
        parts: vec![part],
    }
}

async fn write(store: &Store, id: &SessionId, message: &Message) {
    store.write_message(id, message).await;
    for part in &message.parts {
        store.write_part(id, &message.id, part).await;
    }
}

/// A closed session of so many messages of a kilobyte.
fn session(messages: usize) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), Path::new("/w"), messages);
    dir
}

fn fill(dir: &Path, cwd: &Path, messages: usize) {
    fill_in(|| Store::start(dir), cwd, messages);
}

fn fill_in(open: impl FnOnce() -> Store, cwd: &Path, messages: usize) {
    block_on(async {
        let store = open();
        let record = Record::new(id(1), cwd.into(), Timestamp(1));
        store.create(&record).await.unwrap();
        store.write_record(&record).await;
        for number in 0..messages {
            write(&store, &id(1), &message(number, &"word ".repeat(200))).await;
        }
        store.stop().await;
    });
}

/// Ten thousand closed sessions of a message each.
fn many(open: impl FnOnce() -> Store, cwd: &Path) {
    block_on(async {
        let store = open();
        for n in 0..10_000 {
            let updated = Timestamp(1_000 + n as u64);
            let title = Some(format!("Session {n}"));
            let record = Record {
                updated,
                title,
                ..Record::new(id(n), cwd.into(), Timestamp(1))
            };
            store.create(&record).await.unwrap();
            store.write_record(&record).await;
            write(&store, &record.id, &message(0, "Hello.")).await;
            store.close(&record.id).await;
        }
        store.stop().await;
    });
}

/// Measures a start with ten thousand stored sessions: until its first session, and a page of their
/// list.
fn crowd() {
    const TIMES: usize = 9;
    let empty = Project::new();
    let full = Project::new();
    for project in [&empty, &full] {
        project.settings(&json!({ "model": "replay:nothing" }));
    }
    many(
        || Store::start(&full.path("~/.local/share/adjutant")),
        &full.cwd(),
    );
    for (what, project) in [("no session", &empty), ("10,000 sessions", &full)] {
        let mut starts = Vec::new();
        let mut firsts = Vec::new();
        let mut pages = Vec::new();
        for _ in 0..TIMES {
            let start = Instant::now();
            let mut editor = agent(project);
            let params = json!({ "cwd": project.cwd(), "mcpServers": [] });
            answered(&mut editor, 1, "session/new", &params);
            starts.push(start.elapsed());
            let mut cursor = json!(null);
            for page in 0..10 {
                let start = Instant::now();
                let list = answered(
                    &mut editor,
                    2 + page,
                    "session/list",
                    &json!({ "cursor": cursor }),
                );
                let took = start.elapsed();
                if page == 0 {
                    firsts.push(took)
                } else {
                    pages.push(took)
                }
                cursor = list["result"]["nextCursor"].clone();
                if cursor.is_null() {
                    break;
                }
            }
            drop(editor.finish());
        }
        println!(
            "with {what} kept: start to the first session {:.1?}; session/list: the first page of a process {:.1?}, a later one {:.1?}",
            median(&mut starts),
            median(&mut firsts),
            median(&mut pages)
        );
    }
}

/// Returns the answer to a request; skips other messages.
fn answered(editor: &mut Editor, id: u64, method: &str, params: &Value) -> Value {
    editor.send(
        &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
    );
    loop {
        let message: Value =
            serde_json::from_str(&editor.receive(Duration::from_secs(60)).unwrap()).unwrap();
        if message["id"] == id && message.get("method").is_none() {
            assert!(message.get("result").is_some(), "{message}");
            return message;
        }
    }
}

/// Returns a project with a session of so many messages.
fn project(messages: usize) -> Project {
    let project = Project::new();
    project.settings(&json!({ "model": "replay:nothing" }));
    fill(
        &project.path("~/.local/share/adjutant"),
        &project.cwd(),
        messages,
    );
    project
}

/// Starts an agent that has only answered the handshake.
fn agent(project: &Project) -> Editor {
    let mut editor = Editor::start(project);
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    editor.send(&hello.to_string());
    editor.receive(Duration::from_secs(10)).unwrap();
    editor
}

/// Opens the session, and counts the lines before the answer.
fn reload(editor: &mut Editor, project: &Project, method: &str) -> usize {
    let params = json!({ "sessionId": id(1).as_str(), "cwd": project.cwd(), "mcpServers": [] });
    editor.send(
        &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string(),
    );
    let mut lines = 0;
    loop {
        let line = editor.receive(Duration::from_secs(60)).unwrap();
        if line
            .get(..60)
            .is_some_and(|begin| begin.contains("\"id\":1,"))
        {
            assert!(!line.contains("\"error\""), "{line}");
            return lines;
        }
        lines += 1;
    }
}

/// session/load in a new process, to its answer, which follows the last replayed line.
#[divan::bench(args = [400, 10_000], sample_count = 20, sample_size = 1)]
fn reload_in_a_new_process(bencher: Bencher<'_, '_>, messages: usize) {
    let project = project(messages);
    bencher
        .with_inputs(|| DepartedAgent(agent(&project)))
        .bench_local_values(|mut editor| {
            assert!(reload(&mut editor.0, &project, "session/load") >= messages);
            editor
        });
}

/// An agent that has left, and let go of its session, before the next one comes.
struct DepartedAgent(Editor);

impl Drop for DepartedAgent {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Prints the figures that are not durations, after the benchmarks.
pub fn print_figures() {
    let project = project(10_000);
    for method in ["session/load", "session/resume"] {
        let mut editor = agent(&project);
        let before = proportional(editor.pid());
        let start = Instant::now();
        let lines = reload(&mut editor, &project, method);
        let took = start.elapsed();
        let after = proportional(editor.pid());
        let most = status(editor.pid(), "VmHWM:");
        println!(
            "{method} of 10,000 messages of 1 kB: {took:.0?}, {lines} lines; PSS {:.1} MiB before, {:.1} MiB after, RSS at most {:.1} MiB",
            mib(before),
            mib(after),
            mib(most)
        );
        drop(editor.finish());
    }
    growth();
    large();
    crowd();
    compare_backends();
}

/// The same work with sessions in files and in a database.
pub fn compare_backends() {
    const TIMES: usize = 9;
    const CALLS: usize = 50;
    let urls = [None, Database::get().map(|database| database.fresh(15))];
    for (what, url) in [("in files", &urls[0]), ("in PostgreSQL", &urls[1])] {
        if what != "in files" && url.is_none() {
            continue;
        }
        // The same call again and again would be asked about.
        let call = |n| {
            format!(
                "call read {}\n---\n",
                json!({ "filePath": "file.txt", "limit": n + 1 })
            )
        };
        let script = format!("{}text: Done.", (0..CALLS).map(call).collect::<String>());
        let model = Model::unwatched(mock_provider::script(&script).unwrap());
        let mut project = Project::new();
        project.provider(&model.base(), &json!({}));
        project.write("file.txt", "A line.\n");
        project.set("ADJUTANT_STORE", url.as_deref());
        let data = project.path("~/.local/share/adjutant");
        let open = || match url {
            Some(url) => {
                let location = DatabaseLocation::new(url);
                Store::open(move || StoreLocation::Database(location))
            }
            None => Store::start(&data),
        };
        let mut editor = agent(&project);
        let opened = answered(
            &mut editor,
            1,
            "session/new",
            &json!({ "cwd": project.cwd(), "mcpServers": [] }),
        );
        let prompt = json!({ "sessionId": opened["result"]["sessionId"], "prompt": [{ "type": "text", "text": "Go." }] });
        let start = Instant::now();
        answered(&mut editor, 2, "session/prompt", &prompt);
        let step = start.elapsed() / CALLS as u32;
        drop(editor.finish());

        fill_in(open, &project.cwd(), 400);
        let mut loads = Vec::new();
        for _ in 0..TIMES {
            let mut editor = agent(&project);
            let start = Instant::now();
            reload(&mut editor, &project, "session/load");
            loads.push(start.elapsed());
            drop(editor.finish());
        }

        many(open, &project.cwd());
        let mut editor = agent(&project);
        let mut pages = Vec::new();
        for id in 0..TIMES as u64 {
            let start = Instant::now();
            answered(&mut editor, 10 + id, "session/list", &json!({}));
            pages.push(start.elapsed());
        }
        drop(editor.finish());
        let first = pages[0];
        println!(
            "{what}: a step with a call {step:.2?}; session/load of 200 turns in a new process {:.1?}; of 10,000 sessions the first page of a process {first:.1?}, later {:.1?}",
            median(&mut loads),
            median(&mut pages)
        );
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Ten thousand messages with 200 MB of output, nearly all of them summarised.
fn large() {
    let project = Project::new();
    project.settings(&json!({ "model": "replay:nothing" }));
    let data = project.path("~/.local/share/adjutant");
    crate::history::long(&data, &project.cwd(), &id(1), 10_000, 20_000);
    let file = std::fs::metadata(data.join("sessions").join(format!("{}.db", id(1))))
        .map_or(0, |data| data.len());
    println!(
        "10,000 messages with 200 MB of output: {:.0} MiB on the disk",
        mib(file)
    );
    for method in ["session/resume", "session/load"] {
        let mut editor = agent(&project);
        let before = status(editor.pid(), "VmHWM:");
        let start = Instant::now();
        let lines = reload(&mut editor, &project, method);
        let took = start.elapsed();
        let most = status(editor.pid(), "VmHWM:");
        println!(
            "  {method}: {took:.0?}, {lines} lines; RSS grew by {:.1} MiB at most",
            mib(most - before)
        );
        drop(editor.finish());
    }
    let store = Store::start(&data);
    block_on(store.load_without_old_results(&id(1))).unwrap();
    let mut times: Vec<Duration> = (20_000..20_500)
        .map(|number| {
            let message = message(number, &"word ".repeat(200));
            let start = Instant::now();
            block_on(async {
                write(&store, &id(1), &message).await;
                store.await_written(&id(1)).await;
            });
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!(
        "  appending to it: {:.1?} median, {:.1?} p99",
        times[250], times[495]
    );
    let start = Instant::now();
    block_on(store.list(None, None, 100)).unwrap();
    println!("  listing it: {:.1?}", start.elapsed());
    let start = Instant::now();
    block_on(store.delete(&id(1))).unwrap();
    println!("  deleting it: {:.1?}", start.elapsed());
}

/// Compares the disk usage of a hundred turns with a call each with the size of their text.
fn growth() {
    const TURNS: u64 = 100;
    let lines: String = (0..40)
        .map(|n| format!("line {n} of a file that is being read by somebody\n"))
        .collect();
    let words = "the model says something about what it has read, at some length; ".repeat(20);
    let mut script = String::new();
    for _ in 0..TURNS {
        let call = json!({ "filePath": "file.txt" });
        writeln!(
            script,
            "call read {call}\nusage 1000 20\n---\ntext: {words}\nusage 1000 20\n---"
        )
        .unwrap();
    }
    let model = Model::unwatched(mock_provider::script(script.trim_end_matches("---\n")).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &json!({}));
    project.write("file.txt", &lines);
    let mut editor = agent(&project);
    let opened = answered(
        &mut editor,
        1,
        "session/new",
        &json!({ "cwd": project.cwd(), "mcpServers": [] }),
    );
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    for turn in 0..TURNS {
        let prompt = json!([{ "type": "text", "text": format!("Prompt {turn}: read the file again, and say what is in it.") }]);
        answered(
            &mut editor,
            2 + turn,
            "session/prompt",
            &json!({ "sessionId": session, "prompt": prompt }),
        );
    }
    let data = project.path("~/.local/share/adjutant");
    let size = || -> u64 {
        let files = std::fs::read_dir(data.join("sessions")).unwrap().flatten();
        files
            .map(|file| file.metadata().map_or(0, |data| data.len()))
            .sum()
    };
    let open = size();
    drop(editor.finish());
    let closed = size();
    let stored =
        block_on(async { Store::start(&data).load(&SessionId::new(session)).await }).unwrap();
    let text: usize = stored
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(text)
        .sum();
    println!(
        "{TURNS} turns with a call each hold {} KiB of text; on the disk {} KiB while open, {} KiB when closed: {:.2} times the text",
        text >> 10,
        open >> 10,
        closed >> 10,
        mib(closed) / mib(text as u64)
    );
}

fn text(part: &Part) -> usize {
    match &part.content {
        Content::Text(text) => text.text.len(),
        Content::Reasoning(reasoning) => reasoning.text.len(),
        Content::Tool(call) => {
            let result = match &call.state {
                transcript::CallState::Completed(done) => done.output.len(),
                _ => 0,
            };
            result + call.input.to_string().len() + call.title.len()
        }
        _ => 0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn proportional(pid: i32) -> u64 {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

fn status(pid: i32, name: &str) -> u64 {
    field(&format!("/proc/{pid}/status"), name)
}

/// Returns a line in kB, as bytes.
fn field(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .unwrap_or_default()
        << 10
}

/// From the file to the history. (200 turns are 400 messages.)
#[divan::bench(args = [400, 10_000])]
fn load(bencher: Bencher<'_, '_>, messages: usize) {
    let dir = session(messages);
    bencher.bench_local(|| {
        block_on(async {
            let store = Store::start(dir.path());
            let stored = store.load(&id(1)).await.unwrap();
            assert_eq!(stored.messages.len(), messages);
            store.stop().await;
        });
    });
}

/// The first page of 10,000 sessions, of one directory and of all.
#[divan::bench(args = [Some("/w"), None])]
fn first_page(bencher: Bencher<'_, '_>, cwd: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    many(|| Store::start(dir.path()), Path::new("/w"));
    let store = Store::start(dir.path());
    bencher.bench_local(|| {
        assert_eq!(
            block_on(store.list(cwd.map(Path::new), None, 100))
                .unwrap()
                .sessions
                .len(),
            100
        );
    });
}

/// One part, written and handed to the system.
#[divan::bench]
fn append(bencher: Bencher<'_, '_>) {
    let dir = session(100);
    let store = Store::start(dir.path());
    block_on(store.load(&id(1))).unwrap();
    let mut number = 1_000;
    bencher.bench_local(|| {
        number += 1;
        let message = message(number, &"word ".repeat(200));
        block_on(async {
            write(&store, &id(1), &message).await;
            // Answered when everything before it was written.
            store.children(&id(1)).await.unwrap();
        });
    });
}
