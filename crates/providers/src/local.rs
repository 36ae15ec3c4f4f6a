//! Model servers on this machine: Ollama, LM Studio, llama.cpp and vLLM.
//!
//! [`find_servers`] searches for them if no provider is configured, or if the user names one of
//! their models: all at once, and for a limited time. `details.rs` reads the abilities of the models
//! and their actual context windows from the servers' own APIs. Other functions explain to the user
//! how to start a server, fetch a model, or enlarge a context window.
//!
//! `ADJUTANT_LOCAL_SERVERS` selects the servers, for users whose server has another port or who do
//! not want the search. It contains ports of this machine and no addresses, so that no request
//! leaves the machine because of it. The servers' own variables (`OLLAMA_HOST`, `LLAMA_ARG_HOST`,
//! `LLAMA_ARG_PORT`) are respected.

mod details;

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use self::details::ModelDetails;
use super::http::HttpClient;
use crate::entry::{ModelEntry, ProviderEntry};
use crate::{Error, Model};
use base::environment::{Environment, private_dir, write_private_file};
use transcript::ModelRef;

/// The time limit of the whole search.
pub const SEARCH_TIMEOUT: Duration = Duration::from_secs(2);

/// The time limit of loading a model.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// The maximum number of models of a server whose details are requested.
const MAX_DETAILED: usize = 64;

/// The maximum size of a response, in bytes. Ollama describes a model with its template and
/// licence.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// A server that may run on this machine.
#[derive(Debug, Clone)]
pub struct LocalServer {
    /// The provider's id.
    pub id: &'static str,
    /// The display name.
    pub name: &'static str,
    pub port: u16,
    /// The address without a path.
    origin: String,
    /// The environment variable that contains the address; `None` for the usual address.
    variable: Option<&'static str>,
    /// The context window in tokens, from the server's environment variable, which this process may
    /// have too; `None` if it is not set here.
    context: Option<u64>,
}

/// The properties of a known kind of server.
struct KnownServer {
    /// The provider's id.
    id: &'static str,
    /// The display name.
    name: &'static str,
    /// The usual port.
    port: u16,
    /// The command that starts the server.
    start: &'static str,
    /// The command that fetches a model, without the model's name; empty if there is none.
    fetch: &'static str,
    /// The environment variable of its address; empty if there is none.
    host_variable: &'static str,
    /// The environment variable of its port; empty if there is none.
    port_variable: &'static str,
    /// The environment variable of the context window; empty if there is none.
    context_variable: &'static str,
}

/// The environment variable that selects the servers to search for; without it, these are all known
/// servers at their usual ports.
pub const SERVERS_VARIABLE: &str = "ADJUTANT_LOCAL_SERVERS";

/// The value of [`SERVERS_VARIABLE`] that turns the search off.
pub const NONE: &str = "none";

const OLLAMA: &str = "ollama";
const LM_STUDIO: &str = "lmstudio";
const LLAMA_CPP: &str = "llama.cpp";
const VLLM: &str = "vllm";

/// The known servers, at their usual ports.
static SERVERS: [KnownServer; 4] = [
    KnownServer {
        id: OLLAMA,
        name: "Ollama",
        port: 11434,
        start: "ollama serve",
        fetch: "ollama pull",
        host_variable: "OLLAMA_HOST",
        port_variable: "",
        context_variable: "OLLAMA_CONTEXT_LENGTH",
    },
    KnownServer {
        id: LM_STUDIO,
        name: "LM Studio",
        port: 1234,
        start: "lms server start",
        fetch: "lms get",
        host_variable: "",
        port_variable: "",
        context_variable: "",
    },
    KnownServer {
        id: LLAMA_CPP,
        name: "llama.cpp",
        port: 8080,
        start: "llama-server",
        fetch: "",
        host_variable: "LLAMA_ARG_HOST",
        port_variable: "LLAMA_ARG_PORT",
        context_variable: "",
    },
    KnownServer {
        id: VLLM,
        name: "vLLM",
        port: 8000,
        start: "vllm serve",
        fetch: "",
        host_variable: "",
        port_variable: "",
        context_variable: "",
    },
];

/// True if a provider's id is that of a known local server.
pub fn is_known(id: &str) -> bool {
    SERVERS.iter().any(|server| server.id == id)
}

/// Returns the display name of a known local server; `None` for other ids.
pub fn display_name(id: &str) -> Option<&'static str> {
    let known = SERVERS.iter().find(|server| server.id == id)?;
    Some(known.name)
}

