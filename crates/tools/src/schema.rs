//! Normalises the schema of an external tool (of an MCP server or a plugin) for providers.
//!
//! Providers reject a whole request if one schema in it is not as they expect: OpenAI an array
//! without `items` and anything but an object at the top, Anthropic anything but JSON Schema draft
//! 2020-12, all of them a dangling reference. So a construct with one meaning is written in the
//! form that all accept, and an unsupported keyword is left out, since the server checks the
//! arguments anyway. Gemini's subset is derived from this
//! (`crates/providers/src/gemini/schema.rs`).
//!
//! A schema is untrusted: the work is limited by `MAX_VALUES`, after which the rest accepts any
//! value.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The maximum depth of a schema. Deeper parts accept any value.
const MAX_DEPTH: usize = 64;

/// The maximum number of values of a schema that are processed, counting those behind references
/// each time.
const MAX_VALUES: usize = 50_000;

/// The maximum length of a chain of references that are replaced by their targets.
const MAX_INLINED_REFERENCES: usize = 3;

/// The maximum number of schemas in one `anyOf` or `allOf` that is made from alternatives.
const MAX_FORMS: usize = 32;

/// Invalid names of types, with the intended ones.
const TYPE_ALIASES: [(&str, &str); 24] = [
    ("int", "integer"),
    ("int32", "integer"),
    ("int64", "integer"),
    ("long", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("decimal", "number"),
    ("numeric", "number"),
    ("str", "string"),
    ("text", "string"),
    ("date", "string"),
    ("datetime", "string"),
    ("date-time", "string"),
    ("timestamp", "string"),
    ("uuid", "string"),
    ("uri", "string"),
    ("url", "string"),
    ("file", "string"),
    ("enum", "string"),
    ("bool", "boolean"),
    ("dict", "object"),
    ("map", "object"),
    ("list", "array"),
    ("none", "null"),
];

/// The types of JSON Schema.
const KNOWN_TYPES: [&str; 7] = [
    "object", "array", "string", "number", "integer", "boolean", "null",
];

/// Keywords whose value must be a number.
const NUMBER_KEYWORDS: [&str; 5] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];
/// Keywords whose value must be a non-negative integer.
const COUNT_KEYWORDS: [&str; 8] = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
];

/// Keywords whose value must be a string.
const STRING_KEYWORDS: [&str; 6] = [
    "title",
    "description",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
];
/// Keywords whose value must be a boolean.
const BOOLEAN_KEYWORDS: [&str; 4] = ["uniqueItems", "deprecated", "readOnly", "writeOnly"];

/// The formats of strings that both OpenAI and Anthropic document for schemas of tools.
const KNOWN_FORMATS: [&str; 9] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
];

/// Keywords with one schema.
const SCHEMA_KEYWORDS: [&str; 8] = [
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "contentSchema",
];
/// Keywords with a list of schemas.
const SCHEMA_LIST_KEYWORDS: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// Keywords with schemas by name.
const SCHEMA_MAP_KEYWORDS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Keywords that are not copied: they describe the document instead of the value, have another
/// meaning since an older draft, or are written by code of their own.
const DROPPED_KEYWORDS: [&str; 17] = [
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveRef",
    "$recursiveAnchor",
    "$vocabulary",
    "$comment",
    "dependencies",
    "additionalItems",
    "unevaluatedItems",
    "items",
    "prefixItems",
    "nullable",
];

/// Keywords that are preserved at the top of a tool's schema. The others are merged, or have no
/// meaning for an object.
const TOP_KEYWORDS: [&str; 8] = [
    "title",
    "description",
    "additionalProperties",
    "patternProperties",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "examples",
];

