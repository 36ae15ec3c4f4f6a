//! Maps a program and its arguments to effects. One interpreter reads the program's entry in
//! `programs/`; `special` has the few parts of programs that are not data. Nothing is looked up on
//! the disk, and no nested command is analysed: the result is a list of [`ProgramEffect`]s, which
//! `analyze` applies.

mod builtins;
mod code;
mod credentials;
mod find;
mod globs;
mod languages;
mod lookup;
mod network;
mod options;
mod program_effect;
mod read;
mod recursive;
mod rename;
mod special;
mod table;
mod wrapper;

pub(super) use builtins::{builtin, is_builtin};
#[cfg(test)]
pub(crate) use lookup::{beginnings, wrappers};
pub(crate) use lookup::{carries, family, is_language};
pub(super) use lookup::{is_shell, knows, meets, runs_of_itself, takes_any, takes_next};
pub(super) use program_effect::{
    CommandContext, NameSelection, PathEffect, ProgramEffect, RunEffect, SelectedFiles,
    ShellEffect, UnitEffect,
};

use super::expand::{Arg, StdinSource};
use super::unit::Effect;
use crate::protected::Protected;
use crate::{Access, Action};
pub(crate) use code::protected_in;
pub(super) use find::names_no_secret;
use read::{GivenOption, ParsedArgs};
use table::{Operand, OptionEffect, Utility};

/// Returns the effects of a program with these arguments.
pub(super) fn effects_of<'v>(
    name: &str,
    args: &'v [Arg],
    context: &'v CommandContext<'v>,
) -> Vec<ProgramEffect> {
    // `git-send-pack` is `git send-pack`. The effects that the entry of git adds first, such as
    // those of the repository's settings, are not added here, so the entry of the command is used
    // only if the command cannot be analysed anyway.
    let spaced = name
        .strip_prefix("git-")
        .map(|command| format!("git {command}"));
    let unread = spaced
        .as_deref()
        .filter(|name| table::program(name).is_some_and(|program| program.why_unknown.is_some()));
    let called = match unread {
        Some(name) => name,
        None if table::program(name).is_some() => name,
        None => family(name),
    };
    let mut collector = EffectCollector {
        effects: vec![],
        context,
        depth: 0,
        called: called.to_owned(),
        search: None,
        all: args,
    };
    // Some unknown programs have a known option that only prints information about them.
    let informing = || {
        let program = table::program(&format!("{called} that tells"))?;
        matches!(args, [only] if program.information_options.iter().any(|option| only.is(option)))
            .then_some(program)
    };
    match table::program(called).or_else(informing) {
        Some(program) => collector.program(program, args),
        None => {
            collector.effect(Effect::Unproven);
            collector.add(RunEffect::UnknownProgram(None));
            collector.add(PathEffect::MayLeaveProject(None));
        }
    }
    if let Some(command) = credentials::printed(name, args) {
        let reason = format!("{command} prints a credential");
        collector.add(UnitEffect::Secret(command, reason));
    }
    collector.effects
}

struct EffectCollector<'v> {
    effects: Vec<ProgramEffect>,
    context: &'v CommandContext<'v>,
    /// The number of nested entries, which limits cycles.
    depth: usize,
    /// The name of the entry: `git`, then `git stash`, then `git stash list`.
    called: String,
    /// The search of `find`.
    search: Option<find::Search>,
    /// All words after the program's name.
    all: &'v [Arg],
}

