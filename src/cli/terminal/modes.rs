//! The modes of the terminal on standard input. Typed keys are not echoed while a spinner turns: a
//! key that is echoed there would stay on the screen after the line of the spinner is erased.

use std::io::{self, IsTerminal};
use std::sync::Mutex;

use base::lock::lock;
use rustix::termios::{
    self, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios,
};

/// The modes before this process changed them, for an end of the process that drops nothing.
static ORIGINAL: Mutex<Option<Termios>> = Mutex::new(None);

/// The changed modes of the terminal. Dropping it restores the original ones.
#[derive(Default)]
pub(super) struct Modes {
    /// The modes before they were changed.
    original: Option<Termios>,
}

impl Modes {
    /// Stops showing typed keys. Does nothing if standard input is not a terminal, or belongs to
    /// another job, which would stop this one.
    pub(super) fn hide(&mut self) {
        self.change(|modes| {
            modes
                .local_modes
                .remove(LocalModes::ECHO | LocalModes::ECHONL);
        });
    }

    /// Shows typed keys again, for a question.
    pub(super) fn show(&mut self) {
        if self.original.is_some() {
            // A Ctrl-C at a question is not shown either.
            self.change(|modes| modes.local_modes.remove(LocalModes::ECHOCTL));
        }
    }

    /// Delivers each key at once, those that send signals included, and shows none. Returns the
    /// original modes, or `None` if the terminal must not be changed, or its user or the program that
    /// started this one has changed how it reads lines.
    pub(super) fn edit(&mut self) -> Option<Termios> {
        let lines = LocalModes::ICANON | LocalModes::ECHO;
        let is_changed = self.change(|modes| {
            if modes.local_modes.contains(lines) {
                deliver_keys(modes);
            }
        });
        let original = self.original.clone()?;
        let is_edited = is_changed && original.local_modes.contains(lines);
        is_edited.then_some(original)
    }

    /// Delivers each key of a secret at once, and shows none. No key sends a signal, which would
    /// stop or end this process without restoring the terminal. Returns the original modes, or
    /// `None` if the terminal must not be changed.
    pub(super) fn hide_secret(&mut self) -> Option<Termios> {
        if !self.change(deliver_keys) {
            return None;
        }
        self.original.clone()
    }

    /// Restores the terminal.
    pub(super) fn restore(&mut self) {
        if self.original.take().is_some() {
            restore();
        }
    }

    /// Adapts the original modes. Returns whether the terminal has them now.
    fn change(&mut self, adapt: impl FnOnce(&mut Termios)) -> bool {
        let Some(current) = modes() else {
            return false;
        };
        let original = self.original.get_or_insert(current);
        lock(&ORIGINAL).get_or_insert_with(|| original.clone());
        let mut modes = original.clone();
        adapt(&mut modes);
        set(&modes)
    }
}

/// Restores the terminal if this process has changed it. Also for an end of the process that drops no
/// [`Modes`].
pub(super) fn restore() {
    if let Some(original) = lock(&ORIGINAL).take()
        && is_foreground()
    {
        set(&original);
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Sets the modes for a line that this process edits, from the original ones.
pub(super) fn set_edited(original: &Termios) {
    let mut modes = original.clone();
    deliver_keys(&mut modes);
    set(&modes);
}

/// Delivers each key at once, those that send signals included, and shows none.
fn deliver_keys(modes: &mut Termios) {
    modes
        .local_modes
        .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ISIG);
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
}

/// Discards the keys that were typed and not read yet.
pub(super) fn discard_typed() {
    if modes().is_some() {
        termios::tcflush(io::stdin(), QueueSelector::IFlush).ok();
    }
}

/// Sets the modes of the terminal. Returns whether it has them now.
pub(super) fn set(modes: &Termios) -> bool {
    termios::tcsetattr(io::stdin(), OptionalActions::Now, modes).is_ok()
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
