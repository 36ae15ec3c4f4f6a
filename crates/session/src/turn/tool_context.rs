//! The context of an agent's tools, for calls and for other uses of tools.

use std::sync::Arc;

use super::agent_context::AgentContext;
use super::step_context::StepContext;
use super::{TurnContext, trace};
use base::id::CallId;
use events::LiveFacts;
use permission::plan::SharedAnalysis;
use permission::{PermissionContext, Policy};
use project::agent::Agent;
use tools::{CallContext, ClientContext, ToolContext};

/// Returns the present rules, grants and approvals of an agent.
pub fn current_rules(turn: &TurnContext, agent: &Agent) -> Policy {
    Policy {
        rules: agent.rules.clone(),
        grants: turn.session.permissions.grants.for_agent(&agent.name),
        ask_rules: turn.session.permissions.ask_rules.clone(),
        approvals: turn.session.permissions.approvals(),
        unreadable_settings: turn.project.context.settings.doubt(),
        ..Policy::default()
    }
}

/// Returns the policy for the tools and commands of a step, with the present grants and approvals.
pub(super) fn policy(turn: &TurnContext, step: &StepContext) -> Policy {
    let context = step.agent_context.permission_context.clone();
    policy_in(turn, &step.agent, context)
}

fn policy_in(turn: &TurnContext, agent: &Agent, context: PermissionContext) -> Policy {
    Policy {
        private_hosts: turn.project.context.settings.webfetch.private.clone(),
        context,
        ..current_rules(turn, agent)
    }
}

/// Returns the context of a call that is not part of a step.
pub fn call_context(turn: &TurnContext, agent: &Agent, call: &CallId) -> ToolContext {
    new_context(turn, agent, AgentContext::new(turn, agent), call)
}

/// Returns the context of a call of a step, with the present grants and approvals.
pub fn step_call_context(turn: &TurnContext, step: &StepContext, call: &CallId) -> ToolContext {
    new_context(turn, &step.agent, step.agent_context.clone(), call)
}

/// Replaces the policy of a call's context if grants or approvals have changed since it was made.
pub(super) fn refresh_policy(context: &mut ToolContext, turn: &TurnContext, agent: &Agent) {
    let rules = current_rules(turn, agent);
    if rules.judges_as(&context.policy) {
        return;
    }
    context.policy = Arc::new(Policy {
        private_hosts: context.policy.private_hosts.clone(),
        context: context.policy.context.clone(),
        ..rules
    });
}

fn new_context(
    turn: &TurnContext,
    agent: &Agent,
    agent_context: AgentContext,
    call: &CallId,
) -> ToolContext {
    let AgentContext {
        permission_context,
        sandbox_choice,
        can_explore,
    } = agent_context;
    ToolContext {
        call: CallContext {
            id: call.clone(),
            message: None,
            order_note: None,
            agent: agent.name.clone(),
            can_explore,
            variables: Vec::new(),
            facts: LiveFacts::default(),
            instructions: Arc::default(),
            write_observer: None,
            edit_observer: None,
            analysis: SharedAnalysis::default(),
            trace: trace::call_trace(turn, call),
        },
        session: turn.session.shared.clone(),
        project: turn.project.context.clone(),
        client: ClientContext {
            event_sender: turn.event_sender.clone(),
            session_requests: turn.session_requests.clone(),
            files: turn.session.common.file_capabilities,
        },
        policy: Arc::new(policy_in(turn, agent, permission_context)),
        sandbox_choice,
        cancelled: turn.cancelled.clone(),
        limits: turn.project.context.settings.tool_output,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixture;
    use super::super::{TurnOutcome, step_context};
    use super::*;

    #[tokio::test]
    async fn policy_is_replaced_only_after_a_grant() {
        let mut fixture = Fixture::new([]);
        let played = fixture.play_with("go", |_, history, turn| {
            Box::pin(async move {
                let step = step_context::capture(&turn, false, &history).unwrap();
                let mut context = step_call_context(&turn, &step, &turn.new_call_id());
                let resolved = context.policy.clone();
                refresh_policy(&mut context, &turn, &step.agent);
                assert!(Arc::ptr_eq(&context.policy, &resolved));
                let patterns = ["make *".to_owned()];
                let grants = &turn.session.permissions.grants;
                grants.add(&step.agent.name, "bash", &patterns).await;
                refresh_policy(&mut context, &turn, &step.agent);
                assert!(!context.policy.judges_as(&resolved));
                let present = policy(&turn, &step);
                assert!(context.policy.judges_as(&present));
                assert_eq!(
                    format!("{:?}", context.policy.context),
                    format!("{:?}", present.context)
                );
                (history, TurnOutcome::Ended)
            })
        });
        assert_eq!(played.await.outcome, TurnOutcome::Ended);
    }
}
