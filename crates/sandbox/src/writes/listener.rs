//! Both ends of a listener: the process that becomes the command hands it over, a thread of ours answers.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::hold::{ListenerHolder, ReportNumber};
use super::{PendingWrite, WriteObserver, filter, kernel, target};

/// What the process that becomes a command says with the listener, or instead of it.
const INSTALLED: u8 = b'+';
const REFUSED: u8 = b'-';

/// Watches what a command writes that is about to be started with the descriptor this returns. With a holder, the
/// command may outlive this process.
///
/// # Errors
/// The system's.
pub(in super::super) fn watch(
    observer: Arc<dyn WriteObserver>,
    holder: Option<Arc<ListenerHolder>>,
) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let work = move || {
        let Some(said) = hear(&ours) else { return };
        observer.started();
        if said.is_none() {
            observer.refused();
        }
        let number = said.as_ref().zip(holder).and_then(|(listener, holder)| match holder.keep(listener.as_fd()) {
            Ok(number) => Some(number),
            Err(e) => {
                tracing::error!("a command could not write any more if adjutant were killed: {e}");
                None
            }
        });
        // Whoever waits for it is gone if this fails; its writes are answered all the same.
        rustix::io::write(&ours, b"+").ok();
        drop(ours);
        if let Some(listener) = said {
            answer(listener.as_fd(), &*observer, number.as_ref());
        }
        observer.ended();
    };
    std::thread::Builder::new().name("writes".into()).spawn(work)?;
    Ok(theirs)
}

/// Waits for the listener. None where the process ended before it became the command; inside that, none where the
/// kernel has refused.
fn hear(socket: &OwnedFd) -> Option<Option<OwnedFd>> {
    let mut word = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [io::IoSliceMut::new(&mut word)];
    let received = loop {
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    if received.bytes == 0 {
        return None;
    }
    let listener = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Some(listener)
}

/// Answers until the last process of the command has ended.
fn answer(listener: BorrowedFd<'_>, observer: &dyn WriteObserver, number: Option<&ReportNumber>) {
    kernel::wake_in_place(listener);
    loop {
        let mut end = [PollFd::new(&listener, PollFlags::IN)];
        match poll(&mut end, None) {
            Ok(_) if end[0].revents().contains(PollFlags::IN) => {}
            Ok(_) if end[0].revents().contains(PollFlags::HUP) => return,
            Ok(_) => {
                // An error that the kernel tells of for a moment.
                std::thread::sleep(kernel::RETRY);
                continue;
            }
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return tracing::error!("the writes of a command are not seen any more: {e}"),
        }
        let report = match kernel::receive(listener) {
            Ok(report) => report,
            // It was killed before it could be asked about.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
            Err(e) => {
                // A closed listener would fail every further write of the command.
                tracing::error!("a write of a command was not seen: {e}");
                observer.about_to_write(PendingWrite::Unknown);
                std::thread::sleep(kernel::RETRY);
                continue;
            }
        };
        if let Some(number) = number {
            number.note(report.id);
        }
        let observe = || {
            let writes = target::writes(&report);
            if kernel::is_waiting(listener, &report) {
                writes.into_iter().for_each(|write| observer.about_to_write(write));
            }
        };
        // Whatever goes wrong here, the call goes on.
        if catch_unwind(AssertUnwindSafe(observe)).is_err() {
            observer.about_to_write(PendingWrite::Unknown);
        }
        if let Err(e) = kernel::go_on(listener, report.id)
            && e.raw_os_error() != Some(libc::ENOENT)
        {
            tracing::warn!("a call of a command was not answered: {e}");
        }
    }
}

/// In the process that becomes the command, as the last thing before it does: installs the filter and hands the
/// listener over through the socket that was inherited under this number.
///
/// # Errors
/// For a person, where nobody takes it: then nothing must be started, because every write would fail.
pub(in super::super) fn install(socket: RawFd) -> Result<(), String> {
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("{what}: {e}");
    let socket = kernel::inherited(socket).map_err(|e| failed("the socket to adjutant", &e))?;
    let listener = kernel::listen(&mut filter::program());
    let word = [if listener.is_ok() { INSTALLED } else { REFUSED }];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = listener.iter().map(AsFd::as_fd).collect();
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err("the listener does not fit into a message".into());
    }
    sendmsg(&socket, &[io::IoSlice::new(&word)], &mut control, SendFlags::NOSIGNAL)
        .map_err(|e| failed("adjutant does not take the listener", &e))?;
    let mut heard = [0];
    match rustix::io::retry_on_intr(|| rustix::io::read(&socket, &mut heard)) {
        Ok(1) => Ok(()),
        Ok(_) => Err("adjutant has ended".into()),
        Err(e) => Err(failed("adjutant does not answer", &e)),
    }
}
