//! The builtins of bash: which of them change what later commands mean, and which run text.

use super::expand::Arg;
use super::options::Options;
use super::state::{State, Value};
use super::variables::{holds_code, variable_danger};
use super::walk::Walk;
use super::{Action, Effect, Unit};
use crate::permission::paths::Access;

/// The builtins of bash.
pub(super) const BUILTINS: [&str; 61] = [
    ":",
    "true",
    "false",
    "echo",
    "printf",
    "test",
    "[",
    "pwd",
    "cd",
    "pushd",
    "popd",
    "dirs",
    "read",
    "type",
    "hash",
    "enable",
    "alias",
    "unalias",
    "set",
    "shopt",
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "unset",
    "shift",
    "let",
    "eval",
    "exec",
    "source",
    ".",
    "trap",
    "wait",
    "jobs",
    "fg",
    "bg",
    "kill",
    "exit",
    "return",
    "break",
    "continue",
    "getopts",
    "ulimit",
    "umask",
    "times",
    "command",
    "builtin",
    "help",
    "history",
    "fc",
    "bind",
    "compgen",
    "complete",
    "compopt",
    "mapfile",
    "readarray",
    "caller",
    "disown",
    "suspend",
    "logout",
];

/// Whether a word that is evaluated may hold a command.
fn code(args: &[Arg]) -> bool {
    args.iter().any(|arg| arg.text().is_none_or(|text| holds_code(text) || text.contains('[')))
}

