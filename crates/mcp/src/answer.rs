//! Answers the requests of a server to its client: elicitation (a form, or a page to visit) and the
//! directories of the session.

#![expect(
    deprecated,
    reason = "a draft drops roots; the servers of today have them"
)]

use std::path::Path;

use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema, ErrorData,
    ListRootsResult, MultiSelectEnumSchema, PrimitiveSchemaDefinition, Root,
    SingleSelectEnumSchema, StringFormat,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::connection::McpConnection;
use base::text;
use events::{
    ChoiceLimits, Event, FieldKind, FieldOption, FormField, FormPage, FormReply, Severity,
    TextFormat, TextLimits,
};

/// The limits of a form: fields, options of a field, characters of a message, and characters of a
/// title or a label.
const MAX_FIELDS: usize = 30;
const MAX_OPTIONS: usize = 200;
const MAX_MESSAGE_CHARS: usize = 4_000;
const MAX_LABEL_CHARS: usize = 200;

/// Returns the directories of the session.
pub(super) fn roots(connection: &McpConnection) -> ListRootsResult {
    ListRootsResult::new(
        connection
            .facts
            .roots
            .iter()
            .map(|path| root(path))
            .collect(),
    )
}

fn root(path: &Path) -> Root {
    let root = Root::new(uri(path));
    match path.file_name() {
        Some(name) => root.with_name(name.to_string_lossy().into_owned()),
        None => root,
    }
}

/// Returns the `file:` URL of a directory.
fn uri(path: &Path) -> String {
    reqwest::Url::from_directory_path(path).map_or_else(
        |()| format!("file://{}", path.display()),
        |url| url.as_str().trim_end_matches('/').to_owned(),
    )
}

/// Asks the user on behalf of a server. Declines if no user can be asked.
///
/// # Errors
/// Returns an error for a form beyond the limits, and for a URL that is not of the web.
pub(super) async fn elicit(
    connection: &McpConnection,
    params: ElicitRequestParams,
    withdrawn: &CancellationToken,
) -> Result<ElicitResult, ErrorData> {
    let declined = || Ok(ElicitResult::new(ElicitationAction::Decline));
    if !connection.facts.is_attended {
        return declined();
    }
    let Some(asker) = connection.current_asker() else {
        return declined();
    };
    let mut finished = None;
    let (message, page) = match params {
        ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } => {
            let fields =
                fields(&requested_schema).map_err(|why| ErrorData::invalid_params(why, None))?;
            (message, FormPage::Fields(fields))
        }
        ElicitRequestParams::UrlElicitationParams {
            message,
            url,
            elicitation_id,
            ..
        } => match reqwest::Url::parse(&url) {
            Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => {
                finished = Some(connection.register_url(elicitation_id));
                (message, FormPage::Url(parsed.into()))
            }
            _ => {
                return Err(ErrorData::invalid_params(
                    "only web addresses can be opened",
                    None,
                ));
            }
        },
        _ => return declined(),
    };
    let message =
        text::escaped(&text::cut_chars(message.trim(), MAX_MESSAGE_CHARS)).replace("\\n", "\n");
    let name = text::title(&connection.name);
    let is_form = matches!(page, FormPage::Fields(_));
    // The time that the user takes does not count against the time limit of the call.
    let Some(_question) = connection.register_question() else {
        return declined();
    };
    let reply = tokio::select! {
        reply = asker.show_form(format!("The MCP server {name} asks"), message, page, finished) => reply,
        () = withdrawn.cancelled() => FormReply::Cancelled,
    };
    Ok(match reply {
        FormReply::Accepted(content) if is_form => {
            ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content))
        }
        FormReply::Accepted(_) => ElicitResult::new(ElicitationAction::Accept),
        FormReply::Declined => ElicitResult::new(ElicitationAction::Decline),
        FormReply::Cancelled => ElicitResult::new(ElicitationAction::Cancel),
        FormReply::NotShown => {
            if connection.take_first_unshown() {
                let title =
                    format!("The MCP server {name} asked for input that this editor cannot show.");
                asker
                    .event_sender
                    .event(Event::Notice {
                        severity: Severity::Warning,
                        title,
                        details: None,
                    })
                    .await;
            }
            ElicitResult::new(ElicitationAction::Decline)
        }
    })
}

