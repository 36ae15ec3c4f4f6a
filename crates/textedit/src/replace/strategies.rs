//! The strategies for finding a text that the model has quoted inexactly, the strictest first.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;

use crate::merge::merged;
use crate::unicode_folding::{FoldLevel, FoldedText, MAX_FOLDED_BYTES};

/// A range of the file, and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) span: Range<usize>,
    pub(super) new: String,
}

/// A text to be found in a file and its replacement; all have the same line ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct SoughtText<'a> {
    pub(super) file: &'a str,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    /// True if every occurrence is to be replaced; otherwise there must be exactly one.
    pub(super) all: bool,
}

/// The maximum number of inexact matches, and of exact ones if only one is wanted.
pub(super) const MAX_MATCHES: usize = 5_000;

/// The maximum number of character or line comparisons.
const MAX_COMPARISONS: usize = 50_000_000;

/// The maximum length of a line that is compared for similarity, in characters.
const MAX_COMPARED_LINE_CHARS: usize = 1_000;

/// The maximum bytes, over all matches, in which the change is tried.
const MAX_TRIED_BYTES: usize = 2_000_000;

/// A strategy. Returns `None` if there are too many candidates.
pub(super) type MatchStrategy = fn(&SoughtText<'_>) -> Option<Vec<Match>>;

impl SoughtText<'_> {
    /// Makes the change in each candidate that it fits. Returns `None` if there are too many.
    fn tried<T>(
        &self,
        places: impl Iterator<Item = T>,
        change: impl Fn(T) -> Option<Match>,
    ) -> Option<Vec<Match>> {
        let most = (MAX_TRIED_BYTES / self.old.len().max(1)).clamp(2, 2 * MAX_MATCHES);
        let mut found = Vec::new();
        for (n, range) in places.enumerate() {
            if n >= most || found.len() > MAX_MATCHES {
                return None;
            }
            found.extend(change(range));
        }
        Some(found)
    }
}

/// The strategies. All but the first have a name that the model is shown.
pub(super) const STRATEGIES: &[(Option<&str>, MatchStrategy)] = &[
    (None, exact),
    (Some("ignoring spaces around lines"), trimmed_lines),
    (Some("in other characters"), |wanted| {
        respelled(wanted, FoldLevel::Characters)
    }),
    (Some("ignoring how wide the spaces are"), |wanted| {
        respelled(wanted, FoldLevel::Blanks)
    }),
    (Some("by its first and last line"), anchored),
    (Some("after undoing escapes"), unescaped),
    (Some("ignoring spaces around it"), trimmed),
    (Some("by its context"), context),
];

/// Finds the text as it is.
fn exact(
    &SoughtText {
        file,
        old,
        new,
        all,
    }: &SoughtText<'_>,
) -> Option<Vec<Match>> {
    let found = |start| Match {
        span: start..start + old.len(),
        new: new.to_owned(),
    };
    // Of overlapping occurrences the first is replaced if all are wanted; otherwise they count as
    // several.
    if all {
        return Some(
            memchr::memmem::find_iter(file.as_bytes(), old)
                .map(found)
                .collect(),
        );
    }
    Some(starts(file, old).take(MAX_MATCHES + 1).map(found).collect())
}

/// Returns the byte offsets of a text in another. Overlapping occurrences count: "aa" occurs twice
/// in "aaa".
pub(super) fn starts(text: &str, wanted: &str) -> impl Iterator<Item = usize> {
    let finder = memchr::memmem::Finder::new(wanted);
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + finder.find(text.as_bytes().get(from..)?)?;
        from = start + text[start..].chars().next().map_or(1, char::len_utf8);
        Some(start)
    })
}

/// Finds whole lines that differ from the text only in whitespace at their ends.
fn trimmed_lines(wanted: &SoughtText<'_>) -> Option<Vec<Match>> {
    let all = LineSpans::of(wanted.file);
    let lines = trimmed_of(wanted.old);
    let left = Cell::new(MAX_COMPARISONS);
    let fits = |window: &LineWindow<'_, '_>| {
        let same = window
            .texts()
            .zip(&lines)
            .take_while(|(line, wanted)| line.trim() == **wanted)
            .count();
        left.set(left.get().saturating_sub(same + 1));
        same == lines.len()
    };
    let fitting = all
        .windows(lines.len())
        .take_while(|_| left.get() > 0)
        .filter(fits);
    let found = wanted.tried(fitting, |window| window.found(wanted));
    if left.get() > 0 { found } else { None }
}

/// Returns the lines of a text without whitespace at their ends.
fn trimmed_of(text: &str) -> Vec<&str> {
    lines(text).into_iter().map(str::trim).collect()
}

