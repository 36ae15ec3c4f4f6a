//! The plan of a command: the sandbox that it runs in, and the access request that is judged.
//!
//! Both are decided once, by [`plan_command`], from the line, the policy and the capabilities of
//! the sandbox. Preparing and asking share the plan, running gets its sandbox; `permissions
//! explain` and `permissions check` make the same plan.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::command_request::request_of;
use super::shell::{CommandAnalysis, Name, NamedCommand, ParsedLine, analyze, commands};
use super::{AccessRequest, Action, PermissionContext, Policy, SandboxGuarantee, Verdict};
use base::approvals::Approvals;

/// A command line with its analysis.
#[derive(Debug, Clone)]
pub struct CommandLine {
    pub analysis: Arc<CommandAnalysis>,
    /// True if processes may continue after its shell has ended.
    leaves_processes: bool,
}

impl CommandLine {
    /// Returns the command line of an analysis, which runs in the background or not.
    pub fn new(analysis: Arc<CommandAnalysis>, in_background: bool) -> Self {
        let leaves_processes = in_background || may_start_background(&analysis.text);
        Self {
            analysis,
            leaves_processes,
        }
    }

    /// Analyses a command line that runs in the foreground.
    pub fn analyze(command: &str, context: &PermissionContext) -> Self {
        Self::new(Arc::new(analyze(command, context)), false)
    }

    /// Returns the sandbox to prepare for it, before it is judged.
    pub fn sandbox(&self) -> PlannedSandbox {
        if !self.leaves_processes && self.analysis.is_read_only() {
            PlannedSandbox::Harmless
        } else {
            PlannedSandbox::Agent
        }
    }
}

/// Returns whether a command line may start a background command with `&`. A wrong answer for a
/// quoted `&` is harmless.
pub fn may_start_background(command: &str) -> bool {
    let bytes = command.as_bytes();
    memchr::memchr_iter(b'&', bytes).any(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + 1);
        !matches!(before, Some(b'&' | b'>' | b'<' | b'|' | b'\\'))
            && !matches!(after, Some(b'&' | b'>'))
    })
}

/// The sandbox that a command runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedSandbox {
    /// The sandbox for a command that is known to be read-only and ends with its shell. Such a
    /// command may run in parallel with other calls, under every agent.
    Harmless,
    /// The agent's own sandbox.
    Agent,
    /// The agent's sandbox without network: in it, the command needs no question.
    Isolated,
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

    /// Returns the commands in texts about the call, each as its words joined by spaces. Neither
    /// the line nor a command in it is parsed again.
    pub fn commands_in(&self, texts: &[String]) -> Vec<String> {
        let mut known: HashSet<&str> = HashSet::new();
        let mut found = vec![];
        let line = self.parsed.get();
        if let Some(line) = line.filter(|line| texts.contains(&line.text))
            && let Some(commands) = line.commands()
        {
            known.insert(&line.text);
            for NamedCommand { text, names } in commands {
                known.insert(text);
                found.push(joined(&names));
            }
        }
        let others = texts.iter().filter(|text| !known.contains(text.as_str()));
        let others = others.filter_map(|text| commands(text)).flatten();
        found.extend(others.map(|names| joined(&names)));
        found
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

fn joined(names: &[Name]) -> String {
    let words: Vec<&str> = names.iter().map(|name| name.text.as_str()).collect();
    words.join(" ")
}

/// The sandbox that was found for a command, as far as a plan depends on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxCapabilities {
    /// The confirmed restrictions.
    pub guarantee: SandboxGuarantee,
    /// True if the sandbox confines any command to the project when it also blocks the network.
    pub can_isolate: bool,
    /// True if the agent only reads, and no sandbox keeps it from changing things.
    pub is_read_only_unenforced: bool,
    pub hidden: HiddenFiles,
}

/// The visibility of the credentials and secrets that a sandbox hides from commands if it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HiddenFiles {
    /// The command cannot see them.
    Invisible,
    /// The command could read them; its text is not known to mention one.
    Visible,
    /// The command could read them, and its text mentions one.
    #[default]
    Mentioned,
}

/// The decisions about a command.
#[derive(Debug, Clone)]
pub struct CommandPlan {
    pub analysis: Arc<CommandAnalysis>,
    pub sandbox: PlannedSandbox,
    /// The request, with its verdict under the policy of the plan.
    pub request: AccessRequest,
}

impl CommandPlan {
    /// Returns whether the user is asked about the command.
    pub fn needs_question(&self) -> bool {
        let planned = self.request.planned_verdict.as_ref();
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
        let is_current = request.hook_question.is_none() && self.policy.judges_as(policy);
        is_current.then(|| self.verdict.clone())
    }
}

