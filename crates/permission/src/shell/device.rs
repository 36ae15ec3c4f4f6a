//! Devices: harmless ones, and disks.

use super::unit::CommandUnit;
use crate::Action;

/// Returns whether a device holds no user data.
pub(crate) fn is_harmless(text: &str) -> bool {
    matches!(
        text,
        "/dev/null"
            | "/dev/stdin"
            | "/dev/stdout"
            | "/dev/stderr"
            | "/dev/tty"
            | "/dev/zero"
            | "/dev/full"
            | "/dev/random"
            | "/dev/urandom"
            | "-"
    ) || text
        .strip_prefix("/dev/fd/")
        .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Records that a device is written.
pub(super) fn written(text: &str, unit: &mut CommandUnit) {
    let name = text.trim_start_matches("/dev/");
    let disks = [
        "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "mapper", "dm-", "loop", "md",
        "mem", "kmem", "port",
    ];
    if disks.iter().any(|disk| name.starts_with(disk)) {
        unit.set_minimum(
            Action::Deny,
            &format!("{text} is a disk: writing to it destroys what is on it"),
        );
    } else {
        unit.set_minimum(Action::Ask, &format!("{text} is a device"));
    }
}
