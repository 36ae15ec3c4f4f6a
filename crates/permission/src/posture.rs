//! The read-only posture: the commands that an agent may run which only reads, if no rule of its
//! own applies.

use super::Action;
use super::shell::{CommandUnit, Effect};

/// Adds to the reason of a question why a rule of the agent did not allow the command.
pub(super) fn with_refusal(why: String, action: Action, refused: Option<&str>) -> String {
    match refused {
        Some(refused) if action == Action::Ask => format!("{why}; {refused}"),
        _ => why,
    }
}

/// Judges a unit for a read-only agent.
pub(super) fn posture_of(unit: &CommandUnit) -> (Action, Option<String>) {
    if let Some(reason) = &unit.opaque
        && (unit.effect != Effect::Writes || unit.plans_only)
    {
        return (Action::Ask, Some(reason.clone()));
    }
    match unit.effect {
        Effect::Reads => (
            Action::Allow,
            Some("it is known to be read-only, and this agent may read".into()),
        ),
        Effect::Writes if unit.plans_only => {
            (Action::Allow, Some("it writes plan files only".into()))
        }
        // The command in an option may never start, so it is denied only if its effect cannot be
        // undone.
        Effect::Writes if unit.carried && !unit.destroys => (
            Action::Ask,
            Some("an option of another program may run it, and it writes".into()),
        ),
        Effect::Writes => (
            Action::Deny,
            Some("it changes something, and this agent only reads".into()),
        ),
        Effect::Unproven => (
            Action::Ask,
            Some("it is not known to be read-only, and this agent only reads".into()),
        ),
    }
}
