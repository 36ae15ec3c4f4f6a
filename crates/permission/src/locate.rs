//! Resolves paths as the kernel would, and names the permissions that their use needs
//! ([`PathUse`]).
//!
//! Symlinks are followed, `..` is applied after them, and missing tails are allowed. No rule is
//! consulted here: `path_gate.rs` decides. Between this lookup and the use of a path the disk may
//! change, so the tools act through handles on directories and refuse a path that leads elsewhere
//! by then.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::file_use::{self, UnboundedRoot};
use super::hardlinks::LinkedFiles;
use super::protected::{self, Protected};
use super::rule::OUTSIDE;
use super::special_paths::{holder, is_temporary};
use super::{Access, Action, FileUse, OutsidePath, PathUse, PermissionContext};
use base::text;
use base::text::is_deceptive;

/// The kind of file at a path, with symlinks resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    File,
    Directory,
    /// A device, a pipe or a socket.
    Special,
    /// Does not exist, but its parent directory does.
    Missing,
    /// Does not exist, and neither does its parent directory.
    Nowhere,
}

/// A path with all facts that are needed to judge its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The path as it is written in the call or the command.
    pub written: String,
    /// The absolute path, with symlinks resolved.
    pub path: PathBuf,
    /// `path` relative to the project, for rules and people.
    pub relative: String,
    /// True if it lies in the project, in a directory of the session or in the scratch directory.
    pub is_inside: bool,
    /// True if a symlink was followed to reach it.
    pub is_linked: bool,
    pub kind: PathKind,
    /// True if it is a regular file with a second name, which may be anywhere.
    pub has_hard_links: bool,
    /// True if it is a temporary file of the user's own, may become one, or is a directory of such
    /// files.
    pub is_temporary: bool,
    /// Its protection; `None` for an ordinary file.
    pub protected: Option<Protected>,
    /// Set if it lies in the working directory of the session, and that is too broad to be a
    /// project.
    pub unbounded_root: Option<UnboundedRoot>,
}

/// A reason why a path is refused before the user is asked. Addressed to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathRefusal {
    #[error("The path is empty.")]
    Empty,
    #[error("The path \"{}\" contains a NUL character; no file can have that name.", text::escaped(.0))]
    Nul(String),
    /// A component before the last one is a file.
    #[error("Not a directory on the way: {}", text::escaped(.0))]
    NotDirectory(String),
    /// Symbolic links that form a loop.
    #[error("Too many symbolic links: {}", text::escaped(.0))]
    Loop(String),
    /// A device, pipe or socket, or our own input or output.
    #[error(
        "{} is not a regular file (a device, pipe, socket or process internals); it is not opened.",
        text::escaped(.0)
    )]
    Special(String),
    #[error("File not found: {}", text::escaped(.0))]
    Missing(String),
    #[error(
        "Variables in paths are not expanded: \"{}\". Write the path itself; ~ is the home directory, ./ in front makes the name literal.",
        text::escaped(.0)
    )]
    Variable(String),
    #[error(
        "There is no user {0}, so \"{shown}\" names no home directory. Put ./ in front if the name begins with a ~.",
        shown = text::escaped(.1)
    )]
    NoUser(String, String),
    /// Not a `file:` address of this machine.
    #[error("{} is not the address of a file on this machine", text::escaped(.0))]
    Address(String),
}

/// Locates a path as people and models write one: `~` is the home directory, and a `file:` address
/// is the path it names.
///
/// # Errors
/// A [`PathRefusal`] if the text cannot be the path of a file.
pub fn locate(text: &str, context: &PermissionContext) -> Result<Located, PathRefusal> {
    let decoded = if is_address(text) {
        Some(address(text).ok_or_else(|| PathRefusal::Address(text.into()))?)
    } else {
        None
    };
    let plain = decoded.as_deref().unwrap_or(text);
    let after_tilde = if decoded.is_none() {
        plain.strip_prefix('~')
    } else {
        None
    };
    let absolute = match after_tilde {
        None => None,
        Some("") => context.home.clone(),
        Some(rest) if rest.starts_with('/') => context
            .home
            .as_ref()
            .map(|home| home.join(rest.trim_start_matches('/'))),
        Some(rest) => {
            let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
            let home =
                home_of(user).ok_or_else(|| PathRefusal::NoUser(user.into(), text.into()))?;
            Some(home.join(rest))
        }
    };
    let absolute = absolute.unwrap_or_else(|| context.cwd.join(plain));
    look_up(
        text,
        plain,
        &absolute,
        context,
        &mut DirectoryCache::default(),
    )
}

