//! The endpoints that an editor has set for its connection ([`EditorEndpoints`]), in place of the
//! user's own settings.
//!
//! Such an endpoint replaces all settings of a provider that determine the address of requests and
//! their credentials, so that the user's key is never sent to an address of the editor.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::custom_endpoint::{ApiType, CustomEndpoint};
use crate::entry::{LOCATION_OPTIONS, ModelEntry, ProviderEntry};

/// The change of an editor to one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditorEndpoint {
    /// Requests go to this endpoint.
    Set(Arc<CustomEndpoint>),
    /// The provider is not offered.
    Disabled,
}

/// The changes of an editor to providers, by the provider's id. Immutable; cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EditorEndpoints(Arc<BTreeMap<String, EditorEndpoint>>);

impl EditorEndpoints {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the endpoint that is set for a provider; `None` if there is none, or the provider is
    /// disabled.
    pub fn custom(&self, provider: &str) -> Option<&Arc<CustomEndpoint>> {
        match self.0.get(provider)? {
            EditorEndpoint::Set(endpoint) => Some(endpoint),
            EditorEndpoint::Disabled => None,
        }
    }

    pub fn is_disabled(&self, provider: &str) -> bool {
        self.0.get(provider) == Some(&EditorEndpoint::Disabled)
    }

    /// Returns a copy with one more change.
    #[must_use]
    pub fn with(&self, provider: &str, endpoint: EditorEndpoint) -> Self {
        let mut all = BTreeMap::clone(&self.0);
        all.insert(provider.to_owned(), endpoint);
        Self(Arc::new(all))
    }
}

/// A provider whose endpoint an editor can set, with its current endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurableProvider {
    pub id: String,
    /// The APIs that an endpoint for it may have, its own first.
    pub supported: Vec<ApiType>,
    /// API and address of the provider's requests, without secrets; `None` if requests are
    /// impossible: the key is missing, or the provider is disabled.
    pub current: Option<(ApiType, String)>,
}

impl ProviderEntry {
    /// Returns the provider with an endpoint of the editor: without the user's settings that
    /// determine addresses or credentials, and without options of another API.
    #[must_use]
    pub(crate) fn with_editor_endpoint(mut self, endpoint: &Arc<CustomEndpoint>) -> Self {
        let has_api = |npm: Option<&str>| ApiType::from_package(npm) == endpoint.api;
        let keeps_api = has_api(self.npm.as_deref());
        if !keeps_api {
            self.npm = Some(endpoint.api.package().to_owned());
            // Options of another API.
            self.options.clear();
        }
        remove_location_options(&mut self.options);
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
            reset_model(model, keeps_api, has_api);
        }
        self.endpoint = Some(endpoint.clone());
        self
    }
}

/// Removes a model's own settings that determine addresses or credentials, and options of another
/// API. `provider_keeps_api` is true if the endpoint has the API that the provider had before;
/// `has_api` is true if an SDK package uses the endpoint's API.
fn reset_model(
    model: &mut ModelEntry,
    provider_keeps_api: bool,
    has_api: impl Fn(Option<&str>) -> bool,
) {
    let keeps_package = model.npm.is_some() && has_api(model.npm.as_deref());
    let keeps_api = keeps_package || provider_keeps_api && model.npm.is_none();
    if !keeps_package {
        model.npm = None;
    }
    if !keeps_api {
        model.options.clear();
        model.variants.clear();
        model.reasoning_field = None;
    }
    remove_location_options(&mut model.options);
    model.api = None;
    model.headers.clear();
}

fn remove_location_options(options: &mut serde_json::Map<String, serde_json::Value>) {
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
        let moved = entry.with_editor_endpoint(&Arc::new(endpoint));
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
        // Other options stay, because the API is the same.
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
        let moved =
            entry.with_editor_endpoint(&Arc::new(endpoint("https://gw.example/v1", &[]).unwrap()));
        assert_eq!(moved.npm.as_deref(), Some("@ai-sdk/openai-compatible"));
        assert!(moved.options.is_empty());
        assert_eq!(moved.models[0].npm, None);
    }
}
