//! `adjutant config`: the settings, their sources and their problems. Changes only adjutant's own
//! file.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use super::JsonListing;
use super::project_context::ProjectContext;
use base::environment::Environment;
use config::script::ScriptKind;
use config::{self, Problem, ProblemCode, ProblemSeverity, own_file};
use extensions::inventory;
use extensions::scripts::Scripts;
use session::models::ModelSources;
use session::turn::models::named_model;
use transcript::ModelRef;

/// Options of `adjutant config`.
pub(super) type Args = super::CommandOrList<ConfigCommand, JsonListing>;

/// The subcommands of `config`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum ConfigCommand {
    /// Print the resolved settings with the source of each value (default)
    ///
    /// Settings that have their default are not listed; keys and tokens are not shown.
    Show(JsonListing),
    /// Print the value of a setting
    ///
    /// Exits with 1 if it is not set.
    Get {
        /// Name of the setting, such as model or permission.bash."*"
        key: String,
        /// Print JSON: a list with an object for each setting below this name, with its key, value,
        /// file and line
        #[arg(long)]
        json: bool,
    },
    /// Change a setting in adjutant's own settings file
    ///
    /// Comments in the file remain. Files of OpenCode and of projects are never changed.
    Set {
        /// Name of the setting, such as model or permission.bash."*"
        key: String,
        /// New value: a string, or JSON
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Remove a setting from adjutant's own settings file
    ///
    /// Comments in the file remain. Exits with 1 if the setting is not in it.
    Unset {
        /// Name of the setting, such as model or permission.bash."*"
        key: String,
    },
    /// Open adjutant's own settings file in your editor, and check it
    ///
    /// Starts $VISUAL or $EDITOR. Exits with 1 if a value is wrong and therefore not used.
    Edit,
    /// Print the path of adjutant's own settings file
    Path,
    /// Check the settings for mistakes and old spellings
    ///
    /// Exits with 1 if a value is wrong and therefore not used, if a model does not exist, or if a
    /// misspelt key may have been meant to deny something.
    Check {
        /// Print JSON: a list of problems, each with a code, file, line and column.
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of the settings, for editors.
    Schema,
}

impl ConfigCommand {
    /// Returns whether it changes the settings.
    pub(super) fn changes(&self) -> bool {
        matches!(self, Self::Set { .. } | Self::Unset { .. } | Self::Edit)
    }

    /// Returns whether it needs the runtime, to ask model servers or to load extensions.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Set { .. } | Self::Edit | Self::Check { .. })
    }
}

/// Carries out a command that needs the runtime.
pub(super) async fn waiting(verb: &ConfigCommand, environment: &Environment) -> anyhow::Result<u8> {
    match verb {
        ConfigCommand::Set { key, value } => set(key, value, environment).await,
        ConfigCommand::Edit => edit(environment).await,
        ConfigCommand::Check { json } => check(*json, environment).await,
        other => config(other, environment),
    }
}

/// The indentation of the rest of a setting that does not fit a line of the terminal.
const SETTING_INDENT: usize = 4;

pub(super) fn config(verb: &ConfigCommand, environment: &Environment) -> anyhow::Result<u8> {
    match verb {
        ConfigCommand::Schema => super::terminal::json(&config::schema_text()),
        ConfigCommand::Path => super::say(&own_file::path(environment).display().to_string()),
        ConfigCommand::Get { key, json } => return get(key, *json, environment),
        ConfigCommand::Show(JsonListing { json: true }) => {
            let here = ProjectContext::read(Path::new("."), environment)?;
            let all = config::settings_json(&here.loaded, &[]);
            super::terminal::json(&serde_json::to_string_pretty(&all)?);
        }
        ConfigCommand::Unset { key } => return unset(key, environment),
        ConfigCommand::Show(JsonListing { json: false })
        | ConfigCommand::Set { .. }
        | ConfigCommand::Edit
        | ConfigCommand::Check { .. } => {
            let here = ProjectContext::read(Path::new("."), environment)?;
            let shown = config::show(&here.loaded, &here.problems);
            super::terminal::print_with_hanging_indent(&shown, SETTING_INDENT);
        }
    }
    Ok(0)
}

fn get(key: &str, json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let path = own_file::parse_key(key).map_err(|why| anyhow!(why))?;
    let here = ProjectContext::read(Path::new("."), environment)?;
    let Some(setting) = config::setting(&here.loaded, &path) else {
        let why = match unknown_key(&path, environment)? {
            Some(unknown) => format!("{key}: {unknown}"),
            None => format!("{key} is not set"),
        };
        super::terminal::print_note(&format!("adjutant: {why}"));
        for problem in unread_files(&here.problems) {
            super::terminal::print_note(&format!("{problem}"));
        }
        return Ok(1);
    };
    if json {
        let all = config::settings_json(&here.loaded, &path);
        super::terminal::json(&serde_json::to_string_pretty(&all)?);
    } else {
        super::say(&setting.text);
    }
    Ok(0)
}

