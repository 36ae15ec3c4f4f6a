//! Detects the keys of a project's settings that loosen permissions: rules, agents and choices that
//! allow calls which the user's own settings or the defaults stop. Rules are not compared as text:
//! agents are built with the project's settings and without them, and evaluated; see
//! [`permission::find_more_permissive`].
//!
//! An agent is compared with its own permissions without the project. If the user can choose it
//! only because of the project, it is compared with the agent that a session would start with. If
//! it resembles another agent, it is compared with that one. If other agents can start it only
//! because of the project, it is compared with their permissions. The agents that replace one which
//! can no longer be chosen, that start a session and that answer commands are compared with the
//! earlier ones.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::rc::Rc;

use super::agent_rules::{AgentPermissions, AgentRules, reachable_rules};
use super::layers::ParsedLayer;
use super::node::{MapEntry, Node, NodeValue, SourceLocation};
use super::settings::Settings;
use super::{builtin, join, resolve, rules};
use base::approvals::Approvals;
use base::environment::Environment;
use base::worktree::Worktree;
use permission::rule::{BUILT_IN, derive};
use permission::{Action, Rule, Rules, find_more_permissive};

/// A key of a project's settings that affects permissions.
#[derive(Debug, Clone)]
pub(crate) struct LoosenedKey {
    /// The index of its layer.
    layer: usize,
    /// The keys that lead to it.
    path: Vec<String>,
    /// The order in which it is tried: tightening keys first, so that they are accepted while
    /// loosening ones are not.
    order: u8,
    /// The displayed key, such as `permission.bash` or `agent.plan.disable`.
    pub(crate) key: String,
    pub(crate) detail: String,
    pub(crate) location: SourceLocation,
}

/// Returns the keys of project layers that loosen something; without them the rest does not.
/// `layers` are all layers, the user's included, lowest first.
pub(crate) fn loosening_keys(
    layers: &[ParsedLayer],
    environment: &Environment,
    worktree: &Worktree,
) -> Vec<LoosenedKey> {
    let alone = join(layers.iter().filter(|layer| !layer.origin.project));
    let mut candidates = candidates(layers, &alone);
    if candidates.is_empty() {
        return Vec::new();
    }
    let relevant: Vec<ParsedLayer> = layers
        .iter()
        .map(|layer| ParsedLayer {
            origin: layer.origin.clone(),
            node: permission_settings(layer),
        })
        .collect();
    let review = LooseningReview::new(relevant, environment, worktree);
    if review.is_harmless_without(&[]) {
        return Vec::new();
    }
    candidates.sort_by_key(|candidate| candidate.order);
    let mut withheld = candidates.clone();
    let mut accepted = Vec::new();
    review.accept(&candidates, &mut accepted, &mut withheld);
    // A removed agent takes its rules with it.
    let removed: Vec<(usize, Vec<String>)> = withheld
        .iter()
        .map(|candidate| (candidate.layer, candidate.path.clone()))
        .collect();
    withheld.retain(|candidate| {
        !removed.iter().any(|(layer, path)| {
            *layer == candidate.layer
                && path.len() < candidate.path.len()
                && candidate.path.starts_with(path)
        })
    });
    withheld.sort_by_key(|candidate| {
        (
            candidate.layer,
            candidate.location.line,
            candidate.location.column,
        )
    });
    withheld
}

/// Removes keys from the layers that contain them.
pub(crate) fn remove(layers: &mut [ParsedLayer], keys: &[LoosenedKey]) {
    for key in keys {
        if let Some(layer) = layers.get_mut(key.layer) {
            take(&mut layer.node, &key.path);
        }
    }
}

/// Appends the user's denies to the project's rules: a denied call stays denied whatever the user
/// has consented to. Tools for primary agents only stay limited to them, too.
pub(crate) fn keep_denies(
    settings: &mut Settings,
    layers: &[ParsedLayer],
    alone: &Node,
    home: Option<&Path>,
) {
    let is_projects = |path: &[&str]| {
        layers
            .iter()
            .filter(|layer| layer.origin.project)
            .any(|layer| layer.node.at(path).is_some())
    };
    let user_rules = |path: &[&str]| {
        alone
            .at(path)
            .map(|node| rules::rules(node, home))
            .unwrap_or_default()
    };
    if is_projects(&["permission"]) {
        let denies = rules::user_denies(&user_rules(&["permission"]));
        settings.permission = std::mem::take(&mut settings.permission).then(&denies);
    }
    if let Some(NodeValue::List(tools)) = alone
        .at(&["experimental", "primary_tools"])
        .map(|node| &node.value)
    {
        let primary_tools = &mut settings.experimental.primary_tools;
        for tool in tools.iter().filter_map(Node::as_text) {
            if !primary_tools.iter().any(|present| present == tool) {
                primary_tools.push(tool.to_owned());
            }
        }
    }
    for agent in &mut settings.agents {
        let path = ["agent", &agent.name, "permission"];
        if is_projects(&path) {
            agent.rules =
                std::mem::take(&mut agent.rules).then(&rules::user_denies(&user_rules(&path)));
        }
    }
}

