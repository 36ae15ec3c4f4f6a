//! Sends a command's output to the editor, a few times per second.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::ToolContext;
use base::text::{self, Utf8Decoder};
use events::{CallUpdate, ProgramExit};

/// The interval between updates of the editor.
pub(super) const UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum bytes of an update; of more output, the end is sent.
pub(super) const MAX_UPDATE_BYTES: usize = 32 << 10;

pub(super) async fn due(update_at: Option<Instant>) {
    if let Some(update_at) = update_at {
        sleep_until(update_at).await;
    }
}

type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The end of a command's output as a terminal gets it.
#[derive(Debug, Default, Clone)]
pub(super) struct TerminalTail {
    decoder: Utf8Decoder,
    /// At most twice [`MAX_UPDATE_BYTES`].
    text: String,
    /// Whether the text lacks a beginning.
    is_cut: bool,
}

impl TerminalTail {
    /// Takes more output. Returns it as text.
    pub(super) fn take(&mut self, bytes: &[u8]) -> String {
        let text = self.decoder.push(bytes);
        self.text.push_str(&text);
        if self.text.len() > 2 * MAX_UPDATE_BYTES {
            self.text = text::tail(&self.text, MAX_UPDATE_BYTES).to_owned();
            self.is_cut = true;
        }
        text
    }

    /// Returns the end of the output so far if it has colours, from the beginning of a line.
    pub(super) fn coloured(&self) -> Option<String> {
        if !self.text.contains("\u{1b}[") {
            return None;
        }
        let end = text::tail(&self.text, MAX_UPDATE_BYTES);
        let is_cut = self.is_cut || end.len() < self.text.len();
        let begin = end.find('\n').map_or(0, |at| at + 1);
        Some(if is_cut { &end[begin..] } else { end }.to_owned())
    }
}

/// Output on its way to the editor. While one piece is being sent, the next one accumulates; an
/// editor that does not read delays neither the command nor its end.
pub(super) struct LiveOutput {
    context: ToolContext,
    tail: TerminalTail,
    unsent: String,
    skipped: usize,
    last: Option<Instant>,
    pub(super) sending: Option<Sending>,
}

impl LiveOutput {
    pub(super) fn new(context: &ToolContext) -> Self {
        Self {
            context: context.clone(),
            tail: TerminalTail::default(),
            unsent: String::new(),
            skipped: 0,
            last: None,
            sending: None,
        }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        let text = self.tail.take(bytes);
        self.unsent.push_str(&text);
        if self.unsent.len() > 2 * MAX_UPDATE_BYTES {
            let kept = text::tail(&self.unsent, MAX_UPDATE_BYTES).to_owned();
            self.skipped += self.unsent.len() - kept.len();
            self.unsent = kept;
        }
    }

    /// Returns the end of the output so far.
    pub(super) fn tail(&self) -> &TerminalTail {
        &self.tail
    }

    pub(super) fn has_unsent_output(&self) -> bool {
        self.sending.is_none() && !self.unsent.is_empty()
    }

    /// Returns the time of the next update; `None` for at once. It must be the same in repeated
    /// calls, otherwise a `select!` in which something else is always ready would never reach it.
    pub(super) fn next_update(&self) -> Option<Instant> {
        self.last.map(|last| last + UPDATE_INTERVAL)
    }

    fn piece(&mut self) -> Option<String> {
        let unsent = std::mem::take(&mut self.unsent);
        let skipped = std::mem::take(&mut self.skipped);
        match (unsent.is_empty(), skipped) {
            (true, _) => None,
            (false, 0) => Some(unsent),
            (false, skipped) => Some(format!("\n...{skipped} bytes not shown...\n{unsent}")),
        }
    }

    pub(super) fn send(&mut self) {
        self.last = Some(Instant::now());
        if let Some(stream) = self.piece() {
            let context = self.context.clone();
            self.sending = Some(Box::pin(async move {
                context
                    .progress(CallUpdate {
                        stream: Some(stream),
                        ..CallUpdate::default()
                    })
                    .await;
            }));
        }
    }

    pub(super) async fn await_sent(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.await;
            self.sending = None;
        }
    }

    /// Sends the rest and the exit status. Waits for a slow editor, unless the user cancels.
    pub(super) async fn finish_or_cancel(self, exit: Option<ProgramExit>, context: &ToolContext) {
        tokio::select! {
            () = self.finish(exit) => {}
            () = context.cancelled.cancelled() => {}
        }
    }

    async fn finish(mut self, exit: Option<ProgramExit>) {
        self.await_sent().await;
        let end = self.tail.decoder.end();
        self.unsent.push_str(&end);
        let stream = self.piece();
        self.context
            .progress(CallUpdate {
                stream,
                exit,
                ..CallUpdate::default()
            })
            .await;
    }
}
