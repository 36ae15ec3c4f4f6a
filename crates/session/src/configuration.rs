//! The configuration of a directory, with its problems. Sessions, `adjutant config check` and `adjutant
//! doctor` read it through [`ProjectDefinition`], so that all of them show the same problems.
//! [`NamedModels`] checks the models that settings name, and [`notices`] turns problems into notices.

use std::path::{Path, PathBuf};

use super::models::ModelSources;
use base::environment::Environment;
use base::text;
use base::worktree::Worktree;
use config::node::SourceLocation;
use config::{self, LoadedSettings, Problem, ProblemCode, ProblemSeverity, Settings};
use events::{Event, Severity};
use permission::search_filter::SearchFilter;
use permission::{PermissionContext, Policy};
use project::agent::registry::Agents;
use project::instruction::{self, Instructions};
use project::skill::{self, Skills};
use providers::editor_endpoints::EditorEndpoints;
use providers::local;
use providers::registry::{KeySource, ModelNotFound, ProviderObstacle, Registry};
use transcript::ModelRef;

/// The maximum number of problems that are shown one by one when a session starts.
const MAX_SHOWN_PROBLEMS: usize = 5;

/// Returns the settings of the user's own files, read outside of any project. Blocks.
pub fn own_settings(environment: &Environment) -> Settings {
    let own = environment
        .home
        .clone()
        .unwrap_or_else(|| PathBuf::from("/"));
    let worktree = Worktree::find(&own, &[], environment.home.as_deref());
    config::load(environment, &worktree, &own).settings
}

/// Settings, agents, skills and instructions of a directory.
pub struct ProjectDefinition {
    /// The settings. Their problems are in `problems`.
    pub loaded: LoadedSettings,
    pub agents: Agents,
    pub skills: Skills,
    /// The URLs of skills that were never fetched.
    pub missing_skills: Vec<String>,
    /// The instructions for the system prompt.
    pub instructions: Instructions,
    /// All problems except for those of models, which [`Self::model_problems`] finds.
    pub problems: Vec<Problem>,
}

impl ProjectDefinition {
    /// Reads all files. Blocks.
    pub fn read(environment: &Environment, worktree: &Worktree, cwd: &Path) -> Self {
        Self::of(
            config::load(environment, worktree, cwd),
            environment,
            worktree,
            cwd,
        )
    }

    /// Reads the files that belong to these settings. Blocks.
    pub fn of(
        mut loaded: LoadedSettings,
        environment: &Environment,
        worktree: &Worktree,
        cwd: &Path,
    ) -> Self {
        let found = skill::load(&loaded.settings, environment, worktree, cwd);
        let readable = found.skills.directories(worktree);
        let (agents, about_agents) =
            Agents::build_with(&loaded.settings, environment, worktree, &readable);
        let search_filter = search_filter(&agents, environment, worktree, cwd);
        let mut instructions =
            instruction::load(&loaded.settings, environment, worktree, cwd, &search_filter);
        let mut problems = std::mem::take(&mut loaded.problems);
        problems.extend(about_agents);
        problems.extend(found.problems);
        problems.append(&mut instructions.problems);
        loaded.fingerprint.extend(instructions.fingerprint.clone());
        loaded.fingerprint.extend(found.fingerprint);
        Self {
            loaded,
            agents,
            skills: found.skills,
            missing_skills: found.missing,
            instructions,
            problems,
        }
    }

    /// Returns the problems of the models that the settings name. Model servers on this machine are
    /// not asked.
    pub fn model_problems(&self, sources: &ModelSources) -> Vec<Problem> {
        NamedModels::of(&self.loaded).problems(&self.loaded.settings, None, sources)
    }

    /// Returns the problems of the named models of servers on this machine, which are asked.
    pub async fn local_model_problems(&self, sources: &ModelSources) -> Vec<Problem> {
        let settings = &self.loaded.settings;
        let is_configured = |id: &str| settings.providers.iter().any(|entry| entry.id == id);
        let named = NamedModels::of(&self.loaded).0;
        let named: Vec<_> = named
            .into_iter()
            .filter(|(model, ..)| {
                local::is_known(&model.provider) && !is_configured(&model.provider)
            })
            .collect();
        if named.is_empty() {
            return Vec::new();
        }
        let found = sources
            .with_local(settings, &EditorEndpoints::default())
            .await;
        let registry = found.unwrap_or_else(|| sources.configured(settings));
        let problem = |(model, at, key): (ModelRef, SourceLocation, String)| {
            let missing = registry.find(&model).err()?;
            Some(local_problem(&model, &at, &key, &missing))
        };
        named.into_iter().filter_map(problem).collect()
    }
}

/// Creates the problem of a model that a server on this machine does not have, or that cannot be
/// checked because the server does not answer.
fn local_problem(
    model: &ModelRef,
    at: &SourceLocation,
    key: &str,
    missing: &ModelNotFound,
) -> Problem {
    if let Some(ProviderObstacle::Absent(why)) = &missing.obstacle {
        let text = format!(
            "the model {model} was not checked: {}",
            why.trim_end_matches('.')
        );
        return Problem::warning(ProblemCode::UnknownModel, at, key, text);
    }
    let text = format!("there is no model {model} on this machine");
    let problem =
        Problem::error(ProblemCode::UnknownModel, at, key, text).subject(model.to_string());
    let fetch = missing.fetch.as_ref();
    let fetch = fetch.map(|command| format!("`{command}` fetches it"));
    let near = missing.nearest.as_slice();
    let near = (!near.is_empty()).then(|| format!("did you mean {}?", text::alternatives(near)));
    let hints: Vec<String> = near.into_iter().chain(fetch).collect();
    if hints.is_empty() {
        return problem.hint("`adjutant models` lists the models");
    }
    problem.hint(hints.join(" "))
}

