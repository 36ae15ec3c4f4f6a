//! Costs of starting `true`: bare, bound to the life of this process, and in a sandbox.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on should say where"
)]

use std::path::PathBuf;
use std::time::Duration;

use base::environment::Environment;
use divan::Bencher;
use sandbox::process::Program;
use sandbox::{Level, ProvenSandbox, Sandbox, SandboxPolicy, build_directories, existing};

#[divan::bench(args = ["bare", "bound", "read-only", "workspace-write"])]
fn start_true(bencher: Bencher<'_, '_>, how: &str) {
    let mut environment = Environment::read();
    environment.program = Some(PathBuf::from(env!("CARGO_BIN_EXE_adjutant")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let sandbox = Sandbox::new(&environment);
    let level = if how == "read-only" {
        Level::ReadOnly
    } else {
        Level::WorkspaceWrite
    };
    let held = match how {
        "read-only" | "workspace-write" => runtime.block_on(sandbox.guarantees_of(level)),
        _ => ProvenSandbox::none(level, vec![]).into(),
    };
    let policy = SandboxPolicy {
        level,
        network: level == Level::WorkspaceWrite,
        writable: existing(build_directories(&environment)),
        protected: vec![],
        has_foreign_files: false,
        hidden: vec![],
        shown: vec![],
    };
    let program = Program::new(
        "/bin/true",
        "/",
        base::child_environment::Variables::default().for_model_program(&environment),
    );
    let program = if how == "bare" {
        program
    } else {
        sandbox.wrap(&held, &policy, None, program).unwrap()
    };
    bencher.bench_local(|| {
        runtime
            .block_on(program.run(Duration::from_secs(5)))
            .unwrap()
    });
}
