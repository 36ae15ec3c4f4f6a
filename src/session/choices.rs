//! What the user has chosen in a session: the agent, the model, whether words steer a running turn, how much
//! is asked.

use tokio::sync::watch;

use super::recent::RecentModels;
use crate::approvals::Approvals;
use crate::message::ModelRef;
use crate::store::RecordChange;
use crate::turn::Choice;

pub enum ChoiceChange {
    /// Speak as another agent from the next step on.
    Agent(String),
    /// Ask another model from the next step on.
    Model(ModelRef),
    /// Whether words that come while a turn runs are heard in it.
    Steer(bool),
    Approvals(Approvals),
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

    pub(super) fn set(&self, change: ChoiceChange) {
        self.current.send_modify(|choice| match change {
            ChoiceChange::Agent(agent) => choice.agent = agent,
            ChoiceChange::Model(model) => choice.model = Some(model),
            ChoiceChange::Steer(steer) => choice.steer = Some(steer),
            ChoiceChange::Approvals(approvals) => choice.approvals = Some(approvals),
        });
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
