//! What a project's settings loosen: which of its rules, agents and choices let something through
//! that the user's own settings, or the program's, stop. Nothing is read off the rules. The agents are
//! made with the project's settings and without, and judged: see [`permission::laxer`].
//!
//! Compared are, for every agent: what it may do with the project and without; for one that the user
//! can choose only now, what the agent may do that a session would start with; for one that looks like
//! another, what that one may do; for one that other agents can start only now, what those could do
//! already; for one that can no longer be chosen, what it may do with what takes its place. For the
//! agent a session starts with and those that answer commands, what the earlier ones may do.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::rc::Rc;

use super::layers::ParsedLayer;
use super::node::{MapEntry, Node, NodeValue, SourceLocation};
use super::roster::{Roster, RosterEntry, reach};
use super::settings::Settings;
use super::{builtin, join, resolve, rules};
use base::approvals::Approvals;
use base::environment::Environment;
use base::worktree::Worktree;
use permission::rule::{BUILT_IN, derive};
use permission::{Action, Rule, Rules, laxer};

/// Something a project says that has a part in what is allowed.
#[derive(Debug, Clone)]
pub(crate) struct LoosenedKey {
    /// In which of the texts.
    told: usize,
    /// The keys that lead to it.
    way: Vec<String>,
    /// In which turn it is tried: what tightens first, so that it stays where what loosens goes.
    turn: u8,
    /// `permission.bash`, `agent.plan.disable`.
    pub(crate) key: String,
    pub(crate) detail: String,
    pub(crate) place: SourceLocation,
}

/// What of a project's texts loosens something: without these pieces the rest does not. `told` are all
/// texts, the user's among them, lowest first.
pub(crate) fn loosening(told: &[ParsedLayer], environment: &Environment, worktree: &Worktree) -> Vec<LoosenedKey> {
    let alone = join(told.iter().filter(|told| !told.origin.project));
    let pieces = pieces(told, &alone);
    if pieces.is_empty() {
        return Vec::new();
    }
    let told: Vec<ParsedLayer> =
        told.iter().map(|told| ParsedLayer { origin: told.origin.clone(), node: part(told) }).collect();
    let review = LooseningReview::new(told, environment, worktree);
    if review.stands(&[]) {
        return Vec::new();
    }
    let mut left: Vec<LoosenedKey> = pieces;
    left.sort_by_key(|piece| piece.turn);
    let mut withheld = left.clone();
    let mut kept = Vec::new();
    review.keep(&left, &mut kept, &mut withheld);
    // An agent that goes takes its rules with it.
    let gone: Vec<(usize, Vec<String>)> = withheld.iter().map(|piece| (piece.told, piece.way.clone())).collect();
    withheld.retain(|piece| {
        !gone.iter().any(|(told, way)| *told == piece.told && way.len() < piece.way.len() && piece.way.starts_with(way))
    });
    withheld.sort_by_key(|piece| (piece.told, piece.place.line, piece.place.column));
    withheld
}

/// Takes pieces out of the texts they were found in.
pub(crate) fn remove(told: &mut [ParsedLayer], pieces: &[LoosenedKey]) {
    for piece in pieces {
        if let Some(told) = told.get_mut(piece.told) {
            take(&mut told.node, &piece.way);
        }
    }
}

/// Lays the user's denies over the rules a project came with: what the user denies stays denied,
/// whatever anybody consents to. So do the tools that are for primary agents alone.
pub(crate) fn keep_denies(settings: &mut Settings, told: &[ParsedLayer], alone: &Node, home: Option<&Path>) {
    let project = |way: &[&str]| told.iter().filter(|told| told.origin.project).any(|told| told.node.at(way).is_some());
    let own = |way: &[&str]| alone.at(way).map(|node| rules::rules(node, home)).unwrap_or_default();
    if project(&["permission"]) {
        settings.permission = std::mem::take(&mut settings.permission).then(&rules::denies_kept(&own(&["permission"])));
    }
    if let Some(NodeValue::List(tools)) = alone.at(&["experimental", "primary_tools"]).map(|node| &node.value) {
        let ours = &mut settings.experimental.primary_tools;
        for tool in tools.iter().filter_map(Node::as_text) {
            if !ours.iter().any(|own| own == tool) {
                ours.push(tool.to_owned());
            }
        }
    }
    for agent in &mut settings.agents {
        let way = ["agent", &agent.name, "permission"];
        if project(&way) {
            agent.rules = std::mem::take(&mut agent.rules).then(&rules::denies_kept(&own(&way)));
        }
    }
}

