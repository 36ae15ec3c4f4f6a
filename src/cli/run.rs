//! `adjutant run`: answers one prompt, or holds a conversation at a terminal, as an ACP client of its
//! own server over a pair of pipes. It prints exactly the information that an editor receives.

mod client;
mod completion;
mod conversation;
mod history;
mod keyboard;
mod prompt;
mod result;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use clap_complete::ArgValueCandidates;
use protocol::acp::{Initialize, NewSession, Prompt, ProtocolVersion, v1};
use protocol::lines::Line;
use protocol::rpc::{CallError, Peer, code};
use protocol::table::Table;
use serde_json::{Map, Value};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::client::Client;
use self::conversation::Conversation;
use super::in_process::{InProcessServer, exit_code, server_error};
use super::project_context::ProjectContext;
use super::telemetry::TelemetryExport;
use super::work::{self, WaitingPrompt};
use super::{complete, input, sessions, terminal};
use acp_server::error::TAKE_OVER;
use acp_server::meta::{
    ALONE, ASKS_FOR_DETAILS, META_KEY, QUIET, REJECTED, SCHEMA, SESSION_MODEL, STRUCTURED, SYSTEM,
    TOOLS, member,
};
use acp_server::prompt::{built_in_tools, can_be_tool};
use base::environment::Environment;
use base::id::SessionId;
use providers::editor_endpoints::EditorEndpoints;
use providers::local;
use remote::observe::EventOffer;
use session::Sessions;
use session::commands::{CommandConditions, Commands};
use session::mention::{self, MentionContext, UnknownName};
use store::Record;
use tools::conversation::structured_output::StructuredOutputTool;
use transcript::ModelRef;

/// Options of `adjutant run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Task or question; `@path` includes a file. Piped text is appended, or is the prompt if none
    /// is given. Without a prompt at a terminal, it asks for one prompt after the other.
    prompt: Vec<String>,
    /// Hold a conversation at the terminal: ask for another prompt after each answer. The default
    /// at a terminal without a prompt.
    #[arg(help_heading = "Prompt", long, conflicts_with_all = ["command", "schema", "detach", "strict"])]
    chat: bool,
    /// Continue the last session of this project.
    #[arg(help_heading = "Session", short, long, conflicts_with = "session")]
    r#continue: bool,
    /// Continue a session, named by its id or the beginning of it.
    #[arg(help_heading = "Session", short, long, value_name = "ID", add = ArgValueCandidates::new(sessions::candidates))]
    session: Option<String>,
    /// Continue in a copy, and leave the session unchanged.
    #[arg(help_heading = "Session", long)]
    fork: bool,
    /// Attach a file: text, an image or a PDF. Can be repeated.
    #[arg(help_heading = "Prompt", short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Agent to work with, which editors call the mode: build, plan or one of your own.
    #[arg(help_heading = "Agent and model", long, visible_alias = "agent", value_name = "NAME", add = ArgValueCandidates::new(complete::modes))]
    mode: Option<String>,
    /// Model to use.
    #[arg(help_heading = "Agent and model", short, long, value_name = "PROVIDER/MODEL", add = ArgValueCandidates::new(complete::models))]
    model: Option<String>,
    /// Reasoning effort (variant) of the model.
    #[arg(help_heading = "Agent and model", long, visible_alias = "effort", value_name = "NAME", add = ArgValueCandidates::new(complete::variants))]
    variant: Option<String>,
    /// Title of the session, instead of one taken from the prompt.
    #[arg(help_heading = "Session", long, value_name = "TEXT")]
    title: Option<String>,
    /// Run a slash command, with the prompt as its arguments: `--command review main` is
    /// `/review main`.
    #[arg(help_heading = "Prompt", long, value_name = "NAME", add = ArgValueCandidates::new(complete::commands))]
    command: Option<String>,
    /// Text to add to the system prompt, for this prompt only.
    #[arg(help_heading = "Prompt", long, value_name = "TEXT")]
    system: Option<String>,
    /// Tools to offer for this prompt, separated by commas: read,grep,bash.
    #[arg(
        help_heading = "Permissions",
        long,
        value_name = "TOOL",
        value_delimiter = ','
    )]
    tools: Vec<String>,
    /// Tools not to offer for this prompt, separated by commas.
    #[arg(
        help_heading = "Permissions",
        long,
        value_name = "TOOL",
        value_delimiter = ',',
        conflicts_with = "tools"
    )]
    without: Vec<String>,
    /// Take over a session that another process has open. What runs there is cancelled.
    #[arg(help_heading = "Session", long, conflicts_with = "fork")]
    take_over: bool,
    /// Directory to work in.
    #[arg(
        help_heading = "Session",
        long,
        value_name = "DIR",
        default_value = "."
    )]
    cwd: PathBuf,
    /// Allow everything that is asked about, for this run only.
    #[arg(help_heading = "Permissions", long, conflicts_with = "deny")]
    allow: bool,
    /// Refuse everything that is asked about, and let the model continue. The default if standard
    /// input is not a terminal, or with `--format result` or `json`.
    #[arg(help_heading = "Permissions", long)]
    deny: bool,
    /// Do not print notes, calls or the session's id; refused calls and errors are still reported.
    #[arg(help_heading = "Output", short, long)]
    quiet: bool,
    /// Exit with 5 if a call was refused because no user could be asked, even if there is an
    /// answer.
    #[arg(help_heading = "Permissions", long, conflicts_with = "detach")]
    strict: bool,
    /// Answer with JSON that matches this JSON Schema, and print nothing else.
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Queue the prompt in the database for a host that runs `adjutant serve --work`, print the
    /// session's id, and exit.
    #[arg(help_heading = "Session", long)]
    detach: bool,
    /// Database to store the session in, instead of the one in the settings.
    #[arg(help_heading = "Session", long, value_name = "URL")]
    store: Option<String>,
    /// Format of the output.
    #[arg(help_heading = "Output", long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    /// Print JSON: the same as --format result.
    #[arg(help_heading = "Output", long, conflicts_with = "format")]
    json: bool,
}

