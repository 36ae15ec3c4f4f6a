//! Sessions that need more than a page: two processes with one store, the command line.

use std::process::Output;
use std::sync::Arc;

use base::environment::Timestamp;
use base::id::{MessageId, SessionId};
use serde_json::{Value, json};
use store::{Record, Store};
use transcript::{Message, ModelRef, Role, User};

use crate::editor::PATIENCE;
use crate::model::{self, Model};
use crate::project::Project;
use crate::talk::Talk;

/// A name, and what to do.
pub const ALL: [(&str, fn()); 8] = [
    ("taken over by another process", taken_over),
    ("known to others from its first prompt", first_prompt),
    ("a title while it is loaded", titled_while_loaded),
    ("of two choices the later one stays", the_later_choice_stays),
    ("on the command line", command_line),
    ("as a page", as_a_page),
    ("old ones go when the first one is opened", pruned),
    ("whole results of last week go", results_of_last_week),
];

fn project(script: &str) -> (Model, Arc<Project>) {
    let model = Model::start(model::script(script).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &Value::Null);
    (model, project.into())
}

fn load(talk: &mut Talk, id: u64, session: &str) -> (Value, Vec<Value>) {
    let cwd = talk.project.cwd();
    talk.request(id, "session/load", &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }));
    talk.answer(id)
}

