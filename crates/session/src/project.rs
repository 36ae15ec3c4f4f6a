//! The configuration of a session's project: settings, agents, commands, instructions, models.
//! `ConfigSnapshot` is what the files say at one moment. `ConfigWatcher` reads the files again before
//! a turn if one has changed, asks for trust, notifies the user of problems, and downloads sources on the
//! web. Readers get a `ProjectConfig`, which is replaced as a whole, so that none sees half of a change.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::builtin::PLANNER;
use super::commands::{CommandConditions, Commands};
use super::configuration::{self, NamedModels, ProjectDefinition, search_filter};
use super::maintenance::Maintenance;
use super::models::ModelSources;
use super::trust::{self, TrustOutcome};
use crate::turn::live_denies::{self, DenyWatcher};
use crate::turn::models::{Models, SessionRegistry};
use crate::turn::step_context::resolve_model;
use crate::turn::{SessionChoices, SessionProject, SystemPromptParts, TurnContext};
use base::environment::Environment;
use base::reported;
use base::task::JoinHandle;
use base::worktree::Worktree;
use config::contribution::Contribution;
use config::trust::{Decision, Review};
use config::{self, ConfigFingerprint, Problem, ProblemCode, ProblemSeverity, Settings};
use events::{Event, Severity};
use mcp::notices::ServerNotices;
use permission::Rule;
use project::agent::registry::Agents;
use project::instruction;
use project::skill::{self, Skills};
use project::system::Surroundings;
use providers::auth::Auth;
use providers::registry::Registry;
use tools::ProjectContext;
use transcript::ModelRef;

/// The configuration of a session until its next turn.
#[derive(Clone)]
pub(super) struct ProjectConfig {
    pub(super) project: Arc<SessionProject>,
    /// The available commands.
    pub(super) commands: Arc<Commands>,
}

/// The configuration as read from files, without the available models.
pub(super) struct ConfigSnapshot {
    pub(super) settings: Arc<Settings>,
    pub(super) agents: Arc<Agents>,
    commands: Arc<Commands>,
    system_prompt_parts: Arc<SystemPromptParts>,
    /// The sources on the web that the configuration names.
    sources: Vec<WebSource>,
    /// Those of them that were never fetched.
    unfetched_sources: Vec<WebSource>,
    /// The problems of the settings.
    problems: Arc<[Problem]>,
    /// The state of all files that were read, or looked for.
    fingerprint: Arc<ConfigFingerprint>,
    /// The contributions of plugins that it includes.
    contributions: Arc<[Contribution]>,
    /// The parts of the project's settings that need trust.
    trust: Arc<Review>,
    named_models: NamedModels,
    /// Set while changed settings have errors, and the earlier settings remain in force.
    broken: Option<BrokenSettings>,
}

/// Changed settings with new errors.
struct BrokenSettings {
    problems: Vec<Problem>,
    /// The agents of the last settings without such errors.
    earlier: Arc<Agents>,
    /// The agents of all broken settings since, as far as they could be read. Their deny rules
    /// apply.
    denying_agents: Vec<Arc<Agents>>,
}

/// A source on the web, by its URL. Readers use a local copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum WebSource {
    Page(String),
    Skills(String),
}

impl WebSource {
    fn all(pages: &[String], skills: &[String]) -> Vec<Self> {
        pages
            .iter()
            .cloned()
            .map(Self::Page)
            .chain(skills.iter().cloned().map(Self::Skills))
            .collect()
    }
}

/// The directories and the environment that determine the settings files to read.
#[derive(Clone)]
pub(super) struct ProjectPaths {
    pub(super) environment: Environment,
    pub(super) worktree: Arc<Worktree>,
    pub(super) cwd: PathBuf,
    /// The contributions of plugins to the settings.
    pub(super) contributions: Arc<[Contribution]>,
}