/// Finds typographic variants of the text: whole lines, or a piece of them.
fn respelled(wanted: &SoughtText<'_>, level: FoldLevel) -> Option<Vec<Match>> {
    let SoughtText { file, old, new, .. } = *wanted;
    if file.len().max(old.len()) > MAX_FOLDED_BYTES {
        return Some(Vec::new());
    }
    let folded = FoldedText::of(file, level);
    let plain = FoldedText::of(old, level).text;
    if plain.trim().is_empty() {
        return Some(Vec::new());
    }
    let all = LineSpans::of(file);
    let old_lines: Vec<&str> = old.split('\n').collect();
    let new_lines: Vec<&str> = new.split('\n').collect();
    let height = lines(old).len();
    let spans = starts(&folded.text, &plain)
        .filter_map(|start| folded.original(&(start..start + plain.len())));
    wanted.tried(spans, |span| {
        let end = span.end - usize::from(file[span.clone()].ends_with('\n'));
        let first = all.line_at(span.start);
        if all.begins(first, span.start)
            && all.ends(all.line_at(end), end)
            && !old.starts_with('\n')
        {
            // Whole lines, which may need another indentation.
            return all.window(first, height)?.found(wanted);
        }
        let there: Vec<&str> = file[span.clone()].split('\n').collect();
        let new = merged(&old_lines, &new_lines, &there)?.join("\n");
        Some(Match { span, new })
    })
}

/// Finds lines whose first and last one are those of the text, with a similar number of lines in
/// between that are similar on average.
fn anchored(wanted: &SoughtText<'_>) -> Option<Vec<Match>> {
    let all = LineSpans::of(wanted.file);
    let lines = trimmed_of(wanted.old);
    let [first, .., last] = lines.as_slice() else {
        return Some(Vec::new());
    };
    if lines.len() < 3 || first.is_empty() || last.is_empty() {
        return Some(Vec::new());
    }
    let slack = (lines.len() / 4).max(1);
    let sizes = lines.len().saturating_sub(slack).max(2)..=lines.len() + slack;
    let beginnings: Vec<usize> = all.places_of(first).collect();
    let is_end: HashSet<usize> = all.places_of(last).collect();
    let left = Cell::new(MAX_COMPARISONS);
    let windows = sizes.flat_map(|size| beginnings.iter().map(move |at| (*at, size)));
    let ended = windows.take_while(|_| left.get() > 0).filter(|(at, size)| {
        left.set(left.get().saturating_sub(1));
        is_end.contains(&(at + size - 1))
    });
    let fitting = ended
        .filter_map(|(at, size)| all.window(at, size))
        .filter(|window| alike(window, &lines, &left) >= 0.65);
    let found = wanted.tried(fitting, |window| window.found(wanted));
    if left.get() > 0 { found } else { None }
}

/// Returns the similarity of the lines between the first and the last, from 0 to 1. `left` is the
/// remaining number of comparisons; it becomes 0 if they do not suffice.
fn alike(window: &LineWindow<'_, '_>, wanted: &[&str], left: &Cell<usize>) -> f64 {
    let middle = window.lines.len().min(wanted.len()).saturating_sub(2);
    if middle == 0 {
        return 1.0;
    }
    let each = (1..=middle).map(|n| {
        let one = window.line(n).trim();
        let other = wanted[n];
        let compared = one != other && one.len().max(other.len()) <= 4 * MAX_COMPARED_LINE_CHARS;
        left.set(
            left.get()
                .saturating_sub(if compared { one.len() * other.len() } else { 0 } + 1),
        );
        if left.get() == 0 {
            0.0
        } else {
            similarity(one, other)
        }
    });
    each.sum::<f64>() / f64::from(u32::try_from(middle).unwrap_or(u32::MAX))
}

