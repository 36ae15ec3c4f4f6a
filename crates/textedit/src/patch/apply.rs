//! Finds the positions of a patch's hunks in a file, and makes the changes.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Range;

use super::{Error, Hunk};
use crate::merge::merged;
use crate::replace::FuzzyMatch;
use crate::unicode_folding::{FoldLevel, FoldedText, MAX_FOLDED_BYTES, differences};

/// The result of applying hunks to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedPatch {
    /// The new text of the file.
    pub text: String,
    /// The hunks whose lines are not exactly in the file.
    pub fuzzy: Vec<FuzzyMatch>,
    /// For each of `fuzzy`, the first and last line of its new text, from 1.
    pub now: Vec<(usize, usize)>,
}

/// A hunk with its position in the file.
struct PlacedHunk<'a> {
    /// The first line that is replaced, from 0.
    at: usize,
    /// The number of lines that are replaced.
    length: usize,
    /// The lines in their place.
    new: Cow<'a, [String]>,
    /// The inexact match; `None` if the lines are exactly in the file.
    fuzzy: Option<FuzzyMatch>,
}

/// Applies hunks to a text. Line ends and a missing final line break are preserved. Hunks go from
/// top to bottom; a hunk that is not below the previous one is searched above it, if there is
/// exactly one match.
///
/// # Errors
/// An error for each hunk that does not fit; `name` is the file in the messages.
pub fn apply(text: &str, hunks: &[Hunk], name: &str) -> Result<AppliedPatch, Vec<Error>> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let file = FileLines::of(lines.iter().map(|line| bare(line)).collect());
    let mut placed: Vec<PlacedHunk<'_>> = Vec::new();
    let mut wrong = Vec::new();
    let mut done = 0;
    for hunk in hunks {
        let taken: Vec<Range<usize>> = placed
            .iter()
            .map(|placed| placed.at..placed.at + placed.length)
            .collect();
        match file.place(hunk, done, &taken, name) {
            Ok(found) => {
                done = found.at + found.length;
                placed.push(found);
            }
            Err(e) => wrong.push(e),
        }
    }
    placed.sort_by_key(|placed| placed.at);
    if wrong.is_empty()
        && placed
            .windows(2)
            .any(|pair| pair[0].at + pair[0].length > pair[1].at)
    {
        wrong.push(Error::Overlap(name.to_owned()));
    }
    if wrong.is_empty() {
        Ok(written(text, &lines, placed))
    } else {
        Err(wrong)
    }
}

/// Builds the new text from the lines and the placed hunks.
fn written(text: &str, lines: &[&str], placed: Vec<PlacedHunk<'_>>) -> AppliedPatch {
    let dominant = if text.matches("\r\n").count() * 2 > text.matches('\n').count() {
        "\r\n"
    } else {
        "\n"
    };
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    let mut come = 0;
    let mut fuzzy = Vec::new();
    let mut now = Vec::new();
    for PlacedHunk {
        at,
        length,
        new,
        fuzzy: how,
    } in placed
    {
        out.extend(lines[done..at].iter().copied());
        come += at - done;
        if let Some(how) = how {
            fuzzy.push(how);
            now.push((come + 1, (come + new.len()).max(come + 1)));
        }
        come += new.len();
        let replaced = &lines[at..at + length];
        let same = |(old, new): &(&&str, &String)| bare(old) == new.as_str();
        let shared = replaced.iter().zip(new.iter()).take_while(same).count();
        let tail = replaced[shared..]
            .iter()
            .rev()
            .zip(new[shared..].iter().rev())
            .take_while(same)
            .count();
        out.extend(replaced[..shared].iter().copied());
        let end = replaced
            .get(shared)
            .or(lines.get(at.wrapping_sub(1)))
            .map_or(dominant, |line| {
                if line.ends_with("\r\n") {
                    "\r\n"
                } else if line.ends_with('\n') {
                    "\n"
                } else {
                    dominant
                }
            });
        for line in &new[shared..new.len() - tail] {
            if is_unended(&out) {
                out.push_str(end);
            }
            out.push_str(line);
            out.push_str(end);
        }
        for line in &replaced[length - tail..] {
            if is_unended(&out) {
                out.push_str(end);
            }
            out.push_str(line);
        }
        done = at + length;
    }
    out.extend(lines[done..].iter().copied());
    if !text.is_empty() && !text.ends_with('\n') {
        let without = out
            .strip_suffix("\r\n")
            .or_else(|| out.strip_suffix('\n'))
            .unwrap_or(&out)
            .len();
        out.truncate(without);
    }
    AppliedPatch {
        text: out,
        fuzzy,
        now,
    }
}

/// Returns whether a text ends within a line.
fn is_unended(text: &str) -> bool {
    !text.is_empty() && !text.ends_with('\n')
}

