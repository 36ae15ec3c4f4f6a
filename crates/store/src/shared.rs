//! What machines share beside sessions, where a database keeps them: contents of files and whole results of tools, and
//! what the user said about projects. In files on one machine all of it has a place of its own, and nothing is done here.

use super::fleet::{BusySession, ClaimedTask, FleetJob, TaskState, TaskStatus};
use super::job::StoreJob;
use super::write::SessionWrite;
use super::{Error, Store};
use base::id::SessionId;

impl Store {
    /// Whether other machines have the same store.
    pub async fn is_shared(&self) -> bool {
        if let Some(shared) = self.shared.get() {
            return *shared;
        }
        let shared = self.ask(|reply| StoreJob::Shared { reply }).await.unwrap_or(false);
        *self.shared.get_or_init(|| shared)
    }

    /// The same without asking, for whoever works in a session: that was opened after it was asked.
    pub fn is_known_shared(&self) -> bool {
        self.shared.get() == Some(&true)
    }

    /// Keeps a content with a session, under its name; before whatever is written about the session later.
    pub async fn content(&self, session: &SessionId, name: String, bytes: Vec<u8>) {
        if self.is_shared().await {
            self.write(session, SessionWrite::Content { name, bytes }).await;
        }
    }

    /// Those of these contents that are kept with a session, or with any other where this one has none.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn contents(&self, session: &SessionId, names: Vec<String>) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Contents { session, names, reply }).await
    }

    /// What was said about a project's own settings, on whatever machine.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn trust(&self, project: &str) -> Result<Option<String>, Error> {
        let project = project.to_owned();
        self.ask(|reply| StoreJob::Trust { project, entry: None, reply }).await
    }

    /// Keeps what was said about a project's own settings, for all machines.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn decide(&self, project: &str, entry: String) -> Result<(), Error> {
        let project = project.to_owned();
        self.ask(|reply| StoreJob::Trust { project, entry: Some(entry), reply }).await.map(drop)
    }

    /// Puts a prompt into the store, for a session that was made known and has no other one waiting.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn put_task(&self, session: &SessionId, work: String) -> Result<(), Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Fleet(FleetJob::Put { session, work, reply })).await
    }

    /// Takes the prompt that has waited for longest: for the first time, or because the host that had it is lost.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn claim_task(&self) -> Result<Option<ClaimedTask>, Error> {
        self.ask(|reply| StoreJob::Fleet(FleetJob::Claim { reply })).await
    }

    /// Says what came of a prompt that this process has; where it is to wait again, another host may take it. False:
    /// it is somebody else's by now.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn end_task(
        &self,
        session: &SessionId,
        state: TaskState,
        outcome: Option<String>,
    ) -> Result<bool, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Fleet(FleetJob::End { session, state, outcome, reply })).await
    }

    /// Where a session's prompt is; none where none was put into the store.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn task(&self, session: &SessionId) -> Result<Option<TaskStatus>, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Fleet(FleetJob::Look { session, reply })).await
    }

    /// The sessions that a host has open, and those with a prompt that waits for one.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn busy(&self) -> Result<Vec<BusySession>, Error> {
        self.ask(|reply| StoreJob::Fleet(FleetJob::Busy { reply })).await
    }

    /// Cancels a session's prompt, wherever it waits, and the turn that runs, on whatever host. Says whether there was
    /// anything to cancel.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn cancel_task(&self, session: &SessionId) -> Result<bool, Error> {
        let session = session.clone();
        self.ask(|reply| StoreJob::Fleet(FleetJob::Cancel { session, reply })).await
    }
}
