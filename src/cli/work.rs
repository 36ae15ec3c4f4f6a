//! `adjutant serve --work`: answers prompts that wait in the store, as `adjutant run` would. A prompt whose host was
//! lost goes on from its last step that was completed: what a call has done is in the history, and no call is made
//! again by anybody but the model.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use protocol::acp::{Initialize, ProtocolVersion, v1};
use protocol::rpc::Peer;
use protocol::table::{Cx, Reply, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::inside::{Inside, exit_code, said};
use super::refused::RefusedCall;
use acp_server::meta::{ALONE, IDEMPOTENCY_KEY, OWN, REJECTED, STRUCTURED, of_ours, own};
use base::lock::locked;
use session::Sessions;
use store::{ClaimedTask, Store, TaskState};
use transcript::Message;

/// How often a host looks whether there is something to do.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a session may be held by whoever put its prompt into the store.
const HELD: Duration = Duration::from_secs(10);

/// How often a prompt is begun: a host may have been lost because of it.
const TRIES: u64 = 5;

/// A prompt as it waits in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) cwd: PathBuf,
    #[serde(default)]
    pub(super) extra: Vec<PathBuf>,
    pub(super) blocks: Vec<v1::ContentBlock>,
    /// What is said of the prompt beside its words.
    #[serde(default)]
    pub(super) meta: Map<String, Value>,
    /// Whatever is asked is allowed; otherwise it is refused to the model.
    #[serde(default)]
    pub(super) allow: bool,
}

/// What is kept in the store when a prompt has ended, for `sessions wait` to print.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PromptAnswer {
    /// The exit code that `adjutant run` would have had.
    pub(super) code: u8,
    /// The answer, or why there is none.
    pub(super) text: String,
    /// The result in the shape that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Value>,
    /// What was refused because nobody could be asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<RefusedCall>,
}

