//! Repositories of every shape, created by git: a session's changes in them can be undone, and no
//! byte of git's own files changes, the user's index, stash, refs and settings included.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::client::Client;
use crate::model::{self, Model};
use crate::project::Project;

/// Names and functions of the tests.
pub const ALL: [(&str, fn()); 5] = [
    ("an ordinary repository", || {
        undone("git init -q work", "work", &[])
    }),
    ("a linked worktree", || {
        undone(
            "git init -q main; cd main; git commit -qm first --allow-empty; git worktree add -q ../work",
            "work",
            &[],
        )
    }),
    ("a submodule", || {
        undone(
            &format!("{SUPER}; git submodule add -q ../lib work"),
            "super/work",
            &[],
        )
    }),
    ("a repository with a submodule", || {
        undone(
            &format!("{SUPER}; git submodule add -q ../lib module"),
            "super",
            &["module/m.txt"],
        )
    }),
    ("a git directory elsewhere", || {
        undone("git init -q --separate-git-dir=elsewhere work", "work", &[])
    }),
];

const SUPER: &str = "git init -q lib; echo m > lib/m.txt; git -C lib add -A; git -C lib commit -qm first; git init -q super; cd super; git config --global protocol.file.allow always";

/// State of the user's repository: commits, a staged and a stashed change, a tag, settings of their
/// own, and files that are ignored in two ways.
const USERS: &str = "
    printf 'old\\n' > a.txt; printf 'b\\n' > b.txt; echo '*.log' > .gitignore
    git add -A; git commit -qm files
    echo stashed >> a.txt; git stash -q
    echo staged > s.txt; git add s.txt
    git tag here; git config user.note mine
    exclude=$(git rev-parse --git-path info/exclude); mkdir -p $(dirname $exclude); echo secret.txt >> $exclude
    echo s > secret.txt; echo l > z.log; git status --short >/dev/null";

/// Returns every file below a directory, with git's own.
fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry
                    .path()
                    .strip_prefix(root)
                    .unwrap()
                    .display()
                    .to_string();
                found.insert(name, fs::read(entry.path()).unwrap_or_default());
            }
        }
    }
    found
}

fn undone(made: &str, work: &str, more: &[&str]) {
    let mut project = Project::new();
    let config = project.path("~/gitconfig").display().to_string();
    project.set("GIT_CONFIG_GLOBAL", Some(&config));
    for who in ["AUTHOR", "COMMITTER"] {
        project.set(&format!("GIT_{who}_NAME"), Some("A"));
        project.set(&format!("GIT_{who}_EMAIL"), Some("a@example.org"));
    }
    project.shell(made);
    project.shell(&format!("cd {work}\n{USERS}"));
    let cwd = project.cwd().join(work);
    let sweep: String = more
        .iter()
        .map(|path| format!("echo more >> {path}; "))
        .collect();
    let command = format!(
        "{sweep}echo more >> b.txt; rm s.txt; mkdir n; echo new > n/n.txt; echo changed >> z.log; echo changed >> secret.txt"
    );
    let edit = json!({ "filePath": "a.txt", "oldString": "old", "newString": "new" });
    let script = format!(
        "sees: Workspace root: {}\ncall read {{\"filePath\":\"a.txt\"}}\n---\ncall edit {edit}\n---\ncall bash {}\n---\ntext: Done.\n",
        cwd.display(),
        json!({ "command": command })
    );
    let model = Model::start(model::script(&script).unwrap());
    project.provider(
        &model.base(),
        &json!({ "permission": { "bash": "allow", "edit": "allow" } }),
    );
    let project = Arc::new(project);
    let before = tree(&project.cwd());
    let mut client = Client::new(project.clone());
    client.request(1, "session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
    let session = client.answer(1).0["result"]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    client.prompt(2, &session, "Change it.");
    assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
    let after = tree(&project.cwd());
    let changed = ["a.txt", "b.txt", "n/n.txt", "s.txt", "secret.txt", "z.log"]
        .iter()
        .chain(more);
    let mut changed: Vec<String> = changed.map(|path| format!("{work}/{path}")).collect();
    changed.sort();
    let names = before
        .keys()
        .chain(after.keys())
        .collect::<std::collections::BTreeSet<_>>();
    let differ = |one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>| {
        names
            .iter()
            .filter(|name| one.get(**name) != other.get(**name))
            .map(|name| (*name).clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(differ(&before, &after), changed);
    // Ignored files stay as the command left them.
    let ignored = [format!("{work}/secret.txt"), format!("{work}/z.log")];
    for (id, word) in [(3, "/undo force"), (4, "/redo"), (5, "/undo force")] {
        client.prompt(id, &session, word);
        let (_, updates) = client.answer(id);
        let now = tree(&project.cwd());
        match word {
            "/undo force" => assert_eq!(differ(&before, &now), ignored, "{updates:?}"),
            _ => assert_eq!(differ(&after, &now), Vec::<String>::new(), "{updates:?}"),
        }
    }
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
    // And git finds everything as it was.
    let status = project.shell(&format!(
        "cd {work}; git status --short; git stash list; git tag; git config user.note"
    ));
    assert_eq!(
        status,
        "A  s.txt\nstash@{0}: WIP on ".to_owned() + status.split_once("WIP on ").unwrap().1
    );
    assert!(status.ends_with("here\nmine\n"), "{status}");
}
