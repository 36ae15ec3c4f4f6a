//! What a project's settings may do only once the user trusts that project: whatever starts a
//! program, sends something elsewhere, reads outside the project or loosens a rule. Here it is
//! found, named and, without trust, taken out; asking is done in the editor.
//!
//! A decision belongs to a project's path and to a digest of exactly these things, so a change of
//! any of them asks again and a change of anything else does not.

mod answers;
pub(crate) mod guards;
pub(crate) mod hooks;
mod programs;
pub(crate) mod reads;
mod requests;
pub(crate) mod scripts;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::answers::{TrustEntry, TrustStore};
pub(crate) use self::programs::drop_idle;
use self::programs::{KnownPrograms, is_off};
use self::requests::{option_ways, provider_ways};
use super::covered::{self, Covered};
use super::disk::ExternalValue;
use super::formatter;
use super::insert::shell_inserts;
use super::language_server;
use super::layers::ParsedLayer;
use super::loosen::{self, LoosenedKey};
use super::node::{Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};
use base::environment::Environment;
use base::worktree::Worktree;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustKind {
    /// A program is started as an MCP server, or one elsewhere is called.
    Mcp,
    Formatter,
    LanguageServer,
    /// A command runs when something happens in a session.
    Hook,
    /// A file of JavaScript or TypeScript is loaded.
    Extension,
    /// A slash command runs a command line before it is sent.
    Command,
    /// A rule allows what would otherwise be asked or denied.
    Permission,
    /// Requests, with your key, go to an address the project names.
    Provider,
    /// A variable, a file from outside the project or one that reading asks about is read into the settings.
    Reads,
    /// Commands get more room than the user gives them.
    Sandbox,
    /// Instructions or skills are fetched from an address, or read from outside the project.
    Fetches,
}

impl TrustKind {
    /// For people: what it is, in the singular and in the plural.
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Mcp => ["MCP server", "MCP servers"],
            Self::Formatter => ["formatter", "formatters"],
            Self::LanguageServer => ["language server", "language servers"],
            Self::Hook => ["hook", "hooks"],
            Self::Extension => ["custom tool or plugin", "custom tools or plugins"],
            Self::Command => ["command with a shell insert", "commands with a shell insert"],
            Self::Permission => ["looser rule", "looser rules"],
            Self::Provider => ["provider address or key", "provider addresses or keys"],
            Self::Reads => ["value from outside the project", "values from outside the project"],
            Self::Sandbox => ["wider sandbox", "wider sandboxes"],
            Self::Fetches => ["text from elsewhere", "texts from elsewhere"],
        }
    }

    /// For people: what it is, in the singular.
    pub fn as_str(self) -> &'static str {
        self.words()[0]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustItem {
    pub kind: TrustKind,
    /// Its key: `mcp.db`, `permission.bash`.
    pub key: String,
    /// Exactly what would happen: the whole command line, the address, the rule.
    pub detail: String,
    pub place: SourceLocation,
    /// The project's own files that run.
    pub(crate) covered: Covered,
}

impl std::fmt::Display for TrustItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {} ({})", self.kind.as_str(), self.key, self.detail, self.place.short())?;
        if !self.covered.besides.is_empty() {
            write!(f, "; not covered: {}", self.covered.besides.join(", "))?;
        }
        Ok(())
    }
}

/// What a project asks for, and what the user said to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Review {
    /// Everything that needs trust, in the order it was found.
    pub items: Vec<TrustItem>,
    /// Stands for all of it.
    pub digest: String,
    pub decision: Decision,
    /// Hooks and plugins do not run in this process: it neither asks nor keeps an answer.
    pub is_pure: bool,
    /// What of `items` can refuse calls.
    pub guards: Vec<guards::TrustedGuard>,
    /// The keys of guards that held when the user last answered and are different now.
    pub changed_guards: Vec<String>,
    /// The keys of guards that held when the user last answered and are gone.
    pub gone_guards: Vec<String>,
    /// The reason the user's answers cannot be read.
    pub unread_answers: Option<Problem>,
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
    Trusted,
    /// No: the session works, without these things.
    Refused,
}

impl Review {
    /// Whether these things are left out.
    pub fn is_withheld(&self) -> bool {
        matches!(self.decision, Decision::Unasked | Decision::Refused)
    }

    /// Returns the things of one kind that are left out.
    pub fn withheld(&self, kind: TrustKind) -> impl Iterator<Item = &TrustItem> {
        let is_withheld = self.is_withheld();
        self.items.iter().filter(move |item| is_withheld && item.kind == kind)
    }

