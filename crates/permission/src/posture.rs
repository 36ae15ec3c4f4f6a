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
        && (unit.effect != Effect::Writes || unit.writes_only_plans)
    {
        return (Action::Ask, reason.clone());
    }
    match unit.effect {
        Effect::Reads => (Action::Allow, "it is known to be harmless".into()),
        Effect::Writes if unit.writes_only_plans => {
            (Action::Allow, "it writes plan files only".into())
        }
        // The command in an option may never start, so it is denied only if its effect cannot be
        // undone.
        Effect::Writes if unit.is_conditional && !unit.destroys => (
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

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::case_tables::{PathFixture, plan_rules};
    use super::super::{Policy, Rules, command_request};
    use super::*;

    #[test]
    fn only_denials_without_a_rule_are_by_posture() {
        let lab = PathFixture::new();
        let reads = plan_rules(&lab.context);
        let denied = Rules::written("bash", &[("make *", Action::Deny)]);
        let table = [
            ("a change", "mkdir x", Action::Deny, true),
            ("a change in a line", "ls; mkdir x", Action::Deny, true),
            ("a rule", "make x", Action::Deny, false),
            ("no change", "ls", Action::Allow, false),
            ("an unknown effect", "./x", Action::Ask, false),
        ];
        let policy = Policy {
            rules: reads.then(&denied),
            context: lab.context.clone(),
            ..Policy::default()
        };
        for (name, line, action, expected) in table {
            let verdict = policy.judge(&command_request(line, &lab.context));
            let found = (verdict.action, verdict.is_by_posture);
            assert_eq!(found, (action, expected), "{name}: {verdict:?}");
        }
    }
}
