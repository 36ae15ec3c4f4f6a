//! Notices for the user about servers: servers that do not work or list too much, and tools that are
//! not offered because their names are taken. `AnnouncedState` records the last notice of each
//! server, so that a state is reported once.

use std::collections::HashMap;

use super::catalog::{OfferedTool, ServerOffer, join_names};
use super::connection::{FailureKind, MAX_FAILURES, McpFailure, ServerState};
use super::{McpServers, READ_ONLY_TOOLS, SessionServer};
use base::text;
use events::{Event, Severity};
use tools::registry::find_properties;

/// The notices about servers at the beginning of a turn or a step.
#[derive(Debug, Default)]
pub struct ServerNotices {
    pub events: Vec<Event>,
    /// The titles of the notices about all servers that do not work, even if these were reported
    /// before.
    pub failing: Vec<String>,
}

/// The state of a server in the last notice to the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnnouncedState {
    Works,
    Failing(FailureKind),
}

impl McpServers {
    /// Returns the new notices for the user: servers that do not work, and tools whose names are
    /// taken. A server that starts late is available from a later step on.
    pub(super) fn new_notices(&self) -> ServerNotices {
        let mut list = self.lock_servers();
        let mut events = Vec::new();
        let mut failed = Vec::new();
        let mut failing = Vec::new();
        for server in list.iter_mut() {
            // Read once: a server may fail or recover in the meantime.
            let state = server.connection.state();
            failing.extend(server.current_failure(&state));
            match server.new_state_change(state) {
                Some(StateChange::Works(notices)) => events.extend(notices),
                Some(StateChange::Fails(failure)) => failed.push(failure),
                None => {}
            }
        }
        events.extend(failure_notices(failed));
        let mut taken: HashMap<String, String> = HashMap::new();
        for server in list.iter_mut() {
            let Some(offer) = server.connection.offer() else {
                continue;
            };
            let conflicts: Vec<String> = offer
                .tools
                .iter()
                .filter_map(|tool| tool.reserve_name(&server.settings.name, &mut taken))
                .collect();
            if conflicts != server.name_conflicts {
                server.name_conflicts.clone_from(&conflicts);
                events.extend(name_conflict_notice(&server.settings.name, &conflicts));
            }
        }
        let failing = failure_notices(failing)
            .into_iter()
            .filter_map(notice_title)
            .collect();
        ServerNotices { events, failing }
    }
}

fn notice_title(notice: Event) -> Option<String> {
    match notice {
        Event::Notice { title, .. } => Some(title),
        _ => None,
    }
}

impl OfferedTool {
    /// Reserves the tool's name. Returns a description of the conflict if the name is taken.
    fn reserve_name(&self, server: &str, taken: &mut HashMap<String, String>) -> Option<String> {
        let name = self.tool.name();
        let whose = match taken.get(name) {
            _ if find_properties(name).is_some() || READ_ONLY_TOOLS.contains(&name) => {
                "one of adjutant's own".to_owned()
            }
            Some(other) => format!("one of {}", text::title(other)),
            None => {
                taken.insert(name.to_owned(), server.to_owned());
                return None;
            }
        };
        Some(format!(
            "{} ({whose} is {name} already)",
            text::title(&self.name_on_server)
        ))
    }
}

/// A change of a server's state that the user must be notified of.
enum StateChange {
    Works(Vec<Event>),
    Fails(ServerFailure),
}

/// A server that does not work: its name, and the title and the details of the notice.
type ServerFailure = (String, String, String);

/// Returns the notices about servers that do not work, each with its name: one per server, or one
/// for all if there are many.
fn failure_notices(failed: Vec<ServerFailure>) -> Vec<Event> {
    /// The number of servers with a notice of their own, and in the common notice those that are
    /// named and those that are described.
    const MAX_SINGLE_NOTICES: usize = 3;
    const MAX_NAMED: usize = 10;
    const MAX_DESCRIBED: usize = 2;
    let notice = |title, details| Event::Notice {
        severity: Severity::Warning,
        title,
        details: Some(details),
    };
    if failed.len() <= MAX_SINGLE_NOTICES {
        return failed
            .into_iter()
            .map(|(_, title, details)| notice(title, details))
            .collect();
    }
    let mut names = failed
        .iter()
        .take(MAX_NAMED)
        .map(|(name, ..)| text::title(name))
        .collect::<Vec<_>>()
        .join(", ");
    if failed.len() > MAX_NAMED {
        names += ", …";
    }
    let title = format!(
        "{} MCP servers do not work: {names}. `adjutant mcp` tries them again, and shows why.",
        failed.len()
    );
    let each = failed
        .iter()
        .take(MAX_DESCRIBED)
        .map(|(_, title, details)| format!("- {title}. {details}"));
    vec![notice(title, each.collect::<Vec<_>>().join("\n"))]
}

