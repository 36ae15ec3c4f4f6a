//! `list`: the files below a directory as a tree, level by level as far as they fit, with the
//! number of files below each directory that is not shown completely.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::aliases::{Aliases, FOLDER};
use super::loaded_instructions::TouchedPath;
use super::path::{Access, PathKind, ResolvedPath};
use super::rooted_fs::SearchRoot;
use super::search::{LIMIT, blocking, elsewhere, globs, look_up, walker};
use super::{Availability, CallDescription, Failure, Tool, ToolContext, ToolOutput};
use base::text;
use events::{Location, ToolKind};
use permission::search_filter::{Omitted, SearchFilter};
use permission::{AccessRequest, Action};

/// The maximum number of files that are counted; beyond it the output notes that there are more.
const MAX_COUNTED_FILES: usize = 200_000;

#[derive(Default)]
pub struct ListTool;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    pub path: Option<String>,
    /// Globs to leave out
    pub ignore: Option<Vec<String>>,
}

#[derive(Debug)]
pub struct Ready {
    place: ResolvedPath,
    without: globset::GlobSet,
}

impl Tool for ListTool {
    const NAME: &'static str = "list";
    const DESCRIPTION: &'static str = include_str!("list.md");
    const KIND: ToolKind = ToolKind::Search;
    const CONCURRENT: bool = true;
    const OFFER: Availability = Availability::Unlisted;
    const ALIASES: Aliases = Aliases {
        also: &["ls", "listdir", "listdirectory", "listfiles", "dir"],
        says: &[],
        fields: &[("path", FOLDER)],
    };
    type Input = Input;
    type Ready = Ready;

