//! The task of one session. `Actor` serves the mailbox and the running turn in one select. It owns
//! the history, moves it into the turn, and gets it back with the outcome.
//!
//! `ActorEvent` lists everything that can happen to a session, and `SessionState::handle` handles it,
//! with or without a running turn. The turn changes its own copies of the history and the record, and
//! returns them with its outcome. The user's changes in the meantime are made in the actor's record at
//! once, and copied into the turn's record when the turn has ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::builtin::{BuiltinCommand, BuiltinName, PLANNER};
use super::choices::{Choices, SentChange};
use super::handle::{
    CancelScope, ClosePurpose, MailboxMessage, PromptInput, QueuedPrompt, SessionHandover,
    TurnResult,
};
use super::inbox::{self, Inbox};
use super::live::HistoryGuard;
use super::project::ConfigWatcher;
use super::prompt::PromptRun;
use super::published::SessionEvents;
use super::sessions::Sessions;
use super::title::{self, TitleTask};
use super::{changes, diff};
use crate::turn::jobs::SessionJobs;
use crate::turn::{
    History, SessionContext, TurnContext, TurnOutcome, change_recorder, evict, hooks, jobs,
    late_changes, next,
};
use base::task::JoinHandle;
use events::{Event, EventSender, Severity};
use extensions::usage_stats;
use store::{Record, RecordChange, TitleSource};
use tools::scratch;
use transcript::{Content, FileChange, Message};

/// The number of prompts after which no title is requested any more.
const MAX_TITLED_PROMPTS: usize = 2;

/// The task of one session, with everything that a turn borrows.
pub(super) struct Actor {
    /// The context that its turns share.
    pub(super) context: Arc<SessionContext>,
    /// The project's configuration. Lent to the turn.
    pub(super) watcher: ConfigWatcher,
    /// Moved into the turn while it runs.
    pub(super) history: History,
    /// The search for local model servers, while it may still run: two seconds at most.
    pub(super) local_search: Option<JoinHandle<()>>,
    /// The file changes of which the record has the statistics.
    pub(super) counted_changes: Vec<FileChange>,
    /// The exclusive use of the history in this process.
    pub(super) claim: HistoryGuard,
    pub(super) session: SessionState,
}

/// The state that stays with the actor while a turn runs.
pub(super) struct SessionState {
    pub(super) sessions: Arc<Sessions>,
    pub(super) record: Record,
    /// The publisher of changes to the record.
    pub(super) events: SessionEvents,
    pub(super) inbox: Inbox,
    pub(super) choices: Choices,
    pub(super) titling: TitleTask,
    /// The sender of events that belong to no turn: titles, notices.
    pub(super) out_of_turn_events: broadcast::Sender<Event>,
    /// Cancelled when another process has asked for the session.
    pub(super) takeover_requested: CancellationToken,
    /// The running turn or built-in command.
    pub(super) running: Option<ActiveTurn>,
    /// Set once the session must end.
    pub(super) closing: Option<Closing>,
}

/// The running turn: its prompt's number, and the token that cancels it.
pub(super) struct ActiveTurn {
    number: u64,
    cancelled: CancellationToken,
}

/// Waits for the search for local model servers, because it may find the model of the turn. If the turn
/// is cancelled first, the next one waits for the search.
async fn await_search(local: &mut Option<JoinHandle<()>>, cancelled: &CancellationToken) {
    let Some(search) = local else { return };
    tokio::select! {
        searched = search => {
            if let Err(e) = searched {
                tracing::warn!("looking for local servers failed: {e}");
            }
            *local = None;
        }
        () = cancelled.cancelled() => {}
    }
}

/// A request to end the session.
pub(super) struct Closing {
    /// Answered when the session has ended; `None` if no caller waits.
    done: Option<oneshot::Sender<Option<SessionHandover>>>,
    purpose: ClosePurpose,
}

