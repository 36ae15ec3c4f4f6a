//! Rules as data: `{permission, pattern, action}` in an ordered list. How the objects people write
//! become such a list, `config` says.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::wildcard;

pub use super::rule_list::Rules;

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
    /// Where it was written, for people: a file, `built in`, a variable.
    #[serde(default)]
    pub source: String,
}

/// Where the program's own rules come from.
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

/// The modern name of an old key; none where it is not old. `list`, `todoread` and `codesearch` are
/// still keys of ours.
pub fn modern(key: &str) -> Option<&'static str> {
    match key {
        "write" | "patch" | "multiedit" | "apply_patch" => Some("edit"),
        "ls" => Some("list"),
        _ => None,
    }
}

/// What holds where nobody wrote anything.
pub fn base(data_dir: &Path, tmp_dir: &Path, skill_dirs: &[impl AsRef<Path>]) -> Rules {
    use Action::{Allow, Ask, Deny};
    let mut rules = Rules::built_in(&[("*", "*", Allow), ("doom_loop", "*", Ask), ("external_directory", "*", Ask)]);
    let mut outside = |dir: &Path| {
        let pattern = format!("{}/*", dir.display());
        let source = BUILT_IN.into();
        rules.extend([Rule { permission: "external_directory".into(), pattern, action: Allow, source }]);
    };
    outside(&data_dir.join("tool-output"));
    outside(tmp_dir);
    for dir in skill_dirs {
        outside(dir.as_ref());
    }
    rules.then(&Rules::built_in(&[
        ("question", "*", Deny),
        ("plan_enter", "*", Deny),
        ("plan_exit", "*", Deny),
        ("read", "*", Allow),
        ("read", "*.env", Ask),
        ("read", "*.env.*", Ask),
        ("read", "*.env.example", Allow),
    ]))
}

/// The rules of a subagent: its own, then every deny of its parent's agent and session, so that what
/// the parent may not do, it may not do either. Exceptions to a parent's deny are not handed down. The plan
/// is the parent's, unless rules that somebody wrote for the subagent allow it one.
pub fn derive(child: &Rules, parent_agent: &Rules, parent_session: &Rules) -> Rules {
    let denies = parent_agent.iter().chain(parent_session.iter()).filter(|rule| rule.action == Action::Deny);
    let mut rules = child.clone();
    for plan in ["todowrite", "todoread"] {
        let written = |rule: &&Rule| rule.permission == plan && rule.source != BUILT_IN;
        if child.iter().rfind(written).is_none_or(|rule| rule.action == Action::Deny) {
            rules = rules.then(&Rules::built_in(&[(plan, "*", Action::Deny)]));
        }
    }
    rules.extend(denies.cloned());
    rules
}

#[cfg(test)]
mod tests {
    use super::super::{Need, evaluate};
    use super::*;
    use Action::{Allow, Ask, Deny};

    fn judge(rules: &Rules, permission: &str, pattern: &str) -> Action {
        evaluate(rules, &Rules::default(), &Need::new(permission, pattern)).action
    }

    #[test]
    fn a_subagent_has_no_plan_unless_somebody_wrote_that_it_has() {
        let everything = Rules::built_in(&[("*", "*", Allow), ("todowrite", "*", Allow)]);
        let child = derive(&everything, &everything, &Rules::default());
        assert_eq!((judge(&child, "todowrite", "*"), judge(&child, "todoread", "*")), (Deny, Deny));
        assert_eq!(judge(&child, "read", "a"), Allow);
        let written = everything.clone().then(&Rules::written("todowrite", &[("*", Allow)]));
        let child = derive(&written, &everything, &Rules::default());
        assert_eq!((judge(&child, "todowrite", "*"), judge(&child, "todoread", "*")), (Allow, Deny));
    }

    #[test]
    fn later_rules_win_and_denies_ignore_case() {
        let edits = [("*", Ask), ("docs/*", Allow), ("/h/x", Deny), ("docs/secret*", Deny), ("old/*", Deny)];
        let rules = Rules::written("*", &[("*", Allow)])
            .then(&Rules::written("edit", &edits))
            .then(&Rules::written("webfetch", &[("*", Deny)]));
        let table = [
            ("edit", "docs/a", Allow),
            ("edit", "src/a", Ask),
            ("edit", "/h/x", Deny),
            ("edit", "docs/secret.md", Deny),
            ("edit", "DOCS/SECRET.md", Deny),
            ("edit", "docs/SECRET.md", Deny),
            ("edit", "old/a", Deny),
            ("webfetch", "https://x", Deny),
            ("anything", "x", Allow),
        ];
        for (permission, pattern, action) in table {
            assert_eq!(judge(&rules, permission, pattern), action, "{permission} {pattern}");
        }
    }

    /// A deny yields to a later rule that is narrower or says the same, not to a broader one.
    #[test]
    fn a_broader_rule_does_not_lift_a_deny() {
        type Row = (&'static [(&'static str, Action)], &'static str, Action);
        let table: [Row; 7] = [
            (&[("src/*", Deny), ("*", Allow)], "src/a", Deny),
            (&[("*", Deny), ("src/*", Allow)], "src/a", Allow),
            (&[("src/x/*", Deny), ("src/*", Allow)], "src/x/a", Deny),
            (&[("src/x/*", Deny), ("src/*", Ask)], "src/x/a", Deny),
            (&[("src/*", Deny), ("src/x/*", Allow)], "src/x/a", Allow),
            (&[("src/*", Deny), ("src/*", Allow)], "src/a", Allow),
            (&[("src/*", Allow), ("src/x*", Deny), ("src/x/y*", Allow), ("src/*", Allow)], "src/x/y", Allow),
        ];
        for (entries, pattern, action) in table {
            assert_eq!(judge(&Rules::written("edit", entries), "edit", pattern), action, "{entries:?} on {pattern}");
        }
    }

    #[test]
    fn a_child_inherits_every_deny() {
        let child = Rules::built_in(&[("*", "*", Allow), ("edit", "src/*", Allow)]);
        let parent = Rules::built_in(&[("edit", "*", Deny), ("bash", "*", Allow)]).then(&Rules::read_only());
        let session = Rules::built_in(&[("webfetch", "*", Deny)]);
        let rules = derive(&child, &parent, &session);
        assert_eq!(judge(&rules, "edit", "src/a"), Deny);
        assert_eq!(judge(&rules, "webfetch", "x"), Deny);
        assert_eq!(judge(&rules, "read", "x"), Allow);
        assert!(rules.iter().any(|rule| rule.permission == POSTURE.0 && rule.action == Deny));
    }

    #[test]
    fn reading_secrets_asks_unless_a_rule_names_them() {
        let base = base(Path::new("/data"), Path::new("/tmp/s"), &["/skills"]);
        let need = Need { floor: Some((Ask, "secret".into())), ..Need::new("read", ".env") };
        let with = |pattern: &str| {
            evaluate(&base.clone().then(&Rules::written("read", &[(pattern, Allow)])), &Rules::default(), &need).action
        };
        assert_eq!(with("*"), Ask);
        assert_eq!(with(".env"), Allow);
        assert_eq!(judge(&base, "external_directory", "/skills/x"), Allow);
        assert_eq!(judge(&base, "external_directory", "/etc/*"), Ask);
        assert_eq!(judge(&base, "question", "*"), Deny);
    }
}
