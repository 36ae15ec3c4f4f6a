//! The immutable inputs of one step: agent, model, rules, tools, system prompt. The user may switch
//! the mode or the model at any time; the change takes effect here, at the next step.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::agent_context::AgentContext;
use super::models::Models;
use super::{History, SessionChoices, TurnContext, next};
use base::text::mark::ReminderMark;
use mcp::search;
use permission::{Action, Rule, wildcard};
use project::agent::Agent;
use project::system::{self, Layers};
use providers::{Model, Provider, local};
use tools::conversation::question::QuestionTool;
use tools::conversation::skill::SkillTool;
use tools::conversation::structured_output::StructuredOutputTool;
use tools::conversation::task::TaskTool;
use tools::edits::apply_patch::ApplyPatchTool;
use tools::edits::edit::EditTool;
use tools::edits::write::WriteTool;
use tools::files::grep::GrepTool;
use tools::files::read::ReadTool;
use tools::language::is_available;
use tools::lsp::LspTool;
use tools::process::bash::BashTool;
use tools::web::websearch::{self, WebsearchTool};
use tools::{AnyTool, Tool, erase};
use tools::{BUILT_IN_TOOLS, PARTIAL_KEYS};
use transcript::{Fault, FaultKind, Message, ModelRef, PromptOptions};

#[derive(Clone)]
pub struct StepContext {
    pub agent: Arc<Agent>,
    pub agent_context: AgentContext,
    pub model: Arc<Model>,
    pub provider: Arc<dyn Provider>,
    /// The tools that the model may call, sorted by name; empty on the last step.
    pub tools: Vec<Arc<dyn AnyTool>>,
    /// The system prompt in blocks.
    pub system: Vec<String>,
    /// The mark of notes to the model.
    pub mark: ReminderMark,
    /// The tools that are left out because all do not fit into the model's window.
    pub left_out_tools: Vec<String>,
}

/// The tools that are offered in a small context window.
const ESSENTIAL_TOOLS: [&str; 6] = [
    ApplyPatchTool::NAME,
    BashTool::NAME,
    EditTool::NAME,
    GrepTool::NAME,
    ReadTool::NAME,
    WriteTool::NAME,
];

impl StepContext {
    /// Returns the size that the system prompt and the tools must not reach. `None` if the window
    /// is large enough for any.
    pub fn fixed_limit(&self) -> Option<u64> {
        /// The window size from which the system prompt is assumed to fit.
        const SMALL_WINDOW_TOKENS: u64 = 64_000;
        let window = self
            .model
            .context
            .filter(|window| *window < SMALL_WINDOW_TOKENS)?;
        // Servers on this machine may cut a request without reporting it. The conversation, results
        // and the answer need half of the window.
        let is_local = local::explain_larger_context(&self.model, window).is_some();
        Some(if is_local || !self.left_out_tools.is_empty() {
            window / 2
        } else {
            window
        })
    }

    /// True if the system prompt and the tools leave enough of the model's window for
    /// messages.
    pub fn fits(&self) -> bool {
        self.fixed_limit()
            .is_none_or(|limit| self.fixed_tokens() < limit)
    }

    fn add(&mut self, tool: Arc<dyn AnyTool>) {
        let at = self
            .tools
            .partition_point(|other| other.name() < tool.name());
        self.tools.insert(at, tool);
    }
}

/// Returns the tool that accepts the structured result, if the prompt requests one.
///
/// # Errors
/// A fault for the user if the requested format is not a JSON Schema.
fn result_tool(history: &History) -> Result<Option<Arc<dyn AnyTool>>, Fault> {
    let Some(schema) = next::current_turn(history)
        .first()
        .and_then(Message::format)
    else {
        return Ok(None);
    };
    let tool = StructuredOutputTool::new(schema).map_err(|why| Fault {
        kind: FaultKind::Internal,
        message: format!("The requested form of the result is not a JSON Schema: {why}"),
        advice: None,
    })?;
    Ok(Some(Arc::new(tool)))
}

/// Returns the agent of the user's present choice.
///
/// # Errors
/// A fault for the user if there is no such agent.
pub fn chosen_agent(turn: &TurnContext) -> Result<Arc<Agent>, Fault> {
    let chosen = turn.choice.borrow().agent.clone();
    let agent = turn.project.agents.get(&chosen).ok_or_else(|| Fault {
        kind: FaultKind::Internal,
        message: format!("There is no agent named \"{chosen}\"."),
        advice: Some("Choose another mode.".into()),
    })?;
    if turn.session.permissions.inherited.is_empty() {
        return Ok(agent);
    }
    Ok(Arc::new(with_inherited_denies(&agent, turn)))
}

/// Returns an agent with the denials of this session: those of the session that delegated, or of
/// the client.
pub fn with_inherited_denies(agent: &Agent, turn: &TurnContext) -> Agent {
    Agent {
        rules: agent
            .rules
            .clone()
            .then(&turn.session.permissions.inherited),
        ..agent.clone()
    }
}

