//! What the user is told of the sandbox.

use serde_json::{Value, json};

use crate::model::{self, Model};
use crate::project::Project;
use crate::sandbox::turn;
use crate::talk::Talk;

/// A name and what to do.
pub const ALL: [(&str, fn()); 1] =
    [("the sandbox is told of once, and again to whoever loads the session", the_sandbox_is_told_of_once)];

/// A notice where the editor knows them, whatever became of the command. It is not kept with the session, so who
/// loads it later is told anew.
fn the_sandbox_is_told_of_once() {
    let call = |command: &str| format!("call bash {}", json!({ "command": command, "description": "Run" }));
    let script = format!("{}\n---\n{}\n---\ntext: Done.", call("exit 3"), call("true"));
    let model = Model::start(model::script(&script).unwrap());
    let mut project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
    let knows = json!({ "session": { "notices": {} } });
    let notices = |updates: &[Value]| {
        let told = |update: &&Value| update["sessionUpdate"] == "notice";
        updates.iter().filter(told).filter_map(|update| update["title"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let wanted = ["Commands run without a sandbox: one that you allow can do what you can do."];
    let mut talk = Talk::capable(project, &knows);
    let session = talk.open();
    let (_, updates) = turn(&mut talk, &session, "build");
    assert_eq!(notices(&updates), wanted);
    let project = talk.leave();
    let mut talk = Talk::capable(project, &knows);
    let cwd = talk.project.cwd();
    talk.request(1, "session/load", &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }));
    talk.answer(1);
    let told = loop {
        let update = talk.hear()["params"]["update"].clone();
        if update["sessionUpdate"] == "notice" {
            break update;
        }
    };
    assert_eq!(told["title"], wanted[0]);
    talk.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}
