//! Repositories whose files would loosen the user's settings, and harmless ones. Checks which parts
//! of each wait for trust, and the verdicts while they wait.

use serde_json::{Value, json};

use crate::program::adjutant;
use crate::project::Project;

/// Returns the repositories in the table, by name.
pub fn rows() -> Vec<(String, Value)> {
    let rows: Vec<Value> =
        serde_json::from_str(include_str!("data/hostile_repositories.json")).unwrap();
    rows.into_iter()
        .map(|row| (row["name"].as_str().unwrap().to_owned(), row))
        .collect()
}

/// Returns the possible beginnings of a key's line: a looser rule, or the key itself.
fn kinds(key: &str) -> impl Iterator<Item = String> {
    [format!("- looser rule {key}"), format!("- {key}")].into_iter()
}

/// Writes the `user` settings and the `files` of a row. Checks that `adjutant trust` lists exactly
/// the parts in `waits`, and that each request in `asked` gets its verdict.
pub fn check(row: &Value) {
    let project = Project::new();
    project.write("~/.config/adjutant/adjutant.json", &row["user"].to_string());
    for (path, content) in row["files"].as_object().unwrap() {
        project.write(
            path,
            &content
                .as_str()
                .map_or_else(|| content.to_string(), str::to_owned),
        );
    }
    let output = adjutant(&project, &["trust"], "");
    let listed = String::from_utf8(output.stdout).unwrap();
    let wanted: Vec<&str> = row["waits"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let found: Vec<&str> = listed
        .lines()
        .filter(|line| line.starts_with("- "))
        .collect();
    for key in &wanted {
        let exact = |line: &&&str| {
            kinds(key).any(|begins| {
                line.strip_prefix(&begins)
                    .is_some_and(|rest| rest.starts_with([':', ' ']))
            })
        };
        assert!(
            found.iter().any(|line| exact(&line)),
            "{key} does not wait for trust:\n{listed}"
        );
    }
    for line in &found {
        let known = |key: &&str| kinds(key).any(|begins| line.starts_with(&begins));
        assert!(
            wanted.iter().any(known),
            "{line} waits for trust:\n{listed}"
        );
    }
    assert_eq!(
        output.status.code(),
        Some(i32::from(!wanted.is_empty())),
        "{listed}"
    );
    for asked in row["asked"].as_array().unwrap() {
        let mut question = asked[1].clone();
        question["id"] = json!(1);
        let words = [
            "permissions",
            "check",
            "--sandbox",
            "none",
            "--agent",
            asked[0].as_str().unwrap(),
        ];
        let output = adjutant(&project, &words, &format!("{question}\n"));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
            panic!(
                "{question}: {e}: {}",
                String::from_utf8_lossy(&output.stderr)
            )
        });
        assert_eq!(
            answer["verdict"], asked[2],
            "{question}: {answer}\n{listed}"
        );
    }
}
