//! Spans and measurements of the events of sessions, as a pure state machine.
//!
//! ```text
//! invoke_agent build            a turn, or that of a subagent, below its call
//!   step                        an answer and its calls
//!     chat claude-…             a request, once more for each repetition
//!     execute_tool bash
//!       question                a permission, until it is answered
//!   chat claude-…               a summary
//! ```

use std::collections::HashMap;

use opentelemetry::trace::SpanKind;
use opentelemetry::{Array, KeyValue, StringValue, Value as Attribute};
use serde_json::{Value, json};

use super::attributes as names;
use base::environment::Timestamp;
use base::trace::{Sampler, TraceContext};
use events::bus::{
    REQUEST_ANSWERED, REQUEST_ENDED, REQUEST_STARTED, SessionEvent, TURN_ENDED, TURN_STARTED,
};

/// The number of turns, and of requests, that may be unfinished at once. The oldest are forgotten,
/// because the events of their ends may have been lost.
const MAX_UNFINISHED: usize = 1024;

/// The longest content in an attribute, in bytes. Events have longer ones.
const MAX_CONTENT_BYTES: usize = 20_000;

/// Something that is complete.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Finished {
    Span(FinishedSpan),
    Measurement(Measurement),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FinishedSpan {
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) trace: TraceContext,
    /// The id of the parent span; `None` for the first of a trace.
    pub(crate) parent: Option<String>,
    /// True if the parent is a span of another program.
    pub(crate) is_parent_remote: bool,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) attributes: Vec<KeyValue>,
    /// The kind of error, if it failed.
    pub(crate) error: Option<String>,
}

/// A number for a metric, with its attributes. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Measurement {
    Tokens(u64, Vec<KeyValue>),
    Request(f64, Vec<KeyValue>),
    FirstChunk(f64, Vec<KeyValue>),
    Turn(f64, Vec<KeyValue>),
    Tool(f64, Vec<KeyValue>),
    /// US dollars.
    Cost(f64, Vec<KeyValue>),
}

/// The error of turns and requests that have no end because the process exits.
const INTERRUPTED: &str = "interrupted";

/// The error of a call that was not made: its arguments were invalid, or its answer broke off.
const NOT_RUN: &str = "not_run";

/// The unfinished turns and requests.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Contents become attributes.
    content: bool,
    /// For requests that belong to no turn.
    sampler: Sampler,
    /// By session.
    turns: HashMap<String, Turn>,
    /// By their ids.
    requests: HashMap<String, Request>,
}

#[derive(Debug)]
struct Turn {
    trace: TraceContext,
    parent: Option<String>,
    is_parent_remote: bool,
    start: Timestamp,
    agent: String,
    provider: String,
    model: String,
    prompt: Option<String>,
    /// By message.
    steps: HashMap<String, Step>,
    /// By the id of the call.
    calls: HashMap<String, Call>,
    /// By the id of the question.
    questions: HashMap<String, Question>,
    made: i64,
    tokens: TokenCounts,
    cost: f64,
}

#[derive(Debug)]
struct Step {
    start: Timestamp,
    /// The texts of the answer, by part, in order.
    texts: Vec<(String, String)>,
}

#[derive(Debug)]
struct Call {
    tool: String,
    /// The message of its step.
    message: String,
    /// The time when it was part of an answer.
    announced: Timestamp,
    /// The time of the first question about it.
    first_question: Option<Timestamp>,
    /// `None` before it runs.
    start: Option<Timestamp>,
}

#[derive(Debug)]
struct Question {
    call: String,
    permission: String,
    start: Timestamp,
}

#[derive(Debug)]
struct Request {
    session: String,
    trace: TraceContext,
    parent: Option<String>,
    provider: String,
    model: String,
    purpose: String,
    start: Timestamp,
    answered: Option<Timestamp>,
}

/// Tokens as the conventions count them: cached input is input, reasoning is output.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct TokenCounts {
    input: u64,
    output: u64,
    reasoning: u64,
    cache_read: u64,
    cache_write: u64,
}

