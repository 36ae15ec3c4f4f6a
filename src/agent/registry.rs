//! Which agents there are: the built-in ones, changed and joined by the settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::builtin::{self, AGENTS};
use super::{Agent, Mode};
use crate::config::settings::{AgentEntry, Settings};
use crate::config::{Problem, nearest};
use crate::environment::Environment;
use crate::permission::{Action, Need, Rules, evaluate};
use crate::worktree::Worktree;

/// All agents, the built-in ones first, then in the order of the settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Agents {
    all: Vec<Arc<Agent>>,
    default: String,
}

impl Agents {
    /// Makes the agents. What is wrong is told, and the rest works: there is always an agent.
    pub fn build(settings: &Settings, environment: &Environment, worktree: &Worktree) -> (Self, Vec<Problem>) {
        Self::build_with(settings, environment, worktree, &[])
    }

    /// As [`Agents::build`], with further directories that may be read without asking, such as those
    /// of skills.
    pub fn build_with(
        settings: &Settings,
        environment: &Environment,
        worktree: &Worktree,
        readable: &[PathBuf],
    ) -> (Self, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut open: Vec<PathBuf> = readable.to_vec();
        open.extend(settings.references.iter().filter_map(|reference| {
            let path = reference.path.as_deref()?;
            let home = environment.home.as_deref();
            Some(match (path.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => home.join(rest),
                _ => worktree.root.join(path),
            })
        }));
        let base = builtin::base(environment, &open);
        let plans = format!("{}/*.md", worktree.relative(&environment.dirs.data.join("plans")));
        let mut all: Vec<Agent> = Vec::with_capacity(AGENTS.len() + settings.agents.len());
        for native in &AGENTS {
            let rules = builtin::rules(native, &base, &settings.permission, environment, &plans);
            all.push(Agent {
                name: native.name.into(),
                label: native.name.into(),
                description: Some(native.description.into()),
                mode: native.mode,
                hidden: native.hidden,
                native: true,
                color: None,
                model: None,
                variant: None,
                prompt: native.prompted.then(|| Arc::from(crate::prompts::agent(native.name))),
                temperature: native.temperature,
                top_p: None,
                options: serde_json::Map::new(),
                steps: None,
                rules,
                source: "built in".into(),
            });
        }
        for entry in &settings.agents {
            if entry.disable {
                all.retain(|agent| agent.name != entry.name);
                continue;
            }
            match all.iter_mut().find(|agent| agent.name == entry.name) {
                Some(agent) => change(agent, entry),
                None => {
                    let mut agent = Agent {
                        name: entry.name.clone(),
                        label: entry.name.clone(),
                        description: None,
                        mode: Mode::All,
                        hidden: false,
                        native: false,
                        color: None,
                        model: None,
                        variant: None,
                        prompt: None,
                        temperature: None,
                        top_p: None,
                        options: serde_json::Map::new(),
                        steps: None,
                        rules: base.clone().then(&settings.permission),
                        source: String::new(),
                    };
                    change(&mut agent, entry);
                    all.push(agent);
                }
            }
        }
        for agent in &mut all {
            readable_outputs(agent, environment);
        }
        if !all.iter().any(Agent::is_mode) {
            // Somebody has to speak. What was said about build otherwise still holds.
            let mut calm = settings.clone();
            calm.agents.retain(|entry| entry.name == "build");
            for entry in &mut calm.agents {
                (entry.disable, entry.hidden, entry.mode) = (false, Some(false), Some(Mode::Primary));
            }
            let (agents, _) = Self::build_with(&calm, environment, worktree, readable);
            all.extend(agents.get("build").map(|agent| Agent::clone(&agent)));
            if let Some(place) = &settings.agents_place {
                let text = "no agent is left that you could choose; build is used";
                problems.push(
                    Problem::error(place, "agent", text).hint("leave one agent visible, with mode primary or all"),
                );
            }
        }
        let (default, problem) = default(settings, &all);
        problems.extend(problem);
        problems.extend(mentions(settings, &all));
        (Self { all: all.into_iter().map(Arc::new).collect(), default }, problems)
    }

