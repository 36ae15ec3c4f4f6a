//! The turn that a request belongs to: the last prompt, and the calls made for it.
//!
//! The model stores nothing between two requests, so every request repeats the work since the
//! prompt: a call that was made returns its result, and the first call that was not made ends the
//! work with an [`OfflineStep`]. Code can therefore be written as if calls returned immediately,
//! with `?` after each of them.

use std::sync::Arc;

use serde_json::Value;

use super::code::CodeLine;
use crate::Request;
use crate::request::{CallResult, ModelInput, ModelMessage, ModelOutput};
use base::text::mark::without_notes;
use base::text::mention::decoded;
use prompts::CONTENTS_OF;

/// A tool and its arguments.
pub(super) type PlannedCall = (&'static str, Value);

/// The text and calls of an answer; without calls it is the end of the turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct OfflineStep {
    pub(super) text: String,
    pub(super) calls: Vec<PlannedCall>,
    /// The request could not be fulfilled.
    pub(super) is_unable: bool,
}

/// Returns the end of a turn that could not fulfil the request. `why` is a sentence.
pub(super) fn unable(why: &str) -> Box<OfflineStep> {
    Box::new(OfflineStep {
        text: format!("{why}\n\n{}", prompts::offline::UNABLE.trim()),
        is_unable: true,
        ..OfflineStep::default()
    })
}

/// A result, or the step that the answer ends with: the calls to wait for, or a failure.
pub(super) type OrStep<T> = Result<T, Box<OfflineStep>>;

/// The maximum number of calls for a prompt, whatever the tools return; only the calls of the last
/// step may exceed it.
const MAX_CALLS: usize = 40;

#[derive(Debug, Default)]
pub(super) struct OfflineTurn {
    /// The user's text; a mentioned or attached file is replaced by its path.
    pub(super) prompt: String,
    /// The session's directory, without a trailing slash.
    cwd: String,
    tools: Vec<String>,
    made: Vec<((String, Value), CallResult)>,
}

impl OfflineTurn {
    pub(super) fn of(request: &Request) -> Self {
        let mut lines = request.system.iter().flat_map(|block| block.lines());
        let cwd = lines
            .find_map(|line| line.trim().strip_prefix("Working directory:"))
            .unwrap_or_default();
        let mut turn = Self {
            cwd: cwd.trim().trim_end_matches('/').to_owned(),
            ..Self::default()
        };
        turn.tools = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let mut since = request.messages.as_slice();
        for (at, message) in request.messages.iter().enumerate() {
            let text = if let ModelMessage::User(inputs) = message {
                turn.user_text(inputs)
            } else {
                String::new()
            };
            if !text.is_empty() {
                since = &request.messages[at..];
                turn.prompt = text;
            }
        }
        for pair in since.windows(2) {
            let [
                ModelMessage::Assistant(outputs),
                ModelMessage::Results(results),
            ] = pair
            else {
                continue;
            };
            let calls = outputs.iter().filter_map(|output| match output {
                ModelOutput::Call {
                    name, arguments, ..
                } => Some((name.clone(), Value::clone(arguments))),
                _ => None,
            });
            turn.made.extend(calls.zip(results.iter().cloned()));
        }
        turn
    }

    /// Returns the user's text in a message, without adjutant's own notes.
    fn user_text(&self, inputs: &[ModelInput]) -> String {
        const FILES: [(&str, &str); 3] = [
            ("<attached uri=\"", "\""),
            ("[The user refers to ", "]"),
            ("[", " ("),
        ];
        const MEANWHILE: &str = "The user sent the following message while you were working.";
        let one = |input: &ModelInput| {
            let ModelInput::Text(text) = input else {
                return None;
            };
            let rest = text
                .split_once(MEANWHILE)
                .and_then(|(_, rest)| rest.split_once('\n'));
            let meanwhile = rest.and_then(|(_, text)| text.split("</").next());
            let text = meanwhile.map_or_else(|| without_notes(text), str::to_owned);
            let text = text.trim();
            let named = FILES
                .iter()
                .find_map(|(open, close)| Some(text.strip_prefix(open)?.split_once(close)?.0));
            let path = named.and_then(|named| named.rsplit("file://").next()?.split('#').next());
            let path = path.map(|path| {
                format!(
                    "`{}`",
                    self.relative(&decoded(path).unwrap_or_else(|| path.to_owned()))
                )
            });
            let contents = text.starts_with(CONTENTS_OF);
            path.or_else(|| (!contents && !text.is_empty()).then(|| text.to_owned()))
        };
        inputs.iter().filter_map(one).collect::<Vec<_>>().join(" ")
    }

