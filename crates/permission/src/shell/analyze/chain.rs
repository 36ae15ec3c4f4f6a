//! Lists of commands: conditions under which each command runs, and the directory of the shell
//! then.

use super::Analyzer;
use crate::shell::expand::ShellState;
use shell_parser::syntax;
use syntax::{Item, List, Script, ShellCommand, ShellCommandKind};

/// The operator that joins a command to the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// `&&`
    AfterSuccess,
    /// `||`
    AfterFailure,
}

impl Analyzer<'_> {
    pub(super) fn list(&mut self, script: &Script, list: &List, state: &mut ShellState) {
        let mut rest = list.as_slice();
        while !rest.is_empty() && !self.is_full() {
            let more = rest[1..]
                .iter()
                .take_while(|item| item.is_conditional)
                .count();
            let (chain, behind) = rest.split_at(1 + more);
            rest = behind;
            state.merge_outcomes();
            // `cd a && make &`: the whole chain runs in a separate shell.
            if more > 0 && chain[more].background {
                self.chain(script, chain, &mut state.clone());
            } else {
                self.chain(script, chain, state);
            }
        }
    }

    /// Walks commands joined by `&&` and `||`. After `&&` the directory is that of the preceding
    /// commands.
    fn chain(&mut self, script: &Script, chain: &[Item], state: &mut ShellState) {
        for (at, item) in chain.iter().enumerate() {
            if self.is_full() {
                return;
            }
            let condition = at
                .checked_sub(1)
                .map(|before| condition(script, &chain[before], item));
            let (done, failed) = state.take_outcomes();
            let ends = item.commands.len() == 1 && ends_the_shell(script, &item.commands[0], state);
            match condition {
                None => self.with_outcome(script, item, state),
                Some(Some(Condition::AfterSuccess)) => {
                    state.set_directories(done);
                    self.with_outcome(script, item, state);
                    let (now, not) = state.take_outcomes();
                    if ends {
                        state.set_directories_by_outcome(failed.clone(), failed);
                    } else {
                        state.set_directories_by_outcome(now, not.or(&failed));
                    }
                }
                Some(Some(Condition::AfterFailure)) => {
                    state.set_directories(failed);
                    self.with_outcome(script, item, state);
                    let (now, not) = state.take_outcomes();
                    if ends {
                        state.set_directories_by_outcome(done.clone(), done);
                    } else {
                        state.set_directories_by_outcome(now.or(&done), not);
                    }
                }
                Some(None) => {
                    let before = done.or(&failed);
                    state.set_directories(before.clone());
                    self.with_outcome(script, item, state);
                    state.keep_possible(&before);
                }
            }
        }
    }

    /// Walks an item; `!` swaps the outcomes.
    fn with_outcome(&mut self, script: &Script, item: &Item, state: &mut ShellState) {
        let before = self.frame.other_shell.then(|| state.directories());
        self.item(script, item, state);
        // In other shells, `cd a &>f` is `cd a &` and `>f`.
        let redirects_both = |command: &ShellCommand| {
            command
                .redirects
                .iter()
                .any(|redirect| shell_parser::slice(script, &redirect.range).starts_with("&>"))
        };
        if let Some(before) = before
            && item.commands.iter().any(redirects_both)
        {
            state.keep_possible(&before);
        }
        if is_negated(script, item) {
            let (done, failed) = state.take_outcomes();
            state.set_directories_by_outcome(failed, done);
        }
    }
}

/// Returns the operator before an item; `None` if it cannot be determined.
fn condition(script: &Script, before: &Item, item: &Item) -> Option<Condition> {
    let end = before.commands.last()?.range.end;
    let start = item.commands.first()?.range.start;
    let between = script.source.get(end..start)?;
    // A comment after the operator may contain another operator.
    let mut between = between.trim_start_matches([' ', '\t']);
    while let Some(rest) = between.strip_prefix("\\\n") {
        between = rest.trim_start_matches([' ', '\t']);
    }
    match between.get(..2)? {
        "&&" => Some(Condition::AfterSuccess),
        "||" => Some(Condition::AfterFailure),
        _ => None,
    }
}

/// Returns whether an odd number of `!` precedes an item.
fn is_negated(script: &Script, item: &Item) -> bool {
    let start = item
        .commands
        .first()
        .map_or(0, |command| command.range.start);
    let mut before = script.source.get(..start).unwrap_or_default();
    let mut negated = false;
    loop {
        before = before.trim_end_matches([' ', '\t']);
        let word = ["\\\n", "time", "-p", "--", "!"]
            .into_iter()
            .find(|word| before.ends_with(word));
        let Some(word) = word else { return negated };
        negated ^= word == "!";
        before = &before[..before.len() - word.len()];
    }
}

/// Returns whether no later command of this shell runs: after `exit`, or after a group that ends
/// with it.
fn ends_the_shell(script: &Script, command: &ShellCommand, state: &ShellState) -> bool {
    match &command.kind {
        ShellCommandKind::Simple { assigns, words } => {
            let texts: Vec<&str> = words
                .iter()
                .map(|word| shell_parser::slice(script, &word.range))
                .collect();
            let exits = match texts.as_slice() {
                ["exit"] => true,
                ["exit", status] => status.bytes().all(|byte| byte.is_ascii_digit()),
                _ => false,
            };
            exits
                && assigns.is_empty()
                && command.redirects.is_empty()
                && !state.is_function("exit")
        }
        ShellCommandKind::Group(list) => list.last().is_some_and(|item| {
            !item.is_conditional
                && !item.background
                && item.commands.len() == 1
                && ends_the_shell(script, &item.commands[0], state)
        }),
        _ => false,
    }
}
