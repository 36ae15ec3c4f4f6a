//! What a session's history is made of: messages and their parts. Nothing here acts.
//!
//! The shapes follow OpenCode's: a user message is one prompt, an assistant
//! message is one step (one model call, with its tool calls). Every field that came later has a
//! default, so that old stores still read.

mod call;
mod change;
#[cfg(test)]
mod tests;
mod weight;

pub use call::{
    BackgroundJob, Call, CallFacts, CallState, ChildSession, Completed, FailureCause, JobState, Location, ProgramExit,
    ToolKind,
};
pub use change::{Change, PartLines};

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use base::environment::Timestamp;
use base::id::{MessageId, PartId};
use base::text;
use base::text::shared::SharedText;

/// `provider/model`, the way models are written everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModelRef {
    /// The provider's id, without a slash.
    pub provider: String,
    /// The model's id; may contain slashes.
    pub model: String,
    /// The chosen reasoning effort (a variant's name), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
}

impl ModelRef {
    /// The provider of recordings; its models are directories.
    pub const REPLAY: &str = "replay";

    /// Reads `provider/model`; the model's part may have more slashes. `replay:directory` is one too.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(dir) = text.strip_prefix("replay:").filter(|dir| !dir.is_empty()) {
            return Some(Self { provider: Self::REPLAY.into(), model: dir.into(), effort: None });
        }
        let (provider, model) = text.split_once('/')?;
        let ok = !provider.is_empty() && !model.is_empty();
        ok.then(|| Self { provider: provider.into(), model: model.into(), effort: None })
    }
}

impl std::fmt::Display for ModelRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let between = if self.provider == Self::REPLAY { ':' } else { '/' };
        write!(f, "{}{between}{}", self.provider, self.model)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Stable across live updates, replay and fork.
    pub id: MessageId,
    pub created: Timestamp,
    /// Whose it is, with what belongs to that role.
    #[serde(flatten)]
    pub role: Role,
    /// In the order they were made. Stored one by one, not with the message.
    #[serde(skip)]
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Role {
    /// The user, or something said in the user's place.
    User(User),
    Assistant(Assistant),
}

/// What only a user message has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// The agent it is addressed to.
    pub agent: String,
    pub model: ModelRef,
}

/// What only an assistant message has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// The user message it answers.
    pub parent: MessageId,
    pub agent: String,
    /// The model that was asked.
    pub model: ModelRef,
    /// How the step ended; none while it runs or when it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// True for the summary a compaction made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub summary: bool,
    #[serde(default)]
    pub usage: Usage,
    /// In US dollars, where the price is known; the subagents it set to work included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    Stop,
    ToolCalls,
    /// It ran out of output tokens.
    Length,
    /// A filter stopped it, or it refused.
    Refusal,
    /// The provider said something else.
    Other,
}

/// Why a step failed, for the user and for the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Which kind of failure; callers act on it.
    pub kind: FaultKind,
    /// What happened, one sentence for a person.
    pub message: String,
    /// What to do next, one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// The kinds of failure that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// No key, or a wrong one.
    Auth,
    /// The provider failed, and retrying did not help.
    Provider,
    /// The conversation does not fit the model.
    ContextOverflow,
    /// The model, or its provider, does not take a picture of the conversation.
    Picture,
    /// The user, or the end of the process, stopped it.
    Interrupted,
    /// The store could not keep it.
    Store,
    Internal,
}

/// Tokens as the provider counted them. `input` excludes what came from or went into the cache,
/// `output` excludes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Fresh input tokens.
    pub input: u64,
    /// Visible output tokens.
    pub output: u64,
    #[serde(default)]
    pub reasoning: u64,
    /// Input tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Input tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write: u64,
}

impl Usage {
    /// Everything that occupies the context window after this step.
    pub fn context(&self) -> u64 {
        self.input + self.cache_read + self.cache_write + self.output + self.reasoning
    }
}

/// What a client says with one prompt, for that prompt alone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptOptions {
    /// The last words of the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// By a tool's name, its permission or a wildcard over them: false takes the tool away, true keeps it where
    /// a broader key takes it. Nothing here allows what the agent's rules do not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, bool>,
    /// Tells whether a prompt is one that was sent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Stable across live updates and replay; the message id of text and thought in ACP.
    pub id: PartId,
    #[serde(flatten)]
    pub content: Content,
}

