//! Our side of a connection: what a server may ask of us, and what it tells.

#![expect(deprecated, reason = "a draft drops roots and log messages; the servers of today have them")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorData, Implementation, ListRootsResult, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion, Root, RootsCapabilities,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};

use super::link::Link;
use crate::text;

/// What of a server's log message goes into ours, in characters.
const LOGGED: usize = 2_000;

pub(super) struct McpClient {
    pub link: Arc<Link>,
    /// The session's directories.
    pub roots: Arc<[PathBuf]>,
}

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.roots = Some(RootsCapabilities::default());
        // The latest that is agreed on with `initialize`.
        ClientConfig::new(capabilities, Implementation::new("adjutant", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        let root = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let root = Root::new(uri(path));
            name.into_iter().fold(root, Root::with_name)
        };
        Ok(ListRootsResult::new(self.roots.iter().map(root).collect()))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.link.changed();
    }

    async fn on_progress(&self, said: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.link.progress(said);
    }

    async fn on_logging_message(&self, said: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        let server = &self.link.name;
        let words = text::escaped(&text::cut_chars(&said.data.to_string(), LOGGED));
        match said.level {
            LoggingLevel::Debug => tracing::debug!("MCP server {server}: {words}"),
            LoggingLevel::Info | LoggingLevel::Notice => tracing::info!("MCP server {server}: {words}"),
            LoggingLevel::Warning => tracing::warn!("MCP server {server}: {words}"),
            _ => tracing::error!("MCP server {server}: {words}"),
        }
    }
}

/// A directory as an address.
fn uri(path: &Path) -> String {
    reqwest::Url::from_directory_path(path)
        .map_or_else(|()| format!("file://{}", path.display()), |url| url.as_str().trim_end_matches('/').to_owned())
}
