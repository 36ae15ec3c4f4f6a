//! Which version of the protocol a connection speaks: the highest that both sides know, chosen with the
//! handshake and never changed after it.
//!
//! Each version is a table of its own, over a state of its own. A handshake that fails chooses nothing: the
//! editor may try again.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use serde_json::json;

use crate::rpc::{self, Error, Id, code};
use crate::table::{Cx, Dispatch, Routes, Table};

const INITIALIZE: &str = "initialize";

/// The versions of the protocol that are spoken here.
pub struct Versions<S> {
    first: Table<S>,
    /// Not spoken by everybody: it is a draft.
    second: Option<Table<S>>,
    /// Something else than a handshake was said in version 2: it stays as it is.
    settled: AtomicBool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    protocol_version: u16,
}

impl<S: Send + Sync + 'static> Versions<S> {
    /// Version 1, and version 2 where that is wanted.
    pub fn new(first: Table<S>, second: Option<Table<S>>) -> Self {
        Self { first, second, settled: AtomicBool::new(false) }
    }

    /// The table of version 2, if that was chosen.
    fn chosen(&self) -> Option<&Table<S>> {
        self.second.as_ref().filter(|second| second.is_open())
    }

    /// The table that a handshake is for.
    fn asked(&self, params: &str) -> Result<&Table<S>, Error> {
        let version = serde_json::from_str(params).map(|asked: Asked| asked.protocol_version).ok();
        if let Some(second) = self.chosen() {
            if self.settled.load(Ordering::Relaxed) {
                return Err(Error::invalid_request("this connection has been initialized; it stays with version 2"));
            }
            return match version {
                Some(version @ ..2) => Err(unsupported(version)),
                // What is no version is refused there.
                _ => Ok(second),
            };
        }
        match (&self.second, version) {
            (Some(second), Some(2..)) if !self.first.is_open() => Ok(second),
            _ => Ok(&self.first),
        }
    }
}

impl<S: Send + Sync + 'static> Routes for Versions<S> {
    fn dispatch(&self, id: &Id, method: &str, params: &str, cx: &Cx) -> Dispatch {
        if method == INITIALIZE {
            return match self.asked(params) {
                Ok(table) => table.dispatch(id, method, params, cx),
                Err(error) => Dispatch::Done(rpc::failure(id, &error)),
            };
        }
        let Some(second) = self.chosen() else { return self.first.dispatch(id, method, params, cx) };
        self.settled.store(true, Ordering::Relaxed);
        if *id == Id::null() {
            let error = Error::invalid_request("the id of a request is a text or a whole number");
            return Dispatch::Done(rpc::failure(id, &error));
        }
        second.dispatch(id, method, params, cx)
    }

    fn note(&self, method: &str, params: &str) {
        match self.chosen() {
            Some(second) => second.note(method, params),
            None => self.first.note(method, params),
        }
    }
}

fn unsupported(version: u16) -> Error {
    Error::new(code::UNSUPPORTED_VERSION, format!("This connection speaks version 2; it cannot change to {version}"))
        .data(json!({ "requested": version, "supported": [2] }))
}
