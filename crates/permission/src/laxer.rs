//! Whether one set of rules lets through what others stop. It is decided by judging: one need for
//! everything that the patterns of all sets tell apart is evaluated under each of them.

mod spelled;

use std::sync::Arc;

use super::examples::{self, Pattern};
use super::rule::{BUILT_IN, POSTURE};
use super::shell::{Effect, JudgedLine, Unit};
use super::url::PERMISSION as ADDRESS;
use super::{Action, Need, Rule, Rules, SandboxGuarantee, evaluate, wildcard};

/// How many addresses are judged before it is given up.
const ADDRESSES: usize = 20_000;

/// A need that gets a laxer verdict than it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laxer {
    pub permission: String,
    /// What it would touch; none where the patterns are too many to find out, so that it has to be
    /// supposed.
    pub pattern: Option<String>,
}

/// Finds a need for which `with` is laxer than each of `without`, of which at least `least` was the
/// verdict. Where there is nothing to compare with, everything was denied.
pub fn laxer(with: &Rules, without: &[&Rules], least: Action) -> Option<Laxer> {
    compared(with, without, least, true)
}

/// As [`laxer`]; what need not be judged is left out where it may be `pruned`.
fn compared(with: &Rules, without: &[&Rules], least: Action, pruned: bool) -> Option<Laxer> {
    let sets: Vec<&Rules> = [with].into_iter().chain(without.iter().copied()).collect();
    let Some(keys) = keys(&sets) else { return Some(Laxer { permission: "*".into(), pattern: None }) };
    keys.into_iter().find_map(|key| {
        // Rules that say the same judge the same.
        if pruned && without.iter().any(|other| about(other, &key).map(said).eq(about(with, &key).map(said))) {
            return None;
        }
        let changed = without.iter().filter(|_| pruned).filter_map(|other| Changed::between(with, other, &key));
        let changed = changed.min_by_key(|changed| changed.added.len() + changed.gone.len());
        let Some(needs) = needs(&key, &sets, changed.as_ref()) else {
            return Some(Laxer { permission: key, pattern: None });
        };
        // Every need is judged under all of them: rules about something else are left out once.
        let part = |rules: &Rules| -> Rules {
            let judges = |rule: &&Rule| key == "bash" && wildcard::matches(&rule.permission, "edit");
            rules.iter().filter(|rule| has_part(rule, &key) || judges(rule)).cloned().collect()
        };
        let (ours, theirs) = (part(with), without.iter().map(|other| part(other)).collect::<Vec<_>>());
        let judge = |rules: &Rules, need: &Need| evaluate(rules, &Rules::default(), need).action;
        let found = needs.iter().find(|need| {
            let now = judge(&ours, need);
            let before = || theirs.iter().map(|other| judge(other, need)).min().unwrap_or(Action::Deny);
            now < Action::Deny && Some(before()).is_some_and(|before| before >= least && now < before)
        })?;
        Some(Laxer { pattern: found.patterns.first().cloned(), permission: key })
    })
}

/// What a rule says, wherever it was written.
fn said(rule: &Rule) -> (&str, &str, Action, bool) {
    (&rule.permission, &rule.pattern, rule.action, rule.source == BUILT_IN)
}

/// The rules that have a part in judging a permission.
fn about<'r>(rules: &'r Rules, key: &str) -> impl Iterator<Item = &'r Rule> {
    rules.iter().filter(move |rule| has_part(rule, key))
}

fn has_part(rule: &Rule, key: &str) -> bool {
    key == "bash" && rule.permission == POSTURE.0 || wildcard::matches(&rule.permission, key)
}

/// What one set of rules about a permission says and another does not. What matches none of it is judged
/// the same by both.
struct Changed<'r> {
    added: Vec<&'r Rule>,
    gone: Vec<&'r Rule>,
    /// All that the first set says, in order.
    with: Vec<&'r Rule>,
}

impl<'r> Changed<'r> {
    /// None where what is judged hangs on more than the rules that match it: on the read-only posture,
    /// and on whether anything is denied at all.
    fn between(with: &'r Rules, other: &'r Rules, key: &str) -> Option<Self> {
        let (with, other): (Vec<&Rule>, Vec<&Rule>) = (about(with, key).collect(), about(other, key).collect());
        let mut left = other.as_slice();
        let mut added = Vec::new();
        for rule in &with {
            match left.split_first() {
                Some((first, rest)) if said(first) == said(rule) => left = rest,
                _ => added.push(*rule),
            }
        }
        if !left.is_empty() {
            // Their order differs, or something is gone: what they begin and end with is the same.
            let same = |(one, two): &(&&Rule, &&Rule)| said(one) == said(two);
            let start = with.iter().zip(&other).take_while(same).count();
            let (ours, theirs) = (&with[start..], &other[start..]);
            let end = ours.iter().rev().zip(theirs.iter().rev()).take_while(same).count();
            added = ours[..ours.len() - end].to_vec();
            left = &theirs[..theirs.len() - end];
        }
        let posture = |rule: &&&Rule| key == "bash" && rule.permission == POSTURE.0;
        let deny = |rule: &&&Rule| key == "bash" && rule.action == Action::Deny && rule.pattern != "*";
        let whole = added.iter().chain(left).any(|rule| posture(&rule)) || left.iter().any(|rule| deny(&rule));
        (!whole).then(|| Self { added, gone: left.to_vec(), with })
    }

