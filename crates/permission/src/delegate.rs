//! Delegates: programs whose work is done outside the sandbox, by a service, as another user or on
//! another machine.

use super::shell::CommandAnalysis;

/// Programs that have a service or another machine do their work, outside the sandbox.
pub(super) const DELEGATES: &[&str] = &[
    "at",
    "batch",
    "buildah",
    "busctl",
    "crontab",
    "dbus-send",
    "distrobox",
    "doas",
    "docker",
    "docker-compose",
    "flatpak-spawn",
    "gdbus",
    "host-spawn",
    "incus",
    "kubectl",
    "launchctl",
    "loginctl",
    "lxc",
    "machinectl",
    "mosh",
    "nerdctl",
    "osascript",
    "pkexec",
    "podman",
    "podman-compose",
    "qdbus",
    "run0",
    "runuser",
    "scp",
    "screen",
    "service",
    "sftp",
    "ssh",
    "su",
    "sudo",
    "systemctl",
    "systemd-run",
    "tmux",
    "toolbox",
];

/// Delegates whose names are also English words, or options of other programs.
pub(super) const AMBIGUOUS: [&str; 9] = [
    "at", "batch", "screen", "service", "su", "toolbox", "ssh", "mosh", "scp",
];

/// Returns the name of a program without its directory.
pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Returns whether a program's work is done outside the sandbox.
pub(super) fn is_delegate(program: &str) -> bool {
    DELEGATES.contains(&base_name(program))
}

/// Returns the first delegate in a command line; `None` if there is none.
pub fn delegate_in(line: &CommandAnalysis) -> Option<&str> {
    let programs = line.units.iter().filter_map(|unit| unit.program.as_deref());
    programs.map(base_name).find(|program| is_delegate(program))
}
