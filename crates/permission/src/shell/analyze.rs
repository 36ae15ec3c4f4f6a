//! Walks a command line in the order in which it would run, and collects its commands with their
//! effects.
//!
//! The walk keeps the state on which later parts depend: the directory, variables, functions, and
//! changes to the meaning of words. After a branch that may be taken or not, both outcomes are
//! possible.

mod apply;
mod budget;
mod chain;
mod compound;
mod functions;
mod git;
mod git_shown;
mod nested;
mod own;
mod run;
mod simple;
mod traps;
mod whole_line;

#[cfg(any(test, feature = "testing"))]
pub(super) use own::is_subcommand;

use budget::Budget;

use super::disk::Disk;
use super::expand::{Arg, Expander, Expansion, Finding, ShellState, StdinSource};
use super::programs::{self, SelectedFiles};
use super::unit::{CommandAnalysis, CommandUnit};
use crate::PermissionContext;
use functions::JudgedBody;
use shell_parser::syntax;
use syntax::{Item, Script, ShellCommand, ShellCommandKind, Unreadable, Word};
use traps::Trap;

/// The maximum number of units of one line.
const MAX_UNITS: usize = 1_000;
/// The maximum nesting of programs and command strings (`eval`, `sh -c`, wrappers).
const MAX_LAYERS: usize = 8;

/// The state of an analysis.
struct Analyzer<'p> {
    context: &'p PermissionContext,
    disk: Disk<'p>,
    expander: Expander<'p>,
    budget: Budget,
    frame: AnalyzerFrame,
    units: Vec<CommandUnit>,
    opaque: Option<String>,
    /// True if parts of the line were not analysed.
    is_incomplete: bool,
    /// Texts that were too long, or could not be parsed.
    unparsed_texts: Vec<String>,
    /// The bodies of functions, with the directories in which they were judged.
    bodies: Vec<JudgedBody>,
    /// Texts that run later, in whatever directory the shell then is.
    traps: Vec<Trap>,
}

/// The surroundings of the current commands.
struct AnalyzerFrame {
    /// The number of programs and texts around them.
    layer: usize,
    /// True if they run only through an option of another program, perhaps never.
    is_conditional: bool,
    /// True if the shell may not be bash, and reads some constructs differently.
    other_shell: bool,
    input: StdinSource,
    /// The selection of the names that come through the pipe.
    selected_files: Option<SelectedFiles>,
}

/// Analyses a command line that has been parsed.
pub(super) fn analyze(
    command: &str,
    parsed: &Result<Script, Unreadable>,
    context: &PermissionContext,
) -> CommandAnalysis {
    let mut analyzer = Analyzer {
        context,
        disk: Disk::new(context),
        expander: Expander::new(context.home.as_deref(), context.scratch_dir.as_deref()),
        budget: Budget::default(),
        frame: AnalyzerFrame {
            layer: 0,
            is_conditional: false,
            other_shell: false,
            input: StdinSource::Nothing,
            selected_files: None,
        },
        units: vec![],
        opaque: None,
        is_incomplete: false,
        unparsed_texts: vec![],
        bodies: vec![],
        traps: vec![],
    };
    let mut state = ShellState {
        cwd: vec![context.cwd.clone()],
        ..ShellState::default()
    };
    match parsed {
        Ok(script) => analyzer.list(script, &script.list, &mut state),
        Err(reason) => {
            analyzer.set_opaque(&reason.to_string());
            // bash runs the commands before the line that it cannot parse.
            let (script, rest) = shell_parser::parse_prefix(command).unwrap_or_default();
            analyzer.list(&script, &script.list, &mut state);
            let rest = if script.list.is_empty() {
                command
            } else {
                rest
            };
            analyzer.unparsed_texts.push(rest.to_owned());
            if matches!(reason, Unreadable::Syntax | Unreadable::Unclosed) {
                analyzer.guess(rest, &mut state);
            }
        }
    }
    analyzer.check_whole_line(command);
    let Analyzer {
        units,
        opaque,
        is_incomplete: unseen,
        unparsed_texts: unread,
        ..
    } = analyzer;
    CommandAnalysis {
        text: command.into(),
        units,
        opaque,
        is_incomplete: unseen,
        unparsed_texts: unread,
    }
}

impl<'p> Analyzer<'p> {
    /// Applies checks that need the whole line.
    fn check_whole_line(&mut self, command: &str) {
        self.run_traps();
        if let Some(reason) = self.disk.overrun() {
            self.mark_incomplete(reason);
        }
        if let Some(reason) = self.expander.why_undecided() {
            self.set_opaque(reason);
        }
        whole_line::mark_shadowable_programs(&mut self.units, self.context, &self.disk);
        whole_line::mark_self_written_programs(&mut self.units, command);
        if self.is_full() {
            self.mark_incomplete(&Unreadable::TooMany.to_string());
            self.unparsed_texts.push(command.to_owned());
        }
    }

    /// Records that parts of the line are not analysed.
    fn mark_incomplete(&mut self, reason: &str) {
        self.set_opaque(reason);
        self.is_incomplete = true;
    }

    fn set_opaque(&mut self, reason: &str) {
        self.opaque.get_or_insert_with(|| reason.to_owned());
    }

