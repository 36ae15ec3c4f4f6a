//! Reads a list of a server page by page, within limits. Skips single entries that cannot be read.

use std::collections::HashSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use base::text;

/// The number of entries of one kind that a server may list; more are dropped.
pub(super) const MAX_LISTED: usize = 1024;
/// The total size of all entries of one kind, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// The size of one entry, in bytes; a larger one is dropped.
const MAX_ONE_BYTES: usize = 1 << 20;
/// The longest reason for an unreadable entry, in characters.
const MAX_REASON: usize = 300;

/// The part of a list that has been read so far.
pub(super) struct ListReading<T> {
    pub all: Vec<T>,
    /// The size of `all` in JSON.
    bytes: usize,
    /// True if entries were dropped because of the limits.
    pub is_cut: bool,
    /// The entries that cannot be read: the name of each, or its position in the list, with the
    /// reason.
    pub unreadable: Vec<String>,
    /// The number of entries so far, including dropped ones.
    entries: usize,
    /// The cursors of the pages so far.
    cursors: HashSet<String>,
}

impl<T: Serialize> ListReading<T> {
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            bytes: 0,
            is_cut: false,
            unreadable: Vec::new(),
            entries: 0,
            cursors: HashSet::new(),
        }
    }

    /// Returns the cursor of the next page, if there is one. A repeated cursor ends the list, because
    /// it would lead to the same pages again. So does an empty one, which some servers send at the
    /// end.
    fn next_cursor(&mut self, next: Option<String>) -> Option<Option<String>> {
        let next = next.filter(|next| !next.is_empty())?;
        self.cursors.insert(next.clone()).then_some(Some(next))
    }

    /// Adds a page. Returns the cursor of the next page, or `None` if no more is wanted or
    /// available.
    pub(super) fn page(&mut self, page: Vec<T>, next: Option<String>) -> Option<Option<String>> {
        for entry in page {
            if !self.push(entry) {
                return None;
            }
        }
        self.next_cursor(next)
    }

    /// Adds an entry. Returns whether more entries fit.
    fn push(&mut self, entry: T) -> bool {
        self.entries += 1;
        let bytes = serde_json::to_vec(&entry).map_or(MAX_BYTES, |json| json.len());
        if bytes > MAX_ONE_BYTES {
            self.is_cut = true;
            return true;
        }
        self.bytes += bytes;
        if self.all.len() == MAX_LISTED || self.bytes > MAX_BYTES {
            self.is_cut = true;
            return false;
        }
        self.all.push(entry);
        true
    }
}

impl<T: Serialize + DeserializeOwned> ListReading<T> {
    /// Adds a page in its original JSON, entry by entry. Returns the cursor of the next page, or
    /// `None` if no more is wanted or available.
    ///
    /// # Errors
    /// Returns [`MissingList`] if the page has no list of this name.
    pub(super) fn lenient_page(
        &mut self,
        mut page: Value,
        field: &str,
    ) -> Result<Option<Option<String>>, MissingList> {
        let next = page
            .get("nextCursor")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let Some(Value::Array(entries)) = page.get_mut(field).map(Value::take) else {
            return Err(MissingList);
        };
        for entry in entries {
            if self.entries == MAX_LISTED {
                self.is_cut = true;
                return Ok(None);
            }
            if entry.to_string().len() > MAX_ONE_BYTES {
                self.entries += 1;
                self.is_cut = true;
                continue;
            }
            match read_entry(entry) {
                Ok(entry) => {
                    if !self.push(entry) {
                        return Ok(None);
                    }
                }
                Err(reason) => {
                    self.entries += 1;
                    self.unreadable
                        .push(text::cut_chars(&reason.describe(self.entries), MAX_REASON));
                }
            }
        }
        Ok(self.next_cursor(next))
    }
}

/// A page without the requested list.
#[derive(Debug, PartialEq)]
pub(super) struct MissingList;

/// An entry that cannot be read.
struct EntryFault {
    name: Option<String>,
    reason: String,
}

impl EntryFault {
    fn describe(&self, index: usize) -> String {
        let name = match &self.name {
            Some(name) => text::title(name),
            None => format!("entry {index}"),
        };
        format!("{name} ({})", text::escaped(&self.reason))
    }
}

/// The key of a schema that sends an argument as a header. rmcp validates and prepares it in lists
/// that it can parse itself.
const HEADER: &str = "x-mcp-header";

/// The optional fields of an entry.
const OPTIONAL: [&str; 8] = [
    "annotations",
    "outputSchema",
    "icons",
    "_meta",
    "execution",
    "title",
    "description",
    "mimeType",
];

/// Reads an entry. A tool without a schema takes no arguments, and malformed optional fields are
/// dropped.
fn read_entry<T: DeserializeOwned>(entry: Value) -> Result<T, EntryFault> {
    let Value::Object(mut entry) = entry else {
        return Err(EntryFault {
            name: None,
            reason: "it is not a JSON object".into(),
        });
    };
    if entry
        .get("inputSchema")
        .is_some_and(|schema| schema.to_string().contains(HEADER))
    {
        let reason = format!("{HEADER} is only read in a list without mistakes");
        return Err(EntryFault {
            name: name_of(&entry),
            reason,
        });
    }
    if entry.get("inputSchema").is_none_or(Value::is_null) {
        entry.insert(
            "inputSchema".into(),
            json!({ "type": "object", "properties": {} }),
        );
    }
    let first = match parse(&entry) {
        Ok(read) => return Ok(read),
        Err(e) => e,
    };
    // One field at a time, so that a malformed hint does not drop the description.
    for field in OPTIONAL {
        if let Some(dropped) = entry.remove(field) {
            if let Ok(read) = parse(&entry) {
                return Ok(read);
            }
            entry.insert(field.into(), dropped);
        }
    }
    entry.retain(|field, _| !OPTIONAL.contains(&field.as_str()));
    parse(&entry).map_err(|_| EntryFault {
        name: name_of(&entry),
        reason: first.to_string(),
    })
}

