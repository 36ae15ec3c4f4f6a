//! A connection over a WebSocket that goes on when the socket is another one: `adjutant connect` comes back to it, and
//! nothing is lost and nothing said twice. Who asks for that with a header counts the messages on both sides, and
//! says now and then, in pings, how many have come; what has not is kept and sent again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot};

use super::admission::Identity;
use super::places::SocketPlace;
use super::tally::ResumableConnection;
use super::websocket::{Ending, carry};
use base::lock::locked;

/// Asks for a connection that can be resumed; answers how many messages have come. A number of messages that
/// have come, with the id of a connection, goes on with it.
pub const RECEIVED: &str = "adjutant-received";

/// How long one who has the connection may take to give it up.
const HAND_OVER: Duration = Duration::from_secs(5);

/// A connection that can be resumed.
struct Resumable {
    identity: Identity,
    wanted: Notify,
    // A std mutex around a slot: a leaf.
    claim: Mutex<Option<oneshot::Sender<ResumableConnection>>>,
}

/// The connections that can be resumed.
#[derive(Default)]
pub struct Resumables {
    // A std mutex around a map: a leaf, never held across an await.
    all: Mutex<HashMap<String, Arc<Resumable>>>,
}

impl Resumables {
    /// Takes a connection from whoever carries it, to go on with it. None: there is no such connection.
    pub async fn claim(&self, id: &str, identity: &Identity) -> Option<ResumableConnection> {
        let found = locked(&self.all).get(id).cloned().filter(|found| found.identity == *identity)?;
        let (sender, thread) = oneshot::channel();
        *locked(&found.claim) = Some(sender);
        found.wanted.notify_one();
        tokio::time::timeout(HAND_OVER, thread).await.ok()?.ok()
    }

    /// Carries a connection over a socket, which has its place until it ends, and waits for another one where that breaks,
    /// but not for ever.
    pub async fn run<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut thread: ResumableConnection,
        identity: Identity,
        (io, again, place): (Option<T>, Vec<Bytes>, Option<SocketPlace>),
        (message, grace): (usize, Duration),
    ) {
        if !thread.tally.counts {
            if let Some(io) = io {
                carry(io, &mut thread, again, message).await;
            }
            return;
        }
        let id = thread.connection.id.clone();
        let (wanted, claim) = (Notify::new(), Mutex::default());
        let this = Arc::new(Resumable { identity, wanted, claim });
        locked(&self.all).insert(id.clone(), this.clone());
        let ending = match io {
            Some(io) => tokio::select! {
                ending = carry(io, &mut thread, again, message) => ending,
                () = this.wanted.notified() => Ending::Wanted,
            },
            None => Ending::Broken,
        };
        drop(place);
        let wanted = match ending {
            Ending::Wanted => true,
            Ending::Broken if !grace.is_zero() => wait(&mut thread, &this.wanted, grace).await,
            Ending::Broken | Ending::Over => false,
        };
        let mut all = locked(&self.all);
        // Whoever goes on with it has a place of their own.
        all.remove(&id);
        drop(all);
        let claim = locked(&this.claim).take();
        if let Some(claim) = claim.filter(|_| wanted) {
            // Whoever wanted it may have gone: then it ends.
            claim.send(thread).ok();
        }
    }
}

/// Waits until somebody wants a connection, and keeps what it says meanwhile. False: it ends.
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
                    tracing::warn!("a connection ends: too much waits for somebody to come back to it");
                    return false;
                }
            }
        }
    }
}
