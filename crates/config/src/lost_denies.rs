//! Finds the problems of settings that may have hidden a deny. An unreadable file may have denied
//! anything, and so may a key, value or name among the rules that is not understood. Until such a
//! problem is fixed, adjutant asks about everything that `"approvals": "ask"` asks about: see
//! [`permission::Policy::judge`].
//!
//! Problems that cannot have hidden a deny do not count: a misspelt model, an invalid number of
//! `steps`, a rule that only allows. A rule for a permission that no tool asks for (`bahs`,
//! `shell`) counts, unless the name has the form of an MCP tool (`jira_search`) or there are
//! plugins, whose tools are known only once they run.

use super::node::{Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode, ProblemSeverity};

/// Top-level keys that can deny or guard something.
const RESTRICTING_KEYS: [&str; 8] = [
    "permission",
    "permissions",
    "tools",
    "agent",
    "mode",
    "approvals",
    "sandbox",
    "hook",
];

/// Keys of an agent that can deny something.
const AGENT_KEYS: [&str; 3] = ["permission", "permissions", "tools"];

/// Keys of `sandbox` that restrict commands further.
const SANDBOX_KEYS: [&str; 4] = ["hide", "mode", "network", "unattended"];

/// Returns whether a problem of a settings text may hide a deny, judged by its code and key. For
/// unknown keys and names, the code that reports the problem decides, because it depends on their
/// value.
pub(crate) fn is_possible(problem: &Problem) -> bool {
    let is_error = problem.severity == ProblemSeverity::Error;
    let is_unread = match problem.code {
        ProblemCode::Syntax | ProblemCode::TooMuch | ProblemCode::UnsetVariable => true,
        ProblemCode::Unreadable
        | ProblemCode::Link
        | ProblemCode::MissingFile
        | ProblemCode::WrongValue
        | ProblemCode::WrongExample
        | ProblemCode::Duplicate
        | ProblemCode::LaterFormat
        | ProblemCode::Incomplete => is_error,
        _ => false,
    };
    // An empty command cannot have denied anything.
    let is_whole = problem.key.is_empty() && problem.code != ProblemCode::Incomplete;
    let can_forbid = if is_front_matter(&problem.location) {
        problem
            .key
            .split('.')
            .next()
            .is_some_and(|key| AGENT_KEYS.contains(&key))
    } else {
        forbids(&problem.key)
    };
    is_unread && (is_whole || can_forbid)
}

/// Returns whether a location is in the front matter of an agent or a command. Its top-level keys
/// are those of one agent or command.
fn is_front_matter(location: &SourceLocation) -> bool {
    location
        .origin
        .path
        .as_ref()
        .is_some_and(|path| path.extension().is_some_and(|extension| extension == "md"))
}

/// Returns whether a key can contain a deny or a guard. A name that is substituted from a variable
/// or a file can be any key.
fn forbids(key: &str) -> bool {
    let mut path = key.split('.');
    let first = path.next().unwrap_or_default();
    let rest: Vec<&str> = path.collect();
    match first {
        "agent" | "mode" => {
            rest.len() < 2 || rest.iter().skip(1).any(|key| AGENT_KEYS.contains(key))
        }
        "hook" => rest.last() != Some(&"timeout"),
        _ => {
            RESTRICTING_KEYS.contains(&first)
                || first.starts_with("{env:")
                || first.starts_with("{file:")
        }
    }
}

/// Returns whether the value of an unknown key may have denied something, if the key was meant to
/// be `near`.
pub(crate) fn may_be_misspelt_deny(path: &[String], near: &str, value: &Node) -> bool {
    let known = match path {
        [_] if is_front_matter(&value.at) => AGENT_KEYS.contains(&near),
        [_] => RESTRICTING_KEYS.contains(&near),
        [first, _] if first == "sandbox" => SANDBOX_KEYS.contains(&near),
        [first, _, _] if matches!(first.as_str(), "agent" | "agents" | "mode") => {
            AGENT_KEYS.contains(&near)
        }
        _ => false,
    };
    known && (near == "hook" || is_stricter(value))
}

