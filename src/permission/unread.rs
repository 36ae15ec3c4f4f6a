//! Words that nobody took apart, because there are too many or because nobody knows which of them
//! begins a program: rules that deny are looked for in them as they stand. One pass over the words;
//! a rule is compared in full only where the word it begins with is found.

use super::rule_index::{PlacedRule, RulesAbout};
use super::shell::judge::carries;
use super::wildcard::UNKNOWN;
use super::{Rule, wildcard};

/// How often, and over how many bytes, one rule is compared in full. What is found more often than
/// that counts as found.
const TRIES: usize = 64;
const BYTES: usize = 256 << 10;

/// How a pattern begins: what stands before its first blank or wildcard, without a path.
pub(super) fn beginning(pattern: &str) -> &str {
    let word = pattern.split([' ', '*', '?']).next().unwrap_or_default();
    word.rsplit('/').next().unwrap_or_default()
}

fn starts(word: &str, beginning: &str) -> bool {
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
        let (base, unknown) = (word.rsplit('/').next().unwrap_or(word), word.find(UNKNOWN));
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

/// What may be commands in a text, quotes not read.
pub(super) fn commands(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| matches!(c, ';' | '&' | '|' | '\n' | '(' | ')' | '{' | '}' | '`');
    text.split(ends).map(str::trim).filter(|command| !command.is_empty())
}

/// A deny that speaks about a command in a text, and that command. Quotes are not read but left out,
/// so what stands in one may look like a command; a program that runs others may run any of its
/// words.
pub(super) fn denied<'r>(
    rules: &RulesAbout<'r>,
    text: &str,
    stands: &dyn Fn(PlacedRule<'r>, &str) -> bool,
) -> Option<(&'r Rule, String)> {
    for segment in commands(text) {
        let denies = |placed: &PlacedRule<'r>| speaks(placed.1, segment) && stands(*placed, segment);
        if let Some((_, rule)) = rules.wordless_denies(segment).into_iter().find(denies) {
            return Some((rule, segment.to_owned()));
        }
        let mut any = false;
        let mut rest = segment;
        while let Some(word) = rest.split_ascii_whitespace().next() {
            let at = rest.find(word).unwrap_or_default();
            let here = &rest[at..];
            rest = &here[word.len()..];
            let bare = bare(word);
            let base = bare.rsplit('/').next().unwrap_or(&bare);
            let hit = rules.denies_beginning_with(base).into_iter().find_map(|placed| {
                if !starts(base, beginning(&placed.1.pattern)) {
                    return None;
                }
                let rest = self::bare(rest.trim());
                let whole = |first: &str| if rest.is_empty() { first.to_owned() } else { format!("{first} {rest}") };
                let denies = |text: &String| speaks(placed.1, text) && stands(placed, text);
                [whole(base), whole(&bare)].into_iter().find(denies).map(|text| (placed.1, text))
            });
            if hit.is_some() {
                return hit;
            }
            any |= carries(base);
            let before = bare.contains('=') || bare.starts_with(['<', '>', '-']) || word == "$";
            if !any && !before {
                break;
            }
        }
    }
    None
}

fn speaks(rule: &Rule, text: &str) -> bool {
    wildcard::matches_folded(&rule.pattern, text)
}

/// A text without what quotes it.
pub(super) fn bare(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains(['\'', '"', '\\']) {
        text.replace("$'", "").replace("$\"", "").replace(['\'', '"', '\\'], "").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Rule, Rules};
    use super::{begins_at, denied};

    fn rule(pattern: &str) -> Rule {
        Rule { permission: "bash".into(), pattern: pattern.into(), action: Action::Deny, source: "test".into() }
    }

    #[test]
    fn what_stands_in_texts() {
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
            assert_eq!(denied(&rules.about("bash"), text, &|_, _| true).is_some(), found, "{text} against {pattern}");
        }
        let rules = Rules::from(vec![rule("rm *")]);
        assert!(denied(&rules.about("bash"), "rm x", &|_, _| false).is_none());
    }

    #[test]
    fn from_which_word_on() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let at = |pattern: &str, text: &str| {
            let fits = |text: &str| super::wildcard::matches_folded(pattern, text);
            begins_at(&rule(pattern), &words(text), &fits)
        };
        assert_eq!(at("rm *", "run image /bin/rm x"), Some(2));
        assert_eq!(at("rm -rf*", "run image rm x"), None);
        assert_eq!(at("*-rf x", "run image rm -rf x"), Some(0));
        assert_eq!(at("rm *", ""), None);
        assert_eq!(at("rm z", &"rm x ".repeat(500)), Some(128));
    }
}
