//! Who does the jobs: one session's in the order they come, many sessions' at a time.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::fault::DatabaseFault;
use super::lines::{Lines, SessionBatch};
use super::link::{Link, LinkEvent};
use super::ours::{Ours, RowChange};
use super::place::{AwayLimits, DatabasePlace};
use crate::channel::Receiver;
use crate::id::SessionId;
use crate::store::job::{JobScope, StoreJob, answer};
use crate::store::takeover::{OwnerRequest, RequestSource};
use crate::store::write::SessionWrite;
use crate::store::{Error, LockHolder, Record, RecordChange, SessionFeed, StoreMeters, StoredSession};

/// How many jobs are sorted and not begun.
const SORTED: usize = 4096;

/// How often it is tried again to write what could not be written.
const AGAIN: Duration = Duration::from_millis(250);

/// How long a process is not heard of at most: who cannot be called is seen to be wanted by then.
const LONGEST: Duration = Duration::from_secs(5);

/// How long the end of the process may take.
const END: Duration = Duration::from_millis(1500);

pub(super) struct Keeper {
    pub(super) link: Link,
    /// The name of this process, made up anew each time.
    pub(super) instance: String,
    pub(super) host: String,
    /// The address, for people.
    pub(super) shown: String,
    /// Borrowed for moments, never while something is waited for.
    pub(super) ours: RefCell<HashMap<SessionId, Ours>>,
    limits: AwayLimits,
    pub(super) meters: Arc<StoreMeters>,
    /// Who is told that somebody wants, or has, a session of ours.
    heard: mpsc::UnboundedSender<OwnerRequest>,
    hears: Cell<Option<mpsc::UnboundedReceiver<OwnerRequest>>>,
}

enum Done {
    Written(Vec<SessionId>),
    Job(SessionId),
    Alone,
    Other,
}

/// What waits, and what is being done.
struct Rounds<'a> {
    keeper: &'a Keeper,
    lines: Lines,
    /// The sessions that something is done for.
    busy: HashSet<SessionId>,
    doing: FuturesUnordered<LocalBoxFuture<'a, Done>>,
    writing: bool,
    /// A job that comes after all that was said about all sessions, and before all that is said later.
    waits: Option<StoreJob>,
    /// A job is being done that no other may run beside.
    alone: bool,
    /// More jobs may come: not all senders are gone.
    open: bool,
}

/// Does jobs until all senders are gone, or somebody stops it.
pub(super) async fn run(place: DatabasePlace, mut jobs: Receiver<StoreJob>, meters: Arc<StoreMeters>) {
    let (events, mut happened) = mpsc::unbounded_channel();
    let keeper = Keeper::new(&place, events, meters);
    let lease = keeper.link.address().map_or(place.lease, |address| address.lease);
    let mut renewals = tokio::time::interval((lease / 3).min(LONGEST));
    let mut retries = tokio::time::interval(AGAIN);
    for ticks in [&mut renewals, &mut retries] {
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    let mut rounds = Rounds {
        keeper: &keeper,
        lines: Lines::default(),
        busy: HashSet::new(),
        doing: FuturesUnordered::new(),
        writing: false,
        waits: None,
        alone: false,
        open: true,
    };
    loop {
        // What came together is written together.
        while rounds.has_room() {
            let Ok(job) = jobs.try_recv() else { break };
            rounds.sort(job);
        }
        rounds.begin();
        if let Some(stopped) = rounds.over() {
            keeper.end().await;
            if let Some(stopped) = stopped {
                // Nobody needs to wait for it.
                stopped.send(()).ok();
            }
            return;
        }
        tokio::select! {
            job = jobs.recv(), if rounds.has_room() => match job {
                Some(job) => rounds.sort(job),
                None => rounds.open = false,
            },
            Some(done) = rounds.doing.next(), if !rounds.doing.is_empty() => rounds.settle(done),
            Some(event) = happened.recv() => match event {
                LinkEvent::Wanted(session) => keeper.wanted(&session),
                LinkEvent::Cancel(session) => keeper.cancel(&session),
                LinkEvent::Closed => keeper.link.lost(),
            },
            _ = renewals.tick(), if keeper.holds_any() => {
                rounds.doing.push(keeper.renew().map(|()| Done::Other).boxed_local());
            }
            _ = retries.tick(), if keeper.has_unwritten() => rounds.retry(),
        }
    }
}

impl Rounds<'_> {
    fn has_room(&self) -> bool {
        self.open && self.waits.is_none() && !self.alone && self.lines.len() < SORTED
    }

    /// Puts a job where it waits for its turn.
    fn sort(&mut self, job: StoreJob) {
        match job.scope() {
            JobScope::Session(session) => self.lines.push(session, job),
            JobScope::None => self.doing.push(self.keeper.job(job).map(|()| Done::Other).boxed_local()),
            JobScope::All => self.waits = Some(job),
        }
    }

    /// Begins all that can be begun.
    fn begin(&mut self) {
        if !self.writing {
            let batches = self.lines.writes(&self.busy);
            self.write(batches);
        }
        while let Some((session, job)) = self.lines.next(&self.busy) {
            self.busy.insert(session.clone());
            self.doing.push(self.keeper.job(job).map(|()| Done::Job(session)).boxed_local());
        }
        if self.is_idle()
            && let Some(job) = self.waits.take_if(|job| !matches!(job, StoreJob::Stop { .. }))
        {
            self.alone = true;
            self.doing.push(self.keeper.job(job).map(|()| Done::Alone).boxed_local());
        }
    }

    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.busy.is_empty() && !self.alone
    }

    /// Whether it is the end, and who waits for that.
    fn over(&mut self) -> Option<Option<oneshot::Sender<()>>> {
        match self.waits.take_if(|job| matches!(job, StoreJob::Stop { .. })) {
            Some(StoreJob::Stop { reply }) if self.is_idle() => Some(Some(reply)),
            None if !self.open && self.waits.is_none() && self.is_idle() && self.doing.is_empty() => Some(None),
            job => {
                self.waits = job.or(self.waits.take());
                None
            }
        }
    }

    fn write(&mut self, batches: Vec<SessionBatch>) {
        if !batches.is_empty() {
            self.writing = true;
            self.busy.extend(batches.iter().map(|batch| batch.session.clone()));
            self.doing.push(self.keeper.write(batches).map(Done::Written).boxed_local());
        }
    }

    /// Tries again what could not be written; first of all to reach the database, while others go on.
    fn retry(&mut self) {
        if self.keeper.link.is_away() {
            self.doing.push(self.keeper.link.wire().map(|_| Done::Other).boxed_local());
        } else if !self.writing {
            let left = self.keeper.unwritten(&self.busy);
            self.write(left.into_iter().map(SessionBatch::of).collect());
        }
    }

    fn settle(&mut self, done: Done) {
        match done {
            Done::Written(sessions) => {
                self.writing = false;
                self.busy.retain(|session| !sessions.contains(session));
            }
            Done::Job(session) => self.busy.retain(|other| *other != session),
            Done::Alone => self.alone = false,
            Done::Other => {}
        }
    }
}

