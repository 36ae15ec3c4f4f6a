//! The wildcard syntax of rules, case-sensitive and anchored at both ends.
//!
//! `*` matches any run of characters, including `/`; `?` matches one character. A trailing ` *`
//! also matches nothing at all, as does `**/` at the beginning of a path component. `\` reads as
//! `/`.

use std::borrow::Cow;

/// A placeholder in a text for words that are unknown until the command runs.
pub const UNKNOWN: char = '\0';

/// Returns whether the wildcard `pattern` of a rule matches `text`.
pub fn matches(pattern: &str, text: &str) -> bool {
    any_reading(pattern, |pattern| {
        prefix_fits(pattern, text, slash)
            && last_char_fits(pattern, text, slash)
            && run(
                pattern.chars().map(slash),
                text.chars().map(slash),
                fits_char,
            )
    })
}

/// Matches as [`matches`](fn@matches) does, but ignores case: for rules that deny.
pub fn matches_folded(pattern: &str, text: &str) -> bool {
    any_reading(pattern, |pattern| {
        prefix_fits(pattern, text, fold)
            && last_char_fits(pattern, text, fold)
            && run(pattern.chars().map(fold), text.chars().map(fold), fits_char)
    })
}

/// Returns whether the characters before the first star or question mark fit, as far as the text
/// goes.
fn prefix_fits(pattern: &str, text: &str, same: impl Fn(char) -> char) -> bool {
    let certain = pattern.chars().take_while(|c| !matches!(c, '*' | '?'));
    certain
        .zip(text.chars())
        .all(|(p, t)| p == t || same(p) == same(t))
}

/// Returns whether the last character fits. A cheap first check: most rules are about the ends of
/// names, and most names have another one.
fn last_char_fits(pattern: &str, text: &str, same: impl Fn(char) -> char) -> bool {
    match pattern.chars().next_back() {
        Some('*' | '?') | None => true,
        Some(last) => text
            .chars()
            .next_back()
            .is_some_and(|t| same(t) == same(last)),
    }
}

/// Returns whether a text could match `pattern` if each [`UNKNOWN`] in it is any run of characters,
/// ignoring case.
pub fn may_match(pattern: &str, text: &str) -> bool {
    // The known characters before the first wildcard and the first unknown: most texts differ in
    // them.
    let certain = pattern
        .chars()
        .take_while(|c| !matches!(c, '*' | '?'))
        .map(fold);
    if certain
        .zip(text.chars().take_while(|c| *c != UNKNOWN).map(fold))
        .any(|(p, t)| p != t)
    {
        return false;
    }
    let text: Vec<char> = text.chars().map(fold).collect();
    any_reading(pattern, |pattern| {
        // One row per pattern character: the positions in the text that may be reached. The end
        // stays reachable while an unknown may still grow. Only positions up to the farthest
        // reachable one are computed: most patterns fail after a character or two.
        let mut reach = vec![false; text.len() + 1];
        reach[0] = true;
        let mut far = spread(&mut reach, &text, 0);
        let mut next = vec![false; text.len() + 1];
        for c in pattern.chars().map(fold) {
            let last = if c == '*' {
                text.len()
            } else {
                (far + 1).min(text.len())
            };
            let mut any = None;
            for at in 0..=last {
                next[at] = if c == '*' {
                    reach[at] || (at > 0 && next[at - 1])
                } else {
                    let consumes = at > 0 && reach[at - 1] && (text[at - 1] == c || c == '?');
                    // The unknown run may contain this character and continue.
                    let within_unknown = at < text.len() && text[at] == UNKNOWN && reach[at];
                    consumes || within_unknown
                };
                if next[at] {
                    any = Some(at);
                }
            }
            let Some(farthest) = any else { return false };
            std::mem::swap(&mut reach, &mut next);
            next[..=last].fill(false);
            far = spread(&mut reach, &text, farthest);
        }
        reach[text.len()]
    })
}

