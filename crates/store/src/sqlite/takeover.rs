//! Requests for a session that another process has open: a line in that process's named pipe. No
//! socket listens, nothing is polled, and opening a pipe without a reader fails.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::LockHolder;
use base::id::SessionId;

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
        // The next process removes remaining pipes.
        std::fs::remove_file(&self.path).ok();
    }
}

/// Requests the holder of a session to release it. Returns false if it cannot be notified: it runs
/// on another machine, or has ended.
pub(super) fn ask(dir: &Path, holder: &LockHolder, session: &SessionId) -> bool {
    let Some(Ok(mut pipe)) = pipe_of(dir, holder).map(|path| open(&path)) else {
        return false;
    };
    pipe.write_all(format!("{session}\n").as_bytes()).is_ok()
}

/// Returns whether another process that has a session open does not read its pipe any more: it
/// closes that first when it ends.
pub(super) fn is_exiting(dir: &Path, holder: &LockHolder) -> bool {
    let closed = [Errno::ENXIO as i32, Errno::ENOENT as i32];
    let opened = pipe_of(dir, holder).map(|path| open(&path));
    let why = opened.and_then(|opened| opened.err()?.raw_os_error());
    holder.pid != Some(std::process::id()) && why.is_some_and(|why| closed.contains(&why))
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

/// Removes the pipes of killed processes.
fn sweep(pipes: &Path) {
    for entry in std::fs::read_dir(pipes).into_iter().flatten().flatten() {
        if open(&entry.path()).is_err_and(|e| e.raw_os_error() == Some(Errno::ENXIO as i32)) {
            std::fs::remove_file(entry.path()).ok();
        }
    }
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
        assert!(ask(dir.path(), &holder, &wanted));
        assert!(!is_exiting(dir.path(), &holder));
        assert_eq!(requests.next().await, Some(wanted.clone()));
        drop(requests);
        assert!(!ask(dir.path(), &holder, &wanted));
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
            assert!(!ask(dir.path(), &other, &wanted), "{other:?}");
            assert!(!is_exiting(dir.path(), &other), "{other:?}");
        }
    }
}
