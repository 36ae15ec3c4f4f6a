//! Where a path really leads. Containment is judged on what the kernel would open: symlinks
//! followed, `..` taken after them, missing tails allowed. Looking is not opening: the tools act
//! through handles on directories, and refuse what leads elsewhere by then.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::path::{Component, Path, PathBuf};

use super::protected::{self, Protected};
use super::{Action, Need, Place, Rules, evaluate};

/// What is done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Its names and sizes are looked at.
    List,
    /// Its content is read.
    Read,
    /// It is created, changed or removed.
    Edit,
}

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A regular file.
    File,
    /// A directory.
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
    /// As it was given.
    pub given: String,
    /// Where it really leads.
    pub path: PathBuf,
    /// That, relative to the project, for rules and people.
    pub relative: String,
    /// It lies in the project, in a directory of the session or in the scratch directory.
    pub inside: bool,
    /// Symlinks were followed.
    pub linked: bool,
    /// What is there.
    pub found: Found,
    /// It is a regular file with a second name, which may lie anywhere.
    pub shared: bool,
    /// Whether it is special.
    pub protected: Option<Protected>,
}

/// Why a path is refused before anybody is asked. Addressed to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is a NUL in it.
    #[error("the path holds a NUL byte, which no file name can")]
    Nul,
    /// Something in the middle of it is a file.
    #[error("{0} is not a directory, so nothing can lie below it")]
    NotDirectory(String),
    /// Links that lead in a circle.
    #[error("too many symbolic links in {0}")]
    Loop(String),
    /// It would be our own input or output.
    #[error("{0} is a descriptor of this process, not a file")]
    Descriptor(String),
    /// A device, pipe or socket.
    #[error("{0} is a device, a pipe or a socket, not a file")]
    Special(String),
    /// There is nothing to read.
    #[error("{0} does not exist")]
    Missing(String),
    /// Variables are the shell's.
    #[error("{0} holds a variable; file tools do not expand variables, so write the path out")]
    Variable(String),
    /// Not a `file:` address of this machine.
    #[error("{0} is not the address of a file on this machine")]
    Address(String),
}

/// Looks a path up.
///
/// # Errors
/// A [`Refusal`] where it cannot be a path of a file at all.
pub fn locate(text: &str, place: &Place) -> Result<Located, Refusal> {
    locate_from(text, &place.cwd, place)
}

/// Directories that were looked up already, for many paths at once.
#[derive(Debug, Default)]
pub struct Folders(HashMap<PathBuf, Option<Resolved>>);

/// Looks a path up that starts at another directory than the place's.
///
/// # Errors
/// As [`locate`].
pub fn locate_from(text: &str, cwd: &Path, place: &Place) -> Result<Located, Refusal> {
    locate_known(text, cwd, place, &mut Folders::default())
}

/// As [`locate_from`], looking up each directory once.
///
/// # Errors
/// As [`locate`].
pub fn locate_known(text: &str, cwd: &Path, place: &Place, folders: &mut Folders) -> Result<Located, Refusal> {
    if text.contains('\0') {
        return Err(Refusal::Nul);
    }
    let decoded = if text.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("file://")) {
        Some(address(text).ok_or_else(|| Refusal::Address(text.into()))?)
    } else {
        None
    };
    let plain = decoded.as_deref().unwrap_or(text);
    let start = match plain.strip_prefix('~') {
        Some("") => place.home.clone(),
        Some(rest) if rest.starts_with('/') => place.home.as_ref().map(|home| home.join(rest.trim_start_matches('/'))),
        // Another user's home: outside in any case.
        Some(rest) if decoded.is_none() && rest.chars().next().is_some_and(char::is_alphanumeric) => {
            Some(Path::new("/home").join(rest))
        }
        _ => None,
    };
    let absolute = start.unwrap_or_else(|| cwd.join(plain));
    // `a/` and `a/.` are only right for directories; `components` would drop what says so.
    let directory = plain.ends_with('/') || plain.ends_with("/.") || plain.ends_with("/..");
    let Resolved { path, links: followed, found, metadata } = folders.resolve(&absolute, directory)?;
    let linked = followed > 0;
    let name = path.display().to_string();
    if descriptor(&absolute) || descriptor(&path) {
        return Err(Refusal::Descriptor(name));
    }
    let inside = inside(&path, place);
    let below = below(&path, place);
    let process = path.starts_with("/proc");
    let data = !place.data.as_os_str().is_empty() && path.starts_with(&place.data);
    let open = ["tool-output", "plans", "scratch"].iter().any(|dir| path.starts_with(place.data.join(dir)));
    let variables = process && path.file_name().is_some_and(|name| name == "environ" || name == "mem");
    let protected =
        if variables || (process && path.components().any(|part| part.as_os_str() == "root")) || (data && !open) {
            Some(Protected::Own)
        } else if protected::secret(&path) || protected::secret(&absolute) {
            Some(Protected::Secret)
        } else if protected::control(&below) {
            Some(Protected::Control)
        } else {
            None
        };
    let shared = found == Found::File && metadata.as_ref().is_some_and(links);
    let relative = relative(&path, place);
    Ok(Located { given: text.into(), path, relative, inside: inside && !process, linked, found, shared, protected })
}

