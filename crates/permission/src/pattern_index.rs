//! Finds the patterns of rules that may match a text, without comparing all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::inner_index::InnerIndex;

/// Patterns by the text before their first star or question mark, or by a later text if they begin
/// with one of these.
#[derive(Debug, Default)]
pub struct PatternIndex<'p> {
    by_beginning: BTreeMap<&'p str, Vec<usize>>,
    /// The lengths of the beginnings, in bytes.
    lengths: BTreeSet<usize>,
    /// Patterns without a beginning, by a text that their matches contain.
    by_inside: InnerIndex,
}

impl<'p> PatternIndex<'p> {
    /// Builds an index; its results are positions in `patterns`.
    pub fn new(patterns: impl Iterator<Item = &'p str>) -> Self {
        let mut index = Self::default();
        let mut keys: Vec<(String, u32)> = Vec::new();
        for (at, pattern) in patterns.enumerate() {
            let beginning = beginning(pattern);
            let inside = inside(pattern);
            if beginning.is_empty()
                && !inside.is_empty()
                && let Ok(position) = u32::try_from(at)
            {
                keys.push((inside, position));
                continue;
            }
            index.by_beginning.entry(beginning).or_default().push(at);
            index.lengths.insert(beginning.len());
        }
        index.by_inside = InnerIndex::new(keys.iter().map(|(key, at)| (key.as_str(), *at)));
        index
    }

    /// Returns the positions of the patterns that may match a text, or cover it as a pattern,
    /// unordered.
    pub fn candidates<'a>(&'a self, text: &str) -> impl Iterator<Item = usize> + 'a {
        // A backslash in the text may match a slash in the pattern.
        let plain = text.replace('\\', "/");
        let mut containing = Vec::new();
        self.by_inside.find(&plain, &mut containing);
        let lists = self
            .lengths
            .iter()
            .filter_map(move |length| self.by_beginning.get(plain.get(..*length)?));
        let containing = containing.into_iter().map(|at| at as usize);
        lists.flatten().copied().chain(containing)
    }
}

/// Returns the text with which every match of a pattern begins. It ends at a backslash, which
/// matches as a slash, and without trailing spaces: a space before the last star may be missing.
fn beginning(pattern: &str) -> &str {
    let end = pattern.find(['*', '?', '\\']).unwrap_or(pattern.len());
    pattern[..end].trim_end_matches(' ')
}

/// Returns the longest text that every match of a pattern contains, with slashes for backslashes.
fn inside(pattern: &str) -> String {
    // A space before the last star may be missing, and the slash of a `**/` that matches nothing.
    let certain = pattern
        .split(['*', '?'])
        .map(|piece| piece.trim_end_matches(' ').trim_start_matches(['/', '\\']));
    let longest = certain.max_by_key(|piece| piece.len()).unwrap_or_default();
    longest.replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wildcard::{covers, matches};

    #[test]
    fn candidates_include_everything_that_matches_or_covers() {
        let patterns = [
            "*",
            "git *",
            "git log *",
            "git log",
            "src/**/*.rs",
            "src\\a*",
            "**/x",
            "a?c",
            "",
            "ls*",
            "  x",
            "é*",
            "src/* *",
            "*log*",
            "*.rs",
            "*/b/*",
            "?it *",
            "\\b",
            "*\\b\\c*",
            "* *",
            "**/**/c.rs",
        ];
        let texts = [
            "git",
            "git log",
            "git log -1",
            "src/a.rs",
            "src\\b\\c.rs",
            "x",
            "abc",
            "",
            "lsof",
            "é",
            "git *",
            "src/**",
            "src/",
            "*catalog*",
            "/b",
            "c.rs",
            "a/b/c.rs",
            "*/b/c *",
        ];
        let index = PatternIndex::new(patterns.into_iter());
        for text in texts {
            let found: Vec<usize> = index.candidates(text).collect();
            for (at, pattern) in patterns.iter().enumerate() {
                let fits = matches(pattern, text) || covers(pattern, text);
                assert!(!fits || found.contains(&at), "{pattern} on {text}");
            }
        }
        assert_eq!(index.candidates("ls").count(), 4);
    }

    #[test]
    fn patterns_that_begin_with_a_star_are_found_by_their_inside() {
        let patterns: Vec<String> = (0..1000).map(|at| format!("*word{at}x*")).collect();
        let index = PatternIndex::new(patterns.iter().map(String::as_str));
        for (at, pattern) in patterns.iter().enumerate() {
            assert_eq!(index.candidates(pattern).collect::<Vec<_>>(), [at]);
        }
    }
}
