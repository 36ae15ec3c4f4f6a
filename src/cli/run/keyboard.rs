//! Asks questions at a terminal, one at a time, and reads the lines that answer them.

use std::io;
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::cli::terminal::screen::Screen;
use crate::cli::terminal::styled::Styled;

/// The longest pause between the lines of a pasted text.
const PASTE_PAUSE: Duration = Duration::from_millis(50);

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
            if screen.ask(&question).is_err() {
                screen.end_question(false);
                answer.send(None).ok();
                break;
            }
            if !std::mem::replace(&mut is_reading, true) && request_read.send(()).is_err() {
                return;
            }
            tokio::select! {
                line = lines.recv() => {
                    is_reading = false;
                    let mut line = line.flatten();
                    // A pasted text of several lines is one answer: its later lines must not answer
                    // what its first one is asked back.
                    while let Some(text) = &mut line {
                        if request_read.send(()).is_err() {
                            return;
                        }
                        is_reading = true;
                        match tokio::time::timeout(PASTE_PAUSE, lines.recv()).await {
                            Ok(Some(Some(more))) => text.push_str(&more),
                            Ok(_) => {
                                is_reading = false;
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    let line = line.map(|line| without_keys(&line));
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

/// Removes the sequences that arrow keys and the like send, which are no part of an answer.
fn without_keys(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            text.push(c);
            continue;
        }
        if rest.next_if(|c| matches!(c, '[' | 'O')).is_some() {
            while rest.next_if(|c| c.is_ascii_digit() || *c == ';').is_some() {}
            rest.next();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_keys;

    #[test]
    fn keys_are_no_part_of_an_answer() {
        for (typed, expected) in [
            ("no", "no"),
            ("\u{1b}[D\u{1b}[Ano", "no"),
            ("a\u{1b}[1;5Cb\u{1b}OPc", "abc"),
            ("\u{1b}", ""),
            ("x\u{1b}[", "x"),
        ] {
            assert_eq!(without_keys(typed), expected, "{typed:?}");
        }
    }
}
