//! The patch format some models were trained on: read, and applied to texts. Pure.
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

/// What to do with one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// Make it.
    Add {
        /// As the model wrote it.
        path: String,
        /// Its text.
        text: String,
    },
    /// Remove it.
    Delete {
        /// As the model wrote it.
        path: String,
    },
    /// Change it, perhaps under another name.
    Update {
        /// As the model wrote it.
        path: String,
        /// Its new name.
        to: Option<String>,
        /// The changes, from top to bottom.
        hunks: Vec<Hunk>,
    },
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hunk {
    /// Lines to look for first, one after the other: a function's head, for instance.
    pub contexts: Vec<String>,
    /// What is there.
    pub old: Vec<String>,
    /// What comes there.
    pub new: Vec<String>,
    /// Whether it is at the end of the file.
    pub last: bool,
}

/// Why a patch cannot be read or applied. The words are for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No envelope.
    #[error(
        "Invalid patch format: missing Begin/End markers. A patch begins with the line \"*** Begin Patch\" and ends with \"*** End Patch\"."
    )]
    NoEnvelope,
    /// Nothing in it.
    #[error("patch rejected: empty patch")]
    Empty,
    /// An update without changes.
    #[error("patch rejected: no hunks found for {0}")]
    NoHunks(String),
    /// A line that fits nowhere.
    #[error("Invalid patch format, line {0}: {1}")]
    Line(usize, String),
    /// The context is not in the file.
    #[error("Failed to find context '{0}' in {1}")]
    Context(String, String),
    /// The old lines are not in the file.
    #[error("Failed to find expected lines in {1}:\n{0}")]
    Lines(String, String),
    /// The old lines are in the file more than once.
    #[error(
        "The lines of a hunk were found in {1} more than once, at lines {0}. Add lines before and after them, or an @@ line with the function they are in."
    )]
    Ambiguous(String, String),
}

/// Reads a patch. A heredoc around it is ignored.
///
/// # Errors
/// When it is no patch; see [`Error`].
pub fn parse(text: &str) -> Result<Vec<Section>, Error> {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines.iter().position(|line| line.trim() == "*** Begin Patch").ok_or(Error::NoEnvelope)?;
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
            line.trim_end().strip_prefix(head).map(|path| path.trim().to_owned()).filter(|path| !path.is_empty())
        };
        at += 1;
        if let Some(path) = path("*** Add File:") {
            let mut text = String::new();
            while at < end && !header(lines[at]) {
                // Models forget the + on empty lines.
                let fresh = lines[at].strip_prefix('+').or_else(|| lines[at].trim().is_empty().then_some(""));
                let fresh = fresh.ok_or_else(|| {
                    Error::Line(at + 1, format!("every line of a new file begins with +, not {:?}", lines[at]))
                })?;
                text.push_str(fresh);
                text.push('\n');
                at += 1;
            }
            sections.push(Section::Add { path, text });
        } else if let Some(path) = path("*** Delete File:") {
            sections.push(Section::Delete { path });
        } else if let Some(path) = path("*** Update File:") {
            let to = (at < end).then(|| lines[at].trim_end().strip_prefix("*** Move to:")).flatten();
            let to = to.map(|to| to.trim().to_owned()).filter(|to| !to.is_empty());
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
    if sections.is_empty() { Err(Error::Empty) } else { Ok(sections) }
}

fn header(line: &str) -> bool {
    ["*** Add File:", "*** Delete File:", "*** Update File:"].iter().any(|head| line.starts_with(head))
}

fn hunks(lines: &[&str], before: usize) -> Result<Vec<Hunk>, Error> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut hunk: Option<Hunk> = None;
    for (n, line) in lines.iter().enumerate() {
        if let Some(context) = line.strip_prefix("@@") {
            // Several @@ lines in a row narrow the search step by step.
            let open = hunk.as_ref().is_some_and(|hunk| !hunk.old.is_empty() || !hunk.new.is_empty());
            if open {
                hunks.extend(hunk.take());
            }
            let context = context.strip_prefix(' ').unwrap_or(context);
            let contexts = &mut hunk.get_or_insert_default().contexts;
            if !context.trim().is_empty() && !is_range(context) {
                contexts.push(context.to_owned());
            }
            continue;
        }
        if line.trim_end() == "*** End of File" {
            if let Some(mut hunk) = hunk.take() {
                hunk.last = true;
                hunks.push(hunk);
            }
            continue;
        }
        let hunk = hunk.get_or_insert_default();
        match line.chars().next() {
            Some('+') => hunk.new.push(line[1..].to_owned()),
            Some('-') => hunk.old.push(line[1..].to_owned()),
            Some(' ') => {
                hunk.old.push(line[1..].to_owned());
                hunk.new.push(line[1..].to_owned());
            }
            None => {
                hunk.old.push(String::new());
                hunk.new.push(String::new());
            }
            Some(_) => {
                return Err(Error::Line(
                    before + n + 1,
                    format!("a line of a hunk begins with a blank, - or +, not {line:?}"),
                ));
            }
        }
    }
    hunks.extend(hunk);
    // A blank line between two sections is no change.
    hunks.retain(|hunk| hunk.old != hunk.new || hunk.old.iter().any(|line| !line.is_empty()));
    Ok(hunks)
}

