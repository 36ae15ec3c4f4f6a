//! Carries out one prompt: a turn of the model, or a built-in command. [`PromptRun`] owns the history and
//! the record until it has ended, so that the actor can serve its mailbox in the meantime. A prompt that
//! is sent again after a lost connection continues its turn, or returns its outcome.

use std::sync::Arc;

use tokio::sync::watch;

use super::builtin::{self, BuiltinCommand, BuiltinContext, BuiltinName};
use super::handle::{PromptInput, idempotency_key};
use super::project::ConfigWatcher;
use super::sessions::Sessions;
use super::{mention, revert, session_turn, title};
use crate::turn::insert::PromptDraft;
use crate::turn::{
    History, SessionChoices, TurnContext, TurnOutcome, hooks, late_changes, next, remind,
    step_context,
};
use base::id::MessageId;
use events::Event;
use project::command;
use store::{Record, visible};
use transcript::{Content, Message, Role, User};

/// A running prompt, with the state that the session lends to it.
pub(super) struct PromptRun {
    pub(super) sessions: Arc<Sessions>,
    pub(super) choice: watch::Sender<SessionChoices>,
    /// The context; its cancellation token and event sender belong to this prompt only.
    pub(super) turn: TurnContext,
    /// The history, which the prompt and its turn extend.
    pub(super) history: History,
    pub(super) record: Record,
    /// True if this prompt is a steering message: the turn before ended in favour of it.
    pub(super) steered: bool,
}

impl PromptRun {
    pub(super) async fn run(
        &mut self,
        input: PromptInput,
        watcher: &mut ConfigWatcher,
    ) -> TurnOutcome {
        let PromptInput { content, builtin } = input;
        if let Some(command) = builtin {
            return self.run_builtin(&command).await;
        }
        match find_earlier_prompt(&self.history, &self.record, &content) {
            None => self.run_message(content, watcher).await,
            Some((EarlierPrompt::Last, known_as)) => self.resume(known_as, watcher).await,
            Some((EarlierPrompt::Earlier, known_as)) => {
                let message = self.turn.new_message_id();
                self.report_repeated_prompt(message, known_as).await;
                TurnOutcome::Ended
            }
        }
    }

    /// Reports the id of a new prompt's message to the client.
    async fn report_message_id(&self, message: MessageId) {
        let known_as = None;
        self.turn
            .event_sender
            .event(Event::Prompted { message, known_as })
            .await;
    }

    /// Reports the ids of a prompt that was sent before: `known_as` is its first message, `message` the
    /// one that represents it from now on.
    async fn report_repeated_prompt(&self, message: MessageId, known_as: MessageId) {
        let known_as = Some(known_as);
        self.turn
            .event_sender
            .event(Event::Prompted { message, known_as })
            .await;
    }

    /// Runs the turn of the history's last prompt. `once` sends the choices of a command for this turn.
    async fn run_turn(&mut self, once: Option<&watch::Sender<SessionChoices>>) -> TurnOutcome {
        let (history, outcome) = session_turn::run(
            &self.sessions,
            [Some(&self.choice), once],
            std::mem::take(&mut self.history),
            self.turn.clone(),
        )
        .await;
        self.history = history;
        outcome
    }

    /// Answers a misspelt command, which is not sent to the model.
    async fn unknown_command(&mut self, why: String) -> TurnOutcome {
        let answer = BuiltinCommand {
            name: BuiltinName::PreparedAnswer,
            arguments: why,
        };
        match self.run_builtin(&answer).await {
            TurnOutcome::Ended => TurnOutcome::NotDone,
            outcome => outcome,
        }
    }

    async fn run_builtin(&mut self, command: &BuiltinCommand) -> TurnOutcome {
        // A built-in command is not a message of the history, but the event needs an id.
        let message = self.turn.new_message_id();
        self.report_message_id(message).await;
        let cx = BuiltinContext {
            history: &mut self.history,
            record: &mut self.record,
            turn: &self.turn,
        };
        builtin::carry_out(command, cx).await
    }

    /// Continues the turn of a prompt that was sent before, or returns its outcome if it has ended.
    async fn resume(&mut self, known_as: MessageId, watcher: &mut ConfigWatcher) -> TurnOutcome {
        let mut message = new_prompt_message(&self.turn);
        // A prompt that has no answer yet is answered without a note.
        let is_unanswered = self.history.messages.last().is_some_and(Message::is_prompt);
        let position = if is_unanswered {
            &known_as
        } else {
            &message.id
        };
        self.report_repeated_prompt(position.clone(), known_as)
            .await;
        if let Some(outcome) = next::last_outcome(&self.history) {
            return outcome;
        }
        refresh_project(watcher, &mut self.turn, &self.choice).await;
        let once = restore_command_choices(&self.history, &mut self.turn);
        message.role = new_prompt_message(&self.turn).role;
        if !is_unanswered {
            let note = remind::note(prompts::reminder::HOST_LOST);
            message.parts.push(self.turn.new_part(note));
            self.turn.session.recorder.store_message(&message).await;
            self.history.messages.push(message);
        }
        self.run_turn(once.as_ref()).await
    }

