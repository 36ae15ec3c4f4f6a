//! The history of a session: messages and their parts, as data without behaviour.
//!
//! The structure follows OpenCode: a user message is one prompt, an assistant message is one step
//! (one model call with its tool calls). Every field that was added later has a default, so that
//! old stores remain readable.

mod call;
mod change;
mod image_settings;
pub mod model_message;
#[cfg(test)]
mod tests;
mod weight;

pub use call::{
    BackgroundJob, Call, CallFacts, CallState, ChildSession, Completed, ExitCode, FailureCause,
    JobState, Location, ProgramExit, ToolKind, signal_name,
};
pub use change::{Change, LineOffsets};
pub use image_settings::ImageSettings;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use base::environment::Timestamp;
use base::id::{MessageId, PartId};
use base::text;
use base::text::shared::SharedText;
use base::trace::TraceContext;

/// A model as `provider/model`, the notation used everywhere.
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

    /// Parses `provider/model`, where the model may contain more slashes, or `replay:directory`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(dir) = text.strip_prefix("replay:").filter(|dir| !dir.is_empty()) {
            return Some(Self {
                provider: Self::REPLAY.into(),
                model: dir.into(),
                effort: None,
            });
        }
        let (provider, model) = text.split_once('/')?;
        if provider.is_empty() || model.is_empty() {
            return None;
        }
        Some(Self {
            provider: provider.into(),
            model: model.into(),
            effort: None,
        })
    }
}

impl std::fmt::Display for ModelRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let between = if self.provider == Self::REPLAY {
            ':'
        } else {
            '/'
        };
        write!(f, "{}{between}{}", self.provider, self.model)
    }
}

/// A message of the history, by the user or the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The id, which is the same in live updates, replays and forks.
    pub id: MessageId,
    pub created: Timestamp,
    /// The author, with the fields of that role.
    #[serde(flatten)]
    pub role: Role,
    /// In the order of their creation. They are stored one by one, not with the message.
    #[serde(skip)]
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Role {
    /// A message by the user, or by adjutant on the user's behalf.
    User(User),
    Assistant(Assistant),
}

/// The fields that only a user message has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// The agent it is addressed to.
    pub agent: String,
    pub model: ModelRef,
}

/// The fields that only an assistant message has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// The user message it answers.
    pub parent: MessageId,
    pub agent: String,
    /// The model that received the request.
    pub model: ModelRef,
    /// The reason for the end of the step; `None` while it runs or if it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// The failure that ended the step, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// True if this is the summary of a compaction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub summary: bool,
    #[serde(default)]
    pub usage: Usage,
    /// The cost in US dollars, including subagents, if the price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The time of the step's end; `None` while it runs or if it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
}

/// The reason for the end of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// The answer is complete.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The model ran out of output tokens.
    Length,
    /// A filter stopped the model, or it refused.
    Refusal,
    /// The offline model could not fulfil the request.
    NotDone,
    /// Any other reason of the provider.
    Other,
}

/// The failure of a step, for the user and for the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The kind of failure, on which callers act.
    pub kind: FaultKind,
    /// One sentence on the event, for the user.
    pub message: String,
    /// One sentence of advice, for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// The kinds of failure that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// No key, or a wrong one.
    Auth,
    /// The provider failed, and retrying did not help.
    Provider,
    /// The conversation does not fit the model.
    ContextOverflow,
    /// The model or its provider rejects an image in the conversation.
    #[serde(alias = "picture")]
    Image,
    /// The user or the end of the process interrupted it.
    Interrupted,
    /// The store failed to save it.
    Store,
    Internal,
}

/// Tokens as counted by the provider. `input` excludes tokens read from or written to the cache,
/// `output` excludes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that are not cached.
    pub input: u64,
    /// Visible output tokens.
    pub output: u64,
    /// Output tokens of the reasoning.
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
    /// Returns the number of tokens in the context window after this step.
    pub fn context(&self) -> u64 {
        [
            self.cache_read,
            self.cache_write,
            self.output,
            self.reasoning,
        ]
        .into_iter()
        .fold(self.input, u64::saturating_add)
    }

    /// Adds the tokens of another answer. Numbers of a provider may be anything.
    pub fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}

/// Options that a client sets for a single prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptOptions {
    /// Text that is appended to the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Tools by name, permission or a wildcard for these: `false` removes a tool, `true` retains
    /// one that a broader key removes. It never allows a tool that the agent's rules do not allow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, bool>,
    /// A key by which a repeated prompt is recognized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The place of the prompt in a trace of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The id, which is the same in live updates and replays; also the message id of text and
    /// thought in ACP.
    pub id: PartId,
    #[serde(flatten)]
    pub content: Content,
}

