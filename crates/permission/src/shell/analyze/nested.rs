//! Nested programs and texts, which are analysed one layer deeper.

use super::budget::BEGINNING;
use super::{Analyzer, MAX_LAYERS};
use crate::shell::expand::{Arg, ShellState};
use crate::shell::segments::{split_commands, without_quotes};
use crate::shell::unit::{CommandUnit, Effect};

/// The maximum number of commands that are guessed in a text that cannot be parsed.
const MAX_GUESSES: usize = 64;

/// The words of programs that run the next word by its name, found among the project's tools.
const RUNNERS: [&str; 15] = [
    "bundle exec ",
    "bunx ",
    "hatch run ",
    "npx ",
    "npx --no-install ",
    "npx -y ",
    "pdm run ",
    "pipenv run ",
    "pnpm dlx ",
    "pnpm exec ",
    "poetry run ",
    "uv run ",
    "uvx ",
    "yarn dlx ",
    "yarn exec ",
];

/// Returns whether a program that runs a text is bash. Other programs run `sh`, which differs
/// between machines.
fn is_bash(unit: &CommandUnit) -> bool {
    unit.program
        .as_deref()
        .is_some_and(|name| name.rsplit('/').next() == Some("bash"))
}

impl Analyzer<'_> {
    /// Analyses words as a program inside the current one.
    pub(super) fn run_nested(
        &mut self,
        args: &[Arg],
        outer: &CommandUnit,
        carried: bool,
        state: &mut ShellState,
    ) {
        if args.is_empty() {
            return;
        }
        if outer.layer >= MAX_LAYERS {
            self.mark_incomplete("programs that run programs are nested too deeply");
            self.unread_words(args);
            return;
        }
        let args = if !self.budget.allows_passing(args.len()) && args.len() > BEGINNING {
            self.mark_incomplete("it hands too many words to other programs");
            self.unread_words(&args[BEGINNING..]);
            &args[..BEGINNING]
        } else {
            args
        };
        let text = args
            .iter()
            .map(|arg| &*arg.raw)
            .collect::<Vec<_>>()
            .join(" ");
        let named = args.iter().map(Arg::normal).collect::<Vec<_>>().join(" ");
        let runner = outer
            .normalized
            .strip_suffix(&named)
            .filter(|before| RUNNERS.contains(before));
        let unit = CommandUnit {
            runner: runner.map(str::to_owned),
            normalized: text.clone(),
            text,
            layer: outer.layer + 1,
            is_conditional: carried || outer.is_conditional,
            effect: Effect::Reads,
            ..CommandUnit::default()
        };
        self.budget.depth += 1;
        self.run(args, unit, state);
        self.budget.depth -= 1;
    }

    /// Analyses parts of a text that cannot be parsed as commands, without quotes. The line stays
    /// opaque, so this allows nothing, but it finds denied commands.
    pub(super) fn guess(&mut self, text: &str, state: &mut ShellState) {
        for segment in split_commands(text).take(MAX_GUESSES) {
            let bare = without_quotes(segment);
            let command = bare.trim_start_matches(|c: char| c == '$' || c.is_whitespace());
            let command = shell_parser::without_reserved(command);
            if let Ok(script) = shell_parser::parse(command, 0) {
                self.list(&script, &script.list, state);
            }
        }
    }

    /// Stores words of which any may begin a program, because they are too many or too deeply
    /// nested to be analysed.
    fn unread_words(&mut self, args: &[Arg]) {
        let length: usize = args.iter().map(|arg| arg.raw.len() + 1).sum();
        // The same words may be stored again one layer deeper; the budget limits that.
        if self.budget.allows_storing(length) {
            let words: Vec<&str> = std::iter::once("exec")
                .chain(args.iter().map(|arg| &*arg.raw))
                .collect();
            self.unparsed_texts.push(words.join(" "));
        }
    }

    /// Analyses a text as shell input, such as that of `sh -c` and `eval`; with `apart` in a
    /// separate shell.
    pub(super) fn text(
        &mut self,
        text: &Arg,
        unit: &mut CommandUnit,
        carried: bool,
        apart: bool,
        state: &mut ShellState,
    ) {
        if !text.is_literal {
            unit.set_opaque("the command it runs is computed");
        }
        let Some(texts) = text.texts() else { return };
        for text in texts {
            if unit.layer >= MAX_LAYERS || self.budget.depth > shell_parser::MAX_DEPTH {
                unit.set_unconfined_effect("texts that run texts are nested too deeply");
                self.unparsed_texts.push(text.clone());
                return;
            }
            if !self.budget.allows_parsing(text.len()) {
                unit.set_unconfined_effect("the text it runs is too long to judge");
                self.unparsed_texts.push(text.clone());
                continue;
            }
            let script = match shell_parser::parse(text, 0) {
                Ok(script) => script,
                Err(reason) => {
                    unit.set_opaque(&format!("the command it runs cannot be read: {reason}"));
                    unit.foreign_code.push(text.clone());
                    self.unparsed_texts.push(text.clone());
                    continue;
                }
            };
            let layer = self.frame.layer;
            let carried_outside = self.frame.is_conditional;
            let other_shell = self.frame.other_shell;
            let depth = self.budget.depth;
            self.frame.layer = unit.layer + 1;
            self.frame.other_shell = if apart {
                !is_bash(unit)
            } else {
                self.frame.other_shell
            };
            self.frame.is_conditional = carried || unit.is_conditional;
            self.budget.depth += 4;
            if apart {
                self.list(&script, &script.list, &mut state.child());
            } else {
                self.list(&script, &script.list, state);
            }
            self.frame.layer = layer;
            self.frame.is_conditional = carried_outside;
            self.frame.other_shell = other_shell;
            self.budget.depth = depth;
        }
    }
}
