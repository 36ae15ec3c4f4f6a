//! The only module that writes to a terminal. All text for users goes through it, whether to a
//! terminal or a pipe, and invisible characters are made visible (see [`base::text::shown`]). Text
//! of models, tools, files, settings and servers therefore cannot move the cursor, set a title,
//! write to the clipboard, or reverse the direction of text. JSON uses its own escapes.
//!
//! In a pipe or a file, the answer of a run and a patch are exact, because programs process them.
//! On a terminal they are cleaned like everything else.

mod highlight;
pub(super) mod line_aids;
mod line_editor;
mod markdown;
mod modes;
pub(super) mod question;
pub(super) mod screen;
mod spinner;
pub(super) mod style;
pub(super) mod styled;

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Stderr, Stdout, StdoutLock, Write};
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use textwrap::core::display_width;
use textwrap::{WordSeparator, WordSplitter, WrapAlgorithm};

use base::environment::Environment;
use base::text;
use modes::Modes;
use question::Question;
use styled::{Palette, Styled};

#[expect(
    clippy::disallowed_methods,
    reason = "this module cleans text before it prints it"
)]
fn stdout() -> Stdout {
    io::stdout()
}

#[expect(
    clippy::disallowed_methods,
    reason = "this module cleans text before it prints it"
)]
fn stderr() -> Stderr {
    io::stderr()
}

/// Returns whether standard output is a terminal.
pub(super) fn is_watched() -> bool {
    stdout().is_terminal()
}

/// Returns whether a user can answer a question about results that are printed before it.
pub(super) fn can_ask() -> bool {
    question::has_user() && is_watched()
}

/// The width that is assumed if none is known.
const DEFAULT_COLUMNS: usize = 80;
/// The further indentation of a long line in an explained verdict.
const VERDICT_INDENT: usize = 4;
/// The beginning of a line of an explained verdict that is meant to be copied.
const COPIED_COMMAND: &str = "adjutant ";
/// The further indentation of a long line that is indented itself.
const CONTINUED_INDENT: usize = 2;
const MIN_COLUMNS: usize = 20;
const MAX_COLUMNS: usize = 200;

/// Returns the current width of the terminal, within the limits that output is made for.
pub(super) fn columns() -> usize {
    window_columns().map_or(DEFAULT_COLUMNS, |columns| {
        columns.clamp(MIN_COLUMNS, MAX_COLUMNS)
    })
}

/// Returns the current width of the terminal as it is; `None` if it is unknown.
fn window_columns() -> Option<usize> {
    let columns = usize::from(window()?.ws_col);
    (columns > 0).then_some(columns)
}

/// Returns the current height of the terminal; `None` if it is unknown.
pub(super) fn rows() -> Option<usize> {
    let rows = usize::from(window()?.ws_row);
    (rows > 0).then_some(rows)
}

fn window() -> Option<rustix::termios::Winsize> {
    rustix::termios::tcgetwinsize(stdout())
        .or_else(|_| rustix::termios::tcgetwinsize(stderr()))
        .or_else(|_| rustix::termios::tcgetwinsize(io::stdin()))
        .ok()
}

/// Prints a result, wrapped to the width of a terminal.
pub(super) fn say(text: &str) {
    if !is_watched() {
        return say_whole(text);
    }
    let text = text::shown(text);
    say_whole(&fitted_to(&text, columns()));
}

/// Prints a result, of which the parts of a line that does not fit a terminal are indented by
/// `hanging` more columns after the first.
pub(super) fn print_with_hanging_indent(text: &str, hanging: usize) {
    if !is_watched() {
        return say_whole(text);
    }
    say_whole(&wrapped(&text::shown(text), columns(), hanging));
}

/// Prints a result with its own lines.
fn say_whole(text: &str) {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    print(&[text::shown(text).as_bytes(), end.as_bytes()]);
}

/// Returns the colours of results.
pub(super) fn palette(environment: &Environment) -> Palette {
    Palette::of(&stdout(), environment)
}

/// Prints a result with colours.
pub(super) fn show(words: &Styled) {
    let end = if words.as_str().ends_with('\n') {
        ""
    } else {
        "\n"
    };
    print(&[words.as_str().as_bytes(), end.as_bytes()]);
}

