//! The number of questions that a session asks, as chosen by the user.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether to ask. What is denied stays denied in all three. Ordered: a later one asks more.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
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
    /// All levels, in the order in which they are offered.
    pub const ALL: [Self; 3] = [Self::Default, Self::Ask, Self::Sandboxed];

    /// Returns the name that settings and the protocol use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Ask => "ask",
            Self::Sandboxed => "sandboxed",
        }
    }

    /// Returns the level with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}
