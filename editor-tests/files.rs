//! Tests of settings and instructions in files, and of the web pages that they name: through the
//! command line, and through conversations with local test servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::loopback::Server;
use crate::model::{self, Model};
use crate::program::{adjutant, stdout_of};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 8] = [
    (
        "project is trusted and trust is revoked",
        project_is_trusted_and_trust_is_revoked,
    ),
    (
        "agent's processes cannot answer for the user",
        agents_processes_cannot_answer_for_the_user,
    ),
    (
        "agent's processes without ADJUTANT_CHILD cannot answer for the user",
        agents_processes_without_adjutant_child_cannot_answer_for_the_user,
    ),
    (
        "run without a terminal trusts nothing",
        run_without_a_terminal_trusts_nothing,
    ),
    (
        "instruction page is fetched before the first turn",
        instruction_page_is_fetched_before_the_first_turn,
    ),
    (
        "missing instruction page is reported",
        missing_instruction_page_is_reported,
    ),
    (
        "organisation's defaults are fetched in parallel",
        organisations_defaults_are_fetched_in_parallel,
    ),
    (
        "unavailable organisation's defaults are reported",
        unavailable_organisations_defaults_are_reported,
    ),
];

const ROOT: &str = "the project";

/// Returns a project whose settings loosen a rule of the user.
fn loose() -> Project {
    let project = Project::new();
    project.write(
        "~/.config/adjutant/adjutant.json",
        r#"{"permission":{"bash":"ask"}}"#,
    );
    project.write("opencode.json", r#"{"permission":{"bash":"allow"}}"#);
    project
}

/// Returns the output of a command, with [`ROOT`] in place of the project's path.
fn shown(project: &Project, words: &[&str]) -> String {
    stdout_of(project, words).replace(&project.cwd().display().to_string(), ROOT)
}

fn project_is_trusted_and_trust_is_revoked() {
    let project = loose();
    let item = "- looser rule permission.bash: bash *: allow (opencode.json:1)";
    assert_eq!(shown(&project, &["trust", "--list"]), "No decisions.\n");
    let rules = || stdout_of(&project, &["agents", "show", "build"]);
    assert!(!rules().contains("(opencode.json:1)"), "{}", rules());
    // Without a terminal, the list is shown, no question is asked, and nothing is decided.
    let output = adjutant(&project, &["trust"], "y\n");
    let shown_only = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{shown_only}");
    assert!(
        shown_only.contains(item) && !rules().contains("(opencode.json:1)"),
        "{shown_only}"
    );
    let no = shown(&project, &["trust", "--no"]);
    assert!(
        no.contains("Not trusted") && !rules().contains("(opencode.json:1)"),
        "{no}"
    );
    assert!(shown(&project, &["trust"]).contains("Not trusted: these are off."));
    let first = shown(&project, &["trust", "--yes"]);
    assert!(
        first.starts_with(&format!("The files of {ROOT} would do this:\n{item}\n")),
        "{first}"
    );
    assert!(first.contains("Trusted."), "{first}");
    assert!(rules().contains("opencode.json:1"), "{}", rules());
    assert_eq!(
        shown(&project, &["trust"]),
        format!("{ROOT} is trusted:\n{item}\n")
    );
    let list = shown(&project, &["trust", "--list"]);
    assert!(
        list.starts_with(&format!("{ROOT}: trusted (")) && list.contains(item),
        "{list}"
    );
    assert_eq!(
        shown(&project, &["trust", "--revoke"]),
        format!("Your answer about {ROOT} is withdrawn.\n")
    );
    assert_eq!(
        shown(&project, &["trust", "--revoke"]),
        format!("No decision about {ROOT} was stored.\n")
    );
    assert!(!rules().contains("opencode.json:1"), "{}", rules());
    project.write("opencode.json", "{}");
    assert_eq!(
        shown(&project, &["trust"]),
        format!("Nothing in {ROOT} needs trust.\n")
    );
}

/// Checks that a process cannot answer for the user if `ADJUTANT_CHILD` marks it as started by an
/// agent.
fn agents_processes_cannot_answer_for_the_user() {
    let project = loose();
    let binary = env!("CARGO_BIN_EXE_adjutant");
    for words in [
        "trust --yes",
        "trust",
        "permissions revoke bash",
        "sessions import x",
        "auth logout x",
        "agents create x",
    ] {
        let line = format!("ADJUTANT_CHILD=1:x {binary} {words} 2>&1 || true");
        let output = project.shell(&line);
        assert!(
            output.contains("only the user may do this"),
            "{words}: {output}"
        );
    }
    let output = project.shell(&format!("ADJUTANT_CHILD=1:x {binary} trust --list"));
    assert_eq!(output, "No decisions.\n");
}

/// Checks the same for a process that removes `ADJUTANT_CHILD`, calls adjutant by another name, or
/// outlives its parents: it is recognised as a descendant of adjutant, or by the sandbox.
fn agents_processes_without_adjutant_child_cannot_answer_for_the_user() {
    let binary = env!("CARGO_BIN_EXE_adjutant");
    let mut commands = vec![
        format!("env -u ADJUTANT_CHILD {binary} trust --yes 2>&1"),
        format!("cp {binary} x; env -u ADJUTANT_CHILD ./x trust --yes 2>&1"),
        format!("cp {binary} x; env -u ADJUTANT_CHILD ./x permissions revoke bash 2>&1"),
        format!(
            "printf '#!/bin/sh\nexec env -u ADJUTANT_CHILD {binary} trust --yes' > z; sh ./z 2>&1"
        ),
    ];
    if sandboxed() {
        // Started only after its parent has ended.
        let orphan = |name: &str| {
            let work = format!("cat go >/dev/null; ./{name} trust --yes >output 2>&1");
            format!(
                "mkfifo go output; (env -u ADJUTANT_CHILD setsid sh -c '{work}' &); echo >go; cat output"
            )
        };
        commands.push(format!("ln -s {binary} y; {}", orphan("y")));
        commands.push(format!("cp {binary} x; {}", orphan("x")));
    }
    for command in commands {
        let script = format!(
            "call bash {}\n---\nsees: only the user may do this\ntext: Done.\n",
            json!({ "command": command, "description": "Trust" })
        );
        let model = Model::start(model::script(&script).unwrap());
        let project = Project::new();
        // An orphan is recognised only by its sandbox.
        let sandbox = if command.contains("setsid") {
            json!({ "mode": "auto" })
        } else {
            json!("off")
        };
        project.provider(
            &model.base(),
            &json!({ "sandbox": sandbox, "permission": { "bash": "ask" } }),
        );
        project.write("opencode.json", r#"{"permission":{"bash":"allow"}}"#);
        let output = adjutant(&project, &["run", "--allow", "Trust it."], "");
        assert_eq!(
            output.status.code(),
            Some(0),
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(model.problems(), Vec::<String>::new(), "{command}");
        assert_eq!(
            stdout_of(&project, &["trust", "--list"]),
            "No decisions.\n",
            "{command}"
        );
    }
}

/// Returns whether this machine has a sandbox that still confines a command after its parents have
/// ended.
fn sandboxed() -> bool {
    let doctor = adjutant(&loose(), &["doctor", "--json"], "");
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    matches!(
        report["sandbox"]["workspaceWrite"]["mechanism"].as_str(),
        Some("bwrap" | "landlock")
    )
}

fn run_without_a_terminal_trusts_nothing() {
    let project = loose();
    // `--allow` and `--deny` answer questions about calls, not the question about trust, whose
    // answer is stored.
    for more in [&[][..], &["--allow"], &["--deny"]] {
        let words = [&["run", "run `true`"], more].concat();
        let output = adjutant(&project, &words, "");
        // Exit status 3 means that the command was rejected.
        assert!(
            matches!(output.status.code(), Some(0 | 3)),
            "{words:?}: {output:?}"
        );
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            stderr.contains("This project is not trusted"),
            "{words:?}: {stderr}"
        );
    }
    assert_eq!(stdout_of(&project, &["trust", "--list"]), "No decisions.\n");
    let output = adjutant(&project, &["run", "--format", "json", "hello"], "");
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert!(
        lines
            .iter()
            .any(|line| line["method"] == json!("session/request_permission"))
    );
}

/// Returns the text of a turn's updates.
fn update_text(updates: &[Value]) -> String {
    updates
        .iter()
        .filter_map(|update| update["content"]["text"].as_str())
        .collect()
}

fn instruction_page_is_fetched_before_the_first_turn() {
    let status = Arc::new(AtomicU16::new(200));
    let own = status.clone();
    let server = Server::start(move |_| {
        (
            own.load(Ordering::Relaxed),
            String::new(),
            "Speak of the weather.".into(),
        )
    });
    let script = "sees: Speak of the weather.\ntext: It rains.\n---\nsees: Speak of the weather.\ntext: It snows.\n";
    let model = Model::start(model::script(script).unwrap());
    let project = Project::new();
    project.provider(
        &model.base(),
        &json!({ "instructions": [format!("{}/rules.md", server.base())] }),
    );
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Hello.");
    assert_eq!(update_text(&client.answer(2).1), "It rains.");
    let project = client.leave();
    // If the server fails later, the stored page applies.
    status.store(500, Ordering::Relaxed);
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Hello again.");
    assert!(update_text(&client.answer(2).1).contains("It snows."));
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn missing_instruction_page_is_reported() {
    let server = Server::start(|_| (404, String::new(), "no".into()));
    let project = Project::new();
    let address = format!("{}/rules.md", server.base());
    project.write(
        "~/.config/adjutant/adjutant.json",
        &json!({ "instructions": [address] }).to_string(),
    );
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "hello");
    let words = update_text(&client.answer(2).1);
    assert!(
        words.contains(&format!(
            "The instructions at {address} could not be fetched, so they are missing"
        )),
        "{words}"
    );
    client.prompt(3, &session, "hello");
    let words = update_text(&client.answer(3).1);
    assert!(
        !words.contains("could not be fetched"),
        "reported once: {words}"
    );
    client.leave();
}

/// Returns a project of a user who is logged in to an organisation.
fn member(server: &Server) -> Project {
    let project = Project::new();
    let login =
        json!({ server.base(): { "type": "wellknown", "key": "ORG_TOKEN", "token": "t0ken" } });
    project.write("~/.local/share/adjutant/auth.json", &login.to_string());
    project
}

fn organisations_defaults_are_fetched_in_parallel() {
    let server = Server::start(|received| {
        let base = format!("http://{}", received.header("host").unwrap_or_default());
        let body = match received.path() {
            "/.well-known/opencode" => json!({ "config": { "username": "nobody" },
                "remote_config": { "url": format!("{base}/more"), "headers": { "x-token": "{env:ORG_TOKEN}{env:HOME}" } } }),
            _ => {
                json!({ "agent": { "auditor": { "mode": "primary", "description": "Audits for {env:ORG_TOKEN}." } } })
            }
        };
        (200, String::new(), body.to_string())
    });
    let mut client = Client::new(member(&server));
    let session = client.open();
    // The session opens without waiting for the server; a later turn has the agent, without a
    // restart.
    let started = Instant::now();
    let found = (2..).find(|id| {
        client.prompt(*id, &session, "hello");
        let updates = client.answer(*id).1;
        let options: Vec<_> = updates
            .iter()
            .filter(|u| u["sessionUpdate"] == "config_option_update")
            .collect();
        options
            .iter()
            .any(|update| update.to_string().contains("Audits for t0ken."))
            || started.elapsed() > RESPONSE_TIMEOUT
    });
    assert!(
        started.elapsed() <= RESPONSE_TIMEOUT,
        "no agent after {found:?} turns"
    );
    let asked: Vec<_> = server
        .received()
        .iter()
        .map(|received| received.path().to_owned())
        .collect();
    assert_eq!(asked, ["/.well-known/opencode", "/more"]);
    assert_eq!(
        server.received()[1].header("x-token"),
        Some("t0ken{env:HOME}")
    );
    let project = client.leave();
    assert!(stdout_of(&project, &["agents"]).contains("auditor"));
}

fn unavailable_organisations_defaults_are_reported() {
    let server = Server::start(|_| (200, String::new(), "<html>log in</html>".into()));
    let mut client = Client::new(member(&server));
    let session = client.open();
    let started = Instant::now();
    let found = (2..).find(|id| {
        client.prompt(*id, &session, "hello");
        let words = update_text(&client.answer(*id).1);
        words.contains("could not be fetched, so what they deny is not known: the server answered with a web page")
            || started.elapsed() > RESPONSE_TIMEOUT
    });
    assert!(
        started.elapsed() <= RESPONSE_TIMEOUT,
        "no report after {found:?} turns"
    );
    client.leave();
}