/// Prints Markdown: rendered at a terminal, as it is in a pipe or a file.
pub(super) fn markdown(text: &str, environment: &Environment) {
    if is_watched() {
        show(&palette(environment).markdown(text, 0));
    } else {
        say(text);
    }
}

/// Prints a unified diff: coloured on a terminal, byte for byte in a pipe or a file.
pub(super) fn diff(text: &str, environment: &Environment) {
    let stdout = stdout();
    if !stdout.is_terminal() {
        return exact(text);
    }
    show(&Palette::of(&stdout, environment).lines(text, style::of_change));
}

/// Prints a report, with a style and a hanging indent for each line on a terminal.
pub(super) fn report(
    text: &str,
    style: impl Fn(&str) -> anstyle::Style,
    hanging: impl Fn(&str) -> usize,
    environment: &Environment,
) {
    let palette = palette(environment);
    let text = text::shown(text);
    if !is_watched() {
        return show(&palette.lines(&text, style));
    }
    let lines = text
        .lines()
        .map(|line| wrapped(line, columns(), hanging(line)) + "\n");
    show(&palette.lines(&lines.collect::<String>(), style));
}

/// Prints verdicts, with colours on a terminal.
pub(super) fn verdicts(text: &str, environment: &Environment) {
    let palette = palette(environment);
    let text = text::shown(text);
    let text = if is_watched() {
        // A command to copy is wrapped by the terminal, which knows that it is one line.
        let fitted = |line: &str| {
            if line.trim_start().starts_with(COPIED_COMMAND) {
                line.to_owned()
            } else {
                wrapped(line, columns(), VERDICT_INDENT)
            }
        };
        let lines: Vec<String> = text.lines().map(fitted).collect();
        Cow::Owned(lines.join("\n"))
    } else {
        text
    };
    show(&palette.first_words(&text, style::of_verdict));
}

/// Prints JSON, with invisible characters escaped.
pub(super) fn json(text: &str) {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    print(&[text::json(text).as_bytes(), end.as_bytes()]);
}

/// Prints output for further processing: byte for byte, unless it goes to a terminal.
pub(super) fn exact(text: &str) {
    if stdout().is_terminal() {
        say_whole(text)
    } else {
        print(&[text.as_bytes()])
    }
}

/// The number of times that printing has begun or ended. It is odd while something is printed.
static PRINT_STEPS: AtomicUsize = AtomicUsize::new(0);

/// Returns whether standard output accepts nothing for a second, because its reader has stopped.
pub(super) async fn is_stuck() -> bool {
    const STUCK_TIMEOUT: Duration = Duration::from_secs(1);
    let before = PRINT_STEPS.load(Ordering::Relaxed);
    tokio::time::sleep(STUCK_TIMEOUT).await; // a pipe does not report that its reader has stopped
    before % 2 == 1 && PRINT_STEPS.load(Ordering::Relaxed) == before
}

fn print(pieces: &[&[u8]]) {
    let mut stdout = stdout().lock();
    PRINT_STEPS.fetch_add(1, Ordering::Relaxed);
    let written = pieces
        .iter()
        .try_for_each(|piece| stdout.write_all(piece))
        .and_then(|()| stdout.flush());
    PRINT_STEPS.fetch_add(1, Ordering::Relaxed);
    if let Err(e) = written
        && e.kind() != io::ErrorKind::BrokenPipe
    {
        // The first error is the cause of the others.
        OUTPUT_ERROR.set(e).ok();
    }
}

/// The error because of which a part of the output was lost. A reader that has closed its pipe wanted
/// no more of it, which is no error.
static OUTPUT_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Returns the exit code of a command that has ended with `code`: if its output could not be
/// written, reports that and returns a failure.
pub(super) fn code_after_output(code: ExitCode) -> ExitCode {
    match OUTPUT_ERROR.get() {
        Some(e) => complain(&format!("standard output cannot be written: {e}")),
        None => code,
    }
}

/// A writer of many lines of JSON.
pub(super) struct JsonWriter(BufWriter<StdoutLock<'static>>);

impl JsonWriter {
    pub(super) fn new() -> Self {
        Self(BufWriter::new(stdout().lock()))
    }

    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.0, "{}", text::json(text))
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a document while it is generated.
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

/// Prints a message on standard error.
pub(super) fn print_note(text: &str) {
    writeln!(stderr().lock(), "{}", fitted(&text::shown(text))).ok();
}

/// Wraps a message for standard error to the width of its terminal.
fn fitted(text: &str) -> Cow<'_, str> {
    if stderr().is_terminal() {
        Cow::Owned(fitted_to(text, columns()))
    } else {
        Cow::Borrowed(text)
    }
}

