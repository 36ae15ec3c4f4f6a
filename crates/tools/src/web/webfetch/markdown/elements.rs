//! The effects of HTML elements on the text.

use html5gum::StartTag;

use super::{
    ElementKind, MAX_DEPTH, MarkdownWriter, OpenBlock, OpenCodeBlock, OpenTable, attribute, name,
};

/// The maximum number of open containers that are recorded, indented or not, so that each end
/// matches its beginning.
const MAX_CONTAINERS: usize = 100_000;

/// The maximum number of containers that are searched for the one that an element ends.
const MAX_SEARCHED_CONTAINERS: usize = 1_000;

/// Elements whose text is omitted.
const OMITTED_ELEMENTS: [&str; 15] = [
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select",
    "textarea", "canvas", "audio", "video", "datalist", "map",
];

impl MarkdownWriter<'_> {
    /// Returns whether an element, or the element that contains it, shows nothing.
    fn skips(&mut self, name: &str, tag: &StartTag<()>) -> bool {
        if let Some((skipped, open)) = &mut self.skipped {
            *open += usize::from(skipped == name && !tag.self_closing);
            return true;
        }
        let raw = matches!(name, "script" | "style" | "textarea" | "iframe");
        if OMITTED_ELEMENTS.contains(&name) && (raw || !tag.self_closing) {
            self.skipped = Some((name.to_owned(), 1));
            return true;
        }
        self.pre.is_some() && !matches!(name, "br" | "pre" | "code")
    }

    /// Applies the beginning of an element.
    pub(super) fn start(&mut self, tag: &StartTag<()>) {
        let name = name(&tag.name);
        let name = name.as_str();
        if self.skips(name, tag) {
            return;
        }
        match name {
            // Only the first title counts.
            "title" => self.in_title = !std::mem::replace(&mut self.has_title, true),
            "p" | "section" | "article" | "figure" | "main" | "dl" | "details" => self.paragraph(2),
            "div" | "header" | "footer" | "nav" | "aside" | "address" | "form" | "fieldset"
            | "center" | "figcaption" | "summary" | "body" | "legend" | "caption" | "option"
            | "hgroup" => self.block(1),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(name),
            "br" => match (&mut self.pre, &mut self.code) {
                (Some(pre), _) => pre.text.push('\n'),
                (_, Some(code)) => code.push(' '),
                _ => self.block((self.breaks + 1).min(2)),
            },
            "hr" => {
                self.paragraph(2);
                if !self.plain && !self.in_cell() {
                    self.begin();
                    self.out.push_str("---");
                }
                self.block(2);
            }
            "ul" | "ol" | "menu" => {
                let breaks = if self.in_item() { 1 } else { 2 };
                self.paragraph(breaks);
                let first = attribute(tag, b"start")
                    .and_then(|start| start.parse().ok())
                    .unwrap_or(1);
                self.push(OpenBlock::List((name == "ol").then_some(first)));
            }
            "li" => self.item(),
            "dt" => self.block(1),
            "dd" => {
                self.block(1);
                self.mark(ElementKind::Meaning);
            }
            "blockquote" => {
                self.paragraph(2);
                self.push(OpenBlock::Quote);
            }
            "table" => {
                self.paragraph(2);
                if self.tables.len() < MAX_DEPTH {
                    self.tables.push(OpenTable::default());
                }
            }
            "tr" => {
                self.end_row();
                self.block(1);
            }
            "td" | "th" => self.cell(),
            "pre" if self.pre.is_none() => {
                self.paragraph(2);
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

    /// Applies the end of an element.
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
            "p" | "section" | "article" | "figure" | "main" | "dl" | "details" => self.block(2),
            "div" | "header" | "footer" | "nav" | "aside" | "address" | "form" | "fieldset"
            | "center" | "figcaption" | "summary" | "body" | "legend" | "caption" | "dt"
            | "option" | "hgroup" => self.block(1),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_code();
                self.unmark(&ElementKind::Heading(1));
                self.block(2);
            }
            "ul" | "ol" | "menu" => {
                self.pop(
                    |container| matches!(container, OpenBlock::List(_)),
                    |_| false,
                );
                let breaks = if self.in_item() { 1 } else { 2 };
                self.block(breaks);
            }
            "li" => {
                self.end_item();
                self.block(1);
            }
            "dd" => {
                self.unmark(&ElementKind::Meaning);
                self.block(1);
            }
            "blockquote" => {
                self.pop(|container| matches!(container, OpenBlock::Quote), |_| false);
                self.block(2);
            }
            "table" => {
                self.end_row();
                self.tables.pop();
                self.block(2);
            }
            "tr" => {
                self.end_row();
                self.block(1);
            }
            "code" | "kbd" | "samp" | "tt" => self.end_code(),
            "b" | "strong" => self.unmark(&ElementKind::Strong),
            "i" | "em" => self.unmark(&ElementKind::Emphasis),
            "s" | "del" | "strike" => self.unmark(&ElementKind::Strike),
            "a" => self.unmark(&ElementKind::Link(String::new())),
            _ => {}
        }
    }

    /// Begins a block that cells of data tables do not have: a table that contains one only
    /// arranges the page.
    pub(super) fn paragraph(&mut self, breaks: usize) {
        let in_cell = self.in_cell();
        if in_cell
            && breaks > 1
            && let Some(table) = self.tables.last_mut()
        {
            table.layout = true;
            self.breaks = self.breaks.max(usize::from(table.written > 0));
        }
        self.block(breaks);
    }

    /// Begins a heading; `name` is `h1` to `h6`.
    pub(super) fn heading(&mut self, name: &str) {
        self.end_code();
        self.unmark(&ElementKind::Heading(1));
        self.paragraph(2);
        let level = usize::from(name.as_bytes()[1] - b'0');
        self.has_heading |= level == 1;
        let inside = self.in_cell()
            || self
                .marks
                .iter()
                .any(|mark| matches!(mark.kind, ElementKind::Link(_)));
        if !inside {
            self.mark(ElementKind::Heading(level));
        }
    }

    /// Begins a container.
    pub(super) fn push(&mut self, container: OpenBlock) {
        if self.containers.len() < MAX_CONTAINERS {
            self.containers.push(container);
        }
    }

    /// Ends the innermost container for which `kind` is true, and everything inside it. Containers
    /// outside one for which `border` is true are not searched.
    pub(super) fn pop(&mut self, kind: fn(&OpenBlock) -> bool, border: fn(&OpenBlock) -> bool) {
        let inner = self
            .containers
            .iter()
            .rev()
            .take_while(|container| !border(container));
        if let Some(back) = inner.take(MAX_SEARCHED_CONTAINERS).position(kind) {
            self.containers.truncate(self.containers.len() - back - 1);
        }
    }

    /// Begins an item of a list.
    pub(super) fn item(&mut self) {
        self.end_item();
        self.block(1);
        let marker = match self.containers.last_mut() {
            Some(OpenBlock::List(Some(number))) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        };
        self.push(OpenBlock::Item(marker, false));
    }

    /// Ends the item of the innermost list.
    pub(super) fn end_item(&mut self) {
        self.pop(
            |container| matches!(container, OpenBlock::Item(..)),
            |container| matches!(container, OpenBlock::List(_)),
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
            _ => self.block(1),
        }
    }

    /// Ends the row of a table. The first one is followed by the line that makes it a header.
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
                .extend([&prefix, "|", &" --- |".repeat(cells.min(200))]);
        }
        self.breaks = self.breaks.max(1);
    }

    /// Writes the text of the open `<code>` element.
    pub(super) fn end_code(&mut self) {
        let Some(code) = self.code.take() else { return };
        let words: Vec<&str> = code.split_whitespace().collect();
        self.space |= code.starts_with(char::is_whitespace);
        if !words.is_empty() {
            self.begin();
            let code = words.join(" ");
            let fence = if self.plain {
                String::new()
            } else {
                "`".repeat(longest_run(&code) + 1)
            };
            let gap = if code.starts_with('`') || code.ends_with('`') {
                " "
            } else {
                ""
            };
            self.out.extend([fence.as_str(), gap, &code, gap, &fence]);
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
        self.breaks = self.breaks.max(2);
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
        self.breaks = 2;
    }

    /// Writes an image that has a description, as a link to it.
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
