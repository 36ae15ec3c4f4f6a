//! `grep`: lines by a regular expression, those of the newest files first.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::beneath::{Looker, Root};
use super::glob::spelled;
use super::path::{Access, Found, Resolved, resolve};
use super::search::{LIMIT, Rank, blocking, files, globs};
use super::{Context, Description, Failure, Output, Tool};
use crate::event::{Kind, Location};
use crate::permission::Need;
use crate::permission::sight::{LeftOut, Sight};
use crate::text;

/// The longest line shown, in characters.
const LINE: usize = 2_000;
/// The longest line searched, in bytes.
const LONGEST: usize = 64 << 20;

/// See the module.
pub struct Grep;

/// What the model sends.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// Regular expression (Rust syntax)
    pub pattern: String,
    /// File or directory to search (default: the working directory)
    pub path: Option<String>,
    /// Glob for file names, for example *.{ts,tsx}
    pub include: Option<String>,
}

/// Where to look for what.
#[derive(Debug)]
pub struct Ready {
    place: Resolved,
    matcher: RegexMatcher,
    include: Option<globset::GlobSet>,
}

impl Tool for Grep {
    const NAME: &'static str = "grep";
    const KIND: Kind = Kind::Search;
    const CONCURRENT: bool = true;
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &Context) -> Description {
        let path = context.absolute(input.path.as_deref().unwrap_or("."));
        let mut title = format!("Search for `{}`", text::cut_chars(&input.pattern, 80));
        match context.relative(&path) {
            here if here == "." => {}
            place => title.push_str(&format!(" in {place}")),
        }
        if let Some(include) = &input.include {
            title.push_str(&format!(" ({include})"));
        }
        let locations = vec![Location { path: crate::worktree::normal(&path), line: None }];
        Description { title: text::title(&title), locations }
    }

    async fn prepare(&self, input: Input, context: &Context) -> Result<(Vec<Need>, Ready), Failure> {
        if input.pattern.is_empty() {
            return Err(Failure::tell("pattern is empty."));
        }
        let named = input.path.as_deref().unwrap_or(".");
        // To search one file is to read it.
        let mut access = Access::List;
        let mut place = resolve(context, named, access)?;
        if place.real.found != Found::Directory {
            access = Access::Read;
            place = resolve(context, named, access)?;
        }
        let matcher = matcher(&input.pattern)?;
        let include = input
            .include
            .as_deref()
            .filter(|include| !include.is_empty())
            .map(|include| globs(&[include]))
            .transpose()?;
        let mut own = Need::new("grep", &*input.pattern).always("*");
        own.metadata.insert("pattern".into(), Value::String(input.pattern));
        own.metadata.insert("path".into(), Value::String(place.real.path.display().to_string()));
        own.metadata.insert("include".into(), input.include.map_or(Value::Null, Value::String));
        Ok((place.needs(access, own), Ready { place, matcher, include }))
    }

    async fn run(&self, ready: Ready, context: Context) -> Result<Output, Failure> {
        ready.place.still()?;
        if ready.place.real.is_absent() {
            return Err(Failure::Tell(format!("File not found: {}", ready.place.shown)));
        }
        let sight = Sight::new(&context.policy);
        let cancelled = context.cancelled.clone();
        let Ready { place, matcher, include } = ready;
        let (at, shown) = (place.path.clone(), place.shown.clone());
        let (best, left_out) = blocking(&context, move || {
            let best: Mutex<Best> = Mutex::default();
            let by_name = place.real.found == Found::File;
            let folder = if by_name { place.real.path.parent().unwrap_or(&place.real.path) } else { &place.real.path };
            let root = Root::open(folder)?;
            let looker = || {
                let (mut searcher, mut look) = (searcher(by_name), root.looker());
                let (best, place, matcher) = (&best, &place, &matcher);
                move |path: &Path| {
                    let rank = |look: &mut Looker| Some(Rank { path: spelled(path, place), ..Rank::of(path, look)? });
                    let full = best.lock().unwrap_or_else(PoisonError::into_inner).full();
                    let ranked = if full { rank(&mut look) } else { None };
                    let room = ranked
                        .as_ref()
                        .map_or(LIMIT, |rank| best.lock().unwrap_or_else(PoisonError::into_inner).room(rank));
                    if room == 0 {
                        return;
                    }
                    let hits = hits(path, &mut look, &mut searcher, matcher, room, by_name);
                    if !hits.lines.is_empty()
                        && let Some(rank) = ranked.or_else(|| rank(&mut look))
                    {
                        best.lock().unwrap_or_else(PoisonError::into_inner).add(rank, hits);
                    }
                }
            };
            let wanted = |path: &Path| {
                include
                    .as_ref()
                    .is_none_or(|set| path.strip_prefix(&place.real.path).is_ok_and(|rest| set.is_match(rest)))
            };
            let left_out = if by_name {
                looker()(&place.real.path);
                LeftOut::default()
            } else {
                files(&place.real.path, &cancelled, wanted, &sight, looker)
            };
            Ok((best.into_inner().unwrap_or_else(PoisonError::into_inner), left_out))
        })
        .await?
        .map_err(|e: super::disk::Error| Failure::Tell(format!("{shown}: {e}. Nothing was searched.")))?;
        let metadata = Map::from_iter([
            ("matches".to_owned(), Value::from(best.count)),
            ("truncated".to_owned(), Value::Bool(best.more)),
        ]);
        let locations = vec![Location { path: at, line: None }];
        Ok(Output { metadata, locations, ..Output::text(format!("{}{}", best.shown(), left_out.words())) })
    }
}

