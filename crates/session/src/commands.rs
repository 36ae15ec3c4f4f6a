//! The commands of a session. [`Commands`] lists them, recognizes the built-in ones
//! ([`Commands::parse_builtin`]), expands the others into the content of a prompt
//! (`Commands::expand_typed`), and describes misspelt ones. The expanded ones are templates of the
//! settings, skills, and prompts of MCP servers.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use super::builtin::{BuiltinCommand, BuiltinName, FOREIGN_COMMANDS, ForeignCommand, HELP};
use super::mention;
use crate::turn::insert::{self, PromptDraft};
use crate::turn::models::Models;
use crate::turn::step_context::resolve_model;
use crate::turn::{SessionChoices, TurnContext, hooks};
use base::text;
use config::agent_rules::reachable_rules;
use config::script::{ScriptEntry, ScriptKind};
use config::settings::{self, Settings};
use mcp::McpServers;
use permission::account::AccountAccess;
use permission::rule::derive;
use permission::{Action, Rules, find_more_permissive};
use project::agent::{Agent, Agents, Mode};
use project::command::{self, ExpandedTemplate};
use project::skill::{Skill, Skills};
use prompts::CONTENTS_OF;
use transcript::{Content, ModelRef, Text};

/// The maximum number of files that a command may attach.
const MAX_FILES: usize = 20;

/// The commands of a session: those of the settings, the built-in ones, and skills. If names clash,
/// a command of the settings takes precedence over a built-in one, and a built-in one over a skill,
/// unless it gives way to skills ([`BuiltinName::can_be_skill`]).
#[derive(Debug, Clone, Default)]
pub struct Commands {
    commands: Vec<settings::CommandEntry>,
    skills: Arc<Skills>,
    /// The names of the skills that are commands: rules allow them, and no command that takes
    /// precedence has the name.
    skill_commands: HashSet<String>,
    /// The built-in commands that are not listed, because there is nothing for them to do. They are
    /// carried out all the same.
    unlisted: Vec<BuiltinName>,
    /// True if there are plugins, which may add commands when the first prompt loads them.
    plugins_may_add: bool,
}

/// The conditions under which some built-in commands are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommandConditions {
    /// True if there is a mode that plans.
    pub has_planner: bool,
    /// True if adjutant has stored keys or logins of providers.
    pub has_logins: bool,
}

impl CommandConditions {
    /// Returns the built-in commands that have nothing to do in this project.
    fn unlisted(self, settings: &Settings, skills: &Skills) -> Vec<BuiltinName> {
        let has_servers = settings.mcp.iter().any(|server| server.enabled);
        [
            (BuiltinName::Plan, self.has_planner),
            (BuiltinName::Logout, self.has_logins),
            (BuiltinName::Mcp, has_servers),
            (BuiltinName::Skills, skills.all().next().is_some()),
        ]
        .into_iter()
        .filter(|(_, applies)| !applies)
        .map(|(name, _)| name)
        .collect()
    }
}

impl Commands {
    /// Returns the commands of the settings, of the program, and of the skills that `rules` do
    /// not deny.
    pub fn new(
        settings: &Settings,
        skills: &Arc<Skills>,
        rules: &Rules,
        uses: CommandConditions,
    ) -> Self {
        let commands = command::list(settings);
        let is_plugin = |script: &ScriptEntry| script.kind == ScriptKind::Plugin;
        let orders = BuiltinName::ALL
            .iter()
            .filter(|(word, ..)| !word.can_be_skill())
            .map(|(_, name, ..)| *name);
        let taken: HashSet<&str> = commands
            .iter()
            .map(|command| &*command.name)
            .chain(orders)
            .collect();
        let is_free = |name: &str| {
            !taken.contains(name) && !name.contains(|c: char| c.is_whitespace() || c == '/')
        };
        let allowed = skills.allowed(rules).map(|skill| &*skill.name);
        let skill_commands = allowed
            .filter(|name| is_free(name))
            .map(str::to_owned)
            .collect();
        Self {
            commands,
            skills: skills.clone(),
            skill_commands,
            unlisted: uses.unlisted(settings, skills),
            plugins_may_add: settings.scripts.iter().any(is_plugin),
        }
    }

    /// Returns the commands to show to the user, in order.
    pub fn list(&self) -> Vec<events::CommandInfo> {
        self.list_without(&self.unlisted)
    }

