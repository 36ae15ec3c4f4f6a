//! What only a database can do to a session: leases, and being away.

use std::time::Duration;

use super::*;
use crate::environment::Timestamp;
use crate::id::SessionId;
use crate::store::tests::database::Database;
use crate::store::tests::{message, record, write};
use crate::store::{Error, OwnerRequest, Store, StorePlace};

fn store(place: &DatabasePlace) -> Store {
    let place = StorePlace::Database(place.clone());
    Store::open(move || place)
}

fn id() -> SessionId {
    SessionId::new("ses_00000001")
}

/// Who asks is heard at once; who has let go has, and nothing it says later is kept.
#[tokio::test]
async fn a_session_is_asked_for_and_given() {
    let Some(database) = Database::get() else { return };
    let place = DatabasePlace::new(&database.fresh(30));
    let (one, other) = (store(&place), store(&place));
    let record = record(id().as_str(), "/w", 1);
    one.create(&record).await.unwrap();
    write(&one, &record, &[message("a", &["one"])]).await;
    one.flush(&id()).await.unwrap();
    let mut requests = one.requests().await.unwrap();
    let Err(Error::Locked { holder, .. }) = other.load(&id()).await else { panic!("it was given twice") };
    assert_eq!(holder.pid, Some(std::process::id()));
    let patience = other.request(&holder, &id()).await.unwrap();
    assert!(patience > Duration::from_secs(30), "whoever is gone has it for that long");
    assert_eq!(requests.next().await, Some(OwnerRequest::TakeOver(id())));
    one.close(&id()).await;
    assert_eq!(other.load(&id()).await.unwrap().messages.len(), 1);
    one.stop().await;
    other.stop().await;
}

/// A process that does not show that it is alive loses its session, and hears it when it writes.
#[tokio::test]
async fn what_a_former_owner_writes_is_refused() {
    let Some(database) = Database::get() else { return };
    let place = DatabasePlace::new(&database.fresh(60));
    let (one, other) = (store(&place), store(&place));
    let record = record(id().as_str(), "/w", 1);
    one.create(&record).await.unwrap();
    write(&one, &record, &[message("a", &["one"])]).await;
    one.flush(&id()).await.unwrap();
    let mut requests = one.requests().await.unwrap();
    // As if it had been stopped for longer than its lease.
    let address = place.address().unwrap();
    let (client, connection) = address.config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute(&format!("UPDATE {}.owner SET until = now() - interval '1 s'", address.namespace))
        .await
        .unwrap();
    let taken = other.load(&id()).await.unwrap();
    assert_eq!(taken.messages.len(), 1);
    write(&one, &record, &[message("late", &["nobody has this"])]).await;
    assert_eq!(one.flush(&id()).await, Err(Error::TakenOver(id())));
    assert_eq!(requests.next().await, Some(OwnerRequest::TakeOver(id())));
    write(&other, &record, &[message("b", &["two"])]).await;
    other.flush(&id()).await.unwrap();
    let names: Vec<String> = one.peek(&id()).await.unwrap().messages.iter().map(|one| one.id.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    // What it could say about its other sessions it still can.
    let next = crate::store::Record::new(SessionId::new("ses_00000002"), "/w".into(), Timestamp(1));
    one.create(&next).await.unwrap();
    write(&one, &next, &[message("c", &["three"])]).await;
    one.flush(&next.id).await.unwrap();
}

/// Restarted and stopped in the middle: what was said meanwhile is there afterwards, and it was told that it waits.
#[tokio::test]
async fn while_the_database_is_away_it_goes_on_in_memory() {
    let Ok(database) = Database::start() else { return };
    let mut place = DatabasePlace::new(&database.fresh(60));
    place.away.bytes = 10_000;
    let one = store(&place);
    let record = record(id().as_str(), "/w", 1);
    one.create(&record).await.unwrap();
    write(&one, &record, &[message("a", &["one"])]).await;
    one.flush(&id()).await.unwrap();
    database.control(&["stop", "-m", "immediate"]);
    write(&one, &record, &[message("b", &["two"])]).await;
    // It may be noticed with the first thing that is said.
    let told = one.flush(&id()).await;
    assert!(matches!(told, Err(Error::Away(_))), "{told:?}");
    one.handed_over(&id()).await;
    let later = crate::store::Record::new(SessionId::new("ses_00000002"), "/w".into(), Timestamp(1));
    assert!(matches!(one.create(&later).await, Err(Error::Away(_))));
    write(&one, &later, &[message("c", &["three"])]).await;
    // More than may wait.
    let noise: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
    write(&one, &record, &[message("d", &[&noise])]).await;
    let told = one.flush(&id()).await;
    assert!(matches!(told, Err(Error::AwayTooLong(_))), "{told:?}");
    database.control(&["start"]);
    for id in [&record.id, &later.id] {
        let start = std::time::Instant::now();
        while one.flush(id).await.is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "it never came back");
            tokio::time::sleep(Duration::from_millis(20)).await; // asked again
        }
    }
    one.stop().await;
    let again = store(&place);
    assert_eq!(again.load(&id()).await.unwrap().messages.len(), 3);
    assert_eq!(again.load(&later.id).await.unwrap().messages.len(), 1);
    again.stop().await;
}

#[tokio::test]
async fn a_newer_format_is_refused_and_many_may_start_at_once() {
    let Some(database) = Database::get() else { return };
    let place = DatabasePlace::new(&database.fresh(60));
    let stores: Vec<Store> = (0..8).map(|_| store(&place)).collect();
    let lists = stores.iter().map(|store| store.list(None, None, 9));
    for listed in futures_util::future::join_all(lists).await {
        assert_eq!(listed.unwrap().sessions, []);
    }
    let address = place.address().unwrap();
    let (client, connection) = address.config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("UPDATE {}.format SET number = 99", address.namespace)).await.unwrap();
    let refused = store(&place).list(None, None, 9).await;
    assert_eq!(refused, Err(Error::NewerDatabase { found: 99, known: schema::FORMAT }));
}

#[tokio::test]
async fn what_is_wrong_with_an_address_is_said() {
    let table = [
        ("nonsense", "postgres://"),
        ("postgres://u:secret@127.0.0.1:1/d", "away"),
        ("postgres://u@localhost/d?namespace=A", "namespace"),
    ];
    for (url, words) in table {
        let store = store(&DatabasePlace::new(url));
        let said = store.list(None, None, 9).await.unwrap_err().to_string();
        assert!(said.contains(words) && !said.contains("secret"), "{url}: {said}");
        assert!(store.about().await.unwrap().problem.is_some());
    }
}
