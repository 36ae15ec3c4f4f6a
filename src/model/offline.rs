//! The model that is always there: no key, no network, no weights.
//!
//! It compares words, ranks places and carries out plain orders, with the same tools as any other
//! model, so that permissions, diffs, terminals and plans can be tried in an editor before a
//! provider is connected. It is a function of the request: nothing is remembered between two
//! requests, nothing is random, and the same request gives the same answer, byte for byte.
//!
//! Reading order: `view` reads the request, `order` (with `sentence`, `grammar`, `path`) reads the
//! prompt, `desk` replays the calls made so far, `work` carries out orders, `ask` answers questions
//! with `words`, `places` and `blocks`, `answer` is how all of it is written, `record` makes titles
//! and summaries.

mod answer;
mod ask;
mod blocks;
mod desk;
mod grammar;
mod order;
mod path;
mod places;
mod record;
mod sentence;
mod view;
mod words;
mod work;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::{StreamExt, stream};

pub use record::title;

use self::desk::{Decision, Desk, Waits};
use self::order::Intent;
use self::record::Side;
use self::view::View;
use super::{Answer, Delta, Provider, Request};
use crate::message::{Finish, Usage};
use crate::model::request::{Input, Message, Output};

/// What it says at the end of its first answer in a session.
const CONNECT: &str = include_str!("../../prompts/offline/connect.md");
/// What it says of itself.
const HELP: &str = include_str!("../../prompts/offline/help.md");

/// The model that is always there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offline;

impl Provider for Offline {
    fn ask(&self, request: Arc<Request>) -> Answer {
        let answer = stream::once(async move { stream::iter(think(&request).into_iter().map(Ok)) });
        Box::pin(answer.flatten())
    }
}

/// What is answered to a request: pure.
pub fn think(request: &Request) -> Vec<Delta> {
    let decision = match record::side(request) {
        Some(Side::Title) => say(record::title_of(request)),
        Some(Side::Summary) => say(record::summary_of(request)),
        Some(Side::Changes) => say(record::changes_of(request)),
        None => decide(&View::of(request)),
    };
    deltas(&decision, input_size(request))
}

fn say(text: String) -> Decision {
    Decision { text, ..Decision::default() }
}

fn decide(view: &View) -> Decision {
    match work(view) {
        Ok(text) if view.first => say(format!("{text}\n\n{}", CONNECT.trim())),
        Ok(text) => say(text),
        Err(decision) => *decision,
    }
}

/// Works on the prompt, then on what the user said meanwhile.
fn work(view: &View) -> Waits<String> {
    let mut desk = Desk::new(view);
    let mut texts = vec![one(&mut desk, &view.prompt)?];
    for prompt in &view.meanwhile {
        texts.push(one(&mut desk, prompt)?);
    }
    if !view.unreadable.is_empty() {
        let names: Vec<String> = view.unreadable.iter().map(|name| words::quoted(name)).collect();
        texts.push(format!("I could not look at {}: this model reads text only.", names.join(", ")));
    }
    Ok(texts.join("\n\n"))
}

fn one(desk: &mut Desk<'_>, prompt: &str) -> Waits<String> {
    const NOTHING: &str = "There is nothing left for me to do. Ask about the code, give me an order, or say help.";
    let attached = !desk.view.attached.is_empty();
    match order::parse(prompt, attached) {
        Intent::Help if prompt.is_empty() && !desk.view.first => Ok(NOTHING.to_owned()),
        Intent::Help => Ok(HELP.trim().to_owned()),
        Intent::Nothing => Ok(NOTHING.to_owned()),
        Intent::Orders { orders, planned } => work::orders(desk, &orders, planned),
        Intent::Plan { goal, question } => ask::plan(desk, &goal, &question),
        Intent::Question(question) => ask::answer(desk, &question),
    }
}

/// A decision as it would come from a model: reasoning, words a few at a time, calls, the count.
fn deltas(decision: &Decision, input: u64) -> Vec<Delta> {
    let mut deltas = Vec::new();
    let mut index = 0;
    let mut output = 0;
    if !decision.thought.is_empty() {
        deltas.extend(pieces(&decision.thought).map(|text| Delta::Reasoning { index, text }));
        index += 1;
    }
    if !decision.text.is_empty() {
        deltas.extend(pieces(&decision.text).map(|text| Delta::Text { index, text }));
        index += 1;
    }
    for (name, arguments) in &decision.calls {
        let json = arguments.to_string();
        output += json.len();
        deltas.push(Delta::Call { index, id: None, name: name.clone() });
        deltas.push(Delta::Arguments { index, json });
        index += 1;
    }
    output += decision.text.len();
    deltas.push(Delta::Usage(Usage {
        input,
        output: tokens(output),
        reasoning: tokens(decision.thought.len()),
        ..Usage::default()
    }));
    deltas.push(Delta::Finish(if decision.calls.is_empty() { Finish::Stop } else { Finish::ToolCalls }));
    deltas
}

/// A text cut after each run of white space.
fn pieces(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let word = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let space = rest[word..].find(|c: char| !c.is_whitespace()).unwrap_or(rest.len() - word);
        let (piece, left) = rest.split_at(word + space);
        rest = left;
        Some(piece.to_owned())
    })
}

/// An estimate, as everywhere: four bytes a token.
fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

fn input_size(request: &Request) -> u64 {
    let said = |input: &Input| match input {
        Input::Text(text) => text.len(),
        Input::File(file) => file.data.len(),
    };
    let answered = |output: &Output| match output {
        Output::Text { text, .. } | Output::Reasoning { text, .. } => text.len(),
        Output::Call { name, arguments, .. } => name.len() + arguments.to_string().len(),
    };
    let message = |message: &Message| match message {
        Message::User(inputs) => inputs.iter().map(said).sum::<usize>(),
        Message::Assistant(outputs) => outputs.iter().map(answered).sum(),
        Message::Results(results) => results.iter().map(|result| result.text.len()).sum(),
    };
    let tools = request.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum::<usize>();
    let system = request.system.iter().map(String::len).sum::<usize>();
    tokens(tools + system + request.messages.iter().map(message).sum::<usize>())
}
