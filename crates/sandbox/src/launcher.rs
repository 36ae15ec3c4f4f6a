//! The program that is started in place of a command: it restricts itself step by step and executes
//! the command. Nothing has to be done between fork and exec, where few operations are safe.
//!
//! It is a small program of its own, which adjutant contains and starts from memory, because
//! executing all of adjutant for each command would take milliseconds: the loader changes an
//! address on more than a thousand of its pages. `build.rs` compiles this file without any
//! dependency, so the system calls are declared here. If files in memory cannot be executed,
//! adjutant's own executable does the same (`inside.rs`).

#![expect(
    unsafe_code,
    reason = "system calls without a library; each use says why it is sound"
)]

use std::ffi::{OsStr, OsString, c_int, c_long, c_short, c_uint, c_ulong, c_void};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The message to adjutant with which a listener is sent.
const INSTALLED: u8 = b'+';
/// The message to adjutant if the kernel refused the filter.
const REFUSED: u8 = b'-';

/// The maximum time until the guard waits for its child.
const GUARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The argument between the steps and the command.
const END_OF_STEPS: &str = "--";

/// An instruction of a seccomp filter, as the kernel reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

/// A step on the way to a command. Each is one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Close the descriptor of the launcher itself when the command is executed.
    CloseLauncher(RawFd),
    /// Begin a session, so that the command has no terminal and all its processes can be ended
    /// together.
    BeginSession,
    /// Wait until the first process of this namespace waits for its child, and check that adjutant
    /// still lives: the binding of the namespace to adjutant's life begins only then.
    AwaitGuard,
    /// End when this process, the parent, ends.
    EndWith(u32),
    /// Set the limit on open files.
    LimitFiles(u64),
    /// Drop all capabilities; with `true`, except for those that root needs to work with files of
    /// other users.
    DropCapabilities(bool),
    /// Except this path, if it exists, from the next [`Step::RestrictWrites`].
    AllowWrites(PathBuf),
    /// Restrict writing with Landlock; with `true`, as for a command that only reads.
    RestrictWrites(bool),
    /// Apply a seccomp filter.
    Filter(Vec<Instruction>),
    /// Apply a filter that reports writes, and send its listener through the socket that was
    /// inherited under this number.
    Report(RawFd, Vec<Instruction>),
}

impl Step {
    /// Returns the step as an argument of the launcher.
    pub(crate) fn to_argument(&self) -> OsString {
        let text = match self {
            Self::CloseLauncher(number) => format!("close-launcher:{number}"),
            Self::BeginSession => "begin-session:".into(),
            Self::AwaitGuard => "await-guard:".into(),
            Self::EndWith(parent) => format!("end-with:{parent}"),
            Self::LimitFiles(most) => format!("limit-files:{most}"),
            Self::DropCapabilities(foreign) => format!("drop-capabilities:{foreign}"),
            Self::AllowWrites(path) => {
                let mut argument = OsString::from("allow-writes:");
                argument.push(path);
                return argument;
            }
            Self::RestrictWrites(read_only) => format!("restrict-writes:{read_only}"),
            Self::Filter(filter) => format!("filter:{}", to_digits(filter)),
            Self::Report(socket, filter) => format!("report:{socket},{}", to_digits(filter)),
        };
        text.into()
    }

    /// Parses an argument of the launcher.
    fn parse(argument: &OsStr) -> Option<Self> {
        let bytes = argument.as_bytes();
        let colon = bytes.iter().position(|byte| *byte == b':')?;
        let name = bytes.get(..colon)?;
        let value = bytes.get(colon + 1..)?;
        if name == b"allow-writes" {
            return Some(Self::AllowWrites(OsString::from_vec(value.to_vec()).into()));
        }
        let value = str::from_utf8(value).ok()?;
        Some(match name {
            b"close-launcher" => Self::CloseLauncher(value.parse().ok()?),
            b"begin-session" => Self::BeginSession,
            b"await-guard" => Self::AwaitGuard,
            b"end-with" => Self::EndWith(value.parse().ok()?),
            b"limit-files" => Self::LimitFiles(value.parse().ok()?),
            b"drop-capabilities" => Self::DropCapabilities(value.parse().ok()?),
            b"restrict-writes" => Self::RestrictWrites(value.parse().ok()?),
            b"filter" => Self::Filter(from_digits(value)?),
            b"report" => {
                let (socket, filter) = value.split_once(',')?;
                Self::Report(socket.parse().ok()?, from_digits(filter)?)
            }
            _ => return None,
        })
    }
}

