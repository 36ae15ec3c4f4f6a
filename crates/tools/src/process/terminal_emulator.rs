//! A terminal emulator that renders output as text: an overwritten line counts in its last state,
//! and escape sequences take effect or are dropped. A progress bar becomes its last state.
//!
//! The last lines can still change and are held; lines that scroll off are final. Text without
//! control characters passes as the bytes it is, so that a flood of it costs almost nothing.

use std::collections::VecDeque;

use vte::{Params, Parser, Perform};

use base::text::Utf8Decoder;

/// The number of lines that can still change: the height of the terminal.
const ROWS: usize = 24;
/// The maximum number of bytes that can still change.
const MAX_LIVE_BYTES: usize = 64 << 10;
/// The last column to which the cursor can be moved. Text may continue beyond it, because lines are
/// not wrapped.
const MAX_COLUMN: usize = 1_000;

/// The control character that aborts an escape sequence.
const CANCEL: u8 = 0x18;

/// Renders a text as a terminal would show it in the end.
pub fn rendered(text: &str) -> String {
    let mut screen = TerminalScreen::default();
    let mut out = screen.push_bytes(text.as_bytes());
    out.extend(screen.end());
    String::from_utf8_lossy(&out).into_owned()
}

/// A terminal. 100 MB of plain lines take 0.1 s in a release build, of coloured lines or a progress
/// bar 1 s.
#[derive(Default)]
pub(crate) struct TerminalScreen {
    /// The parser of escape sequences, which calls `page` with their effects.
    parser: Parser,
    page: Viewport,
}

/// The lines that can still change, and the cursor.
struct Viewport {
    /// The lines; at least one.
    lines: VecDeque<ScreenLine>,
    /// The row of the cursor, an index of `lines`.
    row: usize,
    /// The column of the cursor; `None` at the end of the line.
    column: Option<usize>,
    /// The row and the column that an escape sequence has saved.
    saved: (usize, Option<usize>),
    /// The decoder, which holds an incomplete character.
    lossy: Utf8Decoder,
    /// True if the parser is outside an escape sequence.
    is_ground: bool,
    /// The text that cannot change any more and was not returned yet.
    done: Vec<u8>,
}

/// A line that can still change.
enum ScreenLine {
    /// The original bytes of a line that was not overwritten.
    Plain(Vec<u8>),
    /// One character per column.
    Cells(Vec<char>),
}

impl Default for Viewport {
    fn default() -> Self {
        Self {
            lines: VecDeque::from([ScreenLine::EMPTY]),
            row: 0,
            column: None,
            saved: (0, None),
            lossy: Utf8Decoder::default(),
            is_ground: true,
            done: Vec::new(),
        }
    }
}

impl TerminalScreen {
    /// Adds output. Returns the text that cannot change any more since this call.
    pub(crate) fn push_bytes(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        while let Some(first) = bytes.first() {
            if !self.page.is_ground {
                // An unterminated sequence, as in binary data, must not swallow the rest.
                let byte = if *first == b'\n' { CANCEL } else { *first };
                self.parser.advance(&mut self.page, &[byte]);
                if byte == *first {
                    bytes = &bytes[1..];
                }
                continue;
            }
            let (text, rest) = bytes.split_at(plain_run(bytes));
            if !text.is_empty() {
                self.page.text(text);
            }
            if let Some(length) = colour_sequence(rest) {
                self.page.flush_incomplete();
                bytes = &rest[length..];
                continue;
            }
            match rest.first() {
                None => break,
                Some(0x1b) => {
                    self.page.is_ground = false;
                    self.parser.advance(&mut self.page, &rest[..1]);
                }
                // Binary data has many of them, and they show nothing.
                Some(0) => {
                    bytes = &rest[rest.iter().take_while(|byte| **byte == 0).count()..];
                    continue;
                }
                Some(control) => self.page.execute(*control),
            }
            bytes = &rest[1..];
        }
        self.page.limit_size();
        std::mem::take(&mut self.page.done)
    }

    /// Returns the text that can still change, in its present state.
    pub(crate) fn live(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (n, line) in self.page.lines.iter().enumerate() {
            if n > 0 {
                text.push(b'\n');
            }
            line.put(&mut text);
        }
        text
    }

