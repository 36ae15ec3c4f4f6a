//! Markdown for a terminal of any width: wrapped at spaces, lists with hanging indents, tables
//! aligned or stacked, code coloured. Printed lines are never drawn again: a block is rendered when
//! its end is known, the lines of a code block one by one, and the lines of a paragraph as soon as
//! nothing that may follow can change them. The result does not depend on the pieces in which a
//! text arrives.

use std::borrow::Cow;
use std::ops::Range;

use anstyle::Style;
use pulldown_cmark::{
    Alignment, BrokenLink, CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser,
    Tag, TagEnd, TextMergeWithOffset,
};
use textwrap::core::{Word, break_words, display_width};
use textwrap::wrap_algorithms::wrap_first_fit;

use super::highlight;
use super::style::{CODE, FAINT, STRONG, StyleSupport, of_change, painted, without_styles};
use base::text;
use export::highlight::Highlighter;

/// The smallest width that text is wrapped to.
const MIN_WIDTH: usize = 20;
const CODE_INDENT: &str = "    ";
/// The columns between the tab stops in code.
const CODE_TAB_STOP: usize = 4;
/// The further indentation of a long line of code, before the mark.
const CONTINUED_CODE_INDENT: usize = 2;
const COLUMN_GAP: &str = "  ";
/// The rows after the header that decide the widths of a table's columns. Further rows are printed as
/// they arrive.
const MEASURED_ROWS: usize = 3;
/// The narrowest column whose cells are wrapped.
const MIN_COLUMN_WIDTH: usize = 14;
/// The longest line of code that is coloured.
const MAX_COLOURED_BYTES: usize = 2000;

/// The length of a pending block in bytes up to which each line is tried. Each try reads the block
/// from its beginning, so in a longer one they become rare.
const EAGER_BYTES: usize = 4096;

/// The look of rendered Markdown.
#[derive(Debug, Clone, Copy)]
pub(super) struct RenderStyle {
    pub(super) width: usize,
    pub(super) ink: StyleSupport,
    /// True if our own marks are limited to ASCII.
    pub(super) ascii: bool,
    /// True if command lines are read and not copied, as in a question about one: a long one is broken
    /// like other code.
    pub(super) breaks_commands: bool,
}

/// The state of rendering a text that arrives in pieces.
#[derive(Default)]
pub(super) struct MarkdownStream {
    /// The lines whose block may still continue.
    pending: String,
    /// The incomplete last line.
    tail: String,
    /// The part of the first pending block that is printed.
    printed: Option<PrintedPart>,
    /// The length of the pending text at which printing a part of it is tried again.
    next_try: usize,
    /// The length of the pending text at which its first block is looked for again.
    next_block: usize,
    code: Option<CodeBlock>,
    /// The beginning of the line that follows the printed ones, as far as it can no longer change.
    preview: String,
    /// True if a block was printed, so that a blank line may separate the next one.
    has_printed: bool,
    /// True if the source had a blank line after the last block.
    has_blank: bool,
}

/// Returns whether a line may begin or end a block of code.
fn is_fence(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '>', '-', '*']);
    line.starts_with("```") || line.starts_with("~~~")
}

impl MarkdownStream {
    /// Adds a piece of the text, and returns the finished lines.
    pub(super) fn push(&mut self, piece: &str, look: RenderStyle) -> String {
        let mut out = String::new();
        for part in piece.split_inclusive('\n') {
            self.tail.push_str(part);
            if part.ends_with('\n') {
                let line = std::mem::take(&mut self.tail);
                self.line(line.trim_end_matches(['\n', '\r']), look, &mut out);
                if self.pending.len() < EAGER_BYTES {
                    self.next_try = 0;
                }
            }
            self.print_part(look, &mut out);
        }
        out
    }

    /// Returns the beginning of the next line, as far as it is known how it is rendered. It only
    /// grows, until the line is printed.
    pub(super) fn preview(&self) -> &str {
        &self.preview
    }

    /// Returns the last block, and begins a new text.
    pub(super) fn end(&mut self, look: RenderStyle) -> String {
        let mut out = String::new();
        if !self.tail.is_empty() {
            let line = std::mem::take(&mut self.tail);
            self.line(&line, look, &mut out);
        }
        while self.block("", true, look, &mut out) {}
        *self = Self::default();
        out
    }

    /// Prints those lines of the first pending block that can no longer change, and the block itself
    /// if the last line begins another one.
    fn print_part(&mut self, look: RenderStyle, out: &mut String) {
        let length = self.pending.len() + self.tail.len();
        if self.code.is_some() || length < self.next_try {
            return;
        }
        self.next_try = length + length / 64;
        let mut source = format!("{}{}", self.pending, self.tail);
        source.truncate(unambiguous(&source));
        if !self.pending.is_empty() && source.len() > self.pending.len() {
            let ahead = source.split_off(self.pending.len());
            while self.block(&ahead, false, look, out) {}
            source = format!("{}{ahead}", self.pending);
        }
        let Some((start, end)) = settled(&source) else {
            return;
        };
        let look = self.printed.map_or(look, |printed| printed.look);
        let rendered = BlockRenderer::new(look).render(&source[start..end]);
        if rendered.trim().is_empty() {
            return;
        }
        let printed = self.printed.map_or(0, |printed| printed.lines);
        if self.printed.is_none() {
            self.gap(start, out);
        }
        let lines: Vec<&str> = rendered.split_inclusive('\n').collect();
        // The last line may still grow, and its last word may move to a line of its own.
        let whole = lines.len().saturating_sub(1).max(printed);
        if let Some(finished) = lines.get(printed..whole).filter(|lines| !lines.is_empty()) {
            out.push_str(&finished.concat());
            self.preview.clear();
        }
        self.printed = Some(PrintedPart { lines: whole, look });
        let next = lines.get(whole).copied().unwrap_or_default();
        let next = next.trim_end_matches('\n');
        // Shown text stays, also if less is certain after the next character.
        if !without_styles(&self.preview).starts_with(&*without_styles(next)) {
            next.clone_into(&mut self.preview);
        }
    }

    fn line(&mut self, line: &str, look: RenderStyle, out: &mut String) {
        if let Some(code) = &mut self.code {
            if code.is_end(line) {
                self.code = None;
            } else {
                out.push_str(&code.render(line, look));
            }
            return;
        }
        // An underline would make a heading of a paragraph that is already printed.
        if self.printed.is_some_and(|printed| printed.lines > 0) && is_underline(line) {
            self.pending.push('\n');
        }
        self.pending.push_str(line);
        self.pending.push('\n');
        let may_end = line.trim().is_empty() || is_fence(line);
        if self.pending.len() < self.next_block && !may_end {
            return;
        }
        while self.block("", false, look, out) {}
        let length = self.pending.len();
        self.next_block = if length < EAGER_BYTES {
            0
        } else {
            length + length / 64
        };
    }

