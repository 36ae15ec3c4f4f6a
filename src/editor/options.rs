//! Mode, model and effort as session config options.

use std::sync::Arc;

use protocol::acp::{Empty, SetModel, v1};
use protocol::table::{Cx, Reply};

use super::error::Refusal;
use super::modes;
use super::server::{ChoiceReply, Server};
use super::update;
use crate::message::ModelRef;
use crate::model::Model;
use crate::session::Handle;
use crate::session::handle::{MailboxError, SavedReceiver};
use crate::text;
use crate::turn::{Choice, frame};

const MODE: &str = "mode";
const MODEL: &str = "model";
const EFFORT: &str = "effort";
/// What becomes of a message that comes while a turn runs: the values, their names, what they mean.
const STEER: &str = "steer";
const STEERS: [(&str, &str, &str); 2] = [
    ("on", "Steer", "A message sent while the agent works reaches it before its next step."),
    ("off", "Wait", "A message sent while the agent works is answered afterwards."),
];
/// The effort that leaves it to the provider.
const DEFAULT: &str = "default";

/// What was chosen and has not taken effect yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pending<'a> {
    /// The mode.
    pub mode: Option<&'a str>,
    /// The model.
    pub model: Option<&'a ModelRef>,
    /// Whether messages steer.
    pub steer: Option<bool>,
}

/// The options of a session as they will be once what is pending has taken effect.
pub fn options(server: &Server, session: &Handle, pending: Pending<'_>) -> Vec<v1::SessionConfigOption> {
    let mut choice = session.choice();
    if let Some(mode) = pending.mode {
        choice.agent = mode.to_owned();
    }
    choice.model = pending.model.cloned().or(choice.model);
    let mode = choice.agent.as_str();
    let model = meant(session, &choice);
    let mut out = vec![
        select(MODE, "Mode", v1::SessionConfigOptionCategory::Mode, mode, mode_values(session)),
        select(
            MODEL,
            "Model",
            v1::SessionConfigOptionCategory::Model,
            &model.to_string(),
            model_values(session, &model),
        ),
    ];
    let efforts = session.project().models.find(&model).map(|(model, _)| model.efforts.clone()).unwrap_or_default();
    if !efforts.is_empty() {
        let names = std::iter::once(DEFAULT.to_owned()).chain(efforts);
        let value = |name: String| v1::SessionConfigSelectOption::new(name.clone(), text::capitalised(&name));
        let values: Vec<_> = names.map(value).collect();
        let now = model.effort.as_deref().unwrap_or(DEFAULT);
        out.push(select(EFFORT, "Effort", v1::SessionConfigOptionCategory::ThoughtLevel, now, values));
    }
    out.push(steering(pending.steer.unwrap_or(choice.steers()), server.capabilities().shows.switches));
    out
}

/// A switch where the editor has them, else a choice of two.
fn steering(on: bool, switches: bool) -> v1::SessionConfigOption {
    let [(yes, _, meaning), (no, ..)] = STEERS;
    if switches {
        let kind = v1::SessionConfigKind::Boolean(v1::SessionConfigBoolean::new(on));
        return v1::SessionConfigOption::new(STEER, "Steer with new messages", kind).description(meaning.to_owned());
    }
    let one = |(word, name, what): (&str, &str, &str)| {
        v1::SessionConfigSelectOption::new(word.to_owned(), name).description(what.to_owned())
    };
    plain(STEER, "New messages", if on { yes } else { no }, STEERS.map(one).to_vec())
}

fn select(
    id: &str,
    name: &str,
    category: v1::SessionConfigOptionCategory,
    now: &str,
    values: impl Into<v1::SessionConfigSelectOptions>,
) -> v1::SessionConfigOption {
    plain(id, name, now, values).category(category)
}

fn plain(
    id: &str,
    name: &str,
    now: &str,
    values: impl Into<v1::SessionConfigSelectOptions>,
) -> v1::SessionConfigOption {
    let kind = v1::SessionConfigKind::Select(v1::SessionConfigSelect::new(now.to_owned(), values));
    v1::SessionConfigOption::new(id.to_owned(), name, kind)
}

