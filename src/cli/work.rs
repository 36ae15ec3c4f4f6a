//! `adjutant serve --work`: answers prompts that wait in the store, as `adjutant run` would. A
//! prompt whose host was lost continues after its last completed step: the effects of calls are in
//! the history, and only the model can repeat a call.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use protocol::acp::{Initialize, Prompt, ProtocolVersion, v1};
use protocol::rpc::Peer;
use protocol::table::{Reply, RequestContext, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::in_process::{InProcessServer, exit_code, server_error};
use super::refused::RefusedCall;
use acp_server::meta::{
    ALONE, IDEMPOTENCY_KEY, META_KEY, REJECTED, STRUCTURED, member, with_member,
};
use base::lock::lock;
use session::Sessions;
use store::{ClaimedTask, Store, TaskState};
use transcript::Message;

/// The interval of checking for new prompts.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The time for which a session may be held by the process that stored its prompt.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of times that a prompt is started. The prompt itself may be the cause of a lost host.
const MAX_TRIES: u64 = 5;

/// A prompt that waits in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WaitingPrompt {
    pub(super) cwd: PathBuf,
    #[serde(default)]
    pub(super) extra: Vec<PathBuf>,
    pub(super) blocks: Vec<v1::ContentBlock>,
    /// The options of the prompt.
    #[serde(default)]
    pub(super) meta: Map<String, Value>,
    /// Whether all requests are allowed; otherwise they are refused.
    #[serde(default)]
    pub(super) allow: bool,
}

/// The answer that is stored at the end of a prompt, for `sessions wait`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PromptAnswer {
    /// The exit code of the equivalent `adjutant run`.
    pub(super) code: u8,
    /// The answer, or the reason why there is none.
    pub(super) text: String,
    /// The structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Value>,
    /// The calls that were refused because no user could be asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<RefusedCall>,
}

/// Takes prompts from the store until draining begins, then waits for the running ones.
pub(super) async fn work(
    shared: Arc<Sessions>,
    max_concurrent: usize,
    draining: CancellationToken,
) {
    let mut running = JoinSet::new();
    let mut is_reported = false;
    while !draining.is_cancelled() {
        if running.len() < max_concurrent {
            match shared.store.claim_task().await {
                Ok(Some(task)) => {
                    is_reported = false;
                    running.spawn(run_task(shared.clone(), task));
                    continue;
                }
                Ok(None) => is_reported = false,
                Err(e) if !is_reported => {
                    tracing::error!("no prompt can be taken from the store: {e}");
                    is_reported = true;
                }
                Err(_) => {}
            }
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {} // the store does not notify about new prompts
            Some(_) = running.join_next(), if !running.is_empty() => {}
            () = draining.cancelled() => {}
        }
    }
    while running.join_next().await.is_some() {}
}

async fn run_task(shared: Arc<Sessions>, task: ClaimedTask) {
    let session = task.session.clone();
    tracing::info!(
        "session {session} is being worked on, attempt {}",
        task.tries
    );
    let (state, answer) = match answer_prompt(&shared, &task).await {
        Ok(Some(answer)) if answer.code == 130 => (TaskState::Cancelled, Some(answer)),
        Ok(Some(answer)) => (TaskState::Done, Some(answer)),
        // The prompt continues on another host.
        Ok(None) => (TaskState::Waiting, None),
        Err(e) => (
            TaskState::Failed,
            Some(PromptAnswer {
                code: 1,
                text: format!("{e:#}"),
                ..PromptAnswer::default()
            }),
        ),
    };
    let outcome = answer.map(|answer| serde_json::to_string(&answer).unwrap_or_default());
    match shared.store.finish_task(&session, state, outcome).await {
        Ok(true) => tracing::info!("session {session} is {}", state.as_str()),
        Ok(false) => tracing::warn!("session {session} was changed by another process meanwhile"),
        Err(e) => tracing::error!("the outcome of session {session} cannot be saved: {e}"),
    }
}

/// Answers a prompt. Returns `None` if it is to continue on another host.
async fn answer_prompt(
    shared: &Arc<Sessions>,
    task: &ClaimedTask,
) -> anyhow::Result<Option<PromptAnswer>> {
    if task.tries > MAX_TRIES {
        return Err(anyhow!(
            "{MAX_TRIES} hosts were lost while they worked on it"
        ));
    }
    let work: WaitingPrompt =
        serde_json::from_str(&task.work).context("the prompt in the store cannot be read")?;
    let client = Arc::new(UnattendedClient {
        should_allow: work.allow,
        progress: Mutex::default(),
    });
    let routes = Table::new(client.clone())
        .notification(UnattendedClient::update)
        .request(UnattendedClient::permit);
    let ended = shared.ended.child_token();
    let mut in_process =
        InProcessServer::start(shared, ended, routes, |lines| lines).context("no pipe")?;
    let answer = converse(&in_process.peer, &client, task, work).await;
    in_process.stop_serving().await;
    in_process.end().await;
    if shared.exit_requested.is_cancelled() && !matches!(&answer, Ok(PromptAnswer { code: 0, .. }))
    {
        return Ok(None);
    }
    let mut answer = answer?;
    if answer.text.is_empty() {
        // The answer went to an earlier host, which was lost before it could store it.
        let stored = shared.store.peek(&task.session).await?;
        answer.text = stored
            .messages
            .last()
            .filter(|last| last.assistant().is_some())
            .map(Message::visible_text)
            .unwrap_or_default()
            .trim()
            .to_owned();
    }
    Ok(Some(answer))
}

