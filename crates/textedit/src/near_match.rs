//! Finds the text that is most similar to a failed quote, and the differences, so that the next
//! call can be correct. Pure.

use std::collections::HashSet;

use crate::unicode_folding::{FoldLevel, FoldedText, MAX_FOLDED_BYTES, differences};
use base::text;

/// The maximum number of lines that are shown.
const MAX_LINES: usize = 30;

/// The maximum number of characters that are shown of a line.
const MAX_LINE_CHARS: usize = 300;

/// The maximum number of quoted lines that determine the position.
const MAX_PROBES: usize = 8;

/// The maximum number of differences that are named.
const MAX_NAMED_DIFFERENCES: usize = 4;

/// The most similar lines, with their differences from the quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearMiss {
    /// The first line, from 1.
    pub first: usize,
    /// The last line, from 1; it is included.
    pub last: usize,
    /// The differences, for the model; the last entry may count those that are left out.
    pub differences: Vec<String>,
}

/// Returns the set of words of a line; a line without words is a word itself.
fn words(line: &str) -> HashSet<String> {
    let line = FoldedText::of(line, FoldLevel::Blanks).text;
    let words: HashSet<String> = line
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    if words.is_empty() && !line.trim().is_empty() {
        HashSet::from([line.trim().to_owned()])
    } else {
        words
    }
}

/// Returns the share of common words of two lines, from 0 to 1.
fn alike(one: &HashSet<String>, other: &HashSet<String>) -> f64 {
    let all = one.len() + other.len();
    if all == 0 {
        0.0
    } else {
        2.0 * to_float(one.intersection(other).count()) / to_float(all)
    }
}

