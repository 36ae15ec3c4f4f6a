//! The calls of seccomp's listeners that no crate we use has: installing a filter that reports, taking a report,
//! answering it.

#![expect(unsafe_code, reason = "seccomp(2) and its requests have no safe wrapper; each use says why it is sound")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_ulong, seccomp_data, seccomp_notif, seccomp_notif_resp, seccomp_notif_sizes, sock_filter, sock_fprog};

/// The pause after a report that could not be taken.
pub(super) const RETRY: Duration = Duration::from_millis(10);

/// A call that was stopped.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Report {
    pub(in super::super) id: u64,
    /// The thread that made it.
    pub(super) pid: u32,
    pub(super) nr: i32,
    pub(super) arguments: [u64; 6],
}

fn seccomp(operation: libc::c_uint, flags: c_ulong, argument: *mut libc::c_void) -> io::Result<i32> {
    // SAFETY: the callers below pass what the operation wants: a filter that lives during the call, or room for the
    // sizes. The call keeps no pointer.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, argument) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(result).unwrap_or(-1))
}

/// Applies a filter to this process, and to what it becomes and starts. Gives the descriptor that reports come from,
/// which is closed at an exec.
pub(super) fn listen(program: &mut [sock_filter]) -> io::Result<OwnedFd> {
    let mut sizes = seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    seccomp(libc::SECCOMP_GET_NOTIF_SIZES, 0, (&raw mut sizes).cast())?;
    // The kernel writes as much as it knows of.
    if usize::from(sizes.seccomp_notif) > size_of::<seccomp_notif>()
        || usize::from(sizes.seccomp_notif_resp) > size_of::<seccomp_notif_resp>()
    {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut filter = sock_fprog { len, filter: program.as_mut_ptr() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let listener = seccomp(libc::SECCOMP_SET_MODE_FILTER, flags, (&raw mut filter).cast())?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

/// Takes the descriptor that this process was started with under a number.
///
/// # Errors
/// The system's, if nothing is open under it.
pub(in super::super) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a borrow for one call, which fails if nothing is open under the number.
    let there = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(there, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and only the process that started us knows the number: nothing here has opened it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Takes the next report. Waits for one.
///
/// # Errors
/// The system's; `NotFound` if the process that was stopped has been killed meanwhile.
pub(in super::super) fn receive(listener: BorrowedFd<'_>) -> io::Result<Report> {
    let data = seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
    let mut report = seccomp_notif { id: 0, pid: 0, flags: 0, data };
    // SAFETY: the request writes one report, for which there is room (`listen` has asked for its size).
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut report) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Report { id: report.id, pid: report.pid, nr: report.data.nr, arguments: report.data.args })
}

/// Whether the process that was stopped still waits: what was read from it meanwhile is its own then.
pub(super) fn is_waiting(listener: BorrowedFd<'_>, report: &Report) -> bool {
    let id = report.id;
    // SAFETY: the request reads one number.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) };
    done == 0
}

/// Lets a call go on.
///
/// # Errors
/// The system's; `NotFound` if the process has been killed meanwhile.
pub(in super::super) fn go_on(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1);
    let mut answer = seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: the request reads one answer.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Has the kernel run whoever waits for an answer on the same processor, which halves the time of a report. Older
/// kernels (before 6.6) do not know it.
pub(super) fn wake_in_place(listener: BorrowedFd<'_>) {
    const SYNC_WAKE_UP: c_ulong = 1;
    // SAFETY: the request takes a number.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    if done < 0 {
        tracing::debug!("reports of writes wake whoever waits the usual way");
    }
}
