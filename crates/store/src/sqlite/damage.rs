//! Tests of damaged and missing indexes and session files: damage is repaired or reported, never
//! ignored.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::tests::{message, record, write};
use crate::*;

/// Creates a store with three sessions that no process has open.
async fn create_three_sessions(dir: &Path) {
    let store = Store::start(dir);
    for n in 0..3u64 {
        let record = record(&format!("ses_0000000{n}"), "/w", 10 + n);
        store.create(&record).await.unwrap();
        store.write_record(&record).await;
        write(&store, &record, &[message(&format!("m{n}"), &["x"])]).await;
        store.write_record(&record).await;
        store.flush(&record.id).await.unwrap();
    }
    let grant = Grant {
        project: "/w".into(),
        agent: "build".into(),
        permission: "bash".into(),
        pattern: "ls *".into(),
        granted_at: Timestamp(1),
    };
    store.add_grant(&grant).await.unwrap();
    store.stop().await;
}

async fn listed(dir: &Path) -> Vec<Record> {
    let store = Store::start(dir);
    let listed = tokio::time::timeout(Duration::from_secs(20), store.list(None, None, 100)).await;
    let sessions = listed.expect("the list hangs").unwrap().sessions;
    store.stop().await;
    sessions
}

#[tokio::test]
async fn damaged_index_hides_no_session() {
    let pattern = tempfile::tempdir().unwrap();
    create_three_sessions(pattern.path()).await;
    let whole = fs::read(pattern.path().join("index.db")).unwrap();
    let expected = listed(pattern.path()).await;
    assert_eq!(expected.len(), 3);
    let mut wrong: Vec<(String, Option<Vec<u8>>)> = vec![
        ("none".into(), None),
        ("empty".into(), Some(Vec::new())),
        ("one byte".into(), Some(b"S".to_vec())),
        ("noise".into(), Some(vec![0x55; 9_000])),
    ];
    // The last page may end with zeros, which SQLite reads in place of missing bytes.
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for length in (512..end).step_by(whole.len() / 12) {
        wrong.push((format!("cut to {length}"), Some(whole[..length].to_vec())));
    }
    for at in (0..whole.len()).step_by(whole.len() / 150) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        wrong.push((format!("flipped at {at}"), Some(flipped)));
    }
    for (what, bytes) in wrong {
        for suffix in ["", "-wal", "-shm"] {
            fs::remove_file(pattern.path().join(format!("index.db{suffix}"))).ok();
        }
        if let Some(bytes) = bytes {
            fs::write(pattern.path().join("index.db"), bytes).unwrap();
        }
        // The remains of a process that was killed while it created an index.
        fs::write(pattern.path().join("index.db-new"), "half").unwrap();
        match Store::start(pattern.path()).list(None, None, 100).await {
            // The number of its format was changed, so it is left alone, and that is reported.
            Err(Error::NewerIndex { .. }) => continue,
            listed => assert_eq!(listed.unwrap().sessions, expected, "{what}"),
        }
        assert!(
            !pattern.path().join("index.db-new").exists() || what.starts_with("flipped"),
            "{what}"
        );
    }
}

/// Creates more sessions than a query would wait for, and an index that knows none of them. Returns
/// their number.
async fn many_unknown(dir: &Path) -> usize {
    const MANY: usize = 80;
    let store = Store::start(dir);
    for n in 0..MANY {
        let parent = (n == 1).then(|| SessionId::new("ses_00000000"));
        let record = Record {
            parent,
            ..record(&format!("ses_{n:08}"), "/w", 10 + n as u64)
        };
        store.create(&record).await.unwrap();
        write(&store, &record, &[message("m", &["x"])]).await;
        store.write_record(&record).await;
        store.close(&record.id).await;
    }
    store.stop().await;
    fs::remove_file(dir.join("index.db")).unwrap();
    drop(index::SessionIndex::open(dir).unwrap());
    MANY
}

#[tokio::test]
async fn lost_index_is_filled_in_background_and_list_reports_it() {
    let dir = tempfile::tempdir().unwrap();
    let many = many_unknown(dir.path()).await;
    // The thread that fills the index has to wait for this transaction; no other does.
    let writer = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = Store::start(dir.path());
    let first = store.list(None, None, 100).await.unwrap();
    assert!(
        first.sessions.is_empty() && first.filling.is_some(),
        "{first:?}"
    );
    assert_eq!(store.grants("/w").await.unwrap(), StoredGrants::default());
    let id = SessionId::new("ses_00000007");
    assert_eq!(store.load(&id).await.unwrap().messages.len(), 1);
    writer.execute_batch("COMMIT").unwrap();
    store.wait_until_filled().await.unwrap();
    let whole = store.list(None, None, 100).await.unwrap();
    // One of them is a child.
    assert_eq!((whole.sessions.len(), whole.filling), (many - 1, None));
    // Another process finds the index complete.
    assert_eq!(listed(dir.path()).await, whole.sessions);
}

