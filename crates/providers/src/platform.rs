//! The differences between providers outside of the wire formats: which wire format and address a
//! provider has ([`address`]), which variables hold its key ([`key_variable`]), and which headers it
//! requires.
//!
//! The catalogue and the settings name a wire format by an SDK package, as OpenCode does. An unknown
//! package is assumed to use Chat Completions, as nearly all do.

use serde_json::{Map, Value};

use super::anthropic::Messages;
use super::chat::Chat;
use super::gemini::Gemini;
use super::request_target::RequestTarget;
use super::responses::Responses;
use super::wire_format::{SdkPackage, WireFormat};
use super::{Error, Model, WIRE_FORMATS, is_loopback};
use crate::entry::LOCATION_OPTIONS;
use crate::entry::ProviderEntry;
use base::environment::Environment;
use transcript::ModelRef;

/// The wire format of unknown providers.
pub const CHAT: &dyn WireFormat = &Chat;

/// Returns the wire format with this name, as in recordings; `None` if there is none.
pub fn find_wire_format(name: &str) -> Option<&'static dyn WireFormat> {
    WIRE_FORMATS
        .iter()
        .copied()
        .find(|wire| wire.name() == name)
}

/// The address of an API, and its wire format.
pub struct ApiAddress {
    pub wire: &'static dyn WireFormat,
    /// The address without the path of a method.
    pub base_url: String,
    /// The environment variable that contains the address; `None` if it is from elsewhere.
    pub variable: Option<String>,
}

/// SDK packages that share a wire format with others: package, wire format, usual address.
static PACKAGES: &[(&str, &dyn WireFormat, &str)] = &[
    ("@ai-sdk/groq", CHAT, "https://api.groq.com/openai/v1"),
    ("@ai-sdk/mistral", CHAT, "https://api.mistral.ai/v1"),
    ("@ai-sdk/xai", CHAT, "https://api.x.ai/v1"),
    ("@ai-sdk/cerebras", CHAT, "https://api.cerebras.ai/v1"),
    (
        "@ai-sdk/deepinfra",
        CHAT,
        "https://api.deepinfra.com/v1/openai",
    ),
    ("@ai-sdk/deepseek", CHAT, "https://api.deepseek.com"),
    ("@ai-sdk/togetherai", CHAT, "https://api.together.xyz/v1"),
    ("@ai-sdk/perplexity", CHAT, "https://api.perplexity.ai"),
    (
        "@ai-sdk/cohere",
        CHAT,
        "https://api.cohere.ai/compatibility/v1",
    ),
    ("@ai-sdk/vercel", CHAT, "https://api.v0.dev/v1"),
    ("@ai-sdk/gateway", CHAT, "https://ai-gateway.vercel.sh/v1"),
    (
        "@ai-sdk/alibaba",
        CHAT,
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    ),
    (
        "@openrouter/ai-sdk-provider",
        CHAT,
        "https://openrouter.ai/api/v1",
    ),
    (
        "venice-ai-sdk-provider",
        CHAT,
        "https://api.venice.ai/api/v1",
    ),
];

/// Returns all known SDK packages with their wire formats.
fn packages() -> impl Iterator<Item = (SdkPackage, &'static dyn WireFormat)> {
    let own = WIRE_FORMATS
        .iter()
        .filter_map(|wire| Some((wire.package()?, *wire)));
    let others = PACKAGES.iter().map(|(name, wire, address)| {
        let package = SdkPackage {
            name,
            address,
            variable: "",
        };
        (package, *wire)
    });
    own.chain(others)
}

/// SDK packages and providers that need a login or a protocol that adjutant does not support: the
/// beginning of the name of the package or of the provider's id, and the reason for the user.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("gitlab-ai-provider", "GitLab's login is not supported"),
    (
        "@jerome-benoit/sap-ai-provider",
        "SAP's login is not supported",
    ),
    ("watsonx-ai-provider", "watsonx's login is not supported"),
    (
        "@qvac/ai-sdk-provider",
        "it runs inside a JavaScript process",
    ),
];

/// Returns the reason why a provider is not supported; `None` if it is.
fn unsupported(id: &str, npm: Option<&str>) -> Option<&'static str> {
    let matches = |name: &str| npm.is_some_and(|npm| npm.starts_with(name)) || id.starts_with(name);
    UNSUPPORTED
        .iter()
        .find(|(name, _)| matches(name))
        .map(|(_, why)| *why)
}

/// True if a provider of the catalogue can be used with only a key.
pub fn is_supported(settings: &ProviderEntry) -> bool {
    why_unsupported(settings).is_none()
}