/// Everything that can happen to a session, idle or while a turn runs.
enum ActorEvent {
    Mail(MailboxMessage),
    Cancel(CancelScope),
    /// The title agent has answered.
    Titled(Option<String>),
    /// No further message can arrive: every handle was dropped, or another process has the
    /// session.
    MailboxEnded,
}

impl Actor {
    /// Serves the mailbox until the session is closed or every handle has been dropped. The history
    /// arrives through `coming` when the client has received its replay; without it the session ends.
    pub(super) async fn run(mut self, coming: oneshot::Receiver<History>) {
        let came = tokio::select! {
            history = coming => history.ok(),
            () = self.session.sessions.ended.cancelled() => None,
        };
        match came {
            Some(history) => self.history = history,
            None => self.session.close(None, ClosePurpose::Close),
        }
        // The replay is over.
        evict::evict_stored(&mut self.history);
        let mut steered = false;
        while self.session.closing.is_none() {
            match self.session.inbox.pop() {
                Some(prompt) if self.session.inbox.is_cancelled(prompt.number) => {
                    inbox::answer_cancelled(prompt)
                }
                // Waiting prompts run in the process that continues the session,
                // after the turn that ended at a step here.
                Some(prompt) if self.session.sessions.exit_requested.is_cancelled() => {
                    inbox::answer_cancelled(prompt)
                }
                Some(prompt) => steered = self.run_turn(prompt, steered).await,
                None => {
                    steered = false;
                    self.idle().await;
                }
            }
        }
        self.end().await;
    }

    /// Waits for one event between turns.
    async fn idle(&mut self) {
        let ended = self.session.sessions.ended.clone();
        tokio::select! {
            event = self.session.next_event() => self.session.handle(event).await,
            () = self.context.shared.jobs.await_end() => {
                jobs::record_ended_jobs(&mut self.history, &self.context).await;
                for notice in jobs::ended_jobs_notices(&self.context) {
                    // If there is no receiver, the next turn shows it.
                    self.session.out_of_turn_events.send(notice).ok();
                }
            }
            () = ended.cancelled() => self.session.close(None, ClosePurpose::Close),
        }
        if self.session.apply_title() {
            self.session.store_record().await;
            self.session
                .sessions
                .store
                .await_written(&self.session.record.id)
                .await;
            self.session.send_title();
        }
        self.session.choices.store_model().await;
    }

    /// Runs one turn, or a built-in command in its place. `steered` is true if the turn before ended
    /// in favour of this prompt; returns true if this one ends in favour of the next.
    async fn run_turn(&mut self, prompt: QueuedPrompt, steered: bool) -> bool {
        let QueuedPrompt {
            number,
            mut input,
            event_sender,
            outcome: reply,
            notified,
        } = prompt;
        let is_plan = |command: &BuiltinCommand| command.name == BuiltinName::Plan;
        if input.builtin.as_ref().is_some_and(is_plan) {
            self.switch_to_planner(&mut input, &event_sender).await;
        }
        let is_message = input.builtin.is_none();
        change_recorder::prepare(
            &self.context,
            &self.watcher.project().context.settings,
            self.session.sessions.ended.clone(),
        );
        let cancelled = self.session.sessions.ended.child_token();
        let turn = self.turn_context(cancelled.clone(), event_sender.clone());
        let budget = turn.budget.clone();
        let mut run = PromptRun {
            sessions: self.session.sessions.clone(),
            choice: self.session.choices.current.clone(),
            turn,
            history: std::mem::take(&mut self.history),
            record: self.session.record.clone(),
            steered: is_message && steered,
        };
        self.session.running = Some(ActiveTurn {
            number,
            cancelled: cancelled.clone(),
        });
        self.session
            .inbox
            .update_steering_signal(self.session.choices.steers());
        let outcome = {
            let local = &mut self.local_search;
            let watcher = &mut self.watcher;
            let mut work = std::pin::pin!(async {
                await_search(local, &cancelled).await;
                run.run(input, watcher).await
            });
            loop {
                tokio::select! {
                    outcome = &mut work => break outcome,
                    event = self.session.next_event() => self.session.handle(event).await,
                }
            }
        };
        self.session.running = None;
        let PromptRun {
            turn,
            history,
            record,
            ..
        } = run;
        // Its event sender closes with it.
        drop(turn);
        self.history = history;
        self.store_turn(record, is_message, event_sender).await;
        let steers = outcome == TurnOutcome::Steered;
        let structured = if is_message {
            next::structured_result(&self.history)
        } else {
            None
        };
        let result = TurnResult {
            structured,
            usage: budget.usage(),
            ..TurnResult::from(outcome)
        };
        // The receiver is dropped if the client has disconnected.
        reply.send(result).ok();
        tokio::select! {
            _ = notified => {}
            () = self.session.sessions.ended.cancelled() => {}
        }
        // Waiting prompts are served first; their turns update the number.
        if self.session.inbox.is_empty() {
            self.update_diff_stats().await;
        }
        steers
    }

