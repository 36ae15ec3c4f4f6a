//! Finds the text that a model wants replaced, although models reproduce whitespace, indentation
//! and typography inexactly, and makes the change in the file's own characters and line ends. Pure.
//!
//! Strategies are tried in a fixed order, the strictest first. The first one with a match decides:
//! a single match is replaced, several are an error that lists them. There is never a guess which
//! one was meant.

mod line_ends;
mod strategies;

use line_ends::NormalizedText;
pub use line_ends::shared;
use strategies::{MAX_MATCHES, Match, STRATEGIES, SoughtText, lines, starts, too_large};

use crate::unicode_folding::differences;
use base::text;

/// The result of a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// The whole text with the change.
    pub text: String,
    /// The first line of each replaced match, from 1.
    pub lines: Vec<usize>,
    /// The first and last line of each replacement, from 1.
    pub now: Vec<(usize, usize)>,
    /// The inexact match, if the exact text was not found.
    pub fuzzy: Option<FuzzyMatch>,
    /// True if the line numbers of a listing were removed from the old and the new text.
    pub numbers: bool,
}

/// An inexact match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FuzzyMatch {
    /// The name of the strategy, for the model.
    pub strategy: &'static str,
    /// The typographic differences between the old text and the first match, for the model; empty
    /// if the match differs in other ways too.
    pub differences: Vec<String>,
    /// For each match its first line, from 1, and its original text.
    pub original: Vec<(usize, String)>,
}

/// The reason why nothing was replaced, as a message for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The texts are equal, or the change leaves the file as it is.
    #[error("oldString and newString are the same; there is nothing to change.")]
    Same,
    /// The old text is empty.
    #[error(
        "oldString is empty. Name the text to replace, or use the write tool to replace the whole file."
    )]
    Empty,
    /// No strategy has found it.
    #[error("Could not find oldString in the file.")]
    Missing,
    /// The old text is at several places, whose lines are these.
    #[error("Found multiple matches for oldString, at lines {}. Provide more surrounding context to make the match unique, or set replaceAll.", list(.0))]
    Ambiguous(Vec<usize>),
    #[error(
        "oldString is at more than {MAX_MATCHES} places. Write more of its surroundings, or set replaceAll."
    )]
    TooMany,
    /// The strategy of this name has too many candidates.
    #[error(
        "oldString is not in the file exactly, and {0} too much resembles it. Copy it exactly from the file, with more of the lines around it."
    )]
    TooAlike(&'static str),
    /// A match, from the first to the second line, is much larger than the old text.
    #[error(
        "The only match for oldString is much larger than oldString itself (lines {0}-{1}). Write oldString in full."
    )]
    TooLarge(usize, usize),
    /// The old text has line numbers, and the new one has some.
    #[error(
        "oldString has the line numbers of a listing, and newString has them on some lines only. Send both without."
    )]
    Numbers,
}

/// Lists line numbers, at most twenty.
pub fn list(lines: &[usize]) -> String {
    let shown: Vec<String> = lines.iter().take(20).map(usize::to_string).collect();
    let more = if lines.len() > 20 {
        format!(" and {} more", lines.len() - 20)
    } else {
        String::new()
    };
    shown.join(", ") + &more
}

/// Replaces `old` by `new` in a text, once or everywhere.
///
/// # Errors
/// An error if the match is not unique; see [`Error`].
pub fn replace(content: &str, old: &str, new: &str, all: bool) -> Result<Replacement, Error> {
    let file = NormalizedText::of(content);
    let old = NormalizedText::of(old).text;
    let new = NormalizedText::of(new).text;
    if old == new {
        return Err(Error::Same);
    }
    if old.is_empty() {
        return Err(Error::Empty);
    }
    if let Some(bare) = without_numbers(&old)
        && !file.text.contains(&*old)
        && is_lines(&file.text, &bare)
    {
        let bare_new = match without_numbers(&new) {
            Some(bare) => bare,
            None if new.lines().any(|line| number(line).is_some()) => return Err(Error::Numbers),
            None => new.clone().into_owned(),
        };
        return search(content, &file, &bare, &bare_new, all).map(|replaced| Replacement {
            numbers: true,
            ..replaced
        });
    }
    search(content, &file, &old, &new, all)
}

