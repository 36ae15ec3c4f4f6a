//! Explains a verdict in text: the commands found, the rules considered, the one that decided and
//! its source.
//!
//! Used by `adjutant permissions`, by questions to the user and in bug reports.

use std::fmt::Write;

use serde_json::{Value, json};

use super::rule::{BUILT_IN, POSTURE};
use super::{AccessRequest, Action, AskReason, Rule, Rules, UnitVerdict, Verdict, wildcard};
use base::text::spelled;

/// The longest command line that is repeated as a whole, in bytes; of a longer one only the part
/// that decided is shown.
const MAX_LINE_BYTES: usize = 1_000;

/// Explains a verdict on an access request under these rules: the verdict, the rule that decided,
/// the reason, then `notes`, the parts of a command line if it has several, and the rules that were
/// considered. Terminal control characters are escaped.
pub fn explain(
    verdict: &Verdict,
    request: &AccessRequest,
    rules: &Rules,
    notes: &[String],
) -> String {
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
    line(&mut out, &headline(verdict.action, &subject));
    if whole.is_some_and(|whole| whole != verdict.pattern) {
        line(&mut out, &format!("  part: {}", spelled(&verdict.pattern)));
    }
    if let Some(rule) = &verdict.rule {
        line(&mut out, &format!("  rule: {}", written(rule)));
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
    for one in &verdict.further_reasons {
        push_also(&mut out, "  ", one);
    }
    if let Some((_, reason)) = &request.minimum
        && verdict.reason.as_ref() != Some(reason)
        && verdict
            .further_reasons
            .iter()
            .all(|one| one.reason.as_ref() != Some(reason))
    {
        line(&mut out, &format!("  also: {}", spelled(reason)));
    }
    if request.command.is_some() && verdict.is_proven_read_only && !verdict.units.is_empty() {
        line(&mut out, "  every part of it is known to change nothing");
    }
    for note in notes {
        line(&mut out, &format!("  {note}"));
    }
    if verdict.units.len() > 1 {
        line(&mut out, "its parts:");
        verdict.units.iter().for_each(|unit| part(&mut out, unit));
    }
    if verdict.units.iter().any(|unit| unit.text.contains('…')) {
        line(
            &mut out,
            "  (… stands for words that are known only when it runs)",
        );
    }
    push_rules(&mut out, verdict, &request.permission, rules);
    out
}

/// Returns the first line of an explanation.
pub fn headline(action: Action, subject: &str) -> String {
    let verdict = match action {
        Action::Allow => "allowed without asking",
        Action::Ask => "asks first",
        Action::Deny => "refused",
    };
    format!("{verdict}: {subject}")
}

/// Adds the rules that were considered, with a mark at the one that decided. Built-in rules about
/// other objects are left out.
fn push_rules(out: &mut String, verdict: &Verdict, permission: &str, rules: &Rules) {
    let permission = deciding_permission(verdict, permission);
    let considered = considered(verdict, permission, rules);
    let marked = considered
        .iter()
        .rposition(|rule| Some(*rule) == verdict.rule.as_ref());
    let order = match marked {
        Some(_) => "the last one that matches decides",
        None => "the reason above decides",
    };
    line(out, &format!("rules about {permission} ({order}):"));
    for (at, rule) in considered.into_iter().enumerate() {
        let mark = if Some(at) == marked { ">" } else { " " };
        line(out, &format!("{mark} {}", written(rule)));
    }
}

/// Returns the permission of the deciding rule: a command may be decided by a rule about the files
/// that it uses.
fn deciding_permission<'v>(verdict: &'v Verdict, permission: &'v str) -> &'v str {
    match &verdict.rule {
        Some(rule) if !about(rule, permission) => rule.permission.as_str(),
        _ => permission,
    }
}

/// Returns the rules about a permission, without built-in ones about other objects.
fn considered<'r>(verdict: &Verdict, permission: &str, rules: &'r Rules) -> Vec<&'r Rule> {
    let is_considered = |rule: &&Rule| {
        about(rule, permission)
            && (rule.source != BUILT_IN
                || (rule.permission.as_str(), rule.pattern.as_str()) == POSTURE
                || wildcard::matches(&rule.pattern, &verdict.pattern)
                || Some(*rule) == verdict.rule.as_ref())
    };
    rules.iter().filter(is_considered).collect()
}

/// Adds the lines of one part of a command line: its verdict and text, and below it the reason.
fn part(out: &mut String, unit: &UnitVerdict) {
    let indent = "  ".repeat(unit.layer + 1);
    let text = spelled(&unit.text);
    let verdict = match unit.action {
        Action::Allow => "allowed",
        Action::Ask => "asks",
        Action::Deny => "refused",
    };
    line(out, &format!("{indent}{verdict}: {text}"));
    let why = match (&unit.reason, &unit.rule) {
        (Some(reason), _) => format!("why: {}", spelled(reason)),
        (None, Some(rule)) => format!("rule: {}", written(rule)),
        (None, None) => return,
    };
    line(out, &format!("{indent}  {why}"));
    for one in &unit.further_reasons {
        push_also(out, &format!("{indent}  "), one);
    }
}

/// Adds the line of a further reason to ask.
fn push_also(out: &mut String, indent: &str, also: &AskReason) {
    let also = match (&also.reason, &also.rule) {
        (Some(reason), _) => spelled(reason),
        (None, Some(rule)) => written(rule),
        (None, None) => return,
    };
    line(out, &format!("{indent}also: {also}"));
}

/// Returns a verdict as JSON, for scripts, with the rules that were considered.
pub fn data(verdict: &Verdict, request: &AccessRequest, rules: &Rules) -> Value {
    let permission = deciding_permission(verdict, &request.permission);
    let rules = considered(verdict, permission, rules);
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
        "also": verdict.further_reasons.iter().map(also_data).collect::<Vec<_>>(),
        "minimum": minimum.map(|(least, reason)| json!({ "verdict": word(*least), "reason": reason })),
        "readOnly": verdict.is_proven_read_only,
        "units": verdict.units.iter().map(unit_data).collect::<Vec<_>>(),
        "rules": rules.into_iter().map(rule_data).collect::<Vec<_>>(),
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
        "also": unit.further_reasons.iter().map(also_data).collect::<Vec<_>>(),
        "readOnly": unit.is_read_only,
    })
}

fn also_data(also: &AskReason) -> Value {
    json!({ "rule": also.rule.as_ref().map(rule_data), "reason": also.reason })
}

pub(super) fn rule_data(rule: &Rule) -> Value {
    json!({ "permission": rule.permission, "pattern": rule.pattern, "action": word(rule.action), "source": rule.source })
}

/// Returns a rule as it is written in settings, with its source.
pub fn written(rule: &Rule) -> String {
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

/// Returns an action as settings and JSON name it.
pub fn word(action: Action) -> &'static str {
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
            &["note: here".to_owned()],
        );
        let wanted = [
            "refused: ls | xargs rm \\x1b]0;x",
            "  rule: \"bash\": { \"rm*\": \"deny\" } (test)\n",
            "  note: here\nits parts:\n",
            "  allowed: ls\n    rule: \"bash\": { \"*\": \"allow\" } (test)\n",
            "    refused: rm \\x1b]0 …\n",
            "> \"bash\": { \"rm*\": \"deny\" } (test)\n",
            "  \"*\": \"allow\" (built in)\n",
        ];
        for part in wanted {
            assert!(text.contains(part), "{part:?} not in\n{text}");
        }
        assert!(!text.contains('\x1b'));
    }
}