/// Chooses the sandbox for a command, and decides if the user is asked about it.
///
/// The README of this crate has the principle: a question must buy safety. A plan asks for one of
/// three reasons:
///
/// 1. A rule asks, or may deny or ask about a part that the line does not show.
/// 2. The sandbox does not prevent an effect. For an agent that only reads, it counts only if the
///    hidden files stay hidden: a sandbox that can hide none prevents nothing for a command that
///    mentions one, or that may still look for them after its shell has ended.
/// 3. There is no sandbox. For an agent that only reads, a rule that allows everything is not enough
///    then: each part that is not known to be harmless is asked about.
///
/// A question is avoided by isolation if the user has chosen that and everything that would be
/// asked about is confined by it. That takes a second judgement: isolation removes reasons from each
/// part before they are compared with those of its files and its minimum verdict, so neither verdict
/// follows from the other. The first one is needed all the same, because a command that it allows
/// keeps its network, and because its reasons are those of the question.
pub fn plan_command(
    line: CommandLine,
    policy: &Arc<Policy>,
    sandbox: SandboxCapabilities,
) -> CommandPlan {
    const UNENFORCED: &str = "this agent may change nothing, no sandbox enforces that here, and this command is not known to be harmless";
    let planned = line.sandbox();
    let is_unproven = sandbox.is_read_only_unenforced && planned != PlannedSandbox::Harmless;
    let request = AccessRequest {
        guarantee: guarantee_for(&line, sandbox).in_context(&policy.context),
        why_only_harmless: is_unproven.then(|| UNENFORCED.to_owned()),
        ..request_of(line.analysis.clone())
    };
    let verdict = policy.judge(&request);
    if verdict.action == Action::Ask
        && sandbox.can_isolate
        && policy.approvals == Approvals::Sandboxed
    {
        let isolated = AccessRequest {
            is_isolated: true,
            ..request.clone()
        };
        let verdict = policy.judge(&isolated);
        if verdict.action == Action::Allow {
            return plan(line, PlannedSandbox::Isolated, isolated, verdict, policy);
        }
    }
    plan(line, planned, request, verdict, policy)
}

/// Returns the guarantee of a sandbox for a command line: none if an agent that only reads could
/// read hidden files with it.
fn guarantee_for(line: &CommandLine, sandbox: SandboxCapabilities) -> SandboxGuarantee {
    let is_exposed = match sandbox.hidden {
        HiddenFiles::Invisible => false,
        HiddenFiles::Visible => line.leaves_processes,
        HiddenFiles::Mentioned => true,
    };
    match sandbox.guarantee {
        SandboxGuarantee::ReadOnly { .. }
            if is_exposed && line.sandbox() != PlannedSandbox::Harmless =>
        {
            SandboxGuarantee::None
        }
        guarantee => guarantee,
    }
}

