//! Compares rule sets: whether one is more permissive than others.
//!
//! The comparison evaluates example access requests under each set, one for everything that the
//! patterns of all sets distinguish.

mod spelled;

use std::sync::Arc;

use super::examples::{self, Pattern};
use super::rule::{BUILT_IN, POSTURE};
use super::shell::{CommandAnalysis, CommandUnit, Effect};
use super::url::PERMISSION as ADDRESS;
use super::{AccessRequest, Action, PathUse, Rule, Rules, SandboxGuarantee, evaluate, wildcard};

/// The number of addresses after which the comparison gives up.
const MAX_ADDRESSES: usize = 20_000;

/// An access request that gets a more permissive verdict than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MorePermissive {
    /// The permission of the access request.
    pub permission: String,
    /// The pattern of the access request. `None` if there are too many patterns to compare, so that
    /// a more permissive verdict has to be assumed.
    pub pattern: Option<String>,
}

/// Finds an access request for which `with` is more permissive than each of `without`, and whose
/// former verdict was at least `least`.
///
/// If `without` is empty, everything was denied before.
pub fn find_more_permissive(
    with: &Rules,
    without: &[&Rules],
    least: Action,
) -> Option<MorePermissive> {
    find(with, without, least, true)
}

/// Does the same as [`find_more_permissive`]. With `pruned`, access requests whose verdict cannot
/// have changed are skipped.
fn find(with: &Rules, without: &[&Rules], least: Action, pruned: bool) -> Option<MorePermissive> {
    let sets: Vec<&Rules> = [with].into_iter().chain(without.iter().copied()).collect();
    let Some(keys) = keys(&sets) else {
        return Some(MorePermissive {
            permission: "*".into(),
            pattern: None,
        });
    };
    keys.into_iter().find_map(|key| {
        // Equal rules give equal verdicts.
        if pruned
            && without.iter().any(|other| {
                about(other, &key)
                    .map(content)
                    .eq(about(with, &key).map(content))
            })
        {
            return None;
        }
        let changed = if pruned {
            let changes = without
                .iter()
                .filter_map(|other| Changed::between(with, other, &key));
            changes.min_by_key(|changed| changed.added.len() + changed.removed.len())
        } else {
            None
        };
        let Some(requests) = requests(&key, &sets, changed.as_ref()) else {
            return Some(MorePermissive {
                permission: key,
                pattern: None,
            });
        };
        // Every access request is evaluated under all sets, so irrelevant rules are dropped
        // beforehand.
        let relevant = |rules: &Rules| -> Rules {
            let is_edit_rule =
                |rule: &&Rule| key == "bash" && wildcard::matches(&rule.permission, "edit");
            rules
                .iter()
                .filter(|rule| has_part(rule, &key) || is_edit_rule(rule))
                .cloned()
                .collect()
        };
        let ours = relevant(with);
        let theirs: Vec<Rules> = without.iter().map(|other| relevant(other)).collect();
        let found = requests.iter().find(|request| {
            let now = action_of(&ours, request);
            if now == Action::Deny {
                return false;
            }
            let before = theirs
                .iter()
                .map(|other| action_of(other, request))
                .min()
                .unwrap_or(Action::Deny);
            before >= least && now < before
        })?;
        Some(MorePermissive {
            pattern: found.patterns.first().cloned(),
            permission: key,
        })
    })
}

fn action_of(rules: &Rules, request: &AccessRequest) -> Action {
    evaluate(rules, &Rules::default(), request).action
}

/// Returns the content of a rule, without its source unless that is built in.
fn content(rule: &Rule) -> (&str, &str, Action, bool) {
    (
        &rule.permission,
        &rule.pattern,
        rule.action,
        rule.source == BUILT_IN,
    )
}

/// Returns the rules that affect the verdict on a permission.
fn about<'r>(rules: &'r Rules, key: &str) -> impl Iterator<Item = &'r Rule> {
    rules.iter().filter(move |rule| has_part(rule, key))
}

