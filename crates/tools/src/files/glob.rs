//! `glob`: finds files by name, the newest first; files that git ignores are left out.
//!
//! Limits: 100 results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::aliases::{Aliases, SEARCH_DIRECTORY_FIELDS};
use crate::files::loaded_instructions::TouchedPath;
use crate::files::path::{Access, PathKind, ResolvedPath, resolve};
use crate::files::rooted_fs::SearchRoot;
use crate::files::search::{
    MAX_SEARCH_RESULTS, Rank, compile_globs, resolve_or_suggest, run_blocking,
    suggest_similar_paths, visit_files,
};
use crate::{CallDescription, Failure, PermissionKey, Tool, ToolContext, ToolOutput};
use base::lock::{into_inner, lock};
use base::text;
use events::{Location, ToolKind};
use permission::search_filter::{Omitted, SearchFilter};
use permission::{AccessRequest, locate};

/// The maximum number of directories whose files are counted if not all files are shown.
const MAX_COUNTED_DIRECTORIES: usize = 20;

/// The maximum number of alternatives that `{a,b}` may expand to.
const MAX_ALTERNATIVES: usize = 64;

#[derive(Default)]
pub struct GlobTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// For example **/*.rs or src/**/*.{ts,tsx}
    pub pattern: String,
    /// Directory
    pub path: Option<String>,
}

/// A checked search.
#[derive(Debug)]
pub struct Ready {
    /// The directory that the input names.
    base: ResolvedPath,
    /// The directories to search, each with the pattern of the paths below it.
    roots: Vec<(ResolvedPath, String)>,
    /// The pattern as the input has it.
    pattern: String,
}

/// The results of a search.
#[derive(Debug, Default)]
struct NewestPaths {
    /// The newest files, at most [`MAX_SEARCH_RESULTS`].
    newest: BTreeSet<Rank>,
    /// The number of all files.
    count: usize,
    /// The number of all files, by directory directly below the searched one.
    by_directory: BTreeMap<PathBuf, usize>,
}

impl Tool for GlobTool {
    const NAME: &'static str = "glob";
    const DESCRIPTION: &'static str = include_str!("glob.md");
    const KIND: ToolKind = ToolKind::Search;
    const CONCURRENT: bool = true;
    const PERMISSION_KEY: Option<PermissionKey> = Some(PermissionKey::reading(
        "Finding files by name; patterns are globs.",
    ));
    const ALIASES: Aliases = Aliases {
        tool_names: &["findfiles", "filesearch", "globsearch", "globfiles"],
        field_values: &[],
        fields: &[
            ("pattern", &["glob", "globpattern", "query", "filepattern"]),
            ("path", SEARCH_DIRECTORY_FIELDS),
        ],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        let path = context.absolute(input.path.as_deref().unwrap_or("."));
        let dir = match context.relative(&path) {
            here if here == "." => String::new(),
            dir => format!(" in {dir}"),
        };
        CallDescription {
            title: text::title(&format!("Find `{}`{dir}", input.pattern)),
            locations: vec![Location {
                path: base::worktree::normal(&path),
                line: None,
            }],
        }
    }