impl Keeper {
    fn new(place: &DatabasePlace, events: mpsc::UnboundedSender<LinkEvent>, meters: Arc<StoreMeters>) -> Self {
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
        }
    }

    fn holds_any(&self) -> bool {
        !self.ours.borrow().is_empty()
    }

    fn has_unwritten(&self) -> bool {
        self.ours.borrow().values().any(|one| !one.lost && one.unwritten())
    }

    /// The sessions of which something could not be written yet, and that nothing else is done for.
    fn unwritten(&self, busy: &HashSet<SessionId>) -> Vec<SessionId> {
        let ours = self.ours.borrow();
        let left = ours.iter().filter(|(id, one)| !one.lost && one.unwritten() && !busy.contains(*id));
        left.map(|(id, _)| id.clone()).collect()
    }

    /// What a failure is called by now.
    pub(super) fn failure(&self, fault: DatabaseFault) -> Error {
        let (DatabaseFault::Away(reason) | DatabaseFault::Full(reason)) = fault else { return fault.into() };
        let waiting: usize = self.ours.borrow().values().flat_map(|one| &one.rows).map(RowChange::bytes).sum();
        let time = self.link.away().unwrap_or_default();
        if waiting > self.limits.bytes || time > self.limits.time {
            return Error::AwayTooLong(reason);
        }
        Error::Away(reason)
    }

    /// Tells the owner of a session that another process wants it.
    pub(super) fn wanted(&self, session: &SessionId) {
        if self.ours.borrow().get(session).is_some_and(|one| !one.lost) {
            // Whoever was to hear it has ended.
            self.heard.send(OwnerRequest::TakeOver(session.clone())).ok();
        }
    }

    /// Somebody wants the turn of a session to end.
    pub(super) fn cancel(&self, session: &SessionId) {
        if self.is_ours(session) {
            // Whoever was to hear it has ended.
            self.heard.send(OwnerRequest::Cancel(session.clone())).ok();
        }
    }

    /// Somebody has a session that was ours.
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

    /// Makes a session ours, without reading its history.
    pub(super) async fn claim(&self, session: &SessionId) -> Result<(), DatabaseFault> {
        if self.ours.borrow().contains_key(session) {
            return Ok(());
        }
        let epoch = self.take(session).await?;
        match self.known(session).await {
            Ok(Some(known)) => {
                let one = Ours {
                    epoch: Some(epoch),
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
                self.give_back(session, epoch, false).await;
                Err(found.err().unwrap_or_else(|| Error::NotFound(session.clone()).into()))
            }
        }
    }

    /// Lets go of a session, as soon as all of it is written.
    async fn release(&self, session: &SessionId) {
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

    /// The end of the process: what is left is written, and everything given back.
    async fn end(&self) {
        let left = self.unwritten(&HashSet::new());
        let work = async {
            if !left.is_empty() {
                let failed = self.put(&left).await;
                failed.iter().for_each(|(session, e)| tracing::error!("session {session} is not saved whole: {e}"));
            }
            if self.holds_any() {
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
            let epoch = taken.as_ref().ok().copied();
            let one = Ours { epoch, record: Some(record), ..Ours::default() };
            self.ours.borrow_mut().insert(id, one);
        }
        taken.map(drop)
    }

    async fn load(&self, session: &SessionId, lean: bool) -> Result<(StoredSession, usize), DatabaseFault> {
        if self.is_ours(session) {
            return self.reload(session, lean).await;
        }
        self.ours.borrow_mut().remove(session);
        let epoch = self.take(session).await?;
        match self.history(session, lean).await {
            Ok(Some(found)) => {
                let one = Ours {
                    epoch: Some(epoch),
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

    /// Reads a session that is ours already.
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

    /// A session of ours that nobody else knows of.
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
        let mut one = Ours { kept: true, fresh: true, ..Ours::default() };
        one.absorb(SessionWrite::Record(Box::new(feed.record.clone())));
        for message in feed {
            SessionWrite::of(&message?).for_each(|entry| one.absorb(entry));
        }
        one.epoch = Some(self.take(id).await?);
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

    /// Removes a session and those it delegated to; the youngest first.
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

    /// Removes a session of ours in which nothing was said and to which its user gave no title. Says whether it was
    /// such a one.
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
        // Who is not there any more answers nothing, and has it until its lease has run out.
        Ok(self.request(holder, session).await?.then_some(lease + Duration::from_secs(2)))
    }

    async fn job(&self, job: StoreJob) {
        match job {
            StoreJob::Create { record, reply } => answer(reply, self.create(*record).await),
            StoreJob::Load { session, lean, reply, .. } => answer(reply, self.load(&session, lean).await),
            StoreJob::Parts { session, ids, reply } => answer(reply, self.parts(&session, &ids).await),
            StoreJob::Peek { session, reply } => answer(reply, self.peek(&session).await),
            // What the database sends of it is in memory in any case.
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
            // In the database, children are never unknown.
            StoreJob::DeleteOrphans { .. } => {}
            StoreJob::Delete { session, reply } => answer(reply, self.delete(&session).await),
            StoreJob::Close { session, reply } => {
                self.release(&session).await;
                answer(reply, Ok::<_, DatabaseFault>(()));
            }
            StoreJob::Leave { session, reply } => answer(reply, self.leave(&session).await),
            StoreJob::Discard { session, unsaid, reply } => answer(reply, self.discard(&session, unsaid).await),
            StoreJob::Unsaid { reply } => answer(reply, self.unsaid().await),
            job => self.shared(job).await,
        }
    }

    /// What belongs to no session.
    async fn shared(&self, job: StoreJob) {
        match job {
            StoreJob::Grants { project, reply } => answer(reply, self.grants(project).await),
            StoreJob::Grant { grant, reply } => answer(reply, self.grant(&grant).await),
            StoreJob::Revoke { grant, reply } => answer(reply, self.revoke(&grant).await),
            StoreJob::Recent { project, reply } => answer(reply, self.recent(&project).await),
            StoreJob::Chosen { project, models, reply } => answer(reply, self.chosen(&project, &models).await),
            StoreJob::Search { query, words, limit, reply } => {
                answer(reply, self.search(*query, &words, limit).await);
            }
            StoreJob::Ask { holder, session, reply } => answer(reply, self.request_of(&holder, &session).await),
            StoreJob::Requests { reply } => {
                let hears = self.hears.take().map(RequestSource::Heard);
                answer(reply, hears.ok_or_else(|| Error::Unwritable("somebody hears them already".into())));
            }
            StoreJob::About { reply } => answer(reply, Ok::<_, DatabaseFault>(self.about().await)),
            StoreJob::Shared { reply } => answer(reply, Ok::<_, DatabaseFault>(true)),
            // A database always has all of them.
            StoreJob::Filled { reply } => answer(reply, Ok::<_, DatabaseFault>(())),
            StoreJob::Trust { project, entry, reply } => answer(reply, self.trust(&project, entry.as_deref()).await),
            StoreJob::Fleet(ask) => self.fleet(ask).await,
            // Taken out before; the rest is about a session.
            _ => {}
        }
    }
}
