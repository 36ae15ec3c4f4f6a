//! Version 1 of the protocol: decode, call what the door does, encode. No rule stands here.

mod ask;
mod card;
mod content;
mod files;
mod initialize;
mod line;
mod options;
mod prompt;
mod sessions;
mod table;
mod update;

pub(crate) mod forms {
    crate::shared::forms!(v1);
}
mod requests {
    crate::shared::requests!(v1);
}

pub use table::table;
pub use update::view;
