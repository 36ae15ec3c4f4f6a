//! Rules and a need in, a verdict out. Pure: what there is to know about the disk is in the need.
//!
//! The last matching rule decides, with two refinements. A specific deny is not lifted by a broader
//! rule that comes later. And a rule that allows one command allows it only as it stands: see
//! [`JudgedLine`] and the reasons a [`Unit`] carries against it.

use super::posture::{also_refused, posture_of};
use super::rule::{BUILT_IN, POSTURE};
use super::shell::{Effect, JudgedLine, Unit};
use super::url::{self, Address};
use super::wildcard::UNKNOWN;
use super::{
    Action, Need, Rule, Rules, SandboxGuarantee, UnitVerdict, Verdict, arity, unheld, unread, wildcard, wording,
};

/// Why something is not asked that a rule asks about.
const HELD: &str = "what the sandbox holds is not asked here";
const KEPT: &str = "it is not known to be harmless, but its sandbox keeps it from changing anything";
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
    let about: Vec<&Rule> = rules.0.iter().filter(|rule| wildcard::matches(&rule.permission, "edit")).collect();
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
        return rules.0.iter().rfind(|rule| url::fits(rule, &address));
    }
    rules
        .0
        .iter()
        .rfind(|rule| wildcard::matches(&rule.permission, permission) && wildcard::matches(&rule.pattern, pattern))
}

/// What is fetched is judged by its host, not by how its address is written.
fn address(permission: &str, pattern: &str) -> Option<Address> {
    (permission == url::PERMISSION).then(|| Address::read(pattern).ok()).flatten()
}

/// The rule that decides about one pattern.
fn judge<'r>(rules: &'r Rules, permission: &str, pattern: &str) -> (Action, Option<&'r Rule>) {
    if let Some(address) = address(permission, pattern) {
        let matching: Vec<&Rule> = rules.0.iter().filter(|rule| url::fits(rule, &address)).collect();
        return decide(&matching);
    }
    let fits = |rule: &&Rule| match rule.action {
        Action::Deny => {
            wildcard::matches(&rule.permission, permission) && wildcard::matches_folded(&rule.pattern, pattern)
        }
        _ => wildcard::matches(&rule.permission, permission) && wildcard::matches(&rule.pattern, pattern),
    };
    let matching: Vec<&Rule> = rules.0.iter().filter(fits).collect();
    decide(&matching)
}

/// Of matching rules in order the last decides, unless it is broader than a deny before it.
fn decide<'r>(matching: &[&'r Rule]) -> (Action, Option<&'r Rule>) {
    let Some((winner, before)) = matching.split_last() else { return (Action::Ask, None) };
    let standing = |deny: &&&Rule| deny.action == Action::Deny && stands(deny, matching);
    if winner.action != Action::Deny
        && let Some(deny) = before.iter().rev().find(standing)
    {
        return (Action::Deny, Some(deny));
    }
    (winner.action, Some(winner))
}

/// A deny stands until a later rule that is no broader than it says otherwise.
fn stands(deny: &Rule, matching: &[&Rule]) -> bool {
    let at = matching.iter().position(|rule| std::ptr::eq(*rule, deny)).unwrap_or_default();
    !matching[at + 1..].iter().any(|rule| rule.action != Action::Deny && !rule.broader_than(deny))
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
    let may_be_ruled = guarantee.may_be_ruled(rules);
    let bash = Bash { may_be_ruled, held: need.held, ..Bash::of(rules, grants, &need.permission) };
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
    if let Some(deny) = bash.denies.iter().rev().find(|rule| {
        rule.pattern != "*"
            && joins(rule)
            && wildcard::matches_folded(&rule.pattern, line.text.trim_start())
            && bash.stands_for(rule, &line.text)
    }) && verdict.action < Action::Deny
    {
        let reason = Some("the line as it is written is denied".to_owned());
        verdict = Verdict {
            action: Action::Deny,
            pattern: line.text.clone(),
            rule: Some((*deny).clone()),
            reason,
            ..verdict
        };
    }
    if verdict.action < Action::Deny
        && let Some((deny, text)) = bash.named_in(&line.unread)
    {
        let reason = Some("it stands in a text that was not judged command by command".to_owned());
        verdict = Verdict { action: Action::Deny, pattern: text, rule: Some(deny.clone()), reason, ..verdict };
    }
    if let Some(reason) = &line.opaque {
        if bash.denied_entirely() {
            verdict = Verdict { action: Action::Deny, rule: bash.catch_all().cloned(), ..verdict };
        } else if verdict.action < Action::Ask && (bash.may_be_ruled || !guarantee.answers_line(line)) {
            let reason = Some(format!("it could not be understood: {reason}"));
            verdict = Verdict { action: Action::Ask, pattern: line.text.clone(), rule: None, reason, ..verdict };
        }
    }
    verdict.proven_read_only = line.is_read_only();
    if let Some(why) = need.unproven.as_ref().filter(|_| verdict.action == Action::Allow)
        && !verdict.proven_read_only
        && !line.units.iter().filter(|unit| !unit.is_read_only()).all(|unit| bash.granted(unit))
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

/// The rules about commands, sorted once for all units.
struct Bash<'r> {
    rules: &'r Rules,
    grants: &'r Rules,
    /// All that speak about this permission.
    about: Vec<&'r Rule>,
    denies: Vec<&'r Rule>,
    /// Where the read-only posture begins among `about`.
    posture: Option<usize>,
    /// Words that start a denied command.
    denied_names: Vec<String>,
    /// A rule that denies or asks may speak about what the line does not show.
    may_be_ruled: bool,
    /// What is asked about runs where it can change nothing but the project, without network.
    held: bool,
}

