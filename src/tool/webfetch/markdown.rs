//! HTML as Markdown, or as plain text. A page is read once, tag by tag, and no tree is built: what
//! strangers nest a hundred thousand deep, or never close, costs no more than what they wrote.
//!
//! Marks are written with the first word they are about, so that an empty link or a bold nothing
//! leaves no trace, and line breaks with the first word after them.

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

/// Elements whose words are not shown.
const UNSHOWN: [&str; 15] = [
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select", "textarea", "canvas",
    "audio", "video", "datalist", "map",
];

/// What a page says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    /// Its words.
    pub text: String,
    /// What it is called.
    pub title: String,
}

/// Reads a page that lies at `base`. `plain` leaves the marks of Markdown out.
pub(super) fn read(html: &str, base: &Url, plain: bool) -> Read {
    let mut emitter = DefaultEmitter::<()>::default();
    emitter.naively_switch_states(true);
    let mut writer = Writer::new(base, plain);
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
enum Container {
    Quote,
    /// The number of its next item, where they are numbered.
    List(Option<u64>),
    /// What its first line begins with, and whether that was written.
    Item(String, bool),
}

/// Something that has an end.
struct Mark {
    kind: Kind,
    /// Its beginning was written, when the text was this long.
    written: Option<usize>,
    /// How many of the same kind are open inside of it.
    inner: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Strong,
    Emphasis,
    Strike,
    /// `#` … `######`
    Heading(usize),
    /// Where it leads.
    Link(String),
    /// What a term means.
    Meaning,
}

impl Kind {
    fn same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[derive(Default)]
struct Table {
    /// It only arranges the page: its cells are blocks.
    layout: bool,
    rows: usize,
    /// Cells of this row so far, and how many of them were written.
    cells: usize,
    written: usize,
}

/// Text that is kept as it is.
#[derive(Default)]
struct Verbatim {
    text: String,
    language: String,
}

struct Writer<'a> {
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
    marks: Vec<Mark>,
    containers: Vec<Container>,
    tables: Vec<Table>,
    pre: Option<Verbatim>,
    code: Option<String>,
}

impl<'a> Writer<'a> {
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

    fn finish(mut self) -> Read {
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
        Read { text, title }
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
        self.containers.iter().rev().take(DEEPEST).any(|container| matches!(container, Container::Item(..)))
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
                Kind::Strong => self.out.push_str("**"),
                Kind::Emphasis => self.out.push('*'),
                Kind::Strike => self.out.push_str("~~"),
                Kind::Heading(level) => {
                    self.out.push_str(&"######"[..*level]);
                    self.out.push(' ');
                }
                Kind::Link(_) => self.out.push('['),
                Kind::Meaning => self.out.push_str(": "),
            }
        }
    }

    /// What a line begins with. `words`: it is not empty, so items begin with it.
    fn prefix(&mut self, words: bool) -> String {
        let mut prefix = String::new();
        for container in self.containers.iter_mut().take(DEEPEST) {
            match container {
                Container::Quote => prefix.push_str("> "),
                Container::List(_) => {}
                Container::Item(marker, started) if words && !*started => {
                    prefix.push_str(marker);
                    *started = true;
                }
                Container::Item(marker, _) => prefix.extend(std::iter::repeat_n(' ', marker.len())),
            }
        }
        prefix
    }

    /// A block begins or ends here: line breaks, as far as there is room for them.
    fn block(&mut self, breaks: usize) {
        self.end_code();
        let link = |mark: &Mark| matches!(mark.kind, Kind::Link(_)) && mark.inner == 0;
        if let Some(at) = self.marks.iter().position(link) {
            if self.marks[at].written.is_none_or(|from| self.out.len() - from < LINK) {
                self.space = true;
                return;
            }
            self.unmark(&Kind::Link(String::new()));
        }
        if self.in_cell() || self.marks.iter().any(|mark| matches!(mark.kind, Kind::Heading(_))) {
            self.space = true;
        } else {
            self.breaks = self.breaks.max(breaks);
        }
    }

    fn mark(&mut self, kind: Kind) {
        if self.plain {
            return;
        }
        if let Some(mark) = self.marks.iter_mut().find(|mark| mark.kind.same(&kind)) {
            mark.inner += 1;
        } else if self.marks.len() < MARKS {
            self.marks.push(Mark { kind, written: None, inner: 0 });
        }
    }

    fn unmark(&mut self, kind: &Kind) {
        let Some(at) = self.marks.iter().rposition(|mark| mark.kind.same(kind)) else { return };
        if self.marks[at].inner > 0 {
            self.marks[at].inner -= 1;
            return;
        }
        let mark = self.marks.remove(at);
        self.close(&mark);
    }

    fn close(&mut self, mark: &Mark) {
        if mark.written.is_none() {
            return;
        }
        match &mark.kind {
            Kind::Strong => self.out.push_str("**"),
            Kind::Emphasis => self.out.push('*'),
            Kind::Strike => self.out.push_str("~~"),
            Kind::Link(to) => {
                self.out.push_str("](");
                self.out.push_str(to);
                self.out.push(')');
            }
            Kind::Heading(_) | Kind::Meaning => {}
        }
    }

    fn start(&mut self, tag: &StartTag<()>) {
        let name = name(&tag.name);
        let name = name.as_str();
        if let Some((skipped, open)) = &mut self.skipped {
            *open += usize::from(skipped == name && !tag.self_closing);
            return;
        }
        let raw = matches!(name, "script" | "style" | "textarea" | "iframe");
        if UNSHOWN.contains(&name) && (raw || !tag.self_closing) {
            self.skipped = Some((name.to_owned(), 1));
            return;
        }
        if self.pre.is_some() && !matches!(name, "br" | "pre" | "code") {
            return;
        }
        match name {
            // Only the first one names the page.
            "title" => self.in_title = !std::mem::replace(&mut self.has_title, true),
            "p" | "section" | "article" | "figure" | "main" | "dl" | "details" => self.paragraph(2),
            "div" | "header" | "footer" | "nav" | "aside" | "address" | "form" | "fieldset" | "center"
            | "figcaption" | "summary" | "body" | "legend" | "caption" | "option" | "hgroup" => self.block(1),
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
                let first = attribute(tag, b"start").and_then(|start| start.parse().ok()).unwrap_or(1);
                self.push(Container::List((name == "ol").then_some(first)));
            }
            "li" => self.item(),
            "dt" => self.block(1),
            "dd" => {
                self.block(1);
                self.mark(Kind::Meaning);
            }
            "blockquote" => {
                self.paragraph(2);
                self.push(Container::Quote);
            }
            "table" => {
                self.paragraph(2);
                if self.tables.len() < DEEPEST {
                    self.tables.push(Table::default());
                }
            }
            "tr" => {
                self.end_row();
                self.block(1);
            }
            "td" | "th" => self.cell(),
            "pre" if self.pre.is_none() => {
                self.paragraph(2);
                self.pre = Some(Verbatim { text: String::new(), language: language(tag) });
            }
            "code" | "kbd" | "samp" | "tt" => match &mut self.pre {
                Some(pre) if pre.language.is_empty() => pre.language = language(tag),
                Some(_) => {}
                None if self.code.is_none() => self.code = Some(String::new()),
                None => {}
            },
            "b" | "strong" => self.mark(Kind::Strong),
            "i" | "em" => self.mark(Kind::Emphasis),
            "s" | "del" | "strike" => self.mark(Kind::Strike),
            "a" => {
                if let Some(to) = attribute(tag, b"href").and_then(|to| self.address(&to)) {
                    self.unmark(&Kind::Link(String::new()));
                    self.mark(Kind::Link(to));
                }
            }
            "img" => self.picture(tag),
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
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
            "div" | "header" | "footer" | "nav" | "aside" | "address" | "form" | "fieldset" | "center"
            | "figcaption" | "summary" | "body" | "legend" | "caption" | "dt" | "option" | "hgroup" => self.block(1),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_code();
                self.unmark(&Kind::Heading(1));
                self.block(2);
            }
            "ul" | "ol" | "menu" => {
                self.pop(|container| matches!(container, Container::List(_)), |_| false);
                let breaks = if self.in_item() { 1 } else { 2 };
                self.block(breaks);
            }
            "li" => {
                self.end_item();
                self.block(1);
            }
            "dd" => {
                self.unmark(&Kind::Meaning);
                self.block(1);
            }
            "blockquote" => {
                self.pop(|container| matches!(container, Container::Quote), |_| false);
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
            "b" | "strong" => self.unmark(&Kind::Strong),
            "i" | "em" => self.unmark(&Kind::Emphasis),
            "s" | "del" | "strike" => self.unmark(&Kind::Strike),
            "a" => self.unmark(&Kind::Link(String::new())),
            _ => {}
        }
    }

    /// A block that no cell of a table of facts has: where there is one, the table arranges the page.
    fn paragraph(&mut self, breaks: usize) {
        let in_cell = self.in_cell();
        if let Some(table) = self.tables.last_mut().filter(|_| in_cell && breaks > 1) {
            table.layout = true;
            self.breaks = self.breaks.max(usize::from(table.written > 0));
        }
        self.block(breaks);
    }

    fn heading(&mut self, name: &str) {
        self.end_code();
        self.unmark(&Kind::Heading(1));
        self.paragraph(2);
        let level = usize::from(name.as_bytes()[1] - b'0');
        self.has_heading |= level == 1;
        let inside = self.in_cell() || self.marks.iter().any(|mark| matches!(mark.kind, Kind::Link(_)));
        if !inside {
            self.mark(Kind::Heading(level));
        }
    }

    fn push(&mut self, container: Container) {
        // What is nested deeper is counted all the same, so that its end finds its beginning.
        if self.containers.len() < 100_000 {
            self.containers.push(container);
        }
    }

    /// Ends the innermost container of a kind, and what is inside of it.
    fn pop(&mut self, kind: fn(&Container) -> bool, border: fn(&Container) -> bool) {
        let inner = self.containers.iter().rev().take_while(|container| !border(container));
        if let Some(back) = inner.take(1_000).position(kind) {
            self.containers.truncate(self.containers.len() - back - 1);
        }
    }

    fn item(&mut self) {
        self.end_item();
        self.block(1);
        let marker = match self.containers.last_mut() {
            Some(Container::List(Some(number))) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        };
        self.push(Container::Item(marker, false));
    }

    fn end_item(&mut self) {
        self.pop(
            |container| matches!(container, Container::Item(..)),
            |container| matches!(container, Container::List(_)),
        );
    }

    fn cell(&mut self) {
        self.end_code();
        match self.tables.last_mut() {
            Some(table) if !table.layout => {
                table.cells += 1;
                self.space = false;
            }
            _ => self.block(1),
        }
    }

    fn end_row(&mut self) {
        self.end_code();
        let Some(Table { layout, rows, cells, written }) = self.tables.last_mut() else { return };
        let (cells, written) = (std::mem::take(cells), std::mem::take(written));
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
            self.out.extend([&prefix, "|", &" --- |".repeat(cells.min(200))]);
        }
        self.breaks = self.breaks.max(1);
    }

    fn end_code(&mut self) {
        let Some(code) = self.code.take() else { return };
        let words: Vec<&str> = code.split_whitespace().collect();
        self.space |= code.starts_with(char::is_whitespace);
        if !words.is_empty() {
            self.begin();
            let code = words.join(" ");
            let fence = if self.plain { String::new() } else { "`".repeat(longest_run(&code) + 1) };
            let gap = if code.starts_with('`') || code.ends_with('`') { " " } else { "" };
            self.out.extend([fence.as_str(), gap, &code, gap, &fence]);
        }
        self.space |= code.ends_with(char::is_whitespace);
    }

    fn end_pre(&mut self) {
        let Some(Verbatim { text, language }) = self.pre.take() else { return };
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
                self.out.push_str(if line.is_empty() { prefix.trim_end() } else { &prefix });
            }
            self.out.push_str(line);
        }
        self.breaks = 2;
    }

    fn picture(&mut self, tag: &StartTag<()>) {
        let words = attribute(tag, b"alt").unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() {
            return;
        }
        let place = attribute(tag, b"src").and_then(|src| self.address(&src)).filter(|_| !self.plain);
        self.begin();
        match place {
            Some(place) => self.out.extend(["![", &words, "](", &place, ")"]),
            None => self.out.push_str(&words),
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

/// The language of a piece of code, as pages name it.
fn language(tag: &StartTag<()>) -> String {
    let class = attribute(tag, b"class").unwrap_or_default();
    let named = class.split_whitespace().find_map(|word| {
        word.strip_prefix("language-").or_else(|| word.strip_prefix("lang-")).or_else(|| word.strip_prefix("brush:"))
    });
    named.unwrap_or_default().chars().filter(|c| c.is_ascii_alphanumeric() || "+-#".contains(*c)).take(20).collect()
}

/// The longest run of backticks in a text.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_at(html: &str, plain: bool) -> String {
        read(html, &Url::parse("https://a.example/docs/page").unwrap(), plain).text
    }

    #[test]
    fn pages_become_markdown() {
        let table = [
            ("", ""),
            ("words", "words"),
            ("<p>One</p><p>Two\n  three</p>", "One\n\nTwo three"),
            ("a<br>b<br><br>c", "a\nb\n\nc"),
            ("<h1>A <em>b</em></h1><h2>c</h2>d", "# A *b*\n\n## c\n\nd"),
            ("<title>T &amp; U</title><p>x", "# T & U\n\nx"),
            ("<title>T</title><svg><title>no</title></svg><h1>x</h1>", "# x"),
            ("<p>a <b>bold </b>c <i></i>d", "a **bold** c d"),
            ("<b><strong>x</strong></b>", "**x**"),
            (
                "<a href='/x'>there</a>, <a href=y>and</a>",
                "[there](https://a.example/x), [and](https://a.example/docs/y)",
            ),
            ("<a href='#top'>up</a> <a href='javascript:1'>no</a> <a name=x>plain</a>", "up no plain"),
            ("<a href=/x></a>y", "y"),
            ("<a href=/x><div><h3>Card</h3><p>words</div></a><p>next", "[Card words](https://a.example/x)\n\nnext"),
            ("<a href='/a_(b)'>x</a>", "[x](https://a.example/a_%28b%29)"),
            ("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e", "- a\n- b\n  - c\n- d\n\ne"),
            ("<ol start=3><li><p>a</p><p>b</p></li><li>c</ol>", "3. a\n\n   b\n\n4. c"),
            ("<blockquote><p>a<p>b</blockquote>c", "> a\n>\n> b\n\nc"),
            ("x <code> a  b </code>, <code>`t`</code>", "x `a b` , `` `t` ``"),
            (
                "<pre><code class='hl language-rust'>fn a() {\n\n  1\n}\n</code></pre>after",
                "```rust\nfn a() {\n\n  1\n}\n```\n\nafter",
            ),
            ("<pre>\n```\nx</pre>", "````\n```\nx\n````"),
            ("<li><pre>a\nb</pre>", "- ```\n  a\n  b\n  ```"),
            (
                "<table><tr><th>a<th>b<tr><td>1<td>x|y<tr><td><td>3</table>z",
                "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n|  | 3 |\n\nz",
            ),
            ("<table><tr><td><p>One</p><p>Two</p></td><td><ul><li>x</ul></td></tr></table>", "One\n\nTwo\n\n- x"),
            ("<dl><dt>t<dd>m</dl>", "t\n: m"),
            (
                "<img alt='a cat' src=/c.png><img src=/track.gif><img alt=d src='data:x'>",
                "![a cat](https://a.example/c.png)d",
            ),
            ("a<hr>b", "a\n\n---\n\nb"),
            ("a<script>if (1<2) {}</script><style>p{}</style><noscript>n</noscript>b", "ab"),
            ("a<template><p>b<template>c</template></template>d", "ad"),
            ("<!-- no --><!doctype html>yes", "yes"),
            ("&lt;b&gt; &copy; &#x41;", "<b> © A"),
            ("</p></ul></li></a></b></table></pre>ok", "ok"),
            ("<meta http-equiv=refresh content='0;url=http://evil.test/'>ok", "ok"),
        ];
        for (html, expected) in table {
            assert_eq!(read_at(html, false), expected, "{html}");
        }
    }

    #[test]
    fn plain_text_has_no_marks() {
        let table = [
            ("<h1>A</h1><p><b>b</b> <a href=/x>c</a>", "A\n\nb c"),
            ("<pre><code class=language-c>x\n y</code></pre>", "x\n y"),
            ("<code>a</code><img alt=cat src=c.png>", "acat"),
            ("<title>T</title>x", "T\n\nx"),
        ];
        for (html, expected) in table {
            assert_eq!(read_at(html, true), expected, "{html}");
        }
    }

    /// What would take a tree's time, or a stack.
    #[test]
    fn hostile_pages_end() {
        let deep = 50_000;
        let table = [
            ("<div>".repeat(deep) + "x", "x".to_owned()),
            ("<b>".repeat(deep) + "x", "**x**".into()),
            ("<ul><li>".repeat(deep) + "x", format!("{}x", "- ".repeat(DEEPEST / 2))),
            ("<blockquote>".repeat(deep) + "x", format!("{}x", "> ".repeat(DEEPEST))),
            ("<table><tr><td>".repeat(deep) + "x", "x".into()),
            ("<template>".repeat(deep) + "x", String::new()),
            ("<a href=/x>".repeat(deep) + "x", "[x](https://a.example/x)".into()),
            ("<font a=1><p>".repeat(deep) + "x", "x".into()),
            ("<pre><code>".repeat(deep) + "x", "```\nx\n```".into()),
        ];
        for (html, expected) in table {
            let text = read_at(&html, false);
            assert_eq!(text.trim_start_matches("| "), expected, "{}", &html[..20]);
        }
        let long = format!("https://a.example/{}/", "p".repeat(900));
        let many = "<a href=x>y</a> ".repeat(20_000);
        let text = read(&many, &Url::parse(&long).unwrap(), false).text;
        assert!(text.len() < LONGEST + (64 << 10) && text.ends_with("left out.)"), "{}", text.len());
    }

    /// Whatever is opened, closed or left open: no word is lost, none changes places, and what is not
    /// shown stays hidden.
    fn keeps_its_words(pieces: &[&str], plain: bool) -> Result<(), String> {
        let mut words = Vec::new();
        let mut html = String::new();
        for piece in pieces {
            if *piece == "W" {
                words.push(format!("w{}.", words.len()));
                html.push_str(&words[words.len() - 1]);
            } else {
                html.push_str(piece);
            }
        }
        let text = read_at(&html, plain);
        let mut from = 0;
        for word in &words {
            match text[from..].find(word.as_str()) {
                Some(at) => from += at + word.len(),
                None => return Err(format!("{word} is lost\n{html}\n{text}")),
            }
        }
        if text.contains("HIDDEN") { Err(format!("hidden\n{html}\n{text}")) } else { Ok(()) }
    }

    proptest::proptest! {
        #[test]
        fn no_word_is_lost(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..80), plain: bool) {
            keeps_its_words(&pieces, plain).map_err(proptest::test_runner::TestCaseError::fail)?;
        }
    }

    const PIECES: &[&str] = &[
        "W",
        "W",
        "W",
        " ",
        "\n",
        "|",
        "`",
        "&amp;",
        "\u{202e}",
        "<p>",
        "</p>",
        "<div>",
        "</div>",
        "<br>",
        "<hr>",
        "<h1>",
        "</h1>",
        "<h3>",
        "</h3>",
        "<ul>",
        "</ul>",
        "<ol start=7>",
        "</ol>",
        "<li>",
        "</li>",
        "<dl>",
        "<dt>",
        "<dd>",
        "</dd>",
        "<blockquote>",
        "</blockquote>",
        "<table>",
        "</table>",
        "<tr>",
        "</tr>",
        "<td>",
        "</td>",
        "<th>",
        "<pre>",
        "</pre>",
        "<code class=language-x>",
        "</code>",
        "<b>",
        "</b>",
        "<em>",
        "</em>",
        "<s>",
        "</s>",
        "<a href=/x>",
        "<a>",
        "</a>",
        "<script>HIDDEN</script>",
        "<style>HIDDEN</style>",
        "<template>HIDDEN</template>",
        "<svg><title>HIDDEN</title></svg>",
        "<!-- HIDDEN -->",
        "<select><option>HIDDEN</select>",
        "<img alt=cat src=c.png>",
        "<unknown>",
        "</unknown>",
        "<p/>",
        "<>",
    ];
}
