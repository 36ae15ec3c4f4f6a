//! Limits on the memory of incomplete messages: one for each user, and one for all users together.
//! The callers limit the size of a single message.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The budget of a user, in messages of the maximum size.
const MAX_USER_MESSAGES: usize = 2;

/// The budget of all users together, in messages of the maximum size.
const MAX_ALL_MESSAGES: usize = 8;

/// The budget of a user for incomplete messages. It counts the bytes of the user and of all users.
#[derive(Debug, Clone)]
pub struct MessageBudget {
    user: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
    /// The maximum length of a message in bytes.
    message: usize,
}

impl MessageBudget {
    /// Creates the budget of a user from the counters of the user and of all users.
    pub fn new(user: Arc<AtomicUsize>, all: Arc<AtomicUsize>, message: usize) -> Self {
        Self { user, all, message }
    }

    /// Returns a new message without bytes.
    pub fn begin(&self) -> IncompleteMessage {
        IncompleteMessage {
            budget: self.clone(),
            bytes: AtomicUsize::new(0),
            is_discarded: AtomicBool::new(false),
        }
    }
}

/// An incomplete message. Dropping it returns its bytes to the budget.
#[derive(Debug)]
pub struct IncompleteMessage {
    budget: MessageBudget,
    bytes: AtomicUsize,
    is_discarded: AtomicBool,
}

impl IncompleteMessage {
    /// Adds bytes to the message. Returns `false`, and adds none, if they would exceed the budget.
    /// Ignores the bytes of a discarded message.
    pub fn grow(&self, bytes: usize) -> bool {
        if self.is_discarded.load(Ordering::Relaxed) {
            return true;
        }
        let MessageBudget { user, all, message } = &self.budget;
        let fits = |count: &AtomicUsize, messages: usize| {
            let limit = message.saturating_mul(messages);
            let grown = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= limit);
            count
                .try_update(Ordering::Relaxed, Ordering::Relaxed, grown)
                .is_ok()
        };
        if !fits(user, MAX_USER_MESSAGES) {
            return false;
        }
        if !fits(all, MAX_ALL_MESSAGES) {
            user.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Ends the message, and returns its bytes to the budget. Later bytes belong to the next one.
    pub fn finish(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.budget.user.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.all.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes to the budget, and stops counting: the caller discards the rest of the
    /// message.
    pub fn discard(&self) {
        self.is_discarded.store(true, Ordering::Relaxed);
        self.finish();
    }
}

impl Drop for IncompleteMessage {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A connection that adds the bytes it reads to an incomplete message. Reading fails if the budget
/// is exhausted.
pub struct MeteredIo<T> {
    io: T,
    unfinished: Arc<IncompleteMessage>,
}

impl<T> MeteredIo<T> {
    pub fn new(io: T, unfinished: Arc<IncompleteMessage>) -> Self {
        Self { io, unfinished }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for MeteredIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let is_within_budget = self.unfinished.grow(buf.filled().len() - before);
        let full = || {
            std::io::Error::new(
                std::io::ErrorKind::OutOfMemory,
                "the incomplete messages exceed their memory budget",
            )
        };
        Poll::Ready(if is_within_budget {
            Ok(())
        } else {
            Err(full())
        })
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for MeteredIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn unfinished_messages_stay_within_budget() {
        let all = Arc::<AtomicUsize>::default();
        let users: Vec<_> = (0..5)
            .map(|_| MessageBudget::new(Arc::default(), all.clone(), 10))
            .collect();
        let first = users[0].begin();
        let second = users[0].begin();
        assert!(first.grow(10) && second.grow(10) && !second.grow(1));
        // A finished message frees its bytes.
        first.finish();
        assert!(second.grow(10) && !first.grow(1));
        drop(second);
        assert_eq!(all.load(Ordering::Relaxed), 0);
        let others: Vec<_> = users[1..].iter().map(MessageBudget::begin).collect();
        assert!(others.iter().all(|message| message.grow(20)));
        assert!(!first.grow(1), "the budget of all users is exhausted");
        assert_eq!(users[0].user.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn reading_fails_when_budget_is_exhausted() {
        let message = Arc::new(MessageBudget::new(Arc::default(), Arc::default(), 4).begin());
        let mut io = MeteredIo::new(&[1_u8; 20][..], message.clone());
        let mut read = [0; 6];
        assert_eq!(io.read(&mut read).await.unwrap(), 6);
        assert!(io.read(&mut read).await.is_err());
        message.finish();
        assert_eq!(io.read(&mut read).await.unwrap(), 6);
    }
}
