//! Checks of the repository that neither cargo nor clippy can make: pages against code, and a few rules about sources.

mod pages;
mod sources;
