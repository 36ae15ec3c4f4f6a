//! Config options, and the modes of version 1.

use std::sync::Arc;

use protocol::acp::{Empty, SessionModel, SessionModels, SetModel, v1};
use protocol::table::{Reply, RequestContext};

use super::line;
use crate::error::RequestError;
use crate::meta::Meta;
use crate::options::{self, ChosenValue, MODE, MODEL, RECENT};
use crate::server::{ChoiceReply, Server};
use crate::updates::UpdateSender;
use crate::view::{
    ConfigOption, ConfigOptionCategory, ConfigOptionGroup, ConfigOptionState, ConfigOptionValue,
};
use session::SessionHandle;

/// Encodes the config options of a session.
pub(super) fn encode(settings: Vec<ConfigOption>) -> Vec<v1::SessionConfigOption> {
    settings.into_iter().map(option).collect()
}

fn option(setting: ConfigOption) -> v1::SessionConfigOption {
    let ConfigOption {
        id,
        name,
        description,
        category,
        value,
    } = setting;
    let kind = match value {
        ConfigOptionState::Switch(on) => {
            v1::SessionConfigKind::Boolean(v1::SessionConfigBoolean::new(on))
        }
        ConfigOptionState::Select {
            current: now,
            values,
        } => select(now, values.into_iter().map(alternative).collect::<Vec<_>>()),
        ConfigOptionState::GroupedSelect {
            current: now,
            groups,
        } => select(now, groups.into_iter().map(group).collect::<Vec<_>>()),
    };
    let category = category.map(|category| match category {
        ConfigOptionCategory::Mode => v1::SessionConfigOptionCategory::Mode,
        ConfigOptionCategory::Model => v1::SessionConfigOptionCategory::Model,
        ConfigOptionCategory::Effort => v1::SessionConfigOptionCategory::ThoughtLevel,
    });
    v1::SessionConfigOption::new(id, name, kind)
        .description(description.map(str::to_owned))
        .category(category)
}

fn select(now: String, values: impl Into<v1::SessionConfigSelectOptions>) -> v1::SessionConfigKind {
    v1::SessionConfigKind::Select(v1::SessionConfigSelect::new(now, values))
}

fn alternative(one: ConfigOptionValue) -> v1::SessionConfigSelectOption {
    let meta = colored(&one);
    v1::SessionConfigSelectOption::new(one.id, one.name)
        .description(one.description)
        .meta(meta)
}

/// Returns the metadata of an agent that has a colour.
fn colored(one: &ConfigOptionValue) -> Option<Meta> {
    let color = one.color.as_deref()?;
    Some(Meta::from_iter([("color".to_owned(), color.into())]))
}

fn group(group: ConfigOptionGroup) -> v1::SessionConfigSelectGroup {
    let values = group.values.into_iter().map(alternative).collect();
    v1::SessionConfigSelectGroup::new(group.id, group.name, values)
}

/// Returns the config options of a session, with the mode also in the form of version 1, and the
/// model in the form that preceded config options.
pub(super) fn choices(
    server: &Server,
    session: &SessionHandle,
) -> (
    v1::SessionModeState,
    Vec<v1::SessionConfigOption>,
    Option<SessionModels>,
) {
    let settings = options::settings(server, session);
    let modes = settings.iter().find_map(|setting| match &setting.value {
        ConfigOptionState::Select {
            current: now,
            values,
        } if setting.id == MODE => Some((now.clone(), values.clone())),
        _ => None,
    });
    let (current, values) = modes.unwrap_or_default();
    let session_mode = |mode: ConfigOptionValue| {
        let meta = colored(&mode);
        v1::SessionMode::new(mode.id, mode.name)
            .description(mode.description)
            .meta(meta)
    };
    let modes = v1::SessionModeState::new(current, values.into_iter().map(session_mode).collect());
    let models = settings.iter().find(|setting| setting.id == MODEL);
    let models = models.and_then(|setting| legacy_models(&setting.value));
    (modes, encode(settings), models)
}

