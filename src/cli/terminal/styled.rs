//! Text for a terminal: cleaned first, then coloured. Markdown keeps its lines as written, and its
//! inline markup is rendered.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use base::environment::Environment;
use base::text;

/// The style of less important text.
pub(in crate::cli) const FAINT: Style = Style::new().dimmed();
pub(in crate::cli) const STRONG: Style = Style::new().bold();
pub(in crate::cli) const GOOD: Style = AnsiColor::Green.on_default();
pub(in crate::cli) const BAD: Style = AnsiColor::Red.on_default();
const CODE: Style = AnsiColor::Cyan.on_default();

/// The number of lines shown of a change.
const MAX_CHANGE_LINES: usize = 40;

/// Text that is safe for a terminal: it contains no control sequences except our own colours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Styled(String);

impl Styled {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Appends another text.
    pub(in crate::cli) fn push(&mut self, more: &Self) {
        self.0.push_str(&more.0);
    }
}

/// The colours of a stream.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Palette {
    colours: bool,
}

impl Palette {
    /// Returns colours if the stream is a terminal that has them, unless `NO_COLOR` is set.
    pub(in crate::cli) fn of(stream: &impl IsTerminal, environment: &Environment) -> Self {
        let plain =
            environment.var("NO_COLOR").is_some() || environment.var("TERM") == Some("dumb");
        Self {
            colours: stream.is_terminal() && !plain,
        }
    }

    pub(in crate::cli) fn plain(words: &str) -> Styled {
        Styled(text::shown(words).into_owned())
    }

    pub(in crate::cli) fn styled(self, style: Style, words: &str) -> Styled {
        Styled(self.paint(style, &text::shown(words)))
    }

    /// Returns one line in a style, with line breaks escaped.
    pub(in crate::cli) fn line(self, style: Style, words: &str) -> Styled {
        Styled(self.paint(style, &text::escaped(words)))
    }

    /// Renders a Markdown text, indented by `indent` blanks.
    pub(in crate::cli) fn markdown(self, words: &str, indent: usize) -> Styled {
        let mut markdown = Markdown::default();
        let blank = " ".repeat(indent);
        let one = |line: &str| format!("{blank}{}\n", self.of_line(&mut markdown, line));
        Styled(text::shown(words).lines().map(one).collect())
    }

    /// Renders a file's change as a unified diff of at most [`MAX_CHANGE_LINES`] lines.
    pub(in crate::cli) fn change(self, path: &str, old: &str, new: &str, indent: usize) -> Styled {
        let all = text::diff::LineDiff::of(old, new).unified(Some((path, path)));
        let all = text::shown(&all);
        let blank = " ".repeat(indent);
        let mut out = String::new();
        for line in all.lines().take(MAX_CHANGE_LINES) {
            out += &format!("{blank}{}\n", self.paint(of_change(line), line));
        }
        let more = all.lines().count().saturating_sub(MAX_CHANGE_LINES);
        if more > 0 {
            out += &format!(
                "{blank}{}\n",
                self.paint(FAINT, &format!("… {} more", text::count(more, "line")))
            );
        }
        Styled(out)
    }

    /// Renders a line of Markdown that is cleaned already.
    pub(super) fn of_line(self, markdown: &mut Markdown, line: &str) -> String {
        if self.colours {
            markdown.line(line)
        } else {
            line.to_owned()
        }
    }