/// Replaces `old` by `new` with the first strategy that has a match. `file` is `content` with
/// uniform line ends, which `old` and `new` have too.
fn search(
    content: &str,
    file: &NormalizedText<'_>,
    old: &str,
    new: &str,
    all: bool,
) -> Result<Replacement, Error> {
    if old.is_empty() {
        return Err(Error::Missing);
    }
    let line_of = |at: usize| memchr::memchr_iter(b'\n', &file.text.as_bytes()[..at]).count() + 1;
    for (name, strategy) in STRATEGIES {
        // Whitespace alone would match anywhere if whitespace is ignored.
        if name.is_some() && old.trim().is_empty() {
            break;
        }
        let Some(mut found) = strategy(&SoughtText {
            file: &file.text,
            old,
            new,
            all,
        }) else {
            return Err(Error::TooAlike(name.unwrap_or("as it is")));
        };
        if found.len() > MAX_MATCHES && !all {
            return Err(Error::TooMany);
        }
        found.sort_by_key(|found| found.span.start);
        found.dedup_by_key(|found| found.span.clone());
        if found.is_empty() {
            continue;
        }
        if !all && found.len() > 1 {
            let mut lines = lines_of(&file.text, &found);
            lines.dedup();
            return Err(Error::Ambiguous(lines));
        }
        let mut end = 0;
        found.retain(|found| {
            let apart = found.span.start >= end;
            if apart {
                end = found.span.end;
            }
            apart
        });
        let large = found
            .iter()
            .find(|found| name.is_some() && too_large(&file.text[found.span.clone()], old));
        if let Some(large) = large {
            return Err(Error::TooLarge(
                line_of(large.span.start),
                line_of(large.span.end.saturating_sub(1)),
            ));
        }
        let lines = lines_of(&file.text, &found);
        let text = file.put(content, &found);
        if text == content {
            return Err(Error::Same);
        }
        let mut moved = 0_isize;
        let mut now = Vec::with_capacity(found.len());
        for (Match { span, new }, line) in found.iter().zip(&lines) {
            let first = line.saturating_add_signed(moved);
            now.push((
                first,
                first.saturating_add_signed(breaks(new.strip_suffix('\n').unwrap_or(new))),
            ));
            moved += breaks(new) - breaks(&file.text[span.clone()]);
        }
        let fuzzy = name.map(|strategy| {
            let texts = found
                .iter()
                .map(|found| file.text[found.span.clone()].to_owned());
            let original: Vec<(usize, String)> = lines.iter().copied().zip(texts).collect();
            let differences = original
                .first()
                .map(|(_, original)| differences(old, original))
                .unwrap_or_default();
            FuzzyMatch {
                strategy,
                differences,
                original,
            }
        });
        return Ok(Replacement {
            text,
            lines,
            now,
            fuzzy,
            numbers: false,
        });
    }
    Err(Error::Missing)
}

/// Returns the number of line breaks in a text.
fn breaks(text: &str) -> isize {
    isize::try_from(memchr::memchr_iter(b'\n', text.as_bytes()).count()).unwrap_or(0)
}

/// Splits a line of a listing into number and text: `12: text` as from `read`, `12\ttext` as from
/// `cat -n`.
fn number(line: &str) -> Option<(usize, &str)> {
    let line = line.trim_start_matches(' ');
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = line.split_at(digits);
    let bare = rest
        .strip_prefix(": ")
        .or_else(|| rest.strip_prefix(['\t', '\u{2192}', '|']));
    Some((
        number.parse().ok()?,
        bare.or_else(|| (rest == ":").then_some(""))?,
    ))
}

/// Returns whether a text occurs in a file, and only as whole lines.
fn is_lines(file: &str, text: &str) -> bool {
    let whole = |at: usize| {
        let rest = &file[at + text.len()..];
        (at == 0 || file[..at].ends_with('\n'))
            && (rest.is_empty() || text.ends_with('\n') || rest.starts_with('\n'))
    };
    let mut places = starts(file, text).peekable();
    !text.is_empty() && places.peek().is_some() && places.all(whole)
}

