//! Of many patterns of rules, those that may match a text, found without a look at the others.

use std::collections::{BTreeSet, HashMap};

/// Patterns by what stands before their first star or question mark.
#[derive(Debug, Default)]
pub struct PatternIndex<'p> {
    by_beginning: HashMap<&'p str, Vec<usize>>,
    /// The lengths of the beginnings, in bytes.
    lengths: BTreeSet<usize>,
}

impl<'p> PatternIndex<'p> {
    /// Patterns are known by their place among those given.
    pub fn new(patterns: impl Iterator<Item = &'p str>) -> Self {
        let mut index = Self::default();
        for (at, pattern) in patterns.enumerate() {
            // A backslash is a slash, and a blank before the last star may be missing.
            let end = pattern.find(['*', '?', '\\']).unwrap_or(pattern.len());
            let beginning = pattern[..end].trim_end_matches(' ');
            index.by_beginning.entry(beginning).or_default().push(at);
            index.lengths.insert(beginning.len());
        }
        index
    }

    /// Returns the places of the patterns that may match a text, or cover it as a pattern, in no order.
    pub fn candidates<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        // What stands behind a backslash in the text may stand behind a slash in the pattern.
        let plain = text.replace('\\', "/");
        let lists = self.lengths.iter().filter_map(move |length| self.by_beginning.get(plain.get(..*length)?));
        lists.flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::wildcard::{covers, matches};

    /// The index leaves out nothing that matches or covers.
    #[test]
    fn candidates_are_all_that_may_match() {
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
        }
        assert_eq!(index.candidates("ls").count(), 4);
    }
}
