//! The changes of a project's items since the user's answer about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{TrustEntry, TrustItem};
use base::text;

/// The parts of an item that an answer covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredItem {
    kind: String,
    key: String,
    detail: String,
    /// The names and digests of the files, one line each.
    content: String,
}

impl CoveredItem {
    /// Returns the parts of these items for the user's answer. None of them if they are large: the
    /// file of all answers has a limit, and the changes are then not known.
    pub(super) fn of_all(items: &[TrustItem]) -> Vec<Self> {
        const MAX_BYTES: usize = 128 << 10;
        let all: Vec<Self> = items.iter().map(Self::of).collect();
        let bytes: usize = all.iter().map(Self::size).sum();
        if bytes > MAX_BYTES { Vec::new() } else { all }
    }

    fn size(&self) -> usize {
        self.kind.len() + self.key.len() + self.detail.len() + self.content.len()
    }

    fn of(item: &TrustItem) -> Self {
        Self {
            kind: item.kind.as_str().to_owned(),
            key: item.key.clone(),
            detail: item.detail.clone(),
            content: item.covered.content.clone(),
        }
    }
}

/// A difference between a project's items and those that an answer is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustChange {
    /// The item and the kind of its change, for a notice.
    pub subject: String,
    /// The whole change, with the old and the new text.
    pub line: String,
}

/// Returns each difference between a project's items and those that an answer is about.
/// Empty if the items of the answer were not stored.
pub(crate) fn since(entry: &TrustEntry, items: &[TrustItem]) -> Vec<TrustChange> {
    if entry.covered.is_empty() {
        return Vec::new();
    }
    let now: Vec<CoveredItem> = items.iter().map(CoveredItem::of).collect();
    // Several items may have the same key, such as the entries of a list.
    let mut keys: BTreeMap<(&str, &str), Differences<'_>> = BTreeMap::new();
    for old in &entry.covered {
        let differences = keys.entry((&old.kind, &old.key)).or_default();
        match now.iter().find(|new| is_same(old, new)) {
            Some(new) => differences
                .files
                .extend(file_changes(&old.content, &new.content)),
            None => differences.gone.push(&old.detail),
        }
    }
    for new in &now {
        if !entry.covered.iter().any(|old| is_same(old, new)) {
            let differences = keys.entry((&new.kind, &new.key)).or_default();
            differences.added.push(&new.detail);
        }
    }
    keys.into_iter()
        .flat_map(|((_, key), differences)| differences.lines(key))
        .collect()
}

fn is_same(old: &CoveredItem, new: &CoveredItem) -> bool {
    (&old.kind, &old.key, &old.detail) == (&new.kind, &new.key, &new.detail)
}

/// The differences of the items with one key.
#[derive(Default)]
struct Differences<'a> {
    gone: Vec<&'a str>,
    added: Vec<&'a str>,
    files: Vec<String>,
}

impl Differences<'_> {
    fn lines(self, key: &str) -> Vec<TrustChange> {
        let key = text::escaped(key);
        let change = |subject: String, rest: String| TrustChange {
            line: format!("{subject}{rest}"),
            subject,
        };
        let mut changes = match (self.gone.as_slice(), self.added.as_slice()) {
            ([old], [new]) => vec![TrustChange {
                subject: format!("{key} has changed"),
                line: format!("{key}: {} → {}", text::escaped(old), text::escaped(new)),
            }],
            (gone, added) => {
                let gone = gone.iter().map(|old| {
                    change(
                        format!("{key} is gone"),
                        format!(": {}", text::escaped(old)),
                    )
                });
                let added = added.iter().map(|new| {
                    change(format!("{key} is new"), format!(": {}", text::escaped(new)))
                });
                gone.chain(added).collect()
            }
        };
        let files = self.files.iter();
        changes.extend(files.map(|file| change(format!("{key}: {file}"), String::new())));
        changes
    }
}

/// Describes the differences between two lists of files with their digests.
fn file_changes(old: &str, new: &str) -> Vec<String> {
    let before = digests(old);
    let after = digests(new);
    let mut changes = Vec::new();
    for (file, digest) in &before {
        match after.get(file) {
            None => changes.push(format!("{} is gone", text::escaped(file))),
            Some(now) if now != digest => {
                changes.push(format!("{} has changed", text::escaped(file)));
            }
            Some(_) => {}
        }
    }
    let added = after.keys().filter(|file| !before.contains_key(*file));
    changes.extend(added.map(|file| format!("{} is new", text::escaped(file))));
    changes
}

/// Returns the digests by file.
fn digests(content: &str) -> BTreeMap<&str, &str> {
    content
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .collect()
}
