//! Words as a program gets them, as far as they are certain.

use std::rc::Rc;

use crate::wildcard::UNKNOWN;

/// A word of a command after expansion. Cloning is cheap, because the texts are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arg {
    pub(crate) raw: Rc<str>,
    pub(super) values: Rc<Values>,
    /// No part of it was computed by a variable, pattern or substitution.
    pub(crate) is_literal: bool,
    pub(super) spread: WordCount,
}

/// The number of words that it becomes. A pattern always becomes as many as there are files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WordCount {
    One,
    /// Any number of words, each with one of the values.
    Names,
    /// Any number of words or none, of which only the first begins like the value: an unquoted
    /// value is split.
    Words,
}

/// The values that a word may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Values {
    Exact(String),
    OneOf(Vec<String>),
    /// A file name pattern, with backslashes as escapes.
    Pattern(String),
    /// An unknown text with this beginning.
    Unknown(String),
}

impl Arg {
    pub(crate) fn exact(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            raw: text.as_str().into(),
            values: Rc::new(Values::Exact(text)),
            is_literal: true,
            spread: WordCount::One,
        }
    }

    /// Returns a text in which `mark` will be replaced at run time. Within several words the rest
    /// is known, which is enough for rules that deny; a single word is entirely unknown.
    pub(crate) fn filled(text: &str, mark: &str) -> Self {
        if text.contains([' ', '\n', ';']) {
            let values = Rc::new(Values::Exact(text.replace(mark, "./found")));
            Self {
                raw: text.into(),
                values,
                is_literal: false,
                spread: WordCount::One,
            }
        } else {
            Self {
                spread: WordCount::One,
                ..Self::unknown(text)
            }
        }
    }

    /// Returns a word for some file of the project that holds no secrets.
    pub(crate) fn found() -> Self {
        let values = Rc::new(Values::Exact("./found".into()));
        Self {
            raw: "…".into(),
            values,
            is_literal: false,
            spread: WordCount::One,
        }
    }

    /// Returns the word as any number of such words.
    pub(crate) fn repeated(self) -> Self {
        Self {
            spread: self.spread.max(WordCount::Names),
            ..self
        }
    }

    /// Returns whether it becomes any number of unknown words.
    pub(crate) fn is_any_number_of_words(&self) -> bool {
        self.spread == WordCount::Words
    }

    /// Returns whether it may become several words or none.
    pub(crate) fn is_several(&self) -> bool {
        self.spread != WordCount::One || self.pattern().is_some()
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(*self.values, Values::Unknown(_))
    }

    /// Returns unknown words.
    pub(crate) fn unknown(raw: &str) -> Self {
        let values = Rc::new(Values::Unknown(String::new()));
        Self {
            raw: raw.into(),
            values,
            is_literal: false,
            spread: WordCount::Words,
        }
    }

    /// Returns the value if it is unique.
    pub(crate) fn text(&self) -> Option<&str> {
        match &*self.values {
            Values::Exact(text) => Some(text),
            _ => None,
        }
    }

    /// Returns all possible values if they are known without reading the disk.
    pub(crate) fn texts(&self) -> Option<&[String]> {
        match &*self.values {
            Values::Exact(text) => Some(std::slice::from_ref(text)),
            Values::OneOf(texts) => Some(texts),
            _ => None,
        }
    }

    pub(crate) fn pattern(&self) -> Option<&str> {
        match &*self.values {
            Values::Pattern(pattern) => Some(pattern),
            _ => None,
        }
    }

    pub(crate) fn known(&self) -> bool {
        matches!(*self.values, Values::Exact(_))
    }

    pub(crate) fn is(&self, text: &str) -> bool {
        self.text() == Some(text)
    }

    /// Returns the certain beginning.
    pub(crate) fn prefix(&self) -> &str {
        match &*self.values {
            Values::Exact(text) | Values::Unknown(text) => text,
            Values::Pattern(pattern) => {
                &pattern[..pattern.find(['*', '?', '[', '\\']).unwrap_or(pattern.len())]
            }
            Values::OneOf(_) => "",
        }
    }

    pub(crate) fn may_be_option(&self) -> bool {
        self.is_any_number_of_words()
            || match &*self.values {
                Values::Exact(text) => text.starts_with('-'),
                Values::OneOf(texts) => texts.iter().any(|text| text.starts_with('-')),
                Values::Pattern(_) | Values::Unknown(_) => {
                    let prefix = self.prefix();
                    prefix.is_empty() || prefix.starts_with('-')
                }
            }
    }

    /// Returns the value without its first `count` bytes, which are part of the certain beginning.
    pub(crate) fn after(&self, count: usize) -> Self {
        let cut = |text: &str| text.get(count..).unwrap_or_default().to_owned();
        let values = match &*self.values {
            Values::Exact(text) => Values::Exact(cut(text)),
            Values::Unknown(text) => Values::Unknown(cut(text)),
            Values::Pattern(text) => Values::Pattern(cut(text)),
            Values::OneOf(texts) => Values::OneOf(texts.iter().map(|text| cut(text)).collect()),
        };
        let raw = match &values {
            Values::Exact(text) => text.as_str().into(),
            _ => self.raw.clone(),
        };
        Self {
            raw,
            values: Rc::new(values),
            is_literal: self.is_literal,
            spread: self.spread,
        }
    }

    /// Returns the word as rules are compared with it.
    pub(crate) fn normal(&self) -> String {
        match &*self.values {
            Values::Exact(text) => text.clone(),
            _ => format!("{}{UNKNOWN}", self.prefix()),
        }
    }
}
