//! The operations that a plugin may perform on its session: cancel, rename, stop a subagent.
//! [`PluginSessionControl`] holds only weak references, so that a plugin does not keep the session
//! open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::handle::{CancelScope, MailboxMessage, SessionHandle};
use super::live::LiveSessions;
use base::id::SessionId;
use extensions::subagents::SessionControl;

pub(super) struct PluginSessionControl {
    mailbox: mpsc::WeakSender<MailboxMessage>,
    cancels: mpsc::WeakUnboundedSender<CancelScope>,
    prompt_count: Arc<AtomicU64>,
    live: Arc<LiveSessions>,
}

impl PluginSessionControl {
    /// Returns the control of a session, with weak references to the handle's channels.
    pub(super) fn new(handle: &SessionHandle, live: Arc<LiveSessions>) -> Self {
        Self {
            mailbox: handle.mailbox.downgrade(),
            cancels: handle.cancels.downgrade(),
            prompt_count: handle.prompt_count.clone(),
            live,
        }
    }
}

impl std::fmt::Debug for PluginSessionControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginSessionControl")
            .finish_non_exhaustive()
    }
}

impl SessionControl for PluginSessionControl {
    fn cancel(&self) {
        if let Some(cancels) = self.cancels.upgrade() {
            // Fails only if the session is closed, and then there is no turn to cancel.
            cancels
                .send(CancelScope::UpTo(self.prompt_count.load(Ordering::Relaxed)))
                .ok();
        }
    }

    fn rename(&self, title: &str) {
        if let Some(mailbox) = self.mailbox.upgrade() {
            // Does not wait until the title is stored. If the mailbox is full, the
            // session keeps its title.
            mailbox
                .try_send(MailboxMessage::Rename(
                    title.to_owned(),
                    oneshot::channel().0,
                ))
                .ok();
        }
    }

    fn stop(&self, child: &SessionId) -> bool {
        self.live.stop_subagent(child)
    }
}
