//! The tools of the model. A tool has two phases, because their order matters: `prepare` reads,
//! changes nothing, and names the accesses that the call needs; only
//! `crates/session/src/turn/authorize.rs` asks for permission; `run` does exactly the work that was
//! shown. A tool does not know about the user, the editor or the protocol.
//!
//! Each tool has a file of the same shape: doc, input, `impl Tool`, helpers, tests. Properties of a
//! tool that other modules need are constants of its `impl`; its doc is its row in the manual.

pub mod conversation;
pub mod edits;
pub mod files;
pub mod invalid;
pub mod lsp;
pub mod process;
pub mod todowrite;
pub mod web;

/// The properties of the built-in tools, in the order of the manual.
pub static BUILT_IN_TOOLS: LazyLock<Vec<ToolProperties>> = LazyLock::new(|| {
    let own = [properties::<invalid::InvalidTool>()];
    let code = [properties::<lsp::LspTool>()];
    let notes = [properties::<todowrite::TodowriteTool>()];
    [
        own.as_slice(),
        files::TOOLS,
        edits::TOOLS,
        process::TOOLS,
        &code,
        conversation::TOOLS,
        web::TOOLS,
        &notes,
    ]
    .concat()
});

pub mod aliases;
pub mod argument_repair;
pub mod call_timeout;
pub mod denial_message;
pub mod diagnostics;
pub mod external_tool;
pub mod failure_text;
pub mod format;
pub mod language;
pub mod registry;
pub mod schema;
pub mod scratch;
pub mod todos;
pub mod truncate;
pub mod unlisted;

#[cfg(test)]
mod faults;
#[cfg(test)]
#[cfg(unix)]
mod gate;
mod input;
mod live;
#[cfg(test)]
#[cfg(unix)]
mod rows;
#[cfg(test)]
mod test;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use ::lsp::SessionServers;
use aliases::Aliases;
use base::environment::Environment;
use base::id::{CallId, MessageId, SessionId};
use base::text;
use base::text::mark::ReminderMark;
use base::trace::TraceContext;
use base::worktree::Worktree;
use config::Settings;
use config::settings::OutputLimits;
use events::{
    CallUpdate, Event, EventSender, LiveFacts, Location, NotWritten, ReadFile,
    SessionRequestSender, ToolKind, TurnMessage, WriteFile,
};
use permission::plan::SharedAnalysis;
use permission::{AccessRequest, Policy};
use registry::{ToolProperties, properties};
use sandbox::WriteObserver;
use transcript::{CallFacts, Change, File};

pub use futures_util::future::BoxFuture;