/// `-1,3 +1,4 @@`, as in a unified diff: numbers are not trusted.
fn is_range(context: &str) -> bool {
    let first = context.split_whitespace().next().unwrap_or_default();
    first.starts_with('-')
        && first[1..].bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
        && context.contains(" +")
}

/// Applies changes to a text. Line ends and a missing final line break stay as they are.
///
/// # Errors
/// When a hunk does not fit; `name` says in which file.
pub fn apply(text: &str, hunks: &[Hunk], name: &str) -> Result<String, Error> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let bare: Vec<&str> = lines.iter().map(|line| bare(line)).collect();
    let dominant = if text.matches("\r\n").count() * 2 > text.matches('\n').count() { "\r\n" } else { "\n" };
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for hunk in hunks {
        let mut from = done;
        for context in &hunk.contexts {
            let wanted = [context.clone()];
            let at = first(&bare, from, &wanted).ok_or_else(|| Error::Context(context.clone(), name.into()))?;
            from = at + 1;
        }
        let (mut old, mut new) = (&hunk.old[..], &hunk.new[..]);
        let at = if old.is_empty() {
            // Nothing to find: right after the context, else at the end.
            if hunk.contexts.is_empty() { lines.len() } else { from }
        } else {
            let mut at = find(&bare, from, old, hunk, name);
            if matches!(at, Err(Error::Lines(..)))
                && let [rest @ .., last] = old
                && last.is_empty()
                && !rest.is_empty()
            {
                old = rest;
                new = if new.last().is_some_and(String::is_empty) { &new[..new.len() - 1] } else { new };
                at = find(&bare, from, old, hunk, name);
            }
            at?
        };
        out.extend(lines[done..at].iter().copied());
        let unended = |out: &str| !out.is_empty() && !out.ends_with('\n');
        let replaced = &lines[at..at + old.len()];
        let shared = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let tail =
            old[shared..].iter().rev().zip(new[shared..].iter().rev()).take_while(|(old, new)| old == new).count();
        out.extend(replaced[..shared].iter().copied());
        let end = replaced.get(shared).or(lines.get(at.wrapping_sub(1))).map_or(dominant, |line| {
            if line.ends_with("\r\n") {
                "\r\n"
            } else if line.ends_with('\n') {
                "\n"
            } else {
                dominant
            }
        });
        for line in &new[shared..new.len() - tail] {
            if unended(&out) {
                out.push_str(end);
            }
            out.push_str(line);
            out.push_str(end);
        }
        for line in &replaced[old.len() - tail..] {
            if unended(&out) {
                out.push_str(end);
            }
            out.push_str(line);
        }
        done = at + old.len();
    }
    out.extend(lines[done..].iter().copied());
    if !text.is_empty() && !text.ends_with('\n') {
        let without = out.strip_suffix("\r\n").or_else(|| out.strip_suffix('\n')).unwrap_or(&out).len();
        out.truncate(without);
    }
    Ok(out)
}

fn bare(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// Ways two lines can be the same, strictest first.
const SAME: [fn(&str, &str) -> bool; 4] = [
    |a, b| a == b,
    |a, b| a.trim_end() == b.trim_end(),
    |a, b| a.trim() == b.trim(),
    |a, b| plain(a.trim()) == plain(b.trim()),
];

/// Typographic characters as their plain relatives.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{2018}'..='\u{201b}' => out.push('\''),
            '\u{201c}'..='\u{201f}' => out.push('"'),
            '\u{2010}'..='\u{2015}' | '\u{2212}' => out.push('-'),
            '\u{2026}' => out.push_str("..."),
            '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn places<'a>(
    lines: &'a [&str],
    from: usize,
    wanted: &'a [String],
    same: fn(&str, &str) -> bool,
) -> impl Iterator<Item = usize> + 'a {
    let last = (lines.len() + 1).saturating_sub(wanted.len());
    (from..last).filter(move |at| wanted.iter().zip(&lines[*at..]).all(|(wanted, line)| same(wanted, line)))
}

fn first(lines: &[&str], from: usize, wanted: &[String]) -> Option<usize> {
    SAME.iter().find_map(|same| places(lines, from, wanted, *same).next())
}

