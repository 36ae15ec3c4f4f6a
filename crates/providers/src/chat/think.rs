//! Extracts the reasoning in `<think>…</think>` at the very beginning of an answer, for servers
//! that do not extract it. Anywhere else, the tag is ordinary text.

/// A parser that separates reasoning from text in a streamed answer.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    state: State,
    /// Text that cannot be classified yet.
    pending: String,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum State {
    /// Only whitespace, or the beginning of a tag, has arrived.
    #[default]
    Start,
    /// Between the tags.
    Inside,
    /// Directly after the tag: leading whitespace is not part of the text.
    AfterTag,
    /// Ordinary text until the end.
    Text,
}

/// A piece of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ThinkPiece {
    Reasoning(String),
    Text(String),
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

impl ThinkTags {
    /// Adds text, and appends to `out` the pieces that are complete enough to classify.
    pub(super) fn push(&mut self, text: String, out: &mut Vec<ThinkPiece>) {
        if self.state == State::Text {
            if !text.is_empty() {
                out.push(ThinkPiece::Text(text));
            }
            return;
        }
        self.pending.push_str(&text);
        loop {
            match self.state {
                State::Start => {
                    let start = self.pending.trim_start();
                    if let Some(rest) = start.strip_prefix(OPEN) {
                        self.pending = rest.to_owned();
                        self.state = State::Inside;
                    } else if OPEN.starts_with(start) {
                        return;
                    } else {
                        self.state = State::Text;
                    }
                }
                State::Inside => {
                    if let Some(at) = self.pending.find(CLOSE) {
                        let rest = self.pending.split_off(at + CLOSE.len());
                        self.pending.truncate(at);
                        let inside = std::mem::replace(&mut self.pending, rest);
                        if !inside.is_empty() {
                            out.push(ThinkPiece::Reasoning(inside));
                        }
                        self.state = State::AfterTag;
                    } else {
                        // The end of the text may be the beginning of the closing tag.
                        let held = (1..CLOSE.len())
                            .rev()
                            .find(|n| self.pending.ends_with(&CLOSE[..*n]))
                            .unwrap_or(0);
                        let rest = self.pending.split_off(self.pending.len() - held);
                        let inside = std::mem::replace(&mut self.pending, rest);
                        if !inside.is_empty() {
                            out.push(ThinkPiece::Reasoning(inside));
                        }
                        return;
                    }
                }
                State::AfterTag => {
                    let text = self.pending.trim_start();
                    if text.is_empty() {
                        self.pending.clear();
                        return;
                    }
                    self.pending = text.to_owned();
                    self.state = State::Text;
                }
                State::Text => {
                    let text = std::mem::take(&mut self.pending);
                    if !text.is_empty() {
                        out.push(ThinkPiece::Text(text));
                    }
                    return;
                }
            }
        }
    }

    /// Ends the answer, and appends the pending text to `out` as reasoning or text.
    pub(super) fn end(&mut self, out: &mut Vec<ThinkPiece>) {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return;
        }
        let is_reasoning = self.state == State::Inside;
        out.push(if is_reasoning {
            ThinkPiece::Reasoning(pending)
        } else {
            ThinkPiece::Text(pending)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, size: usize) -> (String, String) {
        let chars: Vec<char> = text.chars().collect();
        let mut think = ThinkTags::default();
        let mut out = Vec::new();
        for piece in chars.chunks(size) {
            think.push(piece.iter().collect(), &mut out);
        }
        think.end(&mut out);
        let mut both = (String::new(), String::new());
        for piece in out {
            match piece {
                ThinkPiece::Reasoning(r) => both.0.push_str(&r),
                ThinkPiece::Text(t) => both.1.push_str(&t),
            }
        }
        both
    }

    #[test]
    fn think_tag_counts_only_at_the_start() {
        let cases = [
            ("<think>a</think>b", "a", "b"),
            (
                "\n <think>\na < b </thin\n</think>\n\nb\n",
                "\na < b </thin\n",
                "b\n",
            ),
            ("<think></think>b", "", "b"),
            ("<think>never closed", "never closed", ""),
            ("hello <think>no</think>", "", "hello <think>no</think>"),
            ("<thinking>no</thinking>", "", "<thinking>no</thinking>"),
            ("<th", "", "<th"),
            ("  indented", "", "  indented"),
            (
                "<think>a</think>b <think>c</think>",
                "a",
                "b <think>c</think>",
            ),
            ("", "", ""),
        ];
        for (text, reasoning, rest) in cases {
            for size in 1..=text.len().max(1) {
                assert_eq!(
                    split(text, size),
                    (reasoning.into(), rest.into()),
                    "{text:?} by {size}"
                );
            }
        }
    }
}
