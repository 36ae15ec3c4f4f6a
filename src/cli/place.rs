//! What holds in the directory a command is used in.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use base::environment::Environment;
use base::worktree::Worktree;
use config::Problem;
use session::configuration::Configuration;
use session::models::ModelSources;

/// The settings and agents of a directory.
pub(super) struct Here {
    pub(super) worktree: Worktree,
    pub(super) cwd: PathBuf,
    configuration: Configuration,
}

impl Here {
    pub(super) fn read(dir: &Path, environment: &Environment) -> anyhow::Result<Self> {
        let cwd = std::fs::canonicalize(dir).with_context(|| format!("{} cannot be entered", dir.display()))?;
        let worktree = Worktree::find(&cwd, &[], environment.home.as_deref());
        let configuration = Configuration::read(environment, &worktree, &cwd);
        Ok(Self { worktree, cwd, configuration })
    }

    /// Everything that is wrong with them, models included.
    pub(super) fn every_problem(&self, sources: &ModelSources) -> Vec<Problem> {
        let mut problems = self.problems.clone();
        problems.extend(self.model_problems(sources));
        problems
    }
}

impl Deref for Here {
    type Target = Configuration;

    fn deref(&self) -> &Configuration {
        &self.configuration
    }
}
