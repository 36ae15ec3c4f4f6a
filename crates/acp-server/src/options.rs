//! The config options of a session: mode, model, effort, approvals, steering, in all protocol
//! versions.

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

/// The option that version 1 also has as a mode.
pub const MODE: &str = "mode";
pub const MODEL: &str = "model";
/// The group of recently used models.
pub const RECENT: &str = "recent";
const EFFORT: &str = "effort";
/// The treatment of messages sent while a turn runs: values, names and descriptions.
const STEER: &str = "steer";
const STEERS: [(&str, &str, &str); 2] = [
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
/// The number of questions that a session asks.
const APPROVALS: &str = "approvals";

fn approval(one: Approvals) -> ConfigOptionValue {
    let (name, description) = match one {
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
        id: one.as_str().to_owned(),
        name: name.to_owned(),
        description: Some(description.to_owned()),
        color: None,
    }
}

/// The value that leaves the effort to the provider.
const DEFAULT: &str = "default";

/// Returns the config options of a session, with all pending choices applied.
pub fn settings(server: &Server, session: &SessionHandle) -> Vec<ConfigOption> {
    let choice = session.choice();
    let model = resolve_model(session, &choice);
    let of = |id, name, category, value| ConfigOption {
        id,
        name,
        description: None,
        category: Some(category),
        value,
    };
    let mut out = vec![
        of(
            MODE,
            "Mode",
            ConfigOptionCategory::Mode,
            ConfigOptionState::Select {
                current: choice.agent.clone(),
                values: modes(session, &choice.agent),
            },
        ),
        of(
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
        let names = std::iter::once(DEFAULT.to_owned()).chain(efforts);
        let value = |name: String| alternative(name.clone(), text::capitalised(&name));
        let now = model.effort.as_deref().unwrap_or(DEFAULT).to_owned();
        out.push(of(
            EFFORT,
            "Effort",
            ConfigOptionCategory::Effort,
            ConfigOptionState::Select {
                current: now,
                values: names.map(value).collect(),
            },
        ));
    }
    out.push(approvals(choice.approvals(), session.has_working_sandbox()));
    out.push(steering(
        choice.steers(),
        server.capabilities().shows.boolean_options,
    ));
    out
}

fn alternative(id: String, name: String) -> ConfigOptionValue {
    ConfigOptionValue {
        id,
        name,
        description: None,
        color: None,
    }
}

/// Builds the approvals option. `Sandboxed` is offered only if a trial run has confirmed the
/// sandbox.
fn approvals(now: Approvals, sandboxes: bool) -> ConfigOption {
    let offered = |one: &Approvals| *one == now || *one != Approvals::Sandboxed || sandboxes;
    let values = Approvals::ALL
        .into_iter()
        .filter(offered)
        .map(approval)
        .collect();
    let value = ConfigOptionState::Select {
        current: now.as_str().to_owned(),
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
fn steering(on: bool, switches: bool) -> ConfigOption {
    let [(yes, _, meaning), (no, ..)] = STEERS;
    if switches {
        return ConfigOption {
            id: STEER,
            name: "Steer with new messages",
            description: Some(meaning),
            category: None,
            value: ConfigOptionState::Switch(on),
        };
    }
    let option_value = |(id, name, what): (&str, &str, &str)| ConfigOptionValue {
        id: id.to_owned(),
        name: name.to_owned(),
        description: Some(what.to_owned()),
        color: None,
    };
    let value = ConfigOptionState::Select {
        current: if on { yes } else { no }.to_owned(),
        values: STEERS.map(option_value).to_vec(),
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
fn modes(session: &SessionHandle, now: &str) -> Vec<ConfigOptionValue> {
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
            .map(|words| text::shown(words).into_owned()),
        color: agent.color.clone(),
    };
    session
        .project()
        .agents
        .modes_with(now)
        .iter()
        .map(option_value)
        .collect()
}

/// Returns the models: first the recently used ones, then the others by provider. The current model
/// is among them even if it is no longer found. Few models form one list, many are grouped.
fn models(session: &SessionHandle, now: &ModelRef) -> ConfigOptionState {
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
    let whole = |model: &Arc<Model>| {
        let name = format!("{}/{}", model.provider_name, model.name);
        of_model(model, name)
    };
    let named = models.find(now).ok();
    let now = now.to_string();
    let is_missing = used
        .iter()
        .chain(&others)
        .all(|model| model.id.to_string() != now);
    // The user has named it; its server may know it.
    let missing = is_missing.then(|| match &named {
        Some((model, _)) => ConfigOptionValue {
            id: now.clone(),
            ..of_model(model, now.clone())
        },
        None => alternative(now.clone(), now.clone()),
    });
    if used.len() + others.len() <= MAX_UNGROUPED {
        return ConfigOptionState::Select {
            current: now,
            values: missing
                .into_iter()
                .chain(used.iter().chain(&others).map(whole))
                .collect(),
        };
    }
    let first: Vec<_> = missing.into_iter().chain(used.iter().map(whole)).collect();
    let mut groups = Vec::new();
    if !first.is_empty() {
        groups.push(ConfigOptionGroup {
            id: RECENT.to_owned(),
            name: "Recently used".to_owned(),
            values: first,
        });
    }
    for of_one in others.chunk_by(|a, b| a.id.provider == b.id.provider) {
        let Some(one) = of_one.first() else { continue };
        let values = of_one
            .iter()
            .map(|model| of_model(model, model.name.clone()))
            .collect();
        groups.push(ConfigOptionGroup {
            id: one.id.provider.clone(),
            name: one.provider_name.clone(),
            values,
        });
    }
    ConfigOptionState::GroupedSelect {
        current: now,
        groups,
    }
}

/// Returns a model as a value, with its address if that is set by the editor.
fn of_model(model: &Model, name: String) -> ConfigOptionValue {
    let address = model.editor_address.as_deref();
    ConfigOptionValue {
        description: address.map(|address| format!("At {address}, set by the editor.")),
        ..alternative(model.id.to_string(), name)
    }
}

/// A chosen value.
#[derive(Debug, Clone, Copy)]
pub enum ChosenValue<'a> {
    Value(&'a str),
    Switch(bool),
}

/// Returns whether a value needs the sandbox for commands.
pub fn relies_on_sandbox(setting: &str, value: &str) -> bool {
    setting == APPROVALS && value == Approvals::Sandboxed.as_str()
}

/// Chooses a value for an option, and returns the options with it applied.
///
/// # Errors
/// There is no such option or value.
pub fn choose(
    server: &Server,
    session: &SessionHandle,
    setting: &str,
    chosen: ChosenValue<'_>,
) -> Result<ChoiceReply<Vec<ConfigOption>>, RequestError> {
    let wrong = |why: &str| RequestError::Invalid(why.into());
    let written = match (setting, chosen) {
        (STEER, ChosenValue::Switch(on)) => session.choose_steering(on)?,
        (_, ChosenValue::Switch(_)) => {
            return Err(wrong("the value of this option must be a string"));
        }
        (MODE, ChosenValue::Value(mode)) => choose_mode(session, mode)?,
        (MODEL, ChosenValue::Value(model)) => choose_model(session, model)?,
        (EFFORT, ChosenValue::Value(effort)) => choose_effort(session, effort)?,
        (APPROVALS, ChosenValue::Value(word)) => choose_approvals(session, word)?,
        (STEER, ChosenValue::Value(value)) => {
            let known = STEERS.iter().find(|(word, ..)| *word == value);
            let (word, ..) = known.ok_or_else(|| wrong("the value must be on or off"))?;
            session.choose_steering(*word == "on")?
        }
        _ => {
            let offered = settings(server, session);
            let names: Vec<&str> = offered.iter().map(|setting| setting.id).collect();
            return Err(RequestError::Invalid(format!(
                "there is no option \"{}\"; the options are: {}",
                text::title(setting),
                names.join(", ")
            )));
        }
    };
    let response = settings(server, session);
    Ok(ChoiceReply {
        response,
        pending_write: Some((session.clone(), written)),
    })
}

/// Chooses the approvals.
fn choose_approvals(session: &SessionHandle, word: &str) -> Result<SavedReceiver, RequestError> {
    let known = || {
        let offered = Approvals::ALL.into_iter().filter(|approvals_value| {
            *approvals_value != Approvals::Sandboxed || session.has_working_sandbox()
        });
        let names: Vec<&str> = offered.map(Approvals::as_str).collect();
        format!(
            "\"{}\" is not a value of approvals; choose one of: {}",
            text::title(word),
            names.join(", ")
        )
    };
    let chosen = Approvals::named(word).ok_or_else(|| RequestError::Invalid(known()))?;
    if chosen == Approvals::Sandboxed && !session.has_working_sandbox() {
        let why =
            "no sandbox that contains all commands is available here; `adjutant doctor` shows why";
        return Err(RequestError::Invalid(why.into()));
    }
    Ok(session.choose_approvals(chosen)?)
}

/// Chooses a mode, if it exists. It takes effect at the next step, also of a running turn.
///
/// # Errors
/// [`RequestError::Invalid`], listing the modes.
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
    if effort != DEFAULT && !known.iter().any(|known_effort| known_effort == effort) {
        if known.is_empty() {
            return Err(RequestError::Invalid(format!(
                "{now} has no efforts to choose from"
            )));
        }
        let known = [DEFAULT]
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
        effort: (effort != DEFAULT).then(|| effort.to_owned()),
        ..now
    };
    Ok(session.choose_model(chosen)?)
}

/// Describes the name of a model that lacks its provider, with the models that have a similar name.
fn without_provider(session: &SessionHandle, name: &str) -> String {
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

/// Chooses a model, if it exists.
///
/// # Errors
/// [`RequestError::Invalid`], with the missing part.
pub fn choose_model(session: &SessionHandle, model: &str) -> Result<SavedReceiver, RequestError> {
    let models = &session.project().models;
    let named = ModelRef::parse(model).filter(|named| models.find(named).is_ok());
    let mut chosen = named
        .or_else(|| models.of_alias(model))
        .or_else(|| models.only_named(model))
        .or_else(|| ModelRef::parse(model))
        .ok_or_else(|| RequestError::Invalid(without_provider(session, model)))?;
    match models.find(&chosen) {
        // Another name of a model becomes its name in the list.
        Ok((model, _)) => chosen.model.clone_from(&model.id.model),
        // A server on this machine may still be asked for its models; the turn asks it again.
        Err(_) if local::is_known(&chosen.provider) => {}
        Err(missing) => return Err(RequestError::Invalid(missing.to_string())),
    }
    Ok(session.choose_model(chosen)?)
}

/// Returns the model of the next request.
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