/// The reason for an answer that is incomplete.
const CUT_OFF: &str = "the model's answers were cut off at its output limit";

/// The answer to `/plan` alone, after which a new session would be empty, and so not be stored.
const SWITCHES_NOTHING: &str = "/plan alone switches the mode of a session, and there is none yet; add the task: adjutant run \"/plan TASK\", or --mode plan \"TASK\"";

/// An error in the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// The answer
    Text,
    /// One JSON object at the end: answer, session, model, tokens, cost, exit code
    Result,
    /// All messages of the Agent Client Protocol, one per line
    Json,
}

/// Runs one prompt to its end.
pub(super) async fn run(mut args: Args, environment: Environment) -> ExitCode {
    if args.json {
        args.format = OutputFormat::Result;
    }
    match answer(args, environment).await {
        Ok(code) => ExitCode::from(code),
        Err(e) if e.is::<UsageError>() => terminal::misused(&format!("{e:#}")),
        Err(e) => super::complain(&format!("{e:#}")),
    }
}

struct Task {
    /// The prompt; `None` if a conversation begins without one.
    blocks: Option<Vec<v1::ContentBlock>>,
    is_conversation: bool,
    schema: Option<Value>,
    cwd: PathBuf,
    /// The session to continue.
    earlier: Option<Record>,
    title: Option<String>,
}

/// Checks the options that go together, and the names of tools.
fn check_options(args: &Args) -> Result<(), UsageError> {
    if args.fork && !args.r#continue && args.session.is_none() {
        return Err(UsageError(
            "--fork copies a session: name it with --session, or use --continue".into(),
        ));
    }
    if args.take_over && !args.r#continue && args.session.is_none() {
        return Err(UsageError(
            "--take-over is for an open session: name it with --session, or use --continue".into(),
        ));
    }
    if args.detach && args.format == OutputFormat::Json {
        return Err(UsageError(
            "--format json prints the messages of a turn, for which --detach does not wait; leave one of them out, or use --format result for the session's id as JSON".into(),
        ));
    }
    if let Some(name) = args
        .tools
        .iter()
        .chain(&args.without)
        .find(|name| !can_be_tool(name))
    {
        return Err(UsageError(format!(
            "there is no tool {name}; there are: {}",
            built_in_tools().join(", ")
        )));
    }
    Ok(())
}

