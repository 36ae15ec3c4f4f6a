//! `adjutant models`: lists the models with prices, and the missing keys.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use clap_complete::ArgValueCandidates;

use super::complete;
use super::listing::{self, ListEntry};
use super::project_context::ProjectContext;
use base::environment::Environment;
use base::listing::EntryState;
use config::settings::{Rates, Settings};
use config::trust::TrustKind;
use providers::Model;
use providers::catalog::CatalogRefresh;
use providers::editor_endpoints::EditorEndpoints;
use providers::local::{self, WindowCheck};
use providers::registry::{KeySource, ProviderSummary, Registry};
use session::models::ModelSources;
use session::recent::{self, RecentModels};
use transcript::ModelRef;

/// The arguments of `models`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show only this provider, with or without a key, or the models with this text in their names
    #[arg(value_name = "NAME", add = ArgValueCandidates::new(complete::providers))]
    name: Option<String>,
    /// Print JSON: the default model, and the providers with their models
    #[arg(long)]
    json: bool,
    /// Update the catalogue first
    #[arg(long)]
    refresh: bool,
    /// Include providers without a key, and shorten nothing
    #[arg(long)]
    all: bool,
    /// Show only models that can call tools
    #[arg(long)]
    tools: bool,
}

/// The remedy if there is only the offline model, which is not a language model.
const NO_MODEL: &str = "
No model is connected: set a provider's key, such as ANTHROPIC_API_KEY, store it
with `adjutant auth login PROVIDER`, or start a local server, such as Ollama.
";

/// The time limit of reading the models that were chosen before.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// The meaning of the columns.
const LEGEND: &str = "\
* default model; sizes in tokens; prices in US dollars per million tokens
can: R reason, T call tools, I see images, P read PDFs, A hear audio
";

/// The rows at a terminal, divided among the providers.
const MAX_SHORTENED_ROWS: usize = 20;
const MIN_SHORTENED_ROWS: usize = 4;

/// The line after a shortened list.
const SHORTENED: &str = "\
`adjutant models NAME` lists all of a provider or of a name, `--tools` all that
call tools, `--all` also those without a key
";

pub(super) async fn models(args: &Args, environment: &Environment) -> anyhow::Result<u8> {
    let sources = ModelSources::new(environment);
    if args.refresh {
        refresh(&sources, args.json).await?;
    }
    let here = ProjectContext::read(Path::new("."), environment)?;
    let settings = here.loaded.settings.clone();
    let disabled = settings.general.disabled_providers.clone();
    let listed = listed_models(args, &sources, &settings).await;
    let registry = listed.all.as_ref().unwrap_or(&listed.usable);
    let usable = &listed.usable;
    let provider = listed.provider;
    let part = listed.part;
    let recent = recent_models(&here, environment).await;
    let mut default = default_model(&settings, &recent, usable);
    // Another name of a model becomes its name in the list.
    if let Ok((model, _)) = usable.find(&default) {
        default.model.clone_from(&model.id.model);
    }
    let used: Vec<ModelRef> = std::iter::once(default.clone()).chain(recent).collect();
    let default = default.to_string();
    let wanted = |id: &str| provider.is_none_or(|only| only == id);
    let offline = ProviderSummary {
        id: Registry::OFFLINE.into(),
        name: "Offline".into(),
        access: KeySource::NotNeeded,
        address_error: None,
        waits_for_trust: false,
        accepts_any_model: false,
        is_in_catalog: false,
    };
    let all = registry.models();
    let has_part = |model: &Model| {
        let name = model.id.to_string().to_lowercase();
        part.as_deref().is_none_or(|part| name.contains(part))
    };
    let of = |facts: &ProviderSummary| -> Vec<&Model> {
        all.iter()
            .map(AsRef::as_ref)
            .filter(|model| model.id.provider == facts.id)
            .filter(|model| model.tools || !args.tools)
            .filter(|model| has_part(model))
            .collect()
    };
    let providers: Vec<&ProviderSummary> = registry
        .providers()
        .iter()
        .chain([&offline])
        .filter(|facts| wanted(&facts.id))
        .filter(|facts| part.is_none() || !of(facts).is_empty())
        .collect();
    if let (true, Some(name)) = (providers.is_empty(), &args.name) {
        let absent = local::explain_absent_server(name, environment);
        return Err(no_provider(registry, name, absent, args.all));
    }
    if args.json {
        let list: Vec<Value> = providers
            .iter()
            .map(|facts| in_json(facts, &of(facts)))
            .collect();
        let withheld = here.loaded.trust.withheld(TrustKind::Provider);
        let withheld: Vec<String> = withheld.map(ToString::to_string).collect();
        let all = json!({ "default": default, "providers": list, "withheld": withheld });
        super::terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    let is_listed = |name: &str| providers.iter().any(|facts| facts.id == name);
    let off: Vec<ListEntry> = disabled
        .iter()
        .filter(|name| wanted(name) && !is_listed(name))
        .map(|name| switched_off(name))
        .collect();
    let is_shortened =
        super::terminal::is_watched() && args.name.is_none() && !args.all && !args.tools;
    let listing = ModelListing {
        registry,
        used: &used,
        default: &default,
        limit: if is_shortened {
            (MAX_SHORTENED_ROWS / providers.len().max(1)).max(MIN_SHORTENED_ROWS)
        } else {
            usize::MAX
        },
    };
    let mut text = String::new();
    let mut is_cut = false;
    for facts in listing.sorted(providers) {
        is_cut |= listing.add(facts, of(facts), &mut text);
    }
    text.push_str(LEGEND);
    if let Some(Err(missing)) = settings.model.as_ref().map(|model| usable.find(model)) {
        let _ = writeln!(text, "\n{missing} It is the default in your settings.");
    }
    if let (Some(_), Some(name)) = (&part, &args.name)
        && let Some(why) = registry.obstacle(name)
    {
        let _ = writeln!(
            text,
            "\n{why} `adjutant models --all {name}` lists its models."
        );
    }
    if is_cut {
        text.push_str(SHORTENED);
    }
    if registry.is_offline_only() {
        text.push_str(NO_MODEL);
        if let Some(why) = local::explain_stopped_server(environment) {
            let _ = writeln!(text, "{why}");
        }
    }
    let mut rest = listing::withheld(&here.loaded.trust, TrustKind::Provider, "provider");
    rest.extend(off);
    if !rest.is_empty() {
        text.push('\n');
    }
    text.push_str(&listing::list(&rest));
    super::say(text.trim_end());
    Ok(0)
}

/// The models to list, and the meaning of the name on the command line.
struct ListedModels<'a> {
    /// The models that can be used, of which one is the default.
    usable: Registry,
    /// All known models, if they are to be listed instead.
    all: Option<Registry>,
    /// The provider that is named.
    provider: Option<&'a str>,
    /// The part of the names of models that is given instead, in lower case.
    part: Option<String>,
}

