//! Chooses the deciding rule among the rules that match.

use super::rule::{BUILT_IN, OUTSIDE, READING_OUTSIDE};
use super::url::{self, Address};
use super::{AccessRequest, Action, AskReason, Rule, Rules, Verdict, wildcard};

/// The reason why a question of a rule is not asked in a sandbox.
pub(super) const ISOLATED: &str = "what the sandbox holds is not asked here";
const TEMPORARY: &str = "it is a short-lived file, which commands may use in their sandbox";

/// Judges an access request that is about no command.
pub(super) fn without_command(rules: &Rules, grants: &Rules, request: &AccessRequest) -> Verdict {
    let verdicts = request
        .patterns
        .iter()
        .map(|pattern| verdict_on_pattern(rules, grants, request, pattern));
    let verdict =
        strictest(verdicts).unwrap_or_else(|| verdict_on_pattern(rules, grants, request, "*"));
    apply_sandbox_and_minimum(rules, grants, request, verdict)
}

/// Applies the sandbox and the minimum verdict of an access request to a verdict on it.
pub(super) fn apply_sandbox_and_minimum(
    rules: &Rules,
    grants: &Rules,
    request: &AccessRequest,
    verdict: Verdict,
) -> Verdict {
    let verdict = if verdict.action == Action::Ask
        && request
            .guarantee
            .answers_request(request, verdict.rule.as_ref())
    {
        Verdict {
            action: Action::Allow,
            rule: None,
            reason: Some(TEMPORARY.into()),
            ..verdict
        }
    } else {
        verdict
    };
    let is_confined_change = request.is_isolated && request.command.is_none();
    let verdict = if is_confined_change && verdict.action == Action::Ask {
        Verdict {
            action: Action::Allow,
            rule: None,
            reason: Some(ISOLATED.into()),
            ..verdict
        }
    } else {
        verdict
    };
    let Some((minimum, reason)) = &request.minimum else {
        return verdict;
    };
    if *minimum == Action::Ask && verdict.action == Action::Ask {
        let mut verdict = verdict;
        if verdict.reason.as_ref() != Some(reason) {
            verdict.further_reasons.push(AskReason::because(reason));
        }
        return verdict;
    }
    if *minimum <= verdict.action {
        return verdict;
    }
    if *minimum == Action::Ask && is_opened(rules, grants, request, &verdict) {
        return verdict;
    }
    Verdict {
        action: *minimum,
        reason: Some(reason.clone()),
        rule: None,
        ..verdict
    }
}

/// Returns whether a rule from the settings or a grant names the very object that a minimum verdict
/// asks about.
///
/// Only for reading: changing a control file is asked about every time.
fn is_opened(rules: &Rules, grants: &Rules, request: &AccessRequest, verdict: &Verdict) -> bool {
    if request.permission != "read" {
        return false;
    }
    let is_named = |rule: &Rule| rule.pattern != "*" && rule.source != BUILT_IN;
    if verdict.rule.as_ref().is_some_and(is_named) {
        return true;
    }
    let is_granted = |pattern: &String| {
        last_match(grants, request.object(pattern)).is_some_and(|rule| rule.pattern != "*")
    };
    request.patterns.iter().all(is_granted) && !is_denied(rules, request)
}

fn is_denied(rules: &Rules, request: &AccessRequest) -> bool {
    request
        .patterns
        .iter()
        .any(|pattern| judge_object(rules, request.object(pattern)).0 == Action::Deny)
}

/// Returns the first of the strictest verdicts.
fn strictest(verdicts: impl Iterator<Item = Verdict>) -> Option<Verdict> {
    verdicts.reduce(|strictest, next| {
        if next.action > strictest.action {
            next
        } else {
            strictest
        }
    })
}

pub(super) fn verdict(
    action: Action,
    pattern: &str,
    rule: Option<Rule>,
    reason: Option<String>,
) -> Verdict {
    Verdict {
        action,
        pattern: pattern.into(),
        rule,
        reason,
        is_by_posture: false,
        further_reasons: vec![],
        units: vec![],
        is_proven_read_only: false,
    }
}

fn verdict_on_pattern(
    rules: &Rules,
    grants: &Rules,
    request: &AccessRequest,
    pattern: &str,
) -> Verdict {
    match decide_object(rules, grants, request.object(pattern)) {
        (action, Decider::Grant) => verdict(
            action,
            pattern,
            None,
            Some("you allowed this before".into()),
        ),
        (action, Decider::Rule(rule)) => verdict(action, pattern, rule.cloned(), None),
    }
}

