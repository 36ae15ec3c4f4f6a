//! WebSocket connections that survive their socket: `adjutant connect` resumes the connection over
//! another one, and no message is lost or sent twice. A client that requests this by a header
//! counts the messages in both directions, and both sides acknowledge them in pings; unacknowledged
//! messages are stored and sent again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot};

use super::admission::Identity;
use super::resend_buffer::ResumableConnection;
use super::slots::SocketSlot;
use super::websocket::{Ending, carry};
use base::lock::lock;

/// The header with the number of messages received. Without a connection id it requests a
/// connection that can be resumed; with one, it resumes that connection. The server answers with
/// its own number.
pub const RECEIVED: &str = "adjutant-received";

/// The time limit for the current socket to release the connection.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that can be resumed.
struct Resumable {
    identity: Identity,
    wanted: Notify,
    // A std mutex around a slot: a leaf lock.
    claim: Mutex<Option<oneshot::Sender<ResumableConnection>>>,
}

/// The connections that can be resumed.
#[derive(Default)]
pub struct Resumables {
    // A std mutex around a map: a leaf lock, never held across an await.
    all: Mutex<HashMap<String, Arc<Resumable>>>,
}

impl Resumables {
    /// Takes a connection from its current socket. `None` if there is no such connection.
    pub async fn claim(&self, id: &str, identity: &Identity) -> Option<ResumableConnection> {
        let found = lock(&self.all)
            .get(id)
            .cloned()
            .filter(|found| found.identity == *identity)?;
        let (sender, thread) = oneshot::channel();
        *lock(&found.claim) = Some(sender);
        found.wanted.notify_one();
        tokio::time::timeout(HAND_OVER_TIMEOUT, thread)
            .await
            .ok()?
            .ok()
    }

    /// Carries a connection over a socket, which keeps its slot until it ends. If the socket
    /// breaks, waits for another one for the grace period.
    pub async fn run<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut thread: ResumableConnection,
        identity: Identity,
        (io, again, slot): (Option<T>, Vec<Bytes>, Option<SocketSlot>),
        (message, grace): (usize, Duration),
    ) {
        if !thread.tally.counts {
            if let Some(io) = io {
                carry(io, &mut thread, again, message).await;
            }
            return;
        }
        let id = thread.connection.id.clone();
        let this = Arc::new(Resumable {
            identity,
            wanted: Notify::new(),
            claim: Mutex::default(),
        });
        lock(&self.all).insert(id.clone(), this.clone());
        let ending = match io {
            Some(io) => tokio::select! {
                ending = carry(io, &mut thread, again, message) => ending,
                () = this.wanted.notified() => Ending::Wanted,
            },
            None => Ending::Broken,
        };
        drop(slot);
        let wanted = match ending {
            Ending::Wanted => true,
            Ending::Broken if !grace.is_zero() => wait(&mut thread, &this.wanted, grace).await,
            Ending::Broken | Ending::Over => false,
        };
        let mut all = lock(&self.all);
        // The next socket has a slot of its own.
        all.remove(&id);
        drop(all);
        let claim = lock(&this.claim).take();
        if let Some(claim) = claim
            && wanted
        {
            // If the receiver is dropped, the connection ends.
            claim.send(thread).ok();
        }
    }
}

/// Waits until another socket claims the connection, and stores its output in the meantime. Returns
/// `false` if the connection ends.
async fn wait(thread: &mut ResumableConnection, wanted: &Notify, grace: Duration) -> bool {
    let over = tokio::time::sleep(grace); // the grace period itself
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = wanted.notified() => return true,
            () = &mut over => return false,
            () = thread.connection.ended.cancelled() => return false,
            lines = thread.connection.outgoing.next() => {
                let Some(lines) = lines.map(Bytes::from) else { return false };
                let mut start = 0;
                for end in memchr::memchr_iter(b'\n', &lines) {
                    thread.tally.sent(&lines.slice(start..end));
                    start = end + 1;
                }
                if thread.tally.is_full() {
                    tracing::warn!("a connection ends: too much waits for a client to come back to it");
                    return false;
                }
            }
        }
    }
}