/// Removes the numbers of a listing from a text. Returns `None` if its lines do not have
/// consecutive numbers.
fn without_numbers(text: &str) -> Option<String> {
    let mut bare = Vec::new();
    let mut next = None;
    for line in lines(text) {
        let (number, rest) = number(line)?;
        if next.is_some_and(|next| next != number) {
            return None;
        }
        next = Some(number + 1);
        bare.push(rest);
    }
    let end = if text.ends_with('\n') { "\n" } else { "" };
    Some(bare.join("\n") + end)
}

/// Returns the first line of each match, from 1. The matches are in order, so the text is scanned
/// once.
fn lines_of(text: &str, found: &[Match]) -> Vec<usize> {
    let mut line = 1;
    let mut counted = 0;
    let line_of = |found: &Match| {
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[counted..found.span.start]).count();
        counted = found.span.start;
        line
    };
    found.iter().map(line_of).collect()
}

/// Describes an inexact match for the model; `None` if the match was exact.
pub fn remark(replaced: &Replacement) -> Option<String> {
    let numbers = replaced
        .numbers
        .then(|| "The line numbers in oldString were left out.".to_owned());
    let fuzzy = replaced.fuzzy.as_ref().map(|fuzzy| {
        let places = text::count(replaced.lines.len(), "place");
        let differs =
            if fuzzy.differences.is_empty() { String::new() } else { format!(" It has {}.", fuzzy.differences.join("; ")) };
        format!(
            "oldString was not in the file exactly; it was found {}, in {places}, at line {}.{differs} What the edit does not change stays as the file has it.",
            fuzzy.strategy,
            list(&replaced.lines)
        )
    });
    let remarks: Vec<String> = numbers.into_iter().chain(fuzzy).collect();
    (!remarks.is_empty()).then(|| remarks.join(" "))
}

#[cfg(test)]
mod tests {
    use super::line_ends::shared;
    use super::*;
    use crate::unicode_folding::{FoldLevel, FoldedText};

