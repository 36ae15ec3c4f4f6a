//! Command lines: from a list of arguments, for a shell that waits for its background commands, and
//! those that hide an exit code.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::scratch;
use base::text;

/// The size limit of a single argument on Linux, in bytes; arguments must be shorter.
pub(super) const MAX_ARGUMENT_BYTES: usize = 128 << 10;

/// Returns the command line that a list of arguments means, as some agents send it: the text after
/// `bash -lc`, or the program with its arguments. The shell of a call reads no start-up files, so
/// `-l` has no effect. `None` if it is not a list of strings.
pub(super) fn line_of_arguments(command: &Value) -> Option<String> {
    let arguments = command.as_array()?;
    let arguments: Option<Vec<&str>> = arguments.iter().map(Value::as_str).collect();
    match &arguments?[..] {
        [] => None,
        [line] => Some((*line).to_owned()),
        [shell, "-c" | "-lc" | "-cl", line] if is_shell(shell) => Some((*line).to_owned()),
        [shell, "-l", "-c", line] if is_shell(shell) => Some((*line).to_owned()),
        all => Some(
            all.iter()
                .map(|word| text::shell_quoted(word))
                .collect::<Vec<_>>()
                .join(" "),
        ),
    }
}

/// Returns whether a program is a POSIX shell, by its name.
fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("bash" | "sh"))
}

/// Returns the program at the end of a pipeline that only shows its input, and so hides the exit
/// code of the command before it; `None` for any other line. A pipe in quotes is not recognised as
/// such, which is harmless.
pub(super) fn hiding_filter(command: &str) -> Option<&'static str> {
    const FILTERS: [&str; 5] = ["cat", "head", "less", "tail", "tee"];
    let (before, last) = command.trim_end().rsplit_once('|')?;
    let is_alternative = before.ends_with('|');
    if is_alternative
        || before.contains("pipefail")
        || last.contains([';', '&', '\'', '"', '`', ')', '\n', '#'])
    {
        return None;
    }
    let name = last.split_whitespace().next()?;
    FILTERS.into_iter().find(|filter| *filter == name)
}

/// Returns the file in the scratch `directory` for the exit code of the shell of the call `work`.
/// Creates the directory. Returns `None` if that fails, or if the path would need quoting in a
/// command line.
pub(super) fn exit_code_file(directory: &Path, work: &str) -> Option<PathBuf> {
    scratch::create(directory).ok()?;
    let path = directory.join(format!("exit-{}", text::plain(work)));
    let plain = |c: char| c.is_alphanumeric() || " /._-+@=,".contains(c);
    path.to_str().filter(|path| path.chars().all(plain))?;
    Some(path)
}

