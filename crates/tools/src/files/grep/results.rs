//! The bounded results of a search, and their text form.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::files::search::{MAX_SEARCH_RESULTS, Rank};
use base::text;

/// The maximum length of a searched line, or of the file if matches may span lines, in bytes.
pub(super) const MAX_LINE_BYTES: usize = 64 << 20;

/// The maximum number of further files whose matches are only counted.
const MAX_COUNTED_FILES: usize = 20;

/// The maximum number of names of files that were not searched.
const MAX_NAMED_FILES: usize = 3;

/// The options of a search that affect its output.
#[derive(Debug)]
pub(super) struct GrepOptions {
    /// The number of lines shown before and after each match.
    pub(super) context_lines: usize,
    pub(super) files_only: bool,
    pub(super) pattern: String,
    pub(super) include: Option<String>,
    /// True if the pattern is matched across lines only because it contains a line break.
    pub(super) spans_lines: bool,
}

/// The matches in the newest files, at most [`MAX_SEARCH_RESULTS`], and the counts of all.
#[derive(Debug, Default)]
pub(super) struct NewestMatches {
    /// The newest files. Those whose lines are shown come first.
    files: BTreeMap<Rank, FileMatches>,
    /// The number of matches whose lines are collected.
    pub(super) collected: usize,
    /// The number of files searched without a gap.
    pub(super) searched: usize,
    /// The number of files with matches.
    files_with_matches: usize,
    /// The number of matches in all files; with `files_only`, of files with matches.
    pub(super) matches: usize,
    /// True if files were skipped because of ignore rules. Determined only if there is no match.
    pub(super) has_ignored_files: bool,
    /// The files that were not searched to the end.
    pub(super) unsearched: BTreeMap<SearchGap, NamedFiles>,
}

/// The reason why matches in a file may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SearchGap {
    Unreadable,
    /// The file has a NUL byte, and was not named in the call.
    Binary,
    /// Like `Binary`, but there are matches before the NUL byte.
    BinaryAfterMatch,
    /// A line, or with multiline the file, exceeds the maximum length.
    TooLong,
}

/// A number of files, and some of their names.
#[derive(Debug, Default)]
pub(super) struct NamedFiles {
    count: usize,
    names: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct FileMatches {
    pub(super) lines: Vec<GrepLine>,
    /// The number of matches in `lines`.
    pub(super) collected: usize,
    /// The number of matches found; with `files_only` the search stops at the first.
    pub(super) count: usize,
}

#[derive(Debug)]
pub(super) enum GrepLine {
    /// The first line of a match, or all of it: number from 1, text.
    Match(u64, String),
    /// A further line of a match.
    Continued(u64, String),
    Context(u64, String),
    /// Lines between the previous and the next one are not shown.
    Gap,
}

impl FileMatches {
    /// Limits the lines to the first matches with their context.
    fn limit_to(&mut self, most: usize) {
        let mut matches = 0;
        let more = self.lines.iter().position(|line| {
            matches += usize::from(matches <= most && matches!(line, GrepLine::Match(..)));
            matches > most
        });
        if let Some(more) = more {
            // The context before a removed match is removed too.
            let before = self.lines[..more]
                .iter()
                .rposition(|line| matches!(line, GrepLine::Match(..) | GrepLine::Continued(..)));
            self.lines.truncate(before.map_or(0, |last| last + 1));
            self.collected = most;
        }
    }
}

impl NewestMatches {
    /// Returns whether the maximum is collected: a further match then replaces one in an older file.
    pub(super) fn is_full(&self) -> bool {
        self.collected >= MAX_SEARCH_RESULTS
    }

    /// Returns the maximum number of matches to collect from a file: 0 if every shown match is in a
    /// newer file and no more fit, otherwise [`MAX_SEARCH_RESULTS`].
    pub(super) fn max_matches_in(&self, rank: &Rank) -> usize {
        let last = self.files.iter().rev().find(|(_, hits)| hits.collected > 0);
        if self.is_full() && last.is_some_and(|(last, _)| last < rank) {
            0
        } else {
            MAX_SEARCH_RESULTS
        }
    }

    pub(super) fn add(&mut self, rank: Rank, hits: FileMatches) {
        self.files_with_matches += 1;
        self.matches += hits.count;
        self.collected += hits.collected;
        self.files.insert(rank, hits);
        while self.collected > MAX_SEARCH_RESULTS {
            let Some(last) = self
                .files
                .values_mut()
                .rev()
                .find(|hits| hits.collected > 0)
            else {
                break;
            };
            let most = last
                .collected
                .saturating_sub(self.collected - MAX_SEARCH_RESULTS);
            self.collected -= last.collected - most;
            last.limit_to(most);
        }
        while self.files.len() > MAX_SEARCH_RESULTS + MAX_COUNTED_FILES {
            self.files.pop_last();
        }
    }

    /// Counts a file that was not searched to its end.
    pub(super) fn add_unsearched(&mut self, why: SearchGap, name: String) {
        let files = self.unsearched.entry(why).or_default();
        files.count += 1;
        files.names.insert(name);
        if files.names.len() > MAX_NAMED_FILES {
            files.names.pop_last();
        }
    }

