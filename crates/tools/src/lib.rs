//! What the model can do. A tool has two phases, because order matters: `prepare` looks, touches
//! nothing, and names what the call needs; `turn/permit.rs` alone asks; `run` acts on exactly what
//! was shown. A tool does not know that there is a user, an editor or a protocol.
//!
//! One file per tool, all the same shape: doc, input, `impl Tool`, helpers, tests; one line in
//! `registry.rs`. What is asked about a tool elsewhere is a constant of its `impl`.

pub mod registry;
pub mod truncate;

pub mod apply_patch;
pub mod bash;
pub mod bash_output;
pub mod bash_stop;
pub mod edit;
pub mod glob;
pub mod grep;
pub mod invalid;
pub mod list;
pub mod lsp;
pub mod multiedit;
pub mod plan_enter;
pub mod plan_exit;
pub mod question;
pub mod read;
pub mod skill;
pub mod structured_output;
pub mod task;
pub mod todoread;
pub mod todowrite;
pub mod webfetch;
pub mod websearch;
pub mod write;

pub mod accept;
pub mod aliases;
pub mod beneath;
pub mod clock;
pub mod disk;
pub mod document;
pub mod foreign;
pub mod format;
pub mod jobs;
pub mod language;
pub mod loaded_instructions;
pub mod patch;
pub mod path;
pub mod pdf;
pub mod refusal;
pub mod replace;
pub mod search;
pub mod seen;
pub mod todos;

pub mod confinement;
pub mod watch;

mod exit_status;
#[cfg(test)]
mod faults;
#[cfg(test)]
#[cfg(unix)]
mod gate;
pub mod hidden;
mod indent;
mod input;
mod live;
mod merge;
mod nearest;
mod opened;
mod pattern;
mod printed;
#[cfg(test)]
#[cfg(unix)]
mod rows;
pub mod schema;
pub mod scratch;
mod screen;
mod spelling;
#[cfg(test)]
mod test;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use ::lsp::SessionServers;
use accept::AcceptedArguments;
use aliases::Aliases;
use base::environment::Environment;
use base::id::{CallId, MessageId, SessionId};
use base::text;
use base::text::mark::ReminderMark;
use base::worktree::Worktree;
use config::Settings;
use config::settings::OutputLimits;
use events::{
    CallUpdate, Event, LiveFacts, Location, NotWritten, Outlet, ReadFile, SessionRequestSender, ToolKind, TurnMessage,
    WriteFile,
};
use permission::{Need, Policy};
use sandbox::WriteObserver;
use transcript::{CallFacts, Change, File};

pub use futures_util::future::BoxFuture;

/// What one tool looks like, typed.
pub trait Tool: Send + Sync + 'static {
    const NAME: &'static str;
    /// What it does, for the model: `prompts/tool/<name>.md`.
    const DESCRIPTION: &'static str;
    /// What kind of work it does.
    const KIND: ToolKind;
    /// Whether calls of one step may run side by side with others.
    const CONCURRENT: bool;
    /// The permission that hides it when it is denied for everything; `prepare` names it too.
    const PERMISSION: &'static str = Self::NAME;
    const OFFER: Offer = Offer::Everyone;
    /// Whether a call may change files that it does not name.
    const SWEEPS: bool = matches!(Self::KIND, ToolKind::Execute | ToolKind::Delete | ToolKind::Move | ToolKind::Other);
    /// Whether its results stay in the model's view however old they are: they say how to work.
    const KEEPS_OUTPUT: bool = false;
    /// Whether its arguments stay in memory when a turn has ended: undo reads them.
    const KEEPS_INPUT: bool = false;
    /// What models have been seen to call it and its fields.
    const ALIASES: Aliases = Aliases::NONE;
    /// What the model sends. Doc comments become descriptions in the schema.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    /// Checked input, as `prepare` leaves it for `run`.
    type Ready: Send + 'static;

    /// Whether one call may run side by side with others of its step.
    fn beside(_input: &Self::Input, _context: &ToolContext) -> bool {
        Self::CONCURRENT
    }

    /// What the model is told when the user rejects a call without words, where the turn goes on all the same.
    const REJECTED: Option<&'static str> = None;

    /// What it does, for the model.
    fn description(&self) -> String {
        Self::DESCRIPTION.trim_ascii_end().to_owned()
    }

    /// What the call is, for people, as soon as its arguments are known: a title and where it
    /// works. Pure; the title is one line of at most 120 characters ("Read src/lib.rs:10-40").
    fn describe(input: &Self::Input, context: &ToolContext) -> CallDescription;

    /// Looks, touches nothing, names what is needed. The needs are judged in order.
    fn prepare(
        &self,
        input: Self::Input,
        context: &ToolContext,
    ) -> impl Future<Output = Result<(Vec<Need>, Self::Ready), Failure>> + Send;

    /// Acts. Must end soon after `context.cancelled` is.
    fn run(&self, ready: Self::Ready, context: ToolContext)
    -> impl Future<Output = Result<ToolOutput, Failure>> + Send;
}

