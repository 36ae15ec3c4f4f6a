//! Compound commands: loops, branches, functions, conditions.

use super::Analyzer;
use crate::shell::expand::{Arg, ShellState, StdinSource, Value, apply_loop_effects, holds_code};
use crate::shell::unit::Effect;
use shell_parser::syntax;
use syntax::{List, Piece, Script, ShellCommand, ShellCommandKind, Word};

impl Analyzer<'_> {
    pub(super) fn compound(
        &mut self,
        script: &Script,
        command: &ShellCommand,
        state: &mut ShellState,
    ) {
        let outer = self.frame.input.clone();
        for redirect in &command.redirects {
            let mut unit = self.unit(shell_parser::slice(script, &redirect.range));
            unit.effect = Effect::Reads;
            self.redirect(script, redirect, &mut unit, state);
            if let Some(input) = self.input(script, redirect, state) {
                self.frame.input = input;
            }
            if !unit.path_uses.is_empty() || unit.minimum.is_some() || unit.effect != Effect::Reads
            {
                self.push(unit);
            }
        }
        let before = state.directories();
        match &command.kind {
            ShellCommandKind::Simple { .. } => {}
            ShellCommandKind::Group(list) => self.list(script, list, state),
            ShellCommandKind::Subshell(list) => self.list(script, list, &mut state.clone()),
            ShellCommandKind::Branches(lists) => {
                for list in lists {
                    self.list(script, list, state);
                    state.keep_possible(&before);
                }
            }
            ShellCommandKind::Loop(lists) => {
                for list in lists {
                    apply_loop_effects(list, state);
                }
                for list in lists {
                    self.list(script, list, state);
                }
            }
            ShellCommandKind::For { name, words, body } => {
                self.for_loop(script, name, words.as_deref(), body, state)
            }
            ShellCommandKind::Arithmetic(pieces) => {
                self.expanding(script, state, |words| words.arithmetic(pieces));
                self.push_computation(script, command);
            }
            ShellCommandKind::ArithmeticFor { head, body } => {
                // The values that the body gives to the variables are evaluated as well.
                self.expanding(script, state, |words| words.counter(head));
                apply_loop_effects(body, state);
                self.expanding(script, state, |words| words.arithmetic(head));
                self.list(script, body, state);
            }
            ShellCommandKind::Case { word, arms } => {
                self.single(script, word, state);
                for (patterns, list) in arms {
                    for pattern in patterns {
                        self.single(script, pattern, state);
                    }
                    self.list(script, list, state);
                    state.keep_possible(&before);
                }
            }
            ShellCommandKind::Condition(words) => self.condition(script, command, words, state),
            ShellCommandKind::Function { name, body } => {
                let calls = count_calls(body, name, script);
                let starts_itself = calls.parallel > 0 && calls.all > 1;
                self.function(script, name, body, starts_itself, state);
            }
            ShellCommandKind::Coprocess { name, body } => {
                // The variable gets the descriptors.
                name.iter().for_each(|name| {
                    self.expanding(script, state, |words| words.assigns_danger(name))
                });
                // The shell may write unknown data to it, and no names selected by a pipe.
                self.frame.input = StdinSource::Pipe;
                let selected_files = self.frame.selected_files.take();
                self.command(script, body, &mut state.clone());
                self.frame.selected_files = selected_files;
            }
        }
        if matches!(
            command.kind,
            ShellCommandKind::Loop(_)
                | ShellCommandKind::For { .. }
                | ShellCommandKind::ArithmeticFor { .. }
        ) {
            state.keep_possible(&before);
        }
        self.frame.input = outer;
    }

    fn for_loop(
        &mut self,
        script: &Script,
        name: &str,
        words: Option<&[Word]>,
        body: &List,
        state: &mut ShellState,
    ) {
        let args = words.map(|words| self.expand(script, words, state));
        apply_loop_effects(body, state);
        let members = self.members(args.as_deref(), state);
        self.expanding(script, state, |words| words.assign_variable(name, &members));
        state.set(name, members);
        self.expanding(script, state, |words| words.assigns_danger(name));
        self.list(script, body, state);
    }

    /// Records a command that only computes.
    fn push_computation(&mut self, script: &Script, command: &ShellCommand) {
        let mut unit = self.unit(shell_parser::slice(script, &command.range));
        unit.effect = Effect::Reads;
        self.push(unit);
    }

    fn condition(
        &mut self,
        script: &Script,
        command: &ShellCommand,
        words: &[Word],
        state: &mut ShellState,
    ) {
        let args: Vec<Arg> = words
            .iter()
            .map(|word| self.single(script, word, state))
            .collect();
        let is_numeric =
            |arg: &Arg| ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"].contains(&&*arg.raw);
        let mut unit = self.unit(shell_parser::slice(script, &command.range));
        unit.effect = Effect::Reads;
        let named = words
            .iter()
            .zip(&args)
            .skip(1)
            .zip(&args)
            .filter(|(_, before)| before.is("-v") || before.is("-R"));
        for ((word, _), _) in named {
            // A subscript in it would be evaluated.
            if !matches!(word.pieces.as_slice(), [Piece::Text(name)] if !name.contains('[')) {
                unit.set_opaque("which variable it asks for is computed");
            }
        }
        for (at, _) in args.iter().enumerate().filter(|(_, arg)| is_numeric(arg)) {
            let sides = words
                .get(at + 1)
                .into_iter()
                .chain(at.checked_sub(1).and_then(|left| words.get(left)));
            for word in sides {
                self.expanding(script, state, |words| words.computes(&word.pieces));
            }
            let left = at.checked_sub(1).and_then(|left| args.get(left));
            let mut operands = args.get(at + 1).into_iter().chain(left);
            if operands.any(|arg| arg.text().is_some_and(holds_code)) {
                unit.set_opaque("a number is computed from text that holds a command");
            }
        }
        self.push(unit);
    }

    /// Returns the possible values of a loop's variable.
    fn members(&mut self, args: Option<&[Arg]>, state: &ShellState) -> Value {
        let Some(args) = args else {
            return Value::Foreign;
        };
        let mut all = vec![];
        for arg in args {
            if let Some(texts) = arg.texts() {
                all.extend(texts.iter().cloned());
            } else if let (Some(pattern), [cwd]) = (arg.pattern(), state.cwd.as_slice()) {
                match self.disk.glob(pattern, cwd) {
                    Some(names) if names.len() <= 64 => all.extend(names.iter().cloned()),
                    _ => return Value::Foreign,
                }
            } else {
                return Value::Foreign;
            }
        }
        if all.len() > 64 {
            Value::Foreign
        } else {
            Value::Known(all)
        }
    }
}