    /// Ends the output. Returns the rest.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        self.page.flush_incomplete();
        let rest = self.live();
        *self = Self::default();
        rest
    }
}

/// Returns whether a byte is a control character other than a line feed or a tab.
fn is_control(byte: u8) -> bool {
    byte < 0x20 && byte != b'\n' && byte != b'\t' || byte == 0x7f
}

/// Returns the number of bytes at the beginning that are text and line ends. Checks the first bytes
/// one by one, because binary data has runs of a few bytes, and then many at once, because most
/// output is nothing else.
fn plain_run(bytes: &[u8]) -> usize {
    const FEW: usize = 16;
    const CHUNK: usize = 64;
    if let Some(run) = bytes.iter().take(FEW).position(|byte| is_control(*byte)) {
        return run;
    }
    let plain = |chunk: &&[u8]| {
        !chunk
            .iter()
            .fold(false, |found, byte| found | is_control(*byte))
    };
    let sure = (bytes.chunks(CHUNK).take_while(plain).count() * CHUNK).min(bytes.len());
    sure + bytes[sure..]
        .iter()
        .position(|byte| is_control(*byte))
        .unwrap_or(bytes.len() - sure)
}

/// Returns the length of an escape sequence at the beginning that sets colours, as most sequences
/// do; it has no effect on text. `None` for anything else.
fn colour_sequence(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(b"\x1b[")?;
    let numbers = rest
        .iter()
        .take(32)
        .take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'))
        .count();
    (rest.get(numbers) == Some(&b'm')).then_some(numbers + 3)
}

impl ScreenLine {
    const EMPTY: Self = Self::Plain(Vec::new());

    fn is_empty(&self) -> bool {
        match self {
            Self::Plain(bytes) => bytes.is_empty(),
            Self::Cells(cells) => cells.is_empty(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Cells(cells) => cells.len(),
        }
    }

    /// Appends the line without spaces at its end.
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Plain(bytes) => to.extend_from_slice(bytes),
            Self::Cells(cells) => {
                let text: String = cells.iter().collect();
                to.extend_from_slice(text.trim_end_matches(' ').as_bytes());
            }
        }
    }

    /// Returns the characters of the line, which is converted to cells if necessary.
    fn cells(&mut self) -> &mut Vec<char> {
        loop {
            match self {
                Self::Cells(cells) => return cells,
                Self::Plain(bytes) => {
                    *self = Self::Cells(String::from_utf8_lossy(bytes).chars().collect())
                }
            }
        }
    }
}

impl Viewport {
    /// Returns the line of the cursor.
    fn line(&mut self) -> &mut ScreenLine {
        &mut self.lines[self.row]
    }

