//! Evaluates rules for an access request and returns a verdict. Pure: facts about the disk are part
//! of the request.
//!
//! The last matching rule decides, with two refinements (`decide.rs`). A later, broader rule does
//! not lift a specific deny. And a rule that allows a command allows it only as written: see
//! [`CommandAnalysis`] and the reasons against it in [`CommandUnit`].

use super::command_rules::{CommandRules, Confinement, may_apply_to_hidden};
use super::decide::{apply_sandbox_and_minimum, verdict, without_command};
use super::delegate::{base_name, is_delegate};
use super::excluded::{text_without_excluded, unit_text_without_excluded};
use super::rule::BUILT_IN;
use super::rule_index::IndexedRule;
use super::shell::{CommandAnalysis, CommandUnit, Effect};
use super::unconfined::{UnconfinedEffect, fetched_program, unconfined_effect_in};
use super::{
    AccessRequest, Action, AskReason, Rule, Rules, SandboxGuarantee, UnitVerdict, Verdict, wildcard,
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
    let judged = |confinement: Confinement| command(rules, grants, request, line, confinement);
    let bare = judged(Confinement::of(SandboxGuarantee::None));
    let guarantee = request.guarantee;
    if guarantee == SandboxGuarantee::None || bare.action != Action::Ask {
        return bare;
    }
    let verdict = judged(Confinement::of(guarantee));
    if verdict.action == Action::Deny {
        return verdict;
    }
    let is_unparsed = line.opaque.is_some();
    let text = text_without_excluded(line);
    let Some(effect) = unconfined_effect_in(&text, &line.units, is_unparsed, guarantee) else {
        return verdict;
    };
    // The sandbox answers no unknowns then. A path that is a temporary file is still one.
    let verdict = judged(Confinement {
        unknowns: SandboxGuarantee::None,
        files: guarantee,
    });
    if verdict.action == Action::Ask {
        with_unconfined_effects(verdict, line, guarantee, effect)
    } else {
        verdict
    }
}

/// Adds effects that no sandbox prevents to the reasons of the parts that are asked about. The first
/// part with the effect of the line decides, or else the first one with any; if there is none, the
/// effect of the line does.
fn with_unconfined_effects(
    mut verdict: Verdict,
    line: &CommandAnalysis,
    guarantee: SandboxGuarantee,
    of_line: UnconfinedEffect,
) -> Verdict {
    let mut deciding: Option<(bool, usize)> = None;
    for (at, (unit, judged)) in line.units.iter().zip(&mut verdict.units).enumerate() {
        if judged.action != Action::Ask {
            continue;
        }
        let alone = std::slice::from_ref(unit);
        let text = unit_text_without_excluded(unit);
        let effect = unconfined_effect_in(&text, alone, false, guarantee)
            .or_else(|| fetched_program(&line.units, unit));
        let Some(effect) = effect else {
            continue;
        };
        let is_of_line = effect.reason == of_line.reason;
        if deciding.is_none_or(|(earlier, _)| is_of_line && !earlier) {
            deciding = Some((is_of_line, at));
        }
        let is_known = unit.minimum.is_some();
        judged.reason = match judged.reason.take() {
            // The effect itself, as the analysis knows it.
            Some(own) if is_known => Some(own),
            None if is_known && !judged.further_reasons.is_empty() => None,
            Some(own) if !effect.names_file => Some(format!("{own}, and {}", effect.reason)),
            own => {
                // Without a rule it is an unknown, which the sandbox would answer.
                if own.is_some() && judged.rule.is_some() {
                    let rule = judged.rule.clone();
                    judged
                        .further_reasons
                        .insert(0, AskReason { rule, reason: own });
                }
                Some(effect.reason)
            }
        };
    }
    let deciding = deciding.map(|(_, at)| at);
    let part = deciding.or_else(|| {
        // Without the file that the line names, nothing would be asked about the unknowns of this
        // part.
        let at = of_line
            .names_file
            .then(|| first_unknown(&verdict.units))??;
        let part = &mut verdict.units[at];
        let unknown = part.reason.take().unwrap_or_default();
        part.reason = Some(format!("{unknown}, and {}", of_line.of_line()));
        Some(at)
    });
    match part.and_then(|at| verdict.units.get(at)) {
        Some(part) => Verdict {
            pattern: part.text.clone(),
            rule: part.rule.clone(),
            reason: part.reason.clone(),
            further_reasons: part.further_reasons.clone(),
            ..verdict
        },
        None => Verdict {
            pattern: line.text.clone(),
            ..verdict.with_reason_to_ask(&of_line.reason)
        },
    }
}