/// A cache of directories that were resolved, for locating many paths.
#[derive(Debug, Default)]
pub struct DirectoryCache {
    real: HashMap<PathBuf, Option<Resolved>>,
    linked: Option<Arc<LinkedFiles>>,
}

impl DirectoryCache {
    /// Returns the protected files of a context; searches for them on the first call.
    pub(super) fn linked_files(&mut self, context: &PermissionContext) -> &LinkedFiles {
        self.linked.get_or_insert_with(|| LinkedFiles::of(context))
    }
}

/// Locates a path as a program gets it, relative to `cwd`: all its characters are literal.
///
/// # Errors
/// Same as [`locate`].
pub fn locate_literal(
    text: &str,
    cwd: &Path,
    context: &PermissionContext,
    directories: &mut DirectoryCache,
) -> Result<Located, PathRefusal> {
    look_up(text, text, &cwd.join(text), context, directories)
}

fn look_up(
    written: &str,
    plain: &str,
    absolute: &Path,
    context: &PermissionContext,
    directories: &mut DirectoryCache,
) -> Result<Located, PathRefusal> {
    if written.is_empty() {
        return Err(PathRefusal::Empty);
    }
    if written.contains('\0') {
        return Err(PathRefusal::Nul(written.into()));
    }
    // `a/` and `a/.` can only be directories; `components` would drop the evidence.
    let must_be_directory = plain.ends_with('/') || plain.ends_with("/.") || plain.ends_with("/..");
    let Resolved {
        path,
        links: followed,
        found,
        metadata,
    } = directories.resolve(absolute, must_be_directory)?;
    if holder(absolute).or(holder(&path)).is_some() {
        return Err(PathRefusal::Special(written.into()));
    }
    let shared = metadata.filter(|metadata| found == PathKind::File && has_hard_links(metadata));
    let mut located = Located {
        written: written.into(),
        is_linked: followed > 0,
        kind: found,
        has_hard_links: shared.is_some(),
        ..Located::at(&path, absolute, context)
    };
    if let Some(metadata) = shared
        && matches!(located.protected, None | Some(Protected::Control))
    {
        located.protected = directories
            .linked_files(context)
            .protection(&metadata)
            .or(located.protected);
    }
    Ok(located)
}

/// Returns the home directory of another user, from the local user database.
fn home_of(user: &str) -> Option<PathBuf> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(user))?;
    line.split(':')
        .nth(5)
        .map(PathBuf::from)
        .filter(|home| home.is_absolute())
}

/// Returns the protection of a resolved path. `spelled` is the absolute path as it was written.
fn protection(path: &Path, spelled: &Path, context: &PermissionContext) -> Option<Protected> {
    let is_control =
        |path: &Path| protected::control(below(path, context)) || protected::in_git_dir(path);
    if let Some(protection) = read_protection(path, spelled, context) {
        return Some(protection);
    }
    if is_control(path) {
        return Some(Protected::Control);
    }
    let spelled = base::worktree::normal(spelled);
    (spelled != path && is_control(&spelled)).then_some(Protected::Control)
}

/// Returns the protection of a resolved path against reading.
fn read_protection(path: &Path, spelled: &Path, context: &PermissionContext) -> Option<Protected> {
    const OPEN: [&str; 3] = ["tool-output", "plans", "scratch"];
    let is_own = !context.data_dir.as_os_str().is_empty() && below_dir(path, &context.data_dir);
    if process_internals(path)
        || (is_own
            && !OPEN
                .iter()
                .any(|dir| path.starts_with(context.data_dir.join(dir))))
    {
        return Some(Protected::Own);
    }
    let secret = protected::secret(path) || (spelled != path && protected::secret(spelled));
    secret.then_some(Protected::Secret)
}

/// Returns whether a path holds the variables, the memory or the root of a process.
fn process_internals(path: &Path) -> bool {
    let is_named = |name: &str| path.file_name().is_some_and(|last| last == name);
    path.starts_with("/proc")
        && (is_named("environ") || is_named("mem") || path.iter().any(|part| part == "root"))
}

/// Resolves an absolute path; `None` if it cannot be resolved.
pub fn real(path: &Path) -> Option<PathBuf> {
    resolve(path, false).ok().map(|resolved| resolved.path)
}

fn is_address(text: &str) -> bool {
    text.get(..7)
        .is_some_and(|start| start.eq_ignore_ascii_case("file://"))
}

