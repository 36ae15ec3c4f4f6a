//! Estimated sizes in tokens, at four bytes each, for content that no provider has counted. Used
//! for decisions; texts for users call such a number approximate.

use super::History;
use super::view;
use providers::Request;
use providers::request::{ModelInput, ModelMessage, ModelOutput};
use transcript::{Call, CallState, Content, Message, Usage};

/// The estimated size of an image or a document, in tokens; its bytes say nothing about it.
const ATTACHMENT_TOKENS: u64 = 1_500;

pub fn tokens_of_bytes(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

/// Returns the size of a message with the results of its calls.
pub fn message(message: &Message) -> u64 {
    message
        .answer()
        .iter()
        .map(|part| content(&part.content))
        .sum()
}

/// Returns the size of a message without its attachments.
pub fn without_attachments(message: &Message) -> u64 {
    let is_inline = |content: &&Content| !matches!(content, Content::File(_));
    message
        .answer()
        .iter()
        .map(|part| &part.content)
        .filter(is_inline)
        .map(content)
        .sum()
}

fn content(content: &Content) -> u64 {
    match content {
        Content::Text(text) if text.ignored => 0,
        Content::Text(text) => tokens_of_bytes(text.text.len()),
        Content::Reasoning(reasoning) => tokens_of_bytes(reasoning.text.len()),
        Content::File(file) => file.data.as_ref().map_or(0, |_| ATTACHMENT_TOKENS),
        Content::Tool(call) => {
            tokens_of_bytes(call.tool.len() + call.input.to_string().len()) + result(call)
        }
        _ => 0,
    }
}

/// Returns the size of a call's result that is in view.
pub fn result(call: &Call) -> u64 {
    match &call.state {
        CallState::Completed(done) if done.cleared.is_some() => 0,
        CallState::Completed(done) => output(done),
        CallState::Failed { error, .. } => tokens_of_bytes(error.len()),
        CallState::Pending | CallState::Running { .. } => 0,
    }
}

/// Returns the size of a completed call's output.
pub fn output(done: &transcript::Completed) -> u64 {
    tokens_of_bytes(done.output.len()) + ATTACHMENT_TOKENS * done.attachments.len() as u64
}

pub fn request(request: &Request) -> u64 {
    fixed_tokens(request) + request.messages.iter().map(message_tokens).sum::<u64>()
}

/// Returns the size of the system prompt and the tools, which every request contains.
pub fn fixed_tokens(request: &Request) -> u64 {
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.description.len() + tool.schema.to_string().len());
    tokens_of_bytes(request.system.iter().map(String::len).sum::<usize>() + tools.sum::<usize>())
}

fn message_tokens(message: &ModelMessage) -> u64 {
    match message {
        ModelMessage::User(inputs) => inputs.iter().map(input).sum(),
        ModelMessage::Assistant(outputs) => outputs
            .iter()
            .map(|output| match output {
                ModelOutput::Text { text, .. } | ModelOutput::Reasoning { text, .. } => {
                    tokens_of_bytes(text.len())
                }
                ModelOutput::Call {
                    name, arguments, ..
                } => tokens_of_bytes(name.len() + arguments.to_string().len()),
            })
            .sum(),
        ModelMessage::Results(results) => results
            .iter()
            .map(|r| tokens_of_bytes(r.text.len()) + ATTACHMENT_TOKENS * r.attachments.len() as u64)
            .sum(),
    }
}

fn input(input: &ModelInput) -> u64 {
    match input {
        ModelInput::Text(text) => tokens_of_bytes(text.len()),
        ModelInput::File(_) => ATTACHMENT_TOKENS,
    }
}

/// Returns the size of the next request: the last count of the provider, corrected by an estimate
/// of later additions and removals. 0 if the provider has not reported usage.
pub fn next_request_tokens(history: &History) -> u64 {
    let since = view::find_compaction(history).map_or(0, |(_, summary)| summary + 1);
    let messages = &history.messages[since..];
    let Some((at, counted)) = messages.iter().enumerate().rev().find_map(|(at, m)| {
        let assistant = m.assistant()?;
        (assistant.usage != Usage::default() && !assistant.summary).then_some((at, assistant))
    }) else {
        return 0;
    };
    let results: u64 = messages[at].calls().map(result).sum();
    let later: u64 = messages[at + 1..].iter().map(message).sum();
    let gone = history
        .messages
        .iter()
        .flat_map(Message::calls)
        .filter_map(|call| match &call.state {
            CallState::Completed(done) => {
                (done.cleared? >= counted.completed?).then(|| output(done))
            }
            _ => None,
        });
    (counted.usage.context() + results + later).saturating_sub(gone.sum())
}

/// Returns the estimated size of the messages that the next request contains, with the summary.
pub fn messages(history: &History) -> u64 {
    let seen = view::visible_history(history);
    let summary = seen.summary.map_or(0, |(message_tokens, summary)| {
        message(message_tokens) + message(summary)
    });
    let messages: u64 = seen.messages.iter().map(|one| message(one)).sum();
    summary + messages
}

/// Returns the size of the context for display: the last count of the provider, or the estimate
/// after a later compaction. `None` before the first answer.
pub fn used_tokens(history: &History) -> Option<u64> {
    let compacted = view::find_compaction(history);
    let since = compacted.map_or(0, |(_, summary)| summary + 1);
    let counted = history.messages[since..]
        .iter()
        .rev()
        .filter_map(Message::assistant);
    let counted = counted
        .map(|a| a.usage)
        .find(|usage| *usage != Usage::default());
    let left = || Some(history.messages[compacted?.0].compaction()?.after);
    counted.map(|usage| usage.context()).or_else(left)
}
