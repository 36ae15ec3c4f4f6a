//! Sampling: a server sends a request to a model. Its settings must allow it, and the user sees and
//! permits each request.

#![expect(
    deprecated,
    reason = "a draft drops sampling; the servers of today have it"
)]

use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ErrorCode, ErrorData, Role, SamplingMessage,
    SamplingMessageContentBlock,
};
use tokio_util::sync::CancellationToken;

use super::connection::McpConnection;
use base::text;
use events::SampleRequest;
use providers::request::{Attachment, ModelInput, ModelMessage, ModelOutput};

/// The largest request, in bytes.
const MAX_REQUEST_BYTES: usize = 256 << 10;
/// The part of it that is shown, in characters; the total is stated if it is longer.
const MAX_SHOWN_CHARS: usize = 20_000;

/// Sends a server's request to the session's model.
///
/// # Errors
/// Returns an error if the settings do not allow it, the user does not permit it, or there is no
/// answer.
pub(super) async fn sample(
    connection: &McpConnection,
    params: CreateMessageRequestParams,
    withdrawn: &CancellationToken,
) -> Result<CreateMessageResult, ErrorData> {
    let refuse = |why: &str| ErrorData::invalid_request(why.to_owned(), None);
    if !connection.sampling {
        return Err(refuse("its entry in the settings does not allow sampling"));
    }
    let asker = if connection.facts.is_attended {
        connection.current_asker()
    } else {
        None
    };
    let Some(asker) = asker else {
        return Err(refuse("no user can be asked now"));
    };
    if params.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err(ErrorData::invalid_params(
            "tools are not offered for sampling",
            None,
        ));
    }
    let system = params
        .system_prompt
        .filter(|system| !system.trim().is_empty());
    let (messages, shown) = decode_messages(system.as_deref(), params.messages)
        .map_err(|why| ErrorData::invalid_params(why, None))?;
    let name = text::title(&connection.name);
    let title = format!("{name}: ask the model");
    let wants = format!(
        "let the MCP server {name} ask your model this, for {} tokens at most",
        params.max_tokens
    );
    // The time that the user or the model takes does not count against the time limit of the call.
    let Some(_asks) = connection.register_question() else {
        return Err(refuse("too many questions wait for the user"));
    };
    let answer = async {
        let input = serde_json::json!({"maxTokens": params.max_tokens, "question": shown});
        if !asker.permit(title, input, wants, shown).await {
            return Err(ErrorData::new(ErrorCode(-1), "the user rejected it", None));
        }
        let max_output = u64::from(params.max_tokens);
        let temperature = params.temperature.map(f64::from);
        let wanted = |reply| SampleRequest {
            system,
            messages,
            max_output,
            search: false,
            temperature,
            reply,
        };
        asker
            .sample(wanted)
            .await
            .map_err(|why| ErrorData::internal_error(why, None))
    };
    let sample = tokio::select! {
        answer = answer => answer?,
        () = withdrawn.cancelled() => return Err(refuse("withdrawn")),
    };
    let message = SamplingMessage::new(
        Role::Assistant,
        SamplingMessageContentBlock::text(sample.text),
    );
    let end = if sample.cut {
        CreateMessageResult::STOP_REASON_END_MAX_TOKEN
    } else {
        CreateMessageResult::STOP_REASON_END_TURN
    };
    Ok(CreateMessageResult::new(message, sample.model).with_stop_reason(end))
}

