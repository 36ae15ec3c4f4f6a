//! A typed handler for each method name.
//!
//! A handler has two phases. Its body runs **when the line is read**, in arrival order, on the read
//! loop: it looks things up, queues work, and returns a [`Reply`]. `Reply::Now` is the answer;
//! `Reply::Later` is a future that the caller polls elsewhere. So a `session/cancel` on the next
//! line cannot overtake the prompt it cancels, and the read loop never waits.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::acp::Method;
use crate::decode::{misfit, without_values};
use crate::rpc::{self, Error, Id};
use crate::words::plain_message;

/// The result of a handler's first phase.
pub enum Reply<R> {
    Now(Result<R, Error>),
    /// The answer is the result of this future.
    Later(BoxFuture<Result<R, Error>>),
}

impl<R> Reply<R> {
    pub fn now(result: Result<R, Error>) -> Self {
        Self::Now(result)
    }

    /// Returns a reply that `work` will produce.
    pub fn later(work: impl Future<Output = Result<R, Error>> + Send + 'static) -> Self {
        Self::Later(Box::pin(work))
    }
}

/// A boxed future that can move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The context of a request, in addition to its params.
#[derive(Clone, Default)]
pub struct RequestContext {
    /// Cancelled when the other side sends `$/cancel_request` for this request.
    pub cancelled: CancellationToken,
    after: After,
}

// A std mutex around one slot: a leaf lock, never held across an await.
type After = Arc<Mutex<Option<BoxFuture<()>>>>;

impl RequestContext {
    /// Has `work` run after the reply is written, by the same task, so that all messages of `work`
    /// follow the reply.
    pub fn after(&self, work: impl Future<Output = ()> + Send + 'static) {
        *self.after.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(work));
    }

    /// Takes the work to be done after the reply.
    pub fn take_after(&self) -> Option<BoxFuture<()>> {
        self.after
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// The reply to one request as a line, finished or pending.
pub enum Dispatch {
    Done(Vec<u8>),
    /// A future that returns the line to be written.
    Pending(BoxFuture<Vec<u8>>),
}

/// The receiver of requests and notifications, which calls their handlers.
pub trait Router {
    /// Runs the first phase of a request.
    fn dispatch(&self, id: &Id, method: &str, params: &str, cx: &RequestContext) -> Dispatch;

    /// Runs a notification's handler. Unknown notifications are ignored.
    fn notify(&self, method: &str, params: &str);
}

impl<S: Send + Sync + 'static> Router for Table<S> {
    fn dispatch(&self, id: &Id, method: &str, params: &str, cx: &RequestContext) -> Dispatch {
        Self::dispatch(self, id, method, params, cx)
    }

    fn notify(&self, method: &str, params: &str) {
        Self::notify(self, method, params);
    }
}

/// Decodes the params of one request, runs the first phase of its handler, and returns the reply.
type RequestHandler<S> = Box<dyn Fn(&Arc<S>, &Id, &str, RequestContext) -> Dispatch + Send + Sync>;
type NotificationHandler<S> = Box<dyn Fn(&Arc<S>, &str) + Send + Sync>;
type Check<S> = Box<dyn Fn(&S, &str) -> Result<(), Error> + Send + Sync>;

/// The routing table of one connection over the state `S`.
pub struct Table<S> {
    state: Arc<S>,
    requests: HashMap<&'static str, RequestHandler<S>>,
    notifications: HashMap<&'static str, NotificationHandler<S>>,
    check: Option<Check<S>>,
}