impl ConfigSnapshot {
    /// Reads all files, on a thread that may block.
    pub(super) async fn new(paths: &ProjectPaths) -> Self {
        let own_paths = paths.clone();
        let fallback = paths.clone();
        base::task::spawn_blocking(move || Self::read_blocking(&own_paths))
            .await
            .unwrap_or_else(|e| {
                tracing::error!("reading the configuration failed: {e}");
                Self::read_blocking(&fallback)
            })
    }

    fn read_blocking(paths: &ProjectPaths) -> Self {
        Self::from_settings(paths, paths.load())
    }

    fn from_settings(paths: &ProjectPaths, loaded: config::LoadedSettings) -> Self {
        let models = NamedModels::of(&loaded);
        let ProjectDefinition {
            loaded,
            agents,
            skills,
            missing_skills,
            instructions,
            problems,
        } = ProjectDefinition::of(loaded, &paths.environment, &paths.worktree, &paths.cwd);
        let skills = Arc::new(skills);
        Self {
            commands: Arc::new(Commands::new(
                &loaded.settings,
                &skills,
                &agents.default().rules,
                command_conditions(&agents, &paths.environment),
            )),
            sources: WebSource::all(&instructions.addresses, &loaded.settings.skills.urls),
            unfetched_sources: WebSource::all(&instructions.missing, &missing_skills),
            system_prompt_parts: Arc::new(system_prompt_parts(
                paths,
                &loaded.settings,
                instructions,
                skills,
            )),
            agents: Arc::new(agents),
            settings: Arc::new(loaded.settings),
            problems: problems
                .into_iter()
                .filter(|problem| !waits_for_trust(problem, &loaded.trust))
                .collect(),
            named_models: models,
            broken: None,
            trust: Arc::new(loaded.trust),
            contributions: paths.contributions.clone(),
            fingerprint: Arc::new(loaded.fingerprint),
        }
    }

    /// Adds the problems of models that the settings name. Reads files if `configured` does not
    /// have all of them.
    pub(super) fn check_models(mut self, configured: &Registry, sources: &ModelSources) -> Self {
        let wrong = self
            .named_models
            .problems(&self.settings, Some(configured), sources);
        self.problems = self.problems.iter().cloned().chain(wrong).collect();
        self
    }

    /// Reads the files again if one has changed; returns `None` otherwise, after a look at each
    /// file's metadata. If the changed settings have errors, the earlier ones remain in force,
    /// restricted by the deny rules of the readable part of the changed ones, and by the deny
    /// rules in `forbidding`, which applied during the last turn.
    fn read_if_changed(
        &self,
        paths: &ProjectPaths,
        mut forbidding: Vec<Arc<Agents>>,
    ) -> Option<Self> {
        let today = paths.environment.now().day() == self.system_prompt_parts.surroundings.day;
        if today && self.contributions == paths.contributions && !self.fingerprint.is_stale() {
            return None;
        }
        let loaded = paths.load();
        let problems: Vec<Problem> = loaded.errors_since(&self.problems).cloned().collect();
        if problems.is_empty() {
            return Some(Self::from_settings(paths, loaded));
        }
        let earlier = self
            .broken
            .as_ref()
            .map_or(&self.agents, |broken| &broken.earlier)
            .clone();
        let partial =
            Arc::new(Agents::build(&loaded.settings, &paths.environment, &paths.worktree).0);
        live_denies::add_denying_agents(&mut forbidding, partial);
        // Searches show the contents of files without a call for each.
        let stricter = |agents: Agents, other: &Arc<Agents>| {
            agents.with_denies_of(other, Rule::is_about_reading)
        };
        let agents = Arc::new(forbidding.iter().fold(Agents::clone(&earlier), stricter));
        let search_filter = search_filter(&agents, &paths.environment, &paths.worktree, &paths.cwd);
        let instructions = instruction::load(
            &self.settings,
            &paths.environment,
            &paths.worktree,
            &paths.cwd,
            &search_filter,
        );
        let skills = skill::load(
            &self.settings,
            &paths.environment,
            &paths.worktree,
            &paths.cwd,
        );
        let mut fingerprint = loaded.fingerprint;
        fingerprint.extend(instructions.fingerprint.clone());
        fingerprint.extend(skills.fingerprint);
        let missing = WebSource::all(&instructions.missing, &skills.missing);
        let skills = Arc::new(skills.skills);
        Some(Self {
            settings: self.settings.clone(),
            commands: Arc::new(Commands::new(
                &self.settings,
                &skills,
                &agents.default().rules,
                command_conditions(&agents, &paths.environment),
            )),
            agents,
            problems: self.problems.clone(),
            named_models: NamedModels::default(),
            broken: Some(BrokenSettings {
                problems,
                earlier,
                denying_agents: forbidding,
            }),
            trust: self.trust.clone(),
            contributions: paths.contributions.clone(),
            fingerprint: Arc::new(fingerprint),
            sources: WebSource::all(&instructions.addresses, &self.settings.skills.urls),
            unfetched_sources: missing,
            system_prompt_parts: Arc::new(system_prompt_parts(
                paths,
                &self.settings,
                instructions,
                skills,
            )),
        })
    }

