//! Questions on the terminal of standard input, which answers them. A question is shown there even
//! if standard error goes elsewhere: a user must not answer a question without having seen it.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};

use super::echo;
use super::styled::Styled;

/// The stream that shows questions.
enum Output {
    Stderr,
    /// The terminal of standard input.
    Terminal(File),
}

impl Output {
    /// Returns the stream that shows questions on the terminal of standard input; `None` if that is
    /// no terminal, or cannot be written to.
    fn of_user() -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        if is_same_terminal(stdin.as_fd(), super::stderr().as_fd()) {
            return Some(Self::Stderr);
        }
        writable(stdin.as_fd()).ok().map(Self::Terminal)
    }

    fn write(self, text: &str) -> io::Result<()> {
        match self {
            Self::Stderr => write_and_flush(super::stderr().lock(), text),
            Self::Terminal(terminal) => write_and_flush(terminal, text),
        }
    }
}

fn write_and_flush(mut output: impl Write, text: &str) -> io::Result<()> {
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
}

fn is_same_terminal(stdin: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let device = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).ok().map(|stat| stat.st_rdev);
    other.is_terminal() && device(stdin) == device(other)
}

/// Opens a terminal for writing. A shell opens it for reading and writing; this copy also works for
/// another user, who could not open it again.
fn writable(terminal: BorrowedFd<'_>) -> io::Result<File> {
    if rustix::fs::fcntl_getfl(terminal)?.contains(OFlags::RDWR) {
        return Ok(terminal.try_clone_to_owned()?.into());
    }
    let name = rustix::termios::ttyname(terminal, Vec::new())?;
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(name, flags, Mode::empty())?.into())
}

/// Returns whether a user can read questions and answer them.
pub(in crate::cli) fn has_user() -> bool {
    Output::of_user().is_some()
}

/// Shows a question, and stays on its line. Lines that were typed before it are discarded, because
/// they do not answer it.
///
/// # Errors
/// Returns an error if a terminal answers that cannot show the question.
pub(super) fn show(question: &Styled) -> io::Result<()> {
    if !io::stdin().is_terminal() {
        // The next line of a pipe answers, whether the question is read or not.
        write_and_flush(super::stderr().lock(), question.as_str()).ok();
        return Ok(());
    }
    let output = Output::of_user().ok_or_else(|| {
        io::Error::other("the terminal of standard input cannot show the question")
    })?;
    echo::discard_typed();
    output.write(question.wrapped(super::columns()).as_str())
}

/// Ends the line of a question that is not answered.
pub(super) fn end_line() {
    if let Some(output) = Output::of_user() {
        output.write("\n").ok();
    }
}
