//! `adjutant permissions explain`: the verdict on a command line or a file, its reasons, the
//! sandbox, and the settings that would change it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};

use super::{Query, approvals, granted, policy, sandbox};
use crate::cli::project_context::ProjectContext;
use crate::cli::{say, terminal};
use base::approvals::Approvals;
use base::environment::Environment;
use base::text::{shell_quoted, spelled};
use config::settings::Settings;
use permission::evaluate::only_reads;
use permission::explain::{self, headline};
use permission::locate::PathRefusal;
use permission::path_gate::{self, PathDenied};
use permission::plan::CommandPlan;
use permission::remedy::WayToAllow;
use permission::shell::unreadable;
use permission::wording::QuestionWording;
use permission::{
    Access, AccessRequest, Action, Policy, Rule, SandboxGuarantee, Verdict, delegate_in, remedy,
};
use sandbox::process::Program;
use tools::process::writable_paths::describe_opened_by_consent;

/// The agent whose rules apply if no other is named.
const DEFAULT_AGENT: &str = "build";

/// The options of `permissions explain`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true),
    override_usage = "adjutant permissions explain [OPTIONS] <COMMAND>...\n       adjutant permissions explain [OPTIONS] --read <PATH>\n       adjutant permissions explain [OPTIONS] --edit <PATH>",
)]
pub(in crate::cli) struct Explanation {
    /// Agent that would run the command or use the file
    #[arg(long, default_value = DEFAULT_AGENT)]
    agent: String,
    /// Approvals: default, ask or sandboxed [default: those of the settings]
    #[arg(long, value_parser = approvals)]
    approvals: Option<Approvals>,
    /// Sandbox of commands: none, read-only or workspace [default: the one of this machine]
    #[arg(long, value_parser = sandbox)]
    sandbox: Option<SandboxGuarantee>,
    /// File that would be read
    #[arg(long, group = "what", value_name = "PATH")]
    read: Option<String>,
    /// File that would be created, changed or removed
    #[arg(long, group = "what", value_name = "PATH")]
    edit: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Command line, in quotes or as separate words; options come before it
    #[arg(group = "what", num_args = 1.., trailing_var_arg = true)]
    command: Vec<String>,
}

