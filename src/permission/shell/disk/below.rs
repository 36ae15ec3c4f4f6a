//! What lies below a directory: secrets where it is read to its bottom, files that decide what runs
//! where those that fit a name are changed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::Disk;
use crate::permission::shell::expand::{Arg, ShellState};
use crate::permission::shell::unit::Unit;
use crate::permission::{Action, protected, wildcard};

/// Of names below one directory, so many are looked at: a sample that finds what usually lies near the top.
const LOOKED_AT: usize = 512;

/// More directories lie below than one line may look at.
struct TooMany;

impl Disk<'_> {
    /// Whether a directory that is read to its bottom holds secrets.
    pub(crate) fn below(&mut self, arg: &Arg, only: &[Arg], not: &[Arg], unit: &mut Unit, state: &ShellState) {
        let (Some(text), [cwd]) = (arg.text(), state.cwd.as_slice()) else { return };
        let secret = |_: &Path, name: &str| {
            protected::secret_name(name) && !fits(not, name) && (only.is_empty() || fits(only, name))
        };
        match self.first_below(cwd.join(text), &[".git"], &secret) {
            Ok(Some(path)) => {
                let shown = self.shown(&path);
                unit.secret(&shown, &format!("it reads {shown} too, which may hold keys or passwords"));
            }
            Ok(None) => {}
            Err(TooMany) => unit.floor(Action::Ask, "it reads more directories than are looked at"),
        }
    }

    /// Asks about files that are changed, whose names fit and which lie below one of the directories,
    /// where one decides what runs.
    pub(crate) fn changed_below(&mut self, dirs: &[Arg], names: &[Arg], unit: &mut Unit, state: &ShellState) {
        let root = self.place.root.clone();
        let decides =
            |path: &Path, name: &str| fits(names, name) && protected::control(path.strip_prefix(&root).unwrap_or(path));
        for dir in dirs {
            let Some(texts) = dir.texts().filter(|_| !state.cwd.is_empty()) else {
                return unit.floor(Action::Ask, &format!("which files it changes below {} is not known", dir.raw));
            };
            for path in texts.iter().flat_map(|text| state.cwd.iter().map(move |cwd| cwd.join(text))) {
                if let Ok(Some(path)) = self.first_below(crate::worktree::normal(&path), &["objects"], &decides) {
                    let reason = format!("it may change {}, which decides what runs here", self.shown(&path));
                    return unit.floor(Action::Ask, &reason);
                }
            }
        }
    }

    /// Asks about directories that are copied where a file below one would decide what runs.
    pub(crate) fn copied_below(&mut self, from: &[Arg], to: &Arg, unit: &mut Unit, state: &ShellState) {
        let Some(to) = to.text().filter(|_| !state.cwd.is_empty()) else { return };
        let sources = from.iter().filter_map(Arg::text).flat_map(|text| state.cwd.iter().map(move |cwd| (text, cwd)));
        for (text, cwd) in sources {
            let (dir, to) = (cwd.join(text), crate::worktree::normal(&cwd.join(to)));
            let to = to.strip_prefix(&self.place.root).unwrap_or(&to).to_owned();
            let base = dir.file_name().map(PathBuf::from).unwrap_or_default();
            let decides = |path: &Path, _: &str| {
                path.strip_prefix(&dir).is_ok_and(|path| {
                    protected::control(&to.join(path)) || protected::control(&to.join(&base).join(path))
                })
            };
            if let Ok(Some(path)) = self.first_below(dir.clone(), &["objects"], &decides) {
                let reason = format!("a copy of {} decides what runs here", self.shown(&path));
                return unit.floor(Action::Ask, &reason);
            }
        }
    }

    /// Asks about patches that name a file that decides what runs, and about those that cannot be read.
    pub(crate) fn patched(&self, files: &[Arg], unit: &mut Unit, state: &ShellState) {
        const LONGEST: u64 = 1 << 20;
        const BEFORE: [&str; 8] =
            ["+++ ", "--- ", "*** ", "Index: ", "rename to ", "copy to ", "rename from ", "diff --git "];
        let read = |path: PathBuf| {
            let short = std::fs::metadata(&path).is_ok_and(|data| data.is_file() && data.len() <= LONGEST);
            short.then(|| std::fs::read(path).ok()).flatten()
        };
        let texts: Option<Vec<Vec<u8>>> = files
            .iter()
            .flat_map(|file| state.cwd.iter().map(move |cwd| file.text().map(|text| cwd.join(text))))
            .map(|path| read(path?))
            .collect();
        let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
            return unit.floor(Action::Ask, "which files it changes stands in the patch");
        };
        let texts = texts.iter().map(|text| String::from_utf8_lossy(text)).collect::<Vec<_>>();
        let lines = texts.iter().flat_map(|text| text.lines());
        let named = lines.filter_map(|line| BEFORE.iter().find_map(|before| line.strip_prefix(before)));
        // `a/x b/x`, in quotes where a name is odd: the first folder is none of the project's.
        let names = named.flat_map(|names| names.split(['\t', ' ', '"'])).filter(|name| !name.is_empty());
        if let Some(name) = names.into_iter().find(|name| protected::control(Path::new(name)) || name.contains('\\')) {
            unit.floor(Action::Ask, &format!("the patch names {name}, which decides what runs here"));
        }
    }

    /// The first file below a directory that is wanted, the upper ones first.
    fn first_below(
        &mut self,
        dir: PathBuf,
        skipped: &[&str],
        wanted: &dyn Fn(&Path, &str) -> bool,
    ) -> Result<Option<PathBuf>, TooMany> {
        const SKIPPED: [&str; 5] = ["node_modules", "target", "dist", "build", ".venv"];
        let mut dirs = VecDeque::from([dir]);
        let mut left = LOOKED_AT;
        while let Some(dir) = dirs.pop_front() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if left == 0 {
                    return Ok(None);
                }
                left -= 1;
                self.globs.entries = self.globs.entries.checked_sub(1).ok_or(TooMany)?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if !SKIPPED.contains(&name.as_str()) && !skipped.contains(&name.as_str()) {
                        dirs.push_back(entry.path());
                    }
                } else if wanted(&entry.path(), &name) {
                    return Ok(Some(entry.path()));
                }
            }
        }
        Ok(None)
    }

    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.place.root).unwrap_or(path).display().to_string()
    }
}

/// Whether a name fits one of the patterns, letters compared without regard to case.
fn fits(patterns: &[Arg], name: &str) -> bool {
    patterns.iter().any(|pattern| {
        let pattern = pattern.text().or(pattern.pattern()).unwrap_or_default();
        wildcard::matches_folded(pattern, name)
    })
}
