//! One model at one provider, ready to be asked: a wire, an address, a key, and the wishes that
//! are laid over each other before a request is written.

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
    /// The key, wherever in the target it is: it must not be shown.
    pub secret: Option<Secret>,
    /// The login that gives the key, where there is no key.
    pub login: Option<TokenRefresher>,
    pub limits: RequestTimeouts,
    /// What the provider's and the model's settings say.
    pub options: Map<String, Value>,
    /// The options of the named variants.
    pub variants: Vec<(String, Map<String, Value>)>,
    /// The names of the provider's models, to be suggested where this one is not there.
    pub siblings: Arc<[String]>,
    /// Why it cannot be asked, if it cannot.
    pub unusable: Option<Error>,
}

impl Endpoint {
    /// Settles what is wanted: what the family of models is best asked with, then the settings,
    /// then the agent, then the chosen effort.
    pub fn knobs(&self, request: &Request) -> Knobs {
        let model = &request.model;
        let params = &request.params;
        let usual = family::sampling(&model.api_id);
        let mut options = Value::Object(family::options(model, &self.target));
        for over in [&self.options, &params.options] {
            merge(&mut options, &Value::Object(over.clone()));
        }
        if let Some(effort) = &model.id.effort {
            let named = self.variants.iter().find(|(name, _)| name == effort).map(|(_, options)| options.clone());
            let wanted = named.unwrap_or_else(|| self.wire.effort(model, &self.target, effort));
            merge(&mut options, &Value::Object(wanted));
        }
        // Where nobody knows the limit, asking for a large answer makes some servers refuse.
        let safe = |most: &u64| *most > 0 && (model.output.is_some() || *most < Model::OUTPUT_LIMIT);
        Knobs {
            temperature: params.temperature.or(usual.temperature).filter(|_| model.temperature),
            top_p: params.top_p.or(usual.top_p),
            top_k: usual.top_k,
            max_output: Some(params.max_output).filter(safe),
            options: match options {
                Value::Object(options) => options,
                _ => Map::new(),
            },
        }
    }
}

impl Endpoint {
    /// The wire in which this provider searches the web for a model, where it does.
    fn search_wire(&self, model: &Model) -> Option<&'static dyn Wire> {
        let id = model.api_id.as_str();
        match (self.target.provider.as_str(), self.wire.name()) {
            ("anthropic", "messages") => super::anthropic::searches(id).then_some(self.wire),
            ("openai", "responses") => super::responses::searches(id).then_some(self.wire),
            ("google" | "google-vertex", "gemini") => super::gemini::searches(id).then_some(self.wire),
            // It searches in this wire alone.
            ("xai", _) => Some(&Responses),
            _ => None,
        }
    }

    fn ask_at(&self, target: &Target, request: &Request, secret: Option<Secret>) -> AnswerStream {
        let searching = request.params.search.then(|| self.search_wire(&request.model)).flatten();
        let wire = searching.unwrap_or(self.wire);
        match wire.encode(request, target, &self.knobs(request)) {
            Err(e) => refuse(e),
            Ok(mut call) => {
                let known = |name: &str| call.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
                let more: Vec<_> = request.params.headers.iter().filter(|(name, _)| !known(name)).cloned().collect();
                call.headers.extend(more);
                let decoder = wire.decoder(target);
                let tape = self.client.record(wire.name(), &target.name, &request.model, &call, secret.as_ref());
                let answer = self.client.ask(target.name.as_str().into(), call, decoder, self.limits, tape);
                let asked = request.model.id.to_string();
                suggesting(without_key(answer, secret), asked, Arc::clone(&self.siblings))
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
        // The token is asked for when it is needed, not before.
        let endpoint = Arc::clone(self);
        let begin = async move {
            let token = match &endpoint.login {
                Some(login) => login.token().await,
                None => return refuse(Error::Keyless("There is no login.".into())),
            };
            match token {
                Err(e) => refuse(e),
                Ok(token) => {
                    let target = Target { key: Some(token.clone()), ..endpoint.target.clone() };
                    endpoint.ask_at(&target, &request, Some(token))
                }
            }
        };
        Box::pin(futures_util::stream::once(begin).flatten())
    }
}

/// Some providers repeat the key in what they complain about it.
fn without_key(answer: AnswerStream, key: Option<Secret>) -> AnswerStream {
    let Some(key) = key.filter(|key| key.expose().len() >= 6) else { return answer };
    Box::pin(answer.map(move |item| item.map_err(|e| e.reworded(|text| text.replace(key.expose(), "[key]")))))
}

/// A model that the provider does not have is usually misspelt, or has a successor.
fn suggesting(answer: AnswerStream, asked: String, siblings: Arc<[String]>) -> AnswerStream {
    let is_missing = |text: &str| {
        let text = text.to_lowercase();
        let gone =
            ["not found", "does not exist", "not exist", "unknown", "no such", "404", "not supported", "invalid model"];
        text.contains("model") && gone.iter().any(|words| text.contains(words))
    };
    Box::pin(answer.map(move |item| {
        item.map_err(|e| match e {
            Error::BadRequest(text) if is_missing(&text) => {
                let others = siblings.iter().map(String::as_str).filter(|name| *name != asked);
                match base::text::nearest(&asked, others) {
                    Some(near) => Error::BadRequest(format!("{text} Did you mean {near}?")),
                    None => Error::BadRequest(text),
                }
            }
            other => other,
        })
    }))
}
