//! Reads the lists of a server: tools, prompts and resources. The number of pages is limited.

#![expect(
    deprecated,
    reason = "a draft drops log messages and these subscriptions; the servers of today have them"
)]

use std::sync::Arc;

use rmcp::ServiceError;
use rmcp::model::{
    ClientRequest, CustomResult, ListPromptsRequest, ListResourceTemplatesRequest,
    ListResourcesRequest, ListToolsRequest, LoggingLevel, PaginatedRequestParams, Prompt,
    ServerResult, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
};
use rmcp::service::{Peer, RoleClient};

use super::catalog::{MAX_DESCRIPTION_CHARS, ServerCatalog};
use super::connection::{McpConnection, ReadyServer, Resources};
use super::reading::{ListReading, MissingList};
use base::text;
use config::settings::McpLog;

/// The number of pages that are read of one list.
const MAX_PAGES: usize = 64;

/// The capabilities of a server.
pub(super) struct ServerFeatures {
    pub has_tools: bool,
    pub has_prompts: bool,
    pub can_complete: bool,
    pub has_resources: bool,
    pub can_subscribe: bool,
    pub has_logs: bool,
    pub instructions: Option<String>,
}

impl ServerFeatures {
    pub(super) fn from_peer(peer: &Peer<RoleClient>) -> Self {
        let info = peer.peer_info();
        let Some(info) = info.as_ref() else {
            return Self {
                has_tools: true,
                has_prompts: false,
                can_complete: false,
                has_resources: false,
                can_subscribe: false,
                has_logs: false,
                instructions: None,
            };
        };
        let has = &info.capabilities;
        Self {
            has_tools: has.tools.is_some(),
            has_prompts: has.prompts.is_some(),
            can_complete: has.completions.is_some(),
            has_resources: has.resources.is_some(),
            // The newest protocol replaces this kind of subscription, but servers still support it.
            can_subscribe: info.protocol_version.has_initialize()
                && has
                    .resources
                    .as_ref()
                    .is_some_and(|resources| resources.subscribe == Some(true)),
            has_logs: has.logging.is_some(),
            instructions: info.instructions.clone(),
        }
    }
}

/// Reads a list page by page. A page that rmcp cannot parse is requested again and read entry by
/// entry.
macro_rules! read {
    ($peer:expr, $list:ident, $Request:ident, $field:ident, $name:literal) => {{
        let mut reading = ListReading::new();
        let mut cursor = Some(None);
        for _ in 0..MAX_PAGES {
            let Some(at) = cursor.take() else { break };
            let at = PaginatedRequestParams::default().with_cursor(at);
            cursor = match $peer.$list(Some(at.clone())).await {
                Ok(page) => reading.page(page.$field, page.next_cursor),
                Err(ServiceError::UnexpectedResponse) => {
                    let request = ClientRequest::$Request($Request::with_param(at));
                    let ServerResult::CustomResult(CustomResult(page)) =
                        $peer.send_request(request).await?
                    else {
                        return Err(ServiceError::UnexpectedResponse);
                    };
                    reading
                        .lenient_page(page, $name)
                        .map_err(|MissingList| ServiceError::UnexpectedResponse)?
                }
                Err(e) => return Err(e),
            };
        }
        reading.is_cut |= cursor.is_some();
        Ok::<_, ServiceError>(reading)
    }};
}

