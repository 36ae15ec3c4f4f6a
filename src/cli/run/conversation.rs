//! A conversation at a terminal: prompts that the user types, one after the other, each with its
//! answer. Commands that act on the conversation go to the session, as in an editor; those that an
//! editor has menus for are carried out here.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use protocol::acp::{NewSession, v1};
use protocol::rpc::{CallError, Peer};
use tokio::signal::unix::Signal;

use acp_server::options::MODEL;
use base::id::SessionId;
use base::text;
use base::worktree::Worktree;
use export::conversation;
use session::Sessions;
use session::handle::LOAD_AGAIN;
use store::StoredSession;

use super::client::Client;
use super::completion::PromptNames;
use super::history::PromptHistory;
use super::{
    Args, UsageError, check_words, choose, commands, find_local_models, meta, prompt, send, set,
};
use crate::cli::in_process::server_error;
use crate::cli::project_context::ProjectContext;
use crate::cli::terminal::line_aids::LineAids;

/// The exit code of a conversation that an interrupt ends.
const INTERRUPTED: u8 = 130;

/// The line below the session's list of commands.
const OWN_COMMANDS: &str = "In this conversation, /model, /mode and /effort show or choose a value, /new begins another session, \
                            and /exit ends.";

/// The commands of a conversation, each with its names.
const COMMANDS: [(&[&str], ConversationCommand); 6] = [
    (&["exit", "quit", "q"], ConversationCommand::End),
    (
        &["new", "reset"],
        ConversationCommand::New {
            clears_screen: false,
        },
    ),
    (
        &["clear"],
        ConversationCommand::New {
            clears_screen: true,
        },
    ),
    (&["model", "models"], ConversationCommand::Choose("model")),
    (
        &["mode", "modes", "agent", "agents"],
        ConversationCommand::Choose("mode"),
    ),
    (
        &["effort", "variant"],
        ConversationCommand::Choose("effort"),
    ),
];

/// A command that is carried out here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConversationCommand {
    End,
    /// Begins another session.
    New {
        /// True if it empties the window.
        clears_screen: bool,
    },
    /// Chooses a value of a config option, or shows the present one.
    Choose(&'static str),
}

/// The effect of a line that the user has entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEffect {
    End,
    AnotherSession,
    /// A prompt was sent.
    Prompt,
    None,
}

/// The conversation, and the session that has it.
pub(super) struct Conversation<'a> {
    pub(super) args: &'a Args,
    pub(super) peer: &'a Peer,
    pub(super) client: &'a Client,
    pub(super) shared: &'a Sessions,
    pub(super) session: v1::SessionId,
    pub(super) options: Vec<v1::SessionConfigOption>,
    pub(super) directory: PathBuf,
    /// The conversation that is continued, until its end was shown.
    pub(super) earlier: Option<StoredSession>,
    /// The content blocks of the first prompt, if the command line has one.
    pub(super) first: Option<Vec<v1::ContentBlock>>,
    /// The files to attach to the first prompt that is typed.
    pub(super) files: Vec<PathBuf>,
    /// True if the last typed line has several rows that were pasted or recalled.
    pub(super) has_pasted_rows: Arc<AtomicBool>,
    pub(super) interrupts: Signal,
}

