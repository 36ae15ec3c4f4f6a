//! What a server lists: its tools, prompts and resources. A list without end is not read to it.

#![expect(deprecated, reason = "a draft drops log messages and these subscriptions; the servers of today have them")]

use std::sync::Arc;

use rmcp::ServiceError;
use rmcp::model::{
    LoggingLevel, PaginatedRequestParams, Prompt, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    Tool,
};
use rmcp::service::{Peer, RoleClient};
use serde::Serialize;

use super::link::{McpLink, ReadyServer, Resources};
use crate::config::settings::McpLog;

/// Things of one kind that one server may list; more are left out.
const LISTED: usize = 1024;
/// Pages in which it may do so, and what it may say of them all in bytes.
const PAGES: usize = 64;
const BYTES: usize = 4 << 20;
/// The most bytes that it may say of one of them; a larger one is left out alone.
const MAX_ONE_BYTES: usize = 1 << 20;

/// What a server says that it has.
pub(super) struct Has {
    pub tools: bool,
    pub prompts: bool,
    pub completes: bool,
    pub resources: bool,
    pub subscribes: bool,
    pub logs: bool,
    pub instructions: Option<String>,
}

impl Has {
    pub(super) fn of(peer: &Peer<RoleClient>) -> Self {
        let info = peer.peer_info();
        let Some(info) = info.as_ref() else {
            return Self {
                tools: true,
                prompts: false,
                completes: false,
                resources: false,
                subscribes: false,
                logs: false,
                instructions: None,
            };
        };
        let has = &info.capabilities;
        Self {
            tools: has.tools.is_some(),
            prompts: has.prompts.is_some(),
            completes: has.completions.is_some(),
            resources: has.resources.is_some(),
            // The newest protocol has another way, which is not gone yet.
            subscribes: info.protocol_version.has_initialize()
                && has.resources.as_ref().is_some_and(|resources| resources.subscribe == Some(true)),
            logs: has.logging.is_some(),
            instructions: info.instructions.clone(),
        }
    }
}

/// What is read of a list so far.
struct Reading<T> {
    all: Vec<T>,
    bytes: usize,
    cut: bool,
}

impl<T: Serialize> Reading<T> {
    fn new() -> Self {
        Self { all: Vec::new(), bytes: 0, cut: false }
    }

    /// Takes a page; says where the next one begins, if it is wanted.
    fn page(&mut self, page: Vec<T>, next: Option<String>) -> Option<Option<String>> {
        for one in page {
            let bytes = serde_json::to_vec(&one).map_or(BYTES, |json| json.len());
            if bytes > MAX_ONE_BYTES {
                self.cut = true;
                continue;
            }
            self.bytes += bytes;
            if self.all.len() == LISTED || self.bytes > BYTES {
                self.cut = true;
                return None;
            }
            self.all.push(one);
        }
        next.map(Some)
    }
}

/// Reads a list page by page.
macro_rules! read {
    ($peer:expr, $list:ident, $field:ident) => {{
        let mut reading = Reading::new();
        let mut cursor = Some(None);
        for _ in 0..PAGES {
            let Some(at) = cursor.take() else { break };
            let page = $peer.$list(Some(PaginatedRequestParams::default().with_cursor(at))).await?;
            cursor = reading.page(page.$field, page.next_cursor);
        }
        reading.cut |= cursor.is_some();
        Ok::<_, ServiceError>(reading)
    }};
}

/// The tools and the prompts of a server, and whether it has more tools than are taken. Prompts that cannot be
/// listed are none: its tools work all the same.
pub(super) async fn offered(
    peer: &Peer<RoleClient>,
    has: &Has,
) -> Result<(Vec<Tool>, bool, Vec<Prompt>), ServiceError> {
    let tools = async { if has.tools { read!(peer, list_tools, tools) } else { Ok(Reading::new()) } };
    let prompts = async { if has.prompts { read!(peer, list_prompts, prompts) } else { Ok(Reading::new()) } };
    let (tools, prompts) = tokio::join!(tools, prompts);
    let tools = tools?;
    let prompts = prompts.map(|prompts: Reading<Prompt>| prompts.all).unwrap_or_else(|e| {
        tracing::warn!("the prompts of an MCP server cannot be listed: {e}");
        Vec::new()
    });
    Ok((tools.all, tools.cut, prompts))
}

/// The resources of a server; asked for once, until it says that something has changed. What cannot be listed is
/// none.
pub(super) async fn resources(ready: &ReadyServer) -> Arc<Resources> {
    if !ready.resources {
        return Arc::default();
    }
    let peer = &ready.peer;
    let listed = ready.listed.get_or_try_init(|| async {
        let all = async { read!(peer, list_resources, resources) };
        let templates = async { read!(peer, list_resource_templates, resource_templates) };
        let (all, templates) = tokio::join!(all, templates);
        let templates = templates.map(|templates: Reading<_>| templates.all).unwrap_or_default();
        let mut listed = Resources { all: all?.all, templates };
        listed.all.sort_by(|a, b| a.uri.cmp(&b.uri));
        listed.templates.sort_by(|a, b| a.uri_template.cmp(&b.uri_template));
        Ok::<_, ServiceError>(Arc::new(listed))
    });
    listed.await.cloned().unwrap_or_else(|e| {
        tracing::warn!("the resources of an MCP server cannot be listed: {e}");
        Arc::default()
    })
}

/// Hears of changes in the way of the newest protocol, as long as the server tells of them.
pub(super) async fn listen(link: Arc<McpLink>, peer: Peer<RoleClient>) {
    let about =
        SubscriptionFilter::builder().tools_list_changed().prompts_list_changed().resources_list_changed().build();
    let mut told = match peer.listen(about).await {
        Ok(told) => told,
        Err(e) => return tracing::info!("MCP server {} does not tell of changes: {e}", link.name),
    };
    while let Ok(Some(_)) = told.next().await {
        link.changed();
    }
}

/// Says from which severity on a server is to tell what it logs.
pub(super) async fn log_from(peer: &Peer<RoleClient>, least: McpLog) {
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

/// Has a server tell of changes of a resource.
pub(super) async fn subscribe(peer: &Peer<RoleClient>, uri: &str) {
    let done = peer.subscribe(SubscribeRequestParams::new(uri)).await;
    if let Err(e) = done {
        tracing::warn!("an MCP server does not tell of changes of {uri}: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_too_large_is_left_out_alone() {
        let tool = |name: &str, bytes: usize| {
            let json = serde_json::json!({ "name": name, "description": "d".repeat(bytes), "inputSchema": {} });
            serde_json::from_value::<Tool>(json).unwrap()
        };
        let mut reading = Reading::new();
        let page = vec![tool("a", 10), tool("large", 5 << 20), tool("b", 10), tool("larger", 50 << 20), tool("c", 10)];
        assert_eq!(reading.page(page, None), None);
        let names: Vec<&str> = reading.all.iter().map(|tool| &*tool.name).collect();
        assert_eq!((names, reading.cut), (vec!["a", "b", "c"], true));
        // All together have a limit as well.
        let page = (0..10).map(|n| tool(&format!("t{n}"), 500 << 10)).collect();
        assert_eq!(reading.page(page, Some("next".into())), None);
        assert_eq!((reading.all.len(), reading.cut), (11, true));
    }
}
