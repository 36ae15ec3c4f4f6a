//! Writing. Each statement is a transaction, and checks the lease of each session that it writes.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::Type;

use super::fault::{DatabaseFault, TRIES};
use super::keeper::Keeper;
use super::lines::SessionBatch;
use super::ours::{RowChange, SessionRow};
use crate::Error;
use base::id::SessionId;

/// The approximate maximum size of one statement, in bytes, and its maximum number of rows.
const BYTES: usize = 8 << 20;
const ROWS_AT_ONCE: usize = 4096;

/// Removes a message and all later ones. Returns whether the lease is ours, and whether a message
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
const REMOVE: &str = "WITH fence AS (DELETE FROM lease WHERE session = $1 AND epoch = $2 RETURNING session),
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
struct Load {
    /// Sessions with their epochs, and whether the record is included.
    sessions: Vec<(SessionId, i64, bool)>,
    records: Vec<SessionRow>,
    rows: Vec<(SessionId, RowChange)>,
    bytes: usize,
}

impl Keeper {
    /// Writes batches together with earlier unwritten changes, and answers the callers that wait.
    pub(super) async fn write(&self, mut batches: Vec<SessionBatch>) -> Vec<SessionId> {
        let mut failed: HashMap<SessionId, Error> = HashMap::new();
        for batch in batches.iter_mut().filter(|batch| !batch.entries.is_empty()) {
            // The session was released before this write: take it again.
            if let Err(fault) = self.claim(&batch.session).await {
                failed.insert(batch.session.clone(), fault.into());
            } else if let Some(one) = self.ours.borrow_mut().get_mut(&batch.session) {
                batch.entries.drain(..).for_each(|entry| one.absorb(entry));
            }
        }
        let sessions: Vec<SessionId> = batches.iter().map(|batch| batch.session.clone()).collect();
        // While the database is unreachable, the callers do not wait for it: another task retries
        // the connection.
        failed.extend(match self.link.is_away() {
            true => self.all_unwritten(&sessions),
            false => self.put(&sessions).await,
        });
        // Before the answers, because a caller that learns of the completion may read the metrics
        // at once.
        self.meters.waits(self.ours.borrow().values().filter(|one| !one.lost).map(|one| one.rows.len()).sum());
        for batch in batches {
            let now = failed.remove(&batch.session);
            let before = self.ours.borrow_mut().get_mut(&batch.session).and_then(|one| one.failed.take());
            let lost = self.ours.borrow().get(&batch.session).is_some_and(|one| one.lost);
            let told = match (before, now) {
                _ if lost => Err(Error::TakenOver(batch.session.clone())),
                (Some(e @ Error::TakenOver(_)), _) | (_, Some(e)) => Err(e),
                (_, None) => Ok(()),
            };
            if batch.flushes.is_empty()
                && let Err(e) = &told
                && let Some(one) = self.ours.borrow_mut().get_mut(&batch.session)
            {
                one.failed = Some(e.clone());
            }
            // The receiver may have been cancelled.
            batch.flushes.into_iter().for_each(|reply| drop(reply.send(told.clone())));
            batch.handed.into_iter().for_each(|reply| drop(reply.send(Ok(()))));
            self.let_go_if_closing(&batch.session).await;
        }
        sessions
    }

    /// Returns the errors of the sessions with unwritten changes, while the database is
    /// unreachable.
    fn all_unwritten(&self, sessions: &[SessionId]) -> HashMap<SessionId, Error> {
        let error = self.failure(DatabaseFault::Away(self.link.reason()));
        let ours = self.ours.borrow();
        let waits = |session: &&SessionId| ours.get(*session).is_some_and(|one| !one.lost && one.unwritten());
        sessions.iter().filter(waits).map(|session| (session.clone(), error.clone())).collect()
    }

