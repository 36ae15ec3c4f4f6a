//! Simple commands: assignments, words, redirections.

use super::Analyzer;
use crate::Access;
use crate::shell::device;
use crate::shell::expand::{
    Arg, ShellState, StdinSource, Value, harmless, is_quiet, variable_danger,
};
use crate::shell::names::among;
use crate::shell::unit::{CommandUnit, Effect};
use shell_parser::syntax;
use syntax::{Assign, Operator, Piece, Redirect, Script, ShellCommand, Word};

/// Returns whether a command runs in the shell itself, so that other commands may see the variables
/// that are set for it.
fn runs_in_shell(name: &Arg, state: &ShellState) -> bool {
    const SHELL_BUILTINS: &str = "eval source . command builtin trap : break continue exec exit export readonly return set shift \
        times unset";
    name.text()
        .is_none_or(|name| among(SHELL_BUILTINS, name) || state.is_function(name))
}

impl Analyzer<'_> {
    pub(super) fn simple(
        &mut self,
        script: &Script,
        command: &ShellCommand,
        assigns: &[Assign],
        words: &[Word],
        state: &mut ShellState,
    ) {
        let mut unit = self.unit(shell_parser::slice(script, &command.range));
        let alone = words.is_empty();
        unit.effect = Effect::Reads;
        for assign in assigns {
            // `IFS=: read …` splits one line, and the assignment ends with it.
            let splits = assign.name == "IFS"
                && words
                    .first()
                    .is_some_and(|word| shell_parser::slice(script, &word.range) == "read");
            if splits {
                self.single(script, &assign.value, state);
            } else {
                self.assignment(script, assign, alone, &mut unit, state);
            }
        }
        let args = self.expand(script, words, state);
        if args.first().is_some_and(|name| runs_in_shell(name, state)) {
            // Commands in this shell see the variables, and some shells keep them after a few
            // builtins.
            assigns
                .iter()
                .for_each(|assign| state.set(&assign.name, Value::Foreign));
        }
        let outer = self.frame.input.clone();
        for redirect in &command.redirects {
            if let Some(input) = self.input(script, redirect, state) {
                self.frame.input = input;
            }
            self.redirect(script, redirect, &mut unit, state);
        }
        if args.is_empty() {
            // An assignment alone runs nothing. Words that vanish leave no command, either, but
            // they are reported.
            if !command.redirects.is_empty() || unit.opaque.is_some() || !words.is_empty() {
                self.push(unit);
            }
        } else {
            let applies_to_shell = args.len() == 1 && args[0].is("exec");
            self.run(&args, unit, state);
            if applies_to_shell {
                return;
            }
        }
        self.frame.input = outer;
    }

    fn assignment(
        &mut self,
        script: &Script,
        assign: &Assign,
        alone: bool,
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        self.expanding(script, state, |words| words.arithmetic(&assign.subscript));
        let value = self.single(script, &assign.value, state);
        if let Some(words) = &assign.array {
            self.expand(script, words, state);
        }
        let name = &assign.name;
        if let Some(reason) = variable_danger(name) {
            let reason = format!("{name} {reason}");
            if is_quiet(name) && !alone {
                unit.set_opaque_by_variable(&reason)
            } else {
                unit.set_opaque(&reason)
            }
            state.set_changed(&reason);
        } else if !alone && !harmless(name) {
            unit.catch_all_only.get_or_insert_with(|| {
                format!("{name} is set for it, and may change what it does")
            });
            unit.effect_at_least(Effect::Unproven);
        }
        let given = match value.texts() {
            Some(texts) => Value::Known(texts.to_vec()),
            None if matches!(assign.value.pieces.as_slice(), [Piece::Arithmetic(_)]) => {
                Value::Harmless
            }
            None => Value::Foreign,
        };
        if assign.array.is_none() {
            self.expanding(script, state, |words| words.assign_variable(name, &given));
        }
        if alone {
            let certain = assign.array.is_none() && !assign.append && assign.subscript.is_empty();
            let value = match given {
                Value::Known(_) if !certain => Value::Foreign,
                given => given,
            };
            state.set(name, value);
        }
    }

    /// Returns the input that a redirection gives to a program.
    pub(super) fn input(
        &mut self,
        script: &Script,
        redirect: &Redirect,
        state: &mut ShellState,
    ) -> Option<StdinSource> {
        match redirect.operator {
            Operator::Read | Operator::ReadWrite | Operator::DuplicateIn => Some(StdinSource::Pipe),
            Operator::HereString => Some(StdinSource::Text(
                self.single(script, &redirect.target, state)
                    .text()
                    .map(str::to_owned),
            )),
            Operator::HereDoc => {
                let body = script.heredocs.get(redirect.heredoc?)?.body.as_ref()?;
                let literal = |piece: &Piece| match piece {
                    Piece::Quoted(text) | Piece::Text(text) => Some(text.clone()),
                    _ => None,
                };
                let text: Option<Vec<String>> = body.pieces.iter().map(literal).collect();
                Some(StdinSource::Text(text.map(|parts| parts.concat())))
            }
            Operator::Write | Operator::Duplicate => None,
        }
    }

    pub(super) fn redirect(
        &mut self,
        script: &Script,
        redirect: &Redirect,
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        // The variable gets the number of the descriptor.
        redirect
            .variable
            .iter()
            .for_each(|name| self.expanding(script, state, |words| words.assigns_danger(name)));
        if redirect.operator == Operator::HereDoc {
            let body = redirect
                .heredoc
                .and_then(|index| script.heredocs.get(index))
                .and_then(|doc| doc.body.as_ref());
            if let Some(body) = body {
                self.expanding(body, state, |words| words.body(&body.pieces));
            }
            return;
        }
        let target = self.single(script, &redirect.target, state);
        let access = match redirect.operator {
            Operator::HereString | Operator::HereDoc => return,
            Operator::Read => Access::Read,
            Operator::Write | Operator::ReadWrite => Access::Edit,
            Operator::Duplicate | Operator::DuplicateIn => {
                let text = target.text().unwrap_or_default();
                let digits = text.trim_end_matches('-');
                if !text.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return;
                }
                if redirect.operator == Operator::Duplicate {
                    Access::Edit
                } else {
                    Access::Read
                }
            }
        };
        if let Some(text) = target.text() {
            if text.starts_with("/dev/tcp/") || text.starts_with("/dev/udp/") {
                unit.set_unconfined_effect("it opens a network connection");
                return;
            }
            if device::is_harmless(text) {
                return;
            }
        }
        unit.catch_all_only
            .get_or_insert_with(|| "its input or output is redirected to a file".into());
        if access == Access::Edit && !target.is_literal {
            if target.texts().is_some() {
                self.disk.record_use(access, &target, unit, state);
            } else {
                // It writes a file, whatever its name; only a computed descriptor may be an open
                // one.
                let opens = redirect.operator != Operator::Duplicate;
                unit.effect_at_least(if opens {
                    Effect::Writes
                } else {
                    Effect::Unproven
                });
                unit.writes_only_plans = false;
            }
            unit.ask_about_unknown_files(&format!(
                "which file {} writes is not known",
                shell_parser::slice(script, &redirect.range)
            ));
            return;
        }
        self.disk.record_use(access, &target, unit, state);
    }
}
