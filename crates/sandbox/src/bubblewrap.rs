//! The arguments of `bwrap`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use super::{SandboxPolicy, words};

/// A file that is hidden: a device that cannot be opened lies over it.
const MASK: &str = "mask";

/// Everything read-only, then what may be written, then what may not although it lies below that.
///
/// The command sees no process but its own, so it can neither signal nor read others, nor find a way
/// around the mounts below their `/proc/<id>/root`. Everything it started ends with it, and it with us.
///
/// Who is `privileged`, as root is, needs no user namespace. In one root could not write the files of
/// other users; what it could undo without one is taken from it inside, with its capabilities.
pub(super) fn args(policy: &SandboxPolicy, privileged: bool, landlock: bool) -> Vec<OsString> {
    let mut args = if privileged { vec![] } else { words(["--unshare-user"]) };
    args.extend(words(["--unshare-ipc", "--unshare-uts", "--unshare-pid", "--die-with-parent"]));
    args.extend(words(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]));
    // The kernel's settings, which root may write without any capability.
    args.extend(words(["--ro-bind-try", "/proc/sys", "/proc/sys"]));
    if !policy.network {
        args.push("--unshare-net".into());
    }
    let writable = |path: &Path| policy.writable.iter().any(|root| path.starts_with(root) && path != root);
    // What is mounted cannot be renamed or removed. So the directories above what is protected are as
    // well, or one of them could be put aside and another one made in its place.
    let kept = policy.protected.iter().chain(&policy.hidden);
    let above: BTreeSet<&Path> =
        kept.flat_map(|path| path.ancestors().skip(1).take_while(|path| writable(path))).collect();
    let mut binds: Vec<(&Path, &str)> = policy.writable.iter().map(|path| (path.as_path(), "--bind")).collect();
    binds.extend(
        above.into_iter().filter(|path| policy.writable.iter().all(|root| root != path)).map(|path| (path, "--bind")),
    );
    binds.extend(policy.protected.iter().chain(&policy.shown).map(|path| (path.as_path(), "--ro-bind")));
    binds.extend(policy.hidden.iter().map(|path| (path.as_path(), if path.is_dir() { "--tmpfs" } else { MASK })));
    // Outer ones first, so that none covers what was mounted before it.
    binds.sort_by_key(|(path, _)| path.components().count());
    // A shared memory of its own comes with the devices; others are named by the settings.
    for (path, how) in binds.into_iter().filter(|(path, _)| *path != Path::new("/dev/shm") && path.exists()) {
        let how = if path.starts_with("/dev") { "--dev-bind" } else { how };
        match how {
            "--tmpfs" => args.extend([how.into(), path.into()]),
            MASK => args.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]),
            _ => args.extend([how.into(), path.into(), path.into()]),
        }
    }
    // Only now: what is shown below them had to be mounted first. With Landlock inside nothing is written there anyway.
    let unsealed = if landlock { &[][..] } else { &policy.hidden };
    for path in unsealed.iter().filter(|path| path.is_dir()) {
        args.extend(["--remount-ro".into(), path.into()]);
    }
    args.push("--".into());
    args
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn protection_comes_after_what_is_writable() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("project/.git/hooks")).unwrap();
        let mut policy = SandboxPolicy {
            level: Level::WorkspaceWrite,
            network: true,
            foreign: false,
            writable: vec![path("project"), path("no such"), "/dev/shm".into()],
            protected: vec![path("project/.git/hooks"), path("project/.git/none")],
            hidden: vec![],
            shown: vec![],
        };
        let text = |policy: &SandboxPolicy, privileged| {
            let args: Vec<String> =
                args(policy, privileged, false).iter().map(|arg| arg.to_string_lossy().into()).collect();
            args.join(" ").replace(&dir.path().display().to_string(), "D")
        };
        let base = "--unshare-ipc --unshare-uts --unshare-pid --die-with-parent --ro-bind / / --dev /dev --proc /proc --ro-bind-try /proc/sys /proc/sys";
        let binds = "--bind D/project D/project --bind D/project/.git D/project/.git --ro-bind D/project/.git/hooks D/project/.git/hooks --";
        assert_eq!(text(&policy, true), format!("{base} {binds}"));
        assert_eq!(text(&policy, false), format!("--unshare-user {base} {binds}"));
        policy.network = false;
        policy.level = Level::ReadOnly;
        policy.protected.clear();
        assert_eq!(text(&policy, true), format!("{base} --unshare-net --bind D/project D/project --"));
        // What is hidden is not there, but for what is shown below it; nothing is written into it.
        for folder in ["home/.aws", "run"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        for file in ["home/history", "run/agent", "project/key"] {
            std::fs::write(path(file), "").unwrap();
        }
        policy.hidden = ["run", "home/.aws", "home/history", "project/key", "none"].map(path).into();
        policy.shown = vec![path("run/agent")];
        let hidden = "--bind D/project D/project --tmpfs D/run --ro-bind D/run/agent D/run/agent --tmpfs D/home/.aws --ro-bind /dev/null D/home/history --ro-bind /dev/null D/project/key --remount-ro D/run --remount-ro D/home/.aws --";
        assert_eq!(text(&policy, true), format!("{base} --unshare-net {hidden}"));
    }
}
