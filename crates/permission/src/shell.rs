//! Analysis of shell command lines.
//!
//! The crate `shell_parser` parses a line, `expand` expands its words, `programs` maps each program
//! and its arguments to effects, and `disk` locates the paths in them. `analyze` applies all of
//! this in the order in which the line would run. The result is a list of [`CommandUnit`]s: every
//! program, under all its wrappers, every redirection and every change of directory. Anything that
//! cannot be analysed is reported as such, and asked about.
//!
//! Nothing is started. The disk is read to resolve paths and program names, and to find repository
//! settings that make git start programs.

mod analyze;
mod device;
mod disk;
mod expand;
mod named;
mod names;
pub(super) mod programs;
mod unit;

use std::sync::Arc;

pub use disk::root_commit;
pub use expand::variable_danger;
pub use named::{Name, commands};
pub(crate) use programs::protected_in;
pub use unit::{CommandAnalysis, CommandUnit, Effect};

use super::{AccessRequest, Action, PermissionContext, arity};
use shell_parser::Unreadable;
use shell_parser::syntax::Script;

/// Returns whether a word is a subcommand of adjutant, for a test of its command line.
#[cfg(any(test, feature = "testing"))]
pub fn is_subcommand(word: &str) -> bool {
    analyze::is_subcommand(word)
}

/// The maximum length of a command line in bytes; longer ones are refused.
pub const MAX_COMMAND_BYTES: usize = 128 * 1024;

/// Returns the access request of a command line, with all its effects.
pub fn command_request(command: &str, context: &PermissionContext) -> AccessRequest {
    request_of(analyze(command, context).into())
}

/// Returns the access request of a command line that has been analysed.
pub(crate) fn request_of(line: Arc<CommandAnalysis>) -> AccessRequest {
    let (always, once) = match always(&line) {
        Ok(always) => (always, None),
        Err(reason) => (vec![], Some(reason)),
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
        why_not_always: once,
        command: Some(line),
        ..AccessRequest::default()
    }
}

/// Parses and analyses a command line.
pub fn analyze(command: &str, context: &PermissionContext) -> CommandAnalysis {
    ParsedLine::new(command).analyze(context)
}

/// Returns the reason why a command line cannot be parsed. `None` if it can be.
pub fn unreadable(command: &str) -> Option<String> {
    let reason = ParsedLine::new(command).script?.err()?;
    Some(reason.to_string())
}

/// A command line with its syntax, which does not depend on the disk.
#[derive(Debug)]
pub(crate) struct ParsedLine {
    pub(crate) text: String,
    /// `None` if the text is refused without parsing it.
    script: Option<Result<Script, Unreadable>>,
}

impl ParsedLine {
    pub(crate) fn new(command: &str) -> Self {
        let is_refused = command.contains('\0') || command.len() > MAX_COMMAND_BYTES;
        Self {
            text: command.to_owned(),
            script: (!is_refused).then(|| shell_parser::parse(command, 0)),
        }
    }

    /// Analyses the line in a context, with the disk as it is now.
    pub(crate) fn analyze(&self, context: &PermissionContext) -> CommandAnalysis {
        match &self.script {
            Some(script) => analyze_script(&self.text, script, context),
            None => refused(&self.text, context),
        }
    }
}

/// Returns the analysis of a text that is not parsed.
fn refused(command: &str, context: &PermissionContext) -> CommandAnalysis {
    let refuse = |reason: &str| CommandAnalysis {
        text: command.into(),
        opaque: Some(reason.into()),
        unseen: true,
        ..CommandAnalysis::default()
    };
    if command.contains('\0') {
        return refuse("the command contains a NUL byte, which no shell accepts");
    }
    let unread = vec![command.to_owned()];
    let line = refuse("the command is longer than 128 KiB");
    CommandAnalysis {
        units: catastrophes(&unread, context),
        unread,
        ..line
    }
}

fn analyze_script(
    command: &str,
    script: &Result<Script, Unreadable>,
    context: &PermissionContext,
) -> CommandAnalysis {
    let mut line = analyze::analyze(command, script, context);
    let lost = catastrophes(&line.unread, context);
    line.units.extend(lost);
    let is_invisible = |c: char| base::text::is_deceptive(c) && !matches!(c, '\n' | '\t' | '\r');
    if command.chars().any(is_invisible) {
        line.opaque
            .get_or_insert_with(|| "it contains invisible characters".to_owned());
    }
    line
}

