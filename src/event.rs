//! What comes up from a session: events to be shown, questions to be answered. Messages up, calls
//! down — where a lower module would want to call a higher one, it sends one of these.
//!
//! The events are shaped like the next version of ACP (stable ids, entities that are updated,
//! whole file changes), and know nothing of ACP itself: `editor/update.rs` projects them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::channel::{self, Receiver, Sender};
use crate::environment::Timestamp;
use crate::id::{CallId, MessageId, PartId, SessionId};
use crate::message::{Change, File, ModelRef, Todo};
pub use crate::message::{Kind, Location};
use crate::permission::{Denial, Rules};

/// How many messages may wait for the editor. When it does not read, the session stops here.
pub const WAITING: usize = 64;

/// Everything that comes up.
#[derive(Debug)]
pub enum Up {
    /// Something to show.
    Event(Event),
    /// A question for the user.
    Ask(Box<Ask>),
    /// A file to be read through the editor.
    Read(ReadFile),
    /// A file to be written through the editor.
    Write(WriteFile),
    /// A question about the session.
    Choose(Box<Choose>),
    /// Questions of the model's.
    Inquire(Box<Inquiry>),
}

/// What a running turn asks of its session. Answered there; the editor hears of it by events.
#[derive(Debug)]
pub enum Errand {
    /// Let a subagent do something.
    Spawn(Box<Spawn>),
    /// Let another agent speak from the next step on.
    Switch(Switch),
}

/// The way from a turn to its session.
pub type Errands = mpsc::Sender<Errand>;

/// Something to show. Live and replayed alike.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What the user said: only when a history is replayed.
    User {
        /// The user message.
        message: MessageId,
        /// A piece of it.
        piece: UserPiece,
    },
    /// More words of the model.
    Text {
        /// Which text.
        part: PartId,
        /// What to append.
        delta: String,
    },
    /// More of its reasoning.
    Thought {
        /// Which reasoning.
        part: PartId,
        /// What to append.
        delta: String,
    },
    /// A call is new or has changed.
    Call(Box<CallUpdate>),
    /// The plan, whole.
    Plan(Vec<Todo>),
    /// Another agent speaks from now on.
    Mode(String),
    /// A choice changed that the editor shows (mode, model, effort); it should be read again.
    Options,
    /// What `/words` there are, whole.
    Commands(Vec<Command>),
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
        /// How serious.
        severity: Severity,
        /// One line.
        title: String,
        /// More.
        details: Option<String>,
    },
    /// The history is being summarised.
    Compaction {
        /// Which compaction.
        id: PartId,
        /// False when the user asked for it.
        auto: bool,
        /// How far.
        state: Compaction,
    },
    /// What the session is doing.
    Status(Status),
    /// A subagent's session is new, or does something else now. Only where the editor shows those.
    Subagent(Box<Subagent>),
    /// What the session was told by the one that delegated to it.
    Told {
        /// The message.
        message: MessageId,
        /// Who said so.
        sender: SessionId,
        /// The words.
        text: String,
    },
    /// Something that happened in a subagent's session. Only where the editor shows those.
    Within {
        /// The subagent's session.
        session: SessionId,
        /// What happened there.
        event: Box<Self>,
    },
}

/// A subagent's session, as far as it is news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subagent {
    /// The session.
    pub session: SessionId,
    /// The call that set it to work.
    pub call: CallId,
    /// What it is for: none says nothing new.
    pub about: Option<About>,
    /// What it does: none says nothing new, or that nobody knows.
    pub state: Option<Activity>,
}

/// What a subagent's session does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// It works.
    Working,
    /// All its work waits for the user.
    Waiting,
    /// It works no more.
    Over(Stop),
}

/// What a subagent's session is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its work, in a few words.
    pub title: String,
    /// Who does it, and what they are good for.
    pub agent: String,
    /// The user may stop it. Nobody can stop what is only told of.
    pub stoppable: bool,
}

/// How a session stopped working.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It was done.
    Done,
    /// The user stopped it.
    Cancelled,
    /// The model refused.
    Refused,
    /// The answer hit its limit.
    MaxTokens,
    /// It reached its limit of steps.
    StepLimit,
    /// It could not go on, for this reason: a sentence.
    Failed(String),
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
            | Self::Compaction { state: Compaction::Completed { .. }, .. }
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
    /// Words.
    Text(String),
    /// Something attached.
    File(File),
}

/// How serious a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something is not as asked for.
    Warning,
    /// Something failed.
    Error,
}

