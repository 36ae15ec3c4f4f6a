//! session/prompt: blocks to parts, events to updates, outcome to stop reason.
//!
//! One task sends the updates of a turn and then its response, through one
//! [`UpdateSender`]: that is why every
//! update precedes the response.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use protocol::acp::v1;
use protocol::rpc;
use protocol::table::{Cx, Reply};
use serde_json::{Map, Value};

use super::error::Refusal;
use super::options::Pending;
use super::server::Server;
use super::update::{self, ShownState};
use super::{ask, content, files, form, options};
use crate::event::{Event, Severity, TurnMessage};
use crate::id::SessionId;
use crate::message::{Content, FaultKind, PromptOptions, Text};
use crate::model::offline::CONNECT;
use crate::model::registry::Registry;
use crate::session::Handle;
use crate::session::handle::{PendingTurn, TurnEnd};
use crate::tool::invalid::InvalidTool;
use crate::tool::registry::PROPERTIES;
use crate::tool::structured_output::StructuredOutputTool;
use crate::tool::{Offer, Tool};
use crate::turn::Outcome;

/// session/prompt.
pub fn prompt(server: &Arc<Server>, cx: Cx, request: v1::PromptRequest) -> Reply<v1::PromptResponse> {
    let Some(wait) = server.wait(&request.session_id.0) else {
        return match begin(server, request) {
            Err(refusal) => Reply::now(Err(refusal.into())),
            Ok(begun) => answer(server.clone(), begun, cx),
        };
    };
    // Sent together with the load of its session.
    let server = server.clone();
    Reply::later(async move {
        let open = tokio::select! {
            open = wait.over() => open,
            () = cx.cancelled.cancelled() => false,
        };
        if !open {
            return Ok(v1::PromptResponse::new(v1::StopReason::Cancelled));
        }
        let begun = begin(&server, request)?;
        match answer(server, begun, cx) {
            Reply::Now(result) => result,
            Reply::Later(work) => work.await,
        }
    })
}

/// A turn that has begun; none for a prompt that says nothing.
type StartedPrompt = (Handle, Option<PendingTurn>);

fn begin(server: &Server, request: v1::PromptRequest) -> Result<StartedPrompt, Refusal> {
    let session = server.session(&request.session_id.0)?;
    let schema = of_ours(request.meta.as_ref(), SCHEMA).cloned();
    let options = options(request.meta.as_ref())?;
    let mut parts = content::parts(request.prompt)?;
    if !parts.iter().any(says_something) {
        return Ok((session, None));
    }
    if let Some(options) = options {
        parts.push(Content::PromptOptions(options));
    }
    if let Some(schema) = schema {
        let wrong = |why| Refusal::Invalid(format!("_meta.{OWN}.{SCHEMA} is no JSON Schema: {why}"));
        StructuredOutputTool::new(&schema).map_err(wrong)?;
        parts.push(Content::Format { schema });
    }
    let turn = session.prompt(super::sessions::work(&session, parts))?;
    Ok((session, Some(turn)))
}

/// What a prompt says about itself: further words for the system prompt, and tools that it does without.
fn options(meta: Option<&v1::Meta>) -> Result<Option<PromptOptions>, Refusal> {
    let wrong = |key: &str, why: String| Refusal::Invalid(format!("_meta.{OWN}.{key} {why}"));
    let system = match of_ours(meta, SYSTEM) {
        None | Some(Value::Null) => None,
        Some(Value::String(system)) => Some(system.clone()),
        Some(_) => return Err(wrong(SYSTEM, "must be a text".into())),
    };
    let tools = match of_ours(meta, TOOLS) {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(tools) => serde_json::from_value::<BTreeMap<String, bool>>(tools.clone())
            .map_err(|_| wrong(TOOLS, "must be an object of tools, each true or false".into()))?,
    };
    if let Some(key) = tools.keys().find(|key| !may_be_tool(key)) {
        return Err(wrong(TOOLS, format!("names a tool that does not exist: {key}")));
    }
    let options = PromptOptions { system, tools };
    Ok((options != PromptOptions::default()).then_some(options))
}

/// The names of the tools that need no server.
pub fn built_in_tools() -> Vec<&'static str> {
    let listed = PROPERTIES.iter().filter(|tool| tool.offer != Offer::Unlisted && tool.name != InvalidTool::NAME);
    listed.map(|tool| tool.name).collect()
}

