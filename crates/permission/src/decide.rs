//! Chooses the deciding rule among the rules that match.

use super::rule::BUILT_IN;
use super::url::{self, Address};
use super::{AccessRequest, Action, Rule, Rules, Verdict, wildcard};

/// The reason why a question of a rule is not asked in a sandbox.
pub(super) const ISOLATED: &str = "what the sandbox holds is not asked here";
const TEMPORARY: &str = "it is a short-lived file, which commands may use in their sandbox";

/// Judges an access request that is about no command.
pub(super) fn without_command(rules: &Rules, grants: &Rules, request: &AccessRequest) -> Verdict {
    let verdicts = request
        .patterns
        .iter()
        .map(|pattern| verdict_on_pattern(rules, grants, &request.permission, pattern));
    let verdict = strictest(verdicts)
        .unwrap_or_else(|| verdict_on_pattern(rules, grants, &request.permission, "*"));
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
    let is_confined_change = request.isolated && request.command.is_none();
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
        last_match(grants, &request.permission, pattern).is_some_and(|rule| rule.pattern != "*")
    };
    request.patterns.iter().all(is_granted) && !is_denied(rules, request)
}

fn is_denied(rules: &Rules, request: &AccessRequest) -> bool {
    request
        .patterns
        .iter()
        .any(|pattern| judge(rules, &request.permission, pattern).0 == Action::Deny)
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
        units: vec![],
        proven_read_only: false,
    }
}

fn verdict_on_pattern(rules: &Rules, grants: &Rules, permission: &str, pattern: &str) -> Verdict {
    match decide_pattern(rules, grants, permission, pattern) {
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

/// Judges one pattern by the rules and the grants.
pub(super) fn decide_pattern<'r>(
    rules: &'r Rules,
    grants: &Rules,
    permission: &str,
    pattern: &str,
) -> (Action, Decider<'r>) {
    let (action, rule) = judge(rules, permission, pattern);
    if action == Action::Ask && last_match(grants, permission, pattern).is_some() {
        return (Action::Allow, Decider::Grant);
    }
    (action, Decider::Rule(rule))
}

fn last_match<'r>(rules: &'r Rules, permission: &str, pattern: &str) -> Option<&'r Rule> {
    if let Some(address) = address(permission, pattern) {
        let fitting = rules.rules_about(permission).fitting_address(&address);
        return fitting
            .into_iter()
            .map(|(_, rule)| rule)
            .rfind(|rule| url::fits(rule, &address));
    }
    let fitting = rules.rules_about(permission).fitting(pattern);
    fitting
        .into_iter()
        .map(|(_, rule)| rule)
        .rfind(|rule| wildcard::matches(&rule.pattern, pattern))
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
    if let Some(address) = address(permission, pattern) {
        let fitting = rules.rules_about(permission).fitting_address(&address);
        let matching: Vec<&Rule> = fitting
            .into_iter()
            .map(|(_, rule)| rule)
            .filter(|rule| url::fits(rule, &address))
            .collect();
        return decide(&matching);
    }
    let is_match = |rule: &&Rule| match rule.action {
        Action::Deny => wildcard::matches_folded(&rule.pattern, pattern),
        _ => wildcard::matches(&rule.pattern, pattern),
    };
    let fitting = rules.rules_about(permission).fitting(pattern).into_iter();
    let matching: Vec<&Rule> = fitting.map(|(_, rule)| rule).filter(is_match).collect();
    decide(&matching)
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
