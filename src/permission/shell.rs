//! What a command line runs. The line is read by a grammar of our own (`parse`), walked in the order
//! it would run (`walk`), and becomes a list of [`Unit`]s: every program in it, however it is
//! wrapped, every redirection, every change of directory. What cannot be understood says so, and is
//! asked about.
//!
//! Nothing is started here. The disk is looked at to see where paths lead, which file a program's
//! name means, and whether the repository's configuration makes git start something.

mod builtins;
mod deeds;
mod expand;
mod floor;
mod git;
mod git_config;
mod git_index;
mod git_starts;
pub(super) mod judge;
mod named;
mod options;
mod origin;
mod own;
mod parse;
mod run;
mod state;
mod touch;
mod variables;
mod walk;

use std::sync::Arc;

pub(crate) use named::{Name, commands};
use parse::syntax;
pub(crate) use variables::variable_danger;

use super::{Action, Need, Place, arity};

/// Longer lines are refused. 128 KiB.
pub const LONGEST: usize = 128 * 1024;

/// A command line, taken apart.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// As it was written.
    pub text: String,
    /// Everything in it that acts, in the order it was found.
    pub units: Vec<Unit>,
    /// Why the line as a whole could not be understood; then it is asked about at least.
    pub opaque: Option<String>,
    /// Texts in it that were too long to be taken apart or could not be read, to be searched for what is denied.
    pub unread: Vec<String>,
}

/// What a unit does to the disk, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Effect {
    /// It is known to change nothing.
    Reads,
    /// Nobody knows.
    #[default]
    Unproven,
    /// It is known to change something.
    Writes,
}

/// One thing a command line does.
#[derive(Debug, Clone, Default)]
pub struct Unit {
    /// As it was written.
    pub text: String,
    /// The program as it is named; none for assignments, redirections, conditions.
    pub program: Option<String>,
    /// Inside how many other programs it runs.
    pub layer: usize,
    /// It runs only through an option of another program, perhaps never.
    pub carried: bool,
    /// Its words joined by one blank each; words that are not known are
    /// [`UNKNOWN`](super::wildcard::UNKNOWN). What rules that allow are compared with.
    pub normal: String,
    /// Further spellings of it, for rules that deny or ask.
    pub names: Vec<String>,
    /// Why no rule about a specific command may allow it; only the catch-all may.
    pub broad_only: Option<String>,
    /// Its program is a file of the project, or not found: no rule about a name allows it, only one
    /// that gives its path, or the exact words. Why.
    pub foreign: Option<String>,
    /// Options that change what the program does: a specific rule has to name them.
    pub dangers: Vec<String>,
    /// Why it could not be understood: not even the catch-all allows it.
    pub opaque: Option<String>,
    /// Why it may run something that a rule denies: the catch-all allows it only where nothing is
    /// denied.
    pub doubt: Option<String>,
    /// Program text it was given, to be searched for the names of denied programs.
    pub texts: Vec<String>,
    /// Words one of which begins a program, nobody knows which: each, with those after it, counts for
    /// rules that deny or ask.
    pub tails: Vec<String>,
    /// Words of a program that is not known well enough to say which of them it starts, if any.
    pub words: Vec<String>,
    /// What it does to the disk.
    pub effect: Effect,
    /// All that it writes are plan files.
    pub plans_only: bool,
    /// It removes or overwrites without return.
    pub destroys: bool,
    /// Its program uses the network.
    pub network: bool,
    /// Its program runs other programs or program text.
    pub carrier: bool,
    /// The paths it uses, as needs of their own.
    pub touches: Vec<Need>,
    /// Paths it changes that were not looked up, because there are too many: as they were written.
    pub unseen: Vec<String>,
    /// The least verdict under any rules.
    pub floor: Option<(Action, String)>,
}

impl Unit {
    fn effect_at_least(&mut self, effect: Effect) {
        self.effect = self.effect.max(effect);
    }

    fn doubt(&mut self, reason: &str) {
        self.doubt.get_or_insert_with(|| reason.to_owned());
    }

