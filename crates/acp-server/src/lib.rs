//! The ACP server: sessions as ACP v1 and v2. No other crate of the agent's side uses ACP's types.
//!
//! The operations of a client are implemented once, with types of our own that do not depend on the
//! version: sessions (`sessions.rs`), config options (`options.rs`), prompts (`prompt.rs`) and
//! questions (`permission_request.rs`, `form.rs`, `elicit.rs`). `v1/` and `v2/` decode requests,
//! call these modules, and encode the results; they implement the interface in `view.rs`. Code that
//! differs only in the types is in `shared/`.
//!
//! # The crates
//!
//! `cargo doc --workspace --open` opens this page, because this crate is the first by its name, so
//! the map of all crates is here too.
//!
#![doc = include_str!("../../../src/crates.md")]

mod account_reports;
pub mod command_list;
mod connection_endpoints;
pub mod detached;
pub mod editor_servers;
pub mod elicit;
pub mod error;
pub mod files;
pub mod form;
pub mod login;
pub mod markdown;
pub mod meta;
pub mod metrics;
pub mod options;
pub mod permission_request;
pub mod prompt;
pub mod providers;
pub mod server;
pub mod sessions;
mod shared;
pub mod tool_call_view;
pub mod transferable_view;
pub mod updates;
pub mod v1;
pub mod v2;
pub mod view;