/// The second editor is told, asks again, and gets the session; the first one's turn is cancelled, its
/// user is told, and can take it back.
fn taken_over() {
    let (model, project) = project("text: Once upon a time\nhang\n---\ntext: The end.\n");
    let mut first = Talk::new(project.clone());
    let session = first.open();
    first.prompt(2, &session, "Tell me a story.");
    while first.hear()["params"]["update"]["content"]["text"] != "Once upon a time" {}
    let mut second = Talk::new(project.clone());
    let (refused, _) = load(&mut second, 2, &session);
    let details = refused["error"]["data"]["details"].as_str().unwrap();
    assert!(
        details.contains(&format!("(number {})", first.editor.pid())) && details.contains("once more"),
        "{details}"
    );
    let (taken, updates) = load(&mut second, 3, &session);
    assert!(taken.get("result").is_some(), "{taken}");
    assert_eq!(updates[1]["content"]["text"], "Once upon a time", "what was said so far is there: {updates:?}");
    let (cancelled, updates) = first.answer(2);
    assert_eq!(cancelled["result"]["stopReason"], "cancelled");
    let told = |update: &Value| {
        update["content"]["text"].as_str().is_some_and(|text| text.contains("taken this session over"))
    };
    assert!(updates.iter().any(told), "{updates:?}");
    first.prompt(4, &session, "Go on.");
    let (refused, _) = first.answer(4);
    assert!(refused["error"]["message"].as_str().unwrap().contains("load it again"), "{refused}");
    second.prompt(5, &session, "Go on.");
    assert_eq!(second.answer(5).0["result"]["stopReason"], "end_turn");
    // And back.
    assert!(load(&mut first, 6, &session).0.get("error").is_some());
    let (back, updates) = load(&mut first, 7, &session);
    assert!(back.get("result").is_some(), "{back}");
    assert!(updates.iter().any(|update| update["content"]["text"] == "The end."), "{updates:?}");
    first.leave();
    second.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Files with whole results are kept for a week. Whichever process opens a session first looks for old
/// ones; within the hour no other does.
fn results_of_last_week() {
    let (_model, project) = project("text: Hello.\n---\ntext: Hello.\n");
    let week = std::time::Duration::from_secs(7 * 24 * 60 * 60);
    let result = |name: &str, old: bool| {
        let path = project.path(&format!("~/.local/share/adjutant/tool-output/{name}"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        if old {
            file.set_modified(std::time::SystemTime::now() - week - week).unwrap();
        }
        path
    };
    let work = || {
        let mut talk = Talk::new(project.clone());
        let session = talk.open();
        talk.prompt(2, &session, "Hello?");
        talk.answer(2);
        // The end of the process waits for the look around.
        talk.leave();
    };
    let (old, new) = (result("old", true), result("new", false));
    work();
    assert!(!old.exists() && new.exists());
    let older = result("older", true);
    work();
    assert!(older.exists(), "another process has looked within the hour");
}

fn first_prompt() {
    let (_model, project) = project("text: Hello.\n");
    let mut first = Talk::new(project.clone());
    let session = first.open();
    let mut second = Talk::new(project.clone());
    // Nobody else knows of it before something is said.
    let unknown = load(&mut second, 2, &session).0;
    assert!(unknown["error"]["message"].as_str().unwrap().contains("There is no session"), "{unknown}");
    first.prompt(3, &session, "Hello?");
    first.answer(3);
    assert!(load(&mut second, 3, &session).0["error"]["message"].as_str().unwrap().contains("is open in another"));
    // A killed process keeps nobody out.
    first.editor.signal(rustix::process::Signal::KILL);
    let gone = first.editor.finish();
    assert!(gone.status.is_some());
    let (loaded, _) = load(&mut second, 4, &session);
    assert!(loaded.get("result").is_some(), "{loaded}");
    second.leave();
}

/// So many answers, as they come.
fn answers(talk: &mut Talk, count: usize) -> Vec<Value> {
    let mut answers = Vec::new();
    while answers.len() < count {
        answers.extend(Some(talk.hear()).filter(|message| message.get("id").is_some()));
    }
    answers
}

/// What its user calls a session while it is on its way is what it is called from then on: no title is made up for
/// it, and the editor is told of none.
fn titled_while_loaded() {
    let (model, project) = project("text: Hello.\n");
    let id = SessionId::new("ses_00000001");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = Store::start(&project.path("~/.local/share/adjutant"));
        store.create(&Record::new(id.clone(), project.cwd(), Timestamp(1))).await.unwrap();
        store.message(&id, &hello()).await;
        store.stop().await;
    });
    let mut talk = Talk::new(project);
    let cwd = talk.project.cwd();
    talk.request(2, "session/load", &json!({ "sessionId": id.as_str(), "cwd": cwd, "mcpServers": [] }));
    talk.request(3, "session/set_title", &json!({ "sessionId": id.as_str(), "title": "Mine" }));
    let answers = answers(&mut talk, 2);
    assert!(answers.iter().all(|answer| answer.get("result").is_some()), "{answers:?}");
    talk.prompt(4, id.as_str(), "Something else");
    let (answer, updates) = talk.answer(4);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let titles = updates.iter().filter(|update| update["sessionUpdate"] == "session_info_update");
    let others: Vec<&Value> = titles.filter(|update| update["title"] != "Mine").collect();
    assert!(others.is_empty(), "{others:?}");
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Also where the earlier one waits, for the load of its session and until the sandbox for commands was tried.
fn the_later_choice_stays() {
    let model = Model::start(model::script("text: Hello.\n").unwrap());
    let project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    let mut talk = Talk::new(project);
    let session = talk.open();
    talk.prompt(2, &session, "Hello?");
    talk.answer(2);
    let mut talk = Talk::new(talk.leave());
    let place = json!({ "sessionId": session, "cwd": talk.project.cwd(), "mcpServers": [] });
    talk.request(3, "session/resume", &place);
    for (id, word) in [(4, "sandboxed"), (5, "ask")] {
        let choice = json!({ "sessionId": session, "configId": "approvals", "value": word });
        talk.request(id, "session/set_config_option", &choice);
    }
    let answers = answers(&mut talk, 3);
    // Where no sandbox holds, the first choice is refused.
    assert_eq!(answers.iter().map(|answer| answer["id"].clone()).collect::<Vec<_>>(), [3, 4, 5], "{answers:?}");
    let steer = json!({ "sessionId": session, "configId": "steer", "value": "off" });
    talk.request(6, "session/set_config_option", &steer);
    let options = talk.answer(6).0["result"]["configOptions"].take();
    let approvals = options.as_array().unwrap().iter().find(|option| option["id"] == "approvals").unwrap();
    assert_eq!(approvals["currentValue"], "ask", "{options}");
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// Runs `adjutant sessions …`.
fn sessions(project: &Project, arguments: &[&str]) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.arg("sessions").args(arguments).current_dir(project.cwd());
    command.output().unwrap()
}

fn said(project: &Project, arguments: &[&str]) -> String {
    let output = sessions(project, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn command_line() {
    let (_model, project) = project("text: The wildcard is matched in rule.rs.\n---\ntext: Nothing.\n");
    let mut talk = Talk::new(project.clone());
    let (first, second) = (talk.open(), talk.open());
    talk.prompt(2, &first, "Where is the wildcard matched?");
    talk.answer(2);
    talk.prompt(3, &second, "And what else?");
    talk.answer(3);
    // While an editor has them open: everything can be read, nothing can be changed.
    let list = said(&project, &[]);
    assert!(list.contains(&first) && list.contains("Where is the wildcard matched"), "{list}");
    assert!(said(&project, &["search", "RULE.rs"]).contains(&first));
    assert!(said(&project, &["show", &first]).contains("The wildcard is matched in rule.rs."));
    assert!(!sessions(&project, &["search", "no such words"]).status.success());
    let refused = sessions(&project, &["delete", &first]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is open in another adjutant process"), "{refused:?}");
    talk.leave();

    said(&project, &["rename", &first, "Wildcards,", "mine"]);
    assert!(said(&project, &["list"]).contains("Wildcards, mine"));
    // Scripts are told what a user would ask for, and nothing of how it is kept.
    let listed: Value = serde_json::from_str(said(&project, &["list", "--json"]).lines().next().unwrap()).unwrap();
    let keys: Vec<&str> = listed.as_object().unwrap().keys().map(String::as_str).collect();
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
        "title",
        "updated",
    ];
    assert_eq!(keys.iter().copied().collect::<std::collections::BTreeSet<_>>(), wanted.into());
    // Out and in again: under the same id when it is free, under another when it is taken.
    let file = project.path("tmp:exported.json");
    let path = file.display().to_string();
    said(&project, &["export", &first, "-o", &path]);
    let copy = said(&project, &["import", &path]);
    assert!(!copy.contains(&first), "{copy}");
    said(&project, &["delete", &first]);
    assert!(said(&project, &["import", &path]).contains(&first));
    let again = said(&project, &["export", &first]);
    assert_eq!(again.trim(), std::fs::read_to_string(&file).unwrap().trim());
    for (text, words) in
        [("{}", "not an exported session"), ("{\"adjutant\":99}", "newer"), ("[1", "not an exported session")]
    {
        std::fs::write(&file, text).unwrap();
        let refused = sessions(&project, &["import", &path]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains(words), "{refused:?}");
    }
    // Only the user's own settings say what is old; a project's do not.
    project.write("opencode.json", "{\"sessions\": {\"keep_days\": 1}}");
    let pruned = said(&project, &["prune", "--dry-run"]);
    assert!(pruned.contains("would delete 0 sessions") && pruned.contains("Only empty sessions"), "{pruned}");
    assert!(said(&project, &["prune", "--days", "0"]).contains("deleted 3 sessions"));
    assert!(said(&project, &["list"]).contains("No sessions in this project"));
    let unknown = sessions(&project, &["show", "ses_nothing1"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no session ses_nothing1"), "{unknown:?}");
}

/// Who says how long sessions are kept has the older ones deleted, children too, by the first session
/// that a process opens.
fn pruned() {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    let project = Project::new();
    project.settings(&json!({ "sessions": { "keep_days": 30 } }));
    let data = project.path("~/.local/share/adjutant");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
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
                ..Record::new(SessionId::new(id), project.cwd(), Timestamp(now - 400 * DAY))
            };
            store.create(&record).await.unwrap();
            store.message(&record.id, &hello()).await;
            store.flush(&record.id).await.unwrap();
        }
        store.stop().await;
    });
    let files = || {
        let files = std::fs::read_dir(data.join("sessions")).unwrap().flatten();
        let names = files.map(|file| file.file_name().into_string().unwrap());
        let mut old: Vec<String> = names.filter(|name| name.starts_with("ses_0") && name.ends_with(".db")).collect();
        old.sort();
        old
    };
    assert_eq!(files().len(), 4);
    let mut talk = Talk::new(project);
    let opened = talk.open();
    // It is done beside the conversation.
    let start = std::time::Instant::now();
    while files().len() > 2 && start.elapsed() < PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(files(), ["ses_00000003.db", "ses_00000004.db"]);
    talk.request(2, "session/list", &json!({}));
    let (listed, _) = talk.answer(2);
    let ids: Vec<&str> =
        listed["result"]["sessions"].as_array().unwrap().iter().filter_map(|s| s["sessionId"].as_str()).collect();
    // What was only opened is not listed.
    assert!(!ids.contains(&opened.as_str()));
    assert_eq!(ids, ["ses_00000004", "ses_00000003"]);
    talk.leave();
}

fn hello() -> Message {
    let model = ModelRef { provider: "bench".into(), model: "bench-model".into(), effort: None };
    let role = Role::User(User { agent: "build".into(), model });
    Message { id: MessageId::new("msg_00000001"), created: Timestamp(1), role, parts: Vec::new() }
}

/// What a hostile repository would put into a page that is passed on.
const HOSTILE: &str =
    "</pre></details><script>alert(1)</script><img src=x onerror=alert(1)>\"'&[x](javascript:alert(1))\u{1b}[31m";

fn as_a_page() {
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
    let mut talk = Talk::new(project.clone());
    let session = talk.open();
    talk.prompt(2, &session, HOSTILE);
    let (answer, _) = talk.answer(2);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    talk.leave();
    let page = said(&project, &["export", "--format", "html", "last"]);
    let body = page.split_once("<body>").unwrap().1;
    let tags: Vec<&str> = body.split('<').skip(1).filter_map(|rest| rest.split('>').next()).collect();
    for bad in ["script", "img", "iframe", "link", "object"] {
        assert!(!tags.iter().any(|tag| tag.starts_with(bad)), "{bad}: {tags:?}");
    }
    assert!(!tags.iter().any(|tag| tag.contains("onerror") || tag.contains("javascript")), "{tags:?}");
    assert!(!page.contains('\u{1b}'));
    let fetching: Vec<&&str> = tags.iter().filter(|tag| tag.contains("src=") || tag.contains("http://")).collect();
    assert_eq!(fetching, Vec::<&&str>::new());
    assert!(page.contains("default-src 'none'") && page.contains("<svg class=\"chart\""));
    assert!(body.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    let (opened, closed) = (body.matches("<details").count(), body.matches("</details>").count());
    assert_eq!(opened, closed);
    assert_eq!(model.problems(), Vec::<String>::new());
}
