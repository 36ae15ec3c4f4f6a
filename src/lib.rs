//! adjutant: a coding agent that lives behind an editor.
//!
//! Bytes come in at the top of this list; every module below is one step further from the editor
//! and one step closer to the disk. Calls go down, messages come up. `tidy.rs` keeps the order.

pub mod cli;

pub mod export;

#[cfg(test)]
mod tidy;
