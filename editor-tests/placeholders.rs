//! Placeholders for values that differ from run to run, so that a page stays valid: ids by the
//! order of their first occurrence, directories, times.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::project::Project;

/// Prefixes of ids, and the names of their placeholders.
const IDS: &[(&str, &str)] = &[
    ("ses_", "session"),
    ("msg_", "msg"),
    ("prt_", "part"),
    ("call_", "call"),
    ("aside_", "aside"),
];

/// Number of characters of an id after its prefix.
const TAIL: usize = 26;

/// The names of one run.
pub struct Placeholders {
    /// Texts that are known from the start, longest first.
    fixed: Vec<(String, String)>,
    ids: BTreeMap<String, String>,
    seen: BTreeMap<&'static str, usize>,
    asks: BTreeMap<String, String>,
}

impl Placeholders {
    /// Returns the names of a project's directories.
    pub fn new(project: &Project) -> Self {
        let fixed = project
            .names()
            .into_iter()
            .map(|(name, path)| (path, name.to_owned()))
            .collect();
        Self {
            fixed,
            ids: BTreeMap::new(),
            seen: BTreeMap::new(),
            asks: BTreeMap::new(),
        }
    }

    /// Gives a text a name.
    pub fn fix(&mut self, text: &str, name: &str) {
        self.fixed.push((text.to_owned(), name.to_owned()));
    }

    /// Gives a request of the agent's a name.
    pub fn ask(&mut self, id: &Value) {
        let name = format!("‹ask{}›", self.asks.len() + 1);
        self.asks.entry(id.to_string()).or_insert(name);
    }

    /// Exchanges two placeholders.
    pub fn exchange(&mut self, [one, other]: [&str; 2]) {
        for name in self.ids.values_mut().chain(self.asks.values_mut()) {
            if name == one {
                *name = other.to_owned();
            } else if name == other {
                *name = one.to_owned();
            }
        }
    }

    /// Returns the id behind a placeholder such as `${SESSION}`.
    pub fn meaning(&self, name: &str) -> Option<String> {
        self.ids
            .iter()
            .find(|(_, n)| *n == name)
            .map(|(id, _)| id.clone())
    }

    /// Returns a command line with the values of its placeholders, such as `${WEB}`.
    pub fn expand(&self, typed: &str) -> String {
        self.fixed
            .iter()
            .fold(typed.to_owned(), |text, (long, name)| {
                text.replace(name, long)
            })
    }

    /// Returns a text with names in it.
    pub fn shorten(&mut self, text: &str) -> String {
        let mut text = self
            .fixed
            .iter()
            .fold(text.to_owned(), |text, (long, name)| {
                text.replace(long, name)
            });
        for (prefix, kind) in IDS {
            let mut from = 0;
            while let Some(at) = text[from..].find(prefix).map(|at| at + from) {
                let end = at + prefix.len() + TAIL;
                let own = text
                    .get(at + prefix.len()..end)
                    .is_some_and(|t| t.bytes().all(|b| b.is_ascii_alphanumeric()));
                from = at + prefix.len();
                if own {
                    let name = self.name(&text[at..end], kind);
                    text.replace_range(at..end, &name);
                    from = at + name.len();
                }
            }
        }
        text
    }

    fn name(&mut self, id: &str, kind: &'static str) -> String {
        if let Some(name) = self.ids.get(id) {
            return name.clone();
        }
        let number = self.seen.entry(kind).or_default();
        *number += 1;
        let name = match (kind, *number) {
            ("session", 1) => "${SESSION}".to_owned(),
            ("session", number) => format!("${{SESSION{number}}}"),
            (kind, number) => format!("‹{kind}{number}›"),
        };
        self.ids.insert(id.to_owned(), name.clone());
        name
    }

    /// Inserts placeholders that depend on the position: ids of the agent's requests, times.
    pub fn tidy(&self, value: &mut Value) {
        if value["method"].is_string()
            && let Some(name) = self.asks.get(&value["id"].to_string())
        {
            value["id"] = name.clone().into();
        }
        if value["method"] == "$/cancel_request"
            && let Some(name) = self.asks.get(&value["params"]["requestId"].to_string())
        {
            value["params"]["requestId"] = name.clone().into();
        }
        moments(value);
    }
}

fn moments(value: &mut Value) {
    match value {
        Value::String(text) if is_moment(text) => *text = "‹time›".into(),
        Value::Array(items) => items.iter_mut().for_each(moments),
        Value::Object(members) => members.values_mut().for_each(moments),
        _ => {}
    }
}

/// Returns whether a text has the form `2026-11-21T09:30:00Z`.
fn is_moment(text: &str) -> bool {
    let shape = |b: u8| if b.is_ascii_digit() { b'0' } else { b };
    text.bytes().map(shape).eq(*b"0000-00-00T00:00:00Z")
}