impl TokenCounts {
    fn read(tokens: &Value) -> Self {
        let count = |key: &str| tokens[key].as_u64().unwrap_or_default();
        let cache_read = count("cacheRead");
        let cache_write = count("cacheWrite");
        let reasoning = count("reasoning");
        Self {
            input: count("input") + cache_read + cache_write,
            output: count("output") + reasoning,
            reasoning,
            cache_read,
            cache_write,
        }
    }

    fn add(&mut self, more: Self) {
        self.input += more.input;
        self.output += more.output;
        self.reasoning += more.reasoning;
        self.cache_read += more.cache_read;
        self.cache_write += more.cache_write;
    }

    fn is_known(self) -> bool {
        self.input + self.output > 0
    }

    fn attributes(self) -> Vec<KeyValue> {
        if !self.is_known() {
            return Vec::new();
        }
        let all = [
            (names::INPUT_TOKENS, self.input),
            (names::OUTPUT_TOKENS, self.output),
            (names::REASONING_TOKENS, self.reasoning),
            (names::CACHE_READ_TOKENS, self.cache_read),
            (names::CACHE_WRITE_TOKENS, self.cache_write),
        ];
        all.into_iter()
            .enumerate()
            .filter(|(at, (_, count))| *at < 2 || *count > 0)
            .map(|(_, (name, count))| KeyValue::new(name, whole(count)))
            .collect()
    }
}

impl Turns {
    pub(crate) fn new(content: bool, sampler: Sampler) -> Self {
        Self {
            content,
            sampler,
            turns: HashMap::new(),
            requests: HashMap::new(),
        }
    }

    /// Takes an event into account. Returns the spans and measurements that it completes.
    pub(crate) fn record(&mut self, event: &SessionEvent) -> Vec<Finished> {
        let about = &event.properties;
        match event.kind {
            TURN_STARTED => self.turn_started(event),
            TURN_ENDED => return self.turn_ended(event),
            REQUEST_STARTED => self.request_started(event),
            REQUEST_ANSWERED => {
                if let Some(request) = self.requests.get_mut(&text(&about["requestID"])) {
                    request.answered = Some(event.at);
                }
            }
            REQUEST_ENDED => return self.request_ended(event),
            "message.updated" => return self.message(event),
            "message.part.updated" => return self.part(event),
            "permission.asked" => self.begin_question(event),
            "permission.replied" => return self.end_question(event),
            _ => {}
        }
        Vec::new()
    }

    /// Ends everything that has not ended, because the process exits. Otherwise the spans below it
    /// that were sent already would have no parent.
    pub(crate) fn cut_off(&mut self, at: Timestamp) -> Vec<Finished> {
        let mut finished = Vec::new();
        let requests: Vec<String> = self.requests.keys().cloned().collect();
        for request in requests {
            finished.extend(self.finish_request(&request, &json!({ "error": INTERRUPTED }), at));
        }
        let turns: Vec<String> = self.turns.keys().cloned().collect();
        for session in turns {
            let error = Some(INTERRUPTED.to_owned());
            finished.extend(self.finish_turn(&session, INTERRUPTED, error, at));
        }
        finished
    }

    fn turn_started(&mut self, event: &SessionEvent) {
        let about = &event.properties;
        let Some(trace) = about["trace"].as_object().and_then(TraceContext::read) else {
            return;
        };
        let turn = Turn {
            trace,
            parent: about["parent"].as_str().map(str::to_owned),
            is_parent_remote: about["depth"] == 0 && about["parent"].is_string(),
            start: event.at,
            agent: text(&about["agent"]),
            provider: text(&about["providerID"]),
            model: text(&about["modelID"]),
            prompt: if self.content {
                about["text"].as_str().map(str::to_owned)
            } else {
                None
            },
            steps: HashMap::new(),
            calls: HashMap::new(),
            questions: HashMap::new(),
            made: 0,
            tokens: TokenCounts::default(),
            cost: 0.0,
        };
        forget_oldest(&mut self.turns, |turn| turn.start);
        self.turns.insert(event.session.to_string(), turn);
    }

