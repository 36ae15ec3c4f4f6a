//! The paths a line uses, each from the directory the shell is in by then.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::{Disk, LOOKUPS};
use crate::hardlinks::FileId;
use crate::paths::{self, Folders, Located, PathKind};
use crate::shell::device;
use crate::shell::expand::{Arg, ShellState, Whereabouts};
use crate::shell::unit::{Effect, Unit};
use crate::{Access, Action, Need, places, protected};
use base::worktree::normal;

/// Paths of one unit; more are asked about unseen.
const PATHS: usize = 512;
/// Names of paths of one unit that are kept although nobody looks them up.
const UNSEEN: usize = 16_384;
/// Uses of paths in one line.
const USES: usize = 2_000;

/// How a word names a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Certain,
    /// One of several that a word may be: those that lead nowhere are nothing to ask about.
    OneOf,
    /// A word of a program nobody knows, which only looks like one.
    Guess,
}

/// The paths of one line that were looked up; the disk is asked once for each.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// By directory and text; none where a path cannot be followed.
    located: HashMap<PathBuf, HashMap<String, Option<Rc<Located>>>>,
    lookups: usize,
    /// Directories on the way to them.
    folders: Folders,
    /// How many uses were noted.
    touched: usize,
    /// More were used than are noted.
    overrun: bool,
}