    /// Describes the state of what is left out, for a list.
    pub fn withheld_state(&self) -> &'static str {
        if self.decision == Decision::Refused { "off: this project is not trusted" } else { "waits for trust" }
    }

    /// One sentence for the first turn: how many of what is not active. None if nothing is.
    pub fn notice(&self) -> Option<String> {
        if !self.is_withheld() || self.items.is_empty() {
            return None;
        }
        let mut kinds: BTreeMap<TrustKind, usize> = BTreeMap::new();
        for item in &self.items {
            *kinds.entry(item.kind).or_default() += 1;
        }
        let kinds: Vec<String> =
            kinds.into_iter().map(|(kind, n)| format!("{n} {}", kind.words()[usize::from(n != 1)])).collect();
        Some(format!(
            "This project is not trusted, so this is not active: {}. `adjutant trust` shows it and turns it on.",
            kinds.join(", ")
        ))
    }

    /// What is declined as long as the process runs, if the user declines this.
    pub fn declined_as(&self, root: &Path) -> String {
        format!("trust {} {}", root.display(), self.digest)
    }

    /// Returns what the question says before the list: answers that cannot be read, and guards that held until now.
    pub fn introduction(&self) -> Option<String> {
        let unread = self.unread_answers.as_ref().map(|problem| {
            format!("{problem}. With your answer a new file is begun, and this one is kept beside it as *.unreadable.")
        });
        let changed = self.changed_guards.join(", ");
        let changed = (!changed.is_empty()).then(|| {
            format!("These guards held until now, and do not hold because something below has changed: {changed}.")
        });
        let gone = self.gone_guards.join(", ");
        let gone = (!gone.is_empty())
            .then(|| format!("These guards held until now, and are gone from the project or switched off: {gone}."));
        let parts: Vec<String> = [unread, changed, gone].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    /// Returns what the user is asked about: what the project's files would do.
    pub fn subject(&self, root: &Path) -> String {
        match self.items.is_empty() {
            true => format!("Nothing that is left in {} needs trust.", root.display()),
            false => format!("The files of {} would do this:", root.display()),
        }
    }

    /// One sentence where files are covered: none is followed to what it starts.
    pub fn depth(&self) -> Option<&'static str> {
        let any = self.items.iter().any(|item| !item.covered.files.is_empty());
        any.then_some(
            "A change of the files that are named here asks again. Files that these start or load are not checked.",
        )
    }

    /// The whole list, a line each, for the question.
    pub fn list(&self) -> String {
        self.items.iter().map(|item| format!("- {}\n", base::text::escaped(&item.to_string()))).collect()
    }
}

/// Finds everything in project layers that needs trust.
pub(crate) fn review(
    told: &[ParsedLayer],
    alone: &Node,
    uses: &[ExternalValue],
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
) -> Vec<TrustItem> {
    let mut found = Vec::new();
    let known = KnownPrograms::of(told);
    for told in told.iter().filter(|told| told.origin.project) {
        needs(&told.node, &known, worktree, cwd, &mut |item| found.push(item));
    }
    // What a project leaves off of the user's own takes nothing else out of the list.
    let tree = super::join(told.iter());
    found.extend(formatters_meant(&tree, environment, worktree, cwd));
    if !found.iter().any(|item| item.key == "lsp") {
        found.extend(servers_meant(alone, &tree));
    }
    for piece in loosen::loosening(told, environment, worktree) {
        let LoosenedKey { key, detail, place, .. } = piece;
        found.push(item(TrustKind::Permission, key, detail, &place));
    }
    for used in uses {
        found.push(item(TrustKind::Reads, used.key.clone(), used.what.clone(), &used.at));
    }
    found
}

/// The project's own programs that the wish for the usual formatters would run, and those that load its code.
fn formatters_meant(tree: &Node, environment: &Environment, worktree: &Worktree, cwd: &Path) -> Vec<TrustItem> {
    let Some(node) = tree.get("formatter") else { return Vec::new() };
    let Ok(written) = super::decode::decode(node) else { return Vec::new() };
    let (entries, _) = formatter::entries(Some(written));
    let item = |(name, words): (String, Vec<String>)| {
        let plain: Vec<&str> = words.iter().map(String::as_str).collect();
        TrustItem {
            kind: TrustKind::Formatter,
            key: format!("formatter.{name}"),
            detail: words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            place: node.at.clone(),
            covered: covered::covered(&plain, &starts(None, worktree, cwd), &worktree.root),
        }
    };
    formatter::of_project(&entries, cwd, &worktree.root, environment).into_iter().map(item).collect()
}

