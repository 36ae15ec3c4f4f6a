//! A process that remains when adjutant has been killed. It ends the programs that adjutant has
//! started, as adjutant does at every other end. Programs that hide from it, by removing the mark
//! in their environment, continue unless bubblewrap binds them to the life of adjutant: this
//! process has their listeners and answers their reports, because otherwise every write of such a
//! program would fail.
//!
//! It carries no mark itself, so that adjutant does not end it. It ends when adjutant and the last
//! of the programs have ended.
//!
//! While adjutant lives, the holder only waits. A report that adjutant has received but not
//! answered when it is killed is not sent again, so adjutant records the id of each report that it
//! receives in a file in memory.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::kernel;
use crate::process::Program;
use base::lock::lock;

/// The maximum number of reports after the last recorded one, of which one may be unanswered when
/// adjutant is killed. Ids of a listener's reports are consecutive; those of processes that were
/// killed earlier are skipped.
const MAX_UNRECORDED_REPORTS: u64 = 256;

/// The holder process of this process. Its socket is closed by nothing but the end of this process,
/// because the holder then ends all programs of this process, whichever sandbox started them.
pub(in super::super) static HOLDER: ListenerHolder = ListenerHolder {
    socket: Mutex::new(None),
};

/// A holder process, as adjutant sees it. It is started when the first command needs it.
#[derive(Debug)]
pub(in super::super) struct ListenerHolder {
    /// A socket to the running process.
    socket: Mutex<Option<OwnedFd>>,
}

/// A record of the id of the report that is being answered.
#[derive(Debug)]
pub(super) struct ReportNumber {
    /// The file in memory that contains the id.
    file: OwnedFd,
}

impl ReportNumber {
    /// Records an id.
    pub(super) fn record(&self, id: u64) {
        if let Err(e) = rustix::io::pwrite(&self.file, &id.to_ne_bytes(), 0) {
            tracing::warn!("the number of a report is not recorded: {e}");
        }
    }
}

impl ListenerHolder {
    /// Starts the process if it does not run. `program` returns a program that calls [`hold`] with
    /// the number of a socket.
    ///
    /// # Errors
    /// Errors of the system.
    pub(in super::super) fn start(&self, program: impl FnOnce(RawFd) -> Program) -> io::Result<()> {
        let mut socket = lock(&self.socket);
        if socket.as_ref().is_some_and(|socket| !has_ended(socket)) {
            return Ok(());
        }
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        program(theirs.as_raw_fd())
            .passing(theirs)
            .start_detached()?;
        *socket = Some(ours);
        Ok(())
    }

    /// Sends a listener to the process. The id of each report has to be recorded before the report
    /// is processed.
    ///
    /// # Errors
    /// Errors of the system. The process does not have the listener then.
    pub(super) fn send(&self, listener: BorrowedFd<'_>) -> io::Result<ReportNumber> {
        let file = memfd_create(c"report", MemfdFlags::CLOEXEC)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [listener, file.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = lock(&self.socket);
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        // Sending must not block, because a stopped holder would block all commands.
        sendmsg(
            socket,
            &[IoSlice::new(b"+")],
            &mut control,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )?;
        Ok(ReportNumber { file })
    }
}

/// Returns whether the process at the other end of a socket has ended.
fn has_ended(socket: &OwnedFd) -> bool {
    let mut end = [PollFd::new(socket, PollFlags::empty())];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut end, Some(&now)).is_err() || !end[0].revents().is_empty()
}

/// A listener in the holder process.
struct HeldListener {
    listener: OwnedFd,
    /// The file of its [`ReportNumber`].
    number: OwnedFd,
}

