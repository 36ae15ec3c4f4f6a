//! The search index, which yields the messages that may contain some words. `find.rs` queries it.
//!
//! A row of `word` belongs to a message, or to the title of a session (with an empty message name),
//! and contains the trigrams of its words, each as a number of 16 bits. Several trigrams share a
//! number: a search may read a session in vain, and misses none. PostgreSQL's own text search only
//! finds whole words, and `pg_trgm` depends on the database's locale, stores each text a second
//! time, and may not be installed.
//!
//! `lease.searched` is the `epoch` at which everything in the session was indexed. Every write
//! resets it in the same statement, and taking a session increments its epoch, so that writes of a
//! process that does not know the index invalidate it too. No caller waits for indexing: an owned
//! session is indexed when it has not been written for a moment, and before it is released;
//! sessions without an owner are indexed in the background (`fill.rs`).

use std::collections::HashMap;

use tokio_postgres::types::Type;

use super::fault::DatabaseFault;
use super::leased::decoded;
use super::pending_index::{MESSAGES_PER_READ, PendingIndex, TITLE};
use super::queries::{SqlParams, record};
use super::trigrams::Trigrams;
use super::worker::Worker;
use crate::Record;
use crate::search::part_text;
use base::id::SessionId;
use base::task;
use transcript::Part;

/// The approximate maximum of numbers in one statement, because the statements of others wait for
/// it.
const MAX_STATEMENT_TRIGRAMS: usize = 4096;

/// Writes rows, and removes those of messages without text, unless another process has taken the
/// session. The commit is not synced: after a crash, the mark that follows is lost as well.
const PUT: &str = "WITH fence AS (
        SELECT l.session FROM lease l, (SELECT set_config('synchronous_commit', 'off', true)) AS quick
        WHERE l.session = $1 AND l.epoch = $2 AND (l.instance IS NULL OR l.instance = $3) FOR UPDATE OF l),
    put AS (
        INSERT INTO word (session, message, grams)
        SELECT f.session, r.message, r.grams::smallint[] FROM fence f, unnest($4::text[], $5::text[]) AS r(message, grams)
        ON CONFLICT (session, message) DO UPDATE SET grams = excluded.grams
            WHERE word.grams IS DISTINCT FROM excluded.grams),
    gone AS (DELETE FROM word w USING fence f WHERE w.session = f.session AND w.message = ANY($6::text[]))
    SELECT session FROM fence";

/// Marks a session as indexed.
const MARK: &str = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true))
    UPDATE lease l SET searched = l.epoch FROM quick
    WHERE l.session = $1 AND l.epoch = $2 AND (l.instance IS NULL OR l.instance = $3) RETURNING l.session";

/// Removes the rows of deleted messages.
const SWEEP: &str = "DELETE FROM word w USING lease l WHERE w.session = $1 AND l.session = $1 AND l.epoch = $2
    AND w.message <> '' AND NOT EXISTS (SELECT 1 FROM message m WHERE m.session = w.session AND m.id = w.message)";

impl Worker {
    /// Indexes a part of the changes of an owned session, which must have no other job in progress.
    /// True if that was all.
    pub(super) async fn index_own(&self, session: &SessionId) -> Result<bool, DatabaseFault> {
        let Some((epoch, record)) = self.to_be_indexed(session) else {
            return Ok(true);
        };
        let is_based = self
            .owned
            .borrow()
            .get(session)
            .is_some_and(|leased| leased.index.is_based);
        if record.parent.is_some() {
            // Searches ignore the sessions of subagents.
            self.own_index(session, |index| index.changed.clear());
        } else if !is_based {
            let messages = self.messages(session).await?;
            self.sweep(session, epoch).await?;
            self.own_index(session, |index| {
                index.changed.extend(messages);
                index.changed.insert(TITLE.to_owned());
                index.is_based = true;
            });
        }
        let batch = |index: &mut PendingIndex| {
            index
                .changed
                .iter()
                .take(MESSAGES_PER_READ)
                .cloned()
                .collect::<Vec<String>>()
        };
        let batch = self.own_index(session, batch).unwrap_or_default();
        if !self
            .index_messages(session, epoch, record.title.as_deref(), &batch)
            .await?
        {
            return Ok(true);
        }
        let is_all = self.own_index(session, |index| {
            index.changed.retain(|message| !batch.contains(message));
            index.changed.is_empty()
        });
        if is_all == Some(true) && self.mark_indexed(session, epoch).await? {
            self.own_index(session, |index| index.is_current = true);
        }
        Ok(is_all != Some(false))
    }

    /// Returns the epoch and the record of an owned session that has something to index and nothing
    /// to write.
    fn to_be_indexed(&self, session: &SessionId) -> Option<(i64, Record)> {
        let owned = self.owned.borrow();
        let leased = owned
            .get(session)
            .filter(|leased| leased.is_to_be_indexed())?;
        Some((leased.epoch?, leased.record.clone()?))
    }

    fn own_index<T>(
        &self,
        session: &SessionId,
        change: impl FnOnce(&mut PendingIndex) -> T,
    ) -> Option<T> {
        self.owned
            .borrow_mut()
            .get_mut(session)
            .map(|leased| change(&mut leased.index))
    }

