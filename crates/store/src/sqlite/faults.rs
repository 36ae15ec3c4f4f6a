//! Fault tests of the store: rows of the fault catalogue (`editor-tests/faults.rs`) that need only
//! files. The others are executed from outside, there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::session::SessionFile;
use super::{beginning, peek, salvage, session, wal, with_suffix};
use crate::tests::{message, record, write};
use crate::write::SessionWrite;
use crate::{Error, Record, Store};
use base::environment::{Environment, Timestamp};
use base::id::SessionId;
use transcript::Message;

/// Returns a fixed seed and a fresh one, which is printed when a test fails.
pub(super) fn seeds() -> [u64; 2] {
    let fresh = fastrand::u64(..);
    eprintln!("fresh seed {fresh}");
    [18_255, fresh]
}

/// Creates a directory in memory if possible, because these tests write thousands of files.
pub(super) fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(super) fn in_two_threads(jobs: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for half in 0..2 {
            let jobs = &jobs;
            scope.spawn(move || jobs(half));
        }
    });
}

pub(super) fn entries(messages: &[Message]) -> Vec<SessionWrite> {
    let record = SessionWrite::Record(Box::new(record("ses_00000001", "/w", 1)));
    std::iter::once(record)
        .chain(messages.iter().flat_map(SessionWrite::of))
        .collect()
}

pub(super) fn id() -> SessionId {
    SessionId::new("ses_00000001")
}

/// Creates an open file with `n` messages in transactions of `per`, all of them still in its log.
fn filled(dir: &Path, n: usize, per: usize, words: usize) -> (SessionFile, Vec<Message>) {
    let mut file = SessionFile::open(dir, &id(), true).unwrap();
    let messages: Vec<Message> = (0..n)
        .map(|n| message(&format!("m{n:04}"), &[&format!("word{n} ").repeat(words)]))
        .collect();
    for some in messages.chunks(per) {
        file.write(&entries(some), false).unwrap();
    }
    (file, messages)
}

/// FD02: every prefix of a log. The complete frames are read, torn ones are detected; SQLite
/// agrees.
#[test]
fn fd02_prefix_of_log_yields_longest_valid_beginning() {
    let dir = memory_dir();
    let (file, _) = filled(dir.path(), 120, 10, 1);
    let path = session::path(dir.path(), &id());
    let main = fs::read(&path).unwrap();
    let log = fs::read(wal::path(&path)).unwrap();
    drop(file);
    assert!(log.len() > 65_536, "{}", log.len());
    let log = &log[..65_536];
    const FRAME: usize = 4096 + 24;
    in_two_threads(|half| {
        for length in (half..=log.len()).step_by(2) {
            let whole = length >= 32 && (length - 32).is_multiple_of(FRAME);
            assert_eq!(
                wal::torn(&log[..length]).is_none(),
                whole || length == 0,
                "cut to {length}"
            );
        }
    });
    // Every position that matters to SQLite, and some that do not.
    let copy_dir = memory_dir();
    let copy = copy_dir.path().join("copy.db");
    let mut last = 0;
    for length in (0..=log.len()).filter(|n| n % 509 == 0 || (n + FRAME - 32 + 2) % FRAME < 4) {
        fs::write(&copy, &main).unwrap();
        fs::write(wal::path(&copy), &log[..length]).unwrap();
        let count = SessionFile::open_at(copy.clone(), &id(), false)
            .unwrap()
            .load(Some(record("ses_00000001", "/w", 1)));
        let count = count.unwrap().messages.len();
        assert!(
            count >= last && count.is_multiple_of(10),
            "{count} after {last} at {length}"
        );
        last = count;
        fs::remove_file(&copy).unwrap();
    }
    assert!(last >= 20, "{last}");
}

