//! A list of tools in which not every entry is as MCP wants it: the good ones count, and of the others what can be
//! understood.

use rmcp::ServiceError;
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::service::{Peer, RoleClient};
use serde_json::{Map, Value, json};

/// One page of a server's list of tools.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ToolPage {
    pub tools: Vec<Tool>,
    pub next_cursor: Option<String>,
    /// How many entries are no tools: they have no name.
    pub nameless: usize,
}

/// Asks for a page.
pub(super) async fn page(peer: &Peer<RoleClient>, params: PaginatedRequestParams) -> Result<ToolPage, ServiceError> {
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
    match peer.send_request(request).await? {
        ServerResult::ListToolsResult(list) => {
            Ok(ToolPage { tools: list.tools, next_cursor: list.next_cursor, nameless: 0 })
        }
        // What rmcp does not understand as a whole.
        ServerResult::CustomResult(list) => read(list.0).ok_or(ServiceError::UnexpectedResponse),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

fn read(mut list: Value) -> Option<ToolPage> {
    let Some(Value::Array(entries)) = list.get_mut("tools").map(Value::take) else { return None };
    let all = entries.len();
    let tools: Vec<Tool> = entries.into_iter().filter_map(tool).collect();
    let next_cursor = list.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
    Some(ToolPage { nameless: all - tools.len(), tools, next_cursor })
}

/// An entry without what does not fit: a tool whose arguments are not said may take any.
fn tool(entry: Value) -> Option<Tool> {
    let Value::Object(mut entry) = entry else { return None };
    entry.get("name").and_then(Value::as_str).filter(|name| !name.trim().is_empty())?;
    let schema = entry.shift_remove("inputSchema").or_else(|| entry.shift_remove("input_schema"));
    entry.insert("inputSchema".into(), schema.filter(Value::is_object).unwrap_or_else(|| json!({ "type": "object" })));
    if let Ok(tool) = serde_json::from_value(Value::Object(entry.clone())) {
        return Some(tool);
    }
    let mut kept: Map<String, Value> = Map::new();
    for (key, value) in entry {
        kept.insert(key.clone(), value);
        let is_required = ["name", "inputSchema"].contains(&key.as_str());
        if !is_required && !fits(&kept) {
            kept.shift_remove(&key);
        }
    }
    serde_json::from_value(Value::Object(kept)).ok()
}

/// Whether these members, with those that every tool has, make a tool.
fn fits(members: &Map<String, Value>) -> bool {
    let mut whole = members.clone();
    whole.entry("name").or_insert_with(|| json!("name"));
    whole.entry("inputSchema").or_insert_with(|| json!({}));
    serde_json::from_value::<Tool>(Value::Object(whole)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_entry_does_not_cost_the_others() {
        let list = json!({ "nextCursor": "2", "tools": [
            { "name": "good", "description": "G.", "inputSchema": { "type": "object", "properties": { "a": {} } } },
            { "name": "bare" },
            { "name": "odd", "inputSchema": "object", "description": 7, "annotations": { "readOnlyHint": "yes" }, "title": "Odd" },
            { "name": "snake", "input_schema": { "type": "object", "properties": { "b": {} } } },
            { "description": "no name" },
            { "name": "  " },
            "text",
            null,
        ] });
        let page = read(list).unwrap();
        let names: Vec<&str> = page.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!((names, page.nameless), (vec!["good", "bare", "odd", "snake"], 4));
        assert_eq!(page.next_cursor.as_deref(), Some("2"));
        let odd = &page.tools[2];
        assert_eq!((odd.title.as_deref(), odd.description.is_none(), odd.annotations.is_none()), (Some("Odd"), true, true));
        assert_eq!(page.tools[3].input_schema.get("properties"), Some(&json!({ "b": {} })));
        assert_eq!(read(json!({ "tools": "none" })), None);
        assert_eq!(read(json!({ "resources": [] })), None);
    }
}
