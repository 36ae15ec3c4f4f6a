//! Settings as text, for `adjutant config` and `adjutant config check`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::LoadedSettings;
use super::node::{Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode, ProblemSeverity, UNTIL_FIXED};
use base::child_environment::{shown_arguments, shown_command_line};
use base::store_location::DatabaseLocation;

/// The maximum number of further locations, or names, listed for a repeated problem.
const MAX_PLACES: usize = 3;

/// The number of problems of one kind that are listed one by one.
const MAX_ALIKE: usize = 3;

/// The kind of a problem: the message without its subject and the names in quotation marks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind<'p> {
    severity: ProblemSeverity,
    code: ProblemCode,
    /// The key, if the message depends on it.
    key: &'p str,
    words: Vec<&'p str>,
}

impl<'p> Kind<'p> {
    fn of(problem: &'p Problem) -> Self {
        let hint = problem.hint.as_deref().unwrap_or_default();
        let outside = |text: &'p str| text.split('"').step_by(2);
        let words = match &problem.subject {
            Some(subject) => problem.message.split(subject.as_str()).collect(),
            None => outside(&problem.message).collect::<Vec<_>>(),
        };
        // The message about something that waits for trust has nothing in common with others.
        let key = match problem.code {
            ProblemCode::Untrusted => problem.key.as_str(),
            _ => "",
        };
        Self {
            severity: problem.severity,
            code: problem.code,
            key,
            words: words.into_iter().chain(outside(hint)).collect(),
        }
    }
}

/// Describes the other problems of one kind: their number, and the first name in some of them.
fn also_alike(problems: &[&Problem]) -> String {
    let others = problems.get(1..).unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    for problem in others {
        let quoted = || problem.message.split('"').nth(1);
        let subject = problem.subject.as_deref().or_else(quoted);
        let name = subject.unwrap_or(&problem.key);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    // A warning asks for an action, so each name counts.
    let is_note = others
        .first()
        .is_some_and(|other| other.severity == ProblemSeverity::Note);
    let max_names = if is_note { MAX_PLACES } else { names.len() };
    let shown: Vec<String> = names
        .iter()
        .take(max_names)
        .map(|name| format!("\"{}\"", base::text::escaped(name)))
        .collect();
    let rest = if names.len() > max_names { " …" } else { "" };
    format!(
        "and {} more like it: {}{rest}",
        others.len(),
        shown.join(", ")
    )
}

/// A setting in effect.
#[derive(Debug)]
pub struct Setting<'a> {
    /// The value: a text as it is, an object as a line for each value in it, anything else as JSON.
    pub text: String,
    pub location: &'a SourceLocation,
    pub is_object: bool,
}

/// Returns a setting, or `None` if it has its default. Keys and tokens are not shown.
pub fn setting<'a>(loaded: &'a LoadedSettings, path: &[String]) -> Option<Setting<'a>> {
    let keys: Vec<&str> = path.iter().map(String::as_str).collect();
    let node = loaded.tree.at(&keys)?;
    let location = &node.at;
    let is_object = matches!(node.value, NodeValue::Map(_));
    let text = match &node.value {
        NodeValue::Map(_) => {
            let lines = lines(loaded, path).into_iter();
            let lines = lines.map(|[key, value, source]| format!("{key} = {value}    # {source}"));
            lines.collect::<Vec<_>>().join("\n")
        }
        NodeValue::Text(_) if is_secret(path) => HIDDEN.to_owned(),
        NodeValue::Text(_) if path == ["store", "url"] => value(path, node),
        NodeValue::Text(text) if is_command(path) => shown_command_line(text, HIDDEN),
        NodeValue::Text(text) => text.clone(),
        _ => without_secrets(node.to_json(), is_secret(path)).to_string(),
    };
    Some(Setting {
        text,
        location,
        is_object,
    })
}

/// Returns each setting below a path as JSON: its key, its value and its source. Keys and tokens
/// are `null`, lists are complete.
pub fn to_json(loaded: &LoadedSettings, below: &[String]) -> Vec<serde_json::Value> {
    let mut all = Vec::new();
    walk(loaded, below, &mut |path, node| {
        let shown = if path == ["store", "url"] {
            let location = node.as_text().map(|url| DatabaseLocation::new(url).shown());
            serde_json::json!(location)
        } else if let NodeValue::Text(line) = &node.value
            && is_command(path)
        {
            shown_command_line(line, HIDDEN).into()
        } else {
            without_secrets(node.to_json(), is_secret(path))
        };
        all.push(serde_json::json!({
            "key": joined(path),
            "value": shown,
            "file": node.at.origin.name,
            "line": node.at.line,
        }));
    });
    all
}

fn joined(path: &[String]) -> String {
    let keys: Vec<String> = path.iter().map(|key| shown_key(key)).collect();
    keys.join(".")
}

/// Calls a function with each setting below a path: a list counts as a whole.
fn walk(loaded: &LoadedSettings, below: &[String], call: &mut dyn FnMut(&[String], &Node)) {
    loaded.tree.walk(&mut Vec::new(), &mut |path, node| {
        let leaf = match &node.value {
            NodeValue::Map(entries) => entries.is_empty() && !path.is_empty(),
            NodeValue::List(_) => true,
            _ => !inside_list(&loaded.tree, path),
        };
        if leaf && path.starts_with(below) && !inside_list(&loaded.tree, path) {
            call(path, node);
        }
    });
}

/// Returns the key, the value and the source of each setting below a path.
fn lines(loaded: &LoadedSettings, below: &[String]) -> Vec<[String; 3]> {
    let mut lines = Vec::new();
    walk(loaded, below, &mut |path, node| {
        lines.push([joined(path), value(path, node), node.at.short()]);
    });
    lines
}