/// Describes the tools of a server that are not offered: those past the limits, and those that
/// cannot be read.
fn omission_notices(server: &str, offer: &ServerOffer) -> Vec<Event> {
    let notice = |title, details| Event::Notice {
        severity: Severity::Warning,
        title,
        details,
    };
    let mut notices = Vec::new();
    if offer.is_cut {
        let offered = offer.tools.len();
        let title = format!(
            "The MCP server {server} lists more or larger tools than the limit allows: {offered} are offered."
        );
        notices.push(notice(title, None));
    }
    if !offer.unreadable.is_empty() {
        let count = text::count(offer.unreadable.len(), "tool");
        let title = format!(
            "The MCP server {server} lists {count} that cannot be read; its other tools are offered."
        );
        let tools: Vec<&str> = offer.unreadable.iter().map(String::as_str).collect();
        let details = format!(
            "{}. Report this to the maker of the server.",
            join_names(&tools)
        );
        notices.push(notice(title, Some(details)));
    }
    notices
}

/// Returns a notice about tools that are not offered because their names are taken.
fn name_conflict_notice(server: &str, conflicts: &[String]) -> Option<Event> {
    const MAX_NAMED: usize = 20;
    let count = text::count(conflicts.len(), "tool");
    let title = format!(
        "The MCP server {} has {count} with names already in use; they are not offered.",
        text::title(server)
    );
    let named = conflicts
        .iter()
        .take(MAX_NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let details = Some(format!("{named}. Rename the server in the settings."));
    (!conflicts.is_empty()).then_some(Event::Notice {
        severity: Severity::Warning,
        title,
        details,
    })
}

impl SessionServer {
    /// Returns the change of its state since the last notice, if there is one.
    fn new_state_change(&mut self, state: ServerState) -> Option<StateChange> {
        let failure = match state {
            ServerState::Starting(_) => return None,
            ServerState::Ready(ready) => {
                let first = self.announced_state.replace(AnnouncedState::Works)
                    != Some(AnnouncedState::Works);
                let name = text::title(&self.settings.name);
                return first.then(|| StateChange::Works(omission_notices(&name, &ready.offer)));
            }
            ServerState::Failed(failure) => failure,
        };
        let state = AnnouncedState::Failing(failure.kind);
        // A server that broke off is about to be restarted.
        if failure.kind == FailureKind::Disconnected
            || self.announced_state.replace(state) == Some(state)
        {
            return None;
        }
        Some(StateChange::Fails(self.describe_failure(&failure)))
    }

    /// Returns the failure of the server in this state, if it does not work.
    fn current_failure(&self, state: &ServerState) -> Option<ServerFailure> {
        match state {
            ServerState::Failed(failure) => Some(self.describe_failure(failure)),
            ServerState::Starting(_) | ServerState::Ready(_) => None,
        }
    }

    /// Describes a failure for the notice about it.
    fn describe_failure(&self, failure: &McpFailure) -> ServerFailure {
        let name = text::title(&self.settings.name);
        let why = &failure.why;
        let short = text::title(why);
        let title = match failure.kind {
            FailureKind::Suspended => {
                format!(
                    "The MCP server {name} failed {} times in a row and is paused: {short}",
                    MAX_FAILURES
                )
            }
            _ => format!("The MCP server {name} does not work: {short}"),
        };
        let mut details = format!("Configured in {}.", self.settings.source);
        if short != *why {
            details = format!("{details} {why}");
        }
        if failure.stderr.trim().lines().count() > 1 {
            details.push_str(" `adjutant mcp` shows all that it wrote.");
        }
        (self.settings.name.clone(), title, details)
    }
}
