//! The declarations of `file.rs` as data: the JSON Schema for editors, and the check of a
//! tree against it. A value that does not fit is removed and reported, so that a wrong key affects
//! only that key.

pub(crate) mod effect;
#[cfg(test)]
pub(super) mod keys;

use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Number, Value as Json, json};

use self::effect::KeyEffect;
use super::claude;
use super::file::{AgentConfig, CommandConfig, ConfigFile, HookPoint};
use super::lost_denies;
use super::node::{MapEntry, Node, NodeValue, as_whole_number};
use super::problem::{Problem, ProblemCode};
use base::text::nearest;
use permission::keys::PERMISSIONS;

/// Returns the schema of a settings file.
pub(super) fn schema() -> Json {
    let mut schema = SchemaSettings::draft07()
        .into_generator()
        .into_root_schema_for::<ConfigFile>();
    schema.insert("title".into(), "adjutant and OpenCode settings".into());
    schema.insert("allowComments".into(), true.into());
    schema.insert("allowTrailingCommas".into(), true.into());
    schema.to_value()
}

/// Keys of other programs that nothing here resembles, with ours.
const OTHER_PROGRAMS: [(&str, &str); 2] = [("env", "environment"), ("httpUrl", "url")];

/// Returns the event of a hook that is written below `hooks`, as in other programs.
fn hook_event(path: &[String]) -> Option<&str> {
    let [outer, event] = path else {
        return None;
    };
    if outer != "hooks" {
        return None;
    }
    let is_ours = serde_json::from_value::<HookPoint>(event.as_str().into()).is_ok();
    if is_ours {
        return Some(event);
    }
    claude::event(event)
}

/// A schema that trees are checked against.
pub(crate) struct ConfigSchema {
    root: Json,
    definitions: Arc<Map<String, Json>>,
}

/// The output of [`lean`], generated in advance: generating it takes ten times as long as parsing
/// it, and would take the largest part of a start. A test of the table of settings compares the
/// two.
const LEAN: &str = include_str!("declare/lean.json");

// Each is created on first use. Most processes read the same few files repeatedly, some none.
static SETTINGS: LazyLock<ConfigSchema> =
    LazyLock::new(|| ConfigSchema::from(serde_json::from_str(LEAN).unwrap_or_else(|_| lean())));
static AGENT: LazyLock<ConfigSchema> =
    LazyLock::new(|| ConfigSchema::settings().of::<AgentConfig>());
static COMMAND: LazyLock<ConfigSchema> =
    LazyLock::new(|| ConfigSchema::settings().of::<CommandConfig>());

/// Returns the schema without descriptions, which are most of it, and other parts that no check
/// reads.
pub(crate) fn lean() -> Json {
    let mut root = SchemaSettings::draft07()
        .into_generator()
        .into_root_schema_for::<ConfigFile>()
        .to_value();
    remove_unread_parts(&mut root);
    root
}