impl Conversation<'_> {
    /// Holds the conversation until the user ends it. Returns the exit code.
    pub(super) async fn hold(mut self) -> anyhow::Result<u8> {
        self.client.hint(
            "Ctrl-D ends the conversation, Ctrl-C stops an answer; /help lists the commands.",
        );
        if let Some(earlier) = self.earlier.take() {
            self.show_earlier(&earlier);
        }
        let usual_mode = self.usual_mode();
        let worktree = Worktree::find(
            &self.directory,
            &[],
            self.shared.environment.home.as_deref(),
        );
        let mut history = PromptHistory::read(&worktree.root, &self.shared.environment);
        let mut has_prompts = false;
        let mut effect = LineEffect::None;
        if let Some(blocks) = self.first.take() {
            let text = match blocks.first() {
                Some(v1::ContentBlock::Text(prompt)) => prompt.text.clone(),
                _ => String::new(),
            };
            self.client.show_prompt(&text);
            effect = self.enter(&text, Some(blocks), &mut history).await?;
        }
        let code = loop {
            match effect {
                LineEffect::End => break 0,
                LineEffect::AnotherSession => has_prompts = false,
                LineEffect::Prompt => has_prompts = true,
                LineEffect::None => {}
            }
            self.client.end_turn();
            // One that arrived with the end of the answer was meant for that.
            while self.interrupts.recv().now_or_never().is_some() {}
            let aids = self.aids(&history);
            let mode = current_value("mode", &self.options).filter(|mode| *mode != usual_mode);
            let line = tokio::select! {
                line = self.client.next_prompt(mode, aids) => line,
                Some(()) = self.interrupts.recv() => {
                    self.client.screen.interrupt();
                    break INTERRUPTED;
                }
            };
            let Some(line) = line else { break 0 };
            let text = line.trim_end_matches(['\n', '\r']);
            effect = self.enter(text, None, &mut history).await?;
        };
        if has_prompts && self.is_lasting().await {
            let command = self.client.continuing_command(&self.session);
            self.client
                .hint(&format!("`{command}` continues this conversation."));
        }
        Ok(code)
    }

    /// Carries out a line: a command, or a prompt. `blocks` are those of the first prompt, which were
    /// checked.
    async fn enter(
        &mut self,
        text: &str,
        blocks: Option<Vec<v1::ContentBlock>>,
        history: &mut PromptHistory,
    ) -> anyhow::Result<LineEffect> {
        history.remember(text);
        let command = self.command(text);
        if blocks.is_some() && command.is_some() {
            self.files.clone_from(&self.args.files);
        }
        match command {
            Some((ConversationCommand::End, _)) => Ok(LineEffect::End),
            Some((ConversationCommand::New { clears_screen }, _)) => {
                if clears_screen {
                    self.client.screen.clear();
                }
                self.begin_again().await?;
                Ok(LineEffect::AnotherSession)
            }
            Some((ConversationCommand::Choose(option), value)) => {
                self.choose(option, value).await?;
                Ok(LineEffect::None)
            }
            None => self.prompt(text, blocks, history).await,
        }
    }

    /// Returns whether the session can be continued later: it is stored, and not deleted when it is
    /// closed.
    async fn is_lasting(&self) -> bool {
        let id = SessionId::new(self.session.0.to_string());
        let stored = self.shared.store.peek(&id).await;
        stored.is_ok_and(|stored| stored.is_lasting())
    }

    /// Shows the title, the model and the end of the conversation that is continued.
    fn show_earlier(&self, earlier: &StoredSession) {
        let title = earlier.record.title.as_deref().unwrap_or("(no title)");
        let model = current_value(MODEL, &self.options).unwrap_or_default();
        self.client.hint(&format!(
            "continues \"{}\", last used {}, with {}",
            text::escaped(&text::title(title)),
            conversation::minute(earlier.record.updated),
            text::escaped(model)
        ));
        if let Some((prompt, answer)) = conversation::last_exchange(earlier) {
            self.client
                .show_last_exchange(&self.session, prompt.trim(), &answer);
        }
    }

    /// Returns the mode in which a session of the project begins.
    fn usual_mode(&self) -> String {
        let here = ProjectContext::read(&self.directory, &self.shared.environment);
        here.map_or_else(|_| String::new(), |here| here.agents.default().name.clone())
    }

    /// Returns the reason why a line is not sent: it is a single word that looks like a command, and
    /// there is no such command.
    fn unknown_command(&self, line: &str) -> Result<Option<String>, UsageError> {
        let here = self.project_context()?;
        let own = COMMANDS.iter().flat_map(|(names, _)| names.iter());
        let mut known: Vec<String> = own.map(|name| (*name).to_owned()).collect();
        known.extend(self.client.commands());
        let may_be_of_server = here.loaded.settings.mcp.iter().any(|server| server.enabled);
        Ok(commands(self.args, &here, None).unknown(line, &known, may_be_of_server))
    }

    /// Returns the aids for typing the next prompt.
    fn aids(&mut self, history: &PromptHistory) -> LineAids {
        self.update_options();
        let mut commands = self.client.commands();
        let own = COMMANDS.iter().filter_map(|(names, _)| names.first());
        commands.extend(own.map(|name| (*name).to_owned()));
        commands.push("help".to_owned());
        let values = COMMANDS
            .iter()
            .filter_map(|(names, command)| match command {
                ConversationCommand::Choose(option) => {
                    let values = values_of(option, &self.options).into_iter();
                    Some((*names, values.map(str::to_owned).collect()))
                }
                ConversationCommand::End | ConversationCommand::New { .. } => None,
            });
        let here = ProjectContext::read(&self.directory, &self.shared.environment).ok();
        let agents = here.iter().flat_map(|here| here.agents.all());
        let agents = agents.filter(|agent| agent.is_subagent() && !agent.hidden);
        let names = PromptNames {
            agents: agents.map(|agent| agent.name.clone()).collect(),
            commands,
            values: values.collect(),
            directory: self.directory.clone(),
            home: self.shared.environment.home.clone(),
        };
        LineAids {
            earlier: history.prompts(),
            has_pasted_rows: self.has_pasted_rows.clone(),
            completer: Arc::new(move |before| names.complete(before)),
        }
    }

    /// Takes over the config options that the session has changed.
    fn update_options(&mut self) {
        if let Some(options) = self.client.take_options() {
            self.options = options;
        }
    }

    /// Returns the command that a line is, with its argument. A command of the user has precedence.
    fn command<'t>(&self, text: &'t str) -> Option<(ConversationCommand, &'t str)> {
        let (command, name, value) = typed_command(text)?;
        let here = self.project_context();
        // With unreadable settings, the user can still leave.
        let is_the_users = here.is_ok_and(|here| {
            let known = commands(self.args, &here, None).list();
            known.iter().any(|known| known.name == name)
        });
        (!is_the_users).then_some((command, value))
    }

    /// Reads the settings of the project.
    ///
    /// # Errors
    /// [`UsageError`] if they cannot be read: the user can correct them and go on.
    fn project_context(&self) -> Result<ProjectContext, UsageError> {
        ProjectContext::read(&self.directory, &self.shared.environment)
            .map_err(|e| UsageError(format!("{e:#}")))
    }

    /// Returns whether a prompt is a command, which takes no files. Other prompts that begin with a
    /// slash begin with a path.
    fn is_session_command(&self, text: &str) -> anyhow::Result<bool> {
        let Some(typed) = text.strip_prefix('/') else {
            return Ok(false);
        };
        let name = typed.split(char::is_whitespace).next().unwrap_or_default();
        let here = self.project_context()?;
        let listed = commands(self.args, &here, None).list();
        let is_listed = listed.iter().any(|command| command.name == name);
        let is_help = matches!(name, "help" | "?");
        Ok(is_help || is_listed || self.client.commands().iter().any(|known| known == name))
    }

    /// Sends a prompt, unless it has a typo. `blocks` are those of the first prompt.
    async fn prompt(
        &mut self,
        text: &str,
        blocks: Option<Vec<v1::ContentBlock>>,
        history: &mut PromptHistory,
    ) -> anyhow::Result<LineEffect> {
        let unknown = match self.unknown_command(text) {
            Ok(unknown) => unknown,
            Err(unreadable) => Some(unreadable.to_string()),
        };
        if let Some(why) = unknown {
            if blocks.is_some() {
                self.files.clone_from(&self.args.files);
            }
            self.client.error(&why);
            return Ok(LineEffect::None);
        }
        let blocks = match blocks {
            Some(checked) => Ok(checked),
            None => self.typed_blocks(text),
        };
        match blocks {
            Ok(blocks) => {
                history.store(text);
                self.answer(blocks).await?;
                if matches!(text.trim(), "/help" | "/?") {
                    self.client.hint(OWN_COMMANDS);
                }
                Ok(LineEffect::Prompt)
            }
            Err(wrong) if wrong.is::<UsageError>() => {
                self.client.error(&format!("{wrong:#}"));
                Ok(LineEffect::None)
            }
            Err(other) => Err(other),
        }
    }

    /// Returns the content blocks of a typed prompt, with the files that wait for one.
    ///
    /// # Errors
    /// [`UsageError`] if the prompt has a typo. The files wait for the next one then.
    fn typed_blocks(&mut self, text: &str) -> anyhow::Result<Vec<v1::ContentBlock>> {
        let is_pasted = text.contains('\n') && self.has_pasted_rows.load(Ordering::Relaxed);
        // The names after `@` in a pasted text are not checked.
        let words = if is_pasted { "" } else { text };
        let environment = &self.shared.environment;
        check_words(self.args, words, text, &self.directory, None, environment)?;
        let is_command = self.is_session_command(text)?;
        let files: &[PathBuf] = if is_command { &[] } else { &self.files };
        let blocks = prompt::blocks(None, &[text.to_owned()], files, self.args.quiet)?;
        if !is_command {
            self.files.clear();
        }
        Ok(blocks)
    }

    /// Sends a prompt and shows its answer. A failed turn does not end the conversation.
    async fn answer(&mut self, blocks: Vec<v1::ContentBlock>) -> anyhow::Result<()> {
        self.client.begin_turn();
        let meta = meta(self.args, None);
        let prompt = (blocks, meta);
        let interrupts = &mut self.interrupts;
        let response = send(self.peer, self.client, &self.session, interrupts, prompt).await;
        self.client.screen.end_line();
        match response {
            Ok(response) => self.client.report_end(response.stop_reason),
            Err(CallError::Refused(failure)) => {
                self.client.end_turn();
                let failure = server_error(CallError::Refused(failure)).to_string();
                // The advice is for an editor.
                let failure = match failure.strip_suffix(LOAD_AGAIN) {
                    Some(taken) => format!(
                        "{taken}; /new begins another conversation, and `adjutant chat -s {} --take-over` takes this one back",
                        self.session
                    ),
                    None => failure,
                };
                self.client.error(&failure);
            }
            Err(broken) => return Err(server_error(broken)),
        }
        Ok(())
    }

    /// Begins another session in the same directory.
    async fn begin_again(&mut self) -> anyhow::Result<()> {
        let close = v1::CloseSessionRequest::new(self.session.clone());
        self.peer.call(&close, None).await.map_err(server_error)?;
        let new = NewSession(v1::NewSessionRequest::new(self.directory.clone()));
        let opened = self.peer.call(&new, None).await.map_err(server_error)?;
        self.session = opened.response.session_id;
        self.options = opened.response.config_options.unwrap_or_default();
        if let Some(chosen) = choose(self.args, self.peer, &self.session).await? {
            self.options = chosen;
        }
        self.client
            .hint("A new conversation begins; the one before it is saved.");
        self.client.introduce(&self.session, &self.options);
        Ok(())
    }

    /// Sets a config option; without a value, shows the present one.
    async fn choose(&mut self, option: &'static str, value: &str) -> anyhow::Result<()> {
        self.update_options();
        if value.is_empty() {
            self.client
                .screen
                .print_note(&described(option, &self.options));
            return Ok(());
        }
        let is_model = option == "model";
        let found = if is_model {
            find_local_models(Some(value), &self.directory, None, self.shared).await
        } else {
            Ok(())
        };
        let set = match found {
            Ok(()) => set(self.peer, &self.session, option, value).await,
            Err(wrong) => Err(wrong),
        };
        match set {
            Ok(options) => {
                self.options = options;
                let current = current_value(option, &self.options).unwrap_or(value);
                self.client
                    .screen
                    .print_note(&format!("The {option} is now {current}."));
            }
            Err(wrong) if wrong.is::<UsageError>() => self.client.error(&format!("{wrong:#}")),
            Err(other) => return Err(other),
        }
        Ok(())
    }
}

