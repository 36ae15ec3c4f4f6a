//! The conversation as OpenCode's client shows it (`session.messages`). It is maintained as the
//! history grows, because a plugin may ask at any time and each step only appends.

use serde_json::{Value, json};

use base::id::MessageId;
use base::text;
use transcript::{Call, CallState, Content, Message, Role};

/// The number of messages that are retained, the last ones.
const MAX_MESSAGES: usize = 200;
/// The longest text of a part, in bytes.
const MAX_TEXT_BYTES: usize = 20_000;

/// The messages in the form for plugins.
#[derive(Debug, Default)]
pub(super) struct Conversation(Vec<(MessageId, Value)>);

impl Conversation {
    /// Adds new messages. The last two known ones may have grown, so they are replaced.
    pub(super) fn update(&mut self, session: &str, history: &[Message]) {
        let history = &history[history.len().saturating_sub(MAX_MESSAGES)..];
        let first = history.first().map(|message| &message.id);
        let gone = self
            .0
            .iter()
            .position(|(id, _)| Some(id) == first)
            .unwrap_or(self.0.len());
        self.0.drain(..gone);
        let same = self
            .0
            .iter()
            .zip(history)
            .take_while(|((id, _), message)| *id == message.id)
            .count();
        let same = same.min(history.len().saturating_sub(2));
        self.0.truncate(same);
        self.0.extend(
            history[same..]
                .iter()
                .map(|message| (message.id.clone(), shown(session, message))),
        );
    }

    /// Returns the last messages, at most `limit` of them.
    pub(super) fn messages(&self, limit: usize) -> Value {
        self.0[self.0.len().saturating_sub(limit)..]
            .iter()
            .map(|(_, shown)| shown.clone())
            .collect()
    }

    pub(super) fn message(&self, id: &str) -> Option<Value> {
        self.0
            .iter()
            .find(|(own, _)| own.as_str() == id)
            .map(|(_, shown)| shown.clone())
    }

    /// Returns the first line of the user's first message.
    pub(super) fn title(&self) -> String {
        let text = self
            .0
            .iter()
            .find_map(|(_, shown)| shown.pointer("/parts/0/text")?.as_str());
        text::cut_chars(
            &text::title(
                text.and_then(|text| text.lines().next())
                    .unwrap_or_default(),
            ),
            50,
        )
    }
}

fn shown(session: &str, message: &Message) -> Value {
    let parts = message.parts.iter().filter_map(|part| {
        let mut shown = part_of(&part.content)?;
        shown["id"] = part.id.as_str().into();
        shown["sessionID"] = session.into();
        shown["messageID"] = message.id.as_str().into();
        Some(shown)
    });
    let parts: Vec<Value> = parts.collect();
    let mut info = json!({ "id": message.id.as_str(), "sessionID": session, "time": { "created": message.created.0 } });
    match &message.role {
        Role::User(user) => {
            info["role"] = "user".into();
            info["agent"] = user.agent.as_str().into();
            info["model"] =
                json!({ "providerID": user.model.provider, "modelID": user.model.model });
        }
        Role::Assistant(own) => {
            info["role"] = "assistant".into();
            info["parentID"] = own.parent.as_str().into();
            info["agent"] = own.agent.as_str().into();
            info["mode"] = own.agent.as_str().into();
            info["providerID"] = own.model.provider.as_str().into();
            info["modelID"] = own.model.model.as_str().into();
            info["cost"] = own.cost.unwrap_or_default().into();
            info["tokens"] = json!({
                "input": own.usage.input, "output": own.usage.output, "reasoning": own.usage.reasoning,
                "cache": { "read": own.usage.cache_read, "write": own.usage.cache_write },
            });
            if let Some(completed) = own.completed {
                info["time"]["completed"] = completed.0.into();
            }
            if let Some(fault) = &own.fault {
                info["error"] =
                    json!({ "name": "UnknownError", "data": { "message": fault.message } });
            }
        }
    }
    json!({ "info": info, "parts": parts })
}

fn part_of(content: &Content) -> Option<Value> {
    let cut = |text: &str| text::head(text, MAX_TEXT_BYTES).to_owned();
    Some(match content {
        Content::Text(text) => {
            json!({ "type": "text", "text": cut(&text.text), "synthetic": text.synthetic })
        }
        Content::Reasoning(reasoning) => {
            json!({ "type": "reasoning", "text": cut(&reasoning.text) })
        }
        Content::File(file) => {
            json!({ "type": "file", "mime": file.mime, "filename": file.name, "url": file.uri })
        }
        Content::Tool(call) => {
            json!({ "type": "tool", "callID": call.call.as_str(), "tool": call.tool, "state": state(call) })
        }
        _ => return None,
    })
}

fn state(call: &Call) -> Value {
    let time = json!({ "start": 0, "end": 0 });
    match &call.state {
        CallState::Pending => json!({ "status": "pending", "input": *call.input, "raw": "" }),
        CallState::Running { .. } => {
            json!({ "status": "running", "input": *call.input, "title": call.title, "time": time })
        }
        CallState::Completed(done) => json!({
            "status": "completed", "input": *call.input, "output": text::head(&done.output, MAX_TEXT_BYTES), "title": call.title,
            "metadata": {}, "time": time,
        }),
        CallState::Failed { error, .. } => {
            json!({ "status": "error", "input": *call.input, "error": text::head(error, MAX_TEXT_BYTES), "time": time })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::environment::Timestamp;
    use base::id::PartId;
    use transcript::{ModelRef, Part, Text, User};

    fn user_message(id: &str, text: &str) -> Message {
        let model = ModelRef {
            provider: "p".into(),
            model: "m".into(),
            effort: None,
        };
        let text = Content::Text(Text {
            text: text.into(),
            ..Text::default()
        });
        Message {
            id: MessageId::new(id),
            created: Timestamp(1),
            role: Role::User(User {
                agent: "build".into(),
                model,
            }),
            parts: vec![Part {
                id: PartId::new(format!("prt_{id}")),
                content: text,
            }],
        }
    }

    #[test]
    fn conversation_follows_a_history_that_grows_and_is_undone() {
        let mut conversation = Conversation::default();
        let texts = |conversation: &Conversation| -> Vec<String> {
            let all = conversation.messages(usize::MAX);
            all.as_array()
                .unwrap()
                .iter()
                .map(|one| one["parts"][0]["text"].as_str().unwrap().to_owned())
                .collect()
        };
        let mut history = vec![
            user_message("a", "one"),
            user_message("b", "two"),
            user_message("c", "th"),
        ];
        conversation.update("s", &history);
        history[2] = user_message("c", "three");
        history.push(user_message("d", "four"));
        conversation.update("s", &history);
        assert_eq!(texts(&conversation), ["one", "two", "three", "four"]);
        history.truncate(1);
        history.push(user_message("e", "five"));
        conversation.update("s", &history);
        assert_eq!(
            (texts(&conversation), conversation.title()),
            (vec!["one".into(), "five".into()], "one".into())
        );
        assert_eq!(conversation.message("e").unwrap()["info"]["role"], "user");
        let long: Vec<Message> = (0..MAX_MESSAGES + 10)
            .map(|n| user_message(&format!("m{n}"), "x"))
            .collect();
        conversation.update("s", &long);
        assert_eq!(conversation.0.len(), MAX_MESSAGES);
        conversation.update("s", &[long, vec![user_message("z", "last")]].concat());
        assert_eq!(
            (conversation.0.len(), texts(&conversation).pop()),
            (MAX_MESSAGES, Some("last".into()))
        );
    }
}
