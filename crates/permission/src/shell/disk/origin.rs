//! The files that program names refer to.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Disk, MAX_LOOKUPS};
use crate::shell::expand::ShellState;

/// The kind of file that a program's name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file on `PATH` outside the project.
    System,
    /// A file in the project, or in a directory that other users may write.
    Other,
    /// No file on `PATH`.
    Missing,
}

/// The results for the names of one line.
#[derive(Debug, Default)]
pub(super) struct Origins {
    known: HashMap<String, Origin>,
    /// The directories of `PATH`, each with `true` if a command may put a program there.
    dirs: Option<Rc<[(PathBuf, bool)]>>,
    /// Programs of the system that come after such a directory.
    shadowable: HashSet<String>,
    /// The programs in the system's directories of `PATH`.
    installed: Option<Rc<[InstalledProgram]>>,
}

/// The file of a program that was found on `PATH`.
pub(in crate::shell) struct ProgramOnPath {
    /// The path with symlinks resolved.
    pub(in crate::shell) resolved: PathBuf,
    /// The directory of `PATH` with the name.
    path: PathBuf,
    /// True if a command could put another file before it.
    is_shadowable: bool,
}

/// A program in one of the system's directories of `PATH`.
#[derive(Debug)]
struct InstalledProgram {
    name: String,
    path: PathBuf,
    /// The device and inode of the file, with links resolved.
    file: (u64, u64),
    bytes: u64,
}

