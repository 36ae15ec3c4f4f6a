//! Which files the model has read in this session, and in what state.
//!
//! A file may be changed only in the state the model knows. What counts is the content, not the
//! modification time, and not how lines end: an editor shows the same text with other line ends.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The state of a text: equal for equal content, whatever its line ends and byte order mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Print(u64);

impl Print {
    /// The print of a text.
    pub fn of(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes();
        let mut hasher = DefaultHasher::new();
        let mut from = 0;
        for end in memchr::memmem::find_iter(text, b"\r\n") {
            hasher.write(&text[from..end]);
            from = end + 1;
        }
        hasher.write(&text[from..]);
        Self(hasher.finish())
    }
}

/// What is known of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What the model has seen.
    pub text: Print,
    /// What lay on disk at that time; differs when the editor held unsaved changes.
    pub disk: Option<Print>,
}

/// The memory of one session. A leaf lock, held only for a look-up.
#[derive(Debug, Default)]
pub struct Seen {
    files: Mutex<HashMap<PathBuf, Known>>,
}

impl Seen {
    /// The model has seen this file, or has written it. `real` has its symlinks resolved.
    pub fn note(&self, real: &Path, known: Known) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(real.into(), known);
    }

    /// What the model knows of a file.
    pub fn known(&self, real: &Path) -> Option<Known> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).get(real).copied()
    }

    /// The file is gone.
    pub fn forget(&self, real: &Path) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(real);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_and_marks_do_not_count() {
        assert_eq!(Print::of("a\r\nb\r\n"), Print::of("a\nb\n"));
        assert_eq!(Print::of("\u{feff}a\n"), Print::of("a\n"));
        assert_eq!(Print::of("a\r\n"), Print::of("a\n"));
        for (one, other) in [("a\nb", "ab"), ("a\n", "a"), ("a\r", "a"), ("a\rb", "a\nb"), ("", "\n")] {
            assert_ne!(Print::of(one), Print::of(other), "{one:?} {other:?}");
        }
    }
}
