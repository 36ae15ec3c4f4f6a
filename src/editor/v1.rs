//! Version 1 of the protocol: decode, call what the door does, encode. No rule stands here.

mod ask;
mod card;
mod content;
mod files;
mod form;
mod initialize;
mod line;
mod options;
mod prompt;
mod sessions;
mod table;
mod update;

pub use initialize::answer;
pub use table::table;
pub use update::view;
