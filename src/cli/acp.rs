//! `adjutant acp`: serves one editor on standard input and output.

use std::process::ExitCode;

use protocol::lines::{self, Outbox};
use protocol::rpc::Peer;
use tokio_util::sync::CancellationToken;

use crate::editor::server::Server;
use crate::editor::table::table;
use crate::environment::Environment;
use crate::serve::serve;
use crate::session::Sessions;

/// Serves until the editor closes our input, stops reading our output, or a signal comes.
pub(super) async fn acp(environment: Environment) -> ExitCode {
    let output = match lines::take_stdout() {
        Ok(output) => output,
        Err(e) => return super::complain(&format!("standard output cannot be used: {e}")),
    };
    let ended = CancellationToken::new();
    let peer = Peer::new(Outbox::start(output));
    let input = lines::read(std::io::stdin());
    let shared = Sessions::new(environment, ended.clone());
    let server = Server::new(shared.clone(), peer.clone(), ended.clone());
    let signal = tokio::spawn(super::signalled(ended.clone(), true));
    serve(&table(&server), input, &peer, &ended).await;
    shared.finish().await;
    signal.abort();
    match signal.await {
        Ok(Some(code)) => ExitCode::from(code),
        _ => ExitCode::SUCCESS,
    }
}
