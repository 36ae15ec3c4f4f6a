//! OpenAI's `apply_patch` format ("V4A"), which some models were trained on: parsing and application,
//! without I/O.
//!
//! ```text
//! *** Begin Patch
//! *** Add File: path            lines that begin with +
//! *** Delete File: path
//! *** Update File: path         perhaps followed by *** Move to: path
//! @@ a line to look for first   perhaps empty
//!  an unchanged line
//! -a removed line
//! +an added line
//! *** End of File               if the hunk above is at the end of the file
//! *** End Patch
//! ```

mod apply;

pub use apply::apply;

/// A section of a patch: its changes to one file.
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
    /// The texts of its `@@` lines, such as the signature of a function. Each is searched below the
    /// one before, the hunk below the last.
    pub anchors: Vec<String>,
    /// The lines that are replaced, unchanged lines included; empty for a pure insertion.
    pub old: Vec<String>,
    /// The lines in their place, unchanged lines included.
    pub new: Vec<String>,
    /// True if the patch places it at the end of the file.
    pub is_at_end_of_file: bool,
    /// The number of leading empty lines that lack the space in front. They may be in the file, or
    /// only in the patch.
    pub unmarked_before: usize,
    /// The same for trailing empty lines.
    pub unmarked_after: usize,
}

/// The reason why a patch cannot be parsed or applied, as a message for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "Invalid patch format: missing Begin/End markers. A patch begins with the line \"*** Begin Patch\", has a line such as \"*** Update File: path\" for each file, and ends with \"*** End Patch\"."
    )]
    NoMarkers,
    #[error("patch rejected: empty patch")]
    Empty,
    /// The section for the file with this path has no hunks and no new path.
    #[error("patch rejected: no hunks found for {0}")]
    NoHunks(String),
    #[error("Invalid patch format, line {number}: {reason}")]
    InvalidLine {
        /// The number of the line in the patch, from 1.
        number: usize,
        reason: String,
    },
    /// The texts of the `@@` lines are not in the file.
    #[error("Failed to find context '{anchors}' in {file}")]
    AnchorsNotFound { anchors: String, file: String },
    /// The old lines are not in the file.
    #[error("Failed to find expected lines in {file}:\n{lines}")]
    LinesNotFound { lines: String, file: String },
    /// The old lines occur more than once in the file.
    #[error(
        "The lines of a hunk were found in {file} more than once, at lines {line_numbers}. Add lines before and after them, or an @@ line with the function they are in."
    )]
    Ambiguous {
        /// A list for the message.
        line_numbers: String,
        file: String,
    },
    /// Two hunks change the same lines of this file.
    #[error("Two hunks for {0} change the same lines. Put them into one.")]
    Overlap(String),
}

/// Parses a patch. Text around its two markers, such as a heredoc, is ignored.
///
/// # Errors
/// An error if it is not a patch; see [`Error`].
pub fn parse(text: &str) -> Result<Vec<Section>, Error> {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines
        .iter()
        .position(|line| line.trim() == "*** Begin Patch")
        .ok_or(Error::NoMarkers)?;
    let end = lines
        .iter()
        .rposition(|line| line.trim() == "*** End Patch")
        .filter(|end| *end > begin)
        .ok_or(Error::NoMarkers)?;
    let mut sections = Vec::new();
    let mut at = begin + 1;
    while at < end {
        let line = lines[at];
        let path_after = |head: &str| {
            line.trim_end()
                .strip_prefix(head)
                .map(|path| path.trim().to_owned())
                .filter(|path| !path.is_empty())
        };
        at += 1;
        if let Some(path) = path_after("*** Add File:") {
            let body = at;
            while at < end && !is_section_header(lines[at]) {
                at += 1;
            }
            sections.push(Section::Add {
                path,
                text: new_file_text(&lines[body..at], body)?,
            });
        } else if let Some(path) = path_after("*** Delete File:") {
            sections.push(Section::Delete { path });
        } else if let Some(path) = path_after("*** Update File:") {
            let to = (at < end)
                .then(|| lines[at].trim_end().strip_prefix("*** Move to:"))
                .flatten();
            let to = to
                .map(|to| to.trim().to_owned())
                .filter(|to| !to.is_empty());
            at += usize::from(to.is_some());
            let body = at;
            while at < end && !is_section_header(lines[at]) {
                at += 1;
            }
            let hunks = parse_hunks(&lines[body..at], body)?;
            if hunks.is_empty() && to.is_none() {
                return Err(Error::NoHunks(path));
            }
            sections.push(Section::Update { path, to, hunks });
        } else if !line.trim().is_empty() {
            return Err(Error::InvalidLine {
                number: at,
                reason: format!(
                    "expected \"*** Add File: \", \"*** Delete File: \" or \"*** Update File: \" with a path, not {line:?}"
                ),
            });
        }
    }
    if sections.is_empty() {
        Err(Error::Empty)
    } else {
        Ok(sections)
    }
}

/// Returns whether a line begins the section of a file.
fn is_section_header(line: &str) -> bool {
    ["*** Add File:", "*** Delete File:", "*** Update File:"]
        .iter()
        .any(|head| line.starts_with(head))
}

