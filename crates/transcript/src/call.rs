//! Tool calls: the request, its progress and the facts known about it.
//!
//! Facts that affect behaviour are typed here. They are stored as in the first version, in one JSON
//! object together with details that only the client reads. [`CallFacts`] is that object, so that
//! old stores remain readable.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::change::Change;
use super::{File, ModelRef};
use base::environment::Timestamp;
use base::id::{CallId, SessionId};

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The id of the call, which is the client's `toolCallId`.
    pub call: CallId,
    /// The provider's id of the call, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The tool's name as written by the model.
    pub tool: String,
    /// The arguments: an object if they are complete, otherwise the raw text.
    pub input: Arc<Value>,
    /// The kind of work.
    #[serde(default)]
    pub kind: ToolKind,
    /// A description in one line, for display.
    #[serde(default)]
    pub title: String,
    /// The places in files that it works on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    pub state: CallState,
    /// Data of the provider, which must be sent back unchanged.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider: Map<String, Value>,
}

impl Call {
    /// Drops the result, if only the fact that the call completed matters any more.
    pub fn forget_result(&mut self) {
        if let CallState::Completed(done) = &mut self.state {
            *done = Completed {
                cleared: done.cleared,
                ..Completed::default()
            };
        }
    }
}

/// The progress of a call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "StoredState")]
pub enum CallState {
    /// Announced, and possibly waiting for the user.
    Pending,
    /// Running. In a stored history it means that the call was interrupted, with an unknown
    /// outcome.
    Running {
        /// The facts known so far.
        facts: CallFacts,
        /// The output at the time of saving, in the form for the model.
        printed: Option<Arc<str>>,
    },
    Completed(Completed),
    /// Failed, refused or interrupted. The model receives the reason.
    Failed {
        /// The reason, in the form for the model.
        error: String,
        cause: FailureCause,
        /// The output of a cancelled command as a terminal got it, if that has colours.
        coloured: Option<String>,
        /// Further facts.
        facts: CallFacts,
    },
}

impl CallState {
    /// Returns a failure that affects only its call.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed {
            error: error.into(),
            cause: FailureCause::Error,
            coloured: None,
            facts: CallFacts::default(),
        }
    }

    /// Returns the facts about a call that has begun.
    pub fn facts(&self) -> Option<&CallFacts> {
        match self {
            Self::Pending => None,
            Self::Running { facts, .. } | Self::Failed { facts, .. } => Some(facts),
            Self::Completed(done) => Some(&done.facts),
        }
    }

    /// Returns the cause of a failure.
    pub fn cause(&self) -> Option<FailureCause> {
        match self {
            Self::Failed { cause, .. } => Some(*cause),
            _ => None,
        }
    }
}

/// The cause of a failed call, as far as it affects behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailureCause {
    /// Any error that the model receives and continues from.
    #[default]
    Error,
    /// The user rejected it without giving a reason, which ends the turn.
    Rejected,
    /// No user could be asked about it, and the model was informed.
    Unanswered,
    /// The user cancelled the turn while it ran.
    Cancelled,
    /// The process ended while it ran, so its effects are unknown.
    ProcessEnded,
    /// The user cancelled the turn before it began.
    NotBegun,
}

impl FailureCause {
    /// Returns whether it was interrupted while it ran.
    pub fn is_interruption(self) -> bool {
        matches!(self, Self::Cancelled | Self::ProcessEnded)
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Completed {
    /// The result for the model. It may be long and is sent with every step, so requests share it.
    pub output: Arc<str>,
    /// The result for display, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// The output of a command as a terminal got it, if that has colours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coloured: Option<String>,
    /// Further facts.
    #[serde(
        rename = "metadata",
        default,
        skip_serializing_if = "CallFacts::is_empty"
    )]
    pub facts: CallFacts,
    /// The changes of the files it touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Images and other attachments for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<File>,
    /// The time when pruning removed the output from the model's view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<Timestamp>,
}

