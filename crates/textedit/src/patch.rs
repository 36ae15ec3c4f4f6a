//! The patch format that some models were trained on: parsing and application. Pure.
//!
//! ```text
//! *** Begin Patch
//! *** Add File: path            lines that begin with +
//! *** Delete File: path
//! *** Update File: path         perhaps followed by *** Move to: path
//! @@ a line to look for first   perhaps empty
//!  a line that stays
//! -a line that goes
//! +a line that comes
//! *** End of File               where the piece must be at the end
//! *** End Patch
//! ```

mod apply;

pub use apply::apply;

/// The changes to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// Creates the file.
    Add {
        /// The path as the model wrote it.
        path: String,
        /// The content of the file.
        text: String,
    },
    /// Deletes the file.
    Delete {
        /// The path as the model wrote it.
        path: String,
    },
    /// Changes the file, possibly under another name.
    Update {
        /// The path as the model wrote it.
        path: String,
        /// The new path as the model wrote it; `None` if the file stays in its place.
        to: Option<String>,
        /// The changes, from top to bottom.
        hunks: Vec<Hunk>,
    },
}

/// A change of consecutive lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hunk {
    /// Lines to search first, one after the other, for instance the head of a function.
    pub contexts: Vec<String>,
    /// The lines that are replaced, unchanged lines included; empty for a pure insertion.
    pub old: Vec<String>,
    /// The lines in their place, unchanged lines included.
    pub new: Vec<String>,
    /// True if the patch places it at the end of the file.
    pub last: bool,
    /// The number of empty lines without a mark at its beginning, and the number of those at its
    /// end: they may be in the file, or only in the patch.
    pub unmarked_empty_lines: (usize, usize),
}

/// The reason why a patch cannot be parsed or applied, as a message for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "Invalid patch format: missing Begin/End markers. A patch begins with the line \"*** Begin Patch\", has a line such as \"*** Update File: path\" for each file, and ends with \"*** End Patch\"."
    )]
    NoEnvelope,
    #[error("patch rejected: empty patch")]
    Empty,
    /// The section of the file with this path neither changes nor moves it.
    #[error("patch rejected: no hunks found for {0}")]
    NoHunks(String),
    /// The line with this number in the patch, from 1, has this error.
    #[error("Invalid patch format, line {0}: {1}")]
    Line(usize, String),
    /// The context, the first text, is not in the file, the second.
    #[error("Failed to find context '{0}' in {1}")]
    Context(String, String),
    /// The old lines, the first text, are not in the file, the second.
    #[error("Failed to find expected lines in {1}:\n{0}")]
    Lines(String, String),
    /// The old lines are more than once in the file, the second text. The first one lists the
    /// numbers of the lines.
    #[error(
        "The lines of a hunk were found in {1} more than once, at lines {0}. Add lines before and after them, or an @@ line with the function they are in."
    )]
    Ambiguous(String, String),
    /// Two hunks change the same lines of this file.
    #[error("Two hunks for {0} change the same lines. Put them into one.")]
    Overlap(String),
}

/// Parses a patch. A heredoc around it is ignored.
///
/// # Errors
/// An error if it is not a patch; see [`Error`].
pub fn parse(text: &str) -> Result<Vec<Section>, Error> {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines
        .iter()
        .position(|line| line.trim() == "*** Begin Patch")
        .ok_or(Error::NoEnvelope)?;
    let end = lines
        .iter()
        .rposition(|line| line.trim() == "*** End Patch")
        .filter(|end| *end > begin)
        .ok_or(Error::NoEnvelope)?;
    let mut sections = Vec::new();
    let mut at = begin + 1;
    while at < end {
        let line = lines[at];
        let path = |head: &str| {
            line.trim_end()
                .strip_prefix(head)
                .map(|path| path.trim().to_owned())
                .filter(|path| !path.is_empty())
        };
        at += 1;
        if let Some(path) = path("*** Add File:") {
            let body = at;
            while at < end && !header(lines[at]) {
                at += 1;
            }
            sections.push(Section::Add {
                path,
                text: fresh(&lines[body..at], body)?,
            });
        } else if let Some(path) = path("*** Delete File:") {
            sections.push(Section::Delete { path });
        } else if let Some(path) = path("*** Update File:") {
            let to = (at < end)
                .then(|| lines[at].trim_end().strip_prefix("*** Move to:"))
                .flatten();
            let to = to
                .map(|to| to.trim().to_owned())
                .filter(|to| !to.is_empty());
            at += usize::from(to.is_some());
            let body = at;
            while at < end && !header(lines[at]) {
                at += 1;
            }
            let hunks = hunks(&lines[body..at], body)?;
            if hunks.is_empty() && to.is_none() {
                return Err(Error::NoHunks(path));
            }
            sections.push(Section::Update { path, to, hunks });
        } else if !line.trim().is_empty() {
            return Err(Error::Line(
                at,
                format!(
                    "expected \"*** Add File: \", \"*** Delete File: \" or \"*** Update File: \" with a path, not {line:?}"
                ),
            ));
        }
    }
    if sections.is_empty() {
        Err(Error::Empty)
    } else {
        Ok(sections)
    }
}

