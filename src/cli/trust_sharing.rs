//! Decisions about projects, shared with the user's other machines.

use anyhow::Context as _;

use base::environment::Environment;
use base::worktree::Worktree;
use config::trust::TrustStore;

/// Shares the current decision about a project with other machines, if the store is shared.
pub(super) async fn share_decision(
    worktree: &Worktree,
    environment: &Environment,
) -> anyhow::Result<()> {
    let store = session::user_store::open_store(environment);
    if !store.is_shared().await {
        return Ok(());
    }
    let entry = TrustStore::open(environment).entry(&worktree.root).cloned();
    let entry = entry.unwrap_or_else(|| TrustStore::revoked(environment.now()));
    let shared = store
        .store_trust_decision(&worktree.shared_name(), serde_json::to_string(&entry)?)
        .await;
    store.stop().await;
    shared.context("it applies on this machine only: the other machines could not be informed")
}
