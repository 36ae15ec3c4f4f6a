//! A bounded queue whose senders hand over first and wait afterwards.
//!
//! A bounded channel of tokio gives its free places to those who wait, in turn. One that is given to
//! a future which its task does not poll at the moment, because the task itself waits for a place,
//! is lost to everybody. Here a future that waits holds nothing: it can be left alone for as long as its
//! task likes. There may be more in the queue than its room, by what each sender has handed over
//! last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Notify, mpsc};

/// A queue with room for so many items.
pub fn channel<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let shared = Arc::new(ChannelState {
        room,
        waiting: AtomicUsize::new(0),
        gone: AtomicBool::new(false),
        freed: Notify::new(),
    });
    (Sender { sender, shared: shared.clone() }, Receiver { receiver, shared })
}

#[derive(Debug)]
struct ChannelState {
    room: usize,
    waiting: AtomicUsize,
    gone: AtomicBool,
    freed: Notify,
}

/// The end where items are put in. The queue closes when the last one is gone.
pub struct Sender<T> {
    sender: mpsc::UnboundedSender<T>,
    shared: Arc<ChannelState>,
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), shared: self.shared.clone() }
    }
}

impl<T> Sender<T> {
    /// Hands an item over, then waits while there is more than the room. False when nobody receives.
    pub async fn send(&self, item: T) -> bool {
        if !self.put(item) {
            return false;
        }
        loop {
            let freed = self.shared.freed.notified();
            if self.shared.waiting.load(Ordering::SeqCst) <= self.shared.room || self.shared.gone.load(Ordering::SeqCst)
            {
                return true;
            }
            freed.await;
        }
    }

    /// Hands an item over, whatever room there is: for those who wait for something that comes of it.
    /// False when nobody receives.
    pub fn put(&self, item: T) -> bool {
        self.shared.waiting.fetch_add(1, Ordering::SeqCst);
        self.sender.send(item).is_ok()
    }

    /// A hand that does not keep the queue open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender { sender: self.sender.downgrade(), shared: self.shared.clone() }
    }
}

/// A [`Sender`] that does not keep the queue open.
pub struct WeakSender<T> {
    sender: mpsc::WeakUnboundedSender<T>,
    shared: Arc<ChannelState>,
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), shared: self.shared.clone() }
    }
}

impl<T> WeakSender<T> {
    /// The sender, while there is another one.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        Some(Sender { sender: self.sender.upgrade()?, shared: self.shared.clone() })
    }
}

/// The end where items come out, in the order in which they were put in.
#[derive(Debug)]
pub struct Receiver<T> {
    receiver: mpsc::UnboundedReceiver<T>,
    shared: Arc<ChannelState>,
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::SeqCst);
        self.shared.freed.notify_waiters();
    }
}

impl<T> Receiver<T> {
    /// The next item; none when all senders are gone.
    pub async fn recv(&mut self) -> Option<T> {
        let item = self.receiver.recv().await;
        self.taken(usize::from(item.is_some()));
        item
    }

    /// Waits for an item, and takes out `limit` at most. 0 when all senders are gone.
    pub async fn recv_many(&mut self, items: &mut Vec<T>, limit: usize) -> usize {
        let taken = self.receiver.recv_many(items, limit).await;
        self.taken(taken);
        taken
    }

    /// The next item, if there is one now.
    ///
    /// # Errors
    /// There is none now, or never will be.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let item = self.receiver.try_recv();
        self.taken(usize::from(item.is_ok()));
        item
    }

    /// The next item, for a thread that may wait; none when all senders are gone.
    pub fn blocking_recv(&mut self) -> Option<T> {
        let item = self.receiver.blocking_recv();
        self.taken(usize::from(item.is_some()));
        item
    }

    fn taken(&self, count: usize) {
        let ChannelState { room, waiting, freed, .. } = &*self.shared;
        let before = waiting.fetch_sub(count, Ordering::SeqCst);
        if before > *room && before - count <= *room {
            freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn senders_wait_where_there_is_no_room_and_hold_nothing() {
        let (sender, mut receiver) = channel(2);
        assert_eq!(sender.send(1).now_or_never(), Some(true));
        assert_eq!(sender.send(2).now_or_never(), Some(true));
        // They wait, and are not looked at again.
        let mut asleep: Vec<_> = (3..50).map(|n| Box::pin(sender.send(n))).collect();
        assert!(asleep.iter_mut().all(|send| send.now_or_never().is_none()));
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
    async fn nobody_waits_for_a_receiver_that_is_gone() {
        let (sender, receiver) = channel(0);
        let mut waiting = Box::pin(sender.send(1));
        assert!((&mut waiting).now_or_never().is_none());
        drop(receiver);
        assert!(waiting.await);
        assert!(!sender.send(2).await);
    }
}