/// Returns a line without its end.
fn bare(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// The position of a hunk, with the part of it that was found.
struct FoundLines<'h> {
    /// The first line in the file, from 0.
    at: usize,
    /// The name of the comparison; `None` if it is exact.
    strategy: Option<&'static str>,
    /// The hunk's old lines, without empty ones at the end that are missing in the file.
    old: &'h [String],
    /// The hunk's new lines, without the same empty ones.
    new: &'h [String],
}

/// A function that returns the part of a line to compare.
type LineKey = fn(&str) -> Cow<'_, str>;

/// The comparisons of lines, strictest first. All but the first have a name that the model is
/// shown.
const COMPARISONS: [(Option<&str>, LineKey); 5] = [
    (None, |line| line.into()),
    (Some("ignoring spaces after lines"), |line| {
        line.trim_end().into()
    }),
    (Some("ignoring spaces around lines"), |line| {
        line.trim().into()
    }),
    (Some("in other characters"), |line| {
        FoldedText::of(line.trim(), FoldLevel::Characters)
            .text
            .into()
    }),
    (Some("ignoring how wide the spaces are"), |line| {
        FoldedText::of(line, FoldLevel::Blanks).text.into()
    }),
];

/// The index of the first comparison that ignores typographic variants.
const FIRST_FOLDED: usize = 3;

/// The lines of a file, with their keys for each comparison, computed at the first use.
struct FileLines<'a> {
    lines: Vec<&'a str>,
    /// The total bytes of the lines.
    length: usize,
    keys: [OnceCell<Vec<Cow<'a, str>>>; COMPARISONS.len()],
}

impl<'a> FileLines<'a> {
    fn of(lines: Vec<&'a str>) -> Self {
        let length = lines.iter().map(|line| line.len()).sum();
        Self {
            lines,
            length,
            keys: Default::default(),
        }
    }

    /// Returns the positions of lines in one comparison, from the line `from` on.
    fn places(&self, comparison: usize, from: usize, wanted: &[String]) -> Vec<usize> {
        let key = COMPARISONS[comparison].1;
        if comparison >= FIRST_FOLDED && self.length > MAX_FOLDED_BYTES {
            return Vec::new();
        }
        let keys =
            self.keys[comparison].get_or_init(|| self.lines.iter().map(|line| key(line)).collect());
        let wanted: Vec<Cow<'_, str>> = wanted.iter().map(|line| key(line)).collect();
        let last = (keys.len() + 1).saturating_sub(wanted.len());
        (from..last)
            .filter(|at| keys[*at..at + wanted.len()] == wanted[..])
            .collect()
    }

    /// Returns the line after the anchors, from which a hunk is to be searched. The anchors are
    /// searched from the line `from` on.
    fn after(&self, anchors: &[String], from: usize) -> Option<usize> {
        anchors.iter().try_fold(from, |from, anchor| {
            let wanted = std::slice::from_ref(anchor);
            let whole = (0..COMPARISONS.len())
                .find_map(|comparison| self.places(comparison, from, wanted).first().copied());
            // A head without its parameters matches if exactly one line begins with it.
            let begins = || {
                let mut lines = (from..self.lines.len())
                    .filter(|at| self.lines[*at].trim().starts_with(anchor.trim()));
                let line = lines.next()?;
                if lines.next().is_some() {
                    None
                } else {
                    Some(line)
                }
            };
            whole.or_else(begins).map(|at| at + 1)
        })
    }