impl Disk<'_> {
    /// Returns the kind of file that a name refers to.
    pub(crate) fn origin(&mut self, name: &str, state: &ShellState) -> Origin {
        // A relative path is another file in another directory.
        let is_fixed = !name.contains('/') || name.starts_with('/');
        if is_fixed && let Some(origin) = self.origins.known.get(name) {
            return *origin;
        }
        // Each lookup reads the disk several times, so their number is limited.
        let origin = if self.origins.known.len() >= MAX_LOOKUPS {
            Origin::Other
        } else {
            self.look_up(name, state)
        };
        self.origins.known.insert(name.to_owned(), origin);
        origin
    }

    fn dirs(&mut self) -> Rc<[(PathBuf, bool)]> {
        if let Some(dirs) = &self.origins.dirs {
            return dirs.clone();
        }
        let absolute = self
            .context
            .path_dirs()
            .filter(|(dir, _)| dir.is_absolute());
        let dirs: Rc<[(PathBuf, bool)]> = absolute.map(|(dir, open)| (dir.clone(), open)).collect();
        self.origins.dirs = Some(dirs.clone());
        dirs
    }

    /// Returns the file that a name without a slash refers to; `None` if there is none.
    pub(in crate::shell) fn find_on_path(&mut self, name: &str) -> Option<ProgramOnPath> {
        let mut is_shadowable = false;
        for (dir, open) in self.dirs().iter() {
            is_shadowable |= open;
            let path = dir.join(name);
            if base::executable::is_executable(&path) {
                return Some(ProgramOnPath {
                    resolved: path.canonicalize().ok()?,
                    path,
                    is_shadowable,
                });
            }
        }
        None
    }

    /// Returns the names of the file that a program's name refers to: the name of the file itself,
    /// and those that the system's directories of `PATH` have for it or for a copy of it. Empty if
    /// the given name is one of the latter, because then it determines the program.
    pub(in crate::shell) fn names_of_program(
        &mut self,
        name: &str,
        state: &ShellState,
    ) -> Vec<String> {
        let paths: Vec<PathBuf> = if name.starts_with('/') {
            vec![PathBuf::from(name)]
        } else if name.contains('/') {
            state.cwd.iter().map(|cwd| cwd.join(name)).collect()
        } else {
            self.find_on_path(name)
                .into_iter()
                .map(|program| program.path)
                .collect()
        };
        let base = name.rsplit('/').next().unwrap_or(name);
        let mut names = vec![];
        for path in paths {
            let Ok(file) = std::fs::metadata(&path) else {
                continue;
            };
            if !file.is_file() {
                continue;
            }
            let known = self.installed_as(&path, &file);
            if known.iter().any(|known| known == base) {
                continue;
            }
            let real = path.canonicalize().ok();
            let real = real
                .as_deref()
                .and_then(Path::file_name)
                .map(|name| name.to_string_lossy().into_owned());
            names.extend(known.into_iter().chain(real));
        }
        names.sort();
        names.dedup();
        names
    }

    /// Returns the names under which a file, or a copy of it, is a program of the system.
    fn installed_as(&mut self, path: &Path, file: &Metadata) -> Vec<String> {
        // A script of the project is not a copy of a program, so the search is not worth its cost.
        if file.nlink() == 1
            && is_script(path)
            && path
                .canonicalize()
                .is_ok_and(|real| self.context.is_open(&real))
        {
            return vec![];
        }
        let id = (file.dev(), file.ino());
        let is_same = |program: &&InstalledProgram| {
            program.file == id
                || program.bytes == file.len() && are_alike(path, &program.path).unwrap_or(true)
        };
        self.installed()
            .iter()
            .filter(is_same)
            .map(|program| program.name.clone())
            .collect()
    }

    fn installed(&mut self) -> Rc<[InstalledProgram]> {
        if let Some(installed) = &self.origins.installed {
            return installed.clone();
        }
        let dirs = self.dirs();
        let entries = dirs
            .iter()
            .filter(|(_, open)| !open)
            .filter_map(|(dir, _)| std::fs::read_dir(dir).ok())
            .flatten();
        let programs = entries.flatten().filter_map(|entry| {
            let path = entry.path();
            let file = std::fs::metadata(&path).ok().filter(Metadata::is_file)?;
            let name = entry.file_name().into_string().ok()?;
            Some(InstalledProgram {
                name,
                path,
                file: (file.dev(), file.ino()),
                bytes: file.len(),
            })
        });
        let installed: Rc<[InstalledProgram]> = programs.collect();
        self.origins.installed = Some(installed.clone());
        installed
    }

    fn look_up(&mut self, name: &str, state: &ShellState) -> Origin {
        let context = self.context;
        if let Some((_, base)) = name.rsplit_once('/') {
            let path = match state.cwd.as_slice() {
                [cwd] => cwd.join(name),
                _ if name.starts_with('/') => PathBuf::from(name),
                _ => return Origin::Other,
            };
            let is_system_program = name.starts_with('/')
                && path.canonicalize().is_ok_and(|path| {
                    self.find_on_path(base).is_some_and(|program| {
                        program.resolved == path && !context.is_open(&program.resolved)
                    })
                });
            return if is_system_program {
                Origin::System
            } else {
                Origin::Other
            };
        }
        // A user with `.` on `PATH` means the project's program, and would get the system's.
        let meant = |entry: &PathBuf| {
            state
                .cwd
                .iter()
                .any(|cwd| base::executable::is_executable(&cwd.join(entry).join(name)))
        };
        if context.path_left_out.iter().any(meant) {
            return Origin::Other;
        }
        // A file of the project, or a link to one, belongs to the project wherever it is found.
        match self.find_on_path(name) {
            Some(program)
                if !context.is_open(&program.resolved) && !context.is_open(&program.path) =>
            {
                if program.is_shadowable {
                    self.origins.shadowable.insert(name.to_owned());
                }
                Origin::System
            }
            Some(_) => Origin::Other,
            None => Origin::Missing,
        }
    }

    /// Returns whether a directory that a command may put a program into comes before the system's
    /// program of this name.
    pub(crate) fn is_shadowable(&self, name: &str) -> bool {
        self.origins.shadowable.contains(name)
    }
}

/// Returns whether a file is a program, under another name or as a copy.
pub(in crate::shell) fn is_same_program(path: &Path, program: &Path) -> bool {
    let (Ok(one), Ok(other)) = (std::fs::metadata(path), std::fs::metadata(program)) else {
        return false;
    };
    let is_copy =
        || one.is_file() && one.len() == other.len() && are_alike(path, program).unwrap_or(true);
    (one.dev(), one.ino()) == (other.dev(), other.ino()) || is_copy()
}

