//! Endpoints of providers that an editor sets for its connection, in place of those of the user.
//!
//! An endpoint replaces everything that determines where a request goes and with which credentials:
//! the user's key never reaches an address of the editor's.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::custom_endpoint::{ApiType, CustomEndpoint};
use crate::entry::{LOCATION_OPTIONS, ModelEntry, ProviderEntry};

/// The state of a provider that an editor has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditorEndpoint {
    Set(Arc<CustomEndpoint>),
    Disabled,
}

/// The providers that an editor has changed, by id. A change makes a new value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EditorEndpoints(Arc<BTreeMap<String, EditorEndpoint>>);

impl EditorEndpoints {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the endpoint of a provider, if one is set.
    pub fn custom(&self, provider: &str) -> Option<&Arc<CustomEndpoint>> {
        match self.0.get(provider)? {
            EditorEndpoint::Set(endpoint) => Some(endpoint),
            EditorEndpoint::Disabled => None,
        }
    }

    pub fn is_disabled(&self, provider: &str) -> bool {
        self.0.get(provider) == Some(&EditorEndpoint::Disabled)
    }

    /// Returns these endpoints with one more change.
    #[must_use]
    pub fn with(&self, provider: &str, endpoint: EditorEndpoint) -> Self {
        let mut all = BTreeMap::clone(&self.0);
        all.insert(provider.to_owned(), endpoint);
        Self(Arc::new(all))
    }
}

/// A provider whose endpoint an editor can set, with its present endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurableProvider {
    pub id: String,
    /// The APIs that an endpoint for it may have, its own first.
    pub supported: Vec<ApiType>,
    /// API and address of its requests, without secrets; `None` if it cannot be asked.
    pub current: Option<(ApiType, String)>,
}

impl ProviderEntry {
    /// Returns the provider at one of the editor's endpoints, without anything of the user that
    /// determines addresses or credentials.
    #[must_use]
    pub(crate) fn moved_to(mut self, endpoint: &Arc<CustomEndpoint>) -> Self {
        let is_kept = |npm: Option<&str>| ApiType::of_package(npm) == endpoint.api;
        let is_same = is_kept(self.npm.as_deref());
        if !is_same {
            self.npm = Some(endpoint.api.package().to_owned());
            // Options of another API.
            self.options.clear();
        }
        without_location(&mut self.options);
        self.base_url = Some(endpoint.base_url.clone());
        self.api_key = None;
        self.key_variable = None;
        self.unset_key = None;
        self.unset_address = None;
        self.waits_for_trust = false;
        self.env.clear();
        self.login = None;
        self.headers = endpoint
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect();
        for model in &mut self.models {
            move_model(model, is_same, is_kept);
        }
        self.endpoint = Some(endpoint.clone());
        self
    }
}

/// Removes what a model has of its own that determines addresses or credentials. `is_same`: the
/// provider keeps its API.
fn move_model(model: &mut ModelEntry, is_same: bool, is_kept: impl Fn(Option<&str>) -> bool) {
    let keeps_package = model.npm.is_some() && is_kept(model.npm.as_deref());
    let keeps_api = keeps_package || is_same && model.npm.is_none();
    if !keeps_package {
        model.npm = None;
    }
    if !keeps_api {
        model.options.clear();
        model.variants.clear();
        model.interleaved = None;
    }
    without_location(&mut model.options);
    model.api = None;
    model.headers.clear();
}

fn without_location(options: &mut serde_json::Map<String, serde_json::Value>) {
    options.retain(|name, _| !LOCATION_OPTIONS.contains(&name.as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn endpoint(base: &str, headers: &[(&str, &str)]) -> Result<CustomEndpoint, String> {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        CustomEndpoint::new(ApiType::OpenAi, base, headers)
    }

    #[test]
    fn nothing_of_the_user_moves_to_the_endpoint() {
        let secret = || vec![("x-key".to_owned(), "users-key".to_owned())];
        let options = || {
            let mine = serde_json::json!({ "apiKey": "users-key", "store": false });
            mine.as_object().cloned().unwrap_or_default()
        };
        let model = ModelEntry {
            key: "m".into(),
            api: Some("https://elsewhere.example/v1".into()),
            headers: secret(),
            options: options(),
            ..ModelEntry::default()
        };
        let entry = ProviderEntry {
            id: "acme".into(),
            base_url: Some("https://acme.example/v1?key=users-key".into()),
            api_key: Some(Secret::new("users-key")),
            env: vec!["ACME_KEY".into()],
            headers: secret(),
            options: options(),
            models: vec![model],
            ..ProviderEntry::default()
        };
        let endpoint = endpoint("https://gw.example/v1", &[("x-gw", "editors-key")]).unwrap();
        let moved = entry.moved_to(&Arc::new(endpoint));
        let text = format!("{moved:?}");
        assert!(
            !text.contains("users-key") && !text.contains("elsewhere"),
            "{text}"
        );
        assert_eq!(moved.api_key, None);
        assert_eq!(moved.env, Vec::<String>::new());
        assert_eq!(
            moved.headers,
            [("x-gw".to_owned(), "editors-key".to_owned())]
        );
        // What is not a location stays, because the API is the same.
        assert!(moved.models[0].options.contains_key("store"));
    }

    #[test]
    fn another_api_takes_no_options_along() {
        let options = serde_json::json!({ "thinking": { "type": "disabled" } });
        let entry = ProviderEntry {
            npm: Some("@ai-sdk/anthropic".into()),
            options: options.as_object().cloned().unwrap_or_default(),
            models: vec![ModelEntry {
                npm: Some("@ai-sdk/google".into()),
                ..ModelEntry::default()
            }],
            ..ProviderEntry::default()
        };
        let moved = entry.moved_to(&Arc::new(endpoint("https://gw.example/v1", &[]).unwrap()));
        assert_eq!(moved.npm.as_deref(), Some("@ai-sdk/openai-compatible"));
        assert!(moved.options.is_empty());
        assert_eq!(moved.models[0].npm, None);
    }
}
