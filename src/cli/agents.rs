//! `adjutant agents`: lists agents, and creates one from a description.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};

use clap::builder::PossibleValuesParser;
use clap_complete::ArgValueCandidates;
use serde_json::json;

use super::JsonListing;
use super::complete;
use super::listing::{self, ListEntry, UnusedEntry};
use super::model_request::{self, ModelQuestion};
use super::project_context::ProjectContext;
use base::environment::Environment;
use base::listing::EntryState;
use base::text;
use config::trust::TrustKind;
use config::{Problem, ProblemSeverity};
use project::agent::show::UnusedAgent;
use project::agent::{Mode, create, show};
use providers::registry::Registry;
use providers::{Model, Provider};
use transcript::ModelRef;

/// Options of `adjutant agents`.
pub(super) type Args = super::CommandOrList<Verb, JsonListing>;

/// The subcommands of `agents`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List agents with mode, model and source (default)
    #[command(alias = "ls")]
    List(JsonListing),
    /// Show an agent and its rules in order, with the source of each
    Show {
        /// Name of the agent
        #[arg(add = ArgValueCandidates::new(complete::agents))]
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Create an agent: a model writes its instructions into a Markdown file
    Create(NewAgent),
}

/// The arguments of `agents create`.
#[derive(Debug, clap::Args)]
pub(super) struct NewAgent {
    /// Its purpose, in a sentence or two
    description: String,
    /// Create it for all projects
    #[arg(long)]
    global: bool,
    /// Use by other agents (subagent), by you as a mode (primary), or both (all)
    #[arg(long, value_name = "MODE", default_value = "all", value_parser = ["subagent", "primary", "all"])]
    mode: String,
    /// Permissions to deny, separated by commas: bash, edit, webfetch...
    #[arg(long, value_name = "PERMISSIONS", value_delimiter = ',', value_parser = PossibleValuesParser::new(create::deniable_permissions()))]
    deny: Vec<String>,
    /// Model that writes it [default: the model of the settings]
    #[arg(long, value_name = "PROVIDER/MODEL", add = ArgValueCandidates::new(complete::models))]
    model: Option<String>,
}

/// Lists the agents, or shows one. The list has exit code 1 if an agent does not work.
pub(super) fn agents(verb: &Verb, environment: &Environment) -> anyhow::Result<u8> {
    let project_context = ProjectContext::read(Path::new("."), environment)?;
    match verb {
        Verb::List(JsonListing { json: true }) => {
            let unused = unused(&project_context);
            let mut all = show::to_json(&project_context.agents, |name| {
                remarks(&project_context, name)
            });
            all.extend(unused.iter().map(|(name, state, about)| {
                json!({ "name": name, "state": state.code(), "about": about })
            }));
            super::terminal::json(&serde_json::to_string_pretty(&all)?);
            return Ok(exit_code(&unused));
        }
        // `create` never comes here: the function of that name handles it.
        Verb::List(JsonListing { json: false }) | Verb::Create(_) => {
            let trust = &project_context.loaded.trust;
            let unused = unused(&project_context);
            super::say(&show::list(
                &project_context.agents,
                |name| remarks(&project_context, name),
                &unused,
            ));
            if let Some(notice) = trust.notice() {
                super::say(&notice);
            }
            return Ok(exit_code(&unused));
        }
        Verb::Show { name, json } => {
            let agent = project_context.agents.get(name).ok_or_else(|| {
                let names: Vec<&str> = project_context
                    .agents
                    .all()
                    .map(|agent| agent.name.as_str())
                    .collect();
                anyhow!("no agent \"{name}\"; available: {}", names.join(", "))
            })?;
            if *json {
                let data = show::one_to_json(&project_context.agents, &agent, |name| {
                    remarks(&project_context, name)
                });
                super::terminal::json(&serde_json::to_string_pretty(&data)?);
            } else {
                super::say(&show::show(&agent));
            }
        }
    }
    Ok(0)
}

/// Returns the parts of an agent's settings that are not in force: rules that wait for trust, and
/// fields with errors.
fn remarks(project_context: &ProjectContext, name: &str) -> Vec<String> {
    let own = format!("agent.{name}.");
    let waits = project_context
        .loaded
        .trust
        .withheld(TrustKind::Permission)
        .any(|item| item.key.starts_with(&own));
    let waiting =
        waits.then(|| "its looser rules have no effect until you trust the project".to_owned());
    let wrong = project_context.problems.iter().filter_map(|problem| {
        let field = problem.key.strip_prefix(&own)?;
        (problem.severity == ProblemSeverity::Error).then(|| {
            let what = problem.what();
            text::escaped(&format!(
                "its {field} is not used: {what} ({})",
                problem.location.short()
            ))
        })
    });
    waiting.into_iter().chain(wrong).collect()
}

/// Returns 1 if an agent does not work.
fn exit_code(unused: &[UnusedAgent]) -> u8 {
    let is_failed = |(_, state, _): &UnusedAgent| *state == EntryState::Failed;
    u8::from(unused.iter().any(is_failed))
}

