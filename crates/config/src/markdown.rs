//! Agents and commands as Markdown: YAML front matter between two lines `---`, followed by the
//! prompt or template. Front matter is checked as strictly as any settings file, with one
//! exception: if the YAML is invalid because a value contains a colon (`description: Use when: …`),
//! such values are quoted and it is parsed again.

use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Location, NonFiniteFloatPolicy, Spanned};

use super::declare::ConfigSchema;
use super::legacy;
use super::node::{ConfigOrigin, MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode, ProblemSeverity};
use super::reader::ConfigReader;

/// The front matter and the body of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct MarkdownParts<'a> {
    /// The text between the lines `---`. `None` if the file does not begin with one.
    pub matter: Option<&'a str>,
    pub body: &'a str,
    /// The line on which the body begins, from 1.
    pub body_line: u32,
}

/// Splits a file.
///
/// # Errors
/// If front matter begins and does not end.
pub fn split(text: &str) -> Result<MarkdownParts<'_>, &'static str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if !is_fence(first) {
        return Ok(MarkdownParts {
            matter: None,
            body: text,
            body_line: 1,
        });
    }
    let start = first.len();
    let mut end = start;
    let mut count: u32 = 1;
    for line in lines {
        count = count.saturating_add(1);
        if is_fence(line) {
            let body = text.get(end + line.len()..).unwrap_or_default();
            return Ok(MarkdownParts {
                matter: text.get(start..end),
                body,
                body_line: count.saturating_add(1),
            });
        }
        end += line.len();
    }
    Err("the front matter begins with --- and never ends")
}

/// Reads an agent's file: its own name, if it has one, and its settings. `None` if it cannot be
/// used.
pub(crate) fn agent(
    origin: &Arc<ConfigOrigin>,
    old_place: bool,
    reader: &mut ConfigReader<'_>,
) -> Option<(Option<String>, Node)> {
    let (mut node, body, body_at) = page(origin, reader)?;
    if node.is_none() {
        let text = "this agent has no front matter: the whole file is its prompt, and it has no description";
        let problem = Problem::warning(
            ProblemCode::NoDescription,
            &SourceLocation::whole_text(origin),
            "",
            text,
        );
        reader
            .problems
            .push(problem.hint("begin the file with ---, description: ..., ---"));
    }
    let mut node = node
        .take()
        .unwrap_or_else(|| Node::empty(SourceLocation::whole_text(origin)));
    legacy::tool_lists(&mut node, &mut reader.problems);
    legacy::agent_spellings(&mut node, "", &mut reader.problems);
    ConfigSchema::agent().check(&mut node, "", &mut reader.problems);
    legacy::agent(&mut node, "", &mut reader.problems);
    if let Some(permission) = node.get("permission") {
        super::rules::report_unreachable(permission, "permission", &mut reader.problems);
    }
    super::examples::check_agent_examples(&mut node, reader);
    let own = node
        .take("name")
        .and_then(|entry| entry.node.as_text().map(str::to_owned))
        .filter(|name| !name.is_empty());
    if !body.is_empty() {
        node.set("prompt", body_at.clone(), Node::text(body, body_at.clone()));
    }
    if old_place {
        let at = SourceLocation::whole_text(origin);
        node.set("mode", at.clone(), Node::text("primary", at));
    }
    Some((own, node))
}

pub(crate) fn command(
    origin: &Arc<ConfigOrigin>,
    reader: &mut ConfigReader<'_>,
) -> Option<(Option<String>, Node)> {
    let (node, body, body_at) = page_or(origin, reader, OnBadYaml::PlainBody)?;
    let mut node = node.unwrap_or_else(|| Node::empty(SourceLocation::whole_text(origin)));
    // Commands of other programs have further keys, such as `allowed-tools`.
    for known in ["allowed-tools", "arguments"] {
        if let Some(entry) = node.take(known) {
            let text = "no effect: it belongs to commands of another program";
            reader
                .problems
                .push(Problem::note(ProblemCode::NoEffect, &entry.at, known, text));
        }
    }
    if let Some(entry) = node.take(ARGUMENT_HINT) {
        node.set(ARGUMENT_HINT, entry.at, hint(entry.node));
    }
    let own = node.take("name").and_then(|entry| {
        Some(
            entry
                .node
                .as_text()?
                .trim()
                .trim_start_matches('/')
                .to_owned(),
        )
    });
    let own = own.filter(|name| !name.is_empty() && !name.contains(char::is_whitespace));
    ConfigSchema::command().check(&mut node, "", &mut reader.problems);
    if body.is_empty() && node.get("template").is_none() {
        reader.problems.push(Problem::error(
            ProblemCode::Incomplete,
            &SourceLocation::whole_text(origin),
            "",
            "this command is empty; it is not used",
        ));
        return None;
    }
    if !body.is_empty() {
        node.set("template", body_at.clone(), Node::text(body, body_at));
    }
    Some((own, node))
}

