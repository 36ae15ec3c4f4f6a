//! What a command line runs. It is read by a grammar of our own (`parse`), its words are expanded
//! (`expand`), what each program does with them is judged (`judge`), and what that needs is looked up
//! (`disk`), all in the order the line would run (`walk`). It becomes a list of [`Unit`]s: every program
//! in it, however it is wrapped, every redirection, every change of directory. What cannot be
//! understood says so, and is asked about.
//!
//! Nothing is started here. The disk is looked at to see where paths lead, which file a program's
//! name means, and whether the repository's configuration makes git start something.

mod device;
mod disk;
mod expand;
pub(super) mod judge;
mod named;
mod names;
mod parse;
mod unit;
mod walk;

use std::sync::Arc;

pub use expand::variable_danger;
pub(crate) use judge::protected_in;
pub use named::{Name, commands};
pub use unit::{Effect, JudgedLine, Unit};
#[cfg(any(test, feature = "testing"))]
pub use walk::is_subcommand;

use super::{Action, Need, PermissionContext, arity};

/// Longer lines are refused. 128 KiB.
pub const LONGEST: usize = 128 * 1024;

/// The need of a command line: everything it does, to be judged at once.
pub fn command_need(command: &str, place: &PermissionContext) -> Need {
    need_of(command, analyse(command, place))
}

/// Returns what a command line needs, once everything it does is known.
pub(crate) fn need_of(command: &str, line: JudgedLine) -> Need {
    let (always, once) = match always(&line) {
        Ok(always) => (always, None),
        Err(reason) => (vec![], Some(reason)),
    };
    let mut patterns: Vec<String> = line.units.iter().map(|unit| unit.text.clone()).collect();
    patterns.dedup();
    if patterns.is_empty() {
        patterns.push(command.into());
    }
    Need { permission: "bash".into(), patterns, always, once, command: Some(Arc::new(line)), ..Need::default() }
}

pub fn analyse(command: &str, place: &PermissionContext) -> JudgedLine {
    let refuse = |reason: &str| JudgedLine {
        text: command.into(),
        opaque: Some(reason.into()),
        unseen: true,
        ..JudgedLine::default()
    };
    if command.contains('\0') {
        return refuse("the command holds a NUL byte, which no shell takes");
    }
    if command.len() > LONGEST {
        let (line, unread) = (refuse("the command is longer than 128 KiB"), vec![command.to_owned()]);
        return JudgedLine { units: catastrophes(&unread, place), unread, ..line };
    }
    let mut line = walk::walk(command, place);
    let lost = catastrophes(&line.unread, place);
    line.units.extend(lost);
    let unseen = |c: char| base::text::is_odd(c) && !matches!(c, '\n' | '\t' | '\r');
    if command.chars().any(unseen) {
        line.opaque.get_or_insert_with(|| "it holds characters that cannot be seen".to_owned());
    }
    line
}

/// What would be denied under any rules in texts that were not taken apart: of their
/// commands, those that begin like one are.
fn catastrophes(texts: &[String], place: &PermissionContext) -> Vec<Unit> {
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

/// Returns what "always" would grant, one pattern for each command; or why it is not offered.
fn always(line: &JudgedLine) -> Result<Vec<String>, String> {
    /// More cannot be taken in at a glance.
    const MOST: usize = 4;
    if let Some(reason) = &line.opaque {
        return Err(reason.clone());
    }
    let mut patterns = vec![];
    for (at, unit) in line.units.iter().enumerate() {
        if unit.runner.is_some() && unit.foreign.is_some() {
            // The pattern of what runs it names it.
            may_last(unit)?;
            continue;
        }
        let pattern = pattern(unit, line.units.get(at + 1))?;
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    match patterns.len() {
        0 => Err("no program is named in it".to_owned()),
        1..=MOST => Ok(patterns),
        _ => Err("it runs more than four commands".to_owned()),
    }
}

/// Returns the words of a command that name what it does and ` *`; all its words where a few do not say that; for what
/// goes to the network, where it goes. `next` is the unit behind it, which it may run.
fn pattern(unit: &Unit, next: Option<&Unit>) -> Result<String, String> {
    may_last(unit)?;
    let words: Vec<&str> = unit.normal.split(' ').collect();
    let name = unit.program.as_deref().map(|program| program.rsplit('/').next().unwrap_or(program));
    let reason = match name {
        None => "no program is named in it",
        Some(_) if let Some(place) = unit.place_reached() => return Ok(place.to_owned()),
        Some(_) if unit.network && !arity::may_go_online(&words) => "it uses the network",
        Some(_) if arity::runs_in_container(&words) => "what it runs in a container is asked about each time",
        Some(_) if !unit.texts.is_empty() => "what its text does is not known",
        Some(_) if unit.normal.contains(['*', '?', '\\']) => "in a rule, its * or ? would stand for other words too",
        Some(name) => {
            let wide = runner_prefix(unit, next).or_else(|| prefix(unit, name, &words));
            return Ok(wide.map_or_else(|| unit.normal.clone(), |prefix| format!("{prefix} *")));
        }
    };
    Err(reason.to_owned())
}

/// Says why the question about a command would come again whatever is granted.
fn may_last(unit: &Unit) -> Result<(), String> {
    let said = unit.opaque.as_ref().or(unit.broad_only.as_ref()).or(unit.doubt.as_ref());
    if let Some(reason) = said.or(unit.floor.as_ref().map(|(_, reason)| reason)) {
        return Err(reason.clone());
    }
    let asks = |need: &&Need| need.floor.is_some() || need.permission == "external_directory";
    match unit.touches.iter().find(asks) {
        Some(need) => Err(format!("{} is asked about by itself", need.patterns.join(", "))),
        None => Ok(()),
    }
}

/// Returns the words that name what a command does, where they do: those of the program it is, or of a script.
fn prefix(unit: &Unit, name: &str, words: &[&str]) -> Option<String> {
    let is_plain = arity::is_granted_by_beginning(words, unit.network);
    if unit.layer > 0 && unit.runner.is_none() || unit.destroys || !is_plain {
        return None;
    }
    if let [_, "-m", module, ..] = words
        && ["python", "pypy"].contains(&judge::family(name))
        && arity::is_checker(module)
        && unit.foreign.is_none()
        && unit.dangers == ["-m"]
    {
        return Some(words[..3].join(" "));
    }
    let language = judge::is_language(judge::family(name));
    let script = language && words.len() > 1 && unit.tails.is_empty();
    let known = arity::granted(words)?;
    // Of a language, no less than the script.
    let known = &words[..known.len().max(if script { 2 } else { 1 })];
    let named = known.iter().skip(1).all(|word| !word.starts_with('-'));
    let foreign = unit.foreign.is_some() && unit.runner.is_none();
    let carries = unit.carrier && !script && !arity::is_subcommand(words);
    (named && !foreign && !carries && unit.dangers.is_empty()).then(|| known.join(" "))
}

/// Returns the same for a program that runs what the words behind its own name: `npx tsc`, `uv run pytest`.
fn runner_prefix(unit: &Unit, next: Option<&Unit>) -> Option<String> {
    let inner = next?;
    let runner = inner.runner.as_ref()?;
    if unit.foreign.is_some() || unit.normal.strip_prefix(&**runner)? != inner.normal {
        return None;
    }
    let words: Vec<&str> = inner.normal.split(' ').collect();
    let inner = prefix(inner, words.first()?, &words)?;
    Some(format!("{runner}{inner}"))
}
