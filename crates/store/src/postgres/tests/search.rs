//! Tests of the search index: it hides nothing, and a search reads little.

use base::store_location::DatabaseLocation;
use std::collections::BTreeSet;

use tokio_postgres::Client;

use super::*;
use crate::{RecordChange, SearchHit, StoredSession, search};
use transcript::Message;

const VOCABULARY: [&str; 12] = [
    "Zebra",
    "horse",
    "ÜBERSICHT",
    "übersichtlich",
    "ΟΔΟΣ",
    "部署的时候",
    "\"quoted\"",
    "x",
    "is",
    "zeb",
    "ra",
    "it's",
];

/// Takes a session like a process of a version without the index.
const OLD_TAKE: &str = "INSERT INTO lease AS l (session, epoch, instance) VALUES ($1, 1, $2)
    ON CONFLICT (session) DO UPDATE SET epoch = l.epoch + 1, instance = excluded.instance, wanted = false, cancel = false
    RETURNING epoch";

/// Returns the statement with which such a process writes.
fn old_rows() -> String {
    let (before, after) = rows::ROWS.split_once("unsearched AS").unwrap();
    let (_, end) = after.split_once("IS NOT NULL)").unwrap();
    format!("{} {end}", before.trim_end().trim_end_matches(','))
}

async fn session_with_texts(store: &Store, n: usize, texts: &[String]) -> SessionId {
    let record = record(&format!("ses_{n:08}"), "/w", n as u64);
    store.create(&record).await.unwrap();
    write_texts(store, &record.id, "m", texts).await;
    store.write_record(&record).await;
    store.flush(&record.id).await.unwrap();
    record.id
}

async fn write_texts(store: &Store, id: &SessionId, beginning: &str, texts: &[String]) {
    for (n, text) in texts.iter().enumerate() {
        write(
            store,
            &record(id.as_str(), "/w", 0),
            &[message(&format!("{beginning}{n}"), &[text, "and"])],
        )
        .await;
    }
    store.flush(id).await.unwrap();
}

async fn hits(store: &Store, words: &str) -> Vec<SearchHit> {
    store
        .search(ListQuery::default(), words, 1000)
        .await
        .unwrap()
        .hits
}

async fn names(store: &Store, words: &str) -> Vec<String> {
    hits(store, words)
        .await
        .into_iter()
        .map(|hit| hit.record.id.to_string())
        .collect()
}

/// Returns the sessions that a search for a word reads according to the index.
async fn candidates(client: &Client, namespace: &str, word: &str) -> BTreeSet<String> {
    client
        .batch_execute(&format!("SET search_path TO {namespace}"))
        .await
        .unwrap();
    let sql = literal(
        &find::candidates(&ListQuery {
            limit: 1000,
            ..ListQuery::default()
        }),
        word,
    );
    let sql = sql.replacen("(updated, id) data", "(updated, id) id", 1);
    client
        .query(&sql, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Replaces the parameters of a statement by those of a search for a word.
fn literal(sql: &str, word: &str) -> String {
    let grams = trigrams::Trigrams::wanted(&[word.to_owned()]).unwrap();
    let grams = grams
        .iter()
        .map(i16::to_string)
        .collect::<Vec<_>>()
        .join(",");
    sql.replace("$8", &format!("'{{{grams}}}'"))
        .replace("$1", "9223372036854775807")
        .replace("$2", "'z'")
        .replace("$3", "1001")
}

/// Waits until all sessions are indexed that have no owner or are open here.
async fn wait_until_indexed(client: &Client, namespace: &str) {
    let sql = format!("SELECT count(*) FROM {namespace}.lease WHERE unsearched");
    let start = std::time::Instant::now();
    while client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it is never indexed"
        );
        tokio::time::sleep(Duration::from_millis(20)).await; // asked again
    }
}

