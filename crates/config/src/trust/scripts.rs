//! What loading a project's custom tools and plugins needs trust for.

use super::{TrustItem, TrustKind};
use crate::covered;
use crate::script::{HOOKS, ScriptEntry, ScriptKind};
use base::worktree::Worktree;

/// What loading the project's files needs trust for.
pub(crate) fn items(scripts: &[ScriptEntry], worktree: &Worktree) -> Vec<TrustItem> {
    let one = |script: &ScriptEntry| {
        let path = script.path.display().to_string();
        let words = if script.package { vec!["node", path.as_str()] } else { vec![path.as_str()] };
        let mut covered = covered::covered(&words, std::slice::from_ref(&worktree.root), &worktree.root);
        covered.besides.retain(|besides| !besides.starts_with("node,"));
        let detail = match script.kind {
            ScriptKind::Tool => "is loaded, and gives the model tools".to_owned(),
            ScriptKind::Plugin => format!("is loaded, and {}", hangs_into(script)),
        };
        let (kind, key) = (TrustKind::Extension, script.name.clone());
        TrustItem { kind, key, detail, place: script.place.clone(), covered }
    };
    scripts.iter().filter(|script| script.project).map(one).collect()
}

/// Which hooks a plugin's text names: what it may hook into.
fn hangs_into(script: &ScriptEntry) -> String {
    const LARGEST: u64 = 1 << 20;
    let small = std::fs::metadata(&script.path).is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST);
    let text = Some(&script.path).filter(|_| small).and_then(|path| std::fs::read_to_string(path).ok());
    let text = text.unwrap_or_default();
    let named = |hook: &&&str| match hook.contains('.') {
        true => text.contains(**hook),
        false => ["", "async ", "\"", "'"].iter().any(|before| {
            [":", "(", "\":", "':"].iter().any(|after| text.contains(&format!(" {before}{hook}{after}")))
        }),
    };
    let hooks: Vec<&str> = HOOKS.iter().filter(named).copied().collect();
    if hooks.is_empty() { "may hook into everything".to_owned() } else { format!("hooks into {}", hooks.join(", ")) }
}
