//! Tools that read pages and search the web.

pub mod webfetch;
pub mod websearch;
