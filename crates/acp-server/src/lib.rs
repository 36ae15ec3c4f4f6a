//! The ACP server: it answers the requests of clients (editors) in ACP v1 and v2, and sends them the
//! events of sessions as updates. The crate `session`, which runs the sessions, does not depend on
//! ACP.
//!
//! [`server::Server`] is the state of one connection. The operations that a client can request are
//! implemented once, with types that do not depend on the protocol version: sessions
//! (`sessions.rs`), config options (`options.rs`), prompts (`prompt.rs`) and questions to the user
//! (`permission_request.rs`, `question_request.rs`, `form_request.rs`). `v1/` and `v2/` decode
//! requests, call these modules, and encode the results; each implements [`view::SessionView`], the
//! encoder of a session's events. Code that differs only in the types is in `shared/`.
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
pub mod editor_servers;
pub mod error;
pub mod files;
pub mod form_request;
pub mod login;
pub mod markdown;
pub mod meta;
pub mod metrics;
pub mod options;
pub mod permission_request;
pub mod prompt;
pub mod providers;
pub mod question_request;
pub mod server;
pub mod sessions;
mod shared;
pub mod tool_call_view;
pub mod transferable_view;
pub mod updates;
pub mod user_sessions;
pub mod v1;
pub mod v2;
pub mod view;
