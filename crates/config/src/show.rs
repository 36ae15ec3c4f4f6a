//! Settings as text, for `adjutant config` and `adjutant config check`.

use std::fmt::Write as _;

use super::Loaded;
use super::node::{Node, NodeValue};
use super::problem::{Problem, ProblemSeverity, UNTIL_FIXED};
use base::store_place::DatabasePlace;

/// The maximum number of further locations listed for a repeated problem.
const MAX_PLACES: usize = 8;

/// Lists the effective settings, one key per line with its location; defaults are not listed. Keys
/// and tokens are not shown.
pub fn show(loaded: &Loaded, problems: &[Problem]) -> String {
    let mut lines: Vec<(String, String, String)> = Vec::new();
    loaded.tree.walk(&mut Vec::new(), &mut |path, node| {
        let leaf = match &node.value {
            NodeValue::Map(entries) => entries.is_empty() && !path.is_empty(),
            NodeValue::List(_) => true,
            _ => !inside_list(&loaded.tree, path),
        };
        if leaf && !inside_list(&loaded.tree, path) {
            lines.push((
                path.iter()
                    .map(|key| shown_key(key))
                    .collect::<Vec<_>>()
                    .join("."),
                value(path, node),
                node.at.short(),
            ));
        }
    });
    let mut text = String::new();
    if lines.is_empty() {
        text.push_str("Nothing is set: every setting has its default.\n");
    }
    for (key, value, source) in lines {
        let _ = writeln!(text, "{key} = {value}    # {source}");
    }
    text.push_str("\nRead, lowest layer first:\n");
    let mut names: Vec<&str> = Vec::new();
    for origin in &loaded.origins {
        if !names.contains(&origin.name.as_str()) {
            names.push(&origin.name);
        }
    }
    if names.is_empty() {
        text.push_str("  no file\n");
    }
    for name in names {
        let _ = writeln!(text, "  {name}");
    }
    if let Some(notice) = loaded.trust.notice() {
        let _ = writeln!(text, "\n{notice}");
        text.push_str(&loaded.trust.list());
    }
    let errors = problems
        .iter()
        .filter(|problem| problem.severity == ProblemSeverity::Error)
        .count();
    if errors > 0 {
        let _ = writeln!(
            text,
            "\n{} in these settings: `adjutant config check` shows what is not used and why.",
            base::text::count(errors, "error")
        );
    }
    text
}

/// Whether a path leads into a list: a list is shown as a whole.
fn inside_list(tree: &Node, path: &[String]) -> bool {
    let mut node = tree;
    for key in path {
        match &node.value {
            NodeValue::List(_) => return true,
            _ => match node.get(key) {
                Some(inner) => node = inner,
                None => return true,
            },
        }
    }
    false
}

fn shown_key(key: &str) -> String {
    let plain = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '$' | '*'));
    if plain {
        key.to_owned()
    } else {
        serde_json::Value::from(key).to_string()
    }
}

/// Formats a value on one line: long texts are cut, secrets are not shown.
fn value(path: &[String], node: &Node) -> String {
    let is_secret = path.iter().any(|key| {
        let key = key.to_ascii_lowercase();
        [
            "apikey",
            "token",
            "secret",
            "authorization",
            "password",
            "x-api-key",
        ]
        .iter()
        .any(|word| key.contains(word))
            || key == "headers"
            || key == "environment"
            || key == "env"
    });
    if is_secret && matches!(node.value, NodeValue::Text(_)) {
        return "(not shown)".to_owned();
    }
    if path == ["store", "url"]
        && let Some(url) = node.as_text()
    {
        return serde_json::Value::from(DatabasePlace::new(url).shown()).to_string();
    }
    let text = node.to_json().to_string();
    let mut cut: String = text.chars().take(100).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    cut
}

/// Lists all problems, worst first, with a summary at the end. Problems that differ only in their
/// location are one line, with the other locations below it.
pub fn check(loaded: &Loaded, problems: &[Problem]) -> String {
    let mut groups: Vec<Vec<&Problem>> = Vec::new();
    for problem in problems {
        let is_alike = |group: &&mut Vec<&Problem>| {
            group.first().is_some_and(|first| {
                first.severity == problem.severity
                    && first.code == problem.code
                    && first.message == problem.message
                    && first.hint == problem.hint
            })
        };
        match groups.iter_mut().find(is_alike) {
            Some(group) => group.push(problem),
            None => groups.push(vec![problem]),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.first().map(|problem| problem.severity)));
    let mut text = String::new();
    for group in &groups {
        let Some((first, others)) = group.split_first() else {
            continue;
        };
        let _ = writeln!(text, "{}: {first}", first.severity.as_str());
        if others.is_empty() {
            continue;
        }
        let mut places: Vec<String> = others
            .iter()
            .take(MAX_PLACES)
            .map(|other| other.location.to_string())
            .collect();
        if others.len() > MAX_PLACES {
            places.push(format!("and {} more places", others.len() - MAX_PLACES));
        }
        let _ = writeln!(text, "  also: {}", places.join(", "));
    }
    let count = |severity: ProblemSeverity| {
        problems
            .iter()
            .filter(|problem| problem.severity == severity)
            .count()
    };
    let parts: Vec<String> = [
        (ProblemSeverity::Error, "error"),
        (ProblemSeverity::Warning, "warning"),
        (ProblemSeverity::Deprecated, "old spelling"),
        (ProblemSeverity::Note, "note"),
    ]
    .into_iter()
    .map(|(severity, noun)| (count(severity), noun))
    .filter(|(count, _)| *count > 0)
    .map(|(count, noun)| base::text::count(count, noun))
    .collect();
    let read = base::text::count(loaded.origins.len(), "file");
    let _ = match parts.as_slice() {
        [] => writeln!(text, "{read} read; nothing is wrong."),
        parts => writeln!(text, "{read} read: {}.", parts.join(", ")),
    };
    let mut places: Vec<String> = Vec::new();
    for problem in problems.iter().filter(|problem| problem.can_hide_deny) {
        let place = problem.location.to_string();
        if !places.contains(&place) {
            places.push(place);
        }
    }
    if !places.is_empty() {
        let _ = writeln!(text, "Not understood: {}. {UNTIL_FIXED}", places.join(", "));
    }
    text
}
