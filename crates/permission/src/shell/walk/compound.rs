//! Commands that hold others: loops, branches, functions, conditions.

use super::Walk;
use crate::shell::expand::{Arg, ShellState, StdinSource, Value, holds_code, unsettle};
use crate::shell::parse::{self, syntax};
use crate::shell::unit::Effect;
use syntax::{List, Piece, Script, ShellCommand, ShellCommandKind, Word};

impl Walk<'_> {
    pub(super) fn compound(&mut self, script: &Script, command: &ShellCommand, state: &mut ShellState) {
        let outer = self.frame.input.clone();
        for redirect in &command.redirects {
            let mut unit = self.unit(parse::slice(script, &redirect.range));
            unit.effect = Effect::Reads;
            self.redirect(script, redirect, &mut unit, state);
            if let Some(input) = self.input(script, redirect, state) {
                self.frame.input = input;
            }
            if !unit.touches.is_empty() || unit.floor.is_some() || unit.effect != Effect::Reads {
                self.push(unit);
            }
        }
        let before = state.whereabouts();
        match &command.kind {
            ShellCommandKind::Simple { .. } => {}
            ShellCommandKind::Group(list) => self.list(script, list, state),
            ShellCommandKind::Subshell(list) => self.list(script, list, &mut state.clone()),
            ShellCommandKind::Branches(lists) => {
                for list in lists {
                    self.list(script, list, state);
                    state.perhaps_still(&before);
                }
            }
            ShellCommandKind::Loop(lists) => {
                for list in lists {
                    unsettle(list, state);
                }
                for list in lists {
                    self.list(script, list, state);
                }
            }
            ShellCommandKind::For { name, words, body } => self.each(script, name, words.as_deref(), body, state),
            ShellCommandKind::Arithmetic(pieces) => {
                self.expanding(script, state, |words| words.arithmetic(pieces));
                self.quiet(script, command);
            }
            ShellCommandKind::ArithmeticFor { head, body } => {
                // What the body leaves in the variables is computed with as well.
                self.expanding(script, state, |words| words.counter(head));
                unsettle(body, state);
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
                    state.perhaps_still(&before);
                }
            }
            ShellCommandKind::Condition(words) => self.condition(script, command, words, state),
            ShellCommandKind::Function { name, body } => {
                let (calls, apart) = calls(body, name, script);
                self.function(script, name, body, apart > 0 && calls > 1, state);
            }
            ShellCommandKind::Coprocess { name, body } => {
                // The descriptors become the variable's value.
                name.iter().for_each(|name| self.expanding(script, state, |words| words.assigns_danger(name)));
                // The shell may write to it what nobody has seen, and no names that a pipe picked.
                self.frame.input = StdinSource::Pipe;
                let picked = self.frame.picked.take();
                self.command(script, body, &mut state.clone());
                self.frame.picked = picked;
            }
        }
        if matches!(
            command.kind,
            ShellCommandKind::Loop(_) | ShellCommandKind::For { .. } | ShellCommandKind::ArithmeticFor { .. }
        ) {
            state.perhaps_still(&before);
        }
        self.frame.input = outer;
    }

    fn each(&mut self, script: &Script, name: &str, words: Option<&[Word]>, body: &List, state: &mut ShellState) {
        let args = words.map(|words| self.expand(script, words, state));
        unsettle(body, state);
        let members = self.members(args.as_deref(), state);
        self.expanding(script, state, |words| words.given_to(name, &members));
        state.set(name, members);
        self.expanding(script, state, |words| words.assigns_danger(name));
        self.list(script, body, state);
    }

    /// A part that only computes.
    fn quiet(&mut self, script: &Script, command: &ShellCommand) {
        let mut unit = self.unit(parse::slice(script, &command.range));
        unit.effect = Effect::Reads;
        self.push(unit);
    }

    fn condition(&mut self, script: &Script, command: &ShellCommand, words: &[Word], state: &mut ShellState) {
        let args: Vec<Arg> = words.iter().map(|word| self.single(script, word, state)).collect();
        let numeric = |arg: &Arg| ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"].contains(&&*arg.raw);
        let mut unit = self.unit(parse::slice(script, &command.range));
        unit.effect = Effect::Reads;
        let named = words.iter().zip(&args).skip(1).zip(&args).filter(|(_, before)| before.is("-v") || before.is("-R"));
        for ((word, _), _) in named {
            // A subscript in it would be computed.
            if !matches!(word.pieces.as_slice(), [Piece::Text(name)] if !name.contains('[')) {
                unit.opaque("which variable it asks for is computed");
            }
        }
        for (at, _) in args.iter().enumerate().filter(|(_, arg)| numeric(arg)) {
            let sides = words.get(at + 1).into_iter().chain(at.checked_sub(1).and_then(|left| words.get(left)));
            for word in sides {
                self.expanding(script, state, |words| words.computes(&word.pieces));
            }
            let code = |arg: &&Arg| arg.text().is_some_and(holds_code);
            if args
                .get(at + 1)
                .into_iter()
                .chain(at.checked_sub(1).and_then(|left| args.get(left)))
                .any(|arg| code(&arg))
            {
                unit.opaque("a number is computed from text that holds a command");
            }
        }
        self.push(unit);
    }

    /// What a loop's variable can hold.
    fn members(&mut self, args: Option<&[Arg]>, state: &ShellState) -> Value {
        let Some(args) = args else { return Value::Foreign };
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
        if all.len() > 64 { Value::Foreign } else { Value::Known(all) }
    }
}

/// How often a function's body calls it, and how often in a pipeline or in the background.
fn calls(command: &ShellCommand, name: &str, script: &Script) -> (usize, usize) {
    fn walk(list: &List, name: &str, script: &Script, count: &mut (usize, usize)) {
        for item in list {
            for command in &item.commands {
                count_in(command, item.background || item.commands.len() > 1, name, script, count);
            }
        }
    }
    fn count_in(command: &ShellCommand, apart: bool, name: &str, script: &Script, count: &mut (usize, usize)) {
        match &command.kind {
            ShellCommandKind::Simple { words, .. }
                if words.first().is_some_and(|word| parse::slice(script, &word.range) == name) =>
            {
                count.0 += 1;
                count.1 += usize::from(apart);
            }
            ShellCommandKind::Group(list)
            | ShellCommandKind::Subshell(list)
            | ShellCommandKind::For { body: list, .. }
            | ShellCommandKind::ArithmeticFor { body: list, .. } => {
                walk(list, name, script, count);
            }
            ShellCommandKind::Branches(lists) | ShellCommandKind::Loop(lists) => {
                lists.iter().for_each(|list| walk(list, name, script, count))
            }
            _ => {}
        }
    }
    let mut count = (0, 0);
    count_in(command, false, name, script, &mut count);
    count
}
