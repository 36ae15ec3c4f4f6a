//! A server of this process and a client of it, over a pair of pipes: what an editor would see is what the client sees.

use std::io;
use std::sync::Arc;

use anyhow::anyhow;
use protocol::acp::v1;
use protocol::lines::{self, Line, Outbox};
use protocol::rpc::{CallError, Peer};
use protocol::table::Routes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use acp_server as door;
use acp_server::server::Server;
use base::task::JoinHandle;
use remote::serve;
use session::Sessions;

/// Both ends of a connection within this process.
pub(super) struct Inside {
    /// The way to the server.
    pub(super) peer: Peer,
    ended: CancellationToken,
    done: CancellationToken,
    serving: JoinHandle<()>,
    reading: JoinHandle<()>,
}

impl Inside {
    /// Begins to serve. `routes` answer what the server asks; `heard` sees its lines first.
    ///
    /// # Errors
    /// The system's, where there is no pipe to be had.
    pub(super) fn start(
        shared: &Arc<Sessions>,
        ended: CancellationToken,
        routes: impl Routes + Send + Sync + 'static,
        heard: impl FnOnce(mpsc::Receiver<Line>) -> mpsc::Receiver<Line>,
    ) -> io::Result<Self> {
        let (agent_in, to_agent) = io::pipe()?;
        let (from_agent, agent_out) = io::pipe()?;
        let agent = Peer::new(Outbox::start(agent_out));
        let server = Server::new(shared.clone(), agent.clone(), ended.clone(), door::v1::view);
        let serving = base::task::spawn({
            let ended = ended.clone();
            async move { serve(&door::v1::table(&server), lines::read(agent_in), &agent, &ended).await }
        });
        let peer = Peer::new(Outbox::start(to_agent));
        let lines = heard(lines::read(from_agent));
        let done = CancellationToken::new();
        let reading = base::task::spawn({
            let (peer, done) = (peer.clone(), done.clone());
            async move { serve(&routes, lines, &peer, &done).await }
        });
        Ok(Self { peer, ended, done, serving, reading })
    }

    /// Ends the server's side: what it still had to say has been written when this returns.
    pub(super) async fn stop_serving(&mut self) {
        self.ended.cancel();
        (&mut self.serving).await.ok();
    }

    /// Ends the client's side, too.
    pub(super) async fn end(self) {
        self.done.cancel();
        self.reading.await.ok();
    }
}

/// How a turn has ended; `permitted`: it did not end for want of a permission.
pub(super) fn exit_code(stop: v1::StopReason, permitted: bool) -> u8 {
    match stop {
        v1::StopReason::EndTurn if !permitted => 5,
        v1::StopReason::EndTurn => 0,
        v1::StopReason::Cancelled => 130,
        _ => 3,
    }
}

/// An error of our own server, in its own words.
pub(super) fn said(error: CallError) -> anyhow::Error {
    match error {
        CallError::Refused(error) => {
            let details = error.data.as_ref().and_then(|data| data["details"].as_str());
            anyhow!("{}", details.unwrap_or(&error.message))
        }
        error => anyhow!("{error}"),
    }
}