/// Returns the schema of a tool's arguments in the form that providers accept: an object with
/// properties, without alternatives at the top.
pub fn normalised(schema: &Value) -> Value {
    let normaliser = Normaliser {
        root: schema,
        left: Cell::new(MAX_VALUES),
    };
    let mut arguments = ToolArguments::default();
    let required = normaliser.collect(schema, false, &mut Vec::new(), &mut arguments);
    let ToolArguments {
        properties,
        mut rest,
    } = arguments;
    let required: Vec<String> = required.into_iter().collect();
    rest.insert("type".into(), "object".into());
    rest.insert("properties".into(), properties.into());
    if !required.is_empty() {
        // In their original order.
        let mut written = names(schema.get("required"));
        written.retain(|name| required.contains(name));
        written.extend(required);
        rest.insert("required".into(), json!(written));
    }
    let order = schema.as_object().into_iter().flat_map(Map::keys);
    let mut ordered: Map<String, Value> = order
        .filter_map(|key| Some((key.clone(), rest.shift_remove(key)?)))
        .collect();
    ordered.extend(rest);
    normaliser.left.set(MAX_VALUES);
    let mut out = normaliser.subschema(&ordered, 0, 0);
    let definitions = ["definitions", "$defs"]
        .into_iter()
        .filter_map(|key| schema.get(key)?.as_object())
        .flatten();
    let definitions: Map<String, Value> = definitions
        .map(|(name, one)| (name.clone(), normaliser.value(one, 1, 0)))
        .collect();
    if !definitions.is_empty() {
        out.insert("$defs".into(), definitions.into());
    }
    Value::Object(out)
}

/// The arguments that any alternative of a schema accepts.
#[derive(Default)]
struct ToolArguments {
    properties: Map<String, Value>,
    /// The other keywords of [`TOP_KEYWORDS`].
    rest: Map<String, Value>,
}

impl ToolArguments {
    /// Adds a property. If it is known with another schema, combines the two: by `anyOf` if this one
    /// is from an alternative, otherwise by `allOf`.
    fn add(&mut self, name: &str, one: &Value, is_alternative: bool) {
        let Some(known) = self.properties.get_mut(name) else {
            self.properties.insert(name.to_owned(), one.clone());
            return;
        };
        // An alternative usually repeats a property without details to require it. The known details
        // stay, so that the model knows them, although this alternative accepts other values too.
        if known == one || is_anything(one) {
            return;
        }
        if is_anything(known) && !is_alternative {
            *known = one.clone();
            return;
        }
        let keyword = if is_alternative { "anyOf" } else { "allOf" };
        let forms = known
            .as_object_mut()
            .filter(|map| map.len() == 1)
            .and_then(|map| map.get_mut(keyword));
        match forms.and_then(Value::as_array_mut) {
            Some(forms) if forms.len() >= MAX_FORMS || forms.contains(one) => {}
            Some(forms) => forms.push(one.clone()),
            None => *known = json!({ keyword: [known.take(), one] }),
        }
    }
}

/// Returns whether a schema accepts any value.
fn is_anything(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.is_empty(),
        _ => true,
    }
}

/// Returns the strings in a list, such as `required`.
fn names(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect()
}

/// Follows a reference within the document.
fn target<'a>(path: &str, root: &'a Value) -> Option<&'a Value> {
    let pointer = path.strip_prefix('#')?;
    if pointer.is_empty() {
        Some(root)
    } else {
        root.pointer(&pointer.replace("%24", "$").replace("%20", " "))
    }
}

/// The conversion of one schema.
struct Normaliser<'a> {
    /// The document that references refer to.
    root: &'a Value,
    /// The number of values that may still be processed.
    left: Cell<usize>,
}

