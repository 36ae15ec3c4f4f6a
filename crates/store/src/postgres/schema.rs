//! The database format, as numbered migration steps. The missing steps run in one transaction. A
//! released step is never changed. A database of a newer format is refused.
//!
//! The steps use only features that PostgreSQL 15 and compatible databases have in common: no
//! extensions, triggers or sequences.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::fault::DatabaseFault;
use crate::Error;

/// The newest format that this version knows.
pub(super) const FORMAT: i64 = 3;

const STEPS: [&str; 3] = [
    "
    CREATE TABLE owner (
        instance text PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL, until timestamptz NOT NULL);
    CREATE TABLE lease (
        session text PRIMARY KEY, epoch bigint NOT NULL, instance text, wanted boolean NOT NULL DEFAULT false);
    CREATE INDEX lease_by_instance ON lease (instance);
    CREATE TABLE session (
        id text COLLATE \"C\" PRIMARY KEY, cwd text NOT NULL, parent text, updated bigint NOT NULL,
        archived boolean NOT NULL, shown boolean NOT NULL, said boolean NOT NULL, named boolean NOT NULL,
        data bytea NOT NULL);
    CREATE INDEX session_by_time ON session (updated DESC, id DESC) WHERE shown;
    CREATE INDEX session_by_cwd ON session (cwd, updated DESC, id DESC) WHERE shown;
    CREATE INDEX session_by_parent ON session (parent);
    CREATE TABLE message (
        session text NOT NULL, seq bigint NOT NULL, id text NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (session, id));
    CREATE TABLE part (
        session text NOT NULL, seq bigint NOT NULL, id text NOT NULL, message text NOT NULL, data bytea NOT NULL,
        PRIMARY KEY (session, id));
    CREATE INDEX part_by_message ON part (session, message);
    CREATE TABLE allowed (
        project text NOT NULL, agent text NOT NULL, permission text NOT NULL, pattern text NOT NULL,
        given bigint NOT NULL, PRIMARY KEY (project, agent, permission, pattern));
    CREATE TABLE chosen (project text PRIMARY KEY, models text NOT NULL);
",
    "
    CREATE TABLE content (
        session text NOT NULL, name text NOT NULL, data bytea NOT NULL, PRIMARY KEY (session, name));
    CREATE INDEX content_by_name ON content (name);
    CREATE TABLE trust (project text PRIMARY KEY, entry text NOT NULL);
    ALTER TABLE session ADD COLUMN project text;
    CREATE INDEX session_by_project ON session (project, updated DESC, id DESC) WHERE shown;
    CREATE TABLE task (
        session text PRIMARY KEY, number bigint NOT NULL, state text NOT NULL, instance text,
        tries bigint NOT NULL DEFAULT 0, cancel boolean NOT NULL DEFAULT false, before bigint NOT NULL,
        work text NOT NULL, outcome text);
    ALTER TABLE lease ADD COLUMN cancel boolean NOT NULL DEFAULT false;
    CREATE INDEX task_by_number ON task (number) WHERE state IN ('waiting', 'running');
",
    // The tables are locked in the order in which concurrent writers of the earlier format lock
    // them. Such a writer does not know `lease.searched` and need not reset it: it incremented the
    // epoch when it took the session. `unsearched` is a stored column, because PostgreSQL collects
    // statistics on columns, but can only guess how many rows satisfy a comparison.
    "
    LOCK TABLE lease, session IN ACCESS EXCLUSIVE MODE;
    ALTER TABLE session ALTER COLUMN cwd TYPE text COLLATE \"C\", ALTER COLUMN project TYPE text COLLATE \"C\";
    CREATE INDEX session_unsaid ON session (id) WHERE NOT said AND NOT named;
    ALTER TABLE lease ADD COLUMN searched bigint,
        ADD COLUMN unsearched boolean GENERATED ALWAYS AS (searched IS DISTINCT FROM epoch) STORED;
    CREATE INDEX lease_unsearched ON lease (session) WHERE unsearched;
    CREATE TABLE word (
        session text COLLATE \"C\" NOT NULL REFERENCES session ON DELETE CASCADE, message text NOT NULL,
        grams smallint[], PRIMARY KEY (session, message));
    CREATE INDEX word_by_gram ON word USING gin (grams) WITH (fastupdate = off);
    CREATE INDEX word_of_any ON word (session) WHERE grams IS NULL;
",
];

/// The statements that convert a database of the third format into one of the second.
#[cfg(test)]
pub(super) const UNDO_THIRD: &str =
    "DROP TABLE word; ALTER TABLE lease DROP COLUMN unsearched, DROP COLUMN searched;
    DROP INDEX session_unsaid; ALTER TABLE session ALTER COLUMN cwd TYPE text COLLATE \"default\",
    ALTER COLUMN project TYPE text COLLATE \"default\"; UPDATE format SET number = 2;";

/// Ensures that the tables exist and have the current format, and sets the search path.
pub(super) async fn prepare(client: &Client, namespace: &str) -> Result<(), DatabaseFault> {
    client
        .batch_execute(&format!("SET search_path TO \"{namespace}\""))
        .await?;
    if stored_format(client, namespace).await? == Some(FORMAT) {
        return Ok(());
    }
    // Concurrent processes take turns. A broken connection ends the transaction.
    client.batch_execute("BEGIN").await?;
    let migrated = migrate(client, namespace).await;
    let end = if migrated.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    let ended = client.batch_execute(end).await;
    migrated?;
    Ok(ended?)
}

async fn migrate(client: &Client, namespace: &str) -> Result<(), DatabaseFault> {
    let lock_key = i64::from(crc32fast::hash(format!("adjutant {namespace}").as_bytes()));
    client
        .query_typed(
            "SELECT pg_advisory_xact_lock($1)",
            &[(&lock_key, Type::INT8)],
        )
        .await?;
    let exists = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";
    // A user of an existing schema may have no permission to create one.
    if client
        .query_typed(exists, &[(&namespace, Type::TEXT)])
        .await?
        .is_empty()
    {
        client
            .batch_execute(&format!("CREATE SCHEMA \"{namespace}\""))
            .await?;
    }
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS format (one boolean PRIMARY KEY, number bigint NOT NULL)",
        )
        .await?;
    let found = stored_format(client, namespace).await?.unwrap_or(0);
    if found > FORMAT {
        return Err(Error::NewerDatabase {
            found,
            known: FORMAT,
        }
        .into());
    }
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        client.batch_execute(step).await?;
    }
    let number = "INSERT INTO format (one, number) VALUES (true, $1) ON CONFLICT (one) DO UPDATE SET number = $1";
    client.query_typed(number, &[(&FORMAT, Type::INT8)]).await?;
    Ok(())
}

/// Returns the format of an existing database; `None` if there is none.
async fn stored_format(client: &Client, namespace: &str) -> Result<Option<i64>, DatabaseFault> {
    let exists =
        "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'format'";
    if client
        .query_typed(exists, &[(&namespace, Type::TEXT)])
        .await?
        .is_empty()
    {
        return Ok(None);
    }
    let rows = client.query_typed("SELECT number FROM format", &[]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}
