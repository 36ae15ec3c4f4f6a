//! Asks questions at a terminal, one at a time, and reads the lines that answer them.

use std::io;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::cli::terminal::line_aids::LineAids;
use crate::cli::terminal::question::Question;
use crate::cli::terminal::screen::Screen;
use crate::cli::terminal::styled::Styled;

/// A handle for asking questions. Lines typed before a question are discarded; those typed before a
/// prompt belong to it.
#[derive(Clone)]
pub(super) struct Keyboard(mpsc::UnboundedSender<LineRequest>);

struct LineRequest {
    /// Returns a text to show before the question, when it is its turn.
    introduction: Introduction,
    question: Styled,
    check: LineCheck,
    aids: Option<LineAids>,
    answer: oneshot::Sender<Option<String>>,
}

/// A check of a line before it is accepted. If the line is not an answer, it returns a text to show
/// before reading another line.
pub(super) type LineCheck = Box<dyn FnMut(&str) -> Option<Styled> + Send>;

/// Returns a text to show before a question, when it is its turn.
pub(super) type Introduction = Box<dyn FnOnce() -> Styled + Send>;

impl Keyboard {
    pub(super) fn new(screen: Arc<Screen>) -> Self {
        let (sender, questions) = mpsc::unbounded_channel();
        base::task::spawn(ask_in_turn(questions, screen));
        Self(sender)
    }

    /// Shows a question and waits for a valid answer; returns `None` at the end of the input. No
    /// other question is shown in the meantime. Dropping the future withdraws the question.
    pub(super) async fn ask(&self, question: Styled, check: LineCheck) -> Option<String> {
        self.ask_after(Box::new(Styled::default), question, check)
            .await
    }

    /// Asks a question, as [`Self::ask`] does, with an introduction.
    pub(super) async fn ask_after(
        &self,
        introduction: Introduction,
        question: Styled,
        check: LineCheck,
    ) -> Option<String> {
        self.read_line(introduction, question, check, None).await
    }

    /// Asks for a prompt, as [`Self::ask`] does, with aids for typing it.
    pub(super) async fn ask_for_prompt(
        &self,
        question: Styled,
        check: LineCheck,
        aids: LineAids,
    ) -> Option<String> {
        let introduction = Box::new(Styled::default);
        self.read_line(introduction, question, check, Some(aids))
            .await
    }

    async fn read_line(
        &self,
        introduction: Introduction,
        question: Styled,
        check: LineCheck,
        aids: Option<LineAids>,
    ) -> Option<String> {
        let (answer, line) = oneshot::channel();
        self.0
            .send(LineRequest {
                introduction,
                question,
                check,
                aids,
                answer,
            })
            .ok()?;
        line.await.ok().flatten()
    }
}

async fn ask_in_turn(mut questions: mpsc::UnboundedReceiver<LineRequest>, screen: Arc<Screen>) {
    while let Some(LineRequest {
        introduction,
        question: first,
        mut check,
        aids,
        mut answer,
    }) = questions.recv().await
    {
        if answer.is_closed() {
            continue;
        }
        let mut question = introduction();
        question.push(&first);
        loop {
            let Ok(asked) = screen.ask(&question, aids.clone()) else {
                screen.end_question(false);
                answer.send(None).ok();
                break;
            };
            tokio::select! {
                line = read(asked) => {
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

/// Reads the answer of a question on a thread of its own, because reading a terminal blocks. Dropping
/// the future ends the reading.
async fn read(question: Question) -> Option<String> {
    let (withdrawn, guard) = io::pipe().ok()?;
    let (answered, line) = oneshot::channel();
    std::thread::spawn(move || answered.send(question.answer(Some(&withdrawn))));
    let line = line.await.ok().flatten();
    drop(guard);
    line
}
