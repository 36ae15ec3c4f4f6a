//! Files that the model knows, and that a command or a hook has changed: the change is the agent's own.

use std::path::PathBuf;

use tools::ToolContext;

/// The files that are as the model knows them.
pub(super) async fn known(context: &ToolContext) -> Vec<PathBuf> {
    let seen = context.session.seen.clone();
    base::task::spawn_blocking(move || seen.as_known()).await.unwrap_or_default()
}

/// What has changed in these files since is the agent's own change.
pub(super) async fn adopt(files: Vec<PathBuf>, context: &ToolContext) {
    if files.is_empty() {
        return;
    }
    let seen = context.session.seen.clone();
    if let Err(e) = base::task::spawn_blocking(move || seen.adopt(files)).await {
        tracing::warn!("what a command has changed was not looked at: {e}");
    }
}
