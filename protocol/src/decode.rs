//! Messages about texts that do not fit a type, without the values in them.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::forms;
use crate::words::plain_message;

/// Returns the path and the reason if a text does not fit a type.
pub(crate) fn misfit<T: DeserializeOwned>(text: &str) -> Option<String> {
    let e = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text))
        .err()?;
    let path = e.path().to_string();
    let why = e.inner().to_string();
    // The path is more useful than the position in a line that is not displayed.
    let why = why
        .rsplit_once(" at line ")
        .map_or(why.as_str(), |(why, _)| why);
    let why = match why.strip_prefix("data did not match any variant of untagged enum ") {
        Some(name) => forms::unfit(name, &at(text, e.path())),
        // Messages of nested texts have been put into words already, with their own paths.
        None => plain_message(&without_values(why)),
    };
    Some(if path == "." {
        why
    } else {
        format!("{path}: {why}")
    })
}

/// Returns the value at a path of a text; `null` if there is none.
fn at(text: &str, path: &Path) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap_or_default();
    for segment in path.iter() {
        let member = match segment {
            Segment::Seq { index } => value.get_mut(*index),
            Segment::Map { key } => value.get_mut(key),
            Segment::Enum { .. } | Segment::Unknown => return value,
        };
        value = member.map(Value::take).unwrap_or_default();
    }
    value
}

/// Removes the quoted values that serde includes in its messages, because values can be secrets.
pub(crate) fn without_values(message: &str) -> String {
    let mut out = String::new();
    let mut rest = message;
    // Strings are escaped, so the closing quote is the last one before the comma.
    while let Some(start) = rest.find('"') {
        out.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        out.push('…');
        rest = match rest.rfind('"') {
            Some(end) => &rest[end + 1..],
            None => "",
        };
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_does_not_contain_values() {
        assert_eq!(
            without_values(r#"invalid type: string "a\"b", expected u16"#),
            "invalid type: string …, expected u16"
        );
        assert_eq!(
            misfit::<(u16,)>(r#"["hunter2"]"#).as_deref(),
            Some("[0]: expected a whole number from 0 to 65535, found a string")
        );
    }
}
