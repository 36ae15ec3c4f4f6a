//! Lines of `crates/project/data/sandbox_cases.csv` that are asked about without a sandbox and
//! not in one, each run in the live sandbox, through the real binary, with every mechanism that
//! this system has.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::Client;
use crate::model::{self, Model};
use crate::project::Project;
use crate::sandbox::{elsewhere, names, only, sandbox_report, turn, words};
use crate::wire::csv;

pub const ALL: [(&str, fn()); 2] = [
    ("lines of the table change nothing outside (bwrap)", || {
        lines_of_the_table("bwrap")
    }),
    (
        "lines of the table change nothing outside (landlock)",
        || lines_of_the_table("landlock"),
    ),
];

/// Runs every line whose question the sandbox removes, in the live sandbox: files outside and
/// control files are unchanged.
fn lines_of_the_table(mechanism: &str) {
    const LINES: usize = 25;
    let rows = csv(include_str!("../crates/project/data/sandbox_cases.csv"));
    let column = if mechanism == "bwrap" { 4 } else { 5 };
    for (agent, level) in [("build", "workspaceWrite"), ("plan", "readOnly")] {
        let mut probe = Project::new();
        probe.settings(&json!({ "sandbox": "auto" }));
        only(&mut probe, mechanism);
        let report = sandbox_report(&probe, level);
        if report["mechanism"].is_null() {
            continue;
        }
        let Some(outside) = elsewhere() else { continue };
        let path = outside.path().display().to_string();
        let changed = rows
            .iter()
            .skip(1)
            .filter(|row| row[1] == agent && row[3] == "ask" && row[column] == "allow");
        let lines: Vec<String> = changed
            .map(|row| serde_json::from_str(&row[2]).unwrap())
            .collect();
        assert!(lines.len() > 20, "{}", lines.len());
        for lines in lines.chunks(LINES) {
            fs::write(outside.path().join("kept"), "kept").unwrap();
            let before = fs::metadata(outside.path().join("kept")).unwrap();
            let call = |line: &String| {
                format!(
                    "call bash {}\n---\n",
                    json!({ "command": line.replace("OUTSIDE", &path), "timeout": 20_000 })
                )
            };
            let script = lines.iter().map(call).collect::<String>() + "text: Done.";
            let model = Model::start(model::script(&script).unwrap());
            let mut project = Project::new();
            only(&mut project, mechanism);
            project.provider(&model.base(), &json!({ "sandbox": "auto" }));
            for file in [
                "a.txt",
                "a1.txt",
                "b.txt",
                "list",
                "x.py",
                "script.py",
                "env.sh",
                "src/main.rs",
                "src/f.c",
            ] {
                project.write(file, "alpha\n");
            }
            for file in ["evil.sh", "script.sh"] {
                project.write(file, "touch PWN\n");
            }
            project.write("Makefile", "all:\n\ttouch PWN\n");
            project.write(".env", "KEY=1\n");
            project.git();
            let decides = [".git/config", ".git/hooks"].map(|name| project.path(name));
            let state = |path: &PathBuf| {
                if path.is_dir() {
                    names(path).join(" ")
                } else {
                    fs::read_to_string(path).unwrap_or_default()
                }
            };
            let held = decides.each_ref().map(state);
            let all = names(&project.cwd());
            let mut client = Client::new(project);
            let session = client.open();
            let (questions, updates) = turn(&mut client, &session, agent);
            assert_eq!(questions, Vec::<Value>::new(), "{lines:#?}");
            let text = words(&updates);
            assert!(!text.contains("Not allowed"), "{lines:#?}\n{text}");
            let project = client.leave();
            let after = fs::metadata(outside.path().join("kept")).unwrap();
            let kept = fs::read_to_string(outside.path().join("kept")).unwrap();
            assert_eq!(
                (names(outside.path()), kept.as_str()),
                (vec!["kept".to_owned()], "kept"),
                "{lines:#?}"
            );
            assert_eq!(
                after.modified().unwrap(),
                before.modified().unwrap(),
                "{lines:#?}"
            );
            assert_eq!(after.permissions(), before.permissions(), "{lines:#?}");
            if report["whole"] == json!(true) {
                assert_eq!(decides.each_ref().map(state), held, "{lines:#?}");
            }
            if agent == "plan" {
                assert_eq!(names(&project.cwd()), all, "{lines:#?}");
                assert_eq!(
                    fs::read_to_string(project.path("a.txt")).unwrap(),
                    "alpha\n",
                    "{lines:#?}"
                );
            }
            assert_eq!(model.problems(), Vec::<String>::new());
        }
    }
}
