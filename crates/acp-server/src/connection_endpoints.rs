//! [`ConnectionEndpoints`], the endpoints of model providers that the client of a connection has set. A
//! change is numbered when its request arrives, so that the last request wins even if its check takes
//! less time than that of an earlier one.

use std::collections::BTreeMap;
use std::sync::Mutex;

use base::lock::lock;
use providers::editor_endpoints::{EditorEndpoint, EditorEndpoints};

/// The endpoints that the client of a connection has set. Sessions get copies of them.
#[derive(Default)]
pub struct ConnectionEndpoints {
    // A std mutex around values: a leaf lock.
    state: Mutex<EndpointState>,
}

#[derive(Default)]
struct EndpointState {
    endpoints: EditorEndpoints,
    /// The number of the last requested change.
    last_number: u64,
    /// The number of the last change that was made, for each provider.
    made: BTreeMap<String, u64>,
}

impl ConnectionEndpoints {
    /// Returns the endpoints that are set now.
    pub fn current(&self) -> EditorEndpoints {
        lock(&self.state).endpoints.clone()
    }

    /// Returns the number for a change that a client requests now. Later requests get higher numbers.
    pub(super) fn next_change_number(&self) -> u64 {
        let mut state = lock(&self.state);
        state.last_number += 1;
        state.last_number
    }

    /// Makes the change with this number, unless a later change of the same provider was made before.
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
        let earlier = endpoints.next_change_number();
        let later = endpoints.next_change_number();
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
