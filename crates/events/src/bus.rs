//! The events of sessions for observers outside the conversation: plugins, `adjutant events` and
//! clients of `adjutant serve`. Publishing never waits: an observer that reads too slowly loses
//! events from the middle of its queue.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use serde_json::{Value, json};
use tokio::sync::Notify;

use base::environment::{Environment, Timestamp};
use base::id::SessionId;
use base::lock::lock;

/// The number of events in each half of an observer's queue.
const MAX_HALF: usize = 512;

/// The number of queued events, from the newest on, that a newer one may replace.
const MAX_SEARCHED: usize = 64;

/// The size from which on a queue loses events, in bytes. At most half of it is for the oldest
/// ones.
const MAX_QUEUE_BYTES: usize = 16 << 20;

/// The size from which on a history loses events, in bytes.
const MAX_HISTORY_BYTES: usize = 1 << 20;

/// The longest merged delta, in bytes.
const MAX_DELTA_BYTES: usize = 64 << 10;

/// The kind of an event that reports how many events an observer has lost.
pub const LOST: &str = "adjutant.events.lost";

/// The kind of an event with new text of a part.
pub const DELTA: &str = "message.part.delta";

/// The beginning of the kinds of events that only [`EventFilter::traces`] lets through.
const TRACE: &str = "adjutant.trace.";

// The kinds of events for traces add to those of OpenCode the times at which turns and requests to
// models begin and end.

/// The kind of an event for traces: a turn has begun.
pub const TURN_STARTED: &str = "adjutant.trace.turn.started";
/// The kind of an event for traces: a turn has ended.
pub const TURN_ENDED: &str = "adjutant.trace.turn.ended";
/// The kind of an event for traces: a request to a model has begun.
pub const REQUEST_STARTED: &str = "adjutant.trace.request.started";
/// The kind of an event for traces: the first piece of an answer has arrived.
pub const REQUEST_ANSWERED: &str = "adjutant.trace.request.answered";
/// The kind of an event for traces: a request to a model has ended.
pub const REQUEST_ENDED: &str = "adjutant.trace.request.ended";

/// An event of a session, in the format of OpenCode.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionEvent {
    /// The id; unique, and greater than all earlier ones of the process. Empty without observers.
    pub id: String,
    /// The kind: `message.updated`.
    pub kind: &'static str,
    pub session: SessionId,
    /// The user's session to which it belongs: itself, or an ancestor if it is a subagent's.
    pub root: SessionId,
    /// The working directory of the session; empty without observers.
    pub directory: Arc<Path>,
    /// The time of the event; zero without observers.
    pub at: Timestamp,
    /// The id of the entity whose state, or whose new text, it contains: a newer state of the same
    /// kind replaces it. `None` for an occurrence.
    pub subject: Option<String>,
    /// The content of the event, an object.
    pub properties: Value,
    /// The approximate size, in bytes.
    size: usize,
}

impl SessionEvent {
    /// Returns the event as observers receive it.
    pub fn to_json(&self) -> Value {
        json!({ "id": self.id, "type": self.kind, "properties": self.properties })
    }

    fn is_about(&self, session: &SessionId) -> bool {
        self.session == *session || self.root == *session
    }

    /// Returns whether it reports an occurrence instead of a state or a part of it.
    fn is_fixed(&self) -> bool {
        self.subject.is_none() && self.kind != DELTA
    }

    fn is_delta_of(&self, subject: Option<&str>) -> bool {
        self.kind == DELTA && subject.is_some() && self.subject.as_deref() == subject
    }

    /// Appends the text of the following event, if both are deltas of the same part. Returns
    /// whether they are.
    fn absorb(&mut self, next: &Self) -> bool {
        if !(self.kind == DELTA && next.is_delta_of(self.subject.as_deref())) {
            return false;
        }
        let (Some(Value::String(text)), Some(more)) = (
            self.properties.get_mut("delta"),
            next.properties.get("delta").and_then(Value::as_str),
        ) else {
            return false;
        };
        if text.len() + more.len() > MAX_DELTA_BYTES {
            return false;
        }
        text.push_str(more);
        self.size += more.len();
        self.id.clone_from(&next.id);
        true
    }
}

