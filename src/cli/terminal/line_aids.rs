//! Aids for typing a prompt: earlier prompts to recall and to search, and completions of words.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Completions of the word that ends at the cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Completions {
    /// The offset at which the word begins.
    pub(in crate::cli) start: usize,
    /// The words that may replace it, without duplicates.
    pub(in crate::cli) words: Vec<String>,
    /// True if there may be further words, so that none is certain.
    pub(in crate::cli) is_cut: bool,
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
    /// Set when a line is accepted: true if it has several rows that were pasted or recalled.
    pub(in crate::cli) has_pasted_rows: Arc<AtomicBool>,
}

impl fmt::Debug for LineAids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineAids")
            .field("earlier", &self.earlier)
            .finish_non_exhaustive()
    }
}

/// A line that is being edited, while another one is shown.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) text: String,
    /// True if something was not inserted because the line was full.
    pub(super) is_cut: bool,
    /// True if it has several rows that were not typed.
    pub(super) has_pasted_rows: bool,
}

/// The place among the earlier lines, while the user goes through them.
#[derive(Debug)]
pub(super) struct Recall {
    /// The index of the line that is shown; the number of earlier lines for the line that was being
    /// typed.
    pub(super) at: usize,
    /// The other lines as they were left, by index.
    pub(super) drafts: BTreeMap<usize, Draft>,
}

/// A search for an earlier line.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) wanted: String,
    /// The index of the line that is shown; `None` if no line contains the wanted text.
    pub(super) found: Option<usize>,
    /// The index of the line to which a cancelled search returns.
    pub(super) origin: usize,
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
