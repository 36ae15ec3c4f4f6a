//! Tests of the store in files, through its public interface.

use super::*;
use crate::tests::{message, record, write};
use crate::*;

/// Errors of a list do not mention saving.
#[tokio::test]
async fn list_error_does_not_mention_saving() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let store = Store::start(&dir.path().join("file/store"));
    let message_text = store.list(None, None, 10).await.unwrap_err().to_string();
    assert!(
        message_text.starts_with("the sessions could not be listed: ")
            && !message_text.contains("saved"),
        "{message_text}"
    );
}

#[tokio::test]
async fn file_that_cannot_be_created_is_created_later() {
    let dir = tempfile::tempdir().unwrap();
    let other = record("ses_00000002", "/w", 6);
    let record = record("ses_00000001", "/w", 5);
    let messages = [message("a", &["one"]), message("b", &["two"])];
    let store = Store::start(dir.path());
    store.create(&record).await.unwrap();
    // The directory is in the way, and cannot be removed like a remaining file.
    let way = dir.path().join("sessions/ses_00000001.db-new");
    std::fs::create_dir_all(way.join("x")).unwrap();
    write(&store, &record, &messages[..1]).await;
    let failed = store.flush(&record.id).await;
    assert!(matches!(failed, Err(Error::Unwritable(_))), "{failed:?}");
    // Other sessions continue.
    store.create(&other).await.unwrap();
    write(&store, &other, &messages).await;
    store.flush(&other.id).await.unwrap();
    std::fs::remove_dir_all(&way).unwrap();
    write(&store, &record, &messages[1..]).await;
    store.flush(&record.id).await.unwrap();
    store.stop().await;
    for record in [record, other] {
        let stored = Store::start(dir.path()).load(&record.id).await.unwrap();
        assert_eq!(
            stored,
            StoredSession {
                record,
                messages: messages.to_vec(),
                damage: vec![]
            }
        );
    }
}

#[tokio::test]
async fn lists_are_paged_and_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::start(dir.path());
    for n in 0..5u64 {
        let cwd = if n == 3 { "/other" } else { "/w" };
        let record = record(&format!("ses_0000000{n}"), cwd, 10 + n / 2);
        store.create(&record).await.unwrap();
        write(&store, &record, &[message(&format!("m{n}"), &["x"])]).await;
        store.write_record(&record).await;
        store.flush(&record.id).await.unwrap();
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
    assert_eq!(ids(&second), ["ses_00000001", "ses_00000000"]);
    assert_eq!(second.next, None);
    let all = store.list(None, None, 100).await.unwrap();
    drop(store);
    std::fs::write(
        dir.path().join("index.db"),
        "not a database, but long enough to be looked at",
    )
    .unwrap();
    let rebuilt = Store::start(dir.path())
        .list(None, None, 100)
        .await
        .unwrap();
    assert_eq!(ids(&rebuilt), ids(&all));
}

#[tokio::test]
async fn unreadable_file_is_reported_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("sessions")).unwrap();
    let file = |id: &str| dir.path().join("sessions").join(format!("{id}.db"));
    let store = Store::start(dir.path());
    let unknown = store.load(&SessionId::new("ses_nothing1")).await;
    assert_eq!(
        unknown,
        Err(Error::NotFound(SessionId::new("ses_nothing1")))
    );
    std::fs::write(file("ses_garbage1"), vec![b'x'; 9000]).unwrap();
    let damaged = store.load(&SessionId::new("ses_garbage1")).await;
    assert!(matches!(damaged, Err(Error::Damaged { .. })), "{damaged:?}");
    assert_eq!(
        std::fs::read(file("ses_garbage1")).unwrap(),
        vec![b'x'; 9000]
    );
    let newer = rusqlite::Connection::open(file("ses_newer001")).unwrap();
    newer
        .execute_batch("PRAGMA user_version = 99; CREATE TABLE t(x);")
        .unwrap();
    drop(newer);
    let newer = store.load(&SessionId::new("ses_newer001")).await;
    assert!(
        matches!(newer, Err(Error::Newer { found: 99, .. })),
        "{newer:?}"
    );
}

#[tokio::test]
async fn concurrent_stores_create_one_index() {
    let dir = tempfile::tempdir().unwrap();
    let stores: Vec<Store> = (0..8).map(|_| Store::start(dir.path())).collect();
    let records: Vec<Record> = (0..8u64)
        .map(|n| record(&format!("ses_0000000{n}"), "/w", n))
        .collect();
    let made = stores.iter().zip(&records).map(async |(store, record)| {
        store.create(record).await.unwrap();
        write(store, record, &[message("a", &["one"])]).await;
        store.flush(&record.id).await.unwrap();
    });
    futures_util::future::join_all(made).await;
    let page = stores[0].list(None, None, 100).await.unwrap();
    assert_eq!(page.sessions.len(), 8);
    let names = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|file| file.unwrap().file_name());
    assert!(
        !names
            .into_iter()
            .any(|name| name.to_string_lossy().contains("damaged"))
    );
}

