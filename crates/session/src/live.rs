//! The registry of the sessions that are open in this process. [`LiveSessions`] ensures that each
//! history has one owner ([`HistoryGuard`]), stops running subagents, and serves the requests of other
//! processes, which take a session over or cancel its turn. All state is in std mutexes around maps
//! and sets, never held across an await.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use base::id::SessionId;
use base::lock::lock;
use store::{OwnerRequest, Store, TakeoverRequests};

#[derive(Default)]
pub(super) struct LiveSessions {
    /// Sessions whose history is in use in this process.
    held: Mutex<HashSet<SessionId>>,
    /// The running subagents, with the tokens that cancel them.
    working: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
    /// The tokens that are cancelled when another process wants a session.
    wanted: Mutex<HashMap<SessionId, CancellationToken>>,
    /// The functions that cancel the turn of a session. They send a message and do not wait.
    cancels: Mutex<HashMap<SessionId, Box<dyn Fn() + Send>>>,
    /// The sessions that were refused because another process has them, each with the kind of the
    /// refused request.
    pub(super) refused: Mutex<HashSet<(SessionId, &'static str)>>,
    /// True once this process listens for requests of other processes.
    listening: AtomicBool,
    /// Cancelled when this process no longer serves requests of other processes.
    listened: CancellationToken,
}

/// The registration of a running subagent, which can be stopped by its session's id.
pub(super) struct SubagentGuard {
    working: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
    id: SessionId,
}

impl Drop for SubagentGuard {
    fn drop(&mut self) {
        lock(&self.working).remove(&self.id);
    }
}

/// The exclusive use of a session's history in this process. Dropping it also removes the session's
/// tokens and cancel function.
pub(super) struct HistoryGuard {
    live: Arc<LiveSessions>,
    id: SessionId,
}

impl HistoryGuard {
    pub(super) fn session(&self) -> &SessionId {
        &self.id
    }
}

impl Drop for HistoryGuard {
    fn drop(&mut self) {
        // Removed first, because the next owner of the session adds its own.
        let wanted = lock(&self.live.wanted).remove(&self.id);
        let cancel = lock(&self.live.cancels).remove(&self.id);
        lock(&self.live.held).remove(&self.id);
        drop((wanted, cancel));
    }
}

impl LiveSessions {
    /// Claims a session's history; returns `None` while it is in use.
    pub(super) fn claim(self: &Arc<Self>, id: &SessionId) -> Option<HistoryGuard> {
        let new = lock(&self.held).insert(id.clone());
        new.then(|| HistoryGuard {
            live: self.clone(),
            id: id.clone(),
        })
    }

    pub(super) fn has_session(&self, id: &SessionId) -> bool {
        lock(&self.held).contains(id)
    }

    /// Registers a running subagent, so that it can be stopped.
    pub(super) fn works(&self, id: &SessionId, cancelled: &CancellationToken) -> SubagentGuard {
        lock(&self.working).insert(id.clone(), cancelled.clone());
        SubagentGuard {
            working: self.working.clone(),
            id: id.clone(),
        }
    }

    /// Stops the subagent that works in this session. Returns false if there is none.
    pub(super) fn stop_subagent(&self, id: &SessionId) -> bool {
        let working = lock(&self.working).get(id).cloned();
        working.inspect(CancellationToken::cancel).is_some()
    }

    /// Lets other processes ask for this session: the returned token is cancelled when one
    /// does.
    pub(super) fn offer(
        self: &Arc<Self>,
        id: &SessionId,
        store: &Store,
        tasks: &TaskTracker,
        ended: &CancellationToken,
    ) -> CancellationToken {
        let wanted = CancellationToken::new();
        let earlier = lock(&self.wanted).insert(id.clone(), wanted.clone());
        if earlier.is_some_and(|earlier| earlier.is_cancelled()) {
            // The request came while this process opened the session again.
            wanted.cancel();
        }
        if !self.listening.swap(true, Ordering::Relaxed) {
            let live = self.clone();
            let store = store.clone();
            let ended = ended.clone();
            let listened = self.listened.clone().drop_guard();
            base::task::spawn_in(tasks, async move {
                let _listened = listened;
                let requests = tokio::select! {
                    requests = store.receive_takeover_requests() => requests,
                    () = ended.cancelled() => return,
                };
                match requests {
                    Ok(requests) => live.listen(requests, ended).await,
                    Err(e) => tracing::info!("sessions cannot be taken over from here: {e}"),
                }
            });
        }
        wanted
    }

    /// Waits until this process, which is exiting, no longer serves requests of other processes. They
    /// then know that it releases its sessions without a request.
    pub(super) async fn await_request_listener(&self) {
        if self.listening.load(Ordering::Relaxed) {
            self.listened.cancelled().await;
        }
    }

    /// Lets other processes cancel the turn of this session.
    pub(super) fn accept_remote_cancel(&self, id: &SessionId, cancel: impl Fn() + Send + 'static) {
        drop(lock(&self.cancels).insert(id.clone(), Box::new(cancel)));
    }

    fn cancel(&self, id: &SessionId) {
        tracing::info!("another process cancels what runs in session {id}");
        if let Some(cancel) = lock(&self.cancels).get(id) {
            cancel();
        }
    }

    /// Serves requests of other processes until this process ends.
    async fn listen(self: Arc<Self>, mut requests: TakeoverRequests, ended: CancellationToken) {
        loop {
            let wanted = tokio::select! {
                wanted = requests.next() => wanted,
                () = ended.cancelled() => None,
            };
            let wanted = match wanted {
                Some(OwnerRequest::TakeOver(wanted)) => wanted,
                Some(OwnerRequest::Cancel(session)) => {
                    self.cancel(&session);
                    continue;
                }
                None => return,
            };
            let token = lock(&self.wanted).get(&wanted).cloned();
            if let Some(token) = token {
                tracing::info!("another process wants session {wanted}");
                token.cancel();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ended_session_leaves_no_state() {
        let live = Arc::<LiveSessions>::default();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::start(dir.path());
        let tasks = TaskTracker::new();
        let ended = CancellationToken::new();
        let asked = Arc::new(());
        let id = SessionId::new("ses_1");
        let open = || {
            let guard = live.claim(&id).unwrap();
            let wanted = live.offer(&id, &store, &tasks, &ended);
            let cancel = asked.clone();
            live.accept_remote_cancel(&id, move || drop(cancel.clone()));
            (guard, wanted)
        };
        let (guard, _wanted) = open();
        assert!(live.has_session(&id));
        assert!(live.claim(&id).is_none());
        assert_eq!(Arc::strong_count(&asked), 2);
        drop(guard);
        assert_eq!(Arc::strong_count(&asked), 1);
        assert!(lock(&live.wanted).is_empty());
        assert!(lock(&live.cancels).is_empty());
        assert!(!live.has_session(&id));
        // A second opening is registered as well.
        let (_guard, wanted) = open();
        assert_eq!(lock(&live.wanted).len(), 1);
        assert_eq!(lock(&live.cancels).len(), 1);
        // A request during a handover is passed on.
        wanted.cancel();
        let next = live.offer(&id, &store, &tasks, &ended);
        assert!(next.is_cancelled());
        ended.cancel();
    }
}
