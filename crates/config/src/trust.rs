//! Parts of a project's settings that need the user's trust: those that start a program, send data
//! elsewhere, read outside the project or loosen a rule. This module finds and names them and,
//! without trust, removes them; the editor asks the question.
//!
//! A decision is stored for a project's path and a digest of exactly these parts, so that a change
//! of any of them asks again and other changes do not.

mod answers;
pub(crate) mod changes;
mod covered;
pub(crate) mod file_inserts;
pub(crate) mod guards;
pub(crate) mod hooks;
mod programs;
mod requests;
pub(crate) mod scripts;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::answers::{TrustEntry, TrustStore, TrustedGuard};
pub use self::changes::{ChangedTexts, TrustChange};
pub use self::covered::CoveredItem;
use self::programs::{KnownPrograms, is_off};
pub(crate) use self::programs::{ProgramOff, drop_idle, switched_off};
use self::requests::{location_key_paths, risky_option_paths};
use super::declare::ConfigSchema;
use super::declare::effect::{self, KeyEffect};
use super::formatter;
use super::insert::shell_inserts;
use super::language_server;
use super::layers::ParsedLayer;
use super::loosen::{self, LoosenedKey};
use super::node::{Node, NodeValue, SourceLocation};
use super::package::PackageRecord;
use super::problem::{Problem, ProblemCode};
use super::reader::ExternalValue;
use super::script::ScriptKind;
use super::script_inputs::{self, ScriptInputs};
pub use super::trust_kind::TrustKind;
use base::child_environment::shown_command_line;
use base::environment::Environment;
use base::listing::EntryState;
use base::worktree::Worktree;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustItem {
    pub kind: TrustKind,
    /// The key in the settings, such as `mcp.db` or `permission.bash`.
    pub key: String,
    /// The exact effect: the whole command line, the address or the rule.
    pub detail: String,
    pub location: SourceLocation,
    /// The kind of a custom tool or plugin.
    pub script: Option<ScriptKind>,
    /// The project's own files that the item runs.
    pub(crate) covered: ScriptInputs,
}

impl TrustItem {
    /// Returns the detail for lists that others may see: without the keys in a command, and without
    /// the variables and headers after it.
    pub fn shown_detail(&self) -> String {
        let runs_program = matches!(
            self.kind,
            TrustKind::Mcp | TrustKind::Formatter | TrustKind::LanguageServer | TrustKind::Hook
        );
        if !runs_program {
            return self.detail.clone();
        }
        let end = SURROUNDINGS
            .iter()
            .filter_map(|key| self.detail.find(&format!(" [{key} ")))
            .min();
        let command = &self.detail[..end.unwrap_or(self.detail.len())];
        shown_command_line(command, "***")
    }

    /// Returns whether this is exactly the installed package that a record describes.
    pub fn is_package(&self, record: &PackageRecord) -> bool {
        self.kind == TrustKind::Extension
            && self.key == record.spec
            && self.covered.content == record.content()
    }

    /// Returns the item as a line of a list for the user: without a key that repeats the kind, and
    /// without a location that repeats the key.
    fn line(&self) -> String {
        let kind = self.kind.as_str();
        let subject = if self.key == kind {
            kind.to_owned()
        } else {
            format!("{kind} {}", self.key)
        };
        let source = self.source();
        let repeated = format!("({})", self.key);
        let source = source.strip_prefix(&repeated).unwrap_or(&source);
        let space = if source.starts_with('(') { " " } else { "" };
        format!("{subject}: {}{space}{source}", self.detail)
    }

    /// Returns the location of the item, and the programs that the user's answer does not cover.
    fn source(&self) -> String {
        let mut source = format!("({})", self.location.short());
        if !self.covered.not_covered.is_empty() {
            let _ = write!(
                source,
                "; not covered: {}",
                self.covered.not_covered.join(", ")
            );
        }
        source
    }
}

impl std::fmt::Display for TrustItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {}: {} {}",
            self.kind.as_str(),
            self.key,
            self.detail,
            self.source()
        )
    }
}

