//! Reports oddities of rules in the settings. Nothing here changes their meaning.

use std::path::Path;

use super::pattern_index::PatternIndex;
use super::rule::BUILT_IN;
use super::{Action, Rule, Rules, wildcard, written_line};

/// A remark on a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    /// The position of the rule in the list.
    pub rule_index: usize,
    /// The source of the rule.
    pub source: String,
    /// The kind of oddity.
    pub kind: LintKind,
    /// The oddity, and a suggestion.
    pub message: String,
}

/// A kind of oddity of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LintKind {
    /// Can match no object.
    MatchesNothing,
    /// Never decides, because a later rule covers it.
    NeverDecides,
    /// Does not lift an earlier deny, because that is narrower.
    LiftsNothing,
    /// Works, but also matches longer words.
    CoversLongerWords,
}

/// Returns remarks on the rules from the settings; built-in rules are skipped. `root` is the root
/// of the project, if there is one.
pub fn lint(rules: &Rules, root: Option<&Path>) -> Vec<Lint> {
    let mut lints = vec![];
    let all: Vec<&Rule> = rules.iter().collect();
    let index = PatternIndex::new(all.iter().map(|rule| &*rule.pattern));
    let denies_in_force = denies_in_force(&all, &index);
    let written = all
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.source != BUILT_IN);
    for (at, rule) in written {
        let lint = |kind, message: String| Lint {
            rule_index: at,
            source: rule.source.clone(),
            kind,
            message,
        };
        let name = format!(
            "{} \"{}\": {}",
            rule.permission,
            rule.pattern,
            super::explain::word(rule.action)
        );
        let covers = |other: &Rule| {
            wildcard::covers(&other.permission, &rule.permission)
                && wildcard::covers(&other.pattern, &rule.pattern)
        };
        // A later rule that covers this one decides instead, unless this one is a deny that a
        // broader rule does not lift.
        let decides_instead = |other: &Rule| {
            covers(other) && !(rule.action == Action::Deny && other.broader_than(rule))
        };
        let after = index
            .candidates(&rule.pattern)
            .filter(|position| *position > at);
        let later = after
            .filter(|position| decides_instead(all[*position]))
            .min()
            .map(|position| all[position])
            // One with the same action does no harm.
            .filter(|other| other.action != rule.action);
        let deny_in_force = denies_in_force[at].map(|position| all[position]);
        if rule.pattern.trim().is_empty() || rule.permission.trim().is_empty() {
            lints.push(lint(
                LintKind::MatchesNothing,
                format!("{name} matches nothing: its pattern is empty; \"*\" matches everything"),
            ));
        } else if let Some(other) = later {
            lints.push(lint(
                LintKind::NeverDecides,
                format!(
                    "{name} never decides: \"{}\" comes later and covers it",
                    other.pattern
                ),
            ));
        } else if let Some(deny) = deny_in_force
            && rule.pattern != "*"
        {
            lints.push(lint(
                LintKind::LiftsNothing,
                format!(
                    "{name} does not lift \"{}\": deny, which is narrower",
                    deny.pattern
                ),
            ));
        } else if let Some(why) = root.and_then(|root| fits_nothing(rule, root)) {
            lints.push(lint(
                LintKind::MatchesNothing,
                format!("{name} matches nothing: {why}"),
            ));
        }
        let bash = wildcard::matches(&rule.permission, "bash") && rule.permission != "*";
        if bash
            && rule.action == Action::Allow
            && let Some(why) = written_line::reason_against_line(&rule.pattern)
        {
            lints.push(lint(
                LintKind::MatchesNothing,
                format!("{name} allows no command line that is written like this: {why}"),
            ));
        }
        // An ask or a deny that matches more than intended does no harm.
        if bash
            && rule.action == Action::Allow
            && let Some(word) = rule.pattern.strip_suffix('*')
            && !word.starts_with('*')
            && word.ends_with(|c: char| c.is_alphanumeric())
        {
            let message = format!(
                "{name} also matches every longer word that begins with it; \"{word} *\" matches only the word"
            );
            lints.push(lint(LintKind::CoversLongerWords, message));
        }
    }
    lints
}

/// Returns for each rule the position of the first earlier deny that it does not lift, because it is
/// broader.
fn denies_in_force(all: &[&Rule], index: &PatternIndex<'_>) -> Vec<Option<usize>> {
    let mut in_force = vec![None; all.len()];
    let denies = all
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.action == Action::Deny && rule.pattern != "*");
    for (position, deny) in denies {
        for at in index.candidates(&deny.pattern) {
            let rule = all[at];
            let has_wildcard =
                rule.pattern.contains(['*', '?']) || rule.permission.contains(['*', '?']);
            if at > position
                && rule.action != Action::Deny
                && has_wildcard
                && in_force[at].is_none()
                && rule.broader_than(deny)
            {
                in_force[at] = Some(position);
            }
        }
    }
    in_force
}