impl ConfigSchema {
    pub(crate) fn settings() -> &'static Self {
        &SETTINGS
    }

    /// Returns the schema of an agent's front matter.
    pub(crate) fn agent() -> &'static Self {
        &AGENT
    }

    /// Returns the schema of a command's front matter.
    pub(crate) fn command() -> &'static Self {
        &COMMAND
    }

    /// Returns the schema of a type that is among the definitions.
    fn of<T: JsonSchema>(&self) -> Self {
        let root = json!({ "$ref": format!("#/definitions/{}", T::schema_name()) });
        Self {
            root,
            definitions: self.definitions.clone(),
        }
    }

    fn from(mut root: Json) -> Self {
        let definitions = match root.get_mut("definitions").map(Json::take) {
            Some(Json::Object(definitions)) => definitions,
            _ => Map::new(),
        };
        Self {
            root,
            definitions: definitions.into(),
        }
    }

    /// Removes values that do not fit, and reports them. Returns whether the node itself fits.
    /// `path` is the tree's own path, for messages.
    pub(crate) fn check(&self, node: &mut Node, path: &str, problems: &mut Vec<Problem>) -> bool {
        let mut path = if path.is_empty() {
            Vec::new()
        } else {
            vec![path.to_owned()]
        };
        self.fit(node, &self.root, &mut path, problems)
    }

    fn resolve<'a>(&'a self, schema: &'a Json) -> &'a Json {
        let name = schema
            .get("$ref")
            .and_then(Json::as_str)
            .and_then(|path| path.rsplit('/').next());
        let alone = schema
            .get("allOf")
            .and_then(Json::as_array)
            .and_then(|all| all.first());
        match (name.and_then(|name| self.definitions.get(name)), alone) {
            (Some(schema), _) => self.resolve(schema),
            (None, Some(schema)) => self.resolve(schema),
            (None, None) => schema,
        }
    }

    /// Returns the alternatives of a schema, without `null`.
    fn choices<'a>(&'a self, schema: &'a Json) -> Vec<&'a Json> {
        let schema = self.resolve(schema);
        let any = schema
            .get("anyOf")
            .or_else(|| schema.get("oneOf"))
            .and_then(Json::as_array);
        let Some(any) = any else { return vec![schema] };
        let any = any
            .iter()
            .filter(|schema| schema.get("type").and_then(Json::as_str) != Some("null"));
        any.flat_map(|schema| self.choices(schema)).collect()
    }

    /// Returns whether a node fits. Parts of it that do not fit are removed.
    fn fit(
        &self,
        node: &mut Node,
        schema: &Json,
        path: &mut Vec<String>,
        problems: &mut Vec<Problem>,
    ) -> bool {
        if matches!(node.value, NodeValue::Null) {
            return true;
        }
        let choices = self.choices(schema);
        let of_kind: Vec<&Json> = choices
            .iter()
            .copied()
            .filter(|choice| kind_fits(node, choice))
            .collect();
        let chosen = match of_kind.as_slice() {
            [] => None,
            [one] => Some(*one),
            // Several alternatives of one type: enumerated strings, or an object that fits as it
            // is.
            many => many.iter().copied().find(|choice| {
                self.fit(
                    &mut node.clone(),
                    choice,
                    &mut path.clone(),
                    &mut Vec::new(),
                )
            }),
        };
        let Some(chosen) = chosen else {
            problems.push(self.misfit(node, &choices, path));
            return false;
        };
        if let Some(reason) = value_misfit(node, chosen) {
            problems.push(Problem::error(
                ProblemCode::WrongValue,
                &node.at,
                path.join("."),
                reason,
            ));
            return false;
        }
        match &mut node.value {
            NodeValue::Map(entries) => self.fit_entries(entries, chosen, path, problems),
            NodeValue::List(nodes) => {
                if let Some(items) = chosen.get("items") {
                    self.fit_items(nodes, items, path, problems);
                }
            }
            _ => {}
        }
        true
    }

    /// Retains the entries that fit an object's schema.
    fn fit_entries(
        &self,
        entries: &mut Vec<MapEntry>,
        schema: &Json,
        path: &mut Vec<String>,
        problems: &mut Vec<Problem>,
    ) {
        let known = schema.get("properties").and_then(Json::as_object);
        let names = || {
            known
                .into_iter()
                .flat_map(|known| known.keys())
                .map(String::as_str)
        };
        let others = schema.get("additionalProperties");
        entries.retain_mut(|entry| {
            path.push(entry.key.clone());
            let declared = known.and_then(|known| known.get(&entry.key));
            let good = match (declared, others) {
                (Some(schema), _) => {
                    let good = self.fit(&mut entry.node, schema, path, problems);
                    if good {
                        report_declared_status(schema, entry, path, problems);
                    }
                    good
                }
                (None, Some(Json::Bool(false))) => {
                    let text = "there is no such key; it is ignored";
                    let mut problem =
                        Problem::warning(ProblemCode::UnknownKey, &entry.at, path.join("."), text);
                    let near = nearest(&entry.key, names()).or_else(|| {
                        let meant = OTHER_PROGRAMS
                            .iter()
                            .find(|(theirs, _)| *theirs == entry.key);
                        meant.and_then(|(_, ours)| names().find(|name| name == ours))
                    });
                    problem.can_hide_deny =
                        near.is_some_and(|near| lost_denies::may_be_misspelt_deny(path, near, &entry.node));
                    if let Some(near) = near {
                        problem = problem.hint(format!("did you mean \"{near}\"?"));
                    } else if let [key] = path.as_slice()
                        && PERMISSIONS.iter().any(|(known, _)| known == key)
                    {
                        problem.can_hide_deny = lost_denies::is_stricter(&entry.node);
                        problem = problem.hint(format!("did you mean \"permission.{key}\"?"));
                    } else if let Some(event) = hook_event(path) {
                        problem = problem.hint(format!(
                            "a hook is written as \"hook\": {{\"NAME\": {{\"on\": \"{event}\", \"command\": [\"PROGRAM\"]}}}}"
                        ));
                    }
                    problems.push(problem);
                    false
                }
                (None, Some(schema)) if schema.is_object() => {
                    self.fit(&mut entry.node, schema, path, problems)
                }
                (None, _) => {
                    if let Some(near) = nearest(&entry.key, names()) {
                        let text =
                            "there is no such key, so it is sent to the provider as an option";
                        let mut problem = Problem::warning(
                            ProblemCode::UnknownKey,
                            &entry.at,
                            path.join("."),
                            text,
                        );
                        problem.can_hide_deny = lost_denies::may_be_misspelt_deny(path, near, &entry.node);
                        problems.push(problem.hint(format!("did you mean \"{near}\"?")));
                    }
                    true
                }
            };
            path.pop();
            good && !matches!(entry.node.value, NodeValue::Null)
        });
    }

    /// Retains the items that fit the schema of a list's items.
    fn fit_items(
        &self,
        nodes: &mut Vec<Node>,
        schema: &Json,
        path: &mut Vec<String>,
        problems: &mut Vec<Problem>,
    ) {
        let mut index = 0..;
        nodes.retain_mut(|item| {
            path.extend(index.next().map(|index: usize| index.to_string()));
            // A key may be `null`; in a list, `null` is a missing item.
            let missing = matches!(item.value, NodeValue::Null) && !self.takes_anything(schema);
            if missing {
                problems.push(self.misfit(item, &self.choices(schema), path));
            }
            let good = !missing && self.fit(item, schema, path, problems);
            path.pop();
            good
        });
    }

    fn takes_anything(&self, schema: &Json) -> bool {
        self.choices(schema)
            .iter()
            .any(|choice| types(choice).is_empty())
    }

    /// Describes the expected and the found value.
    fn misfit(&self, node: &Node, choices: &[&Json], path: &[String]) -> Problem {
        let words: Vec<&str> = choices.iter().flat_map(|choice| words(choice)).collect();
        let found = match node.as_text() {
            Some(text) if text.chars().count() <= 40 => format!("\"{text}\""),
            _ => node.kind().to_owned(),
        };
        let expected = self.expected(choices);
        let mut problem = Problem::error(
            ProblemCode::WrongValue,
            &node.at,
            path.join("."),
            format!("expected {expected}, found {found}"),
        );
        if let Some(text) = node.as_text() {
            problem = problem.nearest(text, words.iter().copied());
            let plain = matches!(text, "true" | "false")
                && choices.iter().any(|choice| has_type(choice, "boolean"));
            let number = text.parse::<f64>().is_ok_and(f64::is_finite)
                && choices
                    .iter()
                    .any(|choice| has_type(choice, "integer") || has_type(choice, "number"));
            if plain || number {
                problem = problem.hint(format!("write {text} without quotes"));
            }
        }
        problem
    }

    fn expected(&self, choices: &[&Json]) -> String {
        let words: Vec<&str> = choices.iter().flat_map(|choice| words(choice)).collect();
        let mut kinds = Vec::new();
        match words.as_slice() {
            [] => {}
            [one] => kinds.push(format!("\"{one}\"")),
            many => kinds.push(format!("one of {}", many.join(", "))),
        }
        for choice in choices.iter().filter(|choice| words_of(choice).is_none()) {
            let at_least = choice.get("minimum").and_then(Json::as_f64);
            for kind in types(choice) {
                let kind = match kind {
                    "string" => "a string".to_owned(),
                    "boolean" => "true or false".to_owned(),
                    "integer" => match at_least {
                        Some(least) if least > 0.0 => format!("a whole number from {least}"),
                        _ => "a whole number".to_owned(),
                    },
                    "number" => "a number".to_owned(),
                    "array" => "a list".to_owned(),
                    "object" => "an object".to_owned(),
                    _ => continue,
                };
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
        }
        kinds.join(" or ")
    }
}

