//! Settings as text, for `adjutant config` and `adjutant config check`.

use std::fmt::Write as _;

use super::Loaded;
use super::node::{Node, Value};
use super::problem::{Problem, Severity};

/// The settings that hold, a key a line, each with where it was said; defaults are not listed.
/// Keys and tokens are not shown.
pub fn show(loaded: &Loaded) -> String {
    let mut lines: Vec<(String, String, String)> = Vec::new();
    loaded.tree.walk(&mut Vec::new(), &mut |way, node| {
        let leaf = match &node.value {
            Value::Map(entries) => entries.is_empty() && !way.is_empty(),
            Value::List(_) => true,
            _ => !inside_list(&loaded.tree, way),
        };
        if leaf && !inside_list(&loaded.tree, way) {
            lines.push((
                way.iter().map(|key| shown_key(key)).collect::<Vec<_>>().join("."),
                value(way, node),
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
    let errors = loaded.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    if errors > 0 {
        let _ = writeln!(
            text,
            "\n{errors} values are not used because something is wrong with them: `adjutant config check` says what."
        );
    }
    text
}

/// Whether a way leads into a list: a list is shown as a whole.
fn inside_list(tree: &Node, way: &[String]) -> bool {
    let mut node = tree;
    for key in way {
        match &node.value {
            Value::List(_) => return true,
            _ => match node.get(key) {
                Some(inner) => node = inner,
                None => return true,
            },
        }
    }
    false
}

fn shown_key(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '$' | '*'));
    if plain { key.to_owned() } else { serde_json::Value::from(key).to_string() }
}

/// A value on one line; long texts cut, secrets not shown.
fn value(way: &[String], node: &Node) -> String {
    let secret = way.iter().any(|key| {
        let key = key.to_ascii_lowercase();
        ["apikey", "token", "secret", "authorization", "password", "x-api-key"].iter().any(|word| key.contains(word))
            || key == "headers"
            || key == "environment"
            || key == "env"
    });
    if secret && matches!(node.value, Value::Text(_)) {
        return "(not shown)".to_owned();
    }
    let text = node.to_json().to_string();
    let mut cut: String = text.chars().take(100).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    cut
}

/// Everything that is wrong or old, a line each, worst first, with a sentence at the end. `more` are
/// problems found after loading, such as those of agents.
pub fn check(loaded: &Loaded, more: &[Problem]) -> String {
    let mut problems: Vec<&Problem> = loaded.problems.iter().chain(more).collect();
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    let mut text = String::new();
    for problem in &problems {
        let _ = writeln!(text, "{}: {problem}", problem.severity.as_str());
    }
    let count = |severity: Severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let parts: Vec<String> = [
        (Severity::Error, "error", "errors"),
        (Severity::Warning, "warning", "warnings"),
        (Severity::Deprecated, "old spelling", "old spellings"),
        (Severity::Note, "note", "notes"),
    ]
    .into_iter()
    .filter_map(|(severity, one, many)| match count(severity) {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {many}")),
    })
    .collect();
    let files = loaded.origins.len();
    let read = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
    if parts.is_empty() {
        let _ = writeln!(text, "{read} read; nothing is wrong.");
    } else {
        let _ = writeln!(text, "{read} read: {}.", parts.join(", "));
    }
    text
}
