//! Prompts that wait for a host, and the hosts of sessions.

use tokio_postgres::types::Type;

use super::connection::{CANCEL_PREFIX, channel};
use super::fault::DatabaseFault;
use super::queries::SqlParams;
use super::worker::Worker;
use crate::fleet::{BusySession, ClaimedTask, FleetJob, TaskState, TaskStatus};
use crate::{Error, job};
use base::id::SessionId;

/// Queues a prompt, which replaces a finished one, but not a pending one.
const PUT: &str = "INSERT INTO task AS t (session, number, state, work, before)
    VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'waiting', $2,
        (SELECT count(*) FROM message m WHERE m.session = $1))
    ON CONFLICT (session) DO UPDATE SET number = excluded.number, state = 'waiting', work = excluded.work,
        before = excluded.before, instance = NULL, tries = 0, cancel = false, outcome = NULL
    WHERE t.state NOT IN ('waiting', 'running')
    RETURNING session";

const CLAIM: &str = "UPDATE task t SET state = 'running', instance = $1, tries = t.tries + 1
    WHERE t.session = (SELECT w.session FROM task w
        WHERE w.state = 'waiting' OR w.state = 'running' AND NOT EXISTS (
            SELECT 1 FROM owner o WHERE o.instance = w.instance AND o.until > now())
        ORDER BY w.number LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING t.session, t.work, t.tries, t.before, t.cancel";

const END: &str =
    "UPDATE task SET state = CASE WHEN cancel AND $3 = 'waiting' THEN 'cancelled' ELSE $3 END,
        outcome = $4, instance = NULL
    WHERE session = $1 AND instance = $2 AND state = 'running' RETURNING session";

const BUSY: &str =
    "SELECT coalesce(held.session, t.session), t.state, held.host, held.pid, coalesce(t.tries, 0)
    FROM (SELECT l.session, o.host, o.pid FROM lease l JOIN owner o ON o.instance = l.instance
        WHERE o.until > now()) AS held
    FULL JOIN (SELECT session, state, tries FROM task WHERE state IN ('waiting', 'running')) AS t
        ON t.session = held.session
    ORDER BY 1";

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl Worker {
    pub(super) async fn fleet(&self, ask: FleetJob) {
        match ask {
            FleetJob::Queue {
                session,
                work,
                reply,
            } => job::answer(reply, self.put_task(&session, &work).await),
            FleetJob::Claim { reply } => job::answer(reply, self.claim_task().await),
            FleetJob::Finish {
                session,
                state,
                outcome,
                reply,
            } => {
                job::answer(reply, self.end_task(&session, state, outcome).await);
            }
            FleetJob::Status { session, reply } => job::answer(reply, self.task(&session).await),
            FleetJob::BusySessions { reply } => job::answer(reply, self.busy().await),
            FleetJob::Cancel { session, reply } => {
                job::answer(reply, self.cancel_task(&session).await)
            }
        }
    }

    async fn put_task(&self, session: &SessionId, work: &str) -> Result<(), DatabaseFault> {
        // The prompt needs the session's row, which may not be written yet.
        if let Some(leased) = self.owned.borrow_mut().get_mut(session) {
            leased.has_row = true;
            leased.is_record_pending = true;
            leased.has_queued_prompt = true;
        }
        let failed = self
            .put(std::slice::from_ref(session))
            .await
            .remove(session);
        if let Some(e) = failed {
            return Err(e.into());
        }
        let id = session.as_str();
        let put = self
            .execute(PUT, &[(&id, Type::TEXT), (&work, Type::TEXT)])
            .await?;
        if put.is_empty() {
            let busy = format!(
                "session {session} has a prompt that waits or is answered; wait for it, or cancel it"
            );
            return Err(Error::Unwritable(busy).into());
        }
        Ok(())
    }

    async fn claim_task(&self) -> Result<Option<ClaimedTask>, DatabaseFault> {
        loop {
            // The order matters: a process that claims a prompt must count as alive.
            self.extend_liveness().await?;
            let rows = self.execute(CLAIM, &[(&self.instance, Type::TEXT)]).await?;
            let Some(row) = rows.first() else {
                return Ok(None);
            };
            let session = SessionId::new(row.try_get::<_, String>(0)?);
            if row.try_get(4)? {
                // Its host was lost before it had stopped.
                self.end_task(&session, TaskState::Cancelled, None).await?;
                continue;
            }
            let before = usize::try_from(row.try_get::<_, i64>(3)?).unwrap_or_default();
            let work = row.try_get(1)?;
            let tries = count(row.try_get(2)?);
            return Ok(Some(ClaimedTask {
                session,
                work,
                tries,
                before,
            }));
        }
    }

    async fn end_task(
        &self,
        session: &SessionId,
        state: TaskState,
        outcome: Option<String>,
    ) -> Result<bool, DatabaseFault> {
        let id = session.as_str();
        let state = state.as_str();
        let values: SqlParams<'_> = &[
            (&id, Type::TEXT),
            (&self.instance, Type::TEXT),
            (&state, Type::TEXT),
            (&outcome, Type::TEXT),
        ];
        Ok(!self.execute(END, values).await?.is_empty())
    }

    async fn task(&self, session: &SessionId) -> Result<Option<TaskStatus>, DatabaseFault> {
        let id = session.as_str();
        let rows = self
            .execute(
                "SELECT state, tries, outcome FROM task WHERE session = $1",
                &[(&id, Type::TEXT)],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let state = TaskState::parse(row.try_get(0)?);
        let state = state.ok_or_else(|| {
            DatabaseFault::Refused("the state of a prompt is not one that is known".into())
        })?;
        Ok(Some(TaskStatus {
            state,
            tries: count(row.try_get(1)?),
            outcome: row.try_get(2)?,
        }))
    }

    async fn busy(&self) -> Result<Vec<BusySession>, DatabaseFault> {
        let rows = self.execute(BUSY, &[]).await?;
        let read_row = |row: &tokio_postgres::Row| {
            let host: Option<String> = row.try_get(2)?;
            let pid: Option<i64> = row.try_get(3)?;
            let state: Option<String> = row.try_get(1)?;
            Ok(BusySession {
                session: SessionId::new(row.try_get::<_, String>(0)?),
                state: state.as_deref().and_then(TaskState::parse),
                host: host.zip(pid.and_then(|pid| u32::try_from(pid).ok())),
                tries: count(row.try_get(4)?),
            })
        };
        rows.iter().map(read_row).collect()
    }

    async fn cancel_task(&self, session: &SessionId) -> Result<bool, DatabaseFault> {
        let id = session.as_str();
        let waiting = "UPDATE task SET state = 'cancelled' WHERE session = $1 AND state = 'waiting' RETURNING session";
        if !self
            .execute(waiting, &[(&id, Type::TEXT)])
            .await?
            .is_empty()
        {
            return Ok(true);
        }
        let running = "UPDATE task SET cancel = true WHERE session = $1 AND state = 'running'";
        self.execute(running, &[(&id, Type::TEXT)]).await?;
        // A host without notifications sees the mark when it renews its lease.
        let mark = "UPDATE lease l SET cancel = true FROM owner o WHERE l.session = $1 AND o.instance = l.instance
            AND o.until > now() RETURNING l.instance";
        let held = self.execute(mark, &[(&id, Type::TEXT)]).await?;
        let Some(row) = held.first() else {
            return Ok(false);
        };
        let channel_name = channel(row.try_get(0)?);
        let payload = format!("{CANCEL_PREFIX}{id}");
        let called = self
            .execute(
                "SELECT pg_notify($1, $2)",
                &[(&channel_name, Type::TEXT), (&payload, Type::TEXT)],
            )
            .await;
        if let Err(fault) = called {
            tracing::debug!(
                "the host of {session} cannot be called: {}",
                Error::from(fault)
            );
        }
        Ok(true)
    }
}
