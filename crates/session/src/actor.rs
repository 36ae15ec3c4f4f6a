//! The task of one session: its mailbox and its running turn in one select. The only owner of the
//! history, which it lends to the turn and gets back with the outcome.
//!
//! `ActorEvent` is all that a session can be told, and `SessionState::handle` the one place where it is
//! handled, whether a turn runs or not. What a turn changes itself, the history and the record, comes home
//! with its result; what the user changes meanwhile is made in the actor's own record at once, and carried
//! over into the turn's when that has ended.

use std::sync::Arc;

use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;

use super::choices::{Choices, SentChange};
use super::handle::{CancelScope, MailboxMessage, Prompt, PromptInput, TurnEnd};
use super::inbox::{self, Inbox};
use super::live::HistoryGuard;
use super::project::ConfigWatcher;
use super::prompt::{PromptResult, PromptRun};
use super::sessions::Sessions;
use super::title::{self, Titling};
use super::{changes, diff};
use crate::turn::{History, Outcome, TurnContext, hooks, jobs, late_changes, next, release};
use base::task::JoinHandle;
use events::{Event, Outlet, Severity};
use extensions::tally;
use store::{Record, RecordChange, TitleSource, visible};
use tools::scratch;
use transcript::{FileChange, Message};

/// A session is named by the title agent only at its beginning.
const FIRST: usize = 2;

pub(super) struct Actor {
    /// What a turn gets to see; its token and outlet are replaced for each turn.
    pub(super) scope: TurnContext,
    /// What the files say. Lent to the turn.
    pub(super) watcher: ConfigWatcher,
    /// Moved into the turn while it runs.
    pub(super) history: History,
    /// The search for local servers, while it may still run: 100 ms at most.
    pub(super) local: Option<JoinHandle<()>>,
    /// The changes of the files as they were counted last.
    pub(super) counted: Vec<FileChange>,
    pub(super) claim: HistoryGuard,
    pub(super) session: SessionState,
}

/// What stays with the actor while a turn runs.
pub(super) struct SessionState {
    pub(super) sessions: Arc<Sessions>,
    pub(super) record: Record,
    pub(super) inbox: Inbox,
    pub(super) choices: Choices,
    pub(super) titling: Titling,
    /// Where that goes which comes between turns: titles, notices.
    pub(super) asides: broadcast::Sender<Event>,
    /// Ends when another process has asked for the session.
    pub(super) taken: CancellationToken,
    pub(super) running: Option<RunningTurn>,
    pub(super) closing: Option<Closing>,
}

/// The turn that runs: its prompt's number, and what stops it.
pub(super) struct RunningTurn {
    number: u64,
    cancelled: CancellationToken,
}

/// The session is to end.
pub(super) struct Closing {
    /// Who waits for it, if anybody does.
    done: Option<oneshot::Sender<()>>,
    /// The store is asked for it again at once.
    reopens: bool,
}

/// Everything a session can be told, idle or while a turn runs.
enum ActorEvent {
    Mail(MailboxMessage),
    Cancel(CancelScope),
    /// The title agent has answered.
    Titled(Option<String>),
    /// Nobody will ask for anything any more: every handle is gone, or another process has the session.
    Abandoned,
}

impl Actor {
    /// Serves the mailbox until the session is closed, or nobody holds its address any more. The history
    /// comes when it was shown; without it there is nothing to go on from.
    pub(super) async fn run(mut self, coming: oneshot::Receiver<History>) {
        let came = tokio::select! {
            history = coming => history.ok(),
            () = self.session.sessions.ended.cancelled() => None,
        };
        match came {
            Some(history) => self.history = history,
            None => self.session.close(None, false),
        }
        // The editor has shown it.
        release::release(&mut self.history);
        let mut steered = false;
        while self.session.closing.is_none() {
            match self.session.inbox.pop() {
                Some(prompt) if self.session.inbox.is_cancelled(prompt.number) => inbox::forget(prompt),
                // What waits is begun where the session goes on, after what ended at a step here.
                Some(prompt) if self.session.sessions.leaving.is_cancelled() => inbox::forget(prompt),
                Some(prompt) => steered = self.turn(prompt, steered).await,
                None => {
                    steered = false;
                    self.idle().await;
                }
            }
        }
        self.end().await;
    }