    fn holds(&self, pattern: &Pattern) -> bool {
        let same = |rule: &&&Rule| rule.pattern == pattern.0 && (rule.action == Action::Deny) == pattern.1;
        self.added.iter().chain(&self.gone).any(|rule| same(&rule))
    }

    /// Whether a command that one rule allows or asks about, and that holds another which `within` stops,
    /// may be judged laxer: where the first is new, comes later, and is no broader.
    fn lifts(&self, pattern: &str, within: &Rule) -> bool {
        let last = |fits: &dyn Fn(&Rule) -> bool| self.with.iter().rposition(|rule| fits(rule));
        let stops = self.with.iter().rposition(|rule| said(rule) == said(within));
        let mut new = self.added.iter().filter(|rule| rule.pattern == pattern && rule.action < within.action);
        self.gone.iter().any(|rule| said(rule) == said(within))
            || new.any(|rule| {
                let later = last(&|other| std::ptr::eq(other, *rule)) > stops;
                later && !(within.action == Action::Deny && rule.broader_than(within))
            })
    }
}

/// The keys that the rules tell apart, and those that are judged in a way of their own.
fn keys(sets: &[&Rules]) -> Option<Vec<String>> {
    let own = ["bash", "read", "edit", ADDRESS];
    let patterns = sets.iter().flat_map(|rules| rules.iter()).map(|rule| (rule.permission.clone(), false));
    let mut keys = examples::of(&distinct(patterns))?;
    keys.extend(own.map(str::to_owned));
    keys.sort_unstable();
    keys.dedup();
    Some(keys)
}

fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// One need for everything that the rules about a permission tell apart. None where it is too much.
fn needs(key: &str, sets: &[&Rules], changed: Option<&Changed<'_>>) -> Option<Vec<Need>> {
    let rules: Vec<&Rule> = sets.iter().flat_map(|rules| about(rules, key)).collect();
    let patterns = distinct(rules.iter().map(|rule| (rule.pattern.clone(), rule.action == Action::Deny)));
    let texts = match changed {
        Some(changed) => examples::matching(&patterns, &|pattern| changed.holds(pattern))?,
        None => examples::of(&patterns)?,
    };
    let plain = |text: &String| Need::new(key, text.as_str());
    Some(match key {
        "bash" => commands(texts, &rules, sets, changed)?,
        // A secret is asked about unless a rule names it.
        "read" => {
            let secret = |need: Need| Need { floor: Some((Action::Ask, String::new())), ..need };
            texts.iter().map(plain).chain(texts.iter().map(plain).map(secret)).collect()
        }
        ADDRESS => texts.iter().chain(&addresses(&patterns)?).map(plain).collect(),
        _ => texts.iter().map(plain).collect(),
    })
}

/// Commands that are spelled like the texts, each as everything that a command can be to a rule, and
/// those that rules know under several names.
fn commands(
    mut texts: Vec<String>,
    rules: &[&Rule],
    sets: &[&Rules],
    changed: Option<&Changed<'_>>,
) -> Option<Vec<Need>> {
    texts.sort_unstable();
    texts.dedup();
    let edited = sets.iter().flat_map(|rules| about(rules, "edit"));
    let edited = distinct(edited.map(|rule| (rule.pattern.clone(), rule.action == Action::Deny)));
    let posture = rules.iter().any(|rule| rule.permission == POSTURE.0);
    let edited = if posture { examples::of(&edited)? } else { Vec::new() };
    let mut needs = Vec::new();
    for text in &texts {
        for unit in units(text) {
            let line = need(JudgedLine { text: text.clone(), units: vec![unit], ..JudgedLine::default() });
            if posture {
                needs.push(Need { guarantee: SandboxGuarantee::READ_ONLY, ..line.clone() });
            }
            needs.push(line);
        }
        needs.push(need(JudgedLine { text: text.clone(), ..JudgedLine::default() }));
        needs.push(need(JudgedLine { text: text.clone(), opaque: Some(String::new()), ..JudgedLine::default() }));
        needs.push(need(JudgedLine { text: text.clone(), unread: vec![text.clone()], ..JudgedLine::default() }));
    }
    needs.extend(spelled::commands(rules, changed, posture));
    // What an option of another program carries out, and what it changes.
    for path in &edited {
        let touches = vec![Need::new("edit", path.as_str())];
        let unit = Unit { carried: true, effect: Effect::Writes, touches, ..Unit::default() };
        let line = JudgedLine { units: vec![unit], ..JudgedLine::default() };
        let command = Some(Arc::new(line));
        needs.push(Need { permission: "bash".into(), patterns: vec![path.clone()], command, ..Need::default() });
    }
    Some(needs)
}