/// Returns 16 hexadecimal digits for each instruction.
fn to_digits(filter: &[Instruction]) -> String {
    use std::fmt::Write as _;
    let mut digits = String::with_capacity(filter.len() * 16);
    for Instruction { code, jt, jf, k } in filter {
        // Writing to a string does not fail.
        write!(digits, "{code:04x}{jt:02x}{jf:02x}{k:08x}").ok();
    }
    digits
}

/// Parses the digits of [`to_digits`].
fn from_digits(digits: &str) -> Option<Vec<Instruction>> {
    let (instructions, []) = digits.as_bytes().as_chunks::<16>() else {
        return None;
    };
    let parse = |digits: &[u8; 16]| {
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let number = u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        let [a, b, jt, jf, k @ ..] = number.to_be_bytes();
        Some(Instruction {
            code: u16::from_be_bytes([a, b]),
            jt,
            jf,
            k: u32::from_be_bytes(k),
        })
    };
    instructions.iter().map(parse).collect()
}

/// Returns the arguments for the launcher that takes these steps, after which the command follows.
pub(crate) fn arguments(mut steps: Vec<OsString>) -> Vec<OsString> {
    steps.push(END_OF_STEPS.into());
    steps
}

/// Takes the steps in the arguments, and becomes the command. Returns only if it cannot be started,
/// for example because a restriction cannot be applied.
pub(crate) fn launch(args: impl Iterator<Item = OsString>) -> ExitCode {
    let why = match become_command(args) {
        Ok(never) => match never {},
        Err(why) => why,
    };
    print_failure(&why);
    ExitCode::from(126)
}

#[expect(
    clippy::print_stderr,
    reason = "the only way to be heard where a command was expected"
)]
fn print_failure(why: &str) {
    eprintln!("adjutant: the command was not started in its sandbox: {why}");
}

/// Takes the steps in the arguments, and executes the command. Returns only an error.
#[expect(
    clippy::disallowed_methods,
    reason = "this process becomes the program, it starts none"
)]
fn become_command(
    mut args: impl Iterator<Item = OsString>,
) -> Result<std::convert::Infallible, String> {
    let mut writable = Vec::new();
    loop {
        let argument = args.next().ok_or("there is no command")?;
        if argument == END_OF_STEPS {
            break;
        }
        let step = Step::parse(&argument)
            .ok_or_else(|| format!("its step {} is not understood", argument.display()))?;
        match step {
            Step::AllowWrites(path) => writable.push(path),
            Step::RestrictWrites(read_only) => {
                restrict_writes(&writable, read_only).map_err(|e| describe("Landlock", &e))?
            }
            step => take_step(step)?,
        }
    }
    let program = args.next().ok_or("there is no command")?;
    let failed = Command::new(&program).args(args).exec();
    Err(describe(&program.to_string_lossy(), &failed))
}

/// Takes a step, except for those that restrict writing.
fn take_step(step: Step) -> Result<(), String> {
    match step {
        Step::CloseLauncher(number) => inherited(number)
            .map(std::mem::forget)
            .map_err(|e| describe("its launcher", &e)),
        Step::BeginSession => {
            // SAFETY: it has no arguments.
            done(unsafe { setsid() }).map_err(|e| describe("it has no session of its own", &e))
        }
        Step::AwaitGuard => await_guard(),
        Step::EndWith(parent) => end_with(parent),
        Step::LimitFiles(most) => {
            limit_files(most).map_err(|e| describe("its limit on open files", &e))
        }
        Step::DropCapabilities(foreign) => {
            drop_capabilities(foreign).map_err(|e| describe("capabilities cannot be given up", &e))
        }
        Step::Filter(filter) => apply(&filter, 0)
            .map(drop)
            .map_err(|e| describe("its system calls cannot be restricted", &e)),
        Step::Report(socket, filter) => report(socket, &filter),
        Step::AllowWrites(_) | Step::RestrictWrites(_) => Ok(()),
    }
}

