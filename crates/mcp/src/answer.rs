//! What a server asks of us while it works: that the user fills something in, or visits a page; which directories
//! there are.

#![expect(deprecated, reason = "a draft drops roots; the servers of today have them")]

use std::path::{Path, PathBuf};

use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema, ErrorData, ListRootsResult,
    MultiSelectEnumSchema, PrimitiveSchemaDefinition, Root, SingleSelectEnumSchema, StringFormat,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::link::McpLink;
use base::text;
use events::{
    Event, FieldKind, FieldOption, FormField, FormPage, FormReply, ManyLimits, Severity, TextFormat, TextLimits,
};

/// What a page may have: fields, options of one, characters of a message, of a title or a label.
const FIELDS: usize = 30;
const OPTIONS: usize = 200;
const MESSAGE: usize = 4_000;
const LABEL: usize = 200;

/// The directories of the session.
pub(super) fn roots(link: &McpLink) -> ListRootsResult {
    let root = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let root = Root::new(uri(path));
        name.into_iter().fold(root, Root::with_name)
    };
    ListRootsResult::new(link.about.roots.iter().map(root).collect())
}

/// A directory as an address.
fn uri(path: &Path) -> String {
    reqwest::Url::from_directory_path(path)
        .map_or_else(|()| format!("file://{}", path.display()), |url| url.as_str().trim_end_matches('/').to_owned())
}

/// Asks the user for what a server wants to know, in its name. Where nobody can be asked, the answer is no.
///
/// # Errors
/// What is asked for is more than anybody fills in.
pub(super) async fn elicit(
    link: &McpLink,
    asked: ElicitRequestParams,
    withdrawn: &CancellationToken,
) -> Result<ElicitResult, ErrorData> {
    let no = || Ok(ElicitResult::new(ElicitationAction::Decline));
    let Some(asker) = link.asker().filter(|_| link.about.attended) else { return no() };
    let mut finished = None;
    let (message, asks) = match asked {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let fields = fields(&requested_schema).map_err(|why| ErrorData::invalid_params(why, None))?;
            (message, FormPage::Fields(fields))
        }
        ElicitRequestParams::UrlElicitationParams { message, url, elicitation_id, .. } => {
            match reqwest::Url::parse(&url) {
                Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => {
                    finished = Some(link.visits(elicitation_id));
                    (message, FormPage::Address(parsed.into()))
                }
                _ => return Err(ErrorData::invalid_params("only addresses of the web can be visited", None)),
            }
        }
        _ => return no(),
    };
    let message = text::escaped(&text::cut_chars(message.trim(), MESSAGE)).replace("\\n", "\n");
    let name = text::title(&link.name);
    let form = matches!(asks, FormPage::Fields(_));
    // A call does not run out of time while its user thinks.
    let Some(_asks) = link.ask() else { return no() };
    let said = tokio::select! {
        said = asker.form(format!("The MCP server {name} asks"), message, asks, finished) => said,
        () = withdrawn.cancelled() => FormReply::Cancelled,
    };
    Ok(match said {
        FormReply::Accepted(content) if form => {
            ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content))
        }
        FormReply::Accepted(_) => ElicitResult::new(ElicitationAction::Accept),
        FormReply::Declined => ElicitResult::new(ElicitationAction::Decline),
        FormReply::Cancelled => ElicitResult::new(ElicitationAction::Cancel),
        FormReply::Unshown => {
            if link.is_first_unshown() {
                let title = format!("The MCP server {name} asked for something that this editor cannot show.");
                asker.outlet.event(Event::Notice { severity: Severity::Warning, title, details: None }).await;
            }
            ElicitResult::new(ElicitationAction::Decline)
        }
    })
}

/// The fields of a page, in the server's order.
fn fields(schema: &ElicitationSchema) -> Result<Vec<FormField>, String> {
    if schema.properties.len() > FIELDS {
        return Err(format!("{} fields are asked for; {FIELDS} can be shown", schema.properties.len()));
    }
    let required = schema.required.as_deref().unwrap_or_default();
    let names: Vec<&String> = match &schema.property_order {
        Some(order) => order.iter().collect(),
        None => schema.properties.keys().collect(),
    };
    let field = |key: &String| {
        let (title, words, kind) = kind(schema.properties.get(key)?)?;
        let title = title.filter(|title| !title.trim().is_empty()).unwrap_or_else(|| key.clone());
        let words = words.map(|words| text::escaped(&text::cut_chars(words.trim(), MESSAGE)));
        let words = words.filter(|words| !words.is_empty());
        Some(FormField { key: key.clone(), title: label(&title), words, required: required.contains(key), kind })
    };
    let fields: Vec<FormField> = names.iter().filter_map(|key| field(key)).collect();
    let large = |field: &&FormField| match &field.kind {
        FieldKind::One(options, _) | FieldKind::Many(options, _) => options.len() > OPTIONS,
        _ => false,
    };
    match fields.iter().find(large) {
        Some(field) => Err(format!("{} has more options than can be shown ({OPTIONS})", field.key)),
        None => Ok(fields),
    }
}

fn label(words: &str) -> String {
    text::cut_chars(&text::escaped(words.trim()), LABEL)
}

