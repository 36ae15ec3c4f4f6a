//! Commands of `adjutant` that run to their end.

use std::io::Write;
use std::process::{Output, Stdio};

use crate::project::Project;

/// Runs `adjutant` with these words, and something on its standard input.
pub fn adjutant(project: &Project, words: &[&str], input: &str) -> Output {
    let mut command = project.command(env!("CARGO_BIN_EXE_adjutant"));
    command.args(words).current_dir(project.cwd());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

/// Runs a command that must succeed, and returns its standard output.
pub fn stdout_of(project: &Project, words: &[&str]) -> String {
    let output = adjutant(project, words, "");
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must succeed, and returns the words of its list, whose cells may be wrapped.
pub fn list_of(project: &Project, words: &[&str]) -> String {
    let text = stdout_of(project, words);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// Runs a command that must fail, and returns its standard error.
pub fn stderr_of(project: &Project, words: &[&str]) -> String {
    let output = adjutant(project, words, "");
    assert!(
        !output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8(output.stderr).unwrap()
}
