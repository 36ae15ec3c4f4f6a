//! Conversations. A session is an actor: a task that owns the history, the choice of agent and
//! model, and the running turn; everyone else holds a [`handle::Handle`] and sends it mail.

pub mod access;
pub mod actor;
pub mod beginning;
pub mod builtin;
pub mod changes;
mod child;
mod choices;
pub mod commands;
pub mod configuration;
pub mod diff;
mod door;
pub mod elsewhere;
mod fetch;
mod first_words;
pub mod grants;
pub mod handle;
mod inbox;
mod interrupted;
mod janitor;
mod live;
pub mod mention;
pub mod models;
pub mod open;
pub mod project;
mod prompt;
pub mod prune;
pub mod recent;
pub mod replay;
pub mod revert;
mod review;
mod sample;
mod sessions;
pub mod title;
mod trust;
pub mod turn;
pub mod user_store;
mod workspace;

pub use handle::Handle;
pub use sessions::{ServedPlaces, Sessions};