fn take(node: &mut Node, path: &[String]) {
    match path {
        [] => {}
        [key] => while node.take(key).is_some() {},
        [key, rest @ ..] => {
            let Some(entries) = node.entries_mut() else {
                return;
            };
            for entry in entries.iter_mut().filter(|entry| entry.key == *key) {
                take(&mut entry.node, rest);
            }
            // An object that has become empty has no meaning.
            let is_empty = |entry: &MapEntry| matches!(&entry.node.value, NodeValue::Map(inner) if inner.is_empty());
            if rest.len() == 1 {
                entries.retain(|entry| entry.key != *key || !is_empty(entry));
            }
        }
    }
}

/// Returns the settings of a layer that decide about permissions.
fn permission_settings(layer: &ParsedLayer) -> Node {
    let mut node = layer.node.clone();
    let keys: &[&str] = if layer.origin.project {
        &[
            "permission",
            "agent",
            "default_agent",
            "command",
            "approvals",
        ]
    } else {
        &[
            "permission",
            "agent",
            "default_agent",
            "command",
            "references",
            "approvals",
        ]
    };
    retain_keys(&mut node, keys);
    for (key, keys) in [
        (
            "agent",
            &["permission", "mode", "hidden", "disable", "name"][..],
        ),
        ("command", &["agent"]),
    ] {
        let inner = node
            .entries_mut()
            .and_then(|all| all.iter_mut().find(|entry| entry.key == key));
        for entry in inner
            .and_then(|entry| entry.node.entries_mut())
            .into_iter()
            .flatten()
        {
            retain_keys(&mut entry.node, keys);
        }
    }
    node
}

fn retain_keys(node: &mut Node, keys: &[&str]) {
    if let Some(entries) = node.entries_mut() {
        entries.retain(|entry| keys.contains(&entry.key.as_str()));
    }
}

/// Returns all keys of the project's layers that affect permissions. `alone` are the user's
/// settings.
fn candidates(layers: &[ParsedLayer], alone: &Node) -> Vec<LoosenedKey> {
    let mut found = Vec::new();
    for (index, layer) in layers
        .iter()
        .enumerate()
        .filter(|(_, layer)| layer.origin.project)
    {
        let mut push =
            |path: &[&str], order: u8, key: String, detail: String, location: &SourceLocation| {
                let path = path.iter().map(|key| (*key).to_owned()).collect();
                found.push(LoosenedKey {
                    layer: index,
                    path,
                    order,
                    key,
                    detail,
                    location: location.clone(),
                });
            };
        if let Some(permission) = layer.node.get("permission") {
            for (path, order, detail, location) in rule_candidates(permission, 2) {
                let key = format!("permission.{}", path[0]);
                push(
                    &[&["permission"], path.as_slice()].concat(),
                    order,
                    key,
                    detail,
                    location,
                );
            }
        }
        for agent in layer
            .node
            .get("agent")
            .map(Node::entries)
            .unwrap_or_default()
        {
            let known = builtin::AGENTS
                .iter()
                .any(|native| native.name == agent.key)
                || alone.at(&["agent", &agent.key]).is_some();
            if !known {
                let detail = "an agent that may do more than the one in whose place it can be used"
                    .to_owned();
                push(
                    &["agent", &agent.key],
                    3,
                    format!("agent.{}", agent.key),
                    detail,
                    &agent.at,
                );
            }
            for key in ["hidden", "mode", "disable", "name"] {
                if known && let Some(value) = agent.node.get(key) {
                    let path = ["agent", &agent.key, key];
                    push(
                        &path,
                        4,
                        path.join("."),
                        value.to_json().to_string(),
                        &value.at,
                    );
                }
            }
            let permission = agent.node.get("permission");
            for (path, order, detail, location) in permission
                .map(|node| rule_candidates(node, 5))
                .unwrap_or_default()
            {
                let key = format!("agent.{}.permission", agent.key);
                push(
                    &[&["agent", &agent.key, "permission"], path.as_slice()].concat(),
                    order,
                    key,
                    detail,
                    location,
                );
            }
        }
        if let Some(default) = layer.node.get("default_agent") {
            push(
                &["default_agent"],
                6,
                "default_agent".into(),
                default.to_json().to_string(),
                &default.at,
            );
        }
        if let Some(approvals) = layer.node.get("approvals") {
            push(
                &["approvals"],
                8,
                "approvals".into(),
                approvals.to_json().to_string(),
                &approvals.at,
            );
        }
        for command in layer
            .node
            .get("command")
            .map(Node::entries)
            .unwrap_or_default()
        {
            if let Some(agent) = command.node.get("agent") {
                let path = ["command", &command.key, "agent"];
                push(
                    &path,
                    7,
                    path.join("."),
                    agent.to_json().to_string(),
                    &agent.at,
                );
            }
        }
    }
    found
}