/// A `file://` address as a path, decoded once.
fn address(text: &str) -> Option<String> {
    let rest = &text[7..];
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    if !rest.starts_with('/') {
        return None;
    }
    let bytes = rest.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |offset: usize| bytes.get(at + offset).and_then(|byte| char::from(*byte).to_digit(16));
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) = (hex(1), hex(2))
        {
            out.push((high * 16 + low).to_le_bytes()[0]);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).ok().filter(|path| !path.contains('\0'))
}

/// Where a path leads.
#[derive(Debug, Clone)]
struct Resolved {
    path: PathBuf,
    /// How many links were followed.
    links: usize,
    found: Found,
    metadata: Option<Metadata>,
}

impl Folders {
    /// Resolves a path from its folder, where that is a plain one.
    fn resolve(&mut self, absolute: &Path, directory: bool) -> Result<Resolved, Refusal> {
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return resolve(absolute, directory);
        };
        if !self.0.contains_key(parent) {
            let plain = parent.components().all(|part| part != Component::ParentDir);
            let real = || resolve(parent, true).ok().filter(|real| real.found == Found::Directory);
            let real = Some(plain).filter(|plain| *plain).and_then(|_| real());
            self.0.insert(parent.to_path_buf(), real.filter(|real| !real.path.starts_with("/proc")));
        }
        match self.0.get(parent) {
            Some(Some(real)) => follow(absolute, real.clone(), [name.to_owned()].into(), directory),
            _ => resolve(absolute, directory),
        }
    }
}

