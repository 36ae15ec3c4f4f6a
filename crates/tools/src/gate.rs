//! A test of path decisions at two entry points: the tools that work on files, prepared in a real
//! project, and `permissions check`. The rules are those of agents with user settings. Both entry
//! points must agree for every row and every use, and with the expected verdicts for reading and
//! changing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::edits::apply_patch::ApplyPatchTool;
use crate::edits::edit::EditTool;
use crate::files::glob::GlobTool;
use crate::files::read::ReadTool;
use crate::lsp::LspTool;
use crate::test::context_in;
use crate::{AnyTool, BUILT_IN_TOOLS, Failure, Tool, ToolContext, erase};
use base::environment::Environment;
use base::worktree::Worktree;
use permission::check::check_line;
use permission::rule::modern;
use permission::testing::{PathFixture, path_fixture, records};
use permission::{Policy, evaluate};
use project::agent::Agents;

/// Returns the policy of an agent in a lab with these user settings.
fn policy(lab: &PathFixture, agent: &str, settings: &Value) -> Policy {
    let home = lab.context.home.clone().unwrap();
    std::fs::create_dir_all(home.join(".config/adjutant")).unwrap();
    std::fs::write(
        home.join(".config/adjutant/adjutant.json"),
        settings.to_string(),
    )
    .unwrap();
    let vars = BTreeMap::from([
        ("HOME".to_owned(), home.display().to_string()),
        (
            "OPENCODE_TEST_MANAGED_CONFIG_DIR".to_owned(),
            home.join("managed").display().to_string(),
        ),
        ("TMPDIR".to_owned(), home.join("tmp").display().to_string()),
    ]);
    let environment = Environment::from_vars(vars);
    let worktree = Worktree {
        root: lab.context.root.clone(),
        git: true,
        extra: vec![],
    };
    let loaded = config::load(&environment, &worktree, &worktree.root);
    let (agents, _) = Agents::build(&loaded.settings, &environment, &worktree);
    let rules = agents.get(agent).unwrap().rules.clone();
    Policy {
        rules,
        context: lab.context.clone(),
        ..Policy::default()
    }
}

fn checked(policy: &Policy, question: &Value) -> String {
    let policy = Arc::new(policy.clone());
    let no_command = |_: &str, _: &Arc<Policy>| Err("no command is checked here".to_owned());
    let answer = check_line(&policy, &[], no_command, &question.to_string());
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["verdict"].as_str().unwrap().to_owned()
}

/// Returns the strictest verdict on a call's access requests, or "refuse" if the tool refuses it.
async fn prepared(tool: &Arc<dyn AnyTool>, input: Value, context: &ToolContext) -> String {
    let requests = match tool.prepare(input, context).await {
        Ok(prepared) => prepared.requests,
        Err(Failure::Denied(_)) => return "deny".into(),
        Err(Failure::ForModel(_)) => return "refuse".into(),
        Err(failure) => panic!("{failure}"),
    };
    let Policy { rules, grants, .. } = &*context.policy;
    let worst = requests
        .iter()
        .map(|request| evaluate(rules, grants, request).action)
        .max();
    serde_json::to_value(worst.unwrap())
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}

/// The arguments that are paths or contain them.
const PATH_FIELDS: [&str; 3] = ["filePath", "path", "patchText"];

/// Returns the field of a tool's arguments for its path.
fn path_field(tool: &Arc<dyn AnyTool>) -> Option<&'static str> {
    let schema = tool.schema();
    let fields = schema["properties"].as_object()?;
    PATH_FIELDS
        .into_iter()
        .find(|name| fields.contains_key(*name))
}