/// Returns the rules of a `permission` value: the keys that lead to each, the order in which it is
/// tried, its text and location. Denies are tried first, and allows at `allow_order`.
fn rule_candidates(
    permission: &Node,
    allow_order: u8,
) -> Vec<(Vec<&str>, u8, String, &SourceLocation)> {
    let order = |action| match action {
        Action::Deny => 0,
        Action::Ask => 1,
        Action::Allow => allow_order,
    };
    let mut found = Vec::new();
    for entry in permission.entries() {
        let patterns = entry
            .node
            .entries()
            .iter()
            .map(|pattern| (Some(pattern.key.as_str()), &pattern.node));
        for (pattern, node) in [(None, &entry.node)].into_iter().chain(patterns) {
            let Some((word, action)) = node
                .as_text()
                .and_then(|word| Some((word, rules::action(word)?)))
            else {
                continue;
            };
            let path: Vec<&str> = [entry.key.as_str()].into_iter().chain(pattern).collect();
            let detail = format!("{} {}: {word}", entry.key, pattern.unwrap_or("*"));
            found.push((path, order(action), detail, &node.at));
        }
    }
    found
}

struct AccessState {
    agent_rules: AgentRules,
    /// Names of disabled agents.
    off: Vec<String>,
    /// Each command, with the agent that answers it.
    commands: Vec<(String, Option<String>)>,
    approvals: Approvals,
}

/// The rules that an agent is compared with, and their fingerprints.
struct Baseline {
    rules: Vec<Rules>,
    fingerprints: Vec<u64>,
}

struct LooseningReview<'a> {
    /// All layers, reduced to the settings that decide about permissions.
    layers: Vec<ParsedLayer>,
    alone: Node,
    before: AccessState,
    environment: &'a Environment,
    worktree: &'a Worktree,
    /// Randomly seeded, so that a project cannot construct colliding rules.
    hasher: RandomState,
    /// Results of comparisons: whether rules of a fingerprint allow more than a baseline.
    compared: RefCell<HashMap<(u64, Vec<u64>), bool>>,
    /// The permissions that other agents, without the project, have in the place of an agent, by
    /// its name.
    reaches: RefCell<HashMap<String, Rc<Baseline>>>,
}

impl<'a> LooseningReview<'a> {
    fn new(layers: Vec<ParsedLayer>, environment: &'a Environment, worktree: &'a Worktree) -> Self {
        let alone = join(layers.iter().filter(|layer| !layer.origin.project));
        let before = access_state(&alone, &[], &alone, environment, worktree);
        Self {
            layers,
            alone,
            before,
            environment,
            worktree,
            hasher: RandomState::new(),
            compared: RefCell::default(),
            reaches: RefCell::default(),
        }
    }

    /// Returns whether nothing is loosened if the given keys are left out.
    fn is_harmless_without(&self, keys: &[LoosenedKey]) -> bool {
        let mut layers = self.layers.clone();
        remove(&mut layers, keys);
        let tree = join(layers.iter());
        let after = access_state(&tree, &layers, &self.alone, self.environment, self.worktree);
        !self.is_loosened(&after)
    }