/// Returns the reason why a provider of the catalogue cannot be used, in a sentence for the user;
/// `None` if it can.
pub fn why_unsupported(known: &ProviderEntry) -> Option<String> {
    let why = unsupported(&known.id, known.npm.as_deref())?;
    let name = known.name.as_deref().unwrap_or(&known.id);
    Some(format!("The provider {name} cannot be used: {why}."))
}

/// Returns the address of a model's requests, and its wire format. `npm` and `base_url` are those of
/// the model if it has its own, otherwise those of the provider.
///
/// # Errors
/// A sentence for the user, usually about a missing setting.
pub fn address(
    npm: Option<&str>,
    base_url: Option<&str>,
    settings: &ProviderEntry,
    model: &Model,
    environment: &Environment,
) -> Result<ApiAddress, Error> {
    let id = settings.id.as_str();
    if let Some(unset) = &settings.unset_address {
        return Err(Error::NoKey(format!(
            "There is no address for {id}: {unset}."
        )));
    }
    // If the user has configured an address, the API there is supported.
    if base_url.is_none()
        && let Some(why) = unsupported(id, npm)
    {
        return Err(Error::NoKey(format!(
            "The provider \"{id}\" is not supported: {why}."
        )));
    }
    let known = packages().find(|(package, _)| npm == Some(package.name));
    let mut variable = None;
    // The variable contains the provider's address; a model may have an address of its own.
    if base_url == settings.base_url.as_deref() {
        variable.clone_from(&settings.address_variable);
    }
    let (wire, base): (&'static dyn WireFormat, Option<String>) = match (npm, known) {
        // Models of other publishers have another address than the one below.
        (Some("@ai-sdk/google-vertex"), _)
            if base_url.is_none() && model.id.model.contains('/') =>
        {
            return Err(Error::NoKey(format!(
                "The model \"{}\" is not supported: on Vertex, adjutant uses only Gemini and Claude.",
                model.id.model
            )));
        }
        (Some("@ai-sdk/google-vertex"), _) => (
            &Gemini,
            Some(base_url.map_or_else(|| vertex_address(settings, environment), str::to_owned)),
        ),
        (Some(CLAUDE_ON_VERTEX), _) => {
            let base = match base_url {
                Some(base) => base.to_owned(),
                None => claude_on_vertex_address(settings, environment)?,
            };
            (&Messages, Some(base))
        }
        (Some("@ai-sdk/amazon-bedrock"), _) if base_url.is_none() && is_claude(model) => (
            &Messages,
            Some(claude_on_bedrock_address(model, settings, environment)?),
        ),
        (Some("@ai-sdk/azure"), _) => {
            let chat = settings
                .options
                .get("useCompletionUrls")
                .and_then(Value::as_bool)
                == Some(true);
            (
                if chat { CHAT } else { &Responses },
                Some(azure_address(base_url, settings, environment)?),
            )
        }
        (Some("@ai-sdk/amazon-bedrock"), _) => (
            CHAT,
            Some(base_url.map_or_else(|| bedrock_address(settings, environment), str::to_owned)),
        ),
        (_, Some((package, wire))) => {
            let own = environment
                .var(package.variable)
                .map(complete_variable_address);
            if base_url.is_none() && own.is_some() {
                variable = Some(package.variable.to_owned());
            }
            let base = base_url.map(str::to_owned).or(own);
            (
                wire,
                Some(base.unwrap_or_else(|| package.address.to_owned())),
            )
        }
        (_, None) => (CHAT, base_url.map(str::to_owned)),
    };
    let Some(base) = base else {
        let text = format!(
            "The provider \"{id}\" has no address. Set provider.{id}.options.baseURL in the configuration."
        );
        return Err(Error::BadRequest(text));
    };
    let base = expand_variables(&base, id, environment)?;
    Ok(ApiAddress {
        wire,
        base_url: correct_address(&base, wire.name()),
        variable,
    })
}

