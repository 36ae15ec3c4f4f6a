//! Tools that ask the user, keep a plan, or start a subagent.

pub mod plan_enter;
pub mod plan_exit;
pub mod question;
pub mod skill;
pub mod structured_output;
pub mod task;
pub mod todos;
pub mod todowrite;
