//! Answers the input requests of the newest protocol. Its servers send no requests of their own. A
//! server that needs input during a call answers the call with input requests; the call is then sent
//! again with the answers.

use std::time::Duration;

use rmcp::model::{ClientRequest, ErrorData, InputRequest, InputRequiredResult, InputResponses};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::connection::McpConnection;
use super::{answer, sample};

/// The number of times that one call may be repeated.
pub(super) const MAX_ROUNDS: usize = 16;
/// The delay before a repetition without new input.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);

/// Answers the input requests of a server, and adds the answers to the request.
///
/// # Errors
/// Returns an error if an input request cannot be answered.
pub(super) async fn answer(
    connection: &McpConnection,
    wanted: InputRequiredResult,
    request: &mut ClientRequest,
    cancelled: &CancellationToken,
) -> Result<(), ErrorData> {
    let mut answers = InputResponses::new();
    for (key, request) in wanted.input_requests.unwrap_or_default() {
        let answer = match request {
            InputRequest::Elicitation(request) => {
                value(answer::elicit(connection, request.params, cancelled).await?)?
            }
            InputRequest::CreateMessage(request) => {
                value(sample::sample(connection, request.params, cancelled).await?)?
            }
            InputRequest::ListRoots(_) => value(answer::roots(connection))?,
            _ => {
                return Err(ErrorData::invalid_params(
                    "it requests something that adjutant does not know",
                    None,
                ));
            }
        };
        answers.insert(key, answer);
    }
    if answers.is_empty() {
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
    let answers = (!answers.is_empty()).then_some(answers);
    let state = wanted.request_state;
    match request {
        ClientRequest::CallToolRequest(request) => {
            request.params.input_responses = answers;
            request.params.request_state = state;
        }
        ClientRequest::GetPromptRequest(request) => {
            request.params.input_responses = answers;
            request.params.request_state = state;
        }
        ClientRequest::ReadResourceRequest(request) => {
            request.params.input_responses = answers;
            request.params.request_state = state;
        }
        _ => {
            return Err(ErrorData::invalid_request(
                "nothing can be asked for this",
                None,
            ));
        }
    }
    Ok(())
}

fn value(answer: impl Serialize) -> Result<Value, ErrorData> {
    serde_json::to_value(answer).map_err(|e| ErrorData::internal_error(e.to_string(), None))
}