fn name_of(entry: &Map<String, Value>) -> Option<String> {
    entry
        .get("name")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
}

fn parse<T: DeserializeOwned>(entry: &Map<String, Value>) -> Result<T, serde_json::Error> {
    T::deserialize(entry)
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CustomResult, ServerResult, Tool};

    use super::*;

    fn tool(name: &str, bytes: usize) -> Tool {
        let json = json!({ "name": name, "description": "d".repeat(bytes), "inputSchema": {} });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn oversized_tool_is_dropped_alone() {
        let mut reading = ListReading::new();
        let page = vec![
            tool("a", 10),
            tool("large", 5 << 20),
            tool("b", 10),
            tool("larger", 50 << 20),
            tool("c", 10),
        ];
        assert_eq!(reading.page(page, None), None);
        let names: Vec<&str> = reading.all.iter().map(|tool| &*tool.name).collect();
        assert_eq!((names, reading.is_cut), (vec!["a", "b", "c"], true));
        // The total size has a limit as well.
        let page = (0..10).map(|n| tool(&format!("t{n}"), 500 << 10)).collect();
        assert_eq!(reading.page(page, Some("next".into())), None);
        assert_eq!((reading.all.len(), reading.is_cut), (11, true));
    }

    /// Reads a list in the form in which rmcp passes on a result that it cannot parse.
    fn read(result: Value) -> (Vec<Value>, Vec<String>) {
        let Ok(ServerResult::CustomResult(CustomResult(page))) =
            serde_json::from_value(result.clone())
        else {
            panic!("the library reads {result} itself");
        };
        let mut reading = ListReading::<Tool>::new();
        assert_eq!(
            reading.lenient_page(page, "tools"),
            Ok(Some(Some("next".to_owned())))
        );
        (
            reading
                .all
                .iter()
                .map(|tool| serde_json::to_value(tool).unwrap())
                .collect(),
            reading.unreadable,
        )
    }

    #[test]
    fn list_ends_at_an_empty_or_repeated_cursor() {
        let mut reading = ListReading::<Tool>::new();
        let mut follows = |next: Value| {
            let page = json!({ "tools": [], "nextCursor": next });
            reading.lenient_page(page, "tools").unwrap().flatten()
        };
        assert_eq!(follows(json!("a")).as_deref(), Some("a"));
        assert_eq!(follows(json!("b")).as_deref(), Some("b"));
        assert_eq!(follows(json!("a")), None);
        assert_eq!(follows(json!("")), None);
        assert_eq!(follows(Value::Null), None);
    }

    #[test]
    fn unreadable_entry_does_not_affect_others() {
        let good = json!({ "name": "good", "description": "Says it.", "inputSchema": { "type": "object" } });
        let with = |entry: Value| {
            let (tools, unreadable) =
                read(json!({ "tools": [entry, good, null], "nextCursor": "next" }));
            let last = unreadable.last().map(String::as_str);
            assert_eq!(last, Some("entry 3 (it is not a JSON object)"));
            (tools, unreadable[..unreadable.len() - 1].to_vec())
        };
        let no_arguments = json!({ "type": "object", "properties": {} });
        // Each entry, with its repaired form.
        let repaired = [
            (
                json!({ "name": "a" }),
                json!({ "name": "a", "inputSchema": no_arguments }),
            ),
            (
                json!({ "name": "a", "inputSchema": null }),
                json!({ "name": "a", "inputSchema": no_arguments }),
            ),
            (
                json!({ "name": "a", "description": "d", "inputSchema": {}, "annotations": "safe" }),
                json!({ "name": "a", "description": "d", "inputSchema": {} }),
            ),
            (
                json!({ "name": "a", "inputSchema": {}, "description": ["d"], "outputSchema": [], "title": 3 }),
                json!({ "name": "a", "inputSchema": {} }),
            ),
        ];
        for (entry, taken) in repaired {
            assert_eq!(
                with(entry.clone()),
                (vec![taken, good.clone()], Vec::new()),
                "{entry}"
            );
        }
        let left_out = [
            (
                json!({ "inputSchema": {} }),
                "entry 1 (missing field `name`)",
            ),
            (
                json!({ "name": 7, "inputSchema": {} }),
                "entry 1 (invalid type: integer `7`, expected a string)",
            ),
            (
                json!({ "name": "a", "inputSchema": "{}" }),
                "a (invalid type: string \"{}\", expected a map)",
            ),
            (
                json!({ "name": "a", "inputSchema": { "properties": { "b": { "x-mcp-header": "B" } } } }),
                "a (x-mcp-header is only read in a list without mistakes)",
            ),
            (json!("a"), "entry 1 (it is not a JSON object)"),
            (json!(null), "entry 1 (it is not a JSON object)"),
        ];
        for (entry, reason) in left_out {
            assert_eq!(
                with(entry.clone()),
                (vec![good.clone()], vec![reason.to_owned()]),
                "{entry}"
            );
        }
    }

    #[test]
    fn page_without_a_list_is_an_error() {
        for page in [
            json!({}),
            json!({ "tools": {} }),
            json!({ "prompts": [] }),
            json!([]),
            json!(null),
        ] {
            assert_eq!(
                ListReading::<Tool>::new().lenient_page(page.clone(), "tools"),
                Err(MissingList),
                "{page}"
            );
        }
    }
}
