//! Tests of sessions that a page cannot express: two processes with one store, the command line.

use std::process::Output;
use std::sync::Arc;

use base::environment::Timestamp;
use base::id::{MessageId, SessionId};
use serde_json::{Value, json};
use store::{Record, Store};
use transcript::{Message, ModelRef, Role, User};

use crate::client::Client;
use crate::editor::RESPONSE_TIMEOUT;
use crate::fleet::until;
use crate::model::{self, Model};
use crate::program;
use crate::project::Project;
use crate::runtime::block_on;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 10] = [
    (
        "session is taken over by another process",
        session_is_taken_over_by_another_process,
    ),
    ("run takes a session over", run_takes_a_session_over),
    (
        "session of a process that exits is loaded",
        session_of_a_process_that_exits_is_loaded,
    ),
    (
        "session is listed elsewhere from its first prompt",
        session_is_listed_elsewhere_from_its_first_prompt,
    ),
    (
        "title set during a load remains",
        title_set_during_a_load_remains,
    ),
    ("later of two choices applies", later_of_two_choices_applies),
    (
        "sessions work on the command line",
        sessions_work_on_the_command_line,
    ),
    (
        "session is exported as a page",
        session_is_exported_as_a_page,
    ),
    (
        "old sessions are deleted when the first one is opened",
        old_sessions_are_deleted_when_the_first_one_is_opened,
    ),
    (
        "whole results of last week are deleted",
        whole_results_of_last_week_are_deleted,
    ),
];

fn project(script: &str) -> (Model, Arc<Project>) {
    let model = Model::start(model::script(script).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &Value::Null);
    (model, project.into())
}

fn load(client: &mut Client, id: u64, session: &str) -> (Value, Vec<Value>) {
    let cwd = client.project.cwd();
    client.request(
        id,
        "session/load",
        &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
    );
    client.answer(id)
}

/// Takes a session over: the second client gets an error, asks again, and gets the session; the
/// first one's turn is cancelled, its user is notified, and can take it back.
fn session_is_taken_over_by_another_process() {
    let (model, project) = project("text: Once upon a time\nhang\n---\ntext: The end.\n");
    let mut first = Client::new(project.clone());
    let session = first.open();
    first.prompt(2, &session, "Tell me a story.");
    while first.receive()["params"]["update"]["content"]["text"] != "Once upon a time" {}
    let mut second = Client::new(project.clone());
    let (refused, _) = load(&mut second, 2, &session);
    let details = refused["error"]["data"]["details"].as_str().unwrap();
    assert!(
        details.contains(&format!("(number {})", first.editor.pid()))
            && details.contains("once more"),
        "{details}"
    );
    let (taken, updates) = load(&mut second, 3, &session);
    assert!(taken.get("result").is_some(), "{taken}");
    assert_eq!(
        updates[1]["content"]["text"], "Once upon a time",
        "what was said so far is there: {updates:?}"
    );
    let (cancelled, updates) = first.answer(2);
    assert_eq!(cancelled["result"]["stopReason"], "cancelled");
    let told = |update: &Value| {
        update["content"]["text"]
            .as_str()
            .is_some_and(|text| text.contains("taken over this session"))
    };
    assert!(updates.iter().any(told), "{updates:?}");
    first.prompt(4, &session, "Go on.");
    let (refused, _) = first.answer(4);
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("load it again"),
        "{refused}"
    );
    second.prompt(5, &session, "Go on.");
    assert_eq!(second.answer(5).0["result"]["stopReason"], "end_turn");
    // And back.
    assert!(load(&mut first, 6, &session).0.get("error").is_some());
    let (back, updates) = load(&mut first, 7, &session);
    assert!(back.get("result").is_some(), "{back}");
    assert!(
        updates
            .iter()
            .any(|update| update["content"]["text"] == "The end."),
        "{updates:?}"
    );
    first.leave();
    second.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// `run` is refused a session that an editor has open, unless it takes it over.