/// Returns the messages for the model, and the text shown to the user.
fn decode_messages(
    system: Option<&str>,
    request: Vec<SamplingMessage>,
) -> Result<(Vec<ModelMessage>, String), String> {
    let mut shown: Vec<String> = system
        .map(|system| format!("System: {system}"))
        .into_iter()
        .collect();
    let mut size = system.map_or(0, str::len);
    let mut messages: Vec<ModelMessage> = Vec::new();
    for message in request {
        let user = message.role == Role::User;
        for part in message.content.into_vec() {
            let input = match part {
                SamplingMessageContentBlock::Text(part) => {
                    size += part.text.len();
                    shown.push(format!(
                        "{}: {}",
                        if user { "User" } else { "Assistant" },
                        part.text
                    ));
                    ModelInput::Text(part.text.into())
                }
                SamplingMessageContentBlock::Image(image) if user => {
                    size += image.data.len();
                    shown.push(format!(
                        "User: [{}, {} bytes in base64]",
                        image.mime_type,
                        image.data.len()
                    ));
                    ModelInput::File(Attachment {
                        mime: image.mime_type,
                        data: image.data.into(),
                        name: None,
                    })
                }
                _ => return Err("only texts and images can be asked about".into()),
            };
            append_part(&mut messages, user, input);
        }
    }
    match messages.first() {
        None => Err("nothing is asked".into()),
        Some(ModelMessage::User(_)) if size <= MAX_REQUEST_BYTES => {
            let whole = shown.join("\n\n");
            let mut shown = text::cut_chars(&whole, MAX_SHOWN_CHARS);
            if shown.len() < whole.len() {
                shown = format!("{shown}\n({} characters in all)", whole.chars().count());
            }
            Ok((messages, shown))
        }
        Some(ModelMessage::User(_)) => Err(format!(
            "more than {} KiB are asked at once",
            MAX_REQUEST_BYTES >> 10
        )),
        Some(_) => Err("the first message must be the user's".into()),
    }
}

/// Adds a part to the last message if that has the same role, otherwise as a new message.
fn append_part(messages: &mut Vec<ModelMessage>, user: bool, part: ModelInput) {
    let text = |part: ModelInput| match part {
        ModelInput::Text(text) => ModelOutput::Text {
            text: text.into(),
            provider: serde_json::Map::new(),
        },
        ModelInput::File(file) => ModelOutput::Text {
            text: format!("[{}]", file.mime),
            provider: serde_json::Map::new(),
        },
    };
    match (messages.last_mut(), user) {
        (Some(ModelMessage::User(parts)), true) => parts.push(part),
        (Some(ModelMessage::Assistant(parts)), false) => parts.push(text(part)),
        (_, true) => messages.push(ModelMessage::User(vec![part])),
        (_, false) => messages.push(ModelMessage::Assistant(vec![text(part)])),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(messages: Value) -> Result<(usize, String), String> {
        let (messages, shown) =
            decode_messages(Some("Be brief."), serde_json::from_value(messages).unwrap())?;
        Ok((messages.len(), shown))
    }

    #[test]
    fn request_is_shown_in_full_or_refused() {
        let text = |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
        let (n, question) = shown(json!([
            text("user", "a"),
            text("user", "b"),
            text("assistant", "c")
        ]))
        .unwrap();
        assert_eq!(
            (n, question.as_str()),
            (2, "System: Be brief.\n\nUser: a\n\nUser: b\n\nAssistant: c")
        );
        let image = json!({"role": "user", "content": {"type": "image", "mimeType": "image/png", "data": "AAAA"}});
        assert!(
            shown(json!([image]))
                .unwrap()
                .1
                .ends_with("User: [image/png, 4 bytes in base64]")
        );
        let (_, long) = shown(json!([text("user", &"x".repeat(30_000))])).unwrap();
        assert!(
            long.ends_with("characters in all)"),
            "{}",
            &long[long.len() - 60..]
        );
        for (messages, why) in [
            (json!([]), "nothing is asked"),
            (
                json!([text("assistant", "a")]),
                "the first message must be the user's",
            ),
            (
                json!([text("user", &"x".repeat(300 << 10))]),
                "more than 256 KiB",
            ),
            (
                json!([{"role": "user", "content": {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}}]),
                "only texts and images",
            ),
        ] {
            assert!(shown(messages).unwrap_err().starts_with(why), "{why}");
        }
    }
}