/// Reads the tools and prompts of a server. Prompts that cannot be listed count as none, because
/// the tools work without them.
pub(super) async fn read_catalog(
    peer: &Peer<RoleClient>,
    has: &ServerFeatures,
) -> Result<ServerCatalog, ServiceError> {
    let tools = async {
        if !has.has_tools {
            return Ok(ListReading::new());
        }
        read!(peer, list_tools, ListToolsRequest, tools, "tools")
    };
    let prompts = async {
        if !has.has_prompts {
            return Ok(ListReading::new());
        }
        read!(peer, list_prompts, ListPromptsRequest, prompts, "prompts")
    };
    let (tools, prompts) = tokio::join!(tools, prompts);
    let tools = tools?;
    let prompts = prompts
        .map(|prompts: ListReading<Prompt>| prompts.all)
        .unwrap_or_else(|e| {
            tracing::warn!("the prompts of an MCP server cannot be listed: {e}");
            Vec::new()
        });
    let &ServerFeatures {
        can_complete,
        has_resources,
        can_subscribe,
        ref instructions,
        ..
    } = has;
    let instructions = instructions
        .as_deref()
        .map(|text| text::cut_chars(text, MAX_DESCRIPTION_CHARS));
    let ListReading {
        all: tools,
        is_cut,
        unreadable,
        ..
    } = tools;
    Ok(ServerCatalog {
        tools,
        is_cut,
        unreadable,
        prompts,
        can_complete,
        has_resources,
        can_subscribe,
        instructions,
    })
}

/// Returns the resources of a server. They are read once, until the server reports a change.
/// Resources that cannot be listed count as none.
pub(super) async fn list_resources(ready: &ReadyServer) -> Arc<Resources> {
    if !ready.offer.has_resources {
        return Arc::default();
    }
    let peer = &ready.peer;
    let listed = ready.resources.get_or_try_init(|| async {
        let all = async {
            read!(
                peer,
                list_resources,
                ListResourcesRequest,
                resources,
                "resources"
            )
        };
        let templates = async {
            read!(
                peer,
                list_resource_templates,
                ListResourceTemplatesRequest,
                resource_templates,
                "resourceTemplates"
            )
        };
        let (all, templates) = tokio::join!(all, templates);
        let templates = templates
            .map(|templates: ListReading<_>| templates.all)
            .unwrap_or_default();
        let mut listed = Resources {
            all: all?.all,
            templates,
        };
        listed.all.sort_by(|a, b| a.uri.cmp(&b.uri));
        listed
            .templates
            .sort_by(|a, b| a.uri_template.cmp(&b.uri_template));
        Ok::<_, ServiceError>(Arc::new(listed))
    });
    listed.await.cloned().unwrap_or_else(|e| {
        tracing::warn!("the resources of an MCP server cannot be listed: {e}");
        Arc::default()
    })
}

/// Asks for changes of lists in the way of the newest protocol, as long as the server sends them.
/// The transport counts them.
pub(super) async fn receive_list_changes(connection: Arc<McpConnection>, peer: Peer<RoleClient>) {
    let about = SubscriptionFilter::builder()
        .tools_list_changed()
        .prompts_list_changed()
        .resources_list_changed()
        .build();
    let mut changes = match peer.listen(about).await {
        Ok(changes) => changes,
        Err(e) => {
            return tracing::info!(
                "MCP server {} does not report changes: {e}",
                connection.name
            );
        }
    };
    while let Ok(Some(_)) = changes.next().await {}
}

/// Sets the minimum severity of the server's log messages.
pub(super) async fn set_log_level(peer: &Peer<RoleClient>, least: McpLog) {
    let level = match least {
        McpLog::Debug => LoggingLevel::Debug,
        McpLog::Info => LoggingLevel::Info,
        McpLog::Notice => LoggingLevel::Notice,
        McpLog::Warning => LoggingLevel::Warning,
        McpLog::Error => LoggingLevel::Error,
        McpLog::Critical => LoggingLevel::Critical,
        McpLog::Alert => LoggingLevel::Alert,
        McpLog::Emergency => LoggingLevel::Emergency,
    };
    if let Err(e) = peer.set_level(SetLevelRequestParams::new(level)).await {
        tracing::warn!("an MCP server does not take a level for its log: {e}");
    }
}

/// Subscribes to changes of a resource.
pub(super) async fn subscribe(peer: &Peer<RoleClient>, uri: &str) {
    let done = peer.subscribe(SubscribeRequestParams::new(uri)).await;
    if let Err(e) = done {
        tracing::warn!("an MCP server does not report changes of {uri}: {e}");
    }
}