/// Corrects the address of an API if the intention is certain: adds a missing scheme, removes the
/// path of a method, and adds the path of the API to an address without a path if the host is known
/// or this machine. `wire` is the name of the wire format.
pub fn correct_address(base: &str, wire: &str) -> String {
    let base = base.trim();
    let (base, query) = match base.split_once('?') {
        Some((base, query)) => (base, format!("?{query}")),
        None => (base, String::new()),
    };
    let mut base = base.trim_end_matches('/');
    let method = find_wire_format(wire).and_then(WireFormat::method);
    let mut has_method = false;
    for end in method.into_iter().chain(["/chat/completions"]) {
        if let Some(before) = base.strip_suffix(end) {
            base = before;
            has_method = true;
        }
    }
    let mut base = base.to_owned();
    if !base.is_empty() && !base.contains("://") {
        let is_in_private_network =
            reqwest::Url::parse(&format!("http://{base}")).is_ok_and(|url| {
                let private = url.host_str().and_then(|host| host.parse().ok());
                is_loopback(&url) || private.is_some_and(|ip: std::net::Ipv4Addr| ip.is_private())
            });
        let scheme = if is_in_private_network {
            "http"
        } else {
            "https"
        };
        base = format!("{scheme}://{base}");
    }
    // The address of a method contains the path of the API, which may be empty.
    if !has_method
        && let Ok(url) = reqwest::Url::parse(&base)
        && url.path() == "/"
    {
        let host = url.host_str().unwrap_or_default();
        let usual = packages()
            .filter_map(|(package, _)| reqwest::Url::parse(package.address).ok())
            .find(|usual| usual.host_str() == Some(host));
        match usual {
            Some(usual) => base.push_str(usual.path().trim_end_matches('/')),
            None if is_loopback(&url) && wire == "gemini" => base.push_str("/v1beta"),
            None if is_loopback(&url) => base.push_str("/v1"),
            None => {}
        }
    }
    base + &query
}

/// Returns the address with `/v1`, which most APIs have; `None` if it has a version already.
pub fn with_version(base: &str) -> Option<String> {
    let (base, _) = base.split_once('?').unwrap_or((base, ""));
    let base = base.trim_end_matches('/');
    let is_version = |part: &str| {
        part.strip_prefix('v')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    (!base.split('/').any(is_version)).then(|| format!("{base}/v1"))
}

/// Returns the address of a provider's requests; `None` if it is unknown.
pub fn usual_address(settings: &ProviderEntry, environment: &Environment) -> Option<String> {
    let model = Model::unknown(ModelRef {
        provider: settings.id.clone(),
        model: String::new(),
        effort: None,
    });
    let address = address(
        settings.npm.as_deref(),
        settings.base_url.as_deref(),
        settings,
        &model,
        environment,
    );
    address.ok().map(|address| address.base_url)
}

/// Adds `/v1` to an address from an environment variable, unless it has a path.
fn complete_variable_address(base: &str) -> String {
    let base = base.trim_end_matches('/');
    let has_path = base
        .split_once("://")
        .is_some_and(|(_, rest)| rest.contains('/'));
    if has_path {
        base.to_owned()
    } else {
        format!("{base}/v1")
    }
}

fn text_option<'a>(settings: &'a ProviderEntry, name: &str) -> Option<&'a str> {
    settings
        .options
        .get(name)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

fn first_variable<'a>(environment: &'a Environment, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| environment.var(name))
}

/// Returns the address of a resource of Azure.
fn azure_address(
    base_url: Option<&str>,
    settings: &ProviderEntry,
    environment: &Environment,
) -> Result<String, Error> {
    if let Some(base) = base_url {
        let base = base.trim_end_matches('/');
        return Ok(if base.ends_with("/v1") || base.contains('?') {
            base.to_owned()
        } else {
            format!("{base}/v1")
        });
    }
    let resource =
        text_option(settings, "resourceName").or_else(|| environment.var("AZURE_RESOURCE_NAME"));
    match resource {
        Some(name) => Ok(format!("https://{name}.openai.azure.com/openai/v1")),
        None => Err(Error::NoKey(format!(
            "Azure needs the name of your resource. Set AZURE_RESOURCE_NAME, or provider.{}.options.resourceName.",
            settings.id
        ))),
    }
}

/// The package of Claude on Vertex.
const CLAUDE_ON_VERTEX: &str = "@ai-sdk/google-vertex/anthropic";

/// True if a model of Bedrock is Claude: `anthropic.claude-…`, `us.anthropic.claude-…`.
fn is_claude(model: &Model) -> bool {
    model.api_id.contains("anthropic.")
}

fn region<'a>(settings: &'a ProviderEntry, environment: &'a Environment) -> &'a str {
    text_option(settings, "region")
        .or_else(|| first_variable(environment, &["AWS_REGION", "AWS_DEFAULT_REGION"]))
        .unwrap_or("us-east-1")
}

/// Returns the address of Bedrock's Chat Completions API, which accepts Bedrock's API keys.
fn bedrock_address(settings: &ProviderEntry, environment: &Environment) -> String {
    let region = region(settings, environment);
    format!("https://bedrock-runtime.{region}.amazonaws.com/openai/v1")
}