/// Finds the models to list.
async fn listed_models<'a>(
    args: &'a Args,
    sources: &ModelSources,
    settings: &Settings,
) -> ListedModels<'a> {
    let mut usable = sources.configured(settings);
    let known = args.all.then(|| sources.with_all_models(settings));
    let is_provider = |name: &str| {
        name == Registry::OFFLINE
            || local::is_known(name)
            || has_provider(known.as_ref().unwrap_or(&usable), name)
    };
    let (mut provider, mut part) = match args.name.as_deref() {
        Some(name) if is_provider(name) => (Some(name), None),
        name => (None, name.map(str::to_lowercase)),
    };
    // A local server that the command line or the settings name is asked in addition to a key, and so
    // is each of them for the name of a model.
    let named = settings.model.as_ref().map(|model| model.provider.as_str());
    let is_named = |id: Option<&str>| id.is_some_and(local::is_known);
    if (usable.is_offline_only()
        || part.is_some()
        || args.all
        || is_named(provider)
        || is_named(named))
        && let Some(found) = sources
            .with_local(settings, &EditorEndpoints::default())
            .await
    {
        usable = found;
    }
    // After the local servers have answered: they are among the known ones then.
    let mut all = args.all.then(|| sources.with_all_models(settings));
    // A model that is listed precedes a provider without a key of the same name.
    if let (Some(words), Some(name)) = (&part, args.name.as_deref()) {
        let listed = all.as_ref().unwrap_or(&usable);
        let is_model = |model: &Arc<Model>| model.id.to_string().to_lowercase().contains(words);
        let is_provider = || {
            listed.why_unsupported(name).is_some()
                || has_provider(&sources.with_all_models(settings), name)
        };
        if !listed.models().iter().any(is_model) && is_provider() {
            provider = Some(name);
            part = None;
        }
    }
    // A provider named on the command line is shown with or without a key.
    if all.is_none()
        && let Some(name) = provider
        && name != Registry::OFFLINE
        && !has_provider(&usable, name)
    {
        let known = sources.with_all_models(settings);
        all = has_provider(&known, name).then_some(known);
    }
    ListedModels {
        usable,
        all,
        provider,
        part,
    }
}

fn has_provider(registry: &Registry, name: &str) -> bool {
    registry.providers().iter().any(|facts| facts.id == name)
}

fn switched_off(provider: &str) -> ListEntry {
    ListEntry {
        name: base::text::escaped(provider),
        state: EntryState::Off,
        about: "switched off by disabled_providers in the settings".to_owned(),
    }
}

