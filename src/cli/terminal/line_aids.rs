//! Aids for typing a prompt: earlier prompts to recall and to search, and completions of words.

use std::fmt;
use std::sync::Arc;

/// Completions of the word that ends at the cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Completions {
    /// The offset at which the word begins.
    pub(in crate::cli) start: usize,
    /// The words that may replace it, without duplicates.
    pub(in crate::cli) words: Vec<String>,
}

impl Completions {
    /// Returns the text that all words begin with.
    pub(super) fn common_prefix(&self) -> &str {
        let Some((first, others)) = self.words.split_first() else {
            return "";
        };
        let is_common = |end: &usize| others.iter().all(|word| word.starts_with(&first[..*end]));
        let ends = first.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(is_common).last().unwrap_or_default();
        &first[..end]
    }
}

/// Completes the word at the end of a text. Called on a thread that may block.
pub(in crate::cli) type Completer = Arc<dyn Fn(&str) -> Completions + Send + Sync>;

/// The aids for a line. A line without them, such as an answer to a question, has one row of text
/// unless several are pasted.
#[derive(Clone)]
pub(in crate::cli) struct LineAids {
    /// The earlier lines, oldest first.
    pub(in crate::cli) earlier: Arc<[String]>,
    pub(in crate::cli) completer: Completer,
}

impl fmt::Debug for LineAids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineAids")
            .field("earlier", &self.earlier)
            .finish_non_exhaustive()
    }
}

/// The place among the earlier lines, while the user goes through them.
#[derive(Debug)]
pub(super) struct Recall {
    /// The index of the line that is shown.
    pub(super) at: usize,
    /// The line that was being typed.
    pub(super) draft: String,
}

/// A search for an earlier line.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) wanted: String,
    /// The index of the line that is shown; `None` if no line contains the wanted text.
    pub(super) found: Option<usize>,
    /// The line that was being typed.
    pub(super) draft: String,
}

impl Search {
    /// Returns the index of the last line before `end` that contains the wanted text.
    pub(super) fn last_before(&self, end: usize, earlier: &[String]) -> Option<usize> {
        if self.wanted.is_empty() {
            return None;
        }
        let lines = &earlier[..end.min(earlier.len())];
        lines.iter().rposition(|line| line.contains(&self.wanted))
    }

    /// Describes the search, for the row below the line.
    pub(super) fn described(&self) -> String {
        let is_missing = self.found.is_none() && !self.wanted.is_empty();
        let name = if is_missing {
            "no earlier prompt with"
        } else {
            "search earlier prompts:"
        };
        format!("{name} {}", self.wanted)
    }
}
