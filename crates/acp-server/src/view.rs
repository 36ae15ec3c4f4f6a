//! [`SessionView`], the interface that each protocol version implements, and the
//! version-independent types that it shows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use protocol::rpc::{self, CallError, Peer};
use tokio::sync::oneshot;

use super::login::Account;
use super::meta::{HANDED_OVER, Meta, NOT_DONE, REJECTED, STRUCTURED, own};
use super::tool_call_view::RawText;
use base::id::{CallId, SessionId};
use base::text;
use events::{CallUpdate, Event, FormPage};
use session::handle::TurnResult;
use session::turn::TurnOutcome;

/// Encoded lines for the client, in order.
pub type UpdateLines = Vec<Vec<u8>>;

/// The id of a session's plan. A session has only one.
pub const PLAN: &str = "todos";

/// The words in the notice about the repetition of a request.
pub const RETRYING: &str = "Retrying in ";

/// The words in that notice in place of a cause that the notice before has named.
pub const SAME_ERROR: &str = "The same error.";

/// Describes the repetition of a request: the number of this one, and of the last one.
pub fn retrying(
    cause: &str,
    is_repeated: bool,
    wait: Duration,
    (attempt, limit): (u32, u32),
) -> String {
    let seconds = wait.as_millis().div_ceil(1000);
    let again = format!("{RETRYING}{seconds} s ({attempt}/{limit}).");
    let cause = if is_repeated { SAME_ERROR } else { cause };
    text::sentences([cause, &again])
}

/// A pending answer of the client. Dropping it withdraws the question.
pub type EditorAnswer<T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>;

/// A function that creates the view of a session.
pub type NewView = fn(&Peer, DisplayCapabilities) -> Box<dyn SessionView>;

/// A session as the client sees it in one protocol version. A view remembers what it has shown.
pub trait SessionView: Send {
    /// Encodes an event into lines.
    fn event(&mut self, session: &SessionId, event: &Event, out: &mut UpdateLines);

    /// Encodes the config options into lines.
    fn settings(&mut self, session: &SessionId, settings: Vec<Setting>, out: &mut UpdateLines);

    /// Encodes the stored keys and logins, which belong to no session.
    fn accounts(&self, known: Vec<Account>) -> Vec<u8>;

    /// Encodes the session's activity into lines. A version without such an update reports it in
    /// the response to the prompt.
    fn state(&mut self, _: &SessionId, _: &SessionActivity, _: &mut UpdateLines) {}

    /// Encodes the end of a replay of the session's history that the client has requested.
    fn replayed(&mut self, _: &SessionId, _: &mut UpdateLines) {}

    /// Sets a unique prefix for the ids of messages that are not part of the history. Versions that
    /// have another update for such messages need no prefix.
    fn name_asides(&mut self, _: String) {}

    fn ask(
        &mut self,
        session: &SessionId,
        asked: ChoiceRequest,
    ) -> EditorAnswer<Option<PickedAnswer>>;

    fn fill(&mut self, session: &SessionId, form: Form) -> EditorAnswer<FormAnswer>;

    /// Reads a file by a request to the client.
    fn read(&mut self, _: &SessionId, _: PathBuf) -> EditorAnswer<String> {
        no_such_call("reading files")
    }

    /// Writes a file by a request to the client.
    fn write(&mut self, _: &SessionId, _: PathBuf, _: String) -> EditorAnswer<()> {
        no_such_call("writing files")
    }
}

fn no_such_call<T: Send + 'static>(what: &str) -> EditorAnswer<T> {
    let error = rpc::Error::method_not_found(what);
    Box::pin(async move { Err(CallError::Refused(error)) })
}

/// The optional updates that the client can show.
#[derive(Debug, Clone, Copy, Default)]
pub struct DisplayCapabilities {
    pub terminals: bool,
    pub notices: bool,
    pub compaction: bool,
    pub subagents: bool,
    /// Boolean config options.
    pub switches: bool,
    /// Plans with an id.
    pub plans: bool,
    /// The text of raw outputs.
    pub raw_text: RawText,
}

/// The activity of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionActivity {
    Running,
    /// The turn cannot go on without the user.
    Waiting,
    /// No turn runs; contains the result of the last turn if it has just ended.
    Idle(Option<TurnResult>),
}

/// Returns adjutant's own `_meta` members for the result of a turn.
pub fn result_meta(result: &TurnResult) -> Option<Meta> {
    match &result.structured {
        Some(structured) => Some(own(STRUCTURED, structured.clone())),
        None if result.outcome == TurnOutcome::Rejected => Some(own(REJECTED, true.into())),
        None if result.outcome == TurnOutcome::NotDone => Some(own(NOT_DONE, true.into())),
        None => result.handed_over.then(|| own(HANDED_OVER, true.into())),
    }
}

/// A self-contained question with a few answers.
#[derive(Debug, Clone)]
pub struct ChoiceRequest {
    /// The tool call that the question is about, as the client shows it.
    pub show: CallUpdate,
    /// All information that the answer depends on, as Markdown.
    pub text: String,
    /// At most one answer of each kind, in the order of display.
    pub answers: Vec<AnswerOption>,
    /// Adjutant's own `_meta` members.
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
    /// Yes, only this time.
    Once,
    /// Yes, and the answer is stored.
    Always,
    No,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickedAnswer {
    /// The id of the answer, as the client sent it.
    pub id: String,
    /// A comment that the user added.
    pub words: Option<String>,
}

/// A form, or an address to be opened by the user.
#[derive(Debug)]
pub struct Form {
    /// The call that waits for the answers, if any.
    pub call: Option<CallId>,
    pub message: String,
    pub page: FormPage,
    /// Completes when the step that the address was opened for is done.
    pub finished: Option<oneshot::Receiver<()>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormAnswer {
    Filled(Filled),
    Declined,
    Cancelled,
}

/// The values of a form by key; a field may have several.
pub type Filled = BTreeMap<String, Vec<String>>;

/// A config option of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub id: &'static str,
    pub name: &'static str,
    pub description: Option<&'static str>,
    /// The category, if the protocol has one for this option.
    pub category: Option<Category>,
    pub value: SettingValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    Mode,
    Model,
    Effort,
}

/// The current value of an option, and the alternatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingValue {
    Switch(bool),
    List(String, Vec<Alternative>),
    Groups(String, Vec<Group>),
}

/// One of the possible values of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    /// The colour of an agent.
    pub color: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: String,
    pub name: String,
    pub values: Vec<Alternative>,
}
