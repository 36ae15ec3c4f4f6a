//! Questions on the terminal of standard input, which answers them. A question is shown there even
//! if standard error goes elsewhere: a user must not answer a question without having seen it.

use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal, PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::Termios;
use textwrap::core::display_width;

use super::line_aids::LineAids;
use super::line_editor::{LineEditor, LineEvent};
use super::modes::{self, Modes};
use super::styled::Styled;

/// The longest pause between the lines of a pasted text, and between the bytes of a key.
const PASTE_PAUSE: Duration = Duration::from_millis(50);
/// Asks the terminal to mark pasted text.
const BEGIN_PASTE_MARKS: &str = "\u{1b}[?2004h";
const END_PASTE_MARKS: &str = "\u{1b}[?2004l";
/// Empties the window, and moves to its first row.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[2J";

/// True while the terminal marks pasted text.
static MARKS_PASTES: AtomicBool = AtomicBool::new(false);

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

    fn write(&self, text: &str) -> io::Result<()> {
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

/// A question that is shown and not answered yet.
pub(in crate::cli) struct Question {
    answers: Answers,
}

/// The source of the answer.
enum Answers {
    /// The next line of a pipe, whether the question is read or not.
    Pipe,
    /// A line that the terminal lets the user edit.
    Line,
    /// The keys of a line that this process edits.
    Keys {
        question: EditedQuestion,
        editor: Box<LineEditor>,
    },
}

/// A question whose answer this process lets the user edit.
struct EditedQuestion {
    /// The text, as it is shown.
    text: String,
    /// The modes of the terminal without the question.
    original: Box<Termios>,
    /// True if the terminal is to mark pasted text. A secret has one line, so its paste needs none.
    marks_pastes: bool,
}

impl EditedQuestion {
    /// Shows the question, and returns the column at which the answer begins.
    fn draw(&self, output: &Output) -> io::Result<usize> {
        output.write(&self.text)?;
        if self.marks_pastes {
            MARKS_PASTES.store(true, Ordering::Relaxed);
            output.write(BEGIN_PASTE_MARKS)?;
        }
        let last = self.text.rsplit('\n').next().unwrap_or_default();
        let width = display_width(last);
        if width > 0 && width.is_multiple_of(terminal_columns()) {
            // The cursor waits at the end of a full row: the answer would be drawn over it.
            output.write("\n")?;
        }
        Ok(width % terminal_columns())
    }

    /// Restores the terminal, and sends a signal as the terminal does for its key.
    fn interrupt(&self, signal: Signal, output: &Output) {
        output.write(end_of_paste_marks()).ok();
        self.send(signal);
    }

    /// Sends a signal in the original modes: without a handler, it ends or stops this process.
    fn send(&self, signal: Signal) {
        modes::set(&self.original);
        kill_current_process_group(signal).ok();
    }
}

impl Question {
    /// Shows a question, and stays on its line. Lines that were typed before it are discarded,
    /// because they do not answer it. With `can_edit`, the answer can be edited. With `aids`, it
    /// asks for a prompt: they help to type it, and what was typed before is its beginning.
    ///
    /// # Errors
    /// Returns an error if a terminal answers that cannot show the question.
    pub(super) fn show(
        question: &Styled,
        modes: &mut Modes,
        can_edit: bool,
        aids: Option<LineAids>,
    ) -> io::Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self::of_pipe(question));
        }
        let output = terminal()?;
        let original = if can_edit { modes.edit() } else { None };
        if original.is_none() {
            modes.show();
        }
        if aids.is_none() {
            modes::discard_typed();
        }
        let text = question.wrapped(super::columns());
        let Some(original) = original else {
            output.write(text.as_str())?;
            return Ok(Self {
                answers: Answers::Line,
            });
        };
        let question = EditedQuestion {
            // The width of a tab depends on its column.
            text: text.as_str().replace('\t', " "),
            original: Box::new(original),
            marks_pastes: true,
        };
        let start = question.draw(&output)?;
        Ok(Self {
            answers: Answers::Keys {
                editor: Box::new(LineEditor::new(start).with_aids(aids)),
                question,
            },
        })
    }

    /// Shows a question whose answer is a secret: nothing of it is shown. Keys that were typed
    /// before it are discarded.
    ///
    /// # Errors
    /// Returns an error if a terminal answers that cannot show the question or would show the
    /// answer.
    pub(super) fn show_for_secret(question: &Styled, modes: &mut Modes) -> io::Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self::of_pipe(question));
        }
        let output = terminal()?;
        let original = modes.hide_secret().ok_or_else(|| {
            io::Error::other(
                "the terminal would show what you type: run this command in the foreground",
            )
        })?;
        modes::discard_typed();
        let text = question.wrapped(super::columns()).as_str().to_owned();
        output.write(&text)?;
        Ok(Self {
            answers: Answers::Keys {
                editor: Box::new(LineEditor::hidden()),
                question: EditedQuestion {
                    text,
                    original: Box::new(original),
                    marks_pastes: false,
                },
            },
        })
    }

    fn of_pipe(question: &Styled) -> Self {
        write_and_flush(super::stderr().lock(), question.as_str()).ok();
        Self {
            answers: Answers::Pipe,
        }
    }

    /// Reads the answer; returns `None` at the end of the input, or once the other end of
    /// `withdrawn` is closed. Lines that are pasted at once are one answer.
    pub(in crate::cli) fn answer(self, withdrawn: Option<&PipeReader>) -> Option<String> {
        match self.answers {
            Answers::Pipe => {
                let mut line = String::new();
                let size = io::stdin().lock().read_line(&mut line).ok()?;
                (size > 0).then_some(line)
            }
            Answers::Line => read_lines(withdrawn),
            Answers::Keys { question, editor } => read_keys(&question, *editor, withdrawn),
        }
    }
}

