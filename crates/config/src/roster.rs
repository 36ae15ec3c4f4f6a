//! Which agents the settings make, who may use them, and by which rules: all that decides what is
//! allowed. What else an agent is, `agent::registry` adds.

use std::collections::HashMap;
use std::path::PathBuf;

use super::builtin::{self, AGENTS, BuiltIn};
use super::settings::{Mode, Settings};
use base::environment::Environment;
use base::worktree::Worktree;
use permission::rule::derive;
use permission::{Action, Need, Rule, Rules, evaluate};

/// An agent, as far as it decides what is allowed.
#[derive(Debug, Clone)]
pub struct RosterEntry {
    pub name: String,
    pub label: String,
    pub mode: Mode,
    pub hidden: bool,
    /// It comes with the program.
    pub native: Option<&'static BuiltIn>,
    pub rules: Rules,
}

/// All agents, the built-in ones first, then in the order of the settings.
#[derive(Debug, Clone)]
pub struct Roster {
    pub entries: Vec<RosterEntry>,
    /// The one a session starts with.
    pub default: String,
    /// The settings left none that could be chosen, so that `build` is there against their word.
    pub rescued: bool,
    /// The entries by their names.
    places: HashMap<String, usize>,
}

impl RosterEntry {
    /// Whether the user can choose it.
    pub(crate) fn is_mode(&self) -> bool {
        self.mode != Mode::Subagent && !self.hidden
    }

    /// Whether a session can be led by it: a hidden one is chosen by its name.
    pub(crate) fn can_lead(&self) -> bool {
        self.mode != Mode::Subagent && !self.is_internal()
    }

    /// Whether another agent can start it: a hidden one by its name.
    pub(crate) fn is_subagent(&self) -> bool {
        self.mode != Mode::Primary && !self.is_internal()
    }

    fn is_internal(&self) -> bool {
        self.native.is_some_and(|native| native.hidden) && self.hidden
    }
}

impl Roster {
    /// Makes the agents. `readable` are further directories that may be read without asking.
    pub fn new(settings: &Settings, environment: &Environment, worktree: &Worktree, readable: &[PathBuf]) -> Self {
        let mut entries = entries(settings, environment, worktree, readable);
        let rescued = !entries.iter().any(RosterEntry::is_mode);
        if rescued {
            // Somebody has to speak. What was said about build otherwise still holds.
            let mut calm = settings.clone();
            calm.agents.retain(|entry| entry.name == "build");
            for entry in &mut calm.agents {
                (entry.disable, entry.hidden, entry.mode) = (false, Some(false), Some(Mode::Primary));
            }
            entries.retain(|entry| entry.name != "build");
            let again = self::entries(&calm, environment, worktree, readable);
            entries.extend(again.into_iter().filter(|entry| entry.name == "build"));
        }
        let wanted = settings.default_agent.as_deref();
        let modes = || entries.iter().filter(|entry| entry.is_mode());
        let default = modes()
            .find(|entry| Some(entry.name.as_str()) == wanted)
            .or_else(|| modes().find(|entry| entry.name == "build"))
            .or_else(|| modes().next())
            .map(|entry| entry.name.clone())
            .unwrap_or_default();
        let places = entries.iter().enumerate().map(|(at, entry)| (entry.name.clone(), at)).collect();
        Self { entries, default, rescued, places }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RosterEntry> {
        self.entries.get(*self.places.get(name)?)
    }

    /// Those that other agents can start, and their rules.
    pub(crate) fn subagents(&self) -> impl Iterator<Item = (&str, &Rules)> {
        self.entries.iter().filter(|entry| entry.is_subagent()).map(|entry| (entry.name.as_str(), &entry.rules))
    }

    /// Those the user can choose.
    pub(crate) fn modes(&self) -> impl Iterator<Item = &RosterEntry> {
        self.entries.iter().filter(|entry| entry.is_mode())
    }
}

/// What another agent may do in the place of one with these rules, without doing more: the same; what the
/// subagents may that it starts without a question; what only asks the user something, and keeping plans.
pub fn reach<'r>(
    rules: &Rules,
    subagents: impl Iterator<Item = (&'r str, &'r Rules)>,
    environment: &Environment,
) -> Vec<Rules> {
    use Action::{Allow, Deny};
    let asks = [("*", "*", Deny), ("question", "*", Allow), ("plan_enter", "*", Allow), ("plan_exit", "*", Allow)];
    let plans = builtin::outside(&environment.dirs.data.join("plans"), Allow);
    let starts = |name: &str| evaluate(rules, &Rules::default(), &Need::new("task", name)).action == Allow;
    let started = subagents.filter(|(name, _)| starts(name)).map(|(_, own)| derive(own, rules, &Rules::default()));
    [rules.clone(), Rules::built_in(&asks).then(&Rules::from(vec![plans]))].into_iter().chain(started).collect()
}

