//! HTML as Markdown, or as plain text. A page is read once, tag by tag, and no tree is built: what
//! strangers nest a hundred thousand deep, or never close, costs no more than what they wrote.
//!
//! Marks are written with the first word they are about, so that an empty link or a bold nothing
//! leaves no trace, and line breaks with the first word after them.

mod elements;
#[cfg(test)]
mod tests;

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use reqwest::Url;

/// Where writing stops: addresses and indentation can make a text longer than its page.
const LONGEST: usize = 16 << 20;

/// How deep lists and quotes are indented; deeper ones are not indented further.
const DEEPEST: usize = 24;

/// How many marks may be open at once.
const MARKS: usize = 32;

/// After how many bytes a link that nobody closed ends.
const LINK: usize = 600;

/// The longest address that is worth repeating.
const ADDRESS: usize = 1_000;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedPage {
    pub text: String,
    pub title: String,
}

/// Reads a page that lies at `base`. `plain` leaves the marks of Markdown out.
pub(super) fn read(html: &str, base: &Url, plain: bool) -> ParsedPage {
    let mut emitter = DefaultEmitter::<()>::default();
    emitter.naively_switch_states(true);
    let mut writer = MarkdownWriter::new(base, plain);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Ok(Token::StartTag(tag)) => writer.start(&tag),
            Ok(Token::EndTag(tag)) => writer.end(&name(&tag.name)),
            Ok(Token::String(text)) => writer.text(&String::from_utf8_lossy(&text)),
            Ok(_) => {}
            Err(never) => match never {},
        }
        if writer.out.len() > LONGEST {
            writer.out.push_str("\n\n(The rest of the page is left out.)");
            break;
        }
    }
    writer.finish()
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).trim().to_owned())
}

/// What a line is inside of.
enum OpenBlock {
    Quote,
    /// The number of its next item, where they are numbered.
    List(Option<u64>),
    /// What its first line begins with, and whether that was written.
    Item(String, bool),
}

/// Something that has an end.
struct OpenMark {
    kind: ElementKind,
    /// Its beginning was written, when the text was this long.
    written: Option<usize>,
    /// How many of the same kind are open inside of it.
    inner: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ElementKind {
    Strong,
    Emphasis,
    Strike,
    /// `#` … `######`
    Heading(usize),
    Link(String),
    Meaning,
}

impl ElementKind {
    fn same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[derive(Default)]
struct OpenTable {
    /// It only arranges the page: its cells are blocks.
    layout: bool,
    rows: usize,
    /// Cells of this row so far, and how many of them were written.
    cells: usize,
    written: usize,
}

/// Text that is kept as it is.
#[derive(Default)]
struct OpenCodeBlock {
    text: String,
    language: String,
}

struct MarkdownWriter<'a> {
    base: &'a Url,
    plain: bool,
    out: String,
    title: String,
    in_title: bool,
    has_title: bool,
    has_heading: bool,
    /// An element whose words are not shown, and how many of its name are open.
    skipped: Option<(String, usize)>,
    /// Line breaks before the next word: 2 make an empty line.
    breaks: usize,
    /// A space before the next word.
    space: bool,
    marks: Vec<OpenMark>,
    containers: Vec<OpenBlock>,
    tables: Vec<OpenTable>,
    pre: Option<OpenCodeBlock>,
    code: Option<String>,
}

impl<'a> MarkdownWriter<'a> {
    fn new(base: &'a Url, plain: bool) -> Self {
        Self {
            base,
            plain,
            out: String::new(),
            title: String::new(),
            in_title: false,
            has_title: false,
            has_heading: false,
            skipped: None,
            breaks: 0,
            space: false,
            marks: Vec::new(),
            containers: Vec::new(),
            tables: Vec::new(),
            pre: None,
            code: None,
        }
    }

    fn finish(mut self) -> ParsedPage {
        self.end_code();
        self.end_pre();
        while let Some(mark) = self.marks.pop() {
            self.close(&mark);
        }
        self.end_row();
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = match self.out.trim() {
            text if self.has_heading || title.is_empty() => text.to_owned(),
            text if self.plain => format!("{title}\n\n{text}"),
            text => format!("# {title}\n\n{text}"),
        };
        ParsedPage { text, title }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
        } else if let Some(pre) = &mut self.pre {
            pre.text.push_str(text);
        } else if let Some(code) = &mut self.code {
            code.push_str(text);
        } else {
            self.words(text);
        }
    }

    fn words(&mut self, text: &str) {
        let cell = self.in_cell();
        self.space |= text.starts_with(char::is_whitespace);
        for word in text.split_whitespace() {
            self.begin();
            if cell && word.contains('|') {
                self.out.push_str(&word.replace('|', "\\|"));
            } else {
                self.out.push_str(word);
            }
            self.space = true;
        }
        if !text.is_empty() && !text.ends_with(char::is_whitespace) {
            self.space = false;
        }
    }

