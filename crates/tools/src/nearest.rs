//! The place in a text that is most like what a model looks for, and what differs there: after a look
//! at it, the next call is the right one. Pure.

use std::collections::HashSet;

use super::spelling::{FoldLevel, FoldedText, LONGEST, differences};
use base::text;

/// How many lines are shown at most, and how much of each, in characters.
const LINES: usize = 30;
const LINE: usize = 300;

/// How many lines of what is looked for decide where the place is.
const PROBES: usize = 8;

/// How many differences are named.
const NAMED: usize = 4;

/// A place, and what is there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NearMiss {
    /// The first line, from 1.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) differences: Vec<String>,
}

/// The words of a line, each once; a line without any is its own word.
fn words(line: &str) -> HashSet<String> {
    let line = FoldedText::of(line, FoldLevel::Blanks).text;
    let words: HashSet<String> =
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    if words.is_empty() && !line.trim().is_empty() { HashSet::from([line.trim().to_owned()]) } else { words }
}

/// How many words two lines share, 0 to 1.
fn alike(one: &HashSet<String>, other: &HashSet<String>) -> f64 {
    let float = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    let all = one.len() + other.len();
    if all == 0 { 0.0 } else { 2.0 * float(one.intersection(other).count()) / float(all) }
}

/// The lines that are most like `wanted`; none where nothing is half like it.
pub(super) fn near(file: &str, wanted: &str) -> Option<NearMiss> {
    if file.len().max(wanted.len()) > LONGEST {
        return None;
    }
    let lines: Vec<&str> = file.lines().collect();
    let first_filled = wanted.lines().position(|line| !line.trim().is_empty())?;
    let wanted: Vec<&str> = wanted.trim_end().lines().skip(first_filled).collect();
    let have: Vec<HashSet<String>> = lines.iter().map(|line| words(line)).collect();
    let mut probes: Vec<(usize, HashSet<String>)> =
        wanted.iter().enumerate().map(|(n, line)| (n, words(line))).filter(|(_, words)| !words.is_empty()).collect();
    probes.sort_by_key(|(n, words)| (std::cmp::Reverse(words.len()), *n));
    probes.truncate(PROBES);
    // Each probe says how well each place would suit it; lines may have come or gone in between.
    let (mut best, mut start) = (0.0, None);
    let mut score = vec![0.0_f64; lines.len() + wanted.len()];
    for (n, probe) in &probes {
        for (at, words) in have.iter().enumerate() {
            let fits = alike(probe, words);
            if fits >= 0.5 {
                // The place that `wanted` would begin at, moved by its length to stay above nothing.
                score[at + wanted.len() - n] += fits;
            }
        }
    }
    for (at, score) in score.into_iter().enumerate() {
        if score > best {
            (best, start) = (score, Some(at));
        }
    }
    let enough = f64::from(u32::try_from(probes.len()).unwrap_or(u32::MAX)) * 0.4;
    let start = start.filter(|_| best >= enough)?;
    let first = start.saturating_sub(wanted.len()).min(lines.len().saturating_sub(1));
    let last = start.min(lines.len()).max(first + 1);
    // What would begin above the file is beside nothing.
    let above = wanted.len().saturating_sub(start);
    let mut told = Vec::new();
    for (n, (line, wanted)) in
        lines[first..last].iter().zip(wanted.iter().skip(above)).enumerate().filter(|(_, (a, b))| a != b)
    {
        let spelling = differences(wanted, line);
        let what = if spelling.is_empty() {
            format!("the file has `{}`, you wrote `{}`", cut(line), cut(wanted))
        } else {
            spelling.join("; ")
        };
        told.push(format!("line {}: {what}", first + n + 1));
    }
    let more = told.len().saturating_sub(NAMED);
    told.truncate(NAMED);
    if more > 0 {
        told.push(format!("and {}", text::count(more, "more line")));
    }
    if above == 0 && first + wanted.len() > lines.len() {
        told.push("the file ends before what you wrote does".into());
    }
    Some(NearMiss { first: first + 1, last, differences: told })
}

fn cut(line: &str) -> String {
    text::cut_chars(line, LINE)
}

/// Lines of a text, from 1, with their numbers as `read` shows them; the middle is left out where there
/// are too many.
pub(super) fn numbered(file: &str, first: usize, last: usize) -> String {
    let first = first.max(1);
    let lines: Vec<String> = file
        .lines()
        .enumerate()
        .skip(first - 1)
        .take((last + 1).saturating_sub(first))
        .map(|(n, line)| format!("{}: {}", n + 1, cut(line)))
        .collect();
    if lines.len() <= LINES {
        return lines.join("\n");
    }
    let (head, tail) = (&lines[..LINES / 2], &lines[lines.len() - LINES / 2..]);
    format!("{}\n({} left out)\n{}", head.join("\n"), text::count(lines.len() - LINES, "line"), tail.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_place_is_found() {
        let file =
            "use a;\n\nfn one() {\n    let x = 11;\n    say(\u{201c}hi\u{201d});\n}\n\nfn two() {\n    let y = 2;\n}\n";
        // Wanted, first and last line, what differs.
        type Row = (&'static str, Option<(usize, usize, &'static str)>);
        let table: &[Row] = &[
            ("    let x = 12;", Some((4, 4, "line 4: the file has `    let x = 11;`, you wrote `    let x = 12;`"))),
            ("fn one() {\n    let x = 12;\n", Some((3, 4, "line 4: the file has"))),
            ("\n\nfn two() {\n\tlet y = 2;\n}", Some((8, 10, "line 9: spaces where you wrote tabs"))),
            ("    say(\"hi\");", Some((5, 5, "line 5: U+201C (typographic quote)"))),
            ("    let y = 2;\n}\n// the end", Some((9, 10, "the file ends before what you wrote does"))),
            ("// the licence\nuse a;", Some((1, 1, ""))),
            ("nothing of the kind", None),
            ("", None),
            ("\n \n", None),
        ];
        for (wanted, expected) in table {
            let near = near(file, wanted);
            let places = near.as_ref().map(|near| (near.first, near.last));
            assert_eq!(places, expected.map(|(first, last, _)| (first, last)), "{wanted:?}: {near:?}");
            if let (Some(near), Some((_, _, differs))) = (near, expected) {
                let told = differs.is_empty() || near.differences.iter().any(|told| told.contains(differs));
                assert!(told, "{wanted:?}: {near:?}");
            }
        }
        assert_eq!(near("", "a"), None);
    }

    #[test]
    fn lines_have_numbers() {
        let file: String = (1..=99).map(|n| format!("l{n}\n")).collect();
        assert_eq!(numbered(&file, 3, 4), "3: l3\n4: l4");
        assert_eq!(numbered(&file, 99, 120), "99: l99");
        let long = numbered(&file, 1, 99);
        assert!(long.contains("15: l15\n(69 lines left out)\n85: l85\n"), "{long}");
    }
}
