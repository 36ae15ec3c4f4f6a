//! Tests of adjutant from outside: everything that its pages promise, through stdin and stdout of
//! the real binary, with a mock provider over real HTTP.
//!
//! Every page `editor-tests/*/*.md` is one test; so is every group of rows of the wire cases.
//!
//! ```text
//! cargo test --test editor                      all of them
//! cargo test --test editor permissions/         the pages of one folder
//! BLESS=1 cargo test --test editor connection/  write the actual output into the pages
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "tests start programs and choose their environment"
)]
#![expect(unreachable_pub, reason = "a test target has no outside")]
#![expect(
    clippy::print_stderr,
    reason = "long tests report the number of attempts"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should panic at that line"
)]

mod agent_commands;
mod client;
mod conversations;
mod corrupt;
mod database;
mod deadlocks;
mod editor;
mod editor_servers;
// Its fault injection into system calls is written for Linux.
#[cfg(target_os = "linux")]
mod faults;
mod files;
mod fleet;
// Only Linux counts the bytes that a process has read.
#[cfg(target_os = "linux")]
mod growth;
mod hidden;
mod history;
mod host_failover;
mod hostile_repositories;
mod interruptions;
mod invariants;
mod invariants_v2;
mod language;
mod local_servers;
mod long_run;
mod loopback;
mod machine;
mod mcp;
mod mcp_tool_cache;
mod model;
mod model_mistakes;
mod oauth;
mod opencode;
mod packages;
mod parallel;
mod placeholders;
mod program;
mod project;
mod provider_search;
mod providers;
mod pty;
mod remote;
mod replay;
mod replay_as_v2;
mod runtime;
mod sandbox;
mod sandbox_notice;
mod sandbox_probes;
mod sandboxed_lines;
mod screen;
mod servers;
mod sessions;
mod structured_output;
#[cfg(feature = "telemetry")]
mod telemetry;
mod terminal;
mod terminal_injection;
// Only Linux counts the time of one thread.
#[cfg(target_os = "linux")]
mod thread;
mod tool_schemas;
mod transcript;
// Only Linux reports the writes of programs.
#[cfg(target_os = "linux")]
mod undo;
mod undo_in_repositories;
mod web;
mod wire;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::transcript::Transcript;

/// Folders whose pages are transcripts, in reading order.
const FOLDERS: [&str; 14] = [
    "connection",
    "turns",
    "tasks",
    "long",
    "background",
    "permissions",
    "sessions",
    "config",
    "failures",
    "extensions",
    "hooks",
    "servers",
    "language",
    "version-2",
];

type WrittenTests = &'static [(&'static str, fn())];