/// Returns whether a value does more than allow something.
pub(crate) fn is_stricter(value: &Node) -> bool {
    match &value.value {
        NodeValue::Null => false,
        NodeValue::Bool(is_allowed) => !is_allowed,
        NodeValue::Text(text) => text != "allow",
        NodeValue::Number(_) => true,
        NodeValue::List(items) => items.iter().any(is_stricter),
        NodeValue::Map(entries) => entries.iter().any(|entry| is_stricter(&entry.node)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::node::{ConfigOrigin, Layer, SourceLocation};
    use super::*;

    #[test]
    fn problem_hides_deny_if_its_key_may_contain_one() {
        use ProblemCode::{
            Duplicate, Incomplete, Link, MissingFile, Syntax, UnsetVariable, WrongExample,
            WrongValue,
        };
        use ProblemSeverity::{Error, Warning};
        let table = [
            ("a file", Error, Syntax, "", true),
            ("a command's front matter", Warning, Syntax, "", true),
            ("a cycle of links", Warning, Link, "", false),
            ("a link to nothing", Error, Link, "", true),
            ("an empty command", Error, Incomplete, "", false),
            ("an action", Error, WrongValue, "permission.bash", true),
            ("an old switch", Error, WrongValue, "tools.bash", true),
            ("an agent", Error, WrongValue, "agent.build", true),
            (
                "an agent's rule",
                Error,
                WrongValue,
                "agent.build.permission.bash.rm *",
                true,
            ),
            (
                "an agent's steps",
                Error,
                WrongValue,
                "agent.build.steps",
                false,
            ),
            (
                "an agent's prompt",
                Error,
                MissingFile,
                "agent.build.prompt",
                false,
            ),
            (
                "two agents of one name",
                Warning,
                Duplicate,
                "agent.build",
                false,
            ),
            ("a rule twice", Error, Duplicate, "permission.bash", true),
            (
                "an example",
                Error,
                WrongExample,
                "permission.$examples.deny",
                true,
            ),
            (
                "a guard without a command",
                Error,
                Incomplete,
                "hook.guard",
                true,
            ),
            (
                "a guard's timeout",
                Error,
                WrongValue,
                "hook.guard.timeout",
                false,
            ),
            (
                "a permission from a variable",
                Warning,
                UnsetVariable,
                "permission.{env:TOOL}",
                true,
            ),
            ("a key from a file", Error, MissingFile, "{file:key}", true),
            (
                "a provider's key",
                Error,
                MissingFile,
                "provider.a.options.apiKey",
                false,
            ),
            ("a model", Error, WrongValue, "model", false),
        ];
        let origin = ConfigOrigin {
            name: "f".into(),
            path: None,
            layer: Layer::Global,
            project: false,
        };
        let location = SourceLocation::whole_text(&Arc::new(origin));
        for (case, severity, code, key, expected) in table {
            let problem = Problem::new(severity, code, &location, key, case);
            assert_eq!(is_possible(&problem), expected, "{case}");
        }
        let table = [
            ("an agent's mode", WrongValue, "mode", false),
            ("a command's agent", WrongValue, "agent", false),
            ("an agent's switches", WrongValue, "tools", true),
            ("an agent's rule", WrongValue, "permission.bash", true),
            ("front matter that is not YAML", Syntax, "", true),
        ];
        let path = Some("/p/.opencode/agent/a.md".into());
        let origin = ConfigOrigin {
            name: "a.md".into(),
            path,
            layer: Layer::Global,
            project: false,
        };
        let location = SourceLocation::whole_text(&Arc::new(origin));
        for (case, code, key, expected) in table {
            let problem = Problem::new(Error, code, &location, key, case);
            assert_eq!(is_possible(&problem), expected, "{case}, in front matter");
        }
    }

    #[test]
    fn misspelt_key_hides_deny_if_it_may_restrict() {
        let origin = ConfigOrigin {
            name: "f".into(),
            path: None,
            layer: Layer::Global,
            project: false,
        };
        let at = SourceLocation::whole_text(&Arc::new(origin));
        let value = |is_allowed| Node {
            value: NodeValue::Bool(is_allowed),
            at: at.clone(),
        };
        let path = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        assert!(may_be_misspelt_deny(
            &path(&["sandbox", "netwrk"]),
            "network",
            &value(false)
        ));
        assert!(!may_be_misspelt_deny(
            &path(&["sandbox", "netwrk"]),
            "network",
            &value(true)
        ));
        assert!(!may_be_misspelt_deny(
            &path(&["sandbox", "writeable"]),
            "writable",
            &value(false)
        ));
        assert!(!may_be_misspelt_deny(
            &path(&["agent", "build", "step"]),
            "steps",
            &value(false)
        ));
    }
}
