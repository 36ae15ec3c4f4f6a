//! `adjutant config`: the settings, their sources and their problems.

use std::path::Path;
use std::sync::Arc;

use super::project_context::ProjectContext;
use base::environment::Environment;
use config::{self, ProblemSeverity};
use extensions::inventory;
use extensions::scripts::Scripts;
use session::models::ModelSources;

/// What to do with the settings.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the resolved settings with the source of each value (default).
    Show,
    /// Say what is wrong or outdated, and what to write instead
    ///
    /// Exits with 1 if a value is wrong and therefore not used.
    Check {
        /// Print JSON: a list of problems, each with a code, file, line and column.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the settings, for editors.
    Schema,
}

pub(super) fn config(verb: &ConfigCommand, environment: &Environment) -> anyhow::Result<u8> {
    if matches!(verb, ConfigCommand::Schema) {
        super::terminal::json(&config::schema_text());
        return Ok(0);
    }
    let here = ProjectContext::read(Path::new("."), environment)?;
    super::say(&config::show(&here.loaded, &here.problems));
    Ok(0)
}

/// Prints the problems of the settings. Loads the extensions, to find those that do not load.
pub(super) async fn check(json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let mut problems = here.every_problem(&ModelSources::new(environment));
    let settings = Arc::new(here.loaded.settings.clone());
    let found = inventory::survey(
        Scripts::compiling(),
        &settings,
        environment,
        &here.worktree,
        &here.cwd,
    )
    .await;
    problems.extend(inventory::problems(&settings, &found));
    if json {
        let all: Vec<serde_json::Value> = problems.iter().map(config::Problem::to_json).collect();
        super::terminal::json(&serde_json::to_string_pretty(&all)?);
    } else {
        super::say(&config::check(&here.loaded, &problems));
    }
    let wrong = problems
        .iter()
        .any(|problem| problem.severity == ProblemSeverity::Error);
    Ok(u8::from(wrong))
}