/// Prints the verdict on a command line or a file, with its reasons.
pub(super) async fn explain(
    explanation: Explanation,
    environment: &Environment,
) -> anyhow::Result<u8> {
    let Explanation {
        agent,
        approvals,
        sandbox,
        read,
        edit,
        json,
        command,
    } = explanation;
    let path = read
        .map(|path| (Access::Read, path))
        .or(edit.map(|path| (Access::Edit, path)));
    if let Some(message) = misplaced_option(&command) {
        terminal::misused(&message);
        return Ok(terminal::MISUSED);
    }
    let command = line_of(&command);
    if path.is_none() && command.trim().is_empty() {
        bail!(
            "the command line is empty; to explain one, write it in quotes: `adjutant permissions explain 'git push'`"
        );
    }
    let here = ProjectContext::read(Path::new("."), environment)?;
    let policy = Policy {
        grants: granted(&agent, &here, environment).await,
        ..policy(&agent, &here, environment)?
    };
    let query = Query::new(approvals, sandbox, policy, &here, environment).await;
    let policy = &*query.policy;
    let syntax = match &path {
        Some(_) => SyntaxReport::default(),
        None => SyntaxReport::of(&command, environment).await,
    };
    let (plan, requests) = match &path {
        Some((access, path)) => match path_requests(policy, *access, path) {
            Ok(requests) => {
                let in_sandbox = |request| policy.in_sandbox(request);
                (None, requests.into_iter().map(in_sandbox).collect())
            }
            Err(refusal) => return print_refusal(path, &refusal.to_string(), json),
        },
        None => match query.plan(&command, &query.policy) {
            Ok(plan) => {
                let request = plan.request.clone();
                (Some(plan), vec![request])
            }
            Err(reason) => return print_refusal(&command, &reason, json),
        },
    };
    let verdicts: Vec<Verdict> = requests
        .iter()
        .map(|request| policy.judge(request))
        .collect();
    let action = verdicts.iter().map(|verdict| verdict.action).max();
    let action = action.unwrap_or(Action::Allow);
    let error = syntax.whole_error(&command);
    let section = section_of(&agent, &here.loaded.settings);
    let remedy = remedy_of(policy, &agent, &section, &requests, &verdicts);
    if json {
        let all: Vec<Value> = requests
            .iter()
            .zip(&verdicts)
            .map(|(request, verdict)| {
                let mut data = data_of(request, verdict, action, remedy.as_ref(), policy);
                if let Some(plan) = &plan {
                    data["runs"] = json!(error.is_none());
                    // A script must not take it for a command that is allowed.
                    if error.is_some() {
                        data["verdict"] = Value::Null;
                    }
                    data["sandbox"] = json!(query.named_sandbox(plan).as_str());
                }
                syntax.add_to(&mut data);
                data
            })
            .collect();
        terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    if let Some(error) = error {
        let text = does_not_run(&command, error, action);
        terminal::verdicts(&text, environment);
        return Ok(0);
    }
    let mut notes = Vec::new();
    notes.extend(approvals_note(policy));
    if let Some(plan) = &plan
        && let [verdict] = verdicts.as_slice()
        && action < Action::Deny
    {
        notes.push(sandbox_note(
            plan,
            verdict,
            query.named_sandbox(plan),
            policy,
            sandbox,
        ));
    }
    notes.extend(syntax.notes());
    notes.extend(file_note(&command, &here.cwd));
    notes.extend(remedy.iter().flat_map(Remedy::lines));
    let mut text = String::new();
    if let (Some((access, path)), [_, _, ..]) = (&path, requests.as_slice()) {
        let use_of_file = format!("{} {path}", verb_of(*access));
        text.push_str(&headline(action, &use_of_file));
        if let Some(reason) = reason_to_ask(&requests, &verdicts) {
            let _ = write!(text, "\n  why: {}", spelled(&reason));
        }
        for note in &notes {
            let _ = write!(text, "\n  {note}");
        }
        text.push_str("\nall of these must be allowed:\n");
        notes.clear();
    }
    for (request, verdict) in requests.iter().zip(&verdicts) {
        text.push_str(&explain::explain(verdict, request, &policy.rules, &notes));
    }
    terminal::verdicts(&text, environment);
    Ok(0)
}

fn verb_of(access: Access) -> &'static str {
    match access {
        Access::List | Access::Read => "read",
        Access::Edit => "edit",
    }
}

/// Returns one of the verdicts as JSON. `overall` is the strictest of them, and the remedy changes it.
fn data_of(
    request: &AccessRequest,
    verdict: &Verdict,
    overall: Action,
    remedy: Option<&Remedy>,
    policy: &Policy,
) -> Value {
    let mut data = explain::data(verdict, request, &policy.rules);
    if verdict.action == Action::Ask && data["reason"].is_null() {
        let wording = QuestionWording::new(&[(request, verdict)], None);
        data["reason"] = json!(wording.short_reason());
    }
    data["overall"] = json!(explain::word(overall));
    data["change"] = match remedy {
        Some(remedy) if verdict.action == overall => remedy.data(),
        _ => Value::Null,
    };
    data
}

/// Describes approvals that are not the default.
fn approvals_note(policy: &Policy) -> Option<String> {
    let approvals = policy.approvals;
    let held = match (approvals, policy.sandbox.can_isolate) {
        (Approvals::Default, _) => return None,
        (Approvals::Sandboxed, false) => {
            ", but no sandbox that contains all commands is available here"
        }
        _ => "",
    };
    Some(format!("approvals: {}{held}", approvals.as_str()))
}

/// Returns the reason of a question about all requests, if one is asked.
fn reason_to_ask(requests: &[AccessRequest], verdicts: &[Verdict]) -> Option<String> {
    if verdicts
        .iter()
        .any(|verdict| verdict.action == Action::Deny)
    {
        return None;
    }
    let pairs = requests.iter().zip(verdicts);
    let asked: Vec<_> = pairs.filter(|pair| pair.1.action == Action::Ask).collect();
    (!asked.is_empty()).then(|| QuestionWording::new(&asked, None).short_reason())
}

