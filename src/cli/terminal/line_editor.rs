//! A line that the user edits at a terminal: typed bytes in, the text and its picture out. Does no
//! input or output itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use textwrap::core::display_width;
use unicode_segmentation::UnicodeSegmentation as _;

use super::line_aids::{Completions, Draft, LineAids, Recall, Search};
use base::text;

/// The maximum size of a line; more is not inserted, and the line is not accepted.
const MAX_LINE_BYTES: usize = 64 << 10;
/// The longest parameters of a key; longer ones are cut, which makes the key unknown.
const MAX_PARAMETERS: usize = 8;

/// Sequences of the terminal.
const UP: &str = "\u{1b}[A";
const RIGHT: &str = "\u{1b}[C";
const ERASE_BELOW: &str = "\u{1b}[J";

/// The line, and the state of the keys and of the picture.
#[derive(Debug, Default)]
pub(super) struct LineEditor {
    text: String,
    /// True if something was not inserted because the line was full.
    is_cut: bool,
    /// True if it has several rows that were not typed.
    has_pasted_rows: bool,
    /// The cursor, as an offset between two graphemes.
    cursor: usize,
    key: KeyState,
    /// True within a paste that the terminal marks.
    is_pasting: bool,
    /// True for a secret, which has no picture.
    is_hidden: bool,
    /// The first column of the text: the end of the question.
    start: usize,
    /// The row of the cursor in the picture, counted from the first row of the text.
    row: usize,
    /// The aids for a prompt.
    aids: Option<LineAids>,
    /// Set once an earlier line was shown.
    recall: Option<Recall>,
    /// Set while an earlier line is searched for.
    search: Option<Search>,
    /// Set after an Escape during a search: the line to which the key alone returns.
    escape_origin: Option<usize>,
    /// The words that the last key could complete, which are listed below the line.
    candidates: Vec<String>,
}

/// The beginning of a key that consists of several bytes.
#[derive(Debug, Default)]
enum KeyState {
    #[default]
    None,
    /// The first bytes of a character.
    Character(Vec<u8>),
    Escape,
    /// The parameters of a control sequence.
    Control(Vec<u8>),
    /// `ESC O`, by which some terminals begin arrow keys.
    Application,
}

/// An effect of a key beyond the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEvent {
    Enter,
    /// Ctrl-D on an empty line.
    EndOfInput,
    /// Ctrl-C on an empty or hidden line.
    Interrupt,
    /// Ctrl-\
    Quit,
    /// Ctrl-Z
    Suspend,
    /// Ctrl-L in a prompt
    ClearScreen,
}

/// A place in the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    row: usize,
    column: usize,
}

impl LineEditor {
    /// Creates an empty line that begins at a column.
    pub(super) fn new(start: usize) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// Adds the aids for a prompt.
    pub(super) fn with_aids(mut self, aids: Option<LineAids>) -> Self {
        self.aids = aids;
        self
    }

    /// Creates an empty line that is not shown.
    pub(super) fn hidden() -> Self {
        Self {
            is_hidden: true,
            ..Self::default()
        }
    }

