//! The state of the shell on which later commands depend: the directory, variables, functions, and
//! changes to the meaning of words. After a branch that may be taken or not, both outcomes are
//! possible.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use super::syntax::{List, Piece, ShellCommand, ShellCommandKind, Word};
use crate::shell::names::among;

/// The source of a program's standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StdinSource {
    /// Closed.
    Nothing,
    /// Another command or a file.
    Pipe,
    /// A here-document or here-string; `None` if it is computed.
    Text(Option<String>),
}

/// A possible value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Known(Vec<String>),
    /// A number, whose digits do not matter.
    Harmless,
    /// A value from outside: the output of a command, a line that was read.
    Foreign,
}

/// A function as it was written, for calls in other directories.
#[derive(Debug)]
pub(crate) struct WrittenFunction {
    /// The source text of the body.
    pub(crate) body: String,
    /// True if a call may change the directory.
    pub(crate) moves: Cell<bool>,
}

/// The possible current and previous directories of a shell; empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Directories {
    pub(crate) cwd: Vec<PathBuf>,
    pub(crate) previous: Vec<PathBuf>,
}

impl Directories {
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self {
            cwd: merge_paths(&self.cwd, &other.cwd),
            previous: merge_paths(&self.previous, &other.previous),
        }
    }

    /// Returns the directories after `cd -`.
    pub(crate) fn swapped(&self) -> Self {
        Self {
            cwd: self.previous.clone(),
            previous: self.cwd.clone(),
        }
    }
}

/// The state on which later commands depend.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShellState {
    pub(crate) vars: HashMap<String, Value>,
    /// All possible meanings of a name, because a definition may not have been executed.
    pub(crate) functions: HashMap<String, Vec<Rc<WrittenFunction>>>,
    /// The possible current directories, as the shell names them; empty if unknown.
    pub(crate) cwd: Vec<PathBuf>,
    pub(crate) previous: Vec<PathBuf>,
    /// The directories if the last command failed, such as a `cd` to a missing directory.
    pub(crate) on_failure: Option<Directories>,
    /// True if a trap may change the directory between any two commands.
    pub(crate) has_directory_trap: bool,
    /// True after `cd -P` or `set -P`: `..` may be the parent of a link's target.
    pub(crate) is_physical: bool,
    /// True inside a function: the caller may have set variables.
    pub(crate) is_in_function: bool,
    /// The reason why a command may no longer mean what is written.
    pub(crate) changed: Option<String>,
}

impl Value {
    /// Returns whether arithmetic may evaluate it without running a command.
    fn is_harmless(&self) -> bool {
        match self {
            Self::Harmless => true,
            Self::Known(texts) => texts.iter().all(|text| is_number(text)),
            Self::Foreign => false,
        }
    }
}

impl ShellState {
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        if self.is_in_function {
            Some(&Value::Foreign)
        } else {
            self.vars.get(name)
        }
    }

    pub(crate) fn assigned(&self, name: &str) -> bool {
        self.is_in_function || self.vars.contains_key(name)
    }

    /// Adds a possible value of a variable. Former values stay possible, because a branch may not
    /// have been taken.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        let merged = match (self.vars.remove(name), value) {
            (None, value) => value,
            (Some(Value::Known(mut old)), Value::Known(new)) if old.len() + new.len() <= 64 => {
                old.extend(new);
                old.sort();
                old.dedup();
                Value::Known(old)
            }
            (Some(old), new) if old.is_harmless() && new.is_harmless() => Value::Harmless,
            _ => Value::Foreign,
        };
        self.vars.insert(name.to_owned(), merged);
    }

    /// Returns the state of a separate program, such as `sh -c`.
    pub(crate) fn child(&self) -> Self {
        Self {
            cwd: self.cwd.clone(),
            changed: self.changed.clone(),
            ..Self::default()
        }
    }

    pub(crate) fn set_changed(&mut self, reason: &str) {
        self.changed.get_or_insert_with(|| reason.to_owned());
    }

    pub(crate) fn is_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    pub(crate) fn directories(&self) -> Directories {
        Directories {
            cwd: self.cwd.clone(),
            previous: self.previous.clone(),
        }
    }

    /// Sets the directories, whatever the result of the last command.
    pub(crate) fn set_directories(&mut self, to: Directories) {
        let to = if self.has_directory_trap {
            Directories::default()
        } else {
            to
        };
        self.cwd = to.cwd;
        self.previous = to.previous;
        self.on_failure = None;
    }

    /// Sets the directories for success and for failure of the last command.
    pub(crate) fn set_directories_by_outcome(&mut self, done: Directories, failed: Directories) {
        let on_failure = (done != failed).then_some(failed);
        self.set_directories(done);
        self.on_failure = on_failure;
    }

    /// Returns the directories for success and for failure of the last command, and drops the
    /// distinction.
    pub(crate) fn take_outcomes(&mut self) -> (Directories, Directories) {
        let done = self.directories();
        let failed = self.on_failure.take().unwrap_or_else(|| done.clone());
        (done, failed)
    }

    /// Merges both outcomes of the last command, since no later command depends on its result.
    pub(crate) fn merge_outcomes(&mut self) {
        if let Some(failed) = self.on_failure.take() {
            self.set_directories(self.directories().or(&failed));
        }
    }

    /// Makes the directories before a command possible again, since it may not have been executed.
    pub(crate) fn keep_possible(&mut self, before: &Directories) {
        self.merge_outcomes();
        if self.cwd != before.cwd || self.previous != before.previous {
            self.set_directories(before.or(&self.directories()));
        }
    }

    /// Makes the directory unknown from this point on, whatever `cd` follows.
    pub(crate) fn forget_directory_for_good(&mut self) {
        self.has_directory_trap = true;
        self.forget_directory();
    }

    /// Makes the current directory unknown.
    pub(crate) fn forget_directory(&mut self) {
        self.set_directories(Directories::default());
    }
}