    async fn prepare(
        &self,
        input: Input,
        context: &ToolContext,
    ) -> Result<(Vec<AccessRequest>, Ready), Failure> {
        let base =
            resolve_or_suggest(context, input.path.as_deref().unwrap_or("."), Access::List).await?;
        if base.real.is_inside {
            check_not_file(&base)?;
        }
        let mut roots: Vec<(ResolvedPath, String)> = Vec::new();
        if may_leave_base(&input.pattern) || follows_symlink(&input.pattern, &base, context) {
            // Every alternative may lead to another directory, and is judged separately.
            for pattern in alternatives(&input.pattern) {
                let (dir, rest) = split(&pattern);
                let dir = if dir.starts_with(['/', '~']) {
                    dir
                } else {
                    format!("{}/{dir}", base.path.display())
                };
                let resolved_path = resolve(context, &dir, Access::List)?;
                let fixed = resolved_path.real.kind == PathKind::File && rest.is_empty();
                match (
                    resolved_path.real.path.parent(),
                    resolved_path
                        .real
                        .path
                        .file_name()
                        .and_then(|name| name.to_str()),
                ) {
                    (Some(parent), Some(name)) if fixed => {
                        let resolved_path =
                            resolve(context, &parent.display().to_string(), Access::List)?;
                        roots.push((resolved_path, format!("/{}", globset::escape(name))));
                    }
                    _ => roots.push((resolved_path, rest)),
                }
            }
        } else {
            compile_globs(&[&input.pattern])?;
            roots.push((base.clone(), input.pattern.clone()));
        }
        let mut requests: Vec<AccessRequest> = Vec::new();
        for (resolved_path, pattern) in &roots {
            compile_globs(&[pattern])?;
            let mut new = resolved_path.real.requests(Access::List);
            new.retain(|request| {
                !requests
                    .iter()
                    .any(|seen| seen.patterns == request.patterns)
            });
            requests.extend(new);
        }
        let mut own = AccessRequest::new("glob", &*input.pattern).always("*");
        own.metadata
            .insert("pattern".into(), Value::String(input.pattern.clone()));
        own.metadata.insert(
            "path".into(),
            Value::String(base.real.path.display().to_string()),
        );
        requests.push(own);
        Ok((
            requests,
            Ready {
                base,
                roots,
                pattern: input.pattern,
            },
        ))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        check_not_file(&ready.base)?;
        if ready.base.real.is_absent() {
            let instead = suggest_similar_paths(&context, &ready.base.real.path).await;
            return Err(Failure::ForModel(format!(
                "Directory not found: {}. Nothing was searched.{instead}",
                ready.base.shown
            )));
        }
        for (root_path, _) in &ready.roots {
            root_path.check_unchanged()?;
        }
        let filter = SearchFilter::new(&context.policy);
        let cancelled = context.cancelled.clone();
        let Ready {
            base,
            roots,
            pattern,
        } = ready;
        let shown = base.shown.clone();
        let done = run_blocking(&context, move || {
            let found: Mutex<NewestPaths> = Mutex::default();
            let mut left_out = Omitted::default();
            for (root_path, pattern) in &roots {
                let Ok(set) = compile_globs(&[pattern]) else {
                    continue;
                };
                if root_path.real.kind != PathKind::Directory {
                    continue;
                }
                let root = SearchRoot::open(&root_path.real.path)?;
                let fits = |path: &Path| {
                    path.strip_prefix(&root_path.real.path)
                        .is_ok_and(|rest| set.is_match(rest))
                };
                let left = visit_files(&root_path.real.path, &cancelled, fits, &filter, || {
                    let mut look = root.reader();
                    let found = &found;
                    move |path: &Path| {
                        let Some(rank) = Rank::of(path, &mut look) else {
                            return;
                        };
                        let rank = Rank {
                            path: below_named(path, root_path),
                            ..rank
                        };
                        // The directory directly below the searched one.
                        let rest = path.strip_prefix(&root_path.real.path).unwrap_or(path);
                        let next = rest.parent().and_then(|dir| dir.iter().next());
                        let folder = next.map_or_else(
                            || root_path.path.clone(),
                            |next| root_path.path.join(next),
                        );
                        // A leaf lock: nothing is called while it is held.
                        lock(found).add(rank, folder);
                    }
                });
                left_out.merge(left);
            }
            Ok((into_inner(found), left_out, base))
        })
        .await?;
        let (found, left_out, base) = done.map_err(|e: crate::files::disk::Error| {
            Failure::ForModel(format!("{shown}: {e}. Nothing was searched."))
        })?;
        let truncated = found.count > MAX_SEARCH_RESULTS;
        let mut text = String::new();
        if found.count == 0 {
            let dir = if shown == "." {
                String::new()
            } else {
                format!(" in {shown}")
            };
            text = format!(
                "No files match `{}`{dir}. Files that git ignores are left out.",
                text::title(&pattern)
            );
        }
        let files: Vec<String> = found
            .newest
            .iter()
            .take(MAX_SEARCH_RESULTS)
            .map(|rank| shown_path(&rank.path))
            .collect();
        text.push_str(&files.join("\n"));
        let touched = found.newest.iter().take(MAX_SEARCH_RESULTS);
        let touched = touched.map(|rank| TouchedPath::File(rank.path.clone()));
        let touched = touched.collect();
        if truncated {
            text.push_str(&format!(
                "\n\n(The {MAX_SEARCH_RESULTS} newest of {} files. By directory:",
                found.count
            ));
            for (folder, count) in found.by_directory.iter().take(MAX_COUNTED_DIRECTORIES) {
                text.push_str(&format!("\n  {}: {count}", shown_path(folder)));
            }
            if found.by_directory.len() > MAX_COUNTED_DIRECTORIES {
                text.push_str(&format!(
                    "\n  and {} more directories",
                    found.by_directory.len() - MAX_COUNTED_DIRECTORIES
                ));
            }
            text.push_str("\nUse a more specific path or pattern.)");
        }
        text.push_str(&left_out.to_message());
        let metadata = Map::from_iter([
            ("count".to_owned(), Value::from(files.len())),
            ("truncated".to_owned(), Value::Bool(truncated)),
        ]);
        let locations = vec![Location {
            path: base.path,
            line: None,
        }];
        Ok(ToolOutput {
            metadata,
            locations,
            touched,
            ..ToolOutput::text(text)
        })
    }
}

