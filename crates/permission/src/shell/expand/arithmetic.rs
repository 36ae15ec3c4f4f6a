//! Arithmetic, in which bash evaluates the text of variables.

use super::state::is_number;
use super::variables::variable_danger;
use super::{Expander, Expansion, Value};
use shell_parser::syntax::Piece;

impl<'s> Expansion<'_, 's, '_> {
    /// Expands an arithmetic expression: its substitutions, and the variables whose text it
    /// evaluates.
    pub(crate) fn arithmetic(&mut self, pieces: &'s [Piece]) {
        for piece in pieces {
            match piece {
                Piece::Command { body, .. } => {
                    self.command(body);
                    self.set_opaque("a command's output is computed with, which could run more");
                }
                Piece::Process(inline) => self.runs(self.script, &inline.list, true),
                Piece::Arithmetic(inner) => self.arithmetic(inner),
                Piece::Parameter { inner, .. } => self.arithmetic(inner),
                Piece::Quoted(text) if holds_code(text) => {
                    self.set_opaque("a number is computed from text that holds a command")
                }
                _ => {}
            }
        }
        self.computes(pieces);
    }

    /// Records the assignment `i=0;` at the start of `for ((…))`, which is executed before anything
    /// else is computed.
    pub(crate) fn counter(&mut self, head: &[Piece]) {
        let Some(Piece::Text(text)) = head.first() else {
            return;
        };
        let Some((name, value)) = text
            .split_once(';')
            .and_then(|(first, _)| first.split_once('='))
        else {
            return;
        };
        let name = name.trim();
        let value = value.trim();
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.is_empty() && name.chars().all(is_name_char) && is_number(value) {
            self.assigns_danger(name);
            self.state.set(name, Value::Harmless);
        }
    }

    /// Processes the variables in an expression: their text is evaluated, and they may be assigned.
    pub(crate) fn computes(&mut self, pieces: &[Piece]) {
        let mut names: Vec<String> = vec![];
        for piece in pieces {
            match piece {
                Piece::Text(text) | Piece::Quoted(text) => {
                    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                    names.extend(
                        words
                            .filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()))
                            .map(str::to_owned),
                    );
                }
                // A length, or a number of the shell's own.
                Piece::Parameter {
                    before: Some('#'), ..
                } => {}
                Piece::Parameter {
                    before: None,
                    name,
                    operator,
                    ..
                } if operator.is_empty() => {
                    names.extend(
                        (!["?", "#", "$", "!"].contains(&name.as_str())).then(|| name.clone()),
                    );
                }
                Piece::Parameter { .. } | Piece::Command { .. } => {
                    self.set_opaque("a number is computed from text that may hold a command");
                }
                _ => {}
            }
        }
        for name in names {
            self.assigns_danger(&name);
            let known = match self.state.value(&name) {
                Some(Value::Known(texts)) => texts.iter().all(|text| is_number(text)),
                Some(Value::Harmless) => true,
                _ => false,
            };
            if !known {
                self.set_opaque(
                    "a number is computed from a variable whose text may hold a command",
                );
            }
            let assigned = pieces
                .iter()
                .any(|piece| matches!(piece, Piece::Text(text) if text.contains(['=', '+', '-'])));
            if assigned {
                self.state.set(&name, Value::Harmless);
            }
        }
    }

    /// Processes a value that is assigned to a variable.
    ///
    /// A variable with the integer attribute evaluates the value. A variable that may get the
    /// attribute before the assignment is executed does too; [`Expander::why_undecided`] checks
    /// this at the end of the line.
    pub(crate) fn assign_variable(&mut self, name: &str, value: &Value) {
        match value {
            Value::Known(texts) => {
                self.line.has_code_variable |= texts.iter().any(|text| holds_code(text));
                if !self.is_integer(name) {
                    return;
                }
                if texts.iter().any(|text| holds_code(text)) {
                    self.set_opaque("a number is computed from text that holds a command");
                }
                let pieces: Vec<Piece> =
                    texts.iter().map(|text| Piece::Text(text.clone())).collect();
                self.computes(&pieces);
            }
            Value::Foreign if self.is_integer(name) => {
                self.set_opaque("a number is computed from text that may hold a command");
            }
            Value::Foreign => drop(self.line.unknown_variables.insert(name.to_owned())),
            Value::Harmless => {}
        }
    }

    fn is_integer(&self, name: &str) -> bool {
        matches!(
            name,
            "RANDOM" | "SRANDOM" | "SECONDS" | "LINENO" | "HISTCMD" | "OPTIND"
        ) || self.line.integer_variables.contains(name)
    }

    pub(super) fn assigned_by_expansion(&mut self, name: &str) {
        self.assigns_danger(name);
        self.assign_variable(name, &Value::Foreign);
        self.state.set(name, Value::Foreign);
    }

    pub(crate) fn assigns_danger(&mut self, name: &str) {
        if let Some(reason) = variable_danger(name) {
            self.set_opaque(&format!("{name} {reason}"));
        }
    }
}

impl Expander<'_> {
    /// Records that a variable gets the integer attribute.
    pub(crate) fn integer(&mut self, name: String) {
        self.integer_variables.insert(name);
    }

    /// Returns the reason why a line cannot be judged after it was processed as a whole: functions
    /// and loops are executed in another order than they are written.
    pub(crate) fn why_undecided(&self) -> Option<&'static str> {
        let is_foreign = self
            .integer_variables
            .iter()
            .any(|name| self.unknown_variables.contains(name));
        let may_run_code =
            is_foreign || (self.has_code_variable && !self.integer_variables.is_empty());
        may_run_code.then_some("a number may be computed from text that holds a command")
    }
}

/// Returns whether a text runs a command when bash evaluates it in arithmetic.
pub(crate) fn holds_code(text: &str) -> bool {
    text.contains("$(") || text.contains('`') || text.contains("${")
}
