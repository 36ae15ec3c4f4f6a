//! The offer of a server in a turn. It stays the same from the turn's beginning to its end, so that all requests of the
//! turn have one prefix: what changes meanwhile counts from the next turn on. Two things come at the next step: a
//! server that was missing, and what a server reports after a call of this turn, which may have been made for that.

use std::sync::Arc;

use super::catalog::{ServerCatalog, ServerOffer};
use super::link::{McpLink, ServerState, Trouble};
use super::tool;

/// Makes tools of what a server lists.
pub(super) fn of(link: &Arc<McpLink>, catalog: ServerCatalog) -> ServerOffer {
    let ServerCatalog { tools, cut, unreadable, prompts, completes, resources, subscribes, instructions } = catalog;
    let tools = tools.into_iter().map(|listed| tool::of(link, listed)).collect();
    ServerOffer { tools, cut, unreadable, prompts, completes, resources, subscribes, instructions }
}

/// The offer of a server in a turn.
#[derive(Clone)]
pub(super) enum TurnOffer {
    Offered(Arc<ServerOffer>),
    /// The reason that it does not work.
    Failed(String),
    /// It is not there yet, and not known from an earlier start.
    Missing,
}

impl TurnOffer {
    /// Returns what a turn that begins now offers.
    pub(super) fn now(link: &McpLink) -> Self {
        if let Some(offer) = link.offers() {
            return Self::Offered(offer);
        }
        match link.state() {
            ServerState::Failed(breakdown) if breakdown.trouble != Trouble::Broke => {
                Self::Failed(breakdown.why.clone())
            }
            _ => Self::Missing,
        }
    }

    /// Returns what the next step of the turn offers.
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