    /// Returns the configuration together with the available models.
    fn project_config(&self, paths: &ProjectPaths, models: Models) -> ProjectConfig {
        let forbidding = self
            .broken
            .as_ref()
            .map(|broken| broken.denying_agents.clone())
            .unwrap_or_default();
        let project = SessionProject {
            context: Arc::new(ProjectContext {
                cwd: paths.cwd.clone(),
                worktree: paths.worktree.clone(),
                environment: paths.environment.clone(),
                settings: self.settings.clone(),
            }),
            agents: self.agents.clone(),
            deny_watcher: Arc::new(DenyWatcher::new(
                self.fingerprint.clone(),
                self.problems.clone(),
                forbidding,
            )),
            models,
            system_prompt_parts: self.system_prompt_parts.clone(),
        };
        ProjectConfig {
            project: Arc::new(project),
            commands: self.commands.clone(),
        }
    }

    /// Returns the problems that are shown once a day. Those that weaken protection are shown in each
    /// session.
    fn daily_problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| {
            problem.severity >= ProblemSeverity::Warning
                && !problem.can_hide_deny
                && problem.code != ProblemCode::LostGuard
        })
    }

    /// Returns the texts under which the daily problems are remembered.
    fn daily_texts(&self) -> Vec<String> {
        self.daily_problems()
            .map(|problem| self.daily_text(problem))
            .collect()
    }

    /// Returns the text under which a problem is recorded as shown. It changes with the file that has
    /// the problem, so that a problem which an edit did not solve is shown again.
    fn daily_text(&self, problem: &Problem) -> String {
        let path = problem.location.origin.path.as_deref();
        let stamp = path.and_then(|path| self.fingerprint.stamp(path));
        match stamp {
            Some(stamp) => format!("{problem} {stamp}"),
            None => problem.to_string(),
        }
    }

    /// Returns the notices that a session begins with: the problems that no session of the project has
    /// shown today, and those that weaken protection. A problem of `model`, which the session uses, is
    /// left out, because the first turn fails with it.
    pub(super) async fn initial_notices(
        &self,
        paths: &ProjectPaths,
        model: &ModelRef,
    ) -> Vec<Event> {
        let texts = self.daily_texts();
        let environment = paths.environment.clone();
        let root = paths.worktree.root.clone();
        let shown = base::task::spawn_blocking(move || {
            reported::shown_recently(&environment, &root, "settings", &texts)
        });
        let shown = shown.await.unwrap_or_default();
        let known: Vec<Problem> = self
            .daily_problems()
            .filter(|problem| shown.contains(&self.daily_text(problem)))
            .cloned()
            .collect();
        self.notices(&known, model)
    }

    /// Returns the notices for the user: the problems that are not among `known`. A turn with `model`
    /// reports the problem of this model itself.
    pub(super) fn notices(&self, known: &[Problem], model: &ModelRef) -> Vec<Event> {
        let broken = self.broken.iter().flat_map(|broken| &broken.problems);
        let broken = broken.map(|problem| {
            notice(format!("The earlier settings stay in force, and new denies apply as far as they can be read: {problem}"))
        });
        let fresh = self
            .problems
            .iter()
            .filter(|problem| !known.contains(problem) && !problem.is_about_model(model));
        broken.chain(configuration::notices(fresh)).collect()
    }
}