#[tokio::test]
async fn session_deleted_during_fill_stays_deleted_with_children() {
    let dir = tempfile::tempdir().unwrap();
    let many = many_unknown(dir.path()).await;
    // Neither the thread that fills the index nor the deletion can write to it before the end of
    // this transaction.
    let writer = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = Store::start(dir.path());
    let parent = SessionId::new("ses_00000000");
    let child = SessionId::new("ses_00000001");
    assert!(store.list(None, None, 1).await.unwrap().filling.is_some());
    let (deleted, ()) = tokio::join!(store.delete(&parent), async {
        writer.execute_batch("COMMIT").unwrap();
    });
    deleted.unwrap();
    store.wait_until_filled().await.unwrap();
    // Jobs are executed in order, so this one waits for the deletion of orphans.
    store.list(None, None, 1).await.unwrap();
    for id in [&parent, &child] {
        assert!(!store.contains(id).await.unwrap(), "{id}");
    }
    assert_eq!(
        store.list(None, None, 100).await.unwrap().sessions.len(),
        many - 2
    );
}

/// An index that is too large for the initial scan is scanned in the background, which finds hidden
/// sessions.
#[tokio::test]
async fn large_index_hides_no_session_for_long() {
    let dir = tempfile::tempdir().unwrap();
    create_three_sessions(dir.path()).await;
    let expected = listed(dir.path()).await;
    // Every row matches its checksum, and one is missing from the indexes by which lists are
    // ordered.
    let sql = |lines: &str| {
        let db = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
        db.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)
            .unwrap();
        db.execute_batch(lines).unwrap();
    };
    sql("PRAGMA journal_mode = DELETE; PRAGMA writable_schema = ON;
         CREATE TABLE filling (x); INSERT INTO filling VALUES (randomblob(5000000));
         CREATE TABLE row_ AS SELECT * FROM session WHERE id = 'ses_00000001';
         DELETE FROM session WHERE id = 'ses_00000001';
         CREATE TABLE order_ AS SELECT * FROM sqlite_schema WHERE name IN ('session_by_time', 'session_by_cwd');
         DELETE FROM sqlite_schema WHERE name IN ('session_by_time', 'session_by_cwd');");
    sql("INSERT INTO session SELECT * FROM row_;");
    sql("PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT * FROM order_;");
    let store = Store::start(dir.path());
    let started = Instant::now();
    let found = || dir.path().join("index.damaged-1.db").exists();
    while store.list(None, None, 100).await.unwrap().sessions != expected || !found() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "found: {}",
            found()
        );
    }
    store.stop().await;
}

