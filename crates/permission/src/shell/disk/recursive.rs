//! The contents of directories that are used recursively: secrets in those that are read, control
//! files in those whose files are changed, and files that rules may be about.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::Disk;
use crate::locate::{self, Located, PathKind};
use crate::shell::expand::{Arg, ShellState};
use crate::shell::unit::{CommandUnit, Effect};
use crate::{Access, Action, PathUse, hardlinks, protected, wildcard};
use base::worktree::normal;

/// The maximum number of entries that are read below one directory: a sample that finds files near
/// the top.
const MAX_SAMPLE: usize = 512;

/// The number of directory entries reserved for lookups that lead to questions, so that lookups for
/// rules do not use all of them.
const RESERVED_ENTRIES: usize = 8_192;

/// The error that more directories lie below than one line may read.
struct TooMany;

/// The entries found below the directories of one line, by directory and skipped name.
pub(super) type Listings = HashMap<(PathBuf, &'static str), Rc<[(PathBuf, bool)]>>;

impl Disk<'_> {
    /// Records a secret below a directory that is read recursively, if there is one.
    pub(crate) fn record_secret_below(
        &mut self,
        arg: &Arg,
        only: &[Arg],
        not: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        let Some(text) = arg.text() else { return };
        let linked = self.linked_secrets();
        let is_secret = |path: &Path, name: &str| {
            let is_read = !fits(not, name) && (only.is_empty() || fits(only, name));
            is_read && (protected::secret_name(name) || hardlinks::is_among(&linked, path))
        };
        for cwd in &state.cwd {
            match self.first_below(cwd.join(text), ".git", &is_secret) {
                Ok(Some(path)) => {
                    let shown = self.shown(&path);
                    unit.add_secret(
                        &shown,
                        &format!("it reads {shown} too, which may hold keys or passwords"),
                    );
                }
                Ok(None) => {}
                Err(TooMany) => {
                    unit.ask_about_unknown_files("it reads more directories than are examined")
                }
            }
        }
    }

    /// Asks if a changed file is a control file. Those below one of the directories whose names
    /// match are changed.
    pub(crate) fn ask_about_changes_below(
        &mut self,
        dirs: &[Arg],
        names: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        let root = self.context.root.clone();
        let is_control = |path: &Path, name: &str| {
            fits(names, name) && protected::control(path.strip_prefix(&root).unwrap_or(path))
        };
        for dir in dirs {
            if state.cwd.is_empty() {
                return unit.ask_about_unknown_files(&format!(
                    "which files it changes below {} is not known",
                    dir.raw
                ));
            }
            let Some(texts) = dir.texts() else {
                return unit.ask_about_unknown_files(&format!(
                    "which files it changes below {} is not known",
                    dir.raw
                ));
            };
            for path in texts
                .iter()
                .flat_map(|text| state.cwd.iter().map(move |cwd| cwd.join(text)))
            {
                if let Ok(Some(path)) = self.first_below(normal(&path), "objects", &is_control) {
                    let reason = format!(
                        "it may change {}, which determines what runs here",
                        self.shown(&path)
                    );
                    return unit.set_minimum(Action::Ask, &reason);
                }
            }
        }
    }

    /// Asks about copied directories if a file below one would become a control file.
    pub(crate) fn ask_about_copies_below(
        &mut self,
        from: &[Arg],
        to: &Arg,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        if state.cwd.is_empty() {
            return;
        }
        let Some(to) = to.text() else { return };
        let sources = from
            .iter()
            .filter_map(Arg::text)
            .flat_map(|text| state.cwd.iter().map(move |cwd| (text, cwd)));
        for (text, cwd) in sources {
            let dir = cwd.join(text);
            let to = normal(&cwd.join(to));
            self.written_by_copy(&dir, text, &to, unit);
            let to = to
                .strip_prefix(&self.context.root)
                .unwrap_or(&to)
                .to_owned();
            let base = dir.file_name().map(PathBuf::from).unwrap_or_default();
            let becomes_control = |path: &Path, _: &str| {
                path.strip_prefix(&dir).is_ok_and(|path| {
                    protected::control(&to.join(path))
                        || protected::control(&to.join(&base).join(path))
                })
            };
            if let Ok(Some(path)) = self.first_below(dir.clone(), "objects", &becomes_control) {
                let reason = format!("a copy of {} determines what runs here", self.shown(&path));
                return unit.set_minimum(Action::Ask, &reason);
            }
        }
    }

    /// Asks about patches that name a control file, and about those that cannot be read.
    pub(crate) fn ask_about_patches(
        &self,
        files: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        const MAX_BYTES: u64 = 1 << 20;
        const BEFORE: [&str; 8] = [
            "+++ ",
            "--- ",
            "*** ",
            "Index: ",
            "rename to ",
            "copy to ",
            "rename from ",
            "diff --git ",
        ];
        let read = |path: PathBuf| base::file::read_small(&path, MAX_BYTES).ok();
        let texts: Option<Vec<Vec<u8>>> = files
            .iter()
            .flat_map(|file| {
                state
                    .cwd
                    .iter()
                    .map(move |cwd| file.text().map(|text| cwd.join(text)))
            })
            .map(|path| read(path?))
            .collect();
        let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
            return unit.ask_about_unknown_files("the files it changes are named in the patch");
        };
        let texts = texts
            .iter()
            .map(|text| String::from_utf8_lossy(text))
            .collect::<Vec<_>>();
        let lines = texts.iter().flat_map(|text| text.lines());
        let named =
            lines.filter_map(|line| BEFORE.iter().find_map(|before| line.strip_prefix(before)));
        // The form is `a/x b/x`, with quotes around unusual names; the first directory is not part
        // of the path.
        let names = named
            .flat_map(|names| names.split(['\t', ' ', '"']))
            .filter(|name| !name.is_empty());
        if let Some(name) = names
            .into_iter()
            .find(|name| protected::control(Path::new(name)) || name.contains('\\'))
        {
            unit.set_minimum(
                Action::Ask,
                &format!("the patch names {name}, which determines what runs here"),
            );
        }
    }

    /// Records the entries below directories that are used recursively, so that rules about them
    /// apply.
    ///
    /// The directories themselves are separate uses, so these never make a verdict more
    /// permissive. Only matching names are included.
    pub(crate) fn add_uses_below(
        &mut self,
        access: Access,
        arg: &Arg,
        only: &[Arg],
        not: &[Arg],
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        let patterns = arg.pattern().and_then(|pattern| {
            state
                .cwd
                .iter()
                .map(|cwd| self.glob(pattern, cwd))
                .collect()
        });
        let patterns: Option<Vec<Rc<[String]>>> = patterns;
        let texts: Vec<String> = match (arg.texts(), patterns) {
            (Some(texts), _) => texts.to_vec(),
            (None, Some(names)) => names
                .iter()
                .flat_map(|names| names.iter().cloned())
                .collect(),
            (None, None) => return,
        };
        let is_fitting = |name: &str| !fits(not, name) && (only.is_empty() || fits(only, name));
        for text in &texts {
            for cwd in &state.cwd {
                if let Some(Some(located)) = self.located(text, cwd)
                    && located.kind == PathKind::Directory
                {
                    self.uses_below(access, &located, &is_fitting, unit);
                }
            }
        }
    }

    /// Records the files below a directory that a program is given to read. Programs that only
    /// read enter it only with an option, which is recorded separately; for other programs this is
    /// unknown.
    pub(super) fn record_read_below(&mut self, dir: &Located, unit: &mut CommandUnit) {
        let lists = unit.effect != Effect::Reads;
        self.uses_below(Access::Read, dir, &|_| lists, unit);
    }

    /// Records the files that moving or copying a directory writes: below its name
    /// if the target directory exists, unless its contents are copied.
    fn written_by_copy(&mut self, from: &Path, text: &str, to: &Path, unit: &mut CommandUnit) {
        let contents = text
            .rsplit('/')
            .next()
            .is_some_and(|end| matches!(end, "." | ".."));
        if contents || text.ends_with('/') || !to.is_dir() {
            self.add_copied_files(from, to, unit);
        }
        if to.is_dir()
            && !contents
            && let Some(name) = from.file_name()
        {
            self.add_copied_files(from, &to.join(name), unit);
        }
    }

    fn add_copied_files(&mut self, from: &Path, to: &Path, unit: &mut CommandUnit) {
        let listing = self.sampled(from, "objects");
        if listing.is_empty() {
            return;
        }
        let files = listing
            .iter()
            .filter(|(_, is_dir)| !is_dir)
            .filter_map(|(path, _)| path.strip_prefix(from).ok());
        let Some(to) = locate::real(to) else { return };
        let files: Vec<PathBuf> = files.map(|path| to.join(path)).collect();
        let patterns = files
            .iter()
            .map(|path| locate::relative(path, self.context));
        self.add_sample(Access::Edit, patterns.collect(), unit);
        if !locate::is_inside(&to, self.context) {
            let patterns = files.iter().map(|path| absolute(path));
            self.add_sample(Access::Edit, patterns.collect(), unit);
        }
    }

    fn uses_below(
        &mut self,
        access: Access,
        dir: &Located,
        fitting: &dyn Fn(&str) -> bool,
        unit: &mut CommandUnit,
    ) {
        let skipped = if access == Access::Edit {
            "objects"
        } else {
            ".git"
        };
        let listing = self.sampled(&dir.path, skipped);
        let relative = |path: &Path| locate::relative(path, self.context);
        let mut patterns = patterns_of(&listing, fitting, &relative);
        // A rule about all of a directory applies even if no entry is known.
        if dir.relative != "." {
            patterns.insert(0, format!("{}/*", dir.relative));
        }
        self.add_sample(access, patterns, unit);
        if !dir.is_inside {
            // Rules may name files outside the project by their absolute paths.
            let mut patterns = vec![format!("{}/*", dir.path.display())];
            patterns.extend(patterns_of(&listing, fitting, &absolute));
            self.add_sample(access, patterns, unit);
        }
    }

    /// Returns the entries below a directory, unless that would use the reserved entries.
    fn sampled(&mut self, dir: &Path, skipped: &'static str) -> Rc<[(PathBuf, bool)]> {
        if self.globs.entries < RESERVED_ENTRIES {
            return Rc::default();
        }
        self.listing(dir, skipped).unwrap_or_default()
    }

    fn add_sample(&self, access: Access, patterns: Vec<String>, unit: &mut CommandUnit) {
        if patterns.is_empty() {
            return;
        }
        let permission = if access == Access::Edit {
            "edit"
        } else {
            "read"
        };
        self.add(
            unit,
            vec![PathUse {
                permission,
                patterns,
                ..PathUse::default()
            }],
        );
    }

    /// Returns the first wanted file below a directory, nearest to the top.
    fn first_below(
        &mut self,
        dir: PathBuf,
        skipped: &'static str,
        wanted: &dyn Fn(&Path, &str) -> bool,
    ) -> Result<Option<PathBuf>, TooMany> {
        let listing = self.listing(&dir, skipped)?;
        let mut files = listing
            .iter()
            .filter(|(_, is_dir)| !is_dir)
            .map(|(path, _)| path);
        Ok(files
            .find(|path| {
                wanted(
                    path,
                    &path.file_name().unwrap_or_default().to_string_lossy(),
                )
            })
            .cloned())
    }

    /// Returns the entries below a directory, each with `true` if it is a directory, those near the
    /// top first. Skipped directories are included, but not their entries.
    fn listing(
        &mut self,
        dir: &Path,
        skipped: &'static str,
    ) -> Result<Rc<[(PathBuf, bool)]>, TooMany> {
        const SKIPPED: [&str; 5] = ["node_modules", "target", "dist", "build", ".venv"];
        let key = (dir.to_owned(), skipped);
        if let Some(known) = self.listings.get(&key) {
            return Ok(known.clone());
        }
        let mut found = vec![];
        let mut dirs = VecDeque::from([dir.to_owned()]);
        'search: while let Some(dir) = dirs.pop_front() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if found.len() >= MAX_SAMPLE {
                    break 'search;
                }
                self.globs.entries = self.globs.entries.checked_sub(1).ok_or(TooMany)?;
                let name = entry.file_name();
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_dir && name != skipped && SKIPPED.iter().all(|skipped| name != *skipped) {
                    dirs.push_back(entry.path());
                }
                found.push((entry.path(), is_dir));
            }
        }
        let found: Rc<[(PathBuf, bool)]> = found.into();
        self.listings.insert(key, found.clone());
        Ok(found)
    }

    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.context.root)
            .unwrap_or(path)
            .display()
            .to_string()
    }
}

