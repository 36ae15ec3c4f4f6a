//! Converts the timeout of a command from the units that models use from habit to milliseconds.

use serde_json::{Map, Value, json};

use crate::argument_repair::folded;

/// The offered field, in milliseconds.
const FIELD: &str = "timeout";

/// The field for a timeout of less than a second, which [`FIELD`] cannot have.
const MILLISECONDS_FIELD: &str = "timeout_ms";

/// The smallest value of [`FIELD`]. No command is given less than a second, so smaller numbers are
/// seconds, the unit of other agents.
const MIN_MS: u64 = 1000;

/// Returns the schema of arguments whose timeout has a unit, in the name or in the value: the usual
/// `schema` with each such field. `None` if no timeout has a unit.
pub(super) fn other_form(
    fields: &Map<String, Value>,
    schema: impl FnOnce() -> Value,
) -> Option<Value> {
    let has_unit = |(name, value): &(&String, &Value)| {
        unit_of_name(name).is_some() || (*name == FIELD && with_unit(value).is_some())
    };
    let names: Vec<&String> = fields
        .iter()
        .filter(has_unit)
        .map(|(name, _)| name)
        .collect();
    if names.is_empty() {
        return None;
    }
    let mut schema = schema();
    let number = json!({"type": "integer", "minimum": 0});
    schema["properties"][MILLISECONDS_FIELD] = number.clone();
    for name in names {
        schema["properties"][name] = number.clone();
    }
    Some(schema)
}

/// Converts a timeout to milliseconds: by its unit if it has one. A small number without a unit is
/// read as seconds, with a note.
pub(super) fn repair(fields: &mut Map<String, Value>, notes: &mut Vec<String>) {
    let explicit = fields.iter().find_map(|(name, value)| {
        let factor = unit_of_name(name)?;
        let limit = match value {
            Value::String(text) => text.trim().parse().map(|number: f64| number * factor).ok(),
            value => value.as_f64().map(|number| number * factor),
        };
        limit.or_else(|| with_unit(value))
    });
    let explicit = explicit.or_else(|| fields.get(FIELD).and_then(with_unit));
    if let Some(limit) = explicit.and_then(rounded) {
        fields.retain(|name, _| name != FIELD && unit_of_name(name).is_none());
        let field = if limit < MIN_MS {
            MILLISECONDS_FIELD
        } else {
            FIELD
        };
        fields.insert(field.into(), limit.into());
        return;
    }
    let seconds = fields.get(FIELD).and_then(Value::as_u64);
    if let Some(seconds) = seconds.filter(|limit| (1..MIN_MS).contains(limit)) {
        fields.insert(FIELD.into(), (seconds * 1000).into());
        notes.push(format!(
            "timeout {seconds} was read as seconds; from {MIN_MS} on it is milliseconds."
        ));
    }
}

/// Returns the milliseconds of the unit in a field's name (`timeoutMs`, `timeout_in_seconds`).
fn unit_of_name(name: &str) -> Option<f64> {
    let name = folded(name);
    let unit = name.strip_prefix(FIELD)?;
    unit_of(unit.strip_prefix("in").unwrap_or(unit))
}

/// Returns the milliseconds of a text with a unit (`500ms`, `2 min`).
fn with_unit(value: &Value) -> Option<f64> {
    let text = value.as_str()?.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    Some(number.parse::<f64>().ok()? * unit_of(&folded(unit))?)
}

/// Returns the milliseconds of a unit.
fn unit_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
        _ => return None,
    })
}

/// Rounds a number of milliseconds; `None` if it is not a duration.
fn rounded(limit: f64) -> Option<u64> {
    let is_duration = (0.0..9e15).contains(&limit);
    is_duration
        .then(|| format!("{limit:.0}").parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::super::BashTool;
    use super::*;
    use crate::{AnyTool, erase};

    #[test]
    fn explicit_units_are_obeyed_and_bare_small_numbers_are_seconds() {
        // The arguments, what they become, whether the result has a note.
        let table = [
            (
                json!({"timeout_ms": 500}),
                json!({"timeout_ms": 500}),
                false,
            ),
            (
                json!({"timeoutMs": "500"}),
                json!({"timeout_ms": 500}),
                false,
            ),
            (json!({"timeout_ms": 5000}), json!({"timeout": 5000}), false),
            (
                json!({"timeout_milliseconds": 20.0}),
                json!({"timeout_ms": 20}),
                false,
            ),
            (
                json!({"timeout_seconds": 30}),
                json!({"timeout": 30_000}),
                false,
            ),
            (
                json!({"timeoutSec": 0.5}),
                json!({"timeout_ms": 500}),
                false,
            ),
            (json!({"timeout_s": 2}), json!({"timeout": 2000}), false),
            (
                json!({"timeout_in_minutes": 2}),
                json!({"timeout": 120_000}),
                false,
            ),
            (
                json!({"timeout": "500ms"}),
                json!({"timeout_ms": 500}),
                false,
            ),
            (json!({"timeout": "1.5 s"}), json!({"timeout": 1500}), false),
            (json!({"timeout": "2m"}), json!({"timeout": 120_000}), false),
            (
                json!({"timeout": 30, "timeout_seconds": 30}),
                json!({"timeout": 30_000}),
                false,
            ),
            (json!({"timeout": 500}), json!({"timeout": 500_000}), true),
            (json!({"timeout": "30"}), json!({"timeout": 30_000}), true),
            (json!({"timeout": 1000}), json!({"timeout": 1000}), false),
            (json!({"timeout": 0}), json!({"timeout": 0}), false),
            (json!({"timeout_ms": 0}), json!({"timeout_ms": 0}), false),
        ];
        let tool: std::sync::Arc<dyn AnyTool> = erase(BashTool);
        let with_command = |mut input: Value| {
            input["command"] = json!("ls");
            input
        };
        for (input, expected, is_noted) in table {
            let accepted = tool.accept(with_command(input.clone())).unwrap();
            let expected = with_command(expected);
            assert_eq!(accepted.input, expected, "{input}");
            assert_eq!(accepted.notes.len(), usize::from(is_noted), "{input}");
            assert!(accepted.is_exact, "{input}");
            let again = tool.accept(expected.clone()).unwrap();
            assert_eq!((again.input, again.notes.len()), (expected, 0), "{input}");
        }
        for wrong in [
            json!({"timeout_ms": "soon"}),
            json!({"timeout": "2 weeks"}),
            json!({"timeout_ms": -1}),
        ] {
            assert!(tool.accept(with_command(wrong.clone())).is_err(), "{wrong}");
        }
    }
}
