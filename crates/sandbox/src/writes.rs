//! What a command is about to write, reported while the call that does it still waits.
//!
//! A second seccomp filter (`writes/filter.rs`) stops calls that open a file for writing, rename, remove, link,
//! truncate or change modes, and asks this process. The answer is always that the call goes on: nothing is decided
//! here, so it does not matter that the memory a path was read from may change before the kernel reads it again.
//!
//! The process that becomes the command installs the filter as the last thing before the exec and sends the listener
//! over a socket; it waits for one byte, so no call is made that is not seen. Where the kernel refuses the filter
//! (before 5.19, in a container, below another listener), the command runs without it, and the observer is told.
//!
//! A listener that is closed fails every call that the filter stops, with ENOSYS. What runs in bubblewrap ends with
//! adjutant. With Landlock alone, programs may outlive it, so a process of ours keeps their listeners
//! (`writes/hold.rs`). A program that wants to listen itself is refused by the kernel (EBUSY).

#[cfg(target_os = "linux")]
mod filter;
#[cfg(target_os = "linux")]
mod hold;
#[cfg(target_os = "linux")]
pub(super) mod kernel;
#[cfg(target_os = "linux")]
mod listen;
#[cfg(target_os = "linux")]
mod target;

use std::path::PathBuf;

#[cfg(target_os = "linux")]
pub(super) use hold::{ListenerHolder, hold};
#[cfg(target_os = "linux")]
pub(super) use listen::{install, watch};

/// A write that waits for an answer. Paths are absolute, with symlinks resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingWrite {
    /// The file is about to be created, opened for writing, replaced or removed, or to get another mode.
    File { path: PathBuf, pid: u32 },
    /// A directory is about to get another name; with `exchange`, what has that name gets the first one.
    Directory { from: PathBuf, to: PathBuf, exchange: bool },
    /// A process whose memory cannot be read is about to write something.
    Unknown,
}

/// Learns what a command is about to write. Called on a thread of its own, while the command waits.
pub trait WriteObserver: std::fmt::Debug + Send + Sync {
    /// A command will report to this.
    fn started(&self);
    fn about_to_write(&self, write: PendingWrite);
    /// The kernel does not report what this command writes.
    fn refused(&self);
    /// The last process of the command has ended.
    fn ended(&self);
}