/// The key of the hint for a command's arguments.
const ARGUMENT_HINT: &str = "argument-hint";

/// Returns the hint for arguments as text: `[file]` is a list in YAML.
fn hint(node: Node) -> Node {
    let NodeValue::List(items) = &node.value else {
        return node;
    };
    let words: Option<Vec<&str>> = items.iter().map(Node::as_text).collect();
    match words {
        Some(words) => Node::text(format!("[{}]", words.join(", ")), node.at),
        None => node,
    }
}

/// The treatment of a file whose front matter is not YAML.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnBadYaml {
    Unused,
    /// Only the body is used.
    PlainBody,
}

/// Reads the front matter and the body of a file; the front matter is always an object.
pub fn page(
    origin: &Arc<ConfigOrigin>,
    reader: &mut ConfigReader<'_>,
) -> Option<(Option<Node>, String, SourceLocation)> {
    page_or(origin, reader, OnBadYaml::Unused)
}

fn page_or(
    origin: &Arc<ConfigOrigin>,
    reader: &mut ConfigReader<'_>,
    bad: OnBadYaml,
) -> Option<(Option<Node>, String, SourceLocation)> {
    let mut text = reader.read(origin)?;
    if origin.project {
        let (visible, removed) = base::text::visible(&text);
        if removed > 0 {
            let some = if removed == 1 {
                "1 invisible character was".to_owned()
            } else {
                format!("{removed} invisible characters were")
            };
            reader.problems.push(Problem::warning(
                ProblemCode::HiddenCharacters,
                &SourceLocation::whole_text(origin),
                "",
                format!("{some} removed from this file"),
            ));
            text = visible;
        }
    }
    let split = match split(&text) {
        Ok(split) => split,
        Err(why) => {
            let location = SourceLocation {
                origin: origin.clone(),
                line: 1,
                column: 1,
            };
            reader.problems.push(
                Problem::error(ProblemCode::Syntax, &location, "", why)
                    .hint("end it with a line ---"),
            );
            return None;
        }
    };
    let body_at = SourceLocation {
        origin: origin.clone(),
        line: split.body_line,
        column: 1,
    };
    let body = split.body.trim().to_owned();
    let Some(matter) = split.matter else {
        return Some((None, body, body_at));
    };
    match yaml(matter, origin, 1, &mut reader.problems) {
        Ok(node) => Some((Some(node), body, body_at)),
        Err(mut problem) if bad == OnBadYaml::PlainBody => {
            problem.severity = ProblemSeverity::Warning;
            let hint = "put values with special characters in quotes; the text below it is used without it";
            reader.problems.push(problem.hint(hint));
            Some((None, body, body_at))
        }
        Err(problem) => {
            reader.problems.push(problem);
            None
        }
    }
}

/// Parses front matter into a tree. `above` lines of the file come before it.
///
/// # Errors
/// The error, with its location.
pub(crate) fn yaml(
    text: &str,
    origin: &Arc<ConfigOrigin>,
    above: u32,
    problems: &mut Vec<Problem>,
) -> Result<Node, Problem> {
    let first = parse(text).or_else(|e| {
        let quoted = quote_colons(text);
        if quoted == text {
            Err(e)
        } else {
            parse(&quoted).map_err(|_| e)
        }
    });
    let whole = SourceLocation {
        origin: origin.clone(),
        line: above.saturating_add(1),
        column: 1,
    };
    let raw = match first {
        Ok(raw) => raw,
        Err(e) => {
            let location = e
                .location()
                .map_or(whole.clone(), |at| location(at, origin, above));
            let text = e.to_string();
            let text = text.lines().next().unwrap_or_default();
            let text = text
                .split(" at line ")
                .next()
                .unwrap_or_default()
                .trim_end_matches([':', ' ']);
            let problem = Problem::error(
                ProblemCode::Syntax,
                &location,
                "",
                format!("the front matter is not valid YAML: {text}"),
            );
            return Err(
                problem.hint("put values with special characters in quotes; this file is not used")
            );
        }
    };
    let mut reader = YamlReader {
        origin,
        above,
        problems,
        path: Vec::new(),
    };
    let mut node = match raw {
        None => Node::empty(whole),
        Some(raw) => reader.node(raw),
    };
    if matches!(node.value, NodeValue::Null) {
        node.value = NodeValue::Map(Vec::new());
    }
    if !matches!(node.value, NodeValue::Map(_)) {
        let problem = Problem::error(
            ProblemCode::Syntax,
            &node.at,
            "",
            format!(
                "the front matter must be keys and values, found {}",
                node.kind()
            ),
        );
        return Err(problem.hint("description: what it is for"));
    }
    // An unquoted colour is a comment in YAML.
    if let Some((line, _)) = text
        .lines()
        .enumerate()
        .find(|(_, line)| line.starts_with("color: #") || line.starts_with("color:  #"))
    {
        let line = u32::try_from(line)
            .unwrap_or(0)
            .saturating_add(above)
            .saturating_add(1);
        let location = SourceLocation {
            origin: origin.clone(),
            line,
            column: 8,
        };
        let problem = Problem::warning(
            ProblemCode::WrongValue,
            &location,
            "color",
            "# begins a comment, so this colour is empty",
        );
        problems.push(problem.hint("put it in quotes: color: \"#rrggbb\""));
    }
    Ok(node)
}

