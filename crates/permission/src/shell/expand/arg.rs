//! A word as a program gets it, or how much of it is certain.

use std::rc::Rc;

use crate::wildcard::UNKNOWN;

/// One word of a command after expansion. It is handed around a lot, so a copy shares its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arg {
    pub(crate) raw: Rc<str>,
    pub(super) values: Rc<Values>,
    /// Nothing in it was computed: no variable, pattern or substitution.
    pub(crate) literal: bool,
    pub(super) spread: Spread,
}

/// How many words it becomes. A pattern always stands for as many as there are files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Spread {
    One,
    /// Any number, each of which is one of its values.
    Names,
    /// Any number, none too, and only the first begins as its value does: what is not quoted is split.
    Words,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Values {
    Exact(String),
    OneOf(Vec<String>),
    /// A file name pattern; escaped with backslashes.
    Pattern(String),
    /// Begins like this, and goes on in a way that is not known.
    Unknown(String),
}

impl Arg {
    pub(crate) fn exact(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { raw: text.as_str().into(), values: Rc::new(Values::Exact(text)), literal: true, spread: Spread::One }
    }

    /// A text in which something will be replaced before it runs. What stands around that is known,
    /// and enough for rules that deny; a single word is unknown altogether.
    pub(crate) fn filled(text: &str, mark: &str) -> Self {
        if text.contains([' ', '\n', ';']) {
            let values = Rc::new(Values::Exact(text.replace(mark, "./found")));
            Self { raw: text.into(), values, literal: false, spread: Spread::One }
        } else {
            Self { spread: Spread::One, ..Self::unknown(text) }
        }
    }

    /// Some file of the project whose name is no secret's.
    pub(crate) fn found() -> Self {
        let values = Rc::new(Values::Exact("./found".into()));
        Self { raw: "…".into(), values, literal: false, spread: Spread::One }
    }

    /// Any number of such words.
    pub(crate) fn repeated(self) -> Self {
        Self { spread: self.spread.max(Spread::Names), ..self }
    }

    /// Any number of words behind each other, nobody knows which.
    pub(crate) fn is_words(&self) -> bool {
        self.spread == Spread::Words
    }

    /// More words than one, or fewer.
    pub(crate) fn is_several(&self) -> bool {
        self.spread != Spread::One || self.pattern().is_some()
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(*self.values, Values::Unknown(_))
    }

    /// Words of which nothing is known.
    pub(crate) fn unknown(raw: &str) -> Self {
        let values = Rc::new(Values::Unknown(String::new()));
        Self { raw: raw.into(), values, literal: false, spread: Spread::Words }
    }

    /// The value, where there is exactly one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &*self.values {
            Values::Exact(text) => Some(text),
            _ => None,
        }
    }

    /// All values it can have, where they are known without looking at the disk.
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

    /// The certain beginning.
    pub(crate) fn prefix(&self) -> &str {
        match &*self.values {
            Values::Exact(text) | Values::Unknown(text) => text,
            Values::Pattern(pattern) => &pattern[..pattern.find(['*', '?', '[', '\\']).unwrap_or(pattern.len())],
            Values::OneOf(_) => "",
        }
    }

    pub(crate) fn may_be_option(&self) -> bool {
        self.is_words()
            || match &*self.values {
                Values::Exact(text) => text.starts_with('-'),
                Values::OneOf(texts) => texts.iter().any(|text| text.starts_with('-')),
                Values::Pattern(_) | Values::Unknown(_) => {
                    let prefix = self.prefix();
                    prefix.is_empty() || prefix.starts_with('-')
                }
            }
    }

    /// The value without its first `count` bytes, which belong to the certain beginning.
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
        Self { raw, values: Rc::new(values), literal: self.literal, spread: self.spread }
    }

    /// The word for rules to be compared with.
    pub(crate) fn normal(&self) -> String {
        match &*self.values {
            Values::Exact(text) => text.clone(),
            _ => format!("{}{UNKNOWN}", self.prefix()),
        }
    }
}