    fn turn_ended(&mut self, event: &SessionEvent) -> Vec<Finished> {
        let about = &event.properties;
        let error = about["error"].as_str().map(str::to_owned);
        let outcome = text(&about["outcome"]);
        self.finish_turn(event.session.as_str(), &outcome, error, event.at)
    }

    fn finish_turn(
        &mut self,
        session: &str,
        outcome: &str,
        error: Option<String>,
        end: Timestamp,
    ) -> Vec<Finished> {
        let Some(mut turn) = self.turns.remove(session) else {
            return Vec::new();
        };
        let mut finished = turn.end_all(end);
        let mut attributes = vec![
            KeyValue::new(names::OPERATION, "invoke_agent"),
            KeyValue::new(names::AGENT, turn.agent.clone()),
            KeyValue::new(names::CONVERSATION, session.to_owned()),
            KeyValue::new(names::PROVIDER, provider(&turn.provider)),
            KeyValue::new(names::MODEL, turn.model.clone()),
            KeyValue::new(names::OUTCOME, outcome.to_owned()),
            KeyValue::new(names::STEPS, turn.made),
        ];
        attributes.extend(turn.tokens.attributes());
        attributes.extend((turn.cost > 0.0).then(|| KeyValue::new(names::COST, turn.cost)));
        attributes.extend(
            error
                .clone()
                .map(|error| KeyValue::new(names::ERROR, error)),
        );
        if let Some(prompt) = &turn.prompt {
            let messages =
                json!([{ "role": "user", "parts": [{ "type": "text", "content": prompt }] }]);
            attributes.push(KeyValue::new(names::INPUT_MESSAGES, messages.to_string()));
        }
        let mut measured = vec![
            KeyValue::new(names::OPERATION, "invoke_agent"),
            KeyValue::new(names::AGENT, turn.agent.clone()),
            KeyValue::new(names::PROVIDER, provider(&turn.provider)),
            KeyValue::new(names::MODEL, turn.model.clone()),
        ];
        measured.extend(
            error
                .clone()
                .map(|error| KeyValue::new(names::ERROR, error)),
        );
        finished.push(Finished::Measurement(Measurement::Turn(
            seconds(turn.start, end),
            measured,
        )));
        finished.push(Finished::Span(FinishedSpan {
            name: format!("invoke_agent {}", turn.agent),
            kind: SpanKind::Internal,
            trace: turn.trace,
            parent: turn.parent,
            is_parent_remote: turn.is_parent_remote,
            start: turn.start,
            end,
            attributes,
            error,
        }));
        finished
    }

    fn request_started(&mut self, event: &SessionEvent) {
        let about = &event.properties;
        let id = text(&about["requestID"]);
        let above = about["trace"].as_object().and_then(TraceContext::read);
        let request = Request {
            session: event.session.to_string(),
            trace: above.as_ref().map_or_else(
                || self.sampler.sampled(TraceContext::root(&id), None),
                |above| above.child(&id),
            ),
            parent: above.map(|above| above.span_id().to_owned()),
            provider: text(&about["providerID"]),
            model: text(&about["modelID"]),
            purpose: text(&about["purpose"]),
            start: event.at,
            answered: None,
        };
        forget_oldest(&mut self.requests, |request| request.start);
        self.requests.insert(id, request);
    }

    fn request_ended(&mut self, event: &SessionEvent) -> Vec<Finished> {
        let about = &event.properties;
        self.finish_request(&text(&about["requestID"]), about, event.at)
    }

