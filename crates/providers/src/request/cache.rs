//! Keeps the encoded body of a request ([`BodyCache`]), so that the next request can reuse the
//! beginning that the two have in common ([`super::super::body`]).

use std::sync::Mutex;

use bytes::Bytes;

use super::Request;
use crate::request_target::RequestTarget;
use base::lock::{into_inner, lock};

/// The encoded body of a request; before it is encoded, the preceding request.
// A leaf lock around the state; never held across an await.
#[derive(Default)]
pub struct BodyCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    /// The preceding request; `None` if there is none, or once this request has been encoded.
    preceding: Option<Box<Request>>,
    /// The encoded body; `None` until this request has been encoded.
    encoded: Option<CachedBody>,
}

/// An encoded body.
pub(crate) struct CachedBody {
    /// The target that it was encoded for.
    pub(crate) target: RequestTarget,
    /// The ends of the leading elements that later requests do not change.
    pub(crate) ends: Vec<ElementEnd>,
    pub(crate) body: Bytes,
}

/// The end of an element of the conversation in an encoded body.
pub(crate) struct ElementEnd {
    /// The number of messages that are encoded up to here.
    pub(crate) message_count: usize,
    /// The offset in the body, in bytes.
    pub(crate) at: usize,
}

/// A body that a request may begin with.
pub(crate) struct ReusableBody {
    pub(crate) cached: CachedBody,
    /// The number of leading messages that the request has in common with the body.
    pub(crate) common_messages: usize,
}

impl BodyCache {
    /// Creates the cache of a request that follows `preceding`, which has ended.
    pub fn after(preceding: Request) -> Self {
        Self(Mutex::new(CacheState {
            preceding: Some(Box::new(preceding)),
            encoded: None,
        }))
    }

    /// True if the request follows another one. For the mock provider.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn has_preceding(&self) -> bool {
        lock(&self.0).preceding.is_some()
    }

    /// Takes the encoded body that this request may begin with: its own body if it is sent again,
    /// otherwise that of the preceding request. `None` if there is no such body, or it was encoded
    /// for another target, model or system prompt.
    pub(crate) fn take(&self, request: &Request, target: &RequestTarget) -> Option<ReusableBody> {
        let mut state = lock(&self.0);
        let reusable = match (state.encoded.take(), state.preceding.take()) {
            (Some(cached), _) => ReusableBody {
                cached,
                common_messages: request.messages.len(),
            },
            (None, Some(preceding))
                if preceding.system == request.system && preceding.model == request.model =>
            {
                let pairs = preceding.messages.iter().zip(&request.messages);
                ReusableBody {
                    common_messages: pairs.take_while(|(one, other)| one.same(other)).count(),
                    cached: into_inner(preceding.body_cache.0).encoded?,
                }
            }
            _ => return None,
        };
        (reusable.cached.target == *target).then_some(reusable)
    }

    /// Stores the encoded body of this request.
    pub(crate) fn put(&self, encoded: CachedBody) {
        lock(&self.0).encoded = Some(encoded);
    }
}

/// A clone has an empty cache: only the request is copied, not its encoded body.
impl Clone for BodyCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl std::fmt::Debug for BodyCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BodyCache")
    }
}