fn take(node: &mut Node, way: &[String]) {
    match way {
        [] => {}
        [key] => while node.take(key).is_some() {},
        [key, rest @ ..] => {
            let Some(entries) = node.entries_mut() else { return };
            for entry in entries.iter_mut().filter(|entry| entry.key == *key) {
                take(&mut entry.node, rest);
            }
            // What held nothing else says nothing by itself.
            let empty = |entry: &MapEntry| matches!(&entry.node.value, NodeValue::Map(inner) if inner.is_empty());
            if rest.len() == 1 {
                entries.retain(|entry| entry.key != *key || !empty(entry));
            }
        }
    }
}

/// What of a text decides what is allowed.
fn part(told: &ParsedLayer) -> Node {
    let mut node = told.node.clone();
    let keep: &[&str] = if told.origin.project {
        &["permission", "agent", "default_agent", "command", "approvals"]
    } else {
        &["permission", "agent", "default_agent", "command", "references", "approvals"]
    };
    let only = |node: &mut Node, keep: &[&str]| {
        if let Some(entries) = node.entries_mut() {
            entries.retain(|entry| keep.contains(&entry.key.as_str()));
        }
    };
    only(&mut node, keep);
    for (key, keep) in [("agent", &["permission", "mode", "hidden", "disable", "name"][..]), ("command", &["agent"])] {
        let inner = node.entries_mut().and_then(|all| all.iter_mut().find(|entry| entry.key == key));
        for entry in inner.and_then(|entry| entry.node.entries_mut()).into_iter().flatten() {
            only(&mut entry.node, keep);
        }
    }
    node
}

/// Everything in the project's texts that has a part in what is allowed. `alone` is what the user says.
fn pieces(told: &[ParsedLayer], alone: &Node) -> Vec<LoosenedKey> {
    let mut found = Vec::new();
    for (at, told) in told.iter().enumerate().filter(|(_, told)| told.origin.project) {
        let mut push = |way: &[&str], turn: u8, key: String, detail: String, place: &SourceLocation| {
            let way = way.iter().map(|key| (*key).to_owned()).collect();
            found.push(LoosenedKey { told: at, way, turn, key, detail, place: place.clone() });
        };
        if let Some(permission) = told.node.get("permission") {
            for (way, turn, detail, place) in rule_pieces(permission, 2) {
                let key = format!("permission.{}", way[0]);
                push(&[&["permission"], way.as_slice()].concat(), turn, key, detail, place);
            }
        }
        for agent in told.node.get("agent").map(Node::entries).unwrap_or_default() {
            let known = builtin::AGENTS.iter().any(|native| native.name == agent.key)
                || alone.at(&["agent", &agent.key]).is_some();
            if !known {
                let detail = "an agent that may do more than the one in whose place it can be used".to_owned();
                push(&["agent", &agent.key], 3, format!("agent.{}", agent.key), detail, &agent.at);
            }
            for key in ["hidden", "mode", "disable", "name"] {
                if let Some(value) = agent.node.get(key).filter(|_| known) {
                    let way = ["agent", &agent.key, key];
                    push(&way, 4, way.join("."), value.to_json().to_string(), &value.at);
                }
            }
            let permission = agent.node.get("permission");
            for (way, turn, detail, place) in permission.map(|node| rule_pieces(node, 5)).unwrap_or_default() {
                let key = format!("agent.{}.permission", agent.key);
                push(&[&["agent", &agent.key, "permission"], way.as_slice()].concat(), turn, key, detail, place);
            }
        }
        if let Some(default) = told.node.get("default_agent") {
            push(&["default_agent"], 6, "default_agent".into(), default.to_json().to_string(), &default.at);
        }
        if let Some(approvals) = told.node.get("approvals") {
            push(&["approvals"], 8, "approvals".into(), approvals.to_json().to_string(), &approvals.at);
        }
        for command in told.node.get("command").map(Node::entries).unwrap_or_default() {
            if let Some(agent) = command.node.get("agent") {
                let way = ["command", &command.key, "agent"];
                push(&way, 7, way.join("."), agent.to_json().to_string(), &agent.at);
            }
        }
    }
    found
}

/// The rules of a `permission` value: the keys that lead to each, when it is tried, what it says. A
/// deny is tried first, and what allows in the turn that is given.
fn rule_pieces(permission: &Node, allows: u8) -> Vec<(Vec<&str>, u8, String, &SourceLocation)> {
    let turn = |action| match action {
        Action::Deny => 0,
        Action::Ask => 1,
        Action::Allow => allows,
    };
    let mut found = Vec::new();
    for entry in permission.entries() {
        let patterns = entry.node.entries().iter().map(|pattern| (Some(pattern.key.as_str()), &pattern.node));
        for (pattern, node) in [(None, &entry.node)].into_iter().chain(patterns) {
            let Some((word, action)) = node.as_text().and_then(|word| Some((word, rules::action(word)?))) else {
                continue;
            };
            let way: Vec<&str> = [entry.key.as_str()].into_iter().chain(pattern).collect();
            let detail = format!("{} {}: {word}", entry.key, pattern.unwrap_or("*"));
            found.push((way, turn(action), detail, &node.at));
        }
    }
    found
}