/// A tool, with the types of its input and of its prepared call.
pub trait Tool: Send + Sync + 'static {
    const NAME: &'static str;
    /// The description for the model, from `<name>.md` next to the tool.
    const DESCRIPTION: &'static str;
    /// The kind of work, as ACP names it.
    const KIND: ToolKind;
    /// True if calls may run in parallel with others of their step, whatever their arguments.
    const CONCURRENT: bool;
    /// The permission that hides the tool when it is denied for everything; `prepare` names it too.
    const PERMISSION: &'static str = Self::NAME;
    /// The entry of that permission in the table of settings; `None` if it belongs to another tool.
    const PERMISSION_KEY: Option<PermissionKey> = None;
    /// The agents and models that get the tool in their lists.
    const AVAILABILITY: Availability = Availability::Everyone;
    /// True if a call may change files that its input does not name.
    const WRITES_UNNAMED_FILES: bool = matches!(
        Self::KIND,
        ToolKind::Execute | ToolKind::Delete | ToolKind::Move | ToolKind::Other
    );
    /// True if its results are exempt from pruning, because they contain instructions for the work.
    const KEEPS_OUTPUT: bool = false;
    /// True if its arguments stay in memory after the turn, because undo reads them.
    const KEEPS_INPUT: bool = false;
    /// Other names that models use for the tool and its fields.
    const ALIASES: Aliases = Aliases::NONE;
    /// The arguments that the model sends. Doc comments become descriptions in the schema.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    /// The checked input that `prepare` passes to `run`.
    type Ready: Send + 'static;

    /// Replaces values that have only one meaning for this tool, but are not of its types. The
    /// names of the fields are those of the schema. `notes` are for the model.
    fn repair(_fields: &mut Map<String, Value>, _notes: &mut Vec<String>) {}

    /// Returns whether this call may run in parallel with others of its step.
    fn is_concurrent(_input: &Self::Input, _context: &ToolContext) -> bool {
        Self::CONCURRENT
    }

    /// Returns the schema for these arguments if they have a second form, which models use from
    /// habit and which is accepted, but not offered. `None` if the schema of `Input` applies.
    fn other_form(_fields: &Map<String, Value>) -> Option<Value> {
        None
    }

    /// The message to the model after the user has rejected a call without a comment, for tools
    /// after whose rejection the turn continues.
    const REJECTED: Option<&'static str> = None;

    /// Returns the description for the model.
    fn description(&self) -> String {
        Self::DESCRIPTION.trim_ascii_end().to_owned()
    }

    /// Returns a title and the locations of the call for people, as soon as its arguments are
    /// known. Pure; the title is one line of at most 120 characters ("Read src/lib.rs:10-40").
    fn describe(input: &Self::Input, context: &ToolContext) -> CallDescription;

    /// Reads, changes nothing, and returns the accesses that the call needs. They are judged in
    /// order.
    fn prepare(
        &self,
        input: Self::Input,
        context: &ToolContext,
    ) -> impl Future<Output = Result<(Vec<AccessRequest>, Self::Ready), Failure>> + Send;

    /// Does the work. Must end soon after `context.cancelled` is triggered.
    fn run(
        &self,
        ready: Self::Ready,
        context: ToolContext,
    ) -> impl Future<Output = Result<ToolOutput, Failure>> + Send;
}

/// A permission in the table of settings.
#[derive(Debug, Clone, Copy)]
pub struct PermissionKey {
    /// A sentence on the calls that it covers.
    pub subject: &'static str,
    /// True if the built-in agents that only look for something, such as `explore`, have it.
    pub only_reads: bool,
}

impl PermissionKey {
    /// Returns a permission that agents which only look for something have.
    pub const fn reading(subject: &'static str) -> Self {
        Self {
            subject,
            only_reads: true,
        }
    }

    /// Returns a permission that such agents lack.
    pub const fn acting(subject: &'static str) -> Self {
        Self {
            subject,
            only_reads: false,
        }
    }
}

/// The permissions for a part of a tool, by name: listing a directory (`read`), and reading the
/// todo list (`todowrite`). They have the names of tools that other agents offer.
pub const PARTIAL_KEYS: [(&str, PermissionKey); 2] = [
    (
        "list",
        PermissionKey::reading("Listing a directory, in addition to `read`; patterns are paths."),
    ),
    ("todoread", PermissionKey::acting("Reading the todo list.")),
];

/// The agents and models that a tool is offered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// Every agent whose rules do not deny it.
    Everyone,
    /// Agents that a rule of their own allows it: the built-in rules deny it by name.
    ByName,
    /// Models that were trained to edit with patches. For others it is unlisted.
    PatchModels,
    /// Models that were not trained to edit with patches. For those that were it is unlisted.
    OtherModels,
    /// No model by default: the session adds the tool to the steps that have a use for it.
    PerStep,
}

/// A call as people see it before it runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallDescription {
    pub title: String,
    pub locations: Vec<Location>,
}