#[expect(clippy::large_enum_variant, reason = "most parts of a history are calls; a box for each would cost more")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Content {
    Text(Text),
    Reasoning(Reasoning),
    File(File),
    Tool(Call),
    /// Files that a step changed: what they were before it, and what they were after it.
    Patch {
        /// One per file; while it is only begun, one per edit.
        files: Vec<FileChange>,
        /// The step had not ended when this was written: it is what was about to be done.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        begun: bool,
        /// What it wrote without its earlier state being kept.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unkept: Vec<UnkeptWrite>,
    },
    /// The user named an agent with `@`.
    Agent {
        name: String,
    },
    /// Work for a subagent, to be done before the model is asked.
    Subtask {
        agent: String,
        /// A few words for people.
        description: String,
        /// What it is to do.
        prompt: String,
        /// The model it is to use, before the agent's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelRef>,
    },
    /// What holds for this prompt and its answer alone.
    PromptOptions(PromptOptions),
    /// The answer is to have this shape.
    Format {
        /// A JSON Schema.
        schema: Value,
    },
    /// The history before this message is to be summarised; once the summary follows, it is.
    Compaction(Compaction),
    /// An attempt failed and was repeated. Parts before it in this message belong to the failed
    /// attempt: shown to the user, not sent to the model.
    Retry {
        /// 1 for the first repetition.
        attempt: u32,
        reason: String,
    },
}

/// A history that is to be summarised, or was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Compaction {
    /// False when the user asked for it.
    pub auto: bool,
    /// What the summary should keep above all, in the words of the user who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// First message kept verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<MessageId>,
    /// The provider had refused the conversation as too long: what is attached to messages before
    /// this one is not sent any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow: bool,
    /// Tokens before and after, as far as they could be known; 0 while it is only asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after: u64,
    /// Skills that the model had in front of it, and has again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// The same for instruction files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded: Vec<PathBuf>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Text {
    /// Markdown. A prompt may be long, and each request to a model holds what it says.
    pub text: SharedText,
    /// Said by the program in the user's place: the model sees it, the editor does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
    /// The user sees it, the model does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// What the provider wants back with it, untouched.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reasoning {
    /// What of it may be shown.
    pub text: String,
    /// Signatures, encrypted content and the like: replayed to the same model untouched.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider: Map<String, Value>,
}

/// Something attached to a message or a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// `image/png`, `application/pdf`, `text/plain` …
    pub mime: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it came from: a `file://` or other URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Base64 of its bytes, where they travel with the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// A provider would not take it: it is kept, and not sent again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// What became of one file, by the names of its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Absolute, symlinks on the way resolved.
    pub path: String,
    /// None where there was no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<FileState>,
    /// None where there is no file any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<FileState>,
    /// It was found by comparing the project before and after something ran, so another program may have made it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compared: bool,
}

/// Merges changes, given in the order they were made: those of a file that follow on one another are one. Where a file
/// was something else when the next change began, somebody else had changed it, and a new one begins.
pub fn merged<'a>(changes: impl IntoIterator<Item = &'a FileChange>) -> Vec<FileChange> {
    let mut merged: Vec<FileChange> = Vec::new();
    let mut last_of: HashMap<&str, usize> = HashMap::new();
    for change in changes {
        match last_of.get(change.path.as_str()).and_then(|at| merged.get_mut(*at)) {
            Some(last) if last.new == change.old => {
                last.new.clone_from(&change.new);
                last.compared |= change.compared;
            }
            _ => {
                last_of.insert(&change.path, merged.len());
                merged.push(change.clone());
            }
        }
    }
    merged.retain(|change| change.old != change.new);
    merged
}

/// Something that was written, or may have been, and that an undo cannot set back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnkeptWrite {
    /// A path, absolute; or a call by its title, where no file is known.
    pub what: String,
    pub why: UnkeptReason,
}

/// The reason the earlier state of a file is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnkeptReason {
    /// It is ignored, or lies in a directory that is.
    Ignored,
    /// It could not be read.
    Unreadable,
    /// There is more, which is not named.
    Further,
    /// A directory that was renamed holds more than is kept.
    Large,
    /// The system does not report what this call wrote, and the project is too large to be compared.
    Unreported,
}

/// What a file was at one moment. Equal states are equal files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// The name of its content: a digest; or, of one too large to be kept, its size and time.
    pub hash: String,
    #[serde(default)]
    pub kind: FileKind,
    /// Its content was too large to be kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub large: bool,
}

/// The kinds of files that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    #[default]
    Plain,
    /// One that may be executed.
    Program,
    /// A symbolic link; its content is where it leads.
    Link,
}

/// One entry of the plan the model keeps. Models write further members, such as an id; they are
/// passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub struct Todo {
    // No words here: they would be paid for with every request, as part of a tool's schema.
    pub content: String,
    pub status: TodoStatus,
    #[serde(default)]
    pub priority: Priority,
}

