//! A bounded queue whose senders enqueue first and wait afterwards.
//!
//! A bounded channel of tokio assigns each free slot to the first waiting send. If that future is not
//! polled, because its task waits for a second slot, the slot stays unused. Here a waiting future
//! holds no slot, so a task may leave it unpolled for any length of time. In return, the queue may
//! exceed its capacity: by the item of each pending call of [`Sender::send`], and by everything that
//! [`Sender::put`] enqueues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Notify, mpsc};

/// Creates a queue with the given capacity.
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let shared = Arc::new(ChannelState {
        capacity,
        len: AtomicUsize::new(0),
        is_closed: AtomicBool::new(false),
        freed: Notify::new(),
    });
    (
        Sender {
            sender,
            shared: shared.clone(),
        },
        Receiver { receiver, shared },
    )
}

#[derive(Debug)]
struct ChannelState {
    capacity: usize,
    /// The number of items in the queue.
    len: AtomicUsize,
    /// True if the receiver is dropped.
    is_closed: AtomicBool,
    /// Notified when the queue no longer exceeds its capacity, or its receiver is dropped.
    freed: Notify,
}

/// The sending end. The queue closes when the last sender is dropped.
pub struct Sender<T> {
    sender: mpsc::UnboundedSender<T>,
    shared: Arc<ChannelState>,
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl<T> Sender<T> {
    /// Enqueues an item, then waits while the queue exceeds its capacity. Returns `false` if the
    /// receiver was already dropped; if it is dropped during the wait, returns `true`, and the item
    /// is lost.
    pub async fn send(&self, item: T) -> bool {
        if !self.put(item) {
            return false;
        }
        loop {
            let freed = self.shared.freed.notified();
            let has_room = self.shared.len.load(Ordering::SeqCst) <= self.shared.capacity;
            if has_room || self.shared.is_closed.load(Ordering::SeqCst) {
                return true;
            }
            freed.await;
        }
    }

    /// Enqueues an item without waiting, even if the queue is full. Only for items whose number is
    /// limited by other means, such as requests whose reply the caller awaits. Returns `false` if the
    /// receiver is dropped.
    pub fn put(&self, item: T) -> bool {
        self.shared.len.fetch_add(1, Ordering::SeqCst);
        self.sender.send(item).is_ok()
    }

    /// Returns a sender that does not keep the queue open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender {
            sender: self.sender.downgrade(),
            shared: self.shared.clone(),
        }
    }
}

/// A [`Sender`] that does not keep the queue open.
pub struct WeakSender<T> {
    sender: mpsc::WeakUnboundedSender<T>,
    shared: Arc<ChannelState>,
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl<T> WeakSender<T> {
    /// Returns a sender, if another one still exists.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        Some(Sender {
            sender: self.sender.upgrade()?,
            shared: self.shared.clone(),
        })
    }
}

/// The receiving end. Items arrive in the order in which they were sent.
#[derive(Debug)]
pub struct Receiver<T> {
    receiver: mpsc::UnboundedReceiver<T>,
    shared: Arc<ChannelState>,
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.freed.notify_waiters();
    }
}

impl<T> Receiver<T> {
    /// Returns the next item, or `None` when the queue is empty and all senders are dropped.
    pub async fn recv(&mut self) -> Option<T> {
        let item = self.receiver.recv().await;
        self.release_capacity(usize::from(item.is_some()));
        item
    }

    /// Waits for an item, then appends up to `limit` queued items to `items`. Returns their number,
    /// which is 0 when the queue is empty and all senders are dropped.
    pub async fn recv_many(&mut self, items: &mut Vec<T>, limit: usize) -> usize {
        let taken = self.receiver.recv_many(items, limit).await;
        self.release_capacity(taken);
        taken
    }

    /// Returns the next item, if one is queued.
    ///
    /// # Errors
    /// The queue is empty; the error is `Disconnected` if it is also closed, otherwise `Empty`.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let item = self.receiver.try_recv();
        self.release_capacity(usize::from(item.is_ok()));
        item
    }

    /// Returns the next item, blocking the thread, or `None` when the queue is empty and all
    /// senders are dropped.
    pub fn blocking_recv(&mut self) -> Option<T> {
        let item = self.receiver.blocking_recv();
        self.release_capacity(usize::from(item.is_some()));
        item
    }

    fn release_capacity(&self, count: usize) {
        let ChannelState {
            capacity,
            len,
            freed,
            ..
        } = &*self.shared;
        let before = len.fetch_sub(count, Ordering::SeqCst);
        if before > *capacity && before - count <= *capacity {
            freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a task of a test")]
    async fn waiting_senders_hold_no_slots() {
        let (sender, mut receiver) = channel(2);
        assert_eq!(sender.send(1).now_or_never(), Some(true));
        assert_eq!(sender.send(2).now_or_never(), Some(true));
        // These wait and are not polled again.
        let mut unpolled: Vec<_> = (3..50).map(|n| Box::pin(sender.send(n))).collect();
        assert!(
            unpolled
                .iter_mut()
                .all(|send| send.now_or_never().is_none())
        );
        let last = tokio::spawn({
            let sender = sender.clone();
            async move { sender.send(50).await }
        });
        tokio::task::yield_now().await;
        for n in 1..=50 {
            assert_eq!(receiver.recv().await, Some(n));
        }
        assert!(last.await.unwrap());
        assert!(receiver.try_recv().is_err());
    }

    #[tokio::test]
    async fn senders_stop_waiting_when_receiver_is_dropped() {
        let (sender, receiver) = channel(0);
        let mut waiting = Box::pin(sender.send(1));
        assert!((&mut waiting).now_or_never().is_none());
        drop(receiver);
        assert!(waiting.await);
        assert!(!sender.send(2).await);
    }
}