/// Returns the command line for a shell that waits for its background commands: at its end it
/// writes its exit code to the file `note` and waits. It ends with the code of the last background
/// command. Some sandboxes kill all processes when their shell ends.
///
/// The shell waits if it ends by `exit`, which also follows the command, or by an error. A shell
/// that a signal ends runs its exit trap too, with the code of an earlier command in `$?`: it must
/// not wait, so that its end tells the signal. The command is an argument of `eval`, so that
/// neither an open here-document nor a backslash at its end can reach the `exit` behind it.
///
/// An `exit` of the command first leaves every `eval`, so that the trap finds the outermost one in
/// `$BASH_COMMAND`. A signal after the last command finds the inner one there, which tells the two
/// apart.
///
/// This has no effect if the command sets a trap for the exit itself, or replaces the shell by
/// another program. Returns `None` if the line would be too long for one argument.
pub(super) fn with_waiting_shell(command: &str, note: &Path) -> Option<String> {
    let note = note.to_str()?;
    let at_end = r#"{ c=$?; o=$-; set +ex; } 2>/dev/null; [ "$(jobs -rp)" ] || exit $c"#;
    let by_exit = r#"$BASH_COMMAND == exit || $BASH_COMMAND == "exit "*"#;
    let out_of_eval = r#"$BASH_COMMAND == "builtin eval "*"#;
    let by_error = "$o == *e* && $c != 0";
    let write = format!(r#"{{ echo $c >|"{note}"; }} 2>/dev/null || exit $c"#);
    let wait = "wait $!; c=$?; wait; exit $c";
    let command = text::shell_quoted(command);
    let inner = format!("eval -- {command}; {{ exit; }} 2>/dev/null");
    let inner = text::shell_quoted(&inner);
    let line = format!(
        "trap '{at_end}; [[ {by_exit} || {out_of_eval} || ( {by_error} ) ]] || exit $c; {write}; \
         {wait}' EXIT; builtin eval -- {inner}"
    );
    (line.len() < MAX_ARGUMENT_BYTES).then_some(line)
}

/// Reads the exit code that a shell has written, unless the command has put something else there.
pub(super) fn read_exit_code(note: &Path) -> Option<i32> {
    const MAX_BYTES: u64 = 16;
    base::file::read_small_text(note, MAX_BYTES)
        .ok()?
        .strip_suffix('\n')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_of_arguments_are_command_lines() {
        for (command, line) in [
            (json!(["bash", "-lc", "ls | wc -l"]), Some("ls | wc -l")),
            (json!(["/bin/sh", "-c", "a 'b c'"]), Some("a 'b c'")),
            (json!(["bash", "-l", "-c", "x"]), Some("x")),
            (json!(["git", "log", "-1"]), Some("git log -1")),
            (
                json!(["echo", "a b", "it's", "", "$x"]),
                Some(r"echo 'a b' 'it'\''s' '' '$x'"),
            ),
            (
                json!(["python3", "-c", "print(1)"]),
                Some("python3 -c 'print(1)'"),
            ),
            (json!(["bash", "-c", "$0", "ls"]), Some("bash -c '$0' ls")),
            (json!(["ls -la"]), Some("ls -la")),
            (json!([]), None),
            (json!(["ls", 1]), None),
            (json!("ls"), None),
        ] {
            assert_eq!(line_of_arguments(&command).as_deref(), line, "{command}");
        }
    }

    #[test]
    fn filters_at_the_end_hide_the_exit_code() {
        for (command, filter) in [
            ("cargo test 2>&1 | tail -20", Some("tail")),
            ("make |& head", None),
            ("make | tee log\n", Some("tee")),
            ("make || cat log", None),
            ("set -o pipefail; make | tail", None),
            ("make | tail; echo done", None),
            ("echo 'a | tail'", None),
            ("make | grep error", None),
            ("tail x", None),
            ("make", None),
        ] {
            assert_eq!(hiding_filter(command), filter, "{command}");
        }
    }

    #[test]
    fn waiting_shell_quotes_the_command() {
        let note = Path::new("/a b/exit-call_1");
        let line = with_waiting_shell("it's &", note).unwrap();
        assert!(
            line.contains(r"' EXIT; builtin eval -- 'eval -- '\''it"),
            "{line}"
        );
        assert_eq!(
            with_waiting_shell(&"a".repeat(MAX_ARGUMENT_BYTES - 10), note),
            None
        );
    }

    /// Runs a command line. Returns its end and its output.
    #[expect(clippy::disallowed_methods, reason = "a shell without a sandbox")]
    fn run(line: &str) -> (std::process::ExitStatus, Vec<u8>) {
        let shell = std::process::Command::new("bash")
            .args(["--noprofile", "--norc", "-c", line])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        (shell.status, shell.stdout)
    }

    #[test]
    fn shell_waits_for_background_commands_wherever_the_command_exits() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("exit-1");
        // It ends when the shell has begun to wait, or after five seconds at most.
        let background = format!(
            "for i in {{1..500}}; do [ -e '{}' ] && break; sleep 0.01; done >/dev/null 2>&1 &",
            note.display()
        );
        for end in [
            "exit 7",
            "(exit 7)",
            "f() { exit 7; }; f",
            "if true; then exit 7; fi",
            "eval 'exit 7'",
            "builtin exit 7",
        ] {
            let command = format!("{background} {end}");
            run(&with_waiting_shell(&command, &note).unwrap());
            assert_eq!(read_exit_code(&note), Some(7), "{end}");
            std::fs::remove_file(&note).unwrap();
        }
    }

    /// Compares the end that is reported with the end of a shell that runs only the command.
    #[test]
    fn reported_end_is_that_of_the_shell_without_a_trap() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("exit-1");
        let commands = [
            "exit",
            "exit 7",
            "exit 300",
            "false",
            "(exit 7)",
            "(exit 3) || exit",
            "f() { return 9; }; f",
            "f() { exit 4; }; f",
            "for i in 3 4; do exit $i; done",
            "true; return 4",
            "nosuchcommand",
            "/etc/passwd",
            "set -o pipefail; false | true",
            "set -e; false; echo on",
            "set -e; ! true; kill -TERM $$",
            "set -u; echo $unset; echo on",
            ": ${unset?missing}; echo on",
            "kill -TERM $$",
            "kill -TERM $$; exit 5",
            "kill -HUP $$",
            "kill -INT $$",
            "kill -SEGV $$",
            "kill -USR1 $$",
            "kill -9 $$",
            "f() { kill -TERM $$; }; f; exit 4",
            "eval 'kill -TERM $$'",
            "sh -c 'kill -TERM $PPID'; sleep 0.5",
            "sh -c 'kill -TERM $$'",
            "(kill -TERM $BASHPID)",
            "exec sh -c 'exit 5'",
            "exec sh -c 'kill -TERM $$'",
            "exec /nosuch",
            "trap 'exit 3' TERM; kill -TERM $$",
            "trap '' TERM; kill -TERM $$; exit 4",
            "trap : EXIT; exit 6",
            "trap 'exit 12' ERR; false",
            "fi",
            "if true; then",
            "cat <<END\nopen",
            "echo open \\",
            "true # comment",
        ];
        for command in commands {
            let command = format!("sleep 0.02 & {command}");
            let (status, printed) = run(&command);
            let (line_status, line_printed) = run(&with_waiting_shell(&command, &note).unwrap());
            let code = read_exit_code(&note).or(line_status.code());
            std::fs::remove_file(&note).ok();
            assert_eq!(
                (code, line_printed),
                (status.code(), printed),
                "{command}: {line_status}"
            );
            if code.is_none() {
                assert_eq!(line_status, status, "{command}");
            }
        }
    }
}
