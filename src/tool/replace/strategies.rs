//! The ways of looking for a text that a model remembers badly, the strictest first.

use std::ops::Range;

use super::super::merge::merged;
use super::super::spelling::{FoldLevel, FoldedText, LONGEST};

/// A place, and what goes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) span: Range<usize>,
    pub(super) new: String,
}

pub(super) type MatchStrategy = fn(&str, &str, &str) -> Vec<Match>;

/// The ways of looking; all but the first have a name that the model is told.
pub(super) const STRATEGIES: &[(Option<&str>, MatchStrategy)] = &[
    (None, exact),
    (Some("ignoring spaces around lines"), trimmed_lines),
    (Some("in other characters"), |file, old, new| respelled(file, old, new, FoldLevel::Characters)),
    (Some("ignoring how wide the spaces are"), |file, old, new| respelled(file, old, new, FoldLevel::Blanks)),
    (Some("by its first and last line"), anchored),
    (Some("after undoing escapes"), unescaped),
    (Some("ignoring spaces around it"), trimmed),
    (Some("by its context"), context),
];

fn exact(file: &str, old: &str, new: &str) -> Vec<Match> {
    starts(file, old).map(|start| Match { span: start..start + old.len(), new: new.to_owned() }).collect()
}

/// Where a text begins in another. Overlapping places count: "aa" in "aaa" is not one place.
pub(super) fn starts(text: &str, wanted: &str) -> impl Iterator<Item = usize> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text.get(from..)?.find(wanted)?;
        from = start + text[start..].chars().next().map_or(1, char::len_utf8);
        Some(start)
    })
}

fn trimmed_lines(file: &str, old: &str, new: &str) -> Vec<Match> {
    let (all, wanted) = (LineSpans::of(file), lines(old));
    all.windows(wanted.len())
        .filter(|window| window.texts().zip(&wanted).all(|(line, wanted)| line.trim() == wanted.trim()))
        .filter_map(|window| window.found(file, old, new))
        .collect()
}

/// The same in another spelling: whole lines, or a piece of some.
fn respelled(file: &str, old: &str, new: &str, level: FoldLevel) -> Vec<Match> {
    if file.len().max(old.len()) > LONGEST {
        return Vec::new();
    }
    let (folded, wanted) = (FoldedText::of(file, level), FoldedText::of(old, level).text);
    if wanted.trim().is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for start in starts(&folded.text, &wanted) {
        let Some(span) = folded.original(&(start..start + wanted.len())) else { continue };
        let end = span.end - usize::from(file[span.clone()].ends_with('\n'));
        let (before, after) = (&file[..span.start], &file[end..]);
        let (lead, trail) = (before.rfind('\n').map_or(0, |at| at + 1), after.find('\n').unwrap_or(after.len()));
        if before[lead..].trim().is_empty() && after[..trail].trim().is_empty() && !old.starts_with('\n') {
            // Whole lines, which may have to be indented otherwise.
            let first = memchr::memchr_iter(b'\n', before.as_bytes()).count();
            let all = LineSpans::of(file);
            let window = all.windows(lines(old).len()).nth(first);
            found.extend(window.and_then(|window| window.found(file, old, new)));
        } else {
            let there: Vec<&str> = file[span.clone()].split('\n').collect();
            let old: Vec<&str> = old.split('\n').collect();
            if let Some(new) = merged(&old, &new.split('\n').collect::<Vec<_>>(), &there) {
                found.push(Match { span, new: new.join("\n") });
            }
        }
    }
    found
}

fn anchored(file: &str, old: &str, new: &str) -> Vec<Match> {
    let (all, wanted) = (LineSpans::of(file), lines(old));
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else {
        return Vec::new();
    };
    if wanted.len() < 3 || first.trim().is_empty() || last.trim().is_empty() {
        return Vec::new();
    }
    let slack = (wanted.len() / 4).max(1);
    let sizes = wanted.len().saturating_sub(slack).max(2)..=wanted.len() + slack;
    let mut found: Vec<Match> = Vec::new();
    for size in sizes {
        for window in all.windows(size) {
            let ends = window.line(0).trim() == first.trim() && window.line(size - 1).trim() == last.trim();
            if ends && alike(&window, &wanted) >= 0.65 {
                found.extend(window.found(file, old, new));
            }
        }
    }
    found
}

/// How alike the lines between the first and the last are, 0 to 1.
fn alike(window: &LineWindow<'_, '_>, wanted: &[&str]) -> f64 {
    let middle = window.lines.len().min(wanted.len()).saturating_sub(2);
    if middle == 0 {
        return 1.0;
    }
    let each = (1..=middle).map(|n| similarity(window.line(n).trim(), wanted[n].trim()));
    each.sum::<f64>() / f64::from(u32::try_from(middle).unwrap_or(u32::MAX))
}