/// Describes an error of the system.
fn describe(failure: &str, e: &io::Error) -> String {
    format!("{failure}: {e}")
}

/// Waits until process 1 sleeps, and checks that the reader of this process's output lives. Process
/// 1 of bubblewrap sleeps when it waits for its child, and not earlier.
#[expect(
    clippy::disallowed_methods,
    reason = "only asks whether it has a reader"
)]
fn await_guard() -> Result<(), String> {
    let deadline = Instant::now() + GUARD_TIMEOUT;
    loop {
        let stat = std::fs::read("/proc/1/stat").map_err(|e| describe("/proc/1/stat", &e))?;
        let state = stat
            .rsplit(|byte| *byte == b')')
            .next()
            .and_then(|rest| rest.trim_ascii().first());
        if state == Some(&b'S') {
            break;
        }
        if Instant::now() > deadline {
            return Err("no process supervises it".into());
        }
        std::thread::yield_now();
    }
    let mut end = PollFd {
        descriptor: io::stdout().as_raw_fd(),
        events: 0,
        happened: 0,
    };
    // SAFETY: the count is that of one struct, which lives during the call.
    done(unsafe { poll(&raw mut end, 1, 0) }).map_err(|e| describe("its output", &e))?;
    if end.happened & POLLERR != 0 {
        return Err("adjutant has ended".into());
    }
    Ok(())
}

/// Has the kernel kill this process when its parent ends.
fn end_with(parent: u32) -> Result<(), String> {
    set(PR_SET_PDEATHSIG, SIGKILL)
        .map_err(|e| describe("it could not be bound to the life of adjutant", &e))?;
    // It may have ended before the signal was set.
    if std::os::unix::process::parent_id() != parent {
        return Err("adjutant has ended".into());
    }
    Ok(())
}

/// Sets the limit on open files.
fn limit_files(most: u64) -> io::Result<()> {
    let mut limit = Limit {
        current: 0,
        maximum: 0,
    };
    // SAFETY: the struct has the layout of this call on 64-bit systems and lives during it.
    done(unsafe { getrlimit(RLIMIT_NOFILE, &raw mut limit) })?;
    limit.current = most;
    // SAFETY: as above.
    done(unsafe { setrlimit(RLIMIT_NOFILE, &raw const limit) })
}

/// Drops capabilities, and keeps programs from regaining them. With `foreign`, those for files of
/// other users remain.
fn drop_capabilities(foreign: bool) -> io::Result<()> {
    set(PR_SET_NO_NEW_PRIVS, 1)?;
    let header = CapabilityHeader {
        version: 0x2008_0522,
        pid: 0,
    };
    let mut sets = [CapabilitySets::default(); 2];
    // SAFETY: this version of the call reads and writes two structs, which live during it.
    done(unsafe { capget(&raw const header, sets.as_mut_ptr()) })?;
    let retained = if foreign { FOREIGN_FILES } else { 0 };
    if sets[0].effective & (1 << CAP_SETPCAP) != 0 {
        for capability in (0..64).filter(|bit| *bit > 31 || retained & (1 << bit) == 0) {
            // The error of the kernel marks the end of its list.
            if set(PR_CAPBSET_DROP, capability).is_err() {
                break;
            }
        }
    }
    set(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)?;
    let retained = retained & sets[0].permitted;
    let sets = [
        CapabilitySets {
            effective: retained,
            permitted: retained,
            inheritable: 0,
        },
        CapabilitySets::default(),
    ];
    // SAFETY: as above.
    done(unsafe { capset(&raw const header, sets.as_ptr()) })
}

