//! The parts of a project's items that an answer of the user covers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::TrustItem;
use crate::script_inputs::text_with_digest;

/// The parts of an item that an answer covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredItem {
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) detail: String,
    /// The names and digests of the files, one line each.
    pub(super) content: String,
    /// The texts of small files, to show a later change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    texts: Vec<CoveredText>,
}

/// The text of a file that an answer covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CoveredText {
    digest: String,
    text: String,
}

impl CoveredItem {
    /// Returns the parts of these items to store with the user's answer. Returns none if they are
    /// large, because the file of all answers has a limit; later changes are then unknown.
    pub(super) fn of_all(items: &[TrustItem]) -> Vec<Self> {
        const MAX_BYTES: usize = 128 << 10;
        const MAX_TEXT_BYTES: usize = 64 << 10;
        let mut all: Vec<Self> = items.iter().map(Self::of).collect();
        let bytes: usize = all.iter().map(Self::size).sum();
        if bytes > MAX_BYTES {
            return Vec::new();
        }
        let mut available = MAX_TEXT_BYTES;
        for (covered, item) in all.iter_mut().zip(items) {
            covered.add_texts(&item.covered.files, &mut available);
        }
        all
    }

    /// Adds the texts of the files that are as they were when the user was asked.
    fn add_texts(&mut self, files: &[PathBuf], available: &mut usize) {
        for (file, (_, digest)) in files.iter().zip(digests(&self.content)) {
            let Some((text, now)) = text_with_digest(file) else {
                continue;
            };
            if now == digest && text.len() <= *available {
                *available -= text.len();
                self.texts.push(CoveredText { digest: now, text });
            }
        }
    }

    /// Removes the texts of the files. Later changes are then named, but not shown.
    pub(super) fn forget_texts(&mut self) {
        self.texts.clear();
    }

    /// Returns the text of a file by its digest.
    pub(super) fn text(&self, digest: &str) -> Option<&str> {
        let known = self.texts.iter().find(|known| known.digest == digest)?;
        Some(&known.text)
    }

    fn size(&self) -> usize {
        self.kind.len() + self.key.len() + self.detail.len() + self.content.len()
    }

    pub(super) fn of(item: &TrustItem) -> Self {
        Self {
            kind: item.kind.as_str().to_owned(),
            key: item.key.clone(),
            detail: item.detail.clone(),
            content: item.covered.content.clone(),
            texts: Vec::new(),
        }
    }
}

/// Returns the files with their digests, in order.
pub(super) fn digests(content: &str) -> impl Iterator<Item = (&str, &str)> {
    content.lines().filter_map(|line| line.rsplit_once(' '))
}
