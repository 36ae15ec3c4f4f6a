//! How much of a line is looked at.

/// How much text within texts is taken apart, in bytes.
const NESTED: usize = 32 << 10;
/// How many words are handed down to programs that other programs run, and how many words of programs
/// that are not known are looked at; of what comes then, only the beginning.
const WORDS: usize = 4_000;
pub(super) const BEGINNING: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Bytes of text within texts that were taken apart.
    nested: usize,
    /// Words that were handed down, and words of programs that are not known.
    handed: usize,
    given: usize,
    /// How deep the walk is, over all texts.
    pub(super) depth: usize,
}

impl Budget {
    /// Whether a text within a text may be taken apart.
    pub(super) fn text(&mut self, length: usize) -> bool {
        self.nested += length;
        self.nested <= NESTED
    }

    /// Whether a text may be searched once more; where not, it costs nothing.
    pub(super) fn again(&mut self, length: usize) -> bool {
        let fits = self.nested + length <= NESTED;
        self.nested += if fits { length } else { 0 };
        fits
    }

    /// Whether words that nobody takes apart may be kept.
    pub(super) fn unread(&mut self, length: usize) -> bool {
        self.nested += length;
        self.nested <= 4 * NESTED
    }

    /// Whether all of these words may be handed down.
    pub(super) fn hands(&mut self, words: usize) -> bool {
        self.handed += words;
        self.handed <= WORDS
    }

    /// Whether all of these words of a program nobody knows may be looked at.
    pub(super) fn gives(&mut self, words: usize) -> bool {
        self.given += words;
        self.given <= WORDS
    }
}
