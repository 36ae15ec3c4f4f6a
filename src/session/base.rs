//! What the files of a session's directory say: settings, agents, commands, instructions, models.
//! All of it is one value, made at the start and replaced as a whole between two turns when a file
//! has changed; nobody sees half of a change.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::commands::Commands;
use super::open::{Registered, Shared};
use super::trust::{self, Said};
use crate::agent::registry::Agents;
use crate::config::trust::Review;
use crate::config::{self, Fingerprint, Problem, Settings};
use crate::environment::Environment;
use crate::event::{Event, Severity};
use crate::instruction;
use crate::permission::sight::Sight;
use crate::permission::{Place, Policy};
use crate::skill::{self, Skills};
use crate::system::Surroundings;
use crate::turn::models::Models;
use crate::turn::{Background, Choice, Scope};
use crate::worktree::Worktree;

/// What holds in a session until its next turn.
#[derive(Clone)]
pub struct Base {
    /// What the user wants.
    pub settings: Arc<Settings>,
    /// Who can speak.
    pub agents: Arc<Agents>,
    /// Who can be asked.
    pub models: Models,
    /// The `/words` that can be said.
    pub commands: Arc<Commands>,
    /// What the system prompt says, whoever speaks.
    pub background: Arc<Background>,
}

/// What was read, before it is known who can be asked.
pub(super) struct Read {
    pub(super) settings: Arc<Settings>,
    pub(super) agents: Arc<Agents>,
    commands: Arc<Commands>,
    background: Arc<Background>,
    /// Instruction pages on the web, and those of them that were never fetched.
    addresses: Vec<String>,
    missing: Vec<String>,
    /// What is wrong with the settings.
    problems: Arc<[Problem]>,
    /// Everything that was looked at.
    fingerprint: Arc<Fingerprint>,
    /// What the project asks for beyond what an untrusted one may have.
    trust: Arc<Review>,
    /// What the user should know of it, a sentence each.
    notices: Vec<String>,
}

/// Where a session's files are looked for.
#[derive(Clone)]
pub(super) struct Spot {
    pub(super) environment: Environment,
    pub(super) worktree: Arc<Worktree>,
    pub(super) cwd: PathBuf,
}

impl Read {
    /// Reads everything, on a thread that may wait for the disk.
    pub(super) async fn new(spot: &Spot) -> Self {
        let (there, fallback) = (spot.clone(), spot.clone());
        tokio::task::spawn_blocking(move || Self::now(&there)).await.unwrap_or_else(|e| {
            tracing::error!("reading the configuration failed: {e}");
            Self::now(&fallback)
        })
    }

    fn now(spot: &Spot) -> Self {
        Self::of(spot, config::load(&spot.environment, &spot.worktree, &spot.cwd))
    }

    fn of(spot: &Spot, loaded: config::Loaded) -> Self {
        let skills = skill::load(&loaded.settings, &spot.environment, &spot.worktree, &spot.cwd);
        let readable = skills.skills.directories(&spot.worktree);
        let (agents, mut problems) = Agents::build_with(&loaded.settings, &spot.environment, &spot.worktree, &readable);
        problems.extend(skills.problems);
        problems.splice(0..0, loaded.problems);
        let sight = sight(spot, &agents);
        let instructions = instruction::load(&loaded.settings, &spot.environment, &spot.worktree, &spot.cwd, &sight);
        let worth = problems.iter().filter(|problem| problem.severity >= config::Severity::Warning);
        let said = worth.map(ToString::to_string).chain(instructions.notices.clone());
        let notices = said.collect();
        let mut fingerprint = loaded.fingerprint;
        fingerprint.extend(instructions.fingerprint.clone());
        fingerprint.extend(skills.fingerprint);
        let skills = Arc::new(skills.skills);
        Self {
            commands: Arc::new(Commands::new(&loaded.settings, &skills)),
            addresses: instructions.addresses.clone(),
            missing: instructions.missing.clone(),
            background: Arc::new(background(spot, &loaded.settings, instructions, skills)),
            agents: Arc::new(agents),
            settings: Arc::new(loaded.settings),
            problems: problems.into(),
            trust: Arc::new(loaded.trust),
            fingerprint: Arc::new(fingerprint),
            notices,
        }
    }

