//! Git's data about a working tree, read without running git: its directories, its origin and its
//! index.

use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};

/// The size of the largest index that is read, in bytes: about a million files.
const MAX_INDEX_BYTES: u64 = 128 << 20;

/// The reason for an index that is malformed, or of an unknown version.
const BROKEN: &str = "its form is not known";

/// Returns the directories that hold git's data about the work tree at `root`.
///
/// This is `.git`, or, for a linked work tree or a submodule, its own directory followed by the
/// common one. Directories that `.git` names count only if they point back, because the file in the
/// project could name any directory.
pub fn dirs(root: &Path) -> Vec<PathBuf> {
    let link = root.join(".git");
    let Ok(text) = crate::file::read_regular_text(&link) else {
        return if link.is_dir() { vec![link] } else { vec![] };
    };
    let Some(own) = text
        .strip_prefix("gitdir:")
        .and_then(|path| resolve(root, path.trim_start()))
    else {
        return vec![];
    };
    let back_link = crate::file::read_regular_text(&own.join("gitdir")).ok();
    let is_linked = back_link
        .and_then(|back| resolve(&own, &back))
        .is_some_and(|back| back == link);
    if !is_linked && !is_submodule_of(&own, root) {
        return vec![];
    }
    let common = crate::file::read_regular_text(&own.join("commondir"))
        .ok()
        .and_then(|path| resolve(&own, &path));
    std::iter::once(own).chain(common).collect()
}

/// Resolves a path from one of git's files, which may be relative to the directory `from`.
fn resolve(from: &Path, path: &str) -> Option<PathBuf> {
    std::fs::canonicalize(from.join(path.trim_end_matches('\n'))).ok()
}

/// Returns whether the repository's settings name `root` as its work tree, as those of a submodule
/// do.
fn is_submodule_of(dir: &Path, root: &Path) -> bool {
    let config = crate::file::read_regular_text(&dir.join("config")).unwrap_or_default();
    let work_trees = config.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("worktree")?
            .trim_start()
            .strip_prefix('=')
    });
    work_trees
        .filter_map(|path| resolve(dir, path.trim()))
        .any(|work_tree| work_tree == root)
}

/// Files with ignore rules that apply below their directory.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// The file with ignore rules that apply to a whole work tree, relative to its top level.
const EXCLUDE_FILE: &str = ".git/info/exclude";

/// Returns whether the path is neither a file nor a directory, for example a pipe, which blocks the
/// process that opens it, or a device.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

fn has_special_ignore_file(dir: &Path) -> bool {
    IGNORE_FILES.iter().any(|name| is_special(&dir.join(name)))
}

fn has_special_exclude_file(dir: &Path) -> bool {
    is_special(&dir.join(EXCLUDE_FILE))
}

/// Returns a walker over the `wanted` files and directories that git does not ignore.
///
/// The library opens an ignore file of any type. So a directory whose ignore file is a special file
/// is left out, and such a file in `root` or above disables all ignore files of its kind.
pub fn walker(
    root: &Path,
    wanted: impl Fn(&DirEntry) -> bool + Send + Sync + 'static,
) -> WalkBuilder {
    let mut walker = WalkBuilder::new(root);
    walker.hidden(false).require_git(false);
    if root.ancestors().any(has_special_ignore_file) {
        walker.ignore(false).git_ignore(false);
    }
    if root.ancestors().any(has_special_exclude_file) {
        walker.git_exclude(false);
    }
    walker.filter_entry(move |entry| {
        if !wanted(entry) {
            return false;
        }
        let is_subdirectory =
            entry.depth() > 0 && entry.file_type().is_some_and(|kind| kind.is_dir());
        !is_subdirectory
            || !(has_special_ignore_file(entry.path()) || has_special_exclude_file(entry.path()))
    });
    walker
}

/// Returns the address of the `origin` of the repository in `dir` as `host/path`, or `None` if it
/// has no origin or the origin is a path of one machine.
///
/// User names, passwords and the transport are left out, so that all addresses of a repository
/// yield the same result.
pub fn origin(dir: &Path) -> Option<String> {
    let text = crate::file::read_regular_text(&dir.join("config")).ok()?;
    let mut in_origin = false;
    let mut url = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_origin = line
                .split(']')
                .next()
                .is_some_and(|head| head.trim_start_matches('[') == r#"remote "origin""#);
        } else if in_origin && let Some(value) = line.strip_prefix("url") {
            url = url.or(value
                .trim_start()
                .strip_prefix('=')
                .map(|value| value.trim().trim_matches('"')));
        }
    }
    normalized_address(url?)
}

