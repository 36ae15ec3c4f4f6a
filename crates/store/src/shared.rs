//! Data other than sessions that machines share through a database: contents of files, complete
//! results of tools, and decisions about projects. With files on one machine, this data is stored
//! elsewhere, and nothing is done here.

use super::fleet::{BusySession, ClaimedTask, FleetJob, TaskState, TaskStatus};
use super::job::StoreJob;
use super::write::SessionWrite;
use super::{Error, Store};
use base::id::SessionId;

impl Store {
    /// True if other machines use the same store.
    pub async fn is_shared(&self) -> bool {
        if let Some(shared) = self.shared.get() {
            return *shared;
        }
        let shared = self
            .request(|reply| StoreJob::Shared { reply })
            .await
            .unwrap_or(false);
        *self.shared.get_or_init(|| shared)
    }

    /// Like [`Store::is_shared`], but without a query. Valid once `is_shared` has been called,
    /// which happens before a session is opened.
    pub fn is_known_shared(&self) -> bool {
        self.shared.get() == Some(&true)
    }

    /// Stores an object with a session, under its name, before anything that is written about the
    /// session later.
    pub async fn write_content(&self, session: &SessionId, name: String, bytes: Vec<u8>) {
        if self.is_shared().await {
            self.write(session, SessionWrite::Content { name, bytes })
                .await;
        }
    }

    /// Returns those of the named contents that are stored with the session, or with another one if
    /// it lacks them.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn read_contents(
        &self,
        session: &SessionId,
        names: Vec<String>,
    ) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Contents {
            session,
            names,
            reply,
        })
        .await
    }

    /// Returns the decision about a project's own settings, made on any machine.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn trust_decision(&self, project: &str) -> Result<Option<String>, Error> {
        let project = project.to_owned();
        self.request(|reply| StoreJob::Trust {
            project,
            entry: None,
            reply,
        })
        .await
    }

    /// Stores the decision about a project's own settings, for all machines.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn store_trust_decision(&self, project: &str, entry: String) -> Result<(), Error> {
        let project = project.to_owned();
        self.request(|reply| StoreJob::Trust {
            project,
            entry: Some(entry),
            reply,
        })
        .await
        .map(drop)
    }

    /// Queues a prompt in the store, for a registered session that has no pending prompt.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn queue_task(&self, session: &SessionId, work: String) -> Result<(), Error> {
        let session = session.clone();
        self.request(|reply| {
            StoreJob::Fleet(FleetJob::Queue {
                session,
                work,
                reply,
            })
        })
        .await
    }

    /// Takes the prompt that has waited longest: for the first time, or because its host was lost.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn claim_task(&self) -> Result<Option<ClaimedTask>, Error> {
        self.request(|reply| StoreJob::Fleet(FleetJob::Claim { reply }))
            .await
    }

    /// Reports the outcome of a prompt that this process has claimed. With [`TaskState::Waiting`],
    /// another host may claim it again. Returns false if another host has claimed it since.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn finish_task(
        &self,
        session: &SessionId,
        state: TaskState,
        outcome: Option<String>,
    ) -> Result<bool, Error> {
        let session = session.clone();
        self.request(|reply| {
            StoreJob::Fleet(FleetJob::Finish {
                session,
                state,
                outcome,
                reply,
            })
        })
        .await
    }

    /// Returns the status of a session's prompt; `None` if none was queued.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn task_status(&self, session: &SessionId) -> Result<Option<TaskStatus>, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Fleet(FleetJob::Status { session, reply }))
            .await
    }

    /// Returns the sessions that a host has open, and those with a pending prompt.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn list_busy_sessions(&self) -> Result<Vec<BusySession>, Error> {
        self.request(|reply| StoreJob::Fleet(FleetJob::BusySessions { reply }))
            .await
    }

    /// Cancels a session's pending prompt and its running turn, on any host. Returns true if there
    /// was anything to cancel.
    ///
    /// # Errors
    /// Returns any [`Error`].
    pub async fn cancel_task(&self, session: &SessionId) -> Result<bool, Error> {
        let session = session.clone();
        self.request(|reply| StoreJob::Fleet(FleetJob::Cancel { session, reply }))
            .await
    }
}