/// The parts of a project's settings that need trust, and the user's decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Review {
    /// Everything that needs trust, in the order it was found.
    pub items: Vec<TrustItem>,
    /// The digest of all items.
    pub digest: String,
    pub decision: Decision,
    /// True if hooks and plugins are switched off in this process, which therefore neither asks nor
    /// stores an answer.
    pub is_pure: bool,
    /// The items that can refuse calls.
    pub guards: Vec<TrustedGuard>,
    /// The keys of guards that were active when the user trusted the project and are different now.
    pub changed_guards: Vec<String>,
    /// The keys of guards that were active when the user trusted the project and no longer exist.
    pub gone_guards: Vec<String>,
    /// The changes since the user trusted the project; empty if they are not known.
    pub changes: Vec<TrustChange>,
    /// The reason why the user's answers cannot be read.
    pub unread_answers: Option<Problem>,
    /// The packages that the project names as plugins and that are not installed. They do nothing,
    /// so they need no trust until they are.
    pub not_installed: Vec<String>,
    /// The user's trust covers fetching them.
    pub can_install: bool,
}

/// The user's decision about a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// There is nothing to decide.
    #[default]
    Nothing,
    /// Not answered yet, or the items have changed since.
    Unasked,
    /// "Not now" for exactly these items: they are left out, and not asked about again until they
    /// change. Guards that the user trusted are not replaced by this answer.
    Postponed,
    Trusted,
    /// Declined for good: the session works without the items.
    Refused,
}

impl Review {
    /// Returns whether the items are left out.
    pub fn is_withheld(&self) -> bool {
        matches!(
            self.decision,
            Decision::Unasked | Decision::Postponed | Decision::Refused
        )
    }

    /// Returns the items of one kind that are left out.
    pub fn withheld(&self, kind: TrustKind) -> impl Iterator<Item = &TrustItem> {
        let is_withheld = self.is_withheld();
        self.items
            .iter()
            .filter(move |item| is_withheld && item.kind == kind)
    }

    /// Returns the state of withheld items, for a list.
    pub fn withheld_state(&self) -> EntryState {
        match self.decision {
            Decision::Postponed | Decision::Refused => EntryState::NotTrusted,
            Decision::Nothing | Decision::Unasked | Decision::Trusted => EntryState::WaitsForTrust,
        }
    }

    /// Returns one sentence for the first turn: the number of withheld items of each kind. `None`
    /// if there are none.
    pub fn notice(&self) -> Option<String> {
        if !self.is_withheld() || self.items.is_empty() {
            return None;
        }
        let mut kinds: BTreeMap<TrustKind, usize> = BTreeMap::new();
        for item in &self.items {
            *kinds.entry(item.kind).or_default() += 1;
        }
        let kinds: Vec<String> = kinds
            .into_iter()
            .map(|(kind, n)| format!("{n} {}", kind.display_names()[usize::from(n != 1)]))
            .collect();
        let why = match self.changes.as_slice() {
            [] => "This project is not trusted".to_owned(),
            [change] => format!(
                "This project has changed since you trusted it ({})",
                change.subject
            ),
            [change, rest @ ..] => format!(
                "This project has changed since you trusted it ({}, and {} more)",
                change.subject,
                rest.len()
            ),
        };
        Some(format!(
            "{why}, so this is not active: {}. `adjutant trust` shows it and turns it on.",
            kinds.join(", ")
        ))
    }

