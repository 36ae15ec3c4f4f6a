//! Opens a session on this machine that another machine has stored: adapts the paths of its files,
//! and shares the full results of its tools and the user's trust in its project. If the store is
//! local, nothing is to be done.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::sessions::Sessions;
use crate::turn::record::output_name;
use base::environment::{Environment, private_dir, private_file};
use base::id::{MessageId, SessionId};
use base::worktree::Worktree;
use config::trust;
use store::{Store, StoredSession};
use tools::truncate;
use transcript::{CallState, Content, FileChange, Message, Part};

/// The bytes of full results that are fetched for a session, the newest first.
const MAX_FETCHED_BYTES: usize = 64 << 20;

impl Sessions {
    /// Returns the name of a directory that is the same on every machine that shares the store;
    /// `None` if the store is local.
    pub async fn shared_place(&self, cwd: Option<&Path>) -> Option<String> {
        let cwd = cwd?.to_path_buf();
        if !self.store.is_shared().await {
            return None;
        }
        let home = self.environment.home.clone();
        let named = base::task::spawn_blocking(move || {
            Worktree::find(&cwd, &[], home.as_deref()).shared_place(&cwd)
        });
        named.await.ok()
    }

    /// Returns the name under which grants, chosen models and trust of a project are stored.
    pub(super) async fn project_name(&self, worktree: &Worktree) -> String {
        if self.store.is_shared().await {
            worktree.shared_name()
        } else {
            worktree.root.display().to_string()
        }
    }

    /// Fetches full results of tools that another machine has stored, and replaces their paths
    /// by local ones.
    pub(super) async fn fetch_outputs(&self, session: &SessionId, messages: &mut [Message]) {
        if !self.store.is_shared().await {
            return;
        }
        let folder = truncate::folder(&self.environment.dirs);
        let wanted: BTreeMap<String, PathBuf> = outputs(messages, &folder);
        let mut left = MAX_FETCHED_BYTES;
        // Sorted by name, and newer results have greater names.
        let mut names = wanted.keys().cloned().collect::<Vec<_>>();
        while left > 0
            && let Some(name) = names.pop()
        {
            let found = match self.store.contents(session, vec![name.clone()]).await {
                Ok(found) => found,
                Err(e) => {
                    return tracing::warn!("whole results of session {session} cannot be had: {e}");
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
                    tracing::warn!("{name} of session {session} cannot be kept: {e}");
                }
            }
        }
        renamed(messages, &folder);
    }
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
    let root = &worktree.root;
    let old_root = root_of(&from, root, cwd);
    for (message, part) in moved(stored, old_root, root) {
        store.part(&stored.record.id, &message, &part).await;
    }
    let data = environment.dirs.data.clone();
    let old_root = old_root.to_path_buf();
    let new_root = root.clone();
    let copied =
        base::task::spawn_blocking(move || snapshot::copy_contents(&data, &old_root, &new_root));
    if let Ok(Err(e)) = copied.await {
        tracing::warn!(
            "the stored contents of {} are not all copied: {e}",
            from.display()
        );
    }
    stored.record.origin = worktree.origin();
    if store.is_shared().await {
        stored.record.place = Some(worktree.shared_place(cwd));
    }
    store.record(&stored.record).await;
}

/// Applies a decision about a project's trust from another machine, or shares the local one.
/// Returns `false` if the store is local.
pub async fn share_trust(store: &Store, environment: &Environment, worktree: &Worktree) -> bool {
    let shared = store.is_shared().await;
    if shared {
        share(store, environment, worktree).await;
    }
    shared
}

async fn share(store: &Store, environment: &Environment, worktree: &Worktree) {
    let project = worktree.shared_name();
    let shared = match store.trust(&project).await {
        Ok(shared) => shared,
        Err(e) => {
            return tracing::warn!("what was said about {project} elsewhere is not known: {e}");
        }
    };
    let mut own = trust::TrustStore::open(environment);
    match shared.as_deref().map(serde_json::from_str) {
        Some(Ok(entry)) => {
            if let Err(e) = own.take(&worktree.root, entry) {
                tracing::warn!("what was said about {project} elsewhere cannot be kept: {e}");
            }
        }
        Some(Err(e)) => {
            tracing::warn!("what was said about {project} elsewhere cannot be read: {e}")
        }
        None => {
            let entry = own
                .entry(&worktree.root)
                .and_then(|entry| serde_json::to_string(entry).ok());
            let Some(entry) = entry else { return };
            if let Err(e) = store.decide(&project, entry).await {
                tracing::warn!("what was said about {project} is not told elsewhere: {e}");
            }
        }
    }
}

/// Returns the local paths of full results that are missing here, by their names in the store.
fn outputs(messages: &[Message], folder: &Path) -> BTreeMap<String, PathBuf> {
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
fn renamed(messages: &mut [Message], folder: &Path) {
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        let Content::Tool(call) = &mut part.content else {
            continue;
        };
        let CallState::Completed(done) = &mut call.state else {
            continue;
        };
        let Some(path) = &done.facts.output_path else {
            continue;
        };
        let Some(here) = path
            .file_name()
            .map(|name| folder.join(name))
            .filter(|here| here != path)
        else {
            continue;
        };
        done.output = done
            .output
            .replace(&*path.to_string_lossy(), &here.to_string_lossy())
            .into();
        done.facts.output_path = Some(here);
    }
}

/// Moves the paths of a session's files from one directory to another. Returns the parts that
/// changed.
fn moved(stored: &mut StoredSession, from: &Path, to: &Path) -> Vec<(MessageId, Part)> {
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
        follow(&mut undone.left);
    }
    for past in &mut stored.record.past_undos {
        follow(&mut past.files);
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

/// Returns the root of a project in another place, given that `cwd` below `root` corresponds to
/// `from`.
fn root_of<'p>(from: &'p Path, root: &Path, cwd: &Path) -> &'p Path {
    let below = cwd
        .strip_prefix(root)
        .map_or(0, |rest| rest.components().count());
    from.ancestors().nth(below).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_as_many_levels_up_as_the_local_one() {
        for (from, root, cwd, expected) in [
            ("/a/p", "/b/q", "/b/q", "/a/p"),
            ("/a/p/src/x", "/b/q", "/b/q/src/x", "/a/p"),
            ("/p", "/b/q", "/b/q/src/x", "/p"),
        ] {
            assert_eq!(
                root_of(from.as_ref(), root.as_ref(), cwd.as_ref()),
                Path::new(expected),
                "{from}"
            );
        }
    }
}
