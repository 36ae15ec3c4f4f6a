//! The read loop of a connection, its requests in flight, and the end of input; and the transports
//! for clients on other machines. The loop knows no methods: the agent serves a client with it, and
//! `adjutant run` answers its own agent's questions. Standard input and output is one transport of
//! it.
//!
//! The loop never waits for a reply, for the other side, or for the writer (unless a flood of
//! output is not read). Every request gets exactly one reply, even if its handler panics.

pub mod admission;
pub mod bridge;
pub mod budget;
mod command_lists;
mod failover;
pub mod host;
pub mod listen;
pub mod mailbox;
pub mod observe;
mod repeated;
pub mod reply;
pub mod resend_buffer;
pub mod resume;
mod rewrite;
pub mod route;
pub mod slots;
pub mod streams;
pub mod tokens;
mod waiting_lines;
pub mod watch;
pub mod websocket;

use std::collections::HashMap;
use std::time::Duration;

use protocol::acp;
use protocol::lines::{BadLine, Line, Outbox};
use protocol::rpc::{self, Error, Id, Peer, RpcMessage};
use protocol::table::{BoxFuture, Dispatch, RequestContext, Router};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The maximum number of requests in flight. More are refused: if the loop waited, it could not
/// read the cancellation that frees a place.
const MAX_IN_FLIGHT: usize = 1024;

/// The time limit for requests in flight after the end of input, and for the writer.
const IN_FLIGHT_GRACE: Duration = Duration::from_secs(2);

/// The treatment of the requests in flight when a connection ends.
#[derive(Debug, Clone, Copy)]
pub enum InFlightEnd<'a> {
    /// They have a grace period to end in.
    Land,
    /// They continue, and are shown on another connection; their client gets no reply. If this
    /// token is cancelled, they have a grace period instead.
    GoOn(&'a CancellationToken),
}

/// Serves one connection until its input ends, its output breaks, or `ended` is cancelled. Then
/// cancels `ended`, gives requests in flight a grace period, and writes the remaining output.
pub async fn serve(
    table: &impl Router,
    lines: mpsc::Receiver<Line>,
    peer: &Peer,
    ended: &CancellationToken,
) {
    serve_until(table, lines, peer, ended, InFlightEnd::Land).await;
}

/// Serves a connection like [`serve`], with a choice for the requests in flight at the end.
pub async fn serve_until(
    table: &impl Router,
    mut lines: mpsc::Receiver<Line>,
    peer: &Peer,
    ended: &CancellationToken,
    then: InFlightEnd<'_>,
) {
    let outbox = peer.outbox();
    let mut flight = InFlight::default();
    loop {
        tokio::select! {
            biased;
            () = outbox.broken() => break,
            () = ended.cancelled() => break,
            Some(done) = flight.tasks.join_next_with_id(), if !flight.tasks.is_empty() => flight.landed(done, outbox),
            line = lines.recv() => match line {
                Some(line) => handle_line(table, peer, &mut flight, &line),
                None => break,
            },
        }
        tokio::select! {
            () = outbox.drained() => {}
            () = ended.cancelled() => {}
        }
    }
    tracing::debug!(
        "the connection ends with {} requests in flight",
        flight.tasks.len()
    );
    ended.cancel();
    peer.close();
    if matches!(then, InFlightEnd::GoOn(process) if !process.is_cancelled()) {
        let outbox = outbox.clone();
        base::task::spawn(async move {
            while let Some(done) = flight.tasks.join_next_with_id().await {
                flight.landed(done, &outbox);
            }
        });
        return close(peer.outbox()).await;
    }
    let landing = async {
        while let Some(done) = flight.tasks.join_next_with_id().await {
            flight.landed(done, outbox);
        }
    };
    if tokio::time::timeout(IN_FLIGHT_GRACE, landing)
        .await
        .is_err()
    {
        tracing::warn!("requests did not end in time; leaving them");
    }
    close(outbox).await;
}

