//! The progress of a child, shown in the parent's call with one line for each of the child's calls.
//! A question of the child goes to the parent's client together with the call it is about, which is
//! shown there from then on. A client that shows subagents' sessions receives all events of the
//! child in the child's session.

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

/// A question that has been forwarded to the user; resolves to the call it is about.
type ForwardedQuestion = Pin<Box<dyn Future<Output = CallId> + Send>>;

/// Reports a child's progress in the parent's call, and in the child's session if the client shows
/// it.
pub(super) struct ChildProgress<'a> {
    parent: &'a TurnContext,
    call: &'a CallId,
    facts: &'a LiveFacts,
    agent: &'a str,
    session: &'a SessionId,
    calls: VecDeque<(CallId, ChildCall)>,
    /// The number of older calls, which are not shown.
    earlier: usize,
    /// The known details of running calls, which a question about one of them must show.
    open: HashMap<CallId, CallUpdate>,
    /// The running calls that the client has seen.
    seen: Vec<CallId>,
    last: Option<Instant>,
    fresh: bool,
    /// Cancelled when the child is.
    cancelled: CancellationToken,
    /// The running calls of the child.
    running: HashSet<CallId>,
    /// The calls of the child that wait for the user.
    waiting: HashSet<CallId>,
    /// Whether all of the child's work was last reported as waiting.
    waits: bool,
    questions: FuturesUnordered<ForwardedQuestion>,
}

struct ChildCall {
    title: String,
    progress: Progress,
}

impl<'a> ChildProgress<'a> {
    pub(super) fn new(
        parent: &'a TurnContext,
        call: &'a CallId,
        facts: &'a LiveFacts,
        agent: &'a str,
        session: &'a SessionId,
        cancelled: CancellationToken,
    ) -> Self {
        Self {
            parent,
            call,
            facts,
            agent,
            session,
            calls: VecDeque::new(),
            earlier: 0,
            open: HashMap::new(),
            seen: Vec::new(),
            last: None,
            fresh: false,
            cancelled,
            running: HashSet::new(),
            waiting: HashSet::new(),
            waits: false,
            questions: FuturesUnordered::new(),
        }
    }

    /// Reports that the child works, and its prompt.
    pub(super) async fn begin(&mut self, about: SubagentInfo, prompt: &Message) {
        if !self.parent.exposed {
            return;
        }
        self.state(Some(about), SubagentState::Working).await;
        let message = prompt.id.clone();
        let sender = self.parent.session.clone();
        self.within(Event::Told {
            message,
            sender,
            text: prompt.visible_text(),
        })
        .await;
    }