/// True if a problem is about a missing plugin of a project that is not trusted. The question about
/// trust names the plugin, and its installation is offered after that.
fn waits_for_trust(problem: &Problem, trust: &Review) -> bool {
    problem.key == "plugin"
        && problem.code == ProblemCode::MissingFile
        && problem.location.origin.project
        && !trust.not_installed.is_empty()
        && trust.is_withheld()
}

/// Returns the conditions under which built-in commands are listed. Blocks on file access.
fn command_conditions(agents: &Agents, environment: &Environment) -> CommandConditions {
    CommandConditions {
        has_planner: agents.modes().iter().any(|mode| mode.name == PLANNER),
        has_logins: !Auth::stored_providers(environment).is_empty(),
    }
}

fn system_prompt_parts(
    paths: &ProjectPaths,
    settings: &Settings,
    instructions: instruction::Instructions,
    skills: Arc<Skills>,
) -> SystemPromptParts {
    let shown = settings
        .references
        .iter()
        .filter(|reference| !reference.hidden);
    let references = shown.filter_map(|reference| {
        let path = match (&reference.path, &reference.repository) {
            (Some(path), _) => path.clone(),
            (None, _) => reference
                .dir(&paths.environment, &paths.worktree)?
                .display()
                .to_string(),
        };
        Some((
            reference.name.clone(),
            path,
            reference.description.clone().unwrap_or_default(),
        ))
    });
    SystemPromptParts {
        surroundings: Surroundings::new(&paths.cwd, &paths.worktree, paths.environment.now()),
        references: references.collect(),
        instructions: instructions.entries,
        skills,
    }
}

/// Records that this notice about trust was shown. Returns true if a session of the project had shown
/// it today already.
async fn record_trust_notice(text: &str, turn: &TurnContext) -> bool {
    let environment = turn.session.common.environment.clone();
    let root = turn.project.context.worktree.root.clone();
    let texts = [text.to_owned()];
    let shown = base::task::spawn_blocking(move || {
        reported::shown_before(&environment, &root, "trust", &texts)
    });
    !shown.await.unwrap_or_default().is_empty()
}

fn notice(title: String) -> Event {
    Event::Notice {
        severity: Severity::Warning,
        title,
        details: None,
    }
}

/// The maximum time that a prompt waits for a source that was never fetched before.
const FETCH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Reads the project's configuration again when its files change.
pub(super) struct ConfigWatcher {
    maintenance: Arc<Maintenance>,
    paths: ProjectPaths,
    snapshot: Arc<ConfigSnapshot>,
    current: watch::Sender<ProjectConfig>,
    registry: Arc<SessionRegistry>,
    /// The problems that the initial notices are about, until they are recorded as shown.
    initial_problems: Option<Vec<String>>,
    /// True if the client shows no notices, so that none is remembered as shown.
    hides_notices: bool,
    /// The digest of the last question about trust, or of the notice that it is not given.
    trust_question: Option<String>,
    /// The clones that were requested.
    requested_clones: HashSet<PathBuf>,
    /// The other sources on the web that were requested.
    requested_sources: HashSet<WebSource>,
    /// Running downloads: pages and skills, repositories and the organisations' defaults. Each
    /// returns notices for the user.
    fetching: Vec<(Option<WebSource>, JoinHandle<Vec<String>>)>,
}

