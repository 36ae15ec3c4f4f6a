//! Glob patterns that programs match themselves, unlike those of the shell.

use crate::shell::expand::Arg;
use crate::wildcard::glob_to_wildcard;

/// The maximum number of alternatives of one pattern.
const MAX_ALTERNATIVES: usize = 64;
/// The maximum length of a pattern with alternatives, in bytes: each alternative repeats the rest.
const MAX_LENGTH: usize = 4_096;

/// Returns the possible texts of a word; an unknown part becomes `*`.
pub(super) fn texts(arg: &Arg) -> Vec<String> {
    match (arg.texts(), arg.pattern()) {
        (Some(texts), _) => texts.to_vec(),
        (None, Some(pattern)) => vec![pattern.to_owned()],
        (None, None) => vec![format!("{}*", arg.prefix())],
    }
}

/// Returns the position of the last unescaped occurrence of a character before the byte `end`.
fn last_plain(text: &str, letter: char, end: usize) -> Option<usize> {
    let is_unescaped = |at: &usize| {
        text[..*at]
            .bytes()
            .rev()
            .take_while(|byte| *byte == b'\\')
            .count()
            % 2
            == 0
    };
    text[..end]
        .match_indices(letter)
        .map(|(at, _)| at)
        .rfind(is_unescaped)
}

/// Expands `{a,b}` in a text, including nested ones. `None` if there are too many alternatives.
pub(super) fn alternatives(text: &str) -> Option<Vec<String>> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let mut done = vec![];
    let mut open = vec![(text.to_owned(), text.len())];
    while let Some((text, end)) = open.pop() {
        let Some(start) = last_plain(&text, '{', end) else {
            done.push(text);
            continue;
        };
        // The last opening brace contains no other one.
        let Some(stop) = text[start..].find('}').map(|at| at + start) else {
            open.push((text, start));
            continue;
        };
        for part in text[start + 1..stop].split(',') {
            open.push((
                format!("{}{part}{}", &text[..start], &text[stop + 1..]),
                start,
            ));
        }
        if open.len() + done.len() > MAX_ALTERNATIVES {
            return None;
        }
    }
    done.sort();
    done.dedup();
    Some(done)
}

/// Returns patterns for at least the names that match one of these globs.
pub(super) fn fitting<'a>(globs: impl Iterator<Item = &'a Arg>) -> Vec<Arg> {
    globs
        .flat_map(texts)
        .map(|text| Arg::exact(glob_to_wildcard(&text)))
        .collect()
}

/// Returns the globs that match no more than they seem to.
pub(super) fn certain<'a>(globs: impl Iterator<Item = &'a Arg>) -> Vec<Arg> {
    let is_certain = |arg: &&Arg| {
        arg.text()
            .or(arg.pattern())
            .is_some_and(|text| !text.contains(['[', '\\', '{', '/']) && !text.is_empty())
    };
    globs.filter(is_certain).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_expanded() {
        let table: [(&str, &[&str]); 8] = [
            ("a", &["a"]),
            ("{a,b}c", &["ac", "bc"]),
            ("{a,{b,c}}", &["a", "b", "c"]),
            ("{a,b}{c,d}", &["ac", "ad", "bc", "bd"]),
            ("\\{a,b}", &["\\{a,b}"]),
            ("{a", &["{a"]),
            ("{a{b,c}", &["{ab", "{ac"]),
            ("{file}:///x", &["file:///x"]),
        ];
        for (text, wanted) in table {
            assert_eq!(alternatives(text).unwrap(), wanted, "{text}");
        }
        assert_eq!(alternatives(&"{a,b}".repeat(40)), None);
        assert_eq!(alternatives(&format!("{{{}}}", "a,".repeat(100))), None);
    }

    #[test]
    fn set_becomes_a_question_mark() {
        let table = [
            (".en[v]", ".en?"),
            ("[!a]x", "?x"),
            ("[]a]x", "?x"),
            ("\\.env", ".env"),
            ("[a", "[a"),
            ("*.rs", "*.rs"),
        ];
        for (glob, wanted) in table {
            assert_eq!(glob_to_wildcard(glob), wanted, "{glob}");
        }
    }
}
