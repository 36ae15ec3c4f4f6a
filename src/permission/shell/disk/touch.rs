//! The paths a line uses, each from the directory the shell is in by then.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Disk, LOOKUPS};
use crate::permission::paths::{self, Folders, Located, PathKind};
use crate::permission::shell::device;
use crate::permission::shell::expand::{Arg, ShellState};
use crate::permission::shell::unit::{Effect, Unit};
use crate::permission::{Access, Action, Need, protected};

/// Paths of one unit; more are asked about unseen.
const PATHS: usize = 512;
/// Names of paths of one unit that are kept although nobody looks them up.
const UNSEEN: usize = 16_384;
/// Uses of paths in one line.
const USES: usize = 2_000;

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

    /// Notes that a unit uses a path.
    pub(crate) fn touch(&mut self, access: Access, arg: &Arg, unit: &mut Unit, state: &ShellState) {
        if arg.text().is_some_and(device::holds_nothing) {
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
            for text in known {
                self.touch_text(access, text, unit, state);
            }
            return;
        }
        let all: Option<Vec<_>> =
            arg.pattern().and_then(|pattern| state.cwd.iter().map(|cwd| self.glob(pattern, cwd)).collect());
        match all.filter(|all| !all.is_empty()) {
            Some(all) => {
                for text in all.iter().flat_map(|names| names.iter()) {
                    self.touch_text(access, text, unit, state);
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
        let plain = crate::worktree::normal(&from.join(text)).display().to_string();
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
            Access::Read => unit.floor(Action::Ask, &format!("which file it reads as {} is not known", arg.raw)),
            Access::Edit => unit.floor(Action::Ask, &format!("which file it changes as {} is not known", arg.raw)),
        }
    }

    /// A word that looks like a path, of a program nobody knows: one where something is there, or may be
    /// made outside the project.
    pub(crate) fn touch_guess(&mut self, text: &str, unit: &mut Unit, state: &ShellState) {
        self.touch_path(Access::Read, text, true, unit, state);
    }

    pub(crate) fn touch_text(&mut self, access: Access, text: &str, unit: &mut Unit, state: &ShellState) {
        self.touch_path(access, text, false, unit, state);
    }

    fn touch_path(&mut self, access: Access, text: &str, guess: bool, unit: &mut Unit, state: &ShellState) {
        if text.is_empty() || device::holds_nothing(text) {
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
                unit.floor(Action::Ask, &format!("in which directory {text} lies is not known"));
            }
            return;
        }
        // A tilde that reaches a program is a letter: the shell has expanded the others.
        let text = if text.starts_with('~') { Cow::from(format!("./{text}")) } else { Cow::from(text) };
        let nowhere = [PathBuf::from("/")];
        let from: &[PathBuf] = if state.cwd.is_empty() { &nowhere } else { &state.cwd };
        for cwd in from {
            self.paths.touched += 1;
            let known = self.paths.located.get(cwd).and_then(|known| known.get(&*text)).cloned();
            if known.is_none() && self.paths.lookups >= LOOKUPS {
                unit.floor(Action::Ask, "it uses more paths than are looked at");
                self.unseen(access, &text, unit);
                return;
            }
            let located = known.unwrap_or_else(|| {
                self.paths.lookups += 1;
                let found = paths::locate_known(&text, cwd, self.place, &mut self.paths.folders).ok().map(Rc::new);
                let here = self.paths.located.entry(cwd.clone()).or_default();
                here.insert(text.clone().into_owned(), found.clone());
                found
            });
            let Some(located) = located else {
                // A path below a file, a circle of links: the program fails on it, unless what runs
                // before changes that.
                if access == Access::Edit {
                    unit.plans_only = false;
                    unit.floor(Action::Ask, &format!("{text} cannot be written as things stand"));
                }
                continue;
            };
            let made =
                self.links.iter().any(|link| located.path.starts_with(link) || cwd.join(&*text).starts_with(link));
            if made && access != Access::List {
                unit.floor(Action::Ask, &format!("the line itself changes where {text} leads"));
            }
            if access == Access::Edit {
                let plan =
                    located.inside && located.protected.is_none() && protected::is_plan(Path::new(&located.relative));
                unit.plans_only =
                    plan && (unit.plans_only || unit.touches.iter().all(|need| need.permission != "edit"));
            }
            if guess && located.inside && protected::control(Path::new(&located.relative)) {
                let reason = format!("{text} decides what runs here, and what the program does with it is not known");
                unit.floor(Action::Ask, &reason);
            }
            if located.found == PathKind::Directory && access == Access::Read {
                self.add(unit, located.needs(Access::List));
                continue;
            }
            if guess && located.is_absent() && located.protected.is_none() {
                let beside = located.path.parent().is_some_and(|folder| folder.parent().is_some());
                if located.inside || located.found == PathKind::Nowhere || !beside {
                    continue;
                }
            }
            self.add(unit, located.needs(access));
        }
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
        let Ok(parent) = paths::locate_from(&parent.display().to_string(), cwd, self.place) else { return false };
        let shown = Path::new(&parent.relative).join(name);
        unit.effect = Effect::Writes;
        unit.plans_only = false;
        self.add(unit, parent.needs(Access::List));
        let mut need = Need::new("edit", crate::worktree::normal(&shown).display().to_string());
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

    fn add(&self, unit: &mut Unit, needs: Vec<Need>) {
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
                Some(text) => self.links.push(crate::worktree::normal(&cwd.join(text))),
                None => self.links.push(cwd.clone()),
            }
        }
    }

    pub(crate) fn chdir(&mut self, target: Option<&Arg>, unit: &mut Unit, state: &mut ShellState) {
        let before = state.cwd.clone();
        let Some(target) = target else {
            state.cwd = self.place.home.iter().cloned().collect();
            state.previous = before;
            return;
        };
        if target.is("-") {
            std::mem::swap(&mut state.cwd, &mut state.previous);
            return;
        }
        self.touch(Access::List, target, unit, state);
        let mut next = vec![];
        match target.texts() {
            Some(texts) => {
                for text in texts {
                    if before.is_empty() && !Path::new(text).is_absolute() {
                        next.clear();
                        break;
                    }
                    let from = if before.is_empty() { vec![PathBuf::from("/")] } else { before.clone() };
                    for cwd in from {
                        let path = crate::worktree::normal(&cwd.join(text));
                        if state.physical
                            && let Ok(real) = cwd.join(text).canonicalize()
                            && real != path
                        {
                            next.push(real);
                        }
                        let there = path.is_dir() && !self.links.iter().any(|link| path.starts_with(link));
                        // Where it is not there yet, the change may fail and the rest run here.
                        if !there {
                            next.push(cwd);
                        }
                        next.push(path);
                    }
                }
            }
            None => {
                state.change("the directory is not known");
                unit.floor(Action::Ask, "to which directory it changes is not known");
            }
        }
        next.dedup();
        if next.len() > 8 {
            next.clear();
        }
        state.previous = before;
        state.cwd = next;
    }
}
