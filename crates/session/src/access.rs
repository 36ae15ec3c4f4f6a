//! Who may have a session, and where: opening one that is kept, taking one over, deleting a family.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::beginning::BeginningSender;
use super::handle::Handle;
use super::open::{OpenError, OpenOptions, OpenedSession};
use super::sessions::Sessions;
use base::id::SessionId;
use base::lock::locked;
use base::worktree::normal;
use store::{self, LockHolder, RecordChange};

/// Why a session cannot work in a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDirectory {
    /// It depends on where one stands.
    #[error("must be an absolute path; \"{0}\" is not")]
    Relative(String),
    #[error("contains a NUL byte")]
    Nul,
    #[error("must be an existing directory; {0} is not")]
    Missing(String),
    /// It may not be opened here.
    #[error("{path} may not be opened on this server, which serves {roots} and what is below")]
    Outside { path: String, roots: String },
}

/// Checks a directory that a session is to work in: its path without `.` and `..`, which is the one to be opened.
///
/// What `..` takes away is what is written before it: `link/..` is where the link lies, as it is for a shell, and not
/// where it leads. The system would say the second; whoever checks one and opens the other checks nothing.
///
/// # Errors
/// [`BadDirectory`].
pub fn directory(path: &Path) -> Result<PathBuf, BadDirectory> {
    let shown = |path: &Path| base::text::title(&path.display().to_string());
    if !path.is_absolute() {
        return Err(BadDirectory::Relative(shown(path)));
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(BadDirectory::Nul);
    }
    let path = normal(path);
    if path.is_dir() { Ok(path) } else { Err(BadDirectory::Missing(shown(&path))) }
}

/// Checks that a directory, as [`directory`] gives it, lies in one of these, each as the system names it, once all
/// links are followed.
///
/// # Errors
/// [`BadDirectory::Outside`].
pub fn within(path: &Path, roots: &[PathBuf]) -> Result<(), BadDirectory> {
    let real = std::fs::canonicalize(path).ok();
    if real.is_some_and(|real| roots.iter().any(|root| real.starts_with(root))) {
        return Ok(());
    }
    let all: Vec<_> = roots.iter().map(|root| root.display().to_string()).collect();
    let roots = if all.is_empty() { "no directories".to_owned() } else { all.join(", ") };
    Err(BadDirectory::Outside { path: base::text::title(&path.display().to_string()), roots })
}

/// Why a session that is kept cannot be opened again.
#[derive(Debug, thiserror::Error)]
pub enum ReopenError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another process has it. Who asks again in the same way takes it over.
    #[error("session {id} is open in {holder}")]
    InUse { id: SessionId, holder: LockHolder },
    /// Another process has it and does not let go of it.
    #[error("session {id} is open in {holder}, which does not let go of it")]
    Kept { id: SessionId, holder: LockHolder },
}

impl ReopenError {
    /// Whether nothing is kept of it.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Open(OpenError::Store(store::Error::NotFound(_))))
    }
}

impl Sessions {
    /// Opens a session that is kept. One that is `live` here, in this directory, is given up by `dismiss` and closed
    /// first: what the store has of it is the truth, also where nothing was said in it yet. One that another process
    /// has is refused the first time; who asks again in the same `way` takes it over. For `shown` see [`Self::load`].
    ///
    /// # Errors
    /// [`ReopenError`]; after [`OpenError::Elsewhere`], and where nothing is kept of it, the live session is as it was.
    pub async fn reopen(
        self: &Arc<Self>,
        id: &SessionId,
        place: OpenOptions,
        live: Option<PathBuf>,
        dismiss: impl FnOnce() -> Option<Handle>,
        way: &'static str,
        shown: Option<BeginningSender>,
    ) -> Result<OpenedSession, ReopenError> {
        if let Some(kept) = live.clone().filter(|kept| !self.is_place(kept, &place.cwd)) {
            return Err(OpenError::Elsewhere { id: id.clone(), kept, asked: place.cwd }.into());
        }
        // One that cannot be saved is nowhere but here.
        if live.is_some() && self.store.has(id).await == Ok(false) {
            return Err(OpenError::Store(store::Error::NotFound(id.clone())).into());
        }
        let dismissed = live.is_some().then(dismiss).flatten();
        let closed = dismissed.is_some();
        if let Some(live) = dismissed {
            live.close_to_reopen().await;
        }
        let asked = (id.clone(), way);
        let again = locked(&self.live.refused).remove(&asked);
        let opened = self.load(id, place, again, shown).await;
        if opened.is_err() && closed && !self.holds(id) {
            self.store.close(id).await;
        }
        match opened {
            Err(OpenError::Store(store::Error::Locked { id, holder })) if again => {
                Err(ReopenError::Kept { id, holder })
            }
            Err(OpenError::Store(store::Error::Locked { id, holder })) => {
                locked(&self.live.refused).insert(asked);
                Err(ReopenError::InUse { id, holder })
            }
            opened => Ok(opened?),
        }
    }

    /// Puts a session aside, for good. One that is `live` here is closed first, and kept even where nothing was said in
    /// it.
    ///
    /// # Errors
    /// The store's.
    pub async fn put_aside(&self, id: &SessionId, live: Option<Handle>) -> Result<(), store::Error> {
        if let Some(live) = &live {
            live.close_to_reopen().await;
        }
        let changed = self.store.change(id, RecordChange::Archived(true)).await;
        // Another connection may have opened it meanwhile.
        if live.is_some() && !self.holds(id) {
            self.store.close(id).await;
        }
        changed.map(drop)
    }

    /// Deletes a session, which is `live` here if it is open, and those it delegated to; `dismiss` gives up what is
    /// open of those. One that is not kept is gone already.
    ///
    /// # Errors
    /// [`OpenError::Held`] while a subagent is at work in one of them: it would write on in what is gone. The
    /// store's.
    pub async fn delete(
        &self,
        id: &SessionId,
        live: Option<Handle>,
        dismiss: impl Fn(&SessionId) -> Option<Handle> + Send + Sync,
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
        let children: Vec<Handle> = family.iter().skip(1).filter_map(dismiss).collect();
        for live in children {
            live.close().await;
        }
        match family.into_iter().find(|member| self.holds(member)) {
            Some(busy) => Err(OpenError::Held(busy)),
            None => Ok(self.store.delete(id).await?),
        }
    }
}