/// Follows a path as the kernel does: `..` is taken after a link, not before it.
fn resolve(absolute: &Path, directory: bool) -> Result<Resolved, Refusal> {
    let root = Resolved { path: PathBuf::from("/"), links: 0, found: Found::Directory, metadata: None };
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
) -> Result<Resolved, Refusal> {
    let Resolved { mut path, mut links, mut metadata, .. } = from;
    let mut missing = 0_usize;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            if metadata.as_ref().is_some_and(|metadata: &Metadata| !metadata.is_dir()) {
                return Err(Refusal::NotDirectory(path.display().to_string()));
            }
            path.pop();
            missing = missing.saturating_sub(1);
            metadata = None;
            continue;
        }
        if metadata.as_ref().is_some_and(|metadata: &Metadata| !metadata.is_dir()) {
            return Err(Refusal::NotDirectory(path.display().to_string()));
        }
        path.push(&name);
        if path == Path::new("/proc") {
            // The links of /proc lead to other processes' places; what is below is judged by its name.
            path.extend(ahead);
            let path = crate::worktree::normal(&path);
            let metadata = fs::metadata(&path).ok();
            let found = match &metadata {
                Some(found) if found.is_dir() => Found::Directory,
                Some(found) if found.is_file() => Found::File,
                Some(_) => Found::Special,
                None => Found::Missing,
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
                    return Err(Refusal::Loop(absolute.display().to_string()));
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
        _ if missing > 1 => Found::Nowhere,
        None => Found::Missing,
        Some(found) if found.is_dir() => Found::Directory,
        Some(_) if directory => return Err(Refusal::NotDirectory(path.display().to_string())),
        Some(found) if found.is_file() => Found::File,
        Some(_) => Found::Special,
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

fn descriptor(path: &Path) -> bool {
    let text = path.to_string_lossy();
    ["/dev/stdin", "/dev/stdout", "/dev/stderr"].contains(&&*text)
        || text.starts_with("/dev/fd/")
        || (text.starts_with("/proc/") && text.contains("/fd/"))
}

/// The directories that need no permission. A root that holds everything is none.
fn roots(place: &Place) -> impl Iterator<Item = &PathBuf> {
    let everything =
        |root: &&PathBuf| root.parent().is_some() && place.home.as_ref().is_none_or(|home| !home.starts_with(root));
    std::iter::once(&place.root).chain(&place.extra).filter(everything)
}

fn inside(path: &Path, place: &Place) -> bool {
    if roots(place).any(|root| path.starts_with(root))
        || place.scratch.as_ref().is_some_and(|dir| path.starts_with(dir))
    {
        return true;
    }
    // The same directory in other letters, on a volume that does not tell them apart.
    let alike = |root: &PathBuf| {
        let count = root.components().count();
        let ancestor: PathBuf = path.components().take(count).collect();
        ancestor.to_string_lossy().eq_ignore_ascii_case(&root.to_string_lossy()) && same(&ancestor, root)
    };
    roots(place).any(alike)
}

/// The part of a path below the project, else the whole.
fn below(path: &Path, place: &Place) -> PathBuf {
    let rest = roots(place).find_map(|root| path.strip_prefix(root).ok());
    rest.unwrap_or(path).to_path_buf()
}

/// A resolved path relative to the project, with `/`; `..` where it lies beside it.
fn relative(path: &Path, place: &Place) -> String {
    let tree = crate::worktree::Worktree { root: place.root.clone(), git: false, extra: vec![] };
    tree.relative(path)
}

impl Located {
    /// What has to be allowed before the path is used: `external_directory` first, where it lies
    /// outside, then `read` or `edit`.
    pub fn needs(&self, access: Access) -> Vec<Need> {
        let mut needs = vec![];
        // Whether something outside is there may be asked freely.
        let nothing = access == Access::List && self.is_absent();
        if !self.inside && !nothing {
            let folder =
                if self.found == Found::Directory { &self.path } else { self.path.parent().unwrap_or(&self.path) };
            let pattern = format!("{}/*", folder.display().to_string().trim_end_matches('/'));
            needs.push(Need::new("external_directory", &pattern).always(pattern));
        }
        let (permission, shielded) = match access {
            Access::List => return needs,
            Access::Read => ("read", Protected::Secret),
            Access::Edit => ("edit", Protected::Control),
        };
        let mut need = Need::new(permission, &self.relative);
        let name = &self.relative;
        match self.protected {
            Some(Protected::Own) => {
                need.floor = Some((Action::Deny, format!("{name} holds keys or the agent's own data")));
            }
            Some(Protected::Secret) => {
                need.floor = Some((Action::Ask, format!("{name} may hold keys or passwords")));
            }
            Some(kind) if kind == shielded => {
                need.floor =
                    Some((Action::Ask, format!("{name} decides what runs on this machine or what the agent may do")));
            }
            _ if access == Access::Edit && self.shared => {
                need.floor = Some((Action::Ask, format!("{name} has a second name elsewhere (a hard link)")));
            }
            _ if access == Access::Edit && odd(name) => {
                need.floor = Some((Action::Ask, format!("the name {name:?} holds characters that cannot be seen")));
            }
            _ => need = need.always(name.clone()),
        }
        needs.push(need);
        needs
    }

    /// Nothing is there.
    pub fn is_absent(&self) -> bool {
        matches!(self.found, Found::Missing | Found::Nowhere)
    }

    /// Why it cannot be used in this way at all, whatever the rules say.
    pub fn refusal(&self, access: Access) -> Option<Refusal> {
        let name = self.given.clone();
        if self.found == Found::Special {
            return Some(Refusal::Special(name));
        }
        if self.given.starts_with('$') {
            return Some(Refusal::Variable(name));
        }
        // Whose home that is, is not looked up: whether the file is there is not known.
        let foreign = self.given.starts_with('~') && !self.given.starts_with("~/");
        let hopeless = !foreign && (self.found == Found::Nowhere || self.linked || self.given.contains(['*', '?']));
        let refused = access != Access::Edit && self.is_absent() && hopeless && self.protected.is_none();
        refused.then_some(Refusal::Missing(name))
    }
}

/// Whether a name holds what people cannot see: control characters, directions, zero widths.
pub fn odd(name: &str) -> bool {
    name.chars().any(invisible)
}

/// Characters that have no visible form, or change the order of others.
pub fn invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}'
            | '\u{3000}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// What becomes of a path under a set of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathVerdict {
    /// Judged by rules.
    Judged(Action, Option<String>),
    /// Refused before that.
    Refused(Refusal),
}