impl Disk<'_> {
    /// Why the line as a whole cannot be judged.
    pub(crate) fn overrun(&self) -> Option<&'static str> {
        self.paths.overrun.then_some("it uses more than 2,000 paths")
    }

    /// The files with secrets that have a second name.
    pub(super) fn linked_secrets(&mut self) -> HashSet<FileId> {
        self.paths.folders.linked_files(self.place).unreadable()
    }

    /// Notes that a unit uses a path.
    pub(crate) fn touch(&mut self, access: Access, arg: &Arg, unit: &mut Unit, state: &ShellState) {
        if arg.text().is_some_and(device::is_harmless) {
            return;
        }
        if access == Access::Edit {
            let lost = state.cwd.is_empty() && !arg.prefix().starts_with('/');
            unit.effect_at_least(if lost { Effect::Unproven } else { Effect::Writes });
        }
        if self.paths.touched >= USES && access != Access::Edit {
            self.paths.overrun = true;
            unit.plans_only = false;
            return;
        }
        if let Some(known) = arg.texts() {
            let spelling = if known.len() > 1 { Spelling::OneOf } else { Spelling::Certain };
            for text in known {
                self.touch_spelled(access, text, spelling, unit, state);
            }
            return;
        }
        let all: Option<Vec<_>> =
            arg.pattern().and_then(|pattern| state.cwd.iter().map(|cwd| self.glob(pattern, cwd)).collect());
        match all.filter(|all| !all.is_empty()) {
            Some(all) => {
                for text in all.iter().flat_map(|names| names.iter()) {
                    self.touch_spelled(access, text, Spelling::OneOf, unit, state);
                }
            }
            None => self.unknown_path(access, arg, unit),
        }
    }

    /// Whether a path that is written to is a device, however it is spelled. What lies in the memory
    /// that looks like a directory of devices is a file like any other.
    fn device(&self, text: &str, unit: &mut Unit, state: &ShellState) -> bool {
        if !text.contains("dev") && state.cwd.iter().all(|cwd| !cwd.starts_with("/dev")) {
            return false;
        }
        let from = state.cwd.first().map_or(Path::new("/"), PathBuf::as_path);
        let plain = normal(&from.join(text)).display().to_string();
        let device = plain.starts_with("/dev/") && !plain.starts_with("/dev/shm/");
        if device {
            device::written(&plain, unit);
        }
        device
    }

    fn unknown_path(&self, access: Access, arg: &Arg, unit: &mut Unit) {
        unit.plans_only = false;
        match access {
            // `~somebody`: a place outside, wherever it is.
            Access::List if arg.literal => unit.floor(Action::Ask, &format!("where {} lies is not known", arg.raw)),
            Access::List => {}
            Access::Read => unit.unknown(&format!("which file it reads as {} is not known", arg.raw)),
            Access::Edit => unit.unknown(&format!("which file it changes as {} is not known", arg.raw)),
        }
    }

    /// A word that looks like a path, of a program nobody knows: one where something is there, or may be
    /// made outside the project.
    pub(crate) fn touch_guess(&mut self, text: &str, unit: &mut Unit, state: &ShellState) {
        self.touch_spelled(Access::Read, text, Spelling::Guess, unit, state);
    }

    pub(crate) fn touch_text(&mut self, access: Access, text: &str, unit: &mut Unit, state: &ShellState) {
        self.touch_spelled(access, text, Spelling::Certain, unit, state);
    }

    fn touch_spelled(&mut self, access: Access, text: &str, spelling: Spelling, unit: &mut Unit, state: &ShellState) {
        // To a few programs it is an address, to all others a path with these letters.
        if let Some(path) = paths::address(text) {
            self.touch_path(access, &path, spelling, unit, state);
        }
        self.touch_path(access, text, spelling, unit, state);
    }

    fn touch_path(&mut self, access: Access, text: &str, spelling: Spelling, unit: &mut Unit, state: &ShellState) {
        if text.is_empty() || device::is_harmless(text) {
            return;
        }
        if self.paths.touched >= USES {
            self.paths.overrun = true;
            self.unseen(access, text, unit);
            return;
        }
        if access == Access::Edit && self.device(text, unit, state) {
            return;
        }
        let absolute = Path::new(text).is_absolute() || text.starts_with("~");
        if state.cwd.is_empty() && !absolute {
            unit.plans_only = false;
            if access != Access::List {
                unit.unknown(&format!("in which directory {text} lies is not known"));
            }
            return;
        }
        // A tilde that reaches a program is a letter: the shell has expanded the others.
        let text = if text.starts_with('~') { Cow::from(format!("./{text}")) } else { Cow::from(text) };
        let nowhere = [PathBuf::from("/")];
        let from: &[PathBuf] = if state.cwd.is_empty() { &nowhere } else { &state.cwd };
        let (before, mut inside) = (unit.touches.len(), false);
        for cwd in from {
            self.paths.touched += 1;
            let Some(located) = self.located(&text, cwd) else {
                unit.floor(Action::Ask, "it uses more paths than are looked at");
                self.unseen(access, &text, unit);
                return;
            };
            let Some(located) = located else {
                self.leads_nowhere(access, &text, spelling, cwd, unit);
                continue;
            };
            let made =
                self.links.iter().any(|link| located.path.starts_with(link) || cwd.join(&*text).starts_with(link));
            if made && access != Access::List {
                unit.unknown(&format!("the line itself changes where {text} leads"));
            }
            if access == Access::Edit {
                let plan =
                    located.inside && located.protected.is_none() && protected::is_plan(Path::new(&located.relative));
                unit.plans_only =
                    plan && (unit.plans_only || unit.touches.iter().all(|need| need.permission != "edit"));
            }
            let guess = spelling == Spelling::Guess;
            if guess && located.inside && protected::control(Path::new(&located.relative)) {
                let reason = format!("{text} decides what runs here, and what the program does with it is not known");
                unit.floor(Action::Ask, &reason);
            }
            if located.found == PathKind::Directory && access == Access::Read {
                inside |= located.inside;
                let mut needs = located.needs(Access::List);
                needs.iter_mut().for_each(|need| need.perhaps = from.len() > 1);
                self.add(unit, needs);
                self.used_whole(&located, unit);
                continue;
            }
            if guess && located.is_absent() && located.protected.is_none() {
                let beside = located.path.parent().is_some_and(|folder| folder.parent().is_some());
                if located.inside || located.found == PathKind::Nowhere || !beside {
                    continue;
                }
            }
            inside |= located.inside;
            let mut needs = located.needs(access);
            // What is there would be used if the shell is in the other directory.
            needs.iter_mut().for_each(|need| need.perhaps = from.len() > 1 && located.is_absent());
            self.add(unit, needs);
        }
        // The shell may be in several directories, in none of which the path leads into the project.
        if from.len() > 1 && !inside {
            unit.touches[before..].iter_mut().for_each(|need| need.perhaps = false);
        }
    }

    /// A path from a directory, looked up once; none where that was too often, or it leads nowhere.
    pub(super) fn located(&mut self, text: &str, cwd: &Path) -> Option<Option<Rc<Located>>> {
        if let Some(known) = self.paths.located.get(cwd).and_then(|known| known.get(text)) {
            return Some(known.clone());
        }
        if self.paths.lookups >= LOOKUPS {
            return None;
        }
        self.paths.lookups += 1;
        let found = paths::locate_word(text, cwd, self.place, &mut self.paths.folders).ok().map(Rc::new);
        self.paths.located.entry(cwd.to_owned()).or_default().insert(text.to_owned(), found.clone());
        Some(found)
    }

    /// A path below a file, in a circle of links, up from what a process has open: the program fails on it,
    /// unless what runs before changes that. Rules speak about it as it is spelled.
    fn leads_nowhere(&mut self, access: Access, text: &str, spelling: Spelling, cwd: &Path, unit: &mut Unit) {
        let path = cwd.join(text);
        if access != Access::Edit && places::is_own_descriptor(&path) {
            return;
        }
        let plain = normal(&path);
        let spelled = Located::at(&plain, &plain, self.place);
        // From what is no directory yet, up leads to where nobody knows.
        let up = path.components().any(|part| part == Component::ParentDir);
        let made = self.links.iter().any(|link| path.starts_with(link) || plain.starts_with(link));
        match access {
            Access::Edit => {
                unit.plans_only = false;
                unit.unknown(&format!("{text} cannot be written as things stand"));
            }
            Access::Read if up || made || spelling == Spelling::Certain => {
                unit.unknown(&format!("{text} leads nowhere as things stand"));
            }
            Access::Read if spelled.inside && spelled.protected.is_none() => return,
            Access::Read | Access::List => {}
        }
        self.add(unit, spelled.needs(access));
    }

    /// A path beyond those that are looked up: where it leads is not known, but what a rule denies by
    /// its name stays denied.
    fn unseen(&self, access: Access, text: &str, unit: &mut Unit) {
        unit.plans_only = false;
        if access == Access::Edit && unit.unseen.len() < UNSEEN {
            unit.unseen.push(text.to_owned());
        }
    }

    /// Removing or moving a link is about the link, not about what it leads to. False where it is no
    /// link, or not known.
    pub(crate) fn touch_link(&mut self, arg: &Arg, unit: &mut Unit, state: &ShellState) -> bool {
        let (Some(text), [cwd]) = (arg.text(), state.cwd.as_slice()) else { return false };
        let path = cwd.join(text);
        if text.ends_with('/') || !path.is_symlink() {
            return false;
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let parent = parent.display().to_string();
        let Ok(parent) = paths::locate_word(&parent, cwd, self.place, &mut self.paths.folders) else { return false };
        let shown = Path::new(&parent.relative).join(name);
        unit.effect = Effect::Writes;
        unit.plans_only = false;
        self.add(unit, parent.needs(Access::List));
        let mut need = Need::new("edit", normal(&shown).display().to_string());
        if protected::control(&shown) {
            need.floor = Some((
                Action::Ask,
                format!("{} decides what runs on this machine or what the agent may do", shown.display()),
            ));
        }
        self.add(unit, vec![need]);
        if !self.links.contains(&path) {
            self.links.push(path);
        }
        true
    }

    pub(super) fn add(&self, unit: &mut Unit, needs: Vec<Need>) {
        for need in needs {
            let known = |one: &Need| one.permission == need.permission && one.patterns == need.patterns;
            if unit.touches.len() >= PATHS {
                unit.floor(Action::Ask, "it uses more paths than are looked at");
            } else if !unit.touches.iter().any(known) {
                unit.touches.push(need);
            }
        }
    }

    /// A link the line makes: what lies below it is judged no more by what is there now.
    pub(crate) fn links_to(&mut self, arg: &Arg, state: &ShellState) {
        for cwd in &state.cwd {
            match arg.text() {
                Some(text) => self.links.push(normal(&cwd.join(text))),
                None => self.links.push(cwd.clone()),
            }
        }
    }

    /// What is removed or moved: the shell cannot enter it any more, until it is made again.
    pub(crate) fn gone(&mut self, arg: &Arg, state: &ShellState) {
        for cwd in &state.cwd {
            let names: Vec<String> = match (arg.texts(), arg.pattern()) {
                (Some(texts), _) => texts.to_vec(),
                (None, Some(pattern)) => self.glob(pattern, cwd).map(|names| names.to_vec()).unwrap_or_default(),
                (None, None) => vec![],
            };
            let dirs = names.iter().map(|name| normal(&cwd.join(name))).filter(|path| path.is_dir());
            self.gone.extend(dirs);
        }
    }

    pub(crate) fn made_again(&mut self, arg: &Arg, state: &ShellState) {
        let Some(text) = arg.text().filter(|_| !self.gone.is_empty()) else { return };
        for cwd in &state.cwd {
            let made = normal(&cwd.join(text));
            self.gone.retain(|gone| !made.starts_with(gone));
        }
    }

    /// The shell goes to a directory, or home. Where it may not be there, the change may fail, and the shell
    /// stays where it is.
    pub(crate) fn chdir(&mut self, target: Option<&Arg>, unit: &mut Unit, state: &mut ShellState) {
        state.settle();
        let before = state.whereabouts();
        let Some(target) = target else {
            return state.go(Whereabouts { cwd: self.place.home.iter().cloned().collect(), previous: before.cwd });
        };
        if !target.is("-") {
            self.touch(Access::List, target, unit, state);
        }
        let (mut next, mut stays): (Vec<PathBuf>, Vec<PathBuf>) = (vec![], vec![]);
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
                before.previous.iter().for_each(|path| add(path.clone(), true));
                continue;
            }
            let nowhere = [PathBuf::from("/")];
            unknown |= before.cwd.is_empty() && !Path::new(text).is_absolute();
            for cwd in if before.cwd.is_empty() { &nowhere[..] } else { &before.cwd } {
                let path = normal(&cwd.join(text));
                if state.physical
                    && let Ok(real) = cwd.join(text).canonicalize()
                    && real != path
                {
                    add(real, true);
                }
                let taken = self.links.iter().chain(&self.gone).any(|taken| path.starts_with(taken));
                if taken || !path.is_dir() {
                    add(cwd.clone(), false);
                }
                add(path, true);
            }
        }
        if target.texts().is_none() {
            state.change("the directory is not known");
            unit.unknown("to which directory it changes is not known");
        }
        if target.texts().is_none() || unknown || next.len() > 8 {
            return state.go(Whereabouts { cwd: vec![], previous: before.or(&before.swapped()).previous });
        }
        let done = Whereabouts { cwd: next, previous: before.cwd.clone() };
        if stays.is_empty() {
            return state.go(done);
        }
        // Where it started from is not known, if it is not known now.
        let stays = if before.cwd.is_empty() { vec![] } else { stays };
        state.go_if(done, Whereabouts { cwd: stays, ..before });
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use crate::Action::{Allow, Ask, Deny};
    use crate::Rules;
    use crate::cases::{Lab, judge, with};

    /// What cannot be followed is judged by its letters, and asked about.
    #[test]
    fn rules_hold_for_paths_that_lead_nowhere() {
        let lab = Lab::new();
        let place = &lab.place;
        let own = with(place, &[("*", Allow)])
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
            assert_eq!(judge(&own, line, place).action, wanted, "{line}");
        }
        // Up from where nobody knows, and then through a link.
        let line = format!("cat /proc/..{}/link/secret", place.root.display());
        assert_eq!(judge(&own, &line, place).action, Ask);
    }
}
