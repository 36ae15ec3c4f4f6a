//! Sends a command's output to the client, at most ten times per second.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::ToolContext;
use base::text::{self, Utf8Decoder};
use events::{CallUpdate, ProgramExit};

/// The minimum interval between updates.
pub(super) const UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// Waiting output that exceeds twice this size is trimmed to at most its last `TRIMMED_BYTES`
/// bytes, from the start of a line.
pub(super) const TRIMMED_BYTES: usize = 32 << 10;

/// Waits until `update_at`; `None` is due at once.
pub(super) async fn due(update_at: Option<Instant>) {
    if let Some(update_at) = update_at {
        sleep_until(update_at).await;
    }
}

type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The last lines of output, in at most twice [`TRIMMED_BYTES`].
#[derive(Debug, Default, Clone)]
struct LastLines {
    /// Begins with a line if bytes before it were skipped.
    text: String,
    skipped: usize,
    /// True if the skipped bytes end within a line, the rest of which is skipped as well.
    skips_line: bool,
}

impl LastLines {
    fn push(&mut self, mut text: &str) {
        if self.skips_line {
            let end = text.find('\n').map(|at| at + 1);
            let rest = end.unwrap_or(text.len());
            self.skips_line = end.is_none();
            self.skipped += rest;
            text = &text[rest..];
        }
        self.text.push_str(text);
        if self.text.len() <= 2 * TRIMMED_BYTES {
            return;
        }
        let from = self.text.len() - text::tail(&self.text, TRIMMED_BYTES).len();
        let next = self.text[from..].find('\n').map(|at| from + at + 1);
        let begin = if self.text[..from].ends_with('\n') {
            Some(from)
        } else {
            next
        };
        self.skips_line = begin.is_none();
        let begin = begin.unwrap_or(self.text.len());
        self.skipped += begin;
        self.text.drain(..begin);
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.skipped == 0
    }
}

fn skipped_mark(bytes: usize) -> String {
    format!("...{bytes} bytes not shown...\n")
}

/// The end of a command's output as a terminal gets it.
#[derive(Debug, Default, Clone)]
pub(super) struct TerminalTail {
    decoder: Utf8Decoder,
    lines: LastLines,
}

impl TerminalTail {
    /// Adds output. Returns it decoded; an incomplete character at its end is returned with the
    /// next output.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) -> String {
        let text = self.decoder.push(bytes);
        self.lines.push(&text);
        text
    }

    /// Returns the last lines of the output so far, preceded by the number of skipped bytes. `None`
    /// if they have no colours: the plain form then shows more, because it includes the beginning.
    pub(super) fn coloured(&self) -> Option<String> {
        let LastLines { text, skipped, .. } = &self.lines;
        if !text.contains("\u{1b}[") {
            return None;
        }
        Some(match skipped {
            0 => text.clone(),
            skipped => skipped_mark(*skipped) + text,
        })
    }
}

/// Output on its way to the client. While one piece is being sent, the next one accumulates; a
/// client that does not read delays neither the command nor its end.
pub(super) struct LiveOutput {
    context: ToolContext,
    tail: TerminalTail,
    /// True if the sent output ends within a line.
    is_line_open: bool,
    /// The rest of the line that was sent in part, in at most [`TRIMMED_BYTES`], so that nothing
    /// is skipped within it.
    line_rest: String,
    unsent: LastLines,
    last: Option<Instant>,
    /// The update that is being sent.
    pub(super) sending: Option<Sending>,
}

