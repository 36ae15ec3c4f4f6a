//! Writing. Each statement is a transaction, and checks the lease of each session that it writes.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::Type;

use super::fault::{DatabaseFault, MAX_ATTEMPTS};
use super::job_queues::SessionBatch;
use super::leased::{RowChange, SessionRow};
use super::worker::Worker;
use crate::Error;
use base::id::SessionId;

/// The approximate maximum size of one statement, in bytes, and its maximum number of rows.
const MAX_STATEMENT_BYTES: usize = 8 << 20;
const MAX_STATEMENT_ROWS: usize = 4096;

/// Removes a message and all later ones. Returns true if the lease is ours, and whether a message
/// is left.
const CUT: &str = "WITH fence AS (SELECT session FROM lease WHERE session = $1 AND epoch = $2 FOR UPDATE),
    start AS (SELECT seq FROM message WHERE session = $1 AND id = $3),
    gone AS (DELETE FROM message m USING fence f, start s WHERE m.session = f.session AND m.seq >= s.seq
        RETURNING m.id),
    parts AS (DELETE FROM part p USING gone g WHERE p.session = $1 AND p.message = g.id),
    words AS (DELETE FROM word w USING gone g WHERE w.session = $1 AND w.message = g.id),
    unsearched AS (UPDATE lease l SET searched = NULL FROM fence f WHERE l.session = f.session)
    SELECT EXISTS (SELECT 1 FROM fence), EXISTS (SELECT 1 FROM message m WHERE m.session = $1
        AND (m.seq < (SELECT seq FROM start) OR NOT EXISTS (SELECT 1 FROM start)))";

/// Deletes a session if the lease is ours; otherwise it returns no row.
const REMOVE: &str =
    "WITH fence AS (DELETE FROM lease WHERE session = $1 AND epoch = $2 RETURNING session),
    messages AS (DELETE FROM message m USING fence f WHERE m.session = f.session),
    parts AS (DELETE FROM part p USING fence f WHERE p.session = f.session),
    contents AS (DELETE FROM content c USING fence f WHERE c.session = f.session),
    tasks AS (DELETE FROM task t USING fence f WHERE t.session = f.session),
    sessions AS (DELETE FROM session s USING fence f WHERE s.id = f.session)
    SELECT session FROM fence";

/// The kind of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Message,
    Part,
    Content,
}

/// The contents of one statement.
#[derive(Default)]
struct WriteStatement {
    /// Sessions with their epochs, and whether the record is included.
    sessions: Vec<(SessionId, i64, bool)>,
    records: Vec<SessionRow>,
    rows: Vec<(SessionId, RowChange)>,
    bytes: usize,
}

impl Worker {
    /// Writes batches together with earlier unwritten changes, and answers the callers that wait.
    pub(super) async fn write(&self, mut batches: Vec<SessionBatch>) -> Vec<SessionId> {
        let mut failed: HashMap<SessionId, Error> = HashMap::new();
        for batch in batches.iter_mut().filter(|batch| !batch.entries.is_empty()) {
            // The session was released before this write: take it again.
            if let Err(fault) = self.claim(&batch.session).await {
                failed.insert(batch.session.clone(), fault.into());
            } else if let Some(leased) = self.owned.borrow_mut().get_mut(&batch.session) {
                batch
                    .entries
                    .drain(..)
                    .for_each(|entry| leased.absorb(entry));
            }
        }
        let sessions: Vec<SessionId> = batches.iter().map(|batch| batch.session.clone()).collect();
        // While the database is unreachable, the callers do not wait for it: another task retries
        // the connection.
        if self.connection.is_unreachable() {
            failed.extend(self.all_unwritten(&sessions));
        } else {
            failed.extend(self.put(&sessions).await);
        }
        // Before the answers, because a caller that learns of the completion may read the metrics
        // at once.
        self.metrics.set_waiting(
            self.owned
                .borrow()
                .values()
                .filter(|leased| !leased.is_lost)
                .map(|leased| leased.rows.len())
                .sum(),
        );
        for batch in batches {
            let now = failed.remove(&batch.session);
            let before = self
                .owned
                .borrow_mut()
                .get_mut(&batch.session)
                .and_then(|leased| leased.failed.take());
            let is_lost = self
                .owned
                .borrow()
                .get(&batch.session)
                .is_some_and(|leased| leased.is_lost);
            let outcome = match (before, now) {
                _ if is_lost => Err(Error::TakenOver(batch.session.clone())),
                (Some(e @ Error::TakenOver(_)), _) | (_, Some(e)) => Err(e),
                (_, None) => Ok(()),
            };
            if batch.flushes.is_empty()
                && let Err(e) = &outcome
                && let Some(leased) = self.owned.borrow_mut().get_mut(&batch.session)
            {
                leased.failed = Some(e.clone());
            }
            // The receiver may have been cancelled.
            batch
                .flushes
                .into_iter()
                .for_each(|reply| drop(reply.send(outcome.clone())));
            batch
                .hand_overs
                .into_iter()
                .for_each(|reply| drop(reply.send(Ok(()))));
            self.release_if_closing(&batch.session).await;
        }
        sessions
    }

