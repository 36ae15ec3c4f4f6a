//! Endpoints of providers that an editor sets for its connection, in place of those of the user.
//!
//! An endpoint replaces everything that determines where a request goes and with which credentials:
//! the user's key never reaches an address of the editor's.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::header::{HeaderName, HeaderValue};

use crate::entry::{LOCATION_OPTIONS, ModelEntry, ProviderEntry, Secret};

/// The maximum number of headers of an endpoint.
const MAX_HEADERS: usize = 64;
/// The maximum length of an address or of a header's value, in bytes.
const MAX_VALUE_BYTES: usize = 16 << 10;
/// Headers that belong to the connection or to the body.
const RESERVED_HEADERS: [&str; 6] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "upgrade",
];

/// The API of an endpoint, as the protocol of editors names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiType {
    Anthropic,
    OpenAi,
    Azure,
    Vertex,
    Bedrock,
    Gemini,
}

impl ApiType {
    const ALL: [Self; 6] = [
        Self::Anthropic,
        Self::OpenAi,
        Self::Azure,
        Self::Vertex,
        Self::Bedrock,
        Self::Gemini,
    ];

    /// Returns the name. One that begins with `_` is ours.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Azure => "azure",
            Self::Vertex => "vertex",
            Self::Bedrock => "bedrock",
            Self::Gemini => "_gemini",
        }
    }

    /// Returns the API of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.name() == name)
    }

    /// Returns the API that an SDK package speaks.
    pub fn of_package(npm: Option<&str>) -> Self {
        match npm {
            Some("@ai-sdk/anthropic") => Self::Anthropic,
            Some("@ai-sdk/azure") => Self::Azure,
            Some("@ai-sdk/amazon-bedrock") => Self::Bedrock,
            Some("@ai-sdk/google") => Self::Gemini,
            Some(npm) if npm.starts_with("@ai-sdk/google-vertex") => Self::Vertex,
            _ => Self::OpenAi,
        }
    }

    /// Returns the APIs that a provider of this one can be asked with: its own, and those that
    /// gateways translate to it.
    pub fn supported(self) -> Vec<Self> {
        let others = [Self::OpenAi, Self::Anthropic];
        std::iter::once(self)
            .chain(others.into_iter().filter(|other| *other != self))
            .collect()
    }

    /// Returns the SDK package with which a provider of another API is asked.
    fn package(self) -> &'static str {
        match self {
            Self::Anthropic => "@ai-sdk/anthropic",
            Self::OpenAi => "@ai-sdk/openai-compatible",
            Self::Azure => "@ai-sdk/azure",
            Self::Vertex => "@ai-sdk/google-vertex",
            Self::Bedrock => "@ai-sdk/amazon-bedrock",
            Self::Gemini => "@ai-sdk/google",
        }
    }
}

/// An endpoint that an editor has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomEndpoint {
    pub api: ApiType,
    /// The address without the path of a method; it holds no secret.
    pub base_url: String,
    /// All headers with credentials.
    headers: Vec<(String, Secret)>,
    /// Whether requests may only connect to public addresses.
    pub public_only: bool,
}

impl CustomEndpoint {
    /// Checks an endpoint.
    ///
    /// # Errors
    /// The fault and its remedy, without any of the values.
    pub fn new(
        api: ApiType,
        base_url: &str,
        headers: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let base_url = checked_address(base_url)?;
        let mut known: Vec<(String, Secret)> = Vec::new();
        for (name, value) in headers {
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                "headers: a name contains characters that are not allowed in a header".to_owned()
            })?;
            let name = header.as_str().to_owned();
            if RESERVED_HEADERS.contains(&name.as_str()) {
                return Err(format!(
                    "headers.{name}: the connection sets this header; leave it out"
                ));
            }
            if value.len() > MAX_VALUE_BYTES {
                return Err(format!(
                    "headers.{name}: the value is longer than {MAX_VALUE_BYTES} bytes"
                ));
            }
            if HeaderValue::from_str(value.trim()).is_err() {
                return Err(format!(
                    "headers.{name}: the value contains characters that are not allowed in a header"
                ));
            }
            if known.iter().any(|(other, _)| *other == name) {
                return Err(format!(
                    "headers.{name}: the header is named twice; names are the same in any case"
                ));
            }
            known.push((name, Secret::new(value.trim())));
        }
        if known.len() > MAX_HEADERS {
            return Err(format!("headers: there are more than {MAX_HEADERS}"));
        }
        // The order of a map of the editor's is not the same each time.
        known.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(Self {
            api,
            base_url,
            headers: known,
            public_only: false,
        })
    }

    /// Returns the values that errors and recordings must not contain: those of the headers, with
    /// and without a scheme (`Bearer …`).
    pub fn secrets(&self) -> Vec<Secret> {
        const MIN_SECRET_BYTES: usize = 6;
        let mut all: Vec<&str> = Vec::new();
        for (_, value) in &self.headers {
            let value = value.expose();
            all.push(value);
            all.extend(value.split_once(' ').map(|(_, key)| key.trim()));
        }
        all.retain(|value| value.len() >= MIN_SECRET_BYTES);
        // A value that contains another one is replaced as a whole.
        all.sort_by_key(|value| std::cmp::Reverse(value.len()));
        all.into_iter().map(Secret::new).collect()
    }
}