impl LiveOutput {
    pub(super) fn new(context: &ToolContext) -> Self {
        Self {
            context: context.clone(),
            tail: TerminalTail::default(),
            is_line_open: false,
            line_rest: String::new(),
            unsent: LastLines::default(),
            last: None,
            sending: None,
        }
    }

    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        let text = self.tail.push_bytes(bytes);
        self.push(&text);
    }

    fn push(&mut self, text: &str) {
        let continues_line =
            self.is_line_open && !self.line_rest.ends_with('\n') && self.unsent.is_empty();
        let end = text.find('\n').map_or(text.len(), |at| at + 1);
        let end = if continues_line && self.line_rest.len() + end <= TRIMMED_BYTES {
            end
        } else {
            0
        };
        self.line_rest.push_str(&text[..end]);
        self.unsent.push(&text[end..]);
    }

    /// Returns the end of the output so far.
    pub(super) fn tail(&self) -> &TerminalTail {
        &self.tail
    }

    /// Returns whether output waits and no update is being sent.
    pub(super) fn can_start_sending(&self) -> bool {
        // Of a line that is too long, only the number of its bytes is shown.
        let has_output = !self.line_rest.is_empty() || !self.unsent.is_empty();
        self.sending.is_none() && has_output
    }

    /// Returns the time of the next update; `None` for at once. It must be the same in repeated
    /// calls, otherwise a `select!` in which something else is always ready would never reach it.
    pub(super) fn next_update(&self) -> Option<Instant> {
        self.last.map(|last| last + UPDATE_INTERVAL)
    }

    fn piece(&mut self) -> Option<String> {
        let mut piece = std::mem::take(&mut self.line_rest);
        let skipped = std::mem::take(&mut self.unsent.skipped);
        if skipped > 0 {
            let is_within_line = if piece.is_empty() {
                self.is_line_open
            } else {
                !piece.ends_with('\n')
            };
            if is_within_line {
                piece.push('\n');
            }
            piece.push_str(&skipped_mark(skipped));
        }
        piece.push_str(&std::mem::take(&mut self.unsent.text));
        if piece.is_empty() {
            return None;
        }
        self.is_line_open = !piece.ends_with('\n');
        Some(piece)
    }

    /// Takes the waiting output as the next update. It is sent while [`Self::await_sent`] is
    /// polled.
    pub(super) fn start_sending(&mut self) {
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

    /// Sends the remaining output and the exit status. Waits for a slow client until the user
    /// cancels.
    pub(super) async fn finish_or_cancel(self, exit: Option<ProgramExit>, context: &ToolContext) {
        tokio::select! {
            () = self.finish(exit) => {}
            () = context.cancelled.cancelled() => {}
        }
    }

    async fn finish(mut self, exit: Option<ProgramExit>) {
        self.await_sent().await;
        let end = self.tail.decoder.end();
        self.push(&end);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::TestProject;

    const LINE: &str = "\u{1b}[32m0123456789\u{1b}[0m\n";

    #[test]
    fn output_is_skipped_by_whole_lines() {
        let flood = LINE.repeat(3 * TRIMMED_BYTES / LINE.len());
        let giant = "é".repeat(2 * TRIMMED_BYTES);
        for (sent, pieces, before, end) in [
            ("", vec![flood.clone()], "", LINE),
            // The line that was sent in part ends first.
            (
                "a\u{1b}[3",
                vec!["1mb".to_owned(), format!("c\n{flood}")],
                "1mbc\n",
                LINE,
            ),
            ("sent\n", vec![flood.clone(), "rest".to_owned()], "", "rest"),
            // No part of a line that is too long is shown, except the part that was sent.
            ("", vec![giant.clone(), format!("end\n{LINE}")], "", LINE),
            ("a", vec![giant.clone(), format!("end\n{LINE}")], "\n", LINE),
        ] {
            let fixture = TestProject::new();
            let mut live = LiveOutput::new(&fixture.context());
            live.push_bytes(sent.as_bytes());
            assert_eq!(live.piece().unwrap_or_default(), sent);
            for piece in &pieces {
                live.push_bytes(piece.as_bytes());
            }
            let piece = live.piece().unwrap();
            let (start, rest) = piece.split_once("...").unwrap();
            assert_eq!(start, before, "{sent:?}");
            let (skipped, shown) = rest.split_once(" bytes not shown...\n").unwrap();
            assert!(shown.starts_with(LINE) && shown.ends_with(end), "{sent:?}");
            let taken: usize = pieces.iter().map(String::len).sum();
            let line_end = before.trim_start_matches('\n').len();
            assert_eq!(
                line_end + skipped.parse::<usize>().unwrap() + shown.len(),
                taken
            );
            assert!(live.unsent.is_empty());
            live.push_bytes(giant.as_bytes());
            assert!(live.can_start_sending());
        }
    }

    #[test]
    fn coloured_output_counts_skipped_bytes() {
        let coloured = |text: &str| {
            let mut tail = TerminalTail::default();
            tail.push_bytes(text.as_bytes());
            tail.coloured()
        };
        let long = LINE.repeat(3 * TRIMMED_BYTES / LINE.len());
        assert_eq!(coloured(LINE).as_deref(), Some(LINE));
        assert_eq!(coloured("plain\n"), None);
        assert_eq!(
            coloured(&format!("{LINE}{}", "plain\n".repeat(20_000))),
            None
        );
        let shown = coloured(&long).unwrap();
        let (mark, lines) = shown.split_once('\n').unwrap();
        let skipped = long.len() - lines.len();
        assert_eq!(mark, format!("...{skipped} bytes not shown..."));
        assert!(skipped > 0 && lines.starts_with(LINE));
    }
}