fn has_part(rule: &Rule, key: &str) -> bool {
    key == "bash" && rule.permission == POSTURE.0 || wildcard::matches(&rule.permission, key)
}

/// The difference between two rule sets on one permission. Access requests that match none
/// of the changed rules have the same verdict under both.
struct Changed<'r> {
    added: Vec<&'r Rule>,
    removed: Vec<&'r Rule>,
    /// All rules of the first set, in order.
    with: Vec<&'r Rule>,
}

impl<'r> Changed<'r> {
    /// Returns `None` if a verdict depends on more than the rules that match: on the read-only
    /// posture, and on whether anything is denied at all.
    fn between(with: &'r Rules, other: &'r Rules, key: &str) -> Option<Self> {
        let with: Vec<&Rule> = about(with, key).collect();
        let other: Vec<&Rule> = about(other, key).collect();
        let mut left = other.as_slice();
        let mut added = Vec::new();
        for rule in &with {
            match left.split_first() {
                Some((first, rest)) if content(first) == content(rule) => left = rest,
                _ => added.push(*rule),
            }
        }
        if !left.is_empty() {
            // The order differs or a rule is removed, so only the common beginning and end are
            // unchanged.
            let start = with
                .iter()
                .zip(&other)
                .take_while(have_same_content)
                .count();
            let ours = &with[start..];
            let theirs = &other[start..];
            let end = ours
                .iter()
                .rev()
                .zip(theirs.iter().rev())
                .take_while(have_same_content)
                .count();
            added = ours[..ours.len() - end].to_vec();
            left = &theirs[..theirs.len() - end];
        }
        let is_posture = |rule: &Rule| key == "bash" && rule.permission == POSTURE.0;
        let is_deny =
            |rule: &Rule| key == "bash" && rule.action == Action::Deny && rule.pattern != "*";
        let affects_all = added.iter().chain(left).any(|rule| is_posture(rule))
            || left.iter().any(|rule| is_deny(rule));
        if affects_all {
            return None;
        }
        Some(Self {
            added,
            removed: left.to_vec(),
            with,
        })
    }

    fn contains(&self, pattern: &Pattern) -> bool {
        let is_same_pattern =
            |rule: &&&Rule| rule.pattern == pattern.0 && (rule.action == Action::Deny) == pattern.1;
        self.added
            .iter()
            .chain(&self.removed)
            .any(|rule| is_same_pattern(&rule))
    }

    /// Returns whether a command may become more permissive that matches an allow or ask with
    /// `pattern`, and the rule `within` for a command in it. That needs the first to be new, later
    /// and no broader than the second.
    fn may_permit_more(&self, pattern: &str, within: &Rule) -> bool {
        if self
            .removed
            .iter()
            .any(|rule| content(rule) == content(within))
        {
            return true;
        }
        let last_within = self
            .with
            .iter()
            .rposition(|rule| content(rule) == content(within));
        let mut new = self
            .added
            .iter()
            .filter(|rule| rule.pattern == pattern && rule.action < within.action);
        new.any(|rule| {
            let is_later = self
                .with
                .iter()
                .rposition(|other| std::ptr::eq(*other, *rule))
                > last_within;
            is_later && !(within.action == Action::Deny && rule.broader_than(within))
        })
    }
}

fn have_same_content((one, other): &(&&Rule, &&Rule)) -> bool {
    content(one) == content(other)
}