struct AccessState {
    roster: Roster,
    /// Agents that are switched off.
    off: Vec<String>,
    /// Which agent answers which command.
    commands: Vec<(String, Option<String>)>,
    approvals: Approvals,
}

/// What an agent is compared with, and how each of these rules is known.
struct Baseline {
    rules: Vec<Rules>,
    known: Vec<u64>,
}

struct LooseningReview<'a> {
    /// Of all texts, what decides.
    told: Vec<ParsedLayer>,
    alone: Node,
    before: AccessState,
    environment: &'a Environment,
    worktree: &'a Worktree,
    /// Makes numbers of rules that nobody can foresee.
    hasher: RandomState,
    /// Whether the rules that a number stands for allow more than those of the list.
    compared: RefCell<HashMap<(u64, Vec<u64>), bool>>,
    /// What may be done in the place of the agents there are without the project.
    reaches: RefCell<HashMap<String, Rc<Baseline>>>,
}

impl<'a> LooseningReview<'a> {
    fn new(told: Vec<ParsedLayer>, environment: &'a Environment, worktree: &'a Worktree) -> Self {
        let alone = join(told.iter().filter(|told| !told.origin.project));
        let before = state(&alone, &[], &alone, environment, worktree);
        Self {
            told,
            alone,
            before,
            environment,
            worktree,
            hasher: RandomState::new(),
            compared: RefCell::default(),
            reaches: RefCell::default(),
        }
    }

    /// Whether nothing is loosened where some pieces are left out.
    fn stands(&self, without: &[LoosenedKey]) -> bool {
        let mut told = self.told.clone();
        remove(&mut told, without);
        let tree = join(told.iter());
        let after = state(&tree, &told, &self.alone, self.environment, self.worktree);
        !self.loosened(&after)
    }

    /// Keeps as many of the pieces as do not loosen anything together with those kept before.
    /// `withheld` are all that are not kept yet, and at the end those that loosen.
    fn keep(&self, pieces: &[LoosenedKey], kept: &mut Vec<LoosenedKey>, withheld: &mut Vec<LoosenedKey>) {
        let chosen =
            |piece: &LoosenedKey| pieces.iter().any(|other| (other.told, &other.way) == (piece.told, &piece.way));
        let (ours, rest): (Vec<LoosenedKey>, Vec<LoosenedKey>) = withheld.iter().cloned().partition(chosen);
        if self.stands(&rest) {
            kept.extend(ours);
            *withheld = rest;
        } else if pieces.len() > 1 {
            let (first, second) = pieces.split_at(pieces.len() / 2);
            self.keep(first, kept, withheld);
            self.keep(second, kept, withheld);
        }
    }

    fn loosened(&self, after: &AccessState) -> bool {
        if after.approvals < self.before.approvals {
            return true;
        }
        let (before, now) = (&self.before.roster, &after.roster);
        let Some(usual) = before.get(&before.default) else { return true };
        let Some(start) = now.get(&now.default) else { return true };
        let more = |with: &Rules, than: &RosterEntry| self.laxer(with, &self.reach(than));
        let entries = || now.entries.iter();
        let same = |seat: &RosterEntry| before.get(&seat.name);
        more(&start.rules, usual)
            || entries().any(|seat| same(seat).is_some_and(|old| self.laxer(&seat.rules, &self.measure(vec![old.rules.clone()]))))
            // Switched on again.
            || entries().any(|seat| self.before.off.contains(&seat.name) && self.laxer(&seat.rules, &self.measure(Vec::new())))
            || entries().filter(|seat| seat.can_lead()).any(|seat| {
                let new = !same(seat).is_some_and(RosterEntry::can_lead);
                let renamed = same(seat).is_none_or(|old| old.label != seat.label);
                new && more(&seat.rules, usual)
                    || renamed && before.modes().any(|old| alike(seat, old) && more(&seat.rules, old))
            })
            || before.modes().any(|old| !now.get(&old.name).is_some_and(RosterEntry::is_mode) && more(&start.rules, old))
            || entries().filter(|seat| seat.is_subagent() && !same(seat).is_some_and(RosterEntry::is_subagent)).any(|seat| {
                let under = |parent: &RosterEntry| derive(&seat.rules, &parent.rules, &Rules::default());
                before.modes().any(|parent| more(&under(parent), parent))
            })
            || after.commands.iter().any(|(name, agent)| {
                let earlier = self.before.commands.iter().find(|(old, _)| old == name);
                let earlier = earlier.and_then(|(_, agent)| before.get(agent.as_deref()?)).unwrap_or(usual);
                let agent = agent.as_deref().and_then(|agent| now.get(agent));
                agent.or(Some(start)).is_some_and(|agent| more(&agent.rules, earlier))
            })
    }

