//! Tests of the store through its public interface, in each backend that is available.

use std::collections::BTreeSet;

use self::database::Database;
use super::*;
use base::store_location::DatabaseLocation;
use transcript::{Content, LatePlace, Role, Text, User};

/// The same module as in the tests of the whole program.
#[path = "../../../editor-tests/database.rs"]
pub(super) mod database;

pub(super) fn record(id: &str, cwd: &str, updated: u64) -> Record {
    let title = Some(format!("title of {id}"));
    Record {
        title,
        updated: Timestamp(updated),
        ..Record::new(SessionId::new(id), cwd.into(), Timestamp(1))
    }
}

pub(super) fn message(id: &str, words: &[&str]) -> Message {
    let parts = words.iter().enumerate().map(|(n, words)| Part {
        id: PartId::new(format!("{id}-{n}")),
        content: Content::Text(Text {
            text: (*words).into(),
            ..Text::default()
        }),
    });
    let model = ModelRef {
        provider: "p".into(),
        model: "m".into(),
        effort: None,
    };
    Message {
        id: MessageId::new(id),
        created: Timestamp(1),
        role: Role::User(User {
            agent: "build".into(),
            model,
        }),
        parts: parts.collect(),
    }
}

/// A store location for one test.
pub(super) struct TestStore {
    pub(super) location: StoreLocation,
    dir: tempfile::TempDir,
}

impl TestStore {
    pub(super) fn store(&self) -> Store {
        let location = self.location.clone();
        Store::open(move || location)
    }
}

/// Runs a test in each backend.
async fn each(test: impl AsyncFn(TestStore)) {
    let dir = tempfile::tempdir().unwrap();
    test(TestStore {
        location: StoreLocation::Files(dir.path().into()),
        dir,
    })
    .await;
    if let Some(database) = Database::get() {
        let location = StoreLocation::Database(DatabaseLocation::new(&database.fresh(60)));
        test(TestStore {
            location,
            dir: tempfile::tempdir().unwrap(),
        })
        .await;
    }
}

pub(super) async fn write(store: &Store, record: &Record, messages: &[Message]) {
    for message in messages {
        store.write_message(&record.id, message).await;
        for part in &message.parts {
            store.write_part(&record.id, &message.id, part).await;
        }
    }
}

#[tokio::test]
async fn history_is_restored() {
    each(async |backend: TestStore| {
        let record = record("ses_00000001", "/w", 5);
        let messages = [message("b", &["one", "two"]), message("a", &["three"])];
        {
            let store = backend.store();
            store.create(&record).await.unwrap();
            assert_eq!(store.load(&record.id).await.unwrap().messages, []);
            write(&store, &record, &messages).await;
            // A part that is written again stays at its position.
            store
                .write_part(&record.id, &messages[0].id, &messages[0].parts[0])
                .await;
            store.flush(&record.id).await.unwrap();
            store.close(&record.id).await;
            store.flush(&record.id).await.unwrap();
        }
        let stored = backend.store().load(&record.id).await.unwrap();
        assert_eq!(
            stored,
            StoredSession {
                record,
                messages: messages.to_vec(),
                damage: vec![]
            }
        );
    })
    .await;
}

/// More sessions than are written concurrently, each with much text: everything is saved, in order.
#[tokio::test]
async fn concurrent_sessions_are_saved_in_order() {
    each(async |backend: TestStore| {
        let records: Vec<Record> = (0..9)
            .map(|n| record(&format!("ses_0000000{n}"), "/w", n))
            .collect();
        let long = "many words ".repeat(30_000);
        let messages: Vec<Message> = (0..3)
            .map(|n| message(&format!("m{n}"), &[&long[n..], "short"]))
            .collect();
        let store = backend.store();
        let session = async |record: &Record| {
            store.create(record).await.unwrap();
            for _ in 0..3 {
                write(&store, record, &messages).await;
                store.await_written(&record.id).await;
                assert_eq!(store.peek(&record.id).await.unwrap().messages, messages);
            }
            store.flush(&record.id).await.unwrap();
            store.close(&record.id).await;
        };
        futures_util::future::join_all(records.iter().map(session)).await;
        assert_eq!(store.list(None, None, 100).await.unwrap().sessions.len(), 9);
        store.stop().await;
        let again = backend.store();
        for record in records {
            let stored = again.load(&record.id).await.unwrap();
            assert_eq!(
                stored,
                StoredSession {
                    record,
                    messages: messages.clone(),
                    damage: vec![]
                }
            );
        }
    })
    .await;
}