/// Whether a key may stand for a tool. Those of servers are named `server_tool`, and may come later.
pub fn may_be_tool(key: &str) -> bool {
    let built_in = PROPERTIES.iter().any(|tool| tool.name == key || tool.permission == key);
    built_in || key.contains(['*', '?', '_'])
}

fn answer(server: Arc<Server>, begun: StartedPrompt, cx: Cx) -> Reply<v1::PromptResponse> {
    match begun {
        (session, Some(turn)) => Reply::later(async move { show(&server, &session, turn, &cx).await }),
        // Some editors send this after a turn without visible output. An answer without output
        // would make them send it again.
        (session, None) => Reply::later(async move {
            let words = v1::ContentChunk::new("The prompt was empty.".into());
            update::send(&server.peer, &session.id, v1::SessionUpdate::AgentMessageChunk(words)).await;
            Ok(v1::PromptResponse::new(v1::StopReason::EndTurn))
        }),
    }
}

fn says_something(content: &Content) -> bool {
    !matches!(content, Content::Text(Text { text, .. }) if text.trim().is_empty())
}

/// Shows a turn until it has ended, then says how.
async fn show(
    server: &Server,
    session: &Handle,
    mut turn: PendingTurn,
    cx: &Cx,
) -> Result<v1::PromptResponse, rpc::Error> {
    let mut updates = UpdateSender::new(server, session);
    updates.greet().await;
    let mut batch = Vec::new();
    let mut open = true;
    let mut heard = false;
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut turn.outcome => break outcome,
            // The token stays cancelled; once is enough.
            () = cx.cancelled.cancelled(), if !heard => {
                heard = true;
                session.cancel_one(turn.number);
            }
            n = turn.events.recv_many(&mut batch, crate::event::WAITING), if open => {
                open = n > 0;
                updates.show(&mut batch).await;
            }
            Some(()) = updates.calls.next(), if !updates.calls.is_empty() => {}
        }
    };
    while let Ok(up) = turn.events.try_recv() {
        batch.push(up);
    }
    updates.show(&mut batch).await;
    match outcome {
        Ok(TurnEnd { outcome, structured, told }) => {
            cx.after(async move { drop(told) });
            let response = response(outcome)?;
            Ok(match structured {
                Some(result) => response.meta(own(STRUCTURED, result)),
                None => response,
            })
        }
        // The session's task has died: its state on disk is whole, and can be loaded again.
        Err(_) => {
            let message = "The session ended unexpectedly.".to_owned();
            let advice = Some("Load it again to go on; the log says more.".to_owned());
            Err(Refusal::Failed { message, advice }.into())
        }
    }
}

/// What is ours in a request or a response: `_meta.adjutant`.
pub const OWN: &str = "adjutant";
/// In a prompt: the JSON Schema that its result must fit.
pub const SCHEMA: &str = "schema";
/// In the answer to it: the result.
pub const STRUCTURED: &str = "structured";
/// In a prompt: words for the end of the system prompt.
pub const SYSTEM: &str = "system";
/// In a prompt: tools by name, each true or false.
pub const TOOLS: &str = "tools";
/// In the answer to a question, beside a no: what the user says instead.
pub const WORDS: &str = "words";

/// A `_meta` with something of ours.
pub fn own(key: &str, value: Value) -> v1::Meta {
    let ours = Map::from_iter([(key.to_owned(), value)]);
    Map::from_iter([(OWN.to_owned(), Value::Object(ours))])
}

/// What of ours is in a `_meta`.
pub fn of_ours<'a>(meta: Option<&'a v1::Meta>, key: &str) -> Option<&'a Value> {
    meta?.get(OWN)?.get(key)
}

fn response(outcome: Outcome) -> Result<v1::PromptResponse, rpc::Error> {
    let reason = match outcome {
        // Words that came meanwhile have a turn, and an answer, of their own.
        Outcome::Ended | Outcome::Steered => v1::StopReason::EndTurn,
        Outcome::Cancelled => v1::StopReason::Cancelled,
        Outcome::Refused => v1::StopReason::Refusal,
        Outcome::MaxTokens => v1::StopReason::MaxTokens,
        Outcome::StepLimit => v1::StopReason::MaxTurnRequests,
        Outcome::Failed(fault) if fault.kind == FaultKind::Interrupted => v1::StopReason::Cancelled,
        Outcome::Failed(fault) => return Err(Refusal::from(fault).into()),
    };
    Ok(v1::PromptResponse::new(reason))
}