impl ConfigWatcher {
    pub(super) fn new(
        maintenance: Arc<Maintenance>,
        paths: ProjectPaths,
        read: ConfigSnapshot,
        models: Models,
        registry: Arc<SessionRegistry>,
        quiet: bool,
    ) -> Self {
        let current = watch::channel(read.project_config(&paths, models)).0;
        let fetching = maintenance
            .fetch_defaults()
            .map(|task| (None, task))
            .into_iter()
            .collect();
        let mut watcher = Self {
            maintenance,
            paths,
            initial_problems: (!quiet).then(|| read.daily_texts()),
            hides_notices: quiet,
            snapshot: Arc::new(read),
            current,
            registry,
            trust_question: None,
            requested_clones: HashSet::new(),
            requested_sources: HashSet::new(),
            fetching,
        };
        watcher.start_fetches();
        watcher
    }

    /// Returns a receiver of the current configuration.
    pub(super) fn subscribe(&self) -> watch::Receiver<ProjectConfig> {
        self.current.subscribe()
    }

    /// Returns the project as it was read last.
    pub(super) fn project(&self) -> Arc<SessionProject> {
        self.current.borrow().project.clone()
    }

    /// Returns the commands that are available now.
    pub(super) fn commands(&self) -> Arc<Commands> {
        self.current.borrow().commands.clone()
    }

    /// Records the problems of the initial notices as shown. An opened session shows them with its
    /// first turn, which may never come.
    async fn record_initial_problems(&mut self) {
        let Some(texts) = self.initial_problems.take() else {
            return;
        };
        let environment = self.paths.environment.clone();
        let root = self.paths.worktree.root.clone();
        let remembered = base::task::spawn_blocking(move || {
            reported::shown_before(&environment, &root, "settings", &texts)
        });
        if let Err(e) = remembered.await {
            tracing::error!("remembering the notices failed: {e}");
        }
    }

    /// Sends the notices about MCP servers, without those about servers that have failed in the
    /// same way in a session of the project today.
    pub(super) async fn report_servers(&self, notices: ServerNotices, turn: &TurnContext) {
        let shown = if turn.project.context.settings.mcp.is_empty() || self.hides_notices {
            BTreeSet::new()
        } else {
            let texts = notices.failing;
            let environment = self.paths.environment.clone();
            let root = self.paths.worktree.root.clone();
            let shown = base::task::spawn_blocking(move || {
                reported::shown_before(&environment, &root, "mcp", &texts)
            });
            shown.await.unwrap_or_default()
        };
        for notice in notices.events {
            let is_shown = matches!(&notice, Event::Notice { title, .. } if shown.contains(title));
            if !is_shown {
                turn.event_sender.event(notice).await;
            }
        }
    }

    /// Reads changed files again, asks for trust if they need it, and notifies the user of the
    /// results. `turn` is the turn that is about to begin.
    pub(super) async fn refresh(
        &mut self,
        turn: &mut TurnContext,
        choice: &watch::Sender<SessionChoices>,
    ) {
        self.record_initial_problems().await;
        self.reload(turn, choice).await;
        if self.finish_fetches(turn).await {
            self.reload(turn, choice).await;
        }
        let review = self.snapshot.trust.clone();
        if !review.is_withheld() || self.trust_question.as_ref() == Some(&review.digest) {
            return;
        }
        self.trust_question = Some(review.digest.clone());
        match trust::ask_once(&review, turn).await {
            // The answer is stored in one of the files that are watched.
            TrustOutcome::Trusted => {
                self.reload(turn, choice).await;
                if self.finish_fetches(turn).await {
                    self.reload(turn, choice).await;
                }
            }
            // The answer has named its consequence, so today's notice about it is not needed.
            TrustOutcome::Postponed => {
                self.reload(turn, choice).await;
                if !self.snapshot.trust.is_withheld() {
                    let text = "You have trusted this project elsewhere in the meantime, so its \
                        settings are active; `adjutant trust --revoke` withdraws that.";
                    turn.event_sender.event(notice(text.to_owned())).await;
                }
                if let Some(text) = self.snapshot.trust.notice() {
                    record_trust_notice(&text, turn).await;
                }
            }
            TrustOutcome::Withheld(Some(text)) => {
                let repeats = matches!(review.decision, Decision::Postponed | Decision::Refused);
                if !(repeats && !self.hides_notices && record_trust_notice(&text, turn).await) {
                    turn.event_sender.event(notice(text)).await;
                }
            }
            TrustOutcome::Withheld(None) => {}
        }
    }