/// Updates the catalogue and reports the result.
async fn refresh(sources: &ModelSources, is_silent: bool) -> anyhow::Result<()> {
    let result = match sources.refresh().await? {
        CatalogRefresh::Updated(count) => format!("Updated the catalogue: {count} models."),
        CatalogRefresh::Unchanged => "The catalogue is up to date.".to_owned(),
    };
    if !is_silent {
        super::say(&result);
    }
    Ok(())
}

/// Returns the error about a provider that is not known, or not supported.
/// `absent` is the reason why a known local server has no models. `is_all`: all models were searched.
fn no_provider(
    registry: &Registry,
    name: &str,
    absent: Option<String>,
    is_all: bool,
) -> anyhow::Error {
    if let Some(why) = registry.why_unsupported(name) {
        return anyhow::anyhow!("{why}");
    }
    if let Some(why) = absent {
        return anyhow::anyhow!("{why}");
    }
    let known: Vec<&str> = registry
        .providers()
        .iter()
        .map(|facts| facts.id.as_str())
        .collect();
    let provider = base::text::nearest(name, known.iter().copied());
    let begins_alike = |provider: &&str| provider.get(..2) == name.get(..2);
    let near = match provider.filter(begins_alike) {
        Some(provider) => vec![provider.to_owned()],
        None => registry.nearest(name),
    };
    let near = if near.is_empty() {
        String::new()
    } else {
        format!("Did you mean {}? ", base::text::alternatives(&near))
    };
    if is_all {
        return anyhow::anyhow!(
            "no provider \"{name}\". {near}None of the models to list has it in its name either."
        );
    }
    anyhow::anyhow!(
        "no provider \"{name}\". {near}No model that you can use has it in its name either; `adjutant models --all {name}` searches all that are known."
    )
}

/// Returns the models chosen in this project, the newest first.
pub(super) async fn recent_models(
    here: &ProjectContext,
    environment: &Environment,
) -> Vec<ModelRef> {
    let store = session::user_store::open_store(environment);
    let recent = async {
        let project = recent::project_name(&store, &here.worktree).await;
        RecentModels::new(&store, project).read().await
    };
    // A database may be away.
    let recent = tokio::time::timeout(STORE_TIMEOUT, recent).await;
    recent.unwrap_or_default()
}

/// Returns the model of a new session: that of the settings, or else the available one that was
/// chosen last in this project, or else the best one.
pub(super) fn default_model(
    settings: &Settings,
    recent: &[ModelRef],
    registry: &Registry,
) -> ModelRef {
    let chosen = || recent.iter().find(|model| registry.find(model).is_ok());
    settings
        .model
        .as_ref()
        .or_else(chosen)
        .cloned()
        .unwrap_or_else(|| registry.default_model().id.clone())
}

/// The order and the length of the list of models.
struct ModelListing<'a> {
    registry: &'a Registry,
    /// The default model, and those chosen in this project.
    used: &'a [ModelRef],
    default: &'a str,
    /// The most rows of a provider.
    limit: usize,
}

impl ModelListing<'_> {
    /// Returns the providers in the order of their use, those without a key last.
    fn sorted<'p>(&self, mut providers: Vec<&'p ProviderSummary>) -> Vec<&'p ProviderSummary> {
        providers.sort_by_key(|facts| {
            let is_missing = facts.obstacle().is_some();
            let use_of_first = self.used.iter().position(|it| it.provider == facts.id);
            let is_offline = facts.id == Registry::OFFLINE;
            (is_missing, is_offline, use_of_first.unwrap_or(usize::MAX))
        });
        providers
    }

    /// Adds a provider with a table of its models: those that are used, then the best. Returns
    /// whether some are left out.
    fn add(&self, facts: &ProviderSummary, mut models: Vec<&Model>, out: &mut String) -> bool {
        let ranked = self.registry.ranked_models(&facts.id);
        models.sort_by_cached_key(|model| {
            let is_this = |other: &ModelRef| {
                (&other.provider, &other.model) == (&model.id.provider, &model.id.model)
            };
            let use_of = self.used.iter().position(is_this);
            let rank = ranked.iter().position(|other| is_this(&other.id));
            (use_of.unwrap_or(usize::MAX), rank)
        });
        let hidden = models.len().saturating_sub(self.limit);
        models.truncate(self.limit);
        let _ = writeln!(out, "{} ({}): {}", facts.id, facts.name, facts.describe());
        if facts.accepts_any_model {
            let _ = writeln!(out, "  any model is tried: {}/NAME", facts.id);
        }
        let rows: Vec<[String; 5]> = models
            .iter()
            .map(|model| row(model, self.default))
            .collect();
        let head = ["", "model", "context/out", "$ in/out", "can"];
        out.push_str(&base::listing::table_of_names(1, &head, &rows));
        if hidden > 0 {
            let _ = writeln!(out, "   … {hidden} more: `adjutant models {}`", facts.id);
        }
        for note in window_notes(&models) {
            let _ = writeln!(out, "{note}");
        }
        out.push('\n');
        hidden > 0
    }
}