/// Returns an address in its usual form; one without a path gets the version that most APIs have.
fn checked_address(text: &str) -> Result<String, String> {
    const FORM: &str = "baseUrl must be an http or https address without user, query and fragment, such as https://gateway.example.com/v1";
    if text.len() > MAX_VALUE_BYTES {
        return Err(FORM.to_owned());
    }
    let url = reqwest::Url::parse(text.trim()).map_err(|_| FORM.to_owned())?;
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    let is_web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    // `${VAR}` in addresses of settings is replaced from the user's environment.
    if !is_plain || !is_web || text.contains("${") {
        return Err(FORM.to_owned());
    }
    let base = url.as_str().trim_end_matches('/');
    Ok(if url.path() == "/" {
        format!("{base}/v1")
    } else {
        base.to_owned()
    })
}

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

    fn endpoint(base: &str, headers: &[(&str, &str)]) -> Result<CustomEndpoint, String> {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        CustomEndpoint::new(ApiType::OpenAi, base, headers)
    }

    #[test]
    fn addresses_are_plain() {
        let table = [
            ("https://gw.example/v1", Some("https://gw.example/v1")),
            ("https://gw.example/v1/", Some("https://gw.example/v1")),
            ("https://gw.example", Some("https://gw.example/v1")),
            (
                "http://127.0.0.1:8080/openai",
                Some("http://127.0.0.1:8080/openai"),
            ),
            ("https://user:secret@gw.example/v1", None),
            ("https://gw.example/v1?key=secret", None),
            ("https://gw.example/v1#secret", None),
            ("https://gw.example/${HOME}", None),
            ("file:///etc/passwd", None),
            ("gw.example/v1", None),
            ("", None),
        ];
        for (text, wanted) in table {
            let base = endpoint(text, &[]).map(|endpoint| endpoint.base_url);
            assert_eq!(base.as_deref().ok(), wanted, "{text}");
            let complaint = base.err().unwrap_or_default();
            assert!(!complaint.contains("secret"), "{complaint}");
        }
    }

    #[test]
    fn headers_are_checked_without_their_values() {
        let base = "https://gw.example/v1";
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        let table: [(&[(&str, &str)], &str); 5] = [
            (&[("a b", "secret")], "a name contains characters"),
            (&[("x-key", "secret\nsecret")], "headers.x-key: the value"),
            (&[("Host", "secret")], "headers.host: the connection sets"),
            (&[("x-key", &long)], "longer than"),
            (&[("X-Key", "secret"), ("x-key", "secret")], "named twice"),
        ];
        for (headers, wanted) in table {
            let complaint = endpoint(base, headers).unwrap_err();
            assert!(complaint.contains(wanted), "{complaint}");
            assert!(!complaint.contains("secret"), "{complaint}");
        }
    }

    #[test]
    fn secrets_are_values_with_and_without_scheme() {
        let endpoint = endpoint(
            "https://gw.example/v1",
            &[("authorization", "Bearer sk-123456"), ("x-team", "a")],
        )
        .unwrap();
        let secrets: Vec<_> = endpoint.secrets();
        let secrets: Vec<_> = secrets.iter().map(Secret::expose).collect();
        assert_eq!(secrets, ["Bearer sk-123456", "sk-123456"]);
        assert!(!format!("{endpoint:?}").contains("sk-123456"));
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