fn parse(text: &str) -> Result<Option<Spanned<YamlValue>>, serde_saphyr::Error> {
    if text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
    {
        return Ok(None);
    }
    // Far below the parser's own limits: front matter is short.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 20_000,
            max_nodes: 10_000,
            max_depth: 32,
            max_aliases: 64,
            max_anchors: 64,
            max_documents: 1,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // An infinite or undefined number costs its key, not the whole file.
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map(Some)
}

/// Quotes the value of every line `key: value` that has no indentation, no quotes and a colon in
/// its value, and hints for arguments in brackets. Line numbers do not change.
fn quote_colons(text: &str) -> String {
    let quote = |line: &str| -> String {
        let (bare, end) = line
            .strip_suffix('\n')
            .map_or((line, ""), |bare| (bare, "\n"));
        let Some((key, value)) = bare.split_once(": ") else {
            return line.to_owned();
        };
        let value = value.trim();
        let plain_key = !key.is_empty()
            && key
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$'));
        let plain_value = !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!', '#']);
        // `[file] [line]` is a usual hint, and no list.
        let is_hint = key == ARGUMENT_HINT && value.starts_with('[');
        if !is_hint && (!plain_key || !plain_value || !value.contains(':')) {
            return line.to_owned();
        }
        format!("{key}: {}{end}", serde_json::Value::from(value))
    };
    text.split_inclusive('\n').map(quote).collect()
}

fn location(at: Location, origin: &Arc<ConfigOrigin>, above: u32) -> SourceLocation {
    let line = u32::try_from(at.line()).unwrap_or(0).saturating_add(above);
    SourceLocation {
        origin: origin.clone(),
        line,
        column: u32::try_from(at.column()).unwrap_or(0),
    }
}