#[tokio::test]
async fn session_is_exclusive_from_creation() {
    each(async |backend: TestStore| {
        let first = backend.store();
        let other = backend.store();
        let record = record("ses_00000001", "/w", 1);
        first.create(&record).await.unwrap();
        assert!(matches!(other.delete(&record.id).await, Err(Error::Locked { .. })));
        // Before its first message no other process knows of it.
        assert!(matches!(other.peek(&record.id).await, Err(Error::NotFound(_))));
        let messages = [message("a", &["one"])];
        write(&first, &record, &messages).await;
        first.flush(&record.id).await.unwrap();
        let refused = other.load(&record.id).await;
        assert!(
            matches!(&refused, Err(Error::Locked { holder, .. }) if holder.pid == Some(std::process::id())),
            "{refused:?}"
        );
        assert!(matches!(other.delete(&record.id).await, Err(Error::Locked { .. })));
        // It can be read in any case.
        assert_eq!(other.peek(&record.id).await.unwrap().messages, messages);
        assert!(matches!(other.load(&record.id).await, Err(Error::Locked { .. })));
        first.close(&record.id).await;
        first.flush(&record.id).await.unwrap();
        assert_eq!(other.load(&record.id).await.unwrap().messages, messages);
        assert!(matches!(first.load(&record.id).await, Err(Error::Locked { .. })));
        other.stop().await;
        if let StoreLocation::Files(dir) = &backend.location {
            let left = std::fs::read_dir(dir.join("sessions")).unwrap().flatten().map(|file| file.file_name());
            assert_eq!(left.collect::<Vec<_>>(), ["ses_00000001.db"]);
        }
    })
    .await;
}

#[tokio::test]
async fn import_does_not_hold_up_other_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let location = StoreLocation::Files(dir.path().into());
    let store = Store::open(move || location);
    let (end, ended) = std::sync::mpsc::channel::<Message>();
    let imported = record("ses_00000001", "/w", 1);
    let feed = StreamedSession::new(
        imported.clone(),
        std::iter::from_fn(move || ended.recv().ok().map(Ok)),
    );
    let other = record("ses_00000002", "/w", 1);
    let use_other = async {
        store.create(&other).await.unwrap();
        write(&store, &other, &[message("a", &["one"])]).await;
        store.flush(&other.id).await.unwrap();
    };
    let mut import = std::pin::pin!(store.import(feed));
    let used = tokio::time::timeout(Duration::from_secs(60), async {
        tokio::select! {
            biased;
            result = &mut import => panic!("the import ends before its messages: {result:?}"),
            () = use_other => {}
        }
    });
    used.await.expect("the other session waits for the import");
    end.send(message("b", &["two"])).unwrap();
    drop(end);
    import.await.unwrap();
    let read = store.load(&imported.id).await.unwrap();
    assert_eq!(read.messages, [message("b", &["two"])]);
}

