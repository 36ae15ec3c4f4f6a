//! The wildcard of rules: `*` is any run of any characters, `/` included, `?` is
//! one character, a trailing ` *` also matches nothing at all, and so does `**/` where a part of a path
//! begins; `\` reads as `/`. Case-sensitive, anchored at both ends.

use std::borrow::Cow;

/// Stands in a text for words that are not known before the command runs.
pub const UNKNOWN: char = '\0';

/// Whether the wildcard `pattern` of a rule matches `text`.
pub fn matches(pattern: &str, text: &str) -> bool {
    either(pattern, |pattern| {
        begins_fit(pattern, text, slash)
            && ends_fit(pattern, text, slash)
            && run(pattern.chars().map(slash), text.chars().map(slash), alike)
    })
}

/// As [`matches`](fn@matches), letters compared without regard to case: for rules that deny.
pub fn matches_folded(pattern: &str, text: &str) -> bool {
    either(pattern, |pattern| {
        begins_fit(pattern, text, fold)
            && ends_fit(pattern, text, fold)
            && run(pattern.chars().map(fold), text.chars().map(fold), alike)
    })
}

/// Whether the letters before the first star or question mark fit, as far as the text goes.
fn begins_fit(pattern: &str, text: &str, same: impl Fn(char) -> char) -> bool {
    let certain = pattern.chars().take_while(|c| !matches!(c, '*' | '?'));
    certain.zip(text.chars()).all(|(p, t)| p == t || same(p) == same(t))
}

/// Whether the last letter fits. Most rules are about the ends of names, and most names have another one.
fn ends_fit(pattern: &str, text: &str, same: impl Fn(char) -> char) -> bool {
    match pattern.chars().next_back() {
        Some('*' | '?') | None => true,
        Some(last) => text.chars().next_back().is_some_and(|t| same(t) == same(last)),
    }
}

/// Whether a text in which [`UNKNOWN`] stands for any run of characters could match `pattern`, case
/// aside.
pub fn may_match(pattern: &str, text: &str) -> bool {
    // What is certain on both sides: most texts differ there, and need not be looked at further.
    let certain = pattern.chars().take_while(|c| !matches!(c, '*' | '?')).map(fold);
    if certain.zip(text.chars().take_while(|c| *c != UNKNOWN).map(fold)).any(|(p, t)| p != t) {
        return false;
    }
    let text: Vec<char> = text.chars().map(fold).collect();
    either(pattern, |pattern| {
        // One row per pattern character: which beginnings of the text it can have consumed. The last
        // place stays reachable while the text may still grow at an unknown. Only what lies before the
        // farthest of them is looked at: most patterns are done after a letter or two.
        let mut reach = vec![false; text.len() + 1];
        reach[0] = true;
        let mut far = spread(&mut reach, &text, 0);
        let mut next = vec![false; text.len() + 1];
        for c in pattern.chars().map(fold) {
            let last = if c == '*' { text.len() } else { (far + 1).min(text.len()) };
            let mut any = None;
            for at in 0..=last {
                next[at] = if c == '*' {
                    reach[at] || (at > 0 && next[at - 1])
                } else {
                    let here = at > 0 && reach[at - 1] && (text[at - 1] == c || c == '?');
                    // The unknown run may hold this character and go on.
                    let within = at < text.len() && text[at] == UNKNOWN && reach[at];
                    here || within
                };
                any = if next[at] { Some(at) } else { any };
            }
            let Some(farthest) = any else { return false };
            std::mem::swap(&mut reach, &mut next);
            next[..=last].fill(false);
            far = spread(&mut reach, &text, farthest);
        }
        reach[text.len()]
    })
}

/// An unknown run may be empty: what reaches it reaches what follows it. `far` is the farthest place
/// that is reached; what comes back is the new one.
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