    fn opaque(&mut self, reason: &str) {
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    fn danger(&mut self, option: &str) {
        self.dangers.push(option.to_owned());
    }

    fn floor(&mut self, action: Action, reason: &str) {
        if self.floor.as_ref().is_none_or(|(least, _)| *least < action) {
            self.floor = Some((action, reason.to_owned()));
        }
    }
}

/// The need of a command line: everything it does, to be judged at once.
pub fn command_need(command: &str, place: &Place) -> Need {
    let line = analyse(command, place);
    let always = always(&line);
    let mut patterns: Vec<String> = line.units.iter().map(|unit| unit.text.clone()).collect();
    patterns.dedup();
    if patterns.is_empty() {
        patterns.push(command.into());
    }
    Need { permission: "bash".into(), patterns, always, command: Some(Arc::new(line)), ..Need::default() }
}

/// Takes a command line apart.
pub fn analyse(command: &str, place: &Place) -> Line {
    let refuse = |reason: &str| Line { text: command.into(), opaque: Some(reason.into()), ..Line::default() };
    if command.contains('\0') {
        return refuse("the command holds a NUL byte, which no shell takes");
    }
    if command.len() > LONGEST {
        let (line, unread) = (refuse("the command is longer than 128 KiB"), vec![command.to_owned()]);
        return Line { units: catastrophes(&unread, place), unread, ..line };
    }
    let mut line = walk::walk(command, place);
    let lost = catastrophes(&line.unread, place);
    line.units.extend(lost);
    let unseen = |c: char| crate::text::is_odd(c) && !matches!(c, '\n' | '\t' | '\r');
    if command.chars().any(unseen) {
        line.opaque.get_or_insert_with(|| "it holds characters that cannot be seen".to_owned());
    }
    line
}

/// What would be denied under any rules in texts that were not taken apart: of their
/// commands, those that begin like one are.
fn catastrophes(texts: &[String], place: &Place) -> Vec<Unit> {
    const LOOKED_AT: usize = 32;
    const LONGEST: usize = 4 << 10;
    const NAMES: [&str; 12] =
        ["rm", "dd", "wipefs", "shred", "chmod", "chown", "chgrp", "find", "mv", "cp", "tee", "fdisk"];
    let names = |segment: &str| {
        segment.split_ascii_whitespace().any(|word| {
            let name = word.rsplit('/').next().unwrap_or(word).trim_matches(['\'', '"', '\\']);
            NAMES.contains(&name) || name.starts_with("mkfs")
        })
    };
    let commands = texts.iter().flat_map(|text| super::unread::commands(text));
    let like = commands.filter(|text| text.len() <= LONGEST && text.contains(['/', '~']) && names(text));
    let units = like.take(LOOKED_AT).flat_map(|text| walk::walk(text, place).units);
    units.filter(|unit| unit.floor.as_ref().is_some_and(|(least, _)| *least == Action::Deny)).collect()
}

/// What "always" would grant: for one plain command the words that name what it does and ` *`, or
/// all its words where options decide what the program does. Nothing for everything else.
fn always(line: &Line) -> Vec<String> {
    let [unit] = line.units.as_slice() else { return vec![] };
    let asks = unit.touches.iter().any(|need| need.floor.is_some() || need.permission == "external_directory");
    let plain = line.opaque.is_none()
        && unit.opaque.is_none()
        && unit.doubt.is_none()
        && unit.broad_only.is_none()
        && unit.floor.is_none()
        && unit.texts.is_empty()
        && unit.program.is_some()
        && !unit.network
        && !unit.carrier
        && !asks;
    if !plain {
        return vec![];
    }
    let exact =
        unit.foreign.is_some() || !unit.dangers.is_empty() || unit.destroys || judge::options_decide(&unit.normal);
    if exact || unit.normal.contains(['*', '?', '\\']) {
        return if unit.normal.contains(['*', '?', '\\']) { vec![] } else { vec![unit.normal.clone()] };
    }
    let words: Vec<&str> = unit.normal.split(' ').collect();
    let prefix = arity::prefix(&words).join(" ");
    vec![format!("{prefix} *")]
}
