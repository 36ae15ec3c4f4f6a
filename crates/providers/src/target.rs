//! Where and as whom a model is asked, and what can be turned about it.

use serde_json::{Map, Value};

use crate::entry::Secret;

/// Where to ask, and as whom.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Target {
    /// The provider's id in the configuration.
    pub provider: String,
    pub name: String,
    /// Without the path of a method; may have a query.
    pub base_url: String,
    pub key: Option<Secret>,
    /// Sent with every call; the last of a name wins.
    pub headers: Vec<(String, String)>,
    /// Whether to name the conversation for the provider's cache; none leaves it to the wire.
    pub cache_key: Option<bool>,
    /// The field that this model's reasoning goes back in, where it is known (Chat only).
    pub reasoning_field: Option<String>,
}

impl Target {
    /// The address of a method: its path goes before the query.
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

/// What can be turned: the agent's, the model's and the user's wishes, settled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Knobs {
    /// None leaves it to the model.
    pub temperature: Option<f64>,
    /// None leaves it to the model.
    pub top_p: Option<f64>,
    /// None leaves it to the model.
    pub top_k: Option<u64>,
    /// In tokens; none where asking for much could be refused.
    pub max_output: Option<u64>,
    /// Everything else, in the provider's words or OpenCode's.
    pub options: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_before_the_query() {
        let cases = [
            ("https://a/v1", "/x", "https://a/v1/x"),
            ("https://a/v1/", "/x", "https://a/v1/x"),
            ("https://a/openai?api-version=1", "/x", "https://a/openai/x?api-version=1"),
            ("https://a/?k=1", "/x?alt=sse", "https://a/x?alt=sse&k=1"),
        ];
        for (base, path, expected) in cases {
            let target = Target { base_url: base.into(), ..Target::default() };
            assert_eq!(target.url(path), expected);
        }
    }
}