fn mode_values(session: &Handle) -> Vec<v1::SessionConfigSelectOption> {
    let one = |agent: &Arc<crate::agent::Agent>| {
        let option = v1::SessionConfigSelectOption::new(agent.name.clone(), text::capitalised(&agent.name));
        match &agent.description {
            Some(text) => option.description(text::shown(text).into_owned()),
            None => option,
        }
    };
    session.project().agents.modes_with(&session.choice().agent).iter().map(one).collect()
}

/// The models there are: what was chosen here before, then the others by provider; the current one
/// is among them even when it cannot be found any more. A few are one list, many are in groups.
fn model_values(session: &Handle, now: &ModelRef) -> v1::SessionConfigSelectOptions {
    const A_FEW: usize = 12;
    let models = session.project().models.clone();
    let recent = models.recent();
    let place = |model: &Model| {
        recent.iter().position(|known| (&known.provider, &known.model) == (&model.id.provider, &model.id.model))
    };
    let (mut before, others): (Vec<_>, Vec<_>) = models.all().into_iter().partition(|model| place(model).is_some());
    before.sort_by_key(|model| place(model));
    let value = |id: String, name: String| v1::SessionConfigSelectOption::new(id, name);
    let whole = |model: &Arc<Model>| value(model.id.to_string(), format!("{}/{}", model.provider_name, model.name));
    let now = now.to_string();
    let missing = before.iter().chain(&others).all(|model| model.id.to_string() != now);
    let missing = missing.then(|| value(now.clone(), now));
    if before.len() + others.len() <= A_FEW {
        return missing.into_iter().chain(before.iter().chain(&others).map(whole)).collect::<Vec<_>>().into();
    }
    let first: Vec<_> = missing.into_iter().chain(before.iter().map(whole)).collect();
    let mut groups = Vec::new();
    if !first.is_empty() {
        groups.push(v1::SessionConfigSelectGroup::new("recent".to_owned(), "Recently used", first));
    }
    for of_one in others.chunk_by(|a, b| a.id.provider == b.id.provider) {
        let Some(one) = of_one.first() else { continue };
        let values = of_one.iter().map(|model| value(model.id.to_string(), model.name.clone())).collect();
        groups.push(v1::SessionConfigSelectGroup::new(one.id.provider.clone(), one.provider_name.clone(), values));
    }
    groups.into()
}

/// session/set_config_option.
pub fn set_config_option(
    server: &Arc<Server>,
    cx: Cx,
    request: v1::SetSessionConfigOptionRequest,
) -> Reply<v1::SetSessionConfigOptionResponse> {
    let (server, id) = (server.clone(), request.session_id.0.clone());
    server.clone().when_open(&id, move || {
        let session = server.session(&request.session_id.0)?;
        let option = &*request.config_id.0;
        if let (STEER, v1::SessionConfigOptionValue::Boolean { value }) = (option, &request.value) {
            return Ok(steer(&server, &session, *value)?);
        }
        let v1::SessionConfigOptionValue::ValueId { value } = &request.value else {
            return Err(Refusal::Invalid("the value of this option is a text".into()));
        };
        let value: &str = &value.0;
        let (written, mode, model) = match option {
            MODE => {
                let written = modes::choose(&session, value)?;
                cx.after(announce_mode(server.clone(), session.clone(), value.to_owned()));
                (written, Some(value), None)
            }
            MODEL => {
                let (chosen, written) = choose_model(&session, value)?;
                (written, None, Some(chosen))
            }
            EFFORT => {
                let (chosen, written) = choose_effort(&session, value)?;
                (written, None, Some(chosen))
            }
            STEER => {
                let Some((word, ..)) = STEERS.iter().find(|(word, ..)| *word == value) else {
                    return Err(Refusal::Invalid("there is on and off".into()));
                };
                return Ok(steer(&server, &session, *word == "on")?);
            }
            _ => {
                return Err(Refusal::Invalid(format!(
                    "there is no such option; there are: {MODE}, {MODEL}, {EFFORT}, {STEER}"
                )));
            }
        };
        let options = options(&server, &session, Pending { mode, model: model.as_ref(), steer: None });
        let response = v1::SetSessionConfigOptionResponse::new(options);
        Ok(ChoiceReply { response, kept: Some((session, written)) })
    })
}