impl<'a> Normaliser<'a> {
    /// Counts a value; returns false if there were too many.
    fn spend(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    /// Copies a value; returns null for the parts beyond the limit.
    fn copy(&self, value: &Value) -> Value {
        if !self.spend() {
            return Value::Null;
        }
        match value {
            Value::Array(all) => all.iter().map(|element| self.copy(element)).collect(),
            Value::Object(all) => Value::Object(
                all.iter()
                    .map(|(key, element)| (key.clone(), self.copy(element)))
                    .collect(),
            ),
            element => element.clone(),
        }
    }

    /// Collects the arguments of a schema and of its parts and alternatives into one object, which
    /// accepts the values of any of them that describes its properties. Returns the names that all of them require. `way` has the
    /// references that led here, and an empty entry for each part or alternative.
    fn collect(
        &self,
        schema: &'a Value,
        is_alternative: bool,
        way: &mut Vec<&'a str>,
        to: &mut ToolArguments,
    ) -> BTreeSet<String> {
        let Value::Object(schema) = schema else {
            return BTreeSet::new();
        };
        if !self.spend() || way.len() > MAX_DEPTH {
            return BTreeSet::new();
        }
        let mut required: BTreeSet<String> = names(schema.get("required")).into_iter().collect();
        for (name, one) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            if !self.spend() {
                break;
            }
            // An older draft has `required` in the property.
            if one.get("required") == Some(&Value::Bool(true)) {
                required.insert(name.clone());
            }
            to.add(name, one, is_alternative);
        }
        if !is_alternative {
            for key in TOP_KEYWORDS {
                if let Some(value) = schema.get(key) {
                    to.rest.entry(key).or_insert_with(|| self.copy(value));
                }
            }
        }
        if let Some(path) = schema.get("$ref").and_then(Value::as_str)
            && !way.contains(&path)
            && let Some(meant) = target(path, self.root)
        {
            way.push(path);
            required.extend(self.collect(meant, is_alternative, way, to));
            way.pop();
        }
        for part in schema
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            way.push("");
            required.extend(self.collect(part, is_alternative, way, to));
            way.pop();
        }
        let branches = |keys: &[&str]| -> Vec<&'a Value> {
            keys.iter().filter_map(|key| schema.get(*key)).collect()
        };
        let listed = |key: &str| -> Vec<&'a Value> {
            schema
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .collect()
        };
        for members in [
            listed("anyOf"),
            listed("oneOf"),
            branches(&["then", "else"]),
        ] {
            let mut by_all: Option<BTreeSet<String>> = None;
            let is_whole = members.len() != 1 || !schema.contains_key("if");
            for member in members {
                way.push("");
                let by_one = self.collect(member, true, way, to);
                way.pop();
                by_all = Some(match by_all {
                    Some(all) => all.intersection(&by_one).cloned().collect(),
                    None => by_one,
                });
            }
            if is_whole {
                required.extend(by_all.unwrap_or_default());
            }
        }
        required
    }

    /// Converts a schema, or a value in place of one, which becomes the schema for any value.
    /// `inlined` is the number of references that were replaced by their targets on the way here.
    fn value(&self, schema: &Value, depth: usize, inlined: usize) -> Value {
        match schema {
            Value::Object(schema) if depth <= MAX_DEPTH => {
                Value::Object(self.subschema(schema, depth, inlined))
            }
            _ => json!({}),
        }
    }

    /// Converts the keywords of a schema.
    fn subschema(
        &self,
        schema: &Map<String, Value>,
        depth: usize,
        inlined: usize,
    ) -> Map<String, Value> {
        if !self.spend() {
            return Map::new();
        }
        let mut out = Map::new();
        for (key, value) in schema {
            let inner = |one: &Value| self.value(one, depth + 1, inlined);
            let made = match key.as_str() {
                "$ref" => self.reference(value, depth, inlined, &mut out),
                // The identifier of an older draft.
                "id" if value.is_string() => None,
                "type" => types(value),
                key if SCHEMA_LIST_KEYWORDS.contains(&key) => self.list(key, value, depth, inlined),
                key if SCHEMA_KEYWORDS.contains(&key) => value.is_object().then(|| inner(value)),
                key if SCHEMA_MAP_KEYWORDS.contains(&key) => value.as_object().map(|named| {
                    Value::Object(
                        named
                            .iter()
                            .map(|(name, one)| (name.clone(), inner(one)))
                            .collect(),
                    )
                }),
                "additionalProperties" if value.is_object() => Some(inner(value)),
                "items" => self.items(schema, depth, inlined),
                key if DROPPED_KEYWORDS.contains(&key) => None,
                _ => Some(self.copy(value)),
            };
            if let Some(made) = made {
                out.insert(key.clone(), made);
            }
        }
        require(schema, &mut out);
        literals(&mut out);
        ranges(&mut out);
        format(&mut out);
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            admit_null(&mut out);
        }
        if (admits(&out, "array") || schema.contains_key("prefixItems"))
            && !out.contains_key("items")
        {
            let items = self
                .items(schema, depth, inlined)
                .unwrap_or_else(|| json!({}));
            out.insert("items".into(), items);
        }
        object(&mut out);
        out
    }

    /// Converts the members of alternatives or parts. Returns `None` if one of the alternatives
    /// accepts any value, or if no member is a schema.
    fn list(&self, key: &str, value: &Value, depth: usize, inlined: usize) -> Option<Value> {
        let members = value.as_array()?;
        if key != "allOf" && members.contains(&Value::Bool(true)) {
            return None;
        }
        let members = members.iter().filter(|member| member.is_object());
        let members: Vec<Value> = members
            .map(|member| self.value(member, depth + 1, inlined))
            .collect();
        (!members.is_empty()).then(|| members.into())
    }

    /// Converts a reference. Returns one to a definition; adds the target of any other to `out`, up
    /// to a chain of [`MAX_INLINED_REFERENCES`].
    fn reference(
        &self,
        reference: &Value,
        depth: usize,
        inlined: usize,
        out: &mut Map<String, Value>,
    ) -> Option<Value> {
        let path = reference.as_str()?;
        for keyword in ["definitions", "$defs"] {
            let name = path
                .strip_prefix("#/")
                .and_then(|path| path.strip_prefix(keyword)?.strip_prefix('/'));
            let Some(name) = name.filter(|name| !name.contains(['/', '~', '%'])) else {
                continue;
            };
            return self
                .root
                .get(keyword)?
                .get(name)
                .map(|_| format!("#/$defs/{name}").into());
        }
        if inlined >= MAX_INLINED_REFERENCES {
            return None;
        }
        let meant = target(path, self.root).and_then(Value::as_object)?;
        for (key, value) in self.subschema(meant, depth + 1, inlined + 1) {
            out.entry(key).or_insert(value);
        }
        None
    }

    /// Returns the schema of the items of an array. A list of schemas, one for each position,
    /// becomes a choice between them.
    fn items(&self, schema: &Map<String, Value>, depth: usize, inlined: usize) -> Option<Value> {
        let list = |key: &str| schema.get(key).and_then(Value::as_array);
        let by_position = list("prefixItems").or_else(|| list("items"));
        let others = ["items", "additionalItems"]
            .into_iter()
            .filter_map(|key| schema.get(key));
        let all = by_position
            .into_iter()
            .flatten()
            .chain(others.filter(|schema| schema.is_object()));
        let mut choices: Vec<Value> = Vec::new();
        for schema in all {
            let schema = self.value(schema, depth + 1, inlined);
            if choices.len() < MAX_FORMS && !choices.contains(&schema) {
                choices.push(schema);
            }
        }
        match choices.len() {
            0 | 1 => choices.pop(),
            _ => Some(json!({ "anyOf": choices })),
        }
    }
}

