//! Waits for the slot that a program needs to run. Slots are scarce only if too many programs run
//! for the limit on open files.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;

use crate::{Failure, ToolContext};
use events::CallUpdate;
use sandbox::process::ProgramSlot;

/// The time after which the client is shown that a call waits.
const SILENT_WAIT: Duration = Duration::from_secs(1);

/// The text that the client is shown in a call that waits.
const WAITING: &str = "Waiting for other commands to end.\n";

/// Waits for the slot of a program that belongs to a call.
///
/// # Errors
/// `on_cancel` if the user cancels first; an internal error if the system has no slot to give.
pub(crate) async fn slot(
    context: &ToolContext,
    on_cancel: Failure,
) -> Result<ProgramSlot, Failure> {
    // Dropped when the wait ends, so an editor that does not read cannot prolong it.
    let announcement = async {
        sleep(SILENT_WAIT).await;
        let update = CallUpdate {
            stream: Some(WAITING.into()),
            ..CallUpdate::default()
        };
        context.progress(update).await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        slot = context.sandbox_choice.slot() => {
            slot.map_err(|e| Failure::Broken(e.to_string()))
        }
        () = context.cancelled.cancelled() => Err(on_cancel),
        never = announcement => match never {},
    }
}
