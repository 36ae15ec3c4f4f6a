//! Questions at a terminal, one after the other, and the lines that answer them.

use std::io;
use std::sync::{Arc, mpsc as thread};

use tokio::sync::{mpsc, oneshot};

use crate::cli::terminal::screen::Screen;
use crate::cli::terminal::styled::Styled;

/// The sender of questions. Lines typed while no question is shown are discarded.
#[derive(Clone)]
pub(super) struct Keyboard(mpsc::UnboundedSender<LineRequest>);

struct LineRequest {
    words: Styled,
    check: LineCheck,
    answer: oneshot::Sender<Option<String>>,
}

/// Checks a line before it is accepted. Returns a text to show before asking again, if the line is
/// not an answer.
pub(super) type LineCheck = Box<dyn FnMut(&str) -> Option<Styled> + Send>;

impl Keyboard {
    pub(super) fn new(screen: Arc<Screen>) -> Self {
        let (sender, questions) = mpsc::unbounded_channel();
        base::task::spawn(ask_in_turn(questions, screen));
        Self(sender)
    }

    /// Shows a question and waits for a valid answer; `None` at the end of the input. No other
    /// question is shown in between. Dropping the future withdraws the question.
    pub(super) async fn ask(&self, words: Styled, check: LineCheck) -> Option<String> {
        let (answer, line) = oneshot::channel();
        self.0
            .send(LineRequest {
                words,
                check,
                answer,
            })
            .ok()?;
        line.await.ok().flatten()
    }
}

async fn ask_in_turn(mut questions: mpsc::UnboundedReceiver<LineRequest>, screen: Arc<Screen>) {
    let (wanted, wants) = thread::channel::<()>();
    let (typed, mut lines) = mpsc::unbounded_channel();
    // A separate thread, so that a read without a question blocks nothing else.
    std::thread::spawn(move || {
        while wants.recv().is_ok() {
            let mut line = String::new();
            let read = io::stdin().read_line(&mut line);
            if typed
                .send(read.ok().filter(|n| *n > 0).map(|_| line))
                .is_err()
            {
                break;
            }
        }
    });
    let mut reads = false;
    while let Some(LineRequest {
        mut words,
        mut check,
        mut answer,
    }) = questions.recv().await
    {
        if answer.is_closed() {
            continue;
        }
        // A line that was typed for a withdrawn question is discarded.
        reads &= lines.try_recv().is_err();
        loop {
            if !std::mem::replace(&mut reads, true) && wanted.send(()).is_err() {
                return;
            }
            screen.ask(&words).ok();
            tokio::select! {
                line = lines.recv() => {
                    reads = false;
                    let line = line.flatten();
                    if let Some(again) = line.as_deref().and_then(&mut check) {
                        words = again;
                        continue;
                    }
                    // The asking task may be cancelled.
                    answer.send(line).ok();
                }
                () = answer.closed() => screen.aside("\n(question withdrawn)"),
            }
            break;
        }
        screen.asked();
    }
}
