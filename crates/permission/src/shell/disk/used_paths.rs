//! The paths that a line uses, each from the directory in which the shell then is.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::{Disk, MAX_LOOKUPS};
use crate::hardlinks::FileId;
use crate::locate::{self, DirectoryCache, Located, PathKind};
use crate::shell::device;
use crate::shell::expand::{Arg, Directories, ShellState};
use crate::shell::unit::{CommandUnit, Effect};
use crate::{Access, Action, PathUse, protected, special_paths};
use base::worktree::normal;

/// The maximum number of paths of one unit; further ones are asked about without a lookup.
const MAX_PATHS: usize = 512;
/// The maximum number of paths of one unit that are recorded without a lookup.
const MAX_UNLOCATED: usize = 16_384;
/// The maximum number of uses of paths in one line.
const MAX_USES: usize = 2_000;

/// The certainty with which a word names a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Certain,
    /// One of several values of a word: a path that cannot be resolved is not a reason to ask.
    OneOf,
    /// A word of an unknown program that only looks like a path.
    Guess,
}

/// The paths of one line that were located; each is located once.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// By directory and text; `None` if a path cannot be resolved.
    located: HashMap<PathBuf, HashMap<String, Option<Rc<Located>>>>,
    lookups: usize,
    /// The directories of these paths.
    directories: DirectoryCache,
    /// The number of recorded uses.
    uses: usize,
    /// True if there were more uses than are recorded.
    has_overrun: bool,
}

