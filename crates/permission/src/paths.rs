//! Resolves paths as the kernel would, and names the permissions that their use needs.
//!
//! Symlinks are followed, `..` is applied after them, and missing tails are allowed. No rule is
//! consulted here: `path_gate.rs` decides. Between this lookup and the use of a path the disk may
//! change, so the tools act through handles on directories and refuse a path that leads elsewhere by
//! then.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::file_use::{self, UnboundedRoot};
use super::hardlinks::LinkedFiles;
use super::places::{holder, is_temporary};
use super::protected::{self, Protected};
use super::{Access, Action, FileUse, Need, PermissionContext};
use base::text;
use base::text::is_odd;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    File,
    Directory,
    /// A device, a pipe, a socket.
    Special,
    /// Nothing; its folder exists.
    Missing,
    /// Nothing, and its folder is missing as well.
    Nowhere,
}

/// A path and everything that is needed to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub given: String,
    pub path: PathBuf,
    /// That, relative to the project, for rules and people.
    pub relative: String,
    /// It lies in the project, in a directory of the session or in the scratch directory.
    pub inside: bool,
    pub linked: bool,
    pub found: PathKind,
    /// It is a regular file with a second name, which may lie anywhere.
    pub shared: bool,
    /// It is a short-lived file of the user's own, may become one, or is a directory of such.
    pub temporary: bool,
    pub protected: Option<Protected>,
    /// It lies in the directory the session works in, which is none that could be a project.
    pub unbounded: Option<UnboundedRoot>,
}

/// Why a path is refused before anybody is asked. Addressed to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathRefusal {
    #[error("The path is empty.")]
    Empty,
    #[error("The path \"{}\" contains a NUL character; no file can have that name.", text::escaped(.0))]
    Nul(String),
    /// Something in the middle of it is a file.
    #[error("Not a directory on the way: {}", text::escaped(.0))]
    NotDirectory(String),
    /// Links that lead in a circle.
    #[error("Too many symbolic links: {}", text::escaped(.0))]
    Loop(String),
    /// A device, pipe or socket, or what would be our own input or output.
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

/// Looks a path up as people and models write one: `~` is the home directory, a `file:` address is the path it names.
///
/// # Errors
/// A [`PathRefusal`] where it cannot be a path of a file at all.
pub fn locate(text: &str, place: &PermissionContext) -> Result<Located, PathRefusal> {
    let decoded = is_address(text).then(|| address(text).ok_or_else(|| PathRefusal::Address(text.into())));
    let decoded = decoded.transpose()?;
    let plain = decoded.as_deref().unwrap_or(text);
    let absolute = match plain.strip_prefix('~').filter(|_| decoded.is_none()) {
        Some("") => place.home.clone(),
        Some(rest) if rest.starts_with('/') => place.home.as_ref().map(|home| home.join(rest.trim_start_matches('/'))),
        Some(rest) => {
            let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
            Some(home_of(user).ok_or_else(|| PathRefusal::NoUser(user.into(), text.into()))?.join(rest))
        }
        None => None,
    };
    let absolute = absolute.unwrap_or_else(|| place.cwd.join(plain));
    look_up(text, plain, &absolute, place, &mut Folders::default())
}

/// What was looked up already, for many paths at once.
#[derive(Debug, Default)]
pub struct Folders {
    real: HashMap<PathBuf, Option<Resolved>>,
    linked: Option<Arc<LinkedFiles>>,
}

impl Folders {
    /// The protected files of a place, looked for where they are needed.
    pub(super) fn linked_files(&mut self, place: &PermissionContext) -> &LinkedFiles {
        self.linked.get_or_insert_with(|| LinkedFiles::of(place))
    }
}

/// Looks a path up as a program is given it, from a directory: each of its letters stands for itself.
///
/// # Errors
/// As [`locate`].
pub fn locate_word(
    text: &str,
    cwd: &Path,
    place: &PermissionContext,
    folders: &mut Folders,
) -> Result<Located, PathRefusal> {
    look_up(text, text, &cwd.join(text), place, folders)
}