    pub(super) fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Applies typed bytes up to the first event. Returns it with the bytes after it.
    pub(super) fn apply<'b>(&mut self, bytes: &'b [u8]) -> Option<(LineEvent, &'b [u8])> {
        for (at, byte) in bytes.iter().enumerate() {
            if let Some(event) = self.byte(*byte) {
                return Some((event, &bytes[at + 1..]));
            }
        }
        None
    }

    /// Returns whether the last byte may be the beginning of a key, or the Escape key alone. Within a
    /// paste it is the beginning of the mark that ends it.
    pub(super) fn has_escape(&self) -> bool {
        matches!(self.key, KeyState::Escape) && !self.is_pasting
    }

    /// Applies an Escape key that no other byte followed: it cancels a search.
    pub(super) fn end_escape(&mut self) {
        self.key = KeyState::None;
        if let Some(origin) = self.escape_origin.take() {
            self.show_line(origin);
        }
    }

    /// Empties a line that is too long, and returns whether it was.
    pub(super) fn drop_cut_text(&mut self) -> bool {
        let is_cut = self.is_cut;
        if is_cut {
            self.delete(0, self.text.len());
        }
        is_cut
    }

    /// Forgets the picture: the question is shown again, and the text begins at this column.
    pub(super) fn begin_again(&mut self, start: usize) {
        self.start = start;
        self.row = 0;
    }

    /// Inserts a line break of a pasted text, and moves behind it.
    pub(super) fn break_line(&mut self) {
        self.insert("\n");
        self.has_pasted_rows = true;
    }

    /// Replaces an odd backslash before the cursor by a line break; returns false if there is none.
    /// For an Enter that is typed in a prompt: a pasted text keeps its backslashes.
    pub(super) fn continue_line(&mut self) -> bool {
        let before = &self.text[..self.cursor];
        let backslashes = before.len() - before.trim_end_matches('\\').len();
        if self.aids.is_none() || backslashes.is_multiple_of(2) {
            return false;
        }
        self.delete(self.cursor - 1, self.cursor);
        self.insert("\n");
        true
    }

    /// Returns the line, which was accepted.
    pub(super) fn accept(&self) -> String {
        if let Some(aids) = &self.aids {
            let has_pasted_rows = self.has_pasted_rows;
            aids.has_pasted_rows
                .store(has_pasted_rows, Ordering::Relaxed);
        }
        self.text().to_owned()
    }

    fn byte(&mut self, byte: u8) -> Option<LineEvent> {
        self.candidates.clear();
        self.escape_origin = None;
        match std::mem::take(&mut self.key) {
            KeyState::None => return self.first_byte(byte),
            KeyState::Character(mut bytes) => {
                if !(0x80..0xc0).contains(&byte) {
                    self.insert("\u{fffd}");
                    return self.first_byte(byte);
                }
                bytes.push(byte);
                self.character(bytes);
            }
            // A control character is never a part of a key, so that nothing hides an Enter or a Ctrl-C.
            _ if byte < 0x20 => return self.first_byte(byte),
            KeyState::Escape => match byte {
                b'[' => self.key = KeyState::Control(Vec::new()),
                b'O' => self.key = KeyState::Application,
                b'b' => self.cursor = self.word_start(),
                b'f' => self.cursor = self.word_end(),
                0x7f => self.delete(self.word_start(), self.cursor),
                _ => {}
            },
            KeyState::Control(mut parameters) => {
                // F1 to F5 of the Linux console begin with two brackets.
                let is_second_bracket = byte == b'[' && parameters.is_empty();
                if (0x40..0x7f).contains(&byte) && !is_second_bracket {
                    self.control_sequence(&parameters, byte);
                } else {
                    parameters.truncate(MAX_PARAMETERS);
                    parameters.push(byte);
                    self.key = KeyState::Control(parameters);
                }
            }
            KeyState::Application => self.control_sequence(&[], byte),
        }
        None
    }

    fn first_byte(&mut self, byte: u8) -> Option<LineEvent> {
        if !self.is_pasting && self.search_key(byte) {
            return None;
        }
        match byte {
            0x1b => self.key = KeyState::Escape,
            0x00..0x20 | 0x7f => return self.control_character(byte),
            0x80.. => self.character(vec![byte]),
            _ => self.insert(char::from(byte).encode_utf8(&mut [0; 4])),
        }
        None
    }

    /// Inserts a character once its bytes are complete.
    fn character(&mut self, bytes: Vec<u8>) {
        match std::str::from_utf8(&bytes) {
            // A control character of Latin-1.
            Ok(c) if c.chars().all(char::is_control) => {}
            Ok(c) => self.insert(c),
            Err(why) if why.error_len().is_none() => self.key = KeyState::Character(bytes),
            Err(_) => self.insert("\u{fffd}"),
        }
    }

    fn control_character(&mut self, byte: u8) -> Option<LineEvent> {
        const fn ctrl(letter: u8) -> u8 {
            letter & 0x1f
        }
        const CTRL_A: u8 = ctrl(b'a');
        const CTRL_B: u8 = ctrl(b'b');
        const CTRL_C: u8 = ctrl(b'c');
        const CTRL_D: u8 = ctrl(b'd');
        const CTRL_E: u8 = ctrl(b'e');
        const CTRL_F: u8 = ctrl(b'f');
        const CTRL_H: u8 = ctrl(b'h');
        const CTRL_K: u8 = ctrl(b'k');
        const CTRL_L: u8 = ctrl(b'l');
        const CTRL_N: u8 = ctrl(b'n');
        const CTRL_P: u8 = ctrl(b'p');
        const CTRL_R: u8 = ctrl(b'r');
        const CTRL_U: u8 = ctrl(b'u');
        const CTRL_W: u8 = ctrl(b'w');
        const CTRL_Z: u8 = ctrl(b'z');
        const CTRL_BACKSLASH: u8 = ctrl(b'\\');
        match byte {
            // Nobody sees whether a hidden line is empty.
            CTRL_C if self.text.is_empty() || self.is_hidden => return Some(LineEvent::Interrupt),
            CTRL_C => {
                self.recall = None;
                self.delete(0, self.text.len());
            }
            CTRL_Z if !self.is_pasting => return Some(LineEvent::Suspend),
            CTRL_BACKSLASH if !self.is_pasting => return Some(LineEvent::Quit),
            b'\r' | b'\n' if self.is_pasting => self.break_line(),
            b'\t' if self.is_pasting => self.insert("\t"),
            _ if self.is_pasting => {}
            b'\r' | b'\n' => return Some(LineEvent::Enter),
            b'\t' => self.complete(),
            CTRL_L if self.aids.is_some() => return Some(LineEvent::ClearScreen),
            CTRL_N => self.recall_newer(),
            CTRL_P => self.recall_older(),
            CTRL_R => self.begin_search(),
            CTRL_D if self.text.is_empty() => return Some(LineEvent::EndOfInput),
            CTRL_D => self.delete(self.cursor, self.after()),
            CTRL_A => self.cursor = self.line_start(),
            CTRL_E => self.cursor = self.line_end(),
            CTRL_B => self.cursor = self.before(),
            CTRL_F => self.cursor = self.after(),
            CTRL_H | 0x7f => self.delete(self.before(), self.cursor),
            CTRL_K => self.delete(self.cursor, self.line_end()),
            CTRL_U => self.delete(self.line_start(), self.cursor),
            CTRL_W => self.delete(self.word_start(), self.cursor),
            _ => {}
        }
        None
    }

    fn control_sequence(&mut self, parameters: &[u8], action: u8) {
        match (parameters, action) {
            (b"200", b'~') => self.is_pasting = true,
            (b"201", b'~') => self.is_pasting = false,
            (b"" | b"1", b'A') => self.move_up(),
            (b"" | b"1", b'B') => self.move_down(),
            (b"" | b"1", b'D') => self.cursor = self.before(),
            (b"" | b"1", b'C') => self.cursor = self.after(),
            // With Ctrl or Alt.
            (b"1;5" | b"1;3", b'D') => self.cursor = self.word_start(),
            (b"1;5" | b"1;3", b'C') => self.cursor = self.word_end(),
            (b"" | b"1", b'H') | (b"1" | b"7", b'~') => self.cursor = self.line_start(),
            (b"" | b"1", b'F') | (b"4" | b"8", b'~') => self.cursor = self.line_end(),
            (b"3", b'~') => self.delete(self.cursor, self.after()),
            _ => {}
        }
    }

    /// Moves to the line of the text above, or shows the earlier line before the present one.
    fn move_up(&mut self) {
        let start = self.line_start();
        if start == 0 {
            return self.recall_older();
        }
        let column = self.text[start..self.cursor].graphemes(true).count();
        self.cursor = start - 1;
        self.cursor = self.line_start();
        self.move_right(column);
    }

    /// Moves to the line of the text below, or shows the earlier line after the present one.
    fn move_down(&mut self) {
        let end = self.line_end();
        if end == self.text.len() {
            return self.recall_newer();
        }
        let start = self.line_start();
        let column = self.text[start..self.cursor].graphemes(true).count();
        self.cursor = end + 1;
        self.move_right(column);
    }

    /// Moves right within the line of the text.
    fn move_right(&mut self, columns: usize) {
        let rest = &self.text[self.cursor..self.line_end()];
        let passed = rest.graphemes(true).take(columns);
        self.cursor += passed.map(str::len).sum::<usize>();
    }

    fn earlier(&self) -> &[String] {
        self.aids.as_ref().map_or(&[], |aids| &*aids.earlier)
    }

    /// Returns the index of the line that is shown.
    fn line_index(&self) -> usize {
        let recall = self.recall.as_ref();
        recall.map_or(self.earlier().len(), |recall| recall.at)
    }

    fn recall_older(&mut self) {
        if let Some(older) = self.line_index().checked_sub(1) {
            self.show_line(older);
        }
    }

    fn recall_newer(&mut self) {
        let newer = self.line_index() + 1;
        if newer <= self.earlier().len() {
            self.show_line(newer);
        }
    }

    /// Shows an earlier line, or the one that was being typed, as it was left. The present one is
    /// stored with its changes.
    fn show_line(&mut self, at: usize) {
        let present = self.line_index();
        let draft = Draft {
            text: std::mem::take(&mut self.text),
            is_cut: self.is_cut,
            has_pasted_rows: self.has_pasted_rows,
        };
        let recall = self.recall.get_or_insert_with(|| Recall {
            at: present,
            drafts: BTreeMap::new(),
        });
        recall.drafts.insert(present, draft);
        recall.at = at;
        let left = recall.drafts.remove(&at);
        let shown = left.unwrap_or_else(|| {
            let text = self.earlier().get(at).cloned().unwrap_or_default();
            Draft {
                has_pasted_rows: text.contains('\n'),
                text,
                is_cut: false,
            }
        });
        self.text = shown.text;
        self.is_cut = shown.is_cut;
        self.has_pasted_rows = shown.has_pasted_rows;
        self.cursor = self.text.len();
    }

    fn begin_search(&mut self) {
        if self.aids.is_none() {
            return;
        }
        self.search = Some(Search {
            wanted: String::new(),
            found: None,
            origin: self.line_index(),
        });
    }

    /// Applies a key to the search, if there is one. Returns false for a key that ends it and is
    /// applied to the line that was found.
    fn search_key(&mut self, byte: u8) -> bool {
        const CTRL_C: u8 = b'c' & 0x1f;
        const CTRL_G: u8 = b'g' & 0x1f;
        const CTRL_H: u8 = b'h' & 0x1f;
        const CTRL_R: u8 = b'r' & 0x1f;
        const ESCAPE: u8 = 0x1b;
        let Some(search) = &mut self.search else {
            return false;
        };
        match byte {
            CTRL_R => {
                let end = search.found.unwrap_or(usize::MAX);
                let earlier = self.aids.as_ref().map_or(&[][..], |aids| &aids.earlier);
                // The oldest match stays.
                search.found = search.last_before(end, earlier).or(search.found);
                self.show_found();
                true
            }
            CTRL_H | 0x7f => {
                search.wanted.pop();
                self.search_again();
                true
            }
            CTRL_C | CTRL_G => {
                let origin = search.origin;
                self.search = None;
                self.show_line(origin);
                true
            }
            ESCAPE => {
                self.escape_origin = Some(search.origin);
                self.search = None;
                false
            }
            0x00..0x20 => {
                self.search = None;
                false
            }
            _ => false,
        }
    }

    /// Searches from the newest line on.
    fn search_again(&mut self) {
        let earlier = self.aids.as_ref().map_or(&[][..], |aids| &aids.earlier);
        if let Some(search) = &mut self.search {
            search.found = search.last_before(usize::MAX, earlier);
        }
        self.show_found();
    }

    /// Shows the line that was found. While none is found, the last one remains.
    fn show_found(&mut self) {
        let found = self.search.as_ref().and_then(|search| search.found);
        if let Some(at) = found {
            self.show_line(at);
        }
    }

    /// Completes the word at the cursor as far as it is certain, or lists the words that it may be.
    fn complete(&mut self) {
        let Some(aids) = &self.aids else { return };
        let before = &self.text[..self.cursor];
        let completions: Completions = (aids.completer)(before);
        let Some(typed) = before.get(completions.start..) else {
            return;
        };
        let certain = completions.common_prefix();
        let is_only = completions.words.len() == 1 && !completions.is_cut;
        let is_longer = certain.len() > typed.len() && !completions.is_cut;
        if !is_only && !is_longer {
            self.candidates = completions.words;
            return;
        }
        let mut certain = certain.to_owned();
        let is_at_end = self.cursor == self.text.len();
        if is_only && is_at_end && !certain.ends_with('/') {
            certain.push(' ');
        }
        self.delete(completions.start, self.cursor);
        self.insert(&certain);
    }

    fn insert(&mut self, piece: &str) {
        if let Some(search) = &mut self.search
            && !self.is_pasting
        {
            search.wanted.push_str(piece);
            return self.search_again();
        }
        if self.text.len() + piece.len() <= MAX_LINE_BYTES {
            self.text.insert_str(self.cursor, piece);
            self.cursor += piece.len();
        } else {
            self.is_cut = true;
        }
    }

    fn delete(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.cursor = from;
        // Text that is typed now begins another line.
        if self.text.is_empty() {
            self.is_cut = false;
            self.has_pasted_rows = false;
        }
    }

    /// Returns the offset of the grapheme before the cursor.
    fn before(&self) -> usize {
        let last = self.text[..self.cursor].graphemes(true).next_back();
        self.cursor - last.map_or(0, str::len)
    }

    /// Returns the offset after the grapheme at the cursor.
    fn after(&self) -> usize {
        let next = self.text[self.cursor..].graphemes(true).next();
        self.cursor + next.map_or(0, str::len)
    }

    /// Returns the beginning of the word before the cursor.
    fn word_start(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        let blank = before.char_indices().rfind(|(_, c)| c.is_whitespace());
        blank.map_or(0, |(at, c)| at + c.len_utf8())
    }

    /// Returns the end of the word after the cursor.
    fn word_end(&self) -> usize {
        let after = &self.text[self.cursor..];
        let blanks = after.len() - after.trim_start().len();
        let word = after[blanks..].find(char::is_whitespace);
        word.map_or(self.text.len(), |end| self.cursor + blanks + end)
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        let end = self.text[self.cursor..].find('\n');
        end.map_or(self.text.len(), |end| self.cursor + end)
    }

    /// Returns the sequences that replace the last picture by one of the current line. Of a line
    /// that is higher than the window, the rows around the cursor are drawn.
    pub(super) fn draw(&mut self, columns: usize, rows: usize) -> String {
        if self.is_hidden {
            return String::new();
        }
        let columns = columns.max(1);
        let rows = rows.max(1);
        let mut first = 0;
        let mut cells = self.cells(first, columns);
        while let Some(cursor) = cells.iter().find(|(at, _)| *at == self.cursor)
            && cursor.1.row >= rows
        {
            let above = cursor.1.row + 1 - rows;
            let Some((next, _)) = cells.iter().find(|(_, cell)| cell.row >= above) else {
                break;
            };
            first = *next;
            cells = self.cells(first, columns);
        }
        let mut out = "\r".to_owned();
        out.push_str(&UP.repeat(self.row));
        out.push_str(&RIGHT.repeat(self.start));
        out.push_str(ERASE_BELOW);
        let mut end = 0;
        let mut cursor = Cell {
            row: 0,
            column: self.start,
        };
        for (at, cell) in cells {
            if cell.row >= rows {
                break;
            }
            if cell.row > end {
                out.push_str("\r\n");
            }
            end = cell.row;
            if at == self.cursor {
                cursor = cell;
            }
            if let Some(grapheme) = self.text[at..].graphemes(true).next() {
                out.push_str(&shown(grapheme));
            }
        }
        for line in self.rows_below(columns, rows.saturating_sub(end + 1)) {
            out.push_str("\r\n");
            out.push_str(&line);
            end += 1;
        }
        out.push_str(&UP.repeat(end - cursor.row));
        out.push('\r');
        out.push_str(&RIGHT.repeat(cursor.column));
        self.row = cursor.row;
        out
    }

    /// Returns the rows below the line: the search, or the words that could be completed.
    fn rows_below(&self, columns: usize, max_rows: usize) -> Vec<String> {
        /// The most rows of words.
        const MAX_ROWS: usize = 8;
        let mut rows: Vec<String> = Vec::new();
        if let Some(search) = &self.search {
            rows.push(search.described());
        }
        let limit = max_rows.min(MAX_ROWS);
        for word in &self.candidates {
            let word = text::shown(word);
            let width = display_width(&word);
            let is_full = rows.len() == limit;
            match rows.last_mut() {
                Some(row) if display_width(row) + 2 + width < columns => {
                    row.push_str("  ");
                    row.push_str(&word);
                }
                Some(row) if is_full => {
                    "…".clone_into(row);
                    break;
                }
                _ => rows.push(word.into_owned()),
            }
        }
        rows.truncate(limit);
        let cut = |row: String| cut_to_width(&text::shown(&row), columns.saturating_sub(1));
        rows.into_iter().map(cut).collect()
    }

    /// Moves the cursor to the end, so that the next output follows the line.
    pub(super) fn move_to_end(&mut self) {
        self.cursor = self.text.len();
    }

    /// Returns the cells of the graphemes from an offset on, and of the end of the text.
    fn cells(&self, first: usize, columns: usize) -> Vec<(usize, Cell)> {
        let mut cells = Vec::new();
        let mut next = Cell {
            row: 0,
            column: self.start,
        };
        let new_row = |cell: Cell| Cell {
            row: cell.row + 1,
            column: 0,
        };
        for (at, grapheme) in self.text[first..].grapheme_indices(true) {
            let width = display_width(&shown(grapheme));
            if next.column > 0 && next.column + width > columns {
                next = new_row(next);
            }
            cells.push((first + at, next));
            next.column += width;
            if grapheme.contains('\n') {
                next = new_row(next);
            }
        }
        if next.column >= columns {
            next = new_row(next);
        }
        cells.push((self.text.len(), next));
        cells
    }
}

