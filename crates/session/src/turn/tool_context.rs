//! The context of an agent's tools, for calls and for other uses of tools.

use std::sync::Arc;

use super::{TurnContext, trace};
use base::id::CallId;
use events::LiveFacts;
use permission::plan::SharedAnalysis;
use permission::{AccessRequest, Action, PermissionContext, Policy, Rules, evaluate};
use project::agent::Agent;
use tools::process::scratch;
use tools::{CallContext, ClientContext, ProjectContext, ToolContext};

/// Returns the present rules, grants and approvals of an agent.
pub fn rules(scope: &TurnContext, agent: &Agent) -> Policy {
    Policy {
        rules: agent.rules.clone(),
        grants: scope.permissions.grants.of(&agent.name),
        asks: scope.permissions.asks.clone(),
        approvals: scope.permissions.chosen.borrow().approvals(),
        doubt: scope.project.settings.doubt(),
        ..Policy::default()
    }
}

/// Returns the policy for an agent's tools and commands.
pub(super) fn policy(scope: &TurnContext, agent: &Agent) -> Policy {
    let scratch = Some(scratch::directory(
        &scope.environment,
        scope.session.as_str(),
    ));
    let trusted = scope.project.settings.trusted;
    Policy {
        private: scope.project.settings.webfetch.private.clone(),
        place: PermissionContext {
            scratch,
            trusted,
            ..PermissionContext::new(
                &scope.environment,
                &scope.project.worktree,
                &scope.project.cwd,
            )
        },
        ..rules(scope, agent)
    }
}

/// Returns whether an agent may start the agent `explore`, at least after a question.
fn can_explore(scope: &TurnContext, agent: &Agent) -> bool {
    const EXPLORE: &str = "explore";
    let need = AccessRequest::new("task", EXPLORE);
    scope.depth < scope.project.settings.general.subagent_depth
        && scope
            .project
            .agents
            .get(EXPLORE)
            .is_some_and(|explore| explore.is_subagent())
        && !agent.rules.hides("task")
        && evaluate(&agent.rules, &Rules::default(), &need).action != Action::Deny
}

/// Returns the context of a call.
pub fn context(scope: &TurnContext, agent: &Agent, call: &CallId) -> ToolContext {
    ToolContext {
        call: CallContext {
            id: call.clone(),
            message: None,
            order: None,
            agent: agent.name.clone(),
            can_explore: can_explore(scope, agent),
            variables: Vec::new(),
            facts: LiveFacts::default(),
            instructions: Arc::default(),
            observer: None,
            analysis: SharedAnalysis::default(),
            trace: trace::of_call(scope, call),
        },
        session: scope.resources.shared.clone(),
        project: ProjectContext {
            cwd: scope.project.cwd.clone(),
            worktree: scope.project.worktree.clone(),
            environment: scope.environment.clone(),
            settings: scope.project.settings.clone(),
        },
        client: ClientContext {
            event_sender: scope.event_sender.clone(),
            session_requests: scope.session_requests.clone(),
            files: scope.resources.files,
        },
        policy: Arc::new(policy(scope, agent)),
        confinement: scope
            .permissions
            .confinement
            .for_agent(&agent.rules, &scope.project.settings),
        cancelled: scope.cancelled.clone(),
        limits: scope.project.settings.tool_output,
    }
}