    /// Prints the first block of the pending lines, which the text `ahead` follows. Returns `false`
    /// if there is none, or it may continue.
    fn block(&mut self, ahead: &str, is_last: bool, look: RenderStyle, out: &mut String) -> bool {
        let source = format!("{}{ahead}", self.pending);
        let block = first_block(&source, is_last);
        if !ahead.is_empty()
            && block
                .as_ref()
                .is_none_or(|block| block.is_fence || block.range.end > self.pending.len())
        {
            return false;
        }
        let Some(block) = block else {
            self.preview.clear();
            let rest = std::mem::take(&mut self.pending);
            if rest.trim().is_empty() {
                self.has_blank |= !rest.is_empty();
            } else if is_last || rest.ends_with("\n\n") {
                // Definitions of links are not blocks.
                self.separate(rest.starts_with('\n'), out);
                out.push_str(rest.trim_matches('\n'));
                out.push('\n');
                self.has_blank = rest.ends_with("\n\n");
            } else {
                self.pending = rest;
            }
            return false;
        };
        if !block.is_finished {
            return false;
        }
        self.preview.clear();
        let printed = self.printed.take();
        let rendered = if block.is_fence {
            None
        } else {
            let look = printed.map_or(look, |printed| printed.look);
            let source = &self.pending[block.range.clone()];
            Some(BlockRenderer::new(look).render(source))
        };
        // HTML may have nothing to show, like a comment.
        let is_empty = rendered.as_deref() == Some("");
        if is_empty && self.pending[..block.range.start].trim().is_empty() {
            self.has_blank = true;
            self.pending.drain(..block.range.end);
            return true;
        }
        if printed.is_none() {
            self.gap(block.range.start, out);
        }
        let source = self.pending[block.range.clone()].to_owned();
        self.pending.drain(..block.range.end);
        let Some(rendered) = rendered else {
            let mut lines = source.lines();
            let mut code = CodeBlock::of(lines.next().unwrap_or_default(), look);
            out.push_str(&code.heading(look));
            for line in lines {
                if code.is_end(line) {
                    return true;
                }
                out.push_str(&code.render(line, look));
            }
            self.code = Some(code);
            return true;
        };
        self.has_blank = source.ends_with("\n\n");
        let lines = rendered.split_inclusive('\n');
        out.extend(lines.skip(printed.map_or(0, |printed| printed.lines)));
        true
    }

    /// Prints the text before a block: words that are in no block, or a blank line.
    fn gap(&mut self, end: usize, out: &mut String) {
        let gap = self.pending.get(..end).unwrap_or(&self.pending).to_owned();
        let gap_words = gap.trim();
        if !gap_words.is_empty() {
            self.separate(false, out);
            out.push_str(gap_words);
            out.push('\n');
        }
        let is_separate = gap
            .split('\n')
            .rev()
            .skip(1)
            .any(|line| line.trim().is_empty());
        self.separate(is_separate, out);
    }

    /// Prints a blank line before a block, if the source has one.
    fn separate(&mut self, is_separate: bool, out: &mut String) {
        let has_blank = std::mem::take(&mut self.has_blank);
        if self.has_printed && (has_blank || is_separate) {
            out.push('\n');
        }
        self.has_printed = true;
    }
}

/// The part of an unfinished block that is printed.
#[derive(Debug, Clone, Copy)]
struct PrintedPart {
    lines: usize,
    /// The look that it was printed with, for the rest of the block.
    look: RenderStyle,
}

fn is_underline(line: &str) -> bool {
    let mark = line.trim_start_matches([' ', '>']).trim_end();
    !mark.is_empty() && (mark.bytes().all(|b| b == b'=') || mark.bytes().all(|b| b == b'-'))
}

/// Returns the length of the beginning of a text whose words and marks are complete.
fn unambiguous(source: &str) -> usize {
    let last_line = source.rfind('\n').map_or(0, |at| at + 1);
    let line = &source[last_line..];
    // The last word may still become another one, or markup.
    let last_word = if line.ends_with(' ') {
        0
    } else {
        words(line)
            .last()
            .map_or(0, |word| word.len() + word.whitespace.len())
    };
    let complete = &line[..line.len() - last_word];
    // The marks at the beginning of a line may be those of a new block, or of a task.
    let is_mark = |c: char| c.is_ascii_digit() || " -*+>.)".contains(c);
    let text = complete.trim_start_matches(is_mark);
    let is_task_mark = text.starts_with('[') && text.trim_end().chars().count() == "[x]".len();
    if is_task_mark || !complete.contains(char::is_alphabetic) {
        // A backslash breaks the line if another one follows.
        let before = source[..last_line].strip_suffix("\\\n");
        return before.map_or(last_line, str::len);
    }
    last_line + complete.len()
}

/// Returns the start of the first block of an unambiguous text, and the end of that part of it which
/// is rendered the same whatever follows. `None` if there is no such part.
fn settled(source: &str) -> Option<(usize, usize)> {
    let mut start = None;
    let mut depth = 0_usize;
    // The start of the outermost markup around the text.
    let mut markup: Option<(usize, usize)> = None;
    // True in code and in a table that has ended.
    let mut is_final = false;
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        match &event {
            Event::Start(tag) => {
                let begin = source[..range.start].rfind('\n').map_or(0, |at| at + 1);
                let first = *start.get_or_insert(begin);
                let is_next_item = depth == 1 && matches!(tag, Tag::Item) && begin > first;
                if (depth == 0 && begin > first) || is_next_item {
                    return Some((first, begin));
                }
                match tag {
                    Tag::Paragraph | Tag::List(_) | Tag::Item | Tag::BlockQuote(_) => {}
                    Tag::CodeBlock(_) if depth > 0 => is_final = true,
                    Tag::Table(_) => {
                        let has_ended = !source[range.end..].trim().is_empty();
                        if !has_ended {
                            let end = range.start + settled_rows(&source[range.start..]);
                            return Some((first, end));
                        }
                        is_final = true;
                    }
                    Tag::TableHead | Tag::TableRow | Tag::TableCell => {}
                    Tag::Emphasis | Tag::Strong | Tag::Strikethrough => {
                        markup = markup.or(Some((depth, range.start)));
                    }
                    Tag::Link { .. } | Tag::Image { .. } => {
                        markup = markup.or(Some((depth, range.start)));
                    }
                    // HTML and a heading are rendered as a whole.
                    _ => return Some((first, range.start)),
                }
                depth += 1;
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                is_final &= !matches!(tag, TagEnd::CodeBlock | TagEnd::Table);
                markup = markup.filter(|(outer, _)| *outer < depth);
            }
            Event::Text(_) if !is_final => {
                if let Some(at) = open_mark(&source[range.clone()], range.start == 0) {
                    let at = markup.map_or(range.start + at, |(_, start)| start);
                    return start.map(|start| (start, at));
                }
            }
            Event::Rule if depth == 0 => return None,
            _ => {}
        }
    }
    start.map(|start| (start, source.len()))
}

/// Returns the length of those rows of an unfinished table that are rendered the same whatever
/// follows: all complete ones, once the widths of the columns are known.
fn settled_rows(table: &str) -> usize {
    /// The header, and the line below it.
    const HEAD_LINES: usize = 2;
    if table.matches('\n').count() <= HEAD_LINES + MEASURED_ROWS {
        return 0;
    }
    table.rfind('\n').map_or(0, |at| at + 1)
}