    fn list_without(&self, unlisted: &[BuiltinName]) -> Vec<events::CommandInfo> {
        let describe = |command: &settings::CommandEntry| events::CommandInfo {
            name: command.name.clone(),
            description: command.description.clone().unwrap_or_default(),
            hint: command.hint.clone().or_else(|| hint(&command.template)),
        };
        let order = |(_, name, description, hint): &(BuiltinName, &str, &str, Option<&str>)| {
            events::CommandInfo {
                name: (*name).to_owned(),
                description: (*description).to_owned(),
                hint: hint.map(str::to_owned),
            }
        };
        let orders = BuiltinName::ALL
            .iter()
            .filter(|(word, name, ..)| !unlisted.contains(word) && !self.is_replaced(name));
        let skill = |skill: &Skill| events::CommandInfo {
            name: skill.name.clone(),
            description: skill
                .description
                .as_deref()
                .map_or_else(|| "A skill".to_owned(), text::title),
            hint: None,
        };
        let skills = self
            .skills
            .all()
            .filter(|skill| self.skill_commands.contains(&skill.name));
        self.commands
            .iter()
            .map(describe)
            .chain(orders.map(order))
            .chain(skills.map(skill))
            .collect()
    }

    /// Returns the commands to show, and the prompts of MCP servers with unused names. `/logout` is
    /// missing if the user may not change the account's keys.
    pub fn with_prompts(
        &self,
        servers: &McpServers,
        account: &AccountAccess,
    ) -> Vec<events::CommandInfo> {
        let mut unlisted = self.unlisted.clone();
        if servers.has_client_servers() {
            unlisted.retain(|word| *word != BuiltinName::Mcp);
        }
        if !account.is_allowed() {
            unlisted.push(BuiltinName::Logout);
        }
        let mut all = self.list_without(&unlisted);
        let taken: HashSet<String> = all.iter().map(|known| known.name.clone()).collect();
        all.extend(
            servers
                .prompts()
                .into_iter()
                .filter(|prompt| !taken.contains(&prompt.name)),
        );
        all
    }

    /// True if a command or a skill of the user has the name of a built-in command and
    /// replaces it.
    fn is_replaced(&self, name: &str) -> bool {
        self.find(name).is_some() || self.skill_commands.contains(name)
    }

    /// Returns the skill that a command loads.
    fn skill(&self, name: &str) -> Option<&Skill> {
        self.skills
            .get(name)
            .filter(|skill| self.skill_commands.contains(&skill.name))
    }

    /// Parses the built-in command, or the command of another program, at the beginning of a text;
    /// `None` if the text is none. `offered` returns the commands that the client lists, for
    /// `/help`.
    pub fn parse_builtin(
        &self,
        text: &str,
        offered: impl FnOnce() -> Vec<events::CommandInfo>,
    ) -> Option<BuiltinCommand> {
        let (name, rest) = command::typed(text.trim())?;
        if self.is_replaced(name) {
            return None;
        }
        let known = BuiltinName::ALL
            .iter()
            .find(|(_, known, ..)| *known == name);
        if let Some((word, ..)) = known {
            return Some(BuiltinCommand {
                name: *word,
                arguments: rest.to_owned(),
            });
        }
        // A word that is followed by others begins a prompt: `/help me with the tests`.
        let takes_word = find_foreign(name).is_some_and(|command| command.takes_word);
        let is_argument = takes_word && !rest.contains(char::is_whitespace);
        if !rest.is_empty() && !is_argument {
            return None;
        }
        Some(BuiltinCommand {
            name: BuiltinName::PreparedAnswer,
            arguments: answer_foreign(name, offered)?,
        })
    }

    /// Describes a misspelt command before the turn of its prompt, as `describe_misspelt_now` does;
    /// `None` if plugins may add the command when the turn begins.
    pub fn describe_misspelt(&self, text: &str) -> Option<String> {
        if self.plugins_may_add {
            return None;
        }
        self.describe_misspelt_now(text)
    }

