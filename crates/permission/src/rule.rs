//! The built-in rules, and the rules of subagents.

use std::path::Path;

pub use super::rule_entry::{Action, BUILT_IN, OUTSIDE, POSTURE, READING_OUTSIDE, Rule};
pub use super::rule_list::Rules;

/// Returns the current name of an old permission key, or `None` if the key is not old.
///
/// `list`, `todoread` and `codesearch` are old names too, but still keys of ours.
pub fn modern(key: &str) -> Option<&'static str> {
    match key {
        "write" | "patch" | "multiedit" | "apply_patch" => Some("edit"),
        "ls" => Some("list"),
        _ => None,
    }
}

/// Returns the rules that apply before any settings.
pub fn base(data_dir: &Path, tmp_dir: &Path, skill_dirs: &[impl AsRef<Path>]) -> Rules {
    use Action::{Allow, Ask, Deny};
    let mut rules = Rules::built_in(&[
        ("*", "*", Allow),
        ("doom_loop", "*", Ask),
        ("external_directory", "*", Ask),
    ]);
    let mut allow_outside = |dir: &Path| {
        let pattern = format!("{}/*", dir.display());
        let source = BUILT_IN.into();
        rules.extend([Rule {
            permission: "external_directory".into(),
            pattern,
            action: Allow,
            source,
        }]);
    };
    allow_outside(&data_dir.join("tool-output"));
    allow_outside(tmp_dir);
    for dir in skill_dirs {
        allow_outside(dir.as_ref());
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

/// Returns the rules of a subagent: its own, then every deny of its parent's agent and session.
///
/// A subagent may thus do nothing that its parent may not. Exceptions to a parent's deny are not
/// inherited. The plan belongs to the parent, unless a rule from the settings allows the subagent
/// its own.
pub fn derive(child: &Rules, parent_agent: &Rules, parent_session: &Rules) -> Rules {
    let denies = parent_agent
        .iter()
        .chain(parent_session.iter())
        .filter(|rule| rule.action == Action::Deny);
    let mut rules = child.clone();
    for plan in ["todowrite", "todoread"] {
        let is_from_settings = |rule: &&Rule| rule.permission == plan && rule.source != BUILT_IN;
        if child
            .iter()
            .rfind(is_from_settings)
            .is_none_or(|rule| rule.action == Action::Deny)
        {
            rules = rules.then(&Rules::built_in(&[(plan, "*", Action::Deny)]));
        }
    }
    rules.extend(denies.cloned());
    rules
}

#[cfg(test)]
mod tests {
    use super::super::{AccessRequest, evaluate};
    use super::*;
    use Action::{Allow, Ask, Deny};

    fn judge(rules: &Rules, permission: &str, pattern: &str) -> Action {
        evaluate(
            rules,
            &Rules::default(),
            &AccessRequest::new(permission, pattern),
        )
        .action
    }

    #[test]
    fn subagent_has_no_plan_unless_settings_allow_it() {
        let everything = Rules::built_in(&[("*", "*", Allow), ("todowrite", "*", Allow)]);
        let child = derive(&everything, &everything, &Rules::default());
        assert_eq!(
            (
                judge(&child, "todowrite", "*"),
                judge(&child, "todoread", "*")
            ),
            (Deny, Deny)
        );
        assert_eq!(judge(&child, "read", "a"), Allow);
        let written = everything
            .clone()
            .then(&Rules::written("todowrite", &[("*", Allow)]));
        let child = derive(&written, &everything, &Rules::default());
        assert_eq!(
            (
                judge(&child, "todowrite", "*"),
                judge(&child, "todoread", "*")
            ),
            (Allow, Deny)
        );
    }

    #[test]
    fn later_rules_win_and_denies_ignore_case() {
        let edits = [
            ("*", Ask),
            ("docs/*", Allow),
            ("/h/x", Deny),
            ("docs/secret*", Deny),
            ("old/*", Deny),
        ];
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
            assert_eq!(
                judge(&rules, permission, pattern),
                action,
                "{permission} {pattern}"
            );
        }
    }

    /// A deny yields to a later rule that is narrower or has the same pattern, not to a broader
    /// one.
    #[test]
    fn broader_rule_does_not_lift_a_deny() {
        type Row = (&'static [(&'static str, Action)], &'static str, Action);
        let table: [Row; 7] = [
            (&[("src/*", Deny), ("*", Allow)], "src/a", Deny),
            (&[("*", Deny), ("src/*", Allow)], "src/a", Allow),
            (&[("src/x/*", Deny), ("src/*", Allow)], "src/x/a", Deny),
            (&[("src/x/*", Deny), ("src/*", Ask)], "src/x/a", Deny),
            (&[("src/*", Deny), ("src/x/*", Allow)], "src/x/a", Allow),
            (&[("src/*", Deny), ("src/*", Allow)], "src/a", Allow),
            (
                &[
                    ("src/*", Allow),
                    ("src/x*", Deny),
                    ("src/x/y*", Allow),
                    ("src/*", Allow),
                ],
                "src/x/y",
                Allow,
            ),
        ];
        for (entries, pattern, action) in table {
            assert_eq!(
                judge(&Rules::written("edit", entries), "edit", pattern),
                action,
                "{entries:?} on {pattern}"
            );
        }
    }

    #[test]
    fn subagent_inherits_every_deny_of_its_parent() {
        let child = Rules::built_in(&[("*", "*", Allow), ("edit", "src/*", Allow)]);
        let parent =
            Rules::built_in(&[("edit", "*", Deny), ("bash", "*", Allow)]).then(&Rules::read_only());
        let session = Rules::built_in(&[("webfetch", "*", Deny)]);
        let rules = derive(&child, &parent, &session);
        assert_eq!(judge(&rules, "edit", "src/a"), Deny);
        assert_eq!(judge(&rules, "webfetch", "x"), Deny);
        assert_eq!(judge(&rules, "read", "x"), Allow);
        assert!(
            rules
                .iter()
                .any(|rule| rule.permission == POSTURE.0 && rule.action == Deny)
        );
    }

    #[test]
    fn reading_secrets_asks_unless_a_rule_names_them() {
        let base = base(Path::new("/data"), Path::new("/tmp/s"), &["/skills"]);
        let request = AccessRequest {
            minimum: Some((Ask, "secret".into())),
            ..AccessRequest::new("read", ".env")
        };
        let with = |pattern: &str| {
            evaluate(
                &base
                    .clone()
                    .then(&Rules::written("read", &[(pattern, Allow)])),
                &Rules::default(),
                &request,
            )
            .action
        };
        assert_eq!(with("*"), Ask);
        assert_eq!(with(".env"), Allow);
        assert_eq!(judge(&base, "external_directory", "/skills/x"), Allow);
        assert_eq!(judge(&base, "external_directory", "/etc/*"), Ask);
        assert_eq!(judge(&base, "question", "*"), Deny);
    }
}
