//! The spinner of a run: a line that is drawn again and again below the output, with the beginning
//! of the next line of the answer above it, and the last lines of a running command below it.
//!
//! The cursor stays at the beginning of the drawing. All of it is therefore erased by erasing from
//! the cursor to the end of the screen, even if the terminal has wrapped the lines because it got
//! narrower, and nothing above it is touched by terminals that do not wrap them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use textwrap::core::display_width;

use super::format_duration;
use super::markdown::cut;
use super::style::RESET;
use base::lock::lock;

/// The time between two drawings.
const INTERVAL: Duration = Duration::from_millis(120);

/// The fewest columns in which the cause of a wait is shown.
const MIN_CAUSE_COLUMNS: usize = 12;

const MARKS: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const ASCII_MARKS: [&str; 4] = ["|", "/", "-", "\\"];

/// Moves to the beginning of the line, and erases from there to the end of the screen.
const ERASE: &str = "\r\u{1b}[J";
/// Erases the rest of a line.
const ERASE_REST: &str = "\u{1b}[K";
/// Erases from the cursor to the end of the screen.
const ERASE_BELOW: &str = "\u{1b}[J";
/// The indent of a command's output, as below its finished call.
const INDENT: &str = "    ";

/// Moves to the line above.
const UP: &str = "\u{1b}[A";

/// A spinner on standard error, drawn by a thread until it is dropped.
pub(super) struct Spinner(Arc<Shared>);

struct Shared {
    // A std mutex, a leaf lock.
    lines: Mutex<SpinnerLines>,
    /// Notified when the spinner ends.
    ended: Condvar,
}

/// The content of a spinner.
#[derive(Debug, Clone)]
pub(super) struct SpinnerLines {
    /// The current activity.
    pub(super) activity: String,
    /// Its beginning, later by the time that questions took.
    pub(super) since: Instant,
    /// The end of the wait before the activity.
    pub(super) retry_at: Option<Instant>,
    /// The cause of that wait.
    pub(super) retry_cause: String,
    /// The beginning of the next line of the answer.
    pub(super) preview: String,
    /// The last lines that the running command has printed, without tabs.
    pub(super) printed: Vec<String>,
    /// True if the marks are limited to ASCII.
    pub(super) ascii: bool,
    /// The number of drawings.
    drawings: usize,
    has_ended: bool,
}

impl SpinnerLines {
    pub(super) fn new(activity: String, since: Instant, preview: String, ascii: bool) -> Self {
        Self {
            activity,
            since,
            retry_at: None,
            retry_cause: String::new(),
            preview,
            printed: Vec::new(),
            ascii,
            drawings: 0,
            has_ended: false,
        }
    }

    /// Returns the drawing for a terminal of a width, which replaces the one before it without
    /// erasing it first. It ends with the cursor at its beginning.
    fn drawn(&self, now: Instant, columns: usize) -> String {
        let marks: &[&str] = if self.ascii { &ASCII_MARKS } else { &MARKS };
        let mark = marks[self.drawings % marks.len()];
        let available = columns.saturating_sub(display_width(mark) + " ".len() + 1);
        let line = format!("{mark} {}", self.activity_in(available, now));
        let preview = drawable(&self.preview, columns.saturating_sub(1));
        let mut rows = Vec::new();
        if !preview.is_empty() {
            rows.push(preview);
        }
        rows.push(line);
        let available = columns.saturating_sub(INDENT.len() + 1);
        let printed = self.printed.iter().map(|line| one_column_each(line));
        rows.extend(printed.map(|line| format!("{INDENT}{}", self.cut(&line, available))));
        let back = UP.repeat(rows.len() - 1);
        let separator = format!("{ERASE_REST}\r\n");
        format!("\r{}{ERASE_BELOW}\r{back}", rows.join(&separator))
    }

    /// Describes the activity with its time in a number of columns, one less than the terminal has,
    /// because a full line would be wrapped.
    fn activity_in(&self, columns: usize, now: Instant) -> String {
        if let Some(at) = self.retry_at
            && let Some(left) = at.checked_duration_since(now)
        {
            let left = Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
            let retry = format!("retrying in {}", format_duration(left));
            let available = columns.saturating_sub(retry.len() + "; ".len());
            if self.retry_cause.is_empty() || available < MIN_CAUSE_COLUMNS {
                return self.cut(&retry, columns);
            }
            let cause = self.retry_cause.trim_end_matches('.');
            return format!("{}; {retry}", self.cut(cause, available));
        }
        // Zero seconds are not worth showing.
        let elapsed = now.saturating_duration_since(self.since);
        let time = match elapsed.as_secs() {
            0 => String::new(),
            _ => format!(", {}", format_duration(elapsed)),
        };
        let line = format!(
            "{}{time}",
            self.cut(&self.activity, columns.saturating_sub(time.len()))
        );
        let hinted = format!("{line} (Ctrl-C stops)");
        if display_width(&hinted) <= columns {
            return hinted;
        }
        line
    }

