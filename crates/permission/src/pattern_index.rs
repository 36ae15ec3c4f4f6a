//! Finds the patterns of rules that may match a text, without comparing all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Patterns by the text before their first star or question mark.
#[derive(Debug, Default)]
pub struct PatternIndex<'p> {
    by_beginning: BTreeMap<&'p str, Vec<usize>>,
    /// The lengths of the beginnings, in bytes.
    lengths: BTreeSet<usize>,
    /// Patterns with a backslash, whose beginnings are only known up to it.
    with_backslash: Vec<usize>,
}

impl<'p> PatternIndex<'p> {
    /// Builds an index; its results are positions in `patterns`.
    pub fn new(patterns: impl Iterator<Item = &'p str>) -> Self {
        let mut index = Self::default();
        for (at, pattern) in patterns.enumerate() {
            let beginning = beginning(pattern);
            index.by_beginning.entry(beginning).or_default().push(at);
            index.lengths.insert(beginning.len());
            if pattern.contains('\\') {
                index.with_backslash.push(at);
            }
        }
        index
    }

    /// Returns the positions of the patterns that may match a text, or cover it as a pattern,
    /// unordered.
    pub fn candidates<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        // A backslash in the text may match a slash in the pattern.
        let plain = text.replace('\\', "/");
        let lists = self
            .lengths
            .iter()
            .filter_map(move |length| self.by_beginning.get(plain.get(..*length)?));
        lists.flatten().copied()
    }

    /// Returns the positions of the patterns that a pattern may cover, unordered.
    pub fn covered<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = usize> + 'a {
        let broad = beginning(pattern);
        let longer = self
            .by_beginning
            .range::<str, _>((Bound::Included(broad), Bound::Unbounded));
        let longer = longer
            .take_while(move |(narrow, _)| narrow.starts_with(broad))
            .map(|(_, places)| places);
        longer.flatten().chain(&self.with_backslash).copied()
    }
}

/// Returns the text with which every match of a pattern begins. It ends at a backslash, which
/// matches as a slash, and without trailing spaces: a space before the last star may be missing.
fn beginning(pattern: &str) -> &str {
    let end = pattern.find(['*', '?', '\\']).unwrap_or(pattern.len());
    pattern[..end].trim_end_matches(' ')
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
        ];
        let index = PatternIndex::new(patterns.into_iter());
        for text in texts {
            let found: Vec<usize> = index.candidates(text).collect();
            for (at, pattern) in patterns.iter().enumerate() {
                let fits = matches(pattern, text) || covers(pattern, text);
                assert!(!fits || found.contains(&at), "{pattern} on {text}");
            }
            let found: Vec<usize> = index.covered(text).collect();
            for (at, pattern) in patterns.iter().enumerate() {
                assert!(
                    !covers(text, pattern) || found.contains(&at),
                    "{text} over {pattern}"
                );
            }
        }
        assert_eq!(index.candidates("ls").count(), 4);
    }
}
