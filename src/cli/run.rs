//! `adjutant run`: answers one prompt, as an ACP client of its own server over a pair of pipes. What
//! an editor sees is what is printed here, no more and no less.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use protocol::acp::{NewSession, ProtocolVersion, v1};
use protocol::lines::{self, Line, Outbox};
use protocol::rpc::{CallError, Peer};
use protocol::table::{Cx, Reply, Table};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::terminal::{self, Screen};
use super::{form, input};
use crate::editor::ask::YES;
use crate::editor::initialize::ALONE;
use crate::editor::prompt::{SCHEMA, STRUCTURED, WORDS, of_ours, own};
use crate::editor::server::Server;
use crate::editor::table::table;
use crate::environment::Environment;
use crate::serve::serve;
use crate::session::Shared;
use crate::tool::jobs;
use crate::tool::structured_output::StructuredOutput;

/// Options of `adjutant run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to do or answer. `-` reads it from standard input.
    #[arg(required = true)]
    prompt: Vec<String>,
    /// Allow whatever is asked for, this once.
    #[arg(long, conflicts_with = "deny")]
    allow: bool,
    /// Reject whatever is asked for (also the answer where there is no terminal to ask on).
    #[arg(long)]
    deny: bool,
    /// The mode to work in: build, plan, or one of your own agents.
    #[arg(long, value_name = "NAME")]
    mode: Option<String>,
    /// The model to ask, as provider/model.
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Option<String>,
    /// The directory to work in.
    #[arg(long, value_name = "DIR", default_value = ".")]
    cwd: PathBuf,
    /// A JSON Schema: the run ends with JSON that fits it, and nothing else is printed, or it fails.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// What to print: the answer as Markdown, or the raw ACP lines.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The largest prompt and the largest schema, in bytes.
const LARGEST: u64 = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs one prompt to its end.
pub(super) async fn run(args: Args, environment: Environment) -> ExitCode {
    match answer(args, environment).await {
        Ok(code) => ExitCode::from(code),
        Err(e) => super::complain(&format!("{e:#}")),
    }
}

async fn answer(args: Args, environment: Environment) -> anyhow::Result<u8> {
    let prompt = words(&args.prompt)?;
    let schema = args.schema.as_deref().map(schema).transpose()?;
    let cwd = std::fs::canonicalize(&args.cwd).with_context(|| format!("{} cannot be entered", args.cwd.display()))?;
    let ended = CancellationToken::new();

    // The agent's side.
    let (agent_in, to_agent) = io::pipe().context("no pipe")?;
    let (from_agent, agent_out) = io::pipe().context("no pipe")?;
    let agent = Peer::new(Outbox::start(agent_out));
    let shared = Shared::new(environment, ended.clone());
    let server = Server::new(shared.clone(), agent.clone(), ended.clone());
    let serving = tokio::spawn({
        let (server, ended) = (server.clone(), ended.clone());
        async move { serve(&table(&server), lines::read(agent_in), &agent, &ended).await }
    });

    // Our side.
    let peer = Peer::new(Outbox::start(to_agent));
    let client = Arc::new(Client::new(&args));
    let routes =
        Table::new(client.clone()).notification(Client::update).request(Client::permit).request(Client::inquire);
    let lines = tee(lines::read(from_agent), args.format == Format::Json);
    let done = CancellationToken::new();
    let reading = tokio::spawn({
        let (peer, done) = (peer.clone(), done.clone());
        async move { serve(&routes, lines, &peer, &done).await }
    });

    let code = tokio::select! {
        code = converse(&args, &peer, &client, cwd, prompt, schema) => code,
        Some(code) = super::signalled(ended.clone(), false) => Ok(code),
    };
    client.leave();
    client.finish();
    ended.cancel();
    // The agent's end first: what it still had to say has been written by then.
    serving.await.ok();
    shared.finish().await;
    done.cancel();
    reading.await.ok();
    code
}

fn words(prompt: &[String]) -> anyhow::Result<String> {
    if prompt == ["-"] {
        return input::read(Path::new("-"), LARGEST);
    }
    Ok(prompt.join(" "))
}

