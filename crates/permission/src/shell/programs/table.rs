//! Parses the entries of `programs/*.txt` into [`Utility`]s, one for each program and each
//! sub-command with an entry of its own (`git diff`).
//!
//! `programs/README.md` documents the fields. A variant of [`OptionEffect`] or [`Operand`] has the
//! name of its keyword there (`does()`, `role()`).

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::Action;
use crate::shell::unit::Effect;

/// The effect of an option, or the meaning of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionEffect {
    /// None.
    Harmless,
    /// Reads the file in its value.
    Reads,
    /// Lists the directory in its value.
    Lists,
    /// Reads the file in its value, and the files that are named in it.
    Names,
    /// Writes the file in its value.
    Writes,
    /// Changes the files among the operands.
    Edits,
    /// Destroys data that cannot be recovered.
    Destroys,
    /// Sends its value; after `@` or `<`, a file.
    Sends,
    /// Changes to a directory, in which everything after it takes place.
    Enters,
    /// Uses the settings of another repository.
    RemoteShell,
    /// Runs the command in its value.
    Runs,
    /// Runs a command that ends at `;` or `+`.
    Until,
    /// Runs a program in the language of this program.
    Program,
    /// Runs a module of the language of this program.
    Module,
    /// Executes the standard input in addition.
    Interactive,
    /// Runs a program in a file, in the language of this program.
    File,
    /// Selects a format of git, which may ask for a signature.
    Formats,
    /// Sets a setting of git.
    Settings,
    /// Sets an option of ssh.
    Options,
    /// Splits its value into words, like `env -S`.
    Splits,
    /// Names an action of tar, which may be a command.
    Action,
    /// Changes something that its value does not name.
    Changes,
    /// Not known to be harmless.
    Unproven,
    /// May run more than the arguments name.
    Doubt,
    /// Unknown: it may start anything.
    Opaque,
    /// Reads settings from a file, which may start anything.
    OpaqueFile,
}

/// The form in which an option takes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    Nothing,
    /// In the same word or the next.
    Value,
    /// In the same word, or none.
    Attached,
    /// In the word after the next.
    Second,
}

/// An option in an entry: its effect, and the form of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opt {
    pub(super) does: OptionEffect,
    pub(super) takes: ValueForm,
}

/// The role of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// No file.
    Nothing,
    /// A file or directory that is listed.
    List,
    /// A file that is read.
    Read,
    /// A file that is written.
    Write,
    /// A file or directory that is itself removed or moved.
    Entry,
    /// A source or the target of a copy or link.
    Copy,
    /// A word with which the command changes something.
    Change,
    /// A word that is harmless only if it begins with `+`.
    Plus,
    /// A word with which the command is not known to be harmless.
    Unproven,
    /// A file that loses its uncommitted changes.
    Lost,
    /// Like `Lost`, with everything below a directory.
    LostBelow,
    /// `NAME=value` before a program.
    Settings,
    /// The first word of a program with its arguments.
    Program,
    /// The first word of a text for a shell.
    Shell,
    /// A text for a shell, each operand for itself.
    Shells,
    /// A word at which a program may begin.
    Tails,
    /// The first word of a command that runs on another system.
    RemoteShell,
    /// The first word of a command that runs on another machine.
    Remote,
    /// A file here, or after `host:` on another machine.
    Far,
    /// An address on the network.
    Address,
    /// The address of a git repository.
    GitAddress,
    /// A refspec of git.
    Refspec,
    /// A sub-command, which selects the entry `NAME WORD`.
    Command,
    /// A file with a program in the language of this program.
    Script,
    /// Any word, as of an unknown program.
    UnknownProgram,
}

/// A minimum verdict, which holds whatever the user's rules are.
#[derive(Debug)]
pub(super) struct MinimumVerdict {
    pub(super) action: Action,
    /// The options that it applies to; if empty, it always applies.
    pub(super) options: Vec<&'static str>,
    /// The reason, for people.
    pub(super) why: &'static str,
}

