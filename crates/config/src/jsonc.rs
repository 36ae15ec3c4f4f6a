//! JSON with comments and trailing commas, as a [`Node`].

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::node::{ConfigOrigin, MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};

/// Parses a text. A duplicate key is a problem, and the first of the two is used, because guessing
/// the intended one of two rules would be worse.
///
/// # Errors
/// The syntax error, with its location.
pub(crate) fn parse(
    text: &str,
    origin: &Arc<ConfigOrigin>,
    problems: &mut Vec<Problem>,
) -> Result<Node, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|e| {
        let start = (count(e.line_display()), count(e.column_display()));
        let kind = e.kind().to_string();
        let mut letters = kind.chars();
        let mut kind: String = letters
            .next()
            .map(|c| c.to_ascii_lowercase())
            .into_iter()
            .chain(letters)
            .collect();
        let (line, column) = match e.kind() {
            // The parser points at the beginning; the missing delimiter belongs at the end.
            ParseErrorKind::UnterminatedObject | ParseErrorKind::UnterminatedArray => {
                write!(kind, ", which begins at {}:{}", start.0, start.1).ok();
                LineIndex::new(text).at(text.trim_end().len())
            }
            _ => start,
        };
        let location = SourceLocation {
            origin: origin.clone(),
            line,
            column,
        };
        Problem::error(
            ProblemCode::Syntax,
            &location,
            "",
            format!("this is not valid JSON: {kind}"),
        )
        .hint("nothing of this file is used")
    })?;
    let lines = LineIndex::new(text);
    let mut reader = JsoncReader {
        origin,
        lines: &lines,
        problems,
        path: Vec::new(),
    };
    Ok(match parsed.value {
        Some(value) => reader.node(&value),
        None => Node::empty(SourceLocation::whole_text(origin)),
    })
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The starts of all lines, and the numbers of characters before some offsets, to convert an offset
/// into a line and a column. A program may write a whole file in one line, so the cost of a column
/// must not depend on the length of its line.
pub(crate) struct LineIndex<'a> {
    text: &'a [u8],
    starts: Vec<usize>,
    /// The number of characters before each block of the text.
    before_blocks: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    /// The distance between two offsets with a known number of characters before them.
    const BLOCK_BYTES: usize = 128;

    pub(crate) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let text = text.as_bytes();
        let mut chars = 0;
        let before_blocks = std::iter::once(0)
            .chain(text.chunks_exact(Self::BLOCK_BYTES).map(|block| {
                chars += count_chars(block);
                chars
            }))
            .collect();
        Self {
            text,
            starts,
            before_blocks,
        }
    }

    /// Returns line and column of an offset, both from 1.
    pub(crate) fn at(&self, offset: usize) -> (u32, u32) {
        let line = self
            .starts
            .partition_point(|start| *start <= offset)
            .saturating_sub(1);
        let start = self.starts.get(line).copied().unwrap_or(0);
        let column = self
            .chars_before(offset)
            .saturating_sub(self.chars_before(start));
        (count(line + 1), count(column + 1))
    }

    fn chars_before(&self, offset: usize) -> usize {
        let block = offset / Self::BLOCK_BYTES;
        let before = self.before_blocks.get(block).copied().unwrap_or(0);
        before + count_chars(self.after_block_start(offset))
    }

    /// Returns the bytes from the start of an offset's block to the offset.
    fn after_block_start(&self, offset: usize) -> &[u8] {
        let start = offset - offset % Self::BLOCK_BYTES;
        self.text.get(start..offset).unwrap_or_default()
    }
}

/// Counts the characters that begin in these bytes of a text.
fn count_chars(bytes: &[u8]) -> usize {
    let is_start = |byte: &&u8| **byte & 0xC0 != 0x80;
    bytes.iter().filter(is_start).count()
}

struct JsoncReader<'a> {
    origin: &'a Arc<ConfigOrigin>,
    lines: &'a LineIndex<'a>,
    problems: &'a mut Vec<Problem>,
    path: Vec<String>,
}

