//! Answers the reports of a command, on a thread of its own. The launcher of the command sends the
//! listener.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::listener_holder::{ListenerHolder, ReportNumber};
use super::{PendingWrite, WriteObserver, kernel, target};

/// Observes the writes of a command that is about to be started with the returned descriptor. With
/// a holder, the command may outlive this process.
///
/// # Errors
/// Errors of the system.
pub(in super::super) fn watch(
    observer: Arc<dyn WriteObserver>,
    holder: Option<&'static ListenerHolder>,
) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let work = move || {
        let Some(message) = receive_listener(&ours) else {
            return;
        };
        observer.started();
        if message.is_none() {
            observer.refused();
        }
        let number = message.as_ref().zip(holder).and_then(|(listener, holder)| {
            match holder.send(listener.as_fd()) {
                Ok(number) => Some(number),
                Err(e) => {
                    tracing::error!("a command could no longer write if adjutant were killed: {e}");
                    None
                }
            }
        });
        // If this fails, the process that waits for it has ended; its writes are answered all the
        // same.
        rustix::io::write(&ours, b"+").ok();
        drop(ours);
        if let Some(listener) = message {
            answer(listener.as_fd(), &*observer, number.as_ref());
        }
        observer.ended();
    };
    std::thread::Builder::new()
        .name("writes".into())
        .spawn(work)?;
    Ok(theirs)
}

/// Waits for the listener. Returns `None` if the process ended before it became the command, and
/// `Some(None)` if the kernel refused the filter.
fn receive_listener(socket: &OwnedFd) -> Option<Option<OwnedFd>> {
    let mut message = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [io::IoSliceMut::new(&mut message)];
    let received = loop {
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    if received.bytes == 0 {
        return None;
    }
    let listener = control.drain().find_map(|ancillary| match ancillary {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Some(listener)
}

/// Passes reports to the observer and answers them, until the last process of the command has
/// ended. The id of each report is recorded in `number`.
fn answer(listener: BorrowedFd<'_>, observer: &dyn WriteObserver, number: Option<&ReportNumber>) {
    kernel::wake_in_place(listener);
    let mut directories = target::Directories::new();
    loop {
        let mut end = [PollFd::new(&listener, PollFlags::IN)];
        match poll(&mut end, None) {
            Ok(_) if end[0].revents().contains(PollFlags::IN) => {}
            Ok(_) if end[0].revents().contains(PollFlags::HUP) => return,
            Ok(_) => {
                // A transient error of the kernel.
                std::thread::sleep(kernel::RETRY_INTERVAL);
                continue;
            }
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return tracing::error!("the writes of a command are no longer seen: {e}"),
        }
        let report = match kernel::receive(listener) {
            Ok(report) => report,
            // The process was killed before the report could be read.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
            Err(e) => {
                // A closed listener would fail every further write of the command.
                tracing::error!("a write of a command was not seen: {e}");
                observer.about_to_write(PendingWrite::Unknown);
                std::thread::sleep(kernel::RETRY_INTERVAL);
                continue;
            }
        };
        if let Some(number) = number {
            number.record(report.id);
        }
        let notify_observer = || {
            let writes = target::writes(&report, &mut directories);
            // Otherwise the memory may have been that of another process.
            if kernel::is_waiting(listener, &report) {
                writes
                    .into_iter()
                    .for_each(|write| observer.about_to_write(write));
            }
        };
        // The call has to continue even if the observer panics.
        if catch_unwind(AssertUnwindSafe(notify_observer)).is_err() {
            observer.about_to_write(PendingWrite::Unknown);
        }
        if let Err(e) = kernel::let_continue(listener, report.id)
            && e.raw_os_error() != Some(libc::ENOENT)
        {
            tracing::warn!("a call of a command was not answered: {e}");
        }
    }
}
