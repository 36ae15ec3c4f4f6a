//! Prompts that wait in the store until a host takes them. Only a database has them: one machine needs no such queue.

use serde::{Deserialize, Serialize};

use super::{Error, ReplySender};
use base::id::SessionId;

/// How far a prompt in the store is.
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
    const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Done, Self::Failed, Self::Cancelled];

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

    /// Whether nothing more happens to it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// A prompt that this process is to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedTask {
    pub session: SessionId,
    /// What to do, as whoever put it there wrote it.
    pub work: String,
    /// How often a host has begun with it, this time included.
    pub tries: u64,
    /// How many messages the session had before the prompt.
    pub before: usize,
}

/// Where a prompt in the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    pub state: TaskState,
    pub tries: u64,
    /// What came of it, as whoever answered it wrote it.
    pub outcome: Option<String>,
}

/// A session that somebody works in, or is to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusySession {
    pub session: SessionId,
    /// Of its prompt in the store; none where an editor has it open.
    pub state: Option<TaskState>,
    /// The machine and the process that has it.
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
    /// Ends a prompt of this process, or gives it back to whoever takes it next.
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
    /// Answers where there is no queue.
    pub(super) fn refuse(self) {
        let none = || Error::Unwritable("prompts can wait only in a database: set store.url in your settings".into());
        // Whoever asked may have been cancelled since.
        match self {
            Self::Put { reply, .. } => drop(reply.send(Err(none()))),
            Self::Claim { reply } => drop(reply.send(Err(none()))),
            Self::End { reply, .. } | Self::Cancel { reply, .. } => drop(reply.send(Err(none()))),
            Self::Look { reply, .. } => drop(reply.send(Err(none()))),
            Self::Busy { reply } => drop(reply.send(Err(none()))),
        }
    }
}