/// A program, or a command of a program.
#[derive(Debug, Default)]
pub(super) struct Utility {
    pub(super) name: &'static str,
    /// The effect on the disk without options and operands.
    pub(super) effect: Effect,
    /// True if no option can do harm, so that unknown ones are accepted.
    pub(super) accepts_any_option: bool,
    /// True if its changes cannot be undone.
    pub(super) destroys: bool,
    /// True if it runs other programs.
    pub(super) runs_other_programs: bool,
    /// True if it uses the network.
    pub(super) uses_network: bool,
    /// True if directories among the operands are read with their contents.
    pub(super) reads_recursively: bool,
    /// True if options are whole words with one dash.
    pub(super) has_whole_word_options: bool,
    /// True if the first word may be a cluster of letters.
    pub(super) may_begin_with_bundle: bool,
    /// True if options end at the first operand.
    pub(super) options_end_at_operand: bool,
    options: HashMap<&'static str, Opt>,
    /// Long options in order, to resolve abbreviations.
    longs: Vec<&'static str>,
    /// Options of several letters after one dash, in a program that also has clusters.
    pairs: Vec<&'static str>,
    /// Whole words, such as `--format=zip`, that are harmless although their option is not.
    pub(super) exact: Vec<&'static str>,
    /// The roles of the operands in order.
    pub(super) roles: Vec<Operand>,
    /// The index of the role in `words` that any number of operands may have.
    pub(super) repeated_role: Option<usize>,
    /// Options with which the first operand is absent.
    pub(super) instead: Vec<&'static str>,
    /// Options with which the last operand is absent.
    pub(super) instead_of_last: Vec<&'static str>,
    /// Options with which another entry applies, each with the name of that entry.
    pub(super) modes: Vec<(Vec<&'static str>, &'static str)>,
    /// Options that, as the only word, print information about the program.
    pub(super) information_options: Vec<&'static str>,
    /// Options with which directories are used with their contents.
    pub(super) recursive_options: Vec<&'static str>,
    /// Minimum verdicts, always or with certain options.
    pub(super) minimums: Vec<MinimumVerdict>,
    /// The events that it causes, for which settings of a git repository may start a program;
    /// `None` if unknown.
    pub(super) meets: Option<Vec<&'static str>>,
    /// The reason why its effects cannot be determined.
    pub(super) why_unknown: Option<&'static str>,
    /// The name of its part in `special.rs` or `wrapper.rs`; empty if it has none.
    pub(super) special: &'static str,
}

impl Utility {
    /// Returns an option: a single letter without its dash, any other as written.
    pub(super) fn option(&self, name: &str) -> Option<Opt> {
        self.options.get(name).copied()
    }

    /// Returns the possible meanings of an abbreviated long option.
    pub(super) fn meant(&self, start: &str) -> impl Iterator<Item = (&'static str, Opt)> {
        let from = self.longs.partition_point(|name| *name < start);
        let fitting = self.longs[from..]
            .iter()
            .take_while(move |name| name.starts_with(start));
        fitting.filter_map(|name| Some((*name, self.option(name)?)))
    }

    /// Returns the option of several letters, with a value, that the letters after a dash begin
    /// with.
    pub(super) fn pair(&self, letters: &str) -> Option<(&'static str, Opt)> {
        let name = self
            .pairs
            .iter()
            .find(|name| letters.starts_with(name.trim_start_matches('-')))?;
        Some((
            name,
            self.option(name)
                .filter(|option| option.takes == ValueForm::Value)?,
        ))
    }

    /// Returns whether an option of it, or its program, may start another program.
    pub(super) fn may_start(&self) -> bool {
        let starts = |does| {
            matches!(
                does,
                OptionEffect::Runs
                    | OptionEffect::Until
                    | OptionEffect::Program
                    | OptionEffect::Module
                    | OptionEffect::File
                    | OptionEffect::Settings
                    | OptionEffect::Options
                    | OptionEffect::Splits
                    | OptionEffect::Action
                    | OptionEffect::Doubt
                    | OptionEffect::Opaque
                    | OptionEffect::OpaqueFile
            )
        };
        self.options.values().any(|option| starts(option.does))
    }

