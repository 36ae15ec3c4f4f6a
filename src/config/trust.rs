//! What a project's settings may do only once the user trusts that project: whatever starts a
//! program, sends something elsewhere, reads outside the project or loosens a rule. Here it is
//! found, named and, without trust, taken out; asking is done in the editor.
//!
//! A decision belongs to a project's path and to a digest of exactly these things, so a change of
//! any of them asks again and a change of anything else does not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::disk::Use;
use super::layers::Told;
use super::node::{Node, Place, Value};
use super::rules;
use crate::environment::{Environment, Timestamp, private_dir};
use crate::permission::{Action, Rules};
use crate::worktree::Worktree;

/// Why something needs trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A program is started as an MCP server, or one elsewhere is called.
    Mcp,
    /// A formatter runs after edits.
    Formatter,
    /// A language server is started.
    LanguageServer,
    /// The shell that runs every command.
    Shell,
    /// A slash command runs a command line before it is sent.
    Command,
    /// A rule allows what would otherwise be asked or denied.
    Permission,
    /// Requests, with your key, go to an address the project names.
    Provider,
    /// A variable or a file from outside the project is read into the settings.
    Reads,
    /// Commands get more room than the user gives them.
    Sandbox,
    /// Instructions or skills are fetched from an address, or read from outside the project.
    Fetches,
}

impl Kind {
    /// For people: what it is, in the singular.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "MCP server",
            Self::Formatter => "formatter",
            Self::LanguageServer => "language server",
            Self::Shell => "shell",
            Self::Command => "command with a shell insert",
            Self::Permission => "looser rule",
            Self::Provider => "provider address or key",
            Self::Reads => "value from outside the project",
            Self::Sandbox => "wider sandbox",
            Self::Fetches => "text from elsewhere",
        }
    }
}

/// One thing that needs trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Why.
    pub kind: Kind,
    /// Its key: `mcp.db`, `permission.bash`.
    pub key: String,
    /// Exactly what would happen: the whole command line, the address, the rule.
    pub detail: String,
    /// Where it is written.
    pub place: Place,
    /// The project's own files that the command line names.
    pub(crate) named: Named,
}

/// Files of the project: which, and a digest of what is in them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Named {
    pub(crate) files: Vec<PathBuf>,
    content: String,
}

impl std::fmt::Display for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {} ({})", self.kind.as_str(), self.key, self.detail, self.place.short())
    }
}

/// What a project asks for, and what the user said to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Review {
    /// Everything that needs trust, in the order it was found.
    pub items: Vec<Item>,
    /// Stands for all of it.
    pub digest: String,
    /// What the user said.
    pub decision: Decision,
}

/// What the user said about a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// There is nothing to decide.
    #[default]
    Nothing,
    /// Not asked yet, or it changed since.
    Unasked,
    /// Yes.
    Trusted,
    /// No: the session works, without these things.
    Refused,
}

impl Review {
    /// Whether these things are left out.
    pub fn is_withheld(&self) -> bool {
        matches!(self.decision, Decision::Unasked | Decision::Refused)
    }

    /// One sentence for the first turn: how many of what is not active. None if nothing is.
    pub fn notice(&self) -> Option<String> {
        if !self.is_withheld() || self.items.is_empty() {
            return None;
        }
        let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
        for item in &self.items {
            *kinds.entry(item.kind).or_default() += 1;
        }
        let kinds: Vec<String> = kinds
            .into_iter()
            .map(|(kind, n)| if n == 1 { format!("1 {}", kind.as_str()) } else { format!("{n} {}s", kind.as_str()) })
            .collect();
        Some(format!(
            "This project is not trusted, so this is not active: {}. `adjutant trust` shows it and turns it on.",
            kinds.join(", ")
        ))
    }

    /// The whole list, a line each, for the question.
    pub fn list(&self) -> String {
        self.items.iter().map(|item| format!("- {}\n", crate::text::escaped(&item.to_string()))).collect()
    }
}

/// The keys for which the built-in rules do not simply allow; a project that allows one of these
/// loosens something even where the user has no rules.
pub const ASKED_BY_DEFAULT: [&str; 7] =
    ["*", "external_directory", "doom_loop", "read", "question", "plan_enter", "plan_exit"];

