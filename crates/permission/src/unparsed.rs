//! Searches unparsed command text for denied commands.
//!
//! Text is left unparsed if it is too long, or if it is unknown which of its words name a program.
//! The search makes one pass over the words, and compares a whole pattern only at words that match
//! the first word of the pattern.

use super::first_word::{beginning, starts, with_rest};
use super::rule_index::{IndexedRule, RulesAbout};
use super::shell::programs::carries;
use super::shell::segments::{split_commands, without_quotes};
use super::{Rule, wildcard};

/// Returns the first deny in force that matches a command in a text, and that command.
///
/// Quotes are removed, not parsed, so quoted text may be taken for a command. After a program that
/// runs others, every word may begin a command.
pub(super) fn find_denied<'r>(
    rules: &RulesAbout<'r>,
    text: &str,
    is_in_force: &dyn Fn(IndexedRule<'r>, &str) -> bool,
) -> Option<(&'r Rule, String)> {
    for segment in split_commands(text) {
        let denies =
            |placed: &IndexedRule<'r>| matches(placed.1, segment) && is_in_force(*placed, segment);
        if let Some((_, rule)) = rules.wordless_denies(segment).into_iter().find(denies) {
            return Some((rule, segment.to_owned()));
        }
        let mut after_carrier = false;
        let mut rest = segment;
        while let Some(word) = rest.split_ascii_whitespace().next() {
            let at = rest.find(word).unwrap_or_default();
            let here = &rest[at..];
            rest = &here[word.len()..];
            let bare = without_quotes(word);
            let base = bare.rsplit('/').next().unwrap_or(&bare);
            let hit = rules
                .denies_beginning_with(base)
                .into_iter()
                .find_map(|placed| {
                    if !starts(base, beginning(&placed.1.pattern)) {
                        return None;
                    }
                    let rest = without_quotes(rest.trim());
                    let denies =
                        |text: &String| matches(placed.1, text) && is_in_force(placed, text);
                    [with_rest(base, &rest), with_rest(&bare, &rest)]
                        .into_iter()
                        .find(denies)
                        .map(|text| (placed.1, text))
                });
            if hit.is_some() {
                return hit;
            }
            after_carrier |= carries(base);
            let precedes_command =
                bare.contains('=') || bare.starts_with(['<', '>', '-']) || word == "$";
            if !after_carrier && !precedes_command {
                break;
            }
        }
    }
    None
}

fn matches(rule: &Rule, text: &str) -> bool {
    wildcard::matches_folded(&rule.pattern, text)
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Rule, Rules};
    use super::find_denied;

    fn rule(pattern: &str) -> Rule {
        Rule {
            permission: "bash".into(),
            pattern: pattern.into(),
            action: Action::Deny,
            source: "test".into(),
        }
    }

    #[test]
    fn denied_commands_in_texts_are_found() {
        let table = [
            ("ls; rm x", "rm *", true),
            ("ls; RM x", "rm *", true),
            ("ls; r'm' x", "rm *", true),
            ("ls; /bin/rm x", "rm *", true),
            ("ls\nA=1 >f rm x", "rm *", true),
            ("ls && sudo -u root rm x", "rm *", true),
            ("xargs -I{} sh -c 'rm {}'", "rm *", true),
            ("echo $(rm x)", "rm *", true),
            ("if true; then rm x; fi", "rm*", true),
            ("ls; git push --force", "git push*", true),
            ("ls; cat .env", "*.env", true),
            ("ls; echo rm x", "rm *", false),
            ("ls # rm x", "rm *", false),
            ("ls; # rm x", "rm *", false),
            ("ls; rmdir x", "rm *", false),
            ("ls; git pull", "git push*", false),
            ("", "rm *", false),
        ];
        for (text, pattern, found) in table {
            let rules = Rules::from(vec![rule(pattern)]);
            assert_eq!(
                find_denied(&rules.rules_about("bash"), text, &|_, _| true).is_some(),
                found,
                "{text} against {pattern}"
            );
        }
        let rules = Rules::from(vec![rule("rm *")]);
        assert!(find_denied(&rules.rules_about("bash"), "rm x", &|_, _| false).is_none());
    }
}