    pub(super) fn runs(&self) -> bool {
        let is_running = |role: &Operand| {
            matches!(
                role,
                Operand::Program
                    | Operand::Shell
                    | Operand::Shells
                    | Operand::Tails
                    | Operand::RemoteShell
                    | Operand::Remote
            )
        };
        self.roles.iter().any(is_running)
    }

    #[cfg(test)]
    pub(super) fn options(&self) -> impl Iterator<Item = (&'static str, Opt)> {
        self.options.iter().map(|(name, option)| (*name, *option))
    }
}

const FILES: [&str; 6] = [
    include_str!("text.txt"),
    include_str!("files.txt"),
    include_str!("wrappers.txt"),
    include_str!("network.txt"),
    include_str!("languages.txt"),
    include_str!("git.txt"),
];

/// Mistakes in the entries; a test checks that there are none.
type Mistakes = Vec<String>;

/// The entries by name; several names may share one.
struct UtilityTable {
    programs: Vec<Utility>,
    names: HashMap<&'static str, usize>,
    wrong: Mistakes,
}

static TABLE: LazyLock<UtilityTable> = LazyLock::new(|| UtilityTable::read(&FILES));

/// Returns the entry of a program, or of a command of a program (`git diff`).
pub(super) fn program(name: &str) -> Option<&'static Utility> {
    TABLE.names.get(name).and_then(|at| TABLE.programs.get(*at))
}

#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static Utility)> {
    TABLE
        .names
        .iter()
        .map(|(name, at)| (*name, &TABLE.programs[*at]))
}

impl UtilityTable {
    fn read(files: &[&'static str]) -> Self {
        let lines = || {
            files
                .iter()
                .flat_map(|text| text.lines())
                .filter(|line| !line.trim_start().starts_with('#'))
        };
        let mut table = Self {
            programs: vec![],
            names: HashMap::new(),
            wrong: vec![],
        };
        // Groups may be defined after their use.
        let mut groups: HashMap<&'static str, Vec<&'static str>> = HashMap::new();
        let mut open = None;
        for line in lines() {
            match line.strip_prefix(char::is_whitespace) {
                None => open = line.strip_prefix('@').map(str::trim),
                Some(field) if !field.trim().is_empty() => {
                    if let Some(group) = open {
                        groups.entry(group).or_default().push(field.trim());
                    }
                }
                Some(_) => {}
            }
        }
        let mut grouped = false;
        for line in lines() {
            if line.trim().is_empty() {
                continue;
            }
            if line.starts_with(char::is_whitespace) {
                if !grouped && let Some(program) = table.programs.last_mut() {
                    field(program, line.trim(), &groups, &mut table.wrong);
                }
                continue;
            }
            grouped = line.starts_with('@');
            if grouped {
                continue;
            }
            let at = table.programs.len();
            for name in line
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
            {
                if table.names.insert(name, at).is_some() {
                    table.wrong.push(format!("{name} has two entries"));
                }
            }
            let name = line.split(',').next().unwrap_or_default().trim();
            table.programs.push(Utility {
                name,
                ..Utility::default()
            });
        }
        for program in &mut table.programs {
            program.longs = program
                .options
                .keys()
                .filter(|name| name.starts_with("--"))
                .copied()
                .collect();
            program.longs.sort_unstable();
            if !program.has_whole_word_options {
                let is_pair = |name: &&&'static str| {
                    name.len() > 2 && name.starts_with('-') && !name.starts_with("--")
                };
                program.pairs = program.options.keys().filter(is_pair).copied().collect();
                program.pairs.sort_unstable();
            }
            for (_, name) in &program.modes {
                if !table.names.contains_key(name) {
                    table
                        .wrong
                        .push(format!("{}: there is no entry {name}", program.name));
                }
            }
        }
        table
    }
}

