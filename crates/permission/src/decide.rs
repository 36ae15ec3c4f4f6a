//! The choice among the rules that match.

use super::rule::BUILT_IN;
use super::url::{self, Address};
use super::{Action, Need, Rule, Rules, Verdict, wildcard};

/// The reason that something is not asked which a rule asks about.
pub(super) const HELD: &str = "what the sandbox holds is not asked here";
const TEMPORARY: &str = "it is a short-lived file, which commands may use in their sandbox";

/// Judges a need that is about no command.
pub(super) fn without_command(rules: &Rules, grants: &Rules, need: &Need) -> Verdict {
    let verdicts = need.patterns.iter().map(|pattern| one(rules, grants, &need.permission, pattern));
    let verdict = strictest(verdicts).unwrap_or_else(|| one(rules, grants, &need.permission, "*"));
    answered(rules, grants, need, verdict)
}

/// A verdict over a need, with what its sandbox and its floor say to that.
pub(super) fn answered(rules: &Rules, grants: &Rules, need: &Need, verdict: Verdict) -> Verdict {
    let verdict = if verdict.action == Action::Ask && need.guarantee.answers_need(need, verdict.rule.as_ref()) {
        Verdict { action: Action::Allow, rule: None, reason: Some(TEMPORARY.into()), ..verdict }
    } else {
        verdict
    };
    let verdict = if need.held && need.command.is_none() && verdict.action == Action::Ask {
        Verdict { action: Action::Allow, rule: None, reason: Some(HELD.into()), ..verdict }
    } else {
        verdict
    };
    match &need.floor {
        Some((least, reason))
            if *least > verdict.action && !(*least == Action::Ask && opened(rules, grants, need, &verdict)) =>
        {
            Verdict { action: *least, reason: Some(reason.clone()), rule: None, ..verdict }
        }
        _ => verdict,
    }
}

/// Whether somebody has opened what a floor asks about: a rule of theirs, or a grant, that names the
/// very thing. Only for reading; what decides what runs is asked about every time.
fn opened(rules: &Rules, grants: &Rules, need: &Need, verdict: &Verdict) -> bool {
    let named = |rule: &Rule| rule.pattern != "*" && rule.source != BUILT_IN;
    let granted = |pattern: &String| last(grants, &need.permission, pattern).is_some_and(|rule| rule.pattern != "*");
    need.permission == "read"
        && (verdict.rule.as_ref().is_some_and(named)
            || need.patterns.iter().all(granted) && !last_specific(rules, need))
}

fn last_specific(rules: &Rules, need: &Need) -> bool {
    need.patterns.iter().any(|pattern| judge(rules, &need.permission, pattern).0 == Action::Deny)
}

/// The first of the strictest.
fn strictest(verdicts: impl Iterator<Item = Verdict>) -> Option<Verdict> {
    verdicts.reduce(|worst, next| if next.action > worst.action { next } else { worst })
}

pub(super) fn verdict(action: Action, pattern: &str, rule: Option<Rule>, reason: Option<String>) -> Verdict {
    Verdict { action, pattern: pattern.into(), rule, reason, units: vec![], proven_read_only: false }
}

fn one(rules: &Rules, grants: &Rules, permission: &str, pattern: &str) -> Verdict {
    match settled(rules, grants, permission, pattern) {
        (action, Decider::Grant) => verdict(action, pattern, None, Some("you allowed this before".into())),
        (action, Decider::Rule(rule)) => verdict(action, pattern, rule.cloned(), None),
    }
}

/// The grant or the rule that decided about one pattern.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decider<'r> {
    Grant,
    /// None: no rule speaks about it.
    Rule(Option<&'r Rule>),
}

/// Judges one pattern by the rules and the grants.
pub(super) fn settled<'r>(rules: &'r Rules, grants: &Rules, permission: &str, pattern: &str) -> (Action, Decider<'r>) {
    let (action, rule) = judge(rules, permission, pattern);
    if action == Action::Ask && last(grants, permission, pattern).is_some() {
        return (Action::Allow, Decider::Grant);
    }
    (action, Decider::Rule(rule))
}

fn last<'r>(rules: &'r Rules, permission: &str, pattern: &str) -> Option<&'r Rule> {
    if let Some(address) = address(permission, pattern) {
        return rules.iter().rfind(|rule| url::fits(rule, &address));
    }
    let fitting = rules.about(permission).fitting(pattern);
    fitting.into_iter().map(|(_, rule)| rule).rfind(|rule| wildcard::matches(&rule.pattern, pattern))
}

/// Reads an address: it is judged by its host, not by how it is written.
fn address(permission: &str, pattern: &str) -> Option<Address> {
    (permission == url::PERMISSION).then(|| Address::read(pattern).ok()).flatten()
}

/// The rule that decides about one pattern.
pub(super) fn judge<'r>(rules: &'r Rules, permission: &str, pattern: &str) -> (Action, Option<&'r Rule>) {
    if let Some(address) = address(permission, pattern) {
        let matching: Vec<&Rule> = rules.iter().filter(|rule| url::fits(rule, &address)).collect();
        return decide(&matching);
    }
    let fits = |rule: &&Rule| match rule.action {
        Action::Deny => wildcard::matches_folded(&rule.pattern, pattern),
        _ => wildcard::matches(&rule.pattern, pattern),
    };
    let fitting = rules.about(permission).fitting(pattern).into_iter();
    let matching: Vec<&Rule> = fitting.map(|(_, rule)| rule).filter(fits).collect();
    decide(&matching)
}

/// Of matching rules in order the last decides, unless it is broader than a deny before it.
pub(super) fn decide<'r>(matching: &[&'r Rule]) -> (Action, Option<&'r Rule>) {
    let Some((winner, before)) = matching.split_last() else { return (Action::Ask, None) };
    let standing =
        |(at, deny): &(usize, &&Rule)| deny.action == Action::Deny && stands(deny, matching[at + 1..].iter().copied());
    if winner.action != Action::Deny
        && let Some((_, deny)) = before.iter().enumerate().rev().find(standing)
    {
        return (Action::Deny, Some(deny));
    }
    (winner.action, Some(winner))
}

/// A deny stands until a later rule that is no broader than it says otherwise.
pub(super) fn stands<'r>(deny: &Rule, mut later: impl Iterator<Item = &'r Rule>) -> bool {
    !later.any(|rule| rule.action != Action::Deny && !rule.broader_than(deny))
}