async fn answer(args: Args, environment: Environment) -> anyhow::Result<u8> {
    check_options(&args)?;
    let schema = args
        .schema
        .as_deref()
        .map(schema)
        .transpose()
        .map_err(|e| UsageError(format!("--schema: {e:#}")))?;
    let cwd = directory(&args.cwd)?;
    let command = args
        .command
        .as_deref()
        .map(|name| name.trim().trim_start_matches('/'));
    let title = args.title.as_deref().map(session::title::tidy);
    if title.as_deref() == Some("") {
        return Err(UsageError("--title: the title is empty".into()).into());
    }
    let is_conversation = is_conversation(&args)?;
    let blocks = if is_conversation && args.prompt.is_empty() {
        prompt::check_files(&args.files)?;
        None
    } else {
        Some(prompt::blocks(
            command,
            &args.prompt,
            &args.files,
            args.quiet,
        )?)
    };
    let environment = match &args.store {
        Some(url) => environment.with("ADJUTANT_STORE", url),
        None => environment,
    };
    // The run ends before a model could answer with a title.
    let environment = match environment.setting("DISABLE_TITLES") {
        None if !is_conversation => environment.with("ADJUTANT_DISABLE_TITLES", "1"),
        _ => environment,
    };
    let ended = CancellationToken::new();
    let client = Arc::new(Client::new(&args, &environment));
    let telemetry = TelemetryExport::new(&environment);
    let shared = Sessions::new(environment, ended.clone());
    telemetry.watch(&shared);
    let readers = EventOffer::start(&shared.events, &shared.environment);
    let routes = Table::new(client.clone())
        .notification(Client::update)
        .request(Client::request_permission)
        .request(Client::create_elicitation);
    let print = args.format == OutputFormat::Json;
    let mut in_process =
        InProcessServer::start(&shared, ended.clone(), routes, |lines| tee(lines, print))
            .context("no pipe")?;
    let work = async {
        let earlier = earlier(&args, &cwd, &shared).await?;
        match command {
            Some(name) => {
                check_command(name, &args, &cwd, earlier.as_ref(), &shared.environment)?;
            }
            None => {
                let words = args.prompt.join(" ");
                let text = match blocks.as_ref().and_then(|blocks| blocks.first()) {
                    Some(v1::ContentBlock::Text(text)) => text.text.as_str(),
                    _ => "",
                };
                let environment = &shared.environment;
                if !is_conversation || !conversation::is_own_command(text) {
                    check_words(&args, &words, text, &cwd, earlier.as_ref(), environment)?;
                }
                if text.trim() == "/plan" && earlier.is_none() && !is_conversation {
                    return Err(UsageError(SWITCHES_NOTHING.into()).into());
                }
            }
        }
        if args.model.is_some() || args.variant.is_some() {
            find_local_models(args.model.as_deref(), &cwd, earlier.as_ref(), &shared).await?;
        }
        converse(
            &args,
            &in_process.peer,
            &client,
            &shared,
            Task {
                blocks,
                is_conversation,
                schema,
                cwd,
                earlier,
                title,
            },
        )
        .await
    };
    end_if_stuck(is_conversation);
    let code = tokio::select! {
        biased; // a signal while the work begins is not lost
        Some(code) = super::signalled(ended.clone(), false) => Ok(code),
        Some(code) = quit() => Ok(code),
        code = work => code,
    };
    client.end(code.is_err());
    // The server first, so that all its messages are written.
    in_process.stop_serving().await;
    shared.finish().await;
    readers.finish().await;
    telemetry.finish().await;
    in_process.end().await;
    code
}

/// Returns whether prompts are asked for.
///
/// # Errors
/// Returns [`UsageError`] if the command line asks for a conversation without a terminal.
fn is_conversation(args: &Args) -> Result<bool, UsageError> {
    let can_converse = args.format == OutputFormat::Text
        && terminal::question::has_user()
        && terminal::is_watched();
    if args.chat && !can_converse {
        return Err(UsageError(
            "a conversation needs a terminal, and no --format; `adjutant run \"PROMPT\"` answers one prompt"
                .into(),
        ));
    }
    let is_for_one_answer =
        args.command.is_some() || args.schema.is_some() || args.detach || args.strict;
    Ok(args.chat || can_converse && args.prompt.is_empty() && !is_for_one_answer)
}

