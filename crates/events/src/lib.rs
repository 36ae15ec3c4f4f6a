//! What comes up from a session: events to be shown, questions to be answered. Messages up, calls
//! down — where a lower module would want to call a higher one, it sends one of these.
//!
//! The events are shaped like the next version of ACP (stable ids, entities that are updated,
//! whole file changes), and know nothing of ACP itself: `editor/update.rs` projects them.

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
use base::lock::locked;
pub use form::{
    FieldKind, FieldOption, FormField, FormPage, FormReply, FormRequest, ManyLimits, TextFormat, TextLimits,
};
pub use question::{
    Confirmation, PermissionReply, PermissionRequest, Question, QuestionOption, QuestionReply, QuestionRequest,
};
pub use sample::{Sample, SampleRequest};
pub use subagent::{
    SpawnSubagent, Subagent, SubagentEnd, SubagentInfo, SubagentReport, SubagentState, SubagentStop, SwitchAgent,
};
use transcript::{Call, CallFacts, CallState, Change, FailureCause, File, Todo};
pub use transcript::{Location, ProgramExit, ToolKind};

/// How many messages may wait for the editor. When it does not read, the session stops here.
pub const WAITING: usize = 64;

#[derive(Debug)]
pub enum TurnMessage {
    Event(Event),
    /// A question for the user.
    AskPermission(Box<PermissionRequest>),
    /// A file to be read through the editor.
    Read(ReadFile),
    /// A file to be written through the editor.
    Write(WriteFile),
    /// A question about the session.
    Confirm(Box<Confirmation>),
    AskQuestions(Box<QuestionRequest>),
    /// A page, or an address, of a server of the user's.
    AskForm(Box<FormRequest>),
}

/// What a running turn asks of its session. Answered there; the editor hears of it by events.
#[derive(Debug)]
pub enum SessionRequest {
    /// Let a subagent do something.
    Spawn(Box<SpawnSubagent>),
    /// Let another agent speak from the next step on.
    Switch(SwitchAgent),
    /// Ask the model something for somebody else.
    Sample(Box<SampleRequest>),
}

/// The way from a turn to its session.
pub type SessionRequestSender = mpsc::Sender<SessionRequest>;

/// Something to show. Live and replayed alike.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What the user said: only when a history is replayed.
    User {
        message: MessageId,
        piece: UserPiece,
    },
    /// The user's prompt is part of the conversation now, under this id.
    Prompted {
        message: MessageId,
    },
    /// More words of the model.
    Text {
        part: PartId,
        delta: String,
    },
    Thought {
        part: PartId,
        delta: String,
    },
    /// A call is new or has changed.
    Call(Box<CallUpdate>),
    Plan(Vec<Todo>),
    /// Another agent speaks from now on.
    Mode(String),
    /// A choice changed that the editor shows (mode, model, effort); it should be read again.
    Options,
    /// What `/words` there are, whole.
    Commands(Vec<CommandInfo>),
    /// The session's title, or when it was last used.
    Info {
        /// None leaves it as it is.
        title: Option<String>,
        /// When the session last changed.
        updated: Timestamp,
    },
    /// How full the context is, and what was spent.
    Usage {
        /// Tokens in the context now.
        used: u64,
        /// The window, in tokens.
        size: u64,
        /// US dollars so far, where the price is known.
        cost: Option<f64>,
    },
    /// Something the user should know that is no part of the conversation.
    Notice {
        severity: Severity,
        title: String,
        details: Option<String>,
    },
    /// The history is being summarised.
    Compaction {
        id: PartId,
        /// False when the user asked for it.
        auto: bool,
        state: CompactionState,
    },
    /// What the session is doing.
    Status(Status),
    /// A subagent's session is new, or does something else now. Only where the editor shows those.
    Subagent(Box<Subagent>),
    /// What the session was told by the one that delegated to it.
    Told {
        message: MessageId,
        sender: SessionId,
        text: String,
    },
    /// Something that happened in a subagent's session. Only where the editor shows those.
    Within {
        session: SessionId,
        event: Box<Self>,
    },
}