/// Restricts writing to the given paths and to harmless devices, and signals to the sandbox if the
/// kernel supports that (6.12).
///
/// # Errors
/// If the kernel cannot restrict all kinds of writing (before 6.2 it cannot restrict truncation).
fn restrict_writes(writable: &[PathBuf], read_only: bool) -> io::Result<()> {
    // SAFETY: with this flag the call reads no memory.
    let version = call(unsafe {
        syscall(
            SYS_LANDLOCK_CREATE_RULESET,
            std::ptr::null::<c_void>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    })?;
    if version < 3 {
        return Err(io::Error::other("this kernel cannot restrict truncation"));
    }
    let ioctl = if read_only && version >= 5 {
        access::IOCTL_DEV
    } else {
        0
    };
    // Desktop services are reached by abstract sockets, so these are allowed if services are.
    let scoped = match (version >= 6, read_only) {
        (true, true) => SCOPE_SIGNAL | SCOPE_ABSTRACT_SOCKET,
        (true, false) => SCOPE_SIGNAL,
        (false, _) => 0,
    };
    let ruleset = Ruleset {
        access: access::WRITE | ioctl,
        network: 0,
        scoped,
    };
    // Older kernels have a shorter struct, and accept a longer one if the rest is zero.
    // SAFETY: the struct lives during the call, which gets its size.
    let rules = call(unsafe {
        syscall(
            SYS_LANDLOCK_CREATE_RULESET,
            &raw const ruleset,
            size_of::<Ruleset>(),
            0_u32,
        )
    })?;
    // SAFETY: the kernel has just created this descriptor, and it has no other owner.
    let rules = unsafe { OwnedFd::from_raw_fd(rules) };
    for path in writable {
        allow(
            &rules,
            path.as_os_str(),
            access::WRITE & !(access::MAKE_CHAR | access::MAKE_BLOCK),
        )?;
    }
    for path in WRITABLE_DEVICES {
        allow(
            &rules,
            path.as_ref(),
            access::WRITE_FILE | access::TRUNCATE | ioctl,
        )?;
    }
    set(PR_SET_NO_NEW_PRIVS, 1)?;
    // SAFETY: the call gets no pointer.
    call(unsafe { syscall(SYS_LANDLOCK_RESTRICT_SELF, rules.as_raw_fd(), 0_u32) }).map(drop)
}

/// Adds an exception for a path, if it can be opened. Otherwise it stays restricted.
fn allow(rules: &OwnedFd, path: &OsStr, access: u64) -> io::Result<()> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(O_PATH)
        .open(path);
    let Ok(opened) = opened else {
        return Ok(());
    };
    let is_directory = opened.metadata()?.is_dir();
    let rule = PathRule {
        access: if is_directory {
            access
        } else {
            access & access::OF_FILES
        },
        parent: opened.as_raw_fd(),
    };
    // SAFETY: the struct has the layout of this kind of rule and lives during the call.
    call(unsafe {
        syscall(
            SYS_LANDLOCK_ADD_RULE,
            rules.as_raw_fd(),
            LANDLOCK_RULE_PATH_BENEATH,
            &raw const rule,
            0_u32,
        )
    })
    .map(drop)
}

/// Applies a filter to this process, its later programs and its children. Returns the result of the
/// call: with the flag for a listener, its descriptor, which is closed at an exec.
fn apply(filter: &[Instruction], flags: c_ulong) -> io::Result<c_int> {
    let program = FilterProgram {
        count: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: filter.as_ptr(),
    };
    set(PR_SET_NO_NEW_PRIVS, 1)?;
    // SAFETY: the count is that of the filter's instructions, which live during the call; the
    // kernel keeps a copy.
    call(unsafe {
        syscall(
            SYS_SECCOMP,
            SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    })
}

/// Installs a filter that reports calls, and sends its listener. To be called as the last step
/// before the exec.
///
/// # Errors
/// A message for the user, if adjutant does not receive the listener. The command must not be
/// started then, because every write would fail.
fn report(socket: RawFd, filter: &[Instruction]) -> Result<(), String> {
    let mut socket = inherited(socket)
        .map(File::from)
        .map_err(|e| describe("the socket to adjutant", &e))?;
    let listener = apply(filter, SECCOMP_NEW_LISTENER_KILLABLE).ok();
    send(&socket, listener).map_err(|e| describe("adjutant does not take the listener", &e))?;
    let mut reply = [0];
    let received = loop {
        match socket.read(&mut reply) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            received => break received,
        }
    };
    match received {
        Ok(1) => {}
        Ok(_) => return Err("adjutant has ended".into()),
        Err(e) => return Err(describe("adjutant does not answer", &e)),
    }
    // A first report, which changes nothing. Once it is answered, the number of a report of this
    // listener is recorded (`listener_holder.rs`), whatever the command does next.
    OpenOptions::new().write(true).open("").ok();
    Ok(())
}

