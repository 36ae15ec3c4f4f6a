//! `adjutant permissions`: explains verdicts, and lists and revokes grants.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};

use super::project_context::ProjectContext;
use base::approvals::Approvals;
use base::environment::Environment;
use base::text::shell_quoted;
use base::worktree::Worktree;
use permission::check::check_line;
use permission::explain;
use permission::locate::PathRefusal;
use permission::path_gate::{self, PathDenied};
use permission::shell::unreadable;
use permission::{
    Access, AccessRequest, Action, PermissionContext, Policy, Rules, SandboxGuarantee, Verdict,
    command_request,
};
use sandbox::Sandbox;
use sandbox::process::Program;
use serde_json::{Value, json};
use session::grants::Grants;
use store::{Grant, Store};
use tools::process::sandboxing::SandboxChoice;
use tools::web::webfetch::secrets;

/// Options of `adjutant permissions`.
pub(super) type Args = super::CommandOrList<Verb, Listing>;

impl Args {
    pub(super) fn revokes(&self) -> bool {
        matches!(self.verb, Some(Verb::Revoke { .. }))
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Listing {
    /// Include every project
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List what was granted with "always" in this project (default)
    List(Listing),
    /// Revoke grants of a permission, or of one of its patterns
    Revoke {
        /// Permission, as `list` shows it
        permission: String,
        /// Pattern, as `list` shows it [default: all of them]
        pattern: Option<String>,
        /// Only grants of this agent
        #[arg(long)]
        agent: Option<String>,
    },
    /// Explain whether a command, or reading or changing a file, is allowed
    ///
    /// Grants ("always") apply as in a session. Nothing is run.
    Explain(Explanation),
    /// Print the verdicts for requests from standard input, to test a policy
    ///
    /// One JSON object per line, one answer each: {"id", "bash", "cwd"}, {"id", "permission":
    /// "edit", "path"} or {"id", "permission": "webfetch", "url"}. Nothing is run.
    Check {
        /// Agent whose rules apply
        #[arg(long, default_value = "build")]
        agent: String,
        /// Approvals: default, ask or sandboxed [default: those of the settings]
        #[arg(long, value_parser = approvals)]
        approvals: Option<Approvals>,
        /// Sandbox of commands: none, read-only or workspace [default: the one of this machine]
        #[arg(long, value_parser = sandbox)]
        sandbox: Option<SandboxGuarantee>,
        /// Settings file to use in addition to the usual ones
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// The options of `permissions explain`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct Explanation {
    /// Agent that would run or change it
    #[arg(long, default_value = "build")]
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
    /// Command line: quoted, or as separate words
    #[arg(group = "what", num_args = 1..)]
    command: Vec<String>,
}

pub(super) async fn permissions(args: Args, environment: &Environment) -> anyhow::Result<u8> {
    match args.verb.unwrap_or(Verb::List(args.listing)) {
        Verb::List(Listing { all, json }) => list(all, json, environment).await,
        Verb::Revoke {
            permission,
            pattern,
            agent,
        } => revoke(&permission, pattern, agent, environment).await,
        Verb::Explain(explanation) => explain(explanation, environment).await,
        Verb::Check {
            agent,
            approvals,
            sandbox,
            config,
        } => {
            let environment = match config {
                Some(file) => {
                    let file = std::fs::canonicalize(&file)
                        .with_context(|| format!("{} is not there", file.display()))?;
                    environment.with("ADJUTANT_CONFIG", &file.display().to_string())
                }
                None => environment.clone(),
            };
            let here = ProjectContext::read(Path::new("."), &environment)?;
            let secrets = secrets(&here.loaded.settings, &environment);
            let policy = policy(&agent, &here, &environment)?;
            check(
                &asking(approvals, sandbox, policy, &here, &environment).await,
                &secrets,
            )
        }
    }
}

/// Prints the verdict on a command line or a file, with its reasons.
async fn explain(explanation: Explanation, environment: &Environment) -> anyhow::Result<u8> {
    let Explanation {
        agent,
        approvals,
        sandbox,
        read,
        edit,
        json,
        command,
    } = explanation;
    let here = ProjectContext::read(Path::new("."), environment)?;
    let policy = asking(
        approvals,
        sandbox,
        policy(&agent, &here, environment)?,
        &here,
        environment,
    )
    .await;
    let policy = Policy {
        grants: granted(&agent, &here, environment).await,
        ..policy
    };
    let path = read
        .map(|path| (Access::Read, path))
        .or(edit.map(|path| (Access::Edit, path)));
    let command = line_of(&command);
    let syntax = match &path {
        Some(_) => SyntaxReport::default(),
        None => SyntaxReport::of(&command, environment).await,
    };
    let requests = match &path {
        Some((access, path)) => match path_requests(&policy, *access, path) {
            Ok(requests) => requests,
            Err(refusal) => {
                if json {
                    let all = json!([{ "text": path, "verdict": "refuse", "reason": refusal.to_string() }]);
                    super::terminal::json(&serde_json::to_string_pretty(&all)?);
                } else {
                    super::say(&format!("refused: {refusal}"));
                }
                return Ok(0);
            }
        },
        None => vec![command_request(&command, &policy.context)],
    };
    let requests: Vec<AccessRequest> = requests
        .into_iter()
        .map(|request| policy.in_sandbox(request))
        .collect();
    let verdicts: Vec<Verdict> = requests
        .iter()
        .map(|request| policy.judge(request))
        .collect();
    if json {
        let all: Vec<Value> = requests
            .iter()
            .zip(&verdicts)
            .map(|(request, verdict)| {
                let mut data = explain::data(verdict, request);
                syntax.add_to(&mut data);
                data
            })
            .collect();
        super::terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    for sentence in syntax.sentences() {
        super::say(&sentence);
    }
    if policy.approvals != Approvals::Default {
        let held = match (policy.approvals, policy.sandboxed) {
            (Approvals::Sandboxed, false) => ", but no sandbox is available here",
            _ => "",
        };
        super::say(&format!("approvals: {}{held}", policy.approvals.as_str()));
    }
    if verdicts.len() > 1 {
        let word = match verdicts.iter().map(|verdict| verdict.action).max() {
            Some(Action::Deny) => "deny",
            Some(Action::Ask) => "ask",
            _ => "allow",
        };
        let words = format!("{word}: all of these must be allowed:");
        super::terminal::verdicts(&words, environment);
    }
    for (request, verdict) in requests.iter().zip(&verdicts) {
        super::terminal::verdicts(
            &explain::explain(verdict, request, &policy.rules),
            environment,
        );
    }
    super::say(&judged_in(policy.guarantee, sandbox.is_some()));
    Ok(0)
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
        let ours = unreadable(command);
        let of_bash = match ours {
            Some(_) => bash_error(command, environment).await,
            None => None,
        };
        Self { ours, of_bash }
    }

    fn sentences(&self) -> impl Iterator<Item = String> {
        let ours = self.ours.as_ref().map(|why| {
            format!(
                "adjutant cannot parse this line: {why}. It judges the commands that it finds in it, and asks \
                 where no rule decides."
            )
        });
        let of_bash = self.of_bash.as_ref();
        let of_bash = of_bash.map(|error| format!("bash cannot run it: {error}"));
        ours.into_iter().chain(of_bash)
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
    Some(base::text::title(error))
}

/// Returns the policy of an agent in this directory.
pub(super) fn policy(
    agent: &str,
    here: &ProjectContext,
    environment: &Environment,
) -> anyhow::Result<Policy> {
    let Some(found) = here.agents.get(agent) else {
        let names: Vec<&str> = here.agents.all().map(|agent| agent.name.as_str()).collect();
        bail!("no agent \"{agent}\"; available: {}", names.join(", "));
    };
    let context = PermissionContext::new(environment, &here.worktree, &here.cwd);
    let private = here.loaded.settings.webfetch.private.clone();
    let approvals = here.loaded.settings.general.approvals;
    let rules = found.rules.clone();
    let doubt = here.loaded.settings.doubt();
    Ok(Policy {
        rules,
        grants: Rules::default(),
        approvals,
        private,
        context,
        doubt,
        ..Policy::default()
    })
}

/// Returns the user's grants to an agent in this project.
async fn granted(agent: &str, here: &ProjectContext, environment: &Environment) -> Rules {
    let store = session::user_store::store(environment);
    let project = grants_key(&store, &here.worktree).await;
    Grants::open(&project, environment, &store).await.of(agent)
}

/// Returns the policy with the given approvals, and with a sandbox that is given or found here.
async fn asking(
    approvals: Option<Approvals>,
    sandbox: Option<SandboxGuarantee>,
    policy: Policy,
    here: &ProjectContext,
    environment: &Environment,
) -> Policy {
    let approvals = approvals.unwrap_or(policy.approvals);
    let sandbox_choice = SandboxChoice::new(&Sandbox::new(environment))
        .for_agent(&policy.rules, &here.loaded.settings);
    let (guarantee, whole) = match sandbox {
        Some(given) => (given, given != SandboxGuarantee::None),
        None => (
            sandbox_choice.guarantee().await.in_context(&policy.context),
            sandbox_choice.is_protective().await,
        ),
    };
    Policy {
        approvals,
        guarantee,
        sandboxed: whole && approvals == Approvals::Sandboxed,
        ..policy
    }
}

/// Describes the sandbox of a verdict.
fn judged_in(guarantee: SandboxGuarantee, is_given: bool) -> String {
    match (guarantee, is_given) {
        (SandboxGuarantee::None, true) => {
            "Judged without a sandbox, as the option says.".to_owned()
        }
        (SandboxGuarantee::None, false) => {
            "Judged without a sandbox; `adjutant doctor` shows why there is none.".to_owned()
        }
        (guarantee, true) => {
            format!(
                "Judged with a {} sandbox, as the option says.",
                guarantee.as_str()
            )
        }
        (guarantee, false) => {
            format!(
                "Judged with the {} sandbox of this machine.",
                guarantee.as_str()
            )
        }
    }
}

fn sandbox(word: &str) -> Result<SandboxGuarantee, String> {
    SandboxGuarantee::named(word)
        .ok_or_else(|| "choose one of none, read-only, workspace".to_owned())
}

fn approvals(word: &str) -> Result<Approvals, String> {
    let known = || Approvals::ALL.map(Approvals::as_str).join(", ");
    Approvals::named(word).ok_or_else(|| format!("choose one of {}", known()))
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

fn check(policy: &Policy, secrets: &[String]) -> anyhow::Result<u8> {
    let mut out = super::terminal::JsonWriter::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.context("standard input cannot be read")?;
        if !line.trim().is_empty() {
            out.line(&check_line(policy, secrets, &line))?;
        }
    }
    out.end()?;
    Ok(0)
}

async fn list(all: bool, json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let store = session::user_store::store(environment);
    let stored = if all {
        store.all_grants().await?
    } else {
        store.grants(&project(&store, environment).await?).await?
    };
    if let Some(path) = &stored.damaged_index {
        super::terminal::print_note(&format!(
            "Earlier grants could not be read from a damaged index, which was saved as {path}."
        ));
    }
    let grants = stored.grants;
    if json {
        let entry = |grant: &Grant| {
            json!({
                "project": grant.project,
                "agent": grant.agent,
                "permission": grant.permission,
                "pattern": grant.pattern,
                "given": grant.given.iso(),
            })
        };
        let all: Vec<Value> = grants.iter().map(entry).collect();
        super::terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    if grants.is_empty() {
        super::say(if all {
            "Nothing has been granted."
        } else {
            "Nothing has been granted in this project."
        });
    }
    let mut project = None;
    for grant in &grants {
        if all && project != Some(&grant.project) {
            project = Some(&grant.project);
            super::say(&grant.project);
        }
        let Grant {
            agent,
            permission,
            pattern,
            given,
            ..
        } = grant;
        super::say(&format!(
            "{}{agent}: {permission} {pattern}  ({})",
            if all { "  " } else { "" },
            given.iso()
        ));
    }
    Ok(0)
}

async fn revoke(
    permission: &str,
    pattern: Option<String>,
    agent: Option<String>,
    environment: &Environment,
) -> anyhow::Result<u8> {
    let store = session::user_store::store(environment);
    let grants = store
        .grants(&project(&store, environment).await?)
        .await?
        .grants;
    let fits = |grant: &&Grant| {
        grant.permission == permission
            && pattern
                .as_ref()
                .is_none_or(|pattern| *pattern == grant.pattern)
            && agent.as_ref().is_none_or(|agent| *agent == grant.agent)
    };
    let taken: Vec<&Grant> = grants.iter().filter(fits).collect();
    if taken.is_empty() {
        return Err(anyhow!(
            "no such grant in this project; `adjutant permissions list` shows them"
        ));
    }
    for grant in taken {
        store.revoke(grant).await?;
        super::say(&format!(
            "revoked {}: {} {}",
            grant.agent, grant.permission, grant.pattern
        ));
    }
    Ok(0)
}

/// Returns the key of the grants of the current project.
async fn project(store: &Store, environment: &Environment) -> anyhow::Result<String> {
    Ok(grants_key(
        store,
        &ProjectContext::read(Path::new("."), environment)?.worktree,
    )
    .await)
}

/// Returns the key of a project's grants.
async fn grants_key(store: &Store, worktree: &Worktree) -> String {
    if store.is_shared().await {
        worktree.shared_name()
    } else {
        worktree.root.display().to_string()
    }
}
