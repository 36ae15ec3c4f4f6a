//! Tests of the database backend: leases, and an unreachable database.

mod plans;
mod search;

use std::time::Duration;

use super::*;
use crate::tests::database::Database;
use crate::tests::{message, record, write};
use crate::{Error, ListQuery, OwnerRequest, Store};
use base::environment::Timestamp;
use base::id::SessionId;
use base::store_location::StoreLocation;

fn store(location: &DatabaseLocation) -> Store {
    let location = StoreLocation::Database(location.clone());
    Store::open(move || location)
}

fn id() -> SessionId {
    SessionId::new("ses_00000001")
}

/// A request arrives at once, and a session can be loaded after its owner has closed it.
#[tokio::test]
async fn requested_session_is_handed_over() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(30));
    let first = store(&location);
    let other = store(&location);
    let record = record(id().as_str(), "/w", 1);
    first.create(&record).await.unwrap();
    write(&first, &record, &[message("a", &["one"])]).await;
    first.flush(&id()).await.unwrap();
    let mut requests = first.receive_takeover_requests().await.unwrap();
    let Err(Error::Locked { holder, .. }) = other.load(&id()).await else {
        panic!("it was given twice")
    };
    assert_eq!(holder.pid, Some(std::process::id()));
    let patience = other.request_takeover(&holder, &id()).await.unwrap();
    assert!(
        patience > Duration::from_secs(30),
        "whoever is gone has it for that long"
    );
    assert_eq!(requests.next().await, Some(OwnerRequest::TakeOver(id())));
    first.close(&id()).await;
    assert_eq!(other.load(&id()).await.unwrap().messages.len(), 1);
    first.stop().await;
    other.stop().await;
}

/// A process that does not renew its lease loses its session, and learns that when it writes.
#[tokio::test]
async fn write_of_former_owner_is_refused() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let first = store(&location);
    let other = store(&location);
    let record = record(id().as_str(), "/w", 1);
    first.create(&record).await.unwrap();
    write(&first, &record, &[message("a", &["one"])]).await;
    first.flush(&id()).await.unwrap();
    let mut requests = first.receive_takeover_requests().await.unwrap();
    // As if it had been suspended for longer than its lease.
    let (client, namespace) = direct_client(&location).await;
    let expire = format!("UPDATE {namespace}.owner SET until = now() - interval '1 s'");
    let taken = loop {
        client.batch_execute(&expire).await.unwrap();
        match other.load(&id()).await {
            // It has renewed its lease in the meantime.
            Err(Error::Locked { .. }) => {}
            loaded => break loaded.unwrap(),
        }
    };
    assert_eq!(taken.messages.len(), 1);
    write(&first, &record, &[message("late", &["nobody has this"])]).await;
    assert_eq!(first.flush(&id()).await, Err(Error::TakenOver(id())));
    assert_eq!(requests.next().await, Some(OwnerRequest::TakeOver(id())));
    write(&other, &record, &[message("b", &["two"])]).await;
    other.flush(&id()).await.unwrap();
    let names: Vec<String> = first
        .peek(&id())
        .await
        .unwrap()
        .messages
        .iter()
        .map(|first| first.id.to_string())
        .collect();
    assert_eq!(names, ["a", "b"]);
    // It can still write its other sessions.
    let next = crate::Record::new(SessionId::new("ses_00000002"), "/w".into(), Timestamp(1));
    first.create(&next).await.unwrap();
    write(&first, &next, &[message("c", &["three"])]).await;
    first.flush(&next.id).await.unwrap();
}

/// Errors of a list do not mention saving, and state the cause once.
#[tokio::test]
async fn list_error_states_cause_once() {
    let store = store(&DatabaseLocation::new(
        "postgres://nobody@127.0.0.1:1/none?sslmode=disable",
    ));
    for _ in 0..2 {
        let result = store.list(None, None, 10).await.unwrap_err().to_string();
        assert_eq!(
            result.matches("the database cannot be reached").count(),
            1,
            "{result}"
        );
        assert!(
            result.starts_with("the sessions could not be listed: ") && !result.contains("saved"),
            "{result}"
        );
    }
    store.stop().await;
}