/// Returns the position of a character in plain text that may become markup by the text that follows.
fn open_mark(text: &str, is_first: bool) -> Option<usize> {
    text.char_indices()
        .find(|(at, c)| match c {
            '*' | '`' | '~' | '|' => true,
            '_' => {
                let before = text[..*at].chars().next_back();
                !before.is_some_and(char::is_alphanumeric)
            }
            '[' => is_first && *at == 0 || !text[*at..].contains(']'),
            '<' => text[at + 1..].starts_with(|c: char| !c.is_whitespace() && c != '='),
            _ => false,
        })
        .map(|(at, _)| at)
}

/// The first block of a text, or the first item of a list.
struct FirstBlock {
    range: Range<usize>,
    is_fence: bool,
    is_finished: bool,
}

fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES
}

fn first_block(source: &str, is_last: bool) -> Option<FirstBlock> {
    let mut depth = 0_usize;
    let mut first: Option<(Range<usize>, bool, bool, bool)> = None;
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        match &event {
            Event::Start(tag) => {
                let is_item = matches!(tag, Tag::Item);
                match &first {
                    None => {
                        // The indent belongs to the block.
                        let start = source[..range.start].rfind('\n').map_or(0, |at| at + 1);
                        let is_fence = matches!(tag, Tag::CodeBlock(CodeBlockKind::Fenced(_)));
                        let is_list = matches!(tag, Tag::List(_));
                        let ends = matches!(tag, Tag::Heading { .. });
                        first = Some((start..range.end, is_fence, is_list, ends));
                    }
                    Some((whole, _, is_list, _)) => {
                        let is_next_item = *is_list
                            && depth == 1
                            && is_item
                            && !source[whole.start..range.start].trim().is_empty();
                        if depth == 0 || is_next_item {
                            let end = source[..range.start].rfind('\n').map_or(0, |at| at + 1);
                            let end = if depth == 0 { whole.end.min(end) } else { end };
                            return Some(FirstBlock {
                                range: whole.start..end,
                                is_fence: false,
                                is_finished: true,
                            });
                        }
                    }
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Rule if depth == 0 => {
                let range = match &first {
                    Some((whole, ..)) => whole.clone(),
                    None => range,
                };
                return Some(FirstBlock {
                    range,
                    is_fence: false,
                    is_finished: true,
                });
            }
            _ => {}
        }
        if let Some((whole, true, ..)) = &first {
            return Some(FirstBlock {
                range: whole.clone(),
                is_fence: true,
                is_finished: true,
            });
        }
    }
    let (range, _, is_list, ends) = first?;
    let has_blank = source[range.start..]
        .trim_start_matches('\n')
        .lines()
        .last()
        .is_some_and(|line| line.trim().is_empty());
    Some(FirstBlock {
        range,
        is_fence: false,
        is_finished: is_last || ends || (has_blank && !is_list),
    })
}

/// A code block whose lines arrive one by one.
struct CodeBlock {
    indent: usize,
    fence: String,
    info: String,
    highlighter: Option<Highlighter>,
    is_diff: bool,
    /// True for command lines. They are copied more often than read, so a long one is wrapped by
    /// the terminal, which copies it as one line.
    is_copied: bool,
}

impl CodeBlock {
    fn of(opening: &str, look: RenderStyle) -> Self {
        let words = opening.trim_start();
        let mark = if words.starts_with('~') { '~' } else { '`' };
        let fence: String = words.chars().take_while(|c| *c == mark).collect();
        let info = words[fence.len()..].trim().to_owned();
        let language = info
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | '{' | ':'))
            .next()
            .unwrap_or_default()
            .to_lowercase();
        Self {
            indent: opening.len() - words.len(),
            fence,
            // Without colours no syntax is loaded.
            highlighter: if look.ink == StyleSupport::Colours {
                Highlighter::of(&language)
            } else {
                None
            },
            is_diff: matches!(language.as_str(), "diff" | "patch"),
            is_copied: matches!(
                language.as_str(),
                "sh" | "bash"
                    | "zsh"
                    | "fish"
                    | "shell"
                    | "console"
                    | "powershell"
                    | "pwsh"
                    | "bat"
            ),
            info,
        }
    }

    /// Returns the description of the block, if it is more than a language.
    fn heading(&self, look: RenderStyle) -> String {
        if !self.info.contains(char::is_whitespace) {
            return String::new();
        }
        format!("{CODE_INDENT}{}\n", paint(look, FAINT, &self.info))
    }

    fn is_end(&self, line: &str) -> bool {
        let text = line.trim();
        let mark = &self.fence[..self.fence.len().min(1)];
        text.starts_with(self.fence.as_str()) && text.trim_start_matches(mark).is_empty()
    }

    fn render(&mut self, line: &str, look: RenderStyle) -> String {
        let blanks = line.len() - line.trim_start_matches(' ').len();
        let line = super::expanded(&line[blanks.min(self.indent)..], CODE_TAB_STOP);
        // The indent is outside of the colours, so that a broken line has it too.
        let (blank, line) = line.split_at(line.len() - line.trim_start_matches(' ').len());
        if line.trim().is_empty() {
            return "\n".to_owned();
        }
        let shown = if self.is_diff {
            paint(look, of_change(line), line)
        } else {
            self.coloured(line, look)
        };
        let line = format!("{CODE_INDENT}{blank}{shown}");
        if self.is_copied && !look.breaks_commands {
            return line + "\n";
        }
        let mark = if look.ascii { "> " } else { "↪ " };
        let mark = paint(look, FAINT, mark);
        let indent = CODE_INDENT.len() + blank.len() + CONTINUED_CODE_INDENT;
        let indent = " ".repeat(indent.min(look.width / 2));
        super::broken(&line, look.width, &format!("{indent}{mark}")) + "\n"
    }

    fn coloured(&mut self, line: &str, look: RenderStyle) -> String {
        let is_plain = look.ink != StyleSupport::Colours || line.len() > MAX_COLOURED_BYTES;
        let Some(highlighter) = self.highlighter.as_mut() else {
            return paint(look, CODE, line);
        };
        if is_plain {
            return paint(look, CODE, line);
        }
        let Some(pieces) = highlighter.pieces(line) else {
            return paint(look, CODE, line);
        };
        pieces
            .into_iter()
            .map(|(words, kind)| paint(look, highlight::style(kind), words))
            .collect()
    }
}

fn paint(look: RenderStyle, style: Style, text: &str) -> String {
    let style = look.ink.shown(style);
    if text.is_empty() || style.is_plain() {
        return text.to_owned();
    }
    painted(style, text)
}

/// Cuts a line to a number of columns, with a mark at its end.
pub(super) fn cut(line: &str, columns: usize, mark: &str) -> String {
    if display_width(line) <= columns {
        return line.to_owned();
    }
    let mut width = 0;
    let start: String = line
        .chars()
        .take_while(|c| {
            width += display_width(c.encode_utf8(&mut [0; 4]));
            width + display_width(mark) <= columns
        })
        .collect();
    start + mark
}

/// Returns whether a line may break after a character without a blank: one of the wide letters of
/// Chinese and Japanese.
fn is_ideograph(c: char) -> bool {
    c.is_alphabetic() && display_width(c.encode_utf8(&mut [0; 4])) == 2
}

