//! The task of one session: its mailbox and its running turn in one select. The only owner of the
//! history, which it lends to the turn and gets back with the outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::base::Present;
use super::handle::{Cancel, Ended, Mail, Prompt, Work};
use super::open::{Claim, Shared};
use super::order::{self, Desk};
use super::recent::Recent;
use super::{changes, child, diff, mention, revert, title};
use crate::event::{Event, Outlet, Severity};
use crate::message::{FileChange, Message, ModelRef, Role, User};
use crate::store::{Amend, Record, Titled, visible};
use crate::turn::frame;
use crate::turn::insert::Draft;
use crate::turn::{Choice, History, Outcome, Scope};
use crate::turn::{jobs, next, release, remind};

/// A session is named by the title agent only at its beginning.
const FIRST: usize = 2;

/// A session's state.
pub(super) struct Actor {
    /// What a turn gets to see; its token and outlet are replaced for each turn.
    pub(super) scope: Scope,
    /// What the files say.
    pub(super) present: Present,
    pub(super) history: History,
    /// Where the history comes from, once it was shown.
    pub(super) coming: oneshot::Receiver<History>,
    pub(super) record: Record,
    pub(super) shared: Arc<Shared>,
    pub(super) claim: Claim,
    pub(super) mailbox: mpsc::Receiver<Mail>,
    pub(super) cancels: mpsc::UnboundedReceiver<Cancel>,
    /// Cancels that may be about prompts still in the mailbox.
    pub(super) cancelled: Vec<Cancel>,
    pub(super) choice: watch::Sender<Choice>,
    /// What was chosen in this project, and of that what this session has told it.
    pub(super) recent: Recent,
    pub(super) remembered: Option<ModelRef>,
    /// Ends when the process does.
    pub(super) ended: CancellationToken,
    /// Prompts that came while a turn was running.
    pub(super) waiting: VecDeque<Prompt>,
    /// Tells the running turn that the first of them is for the model to hear now.
    pub(super) spoken: watch::Sender<bool>,
    /// The turn before ended for the words that come next.
    pub(super) steered: bool,
    /// The search for local servers, while it may still run: 100 ms at most.
    pub(super) local: Option<JoinHandle<()>>,
    /// Where that goes which comes between turns: titles, notices.
    pub(super) asides: broadcast::Sender<Event>,
    /// The title agent at work.
    pub(super) naming: Option<JoinHandle<Option<String>>>,
    /// It was asked already.
    pub(super) named: bool,
    /// The changes of the files as they were counted last.
    pub(super) counted: Vec<FileChange>,
    /// Ends when another process has asked for the session.
    pub(super) taken: CancellationToken,
}

impl Actor {
    /// Serves the mailbox until the session is closed, or nobody holds its address any more.
    pub(super) async fn run(mut self) {
        let mut closing: Option<oneshot::Sender<()>> = None;
        // Without it there is nothing to go on from.
        let came = tokio::select! {
            history = &mut self.coming => history.ok(),
            () = self.ended.cancelled() => None,
        };
        let ready = came.is_some();
        if let Some(history) = came {
            self.history = history;
            // The editor has shown it.
            release::release(&mut self.history);
        }
        while ready && closing.is_none() {
            let prompt = match self.waiting.pop_front() {
                Some(prompt) => prompt,
                None => {
                    self.steered = false;
                    let mail = tokio::select! {
                        mail = self.mailbox.recv() => mail,
                        title = title::landed(&mut self.naming) => {
                            self.call_it(title, Titled::Agent).await;
                            continue;
                        }
                        () = self.scope.jobs.news() => {
                            jobs::settle(&mut self.history, &self.scope).await;
                            for notice in jobs::notices(&self.scope) {
                                // Where nobody listens, the next turn says it.
                                self.asides.send(notice).ok();
                            }
                            continue;
                        }
                        () = self.ended.cancelled() => None,
                        () = self.taken.cancelled() => None,
                    };
                    match mail {
                        None => break,
                        Some(Mail::Prompt(prompt)) => prompt,
                        Some(Mail::Close(done)) => {
                            closing = Some(done);
                            continue;
                        }
                        Some(Mail::Title(title, written)) => {
                            self.call_it(Some(title), Titled::User).await;
                            tell_written(written);
                            continue;
                        }
                        Some(mail) => {
                            self.choose(mail).await;
                            continue;
                        }
                    }
                }
            };
            if self.is_cancelled(prompt.number) {
                forget(prompt);
                continue;
            }
            closing = self.turn(prompt).await;
        }
        if let Some(naming) = self.naming.take() {
            naming.abort();
        }
        // Answered in order, after the turn that ran.
        self.waiting.into_iter().for_each(forget);
        self.scope.jobs.end().await;
        self.scope.servers.end().await;
        jobs::settle(&mut self.history, &self.scope).await;
        if let Some(tracker) = self.scope.snapshots.take() {
            // Only a memory: where this fails, the next process finds it out again.
            tokio::task::spawn_blocking(move || tracker.save()).await.ok();
        }
        self.shared.store.close(&self.record.id).await;
        drop(self.claim);
        self.mailbox.close();
        while let Ok(mail) = self.mailbox.try_recv() {
            if let Mail::Prompt(prompt) = mail {
                forget(prompt);
            }
        }
        if let Some(done) = closing {
            // Nobody needs to wait for it.
            done.send(()).ok();
        }
    }

