//! What is odd about rules people wrote. Nothing here changes what they mean.

use super::rule::BUILT_IN;
use super::{Action, Rules, wildcard};

/// Something to be told about a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    /// The rule's place in the list.
    pub at: usize,
    /// Where it was written.
    pub source: String,
    /// It does what it says, but may say more than was meant.
    pub works: bool,
    /// What is odd, and what to do.
    pub message: String,
}

/// Looks at the rules people wrote; the program's own are left out.
pub fn lint(rules: &Rules) -> Vec<Lint> {
    let mut lints = vec![];
    let written = rules.0.iter().enumerate().filter(|(_, rule)| rule.source != BUILT_IN);
    for (at, rule) in written {
        let told = |message: String| Lint { at, source: rule.source.clone(), works: false, message };
        let name = format!("{} \"{}\": {}", rule.permission, rule.pattern, super::explain::word(rule.action));
        let covers = |other: &super::Rule| {
            wildcard::covers(&other.permission, &rule.permission) && wildcard::covers(&other.pattern, &rule.pattern)
        };
        // A later rule that says everything this one says decides in its place, unless this one is a
        // deny that a broader rule does not lift.
        let later = rules.0[at + 1..]
            .iter()
            .find(|other| covers(other) && !(rule.action == Action::Deny && other.broader_than(rule)));
        let standing = rules.0[..at].iter().find(|other| {
            other.action == Action::Deny
                && rule.action != Action::Deny
                && rule.broader_than(other)
                && other.pattern != "*"
        });
        if rule.pattern.trim().is_empty() || rule.permission.trim().is_empty() {
            lints.push(told(format!("{name} matches nothing: its pattern is empty; \"*\" matches everything")));
        } else if let Some(other) = later {
            lints.push(told(format!("{name} never decides: \"{}\" comes later and covers it", other.pattern)));
        } else if let Some(deny) = standing.filter(|_| rule.pattern != "*") {
            lints.push(told(format!("{name} does not lift \"{}\": deny, which is narrower", deny.pattern)));
        }
        let bash = wildcard::matches(&rule.permission, "bash") && rule.permission != "*";
        // An ask or a deny that speaks about more does no harm.
        if bash
            && rule.action == Action::Allow
            && let Some(word) = rule.pattern.strip_suffix('*')
            && !word.starts_with('*')
            && word.ends_with(|c: char| c.is_alphanumeric())
        {
            let message = format!(
                "{name} also speaks about every longer word that starts like that; \"{word} *\" keeps to the word"
            );
            lints.push(Lint { works: true, ..told(message) });
        }
    }
    lints
}

#[cfg(test)]
mod tests {
    use super::super::rule::{RuleValue, from_object};
    use super::*;

    fn bash(rules: &[(&str, Action)]) -> Rules {
        let map = rules.iter().map(|(pattern, action)| ((*pattern).to_owned(), *action)).collect();
        from_object(&[("bash".to_owned(), RuleValue::Map(map))], "test", None)
    }

    #[test]
    fn odd_rules() {
        use Action::{Allow, Ask, Deny};
        type Row = (&'static [(&'static str, Action)], &'static [&'static str]);
        let table: [Row; 8] = [
            (&[("", Allow)], &["matches nothing"]),
            (&[(" ", Deny), ("ls *", Ask)], &["matches nothing"]),
            (&[("rm *", Deny), ("*", Allow)], &[]),
            (&[("git push *", Ask), ("git *", Allow)], &["never decides"]),
            (&[("git push *", Deny), ("git *", Allow)], &["does not lift"]),
            (&[("ls*", Allow)], &["keeps to the word"]),
            (&[("a *", Allow), ("a *", Ask)], &["never decides"]),
            (&[("npm *", Allow), ("*install*", Deny)], &[]),
        ];
        for (rules, wanted) in table {
            let lints = lint(&bash(rules));
            let told: Vec<&str> = lints.iter().map(|lint| lint.message.as_str()).collect();
            assert_eq!(told.len(), wanted.len(), "{rules:?}: {told:?}");
            assert!(told.iter().zip(wanted).all(|(told, wanted)| told.contains(wanted)), "{rules:?}: {told:?}");
        }
    }
}