    /// Describes the files that were not searched to the end, for the model.
    pub(super) fn describe_unsearched(&self) -> String {
        let describe = |(why, files): (&SearchGap, &NamedFiles)| {
            let mut names = files
                .names
                .iter()
                .map(|name| text::escaped(name))
                .collect::<Vec<_>>()
                .join(", ");
            if files.count > files.names.len() {
                names.push_str(&format!(" and {} more", files.count - files.names.len()));
            }
            let (some, are, them) = match files.count {
                1 => ("1 file".to_owned(), "is", "it"),
                count => (text::count(count, "file"), "are", "one"),
            };
            match why {
                SearchGap::Unreadable => format!("\n\n({some} could not be read: {names})"),
                SearchGap::Binary => {
                    format!(
                        "\n\n({some} {are} binary and not searched; name {them} as path to search it: {names})"
                    )
                }
                SearchGap::BinaryAfterMatch => format!(
                    "\n\n({some} {are} searched only up to a NUL byte; name {them} as path to search all of it: {names})"
                ),
                SearchGap::TooLong => format!(
                    "\n\n({some} {are} not searched to the end, because a line, or with multiline the file, is longer than {} MiB: {names})",
                    MAX_LINE_BYTES >> 20
                ),
            }
        };
        self.unsearched.iter().map(describe).collect()
    }

    /// Returns whether some matches are not shown; with `files_only`, some files.
    pub(super) fn is_cut(&self, files_only: bool) -> bool {
        if files_only {
            self.files_with_matches > MAX_SEARCH_RESULTS
        } else {
            self.collected < self.matches
        }
    }

    /// Returns the paths of the files whose matches the text shows; with `files_only`, of the files
    /// that it names.
    pub(super) fn shown_files(&self, options: &GrepOptions) -> impl Iterator<Item = PathBuf> {
        let names_only = options.files_only;
        self.files
            .iter()
            .filter(move |(_, hits)| names_only || hits.collected > 0)
            .take(MAX_SEARCH_RESULTS)
            .map(|(rank, _)| rank.path.clone())
    }

    /// Returns the results as text, for the model.
    pub(super) fn to_text(&self, options: &GrepOptions) -> String {
        let mut text = if self.files_with_matches == 0 {
            let ignored = "\nFiles that git ignores were not searched; name such a file or directory as path to search it.";
            self.nothing(options) + if self.has_ignored_files { ignored } else { "" }
        } else if options.files_only {
            self.names()
        } else {
            self.lines()
        };
        if options.spans_lines {
            text.push_str("\n\n(The pattern contains a line break, so it was matched across lines, as with multiline. To find either of two lines, write a|b.)");
        }
        text
    }

    fn nothing(&self, options: &GrepOptions) -> String {
        match (self.searched, &options.include) {
            (0, _) if !self.unsearched.is_empty() => {
                "No matches: no file here could be searched.".into()
            }
            (0, Some(include)) => format!(
                "No matches: no file matches include `{}`.",
                text::title(include)
            ),
            (0, None) => "No matches: there are no files to search here.".into(),
            (searched, _) => {
                format!(
                    "No matches for `{}` in {}.",
                    text::title(&options.pattern),
                    text::count(searched, "file")
                )
            }
        }
    }

    fn names(&self) -> String {
        let mut text = format!(
            "Found matches in {}",
            text::count(self.files_with_matches, "file")
        );
        if self.files_with_matches > MAX_SEARCH_RESULTS {
            text.push_str(&format!("; the {MAX_SEARCH_RESULTS} newest"));
        }
        text.push_str(":\n");
        let names = self.files.keys().take(MAX_SEARCH_RESULTS).map(name);
        text.push_str(&names.collect::<Vec<_>>().join("\n"));
        text
    }

    fn lines(&self) -> String {
        let cut = self.is_cut(false);
        let mut text = format!("Found {}", text::count(self.matches, "match"));
        if cut {
            let files = text::count(self.files_with_matches, "file");
            text.push_str(&format!(
                " in {files}; {} are shown, those of the newest files",
                self.collected
            ));
        }
        for (rank, hits) in self.files.iter().filter(|(_, hits)| hits.collected > 0) {
            let part = if hits.collected < hits.count {
                format!(" ({} of {})", hits.collected, hits.count)
            } else {
                String::new()
            };
            text.push_str(&format!("\n\n{}{part}:", name(rank)));
            for line in &hits.lines {
                text.push_str(&match line {
                    GrepLine::Match(number, line) | GrepLine::Continued(number, line) => {
                        format!("\n  Line {number}: {line}")
                    }
                    GrepLine::Context(number, line) => format!("\n  Line {number}- {line}"),
                    GrepLine::Gap => "\n  --".into(),
                });
            }
        }
        if cut {
            let mut rest = self.files.iter().filter(|(_, hits)| hits.collected == 0);
            let named: Vec<String> = rest
                .by_ref()
                .take(MAX_COUNTED_FILES)
                .map(|(rank, hits)| format!("\n  {}: {}", name(rank), hits.count))
                .collect();
            if !named.is_empty() {
                text.push_str(&format!("\n\nMatches not shown:{}", named.concat()));
            }
            let with_lines = self
                .files
                .values()
                .filter(|hits| hits.collected > 0)
                .count();
            let more = self
                .files_with_matches
                .saturating_sub(with_lines + named.len());
            if more > 0 {
                text.push_str(&format!("\n  and in {}", text::count(more, "more file")));
            }
            text.push_str("\n\n(Use a more specific path, include or pattern, or filesOnly.)");
        }
        text
    }
}

/// Returns the path of a file as shown to the model.
fn name(rank: &Rank) -> String {
    text::escaped(&rank.path.display().to_string())
}
