//! The values that a wire format needs to encode a request, in addition to the request itself: the
//! server ([`RequestTarget`]) and the options ([`RequestOptions`]).

use serde_json::{Map, Value};

use crate::secret::Secret;

/// The server of a request: its address, the credentials for it, and the fields that it takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestTarget {
    /// The provider's id in the configuration.
    pub provider: String,
    /// The provider's display name.
    pub name: String,
    /// The address without the path of an endpoint; may have a query.
    pub base_url: String,
    /// The key, which the wire format puts into its usual header; `None` if there is none, or it is
    /// in `headers`.
    pub key: Option<Secret>,
    /// Headers of every call (name, value). The last one of a name takes precedence.
    pub headers: Vec<(String, String)>,
    /// True to send the session id as the key of the provider's prompt cache, false to send none.
    /// `None` if the user has not chosen: see [`Self::accepts_cache_key`].
    pub cache_key: Option<bool>,
    /// The field in which this model's reasoning is sent back; `None` if unknown. Only for Chat
    /// Completions.
    pub reasoning_field: Option<String>,
}

impl RequestTarget {
    /// True for OpenAI itself, and for Azure.
    pub fn is_openai(&self) -> bool {
        self.provider.starts_with("azure")
            || self.base_url.contains("api.openai.com")
            || self.base_url.contains(".openai.azure.com")
    }

    /// True if the session id is sent as `prompt_cache_key`: if the user has chosen so, otherwise if
    /// the server documents the field. Other servers may reject a request with an unknown field.
    pub fn accepts_cache_key(&self) -> bool {
        const HOSTS: [&str; 5] = [
            "api.x.ai",
            "api.venice.ai",
            "api.deepinfra.com",
            "api.cerebras.ai",
            "opencode.ai/zen",
        ];
        self.cache_key.unwrap_or_else(|| {
            self.is_openai() || HOSTS.iter().any(|host| self.base_url.contains(host))
        })
    }

    /// Returns the address of an endpoint; the path is inserted before the query.
    pub fn url(&self, path: &str) -> String {
        let (base, query) = match self.base_url.split_once('?') {
            Some((base, query)) => (base, Some(query)),
            None => (self.base_url.as_str(), None),
        };
        let base = base.trim_end_matches('/');
        match query {
            Some(query) if path.contains('?') => format!("{base}{path}&{query}"),
            Some(query) => format!("{base}{path}?{query}"),
            None => format!("{base}{path}"),
        }
    }
}

/// Sampling and provider options, resolved from the agent, the model and the user's settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestOptions {
    /// The sampling temperature; `None` leaves it to the model.
    pub temperature: Option<f64>,
    /// The nucleus sampling threshold; `None` leaves it to the model.
    pub top_p: Option<f64>,
    /// The number of candidate tokens for sampling; `None` leaves it to the model.
    pub top_k: Option<u64>,
    /// The maximum output in tokens. `None` if the model's limit is unknown and the wanted one is so
    /// high that a server might reject it.
    pub max_output: Option<u64>,
    /// All other options, under the provider's names or OpenCode's; the wire format converts them.
    pub options: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_key_is_sent_to_servers_that_take_it() {
        let table = [
            ("openai", "https://api.openai.com/v1", None, true),
            ("mine", "https://api.openai.com/v1", Some(false), false),
            ("azure", "https://r.openai.azure.com/openai/v1", None, true),
            ("xai", "https://api.x.ai/v1", None, true),
            ("openai", "http://127.0.0.1:4000/v1", None, false),
            ("openai", "http://127.0.0.1:4000/v1", Some(true), true),
            ("groq", "https://api.groq.com/openai/v1", None, false),
        ];
        for (provider, base, cache_key, expected) in table {
            let target = RequestTarget {
                provider: provider.into(),
                base_url: base.into(),
                cache_key,
                ..RequestTarget::default()
            };
            assert_eq!(target.accepts_cache_key(), expected, "{provider} {base}");
        }
    }

    #[test]
    fn url_inserts_path_before_query() {
        let cases = [
            ("https://a/v1", "/x", "https://a/v1/x"),
            ("https://a/v1/", "/x", "https://a/v1/x"),
            (
                "https://a/openai?api-version=1",
                "/x",
                "https://a/openai/x?api-version=1",
            ),
            ("https://a/?k=1", "/x?alt=sse", "https://a/x?alt=sse&k=1"),
        ];
        for (base, path, expected) in cases {
            let target = RequestTarget {
                base_url: base.into(),
                ..RequestTarget::default()
            };
            assert_eq!(target.url(path), expected);
        }
    }
}
