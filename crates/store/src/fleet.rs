//! Prompts that are queued in the store until a host claims them. Only a database has this queue:
//! one machine does not need it.

use serde::{Deserialize, Serialize};

use super::{Error, ReplySender};
use base::id::SessionId;

/// The state of a queued prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    Waiting,
    Running,
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
    pub tries: u64,
}

pub(super) enum FleetJob {
    Put {
        session: SessionId,
        work: String,
        reply: ReplySender<()>,
    },
    Claim {
        reply: ReplySender<Option<ClaimedTask>>,
    },
    /// Ends a prompt of this process, or returns it to the queue.
    End {
        session: SessionId,
        state: TaskState,
        outcome: Option<String>,
        reply: ReplySender<bool>,
    },
    Look {
        session: SessionId,
        reply: ReplySender<Option<TaskStatus>>,
    },
    Busy {
        reply: ReplySender<Vec<BusySession>>,
    },
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
            Self::Put { reply, .. } => drop(reply.send(Err(Error::NoQueue))),
            Self::Claim { reply } => drop(reply.send(Err(Error::NoQueue))),
            Self::End { reply, .. } | Self::Cancel { reply, .. } => {
                drop(reply.send(Err(Error::NoQueue)))
            }
            Self::Look { reply, .. } => drop(reply.send(Err(Error::NoQueue))),
            Self::Busy { reply } => drop(reply.send(Err(Error::NoQueue))),
        }
    }
}