/// Returns the address of Bedrock's Messages API, which accepts Bedrock's API keys and answers with
/// server-sent events. A model's id is that of Bedrock, with a version at the end if the model is
/// older, or that of an inference profile.
/// Source: <https://docs.aws.amazon.com/bedrock/latest/userguide/inference-messages-api.html>.
///
/// # Errors
/// The model is only available in another part of the world than the region.
fn claude_on_bedrock_address(
    model: &Model,
    settings: &ProviderEntry,
    environment: &Environment,
) -> Result<String, Error> {
    let region = region(settings, environment);
    let id = &model.id.model;
    let regions: &[&str] = match id.split_once(".anthropic.").map(|(region, _)| region) {
        None | Some("global") => &[""],
        Some("us") => &["us-"],
        Some("eu") => &["eu-"],
        Some("jp") => &["ap-northeast-1", "ap-northeast-3"],
        Some("au") => &["ap-southeast-2", "ap-southeast-4"],
        Some("apac") => &["ap-"],
        Some(_) => &[],
    };
    if !regions.iter().any(|start| region.starts_with(start)) {
        return Err(Error::NoKey(format!(
            "{id} is available only in its own part of the world, and the region is {region}. Set AWS_REGION, or provider.{}.options.region.",
            settings.id
        )));
    }
    Ok(format!(
        "https://bedrock-runtime.{region}.amazonaws.com/anthropic/v1"
    ))
}

fn vertex_project<'a>(
    settings: &'a ProviderEntry,
    environment: &'a Environment,
) -> Option<&'a str> {
    let names = [
        "GOOGLE_VERTEX_PROJECT",
        "GOOGLE_CLOUD_PROJECT",
        "GCP_PROJECT",
        "GCLOUD_PROJECT",
    ];
    text_option(settings, "project").or_else(|| first_variable(environment, &names))
}

fn vertex_location<'a>(
    settings: &'a ProviderEntry,
    environment: &'a Environment,
) -> Option<&'a str> {
    let names = [
        "GOOGLE_VERTEX_LOCATION",
        "GOOGLE_CLOUD_LOCATION",
        "VERTEX_LOCATION",
    ];
    text_option(settings, "location").or_else(|| first_variable(environment, &names))
}

/// Returns the address of Claude on Vertex.
///
/// # Errors
/// The project, which the address contains, is not set.
fn claude_on_vertex_address(
    settings: &ProviderEntry,
    environment: &Environment,
) -> Result<String, Error> {
    let location = vertex_location(settings, environment).unwrap_or("global");
    let host = vertex_host(location);
    let project = vertex_project(settings, environment).ok_or_else(|| {
        Error::NoKey(format!(
            "Claude on Vertex needs your project. Set GOOGLE_VERTEX_PROJECT, or provider.{}.options.project.",
            settings.id
        ))
    })?;
    Ok(format!(
        "https://{host}/v1/projects/{project}/locations/{location}/publishers/anthropic"
    ))
}

/// Returns the host of a location of Vertex: a region, a multi-region, or `global`.
/// Source: <https://docs.cloud.google.com/vertex-ai/docs/general/locations>.
fn vertex_host(location: &str) -> String {
    match location {
        "global" => "aiplatform.googleapis.com".to_owned(),
        "us" | "eu" => format!("aiplatform.{location}.rep.googleapis.com"),
        region => format!("{region}-aiplatform.googleapis.com"),
    }
}

/// Returns the address of Gemini on Vertex.
fn vertex_address(settings: &ProviderEntry, environment: &Environment) -> String {
    let location = vertex_location(settings, environment).unwrap_or("us-central1");
    let host = vertex_host(location);
    match vertex_project(settings, environment) {
        Some(project) => {
            format!("https://{host}/v1/projects/{project}/locations/{location}/publishers/google")
        }
        // Requests with an API key instead of an account's token need no project.
        None => "https://aiplatform.googleapis.com/v1/publishers/google".to_owned(),
    }
}

/// Replaces every `${VAR}` in the address of the provider `id` from the environment.
///
/// # Errors
/// A variable is not set.
fn expand_variables(base: &str, id: &str, environment: &Environment) -> Result<String, Error> {
    let mut out = String::new();
    let mut rest = base;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else {
            break;
        };
        let Some(value) = environment.var(name) else {
            let text = format!(
                "The address of the provider \"{id}\" needs the variable {name}, which is not set."
            );
            return Err(Error::NoKey(text));
        };
        out.push_str(before);
        out.push_str(value);
        rest = behind;
    }
    Ok(out + rest)
}

