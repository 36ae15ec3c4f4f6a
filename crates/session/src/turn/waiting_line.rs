//! The order of calls that run side by side.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use base::lock::locked;

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

/// In which order calls run, by whether each may run beside its neighbours. `None` if that is as they were written.
pub(super) fn order(besides: &[bool]) -> Option<String> {
    if !besides.windows(2).any(|pair| pair == [true, true]) {
        return None;
    }
    let mut groups: Vec<(bool, Vec<String>)> = Vec::new();
    for (n, beside) in (1..).zip(besides) {
        match groups.last_mut().filter(|(open, _)| *open && *beside) {
            Some((_, group)) => group.push(n.to_string()),
            None => groups.push((*beside, vec![n.to_string()])),
        }
    }
    let one = |(_, group): (bool, Vec<String>)| match &group[..] {
        [first, .., last] => format!("{first} to {last} side by side"),
        _ => group.concat(),
    };
    let groups: Vec<String> = groups.into_iter().map(one).collect();
    Some(format!("The calls of this message, counted from 1, ran in this order: {}.", groups.join(", then ")))
}
