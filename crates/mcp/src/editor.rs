//! A server that lives in the editor: MCP over the connection that the editor has with us. Each
//! request of MCP is a request of that connection, and the notifications of the server belong to
//! one of these requests. There is no handshake, and the server sends no requests, as in the newest
//! version of MCP.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::client::McpClient;
use super::connection_loop::serve_connection;
use super::failure::Disconnect;
use super::paced::byte_count;
use tools::BoxFuture;

/// The bytes of a server's notifications that may be unread. More notifications are dropped,
/// because the connection is not only the server's.
const MAX_UNREAD_BYTES: usize = 1 << 20;
/// The bytes that a notification counts at least.
const MIN_NOTIFICATION_BYTES: usize = 512;
/// The request for notifications that belong to no other request.
const LISTEN: &str = "subscriptions/listen";
const CANCELLED: &str = "notifications/cancelled";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// A connection to an editor.
pub trait EditorChannel: Send + Sync {
    /// Sends a request to a server that lives in the editor. Dropping the future cancels the
    /// request.
    fn request(
        &self,
        request: EditorRequest,
    ) -> BoxFuture<'static, Result<EditorAnswer, EditorFault>>;

    /// Returns a token that is cancelled when the connection has ended.
    fn ended(&self) -> CancellationToken;
}

/// A request of MCP.
pub struct EditorRequest {
    /// The editor's id of the server.
    pub server: Arc<str>,
    pub method: String,
    pub params: Option<Map<String, Value>>,
    /// The receiver of the notifications that belong to the request.
    pub notifications: EditorNotifications,
}

/// The answer of a server to a request.
pub enum EditorAnswer {
    Result(Value),
    Error {
        code: i32,
        message: String,
        data: Option<Value>,
    },
}

/// The reason why a server did not answer a request.
pub enum EditorFault {
    /// The connection has ended.
    Closed,
    /// The editor did not pass the request on, for this reason.
    Refused(String),
}

/// The sender of the present connection to the editor; `None` before there is one.
pub(super) type EditorSlot = watch::Sender<Option<Arc<dyn EditorChannel>>>;

/// The queue of a request's notifications.
#[derive(Clone)]
pub struct EditorNotifications {
    /// The id of the request for rmcp.
    id: RequestId,
    is_subscription: bool,
    queue: mpsc::UnboundedSender<Incoming>,
    unread: Arc<Semaphore>,
}

impl EditorNotifications {
    /// Queues a notification. Drops it if too much of the server is unread.
    pub fn push(&self, method: &str, params: Option<Map<String, Value>>) {
        let mut params = params.unwrap_or_default();
        let id = || self.id.clone().into_json_value();
        if method == CANCELLED {
            params.insert("requestId".to_owned(), id());
        } else if self.is_subscription {
            set_subscription(&mut params, id());
        }
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        let bytes = byte_count(&message).max(MIN_NOTIFICATION_BYTES);
        let permit = u32::try_from(bytes)
            .ok()
            .and_then(|bytes| self.unread.clone().try_acquire_many_owned(bytes).ok());
        match permit {
            // The receiver is dropped with the transport.
            Some(permit) => drop(self.queue.send(Incoming::Notification(message, permit))),
            None => tracing::debug!("a notification of a server in the editor is dropped"),
        }
    }
}

/// A message for rmcp.
enum Incoming {
    Answer(RequestId, Value),
    /// The permit counts its bytes as unread.
    Notification(Value, OwnedSemaphorePermit),
    Closed,
}

/// A server that lives in the editor.
pub(super) struct EditorServer {
    /// The editor's id of it.
    pub id: Arc<str>,
    pub slot: watch::Receiver<Option<Arc<dyn EditorChannel>>>,
}

impl EditorServer {
    /// Serves the connection to the server until it ends. Returns the reason for the end, or `None`
    /// if the server was stopped.
    pub(super) async fn serve_connection(
        &self,
        client: McpClient,
        stop: &CancellationToken,
    ) -> Option<Disconnect> {
        let channel = self.slot.borrow().clone();
        let Some(channel) = channel.filter(|channel| !channel.ended().is_cancelled()) else {
            return Some(Disconnect::new("its editor is not connected"));
        };
        let transport = EditorTransport::new(self.id.clone(), channel, self.slot.clone());
        tokio::select! {
            end = serve_connection(client, transport, stop) => end,
            () = stop.cancelled() => None,
        }
    }
}

