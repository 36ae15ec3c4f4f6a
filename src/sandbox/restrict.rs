//! What a process takes from itself, for good and for everything it will start: Landlock for files,
//! seccomp for system calls.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which system calls are refused.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Seccomp {
    /// Those that change modes, owners, times and attributes of files, which Landlock does not know;
    /// and sockets of the machine's own services, which would act in our place.
    pub(super) read_only: bool,
    /// Sockets of the network are allowed.
    pub(super) network: bool,
}

#[cfg(target_os = "linux")]
pub(super) use linux::{filter, lock};

#[cfg(not(target_os = "linux"))]
pub(super) fn lock(_: &[PathBuf], _: bool) -> Result<(), String> {
    Err("Landlock is part of Linux".into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn filter(_: Seccomp) -> Result<(), String> {
    Err("seccomp is part of Linux".into())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;

    use landlock::{
        ABI, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
        path_beneath_rules,
    };
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    use super::{PathBuf, Seccomp};

    /// Devices anybody may write to.
    const DEVICES: &[&str] =
        &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"];

    /// Nothing is written but below these, and to the harmless devices. Fails where the kernel
    /// cannot do all of it (before 6.2 it does not know truncation).
    pub(in super::super) fn lock(writable: &[PathBuf], read_only: bool) -> Result<(), String> {
        let refused = |e: landlock::RulesetError| format!("Landlock: {e}");
        let write = AccessFs::from_write(ABI::V3);
        let files = write & !(AccessFs::MakeChar | AccessFs::MakeBlock);
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(write)
            .map_err(refused)?
            .set_compatibility(CompatLevel::BestEffort);
        if read_only {
            rules = rules.handle_access(AccessFs::IoctlDev).map_err(refused)?;
            rules = rules.scope(Scope::Signal | Scope::AbstractUnixSocket).map_err(refused)?;
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

    /// Calls that reach around the lock, whoever makes them: mounts, kernel modules, other
    /// processes' keys, and a ring of requests that would pass by this very filter.
    const ALWAYS: &[i64] = &[
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_bpf,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_reboot,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_sethostname,
        libc::SYS_open_by_handle_at,
        libc::SYS_setns,
    ];

    /// Calls that change a file's mode, owner, times or attributes.
    const MODES: &[i64] = &[
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        FCHMODAT2,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        SETXATTRAT,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        REMOVEXATTRAT,
        FILE_SETATTR,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat,
    ];

    // Newer than the table of libc; the numbers are the same on every architecture.
    const FCHMODAT2: i64 = 452;
    const SETXATTRAT: i64 = 463;
    const REMOVEXATTRAT: i64 = 466;
    const FILE_SETATTR: i64 = 469;

    /// Numbers of the x32 calling convention, which the same processes may use.
    #[cfg(target_arch = "x86_64")]
    const X32: i64 = 0x4000_0000;

    /// Refuses system calls with "not permitted". Programs of another architecture are ended.
    pub(in super::super) fn filter(orders: Seccomp) -> Result<(), String> {
        let refused = |e: &dyn std::fmt::Display| format!("seccomp: {e}");
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALWAYS.iter().map(|call| (*call, vec![])).collect();
        if orders.read_only {
            rules.extend(MODES.iter().map(|call| (*call, vec![])));
        }
        let is = |family: i32| {
            let family = u64::try_from(family).unwrap_or_default();
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family)
        };
        let not = |family: i32| {
            let family = u64::try_from(family).unwrap_or_default();
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
        };
        // Services on this machine act with the user's rights for whoever reaches their socket.
        let local = orders.read_only || !orders.network;
        let conditions = match (local, orders.network) {
            (true, true) => Some(vec![is(libc::AF_UNIX)]),
            (_, false) => None,
            // Sockets to virtual machines and to kernel subsystems are nobody's network.
            (false, true) => {
                Some(vec![not(libc::AF_UNIX), not(libc::AF_INET), not(libc::AF_INET6), not(libc::AF_NETLINK)])
            }
        };
        let socket = match conditions {
            None => vec![],
            Some(conditions) => {
                let conditions = conditions.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| refused(&e))?;
                vec![SeccompRule::new(conditions).map_err(|e| refused(&e))?]
            }
        };
        rules.insert(libc::SYS_socket, socket);
        #[cfg(target_arch = "x86_64")]
        {
            let twice: Vec<_> = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
            rules.extend(twice);
        }
        let not_permitted = SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap_or(1));
        let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| refused(&e))?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, not_permitted, arch).map_err(|e| refused(&e))?;
        let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| refused(&e))?;
        seccompiler::apply_filter(&program).map_err(|e| refused(&e))
    }
}
