//! What later commands of a line depend on: the directory, the values of variables, functions, and
//! whether something has changed what words mean. Where a branch may or may not be taken, both
//! outcomes stay possible.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use super::arithmetic::is_number;
use super::syntax::{List, Piece, ShellCommand, ShellCommandKind, Word};
use crate::shell::names::among;

/// Where a program's input comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StdinSource {
    /// Closed.
    Nothing,
    /// Another command or a file.
    Pipe,
    /// A here-doc or here-string; none where it is computed.
    Text(Option<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Known(Vec<String>),
    /// A number.
    Harmless,
    /// Something from outside: a command's output, a line that was read.
    Foreign,
}

/// A function as it was written, for when it is called in another directory than that.
#[derive(Debug)]
pub(crate) struct WrittenFunction {
    pub(crate) body: String,
    /// A call may change the directory.
    pub(crate) moves: Cell<bool>,
}

/// Where a shell may be and was before; empty where that is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    pub(crate) cwd: Vec<PathBuf>,
    pub(crate) previous: Vec<PathBuf>,
}

impl Whereabouts {
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self { cwd: either(&self.cwd, &other.cwd), previous: either(&self.previous, &other.previous) }
    }

    /// There and back.
    pub(crate) fn turned(&self) -> Self {
        Self { cwd: self.previous.clone(), previous: self.cwd.clone() }
    }
}

/// What later commands depend on.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShellState {
    pub(crate) vars: HashMap<String, Value>,
    /// All that a name may stand for: a definition may not have been reached.
    pub(crate) functions: HashMap<String, Vec<Rc<WrittenFunction>>>,
    /// Where the shell may be, as it names the place; empty where that is not known.
    pub(crate) cwd: Vec<PathBuf>,
    pub(crate) previous: Vec<PathBuf>,
    /// Where it is instead if the last command failed, as a `cd` does whose directory is not there.
    pub(crate) otherwise: Option<Whereabouts>,
    /// A trap may change the directory between any two commands.
    pub(crate) adrift: bool,
    /// `cd -P` or `set -P` came before: `..` may be above what a link leads to.
    pub(crate) physical: bool,
    /// Inside a function: variables may have been set by whoever calls it.
    pub(crate) called: bool,
    /// Why a command may no longer mean what it says.
    pub(crate) changed: Option<String>,
}

impl Value {
    /// Arithmetic may evaluate it: no code can come of it.
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
        if self.called { Some(&Value::Foreign) } else { self.vars.get(name) }
    }

    pub(crate) fn assigned(&self, name: &str) -> bool {
        self.called || self.vars.contains_key(name)
    }

    /// Adds what a variable may hold. Nothing is forgotten: a branch may not have been taken.
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

    /// The state of a program of its own, such as `sh -c`.
    pub(crate) fn child(&self) -> Self {
        Self { cwd: self.cwd.clone(), changed: self.changed.clone(), ..Self::default() }
    }

    pub(crate) fn change(&mut self, reason: &str) {
        self.changed.get_or_insert_with(|| reason.to_owned());
    }

    pub(crate) fn is_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    pub(crate) fn whereabouts(&self) -> Whereabouts {
        Whereabouts { cwd: self.cwd.clone(), previous: self.previous.clone() }
    }

    /// Goes where the shell is, whatever became of the last command.
    pub(crate) fn go(&mut self, to: Whereabouts) {
        let to = if self.adrift { Whereabouts::default() } else { to };
        (self.cwd, self.previous, self.otherwise) = (to.cwd, to.previous, None);
    }

    /// Goes where the shell is if the last command was done, and if it failed.
    pub(crate) fn go_if(&mut self, done: Whereabouts, failed: Whereabouts) {
        let otherwise = (done != failed).then_some(failed);
        self.go(done);
        self.otherwise = otherwise;
    }

    /// Where the shell is if the last command was done, and if it failed; it is settled by that.
    pub(crate) fn outcomes(&mut self) -> (Whereabouts, Whereabouts) {
        let done = self.whereabouts();
        let failed = self.otherwise.take().unwrap_or_else(|| done.clone());
        (done, failed)
    }

    /// From here on nobody asks what became of the last command.
    pub(crate) fn settle(&mut self) {
        if let Some(failed) = self.otherwise.take() {
            self.go(self.whereabouts().or(&failed));
        }
    }

    /// What ran since then may not have run.
    pub(crate) fn perhaps_still(&mut self, before: &Whereabouts) {
        self.settle();
        if self.cwd != before.cwd || self.previous != before.previous {
            self.go(before.or(&self.whereabouts()));
        }
    }

    /// From here on the shell may be anywhere, whatever it enters.
    pub(crate) fn drift(&mut self) {
        self.adrift = true;
        self.lose();
    }

    /// Where the shell is is not known any more.
    pub(crate) fn lose(&mut self) {
        self.go(Whereabouts::default());
    }
}