    /// Returns the position of a hunk: below `done`, the end of the previous hunk; otherwise
    /// anywhere that is not taken, if there is exactly one match.
    fn place<'h>(
        &self,
        hunk: &'h Hunk,
        done: usize,
        taken: &[Range<usize>],
        name: &str,
    ) -> Result<PlacedHunk<'h>, Error> {
        let known = |from: usize| self.after(&hunk.anchors, from);
        let below = known(done);
        let above = if done > 0 { known(0) } else { None };
        if below.is_none() && above.is_none() {
            return Err(Error::AnchorsNotFound {
                anchors: hunk.anchors.join("' … '"),
                file: name.into(),
            });
        }
        if hunk.old.is_empty() {
            // A pure insertion goes after the anchors and the empty lines with which the hunk
            // begins, otherwise to the end.
            let at = if hunk.anchors.is_empty() || hunk.is_at_end_of_file {
                self.lines.len()
            } else {
                below.or(above).unwrap_or_default()
            };
            let empty = self.lines[at..]
                .iter()
                .take(hunk.unmarked_before)
                .take_while(|line| line.trim().is_empty())
                .count();
            return Ok(PlacedHunk {
                at: at + empty,
                length: 0,
                new: Cow::Borrowed(&hunk.new),
                fuzzy: None,
            });
        }
        let FoundLines {
            at,
            strategy,
            old,
            new,
        } = self.found(hunk, [below, above], taken, name)?;
        let length = old.len();
        let Some(strategy) = strategy else {
            return Ok(PlacedHunk {
                at,
                length,
                new: Cow::Borrowed(new),
                fuzzy: None,
            });
        };
        let there = &self.lines[at..at + length];
        let missing = || Error::LinesNotFound {
            lines: hunk.old.join("\n"),
            file: name.into(),
        };
        // No lines are not the same as an empty line.
        let changed = match new {
            [] => Vec::new(),
            new => merged(&borrowed(old), &borrowed(new), there).ok_or_else(missing)?,
        };
        let differences = differences(&old.join("\n"), &there.join("\n"));
        let fuzzy = Some(FuzzyMatch {
            strategy,
            differences,
            original: vec![(at + 1, there.join("\n"))],
        });
        Ok(PlacedHunk {
            at,
            length,
            new: Cow::Owned(changed),
            fuzzy,
        })
    }

    /// Finds a hunk's old lines. Empty lines at their end may be missing: they often only separate
    /// the hunk from the next.
    fn found<'h>(
        &self,
        hunk: &'h Hunk,
        from: [Option<usize>; 2],
        taken: &[Range<usize>],
        name: &str,
    ) -> Result<FoundLines<'h>, Error> {
        let mut old = &hunk.old[..];
        let mut new = &hunk.new[..];
        let mut found = self.find(old, hunk, from, taken, name);
        while matches!(found, Err(Error::LinesNotFound { .. }))
            && let [rest @ .., last] = old
            && last.is_empty()
            && !rest.is_empty()
        {
            old = rest;
            new = if new.last().is_some_and(String::is_empty) {
                &new[..new.len() - 1]
            } else {
                new
            };
            found = self.find(old, hunk, from, taken, name);
        }
        let (at, strategy) = found?;
        // After an anchor the first match counts. It must not depend on lines that may not belong
        // to the file.
        let head = hunk.unmarked_before;
        let tail = hunk.unmarked_after;
        if head + tail > 0 && !hunk.anchors.is_empty() && !hunk.is_at_end_of_file {
            let marked = &hunk.old[head..hunk.old.len() - tail];
            if let Ok((other, _)) = self.find(marked, hunk, from, taken, name)
                && other != at + head
            {
                let mut lines = [other + 1, at + head + 1];
                lines.sort_unstable();
                return Err(Error::Ambiguous {
                    line_numbers: crate::replace::list(&lines),
                    file: name.into(),
                });
            }
        }
        Ok(FoundLines {
            at,
            strategy,
            old,
            new,
        })
    }

    /// Finds lines, and returns the first of them and the name of the comparison. Without an
    /// anchor, several matches are an error, because the first may not be the intended one. With an
    /// anchor, the first match below it counts; at the end of the file, the last one that ends
    /// there.
    fn find(
        &self,
        old: &[String],
        hunk: &Hunk,
        [below, above]: [Option<usize>; 2],
        taken: &[Range<usize>],
        name: &str,
    ) -> Result<(usize, Option<&'static str>), Error> {
        let free = |at: &usize| {
            !taken
                .iter()
                .any(|taken| *at < taken.end && taken.start < at + old.len())
        };
        let places = |comparison, from| -> Vec<usize> {
            self.places(comparison, from, old)
                .into_iter()
                .filter(free)
                .collect()
        };
        for (comparison, (how, _)) in COMPARISONS.iter().enumerate() {
            for (from, in_order) in [(below, true), (above, false)] {
                let Some(from) = from else { continue };
                let mut found = places(comparison, from);
                if found.is_empty() && in_order && !hunk.anchors.is_empty() {
                    // The anchor may be repeated as the first line.
                    found = places(comparison, from - 1)
                        .into_iter()
                        .filter(|at| *at + 1 == from)
                        .collect();
                }
                if let Some(at) = found
                    .last()
                    .filter(|at| hunk.is_at_end_of_file && **at + old.len() == self.lines.len())
                {
                    return Ok((*at, *how));
                }
                match found[..] {
                    [] => {}
                    [at] => return Ok((at, *how)),
                    [at, ..] if in_order && !hunk.anchors.is_empty() => return Ok((at, *how)),
                    _ => {
                        let list: Vec<usize> = found.iter().map(|at| at + 1).collect();
                        return Err(Error::Ambiguous {
                            line_numbers: crate::replace::list(&list),
                            file: name.into(),
                        });
                    }
                }
            }
        }
        Err(Error::LinesNotFound {
            lines: old.join("\n"),
            file: name.into(),
        })
    }
}

fn borrowed(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).collect()
}
