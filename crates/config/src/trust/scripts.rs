//! Custom tools and plugins of a project, which need trust to be loaded.

use super::{TrustItem, TrustKind};
use crate::script::ScriptEntry;
use crate::script::plugin_hooks::{mentioned_hooks, plugin_text};
use crate::script_inputs::{self, ScriptInputs};
use crate::script_kind::ScriptKind;
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
            location: script.location.clone(),
            script: Some(script.kind),
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
        location: script.location.clone(),
        script: Some(script.kind),
        covered,
    }
}

/// Describes the hooks that a plugin's text mentions, which are those it may use.
fn describe_hooks(script: &ScriptEntry) -> String {
    let hooks = mentioned_hooks(&plugin_text(script).unwrap_or_default());
    if hooks.is_empty() {
        "may hook into everything".to_owned()
    } else {
        format!("hooks into {}", hooks.join(", "))
    }
}
