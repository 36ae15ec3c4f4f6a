//! Renders Markdown as harmless HTML: no HTML of the author, no scripts, only web and mail
//! addresses, no remote pictures. Writes Markdown that shows a text as it was typed.

use std::borrow::Cow;

use pulldown_cmark::{
    CodeBlockKind, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, TextMergeStream,
};

use crate::highlight::{Highlighter, TokenKind};
use base::text;

const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_FOOTNOTES);

/// The longest line of code that is coloured.
const MAX_COLOURED_BYTES: usize = 2000;

/// Returns Markdown that readers see as exactly this text: the text with marked line breaks if
/// nothing in it is markup, otherwise a block of code.
pub fn verbatim(text: &str) -> String {
    if is_plain(text) {
        let paragraphs = text.split("\n\n");
        let marked: Vec<String> = paragraphs
            .map(|lines| lines.replace('\n', "  \n"))
            .collect();
        return marked.join("\n\n");
    }
    let fence = fence_of(text);
    // A carriage return ends a line of Markdown, as in the typed text.
    let text = text.replace("\r\n", "\n");
    format!("{fence}text\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// Returns a fence that is longer than any run of backticks in a block.
fn fence_of(block: &str) -> String {
    let runs = block.split(|c| c != '`').map(str::len);
    "`".repeat(runs.max().unwrap_or_default().max(2) + 1)
}

/// Returns a line of Markdown, such as a heading, that readers see as exactly this text.
pub fn verbatim_line(text: &str) -> Cow<'_, str> {
    const MARKUP: &str = r"\`*_[]<>#|~&";
    // A heading may end with number signs, which are not shown.
    if is_plain(text) && !text.ends_with('#') {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if MARKUP.contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped.into()
}

/// Returns whether a text is shown as it is written if it is rendered as Markdown.
fn is_plain(text: &str) -> bool {
    let mut shown = String::with_capacity(text.len());
    for event in Parser::new_ext(text, OPTIONS) {
        match event {
            Event::Start(Tag::Paragraph) if shown.is_empty() => {}
            Event::Start(Tag::Paragraph) => shown.push_str("\n\n"),
            Event::End(TagEnd::Paragraph) => {}
            Event::Text(words) => shown.push_str(&words),
            Event::SoftBreak => shown.push('\n'),
            _ => return false,
        }
    }
    // Blanks are collapsed, and a link may be defined elsewhere in the document.
    let has_label = text.split('[').skip(1).any(|rest| {
        let label = rest.split_once(']').map(|(label, _)| label);
        label.is_some_and(|label| !label.contains(char::is_whitespace))
    });
    shown == text && !has_label && !text.contains("  ") && !text.contains('\t')
}

/// Appends a block of code, indented by `indent`, with a fence longer than any run of backticks in
/// it.
pub(crate) fn push_block(language: &str, block: &str, indent: &str, text: &mut String) {
    let fence = fence_of(block);
    *text += &format!("{indent}{fence}{language}\n");
    // A lone carriage return ends a line of Markdown too, which the indent must follow.
    let block = block.trim_end().replace("\r\n", "\n");
    for line in block.split(['\n', '\r']) {
        *text += format!("{indent}{line}").trim_end();
        text.push('\n');
    }
    *text += &format!("{indent}{fence}\n");
}

/// Lowers the headings of a text by two levels, because the document has headings above them.
/// Underlined headings of several lines stay, as they cannot be written in any other way.
pub(crate) fn with_lower_headings(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    for (event, range) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
        let Event::Start(Tag::Heading { level, .. }) = event else {
            continue;
        };
        let source = &text[range.clone()];
        let words = source.trim_start_matches('#');
        let (words, is_underlined) = match source.trim_end().split_once('\n') {
            Some((line, underline)) if !underline.contains('\n') => (line, true),
            Some(_) => continue,
            None => (words, false),
        };
        out.push_str(&text[copied..range.start]);
        out.push_str(&"#".repeat(lower(level) as usize));
        if is_underlined {
            out.push(' ');
        }
        out.push_str(words);
        if is_underlined && source.ends_with('\n') {
            out.push('\n');
        }
        copied = range.end;
    }
    if copied == 0 {
        return text.into();
    }
    out.push_str(&text[copied..]);
    out.into()
}

/// Renders Markdown.
pub fn html(text: &str) -> String {
    let mut events = Vec::new();
    let mut scope = TextPlace::default();
    // The parser splits a text at each possible mark, such as the tilde of an address.
    for event in TextMergeStream::new(Parser::new_ext(text, OPTIONS)) {
        scope.push(event, &mut events);
    }
    let mut out = String::with_capacity(text.len() * 3 / 2);
    pulldown_cmark::html::push_html(&mut out, events.into_iter());
    out.retain(|letter| !letter.is_control() || matches!(letter, '\n' | '\t'));
    out
}

/// The surroundings of a text, by which it is rendered.
#[derive(Default)]
struct TextPlace {
    /// The links and pictures around it. A link contains no address that is one too.
    links: Vec<OpenLink>,
    is_code: bool,
    /// True in a block of code with the changes of files.
    is_diff: bool,
    /// True in a block of code whose start is HTML.
    has_own_start: bool,
    /// The state of colouring a block of code.
    code: Option<Highlighter>,
    /// The text of a block of HTML.
    html: Option<String>,
}

/// A link or picture whose end is not reached.
enum OpenLink {
    /// A link in the page.
    Shown,
    /// A link without a target in the page, such as a file of the project: its text, then the path.
    Path { path: String, begun: usize },
}

impl TextPlace {
    /// Appends an event, made harmless.
    fn push<'a>(&mut self, event: Event<'a>, out: &mut Vec<Event<'a>>) {
        match &event {
            Event::Start(Tag::HtmlBlock) => {
                self.html = Some(String::new());
                return;
            }
            Event::Html(html) => {
                if let Some(block) = &mut self.html {
                    block.push_str(&text::without_formatting_tags(html));
                    return;
                }
            }
            Event::End(TagEnd::HtmlBlock) => {
                let block = self.html.take().unwrap_or_default();
                push_paragraph(&block, out);
                return;
            }
            Event::Start(
                Tag::Link {
                    link_type,
                    dest_url,
                    ..
                }
                | Tag::Image {
                    link_type,
                    dest_url,
                    ..
                },
            ) => {
                if !has_target(*link_type, dest_url) {
                    let path = dest_url.to_string();
                    let begun = out.len();
                    self.links.push(OpenLink::Path { path, begun });
                    return;
                }
                self.links.push(OpenLink::Shown);
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                if let Some(OpenLink::Path { path, begun }) = self.links.pop() {
                    if !path.is_empty() && words(&out[begun..]) != path {
                        out.push(Event::Text(format!(" ({path})").into()));
                    }
                    return;
                }
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                self.is_code = true;
                self.is_diff = matches!(kind, CodeBlockKind::Fenced(info)
                    if matches!(info.split_whitespace().next(), Some("diff" | "patch")));
                self.code = match kind {
                    CodeBlockKind::Fenced(info) => Highlighter::of(&language(info).to_lowercase()),
                    CodeBlockKind::Indented => None,
                };
                // The style sheet shows the attribute, which cannot be read from the class.
                if let CodeBlockKind::Fenced(info) = kind
                    && let Some(name) = Some(language(info)).filter(|name| !name.is_empty())
                {
                    let start =
                        format!("<pre data-language=\"{name}\"><code class=\"language-{name}\">");
                    out.push(Event::Html(start.into()));
                    self.has_own_start = true;
                    return;
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                self.is_code = false;
                self.is_diff = false;
                self.code = None;
                if std::mem::take(&mut self.has_own_start) {
                    out.push(Event::Html("</code></pre>\n".into()));
                    return;
                }
            }
            Event::Text(words) if self.is_diff => {
                out.extend(words.split_inclusive('\n').flat_map(changed_line));
                return;
            }
            Event::Text(words) if self.code.is_some() => {
                self.push_code(words, out);
                return;
            }
            Event::Text(words)
                if self.links.is_empty() && !self.is_code && words.contains("://") =>
            {
                push_linked(words, out);
                return;
            }
            // Without an anchor: several messages of a page may have a note of the same name.
            Event::FootnoteReference(label) => {
                out.extend(superscript(label));
                return;
            }
            Event::Start(Tag::FootnoteDefinition(label)) => {
                out.push(Event::Html("<div class=\"footnote\">".into()));
                out.extend(superscript(label));
                return;
            }
            Event::End(TagEnd::FootnoteDefinition) => {
                out.push(Event::Html("</div>\n".into()));
                return;
            }
            _ => {}
        }
        out.push(harmless(event));
    }
}

impl TextPlace {
    /// Appends lines of code with the classes of their tokens.
    fn push_code(&mut self, code: &str, out: &mut Vec<Event<'_>>) {
        for line in code.split_inclusive('\n') {
            let words = line.trim_end_matches('\n');
            let highlighter = self
                .code
                .as_mut()
                .filter(|_code| words.len() <= MAX_COLOURED_BYTES);
            let pieces = highlighter.and_then(|code| code.pieces(words));
            for (piece, kind) in pieces.unwrap_or_else(|| vec![(words, TokenKind::Plain)]) {
                let text = Event::Text(piece.to_owned().into());
                let Some(class) = class(kind) else {
                    out.push(text);
                    continue;
                };
                let start = format!("<span class=\"{class}\">");
                out.push(Event::InlineHtml(start.into()));
                out.push(text);
                out.push(Event::InlineHtml("</span>".into()));
            }
            if words.len() < line.len() {
                out.push(Event::Text("\n".into()));
            }
        }
    }
}

/// Returns the class of a token in the page.
fn class(kind: TokenKind) -> Option<&'static str> {
    match kind {
        TokenKind::Plain => None,
        TokenKind::Comment => Some("t-comment"),
        TokenKind::Text | TokenKind::Inserted => Some("t-text"),
        TokenKind::Constant => Some("t-constant"),
        TokenKind::Keyword => Some("t-keyword"),
        TokenKind::Function => Some("t-function"),
        TokenKind::Name => Some("t-name"),
        TokenKind::Deleted => Some("t-deleted"),
    }
}

