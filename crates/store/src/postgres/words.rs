//! The search index: which messages may have some words. `find.rs` asks it.
//!
//! A row of `word` belongs to a message, or to the title of a session (with no message's name), and has the groups of
//! three letters that its words have, each as a number of 16 bits. Several groups share a number: a search reads a
//! session in vain sometimes and misses none. PostgreSQL's own text search knows whole words alone, and `pg_trgm` knows
//! letters by the database's locale, keeps each text a second time and may not be there.
//!
//! `lease.searched` says that all that was said in a session is in the index: it is the `epoch` then. Whoever writes sets
//! it back in the same statement, and taking a session counts its epoch up, so that a session is not taken for indexed
//! to which a process wrote that knows of no index. Nothing is indexed while somebody waits for it: a session of this
//! process is when nothing was written to it for a moment and before it is let go of, the others of which no
//! process has the lease are behind (`fill.rs`).

use std::collections::HashMap;

use tokio_postgres::types::Type;

use super::fault::DatabaseFault;
use super::grams::Grams;
use super::keeper::Keeper;
use super::ours::unpacked;
use super::own_index::{MESSAGES, OwnIndex, TITLE};
use super::read::{SqlParams, record};
use crate::Record;
use crate::search::part_text;
use base::id::SessionId;
use base::task;
use transcript::Part;

/// About how many numbers go in one statement: others' statements wait behind it.
const GRAMS_AT_ONCE: usize = 4096;

/// Writes rows, and removes those of messages that have no text any more, unless somebody has the session who had not.
/// Nobody waits for the disk: the mark that follows is lost with them.
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

/// Says that a session is indexed.
const MARK: &str = "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true))
    UPDATE lease l SET searched = l.epoch FROM quick
    WHERE l.session = $1 AND l.epoch = $2 AND (l.instance IS NULL OR l.instance = $3) RETURNING l.session";

/// Removes the rows of messages that are not there any more.
const SWEEP: &str = "DELETE FROM word w USING lease l WHERE w.session = $1 AND l.session = $1 AND l.epoch = $2
    AND w.message <> '' AND NOT EXISTS (SELECT 1 FROM message m WHERE m.session = w.session AND m.id = w.message)";