/// The user's wish for language servers, which run code of whatever project they look at: build scripts, plug-ins, the
/// compiler that lies in it.
fn servers_meant(alone: &Node, tree: &Node) -> Option<TrustItem> {
    let node = alone.get("lsp")?;
    let (entries, _) = language_server::entries(super::decode::decode(tree.get("lsp")?).ok()?);
    let own = node.entries().iter().filter_map(|entry| command_line(&entry.node, "command"));
    let detail = std::iter::once("the usual ones that are installed".to_owned()).chain(own).collect::<Vec<_>>();
    (!entries.is_empty()).then(|| TrustItem {
        kind: TrustKind::LanguageServer,
        key: "lsp".into(),
        detail: format!("{}; they run code of the project", detail.join(", ")),
        place: node.at.clone(),
        covered: Covered::default(),
    })
}

fn item(kind: TrustKind, key: String, detail: String, place: &SourceLocation) -> TrustItem {
    TrustItem { kind, key, detail, place: place.clone(), covered: Covered::default() }
}

/// What a layer of the project's would run, send or loosen.
fn needs(node: &Node, known: &KnownPrograms, worktree: &Worktree, cwd: &Path, found: &mut dyn FnMut(TrustItem)) {
    programs(node, known, worktree, cwd, found);
    if let Some(sandbox) = node.get("sandbox").filter(|sandbox| widens(sandbox)) {
        found(item(TrustKind::Sandbox, "sandbox".into(), sandbox.to_json().to_string(), &sandbox.at));
    }
    if let Some(webfetch) = node.get("webfetch") {
        let detail = webfetch.get("private").map(|private| private.to_json().to_string()).unwrap_or_default();
        found(item(TrustKind::Permission, "webfetch.private".into(), detail, &webfetch.at));
    }
    for entry in node.get("command").map(Node::entries).unwrap_or_default() {
        let template = entry.node.get("template").and_then(Node::as_text).unwrap_or_default();
        for insert in shell_inserts(template) {
            let covered = covered::covered_line(insert, &starts(None, worktree, cwd), &worktree.root);
            let key = format!("command.{}", entry.key);
            found(TrustItem { covered, ..item(TrustKind::Command, key, insert.to_owned(), &entry.at) });
        }
    }
    for provider in node.get("provider").map(Node::entries).unwrap_or_default() {
        for way in provider_ways(&provider.node) {
            let way: Vec<&str> = way.iter().map(String::as_str).collect();
            let Some(value) = provider.node.at(&way) else { continue };
            let secret = way
                .last()
                .is_some_and(|key| ["apiKey", "accessKeyId", "secretAccessKey", "sessionToken"].contains(key));
            let detail = if secret { "a key".to_owned() } else { value.to_json().to_string() };
            found(item(TrustKind::Provider, format!("provider.{}.{}", provider.key, way.join(".")), detail, &value.at));
        }
    }
    for way in option_ways(node) {
        let way: Vec<&str> = way.iter().map(String::as_str).collect();
        if let Some(value) = node.at(&way) {
            found(item(TrustKind::Provider, way.join("."), value.to_json().to_string(), &value.at));
        }
    }
    read_elsewhere(node, worktree, found);
}

/// Servers, formatters, language servers, hooks and the shell.
fn programs(node: &Node, known: &KnownPrograms, worktree: &Worktree, cwd: &Path, found: &mut dyn FnMut(TrustItem)) {
    for entry in node.get("mcp").map(Node::entries).unwrap_or_default() {
        if !is_off("mcp", entry, known) {
            let command = command_line(&entry.node, "command");
            let address = entry.node.get("url").and_then(Node::as_text).map(str::to_owned);
            let detail = described(command.or(address).unwrap_or_else(|| "is switched on".to_owned()), &entry.node);
            let covered = runs(&entry.node, worktree, cwd);
            found(TrustItem { covered, ..item(TrustKind::Mcp, format!("mcp.{}", entry.key), detail, &entry.at) });
        }
    }
    for (key, kind) in
        [("formatter", TrustKind::Formatter), ("lsp", TrustKind::LanguageServer), ("hook", TrustKind::Hook)]
    {
        let Some(tools) = node.get(key) else { continue };
        if known.switches_on(key, tools) {
            found(item(kind, key.into(), "the usual ones that are installed".into(), &tools.at));
        }
        for entry in tools.entries().iter().filter(|entry| !is_off(key, entry, known)) {
            let detail = command_line(&entry.node, "command").unwrap_or_else(|| "is switched on".to_owned());
            let detail = if kind == TrustKind::Hook { hooked(&detail, &entry.node) } else { detail };
            let covered = runs(&entry.node, worktree, cwd);
            let detail = described(detail, &entry.node);
            found(TrustItem { covered, ..item(kind, format!("{key}.{}", entry.key), detail, &entry.at) });
        }
    }
}

