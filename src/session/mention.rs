//! `@name` in what the user typed: the subagent of that name is to be used. Everything else that
//! begins with `@`, a path or a word, is ordinary text.

use crate::agent::Agents;
use crate::message::{Content, Text};
use crate::prompts;
use crate::text::mark::tagged;

/// Adds the subagents that a prompt names, and a note for the model that tells it to use them.
pub fn named(mut content: Vec<Content>, agents: &Agents) -> Vec<Content> {
    let known = |name: &str| agents.get(name).is_some_and(|agent| agent.is_subagent());
    let mut names: Vec<String> = Vec::new();
    for part in &content {
        // An attached file is not what the user typed.
        if let Content::Text(text) = part
            && !text.synthetic
            && !text.text.starts_with("<attached ")
        {
            for name in mentions(&text.text, known) {
                if !names.iter().any(|other| other == name) {
                    names.push(name.to_owned());
                }
            }
        }
    }
    if names.is_empty() {
        return content;
    }
    let text = prompts::reminder("mention").replace("{agents}", &names.join(", "));
    content.extend(names.into_iter().map(|name| Content::Agent { name }));
    content.push(Content::Text(Text { text: tagged(&text), synthetic: true, ..Text::default() }));
    content
}

/// The names after `@` that are known. `@` counts at the start of a word, and punctuation at the end
/// of a name does not.
fn mentions(text: &str, known: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('@') {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '`' | '@' | '/' | '.')) {
            continue;
        }
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '`' | ',' | '@')).unwrap_or(rest.len());
        let mut name = &rest[..end];
        while !name.is_empty() && !known(name) {
            match name.chars().next_back() {
                Some(c) if !c.is_alphanumeric() => name = &name[..name.len() - c.len_utf8()],
                _ => name = "",
            }
        }
        if !name.is_empty() {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_found_and_nothing_else() {
        let known = |name: &str| matches!(name, "explore" | "team/reviewer");
        let table: &[(&str, &[&str])] = &[
            ("@explore where is it?", &["explore"]),
            ("ask @explore, then (@team/reviewer).", &["explore", "team/reviewer"]),
            ("@explore: go. @explore!", &["explore", "explore"]),
            ("see @src/lib.rs and @nobody", &[]),
            ("me@explore `@explore` @@explore a/@explore", &[]),
            ("@explorer @exploreé", &[]),
            ("@", &[]),
            ("„@explore“", &["explore"]),
        ];
        for (text, expected) in table {
            assert_eq!(mentions(text, known), *expected, "{text}");
        }
    }
}
