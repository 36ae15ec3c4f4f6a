//! Foundations of adjutant: small modules that depend on no other crate of the workspace.
//!
//! - [`environment`]: the process's variables and directories (read once at the start), its clock
//!   and its random numbers, passed on so that tests can replace them.
//! - [`id`]: identifiers of sessions, messages and parts.
//! - [`file`](mod@file): opens and reads regular files only.
//! - [`executable`]: looks programs up in `PATH`.
//! - [`open_files`]: raises the limit on open files.
//! - [`git`]: finds repositories and reads their files.
//! - [`worktree`]: the project that a directory belongs to.
//! - [`text`]: cuts, compares and displays untrusted text.
//! - [`listing`]: tables for a terminal.
//! - [`reported`]: the notices that were shown within a day.
//! - [`task`]: spawned tasks and blocking work.
//! - [`channel`]: a bounded queue.
//! - [`lock`]: mutexes without poisoning.
//! - [`process`]: waits for the end of other processes.
//! - [`trace`]: W3C trace contexts (`traceparent`, `tracestate`, `baggage`).
//! - [`child_environment`]: the environment variables that started programs receive.
//! - [`approvals`], [`store_location`]: the types of settings that several crates use.

pub mod approvals;
pub mod channel;
pub mod child_environment;
pub mod environment;
pub mod executable;
pub mod file;
pub mod git;
pub mod id;
pub mod listing;
pub mod lock;
pub mod open_files;
pub mod process;
pub mod reported;
pub mod store_location;
pub mod task;
pub mod text;
pub mod trace;
pub mod worktree;
