//! The execution of the jobs, and the state of the sessions that this process owns.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::fault::DatabaseFault;
use super::filling::IndexFilling;
use super::link::{Link, LinkEvent};
use super::ours::{Ours, RowChange, TakenLease};
use super::own_index::OwnIndex;
use crate::job::{StoreJob, answer};
use crate::takeover::{OwnerRequest, RequestSource};
use crate::write::SessionWrite;
use crate::{Error, LockHolder, Record, RecordChange, SessionFeed, StoreMeters, StoredSession};
use base::id::SessionId;
use base::store_place::{AwayLimits, DatabasePlace};

/// The maximum duration of the final writes when the process ends.
const END: Duration = Duration::from_millis(1500);

pub(super) struct Keeper {
    pub(super) link: Link,
    /// The name of this process, chosen at its start.
    pub(super) instance: String,
    pub(super) host: String,
    /// The address without its password, for display.
    pub(super) shown: String,
    /// Borrowed for short operations, never across an await.
    pub(super) ours: RefCell<HashMap<SessionId, Ours>>,
    limits: AwayLimits,
    pub(super) meters: Arc<StoreMeters>,
    /// The sender of other processes' requests for our sessions, and of their loss.
    heard: mpsc::UnboundedSender<OwnerRequest>,
    hears: Cell<Option<mpsc::UnboundedReceiver<OwnerRequest>>>,
    pub(super) filling: IndexFilling,
}

impl Keeper {
    pub(super) fn new(
        place: &DatabasePlace,
        events: mpsc::UnboundedSender<LinkEvent>,
        meters: Arc<StoreMeters>,
    ) -> Self {
        let instance: String =
            std::iter::repeat_with(|| fastrand::alphanumeric().to_ascii_lowercase()).take(16).collect();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (heard, hears) = mpsc::unbounded_channel();
        Self {
            link: Link::new(place, &instance, events, meters.clone()),
            meters,
            instance,
            host,
            shown: place.shown(),
            ours: RefCell::default(),
            limits: place.away,
            heard,
            hears: Cell::new(Some(hears)),
            filling: IndexFilling::default(),
        }
    }

    pub(super) fn holds_any(&self) -> bool {
        !self.ours.borrow().is_empty()
    }

    pub(super) fn has_unwritten(&self) -> bool {
        self.ours.borrow().values().any(|one| !one.lost && one.unwritten())
    }

    /// Returns the sessions with unwritten changes that no other job is working on.
    pub(super) fn unwritten(&self, busy: &HashSet<SessionId>) -> Vec<SessionId> {
        let ours = self.ours.borrow();
        let left = ours.iter().filter(|(id, one)| !one.lost && one.unwritten() && !busy.contains(*id));
        left.map(|(id, _)| id.clone()).collect()
    }

    /// Converts a fault, with regard to the limits of unwritten changes.
    pub(super) fn failure(&self, fault: DatabaseFault) -> Error {
        let (DatabaseFault::Away(reason) | DatabaseFault::Full(reason)) = fault else { return fault.into() };
        let waiting: usize = self.ours.borrow().values().flat_map(|one| &one.rows).map(RowChange::bytes).sum();
        let time = self.link.away().unwrap_or_default();
        if waiting > self.limits.bytes || time > self.limits.time {
            return Error::AwayTooLong(reason);
        }
        Error::Away(reason)
    }

    /// Reports that another process requests a session.
    pub(super) fn wanted(&self, session: &SessionId) {
        if self.ours.borrow().get(session).is_some_and(|one| !one.lost) {
            // The receiver may have ended.
            self.heard.send(OwnerRequest::TakeOver(session.clone())).ok();
        }
    }

    /// Reports that the running turn of a session is to end.
    pub(super) fn cancel(&self, session: &SessionId) {
        if self.is_ours(session) {
            // The receiver may have ended.
            self.heard.send(OwnerRequest::Cancel(session.clone())).ok();
        }
    }

