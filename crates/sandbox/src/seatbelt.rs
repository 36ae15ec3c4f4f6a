//! Builds the profile for `sandbox-exec` of macOS. It is written from the documentation of its
//! language, and is tried like every other mechanism before it is used.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use super::{Level, SandboxPolicy};

/// Returns the arguments of `sandbox-exec` before the program.
pub(super) fn args(policy: &SandboxPolicy) -> Vec<OsString> {
    vec!["-p".into(), profile(policy).into()]
}

/// Returns a profile that allows everything but writing outside of writable paths, reading hidden
/// paths and, if it is blocked, the network. Later rules take precedence.
fn profile(policy: &SandboxPolicy) -> String {
    let mut text = String::from("(version 1)\n(allow default)\n(deny file-write*)\n");
    text.push_str(
        "(allow file-write* (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/tty\")",
    );
    text.push_str(" (literal \"/dev/dtracehelper\") (subpath \"/dev/fd\"))\n");
    if policy.level == Level::WorkspaceWrite {
        text.push_str("(allow file-write* (regex #\"^/dev/(ptmx|ttys[0-9]+)$\"))\n");
    }
    for (paths, verb) in [(&policy.writable, "allow"), (&policy.protected, "deny")] {
        for path in paths {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "({verb} file-write* (subpath {}))", quoted(path));
        }
    }
    for (paths, verb) in [(&policy.hidden, "deny"), (&policy.shown, "allow")] {
        for path in paths {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "({verb} file-read* (subpath {}))", quoted(path));
        }
    }
    if !policy.network {
        text.push_str("(deny network*)\n");
    }
    text
}

/// Returns a path as a string of the profile.
fn quoted(path: &Path) -> String {
    format!(
        "\"{}\"",
        path.to_string_lossy()
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_denies_after_allowing() {
        let policy = SandboxPolicy {
            level: Level::ReadOnly,
            network: false,
            writable: vec!["/private/tmp/a \"b\"".into()],
            protected: vec!["/private/tmp/a/.git/hooks".into()],
            hidden: vec![],
            shown: vec![],
            has_foreign_files: false,
        };
        let text = profile(&policy);
        let rest = text.split_once("(subpath \"/dev/fd\"))\n").unwrap().1;
        assert_eq!(
            rest,
            "(allow file-write* (subpath \"/private/tmp/a \\\"b\\\"\"))\n(deny file-write* (subpath \"/private/tmp/a/.git/hooks\"))\n(deny network*)\n"
        );
    }
}
