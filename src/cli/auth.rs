//! `adjutant auth`: stored keys and logins. `adjutant acp --login`, which clients run in a
//! terminal, is the same login, preceded by a question for the provider.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use clap_complete::ArgValueCandidates;
use serde_json::{Value, json};

use super::JsonListing;
use super::complete;
use super::credential_input::{ask, ask_secret, line, report_stored};
use super::model_request::{self, ModelQuestion};
use super::project_context::ProjectContext;
use super::{organisation, terminal};
use base::environment::Environment;
use config::settings::{ProviderEntry, Secret, Settings};
use extensions::login::{LoginInterface, PluginCredential, PluginLogin};
use providers::auth::{Auth, Credential};
use providers::catalog::Catalog;
use providers::editor_endpoints::EditorEndpoints;
use providers::http::HttpClient;
use providers::local;
use providers::oauth::{LoginService, LoginStep};
use providers::platform;
use providers::registry::{KeySource, Registry};
use session::models::ModelSources;

/// Options of `adjutant auth`.
pub(super) type Args = super::CommandOrList<Verb, JsonListing>;

/// The subcommands of `auth`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List keys and logins, and where each comes from (default)
    ///
    /// Keys are not shown.
    #[command(alias = "ls")]
    List(JsonListing),
    /// Store an API key, or log in through a browser, with a code, or in a way that a plugin
    /// provides
    ///
    /// In a script, pipe the key in: `adjutant auth login PROVIDER --key < FILE`
    Login {
        /// Provider, such as `anthropic`, or the https address of your organisation; if omitted,
        /// adjutant asks
        #[arg(add = ArgValueCandidates::new(complete::providers))]
        provider: Option<String>,
        /// Store a key, even if the provider supports a login. The key is asked for, or read from a
        /// pipe
        #[arg(long)]
        key: bool,
        /// Log in with a code that you type on any device
        #[arg(long, conflicts_with = "key")]
        device: bool,
    },
    /// Test a key or login with a short question to a model
    ///
    /// Costs a few tokens. Exits with 1 if the model does not answer.
    Test {
        /// Provider [default: that of the default model]
        #[arg(add = ArgValueCandidates::new(complete::providers))]
        provider: Option<String>,
    },
    /// Remove the key or login that adjutant has stored
    Logout {
        /// Provider whose key or login is removed
        #[arg(add = ArgValueCandidates::new(complete::providers))]
        provider: String,
    },
}

pub(super) async fn auth(verb: Verb, environment: &Environment) -> anyhow::Result<u8> {
    match verb {
        Verb::List(JsonListing { json }) => list(json, environment),
        Verb::Login {
            provider,
            key,
            device,
        } => login(provider, key, device, environment).await,
        Verb::Test { provider } => test(provider.as_deref(), environment).await,
        Verb::Logout { provider } => logout(&provider, environment),
    }
}

/// A key or a login that was found.
struct FoundKey {
    provider: String,
    kind: &'static str,
    /// Its file or variable, for display.
    source: String,
    access: KeySource,
}

impl FoundKey {
    /// Describes its source, with its kind unless it is a key.
    fn origin(&self) -> String {
        if self.kind == KEY {
            self.source.clone()
        } else {
            format!("{} ({})", self.source, self.kind)
        }
    }
}

/// The kind of a key, in contrast to logins.
const KEY: &str = "key";

fn list(json: bool, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let settings = &here.loaded.settings;
    let mut found: Vec<FoundKey> = Auth::list(environment)
        .into_iter()
        .map(|stored| FoundKey {
            provider: stored.provider,
            kind: stored.kind,
            source: stored_in(stored.location, environment),
            access: KeySource::Stored,
        })
        .collect();
    let catalog = Catalog::load(environment);
    for known in catalog.providers() {
        let variable = platform::key_variable(&known.env, environment)
            .or_else(|| platform::vertex_token(known.npm.as_deref(), environment));
        if let Some((name, _)) = variable {
            found.push(FoundKey {
                provider: known.id.clone(),
                kind: KEY,
                source: name.to_owned(),
                access: KeySource::Variable(name.to_owned()),
            });
        }
    }
    for provider in settings
        .providers
        .iter()
        .filter(|provider| provider.api_key.is_some())
    {
        found.push(FoundKey {
            provider: provider.id.clone(),
            kind: KEY,
            source: provider.source.clone(),
            access: KeySource::Configured,
        });
    }
    if json {
        let registry = ModelSources::new(environment).configured(settings);
        let all: Vec<Value> = found
            .iter()
            .enumerate()
            .map(|(at, key)| {
                let opens = opened(key, is_first(&found, at), settings, &registry);
                json!({ "provider": key.provider, "kind": key.kind, "from": key.source, "opens": opens })
            })
            .collect();
        terminal::json(&serde_json::to_string_pretty(&all)?);
        return Ok(0);
    }
    if found.is_empty() {
        super::say(
            "No keys. `adjutant auth login PROVIDER` stores one. Model servers on this machine, such as Ollama, \
             need none: `adjutant models` lists them.",
        );
        return Ok(0);
    }
    let registry = ModelSources::new(environment).configured(settings);
    let mut rows: Vec<[String; 3]> = Vec::new();
    for (at, key) in found.iter().enumerate() {
        rows.push([
            key.provider.clone(),
            key.origin(),
            opened(key, is_first(&found, at), settings, &registry),
        ]);
    }
    let table = base::listing::table(&["provider", "from", "opens (its default)"], &rows);
    super::say(table.trim_end());
    Ok(0)
}

