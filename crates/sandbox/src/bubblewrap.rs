//! Builds the arguments of `bwrap` for a policy.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use super::SandboxPolicy;

/// The marker, in place of an option, for a hidden file: a device is mounted over it that cannot be
/// opened there.
const MASK: &str = "mask";

/// Returns the arguments: everything is mounted read-only, then writable paths, then protected
/// paths below those. `landlock` is true if Landlock restricts the command inside as well.
///
/// The command sees only its own processes, so it can neither signal nor read others, nor bypass
/// the mounts by their `/proc/<id>/root`. All its processes end with it, and it ends with adjutant.
///
/// A `privileged` process, such as one of root, needs no user namespace. In one, root could not
/// write files of other users. Without one, it loses the rights to undo the mounts inside, with its
/// capabilities.
pub(super) fn args(policy: &SandboxPolicy, privileged: bool, landlock: bool) -> Vec<OsString> {
    let mut args = if privileged {
        vec![]
    } else {
        os_strings(["--unshare-user"])
    };
    args.extend(os_strings([
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-pid",
        "--die-with-parent",
    ]));
    args.extend(os_strings([
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
    ]));
    // Kernel settings, which root may write without any capability.
    args.extend(os_strings(["--ro-bind-try", "/proc/sys", "/proc/sys"]));
    if !policy.network {
        args.push("--unshare-net".into());
    }
    let is_below_writable = |path: &Path| {
        policy
            .writable
            .iter()
            .any(|root| path.starts_with(root) && path != root)
    };
    // A mount point cannot be renamed or removed. So the directories above protected paths are
    // mounted too; otherwise one of them could be renamed and replaced by another.
    let restricted = policy.protected.iter().chain(&policy.hidden);
    let above: BTreeSet<&Path> = restricted
        .flat_map(|path| {
            path.ancestors()
                .skip(1)
                .take_while(|path| is_below_writable(path))
        })
        .collect();
    let mut binds: Vec<(&Path, &str)> = policy
        .writable
        .iter()
        .map(|path| (path.as_path(), "--bind"))
        .collect();
    binds.extend(
        above
            .into_iter()
            .filter(|path| policy.writable.iter().all(|root| root != path))
            .map(|path| (path, "--bind")),
    );
    binds.extend(
        policy
            .protected
            .iter()
            .chain(&policy.shown)
            .map(|path| (path.as_path(), "--ro-bind")),
    );
    binds.extend(
        policy
            .hidden
            .iter()
            .map(|path| (path.as_path(), if path.is_dir() { "--tmpfs" } else { MASK })),
    );
    // Outer paths first, so that they do not cover mounts inside them.
    binds.sort_by_key(|(path, _)| path.components().count());
    // A private shared memory comes with the devices; other paths below `/dev` are named by the
    // settings.
    for (path, how) in binds
        .into_iter()
        .filter(|(path, _)| *path != Path::new("/dev/shm") && path.exists())
    {
        let how = if path.starts_with("/dev") {
            "--dev-bind"
        } else {
            how
        };
        match how {
            "--tmpfs" => args.extend([how.into(), path.into()]),
            MASK => args.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]),
            _ => args.extend([how.into(), path.into(), path.into()]),
        }
    }
    // Not earlier, because paths shown below them had to be mounted first. With Landlock inside,
    // they are read-only anyway.
    let writable_mounts = if landlock { &[][..] } else { &policy.hidden };
    for path in writable_mounts.iter().filter(|path| path.is_dir()) {
        args.extend(["--remount-ro".into(), path.into()]);
    }
    args.push("--".into());
    args
}

/// Converts arguments.
fn os_strings<const N: usize>(texts: [&str; N]) -> Vec<OsString> {
    texts.map(OsString::from).into()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn protected_paths_are_mounted_after_writable_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("project/.git/hooks")).unwrap();
        let mut policy = SandboxPolicy {
            level: Level::WorkspaceWrite,
            network: true,
            has_foreign_files: false,
            writable: vec![path("project"), path("no such"), "/dev/shm".into()],
            protected: vec![path("project/.git/hooks"), path("project/.git/none")],
            hidden: vec![],
            shown: vec![],
        };
        let text = |policy: &SandboxPolicy, privileged| {
            let args: Vec<String> = args(policy, privileged, false)
                .iter()
                .map(|arg| arg.to_string_lossy().into())
                .collect();
            args.join(" ")
                .replace(&dir.path().display().to_string(), "D")
        };
        let base = "--unshare-ipc --unshare-uts --unshare-pid --die-with-parent --ro-bind / / --dev /dev --proc /proc --ro-bind-try /proc/sys /proc/sys";
        let binds = "--bind D/project D/project --bind D/project/.git D/project/.git --ro-bind D/project/.git/hooks D/project/.git/hooks --";
        assert_eq!(text(&policy, true), format!("{base} {binds}"));
        assert_eq!(
            text(&policy, false),
            format!("--unshare-user {base} {binds}")
        );
        policy.network = false;
        policy.level = Level::ReadOnly;
        policy.protected.clear();
        assert_eq!(
            text(&policy, true),
            format!("{base} --unshare-net --bind D/project D/project --")
        );
        // Hidden paths do not exist, except for the paths shown below them, and are read-only.
        for folder in ["home/.aws", "run"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        for file in ["home/history", "run/agent", "project/key"] {
            std::fs::write(path(file), "").unwrap();
        }
        policy.hidden = ["run", "home/.aws", "home/history", "project/key", "none"]
            .map(path)
            .into();
        policy.shown = vec![path("run/agent")];
        let hidden = "--bind D/project D/project --tmpfs D/run --ro-bind D/run/agent D/run/agent --tmpfs D/home/.aws --ro-bind /dev/null D/home/history --ro-bind /dev/null D/project/key --remount-ro D/run --remount-ro D/home/.aws --";
        assert_eq!(
            text(&policy, true),
            format!("{base} --unshare-net {hidden}")
        );
    }
}
