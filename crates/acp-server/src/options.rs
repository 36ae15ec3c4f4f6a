//! The config options of a session (mode, model, effort, approvals, steering), in all protocol versions.
//! [`config_options`] lists them for the client, and [`choose`] applies a value that the user picked.

use std::sync::Arc;

use super::error::RequestError;
use super::server::{ChoiceReply, Server};
use super::view::{
    ConfigOption, ConfigOptionCategory, ConfigOptionGroup, ConfigOptionState, ConfigOptionValue,
};
use base::approvals::Approvals;
use base::text;
use project::agent::Agent;
use providers::{Model, local};
use session::SessionHandle;
use session::handle::SavedReceiver;
use session::turn::{SessionChoices, step_context};
use transcript::ModelRef;

/// The id of the option for the mode, which version 1 also has outside of the config options.
pub const MODE: &str = "mode";
/// The id of the option for the model.
pub const MODEL: &str = "model";
/// The id of the group of recently used models.
pub const RECENT: &str = "recent";
/// The id of the option for the effort.
const EFFORT: &str = "effort";
/// The id of the option that decides when a message sent during a turn reaches the model.
const STEER: &str = "steer";
/// The values of that option: id, name and description.
const STEER_VALUES: [(&str, &str, &str); 2] = [
    (
        "on",
        "Steer",
        "A message sent while the agent works reaches it before its next step.",
    ),
    (
        "off",
        "Wait",
        "A message sent while the agent works is answered afterwards.",
    ),
];
/// The id of the option that decides how many questions a session asks.
const APPROVALS: &str = "approvals";

/// Returns a value of the approvals option.
fn approvals_value(approvals: Approvals) -> ConfigOptionValue {
    let (name, description) = match approvals {
        Approvals::Default => (
            "Default",
            "Asks if your rules say so, and before anything risky that the sandbox does not prevent.",
        ),
        Approvals::Ask => (
            "Ask",
            "Asks before every edit, every tool of a server and every command that is not known to be harmless.",
        ),
        Approvals::Sandboxed => (
            "Sandboxed",
            "As the default, but does not ask if the sandbox contains the call: changes in the project, and commands, which then have no network.",
        ),
    };
    ConfigOptionValue {
        id: approvals.as_str().to_owned(),
        name: name.to_owned(),
        description: Some(description.to_owned()),
        color: None,
    }
}

/// The value of the effort option that leaves the effort to the provider.
const DEFAULT_EFFORT: &str = "default";

/// Returns the config options of a session, with all pending choices applied. There is no effort
/// option if the model has no efforts.
pub fn config_options(server: &Server, session: &SessionHandle) -> Vec<ConfigOption> {
    let choice = session.choice();
    let model = resolve_model(session, &choice);
    let option = |id, name, category, value| ConfigOption {
        id,
        name,
        description: None,
        category: Some(category),
        value,
    };
    let mut out = vec![
        option(
            MODE,
            "Mode",
            ConfigOptionCategory::Mode,
            ConfigOptionState::Select {
                current: choice.agent.clone(),
                values: modes(session, &choice.agent),
            },
        ),
        option(
            MODEL,
            "Model",
            ConfigOptionCategory::Model,
            models(session, &model),
        ),
    ];
    let efforts = session
        .project()
        .models
        .find(&model)
        .map(|(model, _)| model.efforts.clone())
        .unwrap_or_default();
    if !efforts.is_empty() {
        let names = std::iter::once(DEFAULT_EFFORT.to_owned()).chain(efforts);
        let value = |name: String| plain_value(name.clone(), text::capitalised(&name));
        let current = model.effort.as_deref().unwrap_or(DEFAULT_EFFORT).to_owned();
        out.push(option(
            EFFORT,
            "Effort",
            ConfigOptionCategory::Effort,
            ConfigOptionState::Select {
                current,
                values: names.map(value).collect(),
            },
        ));
    }
    out.push(approvals_option(
        choice.approvals(),
        session.has_working_sandbox(),
    ));
    out.push(steer_option(
        choice.steers(),
        server.capabilities().display.boolean_options,
    ));
    out
}