/// Prints that a command or a file is refused, whatever the rules are.
fn print_refusal(text: &str, reason: &str, json: bool) -> anyhow::Result<u8> {
    if json {
        let all = json!([{ "text": text, "verdict": "refuse", "reason": reason }]);
        terminal::json(&serde_json::to_string_pretty(&all)?);
    } else {
        say(&format!("refused: {reason}"));
    }
    Ok(0)
}

/// Returns a note about a command line that is nothing but the name of a file here.
fn file_note(command: &str, cwd: &Path) -> Option<String> {
    let name = command.trim();
    if name.is_empty() || !cwd.join(name).is_file() {
        return None;
    }
    let file = shell_quoted(name);
    Some(format!(
        "note: this explains running it; `adjutant explain --read {file}` and `--edit {file}` explain using the file"
    ))
}

/// Describes a command line that bash refuses, and the action if an agent tries it.
fn does_not_run(command: &str, error: &str, action: Action) -> String {
    let tried = match action {
        Action::Allow => "adjutant would not ask about it, and bash would report the error",
        Action::Ask => "adjutant would ask about it first",
        Action::Deny => "adjutant would refuse it",
    };
    format!(
        "does not run: {}\n  why: bash reports an error in it: {error}\n  if the agent tries it: {tried}\n",
        spelled(command.trim()),
    )
}

/// Returns the message about an option of `explain` after the command line.
fn misplaced_option(words: &[String]) -> Option<String> {
    if is_after_separator(words) {
        return None;
    }
    let option = option_after_line(words)?;
    let quoted: Vec<_> = words.iter().map(|word| shell_quoted(word)).collect();
    Some(format!(
        "{option} is after the command line, but the options of `adjutant permissions explain` come before it; if it is an option of that command, write `--` before it: -- {}",
        quoted.join(" ")
    ))
}

/// Returns an option of `explain` among the words after a complete command line, which would
/// silently become a part of it: after a line in quotes, or directly after a single word.
fn option_after_line(words: &[String]) -> Option<&String> {
    let (line, others) = words.split_first()?;
    let is_quoted_line = line.trim().contains(char::is_whitespace);
    let after = if is_quoted_line {
        others
    } else {
        &others[..others.len().min(1)]
    };
    after.iter().find(|word| is_own_option(word))
}

/// Returns whether the words of a command are marked as such by `--` before them.
fn is_after_separator(words: &[String]) -> bool {
    let mut before = std::env::args_os().rev().skip(words.len());
    before.next().is_some_and(|word| word == "--")
}

fn is_own_option(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    let options = <Explanation as clap::Args>::augment_args(clap::Command::new("explain"));
    name.strip_prefix("--").is_some_and(|name| {
        options
            .get_arguments()
            .any(|option| option.get_long() == Some(name))
    })
}

/// Returns the command line of the words after `explain`: a single one is the line, and several are
/// those that a shell has made of it.
fn line_of(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let quoted: Vec<_> = words.iter().map(|word| shell_quoted(word)).collect();
            quoted.join(" ")
        }
    }
}

/// The reasons why a command line is not parsed.
#[derive(Debug, Default)]
struct SyntaxReport {
    /// The reason why adjutant does not parse it.
    ours: Option<String>,
    /// The error that bash reports.
    of_bash: Option<String>,
}

impl SyntaxReport {
    async fn of(command: &str, environment: &Environment) -> Self {
        Self {
            ours: unreadable(command),
            of_bash: bash_error(command, environment).await,
        }
    }

    /// Returns the error because of which bash runs nothing of a command line. Of several lines, it
    /// runs those before the error.
    fn whole_error(&self, command: &str) -> Option<&String> {
        if command.trim().contains('\n') {
            return None;
        }
        self.of_bash.as_ref()
    }

