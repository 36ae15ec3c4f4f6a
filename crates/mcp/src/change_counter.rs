//! A transport that counts the changes of lists that a server reports, in the order of its
//! messages. rmcp handles each notification in a task of its own, so that the response after it may
//! be processed first; the step after a call must know all changes that the call has caused.

use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage, ServerNotification};
use rmcp::transport::Transport;

use super::connection::McpConnection;

/// A transport that notifies the link of each reported change before it passes the message on.
pub(super) struct ChangeCounter<T> {
    inner: T,
    connection: Arc<McpConnection>,
}

impl<T> ChangeCounter<T> {
    pub(super) fn new(inner: T, connection: Arc<McpConnection>) -> Self {
        Self { inner, connection }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for ChangeCounter<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.inner.send(item)
    }

    /// Receives a message. Cancellation-safe if the inner transport is.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let message = self.inner.receive().await?;
        if is_change(&message) {
            self.connection.count_change();
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}

/// Returns whether a message reports the change of a list.
fn is_change(message: &ServerJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(sent) = message else {
        return false;
    };
    match &sent.notification {
        ServerNotification::ToolListChangedNotification(_)
        | ServerNotification::PromptListChangedNotification(_)
        | ServerNotification::ResourceListChangedNotification(_) => true,
        // rmcp decodes a notification with unexpected params as a custom one.
        ServerNotification::CustomNotification(other) => other.method.ends_with("/list_changed"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_of_lists_are_recognised() {
        for (method, wanted) in [
            ("notifications/tools/list_changed", true),
            ("notifications/prompts/list_changed", true),
            ("notifications/resources/list_changed", true),
            ("notifications/resources/updated", false),
            ("notifications/progress", false),
        ] {
            let params = json!({ "uri": "a:b", "progressToken": 1, "progress": 1.0 });
            let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            let message = serde_json::from_value(message).unwrap();
            assert_eq!(is_change(&message), wanted, "{method}");
        }
        let response = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
        assert!(!is_change(&serde_json::from_value(response).unwrap()));
    }
}