/// Returns a value without a description or colour.
fn plain_value(id: String, name: String) -> ConfigOptionValue {
    ConfigOptionValue {
        id,
        name,
        description: None,
        color: None,
    }
}

/// Builds the approvals option. `Sandboxed` is offered only if a trial run has confirmed the
/// sandbox.
fn approvals_option(current: Approvals, has_sandbox: bool) -> ConfigOption {
    let is_offered = |approvals: &Approvals| {
        *approvals == current || *approvals != Approvals::Sandboxed || has_sandbox
    };
    let values = Approvals::ALL
        .into_iter()
        .filter(is_offered)
        .map(approvals_value)
        .collect();
    let value = ConfigOptionState::Select {
        current: current.as_str().to_owned(),
        values,
    };
    ConfigOption {
        id: APPROVALS,
        name: "Approvals",
        description: None,
        category: None,
        value,
    }
}

/// Builds the steering option: a switch if the client supports switches, otherwise a list of two
/// values.
fn steer_option(is_on: bool, shows_switches: bool) -> ConfigOption {
    let [(on, _, description_of_on), (off, ..)] = STEER_VALUES;
    if shows_switches {
        return ConfigOption {
            id: STEER,
            name: "Steer with new messages",
            description: Some(description_of_on),
            category: None,
            value: ConfigOptionState::Switch(is_on),
        };
    }
    let option_value = |(id, name, description): (&str, &str, &str)| ConfigOptionValue {
        id: id.to_owned(),
        name: name.to_owned(),
        description: Some(description.to_owned()),
        color: None,
    };
    let value = ConfigOptionState::Select {
        current: if is_on { on } else { off }.to_owned(),
        values: STEER_VALUES.map(option_value).to_vec(),
    };
    ConfigOption {
        id: STEER,
        name: "New messages",
        description: None,
        category: None,
        value,
    }
}

/// Returns the primary agents, which ACP presents as modes.
fn modes(session: &SessionHandle, current: &str) -> Vec<ConfigOptionValue> {
    let option_value = |agent: &Arc<Agent>| ConfigOptionValue {
        id: agent.name.clone(),
        name: if agent.label == agent.name {
            text::capitalised(&agent.name)
        } else {
            text::shown(&agent.label).into_owned()
        },
        description: agent
            .description
            .as_ref()
            .map(|description| text::shown(description).into_owned()),
        color: agent.color.clone(),
    };
    session
        .project()
        .agents
        .modes_with(current)
        .iter()
        .map(option_value)
        .collect()
}

/// Returns the models: first the recently used ones, then the others by provider. The current model
/// is among them even if it is no longer found. Few models form one list, many are grouped.
fn models(session: &SessionHandle, current: &ModelRef) -> ConfigOptionState {
    const MAX_UNGROUPED: usize = 12;
    let models = session.project().models.clone();
    let recent = models.recent();
    let rank = |model: &Model| {
        recent.iter().position(|known| {
            (&known.provider, &known.model) == (&model.id.provider, &model.id.model)
        })
    };
    let (mut used, others): (Vec<_>, Vec<_>) = models
        .all()
        .into_iter()
        .partition(|model| rank(model).is_some());
    used.sort_by_key(|model| rank(model));
    let with_provider = |model: &Arc<Model>| {
        let name = format!("{}/{}", model.provider_name, model.name);
        model_value(model, name)
    };
    let named = models.find(current).ok();
    let current = current.to_string();
    let is_missing = used
        .iter()
        .chain(&others)
        .all(|model| model.id.to_string() != current);
    // The user has chosen a model that is not listed. Its server may know it.
    let missing = is_missing.then(|| match &named {
        Some((model, _)) => ConfigOptionValue {
            id: current.clone(),
            ..model_value(model, current.clone())
        },
        None => plain_value(current.clone(), current.clone()),
    });
    if used.len() + others.len() <= MAX_UNGROUPED {
        return ConfigOptionState::Select {
            current,
            values: missing
                .into_iter()
                .chain(used.iter().chain(&others).map(with_provider))
                .collect(),
        };
    }
    let recently_used: Vec<_> = missing
        .into_iter()
        .chain(used.iter().map(with_provider))
        .collect();
    let mut groups = Vec::new();
    if !recently_used.is_empty() {
        groups.push(ConfigOptionGroup {
            id: RECENT.to_owned(),
            name: "Recently used".to_owned(),
            values: recently_used,
        });
    }
    for group in others.chunk_by(|a, b| a.id.provider == b.id.provider) {
        let Some(first) = group.first() else { continue };
        let values = group
            .iter()
            .map(|model| model_value(model, model.name.clone()))
            .collect();
        groups.push(ConfigOptionGroup {
            id: first.id.provider.clone(),
            name: first.provider_name.clone(),
            values,
        });
    }
    ConfigOptionState::GroupedSelect { current, groups }
}

