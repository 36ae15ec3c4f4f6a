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
pub(super) mod segments;
mod unit;

pub(crate) use device::is_harmless as is_harmless_device;
pub use disk::root_commit;
pub use expand::variable_danger;
pub(crate) use named::NamedCommand;
pub use named::{Name, commands};
pub(crate) use programs::protected_in;
pub use unit::{CommandAnalysis, CommandUnit, Effect};

use super::{Action, PermissionContext};
use shell_parser::Unreadable;
use shell_parser::syntax::Script;

/// Returns whether a word is a subcommand of adjutant, for a test of its command line.
#[cfg(any(test, feature = "testing"))]
pub fn is_subcommand(word: &str) -> bool {
    analyze::is_subcommand(word)
}

/// The maximum length of a command line in bytes; longer ones are refused.
pub const MAX_COMMAND_BYTES: usize = 128 * 1024;

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

    /// Returns the commands of the line; none if it cannot be parsed. `None` if that was not tried.
    pub(crate) fn commands(&self) -> Option<Vec<NamedCommand<'_>>> {
        let script = self.script.as_ref()?.as_ref();
        Some(script.map_or_else(|_| Vec::new(), named::named_commands))
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
        is_incomplete: true,
        ..CommandAnalysis::default()
    };
    if command.contains('\0') {
        return refuse("the command contains a NUL byte, which no shell accepts");
    }
    let unread = vec![command.to_owned()];
    let line = refuse("the command is longer than 128 KiB");
    CommandAnalysis {
        units: catastrophes(&unread, context),
        unparsed_texts: unread,
        ..line
    }
}

fn analyze_script(
    command: &str,
    script: &Result<Script, Unreadable>,
    context: &PermissionContext,
) -> CommandAnalysis {
    let mut line = analyze::analyze(command, script, context);
    let lost = catastrophes(&line.unparsed_texts, context);
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
    const DANGEROUS_PROGRAMS: [&str; 12] = [
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
            DANGEROUS_PROGRAMS.contains(&name) || name.starts_with("mkfs")
        })
    };
    let commands = texts.iter().flat_map(|text| segments::split_commands(text));
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