/// FD08: five thousand kinds of damage. There is no panic, no invented data and no silent loss, and
/// other sessions are unaffected.
#[test]
fn fd08_damage_is_reported_and_contained() {
    let dir = memory_dir();
    let (file, messages) = filled(dir.path(), 60, 10, 30);
    drop(file);
    let whole = fs::read(session::path(dir.path(), &id())).unwrap();
    let texts: BTreeSet<String> = messages.iter().map(Message::visible_text).collect();
    for seed in seeds() {
        in_two_threads(|half| {
            let mut random = fastrand::Rng::with_seed(seed + half as u64);
            let dir = memory_dir();
            let path = session::path(dir.path(), &id());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            for n in 0..1_250 {
                let mut bytes = whole.clone();
                // An empty file is a session without messages.
                let at = random.usize(1..bytes.len());
                let end = (at + random.usize(1..5000)).min(bytes.len());
                match n % 5 {
                    0 => bytes[at] ^= 1 << random.u8(..8),
                    1 => bytes[at / 4096 * 4096..(at / 4096 + 1) * 4096].fill(0),
                    2 => bytes.truncate(at),
                    3 => bytes.extend((0..random.usize(1..5000)).map(|_| random.u8(..))),
                    _ => bytes[at..end].fill(0),
                }
                fs::write(&path, &bytes).unwrap();
                let known = record("ses_00000001", "/w", 1);
                let read = SessionFile::open(dir.path(), &id(), false).and_then(|file| {
                    let first = beginning::read(file.db())
                        .map(|stored| stored.messages)
                        .unwrap_or_default();
                    let mut first = first.iter().filter(|message| !message.parts.is_empty());
                    assert!(
                        first.all(|message| messages.contains(message)),
                        "seed {seed}, {n}: invented at first"
                    );
                    file.load(Some(known.clone()))
                });
                let (read, is_reported) = match read {
                    Ok(stored) => (stored.messages, false),
                    Err(damaged @ Error::Damaged { .. }) => {
                        match salvage::salvage(dir.path(), &id(), Some(known), damaged) {
                            Ok(stored) => {
                                (stored.messages, stored.damage[0].contains("is saved as"))
                            }
                            Err(Error::Damaged { .. }) => {
                                assert_eq!(
                                    fs::read(&path).unwrap(),
                                    bytes,
                                    "what cannot be read stays as it is"
                                );
                                (Vec::new(), true)
                            }
                            Err(e) => panic!("seed {seed}, {n}: {e}"),
                        }
                    }
                    // For example a page count beyond the end: reported, and left alone.
                    Err(Error::Newer { .. } | Error::Unwritable(_)) => (Vec::new(), true),
                    Err(e) => panic!("seed {seed}, {n}: {e}"),
                };
                let good = read.iter().filter(|m| !m.parts.is_empty());
                let good: Vec<String> = good.map(Message::visible_text).collect();
                assert!(
                    good.iter().all(|text| texts.contains(text)),
                    "seed {seed}, {n}: something was invented"
                );
                assert!(
                    is_reported || good.len() == messages.len(),
                    "seed {seed}, {n}: {} of 60, and nothing said",
                    good.len()
                );
                for entry in fs::read_dir(path.parent().unwrap()).unwrap().flatten() {
                    fs::remove_file(entry.path()).ok();
                }
            }
        });
    }
}

