//! The place of a turn in a trace, and the times of its requests, for observers that make traces.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use serde_json::{Map, Value, json};

use super::{History, TurnContext, TurnOutcome, request_cost, step_context};
use base::id::{CallId, MessageId};
use base::trace::{Sampler, TraceContext};
use events::bus::{
    Publisher, REQUEST_ANSWERED, REQUEST_ENDED, REQUEST_STARTED, TURN_ENDED, TURN_STARTED,
};
use providers::{AnswerStream, Delta, Error, Model};
use transcript::{FaultKind, Finish, Message, Usage};

/// The longest prompt in an event, in bytes.
const MAX_PROMPT_BYTES: usize = 20_000;

/// Returns the context of a turn with its place in a trace, and publishes its beginning: below the
/// span that the client has sent with the prompt, or below the call that has started this subagent.
/// Without an observer that makes traces, the place of the parent is passed on unchanged.
pub(crate) fn begin(history: &History, turn: TurnContext) -> TurnContext {
    let prompt = history.messages.last();
    let given = prompt
        .and_then(Message::options)
        .and_then(|options| options.trace.clone());
    let parent = given.or_else(|| turn.trace.clone());
    if !turn.session.recorder.events.publisher.bus().is_traced() {
        return TurnContext {
            trace: parent,
            ..turn
        };
    }
    let subject = prompt.map_or(turn.session.id.as_str(), |prompt| prompt.id.as_str());
    let own = parent.as_ref().map_or_else(
        || TraceContext::root(subject),
        |parent| parent.child(subject),
    );
    let own = Sampler::of(&turn.session.common.environment).sampled(own, parent.as_ref());
    turn.session.recorder.events.publisher.trace(TURN_STARTED, || {
        let agent = step_context::chosen_agent(&turn).ok();
        let model = agent
            .as_ref()
            .map(|agent| step_context::chosen_model(&turn, agent));
        json!({
            "sessionID": turn.session.id.as_str(), "messageID": subject, "depth": turn.session.depth,
            "agent": agent.map(|agent| agent.name.clone()),
            "providerID": model.as_ref().map(|model| &model.provider),
            "modelID": model.as_ref().map(|model| &model.model),
            "text": prompt.map(|prompt| prompt.visible_beginning(MAX_PROMPT_BYTES)),
            "trace": members(&own), "parent": parent.as_ref().map(TraceContext::span_id),
        })
    });
    TurnContext {
        trace: Some(own),
        ..turn
    }
}

/// Publishes the end of a turn.
pub(crate) fn end(turn: &TurnContext, outcome: &TurnOutcome) {
    turn.session
        .recorder
        .events
        .publisher
        .trace(TURN_ENDED, || {
            let fault = match outcome {
                TurnOutcome::Failed(fault) => Some(fault),
                _ => None,
            };
            json!({
                "sessionID": turn.session.id.as_str(), "outcome": outcome_name(outcome),
                "error": fault.map(|fault| fault_name(fault.kind)),
            })
        });
}

fn outcome_name(outcome: &TurnOutcome) -> &'static str {
    match outcome {
        TurnOutcome::Ended => "ended",
        TurnOutcome::NotDone => "not_done",
        TurnOutcome::Rejected => "rejected",
        TurnOutcome::Cancelled => "cancelled",
        TurnOutcome::Refused => "refused",
        TurnOutcome::MaxTokens => "max_tokens",
        TurnOutcome::StepLimit => "step_limit",
        TurnOutcome::Steered => "steered",
        TurnOutcome::Failed(_) => "failed",
    }
}

fn fault_name(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Auth => "auth",
        FaultKind::Interrupted => "interrupted",
        FaultKind::ContextOverflow => "context_overflow",
        FaultKind::Provider => "provider",
        FaultKind::Image => "image",
        FaultKind::Store => "store",
        FaultKind::Internal => "internal",
    }
}

