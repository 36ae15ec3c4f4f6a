//! The command line for a shell that must not end before its background commands.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::scratch;
use base::text;

/// The size limit of a single argument on Linux, in bytes; arguments must be shorter.
pub(super) const MAX_ARGUMENT_BYTES: usize = 128 << 10;

/// Returns whether a command line may start a background command with `&`. A wrong answer for a
/// quoted `&` is harmless.
pub(super) fn may_start_background(command: &str) -> bool {
    let bytes = command.as_bytes();
    memchr::memchr_iter(b'&', bytes).any(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + 1);
        !matches!(before, Some(b'&' | b'>' | b'<' | b'|' | b'\\'))
            && !matches!(after, Some(b'&' | b'>'))
    })
}

/// Returns the command line that a list of arguments means, as some agents send it: the text after
/// `bash -lc`, or the program with its arguments. The shell of a call reads no start-up files, so
/// `-l` has no effect. `None` if it is not a list of strings.
pub(super) fn line_of(command: &Value) -> Option<String> {
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

fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("bash" | "sh"))
}

/// Returns the program at the end of a pipeline that only shows its input, and so hides the exit
/// code of the command before it. A pipe in quotes is not recognised as such, which is harmless.
pub(super) fn filter_of(command: &str) -> Option<&'static str> {
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

/// Returns the file for a shell's exit code; `None` if its path would need quoting in a command
/// line.
pub(super) fn exit_code_file(directory: &Path, work: &str) -> Option<PathBuf> {
    scratch::make(directory).ok()?;
    let path = directory.join(format!("exit-{}", text::plain(work)));
    let plain = |c: char| c.is_alphanumeric() || " /._-+@=,".contains(c);
    path.to_str().filter(|path| path.chars().all(plain))?;
    Some(path)
}

/// Returns the command line for a shell that waits for its background commands: at its end it
/// writes its exit code and waits. It ends with the code of the last background command. Some
/// sandboxes kill all processes when their shell ends.
///
/// This has no effect if the command sets a trap for the exit itself, or replaces the shell by
/// another program.
pub(super) fn with_waiting_shell(command: &str, note: &Path) -> Option<String> {
    let note = note.to_str()?;
    let last = r#"{ c=$?; set +ex; } 2>/dev/null; [ "$(jobs -rp)" ] || exit $c; "#;
    let wait = "wait $!; c=$?; wait; exit $c";
    let line = format!(
        "trap '{last}{{ echo $c >|\"{note}\"; }} 2>/dev/null || exit $c; {wait}' EXIT; {command}"
    );
    // It must still fit into one argument.
    (line.len() < MAX_ARGUMENT_BYTES).then_some(line)
}

/// Reads the exit code that a shell has written.
pub(super) fn read_exit_code(note: &Path) -> Option<i32> {
    std::fs::read_to_string(note)
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
            assert_eq!(line_of(&command).as_deref(), line, "{command}");
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
            assert_eq!(filter_of(command), filter, "{command}");
        }
    }

    #[test]
    fn only_background_ampersands_start_others() {
        for (command, starts) in [
            ("a &", true),
            ("a & b", true),
            ("a&b", true),
            ("a >x 2>&1 &", true),
            ("a && b", false),
            ("a 2>&1", false),
            ("a &>x", false),
            ("a |& b", false),
            ("a <&3", false),
            ("a \\& b", false),
            ("a", false),
        ] {
            assert_eq!(may_start_background(command), starts, "{command}");
        }
        let note = Path::new("/a b/exit-call_1");
        assert!(
            with_waiting_shell("a &", note)
                .unwrap()
                .ends_with("' EXIT; a &")
        );
        assert_eq!(
            with_waiting_shell(&"a".repeat(MAX_ARGUMENT_BYTES - 10), note),
            None
        );
    }
}