/// Removes the descriptions of schemas, and effects that only a test reads. A settings
/// key named `description` has a schema as its value, not a text.
fn remove_unread_parts(schema: &mut Json) {
    match schema {
        Json::Object(map) => {
            map.retain(|key, value| match key.as_str() {
                "description" => !value.is_string(),
                "x-trust" => KeyEffect::parse(value).is_some_and(KeyEffect::is_read),
                _ => true,
            });
            map.values_mut().for_each(remove_unread_parts);
        }
        Json::Array(all) => all.iter_mut().for_each(remove_unread_parts),
        _ => {}
    }
}

/// Reports an old spelling or a key without effect, as its declaration states.
fn report_declared_status(
    schema: &Json,
    entry: &MapEntry,
    path: &[String],
    problems: &mut Vec<Problem>,
) {
    let MapEntry { key, at, node } = entry;
    if let Some(instead) = schema.get("x-instead").and_then(Json::as_str) {
        let text = format!("\"{key}\" is an old spelling; it still works");
        let problem = Problem::deprecated(at, path.join("."), text);
        problems.push(problem.hint(format!("write \"{instead}\"")));
    }
    // A key that disables an unsupported feature is respected.
    let off = node.as_bool() == Some(false) || node.as_text() == Some("deny");
    if !off && let Some(status) = schema.get("x-status").and_then(Json::as_str) {
        let code = ProblemCode::NoEffect;
        problems.push(Problem::note(code, at, path.join("."), status));
    }
}