/// Returns notes about the context windows of models of a local server: a line for each that is
/// small, and one line about those that are not loaded.
fn window_notes(models: &[&Model]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut unknown = None;
    for model in models.iter().filter(|model| model.tools) {
        match local::check_context_window(model) {
            WindowCheck::Sufficient => {}
            WindowCheck::Unknown(note) => unknown = unknown.or(Some(note)),
            WindowCheck::Small(note) | WindowCheck::TooSmall(note) => notes.push(note),
        }
    }
    notes.extend(unknown);
    notes
}

/// Returns the row of a model: the mark of the default, its name as `-m` takes it, its limits, its
/// price, and its abilities. Unknown ones are empty.
fn row(model: &Model, default: &str) -> [String; 5] {
    let mark = if model.id.to_string() == default {
        "*"
    } else {
        " "
    };
    let limits = match (model.context, model.output) {
        (Some(context), Some(output)) => format!("{} / {}", tokens(context), tokens(output)),
        (Some(context), None) => tokens(context),
        (None, _) => String::new(),
    };
    let price = model.price.as_ref().map(|price| dollars(&price.base));
    [
        mark.to_owned(),
        model.id.to_string(),
        limits,
        price.unwrap_or_default(),
        letters(model),
    ]
}

/// Returns the abilities that a model may have, each with its letter in the table.
fn possible_abilities(model: &Model) -> [(bool, &'static str, char); 5] {
    [
        (model.reasoning, "reasoning", 'R'),
        (model.tools, "tools", 'T'),
        (model.images.is_supported(), "images", 'I'),
        (model.pdf, "pdf", 'P'),
        (model.audio, "audio", 'A'),
    ]
}

fn abilities(model: &Model) -> Vec<&'static str> {
    possible_abilities(model)
        .into_iter()
        .filter(|(can, ..)| *can)
        .map(|(_, what, _)| what)
        .collect()
}

/// Returns the abilities of a model as letters, with a hyphen for one that it does not have.
fn letters(model: &Model) -> String {
    let all = possible_abilities(model).into_iter();
    all.map(|(can, _, letter)| if can { letter } else { '-' })
        .collect()
}

/// Formats a number of tokens in three or four characters.
pub(super) fn tokens(count: u64) -> String {
    match count {
        1_000_000.. if count.is_multiple_of(100_000) => {
            format!(
                "{}M",
                format!("{:.1}", per(count, 1e6)).trim_end_matches(".0")
            )
        }
        _ => base::text::thousands(count),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn per(count: u64, unit: f64) -> f64 {
    count as f64 / unit
}

fn dollars(rates: &Rates) -> String {
    if *rates == Rates::default() {
        "free".to_owned()
    } else {
        format!("${} / ${}", rates.input, rates.output)
    }
}

fn in_json(facts: &ProviderSummary, models: &Vec<&Model>) -> Value {
    let missing = facts.obstacle();
    let key = match &facts.access {
        KeySource::Configured => Some("settings"),
        KeySource::Editor => Some("editor"),
        KeySource::Stored => Some("auth.json"),
        KeySource::Variable(name) => Some(name.as_str()),
        KeySource::NotNeeded | KeySource::UnsetVariable(_) | KeySource::Missing(_) => None,
    };
    let rates = |rates: &Rates| {
        json!({ "input": rates.input, "output": rates.output, "cacheRead": rates.cache_read,
            "cacheWrite": rates.cache_write })
    };
    let model = |model: &&Model| {
        let price = model.price.as_ref().map(|price| {
            let mut all = rates(&price.base);
            let longer =
                |(size, of): &(u64, Rates)| json!({ "inputOver": size, "price": rates(of) });
            if !price.long_requests.is_empty() {
                all["longer"] = price.long_requests.iter().map(longer).collect();
            }
            all
        });
        json!({ "id": model.id.to_string(), "name": model.name, "context": model.context, "input": model.input,
            "output": model.output, "price": price, "abilities": abilities(model), "efforts": model.efforts })
    };
    json!({ "id": facts.id, "name": facts.name, "hasKey": missing.is_none(), "key": key, "missing": missing,
        "anyModel": facts.accepts_any_model, "models": models.iter().map(model).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_and_prices_are_short() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (4096, "4.1k"),
            (200_000, "200k"),
            (1_000_000, "1M"),
            (1_500_000, "1.5M"),
        ];
        for (count, expected) in cases {
            assert_eq!(tokens(count), expected);
        }
        assert_eq!(tokens(1_048_576), "1M");
        assert_eq!(dollars(&Rates::new(0.3, 15.0, None, None)), "$0.3 / $15");
        assert_eq!(dollars(&Rates::default()), "free");
    }
}
