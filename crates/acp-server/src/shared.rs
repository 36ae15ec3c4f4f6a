//! Code that both protocol versions use. The versions have equal but distinct types, so each file
//! is a macro that is called with the name of a version.

mod forms;
mod requests;

pub(crate) use forms::forms;
pub(crate) use requests::requests;
