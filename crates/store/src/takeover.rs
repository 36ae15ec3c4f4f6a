//! Requests of other processes for the sessions of this one.

use std::path::PathBuf;

use tokio::sync::mpsc;

use super::sqlite::takeover::PipeRequests;
use base::id::SessionId;

/// A request of another process to the one that has a session open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerRequest {
    /// Requests the session's release, or reports that it has been taken over already.
    TakeOver(SessionId),
    /// Requests the end of the running turn.
    Cancel(SessionId),
}

#[derive(Debug)]
pub(super) enum RequestSource {
    /// A pipe below the directory.
    Pipe(PathBuf),
    Heard(mpsc::UnboundedReceiver<OwnerRequest>),
}

/// The stream of requests of other processes to this one.
#[derive(Debug)]
pub struct TakeoverRequests(Source);

#[derive(Debug)]
enum Source {
    Pipe(PipeRequests),
    Heard(mpsc::UnboundedReceiver<OwnerRequest>),
}

impl TakeoverRequests {
    pub(super) fn listen(source: RequestSource) -> std::io::Result<Self> {
        Ok(Self(match source {
            RequestSource::Pipe(dir) => Source::Pipe(PipeRequests::listen(&dir)?),
            RequestSource::Heard(heard) => Source::Heard(heard),
        }))
    }

    /// Waits for the next request. Returns `None` once no more can arrive.
    pub async fn next(&mut self) -> Option<OwnerRequest> {
        match &mut self.0 {
            Source::Pipe(pipe) => pipe.next().await.map(OwnerRequest::TakeOver),
            Source::Heard(heard) => heard.recv().await,
        }
    }
}
