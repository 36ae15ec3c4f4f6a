//! The steps of loading settings, in the order of [`load_with`]. The order matters:
//!
//! 1. [`SettingsLoader::read`] reads and checks every layer on its own, so that a problem has the
//!    place where it was written. The names of tools are collected here, because later steps remove
//!    entries that name tools which rules may still mean; so are the programs that are switched
//!    off, because step 2 removes entries that only switch off.
//! 2. [`SettingsLoader::drop_ineffective_entries`] removes the project's entries that can have no
//!    effect, before the review, so that the user is not asked about them.
//! 3. [`SettingsLoader::user_settings`] joins the layers without the project. A project may tighten
//!    these settings, and never lifts a deny of theirs, so all later steps compare with them.
//! 4. [`SettingsLoader::review`] lists the items that need trust, and takes the user's answer. It
//!    reads the layers as they were written, so that the digest does not depend on the answer.
//! 5. [`SettingsLoader::withhold`] removes everything untrusted, before anything is joined, so that
//!    no withheld value hides one below it.
//! 6. [`SettingsLoader::drop_extensions`] removes the extensions that a variable switches off:
//!    after the review, because switched-off parts of a project need trust all the same.
//! 7. [`SettingsLoader::add_contributed`] inserts the settings of plugins: after the review, which
//!    covers the plugins themselves, and only of plugins in use.
//! 8. [`SettingsLoader::join`] joins all layers, and restricts lists of providers to the user's.
//! 9. [`SettingsLoader::report_problems`] checks the joined rules and references, because only
//!    together they have a meaning.
//! 10. [`SettingsLoader::resolve`] makes [`Settings`] of the tree and the review, notes the
//!     problems that may hide a deny, and forbids endpoints of editors if a dropped value may have
//!     forbidden them: after every step that reports such problems. The steps below need the
//!     settings.
//! 11. [`SettingsLoader::annotate_providers`] adds the facts for messages about a provider: the
//!     variables that are not set, the variable of its key, and that a part of it waits for trust.
//!     The tree decides which of the variables matter, because values that others replace need
//!     none.
//! 12. [`SettingsLoader::restore_sandbox`] brings back restrictions of the user that a joined value
//!     of the project has replaced.
//! 13. [`mark_withheld_hooks`] marks the user's hooks whose files an untrusted project has changed:
//!     before step 14, whose hooks are withheld already, for reasons of their own.
//! 14. [`SettingsLoader::restore_guards`] brings back guards that are no longer in force.
//! 15. [`SettingsLoader::restore_denies`] brings back denies of the user that joined values of the
//!     project have replaced.
//! 16. [`mark_untrusted_commands`] marks the commands of an untrusted project. It only reads the
//!     origin of their values.

use std::path::Path;
use std::sync::Arc;

use super::contribution::Contribution;
use super::layers::{self, ParsedLayer};
use super::node::{Node, SourceLocation};
use super::package::{MissingPackage, UnusableScript};
use super::problem::{Problem, ProblemCode};
use super::reader::{self, ConfigReader};
use super::script::ScriptEntry;
use super::settings::{Directory, Settings};
use super::trust::guards::LostGuard;
use super::{
    LoadedSettings, hook, join, loosen, lost_denies, provider_lists, reference, resolve, rules,
    trust,
};
use base::environment::Environment;
use base::worktree::Worktree;

/// Reads the settings of a directory. Blocks on file access.
pub fn load(environment: &Environment, worktree: &Worktree, cwd: &Path) -> LoadedSettings {
    load_with(environment, worktree, cwd, &[])
}

/// Reads the settings of a directory, with the settings that plugins add. The module explains the
/// order of the steps.
pub fn load_with(
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
    contributions: &[Contribution],
) -> LoadedSettings {
    let mut loader = SettingsLoader::read(environment, worktree, cwd, contributions);
    loader.drop_ineffective_entries();
    let user = loader.user_settings();
    let reviewed = loader.review(&user);
    let trust = &reviewed.trust;
    loader.withhold(trust);
    let disabled_extensions = loader.drop_extensions(trust);
    loader.add_contributed(trust);
    let tree = loader.join(&user);
    loader.report_problems(&tree, trust);
    let mut settings = loader.resolve(&tree, &reviewed);
    loader.annotate_providers(&mut settings, &tree, trust);
    loader.restore_sandbox(&mut settings, &user);
    mark_withheld_hooks(&mut settings, trust);
    loader.restore_guards(&mut settings, reviewed.lost_guards);
    loader.restore_denies(&mut settings, &user);
    mark_untrusted_commands(&mut settings, &tree, trust);
    LoadedSettings {
        settings,
        problems: loader.reader.problems,
        trust: reviewed.trust,
        disabled_extensions,
        missing_packages: reviewed.missing_packages,
        unusable_scripts: reviewed.unusable_scripts,
        programs_off: loader.programs_off,
        fingerprint: loader.reader.fingerprint,
        tree,
        origins: loader
            .layers
            .into_iter()
            .map(|layer| layer.origin)
            .collect(),
    }
}

