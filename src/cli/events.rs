//! `adjutant events`: the events of the user's sessions, for other programs.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use clap_complete::ArgValueCandidates;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::sessions;
use super::terminal::JsonWriter;
use base::environment::Environment;
use base::id::SessionId;
use remote::observe::{EventLines, EventReader};

/// The number of events that may wait to be printed. The rest waits in the processes.
const MAX_WAITING: usize = 64;

/// Options of `adjutant events`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only the events of this session and of its subagents: its id, the beginning of it, or `last`
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(sessions::candidates))]
    session: Option<String>,
}

/// Prints events as JSON lines, until a signal arrives or the reader has gone.
pub(super) async fn events(args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    let session = match &args.session {
        None => None,
        Some(name) => Some(session_id(name, environment).await?),
    };
    let reader = EventReader::start(environment, session.as_ref())
        .context("programs cannot be notified that events are read here")?;
    let reader = Arc::new(reader);
    let ended = CancellationToken::new();
    let mut signal = base::task::spawn(super::signalled(ended.clone(), true));
    let (sender, lines) = mpsc::channel(MAX_WAITING);
    // On a thread of its own: a reader that stops must not keep a signal from ending the process.
    let mut printing = base::task::spawn_blocking(move || print(lines));
    for socket in reader.earlier() {
        let reader = reader.clone();
        base::task::spawn(follow(
            async move { reader.connect(&socket).await },
            sender.clone(),
        ));
    }
    loop {
        tokio::select! {
            code = &mut signal => return Ok(code.ok().flatten().unwrap_or_default()),
            stream = reader.accept() => {
                let reader = reader.clone();
                base::task::spawn(follow(
                    async move { reader.request(stream).await },
                    sender.clone(),
                ));
            }
            // A reader that has gone wants no more events.
            _ = &mut printing => return Ok(0),
        }
    }
}

/// Prints lines until there are no more.
///
/// # Errors
/// The reader has gone.
fn print(mut lines: mpsc::Receiver<String>) -> io::Result<()> {
    let mut out = JsonWriter::new();
    while let Some(line) = lines.blocking_recv() {
        out.line(&line)?;
        io::Write::flush(&mut out)?;
    }
    Ok(())
}

/// Returns the session that a name means. A whole id is taken as it is if no such session is
/// stored: one without messages is not.
async fn session_id(name: &str, environment: &Environment) -> anyhow::Result<SessionId> {
    let store = session::user_store::open_store(environment);
    let found = sessions::find(&store, name, Path::new("."), environment).await;
    // The beginning of several ids may have the form of a whole one.
    let stored = store.list_with_prefix(name, 1).await.unwrap_or_default();
    store.stop().await;
    let whole = SessionId::new(name);
    match found {
        Err(_) if whole.is_well_formed() && stored.is_empty() => Ok(whole),
        found => found,
    }
}

/// Passes on the events of one process until it ends.
async fn follow(
    process: impl Future<Output = io::Result<EventLines>> + Send,
    out: mpsc::Sender<String>,
) {
    let mut lines = match process.await {
        Ok(lines) => lines,
        Err(e) => return tracing::debug!("a process cannot be read: {e}"),
    };
    while let Ok(Some(line)) = lines.next_line().await {
        if out.send(line).await.is_err() {
            return;
        }
    }
}
