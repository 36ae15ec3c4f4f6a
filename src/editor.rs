//! The door: ACP on one side, our nouns on the other. ACP's words end here.
//!
//! `table.rs` routes, one file per group of methods handles, `update.rs` and `card.rs` alone turn events
//! into updates, `error.rs` alone turns our errors into JSON-RPC errors.

pub mod ask;
pub mod cancel;
pub mod card;
pub mod content;
pub mod error;
pub mod files;
pub mod form;
pub mod initialize;
pub mod modes;
pub mod options;
pub mod prompt;
pub mod server;
pub mod sessions;
pub mod table;
pub mod update;
