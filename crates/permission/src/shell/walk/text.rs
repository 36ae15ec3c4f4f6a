//! Programs in programs and texts in texts: what is run one layer down.

use super::budget::BEGINNING;
use super::{LAYERS, Walk};
use crate::shell::expand::{Arg, ShellState};
use crate::shell::parse;
use crate::shell::unit::{Effect, Unit};
use crate::unread;

/// How many parts of a text that cannot be read are looked at.
const GUESSES: usize = 64;

/// The words of programs that find the next word by its name, where the project's own tools are.
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

/// Whether a program that runs a text is bash. What others take is what `sh` is on the machine.
fn is_bash(unit: &Unit) -> bool {
    unit.program.as_deref().is_some_and(|name| name.rsplit('/').next() == Some("bash"))
}

impl Walk<'_> {
    /// Runs words as a program inside the present one.
    pub(super) fn inner(&mut self, args: &[Arg], outer: &Unit, carried: bool, state: &mut ShellState) {
        if args.is_empty() {
            return;
        }
        if outer.layer >= LAYERS {
            self.unseen("programs run programs too many times over");
            self.unread_words(args);
            return;
        }
        let args = if !self.budget.hands(args.len()) && args.len() > BEGINNING {
            self.unseen("it hands too many words to other programs");
            self.unread_words(&args[BEGINNING..]);
            &args[..BEGINNING]
        } else {
            args
        };
        let text = args.iter().map(|arg| &*arg.raw).collect::<Vec<_>>().join(" ");
        let named = args.iter().map(Arg::normal).collect::<Vec<_>>().join(" ");
        let runner = outer.normal.strip_suffix(&named).filter(|before| RUNNERS.contains(before));
        let unit = Unit {
            runner: runner.map(str::to_owned),
            normal: text.clone(),
            text,
            layer: outer.layer + 1,
            carried: carried || outer.carried,
            effect: Effect::Reads,
            ..Unit::default()
        };
        self.budget.depth += 1;
        self.run(args, unit, state);
        self.budget.depth -= 1;
    }

    /// What may be commands in a text that cannot be read, quotes left out: nothing is allowed by it,
    /// but what would be denied is.
    pub(super) fn guess(&mut self, text: &str, state: &mut ShellState) {
        for segment in unread::commands(text).take(GUESSES) {
            let bare = unread::bare(segment);
            let command = bare.trim_start_matches(|c: char| c == '$' || c.is_whitespace());
            let command = parse::without_reserved(command);
            if let Ok(script) = parse::script(command, 0) {
                self.list(&script, &script.list, state);
            }
        }
    }

    /// Words that some program runs, too many or too deep to be judged: any of them may begin one.
    fn unread_words(&mut self, args: &[Arg]) {
        let length: usize = args.iter().map(|arg| arg.raw.len() + 1).sum();
        // The same words come again one layer down; they are searched for once.
        if self.budget.unread(length) {
            let words: Vec<&str> = std::iter::once("exec").chain(args.iter().map(|arg| &*arg.raw)).collect();
            self.unread.push(words.join(" "));
        }
    }

    /// Runs a text as shell input: `sh -c`, `eval`. A shell of its own where `apart`.
    pub(super) fn text(&mut self, text: &Arg, unit: &mut Unit, carried: bool, apart: bool, state: &mut ShellState) {
        if !text.literal {
            unit.opaque("the command it runs is computed");
        }
        let Some(texts) = text.texts() else { return };
        for text in texts {
            if unit.layer >= LAYERS || self.budget.depth > parse::MAX_DEPTH {
                unit.at_stake("texts run texts too many times over");
                self.unread.push(text.clone());
                return;
            }
            if !self.budget.text(text.len()) {
                unit.at_stake("the text it runs is too long to judge");
                self.unread.push(text.clone());
                continue;
            }
            let script = match parse::script(text, 0) {
                Ok(script) => script,
                Err(reason) => {
                    unit.opaque(&format!("the command it runs cannot be read: {reason}"));
                    unit.texts.push(text.clone());
                    self.unread.push(text.clone());
                    continue;
                }
            };
            let outer = (self.frame.layer, self.frame.carried, self.frame.other_shell, self.budget.depth);
            self.frame.layer = unit.layer + 1;
            self.frame.other_shell = if apart { !is_bash(unit) } else { self.frame.other_shell };
            self.frame.carried = carried || unit.carried;
            self.budget.depth += 4;
            if apart {
                self.list(&script, &script.list, &mut state.child());
            } else {
                self.list(&script, &script.list, state);
            }
            (self.frame.layer, self.frame.carried, self.frame.other_shell, self.budget.depth) = outer;
        }
    }
}
