//! Writes Markdown for the start and end tags of HTML elements.

use html5gum::StartTag;

use super::{
    ElementKind, MAX_DEPTH, MarkdownWriter, OpenCodeBlock, OpenContainer, OpenTable, attribute,
    name,
};

/// The maximum number of open lists, items and quotes that are remembered. Those deeper than
/// `MAX_DEPTH` are not indented, but their ends must match.
const MAX_CONTAINERS: usize = 100_000;

/// The maximum number of containers that are searched for the one that an element ends.
const MAX_SEARCHED_CONTAINERS: usize = 1_000;

/// The maximum number of columns of a delimiter row.
const MAX_COLUMNS: usize = 200;

/// The number of line breaks that begin a new line.
const LINE_BREAK: usize = 1;

/// The number of line breaks that leave a blank line.
const BLANK_LINE: usize = 2;

/// Elements whose text is omitted.
const OMITTED_ELEMENTS: [&str; 15] = [
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select",
    "textarea", "canvas", "audio", "video", "datalist", "map",
];

impl MarkdownWriter<'_> {
    /// Begins to skip an element whose text is omitted. Returns whether the tag is to be ignored.
    fn enter_skipped(&mut self, name: &str, tag: &StartTag<()>) -> bool {
        if let Some((skipped, open)) = &mut self.skipped {
            *open += usize::from(skipped == name && !tag.self_closing);
            return true;
        }
        // Their content is raw text even after `/>`.
        let is_raw = matches!(name, "script" | "style" | "textarea" | "iframe");
        if OMITTED_ELEMENTS.contains(&name) && (is_raw || !tag.self_closing) {
            self.skipped = Some((name.to_owned(), 1));
            return true;
        }
        self.pre.is_some() && !matches!(name, "br" | "pre" | "code")
    }

    /// Applies a start tag.
    pub(super) fn start(&mut self, tag: &StartTag<()>) {
        let name = name(&tag.name);
        let name = name.as_str();
        if self.enter_skipped(name, tag) {
            return;
        }
        match name {
            // Only the first title counts.
            "title" => self.in_title = !std::mem::replace(&mut self.has_title, true),
            "p" | "section" | "article" | "figure" | "main" | "dl" | "details" => {
                self.paragraph(BLANK_LINE)
            }
            "div" | "header" | "footer" | "nav" | "aside" | "address" | "form" | "fieldset"
            | "center" | "figcaption" | "summary" | "body" | "legend" | "caption" | "option"
            | "hgroup" => self.break_line(LINE_BREAK),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(name),
            "br" => match (&mut self.pre, &mut self.code) {
                (Some(pre), _) => pre.text.push('\n'),
                (_, Some(code)) => code.push(' '),
                _ => self.break_line((self.breaks + 1).min(BLANK_LINE)),
            },
            "hr" => {
                self.paragraph(BLANK_LINE);
                if !self.plain && !self.in_cell() {
                    self.begin();
                    self.out.push_str("---");
                }
                self.break_line(BLANK_LINE);
            }
            "ul" | "ol" | "menu" => {
                let breaks = if self.in_item() {
                    LINE_BREAK
                } else {
                    BLANK_LINE
                };
                self.paragraph(breaks);
                let first = attribute(tag, b"start")
                    .and_then(|start| start.parse().ok())
                    .unwrap_or(1);
                self.push(OpenContainer::List((name == "ol").then_some(first)));
            }
            "li" => self.item(),
            "dt" => self.break_line(LINE_BREAK),
            "dd" => {
                self.break_line(LINE_BREAK);
                self.mark(ElementKind::Description);
            }
            "blockquote" => {
                self.paragraph(BLANK_LINE);
                self.push(OpenContainer::Quote);
            }
            "table" => {
                self.paragraph(BLANK_LINE);
                if self.tables.len() < MAX_DEPTH {
                    self.tables.push(OpenTable::default());
                }
            }
            "tr" => {
                self.end_row();
                self.break_line(LINE_BREAK);
            }
            "td" | "th" => self.cell(),
            "pre" if self.pre.is_none() => {
                self.paragraph(BLANK_LINE);
                self.pre = Some(OpenCodeBlock {
                    text: String::new(),
                    language: language(tag),
                });
            }
            "code" | "kbd" | "samp" | "tt" => match &mut self.pre {
                Some(pre) if pre.language.is_empty() => pre.language = language(tag),
                Some(_) => {}
                None if self.code.is_none() => self.code = Some(String::new()),
                None => {}
            },
            "b" | "strong" => self.mark(ElementKind::Strong),
            "i" | "em" => self.mark(ElementKind::Emphasis),
            "s" | "del" | "strike" => self.mark(ElementKind::Strike),
            "a" => {
                if let Some(to) = attribute(tag, b"href").and_then(|to| self.resolve_url(&to)) {
                    self.unmark(&ElementKind::Link(String::new()));
                    self.mark(ElementKind::Link(to));
                }
            }
            "img" => self.image(tag),
            _ => {}
        }
    }

    /// Applies an end tag.
    pub(super) fn end(&mut self, name: &str) {
        if let Some((skipped, open)) = &mut self.skipped {
            if skipped == name {
                *open -= 1;
                if *open == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        match name {
            "title" => self.in_title = false,
            "pre" => self.end_pre(),
            _ if self.pre.is_some() => {}
            "p" | "section" | "article" | "figure" | "main" | "dl" | "details" => {
                self.break_line(BLANK_LINE)
            }
            "div" | "header" | "footer" | "nav" | "aside" | "address" | "form" | "fieldset"
            | "center" | "figcaption" | "summary" | "body" | "legend" | "caption" | "dt"
            | "option" | "hgroup" => self.break_line(LINE_BREAK),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_code();
                self.unmark(&ElementKind::Heading(1));
                self.break_line(BLANK_LINE);
            }
            "ul" | "ol" | "menu" => {
                self.pop(
                    |container| matches!(container, OpenContainer::List(_)),
                    |_| false,
                );
                let breaks = if self.in_item() {
                    LINE_BREAK
                } else {
                    BLANK_LINE
                };
                self.break_line(breaks);
            }
            "li" => {
                self.end_item();
                self.break_line(LINE_BREAK);
            }
            "dd" => {
                self.unmark(&ElementKind::Description);
                self.break_line(LINE_BREAK);
            }
            "blockquote" => {
                self.pop(
                    |container| matches!(container, OpenContainer::Quote),
                    |_| false,
                );
                self.break_line(BLANK_LINE);
            }
            "table" => {
                self.end_row();
                self.tables.pop();
                self.break_line(BLANK_LINE);
            }
            "tr" => {
                self.end_row();
                self.break_line(LINE_BREAK);
            }
            "code" | "kbd" | "samp" | "tt" => self.end_code(),
            "b" | "strong" => self.unmark(&ElementKind::Strong),
            "i" | "em" => self.unmark(&ElementKind::Emphasis),
            "s" | "del" | "strike" => self.unmark(&ElementKind::Strike),
            "a" => self.unmark(&ElementKind::Link(String::new())),
            _ => {}
        }
    }

    /// Begins a block. A blank line in a cell shows that the table is only for layout, so its cells
    /// become blocks.
    pub(super) fn paragraph(&mut self, breaks: usize) {
        let in_cell = self.in_cell();
        if in_cell
            && breaks > LINE_BREAK
            && let Some(table) = self.tables.last_mut()
        {
            table.layout = true;
            // If the row has text already, the block begins on a new line.
            self.breaks = self.breaks.max(usize::from(table.written > 0));
        }
        self.break_line(breaks);
    }

    /// Begins a heading; `name` is `h1` to `h6`.
    pub(super) fn heading(&mut self, name: &str) {
        self.end_code();
        self.unmark(&ElementKind::Heading(1));
        self.paragraph(BLANK_LINE);
        let level = usize::from(name.as_bytes()[1] - b'0');
        self.has_heading |= level == 1;
        let is_inline = self.in_cell()
            || self
                .marks
                .iter()
                .any(|mark| matches!(mark.kind, ElementKind::Link(_)));
        if !is_inline {
            self.mark(ElementKind::Heading(level));
        }
    }

    /// Begins a container.
    pub(super) fn push(&mut self, container: OpenContainer) {
        if self.containers.len() < MAX_CONTAINERS {
            self.containers.push(container);
        }
    }

    /// Ends the innermost container for which `is_target` is true, and everything inside it. The
    /// search stops at a container for which `is_boundary` is true.
    pub(super) fn pop(
        &mut self,
        is_target: fn(&OpenContainer) -> bool,
        is_boundary: fn(&OpenContainer) -> bool,
    ) {
        let inner = self
            .containers
            .iter()
            .rev()
            .take_while(|container| !is_boundary(container));
        if let Some(back) = inner.take(MAX_SEARCHED_CONTAINERS).position(is_target) {
            self.containers.truncate(self.containers.len() - back - 1);
        }
    }

    /// Begins an item of a list.
    pub(super) fn item(&mut self) {
        self.end_item();
        self.break_line(LINE_BREAK);
        let marker = match self.containers.last_mut() {
            Some(OpenContainer::List(Some(number))) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        };
        self.push(OpenContainer::Item {
            marker,
            is_started: false,
        });
    }

    /// Ends the item of the innermost list.
    pub(super) fn end_item(&mut self) {
        self.pop(
            |container| matches!(container, OpenContainer::Item { .. }),
            |container| matches!(container, OpenContainer::List(_)),
        );
    }

    /// Begins a cell of a table.
    pub(super) fn cell(&mut self) {
        self.end_code();
        match self.tables.last_mut() {
            Some(table) if !table.layout => {
                table.cells += 1;
                self.space = false;
            }
            _ => self.break_line(LINE_BREAK),
        }
    }

    /// Ends the row of a table. The first one is followed by the delimiter row.
    pub(super) fn end_row(&mut self) {
        self.end_code();
        let Some(OpenTable {
            layout,
            rows,
            cells,
            written,
        }) = self.tables.last_mut()
        else {
            return;
        };
        let cells = std::mem::take(cells);
        let written = std::mem::take(written);
        if *layout || written == 0 {
            return;
        }
        *rows += 1;
        let first = *rows == 1;
        self.out.push_str(&" | ".repeat(cells - written));
        self.out.push_str(" |");
        if first && !self.plain {
            self.out.push('\n');
            let prefix = self.prefix(true);
            self.out
                .extend([&prefix, "|", &" --- |".repeat(cells.min(MAX_COLUMNS))]);
        }
        self.breaks = self.breaks.max(LINE_BREAK);
    }

    /// Writes the text of the open `<code>` element.
    pub(super) fn end_code(&mut self) {
        let Some(code) = self.code.take() else { return };
        let words: Vec<&str> = code.split_whitespace().collect();
        self.space |= code.starts_with(char::is_whitespace);
        if !words.is_empty() {
            self.begin();
            let code = words.join(" ");
            let delimiter = if self.plain {
                String::new()
            } else {
                "`".repeat(longest_run(&code) + 1)
            };
            let gap = if code.starts_with('`') || code.ends_with('`') {
                " "
            } else {
                ""
            };
            self.out
                .extend([delimiter.as_str(), gap, &code, gap, &delimiter]);
        }
        self.space |= code.ends_with(char::is_whitespace);
    }

    /// Writes the text of the open `<pre>` element.
    pub(super) fn end_pre(&mut self) {
        let Some(OpenCodeBlock { text, language }) = self.pre.take() else {
            return;
        };
        let text = text.strip_prefix('\n').unwrap_or(&text).trim_end();
        if text.trim().is_empty() {
            return;
        }
        self.breaks = self.breaks.max(BLANK_LINE);
        self.begin();
        let fence = "`".repeat((longest_run(text) + 1).max(3));
        let mut lines: Vec<&str> = Vec::new();
        let opening = format!("{fence}{language}");
        if !self.plain {
            lines.push(&opening);
        }
        lines.extend(text.lines());
        if !self.plain {
            lines.push(&fence);
        }
        let prefix = self.prefix(true);
        for (number, line) in lines.into_iter().enumerate() {
            if number > 0 {
                self.out.push('\n');
                self.out.push_str(if line.is_empty() {
                    prefix.trim_end()
                } else {
                    &prefix
                });
            }
            self.out.push_str(line);
        }
        self.breaks = BLANK_LINE;
    }

    /// Writes an image as Markdown if it has an alternative text; without a usable URL, only that
    /// text.
    pub(super) fn image(&mut self, tag: &StartTag<()>) {
        let text = attribute(tag, b"alt")
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        if text.is_empty() {
            return;
        }
        let src = if self.plain {
            None
        } else {
            attribute(tag, b"src")
        };
        let url = src.and_then(|src| self.resolve_url(&src));
        self.begin();
        match url {
            Some(url) => self.out.extend(["![", &text, "](", &url, ")"]),
            None => self.out.push_str(&text),
        }
    }
}

/// Returns the language of a code block, from the class names that are common on pages; empty if it
/// has none of them.
fn language(tag: &StartTag<()>) -> String {
    let class = attribute(tag, b"class").unwrap_or_default();
    let named = class.split_whitespace().find_map(|word| {
        word.strip_prefix("language-")
            .or_else(|| word.strip_prefix("lang-"))
            .or_else(|| word.strip_prefix("brush:"))
    });
    named
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "+-#".contains(*c))
        .take(20)
        .collect()
}

/// Returns the length of the longest run of backticks in a text.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default()
}