    /// Whether what is written stands in a table's cell: there are no line breaks in it.
    fn in_cell(&self) -> bool {
        self.tables.last().is_some_and(|table| !table.layout && table.cells > 0)
    }

    fn in_item(&self) -> bool {
        self.containers.iter().rev().take(DEEPEST).any(|container| matches!(container, OpenBlock::Item(..)))
    }

    /// Writes what has to stand before a word.
    fn begin(&mut self) {
        if self.breaks > 0 || self.out.is_empty() {
            if !self.out.is_empty() {
                self.out.push('\n');
                if self.breaks > 1 {
                    let blank = self.prefix(false);
                    self.out.push_str(blank.trim_end());
                    self.out.push('\n');
                }
            }
            let prefix = self.prefix(true);
            self.out.push_str(&prefix);
            (self.breaks, self.space) = (0, false);
        }
        if let Some(table) = self.tables.last_mut().filter(|table| !table.layout) {
            while table.written < table.cells {
                self.out.push_str(if table.written == 0 { "| " } else { " | " });
                table.written += 1;
                self.space = false;
            }
        }
        if std::mem::take(&mut self.space) {
            self.out.push(' ');
        }
        for mark in self.marks.iter_mut().filter(|mark| mark.written.is_none()) {
            mark.written = Some(self.out.len());
            match &mark.kind {
                ElementKind::Strong => self.out.push_str("**"),
                ElementKind::Emphasis => self.out.push('*'),
                ElementKind::Strike => self.out.push_str("~~"),
                ElementKind::Heading(level) => {
                    self.out.push_str(&"######"[..*level]);
                    self.out.push(' ');
                }
                ElementKind::Link(_) => self.out.push('['),
                ElementKind::Meaning => self.out.push_str(": "),
            }
        }
    }

    /// What a line begins with. `words`: it is not empty, so items begin with it.
    fn prefix(&mut self, words: bool) -> String {
        let mut prefix = String::new();
        for container in self.containers.iter_mut().take(DEEPEST) {
            match container {
                OpenBlock::Quote => prefix.push_str("> "),
                OpenBlock::List(_) => {}
                OpenBlock::Item(marker, started) if words && !*started => {
                    prefix.push_str(marker);
                    *started = true;
                }
                OpenBlock::Item(marker, _) => prefix.extend(std::iter::repeat_n(' ', marker.len())),
            }
        }
        prefix
    }

    /// A block begins or ends here: line breaks, as far as there is room for them.
    fn block(&mut self, breaks: usize) {
        self.end_code();
        let link = |mark: &OpenMark| matches!(mark.kind, ElementKind::Link(_)) && mark.inner == 0;
        if let Some(at) = self.marks.iter().position(link) {
            if self.marks[at].written.is_none_or(|from| self.out.len() - from < LINK) {
                self.space = true;
                return;
            }
            self.unmark(&ElementKind::Link(String::new()));
        }
        if self.in_cell() || self.marks.iter().any(|mark| matches!(mark.kind, ElementKind::Heading(_))) {
            self.space = true;
        } else {
            self.breaks = self.breaks.max(breaks);
        }
    }

    fn mark(&mut self, kind: ElementKind) {
        if self.plain {
            return;
        }
        if let Some(mark) = self.marks.iter_mut().find(|mark| mark.kind.same(&kind)) {
            mark.inner += 1;
        } else if self.marks.len() < MARKS {
            self.marks.push(OpenMark { kind, written: None, inner: 0 });
        }
    }

    fn unmark(&mut self, kind: &ElementKind) {
        let Some(at) = self.marks.iter().rposition(|mark| mark.kind.same(kind)) else { return };
        if self.marks[at].inner > 0 {
            self.marks[at].inner -= 1;
            return;
        }
        let mark = self.marks.remove(at);
        self.close(&mark);
    }

    fn close(&mut self, mark: &OpenMark) {
        if mark.written.is_none() {
            return;
        }
        match &mark.kind {
            ElementKind::Strong => self.out.push_str("**"),
            ElementKind::Emphasis => self.out.push('*'),
            ElementKind::Strike => self.out.push_str("~~"),
            ElementKind::Link(to) => {
                self.out.push_str("](");
                self.out.push_str(to);
                self.out.push(')');
            }
            ElementKind::Heading(_) | ElementKind::Meaning => {}
        }
    }

    /// Where an address of the page leads; none for what leads nowhere.
    fn address(&self, text: &str) -> Option<String> {
        if text.is_empty() || text.starts_with('#') || text.len() > ADDRESS || self.plain {
            return None;
        }
        let url = self.base.join(text).ok()?;
        let known = matches!(url.scheme(), "http" | "https" | "mailto");
        (known && url.as_str().len() <= ADDRESS).then(|| url.to_string().replace('(', "%28").replace(')', "%29"))
    }
}