    /// Marks a session as lost to another process, and reports that.
    pub(super) fn lose(&self, session: &SessionId) {
        if let Some(one) = self.ours.borrow_mut().get_mut(session).filter(|one| !one.lost) {
            tracing::warn!("session {session} was taken over by another process");
            self.meters.lost();
            (one.lost, one.fresh) = (true, false);
            one.rows.clear();
            one.failed = Some(Error::TakenOver(session.clone()));
            self.heard.send(OwnerRequest::TakeOver(session.clone())).ok();
        }
    }

    pub(super) fn is_ours(&self, session: &SessionId) -> bool {
        self.ours.borrow().get(session).is_some_and(|one| !one.lost)
    }

    /// Takes the ownership of a session, without reading its history.
    pub(super) async fn claim(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        if self.ours.borrow().contains_key(session) {
            return Ok(());
        }
        let TakenLease { epoch, is_indexed } = self.take(session).await?;
        match self.known(session).await {
            Ok(Some(known)) => {
                let one = Ours {
                    epoch: Some(epoch),
                    index: OwnIndex::at_taking(is_indexed),
                    record: Some(known.record),
                    kept: true,
                    said: known.said,
                    last: known.last,
                    contents: known.contents,
                    ..Ours::default()
                };
                self.ours.borrow_mut().insert(session.clone(), one);
                Ok(())
            }
            found => {
                self.give_back(session, epoch, found.is_err()).await;
                Err(found.err().unwrap_or_else(|| Error::NotFound(session.clone()).into()))
            }
        }
    }

    /// Releases a session, as soon as everything is written.
    async fn release(&self, session: &SessionId) {
        self.index_before_leaving(session).await;
        let one = {
            let mut ours = self.ours.borrow_mut();
            match ours.get_mut(session) {
                Some(one) if one.unwritten() && !one.lost => {
                    one.closing = true;
                    None
                }
                _ => ours.remove(session),
            }
        };
        if let Some(Ours { epoch: Some(epoch), kept, lost: false, .. }) = one {
            self.give_back(session, epoch, kept).await;
        }
    }

    pub(super) async fn let_go_if_closing(&self, session: &SessionId) {
        let closing = self.ours.borrow().get(session).is_some_and(|one| one.closing && !one.unwritten());
        if closing {
            self.release(session).await;
        }
    }

    /// Writes pending changes and releases all sessions at the end of the process.
    pub(super) async fn end(&self) {
        let left = self.unwritten(&HashSet::new());
        let work = async {
            if !left.is_empty() {
                let failed = self.put(&left).await;
                failed.iter().for_each(|(session, e)| tracing::error!("session {session} is not saved whole: {e}"));
            }
            if self.holds_any() {
                self.index_all_before_leaving().await;
                self.give_all_back().await;
            }
        };
        if timeout(END, work).await.is_err() {
            tracing::error!("the database did not answer at the end; what it lacks is lost");
        }
    }

    async fn create(&self, record: Record) -> Result<(), DatabaseFault> {
        let id = record.id.clone();
        let taken = self.take(&id).await;
        if !matches!(taken, Err(DatabaseFault::Store(Error::Locked { .. }))) {
            let epoch = taken.as_ref().ok().map(|lease| lease.epoch);
            let one = Ours { epoch, record: Some(record), index: OwnIndex::of_new(), ..Ours::default() };
            self.ours.borrow_mut().insert(id, one);
        }
        taken.map(drop)
    }

    async fn load(&self, session: &SessionId, lean: bool) -> Result<(StoredSession, usize), DatabaseFault> {
        if self.is_ours(session) {
            return self.reload(session, lean).await;
        }
        self.ours.borrow_mut().remove(session);
        let TakenLease { epoch, is_indexed } = self.take(session).await?;
        match self.history(session, lean).await {
            Ok(Some(found)) => {
                let one = Ours {
                    epoch: Some(epoch),
                    index: OwnIndex::at_taking(is_indexed),
                    record: Some(found.stored.record.clone()),
                    kept: true,
                    said: !found.stored.messages.is_empty(),
                    last: found.last,
                    contents: found.contents,
                    ..Ours::default()
                };
                self.ours.borrow_mut().insert(session.clone(), one);
                Ok((found.stored, found.cold))
            }
            found => {
                self.give_back(session, epoch, found.is_err()).await;
                Err(found.err().unwrap_or_else(|| Error::NotFound(session.clone()).into()))
            }
        }
    }