#[tokio::test]
async fn forks_and_imports_are_independent() {
    each(async |backend: TestStore| {
        let environment = environment(&backend);
        let store = backend.store();
        let record = Record {
            agent: Some("plan".into()),
            archived: true,
            ..record("ses_00000001", "/w", 1)
        };
        store.create(&record).await.unwrap();
        write(
            &store,
            &record,
            &[message("a", &["one", "two"]), message("b", &["three"])],
        )
        .await;
        let original = store.load(&record.id).await.unwrap();
        let fork = forked(original.clone(), &environment)
            .into_stored()
            .unwrap();
        store.import(fork.clone()).await.unwrap();
        assert_eq!(
            store.import(fork.clone()).await,
            Err(Error::AlreadyExists(fork.record.id.clone()))
        );
        let read = store.load(&fork.record.id).await.unwrap();
        assert_eq!(read, fork);
        assert_eq!(
            read.record.title.as_deref(),
            Some("title of ses_00000001 (fork #1)")
        );
        assert_eq!(read.record.agent.as_deref(), Some("plan"));
        assert!(!read.record.archived);
        let texts = |stored: &StoredSession| {
            stored
                .messages
                .iter()
                .map(Message::visible_text)
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&read), texts(&original));
        store.rename(&fork.record.id, "Another road").await.unwrap();
        let listed = store.list(None, None, 10).await.unwrap();
        assert!(
            listed
                .sessions
                .iter()
                .any(|r| r.title.as_deref() == Some("Another road")
                    && r.title_source == TitleSource::User)
        );
        assert_eq!(
            store.load(&record.id).await.unwrap(),
            original,
            "the first one is untouched"
        );
    })
    .await;
}

/// Reading one message at a time yields the same session as reading it whole, whether or not it is
/// open.
#[tokio::test]
async fn session_is_read_out_unchanged() {
    each(async |backend: TestStore| {
        let store = backend.store();
        let record = record("ses_00000001", "/w", 1);
        store.create(&record).await.unwrap();
        let messages: Vec<Message> = (0..50)
            .map(|at| message(&format!("m{at}"), &["one", "two"]))
            .collect();
        write(&store, &record, &messages).await;
        // A late part belongs to an early message, and names a later one.
        let place = LatePlace {
            after: messages[10].id.clone(),
            number: 1,
        };
        let late = Part {
            id: PartId::new("late"),
            content: Content::Patch {
                files: Vec::new(),
                begun: false,
                unrecorded: Vec::new(),
                late: Some(place),
            },
        };
        store.write_record(&record).await;
        store.write_part(&record.id, &messages[3].id, &late).await;
        store.flush(&record.id).await.unwrap();
        let whole = store.peek(&record.id).await.unwrap();
        assert_eq!(whole.messages[3].parts.len(), 3);
        assert_eq!(
            store.stream(&record.id).await.unwrap().into_stored(),
            Ok(whole.clone()),
            "open"
        );
        store.close(&record.id).await;
        assert_eq!(
            store.stream(&record.id).await.unwrap().into_stored(),
            Ok(whole.clone()),
            "closed"
        );
        let renamed = renamed(
            store.stream(&record.id).await.unwrap(),
            &environment(&backend),
        );
        let copy = renamed.record.id.clone();
        store.import(renamed).await.unwrap();
        let read = store.load(&copy).await.unwrap();
        let texts = |stored: &StoredSession| {
            stored
                .messages
                .iter()
                .map(Message::visible_text)
                .collect::<Vec<_>>()
        };
        assert_eq!((texts(&read), read.damage.len()), (texts(&whole), 0));
        let Content::Patch {
            late: Some(late), ..
        } = &read.messages[3].parts[2].content
        else {
            panic!("{:?}", read.messages[3]);
        };
        assert_eq!(late.after, read.messages[10].id);
    })
    .await;
}

/// An incomplete feed stores nothing.
#[tokio::test]
async fn failed_import_leaves_nothing() {
    each(async |backend: TestStore| {
        let store = backend.store();
        let record = record("ses_00000001", "/w", 1);
        let broken = Error::ImportUnreadable("it ends here".into());
        let messages = [Ok(message("a", &["one"])), Err(broken.clone())];
        assert_eq!(
            store
                .import(StreamedSession::new(record.clone(), messages.into_iter()))
                .await,
            Err(broken)
        );
        assert_eq!(store.contains(&record.id).await, Ok(false));
        let messages = [Ok(message("a", &["one"]))];
        store
            .import(StreamedSession::new(record.clone(), messages.into_iter()))
            .await
            .unwrap();
        assert_eq!(store.load(&record.id).await.unwrap().messages.len(), 1);
    })
    .await;
}