/// The tag of an Ollama model whose name has none.
const DEFAULT_TAG: &str = ":latest";

/// Returns the second name of a model of Ollama, with or without the default tag: `llama3.2` and
/// `llama3.2:latest` are the same model. `None` for other tags and servers.
pub(crate) fn alternative_name(model: &ModelRef) -> Option<String> {
    let name = &model.model;
    if model.provider != OLLAMA {
        return None;
    }
    if let Some(untagged) = name.strip_suffix(DEFAULT_TAG) {
        return Some(untagged.to_owned());
    }
    // A colon before the last slash belongs to the port of another registry.
    let last = name.rsplit('/').next().unwrap_or(name);
    (!last.contains(':')).then(|| format!("{name}{DEFAULT_TAG}"))
}

/// True if two references are to the same model, even with different efforts.
pub fn is_same_model(one: &ModelRef, other: &ModelRef) -> bool {
    one.provider == other.provider
        && (one.model == other.model || alternative_name(one).as_ref() == Some(&other.model))
}

/// Returns the command that starts the local server of a provider, which is recognised by its id or
/// its port; `None` if it is no known local server.
pub fn start_command(provider: &str, base_url: &str) -> Option<&'static str> {
    find_known_server(provider, base_url).map(|known| known.start)
}

/// Returns the command that fetches a model for the local server of a provider, which is recognised
/// by its id or its port; `None` if there is no such command.
pub(crate) fn fetch_command(provider: &str, base_url: &str, model: &str) -> Option<String> {
    let known = find_known_server(provider, base_url).filter(|known| !known.fetch.is_empty())?;
    Some(format!("{} {model}", known.fetch))
}

/// Returns the known server with the provider's id, otherwise the one with the port of the address.
fn find_known_server(provider: &str, base_url: &str) -> Option<&'static KnownServer> {
    let url = reqwest::Url::parse(base_url).ok();
    let port = url.and_then(|url| url.port());
    let named = SERVERS.iter().find(|server| server.id == provider);
    let found = named.or_else(|| SERVERS.iter().find(|server| Some(server.port) == port))?;
    // Other programs use the ports of llama.cpp and vLLM as well.
    let is_certain = named.is_some() || found.port != 8080 && found.port != 8000;
    is_certain.then_some(found)
}

/// Returns the sentence for the user about a server that does not answer, with the command that
/// starts it; `None` if it is not among the servers to search for.
pub fn explain_absent_server(provider: &str, environment: &Environment) -> Option<String> {
    let known = SERVERS.iter().find(|server| server.id == provider)?;
    let servers = servers_to_search(environment).ok()?;
    let server = servers.iter().find(|server| server.id == provider)?;
    let (_, address) = server.origin.split_once("://")?;
    let (source, correction) = match server.variable {
        Some(variable) => (
            format!(", from {variable}"),
            format!(", correct {variable}"),
        ),
        None => Default::default(),
    };
    Some(format!(
        "{} does not answer at {address}{source}: start it with `{}`{correction}, or choose another model (`adjutant models`).",
        known.name, known.start
    ))
}

/// Stores the ids of the servers that have answered, for [`explain_stopped_server`].
pub fn remember_servers<'a>(environment: &Environment, servers: impl Iterator<Item = &'a str>) {
    let ids: Vec<&str> = servers.collect();
    if read_answered_servers(environment) == ids {
        return;
    }
    let text = serde_json::to_vec(&ids).unwrap_or_default();
    let written = private_dir(&environment.dirs.state)
        .and_then(|()| write_private_file(&answered_servers_path(environment), &text));
    if let Err(e) = written {
        tracing::info!("the model servers that have answered are not remembered: {e}");
    }
}

