//! [`Budget`], the limits on the work for one line: texts that are parsed, words that are passed on.

/// The maximum size of nested texts that are parsed, in bytes.
const MAX_NESTED_BYTES: usize = 32 << 10;
/// The maximum number of words that are passed to programs run by other programs, and of words of
/// unknown programs; beyond that, only the first ones are analysed.
const MAX_WORDS: usize = 4_000;
/// The number of words that are analysed beyond [`MAX_WORDS`].
pub(super) const BEGINNING: usize = 32;

/// The work that was done for a line, compared with its limits. Each `allows_…` counts the work and
/// returns whether the limit still holds.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The size of nested texts that were parsed, in bytes.
    nested: usize,
    /// The number of words that were passed to programs run by other programs.
    passed_on: usize,
    /// The number of analysed words of unknown programs.
    given: usize,
    /// The depth of the walk, over all nested texts.
    pub(super) depth: usize,
}

impl Budget {
    /// Returns whether a nested text may be parsed.
    pub(super) fn allows_parsing(&mut self, length: usize) -> bool {
        self.nested += length;
        self.nested <= MAX_NESTED_BYTES
    }

    /// Returns whether a text may be searched again. A refusal costs nothing.
    pub(super) fn allows_search(&mut self, length: usize) -> bool {
        let fits = self.nested + length <= MAX_NESTED_BYTES;
        self.nested += if fits { length } else { 0 };
        fits
    }

    /// Returns whether an unparsed text may be stored.
    pub(super) fn allows_storing(&mut self, length: usize) -> bool {
        self.nested += length;
        self.nested <= 4 * MAX_NESTED_BYTES
    }

    /// Returns whether all of these words may be passed on.
    pub(super) fn allows_passing(&mut self, words: usize) -> bool {
        self.passed_on += words;
        self.passed_on <= MAX_WORDS
    }

    /// Returns whether all of these words of an unknown program may be analysed.
    pub(super) fn allows_words(&mut self, words: usize) -> bool {
        self.given += words;
        self.given <= MAX_WORDS
    }
}
