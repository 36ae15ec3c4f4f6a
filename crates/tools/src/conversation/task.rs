//! `task`: delegates work to a subagent.
//!
//! The session runs the subagent ([`SpawnSubagent`]); this module decides which agents may be used,
//! and formats the result.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::aliases::{Aliases, FieldValue};
use crate::{Availability, CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::id::SessionId;
use base::text;
use events::{SessionRequest, SpawnSubagent, SubagentEnd, SubagentReport, ToolKind};
use permission::AccessRequest;
use project::agent::Agent;
use transcript::{CallFacts, ChildSession, File, ModelRef};

/// The maximum length of a stored description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 100;

/// The tool, created for every step with the calling agent and the agents that it may use.
#[derive(Default)]
pub struct TaskTool {
    /// The agents that the caller may use; the model sees those that are not hidden.
    agents: Vec<Arc<Agent>>,
    /// The agents that the user has named in this turn: they need no permission.
    named: Vec<String>,
    /// The agent that calls the tool; `None` if the tool was not created for a step.
    caller: Option<Arc<Agent>>,
    /// The model of that agent; `None` like `caller`.
    model: Option<ModelRef>,
    /// The model that the user has requested for the subagent.
    wanted: Option<ModelRef>,
    /// Attachments for the subagent.
    files: Vec<File>,
}

impl TaskTool {
    /// Creates the tool for a step of `caller`, which may use `agents` and those that the user
    /// `named`.
    pub fn new(
        mut agents: Vec<Arc<Agent>>,
        named: &[String],
        caller: &Arc<Agent>,
        model: &ModelRef,
    ) -> Self {
        agents.retain(|agent| agent.name != caller.name);
        let caller = Some(caller.clone());
        let model = Some(model.clone());
        Self {
            agents,
            named: named.to_vec(),
            caller,
            model,
            ..Self::default()
        }
    }

    /// Adds the model and the attachments for a subagent that a command of the user starts.
    #[must_use]
    pub fn for_command(self, wanted: Option<ModelRef>, files: Vec<File>) -> Self {
        Self {
            wanted,
            files,
            ..self
        }
    }

    /// Returns whether there is any agent to use.
    pub fn has_agents(&self) -> bool {
        !self.agents.is_empty() || !self.named.is_empty()
    }

    /// Returns the error for a request for an unavailable agent.
    fn unavailable(&self, name: &str) -> Failure {
        let shown = self.agents.iter().filter(|agent| !agent.hidden);
        let mut names: Vec<&str> = shown.map(|agent| agent.name.as_str()).collect();
        names.extend(
            self.named
                .iter()
                .map(String::as_str)
                .filter(|named| !self.agents.iter().any(|a| a.name == *named)),
        );
        let names = names.join(", ");
        if self
            .caller
            .as_ref()
            .is_some_and(|caller| caller.name == name)
        {
            return Failure::ForModel(format!(
                "{name} cannot delegate to itself. Do the work, or use one of: {names}."
            ));
        }
        let name = text::title(name);
        Failure::ForModel(format!(
            "There is no subagent \"{name}\" for you. You may use: {names}."
        ))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// The task in three to five words, for the user
    pub description: String,
    /// The complete task
    pub prompt: String,
    pub subagent_type: String,
    /// An earlier task to continue
    pub task_id: Option<String>,
}

impl Tool for TaskTool {
    const NAME: &'static str = "task";
    const DESCRIPTION: &'static str = include_str!("task.md");
    const KIND: ToolKind = ToolKind::Think;
    const CONCURRENT: bool = true;
    const AVAILABILITY: Availability = Availability::PerStep;
    const WRITES_UNNAMED_FILES: bool = true;
    const PERMISSION_KEY: Option<PermissionKey> = Some(PermissionKey::acting(
        "Starting a subagent; patterns are agent names.",
    ));
    const ALIASES: Aliases = Aliases {
        tool_names: &[
            "agent",
            "subagent",
            "spawnagent",
            "dispatchagent",
            "runsubagent",
        ],
        // The command of the user that led to the task; only the task counts.
        field_values: &[FieldValue::ignored("command", "*")],
        fields: &[
            ("task_id", &["sessionid", "resume"]),
            (
                "subagent_type",
                &["agent", "subagent", "agenttype", "agentname"],
            ),
            ("prompt", &["task", "instructions", "message"]),
        ],
    };
    type Input = Input;
    type Ready = Input;

    fn description(&self) -> String {
        let describe = |agent: &Arc<Agent>| {
            let description = agent
                .description
                .as_deref()
                .unwrap_or("Only when the user asks for it.");
            format!(
                "- {}: {}",
                agent.name,
                description.split_whitespace().collect::<Vec<_>>().join(" ")
            )
        };
        let mut agents: Vec<String> = self
            .agents
            .iter()
            .filter(|agent| !agent.hidden)
            .map(describe)
            .collect();
        if agents.is_empty() {
            agents.push("- only those that the user names with @".into());
        }
        Self::DESCRIPTION
            .trim_ascii_end()
            .replace("{agents}", &agents.join("\n"))
    }

    fn describe(input: &Input, _: &ToolContext) -> CallDescription {
        CallDescription {
            title: title(input),
            locations: Vec::new(),
        }
    }

    async fn prepare(
        &self,
        input: Input,
        _: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Input), Failure> {
        if input.prompt.trim().is_empty() {
            return Err(Failure::for_model(
                "prompt is empty. Say what the subagent is to do.",
            ));
        }
        let name = &input.subagent_type;
        if self.named.contains(name) {
            return Ok((Vec::new(), input));
        }
        if !self.agents.iter().any(|agent| agent.name == *name) {
            return Err(self.unavailable(name));
        }
        let request = AccessRequest::new(Self::NAME, name.as_str()).always(name.as_str());
        Ok((vec![request], input))
    }

    async fn run(&self, input: Input, context: ToolContext) -> Result<ToolOutput, Failure> {
        let Some(model) = self.model.clone() else {
            return Err(Failure::Broken("no step made this tool".into()));
        };
        let title = title(&input);
        let (reply, answer) = oneshot::channel();
        let spawn = SpawnSubagent {
            call: context.call.id.clone(),
            facts: context.call.facts.clone(),
            shown: None,
            agent: input.subagent_type,
            description: text::cut_chars(&text::title(&input.description), MAX_DESCRIPTION_CHARS),
            prompt: input.prompt,
            files: self.files.clone(),
            wanted: self.wanted.clone(),
            session: None,
            resume: input
                .task_id
                .filter(|id| !id.trim().is_empty())
                .map(SessionId::new),
            model,
            rules: self
                .caller
                .as_ref()
                .map(|caller| caller.rules.clone())
                .unwrap_or_default(),
            reply,
        };
        let sent = context
            .client
            .session_requests
            .send(SessionRequest::Spawn(Box::new(spawn)))
            .await
            .is_ok();
        // The session ends the child when the turn is cancelled, and then answers.
        match answer.await {
            Ok(Ok(report)) => result(report, title, &context),
            Ok(Err(why)) => Err(Failure::ForModel(why)),
            Err(_) if sent && context.cancelled.is_cancelled() => Err(Failure::Cancelled),
            Err(_) => Err(Failure::Broken("the session started no subagent".into())),
        }
    }
}

/// Returns the title of a call.
fn title(input: &Input) -> String {
    text::title(&format!("{}: {}", input.subagent_type, input.description))
}

/// Formats the report of a subagent for the model and for people. Returns a failure unless it is
/// done.
fn result(
    report: SubagentReport,
    title: String,
    context: &ToolContext,
) -> Result<ToolOutput, Failure> {
    let SubagentReport {
        session,
        model,
        text,
        calls,
        end,
    } = report;
    let last_words = if text.is_empty() {
        String::new()
    } else {
        format!(" Its last message was:\n{text}")
    };
    match end {
        SubagentEnd::Done => {}
        SubagentEnd::Cancelled if context.cancelled.is_cancelled() => {
            let done: Vec<&str> = [calls.as_str(), text.as_str()]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            if done.is_empty() {
                return Err(Failure::Cancelled);
            }
            let done = done.join("\n\n");
            return Err(Failure::CutOff {
                text: format!("The subagent (task id {session}) had done this:\n{done}"),
                coloured: None,
                whole: None,
            });
        }
        SubagentEnd::Cancelled => {
            return Err(Failure::ForModel(format!(
                "The user stopped the subagent (task id {session}). Its changes so far remain. Do not start it again unless the user asks for it.{last_words}"
            )));
        }
        SubagentEnd::Rejected(what) => {
            return Err(Failure::Stopped(format!(
                "The user rejected a call of the subagent ({what}), which ended it (task id {session}).{last_words}"
            )));
        }
        SubagentEnd::Failed(why) => {
            return Err(Failure::ForModel(format!(
                "The subagent did not finish: {why} Its changes so far remain. To continue it, call task with task_id {session}.{last_words}"
            )));
        }
    }
    let words = if text.is_empty() {
        "(It ended without a message.)"
    } else {
        text.as_str()
    };
    let child = ChildSession {
        parent: Some(context.session.id.clone()),
        session: session.clone(),
        model: Some(model),
    };
    let display = if calls.is_empty() {
        words.to_owned()
    } else {
        format!("{calls}\n\n{words}")
    };
    let words = text::without_tags(words, &["task", "task_result"]);
    Ok(ToolOutput {
        title,
        text: format!(
            "<task id=\"{session}\" state=\"completed\">\n<task_result>\n{words}\n</task_result>\n</task>"
        ),
        display: Some(display),
        facts: CallFacts {
            child: Some(child),
            ..CallFacts::default()
        },
        ..ToolOutput::default()
    })
}
