//! A call of a tool: what was asked for, how far it is, and what is known of it.
//!
//! What steers behaviour is typed here. It is stored as the first versions stored it, in one JSON object beside
//! the details that only the editor reads: [`CallFacts`] is that object, and old stores read as before.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::change::Change;
use super::{File, ModelRef};
use base::environment::Timestamp;
use base::id::{CallId, SessionId};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Our name for it, the editor's `toolCallId`.
    pub call: CallId,
    /// The provider's name for it, where it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The tool's name as the model wrote it.
    pub tool: String,
    /// The arguments; an object once they are complete, else the raw text.
    pub input: Arc<Value>,
    /// What kind of work it is.
    #[serde(default)]
    pub kind: ToolKind,
    /// What it does, for people: one line.
    #[serde(default)]
    pub title: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    pub state: CallState,
    /// What the provider wants back with it, untouched.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider: Map<String, Value>,
}

impl Call {
    /// Takes out what came of it, where only that it was done matters any more.
    pub fn forget_result(&mut self) {
        if let CallState::Completed(done) = &mut self.state {
            *done = Completed { cleared: done.cleared, ..Completed::default() };
        }
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "StoredState")]
pub enum CallState {
    /// Announced, perhaps waiting for the user.
    Pending,
    /// Acting. Found in a stored history, it means: interrupted, outcome unknown.
    Running {
        /// What is known of it already.
        facts: CallFacts,
        /// What it had printed when this was kept, as the model would see it.
        printed: Option<Arc<str>>,
    },
    Completed(Completed),
    /// It failed, was refused or was interrupted; the model is told why.
    Failed {
        error: String,
        cause: FailureCause,
        /// What is known of it besides.
        facts: CallFacts,
    },
}

impl CallState {
    /// A failure that ends nothing but its call.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into(), cause: FailureCause::Error, facts: CallFacts::default() }
    }

    /// What is known of a call that has begun.
    pub fn facts(&self) -> Option<&CallFacts> {
        match self {
            Self::Pending => None,
            Self::Running { facts, .. } | Self::Failed { facts, .. } => Some(facts),
            Self::Completed(done) => Some(&done.facts),
        }
    }

    /// Why it failed, if it did.
    pub fn cause(&self) -> Option<FailureCause> {
        match self {
            Self::Failed { cause, .. } => Some(*cause),
            _ => None,
        }
    }
}

/// Why a call failed, as far as something follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailureCause {
    /// Anything that the model is told, and goes on from.
    #[default]
    Error,
    /// The user rejected it without words, which ends the turn.
    Rejected,
    /// Nobody could be asked about it, which the model was told.
    Unanswered,
    /// The user cancelled the turn while it ran.
    Cancelled,
    /// The process ended while it ran: what it has done is unknown.
    ProcessEnded,
    /// The user cancelled the turn before it began.
    NotBegun,
}

