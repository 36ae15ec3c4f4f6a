//! What plugins may have done in the session they hook into. It keeps no address of the session alive: one that nobody
//! else wants any more ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::handle::{CancelScope, Handle, MailboxMessage};
use super::live::LiveSessions;
use base::id::SessionId;
use extensions::subagents::SessionDoor;

pub(super) struct PluginDoor {
    mailbox: mpsc::WeakSender<MailboxMessage>,
    cancels: mpsc::WeakUnboundedSender<CancelScope>,
    prompts: Arc<AtomicU64>,
    live: Arc<LiveSessions>,
}

impl PluginDoor {
    /// Holds nothing of the handle that would keep the session open.
    pub(super) fn new(handle: &Handle, live: Arc<LiveSessions>) -> Self {
        Self {
            mailbox: handle.mailbox.downgrade(),
            cancels: handle.cancels.downgrade(),
            prompts: handle.prompts.clone(),
            live,
        }
    }
}

impl std::fmt::Debug for PluginDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginDoor").finish_non_exhaustive()
    }
}

impl SessionDoor for PluginDoor {
    fn cancel(&self) {
        if let Some(cancels) = self.cancels.upgrade() {
            // A session that is closed has nothing to cancel.
            cancels.send(CancelScope::UpTo(self.prompts.load(Ordering::Relaxed))).ok();
        }
    }

    fn rename(&self, title: &str) {
        if let Some(mailbox) = self.mailbox.upgrade() {
            // Nobody waits until it is kept; a session with a full mailbox keeps its title.
            mailbox.try_send(MailboxMessage::Title(title.to_owned(), oneshot::channel().0)).ok();
        }
    }

    fn stop(&self, child: &SessionId) -> bool {
        self.live.stop_subagent(child)
    }
}
