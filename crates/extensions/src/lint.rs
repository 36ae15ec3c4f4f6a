//! Finds the hooks of a plugin that have no effect. [`find_mistakes`] finds them in its source, without
//! running it. A [`MistypedPart`] is a hook or tool of the wrong type, as the host reports it after loading.

use serde_json::Value;

use base::text::nearest;
use config::script::HOOKS;

/// The first words of hooks with several. Keys that begin otherwise may be anything.
const FAMILIES: [&str; 6] = [
    "chat",
    "command",
    "experimental",
    "permission",
    "shell",
    "tool",
];

/// Events whose names look like hooks.
const EVENTS: [&str; 4] = [
    "command.executed",
    "permission.asked",
    "permission.replied",
    "permission.updated",
];

/// A hook of a plugin that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookMistake {
    /// The line, starting at 1.
    pub(super) line: u32,
    /// The name as it is written.
    pub(super) hook: String,
    /// The mistake, for display.
    pub(super) message: String,
    /// The name of the hook that was probably meant.
    pub(super) suggestion: Option<&'static str>,
}

/// A part of a script that is of another type than it should be, and so has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MistypedPart {
    /// The name of the script.
    pub file: String,
    pub kind: PartKind,
    /// The name of the hook or tool.
    pub name: String,
}

/// The kinds of parts of scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    Hook,
    Tool,
}

impl MistypedPart {
    /// Decodes the host's message about a part.
    pub(super) fn decode(message: &Value) -> Option<Self> {
        let text = |key: &str| Some(message.get(key)?.as_str()?.to_owned());
        let (kind, name) = match text("tool") {
            Some(tool) => (PartKind::Tool, tool),
            None => (PartKind::Hook, text("hook")?),
        };
        Some(Self {
            file: text("file")?,
            kind,
            name,
        })
    }

    /// Describes the mistake as the end of a sentence about the part.
    pub(super) fn mistake(&self) -> &'static str {
        match self.kind {
            PartKind::Hook => type_mistake(&self.name),
            PartKind::Tool => "has no function execute, so models do not get it",
        }
    }

    /// Returns the name of the part in a sentence.
    pub(super) fn display_name(&self) -> String {
        match self.kind {
            PartKind::Hook => self.name.clone(),
            PartKind::Tool => format!("tool {}", self.name),
        }
    }
}

/// Returns the known hook whose name is most similar to an unknown one, if one is similar.
pub(super) fn nearest_hook(hook: &str) -> Option<&'static str> {
    let name = nearest(hook, HOOKS.iter().copied())?;
    HOOKS.iter().copied().find(|hook| *hook == name)
}

/// Describes a hook of the wrong type, as the end of a sentence.
fn type_mistake(hook: &str) -> &'static str {
    if matches!(hook, "tool" | "auth" | "provider") {
        "is not an object, so it has no effect"
    } else {
        "is not a function, so it is not called"
    }
}

/// Returns the hooks in a plugin's source that are unknown or visibly not functions. Only looks at
/// quoted keys of properties; the session reports the rest when it runs the plugin.
pub(super) fn find_mistakes(source: &str) -> Vec<HookMistake> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(source.lines()) {
        let code = line.trim_start();
        if code.starts_with("//") || code.starts_with('*') || code.starts_with("case ") {
            continue;
        }
        for quote in ['"', '\''] {
            let mut pieces = code.split(quote);
            pieces.next();
            while let (Some(name), Some(after)) = (pieces.next(), pieces.next()) {
                if let Some((message, suggestion)) = find_mistake(name, after) {
                    found.push(HookMistake {
                        line: number,
                        hook: name.to_owned(),
                        message,
                        suggestion,
                    });
                }
            }
        }
    }
    found
}

/// Returns the mistake in a quoted name, and the hook that was probably meant. `after` is the text
/// after the name, up to the next quote.
fn find_mistake(name: &str, after: &str) -> Option<(String, Option<&'static str>)> {
    let (family, _) = name.split_once('.')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_' || c == '-';
    if !FAMILIES.contains(&family) || EVENTS.contains(&name) || !name.chars().all(is_word) {
        return None;
    }
    let after = after.trim_start();
    let is_method = after.starts_with('(') || after.starts_with("](");
    let value = after
        .strip_prefix(':')
        .or_else(|| after.strip_prefix("]:"))
        .map(str::trim_start);
    if !is_method && value.is_none() {
        return None;
    }
    if !HOOKS.contains(&name) {
        return Some((
            "there is no such hook, so it is not called".into(),
            nearest_hook(name),
        ));
    }
    let value = value?;
    let is_literal = value.starts_with(['"', '\'', '`', '[', '{'])
        || value.starts_with(|c: char| c.is_ascii_digit())
        || value.starts_with("true");
    // A quote ends the piece.
    (is_literal || value.is_empty() && after.len() > 1).then(|| (type_mistake(name).into(), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_quoted_keys_that_are_unknown_or_no_functions() {
        let unknown = "there is no such hook, so it is not called";
        let no_function = "is not a function, so it is not called";
        let table = [
            (r#""chat.message": async (input) => {},"#, None),
            (
                r#""chat.mesage": async (input) => {},"#,
                Some((unknown, Some("chat.message"))),
            ),
            (
                r#"'tool.execute.befor'(input) {},"#,
                Some((unknown, Some("tool.execute.before"))),
            ),
            (r#"async ["tool.execute.after"](input) {},"#, None),
            (
                r#""chat.params": { temperature: 1 },"#,
                Some((no_function, None)),
            ),
            (r#""chat.params": handler,"#, None),
            (r#""chat.params": 1,"#, Some((no_function, None))),
            (r#"if (event.type === "permission.nothing") {"#, None),
            (r#""permission.asked": (event) => {},"#, None),
            (r#"case "tool.none": break"#, None),
            (r#"// "chat.none": async () => {}"#, None),
            (r#""session.idle": () => {},"#, None),
            (r#"log("chat.none: 1")"#, None),
        ];
        for (line, wanted) in table {
            let found = find_mistakes(&format!("\n{line}\n"));
            let found: Vec<_> = found
                .iter()
                .map(|mistake| (mistake.line, (mistake.message.as_str(), mistake.suggestion)))
                .collect();
            let wanted: Vec<_> = wanted.into_iter().map(|wanted| (2, wanted)).collect();
            assert_eq!(found, wanted, "{line}");
        }
    }
}