/// Returns whether a file begins with `#!`.
fn is_script(path: &Path) -> bool {
    let mut start = [0; 2];
    base::file::open_regular(path)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok()
        && start == *b"#!"
}

/// Compares the contents of two files.
fn are_alike(one: &Path, other: &Path) -> io::Result<bool> {
    const PIECE: usize = 1 << 16;
    let mut one = BufReader::with_capacity(PIECE, base::file::open_regular(one)?);
    let mut other = BufReader::with_capacity(PIECE, base::file::open_regular(other)?);
    loop {
        let left = one.fill_buf()?;
        let right = other.fill_buf()?;
        let size = left.len().min(right.len());
        if size == 0 || left[..size] != right[..size] {
            return Ok(left.is_empty() && right.is_empty());
        }
        one.consume(size);
        other.consume(size);
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::PermissionContext;
    use crate::shell::analyze;

    /// Creates an executable file.
    fn program(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn programs_that_the_project_can_place_on_the_path_are_foreign() {
        // Outside of directories that any user may write, if this machine has a usable one.
        let places = [env!("CARGO_MANIFEST_DIR"), "/opt", "/srv", "/var/lib"].map(PathBuf::from);
        let mut places = places.into_iter().chain(std::env::home_dir());
        let usable = |context: PathBuf| {
            (!PermissionContext::default().is_open(&context))
                .then(|| tempfile::tempdir_in(context).ok())
        };
        let Some(dir) = places.find_map(|context| usable(context).flatten()) else {
            return;
        };
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("ws");
        let bin = top.join("bin");
        let shared = top.join("shared");
        std::fs::create_dir_all(root.join("node_modules/.bin")).unwrap();
        for path in [
            "bin/system",
            "bin/both",
            "ws/node_modules/.bin/both",
            "ws/tool",
            "shared/common",
        ] {
            program(&top.join(path));
        }
        std::fs::write(root.join("node_modules/.bin/system"), "cannot be started").unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
        symlink(root.join("tool"), bin.join("led")).unwrap();
        symlink(&root, top.join("alias")).unwrap();
        let judge = |path: &[PathBuf], command: &str, trusted: bool| {
            let context = PermissionContext {
                cwd: root.clone(),
                root: root.clone(),
                path: path.to_vec(),
                is_trusted: trusted,
                ..PermissionContext::default()
            };
            let line = analyze(command, &context);
            line.units.iter().any(|unit| {
                unit.untrusted_program
                    .as_deref()
                    .is_some_and(|why| !why.contains("not found"))
            })
        };
        let first = [root.join("node_modules/.bin"), bin.clone()];
        let last = [bin.clone(), root.join("node_modules/.bin")];
        let alias = [top.join("alias/node_modules/.bin"), bin.clone()];
        let common = [shared.clone(), bin.clone()];
        let table: [(&[PathBuf], &str, bool, bool); 16] = [
            (&last, "system", false, false),
            (&last, "both", false, false),
            (&first, "both", false, true),
            (&first, "both", true, true),
            (&alias, "both", false, true),
            (&last, "led", false, true),
            (&common, "common", false, true),
            (&common, "system", false, false),
            (&first, "system", false, false),
            (&first, "cp x node_modules/.bin/system; system", false, true),
            (
                &first,
                "echo x > node_modules/.bin/system; system",
                false,
                true,
            ),
            (&first, "for i in 1 2; do system; cp x y; done", false, true),
            (&first, "cp x y; system", true, false),
            (&last, "cp x y; system", false, false),
            (&[".".into(), bin.clone()], "system", false, false),
            (&["".into(), bin.clone()], "system", false, false),
        ];
        for (path, command, trusted, wanted) in table {
            assert_eq!(
                judge(path, command, trusted),
                wanted,
                "{command} {path:?} {trusted}"
            );
        }
    }
}