#[tokio::test]
async fn search_reads_candidates_and_unindexed_sessions() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let store = store(&location);
    for (n, text) in ["a zebra", "a horse", "another Zebra", "a horse as well"]
        .iter()
        .enumerate()
    {
        let id = session_with_texts(&store, n, &[(*text).to_owned()]).await;
        if n < 3 {
            store.close(&id).await;
        }
    }
    let (client, namespace) = direct_client(&location).await;
    // Closing a session indexes it.
    let two = ["ses_00000000", "ses_00000002"].map(str::to_owned);
    let open = "ses_00000003".to_owned();
    let read = candidates(&client, &namespace, "zebra").await;
    assert!(
        read.is_superset(&two.clone().into()) && !read.contains("ses_00000001"),
        "{read:?}"
    );
    // An open session is indexed after a moment without writes.
    wait_until_indexed(&client, &namespace).await;
    assert_eq!(
        candidates(&client, &namespace, "zebra").await,
        two.clone().into()
    );
    assert_eq!(
        names(&store, "ZEBRA").await,
        ["ses_00000002", "ses_00000000"]
    );
    // New text is found at once, and deleted text is not.
    write_texts(
        &store,
        &SessionId::new(open.as_str()),
        "later",
        &["a giraffe".into()],
    )
    .await;
    assert_eq!(names(&store, "giraffe").await, std::slice::from_ref(&open));
    wait_until_indexed(&client, &namespace).await;
    assert_eq!(
        candidates(&client, &namespace, "giraffe").await,
        [open.clone()].into()
    );
    store
        .truncate_from(
            &SessionId::new(open.as_str()),
            &base::id::MessageId::new("later0"),
        )
        .await;
    store.flush(&SessionId::new(open.as_str())).await.unwrap();
    assert_eq!(names(&store, "giraffe").await, Vec::<String>::new());
    wait_until_indexed(&client, &namespace).await;
    assert_eq!(candidates(&client, &namespace, "giraffe").await, [].into());
    // Its title is searched as well.
    store
        .rename(&SessionId::new(two[0].as_str()), "All about yaks")
        .await
        .unwrap();
    assert_eq!(names(&store, "YAK").await, [two[0].clone()]);
    assert_eq!(
        candidates(&client, &namespace, "yaks").await,
        [two[0].clone()].into()
    );
    for id in two {
        store.delete(&SessionId::new(id)).await.unwrap();
    }
    assert_eq!(names(&store, "zebra").await, Vec::<String>::new());
    let left = format!(
        "SELECT count(*) FROM {namespace}.word WHERE session IN ('ses_00000000', 'ses_00000002')"
    );
    assert_eq!(
        client.query_one(&left, &[]).await.unwrap().get::<_, i64>(0),
        0
    );
    store.stop().await;
}

/// Sessions of random words, some open, some changed since, some of them by a process without the
/// index: a search finds the same as reading all of them one by one.
#[tokio::test]
async fn search_equals_reading_all_sessions() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let first = store(&location);
    let other = store(&location);
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text = || {
        let words = (0..random.usize(1..6)).map(|_| *random.choice(&VOCABULARY).unwrap());
        words.collect::<Vec<_>>().join(" ")
    };
    let mut ids = Vec::new();
    // More sessions than are checked separately.
    for n in 0..150 {
        let texts: Vec<String> = (0..n % 4 + 1).map(|_| text()).collect();
        let id = session_with_texts(&first, n, &texts).await;
        if n % 5 > 0 {
            first.close(&id).await;
        }
        ids.push(id);
    }
    let (client, namespace) = direct_client(&location).await;
    for (n, id) in ids.iter().enumerate() {
        match n % 10 {
            1 => {
                other.load(id).await.unwrap();
                write_texts(&other, id, "later", &[text(), text()]).await;
            }
            2 => {
                other.load(id).await.unwrap();
                other
                    .truncate_from(id, &base::id::MessageId::new("m0"))
                    .await;
                write_texts(&other, id, "instead", &[text()]).await;
                other.close(id).await;
            }
            3 => drop(other.rename(id, &text()).await.unwrap()),
            4 => write_as_old_process(&client, &namespace, id, &text(), n % 20 == 4).await,
            6 if n % 30 == 6 => other.delete(id).await.unwrap(),
            _ => {}
        }
    }
    for round in 0..2 {
        let mut all: Vec<StoredSession> = Vec::new();
        for record in first.list(None, None, 1000).await.unwrap().sessions {
            all.push(first.peek(&record.id).await.unwrap());
        }
        for words in [
            "zebra",
            "ZEB",
            "horse übersicht",
            "bersicht",
            "οδο",
            "部署的",
            "quoted x",
            "is",
            "ra x is",
            "it's",
        ] {
            let wanted = search::split_words(words);
            let expected: Vec<SearchHit> = all
                .iter()
                .filter_map(|stored| {
                    search::search_session(&stored.record, Ok(stored.clone()), &wanted)
                })
                .collect();
            assert!(!expected.is_empty(), "{words}");
            assert_eq!(
                hits(&first, words).await,
                expected,
                "{words} in round {round}, seed {seed}"
            );
            let few = first
                .search(ListQuery::default(), words, 2)
                .await
                .unwrap()
                .hits;
            assert_eq!(
                few,
                expected[..2.min(expected.len())],
                "{words}, seed {seed}"
            );
        }
        // A second round with all of them indexed, except for those that the old process holds.
        let kept = format!(
            "SELECT count(*) FROM {namespace}.lease WHERE unsearched
             AND (instance IS NULL OR instance <> 'before')"
        );
        let start = std::time::Instant::now();
        while client.query_one(&kept, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "it is never indexed"
            );
            tokio::time::sleep(Duration::from_millis(20)).await; // asked again
        }
    }
    first.stop().await;
    other.stop().await;
}

