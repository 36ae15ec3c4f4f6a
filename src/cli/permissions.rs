//! `adjutant permissions`: explains verdicts, and lists and revokes grants.

mod explain;

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};

use super::project_context::ProjectContext;
use base::approvals::Approvals;
use base::environment::Environment;
use base::worktree::Worktree;
use explain::Explanation;
use permission::check::check_line;
use permission::plan::{
    CommandLine, CommandPlan, HiddenFiles, PlannedSandbox, SandboxCapabilities, plan_command,
};
use permission::{PermissionContext, Policy, Rules, SandboxGuarantee};
use sandbox::{DISABLED_MECHANISMS_VARIABLE, Level, Mechanism, Sandbox};
use serde_json::{Value, json};
use session::grants::Grants;
use store::{Grant, Store};
use tools::process::sandboxing::{MissingSandbox, SandboxChoice, TriedSandboxes};
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
    #[command(alias = "ls")]
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
    /// Explain whether a command may run, or a file may be read or changed
    ///
    /// Shows the verdict, the rule or the reason that decides, the sandbox, and the setting that
    /// would change the verdict. Grants ("always") apply as in a session. Nothing is run.
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

pub(super) async fn permissions(args: Args, environment: &Environment) -> anyhow::Result<u8> {
    match args.verb.unwrap_or(Verb::List(args.listing)) {
        Verb::List(Listing { all, json }) => list(all, json, environment).await,
        Verb::Revoke {
            permission,
            pattern,
            agent,
        } => revoke(&permission, pattern, agent, environment).await,
        Verb::Explain(explanation) => explain::explain(explanation, environment).await,
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
            let query = Query::new(approvals, sandbox, policy, &here, &environment).await;
            check(&query, &secrets)
        }
    }
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
    let context = PermissionContext {
        is_trusted: here.loaded.settings.trusted,
        ..PermissionContext::new(environment, &here.worktree, &here.cwd)
    };
    let private = here.loaded.settings.webfetch.private.clone();
    let approvals = here.loaded.settings.general.approvals;
    let rules = found.rules.clone();
    let doubt = here.loaded.settings.doubt();
    Ok(Policy {
        rules,
        grants: Rules::default(),
        approvals,
        private_hosts: private,
        context,
        unreadable_settings: doubt,
        ..Policy::default()
    })
}

/// Returns the user's grants to an agent in this project.
async fn granted(agent: &str, here: &ProjectContext, environment: &Environment) -> Rules {
    let store = session::user_store::open_store(environment);
    let project = grants_key(&store, &here.worktree).await;
    Grants::open(&project, environment, &store)
        .await
        .for_agent(agent)
}

/// A policy and the sandboxes of commands, for queries that run nothing.
struct Query {
    policy: Arc<Policy>,
    sandboxes: QueriedSandboxes,
    /// True if an option assumes that there is no sandbox.
    assumes_none: bool,
    worktree: Worktree,
}

enum QueriedSandboxes {
    /// The guarantee of the agent's sandbox, which keeps all promises.
    Given(SandboxGuarantee),
    Found(TriedSandboxes),
}

impl Query {
    /// Returns a query under the given approvals, in a sandbox that is given or found here.
    async fn new(
        approvals: Option<Approvals>,
        sandbox: Option<SandboxGuarantee>,
        policy: Policy,
        here: &ProjectContext,
        environment: &Environment,
    ) -> Self {
        let assumes_none = sandbox == Some(SandboxGuarantee::None);
        let environment = if assumes_none {
            without_mechanisms(environment)
        } else {
            environment.clone()
        };
        let sandboxes = match sandbox {
            None | Some(SandboxGuarantee::None) => {
                let choice = SandboxChoice::new(&Sandbox::new(&environment))
                    .for_agent(&policy.rules, &here.loaded.settings);
                QueriedSandboxes::Found(choice.tried().await)
            }
            Some(guarantee) => QueriedSandboxes::Given(guarantee),
        };
        let of_agent = match &sandboxes {
            QueriedSandboxes::Given(guarantee) => complete(*guarantee),
            QueriedSandboxes::Found(tried) => tried.of_agent(),
        };
        let sandbox = SandboxCapabilities {
            guarantee: of_agent.guarantee.in_context(&policy.context),
            ..of_agent
        };
        Self {
            policy: Arc::new(Policy {
                approvals: approvals.unwrap_or(policy.approvals),
                sandbox,
                ..policy
            }),
            sandboxes,
            assumes_none,
            worktree: here.worktree.clone(),
        }
    }

