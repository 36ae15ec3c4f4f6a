//! How a process hears that others want its sessions.

use std::path::PathBuf;

use tokio::sync::mpsc;

use super::sqlite::takeover::PipeRequests;
use base::id::SessionId;

/// What another process asks of one that has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerRequest {
    /// To let go of it; or it has taken it already.
    TakeOver(SessionId),
    /// To end what runs in it.
    Cancel(SessionId),
}

#[derive(Debug)]
pub(super) enum RequestSource {
    /// By a pipe below a directory.
    Pipe(PathBuf),
    Heard(mpsc::UnboundedReceiver<OwnerRequest>),
}

/// What other processes ask of this one, or have taken from it.
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

    /// The next one. None: nobody can ask any more.
    pub async fn next(&mut self) -> Option<OwnerRequest> {
        match &mut self.0 {
            Source::Pipe(pipe) => pipe.next().await.map(OwnerRequest::TakeOver),
            Source::Heard(heard) => heard.recv().await,
        }
    }
}
