//! The lock of a session, which one process at a time holds from the creation of the session on.
//! The operating system releases the lock of a killed process.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{BusySession, LockHolder};
use base::environment::private_file;
use base::id::SessionId;

/// A held lock. It is released when the value is dropped, and when the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    // Held open for its lock.
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file is removed while it is still locked: a process that has opened it in the
        // meantime detects that, and creates a new one. A remaining file locks nothing.
        std::fs::remove_file(&self.path).ok();
    }
}

/// The reason why a lock is not available.
#[derive(Debug)]
pub(super) enum LockError {
    Held(LockHolder),
    Io(std::io::Error),
}

/// The function that locks a file; tests pass one that fails.
pub(super) type Flock = fn(&File) -> Result<(), TryLockError>;

impl Lock {
    /// Takes the lock at `path`, and writes the holder into its file.
    pub(super) fn take(path: &Path, pipe: &str) -> Result<Self, LockError> {
        Self::take_with(path, pipe, File::try_lock)
    }

    /// True if the lock's file names a process that is alive. Takes no lock, which would
    /// interfere with others.
    pub(super) fn is_held(path: &Path) -> bool {
        let is_alive =
            |path: &Path| File::open(path).is_ok_and(|mut file| alive(&holder(&mut file)));
        is_alive(path) || is_alive(&path.with_extension("held"))
    }

    /// Returns the process that the lock's file names, if it is alive and not this one.
    fn other_holder(path: &Path) -> Option<u32> {
        let holder = holder(&mut File::open(path).ok()?);
        let pid = holder.pid.filter(|pid| *pid != std::process::id())?;
        alive(&holder).then_some(pid)
    }

    pub(super) fn take_with(path: &Path, pipe: &str, flock: Flock) -> Result<Self, LockError> {
        loop {
            let mut file = open(path).map_err(LockError::Io)?;
            match flock(&file) {
                Ok(()) => {
                    if !is_at(&file, path) {
                        // The last owner removed the file between opening and locking.
                        continue;
                    }
                    write_holder(&mut file, pipe);
                    return Ok(Self {
                        path: path.to_path_buf(),
                        _file: file,
                    });
                }
                Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(&mut file))),
                Err(TryLockError::Error(e)) => {
                    drop(file);
                    return Self::without_locks(path, pipe, &e);
                }
            }
        }
    }

    /// Creates a marker file instead of a lock, on a file system without locks. A marker outlives a
    /// killed process, so it is valid only while its process is alive on this machine.
    fn without_locks(path: &Path, pipe: &str, why: &std::io::Error) -> Result<Self, LockError> {
        static WARNED: std::sync::Once = std::sync::Once::new();
        WARNED.call_once(|| {
            tracing::warn!(
                "{} has no file locks ({why}); using marker files",
                path.display()
            )
        });
        let mark = path.with_extension("held");
        for _ in 0..2 {
            match private_file().write(true).create_new(true).open(&mark) {
                Ok(mut file) => {
                    std::fs::remove_file(path).ok(); // made by `open`, of no use here
                    write_holder(&mut file, pipe);
                    return Ok(Self {
                        path: mark,
                        _file: file,
                    });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    let holder = File::open(&mark)
                        .map(|mut file| holder(&mut file))
                        .unwrap_or_default();
                    if alive(&holder) {
                        return Err(LockError::Held(holder));
                    }
                    std::fs::remove_file(&mark).map_err(LockError::Io)?;
                }
                Err(e) => return Err(LockError::Io(e)),
            }
        }
        Err(LockError::Held(LockHolder::default()))
    }
}

/// Returns the sessions in a directory that other processes of this machine have open.
pub(super) fn open_sessions(sessions: &Path) -> Vec<BusySession> {
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy().into_owned();
    let files = std::fs::read_dir(sessions).into_iter().flatten().flatten();
    let mut found: Vec<BusySession> = files
        .filter_map(|file| {
            let path = file.path();
            let end = path.extension()?;
            if end != "lock" && end != "held" {
                return None;
            }
            let id = SessionId::new(path.file_stem()?.to_str()?);
            let pid = Lock::other_holder(&path)?;
            Some(BusySession {
                session: id,
                state: None,
                host: Some((machine.clone(), pid)),
                tries: 0,
            })
        })
        .collect();
    found.sort_by(|a, b| b.session.as_str().cmp(a.session.as_str()));
    found
}

fn open(path: &Path) -> std::io::Result<File> {
    private_file()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// True if a file is still the one at its path.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(one), Ok(other)) = (file.metadata(), std::fs::metadata(path)) else {
        return false;
    };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Writes the holder of the lock. On a full disk the holder stays unknown, and the lock is valid in
/// any case.
fn write_holder(file: &mut File, pipe: &str) {
    let text = format!("{} {pipe}\n", std::process::id());
    file.set_len(0)
        .and_then(|()| file.write_all(text.as_bytes()))
        .ok();
}

fn holder(file: &mut File) -> LockHolder {
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok();
    read(&text)
}

fn read(text: &str) -> LockHolder {
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|pid| pid.parse().ok());
    LockHolder {
        pid,
        request_address: words.next().map(str::to_owned),
        ..LockHolder::default()
    }
}

fn alive(holder: &LockHolder) -> bool {
    let pid = holder
        .pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(rustix::process::Pid::from_raw);
    // An unknown process counts as alive: two writers are worse than one refusal.
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_exclusive_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.lock");
        let first = Lock::take(&path, "pipe").unwrap();
        let Err(LockError::Held(holder)) = Lock::take(&path, "other") else {
            panic!("taken twice")
        };
        assert_eq!(
            (holder.pid, holder.request_address.as_deref()),
            (Some(std::process::id()), Some("pipe"))
        );
        drop(first);
        assert!(!path.exists());
        std::fs::write(&path, "4000000000 left behind by a killed process\n").unwrap();
        Lock::take(&path, "next").unwrap();
    }

    #[test]
    fn file_system_without_locks_uses_marker_file() {
        let no: Flock = |_| Err(TryLockError::Error(std::io::Error::from_raw_os_error(37)));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.lock");
        let first = Lock::take_with(&path, "pipe", no).unwrap();
        assert!(matches!(
            Lock::take_with(&path, "other", no),
            Err(LockError::Held(_))
        ));
        drop(first);
        drop(Lock::take_with(&path, "again", no).unwrap());
        // The marker of a killed process is not valid.
        std::fs::write(path.with_extension("held"), format!("{} gone\n", i32::MAX)).unwrap();
        Lock::take_with(&path, "after a kill", no).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
