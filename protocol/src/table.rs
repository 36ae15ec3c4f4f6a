//! A typed handler for each method name, on jsonrpsee's method table.
//!
//! A handler has two phases. Its body runs **when the line is read**, in arrival order, on the read
//! loop: it looks things up, queues work, and returns a [`Reply`]. `Reply::Now` is the answer;
//! `Reply::Later` is a future that the caller polls elsewhere. So a `session/cancel` on the next
//! line cannot overtake the prompt it cancels, and the read loop never waits.
//!
//! jsonrpsee provides the name table, typed results and error objects. Its callbacks run when they
//! are first polled, so the first poll happens here. It encodes ids again, but ours must be
//! repeated exactly, so it gets a dummy id, which is replaced in the finished reply.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use jsonrpsee::types::{ErrorCode, ErrorObjectOwned, Id as DummyId, Params};
use jsonrpsee::{ConnectionId, Extensions, MethodCallback, MethodResponse, RpcModule};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::acp::Method;
use crate::rpc::{self, Error, Id};

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
pub struct Cx {
    /// Cancelled when the other side sends `$/cancel_request` for this request.
    pub cancelled: CancellationToken,
    after: After,
}

// A std mutex around one slot: a leaf lock, never held across an await.
type After = Arc<Mutex<Option<BoxFuture<()>>>>;

impl Cx {
    /// Has `work` run after the reply is written, by the same task, so that all messages of `work`
    /// follow the reply.
    pub fn after(&self, work: impl Future<Output = ()> + Send + 'static) {
        *self.after.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(work));
    }

    /// Takes the work to be done after the reply.
    pub fn take_after(&self) -> Option<BoxFuture<()>> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The reply to one request as a line, finished or pending.
pub enum Dispatch {
    Done(Vec<u8>),
    /// A future that returns the line to be written.
    Pending(BoxFuture<Vec<u8>>),
}

/// The receiver of requests and notifications, which calls their handlers.
pub trait Routes {
    /// Runs the first phase of a request.
    fn dispatch(&self, id: &Id, method: &str, params: &str, cx: &Cx) -> Dispatch;

    /// Runs a notification's handler. Unknown notifications are ignored.
    fn note(&self, method: &str, params: &str);
}

impl<S: Send + Sync + 'static> Routes for Table<S> {
    fn dispatch(&self, id: &Id, method: &str, params: &str, cx: &Cx) -> Dispatch {
        Self::dispatch(self, id, method, params, cx)
    }

    fn note(&self, method: &str, params: &str) {
        Self::note(self, method, params);
    }
}

/// A function that parses the params of one method.
type ParamsDecoder = fn(&str) -> Result<DecodedParams, Error>;

/// Params on their way to a handler. They bypass jsonrpsee, whose callbacks would store a copy as
/// long as they run: the text of a prompt may have many megabytes.
#[derive(Clone)]
struct DecodedParams(Arc<Mutex<Option<Box<dyn Any + Send>>>>);

impl DecodedParams {
    fn new<P: Send + 'static>(params: P) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(params)))))
    }

    fn take<P: 'static>(&self) -> Option<P> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        taken.downcast::<P>().ok().map(|params| *params)
    }
}

type NotificationHandler<S> = Box<dyn Fn(&Arc<S>, &str) + Send + Sync>;
type Gate<S> = Box<dyn Fn(&S, &str) -> Result<(), Error> + Send + Sync>;

/// The routing table of one connection over the state `S`.
pub struct Table<S> {
    state: Arc<S>,
    requests: RpcModule<Arc<S>>,
    decoders: HashMap<&'static str, ParamsDecoder>,
    notes: HashMap<&'static str, NotificationHandler<S>>,
    gate: Option<Gate<S>>,
}

