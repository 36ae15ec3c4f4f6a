//! The events of this process's sessions for other programs of the same user on this machine, over
//! a socket in a directory that only the user can enter. `adjutant events` reads them.
//!
//! A reader has a socket there as well. A process that starts calls the readers that are there
//! before its first event, so none is missed; a reader that starts calls the processes that are
//! there.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use base::environment::{Environment, private_dir};
use base::id::SessionId;
use events::bus::{EventBus, EventFilter, Subscription};

/// The extension of the sockets at which processes serve their events.
const PROCESS: &str = "sock";

/// The extension of the sockets at which readers wait for processes that start.
const READER: &str = "reader";

/// The longest path of a socket on every system, in bytes.
const MAX_PATH_BYTES: usize = 100;

/// The longest request of a reader, in bytes, and its time limit.
const MAX_REQUEST_BYTES: u64 = 4 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a failed accept.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The time at the end of a process for readers to receive the last events.
const LAST_EVENTS_GRACE: Duration = Duration::from_secs(1);

/// Returns the sockets of processes, some of which may have ended.
fn sockets(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|known| known == extension))
        .collect()
}

/// A socket of this process. Its file is removed when this is dropped.
struct Availability {
    listener: UnixListener,
    path: PathBuf,
}

impl Availability {
    fn new(environment: &Environment, extension: &str) -> io::Result<Self> {
        let dir = environment.dirs.state.join("events");
        private_dir(&dir)?;
        let path = dir.join(environment.fresh("events"));
        let (_held, reachable) = reachable(&path)?;
        let listener = UnixListener::bind(reachable)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        // Others find it when it accepts connections, and so never take it for one that was left.
        let offered = path.with_extension(extension);
        std::fs::rename(&path, &offered)?;
        Ok(Self {
            listener,
            path: offered,
        })
    }

    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Waits for the next connection. Cancel-safe.
    async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(e) => {
                    tracing::warn!("no connection for events can be accepted at the moment: {e}");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await; // until others have closed
                }
            }
        }
    }

    fn name(&self) -> Option<&str> {
        self.path.file_name()?.to_str()
    }
}

impl Drop for Availability {
    fn drop(&mut self) {
        // A file that remains is removed by the next reader.
        std::fs::remove_file(&self.path).ok();
    }
}

/// The events of this process on their way to readers.
pub struct EventOffer {
    tasks: TaskTracker,
    /// Cancelled when no more events will come.
    ended: CancellationToken,
}

impl EventOffer {
    /// Serves the events to every reader of this user. Readers that run already receive each event
    /// from now on. Without a socket there are no readers, which is only logged.
    pub fn start(bus: &EventBus, environment: &Environment) -> Self {
        let offer = Self {
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
        };
        if environment.temporary.is_some() {
            return offer;
        }
        let availability = match Availability::new(environment, PROCESS) {
            Ok(availability) => availability,
            Err(e) => {
                tracing::warn!("other programs cannot read the events here: {e}");
                return offer;
            }
        };
        // A reader that starts now finds the socket.
        let running = sockets(availability.dir(), READER);
        for reader in &running {
            let events = bus.subscribe(EventFilter::default());
            base::task::spawn_in(
                &offer.tasks,
                connect_to_reader(events, reader.clone(), offer.ended.clone()),
            );
        }
        let access = ReaderAccess {
            bus: bus.clone(),
            greeted: running.into(),
            ended: offer.ended.clone(),
        };
        let tasks = offer.tasks.clone();
        base::task::spawn_in(&offer.tasks, accept(availability, access, tasks));
        offer
    }

    /// Waits until the readers have received the last events. One that does not read is left, at
    /// once if it is stopped.
    pub async fn finish(self) {
        self.ended.cancel();
        self.tasks.close();
        if tokio::time::timeout(LAST_EVENTS_GRACE, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::debug!("a reader of events did not receive the last ones");
        }
    }
}

/// The access to the events of this process.
#[derive(Clone)]
struct ReaderAccess {
    bus: EventBus,
    /// The sockets of the readers that this process has called at its start.
    greeted: Arc<[PathBuf]>,
    ended: CancellationToken,
}

/// Calls a reader that was there before this process.
async fn connect_to_reader(events: Subscription, reader: PathBuf, ended: CancellationToken) {
    let called = async {
        let (_held, path) = reachable(&reader)?;
        UnixStream::connect(path).await
    };
    let served = match called.await {
        Ok(stream) => serve(stream, &ended, |_| Some(events)).await,
        Err(e) => {
            if e.kind() == io::ErrorKind::ConnectionRefused {
                // It was killed, and left its file.
                std::fs::remove_file(&reader).ok();
            }
            Err(e)
        }
    };
    if let Err(e) = served {
        tracing::debug!("a reader of events has ended: {e}");
    }
}

/// Serves the readers that connect.
async fn accept(availability: Availability, access: ReaderAccess, tasks: TaskTracker) {
    sweep(availability.dir()).await;
    loop {
        let stream = tokio::select! {
            stream = availability.accept() => stream,
            () = access.ended.cancelled() => return,
        };
        let access = access.clone();
        base::task::spawn_in(&tasks, async move {
            if let Err(e) = serve(stream, &access.ended, |reader| access.open(reader)).await {
                tracing::debug!("a reader of events has ended: {e}");
            }
        });
    }
}