    /// Reads a session that this process already owns.
    async fn reload(&self, session: &SessionId, lean: bool) -> Result<(StoredSession, usize), DatabaseFault> {
        let waits = self.put(std::slice::from_ref(session)).await.remove(session);
        if let Some(e) = waits {
            return Err(e.into());
        }
        if let Some(one) = self.ours.borrow_mut().get_mut(session) {
            one.closing = false;
        }
        match self.history(session, lean).await? {
            Some(found) => Ok((found.stored, found.cold)),
            None => self.unheard_of(session).map(|stored| (stored, 0)),
        }
    }

    /// Returns an owned session that is not in the database yet.
    fn unheard_of(&self, session: &SessionId) -> Result<StoredSession, DatabaseFault> {
        let record = self.ours.borrow().get(session).filter(|one| !one.lost).and_then(|one| one.record.clone());
        let record = record.ok_or_else(|| Error::NotFound(session.clone()))?;
        Ok(StoredSession { record, messages: Vec::new(), damage: Vec::new() })
    }

    async fn peek(&self, session: &SessionId) -> Result<StoredSession, DatabaseFault> {
        match self.history(session, false).await? {
            Some(found) => Ok(found.stored),
            None => self.unheard_of(session),
        }
    }

    async fn has(&self, session: &SessionId) -> Result<bool, DatabaseFault> {
        Ok(self.is_ours(session) || self.known(session).await?.is_some())
    }