    /// Reads again what has changed; none if nothing has. Costs a look at each file's metadata as
    /// long as nothing has. Where the changed settings are broken, the earlier ones are kept.
    fn again(&self, spot: &Spot) -> Option<Self> {
        let today = spot.environment.now().day() == self.background.surroundings.day;
        if today && !self.fingerprint.is_stale() {
            return None;
        }
        let loaded = config::load(&spot.environment, &spot.worktree, &spot.cwd);
        let broken: Vec<String> = loaded
            .errors_since(&self.problems)
            .map(|problem| format!("The earlier settings are kept: {problem}"))
            .collect();
        if broken.is_empty() {
            return Some(Self::of(spot, loaded));
        }
        let sight = sight(spot, &self.agents);
        let instructions = instruction::load(&self.settings, &spot.environment, &spot.worktree, &spot.cwd, &sight);
        let skills = skill::load(&self.settings, &spot.environment, &spot.worktree, &spot.cwd);
        let mut fingerprint = loaded.fingerprint;
        fingerprint.extend(instructions.fingerprint.clone());
        fingerprint.extend(skills.fingerprint);
        let skills = Arc::new(skills.skills);
        Some(Self {
            settings: self.settings.clone(),
            agents: self.agents.clone(),
            commands: Arc::new(Commands::new(&self.settings, &skills)),
            problems: self.problems.clone(),
            trust: self.trust.clone(),
            fingerprint: Arc::new(fingerprint),
            notices: broken.into_iter().chain(instructions.notices.clone()).collect(),
            addresses: instructions.addresses.clone(),
            missing: instructions.missing.clone(),
            background: Arc::new(background(spot, &self.settings, instructions, skills)),
        })
    }

    /// What holds, with who can be asked.
    pub(super) fn base(&self, models: Models) -> Base {
        Base {
            settings: self.settings.clone(),
            agents: self.agents.clone(),
            models,
            commands: self.commands.clone(),
            background: self.background.clone(),
        }
    }

    /// What the user is to hear at the first turn.
    pub(super) fn greeting(&self) -> impl Iterator<Item = Event> {
        self.notices.iter().cloned().map(notice)
    }
}

fn background(
    spot: &Spot,
    settings: &Settings,
    instructions: instruction::Instructions,
    skills: Arc<Skills>,
) -> Background {
    let references = settings.references.iter().filter_map(|reference| {
        let path = reference.path.clone()?;
        Some((reference.name.clone(), path, reference.description.clone().unwrap_or_default()))
    });
    Background {
        surroundings: Surroundings::new(&spot.cwd, &spot.worktree, spot.environment.now()),
        references: references.collect(),
        instructions: instructions.entries,
        skills,
    }
}

/// What the project's instructions may show: what the agent that a session begins with may read.
fn sight(spot: &Spot, agents: &Agents) -> Sight {
    let rules = agents.default().rules.clone();
    let place = Place::new(&spot.environment, &spot.worktree, &spot.cwd);
    Sight::new(&Policy { rules, place, ..Policy::default() })
}

fn notice(title: String) -> Event {
    Event::Notice { severity: Severity::Warning, title, details: None }
}

/// The base of a session, kept up to date.
pub(super) struct Present {
    shared: Arc<Shared>,
    spot: Spot,
    read: Arc<Read>,
    now: watch::Sender<Arc<Base>>,
    registry: Registered,
    /// The notices that the user has heard.
    told: HashSet<String>,
    /// What the user was asked to trust, or told that it is off.
    asked: Option<String>,
    /// Instruction pages that were asked for.
    wanted: HashSet<String>,
    /// What is being fetched: pages by their addresses, and the organisations' defaults. Each ends
    /// with what the user should know.
    fetching: Vec<(Option<String>, JoinHandle<Vec<String>>)>,
}

impl Present {
    pub(super) fn new(shared: Arc<Shared>, spot: Spot, read: Read, models: Models, registry: Registered) -> Self {
        let now = watch::channel(Arc::new(read.base(models))).0;
        let told = read.notices.iter().cloned().collect();
        let fetching = shared.defaults().map(|task| (None, task)).into_iter().collect();
        let (read, wanted) = (Arc::new(read), HashSet::new());
        let mut present = Self { shared, spot, read, now, registry, told, asked: None, wanted, fetching };
        present.want();
        present
    }