/// Decodes a `file://` address once and returns its path; `None` if it is not on this machine.
pub(super) fn address(text: &str) -> Option<String> {
    let rest = is_address(text).then(|| &text[7..])?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    if !rest.starts_with('/') {
        return None;
    }
    let path = percent_decode_str(rest).decode_utf8().ok()?;
    (!path.contains('\0')).then(|| path.into_owned())
}

#[derive(Debug, Clone)]
struct Resolved {
    path: PathBuf,
    links: usize,
    found: PathKind,
    metadata: Option<Metadata>,
}

impl DirectoryCache {
    /// Resolves a path from its parent directory if that can be cached.
    fn resolve(
        &mut self,
        absolute: &Path,
        must_be_directory: bool,
    ) -> Result<Resolved, PathRefusal> {
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return resolve(absolute, must_be_directory);
        };
        if !self.real.contains_key(parent) {
            self.real
                .insert(parent.to_path_buf(), cacheable_directory(parent));
        }
        match self.real.get(parent) {
            Some(Some(real)) => follow(
                absolute,
                real.clone(),
                [name.to_owned()].into(),
                must_be_directory,
            ),
            _ => resolve(absolute, must_be_directory),
        }
    }
}

/// Resolves a directory for the cache; `None` if the path has `..` in it, is not a directory, or leads
/// to `/proc`.
fn cacheable_directory(path: &Path) -> Option<Resolved> {
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let real = resolve(path, true).ok()?;
    (real.found == PathKind::Directory && !real.path.starts_with("/proc")).then_some(real)
}

/// Resolves a path as the kernel does: `..` is applied after a link is followed, not before.
fn resolve(absolute: &Path, must_be_directory: bool) -> Result<Resolved, PathRefusal> {
    let root = Resolved {
        path: PathBuf::from("/"),
        links: 0,
        found: PathKind::Directory,
        metadata: None,
    };
    follow(
        absolute,
        root,
        absolute.components().filter_map(path_component).collect(),
        must_be_directory,
    )
}

fn path_component(component: Component<'_>) -> Option<OsString> {
    match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    }
}

/// Resolves the components `ahead`, starting in the directory `from`. `absolute` is for messages.
fn follow(
    absolute: &Path,
    from: Resolved,
    mut ahead: VecDeque<OsString>,
    must_be_directory: bool,
) -> Result<Resolved, PathRefusal> {
    let Resolved {
        mut path,
        mut links,
        mut metadata,
        ..
    } = from;
    let mut missing = 0_usize;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            if metadata
                .as_ref()
                .is_some_and(|metadata: &Metadata| !metadata.is_dir())
            {
                return Err(PathRefusal::NotDirectory(path.display().to_string()));
            }
            path.pop();
            missing = missing.saturating_sub(1);
            metadata = None;
            continue;
        }
        if metadata
            .as_ref()
            .is_some_and(|metadata: &Metadata| !metadata.is_dir())
        {
            return Err(PathRefusal::NotDirectory(path.display().to_string()));
        }
        path.push(&name);
        if path == Path::new("/proc") {
            // The links in /proc lead to other processes' files; paths below it are judged by name.
            path.extend(ahead);
            let path = base::worktree::normal(&path);
            if !path.starts_with("/proc") {
                // It leads out of /proc again, perhaps through one of those links, so its start is
                // unknown.
                return Err(PathRefusal::Special(absolute.display().to_string()));
            }
            let metadata = fs::metadata(&path).ok();
            let found = match &metadata {
                Some(found) if found.is_dir() => PathKind::Directory,
                Some(found) if found.is_file() => PathKind::File,
                Some(_) => PathKind::Special,
                None => PathKind::Missing,
            };
            return Ok(Resolved {
                path,
                links,
                found,
                metadata,
            });
        }
        if missing > 0 {
            missing += 1;
            continue;
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                links += 1;
                let target = fs::read_link(&path).unwrap_or_default();
                if links > 40 {
                    return Err(PathRefusal::Loop(absolute.display().to_string()));
                }
                path.pop();
                if target.is_absolute() {
                    path = PathBuf::from("/");
                }
                for component in target.components().rev().filter_map(path_component) {
                    ahead.push_front(component);
                }
                metadata = None;
            }
            Ok(found) => metadata = Some(found),
            Err(_) => {
                missing = 1;
                metadata = None;
            }
        }
    }
    if missing == 0 && metadata.is_none() {
        metadata = fs::metadata(&path).ok();
    }
    let found = match &metadata {
        _ if missing > 1 => PathKind::Nowhere,
        None => PathKind::Missing,
        Some(found) if found.is_dir() => PathKind::Directory,
        Some(_) if must_be_directory => {
            return Err(PathRefusal::NotDirectory(path.display().to_string()));
        }
        Some(found) if found.is_file() => PathKind::File,
        Some(_) => PathKind::Special,
    };
    Ok(Resolved {
        path,
        links,
        found,
        metadata,
    })
}

