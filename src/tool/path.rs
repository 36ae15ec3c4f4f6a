//! From the path a model writes to the place on disk, the way the kernel would walk there, so that
//! what is judged and shown is what will be opened: symlinks are followed one by one, `..` after a
//! symlink leaves its target, a missing tail is allowed.

use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::{Context, Failure};
use crate::permission::Need;
use crate::text;

/// How many symlinks a path may go through.
const LINKS: usize = 40;

/// A place on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// For people and the model: relative to the worktree, control characters written out.
    pub shown: String,
    /// Absolute, as the editor knows it: below the session's cwd as the editor spells that.
    pub path: PathBuf,
    /// Absolute, all symlinks followed. This is what is opened and what is judged.
    pub real: PathBuf,
    /// For rules: `real` relative to the worktree.
    pub pattern: String,
    /// Whether it lies in the project.
    pub inside: bool,
    /// What is there.
    pub found: Found,
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Nothing.
    Nothing,
}

impl Resolved {
    /// The need to leave the project, where this place is outside: the directory that holds it, or
    /// the directory itself.
    pub fn outside(&self) -> Option<Need> {
        if self.inside {
            return None;
        }
        let dir = match self.found {
            Found::Directory => self.real.as_path(),
            Found::File | Found::Nothing => self.real.parent().unwrap_or(&self.real),
        };
        Some(outside(dir, &self.real))
    }

    /// The needs of working here: leaving the project where it is outside, then `own`.
    pub fn needs(&self, own: Need) -> Vec<Need> {
        self.outside().into_iter().chain([own]).collect()
    }

    /// Walks the path again, right before it is used.
    ///
    /// # Errors
    /// To the model, when it now leads elsewhere.
    pub fn still(&self) -> Result<(), Failure> {
        match walk(&self.path) {
            Ok(real) if real == self.real => Ok(()),
            _ => Err(Failure::Tell(format!(
                "{} leads to another place than when it was checked. Nothing was done; look at it again.",
                self.shown
            ))),
        }
    }
}

/// The need to work below a directory outside of the project.
pub fn outside(dir: &Path, path: &Path) -> Need {
    let slashes = |path: &Path| path.display().to_string().replace('\\', "/");
    let pattern = format!("{}/*", slashes(dir).trim_end_matches('/'));
    let mut need = Need::new("external_directory", pattern.clone()).always(pattern);
    need.metadata.insert("filepath".into(), Value::String(slashes(path)));
    need.metadata.insert("parentDir".into(), Value::String(slashes(dir)));
    need
}

/// Finds the place a model means. Looks at the disk, opens nothing.
///
/// # Errors
/// To the model: what is no path, what leads into a process's descriptors or memory, what is
/// neither file nor directory, a file written like a directory.
pub fn resolve(context: &Context, written: &str) -> Result<Resolved, Failure> {
    let shown = text::escaped(written);
    let tell = |why: String| Err(Failure::Tell(why));
    if written.is_empty() {
        return tell("The path is empty.".into());
    }
    if written.contains('\0') {
        return tell(format!("The path \"{shown}\" contains a NUL character; no file can have that name."));
    }
    let decoded = written.strip_prefix("file://").map(decode);
    let written = decoded.as_deref().unwrap_or(written);
    if ["$HOME", "${"].iter().any(|start| written.starts_with(start)) {
        return tell(format!(
            "Variables in paths are not expanded: \"{shown}\". Write the path itself; ~ is the home directory, ./ in front makes the name literal."
        ));
    }
    let absolute = match written.strip_prefix('~') {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => {
            let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
            match home_of(user) {
                Some(home) => home.join(rest),
                None => {
                    return tell(format!(
                        "There is no user {user}, so \"{shown}\" names no home directory. Put ./ in front if the name begins with a ~."
                    ));
                }
            }
        }
        _ => context.absolute(written),
    };
    let real = match walk(&absolute) {
        Ok(real) => real,
        Err(e) => {
            return tell(match e {
                Astray::File => format!("Not a directory on the way: {shown}"),
                Astray::Loop => format!("Too many symbolic links: {shown}"),
                Astray::Internals => special(&shown),
                Astray::Io(e) => format!("Cannot look at {shown}: {e}"),
            });
        }
    };
    let found = match std::fs::metadata(&real) {
        Ok(data) if data.is_dir() => Found::Directory,
        Ok(data) if data.is_file() => Found::File,
        Ok(_) => return tell(special(&shown)),
        Err(_) => Found::Nothing,
    };
    let like_directory = written.ends_with('/') || written.ends_with("/.");
    if like_directory && found == Found::File {
        return tell(format!("Not a directory: {shown}"));
    }
    let path = match std::fs::canonicalize(&context.cwd).ok().as_deref().and_then(|cwd| real.strip_prefix(cwd).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => context.cwd.clone(),
        Some(rest) => context.cwd.join(rest),
        None => real.clone(),
    };
    let pattern = context.relative(&real);
    Ok(Resolved {
        shown: text::escaped(&pattern),
        inside: context.worktree.contains(&real),
        path,
        pattern,
        real,
        found,
    })
}