/// Returns the problems because of which whole files are not read, so that their settings are unknown.
fn unread_files(problems: &[Problem]) -> impl Iterator<Item = &Problem> {
    problems.iter().filter(|problem| {
        problem.key.is_empty()
            && matches!(problem.code, ProblemCode::Syntax | ProblemCode::Unreadable)
    })
}

/// The variable whose settings are read in place of a file, to check a value before it is written.
const TRIAL: &str = "ADJUTANT_CONFIG_CONTENT";

/// Returns an environment in which a setting has a value.
fn trial(path: &[String], value: &Value, environment: &Environment) -> Environment {
    let whole = path
        .iter()
        .rev()
        .fold(value.clone(), |inner, key| json!({ key: inner }));
    environment.with(TRIAL, &whole.to_string())
}

/// Returns the sentence about a key that does not exist.
fn unknown_key(path: &[String], environment: &Environment) -> anyhow::Result<Option<String>> {
    let trial = trial(path, &Value::Null, environment);
    let here = ProjectContext::read(Path::new("."), &trial)?;
    let unknown = here.problems.iter().find(|problem| {
        problem.code == ProblemCode::UnknownKey && problem.location.origin.name == TRIAL
    });
    Ok(unknown.map(sentence))
}

/// Returns the message of a problem of a value that is not written.
fn sentence(problem: &Problem) -> String {
    // The key is not written, so nothing is ignored.
    problem.what().replacen("; it is ignored", "", 1)
}

async fn set(key: &str, text: &str, environment: &Environment) -> anyhow::Result<u8> {
    let path = own_file::parse_key(key).map_err(|why| anyhow!(why))?;
    let mut value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    if matches!(key, "model" | "small_model")
        && let Some(meant) = meant_model(text, environment).await?
    {
        super::say(&format!("{text} is {meant}."));
        value = Value::from(meant.to_string());
    }
    let trial = trial(&path, &value, environment);
    let here = ProjectContext::read(Path::new("."), &trial)?;
    let of_value = |problem: &&Problem| problem.location.origin.name == TRIAL;
    for problem in here.problems.iter().filter(of_value) {
        let key = if problem.key.is_empty() {
            key
        } else {
            &problem.key
        };
        let message = format!("{key}: {}", sentence(problem));
        let is_misspelt = config::is_misspelt_permission(problem);
        let is_refused = problem.severity == ProblemSeverity::Error
            || problem.code == ProblemCode::UnknownKey
            || is_misspelt;
        if is_refused {
            let end = if message.ends_with('?') { "" } else { "." };
            bail!("{message}{end} Nothing was changed.");
        }
        super::terminal::print_note(&format!("{}: {message}", problem.severity.as_str()));
    }
    let sources = ModelSources::new(&trial);
    let mut of_models = here.model_problems(&sources);
    of_models.extend(here.local_model_problems(&sources).await);
    let everyone = sources.with_all_models(&here.loaded.settings);
    let named = here.loaded.named_models();
    let is_of_unknown_provider = |problem: &Problem| {
        let is_unknown = |model: &ModelRef| everyone.is_unknown(&model.provider);
        named
            .iter()
            .any(|(model, _, key)| *key == problem.key && is_unknown(model))
    };
    for problem in of_models.iter().filter(of_value) {
        let what = problem.what();
        if problem.severity < ProblemSeverity::Error {
            super::terminal::print_note(&format!("warning: {key}: {what}"));
            continue;
        }
        let plugins = if is_of_unknown_provider(problem) {
            plugins_that_may_add_models(&here, environment).await
        } else {
            Vec::new()
        };
        if plugins.is_empty() {
            let end = if what.ends_with('?') { "" } else { "." };
            bail!("{key}: {what}{end} Nothing was changed.");
        }
        let these = base::text::alternatives(&plugins);
        super::terminal::print_note(&format!(
            "warning: {key}: {}; it is written, because {these} may add it: the models of plugins are known only in a session",
            problem.message
        ));
    }
    let file = own_file::path(environment);
    let is_own = |problem: &&Problem| problem.location.origin.path.as_deref() == Some(&*file);
    if let Some(problem) = unread_files(&here.problems).find(is_own) {
        bail!("{problem}. Nothing was changed: `adjutant config edit` opens the file.");
    }
    own_file::set(&file, &path, &value).map_err(|why| anyhow!("{}: {why}", file.display()))?;
    super::say(&format!("{key}: written into {}.", file.display()));
    let here = ProjectContext::read(Path::new("."), environment)?;
    let Some(setting) = config::setting(&here.loaded, &path) else {
        return Ok(0);
    };
    let is_here = setting.location.origin.path.as_deref() == Some(&*file);
    if !setting.is_object && !is_here {
        super::say(&format!(
            "{} sets it too, and takes precedence in this directory: change it there.",
            setting.location.short()
        ));
    }
    Ok(0)
}

