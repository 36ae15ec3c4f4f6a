//! Which instruction files a model has in front of it, so that none is put there twice: two calls of
//! one step that run side by side come past here one after the other.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base::lock::locked;

/// The files that are there. A std mutex: a leaf around a set.
#[derive(Debug, Default)]
pub struct LoadedInstructions(Mutex<HashSet<PathBuf>>);

impl LoadedInstructions {
    pub fn new(known: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(Mutex::new(known.into_iter().collect()))
    }

    /// Claims a file; false when somebody has.
    pub fn claim(&self, path: &Path) -> bool {
        locked(&self.0).insert(path.to_path_buf())
    }
}