    /// Writes text that has no control characters except line ends.
    fn text(&mut self, mut bytes: &[u8]) {
        let fresh =
            self.row + 1 == self.lines.len() && (self.column.is_none() || self.line().is_empty());
        if fresh && matches!(self.line(), ScreenLine::Plain(_)) {
            // Of many lines only the last ones can still change.
            let mut breaks = memchr::memrchr_iter(b'\n', bytes).skip(ROWS);
            if let Some(last) = breaks.next() {
                self.lines.push_back(ScreenLine::EMPTY);
                let lines = self.lines.len();
                self.column = None;
                for line in self.lines.drain(..lines - 2) {
                    line.put(&mut self.done);
                    self.done.push(b'\n');
                }
                self.lines[0].put(&mut self.done);
                self.done.extend_from_slice(&bytes[..=last]);
                self.lines = VecDeque::from([ScreenLine::EMPTY]);
                self.row = 0;
                bytes = &bytes[last + 1..];
            }
        }
        for (n, piece) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if n > 0 {
                self.feed_line();
            }
            if !piece.is_empty() {
                self.write(piece);
            }
        }
    }

    /// Writes a piece of a line at the cursor.
    fn write(&mut self, piece: &[u8]) {
        if self.line().is_empty() && self.column == Some(0) {
            self.column = None;
        }
        if let (None, ScreenLine::Plain(bytes)) = (self.column, self.line()) {
            bytes.extend_from_slice(piece);
            return;
        }
        let text = self.lossy.push(piece);
        self.put(text.chars());
    }

    /// Writes characters at the cursor, over the existing ones.
    fn put(&mut self, letters: impl Iterator<Item = char>) {
        let mut column = self.column();
        let cells = self.line().cells();
        if cells.len() < column {
            cells.resize(column, ' ');
        }
        for letter in letters {
            match cells.get_mut(column) {
                Some(cell) => *cell = letter,
                None => cells.push(letter),
            }
            column += 1;
        }
        self.column = Some(column);
    }

    /// Returns the column of the cursor as a number.
    fn column(&mut self) -> usize {
        match self.column {
            Some(column) => column,
            None => self.line().cells().len(),
        }
    }

    /// Writes an incomplete character to the line in which it began.
    fn flush_incomplete(&mut self) {
        let rest = self.lossy.end();
        if !rest.is_empty() {
            self.put(rest.chars());
        }
    }

    /// Moves the cursor to the beginning of the next line.
    fn feed_line(&mut self) {
        self.flush_incomplete();
        self.row += 1;
        self.column = Some(0);
        if self.row == self.lines.len() {
            self.lines.push_back(ScreenLine::EMPTY);
            self.column = None;
        }
        if self.lines.len() > ROWS {
            self.scroll();
        }
    }

    /// Moves the first line to the final text.
    fn scroll(&mut self) {
        if let Some(line) = self.lines.pop_front() {
            line.put(&mut self.done);
            self.done.push(b'\n');
        }
        self.row = self.row.saturating_sub(1);
        self.saved.0 = self.saved.0.saturating_sub(1);
    }

    /// Limits the size of the text that can still change.
    fn limit_size(&mut self) {
        while self.row > 0 && self.lines.iter().map(ScreenLine::len).sum::<usize>() > MAX_LIVE_BYTES
        {
            self.scroll();
        }
        if self.lines.len() == 1 && self.lines[0].len() > MAX_LIVE_BYTES {
            self.lines[0].put(&mut self.done);
            self.lines[0] = ScreenLine::EMPTY;
            self.column = None;
        }
    }

    /// Moves the cursor.
    fn go(&mut self, row: usize, column: usize) {
        self.flush_incomplete();
        let row = row.min(ROWS - 1);
        while self.lines.len() <= row {
            self.lines.push_back(ScreenLine::EMPTY);
        }
        self.row = row;
        self.column = Some(column.min(MAX_COLUMN.max(self.line().len())));
    }

    /// Erases the columns from `from` to before `to`, or to the end, in the line of the cursor.
    fn erase(&mut self, from: usize, to: Option<usize>) {
        if from == 0 && to.is_none() {
            let column = self.column();
            *self.line() = ScreenLine::EMPTY;
            self.column = Some(column);
            return;
        }
        let cells = self.line().cells();
        match to {
            None => cells.truncate(from),
            Some(to) => cells
                .iter_mut()
                .take(to)
                .skip(from)
                .for_each(|cell| *cell = ' '),
        }
    }

    /// Erases the whole screen.
    fn clear(&mut self) {
        self.lines = VecDeque::from([ScreenLine::EMPTY]);
        self.row = 0;
        self.column = None;
    }

    /// Carries out a control sequence with up to two numbers.
    fn csi(&mut self, action: char, first: Option<usize>, second: Option<usize>) {
        self.flush_incomplete();
        let n = first.filter(|n| *n > 0).unwrap_or(1);
        let row = self.row;
        let last = self.lines.len() - 1;
        match action {
            'A' | 'F' | 'B' | 'E' => {
                let column = if matches!(action, 'E' | 'F') {
                    0
                } else {
                    self.column()
                };
                let up = matches!(action, 'A' | 'F');
                self.go(
                    if up {
                        row.saturating_sub(n)
                    } else {
                        row.saturating_add(n).min(last)
                    },
                    column,
                );
            }
            'C' => {
                let column = self.column();
                self.go(row, column.saturating_add(n));
            }
            'D' => {
                let column = self.column();
                self.go(row, column.saturating_sub(n));
            }
            'G' | '`' => self.go(row, n - 1),
            'd' => {
                let column = self.column();
                self.go(n - 1, column);
            }
            'H' | 'f' => self.go(n - 1, second.filter(|n| *n > 0).unwrap_or(1) - 1),
            'J' => match first.unwrap_or(0) {
                0 => {
                    self.lines.truncate(row + 1);
                    self.erase_rest_of_line();
                }
                1 => {
                    self.lines
                        .iter_mut()
                        .take(row)
                        .for_each(|line| *line = ScreenLine::EMPTY);
                    let column = self.column();
                    self.erase(0, Some(column + 1));
                }
                _ => self.clear(),
            },
            'K' => match first.unwrap_or(0) {
                0 => self.erase_rest_of_line(),
                1 => {
                    let column = self.column();
                    self.erase(0, Some(column + 1));
                }
                _ => self.erase(0, None),
            },
            'P' | '@' | 'X' => {
                let column = self.column();
                let cells = self.line().cells();
                let end = column.saturating_add(n).min(cells.len());
                match action {
                    'P' => drop(cells.drain(column.min(end)..end)),
                    'X' => cells
                        .iter_mut()
                        .take(end)
                        .skip(column)
                        .for_each(|cell| *cell = ' '),
                    _ if column < cells.len() => {
                        drop(
                            cells.splice(
                                column..column,
                                std::iter::repeat_n(' ', n.min(MAX_COLUMN)),
                            ),
                        );
                    }
                    _ => {}
                }
            }
            'L' => {
                for _ in 0..n.min(ROWS) {
                    self.lines.insert(row, ScreenLine::EMPTY);
                }
                self.lines.truncate(ROWS.max(row + 1));
            }
            'M' => {
                let end = row.saturating_add(n).min(self.lines.len());
                self.lines.drain(row..end);
                if self.lines.len() <= row {
                    self.lines.push_back(ScreenLine::EMPTY);
                }
            }
            's' => self.save(),
            'u' => self.restore(),
            // Colours, modes and queries have no effect on text.
            _ => {}
        }
    }

    /// Erases the line from the cursor on.
    fn erase_rest_of_line(&mut self) {
        if let Some(column) = self.column {
            self.erase(column, None);
        }
    }

    /// Saves the position of the cursor.
    fn save(&mut self) {
        self.saved = (self.row, Some(self.column()));
    }

    /// Moves the cursor to the saved position.
    fn restore(&mut self) {
        let (row, column) = self.saved;
        self.row = row.min(self.lines.len() - 1);
        self.column = column;
    }
}

