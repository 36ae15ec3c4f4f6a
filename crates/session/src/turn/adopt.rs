//! Changes of a command or a hook to files that the model knows: they count as the agent's own.

use std::path::PathBuf;

use tools::ToolContext;

/// Returns the files that are unchanged since the model saw them.
pub(super) async fn unchanged_files(context: &ToolContext) -> Vec<PathBuf> {
    let seen = context.session.seen.clone();
    base::task::spawn_blocking(move || seen.unchanged_files())
        .await
        .unwrap_or_default()
}

/// Marks the present state of these files as known to the model.
pub(super) async fn adopt(files: Vec<PathBuf>, context: &ToolContext) {
    if files.is_empty() {
        return;
    }
    let seen = context.session.seen.clone();
    let hints = context.encoding_hints();
    let adopt = move || seen.adopt(files, |path| hints.of(path));
    if let Err(e) = base::task::spawn_blocking(adopt).await {
        tracing::warn!("the changes of a command were not examined: {e}");
    }
}
