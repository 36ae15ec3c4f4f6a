//! Version 1 of the protocol: decode, call what the door does, encode. No rule stands here.

mod ask;
mod card;
mod content;
mod files;
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
use protocol::acp::v1 as acp;

pub use initialize::answer;
pub use table::table;
pub use update::view;
