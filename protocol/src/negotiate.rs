//! The version of the protocol on a connection: the highest that both sides support, chosen by the
//! handshake and never changed afterwards.
//!
//! Each version is a table with its own state. A failed handshake chooses no version: the client
//! may try again.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::json;

use crate::rpc::{self, Error, Id, code};
use crate::table::{Dispatch, RequestContext, Router, Table};

const INITIALIZE: &str = "initialize";

/// The supported versions of the protocol.
pub struct Versions<S> {
    first: Table<S>,
    /// Optional, because version 2 is a draft.
    second: Option<Table<S>>,
    /// True if a request other than a handshake arrived in version 2, which makes the choice final.
    is_settled: AtomicBool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HandshakeVersion {
    protocol_version: u16,
}

impl<S: Send + Sync + 'static> Versions<S> {
    /// Creates a connection for version 1, and for version 2 if a table is given.
    pub fn new(first: Table<S>, second: Option<Table<S>>) -> Self {
        Self {
            first,
            second,
            is_settled: AtomicBool::new(false),
        }
    }

    /// Returns the table of version 2, if it was chosen.
    fn chosen(&self) -> Option<&Table<S>> {
        self.second
            .as_ref()
            .filter(|second| second.accepts_requests())
    }

    /// Returns the table for a handshake.
    fn requested(&self, params: &str) -> Result<&Table<S>, Error> {
        let version = serde_json::from_str(params)
            .map(|handshake: HandshakeVersion| handshake.protocol_version)
            .ok();
        if let Some(second) = self.chosen() {
            if self.is_settled.load(Ordering::Relaxed) {
                return Err(Error::invalid_request(
                    "this connection has been initialized; it stays with version 2",
                ));
            }
            return match version {
                Some(version @ ..2) => Err(unsupported(version)),
                // The table refuses anything that is not a version.
                _ => Ok(second),
            };
        }
        match (&self.second, version) {
            (Some(second), Some(2..)) if !self.first.accepts_requests() => Ok(second),
            _ => Ok(&self.first),
        }
    }
}

impl<S: Send + Sync + 'static> Router for Versions<S> {
    fn dispatch(&self, id: &Id, method: &str, params: &str, cx: &RequestContext) -> Dispatch {
        if method == INITIALIZE {
            return match self.requested(params) {
                Ok(table) => table.dispatch(id, method, params, cx),
                Err(error) => Dispatch::Done(rpc::failure(id, &error)),
            };
        }
        let Some(second) = self.chosen() else {
            return self.first.dispatch(id, method, params, cx);
        };
        self.is_settled.store(true, Ordering::Relaxed);
        if *id == Id::null() {
            let error = Error::invalid_request("the id of a request is a text or a whole number");
            return Dispatch::Done(rpc::failure(id, &error));
        }
        second.dispatch(id, method, params, cx)
    }

    fn notify(&self, method: &str, params: &str) {
        match self.chosen() {
            Some(second) => second.notify(method, params),
            None => self.first.notify(method, params),
        }
    }
}

fn unsupported(version: u16) -> Error {
    Error::new(
        code::UNSUPPORTED_VERSION,
        format!("This connection speaks version 2; it cannot change to {version}"),
    )
    .data(json!({ "requested": version, "supported": [2] }))
}