fn environment(backend: &TestStore) -> base::environment::Environment {
    let home = ("HOME".to_owned(), backend.dir.path().display().to_string());
    base::environment::Environment::from_vars(std::collections::BTreeMap::from([home]))
}

#[tokio::test]
async fn search_ignores_case() {
    each(async |backend: TestStore| {
        let store = backend.store();
        for (n, words) in [
            "The Übersicht is empty",
            "nothing of the kind",
            "an übersicht of an EMPTY room",
        ]
        .iter()
        .enumerate()
        {
            let record = record(&format!("ses_0000000{n}"), "/w", n as u64);
            store.create(&record).await.unwrap();
            write(&store, &record, &[message(&format!("m{n}"), &[words])]).await;
            store.write_record(&record).await;
            store.flush(&record.id).await.unwrap();
        }
        store.list(None, None, 10).await.unwrap();
        // All of them are open.
        let found = async |words: &str| {
            let hits = store
                .search(ListQuery::default(), words, 10)
                .await
                .unwrap()
                .hits;
            hits.iter()
                .map(|hit| (hit.record.id.to_string(), hit.excerpt.clone()))
                .collect::<Vec<_>>()
        };
        let both = [
            (
                "ses_00000002".to_owned(),
                "an übersicht of an EMPTY room".to_owned(),
            ),
            (
                "ses_00000000".to_owned(),
                "The Übersicht is empty".to_owned(),
            ),
        ];
        assert_eq!(found("Empty übersicht").await, both);
        assert_eq!(
            found("title of ses_00000001").await,
            [("ses_00000001".to_owned(), String::new())]
        );
        assert_eq!(found("  ").await, []);
    })
    .await;
}

