//! The execution of the jobs, and the state of the sessions that this process owns.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::backfill_state::BackfillState;
use super::connection::{ConnectionEvent, DatabaseConnection};
use super::fault::DatabaseFault;
use super::leased::{LeasedSession, RowChange, TakenLease};
use super::pending_index::PendingIndex;
use crate::job::{OwnerRequest, RequestSource, StoreJob, answer};
use crate::write::SessionWrite;
use crate::{
    Error, LockHolder, Record, RecordChange, StoreMetrics, StoredSession, StreamedSession,
};
use base::id::SessionId;
use base::store_location::{DatabaseLocation, OutageLimits};

/// The maximum duration of the final writes when the process ends.
const END_TIMEOUT: Duration = Duration::from_millis(1500);

pub(super) struct Worker {
    pub(super) connection: DatabaseConnection,
    /// The name of this process, chosen at its start.
    pub(super) instance: String,
    pub(super) host: String,
    /// The address without its password, for display.
    pub(super) display_address: String,
    /// Borrowed for short operations, never across an await.
    pub(super) owned: RefCell<HashMap<SessionId, LeasedSession>>,
    limits: OutageLimits,
    pub(super) metrics: Arc<StoreMetrics>,
    /// The sender of other processes' requests for our sessions, and of their loss.
    request_sender: mpsc::UnboundedSender<OwnerRequest>,
    request_receiver: Cell<Option<mpsc::UnboundedReceiver<OwnerRequest>>>,
    pub(super) backfill: BackfillState,
}

impl Worker {
    pub(super) fn new(
        location: &DatabaseLocation,
        events: mpsc::UnboundedSender<ConnectionEvent>,
        metrics: Arc<StoreMetrics>,
    ) -> Self {
        let instance: String =
            std::iter::repeat_with(|| fastrand::alphanumeric().to_ascii_lowercase())
                .take(16)
                .collect();
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let (request_sender, request_receiver) = mpsc::unbounded_channel();
        Self {
            connection: DatabaseConnection::new(location, &instance, events, metrics.clone()),
            metrics,
            instance,
            host,
            display_address: location.shown(),
            owned: RefCell::default(),
            limits: location.outage_limits,
            request_sender,
            request_receiver: Cell::new(Some(request_receiver)),
            backfill: BackfillState::default(),
        }
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.owned.borrow().is_empty()
    }

    pub(super) fn has_unwritten(&self) -> bool {
        self.owned
            .borrow()
            .values()
            .any(|leased| !leased.is_lost && leased.has_unwritten())
    }

    /// Returns the sessions with unwritten changes that no other job is working on.
    pub(super) fn unwritten(&self, busy: &HashSet<SessionId>) -> Vec<SessionId> {
        let owned = self.owned.borrow();
        let left = owned.iter().filter(|(id, leased)| {
            !leased.is_lost && leased.has_unwritten() && !busy.contains(*id)
        });
        left.map(|(id, _)| id.clone()).collect()
    }

    /// Converts a fault, with regard to the limits of unwritten changes.
    pub(super) fn failure(&self, fault: DatabaseFault) -> Error {
        let (DatabaseFault::Unreachable(reason) | DatabaseFault::Full(reason)) = fault else {
            return fault.into();
        };
        let waiting: usize = self
            .owned
            .borrow()
            .values()
            .flat_map(|leased| &leased.rows)
            .map(RowChange::bytes)
            .sum();
        let time = self.connection.outage().unwrap_or_default();
        if waiting > self.limits.bytes || time > self.limits.time {
            return Error::OutageTooLong(reason);
        }
        Error::Unreachable(reason)
    }

    /// Reports that another process requests a session.
    pub(super) fn report_request(&self, session: &SessionId) {
        if self
            .owned
            .borrow()
            .get(session)
            .is_some_and(|leased| !leased.is_lost)
        {
            // The receiver may have ended.
            self.request_sender
                .send(OwnerRequest::TakeOver(session.clone()))
                .ok();
        }
    }