/// Extends reachability across unknown runs, which may be empty. `far` is the farthest reachable
/// position; returns the new one.
fn spread(reach: &mut [bool], text: &[char], mut far: usize) -> usize {
    let mut at = 0;
    while at <= far && at < text.len() {
        if text[at] == UNKNOWN && reach[at] {
            reach[at + 1] = true;
            far = far.max(at + 1);
        }
        at += 1;
    }
    far
}

/// Returns whether every text that matches `narrow` also matches `broad`. May wrongly return
/// `false`, never wrongly `true`.
pub fn covers(broad: &str, narrow: &str) -> bool {
    // A star in the narrow pattern is a symbol that only a star in the broad one matches.
    let symbol = |c: char| match slash(c) {
        '*' => '\u{1}',
        '?' => '\u{2}',
        c => c,
    };
    let is_within = |pattern: &str, text: &str| {
        run(
            pattern.chars().map(slash),
            text.chars().map(symbol),
            |p, t| (p == '?' && t != '\u{1}') || p == t,
        )
    };
    prefix_fits(broad, narrow, slash)
        && readings(narrow)
            .iter()
            .all(|text| any_reading(broad, |pattern| is_within(pattern, text)))
}

/// Expands the optional parts of a pattern: returns it with and without each part that also matches
/// nothing, so that only `*` and `?` remain special.
pub(super) fn readings(pattern: &str) -> Vec<Cow<'_, str>> {
    /// The number of `**/` that are expanded; further ones need at least one directory.
    const FOLDERS: usize = 4;
    let mut all = vec![Cow::from(pattern)];
    let mut from = 0;
    let mut expanded = 0;
    while let Some(at) = pattern[from..].find("**").map(|at| at + from) {
        let begins = at == 0 || pattern[..at].ends_with(['/', '\\']);
        from = at + 2;
        if begins && pattern[from..].starts_with(['/', '\\']) && expanded < FOLDERS {
            expanded += 1;
            // The rest of the pattern is the same in all readings.
            let behind = pattern.len() - from;
            let shorter = |text: &Cow<'_, str>| {
                let end = text.len() - behind;
                Cow::from(format!("{}{}", &text[..end - 2], &text[end + 1..]))
            };
            all.extend(all.iter().map(shorter).collect::<Vec<_>>());
        }
    }
    let ends = all.iter().filter_map(|text| {
        text.strip_suffix(" *")
            .map(|text| Cow::from(text.to_owned()))
    });
    let ends: Vec<_> = ends.collect();
    all.extend(ends);
    all
}

fn any_reading(pattern: &str, matches: impl Fn(&str) -> bool) -> bool {
    if !pattern.contains("**") {
        return matches(pattern) || pattern.strip_suffix(" *").is_some_and(matches);
    }
    readings(pattern).iter().any(|text| matches(text))
}

pub(super) fn slash(c: char) -> char {
    if c == '\\' { '/' } else { c }
}

fn fits_char(pattern: char, text: char) -> bool {
    pattern == '?' || pattern == text
}

/// Folds a character as rules that deny compare it.
pub(super) fn fold(c: char) -> char {
    slash(c).to_lowercase().next().unwrap_or(c)
}

/// Matches greedily with one point of backtracking, the last star; without allocation and
/// recursion.
fn run<P, T>(mut pattern: P, mut text: T, same: impl Fn(char, char) -> bool) -> bool
where
    P: Iterator<Item = char> + Clone,
    T: Iterator<Item = char> + Clone,
{
    // The pattern after the last star, and the text after the characters it has taken.
    let mut star: Option<(P, T)> = None;
    loop {
        let mut p = pattern.clone();
        let mut t = text.clone();
        match (p.next(), t.next()) {
            (Some('*'), _) => {
                if p.clone().next().is_none() {
                    return true;
                }
                star = Some((p.clone(), text.clone()));
                pattern = p;
            }
            (None, None) => return true,
            // A star that takes more leaves less text.
            (Some(_), None) => return false,
            (Some(pattern_char), Some(text_char)) if same(pattern_char, text_char) => {
                pattern = p;
                text = t;
            }
            _ => {
                let Some((behind, taken)) = &mut star else {
                    return false;
                };
                if taken.next().is_none() {
                    return false;
                }
                pattern = behind.clone();
                text = taken.clone();
            }
        }
    }
}