/// Splits a line where it may be wrapped: at blanks, and between wide letters, but not before the
/// punctuation that follows one.
pub(super) fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let mut all = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, c) in line.char_indices() {
        let is_break = match last {
            Some(' ') => c != ' ',
            Some(last) => {
                let is_after = is_ideograph(last)
                    || matches!(
                        last,
                        '，' | '。' | '、' | '：' | '；' | '？' | '！' | '）' | '」'
                    );
                let is_letter = c.is_alphanumeric() || matches!(c, '`' | '（' | '「');
                is_letter && (is_after || is_ideograph(c) && last.is_alphanumeric())
            }
            None => false,
        };
        if is_break {
            all.push(Word::from(&line[start..at]));
            start = at;
        }
        last = Some(c);
    }
    if start < line.len() {
        all.push(Word::from(&line[start..]));
    }
    Box::new(all.into_iter())
}

/// Splits a line as [`words`] does, but not at the positions that `is_whole` names.
fn joined(line: &str, is_whole: impl Fn(usize) -> bool) -> Vec<Word<'_>> {
    let mut all = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for word in words(line) {
        end += word.len() + word.whitespace.len();
        if end == line.len() || !is_whole(end) {
            all.push(Word::from(&line[start..end]));
            start = end;
        }
    }
    all
}

/// Splits a message where it may be wrapped: not within a command between backquotes or a setting
/// between braces, so that they can be copied.
pub(super) fn words_of_message(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let mut is_quoted = false;
    let mut braces = 0_usize;
    let mut whole: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for (at, c) in line.char_indices() {
        match c {
            '`' if braces == 0 => {
                is_quoted = !is_quoted;
                if is_quoted {
                    start = at;
                } else {
                    whole.push(start..at);
                }
            }
            '{' if !is_quoted => {
                if braces == 0 {
                    start = at;
                }
                braces += 1;
            }
            '}' if braces > 0 => {
                braces -= 1;
                if braces == 0 {
                    whole.push(start..at);
                }
            }
            _ => {}
        }
    }
    let is_whole = |at: usize| {
        let next = whole.partition_point(|range| range.end < at);
        whole.get(next).is_some_and(|range| range.start < at)
    };
    Box::new(joined(line, is_whole).into_iter())
}

/// Returns whether a line that begins so was meant as a line of its own, although Markdown would
/// join it: models write lists of facts this way.
fn begins_line(event: Option<&Event<'_>>) -> bool {
    match event {
        Some(Event::Start(Tag::Strong)) => true,
        Some(Event::Text(words)) => {
            words.starts_with(|c| matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}'))
        }
        _ => false,
    }
}

/// Text of which each part has a style.
#[derive(Default, Clone)]
struct Spans {
    text: String,
    styles: Vec<(Range<usize>, Style)>,
}

impl Spans {
    fn push(&mut self, style: Style, text: &str) {
        let start = self.text.len();
        self.text.push_str(text);
        self.styles.push((start..self.text.len(), style));
    }

    fn append(&mut self, more: Self) {
        let start = self.text.len();
        self.text.push_str(&more.text);
        let styles = more.styles.into_iter();
        self.styles
            .extend(styles.map(|(range, style)| (range.start + start..range.end + start, style)));
    }

    fn width(&self) -> usize {
        display_width(&self.text)
    }

    /// Returns the width of the longest word.
    fn longest_word(&self) -> usize {
        let all = words(&self.text);
        all.map(|word| display_width(word.trim_end()))
            .max()
            .unwrap_or_default()
    }

    /// Wraps the text to a width. Code in it is not broken, so that it can be copied.
    fn wrapped(&self, width: usize, look: RenderStyle) -> Vec<String> {
        let is_inside_code = |at: usize| {
            let next = self.styles.partition_point(|(range, _)| range.end <= at);
            let span = self.styles.get(next);
            span.is_some_and(|(range, style)| range.start < at && *style == CODE)
        };
        // A long address or path is wrapped by the terminal, so that it can be copied.
        let ranges = self.line_ranges(width, false, is_inside_code).into_iter();
        ranges.map(|range| self.part(range, look)).collect()
    }

    /// Wraps the text to the width of a column, and returns each line with its styles. `breaks_words`:
    /// a word that is longer than a line is broken.
    fn lines(&self, width: usize, breaks_words: bool) -> Vec<Self> {
        let line = |range: Range<usize>| {
            let mut line = Self::default();
            for (span, style) in &self.styles {
                let part = span.start.max(range.start)..span.end.min(range.end);
                if let Some(words) = self.text.get(part) {
                    line.push(*style, words);
                }
            }
            line
        };
        let ranges = self.line_ranges(width, breaks_words, |_| false).into_iter();
        ranges.map(line).collect()
    }

    /// Returns the ranges of the lines of a width. `is_whole` returns whether no line may end at a
    /// position.
    fn line_ranges(
        &self,
        width: usize,
        breaks_words: bool,
        is_whole: impl Fn(usize) -> bool,
    ) -> Vec<Range<usize>> {
        let width = width.max(1);
        let text = self.text.trim_end();
        let mut at = 0;
        let mut out = Vec::new();
        for line in text.split('\n') {
            let mut fragments = joined(line, |end| is_whole(at + end));
            if breaks_words {
                fragments = break_words(fragments, width);
            }
            #[expect(clippy::cast_precision_loss, reason = "no terminal is that wide")]
            let widths = [width as f64];
            for fragments in wrap_first_fit(&fragments, &widths) {
                let bytes = fragments
                    .iter()
                    .map(|word| word.len() + word.whitespace.len());
                let end = at + bytes.sum::<usize>();
                let blanks = fragments.last().map_or(0, |word| word.whitespace.len());
                out.push(at..end - blanks);
                at = end;
            }
            at += '\n'.len_utf8();
        }
        out
    }

    fn part(&self, range: Range<usize>, look: RenderStyle) -> String {
        let mut out = String::new();
        for (span, style) in &self.styles {
            let start = span.start.max(range.start);
            let end = span.end.min(range.end);
            if let Some(words) = self.text.get(start..end) {
                out.push_str(&paint(look, *style, words));
            }
        }
        out
    }
}

/// Returns whether the line before the last one is blank, or has only the marks of quotations.
fn is_after_blank(source: &str) -> bool {
    source
        .trim_end_matches([' ', '>'])
        .strip_suffix('\n')
        .is_some_and(|before| {
            let line = before.rsplit('\n').next().unwrap_or_default();
            line.trim_matches([' ', '>']).is_empty()
        })
}

/// The target of a link, and the place of its text.
struct LinkTarget {
    /// An address, or the label of a definition that follows in another block.
    target: String,
    is_label: bool,
    start: usize,
}

/// Returns the text without the carets of the references to footnotes: `[1]` for `[^1]`.
fn with_plain_references(text: &str) -> Cow<'_, str> {
    const MARK: &str = "[^";
    if !text.contains(MARK) {
        return text.into();
    }
    let mut pieces = text.split(MARK);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let label = piece.split_once(']').map_or("", |(label, _)| label);
        let is_reference = !label.is_empty() && !label.contains([' ', '[']);
        out.push_str(if is_reference { "[" } else { MARK });
        out.push_str(piece);
    }
    out.into()
}