/// The lines that are shown: those of the newest files, at most [`LIMIT`]. Bounded, whatever the
/// number of matches.
#[derive(Debug, Default)]
struct Best {
    files: BTreeMap<Rank, Hits>,
    count: usize,
    more: bool,
}

/// The matching lines of one file.
#[derive(Debug, Default)]
struct Hits {
    /// Number from 1, text.
    lines: Vec<(u64, String)>,
    /// There are more than were asked for.
    more: bool,
}

impl Best {
    /// Whether a file's rank decides if its lines have a place here.
    fn full(&self) -> bool {
        self.count >= LIMIT
    }

    /// How many lines of a file would have a place here; 0 when none would and nothing is learnt
    /// from looking.
    fn room(&self, rank: &Rank) -> usize {
        if !self.full() {
            return LIMIT;
        }
        let worse = self.files.last_key_value().is_some_and(|(last, _)| last < rank);
        match (worse, self.more) {
            (false, _) => LIMIT,
            // One match there shows that not everything is shown.
            (true, false) => 1,
            (true, true) => 0,
        }
    }

    fn add(&mut self, rank: Rank, hits: Hits) {
        self.count += hits.lines.len();
        self.more |= hits.more;
        self.files.insert(rank, hits);
        while self.count > LIMIT {
            let Some(mut last) = self.files.last_entry() else {
                break;
            };
            self.more = true;
            let over = self.count - LIMIT;
            let lines = &mut last.get_mut().lines;
            if lines.len() > over {
                lines.truncate(lines.len() - over);
                self.count = LIMIT;
            } else {
                self.count -= lines.len();
                last.remove();
            }
        }
    }

    fn shown(&self) -> String {
        if self.files.is_empty() {
            return "No files found".into();
        }
        let more = if self.more { " (more matches available)" } else { "" };
        let mut text = format!("Found {}{more}", text::count(self.count, "match"));
        for (rank, hits) in &self.files {
            text.push_str(&format!("\n\n{}:", text::escaped(&rank.path.display().to_string())));
            for (number, line) in &hits.lines {
                text.push_str(&format!("\n  Line {number}: {line}"));
            }
        }
        if self.more {
            text.push_str("\n\n(Results truncated. Consider using a more specific path or pattern.)");
        }
        text
    }
}

fn searcher(by_name: bool) -> Searcher {
    // Binary files are searched only where the file was asked for by name.
    let binary = if by_name { BinaryDetection::convert(0) } else { BinaryDetection::quit(0) };
    SearcherBuilder::new().line_number(true).binary_detection(binary).heap_limit(Some(LONGEST)).build()
}

