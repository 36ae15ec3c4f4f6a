//! The order of calls that run in parallel.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use base::lock::lock;

/// The time that a call waits until the previous one is shown.
const SHOW_TIMEOUT: Duration = Duration::from_millis(100);

/// The place of a call among parallel ones. Several threads prepare them, but they are shown, and
/// the user is asked about them, in the order of the message.
#[derive(Default)]
pub(super) struct CallTurn {
    /// Completes when the previous call has been shown, and its question asked.
    before: Option<oneshot::Receiver<()>>,
    // Dropped to let the next call continue.
    next: Mutex<Option<oneshot::Sender<()>>>,
}

impl CallTurn {
    /// Returns the place after this one.
    pub(super) fn new_after(&mut self) -> Self {
        let (next, behind) = oneshot::channel();
        Self {
            before: self.before.replace(behind),
            next: Mutex::new(Some(next)),
        }
    }

    /// Waits for the previous call. A call with a long preparation does not delay the others.
    pub(super) async fn await_previous(&mut self, cancelled: &CancellationToken) {
        if let Some(before) = self.before.take() {
            tokio::select! {
                () = cancelled.cancelled() => {}
                _ = tokio::time::timeout(SHOW_TIMEOUT, before) => {}
            }
        }
    }

    /// Lets the next call continue.
    pub(super) fn release_next(&self) {
        lock(&self.next).take();
    }
}

/// Describes the order in which calls run, given whether each may run in parallel with its
/// neighbours. Returns `None` if that is the order of the message.
pub(super) fn order_note(concurrent: &[bool]) -> Option<String> {
    if !concurrent.windows(2).any(|pair| pair == [true, true]) {
        return None;
    }
    let mut groups: Vec<(bool, Vec<String>)> = Vec::new();
    for (n, is_concurrent) in (1..).zip(concurrent) {
        match groups.last_mut() {
            Some((true, group)) if *is_concurrent => group.push(n.to_string()),
            _ => groups.push((*is_concurrent, vec![n.to_string()])),
        }
    }
    let describe = |(_, group): (bool, Vec<String>)| match &group[..] {
        [first, .., last] => format!("{first} to {last} in parallel"),
        _ => group.concat(),
    };
    let groups: Vec<String> = groups.into_iter().map(describe).collect();
    Some(format!(
        "The calls of this message ran in this order: {}.",
        groups.join(", then ")
    ))
}