/// Returns the agents that are switched off or have errors in their settings.
fn unused(project_context: &ProjectContext) -> Vec<UnusedAgent> {
    /// The keys of an agent's settings, which end its name in the key of a problem.
    const AGENT_KEYS: [&str; 16] = [
        ".mode",
        ".model",
        ".prompt",
        ".permission",
        ".description",
        ".steps",
        ".maxSteps",
        ".tools",
        ".variant",
        ".temperature",
        ".top_p",
        ".options",
        ".color",
        ".hidden",
        ".disable",
        ".name",
    ];
    let is_used = |name: &str| project_context.agents.get(name).is_some();
    let off = project_context.loaded.switched_off("agent", "disable");
    let off = off
        .iter()
        .filter(|(name, _)| !is_used(name))
        .map(|(name, location)| ListEntry::off(name, location));
    let failed = listing::unused(&project_context.problems, "agent", &AGENT_KEYS, is_used);
    let failed = failed.iter().map(ListEntry::failed);
    let files = project_context.problems.iter().filter_map(unused_file);
    let files = files.filter(|entry| !is_used(&entry.name));
    off.chain(failed)
        .chain(files)
        .map(|entry| (entry.name, entry.state, entry.about))
        .collect()
}

/// Returns the entry of an agent whose file is not used because of this problem.
fn unused_file(problem: &Problem) -> Option<ListEntry> {
    const FOLDERS: [&str; 4] = ["/agent/", "/agents/", "/mode/", "/modes/"];
    if problem.severity != ProblemSeverity::Error || !problem.key.is_empty() {
        return None;
    }
    let file = problem.location.origin.name.strip_suffix(".md")?;
    let (_, name) = FOLDERS.iter().find_map(|folder| file.split_once(folder))?;
    Some(ListEntry::failed(&UnusedEntry {
        name: name.to_owned(),
        why: problem.what(),
        source: problem.location.short(),
    }))
}

/// Lets a model write an agent, and creates its file. Never changes an existing file.
pub(super) async fn create(new_agent: &NewAgent, environment: &Environment) -> anyhow::Result<u8> {
    if new_agent.description.trim().is_empty() {
        bail!("say what the agent is for: adjutant agents create \"reviews SQL migrations\"");
    }
    let project_context = ProjectContext::read(Path::new("."), environment)?;
    let folder = if new_agent.global {
        environment.dirs.config.clone()
    } else {
        project_context.worktree.root.join(".adjutant")
    };
    let folder = folder.join("agents");
    let (model, provider) = author_model(new_agent, &project_context, environment).await?;
    let names: Vec<String> = project_context
        .agents
        .all()
        .map(|agent| agent.name.clone())
        .collect();
    let taken: Vec<&str> = names.iter().map(String::as_str).collect();
    let (system, question) = create::question(&new_agent.description, &taken);
    // A model that answers in the wrong form gets one more attempt, with the reason.
    let mut refused = String::new();
    let mut proposal = None;
    for _ in 0..2 {
        let text = if refused.is_empty() {
            question.clone()
        } else {
            format!(
                "{question}\n\nYour last answer was rejected: {refused}. Answer again in the required form."
            )
        };
        let question = ModelQuestion {
            system: system.to_owned(),
            text,
            // Low, because the answer must have a fixed form.
            temperature: 0.3,
            name: "agents-create",
        };
        let answer = model_request::send(&model, provider.as_ref(), question).await?;
        match create::proposal(&answer, &taken) {
            Ok(found) => {
                proposal = Some(found);
                break;
            }
            Err(why) => refused = why,
        }
    }
    let Some(proposal) = proposal else {
        bail!("{refused}. Nothing was written; try again, or another --model")
    };
    let mode = Mode::parse(&new_agent.mode).unwrap_or(Mode::All);
    let deny: Vec<&str> = new_agent.deny.iter().map(String::as_str).collect();
    let file = folder.join(format!("{}.md", proposal.identifier));
    write(&file, &create::markdown(&proposal, mode, &deny))?;
    super::say(&format!(
        "{}\n\n{}\n{}",
        proposal.identifier,
        proposal.when_to_use,
        file.display()
    ));
    Ok(0)
}

/// Returns the model that writes the agent.
async fn author_model(
    new_agent: &NewAgent,
    project_context: &ProjectContext,
    environment: &Environment,
) -> anyhow::Result<(Arc<Model>, Arc<dyn Provider>)> {
    let settings = &project_context.loaded.settings;
    let registry = model_request::registry(settings, environment).await;
    let wanted = match &new_agent.model {
        Some(text) => Some(ModelRef::parse(text).ok_or_else(|| {
            anyhow!("--model: \"{text}\" is not of the form PROVIDER/MODEL, such as openai/gpt-5")
        })?),
        None => settings.model.clone(),
    };
    let wanted = wanted.unwrap_or_else(|| registry.default_model().id.clone());
    if wanted.provider == Registry::OFFLINE {
        bail!(
            "no model is connected, and the offline model cannot write instructions. Set a key (`adjutant models` \
             shows which), or write .adjutant/agents/NAME.md yourself: ---, description: when to use it, ---, then the instructions"
        );
    }
    Ok(registry.find(&wanted)?)
}

fn write(file: &PathBuf, text: &str) -> anyhow::Result<()> {
    let unwritable = || format!("{} cannot be written", file.display());
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(unwritable)?;
    }
    let mut new = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .with_context(unwritable)?;
    new.write_all(text.as_bytes()).with_context(unwritable)
}