    async fn run_message(
        &mut self,
        content: Vec<Content>,
        watcher: &mut ConfigWatcher,
    ) -> TurnOutcome {
        refresh_project(watcher, &mut self.turn, &self.choice).await;
        if let Some(Content::Text(typed)) = content.first()
            && let Some(why) = watcher.commands().describe_misspelt_now(&typed.text)
        {
            return self.unknown_command(why).await;
        }
        let resumed = self.history.messages.iter().any(Message::is_prompt);
        let Some(content) =
            hooks::run_on_prompt(&self.turn, (&self.record, resumed), content).await
        else {
            let message = self.turn.new_message_id();
            self.report_message_id(message).await;
            return TurnOutcome::Ended;
        };
        // The writes of background jobs so far precede this prompt.
        late_changes::collect(&mut self.history, &self.turn.session).await;
        late_changes::log_changes_of_deleted_steps(&mut self.record, &self.turn.session);
        // The next prompt deletes undone turns.
        revert::delete_undone_turns(
            &mut self.history,
            &mut self.record,
            &self.turn.session.recorder,
        )
        .await;
        let (message, once) = self.build_message(content, watcher).await;
        self.record.updated = message.created;
        // Set immediately, because the session is in the list while the turn runs.
        let title = if self.record.title.is_none() {
            title::from_prompt(&message)
        } else {
            None
        };
        if title.is_some() {
            self.record.title.clone_from(&title);
        }
        self.turn.session.recorder.session(&self.record).await;
        self.turn.session.recorder.store_message(&message).await;
        if let Some(command) = command_of(&message) {
            self.turn
                .session
                .recorder
                .events
                .command(command, &message.id);
        }
        self.report_message_id(message.id.clone()).await;
        if title.is_some() {
            let updated = self.record.updated;
            let info = Event::Info { title, updated };
            self.turn.event_sender.event(info).await;
        }
        self.history.messages.push(message);
        self.run_turn(once.as_ref()).await
    }

    /// Returns the message of a prompt as the model reads it, with the texts and files that commands
    /// and mentions insert. Also returns the sender of the choices that a command makes for this turn.
    async fn build_message(
        &mut self,
        content: Vec<Content>,
        watcher: &ConfigWatcher,
    ) -> (Message, Option<watch::Sender<SessionChoices>>) {
        let turn = &mut self.turn;
        let mut draft =
            PromptDraft::new(new_prompt_message(turn), &self.record, &self.history, turn);
        let content = watcher
            .commands()
            .expand_typed(content, &mut draft, turn)
            .await;
        let content = mention::read(content, &mut draft, turn).await;
        let content = mention::fit_attachments(content, turn).await;
        let mut content =
            if turn.session.depth < turn.project.context.settings.general.subagent_depth {
                mention::named(content, draft.user_text.as_deref(), &turn.project.agents)
            } else {
                content
            };
        if self.steered {
            remind::add_steering_note(&mut content);
        }
        let once = draft.choices_override.take();
        // A command may have chosen another agent than the draft's.
        let Message { role, .. } = new_prompt_message(turn);
        let message = Message {
            role,
            ..draft.into_message(turn, content)
        };
        (message, once)
    }
}

/// Returns the name and the arguments of the command that a prompt was; `None` for other prompts.
fn command_of(message: &Message) -> Option<(&str, &str)> {
    match &message.parts.first()?.content {
        Content::Text(typed) if typed.ignored => command::typed(typed.text.trim_start()),
        _ => None,
    }
}

/// Reloads settings, plugins and MCP servers before a turn.
async fn refresh_project(
    watcher: &mut ConfigWatcher,
    turn: &mut TurnContext,
    choice: &watch::Sender<SessionChoices>,
) {
    watcher.refresh(turn, choice).await;
    let added = hooks::load_contributions(turn).await;
    watcher.apply_contributions(added, turn, choice).await;
    let servers = &turn.session.common.servers;
    let notices = servers
        .prepare_turn(&turn.project.context.settings.mcp, &turn.cancelled)
        .await;
    watcher.report_servers(notices, turn).await;
    servers.offer_logins(&turn.event_sender);
}

/// Restores the agent that a command had chosen for its turn, if it differs from the session's choice.
/// Returns the sender of the choices for this turn.
fn restore_command_choices(
    history: &History,
    turn: &mut TurnContext,
) -> Option<watch::Sender<SessionChoices>> {
    let prompt = next::current_turn(history).first()?;
    let user = prompt.user()?;
    let named = command::typed(prompt.visible_text().trim()).is_some();
    let known = turn.project.agents.get(&user.agent).is_some();
    let chosen = turn.choice.borrow().clone();
    if !named || !known || chosen.agent == user.agent {
        return None;
    }
    let (once, choice) = watch::channel(SessionChoices {
        agent: user.agent.clone(),
        model: Some(user.model.clone()),
        ..chosen
    });
    turn.choice = choice;
    Some(once)
}