fn types(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(one)) => vec![one],
        Some(Json::Array(many)) => many
            .iter()
            .filter_map(Json::as_str)
            .filter(|kind| *kind != "null")
            .collect(),
        _ if words_of(schema).is_some() => vec!["string"],
        _ if schema.get("properties").is_some() => vec!["object"],
        _ => Vec::new(),
    }
}

fn has_type(schema: &Json, kind: &str) -> bool {
    types(schema).contains(&kind)
}

fn words_of(schema: &Json) -> Option<Vec<&str>> {
    if let Some(word) = schema.get("const").and_then(Json::as_str) {
        return Some(vec![word]);
    }
    let words = schema.get("enum").and_then(Json::as_array)?;
    Some(words.iter().filter_map(Json::as_str).collect())
}

fn words(schema: &Json) -> Vec<&str> {
    words_of(schema).unwrap_or_default()
}

fn kind_fits(node: &Node, schema: &Json) -> bool {
    let types = types(schema);
    if types.is_empty() {
        return true;
    }
    let fits = |kind: &&str| match (&node.value, *kind) {
        (NodeValue::Bool(_), "boolean")
        | (NodeValue::Number(_), "number")
        | (NodeValue::List(_), "array")
        | (NodeValue::Map(_), "object") => true,
        (NodeValue::Number(number), "integer") => number.as_f64().is_some_and(|n| n.fract() == 0.0),
        (NodeValue::Text(text), "string") => {
            words_of(schema).is_none_or(|words| words.contains(&text.as_str()))
        }
        _ => false,
    };
    types.iter().any(fits)
}

/// Returns the error of a value of the right type.
fn value_misfit(node: &Node, schema: &Json) -> Option<String> {
    match &node.value {
        NodeValue::Number(number) => number_misfit(number, schema),
        // Colours are the only pattern in the schema.
        NodeValue::Text(text) if schema.get("pattern").is_some() => {
            let hex = text.strip_prefix('#');
            let hex = hex.is_some_and(|hex| {
                matches!(hex.len(), 3 | 6) && hex.bytes().all(|b| b.is_ascii_hexdigit())
            });
            let word =
                !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-');
            (!hex && !word)
                .then(|| format!("expected #RRGGBB or the name of a colour, found \"{text}\""))
        }
        _ => None,
    }
}

/// Returns the error of a number that is out of range, by its declaration or, if that names no
/// limit, by its type.
fn number_misfit(number: &Number, schema: &Json) -> Option<String> {
    let n = number.as_f64()?;
    let declared = |key: &str| schema.get(key).and_then(Json::as_f64);
    match (declared("minimum"), declared("maximum")) {
        (Some(least), Some(most)) if n < least || n > most => {
            return Some(format!("expected {least} to {most}, found {number}"));
        }
        (Some(least), _) if n < least => {
            return Some(format!("expected at least {least}, found {number}"));
        }
        (_, Some(most)) if n > most => {
            return Some(format!("expected at most {most}, found {number}"));
        }
        _ => {}
    }
    let (least, most) = range(schema.get("format").and_then(Json::as_str)?)?;
    match as_whole_number(number)? {
        n if n < least => Some(format!("expected at least {least}, found {number}")),
        n if n > most => Some(format!("expected at most {most}, found {number}")),
        _ => None,
    }
}

/// Returns the minimum and maximum of an integer type, by its name in a schema.
fn range(format: &str) -> Option<(i128, i128)> {
    match format {
        "uint8" => Some((0, u8::MAX.into())),
        "uint16" => Some((0, u16::MAX.into())),
        "uint32" => Some((0, u32::MAX.into())),
        "uint64" => Some((0, u64::MAX.into())),
        "uint" => Some((0, i128::try_from(usize::MAX).ok()?)),
        "int8" => Some((i8::MIN.into(), i8::MAX.into())),
        "int16" => Some((i16::MIN.into(), i16::MAX.into())),
        "int32" => Some((i32::MIN.into(), i32::MAX.into())),
        "int64" => Some((i64::MIN.into(), i64::MAX.into())),
        "int" => Some((
            i128::try_from(isize::MIN).ok()?,
            i128::try_from(isize::MAX).ok()?,
        )),
        _ => None,
    }
}

/// Returns the formatted schema for `adjutant config schema`.
pub fn schema_text() -> String {
    serde_json::to_string_pretty(&schema()).unwrap_or_else(|_| json!({}).to_string())
}
