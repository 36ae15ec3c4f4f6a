//! The only way to a terminal. Whatever is shown to people goes through here, on a terminal as in a
//! pipe, and what is hidden in it is written out (see [`base::text::shown`]): what models, tools,
//! files, settings and servers say cannot move the cursor, set a title, fill the clipboard, or
//! reverse the direction of reading. JSON says it in escapes.
//!
//! Exact are, in a pipe or a file, the answer of a run and a patch: somebody works on with those. On a
//! terminal they are cleaned like everything else.

pub(super) mod screen;
pub(super) mod styled;

use std::io::{self, BufRead, BufWriter, IsTerminal, StdoutLock, Write};
use std::panic::PanicHookInfo;
use std::process::ExitCode;

use anyhow::Context as _;

use base::text;
use styled::Styled;

/// Whether somebody sees what is said.
pub(super) fn is_watched() -> bool {
    io::stdout().is_terminal()
}

/// Prints an answer. When nobody reads it any more there is nobody to tell.
pub(super) fn say(words: &str) {
    let end = if words.ends_with('\n') { "" } else { "\n" };
    print(&[text::shown(words).as_bytes(), end.as_bytes()]);
}

/// Prints JSON, as it is but for what is hidden.
pub(super) fn json(words: &str) {
    let end = if words.ends_with('\n') { "" } else { "\n" };
    print(&[text::json(words).as_bytes(), end.as_bytes()]);
}

/// Prints what somebody works on with: to the byte, unless it goes to a terminal.
pub(super) fn exact(words: &str) {
    if io::stdout().is_terminal() { say(words) } else { print(&[words.as_bytes()]) }
}

fn print(pieces: &[&[u8]]) {
    let mut stdout = io::stdout().lock();
    pieces.iter().try_for_each(|piece| stdout.write_all(piece)).and_then(|()| stdout.flush()).ok();
}

/// Prints many lines of JSON.
pub(super) struct JsonWriter(BufWriter<StdoutLock<'static>>);

impl JsonWriter {
    pub(super) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    pub(super) fn line(&mut self, words: &str) -> io::Result<()> {
        writeln!(self.0, "{}", text::json(words))
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// For a document that is made while it is printed.
impl Write for JsonWriter {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(piece) {
            Ok(words) => self.0.write_all(text::json(words).as_bytes())?,
            Err(_) => self.0.write_all(piece)?,
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Says something beside the answer.
pub(super) fn aside(words: &str) {
    writeln!(io::stderr().lock(), "{}", text::shown(words)).ok();
}

fn beside(words: &Styled) {
    let end = if words.as_str().ends_with('\n') { "" } else { "\n" };
    write!(io::stderr().lock(), "{}{end}", words.as_str()).ok();
}

/// Says on standard error why nothing could be done.
pub(super) fn complain(message: &str) -> ExitCode {
    aside(&format!("adjutant: {}", message_after_name(message)));
    ExitCode::FAILURE
}

/// A message as it goes on behind the program's name: its first word is small, unless it is a name, and one
/// sentence has no full stop.
fn message_after_name(message: &str) -> String {
    const SMALL: &[&str] = &["A", "An", "It", "No", "Nobody", "Nothing", "Only", "The", "There", "This", "What"];
    let mut text = message.to_owned();
    if SMALL.contains(&message.split(' ').next().unwrap_or_default()) {
        text[..1].make_ascii_lowercase();
    }
    let one = text.trim_end_matches('.');
    if text.len() == one.len() + 1 && ![". ", "? ", ": ", "\n"].iter().any(|end| one.contains(end)) {
        text.pop();
    }
    text
}

/// Says on standard error what is wrong with the command line.
pub(super) fn misused(message: &str) -> ExitCode {
    complain(message);
    ExitCode::from(2)
}

/// Says what somebody at the terminal is to answer, and stays on the line.
pub(super) fn ask(question: &str) -> io::Result<()> {
    question_of(&styled::Palette::plain(question))
}

/// The same, and the line that is typed then; none at the end of the input.
pub(super) fn answer(question: &str) -> anyhow::Result<Option<String>> {
    ask(question)?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).context("standard input cannot be read")?;
    Ok((read > 0).then_some(line))
}

fn question_of(words: &Styled) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{}", words.as_str()).and_then(|()| stderr.flush())
}

/// Prints what the parser of the command line has to say. Complaints repeat what was typed; help and
/// version are our own words alone, and keep their colours.
pub(super) fn parsed(said: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    if matches!(said.kind(), DisplayHelp | DisplayVersion) {
        return if said.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    aside(said.render().to_string().trim_end());
    ExitCode::from(2)
}

/// Prints what there is to say to a command line without a word.
pub(super) fn help(mut command: clap::Command) -> ExitCode {
    if command.print_help().is_ok() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Tells of a panic, until there is a log.
pub(super) fn panicked(info: &PanicHookInfo<'_>) {
    aside(&format!("adjutant: {info}"));
}

#[cfg(test)]
mod tests {
    use super::message_after_name;

    #[test]
    fn a_message_goes_on_behind_the_name() {
        for (message, expected) in [
            ("There is no model \"a\" here. `x` lists them.", "there is no model \"a\" here. `x` lists them."),
            ("There is nothing to redo.", "there is nothing to redo"),
            ("Azure needs a name.", "Azure needs a name"),
            ("nothing is kept", "nothing is kept"),
            ("", ""),
        ] {
            assert_eq!(message_after_name(message), expected);
        }
    }
}