/// Where the old lines are. Without a context, more than one place is an error: the next one might
/// not be the one that is meant. With a context or at the end it is the first one there.
fn find(lines: &[&str], from: usize, old: &[String], hunk: &Hunk, name: &str) -> Result<usize, Error> {
    for same in SAME {
        let found: Vec<usize> = places(lines, from, old, same).collect();
        let at_end = found.last().filter(|at| hunk.last && **at + old.len() == lines.len());
        if let Some(at) = at_end {
            return Ok(*at);
        }
        match found[..] {
            [] => {}
            [at] => return Ok(at),
            [at, ..] if !hunk.contexts.is_empty() => return Ok(at),
            _ => {
                let list: Vec<String> = found.iter().take(20).map(|at| (at + 1).to_string()).collect();
                return Err(Error::Ambiguous(list.join(", "), name.into()));
            }
        }
    }
    Err(Error::Lines(old.join("\n"), name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(body: &str) -> String {
        format!("*** Begin Patch\n{body}\n*** End Patch")
    }

    #[test]
    fn patches_are_read() {
        let sections = parse(&wrapped(
            "*** Add File: a.txt\n+one\n+\n+two\n*** Delete File: b.txt\n*** Update File: c.txt\n*** Move to: d.txt\n@@ fn main\n keep\n-old\n+new\n@@\n-x\n*** End of File",
        ));
        let text = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let first = Hunk {
            contexts: text(&["fn main"]),
            old: text(&["keep", "old"]),
            new: text(&["keep", "new"]),
            last: false,
        };
        let second = Hunk { contexts: vec![], old: text(&["x"]), new: vec![], last: true };
        assert_eq!(
            sections,
            Ok(vec![
                Section::Add { path: "a.txt".into(), text: "one\n\ntwo\n".into() },
                Section::Delete { path: "b.txt".into() },
                Section::Update { path: "c.txt".into(), to: Some("d.txt".into()), hunks: vec![first, second] },
            ])
        );
        let heredoc = format!("cat <<'EOF'\n{}\nEOF", wrapped("*** Delete File: x"));
        assert_eq!(parse(&heredoc), Ok(vec![Section::Delete { path: "x".into() }]));
    }

    #[test]
    fn what_is_no_patch() {
        let table = [
            ("".to_owned(), Error::NoEnvelope),
            ("*** End Patch\n*** Begin Patch".to_owned(), Error::NoEnvelope),
            (wrapped(""), Error::Empty),
            (wrapped("*** Update File: a"), Error::NoHunks("a".into())),
            (wrapped("*** Update File: a\n\n"), Error::NoHunks("a".into())),
        ];
        for (text, error) in table {
            assert_eq!(parse(&text), Err(error), "{text}");
        }
        for text in ["nonsense", "*** Update File: a\n@@\n~x", "*** Add File: a\nx", "*** Add File:"] {
            assert!(matches!(parse(&wrapped(text)), Err(Error::Line(..))), "{text}");
        }
    }

    #[test]
    fn patches_are_applied() {
        let table = [
            ("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"),
            ("a\nb\nc", "@@\n b\n-c\n+C", "a\nb\nC"),
            ("a\r\nb\r\nc\r\n", "@@\n-b\n+B\n+B2", "a\r\nB\r\nB2\r\nc\r\n"),
            ("a\r\nb\nc\r\n", "@@\n a\n-b\n+B\n c", "a\r\nB\nc\r\n"),
            ("f\n x\ng\n x\n", "@@ g\n- x\n+ y", "f\n x\ng\n y\n"),
            ("x\na\nx\n", "@@\n-x\n+y\n*** End of File", "x\na\ny\n"),
            ("a\n", "@@\n+b", "a\nb\n"),
            ("a", "@@\n+b", "a\nb"),
            ("f\ng\n", "@@ f\n+x", "f\nx\ng\n"),
            ("a  \nb\n", "@@\n-a\n+c\n b", "c\nb\n"),
            ("\ta\n", "@@\n-a\n+\tc", "\tc\n"),
            ("say \u{201c}hi\u{201d} \u{2013} x\n", "@@\n-say \"hi\" - x\n+bye", "bye\n"),
            ("a\nb\nc\nd\n", "@@\n-a\n+A\n@@\n-d\n+D", "A\nb\nc\nD\n"),
            ("a\n\nb\n", "@@\n a\n\n-b\n+c", "a\n\nc\n"),
            ("a\n", "@@ -1,1 +1,1 @@\n-a\n+b", "b\n"),
            ("a\nb", "@@\n a\n-b\n", "a"),
            ("a\nb\n", "@@\n-a\n-b\n", ""),
            ("", "@@\n+a", "a\n"),
        ];
        for (text, body, expected) in table {
            let sections = parse(&wrapped(&format!("*** Update File: f\n{body}"))).unwrap();
            let [Section::Update { hunks, .. }] = &sections[..] else { panic!("{sections:?}") };
            assert_eq!(apply(text, hunks, "f").as_deref(), Ok(expected), "{text:?} {body:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let table = [
            ("a\n", "@@ nowhere\n-a", "Failed to find context 'nowhere' in f"),
            ("a\n", "@@\n-b", "Failed to find expected lines in f:\nb"),
            ("x\ny\nx\n", "@@\n-x\n+z", "at lines 1, 3"),
            ("a\nb\n", "@@\n-b\n+B\n@@\n-a\n+A", "Failed to find expected lines"),
        ];
        for (text, body, expected) in table {
            let sections = parse(&wrapped(&format!("*** Update File: f\n{body}"))).unwrap();
            let [Section::Update { hunks, .. }] = &sections[..] else { panic!("{sections:?}") };
            let error = apply(text, hunks, "f").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
