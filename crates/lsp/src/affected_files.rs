//! Finds the other files that a change may concern: those that use the changed declarations.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use tokio::time::Instant;

use super::client::LspClient;
use super::errors::ends;
use super::requests::Navigation;
use super::types::{Position, Symbol};

/// The maximum number of declarations whose uses are searched, and of files that are checked.
const MAX_DECLARATIONS: usize = 8;
const MAX_FILES: usize = 16;

impl LspClient {
    /// Returns the files that use the declarations in the lines that are about to change, the
    /// nearest first. The server has the present text open (`old`); `new` is `None` if the file is
    /// about to be removed.
    pub async fn affected_files(
        &self,
        path: &Path,
        old: &str,
        new: Option<&str>,
        until: Instant,
    ) -> Vec<PathBuf> {
        if self.is_silent() || !self.offers("referencesProvider") {
            return Vec::new();
        }
        let Ok(symbols) = self.symbols(path, until).await else {
            return Vec::new();
        };
        let chosen = declared(symbols, old, new);
        let uses = chosen
            .iter()
            .map(|symbol| self.places(Navigation::References, path, at_name(symbol, old), until));
        let mut found = BTreeSet::new();
        for range in join_all(uses).await.into_iter().flatten().flatten() {
            found.insert(range.path);
        }
        found.remove(path);
        let mut found: Vec<PathBuf> = found
            .into_iter()
            .filter(|other| other.starts_with(self.root()))
            .collect();
        let near = |other: &PathBuf| {
            let shared = other
                .components()
                .zip(path.components())
                .take_while(|(a, b)| a == b)
                .count();
            std::cmp::Reverse(shared)
        };
        found.sort_by_key(near);
        found.truncate(MAX_FILES);
        found
    }
}

/// Returns the declarations whose lines change, the smallest first.
fn declared(symbols: Vec<Symbol>, old: &str, new: Option<&str>) -> Vec<Symbol> {
    let (above, below) = new.map_or((0, 0), |new| ends(old, new));
    let lines = old.lines().count();
    let first = above;
    let last = lines.saturating_sub(below);
    let touched = |symbol: &Symbol| {
        let start = to_index(symbol.range.start.line);
        let end = to_index(symbol.range.end.line);
        // If lines are only inserted, the declaration that contains them.
        if first == last {
            start < first && first <= end
        } else {
            start < last && first <= end
        }
    };
    let size = |symbol: &Symbol| {
        (
            symbol.range.end.line - symbol.range.start.line.min(symbol.range.end.line),
            symbol.depth,
        )
    };
    let mut all: Vec<Symbol> = symbols.into_iter().filter(touched).collect();
    all.sort_by_key(size);
    if new.is_none() {
        all.sort_by_key(|symbol| symbol.depth);
    }
    all.truncate(MAX_DECLARATIONS);
    all
}

fn to_index(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Returns the position of a declaration's name. If a server gives only the whole range, other text
/// may precede the name in it.
fn at_name(symbol: &Symbol, text: &str) -> Position {
    let start = symbol.selection.start;
    if symbol.selection != symbol.range {
        return start;
    }
    let line = text
        .lines()
        .nth(usize::try_from(start.line).unwrap_or(usize::MAX))
        .unwrap_or_default();
    let at = line
        .find(&symbol.name)
        .and_then(|at| u32::try_from(line[..at].encode_utf16().count()).ok());
    Position {
        character: at.unwrap_or(start.character),
        ..start
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::Range;
    use super::*;

    #[test]
    fn changed_lines_select_enclosing_declarations() {
        let range = |start, end| Range {
            start: Position {
                line: start,
                character: 0,
            },
            end: Position {
                line: end,
                character: 1,
            },
        };
        let symbol = |name: &str, start, end, depth| Symbol {
            name: name.into(),
            kind: 12,
            container: String::new(),
            depth,
            range: range(start, end),
            selection: range(start, end),
            path: None,
        };
        let all = || {
            vec![
                symbol("class", 0, 4, 0),
                symbol("method", 1, 3, 1),
                symbol("after", 6, 6, 0),
            ]
        };
        let old = "class {\n  method() {\n    body\n  }\n}\n\nafter\n";
        let table = [
            (
                Some("class {\n  method(a) {\n    body\n  }\n}\n\nafter\n"),
                "method class",
            ),
            (
                Some("class {\n  method() {\n    body\n  }\n}\n\nother\n"),
                "after",
            ),
            // New lines only.
            (
                Some("class {\n  method() {\n    more\n    body\n  }\n}\n\nafter\n"),
                "method class",
            ),
            (
                Some("class {\n  method() {\n    body\n  }\n}\n\nmore\nafter\n"),
                "",
            ),
            (Some(old), ""),
            (None, "after class method"),
        ];
        for (new, wanted) in table {
            let got = declared(all(), old, new);
            let got: Vec<&str> = got.iter().map(|symbol| symbol.name.as_str()).collect();
            assert_eq!(got.join(" "), wanted, "{new:?}");
        }
    }
}