    /// Describes a prompt of a single word that looks like a command and is none: in a conversation
    /// at a terminal, it is a typo. `others` are the names of further commands. `None` if plugins
    /// or MCP servers (`may_be_more`) may add the command, unless another one resembles it.
    pub fn unknown(&self, text: &str, others: &[String], may_be_more: bool) -> Option<String> {
        let (name, rest) = command::typed(text.trim_end())?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !rest.is_empty() || name.is_empty() || !name.chars().all(is_word) {
            return None;
        }
        let listed = self.list_without(&[]);
        let mut known: Vec<&str> = listed.iter().map(|command| &*command.name).collect();
        known.extend(BuiltinName::ALL.iter().map(|(_, name, ..)| *name));
        known.extend(others.iter().map(String::as_str));
        known.extend(HELP);
        let is_known = known.contains(&name) || find_foreign(name).is_some();
        if is_known || Path::new("/").join(name).exists() {
            return None;
        }
        let advice = match text::nearest(name, known) {
            Some(near) => format!("Did you mean /{near}?"),
            None if may_be_more || self.plugins_may_add => return None,
            None => "/help lists the commands.".to_owned(),
        };
        Some(format!(
            "There is no command /{name}. {advice} With a space before it, it is sent as text."
        ))
    }

    /// Describes a misspelt command at the beginning of a prompt, with the command that is probably
    /// meant. `None` for any other text: a path, a word without a similar command, a text that
    /// begins with a space. If text follows the word, the letters must be those of the command, in
    /// another order or case.
    pub(super) fn describe_misspelt_now(&self, text: &str) -> Option<String> {
        /// A shorter word is similar to too many others.
        const MIN_CHARS: usize = 3;
        let (name, rest) = command::typed(text)?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if name.len() < MIN_CHARS || !name.chars().all(is_word) {
            return None;
        }
        let mut known: Vec<String> = self
            .list_without(&[])
            .into_iter()
            .map(|command| command.name)
            .collect();
        known.extend(
            BuiltinName::ALL
                .iter()
                .map(|(_, name, ..)| (*name).to_owned()),
        );
        let is_known = known.iter().any(|known| known == name);
        let is_elsewhere = HELP.contains(&name) || find_foreign(name).is_some();
        if is_known || is_elsewhere || Path::new("/").join(name).exists() {
            return None;
        }
        let near = text::nearest(name, known.iter().map(String::as_str))?;
        let letters = |word: &str| {
            let mut letters = word.to_ascii_lowercase().into_bytes();
            letters.sort_unstable();
            letters
        };
        if !rest.trim().is_empty() && letters(name) != letters(near) {
            return None;
        }
        Some(format!(
            "There is no command /{name}. Did you mean /{near}? With a space before it, it is sent as text."
        ))
    }

