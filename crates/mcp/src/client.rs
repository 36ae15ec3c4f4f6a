//! The client of a connection: answers the server's requests and receives its notifications.

#![expect(
    deprecated,
    reason = "a draft drops roots, log messages and sampling; the servers of today have them"
)]

use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    CustomNotification, ElicitRequestParams, ElicitResult, ElicitationCapability, ErrorData,
    FormElicitationCapability, Implementation, ListRootsResult, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion,
    ResourceUpdatedNotificationParam, RootsCapabilities, SamplingCapability,
    UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use serde_json::Value;

use super::connection::McpConnection;
use super::{answer, sample};
use base::text;

/// The longest part of a server's log message that is logged, in characters.
const MAX_LOG_CHARS: usize = 2_000;

#[derive(Clone)]
pub(super) struct McpClient {
    pub connection: Arc<McpConnection>,
}

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        // The roots are fixed as long as the session is open, so a connection sees no change of
        // them.
        capabilities.roots = Some(RootsCapabilities::default());
        if self.connection.facts.is_attended {
            let asks = ElicitationCapability::new()
                .with_form(FormElicitationCapability::default())
                .with_url(UrlElicitationCapability::default());
            capabilities.elicitation = Some(asks);
            capabilities.sampling = self.connection.sampling.then(SamplingCapability::default);
        }
        // The latest version that is negotiated with `initialize`.
        ClientConfig::new(
            capabilities,
            Implementation::new("adjutant", env!("CARGO_PKG_VERSION")),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(answer::roots(&self.connection))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        answer::elicit(&self.connection, params, &context.ct).await
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        sample::sample(&self.connection, params, &context.ct).await
    }

    async fn on_resource_updated(
        &self,
        notification: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.connection.mark_changed(&notification.uri);
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        _: NotificationContext<RoleClient>,
    ) {
        // rmcp has no type for this notification.
        let id = notification
            .params
            .as_ref()
            .and_then(|params| params.get("elicitationId"))
            .and_then(Value::as_str);
        if let ("notifications/elicitation/complete", Some(id)) = (notification.method.as_str(), id)
        {
            self.connection.complete_url(id);
        }
    }

    async fn on_progress(
        &self,
        notification: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.connection.record_progress(notification);
    }

    async fn on_logging_message(
        &self,
        notification: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let server = &self.connection.name;
        let text = text::escaped(&text::cut_chars(
            &notification.data.to_string(),
            MAX_LOG_CHARS,
        ));
        match notification.level {
            LoggingLevel::Debug => tracing::debug!("MCP server {server}: {text}"),
            LoggingLevel::Info | LoggingLevel::Notice => {
                tracing::info!("MCP server {server}: {text}")
            }
            LoggingLevel::Warning => tracing::warn!("MCP server {server}: {text}"),
            _ => tracing::error!("MCP server {server}: {text}"),
        }
    }
}