/// Returns the language in the words after a fence.
fn language(info: &str) -> String {
    info.chars()
        .take_while(|c| c.is_alphanumeric() || "+-_#.".contains(*c))
        .collect()
}

fn superscript<'a>(text: &str) -> [Event<'a>; 3] {
    [
        Event::InlineHtml("<sup>".into()),
        Event::Text(text.to_owned().into()),
        Event::InlineHtml("</sup>".into()),
    ]
}

/// Appends the text of a block of HTML with its lines, if it has any.
fn push_paragraph(block: &str, out: &mut Vec<Event<'_>>) {
    let lines = block.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return;
    }
    out.push(Event::Start(Tag::Paragraph));
    for (number, line) in lines.into_iter().enumerate() {
        if number > 0 {
            out.push(Event::HardBreak);
        }
        out.push(Event::Text(line.to_owned().into()));
    }
    out.push(Event::End(TagEnd::Paragraph));
}

/// Returns a line of a block of changes in its colour.
fn changed_line<'a>(line: &str) -> [Event<'a>; 3] {
    let class = match line.as_bytes().first() {
        Some(b'+') => "a",
        Some(b'-') => "d",
        _ => "",
    };
    [
        Event::InlineHtml(format!("<span class=\"{class}\">").into()),
        Event::Text(line.to_owned().into()),
        Event::InlineHtml("</span>".into()),
    ]
}