impl<'r> Bash<'r> {
    fn of(rules: &'r Rules, grants: &'r Rules, permission: &str) -> Self {
        let mut about = vec![];
        let mut posture = None;
        for rule in &rules.0 {
            if rule.permission == POSTURE.0 && rule.pattern == POSTURE.1 {
                posture = (rule.action == Action::Deny).then_some(about.len());
            } else if wildcard::matches(&rule.permission, permission) {
                about.push(rule);
            }
        }
        let denies: Vec<&Rule> = about.iter().filter(|rule| rule.action == Action::Deny).copied().collect();
        let name = |rule: &&&Rule| {
            let pattern = rule.pattern.trim_start_matches(['*', ' ']);
            let word = pattern.split([' ', '*', '?']).next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
            (!word.is_empty()).then(|| word.to_lowercase())
        };
        let mut denied_names: Vec<String> = denies.iter().filter_map(|rule| name(&rule)).collect();
        denied_names.sort();
        denied_names.dedup();
        Self { rules, grants, about, denies, posture, denied_names, may_be_ruled: false, held: false }
    }

    fn catch_all(&self) -> Option<&'r Rule> {
        self.about.iter().rfind(|rule| rule.pattern == "*").copied()
    }

    fn denied_entirely(&self) -> bool {
        self.catch_all().is_some_and(|rule| rule.action == Action::Deny)
    }

    /// Whether a deny still stands for a text that is judged as a whole.
    fn stands_for(&self, deny: &Rule, text: &str) -> bool {
        let matching: Vec<&Rule> = self
            .about
            .iter()
            .filter(|rule| {
                std::ptr::eq(**rule, deny) || (rule.action != Action::Deny && wildcard::matches(&rule.pattern, text))
            })
            .copied()
            .collect();
        stands(deny, &matching)
    }

    /// A deny that speaks about a command of texts nobody took apart, as far as that can be seen
    /// without reading them.
    fn named_in(&self, texts: &[String]) -> Option<(&'r Rule, String)> {
        let denies: Vec<&Rule> = self.denies.iter().filter(|rule| rule.pattern != "*").copied().collect();
        texts.iter().find_map(|text| unread::denied(&denies, text, &|rule, text| self.stands_for(rule, text)))
    }

    /// Whether the sandbox answers what is not known about a unit.
    fn is_answered(&self, unit: &Unit, guarantee: SandboxGuarantee) -> bool {
        guarantee.answers(unit) && (!self.may_be_ruled || unit.prefixed && unit.floor.is_none())
    }

    fn unit(&self, unit: &Unit, guarantee: SandboxGuarantee) -> UnitVerdict {
        let (mut action, mut rule, mut reason) = self.words(unit, guarantee);
        if action == Action::Ask && self.granted(unit) {
            (action, rule, reason) = (Action::Allow, None, Some("you allowed this before".into()));
        }
        if action == Action::Ask && self.held && self.doubt(unit, guarantee).is_none() {
            (action, rule, reason) = (Action::Allow, None, Some(HELD.into()));
        }
        for need in &unit.touches {
            let mut verdict = evaluate(self.rules, self.grants, need);
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
        if unit.unseen.is_empty() {
            return None;
        }
        let edit = |rule: &&Rule| rule.action == Action::Deny && wildcard::matches(&rule.permission, "edit");
        let denies: Vec<&Rule> = self.rules.0.iter().filter(edit).collect();
        let names = unit.unseen.iter().map(|text| text.trim_start_matches("./"));
        let denied = |text: &str| {
            let speaks = denies.iter().any(|rule| wildcard::matches_folded(&rule.pattern, text));
            speaks.then(|| judge(self.rules, "edit", text)).filter(|(action, _)| *action == Action::Deny)?.1
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
        unread::begins_at(rule, &unit.tails, &|text| Self::fits(rule, text)).is_some()
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
                || unread::begins_at(rule, &unit.tails, &may).is_some())
    }

    /// Why a rule that allows cannot allow this unit; none where it may.
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
    /// What an agent that only reads is given is given behind the rule that makes it so: only there it is noted.
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

    fn words(&self, unit: &Unit, guarantee: SandboxGuarantee) -> (Action, Option<Rule>, Option<String>) {
        let mut matching: Vec<&Rule> = vec![];
        let mut refused: Option<String> = None;
        let mut own = false;
        // A question about what may be started, perhaps, is no exception from anything.
        let mut may_ask = None;
        // A deny of that is lifted by a rule that allows the whole, not by one that asks about it.
        let mut may_deny: Vec<(usize, &Rule)> = vec![];
        for (at, rule) in self.about.iter().enumerate() {
            let speaks = if rule.pattern == "*" {
                true
            } else if rule.action == Action::Allow {
                self.allows(at, rule, unit, &mut refused)
            } else if Self::speaks(rule, unit) {
                true
            } else {
                let denies = rule.action == Action::Deny;
                let may = Self::may_mean(rule, unit);
                if may && denies {
                    may_deny.push((matching.len(), rule));
                } else if may {
                    may_ask = Some(*rule);
                }
                may && denies
            };
            if speaks {
                may_ask = may_ask.filter(|ask| !lifts_perhaps(rule, ask) && !rule.broader_than(ask));
                matching.push(rule);
                own |= self.posture.is_some_and(|posture| at >= posture) && rule.permission != "*";
            }
        }
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
        if self.posture.is_some() && !own && action != Action::Deny {
            (action, reason) = posture_of(unit);
            reason = reason.map(|why| also_refused(why, action, refused.as_deref()));
            // Only what the program came with lets commands that read pass by itself.
            let asked =
                rule.filter(|rule| rule.action == Action::Ask && (rule.pattern != "*" || rule.source != BUILT_IN));
            let kept = guarantee.keeps_all(unit) && self.doubt(unit, guarantee).is_none();
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
                && let Some(doubt) = self.doubt(unit, guarantee)
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
            let doubt = self.doubt(unit, guarantee);
            if doubt.is_some() {
                (action, rule, reason) = (Action::Ask, None, doubt);
            }
        }
        (action, rule.cloned(), reason)
    }

    fn doubt(&self, unit: &Unit, guarantee: SandboxGuarantee) -> Option<String> {
        if let Some(reason) = unit.opaque.as_ref().filter(|_| !self.is_answered(unit, guarantee)) {
            return Some(reason.clone());
        }
        if self.denied_names.is_empty() {
            return None;
        }
        if let Some(reason) = &unit.doubt {
            return Some(reason.clone());
        }
        if let Some(deny) = self.denies.iter().find(|rule| Self::may_speak(rule, unit)) {
            return Some(format!("a word that is not known yet could make it what \"{}\" denies", deny.pattern));
        }
        let denied = |word: &&String| self.denied_names.iter().any(|name| name.eq_ignore_ascii_case(word));
        if let Some(word) = unit.words.iter().find(denied) {
            return Some(format!("it may start {word}, which a rule denies: what it does with its words is not known"));
        }
        // As it is written, and as it reads without quotes, which may stand within a name.
        let bare = |text: &String| text.replace(['\'', '"', '\\'], "");
        let mentioned = self
            .denied_names
            .iter()
            .find(|name| unit.texts.iter().any(|text| mentions(text, name) || mentions(&bare(text), name)))?;
        Some(format!("the program text it is given names {mentioned}, which a rule denies"))
    }

    /// A grant is a specific allow; one without a wildcard also stands for words that only the user
    /// could have judged, such as a program of the project.
    fn granted(&self, unit: &Unit) -> bool {
        if unit.opaque.is_some() || unit.broad_only.is_some() || unit.normal.contains(UNKNOWN) {
            return false;
        }
        // What its words do not say, no beginning of them grants.
        let words: Vec<&str> = unit.normal.split(' ').collect();
        let plain =
            unit.doubt.is_none() && unit.texts.is_empty() && arity::is_granted_by_beginning(&words, unit.network);
        self.grants.0.iter().any(|rule| {
            let exact = rule.pattern == unit.normal || unit.place_reached() == Some(&*rule.pattern);
            let shape = rule.pattern != "*"
                && wildcard::matches(&rule.pattern, &unit.normal)
                && Self::hinders(rule, unit).is_none();
            wildcard::matches(&rule.permission, "bash") && (exact || plain && (shape || Self::is_run_as(rule, unit)))
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
    let name = unread::beginning(&other.pattern);
    let word = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    name.is_empty() || rule.pattern.split(|c| !word(c)).any(|part| part.eq_ignore_ascii_case(name))
}

/// Whether a program text holds a name as a word of its own.
fn mentions(text: &str, name: &str) -> bool {
    let text = text.to_lowercase();
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(word) && !text[at + name.len()..].chars().next().is_some_and(word)
    })
}
