//! Files of a project that its settings are filled in with. What is in settings reaches models without a question, so
//! a file that reading would ask about or refuse waits for trust, as one from outside the project does.

use std::path::Path;

use crate::disk::ExternalValue;
use crate::node::Node;
use crate::resolve;
use crate::roster::Roster;
use base::environment::Environment;
use base::worktree::Worktree;
use permission::sight::Sight;
use permission::{Action, PermissionContext, Policy};

/// Takes out of the list the files that the agent a session begins with may read, by what the user says alone.
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
    let rules = roster.get(&roster.default).map(|agent| agent.rules.clone()).unwrap_or_default();
    let place = PermissionContext::new(environment, worktree, cwd);
    let sight = Sight::new(&Policy { rules, place, ..Policy::default() });
    uses.retain_mut(|used| {
        let Some(paths) = &used.within else { return true };
        let why = match paths.iter().map(|path| sight.judge(path)).max() {
            Some(Action::Deny) => "which reading is not allowed to show",
            Some(Action::Ask) => "which reading asks about",
            Some(Action::Allow) | None => return false,
        };
        used.what = format!("{}, {why}", used.what);
        true
    });
}