    fn describe(input: &Input, context: &ToolContext) -> CallDescription {
        let path = context.absolute(input.path.as_deref().unwrap_or("."));
        CallDescription {
            title: text::title(&format!("List {}", context.relative(&path))),
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
        let place = look_up(context, input.path.as_deref().unwrap_or("."), Access::List).await?;
        if place.real.inside {
            directory(&place, context).await?;
        }
        let ignore: Vec<&str> = input
            .ignore
            .iter()
            .flatten()
            .map(|glob| glob.trim_end_matches('/'))
            .collect();
        let without = globs(&ignore)?;
        let own = AccessRequest::new("list", &*place.real.relative).always(&*place.real.relative);
        let needs = place.needs(Access::List, own);
        Ok((needs, Ready { place, without }))
    }

    async fn run(&self, ready: Ready, context: ToolContext) -> Result<ToolOutput, Failure> {
        ready.place.still()?;
        directory(&ready.place, &context).await?;
        let sight = SearchFilter::new(&context.policy);
        let cancelled = context.cancelled.clone();
        let Ready { place, without } = ready;
        let root = place.real.path.clone();
        let shown = place.path.clone();
        let named = place.shown.clone();
        let done = blocking(&context, move || {
            let mut look = SearchRoot::open(&root)?.reader();
            let root_of_filter = root.clone();
            let mut walk = walker(&root);
            walk.filter_entry(move |entry| {
                let rest = entry
                    .path()
                    .strip_prefix(&root_of_filter)
                    .unwrap_or(entry.path());
                entry.depth() == 0 || entry.file_name() != ".git" && !without.is_match(rest)
            });
            walk.sort_by_file_name(Ord::cmp);
            let mut tree = DirectoryTree::default();
            let mut more = false;
            let mut denied = Omitted::default();
            for entry in walk.build().flatten() {
                let rest = entry.path().strip_prefix(&root).unwrap_or(entry.path());
                if cancelled.is_cancelled()
                    || entry.depth() == 0
                    || entry.file_type().is_some_and(|kind| kind.is_dir())
                {
                    continue;
                }
                if !look.finds(entry.path()) {
                    continue;
                }
                if sight.judge(entry.path()) == Action::Deny {
                    denied.add(Action::Deny, String::new);
                    continue;
                }
                if tree.count == MAX_COUNTED_FILES {
                    more = true;
                    break;
                }
                tree.add(rest);
            }
            Ok((tree, more, denied))
        })
        .await?;
        let (mut tree, more, denied) = done.map_err(|e: super::disk::Error| {
            Failure::ForModel(format!("{named}: {e}. Nothing was listed."))
        })?;
        let whole = tree.open(LIMIT) && !more;
        let mut text = format!(
            "{}/\n",
            text::escaped(shown.display().to_string().trim_end_matches('/'))
        );
        tree.print(1, whole, &mut text);
        if tree.count == 0 {
            text.push_str("(no files)\n");
        }
        if !whole {
            let least = if more { "more than " } else { "" };
            text.push_str(&format!(
                "\n({least}{} in all. A number counts the files below a directory that is not shown: list it, or use glob.)\n",
                text::count(tree.count, "file")
            ));
        }
        text.push_str(&denied.words());
        let metadata = Map::from_iter([
            ("count".to_owned(), Value::from(tree.count)),
            ("truncated".to_owned(), Value::Bool(!whole)),
        ]);
        let touched = vec![TouchedPath::Directory(shown.clone())];
        let locations = vec![Location {
            path: shown,
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

/// Checks that the path is a directory. Nothing is revealed about a path outside before it may be
/// read.
async fn directory(place: &ResolvedPath, context: &ToolContext) -> Result<(), Failure> {
    match place.real.found {
        PathKind::Directory => Ok(()),
        PathKind::File | PathKind::Special => Err(Failure::ForModel(format!(
            "{} is a file, not a directory. Look at it with read.",
            place.shown
        ))),
        PathKind::Missing | PathKind::Nowhere => {
            let instead = elsewhere(context, &place.real.path).await;
            Err(Failure::ForModel(format!(
                "Directory not found: {}{instead}",
                place.shown
            )))
        }
    }
}

#[derive(Debug, Default)]
struct DirectoryTree {
    dirs: BTreeMap<String, DirectoryTree>,
    files: Vec<String>,
    count: usize,
    own: usize,
    /// The numbers of its directories and of its files that are shown.
    open: usize,
    shown: usize,
}

impl DirectoryTree {
    fn add(&mut self, path: &Path) {
        let name = |part: &std::ffi::OsStr| text::escaped(&part.to_string_lossy());
        let mut at = self;
        at.count += 1;
        for dir in path.parent().into_iter().flat_map(Path::iter) {
            at = at.dirs.entry(name(dir)).or_default();
            at.count += 1;
        }
        at.own += 1;
        // More files are never shown.
        if at.files.len() < LIMIT {
            at.files.extend(path.file_name().map(name));
        }
    }

    /// Opens directories level by level, the smallest of each level first, while their lines fit
    /// into `room`. A directory that is too large shows only its subdirectories. Returns whether
    /// everything is shown.
    fn open(&mut self, mut room: usize) -> bool {
        let mut whole = true;
        let mut level = vec![self];
        let mut top = true;
        while !level.is_empty() {
            level.sort_by_key(|tree| tree.dirs.len() + tree.own);
            let mut next = Vec::new();
            for tree in level {
                let dirs = tree.dirs.len();
                let files = tree.own;
                let fits = dirs + files <= room;
                // One line is for the number of files that are not shown.
                let some = dirs > 0 && dirs < room;
                whole &= fits;
                if !(fits || some || top) {
                    continue;
                }
                tree.open = dirs.min(room);
                room -= tree.open;
                // The requested directory always shows as much as fits.
                tree.shown = match (fits, top) {
                    (true, _) => files,
                    (false, true) => files.min(room.saturating_sub(1)),
                    (false, false) => 0,
                };
                room = room.saturating_sub(tree.shown + usize::from(!fits));
                next.extend(tree.dirs.values_mut().take(tree.open));
            }
            top = false;
            level = next;
        }
        whole
    }

    fn print(&self, depth: usize, whole: bool, out: &mut String) {
        let indent = "  ".repeat(depth);
        for (name, dir) in self.dirs.iter().take(self.open) {
            let count = if whole {
                String::new()
            } else {
                format!(" ({})", dir.count)
            };
            out.push_str(&format!("{indent}{name}/{count}\n"));
            if dir.open + dir.shown > 0 {
                dir.print(depth + 1, whole, out);
            }
        }
        if self.open < self.dirs.len() {
            out.push_str(&format!(
                "{indent}({} more directories)\n",
                self.dirs.len() - self.open
            ));
        }
        for name in self.files.iter().take(self.shown) {
            out.push_str(&format!("{indent}{name}\n"));
        }
        if self.shown < self.own {
            let more = if self.shown > 0 { "more " } else { "" };
            out.push_str(&format!(
                "{indent}({} {more}files)\n",
                self.own - self.shown
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::erase;
    use super::super::test::{TestProject, call};
    use super::*;

    #[tokio::test]
    async fn large_directory_does_not_hide_others() {
        let stage = TestProject::new();
        for n in 0..150 {
            stage.write(&format!("src/doc/{n}.md"), "");
            stage.write(&format!("crates/big/{n}.rs"), "");
        }
        for name in [
            "src/runtime/mod.rs",
            "src/runtime/task/core.rs",
            "src/lib.rs",
            "tests/one.rs",
            "Cargo.toml",
        ] {
            stage.write(name, "");
        }
        let (_, output) = call(&erase(ListTool), json!({}), &stage.context())
            .await
            .unwrap();
        let (_, text) = output.text.split_once('\n').unwrap();
        let expected = "  crates/ (150)
    big/ (150)
  src/ (153)
    doc/ (150)
    runtime/ (2)
      task/ (1)
        core.rs
      mod.rs
    lib.rs
  tests/ (1)
    one.rs
  Cargo.toml

(305 files in all. A number counts the files below a directory that is not shown: list it, or use glob.)
";
        assert_eq!(text, expected);
        // The requested directory shows as much as fits.
        let (_, output) = call(
            &erase(ListTool),
            json!({"path": "src/doc"}),
            &stage.context(),
        )
        .await
        .unwrap();
        assert_eq!(
            output
                .text
                .lines()
                .filter(|line| line.ends_with(".md"))
                .count(),
            99
        );
        assert!(
            output.text.contains("\n  (51 more files)\n"),
            "{}",
            output.text
        );
        for n in 0..130 {
            stage.write(&format!("many/{n:03}/x"), "");
        }
        let (_, output) = call(&erase(ListTool), json!({"path": "many"}), &stage.context())
            .await
            .unwrap();
        assert!(
            output
                .text
                .contains("\n  099/ (1)\n  (30 more directories)\n"),
            "{}",
            output.text
        );
        let failure = call(
            &erase(ListTool),
            json!({"path": "runtime"}),
            &stage.context(),
        )
        .await
        .unwrap_err()
        .to_string();
        assert_eq!(
            failure,
            "Directory not found: runtime\n\nDid you mean one of these?\nsrc/runtime"
        );
    }

    #[tokio::test]
    async fn directory_is_shown_as_a_tree() {
        let stage = TestProject::new();
        for name in [
            "b.txt",
            "a/y.rs",
            "a/x/deep",
            "dist/out",
            "node_modules/m/i.js",
            ".git/HEAD",
            ".hid",
            "odd\nname",
        ] {
            stage.write(name, "");
        }
        stage.write(".gitignore", "node_modules\n");
        let context = stage.context();
        let (needs, output) = call(&erase(ListTool), json!({"ignore": ["dist/"]}), &context)
            .await
            .unwrap();
        let cwd = stage.cwd().display().to_string();
        assert_eq!(
            output.text,
            format!(
                "{cwd}/\n  a/\n    x/\n      deep\n    y.rs\n  .gitignore\n  .hid\n  b.txt\n  odd\\nname\n"
            )
        );
        assert_eq!(
            (needs[0].permission.as_str(), needs[0].patterns[0].as_str()),
            ("list", ".")
        );
        for n in 0..120 {
            stage.write(&format!("many/{n}"), "");
        }
        let (_, output) = call(&erase(ListTool), json!({"path": "many"}), &context)
            .await
            .unwrap();
        assert!(
            output.text.contains("\n  (21 more files)\n"),
            "{}",
            output.text
        );
        assert!(output.text.contains("(120 files in all.") && output.metadata["count"] == 120);
        for (path, why) in [("b.txt", "is a file"), ("none", "not found")] {
            let failure = call(&erase(ListTool), json!({"path": path}), &context)
                .await
                .unwrap_err()
                .to_string();
            assert!(failure.contains(why), "{failure}");
        }
    }
}