fn terminal() -> io::Result<Output> {
    Output::of_user()
        .ok_or_else(|| io::Error::other("the terminal of standard input cannot show the question"))
}

/// The answer to a line that does not fit.
const TOO_LONG: &str =
    "This is longer than 64 KiB, and was not taken. Save it in a file, and name that.\n";

/// Returns the sequence that turns off the marks of pasted text, if the terminal marks it.
fn end_of_paste_marks() -> &'static str {
    if MARKS_PASTES.swap(false, Ordering::Relaxed) {
        END_PASTE_MARKS
    } else {
        ""
    }
}

/// Ends the line of a question.
pub(super) fn end_line() {
    if let Some(output) = Output::of_user() {
        output.write(&format!("{}\n", end_of_paste_marks())).ok();
    }
}

/// Empties the window of the terminal.
pub(super) fn clear_screen() {
    if let Some(output) = Output::of_user() {
        output.write(CLEAR_SCREEN).ok();
    }
}

/// Ends the line of a question that a signal ends together with the process.
pub(super) fn abandon() {
    if MARKS_PASTES.load(Ordering::Relaxed) {
        end_line();
    }
}

/// Reads lines that the terminal lets the user edit.
fn read_lines(withdrawn: Option<&PipeReader>) -> Option<String> {
    let mut typed = Vec::new();
    let mut pause = None;
    while await_input(withdrawn, pause)? {
        let piece = read_piece()?;
        if piece.is_empty() {
            break;
        }
        typed.extend(piece);
        if typed.ends_with(b"\n") {
            pause = Some(PASTE_PAUSE);
        }
    }
    (!typed.is_empty()).then(|| without_keys(&String::from_utf8_lossy(&typed)))
}