impl EffectCollector<'_> {
    fn add(&mut self, effect: impl Into<ProgramEffect>) {
        self.effects.push(effect.into());
    }

    fn effect(&mut self, effect: Effect) {
        self.add(UnitEffect::Effect(effect));
    }

    fn set_opaque(&mut self, reason: &str) {
        self.add(UnitEffect::Opaque(reason.to_owned()));
    }

    fn set_may_be_denied(&mut self, reason: &str) {
        self.add(UnitEffect::MayBeDenied(reason.to_owned()));
    }

    fn add_dangerous_option(&mut self, option: &str) {
        self.add(UnitEffect::DangerousOption(option.to_owned()));
    }

    fn uses(&mut self, access: Access, arg: &Arg) {
        self.add(PathEffect::Use(access, arg.clone()));
    }

    fn program(&mut self, program: &'static Utility, args: &[Arg]) {
        self.depth += 1;
        if self.depth > 8 {
            return self.add(UnitEffect::NotPreventedBySandbox(
                "its commands are nested too deeply".to_owned(),
            ));
        }
        if let [only] = args
            && program
                .information_options
                .iter()
                .any(|option| only.is(option))
        {
            return self.effect(Effect::Reads);
        }
        let reading = read::read(program, args);
        for (options, name) in &program.modes {
            if reading.has(options)
                && let Some(mode) = table::program(name)
            {
                return self.program(mode, args);
            }
        }
        // A command with an entry of its own states its effects there.
        let takes_command = program.roles == [Operand::Command];
        let command = if takes_command {
            reading.operands.first().and_then(Arg::text)
        } else {
            None
        };
        let has_entry = command
            .is_some_and(|command| table::program(&format!("{} {command}", self.called)).is_some());
        if !has_entry {
            self.general_effects(program);
        }
        if let Some(reason) = program.why_unknown {
            self.add(UnitEffect::NotPreventedBySandbox(reason.to_owned()));
        }
        if program.special == "find" {
            find::find(self, program, &reading, args);
        }
        for minimum in &program.minimums {
            let is_operand = |option: &&str| reading.operands.iter().any(|arg| arg.is(option));
            if minimum.options.is_empty()
                || reading.has(&minimum.options)
                || minimum.options.iter().any(is_operand)
            {
                self.add(UnitEffect::Minimum(minimum.action, minimum.why.to_owned()));
            }
        }
        for option in &reading.options {
            self.option(program, option, args);
        }
        if reading.may_have_unknown_option && !program.accepts_any_option {
            self.effect(Effect::Unproven);
            if program.runs() || program.roles.contains(&Operand::Command) {
                self.set_opaque("how its options end is not known");
            } else if reading.may_have_unknown_words && program.may_start() {
                self.set_may_be_denied(
                    "a word that is computed may hold an option that starts something",
                );
            }
        }
        // The value of an unknown option may be mistaken for the program.
        let has_unknown_option = reading.options.iter().any(|option| option.does.is_none());
        let runs_words = program
            .roles
            .iter()
            .any(|role| matches!(role, Operand::Program | Operand::Shell | Operand::Command));
        if has_unknown_option && runs_words {
            self.add(UnitEffect::MayStartProgram(reading.operands.clone()));
            if program.runs() {
                self.set_may_be_denied(
                    "an option of it is not known, and may change which word is the program",
                );
            }
        }
        if reading.may_have_unknown_words && program.roles.contains(&Operand::Read) {
            // `head -n $n f`: the computed value may be several words, including the name of a
            // file.
            self.effect(Effect::Unproven);
        }
        if special::words(self, program, &reading, args) {
            self.words(program, &reading, args);
        }
        self.leaving(program, args);
    }

    /// Adds the effects that do not depend on the words.
    fn general_effects(&mut self, program: &Utility) {
        self.effect(program.effect);
        if program.destroys {
            self.add(UnitEffect::Destroys);
        }
        if program.uses_network {
            self.add(UnitEffect::Network);
        }
        if program.runs_other_programs || program.runs() {
            self.add(UnitEffect::RunsOtherPrograms);
        }
    }

    /// Adds the words that may lead out of the project unnoticed.
    fn leaving(&mut self, program: &Utility, args: &[Arg]) {
        if program.runs()
            || matches!(
                program.special,
                "language" | "shell" | "foreign shell" | "sed" | "awk"
            )
        {
            return;
        }
        if program.effect == Effect::Reads && !program.name.starts_with("git") {
            let long: Vec<Arg> = args
                .iter()
                .filter(|arg| arg.prefix().starts_with("--"))
                .cloned()
                .collect();
            self.add(PathEffect::MayLeaveProject(Some(long)));
        } else {
            self.leaves(args);
        }
    }

    fn leaves(&mut self, args: &[Arg]) {
        self.add(PathEffect::MayLeaveProject(
            (!std::ptr::eq(args, self.all)).then(|| args.to_vec()),
        ));
    }

    fn add_unknown_program(&mut self, args: &[Arg]) {
        self.add(RunEffect::UnknownProgram(
            (!std::ptr::eq(args, self.all)).then(|| args.to_vec()),
        ));
    }

    fn option(&mut self, program: &Utility, option: &GivenOption, args: &[Arg]) {
        let name = &*option.name;
        let Some(does) = option.does else {
            if !program.accepts_any_option {
                self.add_dangerous_option(name);
                self.effect(Effect::Unproven);
                self.add_foreign_code(option.value.as_ref());
            }
            return;
        };
        match does {
            OptionEffect::Harmless => {}
            OptionEffect::Reads => self.uses(Access::Read, &option.value_or_unknown()),
            OptionEffect::Lists => self.uses(Access::List, &option.value_or_unknown()),
            OptionEffect::Names => {
                self.uses(Access::Read, &option.value_or_unknown());
                let reason = format!(
                    "the files it reads are named in {}",
                    option.value_or_unknown().raw
                );
                self.add(UnitEffect::Unknown(reason));
            }
            OptionEffect::Writes => {
                if program.effect == Effect::Reads && program.special != "archive" {
                    self.add_dangerous_option(name);
                }
                self.uses(Access::Edit, &option.value_or_unknown());
                // strace starts a program for such a file.
                if option.value_or_unknown().prefix().starts_with(['|', '!']) {
                    self.add(RunEffect::Text {
                        text: option.value_or_unknown().after(1),
                        is_conditional: true,
                    });
                }
            }
            OptionEffect::Edits | OptionEffect::Changes => {
                self.add_dangerous_option(name);
                self.effect(Effect::Writes);
            }
            OptionEffect::Destroys => {
                if name.starts_with('-') {
                    self.add_dangerous_option(name);
                }
                self.add(UnitEffect::Destroys);
                self.effect(Effect::Writes);
                if let Some(file) = &option.value {
                    self.uses(Access::Edit, file);
                }
            }
            OptionEffect::Sends => network::sends(self, option),
            OptionEffect::Enters => {
                if program.special == "git" {
                    self.add_dangerous_option(name);
                }
                match &option.value {
                    Some(dir) => self.add(ShellEffect::Enter(dir.clone())),
                    None => self.add(ShellEffect::UnknownDirectory),
                }
            }
            OptionEffect::RemoteShell => {
                self.add_dangerous_option(name);
                self.uses(Access::List, &option.value_or_unknown());
                self.add(UnitEffect::NotPreventedBySandbox(
                    "another repository's settings decide what git starts".to_owned(),
                ));
            }
            does => self.starts(program, does, option, args),
        }
    }

    /// Applies an option that may start a program.
    fn starts(
        &mut self,
        program: &Utility,
        does: OptionEffect,
        option: &GivenOption,
        args: &[Arg],
    ) {
        let name = &*option.name;
        match does {
            OptionEffect::Runs => {
                self.add_dangerous_option(name);
                self.effect(Effect::Unproven);
                self.carries(option.value.as_ref());
            }
            OptionEffect::Until => {
                find::add_terminated_command(self, option, args, program.name == "find")
            }
            OptionEffect::Formats => special::formats(self, option),
            OptionEffect::Settings => special::settings(self, option),
            OptionEffect::Options => special::ssh_option(self, option),
            OptionEffect::Action => {
                self.add_dangerous_option(name);
                self.effect(Effect::Unproven);
                if option.value_or_unknown().prefix().starts_with("exec=") {
                    self.add(RunEffect::Text {
                        text: option.value_or_unknown().after(5),
                        is_conditional: true,
                    });
                } else if !option.value_or_unknown().known() {
                    self.set_opaque("what it does at a checkpoint is computed");
                }
            }
            OptionEffect::Unproven => {
                self.add_dangerous_option(name);
                self.effect(Effect::Unproven);
                self.add_foreign_code(option.value.as_ref());
            }
            OptionEffect::Doubt => {
                self.add_dangerous_option(name);
                self.effect(Effect::Unproven);
                self.set_may_be_denied(&format!(
                    "{name} may make it run more than its arguments name"
                ));
                self.add_foreign_code(option.value.as_ref());
            }
            OptionEffect::Opaque => {
                self.add_dangerous_option(name);
                self.set_opaque(&format!("{name} may start anything"));
                self.add_foreign_code(option.value.as_ref());
            }
            OptionEffect::OpaqueFile => {
                self.add_dangerous_option(name);
                self.uses(Access::Read, &option.value_or_unknown());
                self.set_opaque("its settings are in a file, and may start programs");
            }
            // The programs' own code handles the others: see `languages` and `special`.
            _ => {}
        }
    }

    /// Adds a command that may run: a text, or the name of a program.
    fn carries(&mut self, value: Option<&Arg>) {
        let Some(value) = value else { return };
        if value.text().is_some_and(|text| {
            !text.contains([
                ' ', ';', '$', '`', '|', '&', '\n', '\'', '"', '\\', '<', '>', '(',
            ])
        }) {
            self.add(RunEffect::Run {
                words: vec![value.clone(), Arg::unknown("…")],
                is_conditional: true,
            });
        } else {
            self.add(RunEffect::Text {
                text: value.clone(),
                is_conditional: true,
            });
        }
    }

    /// Asks about protected files that an unparsed text names, in quotes or `anywhere`.
    fn names_files(&mut self, text: &str, anywhere: bool) {
        let Some((name, protected)) = protected_in(text, anywhere) else {
            return;
        };
        match protected {
            Protected::Secret => {
                let reason = format!("its program names {name}, which may hold keys or passwords");
                self.add(UnitEffect::Secret(name, reason));
            }
            _ => {
                let reason = format!("its program names {name}, which determines what runs here");
                self.add(UnitEffect::Minimum(Action::Ask, reason));
            }
        }
    }

    fn add_foreign_code(&mut self, value: Option<&Arg>) {
        if let Some(text) = value.and_then(Arg::text) {
            self.add(UnitEffect::ForeignCode(text.to_owned()));
        }
    }

    /// Gives every word its role.
    fn words(&mut self, program: &'static Utility, reading: &ParsedArgs, args: &[Arg]) {
        let mut roles = program.roles.as_slice();
        let mut many = program.repeated_role;
        if reading.has(&program.instead) {
            roles = roles.get(1..).unwrap_or_default();
            many = many.and_then(|many| many.checked_sub(1));
        }
        if reading.has(&program.instead_of_last) {
            roles = roles
                .get(..roles.len().saturating_sub(1))
                .unwrap_or_default();
        }
        let operands = reading.operands.as_slice();
        // The number of words after those of which there may be any number.
        let trailing = many.map_or(0, |many| roles.len().saturating_sub(many + 1));
        for (at, arg) in operands.iter().enumerate() {
            let left = operands.len() - at;
            let role = match many {
                Some(many) if at >= many && left <= trailing => roles.get(roles.len() - left),
                Some(many) if at >= many => roles.get(many),
                _ => roles.get(at),
            };
            // Later words may have other roles than they seem to have.
            if arg.is_several()
                && !program.accepts_any_option
                && !many.is_some_and(|many| at >= many && trailing == 0)
            {
                self.effect(Effect::Unproven);
                if program.runs() {
                    self.set_opaque("which of its words is the program is not known");
                }
            }
            let Some(role) = role.copied() else {
                // More operands than it takes.
                self.effect(Effect::Unproven);
                self.add_dangerous_option(arg.text().unwrap_or(&arg.raw));
                continue;
            };
            if !self.word(program, role, at, reading, args) {
                return;
            }
        }
        let starts = roles
            .iter()
            .position(|role| matches!(role, Operand::Program | Operand::Shell));
        if starts.is_some_and(|at| operands.len() <= at) {
            // `unshare`, `chroot dir`: starts a shell, which reads the input.
            match self.context.input.clone() {
                StdinSource::Nothing => {}
                StdinSource::Text(Some(text)) => self.add(RunEffect::Text {
                    text: Arg::exact(text),
                    is_conditional: true,
                }),
                StdinSource::Pipe | StdinSource::Text(None) => {
                    self.set_may_be_denied("without a program it may start a shell")
                }
            }
        }
        let has_no_file = many
            .is_some_and(|many| operands.len() <= many && roles.get(many) == Some(&Operand::Read));
        if has_no_file && recursive::is_deep(program, reading) {
            recursive::reads_below(self, &Arg::exact("."), recursive::picks(reading));
        }
    }

    /// Applies one word. Returns `false` if its role took the remaining words as well.
    fn word(
        &mut self,
        program: &'static Utility,
        role: Operand,
        at: usize,
        reading: &ParsedArgs,
        args: &[Arg],
    ) -> bool {
        let arg = &reading.operands[at];
        let deep = program.recursive_options == ["always"] || recursive::is_deep(program, reading);
        match role {
            Operand::Nothing => {}
            // `find . ( … )`
            Operand::List
                if program.special == "find" && arg.prefix().starts_with(['(', ')', '!', ',']) => {}
            Operand::List => self.uses(Access::List, arg),
            Operand::Read => {
                self.uses(Access::Read, arg);
                if deep || program.reads_recursively && program.recursive_options.is_empty() {
                    self.add(PathEffect::ReadTree(arg.clone(), recursive::picks(reading)));
                }
            }
            Operand::Write => {
                self.uses(Access::Edit, arg);
                if deep {
                    self.add(PathEffect::ChangeTree {
                        paths: vec![arg.clone()],
                        asks_if_unknown: true,
                    });
                }
                if at > 0 && program.effect == Effect::Reads {
                    self.add_dangerous_option("a second file");
                }
            }
            Operand::Entry => self.entry(program, arg, deep, reading),
            Operand::Copy => special::copy(self, program, reading, at),
            Operand::Change => self.effect(Effect::Writes),
            Operand::Plus if arg.prefix().starts_with('+') => {}
            Operand::Plus | Operand::Unproven => self.effect(Effect::Unproven),
            Operand::Lost | Operand::LostBelow => special::lost(self, role, arg, reading),
            Operand::Settings => return wrapper::settings_first(self, program, reading, at),
            Operand::Far => {
                if arg.text().is_none_or(|text| !text.contains(':')) {
                    self.uses(Access::Edit, arg);
                    self.uses(Access::Read, arg);
                    if at + 1 < reading.operands.len() && deep {
                        self.add(PathEffect::ReadTree(
                            arg.clone(),
                            NameSelection {
                                only: vec![],
                                ..recursive::picks(reading)
                            },
                        ));
                    }
                    if at + 1 == reading.operands.len() {
                        self.add(PathEffect::CopyTree {
                            from: reading.operands[..at].to_vec(),
                            to: arg.clone(),
                        });
                    }
                }
            }
            Operand::Address => network::address(self, program, reading, arg),
            Operand::GitAddress => {
                if arg.prefix().contains("::") || arg.may_be_option() {
                    self.set_opaque("a command is hidden in an address");
                    self.add_foreign_code(Some(arg));
                }
            }
            Operand::Refspec => {
                if arg.prefix().starts_with(['+', ':']) {
                    self.add(UnitEffect::Minimum(
                        Action::Ask,
                        "it changes or removes history on another machine".to_owned(),
                    ));
                }
            }
            role => return self.runs_words(program, role, at, reading, args),
        }
        true
    }

    /// Adds the effects of removing a file or directory, or of moving it to the last word.
    fn entry(&mut self, program: &Utility, arg: &Arg, deep: bool, reading: &ParsedArgs) {
        let is_move = program.name == "mv";
        let to = if is_move {
            reading.operands.last().cloned()
        } else {
            None
        };
        if let Some(to) = &to {
            self.add(PathEffect::CopyTree {
                from: vec![arg.clone()],
                to: to.clone(),
            });
        }
        self.add(PathEffect::Entry(arg.clone(), to));
        if deep || reading.may_have_unknown_option {
            self.add(PathEffect::ChangeTree {
                paths: vec![arg.clone()],
                asks_if_unknown: program.name == "rm",
            });
        }
        let base_name = arg
            .text()
            .and_then(|text| text.trim_end_matches('/').rsplit('/').next());
        if deep && base_name.is_some_and(|name| name.starts_with('.') && name.len() > 2) {
            self.add(PathEffect::ChangesSelected(SelectedFiles {
                directories: vec![arg.clone()],
                patterns: vec![Arg::exact("*")],
            }));
        }
    }

    /// Applies a word that begins the program's command. Returns `false` if its role took the
    /// remaining words as well.
    fn runs_words(
        &mut self,
        program: &'static Utility,
        role: Operand,
        at: usize,
        reading: &ParsedArgs,
        args: &[Arg],
    ) -> bool {
        let arg = &reading.operands[at];
        let rest = &reading.operands[at..];
        match role {
            Operand::Program => {
                self.add(RunEffect::Run {
                    words: rest.to_vec(),
                    is_conditional: false,
                });
                return false;
            }
            Operand::Shell => {
                self.add(RunEffect::Shell(rest.to_vec()));
                return false;
            }
            Operand::Shells => self.add(RunEffect::Text {
                text: arg.clone(),
                is_conditional: false,
            }),
            Operand::Tails => {
                self.add(UnitEffect::MayStartProgram(rest.to_vec()));
                if program.special == "runner" {
                    self.add(RunEffect::Run {
                        words: rest.to_vec(),
                        is_conditional: true,
                    });
                }
                return false;
            }
            Operand::RemoteShell => {
                self.add(UnitEffect::MayStartProgram(rest.to_vec()));
                self.add_unknown_program(args);
                self.leaves(args);
                self.add(RunEffect::RemoteShell(rest.to_vec()));
                return false;
            }
            Operand::Remote => {
                // Rules may match its text, but it is not judged as if it ran here.
                self.add(UnitEffect::ForeignCode(
                    rest.iter().map(Arg::normal).collect::<Vec<_>>().join(" "),
                ));
                if rest.iter().any(|arg| arg.prefix().starts_with('-')) {
                    self.add_dangerous_option("an option behind the host");
                    self.set_may_be_denied("an option follows the host");
                }
                return false;
            }
            Operand::Command => {
                special::command(self, program, arg, &rest[1..]);
                return false;
            }
            Operand::UnknownProgram => {
                self.add_unknown_program(args);
                return false;
            }
            _ => return true,
        }
        true
    }
}