/// The renderer of one block.
struct BlockRenderer {
    look: RenderStyle,
    out: String,
    /// The indents of the lists and quotations around the text.
    indents: Vec<String>,
    /// The mark of a list's item, until its first line is printed.
    mark: Option<String>,
    /// The next number of each list; `None` for bullets.
    numbers: Vec<Option<u64>>,
    spans: Spans,
    styles: Vec<Style>,
    links: Vec<LinkTarget>,
    /// The mark of a footnote, until its first line is printed.
    footnote: Option<String>,
    rows: Vec<Vec<Spans>>,
    alignments: Vec<Alignment>,
    code: Option<CodeBlock>,
    /// The heading has a line below it in place of marks before it.
    is_underlined: bool,
}

impl BlockRenderer {
    fn new(look: RenderStyle) -> Self {
        Self {
            look,
            out: String::new(),
            indents: Vec::new(),
            mark: None,
            numbers: Vec::new(),
            spans: Spans::default(),
            styles: vec![Style::new()],
            links: Vec::new(),
            footnote: None,
            rows: Vec::new(),
            alignments: Vec::new(),
            code: None,
            is_underlined: false,
        }
    }

    fn render(mut self, source: &str) -> String {
        let mut end = 0;
        // The definition of a reference may follow in another block.
        let labelled = |link: BrokenLink<'_>| {
            let is_indexing = source[..link.span.start].ends_with(char::is_alphanumeric);
            let is_link = link.link_type == LinkType::Reference && !is_indexing;
            is_link.then(|| (CowStr::from(""), CowStr::from("")))
        };
        let parser = Parser::new_with_broken_link_callback(source, options(), Some(labelled));
        let mut events = TextMergeWithOffset::new(parser.into_offset_iter()).peekable();
        while let Some((event, range)) = events.next() {
            let begins = matches!(&event, Event::Start(Tag::Paragraph | Tag::CodeBlock(_)));
            if begins
                && end > 0
                && is_after_blank(&source[..range.start])
                && !self.out.is_empty()
                && self.mark.is_none()
            {
                let indent = self.indents.concat();
                self.out.push_str(indent.trim_end());
                self.out.push('\n');
            }
            end = range.end;
            if matches!(event, Event::Start(Tag::Heading { .. })) {
                self.is_underlined = !source[range.start..].trim_start().starts_with('#');
            }
            if matches!(event, Event::SoftBreak) && begins_line(events.peek().map(|(next, _)| next))
            {
                self.event(Event::HardBreak);
            } else {
                self.event(event);
            }
        }
        self.flush();
        self.out
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => {
                let code = text::escaped(&code);
                let code = if self.look.ink == StyleSupport::Colours {
                    code
                } else {
                    format!("`{code}`")
                };
                self.spans.push(CODE, &code);
            }
            Event::SoftBreak => self.spans.push(Style::new(), " "),
            Event::HardBreak => self.spans.push(Style::new(), "\n"),
            Event::Rule => {
                let mark = if self.look.ascii { "-" } else { "─" };
                let rule = mark.repeat(self.width().min(40));
                self.spans.push(FAINT, &rule);
                self.flush();
            }
            Event::TaskListMarker(is_done) => {
                let mark = if is_done { "[x] " } else { "[ ] " };
                self.spans.push(Style::new(), mark);
            }
            Event::Html(text) => {
                let text = text::without_formatting_tags(&text);
                if !text.trim().is_empty() {
                    self.text(&text);
                }
            }
            Event::InlineHtml(text) => self.text(&text::without_formatting_tags(&text)),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
            Event::FootnoteReference(label) => self.text(&format!("[{label}]")),
        }
    }

    fn text(&mut self, text: &str) {
        // An entity may stand for a control character.
        let text = text::shown(text);
        if let Some(code) = &mut self.code {
            let indent = self.indents.concat();
            let width = self.look.width.saturating_sub(display_width(&indent));
            let look = RenderStyle {
                width: width.max(MIN_WIDTH),
                ..self.look
            };
            for line in text.lines() {
                for part in code.render(line, look).lines() {
                    self.out.push_str(&indent);
                    self.out.push_str(part);
                    self.out.push('\n');
                }
            }
            return;
        }
        let style = self.styles.last().copied().unwrap_or_default();
        let text = with_plain_references(&text);
        self.spans.push(style, &text.replace('\t', " "));
    }

    fn style(&mut self, style: Style) {
        let outer = self.styles.last().copied().unwrap_or_default();
        self.styles
            .push(outer.effects(outer.get_effects() | style.get_effects()));
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.style(match level {
                    HeadingLevel::H1 => STRONG.underline(),
                    HeadingLevel::H2 => STRONG,
                    HeadingLevel::H3 => Style::new().underline(),
                    _ => Style::new().italic(),
                });
                if self.look.ink == StyleSupport::Plain && !self.is_underlined {
                    let marks = format!("{} ", "#".repeat(level as usize));
                    self.spans.push(Style::new(), &marks);
                }
            }
            Tag::Strong => self.style(STRONG),
            Tag::Emphasis => self.style(Style::new().italic()),
            Tag::Strikethrough => self.style(Style::new().strikethrough()),
            Tag::Link {
                link_type,
                dest_url,
                id,
                ..
            }
            | Tag::Image {
                link_type,
                dest_url,
                id,
                ..
            } => {
                let is_label = link_type == LinkType::ReferenceUnknown;
                self.links.push(LinkTarget {
                    target: text::escaped(if is_label { &id } else { &dest_url }),
                    is_label,
                    start: self.spans.text.len(),
                });
                self.style(Style::new().underline());
            }
            Tag::BlockQuote(_) => {
                self.flush();
                let bar = if self.look.ascii { "> " } else { "│ " };
                self.indents.push(paint(self.look, FAINT, bar));
            }
            Tag::List(first) => {
                self.flush();
                self.numbers.push(first);
            }
            Tag::Item => self.item(),
            Tag::FootnoteDefinition(label) => {
                self.flush();
                self.footnote = Some(format!("[{}]: ", text::escaped(&label)));
                self.indents.push("  ".to_owned());
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.first_line();
                let info = match kind {
                    CodeBlockKind::Fenced(info) => text::escaped(&info),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some(CodeBlock::of(&format!("```{info}"), self.look));
            }
            Tag::Table(alignments) => self.alignments = alignments,
            Tag::TableHead => {
                self.style(STRONG);
                self.rows.push(Vec::new());
            }
            Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(level) => {
                self.styles.pop();
                let width = self.spans.width().min(self.width());
                self.flush();
                if self.is_underlined && self.look.ink == StyleSupport::Plain {
                    let mark = if level == HeadingLevel::H1 { "=" } else { "-" };
                    self.print(&[mark.repeat(width)]);
                }
            }
            TagEnd::Strong | TagEnd::Emphasis | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                if let Some(link) = self.links.pop() {
                    let words = &self.spans.text[link.start..];
                    let target = link.target;
                    if link.is_label {
                        self.spans.push(FAINT, &format!(" [{target}]"));
                    } else if words != target && format!("mailto:{words}") != target {
                        self.spans.push(FAINT, &format!(" ({target})"));
                    }
                }
            }
            TagEnd::BlockQuote(_) | TagEnd::Item | TagEnd::FootnoteDefinition => {
                self.flush();
                self.first_line();
                self.indents.pop();
            }
            TagEnd::List(_) => {
                self.numbers.pop();
            }
            TagEnd::CodeBlock => self.code = None,
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::TableHead => {
                self.styles.pop();
            }
            TagEnd::Table => self.table(),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.flush();
        let mark = match self.numbers.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number += 1;
                mark
            }
            _ if self.look.ascii => "- ".to_owned(),
            _ => "• ".to_owned(),
        };
        let outer = self.prefix();
        self.mark = Some(format!("{outer}{mark}"));
        self.indents.push(" ".repeat(display_width(&mark)));
    }
    /// Returns the indent of the next line, or the mark of the item that it begins.
    fn prefix(&mut self) -> String {
        self.mark.take().unwrap_or_else(|| self.indents.concat())
    }

    /// Prints the mark of an item without text on a line of its own.
    fn first_line(&mut self) {
        if let Some(mark) = self.footnote.take().or_else(|| self.mark.take()) {
            self.out.push_str(mark.trim_end());
            self.out.push('\n');
        }
    }

    fn width(&self) -> usize {
        let indent = display_width(&self.indents.concat());
        self.look.width.saturating_sub(indent).max(MIN_WIDTH / 2)
    }

    fn flush(&mut self) {
        let mut spans = std::mem::take(&mut self.spans);
        if spans.text.trim().is_empty() {
            return;
        }
        // The mark of a footnote is wider than the indent of its text.
        if let Some(mark) = self.footnote.take() {
            let mut marked = Spans::default();
            marked.push(FAINT, &mark);
            marked.append(spans);
            spans = marked;
            let lines = spans.wrapped(self.width(), self.look);
            self.mark = Some(String::new());
            return self.print(&lines);
        }
        self.print(&spans.wrapped(self.width(), self.look));
    }

    fn print(&mut self, lines: &[String]) {
        for line in lines {
            let prefix = self.prefix();
            self.out.push_str(&prefix);
            self.out.push_str(line);
            self.out.push('\n');
        }
    }

    /// Prints a table with aligned columns, whose cells are wrapped if it is too wide, or row by
    /// row if a column would be too narrow for that.
    fn table(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let alignments = std::mem::take(&mut self.alignments);
        let measured = &rows[..rows.len().min(1 + MEASURED_ROWS)];
        let is_measured = measured.len() == rows.len();
        let widths: Vec<usize> = (0..alignments.len())
            .map(|column| {
                let cells = measured.iter().filter_map(|row| row.get(column));
                cells.map(Spans::width).max().unwrap_or_default()
            })
            .collect();
        let gaps = COLUMN_GAP.len() * widths.len().saturating_sub(1);
        let least: Vec<usize> = (0..alignments.len())
            .map(|column| {
                let cells = measured.iter().filter_map(|row| row.get(column));
                cells.map(Spans::longest_word).max().unwrap_or_default()
            })
            .collect();
        let room = self.width().saturating_sub(gaps);
        let Some(mut widths) = column_widths(&widths, &least, room) else {
            return self.stacked(&rows);
        };
        // Later rows may have longer cells.
        if !is_measured {
            widen(&mut widths, room);
        }
        let measured_widths = widths.clone();
        let is_left = |alignment| matches!(alignment, Alignment::None | Alignment::Left);
        if !is_measured
            && alignments.last().copied().is_some_and(is_left)
            && let Some(last) = widths.last_mut()
        {
            *last += room.saturating_sub(measured_widths.iter().sum());
        }
        let rule = if self.look.ascii { "-" } else { "─" };
        let mut last_height = 1;
        for (number, row) in rows.iter().enumerate() {
            let (widths, breaks_words) = row_widths(row, &widths, room);
            let cells: Vec<Vec<Spans>> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| cell.lines(*width, breaks_words))
                .collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or_default().max(1);
            // The lines of two rows would look like one row otherwise.
            if number > 1 && height.max(last_height) > 1 {
                self.print(&[String::new()]);
            }
            last_height = height;
            for at in 0..height {
                let cells = cells.iter().zip(&widths).zip(&alignments);
                let line: Vec<String> = cells
                    .map(|((lines, width), alignment)| {
                        let cell = lines.get(at).cloned().unwrap_or_default();
                        aligned(&cell, *width, *alignment, self.look)
                    })
                    .collect();
                self.print(&[line.join(COLUMN_GAP).trim_end().to_owned()]);
            }
            if number == 0 {
                let line: Vec<String> = measured_widths
                    .iter()
                    .map(|width| paint(self.look, FAINT, &rule.repeat(*width)))
                    .collect();
                self.print(&[line.join(COLUMN_GAP)]);
            }
        }
    }

    fn stacked(&mut self, rows: &[Vec<Spans>]) {
        let Some((head, rows)) = rows.split_first() else {
            return;
        };
        for (number, row) in rows.iter().enumerate() {
            if number > 0 {
                self.print(&[String::new()]);
            }
            for (name, cell) in head.iter().zip(row) {
                if cell.text.trim().is_empty() {
                    continue;
                }
                let mut spans = name.clone();
                spans.push(Style::new(), ": ");
                spans.append(cell.clone());
                let lines = spans.wrapped(self.width() - 2, self.look);
                for (line_number, line) in lines.iter().enumerate() {
                    let hanging = if line_number == 0 { "" } else { "  " };
                    self.print(&[format!("{hanging}{line}")]);
                }
            }
        }
    }
}

