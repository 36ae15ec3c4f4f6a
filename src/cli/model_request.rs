//! One question to a model from the command line, outside of a session.

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::StreamExt as _;

use base::environment::Environment;
use config::settings::Settings;
use providers::editor_endpoints::EditorEndpoints;
use providers::registry::Registry;
use providers::request::{BodyCache, ModelInput, ModelMessage, ModelParams};
use providers::{Delta, Model, Provider, Request};
use session::models::ModelSources;

/// Returns the models of the settings; if there are none, those of the model servers on this
/// machine.
pub(super) async fn registry(settings: &Settings, environment: &Environment) -> Registry {
    let sources = ModelSources::new(environment);
    let registry = sources.configured(settings);
    if !registry.is_offline_only() {
        return registry;
    }
    sources
        .with_local(settings, &EditorEndpoints::default())
        .await
        .unwrap_or(registry)
}

/// A question to a model.
pub(super) struct ModelQuestion {
    pub(super) system: String,
    pub(super) text: String,
    pub(super) temperature: f64,
    /// The name of the request, in place of a session's id.
    pub(super) name: &'static str,
}

/// Asks a model, and returns its whole answer.
pub(super) async fn send(
    model: &Arc<Model>,
    provider: &dyn Provider,
    question: ModelQuestion,
) -> anyhow::Result<String> {
    let params = ModelParams {
        temperature: model.temperature.then_some(question.temperature),
        max_output: model.max_output(),
        ..ModelParams::default()
    };
    let request = Request {
        model: Arc::clone(model),
        system: vec![question.system.trim().to_owned()],
        messages: vec![ModelMessage::User(vec![ModelInput::Text(
            question.text.into(),
        )])],
        tools: Vec::new(),
        must_call: false,
        params,
        session: question.name.into(),
        body_cache: BodyCache::default(),
    };
    let mut answer = provider.stream(Arc::new(request));
    let mut text_so_far = String::new();
    while let Some(delta) = answer.next().await {
        if let Delta::Text { text, .. } =
            delta.with_context(|| format!("{} did not answer", model.id))?
        {
            text_so_far.push_str(&text);
        }
    }
    Ok(text_so_far)
}
