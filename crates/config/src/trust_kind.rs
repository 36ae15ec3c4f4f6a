//! The kinds of parts of a project's settings that need the user's trust.

/// A kind of part that needs trust, by its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustKind {
    /// A program is started as an MCP server, or a remote server is contacted.
    Mcp,
    Formatter,
    LanguageServer,
    /// A command runs on an event of a session.
    Hook,
    /// A JavaScript or TypeScript file is loaded.
    Extension,
    /// A slash command runs a command line before it is sent.
    Command,
    /// A rule allows calls that would otherwise be asked about or denied.
    Permission,
    /// Requests, with the user's key, go to an address that the project names.
    Provider,
    /// A variable, a file outside the project, or a file that may not be read without a question,
    /// is inserted into the settings.
    Reads,
    /// Commands get a wider sandbox than the user's settings grant.
    Sandbox,
    /// Instructions or skills are fetched from an address or read from outside the project.
    Fetches,
}

impl TrustKind {
    /// Returns the display name, in the singular and in the plural.
    pub(crate) fn display_names(self) -> [&'static str; 2] {
        match self {
            Self::Mcp => ["MCP server", "MCP servers"],
            Self::Formatter => ["formatter", "formatters"],
            Self::LanguageServer => ["language server", "language servers"],
            Self::Hook => ["hook", "hooks"],
            Self::Extension => ["custom tool or plugin", "custom tools or plugins"],
            Self::Command => [
                "command with a shell insert",
                "commands with a shell insert",
            ],
            Self::Permission => ["looser rule", "looser rules"],
            Self::Provider => ["provider address or key", "provider addresses or keys"],
            Self::Reads => [
                "value from outside the project",
                "values from outside the project",
            ],
            Self::Sandbox => ["wider sandbox", "wider sandboxes"],
            Self::Fetches => ["text from elsewhere", "texts from elsewhere"],
        }
    }

    /// Returns the kind with this name. Kinds that run something are not among them: their items
    /// state what runs.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [
            Self::Permission,
            Self::Provider,
            Self::Reads,
            Self::Sandbox,
            Self::Fetches,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == name)
    }

    /// Returns the rank in lists for the user: first the kinds that run code on events that the user
    /// does not see, last the tools that check and format files.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Hook | Self::Extension => 0,
            Self::Mcp | Self::Command => 1,
            Self::Permission | Self::Provider | Self::Reads | Self::Sandbox | Self::Fetches => 2,
            Self::LanguageServer | Self::Formatter => 3,
        }
    }

    /// Returns the display name in the singular.
    pub fn as_str(self) -> &'static str {
        self.display_names()[0]
    }
}