fn need(line: JudgedLine) -> Need {
    let text = line.units.first().map_or(&line.text, |unit| &unit.text).clone();
    Need { permission: "bash".into(), patterns: vec![text], command: Some(Arc::new(line)), ..Need::default() }
}

/// A command of these words, by all that it may do and all that may be doubtful about it.
fn units(text: &str) -> Vec<Unit> {
    use Effect::{Reads, Unproven, Writes};
    let plain = |effect| spelled::written(text, effect);
    let reason = || Some(String::new());
    let mut units: Vec<Unit> = [Reads, Unproven, Writes].map(plain).into();
    units.extend([Reads, Unproven, Writes].map(|effect| Unit { opaque: reason(), ..plain(effect) }));
    units.extend([Reads, Unproven, Writes].map(|effect| Unit { broad_only: reason(), ..plain(effect) }));
    units.push(Unit { carried: true, ..plain(Writes) });
    units.push(Unit { plans_only: true, ..plain(Writes) });
    units.push(Unit { foreign: reason(), ..plain(Unproven) });
    units.push(Unit { doubt: reason(), ..plain(Unproven) });
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    units.push(Unit { words: words.clone(), ..plain(Unproven) });
    units.extend(words.iter().skip(1).map(|word| Unit { dangers: vec![word.clone()], ..plain(Unproven) }));
    units.push(Unit { dangers: vec!["\u{1}".into()], ..plain(Unproven) });
    units.push(Unit { tails: words[1..].to_vec(), ..plain(Unproven) });
    units
}

/// Addresses that the patterns tell apart: every host they can mean, with every path.
fn addresses(patterns: &[Pattern]) -> Option<Vec<String>> {
    let mut hosts: Vec<String> = Vec::new();
    let (mut ports, mut paths, mut labels) = (vec![String::new()], Vec::new(), Vec::new());
    for (pattern, _) in patterns {
        let rest = pattern.split_once("://").map_or(pattern.as_str(), |(_, rest)| rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        paths.push((path.to_owned(), false));
        if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() {
            ports.push(format!(":{port}"));
        }
        labels.extend(host.to_ascii_lowercase().split('.').map(|label| (label.to_owned(), false)));
        hosts.push(host.to_ascii_lowercase());
    }
    let mut labels = examples::of(&distinct(labels.into_iter()))?;
    labels.retain(|label| !label.is_empty());
    let paths = distinct(paths.into_iter());
    // `*` alone and `*.x` are any number of labels; one and two are told apart from none.
    let hosts = hosts.iter().flat_map(|host| match host.strip_prefix("*.") {
        Some(tail) => vec![tail.to_owned(), host.clone(), format!("*.{host}")],
        None => vec![host.clone(), "*.*".into()],
    });
    let mut named: Vec<String> = Vec::new();
    for host in distinct(hosts) {
        let mut begun = vec![String::new()];
        for pattern in host.split('.') {
            let fits = labels.iter().filter(|label| wildcard::matches(pattern, label));
            let fits: Vec<&String> = fits.collect();
            begun = begun
                .iter()
                .flat_map(|begun| {
                    let dot = if begun.is_empty() { "" } else { "." };
                    fits.iter().map(move |label| format!("{begun}{dot}{label}"))
                })
                .collect();
            if named.len() + begun.len() > ADDRESSES {
                return None;
            }
        }
        named.extend(begun);
    }
    ports.sort_unstable();
    ports.dedup();
    let mut found = Vec::new();
    for host in distinct(named.into_iter()) {
        for start in ["http", "https"].iter().flat_map(|scheme| ports.iter().map(move |port| (scheme, port))) {
            let beginning = format!("{}://{host}{}", start.0, start.1);
            // A path is compared alone and, by a rule that asks or denies, with all that is before it.
            let below = paths.iter().map(|(path, folded)| (format!("{beginning}{path}"), *folded));
            let whole = distinct(patterns.iter().cloned().chain(below));
            found.extend(examples::after(&whole, &format!("{beginning}/"))?);
            if found.len() > ADDRESSES {
                return None;
            }
        }
    }
    Some(distinct(found.into_iter()))
}

#[cfg(test)]
mod tests;
