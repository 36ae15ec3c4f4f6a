//! Encodes config options with the types of version 1, and handles the requests that choose a value.
//! Version 1 also presents the mode and the model outside of the config options.

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
pub(super) fn encode(config_options: Vec<ConfigOption>) -> Vec<v1::SessionConfigOption> {
    config_options.into_iter().map(encode_option).collect()
}

fn encode_option(config_option: ConfigOption) -> v1::SessionConfigOption {
    let ConfigOption {
        id,
        name,
        description,
        category,
        value,
    } = config_option;
    let kind = match value {
        ConfigOptionState::Switch(on) => {
            v1::SessionConfigKind::Boolean(v1::SessionConfigBoolean::new(on))
        }
        ConfigOptionState::Select { current, values } => select(
            current,
            values.into_iter().map(select_value).collect::<Vec<_>>(),
        ),
        ConfigOptionState::GroupedSelect { current, groups } => {
            select(current, groups.into_iter().map(group).collect::<Vec<_>>())
        }
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

fn select(
    current: String,
    values: impl Into<v1::SessionConfigSelectOptions>,
) -> v1::SessionConfigKind {
    v1::SessionConfigKind::Select(v1::SessionConfigSelect::new(current, values))
}

fn select_value(value: ConfigOptionValue) -> v1::SessionConfigSelectOption {
    let meta = color_meta(&value);
    v1::SessionConfigSelectOption::new(value.id, value.name)
        .description(value.description)
        .meta(meta)
}

/// Returns the metadata of an agent that has a colour.
fn color_meta(value: &ConfigOptionValue) -> Option<Meta> {
    let color = value.color.as_deref()?;
    Some(Meta::from_iter([("color".to_owned(), color.into())]))
}

fn group(group: ConfigOptionGroup) -> v1::SessionConfigSelectGroup {
    let values = group.values.into_iter().map(select_value).collect();
    v1::SessionConfigSelectGroup::new(group.id, group.name, values)
}

/// The config options of a session, in all forms that version 1 has for them.
pub(super) struct EncodedOptions {
    /// The mode, as the state of modes that preceded config options.
    pub(super) modes: v1::SessionModeState,
    pub(super) options: Vec<v1::SessionConfigOption>,
    /// The model, in the form that preceded config options.
    pub(super) models: Option<SessionModels>,
}

/// Returns the config options of a session.
pub(super) fn options_of(server: &Server, session: &SessionHandle) -> EncodedOptions {
    let config_options = options::config_options(server, session);
    let modes = config_options
        .iter()
        .find_map(|config_option| match &config_option.value {
            ConfigOptionState::Select { current, values } if config_option.id == MODE => {
                Some((current.clone(), values.clone()))
            }
            _ => None,
        });
    let (current, values) = modes.unwrap_or_default();
    let session_mode = |mode: ConfigOptionValue| {
        let meta = color_meta(&mode);
        v1::SessionMode::new(mode.id, mode.name)
            .description(mode.description)
            .meta(meta)
    };
    let modes = v1::SessionModeState::new(current, values.into_iter().map(session_mode).collect());
    let models = config_options
        .iter()
        .find(|config_option| config_option.id == MODEL);
    let models = models.and_then(|config_option| legacy_models(&config_option.value));
    EncodedOptions {
        modes,
        options: encode(config_options),
        models,
    }
}

fn legacy_models(value: &ConfigOptionState) -> Option<SessionModels> {
    let model = |value: &ConfigOptionValue, name: String| SessionModel {
        model_id: value.id.clone(),
        name,
        description: value.description.clone(),
    };
    let (current, available_models) = match value {
        ConfigOptionState::Switch(_) => return None,
        ConfigOptionState::Select { current, values } => {
            let models = values.iter().map(|value| model(value, value.name.clone()));
            (current, models.collect())
        }
        ConfigOptionState::GroupedSelect { current, groups } => {
            let named = |group: &ConfigOptionGroup, value: &ConfigOptionValue| match &*group.id {
                RECENT => value.name.clone(),
                _ => format!("{}/{}", group.name, value.name),
            };
            let models = groups.iter().flat_map(|group| {
                let values = group.values.iter();
                values.map(move |value| model(value, named(group, value)))
            });
            (current, models.collect())
        }
    };
    Some(SessionModels {
        current_model_id: current.clone(),
        available_models,
    })
}

/// Chooses a value of a config option (`session/set_config_option`). A new mode is also reported as a mode.
pub(super) fn set_config_option(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::SetSessionConfigOptionRequest,
) -> Reply<v1::SetSessionConfigOptionResponse> {
    let server = server.clone();
    let id = request.session_id.0.clone();
    let needs_sandbox = matches!(&request.value, v1::SessionConfigOptionValue::ValueId { value }
        if options::needs_sandbox(&request.config_id.0, &value.0));
    server
        .clone()
        .choose_with_sandbox(&id, needs_sandbox, move || {
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

/// Switches the mode (`session/set_mode`). It takes effect at the next step, even in a running turn.
pub(super) fn set_mode(
    server: &Arc<Server>,
    cx: RequestContext,
    request: v1::SetSessionModeRequest,
) -> Reply<v1::SetSessionModeResponse> {
    let own = server.clone();
    let id = request.session_id.0.clone();
    server.choose_in_order(&id, move || {
        let session = own.session(&request.session_id.0)?;
        let written = options::choose_mode(&session, &request.mode_id.0)?;
        let changed = session.clone();
        cx.after(async move {
            UpdateSender::new(&own, &changed)
                .send_config_options()
                .await
        });
        Ok(ChoiceReply {
            response: v1::SetSessionModeResponse::default(),
            pending_write: Some((session, written)),
        })
    })
}

/// Chooses a model (`session/set_model`), for clients that still use this request. They may send the
/// current model again, which must not reset the effort.
pub(super) fn set_model(
    server: &Arc<Server>,
    cx: RequestContext,
    request: SetModel,
) -> Reply<Empty> {
    let server = server.clone();
    let id = request.session_id.0.clone();
    server.clone().choose_in_order(&id, move || {
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
        cx.after(async move {
            UpdateSender::new(&own, &changed)
                .send_config_options()
                .await
        });
        Ok(ChoiceReply {
            response: Empty {},
            pending_write: Some((session, written)),
        })
    })
}