impl<S: Send + Sync + 'static> Table<S> {
    pub fn new(state: Arc<S>) -> Self {
        let requests = RpcModule::new(state.clone());
        let decoders = HashMap::new();
        let notes = HashMap::new();
        Self { state, requests, decoders, notes, gate: None }
    }

    /// Sets a check that precedes every known request, such as the state of the handshake.
    #[must_use]
    pub fn gate(mut self, gate: impl Fn(&S, &str) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        self.gate = Some(Box::new(gate));
        self
    }

    /// Serves a request method. `handler` is the first phase.
    #[must_use]
    pub fn request<P>(
        mut self,
        handler: impl Fn(&Arc<S>, Cx, P) -> Reply<P::Response> + Clone + Send + Sync + 'static,
    ) -> Self
    where
        P: Method + DeserializeOwned + Send + 'static,
        P::Response: Serialize + Clone + Send + 'static,
    {
        let called = move |_: Params<'static>, state: Arc<Arc<S>>, extensions: Extensions| {
            let handler = handler.clone();
            async move {
                let params = extensions.get::<DecodedParams>().and_then(DecodedParams::take::<P>);
                let params = params.ok_or_else(|| ErrorObjectOwned::from(ErrorCode::InternalError))?;
                let cx = extensions.get::<Cx>().cloned().unwrap_or_default();
                let reply = match handler(&state, cx, params) {
                    Reply::Now(reply) => reply,
                    Reply::Later(work) => work.await,
                };
                reply.map_err(|e| ErrorObjectOwned::owned(e.code, e.message, e.data))
            }
        };
        if let Err(e) = self.requests.register_async_method(P::NAME, called) {
            tracing::error!("{} is in the table twice: {e}", P::NAME);
        }
        self.decoders.insert(P::NAME, |params| Ok(DecodedParams::new(decode::<P>(params)?)));
        self
    }

    /// Serves a notification. Params that do not fit are only logged, because a notification has no
    /// reply.
    #[must_use]
    pub fn notification<P: Method + DeserializeOwned>(
        mut self,
        handler: impl Fn(&Arc<S>, P) + Send + Sync + 'static,
    ) -> Self {
        let note = move |state: &Arc<S>, params: &str| match serde_json::from_str(params) {
            Ok(params) => handler(state, params),
            Err(e) => tracing::warn!("{} ignored: {}", P::NAME, without_values(&e.to_string())),
        };
        self.notes.insert(P::NAME, Box::new(note));
        self
    }

    /// Returns the state that handlers receive.
    pub fn state(&self) -> &Arc<S> {
        &self.state
    }

    /// Returns whether the gate lets requests pass, because the handshake is complete.
    pub fn is_open(&self) -> bool {
        self.gate.as_ref().is_none_or(|gate| gate(&self.state, "").is_ok())
    }

    /// Runs the first phase of a request.
    pub fn dispatch(&self, id: &Id, method: &str, params: &str, cx: &Cx) -> Dispatch {
        let Some(MethodCallback::Async(callback)) = self.requests.method(method) else {
            return Dispatch::Done(rpc::failure(id, &Error::method_not_found(method)));
        };
        if let Some(Err(refused)) = self.gate.as_ref().map(|gate| gate(&self.state, method)) {
            return Dispatch::Done(rpc::failure(id, &refused));
        }
        // serde would accept a list as the members of an object, in their order.
        if params.trim_start().starts_with('[') {
            let error = Error::invalid_params("params is an object with names, not a list");
            return Dispatch::Done(rpc::failure(id, &error));
        }
        let decoded = match self.decoders.get(method).map(|decode| decode(params)) {
            Some(Ok(decoded)) => decoded,
            Some(Err(error)) => return Dispatch::Done(rpc::failure(id, &error)),
            None => return Dispatch::Done(rpc::failure(id, &Error::method_not_found(method))),
        };
        let mut extensions = Extensions::new();
        extensions.insert(cx.clone());
        extensions.insert(decoded);
        let mut work = callback(DummyId::Number(0), Params::new(None), ConnectionId(0), usize::MAX, extensions);
        let first =
            std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        match first {
            Ok(Poll::Ready(reply)) => Dispatch::Done(with_id(&reply, id)),
            Ok(Poll::Pending) => {
                let id = id.clone();
                Dispatch::Pending(Box::pin(async move { with_id(&work.await, &id) }))
            }
            Err(_) => {
                Dispatch::Done(rpc::failure(id, &Error::internal("the request failed unexpectedly; see the log")))
            }
        }
    }

    /// Runs a notification's handler. Unknown notifications are ignored.
    pub fn note(&self, method: &str, params: &str) {
        let Some(note) = self.notes.get(method) else {
            tracing::debug!("unknown notification");
            return;
        };
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| note(&self.state, params)));
        if run.is_err() {
            tracing::error!("the handler of {method} panicked");
        }
    }
}