/// Facts about a call, in addition to its result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallFacts {
    /// The session of the subagent that it started.
    pub child: Option<ChildSession>,
    /// Calls of that subagent that needed the user's permission, and were shown to the client next
    /// to this one.
    pub asked_calls: Vec<CallId>,
    /// The end of the command that it ran.
    pub exit: Option<ProgramExit>,
    /// The command that it left in the background.
    pub job: Option<BackgroundJob>,
    /// The file that contains its complete output.
    pub output_path: Option<PathBuf>,
    /// The restrictions of the sandbox on its command, as text.
    pub sandbox: Option<String>,
    /// True if it returned something new; `None` if that does not apply.
    pub has_new_information: Option<bool>,
    /// Instruction files that it loaded.
    pub loaded: Vec<PathBuf>,
    /// The structured result that it submitted, as accepted.
    pub result: Option<Value>,
    /// Details that only the client reads: counts, diffs.
    pub details: Map<String, Value>,
}

/// The end of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramExit {
    /// The exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The name of the signal that ended it.
    pub signal: Option<String>,
}

/// An exit code as text. One that a shell uses for the end of a program by a signal has the
/// signal's name: `139 (SIGSEGV)`. Within a namespace of processes every such end is a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCode(pub i32);

/// The exit code with which git reports that it was called wrongly, which is no end by SIGHUP.
const GIT_USAGE: i32 = 129;

impl Display for ExitCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self
            .0
            .checked_sub(128)
            .and_then(signal_name)
            .filter(|_name| self.0 != GIT_USAGE);
        match name {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Returns the name of a signal that ends programs, or `None` for any other number.
pub fn signal_name(number: i32) -> Option<&'static str> {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ if cfg!(target_os = "macos") => match number {
            10 => "SIGBUS",
            12 => "SIGSYS",
            30 => "SIGUSR1",
            31 => "SIGUSR2",
            _ => return None,
        },
        7 => "SIGBUS",
        10 => "SIGUSR1",
        12 => "SIGUSR2",
        31 => "SIGSYS",
        _ => return None,
    };
    Some(name)
}

/// The session of a subagent.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildSession {
    /// The session of the call that started it, which in a fork differs from the session of the
    /// history.
    pub parent: Option<SessionId>,
    pub session: SessionId,
    /// The model that the subagent uses, if known.
    pub model: Option<ModelRef>,
}

/// A command that continues after its call has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundJob {
    /// The id, such as `bash_1`.
    pub id: String,
    pub state: JobState,
}

/// The progress of a background job, as recorded in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It was running when this was saved.
    Running,
    /// It has ended, with a short description. The model has not been notified.
    Ended(String),
    /// It has ended, and the model has been notified.
    Reported(String),
}

impl JobState {
    /// Returns the description of the job's end.
    pub fn how(&self) -> Option<&str> {
        match self {
            Self::Running => None,
            Self::Ended(how) | Self::Reported(how) => Some(how),
        }
    }
}

impl ChildSession {
    /// Returns the JSON for the client.
    pub fn to_json(&self) -> Map<String, Value> {
        let parent = self
            .parent
            .as_ref()
            .map(|parent| (CallFacts::PARENT, parent.to_string()));
        let model = self
            .model
            .as_ref()
            .map(|model| (CallFacts::MODEL, model.to_string()));
        let all = parent
            .into_iter()
            .chain([(CallFacts::CHILD, self.session.to_string())])
            .chain(model);
        all.map(|(key, text)| (key.to_owned(), Value::String(text)))
            .collect()
    }
}