/// The position of a prompt that is already in the history. The client lost its connection, sends the
/// prompt again, and does not know how far it came.
#[derive(Debug, PartialEq)]
enum EarlierPrompt {
    Last,
    /// Other prompts follow it: its turn has ended.
    Earlier,
}

/// Finds a prompt with the same idempotency key in the history. Returns its position, and the id of its
/// message.
fn find_earlier_prompt(
    history: &History,
    record: &Record,
    content: &[Content],
) -> Option<(EarlierPrompt, MessageId)> {
    let key = idempotency_key(content)?;
    let is = |message: &Message| {
        message
            .options()
            .and_then(|options| options.idempotency_key.as_deref())
            == Some(key)
    };
    let (index, message) = history
        .messages
        .iter()
        .rev()
        .filter(|message| message.is_prompt())
        .enumerate()
        .find(|(_, message)| is(message))?;
    // An undone turn is not continued.
    let undone = visible(&history.messages, &record.undone) < history.messages.len();
    let position = if index == 0 && !undone {
        EarlierPrompt::Last
    } else {
        EarlierPrompt::Earlier
    };
    Some((position, message.id.clone()))
}

/// Returns a new message of a prompt, without content, for the chosen agent and model.
fn new_prompt_message(turn: &TurnContext) -> Message {
    let chosen = turn.choice.borrow().agent.clone();
    let model = match turn.project.agents.get(&chosen) {
        Some(agent) => step_context::chosen_model(turn, &agent),
        None => turn.project.models.default_model(),
    };
    Message {
        id: turn.new_message_id(),
        created: turn.now(),
        role: Role::User(User {
            agent: chosen,
            model,
        }),
        parts: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::environment::Timestamp;
    use base::id::{PartId, SessionId};
    use store::UndoEntry;
    use transcript::{ModelRef, Part, PromptOptions, Text};

    fn parts(text: &str, key: Option<&str>) -> Vec<Content> {
        let options = PromptOptions {
            idempotency_key: key.map(str::to_owned),
            ..PromptOptions::default()
        };
        vec![
            Content::Text(Text {
                text: text.into(),
                ..Text::default()
            }),
            Content::PromptOptions(options),
        ]
    }

    #[test]
    fn prompt_sent_again_is_recognised_by_its_key() {
        let prompt = |(number, key): (usize, &Option<&str>)| Message {
            id: MessageId::new(format!("msg_{number}")),
            created: Timestamp(1),
            role: Role::User(User {
                agent: "build".into(),
                model: ModelRef {
                    provider: "p".into(),
                    model: "m".into(),
                    effort: None,
                },
            }),
            parts: parts("Go on.", *key)
                .into_iter()
                .map(|content| Part {
                    id: PartId::new(format!("prt_{number}")),
                    content,
                })
                .collect(),
        };
        /// The stored keys, the first undone prompt, the new key, and the result.
        type Row<'a> = (
            &'a [Option<&'a str>],
            Option<usize>,
            Option<&'a str>,
            Option<EarlierPrompt>,
        );
        let table: [Row<'_>; 7] = [
            (
                &[Some("a"), Some("b")],
                None,
                Some("b"),
                Some(EarlierPrompt::Last),
            ),
            (
                &[Some("a"), Some("b")],
                None,
                Some("a"),
                Some(EarlierPrompt::Earlier),
            ),
            (&[Some("a"), Some("b")], None, Some("c"), None),
            // The same text without a key is a new prompt.
            (&[None], None, None, None),
            (
                &[Some("a"), None],
                None,
                Some("a"),
                Some(EarlierPrompt::Earlier),
            ),
            (
                &[Some("a"), Some("b")],
                Some(1),
                Some("b"),
                Some(EarlierPrompt::Earlier),
            ),
            (&[], None, Some("a"), None),
        ];
        for (keys, undone, key, wanted) in table {
            let messages = keys.iter().enumerate().map(prompt).collect();
            let history = History {
                messages,
                ..History::default()
            };
            let mut record = Record::new(SessionId::new("ses_1"), "/w".into(), Timestamp(1));
            let from = |number| MessageId::new(format!("msg_{number}"));
            let entry = |number| UndoEntry {
                from: from(number),
                files: vec![],
                skipped_files: vec![],
                is_complete: true,
                is_logged: true,
            };
            record.undone.extend(undone.map(entry));
            let found = find_earlier_prompt(&history, &record, &parts("Go on.", key));
            let is_same = |id: &MessageId| {
                let at = keys.iter().position(|known| *known == key);
                at.is_some_and(|at| *id == from(at))
            };
            assert!(
                found.as_ref().is_none_or(|(_, id)| is_same(id)),
                "{found:?}"
            );
            assert_eq!(
                found.map(|(position, _)| position),
                wanted,
                "{keys:?} {undone:?} {key:?}"
            );
        }
    }
}
