//! What a process takes from itself, for good and for everything it will start: the rights of a
//! superuser, and with Landlock the right to write files and to signal others.

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
        ABI, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
        path_beneath_rules,
    };
    use rustix::thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
        set_capabilities, set_no_new_privs,
    };

    use super::PathBuf;

    /// Devices anybody may write to.
    const DEVICES: &[&str] =
        &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"];

    /// Nothing is written but below these, and to the harmless devices, and nobody outside is signalled
    /// where the kernel knows that (6.12). Fails where the kernel cannot do all of the former (before
    /// 6.2 it does not know truncation).
    pub(in super::super) fn lock(writable: &[PathBuf], read_only: bool) -> Result<(), String> {
        let refused = |e: landlock::RulesetError| format!("Landlock: {e}");
        let write = AccessFs::from_write(ABI::V3);
        let files = write & !(AccessFs::MakeChar | AccessFs::MakeBlock);
        // The desktop's services are reached by abstract sockets; who may reach services may those.
        let scope = if read_only { Scope::Signal | Scope::AbstractUnixSocket } else { Scope::Signal.into() };
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(write)
            .map_err(refused)?
            .set_compatibility(CompatLevel::BestEffort)
            .scope(scope)
            .map_err(refused)?;
        if read_only {
            rules = rules.handle_access(AccessFs::IoctlDev).map_err(refused)?;
        }
        let ioctl = if read_only { AccessFs::IoctlDev.into() } else { landlock::BitFlags::EMPTY };
        let status = rules
            .create()
            .map_err(refused)?
            .add_rules(path_beneath_rules(writable, files))
            .map_err(refused)?
            .add_rules(path_beneath_rules(DEVICES, AccessFs::WriteFile | AccessFs::Truncate | ioctl))
            .map_err(refused)?
            .restrict_self()
            .map_err(refused)?;
        match status.ruleset {
            RulesetStatus::NotEnforced => Err("this kernel has no Landlock".into()),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        }
    }

    /// Gives up every capability, and that any program could bring one back. `foreign` keeps those by
    /// which root works with files of other users.
    pub(in super::super) fn step_down(foreign: bool) -> Result<(), String> {
        let failed = |e: rustix::io::Errno| format!("capabilities cannot be given up: {e}");
        set_no_new_privs(true).map_err(failed)?;
        let has = capabilities(None).map_err(failed)?;
        let files = CapabilitySet::CHOWN | CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::FSETID;
        let kept = if foreign { files & has.permitted } else { CapabilitySet::empty() };
        if has.effective.contains(CapabilitySet::SETPCAP) {
            let all = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
            for one in all.filter(|one| !kept.contains(*one)) {
                // The kernel says where its list ends.
                if remove_capability_from_bounding_set(one).is_err() {
                    break;
                }
            }
        }
        clear_ambient_capability_set().map_err(failed)?;
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).map_err(failed)
    }
}
