//! Conversations. A session is an actor: a task that owns the history, the choice of agent and
//! model, and the running turn; everyone else holds a [`handle::Handle`] and sends it mail.

pub mod actor;
pub mod base;
pub mod changes;
mod child;
pub mod commands;
pub mod diff;
mod fetch;
pub mod handle;
mod interrupted;
pub mod mention;
pub mod models;
pub mod open;
pub mod order;
pub mod prune;
pub mod recent;
pub mod replay;
pub mod revert;
pub mod title;
mod trust;

pub use handle::Handle;
pub use open::Shared;