    /// Returns a path for display: relative to the session's directory if it is inside.
    fn relative(&self, path: &str) -> String {
        let inside = if self.cwd.is_empty() {
            None
        } else {
            path.strip_prefix(&self.cwd)
        };
        inside
            .and_then(|inside| inside.strip_prefix(['/', '\\']))
            .unwrap_or(path)
            .replace('\\', "/")
    }

    /// Makes calls in parallel and returns their outputs, in order. A failed call ends the turn.
    pub(super) fn calls(&self, text: &str, wanted: Vec<PlannedCall>) -> OrStep<Vec<Arc<str>>> {
        let made = |(name, given): &PlannedCall| {
            self.made
                .iter()
                .find(|((made, with), _)| made == name && with == given)
        };
        let end = |why: &str| {
            let first = why
                .lines()
                .map(str::trim)
                .find(|line| !line.is_empty())
                .unwrap_or("no reason was given");
            unable(&format!("Not done: {}.", first.trim_end_matches('.')))
        };
        if let Some((tool, _)) = wanted
            .iter()
            .find(|(tool, _)| !self.tools.iter().any(|offered| offered == tool))
        {
            return Err(end(&format!(
                "the `{tool}` tool is not offered in this mode"
            )));
        }
        let calls: Vec<PlannedCall> = wanted
            .iter()
            .filter(|call| made(call).is_none())
            .cloned()
            .collect();
        if !calls.is_empty() && self.made.len() < MAX_CALLS {
            return Err(Box::new(OfflineStep {
                text: text.to_owned(),
                calls,
                is_unable: false,
            }));
        }
        let result = |call| match made(call) {
            Some((_, done)) if done.failed => Err(end(&done.text)),
            Some((_, done)) => Ok(done.text.clone()),
            None => Err(end("too many calls were made")),
        };
        wanted.iter().map(result).collect()
    }

    /// Parses the output of `grep`: `path:`, then `  Line n: text` for each match.
    pub(super) fn found(&self, printed: &str) -> Vec<CodeLine> {
        let mut lines = Vec::new();
        let mut path = String::new();
        for line in printed.lines() {
            let numbered = line
                .strip_prefix("  Line ")
                .and_then(|rest| rest.split_once(": "));
            if let Some((number, text)) =
                numbered.and_then(|(number, text)| Some((number.parse().ok()?, text)))
            {
                lines.push(CodeLine {
                    path: path.clone(),
                    number,
                    text: text.to_owned(),
                });
            } else if !line.starts_with(' ')
                && let Some(named) = line.strip_suffix(':')
            {
                // The heading of a file with many matches also has the number of shown ones.
                let part = named
                    .rsplit_once(" (")
                    .filter(|(_, part)| part.contains(" of "));
                path = self.relative(part.map_or(named, |(path, _)| path));
            }
        }
        lines
    }

    /// Parses the lines in the output of `read`; returns `None` if it contains no text.
    pub(super) fn lines(&self, printed: &str) -> Option<Vec<CodeLine>> {
        let (head, content) = printed.split_once("<content>\n")?;
        let path = self.relative(head.split_once("<path>")?.1.split_once("</path>")?.0);
        let line = |line: &str| {
            let (number, text) = line.split_once(':')?;
            let text = text.strip_prefix(' ').unwrap_or(text).to_owned();
            Some(CodeLine {
                path: path.clone(),
                number: number.parse().ok()?,
                text,
            })
        };
        // The count of lines follows the content.
        Some(content.lines().map_while(line).collect())
    }
}
