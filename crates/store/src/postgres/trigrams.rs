//! Trigrams as numbers, by which parts of words are found.

use std::collections::BTreeSet;

use crate::search::MIN_INDEXED_LETTERS;

/// The maximum number of trigrams that are stored for a text, which corresponds to about thirty
/// thousand letters. A text with more counts as having any word.
const MAX_TRIGRAMS: usize = 8192;

/// The numbers of the trigrams of words, in any case.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Trigrams(BTreeSet<i16>);

impl Trigrams {
    /// Returns the numbers that a text with all these words has; `None` if the words are too short.
    pub(super) fn wanted(words: &[String]) -> Option<Vec<i16>> {
        let mut grams = Self::default();
        words.iter().for_each(|word| grams.add(word));
        (!grams.0.is_empty()).then(|| grams.0.into_iter().collect())
    }

    pub(super) fn add(&mut self, text: &str) {
        for word in text.to_lowercase().split_whitespace() {
            let ends = word.char_indices().map(|(at, _)| at).chain([word.len()]);
            for (start, end) in ends.clone().zip(ends.skip(MIN_INDEXED_LETTERS)) {
                if self.0.len() > MAX_TRIGRAMS {
                    return;
                }
                self.0.insert(number(&word.as_bytes()[start..end]));
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the numbers in PostgreSQL's syntax; `None` for a text that counts as having any
    /// word.
    pub(super) fn literal(&self) -> Option<String> {
        let numbers = || {
            self.0
                .iter()
                .map(i16::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        (self.0.len() <= MAX_TRIGRAMS).then(|| format!("{{{}}}", numbers()))
    }
}

/// Returns the number of a trigram. It is part of the format.
fn number(letters: &[u8]) -> i16 {
    let [one, other, ..] = crc32fast::hash(letters).to_le_bytes();
    i16::from_le_bytes([one, other])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grams(text: &str) -> Trigrams {
        let mut grams = Trigrams::default();
        grams.add(text);
        grams
    }

    #[test]
    fn grams_of_any_part_of_a_word_are_among_those_of_the_text() {
        let table = [
            ("The Übersicht is empty", "bersich", true),
            ("ΟΔΟΣ", "οδο", true),
            ("ΟΔΟΣ", "δος", true),
            ("部署的时候", "部署的", true),
            ("say \"hello\" to a\0nul", "\"hello\"", true),
            ("zebra", "zebras", false),
            ("ze bra", "zebra", false),
        ];
        for (text, word, expected) in table {
            let wanted = Trigrams::wanted(&[word.to_lowercase()]).unwrap();
            let text = grams(text);
            assert_eq!(
                wanted.iter().all(|gram| text.0.contains(gram)),
                expected,
                "{word}"
            );
        }
        assert_eq!(Trigrams::wanted(&["is".into(), "a".into()]), None);
    }

    #[test]
    fn number_is_machine_independent() {
        assert_eq!(
            ["zeb", "ebr", "übe"].map(|letters| number(letters.as_bytes())),
            [-21758, -13844, 1394]
        );
    }

    #[test]
    fn grams_of_a_text_with_too_many_are_none() {
        let noise: String = (0..40_000).map(|_| fastrand::alphanumeric()).collect();
        assert_eq!(grams(&noise).literal(), None);
        assert_eq!(
            grams("zebra zebra")
                .literal()
                .map(|literal| literal.matches(',').count()),
            Some(2)
        );
    }
}
