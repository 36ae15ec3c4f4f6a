//! System calls that no crate in use provides: receiving and answering the reports of a seccomp
//! listener, and asking whether a file has a writer.

#![expect(
    unsafe_code,
    reason = "seccomp(2) with its requests and leases have no safe wrapper; each use says why it is sound"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use libc::{c_ulong, seccomp_data, seccomp_notif, seccomp_notif_resp, seccomp_notif_sizes};
use rustix::fs::{FileType, Mode, OFlags};

/// The pause after a report that could not be taken.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The command that sets the signal of a lease, of `asm-generic/fcntl.h`, which `libc` lacks.
const F_SETSIG: libc::c_int = 10;

/// A stopped call.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Report {
    /// The number of the report, by which it is answered.
    pub(in super::super) id: u64,
    /// The thread that made the call.
    pub(super) pid: u32,
    /// The number of the system call.
    pub(super) nr: i32,
    pub(super) arguments: [u64; 6],
}

/// Calls `seccomp(2)`.
fn seccomp(
    operation: libc::c_uint,
    flags: c_ulong,
    argument: *mut libc::c_void,
) -> io::Result<i32> {
    // SAFETY: the callers below pass an argument that fits the operation: a filter that lives
    // during the call, or a struct for the sizes. The kernel keeps no pointer.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, argument) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(result).unwrap_or(-1))
}

/// Returns whether reports of this kernel fit into the structs of this module.
pub(in super::super) fn has_known_reports() -> bool {
    let mut sizes = seccomp_notif_sizes {
        seccomp_notif: 0,
        seccomp_notif_resp: 0,
        seccomp_data: 0,
    };
    // The kernel writes structs of the size it knows.
    seccomp(libc::SECCOMP_GET_NOTIF_SIZES, 0, (&raw mut sizes).cast()).is_ok()
        && usize::from(sizes.seccomp_notif) <= size_of::<seccomp_notif>()
        && usize::from(sizes.seccomp_notif_resp) <= size_of::<seccomp_notif_resp>()
}

/// Returns whether a process has a file open for writing, or maps it so. A file that is no regular
/// one, or does not exist, has no writer. Returns `None` if the system cannot tell: a file of
/// another user, or a file system without leases.
pub fn has_writer(file: &Path) -> Option<bool> {
    let is_regular = |path| {
        rustix::fs::lstat(path).is_ok_and(|data| FileType::from_raw_mode(data.st_mode).is_file())
    };
    if !is_regular(file) {
        return Some(false);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(file, flags, Mode::empty()).ok()?;
    let fcntl = |command, argument: libc::c_int| {
        // SAFETY: these commands take a number, and the descriptor is open.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // A read lease is refused if the file has a writer. One that opens it now waits until the lease
    // ends, and this process gets the signal of its choice, instead of one that ends it.
    fcntl(F_SETSIG, libc::SIGURG).ok()?;
    match fcntl(libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            fcntl(libc::F_SETLEASE, libc::F_UNLCK).ok();
            Some(false)
        }
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Some(true),
        Err(_) => None,
    }
}

/// Takes ownership of the descriptor that this process inherited under a number.
///
/// # Errors
/// Errors of the system, if no descriptor is open under the number.
pub(in super::super) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a borrow for one call, which fails if the number is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and has no other owner: only the process that started this one knows the
    // number, and no code here has opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Waits for the next report, and receives it.
///
/// # Errors
/// Errors of the system; `NotFound` if the stopped process has been killed in the meantime.
pub(in super::super) fn receive(listener: BorrowedFd<'_>) -> io::Result<Report> {
    let data = seccomp_data {
        nr: 0,
        arch: 0,
        instruction_pointer: 0,
        args: [0; 6],
    };
    let mut report = seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data,
    };
    // SAFETY: the request writes one report, which fits (`listen` checked its size).
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut report,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Report {
        id: report.id,
        pid: report.pid,
        nr: report.data.nr,
        arguments: report.data.args,
    })
}

/// Returns whether the stopped process still waits, so that data read from it in the meantime is
/// its own.
pub(super) fn is_waiting(listener: BorrowedFd<'_>, report: &Report) -> bool {
    let id = report.id;
    // SAFETY: the request reads one number.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        )
    };
    done == 0
}

/// Lets a stopped call continue.
///
/// # Errors
/// Errors of the system; `NotFound` if the process has been killed in the meantime.
pub(in super::super) fn let_continue(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1);
    let mut answer = seccomp_notif_resp {
        id,
        val: 0,
        error: 0,
        flags,
    };
    // SAFETY: the request reads one answer.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw mut answer,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes the kernel run the process that waits for an answer on the same processor, which halves
/// the time of a report. Kernels before 6.6 do not support it.
pub(super) fn wake_in_place(listener: BorrowedFd<'_>) {
    const SYNC_WAKE_UP: c_ulong = 1;
    // SAFETY: the request takes a number.
    let done = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            SYNC_WAKE_UP,
        )
    };
    if done < 0 {
        tracing::debug!("reports of writes wake whoever waits the usual way");
    }
}