    /// Expands the command at the beginning of a prompt, and returns the content of the prompt. The
    /// user sees the typed text, the model the expansion; attachments remain. An unknown name, or a
    /// pasted path, is ordinary text.
    ///
    /// The command may choose the agent or model of this turn, and run shell commands with the
    /// rules of that agent. A command for a subagent becomes a subtask, if the session may
    /// delegate. The draft receives the calls that the expansion makes, the command's choices, and
    /// its text.
    pub(super) async fn expand_typed(
        &self,
        mut content: Vec<Content>,
        draft: &mut PromptDraft,
        turn: &mut TurnContext,
    ) -> Vec<Content> {
        let Some(Content::Text(typed)) = content.first_mut() else {
            return content;
        };
        if let Some((name, rest)) = command::typed(typed.text.trim_start())
            && let Some(skill) = self.skill(name).cloned()
        {
            let rest = rest.to_owned();
            typed.ignored = true;
            content.insert(
                1,
                Content::Text(hidden_text(with_skill(skill, &rest).await)),
            );
            draft.user_text = Some(rest);
            return content;
        }
        let Some((command, expanded)) = self.expand(&typed.text) else {
            return expand_server_prompt(content, draft, turn).await;
        };
        typed.ignored = true;
        draft.set_text(turn, &content[..1]);
        let Some(Content::Text(typed)) = content.first() else {
            return content;
        };
        let description = text::title(&typed.text);
        let chosen = turn.choice.borrow().clone();
        let speaker = turn.project.agents.get(&chosen.agent);
        let own = command
            .agent
            .as_ref()
            .and_then(|name| turn.project.agents.get(name));
        let sub = command.subtask.unwrap_or(
            own.as_ref()
                .is_some_and(|agent| agent.mode == Mode::Subagent),
        );
        let (command, own) = match (own, &speaker) {
            (Some(own), Some(speaker))
                if command.has_untrusted_agent
                    && !sub
                    && has_more_permissions(&own, speaker, turn) =>
            {
                let title = format!(
                    "/{} wants {} to answer, who may do what {} may not. A project you have not trusted does not decide that: {} answers.",
                    command.name, own.name, speaker.name, speaker.name
                );
                let severity = events::Severity::Warning;
                turn.event_sender
                    .event(events::Event::Notice {
                        severity,
                        title,
                        details: None,
                    })
                    .await;
                (
                    &settings::CommandEntry {
                        agent: None,
                        ..command.clone()
                    },
                    None,
                )
            }
            (own, _) => (command, own),
        };
        let delegate =
            sub && turn.session.depth < turn.project.context.settings.general.subagent_depth;
        if !delegate
            && let Some(choice) =
                command_choices(command, &turn.project.agents, &turn.project.models, &chosen)
        {
            let (once, chosen) = watch::channel(choice);
            turn.choice = chosen;
            draft.choices_override = Some(once);
        }
        let agent = match (delegate, own, speaker) {
            // A subagent never has more permissions than the delegating agent.
            (true, Some(own), Some(speaker)) => {
                let rules = derive(&own.rules, &speaker.rules, &Rules::default());
                Some(Arc::new(Agent {
                    rules,
                    ..Agent::clone(&own)
                }))
            }
            (true, own, speaker) => own.or(speaker),
            (false, ..) => turn.project.agents.get(&turn.choice.borrow().agent),
        };
        let arguments = arguments(&typed.text);
        let near = chosen
            .model
            .clone()
            .unwrap_or_else(|| turn.project.models.default_model());
        let (texts, mut attachments) =
            fill_template(command, &expanded, agent.as_deref(), draft, turn).await;
        let mut parts = match agent {
            Some(agent) if delegate => vec![Content::Subtask {
                agent: agent.name.clone(),
                description,
                prompt: texts.join("\n\n"),
                model: command_model(command, &turn.project.models, &near).map(|model| ModelRef {
                    effort: model.effort.or_else(|| command.variant.clone()),
                    ..model
                }),
            }],
            _ => texts
                .into_iter()
                .map(|text| Content::Text(hidden_text(text)))
                .collect(),
        };
        parts = hooks::rewrite_command(turn, (&command.name, &arguments), parts).await;
        parts.append(&mut attachments);
        content.splice(1..1, parts);
        draft.user_text = (!delegate).then_some(expanded.text);
        content
    }

    /// Returns the command that a text begins with, and its expansion; `None` for any other
    /// text.
    fn expand(&self, text: &str) -> Option<(&settings::CommandEntry, ExpandedTemplate)> {
        let (name, arguments) = command::typed(text.trim_start())?;
        let command = self.find(name)?;
        Some((command, command::expand(&command.template, arguments)))
    }

    fn find(&self, name: &str) -> Option<&settings::CommandEntry> {
        self.commands.iter().find(|command| command.name == name)
    }
}

/// Returns the text after the name of a command.
fn arguments(typed: &str) -> String {
    let typed = command::typed(typed.trim_start());
    typed.map(|(_, rest)| rest.to_owned()).unwrap_or_default()
}

/// Returns the text of a skill, followed by the rest of the prompt that names it.
async fn with_skill(skill: Skill, rest: &str) -> String {
    let loaded = base::task::spawn_blocking(move || skill.loaded()).await;
    let loaded = loaded.unwrap_or_else(|e| format!("The skill could not be read: {e}."));
    if rest.is_empty() {
        loaded
    } else {
        format!("{loaded}\n\n{rest}")
    }
}

/// Expands the prompt of an MCP server at the beginning of a prompt.
async fn expand_server_prompt(
    mut content: Vec<Content>,
    draft: &mut PromptDraft,
    turn: &TurnContext,
) -> Vec<Content> {
    let Some(Content::Text(typed)) = content.first_mut() else {
        return content;
    };
    let Some((word, rest)) = command::typed(typed.text.trim_start()) else {
        return content;
    };
    let prompt = tokio::select! {
        prompt = turn.session.common.servers.prompt(word, rest) => prompt,
        () = turn.cancelled.cancelled() => None,
    };
    let agent = turn.project.agents.get(&turn.choice.borrow().agent);
    let (Some((tool, input)), Some(agent)) = (prompt, agent) else {
        return content;
    };
    let word = word.to_owned();
    typed.ignored = true;
    draft.set_text(turn, &content[..1]);
    let (text, files) = match insert::make_call(draft, turn, &agent, &tool, input).await {
        Ok(output) => (output.text, output.attachments),
        Err(why) => (
            prompts::reminder::NO_PROMPT
                .replace("{word}", &word)
                .replace("{why}", &why),
            Vec::new(),
        ),
    };
    let parts = std::iter::once(Content::Text(hidden_text(text)))
        .chain(files.into_iter().map(Content::File));
    content.splice(1..1, parts);
    content
}

