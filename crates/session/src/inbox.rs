//! What waits for a session: prompts in their order, and cancels that may be about them.

use std::collections::VecDeque;

use tokio::sync::{mpsc, watch};

use super::handle::{CancelScope, MailboxMessage, Prompt, PromptInput, TurnEnd};
use crate::turn::Outcome;

pub(super) struct Inbox {
    pub(super) mailbox: mpsc::Receiver<MailboxMessage>,
    pub(super) cancels: mpsc::UnboundedReceiver<CancelScope>,
    /// Prompts that were taken out of the mailbox while a turn was running.
    waiting: VecDeque<Prompt>,
    /// Cancels that may be about prompts still in the mailbox: they overtake it.
    cancelled: Vec<CancelScope>,
    /// The idempotency key of the prompt that was taken last.
    key: Option<String>,
    /// Tells the running turn that the first of those that wait is for the model to hear now.
    spoken: watch::Sender<bool>,
}

impl Inbox {
    pub(super) fn new(
        mailbox: mpsc::Receiver<MailboxMessage>,
        cancels: mpsc::UnboundedReceiver<CancelScope>,
        spoken: watch::Sender<bool>,
    ) -> Self {
        Self { mailbox, cancels, waiting: VecDeque::new(), cancelled: Vec::new(), key: None, spoken }
    }

    pub(super) fn push(&mut self, prompt: Prompt) {
        self.waiting.push_back(prompt);
    }

    pub(super) fn pop(&mut self) -> Option<Prompt> {
        let prompt = self.waiting.pop_front()?;
        self.key = prompt.work.idempotency_key().map(str::to_owned);
        Some(prompt)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Remembers a cancel, and answers the prompt it is about where that waits here.
    pub(super) fn cancel(&mut self, cancel: CancelScope) {
        self.cancelled.push(cancel);
        // Prompts that an `UpTo` covers are answered when it is their turn, in order.
        if let CancelScope::Only(_) = cancel
            && let Some(at) = self.waiting.iter().position(|next| cancel.covers(next.number))
            && let Some(gone) = self.waiting.remove(at)
        {
            forget(gone);
        }
    }

    /// Whether a prompt was cancelled before it began.
    pub(super) fn is_cancelled(&mut self, number: u64) -> bool {
        while let Ok(cancel) = self.cancels.try_recv() {
            self.cancelled.push(cancel);
        }
        // Prompts come in order: what is about earlier ones has done its work.
        let cancelled = self.cancelled.iter().any(|cancel| cancel.covers(number));
        self.cancelled.retain(|cancel| match cancel {
            CancelScope::UpTo(last) => *last > number,
            CancelScope::Only(one) => *one > number,
        });
        cancelled
    }

    /// Tells the running turn whether someone's words wait that it should stop for. A built-in command waits
    /// until it has ended, and so does what was said after the command, and the running prompt sent once more.
    pub(super) fn tell_turn(&self, steers: bool) {
        let again = |next: &Prompt| self.key.is_some() && next.work.idempotency_key() == self.key.as_deref();
        let says = |next: &Prompt| matches!(next.work, PromptInput::Message(_)) && !again(next);
        let says = self.waiting.front().is_some_and(says);
        self.spoken.send_replace(says && steers);
    }

    /// Answers all that wait here, in order: they will not be run.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.drain(..).for_each(forget);
    }

    /// Takes no more mail, and answers the prompts in it.
    pub(super) fn close(mut self) {
        self.mailbox.close();
        while let Ok(mail) = self.mailbox.try_recv() {
            if let MailboxMessage::Prompt(prompt) = mail {
                forget(prompt);
            }
        }
    }
}

/// Answers a prompt that will not be run.
pub(super) fn forget(prompt: Prompt) {
    // An editor that is gone has no use for the outcome.
    prompt.outcome.send(TurnEnd::new(Outcome::Cancelled).0).ok();
}