fn look_up(
    given: &str,
    plain: &str,
    absolute: &Path,
    place: &PermissionContext,
    folders: &mut Folders,
) -> Result<Located, PathRefusal> {
    if given.is_empty() {
        return Err(PathRefusal::Empty);
    }
    if given.contains('\0') {
        return Err(PathRefusal::Nul(given.into()));
    }
    // `a/` and `a/.` are only right for directories; `components` would drop what says so.
    let directory = plain.ends_with('/') || plain.ends_with("/.") || plain.ends_with("/..");
    let Resolved { path, links: followed, found, metadata } = folders.resolve(absolute, directory)?;
    if holder(absolute).or(holder(&path)).is_some() {
        return Err(PathRefusal::Special(given.into()));
    }
    let shared = metadata.filter(|metadata| found == PathKind::File && links(metadata));
    let mut located = Located {
        given: given.into(),
        linked: followed > 0,
        found,
        shared: shared.is_some(),
        ..Located::at(&path, absolute, place)
    };
    if let Some(metadata) = shared.filter(|_| matches!(located.protected, None | Some(Protected::Control))) {
        located.protected = folders.linked_files(place).protection(&metadata).or(located.protected);
    }
    Ok(located)
}

/// The home directory of another user, from the local user database.
fn home_of(user: &str) -> Option<PathBuf> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
    line.split(':').nth(5).map(PathBuf::from).filter(|home| home.is_absolute())
}

/// Why a resolved path is special; `spelled` is how it was written, from the root.
fn protection(path: &Path, spelled: &Path, place: &PermissionContext) -> Option<Protected> {
    let control = |path: &Path| protected::control(below(path, place)) || protected::in_git_dir(path);
    let decides = || {
        let spelled = base::worktree::normal(spelled);
        control(path) || (spelled != path && control(&spelled))
    };
    closed(path, spelled, place).or_else(|| decides().then_some(Protected::Control))
}

/// Why reading a resolved path is special.
fn closed(path: &Path, spelled: &Path, place: &PermissionContext) -> Option<Protected> {
    let open = |dir: &&str| path.starts_with(place.data.join(dir));
    let own = !place.data.as_os_str().is_empty() && below_dir(path, &place.data);
    if process_internals(path) || (own && !["tool-output", "plans", "scratch"].iter().any(open)) {
        return Some(Protected::Own);
    }
    let secret = protected::secret(path) || (spelled != path && protected::secret(spelled));
    secret.then_some(Protected::Secret)
}

/// The variables, the memory and the root of a process.
fn process_internals(path: &Path) -> bool {
    let named = |name: &str| path.file_name().is_some_and(|last| last == name);
    path.starts_with("/proc") && (named("environ") || named("mem") || path.iter().any(|part| part == "root"))
}

/// Follows an absolute path; none where it leads nowhere at all.
pub fn real(path: &Path) -> Option<PathBuf> {
    resolve(path, false).ok().map(|resolved| resolved.path)
}

fn is_address(text: &str) -> bool {
    text.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("file://"))
}

/// A `file://` address as a path, decoded once; none where it is none of this machine.
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

impl Folders {
    /// Resolves a path from its folder, where that is a plain one.
    fn resolve(&mut self, absolute: &Path, directory: bool) -> Result<Resolved, PathRefusal> {
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return resolve(absolute, directory);
        };
        if !self.real.contains_key(parent) {
            let plain = parent.components().all(|part| part != Component::ParentDir);
            let real = || resolve(parent, true).ok().filter(|real| real.found == PathKind::Directory);
            let real = Some(plain).filter(|plain| *plain).and_then(|_| real());
            self.real.insert(parent.to_path_buf(), real.filter(|real| !real.path.starts_with("/proc")));
        }
        match self.real.get(parent) {
            Some(Some(real)) => follow(absolute, real.clone(), [name.to_owned()].into(), directory),
            _ => resolve(absolute, directory),
        }
    }
}

/// Follows a path as the kernel does: `..` is taken after a link, not before it.
fn resolve(absolute: &Path, directory: bool) -> Result<Resolved, PathRefusal> {
    let root = Resolved { path: PathBuf::from("/"), links: 0, found: PathKind::Directory, metadata: None };
    follow(absolute, root, absolute.components().filter_map(part).collect(), directory)
}

fn part(component: Component<'_>) -> Option<OsString> {
    match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    }
}