/// Judges a use of a path: a deny first, then what cannot be, then the rest.
pub fn judge_path(rules: &Rules, access: Access, text: &str, place: &Place) -> PathVerdict {
    let located = match locate(text, place) {
        Ok(located) => located,
        Err(refusal) => {
            // A broken path is still denied where everything is.
            let verdict = evaluate(rules, &Rules::default(), &Need::new(key(access), text));
            let denied = verdict.action == Action::Deny && access == Access::Edit;
            return if denied { PathVerdict::Judged(Action::Deny, None) } else { PathVerdict::Refused(refusal) };
        }
    };
    let verdicts = located.needs(access).into_iter().map(|need| evaluate(rules, &Rules::default(), &need));
    let worst = verdicts.max_by_key(|verdict| verdict.action);
    let (action, reason) = worst.map_or((Action::Allow, None), |verdict| (verdict.action, verdict.reason));
    match located.refusal(access) {
        Some(refusal) if action != Action::Deny => PathVerdict::Refused(refusal),
        _ => PathVerdict::Judged(action, reason),
    }
}

fn key(access: Access) -> &'static str {
    if access == Access::Edit { "edit" } else { "read" }
}

/// The paths a glob starts from, one for each brace alternative: what stands before the first
/// wildcard. They are judged like any other path.
pub fn glob_roots(pattern: &str) -> Vec<String> {
    let mut found: Vec<String> = alternatives(pattern)
        .iter()
        .map(|one| {
            let cut = one.find(['*', '?', '[', '{']).unwrap_or(one.len());
            match one[..cut].rfind('/') {
                _ if cut == one.len() => one.clone(),
                Some(0) => "/".into(),
                Some(slash) => one[..slash].to_owned(),
                None => ".".into(),
            }
        })
        .collect();
    found.dedup();
    found
}

/// Brace alternatives, at most 64: beyond that the pattern stays as it is, cut at its first brace.
fn alternatives(pattern: &str) -> Vec<String> {
    let mut out = vec![pattern.to_owned()];
    while let Some(at) = out.iter().position(|one| split(one).is_some()) {
        if out.len() > 64 {
            break;
        }
        let one = out.remove(at);
        out.extend(split(&one).unwrap_or_default());
    }
    out
}

/// Expands the last opening brace, which holds no other.
fn split(pattern: &str) -> Option<Vec<String>> {
    let open = pattern.rfind('{')?;
    let close = open + pattern[open..].find('}')?;
    let inner = &pattern[open + 1..close];
    inner
        .contains(',')
        .then(|| inner.split(',').map(|part| format!("{}{part}{}", &pattern[..open], &pattern[close + 1..])).collect())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn globs_start_somewhere() {
        let table: [(&str, &[&str]); 7] = [
            ("**/*.rs", &["."]),
            ("../**/*", &[".."]),
            ("{src,../out}/*", &["src", "../out"]),
            ("/etc/*", &["/etc"]),
            ("/*", &["/"]),
            ("a.txt", &["a.txt"]),
            ("src/{a,b}/../{c,d}", &["src/a/../c", "src/a/../d", "src/b/../c", "src/b/../d"]),
        ];
        for (pattern, roots) in table {
            let mut found = glob_roots(pattern);
            found.sort();
            let mut wanted = roots.to_vec();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{pattern}");
        }
    }
}