    /// Runs one turn, or carries out an order in its place. Gives back who wants the session closed, if
    /// someone does.
    async fn turn(&mut self, prompt: Prompt) -> Option<oneshot::Sender<()>> {
        if let Some(local) = self.local.take()
            && let Err(e) = local.await
        {
            tracing::warn!("looking for local servers failed: {e}");
        }
        let Prompt { number, work, outlet, outcome: reply } = prompt;
        let cancelled = self.ended.child_token();
        let mut scope = self.scope.clone();
        scope.cancelled = cancelled.clone();
        scope.outlet = outlet.clone();
        scope.purse = Arc::default();
        let mut closing = None;
        let mut titles = Vec::new();
        let mut chose = false;
        let mut history = std::mem::take(&mut self.history);
        let mut record = self.record.clone();
        let steered = matches!(work, Work::Say(_)) && std::mem::take(&mut self.steered);
        tell(&self.spoken, &self.choice, &self.waiting);
        let (present, shared, choice) = (&mut self.present, &*self.shared, &self.choice);
        let (history, record, said, outcome) = {
            let work = async move {
                match work {
                    Work::Say(content) => {
                        present.refresh(&mut scope, choice).await;
                        scope.servers.greet(&scope.settings.mcp, &scope.outlet, &scope.cancelled).await;
                        revert::settle(&mut history, &mut record, &scope.record).await;
                        let mut draft = Draft::new(say(&scope), &record);
                        let (content, once) = present.commands().typed(content, &mut draft, &mut scope).await;
                        let mut content = match scope.depth < scope.settings.subagent_depth {
                            true => mention::named(content, &scope.agents),
                            false => content,
                        };
                        if steered {
                            remind::spoken_meanwhile(&mut content);
                        }
                        let Message { role, .. } = say(&scope);
                        let message = Message { role, ..draft.end(&scope, content) };
                        record.updated = message.created;
                        // At once: the turn may take an hour, and the session is in the list.
                        let title = title::words(&message).filter(|_| record.title.is_none());
                        record.title = title.clone().or(record.title);
                        scope.record.session(&record).await;
                        scope.record.whole(&message).await;
                        if title.is_some() {
                            scope.outlet.event(Event::Info { title, updated: record.updated }).await;
                        }
                        history.messages.push(message);
                        let (history, outcome) =
                            child::turn(shared, [Some(choice), once.as_ref()], history, scope).await;
                        (history, record, true, outcome)
                    }
                    Work::Do(order) => {
                        let desk = Desk { history: &mut history, record: &mut record, scope: &scope };
                        let outcome = order::carry_out(&order, desk).await;
                        (history, record, false, outcome)
                    }
                }
            };
            let mut work = std::pin::pin!(work);
            loop {
                tokio::select! {
                    done = &mut work => break done,
                    Some(cancel) = self.cancels.recv() => {
                        if cancel.covers(number) {
                            cancelled.cancel();
                        }
                        self.cancelled.push(cancel);
                        if let Cancel::Only(_) = cancel
                            && let Some(at) = self.waiting.iter().position(|next| cancel.covers(next.number))
                            && let Some(gone) = self.waiting.remove(at)
                        {
                            forget(gone);
                            tell(&self.spoken, &self.choice, &self.waiting);
                        }
                    }
                    mail = self.mailbox.recv(), if closing.is_none() => match mail {
                        Some(Mail::Prompt(next)) => {
                            self.waiting.push_back(next);
                            tell(&self.spoken, &self.choice, &self.waiting);
                        }
                        Some(Mail::Close(done)) => {
                            cancelled.cancel();
                            closing = Some(done);
                        }
                        Some(Mail::Title(title, written)) => {
                            // A turn may take an hour; what it keeps at its end has the title as well.
                            shared.store.amend(&self.record.id, Amend::Title(title.clone())).await;
                            shared.store.handed_over(&self.record.id).await;
                            tell_written(written);
                            self.asides.send(Event::Info { title: Some(title.clone()), updated: self.record.updated }).ok();
                            titles.push((Some(title), Titled::User));
                        }
                        Some(mail) => {
                            if let Some(written) = choose(&self.choice, mail) {
                                let kept = self.choice.borrow().kept();
                                shared.store.amend(&self.record.id, kept).await;
                                tell_written(written);
                                chose = true;
                            }
                            tell(&self.spoken, &self.choice, &self.waiting);
                        }
                        // Every handle is gone: nobody will ever ask for the result.
                        None => {
                            cancelled.cancel();
                            closing = Some(oneshot::channel().0);
                        }
                    },
                    title = title::landed(&mut self.naming) => titles.push((title, Titled::Agent)),
                    () = self.taken.cancelled(), if closing.is_none() => {
                        cancelled.cancel();
                        closing = Some(oneshot::channel().0);
                    }
                }
            }
        };
        self.history = history;
        jobs::settle(&mut self.history, &self.scope).await;
        self.present.lay(&mut self.scope);
        let changed = record != self.record;
        self.record = record;
        if chose {
            self.choice.borrow().kept().apply(&mut self.record);
        }
        if self.taken.is_cancelled() {
            let title = "Another adjutant process has taken this session over.".into();
            let details = Some("What ran here was cancelled. Load the session again to take it back.".into());
            outlet.event(Event::Notice { severity: Severity::Warning, title, details }).await;
        }
        let mut named = false;
        for (title, by) in titles {
            // One of the user's was kept and told when it came.
            named |= self.take_title(title, by) && by != Titled::User;
        }
        if said {
            self.close_turn(&outlet).await;
        } else if changed || named {
            self.shared.store.record(&self.record).await;
        }
        self.steered = outcome == Outcome::Steered;
        drop(outlet);
        // What the answer says is kept before it is said.
        self.shared.store.handed_over(&self.record.id).await;
        if named {
            self.tell_title();
        }
        let (mut ended, told) = Ended::new(outcome);
        ended.structured = self.history.messages.last().filter(|_| said).and_then(structured);
        // An editor that is gone has no use for the outcome.
        reply.send(ended).ok();
        tokio::select! {
            _ = told => {}
            () = self.ended.cancelled() => {}
        }
        // Whoever waits for an answer does not wait for a number in a list; it is counted after theirs.
        if self.waiting.is_empty() {
            self.count().await;
        }
        closing
    }

