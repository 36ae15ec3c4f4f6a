//! `$examples` in a permission object: commands, paths and addresses with the verdict their author
//! expects. They are checked when the file is read. Where one is wrong, the rules are not what their
//! author thinks they are, and nothing that the file allows counts.

use super::disk::ConfigReader;
use super::node::{Node, NodeValue};
use super::problem::{Problem, ProblemCode};
use super::rules;
use permission::url::judge::{UrlVerdict, judge_url};
use permission::{Action, Need, PermissionContext, Rules, command_need, evaluate};

pub(crate) const KEY: &str = "$examples";

/// Checks the examples of a settings file and takes them out.
pub(crate) fn in_file(node: &mut Node, disk: &mut ConfigReader<'_>) {
    let general = node.get("permission").map(|node| rules::rules(node, disk.environment.home.as_deref()));
    let general = general.unwrap_or_default();
    let mut right = true;
    if let Some(permission) = part(node, "permission") {
        right &= check(permission, "permission", &Rules::default(), disk);
    }
    for agent in part(node, "agent").and_then(Node::entries_mut).into_iter().flatten() {
        if let Some(permission) = part(&mut agent.node, "permission") {
            right &= check(permission, &format!("agent.{}.permission", agent.key), &general, disk);
        }
    }
    if right {
        return;
    }
    if let Some(permission) = part(node, "permission") {
        without_allow(permission);
    }
    for agent in part(node, "agent").and_then(Node::entries_mut).into_iter().flatten() {
        if let Some(permission) = part(&mut agent.node, "permission") {
            without_allow(permission);
        }
    }
}

/// Checks the examples in an agent's front matter and takes them out.
pub(crate) fn in_agent(node: &mut Node, disk: &mut ConfigReader<'_>) {
    if let Some(permission) = part(node, "permission")
        && !check(permission, "permission", &Rules::default(), disk)
    {
        without_allow(permission);
    }
}

fn part<'n>(node: &'n mut Node, key: &str) -> Option<&'n mut Node> {
    node.entries_mut()?.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
}

/// Whether all examples of one permission object are right. They are judged by that object alone, on
/// top of `under`, where what nobody speaks about is allowed.
fn check(permission: &mut Node, way: &str, under: &Rules, disk: &mut ConfigReader<'_>) -> bool {
    let Some(examples) = permission.take(KEY) else { return true };
    let environment = disk.environment;
    let place = PermissionContext::new(environment, disk.worktree, &disk.worktree.root);
    let rules = Rules::built_in(&[("*", "*", Action::Allow)])
        .then(under)
        .then(&rules::rules(permission, environment.home.as_deref()));
    let mut right = true;
    for entry in examples.node.entries() {
        let (Some(wanted), NodeValue::List(cases)) = (rules::action(&entry.key), &entry.node.value) else { continue };
        for case in cases {
            for (key, text) in named(case) {
                let (action, why) = judge(&rules, key, text, &place);
                if action == wanted {
                    continue;
                }
                right = false;
                let found = format!("{text:?} is {} by these rules, not {}{why}", done(action), done(wanted));
                let problem =
                    Problem::error(ProblemCode::WrongExample, &case.at, format!("{way}.{KEY}.{}", entry.key), found);
                disk.problems.push(problem.hint("until they agree, nothing that this file allows counts"));
            }
        }
    }
    right
}

/// `"git status"` is a command; `{"edit": "src/a.rs"}` says itself what it is.
fn named(case: &Node) -> Vec<(&str, &str)> {
    match case.as_text() {
        Some(text) => vec![("bash", text)],
        None => case.entries().iter().filter_map(|entry| Some((entry.key.as_str(), entry.node.as_text()?))).collect(),
    }
}

fn judge(rules: &Rules, key: &str, text: &str, place: &PermissionContext) -> (Action, String) {
    let need = match key {
        "bash" => command_need(text, place),
        "webfetch" => {
            return match judge_url(rules, text, &[], &[]) {
                UrlVerdict::Judged(action, reason) => (action, format!(": {reason}")),
                UrlVerdict::Refused(reason) => (Action::Deny, format!(": {reason}")),
            };
        }
        key => Need::new(key, text),
    };
    let verdict = evaluate(rules, &Rules::default(), &need);
    let why = match (verdict.reason, verdict.rule) {
        (Some(reason), _) => format!(": {reason}"),
        (None, Some(rule)) => format!(": \"{}\" decides", rule.pattern),
        (None, None) => String::new(),
    };
    (verdict.action, why)
}

fn done(action: Action) -> &'static str {
    match action {
        Action::Allow => "allowed",
        Action::Ask => "asked about",
        Action::Deny => "denied",
    }
}

fn without_allow(permission: &mut Node) {
    if permission.as_text() == Some("allow") {
        permission.value = NodeValue::Null;
    }
    if let Some(entries) = permission.entries_mut() {
        entries.retain(|entry| entry.node.as_text() != Some("allow"));
        entries.iter_mut().for_each(|entry| without_allow(&mut entry.node));
    }
}