/// Ends of the names of variables that hold parts of an address.
const ADDRESS_VARIABLE_SUFFIXES: &[&str] = &[
    "_HOST",
    "_URL",
    "_ENDPOINT",
    "_ACCOUNT",
    "_ACCOUNT_ID",
    "_PROJECT",
    "_PROJECT_ID",
    "_LOCATION",
    "_REGION",
    "_RESOURCE_NAME",
    "_PRODUCT_ID",
    "_GATEWAY_ID",
    "_PROFILE",
];

/// Ends of the names of variables with credentials that are not used as keys: parts of a signature,
/// files, and GitHub's token, which users set for other programs, so that prompts would go to a
/// service that they did not choose.
const UNUSED_CREDENTIAL_SUFFIXES: &[&str] = &[
    "_CREDENTIALS",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
];

fn ends_with_any(name: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| name.ends_with(end))
}

/// True if a variable of this name holds a key.
fn is_key_name(name: &str) -> bool {
    !ends_with_any(name, ADDRESS_VARIABLE_SUFFIXES)
        && !ends_with_any(name, UNUSED_CREDENTIAL_SUFFIXES)
}

/// Returns name and value of the first variable among `names` that is set and holds a key; `None` if
/// there is none. Variables with parts of an address, files and parts of a signature are skipped.
pub fn key_variable<'a>(
    names: &'a [String],
    environment: &'a Environment,
) -> Option<(&'a str, &'a str)> {
    names
        .iter()
        .filter(|name| is_key_name(name))
        .find_map(|name| Some((name.as_str(), environment.var(name)?)))
}

/// Returns name and value of the variable with the token or API key for Vertex; `None` for other
/// packages, or if none is set. The catalogue does not list these variables.
pub fn vertex_token<'a>(
    npm: Option<&str>,
    environment: &'a Environment,
) -> Option<(&'static str, &'a str)> {
    const TOKENS: [&str; 2] = ["GOOGLE_VERTEX_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"];
    if !is_vertex(npm) {
        return None;
    }
    // Claude is served only under a project, to which an API key gives no access.
    let key = (npm != Some(CLAUDE_ON_VERTEX)).then_some("GOOGLE_VERTEX_API_KEY");
    TOKENS
        .into_iter()
        .chain(key)
        .find_map(|name| Some((name, environment.var(name)?)))
}

fn is_vertex(npm: Option<&str>) -> bool {
    matches!(npm, Some("@ai-sdk/google-vertex" | CLAUDE_ON_VERTEX))
}

/// The headers in which providers expect a key.
const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

/// True if one of the headers (name, value) holds a key.
pub fn has_key_header(headers: &[(String, String)]) -> bool {
    let is_key = |name: &str| KEY_HEADERS.iter().any(|key| name.eq_ignore_ascii_case(key));
    headers.iter().any(|(name, _)| is_key(name))
}

/// Returns the header of the key, and the prefix of its value; `None` if the provider expects the
/// key where the wire format puts it. `has_project` is true if a project of Vertex is set: then the
/// key is the token of an account.
fn key_header(npm: Option<&str>, has_project: bool) -> Option<(&'static str, &'static str)> {
    match npm {
        Some("@ai-sdk/azure") => Some(("api-key", "")),
        _ if is_vertex(npm) && has_project => Some(("authorization", "Bearer ")),
        _ => None,
    }
}

/// Returns the error for a provider that needs a key and has none; `None` if it needs no key, or the
/// configured headers hold one. `name` is its display name.
pub fn missing_key_error(
    npm: Option<&str>,
    settings: &ProviderEntry,
    name: &str,
    environment: &Environment,
) -> Option<Error> {
    let has_key_in_headers = settings.headers.iter().any(|(name, _)| {
        let name = name.to_lowercase();
        KEY_HEADERS.contains(&name.as_str())
            || key_header(npm, false).is_some_and(|(header, _)| header == name)
    });
    if is_keyless_server(settings) {
        return None;
    }
    let id = &settings.id;
    if let Some(unset) = &settings.unset_key {
        return Some(Error::NoKey(format!(
            "There is no key for {name}: {unset}. Set it, or run `adjutant auth login {id}`."
        )));
    }
    if has_key_in_headers || settings.env.is_empty() {
        return None;
    }
    Some(Error::NoKey(explain_missing_key(
        npm,
        id,
        name,
        &settings.env,
        environment,
    )))
}

/// True if a provider is a server on this machine that is used without a key: it has no login.
fn is_keyless_server(settings: &ProviderEntry) -> bool {
    settings.login.is_none()
        && settings
            .base_url
            .as_deref()
            .is_some_and(is_loopback_address)
}

