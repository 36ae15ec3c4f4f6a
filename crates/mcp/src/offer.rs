//! The offer of a server in a turn. It stays the same for the whole turn, so that all requests of
//! the turn have the same prefix, and changes apply from the next turn on. There are two
//! exceptions, which apply at the next step: a server that was missing, and a change that a server
//! reports after a call of this turn, because the call may have been made for that change.

use std::sync::Arc;

use super::catalog::{ServerCatalog, ServerOffer};
use super::connection::{FailureKind, McpLink, ServerState};
use super::tool;

/// Converts a server's list into tools.
pub(super) fn of(link: &Arc<McpLink>, catalog: ServerCatalog) -> ServerOffer {
    let ServerCatalog {
        tools,
        cut,
        unreadable,
        prompts,
        completes,
        resources,
        subscribes,
        instructions,
    } = catalog;
    let tools = tools
        .into_iter()
        .map(|listed| tool::of(link, listed))
        .collect();
    ServerOffer {
        tools,
        cut,
        unreadable,
        prompts,
        completes,
        resources,
        subscribes,
        instructions,
    }
}

/// The offer of a server in a turn.
#[derive(Clone)]
pub(super) enum TurnOffer {
    Offered(Arc<ServerOffer>),
    /// The reason for the failure.
    Failed(String),
    /// Not ready yet, and not known from an earlier start.
    Missing,
}

impl TurnOffer {
    /// Returns the offer of a turn that begins now.
    pub(super) fn now(link: &McpLink) -> Self {
        if let Some(offer) = link.offers() {
            return Self::Offered(offer);
        }
        match link.state() {
            ServerState::Failed(breakdown) if breakdown.kind != FailureKind::Disconnected => {
                Self::Failed(breakdown.why.clone())
            }
            _ => Self::Missing,
        }
    }

    /// Returns the offer of the turn's next step.
    pub(super) fn next(self, link: &McpLink) -> Self {
        let stays = matches!(self, Self::Offered(_)) && !link.has_changed_after_call();
        match link.offers() {
            Some(offer) if !stays => Self::Offered(offer),
            _ => self,
        }
    }

    pub(super) fn offered(&self) -> Option<&Arc<ServerOffer>> {
        match self {
            Self::Offered(offer) => Some(offer),
            Self::Failed(_) | Self::Missing => None,
        }
    }
}
