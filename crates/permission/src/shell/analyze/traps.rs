//! Traps: texts that run at the end or between any two commands, in whatever directory the shell
//! then is.

use super::Analyzer;
use crate::shell::expand::{Arg, ShellState, Value, merge_paths};
use crate::shell::names::among;
use crate::shell::unit::CommandUnit;

/// The maximum number of traps of one line.
const MAX_TRAPS: usize = 32;

/// A text that runs later, and the state in which it may run.
#[derive(Debug)]
pub(super) struct Trap {
    text: Arg,
    /// The unit of the command that set it.
    unit: CommandUnit,
    other_shell: bool,
    state: ShellState,
    /// True if it may run in another directory, or with other values, than where it was set.
    is_stale: bool,
}

impl Analyzer<'_> {
    /// Records a text that runs later; `words` name the signals.
    pub(super) fn set_trap(
        &mut self,
        text: &Arg,
        words: &[Arg],
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        if self.traps.len() >= MAX_TRAPS {
            return unit.set_unconfined_effect("it sets more traps than are examined");
        }
        let plain = unit.clone();
        let mut inner = state.clone();
        self.text(text, unit, false, false, &mut inner);
        inner.merge_outcomes();
        // Nothing runs after a trap at the end.
        let signals = words.iter().skip_while(|word| word.raw != text.raw).skip(1);
        if !signals
            .into_iter()
            .all(|signal| signal.text().is_some_and(|signal| among("EXIT 0", signal)))
        {
            self.apply_between_commands(inner, state);
        }
        let text = text.clone();
        let other_shell = self.frame.other_shell;
        self.traps.push(Trap {
            text,
            unit: plain,
            other_shell,
            state: state.clone(),
            is_stale: false,
        });
    }

    /// Applies the effects of a trap to the state, since it may run between any two commands from
    /// here on.
    fn apply_between_commands(&mut self, inner: ShellState, state: &mut ShellState) {
        for (name, value) in inner.vars {
            if state.vars.get(&name) != Some(&value) {
                state.vars.insert(name, Value::Foreign);
            }
        }
        if let Some(reason) = inner.changed {
            state.set_changed(&reason);
        }
        if inner.cwd != state.cwd || inner.has_directory_trap {
            state.forget_directory_for_good();
        }
    }

    /// Records the state after a command for the traps, which may run in it.
    pub(super) fn update_traps(&mut self, state: &ShellState) {
        self.traps.iter_mut().for_each(|trap| trap.update(state));
    }

    /// Judges traps again that may run in another state than where they were set.
    pub(super) fn run_traps(&mut self) {
        for Trap {
            text,
            mut unit,
            other_shell,
            mut state,
            is_stale: stale,
        } in std::mem::take(&mut self.traps)
        {
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
    fn update(&mut self, state: &ShellState) {
        let failed = state.on_failure.iter().map(|failed| &failed.cwd);
        for cwd in std::iter::once(&state.cwd).chain(failed) {
            let cwd = merge_paths(&self.state.cwd, cwd);
            if cwd != self.state.cwd {
                self.state.cwd = cwd;
                self.is_stale = true;
            }
        }
        for (name, value) in &state.vars {
            if self.state.vars.get(name) != Some(value) {
                let before = self.state.vars.get(name).cloned();
                self.state.set(name, value.clone());
                self.is_stale |= self.state.vars.get(name) != before.as_ref();
            }
        }
        for (name, bodies) in &state.functions {
            if self
                .state
                .functions
                .get(name)
                .is_none_or(|known| known.len() < bodies.len())
            {
                self.state.functions.insert(name.clone(), bodies.clone());
                self.is_stale = true;
            }
        }
    }
}
