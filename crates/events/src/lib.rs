//! Events and requests that a session sends to the ACP server: events to be shown, questions to be
//! answered. Higher modules call lower ones; a lower module sends one of these messages instead of
//! calling a higher one.
//!
//! The events have the shape of the next version of ACP (stable ids, entities that are updated,
//! whole file changes) but do not depend on ACP: the crate `acp-server` converts them.

pub mod bus;
mod form;
mod question;
mod sample;
mod subagent;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc, oneshot};

use base::channel::{self, Receiver, Sender};
use base::environment::Timestamp;
use base::id::{CallId, MessageId, PartId, SessionId};
use base::lock::lock;
use base::text::mark::without_marks;
pub use form::{
    ChoiceLimits, FieldKind, FieldOption, FormField, FormPage, FormReply, FormRequest, TextFormat,
    TextLimits,
};
pub use question::{
    Confirmation, OfferedGrant, PermissionReply, PermissionRequest, Question, QuestionOption,
    QuestionReply, QuestionRequest, SandboxFacts,
};
pub use sample::{Sample, SampleRequest};
pub use subagent::{
    SpawnSubagent, Subagent, SubagentEnd, SubagentInfo, SubagentReport, SubagentState,
    SubagentStop, SwitchAgent,
};
use transcript::{Call, CallFacts, CallState, Change, Completed, FailureCause, File, Todo};
pub use transcript::{Location, ProgramExit, ToolKind};

/// The maximum number of messages that wait for the editor. If it does not read, the session waits
/// here.
pub const MAX_WAITING_MESSAGES: usize = 64;

/// A message of a running turn to the editor.
#[derive(Debug)]
pub enum TurnMessage {
    /// Something to show.
    Event(Event),
    /// A question for the user whether a call may continue.
    AskPermission(Box<PermissionRequest>),
    /// A file to be read through the editor.
    Read(ReadFile),
    /// A file to be written through the editor.
    Write(WriteFile),
    /// A yes/no question that does not concern a call of the model.
    Confirm(Box<Confirmation>),
    /// Questions of the model.
    AskQuestions(Box<QuestionRequest>),
    /// A form or an address from an MCP server.
    AskForm(Box<FormRequest>),
}

/// A request from a running turn to its session, which answers it; the editor learns of the results
/// by events.
#[derive(Debug)]
pub enum SessionRequest {
    /// Start a subagent.
    Spawn(Box<SpawnSubagent>),
    /// Switch to another agent from the next step on.
    Switch(SwitchAgent),
    /// Ask the model on behalf of an MCP server or a tool.
    Sample(Box<SampleRequest>),
}

/// The sender of a turn's requests to its session.
pub type SessionRequestSender = mpsc::Sender<SessionRequest>;

/// Something to show, live or in a replay.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A piece of the user's prompt; only sent when a history is replayed.
    User {
        message: MessageId,
        piece: UserPiece,
    },
    /// The user's prompt is now part of the conversation, under this id.
    Prompted {
        message: MessageId,
        /// The id under which it already was, if it has been sent before.
        known_as: Option<MessageId>,
    },
    /// More text of the model.
    Text { part: PartId, delta: String },
    /// More reasoning of the model.
    Thought { part: PartId, delta: String },
    /// A call is new or has changed.
    Call(Box<CallUpdate>),
    /// The model's whole todo list.
    Plan(Vec<Todo>),
    /// The agent of this name is active from now on.
    Mode(String),
    /// A config option that the editor shows has changed (mode, model, effort); it should be read
    /// again.
    Options,
    /// The stored keys and logins have changed.
    Logins,
    /// The complete list of slash commands.
    Commands(Vec<CommandInfo>),
    /// The session's title, or the time of its last use.
    Info {
        /// The new title; `None` if unchanged.
        title: Option<String>,
        /// The time of the session's last change.
        updated: Timestamp,
    },
    /// The tokens in the context, and the cost so far.
    Usage {
        /// Tokens in the context now.
        used: u64,
        /// The window, in tokens.
        size: u64,
        /// US dollars so far, if the price is known.
        cost: Option<f64>,
    },
    /// Something the user should know that is not part of the conversation.
    Notice {
        severity: Severity,
        /// The notice in one line.
        title: String,
        /// Further sentences, if there are any.
        details: Option<String>,
    },
    /// The history is being summarised.
    Compaction {
        id: PartId,
        /// True if it is automatic, not requested by the user.
        auto: bool,
        state: CompactionState,
    },
    /// The present activity of the session.
    Status(Status),
    /// A subagent's session is new, or its state has changed. Only sent if the editor shows such
    /// sessions.
    Subagent(Box<Subagent>),
    /// A message to the session from the one that delegated to it.
    SessionMessage {
        message: MessageId,
        sender: SessionId,
        text: String,
    },
    /// An event of a subagent's session. Only sent if the editor shows such sessions.
    InChildSession {
        session: SessionId,
        event: Box<Self>,
    },
}