    /// Where others see what holds.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Base>> {
        self.now.subscribe()
    }

    /// The `/words` that can be said now.
    pub(super) fn commands(&self) -> Arc<Commands> {
        self.now.borrow().commands.clone()
    }

    /// Lets a turn see what holds.
    pub(super) fn lay(&self, scope: &mut Scope) {
        let base = self.now.borrow();
        scope.settings = base.settings.clone();
        scope.agents = base.agents.clone();
        scope.models = base.models.clone();
        scope.background = base.background.clone();
    }

    /// Looks whether a file has changed, reads again what has, asks for trust where something needs
    /// it, and tells the user what follows. `scope` is the turn that is about to begin.
    pub(super) async fn refresh(&mut self, scope: &mut Scope, choice: &watch::Sender<Choice>) {
        self.look(scope, choice).await;
        if self.fetched(scope).await {
            self.look(scope, choice).await;
        }
        let review = self.read.trust.clone();
        if !review.is_withheld() || self.asked.as_ref() == Some(&review.digest) {
            return;
        }
        self.asked = Some(review.digest.clone());
        match trust::trust(&review, scope).await {
            // The answer is one of the files that were looked at.
            Said::Trusted => {
                self.look(scope, choice).await;
                if self.fetched(scope).await {
                    self.look(scope, choice).await;
                }
            }
            Said::Withheld(Some(text)) => scope.outlet.event(notice(text)).await,
            Said::Withheld(None) => {}
        }
    }

    /// Has pages fetched that were not asked for yet.
    fn want(&mut self) {
        for address in &self.read.addresses {
            if self.wanted.insert(address.clone()) {
                self.fetching.push((Some(address.clone()), self.shared.page(address.clone())));
            }
        }
    }

    /// Tells what came of what was fetched. A page that never was before is waited for, a few
    /// seconds at most: without it the model would not know the rules. Says whether one was.
    async fn fetched(&mut self, scope: &Scope) -> bool {
        self.want();
        let mut waited = false;
        let mut at = 0;
        while let Some((address, task)) = self.fetching.get_mut(at) {
            let missing = address.as_ref().is_some_and(|address| self.read.missing.contains(address));
            if !missing && !task.is_finished() {
                at += 1;
                continue;
            }
            waited |= missing;
            let notices = tokio::select! {
                notices = task => notices.unwrap_or_default(),
                () = scope.cancelled.cancelled() => return false,
            };
            self.fetching.remove(at);
            for text in notices {
                scope.outlet.event(notice(text)).await;
            }
        }
        waited
    }

    /// Reads again what has changed.
    async fn look(&mut self, scope: &mut Scope, choice: &watch::Sender<Choice>) {
        let (read, spot) = (self.read.clone(), self.spot.clone());
        let again = tokio::task::spawn_blocking(move || read.again(&spot)).await;
        match again {
            Ok(None) => {}
            Ok(Some(read)) => {
                self.replace(read, scope, choice).await;
                self.lay(scope);
            }
            Err(e) => tracing::error!("looking for changed files failed: {e}"),
        }
    }

    /// Puts what was read into force, and tells the editor what it shows of it.
    async fn replace(&mut self, read: Read, scope: &Scope, choice: &watch::Sender<Choice>) {
        let old = self.now.borrow().clone();
        let models = self.models(&old, &read.settings).await;
        self.now.send_replace(Arc::new(read.base(models)));
        let outlet = &scope.outlet;
        if *old.commands != *read.commands {
            outlet.event(Event::Commands(read.commands.list())).await;
        }
        let chosen = choice.borrow().agent.clone();
        if read.agents.get(&chosen).is_none() {
            let instead = read.agents.default().name.clone();
            choice.send_modify(|choice| choice.agent.clone_from(&instead));
            outlet.event(Event::Mode(instead.clone())).await;
            outlet
                .event(notice(format!("There is no agent \"{chosen}\" any more; {instead} answers from now on.")))
                .await;
        } else if shown(&old.agents) != shown(&read.agents) || providers(&old.settings) != providers(&read.settings) {
            outlet.event(Event::Options).await;
        }
        if old.settings.steer != read.settings.steer {
            // What was chosen in the editor holds until the file says something else.
            choice.send_modify(|choice| (choice.steer, choice.steers) = (None, read.settings.steer));
            outlet.event(Event::Options).await;
        }
        for text in read.notices.iter().filter(|text| !self.told.contains(*text)) {
            outlet.event(notice(text.clone())).await;
        }
        self.told = read.notices.iter().cloned().collect();
        self.read = Arc::new(read);
    }

    /// Who can be asked by these settings.
    async fn models(&self, old: &Base, settings: &Arc<Settings>) -> Models {
        if providers(&old.settings) == providers(settings) {
            return old.models.clone();
        }
        let (shared, wanted) = (self.shared.clone(), settings.clone());
        match tokio::task::spawn_blocking(move || shared.registry(&wanted)).await {
            Ok(registry) => {
                self.registry.send_replace(Arc::new(registry));
            }
            Err(e) => tracing::error!("bringing the providers together failed: {e}"),
        }
        Models::new(self.registry.subscribe(), settings.model.clone(), old.models.recent().clone())
    }
}

/// What an editor shows of agents.
fn shown(agents: &Agents) -> Vec<Vec<Option<String>>> {
    let one = |agent: &Arc<crate::agent::Agent>| {
        let model = agent.model.as_ref().map(ToString::to_string);
        vec![
            Some(agent.name.clone()),
            Some(agent.label.clone()),
            agent.description.clone(),
            model,
            agent.variant.clone(),
        ]
    };
    agents.modes().iter().map(one).collect()
}

/// What decides who can be asked.
fn providers(settings: &Settings) -> impl PartialEq {
    (
        settings.model.clone(),
        settings.providers.clone(),
        settings.disabled_providers.clone(),
        settings.enabled_providers.clone(),
    )
}

impl Spot {
    /// The project of a directory.
    pub(super) fn find(environment: &Environment, cwd: &Path, extra: &[PathBuf]) -> Self {
        let worktree = Worktree::find(cwd, extra, environment.home.as_deref());
        Self { environment: environment.clone(), worktree: Arc::new(worktree), cwd: cwd.to_path_buf() }
    }
}
