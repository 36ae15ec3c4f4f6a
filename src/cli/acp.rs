//! `adjutant acp`: serves one editor on standard input and output.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use protocol::lines::{self, Outbox};
use protocol::negotiate::Versions;
use protocol::rpc::Peer;
use tokio_util::sync::CancellationToken;

use super::telemetry::TelemetryExport;
use super::wire::{self, WireLog};
use acp_server::server::Server;
use acp_server::{v1, v2};
use base::environment::Environment;
use remote::observe::EventOffer;
use remote::serve;
use session::Sessions;

/// Options of `adjutant acp`.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    draft: DraftSwitch,
    /// Log the messages between the editor and adjutant to this file, for a bug report.
    /// Keys are redacted
    #[arg(long, value_name = "FILE")]
    log_wire: Option<PathBuf>,
}

impl Args {
    /// Opens the log of the connection, if the option or the variable names a file.
    fn wire_log(&self, environment: &Environment) -> Result<Option<WireLog>, String> {
        let variable = environment
            .var(wire::VARIABLE)
            .filter(|path| !path.is_empty());
        let Some(path) = self.log_wire.clone().or(variable.map(PathBuf::from)) else {
            return Ok(None);
        };
        let log = WireLog::open(&path, environment)
            .map_err(|e| format!("the connection cannot be logged to {}: {e}", path.display()))?;
        if path.is_relative() {
            // Editors start agents in the project, or elsewhere.
            let path = std::path::absolute(&path).unwrap_or(path);
            super::terminal::print_note(&format!(
                "adjutant: the connection is logged to {}",
                path.display()
            ));
        }
        Ok(Some(log))
    }
}

/// Whether the draft of the protocol's next version is spoken.
#[derive(Debug, Default, clap::Args)]
pub(super) struct DraftSwitch {
    /// Speak version 2 of the protocol, a draft, with editors that ask for it
    #[arg(long)]
    acp_v2: bool,
}

impl DraftSwitch {
    /// The variable with the same effect: 1 or true.
    const VARIABLE: &str = "ADJUTANT_ACP_V2";

    /// Returns whether the option or the variable selects the draft.
    pub(super) fn is_on(&self, environment: &Environment) -> bool {
        self.acp_v2 || matches!(environment.var(Self::VARIABLE), Some("1" | "true"))
    }
}

/// Serves until the client closes the input, stops reading the output, or a signal arrives.
pub(super) async fn acp(args: &Args, environment: Environment) -> ExitCode {
    let draft = args.draft.is_on(&environment);
    let log = match args.wire_log(&environment) {
        Ok(log) => log,
        Err(why) => return super::complain(&why),
    };
    if std::io::stdin().is_terminal() && super::terminal::is_watched() {
        super::terminal::print_note(
            "note: adjutant acp speaks JSON with an editor, and ends with Ctrl-D; `adjutant run \"PROMPT\"` answers at a terminal",
        );
    }
    let output = match lines::take_stdout() {
        Ok(output) => output,
        Err(e) => return super::complain(&format!("standard output cannot be used: {e}")),
    };
    let ended = CancellationToken::new();
    let (outbox, input) = match &log {
        None => (Outbox::start(output), lines::read(std::io::stdin())),
        Some(log) => (
            Outbox::start(log.output(output)),
            lines::read(log.input(std::io::stdin())),
        ),
    };
    let peer = Peer::new(outbox);
    let telemetry = TelemetryExport::new(&environment);
    let shared = Sessions::new(environment, ended.clone());
    telemetry.watch(&shared);
    let readers = EventOffer::start(&shared.events, &shared.environment);
    // Each version has a server of its own, and the handshake selects one of them.
    let server = |view| Server::new(shared.clone(), peer.clone(), ended.clone(), view);
    let second = draft.then(|| v2::table(&server(v2::new_view)));
    let versions = Versions::new(v1::table(&server(v1::new_view)), second);
    let signal = base::task::spawn(super::signalled(ended.clone(), true));
    serve(&versions, input, &peer, &ended).await;
    shared.finish().await;
    readers.finish().await;
    telemetry.finish().await;
    signal.abort();
    match signal.await {
        Ok(Some(code)) => ExitCode::from(code),
        _ => ExitCode::SUCCESS,
    }
}