    /// Reports that the running turn of a session is to end.
    pub(super) fn cancel(&self, session: &SessionId) {
        if self.owns(session) {
            // The receiver may have ended.
            self.request_sender
                .send(OwnerRequest::Cancel(session.clone()))
                .ok();
        }
    }

    /// Marks a session as lost to another process, and reports that.
    pub(super) fn mark_lost(&self, session: &SessionId) {
        if let Some(leased) = self
            .owned
            .borrow_mut()
            .get_mut(session)
            .filter(|leased| !leased.is_lost)
        {
            tracing::warn!("session {session} was taken over by another process");
            self.metrics.count_lost_lease();
            leased.is_lost = true;
            leased.is_record_pending = false;
            leased.rows.clear();
            leased.failed = Some(Error::TakenOver(session.clone()));
            self.request_sender
                .send(OwnerRequest::TakeOver(session.clone()))
                .ok();
        }
    }

    pub(super) fn owns(&self, session: &SessionId) -> bool {
        self.owned
            .borrow()
            .get(session)
            .is_some_and(|leased| !leased.is_lost)
    }

    /// Takes the ownership of a session, without reading its history.
    pub(super) async fn claim(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        if self.owned.borrow().contains_key(session) {
            return Ok(());
        }
        let TakenLease { epoch, is_indexed } = self.take(session).await?;
        match self.properties(session).await {
            Ok(Some(known)) => {
                let leased = LeasedSession {
                    epoch: Some(epoch),
                    index: PendingIndex::when_taken(is_indexed),
                    record: Some(known.record),
                    has_row: true,
                    has_messages: known.has_messages,
                    last: known.last_seq,
                    contents: known.content_bytes,
                    ..LeasedSession::default()
                };
                self.owned.borrow_mut().insert(session.clone(), leased);
                Ok(())
            }
            found => {
                self.release_lease(session, epoch, found.is_err()).await;
                Err(found
                    .err()
                    .unwrap_or_else(|| Error::NotFound(session.clone()).into()))
            }
        }
    }

    /// Releases a session, as soon as everything is written.
    async fn release(&self, session: &SessionId) {
        self.index_before_leaving(session).await;
        let leased = {
            let mut owned = self.owned.borrow_mut();
            match owned.get_mut(session) {
                Some(leased) if leased.has_unwritten() && !leased.is_lost => {
                    leased.is_closing = true;
                    None
                }
                _ => owned.remove(session),
            }
        };
        if let Some(LeasedSession {
            epoch: Some(epoch),
            has_row,
            is_lost: false,
            ..
        }) = leased
        {
            self.release_lease(session, epoch, has_row).await;
        }
    }

    pub(super) async fn release_if_closing(&self, session: &SessionId) {
        let is_closing = self
            .owned
            .borrow()
            .get(session)
            .is_some_and(|leased| leased.is_closing && !leased.has_unwritten());
        if is_closing {
            self.release(session).await;
        }
    }

    /// Writes pending changes and releases all sessions at the end of the process.
    pub(super) async fn end(&self) {
        let left = self.unwritten(&HashSet::new());
        let work = async {
            if !left.is_empty() {
                let failed = self.put(&left).await;
                failed.iter().for_each(|(session, e)| {
                    tracing::error!("session {session} is not saved whole: {e}")
                });
            }
            if self.holds_any() {
                self.index_all_before_leaving().await;
                self.release_all_leases().await;
            }
        };
        if timeout(END_TIMEOUT, work).await.is_err() {
            tracing::error!(
                "the database did not answer at the end; the changes that it lacks are lost"
            );
        }
    }