/// Follows what lies `ahead` of a directory.
fn follow(
    absolute: &Path,
    from: Resolved,
    mut ahead: VecDeque<OsString>,
    directory: bool,
) -> Result<Resolved, PathRefusal> {
    let Resolved { mut path, mut links, mut metadata, .. } = from;
    let mut missing = 0_usize;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            if metadata.as_ref().is_some_and(|metadata: &Metadata| !metadata.is_dir()) {
                return Err(PathRefusal::NotDirectory(path.display().to_string()));
            }
            path.pop();
            missing = missing.saturating_sub(1);
            metadata = None;
            continue;
        }
        if metadata.as_ref().is_some_and(|metadata: &Metadata| !metadata.is_dir()) {
            return Err(PathRefusal::NotDirectory(path.display().to_string()));
        }
        path.push(&name);
        if path == Path::new("/proc") {
            // The links of /proc lead to other processes' places; what is below is judged by its name.
            path.extend(ahead);
            let path = base::worktree::normal(&path);
            if !path.starts_with("/proc") {
                // Up again, perhaps behind one of those links: from where is not known.
                return Err(PathRefusal::Special(absolute.display().to_string()));
            }
            let metadata = fs::metadata(&path).ok();
            let found = match &metadata {
                Some(found) if found.is_dir() => PathKind::Directory,
                Some(found) if found.is_file() => PathKind::File,
                Some(_) => PathKind::Special,
                None => PathKind::Missing,
            };
            return Ok(Resolved { path, links, found, metadata });
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
                for component in target.components().rev().filter_map(part) {
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
        Some(_) if directory => return Err(PathRefusal::NotDirectory(path.display().to_string())),
        Some(found) if found.is_file() => PathKind::File,
        Some(_) => PathKind::Special,
    };
    Ok(Resolved { path, links, found, metadata })
}

#[cfg(unix)]
fn links(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.nlink() > 1
}

#[cfg(not(unix))]
fn links(_: &Metadata) -> bool {
    false
}

#[cfg(unix)]
fn same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    id(a).is_some_and(|a| Some(a) == id(b))
}

#[cfg(not(unix))]
fn same(a: &Path, b: &Path) -> bool {
    a.to_string_lossy().eq_ignore_ascii_case(&b.to_string_lossy())
}

/// The directories that need no permission. A root that holds everything is none.
pub(super) fn roots(place: &PermissionContext) -> impl Iterator<Item = &PathBuf> {
    std::iter::once(&place.root).chain(&place.extra).filter(|root| !holds_everything(root, place))
}

/// Whether a directory is too much to be a project: the root of the disk, or one that holds the home directory.
pub(super) fn holds_everything(root: &Path, place: &PermissionContext) -> bool {
    root.parent().is_none() || place.home.as_ref().is_some_and(|home| home.starts_with(root))
}

fn unbounded(path: &Path, place: &PermissionContext) -> Option<UnboundedRoot> {
    let is_project = || roots(place).any(|root| *root == place.root);
    (path.starts_with(&place.root) && !is_project()).then(|| UnboundedRoot::of(place))
}

fn inside(path: &Path, place: &PermissionContext) -> bool {
    roots(place).chain(&place.scratch).any(|root| below_dir(path, root))
}

/// Whether a path is a directory or lies below it, also where it is spelled in other letters on a
/// volume that does not tell them apart.
pub(super) fn below_dir(path: &Path, dir: &Path) -> bool {
    if path.starts_with(dir) {
        return true;
    }
    let mut ahead = path.components();
    let alike = |part: Component<'_>| {
        let other = ahead.next().map(|other| other.as_os_str().as_encoded_bytes());
        other.is_some_and(|other| other.eq_ignore_ascii_case(part.as_os_str().as_encoded_bytes()))
    };
    if !dir.components().all(alike) {
        return false;
    }
    let ancestor: PathBuf = path.components().take(dir.components().count()).collect();
    same(&ancestor, dir)
}

/// The part of a path below the project, else the whole.
fn below<'p>(path: &'p Path, place: &PermissionContext) -> &'p Path {
    roots(place).find_map(|root| path.strip_prefix(root).ok()).unwrap_or(path)
}

/// A resolved path relative to the project, with `/`; `..` where it lies beside it.
pub(super) fn relative(path: &Path, place: &PermissionContext) -> String {
    let tree = base::worktree::Worktree { root: place.root.clone(), git: false, extra: vec![] };
    tree.relative(path)
}

impl Located {
    /// A file that was found at a resolved path. Nothing is looked up but what makes a git directory.
    pub fn at(path: &Path, spelled: &Path, place: &PermissionContext) -> Self {
        Self::protected(path, place, protection(path, spelled, place))
    }

    /// The same for a path that is only read: whether changing it decides what runs is not looked at.
    pub fn seen(path: &Path, place: &PermissionContext) -> Self {
        Self::protected(path, place, closed(path, path, place))
    }

    fn protected(path: &Path, place: &PermissionContext, protected: Option<Protected>) -> Self {
        Self {
            given: String::new(),
            relative: relative(path, place),
            inside: inside(path, place) && !path.starts_with("/proc"),
            linked: false,
            found: PathKind::File,
            shared: false,
            temporary: place.temporary.iter().any(|dir| is_temporary(path, dir, place)),
            protected,
            unbounded: unbounded(path, place),
            path: path.into(),
        }
    }

