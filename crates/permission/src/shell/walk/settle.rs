//! What only shows when the whole line was walked: a part of it may make what another one runs.

use crate::PermissionContext;
use crate::shell::disk::Disk;
use crate::shell::judge;
use crate::shell::unit::{Effect, Unit};

/// After the whole line: where a part of it writes what another one runs, the line is the program,
/// and is searched for what is denied.
pub(super) fn made(units: &mut [Unit], command: &str) {
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let edited = |unit: &Unit| -> Vec<String> {
        // Not all that lies below a directory that it removes.
        let needs = unit.touches.iter().filter(|need| need.permission == "edit" && need.patterns.len() == 1);
        needs.flat_map(|need| &need.patterns).map(|path| last(path)).collect()
    };
    let made: Vec<Vec<String>> = units.iter().map(edited).collect();
    if made.iter().all(Vec::is_empty) {
        return;
    }
    for (at, unit) in units.iter_mut().enumerate() {
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
pub(super) fn names(units: &mut [Unit], place: &PermissionContext, disk: &Disk<'_>) {
    if place.trusted {
        return;
    }
    let makes = |unit: &Unit| unit.effect != Effect::Reads || unit.touches.iter().any(|need| need.permission == "edit");
    let makers: Vec<usize> = units.iter().enumerate().filter(|(_, unit)| makes(unit)).map(|(at, _)| at).collect();
    for (at, unit) in units.iter_mut().enumerate() {
        let other = makers.iter().any(|maker| *maker != at);
        let Some(name) = unit.program.as_deref().filter(|name| other && disk.is_behind(name)) else {
            continue;
        };
        unit.foreign = Some(format!("this line may put another {name} before the system's"));
        unit.effect_at_least(Effect::Unproven);
    }
}