/// Returns whether a text is a command that is carried out here.
pub(super) fn is_own_command(text: &str) -> bool {
    typed_command(text).is_some()
}

/// Returns the command that a line is, with its name and its argument of at most one word.
fn typed_command(text: &str) -> Option<(ConversationCommand, &str, &str)> {
    let (name, value) = text.strip_prefix('/').map(|rest| {
        let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        (name, value.trim())
    })?;
    let (_, command) = COMMANDS.iter().find(|(names, _)| names.contains(&name))?;
    let takes_value = matches!(command, ConversationCommand::Choose(_));
    let is_whole = value.is_empty() || takes_value && !value.contains(char::is_whitespace);
    is_whole.then_some((*command, name, value))
}

/// Returns the values of a config option; none if it does not exist.
fn values_of<'o>(option: &str, options: &'o [v1::SessionConfigOption]) -> Vec<&'o str> {
    let known = options.iter().find(|known| *known.id.0 == *option);
    let Some(v1::SessionConfigKind::Select(choice)) = known.map(|known| &known.kind) else {
        return Vec::new();
    };
    match &choice.options {
        v1::SessionConfigSelectOptions::Ungrouped(all) => {
            all.iter().map(|value| &*value.value.0).collect()
        }
        v1::SessionConfigSelectOptions::Grouped(groups) => {
            let all = groups.iter().flat_map(|group| &group.options);
            all.map(|value| &*value.value.0).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the present value of a config option.
fn current_value<'o>(option: &str, options: &'o [v1::SessionConfigOption]) -> Option<&'o str> {
    let known = options.iter().find(|known| *known.id.0 == *option)?;
    match &known.kind {
        v1::SessionConfigKind::Select(choice) => Some(&choice.current_value.0),
        _ => None,
    }
}

