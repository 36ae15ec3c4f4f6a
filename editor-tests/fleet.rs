//! Hosts that share a database: a session continues on another one with all its data, and prompts
//! wait in the store for the next free host.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::client::Client;
use crate::database::Database;
use crate::editor::RESPONSE_TIMEOUT;
use crate::model::{self, Model};
use crate::parallel::run_in_parallel;
use crate::project::Project;
use crate::remote::authority;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 11] = [
    (
        "session on another host is complete",
        session_on_another_host_is_complete,
    ),
    ("trust applies on every host", trust_applies_on_every_host),
    ("prompt waits for a host", prompt_waits_for_a_host),
    (
        "prompt of a lost host continues on another",
        prompt_of_a_lost_host_continues_on_another,
    ),
    (
        "prompt is cancelled from another host",
        prompt_is_cancelled_from_another_host,
    ),
    (
        "stopping host passes its turn on at a step",
        stopping_host_passes_its_turn_on_at_a_step,
    ),
    (
        "host creates directories and wraps commands",
        host_creates_directories_and_wraps_commands,
    ),
    (
        "deployment files are valid settings",
        deployment_files_are_valid_settings,
    ),
    ("prompts survive killed hosts", prompts_survive_killed_hosts),
    ("database is reached over TLS", database_is_reached_over_tls),
    ("stalled database is reported", stalled_database_is_reported),
];

/// Returns a machine with a checkout of the project, and a store that others have.
pub(crate) fn host(url: &str, model: &Model, more: &Value) -> Project {
    let mut project = Project::new();
    project.provider(&model.base(), more);
    project.git();
    project.shell("git remote add origin https://git.example/team/app.git");
    project.set("ADJUTANT_STORE", Some(url));
    project
}

fn adjutant(project: &Project, words: &[&str]) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command
        .args(words)
        .current_dir(project.cwd())
        .output()
        .unwrap()
}

fn stdout_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// `adjutant serve --work`.
struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    fn start(project: &Project) -> Self {
        let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
        command
            .args(["serve", "--work", "--listen", "127.0.0.1:0"])
            .current_dir("/");
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let worker = Self { child, lines };
        worker.until("answers prompts from the store");
        worker
    }

    fn until(&self, text: &str) {
        while !self
            .lines
            .recv_timeout(RESPONSE_TIMEOUT)
            .unwrap_or_else(|_| panic!("it never says {text}"))
            .contains(text)
        {}
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn until(what: &str, happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(
            start.elapsed() < RESPONSE_TIMEOUT,
            "it never happens that {what}"
        );
        thread::sleep(Duration::from_millis(20)); // looked again
    }
}

