//! Sessions for people and for other programs: one HTML page, or JSON that can be imported again.

pub mod chart;
pub mod html;
pub mod json;
pub mod markdown;