/// Converts a glob pattern of the shell or of a program to a wildcard. A set becomes `?`, so that
/// the wildcard matches at least the names that the glob matches.
pub(crate) fn glob_to_wildcard(pattern: &str) -> String {
    let mut out = String::new();
    let mut letters = pattern.chars();
    while let Some(c) = letters.next() {
        match c {
            '\\' => out.extend(letters.next()),
            '[' => {
                let rest = letters.as_str();
                // `[]a]` and `[!]a]` hold a bracket.
                let skipped = 1 + usize::from(rest.starts_with(['!', '^']));
                match rest.char_indices().skip(skipped).find(|(_, c)| *c == ']') {
                    Some((end, _)) => {
                        letters = rest[end + 1..].chars();
                        out.push('?');
                    }
                    None => out.push('['),
                }
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_texts() {
        let table = [
            ("*", "", true),
            ("*", "a/b\nc", true),
            ("git push *", "git push", true),
            ("git push *", "git push origin", true),
            ("git push *", "git pushx", false),
            ("ls*", "lsof", true),
            ("*.env", "a/b/.env", true),
            ("*.env.*", "a/.env.local/b", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("src/*", "src\\a.rs", true),
            ("A", "a", false),
            ("a.c", "abc", false),
            ("*a*b*c*", "xxaxxbxxc", true),
            ("*a*b*c*", "xxaxxcxxb", false),
            ("src/**/*.ts", "src/c.ts", true),
            ("src/**/*.ts", "src/a/b/c.ts", true),
            ("src/**/*.ts", "srcc.ts", false),
            ("**/*.env", ".env", true),
            ("**/a/**/b", "a/b", true),
            ("**/a/**/b", "x/a/y/z/b", true),
            ("src**/c", "src/c", true),
            ("src**/c", "srcc", false),
            ("a/**/ *", "a/", true),
            ("**", "", true),
            // The last character is checked first.
            ("*/", "a\\", true),
            ("*\\", "a/", true),
            ("*?", "", false),
            ("*?", "a", true),
            ("x*", "x", true),
            ("*a", "", false),
            ("*.env *", "a.env", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
        assert!(matches_folded("rm*", "RM x"));
    }

    #[test]
    fn unknown_words_may_match_anything() {
        let table = [
            ("git push*", "git \0", true),
            ("git push*", "git \0 x", true),
            ("git push*", "ls \0", false),
            ("rm*", "\0", true),
            ("rm *x", "rm a\0", true),
            ("rm a?c", "rm a\0", true),
            ("rm abc", "rm \0d", false),
            ("*install*", "npm \0", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(may_match(pattern, text), expected, "{pattern} on {text:?}");
        }
    }

    #[test]
    fn broader_pattern_covers_narrower() {
        let table = [
            ("*", "rm*", true),
            ("rm*", "*", false),
            ("rm*", "rm -rf *", true),
            ("rm -rf *", "rm*", false),
            ("npm *", "*install*", false),
            ("git *", "git push *", true),
            ("a?c", "a*c", false),
            ("a*c", "a?c", true),
            ("git *", "git*", false),
            ("ls *", "ls *", true),
            ("src/**/*.ts", "src/*.ts", true),
            ("src/?*/*.ts", "src/**/*.ts", false),
            ("src/*.ts", "src/**/*.ts", true),
        ];
        for (broad, narrow, expected) in table {
            assert_eq!(covers(broad, narrow), expected, "{broad} over {narrow}");
        }
    }
}