/// Returns the tool that delegates work to subagents; `None` if it is not offered.
fn task_tool(
    turn: &TurnContext,
    agent: &Arc<Agent>,
    model: &ModelRef,
    named: &[String],
) -> Option<TaskTool> {
    if turn.session.depth >= turn.project.context.settings.general.subagent_depth {
        return None;
    }
    let may = if agent.rules.hides("task") {
        Vec::new()
    } else {
        turn.project.agents.subagents_for(&agent.rules)
    };
    let task = TaskTool::new(may, named, agent, model);
    task.has_agents().then_some(task)
}

/// Returns the model of the user's present choice.
pub fn chosen_model(turn: &TurnContext, agent: &Agent) -> ModelRef {
    resolve_model(&turn.choice.borrow(), Some(agent), &turn.project.models)
}

/// Returns the model of a choice: the chosen one, or else the agent's with the agent's effort if
/// the model supports it, or else the default.
pub fn resolve_model(choice: &SessionChoices, agent: Option<&Agent>, models: &Models) -> ModelRef {
    if let Some(chosen) = &choice.model {
        return chosen.clone();
    }
    let default = models.default_model();
    agent
        .and_then(|agent| agent_model(agent, &default, models))
        .unwrap_or(default)
}

/// Returns the model that an agent uses if the user has chosen none, with the agent's effort if the
/// model has it. `near` is the model in use, whose provider has the models of families. `None` if
/// the agent leaves the choice open.
pub fn agent_model(agent: &Agent, near: &ModelRef, models: &Models) -> Option<ModelRef> {
    let own = models.of_agent(agent, near)?;
    let has = |effort: &&String| {
        models
            .find(&own)
            .is_ok_and(|(model, _)| model.efforts.contains(effort))
    };
    let effort = own
        .effort
        .clone()
        .or_else(|| agent.variant.as_ref().filter(has).cloned());
    Some(ModelRef { effort, ..own })
}

/// True if a prompt leaves a tool enabled. An exact name takes precedence over a wildcard,
/// and a longer wildcard over a shorter one.
fn is_enabled(options: &PromptOptions, tool: &str, permission: &str) -> bool {
    let speaks = |key: &&String| wildcard::matches(key, tool) || wildcard::matches(key, permission);
    let rank = |key: &&String| (key.as_str() == tool, key.as_str() == permission, key.len());
    options
        .tools
        .keys()
        .filter(speaks)
        .max_by_key(rank)
        .is_none_or(|key| options.tools[key])
}

/// Returns the agent for a prompt that disables tools: their permissions are denied, to subagents
/// and commands of the prompt as well.
fn with_disabled_tools(
    agent: &Arc<Agent>,
    options: &PromptOptions,
    turn: &TurnContext,
) -> Arc<Agent> {
    let built_in = BUILT_IN_TOOLS
        .iter()
        .map(|tool| (tool.name, tool.permission))
        .chain(PARTIAL_KEYS.map(|(key, _)| (key, key)))
        .map(|(name, key)| (name.to_owned(), key.to_owned()));
    let custom = turn.session.common.extensions.scripts.tools(&agent.rules);
    let servers = turn
        .session
        .common
        .servers
        .tools(&agent.rules)
        .into_iter()
        .chain(custom);
    let servers = servers.map(|tool| (tool.name().to_owned(), tool.permission().to_owned()));
    let (enabled, disabled): (Vec<_>, Vec<_>) = built_in
        .chain(servers)
        .partition(|(name, key)| is_enabled(options, name, key));
    let enabled: BTreeSet<String> = enabled.into_iter().map(|(_, key)| key).collect();
    let denied: BTreeSet<String> = disabled.into_iter().map(|(_, key)| key).collect();
    let rule = |permission: String| Rule {
        permission,
        pattern: "*".into(),
        action: Action::Deny,
        source: "this prompt".into(),
    };
    let denied = denied.into_iter().filter(|key| !enabled.contains(key));
    let rules = agent.rules.clone().then(&denied.map(rule).collect());
    Arc::new(Agent {
        rules,
        ..Agent::clone(agent)
    })
}

/// Captures the inputs of a step for the prompt of the running turn. If the window is too small for
/// all tools, only the essential ones are offered. The tool that accepts a structured result is
/// always offered.
///
/// # Errors
/// A fault for the user if the agent or the model is not available, or if the requested format is
/// not a JSON Schema.
pub fn capture(turn: &TurnContext, last: bool, history: &History) -> Result<StepContext, Fault> {
    let result_tool = result_tool(history)?;
    let with = |is_reduced| {
        let mut step = with_tools(turn, history, is_reduced)?;
        let has_tools = !step.tools.is_empty();
        if let Some(tool) = &result_tool {
            step.add(tool.clone());
        }
        Ok((step, has_tools))
    };
    let (mut step, has_tools) = with(false)?;
    if has_tools && !step.fits() {
        let (mut reduced, has_tools) = with(true)?;
        reduced.left_out_tools = missing_names(&step.tools, &reduced.tools);
        // An agent that has none of them needs a larger window.
        if reduced.fits() && has_tools {
            step = reduced;
        }
    }
    // The last step offers no other tools; its system prompt remains unchanged, for the
    // provider's cache.
    if last {
        step.tools = result_tool.into_iter().collect();
    }
    Ok(step)
}

