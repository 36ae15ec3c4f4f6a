//! What was said in a session that is open, for an editor that was not there.

use super::handle::Handle;
use super::replay::Replay;
use super::sessions::Sessions;
use crate::turn::History;
use base::id::MessageId;
use store::{self, visible};

impl Sessions {
    /// The history of an open session as it is kept, up to a message and with it; `exposed`: with the sessions of
    /// its subagents. The session goes on meanwhile.
    ///
    /// # Errors
    /// The store's.
    pub async fn review(
        &self,
        session: &Handle,
        until: Option<&MessageId>,
        exposed: bool,
    ) -> Result<Replay, store::Error> {
        self.store.handed_over(&session.id).await;
        let stored = self.store.peek(&session.id).await?;
        let (record, messages) = (stored.record, stored.messages);
        let known = until.and_then(|until| messages.iter().position(|message| message.id == *until));
        let end = known.map_or_else(|| visible(&messages, &record.undone), |at| at + 1);
        let project = session.project();
        let last = messages.iter().rev().find_map(|message| Some(message.assistant()?.model.clone()));
        let window = last.and_then(|last| project.models.find(&last).ok()).and_then(|(model, _)| model.context);
        let agents = exposed.then(|| project.agents.clone());
        let history = History { messages, undone_cost: record.undone_cost, ..History::default() };
        // The session has a history of its own: nobody waits for this one.
        Ok(Replay::new(history, (self.store.clone(), &record), end, (window, agents)).0)
    }
}
