//! The provider of one model, ready for requests ([`Endpoint`]): the wire format, the address, the
//! key, and the options of the settings.
//!
//! An endpoint resolves the options of a request, encodes the request, and streams the answer. It
//! adds to errors what the user needs to correct them: the address, the source of the key, similar
//! model names, and the remedy (`RequestOrigin`). Keys are redacted from errors.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt};
use serde_json::{Map, Value};

use super::error_classification::REDIRECT_PHRASE;
use super::http::{HttpClient, RequestTimeouts};
use super::oauth::TokenRefresher;
use super::request_target::{RequestOptions, RequestTarget};
use super::responses::Responses;
use super::wire_format::{WireFormat, merge};
use super::{AnswerStream, Error, Model, Provider, Request, family, is_loopback, local, platform};
use crate::secret::{Secret, without_secrets};

/// Options that the provider rejects in a request with thinking: sampling parameters, and a limit
/// that may be below the thinking budget. If the settings have one, thinking is not requested by
/// default.
const REJECTED_WITH_THINKING: [&str; 4] = ["temperature", "top_p", "top_k", "max_tokens"];

/// The connection data of a model.
pub struct Endpoint {
    pub client: Arc<HttpClient>,
    pub wire: &'static dyn WireFormat,
    pub target: RequestTarget,
    /// All keys in the target; they are redacted from recordings and errors.
    pub secrets: Vec<Secret>,
    /// True if the editor has set the endpoint, which then gets no headers of plugins.
    pub is_set_by_editor: bool,
    /// The login that provides the access token; `None` if there is a key, or neither.
    pub login: Option<TokenRefresher>,
    pub timeouts: RequestTimeouts,
    /// The options from the provider's and the model's settings.
    pub options: Map<String, Value>,
    /// Sets of options from the settings, with the names of the efforts that select them.
    pub variants: Vec<(String, Map<String, Value>)>,
    /// The names of the provider's models, to suggest one if this model does not exist.
    pub model_names: Arc<[String]>,
    /// The reason why requests are impossible; `None` if they are possible.
    pub unusable: Option<Error>,
    /// The source of the key, for display: `the key from ACME_KEY`.
    pub key_source: String,
    /// The remedy if a request without a key is refused; `None` if there is a key.
    pub key_remedy: Option<String>,
    /// The environment variable that contains the address; `None` if it is from elsewhere.
    pub address_variable: Option<String>,
}

impl Endpoint {
    /// Resolves the options of a request. In ascending precedence: the recommendations for the
    /// family of models, the settings, the agent, the chosen effort.
    pub fn request_options(&self, request: &Request) -> RequestOptions {
        let model = &request.model;
        let params = &request.params;
        let recommended = family::recommended_sampling(&model.api_id);
        let chosen = if params.least_effort {
            None
        } else {
            model.id.effort.as_ref()
        };
        let is_configured =
            |name: &str| self.options.contains_key(name) || params.options.contains_key(name);
        let mut options = Value::Object(family::recommended_options(model, &self.target));
        if model.reasoning && chosen.is_none() && !is_configured("thinking") {
            let effort_options = if params.search {
                // GPT-5 does not search with its weakest effort, and a search may use another wire
                // format than other requests.
                self.wire.least_effort(model).unwrap_or_default()
            } else if params.least_effort {
                self.least_effort(model)
            } else if REJECTED_WITH_THINKING.into_iter().any(is_configured) {
                Map::new()
            } else {
                self.wire.default_effort(model)
            };
            merge(&mut options, &Value::Object(effort_options));
        }
        for over in [&self.options, &params.options] {
            merge(&mut options, &Value::Object(over.clone()));
        }
        if let Some(effort) = chosen {
            merge(&mut options, &Value::Object(self.effort(model, effort)));
        }
        // If the limit is unknown, some servers refuse a request for a large answer.
        let is_safe = |limit: &u64| {
            *limit > 0 && (model.output.is_some() || *limit < Model::MAX_OUTPUT_TOKENS)
        };
        let temperature = if model.temperature {
            params.temperature.or(recommended.temperature)
        } else {
            None
        };
        RequestOptions {
            temperature,
            top_p: params.top_p.or(recommended.top_p),
            top_k: recommended.top_k,
            max_output: Some(params.max_output).filter(is_safe),
            options: match options {
                Value::Object(options) => options,
                _ => Map::new(),
            },
        }
    }