fn legacy_models(value: &ConfigOptionState) -> Option<SessionModels> {
    let model = |value: &ConfigOptionValue, name: String| SessionModel {
        model_id: value.id.clone(),
        name,
        description: value.description.clone(),
    };
    let (current, available_models) = match value {
        ConfigOptionState::Switch(_) => return None,
        ConfigOptionState::Select {
            current: now,
            values,
        } => {
            let models = values.iter().map(|value| model(value, value.name.clone()));
            (now, models.collect())
        }
        ConfigOptionState::GroupedSelect {
            current: now,
            groups,
        } => {
            let named = |group: &ConfigOptionGroup, value: &ConfigOptionValue| match &*group.id {
                RECENT => value.name.clone(),
                _ => format!("{}/{}", group.name, value.name),
            };
            let models = groups.iter().flat_map(|group| {
                let values = group.values.iter();
                values.map(move |value| model(value, named(group, value)))
            });
            (now, models.collect())
        }
    };
    Some(SessionModels {
        current_model_id: current.clone(),
        available_models,
    })
}

/// session/set_config_option. A new mode is also reported as a mode.
pub(super) fn set_config_option(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::SetSessionConfigOptionRequest,
) -> Reply<v1::SetSessionConfigOptionResponse> {
    let server = server.clone();
    let id = request.session_id.0.clone();
    let tries = matches!(&request.value, v1::SessionConfigOptionValue::ValueId { value }
        if options::relies_on_sandbox(&request.config_id.0, &value.0));
    server.clone().when_tried(&id, tries, move || {
        let session = server.session(&request.session_id.0)?;
        let chosen = match &request.value {
            v1::SessionConfigOptionValue::Boolean { value } => ChosenValue::Switch(*value),
            v1::SessionConfigOptionValue::ValueId { value } => ChosenValue::Value(&value.0),
            _ => {
                return Err(RequestError::Invalid(
                    "this kind of value is not supported".into(),
                ));
            }
        };
        let ChoiceReply {
            response,
            pending_write,
        } = options::choose(&server, &session, &request.config_id.0, chosen)?;
        if let (MODE, ChosenValue::Value(mode)) = (&*request.config_id.0, chosen) {
            let server = server.clone();
            let update = v1::CurrentModeUpdate::new(mode.to_owned());
            cx.after(async move {
                line::send(
                    &server.peer,
                    &session.id,
                    v1::SessionUpdate::CurrentModeUpdate(update),
                )
                .await;
            });
        }
        Ok(ChoiceReply {
            response: v1::SetSessionConfigOptionResponse::new(encode(response)),
            pending_write,
        })
    })
}

/// session/set_mode. Takes effect at the next step, also of a running turn.
pub(super) fn set_mode(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::SetSessionModeRequest,
) -> Reply<v1::SetSessionModeResponse> {
    let own = server.clone();
    let id = request.session_id.0.clone();
    server.when_open(&id, move || {
        let session = own.session(&request.session_id.0)?;
        let written = options::choose_mode(&session, &request.mode_id.0)?;
        let changed = session.clone();
        cx.after(async move { UpdateSender::new(&own, &changed).settings().await });
        Ok(ChoiceReply {
            response: v1::SetSessionModeResponse::default(),
            pending_write: Some((session, written)),
        })
    })
}

/// session/set_model, for clients that still use it. They may send the current model again, which
/// must not reset the effort.
pub(super) fn set_model(
    server: &Arc<Server>,
    cx: RequestContext,
    request: SetModel,
) -> Reply<Empty> {
    let server = server.clone();
    let id = request.session_id.0.clone();
    server.clone().when_open(&id, move || {
        let session = server.session(&request.session_id.0)?;
        if options::current_model(&session).to_string() == request.model_id {
            return Ok(ChoiceReply {
                response: Empty {},
                pending_write: None,
            });
        }
        let written = options::choose_model(&session, &request.model_id)?;
        let own = server.clone();
        let changed = session.clone();
        cx.after(async move { UpdateSender::new(&own, &changed).settings().await });
        Ok(ChoiceReply {
            response: Empty {},
            pending_write: Some((session, written)),
        })
    })
}