/// Returns the approximate size of a value in memory, in bytes.
fn size(value: &Value) -> usize {
    const NODE_BYTES: usize = 32;
    NODE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum::<usize>(),
            Value::Object(members) => members
                .iter()
                .map(|(name, item)| NODE_BYTES + name.len() + size(item))
                .sum::<usize>(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// The unread events of one observer.
#[derive(Debug, Clone)]
struct Queue {
    /// The oldest events.
    front: VecDeque<SessionEvent>,
    /// The newest events; empty until `front` is full.
    back: VecDeque<SessionEvent>,
    /// The number of events lost between the two.
    lost: u64,
    /// The approximate size of all events, in bytes.
    bytes: usize,
    /// The size from which on it loses events, in bytes.
    max_bytes: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new(MAX_QUEUE_BYTES)
    }
}

impl Queue {
    fn new(max_bytes: usize) -> Self {
        Self {
            front: VecDeque::new(),
            back: VecDeque::new(),
            lost: 0,
            bytes: 0,
            max_bytes,
        }
    }

    /// Adds an event. `merges` allows it to take the place of an earlier one.
    fn push(&mut self, event: SessionEvent, merges: bool) {
        if merges && let Some(last) = self.back.back_mut().or(self.front.back_mut()) {
            let before = last.size;
            if last.absorb(&event) {
                self.bytes += last.size - before;
                return;
            }
        }
        if merges && event.kind != DELTA && event.subject.is_some() && self.replace(&event) {
            return;
        }
        let is_room = self.front.len() < MAX_HALF && self.bytes < self.max_bytes / 2;
        self.bytes += event.size;
        if self.back.is_empty() && self.lost == 0 && is_room {
            self.front.push_back(event);
            return;
        }
        self.back.push_back(event);
        // The newest event remains, whatever its size.
        while self.back.len() > MAX_HALF || self.bytes > self.max_bytes && self.back.len() > 1 {
            let Some(oldest) = self.back.pop_front() else {
                return;
            };
            self.bytes -= oldest.size;
            self.lost += 1;
        }
    }

    /// Puts an event in the place of an unread one about the same entity. Returns whether there is
    /// one. Deltas after it are dropped, because the newer event contains their text. A state is
    /// not moved across an event that reports no state: a message that was removed and came back
    /// would be removed, and a call would run before its question.
    fn replace(&mut self, event: &SessionEvent) -> bool {
        let is_same = |known: &SessionEvent| {
            known.kind == event.kind
                && known.session == event.session
                && known.subject == event.subject
        };
        let half = if self.back.is_empty() {
            &mut self.front
        } else {
            &mut self.back
        };
        let first = half.len().saturating_sub(MAX_SEARCHED);
        let is_fixed = |known: &SessionEvent| known.session == event.session && known.is_fixed();
        let newest = (first..half.len()).rev();
        let mut movable = newest.take_while(|at| !is_fixed(&half[*at]));
        let Some(at) = movable.find(|at| is_same(&half[*at])) else {
            return false;
        };
        let mut freed = half[at].size;
        // The ids stay in order: an observer that continues after this event receives those behind
        // it.
        let id = std::mem::take(&mut half[at].id);
        half[at] = SessionEvent {
            id,
            ..event.clone()
        };
        let mut index = 0;
        half.retain(|known| {
            let keeps = index <= at || !known.is_delta_of(event.subject.as_deref());
            if !keeps {
                freed += known.size;
            }
            index += 1;
            keeps
        });
        self.bytes = self.bytes + event.size - freed;
        true
    }

    fn pop(&mut self) -> Option<Value> {
        if let Some(event) = self.take() {
            return Some(event.to_json());
        }
        let lost = std::mem::take(&mut self.lost);
        self.front = std::mem::take(&mut self.back);
        if lost > 0 {
            return Some(json!({ "type": LOST, "properties": { "count": lost } }));
        }
        Some(self.take()?.to_json())
    }

    fn take(&mut self) -> Option<SessionEvent> {
        let event = self.front.pop_front()?;
        self.bytes -= event.size;
        Some(event)
    }

    fn is_empty(&self) -> bool {
        self.front.is_empty() && self.back.is_empty() && self.lost == 0
    }

    /// Removes the events that `keeps` refuses.
    fn retain(&mut self, mut keeps: impl FnMut(&SessionEvent) -> bool) {
        self.front.retain(&mut keeps);
        self.back.retain(&mut keeps);
        let all = self.front.iter().chain(&self.back);
        self.bytes = all.map(|event| event.size).sum();
    }

    /// Returns the events behind the one with the id `after` that a filter lets through; if it is
    /// not stored, those with a greater id.
    fn after(&self, after: &str, filter: &EventFilter) -> Self {
        let mut rest = self.clone();
        rest.max_bytes = MAX_QUEUE_BYTES;
        if rest.back.front().is_some_and(|event| *event.id <= *after) {
            rest.lost = 0;
        }
        let mut all = rest.front.iter().chain(&rest.back);
        let is_stored = all.any(|event| *event.id == *after);
        let mut is_behind = false;
        rest.retain(|event| {
            // Sessions that publish at the same time may do so in another order than that of the
            // ids.
            let keeps = if is_stored {
                is_behind
            } else {
                *event.id > *after
            };
            is_behind |= *event.id == *after;
            keeps && filter.covers(event)
        });
        rest
    }
}

/// The observer's side of the queue, shared with the bus.
#[derive(Debug)]
struct Observer {
    filter: EventFilter,
    /// The session that the observer has selected later.
    only: OnceLock<SessionId>,
    /// True if newer events may take the place of unread ones.
    merges: bool,
    /// True if its queue is never read, only copied for observers that come later.
    is_history: bool,
    // A leaf lock around the queue.
    queue: Mutex<Queue>,
    queued: Notify,
}

impl Observer {
    fn covers(&self, event: &SessionEvent) -> bool {
        self.filter.covers(event)
            && self
                .only
                .get()
                .is_none_or(|session| event.is_about(session))
    }

    fn new(filter: EventFilter, queue: Queue) -> Arc<Self> {
        Arc::new(Self {
            merges: !filter.traces,
            is_history: false,
            filter,
            only: OnceLock::new(),
            queue: Mutex::new(queue),
            queued: Notify::new(),
        })
    }
}

/// The events that an observer receives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only this session and its subagents.
    pub session: Option<SessionId>,
    /// Only sessions in these directories or below; `None` for any.
    pub roots: Option<Arc<[PathBuf]>>,
    /// The events for traces as well, without deltas, and none merged: each has its own time.
    pub traces: bool,
}

