//! What holds in the directory a command is used in.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::agent::registry::Agents;
use crate::config::{self, Loaded, Problem};
use crate::environment::Environment;
use crate::skill;
use crate::worktree::Worktree;

/// The settings and agents of a directory.
pub(super) struct Here {
    pub(super) worktree: Worktree,
    pub(super) cwd: PathBuf,
    pub(super) loaded: Loaded,
    pub(super) agents: Agents,
    /// What is wrong with the agents and skills; what is wrong with the settings is in `loaded`.
    pub(super) problems: Vec<Problem>,
}

impl Here {
    /// Reads them.
    pub(super) fn read(dir: &Path, environment: &Environment) -> anyhow::Result<Self> {
        let cwd = std::fs::canonicalize(dir).with_context(|| format!("{} cannot be entered", dir.display()))?;
        let worktree = Worktree::find(&cwd, &[], environment.home.as_deref());
        let loaded = config::load(environment, &worktree, &cwd);
        let skills = skill::load(&loaded.settings, environment, &worktree, &cwd);
        let readable = skills.skills.directories(&worktree);
        let (agents, mut problems) = Agents::build_with(&loaded.settings, environment, &worktree, &readable);
        problems.extend(skills.problems);
        Ok(Self { worktree, cwd, loaded, agents, problems })
    }
}