    /// Accepts as many of the candidates as loosen nothing together with those accepted before.
    /// `withheld` are all that are not accepted yet, and at the end those that loosen.
    fn accept(
        &self,
        candidates: &[LoosenedKey],
        accepted: &mut Vec<LoosenedKey>,
        withheld: &mut Vec<LoosenedKey>,
    ) {
        let is_candidate = |key: &LoosenedKey| {
            candidates
                .iter()
                .any(|other| other.layer == key.layer && other.path == key.path)
        };
        let (tried, rest): (Vec<LoosenedKey>, Vec<LoosenedKey>) =
            withheld.iter().cloned().partition(is_candidate);
        if self.is_harmless_without(&rest) {
            accepted.extend(tried);
            *withheld = rest;
        } else if candidates.len() > 1 {
            let (first, second) = candidates.split_at(candidates.len() / 2);
            self.accept(first, accepted, withheld);
            self.accept(second, accepted, withheld);
        }
    }

    fn is_loosened(&self, after: &AccessState) -> bool {
        if after.approvals < self.before.approvals {
            return true;
        }
        let before = &self.before.agent_rules;
        let now = &after.agent_rules;
        let Some(default) = before.get(&before.default) else {
            return true;
        };
        let Some(start) = now.get(&now.default) else {
            return true;
        };
        if self.exceeds(&start.rules, default) {
            return true;
        }
        if now
            .entries
            .iter()
            .any(|agent| self.is_agent_loosened(agent, default))
        {
            return true;
        }
        let is_replaced =
            |old: &AgentPermissions| !now.get(&old.name).is_some_and(AgentPermissions::is_mode);
        if before
            .modes()
            .any(|old| is_replaced(old) && self.exceeds(&start.rules, old))
        {
            return true;
        }
        after.commands.iter().any(|(name, agent)| {
            let earlier = self.before.commands.iter().find(|(old, _)| old == name);
            let earlier = earlier
                .and_then(|(_, agent)| before.get(agent.as_deref()?))
                .unwrap_or(default);
            let agent = agent
                .as_deref()
                .and_then(|agent| now.get(agent))
                .unwrap_or(start);
            self.exceeds(&agent.rules, earlier)
        })
    }

    /// Returns whether an agent may do more than it could without the project, or than the agents
    /// that it can be used in place of. `default` is the agent that a session starts with without
    /// the project.
    fn is_agent_loosened(&self, agent: &AgentPermissions, default: &AgentPermissions) -> bool {
        let before = &self.before.agent_rules;
        let earlier = before.get(&agent.name);
        if let Some(earlier) = earlier
            && self.is_more_permissive(&agent.rules, &self.baseline(vec![earlier.rules.clone()]))
        {
            return true;
        }
        let is_reenabled = self.before.off.contains(&agent.name);
        if is_reenabled && self.is_more_permissive(&agent.rules, &self.baseline(Vec::new())) {
            return true;
        }
        if agent.can_lead() {
            let can_newly_lead = !earlier.is_some_and(AgentPermissions::can_lead);
            if can_newly_lead && self.exceeds(&agent.rules, default) {
                return true;
            }
            let is_renamed = earlier.is_none_or(|earlier| earlier.label != agent.label);
            if is_renamed
                && before
                    .modes()
                    .any(|old| resembles(agent, old) && self.exceeds(&agent.rules, old))
            {
                return true;
            }
        }
        let is_new_subagent =
            agent.is_subagent() && !earlier.is_some_and(AgentPermissions::is_subagent);
        is_new_subagent
            && before.modes().any(|parent| {
                let derived = derive(&agent.rules, &parent.rules, &Rules::default());
                self.exceeds(&derived, parent)
            })
    }

    /// Returns whether rules allow more than an agent can do without the project, itself or by its
    /// subagents.
    fn exceeds(&self, rules: &Rules, agent: &AgentPermissions) -> bool {
        self.is_more_permissive(rules, &self.reachable_baseline(agent))
    }

    /// Returns the rules that an agent can make use of without the project, by itself or by its
    /// subagents.
    fn reachable_baseline(&self, agent: &AgentPermissions) -> Rc<Baseline> {
        let known = self.reaches.borrow().get(&agent.name).cloned();
        known.unwrap_or_else(|| {
            let found = Rc::new(self.baseline(reachable_rules(
                &agent.rules,
                self.before.agent_rules.subagents(),
                self.environment,
            )));
            self.reaches
                .borrow_mut()
                .insert(agent.name.clone(), found.clone());
            found
        })
    }

    fn baseline(&self, rules: Vec<Rules>) -> Baseline {
        let fingerprints = rules.iter().map(|rules| self.fingerprint(rules)).collect();
        Baseline {
            rules,
            fingerprints,
        }
    }