/// Returns the model that a name means which is not complete, such as `sonnet`: the one that
/// `run -m` takes. Returns `None` for a complete name, and for one that does not mean exactly one
/// model.
async fn meant_model(name: &str, environment: &Environment) -> anyhow::Result<Option<ModelRef>> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let settings = &here.loaded.settings;
    let registry = super::model_request::registry(settings, environment).await;
    if ModelRef::parse(name).is_some_and(|named| registry.find(&named).is_ok()) {
        return Ok(None);
    }
    let recent = super::models::recent_models(&here, environment).await;
    let default = super::models::default_model(settings, &recent, &registry);
    Ok(named_model(name, &registry, &default))
}

/// Returns the names of the plugins that may add a provider or its models to the settings: those with
/// a hook for it, and those that do not load here.
async fn plugins_that_may_add_models(
    here: &ProjectContext,
    environment: &Environment,
) -> Vec<String> {
    const HOOKS: [&str; 3] = ["config", "provider", "auth"];
    let settings = &here.loaded.settings;
    let found = here
        .load_extension_inventory(Scripts::default(), environment)
        .await;
    let report = &found.report;
    let may_add = |name: &String| {
        let has_hook = |hook: &str| {
            let files = report.hooks.get(hook);
            files.is_some_and(|files| files.contains(name))
        };
        let is_loaded =
            found.failure.is_none() && report.failures.iter().all(|failure| failure.file != *name);
        !is_loaded || HOOKS.into_iter().any(has_hook)
    };
    let plugins = settings.scripts.iter();
    plugins
        .filter(|script| script.kind == ScriptKind::Plugin)
        .map(|script| script.name.clone())
        .filter(may_add)
        .collect()
}

/// Removes a setting from adjutant's own file. Other files are the user's to change.
fn unset(key: &str, environment: &Environment) -> anyhow::Result<u8> {
    let path = own_file::parse_key(key).map_err(|why| anyhow!(why))?;
    let file = own_file::path(environment);
    let removed =
        own_file::unset(&file, &path).map_err(|why| anyhow!("{}: {why}", file.display()))?;
    let here = ProjectContext::read(Path::new("."), environment)?;
    let setting = config::setting(&here.loaded, &path);
    if removed {
        super::say(&format!("{key}: removed from {}.", file.display()));
        if let Some(setting) = setting {
            super::say(&format!("{} still sets it.", setting.location.short()));
        }
        return Ok(0);
    }
    if let Some(setting) = setting {
        bail!(
            "{key} is set in {}, which adjutant does not change: remove it there",
            setting.location.short()
        );
    }
    super::terminal::print_note(&format!("adjutant: {key} is not set"));
    Ok(1)
}

async fn edit(environment: &Environment) -> anyhow::Result<u8> {
    let file = own_file::path(environment);
    own_file::create(&file).map_err(|why| anyhow!("{}: {why}", file.display()))?;
    let editor = environment
        .var("VISUAL")
        .or_else(|| environment.var("EDITOR"))
        .unwrap_or("vi");
    #[expect(
        clippy::disallowed_methods,
        reason = "the user's editor needs the terminal, and no limits"
    )]
    let status = std::process::Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(&file)
        .status()
        .with_context(|| format!("{editor} cannot be started"))?;
    if !status.success() {
        bail!("{editor} failed ({status}); set VISUAL or EDITOR to another editor");
    }
    let here = ProjectContext::read(Path::new("."), environment)?;
    let of_file = |problem: &&Problem| problem.location.origin.path.as_deref() == Some(&*file);
    let sources = ModelSources::new(environment);
    let problems = here.every_problem_and_missing_models(&sources).await;
    let mut is_wrong = false;
    for problem in problems.iter().filter(of_file) {
        super::terminal::print_note(&format!("{}: {problem}", problem.severity.as_str()));
        is_wrong |= problem.severity == ProblemSeverity::Error;
    }
    Ok(u8::from(is_wrong))
}

/// Prints the problems of the settings. Loads the extensions as a session would, to find the
/// parts of them that have no effect.
async fn check(json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let sources = ModelSources::new(environment);
    let mut problems = here.every_problem_and_missing_models(&sources).await;
    let settings = &here.loaded.settings;
    let found = here
        .load_extension_inventory(Scripts::default(), environment)
        .await;
    problems.extend(inventory::problems(settings, &found));
    problems.extend(inventory::withheld_problems(&here.loaded.trust));
    if json {
        let all: Vec<Value> = problems.iter().map(Problem::to_json).collect();
        super::terminal::json(&serde_json::to_string_pretty(&all)?);
    } else {
        super::say(&config::check(&here.loaded, &problems));
    }
    let wrong = problems
        .iter()
        .any(|problem| problem.severity == ProblemSeverity::Error || problem.can_hide_deny);
    Ok(u8::from(wrong))
}