/// Returns `host/path` of a repository's address, whatever its transport.
fn normalized_address(url: &str) -> Option<String> {
    let rest = match url.split_once("://") {
        Some(("http" | "https" | "ssh" | "git" | "git+ssh", rest)) => rest.to_owned(),
        Some(_) => return None,
        // The `host:path` form of ssh.
        None => {
            let (host, path) = url
                .split_once(':')
                .filter(|(host, _)| !host.contains('/'))?;
            format!("{host}/{}", path.trim_start_matches('/'))
        }
    };
    let (host, path) = rest.split_once('/')?;
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let host = host
        .split_once(':')
        .map_or(host, |(host, _)| host)
        .to_ascii_lowercase();
    let path = path.trim_end_matches('/');
    let path = path
        .strip_suffix(".git")
        .unwrap_or(path)
        .trim_end_matches('/');
    let has_parent = path.split('/').any(|part| part == "..");
    if host.is_empty() || path.is_empty() || has_parent {
        return None;
    }
    Some(format!("{host}/{path}"))
}

/// An entry of git's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry<'i> {
    /// The path below the top level of the work tree.
    pub path: &'i [u8],
    /// The object id of the file's content, as bytes.
    pub id: &'i [u8],
    /// The file type and permissions, as in `st_mode`; `0o160000` is another repository.
    pub mode: u32,
    /// The time of the last change of the inode, in nanoseconds since 1970.
    pub changed: i128,
    /// The time of the last change of the content, in nanoseconds since 1970.
    pub modified: i128,
    /// The lower 32 bits of the inode number.
    pub inode: u32,
    /// The lower 32 bits of the size in bytes.
    pub size: u32,
    /// True if the entry is merged and git examines the file itself to find out whether it changed.
    pub plain: bool,
}

/// Returns the directories below the working tree that the index in `dir` lists as repositories of
/// their own.
///
/// `hash` is the length of an object id in bytes.
///
/// # Errors
/// The reason why the index cannot be read.
pub fn links(dir: &Path, hash: usize) -> Result<Vec<PathBuf>, &'static str> {
    let mut links = vec![];
    let mut add = |entry: IndexEntry<'_>| {
        if entry.mode & 0o170_000 == 0o160_000 {
            links.push(PathBuf::from(std::ffi::OsString::from_vec(
                entry.path.to_vec(),
            )));
        }
    };
    let Some(bytes) = read(&dir.join("index"))? else {
        return Ok(vec![]);
    };
    let rest = entries(&bytes, hash, &mut add).ok_or(BROKEN)?;
    let base = shared(rest, hash)
        .ok_or(BROKEN)?
        .map(|base| dir.join(format!("sharedindex.{base}")));
    if let Some(bytes) = base.map_or(Ok(None), |base| read(&base))? {
        entries(&bytes, hash, &mut add).ok_or(BROKEN)?;
    }
    if links
        .iter()
        .any(|link| link.as_os_str().is_empty() || link.is_absolute())
    {
        return Err(BROKEN);
    }
    Ok(links)
}

/// Calls `see` with every entry of the index in `dir`, and returns whether the entries are
/// complete.
///
/// If it returns `false`, the entries must be discarded: there is no index, it is a split index, or
/// it cannot be read.
pub fn index(dir: &Path, hash: usize, see: &mut dyn FnMut(IndexEntry<'_>)) -> bool {
    let Ok(Some(bytes)) = read(&dir.join("index")) else {
        return false;
    };
    entries(&bytes, hash, see).and_then(|rest| shared(rest, hash)) == Some(None)
}

/// Calls `see` with every entry of the split index in `dir` and of its shared index.
///
/// Entries of the shared index may have been removed or replaced. Returns `false` if the index is
/// not split or cannot be read.
pub fn read_split_index(dir: &Path, hash: usize, see: &mut dyn FnMut(IndexEntry<'_>)) -> bool {
    let Ok(Some(bytes)) = read(&dir.join("index")) else {
        return false;
    };
    let Some(Some(base)) = entries(&bytes, hash, see).and_then(|rest| shared(rest, hash)) else {
        return false;
    };
    let Ok(Some(bytes)) = read(&dir.join(format!("sharedindex.{base}"))) else {
        return false;
    };
    entries(&bytes, hash, see).is_some()
}

/// Reads an index. Returns `None` if there is none, or the reason why it cannot be read.
fn read(path: &Path) -> Result<Option<Vec<u8>>, &'static str> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= MAX_INDEX_BYTES => {}
        Ok(_) => return Err("it is too large or not a file"),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err("the system does not let it be read"),
    }
    let mut bytes = Vec::new();
    let file = crate::file::open_regular(path).map_err(|_| "the system does not let it be read")?;
    file.take(MAX_INDEX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|_| "the system does not let it be read")?;
    Ok(Some(bytes))
}