fn entries(
    settings: &Settings,
    environment: &Environment,
    worktree: &Worktree,
    readable: &[PathBuf],
) -> Vec<RosterEntry> {
    let mut open: Vec<PathBuf> = readable.to_vec();
    open.extend(settings.references.iter().filter_map(|reference| reference.dir(environment, worktree)));
    let base = builtin::base(environment, &open);
    let plans = format!("{}/*.md", worktree.relative(&environment.dirs.data.join("plans")));
    // All agents of the settings share these, which are compiled once.
    let common = base.clone().then(&settings.permission);
    let mut entries: Vec<Option<RosterEntry>> = Vec::with_capacity(AGENTS.len() + settings.agents.len());
    entries.extend(
        AGENTS
            .iter()
            .map(|native| RosterEntry {
                name: native.name.into(),
                label: native.name.into(),
                mode: native.mode,
                hidden: native.hidden,
                native: Some(native),
                rules: builtin::rules(native, &base, &settings.permission, environment, &plans),
            })
            .map(Some),
    );
    let mut places: HashMap<&str, usize> = AGENTS.iter().enumerate().map(|(at, native)| (native.name, at)).collect();
    for change in &settings.agents {
        if change.disable {
            if let Some(entry) = places.remove(&*change.name).and_then(|at| entries.get_mut(at)) {
                *entry = None;
            }
            continue;
        }
        let at = *places.entry(&*change.name).or_insert(entries.len());
        if at == entries.len() {
            entries.push(None);
        }
        let Some(entry) = entries.get_mut(at) else { continue };
        let entry = entry.get_or_insert_with(|| RosterEntry {
            name: change.name.clone(),
            label: change.name.clone(),
            mode: Mode::All,
            hidden: change.name == builtin::SUMMARY,
            native: None,
            rules: common.clone(),
        });
        entry.label = change.label.clone().unwrap_or_else(|| std::mem::take(&mut entry.label));
        entry.mode = change.mode.unwrap_or(entry.mode);
        entry.hidden = change.hidden.unwrap_or(entry.hidden);
        entry.rules = std::mem::take(&mut entry.rules).then(&change.rules);
    }
    let mut entries: Vec<RosterEntry> = entries.into_iter().flatten().collect();
    for entry in &mut entries {
        readable_outputs(entry, environment, worktree);
    }
    entries
}

/// An agent may read what its own tools put aside, unless exactly that is denied. Where everything is denied
/// but for some tools, these put something aside too.
fn readable_outputs(entry: &mut RosterEntry, environment: &Environment, worktree: &Worktree) {
    let outputs = builtin::outputs(environment);
    let rule = builtin::outside(&outputs, Action::Allow);
    // By the catch-all, and with tools that are left.
    let denied_with_all = |permission: &str| {
        entry.rules.last_about(permission).is_some_and(|(at, rule)| {
            rule.permission == "*" && entry.rules.iter().skip(at + 1).any(|rule| rule.action != Action::Deny)
        })
    };
    let hidden = |permission: &str| entry.rules.hides(permission) && !denied_with_all(permission);
    if entry.rules.has(&Rule { action: Action::Deny, ..rule.clone() }) || hidden("external_directory") {
        return;
    }
    // Asked about by the catch-all alone, it is theirs all the same.
    let last = entry.rules.last_about("read");
    let reads =
        last.is_some_and(|(_, rule)| rule.permission == "*" && rule.pattern == "*" && rule.action != Action::Allow);
    let reads = reads && !hidden("read");
    let mut opened = Rules::from(vec![rule]);
    if reads {
        let pattern = format!("{}/*", worktree.relative(&outputs));
        opened = opened.then(&Rules::built_in(&[("read", &pattern, Action::Allow)]));
    }
    entry.rules = std::mem::take(&mut entry.rules).then(&opened);
}
