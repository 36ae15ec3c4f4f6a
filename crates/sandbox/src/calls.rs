//! Which system calls a command may not make: a list by what they would do, and a filter the kernel
//! applies to the process and to everything it will start.

use serde::{Deserialize, Serialize};

/// What is allowed of what not every command may do.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Seccomp {
    /// Refuse those that change modes, owners, times and attributes of files, which Landlock does not
    /// know, and sockets of the machine's own services, which would act in our place.
    pub(super) read_only: bool,
    /// Sockets of the network are allowed.
    pub(super) network: bool,
    /// A process may look into others: debuggers, leak checkers. Only where something else keeps it
    /// to processes of the same command.
    pub(super) trace: bool,
}

#[cfg(target_os = "linux")]
pub(super) use linux::filter;

/// A position in a file that nothing goes to by itself. The filter refuses it, and so can be known by whoever
/// is kept by it: no process takes a filter off, and none on top of it can make the answer a success.
#[cfg(target_os = "linux")]
const MARK: u64 = 0x41_444a_5554;

/// Whether this process is a command of ours, or was started by one, whatever became of its parents, its
/// variables and its name.
#[cfg(target_os = "linux")]
pub fn applied() -> bool {
    use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
    // Without this there is no filter of ours. Who is kept from asking is kept by something.
    let bound = rustix::thread::no_new_privs().unwrap_or(true);
    bound && !memfd_create("mark", MemfdFlags::CLOEXEC).is_ok_and(|file| seek(&file, SeekFrom::Start(MARK)) == Ok(MARK))
}

