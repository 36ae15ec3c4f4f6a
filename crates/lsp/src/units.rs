//! Positions in a text, in the units of a server, and edits at such positions.

use super::types::{Position, TextEdit};

/// The unit in which a server counts the characters of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Units {
    Bytes,
    #[default]
    Utf16,
    Letters,
}

impl Units {
    /// Returns the column of the `n`th character of a line, both from 0.
    pub fn column(self, line: &str, n: usize) -> u32 {
        let before: String = line.chars().take(n).collect();
        let units = match self {
            Self::Bytes => before.len(),
            Self::Utf16 => before.encode_utf16().count(),
            Self::Letters => before.chars().count(),
        };
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Returns the byte index of a column; the end of the line if it is shorter.
    pub fn byte(self, line: &str, column: u32) -> usize {
        let mut units = 0;
        for (at, letter) in line.char_indices() {
            if units >= column {
                return at;
            }
            units += match self {
                Self::Bytes => u32::try_from(letter.len_utf8()).unwrap_or(1),
                Self::Utf16 => u32::try_from(letter.len_utf16()).unwrap_or(1),
                Self::Letters => 1,
            };
        }
        line.len()
    }

    /// Applies edits, all of whose ranges refer to the original text.
    ///
    /// # Errors
    /// An error if two of them overlap.
    pub fn edited(self, text: &str, edits: &[TextEdit]) -> Result<String, String> {
        let starts: Vec<usize> = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let byte = |position: Position| {
            let line = usize::try_from(position.line).unwrap_or(usize::MAX);
            let Some(start) = starts.get(line) else {
                return text.len();
            };
            let whole = text[*start..].split('\n').next().unwrap_or_default();
            start
                + self.byte(
                    whole.strip_suffix('\r').unwrap_or(whole),
                    position.character,
                )
        };
        let mut placed: Vec<(usize, usize, &str)> = edits
            .iter()
            .map(|edit| {
                (
                    byte(edit.range.start),
                    byte(edit.range.end),
                    edit.new.as_str(),
                )
            })
            .collect();
        placed.sort_by_key(|(start, end, _)| (*start, *end));
        placed.dedup();
        let mut new = String::new();
        let mut at = 0;
        for (start, end, text_there) in placed {
            if start < at || end < start {
                return Err("its edits overlap".into());
            }
            new.push_str(&text[at..start]);
            new.push_str(text_there);
            at = end;
        }
        new.push_str(&text[at..]);
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::Range;
    use super::*;

    #[test]
    fn column_depends_on_units() {
        let line = "a😀ü=x";
        for (units, column) in [(Units::Bytes, 7), (Units::Utf16, 4), (Units::Letters, 3)] {
            assert_eq!(units.column(line, 3), column, "{units:?}");
            assert_eq!(&line[units.byte(line, column)..], "=x", "{units:?}");
            assert_eq!(units.byte(line, 99), line.len());
        }
    }

    #[test]
    fn edits_refer_to_original_text() {
        let at = |line, from, to| Range {
            start: Position {
                line,
                character: from,
            },
            end: Position {
                line,
                character: to,
            },
        };
        let edit = |range, new: &str| TextEdit {
            range,
            new: new.into(),
        };
        let text = "fn a() {}\r\nfn b() { a() }\n";
        let edits = [
            edit(at(1, 9, 10), "long"),
            edit(at(0, 3, 4), "long"),
            edit(at(0, 3, 4), "long"),
        ];
        assert_eq!(
            Units::Utf16.edited(text, &edits).unwrap(),
            "fn long() {}\r\nfn b() { long() }\n"
        );
        assert_eq!(
            Units::Utf16.edited("", &[edit(at(7, 3, 4), "x")]).unwrap(),
            "x"
        );
        let end = edit(at(0, 99, 99), ";");
        assert_eq!(
            Units::Utf16.edited(text, &[end]).unwrap(),
            "fn a() {};\r\nfn b() { a() }\n"
        );
        assert!(
            Units::Utf16
                .edited(text, &[edit(at(0, 1, 5), ""), edit(at(0, 2, 3), "x")])
                .is_err()
        );
    }
}