impl EventFilter {
    fn covers(&self, event: &SessionEvent) -> bool {
        let is_fit = if self.traces {
            event.kind != DELTA
        } else {
            !event.kind.starts_with(TRACE)
        };
        if !is_fit {
            return false;
        }
        let within =
            |roots: &Arc<[PathBuf]>| roots.iter().any(|root| event.directory.starts_with(root));
        self.session
            .as_ref()
            .is_none_or(|session| event.is_about(session))
            && self.roots.as_ref().is_none_or(within)
    }
}

/// The events of all sessions of one user in this process.
#[derive(Debug, Clone, Default)]
pub struct EventBus(Arc<BusState>);

#[derive(Debug, Default)]
struct BusState {
    // A leaf lock around a list.
    observers: Mutex<Vec<Weak<Observer>>>,
    /// The length of that list, read without the lock.
    count: AtomicUsize,
    /// True if deltas are published: an observer in the list reads them, or one has read them and
    /// may continue with those of the history.
    is_read: AtomicBool,
    /// True if an observer has ever requested traces. Such an observer stays until the process
    /// ends.
    is_traced: AtomicBool,
    /// Past events for observers that come later, one by one. It is an observer that never reads.
    history: OnceLock<Arc<Observer>>,
}

impl BusState {
    /// Counts the observers anew.
    fn count(&self, observers: &[Weak<Observer>]) {
        let mut present = observers.iter().filter_map(Weak::upgrade);
        let has_reader = present.any(|observer| !observer.filter.traces && !observer.is_history);
        let may_continue = self.history.get().is_some() && self.is_read.load(Ordering::Relaxed);
        self.is_read
            .store(has_reader || may_continue, Ordering::Relaxed);
        self.count.store(observers.len(), Ordering::Relaxed);
    }
}