/// Returns whether no earlier key is of the same provider and kind.
fn is_first(found: &[FoundKey], at: usize) -> bool {
    let Some((key, earlier)) = found[..=at].split_last() else {
        return true;
    };
    earlier
        .iter()
        .all(|other| (&other.provider, &other.access) != (&key.provider, &key.access))
}

/// Returns the file or variable of stored keys, for display.
fn stored_in(location: &str, environment: &Environment) -> String {
    let path = match location {
        Auth::IN_ADJUTANT_FILE => Some(Auth::path(environment)),
        Auth::IN_OPENCODE_FILE => {
            Auth::opencode_data_dir(environment).map(|data| data.join("auth.json"))
        }
        _ => None,
    };
    let Some(path) = path else {
        let own = environment.var("ADJUTANT_AUTH_CONTENT");
        let name = own.map_or("OPENCODE_AUTH_CONTENT", |_| "ADJUTANT_AUTH_CONTENT");
        return name.to_owned();
    };
    let below_home = environment
        .home
        .as_ref()
        .and_then(|home| path.strip_prefix(home).ok());
    below_home.map_or_else(
        || path.display().to_string(),
        |rest| format!("~/{}", rest.display()),
    )
}

/// Describes the models that a key opens. `is_first` is false for a key of the same kind as an
/// earlier one.
fn opened(key: &FoundKey, is_first: bool, settings: &Settings, registry: &Registry) -> String {
    let id = &key.provider;
    // The plugin decides which models its login opens.
    if key.kind == Auth::PLUGIN_LOGIN {
        return String::new();
    }
    if let Some(why) = registry.why_unsupported(id) {
        return format!("nothing: {}", why.trim_end_matches('.'));
    }
    if settings.general.disabled_providers.contains(id) {
        return "nothing: switched off by disabled_providers".to_owned();
    }
    let summary = registry.providers().iter().find(|facts| facts.id == *id);
    let Some(summary) = summary else {
        return String::new();
    };
    if summary.access != key.access || !is_first {
        return "nothing: another key comes first".to_owned();
    }
    if let Some(why) = summary.obstacle() {
        return format!("nothing: {}", why.trim_end_matches('.'));
    }
    let models = registry.ranked_models(id);
    match models.first() {
        None if summary.accepts_any_model => "any model".to_owned(),
        None => "no model".to_owned(),
        Some(best) if models.len() == 1 => best.id.model.clone(),
        Some(best) => format!("{} models ({})", models.len(), best.id.model),
    }
}