#[tokio::test]
async fn newer_index_is_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let newer = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
    newer
        .execute_batch("PRAGMA user_version = 99; CREATE TABLE kept(x);")
        .unwrap();
    drop(newer);
    let store = Store::start(dir.path());
    let listed = store.list(None, None, 10).await;
    assert_eq!(
        listed,
        Err(Error::NewerIndex {
            found: 99,
            known: 4
        })
    );
    let kept = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
    assert_eq!(
        kept.query_row("SELECT count(*) FROM kept", [], |row| row.get::<_, i64>(0)),
        Ok(0)
    );
}

fn file(dir: &Path, id: &str) -> PathBuf {
    dir.join("sessions").join(format!("{id}.db"))
}

/// A session of the first format, with every kind of part of that time. Such a file must open in
/// every later version, without loss, and be upgraded to the present format.
#[tokio::test]
async fn store_of_first_format_is_upgraded() {
    let dir = tempfile::tempdir().unwrap();
    let id = SessionId::new("ses_019e2b8fd2c80001abcdefghij");
    std::fs::create_dir_all(dir.path().join("sessions")).unwrap();
    let old = rusqlite::Connection::open(file(dir.path(), id.as_str())).unwrap();
    old.execute_batch(include_str!(
        "../../../../editor-tests/fixtures/store/format-1.sql"
    ))
    .unwrap();
    drop(old);
    let first = {
        let store = Store::start(dir.path());
        let listed = store.list(None, None, 10).await.unwrap();
        assert_eq!(listed.sessions[0].title.as_deref(), Some("Say hello"));
        let stored = store.load(&id).await.unwrap();
        store.stop().await;
        stored
    };
    assert_eq!(first.damage, Vec::<String>::new());
    assert_eq!(
        first
            .messages
            .iter()
            .map(|m| m.parts.len())
            .collect::<Vec<_>>(),
        [6, 7, 0]
    );
    assert_eq!(
        first.record.model.as_ref().unwrap().effort.as_deref(),
        Some("high")
    );
    assert_eq!(first.record.todos.len(), 1);
    let db = rusqlite::Connection::open(file(dir.path(), id.as_str())).unwrap();
    let format: i64 = db
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(format, migrate::SESSION_FORMAT);
    // The read data equals the written data, except for members that are omitted when empty.
    let mut rows = db.prepare("SELECT data FROM part ORDER BY seq").unwrap();
    let rows = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let parts = first.messages.iter().flat_map(|m| &m.parts);
    for (row, part) in rows.zip(parts) {
        let kept: serde_json::Value = serde_json::from_str(&row.unwrap()).unwrap();
        let mut read = serde_json::to_value(part).unwrap();
        for member in ["kind", "title"] {
            if kept.get(member).is_none() {
                read.as_object_mut().unwrap().remove(member);
            }
        }
        assert_eq!(read, kept);
    }
}

#[tokio::test]
async fn damage_is_salvaged_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let record = record("ses_00000001", "/w", 1);
    // Different words, so that one page of the file contains only a few of the compressed texts.
    let text = |n: usize| -> String {
        let words = n * 100..(n + 1) * 100;
        words.map(|word| format!("word{word} ")).collect()
    };
    let messages: Vec<Message> = (0..200)
        .map(|n| message(&format!("m{n:03}"), &[&text(n)]))
        .collect();
    {
        let store = Store::start(dir.path());
        store.create(&record).await.unwrap();
        write(&store, &record, &messages).await;
        store.write_record(&record).await;
        store.stop().await;
    }
    let path = file(dir.path(), "ses_00000001");
    let whole = std::fs::read(&path).unwrap();
    // The first page, one in the middle, one flipped letter.
    let flipped = whole.windows(6).position(|w| w == b"\"m150\"").unwrap() + 1;
    for (at, length, least) in [
        (0, 4096, 150),
        (whole.len() / 2 / 4096 * 4096, 4096, 150),
        (flipped, 1, 199),
    ] {
        let mut bytes = whole.clone();
        bytes[at..at + length]
            .iter_mut()
            .for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, &bytes).unwrap();
        let store = Store::start(dir.path());
        let stored = store.load(&record.id).await.unwrap();
        assert!(
            stored.damage[0].contains("damaged file is saved as"),
            "{:?}",
            stored.damage
        );
        let good = stored
            .messages
            .iter()
            .filter(|m| messages.contains(m))
            .count();
        assert!(good >= least, "{good} of 200 at {at}");
        let strange = stored
            .messages
            .iter()
            .filter(|m| !m.parts.is_empty() && !messages.contains(m))
            .count();
        assert_eq!(strange, 0, "nothing is invented");
        let n = stored.damage[0]
            .rsplit('-')
            .next()
            .unwrap()
            .trim_end_matches('.')
            .to_owned();
        assert_eq!(
            std::fs::read(format!("{}.damaged-{n}", path.display())).unwrap(),
            bytes,
            "kept as it was"
        );
        store.stop().await;
        let again = Store::start(dir.path());
        assert_eq!(
            again.load(&record.id).await.unwrap().damage,
            Vec::<String>::new(),
            "and it is whole from now on"
        );
        again.stop().await;
    }
}