/// Returns the fields of a form, in the server's order.
fn fields(schema: &ElicitationSchema) -> Result<Vec<FormField>, String> {
    if schema.properties.len() > MAX_FIELDS {
        return Err(format!(
            "{} fields are asked for; {MAX_FIELDS} can be shown",
            schema.properties.len()
        ));
    }
    let required = schema.required.as_deref().unwrap_or_default();
    let names: Vec<&String> = match &schema.property_order {
        Some(order) => order.iter().collect(),
        None => schema.properties.keys().collect(),
    };
    let fields: Vec<FormField> = names
        .into_iter()
        .filter_map(|key| field(key, schema.properties.get(key)?, required.contains(key)))
        .collect();
    let has_too_many_options = |field: &&FormField| match &field.kind {
        FieldKind::SingleChoice(options, _) | FieldKind::MultipleChoice(options, _) => {
            options.len() > MAX_OPTIONS
        }
        _ => false,
    };
    match fields.iter().find(has_too_many_options) {
        Some(field) => Err(format!(
            "{} has more options than can be shown ({MAX_OPTIONS})",
            field.key
        )),
        None => Ok(fields),
    }
}

/// Returns a field of a form, or `None` for a type that is not supported.
fn field(key: &str, schema: &PrimitiveSchemaDefinition, required: bool) -> Option<FormField> {
    let (title, description, kind) = kind(schema)?;
    let title = title
        .filter(|title| !title.trim().is_empty())
        .unwrap_or_else(|| key.to_owned());
    let description =
        description.map(|text| text::escaped(&text::cut_chars(text.trim(), MAX_MESSAGE_CHARS)));
    let words = description.filter(|text| !text.is_empty());
    Some(FormField {
        key: key.to_owned(),
        title: label(&title),
        description: words,
        required,
        kind,
    })
}

fn label(title: &str) -> String {
    text::cut_chars(&text::escaped(title.trim()), MAX_LABEL_CHARS)
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

/// Returns the title, the description and the type of a field. `None` for a type that a later
/// version of the protocol may add.
fn kind(params: &PrimitiveSchemaDefinition) -> Option<(Option<String>, Option<String>, FieldKind)> {
    Some(match params {
        PrimitiveSchemaDefinition::String(text) => {
            let format = text.format.as_ref().and_then(|format| match format {
                StringFormat::Email => Some(TextFormat::Email),
                StringFormat::Uri => Some(TextFormat::Uri),
                StringFormat::Date => Some(TextFormat::Date),
                StringFormat::DateTime => Some(TextFormat::DateTime),
                _ => None,
            });
            let default = text.default.clone();
            let limits = TextLimits {
                min_length: text.min_length,
                max_length: text.max_length,
                format,
                default,
            };
            (
                owned(text.title.as_deref()),
                owned(text.description.as_deref()),
                FieldKind::Text(limits),
            )
        }
        PrimitiveSchemaDefinition::Number(number) => {
            let kind = FieldKind::Number {
                whole: false,
                min: number.minimum,
                max: number.maximum,
                default: number.default,
            };
            (
                owned(number.title.as_deref()),
                owned(number.description.as_deref()),
                kind,
            )
        }
        PrimitiveSchemaDefinition::Integer(number) => {
            #[expect(
                clippy::cast_precision_loss,
                reason = "limits beyond 2^53 are none that anybody means"
            )]
            let float = |limit: i64| limit as f64;
            let kind = FieldKind::Number {
                whole: true,
                min: number.minimum.map(float),
                max: number.maximum.map(float),
                default: number.default.map(float),
            };
            (
                owned(number.title.as_deref()),
                owned(number.description.as_deref()),
                kind,
            )
        }
        PrimitiveSchemaDefinition::Boolean(switch) => (
            owned(switch.title.as_deref()),
            owned(switch.description.as_deref()),
            FieldKind::Switch(switch.default),
        ),
        PrimitiveSchemaDefinition::Enum(choice) => self::choice(choice)?,
        _ => return None,
    })
}

