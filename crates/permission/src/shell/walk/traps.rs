//! Texts that run later: a trap's, at the end or between any two commands, wherever the shell is by then.

use super::Walk;
use crate::shell::expand::{Arg, ShellState, Value, either};
use crate::shell::names::among;
use crate::shell::unit::Unit;

/// How many traps one line may set.
const TRAPS: usize = 32;

/// A text that runs later, and what it may find then.
#[derive(Debug)]
pub(super) struct Trap {
    text: Arg,
    /// What it was judged as where it was set.
    unit: Unit,
    other_shell: bool,
    state: ShellState,
    /// It may find another directory, or other values, than where it was set.
    stale: bool,
}

impl Walk<'_> {
    /// A text that runs later, as the words say when.
    pub(super) fn later(&mut self, text: &Arg, words: &[Arg], unit: &mut Unit, state: &mut ShellState) {
        if self.traps.len() >= TRAPS {
            return unit.at_stake("it sets more traps than are looked at");
        }
        let plain = unit.clone();
        let mut inner = state.clone();
        self.text(text, unit, false, false, &mut inner);
        inner.settle();
        // Only at the end nothing runs after it any more.
        let signals = words.iter().skip_while(|word| word.raw != text.raw).skip(1);
        if !signals.into_iter().all(|signal| signal.text().is_some_and(|signal| among("EXIT 0", signal))) {
            self.between(inner, state);
        }
        let (text, other_shell) = (text.clone(), self.frame.other_shell);
        self.traps.push(Trap { text, unit: plain, other_shell, state: state.clone(), stale: false });
    }

    /// What such a text leaves behind may be so between any two commands from here on.
    fn between(&mut self, inner: ShellState, state: &mut ShellState) {
        for (name, value) in inner.vars {
            if state.vars.get(&name) != Some(&value) {
                state.vars.insert(name, Value::Foreign);
            }
        }
        if let Some(reason) = inner.changed {
            state.change(&reason);
        }
        if inner.cwd != state.cwd || inner.adrift {
            state.drift();
        }
    }

    /// Notes what texts that run later may find: a command has run.
    pub(super) fn passed(&mut self, state: &ShellState) {
        self.traps.iter_mut().for_each(|trap| trap.passed(state));
    }

    /// Judges texts that run later once more, where what they find may be something else by then.
    pub(super) fn run_traps(&mut self) {
        for Trap { text, mut unit, other_shell, mut state, stale } in std::mem::take(&mut self.traps) {
            if !stale {
                continue;
            }
            let outer = std::mem::replace(&mut self.frame.other_shell, other_shell);
            let index = self.reserve();
            self.text(&text, &mut unit, false, false, &mut state);
            self.fill(index, unit);
            self.frame.other_shell = outer;
        }
    }
}

impl Trap {
    fn passed(&mut self, state: &ShellState) {
        let failed = state.otherwise.iter().map(|failed| &failed.cwd);
        for cwd in std::iter::once(&state.cwd).chain(failed) {
            let cwd = either(&self.state.cwd, cwd);
            if cwd != self.state.cwd {
                self.state.cwd = cwd;
                self.stale = true;
            }
        }
        for (name, value) in &state.vars {
            if self.state.vars.get(name) != Some(value) {
                let before = self.state.vars.get(name).cloned();
                self.state.set(name, value.clone());
                self.stale |= self.state.vars.get(name) != before.as_ref();
            }
        }
        for (name, bodies) in &state.functions {
            if self.state.functions.get(name).is_none_or(|known| known.len() < bodies.len()) {
                self.state.functions.insert(name.clone(), bodies.clone());
                self.stale = true;
            }
        }
    }
}