/// Returns a sentence about the setting that names a model, if a problem is known of it.
fn setting_of_model(turn: &TurnContext, model: &ModelRef) -> Option<String> {
    let problem = turn.project.deny_watcher.problem_of_model(model)?;
    let place = problem.location.short();
    Some(format!("It is the value of {} in {place}.", problem.key))
}

/// Returns the names of the tools that are not among those that are offered.
fn missing_names(all: &[Arc<dyn AnyTool>], offered: &[Arc<dyn AnyTool>]) -> Vec<String> {
    let offered: BTreeSet<&str> = offered.iter().map(|tool| tool.name()).collect();
    all.iter()
        .map(|tool| tool.name())
        .filter(|name| !offered.contains(name))
        .map(str::to_owned)
        .collect()
}

/// Captures the inputs of a step with all its tools, or with the essential ones.
fn with_tools(
    turn: &TurnContext,
    history: &History,
    is_reduced: bool,
) -> Result<StepContext, Fault> {
    let options = next::current_turn(history)
        .first()
        .and_then(Message::options);
    let agent = match options {
        Some(options) => with_disabled_tools(&chosen_agent(turn)?, options, turn),
        None => chosen_agent(turn)?,
    };
    let wanted = chosen_model(turn, &agent);
    let (model, provider) = turn.project.models.find(&wanted).map_err(|missing| Fault {
        kind: FaultKind::Internal,
        message: missing.to_string(),
        advice: setting_of_model(turn, &wanted),
    })?;
    let tools = if model.tools {
        let task = task_tool(turn, &agent, &model.id, &next::named_subagents(history)).map(erase);
        let skill =
            SkillTool::new(&turn.project.system_prompt_parts.skills, &agent.rules).map(erase);
        let servers = turn.session.common.servers.tools(&agent.rules);
        let lsp = (is_available(&turn.project.context.settings)
            && !agent.rules.hides(LspTool::NAME))
        .then(|| erase(LspTool));
        let searches = websearch::is_available(&turn.session.common.environment, || {
            provider.can_search_web(&model)
        }) && !agent.rules.hides(WebsearchTool::NAME);
        let search = searches.then(|| erase(WebsearchTool));
        let custom = turn.session.common.extensions.scripts.tools(&agent.rules);
        let made = task
            .into_iter()
            .chain(skill)
            .chain(lsp)
            .chain(search)
            .chain(servers)
            .collect();
        let mut tools = turn
            .session
            .common
            .tools
            .callable(&agent.rules, &model, made);
        for tool in custom {
            // A custom tool has the name of a built-in one only if the settings allow
            // it.
            tools.retain(|other| other.name() != tool.name());
            let at = tools.partition_point(|other| other.name() < tool.name());
            tools.insert(at, tool);
        }
        // The parent agent answers a subagent's questions.
        let asks = turn.session.permissions.attended && turn.session.depth == 0;
        tools.retain(|tool| asks || tool.name() != QuestionTool::NAME);
        tools.retain(|tool| {
            options.is_none_or(|options| is_enabled(options, tool.name(), tool.permission()))
        });
        tools.retain(|tool| {
            !turn
                .session
                .common
                .refused_tools
                .has(&model.id.provider, tool.as_ref())
        });
        if is_reduced {
            tools.retain(|tool| ESSENTIAL_TOOLS.contains(&tool.name()));
        }
        search::fit_into_budget(tools, turn.project.context.settings.experimental.mcp_budget)
    } else {
        Vec::new()
    };
    let names: Vec<&str> = tools
        .iter()
        .filter(|tool| tool.listed())
        .map(|tool| tool.name())
        .collect();
    let skills = if names.contains(&SkillTool::NAME) {
        turn.project.system_prompt_parts.skills.block(&agent.rules)
    } else {
        String::new()
    };
    let agent_context = AgentContext::new(turn, &agent);
    let own = options.and_then(|options| options.system.as_deref());
    let extra: Vec<&str> = turn
        .session
        .common
        .system_prompt_addition
        .as_deref()
        .into_iter()
        .chain(own)
        .collect();
    let extra = extra.join("\n\n");
    let system = system::prompt(&Layers {
        agent: &agent,
        model: &model,
        tools: &names,
        surroundings: &turn.project.system_prompt_parts.surroundings,
        commands: &agent_context.sandbox_choice.reach(),
        mark: &turn.session.mark,
        references: &turn.project.system_prompt_parts.references,
        instructions: &turn.project.system_prompt_parts.instructions,
        servers: &turn.session.common.servers.server_texts(&names),
        skills: &skills,
        extra: (!extra.is_empty()).then_some(&*extra),
    });
    Ok(StepContext {
        agent,
        agent_context,
        model,
        provider,
        tools,
        system,
        mark: turn.session.mark.clone(),
        left_out_tools: Vec::new(),
    })
}