/// Keeps the listeners that it receives until adjutant ends, then ends its programs, and answers
/// the reports of others until the last one has ended. To be called in the holder process;
/// `adjutant` is the id of the other one.
///
/// # Errors
/// A message for the user.
pub(in super::super) fn hold(socket: RawFd, adjutant: u32) -> Result<(), String> {
    let socket = kernel::inherited(socket).map_err(holder_error)?;
    // Every command needs two descriptors.
    base::open_files::raise();
    let mut held = Vec::new();
    while wait(&socket, &mut held).map_err(holder_error)? {}
    drop(socket);
    crate::process::end_programs_of(adjutant);
    for one in &held {
        let mut last = [0; 8];
        let has_last =
            rustix::io::pread(&one.number, &mut last, 0).is_ok_and(|read| read == last.len());
        if has_last {
            let last = u64::from_ne_bytes(last);
            for id in last..=last.saturating_add(MAX_UNRECORDED_REPORTS) {
                // Only a report that was received and not answered accepts an answer.
                kernel::let_continue(one.listener.as_fd(), id).ok();
            }
        }
    }
    while !held.is_empty() {
        answer(&mut held).map_err(holder_error)?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
/// Describes an error of the holder process.
fn holder_error(e: io::Error) -> String {
    format!("the listeners cannot be held: {e}")
}

/// Waits for the next listener or the end of one. Returns `false` when adjutant has ended.
fn wait(socket: &OwnedFd, held: &mut Vec<HeldListener>) -> io::Result<bool> {
    let events = poll_all(Some(socket), held, PollFlags::empty())?;
    let [first, rest @ ..] = events.as_slice() else {
        return Ok(false);
    };
    let mut rest = rest.iter();
    held.retain(|_| {
        !rest
            .next()
            .is_some_and(|flags| flags.contains(PollFlags::HUP))
    });
    if !first.contains(PollFlags::IN) {
        return Ok(!first.intersects(PollFlags::HUP | PollFlags::ERR));
    }
    take(socket, held)
}

/// Waits until one of the descriptors has an event. Returns the events, first those of the socket
/// if there is one.
fn poll_all(
    socket: Option<&OwnedFd>,
    held: &[HeldListener],
    of_listeners: PollFlags,
) -> io::Result<Vec<PollFlags>> {
    let socket = socket.map(|socket| PollFd::new(socket, PollFlags::IN));
    let listeners = held
        .iter()
        .map(|one| PollFd::new(&one.listener, of_listeners));
    let mut all: Vec<PollFd<'_>> = socket.into_iter().chain(listeners).collect();
    rustix::io::retry_on_intr(|| poll(&mut all, None))?;
    Ok(all.iter().map(PollFd::revents).collect())
}

/// Receives a listener. Returns `false` when adjutant has ended.
fn take(socket: &OwnedFd, held: &mut Vec<HeldListener>) -> io::Result<bool> {
    let mut message = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut message)];
    let received = loop {
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(false),
            received => break received?,
        }
    };
    let descriptors = control.drain().find_map(|ancillary| match ancillary {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<_>>()),
        _ => None,
    });
    if let Some([listener, number]) = descriptors.and_then(|all| <[OwnedFd; 2]>::try_from(all).ok())
    {
        held.push(HeldListener { listener, number });
    }
    Ok(received.bytes > 0)
}

/// Answers waiting reports, and drops the listeners of commands that have ended.
fn answer(held: &mut Vec<HeldListener>) -> io::Result<()> {
    let flags = poll_all(None, held, PollFlags::IN)?;
    for (one, _) in held
        .iter()
        .zip(&flags)
        .filter(|(_, flags)| flags.contains(PollFlags::IN))
    {
        match kernel::receive(one.listener.as_fd()) {
            Ok(report) => drop(kernel::let_continue(one.listener.as_fd(), report.id)),
            // The process was killed before the report could be read.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
            Err(_) => std::thread::sleep(kernel::RETRY_INTERVAL),
        }
    }
    if flags
        .iter()
        .all(|flags| !flags.intersects(PollFlags::IN | PollFlags::HUP))
    {
        // A transient error of the kernel.
        std::thread::sleep(kernel::RETRY_INTERVAL);
    }
    let mut flags = flags.iter();
    let ended = PollFlags::HUP | PollFlags::NVAL;
    held.retain(|_| {
        !flags
            .next()
            .is_some_and(|flags| !flags.contains(PollFlags::IN) && flags.intersects(ended))
    });
    Ok(())
}