/// Rows of sessions without a file, which an earlier version left, are removed by the first list.
#[tokio::test]
async fn row_without_file_and_message_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sessions")).unwrap();
    let empty = record("ses_00000001", "/w", 5);
    let index = index::SessionIndex::open(dir.path()).unwrap();
    index.put(&empty, 0).unwrap();
    drop(index);
    let store = Store::start(dir.path());
    assert_eq!(store.list(None, None, 10).await.unwrap().sessions, []);
    assert!(matches!(
        store.load(&empty.id).await,
        Err(Error::NotFound(_))
    ));
}

/// A title is saved even if the session's file is missing.
#[tokio::test]
async fn session_without_file_is_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let known = record("ses_00000001", "/w", 5);
    let index = index::SessionIndex::open(dir.path()).unwrap();
    index.put(&known, 0).unwrap();
    drop(index);
    let store = Store::start(dir.path());
    assert_eq!(
        store
            .rename(&known.id, "Mine")
            .await
            .unwrap()
            .title
            .as_deref(),
        Some("Mine")
    );
    store.stop().await;
    let again = Store::start(dir.path());
    assert_eq!(
        again.load(&known.id).await.unwrap().record.title.as_deref(),
        Some("Mine")
    );
}

/// A listed session is not read again by every process that starts.
#[tokio::test]
async fn named_session_without_messages_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let known = record("ses_00000001", "/w", 5);
    let store = Store::start(dir.path());
    store.create(&known).await.unwrap();
    let named = store.rename(&known.id, "Mine").await.unwrap();
    store.stop().await;
    let index = index::SessionIndex::open(dir.path()).unwrap();
    index
        .put(
            &Record {
                title: Some("As it was read".into()),
                ..named
            },
            0,
        )
        .unwrap();
    drop(index);
    let again = Store::start(dir.path());
    let titles = again
        .list(None, None, 10)
        .await
        .unwrap()
        .sessions
        .into_iter()
        .map(|session| session.title);
    assert_eq!(
        titles.collect::<Vec<_>>(),
        [Some("As it was read".to_owned())]
    );
}

/// Only a session that the failed load has locked is released by it.
#[tokio::test]
async fn failed_load_leaves_session_locked_that_was_locked_before() {
    let dir = tempfile::tempdir().unwrap();
    let known = record("ses_00000001", "/w", 5);
    let store = Store::start(dir.path());
    store.create(&known).await.unwrap();
    store.rename(&known.id, "Mine").await.unwrap();
    store.close(&known.id).await;
    let other = Store::start(dir.path());
    let is_locked = async |id: &SessionId| {
        let loaded = other.load(id).await;
        other.close(id).await;
        matches!(loaded, Err(Error::Locked { .. }))
    };

    let garbage = SessionId::new("ses_garbage1");
    std::fs::write(file(dir.path(), garbage.as_str()), vec![b'x'; 9000]).unwrap();
    let failed = store.load(&garbage).await;
    assert!(matches!(failed, Err(Error::Damaged { .. })), "{failed:?}");
    assert!(!is_locked(&garbage).await);

    store.load(&known.id).await.unwrap();
    let sessions = dir.path().join("sessions");
    let aside = dir.path().join("aside");
    std::fs::rename(&sessions, &aside).unwrap();
    std::fs::write(&sessions, "").unwrap();
    let failed = store.load(&known.id).await;
    std::fs::remove_file(&sessions).unwrap();
    std::fs::rename(&aside, &sessions).unwrap();
    assert!(failed.is_err());
    assert!(is_locked(&known.id).await);
    store.close(&known.id).await;
    assert!(!is_locked(&known.id).await);
}
