//! Completions of names that exist: models, modes, agents, sessions, servers. A completion script
//! starts adjutant with a variable set, which then prints candidates and does nothing else. They
//! are found without starting anything; only the model servers of this machine are asked.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Command;
use clap_complete::CompletionCandidate;
use clap_complete::env::Shells;

use super::project_context::ProjectContext;
use super::{help, terminal};
use base::environment::Environment;
use config::settings::Settings;
use providers::catalog::Catalog;
use providers::editor_endpoints::EditorEndpoints;
use providers::registry::Registry;
use session::commands::{CommandConditions, Commands};
use session::models::ModelSources;
use transcript::ModelRef;

/// The variable that names the shell for which candidates are printed. Set by completion scripts.
pub(super) const VARIABLE: &str = "ADJUTANT_COMPLETE";

/// The time that model servers of this machine have to answer.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(1);

/// The script for bash. That of `clap_complete` loses the part of a word before a colon or an
/// equals sign, at which bash splits words: the models of Ollama have a colon in their names.
const BASH: &str = r#"_adjutant() {
    local line="${COMP_LINE:0:COMP_POINT}" words=() index=-1 at part
    for ((at = 0; at <= COMP_CWORD; at++)); do
        part="${COMP_WORDS[at]}"
        if [[ $at -eq 0 || "$line" == [[:space:]]* ]]; then
            line="${line#"${line%%[![:space:]]*}"}"
            index=$((index + 1))
        fi
        # The last word ends at the cursor.
        [[ $at -eq $COMP_CWORD ]] && part="$line"
        words[index]="${words[index]-}$part"
        line="${line#"$part"}"
    done
    local word="${words[index]}" prefix="" breaks="${COMP_WORDBREAKS//[^:=]/}" candidate
    if [[ -n "$breaks" ]]; then
        prefix="${word%"${word##*[$breaks]}"}"
    fi
    COMPREPLY=()
    # The last line has no end.
    while IFS= read -r candidate || [[ -n "$candidate" ]]; do
        candidate="${candidate#"$prefix"}"
        [[ -n "$candidate" ]] && printf -v candidate %q "$candidate"
        COMPREPLY+=("$candidate")
    done < <(VARIABLE=bash _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX="$index" \
        adjutant -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[=/:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o nosort -F _adjutant adjutant 2>/dev/null ||
    complete -o bashdefault -F _adjutant adjutant
"#;

/// Returns the script that completes in a shell by starting adjutant; `None` for a shell without
/// one.
pub(super) fn script(shell: &str) -> Option<io::Result<Vec<u8>>> {
    if shell == "bash" {
        return Some(Ok(BASH.replace("VARIABLE", VARIABLE).into_bytes()));
    }
    let shells = Shells::builtins();
    let shell = shells.completer(shell)?;
    let mut script = Vec::new();
    let name = "adjutant";
    let written = shell.write_registration(VARIABLE, name, name, name, &mut script);
    Some(written.map(|()| script))
}

/// Prints the candidates for a command line, which follows `--` in the arguments of the program.
pub(super) fn answer(shell: &str, mut command: Command) -> ExitCode {
    // A message would appear within the user's command line.
    std::panic::set_hook(Box::new(|_| {}));
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(shell) else {
        return terminal::misused(&format!(
            "{VARIABLE} is for completion scripts, and names no shell: {shell}"
        ));
    };
    let words: Vec<OsString> = std::env::args_os()
        .skip_while(|word| word != "--")
        .skip(1)
        .collect();
    command.build();
    let mut out = Vec::new();
    let here = std::fs::canonicalize(".").ok();
    let written = shell.write_complete(&mut command, words, here.as_deref(), &mut out);
    if written.is_err() {
        return ExitCode::FAILURE;
    }
    terminal::exact(&String::from_utf8_lossy(&out));
    ExitCode::SUCCESS
}

/// Returns candidates of these names. Names that a shell would show as control characters are left
/// out.
pub(super) fn candidates(
    names: impl IntoIterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let clean = |text: &str| !text.chars().any(char::is_control);
    names
        .into_iter()
        .filter(|(name, _)| clean(name))
        .map(|(name, about)| {
            let about = about.lines().next().unwrap_or_default();
            let about = Some(about).filter(|about| !about.is_empty() && clean(about));
            CompletionCandidate::new(name).help(about.map(|about| about.to_owned().into()))
        })
        .collect()
}

/// Returns names from the settings of the working directory; none if they cannot be read.
fn from_project(
    names: impl FnOnce(&ProjectContext, &Environment) -> Vec<(String, String)>,
) -> Vec<CompletionCandidate> {
    let environment = Environment::read();
    let Ok(here) = ProjectContext::read(Path::new("."), &environment) else {
        return Vec::new();
    };
    candidates(names(&here, &environment))
}

/// Completes the commands that have a page in the manual.
pub(super) fn manual_pages() -> Vec<CompletionCandidate> {
    candidates(help::page_names().map(|name| (name.to_owned(), String::new())))
}

/// Returns the models that can be used. A model server of this machine that does not answer in time
/// has none: a key press waits for it.
fn usable_models(settings: &Settings, environment: &Environment) -> Registry {
    let sources = ModelSources::new(environment);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let found = runtime.ok().and_then(|runtime| {
        let endpoints = EditorEndpoints::default();
        let search = async {
            tokio::time::timeout(SEARCH_TIMEOUT, sources.with_local(settings, &endpoints)).await
        };
        let found = runtime.block_on(search).ok().flatten();
        runtime.shutdown_background();
        found
    });
    found.unwrap_or_else(|| sources.configured(settings))
}

/// Completes the models that can be used.
pub(super) fn models() -> Vec<CompletionCandidate> {
    from_project(|here, environment| {
        let registry = usable_models(&here.loaded.settings, environment);
        let models = registry.models();
        let models = models
            .iter()
            .map(|model| (model.id.to_string(), model.name.clone()));
        models.collect()
    })
}

/// Completes the efforts of the model that the command line or the settings name.
pub(super) fn variants() -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let named = words.iter().enumerate().find_map(|(at, word)| {
        let given = word.strip_prefix("--model=").map(str::to_owned);
        let is_option = word == "-m" || word == "--model";
        given.or_else(|| is_option.then(|| words.get(at + 1).cloned()).flatten())
    });
    from_project(|here, environment| {
        let settings = &here.loaded.settings;
        let registry = usable_models(settings, environment);
        let wanted = named.as_deref().and_then(ModelRef::parse);
        let wanted = wanted.or_else(|| settings.model.clone());
        let wanted = wanted.unwrap_or_else(|| registry.default_model().id.clone());
        let Ok((model, _)) = registry.find(&wanted) else {
            return Vec::new();
        };
        let efforts = model.efforts.iter();
        efforts
            .map(|effort| (effort.to_string(), String::new()))
            .collect()
    })
}

/// Completes the modes of a session.
pub(super) fn modes() -> Vec<CompletionCandidate> {
    from_project(|here, _| {
        let modes = here.agents.all().filter(|agent| agent.is_mode());
        modes
            .map(|agent| (agent.name.clone(), String::new()))
            .collect()
    })
}

/// Completes all agents.
pub(super) fn agents() -> Vec<CompletionCandidate> {
    from_project(|here, _| {
        let agents = here.agents.all();
        agents
            .map(|agent| (agent.name.clone(), String::new()))
            .collect()
    })
}

/// Completes the commands that `run --command` takes.
pub(super) fn commands() -> Vec<CompletionCandidate> {
    from_project(|here, _| {
        let skills = std::sync::Arc::new(here.skills.clone());
        let uses = CommandConditions {
            has_planner: true,
            has_logins: false,
        };
        let rules = &here.agents.default().rules;
        let known = Commands::new(&here.loaded.settings, &skills, rules, uses).list();
        let known = known.into_iter();
        known
            .map(|command| (command.name.to_string(), String::new()))
            .collect()
    })
}

/// Completes the MCP servers of the settings.
pub(super) fn servers() -> Vec<CompletionCandidate> {
    from_project(|here, _| {
        let servers = here.loaded.settings.mcp.iter();
        servers
            .map(|server| (server.name.clone(), String::new()))
            .collect()
    })
}

/// Completes the providers of the settings and the catalogue.
pub(super) fn providers() -> Vec<CompletionCandidate> {
    from_project(|here, environment| {
        let catalog = Catalog::load(environment);
        let own = here.loaded.settings.providers.iter();
        let own = own.map(|provider| provider.id.clone());
        let known = catalog
            .providers()
            .iter()
            .map(|provider| provider.id.clone());
        let all: std::collections::BTreeSet<String> = own.chain(known).collect();
        let all = all.into_iter();
        all.map(|id| {
            let name = catalog.display_name(&id).to_owned();
            (id, name)
        })
        .collect()
    })
}