/// Returns the text of a new file. `first` is the index of the first of `lines` in the patch.
fn new_file_text(lines: &[&str], first: usize) -> Result<String, Error> {
    let mut text = String::new();
    // Models forget the + on empty lines. Those at the end separate this file from the next.
    let mut empty = 0;
    for (n, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            empty += 1;
            continue;
        }
        let line = line.strip_prefix('+').ok_or_else(|| Error::InvalidLine {
            number: first + n + 1,
            reason: format!("every line of a new file begins with +, not {line:?}"),
        })?;
        text.extend(std::iter::repeat_n('\n', std::mem::take(&mut empty)));
        text.push_str(line);
        text.push('\n');
    }
    Ok(text)
}

/// Parses the hunks of a file. `first` is the index of the first of `lines` in the patch.
fn parse_hunks(lines: &[&str], first: usize) -> Result<Vec<Hunk>, Error> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut open = OpenHunk::default();
    for (n, line) in lines.iter().enumerate() {
        if let Some(anchor) = line.strip_prefix("@@") {
            // An @@ line ends the hunk before it. Consecutive @@ lines belong to one hunk.
            if open.is_begun() {
                hunks.push(std::mem::take(&mut open).close(false));
            }
            open.lines.clear();
            let anchor = anchor.strip_prefix(' ').unwrap_or(anchor);
            if !anchor.trim().is_empty() && !is_range(anchor) {
                open.anchors.push(anchor.to_owned());
            }
            continue;
        }
        if line.trim_end() == "*** End of File" {
            hunks.push(std::mem::take(&mut open).close(true));
            continue;
        }
        open.lines.push(match line.chars().next() {
            Some('+') => (LineMark::Added, &line[1..]),
            Some('-') => (LineMark::Removed, &line[1..]),
            Some(' ') => (LineMark::Unchanged, &line[1..]),
            None => (LineMark::Unmarked, ""),
            Some(_) => {
                return Err(Error::InvalidLine {
                    number: first + n + 1,
                    reason: format!("a line of a hunk begins with a space, - or +, not {line:?}"),
                });
            }
        });
    }
    hunks.push(open.close(false));
    // Hunks without lines, or with unchanged empty lines only, are dropped. Unchanged lines with text
    // stay, so that `apply` checks that they exist.
    hunks.retain(|hunk| hunk.old != hunk.new || hunk.old.iter().any(|line| !line.is_empty()));
    Ok(hunks)
}

/// The mark of a line of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineMark {
    Unchanged,
    Removed,
    Added,
    /// An empty line without a mark: the model forgot it, or the line only separates the hunk from
    /// its surroundings.
    Unmarked,
}

/// A hunk that is being parsed.
#[derive(Debug, Default)]
struct OpenHunk<'a> {
    anchors: Vec<String>,
    lines: Vec<(LineMark, &'a str)>,
}

impl OpenHunk<'_> {
    /// Returns whether the hunk has a line other than unmarked ones.
    fn is_begun(&self) -> bool {
        self.lines
            .iter()
            .any(|(mark, _)| *mark != LineMark::Unmarked)
    }

    /// Ends the hunk. If it has old lines, unmarked lines count as unchanged. In a pure insertion,
    /// those between added lines count as added, and the others are left out.
    fn close(self, is_at_end_of_file: bool) -> Hunk {
        let Self { anchors, lines } = self;
        let is_unmarked = |(mark, _): &&(LineMark, &str)| *mark == LineMark::Unmarked;
        let head = lines.iter().take_while(is_unmarked).count();
        let tail = lines[head..].iter().rev().take_while(is_unmarked).count();
        let is_insertion = !lines
            .iter()
            .any(|(mark, _)| matches!(mark, LineMark::Unchanged | LineMark::Removed));
        let mut hunk = Hunk {
            anchors,
            is_at_end_of_file,
            unmarked_before: head,
            unmarked_after: tail,
            ..Hunk::default()
        };
        let range = if is_insertion {
            head..lines.len() - tail
        } else {
            0..lines.len()
        };
        for (mark, line) in &lines[range] {
            let (in_old, in_new) = match mark {
                LineMark::Unchanged => (true, true),
                LineMark::Removed => (true, false),
                LineMark::Added => (false, true),
                LineMark::Unmarked => (!is_insertion, true),
            };
            if in_old {
                hunk.old.push((*line).to_owned());
            }
            if in_new {
                hunk.new.push((*line).to_owned());
            }
        }
        hunk
    }
}

/// Returns whether the text after `@@` is from the hunk header of a unified diff, `-1,3 +1,4 @@`. Its
/// numbers are not used.
fn is_range(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    first.starts_with('-')
        && first[1..]
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b',')
        && text.contains(" +")
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
            anchors: text(&["fn main"]),
            old: text(&["keep", "old"]),
            new: text(&["keep", "new"]),
            ..Hunk::default()
        };
        let second = Hunk {
            old: text(&["x"]),
            is_at_end_of_file: true,
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
            ("".to_owned(), Error::NoMarkers),
            (
                "*** End Patch\n*** Begin Patch".to_owned(),
                Error::NoMarkers,
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
                matches!(parse(&wrapped(text)), Err(Error::InvalidLine { .. })),
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
            // The result has the file's indentation and characters.
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
            // The empty line in the hunk is the one below the anchor, so the insertion goes
            // after it.
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
            // The unmarked empty line is in the file, and decides between two positions.
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
    fn hunks_that_do_not_fit_are_refused() {
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
            // With the unmarked empty line, line 5 matches first; without it, line 2.
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

        /// Compares with a naive implementation: lines that occur once are changed, whatever the
        /// order of the hunks.
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
