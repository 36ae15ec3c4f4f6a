//! Which agents the settings make, who may use them, and by which rules: all that decides what is
//! allowed. What else an agent is, `agent::registry` adds.

use std::path::PathBuf;

use super::builtin::{self, AGENTS, BuiltIn};
use super::settings::{Mode, Settings};
use crate::environment::Environment;
use crate::permission::rule::derive;
use crate::permission::{Action, Need, Rule, Rules, evaluate};
use crate::worktree::Worktree;

/// An agent, as far as it decides what is allowed.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) name: String,
    /// What people see.
    pub(crate) label: String,
    pub(crate) mode: Mode,
    pub(crate) hidden: bool,
    /// It comes with the program.
    pub(crate) native: Option<&'static BuiltIn>,
    pub(crate) rules: Rules,
}

/// All agents, the built-in ones first, then in the order of the settings.
#[derive(Debug, Clone)]
pub(crate) struct Roster {
    pub(crate) seats: Vec<Seat>,
    /// The one a session starts with.
    pub(crate) default: String,
    /// The settings left none that could be chosen, so that `build` is there against their word.
    pub(crate) rescued: bool,
}

impl Seat {
    /// Whether the user can choose it.
    pub(crate) fn is_mode(&self) -> bool {
        self.mode != Mode::Subagent && !self.hidden
    }

    /// Whether another agent can start it.
    pub(crate) fn is_subagent(&self) -> bool {
        self.mode != Mode::Primary && !self.hidden
    }
}

impl Roster {
    /// Makes the agents. `readable` are further directories that may be read without asking.
    pub(crate) fn new(
        settings: &Settings,
        environment: &Environment,
        worktree: &Worktree,
        readable: &[PathBuf],
    ) -> Self {
        let mut seats = seats(settings, environment, worktree, readable);
        let rescued = !seats.iter().any(Seat::is_mode);
        if rescued {
            // Somebody has to speak. What was said about build otherwise still holds.
            let mut calm = settings.clone();
            calm.agents.retain(|entry| entry.name == "build");
            for entry in &mut calm.agents {
                (entry.disable, entry.hidden, entry.mode) = (false, Some(false), Some(Mode::Primary));
            }
            seats.retain(|seat| seat.name != "build");
            let again = self::seats(&calm, environment, worktree, readable);
            seats.extend(again.into_iter().filter(|seat| seat.name == "build"));
        }
        let wanted = settings.default_agent.as_deref();
        let modes = || seats.iter().filter(|seat| seat.is_mode());
        let default = modes()
            .find(|seat| Some(seat.name.as_str()) == wanted)
            .or_else(|| modes().find(|seat| seat.name == "build"))
            .or_else(|| modes().next())
            .map(|seat| seat.name.clone())
            .unwrap_or_default();
        Self { seats, default, rescued }
    }

    /// One by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.name == name)
    }

    /// Those that other agents can start, and their rules.
    pub(crate) fn subagents(&self) -> impl Iterator<Item = (&str, &Rules)> {
        self.seats.iter().filter(|seat| seat.is_subagent()).map(|seat| (seat.name.as_str(), &seat.rules))
    }

    /// Those the user can choose.
    pub(crate) fn modes(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter(|seat| seat.is_mode())
    }
}

/// What another agent may do in the place of one with these rules, without doing more: the same; what the
/// subagents may that it starts without a question; what only asks the user something, and keeping plans.
pub(crate) fn reach<'r>(
    rules: &Rules,
    subagents: impl Iterator<Item = (&'r str, &'r Rules)>,
    environment: &Environment,
) -> Vec<Rules> {
    use Action::{Allow, Deny};
    let asks = [("*", "*", Deny), ("question", "*", Allow), ("plan_enter", "*", Allow), ("plan_exit", "*", Allow)];
    let plans = builtin::outside(&environment.dirs.data.join("plans"), Allow);
    let starts = |name: &str| evaluate(rules, &Rules::default(), &Need::new("task", name)).action == Allow;
    let started = subagents.filter(|(name, _)| starts(name)).map(|(_, own)| derive(own, rules, &Rules::default()));
    [rules.clone(), Rules::built_in(&asks).then(&Rules(vec![plans]))].into_iter().chain(started).collect()
}

fn seats(settings: &Settings, environment: &Environment, worktree: &Worktree, readable: &[PathBuf]) -> Vec<Seat> {
    let mut open: Vec<PathBuf> = readable.to_vec();
    open.extend(settings.references.iter().filter_map(|reference| {
        let path = reference.path.as_deref()?;
        Some(match (path.strip_prefix("~/"), environment.home.as_deref()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => worktree.root.join(path),
        })
    }));
    let base = builtin::base(environment, &open);
    let plans = format!("{}/*.md", worktree.relative(&environment.dirs.data.join("plans")));
    let mut seats: Vec<Seat> = Vec::with_capacity(AGENTS.len() + settings.agents.len());
    seats.extend(AGENTS.iter().map(|native| Seat {
        name: native.name.into(),
        label: native.name.into(),
        mode: native.mode,
        hidden: native.hidden,
        native: Some(native),
        rules: builtin::rules(native, &base, &settings.permission, environment, &plans),
    }));
    for entry in &settings.agents {
        if entry.disable {
            seats.retain(|seat| seat.name != entry.name);
            continue;
        }
        let at = seats.iter().position(|seat| seat.name == entry.name).unwrap_or_else(|| {
            seats.push(Seat {
                name: entry.name.clone(),
                label: entry.name.clone(),
                mode: Mode::All,
                hidden: false,
                native: None,
                rules: base.clone().then(&settings.permission),
            });
            seats.len() - 1
        });
        let seat = &mut seats[at];
        seat.label = entry.label.clone().unwrap_or_else(|| std::mem::take(&mut seat.label));
        seat.mode = entry.mode.unwrap_or(seat.mode);
        seat.hidden = entry.hidden.unwrap_or(seat.hidden);
        seat.rules.0.extend(entry.rules.0.iter().cloned());
    }
    for seat in &mut seats {
        readable_outputs(seat, environment);
    }
    seats
}

/// An agent may read what its own tools put aside, unless exactly that is denied.
fn readable_outputs(seat: &mut Seat, environment: &Environment) {
    let rule = builtin::outside(&builtin::outputs(environment), Action::Allow);
    let denied = |other: &Rule| {
        other.permission == rule.permission && other.pattern == rule.pattern && other.action == Action::Deny
    };
    if seat.rules.0.iter().any(denied) || seat.rules.hides("external_directory") {
        return;
    }
    seat.rules.0.push(rule);
}
