//! Determines the errors that a change has introduced, as opposed to those that existed before.

use super::types::Diagnostic;

/// Returns the errors of `after` that were not there `before`, in the order of their positions.
/// `old` and `new` are the texts of the file, from which the movement of lines is derived.
pub fn introduced_errors(
    before: &[Diagnostic],
    after: &[Diagnostic],
    old: &str,
    new: &str,
) -> Vec<Diagnostic> {
    let moved = MovedLines::between(old, new);
    let mut known: Vec<(Option<u32>, &Diagnostic)> = before
        .iter()
        .filter(|diagnostic| diagnostic.is_error())
        .map(|diagnostic| (moved.line(diagnostic.range.start.line), diagnostic))
        .collect();
    let mut left: Vec<&Diagnostic> = after
        .iter()
        .filter(|diagnostic| diagnostic.is_error())
        .collect();
    // Errors in the same line are matched first; then the same error in another line is matched
    // with one that has gone.
    for exact in [true, false] {
        left.retain(|diagnostic| {
            let same = |(line, was): &(Option<u32>, &Diagnostic)| {
                was.message == diagnostic.message
                    && was.code == diagnostic.code
                    && (!exact || *line == Some(diagnostic.range.start.line))
            };
            known
                .iter()
                .position(same)
                .map(|at| known.swap_remove(at))
                .is_none()
        });
    }
    let mut left: Vec<Diagnostic> = left.into_iter().cloned().collect();
    left.sort_by_key(|diagnostic| diagnostic.range.start);
    left.dedup();
    left
}

/// The movement of lines. All lines between the first and the last difference count as changed.
struct MovedLines {
    same_above: usize,
    same_below: usize,
    old: usize,
    new: usize,
}

impl MovedLines {
    fn between(old: &str, new: &str) -> Self {
        let (above, below) = ends(old, new);
        Self {
            same_above: above,
            same_below: below,
            old: old.lines().count(),
            new: new.lines().count(),
        }
    }

    /// Returns the new number of a line; `None` if the line was changed.
    fn line(&self, old: u32) -> Option<u32> {
        let at = usize::try_from(old).ok()?;
        if at < self.same_above {
            return Some(old);
        }
        // An error may be behind the last line.
        if at >= self.old || self.old - at <= self.same_below {
            return u32::try_from((at + self.new).checked_sub(self.old)?).ok();
        }
        None
    }
}

/// Returns the number of common lines at the beginning of two texts, and at their end beyond these.
pub(super) fn ends(old: &str, new: &str) -> (usize, usize) {
    let above = old
        .lines()
        .zip(new.lines())
        .take_while(|(old, new)| old == new)
        .count();
    let rest = old.lines().count().min(new.lines().count()) - above;
    let below = old
        .lines()
        .rev()
        .zip(new.lines().rev())
        .take(rest)
        .take_while(|(old, new)| old == new)
        .count();
    (above, below)
}

#[cfg(test)]
mod tests {
    use super::super::types::{Position, Range};
    use super::*;

    fn error(line: u32, message: &str) -> Diagnostic {
        let at = Position { line, character: 0 };
        Diagnostic {
            range: Range { start: at, end: at },
            severity: 1,
            message: message.into(),
            code: String::new(),
        }
    }

    #[test]
    fn earlier_errors_are_not_reported() {
        type Lines<'a> = &'a [(u32, &'a str)];
        let old = "a\nb\nc\nd\n";
        let table: &[(&str, Lines<'_>, Lines<'_>, &[u32])] = &[
            // Unchanged; all errors are new; all are fixed.
            (old, &[(1, "x")], &[(1, "x")], &[]),
            (old, &[], &[(3, "x"), (1, "x")], &[1, 3]),
            (old, &[(1, "x")], &[], &[]),
            // It has moved down with its line, or up.
            ("new\na\nb\nc\nd\n", &[(1, "x")], &[(2, "x")], &[]),
            ("c\nd\n", &[(3, "x")], &[(1, "x")], &[]),
            // The same mistake a second time.
            (
                "a\nb\nNEW\nc\nd\n",
                &[(1, "x")],
                &[(1, "x"), (2, "x")],
                &[2],
            ),
            (
                "a\nNEW\nb\nc\nd\n",
                &[(1, "x")],
                &[(1, "x"), (2, "x")],
                &[1],
            ),
            // The changed line had it before.
            ("a\nB\nc\nd\n", &[(1, "x")], &[(1, "x")], &[]),
            // In its place another one.
            ("a\nB\nc\nd\n", &[(1, "x")], &[(1, "y")], &[1]),
            ("", &[(1, "x")], &[(0, "x")], &[]),
        ];
        for (new, before, after, wanted) in table {
            let all = |lines: Lines<'_>| {
                lines
                    .iter()
                    .map(|(line, text)| error(*line, text))
                    .collect::<Vec<_>>()
            };
            let got = introduced_errors(&all(before), &all(after), old, new);
            let got: Vec<u32> = got.iter().map(|error| error.range.start.line).collect();
            assert_eq!(got, *wanted, "{new:?} {before:?} {after:?}");
        }
        let warning = Diagnostic {
            severity: 2,
            ..error(0, "w")
        };
        assert!(introduced_errors(&[], &[warning], "", "").is_empty());
    }
}
