//! Project files whose contents are inserted into the project's settings. Settings reach models
//! without a question, so a file that may not be read without a question needs trust, like a file
//! from outside the project.

use std::path::Path;

use crate::agent_rules::AgentRules;
use crate::node::Node;
use crate::reader::ExternalValue;
use crate::resolve;
use base::environment::Environment;
use base::worktree::Worktree;
use permission::search_filter::SearchFilter;
use permission::{Action, PermissionContext, Policy};

/// Drops the values that come from project files which the default agent may read without a
/// question under the user's own settings. Appends to each remaining one why it needs trust.
pub(crate) fn keep_restricted_files(
    external_values: &mut Vec<ExternalValue>,
    user_settings: &Node,
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
) {
    if external_values
        .iter()
        .all(|value| value.project_file.is_none())
    {
        return;
    }
    let settings = resolve::settings(user_settings, environment, &mut Vec::new());
    let agents = AgentRules::new(&settings, environment, worktree, &[]);
    let rules = agents
        .get(&agents.default)
        .map(|agent| agent.rules.clone())
        .unwrap_or_default();
    let context = PermissionContext::new(environment, worktree, cwd);
    let search_filter = SearchFilter::new(&Policy {
        rules,
        context,
        ..Policy::default()
    });
    external_values.retain_mut(|value| {
        let Some(paths) = &value.project_file else {
            return true;
        };
        let restriction = match paths.iter().map(|path| search_filter.judge(path)).max() {
            Some(Action::Deny) => "which may not be read",
            Some(Action::Ask) => "which may only be read after a question",
            Some(Action::Allow) | None => return false,
        };
        value.insert = format!("{}, {restriction}", value.insert);
        true
    });
}