    /// Returns the text of the question: the changes since the user trusted the project, or all
    /// items if these changes are not known, and the consequences of an answer.
    pub fn question(&self, root: &Path) -> String {
        let subject = self.change_list().unwrap_or_else(|| {
            let list = self.list();
            let list = list.trim_end_matches('\n');
            format!("{}\n\n{list}", self.subject(root))
        });
        let consequence = if self.items.is_empty() {
            "Until you answer, the calls that they covered are asked about."
        } else if self.changes.is_empty() {
            "Until you trust the project, none of this takes effect; everything else works."
        } else {
            "Nothing that you trusted here takes effect until you trust it again."
        };
        let scope = (!self.items.is_empty())
            .then_some("Trust covers the files that are run by name, not what these load in turn.");
        let consequence = base::text::sentences([
            consequence,
            scope.unwrap_or_default(),
            "\"Not now\" applies until any of this changes.",
        ]);
        let parts = [
            self.unreadable_answers(),
            Some(subject),
            self.lost_guards(),
            self.offer(),
            Some(consequence),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join("\n\n")
    }

    /// Returns the text before the list of all items: why answers cannot be read, the changes since
    /// the user trusted the project, and the guards that were active until now.
    pub fn introduction(&self) -> Option<String> {
        let parts = [
            self.unreadable_answers(),
            self.change_list(),
            self.lost_guards(),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    fn unreadable_answers(&self) -> Option<String> {
        let problem = self.unread_answers.as_ref()?;
        Some(format!(
            "{problem}. Your answer begins a new file; this one is renamed to *.unreadable."
        ))
    }

    /// Returns a sentence on the guards that were active until now. `None` if there are none.
    fn lost_guards(&self) -> Option<String> {
        let changed = self.changed_guards.join(", ");
        let gone = self.gone_guards.join(", ");
        let changed = (!changed.is_empty())
            .then(|| format!("Guards that are off until you answer: {changed}."));
        let gone = (!gone.is_empty()).then(|| format!("Guards removed or switched off: {gone}."));
        let parts: Vec<String> = [changed, gone].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }

    /// Returns the list of changes since the user trusted the project, with a heading. `None` if
    /// there are none.
    fn change_list(&self) -> Option<String> {
        if self.changes.is_empty() {
            return None;
        }
        let lines: Vec<String> = self
            .changes
            .iter()
            .map(|change| format!("- {}", change.line))
            .collect();
        Some(format!(
            "New or changed since you last trusted this project:\n\n{}",
            lines.join("\n")
        ))
    }

    /// Returns the old and new texts of the changes since the user trusted the project, as far as
    /// they are known.
    pub fn changed_texts(&self) -> impl Iterator<Item = &ChangedTexts> {
        self.changes
            .iter()
            .filter_map(|change| change.texts.as_ref())
    }

    /// Returns the project's own files that the items run, each once.
    pub fn files(&self) -> Vec<&Path> {
        let mut files: Vec<&Path> = Vec::new();
        for file in self.items.iter().flat_map(|item| &item.covered.files) {
            if !files.contains(&file.as_path()) {
                files.push(file);
            }
        }
        files
    }

    /// Returns the subject of the question: the heading of the list.
    pub fn subject(&self, root: &Path) -> String {
        if self.items.is_empty() {
            format!("Nothing in {} needs trust any more.", root.display())
        } else {
            format!("The files of {} would do this:", root.display())
        }
    }

    /// Returns a sentence on the limits of the check, if an item covers files: further files that
    /// they start or load are not checked.
    pub fn depth(&self) -> Option<&'static str> {
        let any = self.items.iter().any(|item| !item.covered.files.is_empty());
        any.then_some(
            "You are asked again if a file named here changes. Files that these start or load are not checked.",
        )
    }

    /// Returns a sentence on the project's plugins that are not installed. `None` if there are
    /// none.
    pub fn offer(&self) -> Option<String> {
        let names: Vec<String> = self
            .not_installed
            .iter()
            .map(|name| base::text::title(name))
            .collect();
        let (are, them) = if names.len() == 1 {
            ("This plugin is", "it")
        } else {
            ("These plugins are", "them")
        };
        if names.is_empty() {
            return None;
        }
        let once = if self.can_install || self.decision == Decision::Trusted {
            ""
        } else {
            "Once you trust the project, "
        };
        Some(format!(
            "{are} not installed: {}. {once}`adjutant extensions install` fetches {them}, and shows what comes with \
             {them} first.",
            names.join(", ")
        ))
    }

    /// Returns the items, the decision and the changes as JSON, for scripts.
    pub fn to_json(&self, root: &Path) -> serde_json::Value {
        let item = |item: &TrustItem| {
            serde_json::json!({
                "kind": item.kind.as_str(),
                "key": item.key,
                "detail": item.detail,
                "source": item.location.short(),
                "files": item.covered.files,
                "notCovered": item.covered.not_covered,
            })
        };
        serde_json::json!({
            "project": root,
            "decision": self.decision,
            "changes": self.changes.iter().map(|change| &change.line).collect::<Vec<_>>(),
            "items": self.items.iter().map(item).collect::<Vec<_>>(),
            "notInstalled": self.not_installed,
        })
    }

    /// Returns the items without their details, which may contain keys, one line per item.
    pub fn names(&self) -> String {
        let line = |item: &TrustItem| {
            let line = format!(
                "{} {} ({})",
                item.kind.as_str(),
                item.key,
                item.location.short()
            );
            format!("- {}\n", base::text::escaped(&line))
        };
        self.items.iter().map(line).collect()
    }

    /// Returns the whole list for the question, one line per item, with the riskiest first.
    pub fn list(&self) -> String {
        let mut items: Vec<&TrustItem> = self.items.iter().collect();
        items.sort_by_key(|item| item.kind.rank());
        items
            .into_iter()
            .map(|item| format!("- {}\n", base::text::escaped(&item.line())))
            .collect()
    }
}

/// Finds everything in project layers that needs trust.
pub(crate) fn review(
    layers: &[ParsedLayer],
    alone: &Node,
    uses: &[ExternalValue],
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
) -> Vec<TrustItem> {
    let mut items = Vec::new();
    let known = KnownPrograms::of(layers);
    for layer in layers.iter().filter(|layer| layer.origin.project) {
        collect_items(&layer.node, &known, uses, worktree, cwd, &mut |item| {
            items.push(item)
        });
    }
    // A project that switches off one of the user's programs removes only that one from the list.
    let tree = super::join(layers.iter());
    items.extend(project_formatters(&tree, environment, worktree, cwd));
    if !items.iter().any(|item| item.key == "lsp") {
        items.extend(language_servers_item(alone, &tree));
    }
    for loosened in loosen::loosening_keys(layers, environment, worktree) {
        let LoosenedKey {
            key,
            detail,
            location,
            ..
        } = loosened;
        items.push(item(TrustKind::Permission, key, detail, &location));
    }
    for value in uses {
        items.push(item(
            TrustKind::Reads,
            value.key.clone(),
            value.insert.clone(),
            &value.at,
        ));
    }
    items
}

/// Returns the project's own programs that the formatter settings would run, and formatters that
/// load its code.
fn project_formatters(
    tree: &Node,
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
) -> Vec<TrustItem> {
    let Some(node) = tree.get("formatter") else {
        return Vec::new();
    };
    let Ok(written) = super::decode::decode(node) else {
        return Vec::new();
    };
    let (entries, _) = formatter::entries(Some(written));
    let item = |(name, argv): (String, Vec<String>)| {
        let arguments: Vec<&str> = argv.iter().map(String::as_str).collect();
        TrustItem {
            kind: TrustKind::Formatter,
            key: format!("formatter.{name}"),
            detail: argv
                .iter()
                .map(|argument| quoted(argument))
                .collect::<Vec<_>>()
                .join(" "),
            location: node.at.clone(),
            script: None,
            covered: script_inputs::of_command(
                &arguments,
                &start_directories(None, worktree, cwd),
                &worktree.root,
            ),
        }
    };
    formatter::of_project(&entries, cwd, &worktree.root, environment)
        .into_iter()
        .map(item)
        .collect()
}

/// Returns an item for the user's language servers, which run code of any project that they
/// analyse: build scripts, plug-ins, a compiler in the project.
fn language_servers_item(alone: &Node, tree: &Node) -> Option<TrustItem> {
    let node = alone.get("lsp")?;
    let (entries, _) = language_server::entries(super::decode::decode(tree.get("lsp")?).ok()?);
    let user_commands = node
        .entries()
        .iter()
        .filter_map(|entry| command_line(&entry.node, "command"));
    let detail: Vec<String> = std::iter::once("the usual ones that are installed".to_owned())
        .chain(user_commands)
        .collect();
    (!entries.is_empty()).then(|| TrustItem {
        kind: TrustKind::LanguageServer,
        key: "lsp".into(),
        detail: format!("{}; they run code of the project", detail.join(", ")),
        location: node.at.clone(),
        script: None,
        covered: ScriptInputs::default(),
    })
}

fn item(kind: TrustKind, key: String, detail: String, location: &SourceLocation) -> TrustItem {
    TrustItem {
        kind,
        key,
        detail,
        location: location.clone(),
        script: None,
        covered: ScriptInputs::default(),
    }
}

/// Reports the parts of a project's layer that run, send or loosen something.
fn collect_items(
    node: &Node,
    known: &KnownPrograms,
    uses: &[ExternalValue],
    worktree: &Worktree,
    cwd: &Path,
    found: &mut dyn FnMut(TrustItem),
) {
    collect_programs(node, known, uses, worktree, cwd, found);
    if let Some(sandbox) = node.get("sandbox").filter(|sandbox| can_widen(sandbox)) {
        found(item(
            TrustKind::Sandbox,
            "sandbox".into(),
            sandbox.to_json().to_string(),
            &sandbox.at,
        ));
    }
    for (path, kind) in waiting_keys(node) {
        let keys: Vec<&str> = path.iter().map(String::as_str).collect();
        if let Some(value) = node.at(&keys) {
            found(item(
                kind,
                path.join("."),
                value.to_json().to_string(),
                &value.at,
            ));
        }
    }
    for entry in node.get("command").map(Node::entries).unwrap_or_default() {
        let template = entry
            .node
            .get("template")
            .and_then(Node::as_text)
            .unwrap_or_default();
        for insert in shell_inserts(template) {
            let covered = script_inputs::of_line(
                insert,
                &start_directories(None, worktree, cwd),
                &worktree.root,
            );
            let key = format!("command.{}", entry.key);
            found(TrustItem {
                covered,
                ..item(TrustKind::Command, key, insert.to_owned(), &entry.at)
            });
        }
    }
    for provider in node.get("provider").map(Node::entries).unwrap_or_default() {
        for key_path in location_key_paths(&provider.node) {
            let key_path: Vec<&str> = key_path.iter().map(String::as_str).collect();
            let Some(value) = provider.node.at(&key_path) else {
                continue;
            };
            let secret = key_path.last().is_some_and(|key| {
                ["apiKey", "accessKeyId", "secretAccessKey", "sessionToken"].contains(key)
            });
            let detail = if secret {
                "a key".to_owned()
            } else {
                value.to_json().to_string()
            };
            found(item(
                TrustKind::Provider,
                format!("provider.{}.{}", provider.key, key_path.join(".")),
                detail,
                &value.at,
            ));
        }
    }
    for key_path in risky_option_paths(node) {
        let key_path: Vec<&str> = key_path.iter().map(String::as_str).collect();
        if let Some(value) = node.at(&key_path) {
            found(item(
                TrustKind::Provider,
                key_path.join("."),
                value.to_json().to_string(),
                &value.at,
            ));
        }
    }
    collect_external_texts(node, worktree, found);
}

/// Reports MCP servers, formatters, language servers and hooks.
fn collect_programs(
    node: &Node,
    known: &KnownPrograms,
    uses: &[ExternalValue],
    worktree: &Worktree,
    cwd: &Path,
    found: &mut dyn FnMut(TrustItem),
) {
    for entry in node.get("mcp").map(Node::entries).unwrap_or_default() {
        if !is_off("mcp", entry, known) {
            let command = command_line(&entry.node, "command");
            let address = entry
                .node
                .get("url")
                .and_then(Node::as_text)
                .map(str::to_owned);
            let target = command
                .or(address)
                .unwrap_or_else(|| "is switched on".to_owned());
            let detail = with_surroundings(target, &entry.node, uses);
            let covered = program_inputs(&entry.node, worktree, cwd);
            found(TrustItem {
                covered,
                ..item(
                    TrustKind::Mcp,
                    format!("mcp.{}", entry.key),
                    detail,
                    &entry.at,
                )
            });
        }
    }
    for (key, kind) in [
        ("formatter", TrustKind::Formatter),
        ("lsp", TrustKind::LanguageServer),
        ("hook", TrustKind::Hook),
    ] {
        let Some(tools) = node.get(key) else { continue };
        if known.switches_on(key, tools) {
            found(item(
                kind,
                key.into(),
                "the usual ones that are installed".into(),
                &tools.at,
            ));
        }
        for entry in tools
            .entries()
            .iter()
            .filter(|entry| !is_off(key, entry, known))
        {
            let command =
                command_line(&entry.node, "command").unwrap_or_else(|| "is switched on".to_owned());
            let detail = if kind == TrustKind::Hook {
                describe_hook(&command, &entry.node)
            } else {
                command
            };
            let covered = program_inputs(&entry.node, worktree, cwd);
            let detail = with_surroundings(detail, &entry.node, uses);
            found(TrustItem {
                covered,
                ..item(kind, format!("{key}.{}", entry.key), detail, &entry.at)
            });
        }
    }
}

/// Reports paths and addresses outside the project that are read or fetched.
fn collect_external_texts(node: &Node, worktree: &Worktree, found: &mut dyn FnMut(TrustItem)) {
    for key_path in [
        &["instructions"][..],
        &["skills", "paths"],
        &["skills", "urls"],
    ] {
        let Some(NodeValue::List(list)) = node.at(key_path).map(|node| &node.value) else {
            continue;
        };
        for node in list {
            if let Some(text) = node.as_text().filter(|text| is_outside(text, worktree)) {
                found(item(
                    TrustKind::Fetches,
                    key_path.join("."),
                    text.to_owned(),
                    &node.at,
                ));
            }
        }
    }
    for entry in node
        .get("references")
        .map(Node::entries)
        .unwrap_or_default()
    {
        if is_outside_reference(&entry.node, worktree) {
            let text = |key| entry.node.get(key).and_then(Node::as_text);
            let path = entry.node.as_text().or_else(|| text("path"));
            let repository = text("repository").or_else(|| text("git"));
            let detail = match path {
                // A path takes precedence over a repository.
                Some(path) => format!("read {}", quoted(path)),
                None => {
                    let branch = text("branch")
                        .map(|branch| format!(", branch {}", quoted(branch)))
                        .unwrap_or_default();
                    let repository = quoted(repository.unwrap_or_default());
                    format!("clone and read {repository}{branch}")
                }
            };
            found(item(
                TrustKind::Permission,
                format!("references.{}", entry.key),
                detail,
                &entry.at,
            ));
        }
    }
}

/// Removes from the project's layers everything that `review` reports. Loosening keys are
/// determined again after the other parts are gone, so that the result does not rely on removed
/// parts.
pub(crate) fn strip(
    layers: &mut [ParsedLayer],
    uses: &[ExternalValue],
    environment: &Environment,
    worktree: &Worktree,
) {
    let known = KnownPrograms::of(layers);
    for layer in layers.iter_mut().filter(|layer| layer.origin.project) {
        strip_layer(&mut layer.node, &known, uses, worktree);
    }
    let loosened = loosen::loosening_keys(layers, environment, worktree);
    loosen::remove(layers, &loosened);
}

fn strip_layer(
    node: &mut Node,
    known: &KnownPrograms,
    uses: &[ExternalValue],
    worktree: &Worktree,
) {
    drop_uses(node, uses);
    if let Some(mcp) = node.get_mut("mcp").and_then(Node::entries_mut) {
        mcp.retain(|entry| is_off("mcp", entry, known));
    }
    for key in ["formatter", "lsp", "hook"] {
        let Some(tools) = node.get_mut(key) else {
            continue;
        };
        if known.switches_on(key, tools) {
            node.take(key);
        } else if let Some(entries) = tools.entries_mut() {
            entries.retain(|entry| is_off(key, entry, known));
            // An empty object would still enable the usual programs.
            if entries.is_empty() {
                node.take(key);
            }
        }
    }
    if node.get("sandbox").is_some_and(can_widen) {
        node.take("sandbox");
    }
    for (path, _) in waiting_keys(node) {
        effect::remove(node, &path);
    }
    for provider in node
        .get_mut("provider")
        .and_then(Node::entries_mut)
        .into_iter()
        .flatten()
    {
        for key_path in location_key_paths(&provider.node) {
            if let Some((last, above)) = key_path.split_last() {
                let above = above
                    .iter()
                    .try_fold(&mut provider.node, |node, key| node.get_mut(key));
                if let Some(above) = above {
                    above.take(last);
                }
            }
        }
    }
    for key_path in risky_option_paths(node) {
        if let Some((last, above)) = key_path.split_last()
            && let Some(above) = above
                .iter()
                .try_fold(&mut *node, |node, key| node.get_mut(key))
        {
            above.take(last);
        }
    }
    for key_path in [
        &["instructions"][..],
        &["skills", "paths"],
        &["skills", "urls"],
    ] {
        let list = key_path
            .iter()
            .try_fold(&mut *node, |node, key| node.get_mut(key));
        if let Some(NodeValue::List(list)) = list.map(|node| &mut node.value) {
            list.retain(|item| {
                !item
                    .as_text()
                    .is_some_and(|text| is_outside(text, worktree))
            });
        }
    }
    if let Some(references) = node.get_mut("references").and_then(Node::entries_mut) {
        references.retain(|entry| !is_outside_reference(&entry.node, worktree));
    }
}

/// Returns the paths of keys that wait for trust whatever their values are, because their
/// declarations state so.
fn waiting_keys(node: &Node) -> Vec<(Vec<String>, TrustKind)> {
    let kind = |effect| match effect {
        KeyEffect::Waits(kind) => kind,
        _ => None,
    };
    let effects = ConfigSchema::settings().effects(node).into_iter();
    effects
        .filter_map(|(path, effect)| Some((path, kind(effect)?)))
        .collect()
}

/// Returns whether a project's sandbox could be wider than the user's, whatever that is. Only a
/// sandbox that is `required` and grants nothing cannot be wider.
pub(crate) fn can_widen(sandbox: &Node) -> bool {
    let mode = sandbox.get("mode").unwrap_or(sandbox).as_text();
    let on = |key: &str| sandbox.get(key).and_then(Node::as_bool) == Some(true);
    mode != Some("required")
        || on("network")
        || on("unattended")
        || sandbox.get("writable").is_some()
}

/// Removes every value that was inserted from an external source, and everything below such a key.
fn drop_uses(node: &mut Node, uses: &[ExternalValue]) {
    let is_external = |at: &SourceLocation| uses.iter().any(|value| value.at == *at);
    let is_external_value = |node: &Node| {
        !matches!(node.value, NodeValue::Map(_) | NodeValue::List(_)) && is_external(&node.at)
    };
    match &mut node.value {
        NodeValue::Map(entries) => {
            entries.retain(|entry| !is_external(&entry.at) && !is_external_value(&entry.node));
            for entry in entries {
                drop_uses(&mut entry.node, uses);
            }
        }
        NodeValue::List(nodes) => {
            nodes.retain(|node| !is_external_value(node));
            for node in nodes {
                drop_uses(node, uses);
            }
        }
        _ => {}
    }
}

fn command_line(node: &Node, key: &str) -> Option<String> {
    let Some(NodeValue::List(argv)) = node.get(key).map(|node| &node.value) else {
        return None;
    };
    let argv: Vec<String> = argv.iter().filter_map(Node::as_text).map(quoted).collect();
    (!argv.is_empty()).then(|| argv.join(" "))
}

/// Quotes an argument of a command line for a shell unless it is plain, so that its ends are
/// visible and the line can be copied. Control characters are escaped, in quotation marks of
/// another form: two different arguments must not have the same text, because the user's answer is
/// about it.
fn quoted(argument: &str) -> String {
    let plain = !argument.is_empty()
        && argument
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./=:@,+%".contains(c));
    if plain {
        return argument.to_owned();
    }
    if argument.contains(char::is_control) {
        return format!("$'{}'", argument.escape_debug());
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// The settings of an entry, apart from its command, that affect a program.
const SURROUNDINGS: [&str; 6] = [
    "cwd",
    "environment",
    "env",
    "headers",
    "initialization",
    "sampling",
];

/// Appends the other settings that affect the program: directory, variables, headers. The values of
/// the user's own variables are not the project's and may be secret, so only their names are shown.
fn with_surroundings(mut detail: String, node: &Node, uses: &[ExternalValue]) -> String {
    for key in SURROUNDINGS {
        let is_empty =
            |value: &&Node| matches!(&value.value, NodeValue::Map(map) if map.is_empty());
        if let Some(value) = node.get(key).filter(|value| !is_empty(value)) {
            let mut value = value.clone();
            restore_variables(&mut value, uses);
            let _ = write!(detail, " [{key} {}]", value.to_json());
        }
    }
    detail
}

/// Puts the names of the user's variables in place of their values.
fn restore_variables(node: &mut Node, uses: &[ExternalValue]) {
    match &mut node.value {
        NodeValue::Map(entries) => entries
            .iter_mut()
            .for_each(|entry| restore_variables(&mut entry.node, uses)),
        NodeValue::List(nodes) => nodes
            .iter_mut()
            .for_each(|node| restore_variables(node, uses)),
        NodeValue::Text(text) => {
            let of_node = uses.iter().filter(|value| value.at == node.at);
            let filled = of_node
                .filter_map(|value| value.text.as_ref())
                .find(|substituted| substituted.text == *text);
            if let Some(filled) = filled {
                text.clone_from(&filled.template);
            }
        }
        _ => {}
    }
}

/// Describes a hook: its event and named filters, then its command. Two different hooks must not
/// have the same text, because the user's answer is about it.
fn describe_hook(command: &str, node: &Node) -> String {
    let text = |key: &str| node.get(key).and_then(Node::as_text).map(quoted);
    let event = match node.get("on") {
        Some(event) => format!(
            "on {}",
            text("on").unwrap_or_else(|| event.to_json().to_string())
        ),
        None => "without an event".to_owned(),
    };
    let filters: String = ["tool", "pattern"]
        .into_iter()
        .filter_map(|key| Some(format!(", {key} {}", text(key)?)))
        .collect();
    format!("{event}{filters}: {command}")
}

/// Removes a project's hooks whose names are taken by the user's own settings: a project can
/// neither change nor disable the user's hooks.
pub(crate) fn drop_duplicate_hooks(layers: &mut [ParsedLayer], problems: &mut Vec<Problem>) {
    let known = KnownPrograms::of(layers);
    for layer in layers.iter_mut().filter(|layer| layer.origin.project) {
        let Some(hooks) = layer.node.get_mut("hook").and_then(Node::entries_mut) else {
            continue;
        };
        hooks.retain(|entry| {
            let key = format!("hook.{}", entry.key);
            let is_users = known.programs.contains(&key);
            if is_users {
                let text = "your own settings have a hook of this name, which a project cannot change; it is ignored";
                problems.push(Problem::warning(ProblemCode::NotForProjects, &entry.at, key, text));
            }
            !is_users
        });
    }
}

/// Returns the project's files that a configured program runs.
fn program_inputs(node: &Node, worktree: &Worktree, cwd: &Path) -> ScriptInputs {
    let Some(NodeValue::List(argv)) = node.get("command").map(|node| &node.value) else {
        return ScriptInputs::default();
    };
    let argv: Vec<&str> = argv.iter().filter_map(Node::as_text).collect();
    let own_cwd = node.get("cwd").and_then(Node::as_text);
    script_inputs::of_command(
        &argv,
        &start_directories(own_cwd, worktree, cwd),
        &worktree.root,
    )
}

/// Returns the directories that a program may start in, below the root and below `cwd`: a relative
/// directory is relative to the session's directory, which may be any directory of the project.
fn start_directories(own: Option<&str>, worktree: &Worktree, cwd: &Path) -> Vec<PathBuf> {
    let mut starts: Vec<PathBuf> = [worktree.root.as_path(), cwd]
        .iter()
        .map(|base| own.map_or(base.to_path_buf(), |own| base.join(own)))
        .collect();
    starts.dedup();
    starts
}

/// Returns whether a path or address leads out of the project.
fn is_outside(text: &str, worktree: &Worktree) -> bool {
    if text.contains("://") || text.starts_with('~') {
        return true;
    }
    let path = worktree.root.join(text);
    let path = base::worktree::normal(&path);
    !path.starts_with(&worktree.root)
        || Path::new(text)
            .components()
            .any(|part| part == std::path::Component::ParentDir)
}

fn is_outside_reference(node: &Node, worktree: &Worktree) -> bool {
    let path = node
        .as_text()
        .or_else(|| node.get("path").and_then(Node::as_text));
    node.get("git").is_some()
        || node.get("repository").is_some()
        || path.is_none_or(|path| is_outside(path, worktree))
}

/// Returns a digest of all items. They are encoded as JSON, because any text may contain any
/// separator.
pub(crate) fn digest(items: &[TrustItem]) -> String {
    let mut lines: Vec<String> = items
        .iter()
        .map(|item| {
            let kind = item.kind.as_str();
            serde_json::json!([kind, item.key, item.detail, item.covered.content]).to_string()
        })
        .collect();
    lines.sort();
    lines.dedup();
    base::text::hex(
        ring::digest::digest(&ring::digest::SHA256, lines.join("\n").as_bytes()).as_ref(),
    )
}
