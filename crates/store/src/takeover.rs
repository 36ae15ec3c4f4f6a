//! Requests of other processes for the sessions of this one.

use tokio::sync::mpsc;

use super::job::{OwnerRequest, RequestSource};
use super::sqlite::takeover::PipeRequests;

/// The stream of requests of other processes to this one.
#[derive(Debug)]
pub struct TakeoverRequests(Source);

#[derive(Debug)]
enum Source {
    Pipe(PipeRequests),
    Channel(mpsc::UnboundedReceiver<OwnerRequest>),
}

impl TakeoverRequests {
    pub(super) fn listen(source: RequestSource) -> std::io::Result<Self> {
        Ok(Self(match source {
            RequestSource::Pipe(dir) => Source::Pipe(PipeRequests::listen(&dir)?),
            RequestSource::Channel(requests) => Source::Channel(requests),
        }))
    }

    /// Waits for the next request. Returns `None` once no more can arrive.
    pub async fn next(&mut self) -> Option<OwnerRequest> {
        match &mut self.0 {
            Source::Pipe(pipe) => pipe.next().await.map(OwnerRequest::TakeOver),
            Source::Channel(requests) => requests.recv().await,
        }
    }
}