impl Event {
    /// Returns whether the event is about something stored under an id, or about a choice. Such an
    /// event is sent after it is stored.
    pub fn is_stored(&self) -> bool {
        match self {
            // Streamed output is stored when its call ends.
            Self::Call(update) => update.progress.is_some(),
            Self::Plan(_)
            | Self::Mode(_)
            | Self::Info { .. }
            | Self::Compaction {
                state: CompactionState::Completed { .. },
                ..
            }
            | Self::Subagent(_)
            | Self::SessionMessage { .. } => true,
            _ => false,
        }
    }

    /// Appends the text of the following event if it continues the same part. Returns whether it
    /// did. Pieces are not merged beyond a limit, so that no line grows large.
    pub fn absorb(&mut self, next: &Self) -> bool {
        /// The maximum length of merged text, in bytes.
        const MAX_MERGED_BYTES: usize = 64 << 10;
        match (self, next) {
            (
                Self::Text { part, delta },
                Self::Text {
                    part: same,
                    delta: more,
                },
            )
            | (
                Self::Thought { part, delta },
                Self::Thought {
                    part: same,
                    delta: more,
                },
            ) if part == same && delta.len() + more.len() <= MAX_MERGED_BYTES => {
                delta.push_str(more);
                true
            }
            (
                Self::Compaction {
                    id,
                    state: CompactionState::Writing { delta, .. },
                    ..
                },
                Self::Compaction {
                    id: same,
                    state:
                        CompactionState::Writing {
                            delta: more,
                            is_restart: false,
                        },
                    ..
                },
            ) if id == same && delta.len() + more.len() <= MAX_MERGED_BYTES => {
                delta.push_str(more);
                true
            }
            (
                Self::InChildSession { session, event },
                Self::InChildSession {
                    session: same,
                    event: next,
                },
            ) if session == same => event.absorb(next),
            _ => false,
        }
    }
}

/// A piece of the user's prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum UserPiece {
    Text(String),
    File(File),
}

/// The importance of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Info,
    /// Something differs from the request.
    Warning,
    Error,
}

/// The progress of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum CompactionState {
    InProgress,
    /// A piece of the summary as it is written. It may still turn out that the summary is not used.
    Writing {
        delta: String,
        /// True if the piece begins another attempt: the text before it does not count.
        is_restart: bool,
    },
    /// The summary replaces the history.
    Completed {
        /// The tokens in the context before; 0 if unknown.
        before: u64,
        /// The tokens in the context after, estimated.
        after: u64,
        /// The text that replaces the history.
        summary: String,
    },
    /// It failed for this reason; the history is untouched.
    Failed(String),
    Cancelled,
}

/// The present activity of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    Busy,
    /// Waiting to repeat a failed request.
    Retrying {
        /// The number of the repetition; 1 for the first.
        attempt: u32,
        /// The maximum number of repetitions.
        limit: u32,
        /// The time of the next request.
        next: Timestamp,
        /// The time from the event until `next`.
        wait: Duration,
        /// The reason for the failure, for the user.
        cause: String,
        /// True if the attempt before failed for the same cause.
        is_repeated: bool,
    },
    Compacting,
    Idle,
}

/// The progress of a call, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Announced, possibly waiting for the user.
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
}

impl Progress {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// An update of a call. A field that is `None` has not changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallUpdate {
    /// The id of the call; `None` only in `default()`.
    pub call: Option<CallId>,
    pub tool: Option<String>,
    /// One line: "Read src/lib.rs:10-40".
    pub title: Option<String>,
    /// The kind of work.
    pub kind: Option<ToolKind>,
    pub progress: Option<Progress>,
    /// The arguments, an object.
    pub input: Option<Value>,
    /// The locations of the work; the editor should look at the last one.
    pub locations: Option<Vec<Location>>,
    pub changes: Option<Vec<Change>>,
    /// The whole output so far, as text for people.
    pub output: Option<String>,
    /// The whole output with its colours, for a terminal that got nothing of it.
    pub coloured: Option<String>,
    /// Bytes that a running program has just printed.
    pub stream: Option<String>,
    /// Images and other files of the output.
    pub attachments: Option<Vec<File>>,
    /// The end of the program that the call ran.
    pub exit: Option<ProgramExit>,
    /// The facts for the client, as of [`CallFacts::to_client_json`].
    pub metadata: Option<Map<String, Value>>,
    /// True if the call may belong to an earlier turn, which the editor has been shown.
    pub earlier: bool,
}

impl CallUpdate {
    pub fn of(call: &CallId) -> Self {
        Self {
            call: Some(call.clone()),
            ..Self::default()
        }
    }