impl ReaderAccess {
    /// Returns a subscription for a reader, unless it has one.
    fn open(&self, reader: Option<&str>) -> Option<Subscription> {
        let is_same = |path: &PathBuf| path.file_name().and_then(OsStr::to_str) == reader;
        let is_greeted = reader.is_some() && self.greeted.iter().any(is_same);
        (!is_greeted).then(|| self.bus.subscribe(EventFilter::default()))
    }
}

/// Removes the sockets that killed processes have left. Does not wait for a process that is
/// stopped.
async fn sweep(dir: &Path) {
    for socket in sockets(dir, PROCESS) {
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

/// The first line of a reader.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// Only the events of this session and of its subagents.
    session: Option<SessionId>,
    /// The file name of the reader's own socket.
    reader: Option<String>,
}

/// Serves one reader: its request, then events until it leaves or `ended` is cancelled. `open`
/// returns its subscription, or `None` if it needs none. A reader that is stopped must not delay
/// the end of this process.
async fn serve(
    stream: UnixStream,
    ended: &CancellationToken,
    open: impl FnOnce(Option<&str>) -> Option<Subscription> + Send,
) -> io::Result<()> {
    let reader = stream.peer_cred().ok().and_then(|reader| reader.pid());
    let is_left = async {
        ended.cancelled().await;
        if !reader.is_some_and(base::process::is_stopped) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased; // the buffer of a stopped reader is filled
        served = send_events(stream, ended, open) => served,
        () = is_left => {
            tracing::debug!("a reader of events is stopped, and did not receive the last ones");
            Ok(())
        }
    }
}

async fn send_events(
    stream: UnixStream,
    ended: &CancellationToken,
    open: impl FnOnce(Option<&str>) -> Option<Subscription> + Send,
) -> io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input.take(MAX_REQUEST_BYTES));
    let mut line = String::new();
    tokio::time::timeout(REQUEST_TIMEOUT, input.read_line(&mut line)).await??;
    let request: Request = serde_json::from_str(&line)?;
    let Some(mut events) = open(request.reader.as_deref()) else {
        return Ok(());
    };
    if let Some(session) = request.session {
        events.select(session);
    }
    let first =
        json!({ "type": "server.connected", "properties": { "process": std::process::id() } });
    output.write_all(format!("{first}\n").as_bytes()).await?;
    let mut rest = [0];
    loop {
        let event = tokio::select! {
            biased; // the last events are sent
            event = events.next() => event,
            // A reader sends nothing more, so this is its end.
            _ = input.read(&mut rest) => return Ok(()),
            () = ended.cancelled() => return Ok(()),
        };
        output.write_all(format!("{event}\n").as_bytes()).await?;
    }
}

/// The lines of a process, each an event.
pub type EventLines = tokio::io::Lines<BufReader<UnixStream>>;

/// A reader of the events of all processes of the user, those that start later included.
pub struct EventReader {
    availability: Availability,
    /// The line that each process receives.
    request: String,
}

impl EventReader {
    /// Makes the reader known to processes that start from now on.
    ///
    /// # Errors
    /// Its socket cannot be created.
    pub fn start(environment: &Environment, session: Option<&SessionId>) -> io::Result<Self> {
        let availability = Availability::new(environment, READER)?;
        let request = Request {
            session: session.cloned(),
            reader: availability.name().map(str::to_owned),
        };
        let request = format!("{}\n", serde_json::to_string(&request)?);
        Ok(Self {
            availability,
            request,
        })
    }

    /// Returns the sockets of processes that were started before, some of which may have ended.
    pub fn earlier(&self) -> Vec<PathBuf> {
        sockets(self.availability.dir(), PROCESS)
    }

    /// Connects to an earlier process.
    ///
    /// # Errors
    /// The process has ended, or its socket cannot be used.
    pub async fn connect(&self, socket: &Path) -> io::Result<EventLines> {
        let (_held, path) = reachable(socket)?;
        let connected = UnixStream::connect(path).await;
        if let Err(e) = &connected
            && e.kind() == io::ErrorKind::ConnectionRefused
        {
            // The process was killed, and left its file.
            std::fs::remove_file(socket).ok();
        }
        self.request(connected?).await
    }

    /// Waits for the next process that starts. Cancel-safe.
    pub async fn accept(&self) -> UnixStream {
        self.availability.accept().await
    }

    /// Requests the events of a process.
    ///
    /// # Errors
    /// The process has ended.
    pub async fn request(&self, mut stream: UnixStream) -> io::Result<EventLines> {
        stream.write_all(self.request.as_bytes()).await?;
        Ok(BufReader::new(stream).lines())
    }
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
            assert_eq!(sockets(&deep, PROCESS), [deep.join("a.sock")]);
            drop(listener);
            sweep(&deep).await;
            assert!(sockets(&deep, PROCESS).is_empty());
        }
    }
}
