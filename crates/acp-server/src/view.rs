//! [`SessionView`], the interface through which each protocol version encodes a session for its
//! client, and the types that it takes, which do not depend on the version. A view is stateful: an
//! update may depend on what the client was sent before.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::rpc::{self, CallError, Peer};
use tokio::sync::oneshot;

use super::account_reports::Account;
use super::meta::{HANDED_OVER, Meta, NOT_DONE, REJECTED, STRUCTURED, with_member};
use super::tool_call_view::{RawText, ShownTerminals};
use base::id::{CallId, SessionId};
use base::text;
use events::{CallUpdate, Event, FormPage};
use session::handle::TurnResult;
use session::turn::TurnOutcome;

/// Encoded JSON-RPC notifications for the client, in order, each without its line end.
pub type UpdateLines = Vec<Vec<u8>>;

/// The id of a session's only plan.
pub const PLAN_ID: &str = "todos";

/// The start of the sentence that announces a retry.
const RETRY_PREFIX: &str = "Retrying in ";

/// Replaces the cause in a retry notice if the previous notice had the same one.
const SAME_ERROR_TEXT: &str = "The same error.";

/// Returns the text of a retry notice: the cause, the wait rounded up to whole seconds, and the
/// number of this retry out of the maximum.
pub fn retry_notice(
    cause: &str,
    is_repeated: bool,
    wait: Duration,
    retry: u32,
    max_retries: u32,
) -> String {
    let seconds = wait.as_millis().div_ceil(1000);
    let announcement = format!("{RETRY_PREFIX}{seconds} s ({retry}/{max_retries}).");
    let cause = if is_repeated { SAME_ERROR_TEXT } else { cause };
    text::sentences([cause, &announcement])
}

/// Reads a retry notice: the wait, and the cause unless the previous notice had the same one.
/// `None` if the text is another notice.
pub fn parse_retry_notice(notice: &str) -> Option<(Duration, Option<&str>)> {
    let (cause, announcement) = notice.rsplit_once(RETRY_PREFIX)?;
    let (seconds, _) = announcement.split_once(" s (")?;
    let wait = Duration::from_secs(seconds.parse().ok()?);
    let cause = cause.trim_end();
    Some((wait, (cause != SAME_ERROR_TEXT).then_some(cause)))
}

/// The client's reply to one of our requests, as a future. Dropping it withdraws the request.
pub type ClientReply<T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>;

/// A function that creates the view of a session.
pub type ViewConstructor = fn(&Peer, DisplayCapabilities) -> Box<dyn SessionView>;

/// A session as the client sees it in one protocol version. A view remembers what it has shown.
pub trait SessionView: Send {
    /// Encodes an event into lines.
    fn encode_event(&mut self, session: &SessionId, event: &Event, out: &mut UpdateLines);

    /// Encodes the config options into lines.
    fn encode_config_options(
        &mut self,
        session: &SessionId,
        config_options: Vec<ConfigOption>,
        out: &mut UpdateLines,
    );

    /// Encodes an `auth/status_update` notification with the stored keys and logins, as one line
    /// without its line end.
    fn encode_auth_status(&self, accounts: Vec<Account>) -> Vec<u8>;

    /// Encodes the session's activity into lines. Version 1 has no such update: it reports the end
    /// of a turn in the response to the prompt.
    fn encode_activity(&mut self, _: &SessionId, _: &SessionActivity, _: &mut UpdateLines) {}

    /// Encodes the notification that a requested replay of the history is complete. Version 1 has
    /// none.
    fn encode_replay_end(&mut self, _: &SessionId, _: &mut UpdateLines) {}

    /// Sets a unique prefix for the ids of out-of-turn messages, which are not part of the history.
    /// Version 2 has an update of its own for them and needs none.
    fn set_out_of_turn_prefix(&mut self, _: String) {}

    /// Sets the record of the terminals that the client shows, which all views of a session on one
    /// connection share. In version 2 any update creates a terminal, so none is needed.
    fn set_shown_terminals(&mut self, _: Arc<ShownTerminals>) {}

    /// Asks the user through the client. The reply is `None` if the client cancels the question.
    fn request_permission(
        &mut self,
        session: &SessionId,
        request: ChoiceRequest,
    ) -> ClientReply<Option<PickedAnswer>>;

    /// Asks the user to fill in a form or to open a URL.
    fn request_form(&mut self, session: &SessionId, form: Form) -> ClientReply<FormAnswer>;

    /// Reads a file by a request to the client. Fails with `method_not_found` if the version has no
    /// such request.
    fn read_file(&mut self, _: &SessionId, _: PathBuf) -> ClientReply<String> {
        unsupported("fs/read_text_file")
    }

    /// Writes a file by a request to the client. Fails with `method_not_found` if the version has
    /// no such request.
    fn write_file(&mut self, _: &SessionId, _: PathBuf, _: String) -> ClientReply<()> {
        unsupported("fs/write_text_file")
    }
}

fn unsupported<T: Send + 'static>(method: &str) -> ClientReply<T> {
    let error = rpc::Error::method_not_found(method);
    Box::pin(async move { Err(CallError::Refused(error)) })
}