/// Returns the place of a call in the trace of its turn.
pub(crate) fn call_trace(turn: &TurnContext, call: &CallId) -> Option<TraceContext> {
    let trace = turn.trace.as_ref()?;
    if turn.session.recorder.events.publisher.bus().is_traced() {
        Some(trace.child(call.as_str()))
    } else {
        // There is no span of the call.
        Some(trace.clone())
    }
}

fn members(trace: &TraceContext) -> Map<String, Value> {
    trace
        .members()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect()
}

/// The purpose of a request to a model.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestPurpose<'a> {
    /// The step with this message.
    Step(&'a MessageId),
    Summary,
    Title,
    /// A request of an MCP server or a tool.
    Sampling,
}

impl RequestPurpose<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Step(_) => "step",
            Self::Summary => "summary",
            Self::Title => "title",
            Self::Sampling => "sampling",
        }
    }
}

/// Publishes the beginning of a request, and its further times as the returned answer is read.
pub(crate) fn observe_answer(
    turn: &TurnContext,
    model: &Arc<Model>,
    purpose: RequestPurpose<'_>,
    answer: AnswerStream,
) -> AnswerStream {
    let publisher = &turn.session.recorder.events.publisher;
    if !publisher.bus().is_traced() {
        return answer;
    }
    let request = turn.session.common.environment.fresh("req");
    publisher.trace(REQUEST_STARTED, || {
        let parent = match (&turn.trace, purpose) {
            (Some(trace), RequestPurpose::Step(message)) => Some(trace.child(message.as_str())),
            (trace, _) => trace.clone(),
        };
        json!({
            "sessionID": turn.session.id.as_str(), "requestID": request, "purpose": purpose.name(),
            "providerID": model.id.provider, "modelID": model.id.model,
            "trace": parent.as_ref().map(members),
        })
    });
    Box::pin(ObservedAnswer {
        answer,
        report: AnswerReport {
            publisher: publisher.clone(),
            request,
            model: model.clone(),
            has_begun: false,
            usage: Usage::default(),
            finish: None,
            error: None,
        },
    })
}

/// An answer whose times are published.
struct ObservedAnswer {
    answer: AnswerStream,
    report: AnswerReport,
}

impl Stream for ObservedAnswer {
    type Item = Result<Delta, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.answer.as_mut().poll_next(context);
        if let Poll::Ready(Some(piece)) = &polled {
            self.report.take(piece);
        }
        polled
    }
}

/// The parts of an answer that are published. Its end is published when it is dropped, because not
/// every answer is read to its end.
struct AnswerReport {
    publisher: Publisher,
    request: String,
    model: Arc<Model>,
    has_begun: bool,
    usage: Usage,
    finish: Option<Finish>,
    error: Option<&'static str>,
}

impl AnswerReport {
    fn take(&mut self, piece: &Result<Delta, Error>) {
        match piece {
            Err(error) => self.error = Some(error.kind()),
            Ok(delta) => {
                match delta {
                    Delta::Usage(usage) => self.usage = *usage,
                    Delta::Finish(finish) => self.finish = Some(*finish),
                    _ => {}
                }
                if !std::mem::replace(&mut self.has_begun, true) {
                    self.publisher
                        .trace(REQUEST_ANSWERED, || json!({ "requestID": self.request }));
                }
            }
        }
    }
}

impl Drop for AnswerReport {
    fn drop(&mut self) {
        self.publisher.trace(REQUEST_ENDED, || {
            let finish = self.finish.map(|finish| match finish {
                Finish::Stop => "stop",
                Finish::ToolCalls => "tool_calls",
                Finish::Length => "length",
                Finish::Refusal => "content_filter",
                Finish::NotDone | Finish::Other => "other",
            });
            let unfinished = self.finish.is_none().then_some("cancelled");
            json!({
                "requestID": self.request, "finish": finish, "error": self.error.or(unfinished),
                "cost": request_cost(&self.model, &self.usage),
                "tokens": {
                    "input": self.usage.input, "output": self.usage.output, "reasoning": self.usage.reasoning,
                    "cacheRead": self.usage.cache_read, "cacheWrite": self.usage.cache_write,
                },
            })
        });
    }
}
