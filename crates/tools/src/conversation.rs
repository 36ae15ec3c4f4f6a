//! Tools that ask the user, switch between planning and working, load a skill, start a subagent, or
//! return a structured result.

pub mod plan_enter;
pub mod plan_exit;
pub mod question;
pub mod skill;
pub mod structured_output;
pub mod task;

use crate::registry::{ToolProperties, properties};

/// The tools, in the order of the manual.
pub(crate) const TOOLS: &[ToolProperties] = &[
    properties::<task::TaskTool>(),
    properties::<skill::SkillTool>(),
    properties::<question::QuestionTool>(),
    properties::<plan_enter::PlanEnterTool>(),
    properties::<plan_exit::PlanExitTool>(),
];
