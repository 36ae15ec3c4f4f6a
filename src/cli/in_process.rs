//! An ACP server and its client in one process, connected by a pair of pipes. The client receives
//! the same messages as an editor would.

use std::io;
use std::sync::Arc;

use anyhow::anyhow;
use protocol::acp::v1;
use protocol::lines::{self, Line, Outbox};
use protocol::rpc::{CallError, Peer};
use protocol::table::Router;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use acp_server::meta::{NOT_DONE, member};
use acp_server::server::Server;
use base::task::JoinHandle;
use remote::serve;
use session::Sessions;

/// Both ends of a connection within this process.
pub(super) struct InProcessServer {
    /// The connection to the server.
    pub(super) peer: Peer,
    ended: CancellationToken,
    done: CancellationToken,
    serving: JoinHandle<()>,
    reading: JoinHandle<()>,
}

impl InProcessServer {
    /// Starts serving. `routes` answer the server's requests; `heard` sees its lines first.
    ///
    /// # Errors
    /// Returns an I/O error if no pipe can be created.
    pub(super) fn start(
        shared: &Arc<Sessions>,
        ended: CancellationToken,
        routes: impl Router + Send + Sync + 'static,
        heard: impl FnOnce(mpsc::Receiver<Line>) -> mpsc::Receiver<Line>,
    ) -> io::Result<Self> {
        let (agent_in, to_agent) = io::pipe()?;
        let (from_agent, agent_out) = io::pipe()?;
        let agent = Peer::new(Outbox::start(agent_out));
        let server = Server::new(
            shared.clone(),
            agent.clone(),
            ended.clone(),
            acp_server::v1::new_view,
        );
        let serving = base::task::spawn({
            let ended = ended.clone();
            async move {
                serve(
                    &acp_server::v1::table(&server),
                    lines::read(agent_in),
                    &agent,
                    &ended,
                )
                .await
            }
        });
        let peer = Peer::new(Outbox::start(to_agent));
        let lines = heard(lines::read(from_agent));
        let done = CancellationToken::new();
        let reading = base::task::spawn({
            let peer = peer.clone();
            let done = done.clone();
            async move { serve(&routes, lines, &peer, &done).await }
        });
        Ok(Self {
            peer,
            ended,
            done,
            serving,
            reading,
        })
    }

    /// Stops the server. All its messages are written when this returns.
    pub(super) async fn stop_serving(&mut self) {
        self.ended.cancel();
        (&mut self.serving).await.ok();
    }

    /// Stops the client as well.
    pub(super) async fn end(self) {
        self.done.cancel();
        self.reading.await.ok();
    }
}

/// Returns the exit code of a turn. `permitted` is `false` if the turn lacked a permission.
pub(super) fn exit_code(response: &v1::PromptResponse, permitted: bool) -> u8 {
    match response.stop_reason {
        v1::StopReason::EndTurn if !permitted => 5,
        v1::StopReason::EndTurn if member(response.meta.as_ref(), NOT_DONE).is_some() => 3,
        v1::StopReason::EndTurn => 0,
        v1::StopReason::Cancelled => 130,
        _ => 3,
    }
}

/// Converts an error of the server, with its details as the message.
pub(super) fn server_error(error: CallError) -> anyhow::Error {
    match error {
        CallError::Refused(error) => {
            let details = error
                .data
                .as_ref()
                .and_then(|data| data["details"].as_str());
            anyhow!("{}", details.unwrap_or(&error.message))
        }
        error => anyhow!("{error}"),
    }
}
