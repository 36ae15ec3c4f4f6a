//! Files of JavaScript and TypeScript that extend sessions: custom tools and plugins, from the directories of
//! the configuration and from the list `plugin`. Here they are found; nothing of them is run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::disk::ConfigReader;
use super::node::{Layer, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};
use base::environment::Environment;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptKind {
    Tool,
    /// Its exports are functions that give hooks and tools.
    Plugin,
}

/// A file, or an installed package, that extends sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptEntry {
    pub kind: ScriptKind,
    /// For people, and to tell it from others: a path from the project's root, or the package as it was named.
    pub name: String,
    /// The file, or the directory of the package.
    pub path: PathBuf,
    pub package: bool,
    pub options: Value,
    /// A project's file names it, or it is one, or it is installed there.
    pub project: bool,
    /// What the file looked like: changed at, size.
    pub stamp: Option<(i64, i64, u64)>,
    pub place: SourceLocation,
}

/// The hooks that a plugin may have: those that something follows from here.
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

/// Folders of a configuration directory, and what is in them.
const FOLDERS: [(&str, ScriptKind); 4] = [
    ("tool", ScriptKind::Tool),
    ("tools", ScriptKind::Tool),
    ("plugin", ScriptKind::Plugin),
    ("plugins", ScriptKind::Plugin),
];

/// The files of a configuration directory.
pub(crate) fn in_directory(dir: &Path, layer: Layer, project: bool, disk: &mut ConfigReader<'_>) -> Vec<ScriptEntry> {
    let mut found = Vec::new();
    for (folder, kind) in FOLDERS {
        let folder = dir.join(folder);
        if !disk.look(&folder).ok().flatten().is_some_and(|meta| meta.is_dir()) {
            continue;
        }
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_script(path)).collect();
        files.sort();
        for path in files {
            let origin = disk.origin(&path, layer, project);
            let place = SourceLocation::whole(&origin);
            if project && let Some(outside) = disk.leads_outside(&path) {
                let text = format!("this link leads out of the project, to {}; it is not followed", outside.display());
                let key = if kind == ScriptKind::Tool { "tool" } else { "plugin" };
                disk.problems.push(Problem::error(ProblemCode::Link, &place, key, text));
                continue;
            }
            disk.look(&path).ok();
            let (name, stamp) = (origin.name.clone(), stamp(&path));
            found.push(ScriptEntry { kind, name, path, package: false, options: Value::Null, project, stamp, place });
        }
    }
    found
}

/// Whether a file is one of JavaScript or TypeScript, and not one of declarations.
fn is_script(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    matches!(ending, Some("js" | "ts" | "mjs" | "mts" | "cjs" | "cts")) && !name.contains(".d.") && path.is_file()
}

/// What a file looks like from outside.
pub fn stamp(path: &Path) -> Option<(i64, i64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.mtime(), meta.mtime_nsec(), meta.len()))
}

