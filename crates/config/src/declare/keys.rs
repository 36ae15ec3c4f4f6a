//! The lists of keys in the manual.

use serde_json::Value as Json;

use super::effect::KeyEffect;
use super::{ConfigSchema, schema};

/// One key of a settings file, for the table in the manual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRow {
    /// The path of keys, such as `compaction.auto` or `agent.<name>.model`.
    pub(crate) key: String,
    pub(crate) kind: String,
    /// The doc comment, with the status of a key that has no effect yet or at all.
    pub(crate) text: String,
    /// The effect that the key or the nearest one around it states. `None` for old spellings.
    pub(crate) effect: Option<String>,
    /// A value of the key, unless it is an object with keys of its own.
    pub(crate) example: Option<Json>,
    /// The value that is used if the key is absent, if it is declared.
    pub(crate) default: Json,
}

impl KeyRow {
    fn effect_text(&self) -> &'static str {
        let declared = self.effect.as_ref().map(|text| Json::from(text.as_str()));
        match declared.as_ref().and_then(KeyEffect::parse) {
            Some(KeyEffect::Applies) => "applies",
            Some(KeyEffect::Waits(_)) => "waits for trust",
            Some(KeyEffect::UserOnly(_) | KeyEffect::MachineOnly(_)) => "ignored",
            Some(KeyEffect::Parts) | None => "",
        }
    }
}

/// Returns all keys in the order of declaration, old spellings last.
pub(crate) fn rows() -> Vec<KeyRow> {
    let declared = ConfigSchema::from(schema());
    let mut rows = Vec::new();
    declared.rows(&declared.root, "", None, &mut rows);
    rows
}

/// Returns the content for `lean.json`: one definition per line.
pub(crate) fn lean_text() -> String {
    let mut root = super::lean();
    let definitions = root
        .get_mut("definitions")
        .map(Json::take)
        .unwrap_or_default();
    let lines = definitions
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, schema)| format!("{name:?}:{schema}"));
    let lines: Vec<String> = lines.collect();
    root["definitions"] = "here".into();
    format!(
        "{}\n",
        root.to_string()
            .replace("\"here\"", &format!("{{\n{}\n}}", lines.join(",\n")))
    )
}

/// Returns the keys that only the user may set, in the order of the alphabet. An inner key is listed
/// only if the key around it is not.
pub(crate) fn user_only() -> Vec<String> {
    let is_ignored = |row: &KeyRow| row.effect_text() == "ignored";
    let mut keys: Vec<String> = Vec::new();
    for row in rows().into_iter().filter(is_ignored) {
        let is_inner = |around: &String| row.key.starts_with(&format!("{around}."));
        if !keys.iter().any(is_inner) {
            keys.push(row.key);
        }
    }
    keys.sort();
    keys
}

/// Returns the table in the manual.
pub(crate) fn table() -> String {
    let mut table = String::from(
        "| Key | Value | In an untrusted project | Meaning |\n| --- | --- | --- | --- |\n",
    );
    for row in rows() {
        let kind = row.kind.replace('|', "\\|");
        table.push_str(&format!(
            "| `{}` | {kind} | {} | {} |\n",
            row.key,
            row.effect_text(),
            row.text.replace('|', "\\|")
        ));
    }
    table
}

impl ConfigSchema {
    fn rows(&self, schema: &Json, prefix: &str, around: Option<&str>, rows: &mut Vec<KeyRow>) {
        let mut late = Vec::new();
        for choice in self.choices(schema) {
            if let Some(known) = choice.get("properties").and_then(Json::as_object) {
                for (key, declared) in known {
                    let mut inner = Vec::new();
                    self.row(&join(prefix, key), declared, around, &mut inner);
                    let old = declared.get("deprecated").and_then(Json::as_bool) == Some(true);
                    if old {
                        late.append(&mut inner)
                    } else {
                        rows.append(&mut inner)
                    }
                }
            }
        }
        rows.append(&mut late);
    }

    fn row(&self, key: &str, declared: &Json, around: Option<&str>, rows: &mut Vec<KeyRow>) {
        let mut text = declared
            .get("description")
            .and_then(Json::as_str)
            .unwrap_or_default()
            .replace('\n', " ");
        if let Some(status) = declared.get("x-status").and_then(Json::as_str) {
            let mut letters = status.chars();
            let status: String = letters
                .next()
                .map(|c| c.to_ascii_uppercase())
                .into_iter()
                .chain(letters)
                .collect();
            text = format!("{} {status}.", text.trim());
        }
        let own = declared.get("x-trust").and_then(Json::as_str);
        let is_idle = declared.get("x-status").is_some();
        let is_old = declared.get("deprecated").is_some();
        let effect = match own {
            None if is_idle => Some("applies"),
            None if is_old => None,
            None => around,
            own => own,
        };
        let choices = self.choices(declared);
        let kind = match self.expected(&choices) {
            kind if kind.is_empty() => "anything".to_owned(),
            kind => kind,
        };
        rows.push(KeyRow {
            key: key.to_owned(),
            kind,
            text: text.trim().to_owned(),
            effect: effect.map(str::to_owned),
            example: choices.iter().find_map(|choice| example(choice)),
            default: declared.get("default").cloned().unwrap_or_default(),
        });
        // Inner keys of old spellings are not repeated: they have the same meaning as the new ones.
        if declared.get("deprecated").and_then(Json::as_bool) == Some(true) {
            return;
        }
        if key.ends_with("permission") && key.contains('.') {
            return;
        }
        for choice in choices {
            if choice.get("properties").is_some() {
                self.rows(choice, key, effect, rows);
            } else if let Some(entry) = choice
                .get("additionalProperties")
                .filter(|schema| schema.is_object())
            {
                self.rows(entry, &format!("{key}.<name>"), effect, rows);
            }
        }
    }
}

/// Returns a value that fits a schema, unless it is an object with keys of its own.
fn example(schema: &Json) -> Option<Json> {
    if let Some(word) = super::words(schema).first() {
        return Some((*word).into());
    }
    match *super::types(schema).first()? {
        "boolean" => Some(true.into()),
        "integer" | "number" => match schema.get("minimum") {
            Some(least) if least.as_f64() > Some(1.0) => Some(least.clone()),
            _ => Some(1.into()),
        },
        "string" => Some("x".into()),
        "array" => Some(serde_json::json!(["x"])),
        "object" => {
            let entry = example(schema.get("additionalProperties")?)?;
            Some(serde_json::json!({ "a": entry }))
        }
        _ => None,
    }
}

fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() {
        key.to_owned()
    } else {
        format!("{prefix}.{key}")
    }
}