/// The transport of one connection. Dropping it cancels its requests.
struct EditorTransport {
    server: Arc<str>,
    channel: Arc<dyn EditorChannel>,
    slot: watch::Receiver<Option<Arc<dyn EditorChannel>>>,
    /// Cancelled when `channel` has ended.
    ended: CancellationToken,
    // Unbounded: answers are as many as our requests, and notifications have a limit in bytes.
    queue: mpsc::UnboundedSender<Incoming>,
    incoming: mpsc::UnboundedReceiver<Incoming>,
    unread: Arc<Semaphore>,
    /// The requests without an answer.
    requests: HashMap<RequestId, CancellationToken>,
}

impl EditorTransport {
    fn new(
        server: Arc<str>,
        channel: Arc<dyn EditorChannel>,
        slot: watch::Receiver<Option<Arc<dyn EditorChannel>>>,
    ) -> Self {
        let (queue, incoming) = mpsc::unbounded_channel();
        Self {
            server,
            ended: channel.ended(),
            channel,
            slot,
            queue,
            incoming,
            unread: Arc::new(Semaphore::new(MAX_UNREAD_BYTES)),
            requests: HashMap::new(),
        }
    }

    fn start_request(&mut self, id: RequestId, method: String, params: Option<Map<String, Value>>) {
        let is_subscription = method == LISTEN;
        let answer = self.channel.request(EditorRequest {
            server: self.server.clone(),
            method,
            params,
            notifications: EditorNotifications {
                id: id.clone(),
                is_subscription,
                queue: self.queue.clone(),
                unread: self.unread.clone(),
            },
        });
        let cancelled = CancellationToken::new();
        self.requests.insert(id.clone(), cancelled.clone());
        let queue = self.queue.clone();
        base::task::spawn(async move {
            let answer = tokio::select! {
                biased;
                () = cancelled.cancelled() => return,
                answer = answer => answer,
            };
            let answered = match answer {
                Ok(answer) => Ok(answer),
                Err(EditorFault::Refused(why)) => Err(why),
                Err(EditorFault::Closed) => {
                    queue.send(Incoming::Closed).ok();
                    return;
                }
            };
            let message = encode_answer(id.clone(), is_subscription, answered);
            // The receiver is dropped with the transport.
            queue.send(Incoming::Answer(id, message)).ok();
        });
    }

    /// Sends a message of rmcp: a request, or the cancellation of one. Others have no counterpart.
    fn forward(&mut self, message: &ClientJsonRpcMessage) {
        let Ok(Value::Object(mut members)) = serde_json::to_value(message) else {
            return;
        };
        let id = |value: Option<Value>| serde_json::from_value(value.unwrap_or_default()).ok();
        let params = match members.remove("params") {
            Some(Value::Object(params)) => Some(params),
            _ => None,
        };
        match (members.remove("method"), members.remove("id")) {
            (Some(Value::String(method)), Some(request)) => {
                if let Some(request) = id(Some(request)) {
                    self.start_request(request, method, params);
                }
            }
            (Some(Value::String(method)), None) if method == CANCELLED => {
                let request = params.and_then(|mut params| params.remove("requestId"));
                let request: Option<RequestId> = id(request);
                if let Some(cancelled) = request.and_then(|id| self.requests.remove(&id)) {
                    cancelled.cancel();
                }
            }
            _ => {}
        }
    }

    fn cancel_all(&mut self) {
        for (_, cancelled) in self.requests.drain() {
            cancelled.cancel();
        }
    }
}

