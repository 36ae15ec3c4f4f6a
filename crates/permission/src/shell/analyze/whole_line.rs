//! Checks of the whole line: one part of it may create a file that another part runs.

use crate::PermissionContext;
use crate::shell::disk::Disk;
use crate::shell::programs;
use crate::shell::unit::{CommandUnit, Effect};

/// Searches the whole line for denied commands if one part writes a file that another part runs,
/// since then the line is the program.
pub(super) fn mark_self_written_programs(units: &mut [CommandUnit], command: &str) {
    let edited = |unit: &CommandUnit| -> Vec<String> {
        // Without the entries below a directory that it removes.
        let edits = unit
            .path_uses
            .iter()
            .filter(|path_use| path_use.permission == "edit" && path_use.patterns.len() == 1);
        edits
            .flat_map(|path_use| &path_use.patterns)
            .map(|path| base_name(path))
            .collect()
    };
    let written: Vec<Vec<String>> = units.iter().map(edited).collect();
    if written.iter().all(Vec::is_empty) {
        return;
    }
    for (at, unit) in units.iter_mut().enumerate() {
        let Some(program) = &unit.program else {
            continue;
        };
        let base = base_name(program);
        let mut runs: Vec<String> = programs::runs_of_itself(&base)
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        if programs::is_language(&base)
            || programs::is_language(programs::family(&base))
            || programs::is_shell(&base)
        {
            runs.extend(unit.normalized.split(' ').map(base_name));
        }
        runs.push(base);
        let others = written.iter().enumerate().filter(|(maker, _)| *maker != at);
        if others
            .flat_map(|(_, names)| names)
            .any(|name| runs.contains(name))
        {
            unit.foreign_code.push(command.to_owned());
        }
    }
}

fn base_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Marks programs as foreign if another part of the line may put a program before the system's. A
/// trusted project may have such a directory on `PATH`.
pub(super) fn mark_shadowable_programs(
    units: &mut [CommandUnit],
    context: &PermissionContext,
    disk: &Disk<'_>,
) {
    if context.is_trusted {
        return;
    }
    let may_create = |unit: &CommandUnit| {
        unit.effect != Effect::Reads
            || unit
                .path_uses
                .iter()
                .any(|path_use| path_use.permission == "edit")
    };
    let makers: Vec<usize> = units
        .iter()
        .enumerate()
        .filter(|(_, unit)| may_create(unit))
        .map(|(at, _)| at)
        .collect();
    for (at, unit) in units.iter_mut().enumerate() {
        let has_other_maker = makers.iter().any(|maker| *maker != at);
        if !has_other_maker {
            continue;
        }
        let Some(name) = unit
            .program
            .as_deref()
            .filter(|name| disk.is_shadowable(name))
        else {
            continue;
        };
        unit.untrusted_program = Some(format!(
            "this line may put another {name} before the system's"
        ));
        unit.effect_at_least(Effect::Unproven);
    }
}