/// Returns the sentences about the missing key of a provider: how to set it, and which credentials
/// are set but not used. `id` and `name` are those of the provider, `env` the variables that its
/// catalogue entry names.
pub fn explain_missing_key(
    npm: Option<&str>,
    id: &str,
    name: &str,
    env: &[String],
    environment: &Environment,
) -> String {
    let missing = if npm == Some(CLAUDE_ON_VERTEX) {
        "There is no access to Claude on Vertex. Set GOOGLE_VERTEX_ACCESS_TOKEN to what `gcloud auth print-access-token` prints, and GOOGLE_VERTEX_PROJECT to your project.".to_owned()
    } else if is_vertex(npm) {
        "There is no access to Vertex. Set GOOGLE_VERTEX_ACCESS_TOKEN to what `gcloud auth print-access-token` prints, or GOOGLE_VERTEX_API_KEY.".to_owned()
    } else {
        let keys = env
            .iter()
            .map(String::as_str)
            .filter(|name| is_key_name(name));
        match keys.collect::<Vec<_>>().join(" or ") {
            none if none.is_empty() => {
                format!("There is no key for {name}. Run `adjutant auth login {id}`.")
            }
            keys => {
                format!(
                    "There is no key for {name}. Set {keys}, or run `adjutant auth login {id}`."
                )
            }
        }
    };
    let is_unused = |name: &&str| {
        ends_with_any(name, UNUSED_CREDENTIAL_SUFFIXES) && environment.var(name).is_some()
    };
    let unused: Vec<&str> = env.iter().map(String::as_str).filter(is_unused).collect();
    match unused.as_slice() {
        [] => missing,
        [one] => format!("{missing} {one} is set, but adjutant does not use it."),
        all => format!(
            "{missing} {} are set, but adjutant does not use them.",
            all.join(" and ")
        ),
    }
}

fn is_loopback_address(base: &str) -> bool {
    reqwest::Url::parse(&correct_address(base, CHAT.name())).is_ok_and(|url| is_loopback(&url))
}

/// Returns the headers (name, value) that a provider requires.
pub fn required_headers(settings: &ProviderEntry) -> Vec<(String, String)> {
    match settings.id.as_str() {
        id if id.starts_with("github-copilot") => {
            vec![("openai-intent".into(), "conversation-edits".into())]
        }
        "openrouter" | "vercel" | "zenmux" | "kilo" | "llmgateway" => {
            vec![("x-title".into(), "adjutant".into())]
        }
        _ => Vec::new(),
    }
}

/// Moves the key in `target` to the header that the provider expects, if the wire format would put
/// it into another one.
pub fn move_key_to_header(
    npm: Option<&str>,
    settings: &ProviderEntry,
    environment: &Environment,
    target: &mut RequestTarget,
) {
    let has_project = vertex_project(settings, environment).is_some();
    let Some((header, before)) = key_header(npm, has_project) else {
        return;
    };
    // If it stayed in `target.key`, it would be sent twice. `Endpoint::secrets` has it for
    // redaction.
    if let Some(key) = target.key.take() {
        target
            .headers
            .push((header.to_owned(), format!("{before}{}", key.expose())));
    }
}