/// The settings of a directory while they are loaded.
struct SettingsLoader<'a> {
    /// The files, and the problems found so far.
    reader: ConfigReader<'a>,
    cwd: &'a Path,
    /// The layers, lowest first.
    layers: Vec<ParsedLayer>,
    /// The settings that plugins add, and the index of the layer that they come before.
    contributed: (usize, Vec<ParsedLayer>),
    directories: Vec<Directory>,
    scripts: Vec<ScriptEntry>,
    /// The names of tools in the layers as they were written.
    tools: rules::ToolNames,
    /// The formatters and language servers that the layers switch off as they were written.
    programs_off: Vec<trust::ProgramOff>,
}

/// The parts of a project that need trust, with the user's answer.
struct ReviewedProject {
    trust: trust::Review,
    lost_guards: Vec<LostGuard>,
    missing_packages: Vec<MissingPackage>,
    unusable_scripts: Vec<UnusableScript>,
    is_trusted_everywhere: bool,
}

impl<'a> SettingsLoader<'a> {
    fn read(
        environment: &'a Environment,
        worktree: &'a Worktree,
        cwd: &'a Path,
        contributions: &[Contribution],
    ) -> Self {
        let mut reader = ConfigReader::new(environment, worktree);
        let layers::LayersRead {
            layers,
            contributed,
            directories,
            scripts,
        } = layers::read(&mut reader, cwd, contributions);
        let nodes = layers
            .iter()
            .map(|layer| (&layer.node, layer.origin.project));
        let tools = rules::ToolNames::of(nodes, &scripts);
        let programs_off = trust::switched_off(&layers);
        Self {
            reader,
            cwd,
            layers,
            contributed,
            directories,
            scripts,
            tools,
            programs_off,
        }
    }

    fn drop_ineffective_entries(&mut self) {
        trust::drop_duplicate_hooks(&mut self.layers, &mut self.reader.problems);
        trust::drop_idle(&mut self.layers);
    }

    fn user_settings(&self) -> Node {
        join(self.layers.iter().filter(|layer| !layer.origin.project))
    }

    fn review(&mut self, user: &Node) -> ReviewedProject {
        let environment = self.reader.environment;
        let worktree = self.reader.worktree;
        trust::file_inserts::keep_restricted_files(
            &mut self.reader.external_values,
            user,
            environment,
            worktree,
            self.cwd,
        );
        let mut items = trust::review(
            &self.layers,
            user,
            &self.reader.external_values,
            environment,
            worktree,
            self.cwd,
        );
        items.extend(trust::hooks::items(user, worktree, self.cwd));
        items.extend(trust::scripts::items(&self.scripts, worktree));
        let is_trusted_everywhere = user.get("trust").and_then(Node::as_text) == Some("all")
            || environment
                .setting("TRUST")
                .is_some_and(|value| value == "all");
        let (mut trust, lost_guards) = review_with_answer(
            items,
            is_trusted_everywhere,
            &self.layers,
            &self.scripts,
            &mut self.reader,
        );
        let missing_packages = std::mem::take(&mut self.reader.missing_packages);
        let unusable_scripts = std::mem::take(&mut self.reader.unusable_scripts);
        trust.not_installed = missing_packages
            .iter()
            .filter(|package| package.project)
            .map(|package| package.spec.clone())
            .collect();
        // An answer is about the packages that it names: one that the project names later waits.
        trust.can_install = match trust.decision {
            trust::Decision::Trusted | trust::Decision::Nothing => {
                is_trusted_everywhere
                    || trust::TrustStore::open(environment)
                        .allows_fetching(&worktree.root, &trust.not_installed)
            }
            trust::Decision::Unasked | trust::Decision::Postponed | trust::Decision::Refused => {
                false
            }
        };
        ReviewedProject {
            trust,
            lost_guards,
            missing_packages,
            unusable_scripts,
            is_trusted_everywhere,
        }
    }

