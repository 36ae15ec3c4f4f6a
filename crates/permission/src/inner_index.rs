//! An index from keys to positions, to find the keys that a text contains.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

#[derive(Debug, Default)]
pub(super) struct InnerIndex {
    /// Finds all keys in one pass over a text. `None` if there are none, or too many of them.
    automaton: Option<AhoCorasick>,
    /// The positions of each key, by its number in the automaton.
    places: Vec<Vec<u32>>,
}

impl InnerIndex {
    pub(super) fn new<'k>(keys: impl IntoIterator<Item = (&'k str, u32)>) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut distinct = Vec::new();
        let mut places: Vec<Vec<u32>> = Vec::new();
        for (key, place) in keys {
            let number = *numbers.entry(key).or_insert_with(|| {
                distinct.push(key);
                places.push(Vec::new());
                places.len() - 1
            });
            places[number].push(place);
        }
        // The smallest kind: a list has up to thousands of keys, and texts are short.
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&distinct);
        let automaton = if places.is_empty() {
            None
        } else {
            automaton.ok()
        };
        Self { automaton, places }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns all positions.
    pub(super) fn all(&self) -> impl Iterator<Item = &u32> {
        self.places.iter().flatten()
    }

    /// Adds the positions whose keys a text contains.
    pub(super) fn find(&self, text: &str, found: &mut Vec<u32>) {
        let Some(automaton) = &self.automaton else {
            return found.extend(self.all());
        };
        let mut has_key = vec![false; self.places.len()];
        for hit in automaton.find_overlapping_iter(text) {
            let number = hit.pattern().as_usize();
            if !std::mem::replace(&mut has_key[number], true) {
                found.extend(&self.places[number]);
            }
        }
    }
}
