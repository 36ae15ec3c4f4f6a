//! `adjutant extensions`: the hooks, custom tools and plugins of a project.

use std::path::PathBuf;
use std::sync::Arc;

use super::project_context::ProjectContext;
use base::environment::Environment;
use base::text;
use config::trust::{Review, TrustItem, TrustKind};
use extensions::scripts::Scripts;
use extensions::{survey, tally};

/// Options of `adjutant extensions`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory of the project
    #[arg(default_value = ".")]
    dir: PathBuf,
}

/// Loads the extensions once, as a session would. Exit code 1 if one of them does not load.
pub(super) async fn extensions(args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(&args.dir, environment)?;
    let settings = Arc::new(here.loaded.settings.clone());
    let found = survey::survey(
        Scripts::default(),
        &settings,
        environment,
        &here.worktree,
        &here.cwd,
    )
    .await;
    let tallies = tally::read(environment, &here.worktree.root);
    let broken = found.failed.is_some() || !found.report.errors.is_empty();
    if args.json {
        let mut data = survey::data(&settings, &found, &tallies);
        data["withheld"] = here
            .loaded
            .trust
            .is_withheld()
            .then(|| here.loaded.trust.list())
            .into();
        super::terminal::json(&serde_json::to_string_pretty(&data)?);
        return Ok(u8::from(broken));
    }
    let mut lines = survey::lines(&settings, &found, &tallies);
    lines.extend(withheld(&here.loaded.trust));
    if lines.is_empty() {
        lines.push("There are no hooks, custom tools or plugins here.".into());
    }
    if !found.report.runtime.is_empty() {
        lines.push(format!("JavaScript runs in {}.", found.report.runtime));
    }
    lines.extend(here.loaded.trust.notice());
    super::say(&lines.join("\n"));
    Ok(u8::from(broken))
}

/// Returns a line for each hook, custom tool and plugin that is withheld until the project is
/// trusted.
fn withheld(trust: &Review) -> Vec<String> {
    let state = trust.withheld_state();
    let line = |item: &TrustItem| {
        let kind = if item.kind == TrustKind::Hook {
            "hook"
        } else {
            "extension"
        };
        text::escaped(&format!(
            "{kind} {}: {state}: {} ({})",
            item.key,
            item.detail,
            item.place.short()
        ))
    };
    trust
        .withheld(TrustKind::Hook)
        .chain(trust.withheld(TrustKind::Extension))
        .map(line)
        .collect()
}