/// Reads the ids that [`remember_servers`] has stored; empty if there are none.
fn read_answered_servers(environment: &Environment) -> Vec<String> {
    let text = std::fs::read(answered_servers_path(environment)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn answered_servers_path(environment: &Environment) -> PathBuf {
    environment.dirs.state.join("local-servers.json")
}

/// Returns the sentence for the user about a server that is installed or set up on this machine, or
/// has answered before, and is not running now; `None` if there is no such server. For a search that
/// has found no server.
pub fn explain_stopped_server(environment: &Environment) -> Option<String> {
    let folders = environment.path();
    let remembered = read_answered_servers(environment);
    let is_set_up = |server: &&LocalServer| {
        let known = SERVERS.iter().find(|known| known.id == server.id);
        let program = known.and_then(|known| known.start.split(' ').next());
        let is_installed =
            program.is_some_and(|name| folders.iter().any(|folder| folder.join(name).is_file()));
        server.variable.is_some()
            || is_installed
            || remembered.iter().any(|known| known == server.id)
    };
    let servers = servers_to_search(environment).ok()?;
    explain_absent_server(servers.iter().find(is_set_up)?.id, environment)
}

/// The recommended context window of models on this machine, in tokens.
pub const RECOMMENDED_CONTEXT: u64 = 64_000;

/// The smallest context window, in tokens, for adjutant's instructions, all its tools and a
/// conversation.
const MIN_CONTEXT: u64 = 8_192;

/// The smallest context window, in tokens, for adjutant's instructions and the essential tools.
const MIN_REDUCED_CONTEXT: u64 = 4_000;

/// The context window of a model of a local server, compared with the one that adjutant needs. The
/// texts are sentences for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowCheck {
    /// Large enough, or the model is not of a local server.
    Sufficient,
    /// Unknown until the server loads the model; with the remedy.
    Unknown(String),
    /// Smaller than recommended; with the remedy.
    Small(String),
    /// So small that the first request fails; with the remedy.
    TooSmall(String),
}

/// Checks the context window of a model.
pub fn check_context_window(model: &Model) -> WindowCheck {
    let Some(remedy) = explain_larger_context(model, RECOMMENDED_CONTEXT) else {
        return WindowCheck::Sufficient;
    };
    let context = model.context;
    let model = &model.id;
    match context {
        None if must_be_loaded(model, context) => WindowCheck::Unknown(format!(
            "The context window of {model} is known once it is loaded; Ollama's default may be 4k, \
             in which few tools have room. {remedy}"
        )),
        None => WindowCheck::Sufficient,
        Some(context) if context >= RECOMMENDED_CONTEXT / 2 => WindowCheck::Sufficient,
        Some(context) => {
            let is_too_small = context < MIN_REDUCED_CONTEXT;
            let verdict = match context {
                _ if is_too_small => "too small for instructions and tools",
                ..MIN_CONTEXT => {
                    "so small that only a few tools are offered and conversations are summarised early"
                }
                _ => "small, so conversations are summarised early",
            };
            let text = format!(
                "The context window of {model} has {} tokens: {verdict}. {remedy}",
                base::text::thousands(context)
            );
            if is_too_small {
                WindowCheck::TooSmall(text)
            } else {
                WindowCheck::Small(text)
            }
        }
    }
}

/// Returns the notice that only some tools (`tools`) are offered because the context window is
/// small, with the remedy.
pub fn explain_reduced_tools(model: &Model, tools: &[&str]) -> String {
    let remedy = explain_larger_context(model, RECOMMENDED_CONTEXT)
        .unwrap_or_else(|| "Choose a model with a larger window for all tools.".to_owned());
    format!(
        "The context window of {} has {} tokens, so only these tools are offered: {}. {remedy}",
        model.id,
        base::text::thousands(model.window()),
        tools.join(", ")
    )
}

/// Returns the instruction that gives a model of a local server a context window of `tokens`;
/// `None` for other models.
pub fn explain_larger_context(model: &Model, tokens: u64) -> Option<String> {
    // The server does not know an alias of the settings.
    let name = shell_safe_name(&model.api_id);
    match model.id.provider.as_str() {
        // Ollama prefers the model's own parameter to the variable.
        OLLAMA if model.has_own_window => Some(format!(
            "The model sets its own window; give it a larger one: \
             `printf 'FROM {name}\\nPARAMETER num_ctx {tokens}\\n' | ollama create {name} -f /dev/stdin`."
        )),
        OLLAMA => Some(format!(
            "Start Ollama with a larger context: `OLLAMA_CONTEXT_LENGTH={tokens} ollama serve`."
        )),
        LM_STUDIO => Some(format!(
            "Load the model with a larger context: `lms load {name} --context-length {tokens}`."
        )),
        LLAMA_CPP => Some(format!(
            "Start llama.cpp's server with a larger context: `llama-server -c {tokens}` and your other options."
        )),
        VLLM => Some(format!(
            "Start vLLM with a larger context: `vllm serve {name} --max-model-len {tokens}`."
        )),
        _ => None,
    }
}

/// Returns the name of a model for a command line that the user may copy. A server can invent names,
/// so a name with characters that a shell interprets is replaced by a placeholder.
fn shell_safe_name(name: &str) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/@-".contains(c);
    if name.chars().all(is_plain) {
        name
    } else {
        "MODEL"
    }
}