/// The resources of a tool call, by lifetime.
#[derive(Clone)]
pub struct ToolContext {
    pub call: CallContext,
    /// The state that lives as long as the session.
    pub session: Arc<SessionContext>,
    /// The directories and settings of the project.
    pub project: Arc<ProjectContext>,
    /// The channels to the session and the editor.
    pub client: ClientContext,
    /// The rules and grants of the agent, and the context in which they are evaluated.
    pub policy: Arc<Policy>,
    /// The sandbox of this agent's commands.
    pub sandbox_choice: process::sandboxing::SandboxChoice,
    /// The limits of output for the model.
    pub limits: OutputLimits,
    pub cancelled: CancellationToken,
}

/// The resources that belong to one call.
#[derive(Debug, Clone)]
pub struct CallContext {
    pub id: CallId,
    /// The message that contains the call, if any.
    pub message: Option<MessageId>,
    /// A note for the model on the order in which the calls of its message run, if it differs from
    /// the order in the message. Only one of the calls has it.
    pub order_note: Option<String>,
    /// The facts that become known while the call runs.
    pub facts: LiveFacts,
    /// The name of the agent that makes the call.
    pub agent: String,
    /// True if that agent may start the agent `explore`.
    pub can_explore: bool,
    /// Environment variables for a command, in addition to the usual ones.
    pub variables: Vec<(String, String)>,
    /// The instruction files in the model's context.
    pub instructions: Arc<files::loaded_instructions::LoadedInstructions>,
    /// The receiver of the writes of the call's programs. `None` for work outside any call.
    pub write_observer: Option<Arc<dyn WriteObserver>>,
    /// The receiver of the call's own edits. `None` for work outside any call.
    pub edit_observer: Option<Arc<dyn EditObserver>>,
    /// The analysis of the command line, if the call has one.
    pub analysis: SharedAnalysis,
    /// The trace context of the call, to be sent to MCP servers.
    pub trace: Option<TraceContext>,
}

/// A receiver of the edits of a call.
pub trait EditObserver: std::fmt::Debug + Send + Sync {
    /// Reports that the call has written or removed a file. The path is absolute, with symlinks
    /// resolved. Blocks while the file is read.
    fn edited(&self, path: &Path);
}

/// The state that the calls of a session share.
#[derive(Clone)]
pub struct SessionContext {
    pub id: SessionId,
    /// The mark of notes to the model.
    pub mark: ReminderMark,
    /// The files that the model has seen, and their state at that time.
    pub seen: Arc<files::read_tracker::ReadTracker>,
    pub todos: Arc<todos::Todos>,
    /// The background commands.
    pub jobs: Arc<process::background_jobs::Jobs>,
    /// The formatters that the user has been notified of.
    pub formatters: Arc<format::NotifiedFormatters>,
    /// The problems of instruction files that the user has been notified of.
    pub instruction_problems: Arc<files::loaded_instructions::NotifiedProblems>,
    /// The language servers.
    pub language: Arc<SessionServers>,
    /// The program and arguments that precede each command; empty for none. `{session}` and `{cwd}`
    /// in them are replaced by the session's id and directory.
    pub exec: Arc<[String]>,
}

/// The project of a session. It changes as a whole, when the settings have changed.
#[derive(Debug, Clone)]
pub struct ProjectContext {
    /// The session's directory, to which relative paths refer.
    pub cwd: PathBuf,
    pub worktree: Arc<Worktree>,
    pub environment: Environment,
    pub settings: Arc<Settings>,
}

/// The channels to the client and the session.
#[derive(Clone)]
pub struct ClientContext {
    /// The channel to the editor.
    pub event_sender: EventSender,
    /// The channel for requests to the session.
    pub session_requests: SessionRequestSender,
    /// The file operations that the editor offers.
    pub files: FileCapabilities,
}

/// The file operations that the editor offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileCapabilities {
    /// True if it reads the text of a file, unsaved changes included.
    pub read: bool,
    /// True if it writes files, so that the user can review and undo.
    pub write: bool,
}