/// How far a compaction is.
#[derive(Debug, Clone, PartialEq)]
pub enum Compaction {
    /// Running.
    InProgress,
    /// Done: tokens before and after, and the summary.
    Completed {
        /// Tokens before.
        before: u64,
        /// Tokens after, estimated.
        after: u64,
        /// What is kept in the place of the history.
        summary: String,
    },
    /// It failed; the history is untouched.
    Failed(String),
    /// The user stopped it.
    Cancelled,
}

/// What a session is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// A turn runs.
    Busy,
    /// Waiting to repeat a failed request.
    Retrying {
        /// 1 for the first repetition.
        attempt: u32,
        /// How many there will be at most.
        limit: u32,
        /// When it will be sent, and how long that is from now.
        next: Timestamp,
        /// See `next`.
        wait: Duration,
        /// Why, for a person.
        cause: String,
    },
    /// Summarising its history.
    Compacting,
    /// Nothing runs.
    Idle,
}

/// How far a call is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Announced, perhaps waiting for the user.
    Pending,
    /// Acting.
    Running,
    /// Done.
    Completed,
    /// Failed, refused, interrupted.
    Failed,
}

/// News about one call. What is none has not changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallUpdate {
    /// Which call; empty only in `default()`.
    pub call: Option<CallId>,
    /// The tool's name.
    pub tool: Option<String>,
    /// What it does, one line: "Read src/lib.rs:10-40".
    pub title: Option<String>,
    /// What kind of work it is.
    pub kind: Option<Kind>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// The arguments, an object.
    pub input: Option<Value>,
    /// Where it works; the last one is where the editor should look.
    pub locations: Option<Vec<Location>>,
    /// The files it changes.
    pub changes: Option<Vec<Change>>,
    /// What came out so far, whole, as text for people.
    pub output: Option<String>,
    /// Bytes a running program has just printed.
    pub stream: Option<String>,
    /// Images and the like that came out.
    pub attachments: Option<Vec<File>>,
    /// How a program ended.
    pub exit: Option<Exit>,
    /// Structured facts about the result.
    pub metadata: Option<Map<String, Value>>,
    /// The call may be one of an earlier turn, which the editor has been shown.
    pub earlier: bool,
}

impl CallUpdate {
    /// News about `call`.
    pub fn of(call: &CallId) -> Self {
        Self { call: Some(call.clone()), ..Self::default() }
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// A `/word` the user can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Without the slash.
    pub name: String,
    /// One line.
    pub description: String,
    /// What may follow it, if anything.
    pub hint: Option<String>,
}

/// A question for the user: may this call go on?
#[derive(Debug)]
pub struct Ask {
    /// The call that is waiting.
    pub call: CallId,
    /// What it wants to do, as the editor should show it.
    pub show: CallUpdate,
    /// What is asked for, one sentence for a person.
    pub reason: String,
    /// What "always" would store, shown word for word; none: do not offer it.
    pub always: Option<String>,
    /// Who asks, when it is a subagent.
    pub agent: Option<String>,
    /// In which session the editor shows the call, where it is not the user's own.
    pub session: Option<SessionId>,
    /// Where the answer goes. Dropping it is a rejection; dropping the receiver withdraws the
    /// question.
    pub reply: oneshot::Sender<Answer>,
}

/// What the user said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This time.
    Once,
    /// And from now on, as far as was shown.
    Always,
    /// No.
    No(Denial),
}

/// A question for the user that is about no call of the model's: yes, no, or no answer at all.
#[derive(Debug)]
pub struct Choose {
    /// What the editor shows the question as; it has been announced.
    pub call: CallId,
    /// One line.
    pub title: String,
    /// The facts of it, an object.
    pub facts: Value,
    /// All that the answer depends on.
    pub text: String,
    /// What the two answers are called. Yes is kept, so it is never an answer for "this once".
    pub yes: &'static str,
    /// The same for no.
    pub no: &'static str,
    /// Where the answer goes. Dropping it means that there was none; dropping the receiver withdraws
    /// the question.
    pub reply: oneshot::Sender<bool>,
}

/// Questions that the model has for the user.
#[derive(Debug)]
pub struct Inquiry {
    /// The call that waits for the answers.
    pub call: CallId,
    /// In order.
    pub questions: Vec<Question>,
    /// Where the answers go. Dropping it means that there is no way to show them; dropping the receiver
    /// withdraws them.
    pub reply: oneshot::Sender<Said>,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What it is about, a few words.
    pub header: String,
    /// The question.
    pub text: String,
    /// Answers to choose from, if any. The user may always answer in other words.
    pub options: Vec<Offer>,
    /// Several may be chosen.
    pub multiple: bool,
}