fn header(line: &str) -> bool {
    ["*** Add File:", "*** Delete File:", "*** Update File:"]
        .iter()
        .any(|head| line.starts_with(head))
}

/// Returns the text of a new file. `before` is the number of lines of the patch before `lines`.
fn fresh(lines: &[&str], before: usize) -> Result<String, Error> {
    let mut text = String::new();
    // Models forget the + on empty lines. Those at the end separate this file from the next.
    let mut empty = 0;
    for (n, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            empty += 1;
            continue;
        }
        let line = line.strip_prefix('+').ok_or_else(|| {
            Error::Line(
                before + n + 1,
                format!("every line of a new file begins with +, not {line:?}"),
            )
        })?;
        text.extend(std::iter::repeat_n('\n', std::mem::take(&mut empty)));
        text.push_str(line);
        text.push('\n');
    }
    Ok(text)
}

/// Parses the hunks of a file. `before` is the number of lines of the patch before `lines`.
fn hunks(lines: &[&str], before: usize) -> Result<Vec<Hunk>, Error> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut open = OpenHunk::default();
    for (n, line) in lines.iter().enumerate() {
        if let Some(context) = line.strip_prefix("@@") {
            // Consecutive @@ lines narrow the search step by step.
            if open.is_begun() {
                hunks.push(std::mem::take(&mut open).close(false));
            }
            open.lines.clear();
            let context = context.strip_prefix(' ').unwrap_or(context);
            if !context.trim().is_empty() && !is_range(context) {
                open.contexts.push(context.to_owned());
            }
            continue;
        }
        if line.trim_end() == "*** End of File" {
            hunks.push(std::mem::take(&mut open).close(true));
            continue;
        }
        open.lines.push(match line.chars().next() {
            Some('+') => (LineMark::Comes, &line[1..]),
            Some('-') => (LineMark::Goes, &line[1..]),
            Some(' ') => (LineMark::Stays, &line[1..]),
            None => (LineMark::Loose, ""),
            Some(_) => {
                return Err(Error::Line(
                    before + n + 1,
                    format!("a line of a hunk begins with a space, - or +, not {line:?}"),
                ));
            }
        });
    }
    hunks.push(open.close(false));
    // A hunk with only contexts or empty lines changes nothing.
    hunks.retain(|hunk| hunk.old != hunk.new || hunk.old.iter().any(|line| !line.is_empty()));
    Ok(hunks)
}

/// The mark of a line of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineMark {
    Stays,
    Goes,
    Comes,
    /// None: the line is empty, and has lost its mark, or only separates the hunk from its
    /// surroundings.
    Loose,
}

/// A hunk that is being parsed.
#[derive(Debug, Default)]
struct OpenHunk<'a> {
    contexts: Vec<String>,
    lines: Vec<(LineMark, &'a str)>,
}