/// The built-in agents that are restricted by more than the general rules.
pub const RESTRICTED: [&str; 7] = ["plan", "general", "explore", "scout", "compaction", "title", "summary"];

/// Finds everything in project layers that needs trust.
pub(crate) fn review(told: &[Told], uses: &[Use], user: &Rules, worktree: &Worktree, home: Option<&Path>) -> Vec<Item> {
    let mut found = Vec::new();
    for told in told.iter().filter(|told| told.origin.project) {
        needs(&told.node, user, worktree, home, &mut |item| found.push(item));
    }
    for used in uses {
        found.push(Item {
            kind: Kind::Reads,
            key: used.key.clone(),
            detail: used.what.clone(),
            place: used.at.clone(),
            named: Named::default(),
        });
    }
    found
}

fn needs(node: &Node, user: &Rules, worktree: &Worktree, home: Option<&Path>, found: &mut dyn FnMut(Item)) {
    let mut push = |kind: Kind, key: String, detail: String, place: &Place, named: Named| {
        found(Item { kind, key, detail, place: place.clone(), named });
    };
    for entry in node.get("mcp").map(Node::entries).unwrap_or_default() {
        if !is_only_off(&entry.node) {
            let command = command_line(&entry.node, "command");
            let address = entry.node.get("url").and_then(Node::as_text).map(str::to_owned);
            let detail = command.or(address).unwrap_or_else(|| "is switched on".to_owned());
            let named = named_files(&entry.node, "command", worktree);
            push(Kind::Mcp, format!("mcp.{}", entry.key), described(detail, &entry.node), &entry.at, named);
        }
    }
    for (key, kind) in [("formatter", Kind::Formatter), ("lsp", Kind::LanguageServer)] {
        let Some(tools) = node.get(key) else { continue };
        if tools.as_bool() == Some(true) {
            push(kind, key.into(), "the usual ones that are installed".into(), &tools.at, Named::default());
        }
        for entry in tools.entries() {
            if entry.node.get("disabled").and_then(Node::as_bool) != Some(true) {
                let detail = command_line(&entry.node, "command").unwrap_or_else(|| "is switched on".to_owned());
                let named = named_files(&entry.node, "command", worktree);
                push(kind, format!("{key}.{}", entry.key), described(detail, &entry.node), &entry.at, named);
            }
        }
    }
    if let Some(shell) = node.get("shell") {
        push(Kind::Shell, "shell".into(), shell.as_text().unwrap_or_default().into(), &shell.at, Named::default());
    }
    if let Some(sandbox) = node.get("sandbox").filter(|sandbox| widens(sandbox)) {
        push(Kind::Sandbox, "sandbox".into(), sandbox.to_json().to_string(), &sandbox.at, Named::default());
    }
    if let Some(webfetch) = node.get("webfetch") {
        let detail = webfetch.get("private").map(|private| private.to_json().to_string()).unwrap_or_default();
        push(Kind::Permission, "webfetch.private".into(), detail, &webfetch.at, Named::default());
    }
    for entry in node.get("command").map(Node::entries).unwrap_or_default() {
        let template = entry.node.get("template").and_then(Node::as_text).unwrap_or_default();
        for insert in shell_inserts(template) {
            push(Kind::Command, format!("command.{}", entry.key), insert.to_owned(), &entry.at, Named::default());
        }
    }
    for rule in node.get("permission").map(|node| rules::rules(node, home)).unwrap_or_default().0 {
        if loosens(&rule.permission, rule.action, user) {
            let detail = format!("{} {}: allow", rule.permission, rule.pattern);
            let at = node.get("permission").map_or(&node.at, |node| &node.at);
            push(Kind::Permission, format!("permission.{}", rule.permission), detail, at, Named::default());
        }
    }
    for agent in node.get("agent").map(Node::entries).unwrap_or_default() {
        let Some(permission) = agent.node.get("permission") else { continue };
        for rule in rules::rules(permission, home).0 {
            let restricted = RESTRICTED.contains(&agent.key.as_str()) && rule.action != Action::Deny;
            if restricted || loosens(&rule.permission, rule.action, user) {
                let action = if rule.action == Action::Ask { "ask" } else { "allow" };
                let detail = format!("{} {}: {action}", rule.permission, rule.pattern);
                push(
                    Kind::Permission,
                    format!("agent.{}.permission", agent.key),
                    detail,
                    &permission.at,
                    Named::default(),
                );
            }
        }
    }
    for provider in node.get("provider").map(Node::entries).unwrap_or_default() {
        for way in provider_ways(&provider.node) {
            let way: Vec<&str> = way.iter().map(String::as_str).collect();
            let Some(value) = provider.node.at(&way) else { continue };
            let secret = matches!(way.last(), Some(&"apiKey"));
            let detail = if secret { "a key".to_owned() } else { value.to_json().to_string() };
            push(
                Kind::Provider,
                format!("provider.{}.{}", provider.key, way.join(".")),
                detail,
                &value.at,
                Named::default(),
            );
        }
    }
    let mut elsewhere = |way: &[&str]| {
        let Some(Value::List(list)) = node.at(way).map(|node| &node.value) else { return };
        for item in list {
            if let Some(text) = item.as_text().filter(|text| is_elsewhere(text, worktree)) {
                push(Kind::Fetches, way.join("."), text.to_owned(), &item.at, Named::default());
            }
        }
    };
    elsewhere(&["instructions"]);
    elsewhere(&["skills", "paths"]);
    elsewhere(&["skills", "urls"]);
    for entry in node.get("references").map(Node::entries).unwrap_or_default() {
        if reference_elsewhere(&entry.node, worktree) {
            let path = entry.node.as_text().or_else(|| entry.node.get("path").and_then(Node::as_text));
            let detail = path.or_else(|| entry.node.get("git").and_then(Node::as_text)).unwrap_or_default();
            push(
                Kind::Permission,
                format!("references.{}", entry.key),
                format!("read {detail}"),
                &entry.at,
                Named::default(),
            );
        }
    }
}