/// Returns a path as shown to the model.
fn shown_path(path: &Path) -> String {
    text::escaped(&path.display().to_string())
}

impl NewestPaths {
    /// Adds a file, which is counted in the directory `folder`.
    fn add(&mut self, rank: Rank, folder: PathBuf) {
        // Several patterns may find the same file. That is only detected for the files in `newest`.
        if !self.newest.insert(rank) {
            return;
        }
        self.count += 1;
        *self.by_directory.entry(folder).or_default() += 1;
        if self.newest.len() > MAX_SEARCH_RESULTS {
            self.newest.pop_last();
        }
    }
}

/// Checks that the path is not a file. For a path outside the project this happens after it may be
/// read, so that nothing is revealed about it before.
fn check_not_file(base: &ResolvedPath) -> Result<(), Failure> {
    if matches!(base.real.kind, PathKind::File | PathKind::Special) {
        return Err(Failure::ForModel(format!(
            "{} is a file; path must be a directory. Open it with read, or search it with grep.",
            base.shown
        )));
    }
    Ok(())
}

/// Returns a path that was found below a directory, beginning with the directory as the call named
/// it, before symlinks were resolved.
pub(crate) fn below_named(path: &Path, resolved_path: &ResolvedPath) -> PathBuf {
    match path.strip_prefix(&resolved_path.real.path) {
        Ok(rest) if rest.as_os_str().is_empty() => resolved_path.path.clone(),
        Ok(rest) => resolved_path.path.join(rest),
        Err(_) => path.into(),
    }
}

/// Returns whether a pattern may match paths outside its base.
fn may_leave_base(pattern: &str) -> bool {
    pattern
        .split(['{', ','])
        .any(|part| part.starts_with(['/', '~']))
        || pattern.split(['/', '{', '}', ',']).any(|part| part == "..")
}

/// Returns whether the fixed beginning of a pattern leads through a symlink.
fn follows_symlink(pattern: &str, base: &ResolvedPath, context: &ToolContext) -> bool {
    alternatives(pattern)
        .iter()
        .map(|one| split(one).0)
        .filter(|dir| !dir.is_empty())
        .any(|dir| {
            let dir = base.real.path.join(dir).display().to_string();
            locate::locate(&dir, &context.policy.context).is_ok_and(|found| found.is_linked)
        })
}

/// Expands the alternatives `{a,b}` of a pattern, up to [`MAX_ALTERNATIVES`].
fn alternatives(pattern: &str) -> Vec<String> {
    let mut open = vec![pattern.to_owned()];
    let mut done = Vec::new();
    while let Some(pattern) = open.pop() {
        let Some((before, options, after)) = braces(&pattern) else {
            done.push(pattern);
            continue;
        };
        if open.len() + done.len() + options.len() > MAX_ALTERNATIVES {
            done.push(pattern.clone());
            continue;
        }
        open.extend(
            options
                .iter()
                .rev()
                .map(|option| format!("{before}{option}{after}")),
        );
    }
    done
}