    /// Waits for one thing to happen between turns.
    async fn idle(&mut self) {
        let ended = self.session.sessions.ended.clone();
        tokio::select! {
            event = self.session.next_event() => self.session.handle(event).await,
            () = self.scope.resources.jobs.news() => {
                jobs::settle(&mut self.history, &self.scope).await;
                for notice in jobs::notices(&self.scope) {
                    // Where nobody listens, the next turn says it.
                    self.session.asides.send(notice).ok();
                }
            }
            () = ended.cancelled() => self.session.close(None, false),
        }
        if self.session.take_title() {
            self.session.sessions.store.record(&self.session.record).await;
            self.session.sessions.store.handed_over(&self.session.record.id).await;
            self.session.tell_title();
        }
        self.session.choices.remember().await;
    }

    /// Runs one turn, or carries out a built-in command in its place. Says whether it ended for the words
    /// that come next.
    async fn turn(&mut self, prompt: Prompt, steered: bool) -> bool {
        if let Some(local) = self.local.take()
            && let Err(e) = local.await
        {
            tracing::warn!("looking for local servers failed: {e}");
        }
        let Prompt { number, work, outlet, outcome: reply } = prompt;
        let said = matches!(work, PromptInput::Message(_));
        let cancelled = self.session.sessions.ended.child_token();
        let run = PromptRun {
            sessions: self.session.sessions.clone(),
            choice: self.session.choices.current.clone(),
            scope: TurnContext {
                cancelled: cancelled.clone(),
                outlet: outlet.clone(),
                budget: Arc::default(),
                ..self.scope.clone()
            },
            history: std::mem::take(&mut self.history),
            record: self.session.record.clone(),
            steered: said && steered,
        };
        self.session.running = Some(RunningTurn { number, cancelled });
        self.session.inbox.tell_turn(self.session.choices.steers());
        let result = {
            let mut work = std::pin::pin!(run.run(work, &mut self.watcher));
            loop {
                tokio::select! {
                    result = &mut work => break result,
                    event = self.session.next_event() => self.session.handle(event).await,
                }
            }
        };
        self.session.running = None;
        let PromptResult { history, record, outcome } = result;
        self.history = history;
        self.keep_turn(record, said, outlet).await;
        let steers = outcome == Outcome::Steered;
        self.answer(outcome, said, reply).await;
        // Whoever waits for an answer does not wait for a number in a list; it is counted after theirs.
        if self.session.inbox.is_empty() {
            self.count().await;
        }
        steers
    }

    /// Keeps what a turn has changed. What the answer says is kept before it is said.
    async fn keep_turn(&mut self, mut record: Record, said: bool, outlet: Outlet) {
        jobs::settle(&mut self.history, &self.scope).await;
        self.watcher.apply_to(&mut self.scope);
        carry_choices(&self.session.record, &mut record);
        let changed = record != self.session.record;
        self.session.record = record;
        if self.session.taken.is_cancelled() {
            let title = "Another adjutant process has taken this session over.".into();
            let details = Some("What ran here was cancelled. Load the session again to take it back.".into());
            outlet.event(Event::Notice { severity: Severity::Warning, title, details }).await;
        }
        // Whoever can send a prompt again does that.
        let goes_on = next::turn(&self.history).first().and_then(Message::options);
        let goes_on = goes_on.is_some_and(|options| options.idempotency_key.is_some());
        if self.session.sessions.leaving.is_cancelled() && !goes_on {
            let title = "This server is about to stop, and the turn ended at a step.".into();
            let details = Some("Load the session on another one and say \"go on\".".into());
            outlet.event(Event::Notice { severity: Severity::Warning, title, details }).await;
        }
        let titled = self.session.take_title();
        if said {
            self.close_turn(&outlet).await;
        } else if changed || titled {
            self.session.sessions.store.record(&self.session.record).await;
        }
        drop(outlet);
        self.session.sessions.store.handed_over(&self.session.record.id).await;
        if titled {
            self.session.tell_title();
        }
    }

    /// Answers a prompt, and waits until the editor has been told.
    async fn answer(&self, outcome: Outcome, said: bool, reply: oneshot::Sender<TurnEnd>) {
        let (mut end, told) = TurnEnd::new(outcome);
        end.structured = self.history.messages.last().filter(|_| said).and_then(structured);
        // An editor that is gone has no use for the outcome.
        reply.send(end).ok();
        tokio::select! {
            _ = told => {}
            () = self.session.sessions.ended.cancelled() => {}
        }
    }

