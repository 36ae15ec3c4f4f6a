//! One model at one provider, ready to be asked: a wire, an address, a key, and the wishes that
//! are laid over each other before a request is written.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::http::{Client, Limits};
use super::wire::{Knobs, Secret, Target, Wire, merge};
use super::{Answer, Error, Model, Provider, Request, family};

/// See the module.
pub struct Endpoint {
    /// Posts.
    pub client: Arc<Client>,
    /// The dialect.
    pub wire: &'static dyn Wire,
    /// Where and as whom.
    pub target: Target,
    /// The key, wherever in the target it is: it must not be shown.
    pub secret: Option<Secret>,
    /// How long to wait.
    pub limits: Limits,
    /// What the provider's and the model's settings say.
    pub options: Map<String, Value>,
    /// The options of the named variants.
    pub variants: Vec<(String, Map<String, Value>)>,
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

impl Provider for Endpoint {
    fn ask(&self, request: Arc<Request>) -> Answer {
        let refuse = |e: Error| -> Answer { Box::pin(futures_util::stream::iter([Err(e)])) };
        if let Some(why) = &self.unusable {
            return refuse(why.clone());
        }
        match self.wire.encode(&request, &self.target, &self.knobs(&request)) {
            Err(e) => refuse(e),
            Ok(call) => {
                let decoder = self.wire.decoder(&self.target);
                let answer = self.client.ask(self.target.name.as_str().into(), call, decoder, self.limits);
                without_key(answer, self.secret.clone())
            }
        }
    }
}

/// Some providers repeat the key in what they complain about it.
fn without_key(answer: Answer, key: Option<Secret>) -> Answer {
    use futures_util::StreamExt;
    let Some(key) = key.filter(|key| key.expose().len() >= 6) else { return answer };
    Box::pin(answer.map(move |item| item.map_err(|e| e.reworded(|text| text.replace(key.expose(), "[key]")))))
}