/// Takes out of a project layer whatever `review` names.
pub(crate) fn strip(told: &mut Told, uses: &[Use], user: &Rules, worktree: &Worktree) {
    let node = &mut told.node;
    drop_uses(node, uses);
    if let Some(mcp) = entry_mut(node, "mcp").and_then(Node::entries_mut) {
        mcp.retain(|entry| is_only_off(&entry.node));
    }
    for key in ["formatter", "lsp"] {
        let Some(tools) = entry_mut(node, key) else { continue };
        if tools.as_bool() == Some(true) {
            node.take(key);
        } else if let Some(entries) = tools.entries_mut() {
            entries.retain(|entry| entry.node.get("disabled").and_then(Node::as_bool) == Some(true));
            // An empty object would still switch the usual ones on.
            if entries.is_empty() {
                node.take(key);
            }
        }
    }
    node.take("shell");
    if node.get("sandbox").is_some_and(widens) {
        node.take("sandbox");
    }
    node.take("webfetch");
    if let Some(permission) = entry_mut(node, "permission") {
        tighten(permission, &|permission, action| !loosens(permission, action, user));
    }
    for agent in entry_mut(node, "agent").and_then(Node::entries_mut).into_iter().flatten() {
        let restricted = RESTRICTED.contains(&agent.key.as_str());
        if let Some(permission) = entry_mut(&mut agent.node, "permission") {
            let keep =
                |key: &str, action: Action| !loosens(key, action, user) && (!restricted || action == Action::Deny);
            tighten(permission, &keep);
        }
    }
    for provider in entry_mut(node, "provider").and_then(Node::entries_mut).into_iter().flatten() {
        for way in provider_ways(&provider.node) {
            if let Some((last, above)) = way.split_last() {
                let above = above.iter().try_fold(&mut provider.node, |node, key| entry_mut(node, key));
                if let Some(above) = above {
                    above.take(last);
                }
            }
        }
    }
    for way in [&["instructions"][..], &["skills", "paths"], &["skills", "urls"]] {
        let list = way.iter().try_fold(&mut *node, |node, key| entry_mut(node, key));
        if let Some(Value::List(list)) = list.map(|node| &mut node.value) {
            list.retain(|item| !item.as_text().is_some_and(|text| is_elsewhere(text, worktree)));
        }
    }
    if let Some(references) = entry_mut(node, "references").and_then(Node::entries_mut) {
        references.retain(|entry| !reference_elsewhere(&entry.node, worktree));
    }
}