/// The content of a part.
#[expect(
    clippy::large_enum_variant,
    reason = "most parts of a history are calls; a box for each would cost more"
)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Content {
    Text(Text),
    Reasoning(Reasoning),
    File(File),
    Tool(Call),
    /// Files that a step changed, with their states before and after.
    Patch {
        /// One change per file, or one per edit while `begun`.
        files: Vec<FileChange>,
        /// True if the step had not ended when this was written, so that it lists planned changes.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        begun: bool,
        /// Writes whose earlier state was not recorded.
        #[serde(rename = "unkept", default, skip_serializing_if = "Vec::is_empty")]
        unrecorded: Vec<UnrecordedWrite>,
        /// The place of the changes if background jobs made them after the step had ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        late: Option<LatePlace>,
    },
    /// An agent that the user mentioned with `@`.
    Agent {
        name: String,
    },
    /// A task for a subagent, which precedes the request to the model.
    Subtask {
        agent: String,
        /// A short description for display.
        description: String,
        /// The task for the subagent.
        prompt: String,
        /// The model for the subagent, which takes precedence over the agent's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelRef>,
    },
    /// Options for this prompt and its answer only.
    PromptOptions(PromptOptions),
    /// The required form of the answer.
    Format {
        /// A JSON Schema.
        schema: Value,
    },
    /// A request to summarize the history before this message, which is fulfilled if the summary
    /// follows.
    Compaction(Compaction),
    /// A failed attempt that was repeated. Earlier parts of this message belong to it: they are
    /// shown to the user, but not sent to the model.
    Retry {
        /// 1 for the first repetition.
        attempt: u32,
        reason: String,
    },
}

/// The place of late changes among all changes of a session, which differs from that of their
/// message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatePlace {
    /// The last message before them.
    pub after: MessageId,
    /// The number of these late changes, from 1, which is greater than those of all earlier ones.
    pub number: u32,
}

/// A compaction of the history, requested or done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Compaction {
    /// True if it was automatic, not requested by the user.
    pub auto: bool,
    /// The focus of the summary, in the words of the user who requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// The first message that is not summarized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<MessageId>,
    /// True if the provider had rejected the conversation as too long. Attachments of messages
    /// before this one are not sent any more then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow: bool,
    /// The number of tokens in the context before; 0 if unknown or only requested.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u64,
    /// The number of tokens in the context after; 0 if unknown or only requested.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after: u64,
    /// Skills that were in the model's context, and are again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Instruction files that were in the model's context, and are again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded: Vec<PathBuf>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A text of a message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Text {
    /// Markdown. A prompt may be long, so requests to the model share its text.
    pub text: SharedText,
    /// True if adjutant wrote it on the user's behalf. The model sees it, the client does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
    /// True if only the user sees it, not the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// Data of the provider, which must be sent back unchanged.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider: Map<String, Value>,
}

/// The reasoning of a model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reasoning {
    /// The part of it that may be shown.
    pub text: String,
    /// Signatures, encrypted content and similar data, which is sent back unchanged to the same
    /// model.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider: Map<String, Value>,
}

/// An attachment of a message or a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// The media type: `image/png`, `application/pdf`, `text/plain` …
    pub mime: String,
    /// Its name for display, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its origin: a `file://` or other URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Its bytes in Base64, if they are part of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// True if a provider rejected it. It is stored, but not sent again.
    #[serde(
        default,
        rename = "refused",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_rejected: bool,
}

/// The change of one file, by the digests of its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Absolute, with symlinks in its directories resolved.
    pub path: String,
    /// The state before; `None` if there was no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<FileState>,
    /// The state after; `None` if there is no file any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<FileState>,
    /// True if another program may be its author: it was found by comparing the project before and
    /// after a call, or another writer changed the file while the call ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compared: bool,
    /// A number that is greater than those of all changes that this and earlier processes have
    /// recorded before; 0 if the order is unknown, and for changes by an undo or a redo.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sequence: u64,
}

/// Merges changes in the order they were made. Consecutive changes of a file become one, with the
/// sequence number of the first, unless its state differs in between: then it was changed by
/// others, and a new change begins.
pub fn merged<'a>(changes: impl IntoIterator<Item = &'a FileChange>) -> Vec<FileChange> {
    let mut merged: Vec<FileChange> = Vec::new();
    let mut last_of: HashMap<&str, usize> = HashMap::new();
    for change in changes {
        match last_of
            .get(change.path.as_str())
            .and_then(|at| merged.get_mut(*at))
        {
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

/// A certain or possible write that an undo cannot revert.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnrecordedWrite {
    /// An absolute path, or the title of a call if the file is unknown.
    pub what: String,
    pub why: UnrecordedReason,
}

/// The reason why the earlier state of a file was not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnrecordedReason {
    /// The file or one of its parent directories is ignored.
    Ignored,
    /// The file could not be read.
    Unreadable,
    /// More writes exist that are not listed.
    Further,
    /// A renamed directory contains more files than are recorded.
    Large,
    /// Only the access control list changed, which is never recorded.
    AccessList,
    /// The system does not report the writes of this call, and the project is too large to be
    /// compared.
    Unreported,
}

/// The state of a file at one time. Files with equal states are equal, unless they are too large to
/// be stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// The digest of its content, or the size and time of content that is too large to be stored.
    pub hash: String,
    #[serde(default)]
    pub kind: FileKind,
    /// True if its content was too large to be stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub large: bool,
}

