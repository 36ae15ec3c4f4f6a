//! What an agent that only reads may run, where no rule of its own speaks about it.

use super::Action;
use super::shell::{Effect, Unit};

/// Why a read-only agent is not simply allowed something, with what kept a rule of its own from allowing it.
pub(super) fn also_refused(why: String, action: Action, refused: Option<&str>) -> String {
    match refused.filter(|_| action == Action::Ask) {
        Some(refused) => format!("{why}; {refused}"),
        None => why,
    }
}

/// What a read-only agent may run.
pub(super) fn posture_of(unit: &Unit) -> (Action, Option<String>) {
    if let Some(reason) = unit.opaque.as_ref().filter(|_| unit.effect != Effect::Writes || unit.plans_only) {
        return (Action::Ask, Some(reason.clone()));
    }
    match unit.effect {
        Effect::Reads => (Action::Allow, Some("it is known to change nothing, and this agent may read".into())),
        Effect::Writes if unit.plans_only => (Action::Allow, Some("it writes plan files only".into())),
        // What an option carries may never start; only what cannot be undone is refused outright.
        Effect::Writes if unit.carried && !unit.destroys => {
            (Action::Ask, Some("an option of another program may run it, and it writes".into()))
        }
        Effect::Writes => (Action::Deny, Some("it changes something, and this agent only reads".into())),
        Effect::Unproven => (Action::Ask, Some("it is not known to change nothing, and this agent only reads".into())),
    }
}
