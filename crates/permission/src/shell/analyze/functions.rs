//! Functions. Their bodies are judged where they are defined, and again where they are called in
//! another directory, or after the definition of other functions.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use super::{Analyzer, MAX_LAYERS};
use crate::Action;
use crate::shell::expand::{ShellState, StdinSource, Value, WrittenFunction, may_move};
use crate::shell::unit::CommandUnit;
use shell_parser::syntax;
use syntax::{Script, ShellCommand};

/// The maximum number of bodies that are judged in one line; further calls are asked about.
const MAX_BODIES: usize = 256;

/// A body that was judged, or is being judged.
#[derive(Debug)]
pub(super) struct JudgedBody {
    function: Rc<WrittenFunction>,
    cwd: Vec<PathBuf>,
    /// The number of bodies of all functions at that time.
    functions: usize,
}

impl Analyzer<'_> {
    /// Records the definition of a function. `starts_itself` is true if the
    /// function starts itself again and again.
    pub(super) fn function(
        &mut self,
        script: &Script,
        name: &str,
        body: &ShellCommand,
        starts_itself: bool,
        state: &mut ShellState,
    ) {
        let text = shell_parser::slice(script, &body.range).to_owned();
        let function = Rc::new(WrittenFunction {
            body: text,
            moves: Cell::new(may_move(body)),
        });
        state
            .functions
            .entry(name.to_owned())
            .or_default()
            .push(function.clone());
        if starts_itself {
            let mut unit = self.unit(shell_parser::slice(script, &body.range));
            unit.set_minimum(
                Action::Deny,
                "a function that calls itself endlessly would exhaust the machine",
            );
            self.push(unit);
        }
        self.record_body(&function, state);
        let mut inner = ShellState {
            is_in_function: true,
            ..state.clone()
        };
        // The caller determines its input.
        let outer = std::mem::replace(&mut self.frame.input, StdinSource::Pipe);
        self.command(script, body, &mut inner);
        self.frame.input = outer;
        for name in inner.vars.keys() {
            state.vars.insert(name.clone(), Value::Foreign);
        }
        self.apply_body_effects(&function, inner, state);
        if function.moves.get() && !self.traps.is_empty() {
            // A trap may call it.
            state.forget_directory_for_good();
        }
    }

    fn record_body(&mut self, function: &Rc<WrittenFunction>, state: &ShellState) {
        let functions = count_bodies(state);
        self.bodies.push(JudgedBody {
            function: function.clone(),
            cwd: state.cwd.clone(),
            functions,
        });
    }

    /// Applies the effects of a body on the state, wherever it is called.
    fn apply_body_effects(
        &mut self,
        function: &WrittenFunction,
        mut inner: ShellState,
        state: &mut ShellState,
    ) {
        inner.merge_outcomes();
        if inner.cwd != state.cwd {
            function.moves.set(true);
        }
        if inner.has_directory_trap {
            state.forget_directory_for_good();
        }
        if let Some(reason) = inner.changed {
            state.set_changed(&reason);
        }
        for name in inner.vars.into_keys() {
            state.vars.entry(name).or_insert(Value::Foreign);
        }
        for (name, bodies) in inner.functions {
            let known = state.functions.entry(name).or_default();
            for body in bodies {
                if !known.iter().any(|known| Rc::ptr_eq(known, &body)) {
                    known.push(body);
                }
            }
        }
    }

    /// Analyses a call of a function. If the name has several definitions, any of them may be
    /// called.
    pub(super) fn call_function(
        &mut self,
        name: &str,
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        let bodies = state.functions.get(name).cloned().unwrap_or_default();
        for function in &bodies {
            let is_same = |known: &JudgedBody| {
                Rc::ptr_eq(&known.function, function)
                    && known.cwd == state.cwd
                    && known.functions == count_bodies(state)
            };
            if !self.bodies.iter().any(is_same) {
                self.record_body(function, state);
                self.call_body(function, unit, state);
            }
        }
        if bodies.iter().any(|function| function.moves.get()) {
            state.forget_directory();
        }
    }

    fn call_body(
        &mut self,
        function: &WrittenFunction,
        unit: &mut CommandUnit,
        state: &mut ShellState,
    ) {
        let fits = unit.layer < MAX_LAYERS
            && self.budget.depth <= shell_parser::MAX_DEPTH
            && self.bodies.len() <= MAX_BODIES;
        let script = if fits && self.budget.allows_parsing(function.body.len()) {
            shell_parser::parse(&function.body, 0).ok()
        } else {
            None
        };
        let Some(script) = script else {
            return unit.ask_about_unknown_files("what it does from this directory is not known");
        };
        let layer = self.frame.layer;
        let carried = self.frame.is_conditional;
        let depth = self.budget.depth;
        let input = std::mem::replace(&mut self.frame.input, StdinSource::Pipe);
        let selected_files = self.frame.selected_files.take();
        self.frame.layer = unit.layer + 1;
        self.frame.is_conditional = unit.is_conditional;
        self.budget.depth += 4;
        let mut inner = ShellState {
            is_in_function: true,
            ..state.clone()
        };
        self.list(&script, &script.list, &mut inner);
        self.frame.layer = layer;
        self.frame.is_conditional = carried;
        self.budget.depth = depth;
        self.frame.input = input;
        self.frame.selected_files = selected_files;
        self.apply_body_effects(function, inner, state);
    }
}

/// Returns the number of bodies of all functions; a redefinition adds one.
fn count_bodies(state: &ShellState) -> usize {
    state.functions.values().map(Vec::len).sum()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use crate::Action::{Allow, Ask, Deny};
    use crate::Rules;
    use crate::case_tables::{PathFixture, bash_rules, judge};

    #[test]
    fn deferred_text_is_judged_where_it_runs() {
        let lab = PathFixture::new();
        let context = &lab.context;
        let own = bash_rules(context, &[("*", Allow)]).then(&Rules::written(
            "edit",
            &[("*", Allow), ("src/prod.yml", Deny)],
        ));
        let calls = |times: usize| {
            let dirs = (0..times)
                .map(|at| format!("mkdir d{at}; cd d{at}; f; cd {}", context.root.display()));
            format!("f() {{ cat x; }}; {}", dirs.collect::<Vec<_>>().join("; "))
        };
        let table = [
            ("f() { rm prod.yml; }; cd src; f", Deny),
            ("f() { rm prod.yml; }; f", Allow),
            ("f() { rm prod.yml; }; false && f() { :; }; cd src; f", Deny),
            ("trap 'rm prod.yml' EXIT; cd src", Deny),
            ("trap 'rm prod.yml' EXIT; ls src", Allow),
            ("trap f EXIT; f() { rm prod.yml; }; cd src", Deny),
            (
                "f() { cd src; g; }; g() { :; }; (f); g() { rm prod.yml; }; (f)",
                Deny,
            ),
            ("f() { cat; } <<E\nx\nE\ncd src; f", Ask),
            ("f() { cd deep; f; cat x; }; cd src; f", Ask),
            (&calls(3), Allow),
            (&calls(300), Ask),
        ];
        for (line, wanted) in table {
            let shown = line.get(..60).unwrap_or(line);
            assert_eq!(judge(&own, line, context).action, wanted, "{shown}");
        }
    }
}
