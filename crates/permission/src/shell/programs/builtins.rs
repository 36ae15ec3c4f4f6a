//! The builtins of bash: those that change the meaning of later commands, and those that run text.

use std::collections::HashSet;

use super::options::Options;
use super::{CommandContext, PathEffect, ProgramEffect, RunEffect, ShellEffect, UnitEffect};
use crate::shell::expand::{Arg, Value, holds_code, is_quiet, variable_danger};
use crate::shell::names::among;
use crate::shell::unit::Effect;
use crate::{Access, Action};

const BUILTINS: &str = ": true false echo printf test [ pwd cd pushd popd dirs read type hash enable alias unalias \
    set shopt export declare typeset local readonly unset shift let eval exec source . trap wait jobs fg bg kill \
    exit return break continue getopts ulimit umask times command builtin help history fc bind compgen complete \
    compopt mapfile readarray caller disown suspend logout";

/// Builtins that change nothing, whatever their words are.
const HARMLESS_BUILTINS: &str = ": true false pwd dirs times break continue return exit shift caller logout umask ulimit type \
    help which";

const OTHER_READING: &str = "it changes how the shell reads commands";

/// Returns whether a name is a builtin of bash.
pub(crate) fn is_builtin(name: &str) -> bool {
    among(BUILTINS, name)
}

/// Returns the effects of a builtin with these words, or `None` for other names.
pub(crate) fn builtin(
    name: &str,
    args: &[Arg],
    context: &CommandContext<'_>,
) -> Option<Vec<ProgramEffect>> {
    let mut builtin = Builtin {
        effects: vec![],
        context,
    };
    let known = among(HARMLESS_BUILTINS, name)
        || builtin.sets_variables(name, args)
        || builtin.changes_shell(name, args)
        || builtin.runs_words(name, args);
    known.then_some(builtin.effects)
}

/// Returns whether a word that is evaluated may contain a command.
fn may_hold_code(args: &[Arg]) -> bool {
    args.iter().any(|arg| {
        arg.text()
            .is_none_or(|text| holds_code(text) || text.contains('['))
    })
}

struct Builtin<'v> {
    effects: Vec<ProgramEffect>,
    context: &'v CommandContext<'v>,
}