    /// Returns the options of an effort: those of the variant with this name, otherwise those of
    /// the wire format.
    fn effort(&self, model: &Model, effort: &str) -> Map<String, Value> {
        let variant = self
            .variants
            .iter()
            .find(|(name, _)| name == effort)
            .map(|(_, options)| options.clone());
        variant.unwrap_or_else(|| self.wire.effort(model, &self.target, effort))
    }

    /// Returns the options with which a model thinks as little as it can.
    fn least_effort(&self, model: &Model) -> Map<String, Value> {
        self.wire.least_effort(model).unwrap_or_else(|| {
            let weakest = model.efforts.first();
            weakest.map_or_else(Map::new, |effort| self.effort(model, effort))
        })
    }

    /// Returns the wire format in which this provider searches the web for a model; `None` if it
    /// cannot.
    fn search_wire(&self, model: &Model) -> Option<&'static dyn WireFormat> {
        let id = model.api_id.as_str();
        match (self.target.provider.as_str(), self.wire.name()) {
            ("anthropic", "messages") => super::anthropic::can_search_web(id).then_some(self.wire),
            ("openai", "responses") => super::responses::can_search_web(id).then_some(self.wire),
            ("google" | "google-vertex", "gemini") => {
                super::gemini::can_search_web(id).then_some(self.wire)
            }
            // xAI searches in this wire format only.
            ("xai", "chat" | "responses") => Some(&Responses),
            _ => None,
        }
    }

    fn origin(&self, target: &RequestTarget, model: &Model, url: &str) -> RequestOrigin {
        RequestOrigin {
            provider: target.provider.clone(),
            model: model.id.model.clone(),
            api_id: model.api_id.clone(),
            base: target.base_url.clone(),
            url: without_url_secrets(url),
            key: self.key_source.clone(),
            key_remedy: self.key_remedy.clone(),
            variable: self.address_variable.clone(),
            is_set_by_editor: self.is_set_by_editor,
        }
    }

    /// Requests the list of models, which most servers send without a key.
    ///
    /// # Errors
    /// There is no answer, or a server on this machine does not list the model.
    async fn check_server(&self, model: &Model, limit: Duration) -> Result<(), Error> {
        /// The maximum size of the list, in bytes.
        const MAX_LIST_BYTES: usize = 1 << 20;
        let target = &self.target;
        let url = target.url("/models");
        let origin = self.origin(target, model, &url);
        // Servers elsewhere may accept more names than they list, so their lists are not read.
        let is_local = is_loopback_address(&url);
        let max_bytes = if is_local { MAX_LIST_BYTES } else { 0 };
        let reply = self.client.probe(&target.name, &url, limit, max_bytes);
        let (status, body) = reply.await.map_err(|e| origin.explain(e))?;
        if !is_local || !status.is_success() || local::accepts_unlisted_models(&body) {
            return Ok(());
        }
        let listed = local::listed_models(&body);
        let alternative_name = local::alternative_name(&model.id);
        let is_listed = |name: &str| listed.iter().any(|known| known == name);
        if listed.is_empty()
            || is_listed(&model.api_id)
            || alternative_name.is_some_and(|name| is_listed(&name))
        {
            return Ok(());
        }
        let fetch = local::fetch_command(&target.provider, &target.base_url, &model.api_id);
        let remedy = match fetch {
            Some(command) => format!("`{command}` fetches it"),
            None => format!("it has {}", listed.join(", ")),
        };
        Err(Error::BadRequest(format!(
            "{} at {} does not have the model {}: {remedy}.",
            target.name,
            without_url_secrets(&target.base_url),
            model.api_id
        )))
    }

    /// Encodes and sends a request to `target`, and streams its answer. `secrets` are the keys in
    /// the target.
    fn stream_from(
        &self,
        target: &RequestTarget,
        request: &Request,
        secrets: Vec<Secret>,
    ) -> AnswerStream {
        let search_wire = if request.params.search {
            self.search_wire(&request.model)
        } else {
            None
        };
        let wire = search_wire.unwrap_or(self.wire);
        match wire.encode(request, target, &self.request_options(request)) {
            Err(e) => failed_answer(e),
            Ok(mut call) => {
                let has_header = |name: &str| {
                    call.headers
                        .iter()
                        .any(|(own, _)| own.eq_ignore_ascii_case(name))
                };
                let additional: Vec<_> = request
                    .params
                    .headers
                    .iter()
                    .filter(|(name, _)| !self.is_set_by_editor && !has_header(name))
                    .cloned()
                    .collect();
                call.headers.extend(additional);
                let decoder = wire.decoder(target);
                let recording = self.client.start_recording(
                    wire.name(),
                    &target.name,
                    &request.model,
                    &call,
                    &secrets,
                );
                let origin = self.origin(target, &request.model, &call.url);
                let answer = self.client.stream(
                    target.name.as_str().into(),
                    call,
                    decoder,
                    self.timeouts,
                    recording,
                );
                let requested = request.model.id.to_string();
                // Suggestions first, because they search the error for the word "model", which
                // Gemini's address contains.
                let answer = with_suggestions(answer, requested, Arc::clone(&self.model_names));
                let answer = with_origin(answer, origin);
                without_keys(answer, secrets)
            }
        }
    }
}

