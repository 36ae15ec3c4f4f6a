//! `session/prompt` of version 2: the response follows when the prompt is part of the conversation.
//! Updates report all later events, including the end of the turn.

use std::sync::Arc;

use protocol::acp::{self, v2};
use protocol::table::{Reply, RequestContext};
use tokio_util::sync::CancellationToken;

use super::{content, line};
use crate::error::RequestError;
use crate::prompt::{self, TurnStream};
use crate::server::Server;
use session::SessionHandle;

/// Handles a prompt (`session/prompt`).
pub(super) fn prompt(
    server: &Arc<Server>,
    cx: RequestContext,
    acp::PromptV2(request): acp::PromptV2,
) -> Reply<v2::PromptResponse> {
    let key = request.idempotency_key.as_ref();
    let meta_parts = prompt::meta_parts(request.meta.as_ref(), key.map(v2::IdempotencyKey::as_str));
    let prompt_blocks = request.prompt.clone();
    let id = request.session_id;
    let decode = || {
        let mut parts = content::decode_parts(request.prompt)?;
        parts.extend(meta_parts?);
        Ok(parts)
    };
    let Some(place) = server.queue_if_busy(&id.0) else {
        return match decode().and_then(|parts| prompt::queue(server, &id.0, parts)) {
            Err(refusal) => Reply::now(Err(refusal.into())),
            Ok(queued) => {
                let server = server.clone();
                Reply::later(async move {
                    Ok(respond_when_inserted(server, queued, prompt_blocks, &cx).await?)
                })
            }
        };
    };
    // The session is still being opened: the client sent the prompt together with the resume.
    let server = server.clone();
    Reply::later(async move {
        let queued = prompt::queue_when_open(&server, &id.0, decode, place, &cx.cancelled)
            .await?
            .ok_or(RequestError::Cancelled)?;
        Ok(respond_when_inserted(server, queued, prompt_blocks, &cx).await?)
    })
}

/// Waits until the prompt is part of the conversation, and returns the response. The updates of the
/// turn are sent after it.
async fn respond_when_inserted(
    server: Arc<Server>,
    (session, turn): (SessionHandle, Option<TurnStream>),
    prompt_blocks: Vec<v2::ContentBlock>,
    cx: &RequestContext,
) -> Result<v2::PromptResponse, RequestError> {
    let empty = || RequestError::Invalid("the prompt is empty".into());
    let mut turn = turn.ok_or_else(empty)?;
    let id = turn.send_until_inserted(&cx.cancelled).await?;
    let message = v2::UserMessage::new(id.share()).content(prompt_blocks);
    cx.after(async move {
        line::send(
            &server.peer,
            &session.id,
            v2::SessionUpdate::UserMessage(message),
        )
        .await;
        // The request has been answered, so that from now on only the session can be cancelled. The
        // last update of the turn reports its outcome.
        turn.send_until_ended(&CancellationToken::new()).await.ok();
    });
    Ok(v2::PromptResponse::new(id.share()))
}
