//! Words that nobody took apart, because there are too many or because nobody knows which of them
//! begins a program: rules that deny are looked for in them as they stand. One pass over the words;
//! a rule is compared in full only where the word it begins with is found.

use super::first_word::{beginning, starts};
use super::rule_index::{IndexedRule, RulesAbout};
use super::shell::judge::carries;
use super::{Rule, wildcard};

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
    stands: &dyn Fn(IndexedRule<'r>, &str) -> bool,
) -> Option<(&'r Rule, String)> {
    for segment in commands(text) {
        let denies = |placed: &IndexedRule<'r>| speaks(placed.1, segment) && stands(*placed, segment);
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
    use super::denied;

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
}