/// What lies outside the project and is read or fetched.
fn read_elsewhere(node: &Node, worktree: &Worktree, found: &mut dyn FnMut(TrustItem)) {
    for way in [&["instructions"][..], &["skills", "paths"], &["skills", "urls"]] {
        let Some(NodeValue::List(list)) = node.at(way).map(|node| &node.value) else { continue };
        for node in list {
            if let Some(text) = node.as_text().filter(|text| is_elsewhere(text, worktree)) {
                found(item(TrustKind::Fetches, way.join("."), text.to_owned(), &node.at));
            }
        }
    }
    for entry in node.get("references").map(Node::entries).unwrap_or_default() {
        if reference_elsewhere(&entry.node, worktree) {
            let text = |key| entry.node.get(key).and_then(Node::as_text);
            let path = entry.node.as_text().or_else(|| text("path"));
            let repository = || text("repository").or_else(|| text("git"));
            let detail = match (path, repository(), text("branch")) {
                // A path is what is read, whatever stands beside it.
                (Some(path), ..) => format!("read {path}"),
                (None, Some(repository), Some(branch)) => format!("clone and read {repository}, branch {branch}"),
                (None, repository, _) => format!("clone and read {}", repository.unwrap_or_default()),
            };
            found(item(TrustKind::Permission, format!("references.{}", entry.key), detail, &entry.at));
        }
    }
}

/// Takes out of the project's layers whatever `review` names. What loosens is found again once all
/// else is gone, so that nothing relies on what went.
pub(crate) fn strip(told: &mut [ParsedLayer], uses: &[ExternalValue], environment: &Environment, worktree: &Worktree) {
    let known = KnownPrograms::of(told);
    for told in told.iter_mut().filter(|told| told.origin.project) {
        strip_layer(&mut told.node, &known, uses, worktree);
    }
    let pieces = loosen::loosening(told, environment, worktree);
    loosen::remove(told, &pieces);
}

