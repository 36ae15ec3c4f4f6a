//! Evaluates rules for an access request and returns a verdict. Pure: facts about the disk are part
//! of the request.
//!
//! The last matching rule decides, with two refinements (`decide.rs`). A later, broader rule does
//! not lift a specific deny. And a rule that allows a command allows it only as written: see
//! [`CommandAnalysis`] and the reasons against it in [`CommandUnit`].

use super::command_rules::{CommandRules, may_apply_to_hidden};
use super::decide::{apply_sandbox_and_minimum, verdict, without_command};
use super::delegate::is_delegate;
use super::rule::BUILT_IN;
use super::rule_index::IndexedRule;
use super::shell::{CommandAnalysis, CommandUnit, Effect};
use super::{
    AccessRequest, Action, Rule, Rules, SandboxGuarantee, UnitVerdict, Verdict, unconfined,
    wildcard,
};

/// Judges an access request by the strictest of its patterns, or of its command's parts.
///
/// A grant turns an ask into an allow, but never a deny; the minimum verdict holds against every
/// rule.
pub fn evaluate(rules: &Rules, grants: &Rules, request: &AccessRequest) -> Verdict {
    match &request.command {
        Some(line) => apply_sandbox_and_minimum(
            rules,
            grants,
            request,
            in_sandbox(rules, grants, request, line),
        ),
        None => without_command(rules, grants, request),
    }
}

/// Returns whether an agent may edit nothing, apart from built-in exceptions (plans).
pub fn only_reads(rules: &Rules) -> bool {
    let edit_rules: Vec<&Rule> = rules
        .iter()
        .filter(|rule| wildcard::matches(&rule.permission, "edit"))
        .collect();
    let Some(at) = edit_rules.iter().rposition(|rule| rule.pattern == "*") else {
        return false;
    };
    let exceptions = &edit_rules[at + 1..];
    edit_rules[at].action == Action::Deny
        && exceptions
            .iter()
            .all(|rule| rule.action == Action::Deny || rule.source == BUILT_IN)
}

/// Judges a command line without its sandbox, and if that asks, once more within the sandbox.
fn in_sandbox(
    rules: &Rules,
    grants: &Rules,
    request: &AccessRequest,
    line: &CommandAnalysis,
) -> Verdict {
    let bare = command(rules, grants, request, line, SandboxGuarantee::None);
    if request.guarantee == SandboxGuarantee::None || bare.action != Action::Ask {
        return bare;
    }
    let verdict = command(rules, grants, request, line, request.guarantee);
    let reason = unconfined::unconfined_effect_in(line, request.guarantee);
    match reason {
        // Even if the line is asked about for something else, which would hide this effect.
        Some(reason) if verdict.action < Action::Deny => Verdict {
            reason: Some(reason),
            ..bare
        },
        _ => verdict,
    }
}

fn command(
    rules: &Rules,
    grants: &Rules,
    request: &AccessRequest,
    line: &CommandAnalysis,
    guarantee: SandboxGuarantee,
) -> Verdict {
    let bash = CommandRules::of(rules, grants, request, guarantee);
    let mut verdicts: Vec<UnitVerdict> = vec![];
    // A delegate (a program that has a service do its work) runs its commands outside the sandbox,
    // too. This is the layer of the current delegate.
    let mut delegate_layer: Option<usize> = None;
    for unit in &line.units {
        delegate_layer = delegate_layer.filter(|layer| unit.layer > *layer);
        let unit_guarantee = if delegate_layer.is_some() {
            SandboxGuarantee::None
        } else {
            guarantee
        };
        verdicts.push(bash.unit(unit, unit_guarantee));
        if unit.program.as_deref().is_some_and(is_delegate) {
            delegate_layer.get_or_insert(unit.layer);
        }
    }
    let strictest = verdicts
        .iter()
        .max_by_key(|unit| (unit.action, std::cmp::Reverse(unit.layer)));
    let mut verdict = match strictest {
        Some(strictest) => verdict(
            strictest.action,
            &strictest.text,
            strictest.rule.clone(),
            strictest.reason.clone(),
        ),
        None => verdict(
            Action::Allow,
            &line.text,
            None,
            Some("there is nothing to run".into()),
        ),
    };
    if verdict.action < Action::Deny
        && let Some(deny) = deny_of_whole_line(&bash, line)
    {
        verdict = Verdict {
            action: Action::Deny,
            pattern: line.text.clone(),
            rule: Some(deny.clone()),
            reason: Some("the line as it is written is denied".to_owned()),
            ..verdict
        };
    }
    if verdict.action < Action::Deny
        && let Some((deny, text)) = bash.deny_in_texts(&line.unread)
    {
        let reason = Some("it is part of a text that was not judged command by command".to_owned());
        verdict = Verdict {
            action: Action::Deny,
            pattern: text,
            rule: Some(deny.clone()),
            reason,
            ..verdict
        };
    }
    if let Some(reason) = &line.opaque {
        if bash.denied_entirely() {
            verdict = Verdict {
                action: Action::Deny,
                rule: bash.about.catch_all().cloned(),
                ..verdict
            };
        } else if verdict.action < Action::Ask
            && (bash.rule_of_hidden.is_some() || !guarantee.answers_line(line))
        {
            let reason = format!("it could not be understood: {reason}");
            let reason = match bash.rule_of_hidden {
                Some(rule) if guarantee.answers_line(line) => may_apply_to_hidden(&reason, rule),
                _ => reason,
            };
            let reason = Some(reason);
            verdict = Verdict {
                action: Action::Ask,
                pattern: line.text.clone(),
                rule: None,
                reason,
                ..verdict
            };
        }
    }
    verdict.proven_read_only = line.is_read_only();
    if let Some(why) = &request.unproven
        && verdict.action == Action::Allow
        && !verdict.proven_read_only
        && !line
            .units
            .iter()
            .filter(|unit| !unit.is_read_only())
            .all(|unit| bash.is_granted(unit))
    {
        verdict = Verdict {
            action: Action::Ask,
            reason: Some(why.clone()),
            rule: None,
            ..verdict
        };
    }
    verdict.units = verdicts;
    verdict
}

/// Returns the last deny that matches the line as written.
///
/// A deny may name an operator that joins the parts of a line. If the line could not be parsed into
/// parts, this is the only check.
fn deny_of_whole_line<'r>(bash: &CommandRules<'r>, line: &CommandAnalysis) -> Option<&'r Rule> {
    const OPERATORS: [char; 9] = [';', '&', '|', '<', '>', '$', '`', '(', '\n'];
    let text = line.text.trim_start();
    let denies_line = |(_, rule): &IndexedRule<'_>| {
        rule.action == Action::Deny
            && rule.pattern != "*"
            && (line.units.is_empty() || rule.pattern.contains(OPERATORS))
            && wildcard::matches_folded(&rule.pattern, text)
    };
    let fitting = bash.about.fitting(text).into_iter().rev();
    fitting
        .filter(denies_line)
        .find(|placed| bash.is_in_force_for(*placed, &line.text))
        .map(|(_, deny)| deny)
}

impl CommandAnalysis {
    /// Returns whether every part was analysed and is known to be read-only.
    pub fn is_read_only(&self) -> bool {
        self.opaque.is_none() && self.units.iter().all(CommandUnit::is_read_only)
    }
}

impl CommandUnit {
    /// Returns whether it was analysed and is known to be read-only.
    pub fn is_read_only(&self) -> bool {
        self.effect == Effect::Reads
            && self.opaque.is_none()
            && self.minimum.is_none()
            && self
                .touches
                .iter()
                .all(|path_use| path_use.minimum.is_none())
    }
}