/// Whether a project's sandbox could be wider than the user's, whatever that is: only one that is
/// required and gives nothing cannot.
pub(crate) fn widens(sandbox: &Node) -> bool {
    let mode = sandbox.get("mode").unwrap_or(sandbox).as_text();
    let on = |key: &str| sandbox.get(key).and_then(Node::as_bool) == Some(true);
    mode != Some("required") || on("network") || on("unattended") || sandbox.get("writable").is_some()
}

fn entry_mut<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    node.entries_mut()?.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
}

/// Removes every value that was filled in from outside the project.
fn drop_uses(node: &mut Node, uses: &[Use]) {
    let used = |node: &Node| uses.iter().any(|used| used.at == node.at);
    match &mut node.value {
        Value::Map(entries) => {
            entries.retain(|entry| !matches!(entry.node.value, Value::Text(_)) || !used(&entry.node));
            for entry in entries {
                drop_uses(&mut entry.node, uses);
            }
        }
        Value::List(nodes) => {
            nodes.retain(|node| !matches!(node.value, Value::Text(_)) || !used(node));
            for node in nodes {
                drop_uses(node, uses);
            }
        }
        _ => {}
    }
}

/// Removes rules that may not stay.
fn tighten(permission: &mut Node, keep: &dyn Fn(&str, Action) -> bool) {
    let stays = |key: &str, node: &Node| node.as_text().and_then(rules::action).is_none_or(|action| keep(key, action));
    let Some(entries) = permission.entries_mut() else { return };
    entries.retain_mut(|entry| {
        if let Some(patterns) = entry.node.entries_mut() {
            let key = entry.key.clone();
            patterns.retain(|pattern| stays(&key, &pattern.node));
            return !patterns.is_empty();
        }
        stays(&entry.key, &entry.node)
    });
}

/// Whether an allow for a permission could turn an ask or a deny of the user's or of the program's
/// into an allow.
fn loosens(permission: &str, action: Action, user: &Rules) -> bool {
    let meets = |other: &str| other == "*" || permission.contains('*') || other.contains('*') || other == permission;
    let restricted = || user.0.iter().any(|rule| rule.action != Action::Allow && meets(&rule.permission));
    action == Action::Allow && (ASKED_BY_DEFAULT.contains(&permission) || permission.contains('*') || restricted())
}

fn is_only_off(server: &Node) -> bool {
    server.get("enabled").and_then(Node::as_bool) == Some(false)
}

fn command_line(node: &Node, key: &str) -> Option<String> {
    let Some(Value::List(words)) = node.get(key).map(|node| &node.value) else { return None };
    let words: Vec<String> = words.iter().filter_map(Node::as_text).map(quoted).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// A word of a command line so that its ends are seen.
fn quoted(word: &str) -> String {
    let plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:@,+%".contains(c));
    if plain { word.to_owned() } else { format!("'{}'", word.escape_debug().to_string().replace('\'', "'\\''")) }
}

/// The detail with what else decides what runs: directory, variables, headers.
fn described(mut detail: String, node: &Node) -> String {
    for key in ["cwd", "environment", "env", "headers", "initialization"] {
        if let Some(value) = node.get(key) {
            let _ = write!(detail, " [{key} {}]", value.to_json());
        }
    }
    detail
}

/// The project's files that a command line names: what runs is in them.
fn named_files(node: &Node, key: &str, worktree: &Worktree) -> Named {
    let mut named = Named::default();
    let Some(Value::List(words)) = node.get(key).map(|node| &node.value) else { return named };
    for word in words.iter().filter_map(Node::as_text).take(32) {
        let path = worktree.root.join(word);
        let small = std::fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= 4 << 20);
        if small
            && path.starts_with(&worktree.root)
            && let Ok(bytes) = std::fs::read(&path)
        {
            named.content.push_str(&hex(&bytes));
            named.files.push(path);
        }
    }
    named
}