impl Perform for Viewport {
    fn print(&mut self, letter: char) {
        self.is_ground = true;
        self.put(std::iter::once(letter));
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\r' => {
                self.flush_incomplete();
                self.column = Some(0);
            }
            // Vertical tab and form feed act like a line feed.
            b'\n' | 0x0b | 0x0c => self.feed_line(),
            0x08 => {
                self.flush_incomplete();
                let column = self.column();
                self.column = Some(column.saturating_sub(1));
            }
            CANCEL | 0x1a => self.is_ground = true,
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        self.is_ground = true;
        let mut numbers = params
            .iter()
            .map(|part| part.first().map(|n| usize::from(*n)));
        let first = numbers.next().flatten();
        let second = numbers.next().flatten();
        if !ignore && intermediates.is_empty() {
            self.csi(action, first, second);
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], _ignore: bool, byte: u8) {
        self.is_ground = true;
        if !intermediates.is_empty() {
            return;
        }
        match byte {
            b'7' => self.save(),
            b'8' => self.restore(),
            b'c' => self.clear(),
            b'D' | b'E' => self.feed_line(),
            b'M' => {
                let row = self.row.saturating_sub(1);
                let column = self.column();
                self.go(row, column);
            }
            _ => {}
        }
    }

    fn osc_dispatch(&mut self, _params: &[&[u8]], bell_terminated: bool) {
        // Otherwise the rest of the terminator is still to come.
        self.is_ground |= bell_terminated;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
        let mut screen = TerminalScreen::default();
        let mut text = Vec::new();
        pieces
            .into_iter()
            .for_each(|piece| text.extend(screen.push_bytes(piece.as_ref())));
        text.extend(screen.end());
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn output_is_rendered_as_by_a_terminal() {
        let table: &[(&str, &str)] = &[
            ("", ""),
            ("a\nb\n", "a\nb\n"),
            ("no end", "no end"),
            ("one\r\ntwo\r\n", "one\ntwo\n"),
            ("\r 10%\r 50%\r100%\ndone\n", "100%\ndone\n"),
            ("12345\rab", "ab345"),
            ("12345\r\x1b[Kab\n", "ab\n"),
            ("12345\x1b[2K\rab\n", "ab\n"),
            ("12345\x1b[3D\x1b[K\n", "12\n"),
            ("|\x08/\x08-\x08\\\x08ok\n", "ok\n"),
            ("b\x08bo\x08ol\x08ld _\x08u", "bold u"),
            (
                "\x1b[1;31mred\x1b[0m and \x1b[38;5;12mblue\x1b[m\n",
                "red and blue\n",
            ),
            (
                "\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n",
                "textlink\n",
            ),
            ("\x1b(Bplain\x1b=\x1b[?25l\x1b[?25h\n", "plain\n"),
            (
                "a: 1\nb: 1\n\x1b[2A\x1b[2Ka: 2\n\x1b[2Kb: 2\n",
                "a: 2\nb: 2\n",
            ),
            (
                "a: 1\nb: 1\n\x1b[2Fa: done\n\nend\n",
                "a: done\nb: 1\nend\n",
            ),
            ("old\nolder\n\x1b[H\x1b[2Jnew\n", "new\n"),
            ("old\n\x1bcnew\n", "new\n"),
            ("x\x1b[5Cy\n", "x     y\n"),
            ("ab\x1b[10Gc\x1b[1Gd\n", "db       c\n"),
            ("abcdef\x1b[4D\x1b[2P\n", "abef\n"),
            ("one\x1b7 two\x1b8 2\n", "one 2wo\n"),
            ("grün\rG\n", "Grün\n"),
            ("a\0b\x07c\x7fd\n", "abcd\n"),
            ("page\x0cnext\n", "page\nnext\n"),
            // An unterminated string costs only its line.
            ("\x1bPbinary \x1b]dirt\nnext\n", "\nnext\n"),
            (
                "\x1b[38;5;1;2;3;4;5;6;7;8;9;1;2;3;4;5;6;7;8;9;1;2;3;4;5;6;7;8;9;1;2;3;4;5;6mtext\n",
                "text\n",
            ),
            ("\x1b[99999999999C|\x1b[99999999BX\n", "|"),
            ("tab\there\n", "tab\there\n"),
            (
                "a line that is longer than what is looked at at once, which is sixty-four bytes: 12345\rA\x1b[mB\0\0\0C\n",
                "ABCine that is longer than what is looked at at once, which is sixty-four bytes: 12345\n",
            ),
            (
                "gr\u{fc}n \x1b[32mgr\u{fc}n\x1b[39;49mer\x1b[0m\n",
                "gr\u{fc}n gr\u{fc}ner\n",
            ),
        ];
        for (printed, expected) in table {
            let whole = shown([printed]);
            assert!(
                whole == *expected || whole.contains(expected) && *expected == "|",
                "{printed:?}: {whole:?}"
            );
            // The result does not depend on the pieces.
            for size in [1, 2, 3, 7] {
                assert_eq!(
                    shown(printed.as_bytes().chunks(size)),
                    whole,
                    "{printed:?} by {size}"
                );
            }
        }
    }

    #[test]
    fn binary_data_is_unchanged() {
        let mut screen = TerminalScreen::default();
        let bytes = b"caf\xe9 \xff\xfe\n".repeat(100);
        let mut out = screen.push_bytes(&bytes);
        out.extend(screen.end());
        assert_eq!(out, bytes);
    }

    #[test]
    fn changeable_text_is_bounded() {
        let mut screen = TerminalScreen::default();
        let mut done = 0;
        for n in 0..2_000 {
            done += screen
                .push_bytes(format!("{n}\n").repeat(50).as_bytes())
                .len();
            assert!(screen.live().len() < 200);
        }
        assert!(done > 400_000);
        for _ in 0..100 {
            screen.push_bytes(&[b'x'; 60_000]);
            assert!(screen.live().len() <= MAX_LIVE_BYTES);
        }
        // A line that is overwritten repeatedly takes no additional memory.
        let bar: String = (0..100_000).map(|n| format!("\r[{n:>6}/100000]")).collect();
        let mut screen = TerminalScreen::default();
        assert!(screen.push_bytes(bar.as_bytes()).is_empty());
        assert_eq!(screen.end(), b"[ 99999/100000]");
    }
}