fn run_takes_a_session_over() {
    let (model, project) =
        project("text: Once upon a time\nhang\n---\nbegins anew\ntext: The end.\n");
    let mut editor = Client::new(project.clone());
    let session = editor.open();
    editor.prompt(2, &session, "Tell me a story.");
    while editor.receive()["params"]["update"]["content"]["text"] != "Once upon a time" {}
    let refused = program::stderr_of(&project, &["run", "--session", &session, "Go on."]);
    assert!(
        refused.contains(&format!("(number {})", editor.editor.pid()))
            && refused.contains("take it over with --take-over"),
        "{refused}"
    );
    let own = program::stderr_of(&project, &["run", "--take-over", "Go on."]);
    assert!(own.contains("--take-over is for an open session"), "{own}");
    let taken = ["run", "--session", &session, "--take-over", "Go on."];
    assert_eq!(program::stdout_of(&project, &taken), "The end.\n");
    let (cancelled, _) = editor.answer(2);
    assert_eq!(cancelled["result"]["stopReason"], "cancelled");
    // It is free again.
    let (back, updates) = load(&mut editor, 3, &session);
    assert!(back.get("result").is_some(), "{back}");
    let said = |text: &str| {
        updates
            .iter()
            .any(|update| update["content"]["text"] == text)
    };
    assert!(said("Once upon a time") && said("The end."), "{updates:?}");
    editor.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// The editor starts another process and loads the session there while the first one is ending.
fn session_of_a_process_that_exits_is_loaded() {
    let model = Model::start(model::script("text: Hello.").unwrap());
    let project = Project::new();
    let slow = "echo >ending; while [ ! -e go ]; do sleep 0.01; done";
    let hook = json!({ "on": "session.end", "command": ["sh", "-c", slow] });
    project.provider(&model.base(), &json!({ "hook": { "slow": hook } }));
    let project = Arc::new(project);
    let mut first = Client::new(project.clone());
    let session = first.open();
    first.prompt(2, &session, "Hello.");
    first.answer(2);
    let mut second = Client::new(project.clone());
    first.editor.close_stdin();
    until("the first process ends", || project.path("ending").exists());
    let params = json!({ "sessionId": session, "cwd": project.cwd(), "mcpServers": [] });
    second.request(2, "session/load", &params);
    project.write("go", "");
    let (loaded, updates) = second.answer(2);
    assert!(loaded.get("result").is_some(), "{loaded}");
    let shown = json!(updates).to_string();
    assert!(shown.contains("Hello."), "{shown}");
    first.leave();
    second.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Stores files with whole results for a week. The process that opens a session first looks for old
/// ones; no other does within the hour.
fn whole_results_of_last_week_are_deleted() {
    let (_model, project) = project("text: Hello.\n---\ntext: Hello.\n");
    let week = std::time::Duration::from_secs(7 * 24 * 60 * 60);
    let result = |name: &str, old: bool| {
        let path = project.path(&format!("~/.local/share/adjutant/tool-output/{name}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        if old {
            file.set_modified(std::time::SystemTime::now() - week - week)
                .unwrap();
        }
        path
    };
    let work = || {
        let mut client = Client::new(project.clone());
        let session = client.open();
        client.prompt(2, &session, "Hello?");
        client.answer(2);
        // The end of the process waits for the look around.
        client.leave();
    };
    let old = result("old", true);
    let new = result("new", false);
    work();
    assert!(!old.exists() && new.exists());
    let older = result("older", true);
    work();
    assert!(older.exists(), "another process has looked within the hour");
}

fn session_is_listed_elsewhere_from_its_first_prompt() {
    let (_model, project) = project("text: Hello.\n");
    let mut first = Client::new(project.clone());
    let session = first.open();
    let mut second = Client::new(project.clone());
    // No other process knows of it before its first message.
    let unknown = load(&mut second, 2, &session).0;
    assert!(
        unknown["error"]["message"]
            .as_str()
            .unwrap()
            .contains("There is no session"),
        "{unknown}"
    );
    first.prompt(3, &session, "Hello?");
    first.answer(3);
    assert!(
        load(&mut second, 3, &session).0["error"]["message"]
            .as_str()
            .unwrap()
            .contains("is open in another")
    );
    // A killed process does not lock others out.
    first.editor.signal(rustix::process::Signal::KILL);
    let gone = first.editor.finish();
    assert!(gone.status.is_some());
    let (loaded, _) = load(&mut second, 4, &session);
    assert!(loaded.get("result").is_some(), "{loaded}");
    second.leave();
}

/// Receives this number of answers, in order of arrival.
fn answers(client: &mut Client, count: usize) -> Vec<Value> {
    let mut answers = Vec::new();
    while answers.len() < count {
        answers.extend(Some(client.receive()).filter(|message| message.get("id").is_some()));
    }
    answers
}

/// Sets a title while the session is loaded: it remains, no title is generated, and no client is
/// notified of one.
fn title_set_during_a_load_remains() {
    let (model, project) = project("text: Hello.\n");
    let id = SessionId::new("ses_00000001");
    block_on(async {
        let store = Store::start(&project.path("~/.local/share/adjutant"));
        store
            .create(&Record::new(id.clone(), project.cwd(), Timestamp(1)))
            .await
            .unwrap();
        store.write_message(&id, &hello()).await;
        store.stop().await;
    });
    let mut client = Client::new(project);
    let cwd = client.project.cwd();
    client.request(
        2,
        "session/load",
        &json!({ "sessionId": id.as_str(), "cwd": cwd, "mcpServers": [] }),
    );
    client.request(
        3,
        "session/set_title",
        &json!({ "sessionId": id.as_str(), "title": "Mine" }),
    );
    let answers = answers(&mut client, 2);
    assert!(
        answers.iter().all(|answer| answer.get("result").is_some()),
        "{answers:?}"
    );
    client.prompt(4, id.as_str(), "Something else");
    let (answer, updates) = client.answer(4);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let titles = updates
        .iter()
        .filter(|update| update["sessionUpdate"] == "session_info_update");
    let others: Vec<&Value> = titles.filter(|update| update["title"] != "Mine").collect();
    assert!(others.is_empty(), "{others:?}");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Tests it also while the earlier one waits, for the load of its session and for the trial of the
/// sandbox.
fn later_of_two_choices_applies() {
    let model = Model::start(model::script("text: Hello.\n").unwrap());
    let project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "Hello?");
    client.answer(2);
    let mut client = Client::new(client.leave());
    let params = json!({ "sessionId": session, "cwd": client.project.cwd(), "mcpServers": [] });
    client.request(3, "session/resume", &params);
    for (id, word) in [(4, "sandboxed"), (5, "ask")] {
        let choice = json!({ "sessionId": session, "configId": "approvals", "value": word });
        client.request(id, "session/set_config_option", &choice);
    }
    let answers = answers(&mut client, 3);
    // Where no sandbox holds, the first choice is refused.
    assert_eq!(
        answers
            .iter()
            .map(|answer| answer["id"].clone())
            .collect::<Vec<_>>(),
        [3, 4, 5],
        "{answers:?}"
    );
    let steer = json!({ "sessionId": session, "configId": "steer", "value": "off" });
    client.request(6, "session/set_config_option", &steer);
    let options = client.answer(6).0["result"]["configOptions"].take();
    let approvals = options
        .as_array()
        .unwrap()
        .iter()
        .find(|option| option["id"] == "approvals")
        .unwrap();
    assert_eq!(approvals["currentValue"], "ask", "{options}");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Runs `adjutant sessions …`.
fn sessions(project: &Project, arguments: &[&str]) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command
        .arg("sessions")
        .args(arguments)
        .current_dir(project.cwd());
    command.output().unwrap()
}

fn stdout_of(project: &Project, arguments: &[&str]) -> String {
    let output = sessions(project, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn sessions_work_on_the_command_line() {
    let (_model, project) =
        project("text: The wildcard is matched in rule.rs.\n---\ntext: Nothing.\n");
    let mut client = Client::new(project.clone());
    let first = client.open();
    let second = client.open();
    client.prompt(2, &first, "Where is the wildcard matched?");
    client.answer(2);
    client.prompt(3, &second, "And what else?");
    client.answer(3);
    // While an editor has them open: everything can be read, nothing can be changed.
    let list = stdout_of(&project, &[]);
    assert!(
        list.contains(&first) && list.contains("Where is the wildcard matched"),
        "{list}"
    );
    assert!(stdout_of(&project, &["search", "RULE.rs"]).contains(&first));
    assert!(stdout_of(&project, &["show", &first]).contains("The wildcard is matched in rule.rs."));
    assert!(
        !sessions(&project, &["search", "no such words"])
            .status
            .success()
    );
    let refused = sessions(&project, &["delete", &first]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("is open in another adjutant process"),
        "{refused:?}"
    );
    client.leave();

    stdout_of(&project, &["rename", &first, "Wildcards,", "mine"]);
    assert!(stdout_of(&project, &["list"]).contains("Wildcards, mine"));
    // Scripts get the fields that a user would ask for, and nothing about the storage.
    let listed: Value = serde_json::from_str(&stdout_of(&project, &["list", "--json"])).unwrap();
    let keys: Vec<&str> = listed[0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let wanted = [
        "additionalDirectories",
        "agent",
        "archived",
        "changed",
        "cost",
        "created",
        "cwd",
        "id",
        "model",
        "parent",
        "summary",
        "title",
        "undoneTurns",
        "updated",
    ];
    assert_eq!(
        keys.iter()
            .copied()
            .collect::<std::collections::BTreeSet<_>>(),
        wanted.into()
    );
    // Out and in again: under the same id when it is free, under another when it is taken.
    let file = project.path("tmp:exported.json");
    let path = file.display().to_string();
    stdout_of(&project, &["export", &first, "-o", &path]);
    let copy = stdout_of(&project, &["import", &path]);
    assert!(!copy.contains(&first), "{copy}");
    stdout_of(&project, &["delete", &first]);
    assert!(stdout_of(&project, &["import", &path]).contains(&first));
    let again = stdout_of(&project, &["export", &first]);
    assert_eq!(again.trim(), std::fs::read_to_string(&file).unwrap().trim());
    for (text, words) in [
        ("{}", "not an exported session"),
        ("{\"adjutant\":99}", "newer"),
        ("[1", "not an exported session"),
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = sessions(&project, &["import", &path]);
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains(words),
            "{refused:?}"
        );
    }
    // Only the user's own settings set the retention; a project's do not.
    project.write("opencode.json", "{\"sessions\": {\"keep_days\": 1}}");
    let pruned = stdout_of(&project, &["prune", "--dry-run"]);
    assert!(
        pruned.contains("would delete 0 sessions") && pruned.contains("Only empty sessions"),
        "{pruned}"
    );
    assert!(stdout_of(&project, &["prune", "--days", "0"]).contains("deleted 3 sessions"));
    assert!(stdout_of(&project, &["list"]).contains("No sessions in this project"));
    let unknown = sessions(&project, &["show", "ses_nothing1"]);
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("no session ses_nothing1"),
        "{unknown:?}"
    );
}

/// Sets a retention period: the first session that a process opens has older ones deleted, children
/// too.
fn old_sessions_are_deleted_when_the_first_one_is_opened() {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    let project = Project::new();
    project.settings(&json!({ "sessions": { "keep_days": 30 } }));
    let data = project.path("~/.local/share/adjutant");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    block_on(async {
        let store = Store::start(&data);
        for (id, days, parent) in [
            ("ses_00000001", 31, None),
            ("ses_00000002", 31, Some("ses_00000001")),
            ("ses_00000003", 29, None),
            // Used lately, and begun long ago.
            ("ses_00000004", 0, None),
        ] {
            let record = Record {
                title: Some(format!("{days} days ago")),
                updated: Timestamp(now - days * DAY),
                parent: parent.map(SessionId::new),
                ..Record::new(
                    SessionId::new(id),
                    project.cwd(),
                    Timestamp(now - 400 * DAY),
                )
            };
            store.create(&record).await.unwrap();
            store.write_message(&record.id, &hello()).await;
            store.flush(&record.id).await.unwrap();
        }
        store.stop().await;
    });
    let files = || {
        let files = std::fs::read_dir(data.join("sessions")).unwrap().flatten();
        let names = files.map(|file| file.file_name().into_string().unwrap());
        let mut old: Vec<String> = names
            .filter(|name| name.starts_with("ses_0") && name.ends_with(".db"))
            .collect();
        old.sort();
        old
    };
    assert_eq!(files().len(), 4);
    let mut client = Client::new(project);
    let opened = client.open();
    // It is done in parallel.
    let start = std::time::Instant::now();
    while files().len() > 2 && start.elapsed() < RESPONSE_TIMEOUT {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(files(), ["ses_00000003.db", "ses_00000004.db"]);
    client.request(2, "session/list", &json!({}));
    let (listed, _) = client.answer(2);
    let ids: Vec<&str> = listed["result"]["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|s| s["sessionId"].as_str())
        .collect();
    // A session that was only opened is not listed.
    assert!(!ids.contains(&opened.as_str()));
    assert_eq!(ids, ["ses_00000004", "ses_00000003"]);
    client.leave();
}

fn hello() -> Message {
    let model = ModelRef {
        provider: "bench".into(),
        model: "bench-model".into(),
        effort: None,
    };
    let role = Role::User(User {
        agent: "build".into(),
        model,
    });
    Message {
        id: MessageId::new("msg_00000001"),
        created: Timestamp(1),
        role,
        parts: Vec::new(),
    }
}

/// Text of a hostile repository for an exported page.
const HOSTILE: &str = "</pre></details><script>alert(1)</script><img src=x onerror=alert(1)>\"'&[x](javascript:alert(1))\u{1b}[31m";

fn session_is_exported_as_a_page() {
    let call = json!({ "filePath": "hostile.txt" });
    let script = format!(
        "text: {}\ncall read {call}\nusage 1200 30\n---\ntext: Done: {}\nusage 1500 60\n",
        json!(HOSTILE),
        "see `rule.rs`"
    );
    let model = Model::start(model::script(&script).unwrap());
    let project = Arc::new(Project::new());
    project.provider(&model.base(), &Value::Null);
    project.write("hostile.txt", HOSTILE);
    let mut client = Client::new(project.clone());
    let session = client.open();
    client.prompt(2, &session, HOSTILE);
    let (answer, _) = client.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    client.leave();
    let page = stdout_of(&project, &["export", "--format", "html", "last"]);
    let body = page.split_once("<body>").unwrap().1;
    let tags: Vec<&str> = body
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split('>').next())
        .collect();
    for bad in ["script", "img", "iframe", "link", "object"] {
        assert!(
            !tags.iter().any(|tag| tag.starts_with(bad)),
            "{bad}: {tags:?}"
        );
    }
    assert!(
        !tags
            .iter()
            .any(|tag| tag.contains("onerror") || tag.contains("javascript")),
        "{tags:?}"
    );
    assert!(!page.contains('\u{1b}'));
    let fetching: Vec<&&str> = tags
        .iter()
        .filter(|tag| tag.contains("src=") || tag.contains("http://"))
        .collect();
    assert_eq!(fetching, Vec::<&&str>::new());
    assert!(page.contains("default-src 'none'") && page.contains("<svg class=\"chart\""));
    assert!(body.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    let opened = body.matches("<details").count();
    let closed = body.matches("</details>").count();
    assert_eq!(opened, closed);
    assert_eq!(model.problems(), Vec::<String>::new());
}