/// Returns the widths of a table's columns for `room` columns of the terminal. The widest are
/// limited to one width, but a word is not broken. `None` if a limited column would be too narrow
/// to read.
fn column_widths(natural: &[usize], least: &[usize], room: usize) -> Option<Vec<usize>> {
    let limited = |limit: usize| -> Vec<usize> {
        let columns = natural.iter().zip(least);
        columns
            .map(|(width, least)| (*width).min(limit).max(*least))
            .collect()
    };
    let widest = natural.iter().copied().max().unwrap_or_default();
    (MIN_COLUMN_WIDTH.min(widest)..=widest)
        .rev()
        .map(limited)
        .find(|widths| widths.iter().sum::<usize>() <= room)
}

/// Widens all columns but the last by a part of their widths, as far as there are free columns of
/// the terminal.
fn widen(widths: &mut [usize], room: usize) {
    const MAX_ADDED: usize = 8;
    let Some(count) = widths.len().checked_sub(1).filter(|count| *count > 0) else {
        return;
    };
    let free = room.saturating_sub(widths.iter().sum());
    for width in &mut widths[..count] {
        *width += (*width / 2).min(MAX_ADDED).min(free / count);
    }
}

/// Returns the widths of the cells of a row that may have longer cells than its columns are wide, and
/// whether words must be broken. A wider cell is wrapped at a readable width if the last cell can be
/// narrower for it.
fn row_widths(row: &[Spans], columns: &[usize], room: usize) -> (Vec<usize>, bool) {
    for readable in [MIN_COLUMN_WIDTH, 0] {
        let least = |cell: &Spans| cell.width().min(readable).max(cell.longest_word());
        let cells = row.iter().zip(columns);
        let mut widths: Vec<usize> = cells.map(|(cell, width)| least(cell).max(*width)).collect();
        let excess = widths.iter().sum::<usize>().saturating_sub(room);
        let (Some(last), Some(cell)) = (widths.last_mut(), row.last()) else {
            return (widths, false);
        };
        if last.saturating_sub(excess) >= least(cell) {
            *last -= excess;
            return (widths, false);
        }
    }
    (columns.to_vec(), true)
}