/// 1 − edit distance / longer length, in characters. Very long lines are alike or not.
fn similarity(one: &str, other: &str) -> f64 {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let longer = one.len().max(other.len());
    if longer == 0 || one == other {
        return 1.0;
    }
    if longer > 1_000 {
        return 0.0;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in one.iter().enumerate() {
        let mut corner = row[0];
        row[0] = n + 1;
        for (m, b) in other.iter().enumerate() {
            let cost = (corner + usize::from(a != b)).min(row[m] + 1).min(row[m + 1] + 1);
            corner = row[m + 1];
            row[m + 1] = cost;
        }
    }
    let float = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    1.0 - float(row[other.len()]) / float(longer)
}

fn unescaped(file: &str, old: &str, new: &str) -> Vec<Match> {
    let plain = unescape(old);
    // Who escaped the one will have escaped the other.
    if plain == old { Vec::new() } else { exact(file, &plain, &unescape(new)) }
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let meant = match (c, chars.peek()) {
            ('\\', Some('n' | '\n')) => '\n',
            ('\\', Some('t')) => '\t',
            ('\\', Some('r')) => '\r',
            ('\\', Some(c @ ('\'' | '"' | '`' | '\\' | '$'))) => *c,
            _ => {
                out.push(c);
                continue;
            }
        };
        chars.next();
        out.push(meant);
    }
    out
}

fn trimmed(file: &str, old: &str, new: &str) -> Vec<Match> {
    let bare = old.trim();
    if bare == old {
        return Vec::new();
    }
    // What blanks the new text shares with the old one around it are in the file already, in some form.
    let lead = &old[..old.len() - old.trim_start().len()];
    let trail = &old[old.trim_end().len()..];
    let new = new.strip_prefix(lead).unwrap_or(new);
    let new = new.strip_suffix(trail).unwrap_or(new);
    exact(file, bare, new)
}

fn context(file: &str, old: &str, new: &str) -> Vec<Match> {
    let (all, wanted) = (LineSpans::of(file), lines(old));
    if wanted.len() < 3 {
        return Vec::new();
    }
    let last = wanted.len() - 1;
    let fits = |window: &LineWindow<'_, '_>| {
        let ends = window.line(0).trim() == wanted[0].trim() && window.line(last).trim() == wanted[last].trim();
        let middle = (1..last).filter(|n| !wanted[*n].trim().is_empty() || !window.line(*n).trim().is_empty());
        let (all, same) = middle
            .fold((0, 0), |(all, same), n| (all + 1, same + usize::from(window.line(n).trim() == wanted[n].trim())));
        ends && same * 2 >= all
    };
    all.windows(wanted.len()).filter(fits).filter_map(|window| window.found(file, old, new)).collect()
}

pub(super) fn too_large(found: &str, old: &str) -> bool {
    let (has, wants) = (lines(found).len(), lines(old).len());
    has >= (wants + 3).max(2 * wants)
        || wants > 1 && found.trim().len() > (old.trim().len() + 500).max(4 * old.trim().len())
}

/// The lines of a text; what follows a final line break is no line.
pub(super) fn lines(text: &str) -> Vec<&str> {
    text.strip_suffix('\n').unwrap_or(text).split('\n').collect()
}

/// All between line breaks; without the last one where the text is not to end in one.
fn split(text: &str, unended: bool) -> Vec<&str> {
    text.strip_suffix('\n').filter(|_| unended).unwrap_or(text).split('\n').collect()
}

/// All lines of a text: start and text of each, without its line break.
struct LineSpans<'a>(Vec<(usize, &'a str)>);

impl<'a> LineSpans<'a> {
    fn of(file: &'a str) -> Self {
        let mut at = 0;
        let mut all = Vec::new();
        for line in file.split_inclusive('\n') {
            all.push((at, line.strip_suffix('\n').unwrap_or(line)));
            at += line.len();
        }
        Self(all)
    }

    fn windows(&self, size: usize) -> impl Iterator<Item = LineWindow<'a, '_>> {
        self.0.windows(size.max(1)).map(|lines| LineWindow { lines })
    }
}

struct LineWindow<'a, 'l> {
    lines: &'l [(usize, &'a str)],
}

impl<'a> LineWindow<'a, '_> {
    fn line(&self, n: usize) -> &'a str {
        self.lines.get(n).map_or("", |(_, text)| text)
    }

    fn texts(&self) -> impl Iterator<Item = &'a str> {
        self.lines.iter().map(|(_, text)| *text)
    }

    /// The change of `old` into `new`, made to these lines: with the last line break where `old` has one.
    /// None where the change replaces what these lines do not have.
    fn found(&self, file: &str, old: &str, new: &str) -> Option<Match> {
        let start = self.lines.first().map_or(0, |(start, _)| *start);
        let end = self.lines.last().map_or(0, |(start, text)| start + text.len());
        let breaks = old.ends_with('\n') && file[end..].starts_with('\n');
        // Where the file ends without a line break, it goes on doing so.
        let unended = old.ends_with('\n') && !breaks;
        let split = |text| split(text, unended);
        let (old, new) = (split(old), split(new));
        let there: Vec<&str> = self.texts().chain(breaks.then_some("")).collect();
        let new = merged(&old, &new, &there)?.join("\n");
        Some(Match { span: start..end + usize::from(breaks), new })
    }
}