    /// Returns the context of a turn with the present choices and project. Its requests to the session
    /// have no receiver until the turn runs.
    fn turn_context(&self, cancelled: CancellationToken, event_sender: EventSender) -> TurnContext {
        TurnContext {
            session: self.context.clone(),
            project: self.watcher.project(),
            choice: self.session.choices.current.subscribe(),
            cancelled,
            event_sender,
            session_requests: mpsc::channel(1).0,
            budget: Arc::default(),
            trace: None,
        }
    }

    /// Carries out `/plan`: switches to the planning agent, if there is one. If the command comes with
    /// a message, removes the command, so that a turn answers the message.
    async fn switch_to_planner(&mut self, input: &mut PromptInput, event_sender: &EventSender) {
        let modes = self.watcher.project().agents.modes();
        if !modes.iter().any(|mode| mode.name == PLANNER) {
            return;
        }
        let session = &mut self.session;
        session
            .choices
            .current
            .send_modify(|choice| PLANNER.clone_into(&mut choice.agent));
        session.change_record(session.choices.record_change()).await;
        event_sender.event(Event::Mode(PLANNER.to_owned())).await;
        let is_message = input
            .content
            .iter()
            .any(|content| !matches!(content, Content::PromptOptions(_) | Content::Format { .. }));
        if is_message {
            input.builtin = None;
        }
    }

    /// Stores the changes of a turn, before the answer to the prompt reports them.
    async fn store_turn(
        &mut self,
        mut record: Record,
        is_message: bool,
        event_sender: EventSender,
    ) {
        jobs::record_ended_jobs(&mut self.history, &self.context).await;
        late_changes::log_changes_of_deleted_steps(&mut record, &self.context);
        copy_choices(&self.session.record, &mut record);
        let changed = record != self.session.record;
        self.session.record = record;
        if self.session.takeover_requested.is_cancelled() {
            let title = "Another adjutant process has taken over this session.".into();
            let details = Some(
                "The work here was cancelled. Load the session again to continue it here.".into(),
            );
            event_sender
                .event(Event::Notice {
                    severity: Severity::Warning,
                    title,
                    details,
                })
                .await;
        }
        // A client that can send the prompt again does so without a notice.
        let goes_on = next::current_turn(&self.history)
            .first()
            .and_then(Message::options);
        let goes_on = goes_on.is_some_and(|options| options.idempotency_key.is_some());
        if self.session.sessions.exit_requested.is_cancelled() && !goes_on {
            let title = "This server is about to stop, so the turn was ended after a step.".into();
            let details = Some("Load the session on another server and say \"continue\".".into());
            event_sender
                .event(Event::Notice {
                    severity: Severity::Warning,
                    title,
                    details,
                })
                .await;
        }
        let titled = self.session.apply_title();
        if is_message {
            self.finish_model_turn(&event_sender).await;
        } else if changed || titled {
            self.session.store_record().await;
        }
        drop(event_sender);
        self.session
            .sessions
            .store
            .await_written(&self.session.record.id)
            .await;
        if titled {
            self.session.send_title();
        }
    }