/// The result of a call.
#[derive(Debug, Clone, Default)]
pub struct ToolOutput {
    /// The title for people. If empty, the title of `describe` remains.
    pub title: String,
    /// The text for the model; data, whatever its source. `truncate.rs` shortens it unless `cut` is
    /// set.
    pub text: String,
    /// The first line of the result for the model, for text by others: its source. Nothing in the
    /// text can precede it. It is neither stored with a long text nor shown to people.
    pub heading: String,
    /// A note of adjutant itself to the model, for instance an exit code. `truncate.rs` appends it
    /// to the text with a mark that nothing in the text can imitate. It is not shown to people.
    pub note: String,
    /// Instructions of the project, which `truncate.rs` appends outside of the note.
    pub instructions: files::loaded_instructions::ProjectInstructions,
    /// The text for people, if it differs from `text` (no line numbers, no tags).
    pub display: Option<String>,
    /// The output of a command as a terminal got it, if that has colours.
    pub coloured: Option<String>,
    /// True if the tool has shortened its output itself.
    pub cut: bool,
    /// The end that remains when the output is shortened.
    pub keep: truncate::KeepEnd,
    /// Further facts on the call.
    pub facts: CallFacts,
    /// Further facts that only the editor reads.
    pub metadata: Map<String, Value>,
    /// The changes of files that the call has made itself.
    pub changes: Vec<Change>,
    /// The locations of the work. If empty, those of `describe` remain.
    pub locations: Vec<Location>,
    /// Images and other files for the model.
    pub attachments: Vec<File>,
    /// The paths that it shows or comes from, the most important first. The instruction files that
    /// apply to them are added to the result.
    pub touched: Vec<files::loaded_instructions::TouchedPath>,
    /// True if it shows all of the one file in `touched`.
    pub shows_whole_file: bool,
}

impl ToolOutput {
    /// Returns an output that consists only of text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// The reason why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An error for the model to act on; the turn continues.
    #[error("{0}")]
    ForModel(String),
    /// A denial by the user or a rule.
    #[error(transparent)]
    Denied(#[from] permission::Denial),
    /// A denial of something that this call led to. The model gets the message, and the turn ends.
    #[error("{0}")]
    Stopped(String),
    /// A further permission is needed to continue, for instance for another host.
    #[error("something has to be allowed first")]
    NeedsPermission(Box<FurtherCall>),
    /// A cancellation by the user, without output.
    #[error("cancelled")]
    Cancelled,
    /// A cancellation by the user while the call waited to start. It had no effect.
    #[error("cancelled")]
    NotBegun,
    /// A cancellation by the user during the run, with the output up to then.
    #[error("cancelled")]
    CutOff {
        text: String,
        /// The output of a command as a terminal got it, if that has colours.
        coloured: Option<String>,
        /// The whole output, if `text` has only its beginning and its end.
        whole: Option<WholeOutput>,
    },
    /// An internal error. The log gets the cause, the model a plain sentence.
    #[error("{0}")]
    Broken(String),
}

/// The whole output of a command, of which a part is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeOutput {
    /// A sentence on its location, or on the reason why it is not stored.
    pub location: String,
    /// The file that contains it; `None` if it is not stored.
    pub path: Option<PathBuf>,
}

impl Failure {
    pub fn for_model(text: impl Into<String>) -> Self {
        Self::ForModel(text.into())
    }
}

impl ToolContext {
    /// Resolves a path as the model writes it: relative paths start at the cwd, `~` is the home
    /// directory. Does not access the disk.
    pub fn absolute(&self, path: &str) -> PathBuf {
        if let Some(home) = &self.project.environment.home {
            if path == "~" {
                return home.clone();
            }
            if let Some(rest) = path.strip_prefix("~/") {
                return home.join(rest);
            }
        }
        self.project.cwd.join(path)
    }

    /// Returns the encodings that the user names for the project's files.
    pub fn encoding_hints(&self) -> files::encoding::EncodingHints {
        files::encoding::EncodingHints::new(
            &self.project.worktree,
            self.project.settings.file_encoding,
        )
    }

