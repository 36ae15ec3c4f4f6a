//! The access request of a command line, and the patterns that "always" would grant.

use std::sync::Arc;

use super::rule::OUTSIDE;
use super::shell::{CommandAnalysis, CommandUnit, analyze, programs};
use super::{AccessRequest, PathUse, PermissionContext, arity};

/// Returns the access request of a command line, with all its effects.
pub fn command_request(command: &str, context: &PermissionContext) -> AccessRequest {
    request_of(analyze(command, context).into())
}

/// Returns the access request of a command line that has been analysed.
pub(crate) fn request_of(line: Arc<CommandAnalysis>) -> AccessRequest {
    let reading = reading_outside(&line);
    let grants_reading = !reading.is_empty();
    let (always, once) = match always(&line) {
        Ok(always) => (always, None),
        Err(reason) => (reading, Some(reason)),
    };
    let mut patterns: Vec<String> = line.units.iter().map(|unit| unit.text.clone()).collect();
    patterns.dedup();
    if patterns.is_empty() {
        patterns.push(line.text.clone());
    }
    AccessRequest {
        permission: "bash".into(),
        patterns,
        always,
        grants_reading: grants_reading && once.is_some(),
        why_not_always: once,
        command: Some(line),
        ..AccessRequest::default()
    }
}

/// The number of patterns that a user can take in at a glance.
const MAX_PATTERNS: usize = 4;

/// Returns the directories outside of the project in which a line that changes nothing reads, as
/// patterns that "always" would grant. None if they are too many, or "always" is not offered for one.
fn reading_outside(line: &CommandAnalysis) -> Vec<String> {
    let mut patterns: Vec<String> = Vec::new();
    if !line.is_read_only() {
        return patterns;
    }
    let uses = line.units.iter().flat_map(|unit| &unit.path_uses);
    for path_use in uses.filter(|path_use| path_use.permission == OUTSIDE) {
        let always = AccessRequest::from(path_use.clone()).always;
        if always.is_empty() {
            return Vec::new();
        }
        patterns.extend(always);
    }
    patterns.sort();
    patterns.dedup();
    if patterns.len() > MAX_PATTERNS {
        patterns.clear();
    }
    patterns
}

/// Returns the patterns that "always" would grant, one for each command.
///
/// # Errors
/// The reason why "always" is not offered.
fn always(line: &CommandAnalysis) -> Result<Vec<String>, String> {
    if let Some(reason) = &line.opaque {
        return Err(reason.clone());
    }
    let mut patterns = vec![];
    for (at, unit) in line.units.iter().enumerate() {
        if unit.runner.is_some() && unit.untrusted_program.is_some() {
            // The runner's pattern names this program, too.
            can_be_granted(unit)?;
            continue;
        }
        let pattern = pattern(unit, line.units.get(at + 1))?;
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    match patterns.len() {
        0 => Err("no program is named in it".to_owned()),
        1..=MAX_PATTERNS => Ok(patterns),
        _ => Err("it runs more than four commands".to_owned()),
    }
}

/// Returns the pattern that "always" would grant for a command: the words that name its action and
/// ` *`, all words if no prefix determines the action, or the destination on the network. `next` is
/// the following unit, which it may run.
///
/// # Errors
/// The reason why "always" is not offered.
fn pattern(unit: &CommandUnit, next: Option<&CommandUnit>) -> Result<String, String> {
    can_be_granted(unit)?;
    let words: Vec<&str> = unit.normalized.split(' ').collect();
    let name = unit
        .program
        .as_deref()
        .map(|program| program.rsplit('/').next().unwrap_or(program));
    let reason = match name {
        None => "it names no program",
        Some(_) if let Some(destination) = unit.only_destination() => {
            return Ok(destination.to_owned());
        }
        Some(_) if unit.uses_network && !arity::may_go_online(&words) => "it uses the network",
        Some(_) if arity::runs_in_container(&words) => {
            "commands in a container need permission each time"
        }
        Some(_) if !unit.foreign_code.is_empty() => "the effect of its text is unknown",
        Some(_) if unit.normalized.contains(['*', '?', '\\']) => {
            "in a rule, its * or ? would match other commands as well"
        }
        Some(name) => {
            let wide = runner_prefix(unit, next).or_else(|| prefix(unit, name, &words));
            return Ok(wide.map_or_else(|| unit.normalized.clone(), |prefix| format!("{prefix} *")));
        }
    };
    Err(reason.to_owned())
}

/// Checks that a grant would answer the question about a command.
///
/// # Errors
/// The reason why the question would come again.
fn can_be_granted(unit: &CommandUnit) -> Result<(), String> {
    let unknown = unit
        .opaque
        .as_ref()
        .or(unit.catch_all_only.as_ref())
        .or(unit.may_be_denied.as_ref());
    if let Some(reason) = unknown.or(unit.minimum.as_ref().map(|(_, reason)| reason)) {
        return Err(reason.clone());
    }
    let is_asked_about = |path_use: &&PathUse| {
        path_use.minimum.is_some() || path_use.permission == "external_directory"
    };
    match unit.path_uses.iter().find(is_asked_about) {
        Some(path_use) => Err(format!(
            "it would not cover the use of {}, about which you are asked as well",
            path_use.patterns.join(", ")
        )),
        None => Ok(()),
    }
}

/// Returns the words that name the action of a command, or its script, if they determine its
/// effect.
fn prefix(unit: &CommandUnit, name: &str, words: &[&str]) -> Option<String> {
    let is_plain = arity::is_granted_by_beginning(words, unit.uses_network);
    if unit.layer > 0 && unit.runner.is_none() || unit.destroys || !is_plain {
        return None;
    }
    if let [_, "-m", module, ..] = words
        && ["python", "pypy"].contains(&programs::family(name))
        && arity::is_checker(module)
        && unit.untrusted_program.is_none()
        && unit.dangerous_options == ["-m"]
    {
        return Some(words[..3].join(" "));
    }
    let is_language = programs::is_language(programs::family(name));
    let is_script = is_language && words.len() > 1 && unit.possible_starts.is_empty();
    let granted = arity::granted(words)?;
    // For a language at least the script.
    let granted = &words[..granted.len().max(if is_script { 2 } else { 1 })];
    let has_option = granted.iter().skip(1).any(|word| word.starts_with('-'));
    let is_foreign = unit.untrusted_program.is_some() && unit.runner.is_none();
    let runs_others = unit.runs_other_programs && !is_script && !arity::is_subcommand(words);
    if has_option || is_foreign || runs_others || !unit.dangerous_options.is_empty() {
        return None;
    }
    Some(granted.join(" "))
}

/// Returns the prefix of a runner together with that of the program it runs: `npx tsc`, `uv run
/// pytest`.
fn runner_prefix(unit: &CommandUnit, next: Option<&CommandUnit>) -> Option<String> {
    let inner = next?;
    let runner = inner.runner.as_ref()?;
    if unit.untrusted_program.is_some()
        || unit.normalized.strip_prefix(&**runner)? != inner.normalized
    {
        return None;
    }
    let words: Vec<&str> = inner.normalized.split(' ').collect();
    let inner = prefix(inner, words.first()?, &words)?;
    Some(format!("{runner}{inner}"))
}