/// Returns commands in unparsed texts that every rule set denies. Only short commands are analysed
/// that name one of the dangerous programs, and only a limited number of them.
fn catastrophes(texts: &[String], context: &PermissionContext) -> Vec<CommandUnit> {
    const MAX_ANALYSED: usize = 32;
    const MAX_LENGTH: usize = 4 << 10;
    const NAMES: [&str; 12] = [
        "rm", "dd", "wipefs", "shred", "chmod", "chown", "chgrp", "find", "mv", "cp", "tee",
        "fdisk",
    ];
    let names_dangerous_program = |segment: &str| {
        segment.split_ascii_whitespace().any(|word| {
            let name = word
                .rsplit('/')
                .next()
                .unwrap_or(word)
                .trim_matches(['\'', '"', '\\']);
            NAMES.contains(&name) || name.starts_with("mkfs")
        })
    };
    let commands = texts
        .iter()
        .flat_map(|text| super::unparsed::split_commands(text));
    let candidates = commands.filter(|text| {
        text.len() <= MAX_LENGTH && text.contains(['/', '~']) && names_dangerous_program(text)
    });
    let units = candidates
        .take(MAX_ANALYSED)
        .flat_map(|text| analyze::analyze(text, &shell_parser::parse(text, 0), context).units);
    units
        .filter(|unit| {
            unit.minimum
                .as_ref()
                .is_some_and(|(minimum, _)| *minimum == Action::Deny)
        })
        .collect()
}

/// Returns the patterns that "always" would grant, one for each command.
///
/// # Errors
/// The reason why "always" is not offered.
fn always(line: &CommandAnalysis) -> Result<Vec<String>, String> {
    /// The number of patterns that a user can take in at a glance.
    const MAX_PATTERNS: usize = 4;
    if let Some(reason) = &line.opaque {
        return Err(reason.clone());
    }
    let mut patterns = vec![];
    for (at, unit) in line.units.iter().enumerate() {
        if unit.runner.is_some() && unit.foreign.is_some() {
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
    let words: Vec<&str> = unit.normal.split(' ').collect();
    let name = unit
        .program
        .as_deref()
        .map(|program| program.rsplit('/').next().unwrap_or(program));
    let reason = match name {
        None => "no program is named in it",
        Some(_) if let Some(destination) = unit.only_destination() => {
            return Ok(destination.to_owned());
        }
        Some(_) if unit.network && !arity::may_go_online(&words) => "it uses the network",
        Some(_) if arity::runs_in_container(&words) => {
            "what it runs in a container is asked about each time"
        }
        Some(_) if !unit.texts.is_empty() => "what its text does is not known",
        Some(_) if unit.normal.contains(['*', '?', '\\']) => {
            "in a rule, its * or ? would stand for other words too"
        }
        Some(name) => {
            let wide = runner_prefix(unit, next).or_else(|| prefix(unit, name, &words));
            return Ok(wide.map_or_else(|| unit.normal.clone(), |prefix| format!("{prefix} *")));
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
    let is_asked_about = |request: &&AccessRequest| {
        request.minimum.is_some() || request.permission == "external_directory"
    };
    match unit.touches.iter().find(is_asked_about) {
        Some(request) => Err(format!(
            "{} is asked about by itself",
            request.patterns.join(", ")
        )),
        None => Ok(()),
    }
}

/// Returns the words that name the action of a command, or its script, if they determine its
/// effect.
fn prefix(unit: &CommandUnit, name: &str, words: &[&str]) -> Option<String> {
    let is_plain = arity::is_granted_by_beginning(words, unit.network);
    if unit.layer > 0 && unit.runner.is_none() || unit.destroys || !is_plain {
        return None;
    }
    if let [_, "-m", module, ..] = words
        && ["python", "pypy"].contains(&programs::family(name))
        && arity::is_checker(module)
        && unit.foreign.is_none()
        && unit.dangers == ["-m"]
    {
        return Some(words[..3].join(" "));
    }
    let is_language = programs::is_language(programs::family(name));
    let is_script = is_language && words.len() > 1 && unit.tails.is_empty();
    let granted = arity::granted(words)?;
    // For a language at least the script.
    let granted = &words[..granted.len().max(if is_script { 2 } else { 1 })];
    let has_option = granted.iter().skip(1).any(|word| word.starts_with('-'));
    let is_foreign = unit.foreign.is_some() && unit.runner.is_none();
    let runs_others = unit.carrier && !is_script && !arity::is_subcommand(words);
    if has_option || is_foreign || runs_others || !unit.dangers.is_empty() {
        return None;
    }
    Some(granted.join(" "))
}

/// Returns the prefix of a runner together with that of the program it runs: `npx tsc`, `uv run
/// pytest`.
fn runner_prefix(unit: &CommandUnit, next: Option<&CommandUnit>) -> Option<String> {
    let inner = next?;
    let runner = inner.runner.as_ref()?;
    if unit.foreign.is_some() || unit.normal.strip_prefix(&**runner)? != inner.normal {
        return None;
    }
    let words: Vec<&str> = inner.normal.split(' ').collect();
    let inner = prefix(inner, words.first()?, &words)?;
    Some(format!("{runner}{inner}"))
}
