//! Sessions in a database: owners that are killed, or stopped for so long that another process
//! takes their session, and a database that is restarted. `ADJUTANT_LEASES=n` kills n owners.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base::id::SessionId;
use base::store_location::{DatabaseLocation, StoreLocation};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use store::{Error, Store, StoredSession};

use super::{Writer, acknowledged, keep, stored_message};
use crate::client::Client;
use crate::database::Database;
use crate::model::{self, Model};
use crate::parallel::run_in_parallel;
use crate::project::Project;
use crate::runtime::block_on;

/// Opens the store at an address, or in a directory.
pub fn store(location: &str) -> Store {
    if !location.contains("://") {
        return Store::start(Path::new(location));
    }
    let location = StoreLocation::Database(DatabaseLocation::new(location));
    Store::open(move || location)
}

const ID: &str = "ses_00000001";

/// Opens a session as soon as its former owner's lease has expired; `None` if it has no messages.
async fn load_when_free(store: &Store) -> Option<StoredSession> {
    let start = Instant::now();
    loop {
        match store.load(&SessionId::new(ID)).await {
            Err(Error::Locked { .. }) => {
                assert!(
                    start.elapsed() < Duration::from_secs(30),
                    "it is never free"
                );
                tokio::time::sleep(Duration::from_millis(50)).await; // asked again
            }
            Err(Error::NotFound(_)) => return None,
            loaded => return Some(loaded.unwrap()),
        }
    }
}

/// Returns the number of messages, each whole and in its place. The last one may lack its part,
/// which was not reported as safe.
fn whole(stored: Option<StoredSession>) -> usize {
    let mut messages = stored.map(|stored| stored.messages).unwrap_or_default();
    messages.pop_if(|last| last.parts.is_empty());
    for (number, message) in messages.iter().enumerate() {
        assert_eq!(*message, stored_message(number));
    }
    messages.len()
}

/// Kills owners: the next owner has all acknowledged data.
pub fn killed_owner_in_a_database_loses_nothing_acknowledged() {
    const AT_ONCE: usize = 4;
    let Some(database) = Database::get() else {
        return;
    };
    let kills = std::env::var("ADJUTANT_LEASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(24);
    let longest = AtomicU64::new(0);
    run_in_parallel(AT_ONCE, |number| {
        let url = database.fresh(1);
        let mut random = fastrand::Rng::with_seed(number as u64);
        let mut safe = 0;
        for _ in 0..kills / AT_ONCE {
            let mut writer = Writer::start("append", ID, Path::new(&url));
            writer.until("ready");
            thread::sleep(Duration::from_micros(random.u64(..30_000))); // the moment of the kill
            safe = safe.max(acknowledged(&writer.kill()).map_or(0, |last| last + 1));
            let start = Instant::now();
            let kept = whole(block_on(async {
                let store = store(&url);
                let stored = load_when_free(&store).await;
                // The lease of a second, and the tolerance beyond it.
                longest.fetch_max(start.elapsed().as_millis() as u64, Ordering::Relaxed);
                store.stop().await;
                stored
            }));
            assert!(kept >= safe, "{kept} of {safe} that were acknowledged");
            safe = kept;
        }
    });
    let longest = longest.load(Ordering::Relaxed);
    eprintln!(
        "{kills} owners were killed; the longest wait for a session was {longest} ms, with a lease of 1,000"
    );
    assert!(longest < 1_000 + 2_000, "{longest}");
}

/// Stops an owner until its lease has expired: later writes are refused and were not reported as
/// safe.
pub fn owner_stopped_for_longer_than_its_lease_writes_nothing() {
    let Some(database) = Database::get() else {
        return;
    };
    let url = database.fresh(1);
    let mut writer = Writer::start("append", ID, Path::new(&url));
    writer.until("20");
    let pid = Pid::from_raw(i32::try_from(writer.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let (before, after) = block_on(async {
        let store = store(&url);
        let before = whole(load_when_free(&store).await);
        kill_process(pid, Signal::CONT).unwrap();
        // Both write.
        for number in before..before + 30 {
            keep(&store, &SessionId::new(ID), number).await.unwrap();
        }
        store.stop().await;
        (before, before + 30)
    });
    writer.until(&format!("lost {}", before + 1));
    let output = writer.kill();
    assert!(before > 20, "{before}");
    assert!(
        acknowledged(&output).is_none_or(|last| last < before),
        "reported as safe when it was not: {output}"
    );
    let stored = block_on(async {
        let store = store(&url);
        let stored = store.peek(&SessionId::new(ID)).await.unwrap();
        store.stop().await;
        stored
    });
    let expected: Vec<_> = (0..after).map(stored_message).collect();
    assert_eq!(stored.messages, expected);
}

/// Restarts the database in a turn: the turn continues, the user gets one notice, and everything is
/// stored afterwards.
pub fn database_restarted_in_a_turn_is_used_again() {
    let Ok(database) = Database::start() else {
        return;
    };
    let call = |n: u32| format!("call bash {}\n", json!({ "command": format!("echo {n}") }));
    let script = format!(
        "text: First.\n{}---\ntext: Second.\n{}---\ntext: Third.\n",
        call(1),
        call(2)
    );
    let model = Model::start(model::script(&script).unwrap());
    let project = Arc::new(Project::new());
    let store =
        json!({ "store": { "url": database.fresh(15) }, "permission": { "bash": "allow" } });
    project.provider(&model.base(), &store);
    let mut client = Client::new(project.clone());
    let session = client.open();
    client.prompt(2, &session, "Count.");
    while client.receive()["params"]["update"]["content"]["text"] != "First." {}
    database.control(&["stop", "-m", "immediate"]);
    let (ended, updates) = client.answer(2);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    let notice = updates
        .iter()
        .filter(|update| update.to_string().contains("not being saved"))
        .count();
    assert!(notice <= 1, "{updates:?}");
    database.control(&["start"]);
    let cwd = project.cwd();
    let start = Instant::now();
    // In another process, which asks for it.
    let mut other = Client::new(project);
    let mut id = 2;
    let updates = loop {
        other.request(
            id,
            "session/load",
            &json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] }),
        );
        let (loaded, updates) = other.answer(id);
        let whole = updates
            .iter()
            .any(|update| update["content"]["text"] == "Third.");
        if loaded.get("result").is_some() && whole {
            break updates;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{loaded}: {updates:?}"
        );
        thread::sleep(Duration::from_millis(100)); // asked again
        id += 1;
    };
    for words in ["First.", "Second.", "Third."] {
        assert!(
            updates
                .iter()
                .any(|update| update["content"]["text"] == words),
            "{updates:?}"
        );
    }
    client.leave();
    other.leave();
}
