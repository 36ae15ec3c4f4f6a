//! A long stored session, generated.

use std::path::Path;

use base::environment::Timestamp;
use base::id::{CallId, MessageId, PartId, SessionId};
use serde_json::{Map, json};
use store::{Record, Store};
use transcript::{
    Assistant, Call, CallState, Compaction, Completed, Content, Finish, Message, ModelRef, Part,
    Role, Text, ToolKind, Usage, User,
};

use crate::runtime::block_on;

/// Writes a session of so many messages: a prompt, and an answer with a call that has so many bytes
/// of output. As with every conversation of that size, nearly all of it was summarised.
pub fn long(data: &Path, cwd: &Path, id: &SessionId, messages: usize, bytes: usize) {
    let mut random = fastrand::Rng::with_seed(1);
    block_on(async {
        let store = Store::start(data);
        let record = Record {
            title: Some("A long one".into()),
            ..Record::new(id.clone(), cwd.into(), Timestamp(1))
        };
        store.create(&record).await.unwrap();
        store.write_record(&record).await;
        // A hundred messages before the end.
        let summary = messages.saturating_sub(100) / 2 * 2;
        for number in 0..messages {
            let message = message(number, summary, bytes, &mut random);
            add(&store, id, &message).await;
            if number % 500 == 0 {
                store.flush(id).await.unwrap();
            }
        }
        store.stop().await;
    });
}

/// Writes so many sessions of one message, the newest first.
// Only the tests that count what is read use it.
#[cfg(target_os = "linux")]
pub fn many(data: &Path, cwd: &Path, sessions: usize) {
    let mut random = fastrand::Rng::with_seed(1);
    block_on(async {
        let store = Store::start(data);
        for number in 0..sessions {
            let id = SessionId::new(format!("ses_{number:016x}aaaaaaaaaa"));
            let time = Timestamp(u64::try_from(1_000_000 - number).unwrap());
            let record = Record {
                title: Some(format!("Number {number}")),
                ..Record::new(id.clone(), cwd.into(), time)
            };
            store.create(&record).await.unwrap();
            store.write_record(&record).await;
            let message = message(0, 0, 10, &mut random);
            add(&store, &id, &message).await;
            store.flush(&id).await.unwrap();
        }
        store.stop().await;
    });
}

async fn add(store: &Store, id: &SessionId, message: &Message) {
    store.write_message(id, message).await;
    for part in &message.parts {
        store.write_part(id, &message.id, part).await;
    }
}

fn message(number: usize, summary: usize, bytes: usize, random: &mut fastrand::Rng) -> Message {
    let model = ModelRef {
        provider: "p".into(),
        model: "m".into(),
        effort: None,
    };
    let name = |number: usize| MessageId::new(format!("msg_{number:016x}aaaaaaaaaa"));
    let part = |n: usize, content| Part {
        id: PartId::new(format!("prt_{number:016x}{n}aaaaaaaaa")),
        content,
    };
    let text = |text: String| {
        Content::Text(Text {
            text: text.into(),
            ..Text::default()
        })
    };
    let (role, parts) = if number.is_multiple_of(2) {
        let content = if number == summary {
            Content::Compaction(Compaction {
                auto: true,
                before: 9,
                after: 1,
                ..Compaction::default()
            })
        } else {
            text(format!(
                "Prompt {number}: look at it again, and say what is in it."
            ))
        };
        (
            Role::User(User {
                agent: "build".into(),
                model,
            }),
            vec![part(0, content)],
        )
    } else {
        let is_summary = number == summary + 1;
        let assistant = Assistant {
            parent: name(number - 1),
            agent: "build".into(),
            model,
            finish: Some(Finish::Stop),
            fault: None,
            summary: is_summary,
            usage: Usage {
                input: 1_000,
                output: 200,
                ..Usage::default()
            },
            cost: None,
            completed: Some(Timestamp(2)),
        };
        let mut output = String::with_capacity(bytes + 64);
        while output.len() < 2 * bytes && !is_summary {
            output.push_str(&format!(
                "{:06}| {:x} words of a file\n",
                output.len(),
                random.u64(..)
            ));
        }
        let call = Call {
            call: CallId::new(format!("call_{number:016x}aaaaaaaaaa")),
            provider_id: None,
            tool: "read".into(),
            input: json!({ "filePath": "a.txt" }).into(),
            kind: ToolKind::Read,
            title: "Read a.txt".into(),
            locations: Vec::new(),
            state: CallState::Completed(Completed {
                output: output.into(),
                ..Completed::default()
            }),
            provider: Map::new(),
        };
        let said = part(
            1,
            text(format!("In message {number} there is nothing new.")),
        );
        let parts = if is_summary {
            vec![said]
        } else {
            vec![part(0, Content::Tool(call)), said]
        };
        (Role::Assistant(assistant), parts)
    };
    Message {
        id: name(number),
        created: Timestamp(1),
        role,
        parts,
    }
}