/// Returns whether a name matches one of the patterns, ignoring case.
fn fits(patterns: &[Arg], name: &str) -> bool {
    patterns.iter().any(|pattern| {
        let pattern = pattern.text().or(pattern.pattern()).unwrap_or_default();
        wildcard::matches_folded(pattern, name)
    })
}

/// Returns the patterns of the listed entries that fit. `name` gives the name of a path in rules.
fn patterns_of(
    listing: &[(PathBuf, bool)],
    fitting: &dyn Fn(&str) -> bool,
    name: &dyn Fn(&Path) -> String,
) -> Vec<String> {
    let mut patterns = Vec::new();
    for (path, is_dir) in listing {
        let last = path.file_name().unwrap_or_default().to_string_lossy();
        if !fitting(&last) {
            continue;
        }
        if *is_dir {
            patterns.push(format!("{}/*", name(path)));
        } else if !last.contains(".env") {
            // Those with `.env` are secrets, and asked about as such, or examples of them.
            patterns.push(name(path));
        }
    }
    patterns
}

fn absolute(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use crate::Action::{self, Allow, Ask, Deny};
    use crate::case_tables::{PathFixture, bash_rules, judge};
    use crate::{PermissionContext, Rules};

    fn lab() -> PathFixture {
        let lab = PathFixture::new();
        for file in [
            "secret/x",
            "secret/deep/y",
            "deploy/prod.yml",
            "docs/a.md",
            "private/a.txt",
            "keys/one.txt",
            "other/z",
        ] {
            let path = lab.context.root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        std::fs::create_dir(lab.context.root.join("bare")).unwrap();
        lab
    }

    fn rules(context: &PermissionContext, permission: &str, rules: &[(&str, Action)]) -> Rules {
        bash_rules(context, &[("*", Allow)]).then(&Rules::written(permission, rules))
    }

    #[test]
    fn rules_apply_to_files_changed_with_their_directory() {
        let lab = lab();
        let own = [
            ("*", Allow),
            ("secret/*", Deny),
            ("deploy/prod.yml", Deny),
            ("docs/*", Ask),
            ("bare/*", Deny),
        ];
        let own = rules(&lab.context, "edit", &own);
        let table = [
            ("rm -rf secret", Deny),
            ("rm -rf ./src/../secret/", Deny),
            ("rm -rf secr*", Deny),
            ("rm -rf bare", Deny),
            ("mv secret s2; rm s2/x; mv s2 secret", Deny),
            ("chmod -R 600 secret", Deny),
            ("find secret -delete", Deny),
            ("find secret -name '*.md' -delete", Deny),
            ("cp -r other/. secret", Deny),
            ("rm -rf deploy", Deny),
            ("cp -r deploy d2", Allow),
            ("rm -rf docs", Ask),
            ("rm -rf other", Allow),
            ("mv other o2", Allow),
            ("ls secret", Allow),
            ("rm -rf secretive", Allow),
        ];
        for (line, wanted) in table {
            assert_eq!(judge(&own, line, &lab.context).action, wanted, "{line}");
        }
    }

    #[test]
    fn rules_apply_to_files_read_with_their_directory() {
        let lab = lab();
        let own = rules(
            &lab.context,
            "read",
            &[("*", Allow), ("private/*", Deny), ("keys/one.txt", Ask)],
        );
        let table = [
            ("grep -r '' private", Deny),
            ("grep -rn x .", Deny),
            ("rg x private", Deny),
            ("cp -r private pub", Deny),
            ("tar cf x.tar private", Deny),
            ("find private -name '*.txt' -exec cat {} +", Deny),
            ("find private -name '*.txt' | xargs cat", Deny),
            ("grep -r x keys", Ask),
            ("cd nope; grep -r x keys", Ask),
            ("grep -r --include='*.md' x keys", Allow),
            ("grep -r x src", Allow),
            ("ls -R private", Allow),
            ("cp -r src s2", Allow),
        ];
        for (line, wanted) in table {
            assert_eq!(judge(&own, line, &lab.context).action, wanted, "{line}");
        }
    }

    #[test]
    fn allow_below_a_directory_does_not_allow_the_directory() {
        let lab = lab();
        let own = rules(&lab.context, "edit", &[("*", Ask), ("other/*", Allow)]);
        assert_eq!(judge(&own, "rm -rf other", &lab.context).action, Ask);
        assert_eq!(judge(&own, "rm other/z", &lab.context).action, Allow);
    }
}
