//! A permission [`Rule`] (`{permission, pattern, action}`) and its [`Action`], of which a later one
//! is stricter. `config` turns the settings into rules.

use serde::{Deserialize, Serialize};

use super::wildcard;

#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Allow,
    Ask,
    Deny,
}

/// A permission rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// A wildcard for permission keys.
    pub permission: String,
    /// A wildcard for the objects of a request: paths, commands, addresses.
    pub pattern: String,
    pub action: Action,
    /// The origin of the rule, for people: a file, `built in`, a variable.
    #[serde(default)]
    pub source: String,
}

/// The source of built-in rules.
pub const BUILT_IN: &str = "built in";

/// The permission and pattern of the deny that makes an agent read-only.
///
/// From there on a command line is allowed if it is proven to change nothing, denied if it is
/// proven to change something (except plan files), and asked about otherwise. It is a deny, so that
/// subagents inherit it. A later `bash` rule of the same agent still decides on commands that it
/// matches.
pub const POSTURE: (&str, &str) = ("posture", "read-only");

/// The permission to use paths outside of the project.
pub const OUTSIDE: &str = "external_directory";

/// The permission of grants to read and list outside of the project. Only grants have it: a rule of
/// the settings about [`OUTSIDE`] is about all uses, as in OpenCode, and so is a grant of
/// [`OUTSIDE`].
pub const READING_OUTSIDE: &str = "external_directory:read";

impl Rule {
    /// Returns whether this rule affects which files a search may show.
    pub fn is_about_reading(&self) -> bool {
        ["read", "external_directory"]
            .iter()
            .any(|permission| wildcard::matches(&self.permission, permission))
    }

    /// Returns whether this rule is strictly broader than another: it applies to everything that
    /// the other applies to, and to more.
    pub(super) fn broader_than(&self, other: &Self) -> bool {
        covers(self, other) && !covers(other, self)
    }
}

fn covers(broad: &Rule, narrow: &Rule) -> bool {
    wildcard::covers(&broad.permission, &narrow.permission)
        && wildcard::covers(&broad.pattern, &narrow.pattern)
}
