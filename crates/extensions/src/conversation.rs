//! [`Conversation`], the last messages of a session in OpenCode's format, for plugins that ask
//! (`session.messages`). It is updated as the history grows, because a plugin may ask at any time.

use serde_json::{Value, json};

use super::opencode_format::{self, MessageContext};
use base::id::MessageId;
use base::text;
use transcript::Message;

/// The maximum number of messages. The oldest are dropped.
const MAX_MESSAGES: usize = 200;

/// The messages in the form for plugins.
#[derive(Debug, Default)]
pub(super) struct Conversation(Vec<(MessageId, Value)>);

impl Conversation {
    /// Adds new messages. The last two known ones may have grown, so they are replaced.
    pub(super) fn update(&mut self, context: &MessageContext<'_>, history: &[Message]) {
        let history = &history[history.len().saturating_sub(MAX_MESSAGES)..];
        let first = history.first().map(|message| &message.id);
        let dropped = self
            .0
            .iter()
            .position(|(id, _)| Some(id) == first)
            .unwrap_or(self.0.len());
        self.0.drain(..dropped);
        let unchanged = self
            .0
            .iter()
            .zip(history)
            .take_while(|((id, _), message)| *id == message.id)
            .count();
        let unchanged = unchanged.min(history.len().saturating_sub(2));
        self.0.truncate(unchanged);
        self.0.extend(
            history[unchanged..]
                .iter()
                .map(|message| (message.id.clone(), encode(context, message))),
        );
    }

    /// Returns the last messages, at most `limit` of them.
    pub(super) fn messages(&self, limit: usize) -> Value {
        self.0[self.0.len().saturating_sub(limit)..]
            .iter()
            .map(|(_, shown)| shown.clone())
            .collect()
    }

    /// Returns the message with an id.
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

/// Encodes a message with its parts.
fn encode(context: &MessageContext<'_>, message: &Message) -> Value {
    let parts = message.parts.iter().filter_map(|part| {
        opencode_format::encode_part(context.session, &message.id, part, message.created)
    });
    let [start, end] = opencode_format::step_parts(context.session, message);
    let parts: Vec<Value> = start.into_iter().chain(parts).chain(end).collect();
    json!({ "info": opencode_format::encode_message(context, message), "parts": parts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::environment::Timestamp;
    use base::id::PartId;
    use transcript::{Content, ModelRef, Part, Role, Text, User};

    const PLACE: MessageContext<'static> = MessageContext {
        session: "s",
        cwd: "/w",
        root: "/w",
    };

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
                .map(|message| message["parts"][0]["text"].as_str().unwrap().to_owned())
                .collect()
        };
        let mut history = vec![
            user_message("a", "one"),
            user_message("b", "two"),
            user_message("c", "th"),
        ];
        conversation.update(&PLACE, &history);
        history[2] = user_message("c", "three");
        history.push(user_message("d", "four"));
        conversation.update(&PLACE, &history);
        assert_eq!(texts(&conversation), ["one", "two", "three", "four"]);
        history.truncate(1);
        history.push(user_message("e", "five"));
        conversation.update(&PLACE, &history);
        assert_eq!(
            (texts(&conversation), conversation.title()),
            (vec!["one".into(), "five".into()], "one".into())
        );
        assert_eq!(conversation.message("e").unwrap()["info"]["role"], "user");
        let long: Vec<Message> = (0..MAX_MESSAGES + 10)
            .map(|n| user_message(&format!("m{n}"), "x"))
            .collect();
        conversation.update(&PLACE, &long);
        assert_eq!(conversation.0.len(), MAX_MESSAGES);
        conversation.update(&PLACE, &[long, vec![user_message("z", "last")]].concat());
        assert_eq!(
            (conversation.0.len(), texts(&conversation).pop()),
            (MAX_MESSAGES, Some("last".into()))
        );
    }
}