/// An answer to choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// A few words; no other option has the same.
    pub label: String,
    /// What follows from it; may be empty.
    pub description: String,
}

/// What the user said to questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// To each of them: labels, words of their own, or nothing.
    Answers(Vec<Vec<String>>),
    /// Nothing: they do not want to be asked.
    Dismissed,
    /// They did not see them: their editor cannot show them.
    Unshown,
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
    /// The whole text.
    pub text: String,
    /// Done, or why the editor will not do it.
    pub reply: oneshot::Sender<Result<(), String>>,
}

/// What becomes known of a call while it runs, and is kept with it whatever becomes of it.
#[derive(Debug, Clone, Default)]
pub struct Facts(Arc<Noted>);

/// A std mutex: a leaf around a map.
#[derive(Debug, Default)]
struct Noted {
    all: Mutex<Map<String, Value>>,
    news: Notify,
}

impl Facts {
    /// The key of the subagent's calls that the user was asked about: their ids.
    pub const ASKED: &str = "asked";

    /// Notes a fact.
    pub fn note(&self, key: &str, fact: Value) {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), fact);
        self.0.news.notify_one();
    }

    /// Waits until something was noted that nobody has heard of.
    pub async fn news(&self) {
        self.0.news.notified().await;
    }

    /// All of them.
    pub fn all(&self) -> Map<String, Value> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Work for a subagent.
#[derive(Debug)]
pub struct Spawn {
    /// The call that waits for the result.
    pub call: CallId,
    /// What becomes known of it.
    pub facts: Facts,
    /// The subagent's name.
    pub agent: String,
    /// A few words for people.
    pub description: String,
    /// What it is to do.
    pub prompt: String,
    /// What was attached.
    pub files: Vec<File>,
    /// The model it is to use, before the agent's own.
    pub wanted: Option<ModelRef>,
    /// An earlier child session to go on with.
    pub resume: Option<SessionId>,
    /// The model, for agents that name none.
    pub model: ModelRef,
    /// The rules of whoever delegates: what they deny, the subagent may not do either.
    pub rules: Rules,
    /// What became of it, or why it could not begin.
    pub reply: oneshot::Sender<Result<Report, String>>,
}

/// What a subagent came back with.
#[derive(Debug, Clone)]
pub struct Report {
    /// The child session.
    pub session: SessionId,
    /// Who was asked.
    pub model: ModelRef,
    /// Its last words; may be empty.
    pub text: String,
    /// Its calls, one line each, as far as they are shown.
    pub calls: String,
    /// How its turn ended.
    pub end: ReportEnd,
}

/// How a subagent's turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportEnd {
    /// It was done.
    Done,
    /// The user rejected a call of it, named here.
    Rejected(String),
    /// The user cancelled the turn that waits for it.
    Cancelled,
    /// It could not go on, for this reason: a sentence.
    Failed(String),
}

/// Another agent is to speak.
#[derive(Debug)]
pub struct Switch {
    /// `plan`, or `build`, which stands for the default agent where there is none of that name.
    pub agent: String,
    /// Who it will be; none where it cannot be changed.
    pub reply: oneshot::Sender<Option<String>>,
}

/// The way up. Cloned for everyone who has something to say; the turn's channel closes when the
/// last clone is gone.
#[derive(Debug, Clone)]
pub struct Outlet {
    up: Sender<Up>,
}

impl Outlet {
    /// An outlet and the end where things arrive.
    pub fn new() -> (Self, Receiver<Up>) {
        let (up, arrives) = channel::channel(WAITING);
        (Self { up }, arrives)
    }

    /// One that lets a message wait for the next: every event is a moment at which others are heard.
    #[cfg(test)]
    pub(crate) fn narrow() -> (Self, Receiver<Up>) {
        let (up, arrives) = channel::channel(1);
        (Self { up }, arrives)
    }

    /// Sends an event up; waits while the editor does not read. When nobody listens any more the
    /// event has no one to go to, and is dropped.
    pub async fn event(&self, event: Event) {
        self.up.send(Up::Event(event)).await;
    }

    /// Sends anything else up. False when nobody listens any more.
    pub async fn send(&self, up: Up) -> bool {
        self.up.send(up).await
    }
}
