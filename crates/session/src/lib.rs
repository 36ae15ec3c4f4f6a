//! Sessions. A session is an actor: a task that owns the history, the choice of agent and model,
//! and the running turn; other tasks send it messages through a [`handle::SessionHandle`].
//!
//! - [`Sessions`] is the state that all sessions of a process share. It creates, loads, forks and
//!   deletes sessions ([`open`], [`access`]).
//! - [`actor`] is the loop of one session: it takes a message from its mailbox, and polls the
//!   running turn in the meantime.
//! - [`turn`] is the loop of one prompt: decide the next action, ask the model, run its calls,
//!   record the results. `session_turn.rs` runs it, and the turns of the subagents that it starts.
//! - [`configuration`], [`project`] and [`models`] read the settings of the session's directory,
//!   and read them again before a turn.
//! - [`replay`] turns a stored history into the events that a client is shown; [`beginning`] shows
//!   the first of them while the rest is read.
//! - [`revert`], [`changes`] and [`diff`] are about undo and the changes of files.
//! - [`builtin`] has the commands of a conversation, such as `/undo`.

pub mod access;
pub mod actor;
pub mod beginning;
pub mod builtin;
pub mod changes;
mod choices;
pub mod commands;
pub mod configuration;
pub mod diff;
mod exports;
mod fallback_title;
pub mod fetch;
pub mod grants;
pub mod handle;
mod inbox;
mod interrupted;
mod live;
mod maintenance;
pub mod mention;
pub mod models;
pub mod open;
mod pages;
pub mod project;
mod prompt;
pub mod prune;
pub mod published;
pub mod recent;
pub mod relocate;
pub mod replay;
pub mod revert;
mod review;
mod sample;
mod session_control;
mod session_turn;
mod sessions;
pub mod title;
mod trust;
pub mod turn;
pub mod user_store;
mod workspace;

pub use handle::SessionHandle;
pub use sessions::{ServingOptions, Sessions, StartTelemetry};
