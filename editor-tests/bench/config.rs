//! From a directory full of settings to an open session.

#![expect(
    clippy::expect_used,
    reason = "a benchmark that cannot be set up should say where"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use base::environment::Environment;
use base::worktree::Worktree;
use divan::Bencher;
use providers::editor_endpoints::EditorEndpoints;
use serde_json::json;
use session::Sessions;
use session::open::OpenOptions;
use tokio_util::sync::CancellationToken;
use tools::FileCapabilities;

/// `session/new` where the project has 200 agents in nested folders, each of some length, and 50
/// files of instructions.
#[divan::bench(sample_count = 50)]
fn session_new_200_agents_50_instructions(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let home = dir.path().join("home");
    let project = dir.path().join("project");
    let write = |path: &str, text: &str| {
        let path = project.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    fs::create_dir_all(&home).expect("a home");
    fs::create_dir_all(project.join(".git")).expect("a project");
    let line = "It reads what changed, says what is wrong with it, and never guesses.\n";
    for number in 0..200 {
        let mut text =
            format!("---\ndescription: Agent {number}, for a part of the work.\nmode: subagent\n");
        let _ = write!(
            text,
            "permission:\n  bash:\n    \"*\": ask\n    \"git diff*\": allow\n  edit: deny\n---\n\n"
        );
        text.push_str(&line.repeat(30));
        write(
            &format!(".opencode/agent/team{}/agent-{number}.md", number % 10),
            &text,
        );
    }
    for number in 0..50 {
        write(&format!("docs/rules/{number}.md"), &line.repeat(30));
    }
    write("opencode.json", r#"{"instructions": ["docs/rules/*.md"]}"#);
    let vars = BTreeMap::from([
        ("HOME".to_owned(), home.display().to_string()),
        ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
        ("ADJUTANT_DISABLE_MODELS_FETCH".to_owned(), "1".to_owned()),
    ]);
    let environment = Environment::from_vars(vars);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let shared = Sessions::new(environment, CancellationToken::new());
    bencher.bench_local(|| {
        let options = OpenOptions {
            cwd: project.clone(),
            additional_directories: vec![],
            file_capabilities: FileCapabilities::default(),
            shows_subagents: false,
            attended: false,
            shows_urls: false,
            endpoints: EditorEndpoints::default(),
            client_servers: vec![],
            system_prompt_addition: None,
            denied: vec![],
            asked: vec![],
            approvals: None,
            notices: vec![],
            hides_notices: false,
            remembers_models: true,
        };
        runtime.block_on(shared.create(options)).is_ok()
    });
    runtime.block_on(shared.finish());
}

/// Settings of a user and files of a project.
struct Set {
    _dir: tempfile::TempDir,
    environment: Environment,
    project: PathBuf,
}

impl Set {
    fn new(user: &serde_json::Value, files: &[(String, String)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let home = dir.path().join("home");
        let project = dir.path().join("project");
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        fs::create_dir_all(project.join(".git")).expect("a project");
        write(
            home.join(".config/adjutant/adjutant.json"),
            &user.to_string(),
        );
        for (path, text) in files {
            write(project.join(path), text);
        }
        let vars = BTreeMap::from([("HOME".to_owned(), home.display().to_string())]);
        Self {
            _dir: dir,
            environment: Environment::from_vars(vars),
            project,
        }
    }

    /// Loads the settings and returns the number of parts that need trust.
    fn load(&self) -> usize {
        let worktree = Worktree::find(&self.project, &[], None);
        config::load(&self.environment, &worktree, &self.project)
            .trust
            .items
            .len()
    }
}

fn rules(words: [&str; 4], actions: [&str; 2]) -> serde_json::Value {
    let rule = |at: usize| {
        (
            format!("{} {at} *", words[at % 4]),
            json!(actions[at / 4 % 2]),
        )
    };
    (0..40).map(rule).collect::<serde_json::Map<_, _>>().into()
}

/// 40 rules of a user's, 40 of a project's and 10 agents of its own: nothing is loosened, or much
/// is.
#[divan::bench(args = ["tighter", "looser"])]
fn load_40_rules_and_40_and_10_agents(bencher: Bencher<'_, '_>, how: &str) {
    let user = rules(["git push", "rm", "npm run", "cargo"], ["ask", "deny"]);
    let user = json!({"permission": {"*": "allow", "bash": user}});
    let project = rules(
        ["docker", "make", "npm run", "git"],
        [if how == "looser" { "allow" } else { "deny" }, "ask"],
    );
    let mut files = vec![(
        "opencode.json".to_owned(),
        json!({"permission": {"bash": project}}).to_string(),
    )];
    files.extend((0..10).map(|at| {
        let text =
            "---\ndescription: x\nmode: subagent\npermission:\n  edit: deny\n---\nIt reviews.\n";
        (format!(".opencode/agent/a{at}.md"), text.to_owned())
    }));
    let set = Set::new(&user, &files);
    bencher.bench_local(|| set.load());
}

/// Loads the settings of a typical project.
#[divan::bench]
fn load_a_published_file(bencher: Bencher<'_, '_>) {
    let file = json!({
        "$schema": "https://opencode.ai/config.json",
        "instructions": ["CONTRIBUTING.md", "docs/*.md"],
        "permission": {"edit": "ask", "bash": {"*": "ask", "git status*": "allow", "git diff*": "allow"}},
        "mcp": {"docs": {"type": "remote", "url": "https://docs.example/mcp"}},
    });
    let set = Set::new(
        &json!({}),
        &[("opencode.json".to_owned(), file.to_string())],
    );
    bencher.bench_local(|| set.load());
}

/// Determines which of 20,000 files a search may show.
#[divan::bench(sample_count = 20)]
fn sight_20_000_files(bencher: Bencher<'_, '_>) {
    use permission::{Action, PermissionContext, Policy, Rules, search_filter::SearchFilter};
    let rules = Rules::built_in(&[
        ("*", "*", Action::Allow),
        ("read", "*.env", Action::Ask),
        ("read", "a/*", Action::Deny),
    ]);
    let context = PermissionContext {
        cwd: "/ws".into(),
        root: "/ws".into(),
        ..PermissionContext::default()
    };
    let sight = SearchFilter::new(&Policy {
        rules,
        context,
        ..Policy::default()
    });
    let files: Vec<PathBuf> = (0..20_000)
        .map(|at| PathBuf::from(format!("/ws/src/{}/file-{at}.rs", at % 97)))
        .collect();
    bencher.bench_local(|| {
        files
            .iter()
            .filter(|file| sight.judge(file) == Action::Allow)
            .count()
    });
}
