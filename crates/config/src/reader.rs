//! The reader of settings files. It opens only small regular files, so that it never blocks, and
//! records everything it examines, absent files included, so that a change is noticed without
//! reading again.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::jsonc::LineIndex;
use super::node::{ConfigOrigin, Layer, SourceLocation};
use super::package::{MissingPackage, UnusableScript};
use super::problem::{Problem, ProblemCode};
use base::environment::Environment;
use base::worktree::{Worktree, normal};
use permission::protected;

/// The maximum size of a file.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// The maximum number of files in one folder.
const MAX_FILES: usize = 2_000;
/// The maximum depth of folders.
const MAX_DEPTH: usize = 16;

/// The metadata by which a change of a file is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PathStamp {
    changed: Option<(i64, i64)>,
    /// The time of the last change of the inode, which programs cannot restore.
    inode_changed: (i64, i64),
    size: u64,
    inode: u64,
}

/// The recorded metadata of everything that was examined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigFingerprint(BTreeMap<PathBuf, Option<PathStamp>>);

impl ConfigFingerprint {
    /// Returns whether anything has changed since. Costs one query of each file's metadata.
    pub fn is_stale(&self) -> bool {
        self.0
            .iter()
            .any(|(path, stamp)| std::fs::metadata(path).ok().map(|meta| stamp_of(&meta)) != *stamp)
    }

    /// Returns a text that changes with a file, or `None` if the file was not looked at or does not
    /// exist.
    pub fn stamp(&self, path: &Path) -> Option<String> {
        let stamp = self.0.get(path)?.as_ref()?;
        Some(format!("{:?} {}", stamp.changed, stamp.size))
    }

    /// Records the metadata of a path. `None` if it does not exist.
    ///
    /// # Errors
    /// If the metadata cannot be read, or the path is a link to nothing.
    pub fn record_metadata(&mut self, path: &Path) -> io::Result<Option<Metadata>> {
        let found = std::fs::metadata(path);
        self.0
            .insert(path.to_path_buf(), found.as_ref().ok().map(stamp_of));
        match found {
            Ok(meta) => Ok(Some(meta)),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                match std::fs::symlink_metadata(path) {
                    Ok(_) => Err(io::Error::new(
                        io::ErrorKind::NotFound,
                        "it is a link to something that does not exist",
                    )),
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
        PathStamp {
            changed: Some((meta.mtime(), meta.mtime_nsec())),
            inode_changed: (meta.ctime(), meta.ctime_nsec()),
            size: meta.len(),
            inode: meta.ino(),
        }
    }
    #[cfg(not(unix))]
    {
        let since = meta
            .modified()
            .ok()
            .and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let changed = since.map(|d| {
            (
                i64::try_from(d.as_secs()).unwrap_or(0),
                i64::from(d.subsec_nanos()),
            )
        });
        PathStamp {
            changed,
            inode_changed: (0, 0),
            size: meta.len(),
            inode: 0,
        }
    }
}

/// Reads the files of settings, and collects the problems and facts found in them.
pub struct ConfigReader<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) worktree: &'a Worktree,
    /// The metadata of everything that was examined.
    pub fingerprint: ConfigFingerprint,
    /// The problems found so far.
    pub problems: Vec<Problem>,
    /// The external values in a project's settings.
    pub(crate) external_values: Vec<ExternalValue>,
    /// The values with a provider's key, and the variable that each is from.
    pub(crate) key_variables: Vec<(SourceLocation, String)>,
    /// Variables that an organisation's settings may mention, from the login to it.
    pub(crate) tokens: Vec<(String, String)>,
    /// The packages that are named as plugins and are not installed.
    pub(crate) missing_packages: Vec<MissingPackage>,
    /// The custom tools and plugins that cannot be loaded.
    pub(crate) unusable_scripts: Vec<UnusableScript>,
}

/// A text with variables.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SubstitutedText {
    pub(crate) text: String,
    /// The same with the names of the variables in place of their values.
    pub(crate) template: String,
}

/// A key or value of a project's settings that contains something from outside the project, or from
/// a file of the project that may not be read by everybody.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExternalValue {
    pub(crate) at: SourceLocation,
    pub(crate) key: String,
    /// `{env:NAME}` or `{file:path}`.
    pub(crate) insert: String,
    /// The whole text that has it, if it is a variable.
    pub(crate) text: Option<SubstitutedText>,
    /// The path as written and as resolved, if the file is in the project. The value then counts
    /// only if reading the file would need a question.
    pub(crate) project_file: Option<[PathBuf; 2]>,
}