/// The beginning of jsonrpsee's replies with the dummy id.
const DUMMY_PREFIX: &str = "{\"jsonrpc\":\"2.0\",\"id\":0,";

fn with_id(reply: &MethodResponse, id: &Id) -> Vec<u8> {
    let json = reply.as_json().get();
    let Some(rest) = json.strip_prefix(DUMMY_PREFIX) else {
        tracing::error!("jsonrpsee has changed the order of a reply's members");
        return rpc::failure(id, &Error::internal("the reply could not be written"));
    };
    let mut out = Vec::with_capacity(json.len() + 16);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_str().as_bytes());
    out.push(b',');
    out.extend_from_slice(rest.as_bytes());
    out
}

fn decode<P: DeserializeOwned>(params: &str) -> Result<P, Error> {
    let misfit = |e: serde_json::Error| misfit::<P>(params).unwrap_or_else(|| e.to_string());
    serde_json::from_str(params).map_err(|e| Error::invalid_params(without_values(&misfit(e))))
}

/// Returns the path and the reason if a text does not fit a type.
pub(crate) fn misfit<T: DeserializeOwned>(text: &str) -> Option<String> {
    let e = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text)).err()?;
    let path = e.path().to_string();
    let why = e.inner().to_string();
    // The path is more useful than the position in a line that is not displayed.
    let why = why.rsplit_once(" at line ").map_or(why.as_str(), |(why, _)| why);
    Some(if path == "." { why.to_owned() } else { format!("{path}: {why}") })
}

/// Removes the quoted values that serde includes in its messages, because values can be secrets.
pub fn without_values(message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    // Strings are escaped, so the closing quote is the last one before the comma.
    while let Some(start) = rest.find('"') {
        out.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        out.push('…');
        rest = match rest.rfind('"') {
            Some(end) => &rest[end + 1..],
            None => "",
        };
    }
    out + rest
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
        match table().dispatch(&id, method, params, &Cx::default()) {
            Dispatch::Done(line) => String::from_utf8(line).unwrap(),
            Dispatch::Pending(_) => "pending".into(),
        }
    }

    #[test]
    fn replies_carry_the_exact_id() {
        assert_eq!(now("authenticate", r#"{"methodId":"x"}"#), r#"{"jsonrpc":"2.0","id":"a\/b","result":{}}"#);
    }

    #[test]
    fn errors_do_not_contain_values() {
        let reply = now("authenticate", r#"{"methodId":{"secret":"hunter2"}}"#);
        assert!(reply.contains("-32602") && !reply.contains("hunter2"), "{reply}");
        assert!(now("nope", "{}").contains("-32601"));
        assert_eq!(
            without_values(r#"invalid type: string "a\"b", expected u16"#),
            "invalid type: string …, expected u16"
        );
    }

    #[test]
    fn panic_is_answered_with_internal_error() {
        assert!(now("logout", "{}").contains("-32603"));
    }

    #[tokio::test]
    async fn later_reply_is_polled_by_the_caller() {
        let cx = Cx::default();
        let id = Id::parse("1").unwrap();
        let Dispatch::Pending(work) = table().dispatch(&id, "session/close", r#"{"sessionId":"s"}"#, &cx) else {
            panic!("should be pending");
        };
        cx.cancelled.cancel();
        assert!(String::from_utf8(work.await).unwrap().contains("-32800"));
    }
}
