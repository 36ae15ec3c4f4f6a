//! The number of rows that the database reads for a list or a search, with few sessions and with
//! many.

use base::store_location::DatabaseLocation;
use serde_json::Value;
use tokio_postgres::Client;

use super::*;

/// Builds statements that create sessions in twenty directories, ten of them in a small project
/// with directories below it, and their words: the first message of each has `1` and `2`, that of
/// ten sessions `7` as well. Five in a hundred are subagents of one session.
fn fill(namespace: &str, sessions: usize) -> String {
    format!(
        "SET search_path TO {namespace};
         TRUNCATE session CASCADE; TRUNCATE lease;
         INSERT INTO session (id, cwd, parent, updated, archived, shown, said, named, data, project)
         SELECT 'ses_' || lpad(n::text, 8, '0'),
             CASE WHEN n % ({sessions} / 10) = 0 THEN '/small/' || n * 10 / {sessions} ELSE '/w/' || n % 20 END,
             CASE WHEN n % 20 = 1 AND n < 400 THEN 'ses_00000002' END, n, n % 7 = 0, NOT (n % 20 = 1 AND n < 400),
             true, false, decode(repeat('00', 400), 'hex'), 'git:' || n % 20
         FROM generate_series(1, {sessions}) n;
         INSERT INTO lease (session, epoch, searched) SELECT id, 1, 1 FROM session;
         INSERT INTO word (session, message, grams)
         SELECT id, 'm' || m, CASE WHEN m > 1 THEN '{{2, 3, 4}}'::smallint[]
             WHEN updated % ({sessions} / 10) = 0 THEN '{{1, 2, 7}}' ELSE '{{1, 2}}' END
         FROM session, generate_series(1, 3) m;
         ANALYZE session, lease, word"
    )
}

/// Returns the number of rows that a statement reads, and its plan.
async fn reads(client: &Client, sql: &str) -> (f64, Vec<String>) {
    let values = [
        "9223372036854775807",
        "'z'",
        "51",
        "'/small'",
        "'git:/small'",
        "'/small/'",
        "'git:/small//'",
    ];
    let mut sql = sql.to_owned();
    for (n, value) in values.iter().enumerate() {
        sql = sql.replace(&format!("${}", n + 1), value);
    }
    let output = client
        .simple_query(&format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}"))
        .await
        .unwrap();
    let text = output.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: Value = serde_json::from_str(text.unwrap()).unwrap();
    let mut read = 0.0;
    let mut nodes = Vec::new();
    add_scans(&plan[0]["Plan"], &mut read, &mut nodes);
    (read, nodes)
}

/// Adds up the rows that the scans of a plan read, and lists its steps.
fn add_scans(node: &Value, read: &mut f64, nodes: &mut Vec<String>) {
    let number = |name: &str| node[name].as_f64().unwrap_or_default();
    let kind = node["Node Type"].as_str().unwrap_or_default();
    let index = node["Index Name"].as_str().unwrap_or_default();
    if kind.contains("Scan") {
        let rows = number("Actual Rows")
            + number("Rows Removed by Filter")
            + number("Rows Removed by Index Recheck");
        *read += rows * number("Actual Loops");
    }
    nodes.push(format!(
        "{kind} {} {index}",
        node["Relation Name"].as_str().unwrap_or_default()
    ));
    for child in node["Plans"].as_array().into_iter().flatten() {
        add_scans(child, read, nodes);
    }
}

/// Each statement reads about as many rows of twenty thousand sessions as of two thousand, and
/// scans no table completely.
#[tokio::test]
async fn list_and_search_read_rows_of_one_page() {
    let Some(database) = Database::get() else {
        return;
    };
    let location = DatabaseLocation::new(&database.fresh(60));
    let store = store(&location);
    store.list(None, None, 1).await.unwrap();
    let (client, namespace) = direct_client(&location).await;
    let all = ListQuery::default();
    let here = |cwd: &str| ListQuery {
        cwd: Some(cwd.into()),
        ..ListQuery::default()
    };
    let project = ListQuery {
        is_recursive: true,
        ..here("/small")
    };
    let grams = |sql: &str, grams: &str| sql.replace("$8", &format!("'{{{grams}}}'"));
    let newest =
        "ARRAY(SELECT id FROM session WHERE shown ORDER BY updated DESC, id DESC LIMIT 64)";
    let among = find::CANDIDATES_AMONG
        .replace("$1", newest)
        .replace("$2", "'{1, 2}'");
    let ids = queries::IDS_WITH_PREFIX
        .replace("$1", "'ses_0000001'")
        .replace("$2", "'ses_0000002'")
        .replace("$3", "9");
    let kept = ListQuery {
        archived: Some(false),
        ..here("/w/3")
    };
    // Each with the indexes that it is expected to use.
    let table: Vec<(&str, String, &[&str])> = vec![
        ("page", queries::page_sql(&all), &["session_by_time"]),
        (
            "directory",
            queries::page_sql(&kept),
            &["session_by_cwd", "session_by_project"],
        ),
        (
            "project",
            queries::page_sql(&project),
            &["session_by_cwd", "session_by_project"],
        ),
        (
            "children",
            queries::CHILDREN.replace("$1", "'ses_00000002'"),
            &["session_by_parent"],
        ),
        ("beginning", ids, &["session_pkey"]),
        (
            "neighbours",
            queries::NEIGHBOURS.replace("$1", newest),
            &["session_pkey"],
        ),
        (
            "unsaid",
            queries::NEVER_PROMPTED.to_owned(),
            &["session_unsaid"],
        ),
        (
            "unindexed",
            backfill::LEFT.replace("$1", "NULL").replace("$2", "64"),
            &["lease_unsearched"],
        ),
        ("among the newest", among, &["word_pkey"]),
        (
            "rare word",
            grams(&find::candidates(&all), "1,2,7"),
            &["word_by_gram", "lease_unsearched"],
        ),
        (
            "frequent word",
            grams(&find::candidates(&all), "2"),
            &["session_by_time"],
        ),
        (
            "rare word of a project",
            grams(&find::candidates(&project), "1,2,7"),
            &[],
        ),
    ];
    let mut few = Vec::new();
    for sessions in [2_000, 20_000] {
        client
            .batch_execute(&fill(&namespace, sessions))
            .await
            .unwrap();
        for (n, (name, sql, indexes)) in table.iter().enumerate() {
            let (read, nodes) = reads(&client, sql).await;
            if sessions == 2_000 {
                few.push(read);
                continue;
            }
            assert!(
                read <= few[n] * 1.5 + 20.0,
                "{name}: {} and {read} rows: {nodes:#?}",
                few[n]
            );
            let goes_by = |index: &&str| nodes.iter().any(|node| node.ends_with(*index));
            assert!(indexes.iter().all(goes_by), "{name}: {nodes:#?}");
            let whole = nodes.iter().find(|node| {
                ["Seq Scan session", "Seq Scan word", "Seq Scan lease"]
                    .iter()
                    .any(|scan| node.starts_with(scan))
            });
            assert_eq!(whole, None, "{name}: {nodes:#?}");
        }
    }
    store.stop().await;
}