impl Event {
    /// Whether it tells of something that is kept under an id, or of a choice: it is told when that is safe.
    pub fn is_kept(&self) -> bool {
        match self {
            // What streams by is kept with the end of its call.
            Self::Call(update) => update.progress.is_some(),
            Self::Plan(_)
            | Self::Mode(_)
            | Self::Info { .. }
            | Self::Compaction { state: CompactionState::Completed { .. }, .. }
            | Self::Subagent(_)
            | Self::Told { .. } => true,
            _ => false,
        }
    }

    /// Takes over the words of an event that follows directly, where it goes on with the same part.
    /// Large pieces are left apart, so that no line grows large.
    pub fn absorb(&mut self, next: &Self) -> bool {
        const LARGE: usize = 64 << 10;
        match (self, next) {
            (Self::Text { part, delta }, Self::Text { part: same, delta: more })
            | (Self::Thought { part, delta }, Self::Thought { part: same, delta: more })
                if part == same && delta.len() + more.len() <= LARGE =>
            {
                delta.push_str(more);
                true
            }
            (Self::Within { session, event }, Self::Within { session: same, event: next }) if session == same => {
                event.absorb(next)
            }
            _ => false,
        }
    }
}

/// A piece of what the user said.
#[derive(Debug, Clone, PartialEq)]
pub enum UserPiece {
    Text(String),
    File(File),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Info,
    /// Something is not as asked for.
    Warning,
    Error,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CompactionState {
    InProgress,
    /// Done: tokens before and after, and the summary.
    Completed {
        before: u64,
        /// Tokens after, estimated.
        after: u64,
        /// What is kept in the place of the history.
        summary: String,
    },
    /// It failed; the history is untouched.
    Failed(String),
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    Busy,
    /// Waiting to repeat a failed request.
    Retrying {
        /// 1 for the first repetition.
        attempt: u32,
        /// How many there will be at most.
        limit: u32,
        /// When it will be sent, and how long that is from now.
        next: Timestamp,
        wait: Duration,
        cause: String,
    },
    Compacting,
    Idle,
}

/// How far a call is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Announced, perhaps waiting for the user.
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

/// News about one call. What is none has not changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallUpdate {
    /// Which call; empty only in `default()`.
    pub call: Option<CallId>,
    pub tool: Option<String>,
    /// What it does, one line: "Read src/lib.rs:10-40".
    pub title: Option<String>,
    /// What kind of work it is.
    pub kind: Option<ToolKind>,
    pub progress: Option<Progress>,
    /// The arguments, an object.
    pub input: Option<Value>,
    /// Where it works; the last one is where the editor should look.
    pub locations: Option<Vec<Location>>,
    pub changes: Option<Vec<Change>>,
    /// What came out so far, whole, as text for people.
    pub output: Option<String>,
    /// Bytes a running program has just printed.
    pub stream: Option<String>,
    /// Images and the like that came out.
    pub attachments: Option<Vec<File>>,
    pub exit: Option<ProgramExit>,
    pub metadata: Option<Map<String, Value>>,
    /// The call may be one of an earlier turn, which the editor has been shown.
    pub earlier: bool,
}

impl CallUpdate {
    pub fn of(call: &CallId) -> Self {
        Self { call: Some(call.clone()), ..Self::default() }
    }
}