    fn finish_request(&mut self, id: &str, about: &Value, end: Timestamp) -> Vec<Finished> {
        let Some(request) = self.requests.remove(id) else {
            return Vec::new();
        };
        let tokens = TokenCounts::read(&about["tokens"]);
        let cost = about["cost"].as_f64().filter(|cost| *cost > 0.0);
        if let Some(turn) = self.turns.get_mut(&request.session) {
            turn.tokens.add(tokens);
            turn.cost += cost.unwrap_or_default();
        }
        let error = about["error"].as_str().map(str::to_owned);
        let common = vec![
            KeyValue::new(names::OPERATION, "chat"),
            KeyValue::new(names::PROVIDER, provider(&request.provider)),
            KeyValue::new(names::MODEL, request.model.clone()),
        ];
        let first = request
            .answered
            .map(|answered| seconds(request.start, answered));
        let mut attributes = common.clone();
        attributes.extend([
            KeyValue::new(names::CONVERSATION, request.session.clone()),
            KeyValue::new(names::PURPOSE, request.purpose.clone()),
        ]);
        if let Some(finish) = about["finish"].as_str() {
            let finish = Array::String(vec![StringValue::from(finish.to_owned())]);
            attributes.push(KeyValue::new(
                names::FINISH_REASONS,
                Attribute::Array(finish),
            ));
        }
        attributes.extend(tokens.attributes());
        attributes.extend(first.map(|first| KeyValue::new(names::FIRST_CHUNK, first)));
        attributes.extend(cost.map(|cost| KeyValue::new(names::COST, cost)));
        attributes.extend(
            error
                .clone()
                .map(|error| KeyValue::new(names::ERROR, error)),
        );
        let mut timed = common.clone();
        timed.extend(
            error
                .clone()
                .map(|error| KeyValue::new(names::ERROR, error)),
        );
        let mut measurements = vec![Measurement::Request(seconds(request.start, end), timed)];
        measurements.extend(first.map(|first| Measurement::FirstChunk(first, common.clone())));
        if tokens.is_known() {
            for (kind, count) in [("input", tokens.input), ("output", tokens.output)] {
                let mut attributes = common.clone();
                attributes.push(KeyValue::new(names::TOKEN_TYPE, kind));
                measurements.push(Measurement::Tokens(count, attributes));
            }
        }
        measurements.extend(cost.map(|cost| Measurement::Cost(cost, common)));
        let span = FinishedSpan {
            name: format!("chat {}", request.model),
            kind: SpanKind::Client,
            trace: request.trace,
            parent: request.parent,
            is_parent_remote: false,
            start: request.start,
            end,
            attributes,
            error,
        };
        measurements
            .into_iter()
            .map(Finished::Measurement)
            .chain([Finished::Span(span)])
            .collect()
    }

    /// Takes a message into account: an answer is a step from its beginning to the end of its
    /// calls.
    fn message(&mut self, event: &SessionEvent) -> Vec<Finished> {
        let info = &event.properties["info"];
        let Some(turn) = self.turns.get_mut(event.session.as_str()) else {
            return Vec::new();
        };
        if info["role"] != "assistant" || info["summary"] == true {
            return Vec::new();
        }
        let id = text(&info["id"]);
        if info["time"]["completed"].is_u64() {
            return turn.step_ended(&id, info, event).into_iter().collect();
        }
        turn.steps.entry(id).or_insert_with(|| Step {
            start: event.at,
            texts: Vec::new(),
        });
        Vec::new()
    }