/// The first `most` matching lines of a file. What cannot be read has none.
fn hits(
    path: &Path,
    look: &mut Looker,
    searcher: &mut Searcher,
    matcher: &RegexMatcher,
    most: usize,
    by_name: bool,
) -> Hits {
    // It may have become a pipe, or a link, since it was listed.
    let Some(file) = look.open(path) else {
        return Hits::default();
    };
    let mut taker = Taker { matcher, most, hits: Hits::default(), binary: false };
    // A line that is too long ends the search of its file; what was found before it counts.
    searcher.search_file(matcher, &file, &mut taker).ok();
    if taker.binary && !by_name { Hits::default() } else { taker.hits }
}

struct Taker<'a> {
    matcher: &'a RegexMatcher,
    most: usize,
    hits: Hits,
    binary: bool,
}

impl Sink for Taker<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if self.hits.lines.len() == self.most {
            self.hits.more = true;
            return Ok(false);
        }
        let bytes = found.bytes().strip_suffix(b"\n").unwrap_or(found.bytes());
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        self.hits.lines.push((found.line_number().unwrap_or(0), shown(bytes, self.matcher)));
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(true)
    }
}

/// A line, or of a very long one the part around the match.
fn shown(bytes: &[u8], matcher: &RegexMatcher) -> String {
    let whole = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LINE + 4)]);
    let Some((end, _)) = whole.char_indices().nth(LINE) else {
        return whole.into_owned();
    };
    let start = matcher.find(bytes).ok().flatten().map_or(0, |found| found.start());
    if start + 200 < end {
        return format!("{}...", &whole[..end]);
    }
    let from = start.saturating_sub(200);
    let part = String::from_utf8_lossy(&bytes[from..bytes.len().min(from + LINE)]);
    format!("...{}...", part.trim_matches('\u{fffd}'))
}

