//! JavaScript and TypeScript files that extend sessions: custom tools and plugins, from the
//! configuration directories and from the list `plugin`. This module finds them and runs nothing.

pub(crate) mod plugin_hooks;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::node::{Layer, Node, NodeValue, SourceLocation};
use super::package::{self, MissingPackage, PackageRecord, PackageSpec, UnusableScript};
use super::problem::{Problem, ProblemCode};
use super::reader::ConfigReader;
use super::script_inputs;
pub use super::script_kind::ScriptKind;
use base::environment::Environment;

/// A file, or an installed package, that extends sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptEntry {
    pub kind: ScriptKind,
    /// The displayed name, which also identifies it: a path from the project's root, or the package
    /// as named.
    pub name: String,
    /// The file, or the directory of the package.
    pub path: PathBuf,
    pub package: bool,
    pub options: Value,
    /// True if a project's file names it, it is one, or it is installed in the project.
    pub project: bool,
    /// The digest of the file, or of the package's manifest; see [`digest`].
    pub digest: Option<String>,
    pub location: SourceLocation,
    /// The description of a package that adjutant has installed.
    pub record: Option<PackageRecord>,
}

/// The hooks of a plugin that can refuse a call.
pub const GUARDS: [&str; 2] = ["tool.execute.before", "permission.ask"];

/// The hooks that a plugin may have and that adjutant calls.
pub const HOOKS: &[&str] = &[
    "event",
    "config",
    "tool",
    "auth",
    "provider",
    "dispose",
    "chat.message",
    "chat.params",
    "chat.headers",
    "permission.ask",
    "command.execute.before",
    "tool.execute.before",
    "tool.execute.after",
    "tool.definition",
    "shell.env",
    "experimental.chat.messages.transform",
    "experimental.chat.system.transform",
    "experimental.session.compacting",
    "experimental.compaction.autocontinue",
    "experimental.provider.small_model",
    "experimental.text.complete",
];

/// Folders of a configuration directory, and the kind of their files.
const FOLDERS: [(&str, ScriptKind); 4] = [
    ("tool", ScriptKind::Tool),
    ("tools", ScriptKind::Tool),
    ("plugin", ScriptKind::Plugin),
    ("plugins", ScriptKind::Plugin),
];

/// Returns the scripts in a configuration directory.
pub(crate) fn in_directory(
    dir: &Path,
    layer: Layer,
    project: bool,
    reader: &mut ConfigReader<'_>,
) -> Vec<ScriptEntry> {
    let mut found = Vec::new();
    for (folder, kind) in FOLDERS {
        let folder = dir.join(folder);
        if !reader
            .record_metadata(&folder)
            .ok()
            .flatten()
            .is_some_and(|meta| meta.is_dir())
        {
            continue;
        }
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let (scripts, others): (Vec<PathBuf>, Vec<PathBuf>) = entries
            .map(|entry| entry.path())
            .partition(|path| is_script(path));
        let mut files = scripts;
        files.sort();
        let mut screens: Vec<PathBuf> = others.into_iter().filter(|path| is_screen(path)).collect();
        screens.sort();
        for path in screens {
            let origin = reader.origin(&path, layer, project);
            reader.unusable_scripts.push(UnusableScript {
                is_foreign: true,
                kind,
                name: origin.name.clone(),
                why: "it is for the terminal interface of OpenCode".to_owned(),
                location: SourceLocation::whole_text(&origin),
            });
        }
        for path in files {
            let origin = reader.origin(&path, layer, project);
            let location = SourceLocation::whole_text(&origin);
            if project && let Some(outside) = reader.leads_outside(&path) {
                let text = format!(
                    "this link leads out of the project, to {}; it is not followed",
                    outside.display()
                );
                let key = if kind == ScriptKind::Tool {
                    "tool"
                } else {
                    "plugin"
                };
                reader.unusable_scripts.push(UnusableScript {
                    is_foreign: false,
                    kind,
                    name: origin.name.clone(),
                    why: text.clone(),
                    location: location.clone(),
                });
                reader
                    .problems
                    .push(Problem::error(ProblemCode::Link, &location, key, text));
                continue;
            }
            reader.record_metadata(&path).ok();
            found.push(ScriptEntry {
                kind,
                name: origin.name.clone(),
                digest: digest(&path),
                path,
                package: false,
                options: Value::Null,
                project,
                location,
                record: None,
            });
        }
    }
    found
}

/// Returns whether a file is JavaScript or TypeScript, and not a declaration file.
fn is_script(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    matches!(ending, Some("js" | "ts" | "mjs" | "mts" | "cjs" | "cts"))
        && !name.contains(".d.")
        && path.is_file()
}

/// Returns whether a file is made of elements of a screen. OpenCode loads none from these folders
/// on its own; its terminal interface does if its settings name them.
fn is_screen(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("tsx" | "jsx")) && path.is_file()
}

