//! From a directory full of settings to an open session.

#![expect(clippy::expect_used, reason = "a benchmark that cannot be set up should say where")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use adjutant::environment::Environment;
use adjutant::session::open::{Place, Shared};
use adjutant::tool::Files;
use divan::Bencher;
use tokio_util::sync::CancellationToken;

/// `session/new` where the project has 200 agents in nested folders, each of some length, and 50
/// files of instructions.
#[divan::bench(sample_count = 50)]
fn session_new_200_agents_50_instructions(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (home, project) = (dir.path().join("home"), dir.path().join("project"));
    let write = |path: &str, text: &str| {
        let path = project.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    fs::create_dir_all(&home).expect("a home");
    fs::create_dir_all(project.join(".git")).expect("a project");
    let line = "It reads what changed, says what is wrong with it, and never guesses.\n";
    for number in 0..200 {
        let mut text = format!("---\ndescription: Agent {number}, for a part of the work.\nmode: subagent\n");
        let _ = write!(text, "permission:\n  bash:\n    \"*\": ask\n    \"git diff*\": allow\n  edit: deny\n---\n\n");
        text.push_str(&line.repeat(30));
        write(&format!(".opencode/agent/team{}/agent-{number}.md", number % 10), &text);
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let shared = Shared::new(environment, CancellationToken::new());
    bencher.bench_local(|| {
        let place = Place {
            cwd: project.clone(),
            extra: vec![],
            files: Files::default(),
            exposed: false,
            attended: false,
            servers: vec![],
            notices: vec![],
        };
        runtime.block_on(shared.create(place)).is_ok()
    });
    runtime.block_on(shared.finish());
}
