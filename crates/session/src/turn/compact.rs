//! Compaction: the compaction agent summarises the history, and from then on the model sees the
//! summary and the latest messages ([`super::view`]). The history changes only after a usable
//! summary has been received, so a failure leaves it unchanged.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::time::sleep;

use super::next::CompactionTrigger;
use super::step_context::StepContext;
use super::trace::{self, RequestPurpose};
use super::view::{self, VisibleHistory, visible_history};
use super::{
    History, TurnContext, TurnOutcome, compaction_carryover, digest, hooks, remind, request,
    request_cost, retry, size, step, unseen_results,
};
use base::environment::Timestamp;
use base::id::PartId;
use base::text::{thousands, without_tags};
use events::{CompactionState, Event, Status};
use providers::request::{BodyCache, ModelInput, ModelMessage, ModelParams};
use providers::{Delta, Error, Model, Provider, Request, local, optional_fields};
use transcript::{
    Assistant, Compaction, Content, Fault, FaultKind, Finish, Message, Role, Text, Usage, User,
};
use unseen_results::UnseenResults;

/// Attempts to get a usable summary.
const MAX_ATTEMPTS: usize = 3;

/// Bytes of a transcript for each free token. Fewer than a token usually has, because a transcript
/// that is too long makes the request fail.
const BYTES_PER_TOKEN: u64 = 3;

/// Tokens assumed to be free in addition to the prompt, if a provider has refused a request that
/// was far below its limit.
const MIN_ROOM_TOKENS: u64 = 2_000;

/// Tokens that a requested summary may always have, however short the history is: its headings
/// alone take some.
const MIN_SUMMARY_TOKENS: u64 = 2_000;

/// The tags of the material of a summary.
const MATERIAL_TAGS: [&str; 2] = ["conversation", "prior-summary"];

struct Summarizer {
    model: Arc<Model>,
    provider: Arc<dyn Provider>,
    system: Vec<String>,
    params: ModelParams,
}

/// Reports the pieces of a summary as they are written.
struct SummaryReporter<'a> {
    turn: &'a TurnContext,
    id: PartId,
    auto: bool,
    /// A piece of this attempt was reported.
    has_begun: bool,
    /// A piece of an earlier attempt was reported.
    has_failed: bool,
}

impl SummaryReporter<'_> {
    /// Begins another attempt.
    fn restart(&mut self) {
        self.has_failed |= self.has_begun;
        self.has_begun = false;
    }

    async fn report(&mut self, delta: &str) {
        if delta.is_empty() {
            return;
        }
        let anew = self.has_failed && !self.has_begun;
        self.has_begun = true;
        let state = CompactionState::Writing {
            delta: delta.to_owned(),
            is_restart: anew,
        };
        let event = Event::Compaction {
            id: self.id.clone(),
            auto: self.auto,
            state,
        };
        self.turn.event_sender.event(event).await;
    }
}

/// A summary and its token usage.
struct Summary {
    text: String,
    /// The texts carried over with it.
    notes: Vec<Content>,
    usage: Usage,
}

