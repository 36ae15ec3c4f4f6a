//! The rows of `crates/tools/data/path_cases.csv` that judging a single path cannot test, because
//! they depend on the behaviour of a tool after permission. `gate.rs` runs all others.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::edits::edit;
use crate::files::disk;
use crate::files::glob;
use crate::files::grep;
use crate::files::read;
use crate::files::rooted_fs::SearchRoot;
use crate::process::bash;
use crate::test::{TestProject, call};
use crate::{AnyTool, erase};
use permission::{AccessRequest, Action, Rules, evaluate, rule};

/// Returns the verdict of the built-in rules.
fn verdict(fixture: &TestProject, requests: &[AccessRequest]) -> Action {
    let rules: Rules = rule::base(
        &fixture.home().join("data"),
        Path::new("/scratch"),
        &[] as &[PathBuf],
    );
    let verdicts = requests
        .iter()
        .map(|request| evaluate(&rules, &Rules::default(), request).action);
    verdicts.max().unwrap_or(Action::Allow)
}

#[tokio::test]
async fn p67_searches_leave_out_secrets_with_a_note() {
    let fixture = TestProject::new();
    for name in [
        ".env",
        "conf/prod.env",
        "deep/id_rsa",
        "tls.key",
        ".npmrc",
        ".ENV.local",
        ".aws/credentials",
    ] {
        fixture.write(name, "token=swordfish\n");
    }
    fixture.write("a.txt", "token=harmless\n");
    fixture.write(".env.example", "token=\n");
    let context = fixture.context();
    let (_, found) = call(
        &erase(grep::GrepTool),
        json!({"pattern": "token", "path": "."}),
        &context,
    )
    .await
    .unwrap();
    assert!(
        found.text.contains("a.txt") && found.text.contains(".env.example"),
        "{}",
        found.text
    );
    assert!(!found.text.contains("swordfish"), "{}", found.text);
    assert!(
        found.text.contains(
            "(7 files left out, because reading needs permission: .ENV.local, .aws/credentials, .env and 4 more)"
        ),
        "{}",
        found.text
    );
    let (_, found) = call(&erase(glob::GlobTool), json!({"pattern": "**/*"}), &context)
        .await
        .unwrap();
    assert!(
        found.text.contains("a.txt") && !found.text.contains("id_rsa"),
        "{}",
        found.text
    );
    assert!(
        found.text.contains(
            "(7 files left out, because reading needs permission: .ENV.local, .aws/credentials, .env and 4 more)"
        ),
        "{}",
        found.text
    );
}

#[tokio::test]
async fn p107_workdir_outside_is_asked_about() {
    let fixture = TestProject::new();
    let context = fixture.context();
    std::os::unix::fs::symlink(fixture.outside(), fixture.cwd().join("link")).unwrap();
    for (workdir, wanted) in [
        ("../outside", Action::Ask),
        ("link", Action::Ask),
        ("/", Action::Ask),
        (".", Action::Allow),
    ] {
        let input = json!({"command": "true", "workdir": workdir, "description": "Starts"});
        let prepared = erase(bash::BashTool)
            .prepare(input, &context)
            .await
            .unwrap();
        let requests: Vec<AccessRequest> = prepared
            .requests
            .into_iter()
            .filter(|request| request.permission == "external_directory")
            .collect();
        assert_eq!(verdict(&fixture, &requests), wanted, "{workdir}");
    }
}

#[tokio::test]
async fn p111_file_replaced_after_the_question_is_not_written() {
    let fixture = TestProject::new();
    fixture.write("a.txt", "mine\n");
    std::fs::write(fixture.outside().join("a.txt"), "mine\n").unwrap();
    let context = fixture.context();
    call(
        &erase(read::ReadTool),
        json!({"filePath": "a.txt"}),
        &context,
    )
    .await
    .unwrap();
    let change = json!({"filePath": "a.txt", "oldString": "mine", "newString": "theirs"});
    let prepared = erase(edit::EditTool)
        .prepare(change.clone(), &context)
        .await
        .unwrap();
    std::fs::remove_file(fixture.cwd().join("a.txt")).unwrap();
    std::os::unix::fs::symlink(fixture.outside().join("a.txt"), fixture.cwd().join("a.txt"))
        .unwrap();
    let failure = (prepared.run)(context.clone())
        .await
        .unwrap_err()
        .to_string();
    assert!(failure.contains("moved or replaced"), "{failure}");
    assert_eq!(
        std::fs::read(fixture.outside().join("a.txt")).unwrap(),
        b"mine\n"
    );
    // When read again, it is a file outside, which needs permission.
    let again = erase(read::ReadTool)
        .prepare(json!({"filePath": "a.txt"}), &context)
        .await
        .unwrap();
    assert_eq!(verdict(&fixture, &again.requests), Action::Ask);
}

#[test]
fn p112_directory_moved_during_a_write_is_not_written_to() {
    let fixture = TestProject::new();
    fixture.write("deep/a.txt", "old");
    let file = fixture.cwd().join("deep/a.txt");
    let moved = disk::replace(&file, b"new", || {
        std::fs::rename(fixture.cwd().join("deep"), fixture.outside().join("deep")).unwrap();
    });
    assert!(matches!(moved, Err(disk::Error::Moved)), "{moved:?}");
    assert_eq!(
        std::fs::read(fixture.outside().join("deep/a.txt")).unwrap(),
        b"old"
    );
    assert_eq!(
        std::fs::read_dir(fixture.outside().join("deep"))
            .unwrap()
            .count(),
        1
    );
}

/// Searches and listings see nothing through a directory that was replaced by a link after it was
/// judged.
#[tokio::test]
async fn searches_stay_in_judged_directory() {
    let fixture = TestProject::new();
    fixture.write("src/a.txt", "needle\n");
    std::fs::write(fixture.outside().join("b.txt"), "needle\n").unwrap();
    let context = fixture.context();
    let tools: [(_, std::sync::Arc<dyn AnyTool>, _); 2] = [
        (
            "grep",
            erase(grep::GrepTool),
            json!({"pattern": "needle", "path": "src"}),
        ),
        (
            "glob",
            erase(glob::GlobTool),
            json!({"pattern": "*", "path": "src"}),
        ),
    ];
    let mut waiting = vec![];
    for (name, tool, input) in &tools {
        waiting.push((name, tool.prepare(input.clone(), &context).await.unwrap()));
    }
    let held = SearchRoot::open(&fixture.cwd().join("src")).unwrap();
    std::fs::rename(fixture.cwd().join("src"), fixture.cwd().join("aside")).unwrap();
    std::os::unix::fs::symlink(fixture.outside(), fixture.cwd().join("src")).unwrap();
    for (name, prepared) in waiting {
        let failure = (prepared.run)(context.clone())
            .await
            .unwrap_err()
            .to_string();
        assert!(failure.contains("moved or replaced"), "{name}: {failure}");
    }
    // If it happens a moment later, the handle still refers to the judged directory.
    assert!(
        held.reader()
            .open(&fixture.cwd().join("src/b.txt"))
            .is_none()
    );
    assert!(
        held.reader()
            .open(&fixture.cwd().join("src/a.txt"))
            .is_some()
    );
}
