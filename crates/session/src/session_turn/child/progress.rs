//! Reports a subagent's progress to the client. A client that does not show the sessions of
//! subagents sees, in the output of the call that started the subagent, one line for each of its
//! last 20 calls; a call that the user is asked about is also shown itself. A client that shows
//! these sessions receives all events in the subagent's session.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::session_turn::TurnFuture;
use crate::turn::{History, TurnContext, TurnOutcome};
use base::channel::Receiver;
use base::id::{CallId, SessionId};
use base::text;
use events::{
    CallUpdate, Event, LiveFacts, PermissionRequest, Progress, Status, Subagent, SubagentInfo,
    SubagentState, SubagentStop, TurnMessage,
};
use transcript::{FaultKind, Message};

/// The minimum time between two updates of the parent's call.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of a child's calls that are shown.
const MAX_SHOWN_CALLS: usize = 20;

/// A question that was passed to the user. Completes with the id of its call when it is answered or
/// withdrawn.
type ForwardedQuestion = Pin<Box<dyn Future<Output = CallId> + Send>>;

/// Reports a child's progress: in the child's session if the client shows it, otherwise in the
/// parent's call.
pub(super) struct ChildProgress<'a> {
    parent: &'a TurnContext,
    parent_call: &'a CallId,
    parent_call_facts: &'a LiveFacts,
    agent_name: &'a str,
    child_session: &'a SessionId,
    calls: VecDeque<(CallId, ChildCall)>,
    /// The number of older calls, which are not shown.
    earlier: usize,
    /// The details of the calls that have not ended, for a question about one of them.
    known_calls: HashMap<CallId, CallUpdate>,
    /// The calls that were shown because of a question and have not ended.
    shown_calls: Vec<CallId>,
    /// The time of the last update of the parent's call.
    last_update: Option<Instant>,
    /// The lines have changed since that update.
    has_unsent_lines: bool,
    /// Cancelled when the child is.
    cancelled: CancellationToken,
    /// The running calls of the child.
    running: HashSet<CallId>,
    /// The calls of the child that wait for the user.
    waiting: HashSet<CallId>,
    /// The last reported state was `Waiting`.
    is_reported_waiting: bool,
    questions: FuturesUnordered<ForwardedQuestion>,
}

struct ChildCall {
    title: String,
    progress: Progress,
}

impl<'a> ChildProgress<'a> {
    pub(super) fn new(
        parent: &'a TurnContext,
        parent_call: &'a CallId,
        parent_call_facts: &'a LiveFacts,
        agent_name: &'a str,
        child_session: &'a SessionId,
        cancelled: CancellationToken,
    ) -> Self {
        Self {
            parent,
            parent_call,
            parent_call_facts,
            agent_name,
            child_session,
            calls: VecDeque::new(),
            earlier: 0,
            known_calls: HashMap::new(),
            shown_calls: Vec::new(),
            last_update: None,
            has_unsent_lines: false,
            cancelled,
            running: HashSet::new(),
            waiting: HashSet::new(),
            is_reported_waiting: false,
            questions: FuturesUnordered::new(),
        }
    }

    /// Reports the start of the subagent and its prompt, if the client shows the sessions of
    /// subagents.
    pub(super) async fn begin(&mut self, about: SubagentInfo, prompt: &Message) {
        if !self.parent.session.common.shows_subagents {
            return;
        }
        self.report_state(Some(about), SubagentState::Working).await;
        let message = prompt.id.clone();
        let sender = self.parent.session.id.clone();
        self.send_in_child_session(Event::SessionMessage {
            message,
            sender,
            text: prompt.visible_text(),
        })
        .await;
    }

    /// Reports the end of the subagent, if the client shows the sessions of subagents.
    pub(super) async fn end(&mut self, outcome: &TurnOutcome) {
        if !self.parent.session.common.shows_subagents {
            return;
        }
        let stop = match outcome {
            TurnOutcome::Ended
            | TurnOutcome::NotDone
            | TurnOutcome::Rejected
            | TurnOutcome::Steered => SubagentStop::Done,
            TurnOutcome::Cancelled => SubagentStop::Cancelled,
            TurnOutcome::Refused => SubagentStop::Refused,
            TurnOutcome::MaxTokens => SubagentStop::MaxTokens,
            TurnOutcome::StepLimit => SubagentStop::StepLimit,
            TurnOutcome::Failed(fault) if fault.kind == FaultKind::Interrupted => {
                SubagentStop::Cancelled
            }
            TurnOutcome::Failed(fault) => SubagentStop::Failed(fault.message.clone()),
        };
        self.report_state(None, SubagentState::Over(stop)).await;
    }