/// To whom a tool is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Every agent whose rules do not deny it.
    Everyone,
    /// Agents whose rules allow it by name: a general "allow" gives no use for it.
    ByName,
    /// Models that were trained to edit with patches.
    PatchModels,
    OtherModels,
    /// Nobody; it runs when a model calls it all the same, from habit.
    Unlisted,
    /// Only where it is made for a step, by those who know who asks.
    PerStep,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallDescription {
    pub title: String,
    pub locations: Vec<Location>,
}

/// What a tool may use, by how long it lasts.
#[derive(Clone)]
pub struct ToolContext {
    pub call: CallContext,
    /// What lives as long as the session.
    pub session: SessionContext,
    /// Where it works, and with which settings.
    pub project: ProjectContext,
    /// The way up, to the session and the editor.
    pub client: ClientContext,
    /// What the agent may do, and where it is judged.
    pub policy: Arc<Policy>,
    /// What the system forbids the commands of this agent.
    pub confinement: confinement::Confinement,
    /// Limits of what goes to the model.
    pub limits: OutputLimits,
    pub cancelled: CancellationToken,
}

#[derive(Debug, Clone)]
pub struct CallContext {
    pub id: CallId,
    /// The message that it belongs to, where it does to one.
    pub message: Option<MessageId>,
    /// For the model: in which order the calls of its message run, if that is not as they were written. Said with one of
    /// them.
    pub order: Option<String>,
    /// What becomes known of it while it runs.
    pub facts: LiveFacts,
    /// Whose call it is: the name of the agent.
    pub agent: String,
    /// Variables for a command, beyond the usual ones.
    pub variables: Vec<(String, String)>,
    /// The instruction files the model has in front of it.
    pub instructions: Arc<loaded_instructions::LoadedInstructions>,
    /// Learns what the programs of the call write. None for what belongs to no call.
    pub observer: Option<Arc<dyn WriteObserver>>,
}

/// What the calls of one session share.
#[derive(Clone)]
pub struct SessionContext {
    pub id: SessionId,
    /// What notes to the model carry.
    pub mark: ReminderMark,
    /// Which files the model has seen, and in what state.
    pub seen: Arc<seen::SeenFiles>,
    pub todos: Arc<todos::Todos>,
    pub jobs: Arc<jobs::Jobs>,
    /// Which formatters the user was told of.
    pub formatters: Arc<format::ToldFormatters>,
    pub language: Arc<SessionServers>,
    /// What stands before each command: `{session}` and `{cwd}` in it are the session's.
    pub exec: Arc<[String]>,
}

#[derive(Debug, Clone)]
pub struct ProjectContext {
    /// The session's directory: relative paths start here.
    pub cwd: PathBuf,
    pub worktree: Arc<Worktree>,
    pub environment: Environment,
    pub settings: Arc<Settings>,
}

#[derive(Clone)]
pub struct ClientContext {
    /// To whoever shows the session.
    pub outlet: Outlet,
    /// What is asked of the session.
    pub session_requests: SessionRequestSender,
    /// What the editor offers for files.
    pub files: FileCapabilities,
}

