//! The door: ACP on one side, our nouns on the other. ACP's words end here.
//!
//! What an editor can want stands once, in our own nouns, and knows of no version of the protocol: sessions
//! (`sessions.rs`), choices (`options.rs`), prompts (`prompt.rs`), questions (`ask.rs`, `form.rs`, `elicit.rs`). `v1/`
//! and `v2/` are projections: they decode, call, and encode, and are spoken to through `face.rs`. What is the same in
//! both but for the types stands in `same/`, and is compiled for each.

pub mod ask;
pub mod card;
pub mod elicit;
pub mod error;
pub mod face;
pub mod files;
pub mod form;
pub mod hosted;
pub mod login;
pub mod markdown;
pub mod meta;
pub mod meters;
pub mod movable;
pub mod options;
pub mod prompt;
pub mod server;
pub mod sessions;
mod shared;
pub mod updates;
pub mod v1;
pub mod v2;