#[tokio::test]
async fn pipe_instead_of_index_does_not_block() {
    for name in ["index.db", "index.lock"] {
        let dir = tempfile::tempdir().unwrap();
        create_three_sessions(dir.path()).await;
        fs::remove_file(dir.path().join(name)).unwrap();
        nix::unistd::mkfifo(&dir.path().join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(listed(dir.path()).await.len(), 3, "{name}");
    }
}

#[tokio::test]
async fn grants_survive_damaged_index() {
    let dir = tempfile::tempdir().unwrap();
    create_three_sessions(dir.path()).await;
    let db = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
    db.execute(
        "UPDATE session SET data = replace(data, 'title', 'titel') WHERE id = 'ses_00000001'",
        [],
    )
    .unwrap();
    drop(db);
    let store = Store::start(dir.path());
    let titles = store.list(None, None, 100).await.unwrap().sessions;
    assert!(
        titles.iter().all(|record| record.title.is_some()),
        "{titles:?}"
    );
    assert_eq!(store.grants("/w").await.unwrap().grants.len(), 1);
}

/// Returns the position of a text in the index's file.
fn position(file: &[u8], text: &str) -> usize {
    file.windows(text.len())
        .position(|window| window == text.as_bytes())
        .unwrap()
}

#[tokio::test]
async fn list_with_flipped_byte_of_a_row_has_every_session() {
    let pattern = tempfile::tempdir().unwrap();
    create_three_sessions(pattern.path()).await;
    let whole = fs::read(pattern.path().join("index.db")).unwrap();
    let expected = listed(pattern.path()).await;
    let row = position(&whole, "{\"id\":\"ses_00000001\"");
    let length = whole[row..]
        .iter()
        .position(|byte| *byte == b'\n' || *byte == 0)
        .unwrap_or(200)
        .min(200);
    for at in row..row + length {
        for bit in [0, 7] {
            for suffix in ["-wal", "-shm"] {
                fs::remove_file(pattern.path().join(format!("index.db{suffix}"))).ok();
            }
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            fs::write(pattern.path().join("index.db"), flipped).unwrap();
            let store = Store::start(pattern.path());
            // The query that an editor sends.
            let query = ListQuery {
                archived: Some(false),
                limit: 100,
                ..ListQuery::default()
            };
            let listed = store.list_where(query).await.unwrap().sessions;
            store.stop().await;
            assert_eq!(listed, expected, "bit {bit} of byte {}", at - row);
        }
    }
}

#[tokio::test]
async fn altered_grant_is_dropped_and_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    create_three_sessions(dir.path()).await;
    let path = dir.path().join("index.db");
    let mut index = fs::read(&path).unwrap();
    let at = position(&index, "ls *");
    // "ls *" would become "rs *".
    index[at] = b'r';
    fs::write(&path, index).unwrap();
    let store = Store::start(dir.path());
    let all = store.all_grants().await.unwrap();
    assert_eq!(all.grants, Vec::new());
    assert!(
        all.damaged_index.is_some(),
        "a list says it and does not settle it"
    );
    let first = store.grants("/w").await.unwrap();
    assert_eq!(
        first.damaged_index,
        Some(dir.path().join("index.damaged-1.db").display().to_string())
    );
    assert_eq!(store.grants("/w").await.unwrap(), StoredGrants::default());
    store.stop().await;
}

/// If no index is available, sessions are saved in any case.
#[tokio::test]
async fn sessions_are_saved_without_index() {
    let dir = tempfile::tempdir().unwrap();
    let newer = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
    newer
        .execute_batch("PRAGMA user_version = 99; CREATE TABLE kept(x);")
        .unwrap();
    drop(newer);
    let record = record("ses_00000001", "/w", 5);
    let messages = [message("a", &["one"])];
    let store = Store::start(dir.path());
    store.create(&record).await.unwrap();
    write(&store, &record, &messages).await;
    store.flush(&record.id).await.unwrap();
    store.stop().await;
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

#[tokio::test]
async fn missing_or_truncated_file_is_reported_once() {
    let id = SessionId::new("ses_00000001");
    type Spoil = fn(&Path);
    let table: [(&str, Spoil, usize); 3] = [
        ("empty", |path| fs::write(path, "").unwrap(), 0),
        ("gone", |path| fs::remove_file(path).unwrap(), 0),
        (
            "without its log",
            |path| fs::remove_file(wal::path(path)).unwrap(),
            1,
        ),
    ];
    for (what, spoil, left) in table {
        let dir = tempfile::tempdir().unwrap();
        create_three_sessions(dir.path()).await;
        let path = session::path(dir.path(), &id);
        {
            // A killed process leaves a log.
            let store = Store::start(dir.path());
            let record = store.load(&id).await.unwrap().record;
            write(&store, &record, &[message("more", &["y"])]).await;
            store.write_record(&record).await;
            store.await_written(&id).await;
            let killed = tempfile::tempdir().unwrap();
            for suffix in ["", "-wal"] {
                fs::copy(
                    with_suffix(&path, suffix),
                    killed.path().join(format!("db{suffix}")),
                )
                .unwrap();
            }
            store.stop().await;
            for suffix in ["", "-wal"] {
                fs::copy(
                    killed.path().join(format!("db{suffix}")),
                    with_suffix(&path, suffix),
                )
                .unwrap();
            }
        }
        spoil(&path);
        if what != "without its log" {
            fs::remove_file(wal::path(&path)).ok();
        }
        let store = Store::start(dir.path());
        let stored = store.load(&id).await.unwrap();
        assert_eq!(
            (stored.messages.len(), stored.damage.len()),
            (left, 1),
            "{what}: {:?}",
            stored.damage
        );
        store.stop().await;
        let again = Store::start(dir.path()).load(&id).await.unwrap();
        assert_eq!(again.damage, Vec::<String>::new(), "{what}");
    }
}

#[tokio::test]
async fn file_removed_while_open_is_detected() {
    // The flush comes with the write, after it, or without any write since the last flush.
    for (before, apart, after) in [
        (false, false, true),
        (false, true, true),
        (true, false, true),
        (true, false, false),
    ] {
        let case =
            format!("written before: {before}, flushed apart: {apart}, written after: {after}");
        let dir = tempfile::tempdir().unwrap();
        create_three_sessions(dir.path()).await;
        let id = SessionId::new("ses_00000001");
        let store = Store::start(dir.path());
        let record = store.load(&id).await.unwrap().record;
        if before {
            write(&store, &record, &[message("lost", &["x"])]).await;
            store.await_written(&id).await;
        }
        fs::remove_file(session::path(dir.path(), &id)).unwrap();
        if after {
            write(&store, &record, &[message("more", &["y"])]).await;
        }
        if apart {
            store.await_written(&id).await;
        }
        let flushed = store.flush(&id).await;
        assert!(
            matches!(&flushed, Err(Error::Removed(_))),
            "{case}: {flushed:?}"
        );
        // The loss is reported once, and later messages are saved.
        store.flush(&id).await.unwrap();
        write(&store, &record, &[message("later", &["z"])]).await;
        store.flush(&id).await.unwrap();
        store.stop().await;
        let kept = Store::start(dir.path()).load(&id).await.unwrap().messages;
        assert_eq!(kept.len(), 1 + usize::from(after), "{case}");
    }
}

#[tokio::test]
async fn interrupted_removal_leaves_all_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    create_three_sessions(dir.path()).await;
    let db = rusqlite::Connection::open(dir.path().join("index.db")).unwrap();
    db.execute(
        "DELETE FROM session WHERE id IN ('ses_00000000', 'ses_00000001')",
        [],
    )
    .unwrap();
    drop(db);
    // Killed before and after the file was renamed.
    let gone = session::path(dir.path(), &SessionId::new("ses_00000001"));
    fs::rename(&gone, with_suffix(&gone, session::REMOVED_SUFFIX)).unwrap();
    let left: Vec<String> = listed(dir.path())
        .await
        .into_iter()
        .map(|record| record.id.to_string())
        .collect();
    assert_eq!(left, ["ses_00000002", "ses_00000000"]);
    assert!(!with_suffix(&gone, session::REMOVED_SUFFIX).exists());
}