/// Returns a model as a value. The description is its address, if the editor has set that.
fn model_value(model: &Model, name: String) -> ConfigOptionValue {
    let address = model.editor_address.as_deref();
    ConfigOptionValue {
        description: address.map(|address| format!("At {address}, set by the editor.")),
        ..plain_value(model.id.to_string(), name)
    }
}

/// The value that the user has chosen for an option.
#[derive(Debug, Clone, Copy)]
pub enum ChosenValue<'a> {
    /// The id of a value.
    Value(&'a str),
    Switch(bool),
}

/// Returns whether a value of an option needs the sandbox for commands.
pub fn needs_sandbox(option: &str, value: &str) -> bool {
    option == APPROVALS && value == Approvals::Sandboxed.as_str()
}

/// Chooses a value for an option, and returns all options with it applied.
///
/// # Errors
/// There is no such option or value, or the session's mailbox is full.
pub fn choose(
    server: &Server,
    session: &SessionHandle,
    option: &str,
    chosen: ChosenValue<'_>,
) -> Result<ChoiceReply<Vec<ConfigOption>>, RequestError> {
    let invalid = |why: &str| RequestError::Invalid(why.into());
    let written = match (option, chosen) {
        (STEER, ChosenValue::Switch(on)) => session.choose_steering(on)?,
        (_, ChosenValue::Switch(_)) => {
            return Err(invalid("the value of this option must be a string"));
        }
        (MODE, ChosenValue::Value(mode)) => choose_mode(session, mode)?,
        (MODEL, ChosenValue::Value(model)) => choose_model(session, model)?,
        (EFFORT, ChosenValue::Value(effort)) => choose_effort(session, effort)?,
        (APPROVALS, ChosenValue::Value(value)) => choose_approvals(session, value)?,
        (STEER, ChosenValue::Value(value)) => {
            let known = STEER_VALUES.iter().find(|(id, ..)| *id == value);
            let (id, ..) = known.ok_or_else(|| invalid("the value must be on or off"))?;
            session.choose_steering(*id == "on")?
        }
        _ => {
            let offered = config_options(server, session);
            let names: Vec<&str> = offered.iter().map(|option| option.id).collect();
            return Err(RequestError::Invalid(format!(
                "there is no option \"{}\"; the options are: {}",
                text::title(option),
                names.join(", ")
            )));
        }
    };
    let response = config_options(server, session);
    Ok(ChoiceReply {
        response,
        pending_write: Some((session.clone(), written)),
    })
}

/// Chooses the approvals, if the value exists and its sandbox is available.
fn choose_approvals(session: &SessionHandle, value: &str) -> Result<SavedReceiver, RequestError> {
    let unknown_value = || {
        let offered = Approvals::ALL.into_iter().filter(|approvals| {
            *approvals != Approvals::Sandboxed || session.has_working_sandbox()
        });
        let names: Vec<&str> = offered.map(Approvals::as_str).collect();
        format!(
            "\"{}\" is not a value of approvals; choose one of: {}",
            text::title(value),
            names.join(", ")
        )
    };
    let chosen = Approvals::named(value).ok_or_else(|| RequestError::Invalid(unknown_value()))?;
    if chosen == Approvals::Sandboxed && !session.has_working_sandbox() {
        let why =
            "no sandbox that contains all commands is available here; `adjutant doctor` shows why";
        return Err(RequestError::Invalid(why.into()));
    }
    Ok(session.choose_approvals(chosen)?)
}