/// Returns the servers to search for: those that [`SERVERS_VARIABLE`] names, otherwise all known
/// ones. Without a port there, a server is at the address in its own variables, or at its usual
/// port.
///
/// # Errors
/// A sentence for the user if [`SERVERS_VARIABLE`] is invalid.
pub fn servers_to_search(environment: &Environment) -> Result<Vec<LocalServer>, String> {
    let Some(list) = environment.var(SERVERS_VARIABLE) else {
        return Ok(SERVERS.iter().map(|known| known.at(environment)).collect());
    };
    if list.trim() == NONE {
        return Ok(Vec::new());
    }
    list.split(',')
        .map(|entry| parse_server(entry.trim(), environment))
        .collect()
}

/// Parses an entry of [`SERVERS_VARIABLE`]: `NAME=PORT`, or only `NAME`.
fn parse_server(entry: &str, environment: &Environment) -> Result<LocalServer, String> {
    let (name, port) = entry
        .split_once('=')
        .map_or((entry, None), |(name, port)| (name, Some(port)));
    let known = SERVERS
        .iter()
        .find(|server| server.id == name)
        .ok_or_else(|| {
            let names: Vec<&str> = SERVERS.iter().map(|server| server.id).collect();
            format!(
                "{SERVERS_VARIABLE}: there is no server \"{name}\"; write {NONE}, or some of {}",
                names.join(", ")
            )
        })?;
    let usual = known.at(environment);
    let Some(port) = port else {
        return Ok(usual);
    };
    let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
        format!(
            "{SERVERS_VARIABLE}: \"{port}\" is not a port of {name}; write {name}={}, for example",
            known.port
        )
    })?;
    Ok(LocalServer {
        port,
        origin: format!("http://127.0.0.1:{port}"),
        variable: Some(SERVERS_VARIABLE),
        ..usual
    })
}

impl KnownServer {
    /// Returns the server at the address of its own variables, or at its usual port.
    fn at(&self, environment: &Environment) -> LocalServer {
        let number = |name: &str| {
            environment
                .var(name)
                .and_then(|text| text.trim().parse().ok())
        };
        let port = number(self.port_variable)
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(self.port);
        let host = environment.var(self.host_variable).unwrap_or_default();
        let without_host = origin("", port);
        let (origin, own_port) = origin(host, port);
        // A variable without effect, such as an invalid one, is not the source of the address.
        let variable = if (&origin, own_port) != (&without_host.0, without_host.1) {
            Some(self.host_variable)
        } else if port != self.port {
            Some(self.port_variable)
        } else {
            None
        };
        LocalServer {
            id: self.id,
            name: self.name,
            port: own_port,
            origin,
            variable,
            context: number(self.context_variable),
        }
    }
}

/// Returns the address and the port of a server from the value of its variable: a host, a port or
/// both, with or without a scheme; `port` is the default. `0.0.0.0` and `[::]`, at which a server
/// listens on all interfaces, mean this machine. An invalid value means the usual address.
fn origin(host: &str, port: u16) -> (String, u16) {
    let usual = || (format!("http://127.0.0.1:{port}"), port);
    let host = host.trim().trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = rest
        .strip_prefix(':')
        .map_or_else(|| rest.to_owned(), |port| format!("127.0.0.1:{port}"));
    // A path is a Unix socket, for which we have no client.
    if rest.is_empty() || rest.starts_with('/') {
        return usual();
    }
    let Ok(mut url) = reqwest::Url::parse(&format!("{scheme}://{rest}")) else {
        return usual();
    };
    if !matches!(url.scheme(), "http" | "https") {
        return usual();
    }
    let is_everywhere = matches!(url.host_str(), Some("0.0.0.0" | "[::]"));
    if is_everywhere && url.set_host(Some("127.0.0.1")).is_err() {
        return usual();
    }
    // Ollama takes the usual port of the web if there is a scheme. A parsed address has no port if
    // it is the usual one, even if the text has it.
    let has_scheme = host.contains("://");
    let (authority, _) = rest.split_once('/').unwrap_or((&rest, ""));
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    if !has_port && !has_scheme && url.set_port(Some(port)).is_err() {
        return usual();
    }
    let port = url.port_or_known_default().unwrap_or(port);
    let address = url.origin().ascii_serialization();
    (address, port)
}

