//! The events of this process's sessions for other programs of the same user on this machine, over
//! a socket in a directory that only the user can enter. `adjutant events` reads them.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use base::environment::{Environment, private_dir};
use base::id::SessionId;
use events::bus::{EventBus, EventFilter};

/// The extension of the sockets.
const EXTENSION: &str = "sock";

/// The longest path of a socket on every system, in bytes.
const MAX_PATH_BYTES: usize = 100;

/// The longest request of a reader, in bytes, and its time limit.
const MAX_REQUEST_BYTES: u64 = 4 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a failed accept.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the directory of the sockets.
pub fn directory(environment: &Environment) -> PathBuf {
    environment.dirs.state.join("events")
}

/// Returns the sockets of processes, some of which may have ended.
pub fn sockets(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|known| known == EXTENSION))
        .collect()
}

/// A socket of this process. Its file is removed when this is dropped.
struct Availability {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Availability {
    fn drop(&mut self) {
        // A file that remains is removed by the next reader.
        std::fs::remove_file(&self.path).ok();
    }
}

/// Serves the events to every reader of this user until `ended` is cancelled. Without a socket
/// there are no readers, which is only logged.
pub async fn offer(bus: EventBus, environment: Environment, ended: CancellationToken) {
    if environment.temporary.is_some() {
        return;
    }
    let offer = match bind(&environment) {
        Ok(offer) => offer,
        Err(e) => return tracing::warn!("other programs cannot read the events here: {e}"),
    };
    sweep(&directory(&environment)).await;
    loop {
        let stream = tokio::select! {
            accepted = offer.listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    tracing::warn!("no more programs can read the events at the moment: {e}");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await; // until others have closed
                    continue;
                }
            },
            () = ended.cancelled() => return,
        };
        let bus = bus.clone();
        let ended = ended.clone();
        base::task::spawn(async move {
            tokio::select! {
                served = serve(bus, stream) => if let Err(e) = served {
                    tracing::debug!("a reader of events has ended: {e}");
                },
                () = ended.cancelled() => {}
            }
        });
    }
}

fn bind(environment: &Environment) -> io::Result<Availability> {
    let dir = directory(environment);
    private_dir(&dir)?;
    let path = dir.join(environment.fresh("events"));
    let (_held, reachable) = reachable(&path)?;
    let listener = UnixListener::bind(reachable)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    // Readers find it when it accepts connections, and so never take it for one that was left.
    let offered = path.with_extension(EXTENSION);
    std::fs::rename(&path, &offered)?;
    Ok(Availability {
        listener,
        path: offered,
    })
}

/// Removes the sockets that killed processes have left. Does not wait for a process that is stopped.
async fn sweep(dir: &Path) {
    for socket in sockets(dir) {
        let Ok((_held, path)) = reachable(&socket) else {
            continue;
        };
        let refused = UnixStream::connect(path)
            .await
            .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
        if refused {
            // Another process may have removed it.
            std::fs::remove_file(&socket).ok();
        }
    }
}

/// Returns a path of a socket that is short enough for the system, and the directory that must
/// stay open as long as that path is used.
fn reachable(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    let is_short = path.as_os_str().len() <= MAX_PATH_BYTES;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((None, path.to_owned()));
    };
    if is_short || !cfg!(target_os = "linux") {
        return Ok((None, path.to_owned()));
    }
    let held = File::open(dir)?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&held);
    let short = Path::new("/proc/self/fd")
        .join(number.to_string())
        .join(name);
    Ok((Some(held), short))
}

/// Serves one reader: its request, then events until it leaves.
async fn serve(bus: EventBus, stream: UnixStream) -> io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input.take(MAX_REQUEST_BYTES));
    let mut line = String::new();
    tokio::time::timeout(REQUEST_TIMEOUT, input.read_line(&mut line)).await??;
    let request: Value = serde_json::from_str(&line)?;
    let session = request.get("session").and_then(Value::as_str);
    let mut events = bus.subscribe(EventFilter {
        session: session.map(SessionId::new),
        roots: None,
        traces: false,
    });
    let first =
        json!({ "type": "server.connected", "properties": { "process": std::process::id() } });
    output.write_all(format!("{first}\n").as_bytes()).await?;
    let mut rest = [0];
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // A reader sends nothing more, so this is its end.
            _ = input.read(&mut rest) => return Ok(()),
        };
        output.write_all(format!("{event}\n").as_bytes()).await?;
    }
}

/// Connects to the process behind a socket. Its lines are events.
///
/// # Errors
/// The process has ended, or its socket cannot be used.
pub async fn connect(
    socket: &Path,
    session: Option<&SessionId>,
) -> io::Result<tokio::io::Lines<BufReader<UnixStream>>> {
    let (_held, reachable) = reachable(socket)?;
    let mut stream = UnixStream::connect(reachable).await?;
    let request = json!({ "session": session.map(SessionId::as_str) });
    stream.write_all(format!("{request}\n").as_bytes()).await?;
    Ok(BufReader::new(stream).lines())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn path_of_a_socket_is_short_enough() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let near = dir.path().join("a.sock");
        let (held, path) = reachable(&near).unwrap();
        assert!(held.is_none());
        assert_eq!(path, near);
        if cfg!(target_os = "linux") {
            let (held, path) = reachable(&deep.join("a.sock")).unwrap();
            assert!(held.is_some());
            assert!(path.as_os_str().len() <= MAX_PATH_BYTES);
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            sweep(&deep).await;
            assert_eq!(sockets(&deep), [deep.join("a.sock")]);
            drop(listener);
            sweep(&deep).await;
            assert!(sockets(&deep).is_empty());
        }
    }
}