impl JsoncReader<'_> {
    fn location(&self, offset: usize) -> SourceLocation {
        let (line, column) = self.lines.at(offset);
        SourceLocation {
            origin: self.origin.clone(),
            line,
            column,
        }
    }

    fn node(&mut self, value: &ast::Value<'_>) -> Node {
        let at = self.location(value.range().start);
        let value = match value {
            ast::Value::NullKeyword(_) => NodeValue::Null,
            ast::Value::BooleanLit(yes) => NodeValue::Bool(yes.value),
            ast::Value::NumberLit(number) => match number.value.parse() {
                Ok(number) => NodeValue::Number(number),
                Err(_) => NodeValue::Text(number.value.to_owned()),
            },
            ast::Value::StringLit(text) => NodeValue::Text(text.value.clone().into_owned()),
            ast::Value::Array(list) => {
                NodeValue::List(list.elements.iter().map(|value| self.node(value)).collect())
            }
            ast::Value::Object(object) => {
                let mut entries: Vec<MapEntry> = Vec::with_capacity(object.properties.len());
                let mut lines: HashMap<&str, u32> = HashMap::new();
                for property in &object.properties {
                    let key = property.name.as_str().to_owned();
                    let key_at = self.location(property.range.start);
                    self.path.push(key.clone());
                    if let Some(line) = lines.get(property.name.as_str()) {
                        let problem = Problem::error(
                            ProblemCode::Duplicate,
                            &key_at,
                            self.path.join("."),
                            format!("this key is already set in line {line}"),
                        );
                        self.problems.push(
                            problem.hint("keep one of the two; until then the first one applies"),
                        );
                    } else {
                        lines.insert(property.name.as_str(), key_at.line);
                        let node = self.node(&property.value);
                        entries.push(MapEntry {
                            key,
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

    fn origin() -> Arc<ConfigOrigin> {
        Arc::new(ConfigOrigin {
            name: "x.json".into(),
            path: None,
            layer: Layer::Global,
            project: false,
        })
    }

    #[test]
    fn value_has_location() {
        let text = "{\n  // a word\n  \"ä\": {\"b\": [1, 2,],},\n}";
        let node = parse(text, &origin(), &mut Vec::new()).unwrap();
        let inner = node.at(&["ä", "b"]).unwrap();
        assert_eq!((inner.at.line, inner.at.column), (3, 14));
        assert_eq!(inner.to_json(), serde_json::json!([1, 2]));
    }

    #[test]
    fn column_is_found_without_reading_the_line() {
        let line = "\"ä\": [\"日本\", \"🦀\", 1], ".repeat(500);
        let text = format!("é\n{line}\n{line}");
        let index = LineIndex::new(&text);
        let mut expected = (1, 1);
        for (offset, character) in text.char_indices() {
            assert_eq!(index.at(offset), expected, "at {offset}");
            assert!(index.after_block_start(offset).len() < LineIndex::BLOCK_BYTES);
            expected = match character {
                '\n' => (expected.0 + 1, 1),
                _ => (expected.0, expected.1 + 1),
            };
        }
        assert_eq!(index.at(text.len()), expected);
    }

    #[test]
    fn syntax_error_has_location() {
        let table = [
            ("{\"a\": }", "x.json:1:7"),
            ("{\n  \"a\": 1\n  \"b\": 2\n}", "x.json:2:"),
            ("{'a': 1}", "x.json:1:2"),
            ("{\"a\": 0x1}", "x.json:1:7"),
            ("{\"a\": 1", "x.json:1:8"),
            ("{\"a\": [1,\n 2\n\n", "x.json:2:3"),
            ("{} {}", "x.json:1:4"),
        ];
        for (text, location) in table {
            let problem = parse(text, &origin(), &mut Vec::new()).unwrap_err();
            assert!(
                problem.to_string().starts_with(location),
                "{text}: {problem}"
            );
        }
    }

    #[test]
    fn duplicate_key_is_reported_and_first_is_used() {
        let mut problems = Vec::new();
        let node = parse(
            "{\"p\": {\"bash\": \"deny\",\n\"bash\": \"allow\"}}",
            &origin(),
            &mut problems,
        )
        .unwrap();
        assert_eq!(node.to_json(), serde_json::json!({"p": {"bash": "deny"}}));
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].to_string().starts_with("x.json:2:1: p.bash: "),
            "{}",
            problems[0]
        );
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        let text = "[".repeat(100_000);
        assert!(parse(&text, &origin(), &mut Vec::new()).is_err());
    }
}
