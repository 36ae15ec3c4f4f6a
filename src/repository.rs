//! Checks of the repository that neither cargo nor clippy can make: pages against code, and rules
//! about sources.

mod circles;
mod commands;
pub(crate) mod pages;
mod sources;
mod variables;
