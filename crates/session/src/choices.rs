//! What the user has chosen in a session: the agent, the model, whether words steer a running turn, how much
//! is asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::recent::RecentModels;
use crate::turn::Choice;
use base::approvals::Approvals;
use base::lock::locked;
use store::RecordChange;
use transcript::ModelRef;

#[derive(Debug, Clone)]
pub(super) enum ChoiceChange {
    /// Speak as another agent from the next step on.
    Agent(String),
    /// Ask another model from the next step on.
    Model(ModelRef),
    /// Whether words that come while a turn runs are heard in it.
    Steer(bool),
    Approvals(Approvals),
}

impl ChoiceChange {
    fn apply(self, choice: &mut Choice) {
        match self {
            Self::Agent(agent) => choice.agent = agent,
            Self::Model(model) => choice.model = Some(model),
            Self::Steer(steer) => choice.steer = Some(steer),
            Self::Approvals(approvals) => choice.approvals = Some(approvals),
        }
    }
}

/// What was chosen and has not reached its session, in the order in which it will.
#[derive(Debug, Default)]
pub(super) struct ChoicesOnTheWay {
    // A std mutex around a list, never held across an await. Under it mail is sent and what is chosen is read and
    // written: neither waits for anything, nor for this lock.
    changes: Mutex<VecDeque<ChoiceChange>>,
}

/// A change that its session has been sent.
pub struct SentChange {
    change: ChoiceChange,
    among: Arc<ChoicesOnTheWay>,
}

impl ChoicesOnTheWay {
    /// Has a change sent, and remembers it where that was possible. The lock makes the order here the one of the
    /// mailbox.
    ///
    /// # Errors
    /// What `send` says.
    pub(super) fn send<E>(
        self: &Arc<Self>,
        change: ChoiceChange,
        send: impl FnOnce(SentChange) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut changes = locked(&self.changes);
        send(SentChange { change: change.clone(), among: self.clone() })?;
        changes.push_back(change);
        Ok(())
    }

    /// What is chosen when all of it has arrived.
    pub(super) fn after(&self, current: &watch::Receiver<Choice>) -> Choice {
        // At one moment: a change is in one of the two.
        let changes = locked(&self.changes);
        let mut choice = current.borrow().clone();
        changes.iter().for_each(|change| change.clone().apply(&mut choice));
        choice
    }
}

pub(super) struct Choices {
    pub(super) current: watch::Sender<Choice>,
    /// What was chosen in this project, and of that what this session has told it.
    recent: RecentModels,
    remembered: Option<ModelRef>,
}

impl Choices {
    pub(super) fn new(current: watch::Sender<Choice>, recent: RecentModels) -> Self {
        let remembered = current.borrow().model.clone();
        Self { current, recent, remembered }
    }

    pub(super) fn steers(&self) -> bool {
        self.current.borrow().steers()
    }

    pub(super) fn kept(&self) -> RecordChange {
        self.current.borrow().kept()
    }

    /// Makes a change that has arrived. They arrive in order: it is the first of those on the way.
    pub(super) fn set(&self, SentChange { change, among }: SentChange) {
        let mut changes = locked(&among.changes);
        self.current.send_modify(|choice| change.apply(choice));
        changes.pop_front();
    }

    /// Remembers a model that was chosen, for the next session of this project.
    pub(super) async fn remember(&mut self) {
        let chosen = self.current.borrow().model.clone();
        let Some(model) = chosen.filter(|model| self.remembered.as_ref() != Some(model)) else { return };
        self.remembered = Some(model.clone());
        if let Err(e) = self.recent.chosen(&model).await {
            tracing::warn!("the choice of a model could not be remembered: {e}");
        }
    }
}