    /// Reports that the child has ended.
    pub(super) async fn end(&mut self, outcome: &TurnOutcome) {
        if !self.parent.exposed {
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
        self.state(None, SubagentState::Over(stop)).await;
    }

    async fn state(&mut self, about: Option<SubagentInfo>, activity: SubagentState) {
        let session = self.session.clone();
        let call = self.call.clone();
        let subagent = Subagent {
            session,
            call,
            about,
            state: Some(activity),
        };
        self.parent
            .outlet
            .event(Event::Subagent(Box::new(subagent)))
            .await;
    }

    /// Reports whether all of the child's work waits for the user, if that has changed.
    async fn update_state(&mut self) {
        let waits = !self.waiting.is_empty() && self.running.is_subset(&self.waiting);
        // A cancelled child is reported when it has ended.
        if waits != self.waits && !self.cancelled.is_cancelled() {
            self.waits = waits;
            self.state(
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

    async fn within(&mut self, event: Event) {
        let event = Event::Within {
            session: self.session.clone(),
            event: Box::new(event),
        };
        self.parent.outlet.event(event).await;
    }

    /// Forwards the child's messages until its turn has ended.
    pub(super) async fn follow(
        &mut self,
        mut work: TurnFuture<'_>,
        mut events: Receiver<TurnMessage>,
    ) -> (History, TurnOutcome) {
        let done = loop {
            let due = self
                .last
                .map_or_else(Instant::now, |last| last + UPDATE_INTERVAL);
            tokio::select! {
                done = &mut work => break done,
                Some(up) = events.recv() => self.take(up).await,
                () = sleep_until(due), if self.fresh => self.send_lines().await,
                Some(call) = self.questions.next(), if !self.questions.is_empty() => {
                    self.waiting.remove(&call);
                    self.update_state().await;
                }
            }
        };
        drop(work);
        while let Ok(up) = events.try_recv() {
            self.take(up).await;
        }
        done
    }

    async fn take(&mut self, up: TurnMessage) {
        if self.parent.exposed {
            return self.expose(up).await;
        }
        match up {
            TurnMessage::Event(Event::Call(update)) => self.update(*update).await,
            TurnMessage::Event(Event::Notice {
                severity,
                title,
                details,
            }) => {
                let title = format!("{}: {title}", self.agent);
                self.parent
                    .outlet
                    .event(Event::Notice {
                        severity,
                        title,
                        details,
                    })
                    .await;
            }
            TurnMessage::Event(Event::Status(Status::Retrying {
                attempt,
                limit,
                next,
                wait,
                cause,
                is_repeated,
            })) => {
                // The notice before may be about another subagent.
                let cause = if is_repeated {
                    "the same error"
                } else {
                    cause.as_str()
                };
                let cause = format!("{}: {cause}", self.agent);
                self.parent
                    .outlet
                    .event(Event::Status(Status::Retrying {
                        attempt,
                        limit,
                        next,
                        wait,
                        cause,
                        is_repeated: false,
                    }))
                    .await;
            }
            // The child's texts are returned as its result; its plan and its context
            // are its own.
            TurnMessage::Event(_) => {}
            TurnMessage::AskPermission(ask) => self.ask(*ask).await,
            // The client knows only those of the child's calls that it was asked about.
            TurnMessage::AskForm(mut form) => {
                if form
                    .call
                    .as_ref()
                    .is_none_or(|call| !self.seen.contains(call))
                {
                    form.call = Some(self.call.clone());
                }
                form.who = format!("{}: {}", self.agent, form.who);
                self.parent.outlet.send(TurnMessage::AskForm(form)).await;
            }
            TurnMessage::Read(_)
            | TurnMessage::Write(_)
            | TurnMessage::Confirm(_)
            | TurnMessage::AskQuestions(_) => {
                self.parent.outlet.send(up).await;
            }
        }
    }

    /// Forwards a message as one of the child's session.
    async fn expose(&mut self, up: TurnMessage) {
        match up {
            // Events of the child's own subagents.
            TurnMessage::Event(Event::Within { .. }) => drop(self.parent.outlet.send(up).await),
            TurnMessage::Event(event) => {
                match &event {
                    Event::Call(update) => {
                        self.note(update);
                        // The child's session shows the call; the parent's
                        // call lists it at the end.
                        self.fresh = false;
                        self.follow_call(update);
                    }
                    Event::Subagent(subagent) => match &subagent.state {
                        Some(SubagentState::Waiting) => {
                            self.waiting.insert(subagent.call.clone());
                        }
                        Some(_) => drop(self.waiting.remove(&subagent.call)),
                        None => {}
                    },
                    _ => {}
                }
                self.within(event).await;
                self.update_state().await;
            }
            TurnMessage::AskPermission(mut ask) => {
                if ask.session.is_none() {
                    ask.session = Some(self.session.clone());
                    ask.reply = self.accompany(&ask.call, ask.reply);
                    self.update_state().await;
                }
                ask.agent.get_or_insert_with(|| self.agent.to_owned());
                self.parent
                    .outlet
                    .send(TurnMessage::AskPermission(ask))
                    .await;
            }
            TurnMessage::AskForm(mut form) => {
                if form.session.is_none() {
                    form.session = Some(self.session.clone());
                    if let Some(call) = form.call.clone() {
                        form.reply = self.accompany(&call, form.reply);
                        self.update_state().await;
                    }
                }
                self.parent.outlet.send(TurnMessage::AskForm(form)).await;
            }
            TurnMessage::Read(_)
            | TurnMessage::Write(_)
            | TurnMessage::Confirm(_)
            | TurnMessage::AskQuestions(_) => {
                self.parent.outlet.send(up).await;
            }
        }
    }

    /// Records whether a call runs.
    fn follow_call(&mut self, update: &CallUpdate) {
        let Some(call) = &update.call else { return };
        match update.progress {
            Some(Progress::Running) => drop(self.running.insert(call.clone())),
            Some(Progress::Completed | Progress::Failed | Progress::Cancelled) => {
                self.running.remove(call);
                self.waiting.remove(call);
            }
            Some(Progress::Pending) | None => {}
        }
    }

    /// Tracks a question until it is answered, withdrawn, or can no longer be answered.
    fn accompany<T: Send + 'static>(
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
                    // The receiver may have been cancelled since.
                    reply.send(answer).ok();
                },
                () = reply.closed() => {}
            }
            call
        }));
        sender
    }

    /// Updates the line of a call.
    fn note(&mut self, update: &CallUpdate) {
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
            self.fresh = true;
        }
        if let Some((_, line)) = self.calls.iter_mut().rfind(|(call, _)| *call == id) {
            if let Some(title) = update.title.as_ref().filter(|title| **title != line.title) {
                line.title.clone_from(title);
                self.fresh = true;
            }
            if let Some(progress) = update
                .progress
                .filter(|progress| *progress != line.progress)
            {
                line.progress = progress;
                self.fresh = true;
            }
        }
    }

    async fn update(&mut self, update: CallUpdate) {
        self.note(&update);
        let Some(id) = update.call.clone() else {
            return;
        };
        let over = update.progress.is_some_and(Progress::is_over);
        if self.seen.contains(&id) {
            self.pass(update.clone()).await;
        }
        if over {
            self.open.remove(&id);
            self.seen.retain(|seen| *seen != id);
        } else {
            let known = self
                .open
                .entry(id.clone())
                .or_insert_with(|| CallUpdate::of(&id));
            learn(known, update);
        }
    }

    /// Shows the call, then asks the question.
    async fn ask(&mut self, mut ask: PermissionRequest) {
        if !self.seen.contains(&ask.call) {
            let known = self
                .open
                .get(&ask.call)
                .cloned()
                .unwrap_or_else(|| ask.show.clone());
            self.seen.push(ask.call.clone());
            self.facts.note(|facts| facts.asked.push(ask.call.clone()));
            self.pass(CallUpdate {
                progress: Some(Progress::Pending),
                ..known
            })
            .await;
        }
        ask.show.title = ask.show.title.map(|title| self.labelled(&title));
        let agent = ask.agent.take();
        ask.agent = Some(agent.map_or_else(
            || self.agent.to_owned(),
            |inner| format!("{} > {inner}", self.agent),
        ));
        self.parent
            .outlet
            .send(TurnMessage::AskPermission(Box::new(ask)))
            .await;
    }

    async fn pass(&mut self, mut update: CallUpdate) {
        if update.progress.is_some() {
            // The client receives this as an event of the parent's session, but it is
            // stored in the child's.
            self.parent.record.handed_over_of(self.session).await;
        }
        update.title = update.title.map(|title| self.labelled(&title));
        self.parent
            .outlet
            .event(Event::Call(Box::new(update)))
            .await;
    }

    fn labelled(&self, title: &str) -> String {
        text::title(&format!("{}: {title}", self.agent))
    }

    async fn send_lines(&mut self) {
        self.fresh = false;
        self.last = Some(Instant::now());
        if self.parent.cancelled.is_cancelled() {
            // The call may have been abandoned, and an ended call is not updated.
            return;
        }
        let update = CallUpdate {
            output: Some(self.lines()),
            ..CallUpdate::of(self.call)
        };
        self.parent
            .outlet
            .event(Event::Call(Box::new(update)))
            .await;
    }

    /// Returns a list of the calls for the user, in Markdown.
    pub(super) fn lines(&self) -> String {
        let mut out = String::new();
        if self.earlier > 0 {
            let _ = writeln!(out, "- {} before", text::count(self.earlier, "call"));
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

/// Merges an update into the known details of a call, except for its output, which a question
/// precedes.
fn learn(known: &mut CallUpdate, update: CallUpdate) {
    known.tool = update.tool.or(known.tool.take());
    known.title = update.title.or(known.title.take());
    known.kind = update.kind.or(known.kind.take());
    known.input = update.input.or(known.input.take());
    known.locations = update.locations.or(known.locations.take());
    known.changes = update.changes.or(known.changes.take());
}
