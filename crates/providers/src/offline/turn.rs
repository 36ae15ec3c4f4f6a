//! Reads the turn that a request belongs to ([`OfflineTurn`]): the last prompt, and the calls made
//! for it.
//!
//! The model stores nothing between two requests, so every request repeats the work since the
//! prompt: [`OfflineTurn::calls`] returns the results of calls that were already made, and ends the
//! work with an [`EarlyEnd`] at the first call that was not. Callers can therefore be written as if
//! calls returned immediately, with `?` after each of them.

use std::sync::Arc;

use serde_json::Value;

use crate::Request;
use crate::request::{CallResult, ModelInput, ModelMessage, ModelOutput, ToolSpec};
use base::text::mark::without_notes;
use base::text::mention::decoded;
use prompts::CONTENTS_OF;
use prompts::reminder::USER_SPOKE;

/// A tool and its arguments.
pub(super) type PlannedCall = (&'static str, Value);

/// The reason why an answer ends before the result is known.
pub(super) enum EarlyEnd {
    /// The answer requests these calls, after this text.
    Calls(String, Vec<PlannedCall>),
    /// The request cannot be fulfilled; the text is for the user.
    Unable(String),
}

/// A result, or the early end of the answer.
pub(super) type OfflineResult<T> = Result<T, EarlyEnd>;

/// Returns the end of a turn that cannot fulfil the request. `why` is a sentence.
pub(super) fn unable(why: &str) -> EarlyEnd {
    EarlyEnd::Unable(format!("{why}\n\n{}", prompts::offline::UNABLE.trim()))
}

/// Returns the end of a turn after a failure.
fn not_done(failure: &str) -> EarlyEnd {
    unable(&reason(failure))
}

/// Returns the first line of a failure, with the similar names that follow it.
fn reason(failure: &str) -> String {
    let mut lines = failure.trim().lines();
    let first = lines.next().unwrap_or_default();
    let mut reason = format!("Not done: {}.", first.trim_end_matches('.'));
    let mut names = lines.skip_while(|line| *line != SIMILAR_NAMES);
    if names.next().is_some() {
        let names = names.take_while(|line| !line.is_empty());
        let names: Vec<String> = names.map(|name| format!("- `{name}`")).collect();
        reason.push_str(&format!(" {SIMILAR_NAMES}\n\n{}", names.join("\n")));
    }
    reason
}

/// The line before the similar names in a failure of a tool.
const SIMILAR_NAMES: &str = "Did you mean one of these?";

/// The maximum number of calls for a prompt. It is only reached if the history has calls in another
/// form than they were made, so that they are not found and made again.
const MAX_CALLS: usize = 10;

/// The last prompt of a request and the calls made for it.
pub(super) struct OfflineTurn<'a> {
    /// The user's text; a mentioned or attached file is replaced by its path.
    pub(super) prompt: String,
    /// The session's directory with a slash at its end; empty if unknown.
    root: String,
    tools: &'a [ToolSpec],
    /// The calls made so far.
    made: Vec<MadeCall<'a>>,
}

/// A call in the history.
struct MadeCall<'a> {
    tool: &'a str,
    arguments: &'a Value,
    result: &'a CallResult,
}

impl<'a> OfflineTurn<'a> {
    /// Reads the last turn of a request.
    pub(super) fn new(request: &'a Request) -> Self {
        let mut lines = request.system.iter().flat_map(|block| block.lines());
        let root = lines.find_map(|line| line.trim().strip_prefix("Working directory: "));
        let mut turn = Self {
            prompt: String::new(),
            root: root.map_or_else(String::new, |root| {
                format!("{}/", root.trim_end_matches('/'))
            }),
            tools: &request.tools,
            made: Vec::new(),
        };
        let mut outputs: &[ModelOutput] = &[];
        for message in &request.messages {
            match message {
                ModelMessage::User(inputs) => {
                    let texts: Vec<String> = inputs
                        .iter()
                        .filter_map(|input| turn.typed_text(input))
                        .collect();
                    if !texts.is_empty() {
                        turn.prompt = texts.join(" ");
                        turn.made.clear();
                    }
                }
                ModelMessage::Assistant(of_answer) => outputs = of_answer,
                ModelMessage::Results(results) => {
                    let calls = outputs.iter().filter_map(|output| match output {
                        ModelOutput::Call {
                            name, arguments, ..
                        } => Some((name.as_str(), &**arguments)),
                        _ => None,
                    });
                    turn.made
                        .extend(
                            calls
                                .zip(results)
                                .map(|((tool, arguments), result)| MadeCall {
                                    tool,
                                    arguments,
                                    result,
                                }),
                        );
                }
            }
        }
        turn
    }

    /// Returns the text that the user typed, or the path of the file that the user refers to; `None`
    /// for notes of adjutant and for contents of files.
    fn typed_text(&self, input: &ModelInput) -> Option<String> {
        let ModelInput::Text(text) = input else {
            return None;
        };
        let text = match text.split_once(USER_SPOKE) {
            Some((_, spoken)) => spoken.split("</").next()?.to_owned(),
            None => without_notes(text),
        };
        let text = text.trim();
        if text.is_empty() || text.starts_with(CONTENTS_OF) {
            return None;
        }
        if !text.starts_with("<attached uri=\"") && !text.starts_with("[The user refers to ") {
            return Some(text.to_owned());
        }
        let path = text
            .split_once("file://")?
            .1
            .split(['"', ']', '#'])
            .next()?;
        let path = decoded(path).unwrap_or_else(|| path.to_owned());
        Some(format!("`{}`", self.relative(&path)))
    }

    /// Returns a path for display: relative to the session's directory if it is inside of it.
    pub(super) fn relative<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(&self.root).unwrap_or(path)
    }

    /// Makes calls in parallel and returns their outputs, in order. `text` is the text of the answer
    /// before the calls.
    ///
    /// # Errors
    /// [`EarlyEnd::Calls`] if a call was not made yet, [`EarlyEnd::Unable`] if one has failed or
    /// cannot be made.
    pub(super) fn calls(
        &self,
        text: String,
        wanted: Vec<PlannedCall>,
    ) -> OfflineResult<Vec<Arc<str>>> {
        let mut results = Vec::new();
        let mut missing = Vec::new();
        for (tool, arguments) in wanted {
            if !self.tools.iter().any(|offered| offered.name == tool) {
                let why = format!("the `{tool}` tool is not offered in this mode");
                return Err(not_done(&why));
            }
            let made = self
                .made
                .iter()
                .find(|call| call.tool == tool && *call.arguments == arguments);
            match made.map(|call| call.result) {
                Some(result) if result.failed => return Err(not_done(&result.text)),
                Some(result) => results.push(result.text.clone()),
                None => missing.push((tool, arguments)),
            }
        }
        if missing.is_empty() {
            Ok(results)
        } else if self.made.len() < MAX_CALLS {
            Err(EarlyEnd::Calls(text, missing))
        } else {
            Err(not_done("too many calls were made"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn reason_keeps_the_similar_names() {
        let table = [
            ("It is a directory.", "Not done: It is a directory."),
            ("Refused\n\nDetails.", "Not done: Refused."),
            (
                "File not found: a\n\nDid you mean one of these?\nsrc/a.rs\nb.rs\n\nA note.",
                "Not done: File not found: a. Did you mean one of these?\n\n- `src/a.rs`\n- `b.rs`",
            ),
        ];
        for (failure, expected) in table {
            assert_eq!(reason(failure), expected);
        }
    }
}
