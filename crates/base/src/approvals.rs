//! How much of what the rules leave open is asked, as the user wants it in a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether to ask. What is denied stays denied in all three. Ordered: a later one asks more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Approvals {
    /// As the default, but what rules ask about and a sandbox without network holds is not asked.
    Sandboxed,
    /// What rules ask about, and where something is at stake that the sandbox does not hold.
    #[default]
    Default,
    /// Besides, every edit, every tool of a server and every command that is not known to be harmless.
    Ask,
}

impl Approvals {
    /// All, as they are offered.
    pub const ALL: [Self; 3] = [Self::Default, Self::Ask, Self::Sandboxed];

    /// As it is written in settings and told to editors.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Ask => "ask",
            Self::Sandboxed => "sandboxed",
        }
    }

    /// The one that is written like this.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word)
    }
}