impl FailureCause {
    /// It was cut off while it ran.
    pub fn is_interruption(self) -> bool {
        matches!(self, Self::Cancelled | Self::ProcessEnded)
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Completed {
    /// The result for the model. Shared with the requests it is part of: it may be long, and is sent
    /// again with every step.
    pub output: Arc<str>,
    /// The result for people, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// What is known of it besides.
    #[serde(rename = "metadata", default, skip_serializing_if = "CallFacts::is_empty")]
    pub facts: CallFacts,
    /// The change of each file it touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Images and the like for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<File>,
    /// Set when pruning took the output out of the model's view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<Timestamp>,
}

/// What is known of a call beside its result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallFacts {
    /// The session of the subagent it set to work.
    pub child: Option<ChildSession>,
    /// Calls of that subagent which the user was asked about: the editor has seen them beside this one.
    pub asked: Vec<CallId>,
    /// How the command it ran has ended.
    pub exit: Option<ProgramExit>,
    /// The command it left in the background.
    pub job: Option<BackgroundJob>,
    /// The file that holds all of its output.
    pub output_path: Option<PathBuf>,
    /// What the system kept its command from, in words.
    pub sandbox: Option<String>,
    /// Whether it brought something new; none where that is no question.
    pub news: Option<bool>,
    /// Instruction files it brought along.
    pub loaded: Vec<PathBuf>,
    /// The result that was owed, as it was accepted.
    pub result: Option<Value>,
    /// What only the editor reads: counts, diffs.
    pub details: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProgramExit {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

/// The session of a subagent.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildSession {
    /// Whose call set it to work; a fork has inherited calls of another session.
    pub parent: Option<SessionId>,
    pub session: SessionId,
    pub model: Option<ModelRef>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundJob {
    /// Its id, `bash_1`.
    pub id: String,
    pub state: JobState,
}

/// How far a command in the background is, as the history knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It runs, or did when this was kept.
    Running,
    /// It has ended, in a few words how; the model has not been told.
    Ended(String),
    /// It has ended, and the model knows.
    Told(String),
}

impl JobState {
    pub fn how(&self) -> Option<&str> {
        match self {
            Self::Running => None,
            Self::Ended(how) | Self::Told(how) => Some(how),
        }
    }
}

impl ChildSession {
    /// As the editor sees it.
    pub fn to_json(&self) -> Map<String, Value> {
        let parent = self.parent.as_ref().map(|parent| (CallFacts::PARENT, parent.to_string()));
        let model = self.model.as_ref().map(|model| (CallFacts::MODEL, model.to_string()));
        let all = parent.into_iter().chain([(CallFacts::CHILD, self.session.to_string())]).chain(model);
        all.map(|(key, text)| (key.to_owned(), Value::String(text))).collect()
    }
}

impl CallFacts {
    /// The key of a background command's id, where facts are stored or sent.
    pub const BACKGROUND: &str = "background";
    /// The key that says how that command ended.
    pub const ENDED: &str = "ended";
    /// The key of the limit, in milliseconds, that ended a command.
    pub const TIME_LIMIT: &str = "timeLimit";
    const TOLD: &str = "told";
    const PARENT: &str = "parentSessionId";
    const CHILD: &str = "sessionId";
    const MODEL: &str = "model";
    const ASKED: &str = "asked";
    const EXIT: &str = "exit";
    const SIGNAL: &str = "signal";
    const OUTPUT_PATH: &str = "outputPath";
    const SANDBOX: &str = "sandbox";
    const NEWS: &str = "news";
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

    /// These, and what became known later.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let mut details = self.details;
        details.extend(later.details);
        Self {
            child: later.child.or(self.child),
            asked: self.asked.into_iter().chain(later.asked).collect(),
            exit: later.exit.or(self.exit),
            job: later.job.or(self.job),
            output_path: later.output_path.or(self.output_path),
            sandbox: later.sandbox.or(self.sandbox),
            news: later.news.or(self.news),
            loaded: self.loaded.into_iter().chain(later.loaded).collect(),
            result: later.result.or(self.result),
            details,
        }
    }

    /// As they are stored, and sent to the editor.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut json = self.child.as_ref().map(ChildSession::to_json).unwrap_or_default();
        let mut add = |key: &str, value: Value| json.insert(key.to_owned(), value);
        if !self.asked.is_empty() {
            add(Self::ASKED, self.asked.iter().map(|id| Value::from(id.as_str())).collect());
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
            if let JobState::Told(_) = job.state {
                add(Self::TOLD, true.into());
            }
        }
        if let Some(path) = &self.output_path {
            add(Self::OUTPUT_PATH, path.display().to_string().into());
        }
        if let Some(sandbox) = &self.sandbox {
            add(Self::SANDBOX, sandbox.as_str().into());
        }
        if let Some(news) = self.news {
            add(Self::NEWS, news.into());
        }
        if !self.loaded.is_empty() {
            add(Self::LOADED, self.loaded.iter().map(|path| Value::from(path.display().to_string())).collect());
        }
        if let Some(result) = &self.result {
            add(Self::RESULT, result.clone());
        }
        json
    }