/// A session without input from the user is known only to the process that created it, and leaves
/// nothing. Input before the first message is saved like everything else, until the session is
/// left.
#[tokio::test]
async fn session_without_prompt_is_saved_until_left() {
    each(async |backend: TestStore| {
        let chosen = || RecordChange::Choice {
            agent: "plan".into(),
            model: None,
            steer: None,
            approvals: None,
        };
        let named = || RecordChange::Title("Mine".into());
        let id = |n: u64| SessionId::new(format!("ses_0000000{n}"));
        let store = backend.store();
        for n in 1..=4 {
            let record = record(id(n).as_str(), "/w", n);
            store.create(&record).await.unwrap();
            store.write_record(&record).await;
        }
        for (n, change) in [(2, chosen()), (3, named()), (4, chosen())] {
            store.queue_record_change(&id(n), change).await;
        }
        write(
            &store,
            &Record {
                agent: Some("plan".into()),
                ..record(id(4).as_str(), "/w", 4)
            },
            &[message("a", &["one"])],
        )
        .await;
        let listed = async |store: &Store| -> Vec<SessionId> {
            store
                .list(None, None, 10)
                .await
                .unwrap()
                .sessions
                .into_iter()
                .map(|record| record.id)
                .collect()
        };
        for n in 1..=4 {
            store.await_written(&id(n)).await;
        }
        assert_eq!(listed(&store).await, [id(4), id(3)]);
        // Closed without `leave`, as by a kill.
        for n in 1..=4 {
            store.close(&id(n)).await;
        }
        let again = backend.store();
        assert!(matches!(again.load(&id(1)).await, Err(Error::NotFound(_))));
        assert_eq!(
            again.load(&id(2)).await.unwrap().record.agent.as_deref(),
            Some("plan")
        );
        assert_eq!(
            again.load(&id(3)).await.unwrap().record.title.as_deref(),
            Some("Mine")
        );
        assert_eq!(again.load(&id(4)).await.unwrap().messages.len(), 1);
        // It is in use: other processes must not delete it.
        assert!(!again.delete_if_not_open(&id(2), true).await.unwrap());
        for (n, removed) in [(2, true), (3, false), (4, false)] {
            assert_eq!(
                again.close_and_delete_if_empty(&id(n)).await.unwrap(),
                removed,
                "{n}"
            );
        }
        assert_eq!(listed(&again).await, [id(4), id(3)]);
        assert_eq!(again.empty_sessions().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn lists_are_paged() {
    each(async |backend: TestStore| {
        let store = backend.store();
        for n in 0..5u64 {
            let cwd = if n == 3 { "/other" } else { "/w" };
            let record = Record {
                archived: n == 4,
                ..record(&format!("ses_0000000{n}"), cwd, 10 + n / 2)
            };
            store.create(&record).await.unwrap();
            write(&store, &record, &[message(&format!("m{n}"), &["x"])]).await;
            store.write_record(&record).await;
            store.close(&record.id).await;
        }
        let ids = |page: &SessionPage| {
            page.sessions
                .iter()
                .map(|r| r.id.to_string())
                .collect::<Vec<_>>()
        };
        let first = store.list(Some(Path::new("/w")), None, 2).await.unwrap();
        assert_eq!(ids(&first), ["ses_00000004", "ses_00000002"]);
        let second = store
            .list(Some(Path::new("/w")), first.next, 2)
            .await
            .unwrap();
        assert_eq!(
            (ids(&second), second.next),
            (
                vec!["ses_00000001".to_owned(), "ses_00000000".to_owned()],
                None
            )
        );
        let archived = |archived| ListQuery {
            archived: Some(archived),
            limit: 9,
            ..ListQuery::default()
        };
        let aside = store.list_where(archived(true)).await.unwrap();
        assert_eq!(ids(&aside), ["ses_00000004"]);
        assert_eq!(
            store
                .list_where(archived(false))
                .await
                .unwrap()
                .sessions
                .len(),
            4
        );
    })
    .await;
}

#[tokio::test]
async fn project_list_includes_subdirectories() {
    each(async |backend: TestStore| {
        let store = backend.store();
        let places = ["/w", "/w/a", "/w2", "/w/a/b", "/other", "/w"];
        for (n, cwd) in places.iter().enumerate() {
            let record = record(&format!("ses_0000000{n}"), cwd, 10 + n as u64 / 2);
            store.create(&record).await.unwrap();
            write(&store, &record, &[message(&format!("m{n}"), &["x"])]).await;
            store.write_record(&record).await;
            store.close(&record.id).await;
        }
        let ids = |page: &SessionPage| {
            page.sessions
                .iter()
                .map(|r| r.id.to_string())
                .collect::<Vec<_>>()
        };
        let query = ListQuery {
            cwd: Some("/w".into()),
            is_recursive: true,
            limit: 2,
            ..ListQuery::default()
        };
        let first = store.list_where(query.clone()).await.unwrap();
        assert_eq!(ids(&first), ["ses_00000005", "ses_00000003"]);
        let second = store
            .list_where(ListQuery {
                after: first.next,
                ..query.clone()
            })
            .await
            .unwrap();
        assert_eq!(
            (ids(&second), second.next),
            (
                vec!["ses_00000001".to_owned(), "ses_00000000".to_owned()],
                None
            )
        );
        let all = store
            .list_where(ListQuery {
                cwd: Some("/".into()),
                limit: 9,
                ..query
            })
            .await
            .unwrap();
        assert_eq!(all.sessions.len(), places.len());
        store.wait_until_filled().await.unwrap();
        assert_eq!(
            store.list_with_prefix("ses_00000003", 9).await.unwrap(),
            [SessionId::new("ses_00000003")]
        );
        assert_eq!(store.list_with_prefix("ses_", 3).await.unwrap().len(), 3);
        assert_eq!(store.list_with_prefix("ses_1", 3).await.unwrap(), []);
        let of = [
            SessionId::new("ses_00000003"),
            SessionId::new("ses_0000000"),
        ];
        let neighbours: BTreeSet<String> = store
            .list_neighbours(of.to_vec())
            .await
            .unwrap()
            .iter()
            .map(SessionId::to_string)
            .collect();
        let expected = ["ses_00000000", "ses_00000002", "ses_00000004"];
        assert_eq!(neighbours, BTreeSet::from(expected.map(str::to_owned)));
    })
    .await;
}

/// Cut messages are gone, and later ones take their place.
#[tokio::test]
async fn cut_messages_are_deleted() {
    each(async |backend: TestStore| {
        let store = backend.store();
        let record = record("ses_00000001", "/w", 5);
        store.create(&record).await.unwrap();
        write(
            &store,
            &record,
            &[
                message("a", &["one"]),
                message("b", &["two"]),
                message("c", &["three"]),
            ],
        )
        .await;
        store.await_written(&record.id).await;
        // Some of them are written in the same batch as the cut.
        write(&store, &record, &[message("d", &["four"])]).await;
        store.truncate_from(&record.id, &MessageId::new("b")).await;
        write(&store, &record, &[message("b", &["again"])]).await;
        store.flush(&record.id).await.unwrap();
        store.stop().await;
        let store = backend.store();
        let left = store.load(&record.id).await.unwrap();
        assert_eq!(
            left.messages,
            [message("a", &["one"]), message("b", &["again"])]
        );
        store.truncate_from(&record.id, &MessageId::new("a")).await;
        store.flush(&record.id).await.unwrap();
        assert_eq!(store.peek(&record.id).await.unwrap().messages, []);
        assert_eq!(
            store.list(None, None, 9).await.unwrap().sessions,
            [],
            "nothing is said in it any more"
        );
    })
    .await;
}

#[tokio::test]
async fn grants_and_recent_models_belong_to_project() {
    each(async |backend: TestStore| {
        let store = backend.store();
        let grant = |project: &str, pattern: &str| Grant {
            project: project.into(),
            agent: "build".into(),
            permission: "bash".into(),
            pattern: pattern.into(),
            granted_at: Timestamp(7),
        };
        for grant in [
            grant("/a", "ls *"),
            grant("/a", "cat *"),
            grant("/b", "ls *"),
            grant("/a", "ls *"),
        ] {
            store.add_grant(&grant).await.unwrap();
        }
        assert_eq!(
            store.grants("/a").await.unwrap().grants,
            [grant("/a", "cat *"), grant("/a", "ls *")]
        );
        store.revoke(&grant("/a", "cat *")).await.unwrap();
        assert_eq!(
            store.all_grants().await.unwrap().grants,
            [grant("/a", "ls *"), grant("/b", "ls *")]
        );
        let model = |name: &str| ModelRef {
            provider: "p".into(),
            model: name.into(),
            effort: None,
        };
        store
            .set_recent_models("/a", vec![model("1")])
            .await
            .unwrap();
        store
            .set_recent_models("/a", vec![model("2"), model("1")])
            .await
            .unwrap();
        assert_eq!(store.recent_models("/a").await, [model("2"), model("1")]);
        assert_eq!(store.recent_models("/b").await, []);
    })
    .await;
}

#[tokio::test]
async fn children_are_deleted_with_parent() {
    each(async |backend: TestStore| {
        let store = backend.store();
        let parent = record("ses_00000001", "/w", 5);
        let child = Record {
            parent: Some(parent.id.clone()),
            ..record("ses_00000002", "/w", 6)
        };
        for record in [&parent, &child] {
            store.create(record).await.unwrap();
            write(&store, record, &[message("a", &["one"])]).await;
            store.close(&record.id).await;
        }
        assert_eq!(
            store.children(&parent.id).await.unwrap(),
            std::slice::from_ref(&child.id)
        );
        assert_eq!(store.list(None, None, 9).await.unwrap().sessions.len(), 1);
        let part = store
            .read_parts(&child.id, vec![PartId::new("a-0"), PartId::new("none")])
            .await
            .unwrap();
        assert_eq!(part, message("a", &["one"]).parts);
        assert!(
            store
                .change_record(&parent.id, RecordChange::Archived(true))
                .await
                .unwrap()
                .archived
        );
        store.close(&child.id).await;
        store.delete(&parent.id).await.unwrap();
        for id in [&parent.id, &child.id] {
            assert!(!store.contains(id).await.unwrap());
            assert!(matches!(store.load(id).await, Err(Error::NotFound(_))));
        }
    })
    .await;
}