    fn notes(&self) -> impl Iterator<Item = String> {
        let of_bash = self.of_bash.as_ref().map(|error| {
            format!("note: bash may run its first lines, and then reports an error: {error}")
        });
        let ours = self.ours.as_ref().map(|why| {
            format!(
                "note: adjutant cannot parse this line ({why}). It judges the commands that it finds in it, and asks \
                 if no rule decides."
            )
        });
        of_bash.into_iter().chain(ours)
    }

    fn add_to(&self, data: &mut Value) {
        let parts = [("unparsed", &self.ours), ("bashError", &self.of_bash)];
        for (key, value) in parts {
            if let Some(value) = value {
                data[key] = json!(value);
            }
        }
    }
}

/// Returns the syntax error that bash reports for a command line, which it only reads. `None`
/// without an error or a bash.
async fn bash_error(command: &str, environment: &Environment) -> Option<String> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    // Other variables could name a file that bash would run first.
    let path = environment.var("PATH").unwrap_or_default();
    let variables = [("PATH".into(), path.into()), ("LC_ALL".into(), "C".into())];
    let bash = Program::new("bash", "/", variables.into());
    let bash = bash.args(["--norc", "--noprofile", "-n", "-c", command]);
    let output = bash.run(TIMEOUT).await.ok()?;
    if output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next()?;
    let error = line.strip_prefix("bash: -c: ").unwrap_or(line);
    // Of one line, bash reports the end as another one.
    let error = if command.trim().contains('\n') {
        error
    } else {
        let numbered = error
            .strip_prefix("line ")
            .and_then(|rest| rest.split_once(": "));
        numbered.map_or(error, |(_, error)| error)
    };
    Some(base::text::title(error))
}

/// Describes the sandbox `named` of a command that runs under a policy. `given` is the guarantee of
/// the option.
fn sandbox_note(
    plan: &CommandPlan,
    verdict: &Verdict,
    named: SandboxGuarantee,
    policy: &Policy,
    given: Option<SandboxGuarantee>,
) -> String {
    let of_agent = policy.sandbox.guarantee;
    let is_exposed = plan.request.guarantee == SandboxGuarantee::None
        && !verdict.is_proven_read_only
        && matches!(of_agent, SandboxGuarantee::ReadOnly { .. });
    if is_exposed {
        return format!(
            "sandbox: {}: it can hide no credentials and secrets here, and this command may read some",
            of_agent.as_str()
        );
    }
    let guarantee = named;
    let source = if given == Some(guarantee) {
        ", as the option says"
    } else {
        ""
    };
    let reason = match guarantee {
        SandboxGuarantee::None if given.is_none() => {
            "; `adjutant doctor` says why there is no sandbox"
        }
        _ => "",
    };
    let effect = guarantee.effect(verdict.is_proven_read_only);
    let consent = match guarantee {
        SandboxGuarantee::Workspace { .. } if verdict.action == Action::Ask => {
            describe_opened_by_consent(&plan.analysis, &policy.context)
        }
        _ => String::new(),
    };
    let outside = match delegate_in(&plan.analysis) {
        Some(_) if guarantee == SandboxGuarantee::None => String::new(),
        Some(program) if RUNS_AS_ROOT.contains(&program) => {
            format!("; {program} gains no further rights in it")
        }
        Some(program) => format!("; what {program} does elsewhere is not in the sandbox"),
        None => String::new(),
    };
    let name = guarantee.as_str();
    format!("sandbox: {name}{source}: {effect}{reason}{consent}{outside}")
}

/// Programs that run a command as another user. Their commands stay in the sandbox, which does not let
/// them change the user.
const RUNS_AS_ROOT: [&str; 5] = ["doas", "pkexec", "runuser", "su", "sudo"];

/// A way to change a verdict, or the reason why there is none.
#[derive(Debug, PartialEq, Eq)]
struct Remedy {
    /// A sentence, or the purpose of the commands.
    text: String,
    /// The commands that change it.
    commands: Vec<String>,
}

impl Remedy {
    fn sentence(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            commands: Vec::new(),
        }
    }

    fn lines(&self) -> Vec<String> {
        if self.commands.is_empty() {
            return vec![self.text.clone()];
        }
        let commands = self.commands.iter();
        std::iter::once(format!("{}:", self.text))
            .chain(commands.map(|command| format!("  {command}")))
            .collect()
    }

    fn data(&self) -> Value {
        json!({ "text": self.text, "commands": self.commands })
    }
}