/// Returns an answer that consists of an error.
fn failed_answer(e: Error) -> AnswerStream {
    Box::pin(futures_util::stream::iter([Err(e)]))
}

impl Provider for Arc<Endpoint> {
    fn can_search_web(&self, model: &Model) -> bool {
        self.unusable.is_none() && self.search_wire(model).is_some()
    }

    fn check<'a>(&'a self, model: &'a Model, limit: Duration) -> BoxFuture<'a, Result<(), Error>> {
        if let Some(why) = &self.unusable {
            return std::future::ready(Err(why.clone())).boxed();
        }
        self.check_server(model, limit).boxed()
    }

    fn stream(&self, request: Arc<Request>) -> AnswerStream {
        if let Some(why) = &self.unusable {
            return failed_answer(why.clone());
        }
        if self.login.is_none() {
            return self.stream_from(&self.target, &request, self.secrets.clone());
        }
        // The token is requested only when it is needed.
        let endpoint = Arc::clone(self);
        let begin = async move {
            let token = match &endpoint.login {
                Some(login) => login.token().await,
                None => return failed_answer(Error::NoKey("There is no login.".into())),
            };
            match token {
                Err(e) => failed_answer(e),
                Ok(token) => {
                    let target = RequestTarget {
                        key: Some(token.clone()),
                        ..endpoint.target.clone()
                    };
                    endpoint.stream_from(&target, &request, vec![token])
                }
            }
        };
        Box::pin(futures_util::stream::once(begin).flatten())
    }
}

fn is_loopback_address(base_url: &str) -> bool {
    reqwest::Url::parse(base_url).is_ok_and(|url| is_loopback(&url))
}

/// Redacts the keys in errors, because some providers repeat them in their messages.
fn without_keys(answer: AnswerStream, keys: Vec<Secret>) -> AnswerStream {
    Box::pin(
        answer
            .map(move |item| item.map_err(|e| e.map_message(|text| without_secrets(&text, &keys)))),
    )
}

/// The address and the key of a request, for errors about them.
#[cfg_attr(test, derive(Clone))]
struct RequestOrigin {
    provider: String,
    /// The model's name in the configuration.
    model: String,
    /// The provider's own name of the model.
    api_id: String,
    /// The address of the API.
    base: String,
    /// The address of the request, without secrets.
    url: String,
    /// The source of the key, for display.
    key: String,
    /// The remedy if the request had no key; `None` if it had one.
    key_remedy: Option<String>,
    /// The environment variable that contains the address; `None` if it is from elsewhere.
    variable: Option<String>,
    /// True if the editor has set the address and the key.
    is_set_by_editor: bool,
}

