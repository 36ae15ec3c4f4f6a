//! A process of ours that keeps the listeners of commands that may outlive adjutant, and answers in its place once it
//! has ended: a program whose writes nobody answers could not write any more.
//!
//! It is not ended with the programs that adjutant started, for some of those may go on; it ends by itself when adjutant
//! and the last of them have.
//!
//! While adjutant lives, the holder only waits. A report that adjutant had taken and not answered when it was killed
//! is not sent twice, so adjutant notes the number of each report it takes in a file in memory.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::kernel;
use crate::process::Program;
use base::lock::locked;

/// How many reports after the last one noted may have been the one that adjutant was killed with. The numbers of a
/// listener's reports follow each other; those of processes that were killed before are left out.
const MAX_AFTER: u64 = 256;

/// The process, as adjutant sees it. Started when the first command needs it.
#[derive(Debug)]
pub(in super::super) struct ListenerHolder {
    /// To the process that runs.
    socket: Mutex<Option<OwnedFd>>,
}

/// Notes which report is being answered.
#[derive(Debug)]
pub(super) struct ReportNumber {
    file: OwnedFd,
}

impl ReportNumber {
    pub(super) fn note(&self, id: u64) {
        if let Err(e) = rustix::io::pwrite(&self.file, &id.to_ne_bytes(), 0) {
            tracing::warn!("the number of a report is not noted: {e}");
        }
    }
}

impl ListenerHolder {
    pub(in super::super) const fn new() -> Self {
        Self { socket: Mutex::new(None) }
    }

    /// Starts the process if it does not run. `program` makes one that calls [`hold`] with the number of a socket.
    ///
    /// # Errors
    /// The system's.
    pub(in super::super) fn start(&self, program: impl FnOnce(RawFd) -> Program) -> io::Result<()> {
        let mut socket = locked(&self.socket);
        if socket.as_ref().is_some_and(|socket| !has_ended(socket)) {
            return Ok(());
        }
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        program(theirs.as_raw_fd()).passing(theirs).start_apart()?;
        *socket = Some(ours);
        Ok(())
    }

    /// Gives it a listener to keep. Each report has to be noted before it is looked at.
    ///
    /// # Errors
    /// The system's. Then the listener is not kept.
    pub(super) fn keep(&self, listener: BorrowedFd<'_>) -> io::Result<ReportNumber> {
        let file = memfd_create(c"report", MemfdFlags::CLOEXEC)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [listener, file.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = locked(&self.socket);
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        // It must not wait: a holder that was stopped would stop everything.
        sendmsg(socket, &[IoSlice::new(b"+")], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(ReportNumber { file })
    }
}

fn has_ended(socket: &OwnedFd) -> bool {
    let mut end = [PollFd::new(socket, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut end, Some(&now)).is_err() || !end[0].revents().is_empty()
}

struct HeldListener {
    listener: OwnedFd,
    number: OwnedFd,
}

/// Keeps the listeners it is sent until adjutant ends, then answers until the last command has ended. For the process
/// of its own.
///
/// # Errors
/// For a person.
pub(in super::super) fn hold(socket: RawFd) -> Result<(), String> {
    let failed = |e: io::Error| format!("listeners cannot be kept: {e}");
    let socket = kernel::inherited(socket).map_err(failed)?;
    // Two for each command.
    base::open_files::raise();
    let mut held = Vec::new();
    while wait(&socket, &mut held).map_err(failed)? {}
    drop(socket);
    for one in &held {
        let mut last = [0; 8];
        if rustix::io::pread(&one.number, &mut last, 0).is_ok_and(|read| read == last.len()) {
            let last = u64::from_ne_bytes(last);
            for id in last..=last.saturating_add(MAX_AFTER) {
                // Only the one that was taken can be answered.
                kernel::go_on(one.listener.as_fd(), id).ok();
            }
        }
    }
    while !held.is_empty() {
        answer(&mut held).map_err(failed)?;
    }
    Ok(())
}

/// Waits for the next listener or the end of one. False when adjutant has ended.
fn wait(socket: &OwnedFd, held: &mut Vec<HeldListener>) -> io::Result<bool> {
    let happened = poll_all(Some(socket), held, PollFlags::empty())?;
    let [first, rest @ ..] = happened.as_slice() else { return Ok(false) };
    let mut rest = rest.iter();
    held.retain(|_| !rest.next().is_some_and(|flags| flags.contains(PollFlags::HUP)));
    if !first.contains(PollFlags::IN) {
        return Ok(!first.intersects(PollFlags::HUP | PollFlags::ERR));
    }
    take(socket, held)
}

/// Waits until something happens to one of them. Gives what, first for the socket if there is one.
fn poll_all(socket: Option<&OwnedFd>, held: &[HeldListener], of_listeners: PollFlags) -> io::Result<Vec<PollFlags>> {
    let socket = socket.map(|socket| PollFd::new(socket, PollFlags::IN));
    let listeners = held.iter().map(|one| PollFd::new(&one.listener, of_listeners));
    let mut all: Vec<PollFd<'_>> = socket.into_iter().chain(listeners).collect();
    rustix::io::retry_on_intr(|| poll(&mut all, None))?;
    Ok(all.iter().map(PollFd::revents).collect())
}

/// Takes a listener that was sent. False when adjutant has ended.
fn take(socket: &OwnedFd, held: &mut Vec<HeldListener>) -> io::Result<bool> {
    let mut word = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut word)];
    let received = loop {
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(false),
            received => break received?,
        }
    };
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<_>>()),
        _ => None,
    });
    if let Some([listener, number]) = descriptors.and_then(|all| <[OwnedFd; 2]>::try_from(all).ok()) {
        held.push(HeldListener { listener, number });
    }
    Ok(received.bytes > 0)
}

/// Lets calls go on that wait, and forgets the listeners of commands that have ended.
fn answer(held: &mut Vec<HeldListener>) -> io::Result<()> {
    let flags = poll_all(None, held, PollFlags::IN)?;
    for (one, _) in held.iter().zip(&flags).filter(|(_, flags)| flags.contains(PollFlags::IN)) {
        match kernel::receive(one.listener.as_fd()) {
            Ok(report) => drop(kernel::go_on(one.listener.as_fd(), report.id)),
            // It was killed before it could be asked about.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
            Err(_) => std::thread::sleep(kernel::RETRY),
        }
    }
    if flags.iter().all(|flags| !flags.intersects(PollFlags::IN | PollFlags::HUP)) {
        // An error that the kernel tells of for a moment.
        std::thread::sleep(kernel::RETRY);
    }
    let mut flags = flags.iter();
    let over = PollFlags::HUP | PollFlags::NVAL;
    held.retain(|_| !flags.next().is_some_and(|flags| !flags.contains(PollFlags::IN) && flags.intersects(over)));
    Ok(())
}