impl Keeper {
    /// Indexes some of what changed in a session of ours, for which nothing else may be done meanwhile. Says whether
    /// that was all.
    pub(super) async fn index_own(&self, session: &SessionId) -> Result<bool, DatabaseFault> {
        let Some((epoch, record)) = self.to_be_indexed(session) else { return Ok(true) };
        let is_based = self.ours.borrow().get(session).is_some_and(|one| one.index.is_based);
        if record.parent.is_some() {
            // No search looks at what a session delegated to another.
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
        let some = |index: &mut OwnIndex| index.changed.iter().take(MESSAGES).cloned().collect::<Vec<String>>();
        let some = self.own_index(session, some).unwrap_or_default();
        if !self.index_messages(session, epoch, record.title.as_deref(), &some).await? {
            return Ok(true);
        }
        let is_all = self.own_index(session, |index| {
            index.changed.retain(|message| !some.contains(message));
            index.changed.is_empty()
        });
        if is_all == Some(true) && self.mark_indexed(session, epoch).await? {
            self.own_index(session, |index| index.is_current = true);
        }
        Ok(is_all != Some(false))
    }

    /// The epoch and the record of a session of ours of which something is to be indexed and nothing to be written.
    fn to_be_indexed(&self, session: &SessionId) -> Option<(i64, Record)> {
        let ours = self.ours.borrow();
        let one = ours.get(session).filter(|one| one.is_to_be_indexed())?;
        Some((one.epoch?, one.record.clone()?))
    }

    fn own_index<T>(&self, session: &SessionId, change: impl FnOnce(&mut OwnIndex) -> T) -> Option<T> {
        self.ours.borrow_mut().get_mut(session).map(|one| change(&mut one.index))
    }

    /// Indexes a whole session that nobody has; a part of it when somebody takes it meanwhile, or `is_over` says so.
    pub(super) async fn index_closed(
        &self,
        session: &SessionId,
        epoch: i64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), DatabaseFault> {
        let record = self.record_of(session).await?;
        // Of what has no row nothing is found, and no search looks at what was delegated.
        if let Some(record) = record.filter(|record| record.parent.is_none()) {
            let mut messages = self.messages(session).await?;
            self.sweep(session, epoch).await?;
            messages.push(TITLE.to_owned());
            for some in messages.chunks(MESSAGES) {
                if is_over() || !self.index_messages(session, epoch, record.title.as_deref(), some).await? {
                    return Ok(());
                }
            }
        }
        self.mark_indexed(session, epoch).await.map(drop)
    }

    async fn record_of(&self, session: &SessionId) -> Result<Option<Record>, DatabaseFault> {
        let id = session.as_str();
        let rows = self.rows("SELECT data FROM session WHERE id = $1", &[(&id, Type::TEXT)]).await?;
        rows.first().map(record).transpose()
    }

    async fn messages(&self, session: &SessionId) -> Result<Vec<String>, DatabaseFault> {
        let id = session.as_str();
        let rows = self.rows("SELECT id FROM message WHERE session = $1", &[(&id, Type::TEXT)]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn sweep(&self, session: &SessionId, epoch: i64) -> Result<(), DatabaseFault> {
        self.rows(SWEEP, &[(&session.as_str(), Type::TEXT), (&epoch, Type::INT8)]).await.map(drop)
    }

    /// Says whether the session is still whose it was.
    async fn mark_indexed(&self, session: &SessionId, epoch: i64) -> Result<bool, DatabaseFault> {
        let id = session.as_str();
        let values: SqlParams<'_> = &[(&id, Type::TEXT), (&epoch, Type::INT8), (&self.instance, Type::TEXT)];
        Ok(!self.rows(MARK, values).await?.is_empty())
    }

    /// Reads messages and writes what they have; says whether the session is still whose it was.
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
        let rows = self.rows(sql, &[(&id, Type::TEXT), (&messages, Type::TEXT_ARRAY)]).await?;
        let parts = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let parts = parts.collect::<Result<Vec<(String, Vec<u8>)>, DatabaseFault>>()?;
        let messages = messages.to_vec();
        let title = title.unwrap_or_default().to_owned();
        // Whoever streams does not wait for it.
        let taken_apart = task::spawn_blocking(move || grams_of(messages, &title, parts)).await;
        let grams = taken_apart.map_err(|e| DatabaseFault::Refused(format!("what was said cannot be indexed: {e}")))?;
        let (gone, grams): (Vec<_>, Vec<_>) = grams.into_iter().partition(|(_, grams)| grams.is_empty());
        let mut gone: Vec<String> = gone.into_iter().map(|(message, _)| message).collect();
        let mut rest = grams.as_slice();
        loop {
            let (some, others) = rest.split_at(how_many(rest));
            if !self.put_words(session, epoch, some, &std::mem::take(&mut gone)).await? {
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
        grams: &[(String, Grams)],
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
        Ok(!self.rows(PUT, values).await?.is_empty())
    }
}

/// How many rows go in the next statement, one at least if there is any.
fn how_many(rows: &[(String, Grams)]) -> usize {
    let mut grams = 0;
    let full = rows.iter().position(|(_, more)| {
        grams += more.count();
        grams > GRAMS_AT_ONCE
    });
    full.map_or(rows.len(), |full| full.max(1))
}

/// Returns the numbers of each of these messages; none of one that has no text.
fn grams_of(messages: Vec<String>, title: &str, parts: Vec<(String, Vec<u8>)>) -> Vec<(String, Grams)> {
    let mut all: HashMap<String, Grams> = messages.into_iter().map(|message| (message, Grams::default())).collect();
    if let Some(grams) = all.get_mut(TITLE) {
        grams.add(title);
    }
    for (message, data) in parts {
        // What cannot be read is not found by any search.
        let part = unpacked(&data).and_then(|json| serde_json::from_str::<Part>(&json).ok());
        if let (Some(grams), Some(text)) = (all.get_mut(&message), part.as_ref().and_then(part_text)) {
            grams.add(text);
        }
    }
    all.into_iter().collect()
}