/// FD09: twelve files that are not sessions. None is changed, none hides the sessions.
#[tokio::test]
async fn fd09_foreign_files_are_unchanged() {
    let dir = memory_dir();
    let good = record("ses_good0000", "/w", 1);
    {
        let store = Store::start(dir.path());
        store.create(&good).await.unwrap();
        write(&store, &good, &[message("a", &["here"])]).await;
        store.write_record(&good).await;
        store.stop().await;
    }
    let sessions = dir.path().join("sessions");
    let at = |n: usize| sessions.join(format!("ses_strange{n:02}.db"));
    let sql = |path: &Path, sql: &str| {
        rusqlite::Connection::open(path)
            .unwrap()
            .execute_batch(sql)
            .unwrap()
    };
    fs::write(at(0), "").unwrap();
    fs::create_dir(at(1)).unwrap();
    std::os::unix::fs::symlink(sessions.join("ses_good0000.db"), at(2)).unwrap();
    std::os::unix::fs::symlink(dir.path().join("nowhere"), at(3)).unwrap();
    nix::unistd::mkfifo(&at(4), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(at(5), "null").unwrap();
    fs::write(at(6), "{\"adjutant\":1}".repeat(1000)).unwrap();
    sql(
        &at(7),
        "CREATE TABLE other (x); INSERT INTO other VALUES (1);",
    );
    sql(&at(8), "CREATE TABLE session (x); PRAGMA user_version = 4;");
    sql(
        &at(9),
        "CREATE TABLE session (x); CREATE TABLE strange (x); PRAGMA user_version = 1;",
    );
    sql(
        &at(10),
        "CREATE TABLE session (x); PRAGMA user_version = -1;",
    );
    fs::write(
        at(11),
        fs::read(sessions.join("ses_good0000.db"))
            .unwrap()
            .split_at(100)
            .0,
    )
    .unwrap();
    let bytes = |path: &PathBuf| {
        fs::symlink_metadata(path)
            .unwrap()
            .is_file()
            .then(|| fs::read(path).unwrap())
    };
    let before: Vec<_> = (0..12).map(|n| bytes(&at(n))).collect();
    fs::remove_file(dir.path().join("index.db")).unwrap();
    let store = Store::start(dir.path());
    let listed = store.list(None, None, 100).await.unwrap();
    assert_eq!(
        listed.sessions,
        std::slice::from_ref(&good),
        "the index is made again, without them"
    );
    for (n, before) in before.iter().enumerate() {
        let id = SessionId::new(format!("ses_strange{n:02}"));
        let loaded = store.load(&id).await;
        assert!(loaded.is_err(), "{n}: {loaded:?}");
        assert!(store.peek(&id).await.is_err(), "{n}");
        assert_eq!(bytes(&at(n)), *before, "{n} was changed");
    }
    assert_eq!(store.load(&good.id).await.unwrap().messages.len(), 1);
}

/// FD11: a network file system has no shared memory, so no write-ahead log is used there.
#[test]
fn fd11_network_file_has_no_log() {
    let dir = memory_dir();
    fs::create_dir_all(dir.path().join("sessions")).unwrap();
    let path = session::path(dir.path(), &id());
    session::private_file(&path).unwrap();
    let mut file = SessionFile::open_at(path.clone(), &id(), true).unwrap();
    file.write(&entries(&[message("a", &["x"])]), true).unwrap();
    assert!(!wal::path(&path).exists());
    drop(file);
    // The same file is opened where memory can be shared.
    let file = SessionFile::open_at(path, &id(), false).unwrap();
    assert_eq!(file.load(None).unwrap().messages.len(), 1);
}

/// FD12: the clock jumps. The order is that of writing, and ids do not repeat.
#[tokio::test]
async fn fd12_order_is_independent_of_the_clock() {
    const DAY: u64 = 86_400_000;
    let now = 1_795_252_200_000;
    for clock in [
        [now, now - DAY],
        [now, now + 3650 * DAY],
        [now, 1],
        [(1 << 36) - 1, 1 << 36],
        [now, now - 1],
    ] {
        let dir = memory_dir();
        let vars = [("HOME".to_owned(), dir.path().display().to_string())].into();
        let environment = Environment::from_vars(vars);
        let store = Store::start(dir.path());
        let record = Record::new(id(), "/w".into(), environment.now());
        store.create(&record).await.unwrap();
        let mut written = Vec::new();
        for n in 0..200 {
            environment.set_now(Timestamp(clock[n % 2]));
            let message = Message {
                created: environment.now(),
                ..message(&environment.fresh("msg"), &["x"])
            };
            write(&store, &record, std::slice::from_ref(&message)).await;
            written.push(message);
        }
        store.flush(&record.id).await.unwrap();
        assert_eq!(store.load(&record.id).await.unwrap().messages, written);
        assert_eq!(
            written
                .iter()
                .map(|m| m.id.clone())
                .collect::<BTreeSet<_>>()
                .len(),
            200
        );
    }
}

/// FD15: a session is deleted while it is read: the reader gets all of it or nothing.
#[test]
fn fd15_reader_of_deleted_session_gets_all_or_nothing() {
    let dir = memory_dir();
    for n in 0..100 {
        let (file, messages) = filled(dir.path(), 50, 10, 20);
        drop(file);
        let known = record("ses_00000001", "/w", 1);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| peek::peek(dir.path(), &id(), Some(known.clone())));
            let path = session::path(dir.path(), &id());
            std::thread::sleep(std::time::Duration::from_micros(n * 20)); // the place of the race, not its outcome
            for suffix in ["-wal", "-journal", "-shm", ""] {
                fs::remove_file(with_suffix(&path, suffix)).ok();
            }
            match reader.join().unwrap() {
                Ok(stored) => assert_eq!(stored.messages.len(), messages.len()),
                Err(Error::NotFound(_) | Error::Unwritable(_) | Error::Damaged { .. }) => {}
                Err(e) => panic!("{e}"),
            }
        });
    }
}

/// FD16: no other user can read anything, and loose permissions are tightened.
#[tokio::test]
async fn fd16_files_are_private_to_the_owner() {
    use std::os::unix::fs::PermissionsExt;
    let dir = memory_dir();
    let sessions = dir.path().join("sessions");
    fs::create_dir_all(&sessions).unwrap();
    fs::set_permissions(&sessions, fs::Permissions::from_mode(0o755)).unwrap();
    drop(filled(dir.path(), 1, 1, 1));
    let path = session::path(dir.path(), &id());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let store = Store::start(dir.path());
    store.load(&id()).await.unwrap();
    write(
        &store,
        &record("ses_00000001", "/w", 1),
        &[message("z", &["x"])],
    )
    .await;
    store.flush(&id()).await.unwrap();
    let mut folders = vec![dir.path().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            let wanted = if entry.path().is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, wanted, "{}", entry.path().display());
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
}