/// The grant or the rule that decided on one pattern.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decider<'r> {
    Grant,
    /// `None` if no rule applies.
    Rule(Option<&'r Rule>),
}

/// One object of an access request, with the names that rules may have for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'o> {
    permission: &'o str,
    pattern: &'o str,
    /// The absolute path of a file outside of the project, for rules with an absolute pattern.
    absolute: Option<&'o str>,
    /// It is only read or listed outside of the project.
    only_reads: bool,
}

impl AccessRequest {
    pub(super) fn object<'o>(&'o self, pattern: &'o str) -> Object<'o> {
        Object {
            permission: &self.permission,
            pattern,
            absolute: self.absolute_path.as_deref(),
            only_reads: self.only_reads,
        }
    }
}

/// Judges one pattern by the rules and the grants.
pub(super) fn decide_pattern<'r>(
    rules: &'r Rules,
    grants: &Rules,
    permission: &str,
    pattern: &str,
) -> (Action, Decider<'r>) {
    let object = Object {
        permission,
        pattern,
        absolute: None,
        only_reads: false,
    };
    decide_object(rules, grants, object)
}

fn decide_object<'r>(
    rules: &'r Rules,
    grants: &Rules,
    object: Object<'_>,
) -> (Action, Decider<'r>) {
    let (action, rule) = judge_object(rules, object);
    if action == Action::Ask && is_granted(grants, object) {
        return (Action::Allow, Decider::Grant);
    }
    (action, Decider::Rule(rule))
}

fn is_granted(grants: &Rules, object: Object<'_>) -> bool {
    if last_match(grants, object).is_some() {
        return true;
    }
    let reading = Object {
        permission: READING_OUTSIDE,
        ..object
    };
    object.only_reads && object.permission == OUTSIDE && last_match(grants, reading).is_some()
}

fn last_match<'r>(rules: &'r Rules, object: Object<'_>) -> Option<&'r Rule> {
    let matching = matching(rules, object, |rule, text| {
        wildcard::matches(&rule.pattern, text)
    });
    matching.last().copied()
}

/// Parses the pattern of a `webfetch` request. An address is judged by its host, not by its
/// spelling.
fn address(permission: &str, pattern: &str) -> Option<Address> {
    if permission != url::PERMISSION {
        return None;
    }
    Address::read(pattern).ok()
}

/// Returns the action for one pattern, and the rule that decides it.
pub(super) fn judge<'r>(
    rules: &'r Rules,
    permission: &str,
    pattern: &str,
) -> (Action, Option<&'r Rule>) {
    let object = Object {
        permission,
        pattern,
        absolute: None,
        only_reads: false,
    };
    judge_object(rules, object)
}

/// Returns the action for one object, and the rule that decides it.
///
/// A rule lifts only the effect of a rule that matches the same name. Otherwise a project could
/// lift the user's rule about `../notes/*` with one about `/home/me/notes/*`, although neither is
/// more permissive than the other for any one name.
pub(super) fn judge_object<'r>(rules: &'r Rules, object: Object<'_>) -> (Action, Option<&'r Rule>) {
    let is_match = |rule: &Rule, text: &str| match rule.action {
        Action::Deny => wildcard::matches_folded(&rule.pattern, text),
        _ => wildcard::matches(&rule.pattern, text),
    };
    let matching = matching(rules, object, is_match);
    let decided = decide(&matching);
    let Some(absolute) = object.absolute else {
        return decided;
    };
    let mut strictest = decided;
    for (name, other) in [(object.pattern, absolute), (absolute, object.pattern)] {
        // Also if a rule about both names follows the one about this name.
        let of_name_only: Vec<&Rule> = matching
            .iter()
            .copied()
            .filter(|rule| is_match(rule, name) && !is_match(rule, other))
            .collect();
        let (action, rule) = decide(&of_name_only);
        if action > strictest.0 && rule.is_some() {
            strictest = (action, rule);
        }
    }
    strictest
}