    /// Expands words, and walks the commands in their substitutions.
    fn expanding<'s, T>(
        &mut self,
        script: &'s Script,
        state: &mut ShellState,
        read: impl FnOnce(&mut Expansion<'_, 's, 'p>) -> T,
    ) -> T {
        let (read, found) = self.expander.expand(script, state, read);
        for found in found {
            match found {
                Finding::Opaque(reason) => self.set_opaque(&reason),
                Finding::Runs {
                    script,
                    list,
                    mut state,
                    piped,
                } => {
                    let input = if piped {
                        StdinSource::Pipe
                    } else {
                        self.frame.input.clone()
                    };
                    let outer = std::mem::replace(&mut self.frame.input, input);
                    self.nested(|analyzer| analyzer.list(script, list, &mut state));
                    self.frame.input = outer;
                }
            }
        }
        read
    }

    /// Expands the words of a command.
    fn expand<'s>(
        &mut self,
        script: &'s Script,
        words: &'s [Word],
        state: &mut ShellState,
    ) -> Vec<Arg> {
        let mut args = vec![];
        for word in words {
            self.expanding(script, state, |expansion| expansion.word(word, &mut args));
        }
        args
    }

    /// Expands a word that stays a single word.
    fn single<'s>(&mut self, script: &'s Script, word: &'s Word, state: &mut ShellState) -> Arg {
        self.expanding(script, state, |words| words.single(word))
    }

    /// Walks a nested construct.
    fn nested(&mut self, work: impl FnOnce(&mut Self)) {
        if self.budget.depth > 2 * shell_parser::MAX_DEPTH {
            return self.mark_incomplete("it is nested too deeply");
        }
        self.budget.depth += 1;
        work(self);
        self.budget.depth -= 1;
    }

    fn is_full(&self) -> bool {
        self.units.len() >= MAX_UNITS
    }

    fn item(&mut self, script: &Script, item: &Item, state: &mut ShellState) {
        if item.background || item.commands.len() > 1 {
            let outer = self.frame.input.clone();
            for (at, command) in item.commands.iter().enumerate() {
                if self.is_full() {
                    break;
                }
                let from = self.units.len();
                if at > 0 {
                    self.frame.input = StdinSource::Pipe;
                    self.frame.selected_files = selected_files(script, &item.commands[at - 1]);
                }
                self.command(script, command, &mut state.clone());
                if let Some(selected_files) = self.frame.selected_files.take() {
                    self.change_selected_files(from, &selected_files, state);
                }
            }
            self.frame.input = outer;
        } else if let Some(command) = item.commands.first() {
            self.command(script, command, state);
        }
    }

    fn command(&mut self, script: &Script, command: &ShellCommand, state: &mut ShellState) {
        self.nested(|analyzer| match &command.kind {
            ShellCommandKind::Simple { assigns, words } => {
                analyzer.simple(script, command, assigns, words, state)
            }
            _ => analyzer.compound(script, command, state),
        });
        self.update_traps(state);
    }

    fn unit(&self, text: &str) -> CommandUnit {
        CommandUnit {
            text: text.to_owned(),
            normalized: text.to_owned(),
            layer: self.frame.layer,
            is_conditional: self.frame.is_conditional,
            ..CommandUnit::default()
        }
    }

    pub(super) fn push(&mut self, unit: CommandUnit) {
        if !self.is_full() {
            self.units.push(unit);
        }
    }

    /// Reserves the position of a unit whose inner units come after it.
    pub(super) fn reserve(&mut self) -> usize {
        self.push(CommandUnit::default());
        self.units.len() - 1
    }

    pub(super) fn fill(&mut self, index: usize, unit: CommandUnit) {
        if let Some(slot) = self.units.get_mut(index) {
            *slot = unit;
        }
    }
}

/// Returns the selection of a `find` below the project that prints only names which match no
/// secret, for the program that reads them.
fn selected_files(script: &Script, command: &ShellCommand) -> Option<SelectedFiles> {
    let ShellCommandKind::Simple { assigns, words } = &command.kind else {
        return None;
    };
    let texts: Vec<&str> = words
        .iter()
        .map(|word| shell_parser::slice(script, &word.range))
        .collect();
    let is_plain = |text: &&str| {
        text.trim_matches(['\'', '"'])
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-*/+".contains(&byte))
    };
    let names = texts
        .windows(2)
        .filter(|pair| matches!(pair[0], "-name" | "-iname"));
    let names: Vec<&str> = names
        .map(|pair| pair[1].trim_matches(['\'', '"']))
        .collect();
    let below: Vec<&str> = texts
        .iter()
        .skip(1)
        .take_while(|text| !text.starts_with('-'))
        .copied()
        .collect();
    let changes_selection = |text: &&str| {
        matches!(
            *text,
            "-o" | "-or" | "-not" | "-printf" | "-fprintf" | "-exec" | "-L" | "-follow"
        )
    };
    let is_harmless = texts.first() == Some(&"find")
        && assigns.is_empty()
        && names.iter().any(|name| programs::names_no_secret(name))
        && texts.iter().all(is_plain)
        && !texts.iter().any(changes_selection)
        && below
            .iter()
            .all(|text| !text.starts_with('/') && !text.contains(".."));
    if !is_harmless {
        return None;
    }
    let args = |texts: &[&str]| texts.iter().map(|text| Arg::exact(*text)).collect();
    let here: &[&str] = if below.is_empty() { &["."] } else { &below };
    Some(SelectedFiles {
        directories: args(here),
        patterns: args(&names),
    })
}