    fn withhold(&mut self, trust: &trust::Review) {
        if !trust.is_withheld() {
            return;
        }
        trust::strip(
            &mut self.layers,
            &self.reader.external_values,
            self.reader.environment,
            self.reader.worktree,
        );
        self.scripts.retain(|script| !script.project);
    }

    /// Removes all hooks, custom tools and plugins, if the environment requests it. Returns their
    /// kinds and names.
    fn drop_extensions(&mut self, trust: &trust::Review) -> Vec<(&'static str, String)> {
        let mut dropped = Vec::new();
        if !trust.is_pure {
            return dropped;
        }
        for layer in &mut self.layers {
            let hooks = layer.node.take("hook");
            let hooks = hooks.as_ref().map(|hooks| hooks.node.entries());
            let hooks = hooks.unwrap_or_default();
            dropped.extend(hooks.iter().map(|entry| ("hook", entry.key.clone())));
        }
        for script in self.scripts.drain(..) {
            let text = "not loaded: ADJUTANT_PURE or OPENCODE_PURE is set";
            dropped.push((script.kind.as_str(), script.name.clone()));
            self.reader.problems.push(Problem::note(
                ProblemCode::NoEffect,
                &script.location,
                script.name,
                text,
            ));
        }
        dropped
    }

    fn add_contributed(&mut self, trust: &trust::Review) {
        let (below, contributed) = std::mem::take(&mut self.contributed);
        let is_used = |layer: &ParsedLayer| !(layer.origin.project && trust.is_withheld());
        let used = contributed.into_iter().filter(is_used);
        self.layers.splice(below..below, used);
    }

    fn join(&mut self, user: &Node) -> Node {
        let mut tree = join(self.layers.iter());
        provider_lists::restrict_lists(&mut tree, user, &mut self.reader.problems);
        tree
    }

    fn report_problems(&mut self, tree: &Node, trust: &trust::Review) {
        let environment = self.reader.environment;
        let worktree = self.reader.worktree;
        let tools = std::mem::take(&mut self.tools).without_project(trust.is_withheld());
        let questionable = rules::questionable(
            tree,
            &tools,
            environment.home.as_deref(),
            &worktree.root,
            &self.reader.problems,
        );
        let problems = &mut self.reader.problems;
        problems.extend(questionable);
        problems.extend(reference::problems(tree, environment, worktree));
        problems.extend(withheld_notes(trust));
    }

    /// Makes the settings of the joined tree and the review. Takes the directories and scripts.
    fn resolve(&mut self, tree: &Node, reviewed: &ReviewedProject) -> Settings {
        let trust = &reviewed.trust;
        let problems = &mut self.reader.problems;
        let mut settings = resolve::settings(tree, self.reader.environment, problems);
        for problem in problems.iter_mut() {
            problem.can_hide_deny |= lost_denies::is_possible(problem);
        }
        problems.extend(trust.unread_answers.clone());
        settings.unread = problems
            .iter()
            .filter(|problem| problem.can_hide_deny)
            .cloned()
            .collect();
        forbid_unclear_endpoints(&mut settings, problems);
        settings.trust_all |= reviewed.is_trusted_everywhere;
        settings.trusted =
            reviewed.is_trusted_everywhere || trust.decision == trust::Decision::Trusted;
        settings.directories = std::mem::take(&mut self.directories);
        settings.scripts = std::mem::take(&mut self.scripts);
        settings
    }

    /// Adds to each provider the variables that its key and address need, and whether a part of it
    /// waits for trust.
    fn annotate_providers(&self, settings: &mut Settings, tree: &Node, trust: &trust::Review) {
        name_unset_variables(settings, tree, &self.reader.problems);
        name_key_variables(settings, tree, &self.reader.key_variables);
        mark_waiting_providers(settings, trust);
    }

    /// Restores guards that are no longer in force, as hooks that refuse.
    fn restore_guards(&mut self, settings: &mut Settings, lost_guards: Vec<LostGuard>) {
        let problems = lost_guards.iter().map(|guard| guard.problem.clone());
        self.reader.problems.extend(problems);
        let hooks = lost_guards.into_iter().filter_map(|guard| guard.hook);
        settings.hooks.extend(hooks);
    }