async fn close(outbox: &Outbox) {
    if tokio::time::timeout(IN_FLIGHT_GRACE, outbox.close())
        .await
        .is_err()
    {
        tracing::warn!("the other side does not read; leaving");
    }
}

fn handle_line(table: &impl Router, peer: &Peer, flight: &mut InFlight, line: &Line) {
    let outbox = peer.outbox();
    let read = match line {
        Line::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => rpc::read(text),
            Err(_) => rpc::read_bad(&BadLine::NotUtf8),
        },
        Line::Bad(bad) => rpc::read_bad(bad),
    };
    match read {
        Err(invalid) => outbox.push(&rpc::failure(&invalid.id, &invalid.error)),
        Ok(RpcMessage::Response { id, outcome }) => peer.resolve(id, outcome),
        Ok(RpcMessage::Notification { method, params }) if method == acp::CANCEL_REQUEST => {
            flight.cancel(params)
        }
        Ok(RpcMessage::Notification { method, params }) => table.notify(&method, params),
        Ok(RpcMessage::Request { id, method, params }) => {
            if flight.live.contains_key(&id) {
                let error =
                    Error::invalid_request("a request with this id is still being answered");
                return outbox.push(&rpc::failure(&id, &error));
            }
            if flight.live.len() >= MAX_IN_FLIGHT {
                let error = Error::invalid_request(format!(
                    "{MAX_IN_FLIGHT} requests are being answered; wait for some"
                ));
                return outbox.push(&rpc::failure(&id, &error));
            }
            let cx = RequestContext::default();
            let reply = table.dispatch(&id, &method, params, &cx);
            flight.start(id, reply, cx, outbox);
        }
    }
}

/// The requests that are being answered.
#[derive(Default)]
struct InFlight {
    /// Each task sends its reply and returns the work to be done after it.
    tasks: JoinSet<Option<BoxFuture<()>>>,
    live: HashMap<Id, CancellationToken>,
    ids: HashMap<tokio::task::Id, Id>,
}

impl InFlight {
    fn start(&mut self, id: Id, reply: Dispatch, cx: RequestContext, outbox: &Outbox) {
        let work = match reply {
            Dispatch::Done(line) => {
                outbox.push(&line);
                self.follow(cx.take_after());
                return;
            }
            Dispatch::Pending(work) => work,
        };
        self.live.insert(id.clone(), cx.cancelled.clone());
        let outbox = outbox.clone();
        let work: BoxFuture<_> = Box::pin(async move {
            let line = work.await;
            // Requests in flight are limited, so their replies need not wait for space in the
            // outbox.
            outbox.push(&line);
            cx.take_after()
        });
        self.ids.insert(self.tasks.spawn(work).id(), id);
    }

    /// Spawns the work after a reply. The request's id may already be in use again.
    fn follow(&mut self, after: Option<BoxFuture<()>>) {
        if let Some(after) = after {
            let work: BoxFuture<_> = Box::pin(async move {
                after.await;
                None
            });
            self.tasks.spawn(work);
        }
    }

    /// Removes an answered request, and answers one whose handler panicked.
    fn landed(
        &mut self,
        done: Result<(tokio::task::Id, Option<BoxFuture<()>>), JoinError>,
        outbox: &Outbox,
    ) {
        let (task, panicked) = match done {
            Ok((task, after)) => {
                self.follow(after);
                (task, false)
            }
            Err(error) => (error.id(), error.is_panic()),
        };
        let Some(id) = self.ids.remove(&task) else {
            return;
        };
        self.live.remove(&id);
        if panicked {
            let error = Error::internal("the request failed unexpectedly; see the log");
            outbox.push(&rpc::failure(&id, &error));
        }
    }

    fn cancel(&mut self, params: &str) {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            request_id: &'a serde_json::value::RawValue,
        }
        let params = serde_json::from_str::<Params<'_>>(params).ok();
        let id = params.and_then(|params| Id::parse(params.request_id.get()));
        if let Some(token) = id.and_then(|id| self.live.get(&id)) {
            token.cancel();
        }
    }
}