/// Wraps each line at spaces. The parts of a line continue next to its text, after its mark or key.
fn fitted_to(text: &str, columns: usize) -> String {
    let lines = text
        .split('\n')
        .map(|line| folded(line, columns, hanging(line)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the columns of the mark or the key at the beginning of a line, such as `- ` or `y  `,
/// with the blanks after it.
fn hanging(line: &str) -> usize {
    /// The widest mark or key.
    const MAX_MARK: usize = 2;
    let words = line.trim_start_matches(' ');
    let (mark, rest) = words.split_at(words.find(' ').unwrap_or(words.len()));
    let blanks = rest.len() - rest.trim_start_matches(' ').len();
    let width = display_width(mark);
    // A short word is not a key.
    let is_word = mark.ends_with(char::is_alphanumeric) && blanks < 2;
    if width <= MAX_MARK && !is_word {
        return width + blanks;
    }
    if words.len() < line.len() {
        return CONTINUED_INDENT;
    }
    0
}

/// Wraps each line at spaces. The parts of a line have its indentation, and `hanging` more columns
/// after the first. A word that is longer than a line stays whole, so that it can be copied.
fn wrapped(text: &str, columns: usize, hanging: usize) -> String {
    let lines = text.split('\n').map(|line| folded(line, columns, hanging));
    lines.collect::<Vec<_>>().join("\n")
}

/// Wraps one line, which may contain colours: each part of it ends the colour that is on, and the
/// next one begins with it.
pub(super) fn folded(line: &str, columns: usize, hanging: usize) -> String {
    if display_width(line) <= columns {
        return line.to_owned();
    }
    let (indent, words) = line.split_at(line.len() - line.trim_start_matches(' ').len());
    let blank = " ".repeat((indent.len() + hanging).min(columns / 2));
    let options = textwrap::Options::new(columns)
        .initial_indent(indent)
        .subsequent_indent(&blank)
        .word_separator(WordSeparator::Custom(markdown::words_of_message))
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .break_words(false);
    let mut out = String::new();
    let mut colour = String::new();
    for (number, part) in textwrap::wrap(words, options).iter().enumerate() {
        let start = if number == 0 {
            indent.len()
        } else {
            blank.len()
        };
        let (before, words) = part.split_at(start.min(part.len()));
        if number > 0 {
            out.push('\n');
        }
        out.push_str(before);
        out.push_str(&colour);
        out.push_str(words);
        colour = style::open_colour(&colour, words);
        if !colour.is_empty() {
            out.push_str(style::RESET);
        }
    }
    // The blank after a question is not one between words.
    out.push_str(&line[line.trim_end_matches(' ').len()..]);
    out
}

/// Breaks a line of code, which may contain colours, at the right edge, if possible at a blank. Each part
/// after the first begins with `continuation`.
fn broken(line: &str, columns: usize, continuation: &str) -> String {
    if display_width(line) <= columns {
        return line.to_owned();
    }
    let mut out = String::new();
    let mut colour = String::new();
    let mut rest = line;
    let mut room = columns;
    loop {
        let end = fitting_bytes(rest, room);
        let (part, more) = rest.split_at(end);
        out.push_str(&colour);
        out.push_str(part.trim_end_matches(' '));
        colour = style::open_colour(&colour, part);
        if !colour.is_empty() {
            out.push_str(style::RESET);
        }
        if more.is_empty() {
            return out;
        }
        out.push('\n');
        out.push_str(continuation);
        rest = more;
        room = columns.saturating_sub(display_width(continuation));
    }
}

/// Returns the length of the beginning of a line of code that fits into `columns`, at least one
/// character. It ends after a blank, unless that would leave half of them empty.
fn fitting_bytes(line: &str, columns: usize) -> usize {
    let mut width = 0;
    let mut after_blank = None;
    let mut is_sequence = false;
    for (at, c) in line.char_indices() {
        if is_sequence || c == '\u{1b}' {
            is_sequence = c != 'm';
            continue;
        }
        let next = width + display_width(c.encode_utf8(&mut [0; 4]));
        // A blank at the edge is not printed.
        if next > columns && width > 0 && c != ' ' {
            return after_blank.unwrap_or(at);
        }
        width = next;
        if c == ' ' && width > columns / 2 {
            after_blank = Some(at + 1);
        }
    }
    line.len()
}

/// The columns between the tab stops of a terminal.
pub(super) const TAB_STOP: usize = 8;

/// Replaces the tabs of a line without colours by the blanks that a terminal shows for them.
pub(super) fn expanded(line: &str, tab_stop: usize) -> Cow<'_, str> {
    if !line.contains('\t') {
        return line.into();
    }
    let mut out = String::new();
    let mut width = 0;
    for piece in line.split_inclusive('\t') {
        let words = piece.trim_end_matches('\t');
        out.push_str(words);
        width += display_width(words);
        if words.len() < piece.len() {
            let blanks = tab_stop - width % tab_stop;
            out.push_str(&" ".repeat(blanks));
            width += blanks;
        }
    }
    out.into()
}

/// Prints a message on standard error, wrapped to the width of its terminal.
fn message(words: &Styled) {
    let wrapped = stderr().is_terminal().then(|| words.wrapped(columns()));
    let words = wrapped.as_ref().unwrap_or(words);
    let end = if words.as_str().ends_with('\n') {
        ""
    } else {
        "\n"
    };
    write!(stderr().lock(), "{}{end}", words.as_str()).ok();
}

/// Writes our own sequences and cleaned text to the terminal that standard error is.
fn draw(text: &str) {
    let mut stderr = stderr().lock();
    write!(stderr, "{text}").and_then(|()| stderr.flush()).ok();
}

/// Prints the reason for a failure on standard error.
pub(super) fn complain(message: &str) -> ExitCode {
    print_note(&error_line(message));
    ExitCode::FAILURE
}

/// Returns the line that reports an error.
pub(super) fn error_line(message: &str) -> String {
    format!(
        "adjutant: {}",
        message_after_name(&without_error_numbers(message))
    )
}

/// Removes the numbers of system errors (`(os error 2)`), which follow their text and say nothing to
/// a user.
fn without_error_numbers(message: &str) -> String {
    let mut pieces = message.split(" (os error ");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(')') {
            Some(rest) if rest.len() < piece.len() - 1 => text.push_str(rest),
            _ => text.push_str(&format!(" (os error {piece}")),
        }
    }
    text
}

/// Adapts a message to follow the program's name: the first word is in lower case, unless it is a
/// name, and a single sentence has no full stop.
fn message_after_name(message: &str) -> String {
    const SMALL: &[&str] = &[
        "A", "An", "It", "No", "Nobody", "Nothing", "Only", "The", "There", "This", "What",
    ];
    let mut text = message.to_owned();
    if SMALL.contains(&message.split(' ').next().unwrap_or_default()) {
        text[..1].make_ascii_lowercase();
    }
    let one = text.trim_end_matches('.');
    if text.len() == one.len() + 1 && ![". ", "? ", ": ", "\n"].iter().any(|end| one.contains(end))
    {
        text.pop();
    }
    text
}

/// Prints an error in the command line on standard error.
pub(super) fn misused(message: &str) -> ExitCode {
    complain(message);
    ExitCode::from(MISUSED)
}

/// The exit code of an invalid command line.
pub(super) const MISUSED: u8 = 2;

/// Returns whether the terminal can move its cursor, according to the environment.
fn can_edit(environment: &Environment) -> bool {
    environment.var("TERM") != Some("dumb")
}

/// Shows a question and returns the line that is typed; `None` at the end of the input.
///
/// # Errors
/// Returns an error if a terminal answers that cannot show the question.
pub(super) fn answer(question: &str, environment: &Environment) -> anyhow::Result<Option<String>> {
    restore_on_signals();
    let mut modes = Modes::default();
    let can_edit = can_edit(environment);
    let question = Question::show(&Palette::plain(question), &mut modes, can_edit, None)?;
    let line = question.answer(None);
    if line.is_none() {
        question::end_line();
    }
    Ok(line)
}

/// Shows a question and returns the secret that is typed without being shown; `None` at the end of
/// the input.
///
/// # Errors
/// Returns an error if a terminal answers that cannot show the question or would show the answer.
pub(super) fn secret_answer(question: &str) -> io::Result<Option<String>> {
    restore_on_signals();
    let mut modes = Modes::default();
    let question = Question::show_for_secret(&Palette::plain(question), &mut modes)?;
    let secret = question.answer(None);
    if secret.is_none() {
        question::end_line();
    }
    Ok(secret)
}

/// Makes signals that end this process restore the terminal first, from the first call on. For commands
/// that do not handle signals themselves. An interrupt at a question is a key, which restores it.
fn restore_on_signals() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if let Err(e) = watch_signals() {
            tracing::warn!("a signal at a question will not restore the terminal: {e}");
        }
    });
}