/// The server is stopped and restarted: later messages are pending, which is reported, and are
/// there afterwards.
#[tokio::test]
async fn unreachable_database_is_written_after_restart() {
    let Ok(database) = Database::start() else {
        return;
    };
    let mut location = DatabaseLocation::new(&database.fresh(60));
    location.outage_limits.bytes = 10_000;
    let first = store(&location);
    let record = record(id().as_str(), "/w", 1);
    first.create(&record).await.unwrap();
    write(&first, &record, &[message("a", &["one"])]).await;
    first.flush(&id()).await.unwrap();
    database.control(&["stop", "-m", "immediate"]);
    write(&first, &record, &[message("b", &["two"])]).await;
    // The failure is detected by the first write.
    let result = first.flush(&id()).await;
    assert!(matches!(result, Err(Error::Unreachable(_))), "{result:?}");
    first.await_written(&id()).await;
    let later = crate::Record::new(SessionId::new("ses_00000002"), "/w".into(), Timestamp(1));
    assert!(matches!(
        first.create(&later).await,
        Err(Error::Unreachable(_))
    ));
    write(&first, &later, &[message("c", &["three"])]).await;
    // More than the limit.
    let noise: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
    write(&first, &record, &[message("d", &[&noise])]).await;
    let result = first.flush(&id()).await;
    assert!(matches!(result, Err(Error::OutageTooLong(_))), "{result:?}");
    database.control(&["start"]);
    flushed(&first, &record.id).await;
    flushed(&first, &later.id).await;
    first.stop().await;
    let again = store(&location);
    assert_eq!(again.load(&id()).await.unwrap().messages.len(), 3);
    assert_eq!(again.load(&later.id).await.unwrap().messages.len(), 1);
    again.stop().await;
}

#[tokio::test]
async fn newer_format_is_refused_and_concurrent_start_works() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let stores: Vec<Store> = (0..8).map(|_| store(&location)).collect();
    let lists = stores.iter().map(|store| store.list(None, None, 9));
    for listed in futures_util::future::join_all(lists).await {
        assert_eq!(listed.unwrap().sessions, []);
    }
    let (client, namespace) = direct_client(&location).await;
    client
        .batch_execute(&format!("UPDATE {namespace}.format SET number = 99"))
        .await
        .unwrap();
    let refused = store(&location).list(None, None, 9).await;
    assert_eq!(
        refused,
        Err(Error::NewerDatabase {
            found: 99,
            known: schema::FORMAT
        })
    );
}

#[expect(clippy::disallowed_methods, reason = "a task of a test")]
async fn direct_client(location: &DatabaseLocation) -> (tokio_postgres::Client, String) {
    let address = address::parse(location).unwrap();
    let (client, connection) = address.config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    (client, address.namespace)
}

async fn flushed(store: &Store, id: &SessionId) {
    let start = std::time::Instant::now();
    while store.flush(id).await.is_err() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it is never kept"
        );
        tokio::time::sleep(Duration::from_millis(20)).await; // asked again
    }
}

fn number(store: &Store, name: &str) -> f64 {
    store
        .metrics()
        .iter()
        .find(|number| number.name == name)
        .unwrap()
        .value
}

/// Changes while the database is full wait, up to the limit, and are written once there is space.
#[tokio::test]
async fn full_database_is_written_once_it_has_space() {
    let Some(database) = Database::get() else {
        return;
    };
    let mut location = DatabaseLocation::new(&database.fresh(60));
    location.outage_limits.bytes = 10_000;
    let first = store(&location);
    let record = record(id().as_str(), "/w", 1);
    first.create(&record).await.unwrap();
    write(&first, &record, &[message("a", &["one"])]).await;
    first.flush(&id()).await.unwrap();
    let (client, namespace) = direct_client(&location).await;
    let full = format!(
        "CREATE FUNCTION {namespace}.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON {namespace}.part
            FOR EACH ROW EXECUTE FUNCTION {namespace}.no_room()"
    );
    client.batch_execute(&full).await.unwrap();
    write(&first, &record, &[message("b", &["two"])]).await;
    let result = first.flush(&id()).await;
    assert!(
        matches!(&result, Err(Error::Unreachable(reason)) if reason.contains("No space left")),
        "{result:?}"
    );
    // Operations that need no space continue, and the connection is still open.
    assert_eq!(first.list(None, None, 9).await.unwrap().sessions.len(), 1);
    assert_eq!(number(&first, "adjutant_store_connections_total"), 1.0);
    assert!(number(&first, "adjutant_store_entries_waiting") > 0.0);
    let noise: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
    write(&first, &record, &[message("c", &[&noise])]).await;
    let result = first.flush(&id()).await;
    assert!(matches!(result, Err(Error::OutageTooLong(_))), "{result:?}");
    client
        .batch_execute(&format!("DROP TRIGGER no_room ON {namespace}.part"))
        .await
        .unwrap();
    flushed(&first, &id()).await;
    assert_eq!(number(&first, "adjutant_store_entries_waiting"), 0.0);
    assert!(number(&first, "adjutant_store_flushes_failed_total") >= 2.0);
    first.stop().await;
    let again = store(&location);
    assert_eq!(again.load(&id()).await.unwrap().messages.len(), 3);
    again.stop().await;
}