    /// Reads what was stored. What is not as we write it stays among the details.
    pub fn from_json(stored: Map<String, Value>) -> Self {
        let mut facts = Self::default();
        let (mut parent, mut model) = (None, None);
        let (mut job, mut ended, mut told) = (None, None, false);
        let texts = |list: &[Value]| list.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
        for (key, value) in stored {
            match (key.as_str(), value) {
                (Self::PARENT, Value::String(text)) => parent = Some(text),
                (Self::CHILD, Value::String(text)) => {
                    facts.child = Some(ChildSession { parent: None, session: SessionId::new(text), model: None });
                }
                (Self::MODEL, Value::String(text)) => model = Some(text),
                (Self::ASKED, Value::Array(list)) => facts.asked = texts(&list).into_iter().map(CallId::new).collect(),
                (Self::EXIT, Value::Null) => _ = facts.exit.get_or_insert_default(),
                (Self::EXIT, Value::Number(code)) => {
                    let code = code.as_i64().and_then(|code| i32::try_from(code).ok());
                    facts.exit.get_or_insert_default().code = code;
                }
                (Self::SIGNAL, Value::String(text)) => facts.exit.get_or_insert_default().signal = Some(text),
                (Self::BACKGROUND, Value::String(text)) => job = Some(text),
                (Self::ENDED, Value::String(text)) => ended = Some(text),
                (Self::TOLD, Value::Bool(true)) => told = true,
                (Self::OUTPUT_PATH, Value::String(text)) => facts.output_path = Some(text.into()),
                (Self::SANDBOX, Value::String(text)) => facts.sandbox = Some(text),
                (Self::NEWS, Value::Bool(news)) => facts.news = Some(news),
                (Self::LOADED, Value::Array(list)) => {
                    facts.loaded = texts(&list).into_iter().map(PathBuf::from).collect();
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
                let stray = [(Self::PARENT, parent), (Self::MODEL, model)];
                facts.details.extend(stray.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?.into()))));
            }
        }
        facts.job = job.map(|id| {
            let state = match ended {
                None => JobState::Running,
                Some(how) if told => JobState::Told(how),
                Some(how) => JobState::Ended(how),
            };
            BackgroundJob { id, state }
        });
        facts
    }
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

/// A call's state as it is stored: why it failed stands among the facts.
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
        metadata: Map<String, Value>,
    },
}

/// What the first versions wrote of a call that the end of the process cut off, and nothing else by which to know it.
const CUT_OFF: &str = "The call was interrupted before it ended. What it did so far is unknown.";

/// The same for one that a cancel came before.
const NEVER_BEGUN: &str = "The call was not made: the user cancelled the turn before it began.";

impl From<StoredState> for CallState {
    fn from(stored: StoredState) -> Self {
        match stored {
            StoredState::Pending => Self::Pending,
            StoredState::Running { facts, printed } => Self::Running { facts, printed },
            StoredState::Completed(done) => Self::Completed(done),
            StoredState::Failed { error, mut metadata } => {
                let mut is = |key: &str| metadata.remove(key).is_some();
                let (rejected, interrupted) = (is(CallFacts::REJECTED), is(CallFacts::INTERRUPTED));
                let unanswered = is(CallFacts::UNANSWERED);
                let process_ended = is(CallFacts::PROCESS_ENDED) || (interrupted && error == CUT_OFF);
                let not_begun = is(CallFacts::NOT_BEGUN) || error == NEVER_BEGUN;
                let cause = match (rejected, interrupted) {
                    _ if not_begun => FailureCause::NotBegun,
                    (true, _) => FailureCause::Rejected,
                    (_, true) if process_ended => FailureCause::ProcessEnded,
                    (_, true) => FailureCause::Cancelled,
                    _ if unanswered => FailureCause::Unanswered,
                    _ => FailureCause::Error,
                };
                Self::Failed { error, cause, facts: CallFacts::from_json(metadata) }
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
                #[serde(skip_serializing_if = "Map::is_empty")]
                metadata: Map<String, Value>,
            },
        }
        let stored = match self {
            Self::Pending => Stored::Pending,
            Self::Running { facts, printed } => Stored::Running { metadata: facts.to_json(), printed },
            Self::Completed(done) => Stored::Completed(done),
            Self::Failed { error, cause, facts } => {
                let keys: &[&str] = match cause {
                    FailureCause::Error => &[],
                    FailureCause::Rejected => &[CallFacts::REJECTED],
                    FailureCause::Unanswered => &[CallFacts::UNANSWERED],
                    FailureCause::Cancelled => &[CallFacts::INTERRUPTED],
                    FailureCause::NotBegun => &[CallFacts::NOT_BEGUN],
                    FailureCause::ProcessEnded => &[CallFacts::INTERRUPTED, CallFacts::PROCESS_ENDED],
                };
                let mut metadata = facts.to_json();
                metadata.extend(keys.iter().map(|key| ((*key).to_owned(), Value::Bool(true))));
                Stored::Failed { error, metadata }
            }
        };
        stored.serialize(serializer)
    }
}

/// Kinds of work, for icons and policies. The words are ACP's because they are the field's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    /// Plans, delegates.
    Think,
    /// Gets something from the network.
    Fetch,
    SwitchMode,
    #[default]
    Other,
}

impl ToolKind {
    /// Whether such work may change something outside the conversation.
    pub fn acts(self) -> bool {
        !matches!(self, Self::Read | Self::Search | Self::Think | Self::SwitchMode)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Absolute.
    pub path: PathBuf,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}
