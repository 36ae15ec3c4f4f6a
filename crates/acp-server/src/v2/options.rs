//! Config options.

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
pub(super) fn encode(settings: Vec<ConfigOption>) -> Vec<v2::SessionConfigOption> {
    settings.into_iter().map(option).collect()
}

/// Returns the config options of a session.
pub(super) fn choices(server: &Server, session: &SessionHandle) -> Vec<v2::SessionConfigOption> {
    encode(options::settings(server, session))
}

fn option(setting: ConfigOption) -> v2::SessionConfigOption {
    let ConfigOption {
        id,
        name,
        description,
        category,
        value,
    } = setting;
    let option = match value {
        ConfigOptionState::Switch(on) => v2::SessionConfigOption::boolean(id, name, on),
        ConfigOptionState::Select {
            current: now,
            values,
        } => v2::SessionConfigOption::select(
            id,
            name,
            now,
            values.into_iter().map(alternative).collect::<Vec<_>>(),
        ),
        ConfigOptionState::GroupedSelect {
            current: now,
            groups,
        } => v2::SessionConfigOption::select(
            id,
            name,
            now,
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

fn alternative(one: ConfigOptionValue) -> v2::SessionConfigSelectOption {
    let color = one.color.map(|color| ("color".to_owned(), color.into()));
    v2::SessionConfigSelectOption::new(one.id, one.name)
        .description(one.description)
        .meta(color.map(|color| Meta::from_iter([color])))
}

fn group(group: ConfigOptionGroup) -> v2::SessionConfigSelectGroup {
    let values = group.values.into_iter().map(alternative).collect();
    v2::SessionConfigSelectGroup::new(group.id, group.name, values)
}

/// session/set_config_option.
pub(super) fn set_config_option(
    server: &Arc<Server>,
    _: RequestContext,
    request: v2::SetSessionConfigOptionRequest,
) -> Reply<v2::SetSessionConfigOptionResponse> {
    let server = server.clone();
    let id = request.session_id.0.clone();
    let tries = matches!(&request.value, v2::SessionConfigOptionValue::Id { value }
        if options::relies_on_sandbox(&request.config_id.0, &value.0));
    server.clone().when_tried(&id, tries, move || {
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