impl EventBus {
    /// Returns whether anyone observes. If not, nothing needs to be published.
    pub fn is_observed(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) > 0
    }

    /// Returns whether anyone observes the text of answers as it grows.
    fn is_read(&self) -> bool {
        self.0.is_read.load(Ordering::Relaxed)
    }

    /// Returns whether anyone makes traces of the events.
    pub fn is_traced(&self) -> bool {
        self.0.is_traced.load(Ordering::Relaxed)
    }

    /// Stores the first and the newest events from now on, for [`EventBus::subscribe_after`].
    /// Deltas are stored from the first subscription on: most servers have no observer, and one
    /// that comes in the middle of an answer receives the whole text at its end.
    pub fn keep_history(&self) {
        self.0.history.get_or_init(|| {
            let history = Arc::new(Observer {
                filter: EventFilter::default(),
                only: OnceLock::new(),
                merges: false,
                is_history: true,
                queue: Mutex::new(Queue::new(MAX_HISTORY_BYTES)),
                queued: Notify::new(),
            });
            self.add(&history, &mut lock(&self.0.observers));
            history
        });
    }

    /// Returns a subscription to the events from now on.
    pub fn subscribe(&self, filter: EventFilter) -> Subscription {
        let observer = Observer::new(filter, Queue::default());
        self.add(&observer, &mut lock(&self.0.observers));
        Subscription { observer }
    }

    /// Returns a subscription to the stored events behind the one with the id `after`, and to those
    /// from now on.
    pub fn subscribe_after(&self, filter: EventFilter, after: &str) -> Subscription {
        // Nothing is published between the past and the future.
        let mut observers = lock(&self.0.observers);
        let history = self.0.history.get();
        let past = history.map(|history| lock(&history.queue).after(after, &filter));
        let observer = Observer::new(filter, past.unwrap_or_default());
        self.add(&observer, &mut observers);
        Subscription { observer }
    }

    fn add(&self, observer: &Arc<Observer>, observers: &mut Vec<Weak<Observer>>) {
        if observer.filter.traces {
            self.0.is_traced.store(true, Ordering::Relaxed);
        }
        observers.push(Arc::downgrade(observer));
        self.0.count(observers);
    }

    /// Adds an event to the queues of its observers.
    pub fn publish(&self, event: &SessionEvent) {
        let mut observers = lock(&self.0.observers);
        let before = observers.len();
        observers.retain(|observer| {
            let Some(observer) = observer.upgrade() else {
                return false;
            };
            if observer.covers(event) {
                lock(&observer.queue).push(event.clone(), observer.merges);
                observer.queued.notify_one();
            }
            true
        });
        if observers.len() != before {
            self.0.count(&observers);
        }
    }
}

/// The events that one observer has not read yet. There is one reader.
#[derive(Debug)]
pub struct Subscription {
    observer: Arc<Observer>,
}

impl Subscription {
    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> Value {
        loop {
            self.ready().await;
            if let Some(event) = self.try_next() {
                return event;
            }
        }
    }

    /// Waits until there is an event. Cancel-safe.
    pub async fn ready(&self) {
        while lock(&self.observer.queue).is_empty() {
            self.observer.queued.notified().await;
        }
    }

    /// Returns the next event with its time, if there is one. Lost events are not reported.
    pub fn try_next_event(&mut self) -> Option<SessionEvent> {
        let mut queue = lock(&self.observer.queue);
        if queue.front.is_empty() {
            queue.lost = 0;
            queue.front = std::mem::take(&mut queue.back);
        }
        queue.take()
    }

