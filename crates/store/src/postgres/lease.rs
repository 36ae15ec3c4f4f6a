//! The ownership of sessions: rows in `lease`, and the proof that their process is alive.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::connection::channel;
use super::fault::{DatabaseFault, MAX_ATTEMPTS};
use super::leased::TakenLease;
use super::worker::Worker;
use crate::{Error, LockHolder};
use base::id::SessionId;

/// Extends the time until which this process counts as alive.
const ALIVE: &str = "INSERT INTO owner (instance, host, pid, until) VALUES ($1, $2, $3, now() + $4 * interval '1 ms')
    ON CONFLICT (instance) DO UPDATE SET until = excluded.until";

/// Takes a session that has no owner, or whose owner is no longer alive. A new row begins with an
/// epoch that no earlier row of the same id can have had, in case the session was deleted in the
/// meantime.
const TAKE: &str = "INSERT INTO lease AS l (session, epoch, instance)
    VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2)
    ON CONFLICT (session) DO UPDATE SET epoch = l.epoch + 1, instance = excluded.instance, wanted = false, cancel = false,
        searched = CASE WHEN l.searched = l.epoch THEN l.epoch + 1 END
    WHERE l.instance IS NULL OR l.instance = excluded.instance
        OR NOT EXISTS (SELECT 1 FROM owner o WHERE o.instance = l.instance AND o.until > now())
    RETURNING epoch, searched IS NOT DISTINCT FROM epoch";

const HOLDER: &str =
    "SELECT o.host, o.pid, o.instance, greatest(0, ceil(extract(epoch FROM o.until - now()) * 1000))::bigint
    FROM lease l JOIN owner o ON o.instance = l.instance
    WHERE l.session = $1";