    fn part(&mut self, event: &SessionEvent) -> Vec<Finished> {
        let part = &event.properties["part"];
        let Some(turn) = self.turns.get_mut(event.session.as_str()) else {
            return Vec::new();
        };
        match part["type"].as_str() {
            Some("tool") => turn.call(part, event, self.content),
            Some("text") if self.content => {
                if let Some(step) = turn.steps.get_mut(&text(&part["messageID"])) {
                    let answer = part["text"].as_str().unwrap_or_default();
                    step.set_text(text(&part["id"]), beginning(answer));
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn begin_question(&mut self, event: &SessionEvent) {
        let about = &event.properties;
        let Some(turn) = self.turns.get_mut(event.session.as_str()) else {
            return;
        };
        let question = Question {
            call: text(&about["callID"]),
            permission: text(&about["permission"]),
            start: event.at,
        };
        if let Some(call) = turn.calls.get_mut(&question.call) {
            call.first_question.get_or_insert(event.at);
        }
        turn.questions.insert(text(&about["id"]), question);
    }

    fn end_question(&mut self, event: &SessionEvent) -> Vec<Finished> {
        let about = &event.properties;
        let Some(turn) = self.turns.get_mut(event.session.as_str()) else {
            return Vec::new();
        };
        let id = text(&about["requestID"]);
        let Some(question) = turn.questions.remove(&id) else {
            return Vec::new();
        };
        let reply = about["reply"].as_str();
        vec![turn.question_span(&id, question, reply, event.at)]
    }
}

impl Turn {
    /// Takes the state of a call into account. A state that is published again after the end of the
    /// call, because its result was shortened, counts once.
    fn call(&mut self, part: &Value, event: &SessionEvent, content: bool) -> Vec<Finished> {
        let id = text(&part["callID"]);
        let state = &part["state"];
        let has_failed = match state["status"].as_str() {
            Some("completed") => false,
            Some("error") => true,
            status => {
                let call = self.calls.entry(id).or_insert_with(|| Call {
                    tool: String::new(),
                    message: text(&part["messageID"]),
                    announced: event.at,
                    first_question: None,
                    start: None,
                });
                // It changes if the call was one for several, or had a name that is repaired.
                call.tool = text(&part["tool"]);
                if status == Some("running") {
                    call.start.get_or_insert(event.at);
                }
                return Vec::new();
            }
        };
        let Some(mut call) = self.calls.remove(&id) else {
            return Vec::new();
        };
        call.tool = text(&part["tool"]);
        let mut contents = Vec::new();
        if content {
            let arguments = beginning(&state["input"].to_string());
            contents.push(KeyValue::new(names::TOOL_ARGUMENTS, arguments));
            let result = state["output"].as_str().or_else(|| state["error"].as_str());
            contents
                .extend(result.map(|result| KeyValue::new(names::TOOL_RESULT, beginning(result))));
        }
        let error = match call.first_question.or(call.start) {
            None => NOT_RUN,
            Some(_) => "tool_error",
        };
        let error = has_failed.then(|| error.to_owned());
        self.call_ended(&id, call, contents, error, event.at)
    }

    fn call_ended(
        &self,
        id: &str,
        call: Call,
        contents: Vec<KeyValue>,
        error: Option<String>,
        end: Timestamp,
    ) -> Vec<Finished> {
        let mut measured = vec![
            KeyValue::new(names::OPERATION, "execute_tool"),
            KeyValue::new(names::TOOL, call.tool.clone()),
        ];
        measured.extend(
            error
                .clone()
                .map(|error| KeyValue::new(names::ERROR, error)),
        );
        let mut attributes = measured.clone();
        attributes.push(KeyValue::new(names::TOOL_CALL, id.to_owned()));
        attributes.extend(contents);
        let span = FinishedSpan {
            name: format!("execute_tool {}", call.tool),
            kind: SpanKind::Internal,
            trace: self.trace.child(id),
            parent: Some(self.trace.child(&call.message).span_id().to_owned()),
            is_parent_remote: false,
            start: call
                .first_question
                .into_iter()
                .chain(call.start)
                .min()
                .unwrap_or(call.announced),
            end,
            attributes,
            error,
        };
        let duration = call.start.map(|start| seconds(start, end));
        let measurement = duration.map(|duration| Measurement::Tool(duration, measured));
        measurement
            .map(Finished::Measurement)
            .into_iter()
            .chain([Finished::Span(span)])
            .collect()
    }

    fn step_ended(&mut self, id: &str, info: &Value, event: &SessionEvent) -> Option<Finished> {
        let step = self.steps.remove(id)?;
        self.made += 1;
        let error = info["error"]["name"].as_str().map(str::to_owned);
        let mut attributes = vec![KeyValue::new(names::AGENT, text(&info["agent"]))];
        attributes.extend(
            error
                .clone()
                .map(|error| KeyValue::new(names::ERROR, error)),
        );
        if !step.texts.is_empty() {
            let parts: Vec<Value> = step
                .texts
                .iter()
                .map(|(_, text)| json!({ "type": "text", "content": text }))
                .collect();
            let messages = json!([{
                "role": "assistant", "parts": parts, "finish_reason": info["finish"],
            }]);
            attributes.push(KeyValue::new(names::OUTPUT_MESSAGES, messages.to_string()));
        }
        Some(self.step_span(id, step.start, event.at, attributes, error))
    }

    fn step_span(
        &self,
        id: &str,
        start: Timestamp,
        end: Timestamp,
        attributes: Vec<KeyValue>,
        error: Option<String>,
    ) -> Finished {
        Finished::Span(FinishedSpan {
            name: "step".into(),
            kind: SpanKind::Internal,
            trace: self.trace.child(id),
            parent: Some(self.trace.span_id().to_owned()),
            is_parent_remote: false,
            start,
            end,
            attributes,
            error,
        })
    }

    fn question_span(
        &self,
        id: &str,
        question: Question,
        reply: Option<&str>,
        end: Timestamp,
    ) -> Finished {
        let mut attributes = vec![KeyValue::new(names::PERMISSION, question.permission)];
        attributes.extend(reply.map(|reply| KeyValue::new(names::REPLY, reply.to_owned())));
        Finished::Span(FinishedSpan {
            name: "question".into(),
            kind: SpanKind::Internal,
            trace: self.trace.child(id),
            parent: Some(self.trace.child(&question.call).span_id().to_owned()),
            is_parent_remote: false,
            start: question.start,
            end,
            attributes,
            error: None,
        })
    }

    /// Ends everything in the turn that has not ended on its own.
    fn end_all(&mut self, end: Timestamp) -> Vec<Finished> {
        let mut finished = Vec::new();
        for (id, question) in std::mem::take(&mut self.questions) {
            finished.push(self.question_span(&id, question, None, end));
        }
        for (id, call) in std::mem::take(&mut self.calls) {
            // One that has not begun is a part of an answer that was not used.
            if call.first_question.or(call.start).is_some() {
                let error = Some("cancelled".to_owned());
                finished.extend(self.call_ended(&id, call, Vec::new(), error, end));
            }
        }
        for (id, step) in std::mem::take(&mut self.steps) {
            let attributes = vec![KeyValue::new(names::AGENT, self.agent.clone())];
            finished.push(self.step_span(&id, step.start, end, attributes, None));
        }
        finished
    }
}

impl Step {
    /// Sets the text of a part, which grows with each event.
    fn set_text(&mut self, part: String, text: String) {
        match self.texts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, known)) => *known = text,
            None => self.texts.push((part, text)),
        }
    }
}

/// Removes the oldest one if there are too many.
fn forget_oldest<T>(unfinished: &mut HashMap<String, T>, start: impl Fn(&T) -> Timestamp) {
    if unfinished.len() < MAX_UNFINISHED {
        return;
    }
    let oldest = unfinished
        .iter()
        .min_by_key(|(_, one)| start(one))
        .map(|(key, _)| key.clone());
    if let Some(oldest) = oldest {
        unfinished.remove(&oldest);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the part of the content that is sent.
fn beginning(content: &str) -> String {
    base::text::head(content, MAX_CONTENT_BYTES).to_owned()
}

fn provider(id: &str) -> String {
    names::provider(id).to_owned()
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds(start: Timestamp, end: Timestamp) -> f64 {
    std::time::Duration::from_millis(end.0.saturating_sub(start.0)).as_secs_f64()
}

#[cfg(test)]
mod tests;