    /// Plans a command as a call of the agent does.
    ///
    /// # Errors
    /// The reason for a refusal of the call, for the user.
    fn plan(&self, command: &str, policy: &Arc<Policy>) -> Result<CommandPlan, String> {
        let line = CommandLine::analyze(command, &policy.context);
        let sandbox = match &self.sandboxes {
            QueriedSandboxes::Given(_) if line.sandbox() == PlannedSandbox::Harmless => {
                complete(SandboxGuarantee::READ_ONLY)
            }
            QueriedSandboxes::Given(guarantee) => complete(*guarantee),
            QueriedSandboxes::Found(tried) => {
                let found = tried.of_command(&line, &self.worktree);
                found.map_err(|missing| self.describe(&missing))?
            }
        };
        Ok(plan_command(line, policy, sandbox))
    }

    /// Returns the sandbox of a command that runs, also if it answers no question.
    fn named_sandbox(&self, plan: &CommandPlan) -> SandboxGuarantee {
        let level = match &self.sandboxes {
            QueriedSandboxes::Given(_) => None,
            QueriedSandboxes::Found(tried) => tried.level(plan.sandbox),
        };
        match (plan.request.guarantee, level) {
            (SandboxGuarantee::None, Some(Level::ReadOnly)) => SandboxGuarantee::READ_ONLY,
            (SandboxGuarantee::None, Some(Level::WorkspaceWrite)) => SandboxGuarantee::WORKSPACE,
            (guarantee, _) => guarantee,
        }
    }

    fn describe(&self, missing: &MissingSandbox) -> String {
        if self.assumes_none {
            "The settings require a sandbox for commands, and `--sandbox none` assumes that there \
             is none."
                .to_owned()
        } else {
            missing.to_string()
        }
    }
}

/// Returns the capabilities of a sandbox that keeps all promises of a guarantee.
fn complete(guarantee: SandboxGuarantee) -> SandboxCapabilities {
    SandboxCapabilities {
        guarantee,
        can_isolate: true,
        is_read_only_unenforced: false,
        hidden: HiddenFiles::Invisible,
    }
}

/// Returns the environment as if this machine had no sandbox.
fn without_mechanisms(environment: &Environment) -> Environment {
    let all = [
        Mechanism::Bubblewrap,
        Mechanism::Landlock,
        Mechanism::Seatbelt,
    ];
    environment.with(
        DISABLED_MECHANISMS_VARIABLE,
        &all.map(Mechanism::key).join(","),
    )
}

fn sandbox(word: &str) -> Result<SandboxGuarantee, String> {
    SandboxGuarantee::named(word)
        .ok_or_else(|| "choose one of none, read-only, workspace".to_owned())
}

fn approvals(word: &str) -> Result<Approvals, String> {
    let known = || Approvals::ALL.map(Approvals::as_str).join(", ");
    Approvals::named(word).ok_or_else(|| format!("choose one of {}", known()))
}

fn check(query: &Query, secrets: &[String]) -> anyhow::Result<u8> {
    let plan = |command: &str, policy: &Arc<Policy>| query.plan(command, policy);
    let mut out = super::terminal::JsonWriter::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.context("standard input cannot be read")?;
        if !line.trim().is_empty() {
            out.line(&check_line(&query.policy, secrets, plan, &line))?;
        }
    }
    out.end()?;
    Ok(0)
}

async fn list(all: bool, json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let store = session::user_store::open_store(environment);
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
                "given": grant.granted_at.iso(),
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
    let is_watched = super::terminal::is_watched();
    let now = environment.now();
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
            granted_at,
            ..
        } = grant;
        super::say(&format!(
            "{}{agent}: {permission} {pattern}  ({})",
            if all { "  " } else { "" },
            if is_watched {
                base::listing::age(*granted_at, now)
            } else {
                granted_at.iso()
            }
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
    let store = session::user_store::open_store(environment);
    let grants = store
        .grants(&project(&store, environment).await?)
        .await?
        .grants;
    let fits = |grant: &&Grant| {
        is_about(&grant.permission, permission)
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

/// Returns whether a grant's permission is the named one, or one kind of it: that of reading
/// outside is a kind of `external_directory`.
fn is_about(permission: &str, named: &str) -> bool {
    permission
        .strip_prefix(named)
        .is_some_and(|kind| kind.is_empty() || kind.starts_with(':'))
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