/// Finds the first braces of a pattern. Returns the text before, the options, and the text after.
fn braces(pattern: &str) -> Option<(&str, Vec<&str>, &str)> {
    let start = pattern.find('{')?;
    let mut depth = 0;
    let mut options = Vec::new();
    let mut from = start + 1;
    for (at, c) in pattern[start..]
        .char_indices()
        .map(|(at, c)| (start + at, c))
    {
        match c {
            '{' => depth += 1,
            ',' if depth == 1 => {
                options.push(&pattern[from..at]);
                from = at + 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    options.push(&pattern[from..at]);
                    return Some((&pattern[..start], options, &pattern[at + 1..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits a pattern into the leading directory without wildcards, and the rest, which begins with a
/// slash unless it is empty.
fn split(pattern: &str) -> (String, String) {
    let parts: Vec<&str> = pattern.split('/').collect();
    let fixed = parts
        .iter()
        .take_while(|part| !part.contains(['*', '?', '[', '{']))
        .count();
    let dir = parts[..fixed].join("/");
    let dir = if fixed > 0 && dir.is_empty() {
        "/".to_owned()
    } else {
        dir
    };
    let rest = parts[fixed..].join("/");
    // The leading slash ties the rest to that directory; otherwise it would match names at any
    // depth.
    (
        dir,
        if rest.is_empty() {
            rest
        } else {
            format!("/{rest}")
        },
    )
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::*;
    use crate::erase;
    use crate::test::{TestProject, call};

    fn touch(fixture: &TestProject, name: &str, seconds_ago: u64) {
        fixture.write(name, "x");
        #[expect(
            clippy::disallowed_methods,
            reason = "a file's age is told in real time"
        )]
        let at = SystemTime::now() - Duration::from_secs(seconds_ago);
        std::fs::File::options()
            .write(true)
            .open(fixture.cwd().join(name))
            .unwrap()
            .set_modified(at)
            .unwrap();
    }

    fn names(fixture: &TestProject, text: &str) -> Vec<String> {
        let cwd = format!("{}/", fixture.cwd().display());
        text.lines()
            .take_while(|line| !line.is_empty())
            .map(|line| line.replace(&cwd, ""))
            .collect()
    }

    #[tokio::test]
    async fn files_are_found_newest_first() {
        let fixture = TestProject::new();
        for (name, age) in [
            ("b.rs", 10),
            ("a.rs", 10),
            ("src/new.rs", 1),
            (".hidden/h.rs", 5),
            ("target/t.rs", 1),
            (".git/g.rs", 1),
            ("x.log", 1),
        ] {
            touch(&fixture, name, age);
        }
        fixture.write(".gitignore", "target\n*.log\n");
        fixture.write(".env", "");
        fixture.write(".env.example", "");
        let context = fixture.context();
        let same_time = std::fs::metadata(fixture.cwd().join("a.rs"))
            .unwrap()
            .modified()
            .unwrap();
        std::fs::File::options()
            .write(true)
            .open(fixture.cwd().join("b.rs"))
            .unwrap()
            .set_modified(same_time)
            .unwrap();
        let table = [
            (
                "**/*.rs",
                vec!["src/new.rs", ".hidden/h.rs", "a.rs", "b.rs"],
            ),
            ("*.rs", vec!["src/new.rs", ".hidden/h.rs", "a.rs", "b.rs"]),
            ("src/*", vec!["src/new.rs"]),
            (
                "*.log",
                vec!["No files match `*.log`. Files that git ignores are left out."],
            ),
            ("{a,b}.rs", vec!["a.rs", "b.rs"]),
            (".env*", vec![".env.example"]),
        ];
        for (pattern, expected) in table {
            let (requests, output) = call(&erase(GlobTool), json!({"pattern": pattern}), &context)
                .await
                .unwrap();
            assert_eq!(names(&fixture, &output.text), expected, "{pattern}");
            assert_eq!(requests.len(), 1);
        }
        let (_, output) = call(&erase(GlobTool), json!({"pattern": ".env*"}), &context)
            .await
            .unwrap();
        assert!(
            output
                .text
                .ends_with("(1 file left out, because reading needs permission: .env)"),
            "{}",
            output.text
        );
        for n in 0..150 {
            fixture.write(&format!("many/{n}.txt"), "");
        }
        let (_, output) = call(&erase(GlobTool), json!({"pattern": "many/*.txt"}), &context)
            .await
            .unwrap();
        assert_eq!(names(&fixture, &output.text).len(), 100);
        assert!(
            output.text.contains("(The 100 newest of 150 files.")
                && output.metadata["truncated"] == true
        );
        assert!(
            output.text.contains("\n  ") && output.text.contains("/many: 150\n"),
            "{}",
            output.text
        );
        let failure = call(
            &erase(GlobTool),
            json!({"pattern": "*", "path": "hidden"}),
            &context,
        )
        .await
        .unwrap_err()
        .to_string();
        assert!(
            failure.starts_with("Directory not found: hidden. Nothing was searched."),
            "{failure}"
        );
        let failure = call(
            &erase(GlobTool),
            json!({"pattern": "*", "path": "a.rs"}),
            &context,
        )
        .await
        .unwrap_err()
        .to_string();
        assert!(
            failure.starts_with("a.rs is a file; path must be a directory."),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn pattern_that_leads_outside_needs_permission() {
        let fixture = TestProject::new();
        fixture.write("src/a.txt", "");
        std::fs::write(fixture.outside().join("o.txt"), "").unwrap();
        let context = fixture.context();
        let out = format!("{}/*", fixture.outside().display());
        let out_name = fixture
            .outside()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let parent = format!("{}/*", fixture.cwd().parent().unwrap().display());
        let absolute = format!("{}/*.txt", fixture.outside().display());
        let inside = format!("{}/src/*.txt", fixture.cwd().display());
        let exact = format!("{}/o.txt", fixture.outside().display());
        let table = [
            ("../**/*.txt".to_owned(), vec![parent.as_str()], 2),
            (format!("{{src,../{out_name}}}/*.txt"), vec![&out], 2),
            (absolute, vec![&out], 1),
            (exact, vec![&out], 1),
            (inside, vec![], 1),
            (format!("src/../../{out_name}/*"), vec![&out], 1),
        ];
        for (pattern, outside, found) in table {
            let (requests, output) = call(&erase(GlobTool), json!({"pattern": pattern}), &context)
                .await
                .unwrap();
            let asked: Vec<&str> = requests
                .iter()
                .filter(|request| request.permission == "external_directory")
                .map(|request| request.patterns[0].as_str())
                .collect();
            assert_eq!(asked, outside, "{pattern}");
            assert_eq!(
                output.metadata["count"], found,
                "{pattern}: {}",
                output.text
            );
        }
    }

    #[test]
    fn alternatives_are_split_into_directory_and_rest() {
        assert_eq!(alternatives("{a,b{c,d}}/x"), ["a/x", "bc/x", "bd/x"]);
        assert_eq!(alternatives("{a"), ["{a"]);
        assert!(alternatives(&"{a,b,c,d}".repeat(20)).len() <= MAX_ALTERNATIVES);
        assert_eq!(split("/a/b/*.c"), ("/a/b".into(), "/*.c".into()));
        assert_eq!(split("/*"), ("/".into(), "/*".into()));
        assert_eq!(split("../x"), ("../x".into(), String::new()));
        for (pattern, expected) in [
            ("a/b", false),
            ("..a/b", false),
            ("../b", true),
            ("{src,../out}/*", true),
            ("/a", true),
            ("{a,/b}", true),
            ("~/x", true),
            ("a/~x", false),
        ] {
            assert_eq!(may_leave_base(pattern), expected, "{pattern}");
        }
    }
}