    async fn report_state(&mut self, about: Option<SubagentInfo>, activity: SubagentState) {
        let session = self.child_session.clone();
        let call = self.parent_call.clone();
        let subagent = Subagent {
            session,
            call,
            info: about,
            state: Some(activity),
        };
        self.parent
            .event_sender
            .event(Event::Subagent(Box::new(subagent)))
            .await;
    }

    /// Reports whether all of the child's work waits for the user, if that has changed.
    async fn update_state(&mut self) {
        let waits = !self.waiting.is_empty() && self.running.is_subset(&self.waiting);
        // A cancelled child is reported when it has ended.
        if waits != self.is_reported_waiting && !self.cancelled.is_cancelled() {
            self.is_reported_waiting = waits;
            self.report_state(
                None,
                if waits {
                    SubagentState::Waiting
                } else {
                    SubagentState::Working
                },
            )
            .await;
        }
    }

    async fn send_in_child_session(&mut self, event: Event) {
        let event = Event::InChildSession {
            session: self.child_session.clone(),
            event: Box::new(event),
        };
        self.parent.event_sender.event(event).await;
    }

    /// Forwards the child's messages until its turn has ended.
    pub(super) async fn follow(
        &mut self,
        mut work: TurnFuture<'_>,
        mut events: Receiver<TurnMessage>,
    ) -> (History, TurnOutcome) {
        let done = loop {
            let due = self
                .last_update
                .map_or_else(Instant::now, |last| last + UPDATE_INTERVAL);
            tokio::select! {
                done = &mut work => break done,
                Some(message) = events.recv() => self.handle_message(message).await,
                () = sleep_until(due), if self.has_unsent_lines => self.send_lines().await,
                Some(call) = self.questions.next(), if !self.questions.is_empty() => {
                    self.waiting.remove(&call);
                    self.update_state().await;
                }
            }
        };
        drop(work);
        while let Ok(message) = events.try_recv() {
            self.handle_message(message).await;
        }
        done
    }

    async fn handle_message(&mut self, message: TurnMessage) {
        if self.parent.session.common.shows_subagents {
            return self.forward_in_child_session(message).await;
        }
        match message {
            TurnMessage::Event(Event::Call(update)) => self.show_call_update(*update).await,
            TurnMessage::Event(Event::Notice {
                severity,
                title,
                details,
            }) => {
                let title = format!("{}: {title}", self.agent_name);
                let notice = Event::Notice {
                    severity,
                    title,
                    details,
                };
                self.parent.event_sender.event(notice).await;
            }
            TurnMessage::Event(Event::Status(status)) => {
                if let Some(status) = self.with_agent_in_retry(status) {
                    self.parent.event_sender.event(Event::Status(status)).await;
                }
            }
            // Its text is returned as the tool's result. Its plan and its context usage are not
            // shown here.
            TurnMessage::Event(_) => {}
            TurnMessage::AskPermission(ask) => self.ask(*ask).await,
            // The client knows only those of the child's calls that it was asked about.
            TurnMessage::AskForm(mut form) => {
                if form
                    .call
                    .as_ref()
                    .is_none_or(|call| !self.shown_calls.contains(call))
                {
                    form.call = Some(self.parent_call.clone());
                }
                form.requester = format!("{}: {}", self.agent_name, form.requester);
                self.parent
                    .event_sender
                    .send(TurnMessage::AskForm(form))
                    .await;
            }
            TurnMessage::Read(_)
            | TurnMessage::Write(_)
            | TurnMessage::Confirm(_)
            | TurnMessage::AskQuestions(_) => {
                self.parent.event_sender.send(message).await;
            }
        }
    }

