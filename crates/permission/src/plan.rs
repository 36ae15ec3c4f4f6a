//! The plan of a command: the sandbox that it runs in, and the access request that is judged.
//!
//! Both are decided once, by [`plan_command`], from the analysis of the line, the policy and the
//! confirmed restrictions of the sandbox. A plan asks for one of three reasons: a rule asks or may
//! deny; the sandbox does not prevent an effect; there is no sandbox. Preparing, asking and running
//! a command share its plan.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::command_request::request_of;
use super::shell::{CommandAnalysis, ParsedLine, analyze};
use super::{AccessRequest, Action, PermissionContext, Policy, SandboxGuarantee, Verdict};
use base::approvals::Approvals;

/// A command line with its analysis.
#[derive(Debug, Clone)]
pub struct CommandLine {
    pub analysis: Arc<CommandAnalysis>,
    /// Whether processes may continue after its shell has ended.
    pub leaves_processes: bool,
}

impl CommandLine {
    /// Returns whether it is known to be read-only, and ends with its shell. Such a command may
    /// run in any sandbox, in parallel with other calls, whatever the agent may do.
    pub fn is_harmless(&self) -> bool {
        !self.leaves_processes && self.analysis.is_read_only()
    }
}

/// The analysis of a call's command line, shared by everything that needs it while the disk is as
/// it was.
#[derive(Debug, Clone, Default)]
pub struct SharedAnalysis {
    parsed: Arc<OnceLock<ParsedLine>>,
    analyzed: Arc<OnceLock<(PathBuf, Arc<CommandAnalysis>)>>,
}

impl SharedAnalysis {
    /// Returns the analysis of a line that runs in a context. The first line and directory are
    /// remembered.
    pub fn of(&self, command: &str, context: &PermissionContext) -> Arc<CommandAnalysis> {
        let parsed = self.parsed.get_or_init(|| ParsedLine::new(command));
        if parsed.text != command {
            return Arc::new(analyze(command, context));
        }
        let analyze = || Arc::new(parsed.analyze(context));
        let (cwd, line) = self
            .analyzed
            .get_or_init(|| (context.cwd.clone(), analyze()));
        if *cwd == context.cwd {
            line.clone()
        } else {
            analyze()
        }
    }

    /// Returns the same line to be analysed again, because the disk may have changed. Its syntax is
    /// not parsed again.
    #[must_use]
    pub fn outdated(&self) -> Self {
        Self {
            parsed: self.parsed.clone(),
            analyzed: Arc::default(),
        }
    }
}

/// The sandbox that was found for a command, as far as a plan depends on it.
#[derive(Debug, Clone, Default)]
pub struct SandboxCapabilities {
    /// The confirmed restrictions.
    pub guarantee: SandboxGuarantee,
    /// Whether it confines any command to the project if it also blocks the network.
    pub can_isolate: bool,
    /// The reason to ask about everything that is not known to be harmless: no sandbox keeps an
    /// agent that only reads from changing things.
    pub unproven: Option<String>,
}

/// The decisions about a command.
#[derive(Debug, Clone)]
pub struct CommandPlan {
    /// Whether the sandbox blocks the network, because the command then needs no question.
    pub is_isolated: bool,
    /// The request, with its verdict under the policy of the plan.
    pub request: AccessRequest,
}

impl CommandPlan {
    /// Returns whether the user is asked about the command.
    pub fn asks(&self) -> bool {
        let planned = self.request.planned.as_ref();
        planned.is_some_and(|planned| planned.verdict.action == Action::Ask)
    }
}

/// A verdict, and the policy that it was made under.
#[derive(Debug)]
pub struct PlannedVerdict {
    policy: Arc<Policy>,
    verdict: Verdict,
}

impl PlannedVerdict {
    /// Returns the verdict if `policy` judges by the same rules, and nothing was demanded of the
    /// request since it was planned.
    pub fn under(&self, policy: &Policy, request: &AccessRequest) -> Option<Verdict> {
        let is_current = request.minimum.is_none() && self.policy.judges_as(policy);
        is_current.then(|| self.verdict.clone())
    }
}

/// Decides how a command runs, and judges it once.
///
/// A question is avoided by isolation if the user has chosen that and everything that would be
/// asked about is confined by it.
pub fn plan_command(
    line: Arc<CommandAnalysis>,
    policy: &Arc<Policy>,
    sandbox: SandboxCapabilities,
) -> CommandPlan {
    let request = AccessRequest {
        guarantee: sandbox.guarantee.in_context(&policy.context),
        unproven: sandbox.unproven,
        ..request_of(line)
    };
    let verdict = policy.judge(&request);
    if verdict.action == Action::Ask
        && sandbox.can_isolate
        && policy.approvals == Approvals::Sandboxed
    {
        let isolated = AccessRequest {
            isolated: true,
            ..request.clone()
        };
        let verdict = policy.judge(&isolated);
        if verdict.action == Action::Allow {
            return plan(isolated, verdict, policy);
        }
    }
    plan(request, verdict, policy)
}