    /// Cuts a line to a number of columns.
    fn cut(&self, line: &str, columns: usize) -> String {
        cut(line, columns, if self.ascii { "..." } else { "…" })
    }

    fn draw(&self) {
        // A narrower window would wrap the line, and keep a part of each drawing.
        let fits = super::window_columns().is_none_or(|columns| columns >= super::MIN_COLUMNS);
        if fits {
            super::draw(&self.drawn(Instant::now(), super::columns()));
        } else {
            super::draw(ERASE);
        }
    }
}

/// Replaces the characters that have another width than one column, in which terminals differ.
fn one_column_each(line: &str) -> String {
    let shown = |c: char| {
        if display_width(c.encode_utf8(&mut [0; 4])) == 1 {
            c
        } else {
            '?'
        }
    };
    line.chars().map(shown).collect()
}

/// Returns the beginning of a text with our colours that has at most this many columns, and of whose
/// characters each has one. Terminals differ in the widths of the others, so the end of a line with
/// them is not known.
fn drawable(text: &str, columns: usize) -> String {
    let mut width = 0;
    let mut is_sequence = false;
    for (at, c) in text.char_indices() {
        if is_sequence || c == '\u{1b}' {
            is_sequence = c != 'm';
            continue;
        }
        if width == columns || display_width(c.encode_utf8(&mut [0; 4])) != 1 {
            let shown = &text[..at];
            let reset = if shown.contains('\u{1b}') { RESET } else { "" };
            return format!("{shown}{reset}");
        }
        width += 1;
    }
    text.to_owned()
}

impl Spinner {
    /// Draws a spinner, and starts the thread that turns it.
    pub(super) fn start(lines: SpinnerLines) -> Self {
        lines.draw();
        let shared = Arc::new(Shared {
            lines: Mutex::new(lines),
            ended: Condvar::new(),
        });
        let turning = shared.clone();
        thread::spawn(move || turn(&turning));
        Self(shared)
    }

    /// Changes the lines, and draws them at once.
    pub(super) fn change(&self, change: impl FnOnce(&mut SpinnerLines)) {
        let mut lines = self.lines();
        change(&mut lines);
        lines.draw();
    }

    /// Writes finished lines over the preview of their beginning, which stays visible; the spinner
    /// follows them.
    pub(super) fn print(&self, text: &str, preview: &str) {
        let mut lines = self.lines();
        super::print(&[b"\r", over_lines(text, super::columns()).as_bytes()]);
        preview.clone_into(&mut lines.preview);
        lines.draw();
    }

    /// Writes something in the place of the spinner, which then follows it; the lines may change as
    /// well.
    pub(super) fn suspend(&self, write: impl FnOnce(&mut SpinnerLines)) {
        let mut lines = self.lines();
        super::draw(ERASE);
        write(&mut lines);
        lines.draw();
    }

    fn lines(&self) -> MutexGuard<'_, SpinnerLines> {
        lock(&self.0.lines)
    }
}

/// Returns lines so that each erases the rest of the one that it is written over.
fn over_lines(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let words = line.trim_end_matches('\n');
        out.push_str(words);
        let width = display_width(words);
        // After a line that is full, the cursor is still on its last character.
        if width == 0 || !width.is_multiple_of(columns.max(1)) {
            out.push_str(ERASE_REST);
        }
        out.push_str(&line[words.len()..]);
    }
    out
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let mut lines = self.lines();
        lines.has_ended = true;
        super::draw(ERASE);
        self.0.ended.notify_all();
    }
}