fn hex(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The parts of a provider that decide where requests go and with which key.
fn provider_ways(provider: &Node) -> Vec<Vec<String>> {
    let way = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<String>>();
    let mut ways: Vec<Vec<String>> = [&["api"][..], &["env"], &["login"], &["npm"]].into_iter().map(way).collect();
    for key in ["apiKey", "baseURL", "enterpriseUrl", "headers"] {
        ways.push(way(&["options", key]));
    }
    for model in provider.get("models").map(Node::entries).unwrap_or_default() {
        ways.push(way(&["models", &model.key, "provider"]));
        ways.push(way(&["models", &model.key, "headers"]));
    }
    ways.retain(|way| {
        let way: Vec<&str> = way.iter().map(String::as_str).collect();
        provider.at(&way).is_some()
    });
    ways
}

/// Whether a path or address leads out of the project.
fn is_elsewhere(text: &str, worktree: &Worktree) -> bool {
    if text.contains("://") || text.starts_with('~') {
        return true;
    }
    let path = worktree.root.join(text);
    let path = crate::worktree::normal(&path);
    !path.starts_with(&worktree.root)
        || Path::new(text).components().any(|part| part == std::path::Component::ParentDir)
}

fn reference_elsewhere(node: &Node, worktree: &Worktree) -> bool {
    let path = node.as_text().or_else(|| node.get("path").and_then(Node::as_text));
    node.get("git").is_some() || path.is_none_or(|path| is_elsewhere(path, worktree))
}

/// The command lines in `` !`…` `` of a template.
pub fn shell_inserts(template: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(start) = rest.find("!`") {
        let inner = &rest[start + 2..];
        let Some(end) = inner.find('`') else { break };
        if end > 0 {
            found.push(&inner[..end]);
        }
        rest = &inner[end + 1..];
    }
    found
}

/// A digest of everything that needs trust.
pub(crate) fn digest(items: &[Item]) -> String {
    let mut lines: Vec<String> = items
        .iter()
        .map(|item| format!("{}\u{1}{}\u{1}{}\u{1}{}", item.kind.as_str(), item.key, item.detail, item.named.content))
        .collect();
    lines.sort();
    lines.dedup();
    hex(lines.join("\u{2}").as_bytes())
}

/// What the user said about projects, in the user's own data directory.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
    entries: BTreeMap<String, Entry>,
}

/// What the user said about one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What was said.
    pub decision: Decision,
    /// About what.
    pub digest: String,
    /// When.
    pub at: Timestamp,
    /// What it was about, a line each, for listing.
    #[serde(default)]
    pub items: Vec<String>,
}

impl Store {
    /// Where it is kept.
    pub fn path(environment: &Environment) -> PathBuf {
        environment.dirs.data.join("trust.json")
    }

    /// Reads it. What cannot be read counts as nothing said.
    pub fn open(environment: &Environment) -> Self {
        let path = Self::path(environment);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        Self { entries: serde_json::from_str(&text).unwrap_or_default(), path }
    }

    /// What was said about exactly this.
    pub fn decision(&self, root: &Path, digest: &str) -> Decision {
        match self.entries.get(&key(root)) {
            Some(entry) if entry.digest == digest => entry.decision,
            _ => Decision::Unasked,
        }
    }

    /// Keeps what the user said.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn decide(&mut self, root: &Path, review: &Review, yes: bool, now: Timestamp) -> io::Result<()> {
        let entry = Entry {
            decision: if yes { Decision::Trusted } else { Decision::Refused },
            digest: review.digest.clone(),
            at: now,
            items: review.items.iter().map(ToString::to_string).collect(),
        };
        self.entries.insert(key(root), entry);
        self.write()
    }

    /// Forgets what was said about a project. Says whether there was anything.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn revoke(&mut self, root: &Path) -> io::Result<bool> {
        let was = self.entries.remove(&key(root)).is_some();
        if was {
            self.write()?;
        }
        Ok(was)
    }

    /// Everything that was said, by project.
    pub fn list(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(root, entry)| (root.as_str(), entry))
    }

    fn write(&self) -> io::Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        private_dir(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer_pretty(&mut file, &self.entries)?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }
}

fn key(root: &Path) -> String {
    std::fs::canonicalize(root).unwrap_or_else(|_| root.to_path_buf()).display().to_string()
}