/// Returns the options that belong to request bodies: all but those that configure the address or
/// the client.
pub fn body_options(options: &Map<String, Value>) -> Map<String, Value> {
    const CLIENT_OPTIONS: &[&str] = &[
        "apiVersion",
        "useCompletionUrls",
        "useDeploymentBasedUrls",
        "setCacheKey",
        "timeout",
        "headerTimeout",
        "chunkTimeout",
        "compatibility",
    ];
    options
        .iter()
        .filter(|(name, _)| {
            !LOCATION_OPTIONS.contains(&name.as_str()) && !CLIENT_OPTIONS.contains(&name.as_str())
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use crate::wire_format::single_entry;
    use transcript::ModelRef;

    fn environment(vars: &[(&str, &str)]) -> Environment {
        Environment::from_vars(
            vars.iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        )
    }

    fn at(
        npm: &str,
        base: Option<&str>,
        options: Map<String, Value>,
        vars: &[(&str, &str)],
        model: &str,
    ) -> String {
        let settings = ProviderEntry {
            id: "p".into(),
            options,
            ..Default::default()
        };
        let model = Model::unknown(ModelRef {
            provider: "p".into(),
            model: model.into(),
            effort: None,
        });
        match address(Some(npm), base, &settings, &model, &environment(vars)) {
            Ok(address) => address.base_url,
            Err(e) => format!("error: {e}"),
        }
    }

    /// A package with a wire format of its own must not have a row as well: it would have no
    /// effect.
    #[test]
    fn packages_are_listed_once_with_https_addresses() {
        let names: Vec<&str> = packages().map(|(package, _)| package.name).collect();
        for (package, _) in packages() {
            let SdkPackage { name, address, .. } = package;
            let rows = names.iter().filter(|other| **other == name).count();
            assert_eq!(rows, 1, "{name}");
            let is_base = address.starts_with("https://") && !address.ends_with('/');
            assert!(is_base, "{name}: {address}");
        }
    }

    #[test]
    fn addresses_follow_settings_and_environment() {
        let none = Map::new;
        assert_eq!(
            at("@ai-sdk/anthropic", None, none(), &[], "m"),
            "https://api.anthropic.com/v1"
        );
        let proxy = [("ANTHROPIC_BASE_URL", "http://proxy:1/")];
        assert_eq!(
            at("@ai-sdk/anthropic", None, none(), &proxy, "m"),
            "http://proxy:1/v1"
        );
        assert_eq!(
            at(
                "@ai-sdk/anthropic",
                Some("http://mine/x"),
                none(),
                &proxy,
                "m"
            ),
            "http://mine/x"
        );
        assert_eq!(
            at(
                "@ai-sdk/azure",
                None,
                single_entry("resourceName", "r"),
                &[],
                "m"
            ),
            "https://r.openai.azure.com/openai/v1"
        );
        assert_eq!(
            at("@ai-sdk/azure", Some("https://x/openai"), none(), &[], "m"),
            "https://x/openai/v1"
        );
        assert!(at("@ai-sdk/azure", None, none(), &[], "m").contains("AZURE_RESOURCE_NAME"));
        let region = [("AWS_REGION", "eu-west-1")];
        let expected = "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1";
        assert_eq!(
            at(
                "@ai-sdk/amazon-bedrock",
                None,
                none(),
                &region,
                "openai.gpt-oss-120b-1:0"
            ),
            expected
        );
        assert!(
            at(
                "@ai-sdk/amazon-bedrock",
                None,
                none(),
                &region,
                "eu.anthropic.claude-x"
            )
            .starts_with("https://bedrock-runtime.eu-west-1.amazonaws.com/anthropic/v1")
        );
        let elsewhere = at(
            "@ai-sdk/amazon-bedrock",
            None,
            none(),
            &region,
            "us.anthropic.claude-x",
        );
        assert!(elsewhere.contains("the region is eu-west-1"), "{elsewhere}");
        assert!(
            at(CLAUDE_ON_VERTEX, None, none(), &[], "claude-sonnet-5").starts_with(
                "error: Claude on Vertex needs your project. Set GOOGLE_VERTEX_PROJECT"
            )
        );
        let account = [
            ("GOOGLE_VERTEX_PROJECT", "mine"),
            ("GOOGLE_VERTEX_LOCATION", "global"),
        ];
        assert_eq!(
            at(CLAUDE_ON_VERTEX, None, none(), &account, "claude-sonnet-5"),
            "https://aiplatform.googleapis.com/v1/projects/mine/locations/global/publishers/anthropic"
        );
        let expected =
            "https://aiplatform.googleapis.com/v1/projects/mine/locations/global/publishers/google";
        assert_eq!(
            at("@ai-sdk/google-vertex", None, none(), &account, "m"),
            expected
        );
        for (location, host) in [
            ("us", "aiplatform.us.rep.googleapis.com"),
            ("eu", "aiplatform.eu.rep.googleapis.com"),
            ("us-east5", "us-east5-aiplatform.googleapis.com"),
        ] {
            let account = [
                ("GOOGLE_VERTEX_PROJECT", "mine"),
                ("GOOGLE_VERTEX_LOCATION", location),
            ];
            for npm in [CLAUDE_ON_VERTEX, "@ai-sdk/google-vertex"] {
                let expected = format!("https://{host}/v1/projects/mine/locations/{location}/");
                let found = at(npm, None, none(), &account, "m");
                assert!(found.starts_with(&expected), "{found}");
            }
        }
        assert_eq!(
            at("@ai-sdk/google-vertex", None, none(), &[], "m"),
            "https://aiplatform.googleapis.com/v1/publishers/google"
        );
        assert_eq!(
            at(
                "@ai-sdk/openai-compatible",
                Some("http://${H}/v1"),
                none(),
                &[("H", "h:1")],
                "m"
            ),
            "http://h:1/v1"
        );
        assert!(
            at("gitlab-ai-provider", None, none(), &[], "m")
                .starts_with("error: The provider \"p\" is not supported")
        );
        assert!(at("who-knows", None, none(), &[], "m").contains("has no address"));
    }

    #[test]
    fn address_is_corrected_where_its_meaning_is_certain() {
        let table = [
            (
                "http://127.0.0.1:11434",
                "chat",
                "http://127.0.0.1:11434/v1",
            ),
            ("http://localhost:1234/", "chat", "http://localhost:1234/v1"),
            ("localhost:11434/v1", "chat", "http://localhost:11434/v1"),
            ("localhost:11434", "chat", "http://localhost:11434/v1"),
            ("192.168.1.7:8000/v1", "chat", "http://192.168.1.7:8000/v1"),
            ("llm.example.com/v1", "chat", "https://llm.example.com/v1"),
            (
                "https://llm.example.com/v1/chat/completions",
                "chat",
                "https://llm.example.com/v1",
            ),
            (
                "https://llm.example.com/v1/chat/completions/?k=1",
                "responses",
                "https://llm.example.com/v1?k=1",
            ),
            (
                "http://[::1]:8080/v1/messages",
                "messages",
                "http://[::1]:8080/v1",
            ),
            (
                "https://api.openai.com",
                "responses",
                "https://api.openai.com/v1",
            ),
            (
                "https://openrouter.ai/",
                "chat",
                "https://openrouter.ai/api/v1",
            ),
            (
                "https://generativelanguage.googleapis.com",
                "gemini",
                "https://generativelanguage.googleapis.com/v1beta",
            ),
            // Not certain, or as it should be.
            ("https://llm.example.com", "chat", "https://llm.example.com"),
            (
                "https://api.deepseek.com",
                "chat",
                "https://api.deepseek.com",
            ),
            (
                "http://127.0.0.1:4000/openai",
                "chat",
                "http://127.0.0.1:4000/openai",
            ),
            ("https://h/messages", "chat", "https://h/messages"),
            ("", "chat", ""),
        ];
        for (base, wire, expected) in table {
            assert_eq!(correct_address(base, wire), expected, "{base} {wire}");
            assert_eq!(
                correct_address(expected, wire),
                expected,
                "{expected} {wire}"
            );
        }
        // An API at the root of a local server is meant by the address of its method.
        for (base, wire, expected) in [
            (
                "http://localhost:8080/chat/completions",
                "chat",
                "http://localhost:8080",
            ),
            (
                "localhost:8080/chat/completions/",
                "chat",
                "http://localhost:8080",
            ),
            (
                "http://localhost:8080/messages",
                "messages",
                "http://localhost:8080",
            ),
            (
                "http://localhost:8080/responses",
                "responses",
                "http://localhost:8080",
            ),
        ] {
            assert_eq!(correct_address(base, wire), expected, "{base} {wire}");
        }
        for (base, meant) in [
            ("https://h", Some("https://h/v1")),
            ("https://h/openai/?k=1", Some("https://h/openai/v1")),
            ("https://h/v1", None),
            ("https://h/v1beta/openai", None),
        ] {
            assert_eq!(with_version(base).as_deref(), meant, "{base}");
        }
    }

    #[test]
    fn variables_of_locations_are_no_keys() {
        let names: Vec<String> = [
            "DATABRICKS_HOST",
            "AWS_REGION",
            "AWS_ACCESS_KEY_ID",
            "X_TOKEN",
        ]
        .map(str::to_owned)
        .to_vec();
        let vars = [
            ("DATABRICKS_HOST", "h"),
            ("AWS_REGION", "r"),
            ("AWS_ACCESS_KEY_ID", "i"),
        ];
        assert_eq!(key_variable(&names, &environment(&vars)), None);
        assert_eq!(
            key_variable(&names, &environment(&[vars[0], ("X_TOKEN", "t")])),
            Some(("X_TOKEN", "t"))
        );
    }

    #[test]
    fn key_is_sent_in_the_expected_header() {
        let signed = |npm: &str, vars: &[(&str, &str)]| {
            let mut target = RequestTarget {
                key: Some(Secret::new("k")),
                ..RequestTarget::default()
            };
            move_key_to_header(
                Some(npm),
                &ProviderEntry::default(),
                &environment(vars),
                &mut target,
            );
            (target.key.is_some(), target.headers)
        };
        assert_eq!(
            signed("@ai-sdk/azure", &[]),
            (false, vec![("api-key".into(), "k".into())])
        );
        let account = [("GOOGLE_CLOUD_PROJECT", "p")];
        assert_eq!(
            signed("@ai-sdk/google-vertex", &account),
            (false, vec![("authorization".into(), "Bearer k".into())])
        );
        assert_eq!(signed("@ai-sdk/google-vertex", &[]), (true, vec![]));
        assert_eq!(signed("@ai-sdk/openai", &[]), (true, vec![]));
    }
}
