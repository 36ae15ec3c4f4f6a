//! adjutant, a coding agent that runs behind an editor: its command line ([`cli`]), and the map of
//! its crates.
//!
#![doc = include_str!("crates.md")]

pub mod cli;

#[cfg(test)]
mod repository;
