//! The encoded body of a request, of which the next request reuses the common beginning
//! ([`super::super::body`]).

use std::sync::Mutex;

use bytes::Bytes;

use super::Request;
use crate::request_target::RequestTarget;
use base::lock::{into_inner, lock};

/// The encoded body of a request; before encoding, the preceding request.
#[derive(Default)]
pub struct BodyCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    before: Option<Box<Request>>,
    written: Option<CachedBody>,
}

pub(crate) struct CachedBody {
    pub(crate) target: RequestTarget,
    /// The end offsets of the leading elements that later requests do not change.
    pub(crate) ends: Vec<ElementEnd>,
    pub(crate) body: Bytes,
}

pub(crate) struct ElementEnd {
    pub(crate) message_count: usize,
    pub(crate) at: usize,
}

impl BodyCache {
    /// Creates the cache of a request that follows `before`, which has ended.
    pub fn after(before: Request) -> Self {
        Self(Mutex::new(CacheState {
            before: Some(Box::new(before)),
            written: None,
        }))
    }

    /// Returns whether the request follows another one. For the mock provider.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn follows(&self) -> bool {
        lock(&self.0).before.is_some()
    }

    /// Takes the encoded body that this request may begin with, and the number of leading messages
    /// that are the same. The body is of this request itself if it is sent again, otherwise of the
    /// preceding one.
    pub(crate) fn take(
        &self,
        request: &Request,
        target: &RequestTarget,
    ) -> Option<(CachedBody, usize)> {
        let mut state = lock(&self.0);
        let (written, same) = match (state.written.take(), state.before.take()) {
            (Some(written), _) => (written, request.messages.len()),
            (None, Some(before))
                if before.system == request.system && before.model == request.model =>
            {
                let pairs = before.messages.iter().zip(&request.messages);
                let same = pairs.take_while(|(one, other)| one.same(other)).count();
                (into_inner(before.body_cache.0).written?, same)
            }
            _ => return None,
        };
        (written.target == *target).then_some((written, same))
    }

    pub(crate) fn put(&self, written: CachedBody) {
        lock(&self.0).written = Some(written);
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