    /// Stores the record after a turn of the model, and requests a title after the first turns.
    async fn finish_model_turn(&mut self, event_sender: &EventSender) {
        let session = &mut self.session;
        session.choices.store_model().await;
        session.choices.record_change().apply(&mut session.record);
        session.record.updated = self.context.common.environment.now();
        session.record.todos = self.context.shared.todos.get();
        session.record.refused_declarations = self.context.common.refused_tools.declarations();
        session.record.left_out_tools = self.context.left_out_tools.known();
        session.record.cost = self.history.cost();
        let mut answers = self.history.messages.iter().rev();
        let model = answers.find_map(|message| Some(message.assistant()?.model.clone()));
        session.record.answered_by = model.or(session.record.answered_by.take());
        let fresh = match session.record.title {
            Some(_) => None,
            None => title::fallback_of_history(&self.history),
        };
        session.record.title = fresh.clone().or(session.record.title.take());
        session.store_record().await;
        if fresh.is_some() {
            event_sender
                .event(Event::Info {
                    title: fresh,
                    updated: session.record.updated,
                })
                .await;
        }
        let has_text = |message: &&Message| {
            message.user().is_some() && !message.visible_beginning(8).is_empty()
        };
        let prompts = self
            .history
            .messages
            .iter()
            .filter(has_text)
            .take(MAX_TITLED_PROMPTS + 1);
        let stays =
            !session.takeover_requested.is_cancelled() && !session.sessions.ended.is_cancelled();
        if session.record.title_source == TitleSource::Words
            && prompts.count() <= MAX_TITLED_PROMPTS
            && stays
        {
            let ended = session.sessions.ended.child_token();
            let turn = self.turn_context(ended, EventSender::new().0);
            self.session.titling.request(&turn, &self.history);
        }
    }

    /// Counts the changed files and lines of the session, if the changes differ from those counted
    /// last, and stores the numbers in the record. No client waits for this.
    async fn update_diff_stats(&mut self) {
        /// Comparing more files would take too long for a number in a list.
        const MAX_FILES: usize = 500;
        /// The time that an exit waits for the count.
        const COUNT_GRACE: Duration = Duration::from_millis(500);
        let session = &mut self.session;
        let runs = changes::session_changes(&self.history.messages, &session.record);
        if runs == self.counted_changes || runs.len() > MAX_FILES {
            return;
        }
        let Some(tracker) = self.context.common.snapshots.clone() else {
            return;
        };
        self.counted_changes.clone_from(&runs);
        self.context.recorder.fetch_contents(&tracker, &runs).await;
        let worktree = self.watcher.project().context.worktree.clone();
        let counted =
            base::task::spawn_blocking(move || diff::compute_diffs(&runs, &tracker, &worktree));
        // A process that exits waits a moment for the number of a few files. Comparing many takes
        // seconds.
        let ended = session.sessions.ended.clone();
        let given_up = async {
            ended.cancelled().await;
            tokio::time::sleep(COUNT_GRACE).await;
        };
        let diffs = tokio::select! {
            counted = counted => counted.unwrap_or_default(),
            () = given_up => return,
        };
        session.events.diff(&diffs);
        let changed = diff::count_changes(&diffs);
        if changed != session.record.diff_stats {
            session.record.diff_stats = changed;
            session.store_record().await;
        }
    }