/// Returns a text that the user does not see.
fn hidden_text(text: String) -> Text {
    Text {
        text: text.into(),
        synthetic: true,
        ..Text::default()
    }
}

/// Returns the choices for the turn of a command that names an agent or a model; `None` if it names
/// neither. The model is the command's, or else its agent's, or else the user's. An agent that is a
/// subagent is ignored, because it does not answer the user itself.
fn command_choices(
    command: &settings::CommandEntry,
    agents: &Agents,
    models: &Models,
    chosen: &SessionChoices,
) -> Option<SessionChoices> {
    let agent = command.agent.as_ref().and_then(|name| agents.get(name));
    let agent = agent.filter(|agent| agent.mode != Mode::Subagent);
    let near = chosen
        .model
        .clone()
        .unwrap_or_else(|| models.default_model());
    let own = command_model(command, models, &near).map(|model| ModelRef {
        effort: command.variant.clone().or(model.effort),
        ..model
    });
    let choice = match (agent, own) {
        (None, None) if command.variant.is_none() => return None,
        (None, None) => chosen.clone(),
        (None, own) => SessionChoices {
            model: own,
            ..chosen.clone()
        },
        (Some(agent), own) => {
            let theirs = || {
                if agent.model.is_some() || agent.family.is_some() {
                    None
                } else {
                    chosen.model.clone()
                }
            };
            SessionChoices {
                agent: agent.name.clone(),
                model: own.or_else(theirs),
                ..chosen.clone()
            }
        }
    };
    Some(with_effort(choice, command, agents, models))
}

/// Returns the model that a command names, or the one nearest to `near` in the family that it
/// names.
fn command_model(
    command: &settings::CommandEntry,
    models: &Models,
    near: &ModelRef,
) -> Option<ModelRef> {
    let of_family = || models.of_family(command.family?, near);
    command.model.clone().or_else(of_family)
}

/// Applies the effort of a command that names no model, if the model that runs it supports the
/// effort.
fn with_effort(
    choice: SessionChoices,
    command: &settings::CommandEntry,
    agents: &Agents,
    models: &Models,
) -> SessionChoices {
    let (None, Some(effort)) = (&command.model, &command.variant) else {
        return choice;
    };
    let agent = agents.get(&choice.agent);
    let model = resolve_model(&choice, agent.as_deref(), models);
    let has = models
        .find(&model)
        .is_ok_and(|(found, _)| found.efforts.contains(effort));
    if !has {
        return choice;
    }
    SessionChoices {
        model: Some(ModelRef {
            effort: Some(effort.clone()),
            ..model
        }),
        ..choice
    }
}

/// Returns the hint for the arguments of a template, if it takes any.
fn hint(template: &str) -> Option<String> {
    let takes = template.contains("$ARGUMENTS") || template.contains("$1");
    takes.then(|| "arguments".to_owned())
}

/// True if an agent may do more than another one, by itself or through the subagents it
/// starts.
fn has_more_permissions(own: &Agent, than: &Agent, turn: &TurnContext) -> bool {
    let subagents = turn
        .project
        .agents
        .all()
        .filter(|agent| agent.is_subagent());
    let subagents = subagents.map(|agent| (agent.name.as_str(), &agent.rules));
    let reachable = reachable_rules(&than.rules, subagents, &turn.session.common.environment);
    find_more_permissive(
        &own.rules,
        &reachable.iter().collect::<Vec<_>>(),
        Action::Allow,
    )
    .is_some()
}