    /// Returns the next event, if there is one.
    pub fn try_next(&mut self) -> Option<Value> {
        lock(&self.observer.queue).pop()
    }

    /// Selects a session: the events of others are removed, and no longer received.
    pub fn select(&mut self, session: SessionId) {
        let only = self.observer.only.get_or_init(|| session);
        lock(&self.observer.queue).retain(|event| event.is_about(only));
    }

    /// Returns access to the same queue for its other side.
    pub fn entry(&self) -> SubscriptionEntry {
        SubscriptionEntry(Arc::downgrade(&self.observer))
    }
}

/// The side of a subscription where events arrive.
#[derive(Debug, Clone)]
pub struct SubscriptionEntry(Weak<Observer>);

impl SubscriptionEntry {
    /// Adds an event for this observer only.
    pub fn push(&self, event: SessionEvent) {
        if let Some(observer) = self.0.upgrade() {
            lock(&observer.queue).push(event, true);
            observer.queued.notify_one();
        }
    }

    /// Returns whether all events were read.
    pub fn is_empty(&self) -> bool {
        self.0
            .upgrade()
            .is_none_or(|observer| lock(&observer.queue).is_empty())
    }
}

/// The publisher of one session's events.
#[derive(Debug, Clone)]
pub struct Publisher {
    bus: EventBus,
    /// The source of ids and times; `None` if there are never observers.
    environment: Option<Environment>,
    pub session: SessionId,
    /// The user's session to which it belongs.
    root: SessionId,
    /// The working directory of the user's session.
    directory: Arc<Path>,
}

impl Publisher {
    pub fn new(
        bus: EventBus,
        environment: &Environment,
        session: SessionId,
        directory: &Path,
    ) -> Self {
        Self {
            bus,
            environment: Some(environment.clone()),
            root: session.clone(),
            session,
            directory: directory.into(),
        }
    }

    /// Returns a publisher without observers.
    pub fn silent(session: SessionId) -> Self {
        Self {
            bus: EventBus::default(),
            environment: None,
            root: session.clone(),
            session,
            directory: Path::new("").into(),
        }
    }

    /// Returns the publisher of a subagent's session.
    #[must_use]
    pub fn of_subagent(&self, session: SessionId) -> Self {
        Self {
            session,
            ..self.clone()
        }
    }

    pub fn bus(&self) -> &EventBus {
        &self.bus
    }

    /// Returns whether anyone observes.
    pub fn is_observed(&self) -> bool {
        self.bus.is_observed()
    }

    /// Returns an event of this session. `subject` is the entity whose state it contains.
    pub fn event(
        &self,
        kind: &'static str,
        subject: Option<&str>,
        properties: Value,
    ) -> SessionEvent {
        let id = self
            .environment
            .as_ref()
            .map(|environment| environment.fresh("evt"));
        SessionEvent {
            id: id.unwrap_or_default(),
            kind,
            session: self.session.clone(),
            root: self.root.clone(),
            directory: self.directory.clone(),
            at: self
                .environment
                .as_ref()
                .map_or(Timestamp(0), Environment::now),
            subject: subject.map(str::to_owned),
            size: size(&properties),
            properties,
        }
    }

    /// Publishes an event for traces. `properties` is only called if anyone makes traces.
    pub fn trace(&self, kind: &'static str, properties: impl FnOnce() -> Value) {
        if self.bus.is_traced() {
            self.bus.publish(&self.event(kind, None, properties()));
        }
    }

