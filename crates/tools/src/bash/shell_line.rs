//! What a shell is given to run, so that it does not end before what it has started with `&`.

use std::path::{Path, PathBuf};

use crate::scratch;
use base::text;

/// What a program can be given as one argument on Linux has fewer bytes than this.
pub(super) const LONGEST: usize = 128 << 10;

/// Whether a command line may start something with `&`; where it stands in quotes it does no harm to think so.
pub(super) fn starts_others(command: &str) -> bool {
    let bytes = command.as_bytes();
    memchr::memchr_iter(b'&', bytes).any(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + 1);
        !matches!(before, Some(b'&' | b'>' | b'<' | b'|' | b'\\')) && !matches!(after, Some(b'&' | b'>'))
    })
}

/// Where a shell may note its exit code; none where that cannot be written into a command line as it is.
pub(super) fn notebook(directory: &Path, work: &str) -> Option<PathBuf> {
    scratch::make(directory).ok()?;
    let path = directory.join(format!("exit-{}", text::plain(work)));
    let plain = |c: char| c.is_alphanumeric() || " /._-+@=,".contains(c);
    path.to_str().filter(|path| path.chars().all(plain))?;
    Some(path)
}

/// The command line for a shell that outlives what it has started: at its end it notes its exit code, and
/// waits. Its own end is that of what it started last. Some sandboxes end everything with their shell.
///
/// Nothing of this is done where the command sets a trap for the end itself, or becomes another program.
pub(super) fn staying(command: &str, note: &Path) -> Option<String> {
    let note = note.to_str()?;
    let last = r#"{ c=$?; set +ex; } 2>/dev/null; [ "$(jobs -rp)" ] || exit $c; "#;
    let wait = "wait $!; c=$?; wait; exit $c";
    let line = format!("trap '{last}{{ echo $c >|\"{note}\"; }} 2>/dev/null || exit $c; {wait}' EXIT; {command}");
    // It must still be given as one argument.
    (line.len() < LONGEST).then_some(line)
}

/// The exit code a shell has noted.
pub(super) fn noted(note: &Path) -> Option<i32> {
    std::fs::read_to_string(note).ok()?.strip_suffix('\n')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ampersands_that_start_something() {
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
        assert_eq!(staying(&"a".repeat(LONGEST - 10), note), None);
    }
}