/// Fills a command's template with the output of its shell commands. Returns the texts (the
/// template, then the contents of the files that it names) and the attachments of these files.
async fn fill_template(
    command: &settings::CommandEntry,
    expanded: &ExpandedTemplate,
    agent: Option<&Agent>,
    draft: &mut PromptDraft,
    turn: &TurnContext,
) -> (Vec<String>, Vec<Content>) {
    if command.untrusted && !expanded.inserts.is_empty() {
        report_inserts_not_run(command, expanded, turn).await;
    }
    let mut outputs = Vec::new();
    for insert in &expanded.inserts {
        outputs.push(match agent {
            _ if command.untrusted => Err("this project is not trusted".to_owned()),
            Some(agent) => insert::run_command(draft, turn, agent, &insert.command).await,
            None => Err("there is no user to run it for".to_owned()),
        });
    }
    let mut texts = vec![expanded.filled(&outputs)];
    let mut attachments = Vec::new();
    for (path, lines) in mention::files(&expanded.text, turn)
        .into_iter()
        .take(MAX_FILES)
    {
        let Some(agent) = agent else { break };
        let text = match insert::read_file(draft, turn, agent, &path, lines).await {
            Ok(output) => {
                attachments.extend(output.attachments.into_iter().map(Content::File));
                output.text
            }
            Err(why) => format!("(it was not read: {why})"),
        };
        texts.push(format!("{CONTENTS_OF}{path}:\n{text}"));
    }
    (texts, attachments)
}

/// Notifies the user that the prompt of a command lacks the output of its shell commands, because
/// the project is not trusted.
async fn report_inserts_not_run(
    command: &settings::CommandEntry,
    expanded: &ExpandedTemplate,
    turn: &TurnContext,
) {
    let lines = expanded
        .inserts
        .iter()
        .map(|insert| format!("`{}`", text::title(&insert.command)));
    let were = if expanded.inserts.len() == 1 {
        "was"
    } else {
        "were"
    };
    let title = format!(
        "/{} is sent without the output of {}, which {were} not run: this project is not trusted. `adjutant trust` shows what it would run.",
        command.name,
        lines.collect::<Vec<_>>().join(", ")
    );
    let notice = events::Event::Notice {
        severity: events::Severity::Warning,
        title,
        details: None,
    };
    turn.event_sender.event(notice).await;
}

/// Returns the answer to `/help`, or to a command of other programs; `None` for any other name.
fn answer_foreign(
    name: &str,
    offered: impl FnOnce() -> Vec<events::CommandInfo>,
) -> Option<String> {
    if HELP.contains(&name) {
        let command = |info: events::CommandInfo| {
            let line = format!("- `/{}`: {}", info.name, info.description);
            line.trim_end_matches([':', ' ']).to_owned()
        };
        let commands: Vec<String> = offered().into_iter().map(command).collect();
        return Some(format!(
            "The commands, which begin a prompt; everything else is sent to the model:\n\n{}",
            commands.join("\n")
        ));
    }
    Some(find_foreign(name)?.answer.to_owned())
}