impl Transport<RoleClient> for EditorTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        self.forward(&item);
        ready(Ok(()))
    }

    /// Cancellation-safe: a message is taken only by the poll that returns it.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let incoming = tokio::select! {
                biased;
                incoming = self.incoming.recv() => incoming?,
                () = self.ended.cancelled() => return None,
                () = await_replacement(&mut self.slot, &self.channel) => return None,
            };
            match incoming {
                Incoming::Closed => return None,
                // An answer to a request that was cancelled just now is no longer wanted.
                Incoming::Answer(id, _) if self.requests.remove(&id).is_none() => {}
                Incoming::Answer(id, message) => {
                    let invalid_answer = |e: serde_json::Error| {
                        let why = format!("the answer is not MCP: {e}");
                        JsonRpcMessage::error(ErrorData::internal_error(why, None), Some(id))
                    };
                    return Some(serde_json::from_value(message).unwrap_or_else(invalid_answer));
                }
                Incoming::Notification(message, permit) => {
                    drop(permit);
                    match serde_json::from_value(message) {
                        Ok(message) => return Some(message),
                        Err(e) => tracing::debug!("a notification is not MCP: {e}"),
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.cancel_all();
        Ok(())
    }
}

impl Drop for EditorTransport {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

/// Waits until the session has another connection to its editor, or has ended.
async fn await_replacement(
    slot: &mut watch::Receiver<Option<Arc<dyn EditorChannel>>>,
    channel: &Arc<dyn EditorChannel>,
) {
    let is_other = |now: &Option<Arc<dyn EditorChannel>>| {
        now.as_ref().is_none_or(|now| !Arc::ptr_eq(now, channel))
    };
    slot.wait_for(is_other).await.ok();
}

/// Returns an answer, or the reason why there is none, as a message of JSON-RPC.
fn encode_answer(
    id: RequestId,
    is_subscription: bool,
    answer: Result<EditorAnswer, String>,
) -> Value {
    let json_id = id.into_json_value();
    match answer {
        Ok(EditorAnswer::Result(mut result)) => {
            if is_subscription && let Some(result) = result.as_object_mut() {
                set_subscription(result, json_id.clone());
            }
            json!({ "jsonrpc": "2.0", "id": json_id, "result": result })
        }
        Ok(EditorAnswer::Error {
            code,
            message,
            data,
        }) => {
            let mut error = json!({ "code": code, "message": message });
            if let Some(data) = data {
                error["data"] = data;
            }
            json!({ "jsonrpc": "2.0", "id": json_id, "error": error })
        }
        // The code of an error of ACP has another meaning in MCP.
        Err(why) => {
            let error = json!({ "code": ErrorCode::INTERNAL_ERROR.0, "message": why });
            json!({ "jsonrpc": "2.0", "id": json_id, "error": error })
        }
    }
}

/// Sets the id of the subscription that a message belongs to. The server knows the request by the
/// id that it has on the connection to the editor.
fn set_subscription(members: &mut Map<String, Value>, id: Value) {
    let meta = members.entry("_meta").or_insert_with(|| json!({}));
    if !meta.is_object() {
        *meta = json!({});
    }
    meta[SUBSCRIPTION_ID] = id;
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use base::lock::lock;
    use tokio::sync::oneshot;

    use super::*;

    /// An editor that does nothing on its own.
    #[derive(Default)]
    struct Editor {
        requests: Mutex<Vec<EditorRequest>>,
        /// The senders of the answers. Each is closed when its request is cancelled.
        answers: Mutex<Vec<oneshot::Sender<Result<EditorAnswer, EditorFault>>>>,
        ended: CancellationToken,
    }

    impl EditorChannel for Editor {
        fn request(
            &self,
            request: EditorRequest,
        ) -> BoxFuture<'static, Result<EditorAnswer, EditorFault>> {
            let (sender, answer) = oneshot::channel();
            lock(&self.requests).push(request);
            lock(&self.answers).push(sender);
            Box::pin(async move { answer.await.unwrap_or(Err(EditorFault::Closed)) })
        }

        fn ended(&self) -> CancellationToken {
            self.ended.clone()
        }
    }

    fn connected() -> (Arc<Editor>, EditorSlot, EditorTransport) {
        let editor = Arc::<Editor>::default();
        let channel: Arc<dyn EditorChannel> = editor.clone();
        let slot = EditorSlot::new(Some(channel.clone()));
        let transport = EditorTransport::new("s".into(), channel, slot.subscribe());
        (editor, slot, transport)
    }

    async fn send(transport: &mut EditorTransport, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        let message = serde_json::from_value(message).unwrap();
        transport.send(message).await.unwrap();
    }

    fn call(id: u64, method: &str) -> Value {
        json!({ "id": id, "method": method, "params": { "name": "say", "notifications": {} } })
    }

    async fn received(transport: &mut EditorTransport) -> Value {
        serde_json::to_value(transport.receive().await.unwrap()).unwrap()
    }

    #[tokio::test]
    async fn answers_become_messages() {
        let error = |code, message: &str, data| EditorAnswer::Error {
            code,
            message: message.to_owned(),
            data,
        };
        let table = [
            (
                Ok(EditorAnswer::Result(json!({ "content": [] }))),
                json!({ "result": { "content": [] } }),
            ),
            (
                Ok(error(-32000, "no", Some(json!([1])))),
                json!({ "error": { "code": -32000, "message": "no", "data": [1] } }),
            ),
            (
                Ok(error(-32601, "no", None)),
                json!({ "error": { "code": -32601, "message": "no" } }),
            ),
            (
                Err(EditorFault::Refused("the editor refused".to_owned())),
                json!({ "error": { "code": -32603, "message": "the editor refused" } }),
            ),
        ];
        for (answer, wanted) in table {
            let (editor, _slot, mut transport) = connected();
            send(&mut transport, call(7, "tools/call")).await;
            assert_eq!(&*lock(&editor.requests)[0].server, "s");
            assert_eq!(lock(&editor.requests)[0].method, "tools/call");
            let sender = lock(&editor.answers).remove(0);
            sender.send(answer).ok();
            let message = received(&mut transport).await;
            assert_eq!(message["id"], 7);
            for (member, value) in wanted.as_object().unwrap() {
                for (name, value) in value.as_object().unwrap() {
                    assert_eq!(message[member][name], *value, "{message}");
                }
            }
        }
    }

    #[tokio::test]
    async fn every_request_is_answered() {
        for result in [json!(null), json!(7), json!("x"), json!([]), json!({})] {
            let (editor, _slot, mut transport) = connected();
            send(&mut transport, call(7, "tools/list")).await;
            let sender = lock(&editor.answers).remove(0);
            sender.send(Ok(EditorAnswer::Result(result.clone()))).ok();
            assert_eq!(received(&mut transport).await["id"], 7, "{result}");
        }
    }

    #[tokio::test]
    async fn notifications_have_the_ids_of_rmcp() {
        let (editor, _slot, mut transport) = connected();
        send(&mut transport, call(3, LISTEN)).await;
        let notifications = lock(&editor.requests)[0].notifications.clone();
        let theirs = json!({ "_meta": { (SUBSCRIPTION_ID): "theirs" } });
        for params in [None, theirs.as_object().cloned()] {
            notifications.push("notifications/tools/list_changed", params);
            let message = received(&mut transport).await;
            assert_eq!(message["params"]["_meta"][SUBSCRIPTION_ID], 3, "{message}");
        }
        let theirs = json!({ "requestId": "theirs" });
        notifications.push(CANCELLED, theirs.as_object().cloned());
        let message = received(&mut transport).await;
        assert_eq!(message["params"]["requestId"], 3, "{message}");
    }

    #[tokio::test]
    async fn unread_notifications_are_limited() {
        let (editor, _slot, mut transport) = connected();
        send(&mut transport, call(1, "tools/call")).await;
        let notifications = lock(&editor.requests)[0].notifications.clone();
        let note = |text: String| {
            json!({ "level": "info", "data": text })
                .as_object()
                .cloned()
        };
        notifications.push("notifications/message", note("x".repeat(MAX_UNREAD_BYTES)));
        for _ in 0..10_000 {
            notifications.push("notifications/message", note("x".to_owned()));
        }
        lock(&editor.answers)
            .remove(0)
            .send(Ok(EditorAnswer::Result(json!({ "content": [] }))))
            .ok();
        let mut unread = 0;
        while received(&mut transport).await.get("result").is_none() {
            unread += 1;
        }
        assert_eq!(unread, MAX_UNREAD_BYTES / MIN_NOTIFICATION_BYTES);
        // A received notification frees its space.
        notifications.push("notifications/message", note("x".to_owned()));
        assert_eq!(received(&mut transport).await["params"]["data"], "x");
    }

    #[tokio::test]
    async fn cancelled_request_is_dropped() {
        let (editor, _slot, mut transport) = connected();
        send(&mut transport, call(1, "tools/call")).await;
        send(&mut transport, call(2, "tools/call")).await;
        let cancel = json!({ "method": CANCELLED, "params": { "requestId": 1 } });
        send(&mut transport, cancel).await;
        let mut first = lock(&editor.answers).remove(0);
        first.closed().await;
        let mut second = lock(&editor.answers).remove(0);
        assert!(!second.is_closed());
        drop(transport);
        second.closed().await;
    }

    #[tokio::test]
    async fn connection_ends_with_its_editor() {
        let (editor, _slot, mut transport) = connected();
        editor.ended.cancel();
        assert!(transport.receive().await.is_none());
        let (_editor, slot, mut transport) = connected();
        slot.send_replace(Some(Arc::<Editor>::default()));
        assert!(transport.receive().await.is_none());
        let (editor, _slot, mut transport) = connected();
        send(&mut transport, call(1, "tools/call")).await;
        // The connection ends before the answer.
        lock(&editor.answers).clear();
        assert!(transport.receive().await.is_none());
    }
}