/// Chooses a mode, if it exists. It takes effect at the next step, even in a running turn.
///
/// # Errors
/// There is no such mode; the message lists the modes.
pub fn choose_mode(session: &SessionHandle, mode: &str) -> Result<SavedReceiver, RequestError> {
    let chosen = session.choice().agent;
    let modes = session.project().agents.modes_with(&chosen);
    let can_lead = |name: &str| {
        let agent = session.project().agents.get(name);
        agent.is_some_and(|agent| agent.can_lead() || agent.name == chosen)
    };
    if can_lead(mode) {
        return Ok(session.choose_agent(mode)?);
    }
    let mut in_other_capitals = modes
        .iter()
        .filter(|agent| agent.name.eq_ignore_ascii_case(mode));
    if let (Some(only), None) = (in_other_capitals.next(), in_other_capitals.next()) {
        return Ok(session.choose_agent(&only.name)?);
    }
    let names: Vec<&str> = modes.iter().map(|agent| agent.name.as_str()).collect();
    Err(RequestError::Invalid(format!(
        "there is no mode \"{}\"; there are: {}",
        text::title(mode),
        names.join(", ")
    )))
}

/// Chooses an effort, if the model supports it.
fn choose_effort(session: &SessionHandle, effort: &str) -> Result<SavedReceiver, RequestError> {
    let now = current_model(session);
    let known = session
        .project()
        .models
        .find(&now)
        .map(|(model, _)| model.efforts.clone())
        .unwrap_or_default();
    if effort != DEFAULT_EFFORT && !known.iter().any(|known_effort| known_effort == effort) {
        if known.is_empty() {
            return Err(RequestError::Invalid(format!(
                "{now} has no efforts to choose from"
            )));
        }
        let known = [DEFAULT_EFFORT]
            .into_iter()
            .chain(known.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(", ");
        return Err(RequestError::Invalid(format!(
            "{now} has no effort \"{}\"; it has: {known}",
            text::title(effort)
        )));
    }
    let chosen = ModelRef {
        effort: (effort != DEFAULT_EFFORT).then(|| effort.to_owned()),
        ..now
    };
    Ok(session.choose_model(chosen)?)
}

/// Returns the error message for a model name without a provider, with the models that have a
/// similar name.
fn missing_provider_message(session: &SessionHandle, name: &str) -> String {
    let models = &session.project().models;
    let named = models.nearest(name);
    if named.is_empty() {
        if let Some(why) = models.obstacle_to_named(name) {
            return why;
        }
        return "a model is written as provider/model, such as openai/gpt-5; `adjutant models` lists those you can use".to_owned();
    }
    format!(
        "a model is written as provider/model. Did you mean {}?",
        text::alternatives(&named)
    )
}

/// Chooses a model by its name or an alias, if it exists.
///
/// # Errors
/// There is no such model or provider; the message names it.
pub fn choose_model(session: &SessionHandle, model: &str) -> Result<SavedReceiver, RequestError> {
    let models = &session.project().models;
    let named = ModelRef::parse(model).filter(|named| models.find(named).is_ok());
    let mut chosen = named
        .or_else(|| models.named(model))
        .or_else(|| ModelRef::parse(model))
        .ok_or_else(|| RequestError::Invalid(missing_provider_message(session, model)))?;
    match models.find(&chosen) {
        // Another name of a model becomes its name in the list.
        Ok((model, _)) => chosen.model.clone_from(&model.id.model),
        // A server on this machine may still be asked for its models; the turn asks it again.
        Err(_) if local::is_known(&chosen.provider) => {}
        Err(missing) => return Err(RequestError::Invalid(missing.to_string())),
    }
    Ok(session.choose_model(chosen)?)
}

/// Returns the model that the session's next request goes to.
pub fn current_model(session: &SessionHandle) -> ModelRef {
    resolve_model(session, &session.choice())
}

/// Returns the model that a choice resolves to.
fn resolve_model(session: &SessionHandle, choice: &SessionChoices) -> ModelRef {
    let project = session.project();
    step_context::resolve_model(
        choice,
        project.agents.get(&choice.agent).as_deref(),
        &project.models,
    )
}
