//! Rules and a need in, a verdict out. Pure: what there is to know about the disk is in the need.
//!
//! The last matching rule decides, with two refinements. A specific deny is not lifted by a broader
//! rule that comes later. And a rule that allows one command allows it only as it stands: see
//! [`JudgedLine`] and the reasons a [`Unit`] carries against it.

use super::command_rules::CommandRules;
use super::rule::BUILT_IN;
use super::rule_index::PlacedRule;
use super::shell::{Effect, JudgedLine, Unit};
use super::url::{self, Address};
use super::{Action, Need, Rule, Rules, SandboxGuarantee, UnitVerdict, Verdict, unheld, wildcard};

/// Why something is not asked that a rule asks about.
pub(super) const HELD: &str = "what the sandbox holds is not asked here";
const TEMPORARY: &str = "it is a short-lived file, which commands may use in their sandbox";

/// Judges a need: the strictest of its patterns, or of its command's parts, counts. A grant turns an
/// ask into an allow, never a deny; a floor is not undercut.
pub fn evaluate(rules: &Rules, grants: &Rules, need: &Need) -> Verdict {
    let verdict = match &need.command {
        Some(line) => in_sandbox(rules, grants, need, line),
        None => {
            let verdicts = need.patterns.iter().map(|pattern| one(rules, grants, &need.permission, pattern));
            strictest(verdicts).unwrap_or_else(|| one(rules, grants, &need.permission, "*"))
        }
    };
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

/// Whether an agent may edit nothing, but for exceptions that come with the program (plans).
pub fn only_reads(rules: &Rules) -> bool {
    let about: Vec<&Rule> = rules.iter().filter(|rule| wildcard::matches(&rule.permission, "edit")).collect();
    let Some(at) = about.iter().rposition(|rule| rule.pattern == "*") else { return false };
    let (all, exceptions) = (about[at], &about[at + 1..]);
    all.action == Action::Deny && exceptions.iter().all(|rule| rule.action == Action::Deny || rule.source == BUILT_IN)
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

fn verdict(action: Action, pattern: &str, rule: Option<Rule>, reason: Option<String>) -> Verdict {
    Verdict { action, pattern: pattern.into(), rule, reason, units: vec![], proven_read_only: false }
}

fn one(rules: &Rules, grants: &Rules, permission: &str, pattern: &str) -> Verdict {
    match settled(rules, grants, permission, pattern) {
        (action, Decider::Grant) => verdict(action, pattern, None, Some("you allowed this before".into())),
        (action, Decider::Rule(rule)) => verdict(action, pattern, rule.cloned(), None),
    }
}

/// Who decided about one pattern.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decider<'r> {
    Grant,
    /// None: no rule speaks about it.
    Rule(Option<&'r Rule>),
}

/// What the rules and the grants say about one pattern.
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

/// What is fetched is judged by its host, not by how its address is written.
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

/// Judges a command line by itself first; what is asked about then, once more in the sandbox that was found.
fn in_sandbox(rules: &Rules, grants: &Rules, need: &Need, line: &JudgedLine) -> Verdict {
    let bare = command(rules, grants, need, line, SandboxGuarantee::None);
    if need.guarantee == SandboxGuarantee::None || bare.action != Action::Ask {
        return bare;
    }
    let verdict = command(rules, grants, need, line, need.guarantee);
    match unheld::named(line, need.guarantee).filter(|_| verdict.action == Action::Allow) {
        Some(reason) => Verdict { reason: Some(reason), ..bare },
        None => verdict,
    }
}

fn command(rules: &Rules, grants: &Rules, need: &Need, line: &JudgedLine, guarantee: SandboxGuarantee) -> Verdict {
    let bash = CommandRules::of(rules, grants, need, guarantee);
    let mut verdicts: Vec<UnitVerdict> = vec![];
    // What a program that hands its work to a service runs is run outside as well.
    let mut outside: Option<usize> = None;
    for unit in &line.units {
        outside = outside.filter(|layer| unit.layer > *layer);
        let here = if outside.is_some() { SandboxGuarantee::None } else { guarantee };
        verdicts.push(bash.unit(unit, here));
        if unit.program.as_deref().is_some_and(unheld::is_delegate) {
            outside.get_or_insert(unit.layer);
        }
    }
    let worst = verdicts.iter().max_by_key(|unit| (unit.action, std::cmp::Reverse(unit.layer)));
    let mut verdict = match worst {
        Some(worst) => verdict(worst.action, &worst.text, worst.rule.clone(), worst.reason.clone()),
        None => verdict(Action::Allow, &line.text, None, Some("there is nothing to run".into())),
    };
    // The line as it was written: a deny may name what joins its parts, and is all there is to go by
    // where they cannot be told apart.
    let joins =
        |rule: &Rule| line.units.is_empty() || rule.pattern.contains([';', '&', '|', '<', '>', '$', '`', '(', '\n']);
    let denies_line = |(_, rule): &PlacedRule<'_>| {
        rule.action == Action::Deny
            && rule.pattern != "*"
            && joins(rule)
            && wildcard::matches_folded(&rule.pattern, line.text.trim_start())
    };
    if verdict.action < Action::Deny
        && let Some((_, deny)) = (bash.about.fitting(line.text.trim_start()).into_iter().rev())
            .find(|placed| denies_line(placed) && bash.stands_for(*placed, &line.text))
    {
        let reason = Some("the line as it is written is denied".to_owned());
        verdict =
            Verdict { action: Action::Deny, pattern: line.text.clone(), rule: Some(deny.clone()), reason, ..verdict };
    }
    if verdict.action < Action::Deny
        && let Some((deny, text)) = bash.named_in(&line.unread)
    {
        let reason = Some("it stands in a text that was not judged command by command".to_owned());
        verdict = Verdict { action: Action::Deny, pattern: text, rule: Some(deny.clone()), reason, ..verdict };
    }
    if let Some(reason) = &line.opaque {
        if bash.denied_entirely() {
            verdict = Verdict { action: Action::Deny, rule: bash.about.catch_all().cloned(), ..verdict };
        } else if verdict.action < Action::Ask && (bash.may_be_ruled || !guarantee.answers_line(line)) {
            let reason = Some(format!("it could not be understood: {reason}"));
            verdict = Verdict { action: Action::Ask, pattern: line.text.clone(), rule: None, reason, ..verdict };
        }
    }
    verdict.proven_read_only = line.is_read_only();
    if let Some(why) = need.unproven.as_ref().filter(|_| verdict.action == Action::Allow)
        && !verdict.proven_read_only
        && !line.units.iter().filter(|unit| !unit.is_read_only()).all(|unit| bash.is_granted(unit))
    {
        verdict = Verdict { action: Action::Ask, reason: Some(why.clone()), rule: None, ..verdict };
    }
    verdict.units = std::mem::take(&mut verdicts);
    verdict
}

impl JudgedLine {
    /// Whether every part of it is known to change nothing, and was understood.
    pub fn is_read_only(&self) -> bool {
        self.opaque.is_none() && self.units.iter().all(Unit::is_read_only)
    }
}

impl Unit {
    /// Whether it is known to change nothing, and was understood.
    pub fn is_read_only(&self) -> bool {
        self.effect == Effect::Reads
            && self.opaque.is_none()
            && self.floor.is_none()
            && self.touches.iter().all(|need| need.floor.is_none())
    }
}
