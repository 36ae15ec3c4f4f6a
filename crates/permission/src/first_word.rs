//! The word that a rule about commands begins with, looked for among words of which each may begin a command.

use super::Rule;
use super::wildcard::UNKNOWN;

/// How often, and over how many bytes, one rule is compared in full. What is found more often than
/// that counts as found.
const TRIES: usize = 64;
const BYTES: usize = 256 << 10;

/// Returns the beginning of a pattern: what stands before its first blank or wildcard, without a path.
pub(super) fn beginning(pattern: &str) -> &str {
    let word = pattern.split([' ', '*', '?']).next().unwrap_or_default();
    word.rsplit('/').next().unwrap_or_default()
}

pub(super) fn starts(word: &str, beginning: &str) -> bool {
    let mut letters = word.chars().flat_map(char::to_lowercase);
    beginning.chars().flat_map(char::to_lowercase).all(|letter| letters.next() == Some(letter))
}

/// From which of these words on a rule speaks about a command.
pub(super) fn begins_at(rule: &Rule, words: &[String], fits: &dyn Fn(&str) -> bool) -> Option<usize> {
    begins_with(beginning(&rule.pattern), words, fits)
}

/// The same for a pattern that begins with the word `first`.
pub(super) fn begins_with(first: &str, words: &[String], mut fits: impl FnMut(&str) -> bool) -> Option<usize> {
    let (mut tries, mut bytes) = (0, 0);
    for (at, word) in words.iter().enumerate() {
        let base = word.rsplit('/').next().unwrap_or(word);
        let unknown = word.find(UNKNOWN);
        let may = match unknown {
            // What the unknown part becomes could be anything.
            Some(known) => starts(first, &word[..known]) || starts(&word[..known], first),
            None => !first.is_empty() && starts(base, first),
        };
        // A pattern that begins with a wildcard matches from the first word on, or nowhere.
        let wild = first.is_empty() && at == 0;
        if !may && !wild {
            continue;
        }
        let rest = words[at + 1..].join(" ");
        let whole = |first: &str| if rest.is_empty() { first.to_owned() } else { format!("{first} {rest}") };
        tries += 1;
        bytes += rest.len();
        if tries > TRIES || bytes > BYTES || fits(&whole(base)) || (base.len() < word.len() && fits(&whole(word))) {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Action, wildcard};
    use super::*;

    fn rule(pattern: &str) -> Rule {
        Rule { permission: "bash".into(), pattern: pattern.into(), action: Action::Deny, source: "test".into() }
    }

    #[test]
    fn from_which_word_on() {
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