    /// However many candidates there are, the work is bounded, and the error explains how to
    /// continue.
    #[test]
    fn too_many_matches_are_refused() {
        let file = "call( a,  b );\n".repeat(6_000);
        let many = |old: &str, all| replace(&file, old, "x", all).unwrap_err().to_string();
        assert!(
            many("call( a, b );", true)
                .contains("ignoring how wide the spaces are too much resembles it")
        );
        assert!(many("call( a, b );", false).contains("too much resembles it"));
        assert!(
            many("call( a,  b );", false)
                .starts_with("oldString is at more than 5000 places. Write more")
        );
        assert_eq!(
            replace(&file, "call( a,  b );", "x", true)
                .unwrap()
                .lines
                .len(),
            6_000
        );
        // All in one line; equal lines; a text that matches itself at every character.
        let line = file.replace('\n', " ");
        assert!(matches!(
            replace(&line, "call( a, b );", "x", true),
            Err(Error::TooAlike(_))
        ));
        let braces = "}\n".repeat(4_000);
        let wanted = format!("}}\n{}{{\n}}\n", "}\n".repeat(1_000));
        assert!(matches!(
            replace(&braces, &wanted, "x", false),
            Err(Error::TooAlike(_))
        ));
        let letters = "a".repeat(40_000);
        assert_eq!(
            replace(&letters, &"a".repeat(10_000), "x", false),
            Err(Error::TooMany)
        );
        assert_eq!(
            replace(&letters, &"a".repeat(10_000), "x", true)
                .unwrap()
                .text,
            "xxxx"
        );
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn matches_are_replaced() {
        // File, old, new, all, result.
        let table = [
            ("a b c", "b", "x", false, "a x c"),
            ("aaa", "aa", "b", true, "ba"),
            ("x = 1\nx = 1\n", "x = 1", "y", true, "y\ny\n"),
            // Blanks around lines; the file's indentation remains.
            (
                "fn f() {\n    a();\n    b();\n}\n",
                "a();\nb();\n",
                "a();\nc();\n",
                false,
                "fn f() {\n    a();\n    c();\n}\n",
            ),
            (
                "\tif x {\n\t\ty();\n\t}\n",
                "if x {\n    y();\n}",
                "if x {\n    y();\n    if z {\n        w();\n    }\n}",
                false,
                "\tif x {\n\t\ty();\n\t\tif z {\n\t\t\tw();\n\t\t}\n\t}\n",
            ),
            (
                "    a\n    b\n",
                "  a\n  b\n",
                "  a\n    c\n  b\n",
                false,
                "    a\n      c\n    b\n",
            ),
            ("a  \nb\n", "a\nb\n", "c\n", false, "c\n"),
            ("a  \nb\n", "a\nb\n", "a\nc\n", false, "a  \nc\n"),
            (
                "  one\n  two",
                "one\ntwo\n",
                "one\n2\n",
                false,
                "  one\n  2",
            ),
            // First and last line. Differences in between remain.
            (
                "fn a() {\n  let x = 11;\n  done()\n}\n",
                "fn a() {\n  let x = 12;\n  done()\n}",
                "fn a() {\n  let x = 12;\n  finished()\n}",
                false,
                "fn a() {\n  let x = 11;\n  finished()\n}\n",
            ),
            // Other characters.
            (
                "say \u{201c}hi\u{201d} \u{2013} x\n",
                "say \"hi\" - x",
                "say \"hello\" - x",
                false,
                "say \u{201c}hello\u{201d} \u{2013} x\n",
            ),
            (
                "a non\u{2011}breaking word\n",
                "non-breaking",
                "non-broken",
                false,
                "a non\u{2011}broken word\n",
            ),
            (
                "cafe\u{301} = 1\n",
                "caf\u{e9} = 1",
                "caf\u{e9} = 2",
                false,
                "cafe\u{301} = 2\n",
            ),
            (
                "\tf(\u{2018}x\u{2019});\n",
                "    f('x');\n",
                "    f('x');\n    g();\n",
                false,
                "\tf(\u{2018}x\u{2019});\n\tg();\n",
            ),
            // Line numbers.
            (
                "x\nfoo(1);\nbar(2);\n",
                "2: foo(1);\n3: bar(2);",
                "2: foo(2);\n3: bar(2);",
                false,
                "x\nfoo(2);\nbar(2);\n",
            ),
            (
                "x\n  foo(1);\n",
                "    2\t  foo(1);\n",
                "  foo(2);\n",
                false,
                "x\n  foo(2);\n",
            ),
            ("x\n\ny\n", "1: x\n2:\n3: y", "x\ny", false, "x\ny\n"),
            (
                "1: one\n2: two\n",
                "1: one\n2: two",
                "1: eins\n2: zwei",
                false,
                "1: eins\n2: zwei\n",
            ),
            // Blanks within lines.
            (
                "let  x   = 1;\n",
                "let x = 1;",
                "let x = 2;",
                false,
                "let  x   = 2;\n",
            ),
            (
                "if (a  &&   b) {\n",
                "a && b",
                "a || b",
                false,
                "if (a  ||   b) {\n",
            ),
            // Escapes.
            (
                "print(\"a\\n\")\nx\ty\n",
                "x\\ty",
                "x\\tz",
                false,
                "print(\"a\\n\")\nx\tz\n",
            ),
            // Blanks around.
            (
                "foo(bar)\n",
                "\n\nfoo(bar",
                "\n\nfoo(baz",
                false,
                "foo(baz)\n",
            ),
        ];
        for (file, old, new, all, expected) in table {
            let replaced =
                replace(file, old, new, all).unwrap_or_else(|e| panic!("{file:?} {old:?}: {e}"));
            assert_eq!(
                replaced.text, expected,
                "{file:?} {old:?} {:?}",
                replaced.fuzzy
            );
            assert_eq!(
                replaced.fuzzy.is_some() || replaced.numbers,
                !file.contains(old),
                "{old:?}"
            );
        }
    }

    #[test]
    fn unclear_replacements_are_refused() {
        let far = format!("start\n{}end\n", "unrelated line of text\n".repeat(30));
        let table = [
            ("a", "a", "a", Error::Same),
            ("a", "", "b", Error::Empty),
            ("a", "b", "c", Error::Missing),
            ("a", "\n \n", "c", Error::Missing),
            ("aaa", "aa", "b", Error::Ambiguous(vec![1])),
            ("x\ny\nx\n", "x", "z", Error::Ambiguous(vec![1, 3])),
            (" a\nb\n  a\n", "a \n", "c\n", Error::Ambiguous(vec![1, 3])),
            (&far, "start\nsomething else\nend", "x", Error::Missing),
            // Text would be lost that was not quoted.
            (
                "f {\n  x = 11;\n  y();\n}\n",
                "f {\n  x = 12;\n  y();\n}",
                "f {}",
                Error::Missing,
            ),
            (
                "f {\n  x = 11;\n  y();\n}\n",
                "f {\n  x = 12;\n  y();\n}",
                "f {\n  x = 13;\n  y();\n}",
                Error::Missing,
            ),
            ("foo\nbar\n", "1: foo\n2: bar", "1: x\nbar", Error::Numbers),
            ("abc\n", "1: b", "1: x", Error::Missing),
            (
                "\u{201c}a\u{201d}\n\u{201e}\u{201d}a\u{201c}\n",
                "\"a\"",
                "b",
                Error::Ambiguous(vec![1, 2]),
            ),
        ];
        for (file, old, new, expected) in table {
            assert_eq!(
                replace(file, old, new, false),
                Err(expected),
                "{file:?} {old:?}"
            );
        }
        let many = "x\n".repeat(30);
        assert!(
            replace(&many, "x", "y", false)
                .unwrap_err()
                .to_string()
                .contains("and 10 more")
        );
    }

    /// All bytes outside the edited range are unchanged, whatever the line ends.
    #[test]
    fn bytes_outside_the_edit_are_unchanged() {
        let bodies = [
            "a1 x\nb2 x\nc3 x\nd4 x\n",
            "a1 x\nb2 x\nc3 x\nd4 x",
            "\n\na1 x\nb2 x\n\nc3 x\nd4 x\n\n",
            "ä1 x\nb2 x\n🎉3\nc3 x\nd4 x\n",
        ];
        let ends: [fn(usize) -> &'static str; 6] = [
            |_| "\n",
            |_| "\r\n",
            |n| if n % 2 == 0 { "\n" } else { "\r\n" },
            |n| if n % 2 == 1 { "\n" } else { "\r\n" },
            |n| if n == 0 { "\r\n" } else { "\n" },
            |n| if n % 3 == 0 { "\r\r\n" } else { "\n" },
        ];
        let edits = [
            ("b2", "B"),
            ("b2 x", "b2 y\nb3"),
            ("2 x\n", "2 y\n"),
            ("b2 x\nc3", "b2 x\nC3"),
            ("c3 x\nd4 x", "c3 x"),
            (" b2 x", "new"),
        ];
        let mut compared = 0;
        for body in bodies {
            for end in ends {
                let mut n = 0;
                let file: String = body
                    .split_inclusive('\n')
                    .map(|line| match line.strip_suffix('\n') {
                        Some(text) => {
                            n += 1;
                            format!("{text}{}", end(n - 1))
                        }
                        None => line.to_owned(),
                    })
                    .collect();
                for (old, new) in edits {
                    let Ok(replaced) = replace(&file, old, new, false) else {
                        continue;
                    };
                    compared += 1;
                    let (head, tail) = shared(&file, &replaced.text);
                    let gone = NormalizedText::of(&file[head..file.len() - tail]).text;
                    let came =
                        NormalizedText::of(&replaced.text[head..replaced.text.len() - tail]).text;
                    // The only differences are those of the edit.
                    assert!(
                        gone.len() <= old.len() + 1,
                        "{file:?} {old:?} -> {:?}",
                        replaced.text
                    );
                    assert!(
                        came.len() <= new.len() + 1,
                        "{file:?} {new:?} -> {:?}",
                        replaced.text
                    );
                    let naive = NormalizedText::of(&file).text.replacen(old, new, 1);
                    if replaced.fuzzy.is_none() {
                        assert_eq!(
                            NormalizedText::of(&replaced.text).text,
                            naive,
                            "{file:?} {old:?}"
                        );
                    }
                    if !file.replace("\r\n", "").contains('\n') && file.contains('\n') {
                        assert!(
                            !replaced.text.replace("\r\n", "").contains('\n'),
                            "{:?}",
                            replaced.text
                        );
                    }
                }
            }
        }
        assert!(compared > 100, "{compared}");
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { cases: 3_000, failure_persistence: None, ..Default::default() })]

