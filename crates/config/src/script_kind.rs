//! The kinds of files that extend sessions.

/// A kind of file that extends sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptKind {
    Tool,
    /// A module whose exported functions return hooks and tools.
    Plugin,
}

impl ScriptKind {
    /// Returns the display name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Plugin => "plugin",
        }
    }
}