/// Returns the position of the first part that is asked about without a rule, for a reason.
fn first_unknown(parts: &[UnitVerdict]) -> Option<usize> {
    parts
        .iter()
        .position(|part| part.action == Action::Ask && part.rule.is_none() && part.reason.is_some())
}

fn command(
    rules: &Rules,
    grants: &Rules,
    request: &AccessRequest,
    line: &CommandAnalysis,
    confinement: Confinement,
) -> Verdict {
    let guarantee = confinement.unknowns;
    let bash = CommandRules::of(rules, grants, request, line, guarantee);
    let mut verdicts: Vec<UnitVerdict> = vec![];
    // A delegate (a program that has a service do its work) runs its commands outside the sandbox,
    // too. This is the layer of the current delegate, with its name.
    let mut delegate: Option<(usize, &str)> = None;
    for unit in &line.units {
        delegate = delegate.filter(|(layer, _)| unit.layer > *layer);
        let own = unit.program.as_deref().filter(|name| is_delegate(name));
        let confined = if delegate.is_some() {
            Confinement::of(SandboxGuarantee::None)
        } else if own.is_some() && guarantee == SandboxGuarantee::None {
            // It may use the files outside the sandbox.
            Confinement::of(SandboxGuarantee::None)
        } else {
            confinement
        };
        let outside = match delegate {
            Some((_, name)) if request.guarantee != SandboxGuarantee::None => Some(name),
            _ => None,
        };
        verdicts.push(bash.judge_unit(unit, confined, outside));
        if let Some(name) = own {
            delegate.get_or_insert((unit.layer, base_name(name)));
        }
    }
    let strictest = deciding_part(&verdicts);
    let mut verdict = match strictest {
        Some(strictest) => Verdict {
            is_by_posture: strictest.is_by_posture,
            further_reasons: strictest.further_reasons.clone(),
            ..verdict(
                strictest.action,
                &strictest.text,
                strictest.rule.clone(),
                strictest.reason.clone(),
            )
        },
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
        && let Some((deny, text)) = bash.deny_in_texts(&line.unparsed_texts)
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
            let reason = not_understood(reason);
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
        } else if verdict.action == Action::Ask && !guarantee.answers_line(line) {
            add_unless_stated(&mut verdict, &verdicts, reason);
        }
    }
    if verdict.action == Action::Ask && verdict.reason.is_none() {
        verdict.reason = bash.allow_that_names_line(&line.text);
    }
    verdict.is_proven_read_only = line.is_read_only();
    if let Some(why) = &request.why_only_harmless
        && verdict.action <= Action::Ask
        && !verdict.is_proven_read_only
        && !line
            .units
            .iter()
            .filter(|unit| !unit.is_read_only())
            .all(|unit| bash.is_granted(unit))
    {
        if verdict.action == Action::Ask {
            verdict.further_reasons.push(AskReason::because(why));
        } else {
            verdict = Verdict {
                action: Action::Ask,
                reason: Some(why.clone()),
                rule: None,
                ..verdict
            };
        }
    }
    verdict.units = verdicts;
    verdict
}

fn not_understood(reason: &str) -> String {
    format!("it could not be understood: {reason}")
}

/// Adds the reason why a line could not be understood, unless one of its parts states it.
fn add_unless_stated(verdict: &mut Verdict, parts: &[UnitVerdict], reason: &str) {
    let mut stated = parts.iter().flat_map(reasons_of);
    if !stated.any(|stated| stated.contains(reason)) {
        let reason = not_understood(reason);
        verdict.further_reasons.push(AskReason::because(reason));
    }
}

/// Returns the reasons of a part, apart from rules.
fn reasons_of(part: &UnitVerdict) -> impl Iterator<Item = &String> {
    let also = part
        .further_reasons
        .iter()
        .filter_map(|one| one.reason.as_ref());
    part.reason.iter().chain(also)
}

/// Returns the first and outermost of the strictest parts; of a line that is allowed, one that may
/// change something, if there is one.
fn deciding_part(parts: &[UnitVerdict]) -> Option<&UnitVerdict> {
    let weight = |part: &&UnitVerdict| {
        let acts = part.action == Action::Allow && !part.is_read_only;
        (part.action, acts, std::cmp::Reverse(part.layer))
    };
    // Of several equal ones, the last is taken.
    parts.iter().rev().max_by_key(weight)
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
                .path_uses
                .iter()
                .all(|path_use| path_use.minimum.is_none())
    }
}
