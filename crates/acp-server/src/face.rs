//! What a version of the protocol has to be able to say, and the nouns in which it is told: the core of
//! the door speaks to a [`SessionView`] and knows of no version.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;

use protocol::rpc::{self, CallError, Peer};
use serde_json::Value;
use tokio::sync::oneshot;

use super::meta::{HANDED_OVER, Meta, REJECTED, STRUCTURED, own};
use base::id::{CallId, SessionId};
use events::{CallUpdate, Event, FormPage};
use session::turn::Outcome;

/// Lines for the editor, in order.
pub type UpdateLines = Vec<Vec<u8>>;

/// The id of a session's plan, of which there is one.
pub const PLAN: &str = "todos";

/// An answer of the editor's on its way. Dropped before it came, the question is withdrawn.
pub type EditorAnswer<T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>;

/// Makes the view of a session that begins now.
pub type NewView = fn(&Peer, DisplayCapabilities) -> Box<dyn SessionView>;

/// What the editor is shown of a session, in one version of the protocol. It remembers what it has shown.
pub trait SessionView: Send {
    /// The lines that show an event.
    fn event(&mut self, session: &SessionId, event: &Event, out: &mut UpdateLines);

    /// The lines that show what can be chosen.
    fn settings(&mut self, session: &SessionId, settings: Vec<Setting>, out: &mut UpdateLines);

    /// The lines that show what a session does. Versions without a word for it say it with the answer to a
    /// prompt.
    fn state(&mut self, _: &SessionId, _: &SessionActivity, _: &mut UpdateLines) {}

    /// What the ids begin with of messages that belong to no part of the history; no other view has the same.
    /// Versions that have something else for what such messages say need no ids for them.
    fn name_asides(&mut self, _: String) {}

    fn ask(&mut self, session: &SessionId, asked: ChoiceRequest) -> EditorAnswer<Option<PickedAnswer>>;

    fn fill(&mut self, session: &SessionId, form: Form) -> EditorAnswer<FormAnswer>;

    /// Reads a file through the editor.
    fn read(&mut self, _: &SessionId, _: PathBuf) -> EditorAnswer<String> {
        no_such_call("reading files")
    }

    /// Writes a file through the editor.
    fn write(&mut self, _: &SessionId, _: PathBuf, _: String) -> EditorAnswer<()> {
        no_such_call("writing files")
    }
}

fn no_such_call<T: Send + 'static>(what: &str) -> EditorAnswer<T> {
    let error = rpc::Error::method_not_found(what);
    Box::pin(async move { Err(CallError::Refused(error)) })
}

/// What the editor can show beyond the basics.
#[derive(Debug, Clone, Copy, Default)]
pub struct DisplayCapabilities {
    pub terminals: bool,
    pub notices: bool,
    pub compaction: bool,
    pub subagents: bool,
    /// Options that are on or off.
    pub switches: bool,
    /// Plans with an id, which are told of as one.
    pub plans: bool,
}

/// What a session does, for the user.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionActivity {
    Running,
    /// All its work waits for the user.
    Waiting,
    /// Nothing runs; how the last turn ended, where one has just ended.
    Idle(Option<TurnResult>),
}

/// How a turn ended, and what comes with that.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnResult {
    pub outcome: Outcome,
    /// The result in the shape that was asked for.
    pub structured: Option<Value>,
    /// The server is about to stop: the turn goes on where the prompt is sent again under its idempotency key.
    pub handed_over: bool,
}

impl TurnResult {
    /// What of ours is told with it.
    pub fn meta(&self) -> Option<Meta> {
        match &self.structured {
            Some(result) => Some(own(STRUCTURED, result.clone())),
            None if self.outcome == Outcome::Rejected => Some(own(REJECTED, true.into())),
            None => self.handed_over.then(|| own(HANDED_OVER, true.into())),
        }
    }
}

impl From<Outcome> for TurnResult {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, structured: None, handed_over: false }
    }
}

/// A question with a few answers, complete in itself.
#[derive(Debug, Clone)]
pub struct ChoiceRequest {
    /// The call it is about, as it is to be shown.
    pub show: CallUpdate,
    /// All that the answer depends on, as Markdown.
    pub text: String,
    /// One per kind, in the order to be shown.
    pub answers: Vec<AnswerOption>,
    /// What of ours is told with it.
    pub meta: Option<Meta>,
}

#[derive(Debug, Clone)]
pub struct AnswerOption {
    pub id: &'static str,
    pub name: String,
    pub kind: AnswerKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// Yes, this once.
    Once,
    /// Yes, and it is kept.
    Always,
    No,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickedAnswer {
    /// The answer's id, as it came back.
    pub id: String,
    /// What they said beside it.
    pub words: Option<String>,
}

/// Questions on one page, or an address that somebody is to visit.
#[derive(Debug)]
pub struct Form {
    /// The call that waits for the answers, if one does.
    pub call: Option<CallId>,
    pub message: String,
    pub page: FormPage,
    /// Says that what an address was opened for is done.
    pub finished: Option<oneshot::Receiver<()>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormAnswer {
    Filled(Filled),
    Declined,
    Cancelled,
}

/// What was put in, by key: words, or several of them.
pub type Filled = BTreeMap<String, Vec<String>>;

/// Something that can be chosen in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub id: &'static str,
    pub name: &'static str,
    pub description: Option<&'static str>,
    /// What it is about, where that has a name of its own.
    pub category: Option<Category>,
    pub value: SettingValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    Mode,
    Model,
    Effort,
}

/// What a setting is now, and could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingValue {
    Switch(bool),
    List(String, Vec<Alternative>),
    Groups(String, Vec<Group>),
}

/// One of the values a setting could have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: String,
    pub name: String,
    pub values: Vec<Alternative>,
}