impl OpenHunk<'_> {
    /// Returns whether the hunk has a line other than loose ones.
    fn is_begun(&self) -> bool {
        self.lines.iter().any(|(mark, _)| *mark != LineMark::Loose)
    }

    /// Ends the hunk. Loose lines count as unchanged lines that have lost their mark, if other
    /// lines determine the position. Otherwise they cannot be searched for: those between added
    /// lines count as added, and the others do not belong to the hunk.
    fn close(self, last: bool) -> Hunk {
        let Self { contexts, lines } = self;
        let unmarked_empty_lines = |(mark, _): &&(LineMark, &str)| *mark == LineMark::Loose;
        let head = lines.iter().take_while(unmarked_empty_lines).count();
        let tail = lines[head..]
            .iter()
            .rev()
            .take_while(unmarked_empty_lines)
            .count();
        let inserts = !lines
            .iter()
            .any(|(mark, _)| matches!(mark, LineMark::Stays | LineMark::Goes));
        let mut hunk = Hunk {
            contexts,
            last,
            unmarked_empty_lines: (head, tail),
            ..Hunk::default()
        };
        let own = if inserts {
            head..lines.len() - tail
        } else {
            0..lines.len()
        };
        for (mark, line) in &lines[own] {
            let (was, will_be) = match mark {
                LineMark::Stays => (true, true),
                LineMark::Goes => (true, false),
                LineMark::Comes => (false, true),
                LineMark::Loose => (!inserts, true),
            };
            if was {
                hunk.old.push((*line).to_owned());
            }
            if will_be {
                hunk.new.push((*line).to_owned());
            }
        }
        hunk
    }
}