enum SummaryError {
    Cancelled,
    Overflow(String),
    /// The answer is complete but unusable, for this reason.
    Bad(&'static str),
    Fault(Fault),
}

/// Summarises the history. On failure the history keeps its messages.
///
/// # Errors
/// The outcome of the turn, which cannot continue.
pub async fn compact(
    history: &mut History,
    turn: &TurnContext,
    step: &StepContext,
    why: CompactionTrigger,
    focus: Option<String>,
) -> Result<(), TurnOutcome> {
    let auto = why != CompactionTrigger::Requested;
    let CompactionPlan {
        tail,
        source: prompt,
        estimated_tokens: estimated,
        usable_tokens: usable,
        available_tokens: available,
        recent_tokens: recent,
        mut unseen,
    } = plan_compaction(history, turn, step, why, focus.clone()).map_err(TurnOutcome::Failed)?;
    let id = PartId::new(turn.session.common.environment.fresh(PartId::PREFIX));
    let report = async |state| {
        turn.event_sender
            .event(Event::Compaction {
                id: id.clone(),
                auto,
                state,
            })
            .await
    };
    turn.report_status(Status::Compacting).await;
    report(CompactionState::InProgress).await;
    let hook_texts = hooks::run_before_compaction(turn, step, auto, focus.as_deref()).await;
    let prompt = SummarySource {
        hook_texts,
        ..prompt
    };
    let writer = find_summarizer(turn, step);
    let pieces = SummaryReporter {
        turn,
        id: id.clone(),
        auto,
        has_begun: false,
        has_failed: false,
    };
    let summary = write_summary(turn, &writer, usable, &prompt, pieces).await;
    turn.report_status(Status::Busy).await;
    let summary = match summary {
        Ok(summary) => summary,
        Err(SummaryError::Cancelled) => {
            report(CompactionState::Cancelled).await;
            return Err(TurnOutcome::Cancelled);
        }
        Err(failed) => {
            let fault = compaction_fault(failed);
            report(CompactionState::Failed(fault.message.clone())).await;
            return Err(TurnOutcome::Failed(fault));
        }
    };
    let (before, trusted) = size_before(history, turn, step, why, estimated);
    let overflow = why == CompactionTrigger::Refused;
    let compaction = Compaction {
        auto,
        tail,
        overflow,
        before,
        focus,
        ..Compaction::default()
    };
    let text = summary.text.clone();
    let messages = history.messages.len();
    let available = available.saturating_sub(size::tokens_of_bytes(text.len()));
    let share = carried_share(available, recent, unseen.as_mut());
    let mut carried = compaction_carryover::collect(&prompt.history, turn, step, share).await;
    let compaction = carried.add_names_to(compaction);
    let summary = Summary {
        notes: carried.into_notes(),
        ..summary
    };
    let cut = unseen_results::cut_to_fit(history, unseen, turn, step).await;
    // Only a request that contains the summary shows whether it frees enough. Until then nothing
    // is stored, and a summary that frees too little is removed again.
    let at = append_summary(
        history,
        turn,
        step,
        &writer,
        compaction,
        id.clone(),
        summary,
    );
    // Scaled as the provider would count it: the error of the estimate is the same before and
    // after.
    let left = size::request(&request::request(history, step, turn.session.id.as_str()));
    let after = before.saturating_mul(left) / estimated.max(1);
    let after = if trusted || after < before {
        after
    } else {
        left.min(before)
    };
    let allowed = why == CompactionTrigger::Requested
        && size::tokens_of_bytes(text.len()) <= MIN_SUMMARY_TOKENS;
    if after >= before && trusted && !allowed {
        remove_summary(history, messages, turn);
        cut.restore(history);
        let fault = compaction_fault(SummaryError::Bad(
            "the summary would not be shorter than what it replaces",
        ));
        report(CompactionState::Failed(fault.message.clone())).await;
        return Err(TurnOutcome::Failed(fault));
    }
    set_tokens_after(&mut history.messages[at], after);
    cut.record(history, turn).await;
    for message in &history.messages[at..] {
        turn.session.recorder.store_message(message).await;
    }
    tracing::info!("summarised: about {before} tokens before, {after} after");
    report(CompactionState::Completed {
        before,
        after,
        summary: text,
    })
    .await;
    turn.session.recorder.events.compacted();
    step::send_usage(history, turn, &step.model).await;
    Ok(())
}

/// Divides the tokens that a summary leaves among the messages that are not summarised, of `recent`
/// tokens, and the carried texts; a part remains for the next step. Returns the tokens that may
/// be carried over. Results that the model has not seen are cut further if they leave too little.
fn carried_share(available: u64, recent: u64, unseen: Option<&mut UnseenResults>) -> u64 {
    let over = recent.saturating_sub(available / 3 * 2);
    let cut = unseen.map_or(0, |unseen| unseen.cut_more(over));
    available.saturating_sub(recent - cut) / 2
}

/// Returns the tokens that the conversation has before its compaction, and whether that number is
/// trusted.
fn size_before(
    history: &History,
    turn: &TurnContext,
    step: &StepContext,
    why: CompactionTrigger,
    estimated: u64,
) -> (u64, bool) {
    let counted = size::next_request_tokens(history);
    // If the provider refuses although the estimate is far below its limit, the estimate is
    // wrong and must not reject a summary. The next step shows whether the context is large enough.
    let limit = step
        .model
        .usable_tokens(turn.project.context.settings.compaction.reserved);
    let trusted = why == CompactionTrigger::Requested || estimated >= limit / 2;
    let before = if counted > 0 && trusted {
        counted
    } else {
        counted.max(estimated)
    };
    (before, trusted)
}

/// Removes a summary that is of no use, with the messages after the first `messages`. It was paid
/// for all the same.
fn remove_summary(history: &mut History, messages: usize, turn: &TurnContext) {
    let paid = history.messages[messages..]
        .iter()
        .filter_map(|m| m.assistant()?.cost)
        .sum();
    turn.session.unrecorded_cost.add(paid);
    history.messages.truncate(messages);
}

struct CompactionPlan {
    /// The first message that is not summarised.
    tail: Option<base::id::MessageId>,
    source: SummarySource,
    /// The estimated tokens of the next request without a compaction.
    estimated_tokens: u64,
    usable_tokens: u64,
    /// The tokens of the next request for all but system prompt, tools and a waiting prompt.
    available_tokens: u64,
    /// The tokens of the messages that are not summarised.
    recent_tokens: u64,
    unseen: Option<UnseenResults>,
}

/// The input of a summary.
struct SummarySource {
    /// A copy, because the history must not be borrowed while the model writes.
    history: History,
    message_count: usize,
    focus: Option<String>,
    /// Texts that hooks want in the summary.
    hook_texts: Vec<String>,
    /// The maximum of the summary, in tokens.
    max_tokens: u64,
}

fn plan_compaction(
    history: &History,
    turn: &TurnContext,
    step: &StepContext,
    why: CompactionTrigger,
    focus: Option<String>,
) -> Result<CompactionPlan, Fault> {
    let settings = &turn.project.context.settings.compaction;
    let auto = why != CompactionTrigger::Requested;
    let next = request::request(history, step, turn.session.id.as_str());
    let estimated = size::request(&next);
    let fixed = size::fixed_tokens(&next);
    let usable = step.model.usable_tokens(settings.reserved);
    let seen = visible_history(history);
    let refused = |m: &&Message| {
        why == CompactionTrigger::Refused && m.assistant().is_some_and(|a| a.fault.is_some())
    };
    let end = seen.messages.len();
    let end = end
        - seen.messages[..end]
            .iter()
            .rev()
            .take_while(|m| refused(m))
            .count();
    // A prompt without an answer is not summarised.
    let unanswered = seen.messages[..end]
        .last()
        .filter(|last| auto && last.is_prompt());
    let waiting = unanswered.map_or(0, |prompt| match why {
        CompactionTrigger::Refused => size::without_attachments(prompt),
        CompactionTrigger::Full | CompactionTrigger::Requested => size::message(prompt),
    });
    let end = end - usize::from(unanswered.is_some());
    if auto && (end == 0 || fixed + waiting >= usable) {
        let mut small = window_too_small_fault(&step.model, fixed, waiting);
        // The provider's message explains more than the estimate.
        if let Some(fault) = history
            .messages
            .last()
            .and_then(|m| m.assistant()?.fault.as_ref())
        {
            small.message = format!("{} {}", fault.message, small.message);
        }
        return Err(small);
    }
    // After a refusal, the real window is smaller than the documented one, by an unknown
    // amount.
    let refused_with = estimated.max(size::next_request_tokens(history));
    let guess = (refused_with / 4 * 3).max(fixed + waiting + MIN_ROOM_TOKENS);
    let usable = if why == CompactionTrigger::Refused {
        usable.min(guess)
    } else {
        usable
    };
    let available = usable.saturating_sub(fixed + waiting);
    // The rest is for the summary, for the carried texts, and for the next step.
    let budget = digest::tail_budget(usable, settings.preserve_recent_tokens).min(available / 3);
    let candidates = VisibleHistory {
        messages: seen.messages[..end].to_vec(),
        ..seen.clone()
    };
    // If the tail contained all messages, nothing would be summarised.
    let from = match digest::find_tail(&candidates, budget, settings.tail_turns) {
        from if from > seen.before_compaction => from,
        _ => end,
    };
    // Results that the model has not seen are not summarised, as far as half of it suffices.
    let unseen = unseen_results::find(&seen, end, from, available / 2);
    let from = unseen.as_ref().map_or(from, |(at, _)| *at);
    let unseen = unseen.map(|(_, unseen)| unseen);
    let recent: u64 = seen.messages[from..end]
        .iter()
        .map(|message| size::message(message))
        .sum();
    let recent = recent - unseen.as_ref().map_or(0, UnseenResults::excess);
    let tail = if from < end || unanswered.is_some() {
        seen.messages.get(from).map(|first| first.id.clone())
    } else {
        None
    };
    let mut messages: Vec<Message> = seen.messages[..from].iter().map(|m| (*m).clone()).collect();
    let count = messages.len();
    if let Some((compaction, summary)) = seen.summary {
        messages.extend([compaction.clone(), summary.clone()]);
    }
    let prompt = SummarySource {
        history: History::from(messages),
        message_count: count,
        focus,
        hook_texts: Vec::new(),
        max_tokens: (available / 2).max(256),
    };
    Ok(CompactionPlan {
        tail,
        source: prompt,
        estimated_tokens: estimated,
        usable_tokens: usable,
        available_tokens: available,
        recent_tokens: recent,
        unseen,
    })
}

fn set_tokens_after(message: &mut Message, tokens: u64) {
    for part in &mut message.parts {
        if let Content::Compaction(compaction) = &mut part.content {
            compaction.after = tokens;
        }
    }
}

/// True if there are messages after the last summary.
pub fn has_messages_since_summary(history: &History) -> bool {
    let seen = visible_history(history);
    seen.messages.len() > seen.before_compaction
}

/// Returns the fault for a window that not even a summary would make large enough.
pub fn window_too_small_fault(model: &Model, fixed: u64, waiting: u64) -> Fault {
    let window = match model.context {
        Some(window) => {
            let is_local = local::explain_larger_context(model, window).is_some();
            let answer = if is_local && fixed + waiting < window {
                ", which the conversation needs as well"
            } else {
                ""
            };
            format!(
                "the window of {} has {} tokens{answer}",
                model.id,
                thousands(window)
            )
        }
        None => format!("{} does not take that much", model.id),
    };
    let prompt = match waiting {
        0 => String::new(),
        waiting => format!(" and the prompt about {}", thousands(waiting)),
    };
    let message = format!(
        "System prompt and tools take about {} tokens{prompt}; {window}.",
        thousands(fixed)
    );
    let needed = model.context.unwrap_or(0).max(fixed + waiting);
    let larger = if needed < local::RECOMMENDED_CONTEXT {
        local::explain_larger_context(model, local::RECOMMENDED_CONTEXT)
    } else {
        None
    };
    let advice = match larger {
        Some(larger) => format!("{larger} Or choose another model."),
        None => "Choose a model with a larger context, or send less at once.".to_owned(),
    };
    Fault {
        kind: FaultKind::ContextOverflow,
        message,
        advice: Some(advice),
    }
}

/// Returns the model and parameters of the compaction agent, with the session's model unless the
/// agent has its own.
fn find_summarizer(turn: &TurnContext, step: &StepContext) -> Summarizer {
    let agent = turn.project.agents.get("compaction");
    let near = &step.model.id;
    let own = agent
        .as_ref()
        .and_then(|agent| turn.project.models.of_agent(agent, near));
    let wanted = own.unwrap_or_else(|| transcript::ModelRef {
        effort: None,
        ..step.model.id.clone()
    });
    // A summary needs no thought, unless the user chose an effort for the agent.
    let least_effort = wanted.effort.is_none();
    let (model, provider) = turn.project.models.find(&wanted).unwrap_or_else(|missing| {
        tracing::warn!("{missing}; the session's model summarises");
        (step.model.clone(), step.provider.clone())
    });
    let system = agent
        .as_ref()
        .and_then(|agent| agent.prompt.as_deref())
        .unwrap_or(prompts::agent::COMPACTION);
    let params = ModelParams {
        temperature: if model.temperature {
            agent.as_ref().and_then(|agent| agent.temperature)
        } else {
            None
        },
        top_p: agent.as_ref().and_then(|agent| agent.top_p),
        max_output: model.max_output(),
        options: agent
            .as_ref()
            .map(|agent| agent.options.clone())
            .unwrap_or_default(),
        omitted: turn.session.common.refused_tools.fields(&model),
        least_effort,
        ..ModelParams::default()
    };
    Summarizer {
        model,
        provider,
        system: vec![system.to_owned()],
        params,
    }
}

async fn write_summary(
    turn: &TurnContext,
    writer: &Summarizer,
    usable: u64,
    prompt: &SummarySource,
    mut pieces: SummaryReporter<'_>,
) -> Result<Summary, SummaryError> {
    let available = usable.min(
        writer
            .model
            .usable_tokens(turn.project.context.settings.compaction.reserved),
    );
    let mut available = usize::try_from(available * BYTES_PER_TOKEN).unwrap_or(usize::MAX);
    let mut failed = SummaryError::Bad("it did not come");
    for _ in 0..MAX_ATTEMPTS {
        let request = Arc::new(summary_request(turn, writer, prompt, available));
        failed = match request_summary(turn, writer, &request, prompt.max_tokens, &mut pieces).await
        {
            Ok(summary) => return Ok(summary),
            Err(SummaryError::Overflow(why)) => {
                // BYTES_PER_TOKEN was too high for this text, by an unknown factor.
                available /= 2;
                SummaryError::Overflow(why)
            }
            Err(SummaryError::Bad(why)) => SummaryError::Bad(why),
            Err(other) => return Err(other),
        };
    }
    Err(failed)
}

fn summary_request(
    turn: &TurnContext,
    writer: &Summarizer,
    prompt: &SummarySource,
    available: usize,
) -> Request {
    let (messages, earlier) = prompt.history.messages.split_at(prompt.message_count);
    let earlier = earlier.last().map(Message::visible_text);
    let messages: Vec<&Message> = messages.iter().collect();
    let task = prompts::agent::COMPACTION_TASK;
    let taken = task.len() + earlier.as_ref().map_or(0, String::len);
    let transcript = digest::transcript(&messages, available.saturating_sub(taken).max(1_000));
    let mut text = String::new();
    if let Some(earlier) = earlier {
        let earlier = without_tags(earlier.trim(), &MATERIAL_TAGS);
        text += &format!("<prior-summary>\n{earlier}\n</prior-summary>\n\n");
    }
    text += &format!(
        "<conversation>\n{}\n</conversation>\n\n{task}",
        without_tags(transcript.trim(), &MATERIAL_TAGS)
    );
    if let Some(focus) = &prompt.focus {
        text += &format!(
            "\n\nThe user asked for this summary, and wants it to preserve this above all: {focus}"
        );
    }
    for hook_text in &prompt.hook_texts {
        text += &format!("\n\n{hook_text}");
    }
    Request {
        model: writer.model.clone(),
        system: writer.system.clone(),
        messages: vec![ModelMessage::User(vec![ModelInput::Text(text.into())])],
        tools: Vec::new(),
        must_call: false,
        params: writer.params.clone(),
        // A session of its own, so that it does not disturb the provider's cache.
        session: format!("{}-summary", turn.session.id),
        body_cache: BodyCache::default(),
    }
}

/// Requests a summary. Retries after a transient error.
async fn request_summary(
    turn: &TurnContext,
    writer: &Summarizer,
    request: &Arc<Request>,
    limit: u64,
    pieces: &mut SummaryReporter<'_>,
) -> Result<Summary, SummaryError> {
    let mut request = Arc::clone(request);
    let mut waits = retry::Backoff::new(true);
    let mut attempt = 0;
    // The last failure's.
    let mut cause: Option<String> = None;
    loop {
        let mut usage = Usage::default();
        let answer = tokio::select! {
            biased;
            () = turn.cancelled.cancelled() => None,
            answer = read_summary(writer, &request, limit, &mut usage, pieces) => Some(answer),
        };
        if !matches!(answer, Some(Ok(Ok(_)))) {
            step::count_unused_answer(turn, &writer.model, &usage);
        }
        let error = match answer.ok_or(SummaryError::Cancelled)? {
            Ok(good_or_bad) => return good_or_bad.map_err(SummaryError::Bad),
            Err(Error::ContextOverflow(why)) => return Err(SummaryError::Overflow(why)),
            Err(error) => error,
        };
        tracing::warn!("summarising failed: {error}");
        if let Some(field) = optional_fields::rejected_field(&error, &request.params.omitted) {
            Arc::make_mut(&mut request).params.omitted.push(field);
            continue;
        }
        let Some(again) = waits.next_retry(&error) else {
            return Err(SummaryError::Fault(error.fault()));
        };
        attempt += 1;
        let next =
            Timestamp(turn.now().0 + u64::try_from(again.delay.as_millis()).unwrap_or_default());
        let status = Status::Retrying {
            attempt,
            limit: again.limit,
            next,
            wait: again.delay,
            cause: error.to_string(),
            is_repeated: cause.replace(error.to_string()) == Some(error.to_string()),
        };
        turn.report_status(status).await;
        tokio::select! {
            () = sleep(again.delay) => {} // the backoff before a retry
            () = turn.cancelled.cancelled() => return Err(SummaryError::Cancelled),
        }
        turn.report_status(Status::Compacting).await;
    }
}

/// Reads one answer to its end. Returns the summary, or the reason why it is unusable.
async fn read_summary(
    writer: &Summarizer,
    request: &Arc<Request>,
    limit: u64,
    usage: &mut Usage,
    pieces: &mut SummaryReporter<'_>,
) -> Result<Result<Summary, &'static str>, Error> {
    pieces.restart();
    let answer = writer.provider.stream(request.clone());
    let purpose = RequestPurpose::Summary;
    let mut answer = trace::observe_answer(pieces.turn, &writer.model, purpose, answer);
    let mut text = String::new();
    let mut finish = None;
    while let Some(delta) = answer.next().await {
        match delta? {
            Delta::Text { text: more, .. } => {
                text += &more;
                pieces.report(&more).await;
            }
            Delta::Call { .. } => return Ok(Err("the model called a tool instead of writing it")),
            Delta::Usage(counted) => *usage = counted,
            Delta::Finish(reason) => finish = Some(reason),
            Delta::Reasoning { .. }
            | Delta::Arguments { .. }
            | Delta::ProviderData { .. }
            | Delta::FoundPages(_) => {}
        }
        // An endless answer is not read to its end.
        if size::tokens_of_bytes(text.len()) > limit {
            return Ok(Err("the summary is too long"));
        }
    }
    Ok(match finish {
        None => {
            return Err(Error::InvalidAnswer(
                "the model's answer was cut off".into(),
            ));
        }
        Some(Finish::Length) => Err("the summary was cut off at its limit"),
        Some(Finish::Refusal) => Err("the model refused to write it"),
        Some(Finish::NotDone) => Err("the offline model writes no summaries"),
        Some(_) if text.trim().is_empty() => Err("the summary was empty"),
        Some(_) => Ok(Summary {
            text,
            notes: Vec::new(),
            usage: *usage,
        }),
    })
}

