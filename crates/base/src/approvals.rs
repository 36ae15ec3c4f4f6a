//! The approvals of a session: how many questions it asks, as chosen by the user.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The level of approvals. A denied call stays denied in all three. The levels are ordered: a later
/// one asks more.
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
    /// Like the default, but skips questions that rules require about actions that a sandbox
    /// without network contains.
    Sandboxed,
    /// Asks if rules require it, or if an action is risky and the sandbox does not contain it.
    #[default]
    Default,
    /// Also asks about every edit, every MCP tool and every command that is not known to be
    /// harmless.
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
