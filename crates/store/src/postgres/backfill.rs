//! Indexing in the background: the changes of owned sessions, and the sessions without an owner
//! that are not in the search index, newest first. Only one process at a time does the latter.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::Type;

use super::backfill_state::MAX_PAUSE;
use super::fault::DatabaseFault;
use super::leased::LeasedSession;
use super::worker::Worker;
use crate::Error;
use base::id::SessionId;

/// The interval at which it is checked whether there is something to index.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The time for which closing a session, or the end of the process, waits for indexing.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(300);

/// The number of sessions that are looked up at a time.
const SESSIONS_PER_LOOKUP: i64 = 64;

/// Yields sessions without an owner that are not indexed, before `$1`.
pub(super) const LEFT: &str = "SELECT session, epoch FROM lease
    WHERE unsearched AND instance IS NULL AND ($1::text IS NULL OR session < $1)
    ORDER BY session DESC LIMIT $2";

/// A completed piece of indexing.
pub(super) struct IndexedPiece {
    /// The owned session that was indexed, if it was one.
    pub(super) own: Option<SessionId>,
    /// The time at which indexing may continue.
    pub(super) next: Instant,
}

impl Worker {
    pub(super) fn has_to_index(&self) -> bool {
        let is_any = || {
            self.owned
                .borrow()
                .values()
                .any(LeasedSession::is_to_be_indexed)
        };
        !self.connection.is_unreachable() && (self.backfill.is_wanted() || is_any())
    }

    /// Returns the next piece of indexing, if there is one.
    pub(super) fn next_piece<'a>(
        &'a self,
        busy: &HashSet<SessionId>,
    ) -> Option<(Option<SessionId>, LocalBoxFuture<'a, IndexedPiece>)> {
        let own = {
            let owned = self.owned.borrow();
            let ready = owned.iter().find(|(id, leased)| {
                leased.is_to_be_indexed() && leased.index.is_quiet() && !busy.contains(*id)
            });
            ready.map(|(id, _)| id.clone())
        };
        match own {
            Some(own) => Some((Some(own.clone()), self.index_piece(Some(own)).boxed_local())),
            None => self
                .backfill
                .is_due()
                .then(|| (None, self.index_piece(None).boxed_local())),
        }
    }

    /// Returns the time of the next check if there is nothing to index.
    pub(super) fn next_check() -> Instant {
        Instant::now() + LOOK_INTERVAL
    }

    async fn index_piece(&self, own: Option<SessionId>) -> IndexedPiece {
        let began = Instant::now();
        let done = match &own {
            Some(own) => self.index_own(own).await.map(drop),
            None => self.index_next().await,
        };
        let mut pause = self.backfill.pause(began.elapsed());
        if let Err(fault) = done {
            tracing::info!("the search index is not up to date: {}", Error::from(fault));
            pause = MAX_PAUSE;
        }
        IndexedPiece {
            own,
            next: Instant::now() + pause,
        }
    }

    /// Indexes one session without an owner, if no other process holds the lock for that.
    async fn index_next(&self) -> Result<(), DatabaseFault> {
        let backfill = &self.backfill;
        if !backfill.holds_lock.get() && !self.call_lock_function("pg_try_advisory_lock").await? {
            // It may have passed a session that was released since.
            backfill.schedule_retry();
            return Ok(());
        }
        backfill.holds_lock.set(true);
        if backfill.remaining.borrow().is_empty() {
            let cursor = backfill.cursor.borrow().clone();
            let rows = self
                .execute(
                    LEFT,
                    &[(&cursor, Type::TEXT), (&SESSIONS_PER_LOOKUP, Type::INT8)],
                )
                .await?;
            let remaining = rows.iter().map(|row| {
                Ok((
                    SessionId::new(row.try_get::<_, String>(0)?),
                    row.try_get(1)?,
                ))
            });
            let remaining = remaining.collect::<Result<VecDeque<_>, DatabaseFault>>()?;
            *backfill.cursor.borrow_mut() =
                remaining.back().map(|(session, _)| session.to_string());
            *backfill.remaining.borrow_mut() = remaining;
        }
        let next = backfill.remaining.borrow_mut().pop_front();
        let Some((session, epoch)) = next else {
            backfill.record_completed();
            backfill.holds_lock.set(false);
            return self
                .call_lock_function("pg_advisory_unlock")
                .await
                .map(drop);
        };
        self.index_closed(&session, epoch, &|| backfill.is_stopped())
            .await
    }

    /// Takes the advisory lock that all processes of this namespace share, or releases it. Returns
    /// whether that was possible.
    async fn call_lock_function(&self, function: &str) -> Result<bool, DatabaseFault> {
        let name = format!("adjutant search {}", self.connection.address()?.namespace);
        let key = i64::from(crc32fast::hash(name.as_bytes()));
        let rows = self
            .execute(&format!("SELECT {function}($1)"), &[(&key, Type::INT8)])
            .await?;
        Ok(rows
            .first()
            .map(|row| row.try_get(0))
            .transpose()?
            .unwrap_or(false))
    }

    /// Indexes the changes of a session that is to be released, if they are few.
    pub(super) async fn index_before_leaving(&self, session: &SessionId) {
        let is_little = self
            .owned
            .borrow()
            .get(session)
            .is_some_and(|leased| leased.is_to_be_indexed() && leased.index.is_small());
        if !is_little || self.connection.is_unreachable() {
            return;
        }
        match timeout(LEAVE_TIMEOUT, self.index_own(session)).await {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => tracing::info!("{session} is not indexed: {}", Error::from(fault)),
            // Another process indexes it later.
            Err(_) => tracing::info!("{session} is not indexed: it took too long"),
        }
    }

    /// Indexes the changes of all owned sessions at the end of the process.
    pub(super) async fn index_all_before_leaving(&self) {
        let sessions: Vec<SessionId> = self.owned.borrow().keys().cloned().collect();
        let all = async {
            for session in &sessions {
                self.index_before_leaving(session).await;
            }
        };
        // Other processes index the rest later.
        timeout(LEAVE_TIMEOUT, all).await.ok();
    }
}