/// Returns the beginning of a text that is not wider than this.
fn cut_to_width(text: &str, columns: usize) -> String {
    let mut cut = String::new();
    for grapheme in text.graphemes(true) {
        if display_width(&cut) + display_width(grapheme) > columns {
            break;
        }
        cut.push_str(grapheme);
    }
    cut
}

/// Returns the picture of a grapheme. Line breaks are drawn by the rows.
fn shown(grapheme: &str) -> Cow<'_, str> {
    match grapheme {
        "\n" => "".into(),
        "\t" => " ".into(),
        _ => text::shown(grapheme),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;
    use std::sync::Arc;

    use super::*;

    fn typed(bytes: &str) -> LineEditor {
        let mut editor = LineEditor::new(2);
        assert_eq!(editor.apply(bytes.as_bytes()), None, "{bytes:?}");
        editor
    }

    #[test]
    fn keys_edit_the_line() {
        for (name, bytes, text, rest) in [
            ("letters", "no", "no", ""),
            (
                "left",
                "n, use the branch\u{1b}[D\u{1b}[D\u{1b}[D\u{1b}[D\u{1b}[D\u{1b}[Dnew ",
                "n, use the new branch",
                "branch",
            ),
            ("left of some terminals", "ac\u{1b}ODb", "abc", "c"),
            ("left at the beginning", "\u{1b}[D\u{1b}[Dab", "ab", ""),
            ("right at the end", "ab\u{1b}[Cc", "abc", ""),
            ("Home and End", "b\u{1b}[Ha\u{1b}[Fc", "abc", ""),
            (
                "Home and End of a keypad",
                "b\u{1b}[1~a\u{1b}[4~c",
                "abc",
                "",
            ),
            ("Ctrl-A and Ctrl-E", "b\u{1}a\u{5}c", "abc", ""),
            ("Ctrl-B and Ctrl-F", "ac\u{2}b\u{6}d", "abcd", ""),
            ("Backspace", "abx\u{7f}c", "abc", ""),
            ("Backspace at the beginning", "\u{7f}a", "a", ""),
            ("Delete", "axb\u{2}\u{2}\u{1b}[3~", "ab", "b"),
            ("Ctrl-D within a line", "axb\u{2}\u{2}\u{4}", "ab", "b"),
            ("Ctrl-D at the end of a line", "ab\u{4}", "ab", ""),
            ("Ctrl-W", "one two  \u{17}", "one ", ""),
            ("Ctrl-U", "one two\u{2}\u{2}\u{2}\u{15}", "two", "two"),
            ("Ctrl-K", "one two\u{2}\u{2}\u{2}\u{b}", "one ", ""),
            ("Ctrl-C clears", "one\u{3}two", "two", ""),
            ("word left", "one two\u{1b}[1;5Dx", "one xtwo", "two"),
            ("word right", "one two\u{1}\u{1b}fx", "onex two", " two"),
            ("Alt-Backspace", "one two\u{1b}\u{7f}", "one ", ""),
            ("up and down", "a\u{1b}[A\u{1b}[Bb", "ab", ""),
            ("unknown keys", "a\u{1b}[15~\u{1b}[1;2P\u{1b}xb", "ab", ""),
            (
                "F1 and F5 of the Linux console",
                "a\u{1b}[[A\u{1b}[[Eb",
                "ab",
                "",
            ),
            (
                "endless parameters",
                "a\u{1b}[1;1;1;1;1;1;1;1;1;5Db",
                "ab",
                "",
            ),
            ("wide characters", "漢字\u{1b}[D\u{7f}", "字", "字"),
            (
                "one picture of several characters",
                "a👩‍💻\u{7f}e\u{301}\u{1b}[D\u{1b}[3~b",
                "ab",
                "",
            ),
            ("bytes that are no text", "a\u{9b}b", "ab", ""),
            (
                "marked paste",
                "a\u{1b}[200~b\nc\td\u{4}\u{1b}[201~e",
                "ab\nc\tde",
                "",
            ),
            (
                "Ctrl-A in a second line",
                "\u{1b}[200~b\nd\u{1b}[201~\u{1}c",
                "b\ncd",
                "d",
            ),
        ] {
            let editor = typed(bytes);
            assert_eq!(editor.text(), text, "{name}");
            assert_eq!(&editor.text[editor.cursor..], rest, "{name}");
        }
    }

    fn prompt(bytes: &str) -> LineEditor {
        let earlier = ["first", "second /undo", "two\nlines"].map(str::to_owned);
        let aids = LineAids {
            earlier: earlier.into(),
            has_pasted_rows: Arc::default(),
            completer: Arc::new(|before| {
                let names = ["undo", "unload", "exit", "src/"];
                let start = before.rfind('/').map_or(0, |at| at + 1);
                let typed = &before[start..];
                let words = names.into_iter().filter(|name| name.starts_with(typed));
                Completions {
                    start,
                    words: words.map(str::to_owned).collect(),
                    is_cut: before.starts_with("many"),
                }
            }),
        };
        let mut editor = LineEditor::new(2).with_aids(Some(aids));
        assert_eq!(editor.apply(bytes.as_bytes()), None, "{bytes:?}");
        editor
    }

    #[test]
    fn prompt_is_recalled_completed_and_continued() {
        const UP_KEY: &str = "\u{1b}[A";
        const DOWN_KEY: &str = "\u{1b}[B";
        for (name, bytes, text, rest) in [
            ("up", UP_KEY, "two\nlines", ""),
            (
                "up in the second line",
                "\u{10}x\u{1b}[A\u{1b}[D",
                "two\nlinesx",
                "o\nlinesx",
            ),
            ("Ctrl-P", "\u{10}\u{10}", "second /undo", ""),
            ("up at the oldest", "\u{10}\u{10}\u{10}\u{10}", "first", ""),
            ("down again", "draft\u{10}\u{10}\u{e}\u{e}", "draft", ""),
            ("down without up", "draft\u{1b}[B", "draft", ""),
            ("Ctrl-R", "\u{12}un", "second /undo", ""),
            ("Ctrl-R again", "\u{12}i\u{12}", "first", ""),
            ("Ctrl-R at the oldest", "\u{12}i\u{12}\u{12}", "first", ""),
            (
                "Ctrl-R with a corrected word",
                "\u{12}ix\u{7f}",
                "two\nlines",
                "",
            ),
            ("Ctrl-R for nothing", "draft\u{12}@", "draft", ""),
            ("Ctrl-R and Ctrl-G", "draft\u{12}un\u{7}s", "drafts", ""),
            (
                "Ctrl-R and Ctrl-A",
                "\u{12}un\u{1}x",
                "xsecond /undo",
                "second /undo",
            ),
            ("Ctrl-R and left", "\u{12}un\u{1b}[Dx", "second /undxo", "o"),
            ("Tab for one word", "/und\t", "/undo ", ""),
            ("Tab within a line", "/undx\u{2}\t", "/undox", "x"),
            ("Tab for a directory", "/s\t", "/src/", ""),
            ("Tab for several words", "/u\t", "/un", ""),
            ("Tab for none", "/x\t", "/x", ""),
            ("Tab for one of many", "many/und\t", "many/und", ""),
            (
                "changed earlier prompt",
                "draft\u{10}\u{10}!\u{10}\u{e}",
                "second /undo!",
                "",
            ),
            (
                "draft after changed prompts",
                "draft\u{10}!\u{e}\u{10}\u{10}?\u{e}\u{e}s",
                "drafts",
                "",
            ),
            (
                "down after Ctrl-R",
                "draft\u{12}lin\u{5}\u{e}s",
                "drafts",
                "",
            ),
            (
                "Ctrl-R and Ctrl-G in an earlier prompt",
                "draft\u{10}\u{10}!\u{12}fir\u{7}\u{e}\u{e}",
                "draft",
                "",
            ),
        ] {
            let editor = prompt(bytes);
            assert_eq!(editor.text(), text, "{name}");
            assert_eq!(&editor.text[editor.cursor..], rest, "{name}");
        }
        let mut editor = prompt("");
        let keys = format!("{DOWN_KEY}\u{12}fir\r");
        assert_eq!(
            editor.apply(keys.as_bytes()),
            Some((LineEvent::Enter, &b""[..]))
        );
        assert_eq!(editor.text(), "first");
        // An Escape key alone cancels the search, and one of an arrow does not.
        let mut editor = prompt("draft\u{12}fir\u{1b}");
        editor.end_escape();
        assert_eq!(editor.text(), "draft");
        let mut editor = prompt("draft\u{12}fir\u{1b}[D\u{1b}");
        editor.end_escape();
        assert_eq!(editor.text(), "first");
        // Other questions have none of it.
        assert_eq!(typed("no\u{10}\u{12}\t").text(), "no");
        let mut answer = LineEditor::new(0);
        assert_eq!(answer.apply(b"a\\\r"), Some((LineEvent::Enter, &b""[..])));
        assert!(!answer.continue_line());
    }

    #[test]
    fn odd_backslash_continues_a_prompt() {
        for (bytes, is_continued, text) in [
            ("one\\", true, "one\n"),
            ("one\\\\", false, "one\\\\"),
            ("one\\\\\\", true, "one\\\\\n"),
            ("onetwo\u{2}\u{2}\u{2}\\", true, "one\ntwo"),
            ("one", false, "one"),
            ("", false, ""),
        ] {
            let mut editor = prompt(bytes);
            assert_eq!(editor.continue_line(), is_continued, "{bytes:?}");
            assert_eq!(editor.text(), text, "{bytes:?}");
            assert!(!editor.has_pasted_rows, "{bytes:?}");
        }
        // The lines of a text that is pasted without marks keep them.
        let mut editor = prompt("");
        assert_eq!(
            editor.apply(b"one\\\rtwo"),
            Some((LineEvent::Enter, &b"two"[..]))
        );
        editor.break_line();
        assert_eq!(editor.text(), "one\\\n");
        assert!(editor.has_pasted_rows);
    }

    #[test]
    fn cut_line_and_pasted_rows_are_part_of_the_draft() {
        let mut editor = prompt("");
        editor.apply("a".repeat(MAX_LINE_BYTES + 1).as_bytes());
        editor.apply(b"\x10");
        assert!(editor.has_pasted_rows);
        editor.apply(b"\x10");
        assert!(!editor.is_cut && !editor.has_pasted_rows);
        editor.apply(b"\x0e\x0e");
        assert!(editor.drop_cut_text() && editor.text().is_empty());
    }

    #[test]
    fn rows_below_the_line_are_removed_by_the_next_key() {
        let mut screen = vt100::Parser::new(NonZero::new(4).unwrap(), NonZero::new(20).unwrap(), 0);
        screen.process(b"> ");
        let mut editor = prompt("");
        for (keys, expected, cursor) in [
            ("/un", "> /un", (0, 5)),
            ("\t", "> /un\nundo  unload", (0, 5)),
            ("l", "> /unl", (0, 6)),
            ("\u{3}\u{12}fi", "> first\nsearch earlier prom", (0, 7)),
            ("\u{5}", "> first", (0, 7)),
        ] {
            editor.apply(keys.as_bytes());
            screen.process(editor.draw(20, 4).as_bytes());
            assert_eq!(screen.screen().contents(), expected, "{keys:?}");
            assert_eq!(screen.screen().cursor_position(), cursor, "{keys:?}");
        }
    }

    #[test]
    fn incomplete_bytes_are_replaced() {
        let mut editor = LineEditor::new(0);
        for piece in [&b"a\xc3"[..], b"\xa4\xffb\xe2\x82", b"c"] {
            assert_eq!(editor.apply(piece), None);
        }
        assert_eq!(editor.text(), "aä\u{fffd}b\u{fffd}c");
    }

    #[test]
    fn event_ends_the_applied_bytes() {
        for (bytes, event, rest, text) in [
            ("y\nn", LineEvent::Enter, "n", "y"),
            ("\r", LineEvent::Enter, "", ""),
            ("\u{4}y", LineEvent::EndOfInput, "y", ""),
            ("y\u{3}\u{3}", LineEvent::Interrupt, "", ""),
            // No key hides them.
            ("a\u{1b}\n", LineEvent::Enter, "", "a"),
            ("a\u{1b}[\n", LineEvent::Enter, "", "a"),
            ("\u{1b}]\u{3}", LineEvent::Interrupt, "", ""),
            ("\u{1b}[200~\u{3}", LineEvent::Interrupt, "", ""),
        ] {
            let mut editor = LineEditor::new(0);
            assert_eq!(
                editor.apply(bytes.as_bytes()),
                Some((event, rest.as_bytes())),
                "{bytes:?}"
            );
            assert_eq!(editor.text(), text, "{bytes:?}");
        }
    }

    #[test]
    fn hidden_line_has_no_picture() {
        let mut editor = LineEditor::hidden();
        editor.apply(b"ac\x1b[Db");
        assert_eq!(editor.draw(10, 4), "");
        assert_eq!(editor.text(), "abc");
        assert_eq!(
            editor.apply(b"\x03"),
            Some((LineEvent::Interrupt, &b""[..]))
        );
    }

    #[test]
    fn line_has_a_size() {
        let mut editor = LineEditor::new(0);
        editor.apply("a".repeat(MAX_LINE_BYTES + 10).as_bytes());
        assert_eq!(editor.text().len(), MAX_LINE_BYTES);
        assert!(editor.drop_cut_text() && editor.text().is_empty());
        editor.apply(b"a");
        assert!(!editor.drop_cut_text());
    }

    #[test]
    fn emptied_line_is_not_cut() {
        for (name, key) in [("Ctrl-U", "\u{15}"), ("Ctrl-C", "\u{3}")] {
            let mut editor = LineEditor::new(0);
            editor.apply("a".repeat(MAX_LINE_BYTES + 1).as_bytes());
            assert_eq!(editor.apply(key.as_bytes()), None, "{name}");
            editor.apply(b"short");
            assert!(!editor.drop_cut_text(), "{name}");
            assert_eq!(editor.text(), "short", "{name}");
        }
    }

    /// After each key, the screen shows the line, and the cursor is at the next letter's cell.
    #[test]
    fn picture_shows_the_line() {
        for (name, keys, expected, cursor) in [
            ("empty", &[""][..], "> ", (0, 2)),
            ("letters", &["a", "b"], "> ab", (0, 4)),
            ("cursor", &["ab", "\u{1b}[D"], "> ab", (0, 3)),
            ("full row", &["abcdefgh"], "> abcdefgh", (1, 0)),
            ("two rows", &["abcdefgh", "ij"], "> abcdefgh\nij", (1, 2)),
            (
                "back into the first row",
                &["abcdefghij", "\u{1b}[D\u{1b}[D\u{1b}[D", "x"],
                "> abcdefgx\nhij",
                (1, 0),
            ),
            ("deleted row", &["abcdefghij", "\u{15}", "x"], "> x", (0, 3)),
            ("wide at the edge", &["abcdefg漢"], "> abcdefg\n漢", (1, 2)),
            (
                "pasted lines",
                &["\u{1b}[200~one\ntwo\u{1b}[201~"],
                "> one\ntwo",
                (1, 3),
            ),
            (
                "deleted line",
                &["\u{1b}[200~one\ntwo\u{1b}[201~", "\u{3}"],
                "> ",
                (0, 2),
            ),
            (
                "higher than the window",
                &["\u{1b}[200~1\n2\n3\n4\n5\u{1b}[201~"],
                "> 2\n3\n4\n5",
                (3, 1),
            ),
            (
                "direction override",
                &["a\u{202e}"],
                "> a\n\\u{202e}",
                (1, 8),
            ),
        ] {
            let [rows, columns] = [4, 10].map(|n| NonZero::new(n).unwrap());
            let mut screen = vt100::Parser::new(rows, columns, 0);
            screen.process(b"> ");
            let mut editor = LineEditor::new(2);
            for key in keys {
                editor.apply(key.as_bytes());
                screen.process(editor.draw(10, 4).as_bytes());
            }
            let shown = screen.screen();
            assert_eq!(shown.contents(), expected, "{name}");
            assert_eq!(shown.cursor_position(), cursor, "{name}");
        }
    }
}