    /// Writes all pending changes of the sessions. Returns the errors of those with changes that
    /// could not be written.
    pub(super) async fn put(&self, sessions: &[SessionId]) -> HashMap<SessionId, Error> {
        let mut failed = HashMap::new();
        let mut left: Vec<SessionId> = sessions.to_vec();
        loop {
            left.retain(|session| self.ours.borrow().get(session).is_some_and(|one| !one.lost && one.unwritten()));
            if left.is_empty() {
                return failed;
            }
            for session in left.clone() {
                let cut = self
                    .ours
                    .borrow()
                    .get(&session)
                    .is_some_and(|one| matches!(one.rows.first(), Some(RowChange::Cut { .. })));
                let ready = match self.lacks_lease(&session) {
                    true => self.retake(&session).await,
                    false => Ok(()),
                };
                let ready = match ready {
                    Ok(()) if cut => self.cut(&session).await,
                    ready => ready,
                };
                if let Err(fault) = ready {
                    left.retain(|one| *one != session);
                    failed.insert(session, self.failure(fault));
                }
            }
            let load = self.gather(&left);
            if load.sessions.is_empty() {
                continue;
            }
            match self.send(&load).await {
                Ok(mine) => {
                    self.link.took();
                    self.meters.wrote(load.rows.len() + load.records.len());
                    for (session, ..) in load.sessions.iter().filter(|(session, ..)| !mine.contains(session)) {
                        self.lose(session);
                        failed.insert(session.clone(), Error::TakenOver(session.clone()));
                    }
                }
                Err(fault) => {
                    let tried: Vec<SessionId> = load.sessions.iter().map(|(session, ..)| session.clone()).collect();
                    self.put_back(load);
                    // After returning the rows, so that they count as pending.
                    let error = self.failure(fault);
                    left.retain(|session| !tried.contains(session));
                    failed.extend(tried.into_iter().map(|session| (session, error.clone())));
                }
            }
        }
    }

    fn lacks_lease(&self, session: &SessionId) -> bool {
        self.ours.borrow().get(session).is_some_and(|one| one.epoch.is_none())
    }

    /// Takes the lease of a session that was created while the database was unreachable.
    async fn retake(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        let epoch = self.take(session).await?.epoch;
        if let Some(one) = self.ours.borrow_mut().get_mut(session) {
            one.epoch = Some(epoch);
        }
        Ok(())
    }

    /// Takes the rows of one statement out of the sessions: of each session those before a cut.
    fn gather(&self, sessions: &[SessionId]) -> Load {
        let (mut load, mut ours) = (Load::default(), self.ours.borrow_mut());
        for session in sessions {
            let Some(one) = ours.get_mut(session) else { continue };
            let Some(epoch) = one.epoch.filter(|_| load.bytes < BYTES && load.rows.len() < ROWS_AT_ONCE) else {
                continue;
            };
            let mut count = 0;
            for row in &one.rows {
                if matches!(row, RowChange::Cut { .. })
                    || load.bytes >= BYTES
                    || load.rows.len() + count >= ROWS_AT_ONCE
                {
                    break;
                }
                load.bytes += row.bytes();
                count += 1;
            }
            let record = one.record.as_ref().filter(|_| one.fresh && one.kept);
            load.records.extend(record.map(|record| SessionRow::of(record, one.said)));
            if count > 0 || one.fresh {
                load.sessions.push((session.clone(), epoch, one.fresh));
            }
            one.fresh = false;
            load.rows.extend(one.rows.drain(..count).map(|row| (session.clone(), row)));
        }
        load
    }

    /// Returns unwritten rows to their sessions, before newer ones.
    fn put_back(&self, load: Load) {
        let mut ours = self.ours.borrow_mut();
        for (session, _, fresh) in load.sessions {
            if let Some(one) = ours.get_mut(&session) {
                one.fresh |= fresh;
            }
        }
        for (session, row) in load.rows.into_iter().rev() {
            if let Some(one) = ours.get_mut(&session) {
                one.rows.insert(0, row);
            }
        }
    }