/// Writes a message like a process of the earlier version, and optionally releases the session.
async fn write_as_old_process(
    client: &Client,
    namespace: &str,
    id: &SessionId,
    text: &str,
    closes: bool,
) {
    client
        .batch_execute(&format!("SET search_path TO {namespace}"))
        .await
        .unwrap();
    let epoch: i64 = client
        .query_one(OLD_TAKE, &[&id.as_str(), &"before"])
        .await
        .unwrap()
        .get(0);
    write_old_rows(client, id, epoch, &message("before", &[text])).await;
    if closes {
        client
            .execute(
                "UPDATE lease SET instance = NULL WHERE session = $1",
                &[&id.as_str()],
            )
            .await
            .unwrap();
    }
}

async fn write_old_rows(client: &Client, id: &SessionId, epoch: i64, message: &Message) {
    let write = client
        .prepare_typed(&old_rows(), &rows::TYPES)
        .await
        .unwrap();
    let ids = vec![id.as_str()];
    let none = Vec::<String>::new();
    let data = Vec::<Vec<u8>>::new();
    let numbers = Vec::<i64>::new();
    let booleans = Vec::<bool>::new();
    let absent = Vec::<Option<String>>::new();
    let row = vec![leased::encoded(&serde_json::to_string(message).unwrap())];
    let part = vec![leased::encoded(
        &serde_json::to_string(&message.parts[0]).unwrap(),
    )];
    let of_part = vec![message.parts[0].id.as_str()];
    let message = vec![message.id.as_str()];
    let first = vec![1000_i64];
    let next = vec![1001_i64];
    let epochs = vec![epoch];
    let written = client
        .query(
            &write,
            &[
                &ids, &epochs, &none, &none, &absent, &numbers, &booleans, &booleans, &booleans,
                &booleans, &data, &ids, &first, &message, &row, &ids, &next, &of_part, &message,
                &part, &none, &none, &data, &absent,
            ],
        )
        .await
        .unwrap();
    assert_eq!(written.len(), 1);
}

