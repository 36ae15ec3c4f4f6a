//! Guards that were trusted and are not any more, because something of the project has changed since: hooks and plugins
//! that may refuse a call. Until the user has answered, they stand among the hooks as ones that wait, so that every call
//! which they covered is asked about.

use std::time::Duration;

use super::{Decision, Review, TrustEntry, TrustItem, TrustKind};
use crate::config::file::HookConfig;
use crate::config::hook::{self, HookEntry, HookFormat, HookPoint};
use crate::config::node::Node;
use crate::config::problem::{Problem, ProblemCode};
use crate::config::script::{ScriptEntry, ScriptKind};

/// A guard that does not hold any more.
pub(crate) struct LostGuard {
    /// What it covered. `None` if it is the user's own: that stands among the hooks already.
    pub(crate) hook: Option<HookEntry>,
    pub(crate) problem: Problem,
}

/// Finds the guards that the user had trusted and is to be asked about again. `tree` is what all layers say, `before`
/// what was answered last.
pub(crate) fn lost(
    review: &Review,
    before: Option<&TrustEntry>,
    tree: &Node,
    scripts: &[ScriptEntry],
) -> Vec<LostGuard> {
    let trusted = before.filter(|entry| entry.decision == Decision::Trusted && review.decision == Decision::Unasked);
    let Some(before) = trusted else { return Vec::new() };
    let had = |item: &&TrustItem| {
        let begins = format!("{} {}: ", item.kind.as_str(), item.key);
        before.items.iter().any(|line| line.starts_with(&begins))
    };
    review.items.iter().filter(had).filter_map(|item| guard(item, tree, scripts)).collect()
}

/// What an item guards. `None` if it cannot refuse a call.
fn guard(item: &TrustItem, tree: &Node, scripts: &[ScriptEntry]) -> Option<LostGuard> {
    let hook = match item.kind {
        TrustKind::Hook => {
            let name = item.key.strip_prefix("hook.")?;
            let written: HookConfig = crate::config::decode::decode(tree.at(&["hook", name])?).ok()?;
            let hook = hook::entry(name.to_owned(), written, item.place.origin.project, item.place.short()).ok()??;
            matches!(hook.on, HookPoint::ToolBefore | HookPoint::Permission).then_some(hook)?
        }
        TrustKind::Extension => {
            let refuses = ["tool.execute.before", "permission.ask", "everything"];
            let script = scripts.iter().find(|script| script.name == item.key && script.kind == ScriptKind::Plugin)?;
            refuses.iter().any(|hook| item.detail.contains(hook)).then(|| plugin(script))?
        }
        _ => return None,
    };
    let text = "this guard does not hold, because something of this project has changed since you trusted it; until \
                you answer, every call that it covered is asked about";
    let problem = Problem::warning(ProblemCode::LostGuard, &item.place, item.key.as_str(), text);
    let problem = problem.hint("`adjutant trust` shows what waits for your answer");
    Some(LostGuard { hook: Some(HookEntry { waits: true, ..hook }).filter(|hook| hook.project), problem })
}

/// A plugin as a hook that covers every call.
fn plugin(script: &ScriptEntry) -> HookEntry {
    HookEntry {
        name: script.name.clone(),
        on: HookPoint::ToolBefore,
        tools: Vec::new(),
        pattern: None,
        command: vec![script.path.display().to_string()],
        limit: Duration::ZERO,
        environment: Vec::new(),
        format: HookFormat::default(),
        waits: true,
        project: script.project,
        source: script.place.short(),
    }
}
