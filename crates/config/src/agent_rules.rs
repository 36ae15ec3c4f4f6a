//! The agents of the settings, as far as permissions are concerned: who may use them, and their
//! rules. `agent::registry` adds the rest.

use std::collections::HashMap;
use std::path::PathBuf;

use super::builtin::{self, AGENTS, BuiltInAgent};
use super::settings::{Mode, Settings};
use base::environment::Environment;
use base::worktree::Worktree;
use permission::rule::derive;
use permission::{AccessRequest, Action, Rules, evaluate};

/// An agent, reduced to its permissions.
#[derive(Debug, Clone)]
pub struct AgentPermissions {
    pub name: String,
    pub label: String,
    pub mode: Mode,
    pub hidden: bool,
    /// The built-in agent, if it is one.
    pub native: Option<&'static BuiltInAgent>,
    pub rules: Rules,
}

/// All agents: the built-in ones first, then in the order of the settings.
#[derive(Debug, Clone)]
pub struct AgentRules {
    pub entries: Vec<AgentPermissions>,
    /// The agent that a session starts with.
    pub default: String,
    /// True if the settings left no agent to choose, so that `build` is enabled against them.
    pub is_build_forced: bool,
    /// The indices of the entries, by name.
    indices: HashMap<String, usize>,
}

impl AgentPermissions {
    /// Returns whether the user can choose it.
    pub(crate) fn is_mode(&self) -> bool {
        self.mode != Mode::Subagent && !self.hidden
    }

    /// Returns whether it can lead a session: a hidden agent is chosen by its name.
    pub(crate) fn can_lead(&self) -> bool {
        self.mode != Mode::Subagent && !self.is_internal()
    }

    /// Returns whether another agent can start it: a hidden agent by its name.
    pub(crate) fn is_subagent(&self) -> bool {
        self.mode != Mode::Primary && !self.is_internal()
    }

    fn is_internal(&self) -> bool {
        self.native.is_some_and(|native| native.hidden) && self.hidden
    }
}

impl AgentRules {
    /// Creates the agents. `readable` are further directories that may be read without a question.
    pub fn new(
        settings: &Settings,
        environment: &Environment,
        worktree: &Worktree,
        readable: &[PathBuf],
    ) -> Self {
        let mut entries = entries(settings, environment, worktree, readable);
        let is_build_forced = !entries.iter().any(AgentPermissions::is_mode);
        if is_build_forced {
            // A session needs an agent. The other settings of `build` still apply.
            let mut forced_settings = settings.clone();
            forced_settings.agents.retain(|entry| entry.name == "build");
            for entry in &mut forced_settings.agents {
                entry.disable = false;
                entry.hidden = Some(false);
                entry.mode = Some(Mode::Primary);
            }
            entries.retain(|entry| entry.name != "build");
            let enabled_entries = self::entries(&forced_settings, environment, worktree, readable);
            entries.extend(
                enabled_entries
                    .into_iter()
                    .filter(|entry| entry.name == "build"),
            );
        }
        let requested = settings.default_agent.as_deref();
        let modes = || entries.iter().filter(|entry| entry.is_mode());
        let default = modes()
            .find(|entry| Some(entry.name.as_str()) == requested)
            .or_else(|| modes().find(|entry| entry.name == "build"))
            .or_else(|| modes().next())
            .map(|entry| entry.name.clone())
            .unwrap_or_default();
        let indices = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (entry.name.clone(), at))
            .collect();
        Self {
            entries,
            default,
            is_build_forced,
            indices,
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&AgentPermissions> {
        self.entries.get(*self.indices.get(name)?)
    }

    /// Returns the agents that other agents can start, with their rules.
    pub(crate) fn subagents(&self) -> impl Iterator<Item = (&str, &Rules)> {
        self.entries
            .iter()
            .filter(|entry| entry.is_subagent())
            .map(|entry| (entry.name.as_str(), &entry.rules))
    }

    /// Returns the agents that the user can choose.
    pub(crate) fn modes(&self) -> impl Iterator<Item = &AgentPermissions> {
        self.entries.iter().filter(|entry| entry.is_mode())
    }
}

/// Returns the rules that an agent with these rules can make use of anyway: its own; those of
/// subagents that it starts without a question; those for questions to the user and for plan files.
/// An agent that replaces it may have them without loosening anything.
pub fn reachable_rules<'r>(
    rules: &Rules,
    subagents: impl Iterator<Item = (&'r str, &'r Rules)>,
    environment: &Environment,
) -> Vec<Rules> {
    use Action::{Allow, Deny};
    let questions = [
        ("*", "*", Deny),
        ("question", "*", Allow),
        ("plan_enter", "*", Allow),
        ("plan_exit", "*", Allow),
    ];
    let plans = builtin::outside(&environment.dirs.data.join("plans"), Allow);
    let starts = |name: &str| {
        evaluate(rules, &Rules::default(), &AccessRequest::new("task", name)).action == Allow
    };
    let started = subagents
        .filter(|(name, _)| starts(name))
        .map(|(_, own)| derive(own, rules, &Rules::default()));
    let questions_and_plans = Rules::built_in(&questions).then(&Rules::from(vec![plans]));
    [rules.clone(), questions_and_plans]
        .into_iter()
        .chain(started)
        .collect()
}