/// The plugins that a text of settings names. Packages are looked for where they may be installed; none is
/// installed here. Of each directory is said whether it is the project's.
pub(crate) fn in_list(node: &Node, directories: &[(PathBuf, bool)], disk: &mut ConfigReader<'_>) -> Vec<ScriptEntry> {
    let Some(NodeValue::List(list)) = node.get("plugin").map(|node| &node.value) else { return Vec::new() };
    let mut found = Vec::new();
    for item in list {
        let (spec, options) = match &item.value {
            NodeValue::List(pair) => (pair.first().and_then(Node::as_text), pair.get(1).map(Node::to_json)),
            _ => (item.as_text(), None),
        };
        let Some(spec) = spec.filter(|spec| !spec.is_empty()) else { continue };
        let theirs = item.at.origin.project;
        let beside = item.at.origin.path.as_deref().and_then(Path::parent);
        let base = beside.unwrap_or(&disk.worktree.root).to_owned();
        let local = local(spec, &base, disk.environment);
        let package = local.is_none() || local.as_ref().is_some_and(|path| path.is_dir());
        // What a variable names without saying where is looked for in the project.
        let vague = beside.is_none() && spec.starts_with('.');
        let looked = match local {
            Some(path) => {
                let inside = vague && path.starts_with(&disk.worktree.root);
                Some((path, theirs || inside))
            }
            None => installed(spec, (&base, theirs || beside.is_none()), (directories, theirs), disk),
        };
        let Some((path, project)) = looked.filter(|(path, _)| path.exists()) else {
            let (name, at) = (package_name(spec), base::text::title(spec));
            let text = match package {
                true => format!("the plugin {at} is not installed, so it is not loaded; adjutant installs nothing"),
                false => format!("there is no file {at}, so this plugin is not loaded"),
            };
            let problem = Problem::warning(ProblemCode::MissingFile, &item.at, "plugin", text);
            let hint = format!("`npm install {}` in {}", base::text::title(name), disk.worktree.root.display());
            disk.problems.push(if package { problem.hint(hint) } else { problem });
            continue;
        };
        if project
            && !package
            && let Some(outside) = disk.leads_outside(&path)
        {
            let text = format!("this leads out of the project, to {}; it is not loaded", outside.display());
            disk.problems.push(Problem::error(ProblemCode::Link, &item.at, "plugin", text));
            continue;
        }
        let manifest = if package { path.join("package.json") } else { path.clone() };
        disk.look(&manifest).ok();
        found.push(ScriptEntry {
            kind: ScriptKind::Plugin,
            name: spec.to_owned(),
            stamp: stamp(&manifest),
            package,
            options: options.unwrap_or(Value::Null),
            project,
            place: item.at.clone(),
            path,
        });
    }
    found
}

/// The file that a plugin's name is, if it is one.
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

/// `@scope/name@1.2` without its version.
fn package_name(spec: &str) -> &str {
    match spec.char_indices().skip(1).find(|(_, c)| *c == '@') {
        Some((at, _)) => &spec[..at],
        None => spec,
    }
}

/// Each once: what the user's own settings name is theirs, whoever else names it.
pub(crate) fn once(mut scripts: Vec<ScriptEntry>) -> Vec<ScriptEntry> {
    let own: BTreeSet<PathBuf> =
        scripts.iter().filter(|script| !script.project).map(|script| script.path.clone()).collect();
    scripts.retain(|script| !script.project || !own.contains(&script.path));
    let mut seen = BTreeSet::new();
    scripts.retain(|script| seen.insert(script.path.clone()));
    scripts
}

/// Where a package is installed, and whether that is the project's: beside the settings that name it, upward to the
/// project's root, in the configuration directories, and where OpenCode keeps its own. Whoever names it, what is in a
/// folder of the project's is the project's.
fn installed(
    spec: &str,
    base: (&Path, bool),
    (directories, theirs): (&[(PathBuf, bool)], bool),
    disk: &mut ConfigReader<'_>,
) -> Option<(PathBuf, bool)> {
    let name = package_name(spec);
    if name.split('/').any(|part| part.is_empty() || part == "..") {
        return None;
    }
    let root = disk.worktree.root.clone();
    let upward = base.0.ancestors().take_while(|dir| dir.starts_with(&root)).map(|dir| (dir.to_owned(), true));
    let cache = disk.environment.dirs.cache.with_file_name("opencode");
    let kept = [cache.clone(), cache.join("packages").join(spec)].map(|dir| (dir, theirs));
    let configured = directories.iter().map(|(dir, project)| (dir.clone(), theirs || *project));
    let mut places = BTreeSet::new();
    let all = std::iter::once((base.0.to_owned(), base.1)).chain(upward).chain(configured).chain(kept);
    all.filter(|(place, _)| places.insert(place.clone()))
        .map(|(place, project)| (place.join("node_modules").join(name), project))
        .find(|(dir, _)| disk.look(&dir.join("package.json")).ok().flatten().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages() {
        for (spec, name) in [("a", "a"), ("a@1", "a"), ("@s/a", "@s/a"), ("@s/a@latest", "@s/a")] {
            assert_eq!(package_name(spec), name);
        }
    }
}