/// The optional parts of the protocol that the client can display.
#[derive(Debug, Clone, Copy, Default)]
pub struct DisplayCapabilities {
    /// Terminals in tool calls.
    pub terminals: bool,
    /// Notices outside the conversation.
    pub notices: bool,
    /// The progress of a compaction.
    pub compaction: bool,
    /// The sessions of subagents, as sessions.
    pub subagents: bool,
    /// Boolean config options.
    pub boolean_options: bool,
    /// Plans with an id.
    pub plans: bool,
    /// The text of raw outputs.
    pub raw_text: RawText,
}

/// The activity of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum SessionActivity {
    Running,
    /// The turn cannot continue without the user.
    Waiting,
    /// No turn is running. Holds the result of the last turn if that turn has just ended.
    Idle(Option<EndedTurn>),
}

/// A turn that has ended, as both protocol versions encode it. It adds to the session's result that
/// the server is about to stop, which a session does not know.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedTurn {
    pub result: TurnResult,
    /// The server is about to stop: the turn continues on the server that receives the prompt again
    /// under its idempotency key.
    pub is_handed_over: bool,
}

impl EndedTurn {
    /// Returns the `_meta` of its result: the structured result, otherwise the first flag that
    /// applies (rejected, not done, handed over).
    pub fn meta(&self) -> Option<Meta> {
        if let Some(structured) = &self.result.structured {
            return Some(with_member(STRUCTURED, structured.clone()));
        }
        let flag = match self.result.outcome {
            TurnOutcome::Rejected => REJECTED,
            TurnOutcome::NotDone => NOT_DONE,
            _ if self.is_handed_over => HANDED_OVER,
            _ => return None,
        };
        Some(with_member(flag, true.into()))
    }
}

/// A self-contained question with a few answers.
#[derive(Debug, Clone)]
pub struct ChoiceRequest {
    /// The tool call that the question is about, as the client shows it.
    pub call: CallUpdate,
    /// All information that the answer depends on, as Markdown.
    pub text: String,
    /// The answers, in the order of display; several may have the same kind.
    pub answers: Vec<AnswerOption>,
    /// Adjutant's own `_meta` members.
    pub meta: Option<Meta>,
}

/// One of the answers to choose from.
#[derive(Debug, Clone)]
pub struct AnswerOption {
    pub id: &'static str,
    /// The text of the button.
    pub label: String,
    pub kind: AnswerKind,
}

/// The kind of an answer in ACP, which decides how the client displays it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// ACP's `allow_once`: a permission for this time, or any choice that is not stored.
    AllowOnce,
    /// ACP's `allow_always`: the choice is stored.
    AllowAlways,
    /// ACP's `reject_once`.
    Reject,
}

/// The answer that the user picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickedAnswer {
    /// The id of the answer, as the client sent it. It may be one that was not offered.
    pub id: String,
    /// A comment that the user added.
    pub comment: Option<String>,
}

/// A request to the user: a form to fill in, or a URL to open.
#[derive(Debug)]
pub struct Form {
    /// The tool call that waits for the answer, if there is one.
    pub call: Option<CallId>,
    /// The text above the fields or the URL.
    pub message: String,
    pub page: FormPage,
    /// Completes when the step that the URL was opened for, such as a login, is done. `None` for
    /// other forms.
    pub finished: Option<oneshot::Receiver<()>>,
}

/// The user's reaction to a [`Form`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormAnswer {
    Submitted(FormValues),
    Declined,
    Cancelled,
}

/// The values that the user entered, by the key of the field; a multiple choice has several.
pub type FormValues = BTreeMap<String, Vec<String>>;

/// A config option of a session: a choice that the editor shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOption {
    pub id: &'static str,
    pub name: &'static str,
    pub description: Option<&'static str>,
    /// The category, if the protocol has one for this option.
    pub category: Option<ConfigOptionCategory>,
    pub value: ConfigOptionState,
}

/// ACP's category of a config option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigOptionCategory {
    Mode,
    Model,
    Effort,
}

/// The kind of an option, with its current value and the values to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOptionState {
    /// An option that is on (`true`) or off.
    Switch(bool),
    Select {
        /// The id of the current value.
        current: String,
        values: Vec<ConfigOptionValue>,
    },
    /// A choice from many values, in groups with headings.
    GroupedSelect {
        /// The id of the current value.
        current: String,
        groups: Vec<ConfigOptionGroup>,
    },
}

/// One of the possible values of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOptionValue {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    /// The agent's colour, if the value is a mode: `#RRGGBB` or a name.
    pub color: Option<String>,
}

/// Values under a common heading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOptionGroup {
    pub id: String,
    pub name: String,
    pub values: Vec<ConfigOptionValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_notice_is_parsed_as_it_was_written() {
        let wait = Duration::from_millis(2_100);
        let read = Duration::from_secs(3);
        let cause = "Acme answered 529: Retrying in 9 s (1/2) may help.";
        let first = retry_notice(cause, false, wait, 1, 5);
        assert_eq!(parse_retry_notice(&first), Some((read, Some(cause))));
        let next = retry_notice(cause, true, wait, 2, 5);
        assert_eq!(parse_retry_notice(&next), Some((read, None)));
        for other in ["", "The context is full.", "Retrying in a moment."] {
            assert_eq!(parse_retry_notice(other), None, "{other}");
        }
    }
}