/// What the editor offers for files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileCapabilities {
    /// It gives the text of a file, unsaved changes included.
    pub read: bool,
    /// It writes files, so that the user can review and undo.
    pub write: bool,
}

#[derive(Debug, Clone, Default)]
pub struct ToolOutput {
    /// For people; empty keeps the one from `describe`.
    pub title: String,
    /// For the model: data, whoever it comes from. Cut by `truncate.rs` unless `cut` says that it is short
    /// already.
    pub text: String,
    /// What adjutant itself has to say about it to the model, as an exit code: `truncate.rs` puts it below
    /// the text as a note, which nothing in the text can pretend to be.
    pub note: String,
    /// For people, where it should differ from `text` (no line numbers, no tags).
    pub display: Option<String>,
    /// The tool has cut its output itself.
    pub cut: bool,
    /// Which end is kept when it is cut.
    pub keep: truncate::KeepEnd,
    /// What is known of it besides.
    pub facts: CallFacts,
    /// What only the editor reads of that.
    pub metadata: Map<String, Value>,
    pub changes: Vec<Change>,
    /// Where it ended up working; empty keeps the ones from `describe`.
    pub locations: Vec<Location>,
    /// Images and the like for the model.
    pub attachments: Vec<File>,
}

impl ToolOutput {
    /// Words for the model, nothing else.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The model is told, and goes on.
    #[error("{0}")]
    Tell(String),
    /// The user, or a rule, said no.
    #[error(transparent)]
    Denied(#[from] permission::Denial),
    /// The user said no to something this call led to: the model is told, and the turn ends.
    #[error("{0}")]
    Stopped(String),
    /// It has come to something that has to be allowed before it can go on, such as another host.
    #[error("something has to be allowed first")]
    Further(Box<PreparedCall>),
    #[error("cancelled")]
    Cancelled,
    /// The user cancelled it while it ran, and this is what it had printed or found by then.
    #[error("cancelled")]
    CutOff(String),
    /// Something of ours broke: the log gets the cause, the model a plain sentence.
    #[error("{0}")]
    Broken(String),
}

impl Failure {
    pub fn tell(text: impl Into<String>) -> Self {
        Self::Tell(text.into())
    }
}

impl ToolContext {
    /// Resolves a path as the model writes it: relative ones start at the cwd, `~` at home.
    /// Nothing is looked up on disk.
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

    /// A path for people and rules: relative to the worktree where it lies inside, `/` separators.
    pub fn relative(&self, path: &Path) -> String {
        self.project.worktree.relative(path)
    }

    /// Tells people what the running call is doing.
    pub async fn progress(&self, update: CallUpdate) {
        let update = CallUpdate { call: Some(self.call.id.clone()), ..update };
        self.client.outlet.event(Event::Call(Box::new(update))).await;
    }

    /// The text of a file through the editor, unsaved changes included; none where the editor does
    /// not offer that or refuses.
    pub async fn buffer(&self, path: &Path) -> Option<String> {
        if !self.client.files.read {
            return None;
        }
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.client.outlet.send(TurnMessage::Read(ReadFile { path: path.into(), reply })).await.then_some(())?;
        tokio::select! {
            answer = answer => answer.ok()?.ok(),
            () = self.cancelled.cancelled() => None,
        }
    }

