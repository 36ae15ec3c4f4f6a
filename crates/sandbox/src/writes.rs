//! Reports the writes of a command to an observer, while the writing call waits.
//!
//! A second seccomp filter (`filter.rs`) stops calls that open a file for writing, rename, remove,
//! link, truncate, or change modes, access control lists or times, and notifies this process. Every call is then allowed to
//! continue: nothing is decided here, so it does not matter that the memory with the path may
//! change before the kernel reads it again.
//!
//! The launcher of the command (`launcher.rs`) installs the filter just before the exec and sends
//! the listener over a socket. It waits for a reply of one byte, so that no call is missed. If the
//! kernel refuses the filter (before 5.19, in a container, below another listener), the command
//! runs without it, and the observer is notified.
//!
//! If a listener is closed, every call that its filter stops fails with ENOSYS. Commands in
//! bubblewrap end with adjutant. With Landlock alone, programs may outlive adjutant, so another
//! process keeps their listeners open (`listener_holder.rs`). A program that creates a listener
//! itself is refused by the kernel (EBUSY).

#[cfg(target_os = "linux")]
pub(super) mod filter;
#[cfg(target_os = "linux")]
pub(super) mod kernel;
#[cfg(target_os = "linux")]
mod listener;
#[cfg(target_os = "linux")]
mod listener_holder;
#[cfg(target_os = "linux")]
mod target;

use std::path::PathBuf;

#[cfg(target_os = "linux")]
pub use kernel::has_writer;
#[cfg(target_os = "linux")]
pub(super) use listener::watch;
#[cfg(target_os = "linux")]
pub(super) use listener_holder::{HOLDER, hold};

/// A write that waits for an answer. Paths are absolute, with symlinks resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingWrite {
    /// A file is about to be created, opened for writing, replaced or removed, or its mode is about
    /// to change. `is_new` is true if there is no such file yet.
    File {
        path: PathBuf,
        /// The thread that writes.
        pid: u32,
        is_new: bool,
    },
    /// The times of a file are about to be set, and nothing else of it.
    Times { path: PathBuf },
    /// The access control list of a file or directory is about to change.
    AccessList { path: PathBuf },
    /// A directory is about to be renamed; with `exchange`, the two names are exchanged.
    Directory {
        from: PathBuf,
        to: PathBuf,
        exchange: bool,
    },
    /// A process is about to write, and its memory cannot be read.
    Unknown,
}

/// A receiver of write reports. It is called on its own thread, while the command waits.
pub trait WriteObserver: std::fmt::Debug + Send + Sync {
    /// Reports that a command has started whose writes will be reported.
    fn started(&self);
    /// Reports a write. The command waits until this returns.
    fn about_to_write(&self, write: PendingWrite);
    /// Reports that the kernel does not report the writes of this command.
    fn refused(&self);
    /// Reports that the last process of the command has ended.
    fn ended(&self);
}

/// Returns whether a process has a file open for writing, if the system can tell: no system but
/// Linux can.
#[cfg(not(target_os = "linux"))]
pub fn has_writer(_file: &std::path::Path) -> Option<bool> {
    None
}