fn compaction_fault(failed: SummaryError) -> Fault {
    let (kind, why, advice) = match failed {
        SummaryError::Fault(fault) => (fault.kind, fault.message, fault.advice),
        SummaryError::Overflow(why) => (FaultKind::ContextOverflow, why, None),
        SummaryError::Bad(why) => (FaultKind::Provider, why.to_owned(), None),
        SummaryError::Cancelled => (FaultKind::Interrupted, "it was cancelled".to_owned(), None),
    };
    let message = format!(
        "The conversation could not be summarised, and is unchanged: {}.",
        why.trim_end_matches('.')
    );
    let advice =
        advice.unwrap_or_else(|| "Try again, choose another model, or start a new session.".into());
    Fault {
        kind,
        message,
        advice: Some(advice),
    }
}

/// Appends the compaction and its summary to the history, followed by a note to continue if a turn
/// is running. Returns the index of the compaction.
fn append_summary(
    history: &mut History,
    turn: &TurnContext,
    step: &StepContext,
    writer: &Summarizer,
    compaction: Compaction,
    id: PartId,
    summary: Summary,
) -> usize {
    let auto = compaction.auto;
    let broken_off = |m: &&Message| m.assistant().is_some_and(|a| a.fault.is_some());
    let unanswered = history
        .messages
        .iter()
        .rev()
        .find(|m| !broken_off(m))
        .is_some_and(Message::is_prompt);
    let user = |parts| Message {
        id: turn.new_message_id(),
        created: turn.now(),
        role: Role::User(User {
            agent: step.agent.name.clone(),
            model: step.model.id.clone(),
        }),
        parts,
    };
    let mut request = user(vec![transcript::Part {
        id,
        content: Content::Compaction(compaction),
    }]);
    request
        .parts
        .extend(summary.notes.into_iter().map(|note| turn.new_part(note)));
    let cost = request_cost(&writer.model, &summary.usage);
    turn.budget.add_usage(&summary.usage, cost);
    let assistant = Assistant {
        parent: request.id.clone(),
        agent: "compaction".into(),
        model: writer.model.id.clone(),
        finish: Some(Finish::Stop),
        fault: None,
        summary: true,
        usage: summary.usage,
        cost,
        completed: Some(turn.now()),
    };
    let at = history.messages.len();
    history.messages.push(request);
    let text = Content::Text(Text {
        text: summary.text.into(),
        ..Text::default()
    });
    history.messages.push(Message {
        id: turn.new_message_id(),
        created: turn.now(),
        role: Role::Assistant(assistant),
        parts: vec![turn.new_part(text)],
    });
    if auto && !unanswered {
        history.messages.push(user(vec![
            turn.new_part(remind::note(prompts::reminder::CONTINUE)),
        ]));
    }
    debug_assert_eq!(
        view::find_compaction(history).map(|(at, _)| at),
        Some(at),
        "the summary is found again"
    );
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The space after a summary is divided so that all of it fits.
    #[test]
    fn recent_messages_and_carried_texts_share_the_space() {
        // Space after the summary, recent tokens, those of unseen results; the tokens that are cut,
        // and those that may be carried over.
        let table = [
            (900, 0, None, (0, 450)),
            (900, 300, None, (0, 300)),
            (900, 600, Some(600), (0, 150)),
            (900, 1_000, Some(900), (400, 150)),
            (900, 1_000, None, (0, 0)),
            (300, 1_000, Some(100), (100, 0)),
            (0, 500, Some(500), (500, 0)),
        ];
        for (available, recent, unseen, expected) in table {
            let mut unseen = unseen.map(UnseenResults::of_size);
            let carried = carried_share(available, recent, unseen.as_mut());
            let cut = unseen.as_ref().map_or(0, UnseenResults::excess);
            assert_eq!((cut, carried), expected, "{available} {recent}");
            let is_possible = unseen.is_some_and(|unseen| unseen.excess() + available > recent);
            assert!(!is_possible || recent - cut + carried <= available);
        }
    }
}
