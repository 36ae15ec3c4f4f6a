//! Builds the seccomp filters that refuse system calls to a command and to all processes that it
//! starts ([`steps`]), and detects whether this process runs under one ([`is_sandboxed`]).

/// The options of the filters, which differ between commands.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seccomp {
    /// True if calls are refused that change modes, owners, times and attributes of files, which
    /// Landlock does not restrict, and sockets of local services, which could act for the command.
    pub(super) read_only: bool,
    /// True if network sockets are allowed.
    pub(super) network: bool,
    /// True if access to other processes is allowed, for debuggers and leak checkers. Only if
    /// another mechanism restricts it to processes of the same command.
    pub(super) trace: bool,
}

#[cfg(target_os = "linux")]
pub(super) use linux::steps;

/// A file position that no program uses on its own. The filter refuses it, so that a process can
/// detect the filter: it cannot be removed, and no filter on top of it can make the call succeed.
#[cfg(target_os = "linux")]
const MARK_POSITION: u64 = 0x41_444a_5554;

/// Returns whether this process is a sandboxed command or was started by one, independent of its
/// parents, variables and name.
#[cfg(target_os = "linux")]
pub fn is_sandboxed() -> bool {
    use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
    // Without `no_new_privs` the filter is not applied. If the question itself is refused, some
    // filter is.
    let may_have_filter = rustix::thread::no_new_privs().unwrap_or(true);
    may_have_filter
        && !memfd_create("mark", MemfdFlags::CLOEXEC)
            .is_ok_and(|file| seek(&file, SeekFrom::Start(MARK_POSITION)) == Ok(MARK_POSITION))
}