/// Appends a text, in which web addresses are links.
fn push_linked(text: &str, out: &mut Vec<Event<'_>>) {
    let mut rest = text;
    while let Some(at) = ["https://", "http://"]
        .iter()
        .filter_map(|scheme| rest.find(scheme))
        .min()
    {
        let (before, address) = rest.split_at(at);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`');
        let end = address.find(is_end).unwrap_or(address.len());
        // The punctuation after an address is that of the sentence.
        let end = address[..end]
            .trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '\''])
            .len();
        let (address, after) = address.split_at(end);
        out.push(Event::Text(before.to_owned().into()));
        out.push(Event::Start(Tag::Link {
            link_type: LinkType::Autolink,
            dest_url: address.to_owned().into(),
            title: "".into(),
            id: "".into(),
        }));
        out.push(Event::Text(address.to_owned().into()));
        out.push(Event::End(TagEnd::Link));
        rest = after;
    }
    out.push(Event::Text(rest.to_owned().into()));
}

fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(html) | Event::InlineHtml(html) => match text::without_formatting_tags(&html) {
            line_break if line_break == "\n" => Event::HardBreak,
            text => Event::Text(text.into()),
        },
        Event::Start(Tag::Heading { level, .. }) => {
            let level = lower(level);
            Event::Start(Tag::Heading {
                level,
                id: None,
                classes: Vec::new(),
                attrs: Vec::new(),
            })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
        // A remote picture would inform its server of every reader, so it becomes a link.
        Event::Start(
            Tag::Link {
                link_type,
                dest_url,
                ..
            }
            | Tag::Image {
                link_type,
                dest_url,
                ..
            },
        ) => Event::Start(Tag::Link {
            link_type: if link_type == LinkType::Email {
                LinkType::Email
            } else {
                LinkType::Inline
            },
            dest_url,
            title: "".into(),
            id: "".into(),
        }),
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => Event::Start(Tag::CodeBlock(
            CodeBlockKind::Fenced(language(&info).into()),
        )),
        other => other,
    }
}

/// Lowers a heading, because the page has headings above it.
fn lower(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}

/// Returns whether an address may be the target of a link in a page.
fn has_target(kind: LinkType, address: &str) -> bool {
    let lower = address.to_ascii_lowercase();
    kind == LinkType::Email
        || ["http://", "https://", "mailto:"]
            .iter()
            .any(|scheme| lower.starts_with(scheme))
}

/// Returns the text in these events.
fn words(events: &[Event<'_>]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(&**text),
        _ => None,
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::{html, verbatim, verbatim_line, with_lower_headings};
    use base::text;

    #[test]
    fn hostile_markdown_becomes_harmless_html() {
        for hostile in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](data:text/html,<script>alert(1)</script>)",
            "![x](https://tracker.example/pixel.png)",
            "[x](https://a.example \"\\\" onmouseover=alert(1)\")",
            "```\"><script>alert(1)</script>\nx\n```",
            "<a href='https://a.example' onclick=alert(1)>x</a>",
            "<!-- --><svg onload=alert(1)>",
            "<!-- --><b><scr<b>ipt>alert(1)</script>",
            "```diff\n+<script>alert(1)</script>\n```",
            "https://a.example/<script>alert(1)</script>",
            "https://a.example/\"onmouseover=alert(1)",
            "a[^1]\n\n[^1]: <img src=x onerror=alert(1)>",
        ] {
            let out = html(hostile);
            let tags: String = out
                .split('<')
                .skip(1)
                .filter_map(|rest| rest.split('>').next())
                .collect::<Vec<_>>()
                .join("|");
            for bad in [
                "script",
                "img",
                "svg",
                "onerror=",
                "onclick",
                "onmouseover",
                "onload",
            ] {
                assert!(!tags.contains(bad), "{hostile}: {out}");
            }
            let lower = out.to_lowercase();
            assert!(
                !lower.contains("href=\"javascript") && !lower.contains("href=\"data"),
                "{hostile}: {out}"
            );
        }
        assert_eq!(
            html("# A\n\n*b* `c`"),
            "<h3>A</h3>\n<p><em>b</em> <code>c</code></p>\n"
        );
    }

    #[test]
    fn typed_text_is_shown_verbatim() {
        for plain in [
            "a",
            "Fix main_loop, 2 * 3 and a@b.",
            "see https://a.example/b",
        ] {
            assert_eq!(verbatim(plain), plain);
            assert_eq!(verbatim_line(plain), plain);
        }
        assert_eq!(verbatim("a\nb\n\nc"), "a  \nb\n\nc");
        for typed in [
            r"Why does \d+\.\d+ in __init__.py and *.py or Vec<T> fail?",
            "# include <stdio.h>",
            "a\n    indented",
            "- a\n  b",
            "a  \nb",
            "&amp;",
            "1. a",
            "```\na\n```",
            "name      state\nfoo       ok",
            "a\tb",
            "Fix a[1]",
        ] {
            let shown = html(&verbatim(typed));
            let fenced = shown
                .strip_prefix("<pre data-language=\"text\"><code class=\"language-text\">")
                .and_then(|rest| rest.strip_suffix("\n</code></pre>\n"));
            let wanted = text::tagged(typed);
            assert_eq!(fenced, Some(wanted.as_str()), "{typed}");
        }
        for title in [
            r"Why does \d+ in __init__.py and *.py or Vec<T> fail?",
            "a #",
            "&amp;",
            "1. a",
            "a | b",
            "~~a~~ `b` [c](d)",
            "Fix a[1]",
        ] {
            let shown = html(&format!("# {}", verbatim_line(title)));
            let wanted = format!("<h3>{}</h3>\n", text::tagged(title));
            assert_eq!(shown.replace('"', "&quot;"), wanted, "{title}");
        }
    }

    #[test]
    fn headings_are_lowered_by_two_levels() {
        for (source, expected) in [
            ("a\n# B\nc\n", "a\n### B\nc\n"),
            ("##### a #\n", "###### a #\n"),
            ("```\n# a\n```\n", "```\n# a\n```\n"),
            ("a\n===\n\nb\n---\nc", "### a\n\n#### b\nc"),
            ("a\nb\n---\n", "a\nb\n---\n"),
            ("> # a\n> b\n", "> ### a\n> b\n"),
            ("# a", "### a"),
            ("#\n", "###\n"),
        ] {
            assert_eq!(with_lower_headings(source), expected, "{source}");
        }
    }

    #[test]
    fn addresses_and_changes_are_marked() {
        let link = "<a href=\"https://a.example/b\">https://a.example/b</a>";
        for (source, expected) in [
            ("see https://a.example/b.", format!("<p>see {link}.</p>\n")),
            ("(https://a.example/b)", format!("<p>({link})</p>\n")),
            ("[https://a.example/b](https://a.example/b)", format!("<p>{link}</p>\n")),
            ("`https://a.example/b`", "<p><code>https://a.example/b</code></p>\n".to_owned()),
            (
                "https://a.example/b*c",
                "<p><a href=\"https://a.example/b*c\">https://a.example/b*c</a></p>\n".to_owned(),
            ),
            ("x://y", "<p>x://y</p>\n".to_owned()),
            ("[main](src/main.rs)!", "<p>main (src/main.rs)!</p>\n".to_owned()),
            ("[`a.rs`](a.rs)", "<p><code>a.rs</code></p>\n".to_owned()),
            ("![](plan.png) [a](#b)", "<p> (plan.png) a (#b)</p>\n".to_owned()),
            ("<x@a.example>", "<p><a href=\"mailto:x@a.example\">x@a.example</a></p>\n".to_owned()),
            ("a<br>b <!-- c --><kbd>d</kbd>", "<p>a<br />\nb d</p>\n".to_owned()),
            (
                "|a|\n|---|\n|b<br/>c|",
                "<table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><td>b<br />\nc</td></tr>\n</tbody></table>\n"
                    .to_owned(),
            ),
            (
                "<details><summary>More</summary>\n\nof *it*\n\n</details>",
                "<p>More</p>\n<p>of <em>it</em></p>\n".to_owned(),
            ),
            ("<div>\na<br>b\n</div>", "<p>a<br />\nb</p>\n".to_owned()),
            (
                "```rust\nlet a = \"<b>\"; // <i>\nb\n```",
                "<pre data-language=\"rust\"><code class=\"language-rust\"><span class=\"t-keyword\">let</span> a \
                 <span class=\"t-keyword\">=</span> <span class=\"t-text\">\"</span>\
                 <span class=\"t-text\">&lt;b&gt;</span><span class=\"t-text\">\"</span>; \
                 <span class=\"t-comment\">//</span><span class=\"t-comment\"> &lt;i&gt;</span>\nb\n</code></pre>\n"
                    .to_owned(),
            ),
            (
                "```diff\n-a\n+b\n```",
                "<pre data-language=\"diff\"><code class=\"language-diff\"><span class=\"d\">-a\n</span><span class=\"a\">+b\n</span></code></pre>\n"
                    .to_owned(),
            ),
        ] {
            assert_eq!(html(source), expected, "{source}");
        }
        assert_eq!(
            html("a[^1]\n\n[^1]: b"),
            "<p>a<sup>1</sup></p>\n<div class=\"footnote\"><sup>1</sup>\n<p>b</p>\n</div>\n"
        );
    }
}