#[cfg(unix)]
fn has_hard_links(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.nlink() > 1
}

#[cfg(not(unix))]
fn has_hard_links(_: &Metadata) -> bool {
    false
}

#[cfg(unix)]
fn is_same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| {
        fs::metadata(path)
            .ok()
            .map(|metadata| (metadata.dev(), metadata.ino()))
    };
    id(a).is_some_and(|a| Some(a) == id(b))
}

#[cfg(not(unix))]
fn is_same_file(a: &Path, b: &Path) -> bool {
    a.to_string_lossy()
        .eq_ignore_ascii_case(&b.to_string_lossy())
}

/// Returns the directories that need no permission, without those that are too broad to be a
/// project.
pub(super) fn roots(context: &PermissionContext) -> impl Iterator<Item = &PathBuf> {
    std::iter::once(&context.root)
        .chain(&context.extra_dirs)
        .filter(|root| !is_too_broad(root, context))
}

/// Returns whether a directory is too broad to be a project: the root of the disk, or one above the
/// home directory or the home directory itself.
pub(super) fn is_too_broad(root: &Path, context: &PermissionContext) -> bool {
    root.parent().is_none()
        || context
            .home
            .as_ref()
            .is_some_and(|home| home.starts_with(root))
}

fn unbounded(path: &Path, context: &PermissionContext) -> Option<UnboundedRoot> {
    let is_in_broad_root = path.starts_with(&context.root) && is_too_broad(&context.root, context);
    is_in_broad_root.then(|| UnboundedRoot::of(context))
}

pub(super) fn is_inside(path: &Path, context: &PermissionContext) -> bool {
    roots(context)
        .chain(&context.scratch_dir)
        .any(|root| below_dir(path, root))
}

/// Returns whether a path is a directory or lies below it.
///
/// On a case-insensitive volume this also holds if the letters differ in case.
pub(super) fn below_dir(path: &Path, dir: &Path) -> bool {
    if path.starts_with(dir) {
        return true;
    }
    let mut components = path.components();
    let equals_next = |part: Component<'_>| {
        let other = components
            .next()
            .map(|other| other.as_os_str().as_encoded_bytes());
        other.is_some_and(|other| other.eq_ignore_ascii_case(part.as_os_str().as_encoded_bytes()))
    };
    if !dir.components().all(equals_next) {
        return false;
    }
    let ancestor: PathBuf = path.components().take(dir.components().count()).collect();
    is_same_file(&ancestor, dir)
}

/// Returns the part of a path below the project, or the whole path if it lies outside.
fn below<'p>(path: &'p Path, context: &PermissionContext) -> &'p Path {
    roots(context)
        .find_map(|root| path.strip_prefix(root).ok())
        .unwrap_or(path)
}

/// Returns a resolved path relative to the project, with `/` as separator, and with `..` if it lies
/// outside.
pub(super) fn relative(path: &Path, context: &PermissionContext) -> String {
    let tree = base::worktree::Worktree {
        root: context.root.clone(),
        git: false,
        extra: vec![],
    };
    tree.relative(path)
}

impl Located {
    /// Locates a file by its resolved path. Reads the disk only to recognise temporary files,
    /// git directories and names that differ in case.
    pub fn at(path: &Path, spelled: &Path, context: &PermissionContext) -> Self {
        Self::protected(path, context, protection(path, spelled, context))
    }

    /// Locates a file that is only read: control files are not detected.
    pub fn seen(path: &Path, context: &PermissionContext) -> Self {
        Self::protected(path, context, read_protection(path, path, context))
    }

    fn protected(path: &Path, context: &PermissionContext, protected: Option<Protected>) -> Self {
        Self {
            written: String::new(),
            relative: relative(path, context),
            is_inside: is_inside(path, context) && !path.starts_with("/proc"),
            is_linked: false,
            kind: PathKind::File,
            has_hard_links: false,
            is_temporary: context
                .temporary_dirs
                .iter()
                .any(|dir| is_temporary(path, dir, context)),
            protected,
            unbounded_root: unbounded(path, context),
            path: path.into(),
        }
    }

