//! Lists of providers and models that a project narrows and never widens, trusted or not: what the user leaves out
//! stays out, and what the user keeps to is all there is. Of other lists the project's replaces the user's.

use super::node::{Node, NodeValue};
use super::problem::{Problem, ProblemCode};

/// Lays the user's own lists over those of a joined tree. `alone` is what is said without the project.
pub(crate) fn keep_lists(tree: &mut Node, alone: &Node, problems: &mut Vec<Problem>) {
    leave_out(tree, alone, &["disabled_providers"]);
    keep_to(tree, alone, &["enabled_providers"], problems);
    for provider in alone.get("provider").map(Node::entries).unwrap_or_default() {
        leave_out(tree, alone, &["provider", &provider.key, "blacklist"]);
        keep_to(tree, alone, &["provider", &provider.key, "whitelist"], problems);
    }
}

/// What the user's list names stays named.
fn leave_out(tree: &mut Node, alone: &Node, way: &[&str]) {
    let Some((own, list)) = lists(tree, alone, way) else { return };
    for item in own {
        if !has(list, item) {
            list.push(item.clone());
        }
    }
}

/// What the user's list does not name is named by nobody.
fn keep_to(tree: &mut Node, alone: &Node, way: &[&str], problems: &mut Vec<Problem>) {
    let Some((own, list)) = lists(tree, alone, way) else { return };
    list.retain(|item| {
        let known = has(own, item);
        if !known {
            let name = base::text::title(item.as_text().unwrap_or_default());
            let text = format!("\"{name}\" is not in this list of your own settings, which a project cannot add to");
            let problem = Problem::warning(ProblemCode::NotForProjects, &item.at, way.join("."), text);
            problems.push(problem.hint("add it there if you want it"));
        }
        known
    });
}

/// The user's list, and the one that holds, where that is a project's.
fn lists<'n>(tree: &'n mut Node, alone: &'n Node, way: &[&str]) -> Option<(&'n [Node], &'n mut Vec<Node>)> {
    let held = way.iter().try_fold(tree, |node, key| node.get_mut(key)).filter(|held| held.at.origin.project)?;
    match (alone.at(way).map(|node| &node.value)?, &mut held.value) {
        (NodeValue::List(own), NodeValue::List(list)) => Some((own.as_slice(), list)),
        _ => None,
    }
}

fn has(list: &[Node], item: &Node) -> bool {
    list.iter().any(|other| other.value == item.value)
}
