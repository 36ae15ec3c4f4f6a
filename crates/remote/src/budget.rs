//! How much memory messages take that have not come whole. Each has its own limit; what many senders begin and do not
//! end has one for their user, and one for all.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So many messages of the largest size may be unfinished for one user.
const USER_MESSAGES: usize = 2;

/// The same for all users together.
const ALL_MESSAGES: usize = 8;

/// What unfinished messages of one user and of all may take, and take.
#[derive(Debug, Clone)]
pub struct MessageBudget {
    user: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
    /// The largest message, in bytes.
    message: usize,
}

impl MessageBudget {
    /// That of a user, with what is counted of them and of all.
    pub fn new(user: Arc<AtomicUsize>, all: Arc<AtomicUsize>, message: usize) -> Self {
        Self { user, all, message }
    }

    /// Begins a message, of which nothing has come.
    pub fn begin(&self) -> UnfinishedMessage {
        UnfinishedMessage { budget: self.clone(), bytes: AtomicUsize::new(0), is_discarded: AtomicBool::new(false) }
    }
}

/// A message of which so many bytes have come. What it takes is given back when it is dropped.
#[derive(Debug)]
pub struct UnfinishedMessage {
    budget: MessageBudget,
    bytes: AtomicUsize,
    is_discarded: AtomicBool,
}

impl UnfinishedMessage {
    /// Takes note of more bytes. False: there is no room for them.
    pub fn grow(&self, bytes: usize) -> bool {
        if self.is_discarded.load(Ordering::Relaxed) {
            return true;
        }
        let MessageBudget { user, all, message } = &self.budget;
        let fits = |count: &AtomicUsize, messages: usize| {
            let most = message.saturating_mul(messages);
            let grown = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= most);
            count.try_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
        };
        if !fits(user, USER_MESSAGES) {
            return false;
        }
        if !fits(all, ALL_MESSAGES) {
            user.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// It has come whole: what follows is another one.
    pub fn finish(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.budget.user.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.all.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What comes from now on is read and not kept.
    pub fn discard(&self) {
        self.is_discarded.store(true, Ordering::Relaxed);
        self.finish();
    }
}

impl Drop for UnfinishedMessage {
    fn drop(&mut self) {
        self.finish();
    }
}

/// What is read from counts as part of a message until that is finished; where there is no room for more, reading
/// fails.
pub struct MeteredIo<T> {
    io: T,
    unfinished: Arc<UnfinishedMessage>,
}

impl<T> MeteredIo<T> {
    pub fn new(io: T, unfinished: Arc<UnfinishedMessage>) -> Self {
        Self { io, unfinished }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for MeteredIo<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let room = self.unfinished.grow(buf.filled().len() - before);
        let full = || std::io::Error::new(std::io::ErrorKind::OutOfMemory, "too much has come of unfinished messages");
        Poll::Ready(if room { Ok(()) } else { Err(full()) })
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for MeteredIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
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
    fn unfinished_messages_take_what_they_may() {
        let all = Arc::<AtomicUsize>::default();
        let users: Vec<_> = (0..5).map(|_| MessageBudget::new(Arc::default(), all.clone(), 10)).collect();
        let (one, two) = (users[0].begin(), users[0].begin());
        assert!(one.grow(10) && two.grow(10) && !two.grow(1));
        // A finished one makes room.
        one.finish();
        assert!(two.grow(10) && !one.grow(1));
        drop(two);
        assert_eq!(all.load(Ordering::Relaxed), 0);
        let of_others: Vec<_> = users[1..].iter().map(MessageBudget::begin).collect();
        assert!(of_others.iter().all(|message| message.grow(20)));
        assert!(!one.grow(1), "all have as much as there is");
        assert_eq!(users[0].user.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn reading_ends_where_there_is_no_room() {
        let message = Arc::new(MessageBudget::new(Arc::default(), Arc::default(), 4).begin());
        let mut io = MeteredIo::new(&[1_u8; 20][..], message.clone());
        let mut read = [0; 6];
        assert_eq!(io.read(&mut read).await.unwrap(), 6);
        assert!(io.read(&mut read).await.is_err());
        message.finish();
        assert_eq!(io.read(&mut read).await.unwrap(), 6);
    }
}
