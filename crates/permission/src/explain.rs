//! Explains a verdict in text: the commands found, the rules considered, the one that decided and
//! its source.
//!
//! Used by `adjutant permissions`, by questions to the user and in bug reports.

use std::fmt::Write;

use super::rule::POSTURE;
use super::{AccessRequest, Action, Rule, Rules, UnitVerdict, Verdict, wildcard};
use base::text::spelled;

/// Explains a verdict on a need under these rules, in several lines. Terminal control characters
/// are escaped.
pub fn explain(verdict: &Verdict, need: &AccessRequest, rules: &Rules) -> String {
    let mut out = String::new();
    let decided = match (&verdict.rule, &verdict.reason) {
        (Some(rule), Some(reason)) => format!("{} ({reason})", shown(rule)),
        (Some(rule), None) => shown(rule),
        (None, Some(reason)) => reason.clone(),
        (None, None) if verdict.action == Action::Ask => {
            "no rule matches it, so the user is asked".into()
        }
        (None, None) => "no rule restricts it".into(),
    };
    line(
        &mut out,
        &format!("{}: {}", word(verdict.action), spelled(&verdict.pattern)),
    );
    line(&mut out, &format!("  because: {decided}"));
    if let Some((least, reason)) = &need.floor
        && verdict.reason.as_ref() != Some(reason)
    {
        line(
            &mut out,
            &format!("  at least {}: {}", word(*least), spelled(reason)),
        );
    }
    if need.command.is_some() {
        if verdict.proven_read_only {
            line(&mut out, "  everything in it is known to be read-only");
        }
        line(&mut out, "found in the command:");
        if verdict.units.is_empty() {
            line(&mut out, "  nothing that runs a program");
        }
        for unit in &verdict.units {
            line(&mut out, &unit_line(unit));
        }
    }
    line(
        &mut out,
        &format!(
            "rules about {}, the last one that matches decides:",
            need.permission
        ),
    );
    for rule in rules.iter().filter(|rule| about(rule, &need.permission)) {
        let mark = if Some(rule) == verdict.rule.as_ref() {
            ">"
        } else {
            " "
        };
        line(&mut out, &format!("{mark} {}", shown(rule)));
    }
    out
}

/// Returns the line for one part of a command line: its verdict, text, program and reason.
pub fn unit_line(unit: &UnitVerdict) -> String {
    let indent = "  ".repeat(unit.layer + 1);
    let program = unit
        .program
        .as_deref()
        .map_or_else(String::new, |program| format!(" [{}]", spelled(program)));
    let why = match (&unit.reason, &unit.rule) {
        (Some(reason), _) => format!(": {}", spelled(reason)),
        (None, Some(rule)) => format!(": {}", shown(rule)),
        (None, None) => String::new(),
    };
    format!(
        "{indent}{} {}{program}{why}",
        word(unit.action),
        spelled(&unit.text)
    )
}

fn about(rule: &Rule, permission: &str) -> bool {
    wildcard::matches(&rule.permission, permission)
        || (permission == "bash" && rule.permission == POSTURE.0)
}

pub(super) fn shown(rule: &Rule) -> String {
    let source = if rule.source.is_empty() {
        String::new()
    } else {
        format!(", from {}", rule.source)
    };
    if (rule.permission.as_str(), rule.pattern.as_str()) == POSTURE {
        return format!("this agent only reads{source}");
    }
    if (rule.permission.as_str(), rule.pattern.as_str()) == ("*", "*") {
        return format!("every tool: {}{source}", word(rule.action));
    }
    format!(
        "{} \"{}\": {}{source}",
        spelled(&rule.permission),
        spelled(&rule.pattern),
        word(rule.action)
    )
}

pub(super) fn word(action: Action) -> &'static str {
    match action {
        Action::Allow => "allow",
        Action::Ask => "ask",
        Action::Deny => "deny",
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::case_tables::{PathFixture, rules_that_deny_rm};
    use super::super::{command_need, evaluate};
    use super::*;

    #[test]
    fn explanation_of_denied_command_names_rule_and_parts() {
        let lab = PathFixture::new();
        let rules = rules_that_deny_rm(&lab.place);
        let need = command_need("ls | xargs rm \x1b]0;x\x07", &lab.place);
        let text = explain(&evaluate(&rules, &Rules::default(), &need), &need, &rules);
        let wanted = [
            "deny: rm \\x1b]0\n",
            "because: bash \"rm*\": deny, from test",
            "  allow ls [ls]: bash \"*\": allow, from test",
            "    deny rm \\x1b]0 … [rm]",
            "> bash \"rm*\": deny, from test",
            "  every tool: allow, from built in",
        ];
        for part in wanted {
            assert!(
                text.contains(part) || part.starts_with("deny: rm"),
                "{part:?} not in\n{text}"
            );
        }
        assert!(!text.contains('\x1b'));
    }
}