/// The models that settings name, each with its location and key.
#[derive(Clone, Default)]
pub struct NamedModels(Vec<(ModelRef, SourceLocation, String)>);

impl NamedModels {
    /// Returns the named models, except for those whose provider needs the project's trust:
    /// that is a problem of its own.
    pub fn of(loaded: &LoadedSettings) -> Self {
        let review = &loaded.trust;
        let waits = |provider: &str| {
            let own = |key: &str| {
                let rest = key
                    .strip_prefix("provider.")
                    .and_then(|rest| rest.strip_prefix(provider));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            review.is_withheld() && review.items.iter().any(|item| own(&item.key))
        };
        let named = loaded
            .named_models()
            .into_iter()
            .filter(|(model, ..)| !waits(&model.provider));
        Self(
            named
                .map(|(model, at, key)| (model, at.clone(), key))
                .collect(),
        )
    }

    /// Returns the problems of unknown models, and of models whose provider has no key. Reads
    /// the model catalogue, unless `configured` has all of them.
    pub fn problems(
        &self,
        settings: &Settings,
        configured: Option<&Registry>,
        sources: &ModelSources,
    ) -> Vec<Problem> {
        if configured.is_some_and(|registry| {
            self.0
                .iter()
                .all(|(model, ..)| is_answered(model, registry))
        }) {
            return Vec::new();
        }
        let all_models = sources.with_all_models(settings);
        let wrong = self
            .0
            .iter()
            .filter(|(model, ..)| !is_answered(model, &all_models))
            // The editor may have set the endpoint of its provider.
            .filter(|(model, ..)| !configured.is_some_and(|registry| is_answered(model, registry)));
        wrong
            .map(|(model, at, key)| problem(model, at, key, &all_models))
            .collect()
    }
}

fn problem(model: &ModelRef, at: &SourceLocation, key: &str, all_models: &Registry) -> Problem {
    let provider = all_models
        .providers()
        .iter()
        .find(|facts| facts.id == model.provider);
    if let Some(KeySource::Missing(why)) = provider.map(|facts| &facts.access)
        && all_models.has(model)
    {
        let text = format!(
            "the model {model} cannot be used. {}",
            why.trim_end_matches('.')
        );
        return Problem::warning(ProblemCode::NoKey, at, key, text).subject(model.to_string());
    }
    // Of all models that are known, only those of the provider that was meant are alike.
    let known = all_models.providers().iter().map(|facts| facts.id.as_str());
    let provider = text::nearest(&model.provider, known).map(|near| format!("{near}/"));
    let mut near = all_models.nearest(&model.to_string());
    near.retain(|name| {
        provider
            .as_ref()
            .is_some_and(|provider| name.starts_with(provider))
    });
    let hint = match near.as_slice() {
        [] => "`adjutant models` lists the models".to_owned(),
        near => format!("did you mean {}?", text::alternatives(near)),
    };
    Problem::error(
        ProblemCode::UnknownModel,
        at,
        key,
        format!("there is no model {model}"),
    )
    .subject(model.to_string())
    .hint(hint)
}

/// Returns the filter for the project's instructions: they may show files that the default agent
/// may read.
pub(super) fn search_filter(
    agents: &Agents,
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
) -> SearchFilter {
    let rules = agents.default().rules.clone();
    SearchFilter::new(&Policy {
        rules,
        context: PermissionContext::new(environment, worktree, cwd),
        ..Policy::default()
    })
}

/// True if a request for this model would be sent, as far as that is known without contacting a server.
fn is_answered(model: &ModelRef, registry: &Registry) -> bool {
    let provider = registry
        .providers()
        .iter()
        .find(|facts| facts.id == model.provider);
    if registry.may_serve_plugin(&model.provider) {
        return true;
    }
    match provider {
        Some(facts) => registry.has(model) && !matches!(facts.access, KeySource::Missing(_)),
        None => registry.has(model) || local::is_known(&model.provider),
    }
}

/// Returns the notices about problems at the start of a session, the most severe first: a few of
/// them one by one, the rest as a number. Notes and deprecated spellings are left out.
pub fn notices<'p>(problems: impl Iterator<Item = &'p Problem>) -> Vec<Event> {
    let mut reported: Vec<&Problem> = problems
        .filter(|problem| problem.severity >= ProblemSeverity::Warning)
        .collect();
    reported.sort_by_key(|problem| {
        std::cmp::Reverse((
            problem.code == ProblemCode::LostGuard,
            problem.can_hide_deny,
            problem.severity,
        ))
    });
    let rest = if reported.len() > MAX_SHOWN_PROBLEMS + 1 {
        reported.split_off(MAX_SHOWN_PROBLEMS)
    } else {
        Vec::new()
    };
    let mut notices: Vec<Event> = reported
        .iter()
        .map(|problem| notice(problem.to_string(), None))
        .collect();
    if let Some(at) = reported.iter().position(|problem| problem.can_hide_deny) {
        notices.splice(at..=at, [notice(reported[at].until_fixed(), None)]);
    }
    if !rest.is_empty() {
        let title = format!(
            "{} more problems: `adjutant config check` shows them.",
            rest.len()
        );
        let all: Vec<String> = rest.iter().map(|problem| format!("- {problem}")).collect();
        notices.push(notice(
            title,
            Some(format!("They are:\n{}", all.join("\n"))),
        ));
    }
    notices
}

fn notice(title: String, details: Option<String>) -> Event {
    Event::Notice {
        severity: Severity::Warning,
        title,
        details,
    }
}
