//! Version 2 of the protocol, a draft: decode, call what the door does, encode. No rule stands here.

mod ask;
mod card;
mod content;
mod diff;
#[path = "same/form.rs"]
mod form;
mod initialize;
#[path = "same/kept.rs"]
mod kept;
mod line;
mod options;
mod prompt;
mod sessions;
mod table;
mod update;

/// The types of this version, for what is the same in both.
use protocol::acp::v2 as acp;

pub use table::table;
pub use update::view;