/// Returns how to change a verdict. `section` is that of the agent's rules in the user's settings.
fn remedy_of(
    policy: &Policy,
    agent: &str,
    section: &str,
    requests: &[AccessRequest],
    verdicts: &[Verdict],
) -> Option<Remedy> {
    let action = verdicts.iter().map(|verdict| verdict.action).max();
    if action.is_none_or(|action| action == Action::Allow) {
        return remedy_of_allowed(policy, section, requests);
    }
    if policy.approvals == Approvals::Ask && is_allowed_by_default(policy, requests) {
        return Some(Remedy {
            text: "to allow it without asking".to_owned(),
            commands: vec!["adjutant config set approvals default".to_owned()],
        });
    }
    if is_allowed_in_sandbox(policy, requests) {
        return Some(Remedy::sentence(
            "in a sandbox that keeps this agent from changing anything, it is allowed without asking",
        ));
    }
    let text = match remedy::way_to_allow(policy, requests) {
        WayToAllow::Add(rules) => {
            let commands = rules.iter().map(|rule| config_set(section, rule));
            return Some(Remedy {
                text: "to allow it without asking".to_owned(),
                commands: commands.collect(),
            });
        }
        WayToAllow::Edit(rule) => format!("to change that, edit the rule in {}", rule.source),
        WayToAllow::Never if action == Some(Action::Ask) => {
            "no setting allows it in advance: you decide each time".to_owned()
        }
        WayToAllow::Never if only_reads(&policy.rules) => {
            format!("the agent {agent} only reads; another mode, such as build, may do it")
        }
        WayToAllow::Never => "no setting allows it".to_owned(),
    };
    Some(Remedy::sentence(text))
}

fn remedy_of_allowed(policy: &Policy, section: &str, requests: &[AccessRequest]) -> Option<Remedy> {
    if remedy::is_granted(policy, requests) {
        let names = deciding_grants(policy, requests).into_iter();
        return Some(Remedy {
            text: "to withdraw your \"always\"".to_owned(),
            commands: names
                .map(|name| format!("adjutant permissions revoke {name}"))
                .collect(),
        });
    }
    let rule = remedy::rule_that_asks(policy, requests)?;
    Some(Remedy {
        text: "to be asked first (or deny in place of ask, to refuse it)".to_owned(),
        commands: vec![config_set(section, &rule)],
    })
}

/// Returns the permissions whose grants allow something in the requests. The grant of a command's
/// path is not one of the permission `bash`.
fn deciding_grants<'p>(policy: &'p Policy, requests: &[AccessRequest]) -> Vec<&'p str> {
    let names = policy.grants.iter().map(|rule| rule.permission.as_str());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    let decides = |name: &&str| {
        let others = policy.grants.iter();
        let others = others.filter(|rule| rule.permission != *name);
        let without = Policy {
            grants: others.cloned().collect(),
            ..policy.clone()
        };
        requests
            .iter()
            .any(|request| without.judge(request).action != policy.judge(request).action)
    };
    let deciding: Vec<&str> = names.iter().copied().filter(decides).collect();
    // Each of several grants may be enough.
    if deciding.is_empty() { names } else { deciding }
}

fn is_allowed_by_default(policy: &Policy, requests: &[AccessRequest]) -> bool {
    let policy = Policy {
        approvals: Approvals::Default,
        ..policy.clone()
    };
    requests
        .iter()
        .all(|request| policy.judge(request).action == Action::Allow)
}

/// Returns whether the requests are not allowed only because no sandbox keeps the agent from
/// changing anything.
fn is_allowed_in_sandbox(policy: &Policy, requests: &[AccessRequest]) -> bool {
    requests.iter().all(|request| {
        let request = AccessRequest {
            why_only_harmless: None,
            ..request.clone()
        };
        policy.judge(&request).action == Action::Allow
    })
}

