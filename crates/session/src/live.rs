//! The sessions that are open in this process: who has a session's history, which subagents are at work,
//! and how another process asks for one of ours. Everything here is a std mutex around a map or a set: a
//! leaf, never held across an await.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use base::id::SessionId;
use base::lock::locked;
use store::{OwnerRequest, Store, TakeoverRequests};

#[derive(Default)]
pub(super) struct LiveSessions {
    /// Sessions whose history somebody in this process holds.
    held: Mutex<HashSet<SessionId>>,
    /// The subagents at work, and what stops them.
    working: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
    /// Who is to hear that another process wants a session.
    wanted: Mutex<HashMap<SessionId, CancellationToken>>,
    /// What ends the turn of a session. It asks its mailbox, and waits for nothing.
    cancels: Mutex<HashMap<SessionId, Box<dyn Fn() + Send>>>,
    /// Sessions that were refused because another process has them, and how they were asked for.
    pub(super) refused: Mutex<HashSet<(SessionId, &'static str)>>,
    /// Others can ask for this process's sessions.
    listening: AtomicBool,
}

/// A subagent at work: it can be stopped by its session's id.
pub(super) struct SubagentGuard {
    working: Arc<Mutex<HashMap<SessionId, CancellationToken>>>,
    id: SessionId,
}

impl Drop for SubagentGuard {
    fn drop(&mut self) {
        locked(&self.working).remove(&self.id);
    }
}

/// The right to a session's history: nobody else in this process has it. What the session could be asked goes with it.
pub(super) struct HistoryGuard {
    live: Arc<LiveSessions>,
    id: SessionId,
}

impl Drop for HistoryGuard {
    fn drop(&mut self) {
        // Before somebody else can claim it, who will be asked instead.
        let wanted = locked(&self.live.wanted).remove(&self.id);
        let cancel = locked(&self.live.cancels).remove(&self.id);
        locked(&self.live.held).remove(&self.id);
        drop((wanted, cancel));
    }
}

impl LiveSessions {
    /// Claims a session's history; none while somebody else has it.
    pub(super) fn claim(self: &Arc<Self>, id: &SessionId) -> Option<HistoryGuard> {
        let new = locked(&self.held).insert(id.clone());
        new.then(|| HistoryGuard { live: self.clone(), id: id.clone() })
    }

    pub(super) fn holds(&self, id: &SessionId) -> bool {
        locked(&self.held).contains(id)
    }

    /// Makes a subagent's session one that can be stopped, as long as it works.
    pub(super) fn works(&self, id: &SessionId, cancelled: &CancellationToken) -> SubagentGuard {
        locked(&self.working).insert(id.clone(), cancelled.clone());
        SubagentGuard { working: self.working.clone(), id: id.clone() }
    }

    /// Stops a subagent at work, and nobody else. Says whether there is one.
    pub(super) fn stop_subagent(&self, id: &SessionId) -> bool {
        let working = locked(&self.working).get(id).cloned();
        working.inspect(CancellationToken::cancel).is_some()
    }

    /// Lets other processes ask for a session of ours: the token ends when one does.
    pub(super) fn offer(
        self: &Arc<Self>,
        id: &SessionId,
        store: &Store,
        tasks: &TaskTracker,
        ended: &CancellationToken,
    ) -> CancellationToken {
        let wanted = CancellationToken::new();
        // A token of an earlier opening of the session has nobody left who waits for it.
        drop(locked(&self.wanted).insert(id.clone(), wanted.clone()));
        if !self.listening.swap(true, Ordering::Relaxed) {
            let (live, store, ended) = (self.clone(), store.clone(), ended.clone());
            base::task::spawn_in(tasks, async move {
                match store.requests().await {
                    Ok(requests) => live.listen(requests, ended).await,
                    Err(e) => tracing::info!("sessions cannot be taken over from here: {e}"),
                }
            });
        }
        wanted
    }

    /// Lets other processes end what runs in a session of ours.
    pub(super) fn obeys(&self, id: &SessionId, cancel: impl Fn() + Send + 'static) {
        drop(locked(&self.cancels).insert(id.clone(), Box::new(cancel)));
    }

    fn cancel(&self, id: &SessionId) {
        tracing::info!("somebody elsewhere cancels what runs in session {id}");
        if let Some(cancel) = locked(&self.cancels).get(id) {
            cancel();
        }
    }

    /// Hears who wants a session of ours, until the process ends.
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
            let token = locked(&self.wanted).remove(&wanted);
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
    async fn nothing_stays_of_a_session_that_is_over() {
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
            live.obeys(&id, move || drop(cancel.clone()));
            (guard, wanted)
        };
        let (guard, _wanted) = open();
        assert!(live.holds(&id) && live.claim(&id).is_none());
        assert_eq!(Arc::strong_count(&asked), 2);
        drop(guard);
        assert_eq!(Arc::strong_count(&asked), 1);
        assert!(locked(&live.wanted).is_empty() && locked(&live.cancels).is_empty() && !live.holds(&id));
        // Whoever opens it again can be asked as well.
        let (_guard, _wanted) = open();
        assert_eq!((locked(&live.wanted).len(), locked(&live.cancels).len()), (1, 1));
        ended.cancel();
    }
}