    /// What has to be allowed before the path is used: `external_directory` first, where it lies
    /// outside, then `read` or `edit`.
    pub fn needs(&self, access: Access) -> Vec<Need> {
        // Whether something outside is there may be asked freely.
        let nothing = access == Access::List && self.is_absent();
        let mut needs: Vec<Need> = self.leaving().filter(|_| !nothing).into_iter().collect();
        let file = |which| Some(FileUse { which, ..self.in_use(access) });
        needs.iter_mut().for_each(|need| need.file = file(Some(file_use::why_outside(self.unbounded).to_owned())));
        let permission = match access {
            Access::List => return needs,
            Access::Read => "read",
            Access::Edit => "edit",
        };
        let name = &self.relative;
        let mut need = Need::new(permission, name);
        need.floor = self.floor(access);
        need.file = file(self.why_special(access));
        need.within = access == Access::Edit && self.inside;
        // What is asked about every time is not granted for good, and a name is no pattern.
        if (need.floor.is_none() || access == Access::Read) && !name.contains(['*', '?']) {
            need = need.always(name.clone());
        }
        needs.push(need);
        needs
    }

    /// The need to leave the project, where this lies outside: the directory that holds it, or the
    /// directory itself.
    pub fn leaving(&self) -> Option<Need> {
        if self.inside {
            return None;
        }
        let folder =
            if self.found == PathKind::Directory { &self.path } else { self.path.parent().unwrap_or(&self.path) };
        let pattern = format!("{}/*", folder.display().to_string().trim_end_matches('/'));
        let mut need = Need::new("external_directory", pattern.clone());
        need.temporary = self.temporary;
        if !folder.to_string_lossy().contains(['*', '?']) {
            need = need.always(pattern);
        }
        need.metadata.insert("filepath".into(), Value::String(self.path.display().to_string()));
        need.metadata.insert("parentDir".into(), Value::String(folder.display().to_string()));
        Some(need)
    }

    fn in_use(&self, access: Access) -> FileUse {
        let name = if self.inside { self.relative.clone() } else { self.path.display().to_string() };
        FileUse { verb: file_use::verb(access, self.protected), name, which: None }
    }

    /// What makes the file special, as a clause that "which" begins.
    fn why_special(&self, access: Access) -> Option<String> {
        let path = if self.inside { Path::new(&self.relative) } else { &self.path };
        file_use::why_special(access, self.protected, path, self.shared).map(str::to_owned)
    }

    /// The least a use may be judged, whatever the rules say, and why.
    fn floor(&self, access: Access) -> Option<(Action, String)> {
        let name = text::escaped(&self.relative);
        match self.protected {
            Some(Protected::Own) => Some((Action::Deny, format!("{name} holds keys or the agent's own data"))),
            Some(Protected::Secret) => Some((Action::Ask, format!("{name} may hold keys or passwords"))),
            _ if access != Access::Edit => None,
            Some(Protected::Control) => {
                Some((Action::Ask, format!("{name} decides what runs on this machine or what the agent may do")))
            }
            None if self.shared => Some((Action::Ask, format!("{name} has a second name elsewhere (a hard link)"))),
            None if self.relative.chars().any(is_odd) => {
                Some((Action::Ask, format!("the name {name:?} holds characters that cannot be seen")))
            }
            None => None,
        }
    }

    pub fn is_absent(&self) -> bool {
        matches!(self.found, PathKind::Missing | PathKind::Nowhere)
    }

    /// Why it cannot be used in this way at all, whatever the rules say.
    pub fn refusal(&self, access: Access) -> Option<PathRefusal> {
        if self.found == PathKind::Special {
            return Some(PathRefusal::Special(self.given.clone()));
        }
        if variable(&self.given) {
            return Some(PathRefusal::Variable(self.given.clone()));
        }
        let foreign = self.given.starts_with('~') && !self.given.starts_with("~/");
        let hopeless = !foreign && (self.found == PathKind::Nowhere || self.linked || self.given.contains(['*', '?']));
        let refused = access != Access::Edit && self.is_absent() && hopeless && self.protected.is_none();
        refused.then(|| PathRefusal::Missing(self.path.display().to_string()))
    }
}

/// Whether a path begins with a shell's variable. `$name.tsx` is a name.
fn variable(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('$') else { return false };
    let name = rest.split('/').next().unwrap_or_default();
    let letters = |c: char| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit();
    rest.starts_with(['{', '(']) || (!name.is_empty() && name.chars().all(letters))
}