/// The kinds of files that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    #[default]
    Plain,
    /// A file that its owner may execute.
    Program,
    /// A symbolic link, whose content is its target.
    Link,
}

/// One entry of the model's todo list. Models write further members, such as an id, which are
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub struct Todo {
    // No doc comments here: they would become part of a tool's schema, and cost tokens with every
    // request.
    pub content: String,
    pub status: TodoStatus,
    #[serde(default)]
    pub priority: Priority,
}

/// The progress of a todo.
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

/// The importance of a todo.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
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
    /// Returns the fields of a user message.
    pub fn user(&self) -> Option<&User> {
        match &self.role {
            Role::User(user) => Some(user),
            Role::Assistant(_) => None,
        }
    }

    /// Returns the fields of an assistant message.
    pub fn assistant(&self) -> Option<&Assistant> {
        match &self.role {
            Role::User(_) => None,
            Role::Assistant(assistant) => Some(assistant),
        }
    }

    /// Returns the parts of the last attempt. Parts before a repetition were shown to the user, but
    /// are not part of the answer.
    pub fn answer(&self) -> &[Part] {
        let failed = self
            .parts
            .iter()
            .rposition(|part| matches!(part.content, Content::Retry { .. }));
        &self.parts[failed.map_or(0, |at| at + 1)..]
    }

    /// Returns the model's tool calls, without those of failed attempts. Calls in a prompt belong
    /// to a command of the user, and are not included.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        let answer = if self.user().is_some() {
            &[]
        } else {
            self.answer()
        };
        answer.iter().filter_map(|part| match &part.content {
            Content::Tool(call) => Some(call),
            _ => None,
        })
    }

    /// Returns the compaction that the message requests or contains.
    pub fn compaction(&self) -> Option<&Compaction> {
        self.parts.iter().find_map(|part| match &part.content {
            Content::Compaction(compaction) => Some(compaction),
            _ => None,
        })
    }

    /// Returns the options of this prompt.
    pub fn options(&self) -> Option<&PromptOptions> {
        self.parts.iter().find_map(|part| match &part.content {
            Content::PromptOptions(options) => Some(options),
            _ => None,
        })
    }

    /// Returns the required form of the answer.
    pub fn format(&self) -> Option<&Value> {
        self.parts.iter().find_map(|part| match &part.content {
            Content::Format { schema } => Some(schema),
            _ => None,
        })
    }

    /// Returns whether it contains a complete summary, which replaces the earlier history.
    pub fn is_summary(&self) -> bool {
        self.assistant()
            .is_some_and(|a| a.summary && a.fault.is_none() && a.finish.is_some())
    }

    /// Returns whether it is a prompt, that is, contains a part from the user.
    pub fn is_prompt(&self) -> bool {
        let is_from_user = |part: &Part| match &part.content {
            Content::Text(text) => !text.synthetic,
            Content::File(_) | Content::Subtask { .. } | Content::Agent { .. } => true,
            _ => false,
        };
        self.user().is_some() && self.parts.iter().any(is_from_user)
    }

    /// Returns the texts of the prompt, or of the last attempt at the answer, that the user may
    /// see: joined, and followed by the names of attached texts.
    pub fn visible_text(&self) -> String {
        self.visible_texts().collect::<Vec<_>>().join("\n")
    }

    /// Returns the beginning of [`Self::visible_text`], at most `bytes` long, without building the
    /// whole text.
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

    /// Returns the texts for [`Self::visible_text`], attached ones last.
    fn visible_texts(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let texts = self.answer().iter().filter_map(|part| match &part.content {
            Content::Text(text) if !text.synthetic => Some(text),
            _ => None,
        });
        let (attachments, prose): (Vec<_>, Vec<_>) =
            texts.partition(|text| attached(&text.text).is_some());
        prose.into_iter().chain(attachments).map(Text::for_display)
    }
}

/// Returns the text of an attached file in the form for messages and models.
pub fn attach(uri: &str, text: &str) -> String {
    format!("<attached uri=\"{uri}\">\n{text}\n</attached>")
}

/// Returns the URI and the content of an attached text, or `None` if the text is not an attachment.
pub fn attached(text: &str) -> Option<(&str, &str)> {
    let (uri, text) = text.strip_prefix("<attached uri=\"")?.split_once("\">\n")?;
    Some((uri, text.strip_suffix("\n</attached>")?))
}

impl Text {
    /// Returns the text for display, which is the file name for an attached file.
    pub fn for_display(&self) -> Cow<'_, str> {
        let Some((uri, _)) = attached(&self.text) else {
            return self.text.as_str().into();
        };
        let name = uri.rsplit('/').find(|name| !name.is_empty()).unwrap_or(uri);
        format!("[attached: {name}]").into()
    }
}