/// The numbers of calls of a function in its own body.
#[derive(Default)]
struct CallCounts {
    all: usize,
    /// Those in a pipeline or in the background.
    parallel: usize,
}

impl CallCounts {
    fn add_list(&mut self, list: &List, name: &str, script: &Script) {
        for item in list {
            let is_parallel = item.background || item.commands.len() > 1;
            for command in &item.commands {
                self.add_command(command, is_parallel, name, script);
            }
        }
    }

    fn add_command(
        &mut self,
        command: &ShellCommand,
        is_parallel: bool,
        name: &str,
        script: &Script,
    ) {
        match &command.kind {
            ShellCommandKind::Simple { words, .. }
                if words
                    .first()
                    .is_some_and(|word| shell_parser::slice(script, &word.range) == name) =>
            {
                self.all += 1;
                self.parallel += usize::from(is_parallel);
            }
            ShellCommandKind::Group(list)
            | ShellCommandKind::Subshell(list)
            | ShellCommandKind::For { body: list, .. }
            | ShellCommandKind::ArithmeticFor { body: list, .. } => {
                self.add_list(list, name, script)
            }
            ShellCommandKind::Branches(lists) | ShellCommandKind::Loop(lists) => {
                lists
                    .iter()
                    .for_each(|list| self.add_list(list, name, script));
            }
            _ => {}
        }
    }
}

/// Counts the calls of a function in its body.
fn count_calls(body: &ShellCommand, name: &str, script: &Script) -> CallCounts {
    let mut counts = CallCounts::default();
    counts.add_command(body, false, name, script);
    counts
}