    /// Counts what the session changed in the files, where that is something else than before. Nobody
    /// waits for it.
    async fn count(&mut self) {
        /// What is more takes too long for a number in a list.
        const FILES: usize = 500;
        let messages = &self.history.messages;
        let seen = messages.get(..visible(messages, &self.record.undone)).unwrap_or_default();
        let runs = changes::runs(seen);
        let Some(tracker) = self.scope.snapshots.clone().filter(|_| runs != self.counted && runs.len() <= FILES) else {
            return;
        };
        self.counted.clone_from(&runs);
        let worktree = self.scope.worktree.clone();
        let counted = tokio::task::spawn_blocking(move || diff::count(&diff::diffs(&runs, &tracker, &worktree)));
        let changed = counted.await.unwrap_or_default();
        if changed != self.record.changed {
            self.record.changed = changed;
            self.shared.store.record(&self.record).await;
        }
    }

    /// Whether a prompt was cancelled before it began.
    fn is_cancelled(&mut self, number: u64) -> bool {
        while let Ok(cancel) = self.cancels.try_recv() {
            self.cancelled.push(cancel);
        }
        // Prompts come in order: what is about earlier ones has done its work.
        let cancelled = self.cancelled.iter().any(|cancel| cancel.covers(number));
        self.cancelled.retain(|cancel| match cancel {
            Cancel::UpTo(last) => *last > number,
            Cancel::Only(one) => *one > number,
        });
        cancelled
    }

    /// What is to be done after a turn: the title after the first one, the record.
    async fn close_turn(&mut self, outlet: &Outlet) {
        self.remember().await;
        self.choice.borrow().kept().apply(&mut self.record);
        self.record.updated = self.scope.now();
        self.record.todos = self.scope.todos.get();
        self.record.cost = self.history.cost();
        let fresh = match self.record.title {
            Some(_) => None,
            None => title::title(&self.history),
        };
        self.record.title = fresh.clone().or(self.record.title.take());
        self.shared.store.record(&self.record).await;
        if fresh.is_some() {
            outlet.event(Event::Info { title: fresh, updated: self.record.updated }).await;
        }
        let prompts = self.history.messages.iter().filter(|m| m.user().is_some() && !m.visible_text().is_empty());
        if self.record.titled == Titled::Words && !self.named && prompts.count() <= FIRST && self.taken_by_nobody() {
            self.naming = title::ask(&self.scope, &self.history);
            self.named = self.naming.is_some();
        }
    }

