//! Version 2 of the protocol, a draft: decode, call what the door does, encode. No rule stands here.

mod ask;
mod card;
mod content;
mod diff;
mod initialize;
mod line;
mod options;
mod prompt;
mod sessions;
mod table;
mod update;

pub(crate) mod forms {
    crate::shared::forms!(v2);
}
mod requests {
    crate::shared::requests!(v2);
}

pub use table::table;
pub use update::view;