type PendingCalls<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

/// Where a session's messages become lines for the editor.
pub struct UpdateSender<'a> {
    server: &'a Server,
    session: &'a Handle,
    seen: ShownState,
    /// Questions and files the editor is working on, beside the flow of updates.
    calls: PendingCalls<'a>,
}

impl<'a> UpdateSender<'a> {
    /// One that has shown nothing yet.
    pub fn new(server: &'a Server, session: &'a Handle) -> Self {
        let seen = ShownState::new(server.capabilities().shows);
        Self { server, session, seen, calls: FuturesUnordered::new() }
    }

    /// What is said at the beginning of a session's first turn: the commands once more, for editors
    /// that missed them, and what is not as the user may expect.
    async fn greet(&mut self) {
        let Some(notices) = self.session.greeting() else {
            return;
        };
        let project = self.session.project();
        self.event(Event::Commands(project.commands.list())).await;
        if project.models.all().iter().all(|model| model.id.provider == Registry::OFFLINE) {
            let (title, details) = CONNECT.trim().split_once('\n').unwrap_or((CONNECT, ""));
            let (title, details) = (title.to_owned(), Some(details.to_owned()));
            self.event(Event::Notice { severity: Severity::Info, title, details }).await;
        }
        for notice in notices {
            self.event(notice.clone()).await;
        }
    }

    /// Shows what has come up, in order. Words of one part that wait together go out together.
    async fn show(&mut self, batch: &mut Vec<TurnMessage>) {
        self.kept(batch).await;
        let mut ups = batch.drain(..).peekable();
        while let Some(up) = ups.next() {
            match up {
                TurnMessage::Event(mut event) => {
                    while let Some(TurnMessage::Event(next)) = ups.peek()
                        && event.absorb(next)
                    {
                        ups.next();
                    }
                    self.event(event).await;
                }
                TurnMessage::AskPermission(question) => {
                    let session = question.session.as_ref().unwrap_or(&self.session.id);
                    let request = ask::question(session, &question, &mut self.seen);
                    self.calls.push(Box::pin(ask::ask(&self.server.peer, request, *question)));
                }
                TurnMessage::Confirm(question) => {
                    let request = ask::choice(&self.session.id, &question, &mut self.seen);
                    self.calls.push(Box::pin(ask::choose(&self.server.peer, request, *question)));
                }
                TurnMessage::AskQuestions(inquiry) => {
                    let way = form::way(&self.session.id, &inquiry, self.server.capabilities().forms, &mut self.seen);
                    self.calls.push(Box::pin(form::inquire(&self.server.peer, way, *inquiry)));
                }
                TurnMessage::Read(file) => self.calls.push(Box::pin(files::read(&self.server.peer, self.id(), file))),
                TurnMessage::Write(file) => self.calls.push(Box::pin(files::write(&self.server.peer, self.id(), file))),
            }
        }
    }

    /// Waits until what is told of now survives the end of the process. It was written before it came up;
    /// of words that grow, the store has nearly all.
    async fn kept(&mut self, batch: &[TurnMessage]) {
        let mut sessions: Vec<SessionId> = Vec::new();
        for up in batch {
            let (session, event) = match up {
                TurnMessage::Event(Event::Within { session, event }) => (session, &**event),
                TurnMessage::Event(event) => (self.id(), event),
                _ => continue,
            };
            if event.is_kept() && !sessions.contains(session) {
                sessions.push(session.clone());
            }
        }
        for session in sessions {
            self.server.shared.store.handed_over(&session).await;
        }
    }

    /// Shows one event.
    pub async fn event(&mut self, event: Event) {
        let switched = matches!(event, Event::Mode(_) | Event::Options);
        let (session, event) = match event {
            Event::Within { session, event } => (session, *event),
            event => (self.session.id.clone(), event),
        };
        for update in update::updates(&event, &mut self.seen) {
            update::send(&self.server.peer, &session, update).await;
        }
        if switched {
            let options = options::options(self.server, self.session, Pending::default());
            let update = v1::SessionUpdate::ConfigOptionUpdate(v1::ConfigOptionUpdate::new(options));
            update::send(&self.server.peer, &self.session.id, update).await;
        }
    }

    fn id(&self) -> &'a SessionId {
        &self.session.id
    }
}
