//! The notice about tools that are left out because all do not fit into the model's window: once
//! for each set of them, whenever in the session it arises.

use std::sync::Mutex;

use super::TurnContext;
use super::step_context::StepContext;
use base::lock::lock;
use events::{Event, Severity};
use providers::local;
use store::LeftOutTools;

/// The tools that the last notice of a session was about; `None` if all are offered since.
#[derive(Debug, Default)]
pub struct LeftOutNotice(Mutex<Option<LeftOutTools>>);

impl LeftOutNotice {
    /// Restores the tools from the record of a session.
    pub fn new(known: Option<LeftOutTools>) -> Self {
        Self(Mutex::new(known))
    }

    /// Returns the tools, for the record of the session.
    pub fn known(&self) -> Option<LeftOutTools> {
        lock(&self.0).clone()
    }

    /// Notifies the user of the tools that a step leaves out, unless they are known.
    pub(super) async fn report(&self, turn: &TurnContext, step: &StepContext) {
        let now = left_out(step);
        if std::mem::replace(&mut *lock(&self.0), now.clone()) == now {
            return;
        }
        let Some(LeftOutTools { tools, .. }) = now else {
            return;
        };
        let listed = step.tools.iter().filter(|tool| tool.listed());
        let offered: Vec<&str> = listed.map(|tool| tool.name()).collect();
        let title = local::explain_reduced_tools(&step.model, &offered);
        let notice = Event::Notice {
            severity: Severity::Warning,
            title,
            details: Some(format!("Left out: {}.", names_text(&tools))),
        };
        turn.event_sender.event(notice).await;
    }
}

/// Returns the names of tools as a list, or the first of very many.
fn names_text(tools: &[String]) -> String {
    const MAX_NAMES: usize = 20;
    if tools.len() <= MAX_NAMES {
        return tools.join(", ");
    }
    let more = tools.len() - MAX_NAMES;
    format!("{} and {more} more", tools[..MAX_NAMES].join(", "))
}

/// Returns the tools that a step leaves out; `None` if it offers all.
fn left_out(step: &StepContext) -> Option<LeftOutTools> {
    (!step.left_out_tools.is_empty()).then(|| LeftOutTools {
        provider: step.model.id.provider.clone(),
        model: step.model.id.model.clone(),
        tools: step.left_out_tools.clone(),
    })
}
