//! ACP version 2, a draft: decodes requests, calls the shared modules, encodes responses. Contains
//! no logic.

mod content;
mod diff;
mod encode_event;
mod initialize;
mod line;
mod options;
mod permission_request;
mod prompt;
mod sessions;
mod table;
mod tool_call_view;

pub(crate) mod forms {
    crate::shared::forms!(v2);
}
mod requests {
    crate::shared::requests!(v2);
}

pub use encode_event::new_view;
pub use table::table;
