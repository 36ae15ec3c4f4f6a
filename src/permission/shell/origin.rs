//! Which file a program's name means.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::rc::Rc;

use super::judge;
use super::state::State;
use super::walk::{LOOKUPS, Origin, Walk};
use super::{Effect, Unit};

/// What was found out about the names of one line.
#[derive(Debug, Default)]
pub(super) struct Origins {
    known: HashMap<String, Origin>,
    /// The directories of `PATH`, each with whether a command may put a program there.
    dirs: Option<Rc<[(PathBuf, bool)]>>,
    /// Programs of the system that such a directory stands before.
    behind: HashSet<String>,
}

impl Walk<'_> {
    /// Which file a name means.
    pub(super) fn origin(&mut self, name: &str, state: &State) -> Origin {
        // The same relative path is another file in another directory.
        let fixed = !name.contains('/') || name.starts_with('/');
        if let Some(origin) = self.origins.known.get(name).filter(|_| fixed) {
            return *origin;
        }
        // The disk is asked a few times for each; a line with so many programs is not looked up to its end.
        let origin = if self.origins.known.len() >= LOOKUPS { Origin::Other } else { self.look_up(name, state) };
        self.origins.known.insert(name.to_owned(), origin);
        origin
    }

    fn dirs(&mut self) -> Rc<[(PathBuf, bool)]> {
        if let Some(dirs) = &self.origins.dirs {
            return dirs.clone();
        }
        let open = |dir: &PathBuf| {
            self.place.is_open(dir) || std::fs::canonicalize(dir).is_ok_and(|dir| self.place.is_open(&dir))
        };
        let absolute = self.place.path.iter().filter(|dir| dir.is_absolute());
        let dirs: Rc<[(PathBuf, bool)]> = absolute.map(|dir| (dir.clone(), open(dir))).collect();
        self.origins.dirs = Some(dirs.clone());
        dirs
    }

    /// The file that a name without a slash means, as it is found and as it is, and whether a command
    /// could put another before it.
    pub(super) fn on_path(&mut self, name: &str) -> Option<(PathBuf, PathBuf, bool)> {
        let mut behind = false;
        for (dir, open) in self.dirs().iter() {
            behind |= open;
            let path = dir.join(name);
            if crate::process::runs(&path) {
                return Some((path.canonicalize().ok()?, path, behind));
            }
        }
        None
    }

    fn look_up(&mut self, name: &str, state: &State) -> Origin {
        let place = self.place;
        if let Some((_, base)) = name.rsplit_once('/') {
            let path = match state.cwd.as_slice() {
                [cwd] => cwd.join(name),
                _ if name.starts_with('/') => PathBuf::from(name),
                _ => return Origin::Other,
            };
            let same = name.starts_with('/')
                && path.canonicalize().is_ok_and(|path| {
                    self.on_path(base).is_some_and(|(real, ..)| real == path && !place.is_open(&real))
                });
            return if same { Origin::System } else { Origin::Other };
        }
        if super::builtins::BUILTINS.contains(&name) {
            return Origin::Builtin;
        }
        // Somebody with `.` on their `PATH` means the project's program, and would get the system's.
        let meant = |entry: &PathBuf| state.cwd.iter().any(|cwd| crate::process::runs(&cwd.join(entry).join(name)));
        if place.path_left_out.iter().any(meant) {
            return Origin::Other;
        }
        // A file of the project, or one that it leads to, is the project's wherever it is found.
        match self.on_path(name) {
            Some((real, path, behind)) if !place.is_open(&real) && !place.is_open(&path) => {
                if behind {
                    self.origins.behind.insert(name.to_owned());
                }
                Origin::System
            }
            Some(_) => Origin::Other,
            None => Origin::Missing,
        }
    }

    /// After the whole line: where a part of it writes what another one runs, the line is the program,
    /// and is searched for what is denied.
    pub(super) fn made_settled(&mut self, command: &str) {
        let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let edited = |unit: &Unit| -> Vec<String> {
            let needs = unit.touches.iter().filter(|need| need.permission == "edit");
            needs.flat_map(|need| &need.patterns).map(|path| last(path)).collect()
        };
        let made: Vec<Vec<String>> = self.units.iter().map(edited).collect();
        if made.iter().all(Vec::is_empty) {
            return;
        }
        for (at, unit) in self.units.iter_mut().enumerate() {
            let Some(program) = &unit.program else { continue };
            let base = last(program);
            let mut runs: Vec<String> = judge::runs_of_itself(&base).iter().map(|name| (*name).to_owned()).collect();
            if judge::is_language(&base) || judge::is_language(judge::family(&base)) || judge::is_shell(&base) {
                runs.extend(unit.normal.split(' ').map(last));
            }
            runs.push(base);
            let others = made.iter().enumerate().filter(|(maker, _)| *maker != at);
            if others.flat_map(|(_, names)| names).any(|name| runs.contains(name)) {
                unit.texts.push(command.to_owned());
            }
        }
    }

    /// After the whole line: a part of it may put a program where it is found before the system's.
    /// A project that the user trusts may have such a directory on `PATH`.
    pub(super) fn names_settled(&mut self) {
        if self.place.trusted || self.origins.behind.is_empty() {
            return;
        }
        let makes =
            |unit: &Unit| unit.effect != Effect::Reads || unit.touches.iter().any(|need| need.permission == "edit");
        let makers: Vec<usize> =
            self.units.iter().enumerate().filter(|(_, unit)| makes(unit)).map(|(at, _)| at).collect();
        for (at, unit) in self.units.iter_mut().enumerate() {
            let other = makers.iter().any(|maker| *maker != at);
            let Some(name) = unit.program.as_deref().filter(|name| other && self.origins.behind.contains(*name)) else {
                continue;
            };
            unit.foreign = Some(format!("this line may put another {name} before the system's"));
            unit.effect_at_least(Effect::Unproven);
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::permission::Place;
    use crate::permission::shell::analyse;

    /// Makes something that can be started.
    fn program(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn what_the_project_can_put_on_the_path_is_the_projects() {
        // Not below a directory that anybody may write, if this machine has one we can use.
        let places = [env!("CARGO_MANIFEST_DIR"), "/opt", "/srv", "/var/lib"].map(PathBuf::from);
        let mut places = places.into_iter().chain(std::env::home_dir());
        let usable = |place: PathBuf| (!Place::default().is_open(&place)).then(|| tempfile::tempdir_in(place).ok());
        let Some(dir) = places.find_map(|place| usable(place).flatten()) else { return };
        let top = dir.path().canonicalize().unwrap();
        let (root, bin, shared) = (top.join("ws"), top.join("bin"), top.join("shared"));
        std::fs::create_dir_all(root.join("node_modules/.bin")).unwrap();
        for path in ["bin/system", "bin/both", "ws/node_modules/.bin/both", "ws/tool", "shared/common"] {
            program(&top.join(path));
        }
        std::fs::write(root.join("node_modules/.bin/system"), "cannot be started").unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
        symlink(root.join("tool"), bin.join("led")).unwrap();
        symlink(&root, top.join("alias")).unwrap();
        let judge = |path: &[PathBuf], command: &str, trusted: bool| {
            let place =
                Place { cwd: root.clone(), root: root.clone(), path: path.to_vec(), trusted, ..Place::default() };
            let line = analyse(command, &place);
            line.units.iter().any(|unit| unit.foreign.as_deref().is_some_and(|why| !why.contains("not found")))
        };
        let (first, last) =
            ([root.join("node_modules/.bin"), bin.clone()], [bin.clone(), root.join("node_modules/.bin")]);
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
            (&first, "echo x > node_modules/.bin/system; system", false, true),
            (&first, "for i in 1 2; do system; cp x y; done", false, true),
            (&first, "cp x y; system", true, false),
            (&last, "cp x y; system", false, false),
            (&[".".into(), bin.clone()], "system", false, false),
            (&["".into(), bin.clone()], "system", false, false),
        ];
        for (path, command, trusted, wanted) in table {
            assert_eq!(judge(path, command, trusted), wanted, "{command} {path:?} {trusted}");
        }
    }
}
