//! Builds the seccomp filter that selects the reported calls. It is written instruction by
//! instruction, because `seccompiler` has no action that notifies a listener.

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};

use crate::launcher::Instruction;

/// Flags with which an open can change a file.
pub(super) const WRITE_FLAGS: u32 =
    (libc::O_WRONLY | libc::O_RDWR | libc::O_TRUNC | libc::O_CREAT).cast_unsigned();

/// The number of `fchmodat2`, which is newer than libc's table; it is the same on every
/// architecture.
pub(super) const FCHMODAT2: i64 = 452;

/// Calls that are reported whatever their arguments.
const ALWAYS_REPORTED: &[i64] = &[
    // Its flags are in memory.
    libc::SYS_openat2,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mknodat,
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    // Their names are in memory. Programs that copy a file set its attributes by its descriptor, even
    // if it has none; these calls are not reported, because that would double the reports of a copy.
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    #[cfg(not(target_arch = "riscv64"))]
    libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const ARCH: u32 = 0xc000_00f3;

/// The mask for call numbers: the x32 calling convention has the same numbers, with one more bit.
#[cfg(target_arch = "x86_64")]
pub(super) const NUMBER_MASK: u32 = !0x4000_0000;
/// The mask for call numbers.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const NUMBER_MASK: u32 = !0;

// Actions of the filter.
const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;

// Offsets in `seccomp_data`. Arguments have eight bytes, the lower four first.
const NR_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// The offset of the higher four bytes in an argument.
const HIGHER_AT: u32 = 4;

/// Loads four bytes of `seccomp_data`.
fn load(at: u32) -> Instruction {
    statement(BPF_LD | BPF_W | BPF_ABS, at)
}

/// Ends the filter with an action.
fn answer(action: u32) -> Instruction {
    statement(BPF_RET | BPF_K, action)
}

/// Returns an instruction without a jump.
fn statement(code: u32, k: u32) -> Instruction {
    jump(code, k, 0, 0)
}

/// Returns an instruction that skips `jt` instructions if its condition is true, otherwise `jf`.
fn jump(code: u32, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    }
}

/// Returns instructions that report a call if its argument has one of these bits; with `none`, if
/// it has none of them.
fn by_bits(argument: u32, bits: u32, none: bool) -> [Instruction; 4] {
    let [first, second] = if none {
        [NOTIFY, ALLOW]
    } else {
        [ALLOW, NOTIFY]
    };
    [
        load(ARGUMENTS_AT + 8 * argument),
        jump(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0),
        answer(first),
        answer(second),
    ]
}

/// Returns instructions that report a call if its argument is not null.
fn unless_null(argument: u32) -> [Instruction; 6] {
    let lower = ARGUMENTS_AT + 8 * argument;
    [
        load(lower),
        jump(BPF_JMP | BPF_JSET | BPF_K, u32::MAX, 3, 0),
        load(lower + HIGHER_AT),
        jump(BPF_JMP | BPF_JSET | BPF_K, u32::MAX, 1, 0),
        answer(ALLOW),
        answer(NOTIFY),
    ]
}