/// A YAML value from the parser.
#[derive(Debug)]
enum YamlValue {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<YamlValue>>),
    Map(Vec<(Spanned<String>, Spanned<YamlValue>)>),
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct YamlVisitor;
        impl<'de> Visitor<'de> for YamlVisitor {
            type Value = YamlValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E>(self, yes: bool) -> Result<YamlValue, E> {
                Ok(YamlValue::Bool(yes))
            }

            fn visit_i64<E>(self, n: i64) -> Result<YamlValue, E> {
                Ok(YamlValue::Number(n.into()))
            }

            fn visit_u64<E>(self, n: u64) -> Result<YamlValue, E> {
                Ok(YamlValue::Number(n.into()))
            }

            fn visit_f64<E>(self, n: f64) -> Result<YamlValue, E> {
                Ok(Number::from_f64(n)
                    .map_or_else(|| YamlValue::Text(n.to_string()), YamlValue::Number))
            }

            fn visit_str<E>(self, text: &str) -> Result<YamlValue, E> {
                Ok(YamlValue::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<YamlValue, E> {
                Ok(YamlValue::Null)
            }

            fn visit_none<E>(self) -> Result<YamlValue, E> {
                Ok(YamlValue::Null)
            }

            fn visit_some<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<YamlValue, D::Error> {
                YamlValue::deserialize(deserializer)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlValue, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    list.push(item);
                }
                Ok(YamlValue::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlValue, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(YamlValue::Map(entries))
            }
        }
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlReader<'a> {
    origin: &'a Arc<ConfigOrigin>,
    above: u32,
    problems: &'a mut Vec<Problem>,
    path: Vec<String>,
}

impl YamlReader<'_> {
    fn node(&mut self, raw: Spanned<YamlValue>) -> Node {
        let at = location(raw.referenced, self.origin, self.above);
        let value = match raw.value {
            YamlValue::Null => NodeValue::Null,
            YamlValue::Bool(yes) => NodeValue::Bool(yes),
            YamlValue::Number(number) => NodeValue::Number(number),
            YamlValue::Text(text) => NodeValue::Text(text),
            YamlValue::List(list) => {
                NodeValue::List(list.into_iter().map(|raw| self.node(raw)).collect())
            }
            YamlValue::Map(map) => {
                let mut entries: Vec<MapEntry> = Vec::with_capacity(map.len());
                for (key, raw) in map {
                    let key_at = location(key.referenced, self.origin, self.above);
                    self.path.push(key.value.clone());
                    if let Some(first) = entries.iter().find(|entry| entry.key == key.value) {
                        let text = format!("this key is already set in line {}", first.at.line);
                        let problem = Problem::error(
                            ProblemCode::Duplicate,
                            &key_at,
                            self.path.join("."),
                            text,
                        );
                        self.problems.push(
                            problem.hint("keep one of the two; until then the first one applies"),
                        );
                    } else {
                        let node = self.node(raw);
                        entries.push(MapEntry {
                            key: key.value,
                            at: key_at,
                            node,
                        });
                    }
                    self.path.pop();
                }
                NodeValue::Map(entries)
            }
        };
        Node { value, at }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Layer;
    use super::*;

    fn read(text: &str) -> (Result<Node, Problem>, Vec<Problem>) {
        let origin = Arc::new(ConfigOrigin {
            name: "a.md".into(),
            path: None,
            layer: Layer::Directory,
            project: true,
        });
        let mut problems = Vec::new();
        (yaml(text, &origin, 1, &mut problems), problems)
    }

    #[test]
    fn file_is_split_into_matter_and_body() {
        let split = |text| split(text).map(|split| (split.matter, split.body, split.body_line));
        assert_eq!(split("---\na: 1\n---\nb\n"), Ok((Some("a: 1\n"), "b\n", 4)));
        assert_eq!(
            split("---\r\na: 1\r\n---\r\nb"),
            Ok((Some("a: 1\r\n"), "b", 4))
        );
        assert_eq!(split("b\n---\n"), Ok((None, "b\n---\n", 1)));
        assert_eq!(split("---\n---\n"), Ok((Some(""), "", 3)));
        assert!(split("---\na: 1\n").is_err());
    }

    #[test]
    fn values_have_locations_and_order() {
        let (node, problems) = read(
            "description: x\npermission:\n  \"*\": ask\n  bash:\n    git *: allow\nyes: yes\n",
        );
        let node = node.unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let keys: Vec<&str> = node
            .entries()
            .iter()
            .map(|entry| entry.key.as_str())
            .collect();
        assert_eq!(keys, ["description", "permission", "yes"]);
        let rule = node.at(&["permission", "bash", "git *"]).unwrap();
        assert_eq!((rule.at.line, rule.at.column), (6, 12));
        assert_eq!(
            node.get("yes").and_then(Node::as_text),
            Some("yes"),
            "only true and false are switches"
        );
    }

    #[test]
    fn colons_in_values_are_accepted() {
        let (node, _) = read("description: Use when: always\nmodel: a/b:free\nsteps: 3\n");
        let node = node.unwrap();
        assert_eq!(
            node.get("description").and_then(Node::as_text),
            Some("Use when: always")
        );
        assert_eq!(node.get("model").and_then(Node::as_text), Some("a/b:free"));
        assert_eq!(node.get("steps").unwrap().to_json(), serde_json::json!(3));
    }

    #[test]
    fn invalid_front_matter_is_reported() {
        let (node, _) = read("a: [1\nb: 2\n");
        let problem = node.unwrap_err().to_string();
        assert!(
            problem.starts_with("a.md:") && problem.contains("not valid YAML"),
            "{problem}"
        );
        let (node, _) = read("just words\n");
        assert!(node.unwrap_err().to_string().contains("keys and values"));
        let (_, problems) = read("a: 1\na: 2\n");
        assert_eq!(
            problems[0].to_string().split(';').next(),
            Some("a.md:3:1: a: this key is already set in line 2")
        );
        let (_, problems) = read("color: #ff0000\n");
        assert!(
            problems[0].to_string().contains("in quotes"),
            "{problems:?}"
        );
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
        assert!(read(bomb).0.is_err());
    }
}