/// Tests written in Rust, by the first part of their names.
const WRITTEN: &[(&str, WrittenTests)] = &[
    #[cfg(target_os = "linux")]
    ("faults/", &faults::ALL),
    ("sessions/", &replay::ALL),
    ("sessions/undo in ", &undo_in_repositories::ALL),
    ("sessions/", &sessions::ALL),
    ("sessions/", &opencode::ALL),
    ("conversations/", &conversations::ALL),
    ("files/", &files::ALL),
    ("providers/", &providers::ALL),
    ("local_servers/", &local_servers::ALL),
    ("provider_search/", &provider_search::ALL),
    ("sandbox/", &sandbox::ALL),
    ("sandbox/", &sandboxed_lines::ALL),
    ("sandbox/", &sandbox_notice::ALL),
    ("sandbox/", &sandbox_probes::ALL),
    #[cfg(target_os = "linux")]
    ("undo/", &undo::ALL),
    ("hidden/", &hidden::ALL),
    #[cfg(feature = "telemetry")]
    ("telemetry/", &telemetry::ALL),
    ("interruptions/", &interruptions::ALL),
    ("servers/", &servers::ALL),
    ("servers/", &oauth::ALL),
    ("servers/", &tool_schemas::ALL),
    ("servers/", &mcp_tool_cache::ALL),
    ("packages/", &packages::ALL),
    ("screen/", &screen::ALL),
    ("terminal_injection/", &terminal_injection::ALL),
    ("remote/", &remote::ALL),
    ("fleet/", &fleet::ALL),
    ("host_failover/", &host_failover::ALL),
    ("deadlocks/", &deadlocks::ALL),
    ("machine/", &machine::ALL),
    #[cfg(target_os = "linux")]
    ("growth/", &growth::ALL),
    #[cfg(target_os = "linux")]
    ("growth/", &thread::ALL),
];

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    faults::write_if_asked();
    mcp::serve_if_asked();
    language::serve_if_asked();
    machine::serve_if_started_as_machine();
    let bless = std::env::var_os("BLESS").is_some_and(|value| value == "1");
    let mut trials = Vec::new();
    for path in pages() {
        let name = name(&path);
        if !bless && replay_as_v2::chosen(&path) {
            let name = format!("{name} in version 2");
            let path = path.clone();
            trials.push(Trial::test(name, move || {
                Ok(Transcript::read(&path).run_second()?)
            }));
        }
        // A variable can select all of them instead.
        if !bless && !database::wanted() && project::DATABASE_PAGES.contains(&name.as_str()) {
            let name = format!("{name} in a database");
            let path = path.clone();
            trials.push(Trial::test(name, move || {
                project::in_database(|| Ok(Transcript::read(&path).run(false)?))
            }));
        }
        trials.push(Trial::test(name, move || {
            Ok(Transcript::read(&path).run(bless)?)
        }));
    }
    trials.push(Trial::test("pages/agent blocks are short", move || {
        for path in pages() {
            Transcript::read(&path).check_form(bless)?;
        }
        Ok(())
    }));
    let groups: BTreeSet<_> = wire::rows()
        .into_iter()
        .map(|row| row.group)
        .filter(|group| group != "conversation")
        .collect();
    for group in groups {
        let same = group.clone();
        trials.push(test(format!("wire/{group}"), move || wire::run(&group)));
        trials.push(test(format!("wire/{same} in version 2"), move || {
            wire::run_v2(&same)
        }));
    }
    trials.extend(
        model_mistakes::all()
            .into_iter()
            .map(|(name, run)| test(format!("model_mistakes/{name}"), run)),
    );
    for (kind, tests) in WRITTEN {
        trials.extend(
            tests
                .iter()
                .map(|(name, run)| test(format!("{kind}{name}"), *run)),
        );
    }
    trials.extend(hostile_repositories::rows().into_iter().map(|(name, row)| {
        test(format!("hostile_repositories/{name}"), move || {
            hostile_repositories::check(&row)
        })
    }));
    trials.push(test(
        "permissions/number of questions only falls".into(),
        agent_commands::questions_only_fall,
    ));
    trials.push(test("wire/every row is run".into(), every_row_is_run));
    trials.push(test(
        "wire/table of methods is true".into(),
        wire::method_table_matches_server,
    ));
    trials.push(test(
        "long/long run leaves nothing behind".into(),
        long_run::shortened,
    ));
    trials.push(test(
        "structured_output/result that fits is printed".into(),
        structured_output::a_result_that_fits,
    ));
    trials.push(test(
        "structured_output/missing result fails".into(),
        structured_output::no_result,
    ));
    trials.push(test(
        "structured_output/invalid schema is refused".into(),
        structured_output::no_schema,
    ));
    trials.push(test(
        "structured_output/missing result has its reason".into(),
        structured_output::other_ends,
    ));
    trials.push(test(
        "harness/lines are compared".into(),
        transcript::own_tests,
    ));
    trials.push(test(
        "harness/required columns are read".into(),
        wire::test_required_parser,
    ));
    if machine::leaves_out_models() {
        let tried: BTreeSet<String> = pages()
            .into_iter()
            .filter(|page| machine::has_no_model(page))
            .map(|page| name(&page))
            .collect();
        trials.retain(|trial| tried.contains(trial.name()));
    }
    if !on_path("node") {
        eprintln!("skipped: the pages in extensions: there is no node");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn test(name: String, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

fn pages() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("editor-tests");
    let mut pages = Vec::new();
    for folder in FOLDERS {
        // Extensions need a runtime for JavaScript.
        if folder == "extensions" && !on_path("node") {
            continue;
        }
        let mut files: Vec<_> = std::fs::read_dir(here.join(folder))
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
            .collect();
        files.sort();
        pages.extend(files);
    }
    pages
}

fn name(page: &Path) -> String {
    let folder = page
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_string_lossy();
    format!("{folder}/{}", page.file_stem().unwrap().to_string_lossy())
}

/// Rows that are conversations name a page, or a function of `conversations.rs`, or are run
/// elsewhere.
fn every_row_is_run() {
    // A handler that panics on demand would be a strange thing to ship.
    let elsewhere = [(
        "S30",
        "protocol/src/table.rs",
        "fn panic_is_answered_with_internal_error",
    )];
    let mut run: BTreeSet<String> = pages()
        .iter()
        .flat_map(|page| Transcript::read(page).cases())
        .collect();
    run.extend(
        conversations::ALL
            .iter()
            .filter_map(|(name, _)| name.split_once(' '))
            .map(|(id, _)| id.to_owned()),
    );
    for (id, file, words) in elsewhere {
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        assert!(text.contains(words), "{id} is said to be in {file}");
        run.insert(id.to_owned());
    }
    let rows: BTreeSet<String> = wire::rows()
        .into_iter()
        .filter(|row| row.group == "conversation")
        .map(|row| row.id)
        .collect();
    assert_eq!(
        rows.difference(&run).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "rows that nothing runs"
    );
    assert_eq!(
        run.difference(&rows).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "pages about rows that do not exist"
    );
}
