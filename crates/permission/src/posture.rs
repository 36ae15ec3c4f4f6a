//! The read-only posture: the verdict on a command of a read-only agent if none of the agent's own
//! rules applies.

use super::Action;
use super::shell::{CommandUnit, Effect};

/// Appends `refused` to the reason for a question: why an allow rule of the agent did not match the
/// command.
pub(super) fn with_refusal(why: String, action: Action, refused: Option<&str>) -> String {
    match refused {
        Some(refused) if action == Action::Ask => format!("{why}; {refused}"),
        _ => why,
    }
}

/// Returns the verdict on a command for a read-only agent, with its reason.
pub(super) fn read_only_verdict(unit: &CommandUnit) -> (Action, String) {
    if let Some(reason) = &unit.opaque
        && (unit.effect != Effect::Writes || unit.plans_only)
    {
        return (Action::Ask, reason.clone());
    }
    match unit.effect {
        Effect::Reads => (Action::Allow, "it is known to be harmless".into()),
        Effect::Writes if unit.plans_only => (Action::Allow, "it writes plan files only".into()),
        // The command in an option may never start, so it is denied only if its effect cannot be
        // undone.
        Effect::Writes if unit.carried && !unit.destroys => (
            Action::Ask,
            "an option of another program may run it, and it writes".into(),
        ),
        Effect::Writes => (
            Action::Deny,
            "it changes something, and this agent only reads".into(),
        ),
        Effect::Unproven => (
            Action::Ask,
            "it is not known to be harmless, and this agent only reads".into(),
        ),
    }
}