/// Returns whether a schema explicitly allows values of this type.
fn admits(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == kind,
        Some(Value::Array(all)) => all.iter().any(|one| one == kind),
        _ => false,
    }
}

/// Converts types to the names of JSON Schema.
fn types(written: &Value) -> Option<Value> {
    let known = |name: &Value| {
        let name = name.as_str()?.to_ascii_lowercase();
        let meant = TYPE_ALIASES
            .iter()
            .find(|(alias, _)| *alias == name)
            .map(|(_, meant)| *meant);
        meant.or_else(|| KNOWN_TYPES.into_iter().find(|known| *known == name))
    };
    let mut seen = BTreeSet::new();
    let all: Vec<&str> = match written {
        Value::Array(names) => names
            .iter()
            .filter_map(known)
            .filter(|name| seen.insert(*name))
            .collect(),
        one => known(one).into_iter().collect(),
    };
    match all.as_slice() {
        [] => None,
        [only] => Some((*only).into()),
        all => Some(json!(all)),
    }
}

/// Allows null, which OpenAPI expresses differently.
fn admit_null(out: &mut Map<String, Value>) {
    if let Some(values) = out.get_mut("enum").and_then(Value::as_array_mut)
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match out.get_mut("type") {
        Some(Value::String(only)) if only != "null" => {
            let only = only.clone();
            out.insert("type".into(), json!([only, "null"]));
        }
        Some(Value::Array(all)) if !all.iter().any(|one| one == "null") => all.push("null".into()),
        Some(_) => {}
        None => {
            let keyword = ["anyOf", "oneOf", "allOf", "$ref"]
                .into_iter()
                .find(|key| out.contains_key(*key));
            let nothing = json!({ "type": "null" });
            match keyword.and_then(|key| Some((key, out.get_mut(key)?))) {
                Some(("anyOf" | "oneOf", Value::Array(members))) if !members.contains(&nothing) => {
                    members.push(nothing)
                }
                Some((key @ ("allOf" | "$ref"), value)) => {
                    let value = value.take();
                    out.shift_remove(key);
                    out.insert("anyOf".into(), json!([{ key: value }, nothing]));
                }
                _ => {}
            }
        }
    }
}

/// Lists the required properties; an older draft marks them in the property.
fn require(schema: &Map<String, Value>, out: &mut Map<String, Value>) {
    let in_property = |(name, one): (&String, &Value)| {
        (one.get("required") == Some(&Value::Bool(true))).then(|| name.clone())
    };
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let mut required = names(schema.get("required"));
    required.extend(properties.filter_map(in_property));
    let mut seen = BTreeSet::new();
    required.retain(|name| seen.insert(name.clone()));
    match required.as_slice() {
        [] => drop(out.shift_remove("required")),
        required => drop(out.insert("required".into(), json!(required))),
    }
}

