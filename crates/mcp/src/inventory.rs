//! The inventory of a directory's servers for the command line: the servers, their states and their
//! contents.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::asker::Asker;
use super::connection::{FailureKind, McpConnection, ServerState};
use super::request::RequestCaller;
use super::{McpServers, lists, prompt, tool};
use base::child_environment::shown_arguments;
use base::text;
use config::settings::{McpEntry, Transport};
use events::EventSender;
use tools::ToolOutput;

/// The result of the test of a server.
pub struct ServerReport {
    pub name: String,
    /// The settings file that configures the server.
    pub source: String,
    /// The command or URL, for display.
    pub address: String,
    pub state: ReportedState,
    /// The end of a failed server's standard error.
    pub stderr: String,
    /// The time from the beginning of the test to the result.
    pub took: Duration,
    pub tools: Vec<ToolReport>,
    /// The tools that cannot be read: the name of each, or its place in the list, with the reason.
    pub unreadable: Vec<String>,
    /// True if it has more tools than the limits allow.
    pub is_cut: bool,
    /// The commands, without the slash: `server:prompt`.
    pub prompts: Vec<String>,
    /// The URIs of its resources.
    pub resources: Vec<String>,
}

/// The state of a server after its test.
pub enum ReportedState {
    Connected,
    /// The settings disable the server, so it was not started.
    Disabled,
    /// The message for the user, with the command that logs in.
    NeedsLogin(String),
    /// The reason for the failure.
    Failed(String),
}

/// The present state of a session's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    pub name: String,
    /// The state for display, such as `connected`.
    pub state: String,
    pub is_ready: bool,
    pub is_starting: bool,
    /// The number of its tools, as far as they are known.
    pub tools: usize,
    pub prompts: usize,
}

/// A tool of a tested server.
pub struct ToolReport {
    /// The name for the model.
    pub name: String,
    /// The name on the server.
    pub name_on_server: String,
    pub description: String,
    pub schema: Value,
}

impl McpServers {
    /// Returns whether the client has given the session servers of its own.
    pub fn has_client_servers(&self) -> bool {
        !self.client_servers.is_empty()
    }

    /// Returns the present states of the session's servers. Waits for none of them.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        let status = |connection: Arc<McpConnection>| {
            let state = connection.state();
            let is_ready =
                matches!(&state, ServerState::Ready(ready) if !ready.peer.is_transport_closed());
            let offer = connection.offer();
            let tools = offer.as_ref().map_or(0, |offer| offer.tools.len());
            let prompts = offer.as_ref().map_or(0, |offer| offer.prompts.len());
            let is_starting = matches!(&state, ServerState::Starting(_));
            let state = match state {
                ServerState::Ready(_) if is_ready => "connected".to_owned(),
                ServerState::Ready(_) => "the connection broke off".to_owned(),
                ServerState::Starting(_) => "starting".to_owned(),
                ServerState::Failed(failure) if failure.kind == FailureKind::Login => {
                    format!("needs a login: {}", failure.why)
                }
                ServerState::Failed(failure) => format!("does not work: {}", failure.why),
            };
            ServerStatus {
                name: connection.name.clone(),
                state,
                is_ready,
                is_starting,
                tools,
                prompts,
            }
        };
        self.connections().into_iter().map(status).collect()
    }

    /// Starts these servers concurrently, and returns a report on each in the same order.
    pub async fn test_servers(&self, configured: &[McpEntry]) -> Vec<ServerReport> {
        let began = Instant::now();
        self.reconcile(configured);
        let tried = configured.iter().map(|entry| async {
            let connection = self
                .lock_servers()
                .iter()
                .find(|server| server.settings == *entry)
                .map(|server| server.connection.clone());
            let address = match &entry.transport {
                Transport::Local { command, .. } => shown_arguments(command, "***").join(" "),
                Transport::Remote { url, .. } => url.clone(),
                Transport::Editor { .. } => "in the editor".to_owned(),
            };
            let name = entry.name.clone();
            let source = entry.source.clone();
            let mut report = ServerReport {
                name,
                source,
                address,
                state: ReportedState::Disabled,
                stderr: String::new(),
                took: Duration::ZERO,
                tools: vec![],
                unreadable: vec![],
                is_cut: false,
                prompts: vec![],
                resources: vec![],
            };
            let Some(connection) = connection else {
                return report;
            };
            let mut state = connection.watch_state();
            let started = state
                .wait_for(|state| !matches!(state, ServerState::Starting(_)))
                .await;
            report.took = began.elapsed();
            let started = started.map(|state| state.clone());
            report.state = match started {
                Ok(ServerState::Ready(ready)) => {
                    report.prompts = ready
                        .offer
                        .prompts
                        .iter()
                        .map(|one| prompt::command(&connection.name, &one.name))
                        .collect();
                    let listed = tokio::time::timeout(
                        connection.start_timeout,
                        lists::list_resources(&ready),
                    )
                    .await;
                    let listed = listed.unwrap_or_default();
                    report.resources = listed.all.iter().map(|one| text::title(&one.uri)).collect();
                    report.unreadable.clone_from(&ready.offer.unreadable);
                    report.is_cut = ready.offer.is_cut;
                    report.tools = ready
                        .offer
                        .tools
                        .iter()
                        .map(|offered| ToolReport {
                            name: offered.tool.name().to_owned(),
                            name_on_server: offered.name_on_server.clone(),
                            description: offered.tool.description(),
                            schema: offered.tool.schema().as_ref().clone(),
                        })
                        .collect();
                    ReportedState::Connected
                }
                Ok(ServerState::Failed(failure)) if failure.kind == FailureKind::Login => {
                    ReportedState::NeedsLogin(failure.why.clone())
                }
                Ok(ServerState::Failed(failure)) => {
                    report.stderr.clone_from(&failure.stderr);
                    ReportedState::Failed(failure.why.clone())
                }
                Ok(ServerState::Starting(_)) | Err(_) => {
                    ReportedState::Failed("it has ended".into())
                }
            };
            report
        });
        futures_util::future::join_all(tried).await
    }

    /// Calls a tool of a tested server, by its name on the server. Questions of the server are sent
    /// to the event sender.
    ///
    /// # Errors
    /// Returns the reason why there is no result, or the error message of the tool.
    pub async fn call(
        &self,
        server: &str,
        name_on_server: &str,
        arguments: Map<String, Value>,
        event_sender: EventSender,
    ) -> Result<ToolOutput, String> {
        let connection = self
            .lock_servers()
            .iter()
            .find(|known| known.settings.name == server)
            .map(|known| known.connection.clone());
        let connection = connection.ok_or_else(|| format!("there is no MCP server {server}"))?;
        let cancelled = CancellationToken::new();
        let asker = Some(Asker::without_session(event_sender, cancelled.clone()));
        let caller = RequestCaller {
            asker,
            ..RequestCaller::without_user(&cancelled)
        };
        let done = tool::call(
            &connection,
            tool::params(name_on_server, arguments),
            &caller,
        )
        .await;
        done.map_err(|failure| failure.to_string())
    }
}