    /// Writes a file through the editor. None where the editor does not offer that.
    pub async fn write_buffer(&self, path: &Path, text: &str) -> Option<Result<(), NotWritten>> {
        if !self.client.files.write {
            return None;
        }
        let (reply, answer) = tokio::sync::oneshot::channel();
        let message = TurnMessage::Write(WriteFile { path: path.into(), text: text.into(), reply });
        self.client.outlet.send(message).await.then_some(())?;
        // Not cut short by a cancel: whether the file was written must be known.
        answer.await.ok()
    }
}

/// A tool with its types erased, once, here.
pub trait AnyTool: Send + Sync {
    fn name(&self) -> &str;
    /// What it does, for the model.
    fn description(&self) -> String;
    /// The JSON Schema of its arguments.
    fn schema(&self) -> Arc<Value>;
    /// What kind of work it does.
    fn kind(&self) -> ToolKind;
    /// Whether calls of one step may run side by side with others.
    fn concurrent(&self) -> bool;
    /// Whether one call may: its arguments may say more.
    fn beside(&self, _input: &Value, _context: &ToolContext) -> bool {
        self.concurrent()
    }
    /// What the model is told when the user rejects a call without words, where the turn goes on all the same.
    fn rejected(&self) -> Option<&'static str> {
        None
    }
    /// The permission that hides it when denied for everything.
    fn permission(&self) -> &str;
    /// The MCP server that brings it, if one does.
    fn server(&self) -> Option<&str> {
        None
    }
    /// Whether others wrote it.
    fn is_foreign(&self) -> bool {
        self.server().is_some()
    }
    /// Whether a model is told of it.
    fn listed(&self) -> bool {
        true
    }
    /// The arguments as this tool takes them, where it is clear what is meant; known before anything is judged.
    ///
    /// # Errors
    /// What does not fit, for the model.
    fn accept(&self, input: Value) -> Result<AcceptedArguments, String> {
        Ok(AcceptedArguments { input, notes: Vec::new() })
    }
    /// A title and locations for arguments, as far as they are valid.
    fn describe(&self, input: &Value, context: &ToolContext) -> Option<CallDescription>;
    fn prepare<'a>(&'a self, input: Value, context: &'a ToolContext) -> BoxFuture<'a, Result<PreparedCall, Failure>>;
}

/// A call that is ready to run once its needs are allowed.
pub struct PreparedCall {
    /// To be judged in order.
    pub needs: Vec<Need>,
    pub run: RunCall,
}

/// What a call does once it may.
pub type RunCall = Box<dyn FnOnce(ToolContext) -> BoxFuture<'static, Result<ToolOutput, Failure>> + Send>;

impl std::fmt::Debug for PreparedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("needs", &self.needs).finish_non_exhaustive()
    }
}

pub fn erase<T: Tool>(tool: T) -> Arc<dyn AnyTool> {
    Arc::new(ErasedTool { tool: Arc::new(tool), schema: OnceLock::new() })
}

struct ErasedTool<T> {
    tool: Arc<T>,
    /// Made when it is first asked for.
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
        self.schema.get_or_init(|| Arc::new(schema::<T::Input>())).clone()
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

    fn beside(&self, input: &Value, context: &ToolContext) -> bool {
        let input = serde_json::from_value(input.clone());
        input.map_or(T::CONCURRENT, |input| T::beside(&input, context))
    }

    fn permission(&self) -> &str {
        T::PERMISSION
    }

    fn listed(&self) -> bool {
        T::OFFER != Offer::Unlisted
    }

    fn accept(&self, input: Value) -> Result<AcceptedArguments, String> {
        accept::accept::<T>(input, &self.schema())
    }

    fn describe(&self, input: &Value, context: &ToolContext) -> Option<CallDescription> {
        let input = serde_json::from_value(input.clone()).ok()?;
        Some(T::describe(&input, context))
    }

    fn prepare<'a>(&'a self, input: Value, context: &'a ToolContext) -> BoxFuture<'a, Result<PreparedCall, Failure>> {
        Box::pin(async move {
            let (name, schema) = (T::NAME, self.schema());
            let sent = text::cut_chars(&input.to_string(), 200);
            let wrong = |why: String| {
                Failure::Tell(format!(
                    "The {name} tool was called with invalid arguments: {why}. You sent {sent}. It takes {}.",
                    accept::wanted(&schema)
                ))
            };
            let input = self.accept(input).map_err(wrong)?.input;
            let input = serde_json::from_value(input).map_err(|e| wrong(e.to_string()))?;
            let (needs, ready) = self.tool.prepare(input, context).await?;
            let tool = self.tool.clone();
            Ok(PreparedCall {
                needs,
                run: Box::new(move |context| Box::pin(async move { tool.run(ready, context).await })),
            })
        })
    }
}

/// The schema of a tool's input as models want it: an object, no `$schema`, no title.
pub fn schema<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|s| {
        s.meta_schema = None;
        s.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    input::simplify(&mut schema);
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("description");
        schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    schema
}
