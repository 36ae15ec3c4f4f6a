//! What stands in files, and what is fetched because a file says so: seen through the commands, and
//! through conversations with servers of these tests.

use serde_json::{Value, json};

use crate::project::Project;
use crate::providers::{adjutant, says};

/// A name, and what to do.
pub const ALL: [(&str, fn()); 2] =
    [("a project is trusted and forgotten", trusted), ("a run without a terminal trusts nothing", untrusted_run)];

const ROOT: &str = "the project";

/// A project that loosens a rule of the user's.
fn loose() -> Project {
    let project = Project::new();
    project.write("~/.config/adjutant/adjutant.json", r#"{"permission":{"bash":"ask"}}"#);
    project.write("opencode.json", r#"{"permission":{"bash":"allow"}}"#);
    project
}

/// With the project's path written shorter.
fn shown(project: &Project, words: &[&str]) -> String {
    says(project, words).replace(&project.cwd().display().to_string(), ROOT)
}

fn trusted() {
    let project = loose();
    let wants = "- looser rule permission.bash: bash *: allow (opencode.json:1)";
    assert_eq!(shown(&project, &["trust", "--list"]), "Nothing was said about any project.\n");
    let rules = || says(&project, &["agents", "show", "build"]);
    assert!(!rules().contains("(opencode.json:1)"), "{}", rules());
    let first = shown(&project, &["trust"]);
    assert!(first.starts_with(&format!("The files of {ROOT} would do this:\n{wants}\n")), "{first}");
    assert!(first.contains("Trusted."), "{first}");
    assert!(rules().contains("opencode.json:1"), "{}", rules());
    assert_eq!(shown(&project, &["trust"]), format!("{ROOT} is trusted:\n{wants}\n"));
    let list = shown(&project, &["trust", "--list"]);
    assert!(list.starts_with(&format!("{ROOT}: trusted (")) && list.contains(wants), "{list}");
    assert_eq!(shown(&project, &["trust", "--revoke"]), format!("forgotten: {ROOT}\n"));
    assert_eq!(shown(&project, &["trust", "--revoke"]), format!("nothing was said about {ROOT}\n"));
    assert!(!rules().contains("opencode.json:1"), "{}", rules());
    project.write("opencode.json", "{}");
    assert_eq!(shown(&project, &["trust"]), format!("Nothing in {ROOT} needs trust.\n"));
}

fn untrusted_run() {
    let project = loose();
    // Allowing everything that is asked for once is no yes to a question whose answer is kept.
    for more in [&[][..], &["--allow"], &["--deny"]] {
        let words = [&["run", "hello"], more].concat();
        let output = adjutant(&project, &words, "");
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let aside = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(aside.contains("This project is not trusted"), "{words:?}: {aside}");
    }
    assert_eq!(says(&project, &["trust", "--list"]), "Nothing was said about any project.\n");
    let output = adjutant(&project, &["run", "--format", "json", "hello"], "");
    let lines: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(lines.iter().any(|line| line["method"] == json!("session/request_permission")));
}