impl<'a> ConfigReader<'a> {
    pub fn new(environment: &'a Environment, worktree: &'a Worktree) -> Self {
        Self {
            environment,
            worktree,
            fingerprint: ConfigFingerprint::default(),
            problems: Vec::new(),
            external_values: Vec::new(),
            key_variables: Vec::new(),
            tokens: Vec::new(),
            missing_packages: Vec::new(),
            unusable_scripts: Vec::new(),
        }
    }

    /// Returns the origin of a file, with its displayed name.
    pub fn origin(&self, path: &Path, layer: Layer, project: bool) -> Arc<ConfigOrigin> {
        let name = shown(path, self.worktree, self.environment);
        Arc::new(ConfigOrigin {
            name,
            path: Some(path.to_path_buf()),
            layer,
            project,
        })
    }

    /// Records the metadata of a path.
    pub fn record_metadata(&mut self, path: &Path) -> io::Result<Option<Metadata>> {
        self.fingerprint.record_metadata(path)
    }

    /// Reads a file, if it exists. Errors become problems.
    pub(crate) fn read(&mut self, origin: &Arc<ConfigOrigin>) -> Option<String> {
        let path = origin.path.clone()?;
        match self.try_read(&path, origin.project) {
            Ok(text) => text,
            Err(ReadError {
                code,
                at,
                why,
                hint,
            }) => {
                let (line, column) = at.unwrap_or((0, 0));
                let location = SourceLocation {
                    origin: origin.clone(),
                    line,
                    column,
                };
                let mut problem = Problem::error(code, &location, "", why);
                problem.hint = hint;
                self.problems.push(problem);
                None
            }
        }
    }