fn to_float(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// Returns the lines that are most similar to `wanted`; `None` if none is similar enough, or if one
/// of the texts is too long to be compared.
pub fn near(file: &str, wanted: &str) -> Option<NearMiss> {
    if file.len().max(wanted.len()) > MAX_FOLDED_BYTES {
        return None;
    }
    let lines: Vec<&str> = file.lines().collect();
    let first_filled = wanted.lines().position(|line| !line.trim().is_empty())?;
    let wanted: Vec<&str> = wanted.trim_end().lines().skip(first_filled).collect();
    let have: Vec<HashSet<String>> = lines.iter().map(|line| words(line)).collect();
    let mut probes: Vec<(usize, HashSet<String>)> = wanted
        .iter()
        .enumerate()
        .map(|(n, line)| (n, words(line)))
        .filter(|(_, words)| !words.is_empty())
        .collect();
    probes.sort_by_key(|(n, words)| (std::cmp::Reverse(words.len()), *n));
    probes.truncate(MAX_PROBES);
    // Each probe votes for positions, because lines may have been added or removed in between.
    let mut best = 0.0;
    let mut start = None;
    let mut score = vec![0.0_f64; lines.len() + wanted.len()];
    for (n, probe) in &probes {
        for (at, words) in have.iter().enumerate() {
            let fits = alike(probe, words);
            if fits >= 0.5 {
                // The position at which `wanted` would begin, shifted by its length so that it is
                // not negative.
                score[at + wanted.len() - n] += fits;
            }
        }
    }
    for (at, score) in score.into_iter().enumerate() {
        if score > best {
            best = score;
            start = Some(at);
        }
    }
    let enough = f64::from(u32::try_from(probes.len()).unwrap_or(u32::MAX)) * 0.4;
    if best < enough {
        return None;
    }
    let start = start?;
    let first = start
        .saturating_sub(wanted.len())
        .min(lines.len().saturating_sub(1));
    let last = start.min(lines.len()).max(first + 1);
    // Lines that would lie above the file have no counterpart.
    let above = wanted.len().saturating_sub(start);
    let mut named = Vec::new();
    for (n, (line, wanted)) in lines[first..last]
        .iter()
        .zip(wanted.iter().skip(above))
        .enumerate()
        .filter(|(_, (a, b))| a != b)
    {
        let spelling = differences(wanted, line);
        let what = if spelling.is_empty() {
            format!("the file has `{}`, you wrote `{}`", cut(line), cut(wanted))
        } else {
            spelling.join("; ")
        };
        named.push(format!("line {}: {what}", first + n + 1));
    }
    let more = named.len().saturating_sub(MAX_NAMED_DIFFERENCES);
    named.truncate(MAX_NAMED_DIFFERENCES);
    if more > 0 {
        named.push(format!("and {}", text::count(more, "more line")));
    }
    if above == 0 && first + wanted.len() > lines.len() {
        named.push("the file ends before what you wrote does".into());
    }
    Some(NearMiss {
        first: first + 1,
        last,
        differences: named,
    })
}

fn cut(line: &str) -> String {
    text::cut_chars(line, MAX_LINE_CHARS)
}

/// Returns the lines from `first` to `last` of a text, counted from 1, with numbers as from `read`;
/// leaves out the middle if there are too many.
pub fn numbered(file: &str, first: usize, last: usize) -> String {
    let first = first.max(1);
    let lines: Vec<String> = file
        .lines()
        .enumerate()
        .skip(first - 1)
        .take((last + 1).saturating_sub(first))
        .map(|(n, line)| format!("{}: {}", n + 1, cut(line)))
        .collect();
    if lines.len() <= MAX_LINES {
        return lines.join("\n");
    }
    let head = &lines[..MAX_LINES / 2];
    let tail = &lines[lines.len() - MAX_LINES / 2..];
    format!(
        "{}\n({} left out)\n{}",
        head.join("\n"),
        text::count(lines.len() - MAX_LINES, "line"),
        tail.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_lines_are_found_with_differences() {
        let file = "use a;\n\nfn one() {\n    let x = 11;\n    say(\u{201c}hi\u{201d});\n}\n\nfn two() {\n    let y = 2;\n}\n";
        // Wanted text, first and last line, differences.
        type Row = (&'static str, Option<(usize, usize, &'static str)>);
        let table: &[Row] = &[
            (
                "    let x = 12;",
                Some((
                    4,
                    4,
                    "line 4: the file has `    let x = 11;`, you wrote `    let x = 12;`",
                )),
            ),
            (
                "fn one() {\n    let x = 12;\n",
                Some((3, 4, "line 4: the file has")),
            ),
            (
                "\n\nfn two() {\n\tlet y = 2;\n}",
                Some((8, 10, "line 9: spaces where you wrote tabs")),
            ),
            (
                "    say(\"hi\");",
                Some((5, 5, "line 5: U+201C (typographic quote)")),
            ),
            (
                "    let y = 2;\n}\n// the end",
                Some((9, 10, "the file ends before what you wrote does")),
            ),
            ("// the licence\nuse a;", Some((1, 1, ""))),
            ("nothing of the kind", None),
            ("", None),
            ("\n \n", None),
        ];
        for (wanted, expected) in table {
            let near = near(file, wanted);
            let places = near.as_ref().map(|near| (near.first, near.last));
            assert_eq!(
                places,
                expected.map(|(first, last, _)| (first, last)),
                "{wanted:?}: {near:?}"
            );
            if let (Some(near), Some((_, _, differs))) = (near, expected) {
                let is_described = differs.is_empty()
                    || near
                        .differences
                        .iter()
                        .any(|is_described| is_described.contains(differs));
                assert!(is_described, "{wanted:?}: {near:?}");
            }
        }
        assert_eq!(near("", "a"), None);
    }

    #[test]
    fn numbered_omits_the_middle() {
        let file: String = (1..=99).map(|n| format!("l{n}\n")).collect();
        assert_eq!(numbered(&file, 3, 4), "3: l3\n4: l4");
        assert_eq!(numbered(&file, 99, 120), "99: l99");
        let long = numbered(&file, 1, 99);
        assert!(
            long.contains("15: l15\n(69 lines left out)\n85: l85\n"),
            "{long}"
        );
    }
}