    fn taken_by_nobody(&self) -> bool {
        !self.taken.is_cancelled() && !self.ended.is_cancelled()
    }

    /// Takes a title, unless the user has given another one.
    fn take_title(&mut self, title: Option<String>, by: Titled) -> bool {
        let title = title.filter(|_| by == Titled::User || self.record.titled != Titled::User);
        let taken = title.is_some();
        if taken {
            self.record.title = title;
            self.record.titled = by;
        }
        taken
    }

    /// The same, kept and told.
    async fn call_it(&mut self, title: Option<String>, by: Titled) {
        if !self.take_title(title, by) {
            return;
        }
        match self.record.title.clone().filter(|_| by == Titled::User) {
            Some(title) => self.shared.store.amend(&self.record.id, Amend::Title(title)).await,
            None => self.shared.store.record(&self.record).await,
        }
        self.shared.store.handed_over(&self.record.id).await;
        self.tell_title();
    }

    fn tell_title(&self) {
        let (title, updated) = (self.record.title.clone(), self.record.updated);
        // Where nobody listens, nobody is told.
        self.asides.send(Event::Info { title, updated }).ok();
    }

    /// Remembers a model that was chosen, for the next session of this project.
    async fn remember(&mut self) {
        let chosen = self.choice.borrow().model.clone();
        let Some(model) = chosen.filter(|model| self.remembered.as_ref() != Some(model)) else { return };
        self.remembered = Some(model.clone());
        let recent = self.recent.clone();
        let kept = tokio::task::spawn_blocking(move || recent.chosen(&model)).await;
        if let Ok(Err(e)) = kept {
            tracing::warn!("the choice of a model could not be remembered: {e}");
        }
    }

    async fn choose(&mut self, mail: Mail) {
        let Some(written) = choose(&self.choice, mail) else { return };
        self.choice.borrow().kept().apply(&mut self.record);
        self.shared.store.record(&self.record).await;
        tell_written(written);
        self.remember().await;
    }
}

/// Tells the running turn whether someone's words wait that it should stop for. An order waits until
/// it has ended, and so does what was said after the order.
fn tell(spoken: &watch::Sender<bool>, choice: &watch::Sender<Choice>, waiting: &VecDeque<Prompt>) {
    let says = waiting.front().is_some_and(|next| matches!(next.work, Work::Say(_)));
    spoken.send_replace(says && choice.borrow().steers());
}

/// Takes over what was chosen. Gives back who is to hear when it is written down, if it is.
fn choose(choice: &watch::Sender<Choice>, mail: Mail) -> Option<oneshot::Sender<()>> {
    match mail {
        Mail::Agent(agent, written) => {
            choice.send_modify(|choice| choice.agent = agent);
            Some(written)
        }
        Mail::Model(model, written) => {
            choice.send_modify(|choice| choice.model = Some(model));
            Some(written)
        }
        Mail::Steer(steer, written) => {
            choice.send_modify(|choice| choice.steer = Some(steer));
            Some(written)
        }
        Mail::Prompt(_) | Mail::Title(..) | Mail::Close(_) => None,
    }
}

/// Whoever asked may have gone since.
fn tell_written(written: oneshot::Sender<()>) {
    written.send(()).ok();
}

/// The head of the message that a prompt becomes.
fn say(scope: &Scope) -> Message {
    let chosen = scope.choice.borrow().agent.clone();
    let model = match scope.agents.get(&chosen) {
        Some(agent) => frame::model(scope, &agent),
        None => scope.models.default_model(),
    };
    Message {
        id: scope.message_id(),
        created: scope.now(),
        role: Role::User(User { agent: chosen, model, system: None }),
        parts: Vec::new(),
    }
}

/// The result that the last message of a turn handed over.
fn structured(message: &Message) -> Option<serde_json::Value> {
    message.calls().find_map(next::result).cloned()
}

/// Answers a prompt that will not be run.
fn forget(prompt: Prompt) {
    // An editor that is gone has no use for the outcome.
    prompt.outcome.send(Ended::new(Outcome::Cancelled).0).ok();
}