/// Returns the title, the description and the type of a field with options.
fn choice(params: &EnumSchema) -> Option<(Option<String>, Option<String>, FieldKind)> {
    let option = |value: &String, title: &str| FieldOption {
        value: value.clone(),
        label: label(title),
        description: String::new(),
    };
    let plain = |values: &[String]| {
        values
            .iter()
            .map(|value| option(value, value))
            .collect::<Vec<_>>()
    };
    Some(match params {
        EnumSchema::Single(SingleSelectEnumSchema::Untitled(option_schema)) => {
            let kind =
                FieldKind::SingleChoice(plain(&option_schema.enum_), option_schema.default.clone());
            (
                owned(option_schema.title.as_deref()),
                owned(option_schema.description.as_deref()),
                kind,
            )
        }
        EnumSchema::Single(SingleSelectEnumSchema::Titled(option_schema)) => {
            let options = option_schema
                .one_of
                .iter()
                .map(|option_schema| option(&option_schema.const_, &option_schema.title))
                .collect();
            (
                owned(option_schema.title.as_deref()),
                owned(option_schema.description.as_deref()),
                FieldKind::SingleChoice(options, option_schema.default.clone()),
            )
        }
        EnumSchema::Legacy(option_schema) => {
            let names = option_schema.enum_names.as_deref().unwrap_or_default();
            let named =
                |(at, value): (usize, &String)| option(value, names.get(at).unwrap_or(value));
            let options = option_schema.enum_.iter().enumerate().map(named).collect();
            (
                owned(option_schema.title.as_deref()),
                owned(option_schema.description.as_deref()),
                FieldKind::SingleChoice(options, option_schema.default.clone()),
            )
        }
        EnumSchema::Multi(MultiSelectEnumSchema::Untitled(many)) => {
            let limits = ChoiceLimits {
                min_items: many.min_items,
                max_items: many.max_items,
                default: many.default.clone(),
            };
            (
                owned(many.title.as_deref()),
                owned(many.description.as_deref()),
                FieldKind::MultipleChoice(plain(&many.items.enum_), limits),
            )
        }
        EnumSchema::Multi(MultiSelectEnumSchema::Titled(many)) => {
            let limits = ChoiceLimits {
                min_items: many.min_items,
                max_items: many.max_items,
                default: many.default.clone(),
            };
            let options = many
                .items
                .any_of
                .iter()
                .map(|option_schema| option(&option_schema.const_, &option_schema.title))
                .collect();
            (
                owned(many.title.as_deref()),
                owned(many.description.as_deref()),
                FieldKind::MultipleChoice(options, limits),
            )
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(properties: Value, required: Value) -> Result<Vec<String>, String> {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        let fields = fields(&serde_json::from_value(schema).unwrap())?;
        let kind = |kind: &FieldKind| match kind {
            FieldKind::Text(limits) => format!("text {:?} {:?}", limits.format, limits.default),
            FieldKind::Number {
                whole,
                min,
                max,
                default,
            } => {
                format!("number {whole} {min:?} {max:?} {default:?}")
            }
            FieldKind::Switch(default) => format!("switch {default:?}"),
            FieldKind::SingleChoice(options, default) => format!(
                "one {} {default:?}",
                options
                    .iter()
                    .map(|field_option| format!("{}={}", field_option.value, field_option.label))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
            FieldKind::MultipleChoice(options, limits) => {
                format!("many {} {:?}", options.len(), limits.default)
            }
        };
        Ok(fields
            .iter()
            .map(|field| {
                format!(
                    "{}{} {}",
                    field.title,
                    if field.required { "!" } else { "" },
                    kind(&field.kind)
                )
            })
            .collect())
    }

    #[test]
    fn form_field_has_type_limits_and_default() {
        let all = json!({
            "name": {"type": "string", "title": "Your name", "default": "Ann"},
            "mail": {"type": "string", "format": "email"},
            "age": {"type": "integer", "minimum": 1, "default": 30},
            "size": {"type": "number", "maximum": 2.5},
            "sure": {"type": "boolean", "default": true},
            "plain": {"type": "string", "enum": ["a", "b"]},
            "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
            "old": {"type": "string", "enum": ["a"], "enumNames": ["The A"]},
            "many": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "default": ["x"]},
            "both": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X"}]}},
        });
        let expected = [
            "Your name! text None Some(\"Ann\")",
            "mail text Some(Email) None",
            "age number true Some(1.0) None Some(30.0)",
            "size number false None Some(2.5) None",
            "sure switch Some(true)",
            "plain one a=a,b=b None",
            "titled one a=A None",
            "old one a=The A None",
            "many many 2 Some([\"x\"])",
            "both many 1 None",
        ];
        assert_eq!(described(all, json!(["name"])).unwrap(), expected);
        let flood: Value = (0..40)
            .map(|n| (format!("f{n}"), json!({"type": "string"})))
            .collect();
        assert!(
            described(flood, json!([]))
                .unwrap_err()
                .contains("40 fields")
        );
        let values: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        assert!(
            described(json!({"a": {"type": "string", "enum": values}}), json!([]))
                .unwrap_err()
                .contains("more options")
        );
    }
}