/// Returns the arguments for a path of a tool that goes by this name.
fn input(name: &str, tool: &Arc<dyn AnyTool>, path: &str) -> Value {
    match name {
        "edit" => json!({"filePath": path, "oldString": "", "newString": "other\n"}),
        "multiedit" => {
            json!({"filePath": path, "edits": [{"oldString": "", "newString": "other\n"}]})
        }
        "apply_patch" => {
            json!({"patchText": format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch")})
        }
        "glob" => json!({"pattern": "*", "path": path}),
        _ => {
            let mut input = json!({});
            for field in tool.schema()["required"].as_array().into_iter().flatten() {
                input[field.as_str().unwrap()] = "x".into();
            }
            input[path_field(tool).unwrap()] = path.into();
            input
        }
    }
}

/// Returns the tools that work on a path of their arguments, each with the name that `permissions
/// check` is asked about: the tool's, if it is an older name of a permission, else its permission.
fn path_tools() -> Vec<(&'static str, Arc<dyn AnyTool>)> {
    BUILT_IN_TOOLS
        .iter()
        // `lsp` needs a language server, and resolves its path as `read` does.
        .filter(|properties| properties.name != LspTool::NAME)
        .map(|properties| {
            let is_older_name = modern(properties.name).is_some();
            let name = if is_older_name {
                properties.name
            } else {
                properties.permission
            };
            (name, (properties.make)())
        })
        .filter(|(_, tool)| path_field(tool).is_some())
        .chain([("multiedit", erase(EditTool))])
        .collect()
}

/// Checks one path at both entry points. Returns the common verdicts for reading and changing;
/// `wrong` gets the disagreements.
async fn check_both(policy: &Policy, path: &str, wrong: &mut Vec<String>) -> [String; 2] {
    let context = context_in(policy.clone());
    let tools = path_tools();
    // An existing file is read before it is changed, and is changed by its first line.
    let open = Policy {
        rules: permission::Rules::built_in(&[("*", "*", permission::Action::Allow)]),
        ..policy.clone()
    };
    let reader = ToolContext {
        policy: Arc::new(open),
        ..context.clone()
    };
    let read = json!({"filePath": path});
    if let Ok(prepared) = erase(ReadTool).prepare(read, &reader).await {
        (prepared.run)(reader).await.ok();
    }
    let mut got = [String::new(), String::new()];
    for (name, tool) in &tools {
        if *name == "apply_patch" && path.trim() != path {
            // A patch cannot contain such a name.
            continue;
        }
        let mut input = input(name, tool, path);
        let file = permission::locate::locate(path, &policy.context)
            .ok()
            .filter(|at| at.kind == permission::locate::PathKind::File)
            .and_then(|at| std::fs::read(at.path).ok());
        if let Some(bytes) = file {
            let old = String::from_utf8_lossy(&bytes)
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            match *name {
                "edit" => input["oldString"] = old.into(),
                "multiedit" => input["edits"][0]["oldString"] = old.into(),
                _ => {}
            }
        }
        let question = json!({"permission": name, "path": path, "pattern": input["pattern"]});
        let live = prepared(tool, input, &context).await;
        let check = checked(policy, &question);
        if live != check {
            wrong.push(format!(
                "{name} {path:?}: the tool says {live}, the checker {check}"
            ));
        }
        match *name {
            "read" => got[0] = check,
            "write" => got[1] = check,
            _ => {}
        }
    }
    got
}

/// One row of the tables.
struct Row {
    id: String,
    lab: PathFixture,
    inputs: Vec<String>,
    /// The expected verdicts on reading, on changing, on changing as the planning agent; a
    /// tolerated alternative.
    wanted: [String; 3],
    tool_names: String,
}

fn rows() -> Vec<Row> {
    let mut rows = vec![];
    for row in records(include_str!("../data/path_cases.csv")) {
        let [id, class, input, _, read, edit, plan, tool_names, ..] = row.as_slice() else {
            panic!("{row:?}")
        };
        // Searches and races are tested in `rows.rs`, patterns below.
        if ["multi", "race"].contains(&class.as_str()) && !["P103", "P108"].contains(&id.as_str())
            || id == "P67"
        {
            continue;
        }
        let (lab, mut inputs) = path_fixture(id);
        if inputs.is_empty() {
            inputs.push(input.replace("/WS", &lab.context.root.display().to_string()));
        }
        let mut wanted = [read.clone(), edit.clone(), plan.clone()];
        if id == "P40" && !Path::new(&inputs[0]).exists() {
            // This file system is case-sensitive, so the other spelling is another path.
            wanted = ["refuse".into(), "ask".into(), "deny".into()];
        }
        rows.push(Row {
            id: id.clone(),
            lab,
            inputs,
            wanted,
            tool_names: tool_names.clone(),
        });
    }
    for row in records(include_str!("../data/path_cases_more.csv")) {
        let [id, class, input, wanted @ .., _] = row.as_slice() else {
            panic!("{row:?}")
        };
        if class == "multi" {
            continue;
        }
        let lab = PathFixture::with_more();
        let input: String = serde_json::from_str(input).unwrap();
        let inputs = vec![input.replace("/WS", &lab.context.root.display().to_string())];
        let wanted = [wanted[0].clone(), wanted[1].clone(), wanted[2].clone()];
        rows.push(Row {
            id: id.clone(),
            lab,
            inputs,
            wanted,
            tool_names: String::new(),
        });
    }
    rows
}

#[tokio::test]
async fn tools_and_checker_agree_on_every_path() {
    let mut wrong = vec![];
    let mut seen = 0;
    for Row {
        id,
        lab,
        inputs,
        wanted,
        tool_names,
    } in rows()
    {
        seen += 1;
        for (agent, which) in [("build", 0), ("plan", 2)] {
            let policy = policy(&lab, agent, &json!({}));
            for path in &inputs {
                let mut disagreements = vec![];
                let got = check_both(&policy, path, &mut disagreements).await;
                wrong.extend(
                    disagreements
                        .into_iter()
                        .map(|what| format!("{id} {agent} {what}")),
                );
                let mut expect = |use_of: &str, got: &str, want: &str| {
                    if want != "—" && got != want && (tool_names.is_empty() || got != tool_names)
                    {
                        wrong.push(format!(
                            "{id} {agent} {use_of} {path:?}: {got}, wanted {want}"
                        ));
                    }
                };
                if which == 0 {
                    expect("read", &got[0], &wanted[0]);
                    expect("edit", &got[1], &wanted[1]);
                } else {
                    expect("edit", &got[1], &wanted[2]);
                }
            }
        }
    }
    assert!(seen >= 125, "{seen}");
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Every alternative of a pattern is judged by its target.
#[tokio::test]
async fn glob_alternatives_are_judged_by_their_targets() {
    let mut rows: Vec<(String, String, String)> = vec![];
    for row in records(include_str!("../data/path_cases.csv")) {
        if ["P100", "P101"].contains(&row[0].as_str()) {
            let pattern = row[2]
                .trim_start_matches("glob ")
                .trim_matches('"')
                .to_owned();
            rows.push((row[0].clone(), pattern, row[4].clone()));
        }
    }
    for row in records(include_str!("../data/path_cases_more.csv")) {
        if row[1] == "multi" {
            rows.push((
                row[0].clone(),
                serde_json::from_str(&row[2]).unwrap(),
                row[3].clone(),
            ));
        }
    }
    assert!(rows.len() >= 9);
    let lab = PathFixture::new();
    let policy = policy(&lab, "build", &json!({}));
    for (id, pattern, wanted) in rows {
        let pattern = pattern.replace("/WS", &lab.context.root.display().to_string());
        let got = prepared(
            &erase(GlobTool),
            json!({"pattern": pattern}),
            &context_in(policy.clone()),
        )
        .await;
        assert_eq!(got, wanted, "{id} {pattern}");
    }
}

/// One of five paths is outside: the strictest verdict counts, before anything is written.
#[tokio::test]
async fn p104_patch_is_judged_by_its_strictest_file() {
    let (lab, inputs) = path_fixture("P104");
    for (agent, wanted) in [("build", "ask"), ("plan", "deny")] {
        let context = context_in(policy(&lab, agent, &json!({})));
        let open = ToolContext {
            policy: Arc::new(policy(&lab, "build", &json!({}))),
            ..context.clone()
        };
        let mut sections = String::new();
        for path in &inputs {
            if let Ok(prepared) = erase(ReadTool)
                .prepare(json!({"filePath": path}), &open)
                .await
            {
                (prepared.run)(open.clone()).await.ok();
            }
            sections.push_str(&format!("*** Add File: {path}\n+x\n"));
        }
        let patch = json!({"patchText": format!("*** Begin Patch\n{sections}*** End Patch")});
        assert_eq!(
            prepared(&erase(ApplyPatchTool), patch, &context).await,
            wanted,
            "{agent}"
        );
        assert_eq!(
            std::fs::read(lab.context.root.join("a.txt")).unwrap(),
            b"alpha\n"
        );
    }
}

/// A patch that moves a file changes two paths, source and destination, wherever links lead.
#[tokio::test]
async fn move_is_judged_by_source_and_destination() {
    let lab = PathFixture::with_more();
    let root = &lab.context.root;
    for (to, link) in [
        (".git/hooks", "hk"),
        ("../home", "up"),
        ("src/new.txt", "dangling"),
        (".git", "meta"),
    ] {
        std::os::unix::fs::symlink(to, root.join(link)).unwrap();
    }
    for folder in [".github/workflows", ".claude", "docs"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("docs/AGENTS.md"), "alpha\n").unwrap();
    let outside = format!("{}/x.txt", lab.context.home.as_ref().unwrap().display());
    let table = [
        ("a.txt", "moved.txt", "allow"),
        ("a.txt", "new/dir/moved.txt", "allow"),
        ("a.txt", "inlink/moved.txt", "allow"),
        // Onto control files, directly and through links.
        ("a.txt", "CLAUDE.md", "ask"),
        ("a.txt", ".git/hooks/pre-push", "ask"),
        ("a.txt", "./src/../.git/hooks/pre-push", "ask"),
        ("a.txt", "hk/pre-push", "ask"),
        ("a.txt", "meta/hooks/pre-push", "ask"),
        ("a.txt", ".GIT/hooks/pre-push", "ask"),
        ("a.txt", ".github/workflows/new.yml", "ask"),
        ("a.txt", ".vscode/tasks.json", "ask"),
        ("a.txt", ".claude/settings.json", "ask"),
        ("a.txt", "opencode.json", "ask"),
        ("a.txt", ".adjutant/adjutant.json", "ask"),
        ("a.txt", ".envrc", "ask"),
        // Out of the project.
        ("a.txt", "../x.txt", "ask"),
        ("a.txt", "up/x.txt", "ask"),
        ("a.txt", "link/x.txt", "ask"),
        ("a.txt", outside.as_str(), "ask"),
        // A protected file and a file outside as sources.
        ("AGENTS.md", "moved.txt", "ask"),
        ("docs/AGENTS.md", "docs/b.md", "ask"),
        ("link/secret.txt", "moved.txt", "ask"),
        // A link is refused: the user is not asked to move its target.
        ("notes.txt", "moved.txt", "refuse"),
        ("linkf", "moved.txt", "refuse"),
        ("a.txt", "dangling", "refuse"),
    ];
    let open = permission::Rules::built_in(&[("*", "*", permission::Action::Allow)]);
    for (from, to, wanted) in table {
        for (agent, wanted) in [("build", wanted), ("plan", "deny")] {
            let context = context_in(policy(&lab, agent, &json!({})));
            let reader = ToolContext {
                policy: Arc::new(Policy {
                    rules: open.clone(),
                    ..(*context.policy).clone()
                }),
                ..context.clone()
            };
            let read = erase(ReadTool)
                .prepare(json!({"filePath": from}), &reader)
                .await
                .unwrap();
            (read.run)(reader).await.ok();
            let first = std::fs::read_to_string(root.join(from)).unwrap();
            let first = first.lines().next().unwrap();
            let text = format!(
                "*** Begin Patch\n*** Update File: {from}\n*** Move to: {to}\n@@\n-{first}\n+other\n*** End Patch"
            );
            let got = prepared(&erase(ApplyPatchTool), json!({"patchText": text}), &context).await;
            assert_eq!(got, wanted, "{agent}: {from} to {to}");
        }
    }
}

/// A minimum verdict limits every set of rules. A rule that names a secret overrides it for
/// reading; no rule overrides it for control files.
#[tokio::test]
async fn minimum_verdict_yields_only_to_a_rule_that_names_the_secret() {
    let table = [
        (json!({"*": "allow"}), "read", "id_rsa", "ask"),
        (
            json!({"*": "allow"}),
            "write",
            ".git/hooks/pre-commit",
            "ask",
        ),
        (
            json!({"read": {"*": "allow", "id_rsa": "allow"}}),
            "read",
            "id_rsa",
            "allow",
        ),
        (json!({"read": {"*.pem": "deny"}}), "read", "k.pem", "deny"),
        (
            json!({"edit": {"*": "allow", ".git/hooks/*": "allow"}}),
            "write",
            ".git/hooks/pre-commit",
            "ask",
        ),
        (
            json!({"edit": {".claude/*": "deny"}}),
            "write",
            ".claude/settings.json",
            "deny",
        ),
        (
            json!({"edit": {"AGENTS.md": "allow"}}),
            "apply_patch",
            "AGENTS.md",
            "ask",
        ),
        (
            json!({"edit": "deny"}),
            "multiedit",
            ".vscode/tasks.json",
            "deny",
        ),
        (json!({"read": {"a.txt": "deny"}}), "grep", "a.txt", "deny"),
        (json!({"read": {"a.txt": "ask"}}), "grep", "a.txt", "ask"),
        (json!({"*": "allow"}), "grep", ".env", "ask"),
        (json!({"grep": "deny"}), "grep", "a.txt", "deny"),
    ];
    for (rules, tool, path, wanted) in table {
        let lab = PathFixture::new();
        let policy = policy(&lab, "build", &json!({"permission": rules}));
        let mut disagreements = vec![];
        check_both(&policy, path, &mut disagreements).await;
        assert!(disagreements.is_empty(), "{disagreements:?}");
        let got = checked(
            &policy,
            &json!({"permission": tool, "path": path, "pattern": "x"}),
        );
        assert_eq!(got, wanted, "{rules} {tool} {path}");
    }
}

/// A link with a protected name is protected like its target, and a git directory may have any
/// name.
#[tokio::test]
async fn links_and_renamed_git_directories_are_recognised() {
    let lab = PathFixture::new();
    let root = &lab.context.root;
    std::os::unix::fs::symlink("../../script.sh", root.join(".git/hooks/post-merge")).unwrap();
    std::fs::create_dir_all(root.join("meta/objects")).unwrap();
    std::fs::write(root.join("meta/HEAD"), "ref: refs/heads/main\n").unwrap();
    std::fs::hard_link(root.join("a.txt"), root.join("src/second")).unwrap();
    let policy = policy(&lab, "build", &json!({}));
    let table = [
        (".git/hooks/post-merge", "ask"),
        ("script.sh", "allow"),
        ("meta/config", "ask"),
        ("meta/hooks/pre-push", "ask"),
        ("meta/notes", "allow"),
        ("src/second", "ask"),
        ("src/a\u{200b}b", "ask"),
        (".git/modules/m/config", "ask"),
        (".cursor/rules/x.mdc", "ask"),
        (".g\u{200c}it/config", "ask"),
        (".env:x", "ask"),
    ];
    for (path, wanted) in table {
        let mut disagreements = vec![];
        let [_, edit] = check_both(&policy, path, &mut disagreements).await;
        assert_eq!((edit.as_str(), disagreements), (wanted, vec![]), "{path}");
    }
}
