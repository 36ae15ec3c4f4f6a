//! The profile for macOS's `sandbox-exec`. Written from its documented language; it is tried there
//! like any other mechanism before anything is claimed.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use super::{Level, SandboxPolicy};

pub(super) fn args(policy: &SandboxPolicy) -> Vec<OsString> {
    vec!["-p".into(), profile(policy).into()]
}

/// Everything is allowed but writing outside and, where it is cut off, the network. Later rules win.
fn profile(policy: &SandboxPolicy) -> String {
    let mut text = String::from("(version 1)\n(allow default)\n(deny file-write*)\n");
    text.push_str("(allow file-write* (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/tty\")");
    text.push_str(" (literal \"/dev/dtracehelper\") (subpath \"/dev/fd\"))\n");
    if policy.level == Level::WorkspaceWrite {
        text.push_str("(allow file-write* (regex #\"^/dev/(ptmx|ttys[0-9]+)$\"))\n");
    }
    for (paths, verb) in [(&policy.writable, "allow"), (&policy.protected, "deny")] {
        for path in paths {
            // Writing to a string does not fail.
            let _ = writeln!(text, "({verb} file-write* (subpath {}))", quoted(path));
        }
    }
    for (paths, verb) in [(&policy.hidden, "deny"), (&policy.shown, "allow")] {
        for path in paths {
            // Writing to a string does not fail.
            let _ = writeln!(text, "({verb} file-read* (subpath {}))", quoted(path));
        }
    }
    if !policy.network {
        text.push_str("(deny network*)\n");
    }
    text
}

fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile() {
        let policy = SandboxPolicy {
            level: Level::ReadOnly,
            network: false,
            writable: vec!["/private/tmp/a \"b\"".into()],
            protected: vec!["/private/tmp/a/.git/hooks".into()],
            hidden: vec![],
            shown: vec![],
            foreign: false,
        };
        let text = profile(&policy);
        let rest = text.split_once("(subpath \"/dev/fd\"))\n").unwrap().1;
        assert_eq!(
            rest,
            "(allow file-write* (subpath \"/private/tmp/a \\\"b\\\"\"))\n(deny file-write* (subpath \"/private/tmp/a/.git/hooks\"))\n(deny network*)\n"
        );
    }
}