/// Returns the section of the user's settings for new rules about an agent. The rules for all agents
/// come before those of the agent and before those of a project, so they could not decide there.
fn section_of(agent: &str, settings: &Settings) -> String {
    /// The beginning of the names of the user's own files.
    const USERS_FILES: &str = "~/.config/";
    let mut entries = settings.agents.iter();
    let has_rules = entries.any(|entry| entry.name == agent && !entry.rules.is_empty());
    let mut rules = settings.permission.iter();
    let are_the_users = rules.all(|rule| rule.source.starts_with(USERS_FILES));
    if agent == DEFAULT_AGENT && !has_rules && are_the_users {
        "permission".to_owned()
    } else {
        format!("agent.{}.permission", key_part(agent))
    }
}

/// Returns the command that adds a rule to a section of the user's settings.
fn config_set(section: &str, rule: &Rule) -> String {
    let pattern = Value::from(rule.pattern.as_str());
    let key = format!("{section}.{}.{pattern}", key_part(&rule.permission));
    let action = match rule.action {
        Action::Allow => "allow",
        Action::Ask => "ask",
        Action::Deny => "deny",
    };
    format!("adjutant config set {} {action}", shell_quoted(&key))
}

/// Returns one name of a setting as `adjutant config set` reads it.
fn key_part(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_owned();
    }
    Value::from(name).to_string()
}

/// Returns the access requests of a file tool.
///
/// # Errors
/// The path is refused, whatever the rules are.
fn path_requests(
    policy: &Policy,
    access: Access,
    path: &str,
) -> Result<Vec<AccessRequest>, PathRefusal> {
    match path_gate::check_path(policy, access, path) {
        Ok(located) => Ok(located.requests(access)),
        Err(PathDenied::Denied(denied)) => Ok(vec![denied.0]),
        Err(PathDenied::Refused(refusal)) => Err(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::AgentEntry;
    use permission::Rules;

    #[test]
    fn new_rule_comes_after_those_that_exist() {
        let rules = |source: &str| {
            Rules::from(vec![Rule {
                permission: "bash".to_owned(),
                pattern: "npm*".to_owned(),
                action: Action::Ask,
                source: source.to_owned(),
            }])
        };
        let general = |source: &str| Settings {
            permission: rules(source),
            ..Settings::default()
        };
        let of_agent = Settings {
            agents: vec![AgentEntry {
                name: DEFAULT_AGENT.to_owned(),
                rules: rules("~/.config/adjutant/adjutant.json:1"),
                ..AgentEntry::default()
            }],
            ..Settings::default()
        };
        let users = general("~/.config/adjutant/adjutant.json:1");
        let of_project = general("opencode.json:1");
        let table = [
            ("no rules", "build", &Settings::default(), "permission"),
            ("the user's", "build", &users, "permission"),
            (
                "the project's",
                "build",
                &of_project,
                "agent.build.permission",
            ),
            ("the agent's", "build", &of_agent, "agent.build.permission"),
            ("another agent", "plan", &users, "agent.plan.permission"),
        ];
        for (name, agent, settings, expected) in table {
            assert_eq!(section_of(agent, settings), expected, "{name}");
        }
    }

    #[test]
    fn settings_of_a_rule_are_read_back() {
        let table = [
            (
                section_of("build", &Settings::default()),
                "bash",
                "git push *",
                "permission.bash.\"git push *\"",
            ),
            (
                section_of("plan", &Settings::default()),
                "edit",
                "docs/a.md",
                "agent.plan.permission.edit.\"docs/a.md\"",
            ),
            (
                section_of("my.agent", &Settings::default()),
                "db_*",
                "it's",
                "agent.\"my.agent\".permission.\"db_*\".\"it's\"",
            ),
        ];
        for (section, permission, pattern, key) in table {
            let rule = Rule {
                permission: permission.to_owned(),
                pattern: pattern.to_owned(),
                action: Action::Ask,
                source: String::new(),
            };
            let line = config_set(&section, &rule);
            assert_eq!(
                line,
                format!("adjutant config set {} ask", shell_quoted(key))
            );
            let names = config::own_file::parse_key(key).unwrap();
            assert_eq!(names.last().map(String::as_str), Some(pattern));
        }
    }
}
