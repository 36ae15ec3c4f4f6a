//! The verdict of the rules about commands on one part of a command line. Only rules that may speak about it are looked
//! at.

use super::decide::{HELD, decide, judge, stands, without_command};
use super::posture::{also_refused, posture_of};
use super::rule::BUILT_IN;
use super::rule_index::{IndexedRule, RulesAbout, UnitKeys};
use super::shell::Unit;
use super::wildcard::UNKNOWN;
use super::{Action, Need, Rule, Rules, SandboxGuarantee, UnitVerdict, arity, first_word, unread, wildcard, wording};

const KEPT: &str = "it is not known to be harmless, but its sandbox keeps it from changing anything";

/// The rules about commands.
pub(super) struct CommandRules<'r> {
    rules: &'r Rules,
    grants: &'r Rules,
    /// All that speak about this permission.
    pub(super) about: RulesAbout<'r>,
    granted: RulesAbout<'r>,
    /// The place among the rules at which the read-only posture begins.
    posture: Option<usize>,
    /// A rule that denies or asks may speak about what the line does not show.
    pub(super) may_be_ruled: bool,
    /// A command that is asked about runs where it can change nothing but the project, without network.
    held: bool,
}

/// The rules that speak about a unit, in their order.
#[derive(Default)]
struct SpeakingRules<'r> {
    matching: Vec<&'r Rule>,
    /// The reason that kept a rule from allowing it.
    refused: Option<String>,
    /// One of an agent that only reads, about this permission, is among them.
    is_own: bool,
    /// A question about what may be started, perhaps, is no exception from anything.
    may_ask: Option<&'r Rule>,
    /// A deny of that is lifted by a rule that allows the whole, not by one that asks about it. With the number of
    /// matching rules before it.
    may_deny: Vec<(usize, &'r Rule)>,
}

impl<'r> CommandRules<'r> {
    pub(super) fn of(rules: &'r Rules, grants: &'r Rules, need: &Need, guarantee: SandboxGuarantee) -> Self {
        Self {
            rules,
            grants,
            about: rules.about(&need.permission),
            granted: grants.about("bash"),
            posture: rules.posture(),
            may_be_ruled: guarantee.may_be_ruled(rules),
            held: need.held,
        }
    }

    pub(super) fn denied_entirely(&self) -> bool {
        self.about.catch_all().is_some_and(|rule| rule.action == Action::Deny)
    }

    /// Whether a deny still stands for a text that is judged as a whole.
    pub(super) fn stands_for(&self, (at, deny): IndexedRule<'r>, text: &str) -> bool {
        let fitting = self.about.fitting(text).into_iter();
        let later = fitting.filter(|(place, _)| *place > at).map(|(_, rule)| rule);
        stands(deny, later.filter(|rule| rule.action != Action::Deny && wildcard::matches(&rule.pattern, text)))
    }

    /// A deny that speaks about a command of texts nobody took apart, as far as that can be seen
    /// without reading them.
    pub(super) fn named_in(&self, texts: &[String]) -> Option<(&'r Rule, String)> {
        texts.iter().find_map(|text| unread::denied(&self.about, text, &|rule, text| self.stands_for(rule, text)))
    }

    /// Whether the sandbox answers what is not known about a unit.
    fn is_answered(&self, unit: &Unit, guarantee: SandboxGuarantee) -> bool {
        guarantee.answers(unit) && (!self.may_be_ruled || unit.prefixed && unit.floor.is_none())
    }

