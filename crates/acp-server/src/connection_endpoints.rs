//! The endpoints of model providers that the client of a connection has set.

use std::collections::BTreeMap;
use std::sync::Mutex;

use base::lock::lock;
use providers::editor_endpoints::{EditorEndpoint, EditorEndpoints};

/// The endpoints that the client of a connection has set. The only owner of them; sessions have
/// copies.
#[derive(Default)]
pub struct ConnectionEndpoints {
    // A std mutex around values: a leaf lock.
    state: Mutex<EndpointState>,
}

#[derive(Default)]
struct EndpointState {
    endpoints: EditorEndpoints,
    /// The number of changes that were requested.
    requested: u64,
    /// The number of the last change of each provider that was made.
    made: BTreeMap<String, u64>,
}

impl ConnectionEndpoints {
    /// Returns the endpoints that are set now.
    pub fn current(&self) -> EditorEndpoints {
        lock(&self.state).endpoints.clone()
    }

    /// Returns the number of a new change, in the order of the requests.
    pub(super) fn request(&self) -> u64 {
        let mut state = lock(&self.state);
        state.requested += 1;
        state.requested
    }

    /// Makes a change, unless a later one of the same provider was made before.
    pub(super) fn change(&self, number: u64, provider: &str, endpoint: EditorEndpoint) {
        let mut state = lock(&self.state);
        let last = state.made.entry(provider.to_owned()).or_default();
        if *last < number {
            *last = number;
            state.endpoints = state.endpoints.with(provider, endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use providers::custom_endpoint::{ApiType, CustomEndpoint};

    #[test]
    fn earlier_change_does_not_replace_a_later_one() {
        let endpoints = ConnectionEndpoints::default();
        let earlier = endpoints.request();
        let later = endpoints.request();
        let custom = CustomEndpoint::new(ApiType::OpenAi, "https://gw.example/v1", []).unwrap();
        let set = EditorEndpoint::Set(Arc::new(custom));
        endpoints.change(later, "openai", EditorEndpoint::Disabled);
        endpoints.change(earlier, "openai", set.clone());
        endpoints.change(earlier, "anthropic", set);
        let current = endpoints.current();
        assert!(current.is_disabled("openai"));
        assert!(current.custom("anthropic").is_some());
    }
}
