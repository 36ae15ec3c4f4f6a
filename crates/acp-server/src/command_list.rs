//! [`CommandList`], the record of the list of commands that was sent to the client of one connection. It
//! decides when a changed list can be sent: never while a turn runs.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, watch};

use events::CommandInfo;

/// The list that was sent last, and the number of turns that run. While one runs, no list is sent,
/// because some clients end the display of an answer at such an update.
#[derive(Debug, Default)]
pub struct CommandList {
    sent: watch::Sender<SentCommands>,
    /// Locked while a list is sent, so that no turn begins between the check and the list, and no
    /// older list follows a newer one.
    sending: Mutex<()>,
}

#[derive(Debug, Default)]
struct SentCommands {
    list: Vec<CommandInfo>,
    /// The number of turns that run.
    turns: usize,
}

/// A turn that runs, until this is dropped.
#[derive(Debug)]
pub struct TurnGuard(Arc<CommandList>);

impl CommandList {
    /// Records that a list is sent. Returns `false` if the client has the same list already, so that
    /// it need not be sent.
    pub fn record(&self, list: &[CommandInfo]) -> bool {
        let mut is_new = false;
        self.sent.send_if_modified(|sent| {
            is_new = sent.list != list;
            if is_new {
                sent.list = list.to_vec();
            }
            false
        });
        is_new
    }

    /// Returns whether a list was sent.
    pub fn is_sent(&self) -> bool {
        !self.sent.borrow().list.is_empty()
    }

    /// Returns whether a list can be sent now: no turn runs, or the client has no list yet.
    pub fn can_send(&self) -> bool {
        let sent = self.sent.borrow();
        sent.turns == 0 || sent.list.is_empty()
    }

    /// Waits until no list is being sent. Until the guard is dropped, only the caller can send a list,
    /// and no turn begins.
    pub async fn lock(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().await
    }

    /// Waits until no list is being sent, and records that a turn begins. It ends when the guard is
    /// dropped.
    pub async fn begin_turn(self: &Arc<Self>) -> TurnGuard {
        let _sending = self.lock().await;
        self.sent.send_modify(|sent| sent.turns += 1);
        TurnGuard(self.clone())
    }

    /// Returns a receiver that is notified when a turn begins or ends.
    pub fn turn_changes(&self) -> TurnChanges {
        TurnChanges(self.sent.subscribe())
    }
}

/// The beginnings and ends of turns.
#[derive(Debug)]
pub struct TurnChanges(watch::Receiver<SentCommands>);

impl TurnChanges {
    /// Waits for the next beginning or end of a turn. Never completes after the session is gone.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.0.sent.send_modify(|sent| sent.turns -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn command(name: &str) -> CommandInfo {
        CommandInfo {
            name: name.into(),
            description: String::new(),
            hint: None,
        }
    }

    #[test]
    fn list_is_sent_when_it_has_changed() {
        let list = CommandList::default();
        assert!(!list.is_sent());
        assert!(list.record(&[command("a")]));
        assert!(list.is_sent());
        assert!(!list.record(&[command("a")]));
        assert!(list.record(&[command("b")]));
    }

    #[test]
    fn list_waits_for_the_last_of_several_turns() {
        let list = Arc::new(CommandList::default());
        let first = list.begin_turn().now_or_never().unwrap();
        let second = list.begin_turn().now_or_never().unwrap();
        assert!(list.can_send(), "the client has no list yet");
        list.record(&[command("a")]);
        drop(first);
        assert!(!list.can_send());
        drop(second);
        assert!(list.can_send());
    }

    #[test]
    fn turn_begins_after_the_list_that_is_being_sent() {
        let list = Arc::new(CommandList::default());
        let sending = list.lock().now_or_never().unwrap();
        assert!(list.begin_turn().now_or_never().is_none());
        assert!(list.can_send());
        drop(sending);
        assert!(list.begin_turn().now_or_never().is_some());
    }
}