        /// Against a naive reference: a fuzzy replacement in a typographic variant of a file equals
        /// the exact replacement in the plain file, or is refused.
        #[test]
        fn typographic_variant_gets_the_same_change(
            lines in proptest::collection::vec("[a-d]{1,2}[ \"-]?[a-d]", 1..8),
            spelling in proptest::collection::vec(0_usize..4, 64),
            (from, size) in (0_usize..8, 1_usize..4),
            new in proptest::collection::vec("[a-e]{1,2}[ \"-]?[a-e]", 0..4),
        ) {
            let from = from.min(lines.len() - 1);
            let old = lines[from..(from + size).min(lines.len())].join("\n");
            let new = new.join("\n");
            let file = lines.join("\n");
            let mut spelling = spelling.iter();
            let mut spell = |c: char| match (c, spelling.next().unwrap_or(&0)) {
                (' ', 1) => "  ".to_owned(),
                (' ', 2) => "\t".to_owned(),
                ('"', 1) => "\u{201c}".to_owned(),
                ('"', 2) => "\u{201d}".to_owned(),
                ('-', 1 | 2) => "\u{2011}".to_owned(),
                ('\n', 1) => " \n".to_owned(),
                ('\n', 2) => "\r\n".to_owned(),
                (c, _) => c.to_string(),
            };
            let spelled: String = file.chars().map(&mut spell).collect();
            let plain = |text: &str| FoldedText::of(&text.replace("\r\n", "\n"), FoldLevel::Blanks).text;
            proptest::prop_assert_eq!(plain(&spelled), &file[..]);
            if let Ok(replaced) = replace(&spelled, &old, &new, false) {
                let places: Vec<usize> = starts(&file, &old).collect();
                let naive: Vec<String> =
                    places.iter().map(|at| format!("{}{new}{}", &file[..*at], &file[at + old.len()..])).collect();
                proptest::prop_assert!(naive.contains(&plain(&replaced.text)), "{:?} {:?} {:?}: {:?}", spelled, old, new, replaced);
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { cases: 10_000, failure_persistence: None, ..Default::default() })]

        /// FW06. Against a naive reference: an exact single match is replaced, several are refused.
        #[test]
        fn search_agrees_with_a_naive_reference(file in "[ab \n]{0,40}", old in "[ab\n]{1,4}", new in "[abc]{0,3}") {
            let places = (0..file.len()).filter(|at| file[*at..].starts_with(&old)).count();
            match (places, replace(&file, &old, &new, false)) {
                // Even if the difference is only one that the search ignored.
                (n, Err(Error::Same)) => proptest::prop_assert!(old == new || n == 0),
                (1, Ok(replaced)) => {
                    proptest::prop_assert_eq!(replaced.text, file.replacen(&old, &new, 1));
                    proptest::prop_assert_eq!(replaced.fuzzy, None);
                }
                (0, Ok(replaced)) => proptest::prop_assert!(replaced.fuzzy.is_some()),
                (0, Err(_)) => {}
                (n, result) => proptest::prop_assert!(n > 1 && matches!(result, Err(Error::Ambiguous(_))), "{} {:?}", n, result),
            }
        }
    }
}
