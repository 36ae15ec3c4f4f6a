//! Operations on stored sessions: reopen one (and take it over from another process), archive one,
//! delete one with its children. Also checks the directories that clients request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::beginning::BeginningSender;
use super::handle::SessionHandle;
use super::open::{IfLocked, OpenError, OpenOptions, OpenedSession};
use super::sessions::Sessions;
use crate::turn::jobs::SessionJobs;
use base::id::SessionId;
use base::lock::lock;
use base::worktree::normal;
use store::{self, LockHolder, Record, RecordChange};

/// The reason why a session cannot work in a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDirectory {
    #[error("must be an absolute path; \"{0}\" is not")]
    Relative(String),
    #[error("contains a NUL byte")]
    Nul,
    #[error("must be an existing directory; {0} is not")]
    Missing(String),
    /// The directory is outside of the allowed ones.
    #[error(
        "{path} may not be opened on this server, which serves {roots} and the directories below"
    )]
    Outside { path: String, roots: String },
}

/// Checks that a directory exists and can be a session's. Returns its path without `.` and `..`; the
/// caller must open this path.
///
/// `..` removes the component before it: `link/..` is the directory that contains the link, as in a
/// shell, and not the parent of its target, as the operating system would resolve it. Opening a
/// path other than the checked one would make the check useless.
///
/// # Errors
/// [`BadDirectory`].
pub fn check_directory(path: &Path) -> Result<PathBuf, BadDirectory> {
    let shown = |path: &Path| base::text::title(&path.display().to_string());
    if !path.is_absolute() {
        return Err(BadDirectory::Relative(shown(path)));
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(BadDirectory::Nul);
    }
    let path = normal(path);
    if path.is_dir() {
        Ok(path)
    } else {
        Err(BadDirectory::Missing(shown(&path)))
    }
}

/// Checks that a directory, as returned by [`check_directory`], is in one of `roots` after all links are
/// resolved. The roots must be canonical.
///
/// # Errors
/// [`BadDirectory::Outside`].
pub fn check_is_below(path: &Path, roots: &[PathBuf]) -> Result<(), BadDirectory> {
    let real = std::fs::canonicalize(path).ok();
    if real.is_some_and(|real| roots.iter().any(|root| real.starts_with(root))) {
        return Ok(());
    }
    let all: Vec<_> = roots
        .iter()
        .map(|root| root.display().to_string())
        .collect();
    let roots = if all.is_empty() {
        "no directories".to_owned()
    } else {
        all.join(", ")
    };
    Err(BadDirectory::Outside {
        path: base::text::title(&path.display().to_string()),
        roots,
    })
}

/// The reason why a stored session cannot be opened again.
#[derive(Debug, thiserror::Error)]
pub enum ReopenError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another process has it. A second request of the same kind takes it over.
    #[error("session {id} is open in {holder}")]
    InUse { id: SessionId, holder: LockHolder },
    /// Another process has it and does not release it.
    #[error("session {id} is open in {holder}, which does not release it")]
    NotReleased { id: SessionId, holder: LockHolder },
}

impl ReopenError {
    /// True if the store does not have the session.
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            Self::Open(OpenError::Store(store::Error::NotFound(_)))
        )
    }
}

