//! An index that finds the keys that a text contains, with the positions of their rules.

use std::collections::{HashMap, HashSet};

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// Keys with their positions in a list of rules.
#[derive(Debug, Default)]
pub(super) struct InnerIndex {
    /// Finds all keys in one pass over a text. `None` if there are none, or too many of them.
    automaton: Option<AhoCorasick>,
    /// The positions of each key, by its number in the automaton.
    positions: Vec<Vec<u32>>,
}

impl InnerIndex {
    /// Builds the index of keys with their positions; a key may have several.
    pub(super) fn new<'k>(keys: impl IntoIterator<Item = (&'k str, u32)>) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut distinct = Vec::new();
        let mut positions: Vec<Vec<u32>> = Vec::new();
        for (key, position) in keys {
            let number = *numbers.entry(key).or_insert_with(|| {
                distinct.push(key);
                positions.push(Vec::new());
                positions.len() - 1
            });
            positions[number].push(position);
        }
        // The smallest kind: a list has up to thousands of keys, and texts are short.
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&distinct);
        let automaton = if positions.is_empty() {
            None
        } else {
            automaton.ok()
        };
        Self {
            automaton,
            positions,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Returns all positions.
    pub(super) fn all(&self) -> impl Iterator<Item = &u32> {
        self.positions.iter().flatten()
    }

    /// Adds to `found` the positions of the keys that a text contains; without an automaton, all
    /// positions.
    pub(super) fn find(&self, text: &str, found: &mut Vec<u32>) {
        let Some(automaton) = &self.automaton else {
            return found.extend(self.all());
        };
        let mut seen = HashSet::new();
        for hit in automaton.find_overlapping_iter(text) {
            let number = hit.pattern().as_usize();
            if seen.insert(number) {
                found.extend(&self.positions[number]);
            }
        }
    }
}