/// Returns `false`, because detection is not supported on this system.
#[cfg(not(target_os = "linux"))]
pub fn is_sandboxed() -> bool {
    false
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::sync::Mutex;

    use base::lock::lock;
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };

    use super::Seccomp;
    use crate::launcher::{Instruction, Step};

    /// Calls that are always refused, whatever their arguments.
    const ALWAYS_REFUSED: &[i64] = &[
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
        // Files by their inode number, bypassing directories.
        libc::SYS_open_by_handle_at,
        // Keys of other processes.
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        // A request queue that would bypass this filter.
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        // The kernel: its programs, modules, replacement, log, and page faults handled in user
        // space.
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        #[cfg(any(
            target_arch = "x86_64",
            target_arch = "aarch64",
            target_arch = "riscv64"
        ))]
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
        // The system's clock.
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_adjtimex,
        libc::SYS_clock_adjtime,
        // File access by other processes.
        libc::SYS_fanotify_init,
        libc::SYS_fanotify_mark,
        // Open files and memory of other processes.
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_move_pages,
        libc::SYS_migrate_pages,
        FILE_SETATTR,
    ];

    /// Calls that look into another process or change it.
    const TRACE_CALLS: &[i64] = &[
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
    ];

    /// Calls that change a file's mode, owner, times or attributes.
    const MODE_CALLS: &[i64] = &[
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

    // Newer than libc's table; the numbers are the same on every architecture.
    const QUOTACTL_FD: i64 = 443;
    const FCHMODAT2: i64 = 452;
    const SETXATTRAT: i64 = 463;
    const REMOVEXATTRAT: i64 = 466;
    const OPEN_TREE_ATTR: i64 = 467;
    const FILE_SETATTR: i64 = 469;

    /// Requests of `ioctl` that change attributes (immutable, append-only), which need no write
    /// access, or type into a terminal.
    const IOCTL_REQUESTS: &[u64] = &[
        0x4008_6602, // FS_IOC_SETFLAGS
        0x4004_6602, // FS_IOC32_SETFLAGS
        0x401c_5820, // FS_IOC_FSSETXATTR
        0x4008_7602, // FS_IOC_SETVERSION
        0x4004_7602, // FS_IOC32_SETVERSION
        0x5412,      // TIOCSTI
        0x541c,      // TIOCLINUX
    ];

    /// Flags for new namespaces, in which a process would gain privileges.
    const NAMESPACE_FLAGS: &[u64] = &[
        0x0002_0000, // CLONE_NEWNS
        0x0200_0000, // CLONE_NEWCGROUP
        0x0400_0000, // CLONE_NEWUTS
        0x0800_0000, // CLONE_NEWIPC
        0x1000_0000, // CLONE_NEWUSER
        0x2000_0000, // CLONE_NEWPID
        0x4000_0000, // CLONE_NEWNET
    ];
    /// The flag for a new time namespace, only for `unshare`: it has another meaning for `clone`.
    const NEW_TIME: u64 = 0x80;

    /// The bit of the x32 calling convention, which any process can use.
    #[cfg(target_arch = "x86_64")]
    const X32: i64 = 0x4000_0000;

    /// The refused calls by number, each with the rules of which one must apply; none for a call
    /// that is always refused.
    type Rules = BTreeMap<i64, Vec<SeccompRule>>;

    /// Returns the rule that refuses the position that [`super::is_sandboxed`] tries.
    fn mark() -> Result<SeccompRule, String> {
        let position = SeccompCondition::new(
            1,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::Eq,
            super::MARK_POSITION,
        );
        rule(vec![position.map_err(|e| refused(&e))?])
    }

    /// Returns a condition on the lower 32 bits of one argument.
    fn condition(argument: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompCondition, String> {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value).map_err(|e| refused(&e))
    }

    /// Returns a rule that applies if all conditions do.
    fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, String> {
        SeccompRule::new(conditions).map_err(|e| refused(&e))
    }

    /// Describes an error of the library.
    fn refused(e: &dyn std::fmt::Display) -> String {
        format!("seccomp: {e}")
    }

    /// Returns the calls to refuse with `EPERM`.
    fn rules(options: Seccomp) -> Result<Rules, String> {
        let mut calls = ALWAYS_REFUSED.to_vec();
        if options.read_only {
            calls.extend(MODE_CALLS);
        }
        if !options.trace {
            calls.extend(TRACE_CALLS);
        }
        let mut rules: Rules = calls.into_iter().map(|call| (call, vec![])).collect();
        // Limits of other processes; for its own a process passes 0.
        rules.insert(
            libc::SYS_prlimit64,
            vec![rule(vec![condition(0, SeccompCmpOp::Ne, 0)?])?],
        );
        let requests = IOCTL_REQUESTS
            .iter()
            .map(|request| rule(vec![condition(1, SeccompCmpOp::Eq, *request)?]));
        rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, String>>()?);
        rules.insert(libc::SYS_lseek, vec![mark()?]);
        let bit = |bit: u64| rule(vec![condition(0, SeccompCmpOp::MaskedEq(bit), bit)?]);
        let namespaces = || NAMESPACE_FLAGS.iter().map(|namespace| bit(*namespace));
        rules.insert(
            libc::SYS_clone,
            namespaces().collect::<Result<_, String>>()?,
        );
        rules.insert(
            libc::SYS_unshare,
            namespaces()
                .chain([bit(NEW_TIME)])
                .collect::<Result<_, String>>()?,
        );
        // Services on this machine act with the user's rights for every client of their socket.
        // Sockets to virtual machines and most kernel interfaces are not a network that a command
        // needs.
        let families: &[i32] = match (options.network, options.read_only) {
            (false, _) => &[],
            (true, true) => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
            (true, false) => &[
                libc::AF_UNIX,
                libc::AF_INET,
                libc::AF_INET6,
                libc::AF_NETLINK,
            ],
        };
        let other_family: Result<Vec<_>, String> = families
            .iter()
            .map(|family| {
                condition(
                    0,
                    SeccompCmpOp::Ne,
                    u64::try_from(*family).unwrap_or_default(),
                )
            })
            .collect();
        let socket = if families.is_empty() {
            vec![]
        } else {
            vec![rule(other_family?)?]
        };
        rules.insert(libc::SYS_socket, socket);
        #[cfg(target_arch = "x86_64")]
        {
            let x32: Vec<_> = rules
                .iter()
                .map(|(call, rules)| (call | X32, rules.clone()))
                .collect();
            rules.extend(x32);
            // Calls that only x32 numbers this way, `ioctl` and `ptrace` among them.
            rules.extend((512..=547).map(|call| (call | X32, vec![])));
        }
        Ok(rules)
    }

    /// Returns the steps of the launcher that refuse system calls, as arguments. They are made once
    /// for each combination of options.
    pub(in super::super) fn steps(options: Seccomp) -> Result<Vec<OsString>, String> {
        static MADE: Mutex<BTreeMap<Seccomp, Vec<OsString>>> = Mutex::new(BTreeMap::new());
        let mut made = lock(&MADE);
        if let Some(steps) = made.get(&options) {
            return Ok(steps.clone());
        }
        let steps: Vec<OsString> = filters(options)?
            .into_iter()
            .map(|filter| Step::Filter(filter).to_argument())
            .collect();
        made.insert(options, steps.clone());
        Ok(steps)
    }

    /// Returns filters that refuse system calls with `EPERM`. Programs of another architecture are
    /// killed.
    fn filters(options: Seccomp) -> Result<[Vec<Instruction>; 2], String> {
        // The arguments of `clone3` are in memory, which a filter cannot read. With `ENOSYS`,
        // programs fall back to `clone`.
        let mut newer: Rules = [(libc::SYS_clone3, vec![])].into();
        #[cfg(target_arch = "x86_64")]
        newer.insert(libc::SYS_clone3 | X32, vec![]);
        Ok([
            compile(rules(options)?, libc::EPERM)?,
            compile(newer, libc::ENOSYS)?,
        ])
    }

    /// Compiles a filter that refuses calls with an error number.
    fn compile(rules: Rules, error: i32) -> Result<Vec<Instruction>, String> {
        let error = SeccompAction::Errno(u32::try_from(error).unwrap_or(1));
        let arch = std::env::consts::ARCH
            .try_into()
            .map_err(|e: seccompiler::BackendError| refused(&e))?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, error, arch)
            .map_err(|e| refused(&e))?;
        let program: BpfProgram = filter
            .try_into()
            .map_err(|e: seccompiler::BackendError| refused(&e))?;
        let instructions = program.into_iter().map(|instruction| Instruction {
            code: instruction.code,
            jt: instruction.jt,
            jf: instruction.jf,
            k: instruction.k,
        });
        Ok(instructions.collect())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Checks the limit of the kernel, which accepts at most 4,096 instructions.
        #[test]
        fn filters_fit_kernel_limit() {
            for (read_only, network, trace) in [
                (true, true, false),
                (true, false, false),
                (false, true, true),
            ] {
                for filter in filters(Seccomp {
                    read_only,
                    network,
                    trace,
                })
                .unwrap()
                {
                    assert!(filter.len() < 4096, "{}", filter.len());
                }
            }
        }
    }
}
