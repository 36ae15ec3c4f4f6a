//! An index from keys to positions, to find the keys with which a text begins.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Positions of rules by their keys.
#[derive(Debug, Default)]
pub(super) struct KeyIndex {
    places: BTreeMap<Box<str>, Vec<u32>>,
    /// The lengths of the keys, in bytes.
    lengths: BTreeSet<usize>,
}

impl KeyIndex {
    pub(super) fn insert(&mut self, key: &str, index: u32) {
        if let Some(places) = self.places.get_mut(key) {
            places.push(index);
            return;
        }
        self.lengths.insert(key.len());
        self.places.insert(key.into(), vec![index]);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Returns the keys that a text begins with, the shortest first.
    pub(super) fn beginnings_of<'k>(&'k self, text: &str) -> impl Iterator<Item = &'k str> {
        let keys = self
            .lengths
            .iter()
            .take_while(|length| **length <= text.len());
        keys.filter_map(|length| Some(&**self.places.get_key_value(text.get(..*length)?)?.0))
    }

    /// Adds the positions whose keys a text begins with.
    pub(super) fn find(&self, text: &str, found: &mut Vec<u32>) {
        for length in self
            .lengths
            .iter()
            .take_while(|length| **length <= text.len())
        {
            found.extend(
                text.get(..*length)
                    .and_then(|key| self.places.get(key))
                    .into_iter()
                    .flatten(),
            );
        }
    }

    /// Adds the positions whose keys begin with a text.
    pub(super) fn find_longer(&self, text: &str, found: &mut Vec<u32>) {
        let from = self
            .places
            .range::<str, _>((Bound::Included(text), Bound::Unbounded));
        found.extend(
            from.take_while(|(key, _)| key.starts_with(text))
                .flat_map(|(_, places)| places),
        );
    }
}