fn aligned(cell: &Spans, width: usize, alignment: Alignment, look: RenderStyle) -> String {
    let blanks = width.saturating_sub(cell.width());
    let left = match alignment {
        Alignment::Right => blanks,
        Alignment::Center => blanks / 2,
        _ => 0,
    };
    let words = cell.part(0..cell.text.len(), look);
    format!("{}{words}{}", " ".repeat(left), " ".repeat(blanks - left))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const ANSWER: &str = include_str!("markdown/answer.md");
    const BLOCKS: &str = include_str!("markdown/blocks.md");
    const LINES: &str = include_str!("markdown/lines.md");
    const WIDE: &str = include_str!("markdown/wide.md");
    const TABLE: &str = include_str!("markdown/table.md");
    /// Answers of the usual kinds, each followed by [`NEXT`].
    const MORE: &str = include_str!("markdown/more.md");
    const NEXT: &str = "\n%%%\n";
    const ANSWERS: &[&str] = &[ANSWER, BLOCKS, LINES, WIDE, TABLE];

    fn look(width: usize) -> RenderStyle {
        RenderStyle {
            width,
            ink: StyleSupport::Plain,
            ascii: false,
            breaks_commands: false,
        }
    }

    fn rendered(source: &str, look: RenderStyle) -> String {
        let mut stream = MarkdownStream::default();
        let mut out = stream.push(source, look);
        out.push_str(&stream.end(look));
        out
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test reads its own switch")]
    fn answers_are_rendered_for_their_width() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/terminal/markdown");
        for (name, source, width) in [
            ("answer-40.txt", ANSWER, 40),
            ("answer-80.txt", ANSWER, 80),
            ("answer-120.txt", ANSWER, 120),
            ("blocks-40.txt", BLOCKS, 40),
            ("blocks-80.txt", BLOCKS, 80),
            ("lines-40.txt", LINES, 40),
            ("lines-80.txt", LINES, 80),
            ("wide-40.txt", WIDE, 40),
            ("wide-80.txt", WIDE, 80),
            ("table-40.txt", TABLE, 40),
            ("table-80.txt", TABLE, 80),
            ("table-120.txt", TABLE, 120),
        ] {
            let file = folder.join(name);
            let shown = rendered(source, look(width));
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&file, &shown).unwrap();
            }
            assert_eq!(shown, std::fs::read_to_string(&file).unwrap(), "{name}");
        }
    }

    #[test]
    fn long_code_is_broken_with_a_mark_and_a_command_is_not() {
        let narrow = look(40);
        let asked = RenderStyle {
            breaks_commands: true,
            ..narrow
        };
        let ascii = RenderStyle {
            ascii: true,
            ..narrow
        };
        let code = "```rust\nlet cache = Cache::new(size); // never cleared\n```\n";
        let word = "```\n  aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee\n```\n";
        let command = "```sh\ngit commit --message \"a long message of it\"\n```\n";
        let tabs = "```go\nif x {\n\treturn\ta\n```\n";
        let table = [
            (
                code,
                narrow,
                "    let cache = Cache::new(size); //\n      ↪ never cleared\n",
            ),
            (
                code,
                ascii,
                "    let cache = Cache::new(size); //\n      > never cleared\n",
            ),
            (
                word,
                narrow,
                "      aaaaaaaaaabbbbbbbbbbccccccccccdddd\n        ↪ ddddddeeeeeeeeee\n",
            ),
            (
                command,
                narrow,
                "    git commit --message \"a long message of it\"\n",
            ),
            (
                command,
                asked,
                "    git commit --message \"a long message\n      ↪ of it\"\n",
            ),
            (tabs, narrow, "    if x {\n        return  a\n"),
        ];
        for (source, look, expected) in table {
            assert_eq!(rendered(source, look), expected, "{source}");
        }
    }

    #[test]
    fn code_in_a_text_is_not_broken() {
        let table = [
            (
                "Run the command `git commit -m x` now.",
                "Run the command\n`git commit -m x`\nnow.\n",
            ),
            (
                "Run `cargo test --workspace --no-fail-fast` now.",
                "Run\n`cargo test --workspace --no-fail-fast`\nnow.\n",
            ),
        ];
        for (source, expected) in table {
            assert_eq!(rendered(source, look(20)), expected, "{source}");
        }
        let table = [
            ("see `a b` {c d}, e", vec!["see ", "`a b` ", "{c d}, ", "e"]),
            ("{\"a\":{\"b *\": 1}} c", vec!["{\"a\":{\"b *\": 1}} ", "c"]),
            (
                "an open ` b { c",
                vec!["an ", "open ", "` ", "b ", "{ ", "c"],
            ),
        ];
        for (line, expected) in table {
            let words: Vec<String> = words_of_message(line)
                .map(|word| format!("{}{}", word.word, word.whitespace))
                .collect();
            assert_eq!(words, expected, "{line}");
        }
    }

    #[test]
    fn references_have_no_marks_of_markdown() {
        let table = [
            (
                "See [the book][1] and a[i][j].",
                "See the book [1] and a[i][j].\n",
            ),
            ("It is so[^1], not [^so].", "It is so[1], not [so].\n"),
            ("[^1]: Because.", "[1]: Because.\n"),
            ("[^a b] [^", "[^a b] [^\n"),
        ];
        for (source, expected) in table {
            assert_eq!(rendered(source, look(60)), expected, "{source}");
        }
    }

    #[test]
    fn rows_of_a_table_are_printed_as_they_arrive() {
        let look = look(40);
        let mut stream = MarkdownStream::default();
        let rule = "─".repeat(6);
        for (line, printed) in [
            ("| Name | Use |", String::new()),
            ("|---|---|", String::new()),
            ("| a | one |", String::new()),
            ("| b | two |", String::new()),
            ("| c | three |", String::new()),
            (
                "| d | four |",
                format!("Name    Use\n{rule}  ─────\na       one\nb       two\nc       three\n"),
            ),
            (
                "| extended | a text that is longer than the column |",
                "d       four\n\nextended  a text that is longer than the\n".to_owned(),
            ),
            ("| e | five |", "          column\n\n".to_owned()),
            ("", "e       five\n".to_owned()),
        ] {
            assert_eq!(stream.push(&format!("{line}\n"), look), printed, "{line}");
        }
    }

    #[test]
    fn later_cell_is_wrapped_at_a_readable_width() {
        let table = "| Name | Use |\n|---|---|\n| a | one |\n| b | two |\n| c | three |\n\
                     | several longer words | four |\n";
        let rule = "─".repeat(6);
        assert_eq!(
            rendered(table, look(40)),
            format!(
                "Name    Use\n{rule}  ─────\na       one\nb       two\nc       three\n\n\
                 several longer  four\nwords\n"
            )
        );
    }

    #[test]
    fn slightly_longer_cells_of_later_rows_fit_their_column() {
        let rows = (0..12).map(|n| format!("| row {n} with text | short |\n"));
        let table = format!("| Name | Use |\n|---|---|\n{}", rows.collect::<String>());
        let shown = rendered(&table, look(80));
        assert_eq!(shown.lines().count(), 2 + 12, "{shown}");
        assert!(
            shown.contains("\nrow 9 with text         short\nrow 10 with text        short\n"),
            "{shown}"
        );
    }

    #[test]
    fn levels_of_headings_differ() {
        let look = RenderStyle {
            ink: StyleSupport::Effects,
            ..look(80)
        };
        let lines: Vec<String> = ["# A", "## A", "### A", "#### A"]
            .iter()
            .map(|source| rendered(source, look))
            .collect();
        assert_eq!(
            lines,
            [
                "\u{1b}[1m\u{1b}[4mA\u{1b}[0m\n",
                "\u{1b}[1mA\u{1b}[0m\n",
                "\u{1b}[4mA\u{1b}[0m\n",
                "\u{1b}[3mA\u{1b}[0m\n",
            ]
        );
    }

    #[test]
    fn prose_fits_every_width() {
        for width in 40..=200 {
            for line in rendered(ANSWER, look(width)).lines() {
                let is_one_word = !line.trim().contains(' ');
                assert!(
                    is_one_word || display_width(line) <= width,
                    "{width}: {line}"
                );
            }
        }
    }

    #[test]
    fn finished_blocks_are_printed_before_the_end() {
        let look = look(80);
        let mut stream = MarkdownStream::default();
        for (line, printed) in [
            ("# Title", "# Title\n"),
            ("One", ""),
            ("two.", ""),
            ("", "One two.\n"),
            ("- a", "\n"),
            ("  b", ""),
            ("- c", "• a b\n"),
            ("```rust", "• c\n"),
            ("let a;", "    let a;\n"),
            ("```", ""),
        ] {
            assert_eq!(stream.push(&format!("{line}\n"), look), printed, "{line}");
        }
    }

    #[test]
    fn lines_of_a_paragraph_are_printed_before_its_end() {
        let look = look(20);
        let mut stream = MarkdownStream::default();
        for (piece, printed) in [
            ("One two three four fi", ""),
            ("ve six", "One two three four\n"),
            (" **seven eight nine ten eleven", ""),
            (
                "** twelve thirteen",
                "five six seven eight\nnine ten eleven\n",
            ),
            (" a\nb\n", ""),
            ("===\n", "twelve thirteen a b\n\n"),
        ] {
            assert_eq!(stream.push(piece, look), printed, "{piece}");
        }
    }

    #[test]
    fn next_line_is_previewed_as_it_is_rendered() {
        let look = look(20);
        let mut stream = MarkdownStream::default();
        for (piece, preview) in [
            ("One tw", "One"),
            ("o **three", "One two"),
            ("** four fi", "One two three four"),
            ("ve six", "five"),
            ("\n\n- it", ""),
            ("em one", "• item"),
            ("\n```\nlet a", ""),
            (" = 5;\n```\n", ""),
        ] {
            stream.push(piece, look);
            assert_eq!(stream.preview().trim_end(), preview, "{piece}");
        }
    }

    #[test]
    fn pieces_do_not_change_the_result() {
        for source in ANSWERS {
            for width in [20, 40, 80, 120] {
                let whole = rendered(source, look(width));
                for bytes in [1, 3, 7, 40] {
                    let mut stream = MarkdownStream::default();
                    let mut out = String::new();
                    let mut rest = *source;
                    while !rest.is_empty() {
                        let (piece, more) = rest.split_at(rest.ceil_char_boundary(bytes));
                        out.push_str(&stream.push(piece, look(width)));
                        rest = more;
                    }
                    out.push_str(&stream.end(look(width)));
                    assert_eq!(out, whole, "{width} columns, pieces of {bytes}");
                }
            }
        }
    }

    #[test]
    fn shown_text_only_grows() {
        let answers: Vec<&str> = ANSWERS.iter().copied().chain(MORE.split(NEXT)).collect();
        assert_eq!(answers.len(), 20);
        for source in answers {
            for (width, bytes) in [(40, 1), (40, 5), (40, 9), (80, 1), (80, 5), (80, 9)] {
                let mut stream = MarkdownStream::default();
                let mut printed = String::new();
                let mut shown = String::new();
                let mut rest = source;
                while !rest.is_empty() {
                    let (piece, more) = rest.split_at(rest.ceil_char_boundary(bytes));
                    printed.push_str(&stream.push(piece, look(width)));
                    let now = format!("{printed}{}", stream.preview());
                    assert!(
                        now.starts_with(shown.trim_end()),
                        "{width} columns, pieces of {bytes}, after {piece:?}:\n{now}\n--- not after:\n{shown}"
                    );
                    shown = now;
                    rest = more;
                }
                printed.push_str(&stream.end(look(width)));
                assert!(
                    printed.starts_with(shown.trim_end()),
                    "{printed}\n--- not after:\n{shown}"
                );
            }
        }
    }

    #[test]
    fn entity_does_not_reach_the_terminal_as_a_control_character() {
        let shown = rendered("a &#27;[31m [b&#x9b;](<x&#27;y>)", look(80));
        assert!(!shown.contains(['\u{1b}', '\u{9b}']), "{shown:?}");
    }

    #[test]
    fn marks_are_ascii_if_wanted() {
        let look = RenderStyle {
            ascii: true,
            ..look(60)
        };
        let shown = rendered(
            "- a\n\n> b\n\n| c | d |\n|---|---|\n| 1 | 2 |\n\n---\n",
            look,
        );
        assert!(shown.is_ascii(), "{shown}");
    }

    #[test]
    fn words_of_any_markup_are_shown() {
        let pieces = [
            "a",
            "é",
            "**",
            "*",
            "`",
            "``",
            "[",
            "](x)",
            "<http://b>",
            "# ",
            "- ",
            "> ",
            " ",
            "<i>",
            "1. ",
            "~~~",
            "\n",
            "\n\n",
            "| ",
            "|---|\n",
            "    ",
            "[a]: x\n",
        ];
        fastrand::seed(7);
        for _ in 0..3000 {
            let source: String = (0..fastrand::usize(..20))
                .map(|_| pieces[fastrand::usize(..pieces.len())])
                .collect();
            let shown = rendered(&source, look(40));
            let count = source.matches('é').count();
            // The words after a fence are a description of the code.
            if !source.contains("~~~") && !source.contains("``") && !source.contains('|') {
                assert_eq!(shown.matches('é').count(), count, "{source:?} as {shown:?}");
            }
        }
    }
}