fn schema(path: &Path) -> anyhow::Result<Value> {
    let name = path.display();
    let text = input::file(path, LARGEST)?;
    let schema = serde_json::from_str(&text).with_context(|| format!("{name} is no JSON"))?;
    match StructuredOutput::new(&schema) {
        Ok(_) => Ok(schema),
        Err(why) => Err(anyhow!("{name} is no JSON Schema: {why}")),
    }
}

async fn converse(
    args: &Args,
    peer: &Peer,
    client: &Client,
    cwd: PathBuf,
    prompt: String,
    schema: Option<Value>,
) -> anyhow::Result<u8> {
    let person = client.person();
    let mut offers = v1::ClientCapabilities::new();
    offers = match person {
        true => offers.elicitation(v1::ElicitationCapabilities::new().form(v1::ElicitationFormCapabilities::new())),
        false => offers.meta(own(ALONE, Value::Bool(true))),
    };
    let session = v1::ClientSessionCapabilities::new()
        .notices(v1::NoticeCapabilities::new())
        .compaction(v1::CompactionCapabilities::new());
    let hello = v1::InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(offers.session(session))
        .client_info(v1::Implementation::new("adjutant run", env!("CARGO_PKG_VERSION")));
    peer.call(&hello, None).await.map_err(said)?;
    let session = peer.call(&NewSession(v1::NewSessionRequest::new(cwd)), None).await.map_err(said)?.session_id;
    for (option, value) in [("mode", &args.mode), ("model", &args.model)] {
        if let Some(value) = value {
            let value = v1::SessionConfigOptionValue::value_id(value.clone());
            let set = v1::SetSessionConfigOptionRequest::new(session.clone(), option, value);
            peer.call(&set, None).await.map_err(said)?;
        }
    }
    client.busy();
    let mut request = v1::PromptRequest::new(session.clone(), vec![prompt.into()]);
    if let Some(schema) = schema {
        request = request.meta(own(SCHEMA, schema));
    }
    let asked = peer.call(&request, None);
    tokio::pin!(asked);
    let response = loop {
        tokio::select! {
            response = &mut asked => break response,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("no signals")?;
                let cancel = v1::CancelNotification::new(session.clone());
                peer.notify("session/cancel", &cancel).await;
            }
        }
    };
    let response = response.map_err(said)?;
    // Why it ended without the answer that was wanted; none where the model was done.
    let why = match response.stop_reason {
        v1::StopReason::EndTurn if client.rejected.load(Ordering::Relaxed) => Some("something was not permitted"),
        v1::StopReason::EndTurn => None,
        v1::StopReason::MaxTokens => Some("the model's answers were cut off at its output limit"),
        v1::StopReason::Refusal => Some("the model refused to answer"),
        v1::StopReason::Cancelled => Some("it was interrupted"),
        _ => Some("it has reached a limit of its turn"),
    };
    let result = of_ours(response.meta.as_ref(), STRUCTURED);
    match (result, &args.schema) {
        (Some(result), Some(_)) if args.format == Format::Text => {
            client.finish();
            terminal::json(&format!("{result:#}"));
            return Ok(0);
        }
        (Some(_), Some(_)) => return Ok(0),
        (None, Some(schema)) => {
            let none = format!("the run ended without a result that fits {}", schema.display());
            let Some(why) = why else { return Err(anyhow!(none)) };
            client.screen.aside(&format!("adjutant: {none}: {why}"));
        }
        (_, None) => {
            if let Some(why) = why.filter(|_| response.stop_reason == v1::StopReason::MaxTokens) {
                client.screen.aside(&format!("adjutant: the answer is not complete: {why}"));
            }
        }
    }
    Ok(match response.stop_reason {
        v1::StopReason::EndTurn if client.rejected.load(Ordering::Relaxed) => 5,
        v1::StopReason::EndTurn => 0,
        v1::StopReason::Cancelled => 130,
        _ => 3,
    })
}

/// An error of our own server, in its own words.
fn said(error: CallError) -> anyhow::Error {
    match error {
        CallError::Refused(error) => {
            let details = error.data.as_ref().and_then(|data| data["details"].as_str());
            anyhow!("{}", details.unwrap_or(&error.message))
        }
        error => anyhow!("{error}"),
    }
}