    /// Returns the errors of the sessions with unwritten changes, while the database is
    /// unreachable.
    fn all_unwritten(&self, sessions: &[SessionId]) -> HashMap<SessionId, Error> {
        let error = self.failure(DatabaseFault::Unreachable(self.connection.outage_reason()));
        let owned = self.owned.borrow();
        let waits = |session: &&SessionId| {
            owned
                .get(*session)
                .is_some_and(|leased| !leased.is_lost && leased.has_unwritten())
        };
        sessions
            .iter()
            .filter(waits)
            .map(|session| (session.clone(), error.clone()))
            .collect()
    }

    /// Writes all pending changes of the sessions. Returns the errors of those with changes that
    /// could not be written.
    pub(super) async fn put(&self, sessions: &[SessionId]) -> HashMap<SessionId, Error> {
        let mut failed = HashMap::new();
        let mut left: Vec<SessionId> = sessions.to_vec();
        loop {
            left.retain(|session| {
                self.owned
                    .borrow()
                    .get(session)
                    .is_some_and(|leased| !leased.is_lost && leased.has_unwritten())
            });
            if left.is_empty() {
                return failed;
            }
            for session in left.clone() {
                let cut = self.owned.borrow().get(&session).is_some_and(|leased| {
                    matches!(leased.rows.first(), Some(RowChange::Cut { .. }))
                });
                let mut ready = Ok(());
                if self.lacks_lease(&session) {
                    ready = self.retake(&session).await;
                }
                if cut && ready.is_ok() {
                    ready = self.cut(&session).await;
                }
                if let Err(fault) = ready {
                    left.retain(|other| *other != session);
                    failed.insert(session, self.failure(fault));
                }
            }
            let statement = self.gather(&left);
            if statement.sessions.is_empty() {
                continue;
            }
            match self.send(&statement).await {
                Ok(still_owned) => {
                    self.connection.record_accepted_write();
                    self.metrics
                        .count_batch(statement.rows.len() + statement.records.len());
                    for (session, ..) in statement
                        .sessions
                        .iter()
                        .filter(|(session, ..)| !still_owned.contains(session))
                    {
                        self.mark_lost(session);
                        failed.insert(session.clone(), Error::TakenOver(session.clone()));
                    }
                }
                Err(fault) => {
                    let tried: Vec<SessionId> = statement
                        .sessions
                        .iter()
                        .map(|(session, ..)| session.clone())
                        .collect();
                    self.put_back(statement);
                    // After returning the rows, so that they count as pending.
                    let error = self.failure(fault);
                    left.retain(|session| !tried.contains(session));
                    failed.extend(tried.into_iter().map(|session| (session, error.clone())));
                }
            }
        }
    }

    fn lacks_lease(&self, session: &SessionId) -> bool {
        self.owned
            .borrow()
            .get(session)
            .is_some_and(|leased| leased.epoch.is_none())
    }

    /// Takes the lease of a session that was created while the database was unreachable.
    async fn retake(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        let epoch = self.take(session).await?.epoch;
        if let Some(leased) = self.owned.borrow_mut().get_mut(session) {
            leased.epoch = Some(epoch);
        }
        Ok(())
    }

    /// Takes the rows of one statement out of the sessions: of each session those before a cut.
    fn gather(&self, sessions: &[SessionId]) -> WriteStatement {
        let mut statement = WriteStatement::default();
        let mut owned = self.owned.borrow_mut();
        for session in sessions {
            let Some(leased) = owned.get_mut(session) else {
                continue;
            };
            let Some(epoch) = leased.epoch else { continue };
            if statement.bytes >= MAX_STATEMENT_BYTES || statement.rows.len() >= MAX_STATEMENT_ROWS
            {
                continue;
            }
            let mut count = 0;
            for row in &leased.rows {
                if matches!(row, RowChange::Cut { .. })
                    || statement.bytes >= MAX_STATEMENT_BYTES
                    || statement.rows.len() + count >= MAX_STATEMENT_ROWS
                {
                    break;
                }
                statement.bytes += row.bytes();
                count += 1;
            }
            if leased.is_record_pending
                && leased.has_row
                && let Some(record) = &leased.record
            {
                statement
                    .records
                    .push(SessionRow::of(record, leased.has_messages));
            }
            if count > 0 || leased.is_record_pending {
                statement
                    .sessions
                    .push((session.clone(), epoch, leased.is_record_pending));
            }
            leased.is_record_pending = false;
            statement
                .rows
                .extend(leased.rows.drain(..count).map(|row| (session.clone(), row)));
        }
        statement
    }