/// Ends the process after a signal if the reader of standard output has stopped: the thread that
/// handles signals waits for the reader then, so another one does. In a conversation an interrupt
/// only stops an answer.
#[expect(
    clippy::disallowed_methods,
    reason = "the other threads would wait for the reader"
)]
fn end_if_stuck(is_conversation: bool) {
    let watch = move || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let code = runtime.block_on(async {
            let code = signal_to_end(is_conversation).await?;
            while !terminal::is_stuck().await {}
            io::Result::Ok(code)
        })?;
        // The end is stuck, so no other thread is waited for.
        terminal::restore_modes();
        std::process::exit(code)
    };
    let started = std::thread::Builder::new()
        .name("signals".into())
        .spawn(watch);
    if let Err(e) = started {
        tracing::warn!("a reader of the answer that stops will delay the end: {e}");
    }
}

/// Waits for a signal to end, and returns the exit code for it. The first interrupt may be meant
/// for the reader, such as a pager; the second one is not.
async fn signal_to_end(is_conversation: bool) -> io::Result<i32> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let second_interrupt = async {
        if is_conversation {
            return std::future::pending().await;
        }
        interrupt.recv().await;
        interrupt.recv().await;
    };
    let code = tokio::select! {
        _ = hangup.recv() => 129,
        () = second_interrupt => 130,
        _ = terminate.recv() => 143,
    };
    Ok(code)
}

/// Ends the process when its end is stuck, so nothing of the program is waited for.
fn kill_own_process() {
    terminal::restore_modes();
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).ok();
}

/// Waits for the signal to quit, and returns the exit code for it. By default the signal would end
/// the program before it has restored the terminal. A second one ends it at once.
async fn quit() -> Option<u8> {
    let mut signals = signal(SignalKind::quit()).ok()?;
    signals.recv().await;
    base::task::spawn(async move {
        signals.recv().await;
        kill_own_process();
    });
    Some(131)
}

/// Returns the directory to work in.
fn directory(path: &Path) -> Result<PathBuf, UsageError> {
    let name = path.display();
    let whole = std::fs::canonicalize(path)
        .map_err(|e| UsageError(format!("--cwd: {name} cannot be entered: {e}")))?;
    if !whole.is_dir() {
        return Err(UsageError(format!("--cwd: {name} is not a directory")));
    }
    Ok(whole)
}

fn schema(path: &Path) -> anyhow::Result<Value> {
    let name = path.display();
    let text = input::file(path, prompt::MAX_PROMPT_BYTES)?;
    let schema = serde_json::from_str(&text).with_context(|| format!("{name} is not JSON"))?;
    match StructuredOutputTool::new(&schema) {
        Ok(_) => Ok(schema),
        Err(why) => Err(anyhow!("{name} is not a JSON Schema: {why}")),
    }
}

