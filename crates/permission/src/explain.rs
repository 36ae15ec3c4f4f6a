//! Explains a verdict in text: the commands found, the rules considered, the one that decided and
//! its source.
//!
//! Used by `adjutant permissions`, by questions to the user and in bug reports.

use std::fmt::Write;

use serde_json::{Value, json};

use super::rule::{BUILT_IN, POSTURE};
use super::{AccessRequest, Action, Rule, Rules, UnitVerdict, Verdict, wildcard};
use base::text::spelled;

/// The longest command line that is repeated as a whole, in bytes; of a longer one only the part
/// that decided is shown.
const MAX_LINE_BYTES: usize = 1_000;

/// Explains a verdict on an access request under these rules: the verdict, the rule that decided,
/// the reason, the parts of a command line if it has several, and the rules that were considered.
/// Terminal control characters are escaped.
pub fn explain(verdict: &Verdict, request: &AccessRequest, rules: &Rules) -> String {
    let mut out = String::new();
    let whole = request
        .command
        .as_ref()
        .map(|command| command.text.trim())
        .filter(|text| text.len() <= MAX_LINE_BYTES);
    let subject = match (whole, &request.command) {
        (Some(whole), _) => spelled(whole),
        (None, Some(_)) => spelled(&verdict.pattern),
        (None, None) => format!("{} {}", request.permission, spelled(&verdict.pattern)),
    };
    line(&mut out, &format!("{}: {subject}", word(verdict.action)));
    if whole.is_some_and(|whole| whole != verdict.pattern) {
        line(&mut out, &format!("  part: {}", spelled(&verdict.pattern)));
    }
    if let Some(rule) = &verdict.rule {
        line(&mut out, &format!("  rule: {}", copied(rule)));
    }
    let why = match (&verdict.reason, &verdict.rule) {
        (Some(reason), _) => spelled(reason),
        (None, Some(_)) => String::new(),
        (None, None) if verdict.action == Action::Ask => {
            "no rule matches it, so the user is asked".to_owned()
        }
        (None, None) => "no rule restricts it".to_owned(),
    };
    if !why.is_empty() {
        line(&mut out, &format!("  why: {why}"));
    }
    if let Some((least, reason)) = &request.minimum
        && verdict.reason.as_ref() != Some(reason)
    {
        line(
            &mut out,
            &format!("  at least {}: {}", word(*least), spelled(reason)),
        );
    }
    if request.command.is_some() {
        if verdict.proven_read_only {
            line(&mut out, "  everything in it is known to be read-only");
        }
        if verdict.units.is_empty() {
            line(&mut out, "  nothing in it runs a program");
        }
        if verdict.units.len() > 1 {
            line(&mut out, "its parts:");
            verdict.units.iter().for_each(|unit| part(&mut out, unit));
        }
    }
    // A command may be decided by a rule about the files that it uses.
    let permission = match &verdict.rule {
        Some(rule) if !about(rule, &request.permission) => rule.permission.as_str(),
        _ => request.permission.as_str(),
    };
    line(
        &mut out,
        &format!("rules about {permission} (the last one that matches decides):"),
    );
    for rule in rules.iter().filter(|rule| about(rule, permission)) {
        let mark = if Some(rule) == verdict.rule.as_ref() {
            ">"
        } else {
            " "
        };
        line(&mut out, &format!("{mark} {}", copied(rule)));
    }
    out
}

/// Adds the lines of one part of a command line: its verdict and text, and below it the reason.
fn part(out: &mut String, unit: &UnitVerdict) {
    let indent = "  ".repeat(unit.layer + 1);
    let text = spelled(&unit.text);
    line(out, &format!("{indent}{} {text}", word(unit.action)));
    let why = match (&unit.reason, &unit.rule) {
        (Some(reason), _) => format!("why: {}", spelled(reason)),
        (None, Some(rule)) => format!("rule: {}", copied(rule)),
        (None, None) => return,
    };
    line(out, &format!("{indent}  {why}"));
}

/// Returns a verdict as JSON, for scripts.
pub fn data(verdict: &Verdict, request: &AccessRequest) -> Value {
    let whole = request
        .command
        .as_ref()
        .map(|command| command.text.as_str());
    let minimum = request.minimum.as_ref();
    json!({
        "permission": request.permission,
        "text": whole.unwrap_or(&verdict.pattern),
        "verdict": word(verdict.action),
        "part": verdict.pattern,
        "rule": verdict.rule.as_ref().map(rule_data),
        "reason": verdict.reason,
        "minimum": minimum.map(|(least, reason)| json!({ "verdict": word(*least), "reason": reason })),
        "readOnly": verdict.proven_read_only,
        "units": verdict.units.iter().map(unit_data).collect::<Vec<_>>(),
    })
}

/// Returns the verdict on one part of a command line as JSON.
pub(super) fn unit_data(unit: &UnitVerdict) -> Value {
    json!({
        "text": unit.text,
        "program": unit.program,
        "layer": unit.layer,
        "verdict": word(unit.action),
        "rule": unit.rule.as_ref().map(rule_data),
        "reason": unit.reason,
        "readOnly": unit.read_only,
    })
}

pub(super) fn rule_data(rule: &Rule) -> Value {
    json!({ "permission": rule.permission, "pattern": rule.pattern, "action": word(rule.action), "source": rule.source })
}

/// Returns a rule as it is written in settings, with its source.
fn copied(rule: &Rule) -> String {
    let source = match rule.source.as_str() {
        "" => String::new(),
        BUILT_IN => format!(" ({BUILT_IN})"),
        file => format!(" ({})", spelled(file)),
    };
    if (rule.permission.as_str(), rule.pattern.as_str()) == POSTURE {
        return format!("this agent only reads{source}");
    }
    let quoted = |text: &str| spelled(&Value::from(text).to_string());
    let permission = quoted(&rule.permission);
    let action = word(rule.action);
    if (rule.permission.as_str(), rule.pattern.as_str()) == ("*", "*") {
        return format!("{permission}: \"{action}\"{source}");
    }
    let pattern = quoted(&rule.pattern);
    format!("{permission}: {{ {pattern}: \"{action}\" }}{source}")
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
    use super::super::{command_request, evaluate};
    use super::*;

    #[test]
    fn explanation_of_denied_command_names_rule_and_parts() {
        let lab = PathFixture::new();
        let rules = rules_that_deny_rm(&lab.context);
        let request = command_request("ls | xargs rm \x1b]0;x\x07", &lab.context);
        let text = explain(
            &evaluate(&rules, &Rules::default(), &request),
            &request,
            &rules,
        );
        let wanted = [
            "deny: ls | xargs rm \\x1b]0;x",
            "  rule: \"bash\": { \"rm*\": \"deny\" } (test)\n",
            "  allow ls\n    rule: \"bash\": { \"*\": \"allow\" } (test)\n",
            "    deny rm \\x1b]0 …\n",
            "> \"bash\": { \"rm*\": \"deny\" } (test)\n",
            "  \"*\": \"allow\" (built in)\n",
        ];
        for part in wanted {
            assert!(text.contains(part), "{part:?} not in\n{text}");
        }
        assert!(!text.contains('\x1b'));
    }
}