    pub(super) fn unit(&self, unit: &Unit, guarantee: SandboxGuarantee) -> UnitVerdict {
        let texts = [&unit.normal, &unit.text].into_iter().chain(&unit.names);
        let keys = UnitKeys::new(texts.map(String::as_str), &unit.tails);
        let (mut action, mut rule, mut reason) = self.words(unit, &keys, guarantee);
        if action == Action::Ask && self.is_granted(unit) {
            (action, rule, reason) = (Action::Allow, None, Some("you allowed this before".into()));
        }
        if action == Action::Ask && self.held && self.doubt(unit, &keys, guarantee).is_none() {
            (action, rule, reason) = (Action::Allow, None, Some(HELD.into()));
        }
        for need in &unit.touches {
            let mut verdict = without_command(self.rules, self.grants, need);
            if verdict.action == Action::Ask && guarantee.answers_need(need, verdict.rule.as_ref()) {
                verdict.action = Action::Allow;
            }
            if self.held && need.permission == "edit" && need.floor.is_none() && verdict.action == Action::Ask {
                verdict.action = Action::Allow;
            }
            if need.permission == "edit" && self.posture.is_some() && unit.carried && !unit.destroys {
                // What an option carries may never start: see [`posture_of`].
                verdict.action = verdict.action.min(Action::Ask);
            }
            if verdict.action > action {
                let what = wording::used(&need.permission, &verdict.pattern);
                (action, rule, reason) = (verdict.action, verdict.rule, verdict.reason.or(Some(what)));
            }
        }
        if action < Action::Deny
            && let Some(deny) = self.unseen(unit)
        {
            let why = "it changes more paths than are looked at, one of which a rule denies";
            (action, rule, reason) = (Action::Deny, Some(deny.clone()), Some(why.into()));
        }
        if let Some((least, why)) = &unit.floor
            && *least > action
            && !(*least == Action::Ask && self.is_answered(unit, guarantee))
        {
            (action, rule, reason) = (*least, None, Some(why.clone()));
        }
        if action == Action::Ask && rule.is_none() && guarantee != SandboxGuarantee::None && unit.at_stake.is_some() {
            reason = unit.at_stake.clone();
        }
        UnitVerdict {
            text: unit.text.clone(),
            program: unit.program.clone(),
            layer: unit.layer,
            action,
            rule,
            reason,
            read_only: unit.is_read_only(),
        }
    }