impl RequestOrigin {
    /// Adds the address or the source of the key, and the remedy, to an error that they may explain.
    fn explain(&self, error: Error) -> Error {
        let Self {
            provider, url, key, ..
        } = self;
        match error {
            // The keys are the editor's, so advice about the user's keys would be wrong.
            Error::Auth(text) if self.is_set_by_editor => Error::NoKey(format!(
                "{text} The request went to {url} with {key}: correct them there."
            )),
            Error::Auth(text) => {
                let text = format!("{text} {}", self.shown_request());
                match &self.key_remedy {
                    Some(remedy) => Error::NoKey(format!("{text} {remedy}")),
                    None => Error::Auth(text),
                }
            }
            Error::Quota(text) => Error::Quota(format!("{text} {}", self.shown_request())),
            Error::Unreachable(text) => {
                Error::Unreachable(format!("{text} {}", self.shown_address()))
            }
            Error::Network(text) if is_loopback_address(&self.base) => {
                let start = match local::start_command(provider, &self.base) {
                    Some(command) if !self.is_set_by_editor => format!(": `{command}` starts it"),
                    _ => String::new(),
                };
                Error::LocalNetwork(format!(
                    "{text} {} Check that the server still runs{start}.",
                    self.shown_address()
                ))
            }
            Error::ConnectionRefused(text) => {
                let start = match local::start_command(provider, &self.base) {
                    _ if self.is_set_by_editor => {
                        "The editor has set it: start it, correct it there".into()
                    }
                    Some(command) => match &self.variable {
                        Some(variable) => {
                            format!("Start it with `{command}`, correct {variable}")
                        }
                        None => format!("Start it with `{command}`"),
                    },
                    None => format!("Start it, correct {}", self.address_setting()),
                };
                Error::ConnectionRefused(format!(
                    "{text} {} {start}, or choose another model (`adjutant models`).",
                    self.shown_address()
                ))
            }
            Error::BadRequest(text) if has_no_tools(&text) => Error::BadRequest(format!(
                "{text} {} `adjutant models --tools` lists the models that support them; to use this one without \
                 tools, set provider.{provider}.models.{}.tool_call to false in the configuration.",
                self.shown_request(),
                self.model
            )),
            Error::BadRequest(text) if is_unknown_model(&text) && !self.is_set_by_editor => {
                let fetch = local::fetch_command(provider, &self.base, &self.api_id);
                let remedy = match fetch {
                    Some(command) => format!("`{command}` fetches it."),
                    None => format!("`adjutant models {provider}` lists its models."),
                };
                Error::BadRequest(format!("{text} {} {remedy}", self.shown_request()))
            }
            Error::BadRequest(text) if text.contains(REDIRECT_PHRASE) && !self.is_set_by_editor => {
                Error::BadRequest(format!(
                    "{text} If that is right, set {} to its address.",
                    self.address_setting()
                ))
            }
            // Servers answer an unknown path so, or with a page for people.
            Error::BadRequest(text) if is_wrong_path(&text) => {
                Error::BadRequest(format!("{text} {}", self.path_hint()))
            }
            Error::WebPage(text) => Error::WebPage(format!("{text} {}", self.path_hint())),
            Error::InvalidAnswer(text) if text.contains("is not a model's answer") => {
                Error::InvalidAnswer(format!("{text} {}", self.path_hint()))
            }
            other => other,
        }
    }

    /// Returns the sentence about the address and the source of the key.
    fn shown_request(&self) -> String {
        format!("The request went to {} with {}.", self.url, self.key)
    }

    /// Returns the sentence about the address, with the variable that contains it.
    fn shown_address(&self) -> String {
        match &self.variable {
            Some(variable) => format!("The address is {}, from {variable}.", self.url),
            None => format!("The address is {}.", self.url),
        }
    }

    /// Names the setting or the variable of the address.
    fn address_setting(&self) -> String {
        match &self.variable {
            Some(variable) => variable.clone(),
            None => format!(
                "provider.{}.options.baseURL in the configuration",
                self.provider
            ),
        }
    }

    /// Returns the sentences for an error about the path of the address.
    fn path_hint(&self) -> String {
        let address = self.shown_address();
        match platform::with_version(&without_url_secrets(&self.base)) {
            _ if self.is_set_by_editor => format!("{address} The editor has set it."),
            Some(base) => format!(
                "{address} If {base} is meant, set {} to it.",
                self.address_setting()
            ),
            None => address,
        }
    }
}

/// True if the message of an error states that the model cannot call tools.
fn has_no_tools(text: &str) -> bool {
    let lower = text.to_lowercase();
    [
        "not support tools",
        "not support tool use",
        "not support function calling",
    ]
    .iter()
    .any(|phrase| lower.contains(phrase))
}

/// True if the message of an error states that the server does not have the model.
fn is_unknown_model(text: &str) -> bool {
    let lower = text.to_lowercase();
    let is_missing = [": model", ": the model", "model_not_found"];
    lower.contains(" answered 404")
        && is_missing.iter().any(|phrase| lower.contains(phrase))
        && ["not found", "not exist"]
            .iter()
            .any(|phrase| lower.contains(phrase))
}