fn plan(request: AccessRequest, verdict: Verdict, policy: &Arc<Policy>) -> CommandPlan {
    let policy = policy.clone();
    CommandPlan {
        is_isolated: request.isolated,
        request: AccessRequest {
            planned: Some(Arc::new(PlannedVerdict { policy, verdict })),
            ..request
        },
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::case_tables::{PathFixture, bash_rules};
    use super::*;
    use crate::Action::{Allow, Ask, Deny};
    use crate::Rules;

    fn policy(lab: &PathFixture, approvals: Approvals, rules: &Rules) -> Arc<Policy> {
        Arc::new(Policy {
            approvals,
            rules: rules.clone(),
            context: lab.context.clone(),
            ..Policy::default()
        })
    }

    #[test]
    fn command_is_isolated_only_if_that_saves_a_question() {
        use Approvals::{Default, Sandboxed};
        let lab = PathFixture::new();
        let open = bash_rules(&lab.context, &[("*", Allow)]);
        let asks = bash_rules(&lab.context, &[("*", Ask)]);
        let denies = bash_rules(&lab.context, &[("*", Ask), ("rm*", Deny)]);
        // The approvals, the rules, the line, whether the sandbox can isolate; whether the command
        // is isolated, and its verdict.
        let table = [
            (Default, &asks, "touch x", true, false, Ask),
            (Sandboxed, &asks, "touch x", true, true, Allow),
            (Sandboxed, &asks, "touch x", false, false, Ask),
            (Sandboxed, &open, "touch x", true, false, Allow),
            (Sandboxed, &asks, "cat ../out/f", true, false, Ask),
            (Sandboxed, &denies, "rm x", true, false, Deny),
        ];
        for (approvals, rules, command, can_isolate, isolated, action) in table {
            let policy = policy(&lab, approvals, rules);
            let sandbox = SandboxCapabilities {
                can_isolate,
                ..SandboxCapabilities::default()
            };
            let line = Arc::new(analyze(command, &lab.context));
            let CommandPlan {
                is_isolated,
                request,
            } = plan_command(line, &policy, sandbox);
            let planned = request.planned.clone().unwrap();
            let verdict = planned.under(&policy, &request).unwrap();
            assert_eq!(
                (is_isolated, verdict.action),
                (isolated, action),
                "{approvals:?} {command} {can_isolate}"
            );
            assert_eq!(verdict, policy.judge(&request), "{command}");
        }
    }

    #[test]
    fn planned_verdict_holds_under_the_same_rules_only() {
        let lab = PathFixture::new();
        let asks = bash_rules(&lab.context, &[("*", Ask)]);
        let asked = policy(&lab, Approvals::Default, &asks);
        let line = Arc::new(analyze("touch x", &lab.context));
        let plan = plan_command(line, &asked, SandboxCapabilities::default());
        let planned = plan.request.planned.clone().unwrap();
        let under =
            |policy: &Policy, request: &AccessRequest| planned.under(policy, request).is_some();
        assert!(under(&asked, &plan.request));
        assert!(under(
            &policy(&lab, Approvals::Default, &asks),
            &plan.request
        ));
        let changes: [fn(&mut Policy); 4] = [
            |policy| policy.approvals = Approvals::Ask,
            |policy| policy.doubt = Some("a file cannot be read".into()),
            |policy| policy.rules.extend([]),
            |policy| policy.grants = Rules::built_in(&[("bash", "touch *", Allow)]),
        ];
        let changed = changes.map(|change| {
            let mut policy = Policy::clone(&asked);
            change(&mut policy);
            under(&policy, &plan.request)
        });
        assert_eq!(changed, [false, false, true, false]);
        let demanded = AccessRequest {
            minimum: Some((Ask, "a hook asks".into())),
            ..plan.request.clone()
        };
        assert!(!under(&asked, &demanded));
    }

    #[test]
    fn analysis_is_shared_for_the_same_line_in_the_same_directory() {
        let lab = PathFixture::new();
        let shared = SharedAnalysis::default();
        let first = shared.of("ls", &lab.context);
        assert!(Arc::ptr_eq(&first, &shared.of("ls", &lab.context)));
        assert_eq!(shared.of("touch x", &lab.context).text, "touch x");
        let elsewhere = PermissionContext {
            cwd: lab.context.cwd.join("src"),
            ..lab.context.clone()
        };
        assert!(!Arc::ptr_eq(&first, &shared.of("ls", &elsewhere)));
        let again = shared.outdated();
        assert!(Arc::ptr_eq(&shared.parsed, &again.parsed));
        assert!(!Arc::ptr_eq(&first, &again.of("ls", &lab.context)));
        assert!(Arc::ptr_eq(&first, &shared.of("ls", &lab.context)));
    }
}