    /// Executes the statement, and returns the sessions that this process still owns.
    async fn send(&self, load: &Load) -> Result<HashSet<SessionId>, DatabaseFault> {
        // If a row occurs twice, the latest data is written at the position of the first.
        let mut messages: Vec<(&str, i64, &String, &Vec<u8>)> = Vec::new();
        let mut parts: Vec<(&str, i64, &String, &String, &Vec<u8>)> = Vec::new();
        let mut contents: Vec<(&str, &String, &Vec<u8>)> = Vec::new();
        let mut places: HashMap<(Kind, &str, &str), usize> = HashMap::new();
        for (session, row) in &load.rows {
            match row {
                RowChange::Message { seq, id, data } => match places.get(&(Kind::Message, session.as_str(), id)) {
                    Some(place) => {
                        let (session, seq, id, _) = messages[*place];
                        messages[*place] = (session, seq, id, data);
                    }
                    None => {
                        places.insert((Kind::Message, session.as_str(), id), messages.len());
                        messages.push((session.as_str(), *seq, id, data));
                    }
                },
                RowChange::Part { seq, id, message, data } => match places.get(&(Kind::Part, session.as_str(), id)) {
                    Some(place) => {
                        let (session, seq, id, ..) = parts[*place];
                        parts[*place] = (session, seq, id, message, data);
                    }
                    None => {
                        places.insert((Kind::Part, session.as_str(), id), parts.len());
                        parts.push((session.as_str(), *seq, id, message, data));
                    }
                },
                RowChange::Content { name, data } => match places.get(&(Kind::Content, session.as_str(), name)) {
                    Some(place) => contents[*place] = (session.as_str(), name, data),
                    None => {
                        places.insert((Kind::Content, session.as_str(), name), contents.len());
                        contents.push((session.as_str(), name, data));
                    }
                },
                RowChange::Cut { .. } => {}
            }
        }
        let records = &load.records;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 24] = [
            &load.sessions.iter().map(|(session, ..)| session.as_str()).collect::<Vec<_>>(),
            &load.sessions.iter().map(|(_, epoch, _)| *epoch).collect::<Vec<_>>(),
            &records.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(),
            &records.iter().map(|row| row.cwd.as_str()).collect::<Vec<_>>(),
            &records.iter().map(|row| row.parent.as_deref()).collect::<Vec<_>>(),
            &records.iter().map(|row| row.updated).collect::<Vec<_>>(),
            &records.iter().map(|row| row.archived).collect::<Vec<_>>(),
            &records.iter().map(|row| row.shown).collect::<Vec<_>>(),
            &records.iter().map(|row| row.said).collect::<Vec<_>>(),
            &records.iter().map(|row| row.named).collect::<Vec<_>>(),
            &records.iter().map(|row| row.data.as_slice()).collect::<Vec<_>>(),
            &messages.iter().map(|(session, ..)| *session).collect::<Vec<_>>(),
            &messages.iter().map(|(_, seq, ..)| *seq).collect::<Vec<_>>(),
            &messages.iter().map(|(_, _, id, _)| id.as_str()).collect::<Vec<_>>(),
            &messages.iter().map(|(.., data)| data.as_slice()).collect::<Vec<_>>(),
            &parts.iter().map(|(session, ..)| *session).collect::<Vec<_>>(),
            &parts.iter().map(|(_, seq, ..)| *seq).collect::<Vec<_>>(),
            &parts.iter().map(|(_, _, id, ..)| id.as_str()).collect::<Vec<_>>(),
            &parts.iter().map(|(_, _, _, message, _)| message.as_str()).collect::<Vec<_>>(),
            &parts.iter().map(|(.., data)| data.as_slice()).collect::<Vec<_>>(),
            &contents.iter().map(|(session, ..)| *session).collect::<Vec<_>>(),
            &contents.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>(),
            &contents.iter().map(|(.., data)| data.as_slice()).collect::<Vec<_>>(),
            &records.iter().map(|row| row.project.as_deref()).collect::<Vec<_>>(),
        ];
        for _ in 0..TRIES {
            let wire = self.link.wire().await?;
            match self.link.ask(wire.client.query(&wire.write, &values)).await {
                Err(DatabaseFault::Again) => {}
                Err(fault) => return Err(fault),
                Ok(rows) => {
                    return rows.iter().map(|row| Ok(SessionId::new(row.try_get::<_, String>(0)?))).collect();
                }
            }
        }
        Err(DatabaseFault::Again)
    }

    /// Executes the next cut.
    async fn cut(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        let next = {
            let ours = self.ours.borrow();
            let one = ours.get(session);
            one.and_then(|one| match (one.epoch, one.rows.first()) {
                (Some(epoch), Some(RowChange::Cut { from })) => Some((epoch, from.clone())),
                _ => None,
            })
        };
        let Some((epoch, from)) = next else { return Ok(()) };
        let id = session.as_str();
        let wire = self.link.wire().await?;
        let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
            &[(&id, Type::TEXT), (&epoch, Type::INT8), (&from, Type::TEXT)];
        let rows = self.link.ask(wire.client.query_typed(CUT, values)).await?;
        let (mine, said): (bool, bool) = match rows.first() {
            Some(row) => (row.try_get(0)?, row.try_get(1)?),
            None => (false, false),
        };
        if !mine {
            self.lose(session);
            return Err(Error::TakenOver(session.clone()).into());
        }
        if let Some(one) = self.ours.borrow_mut().get_mut(session) {
            one.rows.remove(0);
            one.said = said || one.rows.iter().any(|row| matches!(row, RowChange::Message { .. }));
            (one.kept, one.fresh) = (true, true);
        }
        Ok(())
    }

    /// Deletes a session that this process owns.
    pub(super) async fn remove(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        self.claim(session).await?;
        let epoch = self.ours.borrow().get(session).and_then(|one| one.epoch);
        let Some(epoch) = epoch else { return Ok(()) };
        let id = session.as_str();
        let wire = self.link.wire().await?;
        let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] = &[(&id, Type::TEXT), (&epoch, Type::INT8)];
        let gone = self.link.ask(wire.client.query_typed(REMOVE, values)).await?;
        self.ours.borrow_mut().remove(session);
        if gone.is_empty() { Err(Error::TakenOver(session.clone()).into()) } else { Ok(()) }
    }
}
