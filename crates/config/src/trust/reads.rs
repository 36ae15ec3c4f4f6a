//! Project files whose contents are inserted into the project's settings. Settings reach models
//! without a question, so a file that may not be read without a question needs trust, like a file
//! from outside the project.

use std::path::Path;

use crate::agent_rules::Roster;
use crate::node::Node;
use crate::reader::ExternalValue;
use crate::resolve;
use base::environment::Environment;
use base::worktree::Worktree;
use permission::search_filter::SearchFilter;
use permission::{Action, PermissionContext, Policy};

/// Removes the files that the agent of a new session may read, judged by the user's own settings
/// alone.
pub(crate) fn drop_readable(
    uses: &mut Vec<ExternalValue>,
    alone: &Node,
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
) {
    if uses.iter().all(|used| used.within.is_none()) {
        return;
    }
    let settings = resolve::settings(alone, environment, &mut Vec::new());
    let roster = Roster::new(&settings, environment, worktree, &[]);
    let rules = roster
        .get(&roster.default)
        .map(|agent| agent.rules.clone())
        .unwrap_or_default();
    let place = PermissionContext::new(environment, worktree, cwd);
    let search_filter = SearchFilter::new(&Policy {
        rules,
        place,
        ..Policy::default()
    });
    uses.retain_mut(|used| {
        let Some(paths) = &used.within else {
            return true;
        };
        let restriction = match paths.iter().map(|path| search_filter.judge(path)).max() {
            Some(Action::Deny) => "which reading is not allowed to show",
            Some(Action::Ask) => "which reading asks about",
            Some(Action::Allow) | None => return false,
        };
        used.what = format!("{}, {restriction}", used.what);
        true
    });
}
