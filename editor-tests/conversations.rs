//! Conversations that a page cannot express: a client that does not read, a session with ten
//! thousand messages. Each names its row of `data/jsonrpc_cases.csv`.

use std::time::{Duration, Instant};

use base::id::{MessageId, PartId, SessionId};
use serde_json::{Value, json};
use store::Store;
use transcript::{Content, Message, ModelRef, Part, Role, Text, User};

use crate::client::Client;
use crate::editor::ReadPace;
use crate::model::{self, Model};
use crate::project::Project;
use crate::runtime::block_on;
use crate::wire::memory;

/// Names, which begin with the row's id, and functions of the tests.
pub const ALL: [(&str, fn()); 3] = [
    (
        "S18 an editor that never reads",
        s18_an_editor_that_never_reads,
    ),
    (
        "S19 an editor that reads slowly",
        s19_an_editor_that_reads_slowly,
    ),
    (
        "S22 a session of ten thousand messages",
        s22_a_session_of_ten_thousand_messages,
    ),
];

fn s18_an_editor_that_never_reads() {
    flood(ReadPace::Nothing);
}

fn s19_an_editor_that_reads_slowly() {
    flood(ReadPace::Slow);
}

/// Streams 40 MiB from the model while the client does not read. The agent must stop reading from
/// the model rather than buffer all of it, and must still receive the cancel.
fn flood(pace: ReadPace) {
    let words = "the same words over and over again, ".repeat(28);
    let script = format!("text: {words}\n").repeat(40 << 10) + "\n---\ntext: Here I am.\n";
    let model = Model::start(model::script(&script).unwrap());
    let project = Project::new();
    project.provider(&model.base(), &Value::Null);
    let mut client = Client::new(project);
    let session = client.open();
    let before = memory(client.editor.pid());
    client.editor.set_read_pace(pace);
    client.prompt(2, &session, "Tell me everything.");
    let mut most = 0;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        // A measurement, not a synchronisation: whatever happens in these two seconds must be
        // bounded.
        std::thread::sleep(Duration::from_millis(50));
        most = most.max(memory(client.editor.pid()));
    }
    // The text waits in a queue, in addition to the history and its part that is being written.
    assert!(
        most - before < 160 << 20,
        "{} MiB were kept for an editor that does not read",
        (most - before) >> 20
    );
    client.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } }));
    client.editor.set_read_pace(ReadPace::All);
    let (answer, updates) = client.answer(2);
    assert_eq!(
        answer["result"]["stopReason"],
        "cancelled",
        "after {} updates",
        updates.len()
    );
    let kept: usize = updates
        .iter()
        .filter_map(|update| update["content"]["text"].as_str())
        .map(str::len)
        .sum();
    assert!(
        kept < 24 << 20,
        "{} MiB of words waited to be read",
        kept >> 20
    );
    client.prompt(3, &session, "Are you there?");
    assert_eq!(client.answer(3).0["result"]["stopReason"], "end_turn");
    client.leave();
    assert_eq!(model.problems(), Vec::<String>::new());
}

fn s22_a_session_of_ten_thousand_messages() {
    const COUNT: usize = 10_000;
    let model = Model::start(model::script("text: One.").unwrap());
    let project = Project::new();
    project.provider(&model.base(), &Value::Null);
    let mut client = Client::new(project);
    let session = client.open();
    client.prompt(2, &session, "The first of many.");
    assert_eq!(client.answer(2).0["result"]["stopReason"], "end_turn");
    let project = client.leave();

    let data = project.path("~/.local/share/adjutant");
    block_on(async {
        let store = Store::start(&data);
        let id = SessionId::new(session.as_str());
        store.load(&id).await.unwrap();
        for number in 0..COUNT {
            let message = user_message(number);
            store.write_message(&id, &message).await;
            store.write_part(&id, &message.id, &message.parts[0]).await;
        }
        store.flush(&id).await.unwrap();
        store.close(&id).await;
        store.flush(&id).await.unwrap();
    });

    let mut client = Client::new(project);
    let before = memory(client.editor.pid());
    let cwd = client.project.cwd();
    let start = Instant::now();
    client.request(
        3,
        "session/load",
        &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
    );
    client.receive();
    // Unoptimised and on a busy machine; a release build is ten times faster.
    let first = start.elapsed();
    let (answer, updates) = client.answer(3);
    assert!(answer.get("result").is_some(), "{answer}");
    let texts = updates
        .iter()
        .filter(|update| update["sessionUpdate"] == "user_message_chunk");
    let numbers: Vec<usize> = texts
        .filter_map(|update| {
            update["content"]["text"]
                .as_str()?
                .strip_prefix("number ")?
                .parse()
                .ok()
        })
        .collect();
    assert_eq!(
        numbers,
        (0..COUNT).collect::<Vec<_>>(),
        "in order, and all of them"
    );
    assert!(
        first < Duration::from_secs(2),
        "the first update came after {first:?}"
    );
    let kept = memory(client.editor.pid()).saturating_sub(before);
    assert!(kept < 64 << 20, "{} MiB", kept >> 20);
    client.leave();
}

fn user_message(number: usize) -> Message {
    let model = ModelRef {
        provider: "bench".into(),
        model: "bench-model".into(),
        effort: None,
    };
    let text = Text {
        text: format!("number {number}").into(),
        ..Text::default()
    };
    Message {
        id: MessageId::new(format!("msg_{number:016x}aaaaaaaaaa")),
        created: base::environment::Timestamp(1_795_252_200_000),
        role: Role::User(User {
            agent: "build".into(),
            model,
        }),
        parts: vec![Part {
            id: PartId::new(format!("prt_{number:016x}aaaaaaaaaa")),
            content: Content::Text(text),
        }],
    }
}