/// Sends the listener, or the message that there is none.
fn send(socket: &File, listener: Option<c_int>) -> io::Result<()> {
    let mut message = if listener.is_some() {
        INSTALLED
    } else {
        REFUSED
    };
    let mut data = DataVector {
        start: (&raw mut message).cast(),
        length: 1,
    };
    let mut passed = PassedDescriptor {
        length: std::mem::offset_of!(PassedDescriptor, descriptor) + size_of::<c_int>(),
        level: SOL_SOCKET,
        kind: SCM_RIGHTS,
        descriptor: listener.unwrap_or(-1),
    };
    let (control, control_length) = match listener {
        Some(_) => ((&raw mut passed).cast(), passed.length),
        None => (std::ptr::null_mut(), 0),
    };
    let whole = Message {
        name: std::ptr::null_mut(),
        name_length: 0,
        data: &raw mut data,
        data_count: 1,
        control,
        control_length,
        flags: 0,
    };
    // SAFETY: the message has the layout of the kernel, and everything it points to lives during
    // the call.
    call(unsafe {
        syscall(
            SYS_SENDMSG,
            socket.as_raw_fd(),
            &raw const whole,
            MSG_NOSIGNAL,
        )
    })
    .map(drop)
}

/// Takes ownership of the descriptor that this process inherited under a number. It is closed at an
/// exec.
fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call has no pointer, and fails if the number is not open.
    done(unsafe { fcntl(number, F_SETFD, FD_CLOEXEC) })?;
    // SAFETY: it is open, and has no other owner: only the process that started this one knows the
    // number, and no code here has opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Sets an attribute of this process.
fn set(attribute: c_int, value: c_ulong) -> io::Result<()> {
    let none: c_ulong = 0;
    // SAFETY: these attributes have numbers as values, and unused arguments must be zero.
    done(unsafe { prctl(attribute, value, none, none, none) })
}

/// Returns the error of a call that has failed.
fn done(result: c_int) -> io::Result<()> {
    call(c_long::from(result)).map(drop)
}

/// Returns the result of a call, or its error.
fn call(result: c_long) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    c_int::try_from(result).map_err(io::Error::other)
}

/// Devices that every user may write.
const WRITABLE_DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Rights of Landlock.
mod access {
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const MAKE_CHAR: u64 = 1 << 6;
    pub(super) const MAKE_BLOCK: u64 = 1 << 11;
    pub(super) const TRUNCATE: u64 = 1 << 14;
    pub(super) const IOCTL_DEV: u64 = 1 << 15;
    /// Everything that changes files: writing, removing, making and moving them, and truncation.
    pub(super) const WRITE: u64 = WRITE_FILE | (TRUNCATE | (TRUNCATE - 1)) & !((1 << 4) - 1);
    /// Those that a rule for a file may have.
    pub(super) const OF_FILES: u64 = WRITE_FILE | TRUNCATE | IOCTL_DEV;
}

const SCOPE_ABSTRACT_SOCKET: u64 = 1;
const SCOPE_SIGNAL: u64 = 1 << 1;
const LANDLOCK_CREATE_RULESET_VERSION: c_uint = 1;
const LANDLOCK_RULE_PATH_BENEATH: c_uint = 1;
const SYS_LANDLOCK_CREATE_RULESET: c_long = 444;
const SYS_LANDLOCK_ADD_RULE: c_long = 445;
const SYS_LANDLOCK_RESTRICT_SELF: c_long = 446;

#[cfg(target_arch = "x86_64")]
const SYS_SECCOMP: c_long = 317;
#[cfg(not(target_arch = "x86_64"))]
const SYS_SECCOMP: c_long = 277;
const SECCOMP_SET_MODE_FILTER: c_uint = 1;
/// With a listener for which waits can only be ended by a fatal signal.
const SECCOMP_NEW_LISTENER_KILLABLE: c_ulong = 1 << 3 | 1 << 5;

