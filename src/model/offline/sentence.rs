//! A prompt as a sentence: code spans, fences and quotations are taken out first and leave one
//! placeholder each, so that the grammar around them can be read without looking into them.

use super::words;

/// A prompt whose code spans, fences and quotations are placeholders.
#[derive(Debug, Default)]
pub(super) struct Masked {
    pub(super) text: String,
    pub(super) spans: Vec<Span>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) kind: SpanKind,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SpanKind {
    Code,
    Fence,
    Quote,
}

/// Placeholders are characters for private use; the user's own ones are dropped.
const FIRST: u32 = 0x10_FE00;
const LAST: u32 = 0x10_FEFF;

/// A quotation and a code span are at most so many characters long; a fence may be longer.
const LONGEST_QUOTE: usize = 1_000;
const LONGEST_CODE: usize = 4_000;

pub(super) fn is_placeholder(c: char) -> bool {
    (FIRST..=LAST).contains(&u32::from(c))
}

impl Masked {
    pub(super) fn new(prompt: &str) -> Self {
        let prompt: String = prompt.chars().filter(|c| !is_placeholder(*c)).collect();
        let mut masked = Self::default();
        let mut rest = prompt.as_str();
        let mut before = ' ';
        while let Some(c) = rest.chars().next() {
            let room = masked.next().is_some();
            if room
                && let Some((span, length)) = span_at(rest, before)
                && let Some(placeholder) = masked.hold(span)
            {
                masked.text.push(placeholder);
                rest = &rest[length..];
                before = placeholder;
            } else {
                masked.text.push(c);
                rest = &rest[c.len_utf8()..];
                before = c;
            }
        }
        masked
    }

    /// The placeholder of the next span, while there are any left.
    fn next(&self) -> Option<char> {
        let number = u32::try_from(self.spans.len()).ok()?;
        char::from_u32(FIRST + number).filter(|c| is_placeholder(*c))
    }

    fn hold(&mut self, span: Span) -> Option<char> {
        let placeholder = self.next()?;
        self.spans.push(span);
        Some(placeholder)
    }

    pub(super) fn span(&self, c: char) -> Option<&Span> {
        let at = u32::from(c).checked_sub(FIRST)?;
        self.spans.get(usize::try_from(at).ok()?)
    }

    /// The spans in a piece of the masked text.
    pub(super) fn spans_in<'a>(&'a self, piece: &'a str) -> impl Iterator<Item = &'a Span> {
        piece.chars().filter_map(|c| self.span(c))
    }

    /// The text with the contents of its spans.
    pub(super) fn unmask(&self, piece: &str) -> String {
        let mut text = String::new();
        for c in piece.chars() {
            match self.span(c) {
                Some(span) => text.push_str(&span.text),
                None => text.push(c),
            }
        }
        text
    }

    /// The user's words for a piece, on one line, spans as inline code.
    pub(super) fn words(&self, piece: &str) -> String {
        let mut text = String::new();
        for c in piece.chars() {
            match self.span(c) {
                Some(span) if span.kind == SpanKind::Fence => text.push('…'),
                Some(span) => text.push_str(&words::quoted(&span.text)),
                None => text.push(c),
            }
        }
        clip(&text.split_whitespace().collect::<Vec<_>>().join(" "), 100)
    }
}

fn span_at(rest: &str, before: char) -> Option<(Span, usize)> {
    if let Some(after) = rest.strip_prefix("```") {
        let end = after.find("```")?;
        let inside = &after[..end];
        // The first line names a language, unless it is the only one.
        let body = inside.split_once('\n').map_or(inside, |(_, body)| body);
        return Some((Span { kind: SpanKind::Fence, text: body.to_owned() }, end + 6));
    }
    let (kind, open, close) = match rest.chars().next()? {
        '`' => (SpanKind::Code, '`', '`'),
        '"' => (SpanKind::Quote, '"', '"'),
        '\u{201c}' => (SpanKind::Quote, '\u{201c}', '\u{201d}'),
        // An apostrophe inside a word opens nothing.
        '\'' if before.is_whitespace() || before == '(' => (SpanKind::Quote, '\'', '\''),
        _ => return None,
    };
    let after = &rest[open.len_utf8()..];
    // Nobody quotes pages in a line, and a mark that nothing closes must not be searched for to the end.
    let after = after
        .char_indices()
        .nth(if kind == SpanKind::Code { LONGEST_CODE } else { LONGEST_QUOTE })
        .map_or(after, |(end, _)| &after[..end]);
    let end = match open {
        '\'' => after
            .match_indices('\'')
            .map(|(at, _)| at)
            .find(|at| after[at + 1..].chars().next().is_none_or(|c| !c.is_alphanumeric()))?,
        _ => after.find(close)?,
    };
    let text = &after[..end];
    let plausible = !text.is_empty() || kind != SpanKind::Code;
    let one_line = kind == SpanKind::Code || !text.contains("\n\n");
    (plausible && one_line).then(|| (Span { kind, text: text.to_owned() }, open.len_utf8() + end + close.len_utf8()))
}

/// Cuts the words that only make an order friendlier.
pub(super) fn polite(sentence: &str) -> &str {
    const START: &[&str] = &[
        "please ",
        "can you ",
        "could you ",
        "would you ",
        "will you ",
        "now ",
        "then ",
        "and ",
        "also ",
        "just ",
        "hey ",
        "hi ",
        "hello ",
        "ok ",
        "okay ",
        "i want you to ",
        "i'd like you to ",
        "i would like you to ",
        "let's ",
        "let us ",
        "first ",
        "next ",
        "finally ",
        "please, ",
        "hi, ",
        "hello, ",
        "ok, ",
        "then, ",
        "first, ",
        "next, ",
        "finally, ",
    ];
    let mut rest = sentence.trim_start();
    'again: loop {
        for start in START {
            let head = rest.get(..start.len());
            if head.is_some_and(|head| head.eq_ignore_ascii_case(start)) && rest.len() > start.len() {
                rest = rest[start.len()..].trim_start();
                continue 'again;
            }
        }
        return rest;
    }
}

/// Without the punctuation of the sentence around it.
pub(super) fn clean(token: &str) -> String {
    token.trim().trim_end_matches([',', ';', '!', '?', ')', '.', ':']).trim_start_matches('(').to_owned()
}

pub(super) fn strip<'a>(text: &'a str, starts: &[&str]) -> Option<&'a str> {
    starts.iter().find_map(|start| {
        let head = text.get(..start.len())?;
        head.eq_ignore_ascii_case(start).then(|| text[start.len()..].trim_start())
    })
}

/// At most so many characters, with a mark where something was cut.
pub(super) fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}