impl CallFacts {
    /// The key of a background job's id, in stored facts and messages.
    pub const BACKGROUND: &str = "background";
    /// The key of a description of its end.
    pub const ENDED: &str = "ended";
    /// The key of the time limit that ended a command, in milliseconds.
    pub const TIME_LIMIT: &str = "timeLimit";
    const TOLD: &str = "told";
    const PARENT: &str = "parentSessionId";
    /// The key of the session of the subagent that it started.
    pub const CHILD: &str = "sessionId";
    const MODEL: &str = "model";
    const ASKED: &str = "asked";
    /// The key of the exit code.
    pub const EXIT: &str = "exit";
    const SIGNAL: &str = "signal";
    /// The key of the detail that its output was cut, as in OpenCode's results.
    pub const TRUNCATED: &str = "truncated";
    /// The key of the file that contains its complete output.
    pub const OUTPUT_PATH: &str = "outputPath";
    /// The key of the user's answers to its questions.
    pub const ANSWERS: &str = "answers";
    const SANDBOX: &str = "sandbox";
    const NEW_INFORMATION: &str = "news";
    const LOADED: &str = "loaded";
    const RESULT: &str = "structured";
    const REJECTED: &str = "rejected";
    const UNANSWERED: &str = "unanswered";
    const INTERRUPTED: &str = "interrupted";
    const PROCESS_ENDED: &str = "processEnded";
    const NOT_BEGUN: &str = "notBegun";

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds facts that became known later; they replace earlier ones, but lists are joined.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let mut details = self.details;
        details.extend(later.details);
        Self {
            child: later.child.or(self.child),
            asked_calls: self
                .asked_calls
                .into_iter()
                .chain(later.asked_calls)
                .collect(),
            exit: later.exit.or(self.exit),
            job: later.job.or(self.job),
            output_path: later.output_path.or(self.output_path),
            sandbox: later.sandbox.or(self.sandbox),
            has_new_information: later.has_new_information.or(self.has_new_information),
            loaded: self.loaded.into_iter().chain(later.loaded).collect(),
            result: later.result.or(self.result),
            details,
        }
    }

    /// Returns the JSON for the store.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut json = self
            .child
            .as_ref()
            .map(ChildSession::to_json)
            .unwrap_or_default();
        let mut add = |key: &str, value: Value| json.insert(key.to_owned(), value);
        if !self.asked_calls.is_empty() {
            add(
                Self::ASKED,
                self.asked_calls
                    .iter()
                    .map(|id| Value::from(id.as_str()))
                    .collect(),
            );
        }
        if let Some(exit) = &self.exit {
            add(Self::EXIT, exit.code.map_or(Value::Null, Value::from));
            if let Some(signal) = &exit.signal {
                add(Self::SIGNAL, signal.as_str().into());
            }
        }
        for (key, value) in &self.details {
            add(key, value.clone());
        }
        if let Some(job) = &self.job {
            add(Self::BACKGROUND, job.id.as_str().into());
            if let Some(how) = job.state.how() {
                add(Self::ENDED, how.into());
            }
            if let JobState::Reported(_) = job.state {
                add(Self::TOLD, true.into());
            }
        }
        if let Some(path) = &self.output_path {
            add(Self::OUTPUT_PATH, path.display().to_string().into());
        }
        if let Some(sandbox) = &self.sandbox {
            add(Self::SANDBOX, sandbox.as_str().into());
        }
        if let Some(is_new) = self.has_new_information {
            add(Self::NEW_INFORMATION, is_new.into());
        }
        if !self.loaded.is_empty() {
            add(
                Self::LOADED,
                self.loaded
                    .iter()
                    .map(|path| Value::from(path.display().to_string()))
                    .collect(),
            );
        }
        if let Some(result) = &self.result {
            add(Self::RESULT, result.clone());
        }
        json
    }

    /// Returns the link to the session of a call's subagent, as the client shows it.
    pub fn link(&self) -> Option<Map<String, Value>> {
        self.child.as_ref().map(ChildSession::to_json)
    }

    /// Returns the JSON for the client: without the fact that the model was notified of the end of
    /// a background job, which it learns after the client.
    pub fn to_client_json(&self) -> Map<String, Value> {
        let mut json = self.to_json();
        json.remove(Self::TOLD);
        json
    }

    /// Parses stored facts. Values of an unexpected form remain in the details.
    pub fn from_json(stored: Map<String, Value>) -> Self {
        let mut facts = Self::default();
        let mut parent = None;
        let mut model = None;
        let mut job = None;
        let mut ended = None;
        let mut is_notified = false;
        for (key, value) in stored {
            match (key.as_str(), value) {
                (Self::PARENT, Value::String(text)) => parent = Some(text),
                (Self::CHILD, Value::String(text)) => {
                    facts.child = Some(ChildSession {
                        parent: None,
                        session: SessionId::new(text),
                        model: None,
                    });
                }
                (Self::MODEL, Value::String(text)) => model = Some(text),
                (Self::ASKED, Value::Array(list)) => {
                    facts.asked_calls = texts(&list).map(CallId::new).collect()
                }
                (Self::EXIT, Value::Null) => _ = facts.exit.get_or_insert_default(),
                (Self::EXIT, Value::Number(code)) => {
                    let code = code.as_i64().and_then(|code| i32::try_from(code).ok());
                    facts.exit.get_or_insert_default().code = code;
                }
                (Self::SIGNAL, Value::String(text)) => {
                    facts.exit.get_or_insert_default().signal = Some(text)
                }
                (Self::BACKGROUND, Value::String(text)) => job = Some(text),
                (Self::ENDED, Value::String(text)) => ended = Some(text),
                (Self::TOLD, Value::Bool(true)) => is_notified = true,
                (Self::OUTPUT_PATH, Value::String(text)) => facts.output_path = Some(text.into()),
                (Self::SANDBOX, Value::String(text)) => facts.sandbox = Some(text),
                (Self::NEW_INFORMATION, Value::Bool(is_new)) => {
                    facts.has_new_information = Some(is_new)
                }
                (Self::LOADED, Value::Array(list)) => {
                    facts.loaded = texts(&list).map(PathBuf::from).collect();
                }
                (Self::RESULT, result) => facts.result = Some(result),
                (_, value) => _ = facts.details.insert(key, value),
            }
        }
        match &mut facts.child {
            Some(child) => {
                child.parent = parent.map(SessionId::new);
                child.model = model.as_deref().and_then(ModelRef::parse);
            }
            None => {
                let unclaimed = [(Self::PARENT, parent), (Self::MODEL, model)];
                let details = unclaimed
                    .into_iter()
                    .filter_map(|(key, text)| Some((key.to_owned(), text?.into())));
                facts.details.extend(details);
            }
        }
        facts.job = job.map(|id| {
            let state = match ended {
                None => JobState::Running,
                Some(how) if is_notified => JobState::Reported(how),
                Some(how) => JobState::Ended(how),
            };
            BackgroundJob { id, state }
        });
        facts
    }
}

