//! Problems in settings, reported with a location and a hint so that the user can fix them.

use base::text::nearest;
use std::fmt;

use super::node::SourceLocation;
use transcript::ModelRef;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemSeverity {
    /// Information, such as a key without effect.
    Note,
    /// An old spelling that still works.
    Deprecated,
    /// The value is used, but probably not as intended.
    Warning,
    /// The value is not used; the rest is.
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

/// The kind of a problem. Programs rely on it, never on the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemCode {
    /// The text is not valid JSON, YAML or UTF-8.
    Syntax,
    /// The system refuses to read the file, or it is not a regular file.
    Unreadable,
    /// A value of another type, or out of range.
    WrongValue,
    /// The key is unknown.
    UnknownKey,
    /// A key, value or location that has a newer spelling.
    OldSpelling,
    /// A key of a later format of OpenCode.
    LaterFormat,
    /// Valid, but without effect.
    NoEffect,
    /// The same key or name twice.
    Duplicate,
    /// A setting that only the user may make.
    NotForProjects,
    /// Not in effect until the user trusts the project.
    Untrusted,
    /// A trusted hook or plugin that could refuse calls needs trust again.
    LostGuard,
    /// A named file or directory that does not exist.
    MissingFile,
    /// An environment variable that is not set.
    UnsetVariable,
    /// A link that leads out of the project, or in a circle.
    Link,
    TooMuch,
    /// Invisible characters were removed.
    HiddenCharacters,
    /// A required part is missing.
    Incomplete,
    /// Usable, but models get no description of it.
    NoDescription,
    /// A rule that a later one always overrules.
    UnreachableRule,
    /// A rule that does less or more than it seems to.
    OddRule,
    /// A permission that no tool asks for.
    UnknownPermission,
    /// An example that has another verdict.
    WrongExample,
    /// An agent that does not exist, or that cannot be used like this.
    UnknownAgent,
    UnknownModel,
    /// A known model of a provider without a key.
    NoKey,
    /// A file that may not be read.
    NotReadable,
}

impl ProblemCode {
    /// Returns the code as in `config check --json`, such as `unknown-key`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Unreadable => "unreadable",
            Self::WrongValue => "wrong-value",
            Self::UnknownKey => "unknown-key",
            Self::OldSpelling => "old-spelling",
            Self::LaterFormat => "later-format",
            Self::NoEffect => "no-effect",
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

/// The consequence as long as unreadable settings may contain a deny.
pub(super) const UNTIL_FIXED: &str = "Until it is fixed, edits, tools of MCP servers and commands that are not known to be \
                               harmless are asked about, because it may have denied them.";

/// A mistake in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub code: ProblemCode,
    pub severity: ProblemSeverity,
    pub location: SourceLocation,
    /// The keys that lead to it, joined by dots; empty for the whole file.
    pub key: String,
    /// The expected and the found value, without a full stop.
    pub message: String,
    /// The remedy, mostly the nearest existing name. Without a full stop.
    pub hint: Option<String>,
    /// True if the unreadable part may have contained a deny.
    pub can_hide_deny: bool,
    /// The part of the message that differs between problems of one kind, if it is not in quotation
    /// marks.
    pub subject: Option<String>,
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
            subject: None,
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

    /// Creates a problem of an old spelling.
    pub fn deprecated(
        location: &SourceLocation,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::new(
            ProblemSeverity::Deprecated,
            ProblemCode::OldSpelling,
            location,
            key,
            message,
        )
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the part of the message that differs between problems of one kind.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Returns whether it is about this model, which cannot be used.
    pub fn is_about_model(&self, model: &ModelRef) -> bool {
        let is_of_model = matches!(self.code, ProblemCode::NoKey | ProblemCode::UnknownModel);
        is_of_model && self.subject.as_ref() == Some(&model.to_string())
    }

    /// Suggests the nearest of the known words, if one is similar.
    #[must_use]
    pub fn nearest<'a>(mut self, word: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        if let Some(near) = nearest(word, known) {
            self.hint = Some(format!("did you mean \"{near}\"?"));
        }
        self
    }
}

impl Problem {
    /// Returns the problem as JSON, for programs. A line and column of 0 mean the whole file.
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

    /// Returns the problem as a sentence, followed by the consequence as long as it may hide a
    /// deny.
    pub fn until_fixed(&self) -> String {
        let text = self.to_string();
        let end = if text.ends_with(['.', '?', '!']) {
            ""
        } else {
            "."
        };
        format!("{text}{end} {UNTIL_FIXED}")
    }

    /// Returns the message and the hint, without the location.
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
        // The key of a file that is a setting as a whole is its name.
        if !self.key.is_empty() && self.key != self.location.origin.name {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what())
    }
}
