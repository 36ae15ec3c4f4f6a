//! Lists of providers and models that a project can narrow but not widen, trusted or not: entries
//! that the user excludes stay excluded, and nothing outside the user's allowed entries is added.
//! In other lists, the project's value replaces the user's.

use super::node::{Node, NodeValue};
use super::problem::{Problem, ProblemCode};

/// Applies the user's own lists to those of a joined tree. `alone` is the settings without the
/// project.
pub(crate) fn restrict_lists(tree: &mut Node, alone: &Node, problems: &mut Vec<Problem>) {
    extend_excluded(tree, alone, &["disabled_providers"]);
    restrict_allowed(tree, alone, &["enabled_providers"], problems);
    for provider in alone.get("provider").map(Node::entries).unwrap_or_default() {
        extend_excluded(tree, alone, &["provider", &provider.key, "blacklist"]);
        restrict_allowed(
            tree,
            alone,
            &["provider", &provider.key, "whitelist"],
            problems,
        );
    }
}

/// Adds the entries of the user's list to an excluding list.
fn extend_excluded(tree: &mut Node, alone: &Node, path: &[&str]) {
    let Some((own, list)) = lists(tree, alone, path) else {
        return;
    };
    for item in own {
        if !has(list, item) {
            list.push(item.clone());
        }
    }
}

/// Removes entries from an allowing list that the user's list does not have.
fn restrict_allowed(tree: &mut Node, alone: &Node, path: &[&str], problems: &mut Vec<Problem>) {
    let Some((own, list)) = lists(tree, alone, path) else {
        return;
    };
    list.retain(|item| {
        let known = has(own, item);
        if !known {
            let name = base::text::title(item.as_text().unwrap_or_default());
            let text = format!(
                "\"{name}\" is not in this list of your own settings, which a project cannot add to"
            );
            let problem =
                Problem::warning(ProblemCode::NotForProjects, &item.at, path.join("."), text);
            problems.push(problem.hint("add it there if you want it"));
        }
        known
    });
}

/// Returns the user's list and the effective one, if the latter is a project's.
fn lists<'n>(
    tree: &'n mut Node,
    alone: &'n Node,
    path: &[&str],
) -> Option<(&'n [Node], &'n mut Vec<Node>)> {
    let held = path
        .iter()
        .try_fold(tree, |node, key| node.get_mut(key))
        .filter(|held| held.at.origin.project)?;
    match (alone.at(path).map(|node| &node.value)?, &mut held.value) {
        (NodeValue::List(own), NodeValue::List(list)) => Some((own.as_slice(), list)),
        _ => None,
    }
}

fn has(list: &[Node], item: &Node) -> bool {
    list.iter().any(|other| other.value == item.value)
}
