//! `grep`: finds lines by a regular expression, those of the newest files first; files that git
//! ignores are left out, which it reports if it finds nothing.
//!
//! Limits: 100 results; a pattern that needs more than 10 MiB to match is rejected.

mod results;

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{
    BinaryDetection, Encoding, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind,
    SinkMatch,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use results::{FileMatches, GrepLine, GrepOptions, MAX_LINE_BYTES, NewestMatches, SearchGap};

use crate::aliases::{Aliases, FieldValue};
use crate::files::encoding::{EncodingHint, search_encoding};
use crate::files::glob::below_named;
use crate::files::loaded_instructions::TouchedPath;
use crate::files::path::{Access, PathKind, ResolvedPath};
use crate::files::pattern::{MatchOptions, SearchPattern};
use crate::files::rooted_fs::{SearchReader, SearchRoot};
use crate::files::search::{
    MAX_SEARCH_RESULTS, Rank, compile_globs, has_ignored_files, resolve_or_suggest, run_blocking,
    suggest_similar_paths, visit_files,
};
use crate::{CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::lock::{into_inner, lock};
use base::text;
use events::{Location, ToolKind};
use permission::AccessRequest;
use permission::search_filter::{Omitted, SearchFilter};

/// The maximum length of a shown line, in characters.
const MAX_LINE_CHARS: usize = 2_000;
/// The number of bytes at the beginning of a file from which its encoding is recognised.
const HEAD_BYTES: u64 = 1 << 20;
/// The maximum number of lines that are shown before and after each match.
const MAX_CONTEXT_LINES: usize = 50;

#[derive(Default)]
pub struct GrepTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Regular expression (Rust syntax)
    pub pattern: String,
    /// File or directory
    pub path: Option<String>,
    /// Glob for file names, for example *.{ts,tsx}
    pub include: Option<String>,
    /// Lines around each match
    pub context: Option<u64>,
    pub ignore_case: Option<bool>,
    /// Whole words
    pub word: Option<bool>,
    pub files_only: Option<bool>,
    pub multiline: Option<bool>,
}

/// A checked search.
#[derive(Debug)]
pub struct Ready {
    path: ResolvedPath,
    pattern: SearchPattern,
    options: GrepOptions,
    /// The files that are searched, by path below the directory; `None` for all.
    include: Option<globset::GlobSet>,
}

impl Tool for GrepTool {
    const NAME: &'static str = "grep";
    const DESCRIPTION: &'static str = include_str!("grep.md");
    const KIND: ToolKind = ToolKind::Search;
    const CONCURRENT: bool = true;
    const PERMISSION_KEY: Option<PermissionKey> = Some(PermissionKey::reading(
        "Searching in files; patterns are the expressions searched for.",
    ));
    const ALIASES: Aliases = Aliases {
        tool_names: &[
            "grepsearch",
            "rg",
            "ripgrep",
            "searchfilecontent",
            "searchfiles",
            "search",
            "searchcode",
            "textsearch",
        ],
        field_values: &[
            FieldValue::setting("outputmode", "fileswithmatches", "filesOnly"),
            // The output always has the number of matches.
            FieldValue::ignored("outputmode", "count"),
            FieldValue::ignored("outputmode", "content"),
            FieldValue::ignored("n", "true"),
            FieldValue::ignored("linenumbers", "true"),
            FieldValue::setting("casesensitive", "false", "ignoreCase"),
            FieldValue::ignored("casesensitive", "true"),
        ],
        fields: &[
            (
                "pattern",
                &[
                    "query",
                    "regex",
                    "search",
                    "searchpattern",
                    "regexp",
                    "text",
                ],
            ),
            (
                "path",
                &[
                    "file",
                    "filepath",
                    "directory",
                    "dir",
                    "folder",
                    "root",
                    "searchpath",
                    "dirpath",
                    "directorypath",
                    "cwd",
                ],
            ),
            (
                "include",
                &[
                    "glob",
                    "filepattern",
                    "includepattern",
                    "fileglob",
                    "includes",
                ],
            ),
            (
                "context",
                &[
                    "c",
                    "a",
                    "b",
                    "contextlines",
                    "aftercontext",
                    "beforecontext",
                ],
            ),
            ("ignoreCase", &["i", "caseinsensitive", "insensitive"]),
            ("word", &["w", "wholeword", "wordregexp"]),
            ("filesOnly", &["l", "fileswithmatches"]),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        let path = context.absolute(input.path.as_deref().unwrap_or("."));
        let mut title = format!("Search for `{}`", text::cut_chars(&input.pattern, 80));
        match context.relative(&path) {
            here if here == "." => {}
            dir => title.push_str(&format!(" in {dir}")),
        }
        if let Some(include) = &input.include {
            title.push_str(&format!(" ({include})"));
        }
        let locations = vec![Location {
            path: base::worktree::normal(&path),
            line: None,
        }];
        CallDescription {
            title: text::title(&title),
            locations,
        }
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        if input.pattern.is_empty() {
            return Err(Failure::for_model("pattern is empty."));
        }
        let named = input.path.as_deref().unwrap_or(".");
        // Searching one file is reading it.
        let mut access = Access::List;
        let mut resolved_path = resolve_or_suggest(context, named, access).await?;
        if resolved_path.real.kind != PathKind::Directory {
            access = Access::Read;
            resolved_path = resolve_or_suggest(context, named, access).await?;
        }
        let multiline = is_on(input.multiline);
        let style = MatchOptions {
            ignore_case: is_on(input.ignore_case),
            word: is_on(input.word),
            multiline,
        };
        let pattern = SearchPattern::new("pattern", &input.pattern, style)?;
        let written = input.include.filter(|include| !include.is_empty());
        let include = written
            .as_deref()
            .map(|include| compile_globs(&[include]))
            .transpose()?;
        let mut own = AccessRequest::new("grep", &*input.pattern).always("*");
        own.metadata
            .insert("pattern".into(), Value::String(input.pattern.clone()));
        own.metadata.insert(
            "path".into(),
            Value::String(resolved_path.real.path.display().to_string()),
        );
        own.metadata.insert(
            "include".into(),
            written.clone().map_or(Value::Null, Value::String),
        );
        let options = GrepOptions {
            context_lines: input.context.map_or(0, |lines| {
                usize::try_from(lines)
                    .unwrap_or(MAX_CONTEXT_LINES)
                    .min(MAX_CONTEXT_LINES)
            }),
            files_only: is_on(input.files_only),
            pattern: input.pattern,
            include: written,
            spans_lines: pattern.multiline && !multiline,
        };
        Ok((
            resolved_path.requests(access, own),
            Ready {
                path: resolved_path,
                pattern,
                options,
                include,
            },
        ))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        ready.path.check_unchanged()?;
        if ready.path.real.is_absent() {
            let instead = suggest_similar_paths(&context, &ready.path.real.path).await;
            return Err(Failure::ForModel(format!(
                "Path not found: {}. Nothing was searched.{instead}",
                ready.path.shown
            )));
        }
        let filter = SearchFilter::new(&context.policy);
        let hints = context.encoding_hints();
        let cancelled = context.cancelled.clone();
        let Ready {
            path: resolved_path,
            pattern,
            options,
            include,
        } = ready;
        let at = resolved_path.path.clone();
        let shown = resolved_path.shown.clone();
        let (newest, left_out, options) = run_blocking(&context, move || {
            let searched = AtomicUsize::new(0);
            let newest: Mutex<NewestMatches> = Mutex::default();
            let is_named = resolved_path.real.kind == PathKind::File;
            let folder = if is_named {
                resolved_path
                    .real
                    .path
                    .parent()
                    .unwrap_or(&resolved_path.real.path)
            } else {
                &resolved_path.real.path
            };
            let root = SearchRoot::open(folder)?;
            let make_visitor = || {
                let mut searchers = FileSearchers::new(is_named, &pattern, &options);
                let hints = &hints;
                let mut reader = root.reader();
                let newest = &newest;
                let resolved_path = &resolved_path;
                let pattern = &pattern;
                let searched = &searched;
                let filter = &filter;
                let files_only = options.files_only;
                move |path: &Path| {
                    let rank = |reader: &mut SearchReader| {
                        Some(Rank {
                            path: below_named(path, resolved_path),
                            ..Rank::of(path, reader)?
                        })
                    };
                    let full = lock(newest).is_full();
                    let ranked = if full { rank(&mut reader) } else { None };
                    let max_matches = match &ranked {
                        _ if files_only => 0,
                        Some(rank) => lock(newest).max_matches_in(rank),
                        None => MAX_SEARCH_RESULTS,
                    };
                    // It may have become a pipe or a link since it was listed.
                    let Some(file) = reader.open(path) else {
                        return lock(newest)
                            .add_unsearched(SearchGap::Unreadable, filter.name(path));
                    };
                    let sink = MatchSink {
                        matcher: &pattern.matcher,
                        max_matches,
                        only_first: files_only,
                        ..MatchSink::of(&pattern.matcher)
                    };
                    let (hits, gap) = sink.hits(&mut searchers, file, || hints.of(path));
                    match gap {
                        Some(why) => lock(newest).add_unsearched(why, filter.name(path)),
                        None => drop(searched.fetch_add(1, Ordering::Relaxed)),
                    }
                    if hits.count > 0
                        && let Some(rank) = ranked.or_else(|| rank(&mut reader))
                    {
                        lock(newest).add(rank, hits);
                    }
                }
            };
            let fits = |path: &Path| {
                include.as_ref().is_none_or(|set| {
                    path.strip_prefix(&resolved_path.real.path)
                        .is_ok_and(|rest| set.is_match(rest))
                })
            };
            let mut seen = AtomicUsize::new(0);
            let left_out = if is_named {
                make_visitor()(&resolved_path.real.path);
                Omitted::default()
            } else {
                let counted = |path: &Path| {
                    let fits = fits(path);
                    seen.fetch_add(usize::from(fits), Ordering::Relaxed);
                    fits
                };
                visit_files(
                    &resolved_path.real.path,
                    &cancelled,
                    counted,
                    &filter,
                    make_visitor,
                )
            };
            let mut newest = into_inner(newest);
            newest.searched = searched.into_inner();
            newest.has_ignored_files = newest.matches == 0
                && !is_named
                && has_ignored_files(&resolved_path.real.path, &cancelled, fits, *seen.get_mut());
            Ok((newest, left_out, options))
        })
        .await?
        .map_err(|e: crate::files::disk::Error| {
            Failure::ForModel(format!("{shown}: {e}. Nothing was searched."))
        })?;
        Ok(output(&newest, &left_out, &options, at))
    }
}

/// Formats the result of a search at the path `at`.
fn output(
    newest: &NewestMatches,
    left_out: &Omitted,
    options: &GrepOptions,
    at: std::path::PathBuf,
) -> ToolOutput {
    let metadata = Map::from_iter([
        ("matches".to_owned(), Value::from(newest.matches)),
        (
            "truncated".to_owned(),
            Value::Bool(newest.is_cut(options.files_only)),
        ),
    ]);
    let locations = vec![Location {
        path: at,
        line: None,
    }];
    let touched = newest.shown_files(options).map(TouchedPath::File).collect();
    let text = format!(
        "{}{}{}",
        newest.to_text(options),
        newest.describe_unsearched(),
        left_out.to_message()
    );
    ToolOutput {
        metadata,
        locations,
        touched,
        ..ToolOutput::text(text)
    }
}

/// Returns whether an optional flag is set.
fn is_on(flag: Option<bool>) -> bool {
    flag == Some(true)
}

/// The searchers of one thread, and its buffer.
struct FileSearchers {
    /// True if the call names the file, so that it is searched even if it is binary.
    is_named: bool,
    /// Makes searchers of files in other encodings.
    builder: SearcherBuilder,
    /// Searches UTF-8, and UTF-16 with a byte order mark.
    utf8: Searcher,
    /// The beginning of the file.
    head: Vec<u8>,
}

impl FileSearchers {
    fn new(is_named: bool, pattern: &SearchPattern, options: &GrepOptions) -> Self {
        // Binary files are searched only if the call names them.
        let binary = if is_named {
            BinaryDetection::convert(0)
        } else {
            BinaryDetection::quit(0)
        };
        let context_lines = if options.files_only {
            0
        } else {
            options.context_lines
        };
        let mut builder = SearcherBuilder::new();
        builder
            .line_number(true)
            .binary_detection(binary)
            .heap_limit(Some(MAX_LINE_BYTES))
            .multi_line(pattern.multiline)
            .before_context(context_lines)
            .after_context(context_lines);
        Self {
            is_named,
            utf8: builder.build(),
            builder,
            head: Vec::new(),
        }
    }

    /// Searches a file in its encoding.
    fn search(
        &mut self,
        mut file: File,
        sink: &mut MatchSink<'_>,
        hint: impl FnOnce() -> EncodingHint,
    ) -> io::Result<()> {
        self.head.clear();
        file.by_ref().take(HEAD_BYTES).read_to_end(&mut self.head)?;
        let is_whole = (self.head.len() as u64) < HEAD_BYTES;
        let mut other = search_encoding(&self.head, hint)
            .and_then(|encoding| Encoding::new(encoding.name()).ok())
            .map(|encoding| self.builder.clone().encoding(Some(encoding)).build());
        let searcher = other.as_mut().unwrap_or(&mut self.utf8);
        let matcher = sink.matcher;
        if is_whole {
            return searcher.search_reader(matcher, &self.head[..], sink);
        }
        file.rewind()?;
        searcher.search_file(matcher, &file, sink)
    }
}

/// The receiver of the matches of one file.
struct MatchSink<'a> {
    matcher: &'a RegexMatcher,
    /// The maximum number of matches that are collected; all are counted.
    max_matches: usize,
    /// True if the search ends at the first match.
    only_first: bool,
    hits: FileMatches,
    /// True if a NUL byte was found.
    is_binary: bool,
}

impl<'a> MatchSink<'a> {
    fn of(matcher: &'a RegexMatcher) -> Self {
        Self {
            matcher,
            max_matches: MAX_SEARCH_RESULTS,
            only_first: false,
            hits: FileMatches::default(),
            is_binary: false,
        }
    }

    /// Returns the matches of a file, and the reason why there may be more. Matches before an
    /// interruption count: as in ripgrep, a file that the call does not name is searched until it
    /// turns out to be binary, in pieces of 64 KiB.
    fn hits(
        mut self,
        searchers: &mut FileSearchers,
        file: File,
        hint: impl FnOnce() -> EncodingHint,
    ) -> (FileMatches, Option<SearchGap>) {
        let gap = match searchers.search(file, &mut self, hint) {
            Ok(()) if !self.is_binary || searchers.is_named => None,
            Ok(()) if self.hits.count > 0 => Some(SearchGap::BinaryAfterMatch),
            Ok(()) => Some(SearchGap::Binary),
            // The searcher's own limit; errors of the system have a kind or a number.
            Err(e) if e.kind() == io::ErrorKind::Other && e.raw_os_error().is_none() => {
                Some(SearchGap::TooLong)
            }
            Err(_) => Some(SearchGap::Unreadable),
        };
        (self.hits, gap)
    }
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let hits = &mut self.hits;
        hits.count += 1;
        if hits.collected < self.max_matches {
            hits.collected += 1;
            let first = found.line_number().unwrap_or(0);
            for (number, line) in (first..).zip(found.lines()) {
                let line = shown_line(line, self.matcher);
                let line = if number == first {
                    GrepLine::Match(number, line)
                } else {
                    GrepLine::Continued(number, line)
                };
                hits.lines.push(line);
            }
        }
        Ok(!self.only_first)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        let belongs = match line.kind() {
            SinkContextKind::After => self.hits.collected == self.hits.count,
            SinkContextKind::Before | SinkContextKind::Other => {
                self.hits.collected < self.max_matches
            }
        };
        if belongs {
            self.hits.lines.push(GrepLine::Context(
                line.line_number().unwrap_or(0),
                shown_line(line.bytes(), self.matcher),
            ));
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        if self.hits.collected < self.max_matches && !self.hits.lines.is_empty() {
            self.hits.lines.push(GrepLine::Gap);
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.is_binary = true;
        Ok(true)
    }
}

/// Returns a line as it is shown: the part of a very long one around the match.
fn shown_line(line: &[u8], matcher: &RegexMatcher) -> String {
    let bytes = line.strip_suffix(b"\n").unwrap_or(line);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let whole = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_LINE_CHARS + 4)]);
    let Some((end, _)) = whole.char_indices().nth(MAX_LINE_CHARS) else {
        return whole.into_owned();
    };
    let start = matcher
        .find(bytes)
        .ok()
        .flatten()
        .map_or(0, |found| found.start());
    if start + 200 < end {
        return format!("{}...", &whole[..end]);
    }
    let from = start.saturating_sub(200);
    let part = String::from_utf8_lossy(&bytes[from..bytes.len().min(from + MAX_LINE_CHARS)]);
    format!("...{}...", part.trim_matches('\u{fffd}'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::erase;
    use crate::test::{TestProject, call};

    async fn grep(context: &ToolContext, input: Value) -> ToolOutput {
        call(&erase(GrepTool), input, context).await.unwrap().1
    }

    fn age(fixture: &TestProject, name: &str, seconds: u64) {
        let file = File::options()
            .write(true)
            .open(fixture.cwd().join(name))
            .unwrap();
        let at = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(seconds);
        file.set_modified(at).unwrap();
    }

    #[tokio::test]
    async fn matching_lines_are_listed() {
        let fixture = TestProject::new();
        fixture.write("a.rs", "fn one() {}\r\nfn two() {}\n");
        fixture.write("b/c.txt", "fn three\n");
        fixture.write(".hid", "fn four\n");
        fixture.write("ignored/x.rs", "fn five\n");
        fixture.write(".gitignore", "ignored\n");
        fixture.write(".git/config", "fn six\n");
        fixture.write(".env", "fn=secret\n");
        fixture.write_bytes("bin", b"fn \0 seven\n");
        fixture.write_bytes("latin", b"fn caf\xe9\n");
        fixture.write(
            "minified.js",
            format!("{}fn needle {}", "x".repeat(100_000), "y".repeat(100_000)),
        );
        for (n, name) in ["latin", "a.rs", "b/c.txt", ".hid", "minified.js"]
            .iter()
            .enumerate()
        {
            age(&fixture, name, 100 * n as u64);
        }
        let context = fixture.context();
        let cwd = fixture.cwd().display().to_string();
        let text = grep(&context, json!({"pattern": "^fn"})).await.text;
        assert_eq!(
            text,
            format!(
                "Found 5 matches\n\n{cwd}/latin:\n  Line 1: fn café\n\n{cwd}/a.rs:\n  Line 1: fn one() {{}}\n  Line 2: fn two() {{}}\n\n{cwd}/b/c.txt:\n  Line 1: fn three\n\n{cwd}/.hid:\n  Line 1: fn four\n\n(1 file is binary and not searched; name it as path to search it: bin)\n\n(1 file left out, because reading needs permission: .env)"
            )
        );
        let text = grep(&context, json!({"pattern": "needle"})).await.text;
        assert!(
            text.contains("Line 1: ...xxx") && text.contains("needle") && text.len() < 3_000,
            "{text}"
        );
        let table = [
            (
                json!({"pattern": "fn", "include": "*.rs"}),
                "Found 2 matches",
            ),
            (
                json!({"pattern": "fn", "include": "b/**"}),
                "Found 1 match\n",
            ),
            // A named file is searched itself, not its directory, even if it is ignored or
            // protected.
            (json!({"pattern": "fn", "path": "a.rs"}), "Found 2 matches"),
            (json!({"pattern": "fn", "path": ".env"}), "Found 1 match\n"),
            (
                json!({"pattern": "fn", "path": "ignored/x.rs"}),
                "Found 1 match\n",
            ),
            (
                json!({"pattern": "(?i)FN (ONE|two)", "path": "."}),
                "Found 2 matches",
            ),
            (
                json!({"pattern": "nothing like it"}),
                "No matches for `nothing like it` in 6 files.\nFiles that git ignores were not searched; name such a file or directory as path to search it.\n\n(1 file is binary",
            ),
            (
                json!({"pattern": "fn", "path": "ignored"}),
                "Found 1 match\n",
            ),
            (
                json!({"pattern": "none", "path": "b"}),
                "No matches for `none` in 1 file.\n",
            ),
            (
                json!({"pattern": "fn", "include": "*.zig"}),
                "No matches: no file matches include `*.zig`.\n",
            ),
            (
                json!({"pattern": "FN", "ignoreCase": true, "path": "a.rs"}),
                "Found 2 matches",
            ),
            (
                json!({"pattern": "o", "word": true, "path": "a.rs"}),
                "No matches for `o` in 1 file.",
            ),
        ];
        for (input, expected) in table {
            let text = grep(&context, input.clone()).await.text;
            assert!(format!("{text}\n").starts_with(expected), "{input}: {text}");
        }
        let failure = call(&erase(GrepTool), json!({"pattern": "("}), &context)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("not a valid regular expression"),
            "{failure}"
        );
        let (requests, _) = call(
            &erase(GrepTool),
            json!({"pattern": "x", "path": ".env"}),
            &context,
        )
        .await
        .unwrap();
        let asked: Vec<_> = requests
            .iter()
            .map(|request| (request.permission.as_str(), request.patterns[0].as_str()))
            .collect();
        assert_eq!(asked, [("read", ".env"), ("grep", "x")]);
    }

    #[tokio::test]
    async fn matches_of_the_newest_files_are_shown() {
        let fixture = TestProject::new();
        for n in 0..40 {
            fixture.write(&format!("f{n:02}"), "hit\n".repeat(5));
            age(&fixture, &format!("f{n:02}"), 1000 - n);
        }
        let context = fixture.context();
        let output = grep(&context, json!({"pattern": "hit"})).await;
        assert!(output.text.starts_with(
            "Found 200 matches in 40 files; 100 are shown, those of the newest files\n"
        ));
        let (_, rest) = output.text.split_once("\n\nMatches not shown:\n").unwrap();
        assert_eq!(
            rest.lines()
                .filter(|line| line.starts_with("  /") && line.ends_with(": 5"))
                .count(),
            20
        );
        assert!(
            rest.ends_with("(Use a more specific path, include or pattern, or filesOnly.)"),
            "{rest}"
        );
        assert_eq!(output.text.matches("hit").count(), 100);
        let (shown, _) = output.text.split_once("\n\nMatches not shown:\n").unwrap();
        let files: Vec<&str> = shown
            .lines()
            .filter_map(|line| line.strip_suffix(':')?.rsplit('/').next())
            .collect();
        let expected: Vec<String> = (20..40).rev().map(|n| format!("f{n:02}")).collect();
        assert_eq!(files, expected);
        let hundred = grep(&context, json!({"pattern": "hit", "include": "f[01]*"})).await;
        assert!(
            hundred.text.starts_with("Found 100 matches\n"),
            "{}",
            hundred.text
        );
    }

    #[tokio::test]
    async fn options_select_the_shown_lines() {
        let fixture = TestProject::new();
        fixture.write("a", "1\n2\nhit\n4\n5\n6\n7\nhit hit\n9\n");
        fixture.write("b/c", "let x =\n    hit;\n");
        age(&fixture, "b/c", 100);
        let context = fixture.context();
        let cwd = fixture.cwd().display().to_string();
        let a = format!("{cwd}/a");
        let table = [
            (
                json!({"pattern": "hit", "path": "a", "context": 1}),
                format!(
                    "Found 2 matches\n\n{a}:\n  Line 2- 2\n  Line 3: hit\n  Line 4- 4\n  --\n  Line 7- 7\n  Line 8: hit hit\n  Line 9- 9"
                ),
            ),
            (
                json!({"pattern": "hit", "filesOnly": true}),
                format!("Found matches in 2 files:\n{a}\n{cwd}/b/c"),
            ),
            (
                json!({"pattern": "x =\\s+hit", "multiline": true}),
                format!("Found 1 match\n\n{cwd}/b/c:\n  Line 1: let x =\n  Line 2:     hit;"),
            ),
            (
                json!({"pattern": "x =\\s+hit"}),
                "No matches for `x =\\s+hit` in 2 files.".to_owned(),
            ),
            (
                json!({"pattern": "^5\n6$"}),
                format!(
                    "Found 1 match\n\n{a}:\n  Line 5: 5\n  Line 6: 6\n\n(The pattern contains a line break, so it was matched across lines, as with multiline. To find either of two lines, write a|b.)"
                ),
            ),
        ];
        for (input, expected) in table {
            assert_eq!(
                grep(&context, input.clone()).await.text,
                expected,
                "{input}"
            );
        }
        fixture.write("many", "1\n2\nhit\n4\n".repeat(150));
        let text = grep(
            &context,
            json!({"pattern": "hit", "path": "many", "context": 1}),
        )
        .await
        .text;
        assert!(
            text.starts_with(
                "Found 150 matches in 1 file; 100 are shown, those of the newest files\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("/many (100 of 150):\n") && text.matches(": hit").count() == 100,
            "{text}"
        );
        assert_eq!(
            text.matches("- ").count(),
            200,
            "context lines of matches that are not shown are left out"
        );
    }

    #[tokio::test]
    async fn unsearched_files_are_reported() {
        let fixture = TestProject::new();
        fixture.write("a.txt", "hit\n");
        for name in ["1.bin", "2.bin", "3.bin", "4.bin"] {
            fixture.write_bytes(name, b"hit\n\0\n");
        }
        let binary = "4 files are binary and not searched; name one as path to search it: 1.bin, 2.bin, 3.bin and 1 more";
        // The NUL byte comes after the first buffer.
        fixture.write("late", format!("hit\n{}\0hit\n", "straw\n".repeat(20_000)));
        let late =
            "1 file is searched only up to a NUL byte; name it as path to search all of it: late";
        let context = fixture.context();
        let cwd = fixture.cwd().display().to_string();
        let table = [
            (
                json!({"pattern": "hit", "include": "*.bin"}),
                format!("No matches: no file here could be searched.\n\n({binary})"),
            ),
            (
                json!({"pattern": "nothing", "include": "*.{bin,txt}"}),
                format!("No matches for `nothing` in 1 file.\n\n({binary})"),
            ),
            (
                json!({"pattern": "hit", "include": "late"}),
                format!("Found 1 match\n\n{cwd}/late:\n  Line 1: hit\n\n({late})"),
            ),
            (
                json!({"pattern": "hit", "include": "{1.bin,a.txt}", "filesOnly": true}),
                format!(
                    "Found matches in 1 file:\n{cwd}/a.txt\n\n(1 file is binary and not searched; name it as path to search it: 1.bin)"
                ),
            ),
            (
                json!({"pattern": "hit", "path": "1.bin"}),
                format!("Found 1 match\n\n{cwd}/1.bin:\n  Line 1: hit"),
            ),
        ];
        for (input, expected) in table {
            assert_eq!(
                grep(&context, input.clone()).await.text,
                expected,
                "{input}"
            );
        }
        let text = grep(&context, json!({"pattern": "hit", "path": "late"}))
            .await
            .text;
        assert!(
            text.starts_with("Found 2 matches\n") && !text.contains("NUL"),
            "{text}"
        );
        // The file becomes one that is not opened.
        let prepared = erase(GrepTool)
            .prepare(json!({"pattern": "hit", "path": "a.txt"}), &context)
            .await
            .unwrap();
        std::fs::remove_file(fixture.cwd().join("a.txt")).unwrap();
        nix::unistd::mkfifo(&fixture.cwd().join("a.txt"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let text = (prepared.run)(context).await.unwrap().text;
        assert_eq!(
            text,
            "No matches: no file here could be searched.\n\n(1 file could not be read: a.txt)"
        );
    }

    #[test]
    fn interrupted_search_has_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, format!("hit\n{}\nhit\n", "x".repeat(5_000))).unwrap();
        let file = File::open(&path).unwrap();
        let pattern = SearchPattern::new("pattern", "hit", MatchOptions::default()).unwrap();
        let builder = SearcherBuilder::new();
        let mut searchers = FileSearchers {
            is_named: false,
            utf8: builder.clone().heap_limit(Some(1_000)).build(),
            builder,
            head: Vec::new(),
        };
        let mut hits = |file| {
            MatchSink::of(&pattern.matcher).hits(&mut searchers, file, EncodingHint::default)
        };
        let (hits_before, gap) = hits(file);
        assert_eq!((hits_before.count, gap), (1, Some(SearchGap::TooLong)));
        // A directory can be opened, but not read.
        let folder = File::open(dir.path()).unwrap();
        let (none, gap) = hits(folder);
        assert_eq!((none.count, gap), (0, Some(SearchGap::Unreadable)));
    }

    #[tokio::test]
    async fn missing_path_proposes_similar_ones() {
        let fixture = TestProject::new();
        for name in [
            "src/runtime/mod.rs",
            "src/net/mod.rs",
            "src/config.rs",
            "ignored/lost.rs",
            "secret/keys.rs",
            ".env",
        ] {
            fixture.write(name, "x\n");
        }
        fixture.write(".gitignore", "ignored\n");
        let mut context = fixture.context();
        let mut policy = permission::Policy::clone(&context.policy);
        policy.rules.extend([permission::Rule {
            permission: "read".into(),
            pattern: "secret/*".into(),
            action: permission::Action::Deny,
            source: "test".into(),
        }]);
        context.policy = std::sync::Arc::new(policy);
        let table = [
            (
                "runtime/mod.rs",
                "\n\nDid you mean one of these?\nsrc/runtime/mod.rs\nsrc/net/mod.rs",
            ),
            ("runtime", "\n\nDid you mean one of these?\nsrc/runtime"),
            (
                "src/confg.rs",
                "\n\nDid you mean one of these?\nsrc/config.rs",
            ),
            // A file that a search would leave out is not proposed either.
            ("lost.rs", ""),
            ("keys.rs", ""),
            ("sub/.env", ""),
            ("secre", ""),
        ];
        for (path, instead) in table {
            let failure = call(
                &erase(GrepTool),
                json!({"pattern": "x", "path": path}),
                &context,
            )
            .await
            .unwrap_err()
            .to_string();
            assert!(
                failure.contains("not found: ") && failure.ends_with(instead),
                "{failure}"
            );
            assert_eq!(
                failure.contains("Did you mean"),
                !instead.is_empty(),
                "{failure}"
            );
        }
    }

    #[tokio::test]
    async fn cancelled_search_stops() {
        let fixture = TestProject::new();
        fixture.write("a", "x\n");
        let context = fixture.context();
        let prepared = erase(GrepTool)
            .prepare(json!({"pattern": "x"}), &context)
            .await
            .unwrap();
        context.cancelled.cancel();
        assert!(matches!(
            (prepared.run)(context).await,
            Err(Failure::Cancelled)
        ));
    }
}