    /// All of them, hidden ones included.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.all.iter()
    }

    /// One by its name, hidden or not.
    pub fn get(&self, name: &str) -> Option<Arc<Agent>> {
        self.all.iter().find(|agent| agent.name == name).cloned()
    }

    /// The one a session starts with. There is always one that can be chosen.
    pub fn default(&self) -> Arc<Agent> {
        let chosen = self.all.iter().find(|agent| agent.name == self.default);
        let any = || self.all.iter().find(|agent| agent.is_mode());
        #[expect(clippy::indexing_slicing, reason = "build makes sure that one can be chosen")]
        chosen.or_else(any).unwrap_or(&self.all[0]).clone()
    }

    /// The modes of a session: what the user can choose, the default first, then by name.
    pub fn modes(&self) -> Vec<Arc<Agent>> {
        let mut modes: Vec<Arc<Agent>> = self.all.iter().filter(|agent| agent.is_mode()).cloned().collect();
        let default = self.default().name.clone();
        modes.sort_by(|a, b| (a.name != default).cmp(&(b.name != default)).then_with(|| a.name.cmp(&b.name)));
        modes
    }

    /// The subagents that may be started under some rules, by name.
    pub fn subagents_for(&self, rules: &Rules) -> Vec<Arc<Agent>> {
        let may = |agent: &&Arc<Agent>| {
            let need = Need::new("task", agent.name.as_str());
            agent.is_subagent() && evaluate(rules, &Rules::default(), &need).action != Action::Deny
        };
        let mut found: Vec<Arc<Agent>> = self.all.iter().filter(may).cloned().collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

/// Lays an entry of the settings over an agent.
fn change(agent: &mut Agent, entry: &AgentEntry) {
    fn set<T: Clone>(to: &mut T, from: &Option<T>) {
        if let Some(from) = from {
            *to = from.clone();
        }
    }
    set(&mut agent.label, &entry.label);
    set(&mut agent.mode, &entry.mode);
    set(&mut agent.hidden, &entry.hidden);
    agent.description = entry.description.clone().or(agent.description.take());
    agent.color = entry.color.clone().or(agent.color.take());
    agent.model = entry.model.clone().or(agent.model.take());
    agent.variant = entry.variant.clone().or(agent.variant.take());
    agent.prompt = entry.prompt.clone().or(agent.prompt.take());
    agent.temperature = entry.temperature.or(agent.temperature);
    agent.top_p = entry.top_p.or(agent.top_p);
    agent.steps = entry.steps.or(agent.steps);
    agent.options.extend(entry.options.clone());
    agent.rules = std::mem::take(&mut agent.rules).then(&entry.rules);
    agent.source.clone_from(&entry.source);
}

/// An agent may read what its own tools put aside, unless exactly that is denied.
fn readable_outputs(agent: &mut Agent, environment: &Environment) {
    let rule = builtin::outside(&builtin::outputs(environment), Action::Allow);
    let denied = |other: &&crate::permission::Rule| {
        other.permission == rule.permission && other.pattern == rule.pattern && other.action == Action::Deny
    };
    if agent.rules.0.iter().any(|other| denied(&other)) || agent.rules.hides("external_directory") {
        return;
    }
    agent.rules.0.push(rule);
}

/// The agent to start with, and what is wrong with the one that was asked for.
fn default(settings: &Settings, all: &[Agent]) -> (String, Option<Problem>) {
    let usual = || {
        let build = all.iter().find(|agent| agent.name == "build" && agent.is_mode());
        build.or_else(|| all.iter().find(|agent| agent.is_mode())).map(|agent| agent.name.clone()).unwrap_or_default()
    };
    let Some(wanted) = &settings.default_agent else { return (usual(), None) };
    let found = all.iter().find(|agent| agent.name == *wanted);
    let wrong = match found {
        Some(agent) if agent.is_mode() => return (wanted.clone(), None),
        Some(agent) if agent.hidden => format!("the agent \"{wanted}\" is hidden, so no session can start with it"),
        Some(_) => format!("\"{wanted}\" is a subagent, so no session can start with it"),
        None => format!("there is no agent \"{wanted}\""),
    };
    let instead = usual();
    let modes: Vec<&str> = all.iter().filter(|agent| agent.is_mode()).map(|agent| agent.name.as_str()).collect();
    let problem = settings.default_agent_place.as_ref().map(|place| {
        let problem = Problem::error(place, "default_agent", format!("{wrong}; {instead} is used"));
        match nearest(wanted, modes.iter().copied()) {
            Some(near) if found.is_none() => problem.hint(format!("did you mean \"{near}\"?")),
            _ => problem.hint(format!("choose one of {}", modes.join(", "))),
        }
    });
    (instead, problem)
}

/// Commands that name agents which are not there.
fn mentions(settings: &Settings, all: &[Agent]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for command in &settings.commands {
        if let (Some(name), Some(place)) = (&command.agent, &command.place)
            && !all.iter().any(|agent| agent.name == *name)
        {
            let key = format!("command.{}.agent", command.name);
            let text = format!("there is no agent \"{name}\"; the session's agent answers");
            problems
                .push(Problem::warning(place, key, text).nearest(name, all.iter().map(|agent| agent.name.as_str())));
        }
    }
    problems
}

/// Where a project keeps its agents, for writing a new one.
pub fn folder(project: Option<&Path>, environment: &Environment) -> PathBuf {
    match project {
        Some(root) => root.join(".adjutant").join("agents"),
        None => environment.dirs.config.join("agents"),
    }
}
