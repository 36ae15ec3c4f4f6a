//! The arguments of `bwrap`.

use std::ffi::OsString;
use std::path::Path;

use super::{Level, Policy, words};

/// Everything read-only, then what may be written, then what may not although it lies below that.
///
/// `landlock` says that Landlock will hold inside. Without it other processes must not be seen: the
/// root directory below `/proc/<id>` of one of them leads around the mounts. With it they may be,
/// so that one command can end what an earlier one has left running.
pub(super) fn args(policy: &Policy, landlock: bool) -> Vec<OsString> {
    let mut args = words(["--unshare-user", "--unshare-ipc", "--unshare-uts", "--ro-bind", "/", "/", "--dev", "/dev"]);
    if policy.level == Level::ReadOnly || !landlock {
        args.extend(words(["--unshare-pid", "--proc", "/proc"]));
    }
    if policy.level == Level::ReadOnly {
        args.push("--die-with-parent".into());
    }
    if !policy.network {
        args.push("--unshare-net".into());
    }
    // Outer ones first, so that none covers what was mounted before it.
    let mut binds: Vec<_> = policy.writable.iter().map(|path| (path, "--bind")).collect();
    binds.extend(policy.protected.iter().map(|path| (path, "--ro-bind")));
    binds.sort_by_key(|(path, _)| path.components().count());
    // A shared memory of its own comes with the devices; others are named by the settings.
    for (path, how) in binds.into_iter().filter(|(path, _)| *path != Path::new("/dev/shm") && path.exists()) {
        let how = if path.starts_with("/dev") { "--dev-bind" } else { how };
        args.extend([how.into(), path.into(), path.into()]);
    }
    args.push("--".into());
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_comes_after_what_is_writable() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("project/.git/hooks")).unwrap();
        let mut policy = Policy {
            level: Level::WorkspaceWrite,
            network: true,
            writable: vec![path("project"), path("no such"), "/dev/shm".into()],
            protected: vec![path("project/.git/hooks"), path("project/.git/none")],
        };
        let text = |policy: &Policy, landlock| {
            let args: Vec<String> = args(policy, landlock).iter().map(|arg| arg.to_string_lossy().into()).collect();
            args.join(" ").replace(&dir.path().display().to_string(), "D")
        };
        let base = "--unshare-user --unshare-ipc --unshare-uts --ro-bind / / --dev /dev";
        let binds = "--bind D/project D/project --ro-bind D/project/.git/hooks D/project/.git/hooks --";
        assert_eq!(text(&policy, true), format!("{base} {binds}"));
        assert_eq!(text(&policy, false), format!("{base} --unshare-pid --proc /proc {binds}"));
        policy.network = false;
        policy.level = Level::ReadOnly;
        policy.protected.clear();
        let wanted =
            format!("{base} --unshare-pid --proc /proc --die-with-parent --unshare-net --bind D/project D/project --");
        assert_eq!(text(&policy, true), wanted);
    }
}
