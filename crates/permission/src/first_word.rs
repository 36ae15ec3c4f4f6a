//! Compares the first word of a rule with the words of a command line, of which each may begin a
//! command.

use super::Rule;
use super::wildcard::UNKNOWN;

/// The number of full comparisons of one rule, and of compared bytes, after which the rule counts
/// as matching.
const MAX_COMPARISONS: usize = 64;
const MAX_COMPARED_BYTES: usize = 256 << 10;

/// Returns the first word of a pattern, up to its first blank or wildcard and without a directory.
pub(super) fn beginning(pattern: &str) -> &str {
    let word = pattern.split([' ', '*', '?']).next().unwrap_or_default();
    word.rsplit('/').next().unwrap_or_default()
}

pub(super) fn starts(word: &str, beginning: &str) -> bool {
    let mut letters = word.chars().flat_map(char::to_lowercase);
    beginning
        .chars()
        .flat_map(char::to_lowercase)
        .all(|letter| letters.next() == Some(letter))
}

/// Returns the position of the first word at which a command begins that the rule matches.
pub(super) fn begins_at(
    rule: &Rule,
    words: &[String],
    fits: &dyn Fn(&str) -> bool,
) -> Option<usize> {
    begins_with(beginning(&rule.pattern), words, fits)
}

/// Does the same as [`begins_at`] for a pattern whose first word is `first`.
pub(super) fn begins_with(
    first: &str,
    words: &[String],
    mut fits: impl FnMut(&str) -> bool,
) -> Option<usize> {
    let mut comparisons = 0;
    let mut bytes = 0;
    for (at, word) in words.iter().enumerate() {
        let base = word.rsplit('/').next().unwrap_or(word);
        let unknown = word.find(UNKNOWN);
        let may_begin = match unknown {
            // The unknown part may become anything.
            Some(known) => starts(first, &word[..known]) || starts(&word[..known], first),
            None => !first.is_empty() && starts(base, first),
        };
        // A pattern that begins with a wildcard matches from the first word on, or not at all.
        let is_wild = first.is_empty() && at == 0;
        if !may_begin && !is_wild {
            continue;
        }
        let rest = words[at + 1..].join(" ");
        comparisons += 1;
        bytes += rest.len();
        if comparisons > MAX_COMPARISONS || bytes > MAX_COMPARED_BYTES {
            return Some(at);
        }
        if fits(&with_rest(base, &rest))
            || (base.len() < word.len() && fits(&with_rest(word, &rest)))
        {
            return Some(at);
        }
    }
    None
}

/// Joins the first word of a command and the rest by a blank, if there is a rest.
pub(super) fn with_rest(first: &str, rest: &str) -> String {
    if rest.is_empty() {
        first.to_owned()
    } else {
        format!("{first} {rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, wildcard};
    use super::*;

    fn rule(pattern: &str) -> Rule {
        Rule {
            permission: "bash".into(),
            pattern: pattern.into(),
            action: Action::Deny,
            source: "test".into(),
        }
    }

    #[test]
    fn rule_matches_from_the_first_fitting_word() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let at = |pattern: &str, text: &str| {
            let fits = |text: &str| wildcard::matches_folded(pattern, text);
            begins_at(&rule(pattern), &words(text), &fits)
        };
        assert_eq!(at("rm *", "run image /bin/rm x"), Some(2));
        assert_eq!(at("rm -rf*", "run image rm x"), None);
        assert_eq!(at("*-rf x", "run image rm -rf x"), Some(0));
        assert_eq!(at("rm *", ""), None);
        assert_eq!(at("rm z", &"rm x ".repeat(500)), Some(128));
    }
}
