//! The offline model, which needs no key, no network and no weights. It finds named definitions in
//! the code and shows them, and carries out simple orders, with the same tools as any other model,
//! so that permissions and diffs can be tried before a provider is connected. It is a function of
//! the request: it stores nothing between two requests, and the same request gives the same answer,
//! byte for byte.
//!
//! Reading order: `turn` reads the request and replays the calls made so far, `order` carries out
//! orders, `search` answers questions with `code` (patterns of definitions). An answer shows at most
//! two places; if the request could not be fulfilled, it finishes with [`Finish::NotDone`].

mod code;
mod order;
mod search;
mod turn;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::stream;

use self::turn::{OfflineStep, OfflineTurn, OrStep};
use super::request::ModelMessage;
use super::{AnswerStream, Delta, Provider, Request};
use base::text::cut_chars;
use transcript::{Finish, Usage};

/// The notice shown once if no other model is connected: one line.
pub const CONNECT: &str = prompts::offline::CONNECT;

/// The provider of the offline model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offline;

impl Provider for Offline {
    fn ask(&self, request: Arc<Request>) -> AnswerStream {
        Box::pin(stream::iter(think(&request).into_iter().map(Ok)))
    }
}

/// Returns the answer to a request: a pure function.
pub fn think(request: &Request) -> Vec<Delta> {
    let turn = OfflineTurn::of(request);
    deltas(
        &answer(&turn, request).map_or_else(
            |step| *step,
            |text| OfflineStep {
                text,
                ..OfflineStep::default()
            },
        ),
        request,
    )
}

fn answer(turn: &OfflineTurn, request: &Request) -> OrStep<String> {
    let head: String = request
        .system
        .concat()
        .to_lowercase()
        .chars()
        .take(200)
        .collect();
    if request.tools.is_empty() && head.contains("summar") {
        // The user's messages in a transcript, in which each entry begins with its role.
        let messages = turn
            .prompt
            .split("\n[")
            .filter_map(|entry| entry.trim_start_matches('[').strip_prefix("user]"));
        let list =
            messages.map(|text| format!("- {}\n", cut_chars(&text.trim().replace('\n', " "), 300)));
        return Ok(format!("## Objective\n\n{}", list.collect::<String>()));
    }
    let tokens = order::tokens(&turn.prompt);
    if let Some(done) = order::carry_out(turn, &tokens)? {
        return Ok(done);
    }
    search::answer(turn, &tokens)?.ok_or_else(|| {
        Box::new(OfflineStep {
            text: prompts::offline::HELP.trim().to_owned(),
            is_unable: true,
            ..OfflineStep::default()
        })
    })
}

/// Converts a step to deltas as a model would send them: text word by word, calls, the token
/// counts.
fn deltas(step: &OfflineStep, request: &Request) -> Vec<Delta> {
    let pieces = step.text.split_inclusive(char::is_whitespace);
    let mut deltas: Vec<Delta> = pieces
        .map(|text| Delta::Text {
            index: 0,
            text: text.to_owned(),
        })
        .collect();
    for (index, (name, arguments)) in (1..).zip(&step.calls) {
        deltas.push(Delta::Call {
            index,
            id: None,
            name: (*name).to_owned(),
        });
        deltas.push(Delta::Arguments {
            index,
            json: arguments.to_string(),
        });
    }
    // An estimate, as elsewhere: four bytes per token.
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    let system = request
        .system
        .iter()
        .chain(request.tools.iter().map(|tool| &tool.description))
        .map(String::len);
    let input = system
        .chain(request.messages.iter().map(ModelMessage::length))
        .sum();
    deltas.push(Delta::Usage(Usage {
        input: tokens(input),
        output: tokens(step.text.len()),
        ..Usage::default()
    }));
    deltas.push(Delta::Finish(if step.is_unable {
        Finish::NotDone
    } else if step.calls.is_empty() {
        Finish::Stop
    } else {
        Finish::ToolCalls
    }));
    deltas
}
