//! The context of an agent's tools, for calls and for other uses of tools.

use std::sync::Arc;

use super::{TurnContext, trace};
use base::id::CallId;
use events::LiveFacts;
use permission::plan::SharedAnalysis;
use permission::{AccessRequest, Action, PermissionContext, Policy, Rules, evaluate};
use project::agent::Agent;
use tools::process::scratch;
use tools::{CallContext, ClientContext, ToolContext};

/// Returns the present rules, grants and approvals of an agent.
pub fn rules(turn: &TurnContext, agent: &Agent) -> Policy {
    Policy {
        rules: agent.rules.clone(),
        grants: turn.permissions.grants.of(&agent.name),
        asks: turn.permissions.asks.clone(),
        approvals: turn.permissions.approvals(),
        doubt: turn.project.context.settings.doubt(),
        ..Policy::default()
    }
}

/// Returns the policy for an agent's tools and commands.
pub(super) fn policy(turn: &TurnContext, agent: &Agent) -> Policy {
    let scratch = Some(scratch::directory(&turn.environment, turn.session.as_str()));
    let trusted = turn.project.context.settings.trusted;
    Policy {
        private: turn.project.context.settings.webfetch.private.clone(),
        context: PermissionContext {
            scratch,
            trusted,
            ..PermissionContext::new(
                &turn.environment,
                &turn.project.context.worktree,
                &turn.project.context.cwd,
            )
        },
        ..rules(turn, agent)
    }
}

/// Returns whether an agent may start the agent `explore`, at least after a question.
fn can_explore(turn: &TurnContext, agent: &Agent) -> bool {
    const EXPLORE: &str = "explore";
    let request = AccessRequest::new("task", EXPLORE);
    turn.depth < turn.project.context.settings.general.subagent_depth
        && turn
            .project
            .agents
            .get(EXPLORE)
            .is_some_and(|explore| explore.is_subagent())
        && !agent.rules.hides("task")
        && evaluate(&agent.rules, &Rules::default(), &request).action != Action::Deny
}

/// Returns the context of a call.
pub fn context(turn: &TurnContext, agent: &Agent, call: &CallId) -> ToolContext {
    ToolContext {
        call: CallContext {
            id: call.clone(),
            message: None,
            order: None,
            agent: agent.name.clone(),
            can_explore: can_explore(turn, agent),
            variables: Vec::new(),
            facts: LiveFacts::default(),
            instructions: Arc::default(),
            observer: None,
            edit_observer: None,
            analysis: SharedAnalysis::default(),
            trace: trace::of_call(turn, call),
        },
        session: turn.resources.shared.clone(),
        project: turn.project.context.clone(),
        client: ClientContext {
            event_sender: turn.event_sender.clone(),
            session_requests: turn.session_requests.clone(),
            files: turn.resources.files,
        },
        policy: Arc::new(policy(turn, agent)),
        sandbox_choice: turn
            .permissions
            .sandbox_choice
            .for_agent(&agent.rules, &turn.project.context.settings),
        cancelled: turn.cancelled.clone(),
        limits: turn.project.context.settings.tool_output,
    }
}
