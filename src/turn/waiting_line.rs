//! The order of calls that run side by side.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::lock::locked;

/// How long a call waits for the one before it to be shown.
const ORDERLY: Duration = Duration::from_millis(100);

/// The place of a call among those that run beside it: they are looked at by several threads, and are shown, and the user
/// is asked about them, in the order in which they were written.
#[derive(Default)]
pub(super) struct WaitingLine {
    /// Ends when the one before has been shown, and asked about.
    before: Option<oneshot::Receiver<()>>,
    // A leaf around what is dropped to let the next one go on.
    next: Mutex<Option<oneshot::Sender<()>>>,
}

impl WaitingLine {
    /// The place behind this one.
    pub(super) fn next(&mut self) -> Self {
        let (next, behind) = oneshot::channel();
        Self { before: self.before.replace(behind), next: Mutex::new(Some(next)) }
    }

    /// Waits for the one before. One that takes long to be looked at does not hold up the others.
    pub(super) async fn come(&mut self, cancelled: &CancellationToken) {
        if let Some(before) = self.before.take() {
            tokio::select! {
                () = cancelled.cancelled() => {}
                _ = tokio::time::timeout(ORDERLY, before) => {}
            }
        }
    }

    /// Lets the next one go on.
    pub(super) fn pass(&self) {
        locked(&self.next).take();
    }
}