/// Returns example permission keys for everything that the rules distinguish, and the keys that are
/// judged specially.
fn keys(sets: &[&Rules]) -> Option<Vec<String>> {
    let own = ["bash", "read", "edit", ADDRESS];
    let patterns = sets
        .iter()
        .flat_map(|rules| rules.iter())
        .map(|rule| (rule.permission.clone(), false));
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

/// Returns example access requests for everything that the rules about a permission distinguish.
/// `None` if there are too many.
fn requests(
    key: &str,
    sets: &[&Rules],
    changed: Option<&Changed<'_>>,
) -> Option<Vec<AccessRequest>> {
    let rules: Vec<&Rule> = sets.iter().flat_map(|rules| about(rules, key)).collect();
    let patterns = distinct(
        rules
            .iter()
            .map(|rule| (rule.pattern.clone(), rule.action == Action::Deny)),
    );
    let texts = match changed {
        Some(changed) => examples::matching(&patterns, &|pattern| changed.contains(pattern))?,
        None => examples::of(&patterns)?,
    };
    let plain = |text: &String| AccessRequest::new(key, text.as_str());
    Some(match key {
        "bash" => commands(texts, &rules, sets, changed)?,
        // A secret is asked about unless a rule names it.
        "read" => {
            let secret = |request: AccessRequest| AccessRequest {
                minimum: Some((Action::Ask, String::new())),
                ..request
            };
            texts
                .iter()
                .map(plain)
                .chain(texts.iter().map(plain).map(secret))
                .collect()
        }
        ADDRESS => texts
            .iter()
            .chain(&addresses(&patterns)?)
            .map(plain)
            .collect(),
        _ => texts.iter().map(plain).collect(),
    })
}

/// Returns commands with these texts, each in every form in which a rule may see a command, and
/// commands that rules know under several names.
fn commands(
    mut texts: Vec<String>,
    rules: &[&Rule],
    sets: &[&Rules],
    changed: Option<&Changed<'_>>,
) -> Option<Vec<AccessRequest>> {
    texts.sort_unstable();
    texts.dedup();
    let edited = sets.iter().flat_map(|rules| about(rules, "edit"));
    let edited = distinct(edited.map(|rule| (rule.pattern.clone(), rule.action == Action::Deny)));
    let posture = rules.iter().any(|rule| rule.permission == POSTURE.0);
    let edited = if posture {
        examples::of(&edited)?
    } else {
        Vec::new()
    };
    let mut requests = Vec::new();
    for text in &texts {
        for unit in units(text) {
            let line = of_command(CommandAnalysis {
                text: text.clone(),
                units: vec![unit],
                ..CommandAnalysis::default()
            });
            if posture {
                requests.push(AccessRequest {
                    guarantee: SandboxGuarantee::READ_ONLY,
                    ..line.clone()
                });
            }
            requests.push(line);
        }
        requests.push(of_command(CommandAnalysis {
            text: text.clone(),
            ..CommandAnalysis::default()
        }));
        requests.push(of_command(CommandAnalysis {
            text: text.clone(),
            opaque: Some(String::new()),
            ..CommandAnalysis::default()
        }));
        requests.push(of_command(CommandAnalysis {
            text: text.clone(),
            unparsed_texts: vec![text.clone()],
            ..CommandAnalysis::default()
        }));
    }
    requests.extend(spelled::commands(rules, changed, posture));
    // Commands and changes that an option of another program carries.
    for path in &edited {
        let touches = vec![PathUse::new("edit", path.as_str())];
        let unit = CommandUnit {
            is_conditional: true,
            effect: Effect::Writes,
            path_uses: touches,
            ..CommandUnit::default()
        };
        let line = CommandAnalysis {
            units: vec![unit],
            ..CommandAnalysis::default()
        };
        let command = Some(Arc::new(line));
        requests.push(AccessRequest {
            permission: "bash".into(),
            patterns: vec![path.clone()],
            command,
            ..AccessRequest::default()
        });
    }
    Some(requests)
}

fn of_command(line: CommandAnalysis) -> AccessRequest {
    let text = line
        .units
        .first()
        .map_or(&line.text, |unit| &unit.text)
        .clone();
    AccessRequest {
        permission: "bash".into(),
        patterns: vec![text],
        command: Some(Arc::new(line)),
        ..AccessRequest::default()
    }
}

/// Returns a command with these words, once for every effect and every kind of uncertainty.
fn units(text: &str) -> Vec<CommandUnit> {
    use Effect::{Reads, Unproven, Writes};
    let plain = |effect| spelled::written(text, effect);
    let reason = || Some(String::new());
    let mut units: Vec<CommandUnit> = [Reads, Unproven, Writes].map(plain).into();
    units.extend([Reads, Unproven, Writes].map(|effect| CommandUnit {
        opaque: reason(),
        ..plain(effect)
    }));
    units.extend([Reads, Unproven, Writes].map(|effect| CommandUnit {
        catch_all_only: reason(),
        ..plain(effect)
    }));
    units.push(CommandUnit {
        is_conditional: true,
        ..plain(Writes)
    });
    units.push(CommandUnit {
        writes_only_plans: true,
        ..plain(Writes)
    });
    units.push(CommandUnit {
        untrusted_program: reason(),
        ..plain(Unproven)
    });
    units.push(CommandUnit {
        may_be_denied: reason(),
        ..plain(Unproven)
    });
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    units.push(CommandUnit {
        unknown_program_words: words.clone(),
        ..plain(Unproven)
    });
    units.extend(words.iter().skip(1).map(|word| CommandUnit {
        dangerous_options: vec![word.clone()],
        ..plain(Unproven)
    }));
    units.push(CommandUnit {
        dangerous_options: vec!["\u{1}".into()],
        ..plain(Unproven)
    });
    units.push(CommandUnit {
        possible_starts: words[1..].to_vec(),
        ..plain(Unproven)
    });
    units
}

/// Returns addresses that the patterns distinguish: every host that they can mean, with every path.
fn addresses(patterns: &[Pattern]) -> Option<Vec<String>> {
    let mut hosts: Vec<String> = Vec::new();
    let mut ports = vec![String::new()];
    let mut paths = Vec::new();
    let mut labels = Vec::new();
    for (pattern, _) in patterns {
        let rest = pattern
            .split_once("://")
            .map_or(pattern.as_str(), |(_, rest)| rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        paths.push((path.to_owned(), false));
        if port.bytes().all(|byte| byte.is_ascii_digit()) && !port.is_empty() {
            ports.push(format!(":{port}"));
        }
        labels.extend(
            host.to_ascii_lowercase()
                .split('.')
                .map(|label| (label.to_owned(), false)),
        );
        hosts.push(host.to_ascii_lowercase());
    }
    let mut labels = examples::of(&distinct(labels.into_iter()))?;
    labels.retain(|label| !label.is_empty());
    let paths = distinct(paths.into_iter());
    // `*` alone and `*.x` match any number of labels; none, one and two are distinguished.
    let hosts = hosts.iter().flat_map(|host| match host.strip_prefix("*.") {
        Some(tail) => vec![tail.to_owned(), host.clone(), format!("*.{host}")],
        None => vec![host.clone(), "*.*".into()],
    });
    let mut named: Vec<String> = Vec::new();
    for host in distinct(hosts) {
        let mut prefixes = vec![String::new()];
        for pattern in host.split('.') {
            let fits = labels
                .iter()
                .filter(|label| wildcard::matches(pattern, label));
            let fits: Vec<&String> = fits.collect();
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| {
                    let dot = if prefix.is_empty() { "" } else { "." };
                    fits.iter()
                        .map(move |label| format!("{prefix}{dot}{label}"))
                })
                .collect();
            if named.len() + prefixes.len() > MAX_ADDRESSES {
                return None;
            }
        }
        named.extend(prefixes);
    }
    ports.sort_unstable();
    ports.dedup();
    let mut found = Vec::new();
    for host in distinct(named.into_iter()) {
        for start in ["http", "https"]
            .iter()
            .flat_map(|scheme| ports.iter().map(move |port| (scheme, port)))
        {
            let beginning = format!("{}://{host}{}", start.0, start.1);
            // A path is compared alone and, by a rule that asks or denies, with the whole address.
            let below = paths
                .iter()
                .map(|(path, folded)| (format!("{beginning}{path}"), *folded));
            let whole = distinct(patterns.iter().cloned().chain(below));
            found.extend(examples::after(&whole, &format!("{beginning}/"))?);
            if found.len() > MAX_ADDRESSES {
                return None;
            }
        }
    }
    Some(distinct(found.into_iter()))
}

#[cfg(test)]
mod tests;
