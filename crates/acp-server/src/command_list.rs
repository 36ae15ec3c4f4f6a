//! The list of a session's commands, as the client of one connection has it.

use std::sync::Arc;

use tokio::sync::watch;

use events::CommandInfo;

/// The list that was sent last, and the turns that run. While one runs, no list is sent, because
/// some clients show an update within an answer as its end.
#[derive(Debug, Default)]
pub struct CommandList(watch::Sender<SentCommands>);

#[derive(Debug, Default)]
struct SentCommands {
    list: Vec<CommandInfo>,
    turns: usize,
}

/// A turn that runs, until this is dropped.
#[derive(Debug)]
pub struct TurnGuard(Arc<CommandList>);

impl CommandList {
    /// Records that a list is sent. Returns false if the client has the same list already.
    pub fn update(&self, list: &[CommandInfo]) -> bool {
        let mut is_new = false;
        self.0.send_if_modified(|sent| {
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
        !self.0.borrow().list.is_empty()
    }

    /// Returns whether a list can be sent now: no turn runs, or the client has no list yet.
    pub fn can_send(&self) -> bool {
        let sent = self.0.borrow();
        sent.turns == 0 || sent.list.is_empty()
    }

    /// Records that a turn begins.
    pub fn begin(self: &Arc<Self>) -> TurnGuard {
        self.0.send_modify(|sent| sent.turns += 1);
        TurnGuard(self.clone())
    }

    /// Returns a receiver that is notified when a turn begins or ends.
    pub fn turns(&self) -> CommandTurns {
        CommandTurns(self.0.subscribe())
    }
}

/// The beginnings and ends of turns.
#[derive(Debug)]
pub struct CommandTurns(watch::Receiver<SentCommands>);

impl CommandTurns {
    /// Waits for the next beginning or end of a turn. Never completes after the session is gone.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        self.0.0.send_modify(|sent| sent.turns -= 1);
    }
}

#[cfg(test)]
mod tests {
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
        assert!(list.update(&[command("a")]));
        assert!(list.is_sent());
        assert!(!list.update(&[command("a")]));
        assert!(list.update(&[command("b")]));
    }

    #[test]
    fn list_waits_for_the_last_of_several_turns() {
        let list = Arc::new(CommandList::default());
        let first = list.begin();
        let second = list.begin();
        assert!(list.can_send(), "the client has no list yet");
        list.update(&[command("a")]);
        drop(first);
        assert!(!list.can_send());
        drop(second);
        assert!(list.can_send());
    }
}