/// How far an entry of the plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done and verified.
    Completed,
    /// No longer needed.
    Cancelled,
}

/// How much an entry of the plan matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Much.
    High,
    /// Ordinary.
    #[default]
    Medium,
    /// Little.
    Low,
}

impl Message {
    /// The user's part, if it is a user message.
    pub fn user(&self) -> Option<&User> {
        match &self.role {
            Role::User(user) => Some(user),
            Role::Assistant(_) => None,
        }
    }

    /// The assistant's part, if it is one of the model's.
    pub fn assistant(&self) -> Option<&Assistant> {
        match &self.role {
            Role::User(_) => None,
            Role::Assistant(assistant) => Some(assistant),
        }
    }

    /// The parts of the attempt that counts: what came before a repetition was shown to the user, and
    /// is not part of the answer.
    pub fn answer(&self) -> &[Part] {
        let failed = self.parts.iter().rposition(|part| matches!(part.content, Content::Retry { .. }));
        &self.parts[failed.map_or(0, |at| at + 1)..]
    }

    /// The model's tool calls, without those of failed attempts. What a command of the user's ran stands in
    /// the prompt, and is none.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        let answer = if self.user().is_some() { &[] } else { self.answer() };
        answer.iter().filter_map(|part| match &part.content {
            Content::Tool(call) => Some(call),
            _ => None,
        })
    }

    /// The compaction it asks for, or stands for.
    pub fn compaction(&self) -> Option<&Compaction> {
        self.parts.iter().find_map(|part| match &part.content {
            Content::Compaction(compaction) => Some(compaction),
            _ => None,
        })
    }

    /// What holds for this prompt alone.
    pub fn options(&self) -> Option<&PromptOptions> {
        self.parts.iter().find_map(|part| match &part.content {
            Content::PromptOptions(options) => Some(options),
            _ => None,
        })
    }

    /// The shape the answer is to have.
    pub fn format(&self) -> Option<&Value> {
        self.parts.iter().find_map(|part| match &part.content {
            Content::Format { schema } => Some(schema),
            _ => None,
        })
    }

    /// Whether it holds a summary that takes the place of what was before.
    pub fn is_summary(&self) -> bool {
        self.assistant().is_some_and(|a| a.summary && a.fault.is_none() && a.finish.is_some())
    }

    /// Whether it is a prompt: something in it comes from the user.
    pub fn is_prompt(&self) -> bool {
        let spoken = |part: &Part| match &part.content {
            Content::Text(text) => !text.synthetic,
            Content::File(_) | Content::Subtask { .. } | Content::Agent { .. } => true,
            _ => false,
        };
        self.user().is_some() && self.parts.iter().any(spoken)
    }

    /// The words in it that the user may see, joined; the names of attached texts behind them.
    pub fn visible_text(&self) -> String {
        self.visible_texts().collect::<Vec<_>>().join("\n")
    }

    /// The beginning of [`Self::visible_text`], of at most so many bytes: it may be long.
    pub fn visible_beginning(&self, bytes: usize) -> String {
        let mut beginning = String::new();
        for (at, text) in self.visible_texts().enumerate() {
            if beginning.len() >= bytes {
                break;
            }
            beginning.push_str(if at == 0 { "" } else { "\n" });
            let piece = text::head(&text, bytes.saturating_sub(beginning.len()));
            beginning.push_str(piece);
            if piece.len() < text.len() {
                break;
            }
        }
        beginning
    }

    fn visible_texts(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let texts = self.parts.iter().filter_map(|part| match &part.content {
            Content::Text(text) if !text.synthetic => Some(text),
            _ => None,
        });
        let (files, words): (Vec<_>, Vec<_>) = texts.partition(|text| attached(&text.text).is_some());
        words.into_iter().chain(files).map(Text::for_people)
    }
}

/// The text of a file that the user attached, as it stands in a message and as a model reads it.
pub fn attach(uri: &str, text: &str) -> String {
    format!("<attached uri=\"{uri}\">\n{text}\n</attached>")
}

/// Where an attached text is from, and what it holds; none where it is no such text.
pub fn attached(text: &str) -> Option<(&str, &str)> {
    let (uri, text) = text.strip_prefix("<attached uri=\"")?.split_once("\">\n")?;
    Some((uri, text.strip_suffix("\n</attached>")?))
}

impl Text {
    /// The words as they are; of an attached file, its name.
    pub fn for_people(&self) -> Cow<'_, str> {
        let Some((uri, _)) = attached(&self.text) else { return self.text.as_str().into() };
        let name = uri.rsplit('/').find(|name| !name.is_empty()).unwrap_or(uri);
        format!("[attached: {name}]").into()
    }
}
