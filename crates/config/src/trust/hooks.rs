//! The user's own hooks that run parts of a project: one of its scripts, or a file that decides
//! what a program does there. Other files that the hooks name are data, which may change.

use std::path::{Path, PathBuf};

use super::{
    KnownPrograms, TrustItem, TrustKind, command_line, describe_hook, is_off, program_inputs,
    start_directories,
};
use crate::node::{Node, NodeValue};
use crate::script_inputs::{ScriptInputs, is_code};
use base::worktree::Worktree;

/// Returns the items for hooks in the settings without the project's.
pub(crate) fn items(alone: &Node, worktree: &Worktree, cwd: &Path) -> Vec<TrustItem> {
    let mut items = Vec::new();
    for entry in alone.get("hook").map(Node::entries).unwrap_or_default() {
        if is_off("hook", entry, &KnownPrograms::default()) {
            continue;
        }
        let covered = code(&entry.node, worktree, cwd);
        if covered.files.is_empty() {
            continue;
        }
        let Some(command) = command_line(&entry.node, "command") else {
            continue;
        };
        items.push(TrustItem {
            kind: TrustKind::Hook,
            key: format!("hook.{}", entry.key),
            detail: describe_hook(&command, &entry.node),
            location: entry.at.clone(),
            script: None,
            covered,
        });
    }
    items
}

/// Returns the files that a hook runs: code, and files that are a whole argument of its command.
fn code(hook: &Node, worktree: &Worktree, cwd: &Path) -> ScriptInputs {
    let all = program_inputs(hook, worktree, cwd);
    let argv = match hook.get("command").map(|node| &node.value) {
        Some(NodeValue::List(argv)) => argv.iter().filter_map(Node::as_text).collect(),
        _ => Vec::new(),
    };
    let named: Vec<PathBuf> = start_directories(None, worktree, cwd)
        .iter()
        .flat_map(|base| argv.iter().map(|argument| base.join(argument)))
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .collect();
    let files: Vec<PathBuf> = all
        .files
        .into_iter()
        .filter(|file| is_code(file) || named.contains(file))
        .collect();
    let root = std::fs::canonicalize(&worktree.root).unwrap_or_else(|_| worktree.root.clone());
    let names: Vec<String> = files
        .iter()
        .map(|file| format!("{} ", file.strip_prefix(&root).unwrap_or(file).display()))
        .collect();
    let content = all
        .content
        .lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name.as_str())));
    ScriptInputs {
        content: content.collect::<Vec<_>>().join("\n"),
        files,
        not_covered: all.not_covered,
    }
}
