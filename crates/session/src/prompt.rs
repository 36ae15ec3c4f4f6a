//! What is done for one prompt: a turn of the model, or a built-in command. It owns the history and the
//! record until it has ended, so that the actor can go on serving its mailbox.

use std::sync::Arc;

use tokio::sync::watch;

use super::builtin::{self, BuiltinCommand, BuiltinContext};
use super::commands::TypedPrompt;
use super::handle::{PromptInput, idempotency_key};
use super::project::ConfigWatcher;
use super::sessions::Sessions;
use super::{child, mention, revert, title};
use crate::turn::insert::PromptDraft;
use crate::turn::{Choice, History, Outcome, TurnContext, frame, hooks, next, remind};
use events::Event;
use project::command;
use store::{Record, visible};
use transcript::{Content, Message, Role, User};

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
            PromptInput::Message(content) => match sent_before(&self.history, &self.record, &content) {
                None => self.message(content, watcher).await,
                Some(SentBefore::Last) => self.again(watcher).await,
                Some(SentBefore::Earlier) => {
                    self.scope.outlet.event(Event::Prompted { message: self.scope.message_id() }).await;
                    PromptResult { history: self.history, record: self.record, outcome: Outcome::Ended }
                }
            },
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
    async fn again(self, watcher: &mut ConfigWatcher) -> PromptResult {
        let Self { sessions, choice, mut scope, mut history, record, .. } = self;
        let mut message = head(&scope);
        scope.outlet.event(Event::Prompted { message: message.id.clone() }).await;
        if let Some(outcome) = next::ended(&history) {
            return PromptResult { history, record, outcome };
        }
        look_around(watcher, &mut scope, &choice).await;
        let once = answers_once(&history, &mut scope);
        message.role = head(&scope).role;
        // A prompt that nobody began to answer is answered as it stands.
        if !history.messages.last().is_some_and(Message::is_prompt) {
            message.parts.push(scope.part(remind::note(prompts::reminder::HOST_LOST)));
            scope.record.whole(&message).await;
            history.messages.push(message);
        }
        let (history, outcome) = child::turn(&sessions, [Some(&choice), once.as_ref()], history, scope).await;
        PromptResult { history, record, outcome }
    }

    async fn message(self, content: Vec<Content>, watcher: &mut ConfigWatcher) -> PromptResult {
        let Self { sessions, choice, mut scope, mut history, mut record, steered } = self;
        look_around(watcher, &mut scope, &choice).await;
        let resumed = history.messages.iter().any(Message::is_prompt);
        let Some(content) = hooks::prompt(&scope, resumed, content).await else {
            scope.outlet.event(Event::Prompted { message: scope.message_id() }).await;
            return PromptResult { history, record, outcome: Outcome::Ended };
        };
        // What was undone is gone for good with the next prompt.
        revert::settle(&mut history, &mut record, &scope.record).await;
        let mut draft = PromptDraft::new(head(&scope), &record);
        let TypedPrompt { content, once, words } = watcher.commands().typed(content, &mut draft, &mut scope).await;
        let content = mention::read(content, &mut draft, &scope).await;
        let content = mention::fitted(content, &scope).await;
        let mut content = match scope.depth < scope.project.settings.subagent_depth {
            true => mention::named(content, words.as_deref(), &scope.project.agents),
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

/// What has changed since the turn before: files, plugins, servers.
async fn look_around(watcher: &mut ConfigWatcher, scope: &mut TurnContext, choice: &watch::Sender<Choice>) {
    watcher.refresh(scope, choice).await;
    let added = hooks::contributions(scope).await;
    watcher.contribute(added, scope, choice).await;
    let servers = &scope.resources.servers;
    servers.greet(&scope.project.settings.mcp, &scope.outlet, &scope.cancelled).await;
}

/// Lets whoever a command named go on with its turn: the session's own choice is another one.
fn answers_once(history: &History, scope: &mut TurnContext) -> Option<watch::Sender<Choice>> {
    let prompt = next::turn(history).first()?;
    let user = prompt.user()?;
    let named = command::typed(prompt.visible_text().trim()).is_some();
    let known = scope.project.agents.get(&user.agent).is_some();
    let chosen = scope.choice.borrow().clone();
    if !named || !known || chosen.agent == user.agent {
        return None;
    }
    let (once, choice) =
        watch::channel(Choice { agent: user.agent.clone(), model: Some(user.model.clone()), ..chosen });
    scope.choice = choice;
    Some(once)
}

/// A prompt that is in the history: what carried it was lost, and whoever sent it does not know how far it came.
#[derive(Debug, PartialEq)]
enum SentBefore {
    Last,
    /// Others came after it: it has ended.
    Earlier,
}

fn sent_before(history: &History, record: &Record, content: &[Content]) -> Option<SentBefore> {
    let key = idempotency_key(content)?;
    let is = |message: &Message| message.options().and_then(|options| options.idempotency_key.as_deref()) == Some(key);
    let place = history.messages.iter().rev().filter(|message| message.is_prompt()).position(is)?;
    // What was undone does not go on.
    let undone = visible(&history.messages, &record.undone) < history.messages.len();
    Some(if place == 0 && !undone { SentBefore::Last } else { SentBefore::Earlier })
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::environment::Timestamp;
    use base::id::{MessageId, PartId, SessionId};
    use store::UndoEntry;
    use transcript::{ModelRef, Part, PromptOptions, Text};

    fn parts(words: &str, key: Option<&str>) -> Vec<Content> {
        let options = PromptOptions { idempotency_key: key.map(str::to_owned), ..PromptOptions::default() };
        vec![Content::Text(Text { text: words.into(), ..Text::default() }), Content::PromptOptions(options)]
    }

    #[test]
    fn a_prompt_that_was_sent_before_is_known_by_its_key() {
        let prompt = |(number, key): (usize, &Option<&str>)| Message {
            id: MessageId::new(format!("msg_{number}")),
            created: Timestamp(1),
            role: Role::User(User {
                agent: "build".into(),
                model: ModelRef { provider: "p".into(), model: "m".into(), effort: None },
            }),
            parts: parts("Go on.", *key)
                .into_iter()
                .map(|content| Part { id: PartId::new(format!("prt_{number}")), content })
                .collect(),
        };
        /// The keys that are kept, the first prompt that was undone, the key that comes.
        type Row<'a> = (&'a [Option<&'a str>], Option<usize>, Option<&'a str>, Option<SentBefore>);
        let table: [Row<'_>; 7] = [
            (&[Some("a"), Some("b")], None, Some("b"), Some(SentBefore::Last)),
            (&[Some("a"), Some("b")], None, Some("a"), Some(SentBefore::Earlier)),
            (&[Some("a"), Some("b")], None, Some("c"), None),
            // The same words again are no prompt that was sent before.
            (&[None], None, None, None),
            (&[Some("a"), None], None, Some("a"), Some(SentBefore::Earlier)),
            (&[Some("a"), Some("b")], Some(1), Some("b"), Some(SentBefore::Earlier)),
            (&[], None, Some("a"), None),
        ];
        for (kept, undone, key, wanted) in table {
            let messages = kept.iter().enumerate().map(prompt).collect();
            let history = History { messages, ..History::default() };
            let mut record = Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(1));
            let from = |number| MessageId::new(format!("msg_{number}"));
            let entry = |number| UndoEntry { from: from(number), files: vec![], left: vec![], done: true };
            record.undone.extend(undone.map(entry));
            assert_eq!(sent_before(&history, &record, &parts("Go on.", key)), wanted, "{kept:?} {undone:?} {key:?}");
        }
    }
}