impl<S: Send + Sync + 'static> Table<S> {
    pub fn new(state: Arc<S>) -> Self {
        Self {
            state,
            requests: HashMap::new(),
            notifications: HashMap::new(),
            check: None,
        }
    }

    /// Sets a check that precedes every known request, such as the state of the handshake.
    #[must_use]
    pub fn check_before(
        mut self,
        gate: impl Fn(&S, &str) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        self.check = Some(Box::new(gate));
        self
    }

    /// Serves a request method. `handler` is the first phase.
    #[must_use]
    pub fn request<P>(
        mut self,
        handler: impl Fn(&Arc<S>, RequestContext, P) -> Reply<P::Response> + Send + Sync + 'static,
    ) -> Self
    where
        P: Method + DeserializeOwned,
        P::Response: Serialize + Send + 'static,
    {
        let serve = move |state: &Arc<S>, id: &Id, params: &str, cx: RequestContext| {
            let params = match decode::<P>(params) {
                Ok(params) => params,
                Err(error) => return Dispatch::Done(rpc::failure(id, &error)),
            };
            match handler(state, cx, params) {
                Reply::Now(result) => Dispatch::Done(reply(id, result)),
                Reply::Later(work) => {
                    let id = id.clone();
                    start(Box::pin(async move { reply(&id, work.await) }))
                }
            }
        };
        if self.requests.insert(P::NAME, Box::new(serve)).is_some() {
            tracing::error!("{} is in the table twice", P::NAME);
        }
        self
    }

    /// Serves a notification. Params that do not fit are only logged, because a notification has no
    /// reply.
    #[must_use]
    pub fn notification<P: Method + DeserializeOwned>(
        mut self,
        handler: impl Fn(&Arc<S>, P) + Send + Sync + 'static,
    ) -> Self {
        let handle = move |state: &Arc<S>, params: &str| match serde_json::from_str(params) {
            Ok(params) => handler(state, params),
            Err(e) => tracing::warn!("{} ignored: {}", P::NAME, without_values(&e.to_string())),
        };
        self.notifications.insert(P::NAME, Box::new(handle));
        self
    }

    /// Returns the state that handlers receive.
    pub fn state(&self) -> &Arc<S> {
        &self.state
    }

    /// Returns whether the gate lets requests pass, because the handshake is complete.
    pub fn accepts_requests(&self) -> bool {
        self.check
            .as_ref()
            .is_none_or(|gate| gate(&self.state, "").is_ok())
    }

    /// Runs the first phase of a request.
    pub fn dispatch(&self, id: &Id, method: &str, params: &str, cx: &RequestContext) -> Dispatch {
        let Some(serve) = self.requests.get(method) else {
            return Dispatch::Done(rpc::failure(id, &Error::method_not_found(method)));
        };
        if let Some(Err(refused)) = self.check.as_ref().map(|gate| gate(&self.state, method)) {
            return Dispatch::Done(rpc::failure(id, &refused));
        }
        // serde would accept a list as the members of an object, in their order.
        if params.trim_start().starts_with('[') {
            let error = Error::invalid_params("params must be an object with names, not a list");
            return Dispatch::Done(rpc::failure(id, &error));
        }
        let served = std::panic::catch_unwind(AssertUnwindSafe(|| {
            serve(&self.state, id, params, cx.clone())
        }));
        served.unwrap_or_else(|_| {
            Dispatch::Done(rpc::failure(
                id,
                &Error::internal("the request failed unexpectedly; see the log"),
            ))
        })
    }

    /// Runs a notification's handler. Unknown notifications are ignored.
    pub fn notify(&self, method: &str, params: &str) {
        let Some(handle) = self.notifications.get(method) else {
            tracing::debug!("unknown notification");
            return;
        };
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| handle(&self.state, params)));
        if run.is_err() {
            tracing::error!("the handler of {method} panicked");
        }
    }
}

/// Polls a reply once, because many are ready as soon as their first phase is over.
fn start(mut line: BoxFuture<Vec<u8>>) -> Dispatch {
    match line.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(line) => Dispatch::Done(line),
        Poll::Pending => Dispatch::Pending(line),
    }
}

/// Returns the line that answers a request.
fn reply<R: Serialize>(id: &Id, result: Result<R, Error>) -> Vec<u8> {
    match result.map(|result| serde_json::to_string(&result)) {
        Ok(Ok(result)) => rpc::success(id, &result),
        Ok(Err(e)) => {
            tracing::error!("a result cannot be written as JSON: {e}");
            rpc::failure(id, &Error::internal("the reply could not be written"))
        }
        Err(error) => rpc::failure(id, &error),
    }
}

fn decode<P: DeserializeOwned>(params: &str) -> Result<P, Error> {
    let misfit = |e: serde_json::Error| {
        misfit::<P>(params).unwrap_or_else(|| plain_message(&without_values(&e.to_string())))
    };
    serde_json::from_str(params).map_err(|e| Error::invalid_params(misfit(e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::v1;

    struct State;

    fn table() -> Table<State> {
        Table::new(Arc::new(State))
            .request(|_: &Arc<State>, _, _: v1::AuthenticateRequest| {
                Reply::now(Ok(v1::AuthenticateResponse::default()))
            })
            .request(|_: &Arc<State>, _, _: v1::LogoutRequest| panic!("on purpose"))
            .request(|_: &Arc<State>, cx, _: v1::CloseSessionRequest| {
                Reply::later(async move {
                    cx.cancelled.cancelled().await;
                    Err(Error::cancelled())
                })
            })
    }

    fn now(method: &str, params: &str) -> String {
        let id = Id::parse("\"a\\/b\"").unwrap();
        match table().dispatch(&id, method, params, &RequestContext::default()) {
            Dispatch::Done(line) => String::from_utf8(line).unwrap(),
            Dispatch::Pending(_) => "pending".into(),
        }
    }

    #[test]
    fn replies_carry_the_exact_id() {
        assert_eq!(
            now("authenticate", r#"{"methodId":"x"}"#),
            r#"{"jsonrpc":"2.0","id":"a\/b","result":{}}"#
        );
    }

    #[test]
    fn errors_do_not_contain_values() {
        let reply = now("authenticate", r#"{"methodId":{"secret":"hunter2"}}"#);
        assert!(
            reply.contains("-32602") && !reply.contains("hunter2"),
            "{reply}"
        );
        assert!(now("nope", "{}").contains("-32601"));
    }

    #[test]
    fn panic_is_answered_with_internal_error() {
        assert!(now("logout", "{}").contains("-32603"));
    }

    #[tokio::test]
    async fn later_reply_is_polled_by_the_caller() {
        let cx = RequestContext::default();
        let id = Id::parse("1").unwrap();
        let Dispatch::Pending(work) =
            table().dispatch(&id, "session/close", r#"{"sessionId":"s"}"#, &cx)
        else {
            panic!("should be pending");
        };
        cx.cancelled.cancel();
        assert!(String::from_utf8(work.await).unwrap().contains("-32800"));
    }
}