    /// Adds the agent's name to the cause of a retry. Returns `None` for any other status.
    fn with_agent_in_retry(&self, status: Status) -> Option<Status> {
        let Status::Retrying {
            attempt,
            limit,
            next,
            wait,
            cause,
            is_repeated,
        } = status
        else {
            return None;
        };
        // The previous notice may be about another subagent, so name this one.
        let cause = if is_repeated {
            "the same error"
        } else {
            cause.as_str()
        };
        Some(Status::Retrying {
            attempt,
            limit,
            next,
            wait,
            cause: format!("{}: {cause}", self.agent_name),
            is_repeated: false,
        })
    }

    /// Forwards a message under the id of the child's session.
    async fn forward_in_child_session(&mut self, message: TurnMessage) {
        match message {
            // Events of the child's own subagents.
            TurnMessage::Event(Event::InChildSession { .. }) => {
                self.parent.event_sender.send(message).await;
            }
            TurnMessage::Event(event) => {
                match &event {
                    Event::Call(update) => {
                        self.update_line(update);
                        // The child's session shows the call; the parent's call lists it at the
                        // end.
                        self.has_unsent_lines = false;
                        self.track_call(update);
                    }
                    Event::Subagent(subagent) => match &subagent.state {
                        Some(SubagentState::Waiting) => {
                            self.waiting.insert(subagent.call.clone());
                        }
                        Some(_) => {
                            self.waiting.remove(&subagent.call);
                        }
                        None => {}
                    },
                    _ => {}
                }
                self.send_in_child_session(event).await;
                self.update_state().await;
            }
            TurnMessage::AskPermission(mut ask) => {
                if ask.session.is_none() {
                    ask.session = Some(self.child_session.clone());
                    ask.reply = self.track_question(&ask.call, ask.reply);
                    self.update_state().await;
                }
                ask.agent.get_or_insert_with(|| self.agent_name.to_owned());
                self.parent
                    .event_sender
                    .send(TurnMessage::AskPermission(ask))
                    .await;
            }
            TurnMessage::AskForm(mut form) => {
                if form.session.is_none() {
                    form.session = Some(self.child_session.clone());
                    if let Some(call) = form.call.clone() {
                        form.reply = self.track_question(&call, form.reply);
                        self.update_state().await;
                    }
                }
                self.parent
                    .event_sender
                    .send(TurnMessage::AskForm(form))
                    .await;
            }
            TurnMessage::Read(_)
            | TurnMessage::Write(_)
            | TurnMessage::Confirm(_)
            | TurnMessage::AskQuestions(_) => {
                self.parent.event_sender.send(message).await;
            }
        }
    }

    /// Records that a call runs, or that it has ended and no longer waits.
    fn track_call(&mut self, update: &CallUpdate) {
        let Some(call) = &update.call else { return };
        match update.progress {
            Some(Progress::Running) => {
                self.running.insert(call.clone());
            }
            Some(Progress::Completed | Progress::Failed | Progress::Cancelled) => {
                self.running.remove(call);
                self.waiting.remove(call);
            }
            Some(Progress::Pending) | None => {}
        }
    }

