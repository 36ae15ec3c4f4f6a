//! The part of the context of an agent's tools that stays the same for a step.

use super::TurnContext;
use permission::{AccessRequest, Action, PermissionContext, Rules, evaluate};
use project::agent::Agent;
use tools::process::sandboxing::SandboxChoice;
use tools::scratch;

/// The part of the context of an agent's tools that stays the same for a step. Grants and approvals
/// are no part of it: the user may change them while a call runs.
#[derive(Debug, Clone)]
pub struct AgentContext {
    /// The surroundings in which commands and paths are judged.
    pub permission_context: PermissionContext,
    /// The sandbox of the agent's commands.
    pub sandbox_choice: SandboxChoice,
    /// True if the agent may start the agent `explore`.
    pub can_explore: bool,
}

impl AgentContext {
    /// Determines the context of an agent. Looks up directories on disk.
    pub fn new(turn: &TurnContext, agent: &Agent) -> Self {
        let settings = &turn.project.context.settings;
        Self {
            permission_context: permission_context(turn),
            sandbox_choice: turn
                .session
                .permissions
                .sandbox_choice
                .for_agent(&agent.rules, settings),
            can_explore: can_explore(turn, agent),
        }
    }
}

/// Returns the surroundings in which an agent's commands and paths are judged.
fn permission_context(turn: &TurnContext) -> PermissionContext {
    let project = &turn.project.context;
    PermissionContext {
        scratch_dir: Some(scratch::directory(
            &turn.session.common.environment,
            turn.session.id.as_str(),
        )),
        is_trusted: project.settings.trusted,
        ..PermissionContext::new(
            &turn.session.common.environment,
            &project.worktree,
            &project.cwd,
        )
    }
}

/// True if an agent may start the agent `explore`, at least after a question.
fn can_explore(turn: &TurnContext, agent: &Agent) -> bool {
    const EXPLORE: &str = "explore";
    let request = AccessRequest::new("task", EXPLORE);
    turn.session.depth < turn.project.context.settings.general.subagent_depth
        && turn
            .project
            .agents
            .get(EXPLORE)
            .is_some_and(|explore| explore.is_subagent())
        && !agent.rules.hides("task")
        && evaluate(&agent.rules, &Rules::default(), &request).action != Action::Deny
}
