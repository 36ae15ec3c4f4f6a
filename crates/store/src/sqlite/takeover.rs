//! Requests for a session that another process has open: a line in that process's named pipe. No
//! socket listens, nothing is polled, and opening a pipe without a reader fails.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use rustix::process::Pid;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::LockHolder;
use base::id::SessionId;

/// The end of the name of a pipe that its process no longer reads.
const CLOSED: &str = "-closed";

/// Returns the name of this process's pipe, which is chosen once.
pub(super) fn own() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let tail: String = std::iter::repeat_with(fastrand::alphanumeric)
            .take(8)
            .collect();
        format!("{}-{tail}", std::process::id())
    })
}

fn pipes_dir(dir: &Path) -> PathBuf {
    dir.join("doors")
}

/// The requests of other processes to this one.
#[derive(Debug)]
pub(crate) struct PipeRequests {
    path: PathBuf,
    pipe: pipe::Receiver,
    text: Vec<u8>,
}

impl PipeRequests {
    /// Opens this process's pipe.
    ///
    /// # Errors
    /// Returns the error of the system if no pipe can be created; then no request can arrive.
    pub(crate) fn listen(dir: &Path) -> std::io::Result<Self> {
        let pipes = pipes_dir(dir);
        base::environment::private_dir(&pipes)?;
        sweep(&pipes);
        let path = pipes.join(own());
        match nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
        // Opened for reading and writing, so that the stream does not end when a sender closes the
        // pipe.
        let pipe = nonblocking().read(true).write(true).open(&path)?;
        Ok(Self {
            path,
            pipe: pipe::Receiver::from_file(pipe)?,
            text: Vec::new(),
        })
    }

    /// Waits for the next request for a session. Returns `None` if the pipe is broken and no more
    /// can arrive.
    pub(crate) async fn next(&mut self) -> Option<SessionId> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                let id = SessionId::new(String::from_utf8_lossy(&line).trim());
                if id.is_well_formed() {
                    return Some(id);
                }
                continue;
            }
            if self.text.len() > 4096 {
                self.text.clear(); // nothing of ours
            }
            if self.pipe.read_buf(&mut self.text).await.ok()? == 0 {
                return None;
            }
        }
    }
}

impl Drop for PipeRequests {
    fn drop(&mut self) {
        // A process that has no pipe yet, or cannot have one, is not about to end. A later process
        // removes the closed pipe.
        std::fs::rename(&self.path, closed(&self.path)).ok();
    }
}

/// Requests the holder of a session to release it. Returns false if it cannot be notified: it runs
/// on another machine, or has ended.
pub(super) fn request_release(dir: &Path, holder: &LockHolder, session: &SessionId) -> bool {
    let Some(Ok(mut pipe)) = pipe_of(dir, holder).map(|path| open(&path)) else {
        return false;
    };
    pipe.write_all(format!("{session}\n").as_bytes()).is_ok()
}

/// True if another process that has a session open no longer reads its pipe: it closes
/// that first when it ends.
pub(super) fn is_exiting(dir: &Path, holder: &LockHolder) -> bool {
    holder.pid != Some(std::process::id())
        && pipe_of(dir, holder).is_some_and(|path| open(&path).is_err() && closed(&path).exists())
}

/// Returns the path that a pipe has once its process no longer reads it.
fn closed(pipe: &Path) -> PathBuf {
    let mut path = pipe.as_os_str().to_owned();
    path.push(CLOSED);
    path.into()
}

/// Returns the path of a process's pipe, if its name is one that a process chooses.
fn pipe_of(dir: &Path, holder: &LockHolder) -> Option<PathBuf> {
    let plain = |name: &&String| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let name = holder.request_address.as_ref().filter(plain)?;
    Some(pipes_dir(dir).join(name))
}

fn open(path: &Path) -> std::io::Result<std::fs::File> {
    // Fails if no process reads the pipe.
    nonblocking().write(true).open(path)
}

/// Returns options to open a pipe without waiting for its other end.
fn nonblocking() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlag::O_NONBLOCK.bits());
    options
}

/// Removes the pipes of ended processes.
fn sweep(pipes: &Path) {
    for entry in std::fs::read_dir(pipes).into_iter().flatten().flatten() {
        let opened = open(&entry.path());
        let is_unread = opened.is_err_and(|e| e.raw_os_error() == Some(Errno::ENXIO as i32));
        if is_unread && !is_of_exiting_process(&entry.file_name()) {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

/// True if a name is that of a closed pipe whose process still runs.
fn is_of_exiting_process(name: &OsStr) -> bool {
    let pipe = name.to_str().and_then(|name| name.strip_suffix(CLOSED));
    let pid = pipe.and_then(|pipe| pipe.split('-').next()?.parse::<i32>().ok());
    pid.and_then(Pid::from_raw)
        .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn request_reaches_living_process_and_no_ended_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut requests = PipeRequests::listen(dir.path()).unwrap();
        let holder = LockHolder {
            request_address: Some(own().into()),
            ..LockHolder::default()
        };
        let wanted = SessionId::new("ses_00000001");
        assert!(request_release(dir.path(), &holder, &wanted));
        assert!(!is_exiting(dir.path(), &holder));
        // A process that has no pipe yet.
        let beginning = LockHolder {
            request_address: Some("1-beginning".into()),
            ..LockHolder::default()
        };
        assert!(!is_exiting(dir.path(), &beginning));
        assert_eq!(requests.next().await, Some(wanted.clone()));
        drop(requests);
        assert!(!request_release(dir.path(), &holder, &wanted));
        assert!(is_exiting(dir.path(), &holder));
        // A process that begins meanwhile leaves the closed pipe.
        sweep(&pipes_dir(dir.path()));
        assert!(is_exiting(dir.path(), &holder));
        let outside = LockHolder {
            request_address: Some("../../etc/x".into()),
            ..LockHolder::default()
        };
        let own_process = LockHolder {
            pid: Some(std::process::id()),
            ..holder
        };
        for other in [outside, own_process, LockHolder::default()] {
            assert!(!request_release(dir.path(), &other, &wanted), "{other:?}");
            assert!(!is_exiting(dir.path(), &other), "{other:?}");
        }
    }
}
