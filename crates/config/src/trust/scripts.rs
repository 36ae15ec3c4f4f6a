//! Custom tools and plugins of a project, which need trust to be loaded.

use super::{TrustItem, TrustKind};
use crate::script::{HOOKS, ScriptEntry, ScriptKind};
use crate::script_inputs::{self, ScriptInputs};
use base::worktree::Worktree;

/// Returns an item for each of the project's scripts.
pub(crate) fn items(scripts: &[ScriptEntry], worktree: &Worktree) -> Vec<TrustItem> {
    scripts
        .iter()
        .filter(|script| script.project)
        .map(|script| item(script, worktree))
        .collect()
}

fn item(script: &ScriptEntry, worktree: &Worktree) -> TrustItem {
    if let Some(record) = &script.record {
        return TrustItem {
            kind: TrustKind::Extension,
            key: script.name.clone(),
            detail: format!(
                "is loaded, and {}; it is {}",
                describe_hooks(script),
                record.summary()
            ),
            place: script.place.clone(),
            covered: ScriptInputs {
                content: record.content(),
                ..ScriptInputs::default()
            },
        };
    }
    let path = script.path.display().to_string();
    let argv = if script.package {
        vec!["node", path.as_str()]
    } else {
        vec![path.as_str()]
    };
    let mut covered =
        script_inputs::of_command(&argv, std::slice::from_ref(&worktree.root), &worktree.root);
    covered
        .not_covered
        .retain(|text| !text.starts_with("node,"));
    let detail = match script.kind {
        ScriptKind::Tool => "is loaded, and gives the model tools".to_owned(),
        ScriptKind::Plugin => format!("is loaded, and {}", describe_hooks(script)),
    };
    TrustItem {
        kind: TrustKind::Extension,
        key: script.name.clone(),
        detail,
        place: script.place.clone(),
        covered,
    }
}

/// Describes the hooks that a plugin's text mentions, which are those it may use.
fn describe_hooks(script: &ScriptEntry) -> String {
    const MAX_BYTES: u64 = 1 << 20;
    let is_small =
        std::fs::metadata(&script.path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_BYTES);
    let text = if is_small {
        std::fs::read_to_string(&script.path).unwrap_or_default()
    } else {
        String::new()
    };
    let hooks: Vec<&str> = HOOKS
        .iter()
        .filter(|hook| mentions(&text, hook))
        .copied()
        .collect();
    if hooks.is_empty() {
        "may hook into everything".to_owned()
    } else {
        format!("hooks into {}", hooks.join(", "))
    }
}

/// Returns whether a plugin's text contains a hook's name. A name without a dot is a common word, so it
/// counts only as the name of a property or method.
fn mentions(text: &str, hook: &str) -> bool {
    if hook.contains('.') {
        return text.contains(hook);
    }
    ["", "async ", "\"", "'"].iter().any(|before| {
        [":", "(", "\":", "':"]
            .iter()
            .any(|after| text.contains(&format!(" {before}{hook}{after}")))
    })
}
