//! `session/prompt` of version 1: converts blocks to parts and the outcome to a stop reason. The response
//! follows the end of the turn.

use std::sync::Arc;

use protocol::acp::{self, v1};
use protocol::rpc;
use protocol::table::{Reply, RequestContext};

use super::requests::encode_usage;
use super::{content, line};
use crate::error::RequestError;
use crate::prompt::{self, TurnStream};
use crate::server::Server;
use session::SessionHandle;
use session::turn::TurnOutcome;
use transcript::{Content, FaultKind};

/// Handles a prompt (`session/prompt`).
pub(super) fn prompt(
    server: &Arc<Server>,
    cx: RequestContext,
    acp::Prompt(request): acp::Prompt,
) -> Reply<v1::PromptResponse> {
    let Some(place) = server.queue_if_busy(&request.session_id.0) else {
        let id = request.session_id.clone();
        return match decode(request).and_then(|parts| prompt::queue(server, &id.0, parts)) {
            Err(refusal) => Reply::now(Err(refusal.into())),
            Ok((session, turn)) => {
                let server = server.clone();
                Reply::later(async move { send_turn(&server, &session, turn, &cx).await })
            }
        };
    };
    // The session is still being loaded: the client sent the prompt together with the load.
    let server = server.clone();
    Reply::later(async move {
        let id = request.session_id.clone();
        let decode = || decode(request);
        match prompt::queue_when_open(&server, &id.0, decode, place, &cx.cancelled).await? {
            Some((session, turn)) => send_turn(&server, &session, turn, &cx).await,
            None => Ok(v1::PromptResponse::new(v1::StopReason::Cancelled)),
        }
    })
}

fn decode(request: v1::PromptRequest) -> Result<Vec<Content>, RequestError> {
    let meta_parts = prompt::meta_parts(request.meta.as_ref(), None)?;
    let mut parts = content::decode_parts(request.prompt)?;
    parts.extend(meta_parts);
    Ok(parts)
}

/// Sends the turn until it has ended, and returns the response.
async fn send_turn(
    server: &Server,
    session: &SessionHandle,
    turn: Option<TurnStream>,
    cx: &RequestContext,
) -> Result<v1::PromptResponse, rpc::Error> {
    let Some(turn) = turn else {
        // Some clients send an empty prompt after a turn without visible output. They would repeat
        // it if the answer had no output either.
        let notice = v1::ContentChunk::new("The prompt was empty.".into());
        line::send(
            &server.peer,
            &session.id,
            v1::SessionUpdate::AgentMessageChunk(notice),
        )
        .await;
        return Ok(v1::PromptResponse::new(v1::StopReason::EndTurn));
    };
    let (ended, guard) = turn.send_until_ended(&cx.cancelled).await?;
    cx.after(async move { drop(guard) });
    let meta = ended.meta();
    let used = encode_usage(&ended.result.usage);
    Ok(response(ended.result.outcome)?.usage(used).meta(meta))
}

/// Converts the outcome of a turn to the response.
fn response(outcome: TurnOutcome) -> Result<v1::PromptResponse, rpc::Error> {
    let reason = match outcome {
        // A steering message has a turn and a response of its own.
        TurnOutcome::Ended
        | TurnOutcome::NotDone
        | TurnOutcome::Rejected
        | TurnOutcome::Steered => v1::StopReason::EndTurn,
        TurnOutcome::Cancelled => v1::StopReason::Cancelled,
        TurnOutcome::Refused => v1::StopReason::Refusal,
        TurnOutcome::MaxTokens => v1::StopReason::MaxTokens,
        TurnOutcome::StepLimit => v1::StopReason::MaxTurnRequests,
        TurnOutcome::Failed(fault) if fault.kind == FaultKind::Interrupted => {
            v1::StopReason::Cancelled
        }
        TurnOutcome::Failed(fault) => return Err(RequestError::from(fault).into()),
    };
    Ok(v1::PromptResponse::new(reason))
}
