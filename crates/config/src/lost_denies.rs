//! Which problems may have kept a deny from being read. A file that cannot be read may have denied anything, and so
//! may a key, a value or a name among the rules that is not understood. Until such a problem is solved, what
//! `"approvals": "ask"` asks about is asked: [`permission::approve::judge_in_doubt`].
//!
//! What cannot have denied anything does not count: a model that is misspelt, an agent's `steps` that is no number, a
//! rule that only allows. A permission that no tool here has counts (`bahs`, `shell`), unless its name is that of a
//! server's tool (`jira_search`) or plugins are there, whose tools are known only once they run.

use super::node::{Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode, ProblemSeverity};

/// Keys under which something can be denied or guarded, at the top of a file.
const FORBIDDING: [&str; 8] = ["permission", "permissions", "tools", "agent", "mode", "approvals", "sandbox", "hook"];

/// What of these can stand in one agent.
const OF_AN_AGENT: [&str; 3] = ["permission", "permissions", "tools"];

/// What confines commands further, in `sandbox`.
const OF_THE_SANDBOX: [&str; 4] = ["hide", "mode", "network", "unattended"];

/// Whether a problem that was found in a settings text may hide a deny, by what it is and where it was found. Unknown
/// keys and names say so themselves, because their value decides.
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
        problem.key.split('.').next().is_some_and(|key| OF_AN_AGENT.contains(&key))
    } else {
        forbids(&problem.key)
    };
    is_unread && (is_whole || can_forbid)
}

/// Returns whether a place is in the front matter of an agent or a command, whose keys stand at the top.
fn is_front_matter(place: &SourceLocation) -> bool {
    place.origin.path.as_ref().is_some_and(|path| path.extension().is_some_and(|extension| extension == "md"))
}

/// Whether a deny or a guard can stand under a key. A name that is filled in from elsewhere can be any.
fn forbids(key: &str) -> bool {
    let mut way = key.split('.');
    let first = way.next().unwrap_or_default();
    let rest: Vec<&str> = way.collect();
    match first {
        "agent" | "mode" => rest.len() < 2 || rest.iter().skip(1).any(|key| OF_AN_AGENT.contains(key)),
        "hook" => rest.last() != Some(&"timeout"),
        _ => FORBIDDING.contains(&first) || first.starts_with("{env:") || first.starts_with("{file:"),
    }
}

/// Whether the value of an unknown key may have denied something, if the key was meant to be `near`.
pub(crate) fn is_meant(way: &[String], near: &str, value: &Node) -> bool {
    let known = match way {
        [_] if is_front_matter(&value.at) => OF_AN_AGENT.contains(&near),
        [_] => FORBIDDING.contains(&near),
        [first, _] if first == "sandbox" => OF_THE_SANDBOX.contains(&near),
        [first, _, _] if matches!(first.as_str(), "agent" | "agents" | "mode") => OF_AN_AGENT.contains(&near),
        _ => false,
    };
    known && (near == "hook" || is_stricter(value))
}

/// Whether a value says more than that something is allowed.
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
    fn a_problem_hides_a_deny_where_one_could_have_stood() {
        use ProblemCode::{Duplicate, Incomplete, Link, MissingFile, Syntax, UnsetVariable, WrongExample, WrongValue};
        use ProblemSeverity::{Error, Warning};
        let table = [
            ("a file", Error, Syntax, "", true),
            ("a command's front matter", Warning, Syntax, "", true),
            ("a circle of links", Warning, Link, "", false),
            ("a link to nothing", Error, Link, "", true),
            ("an empty command", Error, Incomplete, "", false),
            ("an action", Error, WrongValue, "permission.bash", true),
            ("an old switch", Error, WrongValue, "tools.bash", true),
            ("an agent", Error, WrongValue, "agent.build", true),
            ("an agent's rule", Error, WrongValue, "agent.build.permission.bash.rm *", true),
            ("an agent's steps", Error, WrongValue, "agent.build.steps", false),
            ("an agent's prompt", Error, MissingFile, "agent.build.prompt", false),
            ("two agents of one name", Warning, Duplicate, "agent.build", false),
            ("a rule twice", Error, Duplicate, "permission.bash", true),
            ("an example", Error, WrongExample, "permission.$examples.deny", true),
            ("a guard without a command", Error, Incomplete, "hook.guard", true),
            ("a guard's timeout", Error, WrongValue, "hook.guard.timeout", false),
            ("a permission from a variable", Warning, UnsetVariable, "permission.{env:TOOL}", true),
            ("a key from a file", Error, MissingFile, "{file:key}", true),
            ("a provider's key", Error, MissingFile, "provider.a.options.apiKey", false),
            ("a model", Error, WrongValue, "model", false),
        ];
        let origin = ConfigOrigin { name: "f".into(), path: None, layer: Layer::Global, project: false };
        let place = SourceLocation::whole(&Arc::new(origin));
        for (what, severity, code, key, expected) in table {
            let problem = Problem::new(severity, code, &place, key, what);
            assert_eq!(is_possible(&problem), expected, "{what}");
        }
        let table = [
            ("an agent's mode", WrongValue, "mode", false),
            ("a command's agent", WrongValue, "agent", false),
            ("an agent's switches", WrongValue, "tools", true),
            ("an agent's rule", WrongValue, "permission.bash", true),
            ("a front matter that is no YAML", Syntax, "", true),
        ];
        let path = Some("/p/.opencode/agent/a.md".into());
        let origin = ConfigOrigin { name: "a.md".into(), path, layer: Layer::Global, project: false };
        let place = SourceLocation::whole(&Arc::new(origin));
        for (what, code, key, expected) in table {
            let problem = Problem::new(Error, code, &place, key, what);
            assert_eq!(is_possible(&problem), expected, "{what}, in a front matter");
        }
    }

    #[test]
    fn a_misspelt_key_counts_where_it_may_have_confined() {
        let origin = ConfigOrigin { name: "f".into(), path: None, layer: Layer::Global, project: false };
        let at = SourceLocation::whole(&Arc::new(origin));
        let value = |is_allowed| Node { value: NodeValue::Bool(is_allowed), at: at.clone() };
        let way = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        assert!(is_meant(&way(&["sandbox", "netwrk"]), "network", &value(false)));
        assert!(!is_meant(&way(&["sandbox", "netwrk"]), "network", &value(true)));
        assert!(!is_meant(&way(&["sandbox", "writeable"]), "writable", &value(false)));
        assert!(!is_meant(&way(&["agent", "build", "step"]), "steps", &value(false)));
    }
}
