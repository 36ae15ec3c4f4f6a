//! Converts HTML to Markdown or plain text. A page is read once, tag by tag, without building
//! a tree: elements that are nested a hundred thousand deep, or never closed, cost no more than
//! their text.
//!
//! Marks are written with the first word they apply to, so that an empty link or empty bold text
//! leaves no trace, and line breaks with the first word after them.

mod elements;
#[cfg(test)]
mod tests;

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use reqwest::Url;

/// The maximum size of the output. URLs and indentation can make it longer than the page.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// The maximum depth of indented lists and quotes.
const MAX_DEPTH: usize = 24;

/// The maximum number of open marks, such as bold text or a link.
const MAX_MARKS: usize = 32;

/// The number of bytes after which an unclosed link ends.
const MAX_LINK_BYTES: usize = 600;

/// The maximum length of a URL that is included.
const MAX_URL_BYTES: usize = 1_000;

/// A converted page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedPage {
    pub text: String,
    pub title: String,
}

/// Converts a page with the URL `base`. `plain` omits the marks of Markdown.
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
        if writer.out.len() > MAX_OUTPUT_BYTES {
            writer
                .out
                .push_str("\n\n(The rest of the page is left out.)");
            break;
        }
    }
    writer.finish()
}

/// Returns the name of an element.
fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the value of an attribute.
fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes
        .get(name)
        .map(|value| String::from_utf8_lossy(value).trim().to_owned())
}

/// A list, an item or a quote that contains the current line.
enum OpenContainer {
    Quote,
    /// The number of the next item, if the list is numbered.
    List(Option<u64>),
    Item {
        /// The prefix of the item's first line.
        marker: String,
        /// True if the prefix was written.
        is_started: bool,
    },
}

/// An element that has an end.
struct OpenMark {
    kind: ElementKind,
    /// The length of the text at which its beginning was written, if it was.
    written: Option<usize>,
    /// The number of open elements of the same kind inside it.
    inner: usize,
}

/// A kind of element that is written with a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ElementKind {
    Strong,
    Emphasis,
    Strike,
    /// `#` … `######`
    Heading(usize),
    /// The URL.
    Link(String),
    /// The description of a term in a list (`<dd>`).
    Description,
}

impl ElementKind {
    /// Returns whether both are of the same kind, whatever their level or URL.
    fn same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// A table whose end was not reached.
#[derive(Default)]
struct OpenTable {
    /// True if the table only arranges the page, so that its cells are blocks.
    layout: bool,
    /// The number of rows that were written.
    rows: usize,
    /// The number of cells of this row so far.
    cells: usize,
    /// The number of cells of this row that were written.
    written: usize,
}

/// Preformatted text.
#[derive(Default)]
struct OpenCodeBlock {
    text: String,
    language: String,
}

/// The text so far, and the open elements.
struct MarkdownWriter<'a> {
    /// The URL of the page.
    base: &'a Url,
    /// True if the marks of Markdown are omitted.
    plain: bool,
    /// The text so far.
    out: String,
    /// The text of the page's `<title>`.
    title: String,
    /// True if that element is open.
    in_title: bool,
    /// True if that element was reached.
    has_title: bool,
    /// True if there was a heading of the first level, so that the title is not added.
    has_heading: bool,
    /// An element whose text is omitted, and the number of open elements of its name.
    skipped: Option<(String, usize)>,
    /// The number of line breaks before the next word: 2 make an empty line.
    breaks: usize,
    /// True if a space precedes the next word.
    space: bool,
    marks: Vec<OpenMark>,
    containers: Vec<OpenContainer>,
    tables: Vec<OpenTable>,
    /// The open `<pre>` element.
    pre: Option<OpenCodeBlock>,
    /// The text of the open `<code>` element.
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

    /// Ends all open elements.
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

    /// Adds a text, wherever it is.
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

    /// Writes the words of a text, with one space for any whitespace.
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

    /// Returns whether the output is in a cell of a table, which has no line breaks.
    fn in_cell(&self) -> bool {
        self.tables
            .last()
            .is_some_and(|table| !table.layout && table.cells > 0)
    }

    /// Returns whether the output is in an item of a list.
    fn in_item(&self) -> bool {
        self.containers
            .iter()
            .rev()
            .take(MAX_DEPTH)
            .any(|container| matches!(container, OpenContainer::Item { .. }))
    }

    /// Writes the line breaks and marks that precede a word.
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
            self.breaks = 0;
            self.space = false;
        }
        if let Some(table) = self.tables.last_mut().filter(|table| !table.layout) {
            while table.written < table.cells {
                self.out
                    .push_str(if table.written == 0 { "| " } else { " | " });
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
                ElementKind::Description => self.out.push_str(": "),
            }
        }
    }

    /// Returns the prefix of a line. `words` is false for an empty line, which does not use up the
    /// marker of an item.
    fn prefix(&mut self, words: bool) -> String {
        let mut prefix = String::new();
        for container in self.containers.iter_mut().take(MAX_DEPTH) {
            match container {
                OpenContainer::Quote => prefix.push_str("> "),
                OpenContainer::List(_) => {}
                OpenContainer::Item { marker, is_started } if words && !*is_started => {
                    prefix.push_str(marker);
                    *is_started = true;
                }
                OpenContainer::Item { marker, .. } => {
                    prefix.extend(std::iter::repeat_n(' ', marker.len()))
                }
            }
        }
        prefix
    }

    /// Begins or ends a block, with this number of line breaks if they are possible here.
    fn break_line(&mut self, breaks: usize) {
        self.end_code();
        let link = |mark: &OpenMark| matches!(mark.kind, ElementKind::Link(_)) && mark.inner == 0;
        if let Some(at) = self.marks.iter().position(link) {
            if self.marks[at]
                .written
                .is_none_or(|from| self.out.len() - from < MAX_LINK_BYTES)
            {
                self.space = true;
                return;
            }
            self.unmark(&ElementKind::Link(String::new()));
        }
        if self.in_cell()
            || self
                .marks
                .iter()
                .any(|mark| matches!(mark.kind, ElementKind::Heading(_)))
        {
            self.space = true;
        } else {
            self.breaks = self.breaks.max(breaks);
        }
    }

    /// Opens a mark.
    fn mark(&mut self, kind: ElementKind) {
        if self.plain {
            return;
        }
        if let Some(mark) = self.marks.iter_mut().find(|mark| mark.kind.same(&kind)) {
            mark.inner += 1;
        } else if self.marks.len() < MAX_MARKS {
            self.marks.push(OpenMark {
                kind,
                written: None,
                inner: 0,
            });
        }
    }

    /// Closes the innermost mark of a kind.
    fn unmark(&mut self, kind: &ElementKind) {
        let Some(at) = self.marks.iter().rposition(|mark| mark.kind.same(kind)) else {
            return;
        };
        if self.marks[at].inner > 0 {
            self.marks[at].inner -= 1;
            return;
        }
        let mark = self.marks.remove(at);
        self.close(&mark);
    }

    /// Writes the end of a mark, if its beginning was written.
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
            ElementKind::Heading(_) | ElementKind::Description => {}
        }
    }

    /// Resolves a URL of the page; `None` if it is of no use.
    fn resolve_url(&self, text: &str) -> Option<String> {
        if text.is_empty() || text.starts_with('#') || text.len() > MAX_URL_BYTES || self.plain {
            return None;
        }
        let url = self.base.join(text).ok()?;
        let known = matches!(url.scheme(), "http" | "https" | "mailto");
        (known && url.as_str().len() <= MAX_URL_BYTES)
            .then(|| url.to_string().replace('(', "%28").replace(')', "%29"))
    }
}
