//! The parts that a user and a project bring to a session, read from settings and files.
//!
//! - [`agent`]: the agents, built in and configured, with the rules of each.
//! - [`skill`], [`command`], [`instruction`]: files that a session offers or sends.
//! - [`system`]: the system prompt made of them.

pub mod agent;
pub mod command;
pub mod instruction;
pub mod skill;
pub mod system;