impl ScriptEntry {
    /// Returns the hooks with which the script can refuse a call, as far as its text shows. Blocks
    /// on file access.
    pub fn guards(&self) -> Vec<&'static str> {
        plugin_hooks::guards(self)
    }
}

/// Returns a text that changes with the content of a file: its digest, or its metadata if it is too
/// large. Not the metadata alone, because programs can restore times. `None` if the file cannot be
/// read.
pub fn digest(path: &Path) -> Option<String> {
    script_inputs::digest(path).or_else(|| script_inputs::metadata(path))
}

/// Returns the plugins that a settings layer names. Packages are looked up in the places where they
/// may be installed; those that are not are noted in `reader`. Each directory has a flag that it is
/// the project's.
pub(crate) fn in_list(
    node: &Node,
    directories: &[(PathBuf, bool)],
    reader: &mut ConfigReader<'_>,
) -> Vec<ScriptEntry> {
    let Some(NodeValue::List(list)) = node.get("plugin").map(|node| &node.value) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for item in list {
        let (spec, options) = match &item.value {
            NodeValue::List(pair) => (
                pair.first().and_then(Node::as_text),
                pair.get(1).map(Node::to_json),
            ),
            _ => (item.as_text(), None),
        };
        let Some(spec) = spec.filter(|spec| !spec.is_empty()) else {
            continue;
        };
        let is_projects = item.at.origin.project;
        let settings_dir = item.at.origin.path.as_deref().and_then(Path::parent);
        let base = settings_dir.unwrap_or(&reader.worktree.root).to_owned();
        let local = local(spec, &base, reader.environment);
        let package = local.is_none() || local.as_ref().is_some_and(|path| path.is_dir());
        // A relative path in a variable is resolved against the project's root.
        let is_relative_in_variable = settings_dir.is_none() && spec.starts_with('.');
        let candidate = match local {
            Some(path) => {
                let is_inside = is_relative_in_variable && path.starts_with(&reader.worktree.root);
                Some((path, is_projects || is_inside))
            }
            None => {
                let base = (base.as_path(), is_projects || settings_dir.is_none());
                installed(spec, base, (directories, is_projects), reader)
            }
        };
        let Some((path, project)) = candidate.filter(|(path, _)| path.exists()) else {
            report_missing(spec, package, item, reader);
            continue;
        };
        if project
            && !package
            && let Some(outside) = reader.leads_outside(&path)
        {
            let text = format!(
                "this leads out of the project, to {}; it is not loaded",
                outside.display()
            );
            reader.unusable_scripts.push(unusable(spec, &text, item));
            reader
                .problems
                .push(Problem::error(ProblemCode::Link, &item.at, "plugin", text));
            continue;
        }
        let manifest = if package {
            path.join("package.json")
        } else {
            path.clone()
        };
        reader.record_metadata(&manifest).ok();
        found.push(ScriptEntry {
            kind: ScriptKind::Plugin,
            name: spec.to_owned(),
            digest: digest(&manifest),
            package,
            options: options.unwrap_or(Value::Null),
            project,
            location: item.at.clone(),
            record: package.then(|| own_record(spec, &path, reader)).flatten(),
            path,
        });
    }
    found
}

fn unusable(spec: &str, why: &str, item: &Node) -> UnusableScript {
    UnusableScript {
        is_foreign: false,
        kind: ScriptKind::Plugin,
        name: spec.to_owned(),
        why: why.to_owned(),
        location: item.at.clone(),
    }
}

/// Reports a plugin that is not there. A package of a registry can be installed.
fn report_missing(spec: &str, package: bool, item: &Node, reader: &mut ConfigReader<'_>) {
    let shown = base::text::title(spec);
    if !package {
        let text = format!("there is no file {shown}, so this plugin is not loaded");
        reader.unusable_scripts.push(unusable(spec, &text, item));
        let mut problem = Problem::warning(ProblemCode::MissingFile, &item.at, "plugin", text);
        if spec.starts_with('.') && reader.worktree.root.join(spec).is_file() {
            problem = problem.hint(
                "a path begins at the directory of these settings; a file in a folder \"plugins\" next to them is \
                 loaded without being named",
            );
        }
        reader.problems.push(problem.subject(shown));
        return;
    }
    let base = item.at.origin.path.as_deref().and_then(Path::parent);
    let is_file = |dir: &Path| dir.join(spec).is_file();
    if is_file(&reader.worktree.root) || base.is_some_and(is_file) {
        let text = format!("{shown} is read as the name of a package");
        let hint = "a file is written with \"./\" in front, from the directory of these settings; those in a folder \
                    \"plugins\" next to them are loaded without being named";
        reader.unusable_scripts.push(unusable(spec, &text, item));
        reader
            .problems
            .push(Problem::warning(ProblemCode::MissingFile, &item.at, "plugin", text).hint(hint));
        return;
    }
    let hint = if PackageSpec::parse(spec).is_some() {
        let is_known = reader
            .missing_packages
            .iter()
            .any(|known| known.spec == spec && known.project == item.at.origin.project);
        if !is_known {
            reader.missing_packages.push(MissingPackage {
                spec: spec.to_owned(),
                project: item.at.origin.project,
                location: item.at.clone(),
            });
        }
        "`adjutant extensions install` fetches it"
    } else {
        let why = "it is not a package of a registry, so you have to install it yourself, in node_modules next to the settings";
        reader.unusable_scripts.push(unusable(spec, why, item));
        why
    };
    let text = format!("the plugin {shown} is not installed, so it is not loaded");
    let problem = Problem::warning(ProblemCode::MissingFile, &item.at, "plugin", text);
    reader.problems.push(problem.hint(hint).subject(shown));
}