/// Returns the rules that match an object, in order. `matches` compares a rule with a text that is
/// no address.
fn matching<'r>(
    rules: &'r Rules,
    object: Object<'_>,
    matches: impl Fn(&Rule, &str) -> bool,
) -> Vec<&'r Rule> {
    let about = rules.rules_about(object.permission);
    if let Some(address) = address(object.permission, object.pattern) {
        let fitting = about.fitting_address(&address).into_iter();
        return fitting
            .map(|(_, rule)| rule)
            .filter(|rule| url::fits(rule, &address))
            .collect();
    }
    let mut found = about.fitting(object.pattern);
    found.retain(|(_, rule)| matches(rule, object.pattern));
    if let Some(absolute) = object.absolute {
        let is_absolute = |rule: &Rule| rule.pattern.starts_with('/');
        let named = about.fitting(absolute).into_iter();
        found.extend(named.filter(|(_, rule)| is_absolute(rule) && matches(rule, absolute)));
        found.sort_by_key(|(at, _)| *at);
        found.dedup_by_key(|(at, _)| *at);
    }
    found.into_iter().map(|(_, rule)| rule).collect()
}

/// Decides by matching rules in their order: the last one wins, unless it is broader than an
/// earlier deny.
pub(super) fn decide<'r>(matching: &[&'r Rule]) -> (Action, Option<&'r Rule>) {
    let Some((winner, before)) = matching.split_last() else {
        return (Action::Ask, None);
    };
    if winner.action != Action::Deny {
        let in_force = |(at, deny): &(usize, &&Rule)| {
            deny.action == Action::Deny && is_in_force(deny, matching[at + 1..].iter().copied())
        };
        if let Some((_, deny)) = before.iter().enumerate().rev().find(in_force) {
            return (Action::Deny, Some(deny));
        }
    }
    (winner.action, Some(winner))
}

/// Returns whether a deny is in force, which it is until a later rule that is no broader lifts it.
pub(super) fn is_in_force<'r>(deny: &Rule, mut later: impl Iterator<Item = &'r Rule>) -> bool {
    !later.any(|rule| rule.action != Action::Deny && !rule.broader_than(deny))
}

#[cfg(test)]
mod tests {
    use super::super::evaluate;
    use super::*;
    use crate::Action::{Allow, Ask, Deny};

    #[test]
    fn grant_of_reading_outside_answers_nothing_else() {
        let rules = Rules::written(OUTSIDE, &[("*", Ask)]);
        let grants = |permission| Rules::written(permission, &[("/etc/*", Allow)]);
        for (permission, only_reads, expected) in [
            (READING_OUTSIDE, true, Allow),
            (READING_OUTSIDE, false, Ask),
            (OUTSIDE, true, Allow),
            (OUTSIDE, false, Allow),
        ] {
            let request = AccessRequest {
                only_reads,
                ..AccessRequest::new(OUTSIDE, "/etc/*")
            };
            let verdict = evaluate(&rules, &grants(permission), &request);
            assert_eq!(verdict.action, expected, "{permission} {only_reads}");
        }
        // A rule of the settings is about every use, whatever its name resembles.
        let rules = rules.then(&grants(READING_OUTSIDE));
        let request = AccessRequest {
            only_reads: true,
            ..AccessRequest::new(OUTSIDE, "/etc/*")
        };
        let verdict = evaluate(&rules, &Rules::default(), &request);
        assert_eq!(verdict.action, Ask);
    }

    #[test]
    fn file_outside_is_matched_by_its_absolute_path() {
        let request = AccessRequest {
            absolute_path: Some("/home/me/notes/a.md".to_owned()),
            ..AccessRequest::new("edit", "../notes/a.md")
        };
        // The rules, in order; the verdict.
        let table: [(&[(&str, Action)], Action); 11] = [
            (&[("*", Ask)], Ask),
            (&[("*", Ask), ("/home/me/notes/*", Allow)], Allow),
            (&[("*", Allow), ("/home/me/notes/*", Deny)], Deny),
            (&[("*", Allow), ("/HOME/me/notes/*", Deny)], Deny),
            (&[("*", Ask), ("../notes/*", Allow)], Allow),
            (&[("*.md", Ask), ("/home/me/notes/*", Allow)], Allow),
            (
                &[
                    ("../notes/*", Ask),
                    ("*.md", Ask),
                    ("/home/me/notes/*", Allow),
                ],
                Ask,
            ),
            (&[("*", Allow), ("home/*", Deny)], Allow),
            // A rule about one name does not lift one about the other.
            (&[("../notes/*", Deny), ("/home/me/notes/*", Allow)], Deny),
            (&[("../notes/*", Ask), ("/home/me/notes/*", Allow)], Ask),
            (&[("/home/me/notes/*", Deny), ("../notes/*", Allow)], Deny),
        ];
        for (rules, expected) in table {
            let rules = Rules::written("edit", rules);
            let verdict = evaluate(&rules, &Rules::default(), &request);
            assert_eq!(verdict.action, expected, "{rules:?}");
        }
    }
}