pub(super) async fn login(
    provider: Option<String>,
    key: bool,
    device: bool,
    environment: &Environment,
) -> anyhow::Result<u8> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let settings = here.loaded.settings.clone();
    let catalog = Catalog::load(environment);
    let terminal = std::io::stdin().is_terminal();
    let id = match provider {
        Some(id) => id,
        None if terminal => ask(
            "Provider (such as anthropic, openai, google, openrouter): ",
            environment,
        )?,
        None => {
            terminal::misused("name a provider: `adjutant auth login PROVIDER`");
            return Ok(terminal::MISUSED);
        }
    };
    if organisation::is_address(&id) {
        return organisation::login(&id, environment).await;
    }
    if !key
        && !device
        && let Some(login) = login_methods(&id, &here, environment).await
    {
        return by_plugin(login, environment).await;
    }
    let provider = find(&id, &settings, &catalog)?;
    if provider.base_url.is_none()
        && let Some(why) = platform::why_unsupported(&provider)
    {
        bail!("{why}");
    }
    let name = provider.name.as_deref().unwrap_or(&id).to_owned();
    let service = if key {
        None
    } else {
        LoginService::for_provider(&provider)
    };
    let credential = match service {
        None if device => {
            bail!("{name} has no login with a code; `adjutant auth login {id}` takes its key")
        }
        None => {
            let text = if terminal {
                ask_secret(&format!("Key for {name}: "))?.unwrap_or_default()
            } else {
                line()?
            };
            if text.is_empty() {
                bail!("no key was given; nothing was changed");
            }
            Credential::Key(Secret::new(text))
        }
        Some(service) => {
            let client = Arc::new(HttpClient::new(environment));
            let device = device || !service.has_browser_login();
            if device {
                service
                    .log_in_with_device_code(&client, environment, show)
                    .await?
            } else {
                let instead = format!(
                    "in a script, `adjutant auth login {id} --key < FILE` stores a key instead"
                );
                await_browser_login(
                    service.log_in_with_browser(&client, environment, show),
                    &instead,
                )
                .await??
            }
        }
    };
    let path = Auth::path(environment);
    Auth::store(&path, &id, Some(&credential))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    report_stored(&name, &path, !Auth::read(environment).has(&id));
    Ok(0)
}

/// The time limit of a login in a browser if no user is at a terminal. With one, it is that of the
/// login.
const UNATTENDED_LOGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for a login in a browser: without a terminal, which a script or another program lacks,
/// only for a short time. `instead` is the remedy.
///
/// # Errors
/// If there was no login within that time.
pub(super) async fn await_browser_login<T>(
    login: impl Future<Output = T>,
    instead: &str,
) -> anyhow::Result<T> {
    if std::io::stdin().is_terminal() {
        return Ok(login.await);
    }
    terminal::print_note(&format!(
        "Without a terminal, this waits {} seconds for the browser; {instead}.",
        UNATTENDED_LOGIN_TIMEOUT.as_secs()
    ));
    let done = tokio::time::timeout(UNATTENDED_LOGIN_TIMEOUT, login).await;
    done.with_context(|| {
        format!(
            "there was no login within {} seconds; {instead}",
            UNATTENDED_LOGIN_TIMEOUT.as_secs()
        )
    })
}

/// Returns the login methods that plugins of the user's own offer for a provider.
async fn login_methods(
    id: &str,
    here: &ProjectContext,
    environment: &Environment,
) -> Option<PluginLogin> {
    let directories = (environment, &here.worktree, &*here.cwd);
    match PluginLogin::find(
        id,
        &here.loaded.settings,
        directories,
        Arc::new(TerminalLogin(environment.clone())),
    )
    .await
    {
        Ok(login) => login,
        Err(why) => {
            terminal::print_note(&format!(
                "The login methods of plugins are unavailable: {why}."
            ));
            None
        }
    }
}

/// Logs in through a plugin, and stores the result.
async fn by_plugin(login: PluginLogin, environment: &Environment) -> anyhow::Result<u8> {
    let method = match &login.methods[..] {
        [_] => 0,
        methods => {
            let list = methods
                .iter()
                .enumerate()
                .map(|(at, method)| format!("  {}. {method}", at + 1));
            let list = list.collect::<Vec<_>>().join("\n");
            let answer = ask(&format!("Ways to log in:\n{list}\nNumber: "), environment)?;
            let chosen = answer
                .parse::<usize>()
                .ok()
                .and_then(|number| number.checked_sub(1));
            chosen
                .filter(|at| *at < methods.len())
                .context("there is no method with that number; nothing was changed")?
        }
    };
    let credential = login
        .log_in(method)
        .await
        .map_err(|why| anyhow::anyhow!("{why}; nothing was changed"))?;
    let PluginCredential { provider, entry } = credential;
    let path = Auth::path(environment);
    let changed = Auth::change_file(&path, |all| drop(all.insert(provider.clone(), entry)));
    changed.with_context(|| format!("{} cannot be written", path.display()))?;
    let is_replaced = environment.setting("AUTH_CONTENT").is_some();
    report_stored(&provider, &path, is_replaced);
    Ok(0)
}

/// The terminal as the user interface of a login through a plugin.
struct TerminalLogin(Environment);

impl LoginInterface for TerminalLogin {
    fn ask(&self, question: &str, is_secret: bool) -> Option<String> {
        let line = if is_secret {
            ask_secret(question)
        } else {
            terminal::answer(question, &self.0)
        };
        match line {
            Ok(line) => line.map(|line| line.trim().to_owned()),
            Err(why) => {
                terminal::print_note(&format!("adjutant: {why:#}"));
                None
            }
        }
    }