/// Returns the reason why a rule about files can match no path. Paths are compared as they are
/// written from the project's root.
fn fits_nothing(rule: &Rule, root: &Path) -> Option<String> {
    let pattern = rule.pattern.replace('\\', "/");
    if !about_files(rule) || pattern.contains("://") {
        return None;
    }
    let own = root.display().to_string();
    if let Some(rest) = pattern
        .strip_prefix(&own)
        .filter(|rest| rest.starts_with('/') && rest.len() > 1)
    {
        return Some(format!(
            "paths in the project are written from its root, \"{}\"",
            &rest[1..]
        ));
    }
    // `../x` is a path outside the project.
    let inside = pattern.trim_start_matches("../");
    if inside.split('/').any(|part| part == "." || part == "..") || inside.contains("//") {
        return Some(
            "paths are compared without \".\", \"..\" in between and double slashes".to_owned(),
        );
    }
    if let Some(folder) = pattern
        .strip_suffix('/')
        .filter(|folder| !folder.is_empty())
    {
        return Some(format!(
            "no path ends with a slash; \"{folder}/*\" is what lies in it"
        ));
    }
    None
}

/// Returns the directory that a rule about files is restricted to if it does not exist. Reads the
/// disk.
pub fn missing_folder<'r>(rule: &'r Rule, root: &Path) -> Option<&'r str> {
    let plain = &rule.pattern[..rule.pattern.find(['*', '?']).unwrap_or(rule.pattern.len())];
    let folder = plain
        .rsplit_once('/')
        .map(|(folder, _)| folder)
        .filter(|folder| !folder.is_empty())?;
    (about_files(rule) && !root.join(folder).is_dir()).then_some(folder)
}

fn about_files(rule: &Rule) -> bool {
    let key = super::rule::modern(&rule.permission).unwrap_or(&rule.permission);
    ["read", "edit", "list"].contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_match_no_file_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("src/a")).unwrap();
        let inside = format!("{}/src/*", root.display());
        let table: [(&str, Option<&str>, Option<&str>); 11] = [
            ("src/**/*.ts", None, None),
            ("*.env", None, None),
            ("./src/*", Some("without \".\""), None),
            ("../*", None, None),
            ("a/../x", Some("without \".\""), None),
            ("src//a", Some("double slashes"), Some("src/")),
            ("src/", Some("\"src/*\""), None),
            (&inside, Some("\"src/*\""), None),
            ("/etc/*", None, None),
            ("scr/*", None, Some("scr")),
            ("src/a/b?/*", None, None),
        ];
        for (pattern, wanted, folder) in table {
            let rule = Rule {
                permission: "edit".into(),
                pattern: pattern.into(),
                action: Action::Deny,
                source: "test".into(),
            };
            let why = fits_nothing(&rule, root);
            assert_eq!(why.is_some(), wanted.is_some(), "{pattern}: {why:?}");
            assert!(
                why.is_none_or(|why| why.contains(wanted.unwrap_or_default())),
                "{pattern}"
            );
            if wanted.is_none() {
                assert_eq!(missing_folder(&rule, root), folder, "{pattern}");
            }
            let command = Rule {
                permission: "bash".into(),
                ..rule
            };
            assert_eq!(
                (fits_nothing(&command, root), missing_folder(&command, root)),
                (None, None),
                "{pattern}"
            );
        }
    }

    #[test]
    fn odd_rules_are_reported() {
        use Action::{Allow, Ask, Deny};
        type Row = (&'static [(&'static str, Action)], &'static [&'static str]);
        let table: [Row; 11] = [
            (&[("", Allow)], &["matches nothing"]),
            (&[(" ", Deny), ("ls *", Ask)], &["matches nothing"]),
            (&[("*", Allow), ("rm *", Deny)], &[]),
            (&[("git push *", Ask), ("git *", Allow)], &["never decides"]),
            (
                &[("git push *", Deny), ("git *", Allow)],
                &["does not lift"],
            ),
            (&[("ls*", Allow)], &["matches only the word"]),
            (&[("git commit -m 'x y'", Allow)], &[]),
            (&[("git commit -m '*'", Allow)], &["leave the quotes out"]),
            (&[("git commit -m '*'", Ask)], &[]),
            (&[("a *", Allow), ("a *", Ask)], &["never decides"]),
            (&[("npm *", Allow), ("*install*", Deny)], &[]),
        ];
        for (rules, wanted) in table {
            let lints = lint(&Rules::written("bash", rules), None);
            let messages: Vec<&str> = lints.iter().map(|lint| lint.message.as_str()).collect();
            assert_eq!(messages.len(), wanted.len(), "{rules:?}: {messages:?}");
            let is_wanted = messages
                .iter()
                .zip(wanted)
                .all(|(message, wanted)| message.contains(wanted));
            assert!(is_wanted, "{rules:?}: {messages:?}");
        }
    }
}
