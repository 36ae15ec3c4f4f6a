//! What was written of a request: where the next one says the same, its bytes are taken over ([`super::super::body`]).

use std::sync::Mutex;

use bytes::Bytes;

use super::Request;
use crate::target::Target;
use base::lock::{locked, unlocked};

/// What a request became on the wire, and before that, the request that was asked before it.
#[derive(Default)]
pub struct BodyCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    before: Option<Box<Request>>,
    written: Option<CachedBody>,
}

pub(crate) struct CachedBody {
    pub(crate) target: Target,
    /// Where the elements end that stay as they are, the first ones of the list.
    pub(crate) ends: Vec<ElementEnd>,
    pub(crate) body: Bytes,
}

pub(crate) struct ElementEnd {
    pub(crate) upto: usize,
    pub(crate) at: usize,
}

impl BodyCache {
    /// For the request that follows one that is over.
    pub fn after(before: Request) -> Self {
        Self(Mutex::new(CacheState { before: Some(Box::new(before)), written: None }))
    }

    /// Whether it is for a request that follows another. For whoever pretends to be a provider.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn follows(&self) -> bool {
        locked(&self.0).before.is_some()
    }

    /// What was written that this request may begin with, and how many of its messages are the same:
    /// for this request itself, when it is asked again, else for the one before it.
    pub(crate) fn take(&self, request: &Request, target: &Target) -> Option<(CachedBody, usize)> {
        let mut kept = locked(&self.0);
        let (written, same) = match (kept.written.take(), kept.before.take()) {
            (Some(written), _) => (written, request.messages.len()),
            (None, Some(before)) if before.system == request.system && before.model == request.model => {
                let pairs = before.messages.iter().zip(&request.messages);
                let same = pairs.take_while(|(one, other)| one.same(other)).count();
                (unlocked(before.body_cache.0).written?, same)
            }
            _ => return None,
        };
        (written.target == *target).then_some((written, same))
    }

    pub(crate) fn put(&self, written: CachedBody) {
        locked(&self.0).written = Some(written);
    }
}

/// Whoever copies a request gets what it asks, not what was written of it.
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