/// Starts a thread that waits for a signal, because the one that asks waits for the user.
#[expect(
    clippy::disallowed_methods,
    reason = "the thread that asks waits for the user, so nothing else can end the process"
)]
fn watch_signals() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let context = runtime.enter();
    let mut hangup = signal(SignalKind::hangup())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut terminate = signal(SignalKind::terminate())?;
    drop(context);
    let watch = move || {
        let code = runtime.block_on(async {
            tokio::select! {
                _ = hangup.recv() => 129,
                _ = quit.recv() => 131,
                _ = terminate.recv() => 143,
            }
        });
        question::abandon();
        modes::restore();
        std::process::exit(code)
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(watch)?;
    Ok(())
}

/// Restores the modes of the terminal, for an end of the process that drops nothing.
pub(super) fn restore_modes() {
    modes::restore();
}

/// Prints a message of the command-line parser. Errors repeat user input, so they are cleaned; help
/// and version contain only our own text, and keep their colours.
pub(super) fn parsed(said: &clap::Error, environment: &Environment) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    if matches!(said.kind(), DisplayHelp | DisplayVersion) {
        print_help(&said.render(), environment);
        return ExitCode::SUCCESS;
    }
    let message = said.render().to_string();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    print_note(&format!("adjutant: {}", message.trim_end()));
    ExitCode::from(2)
}