/// Lists the effective settings, one key per line with its location; defaults are not listed. Keys
/// and tokens are not shown.
pub fn show(loaded: &LoadedSettings, problems: &[Problem]) -> String {
    let lines = lines(loaded, &[]);
    let mut text = String::new();
    if lines.is_empty() {
        text.push_str("Nothing is set: every setting has its default.\n");
    }
    for [key, value, source] in lines {
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
        text.push_str(&loaded.trust.names());
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

/// Returns whether a path leads into a list: a list is shown as a whole.
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

/// The text in place of a secret.
const HIDDEN: &str = "(not shown)";

/// Returns whether the value of a setting is a secret, by the names of its keys.
fn is_secret(path: &[String]) -> bool {
    path.iter().any(|key| {
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
    })
}

/// Returns a value with `null` in place of the secrets in it, such as those of the objects in a
/// list. `is_hidden`: its texts are secrets.
fn without_secrets(value: serde_json::Value, is_hidden: bool) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(_) if is_hidden => Value::Null,
        Value::Array(all) => {
            let words = all
                .iter()
                .map(|element| element.as_str().unwrap_or_default().to_owned());
            let words: Vec<String> = words.collect();
            let shown = shown_arguments(&words, HIDDEN).into_iter();
            let element = |(element, shown): (Value, String)| match element {
                Value::String(_) if is_hidden || shown == HIDDEN => Value::Null,
                Value::String(_) => Value::String(shown),
                other => without_secrets(other, is_hidden),
            };
            Value::Array(all.into_iter().zip(shown).map(element).collect())
        }
        Value::Object(all) => {
            let all = all.into_iter().map(|(key, element)| {
                let is_hidden = is_hidden || is_secret(std::slice::from_ref(&key));
                let element = without_secrets(element, is_hidden);
                (key, element)
            });
            Value::Object(all.collect())
        }
        other => other,
    }
}

/// Returns whether a setting is a command line.
fn is_command(path: &[String]) -> bool {
    path.last().is_some_and(|key| key == "command")
}

/// Formats a value on one line: long texts are cut, secrets are not shown.
fn value(path: &[String], node: &Node) -> String {
    if is_secret(path) && matches!(node.value, NodeValue::Text(_)) {
        return HIDDEN.to_owned();
    }
    if path == ["store", "url"]
        && let Some(url) = node.as_text()
    {
        return serde_json::Value::from(DatabaseLocation::new(url).shown()).to_string();
    }
    let text = match &node.value {
        NodeValue::Text(line) if is_command(path) => {
            serde_json::Value::from(shown_command_line(line, HIDDEN)).to_string()
        }
        _ => without_secrets(node.to_json(), is_secret(path)).to_string(),
    };
    let mut cut: String = text.chars().take(100).collect();
    if cut.len() < text.len() {
        cut.push_str("...");
    }
    cut
}

/// Lists all problems, worst first, with a summary at the end. Problems that differ only in their
/// location and key are one line, with some of the others' below it. Many notes or warnings of one
/// kind are one line, with names that the others are about.
pub fn check(loaded: &LoadedSettings, problems: &[Problem]) -> String {
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
    let mut kinds: HashMap<Kind<'_>, Vec<&Problem>> = HashMap::new();
    for problem in groups.iter().flatten() {
        kinds.entry(Kind::of(problem)).or_default().push(problem);
    }
    let mut summarised: HashSet<Kind<'_>> = HashSet::new();
    for group in &groups {
        let Some((first, others)) = group.split_first() else {
            continue;
        };
        let kind = Kind::of(first);
        let of_kind = kinds.get(&kind).map(Vec::as_slice).unwrap_or_default();
        // The others need a different remedy each.
        let is_summarised = match first.severity {
            ProblemSeverity::Note => true,
            ProblemSeverity::Warning => first.subject.is_some(),
            ProblemSeverity::Error | ProblemSeverity::Deprecated => false,
        };
        if is_summarised && of_kind.len() > MAX_ALIKE && of_kind.len() > group.len() {
            if summarised.insert(kind) {
                let _ = writeln!(text, "{}: {first}", first.severity.as_str());
                let _ = writeln!(text, "  {}", also_alike(of_kind));
            }
            continue;
        }
        let _ = writeln!(text, "{}: {first}", first.severity.as_str());
        if others.is_empty() {
            continue;
        }
        let places: Vec<String> = others
            .iter()
            .take(MAX_PLACES)
            .map(|other| {
                if other.key == first.key {
                    other.location.to_string()
                } else {
                    format!("{}: {}", other.location, other.key)
                }
            })
            .collect();
        let more = match others.len().saturating_sub(MAX_PLACES) {
            0 => String::new(),
            more => format!(", and {}", base::text::count(more, "more place")),
        };
        let _ = writeln!(text, "  also: {}{more}", places.join(", "));
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
        let location = problem.location.to_string();
        if !places.contains(&location) {
            places.push(location);
        }
    }
    if !places.is_empty() {
        let _ = writeln!(text, "Not understood: {}. {UNTIL_FIXED}", places.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_in_lists_are_not_shown() {
        let list = json!(["a", { "apiKey": "k", "name": "n", "headers": { "x": ["y", 1] } }]);
        let expected = json!(["a", { "apiKey": null, "name": "n", "headers": { "x": [null, 1] } }]);
        assert_eq!(without_secrets(list, false), expected);
        assert_eq!(without_secrets(json!(["a"]), true), json!([null]));
        let command = json!([
            "server",
            "--api-key",
            "xyz",
            "--token=xyz",
            1,
            "--port",
            "1"
        ]);
        let expected = json!([
            "server",
            "--api-key",
            null,
            "--token=(not shown)",
            1,
            "--port",
            "1"
        ]);
        assert_eq!(without_secrets(command, false), expected);
    }
}
