//! The sending side of a session's mailbox. [`SessionHandle`] has a method for each request; the
//! method queues a [`MailboxMessage`] before it returns, so that two lines from the client keep their
//! order. A prompt returns a [`TurnHandle`], through which its events and its outcome arrive.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::builtin::BuiltinCommand;
use super::choices::{ChoiceChange, PendingChoices, SentChange};
use super::commands::Commands;
use super::live::HistoryGuard;
use super::project::ProjectConfig;
use crate::turn::jobs::SessionJobs;
use crate::turn::{SessionChoices, SessionProject, TurnOutcome};
use base::approvals::Approvals;
use base::channel::Receiver;
use base::id::SessionId;
use events::{CommandInfo, Event, EventSender, TurnMessage};
use mcp::McpServers;
use mcp::editor::EditorChannel;
use permission::account::AccountAccess;
use providers::editor_endpoints::EditorEndpoints;
use sandbox::Level;
use tools::process::sandboxing::SandboxChoice;
use transcript::{Content, ModelRef, Usage};

/// The capacity of the mailbox.
pub(super) const MAX_WAITING_MESSAGES: usize = 64;

/// The means to control an open session. The session is closed when the last clone is dropped.
#[derive(Clone)]
pub struct SessionHandle {
    pub id: SessionId,
    /// The working directory; absolute.
    pub cwd: PathBuf,
    /// The present configuration; replaced between two turns.
    pub(super) project: watch::Receiver<ProjectConfig>,
    pub(super) servers: Arc<McpServers>,
    /// Notices for the user, shown at the first turn.
    pub(super) notices: Arc<[Event]>,
    /// True if [`Self::take_initial_notices`] has returned the notices.
    pub(super) has_started: Arc<AtomicBool>,
    /// The number of prompts so far. A prompt's own number is the count that includes it.
    pub(super) prompt_count: Arc<AtomicU64>,
    /// Separate from the mailbox, so that a full mailbox does not delay a cancel.
    pub(super) cancels: mpsc::UnboundedSender<CancelScope>,
    pub(super) mailbox: mpsc::Sender<MailboxMessage>,
    /// The choices that the session has applied.
    pub(super) choice: watch::Receiver<SessionChoices>,
    /// The sandbox of commands.
    pub(super) sandbox_choice: SandboxChoice,
    /// The user's right to change state that all users of the account share.
    pub(super) account: AccountAccess,
    /// Choices that were sent but not yet applied.
    pub(super) pending_choices: Arc<PendingChoices>,
    /// The sender of events that belong to no turn.
    pub(super) out_of_turn_events: broadcast::Sender<Event>,
    /// Cancelled when another process has asked for the session.
    pub(super) takeover_requested: CancellationToken,
}

/// A request to a session.
pub enum MailboxMessage {
    Prompt(QueuedPrompt),
    /// Continue with another agent, model or steering. Answered when the change is in the
    /// store's queue.
    Choose(SentChange, oneshot::Sender<()>),
    /// Change the title.
    Rename(String, oneshot::Sender<()>),
    /// Unarchive the session.
    Unarchive(oneshot::Sender<()>),
    /// Cancel the turn, release the session in the store, and end. Answered with the parts that live
    /// on.
    Close {
        done: oneshot::Sender<Option<SessionHandover>>,
        purpose: ClosePurpose,
    },
}

/// The parts of a closed session that live on until this process opens it again. In the meantime
/// the store keeps it, so that no other process can take it.
pub struct SessionHandover {
    pub(super) claim: HistoryGuard,
    /// Its background jobs, if it has any.
    pub(super) jobs: Option<SessionJobs>,
}

/// The reason why a session's task ends, which decides what remains of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosePurpose {
    /// The session is no longer used here. The store deletes it if it is empty.
    Close,
    /// The store is about to change it, and keeps it even if it is empty.
    Archive,
    /// This process opens it again immediately: the store keeps it, even if it is empty, and its
    /// background jobs live on.
    Reopen,
}