/// Draws a spinner until it ends, each time in the current width of the terminal.
fn turn(shared: &Shared) {
    let mut lines = lock(&shared.lines);
    loop {
        let waited = shared.ended.wait_timeout(lines, INTERVAL);
        lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        if lines.has_ended {
            return;
        }
        lines.drawings += 1;
        lines.draw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a drawing without its erasures.
    fn row_texts(drawn: &str) -> String {
        let rows = drawn.strip_prefix('\r').unwrap();
        rows.replace(ERASE_REST, "").replace(ERASE_BELOW, "")
    }

    #[test]
    fn lines_fit_the_terminal() {
        let drawn = |activity: &str, preview: &str, seconds, columns, ascii| {
            let started = Instant::now();
            let lines = SpinnerLines::new(activity.to_owned(), started, preview.to_owned(), ascii);
            let drawn = lines.drawn(started + Duration::from_secs(seconds), columns);
            row_texts(&drawn)
        };
        assert_eq!(
            drawn("answering", "", 0, 80, false),
            "⠋ answering (Ctrl-C stops)\r"
        );
        assert_eq!(
            drawn("answering", "", 75, 80, true),
            "| answering, 1 min 15 s (Ctrl-C stops)\r"
        );
        assert_eq!(
            drawn("answering", "", 1, 80, true),
            "| answering, 1 s (Ctrl-C stops)\r"
        );
        assert_eq!(drawn("answering", "", 5, 20, true), "| answering, 5 s\r");
        assert_eq!(
            drawn("answering", "the next", 1, 80, true),
            format!("the next\r\n| answering, 1 s (Ctrl-C stops)\r{UP}")
        );
        assert_eq!(
            drawn("running cargo test", "", 1, 20, true),
            "| running c..., 1 s\r"
        );
        assert_eq!(
            drawn("running cargo test", "", 1, 20, false),
            "⠋ running car…, 1 s\r"
        );
        assert_eq!(drawn("a", "中文", 0, 20, true), "| a (Ctrl-C stops)\r");
        assert_eq!(
            drawn("a", "wider than twenty columns", 0, 20, true),
            format!("wider than twenty c\r\n| a (Ctrl-C stops)\r{UP}")
        );
    }

    #[test]
    fn printed_lines_are_below_the_activity() {
        let started = Instant::now();
        let mut lines = SpinnerLines::new("running make".to_owned(), started, String::new(), true);
        lines.printed = vec![
            "cc a.c".to_owned(),
            "警告: a line that is too long".to_owned(),
        ];
        let drawn = lines.drawn(started, 20);
        assert_eq!(
            row_texts(&drawn),
            format!("| running make\r\n    cc a.c\r\n    ??: a line t...\r{UP}{UP}")
        );
        lines.preview = "the next".to_owned();
        let drawn = lines.drawn(started, 20);
        assert_eq!(
            row_texts(&drawn),
            format!(
                "the next\r\n| running make\r\n    cc a.c\r\n    ??: a line t...\r{UP}{UP}{UP}"
            )
        );
    }

    #[test]
    fn wait_before_a_retry_is_counted_down() {
        let now = Instant::now();
        let at = now + Duration::from_secs(12);
        let waiting = "waiting for the model".to_owned();
        let mut lines = SpinnerLines::new(waiting, at, String::new(), true);
        lines.retry_at = Some(at);
        lines.retry_cause = "The server is overloaded.".to_owned();
        let drawn = |millis, columns| {
            let drawn = lines.drawn(now + Duration::from_millis(millis), columns);
            row_texts(&drawn)
        };
        assert_eq!(
            drawn(100, 80),
            "| The server is overloaded; retrying in 12 s\r"
        );
        assert_eq!(drawn(100, 35), "| The server ...; retrying in 12 s\r");
        assert_eq!(drawn(11_000, 20), "| retrying in 1 s\r");
        assert_eq!(
            drawn(12_500, 80),
            "| waiting for the model (Ctrl-C stops)\r"
        );
        assert_eq!(
            drawn(14_000, 80),
            "| waiting for the model, 2 s (Ctrl-C stops)\r"
        );
    }

    #[test]
    fn preview_ends_before_characters_of_other_widths() {
        for (words, columns, expected) in [
            (
                "• plain \u{1b}[1mbold\u{1b}[0m, it",
                80,
                "• plain \u{1b}[1mbold\u{1b}[0m, it",
            ),
            ("\u{1b}[1mbold words", 4, "\u{1b}[1mbold\u{1b}[0m"),
            ("", 80, ""),
            ("in 中文", 80, "in "),
            ("a 👩\u{200d}💻", 80, "a "),
            ("cafe\u{301}", 80, "cafe"),
        ] {
            assert_eq!(drawable(words, columns), expected, "{words}");
        }
    }

    #[test]
    fn finished_lines_replace_the_drawing() {
        for (text, expected) in [
            ("a\n", "a\u{1b}[K\n"),
            ("\nabcde\n", "\u{1b}[K\nabcde\n"),
            ("abcdefg\nb", "abcdefg\u{1b}[K\nb\u{1b}[K"),
        ] {
            assert_eq!(over_lines(text, 5), expected, "{text:?}");
        }
    }
}
