//! Exports of sessions: an HTML page for reading, or JSON that can be imported again.

pub mod chart;
pub mod html;
pub mod json;
pub mod markdown;