    /// A rule that denies changing one of the paths nobody looked up, by the name it has in the line.
    fn unseen(&self, unit: &Unit) -> Option<&'r Rule> {
        let names = unit.unseen.iter().map(|text| text.trim_start_matches("./"));
        let denied = |text: &str| {
            let (action, rule) = judge(self.rules, "edit", text);
            rule.filter(|_| action == Action::Deny)
        };
        names.filter_map(denied).next()
    }

    /// Whether a rule that denies or asks speaks about a unit, under any of its spellings.
    fn speaks(rule: &Rule, unit: &Unit) -> bool {
        // A computed name begins with nothing that could be compared.
        let named = unit.program.is_some() || unit.opaque.is_none();
        (named && (Self::fits(rule, &unit.normal) || Self::fits(rule, &unit.text)))
            || unit.names.iter().any(|name| Self::fits(rule, name))
    }

    /// Whether it speaks about a program that the unit may start, nobody knows which.
    fn may_mean(rule: &Rule, unit: &Unit) -> bool {
        first_word::begins_at(rule, &unit.tails, &|text| Self::fits(rule, text)).is_some()
    }

    fn fits(rule: &Rule, text: &str) -> bool {
        match rule.action {
            Action::Deny => wildcard::matches_folded(&rule.pattern, text),
            _ => wildcard::matches(&rule.pattern, text),
        }
    }

    /// Whether it could speak about it once its unknown words are known.
    fn may_speak(rule: &Rule, unit: &Unit) -> bool {
        let may = |text: &str| text.contains(UNKNOWN) && wildcard::may_match(&rule.pattern, text);
        rule.pattern != "*"
            && (may(&unit.normal)
                || unit.names.iter().any(|name| may(name))
                || first_word::begins_at(rule, &unit.tails, &may).is_some())
    }

    /// Returns the reason that a rule which allows cannot allow this unit; `None` when it may.
    fn hinders(rule: &Rule, unit: &Unit) -> Option<String> {
        if unit.opaque.is_some() {
            return unit.opaque.clone();
        }
        if let Some(danger) = unit.dangers.iter().find(|danger| !rule.pattern.contains(danger.as_str())) {
            return Some(format!("{danger} changes what it does, and the rule does not name it"));
        }
        let named = |program: &String| program.contains('/') && rule.pattern.split(' ').next() == Some(program);
        let foreign = unit.foreign.clone().filter(|_| !unit.program.as_ref().is_some_and(named));
        unit.broad_only.clone().or(foreign)
    }

    /// Whether a rule that allows speaks about a unit; where only something in the unit hinders it, notes what.
    /// The exceptions of an agent that only reads stand behind the rule that makes it so: only there it is noted.
    fn allows(&self, at: usize, rule: &Rule, unit: &Unit, refused: &mut Option<String>) -> bool {
        let names = wildcard::matches(&rule.pattern, &unit.normal)
            || (unit.broad_only.is_none()
                && unit.names.first().is_some_and(|name| wildcard::matches(&rule.pattern, name)));
        let hindered = names.then(|| Self::hinders(rule, unit)).flatten();
        if let Some(reason) = &hindered
            && self.posture.is_none_or(|posture| at >= posture)
        {
            *refused = Some(format!("\"{}\" does not allow it: {reason}", rule.pattern));
        }
        names && hindered.is_none()
    }

    /// The rules that speak about a unit.
    fn speaking(&self, unit: &Unit, keys: &UnitKeys) -> SpeakingRules<'r> {
        let mut found = SpeakingRules::default();
        for (at, rule) in self.about.speaking(keys) {
            let speaks = if rule.pattern == "*" {
                true
            } else if rule.action == Action::Allow {
                self.allows(at, rule, unit, &mut found.refused)
            } else if Self::speaks(rule, unit) {
                true
            } else {
                let denies = rule.action == Action::Deny;
                let may = Self::may_mean(rule, unit);
                if may && denies {
                    found.may_deny.push((found.matching.len(), rule));
                } else if may {
                    found.may_ask = Some(rule);
                }
                may && denies
            };
            if speaks {
                found.may_ask = found.may_ask.filter(|ask| !lifts_perhaps(rule, ask) && !rule.broader_than(ask));
                found.matching.push(rule);
                found.is_own |= self.posture.is_some_and(|posture| at >= posture) && rule.permission != "*";
            }
        }
        found
    }

    fn words(
        &self,
        unit: &Unit,
        keys: &UnitKeys,
        guarantee: SandboxGuarantee,
    ) -> (Action, Option<Rule>, Option<String>) {
        let SpeakingRules { matching, refused, is_own, may_ask, may_deny } = self.speaking(unit, keys);
        let (mut action, mut rule) = decide(&matching);
        let lifts = |deny: &Rule, rule: &&Rule| {
            rule.action == Action::Allow && !rule.broader_than(deny) && lifts_perhaps(rule, deny)
        };
        if action < Action::Deny
            && let Some((_, deny)) =
                may_deny.iter().rev().find(|(at, deny)| !matching[*at + 1..].iter().any(|rule| lifts(deny, rule)))
        {
            (action, rule) = (Action::Deny, Some(*deny));
        }
        if action < Action::Deny && may_ask.is_some() {
            (action, rule) = (Action::Ask, may_ask);
        }
        let mut reason = None;
        if self.posture.is_some() && !is_own && action != Action::Deny {
            (action, reason) = posture_of(unit);
            reason = reason.map(|why| also_refused(why, action, refused.as_deref()));
            // Only what the program came with lets commands that read pass by itself.
            let asked =
                rule.filter(|rule| rule.action == Action::Ask && (rule.pattern != "*" || rule.source != BUILT_IN));
            let kept = guarantee.keeps_all(unit) && self.doubt(unit, keys, guarantee).is_none();
            if kept && action == Action::Ask && asked.is_none() {
                return (Action::Allow, None, Some(KEPT.into()));
            }
            if action == Action::Allow && asked.is_some() {
                (action, reason) = (Action::Ask, None);
            } else {
                rule = None;
            }
            // It may read, but not what is denied by its name, which is not known yet.
            if action == Action::Allow
                && let Some(doubt) = self.doubt(unit, keys, guarantee)
            {
                (action, reason) = (Action::Ask, Some(doubt));
            }
            return (action, rule.cloned(), reason);
        }
        if action == Action::Ask {
            reason = refused;
        }
        if action == Action::Allow {
            // The catch-all allows what is understood, as far as nothing that is denied may hide in it.
            let doubt = self.doubt(unit, keys, guarantee);
            if doubt.is_some() {
                (action, rule, reason) = (Action::Ask, None, doubt);
            }
        }
        (action, rule.cloned(), reason)
    }

    fn doubt(&self, unit: &Unit, keys: &UnitKeys, guarantee: SandboxGuarantee) -> Option<String> {
        if let Some(reason) = unit.opaque.as_ref().filter(|_| !self.is_answered(unit, guarantee)) {
            return Some(reason.clone());
        }
        if !self.about.denies_names() {
            return None;
        }
        if let Some(reason) = &unit.doubt {
            return Some(reason.clone());
        }
        let may_deny = |rule: &&Rule| rule.action == Action::Deny && Self::may_speak(rule, unit);
        let once_known = self.about.speaking_once_known(keys);
        if let Some(deny) = once_known.into_iter().map(|(_, rule)| rule).find(may_deny) {
            return Some(format!("a word that is not known yet could make it what \"{}\" denies", deny.pattern));
        }
        if let Some(word) = unit.words.iter().find(|word| self.about.denies_name(word)) {
            return Some(format!("it may start {word}, which a rule denies: what it does with its words is not known"));
        }
        // As it is written, and as it reads without quotes, which may stand within a name.
        let bare = |text: &str| text.replace(['\'', '"', '\\'], "");
        // Small letters last: what a letter becomes depends on its neighbours.
        let texts = unit.texts.iter().flat_map(|text| [bare(text).to_lowercase(), text.to_lowercase()]);
        let texts: Vec<String> = texts.collect();
        let mentioned = texts.iter().filter_map(|text| self.about.denied_name_in(text)).min()?;
        Some(format!("the program text it is given names {mentioned}, which a rule denies"))
    }

    /// A grant is a specific allow; one without a wildcard also stands for words that only the user
    /// could have judged, such as a program of the project.
    pub(super) fn is_granted(&self, unit: &Unit) -> bool {
        if unit.opaque.is_some() || unit.broad_only.is_some() || unit.normal.contains(UNKNOWN) {
            return false;
        }
        // What its words do not say, no beginning of them grants.
        let words: Vec<&str> = unit.normal.split(' ').collect();
        let plain =
            unit.doubt.is_none() && unit.texts.is_empty() && arity::is_granted_by_beginning(&words, unit.network);
        let run = unit.runner.as_ref().map(|runner| format!("{runner}{}", unit.normal));
        let texts = [Some(&*unit.normal), unit.place_reached(), run.as_deref()].into_iter().flatten();
        self.granted.speaking(&UnitKeys::new(texts, &[])).into_iter().any(|(_, rule)| {
            let exact = rule.pattern == unit.normal || unit.place_reached() == Some(&*rule.pattern);
            let shape = rule.pattern != "*"
                && wildcard::matches(&rule.pattern, &unit.normal)
                && Self::hinders(rule, unit).is_none();
            exact || plain && (shape || Self::is_run_as(rule, unit))
        })
    }

    /// Whether a grant names a program together with the one that runs it: `uv run pytest *`.
    fn is_run_as(rule: &Rule, unit: &Unit) -> bool {
        let names = |runner: &String| {
            rule.pattern.starts_with(&**runner) && wildcard::matches(&rule.pattern, &format!("{runner}{}", unit.normal))
        };
        unit.foreign.is_some() && unit.dangers.is_empty() && unit.runner.as_ref().is_some_and(names)
    }
}

/// Whether a rule about a program that starts others speaks about what another rule says of one of those:
/// only where it names it.
fn lifts_perhaps(rule: &Rule, other: &Rule) -> bool {
    let name = first_word::beginning(&other.pattern);
    let word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    name.is_empty() || rule.pattern.split(|c| !word(c)).any(|part| part.eq_ignore_ascii_case(name))
}
