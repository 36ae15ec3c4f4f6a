//! The offline model ([`Offline`]): a program that answers like a model, and needs no key, no
//! network and no weights.
//!
//! It finds definitions in the code by name and shows them, and carries out simple instructions. It
//! uses the same tools as any other model, so that users can try permissions and diffs before they
//! connect a provider. It stores nothing between two requests: the same request gives the same
//! answer, byte for byte.
//!
//! `turn.rs` reads the request and looks up the results of the calls made so far, `instruction.rs`
//! carries out instructions, `search.rs` finds definitions. If the request could not be fulfilled,
//! the answer finishes with [`Finish::NotDone`].

mod instruction;
mod search;
mod turn;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::stream;

use self::turn::{EarlyEnd, OfflineTurn};
use super::{AnswerStream, Delta, Provider, Request};
use transcript::Finish;

/// The notice shown if no other model is connected: once a day in each directory, and again if
/// another model was connected in the meantime.
pub const CONNECT_NOTICE: &str = prompts::offline::CONNECT;

/// The provider of the offline model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offline;

impl Provider for Offline {
    fn stream(&self, request: Arc<Request>) -> AnswerStream {
        Box::pin(stream::iter(answer(&request).into_iter().map(Ok)))
    }
}

/// Returns the answer to a request as deltas, one for each word and each part of a call.
fn answer(request: &Request) -> Vec<Delta> {
    let (text, calls, finish) =
        match instruction::carry_out(&OfflineTurn::new(request), search::answer) {
            Ok(text) => (text, Vec::new(), Finish::Stop),
            Err(EarlyEnd::Calls(text, calls)) => (text, calls, Finish::ToolCalls),
            Err(EarlyEnd::Unable(text)) => (text, Vec::new(), Finish::NotDone),
        };
    let words = text.split_inclusive(char::is_whitespace);
    let mut deltas: Vec<Delta> = words
        .map(|text| Delta::Text {
            index: 0,
            text: text.to_owned(),
        })
        .collect();
    for (index, (name, arguments)) in (1..).zip(calls) {
        deltas.push(Delta::Call {
            index,
            id: None,
            name: name.to_owned(),
        });
        deltas.push(Delta::Arguments {
            index,
            json: arguments.to_string(),
        });
    }
    deltas.push(Delta::Finish(finish));
    deltas
}