impl Disk<'_> {
    /// Returns the reason why the line as a whole cannot be judged.
    pub(crate) fn overrun(&self) -> Option<&'static str> {
        self.paths
            .has_overrun
            .then_some("it uses more than 2,000 paths")
    }

    /// Returns the files with secrets that have a second name.
    pub(super) fn linked_secrets(&mut self) -> HashSet<FileId> {
        self.paths
            .directories
            .linked_files(self.context)
            .unreadable()
    }

    /// Records that a unit uses a path.
    pub(crate) fn record_use(
        &mut self,
        access: Access,
        arg: &Arg,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        if arg.text().is_some_and(device::is_harmless) {
            return;
        }
        if access == Access::Edit {
            let lost = state.cwd.is_empty() && !arg.prefix().starts_with('/');
            unit.effect_at_least(if lost {
                Effect::Unproven
            } else {
                Effect::Writes
            });
        }
        if self.paths.uses >= MAX_USES && access != Access::Edit {
            self.paths.has_overrun = true;
            unit.writes_only_plans = false;
            return;
        }
        if let Some(known) = arg.texts() {
            let spelling = if known.len() > 1 {
                Spelling::OneOf
            } else {
                Spelling::Certain
            };
            for text in known {
                self.record_spelled_use(access, text, spelling, unit, state);
            }
            return;
        }
        let all: Option<Vec<_>> = arg.pattern().and_then(|pattern| {
            state
                .cwd
                .iter()
                .map(|cwd| self.glob(pattern, cwd))
                .collect()
        });
        match all.filter(|all| !all.is_empty()) {
            Some(all) => {
                for text in all.iter().flat_map(|names| names.iter()) {
                    self.record_spelled_use(access, text, Spelling::OneOf, unit, state);
                }
            }
            None => self.unknown_path(access, arg, unit),
        }
    }

    /// Returns whether a written path is a device, in any spelling. Files below `/dev/shm` are
    /// ordinary files.
    fn device(&self, text: &str, unit: &mut CommandUnit, state: &ShellState) -> bool {
        if !text.contains("dev") && state.cwd.iter().all(|cwd| !cwd.starts_with("/dev")) {
            return false;
        }
        let from = state.cwd.first().map_or(Path::new("/"), PathBuf::as_path);
        let plain = normal(&from.join(text)).display().to_string();
        let is_device = plain.starts_with("/dev/") && !plain.starts_with("/dev/shm/");
        if is_device {
            device::written(&plain, unit);
        }
        is_device
    }

    fn unknown_path(&self, access: Access, arg: &Arg, unit: &mut CommandUnit) {
        unit.writes_only_plans = false;
        match access {
            // `~user`: outside of the project, wherever it is.
            Access::List if arg.is_literal => {
                unit.set_minimum(Action::Ask, &format!("where {} lies is not known", arg.raw))
            }
            Access::List => {}
            Access::Read => unit.ask_about_unknown_files(&format!(
                "which file it reads as {} is not known",
                arg.raw
            )),
            Access::Edit => unit.ask_about_unknown_files(&format!(
                "which file it changes as {} is not known",
                arg.raw
            )),
        }
    }

    /// Records a word of an unknown program that looks like a path, if the file exists or could be
    /// created outside the project.
    pub(crate) fn record_guessed_use(
        &mut self,
        text: &str,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        self.record_spelled_use(Access::Read, text, Spelling::Guess, unit, state);
    }

    pub(crate) fn record_text_use(
        &mut self,
        access: Access,
        text: &str,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        self.record_spelled_use(access, text, Spelling::Certain, unit, state);
    }

    fn record_spelled_use(
        &mut self,
        access: Access,
        text: &str,
        spelling: Spelling,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        // A few programs read it as an address, all others as a path with these characters.
        if let Some(path) = locate::address(text) {
            self.record_path_use(access, &path, spelling, unit, state);
        }
        self.record_path_use(access, text, spelling, unit, state);
    }

    fn record_path_use(
        &mut self,
        access: Access,
        text: &str,
        spelling: Spelling,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) {
        if text.is_empty() || device::is_harmless(text) {
            return;
        }
        if self.paths.uses >= MAX_USES {
            self.paths.has_overrun = true;
            self.record_unlocated(access, text, unit);
            return;
        }
        if access == Access::Edit && self.device(text, unit, state) {
            return;
        }
        let absolute = Path::new(text).is_absolute() || text.starts_with("~");
        if state.cwd.is_empty() && !absolute {
            unit.writes_only_plans = false;
            if access != Access::List {
                unit.ask_about_unknown_files(&format!(
                    "in which directory {text} lies is not known"
                ));
            }
            return;
        }
        // The shell has expanded other tildes, so one that reaches a program is literal.
        let text = if text.starts_with('~') {
            Cow::from(format!("./{text}"))
        } else {
            Cow::from(text)
        };
        let nowhere = [PathBuf::from("/")];
        let from: &[PathBuf] = if state.cwd.is_empty() {
            &nowhere
        } else {
            &state.cwd
        };
        let before = unit.path_uses.len();
        let mut inside = false;
        for cwd in from {
            self.paths.uses += 1;
            let Some(located) = self.located(&text, cwd) else {
                unit.set_minimum(Action::Ask, "it uses more paths than are examined");
                self.record_unlocated(access, &text, unit);
                return;
            };
            let Some(located) = located else {
                self.unresolvable(access, &text, spelling, cwd, unit);
                continue;
            };
            let is_link_of_line = self
                .links
                .iter()
                .any(|link| located.path.starts_with(link) || cwd.join(&*text).starts_with(link));
            if is_link_of_line && access != Access::List {
                unit.ask_about_unknown_files(&format!(
                    "the line itself changes where {text} leads"
                ));
            }
            if access == Access::Edit {
                let is_plan = located.is_inside
                    && located.protected.is_none()
                    && protected::is_plan(Path::new(&located.relative));
                let edits_only_plans = unit.writes_only_plans
                    || unit
                        .path_uses
                        .iter()
                        .all(|path_use| path_use.permission != "edit");
                unit.writes_only_plans = is_plan && edits_only_plans;
            }
            let is_guess = spelling == Spelling::Guess;
            if is_guess && located.is_inside && protected::control(Path::new(&located.relative)) {
                let reason = format!(
                    "{text} determines what runs here, and what the program does with it is not known"
                );
                unit.set_minimum(Action::Ask, &reason);
            }
            if located.kind == PathKind::Directory && access == Access::Read {
                inside |= located.is_inside;
                let mut uses = located.uses(Access::List);
                uses.iter_mut().for_each(|path_use| {
                    path_use.is_conditional = from.len() > 1;
                    path_use.only_reads &= !is_guess;
                });
                self.add(unit, uses);
                self.record_read_below(&located, unit);
                continue;
            }
            if is_guess && located.is_absent() && located.protected.is_none() {
                let in_root_directory = located
                    .path
                    .parent()
                    .is_none_or(|folder| folder.parent().is_none());
                if located.is_inside || located.kind == PathKind::Nowhere || in_root_directory {
                    continue;
                }
            }
            inside |= located.is_inside;
            if access == Access::List && located.is_inside && located.kind == PathKind::Directory {
                unit.listed_dirs.push(located.path.clone());
            }
            let mut uses = located.uses(access);
            // An existing file is used if the shell is in that directory.
            let is_conditional = from.len() > 1 && located.is_absent();
            uses.iter_mut().for_each(|path_use| {
                path_use.is_conditional = is_conditional;
                path_use.only_reads &= access == Access::Read && !is_guess;
            });
            self.add(unit, uses);
        }
        // The shell may be in several directories, and the path leads into the project from none of
        // them.
        if from.len() > 1 && !inside {
            unit.path_uses[before..]
                .iter_mut()
                .for_each(|path_use| path_use.is_conditional = false);
        }
    }

    /// Locates a path from a directory, once per line. Returns `None` if there were too many
    /// lookups, `Some(None)` if the path cannot be resolved.
    pub(super) fn located(&mut self, text: &str, cwd: &Path) -> Option<Option<Rc<Located>>> {
        if let Some(known) = self
            .paths
            .located
            .get(cwd)
            .and_then(|known| known.get(text))
        {
            return Some(known.clone());
        }
        if self.paths.lookups >= MAX_LOOKUPS {
            return None;
        }
        self.paths.lookups += 1;
        let found = locate::locate_literal(text, cwd, self.context, &mut self.paths.directories)
            .ok()
            .map(Rc::new);
        self.paths
            .located
            .entry(cwd.to_owned())
            .or_default()
            .insert(text.to_owned(), found.clone());
        Some(found)
    }

    /// Records a path that cannot be resolved: below a file, in a loop of links, or above an open
    /// file of a process. The program fails on it, unless an earlier command changes that. Rules
    /// apply to the path as written.
    fn unresolvable(
        &mut self,
        access: Access,
        text: &str,
        spelling: Spelling,
        cwd: &Path,
        unit: &mut CommandUnit,
    ) {
        let path = cwd.join(text);
        if access != Access::Edit && special_paths::is_own_descriptor(&path) {
            return;
        }
        let plain = normal(&path);
        let spelled = Located::at(&plain, &plain, self.context);
        // The parent of a directory that does not exist yet is unknown.
        let up = path.components().any(|part| part == Component::ParentDir);
        let is_below_link = self
            .links
            .iter()
            .any(|link| path.starts_with(link) || plain.starts_with(link));
        match access {
            Access::Edit => {
                unit.writes_only_plans = false;
                unit.ask_about_unknown_files(&format!("{text} cannot be written at present"));
            }
            Access::Read if up || is_below_link || spelling == Spelling::Certain => {
                unit.ask_about_unknown_files(&format!("{text} leads nowhere at present"));
            }
            Access::Read if spelled.is_inside && spelled.protected.is_none() => return,
            Access::Read | Access::List => {}
        }
        let mut uses = spelled.uses(access);
        uses.iter_mut()
            .for_each(|path_use| path_use.only_reads = false);
        self.add(unit, uses);
    }

    /// Records a path beyond the limit of lookups. Its target is unknown, but a deny of its name
    /// still applies.
    fn record_unlocated(&self, access: Access, text: &str, unit: &mut CommandUnit) {
        unit.writes_only_plans = false;
        if access == Access::Edit && unit.unlocated_paths.len() < MAX_UNLOCATED {
            unit.unlocated_paths.push(text.to_owned());
        }
    }

    /// Records that a link is removed or moved, which does not affect its target. Returns `false`
    /// if the path is not a link, or this is unknown.
    pub(crate) fn record_link_use(
        &mut self,
        arg: &Arg,
        unit: &mut CommandUnit,
        state: &ShellState,
    ) -> bool {
        let (Some(text), [cwd]) = (arg.text(), state.cwd.as_slice()) else {
            return false;
        };
        let path = cwd.join(text);
        if text.ends_with('/') || !path.is_symlink() {
            return false;
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return false;
        };
        let parent = parent.display().to_string();
        let Ok(parent) =
            locate::locate_literal(&parent, cwd, self.context, &mut self.paths.directories)
        else {
            return false;
        };
        let shown = Path::new(&parent.relative).join(name);
        unit.effect = Effect::Writes;
        unit.writes_only_plans = false;
        let mut entered = parent.uses(Access::List);
        entered
            .iter_mut()
            .for_each(|path_use| path_use.only_reads = false);
        self.add(unit, entered);
        let mut removal = PathUse::new("edit", normal(&shown).display().to_string());
        removal.absolute_path =
            (!parent.is_inside).then(|| parent.path.join(name).display().to_string());
        if protected::control(&shown) {
            removal.minimum = Some((
                Action::Ask,
                format!(
                    "{} determines what runs on this machine or what the agent may do",
                    shown.display()
                ),
            ));
        }
        self.add(unit, vec![removal]);
        if !self.links.contains(&path) {
            self.links.push(path);
        }
        true
    }

    pub(super) fn add(&self, unit: &mut CommandUnit, uses: Vec<PathUse>) {
        for path_use in uses {
            let is_known = |known: &&mut PathUse| {
                known.permission == path_use.permission && known.patterns == path_use.patterns
            };
            let is_full = unit.path_uses.len() >= MAX_PATHS;
            match unit.path_uses.iter_mut().find(is_known) {
                Some(known) => known.only_reads &= path_use.only_reads,
                None if is_full => {}
                None => unit.path_uses.push(path_use),
            }
            if is_full {
                unit.set_minimum(Action::Ask, "it uses more paths than are examined");
            }
        }
    }

    /// Records a link that the line creates: paths below it can no longer be judged by the present
    /// state of the disk.
    pub(crate) fn record_link(&mut self, arg: &Arg, state: &ShellState) {
        for cwd in &state.cwd {
            match arg.text() {
                Some(text) => self.links.push(normal(&cwd.join(text))),
                None => self.links.push(cwd.clone()),
            }
        }
    }

    /// Records that a directory is removed or moved: the shell cannot enter it until it is created
    /// again.
    pub(crate) fn record_removed(&mut self, arg: &Arg, state: &ShellState) {
        for cwd in &state.cwd {
            let names: Vec<String> = match (arg.texts(), arg.pattern()) {
                (Some(texts), _) => texts.to_vec(),
                (None, Some(pattern)) => self
                    .glob(pattern, cwd)
                    .map(|names| names.to_vec())
                    .unwrap_or_default(),
                (None, None) => vec![],
            };
            let dirs = names
                .iter()
                .map(|name| normal(&cwd.join(name)))
                .filter(|path| path.is_dir());
            self.gone.extend(dirs);
        }
    }

    pub(crate) fn record_created(&mut self, arg: &Arg, state: &ShellState) {
        if self.gone.is_empty() {
            return;
        }
        let Some(text) = arg.text() else { return };
        for cwd in &state.cwd {
            let made = normal(&cwd.join(text));
            self.gone.retain(|gone| !made.starts_with(gone));
        }
    }

    /// Changes the directory of the shell, to the home directory without a target. If the target
    /// may not exist, the change may fail, and the shell stays in its directory.
    pub(crate) fn chdir(
        &mut self,
        target: Option<&Arg>,
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        state.merge_outcomes();
        let before = state.directories();
        let Some(target) = target else {
            return state.set_directories(Directories {
                cwd: self.context.home.iter().cloned().collect(),
                previous: before.cwd,
            });
        };
        if !target.is("-") {
            self.record_use(Access::List, target, unit, state);
        }
        let mut next: Vec<PathBuf> = vec![];
        let mut stays: Vec<PathBuf> = vec![];
        let mut add = |path: PathBuf, to_next: bool| {
            let all = if to_next { &mut next } else { &mut stays };
            if !all.contains(&path) {
                all.push(path);
            }
        };
        let mut unknown = false;
        for text in target.texts().unwrap_or_default() {
            if text == "-" {
                unknown |= before.previous.is_empty();
                before
                    .previous
                    .iter()
                    .for_each(|path| add(path.clone(), true));
                continue;
            }
            let nowhere = [PathBuf::from("/")];
            unknown |= before.cwd.is_empty() && !Path::new(text).is_absolute();
            for cwd in if before.cwd.is_empty() {
                &nowhere[..]
            } else {
                &before.cwd
            } {
                let path = normal(&cwd.join(text));
                if state.is_physical
                    && let Ok(real) = cwd.join(text).canonicalize()
                    && real != path
                {
                    add(real, true);
                }
                let is_taken = self
                    .links
                    .iter()
                    .chain(&self.gone)
                    .any(|taken| path.starts_with(taken));
                if is_taken || !path.is_dir() {
                    add(cwd.clone(), false);
                }
                add(path, true);
            }
        }
        if target.texts().is_none() {
            state.set_changed("the directory is not known");
            unit.ask_about_unknown_files("to which directory it changes is not known");
        }
        if target.texts().is_none() || unknown || next.len() > 8 {
            return state.set_directories(Directories {
                cwd: vec![],
                previous: before.or(&before.swapped()).previous,
            });
        }
        let done = Directories {
            cwd: next,
            previous: before.cwd.clone(),
        };
        if stays.is_empty() {
            return state.set_directories(done);
        }
        // An unknown current directory stays unknown.
        let stays = if before.cwd.is_empty() { vec![] } else { stays };
        state.set_directories_by_outcome(
            done,
            Directories {
                cwd: stays,
                ..before
            },
        );
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use crate::Action::{Allow, Ask, Deny};
    use crate::Rules;
    use crate::case_tables::{PathFixture, bash_rules, judge};

    /// A path that cannot be resolved is judged as written, and asked about.
    #[test]
    fn rules_apply_to_unresolvable_paths() {
        let lab = PathFixture::new();
        let context = &lab.context;
        let own = bash_rules(context, &[("*", Allow)])
            .then(&Rules::written("edit", &[("*", Allow), ("src/*", Deny)]))
            .then(&Rules::written("read", &[("*", Allow), ("b.txt", Deny)]));
        let table = [
            ("mv a.txt c; mkdir a.txt; touch a.txt/../src/n", Deny),
            ("mv a.txt c; mkdir a.txt; touch a.txt/../n", Ask),
            ("cat a.txt/../b.txt", Deny),
            ("cat a.txt/../x", Ask),
            ("ls a.txt/../..", Ask),
            ("exec 3<.; cat /dev/fd/3/.env", Ask),
            ("cat /proc/1/fd/3", Ask),
            ("cat /proc/self/fd/3 /dev/stdin", Allow),
            ("mkdir -p https:/x; some-tool https://x/../../../notes", Ask),
            ("some-tool https://x.test/a/../b", Allow),
        ];
        for (line, wanted) in table {
            assert_eq!(judge(&own, line, context).action, wanted, "{line}");
        }
        // The parent of an unknown directory, and then a link.
        let line = format!("cat /proc/..{}/link/secret", context.root.display());
        assert_eq!(judge(&own, &line, context).action, Ask);
    }
}