/// A database of the second format is upgraded while processes write to it: none of them is
/// disturbed, and their later messages are found.
#[tokio::test]
async fn migration_does_not_disturb_old_writers() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let first = store(&location);
    let mut ids = Vec::new();
    for n in 0..20 {
        let id = session_with_texts(&first, n, &[format!("a zebra of {n}")]).await;
        first.close(&id).await;
        ids.push(id);
    }
    first.stop().await;
    let (client, namespace) = direct_client(&location).await;
    client
        .batch_execute(&format!(
            "SET search_path TO {namespace}; {}",
            schema::UNDO_THIRD
        ))
        .await
        .unwrap();
    let epoch: i64 = client
        .query_one(OLD_TAKE, &[&ids[7].as_str(), &"before"])
        .await
        .unwrap()
        .get(0);
    let writes = async {
        for n in 0..40 {
            write_old_rows(
                &client,
                &ids[7],
                epoch,
                &message(&format!("before{n}"), &["a giraffe"]),
            )
            .await;
        }
    };
    let stores: Vec<Store> = (0..4).map(|_| store(&location)).collect();
    let searches = futures_util::future::join_all(stores.iter().map(|store| names(store, "zebra")));
    let ((), found) = tokio::join!(writes, searches);
    assert!(found.iter().all(|found| found.len() == 20), "{found:?}");
    let page = stores[0]
        .search(ListQuery::default(), "giraffe", 9)
        .await
        .unwrap();
    assert_eq!(
        page.hits.iter().map(|hit| hit.messages).collect::<Vec<_>>(),
        [40]
    );
    write_old_rows(&client, &ids[7], epoch, &message("last", &["an ibex"])).await;
    assert_eq!(names(&stores[0], "ibex").await, [ids[7].to_string()]);
    client
        .execute(
            "UPDATE lease SET instance = NULL WHERE session = $1",
            &[&ids[7].as_str()],
        )
        .await
        .unwrap();
    // A long-running process indexes all of them; one search would be enough as well.
    stores[1].empty_sessions().await.unwrap();
    wait_until_indexed(&client, &namespace).await;
    assert_eq!(
        candidates(&client, &namespace, "ibex").await,
        [ids[7].to_string()].into()
    );
    let page = stores[0]
        .search(ListQuery::default(), "ibex", 9)
        .await
        .unwrap();
    assert_eq!((page.hits.len(), page.unindexed), (1, 0));
    for store in &stores {
        store.stop().await;
    }
}

#[tokio::test]
async fn search_for_short_words_ends_with_cut() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let store = store(&location);
    let zero = session_with_texts(&store, 0, &["some xy".into()]).await;
    store.close(&zero).await;
    let (client, namespace) = direct_client(&location).await;
    let others = format!(
        "SET search_path TO {namespace};
         INSERT INTO session (id, cwd, updated, archived, shown, said, named, data)
         SELECT replace(id, '00000', n::text), cwd, n, false, true, true, false,
             convert_to('=' || replace(replace(convert_from(substr(data, 2), 'UTF8'), '00000', n::text),
                 '\"updated\":0', '\"updated\":' || n), 'UTF8')
         FROM session, generate_series(10000, 12000) n WHERE id = '{zero}'"
    );
    client.batch_execute(&others).await.unwrap();
    let page = store.search(ListQuery::default(), "xy", 9).await.unwrap();
    assert_eq!(
        (page.hits.len(), page.cut.map(|cut| cut.sessions)),
        (0, Some(search::MAX_UNINDEXED_READS))
    );
    assert!(
        page.cut.is_some_and(|cut| cut.oldest < Timestamp(12000)),
        "{:?}",
        page.cut
    );
    // If enough is found before the limit, no cut is reported.
    let page = store.search(ListQuery::default(), "of", 9).await.unwrap();
    assert_eq!((page.hits.len(), page.cut), (9, None));
    store.stop().await;
}

#[tokio::test]
async fn unindexed_session_is_indexed_after_loading() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let first = store(&location);
    // More than closing it waits for.
    let mut texts: Vec<String> = (0..50).map(|n| format!("zebra number{n}")).collect();
    // It has more trigrams than are stored.
    let noise: String = (0..40_000).map(|_| fastrand::alphanumeric()).collect();
    texts.push(format!("{noise} needle"));
    let id = session_with_texts(&first, 0, &texts).await;
    let (client, namespace) = direct_client(&location).await;
    client
        .batch_execute(&format!("SET search_path TO {namespace}"))
        .await
        .unwrap();
    first.close(&id).await;
    first.stop().await;
    client
        .batch_execute("DELETE FROM word; UPDATE lease SET searched = NULL")
        .await
        .unwrap();
    let other = store(&location);
    other.load(&id).await.unwrap();
    other
        .queue_record_change(&id, RecordChange::Title("Stripes".into()))
        .await;
    wait_until_indexed(&client, &namespace).await;
    assert_eq!(names(&other, "needle").await, [id.to_string()]);
    for word in ["number0", "number49", "stripes", "needle"] {
        assert_eq!(
            candidates(&client, &namespace, word).await,
            [id.to_string()].into(),
            "{word}"
        );
    }
    let rows: i64 = client
        .query_one("SELECT count(*) FROM word", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(rows, 52);
    // Loading it writes nothing.
    other.close(&id).await;
    other.load(&id).await.unwrap();
    wait_until_indexed(&client, &namespace).await;
    other.stop().await;
}