/// True if the message of an error is about the path of the request, not about its model.
fn is_wrong_path(text: &str) -> bool {
    let lower = text.to_lowercase();
    [" answered 404", " answered 405"]
        .iter()
        .any(|status| lower.contains(status))
        && !lower.contains("model")
}

/// Returns a URL without the parts that may be secret: user, password, query and fragment. Empty if
/// it is not a URL.
pub(crate) fn without_url_secrets(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else {
        return String::new();
    };
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for URLs that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

fn with_origin(answer: AnswerStream, origin: RequestOrigin) -> AnswerStream {
    Box::pin(answer.map(move |item| item.map_err(|e| origin.explain(e))))
}

/// Adds the most similar model name to errors about an unknown model: its name is usually misspelt,
/// or replaced by that of a newer version.
fn with_suggestions(
    answer: AnswerStream,
    requested: String,
    model_names: Arc<[String]>,
) -> AnswerStream {
    let is_missing = |text: &str| {
        let text = text.to_lowercase();
        let phrases = [
            "not found",
            "does not exist",
            "not exist",
            "unknown",
            "no such",
            "404",
            "not supported",
            "invalid model",
        ];
        text.contains("model") && phrases.iter().any(|phrase| text.contains(phrase))
    };
    Box::pin(answer.map(move |item| {
        item.map_err(|e| match e {
            Error::BadRequest(text) if is_missing(&text) => {
                let others = model_names
                    .iter()
                    .map(String::as_str)
                    .filter(|name| *name != requested);
                match base::text::nearest(&requested, others) {
                    Some(near) => Error::BadRequest(format!("{text} Did you mean {near}?")),
                    None => Error::BadRequest(text),
                }
            }
            other => other,
        })
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::anthropic::Messages;
    use crate::chat::Chat;
    use crate::gemini::Gemini;
    use crate::request::{BodyCache, ModelParams};
    use base::environment::Environment;
    use transcript::ModelRef;

    fn endpoint(wire: &'static dyn WireFormat, options: Value) -> Endpoint {
        let environment = Environment::from_vars(Default::default());
        Endpoint {
            client: Arc::new(HttpClient::new(&environment)),
            wire,
            target: RequestTarget::default(),
            secrets: Vec::new(),
            is_set_by_editor: false,
            login: None,
            timeouts: RequestTimeouts::default(),
            options: options.as_object().cloned().unwrap_or_default(),
            variants: Vec::new(),
            model_names: Arc::default(),
            unusable: None,
            key_source: String::new(),
            key_remedy: None,
            address_variable: None,
        }
    }

    fn request(wire: &dyn WireFormat, name: &str, effort: Option<&str>) -> Request {
        let id = ModelRef {
            provider: "p".into(),
            model: name.into(),
            effort: effort.map(str::to_owned),
        };
        let mut model = Model {
            reasoning: true,
            output: Some(64_000),
            ..Model::unknown(id)
        };
        model.efforts = wire.efforts(&model);
        Request {
            model: Arc::new(model),
            system: Vec::new(),
            messages: Vec::new(),
            tools: Vec::new(),
            must_call: false,
            params: ModelParams::default(),
            session: String::new(),
            body_cache: BodyCache::default(),
        }
    }

    #[test]
    fn effort_is_chosen_or_default_or_least() {
        let enabled =
            |budget: u64| json!({"thinking": {"type": "enabled", "budget_tokens": budget}});
        let adaptive = json!({"thinking": {"type": "adaptive"}});
        let low = json!({"output_config": {"effort": "low"}});
        let none = json!({});
        // Wire format, model, settings; options for the default effort and for the least.
        let table: [(&'static dyn WireFormat, &str, Value, Value, Value); 12] = [
            (
                &Messages,
                "claude-opus-4-6",
                json!({}),
                adaptive.clone(),
                low.clone(),
            ),
            (
                &Messages,
                "claude-opus-4-5",
                json!({}),
                enabled(31_999),
                low.clone(),
            ),
            (
                &Messages,
                "claude-sonnet-4-5",
                json!({}),
                enabled(31_999),
                none.clone(),
            ),
            (
                &Messages,
                "claude-3-7-sonnet",
                json!({}),
                enabled(31_999),
                none.clone(),
            ),
            (
                &Messages,
                "kimi-k2-thinking",
                json!({}),
                none.clone(),
                none.clone(),
            ),
            (
                &Messages,
                "claude-opus-4-6",
                json!({"thinking": {"type": "disabled"}}),
                json!({"thinking": {"type": "disabled"}}),
                json!({"thinking": {"type": "disabled"}}),
            ),
            (
                &Messages,
                "claude-sonnet-4-5",
                json!({"temperature": 0.2}),
                json!({"temperature": 0.2}),
                json!({"temperature": 0.2}),
            ),
            (
                &Responses,
                "gpt-5-nano",
                json!({}),
                none.clone(),
                json!({"reasoning": {"effort": "minimal", "summary": "auto"}}),
            ),
            (
                &Chat,
                "gpt-oss",
                json!({}),
                none.clone(),
                json!({"reasoning_effort": "low"}),
            ),
            (&Chat, "glm-4.6", json!({}), none.clone(), none.clone()),
            (
                &Gemini,
                "gemini-3-flash",
                json!({}),
                none.clone(),
                json!({"thinkingConfig": {"includeThoughts": true, "thinkingLevel": "minimal"}}),
            ),
            (
                &Gemini,
                "gemini-2.5-flash",
                json!({}),
                none.clone(),
                json!({"thinkingConfig": {"includeThoughts": false, "thinkingBudget": 0}}),
            ),
        ];
        for (wire, name, options, default, least) in table {
            let endpoint = endpoint(wire, options.clone());
            let mut request = request(wire, name, None);
            let found =
                |request: &Request| Value::Object(endpoint.request_options(request).options);
            assert_eq!(found(&request), default, "{name} {options}");
            request.params.least_effort = true;
            assert_eq!(found(&request), least, "{name} {options}");
        }
        // A search has no effort, unless it is that of not thinking.
        let searches: [(&'static dyn WireFormat, &str, Value); 3] = [
            (&Responses, "gpt-5", none.clone()),
            (&Chat, "grok-4", none),
            (&Messages, "claude-opus-4-6", low),
        ];
        for (wire, name, expected) in searches {
            let mut request = request(wire, name, None);
            request.params.least_effort = true;
            request.params.search = true;
            let found = endpoint(wire, json!({})).request_options(&request).options;
            assert_eq!(Value::Object(found), expected, "{name}");
        }
        // A chosen effort precedes the default one; the least one precedes both.
        let endpoint = endpoint(&Chat, json!({}));
        let mut request = request(&Chat, "gpt-oss", Some("high"));
        assert_eq!(
            endpoint.request_options(&request).options["reasoning_effort"],
            "high"
        );
        request.params.least_effort = true;
        assert_eq!(
            endpoint.request_options(&request).options["reasoning_effort"],
            "low"
        );
    }

    #[test]
    fn errors_name_address_and_key() {
        let origin = RequestOrigin {
            provider: "ollama".into(),
            model: "gemma3".into(),
            api_id: "gemma3:4b".into(),
            base: "http://me:pw@127.0.0.1:11434/openai".into(),
            url: without_url_secrets("http://me:pw@127.0.0.1:11434/openai/x?key=k#f"),
            is_set_by_editor: false,
            key: "the key from ACME_KEY".into(),
            key_remedy: None,
            variable: None,
        };
        let explained = |error: Error| origin.explain(error).to_string();
        let url = "http://127.0.0.1:11434/openai/x";
        assert_eq!(
            explained(Error::Auth("No.".into())),
            format!("No. The request went to {url} with the key from ACME_KEY.")
        );
        let keyless = RequestOrigin {
            key: "no key, because ACME_KEY is not set (a.json:1)".into(),
            key_remedy: Some("Set it, or run `adjutant auth login ollama`.".into()),
            ..origin.clone()
        };
        assert_eq!(
            keyless.explain(Error::Auth("No.".into())),
            Error::NoKey(format!(
                "No. The request went to {url} with no key, because ACME_KEY is not set (a.json:1). Set it, or \
                 run `adjutant auth login ollama`."
            ))
        );
        assert_eq!(
            explained(Error::ConnectionRefused("It is not running.".into())),
            format!(
                "It is not running. The address is {url}. Start it with `ollama serve`, or choose another model (`adjutant models`)."
            )
        );
        assert_eq!(
            explained(Error::BadRequest("Acme answered 404 Not Found.".into())),
            format!(
                "Acme answered 404 Not Found. The address is {url}. If http://127.0.0.1:11434/openai/v1 is \
                 meant, set provider.ollama.options.baseURL in the configuration to it."
            )
        );
        let went = format!("The request went to {url} with the key from ACME_KEY.");
        assert_eq!(
            explained(Error::Quota("No credit.".into())),
            format!("No credit. {went}")
        );
        assert_eq!(
            explained(Error::BadRequest("gemma3 does not support tools.".into())),
            format!(
                "gemma3 does not support tools. {went} `adjutant models --tools` lists the models that support \
                 them; to use this one without tools, set provider.ollama.models.gemma3.tool_call to false in the \
                 configuration."
            )
        );
        let missing = "Acme answered 404 Not Found: model 'gemma3:4b' not found.";
        assert_eq!(
            explained(Error::BadRequest(missing.into())),
            format!("{missing} {went} `ollama pull gemma3:4b` fetches it.")
        );
        let moved = "Acme answered 308 Permanent Redirect: it redirects to https://b/v1/x.";
        assert_eq!(
            explained(Error::BadRequest(moved.into())),
            format!(
                "{moved} If that is right, set provider.ollama.options.baseURL in the configuration to its address."
            )
        );
        let broken = "The connection to Acme broke: end of file.";
        assert_eq!(
            origin.explain(Error::Network(broken.into())),
            Error::LocalNetwork(format!(
                "{broken} The address is {url}. Check that the server still runs: `ollama serve` starts it."
            ))
        );
        let elsewhere = RequestOrigin {
            base: "https://api.acme.test/v1".into(),
            ..origin.clone()
        };
        let network = Error::Network(broken.into());
        assert_eq!(elsewhere.explain(network.clone()), network);
        assert_eq!(
            explained(Error::Unreachable(
                "Acme could not be reached: timed out.".into()
            )),
            format!("Acme could not be reached: timed out. The address is {url}.")
        );
        let missing = "Acme answered 404 Not Found: The model x does not exist.";
        assert_eq!(
            explained(Error::BadRequest(missing.into())),
            format!("{missing} {went} `ollama pull gemma3:4b` fetches it.")
        );
        let other = "Acme answered 400 Bad Request: no.";
        assert_eq!(explained(Error::BadRequest(other.into())), other);
    }

    #[test]
    fn errors_name_the_variable_of_an_address() {
        let base = "http://127.0.0.1:9/proxy";
        let origin = |provider: &str, variable: &str| RequestOrigin {
            provider: provider.into(),
            model: "m".into(),
            api_id: "m".into(),
            base: base.into(),
            url: format!("{base}/messages"),
            is_set_by_editor: false,
            key: "no key".into(),
            key_remedy: None,
            variable: Some(variable.into()),
        };
        let anthropic = origin("anthropic", "ANTHROPIC_BASE_URL");
        let address = format!("The address is {base}/messages, from ANTHROPIC_BASE_URL.");
        let moved = "A answered 301 Moved Permanently: it redirects to https://b/messages.";
        let table = [
            (
                Error::ConnectionRefused("No.".into()),
                format!(
                    "No. {address} Start it, correct ANTHROPIC_BASE_URL, or choose another model (`adjutant models`)."
                ),
            ),
            (Error::Unreachable("No.".into()), format!("No. {address}")),
            (
                Error::WebPage("No.".into()),
                format!("No. {address} If {base}/v1 is meant, set ANTHROPIC_BASE_URL to it."),
            ),
            (
                Error::BadRequest(moved.into()),
                format!("{moved} If that is right, set ANTHROPIC_BASE_URL to its address."),
            ),
        ];
        for (error, expected) in table {
            assert_eq!(anthropic.explain(error).to_string(), expected);
        }
        let ollama =
            origin("ollama", "OLLAMA_HOST").explain(Error::ConnectionRefused("No.".into()));
        assert_eq!(
            ollama.to_string(),
            format!(
                "No. The address is {base}/messages, from OLLAMA_HOST. Start it with `ollama serve`, \
                 correct OLLAMA_HOST, or choose another model (`adjutant models`)."
            )
        );
    }
}