/// A title, a description and what may be put in; none for a kind that a later protocol brings.
fn kind(asked: &PrimitiveSchemaDefinition) -> Option<(Option<String>, Option<String>, FieldKind)> {
    let words = |words: &Option<std::borrow::Cow<'static, str>>| words.as_deref().map(str::to_owned);
    Some(match asked {
        PrimitiveSchemaDefinition::String(text) => {
            let format = text.format.as_ref().and_then(|format| match format {
                StringFormat::Email => Some(TextFormat::Email),
                StringFormat::Uri => Some(TextFormat::Uri),
                StringFormat::Date => Some(TextFormat::Date),
                StringFormat::DateTime => Some(TextFormat::DateTime),
                _ => None,
            });
            let default = text.default.clone();
            let limits = TextLimits { shortest: text.min_length, longest: text.max_length, format, default };
            (words(&text.title), words(&text.description), FieldKind::Text(limits))
        }
        PrimitiveSchemaDefinition::Number(number) => {
            let (least, most, default) = (number.minimum, number.maximum, number.default);
            let kind = FieldKind::Number { whole: false, least, most, default };
            (words(&number.title), words(&number.description), kind)
        }
        PrimitiveSchemaDefinition::Integer(number) => {
            #[expect(clippy::cast_precision_loss, reason = "limits beyond 2^53 are none that anybody means")]
            let float = |limit: i64| limit as f64;
            let (least, most) = (number.minimum.map(float), number.maximum.map(float));
            let kind = FieldKind::Number { whole: true, least, most, default: number.default.map(float) };
            (words(&number.title), words(&number.description), kind)
        }
        PrimitiveSchemaDefinition::Boolean(switch) => {
            (words(&switch.title), words(&switch.description), FieldKind::Switch(switch.default))
        }
        PrimitiveSchemaDefinition::Enum(choice) => self::choice(choice)?,
        _ => return None,
    })
}

fn choice(asked: &EnumSchema) -> Option<(Option<String>, Option<String>, FieldKind)> {
    let words = |words: &Option<std::borrow::Cow<'static, str>>| words.as_deref().map(str::to_owned);
    let option = |value: &String, title: &str| FieldOption {
        value: value.clone(),
        label: label(title),
        description: String::new(),
    };
    let plain = |values: &[String]| values.iter().map(|value| option(value, value)).collect::<Vec<_>>();
    Some(match asked {
        EnumSchema::Single(SingleSelectEnumSchema::Untitled(one)) => {
            let kind = FieldKind::One(plain(&one.enum_), one.default.clone());
            (words(&one.title), words(&one.description), kind)
        }
        EnumSchema::Single(SingleSelectEnumSchema::Titled(one)) => {
            let options = one.one_of.iter().map(|one| option(&one.const_, &one.title)).collect();
            (words(&one.title), words(&one.description), FieldKind::One(options, one.default.clone()))
        }
        EnumSchema::Legacy(one) => {
            let names = one.enum_names.as_deref().unwrap_or_default();
            let named = |(at, value): (usize, &String)| option(value, names.get(at).unwrap_or(value));
            let options = one.enum_.iter().enumerate().map(named).collect();
            (words(&one.title), words(&one.description), FieldKind::One(options, one.default.clone()))
        }
        EnumSchema::Multi(MultiSelectEnumSchema::Untitled(many)) => {
            let limits = ManyLimits { fewest: many.min_items, most: many.max_items, default: many.default.clone() };
            (words(&many.title), words(&many.description), FieldKind::Many(plain(&many.items.enum_), limits))
        }
        EnumSchema::Multi(MultiSelectEnumSchema::Titled(many)) => {
            let limits = ManyLimits { fewest: many.min_items, most: many.max_items, default: many.default.clone() };
            let options = many.items.any_of.iter().map(|one| option(&one.const_, &one.title)).collect();
            (words(&many.title), words(&many.description), FieldKind::Many(options, limits))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(properties: Value, required: Value) -> Result<Vec<String>, String> {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        let fields = fields(&serde_json::from_value(schema).unwrap())?;
        let kind = |kind: &FieldKind| match kind {
            FieldKind::Text(limits) => format!("text {:?} {:?}", limits.format, limits.default),
            FieldKind::Number { whole, least, most, default } => {
                format!("number {whole} {least:?} {most:?} {default:?}")
            }
            FieldKind::Switch(default) => format!("switch {default:?}"),
            FieldKind::One(options, default) => format!(
                "one {} {default:?}",
                options.iter().map(|one| format!("{}={}", one.value, one.label)).collect::<Vec<_>>().join(",")
            ),
            FieldKind::Many(options, limits) => format!("many {} {:?}", options.len(), limits.default),
        };
        Ok(fields
            .iter()
            .map(|field| format!("{}{} {}", field.title, if field.required { "!" } else { "" }, kind(&field.kind)))
            .collect())
    }

    #[test]
    fn pages_are_shown_as_they_are_meant() {
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
        assert_eq!(shown(all, json!(["name"])).unwrap(), expected);
        let flood: Value = (0..40).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
        assert!(shown(flood, json!([])).unwrap_err().contains("40 fields"));
        let values: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        assert!(
            shown(json!({"a": {"type": "string", "enum": values}}), json!([])).unwrap_err().contains("more options")
        );
    }
}
