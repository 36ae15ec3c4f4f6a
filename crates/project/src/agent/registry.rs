//! The registry of agents: the built-in ones, changed and extended by the settings.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::Agent;
use base::environment::Environment;
use base::text::nearest;
use base::worktree::Worktree;
use config::agent_rules::{AgentPermissions, AgentRules};
use config::settings::{AgentEntry, Settings};
use config::{Problem, ProblemCode};
use permission::{AccessRequest, Action, Rule, Rules, evaluate};

/// All agents, the built-in ones first, then in the order of the settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Agents {
    all: Vec<Arc<Agent>>,
    default: String,
    /// The indices in `all`, by name.
    places: HashMap<String, usize>,
}

impl Agents {
    /// Creates the agents. Errors are reported and the rest works: there is always an agent.
    pub fn build(
        settings: &Settings,
        environment: &Environment,
        worktree: &Worktree,
    ) -> (Self, Vec<Problem>) {
        Self::build_with(settings, environment, worktree, &[])
    }

    /// Creates the agents like [`Agents::build`], with further directories that may be read without
    /// a question, such as those of skills.
    pub fn build_with(
        settings: &Settings,
        environment: &Environment,
        worktree: &Worktree,
        readable: &[PathBuf],
    ) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let agent_rules = AgentRules::new(settings, environment, worktree, readable);
        let mut all: Vec<Agent> = Vec::with_capacity(agent_rules.entries.len());
        // The first entry of a name is used.
        let written: HashMap<&str, &AgentEntry> = settings
            .agents
            .iter()
            .rev()
            .map(|entry| (&*entry.name, entry))
            .collect();
        for permissions in agent_rules.entries {
            let entry = written.get(&*permissions.name).copied();
            all.push(agent(permissions, entry));
        }
        if agent_rules.is_build_forced
            && let Some(location) = &settings.agents_location
        {
            let text = "no agent is left that you could choose; build is used";
            problems.push(
                Problem::error(ProblemCode::UnknownAgent, location, "agent", text)
                    .hint("leave one agent visible, with mode primary or all"),
            );
        }
        let default = agent_rules.default;
        problems.extend(default_problem(settings, &all, &default));
        problems.extend(unknown_mentions(settings, &all));
        let places = all
            .iter()
            .enumerate()
            .map(|(at, agent)| (agent.name.clone(), at))
            .collect();
        (
            Self {
                all: all.into_iter().map(Arc::new).collect(),
                default,
                places,
            },
            problems,
        )
    }

    /// Returns the same agents, each with the additional denies that the agent of the same name in
    /// `other` has and that `counts` accepts. Exceptions from those rules are left out, so that
    /// nothing is loosened.
    #[must_use]
    pub fn with_denies_of(&self, other: &Self, counts: impl Fn(&Rule) -> bool) -> Self {
        let stricter = |agent: &Arc<Agent>| {
            let Some(other) = other.get(&agent.name) else {
                return agent.clone();
            };
            let is_new = |rule: &&Rule| {
                rule.action == Action::Deny && counts(rule) && !agent.rules.has(rule)
            };
            let denies = other.rules.iter().filter(is_new).cloned().collect();
            Arc::new(Agent {
                rules: agent.rules.clone().then(&denies),
                ..Agent::clone(agent)
            })
        };
        Self {
            all: self.all.iter().map(stricter).collect(),
            ..self.clone()
        }
    }

    /// Returns all agents, including hidden ones.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.all.iter()
    }

    /// Returns an agent by its name, hidden or not.
    pub fn get(&self, name: &str) -> Option<Arc<Agent>> {
        self.all.get(*self.places.get(name)?).cloned()
    }

    /// Returns the agent that a session starts with. There is always one that can be chosen.
    pub fn default(&self) -> Arc<Agent> {
        let chosen = self.all.iter().find(|agent| agent.name == self.default);
        let any = || self.all.iter().find(|agent| agent.is_mode());
        #[expect(
            clippy::indexing_slicing,
            reason = "build makes sure that one can be chosen"
        )]
        chosen.or_else(any).unwrap_or(&self.all[0]).clone()
    }

    /// Returns the modes of a session, which the user can choose: the default first, then by name.
    pub fn modes(&self) -> Vec<Arc<Agent>> {
        let mut modes: Vec<Arc<Agent>> = self
            .all
            .iter()
            .filter(|agent| agent.is_mode())
            .cloned()
            .collect();
        let default = self.default().name.clone();
        modes.sort_by(|a, b| {
            (a.name != default)
                .cmp(&(b.name != default))
                .then_with(|| a.name.cmp(&b.name))
        });
        modes
    }

    /// Returns the modes, with the chosen agent even if it is hidden, or a subagent whose session
    /// is opened.
    pub fn modes_with(&self, chosen: &str) -> Vec<Arc<Agent>> {
        let mut modes = self.modes();
        let hidden = self.get(chosen).filter(|agent| !agent.is_mode());
        modes.extend(hidden);
        modes
    }

    /// Returns the subagents that may be started under some rules, by name.
    pub fn subagents_for(&self, rules: &Rules) -> Vec<Arc<Agent>> {
        let may = |agent: &&Arc<Agent>| {
            let request = AccessRequest::new("task", agent.name.as_str());
            agent.is_subagent()
                && evaluate(rules, &Rules::default(), &request).action != Action::Deny
        };
        let mut found: Vec<Arc<Agent>> = self.all.iter().filter(may).cloned().collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

/// Creates an agent from its permissions and its settings.
fn agent(permissions: AgentPermissions, entry: Option<&AgentEntry>) -> Agent {
    let native = permissions.native;
    let mut agent = Agent {
        name: permissions.name,
        label: permissions.label,
        description: native.map(|native| native.description.into()),
        mode: permissions.mode,
        hidden: permissions.hidden,
        native: native.is_some(),
        color: None,
        model: None,
        family: None,
        variant: None,
        prompt: native.and_then(|native| native.prompt).map(Arc::from),
        temperature: None,
        top_p: None,
        options: serde_json::Map::new(),
        steps: None,
        rules: permissions.rules,
        source: "built in".into(),
    };
    if let Some(entry) = entry {
        agent.description = entry.description.clone().or(agent.description.take());
        agent.color = entry.color.clone();
        agent.model = entry.model.clone();
        agent.family = entry.family;
        agent.variant = entry.variant.clone();
        agent.prompt = entry.prompt.clone().or(agent.prompt.take());
        agent.temperature = entry.temperature.or(agent.temperature);
        agent.top_p = entry.top_p;
        agent.steps = entry.steps;
        agent.options.extend(entry.options.clone());
        agent.source.clone_from(&entry.source);
    }
    agent
}

/// Reports a default agent of the settings that a session cannot start with.
fn default_problem(settings: &Settings, all: &[Agent], instead: &str) -> Option<Problem> {
    let requested = settings
        .default_agent
        .as_ref()
        .filter(|requested| *requested != instead)?;
    let found = all.iter().find(|agent| agent.name == *requested);
    let reason = match found {
        Some(agent) if agent.hidden => {
            format!("the agent \"{requested}\" is hidden, so no session can start with it")
        }
        Some(_) => format!("\"{requested}\" is a subagent, so no session can start with it"),
        None => format!("there is no agent \"{requested}\""),
    };
    let modes: Vec<&str> = all
        .iter()
        .filter(|agent| agent.is_mode())
        .map(|agent| agent.name.as_str())
        .collect();
    let location = settings.default_agent_location.as_ref()?;
    let problem = Problem::error(
        ProblemCode::UnknownAgent,
        location,
        "default_agent",
        format!("{reason}; {instead} is used"),
    );
    Some(match nearest(requested, modes.iter().copied()) {
        Some(near) if found.is_none() => problem.hint(format!("did you mean \"{near}\"?")),
        _ => problem.hint(format!("choose one of {}", modes.join(", "))),
    })
}

/// Reports commands that name unknown agents.
fn unknown_mentions(settings: &Settings, all: &[Agent]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let names: HashSet<&str> = all.iter().map(|agent| &*agent.name).collect();
    for command in &settings.commands {
        if let (Some(name), Some(location)) = (&command.agent, &command.location)
            && !names.contains(&**name)
        {
            let key = format!("command.{}.agent", command.name);
            let text = format!("there is no agent \"{name}\"; the session's agent answers");
            problems.push(
                Problem::warning(ProblemCode::UnknownAgent, location, key, text)
                    .nearest(name, all.iter().map(|agent| agent.name.as_str())),
            );
        }
    }
    problems
}
