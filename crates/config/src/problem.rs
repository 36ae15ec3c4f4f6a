//! Something in a file that is not as it should be, told so that it can be put right.

use base::text::nearest;
use std::fmt;

use super::node::SourceLocation;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemSeverity {
    /// Worth knowing: a key that does nothing here.
    Note,
    /// An old spelling that still works.
    Deprecated,
    /// It is used, but probably not as meant.
    Warning,
    /// It is not used; the rest is.
    Error,
}

impl ProblemSeverity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Deprecated => "deprecated",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What kind of problem it is. Programs go by this, never by the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemCode {
    /// The text is not JSON, no YAML, or not UTF-8.
    Syntax,
    /// The system does not hand a file out, or it is not a file.
    Unreadable,
    /// A value of another type, or out of range.
    WrongValue,
    /// No key of that name is known.
    UnknownKey,
    /// A key, value or place with a modern spelling.
    OldSpelling,
    /// A key of a later format of OpenCode.
    LaterFormat,
    /// Understood, and nothing follows from it.
    NoEffect,
    /// Understood, and not done yet.
    Later,
    /// The same key or name twice.
    Duplicate,
    /// Something only the user may say.
    NotForProjects,
    /// Waits until the user trusts the project.
    Untrusted,
    /// A hook or plugin that could refuse calls and was trusted waits for trust again.
    LostGuard,
    /// A file or directory that is named and not there.
    MissingFile,
    /// An environment variable that is not set.
    UnsetVariable,
    /// A file that leads out of the project, or in a circle.
    Link,
    TooMuch,
    /// Characters that nobody can see were taken out.
    HiddenCharacters,
    /// A part without which it cannot be used is missing.
    Incomplete,
    /// It works, but no model is told what it is for.
    NoDescription,
    /// A rule that a later one always overrules.
    UnreachableRule,
    /// A rule that does less or more than it seems to.
    OddRule,
    /// A permission that no tool asks for.
    UnknownPermission,
    /// An example whose verdict is another one.
    WrongExample,
    /// An agent that is not there, or that cannot be used like this.
    UnknownAgent,
    UnknownModel,
    /// A model that is known, of a provider without a key.
    NoKey,
    /// A file that reading is not allowed to show.
    NotReadable,
}

impl ProblemCode {
    /// As `config check --json` has it: `unknown-key`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Unreadable => "unreadable",
            Self::WrongValue => "wrong-value",
            Self::UnknownKey => "unknown-key",
            Self::OldSpelling => "old-spelling",
            Self::LaterFormat => "later-format",
            Self::NoEffect => "no-effect",
            Self::Later => "later",
            Self::Duplicate => "duplicate",
            Self::NotForProjects => "not-for-projects",
            Self::Untrusted => "untrusted",
            Self::LostGuard => "lost-guard",
            Self::MissingFile => "missing-file",
            Self::UnsetVariable => "unset-variable",
            Self::Link => "link",
            Self::TooMuch => "too-much",
            Self::HiddenCharacters => "hidden-characters",
            Self::Incomplete => "incomplete",
            Self::NoDescription => "no-description",
            Self::UnreachableRule => "unreachable-rule",
            Self::OddRule => "odd-rule",
            Self::UnknownPermission => "unknown-permission",
            Self::WrongExample => "wrong-example",
            Self::UnknownAgent => "unknown-agent",
            Self::UnknownModel => "unknown-model",
            Self::NoKey => "no-key",
            Self::NotReadable => "not-readable",
        }
    }
}

/// What follows as long as a deny may stand in what could not be read.
pub(super) const UNTIL_FIXED: &str = "Until it is fixed, edits, tools of MCP servers and commands that are not known to be \
                               harmless are asked about, because it may have denied them.";

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub code: ProblemCode,
    pub severity: ProblemSeverity,
    pub location: SourceLocation,
    /// The way of keys to it, joined by dots; empty for the file as a whole.
    pub key: String,
    /// What was expected and what was found, without a full stop.
    pub message: String,
    /// What to do: mostly the nearest thing that exists. Without a full stop.
    pub hint: Option<String>,
    /// A deny may have stood in what could not be read.
    pub can_hide_deny: bool,
}

impl Problem {
    pub fn new(
        severity: ProblemSeverity,
        code: ProblemCode,
        location: &SourceLocation,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            code,
            location: location.clone(),
            key: key.into(),
            message: message.into(),
            hint: None,
            can_hide_deny: false,
        }
    }

    pub fn error(
        code: ProblemCode,
        location: &SourceLocation,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(ProblemSeverity::Error, code, location, key, message)
    }

    pub fn warning(
        code: ProblemCode,
        location: &SourceLocation,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(ProblemSeverity::Warning, code, location, key, message)
    }

    pub fn note(
        code: ProblemCode,
        location: &SourceLocation,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(ProblemSeverity::Note, code, location, key, message)
    }

    /// An old spelling at a location.
    pub fn deprecated(location: &SourceLocation, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ProblemSeverity::Deprecated, ProblemCode::OldSpelling, location, key, message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Suggests the nearest of some words, where one is near.
    #[must_use]
    pub fn nearest<'a>(mut self, word: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        if let Some(near) = nearest(word, known) {
            self.hint = Some(format!("did you mean \"{near}\"?"));
        }
        self
    }
}

impl Problem {
    /// For programs; a line and column of 0 mean the file as a whole.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "code": self.code.as_str(),
            "severity": self.severity.as_str(),
            "file": self.location.origin.name,
            "line": self.location.line,
            "column": self.location.column,
            "key": self.key,
            "message": self.message,
            "hint": self.hint,
            "canHideDeny": self.can_hide_deny,
        })
    }

    /// The problem, as a sentence, and what follows as long as it may hide a deny.
    pub fn until_fixed(&self) -> String {
        let text = self.to_string();
        let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
        format!("{text}{end} {UNTIL_FIXED}")
    }

    /// What is wrong and what to do, without where.
    pub fn what(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what())
    }
}