fn steer(
    server: &Server,
    session: &Handle,
    on: bool,
) -> Result<ChoiceReply<v1::SetSessionConfigOptionResponse>, MailboxError> {
    let written = session.choose_steer(on)?;
    let options = options(server, session, Pending { steer: Some(on), ..Pending::default() });
    Ok(ChoiceReply {
        response: v1::SetSessionConfigOptionResponse::new(options),
        kept: Some((session.clone(), written)),
    })
}

/// Chooses an effort, if the model has such a one.
fn choose_effort(session: &Handle, effort: &str) -> Result<(ModelRef, SavedReceiver), Refusal> {
    let now = current_model(session);
    let known = session.project().models.find(&now).map(|(model, _)| model.efforts.clone()).unwrap_or_default();
    if effort != DEFAULT && !known.iter().any(|one| one == effort) {
        let known = known.join(", ");
        return Err(Refusal::Invalid(format!("{now} has no such effort; it has: {DEFAULT}, {known}")));
    }
    let chosen = ModelRef { effort: (effort != DEFAULT).then(|| effort.to_owned()), ..now };
    let written = session.choose_model(chosen.clone())?;
    Ok((chosen, written))
}

/// session/set_model, for the editors that still call it. They may choose the model that is chosen
/// already, and must not lose the effort by it.
pub fn set_model(server: &Arc<Server>, cx: Cx, request: SetModel) -> Reply<Empty> {
    let (server, id) = (server.clone(), request.session_id.0.clone());
    server.clone().when_open(&id, move || {
        let session = server.session(&request.session_id.0)?;
        if current_model(&session).to_string() == request.model_id {
            return Ok(ChoiceReply { response: Empty {}, kept: None });
        }
        let (model, written) = choose_model(&session, &request.model_id)?;
        cx.after(announce_model(server, session.clone(), model));
        Ok(ChoiceReply { response: Empty {}, kept: Some((session, written)) })
    })
}

/// Chooses a model, if there is such a one.
fn choose_model(session: &Handle, model: &str) -> Result<(ModelRef, SavedReceiver), Refusal> {
    let chosen =
        ModelRef::parse(model).ok_or_else(|| Refusal::Invalid("a model is written as provider/model".into()))?;
    session.project().models.find(&chosen).map_err(|missing| Refusal::Invalid(missing.to_string()))?;
    let written = session.choose_model(chosen.clone())?;
    Ok((chosen, written))
}

/// Tells the editor the options with this model: after the model was set by other means.
async fn announce_model(server: Arc<Server>, session: Handle, model: ModelRef) {
    let options = options(&server, &session, Pending { model: Some(&model), ..Pending::default() });
    let update = v1::SessionUpdate::ConfigOptionUpdate(v1::ConfigOptionUpdate::new(options));
    update::send(&server.peer, &session.id, update).await;
}

fn current_model(session: &Handle) -> ModelRef {
    meant(session, &session.choice())
}

/// The model that a choice means.
fn meant(session: &Handle, choice: &Choice) -> ModelRef {
    let project = session.project();
    frame::resolve_model(choice, project.agents.get(&choice.agent).as_deref(), &project.models)
}

/// Tells the editor the options as they are from now on: after the mode was set by other means.
pub async fn announce_options(server: Arc<Server>, session: Handle, mode: Option<String>) {
    let options = options(&server, &session, Pending { mode: mode.as_deref(), ..Pending::default() });
    let update = v1::SessionUpdate::ConfigOptionUpdate(v1::ConfigOptionUpdate::new(options));
    update::send(&server.peer, &session.id, update).await;
}

/// Tells the editor which mode it is from now on: after the option was set.
async fn announce_mode(server: Arc<Server>, session: Handle, mode: String) {
    let update = v1::SessionUpdate::CurrentModeUpdate(v1::CurrentModeUpdate::new(mode));
    update::send(&server.peer, &session.id, update).await;
}