/// Returns the command of other programs with this name.
fn find_foreign(name: &str) -> Option<&'static ForeignCommand> {
    FOREIGN_COMMANDS
        .iter()
        .find(|command| command.names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Commands {
        Commands::new(
            &Settings::default(),
            &Arc::default(),
            &Rules::default(),
            CommandConditions::default(),
        )
    }

    #[test]
    fn command_without_use_is_not_listed() {
        let listed = |uses: CommandConditions, word: &str| {
            let commands = Commands::new(
                &Settings::default(),
                &Arc::default(),
                &Rules::default(),
                uses,
            );
            commands.list().iter().any(|command| command.name == word)
        };
        let none = CommandConditions::default();
        let all = CommandConditions {
            has_planner: true,
            has_logins: true,
        };
        for (word, without, with) in [
            ("status", true, true),
            ("rename", true, true),
            ("permissions", true, true),
            ("plan", false, true),
            ("logout", false, true),
            ("mcp", false, false),
            ("skills", false, false),
        ] {
            assert_eq!(listed(none, word), without, "{word}");
            assert_eq!(listed(all, word), with, "{word}");
            assert!(
                plain()
                    .parse_builtin(&format!("/{word}"), Vec::new)
                    .is_some(),
                "{word}"
            );
        }
    }

    #[test]
    fn only_known_names_are_commands() {
        let commands = plain();
        assert!(
            commands
                .expand("/review the last commit")
                .unwrap()
                .1
                .text
                .contains("the last commit")
        );
        for text in ["/usr/bin/foo crashes, why?", "/nothing", "say /init", "/"] {
            assert_eq!(commands.expand(text), None, "{text}");
        }
    }

    #[test]
    fn unknown_word_is_not_sent_from_a_terminal() {
        let own = ["exit".to_owned(), "model".to_owned()];
        let unknown = |text: &str, may_be_more| plain().unknown(text, &own, may_be_more);
        for (text, advice) in [
            ("/exti", "Did you mean /exit?"),
            ("/udno ", "Did you mean /undo?"),
            ("/modle", "Did you mean /model?"),
            ("/vim", "/help lists the commands."),
        ] {
            let refusal = unknown(text, false).unwrap_or_default();
            assert!(refusal.contains(advice), "{text}: {refusal}");
        }
        for text in [
            "/exit",
            "/undo",
            "/help",
            "/?",
            "/login",
            "/tmp",
            "/a/b",
            "/vim this",
            " /vim",
            "vim",
            "/",
        ] {
            assert_eq!(unknown(text, false), None, "{text}");
        }
        assert!(unknown("/exti", true).is_some());
        assert_eq!(unknown("/vim", true), None);
    }

    #[test]
    fn misspelt_command_is_not_sent_to_the_model() {
        let commands = plain();
        for (text, near) in [
            ("/udno", "/undo"),
            ("/Compact", "/compact"),
            ("/reveiw main", "/review"),
            ("/expotr a.md", "/export"),
        ] {
            let refusal = commands.describe_misspelt(text).unwrap_or_default();
            let question = format!("Did you mean {near}?");
            assert!(refusal.contains(&question), "{text}: {refusal}");
        }
        for text in [
            "/undo",
            "/undo force",
            " /udno",
            "/usr/bin/env fails",
            "/tmp is full",
            "/models",
            "/help",
            "/dev",
            "/udno/x",
            "/notes:find x",
            "/something-else",
            "/reviews returns 500",
            "/map does not load",
            "//",
            "/",
            "undo",
            "why /udno",
        ] {
            assert_eq!(commands.describe_misspelt(text), None, "{text}");
        }
        let with_plugins = Commands {
            plugins_may_add: true,
            ..plain()
        };
        assert_eq!(with_plugins.describe_misspelt("/udno"), None);
        assert!(with_plugins.describe_misspelt_now("/udno").is_some());
    }

    #[test]
    fn commands_of_other_programs_are_answered_unless_they_begin_a_prompt() {
        let commands = plain();
        let answer = |text: &str| {
            let order = commands.parse_builtin(text, || commands.list())?;
            assert_eq!(order.name, BuiltinName::PreparedAnswer, "{text}");
            Some(order.arguments)
        };
        for (text, part) in [
            ("/help", "- `/undo`: "),
            ("/?", "- `/review`: "),
            ("/clear", "without `-c`"),
            ("/model", "-m PROVIDER/MODEL"),
            ("/model openai/gpt-5", "-m PROVIDER/MODEL"),
            ("/mode plan", "--mode NAME"),
            ("/login openai", "auth login PROVIDER"),
            ("/exit", "exits after each answer"),
        ] {
            let answer = answer(text).unwrap_or_default();
            assert!(answer.contains(part), "{text}: {answer}");
        }
        for text in [
            "/help me",
            "/help me with it",
            "/clearly",
            "/new feature",
            "/new file please",
            "/resume work",
            "/cost overview",
            "/model the data",
            "help",
        ] {
            assert_eq!(answer(text), None, "{text}");
        }
        let names = FOREIGN_COMMANDS.iter().flat_map(|command| command.names);
        for name in names.chain(&HELP) {
            let is_own = BuiltinName::ALL.iter().any(|(_, own, ..)| own == name);
            assert!(!is_own && answer(&format!("/{name}")).is_some(), "{name}");
        }
    }

    #[test]
    fn own_command_hides_built_in_one() {
        let commands = plain();
        assert_eq!(
            commands.parse_builtin(" /diff all\n", Vec::new),
            Some(BuiltinCommand {
                name: BuiltinName::Diff,
                arguments: "all".into()
            })
        );
        for text in ["/different", "say /diff", "diff", "/review"] {
            assert_eq!(commands.parse_builtin(text, Vec::new), None, "{text}");
        }
        let own = settings::CommandEntry {
            name: "diff".into(),
            template: "mine".into(),
            ..Default::default()
        };
        let commands = Commands::new(
            &Settings {
                commands: vec![own],
                ..Settings::default()
            },
            &Arc::default(),
            &Rules::default(),
            CommandConditions::default(),
        );
        assert_eq!(commands.parse_builtin("/diff", Vec::new), None);
        assert_eq!(
            commands
                .list()
                .iter()
                .filter(|command| command.name == "diff")
                .count(),
            1
        );
    }
}
