//! Opens a session on this machine that another machine has stored: adapts the paths of its files,
//! and shares the full results of its tools and the user's trust in its project. Does
//! nothing if the store is local.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::recent;
use super::sessions::Sessions;
use crate::turn::record::output_name;
use base::environment::{Environment, private_dir, private_file};
use base::id::{MessageId, SessionId};
use base::worktree::Worktree;
use config::trust;
use permission::shell::root_commit;
use store::{Store, StoredSession};
use tools::truncate;
use transcript::{CallState, Content, FileChange, Message, Part};

/// The bytes of full results that are fetched for a session, the newest first.
const MAX_FETCHED_BYTES: usize = 64 << 20;

impl Sessions {
    /// Returns the name of a directory that is the same on every machine that shares the store;
    /// `None` if the store is local.
    pub async fn shared_directory_name(&self, cwd: Option<&Path>) -> Option<String> {
        let cwd = cwd?.to_path_buf();
        if !self.store.is_shared().await {
            return None;
        }
        let home = self.environment.home.clone();
        let named = base::task::spawn_blocking(move || {
            Worktree::find(&cwd, &[], home.as_deref()).shared_directory_name(&cwd)
        });
        named.await.ok()
    }

    /// Returns the name under which grants, chosen models and trust of a project are stored.
    pub(super) async fn project_name(&self, worktree: &Worktree) -> String {
        recent::project_name(&self.store, worktree).await
    }

    /// Fetches full results of tools that another machine has stored, and replaces their paths
    /// by local ones.
    pub(super) async fn fetch_outputs(&self, session: &SessionId, messages: &mut [Message]) {
        if !self.store.is_shared().await {
            return;
        }
        let folder = truncate::folder(&self.environment.dirs);
        let wanted: BTreeMap<String, PathBuf> = missing_outputs(messages, &folder);
        let mut left = MAX_FETCHED_BYTES;
        // Sorted by name, and newer results have greater names.
        let mut names = wanted.keys().cloned().collect::<Vec<_>>();
        while left > 0
            && let Some(name) = names.pop()
        {
            let found = match self.store.read_contents(session, vec![name.clone()]).await {
                Ok(found) => found,
                Err(e) => {
                    return tracing::warn!(
                        "complete results of session {session} cannot be read: {e}"
                    );
                }
            };
            let Some((_, bytes)) = found.into_iter().next() else {
                continue;
            };
            left = left.saturating_sub(bytes.len());
            if let Some(path) = wanted.get(&name).cloned() {
                let folder = folder.clone();
                let written = base::task::spawn_blocking(move || {
                    private_dir(&folder)?;
                    private_file()
                        .write(true)
                        .create_new(true)
                        .open(&path)?
                        .write_all(&bytes)
                });
                if let Ok(Err(e)) = written.await {
                    tracing::warn!("{name} of session {session} cannot be saved: {e}");
                }
            }
        }
        use_local_paths(messages, &folder);
    }
}

/// Copies the contents of recorded changes for a session that moves from one directory to another,
/// so that they can be undone there.
///
/// # Errors
/// Errors of the system. A repeated call continues the copy.
pub async fn copy_recorded_contents(
    environment: &Environment,
    from: &Path,
    cwd: &Path,
) -> std::io::Result<()> {
    let data = environment.dirs.data.clone();
    let home = environment.home.clone();
    let from = from.to_path_buf();
    let cwd = cwd.to_path_buf();
    let copy = move || {
        let root = Worktree::find(&cwd, &[], home.as_deref()).root;
        snapshot::copy_contents(&data, roots_of(&from, &root, &cwd).old, &root)
    };
    base::task::spawn_blocking(copy)
        .await
        .map_err(std::io::Error::other)?
}

/// Returns the name of a project's repository, by which its sessions are recognized after a move:
/// the address of its `origin`, otherwise its first commit. Blocks on file access.
pub fn repository_name(worktree: &Worktree) -> Option<String> {
    worktree.origin().or_else(|| first_commit(worktree))
}

/// The beginning of the name of a repository without an `origin`.
const COMMIT: &str = "commit:";

/// Returns the name of a repository without an `origin`. Blocks on file access.
pub fn first_commit(worktree: &Worktree) -> Option<String> {
    root_commit(&worktree.root).map(|id| format!("{COMMIT}{id}"))
}

/// True if the name of a repository is that of its first commit.
pub fn is_first_commit(repository: &str) -> bool {
    repository.starts_with(COMMIT)
}

/// Moves a session that is open here to another directory, and stores the change.
pub async fn relocate(
    store: &Store,
    environment: &Environment,
    stored: &mut StoredSession,
    cwd: &Path,
) {
    let from = std::mem::replace(&mut stored.record.cwd, cwd.to_path_buf());
    tracing::info!(
        "session {} moves from {} to {}",
        stored.record.id,
        from.display(),
        cwd.display()
    );
    let worktree = Worktree::find(cwd, &[], environment.home.as_deref());
    let roots = roots_of(&from, &worktree.root, cwd);
    for (message, part) in move_paths(stored, roots.old, roots.new) {
        store.write_part(&stored.record.id, &message, &part).await;
    }
    stored.record.origin = repository_name(&worktree);
    if store.is_shared().await {
        stored.record.shared_name = Some(worktree.shared_directory_name(cwd));
    }
    store.write_record(&stored.record).await;
}

/// Applies a decision about a project's trust from another machine, or shares the local one.
/// Returns `false` if the store is local.
pub async fn share_trust(store: &Store, environment: &Environment, worktree: &Worktree) -> bool {
    let shared = store.is_shared().await;
    if shared {
        exchange_trust(store, environment, worktree).await;
    }
    shared
}