/// The primary is lost, and its standby replaces it: everything acknowledged is there.
#[tokio::test]
async fn promoted_standby_continues() {
    let Ok(database) = Database::start() else {
        return;
    };
    let Some(dir) = &database.dir else { return };
    let data = dir.join("standby");
    let data = data.to_str().unwrap();
    let log = dir.join("standby.log");
    let log = log.to_str().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .unwrap()
        .port();
    let primary_port = database
        .url
        .split_once("127.0.0.1:")
        .unwrap()
        .1
        .split_once('/')
        .unwrap()
        .0;
    database.program(
        "pg_basebackup",
        &[
            "-h",
            "127.0.0.1",
            "-p",
            primary_port,
            "-U",
            "adjutant",
            "-D",
            data,
            "-R",
            "-c",
            "fast",
        ],
    );
    let own = format!("-p {port}");
    database.program(
        "pg_ctl",
        &["-D", data, "-l", log, "-o", &own, "-w", "start"],
    );
    let both = database
        .url
        .replace(primary_port, &format!("{primary_port},127.0.0.1:{port}"));
    let location = DatabaseLocation::new(&format!("{both}?namespace=standby&lease=60"));
    let (client, _) = direct_client(&location).await;
    // Acknowledged data is on both.
    for line in [
        "ALTER SYSTEM SET synchronous_standby_names = '*'",
        "SELECT pg_reload_conf()",
    ] {
        client.batch_execute(line).await.unwrap();
    }
    let first = store(&location);
    let record = record(id().as_str(), "/w", 1);
    first.create(&record).await.unwrap();
    for n in 0..20 {
        write(&first, &record, &[message(&format!("m{n:02}"), &["said"])]).await;
        first.flush(&id()).await.unwrap();
    }
    database.control(&["stop", "-m", "immediate"]);
    write(&first, &record, &[message("n", &["meanwhile"])]).await;
    let result = first.flush(&id()).await;
    assert!(matches!(result, Err(Error::Unreachable(_))), "{result:?}");
    database.program("pg_ctl", &["-D", data, "-w", "promote"]);
    flushed(&first, &id()).await;
    assert!(number(&first, "adjutant_store_connections_total") >= 2.0);
    first.stop().await;
    let again = store(&location);
    assert_eq!(again.load(&id()).await.unwrap().messages.len(), 21);
    again.stop().await;
}

/// A filled database of the first format, opened by several processes at once.
#[tokio::test]
async fn filled_database_of_first_format_is_upgraded() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let first = store(&location);
    let ids: Vec<SessionId> = (0..20)
        .map(|n| SessionId::new(format!("ses_{n:08}")))
        .collect();
    for id in &ids {
        let record = record(id.as_str(), "/w", 1);
        first.create(&record).await.unwrap();
        for n in 0..10 {
            write(
                &first,
                &record,
                &[message(&format!("m{n}"), &["said", "and more"])],
            )
            .await;
        }
        first.flush(id).await.unwrap();
    }
    let before = first.load(&ids[7]).await.unwrap();
    first.stop().await;
    let (client, namespace) = direct_client(&location).await;
    let back = format!(
        "SET search_path TO {namespace}; {} DROP TABLE content, trust, task; ALTER TABLE session DROP COLUMN project;
        ALTER TABLE lease DROP COLUMN cancel; UPDATE format SET number = 1",
        schema::UNDO_THIRD
    );
    client.batch_execute(&back).await.unwrap();
    let stores: Vec<Store> = (0..4).map(|_| store(&location)).collect();
    let lists = stores.iter().map(|store| store.list(None, None, 99));
    for listed in futures_util::future::join_all(lists).await {
        assert_eq!(listed.unwrap().sessions.len(), 20);
    }
    let found = client
        .query_one("SELECT number FROM format", &[])
        .await
        .unwrap();
    assert_eq!(found.get::<_, i64>(0), schema::FORMAT);
    assert_eq!(
        stores[0].load(&ids[7]).await.unwrap().messages,
        before.messages
    );
    write(&stores[0], &before.record, &[message("new", &["later"])]).await;
    stores[0].flush(&ids[7]).await.unwrap();
    for store in &stores {
        store.stop().await;
    }
    let again = store(&location);
    assert_eq!(again.load(&ids[7]).await.unwrap().messages.len(), 11);
    again.stop().await;
}

#[tokio::test]
async fn invalid_address_is_reported() {
    let table = [
        ("nonsense", "postgres://"),
        ("postgres://u:secret@127.0.0.1:1/d", "cannot be reached"),
        ("postgres://u@localhost/d?namespace=A", "namespace"),
    ];
    for (url, words) in table {
        let store = store(&DatabaseLocation::new(url));
        let message = store.list(None, None, 9).await.unwrap_err().to_string();
        assert!(
            message.contains(words) && !message.contains("secret"),
            "{url}: {message}"
        );
        assert!(store.backend_state().await.unwrap().problem.is_some());
    }
}