impl Sessions {
    /// Opens a stored session. A session that is open here, in `live_cwd`, is removed by
    /// `dismiss` and closed first, because the stored state is authoritative, even for an empty
    /// session; its background jobs live on. A session of another process is refused at the first
    /// attempt, which is `if_locked`; a second attempt of the same `request_kind` takes it over.
    /// An attempt that awaits the end of a lease counts as neither: it is not a user's. For `shown`
    /// see [`Self::load`].
    ///
    /// # Errors
    /// [`ReopenError`]. After [`OpenError::OtherDirectory`], and if the session is not stored, the
    /// open session is unchanged.
    pub async fn reopen(
        self: &Arc<Self>,
        id: &SessionId,
        options: OpenOptions,
        live_cwd: Option<PathBuf>,
        dismiss: impl FnOnce() -> Option<SessionHandle>,
        (request_kind, if_locked): (&'static str, IfLocked),
        shown: Option<BeginningSender>,
    ) -> Result<OpenedSession, ReopenError> {
        if let Some(stored) = live_cwd
            .clone()
            .filter(|stored| !self.can_be_opened_in(stored, &options.cwd))
        {
            return Err(OpenError::other_directory(id, stored, options.cwd).into());
        }
        // A session that cannot be saved exists only in this process.
        if live_cwd.is_some() && self.store.contains(id).await == Ok(false) {
            return Err(OpenError::Store(store::Error::NotFound(id.clone())).into());
        }
        let dismissed = live_cwd.is_some().then(dismiss).flatten();
        let handover = match dismissed {
            Some(live) => live.close_to_reopen().await,
            None => None,
        };
        let live_jobs = handover.as_ref().and_then(|parts| parts.jobs.as_ref());
        if shown.is_some()
            && let Some(SessionJobs { jobs, .. }) = live_jobs
        {
            jobs.mark_recorded_as_shown();
        }
        let key = (id.clone(), request_kind);
        let was_refused = lock(&self.live.refused).remove(&key);
        let if_locked = match if_locked {
            IfLocked::Refuse if was_refused => IfLocked::TakeOver,
            chosen => chosen,
        };
        match self.load(id, options, if_locked, shown, handover).await {
            Err(OpenError::Store(store::Error::Locked { id, holder })) => match if_locked {
                IfLocked::Refuse => {
                    lock(&self.live.refused).insert(key);
                    Err(ReopenError::InUse { id, holder })
                }
                IfLocked::AwaitLease | IfLocked::TakeOver => {
                    Err(ReopenError::NotReleased { id, holder })
                }
            },
            opened => Ok(opened?),
        }
    }

    /// Archives a session. A session that is `live` here is closed first, and stored even if it
    /// is empty.
    ///
    /// # Errors
    /// The store's.
    pub async fn archive(
        &self,
        id: &SessionId,
        live: Option<SessionHandle>,
    ) -> Result<(), store::Error> {
        if let Some(live) = &live {
            live.close_to_archive().await;
        }
        let changed = self
            .store
            .change_record(id, RecordChange::Archived(true))
            .await;
        // Another connection may have opened it in the meantime.
        if live.is_some() && !self.has_session(id) {
            self.store.close(id).await;
        }
        changed.map(drop)
    }

    /// Deletes a session and its child sessions. `live` is the session's handle if it is open here;
    /// `dismiss` removes and returns the handles of open children. A session that is not stored counts
    /// as deleted.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while a subagent works in one of them, because it would continue to write
    /// to the deleted session; errors of the store.
    pub async fn delete(
        &self,
        id: &SessionId,
        live: Option<SessionHandle>,
        dismiss: impl Fn(&SessionId) -> Option<SessionHandle> + Send + Sync,
    ) -> Result<(), OpenError> {
        if let Some(live) = live {
            live.close().await;
        }
        if !id.is_well_formed() {
            return Ok(());
        }
        let mut family = vec![id.clone()];
        let mut at = 0;
        while let Some(member) = family.get(at) {
            family.extend(self.store.children(member).await?);
            at += 1;
        }
        let children: Vec<SessionHandle> = family.iter().skip(1).filter_map(dismiss).collect();
        for live in children {
            live.close().await;
        }
        if let Some(busy) = family.iter().find(|member| self.has_session(member)) {
            return Err(OpenError::InUse(busy.clone()));
        }
        let records = self.records_for_observers(&family).await;
        self.store.delete(id).await?;
        for record in records {
            self.events_of(&record).deleted(&record);
        }
        Ok(())
    }

    /// Returns the records of sessions for the events about their deletion; nothing if no observer
    /// receives events.
    async fn records_for_observers(&self, sessions: &[SessionId]) -> Vec<Record> {
        let mut records = Vec::new();
        for id in sessions {
            if self.events.is_observed()
                && let Ok(stored) = self.store.peek(id).await
            {
                records.push(stored.record);
            }
        }
        records
    }
}