impl Worker {
    pub(super) async fn extend_liveness(&self) -> Result<(), DatabaseFault> {
        let open = self.connection.open().await?;
        let milliseconds =
            i64::try_from(self.connection.address()?.lease.as_millis()).unwrap_or(i64::MAX);
        let pid = i64::from(std::process::id());
        let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] = &[
            (&self.instance, Type::TEXT),
            (&self.host, Type::TEXT),
            (&pid, Type::INT8),
            (&milliseconds, Type::INT8),
        ];
        self.connection
            .run(open.client.query_typed(ALIVE, values))
            .await
            .map(drop)
    }

    /// Takes a session's lease.
    pub(super) async fn take(&self, session: &SessionId) -> Result<TakenLease, DatabaseFault> {
        let id = session.as_str();
        for _ in 0..MAX_ATTEMPTS {
            // Send both statements together: a lease is worthless unless its process counts as
            // alive.
            let taken = async {
                let open = self.connection.open().await?;
                let values: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
                    &[(&id, Type::TEXT), (&self.instance, Type::TEXT)];
                self.connection
                    .run(open.client.query_typed(TAKE, values))
                    .await
            };
            let (alive, taken) = tokio::join!(self.extend_liveness(), taken);
            match (alive, taken) {
                (Err(DatabaseFault::Again), _) | (_, Err(DatabaseFault::Again)) => {}
                (Err(fault), _) | (_, Err(fault)) => return Err(fault),
                (Ok(()), Ok(rows)) => {
                    if let Some(row) = rows.first() {
                        return Ok(TakenLease {
                            epoch: row.try_get(0)?,
                            is_indexed: row.try_get(1)?,
                        });
                    }
                    let open = self.connection.open().await?;
                    let holder = self
                        .connection
                        .run(open.client.query_typed(HOLDER, &[(&id, Type::TEXT)]))
                        .await?;
                    // It may have been released in the meantime.
                    let Some(row) = holder.first() else { continue };
                    let host: String = row.try_get(0)?;
                    let pid: i64 = row.try_get(1)?;
                    let instance: String = row.try_get(2)?;
                    let left: i64 = row.try_get(3)?;
                    let holder = LockHolder {
                        pid: u32::try_from(pid).ok(),
                        host: Some(host),
                        is_exiting: false,
                        lease_left: Some(Duration::from_millis(u64::try_from(left).unwrap_or(0))),
                        request_address: Some(instance),
                    };
                    return Err(Error::Locked {
                        id: session.clone(),
                        holder,
                    }
                    .into());
                }
            }
        }
        Err(DatabaseFault::Again)
    }

    /// Releases a lease, and deletes its row if the session has none.
    pub(super) async fn release_lease(&self, session: &SessionId, epoch: i64, has_row: bool) {
        let sql = if has_row {
            "UPDATE lease SET instance = NULL, wanted = false WHERE session = $1 AND epoch = $2"
        } else {
            "DELETE FROM lease WHERE session = $1 AND epoch = $2"
        };
        let id = session.as_str();
        let released = async {
            let open = self.connection.open().await?;
            self.connection
                .run(
                    open.client
                        .query_typed(sql, &[(&id, Type::TEXT), (&epoch, Type::INT8)]),
                )
                .await
        };
        if let Err(fault) = released.await {
            // Other processes get the session when the lease expires.
            tracing::warn!(
                "session {session} could not be released: {}",
                Error::from(fault)
            );
        }
    }

    /// Renews the leases, and checks for sessions that other processes have taken or request.
    pub(super) async fn renew(&self) {
        let held: Vec<(SessionId, i64)> = {
            let owned = self.owned.borrow();
            owned
                .iter()
                .filter(|(_, leased)| !leased.is_lost)
                .filter_map(|(id, leased)| Some((id.clone(), leased.epoch?)))
                .collect()
        };
        if held.is_empty() {
            return;
        }
        let found = async {
            let open = self.connection.open().await?;
            let sql = "SELECT session, epoch, wanted, cancel FROM lease WHERE instance = $1";
            self.connection
                .run(
                    open.client
                        .query_typed(sql, &[(&self.instance, Type::TEXT)]),
                )
                .await
        };
        let (alive, found) = tokio::join!(self.extend_liveness(), found);
        self.metrics.count_renewal(alive.is_ok() && found.is_ok());
        let rows = match (alive, found) {
            (Ok(()), Ok(rows)) => rows,
            (Err(fault), _) | (_, Err(fault)) => {
                return tracing::debug!("the lease could not be renewed: {}", Error::from(fault));
            }
        };
        for (session, epoch) in held {
            let row = rows.iter().find(|row| {
                row.try_get::<_, &str>(0)
                    .is_ok_and(|id| id == session.as_str())
            });
            let same =
                row.is_some_and(|row| row.try_get::<_, i64>(1).is_ok_and(|found| found == epoch));
            let still = self
                .owned
                .borrow()
                .get(&session)
                .is_some_and(|leased| leased.epoch == Some(epoch));
            let cancel = still && same && row.is_some_and(|row| row.try_get(3).unwrap_or(false));
            if cancel {
                self.cancel(&session);
                self.clear_cancel_request(&session).await;
            }
            if still && !same {
                self.mark_lost(&session);
            } else if still && row.is_some_and(|row| row.try_get(2).unwrap_or(false)) {
                self.report_request(&session);
            }
        }
    }

    /// Clears a request to end the running turn, after it was reported.
    async fn clear_cancel_request(&self, session: &SessionId) {
        let id = session.as_str();
        let sql = "UPDATE lease SET cancel = false WHERE session = $1 AND instance = $2";
        if let Err(fault) = self
            .execute(sql, &[(&id, Type::TEXT), (&self.instance, Type::TEXT)])
            .await
        {
            tracing::debug!(
                "session {session} may be cancelled once more: {}",
                Error::from(fault)
            );
        }
    }

    /// Requests the holder of a session to release it.
    pub(super) async fn request(
        &self,
        holder: &LockHolder,
        session: &SessionId,
    ) -> Result<bool, DatabaseFault> {
        let Some(instance) = &holder.request_address else {
            return Ok(false);
        };
        let id = session.as_str();
        let channel_name = channel(instance);
        let open = self.connection.open().await?;
        // A holder without notifications sees the mark when it renews its lease.
        let mark = "UPDATE lease SET wanted = true WHERE session = $1 AND instance = $2";
        self.connection
            .run(
                open.client
                    .query_typed(mark, &[(&id, Type::TEXT), (instance, Type::TEXT)]),
            )
            .await?;
        let call = "SELECT pg_notify($1, $2)";
        if let Err(fault) = self
            .connection
            .run(
                open.client
                    .query_typed(call, &[(&channel_name, Type::TEXT), (&id, Type::TEXT)]),
            )
            .await
        {
            tracing::debug!("{} cannot be called: {}", holder, Error::from(fault));
        }
        Ok(true)
    }

    /// Releases all sessions at the end of the process.
    pub(super) async fn release_all_leases(&self) {
        let without_rows: Vec<(SessionId, i64)> = {
            let owned = self.owned.borrow();
            owned
                .iter()
                .filter(|(_, leased)| !leased.has_row)
                .filter_map(|(id, leased)| Some((id.clone(), leased.epoch?)))
                .collect()
        };
        for (session, epoch) in without_rows {
            self.release_lease(&session, epoch, false).await;
        }
        let released = async {
            let open = self.connection.open().await?;
            let sql = "UPDATE lease SET instance = NULL, wanted = false WHERE instance = $1";
            self.connection
                .run(
                    open.client
                        .query_typed(sql, &[(&self.instance, Type::TEXT)]),
                )
                .await?;
            let sql = "DELETE FROM owner WHERE instance = $1";
            self.connection
                .run(
                    open.client
                        .query_typed(sql, &[(&self.instance, Type::TEXT)]),
                )
                .await
        };
        if let Err(fault) = released.await {
            tracing::warn!("the sessions could not be released: {}", Error::from(fault));
        }
    }
}