/// Takes prompts from the store until nothing new is to begin, and waits for those that it has begun.
pub(super) async fn work(shared: Arc<Sessions>, at_once: usize, draining: CancellationToken) {
    let (mut running, mut told) = (JoinSet::new(), false);
    while !draining.is_cancelled() {
        if running.len() < at_once {
            match shared.store.claim_task().await {
                Ok(Some(task)) => {
                    told = false;
                    running.spawn(carry_out(shared.clone(), task));
                    continue;
                }
                Ok(None) => told = false,
                Err(e) if !told => {
                    tracing::error!("no prompt can be taken from the store: {e}");
                    told = true;
                }
                Err(_) => {}
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {} // looked again: nobody says that there is something to do
            Some(_) = running.join_next(), if !running.is_empty() => {}
            () = draining.cancelled() => {}
        }
    }
    while running.join_next().await.is_some() {}
}

async fn carry_out(shared: Arc<Sessions>, task: ClaimedTask) {
    let session = task.session.clone();
    tracing::info!("session {session} is being worked on, attempt {}", task.tries);
    let (state, answer) = match answered(&shared, &task).await {
        Ok(Some(answer)) if answer.code == 130 => (TaskState::Cancelled, Some(answer)),
        Ok(Some(answer)) => (TaskState::Done, Some(answer)),
        // It is to go on elsewhere.
        Ok(None) => (TaskState::Waiting, None),
        Err(e) => {
            (TaskState::Failed, Some(PromptAnswer { code: 1, text: format!("{e:#}"), ..PromptAnswer::default() }))
        }
    };
    let outcome = answer.map(|answer| serde_json::to_string(&answer).unwrap_or_default());
    match shared.store.end_task(&session, state, outcome).await {
        Ok(true) => tracing::info!("session {session} is {}", state.as_str()),
        Ok(false) => tracing::warn!("session {session} was worked in by somebody else meanwhile"),
        Err(e) => tracing::error!("what came of session {session} is not kept: {e}"),
    }
}

/// Answers a prompt; none where it is to go on on another host.
async fn answered(shared: &Arc<Sessions>, task: &ClaimedTask) -> anyhow::Result<Option<PromptAnswer>> {
    if task.tries > TRIES {
        return Err(anyhow!("{TRIES} hosts were lost while they worked on it"));
    }
    let work: Work = serde_json::from_str(&task.work).context("the prompt in the store cannot be read")?;
    let client = Arc::new(UnattendedClient { allow: work.allow, said: Mutex::default() });
    let routes = Table::new(client.clone()).notification(UnattendedClient::update).request(UnattendedClient::permit);
    let ended = shared.ended.child_token();
    let mut inside = Inside::start(shared, ended, routes, |lines| lines).context("no pipe")?;
    let answer = converse(&inside.peer, &client, task, work).await;
    inside.stop_serving().await;
    inside.end().await;
    if shared.leaving.is_cancelled() && !matches!(&answer, Ok(PromptAnswer { code: 0, .. })) {
        return Ok(None);
    }
    let mut answer = answer?;
    if answer.text.is_empty() {
        // It was said to the host before, which was lost before it could keep it.
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
    work: Work,
) -> anyhow::Result<PromptAnswer> {
    let offers = v1::ClientCapabilities::new().meta(own(ALONE, Value::Bool(true)));
    let info = v1::Implementation::new("adjutant serve --work", env!("CARGO_PKG_VERSION"));
    let hello = v1::InitializeRequest::new(ProtocolVersion::V1).client_capabilities(offers).client_info(info);
    peer.call(&Initialize(hello), None).await.map_err(said)?;
    let id = v1::SessionId::new(task.session.share());
    let resume = v1::ResumeSessionRequest::new(id.clone(), work.cwd).additional_directories(work.extra);
    let opened = async {
        loop {
            match peer.call(&resume, None).await {
                Ok(_) => return,
                // Whoever put it there is about to let go of it.
                Err(e) => tracing::debug!("session {} cannot be opened yet: {e}", task.session),
            }
            tokio::time::sleep(PAUSE).await; // asked again
        }
    };
    if tokio::time::timeout(HELD, opened).await.is_err() {
        peer.call(&resume, None).await.map_err(said)?;
    }
    // A host that was lost may have begun with it.
    let mut meta = work.meta;
    meta.insert(IDEMPOTENCY_KEY.to_owned(), format!("task after {} messages", task.before).into());
    let meta = Map::from_iter([(OWN.to_owned(), Value::Object(meta))]);
    let request = v1::PromptRequest::new(id, work.blocks).meta(meta);
    let response = peer.call(&request, None).await.map_err(said)?;
    let Said { words, answered, refused, .. } = std::mem::take(&mut *locked(&client.said));
    let result = of_ours(response.meta.as_ref(), STRUCTURED).cloned();
    let stopped = of_ours(response.meta.as_ref(), REJECTED).is_some();
    let permitted = !stopped && (refused.is_empty() || answered || result.is_some());
    let code = exit_code(response.stop_reason, permitted);
    Ok(PromptAnswer { code, text: words.trim().to_owned(), result, refused })
}

/// Hears the answer, and answers what is asked: nobody is there.
struct UnattendedClient {
    allow: bool,
    // A std mutex around what was said: a leaf, never held across an await.
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    /// The message whose words came last.
    message: Option<v1::MessageId>,
    words: String,
    /// Something was said since the last call.
    answered: bool,
    refused: Vec<RefusedCall>,
}

impl UnattendedClient {
    /// session/update: what was said last is the answer.
    fn update(client: &Arc<Self>, note: v1::SessionNotification) {
        let mut said = locked(&client.said);
        said.answered &= !matches!(note.update, v1::SessionUpdate::ToolCall(_));
        let v1::SessionUpdate::AgentMessageChunk(chunk) = note.update else { return };
        let v1::ContentBlock::Text(text) = chunk.content else { return };
        said.answered |= !text.text.trim().is_empty();
        if said.message != chunk.message_id {
            said.words.clear();
            said.message = chunk.message_id;
        }
        said.words.push_str(&text.text);
    }

    /// session/request_permission.
    fn permit(
        client: &Arc<Self>,
        _: Cx,
        request: v1::RequestPermissionRequest,
    ) -> Reply<v1::RequestPermissionResponse> {
        use v1::PermissionOptionKind::{AllowOnce, RejectOnce};
        let wanted = if client.allow { AllowOnce } else { RejectOnce };
        let option = request.options.iter().find(|option| option.kind == wanted);
        if !client.allow {
            locked(&client.said).refused.push(RefusedCall::new(&request));
        }
        let outcome = match option {
            Some(option) => {
                v1::RequestPermissionOutcome::Selected(v1::SelectedPermissionOutcome::new(option.option_id.clone()))
            }
            None => v1::RequestPermissionOutcome::Cancelled,
        };
        Reply::now(Ok(v1::RequestPermissionResponse::new(outcome)))
    }
}

/// Puts a prompt into the store.
///
/// # Errors
/// The store's.
pub(super) async fn put(store: &Store, session: &base::id::SessionId, work: &Work) -> anyhow::Result<()> {
    Ok(store.put_task(session, serde_json::to_string(work)?).await?)
}
