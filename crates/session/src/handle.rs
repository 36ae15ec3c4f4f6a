//! The address of a session. Whatever is asked of it is queued before the function returns, so
//! that two lines from the editor keep their order.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::builtin::BuiltinCommand;
use super::choices::{ChoiceChange, ChoicesOnTheWay, SentChange};
use super::project::ProjectConfig;
use crate::turn::{Choice, Outcome};
use base::approvals::Approvals;
use base::channel::Receiver;
use base::id::SessionId;
use events::{CommandInfo, Event, Outlet, TurnMessage};
use mcp::McpServers;
use sandbox::Level;
use tools::confinement::Confinement;
use transcript::{Content, ModelRef};

/// How much mail may wait.
pub(super) const WAITING: usize = 64;

#[derive(Clone)]
pub struct Handle {
    pub id: SessionId,
    pub cwd: PathBuf,
    pub(super) project: watch::Receiver<Arc<ProjectConfig>>,
    pub(super) servers: Arc<McpServers>,
    /// What the user is to hear at the first turn.
    pub(super) notices: Arc<[Event]>,
    /// Whether the first turn has begun.
    pub(super) greeted: Arc<AtomicBool>,
    /// Numbers the prompts, from 1.
    pub(super) prompts: Arc<AtomicU64>,
    /// Beside the mailbox, so that a full one keeps no cancel waiting.
    pub(super) cancels: mpsc::UnboundedSender<CancelScope>,
    pub(super) mailbox: mpsc::Sender<MailboxMessage>,
    pub(super) choice: watch::Receiver<Choice>,
    /// What the system can forbid commands.
    pub(super) confinement: Confinement,
    /// What was chosen, its mail still on its way.
    pub(super) said: Arc<ChoicesOnTheWay>,
    /// What is to be shown between turns.
    pub(super) asides: broadcast::Sender<Event>,
    /// Ends when another process has asked for the session.
    pub(super) taken: CancellationToken,
}

/// What a session can be asked to do.
pub enum MailboxMessage {
    Prompt(Prompt),
    /// Go on with another agent, model or way of steering. Answered when that is in the store's queue.
    Choose(SentChange, oneshot::Sender<()>),
    /// Be called this from now on.
    Title(String, oneshot::Sender<()>),
    /// Be put aside no longer.
    TakeBack(oneshot::Sender<()>),
    /// Stop, let go of the store, and end.
    Close {
        done: oneshot::Sender<()>,
        /// It is opened again at once: where nothing was said in it, the store keeps it until then.
        reopens: bool,
    },
}

/// Completes when something the user chose is in the store's queue; fails where the session ended first.
pub type SavedReceiver = oneshot::Receiver<()>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelScope {
    /// All that were sent up to this one, running or waiting.
    UpTo(u64),
    Only(u64),
}

impl CancelScope {
    /// Whether it is about a prompt.
    pub fn covers(self, number: u64) -> bool {
        match self {
            Self::UpTo(last) => number <= last,
            Self::Only(one) => number == one,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum PromptInput {
    /// A turn of the model, about what the user said.
    Message(Vec<Content>),
    /// Something the session does by itself.
    Builtin(BuiltinCommand),
}

impl PromptInput {
    /// What tells whether it is one that was sent before.
    pub fn idempotency_key(&self) -> Option<&str> {
        let Self::Message(content) = self else { return None };
        idempotency_key(content)
    }
}

/// What tells whether a prompt is one that was sent before.
pub(super) fn idempotency_key(content: &[Content]) -> Option<&str> {
    content.iter().find_map(|content| match content {
        Content::PromptOptions(options) => options.idempotency_key.as_deref(),
        _ => None,
    })
}

pub struct Prompt {
    /// Its place among the session's prompts.
    pub number: u64,
    pub work: PromptInput,
    pub outlet: Outlet,
    pub outcome: oneshot::Sender<TurnEnd>,
}

#[derive(Debug)]
pub struct TurnEnd {
    pub outcome: Outcome,
    /// The result in the shape that was asked for.
    pub structured: Option<Value>,
    /// To be dropped when the editor has been told: the next turn begins after that, so that the
    /// words of two turns never mix.
    pub told: oneshot::Sender<()>,
}

impl TurnEnd {
    /// An end, and what completes when it was told.
    pub(super) fn new(outcome: Outcome) -> (Self, oneshot::Receiver<()>) {
        let (told, heard) = oneshot::channel();
        (Self { outcome, structured: None, told }, heard)
    }
}

/// A turn that was asked for.
pub struct PendingTurn {
    /// Its prompt's place among the session's prompts.
    pub number: u64,
    pub events: Receiver<TurnMessage>,
    /// How it ends. A session that ends first drops it: the turn is cancelled then.
    pub outcome: oneshot::Receiver<TurnEnd>,
}

/// The session takes no more mail: it is closed, or far too much is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    #[error("the session is closed")]
    Closed,
    /// Another process has it now.
    #[error("another adjutant process has taken this session over; load it again, twice if need be, to take it back")]
    Taken,
    #[error("{WAITING} messages are waiting in this session already; wait for answers or cancel")]
    Full,
}

impl Handle {
    /// Starts the MCP servers, so that they are there when the first prompt comes. Ten of them take as long as
    /// everything else that opens a session: its editor is answered first. A turn starts what is not there yet.
    pub fn start_servers(&self) {
        self.servers.reconcile(&self.project.borrow().settings.mcp);
    }

    /// Queues a prompt. Prompts are answered one after the other, in order.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn prompt(&self, work: PromptInput) -> Result<PendingTurn, MailboxError> {
        let (outlet, events) = Outlet::new();
        let (outcome, ended) = oneshot::channel();
        let number = self.prompts.fetch_add(1, Ordering::Relaxed) + 1;
        self.send(MailboxMessage::Prompt(Prompt { number, work, outlet, outcome }))?;
        Ok(PendingTurn { number, events, outcome: ended })
    }

    /// Stops the running turn, and forgets the prompts that wait.
    pub fn cancel(&self) {
        // A session that is closed has nothing to cancel.
        self.cancels.send(CancelScope::UpTo(self.prompts.load(Ordering::Relaxed))).ok();
    }

    pub fn cancel_one(&self, number: u64) {
        // A session that is closed has nothing to cancel.
        self.cancels.send(CancelScope::Only(number)).ok();
    }

    /// Chooses the agent for the steps to come. The caller has checked that it exists.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn choose_agent(&self, name: &str) -> Result<SavedReceiver, MailboxError> {
        self.choose(ChoiceChange::Agent(name.into()))
    }