fn field(
    program: &mut Utility,
    line: &'static str,
    groups: &HashMap<&str, Vec<&'static str>>,
    wrong: &mut Mistakes,
) {
    let Some((key, value)) = line.split_once(':') else {
        wrong.push(format!("{}: {line:?} is no field", program.name));
        return;
    };
    let words = value.split_whitespace();
    if let Some(does) = does(key) {
        words.for_each(|word| option(program, does, word));
        return;
    }
    match key {
        "does" => words.for_each(|word| add_property(program, word, wrong)),
        "also" => {
            for name in words {
                match groups.get(name.trim_start_matches('@')) {
                    Some(fields) => fields
                        .iter()
                        .for_each(|line| field(program, line, groups, wrong)),
                    None => wrong.push(format!("{}: there is no group {name}", program.name)),
                }
            }
        }
        "words" => {
            for word in words {
                let (name, many) = word
                    .strip_suffix("...")
                    .map_or((word, false), |name| (name, true));
                match role(name) {
                    Some(role) => program.roles.push(role),
                    None => wrong.push(format!("{}: there is no role {name}", program.name)),
                }
                if many {
                    program.repeated_role = Some(program.roles.len().saturating_sub(1));
                }
            }
            let takes_rest = |role: &Operand| {
                matches!(
                    role,
                    Operand::Program
                        | Operand::Shell
                        | Operand::Tails
                        | Operand::RemoteShell
                        | Operand::Remote
                        | Operand::Command
                        | Operand::Script
                )
            };
            program.options_end_at_operand |= program.roles.iter().any(takes_rest);
        }
        "style" => words.for_each(|word| match word {
            "whole" => program.has_whole_word_options = true,
            "bundle" => program.may_begin_with_bundle = true,
            "first" => program.options_end_at_operand = true,
            _ => wrong.push(format!("{}: there is no style {word}", program.name)),
        }),
        "instead" => program.instead.extend(words),
        "instead-of-last" => program.instead_of_last.extend(words),
        "tells" => program.information_options.extend(words),
        "deep" => program.recursive_options.extend(words),
        "meets" => program
            .meets
            .get_or_insert_default()
            .extend(words.filter(|word| *word != "nothing")),
        "mode" => match value.split_once("->") {
            Some((options, name)) => program
                .modes
                .push((options.split_whitespace().collect(), name.trim())),
            None => wrong.push(format!("{}: {line:?} names no entry", program.name)),
        },
        "asks" | "denies" => {
            let (options, why) = value.split_once('|').unwrap_or((value, ""));
            let options: Vec<&str> = options
                .split_whitespace()
                .filter(|word| *word != "always")
                .collect();
            let action = if key == "asks" {
                Action::Ask
            } else {
                Action::Deny
            };
            for name in &options {
                // It has to be known, or its abbreviations could not be recognised.
                let key = name
                    .strip_prefix('-')
                    .filter(|rest| rest.len() == 1 && !program.has_whole_word_options)
                    .unwrap_or(name);
                program.options.entry(key).or_insert(Opt {
                    does: OptionEffect::Unproven,
                    takes: ValueForm::Nothing,
                });
            }
            program.minimums.push(MinimumVerdict {
                action,
                options,
                why: why.trim(),
            });
        }
        "unread" => program.why_unknown = Some(value.trim()),
        "special" => program.special = value.trim(),
        _ => wrong.push(format!("{}: there is no field {key}", program.name)),
    }
}

fn does(key: &str) -> Option<OptionEffect> {
    Some(match key {
        "harmless" => OptionEffect::Harmless,
        "reads" => OptionEffect::Reads,
        "lists" => OptionEffect::Lists,
        "names" => OptionEffect::Names,
        "writes" => OptionEffect::Writes,
        "edits" => OptionEffect::Edits,
        "destroys" => OptionEffect::Destroys,
        "sends" => OptionEffect::Sends,
        "enters" => OptionEffect::Enters,
        "elsewhere" => OptionEffect::RemoteShell,
        "runs" => OptionEffect::Runs,
        "until" => OptionEffect::Until,
        "program" => OptionEffect::Program,
        "module" => OptionEffect::Module,
        "interactive" => OptionEffect::Interactive,
        "file" => OptionEffect::File,
        "formats" => OptionEffect::Formats,
        "settings" => OptionEffect::Settings,
        "options" => OptionEffect::Options,
        "splits" => OptionEffect::Splits,
        "action" => OptionEffect::Action,
        "changes" => OptionEffect::Changes,
        "unproven" => OptionEffect::Unproven,
        "doubt" => OptionEffect::Doubt,
        "opaque" => OptionEffect::Opaque,
        "opaque-file" => OptionEffect::OpaqueFile,
        _ => return None,
    })
}