fn strip_layer(node: &mut Node, known: &KnownPrograms, uses: &[ExternalValue], worktree: &Worktree) {
    drop_uses(node, uses);
    if let Some(mcp) = node.get_mut("mcp").and_then(Node::entries_mut) {
        mcp.retain(|entry| is_off("mcp", entry, known));
    }
    for key in ["formatter", "lsp", "hook"] {
        let Some(tools) = node.get_mut(key) else { continue };
        if known.switches_on(key, tools) {
            node.take(key);
        } else if let Some(entries) = tools.entries_mut() {
            entries.retain(|entry| is_off(key, entry, known));
            // An empty object would still switch the usual ones on.
            if entries.is_empty() {
                node.take(key);
            }
        }
    }
    if node.get("sandbox").is_some_and(widens) {
        node.take("sandbox");
    }
    node.take("webfetch");
    for provider in node.get_mut("provider").and_then(Node::entries_mut).into_iter().flatten() {
        for way in provider_ways(&provider.node) {
            if let Some((last, above)) = way.split_last() {
                let above = above.iter().try_fold(&mut provider.node, |node, key| node.get_mut(key));
                if let Some(above) = above {
                    above.take(last);
                }
            }
        }
    }
    for way in option_ways(node) {
        if let Some((last, above)) = way.split_last()
            && let Some(above) = above.iter().try_fold(&mut *node, |node, key| node.get_mut(key))
        {
            above.take(last);
        }
    }
    for way in [&["instructions"][..], &["skills", "paths"], &["skills", "urls"]] {
        let list = way.iter().try_fold(&mut *node, |node, key| node.get_mut(key));
        if let Some(NodeValue::List(list)) = list.map(|node| &mut node.value) {
            list.retain(|item| !item.as_text().is_some_and(|text| is_elsewhere(text, worktree)));
        }
    }
    if let Some(references) = node.get_mut("references").and_then(Node::entries_mut) {
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

/// Removes every value that was filled in from elsewhere, and whatever stands under such a key.
fn drop_uses(node: &mut Node, uses: &[ExternalValue]) {
    let used = |at: &SourceLocation| uses.iter().any(|used| used.at == *at);
    let filled = |node: &Node| !matches!(node.value, NodeValue::Map(_) | NodeValue::List(_)) && used(&node.at);
    match &mut node.value {
        NodeValue::Map(entries) => {
            entries.retain(|entry| !used(&entry.at) && !filled(&entry.node));
            for entry in entries {
                drop_uses(&mut entry.node, uses);
            }
        }
        NodeValue::List(nodes) => {
            nodes.retain(|node| !filled(node));
            for node in nodes {
                drop_uses(node, uses);
            }
        }
        _ => {}
    }
}

fn command_line(node: &Node, key: &str) -> Option<String> {
    let Some(NodeValue::List(words)) = node.get(key).map(|node| &node.value) else { return None };
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
    for key in ["cwd", "environment", "env", "headers", "initialization", "sampling"] {
        if let Some(value) = node.get(key) {
            let _ = write!(detail, " [{key} {}]", value.to_json());
        }
    }
    detail
}

/// What a hook runs, and what it hooks into.
fn hooked(command: &str, node: &Node) -> String {
    let text = |key: &str| node.get(key).and_then(Node::as_text);
    let about: Vec<&str> = ["on", "tool", "pattern"].into_iter().filter_map(text).collect();
    format!("on {}: {command}", about.join(" "))
}

/// Takes out of a project's files the hooks whose names the user's own settings have: a project neither
/// changes those nor switches them off.
pub(crate) fn drop_doubles(told: &mut [ParsedLayer], problems: &mut Vec<Problem>) {
    let known = KnownPrograms::of(told);
    for told in told.iter_mut().filter(|told| told.origin.project) {
        let Some(hooks) = told.node.get_mut("hook").and_then(Node::entries_mut) else { continue };
        hooks.retain(|entry| {
            let key = format!("hook.{}", entry.key);
            let own = known.programs.contains(&key);
            if own {
                let text = "your own settings have a hook of this name, which a project cannot change; it is ignored";
                problems.push(Problem::warning(ProblemCode::NotForProjects, &entry.at, key, text));
            }
            !own
        });
    }
}

/// The project's files that a program of the settings runs.
fn runs(node: &Node, worktree: &Worktree, cwd: &Path) -> Covered {
    let Some(NodeValue::List(words)) = node.get("command").map(|node| &node.value) else { return Covered::default() };
    let words: Vec<&str> = words.iter().filter_map(Node::as_text).collect();
    covered::covered(&words, &starts(node.get("cwd").and_then(Node::as_text), worktree, cwd), &worktree.root)
}

/// Where a program may start: relative directories are the session's, which may be any of the project.
fn starts(own: Option<&str>, worktree: &Worktree, cwd: &Path) -> Vec<PathBuf> {
    let mut starts: Vec<PathBuf> = [worktree.root.as_path(), cwd]
        .iter()
        .map(|base| own.map_or(base.to_path_buf(), |own| base.join(own)))
        .collect();
    starts.dedup();
    starts
}

/// Whether a path or address leads out of the project.
fn is_elsewhere(text: &str, worktree: &Worktree) -> bool {
    if text.contains("://") || text.starts_with('~') {
        return true;
    }
    let path = worktree.root.join(text);
    let path = base::worktree::normal(&path);
    !path.starts_with(&worktree.root)
        || Path::new(text).components().any(|part| part == std::path::Component::ParentDir)
}

fn reference_elsewhere(node: &Node, worktree: &Worktree) -> bool {
    let path = node.as_text().or_else(|| node.get("path").and_then(Node::as_text));
    node.get("git").is_some()
        || node.get("repository").is_some()
        || path.is_none_or(|path| is_elsewhere(path, worktree))
}

/// A digest of everything that needs trust.
pub(crate) fn digest(items: &[TrustItem]) -> String {
    let mut lines: Vec<String> = items
        .iter()
        .map(|item| format!("{}\u{1}{}\u{1}{}\u{1}{}", item.kind.as_str(), item.key, item.detail, item.covered.content))
        .collect();
    lines.sort();
    lines.dedup();
    base::text::hex(ring::digest::digest(&ring::digest::SHA256, lines.join("\u{2}").as_bytes()).as_ref())
}