async fn exchange_trust(store: &Store, environment: &Environment, worktree: &Worktree) {
    let project = worktree.shared_name();
    let shared = match store.trust_decision(&project).await {
        Ok(shared) => shared,
        Err(e) => {
            return tracing::warn!(
                "the trust decision about {project} on other machines is unknown: {e}"
            );
        }
    };
    let mut own = trust::TrustStore::open(environment);
    match shared.as_deref().map(serde_json::from_str) {
        Some(Ok(entry)) => {
            if let Err(e) = own.take(&worktree.root, entry) {
                tracing::warn!(
                    "the trust decision about {project} of another machine cannot be saved: {e}"
                );
            }
        }
        Some(Err(e)) => {
            tracing::warn!(
                "the trust decision about {project} of another machine cannot be read: {e}"
            )
        }
        None => {
            // "Not now" alone is no decision for other machines.
            let entry = own
                .entry(&worktree.root)
                .filter(|entry| entry.decision != trust::Decision::Unasked)
                .and_then(|entry| serde_json::to_string(entry).ok());
            let Some(entry) = entry else { return };
            if let Err(e) = store.store_trust_decision(&project, entry).await {
                tracing::warn!(
                    "the trust decision about {project} cannot be shared with other machines: {e}"
                );
            }
        }
    }
}

/// Returns the local paths of full results that are missing here, by their names in the store.
fn missing_outputs(messages: &[Message], folder: &Path) -> BTreeMap<String, PathBuf> {
    let paths = messages
        .iter()
        .flat_map(Message::calls)
        .filter_map(|call| call.state.facts()?.output_path.as_deref());
    let here = |path: &Path| Some((output_name(path)?, folder.join(path.file_name()?)));
    paths
        .filter_map(here)
        .filter(|(_, path)| !path.exists())
        .collect()
}

/// Replaces the paths of full results by local ones.
fn use_local_paths(messages: &mut [Message], folder: &Path) {
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        let Content::Tool(call) = &mut part.content else {
            continue;
        };
        let facts = match &mut call.state {
            CallState::Completed(done) => &mut done.facts,
            CallState::Failed { facts, .. } => facts,
            CallState::Pending | CallState::Running { .. } => continue,
        };
        let Some(path) = facts.output_path.clone() else {
            continue;
        };
        let Some(here) = path
            .file_name()
            .map(|name| folder.join(name))
            .filter(|here| *here != path)
        else {
            continue;
        };
        facts.output_path = Some(here.clone());
        let replaced = |text: &str| text.replace(&*path.to_string_lossy(), &here.to_string_lossy());
        match &mut call.state {
            CallState::Completed(done) => done.output = replaced(&done.output).into(),
            CallState::Failed { error, .. } => *error = replaced(error),
            CallState::Pending | CallState::Running { .. } => {}
        }
    }
}

/// Moves the paths of a session's files from one directory to another. Returns the parts that
/// changed.
fn move_paths(stored: &mut StoredSession, from: &Path, to: &Path) -> Vec<(MessageId, Part)> {
    let follow = |files: &mut Vec<FileChange>| {
        let mut any = false;
        for change in files {
            if let Ok(rest) = Path::new(&change.path).strip_prefix(from) {
                change.path = to.join(rest).display().to_string();
                any = true;
            }
        }
        any
    };
    for undone in &mut stored.record.undone {
        follow(&mut undone.files);
        follow(&mut undone.skipped_files);
    }
    for past in &mut stored.record.past_undos {
        follow(&mut past.files);
    }
    for entry in &mut stored.record.file_log {
        follow(&mut entry.files);
    }
    let mut changed = Vec::new();
    for message in &mut stored.messages {
        for part in &mut message.parts {
            if let Content::Patch { files, .. } = &mut part.content
                && follow(files)
            {
                changed.push((message.id.clone(), part.clone()));
            }
        }
    }
    changed
}

/// The directories of a move: paths below `old` become paths below `new`.
#[derive(Debug, PartialEq)]
struct Roots<'p> {
    old: &'p Path,
    new: &'p Path,
}

/// Returns the directories of a move from `from` to `cwd`, which is in the project at `root`: the
/// roots of the two projects, if `from` is in its project where `cwd` is in the other one.
fn roots_of<'p>(from: &'p Path, root: &'p Path, cwd: &'p Path) -> Roots<'p> {
    let below = cwd.strip_prefix(root).unwrap_or(Path::new(""));
    let old = from
        .ancestors()
        .nth(below.components().count())
        .filter(|old| old.join(below) == from);
    match old {
        Some(old) => Roots { old, new: root },
        None => Roots {
            old: from,
            new: cwd,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_moves_if_the_directory_is_at_the_same_place_below_it() {
        for (from, root, cwd, old, new) in [
            ("/a/p", "/b/q", "/b/q", "/a/p", "/b/q"),
            ("/a/p/src/x", "/b/q", "/b/q/src/x", "/a/p", "/b/q"),
            ("/p", "/b/q", "/b/q/src/x", "/p", "/b/q/src/x"),
            ("/a/p", "/b/q", "/b/q/x", "/a/p", "/b/q/x"),
            ("/b/q/x", "/b/q", "/b/q/y", "/b/q/x", "/b/q/y"),
        ] {
            let roots = Roots {
                old: old.as_ref(),
                new: new.as_ref(),
            };
            assert_eq!(
                roots_of(from.as_ref(), root.as_ref(), cwd.as_ref()),
                roots,
                "{from}"
            );
        }
    }
}
