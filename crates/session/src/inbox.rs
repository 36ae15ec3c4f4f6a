//! The receiving side of a session's mailbox. [`Inbox`] queues prompts in order, applies cancels to
//! those that wait, and signals to the running turn that a message waits for it.

use std::collections::VecDeque;

use tokio::sync::{mpsc, watch};

use super::handle::{CancelScope, MailboxMessage, QueuedPrompt};
use crate::turn::TurnOutcome;

/// The mailbox of a session, and the prompts that were taken out of it.
pub(super) struct Inbox {
    pub(super) mailbox: mpsc::Receiver<MailboxMessage>,
    pub(super) cancels: mpsc::UnboundedReceiver<CancelScope>,
    /// Prompts that were taken out of the mailbox while a turn was running.
    waiting: VecDeque<QueuedPrompt>,
    /// Cancels that may apply to prompts still in the mailbox: they overtake it.
    cancelled: Vec<CancelScope>,
    /// The idempotency key of the last prompt that was taken.
    last_key: Option<String>,
    /// Signals to the running turn that the model should receive the first waiting prompt now.
    has_steering_message: watch::Sender<bool>,
}

impl Inbox {
    pub(super) fn new(
        mailbox: mpsc::Receiver<MailboxMessage>,
        cancels: mpsc::UnboundedReceiver<CancelScope>,
        has_steering_message: watch::Sender<bool>,
    ) -> Self {
        Self {
            mailbox,
            cancels,
            waiting: VecDeque::new(),
            cancelled: Vec::new(),
            last_key: None,
            has_steering_message,
        }
    }

    pub(super) fn push(&mut self, prompt: QueuedPrompt) {
        self.waiting.push_back(prompt);
    }

    pub(super) fn pop(&mut self) -> Option<QueuedPrompt> {
        let prompt = self.waiting.pop_front()?;
        self.last_key = prompt.input.idempotency_key().map(str::to_owned);
        Some(prompt)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Records a cancel. A prompt that it names and that waits here is answered at once.
    pub(super) fn cancel(&mut self, cancel: CancelScope) {
        self.cancelled.push(cancel);
        // Prompts that an `UpTo` covers are answered in order, when they are taken.
        if let CancelScope::Only(_) = cancel
            && let Some(at) = self
                .waiting
                .iter()
                .position(|next| cancel.covers(next.number))
            && let Some(gone) = self.waiting.remove(at)
        {
            answer_cancelled(gone);
        }
    }

    /// True if the prompt of this number was cancelled before it began. Prompts must be passed in
    /// order, because cancels of earlier ones are dropped.
    pub(super) fn is_cancelled(&mut self, number: u64) -> bool {
        while let Ok(cancel) = self.cancels.try_recv() {
            self.cancelled.push(cancel);
        }
        // Prompts come in order, so cancels of earlier ones are no longer needed.
        let cancelled = self.cancelled.iter().any(|cancel| cancel.covers(number));
        self.cancelled.retain(|cancel| match cancel {
            CancelScope::UpTo(last) => *last > number,
            CancelScope::Only(one) => *one > number,
        });
        cancelled
    }

    /// Signals to the running turn whether it should stop for a waiting message. Built-in commands
    /// and the messages after them wait until the turn has ended; so does the running prompt if it is
    /// sent again.
    pub(super) fn update_steering_signal(&self, steers: bool) {
        let is_same = |next: &QueuedPrompt| {
            self.last_key.is_some() && next.input.idempotency_key() == self.last_key.as_deref()
        };
        let is_new = |next: &QueuedPrompt| next.input.builtin.is_none() && !is_same(next);
        let has_message = self.waiting.front().is_some_and(is_new);
        self.has_steering_message
            .send_replace(has_message && steers);
    }

    /// Answers all waiting prompts in order as cancelled.
    pub(super) fn cancel_waiting(&mut self) {
        self.waiting.drain(..).for_each(answer_cancelled);
    }

    /// Closes the mailbox, and answers the prompts in it as cancelled.
    pub(super) fn close(mut self) {
        self.mailbox.close();
        while let Ok(mail) = self.mailbox.try_recv() {
            if let MailboxMessage::Prompt(prompt) = mail {
                answer_cancelled(prompt);
            }
        }
    }
}

/// Answers a prompt as cancelled.
pub(super) fn answer_cancelled(prompt: QueuedPrompt) {
    // The receiver is dropped if the client has disconnected.
    prompt.outcome.send(TurnOutcome::Cancelled.into()).ok();
}