    /// Applies the contributions of plugins to the settings.
    pub(super) async fn apply_contributions(
        &mut self,
        added: Vec<Contribution>,
        turn: &mut TurnContext,
        choice: &watch::Sender<SessionChoices>,
    ) {
        if *added != *self.paths.contributions {
            self.paths.contributions = added.into();
            self.reload(turn, choice).await;
        }
    }

    /// Starts the downloads that were not requested yet.
    fn start_fetches(&mut self) {
        for reference in &self.snapshot.settings.references {
            if let Some(clone) = reference.repository_clone(&self.paths.environment)
                && self.requested_clones.insert(clone.dir.clone())
            {
                self.fetching
                    .push((None, self.maintenance.fetch_repository(clone)));
            }
        }
        for source in &self.snapshot.sources {
            if self.requested_sources.insert(source.clone()) {
                let task = match source.clone() {
                    WebSource::Page(address) => self.maintenance.fetch_page(address),
                    WebSource::Skills(address) => self.maintenance.fetch_skills(address),
                };
                self.fetching.push((Some(source.clone()), task));
            }
        }
    }

    /// Reports the results of downloads. Waits a few seconds for a page or an index of skills that was
    /// never fetched before, because the model would not know the rules in it. Returns true if it has
    /// waited.
    async fn finish_fetches(&mut self, turn: &TurnContext) -> bool {
        self.start_fetches();
        let mut waited = false;
        let mut at = 0;
        while let Some((source, task)) = self.fetching.get_mut(at) {
            let missing = match source {
                Some(source) => self.snapshot.unfetched_sources.contains(source),
                None => config::remote::lacks_defaults(&turn.session.common.environment),
            };
            if !missing && !task.is_finished() {
                at += 1;
                continue;
            }
            waited |= missing;
            let done = tokio::select! {
                done = tokio::time::timeout(FETCH_TIMEOUT, &mut *task) => done,
                () = turn.cancelled.cancelled() => return false,
            };
            let Ok(notices) = done else {
                // The download continues in the background.
                at += 1;
                continue;
            };
            let notices = notices.unwrap_or_default();
            self.fetching.remove(at);
            for text in notices {
                turn.event_sender.event(notice(text)).await;
            }
        }
        waited
    }

    /// Reads the files again if one has changed.
    async fn reload(&mut self, turn: &mut TurnContext, choice: &watch::Sender<SessionChoices>) {
        let read = self.snapshot.clone();
        let paths = self.paths.clone();
        let forbidding = self.current.borrow().project.deny_watcher.denying_agents();
        let again =
            base::task::spawn_blocking(move || read.read_if_changed(&paths, forbidding)).await;
        match again {
            Ok(None) => {}
            Ok(Some(read)) => {
                self.replace(read, turn, choice).await;
                turn.project = self.project();
            }
            Err(e) => tracing::error!("looking for changed files failed: {e}"),
        }
    }