    /// Returns a path for people and rules: relative to the worktree if it is inside, with `/` as
    /// separator.
    pub fn relative(&self, path: &Path) -> String {
        self.project.worktree.relative(path)
    }

    /// Sends an update of the running call to the editor.
    pub async fn progress(&self, update: CallUpdate) {
        let update = CallUpdate {
            call: Some(self.call.id.clone()),
            ..update
        };
        self.client
            .event_sender
            .event(Event::Call(Box::new(update)))
            .await;
    }

    /// Reads the text of a file through the editor, unsaved changes included. Returns `None` if the
    /// editor does not offer that or refuses, or if the user cancels.
    pub async fn read_buffer(&self, path: &Path) -> Option<String> {
        if !self.client.files.read {
            return None;
        }
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.client
            .event_sender
            .send(TurnMessage::Read(ReadFile {
                path: path.into(),
                reply,
            }))
            .await
            .then_some(())?;
        tokio::select! {
            answer = answer => answer.ok()?.ok(),
            () = self.cancelled.cancelled() => None,
        }
    }

    /// Writes a file through the editor. Returns `None` if the editor does not offer that, or is no
    /// longer connected.
    pub async fn write_buffer(&self, path: &Path, text: &str) -> Option<Result<(), NotWritten>> {
        if !self.client.files.write {
            return None;
        }
        let (reply, answer) = tokio::sync::oneshot::channel();
        let message = TurnMessage::Write(WriteFile {
            path: path.into(),
            text: text.into(),
            reply,
        });
        self.client.event_sender.send(message).await.then_some(())?;
        // A cancel does not end the wait: the caller must know whether the file was written.
        answer.await.ok()
    }
}

/// A tool with its types erased.
pub trait AnyTool: Send + Sync {
    fn name(&self) -> &str;
    /// Returns the description for the model.
    fn description(&self) -> String;
    /// Returns the JSON Schema of its arguments.
    fn schema(&self) -> Arc<Value>;
    /// Returns the kind of work.
    fn kind(&self) -> ToolKind;
    /// Returns whether calls may run in parallel with others of their step, whatever their
    /// arguments.
    fn concurrent(&self) -> bool;
    /// Returns whether this call may run in parallel; depends on its arguments.
    fn is_concurrent(&self, _input: &Value, _context: &ToolContext) -> bool {
        self.concurrent()
    }
    /// Returns the message to the model after the user has rejected a call without a comment, for
    /// tools after whose rejection the turn continues.
    fn rejected(&self) -> Option<&'static str> {
        None
    }
    /// Returns the permission that hides the tool when it is denied for everything.
    fn permission(&self) -> &str;
    /// Returns the MCP server that provides the tool, if any.
    fn server(&self) -> Option<&str> {
        None
    }
    /// Returns whether the tool comes from an MCP server or an extension.
    fn is_foreign(&self) -> bool {
        self.server().is_some()
    }
    /// Returns whether the tool is in the lists that models get. An unlisted tool may be called.
    fn listed(&self) -> bool {
        true
    }
    /// Converts the arguments to the form that this tool takes, if their meaning is clear. Happens
    /// before anything is judged.
    ///
    /// # Errors
    /// A message for the model on the arguments that do not fit.
    fn accept(&self, input: Value) -> Result<AcceptedArguments, String> {
        Ok(AcceptedArguments {
            input,
            notes: Vec::new(),
            is_exact: true,
        })
    }
    /// Returns a title and locations for the arguments; `None` if they are invalid.
    fn describe(&self, input: &Value, context: &ToolContext) -> Option<CallDescription>;
    /// Checks the arguments and prepares the call, see [`Tool::prepare`].
    fn prepare<'a>(
        &'a self,
        input: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<PreparedCall, Failure>>;
}

