//! Questions at a terminal, one after the other, and the lines that answer them.

use std::io;
use std::sync::{Arc, mpsc as thread};

use tokio::sync::{mpsc, oneshot};

use crate::cli::terminal::screen::Screen;
use crate::cli::terminal::styled::Styled;

/// Where questions are asked. What is typed while none is shown answers none.
#[derive(Clone)]
pub(super) struct Keyboard(mpsc::UnboundedSender<LineRequest>);

struct LineRequest {
    words: Styled,
    check: LineCheck,
    answer: oneshot::Sender<Option<String>>,
}

/// Looks at a line before it is taken: what to show, and to ask again, where it is no answer.
pub(super) type LineCheck = Box<dyn FnMut(&str) -> Option<Styled> + Send>;

impl Keyboard {
    pub(super) fn new(screen: Arc<Screen>) -> Self {
        let (sender, questions) = mpsc::unbounded_channel();
        base::task::spawn(ask_in_turn(questions, screen));
        Self(sender)
    }

    /// Shows a question and waits for a line that is an answer; none at the end of the input. No other question comes in
    /// between. Dropping the future withdraws it.
    pub(super) async fn ask(&self, words: Styled, check: LineCheck) -> Option<String> {
        let (answer, line) = oneshot::channel();
        self.0.send(LineRequest { words, check, answer }).ok()?;
        line.await.ok().flatten()
    }
}

async fn ask_in_turn(mut questions: mpsc::UnboundedReceiver<LineRequest>, screen: Arc<Screen>) {
    let (wanted, wants) = thread::channel::<()>();
    let (typed, mut lines) = mpsc::unbounded_channel();
    // A thread of its own: a line that nobody waits for any more keeps nothing else waiting.
    std::thread::spawn(move || {
        while wants.recv().is_ok() {
            let mut line = String::new();
            let read = io::stdin().read_line(&mut line);
            if typed.send(read.ok().filter(|n| *n > 0).map(|_| line)).is_err() {
                break;
            }
        }
    });
    let mut reads = false;
    while let Some(LineRequest { mut words, mut check, mut answer }) = questions.recv().await {
        if answer.is_closed() {
            continue;
        }
        // Typed for a question that was withdrawn.
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
                    // Whoever asked may have been cancelled since.
                    answer.send(line).ok();
                }
                () = answer.closed() => screen.aside("(withdrawn)"),
            }
            break;
        }
        screen.asked();
    }
}
