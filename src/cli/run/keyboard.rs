//! Asks questions at a terminal, one at a time, and reads the lines that answer them.

use std::io;
use std::sync::{Arc, mpsc as std_mpsc};

use tokio::sync::{mpsc, oneshot};

use crate::cli::terminal::screen::Screen;
use crate::cli::terminal::styled::Styled;

/// A handle for asking questions. Lines typed while no question is shown are discarded.
#[derive(Clone)]
pub(super) struct Keyboard(mpsc::UnboundedSender<LineRequest>);

struct LineRequest {
    question: Styled,
    check: LineCheck,
    answer: oneshot::Sender<Option<String>>,
}

/// A check of a line before it is accepted. If the line is not an answer, it returns a text to show
/// before reading another line.
pub(super) type LineCheck = Box<dyn FnMut(&str) -> Option<Styled> + Send>;

impl Keyboard {
    pub(super) fn new(screen: Arc<Screen>) -> Self {
        let (sender, questions) = mpsc::unbounded_channel();
        base::task::spawn(ask_in_turn(questions, screen));
        Self(sender)
    }

    /// Shows a question and waits for a valid answer; returns `None` at the end of the input. No
    /// other question is shown in the meantime. Dropping the future withdraws the question.
    pub(super) async fn ask(&self, question: Styled, check: LineCheck) -> Option<String> {
        let (answer, line) = oneshot::channel();
        self.0
            .send(LineRequest {
                question,
                check,
                answer,
            })
            .ok()?;
        line.await.ok().flatten()
    }
}

async fn ask_in_turn(mut questions: mpsc::UnboundedReceiver<LineRequest>, screen: Arc<Screen>) {
    let (request_read, read_requests) = std_mpsc::channel::<()>();
    let (typed, mut lines) = mpsc::unbounded_channel();
    // Lines are read on a separate thread, because a read cannot be cancelled when its question is
    // withdrawn.
    std::thread::spawn(move || {
        while read_requests.recv().is_ok() {
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
    let mut is_reading = false;
    while let Some(LineRequest {
        mut question,
        mut check,
        mut answer,
    }) = questions.recv().await
    {
        if answer.is_closed() {
            continue;
        }
        // A line that was typed for a withdrawn question is discarded.
        is_reading &= lines.try_recv().is_err();
        loop {
            // A line that was typed before the question is discarded when that is shown, so reading
            // begins afterwards.
            screen.ask(&question).ok();
            if !std::mem::replace(&mut is_reading, true) && request_read.send(()).is_err() {
                return;
            }
            tokio::select! {
                line = lines.recv() => {
                    is_reading = false;
                    let line = line.flatten();
                    if let Some(again) = line.as_deref().and_then(&mut check) {
                        question = again;
                        continue;
                    }
                    screen.end_question(line.is_some());
                    // The asking task may have been cancelled.
                    answer.send(line).ok();
                }
                () = answer.closed() => screen.withdraw(),
            }
            break;
        }
    }
}