    /// Chooses the model for the steps to come. The caller has checked that it exists.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn choose_model(&self, model: ModelRef) -> Result<SavedReceiver, MailboxError> {
        self.choose(ChoiceChange::Model(model))
    }

    /// Gives the session the title its user wants.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn rename(&self, title: &str) -> Result<SavedReceiver, MailboxError> {
        let (written, done) = oneshot::channel();
        self.send(MailboxMessage::Title(title.into(), written)).map(|()| done)
    }

    /// Says that its user has not put it aside any more.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn take_back(&self) -> Result<SavedReceiver, MailboxError> {
        let (written, done) = oneshot::channel();
        self.send(MailboxMessage::TakeBack(written)).map(|()| done)
    }

    /// What comes between turns from now on: titles, notices.
    pub fn asides(&self) -> broadcast::Receiver<Event> {
        self.asides.subscribe()
    }

    /// Waits until the session has ended.
    pub async fn closed(&self) {
        self.mailbox.closed().await;
    }

    /// Chooses whether words that come while a turn runs are heard in it, or answered after it.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn choose_steer(&self, steer: bool) -> Result<SavedReceiver, MailboxError> {
        self.choose(ChoiceChange::Steer(steer))
    }

    /// Chooses how much is asked from now on, in subagents at work as well.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn choose_approvals(&self, approvals: Approvals) -> Result<SavedReceiver, MailboxError> {
        self.choose(ChoiceChange::Approvals(approvals))
    }

    fn choose(&self, change: ChoiceChange) -> Result<SavedReceiver, MailboxError> {
        let (written, done) = oneshot::channel();
        self.said.send(change, |change| self.send(MailboxMessage::Choose(change, written))).map(|()| done)
    }

    /// Tries the sandbox for commands of those who may edit, unless that was done or none is wanted. Says whether it
    /// holds, which was not known before.
    pub async fn try_sandbox(&self) -> bool {
        let confinement = self.confined();
        let before = confinement.is_known_to_hold();
        confinement.holds().await && !before
    }

    /// What the user is to be told of the sandbox that was tried for commands of those who may edit, once.
    pub fn sandbox_notice(&self) -> Option<Event> {
        self.confined().notice()
    }

    /// Whether a sandbox was tried that holds commands of those who may edit.
    pub fn sandboxes(&self) -> bool {
        self.confined().is_known_to_hold()
    }

    fn confined(&self) -> Confinement {
        self.confinement.at(Level::WorkspaceWrite, &self.project.borrow().settings)
    }

    /// Cancels what runs, lets go of the store, ends the session's task.
    pub async fn close(&self) {
        self.end(false).await;
    }

    /// The same for a session that the store is asked for again at once, or told to let go of
    /// ([`store::Store::close`]): one in which nothing was said is not gone meanwhile.
    pub(super) async fn close_to_reopen(&self) {
        self.end(true).await;
    }

    async fn end(&self, reopens: bool) {
        let (done, closed) = oneshot::channel();
        if self.mailbox.send(MailboxMessage::Close { done, reopens }).await.is_ok() {
            // An actor that ends without an answer has closed as well.
            closed.await.ok();
        }
    }

    /// What the user is to hear when the first turn begins; none from the second one on.
    pub fn greeting(&self) -> Option<&[Event]> {
        (!self.greeted.swap(true, Ordering::Relaxed)).then_some(&self.notices)
    }

    /// What its files say now: who can speak, who can be asked, which commands there are. It is
    /// replaced when a turn begins and a file has changed.
    pub fn project(&self) -> Arc<ProjectConfig> {
        self.project.borrow().clone()
    }

    /// The `/words` that can be said now: those of the files, and the prompts of the servers that are there.
    pub fn commands(&self) -> Vec<CommandInfo> {
        self.project().commands.with_prompts(&self.servers)
    }

    /// Waits until the prompts of a server may be others.
    pub fn server_changes(&self) -> watch::Receiver<u64> {
        self.servers.changes()
    }

    /// What is chosen, with what is still on its way.
    pub fn choice(&self) -> Choice {
        self.said.after(&self.choice)
    }

    fn send(&self, mail: MailboxMessage) -> Result<(), MailboxError> {
        self.mailbox.try_send(mail).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => MailboxError::Full,
            mpsc::error::TrySendError::Closed(_) if self.taken.is_cancelled() => MailboxError::Taken,
            mpsc::error::TrySendError::Closed(_) => MailboxError::Closed,
        })
    }
}
