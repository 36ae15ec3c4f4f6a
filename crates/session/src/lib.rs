//! Sessions. A session is an actor: a task that owns the history, the choice of agent and model,
//! and the running turn; other tasks send it messages through a [`handle::SessionHandle`].

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
mod reported;
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
pub use sessions::{ServedPlaces, Sessions, StartTelemetry};
