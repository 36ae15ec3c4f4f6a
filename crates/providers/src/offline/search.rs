//! Answers to questions about one name: its definition, or else its uses.

use std::cmp::Reverse;

use serde_json::json;

use super::code::{self, CodeLine};
use super::order::{OrderToken, fenced, quoted, read};
use super::turn::{OfflineTurn, OrStep, PlannedCall, unable};

/// The maximum number of places shown.
const MAX_SHOWN: usize = 2;
/// The number of lines shown: above a definition, and from it on.
const SHOWN_LINES: (usize, usize) = (4, 12);

/// Answers a question; returns `None` if there is none.
pub(super) fn answer(turn: &OfflineTurn, tokens: &[OrderToken]) -> OrStep<Option<String>> {
    const FILLERS: &str = "where what which is are was am does do the a an of i it this that find show me live lives defined \
        declared implemented located definition can you";
    let is_filler = |token: &&OrderToken| FILLERS.split(' ').any(|word| word == token.plain());
    let words: Vec<&OrderToken> = tokens.iter().filter(|token| !is_filler(token)).collect();
    if let Some(path) = tokens.iter().find(|token| token.is_path()) {
        read(turn, path.text.trim_start_matches('@')).map(Some)
    } else if let Some(name) = words.iter().find_map(|token| name(token)) {
        by_name(turn, name).map(Some)
    } else if let [word] = &*words
        && (tokens.len() > 1 || word.text.starts_with(char::is_uppercase))
        && !is_general(word)
        && word.text.chars().all(char::is_alphanumeric)
    {
        by_name(turn, &word.text).map(Some)
    } else if words.len() < 2 {
        Ok(None)
    } else {
        Err(unable(
            "I look up a single name, and there is none in this question.",
        ))
    }
}

/// Returns whether a word stands for all of the code, and so is not the name of a part of it.
fn is_general(word: &OrderToken) -> bool {
    const GENERAL: &str = "project repository repo codebase code program app application package library software \
        directory folder files everything";
    GENERAL.split(' ').any(|general| general == word.plain())
}

/// Returns the name that a token can only be: it is quoted, called, or spelt as in code.
fn name(token: &OrderToken) -> Option<&str> {
    let name = token.text.trim_end_matches("()");
    let is_marked = token.quoted || name != token.text || name.contains('_') || name.contains("::");
    let has_inner_capital = name.chars().skip(1).any(char::is_uppercase);
    let is_name = is_marked || has_inner_capital && name.contains(char::is_lowercase);
    let fits = |c: char| c.is_alphanumeric() || "_$:.".contains(c);
    (is_name && name.ends_with(char::is_alphanumeric) && name.chars().all(fits)).then_some(name)
}

fn grep(turn: &OfflineTurn, doing: String, pattern: String) -> OrStep<Vec<CodeLine>> {
    let found = turn.calls(&doing, vec![("grep", json!({"pattern": pattern}))])?;
    Ok(turn.found(&found[0]))
}

/// Answers with the definitions of a name, or else with its uses.
fn by_name(turn: &OfflineTurn, name: &str) -> OrStep<String> {
    let last = name.rsplit([':', '.']).next().unwrap_or(name);
    let word = format!(r"{}\b", last.replace('$', r"\$"));
    let say = format!("Looking for the definition of {}.", quoted(name));
    let mut defined = grep(turn, say, code::defining(&word))?;
    defined.retain(|line| line.definition().is_some_and(|found| found.name == last));
    if !defined.is_empty() {
        return shown(turn, ranked(defined));
    }
    let say = format!("Looking for uses of {}.", quoted(name));
    let used = ranked(grep(turn, say, format!(r"\b{word}"))?);
    if used.is_empty() {
        return Err(unable(&format!("I found nothing named {}.", quoted(last))));
    }
    let item = |line: &CodeLine| {
        let text = quoted(&base::text::cut_chars(line.text.trim(), 140));
        format!("\n- `{}:{}`: {text}", line.path, line.number)
    };
    let items: String = used.iter().map(item).collect();
    Ok(format!(
        "I found no definition of {}. It is used in:\n{items}",
        quoted(last)
    ))
}

/// Returns the lines that are most likely the requested ones, the most likely first.
fn ranked(mut lines: Vec<CodeLine>) -> Vec<CodeLine> {
    lines.sort_by_cached_key(|line| {
        let found = line.definition().unwrap_or_default();
        (
            line.remoteness(),
            ["mod", "module", "namespace", "#"].contains(&&*found.kind),
            code::words(&found.name) != code::words(line.stem()),
            Reverse(found.visibility),
            line.indent(),
            line.clone(),
        )
    });
    lines.truncate(MAX_SHOWN);
    lines
}

/// Shows definitions with their code.
fn shown(turn: &OfflineTurn, defined: Vec<CodeLine>) -> OrStep<String> {
    let call = |line: &CodeLine| -> PlannedCall {
        let offset = line.number.saturating_sub(SHOWN_LINES.0).max(1);
        let limit = line.number + SHOWN_LINES.1 - offset;
        (
            "read",
            json!({"filePath": line.path, "offset": offset, "limit": limit}),
        )
    };
    let calls = defined.iter().map(call).collect();
    let read = turn.calls("Reading it.", calls)?;
    let entry = |(head, text): (&CodeLine, &std::sync::Arc<str>)| {
        let lines = turn.lines(text).unwrap_or_default();
        let place = format!("`{}:{}`", head.path, head.number);
        format!("{place}\n\n{}", passage(head, &lines))
    };
    let entries: Vec<String> = defined.iter().zip(&read).map(entry).collect();
    Ok(entries.join("\n\n"))
}

/// Formats a definition: the comments above it, and its code up to the next definition.
fn passage(head: &CodeLine, lines: &[CodeLine]) -> String {
    let is_apart = |line: &CodeLine| line.number < head.number && !line.is_above();
    let start = lines.iter().rposition(is_apart).map_or(0, |at| at + 1);
    let belongs = |line: &&CodeLine| {
        line.number <= head.number
            || line.indent() > head.indent()
            || line.definition().is_none() && !line.is_above()
    };
    let lines = lines[start..].iter().take_while(belongs);
    let text = lines.map(|line| line.text.get(head.indent()..).unwrap_or_default());
    fenced(&head.path, text)
}
