//! Sends a request to a server for a tool call. Starts the server again if needed. The request ends
//! with its answer, with a cancellation, or after a time limit without progress.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::{
    CancelledNotificationParam, ClientRequest, ProgressNotificationParam, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::asker::Asker;
use super::connection::{McpConnection, ReadyServer};
use super::failure::describe_request_error;
use super::input_requests;
use base::text;
use events::CallUpdate;
use tools::call_timeout::CallTimeout;
use tools::{Failure, ToolContext};

/// The minimum time between two progress updates.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The caller of a request.
pub(super) struct RequestCaller<'a> {
    pub cancelled: &'a CancellationToken,
    /// The call that receives progress updates.
    pub context: Option<&'a ToolContext>,
    /// The user to ask during the request.
    pub asker: Option<Asker>,
}

impl<'a> RequestCaller<'a> {
    pub(super) fn for_tool_call(context: &'a ToolContext) -> Self {
        Self {
            cancelled: &context.cancelled,
            context: Some(context),
            asker: Some(Asker::for_tool_call(context)),
        }
    }

    pub(super) fn without_user(cancelled: &'a CancellationToken) -> Self {
        Self {
            cancelled,
            context: None,
            asker: None,
        }
    }
}

/// The end of waiting for an answer.
enum WaitResult {
    Answer(Box<Result<ServerResult, ServiceError>>),
    Cancelled,
    TimedOut(String),
}

/// Sends a request, again each time the server answers that it needs input.
///
/// # Errors
/// Returns the reason why there is no answer, for the model.
pub(super) async fn request(
    connection: &McpConnection,
    mut request: ClientRequest,
    caller: &RequestCaller<'_>,
) -> Result<ServerResult, Failure> {
    let _in_progress = caller
        .asker
        .clone()
        .map(|asker| connection.register_call(asker));
    for _ in 0..input_requests::MAX_ROUNDS {
        match send_once(connection, request.clone(), caller).await? {
            ServerResult::InputRequiredResult(wanted) => {
                let filled = tokio::select! {
                    filled = input_requests::answer(connection, wanted, &mut request, caller.cancelled) => filled,
                    () = caller.cancelled.cancelled() => return Err(Failure::Cancelled),
                };
                let server = &connection.name;
                filled.map_err(|e| {
                    Failure::ForModel(format!(
                        "The MCP server {server} cannot continue the call: {}",
                        e.message
                    ))
                })?;
            }
            answer => return Ok(answer),
        }
    }
    Err(Failure::ForModel(format!(
        "The MCP server {} keeps asking for more.",
        connection.name
    )))
}

/// Waits until the server of a call is ready.
///
/// # Errors
/// Returns the reason for the model if it does not become ready.
pub(super) async fn await_ready(
    connection: &McpConnection,
    cancelled: &CancellationToken,
) -> Result<Arc<ReadyServer>, Failure> {
    let ready = tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(Failure::Cancelled),
        ready = connection.await_ready() => ready,
    };
    ready.map_err(|why| {
        Failure::ForModel(format!(
            "The MCP server {} does not work: {why}",
            connection.name
        ))
    })
}

async fn send_once(
    connection: &McpConnection,
    request: ClientRequest,
    caller: &RequestCaller<'_>,
) -> Result<ServerResult, Failure> {
    let server = &connection.name;
    let ready = await_ready(connection, caller.cancelled).await?;
    connection.record_call();
    let peer = &ready.peer;
    let handle = match peer
        .send_cancellable_request(request, PeerRequestOptions::no_options())
        .await
    {
        Ok(handle) => handle,
        Err(e) => return Err(describe_error(connection, e).await),
    };
    let id = handle.id.clone();
    let token = handle.progress_token.clone();
    let mut progress = connection.track_progress(&token);
    let mut open_questions = connection.open_questions();
    let mut next = Instant::now();
    let mut clock = CallTimeout::start(connection.call_timeout, Instant::now());
    clock.set_waits_for_user(*open_questions.borrow_and_update() > 0, Instant::now());
    let answer = handle.await_response();
    tokio::pin!(answer);
    let waited = loop {
        tokio::select! {
            biased;
            () = caller.cancelled.cancelled() => break WaitResult::Cancelled,
            answer = &mut answer => break WaitResult::Answer(Box::new(answer)),
            Ok(()) = open_questions.changed() => clock.set_waits_for_user(*open_questions.borrow_and_update() > 0, Instant::now()),
            Ok(()) = async { sleep_until(next).await; progress.changed().await } => {
                clock.record_progress(Instant::now());
                next = Instant::now() + PROGRESS_INTERVAL;
                let output = progress.borrow_and_update().as_ref().map(describe_progress);
                if let (Some(context), Some(_)) = (caller.context, &output) {
                    context.progress(CallUpdate { output, ..CallUpdate::default() }).await;
                }
            }
            () = clock.run_out() => break WaitResult::TimedOut(clock.why(Instant::now())),
        }
    };
    // The progress of a call stays with it, however it ends.
    let reported = if caller.context.is_some() {
        progress.borrow().as_ref().map(describe_progress)
    } else {
        None
    };
    connection.stop_tracking(&token);
    // Notifications that arrived before the answer are handled by separate tasks, which exist
    // already. They run first, so that a changed list is not used in its old state.
    tokio::task::yield_now().await;
    match waited {
        WaitResult::Answer(answer) => match *answer {
            Ok(answer) => {
                connection.record_success();
                Ok(answer)
            }
            Err(e) => Err(describe_error(connection, e).await),
        },
        WaitResult::Cancelled => {
            withdraw(connection, peer, id, "the user has cancelled").await;
            Err(reported.map_or(Failure::Cancelled, |text| Failure::CutOff {
                text,
                coloured: None,
                whole: None,
            }))
        }
        WaitResult::TimedOut(why) => {
            withdraw(connection, peer, id, "it takes too long").await;
            let last = reported.map(|text| format!(" It had reported: {text}"));
            Err(Failure::ForModel(format!(
                "The MCP server {server} did not answer: {why}.{}",
                last.unwrap_or_default()
            )))
        }
    }
}

async fn withdraw(connection: &McpConnection, peer: &Peer<RoleClient>, id: RequestId, why: &str) {
    let param = CancelledNotificationParam::new(Some(id), Some(why.into()));
    if let Err(e) = peer.notify_cancelled(param).await {
        tracing::debug!(
            "MCP server {} was not notified of a cancellation: {e}",
            connection.name
        );
    }
}

/// Returns the reason why there is no answer, for the model.
async fn describe_error(connection: &McpConnection, e: ServiceError) -> Failure {
    let server = &connection.name;
    Failure::ForModel(match e {
        ServiceError::McpError(e) => {
            // An error answer shows that the server is alive.
            connection.record_success();
            format!("The MCP server {server} failed: {}", e.message)
        }
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => {
            let why = connection.failure_reason().await;
            format!(
                "The connection to the MCP server {server} broke: {why}. Whether the call took effect is unknown."
            )
        }
        e => format!(
            "The MCP server {server} failed: {}",
            describe_request_error(&e, connection)
        ),
    })
}

/// Describes the progress of a call, for the user: `3 of 7: copying`.
fn describe_progress(progress: &ProgressNotificationParam) -> String {
    let so_far = match progress.total {
        Some(total) => format!("{} of {total}", progress.progress),
        None => progress.progress.to_string(),
    };
    match progress.message.as_deref().map(text::title) {
        Some(message) if !message.is_empty() => format!("{so_far}: {message}"),
        _ => so_far,
    }
}