#[tokio::test]
async fn session_with_empty_file_continues() {
    let dir = tempfile::tempdir().unwrap();
    let record = record("ses_00000001", "/w", 5);
    let store = Store::start(dir.path());
    store.create(&record).await.unwrap();
    // The process was killed, or the disk refused, between creating the file and writing to it.
    drop(session::SessionFile::open(dir.path(), &record.id, true).unwrap());
    let other = Store::start(dir.path());
    assert_eq!(other.list(None, None, 10).await.unwrap().sessions, []);
    assert!(matches!(
        other.peek(&record.id).await,
        Err(Error::NotFound(_))
    ));
    other.stop().await;
    store
        .queue_record_change(&record.id, RecordChange::Title("Mine".into()))
        .await;
    write(&store, &record, &[message("a", &["one"])]).await;
    store.flush(&record.id).await.unwrap();
    store.stop().await;
    let again = Store::start(dir.path()).load(&record.id).await.unwrap();
    assert_eq!(
        (again.record.title.as_deref(), again.messages.len()),
        (Some("Mine"), 1)
    );
}

#[tokio::test]
async fn title_and_choice_of_user_survive_record_of_turn() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::start(dir.path());
    let mut record = record("ses_00000001", "/w", 5);
    store.create(&record).await.unwrap();
    write(&store, &record, &[message("a", &["one"])]).await;
    store
        .queue_record_change(&record.id, RecordChange::Title("Mine".into()))
        .await;
    store
        .queue_record_change(
            &record.id,
            RecordChange::Choice {
                agent: "plan".into(),
                model: None,
                steer: Some(false),
                approvals: None,
            },
        )
        .await;
    record.agent = Some("plan".into());
    record.title = Some("words of the prompt".into());
    store.write_record(&record).await;
    store.await_written(&record.id).await;
    let listed = store.list(None, None, 10).await.unwrap().sessions.remove(0);
    assert_eq!(
        (listed.title.as_deref(), listed.agent.as_deref()),
        (Some("Mine"), Some("plan"))
    );
    assert_eq!(listed.title_source, TitleSource::User);
    store.close(&record.id).await;
    // The lock is free when `close` has returned.
    let other = Store::start(dir.path());
    assert_eq!(other.load(&record.id).await.unwrap().record, listed);
}