    /// What another agent may do in the place of one.
    fn reach(&self, seat: &RosterEntry) -> Rc<Baseline> {
        let known = self.reaches.borrow().get(&seat.name).cloned();
        known.unwrap_or_else(|| {
            let found = Rc::new(self.measure(reach(&seat.rules, self.before.roster.subagents(), self.environment)));
            self.reaches.borrow_mut().insert(seat.name.clone(), found.clone());
            found
        })
    }

    fn measure(&self, rules: Vec<Rules>) -> Baseline {
        let known = rules.iter().map(|rules| self.number(rules)).collect();
        Baseline { rules, known }
    }

    /// A number for what rules say, wherever they were written.
    fn number(&self, rules: &Rules) -> u64 {
        let said = |rule: &Rule| {
            (self.hasher.hash_one((&rule.permission, &rule.pattern)), rule.action, rule.source == BUILT_IN)
        };
        self.hasher.hash_one(rules.iter().map(said).collect::<Vec<_>>())
    }

    fn laxer(&self, with: &Rules, than: &Baseline) -> bool {
        let own = self.number(with);
        if than.known.contains(&own) {
            return false;
        }
        let key = (own, than.known.clone());
        let known = self.compared.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let found = laxer(with, &than.rules.iter().collect::<Vec<_>>(), Action::Allow).is_some();
            self.compared.borrow_mut().insert(key, found);
            found
        })
    }
}

/// Whether people could take an agent for another one that they know.
fn alike(new: &RosterEntry, old: &RosterEntry) -> bool {
    let names = [&old.name, &old.label].map(|name| looks(name));
    new.name != old.name
        && [&new.name, &new.label].into_iter().any(|name| names.iter().any(|other| same_looks(&looks(name), other)))
}

/// What a letter looks like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Glyph {
    Letter(char),
    /// Like some other letter, perhaps.
    Any,
    /// A sign: like a letter, perhaps, or like nothing.
    Sign,
}

/// Whether one row of letters may look like another.
fn same_looks(one: &[Glyph], other: &[Glyph]) -> bool {
    // Which beginnings of the other one the letters so far may look like.
    let skip = |reach: &mut Vec<bool>| {
        for at in 0..other.len() {
            reach[at + 1] |= reach[at] && other[at] == Glyph::Sign;
        }
    };
    let mut reach = vec![false; other.len() + 1];
    reach[0] = true;
    skip(&mut reach);
    for look in one {
        let fits = |theirs: Glyph| *look == theirs || !matches!((look, theirs), (Glyph::Letter(_), Glyph::Letter(_)));
        let mut next: Vec<bool> = reach.iter().map(|here| *here && *look == Glyph::Sign).collect();
        for at in 0..other.len() {
            next[at + 1] |= reach[at] && fits(other[at]);
        }
        skip(&mut next);
        reach = next;
    }
    reach[other.len()]
}

/// A name by its looks: case, separators and what cannot be seen left out. A letter of another alphabet
/// may look like any other, except where an alphabet has nothing in common with the Latin one; an accent
/// that is written apart may be overlooked.
fn looks(name: &str) -> Vec<Glyph> {
    let seen = name
        .chars()
        .filter(|c| !base::text::is_hidden(*c) && (c.is_alphanumeric() || !c.is_ascii() || "|!".contains(*c)));
    let look = |c: char| match c.to_ascii_lowercase() {
        'i' | 'l' | '1' | '|' | '!' => Glyph::Letter('l'),
        'o' | '0' => Glyph::Letter('o'),
        c if c.is_ascii() || ('\u{2e80}'..'\u{a000}').contains(&c) || ('\u{ac00}'..'\u{d7b0}').contains(&c) => {
            Glyph::Letter(c)
        }
        c if c.is_alphanumeric() => Glyph::Any,
        _ => Glyph::Sign,
    };
    seen.map(look).collect()
}

fn state(
    tree: &Node,
    told: &[ParsedLayer],
    alone: &Node,
    environment: &Environment,
    worktree: &Worktree,
) -> AccessState {
    let mut settings = resolve::settings(tree, environment, &mut Vec::new());
    keep_denies(&mut settings, told, alone, environment.home.as_deref());
    let agent =
        |entry: &MapEntry| (entry.key.clone(), entry.node.get("agent").and_then(Node::as_text).map(str::to_owned));
    AccessState {
        off: settings.agents.iter().filter(|entry| entry.disable).map(|entry| entry.name.clone()).collect(),
        commands: tree.get("command").map(Node::entries).unwrap_or_default().iter().map(agent).collect(),
        approvals: settings.approvals,
        roster: Roster::new(&settings, environment, worktree, &[]),
    }
}

#[cfg(test)]
mod tests;