/// Returns 1 − edit distance / longer length, in characters: from 0 to 1. For lines that are longer
/// than [`MAX_COMPARED_LINE_CHARS`] it is 0 or 1.
fn similarity(chars: &str, other: &str) -> f64 {
    if chars == other {
        return 1.0;
    }
    let chars: Vec<char> = chars.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let longer = chars.len().max(other.len());
    if longer > MAX_COMPARED_LINE_CHARS {
        return 0.0;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in chars.iter().enumerate() {
        let mut corner = row[0];
        row[0] = n + 1;
        for (m, b) in other.iter().enumerate() {
            let cost = (corner + usize::from(a != b))
                .min(row[m] + 1)
                .min(row[m + 1] + 1);
            corner = row[m + 1];
            row[m + 1] = cost;
        }
    }
    1.0 - to_float(row[other.len()]) / to_float(longer)
}

fn to_float(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// Finds the text with its escapes resolved, if it has any.
fn unescaped(wanted: &SoughtText<'_>) -> Option<Vec<Match>> {
    let old = unescape(wanted.old);
    let new = unescape(wanted.new);
    // If the old text was escaped, the new one is too.
    if old == wanted.old {
        Some(Vec::new())
    } else {
        exact(&SoughtText {
            old: &old,
            new: &new,
            ..*wanted
        })
    }
}

/// Resolves escapes as in string literals: `\n`, `\"`.
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

/// Finds the text without whitespace at its ends, if it has any.
fn trimmed(wanted: &SoughtText<'_>) -> Option<Vec<Match>> {
    let SoughtText { old, new, .. } = *wanted;
    let bare = old.trim();
    if bare == old {
        return Some(Vec::new());
    }
    // Whitespace at the ends that both texts share is in the file already, in some form.
    let lead = &old[..old.len() - old.trim_start().len()];
    let trail = &old[old.trim_end().len()..];
    let new = new.strip_prefix(lead).unwrap_or(new);
    let new = new.strip_suffix(trail).unwrap_or(new);
    exact(&SoughtText {
        old: bare,
        new,
        ..*wanted
    })
}

/// Finds as many lines as the text has whose first and last one are its own, and of which at least
/// half of the others are.
fn context(wanted: &SoughtText<'_>) -> Option<Vec<Match>> {
    let all = LineSpans::of(wanted.file);
    let lines = trimmed_of(wanted.old);
    if lines.len() < 3 {
        return Some(Vec::new());
    }
    let last = lines.len() - 1;
    let left = Cell::new(MAX_COMPARISONS);
    let fits = |window: &LineWindow<'_, '_>| {
        if window.line(0).trim() != lines[0] || window.line(last).trim() != lines[last] {
            return false;
        }
        left.set(left.get().saturating_sub(lines.len()));
        let middle = (1..last)
            .map(|n| (window.line(n).trim(), lines[n]))
            .filter(|pair| *pair != ("", ""));
        let (all, same) = middle.fold((0, 0), |(all, same), (line, wanted)| {
            (all + 1, same + usize::from(line == wanted))
        });
        same * 2 >= all
    };
    let fitting = all
        .windows(lines.len())
        .take_while(|_| left.get() > 0)
        .filter(fits);
    let found = wanted.tried(fitting, |window| window.found(wanted));
    if left.get() > 0 { found } else { None }
}

/// Returns whether a match is so much larger than the old text that it may be wrong.
pub(super) fn too_large(found: &str, old: &str) -> bool {
    let has = lines(found).len();
    let wants = lines(old).len();
    has >= (wants + 3).max(2 * wants)
        || wants > 1 && found.trim().len() > (old.trim().len() + 500).max(4 * old.trim().len())
}

/// Returns the lines of a text; nothing after a final line break counts as a line.
pub(super) fn lines(text: &str) -> Vec<&str> {
    text.strip_suffix('\n')
        .unwrap_or(text)
        .split('\n')
        .collect()
}

/// Splits a text at line breaks; ignores one at its end if `unended`.
fn split(text: &str, unended: bool) -> Vec<&str> {
    let text = if unended {
        text.strip_suffix('\n').unwrap_or(text)
    } else {
        text
    };
    text.split('\n').collect()
}

/// The lines of a text: the byte offset of each, and its text without the line break.
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
        self.0
            .windows(size.max(1))
            .map(|lines| LineWindow { lines })
    }

    /// Returns `size` lines from line `first` on, counted from 0; `None` if there are fewer.
    fn window(&self, first: usize, size: usize) -> Option<LineWindow<'a, '_>> {
        self.0
            .get(first..first.checked_add(size)?)
            .map(|lines| LineWindow { lines })
    }

    /// Returns the indices of the lines that equal this text except for whitespace at their ends.
    fn places_of<'s>(&'s self, text: &'s str) -> impl Iterator<Item = usize> + 's {
        self.0
            .iter()
            .enumerate()
            .filter(move |(_, (_, line))| line.trim() == text)
            .map(|(n, _)| n)
    }

    /// Returns the index of the line that contains an offset.
    fn line_at(&self, at: usize) -> usize {
        self.0
            .partition_point(|(start, _)| *start <= at)
            .saturating_sub(1)
    }

    /// Returns whether only whitespace precedes an offset in its line, which has the index `line`.
    fn begins(&self, line: usize, at: usize) -> bool {
        self.0
            .get(line)
            .is_none_or(|(start, text)| at <= start + (text.len() - text.trim_start().len()))
    }

    /// Returns whether only whitespace follows an offset in its line, which has the index `line`.
    fn ends(&self, line: usize, at: usize) -> bool {
        self.0
            .get(line)
            .is_none_or(|(start, text)| at >= start + text.trim_end().len())
    }
}

/// Consecutive lines of a text, as in [`LineSpans`].
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

    /// Applies the change of `old` into `new` to these lines, with the last line break if `old` has
    /// one. Returns `None` if the change replaces text that these lines do not have.
    fn found(&self, &SoughtText { file, old, new, .. }: &SoughtText<'_>) -> Option<Match> {
        let start = self.lines.first().map_or(0, |(start, _)| *start);
        let end = self
            .lines
            .last()
            .map_or(0, |(start, text)| start + text.len());
        let breaks = old.ends_with('\n') && file[end..].starts_with('\n');
        // If the file ends without a line break, it still does after the change.
        let unended = old.ends_with('\n') && !breaks;
        let old = split(old, unended);
        let new = split(new, unended);
        let there: Vec<&str> = self.texts().chain(breaks.then_some("")).collect();
        let new = merged(&old, &new, &there)?.join("\n");
        Some(Match {
            span: start..end + usize::from(breaks),
            new,
        })
    }
}
