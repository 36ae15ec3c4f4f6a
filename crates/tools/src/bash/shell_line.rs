//! The command line for a shell that must not end before its background commands.

use std::path::{Path, PathBuf};

use crate::scratch;
use base::text;

/// The size limit of a single argument on Linux, in bytes; arguments must be shorter.
pub(super) const MAX_ARGUMENT_BYTES: usize = 128 << 10;

/// Returns whether a command line may start a background command with `&`. A wrong answer for a
/// quoted `&` is harmless.
pub(super) fn starts_others(command: &str) -> bool {
    let bytes = command.as_bytes();
    memchr::memchr_iter(b'&', bytes).any(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + 1);
        !matches!(before, Some(b'&' | b'>' | b'<' | b'|' | b'\\'))
            && !matches!(after, Some(b'&' | b'>'))
    })
}

/// Returns the file for a shell's exit code; `None` if its path would need quoting in a command
/// line.
pub(super) fn notebook(directory: &Path, work: &str) -> Option<PathBuf> {
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
pub(super) fn staying(command: &str, note: &Path) -> Option<String> {
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
pub(super) fn noted(note: &Path) -> Option<i32> {
    std::fs::read_to_string(note)
        .ok()?
        .strip_suffix('\n')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(starts_others(command), starts, "{command}");
        }
        let note = Path::new("/a b/exit-call_1");
        assert!(staying("a &", note).unwrap().ends_with("' EXIT; a &"));
        assert_eq!(staying(&"a".repeat(MAX_ARGUMENT_BYTES - 10), note), None);
    }
}