    /// Ends the session and releases its resources. The order matters: the history is released after
    /// everything that may still change it, and before the waiting prompts are answered.
    async fn end(mut self) {
        // For the hooks only, after the last turn.
        let turn = self.turn_context(CancellationToken::new(), EventSender::new().0);
        let mut session = self.session;
        session.titling.stop();
        // Waiting prompts are answered in order, after the running turn.
        session.inbox.cancel_waiting();
        if session.sessions.ended.is_cancelled() {
            session.sessions.live.await_request_listener().await;
        }
        hooks::run_at_session_end(&turn).await;
        let scripts = self.context.common.extensions.scripts.clone();
        scripts.end().await;
        let environment = self.context.common.environment.clone();
        let root = self.watcher.project().context.worktree.root.clone();
        let done = scripts.take_usage();
        if !done.is_empty() {
            // Only a statistic for the user, so a failure is ignored.
            base::task::spawn_blocking(move || usage_stats::add(&environment, &root, done))
                .await
                .ok();
        }
        let closing = session.closing.take();
        let purpose = closing
            .as_ref()
            .map_or(ClosePurpose::Close, |closing| closing.purpose);
        let stays_here =
            !session.takeover_requested.is_cancelled() && !session.sessions.ended.is_cancelled();
        let is_handed_over = purpose == ClosePurpose::Reopen && stays_here;
        let jobs = is_handed_over
            .then(|| SessionJobs::of(&self.context))
            .filter(|living| !living.jobs.is_empty());
        if jobs.is_none() {
            self.context.shared.jobs.end().await;
        }
        self.context.common.servers.end().await;
        self.context.shared.language.end();
        // Jobs that live on have their temporary files there.
        if jobs.is_none() {
            let scratch =
                scratch::directory(&self.context.common.environment, self.context.id.as_str());
            base::task::spawn_blocking(move || scratch::remove(&scratch))
                .await
                .ok();
        }
        session.record_jobs(&mut self.history, &self.context).await;
        if let Some(tracker) = self.context.common.snapshots.clone() {
            // Only a cache: after a failure the next process computes it again.
            base::task::spawn_blocking(move || tracker.save())
                .await
                .ok();
        }
        let done = closing.and_then(|closing| closing.done);
        let claim = self.claim;
        if is_handed_over {
            session.inbox.close();
            let handover = Some(SessionHandover { claim, jobs });
            let unreceived = done.and_then(|done| done.send(handover).err().flatten());
            if let Some(unreceived) = unreceived {
                session.sessions.abandon(unreceived).await;
            }
            return;
        }
        let store = &session.sessions.store;
        let id = &session.record.id;
        if session.takeover_requested.is_cancelled() {
            store.close(id).await;
            // An empty session that is archived or opened again may exist only in this process's
            // store, which must not delete it.
        } else if !(purpose != ClosePurpose::Close && self.history.messages.is_empty())
            && let Err(e) = store.close_and_delete_if_empty(id).await
        {
            tracing::warn!("session {id} could not be examined when it was closed: {e}");
        }
        // The history is released before the waiting prompts learn that this process no
        // longer has it.
        drop(claim);
        session.inbox.close();
        if let Some(done) = done {
            // The receiver may have been dropped.
            done.send(None).ok();
        }
    }
}

impl SessionState {
    /// Waits for the next event. Cancel-safe: a select may drop this without losing an event.
    async fn next_event(&mut self) -> ActorEvent {
        let open = self.closing.is_none();
        tokio::select! {
            mail = self.inbox.mailbox.recv(), if open => mail.map_or(ActorEvent::MailboxEnded, ActorEvent::Mail),
            Some(cancel) = self.inbox.cancels.recv() => ActorEvent::Cancel(cancel),
            title = self.titling.answer() => ActorEvent::Titled(title),
            () = self.takeover_requested.cancelled(), if open => ActorEvent::MailboxEnded,
        }
    }

