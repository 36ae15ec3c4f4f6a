//! `adjutant events`: the events of the user's sessions, for other programs.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap_complete::ArgValueCandidates;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::terminal::JsonWriter;
use super::{complete, sessions};
use base::environment::Environment;
use base::id::SessionId;
use remote::observe;

/// The interval at which processes that were started meanwhile are looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The number of events that may wait to be printed. The rest waits in the processes.
const MAX_WAITING: usize = 64;

/// Options of `adjutant events`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only the events of this session and of its subagents: its id, the beginning of it, or `last`
    #[arg(long, value_name = "ID", add = ArgValueCandidates::new(complete::sessions))]
    session: Option<String>,
}

/// A message from a connection to a process.
enum FromProcess {
    Line(String),
    /// The process has ended.
    Ended(PathBuf),
}

/// Prints events as lines of JSON, until a signal arrives or the reader has gone.
pub(super) async fn events(args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    let session = match &args.session {
        None => None,
        Some(name) => Some(session_id(name, environment).await?),
    };
    let dir = observe::directory(environment);
    let ended = CancellationToken::new();
    let mut signal = base::task::spawn(super::signalled(ended.clone(), true));
    let (sender, mut lines) = mpsc::channel(MAX_WAITING);
    let mut known = BTreeSet::new();
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    let mut out = JsonWriter::new();
    loop {
        tokio::select! {
            code = &mut signal => return Ok(code.ok().flatten().unwrap_or_default()),
            _ = looks.tick() => for socket in observe::sockets(&dir) {
                if known.insert(socket.clone()) {
                    base::task::spawn(follow(socket, session.clone(), sender.clone()));
                }
            },
            line = lines.recv() => match line {
                Some(FromProcess::Line(line)) => {
                    // A reader that has gone wants no more events.
                    if out.line(&line).and_then(|()| io::Write::flush(&mut out)).is_err() {
                        return Ok(0);
                    }
                }
                Some(FromProcess::Ended(socket)) => drop(known.remove(&socket)),
                None => return Ok(0),
            },
        }
    }
}

/// Returns the session that a name means. A whole id is taken as it is if no such session is stored:
/// one without messages is not.
async fn session_id(name: &str, environment: &Environment) -> anyhow::Result<SessionId> {
    let store = session::user_store::store(environment);
    let found = sessions::find(&store, name, Path::new("."), environment).await;
    store.stop().await;
    let whole = SessionId::new(name);
    match found {
        Err(_) if whole.is_well_formed() => Ok(whole),
        found => found,
    }
}

/// Passes on the events of one process until it ends.
async fn follow(socket: PathBuf, session: Option<SessionId>, out: mpsc::Sender<FromProcess>) {
    match observe::connect(&socket, session.as_ref()).await {
        Ok(mut lines) => {
            while let Ok(Some(line)) = lines.next_line().await {
                if out.send(FromProcess::Line(line)).await.is_err() {
                    return;
                }
            }
        }
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            // The process was killed, and left its file.
            std::fs::remove_file(&socket).ok();
        }
        Err(e) => tracing::debug!("{} cannot be read: {e}", socket.display()),
    }
    // The receiver is dropped at the end of the program.
    out.send(FromProcess::Ended(socket)).await.ok();
}