/// Completes when the user's change is in the store's queue. Fails if the session ends first.
pub type SavedReceiver = oneshot::Receiver<()>;

/// The prompts that a cancel applies to, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelScope {
    /// All prompts up to this number, running or waiting.
    UpTo(u64),
    /// The prompt of this number.
    Only(u64),
}

impl CancelScope {
    /// True if the cancel applies to the prompt of this number.
    pub fn covers(self, number: u64) -> bool {
        match self {
            Self::UpTo(last) => number <= last,
            Self::Only(one) => number == one,
        }
    }
}

/// A prompt as the ACP server passes it to a session, in any protocol version.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptInput {
    /// The user's message to the model. Empty if there is only a built-in command.
    pub content: Vec<Content>,
    /// The built-in command to carry out in place of a turn. `/plan` may come together with a
    /// message: the session first switches to the plan mode, and then answers the message.
    pub builtin: Option<BuiltinCommand>,
}

impl PromptInput {
    /// Returns the key by which a prompt that is sent again is recognized; `None` if the client has
    /// set none.
    pub fn idempotency_key(&self) -> Option<&str> {
        idempotency_key(&self.content)
    }
}

/// Returns the key by which a prompt with this content is recognized if it is sent again.
pub(super) fn idempotency_key(content: &[Content]) -> Option<&str> {
    content.iter().find_map(|content| match content {
        Content::PromptOptions(options) => options.idempotency_key.as_deref(),
        _ => None,
    })
}

/// A prompt in the mailbox and the queue of a session, with the channels on which its client waits
/// for events and the outcome.
pub struct QueuedPrompt {
    /// Its number among the session's prompts.
    pub number: u64,
    pub input: PromptInput,
    pub event_sender: EventSender,
    pub outcome: oneshot::Sender<TurnResult>,
    /// Completes, with an error, when the client has been notified of the outcome.
    pub notified: oneshot::Receiver<()>,
}

/// The end of a turn, with its results.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnResult {
    pub outcome: TurnOutcome,
    /// The result that fits the JSON Schema of the prompt; `None` if the prompt has no schema, or
    /// the model gave no such result.
    pub structured: Option<Value>,
    /// The tokens that the turn and its subagents have used.
    pub usage: Usage,
}

impl From<TurnOutcome> for TurnResult {
    fn from(outcome: TurnOutcome) -> Self {
        Self {
            outcome,
            structured: None,
            usage: Usage::default(),
        }
    }
}

/// A requested turn, as its client holds it.
pub struct TurnHandle {
    /// The number of its prompt among the session's prompts.
    pub number: u64,
    pub events: Receiver<TurnMessage>,
    /// The outcome. If the session ends first, this fails, and the turn is cancelled.
    pub outcome: oneshot::Receiver<TurnResult>,
    /// To be dropped when the client has been notified of the outcome. The next turn begins after
    /// that, so that the texts of two turns never mix.
    pub notified: oneshot::Sender<()>,
}

/// The advice about a session that another process has taken over, for an editor.
pub const LOAD_AGAIN: &str = "; load it again, twice if need be, to take it back";

/// The reason why the mailbox takes no more messages: the session is closed, or too many are
/// waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    #[error("the session is closed")]
    Closed,
    /// Another process has taken the session over.
    #[error("another adjutant process has taken this session over{LOAD_AGAIN}")]
    Taken,
    #[error(
        "{MAX_WAITING_MESSAGES} messages are waiting in this session already; wait for answers or cancel"
    )]
    Full,
}

impl SessionHandle {
    /// Starts the MCP servers, so that they are ready at the first prompt. Call it after the client
    /// has been answered: ten servers take as long to start as everything else that opens a session.
    /// Each turn starts the servers that are still missing.
    pub fn start_servers(&self) {
        self.servers
            .reconcile(&self.project.borrow().project.context.settings.mcp);
    }