/// Returns the strings of a list, without its other values.
fn texts(list: &[Value]) -> impl Iterator<Item = String> {
    list.iter().filter_map(Value::as_str).map(str::to_owned)
}

impl Serialize for CallFacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CallFacts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_json(Map::deserialize(deserializer)?))
    }
}

/// The stored form of a call's state, with the cause of a failure among the facts.
#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
enum StoredState {
    Pending,
    Running {
        #[serde(rename = "metadata", default)]
        facts: CallFacts,
        #[serde(default)]
        printed: Option<Arc<str>>,
    },
    Completed(Completed),
    Failed {
        error: String,
        #[serde(default)]
        coloured: Option<String>,
        #[serde(default)]
        metadata: Map<String, Value>,
    },
}

/// The error of a call that the end of the process interrupted, which is its only distinction in
/// the first versions.
const PROCESS_ENDED_ERROR: &str =
    "The call was interrupted before it ended. What it did so far is unknown.";

/// The error of a call that was cancelled before it began, which is its only distinction in the
/// first versions.
const NOT_BEGUN_ERROR: &str = "The call was not made: the user cancelled the turn before it began.";

impl From<StoredState> for CallState {
    fn from(stored: StoredState) -> Self {
        match stored {
            StoredState::Pending => Self::Pending,
            StoredState::Running { facts, printed } => Self::Running { facts, printed },
            StoredState::Completed(done) => Self::Completed(done),
            StoredState::Failed {
                error,
                coloured,
                mut metadata,
            } => {
                let mut take = |key: &str| metadata.remove(key).is_some();
                let is_rejected = take(CallFacts::REJECTED);
                let is_interrupted = take(CallFacts::INTERRUPTED);
                let is_unanswered = take(CallFacts::UNANSWERED);
                let is_process_ended = take(CallFacts::PROCESS_ENDED)
                    || (is_interrupted && error == PROCESS_ENDED_ERROR);
                let is_not_begun = take(CallFacts::NOT_BEGUN) || error == NOT_BEGUN_ERROR;
                let cause = if is_not_begun {
                    FailureCause::NotBegun
                } else if is_rejected {
                    FailureCause::Rejected
                } else if is_interrupted && is_process_ended {
                    FailureCause::ProcessEnded
                } else if is_interrupted {
                    FailureCause::Cancelled
                } else if is_unanswered {
                    FailureCause::Unanswered
                } else {
                    FailureCause::Error
                };
                Self::Failed {
                    error,
                    cause,
                    coloured,
                    facts: CallFacts::from_json(metadata),
                }
            }
        }
    }
}