/// Returns the record of a package that adjutant has installed. `path` is the package's directory.
fn own_record(spec: &str, path: &Path, reader: &mut ConfigReader<'_>) -> Option<PackageRecord> {
    let dir = package::directory(reader.environment, spec);
    if !path.starts_with(&dir) {
        return None;
    }
    reader.record_metadata(&dir.join(package::RECORD)).ok();
    PackageRecord::read(&dir).filter(|record| record.spec == spec)
}

/// Returns the file that a plugin's name refers to, if it is a path.
fn local(spec: &str, base: &Path, environment: &Environment) -> Option<PathBuf> {
    let path = spec.strip_prefix("file://").unwrap_or(spec);
    match (path.strip_prefix("~/"), &environment.home) {
        (Some(rest), Some(home)) => Some(home.join(rest)),
        _ if spec.starts_with("file://")
            || path.starts_with("./")
            || path.starts_with("../")
            || path.starts_with('/') =>
        {
            Some(base::worktree::normal(&base.join(path)))
        }
        _ => None,
    }
}

/// Returns `@scope/name@1.2` without its version.
fn package_name(spec: &str) -> &str {
    match spec.char_indices().skip(1).find(|(_, c)| *c == '@') {
        Some((at, _)) => &spec[..at],
        None => spec,
    }
}

/// Removes duplicates. A script that the user's own settings name is the user's, even if a project
/// names it too.
pub(crate) fn without_duplicates(mut scripts: Vec<ScriptEntry>) -> Vec<ScriptEntry> {
    let own: BTreeSet<PathBuf> = scripts
        .iter()
        .filter(|script| !script.project)
        .map(|script| script.path.clone())
        .collect();
    scripts.retain(|script| !script.project || !own.contains(&script.path));
    let mut seen = BTreeSet::new();
    scripts.retain(|script| seen.insert(script.path.clone()));
    scripts
}

/// Returns the directory of an installed package, and whether it is the project's. The places are
/// next to the settings that name it, upward to the project's root, the configuration directories,
/// adjutant's own cache, and OpenCode's. A package in a folder of the project is the project's,
/// whatever names it.
fn installed(
    spec: &str,
    base: (&Path, bool),
    (directories, is_projects): (&[(PathBuf, bool)], bool),
    reader: &mut ConfigReader<'_>,
) -> Option<(PathBuf, bool)> {
    let name = package_name(spec);
    if name.split('/').any(|part| part.is_empty() || part == "..") {
        return None;
    }
    let root = reader.worktree.root.clone();
    let upward = base
        .0
        .ancestors()
        .take_while(|dir| dir.starts_with(&root))
        .map(|dir| (dir.to_owned(), true));
    let cache = reader.environment.dirs.cache.with_file_name("opencode");
    let own = PackageSpec::parse(spec)
        .map(|_| package::directory(reader.environment, spec))
        .filter(|dir| PackageRecord::read(dir).is_some_and(|record| record.spec == spec));
    // A package that appears here later is noticed.
    reader
        .record_metadata(&package::directory(reader.environment, spec))
        .ok();
    let cached = [cache.clone(), cache.join("packages").join(spec)];
    let cached = own.into_iter().chain(cached).map(|dir| (dir, is_projects));
    let configured = directories
        .iter()
        .map(|(dir, project)| (dir.clone(), is_projects || *project));
    let mut seen = BTreeSet::new();
    let places = std::iter::once((base.0.to_owned(), base.1))
        .chain(upward)
        .chain(configured)
        .chain(cached);
    places
        .filter(|(dir, _)| seen.insert(dir.clone()))
        .map(|(dir, project)| (dir.join("node_modules").join(name), project))
        .find(|(dir, _)| {
            reader
                .record_metadata(&dir.join("package.json"))
                .ok()
                .flatten()
                .is_some()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_name_has_no_version() {
        for (spec, name) in [
            ("a", "a"),
            ("a@1", "a"),
            ("@s/a", "@s/a"),
            ("@s/a@latest", "@s/a"),
        ] {
            assert_eq!(package_name(spec), name);
        }
    }
}