/// Arguments in the form that their tool takes.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedArguments {
    pub input: Value,
    /// Notes for the model on the repair.
    pub notes: Vec<String>,
    /// False if a field was left out that may matter: one that the tool does not have, and that is
    /// neither empty nor a comment on the call.
    pub is_exact: bool,
}

/// A call that is ready to run after its access requests are allowed.
pub struct PreparedCall {
    /// The access requests, to be judged in order.
    pub requests: Vec<AccessRequest>,
    pub run: RunCall,
}

/// The rest of a call that needs a further permission.
#[derive(Debug)]
pub struct FurtherCall {
    pub call: PreparedCall,
    /// True if it continues something that was allowed a moment ago. The user is then not asked
    /// again; only a deny prevents it.
    pub is_allowed: bool,
}

/// The work of a call after it has been allowed.
pub type RunCall =
    Box<dyn FnOnce(ToolContext) -> BoxFuture<'static, Result<ToolOutput, Failure>> + Send>;

impl std::fmt::Debug for PreparedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreparedCall")
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

/// Wraps a tool, so that tools of different types can be in one list.
pub fn erase<T: Tool>(tool: T) -> Arc<dyn AnyTool> {
    Arc::new(ErasedTool {
        tool: Arc::new(tool),
        schema: OnceLock::new(),
    })
}

struct ErasedTool<T> {
    tool: Arc<T>,
    /// The schema, generated at its first use.
    schema: OnceLock<Arc<Value>>,
}

impl<T: Tool> AnyTool for ErasedTool<T> {
    fn name(&self) -> &str {
        T::NAME
    }

    fn description(&self) -> String {
        self.tool.description()
    }

    fn schema(&self) -> Arc<Value> {
        self.schema
            .get_or_init(|| Arc::new(input_schema::<T::Input>()))
            .clone()
    }

    fn kind(&self) -> ToolKind {
        T::KIND
    }

    fn concurrent(&self) -> bool {
        T::CONCURRENT
    }

    fn rejected(&self) -> Option<&'static str> {
        T::REJECTED
    }

    fn is_concurrent(&self, input: &Value, context: &ToolContext) -> bool {
        let input = serde_json::from_value(input.clone());
        input.map_or(T::CONCURRENT, |input| T::is_concurrent(&input, context))
    }

    fn permission(&self) -> &str {
        T::PERMISSION
    }

    fn accept(&self, input: Value) -> Result<AcceptedArguments, String> {
        argument_repair::accept::<T>(input, &self.schema())
    }

    fn describe(&self, input: &Value, context: &ToolContext) -> Option<CallDescription> {
        let input = serde_json::from_value(input.clone()).ok()?;
        Some(T::describe(&input, context))
    }

    fn prepare<'a>(
        &'a self,
        input: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<PreparedCall, Failure>> {
        Box::pin(async move {
            let name = T::NAME;
            let schema = self.schema();
            let sent = text::cut_chars(&input.to_string(), 200);
            let wrong = |why: String| {
                Failure::ForModel(format!(
                    "The {name} tool was called with invalid arguments: {why}. You sent {sent}. It takes {}.",
                    argument_repair::describe_arguments(&schema)
                ))
            };
            let input = self.accept(input).map_err(wrong)?.input;
            let input = serde_json::from_value(input).map_err(|e| wrong(e.to_string()))?;
            let (requests, ready) = self.tool.prepare(input, context).await?;
            let tool = self.tool.clone();
            Ok(PreparedCall {
                requests,
                run: Box::new(move |context| {
                    Box::pin(async move { tool.run(ready, context).await })
                }),
            })
        })
    }
}

/// Returns the schema of a tool's input in the form for models: an object, no `$schema`, no title.
pub fn input_schema<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|s| {
        s.meta_schema = None;
        s.inline_subschemas = true;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    input::simplify(&mut schema);
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("description");
        schema
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
    }
    schema
}
