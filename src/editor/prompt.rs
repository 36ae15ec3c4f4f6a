//! session/prompt: blocks to parts, events to updates, outcome to stop reason.
//!
//! One task sends the updates of a turn and then its response, through one door: that is why every
//! update precedes the response.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use protocol::acp::v1;
use protocol::rpc;
use protocol::table::{Cx, Reply};
use serde_json::{Map, Value};

use super::error::Refusal;
use super::server::Server;
use super::update::{self, Seen};
use super::{ask, content, files, form, options};
use crate::event::{Event, Up};
use crate::id::SessionId;
use crate::message::{Content, FaultKind, Text};
use crate::session::Handle;
use crate::session::handle::{Ended, Turn};
use crate::tool::structured_output::StructuredOutput;
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
type Begun = (Handle, Option<Turn>);

fn begin(server: &Server, request: v1::PromptRequest) -> Result<Begun, Refusal> {
    let session = server.session(&request.session_id.0)?;
    let schema = of_ours(request.meta.as_ref(), SCHEMA).cloned();
    let mut parts = content::parts(request.prompt)?;
    if !parts.iter().any(says_something) {
        return Ok((session, None));
    }
    if let Some(schema) = schema {
        let wrong = |why| Refusal::Invalid(format!("_meta.{OWN}.{SCHEMA} is no JSON Schema: {why}"));
        StructuredOutput::new(&schema).map_err(wrong)?;
        parts.push(Content::Format { schema });
    }
    let turn = session.prompt(super::sessions::work(&session, parts))?;
    Ok((session, Some(turn)))
}

fn answer(server: Arc<Server>, begun: Begun, cx: Cx) -> Reply<v1::PromptResponse> {
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
async fn show(server: &Server, session: &Handle, mut turn: Turn, cx: &Cx) -> Result<v1::PromptResponse, rpc::Error> {
    let mut door = Door::new(server, session);
    door.greet().await;
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
                door.show(&mut batch).await;
            }
            Some(()) = door.calls.next(), if !door.calls.is_empty() => {}
        }
    };
    while let Ok(up) = turn.events.try_recv() {
        batch.push(up);
    }
    door.show(&mut batch).await;
    match outcome {
        Ok(Ended { outcome, structured, told }) => {
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
const OWN: &str = "adjutant";
/// In a prompt: the JSON Schema that its result must fit.
pub const SCHEMA: &str = "schema";
/// In the answer to it: the result.
pub const STRUCTURED: &str = "structured";
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

type Calls<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>;

/// Where a session's messages become lines for the editor.
pub struct Door<'a> {
    server: &'a Server,
    session: &'a Handle,
    seen: Seen,
    /// Questions and files the editor is working on, beside the flow of updates.
    calls: Calls<'a>,
}

impl<'a> Door<'a> {
    /// A door that has shown nothing yet.
    pub fn new(server: &'a Server, session: &'a Handle) -> Self {
        let seen = Seen::new(server.capabilities().shows);
        Self { server, session, seen, calls: FuturesUnordered::new() }
    }

    /// What is said at the beginning of a session's first turn: the commands once more, for editors
    /// that missed them, and what is not as the user may expect.
    async fn greet(&mut self) {
        let Some(notices) = self.session.greeting() else {
            return;
        };
        self.event(Event::Commands(self.session.base().commands.list())).await;
        for notice in notices {
            self.event(notice.clone()).await;
        }
    }

    /// Shows what has come up, in order. Words of one part that wait together go out together.
    async fn show(&mut self, batch: &mut Vec<Up>) {
        self.kept(batch).await;
        let mut ups = batch.drain(..).peekable();
        while let Some(up) = ups.next() {
            match up {
                Up::Event(mut event) => {
                    while let Some(Up::Event(next)) = ups.peek()
                        && event.absorb(next)
                    {
                        ups.next();
                    }
                    self.event(event).await;
                }
                Up::Ask(question) => {
                    let session = question.session.as_ref().unwrap_or(&self.session.id);
                    let request = ask::question(session, &question, &self.seen);
                    self.calls.push(Box::pin(ask::ask(&self.server.peer, request, *question)));
                }
                Up::Choose(question) => {
                    let request = ask::choice(&self.session.id, &question, &self.seen);
                    self.calls.push(Box::pin(ask::choose(&self.server.peer, request, *question)));
                }
                Up::Inquire(inquiry) => {
                    let way = form::way(&self.session.id, &inquiry, self.server.capabilities().forms, &self.seen);
                    self.calls.push(Box::pin(form::inquire(&self.server.peer, way, *inquiry)));
                }
                Up::Read(file) => self.calls.push(Box::pin(files::read(&self.server.peer, self.id(), file))),
                Up::Write(file) => self.calls.push(Box::pin(files::write(&self.server.peer, self.id(), file))),
            }
        }
    }

    /// Waits until what is told of now survives the end of the process. It was written before it came up;
    /// of words that grow, the store has nearly all.
    async fn kept(&mut self, batch: &[Up]) {
        let mut sessions: Vec<SessionId> = Vec::new();
        for up in batch {
            let (session, event) = match up {
                Up::Event(Event::Within { session, event }) => (session, &**event),
                Up::Event(event) => (self.id(), event),
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
            let options = options::options(self.session, None, None);
            let update = v1::SessionUpdate::ConfigOptionUpdate(v1::ConfigOptionUpdate::new(options));
            update::send(&self.server.peer, &self.session.id, update).await;
        }
    }

    fn id(&self) -> &'a SessionId {
        &self.session.id
    }
}