/// How far a call is, and what came of it, for people: while it happens and when it is shown again. A
/// command that did not succeed has failed, whatever the model makes of it.
impl From<&Call> for CallUpdate {
    fn from(call: &Call) -> Self {
        let mut update = Self::of(&call.call);
        update.progress = Some(match &call.state {
            CallState::Pending => Progress::Pending,
            CallState::Running { .. } => Progress::Running,
            CallState::Completed(done) => {
                update.output = Some(done.display.clone().unwrap_or_else(|| done.output.to_string()));
                // What looks at a command that runs elsewhere has not failed with it.
                update.exit = done.facts.exit.clone().filter(|_| call.kind == ToolKind::Execute);
                update.metadata = Some(done.facts.to_json()).filter(|facts| !facts.is_empty());
                update.attachments = (!done.attachments.is_empty()).then(|| done.attachments.clone());
                update.changes = (!done.changes.is_empty()).then(|| done.changes.clone());
                let succeeded = update.exit.as_ref().is_none_or(|exit| exit.code == Some(0));
                if succeeded { Progress::Completed } else { Progress::Failed }
            }
            CallState::Failed { error, cause, .. } => {
                update.output = Some(error.clone());
                let stopped = cause.is_interruption() || *cause == FailureCause::NotBegun;
                if stopped { Progress::Cancelled } else { Progress::Failed }
            }
        });
        update
    }
}

/// A `/word` the user can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInfo {
    pub name: String,
    pub description: String,
    /// What may follow it, if anything.
    pub hint: Option<String>,
}

/// A file to be read through the editor, with what is unsaved in it.
#[derive(Debug)]
pub struct ReadFile {
    /// Absolute.
    pub path: PathBuf,
    /// The text, or why the editor will not give it.
    pub reply: oneshot::Sender<Result<String, String>>,
}

/// A file to be written through the editor.
#[derive(Debug)]
pub struct WriteFile {
    /// Absolute.
    pub path: PathBuf,
    pub text: String,
    pub reply: oneshot::Sender<Result<(), NotWritten>>,
}

/// Why an editor has not written a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotWritten {
    /// It has no such file, does not write at all, or has not answered: it may be written past it.
    Unknown,
    /// It will not, for this reason.
    Refused(String),
}

/// What becomes known of a call while it runs, and is kept with it whatever becomes of it.
#[derive(Debug, Clone, Default)]
pub struct LiveFacts(Arc<LiveFactsInner>);

/// Std mutexes: leaves around values.
#[derive(Debug, Default)]
struct LiveFactsInner {
    all: Mutex<CallFacts>,
    printed: Mutex<Option<Arc<str>>>,
    news: Notify,
}

impl LiveFacts {
    pub fn note(&self, change: impl FnOnce(&mut CallFacts)) {
        change(&mut locked(&self.0.all));
        self.0.news.notify_one();
    }

    /// Has what the call has printed so far kept, for whoever finds it cut off.
    pub fn print(&self, printed: Arc<str>) {
        *locked(&self.0.printed) = Some(printed);
        self.0.news.notify_one();
    }

    /// The state of a call that runs, with what is known of it.
    pub fn running(&self) -> CallState {
        CallState::Running { facts: self.all(), printed: locked(&self.0.printed).clone() }
    }

    /// Waits until something was noted that nobody has heard of.
    pub async fn news(&self) {
        self.0.news.notified().await;
    }

    pub fn all(&self) -> CallFacts {
        locked(&self.0.all).clone()
    }
}

/// The way up. Cloned for everyone who has something to say; the turn's channel closes when the
/// last clone is gone.
#[derive(Debug, Clone)]
pub struct Outlet {
    up: Sender<TurnMessage>,
}

impl Outlet {
    /// An outlet and the end where things arrive.
    pub fn new() -> (Self, Receiver<TurnMessage>) {
        let (up, arrives) = channel::channel(WAITING);
        (Self { up }, arrives)
    }

    /// One that lets a message wait for the next: every event is a moment at which others are heard.
    #[cfg(any(test, feature = "testing"))]
    pub fn narrow() -> (Self, Receiver<TurnMessage>) {
        let (up, arrives) = channel::channel(1);
        (Self { up }, arrives)
    }

    /// Sends an event up; waits while the editor does not read. When nobody listens any more the
    /// event has no one to go to, and is dropped.
    pub async fn event(&self, event: Event) {
        self.up.send(TurnMessage::Event(event)).await;
    }

    /// Sends anything else up. False when nobody listens any more.
    pub async fn send(&self, up: TurnMessage) -> bool {
        self.up.send(up).await
    }
}