    async fn create(&self, record: Record) -> Result<(), DatabaseFault> {
        let id = record.id.clone();
        let taken = self.take(&id).await;
        if !matches!(taken, Err(DatabaseFault::Store(Error::Locked { .. }))) {
            let epoch = taken.as_ref().ok().map(|lease| lease.epoch);
            let leased = LeasedSession {
                epoch,
                record: Some(record),
                index: PendingIndex::of_new(),
                ..LeasedSession::default()
            };
            self.owned.borrow_mut().insert(id, leased);
        }
        taken.map(drop)
    }

    async fn load(
        &self,
        session: &SessionId,
        without_old_results: bool,
    ) -> Result<(StoredSession, usize), DatabaseFault> {
        if self.owns(session) {
            return self.reload(session, without_old_results).await;
        }
        self.owned.borrow_mut().remove(session);
        let TakenLease { epoch, is_indexed } = self.take(session).await?;
        match self.history(session, without_old_results).await {
            Ok(Some(found)) => {
                let leased = LeasedSession {
                    epoch: Some(epoch),
                    index: PendingIndex::when_taken(is_indexed),
                    record: Some(found.stored.record.clone()),
                    has_row: true,
                    has_messages: !found.stored.messages.is_empty(),
                    last: found.last_seq,
                    contents: found.content_bytes,
                    ..LeasedSession::default()
                };
                self.owned.borrow_mut().insert(session.clone(), leased);
                Ok((found.stored, found.messages_without_results))
            }
            found => {
                self.release_lease(session, epoch, found.is_err()).await;
                Err(found
                    .err()
                    .unwrap_or_else(|| Error::NotFound(session.clone()).into()))
            }
        }
    }

    /// Reads a session that this process already owns.
    async fn reload(
        &self,
        session: &SessionId,
        without_old_results: bool,
    ) -> Result<(StoredSession, usize), DatabaseFault> {
        let waits = self
            .put(std::slice::from_ref(session))
            .await
            .remove(session);
        if let Some(e) = waits {
            return Err(e.into());
        }
        if let Some(leased) = self.owned.borrow_mut().get_mut(session) {
            leased.is_closing = false;
        }
        match self.history(session, without_old_results).await? {
            Some(found) => Ok((found.stored, found.messages_without_results)),
            None => self.unsaved_session(session).map(|stored| (stored, 0)),
        }
    }

    /// Returns an owned session that is not in the database yet.
    fn unsaved_session(&self, session: &SessionId) -> Result<StoredSession, DatabaseFault> {
        let record = self
            .owned
            .borrow()
            .get(session)
            .filter(|leased| !leased.is_lost)
            .and_then(|leased| leased.record.clone());
        let record = record.ok_or_else(|| Error::NotFound(session.clone()))?;
        Ok(StoredSession {
            record,
            messages: Vec::new(),
            damage: Vec::new(),
        })
    }

    async fn peek(&self, session: &SessionId) -> Result<StoredSession, DatabaseFault> {
        match self.history(session, false).await? {
            Some(found) => Ok(found.stored),
            None => self.unsaved_session(session),
        }
    }

    async fn has(&self, session: &SessionId) -> Result<bool, DatabaseFault> {
        Ok(self.owns(session) || self.properties(session).await?.is_some())
    }

    async fn import(
        &self,
        feed: StreamedSession,
        of: Option<&SessionId>,
    ) -> Result<(), DatabaseFault> {
        let id = &feed.record.id.clone();
        if self.has(id).await? {
            return Err(Error::AlreadyExists(id.clone()).into());
        }
        let mut leased = LeasedSession {
            has_row: true,
            is_record_pending: true,
            index: PendingIndex::of_new(),
            ..LeasedSession::default()
        };
        leased.absorb(SessionWrite::Record(Box::new(feed.record.clone())));
        for message in feed {
            SessionWrite::of(&message?).for_each(|entry| leased.absorb(entry));
        }
        let epoch = self.take(id).await?.epoch;
        // Another process may have imported it while this one was reading.
        let known = self.properties(id).await;
        if !matches!(known, Ok(None)) {
            self.release_lease(id, epoch, true).await;
            return Err(known
                .err()
                .unwrap_or_else(|| Error::AlreadyExists(id.clone()).into()));
        }
        leased.epoch = Some(epoch);
        self.owned.borrow_mut().insert(id.clone(), leased);
        let failed = self.put(std::slice::from_ref(id)).await.remove(id);
        if failed.is_some()
            && let Err(fault) = self.remove(id).await
        {
            tracing::warn!("half of session {id} may be left: {}", Error::from(fault));
        }
        if failed.is_none()
            && let Some(of) = of
            && let Err(fault) = self.copy_contents(of, id).await
        {
            tracing::warn!(
                "what {of} had changed cannot be undone in {id} elsewhere: {}",
                Error::from(fault)
            );
        }
        self.release(id).await;
        failed.map_or(Ok(()), |e| Err(e.into()))
    }