    fn paint(self, style: Style, words: &str) -> String {
        if !self.colours || words.is_empty() || style.is_plain() {
            return words.to_owned();
        }
        // A style across several lines would also colour text that a pager or an editor inserts
        // between them.
        let lines = words.split('\n').map(|line| {
            if line.is_empty() {
                String::new()
            } else {
                painted(style, line)
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn painted(style: Style, words: &str) -> String {
    format!("{style}{words}{style:#}")
}

fn of_change(line: &str) -> Style {
    match line.as_bytes().first() {
        _ if line.starts_with("+++") || line.starts_with("---") => STRONG,
        Some(b'+') => GOOD,
        Some(b'-') => BAD,
        Some(b'@') => CODE,
        _ => Style::new(),
    }
}

/// The state of rendering Markdown line by line.
#[derive(Debug, Default)]
pub(in crate::cli) struct Markdown {
    /// The fence of the current code block, and whether the block contains a diff.
    fence: Option<(String, bool)>,
}

impl Markdown {
    /// Renders a line in colour.
    fn line(&mut self, line: &str) -> String {
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        let marks = |mark: char| words.len() - words.trim_start_matches(mark).len();
        let fence = marks('`').max(marks('~'));
        match &self.fence {
            Some((open, _))
                if words.trim_end().starts_with(open.as_str())
                    && words[fence..].trim().is_empty() =>
            {
                self.fence = None;
                painted(FAINT, line)
            }
            Some((_, true)) => painted(of_change(line), line),
            Some(_) if words.is_empty() => line.to_owned(),
            Some(_) => painted(CODE, line),
            None if fence >= 3 => {
                let name = words[fence..].trim();
                self.fence = Some((words[..fence].to_owned(), matches!(name, "diff" | "patch")));
                painted(FAINT, line)
            }
            None => format!("{indent}{}", inline(words)),
        }
    }
}

/// Renders a line outside code blocks: headings, emphasis, code and links.
fn inline(line: &str) -> String {
    let mut out = LineStyler {
        source: line,
        at: 0,
        styles: vec![Style::new()],
        out: String::new(),
    };
    let mut links: Vec<String> = Vec::new();
    for (event, range) in Parser::new(line).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => out.begin(STRONG, range.start, 0),
            Event::Start(Tag::Strong) => out.begin(STRONG, range.start, 2),
            Event::Start(Tag::Emphasis) => out.begin(Style::new().italic(), range.start, 1),
            Event::Start(Tag::Link { dest_url, .. }) => {
                links.push(dest_url.into_string());
                out.begin(Style::new().underline(), range.start, 1);
            }
            Event::End(TagEnd::Heading(_)) => out.end(range.end, 0),
            Event::End(TagEnd::Strong) => out.end(range.end, 2),
            Event::End(TagEnd::Emphasis) => out.end(range.end, 1),
            Event::End(TagEnd::Link) => {
                let address = links.pop().unwrap_or_default();
                let autolink = line[range.clone()].starts_with('<');
                out.at = range.end;
                out.styles.pop();
                if !autolink {
                    out.out += &painted(FAINT, &format!(" ({address})"));
                }
            }
            Event::Text(words) => {
                // A backslash escape is not shown.
                if &line[out.at..range.start.max(out.at)] != "\\" {
                    out.up_to(range.start);
                }
                out.words(&words);
                out.at = range.end;
            }
            Event::Code(code) => {
                out.up_to(range.start);
                out.styles.push(CODE);
                out.words(&code);
                out.styles.pop();
                out.at = range.end;
            }
            Event::Rule => {
                out.styles.push(FAINT);
                out.up_to(range.end);
                out.styles.pop();
            }
            _ => {}
        }
    }
    out.up_to(line.len());
    out.out
}

struct LineStyler<'a> {
    source: &'a str,
    /// The number of bytes of the source that are rendered.
    at: usize,
    styles: Vec<Style>,
    out: String,
}

impl LineStyler<'_> {
    /// Appends the source unchanged, up to a position.
    fn up_to(&mut self, end: usize) {
        if let Some(words) = self.source.get(self.at..end) {
            let words = words.to_owned();
            self.words(&words);
            self.at = end;
        }
    }

    fn words(&mut self, words: &str) {
        let style = self.styles.last().copied().unwrap_or_default();
        if words.is_empty() || style.is_plain() {
            self.out.push_str(words);
        } else {
            self.out += &painted(style, words);
        }
    }

    /// Begins a style after a marker of `mark` bytes, which is not shown.
    fn begin(&mut self, style: Style, at: usize, mark: usize) {
        self.up_to(at);
        self.at = self.at.max(at + mark);
        let outer = self.styles.last().copied().unwrap_or_default();
        self.styles
            .push(outer.effects(outer.get_effects() | style.get_effects()));
    }

    fn end(&mut self, at: usize, mark: usize) {
        self.up_to(at.saturating_sub(mark));
        self.at = self.at.max(at);
        self.styles.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOURS: Palette = Palette { colours: true };

    /// Returns the styles as readable tags.
    fn tags(styled: &Styled) -> String {
        let table = [
            ("\u{1b}[0m", "</>"),
            ("\u{1b}[1m", "<b>"),
            ("\u{1b}[2m", "<faint>"),
            ("\u{1b}[3m", "<i>"),
            ("\u{1b}[4m", "<u>"),
            ("\u{1b}[31m", "<bad>"),
            ("\u{1b}[32m", "<good>"),
            ("\u{1b}[36m", "<code>"),
        ];
        table
            .iter()
            .fold(styled.0.clone(), |text, (sequence, tag)| {
                text.replace(sequence, tag)
            })
    }

    #[test]
    fn inline_markdown_is_rendered() {
        let table = [
            ("Plain words.", "Plain words."),
            ("# Title `x`", "<b># </><b>Title </><code>x</>"),
            (
                "a **bold** and *slanted* word",
                "a <b>bold</> and <i>slanted</> word",
            ),
            (
                "- see `src/lib.rs:3`, ``a`b``",
                "- see <code>src/lib.rs:3</>, <code>a`b</>",
            ),
            (
                "[here](https://x.y/z)!",
                "<u>here</><faint> (https://x.y/z)</>!",
            ),
            ("see <https://x.y>", "see <u>https://x.y</>"),
            (r"5 \* 3 \_ &amp; a_b_c", "5 * 3 _ & a_b_c"),
            ("    - deeper `x`", "    - deeper <code>x</>"),
            ("***", "<faint>***</>"),
            ("**not closed", "**not closed"),
            ("1. one **two `three`**", "1. one <b>two </><code>three</>"),
            ("| a | `b` |", "| a | <code>b</> |"),
            ("> said", "> said"),
            ("", ""),
        ];
        for (line, expected) in table {
            assert_eq!(
                tags(&COLOURS.markdown(&format!("{line}\n"), 0)),
                format!("{expected}\n"),
                "{line}"
            );
            assert_eq!(
                Palette { colours: false }
                    .markdown(&format!("{line}\n"), 2)
                    .0,
                format!("  {line}\n")
            );
        }
    }

    #[test]
    fn code_is_not_read_as_markdown() {
        let text = "```rust\nlet a = **b;\n\n```\n````diff\n-a\n+b\n```\n````\n**c**";
        assert_eq!(
            tags(&COLOURS.markdown(text, 0)),
            "<faint>```rust</>\n<code>let a = **b;</>\n\n<faint>```</>\n<faint>````diff</>\n<bad>-a</>\n<good>+b</>\n```\n<faint>````</>\n<b>c</>\n"
        );
    }

    #[test]
    fn rendered_text_loses_only_its_markup() {
        let pieces = [
            "a",
            "é",
            "**",
            "*",
            "_",
            "`",
            "``",
            "[",
            "](x)",
            "<http://b>",
            "\\",
            "&lt;",
            "# ",
            "- ",
            "> ",
            " ",
            "<i>",
            "1. ",
            "~~~",
        ];
        fastrand::seed(7);
        for _ in 0..3000 {
            let line: String = (0..fastrand::usize(..12))
                .map(|_| pieces[fastrand::usize(..pieces.len())])
                .collect();
            let shown = tags(&COLOURS.markdown(&line, 0));
            for letter in ["a", "é"] {
                assert!(
                    shown.matches(letter).count() >= line.matches(letter).count(),
                    "{line:?} as {shown:?}"
                );
            }
        }
    }

    #[test]
    fn change_is_cut_and_cleaned() {
        let new: String = (0..100).map(|n| format!("{n}\u{1b}[31m\n")).collect();
        let shown = tags(&COLOURS.change("a.rs", "x\n", &new, 2));
        assert!(
            shown.starts_with(
                "  <b>--- a.rs</>\n  <b>+++ a.rs</>\n  <code>@@ -1 +1,100 @@</>\n  <bad>-x</>\n  <good>+0\\x1b[31m</>\n"
            ),
            "{shown}"
        );
        assert!(shown.ends_with("  <faint>… 64 lines more</>\n"), "{shown}");
    }
}
