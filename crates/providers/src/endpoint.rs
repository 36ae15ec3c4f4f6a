//! A model at a provider, ready for requests: the wire format, the address, the key, and the
//! options merged from the settings, the agent and the effort.

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Map, Value};

use super::http::{HttpClient, RequestTimeouts};
use super::oauth::TokenRefresher;
use super::responses::Responses;
use super::target::{Knobs, Target};
use super::wire::{Wire, merge};
use super::{AnswerStream, Error, Model, Provider, Request, family};
use crate::entry::Secret;

pub struct Endpoint {
    pub client: Arc<HttpClient>,
    pub wire: &'static dyn Wire,
    pub target: Target,
    /// The key, wherever the target contains it; it is redacted from recordings and errors.
    pub secret: Option<Secret>,
    /// The login that provides the token, if there is no key.
    pub login: Option<TokenRefresher>,
    pub limits: RequestTimeouts,
    /// The options from the provider's and the model's settings.
    pub options: Map<String, Value>,
    /// The options of the named variants.
    pub variants: Vec<(String, Map<String, Value>)>,
    /// The names of the provider's models, suggested if this one does not exist.
    pub siblings: Arc<[String]>,
    /// The reason why requests are impossible, if they are.
    pub unusable: Option<Error>,
}

impl Endpoint {
    /// Resolves the options of a request. In ascending precedence: the recommendations for the
    /// family of models, the settings, the agent, the chosen effort.
    pub fn knobs(&self, request: &Request) -> Knobs {
        let model = &request.model;
        let params = &request.params;
        let recommended = family::sampling(&model.api_id);
        let chosen = if params.least_effort {
            None
        } else {
            model.id.effort.as_ref()
        };
        let is_configured = |name: &str| {
            [&self.options, &params.options]
                .iter()
                .any(|over| over.contains_key(name))
        };
        let mut options = Value::Object(family::options(model, &self.target));
        if model.reasoning && chosen.is_none() && !is_configured("thinking") {
            let unchosen = if params.least_effort {
                self.least_effort(model)
            } else {
                self.wire.default_effort(model)
            };
            merge(&mut options, &Value::Object(unchosen));
        }
        for over in [&self.options, &params.options] {
            merge(&mut options, &Value::Object(over.clone()));
        }
        if let Some(effort) = chosen {
            merge(&mut options, &Value::Object(self.effort(model, effort)));
        }
        // If the limit is unknown, some servers refuse a request for a large answer.
        let is_safe =
            |limit: &u64| *limit > 0 && (model.output.is_some() || *limit < Model::OUTPUT_LIMIT);
        let temperature = if model.temperature {
            params.temperature.or(recommended.temperature)
        } else {
            None
        };
        Knobs {
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
}

impl Endpoint {
    /// Returns the options of an effort.
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

    /// Returns the wire format in which this provider searches the web for a model, if it does.
    fn search_wire(&self, model: &Model) -> Option<&'static dyn Wire> {
        let id = model.api_id.as_str();
        match (self.target.provider.as_str(), self.wire.name()) {
            ("anthropic", "messages") => super::anthropic::searches(id).then_some(self.wire),
            ("openai", "responses") => super::responses::searches(id).then_some(self.wire),
            ("google" | "google-vertex", "gemini") => {
                super::gemini::searches(id).then_some(self.wire)
            }
            // xAI searches in this wire format only.
            ("xai", _) => Some(&Responses),
            _ => None,
        }
    }

    fn ask_at(&self, target: &Target, request: &Request, secret: Option<Secret>) -> AnswerStream {
        let search_wire = if request.params.search {
            self.search_wire(&request.model)
        } else {
            None
        };
        let wire = search_wire.unwrap_or(self.wire);
        match wire.encode(request, target, &self.knobs(request)) {
            Err(e) => refuse(e),
            Ok(mut call) => {
                let has_header = |name: &str| {
                    call.headers
                        .iter()
                        .any(|(own, _)| own.eq_ignore_ascii_case(name))
                };
                let more: Vec<_> = request
                    .params
                    .headers
                    .iter()
                    .filter(|(name, _)| !has_header(name))
                    .cloned()
                    .collect();
                call.headers.extend(more);
                let decoder = wire.decoder(target);
                let recording = self.client.record(
                    wire.name(),
                    &target.name,
                    &request.model,
                    &call,
                    secret.as_ref(),
                );
                let answer = self.client.ask(
                    target.name.as_str().into(),
                    call,
                    decoder,
                    self.limits,
                    recording,
                );
                let requested = request.model.id.to_string();
                with_suggestions(
                    without_key(answer, secret),
                    requested,
                    Arc::clone(&self.siblings),
                )
            }
        }
    }
}

fn refuse(e: Error) -> AnswerStream {
    Box::pin(futures_util::stream::iter([Err(e)]))
}

impl Provider for Arc<Endpoint> {
    fn searches(&self, model: &Model) -> bool {
        self.unusable.is_none() && self.search_wire(model).is_some()
    }

    fn ask(&self, request: Arc<Request>) -> AnswerStream {
        if let Some(why) = &self.unusable {
            return refuse(why.clone());
        }
        if self.login.is_none() {
            return self.ask_at(&self.target, &request, self.secret.clone());
        }
        // The token is requested only when it is needed.
        let endpoint = Arc::clone(self);
        let begin = async move {
            let token = match &endpoint.login {
                Some(login) => login.token().await,
                None => return refuse(Error::Keyless("There is no login.".into())),
            };
            match token {
                Err(e) => refuse(e),
                Ok(token) => {
                    let target = Target {
                        key: Some(token.clone()),
                        ..endpoint.target.clone()
                    };
                    endpoint.ask_at(&target, &request, Some(token))
                }
            }
        };
        Box::pin(futures_util::stream::once(begin).flatten())
    }
}

/// Redacts the key in errors, because some providers repeat it in their messages.
fn without_key(answer: AnswerStream, key: Option<Secret>) -> AnswerStream {
    let Some(key) = key.filter(|key| key.expose().len() >= 6) else {
        return answer;
    };
    Box::pin(
        answer.map(move |item| {
            item.map_err(|e| e.reworded(|text| text.replace(key.expose(), "[key]")))
        }),
    )
}

/// Adds a suggestion to errors about a missing model, whose name is usually misspelt or has a
/// successor.
fn with_suggestions(
    answer: AnswerStream,
    requested: String,
    siblings: Arc<[String]>,
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
                let others = siblings
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