    /// Indexes a whole session without an owner. Stops if another process takes it, or when
    /// `is_over` returns true.
    pub(super) async fn index_closed(
        &self,
        session: &SessionId,
        epoch: i64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), DatabaseFault> {
        let record = self.record_of(session).await?;
        // A session without a row has no text, and searches ignore those of subagents.
        if let Some(record) = record.filter(|record| record.parent.is_none()) {
            let mut messages = self.messages(session).await?;
            self.sweep(session, epoch).await?;
            messages.push(TITLE.to_owned());
            for batch in messages.chunks(MESSAGES_PER_READ) {
                if is_over()
                    || !self
                        .index_messages(session, epoch, record.title.as_deref(), batch)
                        .await?
                {
                    return Ok(());
                }
            }
        }
        self.mark_indexed(session, epoch).await.map(drop)
    }

    async fn record_of(&self, session: &SessionId) -> Result<Option<Record>, DatabaseFault> {
        let id = session.as_str();
        let rows = self
            .execute(
                "SELECT data FROM session WHERE id = $1",
                &[(&id, Type::TEXT)],
            )
            .await?;
        rows.first().map(record).transpose()
    }

    async fn messages(&self, session: &SessionId) -> Result<Vec<String>, DatabaseFault> {
        let id = session.as_str();
        let rows = self
            .execute(
                "SELECT id FROM message WHERE session = $1",
                &[(&id, Type::TEXT)],
            )
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn sweep(&self, session: &SessionId, epoch: i64) -> Result<(), DatabaseFault> {
        self.execute(
            SWEEP,
            &[(&session.as_str(), Type::TEXT), (&epoch, Type::INT8)],
        )
        .await
        .map(drop)
    }

    /// Marks a session as indexed. Returns true if its owner has not changed.
    async fn mark_indexed(&self, session: &SessionId, epoch: i64) -> Result<bool, DatabaseFault> {
        let id = session.as_str();
        let values: SqlParams<'_> = &[
            (&id, Type::TEXT),
            (&epoch, Type::INT8),
            (&self.instance, Type::TEXT),
        ];
        Ok(!self.execute(MARK, values).await?.is_empty())
    }

    /// Reads messages and writes their trigrams. Returns true if the session's owner has not
    /// changed.
    async fn index_messages(
        &self,
        session: &SessionId,
        epoch: i64,
        title: Option<&str>,
        messages: &[String],
    ) -> Result<bool, DatabaseFault> {
        if messages.is_empty() {
            return Ok(true);
        }
        let sql = "SELECT message, data FROM part WHERE session = $1 AND message = ANY($2)";
        let id = session.as_str();
        let rows = self
            .execute(sql, &[(&id, Type::TEXT), (&messages, Type::TEXT_ARRAY)])
            .await?;
        let parts = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let parts = parts.collect::<Result<Vec<(String, Vec<u8>)>, DatabaseFault>>()?;
        let messages = messages.to_vec();
        let title = title.unwrap_or_default().to_owned();
        // On another thread, so that streaming is not delayed.
        let computed = task::spawn_blocking(move || grams_of(messages, &title, parts)).await;
        let grams = computed
            .map_err(|e| DatabaseFault::Refused(format!("what was said cannot be indexed: {e}")))?;
        let (gone, grams): (Vec<_>, Vec<_>) =
            grams.into_iter().partition(|(_, grams)| grams.is_empty());
        let mut gone: Vec<String> = gone.into_iter().map(|(message, _)| message).collect();
        let mut rest = grams.as_slice();
        loop {
            let (batch, others) = rest.split_at(next_statement_rows(rest));
            if !self
                .put_words(session, epoch, batch, &std::mem::take(&mut gone))
                .await?
            {
                return Ok(false);
            }
            rest = others;
            if rest.is_empty() {
                return Ok(true);
            }
        }
    }

    async fn put_words(
        &self,
        session: &SessionId,
        epoch: i64,
        grams: &[(String, Trigrams)],
        gone: &[String],
    ) -> Result<bool, DatabaseFault> {
        let id = session.as_str();
        let messages: Vec<&str> = grams.iter().map(|(message, _)| message.as_str()).collect();
        let arrays: Vec<Option<String>> = grams.iter().map(|(_, grams)| grams.literal()).collect();
        let values: SqlParams<'_> = &[
            (&id, Type::TEXT),
            (&epoch, Type::INT8),
            (&self.instance, Type::TEXT),
            (&messages, Type::TEXT_ARRAY),
            (&arrays, Type::TEXT_ARRAY),
            (&gone, Type::TEXT_ARRAY),
        ];
        Ok(!self.execute(PUT, values).await?.is_empty())
    }
}

/// Returns the number of rows in the next statement, at least one if there are any.
fn next_statement_rows(rows: &[(String, Trigrams)]) -> usize {
    let mut grams = 0;
    let full = rows.iter().position(|(_, more)| {
        grams += more.count();
        grams > MAX_STATEMENT_TRIGRAMS
    });
    full.map_or(rows.len(), |full| full.max(1))
}

/// Returns the trigrams of each message; none for one without text.
fn grams_of(
    messages: Vec<String>,
    title: &str,
    parts: Vec<(String, Vec<u8>)>,
) -> Vec<(String, Trigrams)> {
    let mut all: HashMap<String, Trigrams> = messages
        .into_iter()
        .map(|message| (message, Trigrams::default()))
        .collect();
    if let Some(grams) = all.get_mut(TITLE) {
        grams.add(title);
    }
    for (message, data) in parts {
        // Damaged parts are not found by any search.
        let part = decoded(&data).and_then(|json| serde_json::from_str::<Part>(&json).ok());
        if let (Some(grams), Some(text)) =
            (all.get_mut(&message), part.as_ref().and_then(part_text))
        {
            grams.add(text);
        }
    }
    all.into_iter().collect()
}