/// Reads the 32-bit number at a position, the highest byte first.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(four)).ok()
}

/// Calls `see` with every entry, and returns the bytes after the entries; `None` if the index is
/// malformed. `hash` is the length of an object id in bytes.
fn entries<'b>(
    bytes: &'b [u8],
    hash: usize,
    see: &mut dyn FnMut(IndexEntry<'_>),
) -> Option<&'b [u8]> {
    /// The length of the times, device, inode, mode, owner and size before the object id, in bytes.
    const STAT_BYTES: usize = 40;
    /// The flag of a file that git assumes to be unchanged.
    const ASSUMED_VALID: u8 = 0x80;
    /// The flag of an entry with more flags.
    const EXTENDED: u8 = 0x40;
    /// The bits for the stage of an entry that is not merged; zero otherwise.
    const STAGES: u8 = 0x30;
    let version = number(bytes, 4)?;
    if !bytes.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return None;
    }
    let mut name: Vec<u8> = vec![];
    let mut at = 12;
    for _ in 0..number(bytes, 8)? {
        let start = at;
        let flags = at + STAT_BYTES + hash;
        let flag = *bytes.get(flags)?;
        // An extended entry has two more bytes of flags; the first holds skip-worktree and
        // intent-to-add.
        let extended_flags = if flag & EXTENDED == 0 {
            0
        } else {
            *bytes.get(flags + 2)?
        };
        let flags_length = if flag & EXTENDED == 0 { 2 } else { 4 };
        at = flags + flags_length;
        if version == 4 {
            let cut = variable(bytes, &mut at)?;
            name.truncate(name.len().checked_sub(cut)?);
        } else {
            name.clear();
        }
        let length = bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&bytes[at..at + length]);
        at += length + 1;
        if version != 4 {
            at = start + (at - start).next_multiple_of(8);
        }
        let word =
            |n: usize| number(bytes, start + 4 * n).and_then(|word| u32::try_from(word).ok());
        let time = |n: usize| Some(i128::from(word(n)?) * 1_000_000_000 + i128::from(word(n + 1)?));
        see(IndexEntry {
            path: &name,
            id: bytes.get(start + STAT_BYTES..flags)?,
            mode: word(6)?,
            changed: time(0)?,
            modified: time(2)?,
            inode: word(5)?,
            size: word(9)?,
            plain: flag & (ASSUMED_VALID | STAGES) == 0 && extended_flags == 0,
        });
    }
    bytes.get(at..)
}

/// Reads a variable-length number, with seven bits in a byte, and moves `at` behind it.
fn variable(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut next = || {
        let byte = bytes.get(*at).copied();
        *at += 1;
        byte
    };
    let mut byte = next()?;
    let mut value = usize::from(byte & 127);
    while byte & 128 != 0 {
        byte = next()?;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 127);
    }
    Some(value)
}