impl Builtin<'_> {
    fn add(&mut self, effect: impl Into<ProgramEffect>) {
        self.effects.push(effect.into());
    }

    fn set_opaque(&mut self, reason: &str) {
        self.add(UnitEffect::Opaque(reason.to_owned()));
    }

    fn set_unproven(&mut self) {
        self.add(UnitEffect::Effect(Effect::Unproven));
    }

    fn set_changed(&mut self, reason: &str) {
        self.add(ShellEffect::Changed(reason.to_owned()));
    }

    fn sets_variables(&mut self, name: &str, args: &[Arg]) -> bool {
        match name {
            "getopts" | "wait" => {
                for name in args.iter().filter_map(Arg::text) {
                    if let Some(reason) = variable_danger(name) {
                        self.set_opaque(&format!("{name} {reason}"));
                    }
                }
                if name == "wait" && may_hold_code(args) {
                    self.set_opaque("it sets a variable that is computed");
                }
            }
            "test" | "[" => {
                let evaluates = args.iter().any(|arg| arg.is("-v") || arg.is("-R"));
                if evaluates && may_hold_code(args) {
                    self.set_opaque("a subscript is evaluated");
                }
            }
            "echo" => {}
            "printf" => self.printf(args),
            "let" => {
                if may_hold_code(args) {
                    self.set_opaque("let evaluates a text that may hold a command");
                }
                for arg in args {
                    self.add(ShellEffect::Computes(
                        arg.text().unwrap_or_default().to_owned(),
                    ));
                }
            }
            "read" | "mapfile" | "readarray" => {
                let letters = if name == "read" {
                    "adinNptu"
                } else {
                    "dnOsucC"
                };
                let (options, at) = Options::leading(args, letters, &[]);
                if let Some(text) = options.find(&["-C"]).and_then(|flag| flag.value.clone()) {
                    self.add(RunEffect::TextInThisShell(text));
                }
                let array = options.find(&["-a"]).and_then(|flag| flag.value.clone());
                for arg in args.get(at..).unwrap_or_default().iter().chain(&array) {
                    match plain_name(arg) {
                        Some(name) => self.add(ShellEffect::Assign(name.to_owned(), Value::Foreign)),
                        None => {
                            self.set_opaque("it sets a variable that determines what runs, or one whose name is computed")
                        }
                    }
                }
            }
            "declare" | "typeset" | "local" | "readonly" | "export" => self.declare(name, args),
            "unset" => {
                for arg in args.iter().filter(|arg| !arg.prefix().starts_with('-')) {
                    match plain_name(arg) {
                        // From this point on it is empty, or has its former value.
                        Some(name) if self.context.state.vars.contains_key(name) => {
                            self.add(ShellEffect::Assign(
                                name.to_owned(),
                                Value::Known(vec![String::new()]),
                            ));
                        }
                        Some(_) => {}
                        None => {
                            self.set_opaque(
                                "it removes a variable that determines what runs, or one whose name is computed",
                            );
                        }
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// Handles `printf -v name` and `-vname`.
    fn printf(&mut self, args: &[Arg]) {
        let Some(first) = args
            .first()
            .filter(|arg| arg.prefix().starts_with("-v") || arg.may_be_option())
        else {
            return;
        };
        let is_attached = first.prefix().len() > 2;
        let target = if is_attached {
            Some(first.after(2))
        } else {
            args.get(1).cloned()
        };
        let target = target.as_ref().and_then(Arg::text).unwrap_or_default();
        match variable_danger(target) {
            Some(reason) => self.set_opaque(&format!("{target} {reason}")),
            None if target.is_empty() || may_hold_code(args.get(..2).unwrap_or(args)) => {
                self.set_opaque("it sets a variable that is computed");
            }
            None => self.add(ShellEffect::Assign(target.to_owned(), Value::Foreign)),
        }
    }

    /// Handles builtins that change the directory, or the way in which the shell reads commands.
    fn changes_shell(&mut self, name: &str, args: &[Arg]) -> bool {
        match name {
            "cd" | "chdir" | "pushd" | "popd" => {
                let (options, at) = Options::leading(args, "", &[]);
                if options.has(&["-P"]) {
                    self.add(ShellEffect::Physical);
                }
                let target = args
                    .get(at)
                    .or_else(|| args.first().filter(|arg| arg.is("-")));
                let rotates = || {
                    target.is_none_or(|arg| !arg.is("-") && arg.prefix().starts_with(['+', '-']))
                };
                // With several words, bash fails, but other shells use the first; they also differ
                // in the options that they know. `chdir` is a builtin of other shells only.
                let differs = !options
                    .flags
                    .iter()
                    .all(|flag| name == "cd" && ["-L", "-P"].contains(&&*flag.name))
                    || options.unknown && target.is_some_and(Arg::known)
                    || args.len() > at + 1;
                if name == "popd" || name == "chdir" || differs || (name == "pushd" && rotates()) {
                    target
                        .into_iter()
                        .for_each(|dir| self.add(PathEffect::Use(Access::List, dir.clone())));
                    self.add(ShellEffect::UnknownDirectory);
                    self.add(UnitEffect::CatchAllOnly(
                        "the directory is not known".to_owned(),
                    ));
                } else {
                    self.add(
                        target.map_or(ShellEffect::Home, |dir| ShellEffect::Enter(dir.clone())),
                    );
                }
            }
            "set" => self.set_options(args),
            "shopt" => {
                const HARMLESS_SHOPT_OPTIONS: &str =
                    "nullglob failglob inherit_errexit globstar checkwinsize pipefail xpg_echo";
                let (options, at) = Options::leading(args, "", &[]);
                let names = args.get(at..).unwrap_or_default();
                let known = names.iter().all(|arg| {
                    arg.text()
                        .is_some_and(|text| among(HARMLESS_SHOPT_OPTIONS, text))
                });
                if options.has(&["-s", "-u"]) && !known {
                    self.set_opaque(OTHER_READING);
                }
            }
            "alias" | "unalias" => {
                if args
                    .iter()
                    .any(|arg| arg.text().is_none_or(|text| text.contains('=')))
                {
                    for arg in args {
                        let from = arg.prefix().find('=').map_or(0, |at| at + 1);
                        self.add(RunEffect::Text {
                            text: arg.after(from),
                            is_conditional: true,
                        });
                    }
                    self.set_unproven();
                    self.set_changed("an alias is set");
                }
            }
            "hash" | "enable" | "bind" | "complete" | "compgen" | "compopt" | "fc" | "history" => {
                let quiet = match name {
                    "hash" | "history" => args.iter().all(|arg| arg.is("-r")),
                    "enable" => args.is_empty(),
                    "compgen" => args.iter().all(|arg| {
                        let runs_code =
                            |text: &str| text.starts_with('-') && text.contains(['C', 'F', 'W']);
                        arg.text()
                            .is_some_and(|text| !text.contains(['$', '`']) && !runs_code(text))
                    }),
                    _ => false,
                };
                if !quiet {
                    self.set_opaque("it changes which code a command name means, or runs one");
                    self.set_changed("what command names mean has changed");
                }
            }
            _ => return false,
        }
        true
    }

    /// Handles builtins that run their words.
    fn runs_words(&mut self, name: &str, args: &[Arg]) -> bool {
        match name {
            "eval" => {
                self.add(UnitEffect::RunsOtherPrograms);
                self.add(RunEffect::Eval(args.to_vec()));
                self.set_changed("eval ran before");
            }
            "trap" => {
                self.add(UnitEffect::RunsOtherPrograms);
                let (options, at) = Options::leading(args, "", &[]);
                let text = args
                    .get(at)
                    .filter(|text| args.len() > at + 1 && !text.is("-"));
                if let Some(text) = text
                    && !options.has(&["-p", "-l"])
                {
                    self.add(RunEffect::DeferredText(text.clone()));
                }
            }
            "source" | "." => {
                self.add(UnitEffect::RunsOtherPrograms);
                self.set_opaque("it runs a file in this shell");
                if let Some(file) = args.first() {
                    self.add(PathEffect::Use(Access::Read, file.clone()));
                }
            }
            "command" | "builtin" | "exec" => {
                let (options, at) =
                    Options::leading(args, if name == "exec" { "a" } else { "" }, &[]);
                self.add(UnitEffect::RunsOtherPrograms);
                if options.unknown {
                    self.set_opaque("how its options end is not known");
                }
                if name == "exec" || !options.has(&["-v", "-V"]) {
                    self.add(RunEffect::Run {
                        words: args.get(at..).unwrap_or_default().to_vec(),
                        is_conditional: false,
                    });
                }
            }
            "jobs" => {
                let (options, at) = Options::leading(args, "", &[]);
                if options.unknown {
                    self.set_opaque("a word that is computed may make it run the words behind it");
                }
                if options.has(&["-x"]) {
                    self.add(UnitEffect::RunsOtherPrograms);
                    self.add(UnitEffect::DangerousOption("-x".to_owned()));
                    self.add(RunEffect::Run {
                        words: args.get(at..).unwrap_or_default().to_vec(),
                        is_conditional: false,
                    });
                }
            }
            "kill" | "disown" | "suspend" | "fg" | "bg" => {
                self.set_unproven();
                if args.iter().any(|arg| arg.is("-1") || arg.is("1")) {
                    self.add(UnitEffect::Minimum(
                        Action::Ask,
                        "it may end every process".to_owned(),
                    ));
                }
            }
            _ => return false,
        }
        true
    }

    fn declare(&mut self, name: &str, args: &[Arg]) {
        let has = |letter| {
            args.iter()
                .any(|arg| arg.prefix().starts_with('-') && arg.prefix().contains(letter))
        };
        let is_integer = has('i');
        let is_function = has('f');
        let is_array = has('a') || has('A');
        if has('n') {
            self.set_opaque("it gives a variable another name");
        }
        let mut set = HashSet::new();
        let mut any = false;
        for arg in args.iter().filter(|arg| !arg.prefix().starts_with('-')) {
            any = true;
            let prefix = arg.prefix();
            let variable = prefix.split(['=', '+']).next().unwrap_or_default();
            if variable.contains('[') || (arg.text().is_none() && !prefix.contains('=')) {
                self.set_opaque("it sets a variable whose name is computed");
            }
            if is_integer && (arg.text().is_none() || holds_code(prefix)) {
                self.set_opaque("a number is computed from text that may hold a command");
            }
            if let Some(reason) = variable_danger(variable) {
                let reason = format!("{variable} {reason}");
                if is_quiet(variable) {
                    self.add(UnitEffect::CodeVariable(reason.clone()))
                } else {
                    self.set_opaque(&reason)
                }
                self.set_changed(&reason);
            }
            if is_integer {
                self.add(ShellEffect::Integer(variable.to_owned()));
            }
            // `declare -a x='($(…))'` reads an array from the text, and runs the commands in it.
            let list = match arg.text().and_then(|text| text.split_once('=')) {
                Some((_, value)) => value.trim_start().starts_with('(') && holds_code(value),
                None => {
                    let is_known =
                        || set.contains(variable) || self.context.state.vars.contains_key(variable);
                    prefix.contains('=') && !arg.raw.contains("=(") && (is_array || is_known())
                }
            };
            if list {
                self.set_opaque("an array is read from text that may hold a command");
            }
            if let Some((variable, value)) = arg.text().and_then(|text| text.split_once('=')) {
                set.insert(variable.to_owned());
                self.add(ShellEffect::Assign(
                    variable.to_owned(),
                    Value::Known(vec![value.to_owned()]),
                ));
            } else if prefix.contains('=') {
                set.insert(variable.to_owned());
                self.add(ShellEffect::Assign(variable.to_owned(), Value::Foreign));
            }
        }
        if is_function && name == "export" {
            self.set_opaque("it hands a function to other shells");
        }
        if !any && !is_function {
            // It prints every variable.
            self.set_unproven();
        }
        if any && name == "export" {
            self.set_unproven();
            self.set_changed("a variable was exported");
        }
    }

    fn set_options(&mut self, args: &[Arg]) {
        const HARMLESS_SET_OPTIONS: &str =
            "pipefail errexit nounset xtrace noclobber noglob verbose";
        if args.is_empty() {
            self.set_unproven();
        }
        for (at, arg) in args.iter().enumerate() {
            let Some(text) = arg.text() else {
                return self.set_opaque("it sets options that are computed");
            };
            if text == "--" || !text.starts_with(['-', '+']) {
                break;
            }
            if text.contains(['k', 'a', 'B', 'r', 'p']) && !text.starts_with("--") {
                self.set_opaque(OTHER_READING);
            }
            if text.contains('P') {
                self.add(ShellEffect::Physical);
            }
            if text.ends_with('o') {
                if args
                    .get(at + 1)
                    .and_then(Arg::text)
                    .is_some_and(|name| !among(HARMLESS_SET_OPTIONS, name))
                {
                    self.set_opaque(OTHER_READING);
                }
                break;
            }
        }
    }
}

/// Returns the name of a variable that has no special meaning and no subscript.
fn plain_name(arg: &Arg) -> Option<&str> {
    arg.text()
        .filter(|name| variable_danger(name).is_none() && !name.contains('['))
}