/// A pattern of the model, compiled: line by line where it can be, and never to more than 10 MiB.
fn matcher(pattern: &str) -> Result<RegexMatcher, Failure> {
    const MOST: usize = 10 << 20;
    let mut builder = RegexMatcherBuilder::new();
    builder.size_limit(MOST).dfa_size_limit(MOST);
    let by_line = builder.line_terminator(Some(b'\n')).build(pattern);
    by_line
        .or_else(|_| builder.line_terminator(None).build(pattern))
        .map_err(|e| Failure::Tell(format!("pattern is not a valid regular expression: {e}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::erase;
    use super::super::test::{Stage, call};
    use super::*;

    async fn grep(context: &Context, input: Value) -> Output {
        call(&erase(Grep), input, context).await.unwrap().1
    }

    fn age(stage: &Stage, name: &str, seconds: u64) {
        let file = std::fs::File::options().write(true).open(stage.cwd().join(name)).unwrap();
        let at = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(seconds);
        file.set_modified(at).unwrap();
    }

    #[test]
    fn a_pattern_that_would_fill_the_memory_is_refused() {
        let Err(Failure::Tell(why)) = matcher("(x{1000}){1000}") else { panic!("it was compiled") };
        assert!(why.contains("size limit"), "{why}");
        for pattern in ["fn\\s+\\w+", "\\p{L}{50}", "a\nb"] {
            assert!(matcher(pattern).is_ok(), "{pattern}");
        }
    }

    #[tokio::test]
    async fn lines_are_found() {
        let stage = Stage::new();
        stage.write("a.rs", "fn one() {}\r\nfn two() {}\n");
        stage.write("b/c.txt", "fn three\n");
        stage.write(".hid", "fn four\n");
        stage.write("ignored/x.rs", "fn five\n");
        stage.write(".gitignore", "ignored\n");
        stage.write(".git/config", "fn six\n");
        stage.write(".env", "fn=secret\n");
        stage.write_bytes("bin", b"fn \0 seven\n");
        stage.write_bytes("latin", b"fn caf\xe9\n");
        stage.write("minified.js", format!("{}fn needle {}", "x".repeat(100_000), "y".repeat(100_000)));
        for (n, name) in ["latin", "a.rs", "b/c.txt", ".hid", "minified.js"].iter().enumerate() {
            age(&stage, name, 100 * n as u64);
        }
        let context = stage.context();
        let cwd = stage.cwd().display().to_string();
        let text = grep(&context, json!({"pattern": "^fn"})).await.text;
        assert_eq!(
            text,
            format!(
                "Found 5 matches\n\n{cwd}/latin:\n  Line 1: fn caf\u{fffd}\n\n{cwd}/a.rs:\n  Line 1: fn one() {{}}\n  Line 2: fn two() {{}}\n\n{cwd}/b/c.txt:\n  Line 1: fn three\n\n{cwd}/.hid:\n  Line 1: fn four\n\n(1 file left out, because reading needs permission: .env)"
            )
        );
        let text = grep(&context, json!({"pattern": "needle"})).await.text;
        assert!(text.contains("Line 1: ...xxx") && text.contains("needle") && text.len() < 3_000, "{text}");
        let table = [
            (json!({"pattern": "fn", "include": "*.rs"}), "Found 2 matches"),
            (json!({"pattern": "fn", "include": "b/**"}), "Found 1 match\n"),
            // A file searches that file, not its directory, also when it is ignored or protected.
            (json!({"pattern": "fn", "path": "a.rs"}), "Found 2 matches"),
            (json!({"pattern": "fn", "path": ".env"}), "Found 1 match\n"),
            (json!({"pattern": "fn", "path": "ignored/x.rs"}), "Found 1 match\n"),
            (json!({"pattern": "(?i)FN (ONE|two)", "path": "."}), "Found 2 matches"),
            (json!({"pattern": "nothing like it"}), "No files found"),
        ];
        for (input, expected) in table {
            let text = grep(&context, input.clone()).await.text;
            assert!(format!("{text}\n").starts_with(expected), "{input}: {text}");
        }
        let failure = call(&erase(Grep), json!({"pattern": "("}), &context).await.unwrap_err().to_string();
        assert!(failure.contains("not a valid regular expression"), "{failure}");
        let (needs, _) = call(&erase(Grep), json!({"pattern": "x", "path": ".env"}), &context).await.unwrap();
        let asked: Vec<_> = needs.iter().map(|need| (need.permission.as_str(), need.patterns[0].as_str())).collect();
        assert_eq!(asked, [("read", ".env"), ("grep", "x")]);
    }

    #[tokio::test]
    async fn the_newest_hundred_are_shown() {
        let stage = Stage::new();
        for n in 0..40 {
            stage.write(&format!("f{n:02}"), "hit\n".repeat(5));
            age(&stage, &format!("f{n:02}"), 1000 - n);
        }
        let context = stage.context();
        let output = grep(&context, json!({"pattern": "hit"})).await;
        assert!(output.text.starts_with("Found 100 matches (more matches available)\n"));
        assert!(output.text.ends_with("(Results truncated. Consider using a more specific path or pattern.)"));
        assert_eq!(output.text.matches("hit").count(), 100);
        let files: Vec<&str> =
            output.text.lines().filter_map(|line| line.strip_suffix(':')?.rsplit('/').next()).collect();
        let expected: Vec<String> = (20..40).rev().map(|n| format!("f{n:02}")).collect();
        assert_eq!(files, expected);
        let hundred = grep(&context, json!({"pattern": "hit", "include": "f[01]*"})).await;
        assert!(hundred.text.starts_with("Found 100 matches\n"), "{}", hundred.text);
    }

    #[tokio::test]
    async fn a_cancelled_search_stops() {
        let stage = Stage::new();
        stage.write("a", "x\n");
        let context = stage.context();
        let prepared = erase(Grep).prepare(json!({"pattern": "x"}), &context).await.unwrap();
        context.cancelled.cancel();
        assert!(matches!((prepared.run)(context).await, Err(Failure::Cancelled)));
    }
}
