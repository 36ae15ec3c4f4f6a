//! The newest protocol has no requests of servers: what one wants to know it answers with, and the call is made again
//! with the answers.

use std::time::Duration;

use rmcp::model::{ClientRequest, ErrorData, InputRequest, InputRequiredResult, InputResponses};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::link::McpLink;
use super::{answer, sample};

/// How often one call may be made again.
pub(super) const ROUNDS: usize = 16;
/// How long is waited where a server only wants to be asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers what a server wants to know, and puts the answers into the request.
///
/// # Errors
/// What it wants cannot be answered.
pub(super) async fn fill(
    link: &McpLink,
    wanted: InputRequiredResult,
    request: &mut ClientRequest,
    cancelled: &CancellationToken,
) -> Result<(), ErrorData> {
    let mut answers = InputResponses::new();
    for (key, asked) in wanted.input_requests.unwrap_or_default() {
        let said = match asked {
            InputRequest::Elicitation(asked) => value(answer::elicit(link, asked.params, cancelled).await?)?,
            InputRequest::CreateMessage(asked) => value(sample::sample(link, asked.params, cancelled).await?)?,
            InputRequest::ListRoots(_) => value(answer::roots(link))?,
            _ => return Err(ErrorData::invalid_params("it wants something that is not known here", None)),
        };
        answers.insert(key, said);
    }
    if answers.is_empty() {
        tokio::time::sleep(PAUSE).await;
    }
    let (answers, state) = ((!answers.is_empty()).then_some(answers), wanted.request_state);
    match request {
        ClientRequest::CallToolRequest(request) => {
            (request.params.input_responses, request.params.request_state) = (answers, state);
        }
        ClientRequest::GetPromptRequest(request) => {
            (request.params.input_responses, request.params.request_state) = (answers, state);
        }
        ClientRequest::ReadResourceRequest(request) => {
            (request.params.input_responses, request.params.request_state) = (answers, state);
        }
        _ => return Err(ErrorData::invalid_request("nothing can be asked for this", None)),
    }
    Ok(())
}

fn value(said: impl Serialize) -> Result<Value, ErrorData> {
    serde_json::to_value(said).map_err(|e| ErrorData::internal_error(e.to_string(), None))
}