/// Both outcomes; unknown where one of them is.
pub(crate) fn either(a: &[PathBuf], b: &[PathBuf]) -> Vec<PathBuf> {
    if a.is_empty() || b.is_empty() {
        return vec![];
    }
    let mut both = a.to_vec();
    both.extend(b.iter().filter(|path| !a.contains(path)).cloned());
    if both.len() > 8 { vec![] } else { both }
}

/// Names a loop's body assigns, and whether it changes the directory: a later round starts from what
/// an earlier one left.
pub(crate) fn unsettle(list: &List, state: &mut ShellState) {
    list.iter().flat_map(|item| &item.commands).for_each(|command| unsettle_by(command, state));
}

fn unsettle_by(command: &ShellCommand, state: &mut ShellState) {
    match &command.kind {
        ShellCommandKind::Simple { assigns, words } => {
            for assign in assigns.iter().filter(|_| words.is_empty()) {
                let quiet = |piece: &Piece| match piece {
                    Piece::Arithmetic(_) => true,
                    Piece::Text(text) | Piece::Quoted(text) => is_number(text),
                    _ => false,
                };
                let harmless = assign.array.is_none() && assign.value.pieces.iter().all(quiet);
                // Twice, so that a value known before is no longer the only one.
                let value = || if harmless { Value::Harmless } else { Value::Foreign };
                state.set(&assign.name, value());
                state.set(&assign.name, value());
            }
            unsettle_by_words(words, state);
        }
        ShellCommandKind::For { name, body, .. } => {
            // What it held before is not the only thing it holds in the next round.
            if state.vars.contains_key(name) {
                state.set(name, Value::Foreign);
            }
            unsettle(body, state);
        }
        ShellCommandKind::Group(list) | ShellCommandKind::ArithmeticFor { body: list, .. } => unsettle(list, state),
        ShellCommandKind::Branches(lists) | ShellCommandKind::Loop(lists) => {
            lists.iter().for_each(|list| unsettle(list, state))
        }
        ShellCommandKind::Case { arms, .. } => arms.iter().for_each(|(_, list)| unsettle(list, state)),
        ShellCommandKind::Function { body, .. } => unsettle_by(body, state),
        _ => {}
    }
}

/// What a command may leave to the next round, by its words.
fn unsettle_by_words(words: &[Word], state: &mut ShellState) {
    /// Builtins that give the variables among their words another value.
    const SETTING: &str = "read mapfile readarray printf declare typeset local export readonly let getopts unset";
    let Some((name, words)) = command_name(words) else {
        // A name that is computed may be any.
        return state.lose();
    };
    if matches!(&*name, "eval" | "source" | "." | "trap") {
        state.called = true;
        state.lose();
    }
    if among(SETTING, &name) {
        let begins = |word: &Word| match word.pieces.first() {
            Some(Piece::Text(text) | Piece::Quoted(text)) => Some(text.clone()),
            _ => None,
        };
        for word in words.iter().filter_map(begins) {
            state.set(word.split(['=', '+', '[']).next().unwrap_or_default(), Value::Foreign);
        }
    }
    let moves = state.functions.get(&*name).is_some_and(|all| all.iter().any(|function| function.moves.get()));
    if matches!(&*name, "cd" | "chdir" | "pushd" | "popd") || moves {
        state.lose();
    }
}

/// The name of the command that words are, behind `command` and `builtin`, and the words after it; none where it
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
        let Some((first, rest)) = words.split_first() else { return Some((String::new(), words)) };
        let name = text(first)?;
        words = rest;
        let option = beginning && name.starts_with('-');
        beginning |= matches!(&*name, "command" | "builtin");
        if !option && !matches!(&*name, "command" | "builtin") {
            return Some((name, words));
        }
    }
}

/// Whether a command may change the directory of the shell that runs it, as far as its words say.
pub(crate) fn may_move(command: &ShellCommand) -> bool {
    let here = PathBuf::new();
    let mut state = ShellState { cwd: vec![here], ..ShellState::default() };
    unsettle_by(command, &mut state);
    state.cwd.is_empty()
}