/// Checks that a command exists in the directory of the session.
fn check_command(
    name: &str,
    args: &Args,
    cwd: &Path,
    earlier: Option<&Record>,
    environment: &Environment,
) -> anyhow::Result<()> {
    let directory = earlier.map_or(cwd, |record| record.cwd.as_path());
    let here = ProjectContext::read(directory, environment)?;
    let known = commands(args, &here, earlier).list();
    // The prompts of an MCP server are known when it runs.
    if is_of_server(name, &here) || known.iter().any(|command| command.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = known.iter().map(|command| command.name.as_str()).collect();
    Err(UsageError(format!(
        "--command: there is no command \"{name}\"; there are: {}",
        names.join(", ")
    ))
    .into())
}

/// Returns whether a name begins with that of an MCP server, as those of its prompts and resources.
fn is_of_server(name: &str, here: &ProjectContext) -> bool {
    let servers = &here.loaded.settings.mcp;
    name.split_once(':')
        .is_some_and(|(server, _)| servers.iter().any(|known| known.name == server))
}

/// Searches for the model servers of this machine if the model that the command line names, or
/// whose variant it names, may be one of theirs. A session does not wait for the servers, so it
/// would not know yet that a named model is missing, or which model it begins with.
///
/// # Errors
/// [`UsageError`] if the servers do not have the named model.
async fn find_local_models(
    name: Option<&str>,
    cwd: &Path,
    earlier: Option<&Record>,
    shared: &Sessions,
) -> anyhow::Result<()> {
    let directory = earlier.map_or(cwd, |record| record.cwd.as_path());
    let here = ProjectContext::read(directory, &shared.environment)?;
    let settings = &here.loaded.settings;
    let is_local = |model: &ModelRef| {
        local::is_known(&model.provider)
            && settings
                .providers
                .iter()
                .all(|entry| entry.id != model.provider)
    };
    let named = name.and_then(ModelRef::parse);
    let sources = shared.model_sources();
    let is_needed = match name {
        // A name without a provider may be that of a local model.
        Some(_) => named.as_ref().is_none_or(is_local),
        None => {
            sources.configured(settings).is_offline_only()
                || settings.model.as_ref().is_some_and(is_local)
        }
    };
    // The model of an earlier session is known when the session is open.
    if !is_needed && (name.is_some() || earlier.is_none()) {
        return Ok(());
    }
    // The session uses the servers that are found here.
    let found = sources
        .with_local(settings, &EditorEndpoints::default())
        .await;
    let Some(model) = named else {
        return Ok(());
    };
    let registry = found.unwrap_or_else(|| sources.configured(settings));
    match registry.find(&model) {
        Ok(_) => Ok(()),
        Err(missing) => Err(UsageError(missing.to_string()).into()),
    }
}

/// Returns the commands of the session's mode.
fn commands(args: &Args, here: &ProjectContext, earlier: Option<&Record>) -> Commands {
    let earlier_mode = earlier.and_then(|record| record.agent.as_deref());
    let mode = args.mode.as_deref().or(earlier_mode);
    let mode = mode.and_then(|mode| here.agents.get(mode));
    let agent = mode.unwrap_or_else(|| here.agents.default());
    let skills = Arc::new(here.skills.clone());
    let uses = CommandConditions {
        has_planner: true,
        has_logins: false,
    };
    Commands::new(&here.loaded.settings, &skills, &agent.rules, uses)
}

/// Checks the text of a prompt for a misspelt command, and the typed words in it for files that do not
/// exist, before a model is asked about them.
fn check_words(
    args: &Args,
    words: &str,
    text: &str,
    cwd: &Path,
    earlier: Option<&Record>,
    environment: &Environment,
) -> anyhow::Result<()> {
    if !text.starts_with('/') && !words.contains('@') {
        return Ok(());
    }
    let directory = earlier.map_or(cwd, |record| record.cwd.as_path());
    let here = ProjectContext::read(directory, environment)?;
    if let Some(why) = commands(args, &here, earlier).describe_misspelt(text) {
        return Err(UsageError(why).into());
    }
    let context = MentionContext {
        agents: &here.agents,
        cwd: &here.cwd,
        root: &here.worktree.root,
        home: environment.home.as_deref(),
    };
    // A single word, such as `@Test`, may be a name of another kind. The resources of an MCP server
    // are known when it runs.
    let is_path = |unknown: &UnknownName| unknown.is_path && !is_of_server(&unknown.name, &here);
    let unknown = mention::unknown_names(words, &context);
    let unknown = unknown.iter().filter(|unknown| is_path(unknown));
    let missing = mention::missing_lines(words, &context);
    let missing = missing.iter().map(ToString::to_string);
    let all: Vec<String> = unknown
        .map(ToString::to_string)
        .chain(missing)
        .chain(mention::unreadable_files(words, &context))
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    let all = all.join(" ");
    Err(UsageError(format!(
        "{all} Without the @, or through a pipe, the words are sent as they are."
    ))
    .into())
}

/// Returns the session to continue.
async fn earlier(args: &Args, cwd: &Path, shared: &Sessions) -> anyhow::Result<Option<Record>> {
    let Some(name) = args
        .session
        .as_deref()
        .or(args.r#continue.then_some(sessions::LAST))
    else {
        return Ok(None);
    };
    let id = sessions::find(&shared.store, name, cwd, &shared.environment).await?;
    Ok(Some(shared.store.peek(&id).await?.record))
}

async fn converse(
    args: &Args,
    peer: &Peer,
    client: &Client,
    shared: &Sessions,
    task: Task,
) -> anyhow::Result<u8> {
    peer.call(&hello(client), None)
        .await
        .map_err(server_error)?;
    let is_earlier_session = task.earlier.is_some() && !args.fork;
    let extra = task
        .earlier
        .as_ref()
        .map(|earlier| earlier.additional_directories.clone())
        .unwrap_or_default();
    let cwd = task
        .earlier
        .as_ref()
        .map_or_else(|| task.cwd.clone(), |earlier| earlier.cwd.clone());
    let earlier_session = match &task.earlier {
        Some(record) if task.is_conversation => shared.store.peek(&record.id).await.ok(),
        _ => None,
    };
    let (session, options) = open(args, peer, task.earlier, task.cwd).await?;
    let options = match choose(args, peer, &session).await {
        Ok(chosen) => chosen.unwrap_or(options),
        Err(wrong) => {
            // The new session is empty.
            if !is_earlier_session {
                peer.call(&v1::DeleteSessionRequest::new(session), None)
                    .await
                    .ok();
            }
            return Err(wrong);
        }
    };
    if let Some(title) = &task.title {
        let request = v1::SetSessionTitleRequest::new(session.clone(), title.clone());
        peer.call(&request, None).await.map_err(server_error)?;
    }
    if args.detach {
        let work = WaitingPrompt {
            cwd,
            extra,
            blocks: task.blocks.unwrap_or_default(),
            meta: meta(args, task.schema),
            allow: args.allow,
        };
        let id = SessionId::new(session.0.to_string());
        work::put(&shared.store, &id, &work).await?;
        match args.format {
            OutputFormat::Result => result::print_queued(&id),
            OutputFormat::Text | OutputFormat::Json => terminal::say(id.as_str()),
        }
        return Ok(0);
    }
    let id = SessionId::new(session.0.to_string());
    // A built-in command adds no messages, so the last ones may be those of an earlier turn.
    let earlier = match args.format {
        OutputFormat::Result => result::messages(&shared.store, &id).await,
        OutputFormat::Text | OutputFormat::Json => HashSet::new(),
    };
    // Without readable settings, the server has reported the reason.
    let default_model = ProjectContext::read(&cwd, &shared.environment)
        .ok()
        .and_then(|here| here.loaded.settings.model.clone());
    // Before the spinner invites to an interrupt.
    let mut interrupts = signal(SignalKind::interrupt()).context("no signals")?;
    client.begin(&session, default_model, &options);
    if task.is_conversation {
        let files = if task.blocks.is_some() {
            Vec::new()
        } else {
            args.files.clone()
        };
        let conversation = Conversation {
            args,
            peer,
            client,
            shared,
            session,
            options,
            directory: cwd,
            earlier: earlier_session,
            first: task.blocks,
            files,
            has_pasted_rows: Arc::default(),
            interrupts,
        };
        return conversation.hold().await;
    }
    client.wait_for_model();
    let blocks = task.blocks.unwrap_or_default();
    let meta = meta(args, task.schema);
    let response = send(peer, client, &session, &mut interrupts, (blocks, meta)).await;
    let response = response.map_err(server_error);
    let done = response.and_then(|response| {
        let code = ended(args, client, &response)?;
        Ok((code, response))
    });
    if args.format == OutputFormat::Result {
        result::print(&shared.store, &id, client, &earlier, done.as_ref()).await;
    }
    done.map(|(code, _)| code)
}

/// Sends a prompt, and waits for the end of its turn, which an interrupt cancels.
async fn send(
    peer: &Peer,
    client: &Client,
    session: &v1::SessionId,
    interrupts: &mut Signal,
    (blocks, meta): (Vec<v1::ContentBlock>, Map<String, Value>),
) -> Result<v1::PromptResponse, CallError> {
    let mut request = v1::PromptRequest::new(session.clone(), blocks);
    if !meta.is_empty() {
        request = request.meta(Map::from_iter([(META_KEY.to_owned(), Value::Object(meta))]));
    }
    let request = Prompt(request);
    let asked = peer.call(&request, None);
    tokio::pin!(asked);
    loop {
        tokio::select! {
            biased; // the prompt is sent before its cancellation
            response = &mut asked => return response,
            Some(()) = interrupts.recv() => {
                client.interrupt();
                let cancel = v1::CancelNotification::new(session.clone());
                peer.notify("session/cancel", &cancel).await;
            }
        }
    }
}

/// Returns the options of the prompt, for its metadata.
fn meta(args: &Args, schema: Option<Value>) -> Map<String, Value> {
    let only = (!args.tools.is_empty()).then_some(("*", false));
    let named = args.tools.iter().map(|name| (name.as_str(), true));
    let without = args.without.iter().map(|name| (name.as_str(), false));
    let tools: Map<_, _> = only
        .into_iter()
        .chain(named)
        .chain(without)
        .map(|(key, on)| (key.into(), on.into()))
        .collect();
    let tools = (!tools.is_empty()).then(|| Value::Object(tools));
    let system = args.system.clone().map(Value::String);
    let all = [(SCHEMA, schema), (SYSTEM, system), (TOOLS, tools)];
    all.into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

/// Returns the kinds of elicitation that a terminal supports.
fn elicitation_capabilities() -> v1::ElicitationCapabilities {
    let forms = v1::ElicitationFormCapabilities::new();
    let addresses = v1::ElicitationUrlCapabilities::new();
    v1::ElicitationCapabilities::new()
        .form(forms)
        .url(addresses)
}

fn hello(client: &Client) -> Initialize {
    let mut offers = v1::ClientCapabilities::new();
    let mut flags = vec![SESSION_MODEL];
    if client.can_ask_user() {
        offers = offers.elicitation(elicitation_capabilities());
        flags.push(ASKS_FOR_DETAILS);
    } else {
        flags.push(ALONE);
    }
    if client.is_quiet() {
        flags.push(QUIET);
    }
    if client.shows_subagents() {
        offers = offers.subagents(v1::SubagentCapabilities::new());
    }
    let flags = flags.into_iter().map(|flag| (flag.to_owned(), true.into()));
    let meta = Map::from_iter([(META_KEY.to_owned(), Value::Object(flags.collect()))]);
    let session = v1::ClientSessionCapabilities::new()
        .notices(v1::NoticeCapabilities::new())
        .compaction(v1::CompactionCapabilities::new());
    let info = v1::Implementation::new("adjutant run", env!("CARGO_PKG_VERSION"));
    let request = v1::InitializeRequest::new(ProtocolVersion::V1);
    Initialize(
        request
            .client_capabilities(offers.session(session).meta(meta))
            .client_info(info),
    )
}

/// Opens a new session, an earlier one, or a copy of an earlier one. Returns its config options as
/// well.
async fn open(
    args: &Args,
    peer: &Peer,
    earlier: Option<Record>,
    cwd: PathBuf,
) -> anyhow::Result<(v1::SessionId, Vec<v1::SessionConfigOption>)> {
    let Some(record) = earlier else {
        let new = NewSession(v1::NewSessionRequest::new(cwd));
        let opened = peer.call(&new, None).await.map_err(server_error)?.response;
        return Ok((opened.session_id, opened.config_options.unwrap_or_default()));
    };
    let id = v1::SessionId::new(record.id.share());
    if args.fork {
        let copy = v1::ForkSessionRequest::new(id, record.cwd)
            .additional_directories(record.additional_directories);
        let opened = peer.call(&copy, None).await.map_err(server_error)?.response;
        return Ok((opened.session_id, opened.config_options.unwrap_or_default()));
    }
    let resume = v1::ResumeSessionRequest::new(id.clone(), record.cwd)
        .additional_directories(record.additional_directories);
    let opened = match peer.call(&resume, None).await.map_err(server_error) {
        Ok(opened) => opened,
        Err(error) => {
            let message = error.to_string();
            let Some(message) = message.strip_suffix(TAKE_OVER) else {
                return Err(error);
            };
            if !args.take_over {
                return Err(anyhow!(
                    "{message}Close it there, or take it over with --take-over; what runs there is then cancelled."
                ));
            }
            // The second request takes it over.
            peer.call(&resume, None).await.map_err(server_error)?
        }
    };
    let options = opened.response.config_options;
    Ok((id, options.unwrap_or_default()))
}

/// Makes the choices of the command line. Returns the config options after them; `None` if there
/// are no choices.
async fn choose(
    args: &Args,
    peer: &Peer,
    session: &v1::SessionId,
) -> anyhow::Result<Option<Vec<v1::SessionConfigOption>>> {
    let mut options = None;
    // The efforts that exist depend on the model.
    for (option, value) in [
        ("mode", &args.mode),
        ("model", &args.model),
        ("effort", &args.variant),
    ] {
        let Some(value) = value else { continue };
        options = Some(set(peer, session, option, value).await?);
    }
    Ok(options)
}

/// Sets a config option. Returns all of them after that.
///
/// # Errors
/// Returns [`UsageError`] if it has no such value.
async fn set(
    peer: &Peer,
    session: &v1::SessionId,
    option: &'static str,
    value: &str,
) -> anyhow::Result<Vec<v1::SessionConfigOption>> {
    let value = v1::SessionConfigOptionValue::value_id(value.to_owned());
    let set = v1::SetSessionConfigOptionRequest::new(session.clone(), option, value);
    let chosen = peer.call(&set, None).await;
    let chosen = chosen.map_err(|error| match error {
        CallError::Refused(refused) if refused.code == code::INVALID_PARAMS => {
            UsageError(format!("{:#}", server_error(CallError::Refused(refused)))).into()
        }
        error => server_error(error),
    })?;
    Ok(chosen.config_options)
}

/// Returns the exit code of a turn, and prints the reason for an incomplete answer.
fn ended(args: &Args, client: &Client, response: &v1::PromptResponse) -> anyhow::Result<u8> {
    let refused = client.has_refused();
    let is_rejected = member(response.meta.as_ref(), REJECTED).is_some();
    let permitted = !is_rejected && (!refused || client.has_answer() && !args.strict);
    if is_rejected {
        client.record_rejection();
    }
    // Notices follow the last line of the answer.
    client.screen.end_line();
    // The reason for a missing answer; `None` if the model has finished.
    let why = match response.stop_reason {
        v1::StopReason::EndTurn if refused || is_rejected => Some("a call was not permitted"),
        v1::StopReason::EndTurn => None,
        v1::StopReason::MaxTokens => Some(CUT_OFF),
        v1::StopReason::Refusal => Some("the model refused to answer"),
        v1::StopReason::Cancelled => Some("it was interrupted"),
        _ => Some("the turn has reached a limit"),
    };
    match (member(response.meta.as_ref(), STRUCTURED), &args.schema) {
        (Some(result), Some(_)) if args.format == OutputFormat::Text => {
            client.end(false);
            terminal::json(&format!("{result:#}"));
            return Ok(if refused && args.strict { 5 } else { 0 });
        }
        (Some(_), Some(_)) => return Ok(if refused && args.strict { 5 } else { 0 }),
        (None, Some(schema)) => {
            let none = format!(
                "the run ended without a result that fits {}",
                schema.display()
            );
            let Some(why) = why else {
                return Err(anyhow!(none));
            };
            client
                .screen
                .print_note(&format!("adjutant: {none}: {why}"));
        }
        (_, None) => {
            if let Some(why) = why
                && response.stop_reason == v1::StopReason::MaxTokens
            {
                client
                    .screen
                    .print_note(&format!("adjutant: the answer is incomplete: {why}"));
            }
            if response.stop_reason == v1::StopReason::Cancelled && client.shows_hints() {
                let next = "interrupted; `adjutant run -c \"PROMPT\"` continues the session";
                client.screen.print_note(next);
            }
            if is_rejected && client.can_ask_user() && client.shows_hints() {
                client
                    .screen
                    .print_note("Answer with `adjutant run -c \"PROMPT\"`.");
            }
        }
    }
    let permitted = permitted && !(refused && args.schema.is_some());
    Ok(exit_code(response, permitted))
}

/// Passes lines on, and prints them first if `print` is set.
fn tee(mut lines: mpsc::Receiver<Line>, print: bool) -> mpsc::Receiver<Line> {
    if !print {
        return lines;
    }
    let (tx, rx) = mpsc::channel(1);
    base::task::spawn(async move {
        while let Some(line) = lines.recv().await {
            if let Line::Text(text) = &line {
                terminal::json(&String::from_utf8_lossy(text));
            }
            if tx.send(line).await.is_err() {
                break;
            }
        }
    });
    rx
}
