//! The wire between an editor and adjutant: newline-delimited JSON-RPC 2.0 over a pair of pipes.
//!
//! Read in this order:
//!
//! - [`lines`] — one message per line, in and out: the line cap, the [`lines::Outbox`] and the one
//!   thread that writes.
//! - [`scan`] — what a line says of itself that is too long to be kept.
//! - [`rpc`] — request, notification and response told apart; [`rpc::Peer`], our own calls to the
//!   other side.
//! - [`table`] — method name → typed handler, on jsonrpsee's method table.
//! - [`negotiate`] — which version of the protocol a connection speaks.
//! - [`acp`] — the Agent Client Protocol's types and method names; what is served and refused.
//!
//! This crate knows no session, tool or model. Both ends of a connection use it: the agent, and
//! `adjutant run`, which is a client of its own agent.

pub mod acp;
pub mod lines;
pub mod negotiate;
pub mod rpc;
pub mod scan;
pub mod table;