/// Returns the id of the shared index from `rest`, the bytes after the entries; `Some(None)` if
/// this is not a split index, and `None` if the extensions cannot be read.
fn shared(mut rest: &[u8], hash: usize) -> Option<Option<String>> {
    while rest.len() > hash {
        let size = number(rest, 4)?;
        let body = rest.get(8..8 + size)?;
        if rest.starts_with(b"link") {
            let base = body.get(..hash)?;
            return Some(Some(
                base.iter().map(|byte| format!("{byte:02x}")).collect(),
            ));
        }
        rest = &rest[8 + size..];
    }
    // The file ends with a checksum of everything before it.
    (rest.len() == hash).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses a thread because opening a pipe would wait for its writer.
    #[test]
    fn pipe_instead_of_git_directory_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&dir.path().join(".git"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (done, read) = std::sync::mpsc::channel();
        let root = dir.path().to_path_buf();
        std::thread::spawn(move || done.send(dirs(&root)).ok());
        assert_eq!(
            read.recv_timeout(std::time::Duration::from_secs(10)),
            Ok(vec![])
        );
    }

    /// Runs git in a directory, without the settings of a user or the system, and returns its
    /// output.
    #[expect(clippy::disallowed_methods, reason = "the index is made by git itself")]
    fn git(dir: &Path, args: &[&str]) -> String {
        let mut git = std::process::Command::new("git");
        git.env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", dir);
        let ran = git
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .args(args)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{args:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn addresses_of_one_repository_yield_one_name() {
        for (url, called) in [
            (
                "https://git.example/team/app.git",
                Some("git.example/team/app"),
            ),
            (
                "https://me:secret@Git.Example/team/app/",
                Some("git.example/team/app"),
            ),
            (
                "ssh://git@git.example:2222/team/app.git",
                Some("git.example/team/app"),
            ),
            ("git@git.example:team/app.git", Some("git.example/team/app")),
            ("git.example:/team/app", Some("git.example/team/app")),
            ("/srv/git/app.git", None),
            ("../app.git", None),
            ("file:///srv/git/app.git", None),
            ("https://git.example/", None),
            ("https://git.example/../app", None),
        ] {
            assert_eq!(normalized_address(url).as_deref(), called, "{url}");
        }
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["init", "-q"]);
        assert_eq!(origin(&dir.path().join(".git")), None);
        git(
            dir.path(),
            &["remote", "add", "other", "https://git.example/other"],
        );
        git(
            dir.path(),
            &["remote", "add", "origin", "git@git.example:team/app.git"],
        );
        assert_eq!(
            origin(&dir.path().join(".git")).as_deref(),
            Some("git.example/team/app")
        );
    }

    #[test]
    fn nested_repositories_are_found_in_every_index_format() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| drop(git(dir.path(), args));
        for (format, hash, zeros) in [("sha1", 20, "1".repeat(40)), ("sha256", 32, "1".repeat(64))]
        {
            git(&["init", "-q", "--object-format", format, format]);
            let link = |name: &str| format!("160000,{zeros},{name}");
            let within = |args: &[&str]| git(&[&["-C", format][..], args].concat());
            std::fs::write(dir.path().join(format).join("a file.txt"), "a").unwrap();
            within(&["add", "a file.txt"]);
            assert_eq!(
                links(&dir.path().join(format).join(".git"), hash),
                Ok(vec![])
            );
            for name in ["sub/one", "sub/one-more", "z"] {
                within(&["update-index", "--add", "--cacheinfo", &link(name)]);
            }
            let wanted = ["sub/one", "sub/one-more", "z"].map(PathBuf::from);
            let found = || {
                let mut links = links(&dir.path().join(format).join(".git"), hash).unwrap();
                links.sort();
                links.dedup();
                links
            };
            for version in ["2", "4", "2"] {
                within(&["update-index", "--index-version", version]);
                assert_eq!(found(), wanted, "{format} {version}");
            }
            within(&["update-index", "--split-index"]);
            assert_eq!(found(), wanted, "{format} split");
            let index = dir.path().join(format).join(".git/index");
            let whole = std::fs::read(&index).unwrap();
            std::fs::write(&index, &whole[..whole.len() / 2]).unwrap();
            assert!(links(&dir.path().join(format).join(".git"), hash).is_err());
        }
        assert_eq!(links(dir.path(), 20), Ok(vec![]));
    }

    #[test]
    fn index_entries_match_file_metadata() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| git(dir.path(), args);
        git(&["init", "-q"]);
        for name in ["one", "two", "assumed", "meant"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        git(&["add", "one", "two", "assumed"]);
        git(&["add", "--intent-to-add", "meant"]);
        git(&["update-index", "--assume-unchanged", "assumed"]);
        for version in ["3", "4"] {
            git(&["update-index", "--index-version", version]);
            let mut seen = vec![];
            let whole = index(&dir.path().join(".git"), 20, &mut |entry: IndexEntry<
                '_,
            >| {
                let path = String::from_utf8(entry.path.to_vec()).unwrap();
                let id: String = entry.id.iter().map(|byte| format!("{byte:02x}")).collect();
                let data = std::fs::metadata(dir.path().join(&path)).unwrap();
                let time = |seconds: i64, nanos: i64| {
                    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
                };
                if path != "meant" {
                    assert_eq!(
                        entry.changed,
                        time(data.ctime(), data.ctime_nsec()),
                        "{path}"
                    );
                    assert_eq!(
                        entry.modified,
                        time(data.mtime(), data.mtime_nsec()),
                        "{path}"
                    );
                    assert_eq!(
                        (u64::from(entry.size), u64::from(entry.inode)),
                        (data.size(), data.ino()),
                        "{path}"
                    );
                    assert_eq!(id, git(&["hash-object", &path]), "{path}");
                }
                seen.push((path, entry.plain));
            });
            let wanted = [
                ("assumed", false),
                ("meant", false),
                ("one", true),
                ("two", true),
            ];
            assert!(
                whole
                    && seen
                        .iter()
                        .map(|(path, plain)| (path.as_str(), *plain))
                        .eq(wanted),
                "{seen:?}"
            );
        }
        git(&["update-index", "--split-index"]);
        assert!(!index(&dir.path().join(".git"), 20, &mut |_| ()));
    }
}
