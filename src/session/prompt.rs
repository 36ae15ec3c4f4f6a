//! What is done for one prompt: a turn of the model, or a built-in command. It owns the history and the
//! record until it has ended, so that the actor can go on serving its mailbox.

use std::sync::Arc;

use tokio::sync::watch;

use super::builtin::{self, BuiltinCommand, BuiltinContext};
use super::handle::PromptInput;
use super::project::ConfigWatcher;
use super::sessions::Sessions;
use super::{child, mention, revert, title};
use crate::event::Event;
use crate::message::{Content, Message, Role, User};
use crate::prompts;
use crate::store::Record;
use crate::turn::insert::PromptDraft;
use crate::turn::{Choice, History, Outcome, TurnContext, frame, hooks, next, remind};

pub(super) struct PromptRun {
    pub(super) sessions: Arc<Sessions>,
    pub(super) choice: watch::Sender<Choice>,
    /// Its token and outlet are this prompt's own.
    pub(super) scope: TurnContext,
    pub(super) history: History,
    pub(super) record: Record,
    /// The turn before ended for these words.
    pub(super) steered: bool,
}

/// What comes home from a prompt.
pub(super) struct PromptResult {
    pub(super) history: History,
    pub(super) record: Record,
    pub(super) outcome: Outcome,
}

impl PromptRun {
    pub(super) async fn run(self, input: PromptInput, watcher: &mut ConfigWatcher) -> PromptResult {
        match input {
            again @ PromptInput::Message(_) if sent_before(&self.history, &again) => self.again().await,
            PromptInput::Message(content) => self.message(content, watcher).await,
            PromptInput::Builtin(command) => self.builtin(&command).await,
        }
    }

    async fn builtin(mut self, command: &BuiltinCommand) -> PromptResult {
        // It is not a message of the history, and has an id all the same.
        self.scope.outlet.event(Event::Prompted { message: self.scope.message_id() }).await;
        let cx = BuiltinContext { history: &mut self.history, record: &mut self.record, scope: &self.scope };
        let outcome = builtin::carry_out(command, cx).await;
        PromptResult { history: self.history, record: self.record, outcome }
    }

    /// Goes on with the turn of a prompt that was sent before, or says how it ended.
    async fn again(self) -> PromptResult {
        let Self { sessions, choice, scope, mut history, record, .. } = self;
        let mut message = head(&scope);
        scope.outlet.event(Event::Prompted { message: message.id.clone() }).await;
        if let Some(outcome) = next::ended(&history) {
            return PromptResult { history, record, outcome };
        }
        message.parts.push(scope.part(remind::note(prompts::reminder("host-lost"))));
        scope.record.whole(&message).await;
        history.messages.push(message);
        let (history, outcome) = child::turn(&sessions, [Some(&choice), None], history, scope).await;
        PromptResult { history, record, outcome }
    }

    async fn message(self, content: Vec<Content>, watcher: &mut ConfigWatcher) -> PromptResult {
        let Self { sessions, choice, mut scope, mut history, mut record, steered } = self;
        watcher.refresh(&mut scope, &choice).await;
        let added = hooks::contributions(&scope).await;
        watcher.contribute(added, &mut scope, &choice).await;
        let servers = &scope.resources.servers;
        servers.greet(&scope.project.settings.mcp, &scope.outlet, &scope.cancelled).await;
        let resumed = history.messages.iter().any(Message::is_prompt);
        let Some(content) = hooks::prompt(&scope, resumed, content).await else {
            scope.outlet.event(Event::Prompted { message: scope.message_id() }).await;
            return PromptResult { history, record, outcome: Outcome::Ended };
        };
        // What was undone is gone for good with the next prompt.
        revert::settle(&mut history, &mut record, &scope.record).await;
        let mut draft = PromptDraft::new(head(&scope), &record);
        let (content, once) = watcher.commands().typed(content, &mut draft, &mut scope).await;
        let content = mention::read(content, &mut draft, &scope).await;
        let content = mention::fitted(content, &scope).await;
        let mut content = match scope.depth < scope.project.settings.subagent_depth {
            true => mention::named(content, &scope.project.agents),
            false => content,
        };
        if steered {
            remind::spoken_meanwhile(&mut content);
        }
        // A command may have named another agent than the one the draft began with.
        let Message { role, .. } = head(&scope);
        let message = Message { role, ..draft.end(&scope, content) };
        record.updated = message.created;
        // At once: the turn may take an hour, and the session is in the list.
        let title = title::words(&message).filter(|_| record.title.is_none());
        record.title = title.clone().or(record.title);
        scope.record.session(&record).await;
        scope.record.whole(&message).await;
        scope.outlet.event(Event::Prompted { message: message.id.clone() }).await;
        if title.is_some() {
            scope.outlet.event(Event::Info { title, updated: record.updated }).await;
        }
        history.messages.push(message);
        let (history, outcome) = child::turn(&sessions, [Some(&choice), once.as_ref()], history, scope).await;
        PromptResult { history, record, outcome }
    }
}

/// Whether a prompt is the last one once more: what carried it was lost, and whoever sent it does not know how far it
/// came.
fn sent_before(history: &History, input: &PromptInput) -> bool {
    let key = input.idempotency_key();
    let last = next::turn(history).first().and_then(Message::options);
    key.is_some() && last.and_then(|options| options.idempotency_key.as_deref()) == key
}

/// The head of the message that a prompt becomes.
fn head(scope: &TurnContext) -> Message {
    let chosen = scope.choice.borrow().agent.clone();
    let model = match scope.project.agents.get(&chosen) {
        Some(agent) => frame::model(scope, &agent),
        None => scope.project.models.default_model(),
    };
    Message {
        id: scope.message_id(),
        created: scope.now(),
        role: Role::User(User { agent: chosen, model }),
        parts: Vec::new(),
    }
}