/// Prints the help for a command line without arguments.
pub(super) fn help(mut command: clap::Command, environment: &Environment) -> ExitCode {
    print_help(&command.render_help(), environment);
    ExitCode::from(2)
}

/// Prints the complete help of a command.
pub(super) fn long_help(mut command: clap::Command, environment: &Environment) {
    print_help(&command.render_long_help(), environment);
}

/// Prints a help text, which contains only our own text.
fn print_help(text: &clap::builder::StyledStr, environment: &Environment) {
    let text = if palette(environment).has_colours() {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    print(&[text.as_bytes()]);
}

/// Returns a time as it is read: in seconds, or in minutes and seconds.
pub(super) fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// Prints a panic, until the log is started.
pub(super) fn panicked(info: &PanicHookInfo<'_>) {
    print_note(&format!("adjutant: {info}"));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        broken, expanded, fitted_to, format_duration, message_after_name, without_error_numbers,
        wrapped,
    };

    #[test]
    fn numbers_of_system_errors_are_removed() {
        for (message, expected) in [
            ("a.txt: No such file (os error 2)", "a.txt: No such file"),
            ("a (os error 13): b (os error 2), c", "a: b, c"),
            (
                "it says (os error x) and (os error )",
                "it says (os error x) and (os error )",
            ),
            ("it ends (os error 2", "it ends (os error 2"),
        ] {
            assert_eq!(without_error_numbers(message), expected);
        }
    }

    #[test]
    fn code_is_broken_at_the_edge() {
        for (line, expected) in [
            ("let a = 1;", "let a = 1;"),
            ("let a = 1; // it", "let a = 1; //\n> it"),
            ("aaaaaaaaaabbbbbbbbbb", "aaaaaaaaaabbbbb\n> bbbbb"),
            ("a bbbbbbbbbbbbbbbbbb", "a bbbbbbbbbbbbb\n> bbbbb"),
            ("aaaaaaa bbbbbbb c", "aaaaaaa bbbbbbb\n> c"),
            (
                "\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}",
                "\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\n> \u{5b57}",
            ),
            (
                "\u{1b}[2mlong words that are faint\u{1b}[0m",
                "\u{1b}[2mlong words that\u{1b}[0m\n> \u{1b}[2mare faint\u{1b}[0m",
            ),
        ] {
            assert_eq!(broken(line, 15, "> "), expected, "{line}");
        }
        // A width that is too small for a character is no reason to stop.
        assert_eq!(broken("ab", 1, "> "), "a\n> b");
    }

    #[test]
    fn tabs_are_expanded_to_the_next_stop() {
        for (line, expected) in [
            ("none", "none"),
            ("\ta", "        a"),
            ("a\tb", "a       b"),
            ("12345678\tb\t", "12345678        b       "),
            ("\u{6f22}\tb", "\u{6f22}      b"),
            ("\t\t", "                "),
        ] {
            assert_eq!(expanded(line, 8), expected, "{line:?}");
        }
    }

    #[test]
    fn times_are_formatted_for_readers() {
        for (seconds, words) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (75, "1 min 15 s"),
            (3600, "60 min"),
        ] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), words);
        }
    }

    #[test]
    fn line_continues_next_to_its_text() {
        for (line, expected) in [
            ("- an item that is long", "- an item that\n  is long"),
            ("  y  a key and its text", "  y  a key and\n     its text"),
            ("  an indented line", "  an indented\n    line"),
            ("A word is no mark of it", "A word is no\nmark of it"),
            (
                "\u{1b}[32m• \u{1b}[0mcargo test --all",
                "\u{1b}[32m• \u{1b}[0mcargo test\n  --all",
            ),
            (
                "  \u{1b}[1my\u{1b}[0m  a key and its text",
                "  \u{1b}[1my\u{1b}[0m  a key and\n     its text",
            ),
        ] {
            assert_eq!(fitted_to(line, 15), expected, "{line}");
        }
    }

    #[test]
    fn messages_are_wrapped_at_spaces() {
        for (message, hanging, expected) in [
            ("a short one", 0, "a short one"),
            ("note: one that is longer", 0, "note: one that\nis longer"),
            ("name  a longer text", 6, "name  a longer\n      text"),
            ("  indented text here", 2, "  indented text\n    here"),
            ("two\n\nlines\n", 0, "two\n\nlines\n"),
            (
                "see https://example.com/a/path",
                0,
                "see\nhttps://example.com/a/path",
            ),
            ("--long-option-of-all", 0, "--long-option-of-all"),
            ("  /a/long/path/to/it x", 2, "  /a/long/path/to/it\n    x"),
            (
                "\u{6f22}\u{5b57} \u{6f22}\u{5b57} \u{6f22}\u{5b57}\u{6f22}\u{5b57}",
                0,
                "\u{6f22}\u{5b57} \u{6f22}\u{5b57} \u{6f22}\u{5b57}\n\u{6f22}\u{5b57}",
            ),
            ("", 0, ""),
            ("Trust it? [y/n] ", 0, "Trust it? [y/n] "),
            (
                "run `adjutant models x` now",
                0,
                "run\n`adjutant models x`\nnow",
            ),
            (
                "by {\"bash\":{\"rm *\":\"allow\"}} here",
                0,
                "by\n{\"bash\":{\"rm *\":\"allow\"}}\nhere",
            ),
            ("Trust all of it? ", 2, "Trust all of\n  it? "),
            (
                "\u{1b}[2mfaint words that are long\u{1b}[0m",
                2,
                "\u{1b}[2mfaint words\u{1b}[0m\n  \u{1b}[2mthat are long\u{1b}[0m",
            ),
            (
                "\u{1b}[1ma\u{1b}[0m plain words too",
                0,
                "\u{1b}[1ma\u{1b}[0m plain words\ntoo",
            ),
        ] {
            assert_eq!(wrapped(message, 15, hanging), expected, "{message}");
        }
    }

    #[test]
    fn message_is_adapted_to_follow_the_program_name() {
        for (message, expected) in [
            (
                "There is no model \"a\" here. `x` lists them.",
                "there is no model \"a\" here. `x` lists them.",
            ),
            ("There is nothing to redo.", "there is nothing to redo"),
            ("Azure needs a name.", "Azure needs a name"),
            ("nothing is stored", "nothing is stored"),
            ("", ""),
        ] {
            assert_eq!(message_after_name(message), expected);
        }
    }
}