    /// What is to be done after a turn of the model: the title after the first one, the record.
    async fn close_turn(&mut self, outlet: &Outlet) {
        let session = &mut self.session;
        session.choices.remember().await;
        session.choices.kept().apply(&mut session.record);
        session.record.updated = self.scope.now();
        session.record.todos = self.scope.resources.todos.get();
        session.record.cost = self.history.cost();
        let fresh = match session.record.title {
            Some(_) => None,
            None => title::title(&self.history),
        };
        session.record.title = fresh.clone().or(session.record.title.take());
        session.sessions.store.record(&session.record).await;
        if fresh.is_some() {
            outlet.event(Event::Info { title: fresh, updated: session.record.updated }).await;
        }
        let said = |message: &&Message| message.user().is_some() && !message.visible_beginning(8).is_empty();
        let prompts = self.history.messages.iter().filter(said).take(FIRST + 1);
        let stays = !session.taken.is_cancelled() && !session.sessions.ended.is_cancelled();
        if session.record.titled == TitleSource::Words && prompts.count() <= FIRST && stays {
            session.titling.ask(&self.scope, &self.history);
        }
    }

    /// Counts what the session changed in the files, where that is something else than before. Nobody
    /// waits for it.
    async fn count(&mut self) {
        /// What is more takes too long for a number in a list.
        const FILES: usize = 500;
        let session = &mut self.session;
        let messages = &self.history.messages;
        let seen = messages.get(..visible(messages, &session.record.undone)).unwrap_or_default();
        let runs = changes::runs(seen);
        let Some(tracker) =
            self.scope.resources.snapshots.clone().filter(|_| runs != self.counted && runs.len() <= FILES)
        else {
            return;
        };
        self.counted.clone_from(&runs);
        self.scope.record.fetch(&tracker, &runs).await;
        let worktree = self.scope.project.worktree.clone();
        let counted = base::task::spawn_blocking(move || diff::count(&diff::diffs(&runs, &tracker, &worktree)));
        // A process that ends does not wait for a number: comparing many files takes seconds.
        let ended = session.sessions.ended.clone();
        let changed = tokio::select! {
            counted = counted => counted.unwrap_or_default(),
            () = ended.cancelled() => return,
        };
        if changed != session.record.changed {
            session.record.changed = changed;
            session.sessions.store.record(&session.record).await;
        }
    }

    /// Lets go of everything, in the order in which others may have it.
    async fn end(mut self) {
        let mut session = self.session;
        session.titling.stop();
        // Answered in order, after the turn that ran.
        session.inbox.forget_waiting();
        hooks::session_end(&self.scope).await;
        let scripts = self.scope.resources.extensions.scripts.clone();
        scripts.end().await;
        let (environment, root) = (self.scope.environment.clone(), self.scope.project.worktree.root.clone());
        let done = scripts.take_tallies();
        if !done.is_empty() {
            // Only for people: where this fails, they see less.
            base::task::spawn_blocking(move || tally::add(&environment, &root, done)).await.ok();
        }
        self.scope.resources.jobs.end().await;
        self.scope.resources.servers.end().await;
        self.scope.resources.language.end();
        let scratch = scratch::directory(&self.scope.environment, self.scope.session.as_str());
        base::task::spawn_blocking(move || scratch::remove(&scratch)).await.ok();
        jobs::settle(&mut self.history, &self.scope).await;
        late_changes::collect(&mut self.history, &self.scope).await;
        if let Some(tracker) = self.scope.resources.snapshots.take() {
            // Only a memory: where this fails, the next process finds it out again.
            base::task::spawn_blocking(move || tracker.save()).await.ok();
        }
        let (store, id) = (&session.sessions.store, &session.record.id);
        let reopens = session.closing.as_ref().is_some_and(|closing| closing.reopens);
        if session.taken.is_cancelled() {
            store.close(id).await;
        // Where nothing was said, what the store holds may be all there is: it keeps that for who opens it again.
        } else if !(reopens && self.history.messages.is_empty())
            && let Err(e) = store.leave(id).await
        {
            tracing::warn!("session {id} could not be looked at when it was closed: {e}");
        }
        // The history may be had by somebody else before the prompts in the mailbox hear that it is not ours.
        drop(self.claim);
        session.inbox.close();
        if let Some(done) = session.closing.and_then(|closing| closing.done) {
            // Nobody needs to wait for it.
            done.send(()).ok();
        }
    }
}

