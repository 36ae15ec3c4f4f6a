//! What lies below a directory that is read to its bottom.

use std::collections::VecDeque;
use std::path::Path;

use super::Disk;
use crate::permission::shell::expand::{Arg, State};
use crate::permission::shell::unit::Unit;
use crate::permission::{Action, protected, wildcard};

impl Disk<'_> {
    /// Whether a directory that is read to its bottom holds secrets. Looks at no more than a few
    /// hundred names: a sample that finds what usually lies near the top.
    pub(crate) fn below(&mut self, arg: &Arg, only: &[Arg], not: &[Arg], unit: &mut Unit, state: &State) {
        const SKIP: [&str; 6] = [".git", "node_modules", "target", "dist", "build", ".venv"];
        let fits = |globs: &[Arg], name: &str| {
            globs.iter().any(|glob| {
                let glob = glob.text().or(glob.pattern()).unwrap_or_default();
                wildcard::matches(glob, name)
            })
        };
        let (Some(text), [cwd]) = (arg.text(), state.cwd.as_slice()) else { return };
        let mut dirs = VecDeque::from([cwd.join(text)]);
        let mut budget = 512_usize;
        while let Some(dir) = dirs.pop_front() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if budget == 0 {
                    return;
                }
                if self.globs.entries == 0 {
                    unit.floor(Action::Ask, "it reads more directories than are looked at");
                    return;
                }
                budget -= 1;
                self.globs.entries -= 1;
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if !SKIP.contains(&name.as_str()) {
                        dirs.push_back(entry.path());
                    }
                } else if protected::secret_name(&name) && !fits(not, &name) && (only.is_empty() || fits(only, &name)) {
                    self.secret_below(&entry.path(), unit);
                    return;
                }
            }
        }
    }

    fn secret_below(&self, path: &Path, unit: &mut Unit) {
        let shown = path.strip_prefix(&self.place.root).unwrap_or(path).display().to_string();
        unit.secret(&shown, &format!("it reads {shown} too, which may hold keys or passwords"));
    }
}
