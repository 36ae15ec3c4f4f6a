//! Whether one set of rules lets through what others stop. It is decided by judging: one need for
//! everything that the patterns of all sets tell apart is evaluated under each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::examples::{self, Pattern};
use super::rule::{BUILT_IN, POSTURE};
use super::shell::{Effect, Line, Unit};
use super::url::PERMISSION as ADDRESS;
use super::{Action, Need, Rule, Rules, evaluate, wildcard};

/// How many addresses are judged before it is given up.
const ADDRESSES: usize = 20_000;

/// A need that gets a laxer verdict than it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Laxer {
    /// The permission's key.
    pub permission: String,
    /// What it would touch; none where the patterns are too many to find out, so that it has to be
    /// supposed.
    pub pattern: Option<String>,
}

/// Finds a need for which `with` is laxer than each of `without`, of which at least `least` was the
/// verdict. Where there is nothing to compare with, everything was denied.
pub fn laxer(with: &Rules, without: &[&Rules], least: Action) -> Option<Laxer> {
    let sets: Vec<&Rules> = [with].into_iter().chain(without.iter().copied()).collect();
    let Some(keys) = keys(&sets) else { return Some(Laxer { permission: "*".into(), pattern: None }) };
    keys.into_iter().find_map(|key| {
        // Rules that say the same judge the same.
        if without.iter().any(|other| about(other, &key).map(said).eq(about(with, &key).map(said))) {
            return None;
        }
        let changed = without.iter().filter_map(|other| Changed::between(with, other, &key));
        let changed = changed.min_by_key(|changed| changed.added.len() + changed.gone.len());
        let Some(needs) = needs(&key, &sets, changed.as_ref()) else {
            return Some(Laxer { permission: key, pattern: None });
        };
        let judge = |rules: &Rules, need: &Need| evaluate(rules, &Rules::default(), need).action;
        let found = needs.iter().find(|need| {
            let now = judge(with, need);
            let before = || without.iter().map(|other| judge(other, need)).min().unwrap_or(Action::Deny);
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
    rules.0.iter().filter(move |rule| {
        let posture = key == "bash" && rule.permission == POSTURE.0;
        posture || wildcard::matches(&rule.permission, key)
    })
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
    let patterns = sets.iter().flat_map(|rules| &rules.0).map(|rule| (rule.permission.clone(), false));
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

/// Commands that are spelled like the texts, each as everything that a command can be to a rule.
fn commands(
    mut texts: Vec<String>,
    rules: &[&Rule],
    sets: &[&Rules],
    changed: Option<&Changed<'_>>,
) -> Option<Vec<Need>> {
    let opens = |rule: &&&Rule| rule.action != Action::Deny && rule.pattern != "*";
    let asking = |rule: &&&Rule| rule.action != Action::Allow && rule.pattern != "*";
    // A rule that asks or denies also speaks about a program by its name without the path, and about
    // what another program may start.
    let within = rules.iter().filter(asking).map(|rule| ((&rule.pattern, rule.action), *rule));
    let within: BTreeMap<(&String, Action), &Rule> = within.collect();
    for rule in distinct(rules.iter().filter(opens).map(|rule| &rule.pattern)) {
        for ((pattern, action), stops) in &within {
            if changed.is_some_and(|changed| !changed.lifts(rule, stops)) {
                continue;
            }
            let folded = *action == Action::Deny;
            for before in ["*/", "* "] {
                let both: [Pattern; 2] = [(rule.clone(), false), (format!("{before}{pattern}"), folded)];
                texts.extend(examples::of(&both)?);
            }
        }
    }
    // One that asks is also an exception from the read-only posture.
    for rule in changed.iter().flat_map(|changed| &changed.added).filter(|rule| rule.action == Action::Ask) {
        texts.extend(examples::of(&[(format!("* {}", rule.pattern), false)])?);
    }
    texts.sort_unstable();
    texts.dedup();
    let edited = sets.iter().flat_map(|rules| about(rules, "edit"));
    let edited = distinct(edited.map(|rule| (rule.pattern.clone(), rule.action == Action::Deny)));
    let posture = rules.iter().any(|rule| rule.permission == POSTURE.0);
    let edited = if posture { examples::of(&edited)? } else { Vec::new() };
    let mut needs = Vec::new();
    for text in &texts {
        let line = |line: Line| Need {
            permission: "bash".into(),
            patterns: vec![text.clone()],
            command: Some(Arc::new(line)),
            ..Need::default()
        };
        for unit in units(text) {
            let line = line(Line { text: text.clone(), units: vec![unit], ..Line::default() });
            if posture {
                needs.push(Need { kept: true, ..line.clone() });
            }
            needs.push(line);
        }
        needs.push(line(Line { text: text.clone(), ..Line::default() }));
        needs.push(line(Line { text: text.clone(), opaque: Some(String::new()), ..Line::default() }));
        needs.push(line(Line { unread: vec![text.clone()], ..Line::default() }));
    }
    // What an option of another program carries out, and what it changes.
    for path in &edited {
        let touches = vec![Need::new("edit", path.as_str())];
        let unit = Unit { carried: true, effect: Effect::Writes, touches, ..Unit::default() };
        let line = Line { units: vec![unit], ..Line::default() };
        let command = Some(Arc::new(line));
        needs.push(Need { permission: "bash".into(), patterns: vec![path.clone()], command, ..Need::default() });
    }
    Some(needs)
}

/// A command of these words, by all that it may do and all that may be doubtful about it.
fn units(text: &str) -> Vec<Unit> {
    use Effect::{Reads, Unproven, Writes};
    let (program, rest) = text.split_once(' ').map_or((text, None), |(program, rest)| (program, Some(rest)));
    let name = program.rsplit_once('/').map(|(_, name)| match rest {
        Some(rest) => format!("{name} {rest}"),
        None => name.to_owned(),
    });
    let plain = |effect| Unit {
        text: text.to_owned(),
        normal: text.to_owned(),
        program: (!program.is_empty()).then(|| program.to_owned()),
        names: name.clone().into_iter().collect(),
        effect,
        ..Unit::default()
    };
    let reason = || Some(String::new());
    let mut units: Vec<Unit> = [Reads, Unproven, Writes].map(plain).into();
    units.extend([Reads, Unproven, Writes].map(|effect| Unit { opaque: reason(), ..plain(effect) }));
    units.extend([Reads, Unproven, Writes].map(|effect| Unit { broad_only: reason(), ..plain(effect) }));
    units.push(Unit { carried: true, ..plain(Writes) });
    units.push(Unit { plans_only: true, ..plain(Writes) });
    units.push(Unit { foreign: reason(), ..plain(Unproven) });
    units.push(Unit { doubt: reason(), ..plain(Unproven) });
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
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
mod tests {
    use super::super::{Place, command_need};
    use super::*;
    use Action::{Allow, Ask, Deny};

    fn rules(rules: &[(&str, &str, Action)]) -> Rules {
        let rule = |(permission, pattern, action): &(&str, &str, Action)| Rule {
            permission: (*permission).into(),
            pattern: (*pattern).into(),
            action: *action,
            source: "test".into(),
        };
        Rules(rules.iter().map(rule).collect())
    }

    #[test]
    fn what_is_laxer() {
        type Rows = &'static [(&'static str, &'static str, Action)];
        // What holds, what comes after it, whether that lets something through.
        let table: [(Rows, Rows, bool); 24] = [
            (&[("bash", "*", Ask)], &[("ba?h", "*", Allow)], true),
            (&[("*", "*", Ask)], &[("server_*", "*", Allow)], true),
            (&[("*", "*", Allow)], &[("server_*", "*", Allow)], false),
            (&[("*", "*", Allow), ("edit", "*", Ask)], &[("ed?t", "*", Allow)], true),
            (&[("*", "*", Allow), ("edit", "*", Ask)], &[("web*", "*", Allow)], false),
            (&[("edit", "src/*", Deny)], &[("edit", "*", Ask)], false),
            (&[("*", "*", Allow), ("edit", "src/*", Deny)], &[("edit", "src/a*", Ask)], true),
            (&[("*", "*", Allow), ("edit", "src/*", Deny)], &[("edit", "lib/*", Ask)], false),
            (&[("*", "*", Allow), ("edit", "a*", Ask)], &[("edit", "*b", Allow)], true),
            (&[("*", "*", Allow), ("edit", "a", Ask)], &[("edit", "?", Allow)], true),
            (&[("*", "*", Allow), ("edit", "a", Ask)], &[("edit", "??", Allow)], false),
            (&[("*", "*", Allow)], &[("bash", "git push*", Ask), ("edit", "*", Deny)], false),
            (&[("*", "*", Allow), ("bash", "rm *", Ask)], &[("bash", "npm test", Allow)], false),
            (&[("*", "*", Allow), ("bash", "rm *", Ask)], &[("bash", "/bin/r*", Allow)], true),
            (&[("*", "*", Allow), ("bash", "rm *", Ask)], &[("bash", "xargs *", Allow)], true),
            (&[("bash", "*", Ask)], &[("posture", "read-only", Deny)], true),
            (&[("*", "*", Allow), ("bash", "*", Deny), ("bash", "git*", Allow)], &[("bash", "git*", Ask)], true),
            // A secret is asked about until a rule names it.
            (&[("*", "*", Allow)], &[("read", "src/*", Allow)], true),
            (&[("*", "*", Allow)], &[("read", "*", Allow)], false),
            (&[("webfetch", "*", Ask)], &[("webfetch", "https://*.example.org/*", Allow)], true),
            (&[("*", "*", Allow), ("webfetch", "https://a.org/x*", Ask)], &[("webfetch", "*.org", Allow)], true),
            (&[("*", "*", Allow), ("webfetch", "https://a.org/*", Ask)], &[("webfetch", "b.org", Allow)], false),
            (&[("*", "*", Allow), ("webfetch", "*secret*", Ask)], &[("webfetch", "b.org", Allow)], true),
            (&[("*", "*", Allow), ("webfetch", "*", Deny)], &[("webf*", "http://x:8080/", Ask)], true),
        ];
        for (before, after, wanted) in table {
            let before = rules(before);
            let with = before.clone().then(&rules(after));
            let found = laxer(&with, &[&before], Allow);
            assert_eq!(found.is_some(), wanted, "{before:?} then {after:?}: {found:?}");
        }
        let (ask, deny) = (rules(&[("*", "*", Ask)]), rules(&[("*", "*", Deny)]));
        assert!(laxer(&ask, &[&ask, &deny], Allow).is_none(), "the laxest of the others counts");
        assert!(laxer(&ask, &[], Allow).is_some(), "where there was nothing, everything was denied");
        assert!(laxer(&rules(&[("*", "*", Allow)]), &[&ask], Deny).is_none(), "only what was denied");
    }

    #[test]
    fn too_many_patterns_are_supposed_to_loosen() {
        let many: Vec<(String, String, Action)> =
            ('a'..='p').map(|c| ("edit".to_owned(), format!("*{c}{c}{c}*"), Ask)).collect();
        let many: Vec<(&str, &str, Action)> = many.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), *c)).collect();
        let (before, with) = (rules(&[("*", "*", Allow)]), rules(&many));
        assert!(laxer(&with, &[&before], Allow).is_some_and(|laxer| laxer.pattern.is_none()));
    }

    /// Whatever random need is judged laxer, it is found; where nothing is found, none is.
    #[test]
    fn nothing_is_missed() {
        let mut random = fastrand::Rng::with_seed(13);
        let place = Place { cwd: "/nowhere".into(), root: "/nowhere".into(), ..Place::default() };
        let keys = ["*", "bash", "ba?h", "edit", "e*", "read", "webfetch", "web*", "x_y", "?_*", "posture"];
        let texts = ["*", "a", "a*", "*a", "?", "a?", "*a*", "b", "A*", "a *", "a b", "b a", "/x/a", "*/a", "a/*", ""];
        let hosts = ["a.org", "*.org", "https://a.org/*", "*a*", "http://a.org:80/b", "*", "https://*/b"];
        let asked = ["bash", "edit", "read", "webfetch", "x_y", "question"];
        let lines = ["a", "b a", "a b", "/x/a", "/x/a b", "a > b", "b; a", "ls", "ls a", "touch a", "b $(a)", "$x a"];
        let urls = ["https://a.org/", "http://a.org/b", "https://b.a.org/ab", "https://b.org/a", "http://a.org:81/"];
        let (mut judged, mut found) = (0, 0);
        while judged < 20_000 {
            let mut some = |most: usize| {
                let one = |random: &mut fastrand::Rng| {
                    let key = keys[random.usize(..keys.len())];
                    let pattern = match key {
                        "posture" => "read-only",
                        "webfetch" | "web*" => hosts[random.usize(..hosts.len())],
                        _ => texts[random.usize(..texts.len())],
                    };
                    (key, pattern, [Allow, Ask, Deny][random.usize(..3)])
                };
                let count = random.usize(..=most);
                rules(&(0..count).map(|_| one(&mut random)).collect::<Vec<_>>())
            };
            let (mut before, project) = (some(5), some(3));
            if random.bool() {
                before = rules(&[("*", "*", Allow)]).then(&before);
            }
            let with = before.clone().then(&project);
            let verdict = laxer(&with, &[&before], Allow);
            found += usize::from(verdict.is_some());
            for _ in 0..25 {
                judged += 1;
                let key = asked[random.usize(..asked.len())];
                let word = |random: &mut fastrand::Rng| -> String {
                    (0..random.usize(..4)).map(|_| ['a', 'b', 'A', ' ', '/', 'z'][random.usize(..6)]).collect()
                };
                let need = match key {
                    "bash" => {
                        let need = command_need(lines[random.usize(..lines.len())], &place);
                        Need { kept: random.bool(), ..need }
                    }
                    "webfetch" => Need::new(key, urls[random.usize(..urls.len())]),
                    "read" if random.bool() => {
                        Need { floor: Some((Ask, String::new())), ..Need::new(key, word(&mut random)) }
                    }
                    _ => Need::new(key, word(&mut random)),
                };
                let judge = |rules: &Rules| evaluate(rules, &Rules::default(), &need).action;
                let laxer = judge(&with) < judge(&before);
                assert!(!laxer || verdict.is_some(), "{before:?}\nthen {project:?}\non {need:?}");
            }
        }
        assert!(found > 100 && found < 780, "{found}");
    }
}
