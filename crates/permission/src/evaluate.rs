//! Rules and a need in, a verdict out. Pure: what there is to know about the disk is in the need.
//!
//! The last matching rule decides, with two refinements (`decide.rs`). A specific deny is not lifted by a broader
//! rule that comes later. And a rule that allows one command allows it only as it stands: see
//! [`JudgedLine`] and the reasons a [`Unit`] carries against it.

use super::command_rules::CommandRules;
use super::decide::{answered, verdict, without_command};
use super::rule::BUILT_IN;
use super::rule_index::IndexedRule;
use super::shell::{Effect, JudgedLine, Unit};
use super::{Action, Need, Rule, Rules, SandboxGuarantee, UnitVerdict, Verdict, unheld, wildcard};

/// Judges a need: the strictest of its patterns, or of its command's parts, counts. A grant turns an
/// ask into an allow, never a deny; a floor is not undercut.
pub fn evaluate(rules: &Rules, grants: &Rules, need: &Need) -> Verdict {
    match &need.command {
        Some(line) => answered(rules, grants, need, in_sandbox(rules, grants, need, line)),
        None => without_command(rules, grants, need),
    }
}

/// Whether an agent may edit nothing, but for exceptions that come with the program (plans).
pub fn only_reads(rules: &Rules) -> bool {
    let about: Vec<&Rule> = rules.iter().filter(|rule| wildcard::matches(&rule.permission, "edit")).collect();
    let Some(at) = about.iter().rposition(|rule| rule.pattern == "*") else { return false };
    let (all, exceptions) = (about[at], &about[at + 1..]);
    all.action == Action::Deny && exceptions.iter().all(|rule| rule.action == Action::Deny || rule.source == BUILT_IN)
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
    let denies_line = |(_, rule): &IndexedRule<'_>| {
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
