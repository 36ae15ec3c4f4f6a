//! Hooks of the user's own that run what belongs to a project: a script it has, or a file that decides what a program
//! does there. Other files that they name are data, which may change.

use std::path::{Path, PathBuf};

use super::{KnownPrograms, TrustItem, TrustKind, command_line, hooked, is_off, runs, starts};
use crate::covered::{Covered, is_code};
use crate::node::{Node, NodeValue};
use base::worktree::Worktree;

/// Those of the settings without the project's.
pub(crate) fn meant(alone: &Node, worktree: &Worktree, cwd: &Path) -> Vec<TrustItem> {
    let mut found = Vec::new();
    for entry in alone.get("hook").map(Node::entries).unwrap_or_default() {
        if is_off("hook", entry, &KnownPrograms::default()) {
            continue;
        }
        let covered = code(&entry.node, worktree, cwd);
        let Some(command) = command_line(&entry.node, "command").filter(|_| !covered.files.is_empty()) else {
            continue;
        };
        let (kind, key) = (TrustKind::Hook, format!("hook.{}", entry.key));
        found.push(TrustItem { kind, key, detail: hooked(&command, &entry.node), place: entry.at.clone(), covered });
    }
    found
}

/// The files that are run: scripts, and whatever a word of the command is alone.
fn code(hook: &Node, worktree: &Worktree, cwd: &Path) -> Covered {
    let all = runs(hook, worktree, cwd);
    let words = match hook.get("command").map(|node| &node.value) {
        Some(NodeValue::List(words)) => words.iter().filter_map(Node::as_text).collect(),
        _ => Vec::new(),
    };
    let named: Vec<PathBuf> = starts(None, worktree, cwd)
        .iter()
        .flat_map(|base| words.iter().map(|word| base.join(word)))
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .collect();
    let files: Vec<PathBuf> = all.files.into_iter().filter(|file| is_code(file) || named.contains(file)).collect();
    let root = std::fs::canonicalize(&worktree.root).unwrap_or_else(|_| worktree.root.clone());
    let names: Vec<String> =
        files.iter().map(|file| format!("{} ", file.strip_prefix(&root).unwrap_or(file).display())).collect();
    let content = all.content.lines().filter(|line| names.iter().any(|name| line.starts_with(name.as_str())));
    Covered { content: content.collect::<Vec<_>>().join("\n"), files, besides: all.besides }
}