    /// Returns unwritten rows to their sessions, before newer ones.
    fn put_back(&self, statement: WriteStatement) {
        let mut owned = self.owned.borrow_mut();
        for (session, _, is_record_pending) in statement.sessions {
            if let Some(leased) = owned.get_mut(&session) {
                leased.is_record_pending |= is_record_pending;
            }
        }
        for (session, row) in statement.rows.into_iter().rev() {
            if let Some(leased) = owned.get_mut(&session) {
                leased.rows.insert(0, row);
            }
        }
    }

    /// Executes the statement, and returns the sessions that this process still owns.
    async fn send(&self, statement: &WriteStatement) -> Result<HashSet<SessionId>, DatabaseFault> {
        let MergedRows {
            messages,
            parts,
            contents,
        } = MergedRows::of(statement);
        let records = &statement.records;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 24] = [
            &statement
                .sessions
                .iter()
                .map(|(session, ..)| session.as_str())
                .collect::<Vec<_>>(),
            &statement
                .sessions
                .iter()
                .map(|(_, epoch, _)| *epoch)
                .collect::<Vec<_>>(),
            &records
                .iter()
                .map(|row| row.id.as_str())
                .collect::<Vec<_>>(),
            &records
                .iter()
                .map(|row| row.cwd.as_str())
                .collect::<Vec<_>>(),
            &records
                .iter()
                .map(|row| row.parent.as_deref())
                .collect::<Vec<_>>(),
            &records.iter().map(|row| row.updated).collect::<Vec<_>>(),
            &records.iter().map(|row| row.archived).collect::<Vec<_>>(),
            &records.iter().map(|row| row.is_listed).collect::<Vec<_>>(),
            &records
                .iter()
                .map(|row| row.has_messages)
                .collect::<Vec<_>>(),
            &records
                .iter()
                .map(|row| row.has_user_title)
                .collect::<Vec<_>>(),
            &records
                .iter()
                .map(|row| row.data.as_slice())
                .collect::<Vec<_>>(),
            &messages
                .iter()
                .map(|(session, ..)| *session)
                .collect::<Vec<_>>(),
            &messages.iter().map(|(_, seq, ..)| *seq).collect::<Vec<_>>(),
            &messages
                .iter()
                .map(|(_, _, id, _)| id.as_str())
                .collect::<Vec<_>>(),
            &messages
                .iter()
                .map(|(.., data)| data.as_slice())
                .collect::<Vec<_>>(),
            &parts
                .iter()
                .map(|(session, ..)| *session)
                .collect::<Vec<_>>(),
            &parts.iter().map(|(_, seq, ..)| *seq).collect::<Vec<_>>(),
            &parts
                .iter()
                .map(|(_, _, id, ..)| id.as_str())
                .collect::<Vec<_>>(),
            &parts
                .iter()
                .map(|(_, _, _, message, _)| message.as_str())
                .collect::<Vec<_>>(),
            &parts
                .iter()
                .map(|(.., data)| data.as_slice())
                .collect::<Vec<_>>(),
            &contents
                .iter()
                .map(|(session, ..)| *session)
                .collect::<Vec<_>>(),
            &contents
                .iter()
                .map(|(_, name, _)| name.as_str())
                .collect::<Vec<_>>(),
            &contents
                .iter()
                .map(|(.., data)| data.as_slice())
                .collect::<Vec<_>>(),
            &records
                .iter()
                .map(|row| row.project.as_deref())
                .collect::<Vec<_>>(),
        ];
        for _ in 0..MAX_ATTEMPTS {
            let open = self.connection.open().await?;
            match self
                .connection
                .run(open.client.query(&open.write_statement, &values))
                .await
            {
                Err(DatabaseFault::Again) => {}
                Err(fault) => return Err(fault),
                Ok(rows) => {
                    return rows
                        .iter()
                        .map(|row| Ok(SessionId::new(row.try_get::<_, String>(0)?)))
                        .collect();
                }
            }
        }
        Err(DatabaseFault::Again)
    }

    /// Executes the next cut.
    async fn cut(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        let next = {
            let owned = self.owned.borrow();
            let leased = owned.get(session);
            leased.and_then(|leased| match (leased.epoch, leased.rows.first()) {
                (Some(epoch), Some(RowChange::Cut { from })) => Some((epoch, from.clone())),
                _ => None,
            })
        };
        let Some((epoch, from)) = next else {
            return Ok(());
        };
        let id = session.as_str();
        let open = self.connection.open().await?;
        let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&id, Type::TEXT), (&epoch, Type::INT8), (&from, Type::TEXT)];
        let rows = self
            .connection
            .run(open.client.query_typed(CUT, values))
            .await?;
        let (still_owned, has_messages): (bool, bool) = match rows.first() {
            Some(row) => (row.try_get(0)?, row.try_get(1)?),
            None => (false, false),
        };
        if !still_owned {
            self.mark_lost(session);
            return Err(Error::TakenOver(session.clone()).into());
        }
        if let Some(leased) = self.owned.borrow_mut().get_mut(session) {
            leased.rows.remove(0);
            leased.has_messages = has_messages
                || leased
                    .rows
                    .iter()
                    .any(|row| matches!(row, RowChange::Message { .. }));
            leased.has_row = true;
            leased.is_record_pending = true;
        }
        Ok(())
    }

    /// Deletes a session that this process owns.
    pub(super) async fn remove(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        self.claim(session).await?;
        let epoch = self
            .owned
            .borrow()
            .get(session)
            .and_then(|leased| leased.epoch);
        let Some(epoch) = epoch else { return Ok(()) };
        let id = session.as_str();
        let open = self.connection.open().await?;
        let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&id, Type::TEXT), (&epoch, Type::INT8)];
        let gone = self
            .connection
            .run(open.client.query_typed(REMOVE, values))
            .await?;
        self.owned.borrow_mut().remove(session);
        if gone.is_empty() {
            Err(Error::TakenOver(session.clone()).into())
        } else {
            Ok(())
        }
    }
}