fn role(name: &str) -> Option<Operand> {
    Some(match name {
        "-" | "text" => Operand::Nothing,
        "list" => Operand::List,
        "read" => Operand::Read,
        "write" => Operand::Write,
        "entry" => Operand::Entry,
        "copy" => Operand::Copy,
        "change" => Operand::Change,
        "plus" => Operand::Plus,
        "unproven" => Operand::Unproven,
        "lost" => Operand::Lost,
        "lost-below" => Operand::LostBelow,
        "settings" => Operand::Settings,
        "program" => Operand::Program,
        "shell" => Operand::Shell,
        "shells" => Operand::Shells,
        "tails" => Operand::Tails,
        "away" => Operand::RemoteShell,
        "remote" => Operand::Remote,
        "far" => Operand::Far,
        "address" => Operand::Address,
        "git-address" => Operand::GitAddress,
        "refspec" => Operand::Refspec,
        "command" => Operand::Command,
        "script" => Operand::Script,
        "stranger" => Operand::UnknownProgram,
        _ => return None,
    })
}

fn add_property(program: &mut Utility, word: &str, wrong: &mut Mistakes) {
    match word {
        "reads" => program.effect = Effect::Reads,
        "unproven" => program.effect = Effect::Unproven,
        "writes" => program.effect = Effect::Writes,
        "any" => program.accepts_any_option = true,
        "destroys" => program.destroys = true,
        "carrier" => program.runs_other_programs = true,
        "network" => program.uses_network = true,
        "recursive" => program.reads_recursively = true,
        _ => wrong.push(format!("{}: it cannot be {word}", program.name)),
    }
}

/// Adds one word of a list of options: `-abc=`, `--long`, `--long=?`, `-#`, `of=`.
fn option(program: &mut Utility, does: OptionEffect, word: &'static str) {
    // `"-pe="`: a whole word, not single letters.
    let word = word.strip_suffix('"').unwrap_or(word);
    let ends = [
        ("=?", ValueForm::Attached),
        ("==", ValueForm::Second),
        ("=", ValueForm::Value),
    ];
    let (name, takes) = ends
        .iter()
        .find_map(|(end, takes)| Some((word.strip_suffix(end)?, *takes)))
        .unwrap_or((word, ValueForm::Nothing));
    if name.contains('=') {
        program.exact.push(name);
        return;
    }
    if let Some(name) = name.strip_prefix('"') {
        program.options.insert(name, Opt { does, takes });
        return;
    }
    let letters = name.strip_prefix('-').filter(|rest| {
        !rest.starts_with('-') && !program.has_whole_word_options && !rest.is_empty()
    });
    let Some(letters) = letters else {
        program.options.insert(name, Opt { does, takes });
        return;
    };
    for (at, letter) in letters.char_indices() {
        let last = at + letter.len_utf8() == letters.len();
        let takes = if last { takes } else { ValueForm::Nothing };
        program
            .options
            .insert(&letters[at..at + letter.len_utf8()], Opt { does, takes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_programs_are_valid() {
        assert!(TABLE.wrong.is_empty(), "{}", TABLE.wrong.join("\n"));
        assert!(TABLE.names.len() > 500, "{}", TABLE.names.len());
        let bad = UtilityTable::read(&[
            "x\n    harmles: -a\n    does: nothing\n    mode: -a -> y\n",
            "x\n",
        ]);
        assert_eq!(bad.wrong.len(), 4, "{:?}", bad.wrong);
    }
}