    /// Applies a new configuration, and notifies the client of changes that it shows.
    async fn replace(
        &mut self,
        read: ConfigSnapshot,
        turn: &TurnContext,
        choice: &watch::Sender<SessionChoices>,
    ) {
        let old = self.project();
        let models = self.models(&old, &read.settings).await;
        let sources = self.registry.sources().clone();
        let registry = self.registry.current();
        let checked =
            base::task::spawn_blocking(move || read.check_models(&registry, &sources)).await;
        let read = match checked {
            Ok(read) => read,
            Err(e) => return tracing::error!("checking the models of the settings failed: {e}"),
        };
        let model = {
            let choice = choice.borrow();
            let agent = read.agents.get(&choice.agent);
            resolve_model(&choice, agent.as_deref(), &models)
        };
        self.current
            .send_replace(read.project_config(&self.paths, models));
        let event_sender = &turn.event_sender;
        let chosen = choice.borrow().agent.clone();
        if read.agents.get(&chosen).is_none() {
            let instead = read.agents.default().name.clone();
            choice.send_modify(|choice| choice.agent.clone_from(&instead));
            event_sender.event(Event::Mode(instead.clone())).await;
            event_sender
                .event(notice(format!(
                    "The agent \"{chosen}\" no longer exists; {instead} is used from now on."
                )))
                .await;
        } else if shown_properties(&old.agents) != shown_properties(&read.agents)
            || provider_settings(&old.context.settings) != provider_settings(&read.settings)
        {
            event_sender.event(Event::Options).await;
        }
        if old.context.settings.general.steer != read.settings.general.steer {
            // The choice in the client applies until the file has another value.
            choice.send_modify(|choice| {
                choice.steer = None;
                choice.default_steer = read.settings.general.steer;
            });
            event_sender.event(Event::Options).await;
        }
        if old.context.settings.general.approvals != read.settings.general.approvals {
            // The choice in the client remains if it asks more questions.
            let now = read.settings.general.approvals;
            choice.send_modify(|choice| {
                choice.approvals = choice.approvals.filter(|chosen| *chosen > now);
                choice.default_approvals = now;
            });
            event_sender.event(Event::Options).await;
        }
        for notice in read.notices(&self.snapshot.problems, &model) {
            event_sender.event(notice).await;
        }
        self.snapshot = Arc::new(read);
    }

    /// Returns the models that are available with the settings.
    async fn models(&self, old: &SessionProject, settings: &Arc<Settings>) -> Models {
        if provider_settings(&old.context.settings) == provider_settings(settings) {
            return old.models.clone();
        }
        let registry = self.registry.clone();
        let wanted = settings.clone();
        let replaced = base::task::spawn_blocking(move || registry.use_settings(wanted));
        if let Err(e) = replaced.await {
            tracing::error!("collecting the providers failed: {e}");
        }
        self.registry
            .models(settings.model.clone(), old.models.recent().clone())
    }
}

/// Returns those properties of agents that a client shows, to detect a change.
fn shown_properties(agents: &Agents) -> Vec<Vec<Option<String>>> {
    let describe = |agent: &Arc<project::agent::Agent>| {
        let model = agent.model.as_ref().map(ToString::to_string);
        vec![
            Some(agent.name.clone()),
            Some(agent.label.clone()),
            agent.description.clone(),
            model,
            agent.variant.clone(),
        ]
    };
    agents.modes().iter().map(describe).collect()
}

/// Returns the settings that determine the available models, to detect a change.
fn provider_settings(settings: &Settings) -> impl PartialEq {
    (
        settings.model.clone(),
        settings.providers.clone(),
        settings.general.disabled_providers.clone(),
        settings.general.enabled_providers.clone(),
        settings.provider_changes,
    )
}

impl ProjectPaths {
    fn load(&self) -> config::LoadedSettings {
        config::load_with(
            &self.environment,
            &self.worktree,
            &self.cwd,
            &self.contributions,
        )
    }

    pub(super) fn find(environment: &Environment, cwd: &Path, extra: &[PathBuf]) -> Self {
        let worktree = Worktree::find(cwd, extra, environment.home.as_deref());
        Self {
            environment: environment.clone(),
            worktree: Arc::new(worktree),
            cwd: cwd.to_path_buf(),
            contributions: Arc::default(),
        }
    }
}