/// The result of the search for one server.
#[derive(Debug)]
pub enum ServerSearchResult {
    /// The server with its models and their details.
    Found(Box<ProviderEntry>),
    /// The server with its models; their details did not arrive in time.
    WithoutDetails(Box<ProviderEntry>),
    /// The server with this id is there, but busy: it did not answer in time, or refused the request
    /// for now.
    Busy(&'static str),
    /// There is no server with this id.
    Absent(&'static str),
}

/// Requests the models of each server, in parallel and within [`SEARCH_TIMEOUT`]. Returns one result
/// for each server.
pub async fn find_servers(client: &HttpClient, servers: &[LocalServer]) -> Vec<ServerSearchResult> {
    let end = Instant::now() + SEARCH_TIMEOUT;
    join_all(servers.iter().map(|server| server.find(client, end))).await
}

/// Makes Ollama load a model, as its first request does, so that its context window is known. A
/// large model from a slow disk takes minutes.
///
/// # Errors
/// The reason why the server did not load it.
pub async fn load_model(client: &HttpClient, base_url: &str, model: &str) -> Result<(), Error> {
    let origin = base_url.trim_end_matches('/').trim_end_matches("/v1");
    let url = format!("{origin}/api/generate");
    let body = json!({"model": model, "stream": false});
    post(client, &url, &body, LOAD_TIMEOUT).await.map(drop)
}

/// True if the context window of a model is only known after [`load_model`].
pub fn must_be_loaded(model: &ModelRef, context: Option<u64>) -> bool {
    model.provider == OLLAMA && context.is_none()
}

/// Posts JSON to a server's own API, and returns the JSON of the response; `null` if it is
/// something else.
async fn post(
    client: &HttpClient,
    url: &str,
    body: &Value,
    limit: Duration,
) -> Result<Value, Error> {
    let response = client
        .exchange_json("The model server", url, body, limit, MAX_RESPONSE_BYTES)
        .await?;
    if !response.status.is_success() {
        return Err(Error::BadRequest(format!(
            "The model server answered {}.",
            response.status
        )));
    }
    Ok(serde_json::from_slice(&response.body).unwrap_or_default())
}

impl LocalServer {
    /// Requests the models of the server until `end`.
    async fn find(&self, client: &HttpClient, end: Instant) -> ServerSearchResult {
        let base_url = format!("{}/v1", self.origin);
        let url = format!("{base_url}/models");
        let list = timeout_at(end, client.get(self.name, &url, &[], MAX_RESPONSE_BYTES)).await;
        let body = match list {
            Err(_) => return ServerSearchResult::Busy(self.id),
            // llama.cpp while it loads a model, or a server that requires a key.
            Ok(Err(Error::Overloaded { .. } | Error::RateLimited { .. } | Error::Auth(_))) => {
                return ServerSearchResult::Busy(self.id);
            }
            Ok(Err(_)) => return ServerSearchResult::Absent(self.id),
            Ok(Ok(body)) => body,
        };
        let mut models = models(&body);
        if models.is_empty() {
            return ServerSearchResult::Absent(self.id);
        }
        // Without details the list is still of use.
        let mut is_complete = false;
        if let Ok(details) = timeout_at(end, self.details(client, &models)).await {
            is_complete = true;
            for model in &mut models {
                if let Some(details) = details.iter().find(|details| details.model == model.key) {
                    details.apply_to(model);
                }
            }
            models.retain(|model| {
                details
                    .iter()
                    .all(|details| details.is_chat || details.model != model.key)
            });
        }
        if self.id == OLLAMA {
            for model in &mut models {
                model.context = model.context.or(self.context);
            }
        }
        let server = Box::new(ProviderEntry {
            id: self.id.into(),
            name: Some(self.name.into()),
            base_url: Some(base_url),
            address_variable: self.variable.map(str::to_owned),
            models,
            ..ProviderEntry::default()
        });
        if is_complete {
            ServerSearchResult::Found(server)
        } else {
            ServerSearchResult::WithoutDetails(server)
        }
    }

    /// Requests the details of the models from the server's own API.
    async fn details(&self, client: &HttpClient, models: &[ModelEntry]) -> Vec<ModelDetails> {
        let get = async |path: &str| -> Value {
            let url = format!("{}{path}", self.origin);
            let body = client.get(self.name, &url, &[], MAX_RESPONSE_BYTES).await;
            body.ok()
                .and_then(|body| serde_json::from_slice(&body).ok())
                .unwrap_or_default()
        };
        match self.id {
            OLLAMA => {
                let show = async |model: &ModelEntry| {
                    let url = format!("{}/api/show", self.origin);
                    let body = json!({"model": model.key});
                    let shown = post(client, &url, &body, SEARCH_TIMEOUT).await;
                    (model.key.clone(), shown.unwrap_or_default())
                };
                let shown = join_all(models.iter().take(MAX_DETAILED).map(show));
                let (loaded, shown) = futures_util::join!(get("/api/ps"), shown);
                shown
                    .iter()
                    .map(|(model, shown)| details::from_ollama(model, shown, &loaded))
                    .collect()
            }
            LM_STUDIO => {
                let found = details::from_lm_studio(&get("/api/v1/models").await);
                if found.is_empty() {
                    details::from_lm_studio(&get("/api/v0/models").await)
                } else {
                    found
                }
            }
            LLAMA_CPP => {
                let properties = get("/props").await;
                models
                    .iter()
                    .map(|model| details::from_llama_cpp(&model.key, &properties))
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the entries of a list of models in OpenAI's format.
fn list_entries(body: &[u8]) -> Vec<Value> {
    let list: Value = serde_json::from_slice(body).unwrap_or_default();
    match list.get("data") {
        Some(Value::Array(entries)) => entries.clone(),
        _ => Vec::new(),
    }
}

/// Returns the names of all models in a list in OpenAI's format.
pub(crate) fn listed_models(body: &[u8]) -> Vec<String> {
    let entries = list_entries(body).into_iter();
    entries
        .filter_map(|entry| entry.get("id")?.as_str().map(str::to_owned))
        .collect()
}

/// True if the server of a list in OpenAI's format accepts more model names than it lists: llama.cpp
/// with one model ignores the name, and gateways list wildcards.
pub(crate) fn accepts_unlisted_models(body: &[u8]) -> bool {
    let entries = list_entries(body);
    let text = |entry: &Value, key: &str| Some(entry.get(key)?.as_str()?.to_owned());
    let is_wildcard = |entry: &Value| text(entry, "id").is_some_and(|name| name.contains('*'));
    match entries.as_slice() {
        [only] if text(only, "owned_by").as_deref() == Some("llamacpp") => true,
        all => all.iter().any(is_wildcard),
    }
}

/// Returns the models in a list in OpenAI's format, except for those that cannot hold a
/// conversation.
fn models(body: &[u8]) -> Vec<ModelEntry> {
    let model = |entry: &Value| {
        let key = entry.get("id")?.as_str().filter(|id| !id.is_empty())?;
        let lower = key.to_lowercase();
        if ["embed", "rerank", "whisper"]
            .iter()
            .any(|kind| lower.contains(kind))
        {
            return None;
        }
        let context = ["/max_model_len", "/meta/n_ctx", "/context_length"];
        let context = context
            .iter()
            .find_map(|path| entry.pointer(path))
            .and_then(Value::as_u64);
        Some(ModelEntry {
            key: key.into(),
            context,
            ..ModelEntry::default()
        })
    };
    list_entries(body).iter().filter_map(model).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn environment(vars: &[(&str, &str)]) -> Environment {
        let vars = vars
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Environment::from_vars(vars.collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn copied_name_has_no_characters_of_the_shell() {
        for (name, copied) in [
            ("qwen3:8b", "qwen3:8b"),
            ("hf.co/a/b-GGUF:Q4_K_M", "hf.co/a/b-GGUF:Q4_K_M"),
            ("a' b", "MODEL"),
            ("a$(b)", "MODEL"),
        ] {
            assert_eq!(shell_safe_name(name), copied);
        }
    }

    #[test]
    fn stopped_server_is_named_if_it_is_installed_or_has_answered() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_str().unwrap();
        let environment = environment(&[("HOME", path), ("PATH", path)]);
        assert_eq!(explain_stopped_server(&environment), None);
        remember_servers(&environment, ["lmstudio"].into_iter());
        let why = explain_stopped_server(&environment).unwrap();
        assert!(
            why.starts_with("LM Studio does not answer at 127.0.0.1:1234"),
            "{why}"
        );
        std::fs::write(home.path().join("ollama"), "").unwrap();
        let why = explain_stopped_server(&environment).unwrap();
        assert!(
            why.starts_with("Ollama does not answer at 127.0.0.1:11434"),
            "{why}"
        );
    }

    #[test]
    fn servers_follow_the_variable() {
        let of = |value: &str| {
            let found = servers_to_search(&environment(&[(SERVERS_VARIABLE, value)]))?;
            Ok::<_, String>(
                found
                    .iter()
                    .map(|server| (server.id, server.port))
                    .collect::<Vec<_>>(),
            )
        };
        let usual = [
            ("ollama", 11434),
            ("lmstudio", 1234),
            ("llama.cpp", 8080),
            ("vllm", 8000),
        ];
        assert_eq!(of("").unwrap(), usual);
        assert_eq!(of("none").unwrap(), []);
        assert_eq!(
            of("vllm=8001, ollama").unwrap(),
            [("vllm", 8001), ("ollama", 11434)]
        );
        for (value, why) in [
            (
                "olama=1",
                "there is no server \"olama\"; write none, or some of ollama, lmstudio, llama.cpp, vllm",
            ),
            (
                "ollama=0",
                "\"0\" is not a port of ollama; write ollama=11434",
            ),
            ("vllm=10.0.0.1:80", "is not a port of vllm"),
            ("ollama,", "there is no server \"\""),
        ] {
            let error = of(value).unwrap_err();
            assert!(
                error.starts_with("ADJUTANT_LOCAL_SERVERS: ") && error.contains(why),
                "{value}: {error}"
            );
        }
    }

    #[test]
    fn address_follows_the_servers_variables() {
        let table = [
            ("", "http://127.0.0.1:11434"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("/tmp/a.sock", "http://127.0.0.1:11434"),
            ("0.0.0.0:11500", "http://127.0.0.1:11500"),
            ("[::]:11500", "http://127.0.0.1:11500"),
            (":11500", "http://127.0.0.1:11500"),
            ("localhost", "http://localhost:11434"),
            ("gpu:80", "http://gpu"),
            ("[::1]:80/", "http://[::1]"),
            ("[::1]", "http://[::1]:11434"),
            ("192.168.1.7", "http://192.168.1.7:11434"),
            ("http://gpu:11500/", "http://gpu:11500"),
            ("https://gpu.example", "https://gpu.example"),
            ("file:///etc", "http://127.0.0.1:11434"),
            ("a b", "http://127.0.0.1:11434"),
        ];
        for (value, expected) in table {
            let all = servers_to_search(&environment(&[("OLLAMA_HOST", value)])).unwrap();
            assert_eq!(all[0].origin, expected, "{value}");
            // The variable is named only if the address is from it.
            let is_usual = expected == "http://127.0.0.1:11434";
            let variable = (!is_usual).then_some("OLLAMA_HOST");
            assert_eq!(all[0].variable, variable, "{value}");
        }
        for (host, port, variable) in [
            ("0.0.0.0", "9000", Some("LLAMA_ARG_PORT")),
            ("gpu", "9000", Some("LLAMA_ARG_HOST")),
            ("", "many", None),
        ] {
            let vars = [("LLAMA_ARG_HOST", host), ("LLAMA_ARG_PORT", port)];
            let all = servers_to_search(&environment(&vars)).unwrap();
            let found = all.iter().find(|server| server.id == LLAMA_CPP).unwrap();
            assert_eq!(found.variable, variable, "{host}:{port}");
        }
        let vars = [
            ("LLAMA_ARG_HOST", "0.0.0.0"),
            ("LLAMA_ARG_PORT", "9000"),
            ("OLLAMA_HOST", "gpu"),
            (SERVERS_VARIABLE, "llama.cpp,ollama=7"),
        ];
        let all = servers_to_search(&environment(&vars)).unwrap();
        let origins: Vec<&str> = all.iter().map(|server| server.origin.as_str()).collect();
        assert_eq!(origins, ["http://127.0.0.1:9000", "http://127.0.0.1:7"]);
    }

    #[test]
    fn start_command_is_that_of_the_server() {
        let table = [
            ("ollama", "http://127.0.0.1:99/v1", Some("ollama serve")),
            ("mine", "http://localhost:11434/v1", Some("ollama serve")),
            ("mine", "http://localhost:1234/v1", Some("lms server start")),
            ("mine", "http://localhost:8080/v1", None),
            ("vllm", "http://localhost:8080/v1", Some("vllm serve")),
            ("mine", "http://localhost/v1", None),
        ];
        for (provider, base, expected) in table {
            assert_eq!(start_command(provider, base), expected, "{provider} {base}");
        }
    }

    #[test]
    fn command_that_fetches_a_model_is_that_of_the_server() {
        let table = [
            ("ollama", "http://127.0.0.1:99/v1", Some("ollama pull m")),
            ("mine", "http://localhost:11434/v1", Some("ollama pull m")),
            ("lmstudio", "http://localhost:1234/v1", Some("lms get m")),
            ("vllm", "http://localhost:8000/v1", None),
            ("mine", "http://localhost:8080/v1", None),
        ];
        for (provider, base, expected) in table {
            let command = fetch_command(provider, base, "m");
            assert_eq!(command.as_deref(), expected, "{provider} {base}");
        }
    }

    #[test]
    fn ollama_model_without_tag_is_its_latest() {
        let table = [
            ("ollama/llama3.2", Some("llama3.2:latest")),
            ("ollama/llama3.2:latest", Some("llama3.2")),
            ("ollama/qwen3:8b", None),
            (
                "ollama/hf.co:443/me/model",
                Some("hf.co:443/me/model:latest"),
            ),
            ("lmstudio/llama3.2", None),
        ];
        for (model, expected) in table {
            let model = ModelRef::parse(model).unwrap();
            assert_eq!(alternative_name(&model).as_deref(), expected, "{model}");
        }
    }

    #[test]
    fn server_may_take_other_names_than_it_lists() {
        let table = [
            (
                r#"{"data":[{"id":"/m/a.gguf","owned_by":"llamacpp"}]}"#,
                true,
            ),
            (
                r#"{"data":[{"id":"a","owned_by":"llamacpp"},{"id":"b","owned_by":"llamacpp"}]}"#,
                false,
            ),
            (r#"{"data":[{"id":"a"},{"id":"openai/*"}]}"#, true),
            (r#"{"data":[{"id":"a","owned_by":"library"}]}"#, false),
            ("no list", false),
        ];
        for (body, expected) in table {
            assert_eq!(accepts_unlisted_models(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn window_is_compared_with_the_recommended_one() {
        let table = [
            ("ollama/m", None, "Unknown"),
            ("ollama/m", Some(3_999), "TooSmall"),
            ("ollama/m", Some(4_096), "Small"),
            ("ollama/m", Some(16_384), "Small"),
            ("ollama/m", Some(32_768), "Sufficient"),
            ("vllm/m", None, "Sufficient"),
            ("vllm/m", Some(2_048), "TooSmall"),
            ("openai/m", Some(2_048), "Sufficient"),
        ];
        let sized = |name: &str, context| Model {
            context,
            ..Model::unknown(ModelRef::parse(name).unwrap())
        };
        for (name, context, expected) in table {
            let checked = format!("{:?}", check_context_window(&sized(name, context)));
            assert!(
                checked.starts_with(expected),
                "{name} {context:?}: {checked}"
            );
        }
        let default = sized("ollama/m", Some(2_048));
        let own = Model {
            has_own_window: true,
            ..default.clone()
        };
        let small =
            "The context window of ollama/m has 2.0k tokens: too small for instructions and tools.";
        for (model, remedy) in [
            (
                default,
                "Start Ollama with a larger context: `OLLAMA_CONTEXT_LENGTH=64000 ollama serve`.",
            ),
            (
                own,
                "The model sets its own window; give it a larger one: \
                 `printf 'FROM m\\nPARAMETER num_ctx 64000\\n' | ollama create m -f /dev/stdin`.",
            ),
        ] {
            let expected = WindowCheck::TooSmall(format!("{small} {remedy}"));
            assert_eq!(check_context_window(&model), expected);
        }
    }

    #[test]
    fn list_has_models_for_conversations_only() {
        let list = br#"{"object":"list","data":[{"id":"qwen:7b"},{"id":"nomic-embed-text"},{"id":"","x":1},{"id":"b","max_model_len":4096}]}"#;
        let found: Vec<_> = models(list)
            .into_iter()
            .map(|model| (model.key, model.context))
            .collect();
        assert_eq!(found, [("qwen:7b".into(), None), ("b".into(), Some(4096))]);
        assert!(models(b"<html>").is_empty());
    }
}