/// Reads keys, and shows the line that they edit unless it is hidden.
fn read_keys(
    question: &EditedQuestion,
    mut editor: LineEditor,
    withdrawn: Option<&PipeReader>,
) -> Option<String> {
    let output = Output::of_user()?;
    let draw = |editor: &mut LineEditor| {
        let rows = super::rows().unwrap_or(usize::MAX);
        output.write(&editor.draw(terminal_columns(), rows)).ok();
    };
    loop {
        let is_whole = !editor.has_escape();
        let pause = (!is_whole).then_some(PASTE_PAUSE);
        if !await_input(withdrawn, pause)? {
            editor.end_escape();
            draw(&mut editor);
            continue;
        }
        let piece = read_piece()?;
        let mut rest = &piece[..];
        while let Some((event, after)) = editor.apply(rest) {
            rest = after;
            // Removes the rows below the line.
            draw(&mut editor);
            match event {
                LineEvent::Enter => {
                    // More follows only in a paste without marks.
                    if rest.is_empty() && !await_input(withdrawn, Some(PASTE_PAUSE))? {
                        if editor.continue_line() {
                            continue;
                        }
                        editor.move_to_end();
                        draw(&mut editor);
                        end_line();
                        if editor.drop_cut_text() {
                            output.write(TOO_LONG).ok();
                            editor.begin_again(question.draw(&output).ok()?);
                            continue;
                        }
                        return Some(editor.accept());
                    }
                    editor.break_line();
                }
                LineEvent::EndOfInput => return None,
                LineEvent::ClearScreen => {
                    output.write(CLEAR_SCREEN).ok();
                    editor.begin_again(question.draw(&output).ok()?);
                }
                LineEvent::Interrupt | LineEvent::Quit if editor.is_hidden() => {
                    question.send(Signal::INT);
                    // With a handler, this process goes on, in a terminal that shows keys.
                    return None;
                }
                LineEvent::Suspend if editor.is_hidden() => {}
                LineEvent::Interrupt => question.interrupt(Signal::INT, &output),
                LineEvent::Quit => question.interrupt(Signal::QUIT, &output),
                LineEvent::Suspend => {
                    question.interrupt(Signal::TSTP, &output);
                    // The process stops within this time, until a shell continues it.
                    await_input(withdrawn, Some(PASTE_PAUSE))?;
                    modes::set_edited(&question.original);
                    editor.begin_again(question.draw(&output).ok()?);
                }
            }
        }
        draw(&mut editor);
    }
}

/// Waits for input; returns false if there is none within `timeout`, and `None` once the other end
/// of `withdrawn` or the terminal is closed.
fn await_input(withdrawn: Option<&PipeReader>, timeout: Option<Duration>) -> Option<bool> {
    let stdin = io::stdin();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut sources = vec![PollFd::new(&stdin, PollFlags::IN)];
    if let Some(withdrawn) = withdrawn {
        sources.push(PollFd::new(withdrawn, PollFlags::IN));
    }
    loop {
        match poll(&mut sources, timeout.as_ref()) {
            Ok(0) => return Some(false),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    if sources[1..]
        .iter()
        .any(|source| !source.revents().is_empty())
    {
        return None;
    }
    let state = sources[0].revents();
    if state.contains(PollFlags::NVAL) {
        // macOS cannot poll /dev/tty: a read waits instead.
        return Some(timeout.is_none());
    }
    let is_open = !state.intersects(PollFlags::HUP | PollFlags::ERR);
    (is_open && state.contains(PollFlags::IN)).then_some(true)
}

/// Reads the input that has arrived; `None` if the terminal is closed.
fn read_piece() -> Option<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let size = rustix::io::read(io::stdin(), &mut buffer).ok()?;
    buffer.truncate(size);
    Some(buffer)
}

/// Returns the width of the terminal as it is, at which its rows end.
fn terminal_columns() -> usize {
    super::window_columns().unwrap_or(super::DEFAULT_COLUMNS)
}

/// Removes the sequences that arrow keys and the like send, which are no part of an answer.
fn without_keys(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            text.push(c);
            continue;
        }
        if rest.next_if(|c| matches!(c, '[' | 'O')).is_some() {
            while rest.next_if(|c| c.is_ascii_digit() || *c == ';').is_some() {}
            rest.next();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_keys;

    #[test]
    fn keys_are_no_part_of_an_answer() {
        for (typed, expected) in [
            ("no", "no"),
            ("\u{1b}[D\u{1b}[Ano", "no"),
            ("a\u{1b}[1;5Cb\u{1b}OPc", "abc"),
            ("\u{1b}", ""),
            ("x\u{1b}[", "x"),
        ] {
            assert_eq!(without_keys(typed), expected, "{typed:?}");
        }
    }
}
