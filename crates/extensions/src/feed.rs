//! [`EventFeed`], the events of a session for one plugin host. A task sends them in batches, so that no turn
//! waits for a plugin. A host that falls behind loses events from the middle of its queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::host::PluginHost;
use events::bus::{SessionEvent, Subscription, SubscriptionEntry};

/// The maximum number of events in one message to the host.
const MAX_BATCH: usize = 64;

/// The sending side of a host's events.
#[derive(Debug, Clone)]
pub(super) struct EventFeed {
    entry: SubscriptionEntry,
    progress: Arc<FeedProgress>,
}

#[derive(Debug, Default)]
struct FeedProgress {
    /// A batch was taken from the queue and is not sent yet.
    is_sending: AtomicBool,
    /// Notified when a batch was sent.
    sent: Notify,
}

impl EventFeed {
    /// Starts sending events to a host, until it ends.
    pub(super) fn start(events: Subscription, host: &Arc<PluginHost>) -> Self {
        let feed = Self {
            entry: events.entry(),
            progress: Arc::default(),
        };
        base::task::spawn(send_batches(
            events,
            Arc::downgrade(host),
            feed.progress.clone(),
        ));
        feed
    }

    /// Adds an event for this host only.
    pub(super) fn push(&self, event: SessionEvent) {
        self.entry.push(event);
    }

    /// Waits until all events so far were sent to the host.
    pub(super) async fn wait_until_sent(&self) {
        loop {
            let sent = self.progress.sent.notified();
            tokio::pin!(sent);
            sent.as_mut().enable();
            if self.entry.is_empty() && !self.progress.is_sending.load(Ordering::Acquire) {
                return;
            }
            sent.await;
        }
    }
}

/// Sends the events until the host ends.
async fn send_batches(
    mut events: Subscription,
    host: std::sync::Weak<PluginHost>,
    progress: Arc<FeedProgress>,
) {
    loop {
        let Some(host_ended) = host.upgrade().map(|host| host.end_signal()) else {
            return;
        };
        tokio::select! {
            () = events.ready() => {}
            () = host_ended.cancelled() => return end(events, &progress),
        }
        progress.is_sending.store(true, Ordering::Release);
        let batch: Vec<Value> = std::iter::from_fn(|| events.try_next())
            .take(MAX_BATCH)
            .collect();
        let Some(strong) = host.upgrade() else { return };
        let answer = strong
            .send_request("events", json!({ "events": batch }))
            .await;
        drop(strong);
        progress.is_sending.store(false, Ordering::Release);
        progress.sent.notify_waiters();
        // The answer comes when the host can take more; a host that has ended is not waited for.
        let Ok(answer) = answer else {
            return end(events, &progress);
        };
        tokio::select! {
            _ = answer => {}
            () = host_ended.cancelled() => return end(events, &progress),
        }
    }
}

/// Drops the unread events, and releases everyone who waits for their delivery.
fn end(events: Subscription, progress: &FeedProgress) {
    drop(events);
    progress.sent.notify_waiters();
}