/// Returns whether a context is a range of a unified diff, `-1,3 +1,4 @@`. Its numbers are not
/// used.
fn is_range(context: &str) -> bool {
    let first = context.split_whitespace().next().unwrap_or_default();
    first.starts_with('-')
        && first[1..]
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b',')
        && context.contains(" +")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(body: &str) -> String {
        format!("*** Begin Patch\n{body}\n*** End Patch")
    }

    #[test]
    fn patches_are_parsed() {
        let sections = parse(&wrapped(
            "*** Add File: a.txt\n+one\n+\n+two\n*** Delete File: b.txt\n*** Update File: c.txt\n*** Move to: d.txt\n@@ fn main\n keep\n-old\n+new\n@@\n-x\n*** End of File",
        ));
        let text = |lines: &[&str]| {
            lines
                .iter()
                .map(|line| (*line).to_owned())
                .collect::<Vec<_>>()
        };
        let first = Hunk {
            contexts: text(&["fn main"]),
            old: text(&["keep", "old"]),
            new: text(&["keep", "new"]),
            ..Hunk::default()
        };
        let second = Hunk {
            old: text(&["x"]),
            last: true,
            ..Hunk::default()
        };
        assert_eq!(
            sections,
            Ok(vec![
                Section::Add {
                    path: "a.txt".into(),
                    text: "one\n\ntwo\n".into()
                },
                Section::Delete {
                    path: "b.txt".into()
                },
                Section::Update {
                    path: "c.txt".into(),
                    to: Some("d.txt".into()),
                    hunks: vec![first, second]
                },
            ])
        );
        let heredoc = format!("cat <<'EOF'\n{}\nEOF", wrapped("*** Delete File: x"));
        assert_eq!(
            parse(&heredoc),
            Ok(vec![Section::Delete { path: "x".into() }])
        );
    }

    #[test]
    fn empty_lines_after_a_new_file_do_not_belong_to_it() {
        let sections = parse(&wrapped(
            "*** Add File: a\n+one\n\n+two\n\n*** Add File: b\n+x\n+\n\n\n*** Add File: c\n",
        ));
        let add = |path: &str, text: &str| Section::Add {
            path: path.into(),
            text: text.into(),
        };
        assert_eq!(
            sections,
            Ok(vec![
                add("a", "one\n\ntwo\n"),
                add("b", "x\n\n"),
                add("c", "")
            ])
        );
    }

    #[test]
    fn invalid_patches_are_refused() {
        let table = [
            ("".to_owned(), Error::NoEnvelope),
            (
                "*** End Patch\n*** Begin Patch".to_owned(),
                Error::NoEnvelope,
            ),
            (wrapped(""), Error::Empty),
            (wrapped("*** Update File: a"), Error::NoHunks("a".into())),
            (
                wrapped("*** Update File: a\n\n"),
                Error::NoHunks("a".into()),
            ),
        ];
        for (text, error) in table {
            assert_eq!(parse(&text), Err(error), "{text}");
        }
        for text in [
            "nonsense",
            "*** Update File: a\n@@\n~x",
            "*** Add File: a\nx",
            "*** Add File:",
        ] {
            assert!(
                matches!(parse(&wrapped(text)), Err(Error::Line(..))),
                "{text}"
            );
        }
    }

    #[test]
    fn patches_are_applied() {
        let table = [
            ("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"),
            ("a\nb\nc", "@@\n b\n-c\n+C", "a\nb\nC"),
            (
                "a\r\nb\r\nc\r\n",
                "@@\n-b\n+B\n+B2",
                "a\r\nB\r\nB2\r\nc\r\n",
            ),
            ("a\r\nb\nc\r\n", "@@\n a\n-b\n+B\n c", "a\r\nB\nc\r\n"),
            ("f\n x\ng\n x\n", "@@ g\n- x\n+ y", "f\n x\ng\n y\n"),
            ("x\na\nx\n", "@@\n-x\n+y\n*** End of File", "x\na\ny\n"),
            ("a\n", "@@\n+b", "a\nb\n"),
            ("a", "@@\n+b", "a\nb"),
            ("f\ng\n", "@@ f\n+x", "f\nx\ng\n"),
            ("a  \nb\n", "@@\n-a\n+c\n b", "c\nb\n"),
            ("\ta\n", "@@\n-a\n+\tc", "\tc\n"),
            (
                "say \u{201c}hi\u{201d} \u{2013} x\n",
                "@@\n-say \"hi\" - x\n+bye",
                "bye\n",
            ),
            ("a\nb\nc\nd\n", "@@\n-a\n+A\n@@\n-d\n+D", "A\nb\nc\nD\n"),
            ("a\n\nb\n", "@@\n a\n\n-b\n+c", "a\n\nc\n"),
            ("a\n", "@@ -1,1 +1,1 @@\n-a\n+b", "b\n"),
            ("a\nb", "@@\n a\n-b\n", "a"),
            ("a\nb\n", "@@\n-a\n-b\n", ""),
            ("", "@@\n+a", "a\n"),
            // In the file's indentation and characters.
            (
                "\tif x {\n\t\ty();\n\t}\n",
                "@@\n     if x {\n-        y();\n+        y();\n+        z();\n     }",
                "\tif x {\n\t\ty();\n\t\tz();\n\t}\n",
            ),
            (
                "a \u{2013} b\nc\n",
                "@@\n a - b\n-c\n+d",
                "a \u{2013} b\nd\n",
            ),
            ("a  \nb\n", "@@\n a\n-b\n+c", "a  \nc\n"),
            // Out of order, and with the context as the first line.
            ("a\nb\nc\n", "@@\n-c\n+C\n@@\n-a\n+A", "A\nb\nC\n"),
            (
                "f(x):\n  a\ng(y):\n  a\n",
                "@@ g(y):\n g(y):\n-  a\n+  b",
                "f(x):\n  a\ng(y):\n  b\n",
            ),
            (
                "f(x):\n  a\ng(y):\n  a\n",
                "@@ g\n-  a\n+  b",
                "f(x):\n  a\ng(y):\n  b\n",
            ),
        ];
        for (text, body, expected) in table {
            let sections = parse(&wrapped(&format!("*** Update File: f\n{body}"))).unwrap();
            let [Section::Update { hunks, .. }] = &sections[..] else {
                panic!("{sections:?}")
            };
            assert_eq!(
                apply(text, hunks, "f")
                    .map(|applied| applied.text)
                    .as_deref(),
                Ok(expected),
                "{text:?} {body:?}"
            );
        }
    }

    /// An empty line between hunks does not affect the position of a hunk.
    #[test]
    fn empty_lines_between_hunks_do_not_affect_the_position() {
        let text = "fn main() {\n    a();\n\n    b();\n}\n";
        let inserted = "fn main() {\n    x();\n    a();\n\n    b();\n}\n";
        let table = [
            (text, "@@ fn main() {\n+    x();\n", inserted),
            (
                text,
                "@@ fn main() {\n+    x();\n\n\n*** Update File: g\n@@\n-1\n+2",
                inserted,
            ),
            (
                text,
                "@@ fn main() {\n+    x();\n\n*** Delete File: g",
                inserted,
            ),
            (text, "\n@@ fn main() {\n\n+    x();\n", inserted),
            (
                text,
                "@@ fn main() {\n+    x();\n\n@@\n-    b();\n+    c();\n",
                "fn main() {\n    x();\n    a();\n\n    c();\n}\n",
            ),
            // A line without a mark between added lines counts as added.
            (
                text,
                "@@ fn main() {\n+    x();\n\n+    y();\n",
                "fn main() {\n    x();\n\n    y();\n    a();\n\n    b();\n}\n",
            ),
            // Directly below the context there is an empty line, so that one is meant.
            ("f\n\na\n\nb\n", "@@ f\n\n+x\n", "f\n\nx\na\n\nb\n"),
            ("a\n\nb\n", "@@\n+x\n", "a\n\nb\nx\n"),
            ("f\na\n", "@@ f\n+x\n\n*** End of File", "f\na\nx\n"),
            // Narrowed by two contexts, with space between them.
            (
                "f\n x\ng\n f\n x\n",
                "@@ g\n\n@@  f\n- x\n+ y\n",
                "f\n x\ng\n f\n y\n",
            ),
            // More empty lines than in the file.
            (
                text,
                "@@ fn main() {\n-    a();\n+    c();\n\n\n\n",
                "fn main() {\n    c();\n\n    b();\n}\n",
            ),
            // The last line of the context has lost its mark, and distinguishes two positions.
            ("a\nb\na\n\nc\n", "@@\n-a\n+A\n\n", "a\nb\nA\n\nc\n"),
            ("f\na\n\n", "@@ f\n-a\n+A\n\n*** End of File", "f\nA\n\n"),
        ];
        for (text, body, expected) in table {
            let sections = parse(&wrapped(&format!("*** Update File: f\n{body}"))).unwrap();
            let Some(Section::Update { hunks, .. }) = sections.first() else {
                panic!("{sections:?}")
            };
            assert_eq!(
                apply(text, hunks, "f")
                    .map(|applied| applied.text)
                    .as_deref(),
                Ok(expected),
                "{body:?}"
            );
        }
    }

    #[test]
    fn misfitting_hunks_are_refused() {
        let table = [
            (
                "a\n",
                "@@ nowhere\n-a",
                "Failed to find context 'nowhere' in f",
            ),
            ("a\n", "@@\n-b", "Failed to find expected lines in f:\nb"),
            ("x\ny\nx\n", "@@\n-x\n+z", "at lines 1, 3"),
            (
                "a\nb\n",
                "@@\n-b\n+B\n@@\n-x\n+A",
                "Failed to find expected lines",
            ),
            ("a\nb\na\nc\n", "@@\n-c\n+C\n@@\n-a\n+A", "at lines 1, 3"),
            (
                "a\nb\nc\n",
                "@@\n a\n-b\n+B\n@@\n b\n-c\n+C",
                "Failed to find expected lines",
            ),
            // With the empty line it would be the second match, without it the first.
            ("f\na\nb\ng\na\n\n", "@@ f\n-a\n+A\n", "at lines 2, 5"),
        ];
        for (text, body, expected) in table {
            let sections = parse(&wrapped(&format!("*** Update File: f\n{body}"))).unwrap();
            let [Section::Update { hunks, .. }] = &sections[..] else {
                panic!("{sections:?}")
            };
            let errors = apply(text, hunks, "f").unwrap_err();
            let error = errors.iter().map(ToString::to_string).collect::<String>();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { cases: 3_000, failure_persistence: None, ..Default::default() })]

        /// Against a naive reference: lines that occur exactly once are changed wherever the hunks
        /// are, in any order.
        #[test]
        fn hunks_are_applied_in_any_order(
            (places, order) in (proptest::collection::btree_set(0_usize..12, 1..5), proptest::collection::vec(0_usize..100, 5)),
            tabs in proptest::bool::ANY,
        ) {
            let indent = |n: usize| if tabs { "\t".repeat(n % 3) } else { "  ".repeat(n % 3) };
            let file: Vec<String> = (0..12).map(|n| format!("{}line {n}", indent(n))).collect();
            let mut hunks: Vec<(usize, Hunk)> = places
                .iter()
                .enumerate()
                .map(|(n, at)| {
                    // As a model reproduces them: with spaces for tabs.
                    let old = format!("{}line {at}", "  ".repeat(at % 3));
                    let new = format!("{}changed {at}", "  ".repeat(at % 3));
                    (order[n % order.len()], Hunk { old: vec![old], new: vec![new], ..Hunk::default() })
                })
                .collect();
            hunks.sort_by_key(|(order, _)| *order);
            let hunks: Vec<Hunk> = hunks.into_iter().map(|(_, hunk)| hunk).collect();
            let naive: String = file
                .iter()
                .enumerate()
                .map(|(n, line)| if places.contains(&n) { line.replace("line", "changed") } else { line.clone() } + "\n")
                .collect();
            let text: String = file.iter().map(|line| format!("{line}\n")).collect();
            proptest::prop_assert_eq!(apply(&text, &hunks, "f").map(|applied| applied.text), Ok(naive));
        }
    }
}