    /// Converts the result of a call. A command that did not succeed has failed, however the model
    /// sees it.
    pub fn completed(call: &CallId, kind: ToolKind, done: &Completed) -> Self {
        // A call that only looks at a command has not failed with it.
        let exit = if kind == ToolKind::Execute {
            done.facts.exit.as_ref()
        } else {
            None
        };
        let succeeded = exit.is_none_or(|exit| exit.code == Some(0));
        let progress = if succeeded {
            Progress::Completed
        } else {
            Progress::Failed
        };
        let output = done.display.clone();
        Self {
            progress: Some(progress),
            output: Some(output.unwrap_or_else(|| done.output.to_string())),
            coloured: done.coloured.clone(),
            exit: exit.cloned(),
            metadata: Some(done.facts.to_client_json()).filter(|facts| !facts.is_empty()),
            attachments: (!done.attachments.is_empty()).then(|| done.attachments.clone()),
            changes: (!done.changes.is_empty()).then(|| done.changes.clone()),
            ..Self::of(call)
        }
    }
}

/// Converts the state and output of a call for people, both live and in a replay.
impl From<&Call> for CallUpdate {
    fn from(call: &Call) -> Self {
        let mut update = Self::of(&call.call);
        update.progress = Some(match &call.state {
            CallState::Pending => Progress::Pending,
            CallState::Running { .. } => Progress::Running,
            CallState::Completed(done) => return Self::completed(&call.call, call.kind, done),
            CallState::Failed {
                error,
                cause,
                coloured,
                facts,
            } => {
                update.output = Some(without_marks(error));
                update.coloured.clone_from(coloured);
                update.metadata = facts.link();
                let stopped = cause.is_interruption() || *cause == FailureCause::NotBegun;
                if stopped {
                    Progress::Cancelled
                } else {
                    Progress::Failed
                }
            }
        });
        update
    }
}

/// A slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInfo {
    pub name: String,
    pub description: String,
    /// A hint on its arguments, if it takes any.
    pub hint: Option<String>,
}

/// A file to be read through the editor, unsaved changes included.
#[derive(Debug)]
pub struct ReadFile {
    /// Absolute.
    pub path: PathBuf,
    /// The text, or the editor's reason for a refusal.
    pub reply: oneshot::Sender<Result<String, String>>,
}

/// A file to be written through the editor.
#[derive(Debug)]
pub struct WriteFile {
    /// Absolute.
    pub path: PathBuf,
    /// The whole new text of the file.
    pub text: String,
    /// The success, or the reason why the file was not written.
    pub reply: oneshot::Sender<Result<(), NotWritten>>,
}

/// The reason why an editor has not written a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotWritten {
    /// The editor does not have the file, cannot write, or has not answered; the file may be
    /// written without it.
    Unknown,
    /// The editor refuses, for this reason.
    Refused(String),
}

/// The facts that become known while a call runs. They are stored with it, however it ends.
#[derive(Debug, Clone, Default)]
pub struct LiveFacts(Arc<LiveFactsInner>);

/// The mutexes are leaf locks around values.
#[derive(Debug, Default)]
struct LiveFactsInner {
    all: Mutex<CallFacts>,
    printed: Mutex<Option<Arc<str>>>,
    changed: Notify,
}

impl LiveFacts {
    pub fn update(&self, change: impl FnOnce(&mut CallFacts)) {
        change(&mut lock(&self.0.all));
        self.0.changed.notify_one();
    }

    /// Stores the output so far, in case the call is interrupted.
    pub fn print(&self, printed: Arc<str>) {
        *lock(&self.0.printed) = Some(printed);
        self.0.changed.notify_one();
    }

    /// Returns the state of a running call with the known facts.
    pub fn running(&self) -> CallState {
        CallState::Running {
            facts: self.all(),
            printed: lock(&self.0.printed).clone(),
        }
    }

    /// Waits for a change since the last call.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    pub fn all(&self) -> CallFacts {
        lock(&self.0.all).clone()
    }
}

/// The sender of a turn's messages. Each part of the turn has a clone; the channel closes when the
/// last one is dropped.
#[derive(Debug, Clone)]
pub struct EventSender {
    messages: Sender<TurnMessage>,
}

impl EventSender {
    /// Creates a sender and the receiver of its messages.
    pub fn new() -> (Self, Receiver<TurnMessage>) {
        let (messages, receiver) = channel::channel(MAX_WAITING_MESSAGES);
        (Self { messages }, receiver)
    }

    /// Creates a sender with a capacity of one message, so that other tasks run between events.
    #[cfg(any(test, feature = "testing"))]
    pub fn narrow() -> (Self, Receiver<TurnMessage>) {
        let (messages, receiver) = channel::channel(1);
        (Self { messages }, receiver)
    }

    /// Sends an event; waits while the editor does not read. The event is dropped if the receiver
    /// is closed.
    pub async fn event(&self, event: Event) {
        self.messages.send(TurnMessage::Event(event)).await;
    }

    /// Sends any other message. Returns `false` if the receiver is closed.
    pub async fn send(&self, message: TurnMessage) -> bool {
        self.messages.send(message).await
    }
}