/// Nothing of the kind is known here.
#[cfg(not(target_os = "linux"))]
pub fn applied() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn filter(_: Seccomp) -> Result<(), String> {
    Err("seccomp is part of Linux".into())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    use super::Seccomp;

    /// Refused whoever makes them and with whatever arguments.
    const ALWAYS: &[i64] = &[
        // Mounts and roots.
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        OPEN_TREE_ATTR,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_setns,
        // A file by its number on the disk, past every directory.
        libc::SYS_open_by_handle_at,
        // Keys of other processes.
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        // A ring of requests that would pass by this very filter.
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        // The kernel: programs in it, modules, its replacement, faults handled outside, its log.
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
        libc::SYS_kexec_file_load,
        libc::SYS_syslog,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_iopl,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_ioperm,
        // The machine as a whole.
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_reboot,
        libc::SYS_acct,
        libc::SYS_quotactl,
        QUOTACTL_FD,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_vhangup,
        // Its clock.
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_adjtimex,
        libc::SYS_clock_adjtime,
        // What others do with files.
        libc::SYS_fanotify_init,
        libc::SYS_fanotify_mark,
        // What others have open or in memory.
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_move_pages,
        libc::SYS_migrate_pages,
        FILE_SETATTR,
    ];

    /// Calls that look into another process or change it.
    const TRACE: &[i64] = &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];

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
    const QUOTACTL_FD: i64 = 443;
    const FCHMODAT2: i64 = 452;
    const SETXATTRAT: i64 = 463;
    const REMOVEXATTRAT: i64 = 466;
    const OPEN_TREE_ATTR: i64 = 467;
    const FILE_SETATTR: i64 = 469;

    /// Requests to a file's descriptor: its attributes (immutable, append only), which need no right
    /// to write, and typing into a terminal.
    const REQUESTS: &[u64] = &[
        0x4008_6602, // FS_IOC_SETFLAGS
        0x4004_6602, // FS_IOC32_SETFLAGS
        0x401c_5820, // FS_IOC_FSSETXATTR
        0x4008_7602, // FS_IOC_SETVERSION
        0x4004_7602, // FS_IOC32_SETVERSION
        0x5412,      // TIOCSTI
        0x541c,      // TIOCLINUX
    ];

    /// Namespaces of its own, in which a process would be more than it is.
    const NAMESPACES: &[u64] = &[
        0x0002_0000, // CLONE_NEWNS
        0x0200_0000, // CLONE_NEWCGROUP
        0x0400_0000, // CLONE_NEWUTS
        0x0800_0000, // CLONE_NEWIPC
        0x1000_0000, // CLONE_NEWUSER
        0x2000_0000, // CLONE_NEWPID
        0x4000_0000, // CLONE_NEWNET
    ];
    /// The bit means something else to `clone`.
    const NEW_TIME: u64 = 0x80;

    /// The bit of the x32 calling convention, which the same processes may use.
    #[cfg(target_arch = "x86_64")]
    const X32: i64 = 0x4000_0000;

    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    /// What [`super::applied`] tries.
    fn mark() -> Result<SeccompRule, String> {
        let position = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, super::MARK);
        rule(vec![position.map_err(|e| refused(&e))?])
    }

    /// One argument as a reason to refuse.
    fn when(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompCondition, String> {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value).map_err(|e| refused(&e))
    }

    fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, String> {
        SeccompRule::new(conditions).map_err(|e| refused(&e))
    }

    fn refused(e: &dyn std::fmt::Display) -> String {
        format!("seccomp: {e}")
    }

    fn rules(orders: Seccomp) -> Result<Rules, String> {
        let mut calls = ALWAYS.to_vec();
        if orders.read_only {
            calls.extend(MODES);
        }
        if !orders.trace {
            calls.extend(TRACE);
        }
        let mut rules: Rules = calls.into_iter().map(|call| (call, vec![])).collect();
        // Limits of other processes; those of its own are asked for with 0.
        rules.insert(libc::SYS_prlimit64, vec![rule(vec![when(0, SeccompCmpOp::Ne, 0)?])?]);
        let requests = REQUESTS.iter().map(|request| rule(vec![when(1, SeccompCmpOp::Eq, *request)?]));
        rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, String>>()?);
        rules.insert(libc::SYS_lseek, vec![mark()?]);
        let bit = |bit: u64| rule(vec![when(0, SeccompCmpOp::MaskedEq(bit), bit)?]);
        let namespaces = || NAMESPACES.iter().map(|namespace| bit(*namespace));
        rules.insert(libc::SYS_clone, namespaces().collect::<Result<_, String>>()?);
        rules.insert(libc::SYS_unshare, namespaces().chain([bit(NEW_TIME)]).collect::<Result<_, String>>()?);
        // Services on this machine act with the user's rights for whoever reaches their socket; sockets
        // to virtual machines and to most of the kernel are nobody's network.
        let families: &[i32] = match (orders.network, orders.read_only) {
            (false, _) => &[],
            (true, true) => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
            (true, false) => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        };
        let none_of: Result<Vec<_>, String> = families
            .iter()
            .map(|family| when(0, SeccompCmpOp::Ne, u64::try_from(*family).unwrap_or_default()))
            .collect();
        let socket = if families.is_empty() { vec![] } else { vec![rule(none_of?)?] };
        rules.insert(libc::SYS_socket, socket);
        #[cfg(target_arch = "x86_64")]
        {
            let twice: Vec<_> = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
            rules.extend(twice);
            // Calls that have a number of their own there, `ioctl` and `ptrace` among them.
            rules.extend((512..=547).map(|call| (call | X32, vec![])));
        }
        Ok(rules)
    }

    /// Refuses system calls with "not permitted". Programs of another architecture are ended.
    pub(in super::super) fn filter(orders: Seccomp) -> Result<(), String> {
        apply(rules(orders)?, libc::EPERM)?;
        // Its arguments lie in memory, where a filter cannot look. Whoever is told that there is no such
        // call makes the older one.
        let mut newer: Rules = [(libc::SYS_clone3, vec![])].into();
        #[cfg(target_arch = "x86_64")]
        newer.insert(libc::SYS_clone3 | X32, vec![]);
        apply(newer, libc::ENOSYS)
    }

    fn apply(rules: Rules, error: i32) -> Result<(), String> {
        let error = SeccompAction::Errno(u32::try_from(error).unwrap_or(1));
        let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| refused(&e))?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, error, arch).map_err(|e| refused(&e))?;
        let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| refused(&e))?;
        seccompiler::apply_filter(&program).map_err(|e| refused(&e))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// The kernel takes at most 4,096 steps.
        #[test]
        fn every_filter_is_short_enough() {
            for (read_only, network, trace) in [(true, true, false), (true, false, false), (false, true, true)] {
                let rules = rules(Seccomp { read_only, network, trace }).unwrap();
                let arch = std::env::consts::ARCH.try_into().unwrap();
                let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(1), arch).unwrap();
                let program: BpfProgram = filter.try_into().unwrap();
                assert!(program.len() < 4096, "{}", program.len());
            }
        }
    }
}
