//! A rule: `{permission, pattern, action}`. How the objects people write become rules, `config` says.

use serde::{Deserialize, Serialize};

use super::wildcard;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Allow,
    Ask,
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// A wildcard over permission keys.
    pub permission: String,
    /// A wildcard over what is touched.
    pub pattern: String,
    pub action: Action,
    /// The place where it was written, for people: a file, `built in`, a variable.
    #[serde(default)]
    pub source: String,
}

/// The source of the program's own rules.
pub const BUILT_IN: &str = "built in";

/// The key of the rule that makes an agent read-only: `posture`, pattern `read-only`, action deny.
/// From there on a command line is allowed where it is proven to change nothing, denied where it is
/// proven to change something (plan files aside), and asked about otherwise. It is a deny, so that
/// subagents inherit it; a later `bash` rule of the same agent still decides what it matches.
pub const POSTURE: (&str, &str) = ("posture", "read-only");

impl Rule {
    /// Whether this rule decides what a search may show.
    pub fn is_about_reading(&self) -> bool {
        ["read", "external_directory"].iter().any(|one| wildcard::matches(&self.permission, one))
    }

    /// Whether this rule is strictly broader than another: everything the other one speaks about is
    /// also spoken about here, and more.
    pub(super) fn broader_than(&self, other: &Self) -> bool {
        let covers = |a: &Self, b: &Self| {
            wildcard::covers(&a.permission, &b.permission) && wildcard::covers(&a.pattern, &b.pattern)
        };
        covers(self, other) && !covers(other, self)
    }
}
