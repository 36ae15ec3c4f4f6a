//! session/prompt: converts blocks to parts and the outcome to a stop reason. The response follows
//! the end of the turn.

use std::sync::Arc;

use protocol::acp::v1;
use protocol::rpc;
use protocol::table::{Cx, Reply};

use super::{content, line};
use crate::error::Refusal;
use crate::meta::{self, SCHEMA};
use crate::prompt::{self, Ended, IncomingPrompt, PromptTurn};
use crate::server::Server;
use session::Handle;
use session::turn::Outcome;
use transcript::FaultKind;

/// session/prompt.
pub(super) fn prompt(
    server: &Arc<Server>,
    cx: Cx,
    request: v1::PromptRequest,
) -> Reply<v1::PromptResponse> {
    let Some(wait) = server.wait(&request.session_id.0) else {
        return match decode(request).and_then(|prompt| prompt::queue(server, prompt)) {
            Err(refusal) => Reply::now(Err(refusal.into())),
            Ok((session, turn)) => {
                let server = server.clone();
                Reply::later(async move { answer(&server, &session, turn, &cx).await })
            }
        };
    };
    // The session is still being loaded: the client sent the prompt together with the load.
    let server = server.clone();
    Reply::later(async move {
        match prompt::queue_when_open(&server, || decode(request), wait, &cx.cancelled).await? {
            Some((session, turn)) => answer(&server, &session, turn, &cx).await,
            None => Ok(v1::PromptResponse::new(v1::StopReason::Cancelled)),
        }
    })
}

fn decode(request: v1::PromptRequest) -> Result<IncomingPrompt, Refusal> {
    let schema = meta::of_ours(request.meta.as_ref(), SCHEMA).cloned();
    let options = prompt::options(request.meta.as_ref())?;
    Ok(IncomingPrompt {
        session: request.session_id.0.to_string(),
        parts: content::parts(request.prompt)?,
        options,
        schema,
    })
}

async fn answer(
    server: &Server,
    session: &Handle,
    turn: Option<PromptTurn>,
    cx: &Cx,
) -> Result<v1::PromptResponse, rpc::Error> {
    let Some(turn) = turn else {
        // Some clients send an empty prompt after a turn without visible output. They would repeat
        // it if the answer had no output either.
        let words = v1::ContentChunk::new("The prompt was empty.".into());
        line::send(
            &server.peer,
            &session.id,
            v1::SessionUpdate::AgentMessageChunk(words),
        )
        .await;
        return Ok(v1::PromptResponse::new(v1::StopReason::EndTurn));
    };
    let Ended {
        result,
        told: reported,
    } = turn.ended(&cx.cancelled).await?;
    cx.after(async move { drop(reported) });
    let meta = result.meta();
    Ok(response(result.outcome)?.meta(meta))
}

fn response(outcome: Outcome) -> Result<v1::PromptResponse, rpc::Error> {
    let reason = match outcome {
        // A steering message has a turn and a response of its own.
        Outcome::Ended | Outcome::NotDone | Outcome::Rejected | Outcome::Steered => {
            v1::StopReason::EndTurn
        }
        Outcome::Cancelled => v1::StopReason::Cancelled,
        Outcome::Refused => v1::StopReason::Refusal,
        Outcome::MaxTokens => v1::StopReason::MaxTokens,
        Outcome::StepLimit => v1::StopReason::MaxTurnRequests,
        Outcome::Failed(fault) if fault.kind == FaultKind::Interrupted => v1::StopReason::Cancelled,
        Outcome::Failed(fault) => return Err(Refusal::from(fault).into()),
    };
    Ok(v1::PromptResponse::new(reason))
}