fn special(shown: &str) -> String {
    format!("{shown} is not a regular file (a device, pipe, socket or process internals); it is not opened.")
}

/// Percent-decodes once.
fn decode(uri: &str) -> String {
    let uri = uri.strip_prefix("localhost").unwrap_or(uri);
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = uri.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let pair = || Some(hex(*bytes.get(at + 1)?)? << 4 | hex(*bytes.get(at + 2)?)?);
        match (byte == b'%').then(pair).flatten() {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The home directory of another user, from the local user database.
fn home_of(user: &str) -> Option<PathBuf> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
    line.split(':').nth(5).map(PathBuf::from).filter(|home| home.is_absolute())
}

/// Why a path leads nowhere.
#[derive(Debug)]
enum Astray {
    /// A file has something below it.
    File,
    /// Too many symlinks.
    Loop,
    /// What `/proc` shows of a process: descriptors are our own connection, memory and environment
    /// hold keys.
    Internals,
    /// The system's word.
    Io(io::Error),
}

/// Follows an absolute path as the kernel does. What does not exist is kept as written.
fn walk(path: &Path) -> Result<PathBuf, Astray> {
    let mut real = PathBuf::from("/");
    let mut ahead: Vec<PathBuf> = pieces(path);
    let mut links = 0;
    let mut missing = false;
    while let Some(piece) = ahead.pop() {
        match piece.components().next() {
            Some(Component::RootDir) => real = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                real.pop();
            }
            Some(Component::Normal(name)) => {
                real.push(name);
                if process_internals(&real) {
                    return Err(Astray::Internals);
                }
                if missing {
                    continue;
                }
                match std::fs::symlink_metadata(&real) {
                    Ok(data) if data.is_symlink() => {
                        links += 1;
                        if links > LINKS {
                            return Err(Astray::Loop);
                        }
                        let target = std::fs::read_link(&real).map_err(Astray::Io)?;
                        real.pop();
                        ahead.extend(pieces(&target));
                    }
                    Ok(data) if !data.is_dir() && !ahead.is_empty() => return Err(Astray::File),
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Err(Astray::File),
                    // Missing, or not ours to look at: then nothing below it can be opened either.
                    Err(_) => missing = true,
                }
            }
            _ => {}
        }
    }
    Ok(real)
}

/// The components of a path, last one first.
fn pieces(path: &Path) -> Vec<PathBuf> {
    path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect()
}

