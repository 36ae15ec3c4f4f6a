//! Reading settings from disk: small regular files only, nothing that could block, and a note of
//! everything looked at, absent things included, so that a change is noticed without reading again.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::jsonc::LineIndex;
use super::node::{ConfigOrigin, Layer, SourceLocation};
use super::problem::{Problem, ProblemCode};
use base::environment::Environment;
use base::worktree::{Worktree, normal};
use permission::protected;

/// The largest file that is read.
pub const LARGEST: u64 = 1 << 20;
/// How many files of one folder are read.
const MOST: usize = 2_000;
/// How deep folders are looked into.
const DEEPEST: usize = 16;

/// What a file looked like from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PathStamp {
    changed: Option<(i64, i64)>,
    size: u64,
    inode: u64,
}

/// Everything that was looked at, and what it looked like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFingerprint(BTreeMap<PathBuf, Option<PathStamp>>);

impl ConfigFingerprint {
    /// Whether anything looks different by now. Costs one look at each file's metadata.
    pub fn is_stale(&self) -> bool {
        self.0.iter().any(|(path, stamp)| std::fs::metadata(path).ok().map(|meta| stamp_of(&meta)) != *stamp)
    }

    /// Notes what a path looks like. None where there is nothing.
    ///
    /// # Errors
    /// Where it cannot be looked at, or is a link to nothing.
    pub fn look(&mut self, path: &Path) -> io::Result<Option<Metadata>> {
        let found = std::fs::metadata(path);
        self.0.insert(path.to_path_buf(), found.as_ref().ok().map(stamp_of));
        match found {
            Ok(meta) => Ok(Some(meta)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                match std::fs::symlink_metadata(path) {
                    Ok(_) => {
                        Err(io::Error::new(io::ErrorKind::NotFound, "it is a link to something that does not exist"))
                    }
                    Err(_) => Ok(None),
                }
            }
            Err(e) => Err(e),
        }
    }

    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

fn stamp_of(meta: &Metadata) -> PathStamp {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        PathStamp { changed: Some((meta.mtime(), meta.mtime_nsec())), size: meta.len(), inode: meta.ino() }
    }
    #[cfg(not(unix))]
    {
        let since = meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let changed = since.map(|d| (i64::try_from(d.as_secs()).unwrap_or(0), i64::from(d.subsec_nanos())));
        PathStamp { changed, size: meta.len(), inode: 0 }
    }
}

pub struct ConfigReader<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) worktree: &'a Worktree,
    pub seen: ConfigFingerprint,
    pub problems: Vec<Problem>,
    /// What a project's settings are filled in with.
    pub(crate) uses: Vec<ExternalValue>,
    /// Variables that an organisation's settings may mention: they came with the login to it.
    pub(crate) tokens: Vec<(String, String)>,
}

/// A key or value of a project's settings that holds something from outside the project, or from a file of the
/// project's that is not for everybody to read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExternalValue {
    pub(crate) at: SourceLocation,
    pub(crate) key: String,
    /// `{env:NAME}` or `{file:path}`.
    pub(crate) what: String,
    /// The file, as it was written and as it was found, where it lies in the project: then it counts only where
    /// reading it would.
    pub(crate) within: Option<[PathBuf; 2]>,
}

impl<'a> ConfigReader<'a> {
    pub fn new(environment: &'a Environment, worktree: &'a Worktree) -> Self {
        Self {
            environment,
            worktree,
            seen: ConfigFingerprint::default(),
            problems: Vec::new(),
            uses: Vec::new(),
            tokens: Vec::new(),
        }
    }

    /// What to call a file.
    pub fn origin(&self, path: &Path, layer: Layer, project: bool) -> Arc<ConfigOrigin> {
        let name = shown(path, self.worktree, self.environment);
        Arc::new(ConfigOrigin { name, path: Some(path.to_path_buf()), layer, project })
    }

    /// Notes what a path looks like.
    pub fn look(&mut self, path: &Path) -> io::Result<Option<Metadata>> {
        self.seen.look(path)
    }

    /// The text of a file, if it is there. Whatever is wrong with it becomes a problem.
    pub(crate) fn read(&mut self, origin: &Arc<ConfigOrigin>) -> Option<String> {
        let path = origin.path.clone()?;
        match self.try_read(&path, origin.project) {
            Ok(text) => text,
            Err(ReadError { code, at, why, hint }) => {
                let (line, column) = at.unwrap_or((0, 0));
                let place = SourceLocation { origin: origin.clone(), line, column };
                let mut problem = Problem::error(code, &place, "", why);
                problem.hint = hint;
                self.problems.push(problem);
                None
            }
        }
    }

    /// The text of a file; none if it is not there.
    pub(crate) fn try_read(&mut self, path: &Path, project: bool) -> Result<Option<String>, ReadError> {
        let Some(meta) = self.look(path).map_err(|e| ReadError::because(&e))? else { return Ok(None) };
        if !meta.is_file() {
            let what = if meta.is_dir() { "a directory" } else { "a pipe or a device" };
            return Err(ReadError::new(ProblemCode::Unreadable, format!("expected a file, found {what}")));
        }
        if meta.len() > LARGEST {
            let size = meta.len().div_ceil(1 << 20);
            return Err(ReadError::new(
                ProblemCode::TooMuch,
                format!("this file has {size} MiB; at most 1 MiB is read"),
            )
            .hint("split it, or remove it"));
        }
        if project && let Some(outside) = self.leads_outside(path) {
            return Err(ReadError::new(
                ProblemCode::Link,
                format!("this link leads out of the project, to {}; it is not followed", outside.display()),
            )
            .hint("copy the file into the project, or put its settings into your own configuration"));
        }
        // What stands in settings reaches models, where nobody is asked about reading it.
        if project && let Some(secret) = leads_to_a_secret(path) {
            let secret = shown(&secret, self.worktree, self.environment);
            let text = format!("this link leads to {secret}, which may hold keys or passwords; it is not followed");
            return Err(ReadError::new(ProblemCode::Link, text).hint("put a file there instead of a link"));
        }
        let bytes = std::fs::read(path).map_err(|e| ReadError::because(&e))?;
        String::from_utf8(bytes).map(Some).map_err(|e| {
            let good = e.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(e.as_bytes().get(..good).unwrap_or_default()).into_owned();
            let at = LineIndex::new(&text).at(good);
            ReadError {
                at: Some(at),
                ..ReadError::new(ProblemCode::Syntax, "this file is not UTF-8").hint("save it as UTF-8")
            }
        })
    }

