//! The offer of a server in a turn ([`TurnOffer`]). It stays the same for the whole turn, so that
//! all requests to the model in the turn have the same prefix. Changes apply from the next turn on,
//! with two exceptions that apply at the next step: a server that had no offer yet, and a change
//! that the server reports after a call in this turn, because the call may have been made for that
//! change.

use std::sync::Arc;

use super::catalog::{ServerCatalog, ServerOffer};
use super::connection::{FailureKind, McpConnection, ServerState};
use super::tool;

/// Creates the offer of a server from its catalogue.
pub(super) fn from_catalog(connection: &Arc<McpConnection>, catalog: ServerCatalog) -> ServerOffer {
    let ServerCatalog {
        tools,
        is_cut,
        unreadable,
        prompts,
        can_complete,
        has_resources,
        can_subscribe,
        instructions,
    } = catalog;
    let tools = tools
        .into_iter()
        .map(|listed| tool::from_listing(connection, listed))
        .collect();
    ServerOffer {
        tools,
        is_cut,
        unreadable,
        prompts,
        can_complete,
        has_resources,
        can_subscribe,
        instructions,
    }
}

/// The offer of a server in a turn.
#[derive(Clone)]
pub(super) enum TurnOffer {
    Offered(Arc<ServerOffer>),
    /// The server does not work, for this reason.
    Failed(String),
    /// The server is not ready yet, and no catalogue is stored.
    Missing,
}

impl TurnOffer {
    /// Returns the offer of a turn that begins now.
    pub(super) fn at_turn_start(connection: &McpConnection) -> Self {
        if let Some(offer) = connection.offer() {
            return Self::Offered(offer);
        }
        match connection.state() {
            ServerState::Failed(failure) if failure.kind != FailureKind::Disconnected => {
                Self::Failed(failure.why.clone())
            }
            _ => Self::Missing,
        }
    }

    /// Returns the offer for the next step of the turn.
    pub(super) fn at_next_step(self, connection: &McpConnection) -> Self {
        let is_unchanged = matches!(self, Self::Offered(_)) && !connection.has_changed_after_call();
        match connection.offer() {
            Some(offer) if !is_unchanged => Self::Offered(offer),
            _ => self,
        }
    }

    pub(super) fn offer(&self) -> Option<&Arc<ServerOffer>> {
        match self {
            Self::Offered(offer) => Some(offer),
            Self::Failed(_) | Self::Missing => None,
        }
    }
}