    /// Returns the uses that a use of the path consists of: leaving the project first, if it lies
    /// outside, then reading or editing it.
    pub fn uses(&self, access: Access) -> Vec<PathUse> {
        // Listing may always report that a path outside does not exist.
        let reports_absence = access == Access::List && self.is_absent();
        let leaving = if reports_absence {
            None
        } else {
            self.leaving()
        };
        let file = |which| {
            Some(FileUse {
                which,
                ..self.in_use(access)
            })
        };
        let mut uses: Vec<PathUse> = leaving.into_iter().collect();
        for path_use in &mut uses {
            path_use.file = file(Some(file_use::why_outside(self.unbounded_root).to_owned()));
            path_use.only_reads = access != Access::Edit;
        }
        let permission = match access {
            Access::List => return uses,
            Access::Read => "read",
            Access::Edit => "edit",
        };
        uses.push(PathUse {
            names_path: true,
            minimum: self.minimum(access),
            changes_project: access == Access::Edit && self.is_inside,
            absolute_path: (!self.is_inside).then(|| self.path.display().to_string()),
            file: file(self.why_special(access)),
            ..PathUse::new(permission, &*self.relative)
        });
        uses
    }

    /// Returns the use that leaves the project, or `None` if the path is inside. Its pattern covers
    /// the parent directory, or the directory itself if the path is one.
    pub fn leaving(&self) -> Option<PathUse> {
        if self.is_inside {
            return None;
        }
        let folder = if self.kind == PathKind::Directory {
            &self.path
        } else {
            self.path.parent().unwrap_or(&self.path)
        };
        let pattern = format!("{}/*", folder.display().to_string().trim_end_matches('/'));
        Some(PathUse {
            names_path: true,
            is_temporary: self.is_temporary,
            outside: Some(OutsidePath {
                path: self.path.clone(),
                folder: folder.to_owned(),
            }),
            ..PathUse::new(OUTSIDE, pattern)
        })
    }

    fn in_use(&self, access: Access) -> FileUse {
        let name = if self.is_inside {
            self.relative.clone()
        } else {
            self.path.display().to_string()
        };
        FileUse {
            verb: file_use::verb(access, self.protected),
            name,
            which: None,
        }
    }

    /// Returns the peculiarity of the file, as a clause that "which" begins.
    fn why_special(&self, access: Access) -> Option<String> {
        let path = if self.is_inside {
            Path::new(&self.relative)
        } else {
            &self.path
        };
        file_use::why_special(access, self.protected, path, self.has_hard_links).map(str::to_owned)
    }

    /// Returns the minimum verdict on a use, with its reason.
    fn minimum(&self, access: Access) -> Option<(Action, String)> {
        let name = text::escaped(&self.relative);
        match self.protected {
            Some(Protected::Own) => Some((
                Action::Deny,
                format!("{name} holds keys or the agent's own data"),
            )),
            Some(Protected::Secret) => {
                Some((Action::Ask, format!("{name} may hold keys or passwords")))
            }
            _ if access != Access::Edit => None,
            Some(Protected::Control) => Some((
                Action::Ask,
                format!("{name} determines what runs on this machine or what the agent may do"),
            )),
            None if self.has_hard_links => Some((
                Action::Ask,
                format!("{name} has a second name elsewhere (a hard link)"),
            )),
            None if self.relative.chars().any(is_deceptive) => Some((
                Action::Ask,
                format!("the name {name:?} contains invisible characters"),
            )),
            None => None,
        }
    }

    pub fn is_absent(&self) -> bool {
        matches!(self.kind, PathKind::Missing | PathKind::Nowhere)
    }

    /// Returns the reason why the path cannot be used in this way, whatever the rules are.
    pub fn refusal(&self, access: Access) -> Option<PathRefusal> {
        if self.kind == PathKind::Special {
            return Some(PathRefusal::Special(self.written.clone()));
        }
        if starts_with_variable(&self.written) {
            return Some(PathRefusal::Variable(self.written.clone()));
        }
        if access == Access::Edit || !self.is_absent() || self.protected.is_some() {
            return None;
        }
        // `~` and `~user` paths are exempt.
        let is_other_home = self.written.starts_with('~') && !self.written.starts_with("~/");
        let has_no_candidate =
            self.kind == PathKind::Nowhere || self.is_linked || self.written.contains(['*', '?']);
        if is_other_home || !has_no_candidate {
            return None;
        }
        Some(PathRefusal::Missing(self.path.display().to_string()))
    }
}

/// Returns whether a path begins with a shell variable. `$name.tsx` is a plain name.
fn starts_with_variable(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('$') else {
        return false;
    };
    if rest.starts_with(['{', '(']) {
        return true;
    }
    let name = rest.split('/').next().unwrap_or_default();
    let is_variable_char = |c: char| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit();
    !name.is_empty() && name.chars().all(is_variable_char)
}