fn plan(
    line: CommandLine,
    sandbox: PlannedSandbox,
    request: AccessRequest,
    verdict: Verdict,
    policy: &Arc<Policy>,
) -> CommandPlan {
    let policy = policy.clone();
    CommandPlan {
        analysis: line.analysis,
        sandbox,
        request: AccessRequest {
            planned_verdict: Some(Arc::new(PlannedVerdict { policy, verdict })),
            ..request
        },
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::case_tables::{PathFixture, bash_rules, plan_rules};
    use std::collections::BTreeSet;

    use super::PlannedSandbox::{Agent, Harmless, Isolated};
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
        // The approvals, the rules, the line, whether the sandbox can isolate; the planned sandbox,
        // and the verdict.
        let table = [
            (Default, &asks, "touch x", true, Agent, Ask),
            (Sandboxed, &asks, "touch x", true, Isolated, Allow),
            (Sandboxed, &asks, "touch x", false, Agent, Ask),
            (Sandboxed, &open, "touch x", true, Agent, Allow),
            (Sandboxed, &open, "ls", true, Harmless, Allow),
            (Sandboxed, &asks, "cat ../out/f", true, Harmless, Ask),
            (Sandboxed, &denies, "rm x", true, Agent, Deny),
        ];
        for (approvals, rules, command, can_isolate, planned, action) in table {
            let policy = policy(&lab, approvals, rules);
            let sandbox = SandboxCapabilities {
                can_isolate,
                ..SandboxCapabilities::default()
            };
            let line = CommandLine::analyze(command, &lab.context);
            let plan = plan_command(line, &policy, sandbox);
            let request = plan.request;
            let verdict = request.planned_verdict.clone().unwrap();
            let verdict = verdict.under(&policy, &request).unwrap();
            assert_eq!(
                (plan.sandbox, verdict.action),
                (planned, action),
                "{approvals:?} {command} {can_isolate}"
            );
            assert_eq!(verdict, policy.judge(&request), "{command}");
        }
    }

    #[test]
    fn sandbox_of_a_reading_agent_counts_while_hidden_files_stay_hidden() {
        use HiddenFiles::{Invisible, Mentioned, Visible};
        let lab = PathFixture::new();
        let policy = policy(&lab, Approvals::Default, &plan_rules(&lab.context));
        let sandbox = SandboxGuarantee::ReadOnly {
            hides_secrets: false,
            blocks_signals: true,
        };
        // The line, the visibility of hidden files; the planned sandbox, whether it counts, and
        // whether the user is asked.
        let table = [
            ("make", Invisible, Agent, true, false),
            ("make", Visible, Agent, true, false),
            ("make", Mentioned, Agent, false, true),
            ("make &", Invisible, Agent, true, false),
            ("make &", Visible, Agent, false, true),
            ("ls", Mentioned, Harmless, true, false),
            ("ls &", Visible, Agent, false, false),
        ];
        for (command, hidden, planned, counts, asks) in table {
            let capabilities = SandboxCapabilities {
                guarantee: sandbox,
                hidden,
                ..SandboxCapabilities::default()
            };
            let line = CommandLine::analyze(command, &lab.context);
            let plan = plan_command(line, &policy, capabilities);
            assert_eq!(
                (
                    plan.sandbox,
                    plan.request.guarantee == sandbox,
                    plan.needs_question()
                ),
                (planned, counts, asks),
                "{command} {hidden:?}"
            );
        }
    }

    #[test]
    fn agent_that_only_reads_is_not_trusted_to_without_a_sandbox() {
        let lab = PathFixture::new();
        let open = bash_rules(&lab.context, &[("*", Allow)]);
        let policy = policy(&lab, Approvals::Default, &open);
        for (command, is_unenforced, asks) in [
            ("make", true, true),
            ("make", false, false),
            ("ls", true, false),
            ("ls; make", true, true),
        ] {
            let capabilities = SandboxCapabilities {
                is_read_only_unenforced: is_unenforced,
                ..SandboxCapabilities::default()
            };
            let line = CommandLine::analyze(command, &lab.context);
            let plan = plan_command(line, &policy, capabilities);
            assert_eq!(plan.needs_question(), asks, "{command} {is_unenforced}");
        }
    }

    #[test]
    fn only_background_ampersands_start_others() {
        for (command, starts) in [
            ("a &", true),
            ("a & b", true),
            ("a&b", true),
            ("a >x 2>&1 &", true),
            ("a && b", false),
            ("a 2>&1", false),
            ("a &>x", false),
            ("a |& b", false),
            ("a <&3", false),
            ("a \\& b", false),
            ("a", false),
        ] {
            assert_eq!(may_start_background(command), starts, "{command}");
        }
    }

    #[test]
    fn commands_in_texts_are_those_of_each_text() {
        let lab = PathFixture::new();
        let lines = [
            "",
            "X=1",
            "git commit -m x",
            "cd a && X=1 git push >log",
            "sh -c 'cd a && X=1 git push >log'",
            "sudo git push 2>&1 | tee -a b",
            "f() { X=1 rm a; }; f",
            "eval 'f() { X=1 rm a; }'; f",
            "cat <<EOF\n$(rm a) $x\nEOF",
            "bash <<'EOF'\nX=1 rm a >b\nEOF",
            "echo $(git push | tee b) `rm a`",
            "for x in a b; do rm $x; done < list",
            "[[ -e a ]] && rm a || ((x = 1))",
            "git push\necho 'open",
            "git push; )",
        ];
        for line in lines {
            let shared = SharedAnalysis::default();
            let mut texts = request_of(shared.of(line, &lab.context)).patterns;
            texts.push(line.to_owned());
            let each: BTreeSet<String> = texts
                .iter()
                .filter_map(|text| commands(text))
                .flatten()
                .map(|names| joined(&names))
                .collect();
            let found: BTreeSet<String> = shared.commands_in(&texts).into_iter().collect();
            assert_eq!(found, each, "{line}");
        }
    }

    #[test]
    fn neither_a_line_nor_its_commands_are_parsed_again() {
        let lab = PathFixture::new();
        let shared = SharedAnalysis::default();
        shared.of("git push && rm a >b", &lab.context);
        // The texts; their commands, of which those that are parsed anew come last.
        let table: [(&[&str], &[&str]); 4] = [
            (
                &["git push && rm a >b", "git push"],
                &["git push", "rm a b"],
            ),
            (
                &["rm a >b", "git push && rm a >b", "git push"],
                &["git push", "rm a b"],
            ),
            (
                &["rm a", "git push && rm a >b"],
                &["git push", "rm a b", "rm a"],
            ),
            (&["git push", "git push"], &["git push", "git push"]),
        ];
        for (texts, found) in table {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(shared.commands_in(&texts), found, "{texts:?}");
        }
    }

    #[test]
    fn planned_verdict_holds_under_the_same_rules_only() {
        let lab = PathFixture::new();
        let asks = bash_rules(&lab.context, &[("*", Ask)]);
        let asked = policy(&lab, Approvals::Default, &asks);
        let line = CommandLine::analyze("touch x", &lab.context);
        let plan = plan_command(line, &asked, SandboxCapabilities::default());
        let planned = plan.request.planned_verdict.clone().unwrap();
        let under =
            |policy: &Policy, request: &AccessRequest| planned.under(policy, request).is_some();
        assert!(under(&asked, &plan.request));
        assert!(under(
            &policy(&lab, Approvals::Default, &asks),
            &plan.request
        ));
        let changes: [fn(&mut Policy); 4] = [
            |policy| policy.approvals = Approvals::Ask,
            |policy| policy.unreadable_settings = Some("a file cannot be read".into()),
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
            hook_question: Some("a hook asks".into()),
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
