//! The trial of a sandbox: a restricted process of adjutant attempts every forbidden operation, and
//! reports the ones that succeed.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The input of a trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Trial {
    /// The directory with the files that it attempts to change.
    pub(super) directory: PathBuf,
    /// The port that it attempts to reach, by TCP and UDP.
    pub(super) port: u16,
    /// The process that started the trial, which the trial attempts to signal and read.
    pub(super) prober: Process,
}

/// A process, identified by its id and its start time: ids are reused, and differ between
/// namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    id: u32,
    /// The start time in ticks of the system; `None` if it is not visible.
    begun: Option<u64>,
}

impl Process {
    /// Reads the start time of a process.
    pub(super) fn read(id: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name, in brackets, may contain any character; the time is the 20th field after it.
        let begun = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
        Self { id, begun }
    }

    /// Returns whether the id denotes the same process in this namespace, as far as that is
    /// visible.
    fn is_here(self) -> bool {
        let here = Self::read(self.id);
        here.begun.is_none() || here == self
    }

    /// Returns whether this process may send it a signal.
    fn can_be_signalled(self) -> bool {
        let id = i32::try_from(self.id)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        self.is_here() && id.is_some_and(|id| rustix::process::test_kill_process(id).is_ok())
    }

    /// Returns whether its variables, its memory or its working directory can be read. Its open
    /// files are not a criterion, because root may list their numbers.
    fn can_be_read(self) -> bool {
        let path = |name: &str| format!("/proc/{}/{name}", self.id);
        let opened = |name| {
            fs::File::open(path(name))
                .and_then(|mut file| io::Read::read(&mut file, &mut [0]))
                .is_ok()
        };
        let memory = || OpenOptions::new().read(true).open(path("mem")).is_ok();
        self.is_here()
            && (opened("environ")
                || opened("maps")
                || memory()
                || fs::read_link(path("cwd")).is_ok())
    }
}

/// The operations that succeeded, by their kind.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TrialOutcome {
    /// Writing inside the directory, which must succeed unless everything is read-only.
    pub(super) inside: bool,
    /// Changing files outside the directory.
    pub(super) outside: bool,
    /// Changing the permissions of a file outside.
    pub(super) modes: bool,
    /// Changing control files inside the directory.
    pub(super) control: bool,
    /// Reaching a port over the network.
    pub(super) network: bool,
    /// Connecting to a Unix socket.
    pub(super) local: bool,
    /// Sending a signal to the prober.
    pub(super) signals: bool,
    /// Reading the environment, memory or working directory of the prober.
    pub(super) secrets: bool,
    /// Having capabilities.
    pub(super) capabilities: bool,
}

impl Trial {
    /// Attempts everything, and prints the outcome as JSON.
    ///
    /// # Errors
    /// If the outcome cannot be printed.
    #[expect(
        clippy::disallowed_methods,
        reason = "a pipe of the process that tries the sandbox"
    )]
    pub(super) fn run(&self) -> Result<(), String> {
        serde_json::to_writer(io::stdout(), &self.attempt())
            .map_err(|e| format!("its outcome cannot be printed: {e}"))
    }

    /// Attempts everything. Returns the outcome.
    pub(super) fn attempt(&self) -> TrialOutcome {
        let path = |name: &str| self.directory.join(name);
        let outside = [
            fs::write(path("outside/made"), "x"),
            append(path("outside/file")),
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(path("outside/file"))
                .map(drop),
            fs::create_dir(path("outside/folder")),
            fs::rename(path("outside/moved"), path("inside/moved")),
            fs::hard_link(path("outside/file"), path("inside/linked"))
                .and_then(|()| append(path("inside/linked"))),
            symlink("../outside/file", path("inside/way-out"))
                .and_then(|()| append(path("inside/way-out"))),
            fs::remove_file(path("outside/doomed")),
            // Opened, but not written.
            OpenOptions::new()
                .write(true)
                .open("/proc/sys/kernel/core_pattern")
                .map(drop),
        ];
        let modes = [fs::set_permissions(
            path("outside/file"),
            Permissions::from_mode(0o777),
        )];
        let control = [
            fs::write(path("inside/.git/hooks/made"), "x"),
            append(path("inside/.git/config")),
        ];
        let network = [
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).map(drop),
            UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| {
                socket
                    .send_to(b"x", (Ipv4Addr::LOCALHOST, self.port))
                    .map(drop)
            }),
        ];
        TrialOutcome {
            inside: fs::write(path("inside/made"), "x").is_ok(),
            outside: has_success(&outside),
            modes: has_success(&modes),
            control: has_success(&control),
            network: has_success(&network),
            local: UnixStream::connect(path("inside/socket")).is_ok(),
            signals: self.prober.can_be_signalled(),
            secrets: self.prober.can_be_read(),
            capabilities: has_capabilities(),
        }
    }
}

/// Appends to a file.
fn append(path: PathBuf) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(b"x")
}

/// Returns whether one of the attempts has succeeded.
fn has_success(results: &[io::Result<()>]) -> bool {
    results.iter().any(Result::is_ok)
}

/// Returns whether this process has capabilities.
fn has_capabilities() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let sets = status.lines().filter(|line| {
        ["CapPrm:", "CapEff:", "CapAmb:"]
            .iter()
            .any(|set| line.starts_with(set))
    });
    sets.filter_map(|line| line.split_whitespace().nth(1))
        .any(|bits| bits.bytes().any(|digit| digit != b'0'))
}
