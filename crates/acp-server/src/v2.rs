//! Version 2 of the protocol, a draft: decode, call what the door does, encode. No rule stands here.

mod ask;
mod card;
mod content;
mod diff;
mod initialize;
mod line;
mod options;
mod prompt;
#[path = "same.rs"]
mod same;
mod sessions;
mod table;
mod update;

// The types of this version, for what is the same in both.
use protocol::acp::v2 as acp;
use same::{form, kept};

pub use table::table;
pub use update::view;