    async fn change(
        &self,
        session: &SessionId,
        change: RecordChange,
    ) -> Result<Record, DatabaseFault> {
        let was_owned = self.owns(session);
        self.claim(session).await?;
        if let Some(leased) = self.owned.borrow_mut().get_mut(session) {
            leased.absorb(SessionWrite::Amend(change));
        }
        let failed = self
            .put(std::slice::from_ref(session))
            .await
            .remove(session);
        let record = self
            .owned
            .borrow()
            .get(session)
            .and_then(|leased| leased.record.clone());
        if !was_owned {
            self.release(session).await;
        }
        match failed {
            Some(e) => Err(e.into()),
            None => record.ok_or_else(|| Error::NotFound(session.clone()).into()),
        }
    }

    /// Deletes a session and its descendants, descendants first.
    async fn delete(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        let mut family = vec![session.clone()];
        let mut at = 0;
        while let Some(member) = family.get(at) {
            family.extend(self.children(member).await?);
            at += 1;
        }
        for member in family.iter().rev() {
            match self.remove(member).await {
                Ok(()) | Err(DatabaseFault::Store(Error::NotFound(_))) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Releases an owned session, and deletes it if it has no message and no title chosen by the
    /// user. Returns true if it was deleted.
    async fn leave(&self, session: &SessionId) -> Result<bool, DatabaseFault> {
        let unprompted = self
            .owned
            .borrow()
            .get(session)
            .is_some_and(|leased| leased.has_row && !leased.is_lost && leased.is_empty());
        let left = if unprompted {
            self.remove(session).await.map(|()| true)
        } else {
            Ok(false)
        };
        self.release(session).await;
        left
    }

    async fn delete_if_not_open(
        &self,
        session: &SessionId,
        only_if_empty: bool,
    ) -> Result<bool, DatabaseFault> {
        if self.owns(session) {
            return Ok(false);
        }
        if !only_if_empty {
            return self.delete(session).await.map(|()| true);
        }
        self.claim(session).await?;
        self.leave(session).await
    }

    async fn request_of(
        &self,
        holder: &LockHolder,
        session: &SessionId,
    ) -> Result<Option<Duration>, DatabaseFault> {
        let lease = self.connection.address()?.lease;
        // A process that has ended does not answer, and owns the session until its lease expires.
        Ok(self
            .request(holder, session)
            .await?
            .then_some(lease + Duration::from_secs(2)))
    }

    pub(super) async fn job(&self, job: StoreJob) {
        match job {
            StoreJob::Create { record, reply } => answer(reply, self.create(*record).await),
            StoreJob::Load {
                session,
                options,
                reply,
            } => answer(
                reply,
                self.load(&session, options.without_old_results).await,
            ),
            StoreJob::Parts {
                session,
                ids,
                reply,
            } => answer(reply, self.parts(&session, &ids).await),
            StoreJob::Peek { session, reply } => answer(reply, self.peek(&session).await),
            // The whole session is in memory in any case once the database has sent it.
            StoreJob::Stream { session, reply } => {
                answer(reply, self.peek(&session).await.map(StreamedSession::from))
            }
            StoreJob::Contains { session, reply } => answer(reply, self.has(&session).await),
            StoreJob::Import {
                feed,
                original,
                reply,
            } => answer(reply, self.import(*feed, original.as_ref()).await),
            StoreJob::Contents {
                session,
                names,
                reply,
            } => answer(reply, self.contents(&session, &names).await),
            StoreJob::Change {
                session,
                change,
                reply,
            } => answer(reply, self.change(&session, change).await),
            StoreJob::Children { session, reply } => answer(reply, self.children(&session).await),
            StoreJob::List { query, reply } => answer(reply, self.list(&query).await),
            StoreJob::Beginning {
                beginning,
                limit,
                reply,
            } => {
                answer(reply, self.beginning_with(&beginning, limit).await);
            }
            StoreJob::Neighbours { sessions, reply } => {
                answer(reply, self.neighbours(&sessions).await);
            }
            // The children of a session are always known in the database.
            StoreJob::DeleteOrphans { .. } => {}
            StoreJob::Delete { session, reply } => answer(reply, self.delete(&session).await),
            StoreJob::Close { session, reply } => {
                self.release(&session).await;
                answer(reply, Ok::<_, DatabaseFault>(()));
            }
            StoreJob::CloseAndDeleteIfEmpty { session, reply } => {
                answer(reply, self.leave(&session).await)
            }
            StoreJob::DeleteIfNotOpen {
                session,
                only_if_empty,
                reply,
            } => answer(
                reply,
                self.delete_if_not_open(&session, only_if_empty).await,
            ),
            StoreJob::EmptySessions { reply } => {
                let empty = match self.delete_dead_owners().await {
                    Ok(()) => self.empty_sessions().await,
                    Err(fault) => Err(fault),
                };
                answer(reply, empty);
                // A process that requests them runs for a while.
                self.backfill.request_periodic();
            }
            job => self.shared(job).await,
        }
    }

    /// Executes a job that concerns no session.
    async fn shared(&self, job: StoreJob) {
        match job {
            StoreJob::Grants { project, reply } => answer(reply, self.grants(project).await),
            StoreJob::Grant { grant, reply } => answer(reply, self.grant(&grant).await),
            StoreJob::Revoke { grant, reply } => answer(reply, self.revoke(&grant).await),
            StoreJob::RecentModels { project, reply } => {
                answer(reply, self.recent_models(&project).await)
            }
            StoreJob::SetRecentModels {
                project,
                models,
                reply,
            } => answer(reply, self.set_recent_models(&project, &models).await),
            StoreJob::Search {
                query,
                words,
                limit,
                reply,
            } => {
                self.backfill.request_now();
                answer(reply, self.search(*query, &words, limit).await);
            }
            StoreJob::RequestRelease {
                holder,
                session,
                reply,
            } => answer(reply, self.request_of(&holder, &session).await),
            StoreJob::Requests { reply } => {
                let source = self.request_receiver.take().map(RequestSource::Channel);
                answer(
                    reply,
                    source.ok_or_else(|| Error::Unwritable("they are received already".into())),
                );
            }
            StoreJob::BackendState { reply } => {
                answer(reply, Ok::<_, DatabaseFault>(self.backend_state().await))
            }
            StoreJob::Shared { reply } => answer(reply, Ok::<_, DatabaseFault>(true)),
            // A database always has all sessions.
            StoreJob::Filled { reply } => answer(reply, Ok::<_, DatabaseFault>(())),
            StoreJob::Trust {
                project,
                entry,
                reply,
            } => {
                let decision = match entry {
                    Some(entry) => self
                        .store_trust(&project, &entry)
                        .await
                        .map(|()| Some(entry)),
                    None => self.read_trust(&project).await,
                };
                answer(reply, decision);
            }
            StoreJob::Fleet(ask) => self.fleet(ask).await,
            // The remaining jobs concern sessions, or were handled before.
            _ => {}
        }
    }
}