/// Passes lines on, and prints them first if asked to.
fn tee(mut lines: mpsc::Receiver<Line>, print: bool) -> mpsc::Receiver<Line> {
    if !print {
        return lines;
    }
    let (tx, rx) = mpsc::channel(1);
    tokio::spawn(async move {
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

/// The client's side: prints what comes, answers what is asked.
struct Client {
    format: Format,
    /// Words are not printed: a result is.
    silent: bool,
    allow: bool,
    deny: bool,
    /// Something was asked for and rejected.
    rejected: AtomicBool,
    screen: Screen,
    // Std mutexes: leaves, never held across an await.
    /// The message whose words were printed last.
    message: Mutex<Option<v1::MessageId>>,
    /// What runs in the background.
    background: Mutex<BTreeSet<String>>,
}

impl Client {
    fn new(args: &Args) -> Self {
        Self {
            format: args.format,
            silent: args.schema.is_some(),
            allow: args.allow,
            deny: args.deny,
            rejected: AtomicBool::new(false),
            screen: Screen::new(args.format == Format::Text),
            message: Mutex::default(),
            background: Mutex::default(),
        }
    }

    /// Whether somebody is there who can be asked.
    fn person(&self) -> bool {
        self.format == Format::Text && !self.allow && !self.deny && io::stdin().is_terminal()
    }

    /// Shows that work has begun.
    fn busy(&self) {
        self.screen.busy("thinking");
    }

    /// Says what ends with the run, which somebody may have hoped would go on.
    fn leave(&self) {
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        if self.format == Format::Text && !background.is_empty() {
            let ids: Vec<&str> = background.iter().map(String::as_str).collect();
            self.screen.end_line();
            self.screen.aside(&format!("note: what runs in the background ends with this run: {}", ids.join(", ")));
        }
    }

    /// Leaves the terminal as it should be.
    fn finish(&self) {
        self.screen.finish();
        if self.format == Format::Text {
            self.screen.end_line();
        }
    }

    /// session/update.
    fn update(client: &Arc<Self>, note: v1::SessionNotification) {
        if client.format == Format::Json {
            return;
        }
        let screen = &client.screen;
        match note.update {
            v1::SessionUpdate::AgentMessageChunk(_) if client.silent => {}
            v1::SessionUpdate::AgentMessageChunk(chunk) => client.words(chunk),
            v1::SessionUpdate::ToolCall(call) => screen.doing(&call.title),
            v1::SessionUpdate::ToolCallUpdate(update) => {
                if let Some(facts) = &update.fields.raw_output
                    && let Some(id) = facts[jobs::ID].as_str()
                {
                    let mut background = client.background.lock().unwrap_or_else(PoisonError::into_inner);
                    if facts[jobs::ENDED].is_null() {
                        background.insert(id.to_owned());
                    } else {
                        background.remove(id);
                    }
                }
                if update.fields.status == Some(v1::ToolCallStatus::InProgress) {
                    return;
                }
                if let Some(title) = &update.fields.title {
                    screen.did(title);
                }
            }
            v1::SessionUpdate::Notice(notice) => {
                let text = notice.description.map_or(notice.title.clone(), |more| format!("{} {more}", notice.title));
                screen.aside(&format!("note: {text}"));
            }
            v1::SessionUpdate::CompactionUpdate(update) if update.status == v1::CompactionStatus::InProgress => {
                screen.aside("note: summarising the conversation to make room");
            }
            _ => {}
        }
    }

    /// Prints more of the answer.
    fn words(&self, chunk: v1::ContentChunk) {
        let v1::ContentBlock::Text(text) = chunk.content else {
            return;
        };
        let mut message = self.message.lock().unwrap_or_else(PoisonError::into_inner);
        if message.is_some() && *message != chunk.message_id {
            self.screen.paragraph();
        }
        *message = chunk.message_id;
        self.screen.words(&text.text);
    }

    /// session/request_permission.
    fn permit(
        client: &Arc<Self>,
        cx: Cx,
        request: v1::RequestPermissionRequest,
    ) -> Reply<v1::RequestPermissionResponse> {
        let client = client.clone();
        Reply::later(async move {
            // A question about the session, whose answer is kept: only a person can give it.
            let kept = request.options.iter().any(|option| *option.option_id.0 == *YES);
            let person = client.format == Format::Text && io::stdin().is_terminal();
            let mut said = None;
            let asked = if kept && (client.allow || client.deny || !person) {
                None
            } else if client.allow {
                Some(v1::PermissionOptionKind::AllowOnce)
            } else if client.deny || !person {
                Some(v1::PermissionOptionKind::RejectOnce)
            } else {
                let (client, request) = (client.clone(), request.clone());
                let asking = tokio::task::spawn_blocking(move || client.ask(&request));
                let answer = tokio::select! {
                    answer = asking => answer.ok().flatten(),
                    // The question was withdrawn. Whoever types now types for nobody.
                    () = cx.cancelled.cancelled() => None,
                };
                answer.map(|(kind, words)| {
                    said = words.filter(|_| !kept);
                    kind
                })
            };
            let chosen = request.options.iter().find(|option| Some(option.kind) == asked);
            if !kept
                && said.is_none()
                && asked != Some(v1::PermissionOptionKind::AllowOnce)
                && asked != Some(v1::PermissionOptionKind::AllowAlways)
            {
                client.rejected.store(true, Ordering::Relaxed);
                let title = request.tool_call.fields.title.clone().unwrap_or_default();
                client.screen.aside(&format!("rejected: {title}"));
            }
            Ok(v1::RequestPermissionResponse::new(match chosen {
                Some(option) => {
                    let meta = said.map(|words| own(WORDS, words.into()));
                    let chosen = v1::SelectedPermissionOutcome::new(option.option_id.clone()).meta(meta);
                    v1::RequestPermissionOutcome::Selected(chosen)
                }
                None => v1::RequestPermissionOutcome::Cancelled,
            }))
        })
    }

    /// elicitation/create.
    fn inquire(
        client: &Arc<Self>,
        cx: Cx,
        request: v1::CreateElicitationRequest,
    ) -> Reply<v1::CreateElicitationResponse> {
        let client = client.clone();
        Reply::later(async move {
            let asking = tokio::task::spawn_blocking(move || form::ask(&request, &mut |text| client.typed(text)));
            let cancelled = || v1::CreateElicitationResponse::new(v1::ElicitationAction::Cancel);
            Ok(tokio::select! {
                answer = asking => answer.unwrap_or_else(|_| cancelled()),
                () = cx.cancelled.cancelled() => cancelled(),
            })
        })
    }

    /// Shows a text and waits for a line; none at the end of the input.
    fn typed(&self, text: &str) -> Option<String> {
        let line = self.screen.ask(&format!("{text}> "), || {
            let mut line = String::new();
            io::stdin().read_line(&mut line)?;
            Ok(line)
        });
        line.ok().filter(|line| !line.is_empty())
    }

    /// Asks at the terminal. Beside a no may stand what the user said instead.
    fn ask(&self, request: &v1::RequestPermissionRequest) -> Option<(v1::PermissionOptionKind, Option<String>)> {
        use v1::PermissionOptionKind as Kind;
        let title = request.tool_call.fields.title.clone().unwrap_or_default();
        let mut text = format!("\n? {title}\n");
        for content in request.tool_call.fields.content.iter().flatten() {
            match content {
                v1::ToolCallContent::Diff(diff) => {
                    let old = diff.old_text.as_deref().unwrap_or("");
                    let name = diff.path.display().to_string();
                    let shown = similar::TextDiff::from_lines(old, &diff.new_text);
                    text += &shown.unified_diff().header(&name, &name).to_string();
                }
                v1::ToolCallContent::Content(content) => {
                    if let v1::ContentBlock::Text(words) = &content.content {
                        text += &format!("  {}\n", words.text);
                    }
                }
                _ => {}
            }
        }
        let once = request.options.iter().any(|option| option.kind == Kind::AllowOnce);
        let yes = if once { Kind::AllowOnce } else { Kind::AllowAlways };
        for option in &request.options {
            let key = match option.kind {
                kind if kind == yes => 'y',
                Kind::AllowAlways => 'a',
                _ => 'n',
            };
            text += &format!("  {key}  {}\n", option.name);
        }
        if once {
            text += "  or what to do instead\n";
        }
        Some(match self.typed(&text)?.trim() {
            "y" | "yes" => (yes, None),
            "a" | "always" => (Kind::AllowAlways, None),
            "" | "n" | "no" => (Kind::RejectOnce, None),
            words => (Kind::RejectOnce, Some(words.to_owned())),
        })
    }
}
