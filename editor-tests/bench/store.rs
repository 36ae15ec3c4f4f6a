//! Sessions on disk: loading, listing, appending.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should say where")]

use adjutant::environment::Timestamp;
use adjutant::id::{MessageId, PartId, SessionId};
use adjutant::message::{Assistant, Content, Finish, Message, ModelRef, Part, Role, Text, Usage, User};
use adjutant::store::{Record, Store};
use divan::Bencher;
use tempfile::TempDir;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn id(n: usize) -> SessionId {
    SessionId::new(format!("ses_{n:08}"))
}

fn message(number: usize, text: &str) -> Message {
    let model = ModelRef { provider: "p".into(), model: "m".into(), effort: None };
    let role = if number.is_multiple_of(2) {
        Role::User(User { agent: "build".into(), model, system: None })
    } else {
        Role::Assistant(Assistant {
            parent: MessageId::new(format!("msg_{:016x}aaaaaaaaaa", number - 1)),
            agent: "build".into(),
            model,
            finish: Some(Finish::Stop),
            fault: None,
            summary: false,
            usage: Usage { input: 1_000, output: 200, ..Usage::default() },
            cost: Some(0.01),
            completed: Some(Timestamp(2)),
        })
    };
    let content = Content::Text(Text { text: text.into(), ..Text::default() });
    let part = Part { id: PartId::new(format!("prt_{number:016x}aaaaaaaaaa")), content };
    Message {
        id: MessageId::new(format!("msg_{number:016x}aaaaaaaaaa")),
        created: Timestamp(1),
        role,
        parts: vec![part],
    }
}

async fn write(store: &Store, id: &SessionId, message: &Message) {
    store.message(id, message).await;
    for part in &message.parts {
        store.part(id, &message.id, part).await;
    }
}

/// A closed session of so many messages of a kilobyte.
fn session(messages: usize) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    block_on(async {
        let store = Store::start(dir.path());
        let record = Record::new(id(1), "/w".into(), Timestamp(1));
        store.create(&record).await.unwrap();
        store.record(&record).await;
        for number in 0..messages {
            write(&store, &id(1), &message(number, &"word ".repeat(200))).await;
        }
        store.stop().await;
    });
    dir
}

/// From the file to the history. (200 turns are 400 messages.)
#[divan::bench(args = [400, 10_000])]
fn load(bencher: Bencher<'_, '_>, messages: usize) {
    let dir = session(messages);
    bencher.bench_local(|| {
        block_on(async {
            let store = Store::start(dir.path());
            let stored = store.load(&id(1)).await.unwrap();
            assert_eq!(stored.messages.len(), messages);
            store.stop().await;
        });
    });
}

/// The first page of 5,000 sessions.
#[divan::bench]
fn first_page(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::start(dir.path());
    block_on(async {
        for n in 0..5_000 {
            let updated = Timestamp(1_000 + n as u64);
            let record = Record {
                updated,
                title: Some(format!("Session {n}")),
                ..Record::new(id(n), "/w".into(), Timestamp(1))
            };
            store.create(&record).await.unwrap();
            store.close(&record.id).await;
        }
    });
    bencher.bench_local(|| {
        assert_eq!(block_on(store.list(Some(std::path::Path::new("/w")), None, 100)).unwrap().sessions.len(), 100);
    });
}

/// One part, written and handed to the system.
#[divan::bench]
fn append(bencher: Bencher<'_, '_>) {
    let dir = session(100);
    let store = Store::start(dir.path());
    block_on(store.load(&id(1))).unwrap();
    let mut number = 1_000;
    bencher.bench_local(|| {
        number += 1;
        let message = message(number, &"word ".repeat(200));
        block_on(async {
            write(&store, &id(1), &message).await;
            // Answered when everything before it was written.
            store.children(&id(1)).await.unwrap();
        });
    });
}
