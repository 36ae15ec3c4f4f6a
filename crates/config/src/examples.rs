//! `$examples` in a permission object: commands, paths and addresses with their expected verdicts.
//! They are checked when the file is read. If one is wrong, the rules differ from their author's
//! intention, and nothing that the file allows takes effect.

use super::file::EXAMPLES_KEY;
use super::node::{Node, NodeValue};
use super::problem::{Problem, ProblemCode};
use super::reader::ConfigReader;
use super::rules;
use permission::url_verdict::{UrlVerdict, judge_url};
use permission::{AccessRequest, Action, PermissionContext, Rules, command_request, evaluate};

/// Checks the examples of a settings file and removes them.
pub(crate) fn in_file(node: &mut Node, reader: &mut ConfigReader<'_>) {
    let general = node
        .get("permission")
        .map(|node| rules::rules(node, reader.environment.home.as_deref()));
    let general = general.unwrap_or_default();
    let mut is_correct = true;
    if let Some(permission) = child_mut(node, "permission") {
        is_correct &= check(permission, "permission", &Rules::default(), reader);
    }
    for agent in child_mut(node, "agent")
        .and_then(Node::entries_mut)
        .into_iter()
        .flatten()
    {
        if let Some(permission) = child_mut(&mut agent.node, "permission") {
            is_correct &= check(
                permission,
                &format!("agent.{}.permission", agent.key),
                &general,
                reader,
            );
        }
    }
    if is_correct {
        return;
    }
    if let Some(permission) = child_mut(node, "permission") {
        remove_allows(permission);
    }
    for agent in child_mut(node, "agent")
        .and_then(Node::entries_mut)
        .into_iter()
        .flatten()
    {
        if let Some(permission) = child_mut(&mut agent.node, "permission") {
            remove_allows(permission);
        }
    }
}

/// Checks the examples in an agent's front matter and removes them.
pub(crate) fn check_agent_examples(node: &mut Node, reader: &mut ConfigReader<'_>) {
    if let Some(permission) = child_mut(node, "permission")
        && !check(permission, "permission", &Rules::default(), reader)
    {
        remove_allows(permission);
    }
}

fn child_mut<'n>(node: &'n mut Node, key: &str) -> Option<&'n mut Node> {
    node.entries_mut()?
        .iter_mut()
        .find(|entry| entry.key == key)
        .map(|entry| &mut entry.node)
}

/// Returns whether all examples of one permission object have their expected verdicts. They are
/// judged by that object alone, on top of `under`; everything else is allowed.
fn check(permission: &mut Node, path: &str, under: &Rules, reader: &mut ConfigReader<'_>) -> bool {
    let Some(examples) = permission.take(EXAMPLES_KEY) else {
        return true;
    };
    let environment = reader.environment;
    let context = PermissionContext::new(environment, reader.worktree, &reader.worktree.root);
    let rules = Rules::built_in(&[("*", "*", Action::Allow)])
        .then(under)
        .then(&rules::rules(permission, environment.home.as_deref()));
    let mut is_correct = true;
    for entry in examples.node.entries() {
        let (Some(wanted), NodeValue::List(cases)) = (rules::action(&entry.key), &entry.node.value)
        else {
            continue;
        };
        for case in cases {
            for (key, text) in cases_of(case) {
                let (action, why) = judge(&rules, key, text, &context);
                if action == wanted {
                    continue;
                }
                is_correct = false;
                let found = format!(
                    "{text:?} is {} by these rules, not {}{why}",
                    verdict_text(action),
                    verdict_text(wanted)
                );
                let problem = Problem::error(
                    ProblemCode::WrongExample,
                    &case.at,
                    format!("{path}.{EXAMPLES_KEY}.{}", entry.key),
                    found,
                );
                reader
                    .problems
                    .push(problem.hint("until they agree, nothing that this file allows applies"));
            }
        }
    }
    is_correct
}

/// Returns the cases of an example: `"git status"` is a command; `{"edit": "src/a.rs"}` names its
/// permission.
fn cases_of(case: &Node) -> Vec<(&str, &str)> {
    match case.as_text() {
        Some(text) => vec![("bash", text)],
        None => case
            .entries()
            .iter()
            .filter_map(|entry| Some((entry.key.as_str(), entry.node.as_text()?)))
            .collect(),
    }
}

fn judge(rules: &Rules, key: &str, text: &str, context: &PermissionContext) -> (Action, String) {
    let request = match key {
        "bash" => command_request(text, context),
        "webfetch" => {
            return match judge_url(rules, text, &[], &[]) {
                UrlVerdict::Judged(action, reason) => (action, format!(": {reason}")),
                UrlVerdict::Refused(reason) => (Action::Deny, format!(": {reason}")),
            };
        }
        key => AccessRequest::new(key, text),
    };
    let verdict = evaluate(rules, &Rules::default(), &request);
    let why = match (verdict.reason, verdict.rule) {
        (Some(reason), _) => format!(": {reason}"),
        (None, Some(rule)) => format!(": \"{}\" decides", rule.pattern),
        (None, None) => String::new(),
    };
    (verdict.action, why)
}

fn verdict_text(action: Action) -> &'static str {
    match action {
        Action::Allow => "allowed",
        Action::Ask => "asked about",
        Action::Deny => "denied",
    }
}

fn remove_allows(permission: &mut Node) {
    if permission.as_text() == Some("allow") {
        permission.value = NodeValue::Null;
    }
    if let Some(entries) = permission.entries_mut() {
        entries.retain(|entry| entry.node.as_text() != Some("allow"));
        entries
            .iter_mut()
            .for_each(|entry| remove_allows(&mut entry.node));
    }
}
