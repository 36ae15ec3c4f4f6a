//! Foundations of adjutant: small modules that know nothing of sessions, models or editors.
//!
//! - [`environment`]: variables, directories, clock and randomness, read once and passed on.
//! - [`id`]: identifiers of sessions, messages and parts.
//! - [`file`](mod@file), [`executable`], [`open_files`]: reading of untrusted files, lookup of
//!   programs, the limit on open files.
//! - [`git`], [`worktree`]: the project that a directory belongs to.
//! - [`text`], [`listing`]: cutting, comparing and displaying untrusted text, tables for a terminal.
//! - [`task`], [`channel`], [`lock`], [`process`]: threads, tasks, and the end of other processes.
//! - [`trace`]: places in the traces of clients.
//! - [`variables`]: the environment of programs that adjutant starts.
//! - [`approvals`], [`store_location`]: settings that several layers share.

pub mod approvals;
pub mod channel;
pub mod environment;
pub mod executable;
pub mod file;
pub mod git;
pub mod id;
pub mod listing;
pub mod lock;
pub mod open_files;
pub mod process;
pub mod store_location;
pub mod task;
pub mod text;
pub mod trace;
pub mod variables;
pub mod worktree;