    async fn handle(&mut self, event: ActorEvent) {
        match event {
            ActorEvent::Mail(MailboxMessage::Prompt(prompt)) => self.inbox.push(prompt),
            ActorEvent::Mail(MailboxMessage::Choose(change, written)) => {
                self.choose(change, written).await
            }
            ActorEvent::Mail(MailboxMessage::Rename(title, written)) => {
                self.rename(title, written).await
            }
            ActorEvent::Mail(MailboxMessage::Unarchive(written)) => {
                self.change_record(RecordChange::Archived(false)).await;
                acknowledge(written);
            }
            ActorEvent::Mail(MailboxMessage::Close { done, purpose }) => {
                self.close(Some(done), purpose)
            }
            ActorEvent::Cancel(cancel) => {
                if let Some(turn) = self
                    .running
                    .as_ref()
                    .filter(|turn| cancel.covers(turn.number))
                {
                    turn.cancelled.cancel();
                }
                self.inbox.cancel(cancel);
            }
            // Applied when no turn has the record.
            ActorEvent::Titled(title) => self.titling.answered = title,
            ActorEvent::MailboxEnded => self.close(None, ClosePurpose::Close),
        }
        self.inbox.update_steering_signal(self.choices.steers());
    }

    fn close(
        &mut self,
        done: Option<oneshot::Sender<Option<SessionHandover>>>,
        purpose: ClosePurpose,
    ) {
        if let Some(turn) = &self.running {
            turn.cancelled.cancel();
        }
        self.closing = Some(Closing { done, purpose });
    }

    async fn choose(&mut self, change: SentChange, written: oneshot::Sender<()>) {
        self.choices.apply_sent(change);
        self.change_record(self.choices.record_change()).await;
        acknowledge(written);
    }

    /// Sets the user's title at once, because a turn may take an hour.
    async fn rename(&mut self, title: String, written: oneshot::Sender<()>) {
        self.change_record(RecordChange::Title(title)).await;
        self.sessions.store.await_written(&self.record.id).await;
        self.send_title();
        acknowledge(written);
    }

    /// Changes the record here and in the store, independently of a turn's own record.
    async fn change_record(&mut self, change: RecordChange) {
        change.apply(&mut self.record);
        self.events.updated(&self.record);
        self.sessions
            .store
            .queue_record_change(&self.record.id, change)
            .await;
    }

    /// Stores the record as a whole.
    async fn store_record(&self) {
        self.events.updated(&self.record);
        self.sessions.store.write_record(&self.record).await;
    }

    /// Records the ends of background jobs, and their writes so far.
    async fn record_jobs(&mut self, history: &mut History, context: &SessionContext) {
        jobs::record_ended_jobs(history, context).await;
        late_changes::collect(history, context).await;
        let before = self.record.file_log.clone();
        late_changes::log_changes_of_deleted_steps(&mut self.record, context);
        if self.record.file_log != before {
            self.store_record().await;
        }
    }

    /// Applies the title agent's title, unless the user has given another one. Returns true if the
    /// title has changed.
    fn apply_title(&mut self) -> bool {
        let answered = self.titling.answered.take();
        if self.record.title_source == TitleSource::User {
            return false;
        }
        let Some(title) = answered else { return false };
        self.record.title = Some(title);
        self.record.title_source = TitleSource::Agent;
        true
    }

    fn send_title(&self) {
        let title = self.record.title.clone();
        let updated = self.record.updated;
        // There may be no receiver.
        self.out_of_turn_events
            .send(Event::Info { title, updated })
            .ok();
    }
}

/// Copies the values that only the user changes from the actor's record into a turn's record.
fn copy_choices(from: &Record, to: &mut Record) {
    to.agent.clone_from(&from.agent);
    to.model.clone_from(&from.model);
    to.steer = from.steer;
    to.approvals = from.approvals;
    to.archived = from.archived;
    if from.title_source == TitleSource::User {
        to.title.clone_from(&from.title);
        to.title_source = TitleSource::User;
    }
}

/// Answers a request. Its sender may have gone.
fn acknowledge(written: oneshot::Sender<()>) {
    written.send(()).ok();
}