    fn show(&self, text: &str) {
        show_step(text);
    }
}

/// Asks a small model of a provider for one word.
async fn test(provider: Option<&str>, environment: &Environment) -> anyhow::Result<u8> {
    let here = ProjectContext::read(Path::new("."), environment)?;
    let settings = &here.loaded.settings;
    let mut registry = model_request::registry(settings, environment).await;
    // A local server is asked even if there is a key.
    if provider.is_some_and(local::is_known)
        && let Some(found) = ModelSources::new(environment)
            .with_local(settings, &EditorEndpoints::default())
            .await
    {
        registry = found;
    }
    let default = match &settings.model {
        Some(model) => model.clone(),
        None => registry.default_model().id.clone(),
    };
    let id = provider.map_or_else(|| default.provider.clone(), str::to_owned);
    let id = id.as_str();
    if id == Registry::OFFLINE {
        bail!("there is no key to test. `adjutant auth login PROVIDER` stores one");
    }
    let main = if id == default.provider {
        default
    } else {
        let Some(first) = registry.ranked_models(id).into_iter().next() else {
            find(id, settings, &Catalog::load(environment))?;
            bail!("there is no key for {id}. `adjutant auth login {id}` stores one");
        };
        first.id.clone()
    };
    let small = registry
        .small_model(&main)
        .filter(|small| small.provider == id);
    let (model, provider) = registry.find(&small.unwrap_or(main))?;
    let question = ModelQuestion {
        system: "Answer with one word.".to_owned(),
        text: "Answer with the word yes.".to_owned(),
        temperature: 0.0,
        name: "auth-test",
    };
    let started = Instant::now();
    model_request::send(&model, provider.as_ref(), question).await?;
    super::say(&format!(
        "{id}: works; {} answered in {:.1} s.",
        model.id.model,
        started.elapsed().as_secs_f64()
    ));
    Ok(0)
}

fn logout(id: &str, environment: &Environment) -> anyhow::Result<u8> {
    let id = if organisation::is_address(id) {
        organisation::base(id)
    } else {
        id
    };
    let path = Auth::path(environment);
    let credentials = Auth::list(environment);
    let is_stored = |location: &str| {
        credentials
            .iter()
            .any(|stored| stored.provider == id && stored.location == location)
    };
    if is_stored(Auth::IN_ADJUTANT_FILE) {
        Auth::store(&path, id, None)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        super::say(&format!("{id}: forgotten."));
    }
    if is_stored(Auth::IN_OPENCODE_FILE) {
        super::say(&format!(
            "OpenCode has a key for {id} too, which adjutant uses and does not change; `opencode auth logout` removes it."
        ));
    } else if !is_stored(Auth::IN_ADJUTANT_FILE) {
        bail!("nothing is stored for \"{id}\"; `adjutant auth list` shows where keys come from");
    }
    Ok(0)
}

fn find(id: &str, settings: &Settings, catalog: &Catalog) -> anyhow::Result<ProviderEntry> {
    let own = settings.providers.iter().find(|provider| provider.id == id);
    let known = catalog.find(own.and_then(|own| own.catalog_id.as_deref()).unwrap_or(id));
    match (own, known) {
        (Some(own), Some(known)) => Ok(ProviderEntry {
            id: id.into(),
            ..known.overlaid_with(own)
        }),
        (Some(own), None) => Ok(own.clone()),
        (None, Some(known)) => Ok(known),
        (None, None) => {
            if let Some(name) = local::display_name(id) {
                bail!(
                    "{name} on this machine needs no key: `adjutant models {id}` lists its models"
                )
            }
            let ids = settings
                .providers
                .iter()
                .map(|provider| &provider.id)
                .chain(catalog.providers().iter().map(|known| &known.id));
            let near = base::text::nearest(id, ids.map(String::as_str));
            let near = near
                .map(|near| format!(" Did you mean {near}?"))
                .unwrap_or_default();
            bail!("there is no provider \"{id}\" in the settings or the catalogue.{near}")
        }
    }
}

/// Shows the user a step of a login, on standard error: the result may go elsewhere.
pub(super) fn show_step(text: &str) {
    terminal::print_note(text.strip_suffix('\n').unwrap_or(text));
}

fn show(step: LoginStep) {
    show_step(&match step {
        LoginStep::OpenPage(address) => {
            format!(
                "Open this address in a browser on this machine. `--key` stores a key instead.\n\n  {address}\n"
            )
        }
        LoginStep::EnterCode { address, code } => {
            format!("Open {address} and type this code:\n\n  {code}\n")
        }
    });
}
