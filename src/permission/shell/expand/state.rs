//! What later commands of a line depend on: the directory, the values of variables, functions, and
//! whether something has changed what words mean. Where a branch may or may not be taken, both
//! outcomes stay possible.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::arithmetic::is_number;
use super::syntax::{List, Piece, ShellCommandKind, Word};

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

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Known(Vec<String>),
    /// A number.
    Harmless,
    /// Something from outside: a command's output, a line that was read.
    Foreign,
}

/// What later commands depend on.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShellState {
    pub(crate) vars: HashMap<String, Value>,
    pub(crate) functions: HashSet<String>,
    /// Where the shell may be, as it names the place; empty where that is not known.
    pub(crate) cwd: Vec<PathBuf>,
    pub(crate) previous: Vec<PathBuf>,
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
        self.functions.contains(name)
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
    for command in list.iter().flat_map(|item| &item.commands) {
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
                let text = |word: &Word| match word.pieces.as_slice() {
                    [Piece::Text(text) | Piece::Quoted(text), ..] => Some(text.clone()),
                    _ => None,
                };
                let first = words.first().and_then(text);
                let first = first.as_deref();
                if matches!(first, Some("eval" | "source" | ".")) {
                    state.called = true;
                }
                if matches!(
                    first,
                    Some(
                        "read"
                            | "mapfile"
                            | "readarray"
                            | "printf"
                            | "declare"
                            | "typeset"
                            | "local"
                            | "export"
                            | "readonly"
                            | "let"
                            | "getopts"
                    )
                ) {
                    for word in words.iter().skip(1).filter_map(text) {
                        state.set(word.split(['=', '+', '[']).next().unwrap_or_default(), Value::Foreign);
                    }
                }
                if matches!(first, Some("cd" | "pushd" | "popd")) {
                    state.cwd.clear();
                }
            }
            ShellCommandKind::Group(list)
            | ShellCommandKind::ArithmeticFor { body: list, .. }
            | ShellCommandKind::For { body: list, .. } => unsettle(list, state),
            ShellCommandKind::Branches(lists) | ShellCommandKind::Loop(lists) => {
                lists.iter().for_each(|list| unsettle(list, state))
            }
            ShellCommandKind::Case { arms, .. } => arms.iter().for_each(|(_, list)| unsettle(list, state)),
            _ => {}
        }
    }
}