    /// Tracks a question until it is answered, withdrawn, or can no longer be answered.
    fn track_question<T: Send + 'static>(
        &mut self,
        call: &CallId,
        mut reply: oneshot::Sender<T>,
    ) -> oneshot::Sender<T> {
        let (sender, answer) = oneshot::channel();
        self.waiting.insert(call.clone());
        let call = call.clone();
        self.questions.push(Box::pin(async move {
            tokio::select! {
                answer = answer => if let Ok(answer) = answer {
                    // The receiver may have been dropped in the meantime.
                    reply.send(answer).ok();
                },
                () = reply.closed() => {}
            }
            call
        }));
        sender
    }

    /// Updates the line of a call.
    fn update_line(&mut self, update: &CallUpdate) {
        let Some(id) = update.call.clone() else {
            return;
        };
        let at = self.calls.iter().position(|(call, _)| *call == id);
        if at.is_none() && update.tool.is_some() {
            let title = update
                .title
                .clone()
                .or_else(|| update.tool.clone())
                .unwrap_or_default();
            self.calls.push_back((
                id.clone(),
                ChildCall {
                    title,
                    progress: Progress::Pending,
                },
            ));
            if self.calls.len() > MAX_SHOWN_CALLS {
                self.calls.pop_front();
                self.earlier += 1;
            }
            self.has_unsent_lines = true;
        }
        if let Some((_, line)) = self.calls.iter_mut().rfind(|(call, _)| *call == id) {
            if let Some(title) = update.title.as_ref().filter(|title| **title != line.title) {
                line.title.clone_from(title);
                self.has_unsent_lines = true;
            }
            if let Some(progress) = update
                .progress
                .filter(|progress| *progress != line.progress)
            {
                line.progress = progress;
                self.has_unsent_lines = true;
            }
        }
    }

    /// Updates the call's line, and forwards the update if the call was shown because of a
    /// question.
    async fn show_call_update(&mut self, update: CallUpdate) {
        self.update_line(&update);
        let Some(id) = update.call.clone() else {
            return;
        };
        let over = update.progress.is_some_and(Progress::is_over);
        if self.shown_calls.contains(&id) {
            self.send_call_update(update.clone()).await;
        }
        if over {
            self.known_calls.remove(&id);
            self.shown_calls.retain(|seen| *seen != id);
        } else {
            let known = self
                .known_calls
                .entry(id.clone())
                .or_insert_with(|| CallUpdate::of(&id));
            merge_details(known, update);
        }
    }

    /// Shows the call, then asks the question.
    async fn ask(&mut self, mut ask: PermissionRequest) {
        if !self.shown_calls.contains(&ask.call) {
            let known = self
                .known_calls
                .get(&ask.call)
                .cloned()
                .unwrap_or_else(|| ask.show.clone());
            self.shown_calls.push(ask.call.clone());
            self.parent_call_facts
                .update(|facts| facts.asked_calls.push(ask.call.clone()));
            self.send_call_update(CallUpdate {
                progress: Some(Progress::Pending),
                ..known
            })
            .await;
        }
        ask.show.title = ask.show.title.map(|title| self.with_agent_name(&title));
        let agent = ask.agent.take();
        ask.agent = Some(agent.map_or_else(
            || self.agent_name.to_owned(),
            |inner| format!("{} > {inner}", self.agent_name),
        ));
        self.parent
            .event_sender
            .send(TurnMessage::AskPermission(Box::new(ask)))
            .await;
    }

    async fn send_call_update(&mut self, mut update: CallUpdate) {
        if update.progress.is_some() {
            // The event is sent in the parent's session, but the call is stored in the child's:
            // wait until it is saved.
            self.parent
                .session
                .recorder
                .await_saved_session(self.child_session)
                .await;
        }
        update.title = update.title.map(|title| self.with_agent_name(&title));
        self.parent
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
    }

    fn with_agent_name(&self, title: &str) -> String {
        text::title(&format!("{}: {title}", self.agent_name))
    }

    async fn send_lines(&mut self) {
        self.has_unsent_lines = false;
        self.last_update = Some(Instant::now());
        if self.parent.cancelled.is_cancelled() {
            // The call may have been abandoned, and an ended call is not updated.
            return;
        }
        let update = CallUpdate {
            output: Some(self.lines()),
            ..CallUpdate::of(self.parent_call)
        };
        self.parent
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
    }

    /// Returns a list of the calls for the user, in Markdown.
    pub(super) fn lines(&self) -> String {
        let mut out = String::new();
        if self.earlier > 0 {
            let _ = writeln!(out, "- {}", text::count(self.earlier, "earlier call"));
        }
        for (_, line) in &self.calls {
            let after = match line.progress {
                Progress::Completed => "",
                Progress::Failed => " (failed)",
                Progress::Cancelled => " (cancelled)",
                Progress::Pending | Progress::Running => " …",
            };
            let _ = writeln!(out, "- {}{after}", line.title);
        }
        out.truncate(out.trim_end().len());
        out
    }
}

/// Merges an update into the known details of a call. The output is left out: a question is asked
/// before there is any.
fn merge_details(known: &mut CallUpdate, update: CallUpdate) {
    known.tool = update.tool.or(known.tool.take());
    known.title = update.title.or(known.title.take());
    known.kind = update.kind.or(known.kind.take());
    known.input = update.input.or(known.input.take());
    known.locations = update.locations.or(known.locations.take());
    known.changes = update.changes.or(known.changes.take());
}
