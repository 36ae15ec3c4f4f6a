//! Prompts that are queued in the store until a host claims them. Only a database has this queue:
//! one machine does not need it.

use serde::{Deserialize, Serialize};

use super::{Error, ReplySender};
use base::id::SessionId;

/// The state of a queued prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// No host has claimed it yet, or it was returned to the queue.
    Waiting,
    Running,
    /// It ended with an answer.
    Done,
    /// It ended without an answer.
    Failed,
    Cancelled,
}

impl TaskState {
    const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns the name that is stored in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// True if the state is final.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// A prompt that this process has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedTask {
    pub session: SessionId,
    /// The task, in the format of the program that queued it.
    pub work: String,
    /// The number of attempts to answer it, including this one.
    pub tries: u64,
    /// The number of messages that the session had before the prompt.
    pub before: usize,
}

/// The status of a queued prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    pub state: TaskState,
    /// The number of attempts to answer it so far.
    pub tries: u64,
    /// The outcome, in the format of the host that answered it.
    pub outcome: Option<String>,
}

/// A session that a host has open or is to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusySession {
    pub session: SessionId,
    /// The state of its queued prompt; `None` if a client has the session open.
    pub state: Option<TaskState>,
    /// The machine and the process that have it open.
    pub host: Option<(String, u32)>,
    /// The number of attempts to answer its prompt; 0 if it has none.
    pub tries: u64,
}

pub(super) enum FleetJob {
    /// Queues a prompt for a session.
    Queue {
        session: SessionId,
        work: String,
        reply: ReplySender<()>,
    },
    /// Takes the prompt that has waited longest, if there is one.
    Claim {
        reply: ReplySender<Option<ClaimedTask>>,
    },
    /// Ends a prompt of this process, or returns it to the queue.
    Finish {
        session: SessionId,
        state: TaskState,
        outcome: Option<String>,
        reply: ReplySender<bool>,
    },
    /// Returns the status of a session's prompt.
    Status {
        session: SessionId,
        reply: ReplySender<Option<TaskStatus>>,
    },
    /// Returns the sessions that are open on a host or have a pending prompt.
    BusySessions {
        reply: ReplySender<Vec<BusySession>>,
    },
    /// Cancels a pending prompt and the running turn. Returns true if there was one.
    Cancel {
        session: SessionId,
        reply: ReplySender<bool>,
    },
}

impl FleetJob {
    /// Refuses the job, because this backend has no queue.
    pub(super) fn refuse(self) {
        // The receiver may have been cancelled.
        match self {
            Self::Queue { reply, .. } => drop(reply.send(Err(Error::NoQueue))),
            Self::Claim { reply } => drop(reply.send(Err(Error::NoQueue))),
            Self::Finish { reply, .. } | Self::Cancel { reply, .. } => {
                drop(reply.send(Err(Error::NoQueue)))
            }
            Self::Status { reply, .. } => drop(reply.send(Err(Error::NoQueue))),
            Self::BusySessions { reply } => drop(reply.send(Err(Error::NoQueue))),
        }
    }
}