/// Returns the whole filter.
pub(in super::super) fn program() -> Vec<Instruction> {
    // The code after the comparisons of call numbers; each piece is identified by its offset.
    let mut tail = vec![answer(ALLOW), answer(NOTIFY)];
    let allow = 0;
    let notify = 1;
    let mut piece = |instructions: &[Instruction]| {
        let at = tail.len();
        tail.extend(instructions);
        at
    };
    let removing = piece(&by_bits(2, libc::AT_REMOVEDIR.cast_unsigned(), true));
    let opening_at = piece(&by_bits(2, WRITE_FLAGS, false));
    // Without a path, the times of an open file are set. Programs that copy or unpack do so before
    // they close the file, and its metadata are noted only after that. A report would take them a
    // third more time.
    let setting_times = piece(&unless_null(1));
    let mut calls = vec![
        (libc::SYS_openat, opening_at),
        (libc::SYS_unlinkat, removing),
        (libc::SYS_utimensat, setting_times),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_open, piece(&by_bits(1, WRITE_FLAGS, false))));
    calls.extend(ALWAYS_REPORTED.iter().map(|call| (*call, notify)));
    let mut program = vec![load(ARCH_AT)];
    let offset = |from: usize, to: usize| u8::try_from(calls.len() - from + to).unwrap_or(u8::MAX);
    // Skip the two instructions after this one. The other filter kills programs of another
    // architecture.
    let other = offset(0, allow) + 2;
    program.push(jump(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, other));
    program.push(load(NR_AT));
    program.push(statement(
        libc::BPF_ALU | libc::BPF_AND | BPF_K,
        NUMBER_MASK,
    ));
    for (n, (call, target)) in calls.iter().enumerate() {
        let number = u32::try_from(*call).unwrap_or(u32::MAX);
        program.push(jump(
            BPF_JMP | BPF_JEQ | BPF_K,
            number,
            offset(n + 1, *target),
            0,
        ));
    }
    program.extend(tail);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the filter as the kernel would.
    fn verdict(nr: i64, arguments: [u64; 3], arch: u32) -> u32 {
        let program = program();
        let mut at = 0;
        let mut value = 0;
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            match u32::from(code) & 0x07 {
                BPF_LD => {
                    value = match k {
                        NR_AT => u32::try_from(nr).unwrap(),
                        ARCH_AT => arch,
                        at => {
                            let at = at - ARGUMENTS_AT;
                            let argument = arguments[usize::try_from(at / 8).unwrap()];
                            u32::try_from(argument >> (8 * (at % 8)) & u64::from(u32::MAX)).unwrap()
                        }
                    };
                }
                libc::BPF_ALU => value &= k,
                BPF_JMP => {
                    let is_match = if u32::from(code) & 0xf0 == BPF_JEQ {
                        value == k
                    } else {
                        value & k != 0
                    };
                    at += usize::from(if is_match { jt } else { jf });
                }
                _ => return k,
            }
        }
    }

    #[test]
    fn only_calls_that_may_write_are_reported() {
        let flags = |flags: i32| u64::from(flags.cast_unsigned());
        let write = flags(libc::O_WRONLY | libc::O_CLOEXEC);
        let table = [
            (
                libc::SYS_openat,
                [
                    0,
                    0,
                    flags(libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW),
                ],
                ALLOW,
            ),
            (libc::SYS_openat, [0, 0, write], NOTIFY),
            (
                libc::SYS_openat,
                [0, 0, flags(libc::O_RDWR | libc::O_APPEND)],
                NOTIFY,
            ),
            (
                libc::SYS_openat,
                [0, 0, flags(libc::O_RDONLY | libc::O_CREAT)],
                NOTIFY,
            ),
            (
                libc::SYS_openat,
                [0, 0, flags(libc::O_TMPFILE | libc::O_RDWR)],
                NOTIFY,
            ),
            (libc::SYS_openat2, [0, 0, 0], NOTIFY),
            (libc::SYS_unlinkat, [0, 0, 0], NOTIFY),
            (libc::SYS_unlinkat, [0, 0, flags(libc::AT_REMOVEDIR)], ALLOW),
            (libc::SYS_renameat2, [0, 0, 0], NOTIFY),
            (libc::SYS_fchmodat, [0, 0, 0], NOTIFY),
            (libc::SYS_read, [0, 0, write], ALLOW),
            (libc::SYS_write, [0, 0, write], ALLOW),
            (libc::SYS_mkdirat, [0, 0, 0], ALLOW),
            (libc::SYS_fsetxattr, [3, 0x1000, 0x1000], ALLOW),
            (libc::SYS_utimensat, [3, 0, 0x1000], ALLOW),
            (libc::SYS_utimensat, [0, 0x1000, 0], NOTIFY),
            (libc::SYS_utimensat, [0, 0x7f_0000_0000, 0], NOTIFY),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, [0, write, 0], NOTIFY),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, [0, 0, write], ALLOW),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open | 0x4000_0000, [0, write, 0], NOTIFY),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_rmdir, [0, 0, 0], ALLOW),
        ];
        for (nr, arguments, expected) in table {
            assert_eq!(
                verdict(nr, arguments, ARCH),
                expected,
                "{nr} {arguments:x?}"
            );
            assert_eq!(
                verdict(nr, arguments, ARCH + 1),
                ALLOW,
                "{nr} of another architecture"
            );
        }
        for nr in ALWAYS_REPORTED {
            assert_eq!(verdict(*nr, [0; 3], ARCH), NOTIFY, "{nr}");
        }
    }
}