    /// Restores denies of the user that joined values of the project have replaced.
    fn restore_denies(&self, settings: &mut Settings, user: &Node) {
        let home = self.reader.environment.home.as_deref();
        loosen::keep_denies(settings, &self.layers, user, home);
    }

    /// Restores the user's restrictions of the sandbox if a project narrows it: the project's value
    /// may replace one of the user's objects, whose restrictions stay in force.
    fn restore_sandbox(&self, settings: &mut Settings, user: &Node) {
        let narrowed = self
            .layers
            .iter()
            .filter(|layer| layer.origin.project)
            .filter_map(|layer| layer.node.get("sandbox"));
        if narrowed.clone().count() == 0 || narrowed.clone().any(trust::can_widen) {
            return;
        }
        if let Some(own) = user.get("sandbox").map(resolve::sandbox) {
            let sandbox = Arc::make_mut(&mut settings.sandbox);
            sandbox.network = sandbox.network.or(own.network.filter(|open| !open));
            sandbox.writable = own.writable;
            sandbox.unattended &= own.unattended;
        }
    }
}

/// Forbids editors to set endpoints if the value of that key was dropped because it is invalid: it
/// may have been meant to forbid them.
fn forbid_unclear_endpoints(settings: &mut Settings, problems: &[Problem]) {
    let is_dropped = |problem: &Problem| {
        problem.key == "providers.from_editor" && !problem.location.origin.project
    };
    if problems.iter().any(is_dropped) {
        settings.provider_changes.from_editor = false;
    }
}

/// Adds to each provider the variables for its key and address that are not set. Values that a
/// higher layer replaces, or that are withheld, need none.
fn name_unset_variables(settings: &mut Settings, tree: &Node, problems: &[Problem]) {
    let unset: Vec<&Problem> = problems
        .iter()
        .filter(|problem| problem.code == ProblemCode::UnsetVariable)
        .collect();
    for provider in &mut settings.providers {
        let options = format!("provider.{}.options.", provider.id);
        for problem in &unset {
            let Some(option) = problem.key.strip_prefix(&options) else {
                continue;
            };
            let header = option.strip_prefix("headers.");
            let keys = match header {
                Some(name) => vec!["provider", provider.id.as_str(), "options", "headers", name],
                None => vec!["provider", provider.id.as_str(), "options", option],
            };
            if tree.at(&keys).map(|node| &node.at) != Some(&problem.location) {
                continue;
            }
            let clause = format!("{} ({})", problem.message, problem.location.short());
            let is_key_header = header.is_some_and(|name| {
                providers::platform::has_key_header(&[(name.to_owned(), String::new())])
            });
            if option == "baseURL" && provider.base_url.is_none() {
                provider.unset_address = Some(clause);
            } else if provider.api_key.is_none() && (option == "apiKey" || is_key_header) {
                provider.unset_key = Some(clause);
            }
        }
    }
}

/// Adds to each provider the variable that the settings name for its key. `named` has those of all
/// layers.
fn name_key_variables(settings: &mut Settings, tree: &Node, named: &[(SourceLocation, String)]) {
    for provider in &mut settings.providers {
        let options = ["provider", provider.id.as_str(), "options"];
        let Some(options) = tree.at(&options) else {
            continue;
        };
        let headers = options.get("headers").map(Node::entries);
        let header = headers.unwrap_or_default().iter().find(|entry| {
            providers::platform::has_key_header(&[(entry.key.clone(), String::new())])
        });
        let key = options.get("apiKey").or(header.map(|entry| &entry.node));
        let variable = named
            .iter()
            .find(|(at, _)| key.is_some_and(|key| key.at == *at));
        provider.key_variable = variable.map(|(_, name)| name.clone());
    }
}