/// Removes duplicate values and adapts the type to them. Values that belong to the items of an
/// array but are listed in the array's schema are moved to the items.
fn literals(out: &mut Map<String, Value>) {
    let Some(written) = out.get("enum") else {
        return;
    };
    let mut seen = BTreeSet::new();
    let values = written.as_array().into_iter().flatten();
    let all: Vec<Value> = values
        .filter(|value| seen.insert(value.to_string()))
        .cloned()
        .collect();
    let is_array = out.get("type") == Some(&json!("array"));
    if all.is_empty() || is_array && !all.iter().any(Value::is_array) {
        out.shift_remove("enum");
        if !all.is_empty()
            && let Some(items) = out
                .entry("items")
                .or_insert_with(|| json!({}))
                .as_object_mut()
        {
            items.entry("enum").or_insert_with(|| all.into());
            literals(items);
        }
        return;
    }
    let fits = |value: &Value| {
        let kind = kind(value);
        admits(out, kind) || (kind == "integer" && admits(out, "number"))
    };
    if out.contains_key("type") && !all.iter().all(fits) {
        // The values determine the intended type.
        let kinds: BTreeSet<&str> = all.iter().map(kind).collect();
        let kinds: Vec<&str> = kinds.into_iter().collect();
        out.insert(
            "type".into(),
            if let [only] = kinds.as_slice() {
                json!(only)
            } else {
                json!(kinds)
            },
        );
    }
    out.insert("enum".into(), all.into());
}

/// Returns the type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Removes limits and texts of an invalid type, and converts the exclusive limits of older drafts.
fn ranges(out: &mut Map<String, Value>) {
    for (flag, limit) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        if let Some(Value::Bool(is_exclusive)) = out.get(flag) {
            let is_exclusive = *is_exclusive;
            out.shift_remove(flag);
            if is_exclusive && let Some(value) = out.shift_remove(limit) {
                out.insert(flag.into(), value);
            }
        }
    }
    let lists_names = |value: &Value| {
        value
            .as_array()
            .is_some_and(|list| list.iter().all(Value::is_string))
    };
    let is_right = |key: &str, value: &Value| match key {
        "multipleOf" => value.as_f64().is_some_and(|by| by > 0.0),
        "examples" => value.is_array(),
        "dependentRequired" => value
            .as_object()
            .is_some_and(|all| all.values().all(lists_names)),
        "additionalProperties" => value.is_boolean() || value.is_object(),
        key if NUMBER_KEYWORDS.contains(&key) => value.is_number(),
        key if COUNT_KEYWORDS.contains(&key) => value
            .as_f64()
            .is_some_and(|count| count >= 0.0 && count.fract() == 0.0),
        key if STRING_KEYWORDS.contains(&key) => value.is_string(),
        key if BOOLEAN_KEYWORDS.contains(&key) => value.is_boolean(),
        _ => true,
    };
    out.retain(|key, value| is_right(key, value));
}

/// Moves the format of a string into its description, unless providers know it. Other values have
/// none.
fn format(out: &mut Map<String, Value>) {
    let known = out.get("format").and_then(Value::as_str);
    let Some(format) = known.filter(|format| !KNOWN_FORMATS.contains(format)) else {
        return;
    };
    let note = format!("Format: {format}.");
    out.shift_remove("format");
    if out.contains_key("type") && !admits(out, "string") {
        return;
    }
    let described = match out.get("description").and_then(Value::as_str) {
        Some(text) if text.contains(&note) => return,
        Some(text) if !text.trim().is_empty() => format!("{text}\n{note}"),
        _ => note,
    };
    out.insert("description".into(), described.into());
}

/// Gives an object properties, including those that it requires.
fn object(out: &mut Map<String, Value>) {
    let is_object = admits(out, "object") || out.contains_key("properties");
    if !is_object {
        return;
    }
    if !["properties", "patternProperties", "additionalProperties"]
        .iter()
        .any(|key| out.contains_key(*key))
    {
        out.insert("properties".into(), json!({}));
    }
    let required = names(out.get("required"));
    if let Some(properties) = out.get_mut("properties").and_then(Value::as_object_mut) {
        for name in required {
            properties.entry(name).or_insert_with(|| json!({}));
        }
    }
}

#[cfg(test)]
mod tests;
