//! The connection between a client and adjutant: newline-delimited JSON-RPC 2.0 over a pair of
//! pipes.
//!
//! Modules, in the order in which to read them:
//!
//! - [`lines`]: one message per line, in and out, with the line cap, the [`lines::Outbox`] and the
//!   only thread that writes.
//! - [`scan`]: the id and type of a line that is too long to be stored.
//! - [`rpc`]: requests, notifications and responses; [`rpc::Peer`], our own calls to the other
//!   side.
//! - [`table`]: a typed handler for each method name.
//! - [`negotiate`]: the version of the protocol on a connection.
//! - `decode`: messages about texts that do not fit a type.
//! - [`acp`]: the types and method names of the Agent Client Protocol, and the methods that are
//!   served.
//!
//! This crate does not know sessions, tools or models. Both ends of a connection use it: the agent,
//! and `adjutant run`, which is a client of its own agent.

pub mod acp;
mod decode;
mod large_texts;
pub mod lines;
pub mod negotiate;
pub mod rpc;
pub mod scan;
pub mod table;
mod words;