fn entries(
    settings: &Settings,
    environment: &Environment,
    worktree: &Worktree,
    readable: &[PathBuf],
) -> Vec<AgentPermissions> {
    let mut open: Vec<PathBuf> = readable.to_vec();
    open.extend(
        settings
            .references
            .iter()
            .filter_map(|reference| reference.dir(environment, worktree)),
    );
    let base = builtin::base(environment, &open);
    let plans = format!(
        "{}/*.md",
        worktree.relative(&environment.dirs.data.join("plans"))
    );
    // All agents of the settings share these rules, which are compiled once.
    let common = base.clone().then(&settings.permission);
    let mut entries: Vec<Option<AgentPermissions>> =
        Vec::with_capacity(AGENTS.len() + settings.agents.len());
    entries.extend(
        AGENTS
            .iter()
            .map(|native| AgentPermissions {
                name: native.name.into(),
                label: native.name.into(),
                mode: native.mode,
                hidden: native.hidden,
                native: Some(native),
                rules: builtin::rules(native, &base, &settings.permission, environment, &plans),
            })
            .map(Some),
    );
    let mut indices: HashMap<&str, usize> = AGENTS
        .iter()
        .enumerate()
        .map(|(at, native)| (native.name, at))
        .collect();
    for change in &settings.agents {
        if change.disable {
            if let Some(entry) = indices
                .remove(&*change.name)
                .and_then(|at| entries.get_mut(at))
            {
                *entry = None;
            }
            continue;
        }
        let at = *indices.entry(&*change.name).or_insert(entries.len());
        if at == entries.len() {
            entries.push(None);
        }
        let Some(entry) = entries.get_mut(at) else {
            continue;
        };
        let entry = entry.get_or_insert_with(|| AgentPermissions {
            name: change.name.clone(),
            label: change.name.clone(),
            mode: Mode::All,
            hidden: false,
            native: None,
            rules: common.clone(),
        });
        entry.label = change
            .label
            .clone()
            .unwrap_or_else(|| std::mem::take(&mut entry.label));
        entry.mode = change.mode.unwrap_or(entry.mode);
        entry.hidden = change.hidden.unwrap_or(entry.hidden);
        entry.rules = std::mem::take(&mut entry.rules).then(&change.rules);
    }
    let mut entries: Vec<AgentPermissions> = entries.into_iter().flatten().collect();
    for entry in &mut entries {
        allow_reading_outputs(entry, environment, worktree);
    }
    entries
}

/// Lets an agent read the stored results of its own tools, unless exactly that is denied. An agent
/// that is limited to some tools stores results of those, too.
fn allow_reading_outputs(
    entry: &mut AgentPermissions,
    environment: &Environment,
    worktree: &Worktree,
) {
    let outputs = builtin::outputs(environment);
    let rule = builtin::outside(&outputs, Action::Allow);
    // Denied by the catch-all, with some tools allowed after it.
    let denied_with_all = |permission: &str| {
        entry
            .rules
            .last_about(permission)
            .is_some_and(|(at, rule)| {
                rule.permission == "*"
                    && entry
                        .rules
                        .iter()
                        .skip(at + 1)
                        .any(|rule| rule.action != Action::Deny)
            })
    };
    let is_hidden =
        |permission: &str| entry.rules.hides(permission) && !denied_with_all(permission);
    // Asked once for each list, which is not worth an index of its patterns.
    let is_denied = entry.rules.iter().any(|other| {
        (&other.permission, &other.pattern, other.action)
            == (&rule.permission, &rule.pattern, Action::Deny)
    });
    if is_denied || is_hidden("external_directory") {
        return;
    }
    // If only the catch-all asks about reading, stored results may be read.
    let last = entry.rules.last_about("read");
    let is_catch_all = last.is_some_and(|(_, rule)| {
        rule.permission == "*" && rule.pattern == "*" && rule.action != Action::Allow
    });
    let mut opened = Rules::from(vec![rule]);
    if is_catch_all && !is_hidden("read") {
        let pattern = format!("{}/*", worktree.relative(&outputs));
        // Rules about reading itself, such as those for `.env` files, apply there, too: a
        // project's catch-all would otherwise count as one that loosens.
        let stops = entry
            .rules
            .iter()
            .filter(|rule| rule.permission == "read" && rule.action != Action::Allow)
            .cloned()
            .collect();
        opened = opened
            .then(&Rules::built_in(&[("read", &pattern, Action::Allow)]))
            .then(&stops);
    }
    entry.rules = std::mem::take(&mut entry.rules).then(&opened);
}
