//! The project in whose directory a command runs.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use base::environment::Environment;
use base::worktree::Worktree;
use config::Problem;
use extensions::inventory::{self, Inventory};
use extensions::scripts::Scripts;
use session::configuration::ProjectDefinition;
use session::models::ModelSources;

/// The settings and agents of a directory.
pub(super) struct ProjectContext {
    pub(super) worktree: Worktree,
    pub(super) cwd: PathBuf,
    configuration: ProjectDefinition,
}

impl ProjectContext {
    pub(super) fn read(dir: &Path, environment: &Environment) -> anyhow::Result<Self> {
        let cwd = std::fs::canonicalize(dir)
            .with_context(|| format!("{} cannot be entered", dir.display()))?;
        let worktree = Worktree::find(&cwd, &[], environment.home.as_deref());
        let configuration = ProjectDefinition::read(environment, &worktree, &cwd);
        Ok(Self {
            worktree,
            cwd,
            configuration,
        })
    }

    /// Returns all problems of the settings, including those of models.
    pub(super) fn every_problem(&self, sources: &ModelSources) -> Vec<Problem> {
        let mut problems = self.problems.clone();
        problems.extend(self.model_problems(sources));
        problems
    }

    /// Returns the same, and the models that the servers on this machine do not have: they are
    /// asked.
    pub(super) async fn every_problem_and_missing_models(
        &self,
        sources: &ModelSources,
    ) -> Vec<Problem> {
        let mut problems = self.every_problem(sources);
        problems.extend(self.local_model_problems(sources).await);
        problems
    }

    /// Loads the custom tools and plugins once, as a session would, and returns their inventory.
    pub(super) async fn load_extension_inventory(
        &self,
        scripts: Scripts,
        environment: &Environment,
    ) -> Inventory {
        let settings = Arc::new(self.loaded.settings.clone());
        inventory::load_inventory(scripts, &settings, environment, &self.worktree, &self.cwd).await
    }
}

impl Deref for ProjectContext {
    type Target = ProjectDefinition;

    fn deref(&self) -> &ProjectDefinition {
        &self.configuration
    }
}