/// Merges both outcomes; unknown if one of them is.
pub(crate) fn merge_paths(a: &[PathBuf], b: &[PathBuf]) -> Vec<PathBuf> {
    if a.is_empty() || b.is_empty() {
        return vec![];
    }
    let mut both = a.to_vec();
    both.extend(b.iter().filter(|path| !a.contains(path)).cloned());
    if both.len() > 8 { vec![] } else { both }
}

/// Applies the effects of a loop's body on variables and the directory, since a later round starts
/// from the state after an earlier one.
pub(crate) fn apply_loop_effects(list: &List, state: &mut ShellState) {
    list.iter()
        .flat_map(|item| &item.commands)
        .for_each(|command| apply_loop_command(command, state));
}

fn apply_loop_command(command: &ShellCommand, state: &mut ShellState) {
    match &command.kind {
        ShellCommandKind::Simple { assigns, words } => {
            let assigns = if words.is_empty() {
                assigns.as_slice()
            } else {
                &[]
            };
            for assign in assigns {
                let is_harmless_piece = |piece: &Piece| match piece {
                    Piece::Arithmetic(_) => true,
                    Piece::Text(text) | Piece::Quoted(text) => is_number(text),
                    _ => false,
                };
                let harmless =
                    assign.array.is_none() && assign.value.pieces.iter().all(is_harmless_piece);
                // Twice, so that a formerly known value is no longer the only one.
                let value = || {
                    if harmless {
                        Value::Harmless
                    } else {
                        Value::Foreign
                    }
                };
                state.set(&assign.name, value());
                state.set(&assign.name, value());
            }
            apply_loop_words(words, state);
        }
        ShellCommandKind::For { name, body, .. } => {
            // In the next round it may have another value than before the loop.
            if state.vars.contains_key(name) {
                state.set(name, Value::Foreign);
            }
            apply_loop_effects(body, state);
        }
        ShellCommandKind::Group(list) | ShellCommandKind::ArithmeticFor { body: list, .. } => {
            apply_loop_effects(list, state)
        }
        ShellCommandKind::Branches(lists) | ShellCommandKind::Loop(lists) => lists
            .iter()
            .for_each(|list| apply_loop_effects(list, state)),
        ShellCommandKind::Case { arms, .. } => arms
            .iter()
            .for_each(|(_, list)| apply_loop_effects(list, state)),
        ShellCommandKind::Function { body, .. } => apply_loop_command(body, state),
        _ => {}
    }
}

/// Applies the effects of a simple command on later rounds, by its words.
fn apply_loop_words(words: &[Word], state: &mut ShellState) {
    /// Builtins that assign variables among their words.
    const SETTING: &str =
        "read mapfile readarray printf declare typeset local export readonly let getopts unset";
    let Some((name, words)) = command_name(words) else {
        // A computed name may be any command.
        return state.forget_directory();
    };
    if matches!(&*name, "eval" | "source" | "." | "trap") {
        state.is_in_function = true;
        state.forget_directory();
    }
    if among(SETTING, &name) {
        let begins = |word: &Word| match word.pieces.first() {
            Some(Piece::Text(text) | Piece::Quoted(text)) => Some(text.clone()),
            _ => None,
        };
        for word in words.iter().filter_map(begins) {
            state.set(
                word.split(['=', '+', '[']).next().unwrap_or_default(),
                Value::Foreign,
            );
        }
    }
    let moves = state
        .functions
        .get(&*name)
        .is_some_and(|all| all.iter().any(|function| function.moves.get()));
    if matches!(&*name, "cd" | "chdir" | "pushd" | "popd") || moves {
        state.forget_directory();
    }
}

/// Returns the name of a command, after `command` and `builtin`, with its arguments; `None` if it
/// is computed.
fn command_name(mut words: &[Word]) -> Option<(String, &[Word])> {
    let text = |word: &Word| {
        let part = |piece: &Piece| match piece {
            Piece::Text(text) | Piece::Quoted(text) => Some(text.clone()),
            _ => None,
        };
        word.pieces.iter().map(part).collect::<Option<String>>()
    };
    let mut beginning = false;
    loop {
        let Some((first, rest)) = words.split_first() else {
            return Some((String::new(), words));
        };
        let name = text(first)?;
        words = rest;
        let option = beginning && name.starts_with('-');
        beginning |= matches!(&*name, "command" | "builtin");
        if !option && !matches!(&*name, "command" | "builtin") {
            return Some((name, words));
        }
    }
}

/// Returns whether a command may change the directory of the shell that runs it, as far as its
/// words show.
pub(crate) fn may_move(command: &ShellCommand) -> bool {
    let here = PathBuf::new();
    let mut state = ShellState {
        cwd: vec![here],
        ..ShellState::default()
    };
    apply_loop_command(command, &mut state);
    state.cwd.is_empty()
}

/// Returns whether a text is a plain number, which arithmetic leaves unchanged.
pub(super) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