    /// Returns a hash of the meaning of rules, independent of their sources.
    fn fingerprint(&self, rules: &Rules) -> u64 {
        let meaning = |rule: &Rule| {
            (
                self.hasher.hash_one((&rule.permission, &rule.pattern)),
                rule.action,
                rule.source == BUILT_IN,
            )
        };
        self.hasher
            .hash_one(rules.iter().map(meaning).collect::<Vec<_>>())
    }

    fn is_more_permissive(&self, rules: &Rules, than: &Baseline) -> bool {
        let own = self.fingerprint(rules);
        if than.fingerprints.contains(&own) {
            return false;
        }
        let key = (own, than.fingerprints.clone());
        let known = self.compared.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let found =
                find_more_permissive(rules, &than.rules.iter().collect::<Vec<_>>(), Action::Allow)
                    .is_some();
            self.compared.borrow_mut().insert(key, found);
            found
        })
    }
}

/// Returns whether users could mistake an agent for another one.
fn resembles(new: &AgentPermissions, old: &AgentPermissions) -> bool {
    let old_names = [&old.name, &old.label].map(|name| glyphs(name));
    new.name != old.name
        && [&new.name, &new.label].into_iter().any(|name| {
            let new_name = glyphs(name);
            old_names
                .iter()
                .any(|old_name| glyphs_may_match(&new_name, old_name))
        })
}

/// The appearance of a letter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Glyph {
    Letter(char),
    /// Possibly like any other letter.
    Any,
    /// A sign: possibly like a letter, or overlooked.
    Sign,
}

/// Returns whether one sequence of letters may look like another.
fn glyphs_may_match(one: &[Glyph], other: &[Glyph]) -> bool {
    // For each prefix of `other`: whether the letters so far may look like it.
    let mut reach = vec![false; other.len() + 1];
    reach[0] = true;
    skip_signs(&mut reach, other);
    for glyph in one {
        let fits = |theirs: Glyph| {
            *glyph == theirs || !matches!((glyph, theirs), (Glyph::Letter(_), Glyph::Letter(_)))
        };
        let mut next: Vec<bool> = reach
            .iter()
            .map(|here| *here && *glyph == Glyph::Sign)
            .collect();
        for at in 0..other.len() {
            next[at + 1] |= reach[at] && fits(other[at]);
        }
        skip_signs(&mut next, other);
        reach = next;
    }
    reach[other.len()]
}

fn skip_signs(reach: &mut [bool], other: &[Glyph]) {
    for at in 0..other.len() {
        reach[at + 1] |= reach[at] && other[at] == Glyph::Sign;
    }
}

/// Returns the appearance of a name, without case, separators and invisible characters. A letter of
/// another alphabet may look like any other, unless its alphabet has nothing in common with the
/// Latin one. A combining accent may be overlooked.
fn glyphs(name: &str) -> Vec<Glyph> {
    let visible = name.chars().filter(|c| {
        !base::text::is_hidden(*c) && (c.is_alphanumeric() || !c.is_ascii() || "|!".contains(*c))
    });
    let glyph = |c: char| match c.to_ascii_lowercase() {
        'i' | 'l' | '1' | '|' | '!' => Glyph::Letter('l'),
        'o' | '0' => Glyph::Letter('o'),
        c if c.is_ascii()
            || ('\u{2e80}'..'\u{a000}').contains(&c)
            || ('\u{ac00}'..'\u{d7b0}').contains(&c) =>
        {
            Glyph::Letter(c)
        }
        c if c.is_alphanumeric() => Glyph::Any,
        _ => Glyph::Sign,
    };
    visible.map(glyph).collect()
}

fn access_state(
    tree: &Node,
    layers: &[ParsedLayer],
    alone: &Node,
    environment: &Environment,
    worktree: &Worktree,
) -> AccessState {
    let mut settings = resolve::settings(tree, environment, &mut Vec::new());
    keep_denies(&mut settings, layers, alone, environment.home.as_deref());
    let command_agent = |entry: &MapEntry| {
        (
            entry.key.clone(),
            entry
                .node
                .get("agent")
                .and_then(Node::as_text)
                .map(str::to_owned),
        )
    };
    AccessState {
        off: settings
            .agents
            .iter()
            .filter(|entry| entry.disable)
            .map(|entry| entry.name.clone())
            .collect(),
        commands: tree
            .get("command")
            .map(Node::entries)
            .unwrap_or_default()
            .iter()
            .map(command_agent)
            .collect(),
        approvals: settings.general.approvals,
        agent_rules: AgentRules::new(&settings, environment, worktree, &[]),
    }
}

#[cfg(test)]
mod tests;