    /// Where a path in the project really leads, if that is outside.
    pub fn leads_outside(&self, path: &Path) -> Option<PathBuf> {
        let resolved = std::fs::canonicalize(path).ok()?;
        (!self.worktree.contains(&resolved)).then_some(resolved)
    }

    /// The Markdown files below a folder, sorted by path; each with its path from the folder,
    /// without the extension and with `/`.
    pub(crate) fn markdown(
        &mut self,
        folder: &Path,
        deep: bool,
        layer: Layer,
        project: bool,
    ) -> Vec<(String, Arc<ConfigOrigin>)> {
        let mut found = Vec::new();
        let mut entered = Vec::new();
        self.enter(folder, "", if deep { DEEPEST } else { 0 }, layer, project, &mut entered, &mut found);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    #[expect(clippy::too_many_arguments, reason = "one recursion, called from one place")]
    fn enter(
        &mut self,
        dir: &Path,
        prefix: &str,
        deeper: usize,
        layer: Layer,
        project: bool,
        entered: &mut Vec<PathBuf>,
        found: &mut Vec<(String, Arc<ConfigOrigin>)>,
    ) {
        let list = match self.look(dir) {
            Ok(None) => return,
            Ok(Some(meta)) if !meta.is_dir() => return,
            Ok(Some(_)) => std::fs::read_dir(dir),
            Err(e) => Err(e),
        };
        let list = match list {
            Ok(list) => list,
            Err(e) => {
                let place = SourceLocation::whole(&self.origin(dir, layer, project));
                self.problems.push(Problem::error(
                    ProblemCode::Unreadable,
                    &place,
                    "",
                    format!("this directory cannot be read: {}", plain(&e)),
                ));
                return;
            }
        };
        let real = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
        if entered.contains(&real) {
            let place = SourceLocation::whole(&self.origin(dir, layer, project));
            self.problems.push(Problem::warning(
                ProblemCode::Link,
                &place,
                "",
                "this link leads in a circle; it is not followed",
            ));
            return;
        }
        if project && !self.worktree.contains(&real) {
            let place = SourceLocation::whole(&self.origin(dir, layer, project));
            let text = format!("this link leads out of the project, to {}; it is not followed", real.display());
            self.problems.push(Problem::error(ProblemCode::Link, &place, "", text));
            return;
        }
        entered.push(real);
        let mut names: Vec<_> = list.flatten().map(|entry| (entry.file_name(), entry.file_type().ok())).collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in names {
            if found.len() >= MOST {
                let place = SourceLocation::whole(&self.origin(dir, layer, project));
                self.problems.push(Problem::warning(
                    ProblemCode::TooMuch,
                    &place,
                    "",
                    format!("only the first {MOST} files are read"),
                ));
                break;
            }
            let Some(name) = name.to_str() else { continue };
            let path = dir.join(name);
            let link = kind.is_some_and(|kind| kind.is_symlink());
            let is_dir = kind.is_some_and(|kind| kind.is_dir()) || (link && path.is_dir());
            if is_dir && deeper > 0 {
                self.enter(&path, &format!("{prefix}{name}/"), deeper - 1, layer, project, entered, found);
            } else if !is_dir && let Some(stem) = name.strip_suffix(".md").filter(|stem| !stem.is_empty()) {
                found.push((format!("{prefix}{stem}"), self.origin(&path, layer, project)));
            }
        }
        entered.pop();
    }
}

/// The file that may hold secrets and that a link leads to.
fn leads_to_a_secret(path: &Path) -> Option<PathBuf> {
    let resolved = std::fs::canonicalize(path).ok()?;
    (resolved != normal(path) && protected::secret(&resolved)).then_some(resolved)
}

/// Why a file is not read.
#[derive(Debug)]
pub(crate) struct ReadError {
    pub(crate) code: ProblemCode,
    pub(crate) at: Option<(u32, u32)>,
    pub(crate) why: String,
    pub(crate) hint: Option<String>,
}

impl ReadError {
    fn new(code: ProblemCode, why: impl Into<String>) -> Self {
        Self { code, at: None, why: why.into(), hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    fn because(e: &io::Error) -> Self {
        Self::new(ProblemCode::Unreadable, format!("this file cannot be read: {}", plain(e)))
    }
}

/// An error of the system, without its number.
pub fn plain(e: &io::Error) -> String {
    if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return "its links lead in a circle".into();
    }
    let text = e.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|c| c.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

/// A path for people: from the project's root, or from home.
pub fn shown(path: &Path, worktree: &Worktree, environment: &Environment) -> String {
    let path = normal(path);
    if let Ok(rest) = path.strip_prefix(&worktree.root) {
        return rest.display().to_string();
    }
    let home = environment.home.as_deref().and_then(|home| path.strip_prefix(home).ok());
    home.map_or_else(|| path.display().to_string(), |rest| format!("~/{}", rest.display()))
}