/// By its number, because the C libraries differ in the layout of a message.
#[cfg(target_arch = "x86_64")]
const SYS_SENDMSG: c_long = 46;
#[cfg(not(target_arch = "x86_64"))]
const SYS_SENDMSG: c_long = 211;
const MSG_NOSIGNAL: c_uint = 0x4000;
const SOL_SOCKET: c_int = 1;
const SCM_RIGHTS: c_int = 1;

const F_SETFD: c_int = 2;
const FD_CLOEXEC: c_int = 1;
const O_PATH: c_int = 0o10_000_000;
const POLLERR: c_short = 8;
const RLIMIT_NOFILE: c_int = 7;

const PR_SET_PDEATHSIG: c_int = 1;
const PR_CAPBSET_DROP: c_int = 24;
const PR_SET_NO_NEW_PRIVS: c_int = 38;
const PR_CAP_AMBIENT: c_int = 47;
const PR_CAP_AMBIENT_CLEAR_ALL: c_ulong = 4;
const SIGKILL: c_ulong = 9;

const CAP_SETPCAP: u32 = 8;
/// The capabilities for files of other users: `CHOWN`, `DAC_OVERRIDE`, `FOWNER` and `FSETID`.
const FOREIGN_FILES: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 4;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

/// 32 bits of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilitySets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[repr(C)]
struct Limit {
    current: u64,
    maximum: u64,
}

#[repr(C)]
struct PollFd {
    descriptor: c_int,
    events: c_short,
    happened: c_short,
}

#[repr(C)]
struct Ruleset {
    access: u64,
    network: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathRule {
    access: u64,
    parent: c_int,
}

#[repr(C)]
struct FilterProgram {
    count: u16,
    instructions: *const Instruction,
}

#[repr(C)]
struct DataVector {
    start: *mut c_void,
    length: usize,
}

#[repr(C)]
struct PassedDescriptor {
    length: usize,
    level: c_int,
    kind: c_int,
    descriptor: c_int,
}

#[repr(C)]
struct Message {
    name: *mut c_void,
    name_length: c_int,
    data: *mut DataVector,
    data_count: usize,
    control: *mut c_void,
    control_length: usize,
    flags: c_uint,
}

unsafe extern "C" {
    fn setsid() -> c_int;
    fn poll(descriptors: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
    fn getrlimit(resource: c_int, limit: *mut Limit) -> c_int;
    fn setrlimit(resource: c_int, limit: *const Limit) -> c_int;
    fn capget(header: *const CapabilityHeader, sets: *mut CapabilitySets) -> c_int;
    fn capset(header: *const CapabilityHeader, sets: *const CapabilitySets) -> c_int;
    fn prctl(attribute: c_int, ...) -> c_int;
    fn fcntl(descriptor: c_int, operation: c_int, ...) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_written() {
        let filter = vec![
            Instruction {
                code: 0x15,
                jt: 1,
                jf: 255,
                k: 0xc000_003e,
            },
            Instruction {
                code: 6,
                jt: 0,
                jf: 0,
                k: 0x7fff_0000,
            },
        ];
        let steps = [
            Step::CloseLauncher(7),
            Step::BeginSession,
            Step::AwaitGuard,
            Step::EndWith(4_194_304),
            Step::LimitFiles(u64::MAX),
            Step::DropCapabilities(true),
            Step::AllowWrites(OsString::from_vec(b"/tmp/a:b\n\xff".to_vec()).into()),
            Step::RestrictWrites(false),
            Step::Filter(filter.clone()),
            Step::Report(9, filter),
        ];
        for step in steps {
            let argument = step.to_argument();
            assert_eq!(Step::parse(&argument), Some(step), "{}", argument.display());
        }
    }

    #[test]
    fn no_step_is_skipped() {
        for argument in [
            "",
            "--",
            "session",
            "filter:0",
            "filter:+000000000000000",
            "report:3",
            "end-with:-1",
            "lock:/",
            "restrict-writes:yes",
        ] {
            assert_eq!(Step::parse(argument.as_ref()), None, "{argument}");
        }
    }
}