/// The rows of a statement by kind, each row once: if it occurs twice, the latest data is at the
/// position of the first.
struct MergedRows<'a> {
    /// Session, number, id, data.
    messages: Vec<(&'a str, i64, &'a String, &'a Vec<u8>)>,
    /// Session, number, id, message, data.
    parts: Vec<(&'a str, i64, &'a String, &'a String, &'a Vec<u8>)>,
    /// Session, name, data.
    contents: Vec<(&'a str, &'a String, &'a Vec<u8>)>,
}

impl<'a> MergedRows<'a> {
    fn of(statement: &'a WriteStatement) -> Self {
        let mut messages: Vec<(&str, i64, &String, &Vec<u8>)> = Vec::new();
        let mut parts: Vec<(&str, i64, &String, &String, &Vec<u8>)> = Vec::new();
        let mut contents: Vec<(&str, &String, &Vec<u8>)> = Vec::new();
        let mut places: HashMap<(Kind, &str, &str), usize> = HashMap::new();
        for (session, row) in &statement.rows {
            match row {
                RowChange::Message { seq, id, data } => {
                    match places.get(&(Kind::Message, session.as_str(), id)) {
                        Some(index) => {
                            let (session, seq, id, _) = messages[*index];
                            messages[*index] = (session, seq, id, data);
                        }
                        None => {
                            places.insert((Kind::Message, session.as_str(), id), messages.len());
                            messages.push((session.as_str(), *seq, id, data));
                        }
                    }
                }
                RowChange::Part {
                    seq,
                    id,
                    message,
                    data,
                } => match places.get(&(Kind::Part, session.as_str(), id)) {
                    Some(index) => {
                        let (session, seq, id, ..) = parts[*index];
                        parts[*index] = (session, seq, id, message, data);
                    }
                    None => {
                        places.insert((Kind::Part, session.as_str(), id), parts.len());
                        parts.push((session.as_str(), *seq, id, message, data));
                    }
                },
                RowChange::Content { name, data } => {
                    match places.get(&(Kind::Content, session.as_str(), name)) {
                        Some(index) => contents[*index] = (session.as_str(), name, data),
                        None => {
                            places.insert((Kind::Content, session.as_str(), name), contents.len());
                            contents.push((session.as_str(), name, data));
                        }
                    }
                }
                RowChange::Cut { .. } => {}
            }
        }
        Self {
            messages,
            parts,
            contents,
        }
    }
}