async fn converse(
    peer: &Peer,
    client: &UnattendedClient,
    task: &ClaimedTask,
    work: WaitingPrompt,
) -> anyhow::Result<PromptAnswer> {
    let capabilities = v1::ClientCapabilities::new().meta(with_member(ALONE, Value::Bool(true)));
    let info = v1::Implementation::new("adjutant serve --work", env!("CARGO_PKG_VERSION"));
    let initialize = v1::InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(capabilities)
        .client_info(info);
    peer.call(&Initialize(initialize), None)
        .await
        .map_err(server_error)?;
    let id = v1::SessionId::new(task.session.share());
    let resume =
        v1::ResumeSessionRequest::new(id.clone(), work.cwd).additional_directories(work.extra);
    let opened = async {
        loop {
            match peer.call(&resume, None).await {
                Ok(_) => return,
                // The process that stored the prompt is about to release the session.
                Err(e) => tracing::debug!("session {} cannot be opened yet: {e}", task.session),
            }
            tokio::time::sleep(POLL_INTERVAL).await; // before the next attempt
        }
    };
    if tokio::time::timeout(RELEASE_TIMEOUT, opened).await.is_err() {
        peer.call(&resume, None).await.map_err(server_error)?;
    }
    // A host that was lost may have begun this prompt; with the key, it continues instead of
    // beginning again.
    let mut meta = work.meta;
    meta.insert(
        IDEMPOTENCY_KEY.to_owned(),
        format!("task after {} messages", task.before).into(),
    );
    let meta = Map::from_iter([(META_KEY.to_owned(), Value::Object(meta))]);
    let request = Prompt(v1::PromptRequest::new(id, work.blocks).meta(meta));
    let response = peer.call(&request, None).await.map_err(server_error)?;
    let AnswerProgress {
        words,
        has_answer,
        refused,
        ..
    } = std::mem::take(&mut *lock(&client.progress));
    let result = member(response.meta.as_ref(), STRUCTURED).cloned();
    let is_rejected = member(response.meta.as_ref(), REJECTED).is_some();
    let permitted = !is_rejected && (refused.is_empty() || has_answer || result.is_some());
    let code = exit_code(&response, permitted);
    Ok(PromptAnswer {
        code,
        text: words.trim().to_owned(),
        result,
        refused,
    })
}

/// A client without a user: it collects the answer, and answers requests itself.
struct UnattendedClient {
    /// True if requests are allowed; otherwise they are refused.
    should_allow: bool,
    // A std mutex: a leaf lock, never held across an await.
    progress: Mutex<AnswerProgress>,
}

#[derive(Default)]
struct AnswerProgress {
    /// The message of the last text.
    message: Option<v1::MessageId>,
    words: String,
    /// Whether there was text since the last call.
    has_answer: bool,
    refused: Vec<RefusedCall>,
}

impl UnattendedClient {
    /// Handles `session/update`. The last text is the answer.
    fn update(client: &Arc<Self>, note: v1::SessionNotification) {
        let mut progress = lock(&client.progress);
        progress.has_answer &= !matches!(note.update, v1::SessionUpdate::ToolCall(_));
        let v1::SessionUpdate::AgentMessageChunk(chunk) = note.update else {
            return;
        };
        let v1::ContentBlock::Text(text) = chunk.content else {
            return;
        };
        progress.has_answer |= !text.text.trim().is_empty();
        if progress.message != chunk.message_id {
            progress.words.clear();
            progress.message = chunk.message_id;
        }
        progress.words.push_str(&text.text);
    }

    /// Handles `session/request_permission`.
    fn permit(
        client: &Arc<Self>,
        _: RequestContext,
        request: v1::RequestPermissionRequest,
    ) -> Reply<v1::RequestPermissionResponse> {
        use v1::PermissionOptionKind::{AllowOnce, RejectOnce};
        let wanted = if client.should_allow {
            AllowOnce
        } else {
            RejectOnce
        };
        let option = request.options.iter().find(|option| option.kind == wanted);
        if !client.should_allow {
            lock(&client.progress)
                .refused
                .push(RefusedCall::new(&request));
        }
        let outcome = match option {
            Some(option) => v1::RequestPermissionOutcome::Selected(
                v1::SelectedPermissionOutcome::new(option.option_id.clone()),
            ),
            None => v1::RequestPermissionOutcome::Cancelled,
        };
        Reply::now(Ok(v1::RequestPermissionResponse::new(outcome)))
    }
}

/// Puts a prompt into the store.
///
/// # Errors
/// Returns an error of the store.
pub(super) async fn put(
    store: &Store,
    session: &base::id::SessionId,
    work: &WaitingPrompt,
) -> anyhow::Result<()> {
    Ok(store
        .queue_task(session, serde_json::to_string(work)?)
        .await?)
}
