//! Notices about the sandbox.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::Client;
use crate::model::{self, Model};
use crate::project::Project;
use crate::sandbox::{sandbox_report, turn};

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 2] = [
    (
        "sandbox notice is shown once, and again after a load",
        sandbox_notice_is_shown_once_and_again_after_a_load,
    ),
    (
        "notice about a working sandbox is shown once a day",
        notice_about_a_working_sandbox_is_shown_once_a_day,
    ),
];

/// Shows a notice if the client knows them, whatever the command's result. The session does not
/// store it, so each client that loads the session gets it anew.
fn sandbox_notice_is_shown_once_and_again_after_a_load() {
    let call = |command: &str| {
        format!(
            "call bash {}",
            json!({ "command": command, "description": "Run" })
        )
    };
    let script = format!(
        "{}\n---\n{}\n---\ntext: Done.",
        call("exit 3"),
        call("true")
    );
    let model = Model::start(model::script(&script).unwrap());
    let mut project = Project::new();
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    project.set("ADJUTANT_SANDBOX_DISABLE", Some("bwrap,landlock,seatbelt"));
    let knows = json!({ "session": { "notices": {} } });
    let notices = |updates: &[Value]| {
        let is_notice = |update: &&Value| update["sessionUpdate"] == "notice";
        updates
            .iter()
            .filter(is_notice)
            .filter_map(|update| update["title"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let wanted =
        ["Commands run without a sandbox: a command that you allow can do anything you can do."];
    let mut client = Client::capable(project, &knows);
    let session = client.open();
    let (_, updates) = turn(&mut client, &session, "build");
    assert_eq!(notices(&updates), wanted);
    let project = client.leave();
    let mut client = Client::capable(project, &knows);
    let cwd = client.project.cwd();
    client.request(
        1,
        "session/load",
        &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
    );
    client.answer(1);
    let notice = loop {
        let update = client.receive()["params"]["update"].clone();
        if update["sessionUpdate"] == "notice" {
            break update;
        }
    };
    assert_eq!(notice["title"], wanted[0]);
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

/// A second session in the same directory shows no notice on the same day, even after one in
/// another directory.
fn notice_about_a_working_sandbox_is_shown_once_a_day() {
    let call = |command: &str| {
        format!(
            "call bash {}",
            json!({ "command": command, "description": "Run" })
        )
    };
    let turns =
        ["a", "b", "c", "d"].map(|file| call(&format!("touch {file}")) + "\n---\ntext: Done.");
    let script = turns.join("\n---\nbegins anew\n");
    let model = Model::start(model::script(&script).unwrap());
    let project = Project::new();
    project.write("sub/file", "");
    project.provider(&model.base(), &json!({ "sandbox": "auto" }));
    if sandbox_report(&project, "workspaceWrite")["mechanism"].is_null() {
        return;
    }
    let knows = json!({ "session": { "notices": {} } });
    let notices = |updates: &[Value]| {
        let all = updates.iter();
        all.filter(|update| update["sessionUpdate"] == "notice")
            .filter(|update| update.to_string().contains("Commands run in a sandbox"))
            .count()
    };
    let mut project = Arc::new(project);
    for (directory, expected) in [("", 1), ("", 0), ("sub", 1), ("", 0)] {
        let mut client = Client::capable(project, &knows);
        let cwd = if directory.is_empty() {
            client.project.cwd()
        } else {
            client.project.path(directory)
        };
        client.request(1, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        let opened = client.answer(1).0;
        let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
        let (_, updates) = turn(&mut client, &session, "build");
        assert_eq!(notices(&updates), expected, "{updates:#?}");
        project = client.leave();
    }
    assert_eq!(model.problems(), Vec::<String>::new());
}