/// Describes a config option: its value, and the way to another one.
fn described(option: &str, options: &[v1::SessionConfigOption]) -> String {
    /// The most values in one line, and in a list.
    const MAX_IN_LINE: usize = 8;
    const MAX_LISTED: usize = 40;
    let Some(current) = current_value(option, options) else {
        return format!("There is no {option} to choose here.");
    };
    let values = values_of(option, options);
    let others = match values.len() {
        0..=MAX_IN_LINE => format!(" {}", values.join(", ")),
        number => {
            let listed = values.iter().take(MAX_LISTED);
            let mut lines: String = listed.map(|value| format!("\n  {value}")).collect();
            if number > MAX_LISTED {
                lines += &format!(
                    "\n  … {} more; Tab after /{option} completes a name",
                    number - MAX_LISTED
                );
            }
            lines
        }
    };
    format!("The {option} is {current}. /{option} NAME chooses another one:{others}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_conversation_are_recognised() {
        use ConversationCommand::{Choose, End, New};
        let table = [
            ("/exit", Some((End, "exit", ""))),
            ("/q ", Some((End, "q", ""))),
            (
                "/new",
                Some((
                    New {
                        clears_screen: false,
                    },
                    "new",
                    "",
                )),
            ),
            (
                "/clear",
                Some((
                    New {
                        clears_screen: true,
                    },
                    "clear",
                    "",
                )),
            ),
            ("/new feature", None),
            ("/model", Some((Choose("model"), "model", ""))),
            ("/model a/b", Some((Choose("model"), "model", "a/b"))),
            ("/model the data", None),
            ("/agent plan", Some((Choose("mode"), "agent", "plan"))),
            ("/undo", None),
            (" /exit", None),
            ("exit", None),
        ];
        for (text, expected) in table {
            assert_eq!(typed_command(text), expected, "{text}");
        }
    }
}