/// Moves a session to another host: file contents, whole results and grants are there, and the
/// project may have another path.
fn session_on_another_host_is_complete() {
    let Some(database) = Database::get() else {
        return;
    };
    let url = database.fresh(5);
    let script = r#"
call read {"filePath":"a.txt"}
---
call write {"filePath":"a.txt","content":"two\n"}
---
call bash {"command":"seq 1 3000"}
---
text: Done.
---
begins anew
call bash {"command":"seq 1 5"}
---
text: Done again.
"#;
    let model = Model::start(model::script(script).unwrap());
    let settings = json!({ "permission": { "edit": "allow", "bash": "ask" } });
    let one = host(&url, &model, &settings);
    one.write("a.txt", "one\n");
    let mut client = Client::new(one);
    let session = client.open();
    client.prompt(2, &session, "Count.");
    let question = loop {
        let received = client.receive();
        if received["method"] == "session/request_permission" {
            break received;
        }
    };
    let options = question["params"]["options"].as_array().unwrap();
    let always = options
        .iter()
        .find(|option| option["kind"] == "allow_always")
        .unwrap()["optionId"]
        .clone();
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": always } });
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome }));
    client.answer(2);
    let one = client.leave();
    assert_eq!(std::fs::read_to_string(one.path("a.txt")).unwrap(), "two\n");

    let other = Arc::new(host(&url, &model, &settings));
    other.write("a.txt", "two\n");
    let mut client = Client::new(other.clone());
    let cwd = other.cwd();
    client.request(1, "session/list", &json!({ "cwd": cwd }));
    let listed = client.answer(1).0;
    assert_eq!(
        listed["result"]["sessions"][0]["sessionId"], session,
        "{listed}"
    );
    client.request(
        2,
        "session/load",
        &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
    );
    let (loaded, _) = client.answer(2);
    assert!(loaded.get("result").is_some(), "{loaded}");
    let kept: Vec<PathBuf> = std::fs::read_dir(other.path("~/.local/share/adjutant/tool-output"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let whole: String = (1..=3000).map(|n| format!("{n}\n")).collect();
    assert!(
        kept.iter()
            .any(|path| std::fs::read_to_string(path).unwrap() == whole),
        "{kept:?}"
    );
    // Not asked: it was allowed for good, on the other host.
    client.prompt(3, &session, "Count a little.");
    assert_eq!(client.answer(3).0["result"]["stopReason"], "end_turn");
    for id in [4, 5] {
        client.prompt(id, &session, "/undo");
        client.answer(id);
    }
    assert_eq!(
        std::fs::read_to_string(other.path("a.txt")).unwrap(),
        "one\n"
    );
    client.prompt(6, &session, "/redo");
    client.answer(6);
    assert_eq!(
        std::fs::read_to_string(other.path("a.txt")).unwrap(),
        "two\n"
    );
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Grants and revokes trust on different hosts.
fn trust_applies_on_every_host() {
    let Some(database) = Database::get() else {
        return;
    };
    let url = database.fresh(5);
    let model = Model::start(Vec::new());
    let hosts = [
        host(&url, &model, &Value::Null),
        host(&url, &model, &Value::Null),
    ];
    for host in &hosts {
        host.write(
            "opencode.json",
            r#"{"mcp":{"tool":{"type":"local","command":["true"]}}}"#,
        );
    }
    let [one, other] = &hosts;
    let state = |host: &Project| {
        stdout_text(&adjutant(host, &["trust"]))
            .lines()
            .last()
            .unwrap()
            .to_owned()
    };
    assert!(
        state(other).starts_with("Not decided yet"),
        "{}",
        state(other)
    );
    assert!(adjutant(one, &["trust", "--yes"]).status.success());
    assert!(stdout_text(&adjutant(other, &["trust"])).contains("is trusted"));
    assert!(adjutant(other, &["trust", "--revoke"]).status.success());
    assert!(state(one).starts_with("Not decided yet"), "{}", state(one));
    // Trust is bound to the contents of the files, whatever the path.
    assert!(adjutant(one, &["trust", "--yes"]).status.success());
    other.write(
        "opencode.json",
        r#"{"mcp":{"tool":{"type":"local","command":["false"]}}}"#,
    );
    assert!(
        state(other).starts_with("Not decided yet"),
        "{}",
        state(other)
    );
}

fn prompt_waits_for_a_host() {
    let Some(database) = Database::get() else {
        return;
    };
    let url = database.fresh(5);
    let model = Model::start(model::script("text: Forty-two.").unwrap());
    let mut project = host(&url, &model, &Value::Null);
    project.set("ADJUTANT_STORE", None);
    let put = adjutant(
        &project,
        &["run", "--store", &url, "--detach", "What is it?"],
    );
    let session = stdout_text(&put);
    assert!(
        put.status.success() && session.starts_with("ses_"),
        "{put:?}"
    );
    project.set("ADJUTANT_STORE", Some(&url));
    let shown = stdout_text(&adjutant(&project, &["sessions", "--all", "--running"]));
    assert!(
        shown.starts_with(&format!("{session}  waiting  -")),
        "{shown}"
    );
    let wrong = adjutant(&project, &["run", "--detach", "--format", "json", "Eh?"]);
    assert!(
        wrong.status.code() == Some(2) && wrong.stdout.is_empty(),
        "{wrong:?}"
    );
    let twice = adjutant(
        &project,
        &["run", "--session", &session, "--detach", "And again?"],
    );
    assert!(
        String::from_utf8_lossy(&twice.stderr).contains("has a prompt that waits"),
        "{twice:?}"
    );
    project.set("ADJUTANT_LOG", Some("info"));
    project.set("ADJUTANT_LOG_FORMAT", Some("json"));
    let worker = Worker::start(&project);
    let waited = adjutant(&project, &["sessions", "wait", &session]);
    assert_eq!(
        (waited.status.code(), stdout_text(&waited)),
        (Some(0), "Forty-two.".to_owned()),
        "{waited:?}"
    );
    until("nothing runs", || {
        stdout_text(&adjutant(&project, &["sessions", "--all", "--running"])) == "Nothing runs."
    });
    assert!(
        stdout_text(&adjutant(&project, &["sessions", "show", &session])).contains("Forty-two.")
    );
    worker.signal(Signal::TERM);
    until("it is logged", || {
        let days = std::fs::read_dir(project.path("~/.local/state/adjutant/log")).unwrap();
        let log: String = days
            .map(|day| std::fs::read_to_string(day.unwrap().path()).unwrap())
            .collect();
        let lines: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        lines.iter().any(|line| {
            line["message"]
                .as_str()
                .is_some_and(|words| words.contains(&session))
        })
    });
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn put(project: &Project, text: &str) -> String {
    let options = ["run", "--detach", "--format", "result", "--allow", text];
    let put = adjutant(project, &options);
    assert!(put.status.success(), "{put:?}");
    let result: Value = serde_json::from_slice(&put.stdout).unwrap();
    result["session"].as_str().unwrap().to_owned()
}

/// Kills a host: a call that has ended is not repeated.
fn prompt_of_a_lost_host_continues_on_another() {
    let Some(database) = Database::get() else {
        return;
    };
    let url = database.fresh(1);
    let script = "call bash {\"command\":\"echo once >>log\"}\n---\ntext: And now\nhang\n---\ntext: All done.\n";
    let model = Model::start(model::script(script).unwrap());
    let project = host(&url, &model, &Value::Null);
    let session = put(&project, "Do it.");
    let mut worker = Worker::start(&project);
    until("the second step begins", || model.requests().len() == 2);
    worker.child.kill().unwrap();
    worker.child.wait().unwrap();
    let _other = Worker::start(&project);
    let start = Instant::now();
    let waited = adjutant(&project, &["sessions", "wait", &session]);
    assert_eq!(
        (waited.status.code(), stdout_text(&waited)),
        (Some(0), "All done.".to_owned()),
        "{waited:?}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        std::fs::read_to_string(project.path("log")).unwrap(),
        "once\n"
    );
    let last = model.requests().pop().unwrap().to_string();
    assert!(
        last.contains("was lost or stopped") && last.contains("echo once"),
        "{last}"
    );
}

/// At any moment: a prompt is answered all the same, no call that ended is made once more, and none
/// is left out that was not interrupted. `ADJUTANT_LEASES=n` kills n hosts.
fn prompts_survive_killed_hosts() {
    const CALLS: usize = 4;
    let Some(database) = Database::get() else {
        return;
    };
    let kills = std::env::var("ADJUTANT_LEASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(8);
    let continued_count = AtomicUsize::new(0);
    let interrupted = AtomicUsize::new(0);
    let longest = AtomicU64::new(0);
    run_in_parallel(4, |number| {
        let mut random = fastrand::Rng::with_seed(number as u64);
        for round in 0..kills / 4 {
            let continued = Arc::new(AtomicBool::new(false));
            let received = continued.clone();
            let model = Model::answering_with(move |request| {
                let messages = request["messages"].as_array().unwrap();
                let lost = |message: &Value| {
                    message["content"]
                        .to_string()
                        .contains("another one continues it")
                };
                received.fetch_or(messages.iter().any(lost), Ordering::Relaxed);
                let results = messages
                    .iter()
                    .filter(|message| message["role"] == "tool")
                    .count();
                let call = json!({ "command": format!("sleep 0.05; echo {results} >>log") });
                let next = if results < CALLS {
                    format!("call bash {call}")
                } else {
                    "text: All done.".into()
                };
                model::script(&next).unwrap()
            });
            let project = host(&database.fresh(1), &model, &Value::Null);
            let session = put(&project, "Do it.");
            let mut worker = Worker::start(&project);
            thread::sleep(Duration::from_millis(random.u64(..800))); // the moment of the kill
            worker.child.kill().unwrap();
            worker.child.wait().unwrap();
            let killed = Instant::now();
            let _other = Worker::start(&project);
            let waited = adjutant(&project, &["sessions", "wait", &session]);
            longest.fetch_max(killed.elapsed().as_millis() as u64, Ordering::Relaxed);
            let answer = (waited.status.code(), stdout_text(&waited));
            assert_eq!(
                answer,
                (Some(0), "All done.".to_owned()),
                "{number}.{round}: {waited:?}"
            );
            let log = std::fs::read_to_string(project.path("log")).unwrap_or_default();
            let made: Vec<usize> = log.lines().map(|line| line.parse().unwrap()).collect();
            assert!(
                made.is_sorted_by(|one, next| one < next),
                "{number}.{round}: made twice: {made:?}"
            );
            assert!(
                made.len() >= CALLS - 1,
                "{number}.{round}: left out: {made:?}"
            );
            let last = adjutant(&project, &["sessions", "show", &session]);
            continued_count.fetch_add(
                usize::from(continued.load(Ordering::Relaxed)),
                Ordering::Relaxed,
            );
            interrupted.fetch_add(
                usize::from(stdout_text(&last).contains("— failed")),
                Ordering::Relaxed,
            );
        }
    });
    let number = |counted: &AtomicUsize| counted.load(Ordering::Relaxed);
    eprintln!(
        "{kills} hosts were killed, {} of them in a turn and {} in a call; the longest wait for the answer was {} ms",
        number(&continued_count),
        number(&interrupted),
        longest.load(Ordering::Relaxed)
    );
}

fn prompt_is_cancelled_from_another_host() {
    let Some(database) = Database::get() else {
        return;
    };
    let url = database.fresh(5);
    let model = Model::start(
        model::script("text: Wait\nhang\n---\nbegins anew\ntext: Wait\nhang\n").unwrap(),
    );
    let project = host(&url, &model, &Value::Null);
    let other = host(&url, &model, &Value::Null);
    let never = put(&project, "Never.");
    assert!(
        stdout_text(&adjutant(&other, &["sessions", "cancel", &never])).starts_with("cancelled")
    );
    assert_eq!(
        adjutant(&other, &["sessions", "wait", &never])
            .status
            .code(),
        Some(130)
    );
    let session = put(&project, "Do it.");
    let _worker = Worker::start(&project);
    until("the turn runs", || !model.requests().is_empty());
    assert!(
        stdout_text(&adjutant(&other, &["sessions", "cancel", &session])).starts_with("cancelled")
    );
    assert_eq!(
        adjutant(&other, &["sessions", "wait", &session])
            .status
            .code(),
        Some(130)
    );
    assert_eq!(
        adjutant(&other, &["sessions", "cancel", &session])
            .status
            .code(),
        Some(1)
    );
    // An editor's turn on another host is.
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Do it.");
    while client.receive()["params"]["update"]["content"]["text"] != "Wait" {}
    assert!(
        stdout_text(&adjutant(&other, &["sessions", "cancel", &session])).starts_with("cancelled")
    );
    assert_eq!(client.answer(2).0["result"]["stopReason"], "cancelled");
    client.leave();
}

/// Stops a host during a call: the call ends, and the other host continues with its result.
fn stopping_host_passes_its_turn_on_at_a_step() {
    let Some(database) = Database::get() else {
        return;
    };
    let url = database.fresh(5);
    let command = "until [ -e go ]; do sleep 0.02; done; echo once >>log";
    let call = format!(
        "call bash {}\n---\ntext: All done.\n",
        json!({ "command": command })
    );
    let model = Model::start(model::script(&call).unwrap());
    let project = host(&url, &model, &json!({ "serve": { "drain": 0 } }));
    let session = put(&project, "Do it.");
    let mut worker = Worker::start(&project);
    until("the call runs", || {
        !project
            .left_after(Duration::ZERO, |line| line.contains("sleep 0.02"))
            .is_empty()
    });
    worker.signal(Signal::TERM);
    worker.until("end at their next step");
    project.write("go", "");
    assert!(worker.child.wait().unwrap().success());
    assert_eq!(
        std::fs::read_to_string(project.path("log")).unwrap(),
        "once\n"
    );
    assert_eq!(model.requests().len(), 1, "no further step was begun");
    let shown = stdout_text(&adjutant(&project, &["sessions", "--all", "--running"]));
    assert!(
        shown.starts_with(&format!("{session}  waiting  -")),
        "{shown}"
    );
    let _other = Worker::start(&project);
    let waited = adjutant(&project, &["sessions", "wait", &session]);
    assert_eq!(
        (waited.status.code(), stdout_text(&waited)),
        (Some(0), "All done.".to_owned()),
        "{waited:?}"
    );
    assert_eq!(
        std::fs::read_to_string(project.path("log")).unwrap(),
        "once\n"
    );
}

/// A session follows its directory, which another host makes elsewhere.
fn host_creates_directories_and_wraps_commands() {
    let Some(database) = Database::get() else {
        return;
    };
    let url = database.fresh(5);
    let script = r#"
call write {"filePath":"a.txt","content":"made\n"}
---
call bash {"command":"echo $WRAPPED; pwd"}
---
sees: wrapped-ses_
text: Done.
"#;
    let model = Model::start(model::script(script).unwrap());
    let host = |name: &str| {
        let mut project = Project::new();
        project.set("ADJUTANT_STORE", Some(&url));
        project.write(
            "make",
            &format!("d=$HOME/{name}/$1; mkdir -p $d; echo making; echo $d"),
        );
        let make = project.path("make").display().to_string();
        let exec = ["env", "WRAPPED=wrapped-{session}", "IN={cwd}"];
        project.provider(
            &model.base(),
            &json!({ "serve": { "workspace": ["/bin/sh", make], "exec": exec } }),
        );
        project
    };
    let one = host("one");
    let other = host("two");
    let session = put(&one, "Do it.");
    let worker = Worker::start(&one);
    let waited = adjutant(&one, &["sessions", "wait", &session]);
    assert_eq!(
        (waited.status.code(), stdout_text(&waited)),
        (Some(0), "Done.".to_owned()),
        "{waited:?}"
    );
    let made = one.path(&format!("~/one/{session}/a.txt"));
    assert_eq!(std::fs::read_to_string(&made).unwrap(), "made\n");
    assert!(
        model
            .requests()
            .last()
            .unwrap()
            .to_string()
            .contains(&format!("/home/one/{session}")),
        "it is told where"
    );
    drop(worker);
    // As a clone of the same would be.
    let again = other.path(&format!("~/two/{session}/a.txt"));
    other.write(&format!("~/two/{session}/a.txt"), "made\n");
    let back = adjutant(&one, &["run", "--detach", "--session", &session, "/undo"]);
    assert!(back.status.success(), "{back:?}");
    let _worker = Worker::start(&other);
    let waited = adjutant(&other, &["sessions", "wait", &session]);
    assert!(stdout_text(&waited).contains("a.txt"), "{waited:?}");
    assert!(
        !again.exists() && made.exists(),
        "undone where the session is now"
    );
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Checks that the settings in the deployment files are valid.
fn deployment_files_are_valid_settings() {
    let yaml = |text: &str| -> Vec<Value> {
        text.split("\n---\n")
            .map(|one| serde_saphyr::from_str(one).unwrap())
            .collect()
    };
    let compose = yaml(include_str!("../crates/remote/src/deploy/compose.yaml"));
    assert_eq!(
        compose[0]["services"]["two"]["command"],
        json!(["adjutant", "serve", "--work"])
    );
    let kubernetes = yaml(include_str!("../crates/remote/src/deploy/kubernetes.yaml"));
    let kinds: Vec<&str> = kubernetes
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "Service"]);
    let inside = kubernetes[0]["data"]["adjutant.jsonc"].as_str().unwrap();
    for settings in [
        include_str!("../crates/remote/src/deploy/adjutant.jsonc"),
        inside,
    ] {
        let mut project = Project::new();
        project.set("PGPASSWORD", Some("secret"));
        project.write("~/.config/adjutant/adjutant.jsonc", settings);
        let checked = adjutant(&project, &["config", "check", "--json"]);
        let stdout = stdout_text(&checked);
        assert!(
            !stdout.contains("unknown") && !stdout.contains("wrong-type"),
            "{stdout}"
        );
        let shown = adjutant(&project, &["config"]);
        assert!(
            String::from_utf8_lossy(&shown.stdout).contains("4200"),
            "{shown:?}"
        );
    }
    let drain = |text: &str| {
        text.split("\"drain\": ")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(drain(inside), "45");
    let pod = &kubernetes[1]["spec"]["template"]["spec"];
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 45 + 10);
}

/// Makes the server accept TCP connections over TLS only, with this certificate and key.
fn serve_over_tls(database: &Database, certificate: &Path, key: &Path) {
    let Some(dir) = &database.dir else { return };
    let data = dir.join("data");
    for (from, name) in [(certificate, "server.crt"), (key, "server.key")] {
        let to = data.join(name);
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let owner = std::fs::metadata(&data).unwrap();
        let user = std::os::unix::fs::MetadataExt::uid(&owner);
        let group = std::os::unix::fs::MetadataExt::gid(&owner);
        std::os::unix::fs::chown(&to, Some(user), Some(group)).unwrap();
    }
    let mut settings = std::fs::OpenOptions::new()
        .append(true)
        .open(data.join("postgresql.conf"))
        .unwrap();
    writeln!(settings, "ssl = on").unwrap();
    std::fs::write(
        data.join("pg_hba.conf"),
        "hostssl all all 127.0.0.1/32 trust\n",
    )
    .unwrap();
    database.control(&["restart", "-m", "fast"]);
}

/// Stops the server and all it has started as they are, or lets them continue.
fn signal(database: &Database, signal: Signal) {
    let Some(dir) = &database.dir else { return };
    let text = std::fs::read_to_string(dir.join("data/postmaster.pid")).unwrap();
    let server: i32 = text.lines().next().unwrap().parse().unwrap();
    let parent = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1)?.parse::<i32>().ok())
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in std::iter::once(server).chain(pids.filter(|pid| parent(*pid) == Some(server))) {
        kill_process(Pid::from_raw(pid).unwrap(), signal).ok();
    }
}

/// The certificate has to be of the authority that is named, and for the name.
fn database_is_reached_over_tls() {
    let Ok(database) = Database::start() else {
        return;
    };
    let mut project = Project::new();
    authority(&project);
    serve_over_tls(
        &database,
        &project.path("~/certificate.pem"),
        &project.path("~/key.pem"),
    );
    let stranger = Project::new();
    authority(&stranger);
    let url = |host: &str, from: &Project| {
        let file = from.path("~/authority.pem").display().to_string();
        let url = database.fresh(5).replace("127.0.0.1", host);
        format!("{url}&sslmode=verify-full&sslrootcert={file}")
    };
    let doctor = |project: &mut Project, url: &str| {
        project.set("ADJUTANT_STORE", Some(url));
        stdout_text(&adjutant(project, &["doctor"]))
    };
    let known = url("localhost", &project);
    let report = doctor(&mut project, &known);
    assert!(
        report.contains("PostgreSQL at")
            && report.contains(", TLS, ")
            && report.contains("server 1"),
        "{report}"
    );
    let report = doctor(&mut project, &url("localhost", &stranger));
    assert!(
        report.contains("UnknownIssuer") || report.contains("certificate"),
        "{report}"
    );
    let plain = database.fresh(5);
    let report = doctor(&mut project, &plain);
    assert!(
        report.contains("pg_hba.conf"),
        "it takes none without TLS: {report}"
    );
}

/// Stops the database: every waiting client gets an error in bounded time.
fn stalled_database_is_reported() {
    let Ok(database) = Database::start() else {
        return;
    };
    let mut project = Project::new();
    project.set("ADJUTANT_STORE", Some(&database.fresh(5)));
    assert!(adjutant(&project, &["sessions", "--all"]).status.success());
    signal(&database, Signal::STOP);
    let start = Instant::now();
    let listed = adjutant(&project, &["sessions", "--all"]);
    signal(&database, Signal::CONT);
    let stderr = String::from_utf8_lossy(&listed.stderr).into_owned();
    assert!(
        !listed.status.success()
            && stderr.contains("the database cannot be reached (no connection for 10 s)"),
        "{listed:?}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(25),
        "{:?}",
        start.elapsed()
    );
    until("it is back", || {
        adjutant(&project, &["sessions", "--all"]).status.success()
    });
}