    async fn import(&self, feed: SessionFeed, of: Option<&SessionId>) -> Result<(), DatabaseFault> {
        let id = &feed.record.id.clone();
        if self.has(id).await? {
            return Err(Error::Taken(id.clone()).into());
        }
        let mut one = Ours { kept: true, fresh: true, index: OwnIndex::of_new(), ..Ours::default() };
        one.absorb(SessionWrite::Record(Box::new(feed.record.clone())));
        for message in feed {
            SessionWrite::of(&message?).for_each(|entry| one.absorb(entry));
        }
        let epoch = self.take(id).await?.epoch;
        // Another process may have imported it while this one was reading.
        let known = self.known(id).await;
        if !matches!(known, Ok(None)) {
            self.give_back(id, epoch, true).await;
            return Err(known.err().unwrap_or_else(|| Error::Taken(id.clone()).into()));
        }
        one.epoch = Some(epoch);
        self.ours.borrow_mut().insert(id.clone(), one);
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
            tracing::warn!("what {of} had changed cannot be undone in {id} elsewhere: {}", Error::from(fault));
        }
        self.release(id).await;
        failed.map_or(Ok(()), |e| Err(e.into()))
    }

    async fn change(&self, session: &SessionId, change: RecordChange) -> Result<Record, DatabaseFault> {
        let ours = self.is_ours(session);
        self.claim(session).await?;
        if let Some(one) = self.ours.borrow_mut().get_mut(session) {
            one.absorb(SessionWrite::Amend(change));
        }
        let failed = self.put(std::slice::from_ref(session)).await.remove(session);
        let record = self.ours.borrow().get(session).and_then(|one| one.record.clone());
        if !ours {
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

    /// Releases an owned session, and deletes it if it has no message and no title of its user.
    /// Returns whether it was deleted.
    async fn leave(&self, session: &SessionId) -> Result<bool, DatabaseFault> {
        let unsaid = self.ours.borrow().get(session).is_some_and(|one| one.kept && !one.lost && one.is_unsaid());
        let left = if unsaid { self.remove(session).await.map(|()| true) } else { Ok(false) };
        self.release(session).await;
        left
    }

    async fn discard(&self, session: &SessionId, unsaid: bool) -> Result<bool, DatabaseFault> {
        if self.is_ours(session) {
            return Ok(false);
        }
        if !unsaid {
            return self.delete(session).await.map(|()| true);
        }
        self.claim(session).await?;
        self.leave(session).await
    }

    async fn request_of(&self, holder: &LockHolder, session: &SessionId) -> Result<Option<Duration>, DatabaseFault> {
        let lease = self.link.address()?.lease;
        // A process that has ended does not answer, and owns the session until its lease expires.
        Ok(self.request(holder, session).await?.then_some(lease + Duration::from_secs(2)))
    }

    pub(super) async fn job(&self, job: StoreJob) {
        match job {
            StoreJob::Create { record, reply } => answer(reply, self.create(*record).await),
            StoreJob::Load { session, options, reply } => answer(reply, self.load(&session, options.lean).await),
            StoreJob::Parts { session, ids, reply } => answer(reply, self.parts(&session, &ids).await),
            StoreJob::Peek { session, reply } => answer(reply, self.peek(&session).await),
            // The whole session is in memory in any case once the database has sent it.
            StoreJob::ReadOut { session, reply } => answer(reply, self.peek(&session).await.map(SessionFeed::from)),
            StoreJob::Has { session, reply } => answer(reply, self.has(&session).await),
            StoreJob::Import { feed, of, reply } => answer(reply, self.import(*feed, of.as_ref()).await),
            StoreJob::Contents { session, names, reply } => answer(reply, self.contents(&session, &names).await),
            StoreJob::Change { session, change, reply } => answer(reply, self.change(&session, change).await),
            StoreJob::Children { session, reply } => answer(reply, self.children(&session).await),
            StoreJob::List { query, reply } => answer(reply, self.list(&query).await),
            StoreJob::Beginning { beginning, limit, reply } => {
                answer(reply, self.beginning_with(&beginning, limit).await);
            }
            // The children of a session are always known in the database.
            StoreJob::DeleteOrphans { .. } => {}
            StoreJob::Delete { session, reply } => answer(reply, self.delete(&session).await),
            StoreJob::Close { session, reply } => {
                self.release(&session).await;
                answer(reply, Ok::<_, DatabaseFault>(()));
            }
            StoreJob::Leave { session, reply } => answer(reply, self.leave(&session).await),
            StoreJob::Discard { session, unsaid, reply } => answer(reply, self.discard(&session, unsaid).await),
            StoreJob::Unsaid { reply } => {
                answer(reply, self.unsaid().await);
                // A process that requests them runs for a while.
                self.filling.at_leisure();
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
            StoreJob::Recent { project, reply } => answer(reply, self.recent(&project).await),
            StoreJob::Chosen { project, models, reply } => answer(reply, self.chosen(&project, &models).await),
            StoreJob::Search { query, words, limit, reply } => {
                self.filling.soon();
                answer(reply, self.search(*query, &words, limit).await);
            }
            StoreJob::Ask { holder, session, reply } => answer(reply, self.request_of(&holder, &session).await),
            StoreJob::Requests { reply } => {
                let hears = self.hears.take().map(RequestSource::Heard);
                answer(reply, hears.ok_or_else(|| Error::Unwritable("somebody hears them already".into())));
            }
            StoreJob::About { reply } => answer(reply, Ok::<_, DatabaseFault>(self.about().await)),
            StoreJob::Shared { reply } => answer(reply, Ok::<_, DatabaseFault>(true)),
            // A database always has all sessions.
            StoreJob::Filled { reply } => answer(reply, Ok::<_, DatabaseFault>(())),
            StoreJob::Trust { project, entry, reply } => answer(reply, self.trust(&project, entry.as_deref()).await),
            StoreJob::Fleet(ask) => self.fleet(ask).await,
            // The remaining jobs concern sessions, or were handled before.
            _ => {}
        }
    }
}
