//! The user's choices in a session: agent, model, steering, approval mode. The handle sends a
//! [`ChoiceChange`] through the mailbox and adds it to [`PendingChoices`], so that readers see it at
//! once; the actor applies it to [`Choices`].

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::recent::RecentModels;
use crate::turn::SessionChoices;
use base::approvals::Approvals;
use base::lock::lock;
use store::RecordChange;
use transcript::ModelRef;

/// A change of one choice.
#[derive(Debug, Clone)]
pub(super) enum ChoiceChange {
    /// Another agent from the next step on.
    Agent(String),
    /// Another model from the next step on.
    Model(ModelRef),
    /// True: messages sent during a turn reach that turn. False: they are answered after it.
    Steer(bool),
    Approvals(Approvals),
}

impl ChoiceChange {
    fn apply(self, choice: &mut SessionChoices) {
        match self {
            Self::Agent(agent) => choice.agent = agent,
            Self::Model(model) => choice.model = Some(model),
            Self::Steer(steer) => choice.steer = Some(steer),
            Self::Approvals(approvals) => choice.approvals = Some(approvals),
        }
    }
}

/// The choices that were sent to a session and not yet applied, in order.
#[derive(Debug, Default)]
pub(super) struct PendingChoices {
    // A std mutex around a list, never held across an await. While it is held, messages are
    // sent and the current choice is read and written: these never block and never take this
    // lock.
    changes: Mutex<VecDeque<ChoiceChange>>,
}

/// A change on its way to its session, with the list that it is removed from when it is applied.
pub struct SentChange {
    change: ChoiceChange,
    pending: Arc<PendingChoices>,
}

impl PendingChoices {
    /// Sends a change with `send`, and adds it to the pending ones if that succeeds. The lock ensures
    /// that they are in the order of the mailbox.
    ///
    /// # Errors
    /// The error of `send`.
    pub(super) fn send<E>(
        self: &Arc<Self>,
        change: ChoiceChange,
        send: impl FnOnce(SentChange) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut changes = lock(&self.changes);
        send(SentChange {
            change: change.clone(),
            pending: self.clone(),
        })?;
        changes.push_back(change);
        Ok(())
    }

    /// Returns the `current` choices with all pending changes.
    pub(super) fn after(&self, current: &watch::Receiver<SessionChoices>) -> SessionChoices {
        // Read under the lock, so that a change is in exactly one of the two.
        let changes = lock(&self.changes);
        let mut choice = current.borrow().clone();
        changes
            .iter()
            .for_each(|change| change.clone().apply(&mut choice));
        choice
    }
}

/// The choices of a session as its actor has applied them.
pub(super) struct Choices {
    pub(super) current: watch::Sender<SessionChoices>,
    /// The store of the models chosen in this project; `None` if choices are for this session only.
    recent: Option<RecentModels>,
    /// The last chosen model that was added to `recent`.
    last_stored: Option<ModelRef>,
}

impl Choices {
    pub(super) fn new(
        current: watch::Sender<SessionChoices>,
        recent: Option<RecentModels>,
    ) -> Self {
        let remembered = current.borrow().model.clone();
        Self {
            current,
            recent,
            last_stored: remembered,
        }
    }

    pub(super) fn steers(&self) -> bool {
        self.current.borrow().steers()
    }

    pub(super) fn record_change(&self) -> RecordChange {
        self.current.borrow().record_change()
    }

    /// Applies a change that has arrived, and removes it from the pending ones. Changes arrive in
    /// order, so it is the first of them.
    pub(super) fn apply_sent(
        &self,
        SentChange {
            change,
            pending: among,
        }: SentChange,
    ) {
        let mut changes = lock(&among.changes);
        self.current.send_modify(|choice| change.apply(choice));
        changes.pop_front();
    }

    /// Stores the chosen model for the next session of this project, if it is a new choice.
    pub(super) async fn store_model(&mut self) {
        let Some(recent) = &self.recent else {
            return;
        };
        let chosen = self.current.borrow().model.clone();
        let Some(model) = chosen.filter(|model| self.last_stored.as_ref() != Some(model)) else {
            return;
        };
        self.last_stored = Some(model.clone());
        if let Err(e) = recent.store_choice(&model).await {
            tracing::warn!("the choice of a model could not be remembered: {e}");
        }
    }
}