impl Serialize for CallState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(tag = "status", rename_all = "snake_case")]
        enum Stored<'a> {
            Pending,
            Running {
                #[serde(skip_serializing_if = "Map::is_empty")]
                metadata: Map<String, Value>,
                #[serde(skip_serializing_if = "Option::is_none")]
                printed: &'a Option<Arc<str>>,
            },
            Completed(&'a Completed),
            Failed {
                error: &'a str,
                #[serde(skip_serializing_if = "Option::is_none")]
                coloured: &'a Option<String>,
                #[serde(skip_serializing_if = "Map::is_empty")]
                metadata: Map<String, Value>,
            },
        }
        let stored = match self {
            Self::Pending => Stored::Pending,
            Self::Running { facts, printed } => Stored::Running {
                metadata: facts.to_json(),
                printed,
            },
            Self::Completed(done) => Stored::Completed(done),
            Self::Failed {
                error,
                cause,
                coloured,
                facts,
            } => {
                let keys: &[&str] = match cause {
                    FailureCause::Error => &[],
                    FailureCause::Rejected => &[CallFacts::REJECTED],
                    FailureCause::Unanswered => &[CallFacts::UNANSWERED],
                    FailureCause::Cancelled => &[CallFacts::INTERRUPTED],
                    FailureCause::NotBegun => &[CallFacts::NOT_BEGUN],
                    FailureCause::ProcessEnded => {
                        &[CallFacts::INTERRUPTED, CallFacts::PROCESS_ENDED]
                    }
                };
                let mut metadata = facts.to_json();
                metadata.extend(
                    keys.iter()
                        .map(|key| ((*key).to_owned(), Value::Bool(true))),
                );
                Stored::Failed {
                    error,
                    coloured,
                    metadata,
                }
            }
        };
        stored.serialize(serializer)
    }
}

/// Kinds of work, for icons and policies. The names are ACP's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    /// Planning and delegating.
    Think,
    /// Retrieving data from the network.
    Fetch,
    SwitchMode,
    #[default]
    Other,
}

impl ToolKind {
    /// Returns whether this kind of work may change something outside the conversation.
    pub fn acts(self) -> bool {
        !matches!(
            self,
            Self::Read | Self::Search | Self::Think | Self::SwitchMode
        )
    }
}

/// A place in a file that a call works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// An absolute path.
    pub path: PathBuf,
    /// The line, counted from 1; `None` for the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}