impl SessionState {
    /// The next thing that happens. Nothing is lost where this is dropped halfway: a select may do so.
    async fn next_event(&mut self) -> ActorEvent {
        let open = self.closing.is_none();
        tokio::select! {
            mail = self.inbox.mailbox.recv(), if open => mail.map_or(ActorEvent::Abandoned, ActorEvent::Mail),
            Some(cancel) = self.inbox.cancels.recv() => ActorEvent::Cancel(cancel),
            title = self.titling.answer() => ActorEvent::Titled(title),
            () = self.taken.cancelled(), if open => ActorEvent::Abandoned,
        }
    }

    async fn handle(&mut self, event: ActorEvent) {
        match event {
            ActorEvent::Mail(MailboxMessage::Prompt(prompt)) => self.inbox.push(prompt),
            ActorEvent::Mail(MailboxMessage::Choose(change, written)) => self.choose(change, written).await,
            ActorEvent::Mail(MailboxMessage::Title(title, written)) => self.rename(title, written).await,
            ActorEvent::Mail(MailboxMessage::TakeBack(written)) => {
                self.amend(RecordChange::Archived(false)).await;
                acknowledge(written);
            }
            ActorEvent::Mail(MailboxMessage::Close { done, reopens }) => self.close(Some(done), reopens),
            ActorEvent::Cancel(cancel) => {
                if let Some(turn) = self.running.as_ref().filter(|turn| cancel.covers(turn.number)) {
                    turn.cancelled.cancel();
                }
                self.inbox.cancel(cancel);
            }
            // Taken when no turn has the record.
            ActorEvent::Titled(title) => self.titling.answered = title,
            ActorEvent::Abandoned => self.close(None, false),
        }
        self.inbox.tell_turn(self.choices.steers());
    }

    fn close(&mut self, done: Option<oneshot::Sender<()>>, reopens: bool) {
        if let Some(turn) = &self.running {
            turn.cancelled.cancel();
        }
        self.closing = Some(Closing { done, reopens });
    }

    async fn choose(&mut self, change: SentChange, written: oneshot::Sender<()>) {
        self.choices.set(change);
        self.amend(self.choices.kept()).await;
        acknowledge(written);
    }

    /// The title its user wants, at once: a turn may take an hour.
    async fn rename(&mut self, title: String, written: oneshot::Sender<()>) {
        self.amend(RecordChange::Title(title)).await;
        self.sessions.store.handed_over(&self.record.id).await;
        self.tell_title();
        acknowledge(written);
    }

    /// Changes the record here and in the store, whatever a turn does to its own meanwhile.
    async fn amend(&mut self, change: RecordChange) {
        change.apply(&mut self.record);
        self.sessions.store.amend(&self.record.id, change).await;
    }

    /// Takes the title agent's title, unless the user has given another one. Says whether there was one.
    fn take_title(&mut self) -> bool {
        let title = self.titling.answered.take().filter(|_| self.record.titled != TitleSource::User);
        let Some(title) = title else { return false };
        self.record.title = Some(title);
        self.record.titled = TitleSource::Agent;
        true
    }

    fn tell_title(&self) {
        let (title, updated) = (self.record.title.clone(), self.record.updated);
        // Where nobody listens, nobody is told.
        self.asides.send(Event::Info { title, updated }).ok();
    }
}

/// Takes over what only the user changes, from the actor's record into the one a turn has worked with.
fn carry_choices(from: &Record, to: &mut Record) {
    to.agent.clone_from(&from.agent);
    to.model.clone_from(&from.model);
    to.steer = from.steer;
    to.approvals = from.approvals;
    to.archived = from.archived;
    if from.titled == TitleSource::User {
        to.title.clone_from(&from.title);
        to.titled = TitleSource::User;
    }
}

/// Whoever asked may have gone since.
fn acknowledge(written: oneshot::Sender<()>) {
    written.send(()).ok();
}

/// The result that the last message of a turn handed over.
fn structured(message: &Message) -> Option<serde_json::Value> {
    message.calls().find_map(next::result).cloned()
}