    /// Sets the connection to the editor, for the MCP servers that live in it.
    pub fn attach_editor(&self, editor: Arc<dyn EditorChannel>) {
        self.servers.attach(editor);
    }

    /// Queues a prompt, and returns the turn that will answer it. Prompts are answered one after the
    /// other, in order.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn prompt(&self, input: PromptInput) -> Result<TurnHandle, MailboxError> {
        let (event_sender, events) = EventSender::new();
        let (outcome, ended) = oneshot::channel();
        let (notifying, notified) = oneshot::channel();
        let number = self.prompt_count.fetch_add(1, Ordering::Relaxed) + 1;
        self.send(MailboxMessage::Prompt(QueuedPrompt {
            number,
            input,
            event_sender,
            outcome,
            notified,
        }))?;
        Ok(TurnHandle {
            number,
            events,
            outcome: ended,
            notified: notifying,
        })
    }

    /// Cancels the running turn, and drops the waiting prompts.
    pub fn cancel(&self) {
        // Fails only if the session is closed, and then there is no turn to cancel.
        self.cancels
            .send(CancelScope::UpTo(self.prompt_count.load(Ordering::Relaxed)))
            .ok();
    }

    /// Cancels one prompt, running or waiting.
    pub fn cancel_one(&self, number: u64) {
        // Fails only if the session is closed, and then there is no turn to cancel.
        self.cancels.send(CancelScope::Only(number)).ok();
    }

    /// Chooses the agent of the following steps. The caller has checked that it exists.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn choose_agent(&self, name: &str) -> Result<SavedReceiver, MailboxError> {
        self.choose(ChoiceChange::Agent(name.into()))
    }

    /// Chooses the model of the following steps. The caller has checked that it exists.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn choose_model(&self, model: ModelRef) -> Result<SavedReceiver, MailboxError> {
        self.choose(ChoiceChange::Model(model))
    }

    /// Gives the session a title that the user has chosen.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn rename(&self, title: &str) -> Result<SavedReceiver, MailboxError> {
        let (written, done) = oneshot::channel();
        self.send(MailboxMessage::Rename(title.into(), written))
            .map(|()| done)
    }

    /// Unarchives the session.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn unarchive(&self) -> Result<SavedReceiver, MailboxError> {
        let (written, done) = oneshot::channel();
        self.send(MailboxMessage::Unarchive(written)).map(|()| done)
    }

    /// Returns a receiver of the events that belong to no turn, from now on: titles, notices.
    pub fn out_of_turn_events(&self) -> broadcast::Receiver<Event> {
        self.out_of_turn_events.subscribe()
    }

    /// Waits until the session has ended.
    pub async fn closed(&self) {
        self.mailbox.closed().await;
    }

    /// Chooses whether messages sent during a turn reach that turn, or are answered after it.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn choose_steering(&self, steer: bool) -> Result<SavedReceiver, MailboxError> {
        self.choose(ChoiceChange::Steer(steer))
    }

    /// Chooses the approval mode from now on, for running subagents as well.
    ///
    /// # Errors
    /// [`MailboxError`].
    pub fn choose_approvals(&self, approvals: Approvals) -> Result<SavedReceiver, MailboxError> {
        self.choose(ChoiceChange::Approvals(approvals))
    }

    fn choose(&self, change: ChoiceChange) -> Result<SavedReceiver, MailboxError> {
        let (written, done) = oneshot::channel();
        self.pending_choices
            .send(change, |change| {
                self.send(MailboxMessage::Choose(change, written))
            })
            .map(|()| done)
    }

    /// Tests the sandbox for commands of agents that may edit, unless it was tested before or
    /// none is configured. Returns true if this test was the first to show that it works.
    pub async fn test_sandbox(&self) -> bool {
        let sandbox_choice = self.workspace_sandbox();
        let before = sandbox_choice.is_known_protective();
        sandbox_choice.is_protective().await && !before
    }

    /// Returns the notice about the tested sandbox for commands of agents that may edit. Only the
    /// first call returns it.
    pub async fn sandbox_notice(&self) -> Option<Event> {
        self.workspace_sandbox().notice(&self.cwd).await
    }

    /// True if a sandbox for commands of agents that may edit was tested and works.
    pub fn has_working_sandbox(&self) -> bool {
        self.workspace_sandbox().is_known_protective()
    }

    fn workspace_sandbox(&self) -> SandboxChoice {
        self.sandbox_choice.at(
            Level::WorkspaceWrite,
            &self.project.borrow().project.context.settings,
        )
    }

    /// Cancels the running turn, releases the session in the store, and ends the session's
    /// task.
    pub async fn close(&self) {
        self.end(ClosePurpose::Close).await;
    }

    /// Closes the session so that the caller can archive it. An empty session is not deleted in
    /// between; the caller releases the session in the store ([`store::Store::close`]).
    pub(super) async fn close_to_archive(&self) {
        self.end(ClosePurpose::Archive).await;
    }

    /// Closes the session so that the caller can open it again immediately. Returns the parts that
    /// live on; `None` if another process has asked for the session, or this one is exiting.
    pub(super) async fn close_to_reopen(&self) -> Option<SessionHandover> {
        self.end(ClosePurpose::Reopen).await
    }

    async fn end(&self, purpose: ClosePurpose) -> Option<SessionHandover> {
        let (done, closed) = oneshot::channel();
        let message = MailboxMessage::Close { done, purpose };
        self.mailbox.send(message).await.ok()?;
        // An actor that ends without an answer has closed as well.
        closed.await.ok().flatten()
    }

    /// Returns the notices for the first turn; `None` from the second call on.
    pub fn take_initial_notices(&self) -> Option<&[Event]> {
        (!self.has_started.swap(true, Ordering::Relaxed)).then_some(&self.notices)
    }

    /// Returns the project: settings, agents, models. It is replaced at the start of a turn if a
    /// file has changed.
    pub fn project(&self) -> Arc<SessionProject> {
        self.project.borrow().project.clone()
    }

    /// Uses the endpoints that `endpoints` returns, from the next request to a model on; `None`
    /// changes nothing. `endpoints` runs on a thread that may block.
    pub fn use_endpoints(
        &self,
        endpoints: impl FnOnce() -> Option<EditorEndpoints> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let models = self.project().models.clone();
        async move {
            let used = base::task::spawn_blocking(move || models.use_endpoints(endpoints));
            if let Err(e) = used.await {
                tracing::error!("the endpoints of the editor are not used: {e}");
            }
        }
    }

    /// Returns the commands of the present configuration, without the prompts of MCP servers.
    pub fn configured_commands(&self) -> Arc<Commands> {
        self.project.borrow().commands.clone()
    }

    /// Returns the commands that are available now: those of the configuration, and the prompts
    /// of connected MCP servers.
    pub fn commands(&self) -> Vec<CommandInfo> {
        self.configured_commands()
            .with_prompts(&self.servers, &self.account)
    }

    /// Returns a receiver that is notified when the prompts of an MCP server may have changed.
    pub fn server_changes(&self) -> watch::Receiver<u64> {
        self.servers.changes()
    }

    /// Returns the user's choices, including changes that were sent but not yet applied.
    pub fn choice(&self) -> SessionChoices {
        self.pending_choices.after(&self.choice)
    }

    fn send(&self, mail: MailboxMessage) -> Result<(), MailboxError> {
        self.mailbox.try_send(mail).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => MailboxError::Full,
            mpsc::error::TrySendError::Closed(_) if self.takeover_requested.is_cancelled() => {
                MailboxError::Taken
            }
            mpsc::error::TrySendError::Closed(_) => MailboxError::Closed,
        })
    }
}
