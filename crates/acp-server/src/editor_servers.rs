//! [`EditorServers`], the channel to the MCP servers that run inside the client. It sends their requests
//! over the connection of the client, and passes on the notifications that belong to a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use protocol::acp::{MaybeUndefined, v1};
use protocol::rpc::{CallError, Peer};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use base::environment::Environment;
use base::lock::lock;
use mcp::editor::{EditorAnswer, EditorChannel, EditorFault, EditorNotifications, EditorRequest};
use tools::BoxFuture;

/// The channel to the MCP servers of one client, with the requests that are not answered yet.
pub struct EditorServers {
    environment: Environment,
    peer: Peer,
    /// Cancelled when the connection has ended.
    ended: CancellationToken,
    requests: Arc<UnansweredRequests>,
}

/// The unanswered requests, by their id.
// A std mutex around a map: a leaf lock, never held across an await.
type UnansweredRequests = Mutex<HashMap<Arc<str>, UnansweredRequest>>;

struct UnansweredRequest {
    /// The id of the server.
    server: Arc<str>,
    /// The receiver of the notifications that belong to the request.
    notifications: EditorNotifications,
}

impl EditorServers {
    pub fn new(environment: Environment, peer: Peer, ended: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            environment,
            peer,
            ended,
            requests: Arc::default(),
        })
    }

    /// Passes on a notification of a server. Ignores it if it belongs to no unanswered request to that
    /// server.
    pub fn notify(
        &self,
        server: &str,
        request: &str,
        method: &str,
        params: Option<Map<String, Value>>,
    ) {
        let receiver = lock(&self.requests)
            .get(request)
            .filter(|unanswered| &*unanswered.server == server)
            .map(|unanswered| unanswered.notifications.clone());
        match receiver {
            Some(receiver) => receiver.push(method, params),
            None => tracing::debug!("a notification that belongs to no request to a server"),
        }
    }
}

impl EditorChannel for EditorServers {
    fn request(
        &self,
        request: EditorRequest,
    ) -> BoxFuture<'static, Result<EditorAnswer, EditorFault>> {
        let EditorRequest {
            server,
            method,
            params,
            notifications,
        } = request;
        let id: Arc<str> = self.environment.fresh("mcp").into();
        let unanswered = UnansweredRequest {
            server: server.clone(),
            notifications,
        };
        lock(&self.requests).insert(id.clone(), unanswered);
        let registration = Registration {
            id: id.clone(),
            requests: self.requests.clone(),
        };
        let peer = self.peer.clone();
        Box::pin(async move {
            let _registration = registration;
            // The message has the same form in both versions.
            let message = v1::MessageMcpRequest::new(server, id, method).params(params);
            match peer.call(&message, None).await {
                Ok(v1::MessageMcpResponse::Result { result, .. }) => {
                    Ok(EditorAnswer::Result(result))
                }
                Ok(v1::MessageMcpResponse::Error { error, .. }) => Ok(EditorAnswer::Error {
                    code: error.code,
                    message: error.message,
                    data: match error.data {
                        MaybeUndefined::Value(data) => Some(data),
                        MaybeUndefined::Null => Some(Value::Null),
                        MaybeUndefined::Undefined => None,
                    },
                }),
                Ok(_) => Err(EditorFault::Refused(
                    "the editor answered with neither a result nor an error".into(),
                )),
                Err(CallError::Closed) => Err(EditorFault::Closed),
                Err(e) => Err(EditorFault::Refused(e.to_string())),
            }
        })
    }

    fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }
}

/// The registration of a request, removed when this is dropped.
struct Registration {
    id: Arc<str>,
    requests: Arc<UnansweredRequests>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.requests).remove(&self.id);
    }
}