fn process_internals(path: &Path) -> bool {
    let mut parts = path.iter().skip(1).filter_map(|part| part.to_str());
    if parts.next() != Some("proc") {
        return false;
    }
    let process =
        parts.next().is_some_and(|p| p == "self" || p == "thread-self" || p.bytes().all(|b| b.is_ascii_digit()));
    let internals = ["fd", "fdinfo", "environ", "root", "mem", "map_files", "task"];
    process && parts.next().is_some_and(|part| internals.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::super::test::Stage;
    use super::*;

    fn stage() -> Stage {
        use std::os::unix::fs::symlink;
        let stage = Stage::new();
        stage.write("src/deep/f", "f");
        stage.write("a.txt", "a");
        stage.write(".env", "KEY=1");
        std::fs::create_dir(stage.outside().join("d")).unwrap();
        std::fs::write(stage.outside().join("secret"), "s").unwrap();
        symlink(stage.outside(), stage.cwd().join("link")).unwrap();
        symlink(stage.outside().join("secret"), stage.cwd().join("linkf")).unwrap();
        symlink("src", stage.cwd().join("inlink")).unwrap();
        symlink("missing", stage.cwd().join("dang_in")).unwrap();
        symlink("loop", stage.cwd().join("loop")).unwrap();
        symlink(".env", stage.cwd().join(".env.example")).unwrap();
        stage
    }

    #[test]
    fn places() {
        let stage = stage();
        let context = stage.context();
        let out = |name: &str| stage.outside().join(name).display().to_string();
        let encoded = format!("file://{}/%2e%2e/x", stage.cwd().display());
        let twice = format!("file://{}/%252e%252e", stage.cwd().display());
        // Written, real place (relative ones are inside), what is there.
        let table: &[(&str, &str, Found)] = &[
            ("src/../a.txt", "a.txt", Found::File),
            ("src//deep/./f", "src/deep/f", Found::File),
            ("..hidden/f", "..hidden/f", Found::Nothing),
            ("inlink/deep/f", "src/deep/f", Found::File),
            ("inlink/../a.txt", "a.txt", Found::File),
            ("new/dir/f", "new/dir/f", Found::Nothing),
            ("dang_in", "missing", Found::Nothing),
            ("./src/../.env", ".env", Found::File),
            (".env.example", ".env", Found::File),
            ("a*.txt", "a*.txt", Found::Nothing),
            ("a.txt\n", "a.txt\n", Found::Nothing),
            ("C:\\x", "C:\\x", Found::Nothing),
            ("$postId.tsx", "$postId.tsx", Found::Nothing),
            (&twice, "%2e%2e", Found::Nothing),
            (
                "/proc/self/cwd",
                &std::fs::canonicalize("/proc/self/cwd").unwrap().display().to_string(),
                Found::Directory,
            ),
            ("link/secret", &out("secret"), Found::File),
            ("linkf", &out("secret"), Found::File),
            ("link/new", &out("new"), Found::Nothing),
            ("link/d/..", &out(""), Found::Directory),
            (&encoded, &stage.cwd().parent().unwrap().join("x").display().to_string(), Found::Nothing),
            ("/", "/", Found::Directory),
        ];
        for (written, real, found) in table {
            let resolved = resolve(&context, written).unwrap();
            assert_eq!(resolved.real, stage.cwd().join(real), "{written}");
            assert_eq!(resolved.found, *found, "{written}");
            let inside = !real.starts_with('/');
            assert_eq!(resolved.inside, inside, "{written}");
            assert_eq!(resolved.outside().is_none(), inside, "{written}");
            assert!(!resolved.shown.contains('\n'));
        }
        let home = resolve(&context, "~/x").unwrap();
        assert_eq!(home.real, std::fs::canonicalize(stage.home()).unwrap().join("x"));
        let need = resolve(&context, "link/secret").unwrap().outside().unwrap();
        assert_eq!(need.patterns, [format!("{}/*", stage.outside().display())]);
        let need = resolve(&context, "link/d").unwrap().outside().unwrap();
        assert_eq!(need.patterns, [format!("{}/d/*", stage.outside().display())]);
    }

    #[test]
    fn what_is_refused() {
        let stage = stage();
        let context = stage.context();
        let sock = std::os::unix::net::UnixListener::bind(stage.cwd().join("sock")).unwrap();
        let table = [
            ("", "empty"),
            ("a\0b", "NUL"),
            (".env/", "Not a directory"),
            ("a.txt/.", "Not a directory"),
            ("a.txt/x", "Not a directory"),
            ("loop", "symbolic links"),
            ("$HOME/x", "not expanded"),
            ("~nobody-of-that-name/x", "no user"),
            ("sock", "regular file"),
            ("/dev/zero", "regular file"),
            ("/dev/stdin", "regular file"),
            ("/dev/fd/3", "regular file"),
            ("/proc/self/fd/3", "regular file"),
            ("/proc/self/environ", "regular file"),
            ("/proc/1/root/etc/passwd", "regular file"),
        ];
        for (written, why) in table {
            let failure = resolve(&context, written).unwrap_err().to_string();
            assert!(failure.contains(why), "{written:?}: {failure}");
        }
        drop(sock);
    }
}
