//! Code for both protocol versions. ACP defines the same types once per version, so each file
//! defines a macro that expands to the code for one version.

mod forms;
mod requests;

pub(crate) use forms::forms;
pub(crate) use requests::requests;
