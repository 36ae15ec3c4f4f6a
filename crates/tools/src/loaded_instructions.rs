//! The instruction files in a model's context. It prevents duplicates: of two parallel calls of a
//! step, only the first one to claim a file adds it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base::lock::locked;

/// The files in the context. The mutex is a leaf lock around a set.
#[derive(Debug, Default)]
pub struct LoadedInstructions(Mutex<HashSet<PathBuf>>);

impl LoadedInstructions {
    pub fn new(known: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(Mutex::new(known.into_iter().collect()))
    }

    /// Claims a file; returns false if it was claimed already.
    pub fn claim(&self, path: &Path) -> bool {
        locked(&self.0).insert(path.to_path_buf())
    }
}
