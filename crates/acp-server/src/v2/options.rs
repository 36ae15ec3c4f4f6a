//! Encodes config options with the types of version 2, and handles the request that chooses a value.

use std::sync::Arc;

use protocol::acp::v2;
use protocol::table::{Reply, RequestContext};

use crate::error::RequestError;
use crate::meta::Meta;
use crate::options::{self, ChosenValue};
use crate::server::{ChoiceReply, Server};
use crate::view::{
    ConfigOption, ConfigOptionCategory, ConfigOptionGroup, ConfigOptionState, ConfigOptionValue,
};
use session::SessionHandle;

/// Encodes the config options of a session.
pub(super) fn encode(config_options: Vec<ConfigOption>) -> Vec<v2::SessionConfigOption> {
    config_options.into_iter().map(encode_option).collect()
}

/// Returns the config options of a session.
pub(super) fn options_of(server: &Server, session: &SessionHandle) -> Vec<v2::SessionConfigOption> {
    encode(options::config_options(server, session))
}

fn encode_option(config_option: ConfigOption) -> v2::SessionConfigOption {
    let ConfigOption {
        id,
        name,
        description,
        category,
        value,
    } = config_option;
    let option = match value {
        ConfigOptionState::Switch(on) => v2::SessionConfigOption::boolean(id, name, on),
        ConfigOptionState::Select { current, values } => v2::SessionConfigOption::select(
            id,
            name,
            current,
            values.into_iter().map(select_value).collect::<Vec<_>>(),
        ),
        ConfigOptionState::GroupedSelect { current, groups } => v2::SessionConfigOption::select(
            id,
            name,
            current,
            groups.into_iter().map(group).collect::<Vec<_>>(),
        ),
    };
    let category = category.map(|category| match category {
        ConfigOptionCategory::Mode => v2::SessionConfigOptionCategory::Mode,
        ConfigOptionCategory::Model => v2::SessionConfigOptionCategory::Model,
        ConfigOptionCategory::Effort => v2::SessionConfigOptionCategory::ThoughtLevel,
    });
    option
        .description(description.map(str::to_owned))
        .category(category)
}

fn select_value(value: ConfigOptionValue) -> v2::SessionConfigSelectOption {
    let color = value.color.map(|color| ("color".to_owned(), color.into()));
    v2::SessionConfigSelectOption::new(value.id, value.name)
        .description(value.description)
        .meta(color.map(|color| Meta::from_iter([color])))
}

fn group(group: ConfigOptionGroup) -> v2::SessionConfigSelectGroup {
    let values = group.values.into_iter().map(select_value).collect();
    v2::SessionConfigSelectGroup::new(group.id, group.name, values)
}

/// Chooses a value of a config option (`session/set_config_option`).
pub(super) fn set_config_option(
    server: &Arc<Server>,
    _: RequestContext,
    request: v2::SetSessionConfigOptionRequest,
) -> Reply<v2::SetSessionConfigOptionResponse> {
    let server = server.clone();
    let id = request.session_id.0.clone();
    let needs_sandbox = matches!(&request.value, v2::SessionConfigOptionValue::Id { value }
        if options::needs_sandbox(&request.config_id.0, &value.0));
    server
        .clone()
        .choose_with_sandbox(&id, needs_sandbox, move || {
            let session = server.session(&request.session_id.0)?;
            let chosen = match &request.value {
                v2::SessionConfigOptionValue::Boolean { value } => ChosenValue::Switch(*value),
                v2::SessionConfigOptionValue::Id { value } => ChosenValue::Value(&value.0),
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
            Ok(ChoiceReply {
                response: v2::SetSessionConfigOptionResponse::new(encode(response)),
                pending_write,
            })
        })
}