    /// Publishes an event. `properties` is only called if anyone observes.
    pub fn publish(
        &self,
        kind: &'static str,
        subject: Option<&str>,
        properties: impl FnOnce() -> Value,
    ) {
        let is_wanted = if kind == DELTA {
            self.bus.is_read()
        } else {
            self.is_observed()
        };
        if is_wanted {
            self.bus.publish(&self.event(kind, subject, properties()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publisher(bus: &EventBus, session: &str) -> Publisher {
        Publisher {
            bus: bus.clone(),
            directory: Path::new("/p/one").into(),
            ..Publisher::silent(SessionId::new(session))
        }
    }

    fn delta(of: &Publisher, part: &str, text: &str) {
        of.publish(
            DELTA,
            Some(part),
            || json!({ "partID": part, "delta": text }),
        );
    }

    fn state(of: &Publisher, part: &str, text: &str) {
        of.publish(
            "message.part.updated",
            Some(part),
            || json!({ "text": text }),
        );
    }

    /// Reads everything: the kind, and the text or the count.
    fn read(subscription: &mut Subscription) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(event) = subscription.try_next() {
            let about = &event["properties"];
            let text = ["delta", "text", "count", "n"]
                .iter()
                .find_map(|key| about.get(*key));
            all.push(format!(
                "{} {}",
                event["type"].as_str().unwrap(),
                text.unwrap_or(&Value::Null)
            ));
        }
        all
    }

    #[test]
    fn deltas_are_merged_and_states_replaced() {
        let bus = EventBus::default();
        let mut seen = bus.subscribe(EventFilter::default());
        let first = publisher(&bus, "ses_1");
        state(&first, "a", "");
        delta(&first, "a", "x");
        delta(&first, "a", "y");
        delta(&first, "b", "z");
        delta(&first, "a", "!");
        first.publish("session.status", None, || json!({ "n": 1 }));
        first.publish("session.status", None, || json!({ "n": 2 }));
        assert_eq!(
            read(&mut seen),
            [
                "message.part.updated \"\"",
                "message.part.delta \"xy\"",
                "message.part.delta \"z\"",
                "message.part.delta \"!\"",
                "session.status 1",
                "session.status 2",
            ]
        );
        state(&first, "a", "xy");
        delta(&first, "a", "!");
        delta(&first, "b", "z");
        state(&first, "a", "xy!?");
        assert_eq!(
            read(&mut seen),
            ["message.part.updated \"xy!?\"", "message.part.delta \"z\""]
        );
    }

    #[test]
    fn states_are_not_moved_across_occurrences_of_their_session() {
        let bus = EventBus::default();
        let first = publisher(&bus, "ses_1");
        let child = first.of_subagent(SessionId::new("ses_2"));
        let table = [
            (&first, "message.removed", vec!["\"old\"", "1", "\"new\""]),
            (&first, "permission.asked", vec!["\"old\"", "1", "\"new\""]),
            (&child, "permission.asked", vec!["\"new\"", "1"]),
        ];
        for (publisher, kind, wanted) in table {
            let mut seen = bus.subscribe(EventFilter::default());
            state(&first, "a", "old");
            publisher.publish(kind, None, || json!({ "n": 1 }));
            state(&first, "a", "new");
            let read = read(&mut seen);
            let texts: Vec<&str> = read
                .iter()
                .filter_map(|line| line.split_once(' '))
                .map(|(_, text)| text)
                .collect();
            assert_eq!(texts, wanted, "{kind}");
        }
    }

    #[test]
    fn slow_observer_loses_the_middle() {
        let bus = EventBus::default();
        let mut seen = bus.subscribe(EventFilter::default());
        let first = publisher(&bus, "ses_1");
        for n in 0..2000 {
            first.publish("session.status", None, || json!({ "n": n }));
        }
        let all = read(&mut seen);
        assert_eq!(all.len(), 2 * MAX_HALF + 1);
        assert_eq!(all[MAX_HALF - 1], "session.status 511");
        assert_eq!(all[MAX_HALF], format!("{LOST} 976"));
        assert_eq!(all[MAX_HALF + 1], "session.status 1488");
        assert_eq!(all.last().unwrap(), "session.status 1999");
        first.publish("session.status", None, || json!({ "n": 7 }));
        assert_eq!(read(&mut seen), ["session.status 7"]);
    }

    #[test]
    fn queue_of_large_events_is_limited_by_its_size() {
        let bus = EventBus::default();
        let mut seen = bus.subscribe(EventFilter::default());
        let first = publisher(&bus, "ses_1");
        let large = "x".repeat(1 << 20);
        for n in 0..100 {
            first.publish("file.edited", None, || json!({ "n": n, "file": large }));
        }
        let all = read(&mut seen);
        assert!(all.len() < 20, "{}", all.len());
        assert!(all.iter().any(|line| line.starts_with(LOST)));
        assert_eq!(all.last().unwrap(), "file.edited 99");
        assert_eq!(lock(&seen.observer.queue).bytes, 0);
    }

    #[test]
    fn filter_selects_sessions_with_their_subagents_and_directories() {
        let bus = EventBus::default();
        let first = publisher(&bus, "ses_1");
        let child = first.of_subagent(SessionId::new("ses_2"));
        let other = publisher(&bus, "ses_3");
        let roots = |root: &str| Some(Arc::from([PathBuf::from(root)]));
        let session = |id: &str| Some(SessionId::new(id));
        let filter = |session, roots| EventFilter {
            session,
            roots,
            traces: false,
        };
        let table = [
            (filter(None, None), 3),
            (filter(session("ses_1"), None), 2),
            (filter(session("ses_2"), None), 1),
            (filter(session("ses_4"), None), 0),
            (filter(None, roots("/p")), 3),
            (filter(None, roots("/p/on")), 0),
            (filter(None, Some(Arc::from([]))), 0),
        ];
        for (filter, count) in table {
            let mut seen = bus.subscribe(filter.clone());
            for publisher in [&first, &child, &other] {
                publisher.publish("session.idle", None, || json!({}));
            }
            assert_eq!(read(&mut seen).len(), count, "{filter:?}");
        }
    }

    #[test]
    fn late_observer_receives_stored_events_once() {
        let environment = Environment::from_vars([].into());
        let bus = EventBus::default();
        let mut unstored = bus.subscribe_after(EventFilter::default(), "");
        bus.keep_history();
        let first = Publisher {
            environment: Some(environment),
            ..publisher(&bus, "ses_1")
        };
        let other = first.of_subagent(SessionId::new("ses_2"));
        first.publish("session.created", None, || json!({ "n": 1 }));
        delta(&first, "a", "x");
        delta(&first, "a", "y");
        other.publish("session.created", None, || json!({ "n": 2 }));
        let all = [
            "session.created 1",
            "message.part.delta \"xy\"",
            "session.created 2",
        ];
        assert_eq!(read(&mut unstored), all);
        let ids: Vec<_> = {
            let mut each = bus.subscribe_after(EventFilter::default(), "");
            std::iter::from_fn(|| each.try_next_event())
                .map(|event| event.id)
                .collect()
        };
        assert_eq!(ids.len(), 4);
        let only = |session: &str| EventFilter {
            session: Some(SessionId::new(session)),
            ..EventFilter::default()
        };
        let table = [
            (
                EventFilter::default(),
                &*ids[1],
                vec!["message.part.delta \"y\"", all[2]],
            ),
            (EventFilter::default(), &*ids[3], vec![]),
            (only("ses_2"), "", vec![all[2]]),
        ];
        let mut observers: Vec<Subscription> = Vec::new();
        for (filter, after, wanted) in table {
            let mut seen = bus.subscribe_after(filter, after);
            assert_eq!(read(&mut seen), wanted, "{after}");
            observers.push(seen);
        }
        first.publish("session.idle", None, || json!({ "n": 3 }));
        let counts: Vec<usize> = observers.iter_mut().map(|seen| read(seen).len()).collect();
        assert_eq!(counts, [1, 1, 0]);
    }

    #[test]
    fn history_has_deltas_from_the_first_reader_on() {
        let bus = EventBus::default();
        bus.keep_history();
        let first = Publisher {
            environment: Some(Environment::from_vars([].into())),
            ..publisher(&bus, "ses_1")
        };
        first.publish(DELTA, Some("a"), || unreachable!("nobody reads deltas"));
        first.publish("session.idle", None, || json!({ "n": 1 }));
        drop(bus.subscribe(EventFilter::default()));
        delta(&first, "a", "x");
        // By now the reader is known to have gone, and may come back.
        delta(&first, "a", "y");
        let mut seen = bus.subscribe_after(EventFilter::default(), "");
        assert_eq!(
            read(&mut seen),
            [
                "session.idle 1",
                "message.part.delta \"x\"",
                "message.part.delta \"y\""
            ]
        );
    }

    #[test]
    fn history_keeps_the_first_and_the_newest_events_and_counts_the_rest() {
        let bus = EventBus::default();
        bus.keep_history();
        let first = Publisher {
            environment: Some(Environment::from_vars([].into())),
            ..publisher(&bus, "ses_1")
        };
        for n in 0..2000 {
            first.publish("session.status", None, || json!({ "n": n }));
        }
        let mut all = bus.subscribe_after(EventFilter::default(), "");
        let newest = all.observer.queue.lock().unwrap().back[0].id.clone();
        let texts = read(&mut all);
        assert_eq!(texts[0], "session.status 0");
        assert!(texts.contains(&format!("{LOST} 976")));
        assert_eq!(texts.last().unwrap(), "session.status 1999");
        let mut rest = bus.subscribe_after(EventFilter::default(), &newest);
        assert_eq!(read(&mut rest).len(), MAX_HALF - 1);
    }

    #[test]
    fn replaced_events_leave_the_ids_in_order() {
        let bus = EventBus::default();
        let mut seen = bus.subscribe(EventFilter::default());
        let first = Publisher {
            environment: Some(Environment::from_vars([].into())),
            ..publisher(&bus, "ses_1")
        };
        state(&first, "a", "x");
        state(&first, "b", "x");
        state(&first, "a", "y");
        let ids: Vec<String> = std::iter::from_fn(|| seen.try_next_event())
            .map(|event| event.id)
            .collect();
        assert_eq!(ids.len(), 2);
        assert!(ids[0] < ids[1], "{ids:?}");
    }

    #[test]
    fn session_that_is_selected_later_is_the_only_one_left() {
        let bus = EventBus::default();
        let mut seen = bus.subscribe(EventFilter::default());
        let first = publisher(&bus, "ses_1");
        let other = publisher(&bus, "ses_3");
        for n in 1..3 {
            first.publish("session.status", None, || json!({ "n": n }));
            other.publish("session.status", None, || json!({ "n": 7 }));
            seen.select(SessionId::new("ses_1"));
        }
        assert_eq!(read(&mut seen), ["session.status 1", "session.status 2"]);
    }

    #[test]
    fn without_observers_nothing_is_made() {
        let bus = EventBus::default();
        drop(bus.subscribe(EventFilter::default()));
        let first = publisher(&bus, "ses_1");
        // The next event finds out that the observer has gone.
        first.publish("session.idle", None, || json!({}));
        assert!(!bus.is_observed());
        first.publish("session.idle", None, || unreachable!());
    }

    #[test]
    fn observer_of_traces_receives_each_event_and_no_deltas() {
        let bus = EventBus::default();
        let first = publisher(&bus, "ses_1");
        first.trace(TURN_STARTED, || unreachable!("nobody makes traces"));
        let mut usual = bus.subscribe(EventFilter::default());
        let mut traces = bus.subscribe(EventFilter {
            traces: true,
            ..EventFilter::default()
        });
        first.trace(TURN_STARTED, || json!({}));
        state(&first, "a", "1");
        delta(&first, "a", "x");
        state(&first, "a", "2");
        let kinds: Vec<_> = std::iter::from_fn(|| traces.try_next_event())
            .map(|event| (event.kind, event.properties["text"].clone()))
            .collect();
        assert_eq!(
            kinds,
            [
                (TURN_STARTED, Value::Null),
                ("message.part.updated", "1".into()),
                ("message.part.updated", "2".into()),
            ]
        );
        assert_eq!(read(&mut usual), ["message.part.updated \"2\""]);
        drop(usual);
        first.publish(
            DELTA,
            Some("a"),
            || json!({ "delta": "seen by the departed only" }),
        );
        first.publish(DELTA, Some("a"), || unreachable!("nobody reads deltas"));
        assert!(traces.try_next_event().is_none());
    }
}
