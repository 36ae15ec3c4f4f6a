//! `<think>…</think>` at the very beginning of a text: the reasoning of models whose server does
//! not take it out. Anywhere else the tag is ordinary text.

/// Tells reasoning from text while it streams.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    state: State,
    held: String,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum State {
    /// Nothing but blanks, or the beginning of a tag, was seen.
    #[default]
    Start,
    Inside,
    /// Just behind: blank lines are not part of the text.
    Behind,
    /// Ordinary text to the end.
    Text,
}

/// What a piece of content is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ThinkPiece {
    Reasoning(String),
    Text(String),
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

impl ThinkTags {
    /// Takes a piece and gives what is certain by now.
    pub(super) fn push(&mut self, text: String, out: &mut Vec<ThinkPiece>) {
        if self.state == State::Text {
            if !text.is_empty() {
                out.push(ThinkPiece::Text(text));
            }
            return;
        }
        self.held.push_str(&text);
        loop {
            match self.state {
                State::Start => {
                    let start = self.held.trim_start();
                    if let Some(rest) = start.strip_prefix(OPEN) {
                        self.held = rest.to_owned();
                        self.state = State::Inside;
                    } else if OPEN.starts_with(start) {
                        return;
                    } else {
                        self.state = State::Text;
                    }
                }
                State::Inside => {
                    if let Some(at) = self.held.find(CLOSE) {
                        let rest = self.held.split_off(at + CLOSE.len());
                        self.held.truncate(at);
                        let inside = std::mem::replace(&mut self.held, rest);
                        if !inside.is_empty() {
                            out.push(ThinkPiece::Reasoning(inside));
                        }
                        self.state = State::Behind;
                    } else {
                        let keep = (1..CLOSE.len()).rev().find(|n| self.held.ends_with(&CLOSE[..*n])).unwrap_or(0);
                        let rest = self.held.split_off(self.held.len() - keep);
                        let inside = std::mem::replace(&mut self.held, rest);
                        if !inside.is_empty() {
                            out.push(ThinkPiece::Reasoning(inside));
                        }
                        return;
                    }
                }
                State::Behind => {
                    let text = self.held.trim_start();
                    if text.is_empty() {
                        self.held.clear();
                        return;
                    }
                    self.held = text.to_owned();
                    self.state = State::Text;
                }
                State::Text => {
                    let text = std::mem::take(&mut self.held);
                    if !text.is_empty() {
                        out.push(ThinkPiece::Text(text));
                    }
                    return;
                }
            }
        }
    }

    /// There is no more: what was held back is what it looks like.
    pub(super) fn end(&mut self, out: &mut Vec<ThinkPiece>) {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        out.push(if self.state == State::Inside { ThinkPiece::Reasoning(held) } else { ThinkPiece::Text(held) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, size: usize) -> (String, String) {
        let chars: Vec<char> = text.chars().collect();
        let (mut think, mut out) = (ThinkTags::default(), Vec::new());
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
    fn only_at_the_start_and_however_it_is_cut() {
        let cases = [
            ("<think>a</think>b", "a", "b"),
            ("\n <think>\na < b </thin\n</think>\n\nb\n", "\na < b </thin\n", "b\n"),
            ("<think></think>b", "", "b"),
            ("<think>never closed", "never closed", ""),
            ("hello <think>no</think>", "", "hello <think>no</think>"),
            ("<thinking>no</thinking>", "", "<thinking>no</thinking>"),
            ("<th", "", "<th"),
            ("  indented", "", "  indented"),
            ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
            ("", "", ""),
        ];
        for (text, reasoning, rest) in cases {
            for size in 1..=text.len().max(1) {
                assert_eq!(split(text, size), (reasoning.into(), rest.into()), "{text:?} by {size}");
            }
        }
    }
}
