//! Commands that run one after the other: which of them run only if another was done, or failed, and where the
//! shell is then.

use super::Walk;
use crate::shell::expand::ShellState;
use crate::shell::parse::{self, syntax};
use syntax::{Item, List, Script, ShellCommand, ShellCommandKind};

/// When a command of a chain runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joint {
    /// `&&`
    Done,
    /// `||`
    Failed,
}

impl Walk<'_> {
    pub(super) fn list(&mut self, script: &Script, list: &List, state: &mut ShellState) {
        let mut rest = list.as_slice();
        while !rest.is_empty() && !self.full() {
            let more = rest[1..].iter().take_while(|item| item.perhaps).count();
            let (chain, behind) = rest.split_at(1 + more);
            rest = behind;
            state.settle();
            // `cd a && make &`: all of it runs in a shell of its own.
            if more > 0 && chain[more].background {
                self.chain(script, chain, &mut state.clone());
            } else {
                self.chain(script, chain, state);
            }
        }
    }

    /// Commands joined by `&&` and `||`. Behind `&&` the shell is where those before it got to.
    fn chain(&mut self, script: &Script, chain: &[Item], state: &mut ShellState) {
        for (at, item) in chain.iter().enumerate() {
            if self.full() {
                return;
            }
            let joint = at.checked_sub(1).map(|before| joint(script, &chain[before], item));
            let (done, failed) = state.outcomes();
            let ends = item.commands.len() == 1 && ends_the_shell(script, &item.commands[0], state);
            match joint {
                None => self.with_outcome(script, item, state),
                Some(Some(Joint::Done)) => {
                    state.go(done);
                    self.with_outcome(script, item, state);
                    let (now, not) = state.outcomes();
                    if ends {
                        state.go_if(failed.clone(), failed);
                    } else {
                        state.go_if(now, not.or(&failed));
                    }
                }
                Some(Some(Joint::Failed)) => {
                    state.go(failed);
                    self.with_outcome(script, item, state);
                    let (now, not) = state.outcomes();
                    if ends {
                        state.go_if(done.clone(), done);
                    } else {
                        state.go_if(now.or(&done), not);
                    }
                }
                Some(None) => {
                    let before = done.or(&failed);
                    state.go(before.clone());
                    self.with_outcome(script, item, state);
                    state.perhaps_still(&before);
                }
            }
        }
    }

    /// Walks an item; `!` turns what became of it.
    fn with_outcome(&mut self, script: &Script, item: &Item, state: &mut ShellState) {
        let before = self.frame.other_shell.then(|| state.whereabouts());
        self.item(script, item, state);
        // `cd a &>f` is `cd a &` and `>f` to other shells.
        let begins = |command: &ShellCommand| {
            command.redirects.iter().any(|redirect| parse::slice(script, &redirect.range).starts_with("&>"))
        };
        if let Some(before) = before.filter(|_| item.commands.iter().any(begins)) {
            state.perhaps_still(&before);
        }
        if is_turned(script, item) {
            let (done, failed) = state.outcomes();
            state.go_if(failed, done);
        }
    }
}

/// What joins an item to the one before it; none where it cannot be told.
fn joint(script: &Script, before: &Item, item: &Item) -> Option<Joint> {
    let (end, start) = (before.commands.last()?.range.end, item.commands.first()?.range.start);
    let between = script.source.get(end..start)?;
    // What stands behind the operator may be a comment with another one.
    let mut between = between.trim_start_matches([' ', '\t']);
    while let Some(rest) = between.strip_prefix("\\\n") {
        between = rest.trim_start_matches([' ', '\t']);
    }
    match between.get(..2)? {
        "&&" => Some(Joint::Done),
        "||" => Some(Joint::Failed),
        _ => None,
    }
}

/// Whether `!` stands before an item.
fn is_turned(script: &Script, item: &Item) -> bool {
    let start = item.commands.first().map_or(0, |command| command.range.start);
    let mut before = script.source.get(..start).unwrap_or_default();
    let mut turned = false;
    loop {
        before = before.trim_end_matches([' ', '\t']);
        let word = ["\\\n", "time", "-p", "--", "!"].into_iter().find(|word| before.ends_with(word));
        let Some(word) = word else { return turned };
        turned ^= word == "!";
        before = &before[..before.len() - word.len()];
    }
}

/// Whether nothing in this shell runs behind a command: `exit`, or a group that ends with one.
fn ends_the_shell(script: &Script, command: &ShellCommand, state: &ShellState) -> bool {
    match &command.kind {
        ShellCommandKind::Simple { assigns, words } => {
            let texts: Vec<&str> = words.iter().map(|word| parse::slice(script, &word.range)).collect();
            let exits = match texts.as_slice() {
                ["exit"] => true,
                ["exit", status] => status.bytes().all(|byte| byte.is_ascii_digit()),
                _ => false,
            };
            exits && assigns.is_empty() && command.redirects.is_empty() && !state.is_function("exit")
        }
        ShellCommandKind::Group(list) => list.last().is_some_and(|item| {
            !item.perhaps
                && !item.background
                && item.commands.len() == 1
                && ends_the_shell(script, &item.commands[0], state)
        }),
        _ => false,
    }
}
