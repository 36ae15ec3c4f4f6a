//! Patterns that programs read themselves, the shell aside: which names may fit one.

use crate::shell::expand::Arg;
use crate::wildcard::generous;

/// How many texts the braces of one may spell.
const MOST: usize = 64;
/// How long one may be for that, in bytes: each of its parts repeats the rest of it.
const LONGEST: usize = 4_096;

/// What a word may be, as far as it is known; what is not known may be any run of letters.
pub(super) fn texts(arg: &Arg) -> Vec<String> {
    match (arg.texts(), arg.pattern()) {
        (Some(texts), _) => texts.to_vec(),
        (None, Some(pattern)) => vec![pattern.to_owned()],
        (None, None) => vec![format!("{}*", arg.prefix())],
    }
}

/// Where a letter stands that no backslash takes its meaning from, before the byte `end`.
fn last_plain(text: &str, letter: char, end: usize) -> Option<usize> {
    let plain = |at: &usize| text[..*at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0;
    text[..end].match_indices(letter).map(|(at, _)| at).rfind(plain)
}

/// What `{a,b}` in a text spells, sets within sets too. None where that is more than is looked at.
pub(super) fn alternatives(text: &str) -> Option<Vec<String>> {
    if text.len() > LONGEST {
        return None;
    }
    let (mut done, mut open) = (vec![], vec![(text.to_owned(), text.len())]);
    while let Some((text, end)) = open.pop() {
        let Some(start) = last_plain(&text, '{', end) else {
            done.push(text);
            continue;
        };
        // The last that opens holds no other one.
        let Some(stop) = text[start..].find('}').map(|at| at + start) else {
            open.push((text, start));
            continue;
        };
        for part in text[start + 1..stop].split(',') {
            open.push((format!("{}{part}{}", &text[..start], &text[stop + 1..]), start));
        }
        if open.len() + done.len() > MOST {
            return None;
        }
    }
    done.sort();
    done.dedup();
    Some(done)
}

/// Names that fit one of these globs, and perhaps more.
pub(super) fn fitting<'a>(globs: impl Iterator<Item = &'a Arg>) -> Vec<Arg> {
    globs.flat_map(texts).map(|text| Arg::exact(generous(&text))).collect()
}

/// Of these globs those that fit no more than they seem to.
pub(super) fn certain<'a>(globs: impl Iterator<Item = &'a Arg>) -> Vec<Arg> {
    let plain = |arg: &&Arg| {
        arg.text().or(arg.pattern()).is_some_and(|text| !text.contains(['[', '\\', '{', '/']) && !text.is_empty())
    };
    globs.filter(plain).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_spelled_out() {
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
    fn a_set_stands_for_any_letter() {
        let table =
            [(".en[v]", ".en?"), ("[!a]x", "?x"), ("[]a]x", "?x"), ("\\.env", ".env"), ("[a", "[a"), ("*.rs", "*.rs")];
        for (glob, wanted) in table {
            assert_eq!(generous(glob), wanted, "{glob}");
        }
    }
}