impl Walk<'_> {
    /// A builtin; false for everything else.
    pub(super) fn builtin(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) -> bool {
        match name {
            ":" | "true" | "false" | "pwd" | "dirs" | "times" | "jobs" | "break" | "continue" | "return" | "exit"
            | "shift" | "caller" | "logout" | "umask" | "ulimit" | "type" | "help" | "which" => {}
            _ => {
                return self.sets_variables(name, args, unit, state)
                    || self.changes_shell(name, args, unit, state)
                    || self.runs_words(name, args, unit, state);
            }
        }
        true
    }

    /// Builtins that give variables values.
    fn sets_variables(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) -> bool {
        match name {
            "getopts" | "wait" => {
                for name in args.iter().filter_map(Arg::text) {
                    if let Some(reason) = variable_danger(name) {
                        unit.opaque(&format!("{name} {reason}"));
                    }
                }
                if name == "wait" && code(args) {
                    unit.opaque("it sets a variable that is computed");
                }
            }
            "test" | "[" => {
                let asks = args.iter().any(|arg| arg.is("-v") || arg.is("-R"));
                if asks && code(args) {
                    unit.opaque("a subscript is evaluated");
                }
            }
            "echo" | "printf" => {
                let named = args
                    .first()
                    .is_some_and(|arg| arg.prefix().starts_with("-v") || (name == "printf" && arg.may_be_option()));
                if name == "printf" && named {
                    // `-v name` or `-vname`.
                    let attached = args[0].prefix().len() > 2;
                    let target = if attached { Some(args[0].after(2)) } else { args.get(1).cloned() };
                    let target = target.as_ref().and_then(Arg::text).unwrap_or_default().to_owned();
                    match variable_danger(&target) {
                        Some(reason) => unit.opaque(&format!("{target} {reason}")),
                        None if target.is_empty() || code(args.get(..2).unwrap_or(args)) => {
                            unit.opaque("it sets a variable that is computed")
                        }
                        None => {
                            self.given_to(&target, &Value::Foreign, state);
                            state.set(&target, Value::Foreign);
                        }
                    }
                }
            }
            "let" => {
                if code(args) {
                    unit.opaque("let evaluates a text that may hold a command");
                }
                for arg in args {
                    let pieces = [super::syntax::Piece::Text(arg.text().unwrap_or_default().to_owned())];
                    self.arithmetic_names(&pieces, state);
                }
            }
            "read" | "mapfile" | "readarray" => {
                let letters = if name == "read" { "adinNptu" } else { "dnOsucC" };
                let (options, at) = Options::leading(args, letters, &[]);
                if let Some(text) = options.find(&["-C"]).and_then(|flag| flag.value.clone()) {
                    self.text(&text, unit, false, false, state);
                }
                let array = options.find(&["-a"]).and_then(|flag| flag.value.clone());
                for arg in args.get(at..).unwrap_or_default().iter().chain(&array) {
                    match arg.text() {
                        Some(name) if variable_danger(name).is_none() && !name.contains('[') => {
                            self.given_to(name, &Value::Foreign, state);
                            state.set(name, Value::Foreign);
                        }
                        _ => unit.opaque("it sets a variable that decides what runs, or one whose name is computed"),
                    }
                }
            }
            "declare" | "typeset" | "local" | "readonly" | "export" => self.declare(name, args, unit, state),
            "unset" => {
                for arg in args.iter().filter(|arg| !arg.prefix().starts_with('-')) {
                    match arg.text() {
                        Some(name) if variable_danger(name).is_none() && !name.contains('[') => {}
                        _ => unit.opaque("it removes a variable that decides what runs, or one whose name is computed"),
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// Builtins that change where the shell is and how it reads commands.
    fn changes_shell(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) -> bool {
        match name {
            "cd" | "chdir" | "pushd" | "popd" => {
                let (options, at) = Options::leading(args, "", &[]);
                if options.has(&["-P"]) {
                    // Links are followed before `..` is.
                    state.physical = true;
                }
                if name == "popd"
                    || (name == "pushd" && args.get(at).is_none_or(|arg| arg.prefix().starts_with(['+', '-'])))
                {
                    state.cwd.clear();
                    unit.broad_only.get_or_insert_with(|| "the directory is not known".into());
                } else {
                    let target = args.get(at).or_else(|| args.first().filter(|arg| arg.is("-"))).cloned();
                    self.chdir(target.as_ref(), unit, state);
                }
            }
            "set" => self.set_options(args, unit, state),
            "shopt" => {
                let quiet =
                    ["nullglob", "failglob", "inherit_errexit", "globstar", "checkwinsize", "pipefail", "xpg_echo"];
                let (options, at) = Options::leading(args, "", &[]);
                let names = args.get(at..).unwrap_or_default();
                let known = names.iter().all(|arg| arg.text().is_some_and(|text| quiet.contains(&text)));
                if options.has(&["-s", "-u"]) && !known {
                    unit.opaque("it changes how the shell reads commands");
                }
            }
            "alias" | "unalias" => {
                if args.iter().any(|arg| arg.text().is_none_or(|text| text.contains('='))) {
                    for arg in args {
                        let from = arg.prefix().find('=').map_or(0, |at| at + 1);
                        self.text(&arg.after(from), unit, true, true, state);
                    }
                    unit.effect_at_least(Effect::Unproven);
                    state.change("an alias is set");
                }
            }
            "hash" | "enable" | "bind" | "complete" | "compgen" | "compopt" | "fc" | "history" => {
                let quiet = match name {
                    "hash" | "history" => args.is_empty() || args.iter().all(|arg| arg.is("-r")),
                    "enable" => args.is_empty(),
                    "compgen" => args.iter().all(|arg| {
                        let runs = |text: &str| text.starts_with('-') && text.contains(['C', 'F', 'W']);
                        arg.text().is_some_and(|text| !text.contains(['$', '`']) && !runs(text))
                    }),
                    _ => false,
                };
                if !quiet {
                    unit.opaque("it changes which code a command name means, or runs one");
                    state.change("what command names mean has changed");
                }
            }
            _ => return false,
        }
        true
    }

    /// Builtins that run what they are given.
    fn runs_words(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) -> bool {
        match name {
            "eval" => {
                unit.carrier = true;
                self.joined_text(args, unit, false, state);
                state.change("eval ran before");
            }
            "trap" => {
                unit.carrier = true;
                let (options, at) = Options::leading(args, "", &[]);
                match args.get(at) {
                    Some(text) if args.len() > at + 1 && !text.is("-") && !options.has(&["-p", "-l"]) => {
                        self.text(&text.clone(), unit, false, false, &mut state.clone());
                    }
                    _ => {}
                }
            }
            "source" | "." => {
                unit.carrier = true;
                unit.opaque("it runs a file in this shell");
                if let Some(file) = args.first() {
                    self.touch(Access::Read, file, unit, state);
                }
            }
            "command" | "builtin" => {
                let (options, at) = Options::leading(args, "", &[]);
                unit.carrier = true;
                if options.unknown {
                    unit.opaque("how its options end is not known");
                }
                if !options.has(&["-v", "-V"]) {
                    self.inner(args.get(at..).unwrap_or_default(), unit, false, state);
                }
            }
            "exec" => {
                let (options, at) = Options::leading(args, "a", &[]);
                unit.carrier = true;
                if options.unknown {
                    unit.opaque("how its options end is not known");
                }
                self.inner(args.get(at..).unwrap_or_default(), unit, false, state);
            }
            "kill" | "disown" | "suspend" | "fg" | "bg" => {
                unit.effect_at_least(Effect::Unproven);
                if args.iter().any(|arg| arg.is("-1") || arg.is("1")) {
                    unit.floor(Action::Ask, "it may end every process");
                }
            }
            _ => return false,
        }
        true
    }

    fn declare(&mut self, name: &str, args: &[Arg], unit: &mut Unit, state: &mut State) {
        let sets = args.iter().filter(|arg| !arg.prefix().starts_with('-'));
        let option = |letter| args.iter().any(|arg| arg.prefix().starts_with('-') && arg.prefix().contains(letter));
        let (integer, functions, array) = (option('i'), option('f'), option('a') || option('A'));
        if option('n') {
            unit.opaque("it gives a variable another name");
        }
        let mut any = false;
        for arg in sets {
            any = true;
            let prefix = arg.prefix().to_owned();
            let variable = prefix.split(['=', '+']).next().unwrap_or_default().to_owned();
            if variable.contains('[') || (arg.text().is_none() && !prefix.contains('=')) {
                unit.opaque("it sets a variable whose name is computed");
            }
            if integer && (arg.text().is_none() || holds_code(&prefix)) {
                unit.opaque("a number is computed from text that may hold a command");
            }
            if let Some(reason) = variable_danger(&variable) {
                let reason = format!("{variable} {reason}");
                unit.opaque(&reason);
                state.change(&reason);
            }
            if integer {
                self.numbers.insert(variable.clone());
            }
            // `declare -a x='($(…))'` reads an array from the text, and runs what stands in it.
            let list = match arg.text().and_then(|text| text.split_once('=')) {
                Some((_, value)) => value.trim_start().starts_with('(') && holds_code(value),
                None => {
                    prefix.contains('=') && !arg.raw.contains("=(") && (array || state.vars.contains_key(&variable))
                }
            };
            if list {
                unit.opaque("an array is read from text that may hold a command");
            }
            if let Some((variable, value)) = arg.text().and_then(|text| text.split_once('=')) {
                let value = Value::Known(vec![value.to_owned()]);
                self.given_to(variable, &value, state);
                state.set(variable, value);
            } else if prefix.contains('=') {
                self.given_to(&variable, &Value::Foreign, state);
                state.set(&variable, Value::Foreign);
            }
        }
        if functions && name == "export" {
            unit.opaque("it hands a function to other shells");
        }
        if !any && !functions {
            // It prints every variable.
            unit.effect_at_least(Effect::Unproven);
        }
        if any && name == "export" {
            unit.effect_at_least(Effect::Unproven);
            state.change("a variable was exported");
        }
    }

    fn set_options(&mut self, args: &[Arg], unit: &mut Unit, state: &mut State) {
        if args.is_empty() {
            unit.effect_at_least(Effect::Unproven);
        }
        for (at, arg) in args.iter().enumerate() {
            let Some(text) = arg.text() else {
                unit.opaque("it sets options that are computed");
                return;
            };
            if text == "--" || !text.starts_with(['-', '+']) {
                break;
            }
            if text.contains(['k', 'a', 'B', 'r', 'p']) && !text.starts_with("--") {
                unit.opaque("it changes how the shell reads commands");
            }
            state.physical |= text.contains('P');
            if text.ends_with('o') {
                let quiet = ["pipefail", "errexit", "nounset", "xtrace", "noclobber", "noglob", "verbose"];
                let named = args.get(at + 1).and_then(Arg::text);
                if named.is_some_and(|name| !quiet.contains(&name)) {
                    unit.opaque("it changes how the shell reads commands");
                }
                break;
            }
        }
    }
}