    /// Reads a file. `None` if it does not exist.
    pub(crate) fn try_read(
        &mut self,
        path: &Path,
        project: bool,
    ) -> Result<Option<String>, ReadError> {
        let Some(meta) = self
            .record_metadata(path)
            .map_err(|e| ReadError::because(&e))?
        else {
            return Ok(None);
        };
        if !meta.is_file() {
            let what = if meta.is_dir() {
                "a directory"
            } else {
                "a pipe or a device"
            };
            return Err(ReadError::new(
                ProblemCode::Unreadable,
                format!("expected a file, found {what}"),
            ));
        }
        if meta.len() > MAX_FILE_BYTES {
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
                format!(
                    "this link leads out of the project, to {}; it is not followed",
                    outside.display()
                ),
            )
            .hint(
                "copy the file into the project, or put its settings into your own configuration",
            ));
        }
        // Settings reach models without a question about reading.
        if project && let Some(secret) = link_to_secret(path) {
            let secret = shown(&secret, self.worktree, self.environment);
            let text = format!(
                "this link leads to {secret}, which may hold keys or passwords; it is not followed"
            );
            return Err(
                ReadError::new(ProblemCode::Link, text).hint("put a file there instead of a link")
            );
        }
        // The file may have been replaced since.
        let bytes =
            base::file::read_small(path, MAX_FILE_BYTES).map_err(|e| ReadError::because(&e))?;
        String::from_utf8(bytes).map(Some).map_err(|e| {
            let good = e.utf8_error().valid_up_to();
            let text =
                String::from_utf8_lossy(e.as_bytes().get(..good).unwrap_or_default()).into_owned();
            let at = LineIndex::new(&text).at(good);
            ReadError {
                at: Some(at),
                ..ReadError::new(ProblemCode::Syntax, "this file is not UTF-8")
                    .hint("save it as UTF-8")
            }
        })
    }

    /// Returns the resolved target of a path in the project, if it is outside.
    pub fn leads_outside(&self, path: &Path) -> Option<PathBuf> {
        let resolved = std::fs::canonicalize(path).ok()?;
        (!self.worktree.contains(&resolved)).then_some(resolved)
    }

    /// Returns the Markdown files below a folder, sorted by path. Each has its path from the
    /// folder, without the extension and with `/`.
    pub(crate) fn markdown(
        &mut self,
        folder: &Path,
        deep: bool,
        layer: Layer,
        project: bool,
    ) -> Vec<(String, Arc<ConfigOrigin>)> {
        let mut found = Vec::new();
        let mut entered = Vec::new();
        self.enter(
            folder,
            "",
            if deep { MAX_DEPTH } else { 0 },
            layer,
            project,
            &mut entered,
            &mut found,
        );
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one recursion, called from one place"
    )]
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
        let list = match self.record_metadata(dir) {
            Ok(None) => return,
            Ok(Some(meta)) if !meta.is_dir() => return,
            Ok(Some(_)) => std::fs::read_dir(dir),
            Err(e) => Err(e),
        };
        let list = match list {
            Ok(list) => list,
            Err(e) => {
                let location = SourceLocation::whole_text(&self.origin(dir, layer, project));
                self.problems.push(Problem::error(
                    ProblemCode::Unreadable,
                    &location,
                    "",
                    format!("this directory cannot be read: {}", plain(&e)),
                ));
                return;
            }
        };
        let real = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
        if entered.contains(&real) {
            let location = SourceLocation::whole_text(&self.origin(dir, layer, project));
            self.problems.push(Problem::warning(
                ProblemCode::Link,
                &location,
                "",
                "this link leads in a circle; it is not followed",
            ));
            return;
        }
        if project && !self.worktree.contains(&real) {
            let location = SourceLocation::whole_text(&self.origin(dir, layer, project));
            let text = format!(
                "this link leads out of the project, to {}; it is not followed",
                real.display()
            );
            self.problems
                .push(Problem::error(ProblemCode::Link, &location, "", text));
            return;
        }
        entered.push(real);
        let mut names: Vec<_> = list
            .flatten()
            .map(|entry| (entry.file_name(), entry.file_type().ok()))
            .collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in names {
            if found.len() >= MAX_FILES {
                let location = SourceLocation::whole_text(&self.origin(dir, layer, project));
                self.problems.push(Problem::warning(
                    ProblemCode::TooMuch,
                    &location,
                    "",
                    format!("only the first {MAX_FILES} files are read"),
                ));
                break;
            }
            let Some(name) = name.to_str() else { continue };
            let path = dir.join(name);
            let link = kind.is_some_and(|kind| kind.is_symlink());
            let is_dir = kind.is_some_and(|kind| kind.is_dir()) || (link && path.is_dir());
            if is_dir && deeper > 0 {
                self.enter(
                    &path,
                    &format!("{prefix}{name}/"),
                    deeper - 1,
                    layer,
                    project,
                    entered,
                    found,
                );
            } else if !is_dir
                && let Some(stem) = name.strip_suffix(".md").filter(|stem| !stem.is_empty())
            {
                found.push((
                    format!("{prefix}{stem}"),
                    self.origin(&path, layer, project),
                ));
            }
        }
        entered.pop();
    }
}

/// Returns the target of a link to a file that may contain secrets.
fn link_to_secret(path: &Path) -> Option<PathBuf> {
    let resolved = std::fs::canonicalize(path).ok()?;
    (resolved != normal(path) && protected::secret(&resolved)).then_some(resolved)
}

/// The reason why a file is not read.
#[derive(Debug)]
pub(crate) struct ReadError {
    pub(crate) code: ProblemCode,
    pub(crate) at: Option<(u32, u32)>,
    pub(crate) why: String,
    pub(crate) hint: Option<String>,
}

impl ReadError {
    fn new(code: ProblemCode, why: impl Into<String>) -> Self {
        Self {
            code,
            at: None,
            why: why.into(),
            hint: None,
        }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    fn because(e: &io::Error) -> Self {
        Self::new(
            ProblemCode::Unreadable,
            format!("this file cannot be read: {}", plain(e)),
        )
    }
}

/// Formats a system error without its number.
pub fn plain(e: &io::Error) -> String {
    if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return "its links lead in a circle".into();
    }
    let text = e.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters
        .next()
        .map(|c| c.to_ascii_lowercase())
        .into_iter()
        .chain(letters)
        .collect()
}

/// Returns a path for display: relative to the project's root, or to the home directory.
pub fn shown(path: &Path, worktree: &Worktree, environment: &Environment) -> String {
    let path = normal(path);
    if let Ok(rest) = path.strip_prefix(&worktree.root) {
        return rest.display().to_string();
    }
    let home = environment
        .home
        .as_deref()
        .and_then(|home| path.strip_prefix(home).ok());
    home.map_or_else(
        || path.display().to_string(),
        |rest| format!("~/{}", rest.display()),
    )
}
