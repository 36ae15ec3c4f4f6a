//! The echo of typed keys, which is off while a spinner turns: a key that is echoed there would
//! stay on the screen after the line of the spinner is erased.

use std::io::{self, IsTerminal};

use rustix::termios::{self, LocalModes, OptionalActions, QueueSelector, Termios};

/// The echo of keys typed at the terminal on standard input. Dropping it restores the terminal.
#[derive(Default)]
pub(super) struct Echo {
    /// The modes of the terminal before it was changed.
    original: Option<Termios>,
    is_hidden: bool,
}

impl Echo {
    /// Stops showing typed keys. Does nothing if standard input is not a terminal, or belongs to
    /// another job, which would stop this one.
    pub(super) fn hide(&mut self) {
        let Some(mut modes) = modes() else { return };
        if !modes.local_modes.contains(LocalModes::ECHO) && !self.is_hidden {
            // The user, or the program that started this one, has switched it off.
            return;
        }
        self.original.get_or_insert_with(|| modes.clone());
        modes
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ECHONL);
        self.is_hidden = set(&modes);
    }

    /// Shows typed keys again, for a question.
    pub(super) fn show(&mut self) {
        let Some(original) = &self.original else {
            return;
        };
        let mut modes = original.clone();
        // A Ctrl-C at a question is not shown either.
        modes.local_modes.remove(LocalModes::ECHOCTL);
        if is_foreground() && set(&modes) {
            self.is_hidden = false;
        }
    }

    /// Restores the terminal.
    pub(super) fn restore(&mut self) {
        self.is_hidden = false;
        if let Some(original) = self.original.take()
            && is_foreground()
        {
            set(&original);
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Discards the keys that were typed and not read yet.
pub(super) fn discard_typed() {
    if modes().is_some() {
        termios::tcflush(io::stdin(), QueueSelector::IFlush).ok();
    }
}

fn modes() -> Option<Termios> {
    if !io::stdin().is_terminal() || !is_foreground() {
        return None;
    }
    termios::tcgetattr(io::stdin()).ok()
}

/// Returns whether the terminal may be changed: a job in the background is stopped if it tries.
fn is_foreground() -> bool {
    // A terminal that does not control this process has no job to ask for, and stops nothing.
    termios::tcgetpgrp(io::stdin()).map_or(true, |group| group == rustix::process::getpgrp())
}

fn set(modes: &Termios) -> bool {
    termios::tcsetattr(io::stdin(), OptionalActions::Now, modes).is_ok()
}
