//! Restrictions that a process puts on itself and on all processes it will start: it drops
//! capabilities and, with Landlock, the rights to write files and to signal other processes.

use std::path::PathBuf;

#[cfg(target_os = "linux")]
pub(super) use linux::{lock, step_down};

#[cfg(not(target_os = "linux"))]
pub(super) fn lock(_: &[PathBuf], _: bool) -> Result<(), String> {
    Err("Landlock is part of Linux".into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn step_down(_: bool) -> Result<(), String> {
    Err("capabilities are part of Linux".into())
}

#[cfg(target_os = "linux")]
mod linux {
    use landlock::{
        ABI, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
        RulesetStatus, Scope, path_beneath_rules,
    };
    use rustix::thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    };

    use super::PathBuf;

    /// Devices that every user may write.
    const DEVICES: &[&str] = &[
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/ptmx",
        "/dev/pts",
    ];

    /// Restricts writing to the given paths and to harmless devices, and signals to the sandbox if
    /// the kernel supports that (6.12).
    ///
    /// # Errors
    /// If the kernel cannot restrict all kinds of writing (before 6.2 it cannot restrict
    /// truncation).
    pub(in super::super) fn lock(writable: &[PathBuf], read_only: bool) -> Result<(), String> {
        let write = AccessFs::from_write(ABI::V3);
        let files = write & !(AccessFs::MakeChar | AccessFs::MakeBlock);
        // Desktop services are reached by abstract sockets, so these are allowed if services are.
        let scope = if read_only {
            Scope::Signal | Scope::AbstractUnixSocket
        } else {
            Scope::Signal.into()
        };
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(write)
            .map_err(landlock_error)?
            .set_compatibility(CompatLevel::BestEffort)
            .scope(scope)
            .map_err(landlock_error)?;
        if read_only {
            rules = rules
                .handle_access(AccessFs::IoctlDev)
                .map_err(landlock_error)?;
        }
        let ioctl = if read_only {
            AccessFs::IoctlDev.into()
        } else {
            landlock::BitFlags::EMPTY
        };
        let status = rules
            .create()
            .map_err(landlock_error)?
            .add_rules(path_beneath_rules(writable, files))
            .map_err(landlock_error)?
            .add_rules(path_beneath_rules(
                DEVICES,
                AccessFs::WriteFile | AccessFs::Truncate | ioctl,
            ))
            .map_err(landlock_error)?
            .restrict_self()
            .map_err(landlock_error)?;
        match status.ruleset {
            RulesetStatus::NotEnforced => Err("this kernel has no Landlock".into()),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        }
    }

    /// Drops all capabilities, and keeps programs from regaining them. `foreign` keeps those by
    /// which root works with files of other users.
    pub(in super::super) fn step_down(foreign: bool) -> Result<(), String> {
        set_no_new_privs(true).map_err(capability_error)?;
        let has = capabilities(None).map_err(capability_error)?;
        let files = CapabilitySet::CHOWN
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::FOWNER
            | CapabilitySet::FSETID;
        let retained = if foreign {
            files & has.permitted
        } else {
            CapabilitySet::empty()
        };
        if has.effective.contains(CapabilitySet::SETPCAP) {
            let all = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
            for capability in all.filter(|capability| !retained.contains(*capability)) {
                // The error of the kernel marks the end of its list.
                if remove_capability_from_bounding_set(capability).is_err() {
                    break;
                }
            }
        }
        clear_ambient_capability_set().map_err(capability_error)?;
        let sets = CapabilitySets {
            effective: retained,
            permitted: retained,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets).map_err(capability_error)
    }

    #[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
    fn landlock_error(e: landlock::RulesetError) -> String {
        format!("Landlock: {e}")
    }

    fn capability_error(e: rustix::io::Errno) -> String {
        format!("capabilities cannot be given up: {e}")
    }
}