/// Whether every text that matches `narrow` matches `broad` too. May say no where the answer is yes,
/// never the reverse.
pub fn covers(broad: &str, narrow: &str) -> bool {
    // A star in the narrow pattern is a letter that only a star in the broad one takes.
    let letter = |c: char| match slash(c) {
        '*' => '\u{1}',
        '?' => '\u{2}',
        c => c,
    };
    let within = |pattern: &str, text: &str| {
        run(pattern.chars().map(slash), text.chars().map(letter), |p, t| (p == '?' && t != '\u{1}') || p == t)
    };
    begins_fit(broad, narrow, slash)
        && readings(narrow).iter().all(|text| either(broad, |pattern| within(pattern, text)))
}

/// What a pattern may be read as, so that `*` is all that is left to read: with and without the parts
/// that also match nothing.
pub(super) fn readings(pattern: &str) -> Vec<Cow<'_, str>> {
    /// Of more, the last ones stand for at least one folder.
    const FOLDERS: usize = 4;
    let mut all = vec![Cow::from(pattern)];
    let (mut from, mut seen) = (0, 0);
    while let Some(at) = pattern[from..].find("**").map(|at| at + from) {
        let begins = at == 0 || pattern[..at].ends_with(['/', '\\']);
        from = at + 2;
        if begins && pattern[from..].starts_with(['/', '\\']) && seen < FOLDERS {
            seen += 1;
            // What stands behind is the same in all of them.
            let behind = pattern.len() - from;
            let shorter = |text: &Cow<'_, str>| {
                let end = text.len() - behind;
                Cow::from(format!("{}{}", &text[..end - 2], &text[end + 1..]))
            };
            all.extend(all.iter().map(shorter).collect::<Vec<_>>());
        }
    }
    let ends = all.iter().filter_map(|text| text.strip_suffix(" *").map(|text| Cow::from(text.to_owned())));
    let ends: Vec<_> = ends.collect();
    all.extend(ends);
    all
}

fn either(pattern: &str, matches: impl Fn(&str) -> bool) -> bool {
    if !pattern.contains("**") {
        return matches(pattern) || pattern.strip_suffix(" *").is_some_and(matches);
    }
    readings(pattern).iter().any(|text| matches(text))
}

pub(super) fn slash(c: char) -> char {
    if c == '\\' { '/' } else { c }
}

fn alike(pattern: char, text: char) -> bool {
    pattern == '?' || pattern == text
}

/// A letter as rules that deny compare it.
pub(super) fn fold(c: char) -> char {
    slash(c).to_lowercase().next().unwrap_or(c)
}

/// Greedy with one point to come back to: nothing is collected, no recursion.
fn run<P, T>(mut pattern: P, mut text: T, same: impl Fn(char, char) -> bool) -> bool
where
    P: Iterator<Item = char> + Clone,
    T: Iterator<Item = char> + Clone,
{
    // Behind the last star, and how much of the text it has taken.
    let mut star: Option<(P, T)> = None;
    loop {
        let (mut p, mut t) = (pattern.clone(), text.clone());
        match (p.next(), t.next()) {
            (Some('*'), _) => {
                if p.clone().next().is_none() {
                    return true;
                }
                star = Some((p.clone(), text.clone()));
                pattern = p;
            }
            (None, None) => return true,
            // A star that takes more leaves less.
            (Some(_), None) => return false,
            (Some(pattern_char), Some(text_char)) if same(pattern_char, text_char) => (pattern, text) = (p, t),
            _ => {
                let Some((behind, taken)) = &mut star else { return false };
                if taken.next().is_none() {
                    return false;
                }
                (pattern, text) = (behind.clone(), taken.clone());
            }
        }
    }
}

/// A pattern, of the shell or of a program, as a wildcard. Sets are read generously: they match any letter, so that
/// nothing a set could name is missed.
pub(crate) fn generous(pattern: &str) -> String {
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
    fn wildcards() {
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
            // The last letter is looked at first.
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
    fn unknown_words_may_be_anything() {
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
    fn broader_and_narrower() {
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
