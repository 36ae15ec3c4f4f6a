//! Simple orders: read, list, run, replace and create.

use serde_json::json;

use super::turn::{OfflineTurn, OrStep, PlannedCall, unable};
use base::text::{count, cut_chars};

/// A word of a prompt, or the content of backticks, quotation marks or a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OrderToken {
    pub(super) text: String,
    pub(super) quoted: bool,
}

pub(super) fn tokens(prompt: &str) -> Vec<OrderToken> {
    const AFTER: [char; 6] = [',', ';', ':', '?', '.', '!'];
    let mut tokens = Vec::new();
    let mut rest = prompt.trim_start();
    while !rest.is_empty() {
        let mark = ["```", "`", "\""]
            .into_iter()
            .find(|mark| rest.starts_with(mark));
        let quotation = mark.and_then(|mark| rest[mark.len()..].split_once(mark));
        let (text, after) = match quotation {
            // The first line of a fence contains the language.
            Some((text, after)) if mark == Some("```") => {
                (text.split_once('\n').map_or(text, |(_, text)| text), after)
            }
            Some(quotation) => quotation,
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        let bare = text.trim_end_matches(&AFTER[..5]);
        let text = if quotation.is_some() || bare.is_empty() {
            text
        } else {
            bare
        };
        tokens.push(OrderToken {
            text: text.to_owned(),
            quoted: quotation.is_some(),
        });
        rest = after.trim_start_matches(AFTER).trim_start();
    }
    tokens
}

impl OrderToken {
    /// Returns the text in lower case for comparisons; empty if it is quoted.
    pub(super) fn plain(&self) -> String {
        if self.quoted {
            String::new()
        } else {
            self.text.to_lowercase()
        }
    }

    pub(super) fn is_path(&self) -> bool {
        // "e.g" is not a file.
        let ending =
            |(stem, end): (&str, &str)| (3..).contains(&(stem.len() + end.len())) && end.len() < 5;
        let is_one = self.text.contains('/') || self.text.rsplit_once('.').is_some_and(ending);
        is_one
            && !self
                .text
                .contains(|c: char| c.is_whitespace() || "*(:".contains(c))
    }
}

/// Carries out the order in a prompt; returns `None` if there is none.
pub(super) fn carry_out(turn: &OfflineTurn, tokens: &[OrderToken]) -> OrStep<Option<String>> {
    const FILLERS: &str = "please now can could you me the a file files command in";
    let is_filler = |token: &&OrderToken| FILLERS.split(' ').any(|filler| filler == token.plain());
    let words: Vec<&OrderToken> = tokens.iter().filter(|token| !is_filler(token)).collect();
    let texts: Vec<&str> = words.iter().map(|token| token.text.as_str()).collect();
    let verb = words
        .first()
        .map_or_else(String::new, |token| token.plain());
    Ok(Some(
        match (verb.as_str(), texts.get(1..).unwrap_or_default()) {
            (_, []) if words.first().is_some_and(|token| token.is_path()) => read(turn, texts[0])?,
            ("read" | "show" | "open", [path]) if words[1].is_path() => read(turn, path)?,
            ("list" | "ls", []) => show(turn, "Listing", ".", ("read", json!({"filePath": "."})))?,
            ("list" | "ls", [path]) => {
                show(turn, "Listing", path, ("read", json!({"filePath": path})))?
            }
            ("run", [command]) if words[1].quoted => {
                let description = cut_chars(&format!("Run {command}"), 80);
                show(
                    turn,
                    "Running",
                    command,
                    (
                        "bash",
                        json!({"command": command, "description": description}),
                    ),
                )?
            }
            ("run", _) => {
                return Err(unable("Say which command, in backticks: run `cargo test`."));
            }
            ("replace" | "change", [old, "with" | "by" | "to", new, path]) => {
                replace(turn, old, new, path)?
            }
            ("create" | "write", [path, "with" | "containing", content]) => {
                create(turn, path, content)?
            }
            _ => return Ok(None),
        },
    ))
}

pub(super) fn read(turn: &OfflineTurn, path: &str) -> OrStep<String> {
    show(turn, "Reading", path, ("read", json!({"filePath": path})))
}

/// Makes a call and shows its result.
fn show(turn: &OfflineTurn, doing: &str, what: &str, call: PlannedCall) -> OrStep<String> {
    let done = turn.calls(&format!("{doing} {}.", quoted(what)), vec![call])?;
    let lines = turn.lines(&done[0]);
    let text: Vec<&str> = match &lines {
        Some(lines) => lines.iter().map(|line| line.text.as_str()).collect(),
        // A nonzero exit code is in a note; of a directory only the entries are shown.
        None => {
            let entries = done[0]
                .split_once("<entries>\n")
                .and_then(|(_, rest)| rest.split_once("\n\n("));
            let text = entries.map_or(&*done[0], |(entries, _)| entries);
            text.trim_end()
                .lines()
                .filter(|line| !line.contains("system-reminder"))
                .collect()
        }
    };
    Ok(format!(
        "{}:\n\n{}",
        quoted(what),
        fenced(if lines.is_some() { what } else { "" }, text.into_iter())
    ))
}

fn replace(turn: &OfflineTurn, old: &str, new: &str, path: &str) -> OrStep<String> {
    // `edit` requires that the file has been read.
    read(turn, path)?;
    let what = format!("{} with {} in {}.", quoted(old), quoted(new), quoted(path));
    let given = json!({"filePath": path, "oldString": old, "newString": new, "replaceAll": true});
    turn.calls(&format!("Replacing {what}"), vec![("edit", given)])?;
    Ok(format!("Done: replaced {what}"))
}

fn create(turn: &OfflineTurn, path: &str, content: &str) -> OrStep<String> {
    let content = format!("{}\n", content.trim_end_matches('\n'));
    let call = ("write", json!({"filePath": path, "content": content}));
    turn.calls(&format!("Writing {}.", quoted(path)), vec![call])?;
    Ok(format!(
        "Done: {} has {}.",
        quoted(path),
        count(content.lines().count(), "line")
    ))
}

/// Returns a code span for any text.
pub(super) fn quoted(text: &str) -> String {
    let text = text.replace('\n', " ");
    if text.contains('`') {
        format!("`` {text} ``")
    } else {
        format!("`{text}`")
    }
}

/// Returns a fenced block for any lines: at most 40 of them, in the language of the file.
pub(super) fn fenced<'a>(path: &str, lines: impl Iterator<Item = &'a str>) -> String {
    let mut text: Vec<String> = lines.take(41).map(|line| cut_chars(line, 300)).collect();
    text.iter_mut()
        .skip(40)
        .for_each(|line| "…".clone_into(line));
    let text = text.join("\n");
    let text = text.trim_end();
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    let language = path
        .rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'))
        .map_or("", |(_, ending)| ending);
    format!("{fence}{language}\n{text}\n{fence}")
}