/// Marks the providers of which a part of the project's settings waits for trust.
fn mark_waiting_providers(settings: &mut Settings, trust: &trust::Review) {
    if !trust.is_withheld() {
        return;
    }
    let keys: Vec<&str> = trust
        .items
        .iter()
        .filter_map(|item| item.key.strip_prefix("provider."))
        .collect();
    for provider in &mut settings.providers {
        // The id may contain a full stop.
        provider.waits_for_trust = keys.iter().any(|key| {
            let rest = key.strip_prefix(&provider.id);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
    }
}

/// Marks the user's hooks whose covered files an untrusted project has changed.
fn mark_withheld_hooks(settings: &mut Settings, trust: &trust::Review) {
    if !trust.is_withheld() {
        return;
    }
    for hook in &mut settings.hooks {
        let has_changed = trust
            .items
            .iter()
            .any(|item| item.key.strip_prefix("hook.") == Some(&hook.name));
        hook.withheld = (!hook.project && has_changed).then_some(hook::UNTRUSTED_PROJECT);
    }
}

/// Marks commands that an untrusted project has written or changed.
fn mark_untrusted_commands(settings: &mut Settings, tree: &Node, trust: &trust::Review) {
    let is_trusted = settings.trusted;
    for command in &mut settings.commands {
        let is_projects = |key| {
            tree.at(&["command", &command.name, key])
                .is_some_and(|node| node.at.origin.project)
        };
        let is_untrusted = trust.is_withheld() && is_projects("template");
        let has_untrusted_agent = !is_trusted && (is_projects("agent") || is_projects("subtask"));
        command.untrusted = is_untrusted;
        command.has_untrusted_agent = has_untrusted_agent;
    }
}

/// Returns the review of a project's items with the user's answer, and the trusted guards that are
/// no longer in force.
fn review_with_answer(
    items: Vec<trust::TrustItem>,
    everywhere: bool,
    layers: &[ParsedLayer],
    scripts: &[ScriptEntry],
    reader: &mut ConfigReader<'_>,
) -> (trust::Review, Vec<LostGuard>) {
    let environment = reader.environment;
    let root = &reader.worktree.root;
    let digest = trust::digest(&items);
    for file in items.iter().flat_map(|item| &item.covered.files) {
        reader.fingerprint.record_metadata(file).ok();
    }
    let path = trust::TrustStore::path(environment);
    reader.fingerprint.record_metadata(&path).ok();
    let answers = trust::TrustStore::open(environment);
    let is_pure = environment.setting("PURE").is_some_and(resolve::is_on);
    let can_ask = !everywhere && !is_pure;
    let guards = trust::guards::guards(&items, &join(layers.iter()), scripts);
    let mut lost = if can_ask {
        trust::guards::lost(&items, &digest, &guards, answers.entry(root))
    } else {
        Vec::new()
    };
    let mut unread_answers = answers.problem(reader::shown(&path, reader.worktree, environment));
    let decision = match (items.is_empty(), everywhere) {
        (true, _) if can_ask && !(lost.is_empty() && unread_answers.is_none()) => {
            answers.decision(root, &digest)
        }
        (true, _) => trust::Decision::Nothing,
        (false, true) => trust::Decision::Trusted,
        (false, false) => answers.decision(root, &digest),
    };
    let mut trust = trust::Review {
        items,
        digest,
        decision,
        is_pure,
        guards,
        ..trust::Review::default()
    };
    let is_open = matches!(
        decision,
        trust::Decision::Unasked | trust::Decision::Postponed
    );
    if !is_open {
        lost.clear();
    }
    if let Some(problem) = &mut unread_answers {
        problem.can_hide_deny = can_ask && decision == trust::Decision::Unasked;
    }
    let keys = |is_changed: bool| {
        let keys = lost
            .iter()
            .filter(|guard| guard.is_changed == is_changed)
            .map(|guard| guard.problem.key.clone());
        keys.collect()
    };
    if is_open && can_ask {
        let entry = answers.entry(root);
        trust.changes =
            entry.map_or_else(Vec::new, |entry| trust::changes::since(entry, &trust.items));
    }
    trust.changed_guards = keys(true);
    trust.gone_guards = keys(false);
    trust.unread_answers = unread_answers;
    (trust, lost)
}

/// Returns a note for each withheld item of the project.
fn withheld_notes(trust: &trust::Review) -> Vec<Problem> {
    if !trust.is_withheld() {
        return Vec::new();
    }
    let note = |item: &trust::TrustItem| {
        let detail = item.detail.as_str();
        let detail = detail.strip_prefix("is loaded, and ").unwrap_or(detail);
        let text = format!("not used until you trust this project: {detail}");
        Problem::note(
            ProblemCode::Untrusted,
            &item.location,
            item.key.as_str(),
            text,
        )
        .subject(detail)
    };
    // A value that is inserted from outside is also an item of its own kind.
    let is_inserted = |item: &&trust::TrustItem| {
        let inserted = trust.withheld(trust::TrustKind::Reads);
        item.kind != trust::TrustKind::Reads
            && inserted
                .into_iter()
                .any(|other| other.location == item.location && other.key == item.key)
    };
    let items = trust.items.iter();
    items.filter(|item| !is_inserted(item)).map(note).collect()
}
