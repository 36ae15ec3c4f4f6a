//! The history of an open session, for a client that connects later.

use super::handle::SessionHandle;
use super::replay::Replay;
use super::sessions::Sessions;
use crate::turn::History;
use base::id::MessageId;
use store::{self, visible};

impl Sessions {
    /// Returns the stored history of an open session, up to and including a message; if
    /// `shows_subagents`, with the sessions of its subagents. The session continues in the
    /// meantime.
    ///
    /// # Errors
    /// The store's.
    pub async fn review(
        &self,
        session: &SessionHandle,
        until: Option<&MessageId>,
        shows_subagents: bool,
    ) -> Result<Replay, store::Error> {
        self.store.await_written(&session.id).await;
        let stored = self.store.peek(&session.id).await?;
        let record = stored.record;
        let messages = stored.messages;
        let known =
            until.and_then(|until| messages.iter().position(|message| message.id == *until));
        let end = known.map_or_else(|| visible(&messages, &record.undone), |at| at + 1);
        let project = session.project();
        let last = messages
            .iter()
            .rev()
            .find_map(|message| Some(message.assistant()?.model.clone()));
        let window = last
            .and_then(|last| project.models.find(&last).ok())
            .and_then(|(model, _)| model.context);
        let agents = shows_subagents.then(|| project.agents.clone());
        let history = History {
            messages,
            undone_cost: record.undone_cost,
            ..History::default()
        };
        // The session has its own history, so the receiver of this one is dropped.
        Ok(Replay::new(
            history,
            (self.store.clone(), &record),
            end,
            (window, agents),
        )
        .0)
    }
}
