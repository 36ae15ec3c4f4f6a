//! Comparison of texts that differ only in typography or whitespace: a typographic quote for a plain
//! one, a non-breaking hyphen, a decomposed accent, tabs for spaces. Models often write one variant
//! although the file has another. This module compares both, names the differences, and transfers a
//! change from one variant to the other, without I/O.

use std::collections::BTreeMap;
use std::ops::Range;

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_normalizer::properties::CanonicalCombiningClassMapBorrowed;

use base::text;

/// The maximum size of a text that is folded, in bytes; folding takes about 40 times that in
/// memory.
pub(crate) const MAX_FOLDED_BYTES: usize = 1 << 20;

/// The differences that are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FoldLevel {
    /// Characters: quotes, dashes, composed and decomposed letters, invisible characters.
    Characters,
    /// Whitespace too: any run of spaces and tabs within a line counts as one, and at the ends of a line as none.
    Blanks,
}

/// A folded text, with its mapping to the original.
pub(crate) struct FoldedText {
    /// The folded text.
    pub text: String,
    /// The units of the mapping, in order and without gaps.
    units: Vec<FoldedUnit>,
}

/// The smallest unit of the mapping: a letter with its accents, or a run of spaces.
#[derive(Debug, Clone)]
struct FoldedUnit {
    /// The range in the folded text, in bytes; empty if nothing of the unit is visible.
    folded: Range<usize>,
    /// The range in the original text, in bytes.
    original: Range<usize>,
}

/// Returns the folded form of a character, if it differs; empty for an invisible character.
fn fold_char(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{2018}'..='\u{201b}' | '\u{2032}' => "'",
        '\u{201c}'..='\u{201f}' | '\u{2033}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe63}' => "-",
        '\u{2026}' => "...",
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => " ",
        '\u{ad}' | '\u{200b}' | '\u{2060}' | '\u{feff}' => "",
        _ => return None,
    })
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t') || fold_char(c) == Some(" ")
}

/// Returns whether a character can be part of a run of spaces: it is blank or invisible.
fn is_blank_or_invisible(c: char) -> bool {
    is_blank(c) || fold_char(c) == Some("")
}

/// Returns whether a character belongs to the one before it: an accent, or a later part of a Korean
/// syllable.
fn is_continuation(c: char) -> bool {
    const CLASSES: CanonicalCombiningClassMapBorrowed<'static> =
        CanonicalCombiningClassMapBorrowed::new();
    c >= '\u{300}' && (CLASSES.get_u8(c) != 0 || ('\u{1160}'..='\u{11ff}').contains(&c))
}

impl FoldedText {
    pub(crate) fn of(text: &str, level: FoldLevel) -> Self {
        const COMPOSED: ComposingNormalizerBorrowed<'static> =
            ComposingNormalizerBorrowed::new_nfc();
        let mut out = String::with_capacity(text.len());
        let mut units = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at + c.len_utf8()..];
            let run_length =
                |fits: fn(char) -> bool| rest.len() - rest.trim_start_matches(fits).len();
            let mut length = c.len_utf8();
            let begin = out.len();
            if level == FoldLevel::Blanks && is_blank_or_invisible(c) {
                length += run_length(is_blank_or_invisible);
                // Invisible characters leave nothing, nor do spaces at the ends of a line.
                let vanishes = !text[at..at + length].contains(is_blank)
                    || begin == 0
                    || out.ends_with('\n')
                    || matches!(text[at + length..].chars().next(), None | Some('\n'));
                out.push_str(if vanishes { "" } else { " " });
            } else {
                length += run_length(is_continuation);
                let unit = &text[at..at + length];
                match fold_char(c) {
                    Some(folded) if length == c.len_utf8() => out.push_str(folded),
                    _ if unit.is_ascii() => out.push_str(unit),
                    _ => out.push_str(&COMPOSED.normalize(unit)),
                }
            }
            units.push(FoldedUnit {
                folded: begin..out.len(),
                original: at..at + length,
            });
            at += length;
        }
        Self { text: out, units }
    }

    /// Maps a range of the folded text to the original. Returns `None` if it begins or ends within a
    /// unit. Invisible characters at its ends are not included.
    pub(crate) fn original(&self, piece: &Range<usize>) -> Option<Range<usize>> {
        let first = self
            .units
            .partition_point(|unit| unit.folded.end <= piece.start);
        let end = self
            .units
            .partition_point(|unit| unit.folded.start < piece.end);
        let first = self.units.get(first)?;
        let last = self.units[..end]
            .iter()
            .rfind(|unit| !unit.folded.is_empty())?;
        (first.folded.start == piece.start && last.folded.end == piece.end)
            .then_some(first.original.start..last.original.end)
    }
}

/// The ranges of a piece in two texts with the same folded form.
struct AlignedPair {
    one: Range<usize>,
    other: Range<usize>,
}

/// Returns the smallest pieces of two texts with the same folded form, in order: visible pieces, and
/// the gaps between them. Returns `None` if the folded forms differ.
fn aligned_pieces(one: &str, other: &str) -> Option<Vec<AlignedPair>> {
    let a = FoldedText::of(one, FoldLevel::Blanks);
    let b = FoldedText::of(other, FoldLevel::Blanks);
    if a.text != b.text {
        return None;
    }
    let mut found = Vec::new();
    let mut index = 0;
    let mut other_index = 0;
    let mut end = 0;
    let mut other_end = 0;
    loop {
        index = next_visible(&a.units, index);
        other_index = next_visible(&b.units, other_index);
        let (Some(first), Some(other_first)) = (a.units.get(index), b.units.get(other_index))
        else {
            break;
        };
        found.push(AlignedPair {
            one: end..first.original.start,
            other: other_end..other_first.original.start,
        });
        let start = first.original.start;
        let other_start = other_first.original.start;
        // For "…" and "...", take as many units of each as are needed for both to end at the same
        // point.
        while a.units[index].folded.end != b.units[other_index].folded.end {
            if a.units[index].folded.end < b.units[other_index].folded.end {
                index += 1
            } else {
                other_index += 1
            }
        }
        end = a.units[index].original.end;
        other_end = b.units[other_index].original.end;
        found.push(AlignedPair {
            one: start..end,
            other: other_start..other_end,
        });
        index += 1;
        other_index += 1;
    }
    found.push(AlignedPair {
        one: end..one.len(),
        other: other_end..other.len(),
    });
    Some(found)
}

/// Returns the index of the first unit from `n` on that has folded text.
fn next_visible(units: &[FoldedUnit], n: usize) -> usize {
    n + units[n..]
        .iter()
        .take_while(|unit| unit.folded.is_empty())
        .count()
}

/// Splits a text into words and single other characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        let word = |c: char| c.is_alphanumeric() || c == '_' || is_continuation(c);
        let fits: &dyn Fn(char) -> bool = if word(c) { &word } else { &is_continuation };
        let length = c.len_utf8() + rest.len() - rest.trim_start_matches(fits).len();
        tokens.push(&text[at..at + length]);
        at += length;
    }
    tokens
}

/// Returns the byte index of each token.
fn starts(tokens: &[&str]) -> Vec<usize> {
    tokens
        .iter()
        .scan(0, |at, token| {
            Some(std::mem::replace(at, *at + token.len()))
        })
        .collect()
}

/// Applies the change from `old` to `new` to `found`, which is a variant of `old`. Text that the
/// change preserves remains as in `found`. Returns `new` if `found` is not a variant of `old`.
pub(crate) fn apply_to_variant(old: &str, new: &str, found: &str) -> String {
    if old == found {
        return new.to_owned();
    }
    let Some(pieces) = aligned_pieces(old, found) else {
        return new.to_owned();
    };
    // The position in `new` of each byte of `old` that the change preserves.
    let mut preserved: Vec<Option<usize>> = vec![None; old.len()];
    let a = tokens(old);
    let b = tokens(new);
    let a_starts = starts(&a);
    let b_starts = starts(&b);
    for op in text::diff::pieces(&a, &b) {
        if let similar::DiffOp::Equal {
            old_index,
            new_index,
            len,
        } = op
        {
            for n in 0..len {
                for byte in 0..a[old_index + n].len() {
                    preserved[a_starts[old_index + n] + byte] =
                        Some(b_starts[new_index + n] + byte);
                }
            }
        }
    }
    // The position in `new` of a preserved piece.
    let start_of = |range: &Range<usize>| -> Option<usize> {
        let first = preserved.get(range.start).copied().flatten()?;
        preserved[range.clone()]
            .iter()
            .enumerate()
            .all(|(n, at)| *at == Some(first + n))
            .then_some(first)
    };
    let mut out = String::with_capacity(new.len());
    let mut at = 0;
    for (n, pair) in pieces.iter().enumerate() {
        if !pair.one.is_empty() {
            if let Some(start) = start_of(&pair.one).filter(|start| *start >= at) {
                out.push_str(&new[at..start]);
                out.push_str(&found[pair.other.clone()]);
                at = start + pair.one.len();
            }
            continue;
        }
        // Invisible text of `found` remains if both its neighbours are preserved and still
        // adjacent.
        let before = pieces[..n].iter().rfind(|pair| !pair.one.is_empty());
        let after = pieces[n + 1..].iter().find(|pair| !pair.one.is_empty());
        let before = before.map_or(Some(0), |pair| {
            start_of(&pair.one).map(|start| start + pair.one.len())
        });
        let after = after.map_or(Some(new.len()), |pair| start_of(&pair.one));
        if before == after && before == Some(at) {
            out.push_str(&found[pair.other.clone()]);
        }
    }
    out.push_str(&new[at..]);
    out
}

/// Lists the differences between two variants of a text, for the model: "U+2011 (non-breaking
/// hyphen) where you wrote \"-\"". Empty if the texts are equal, or not variants of each other.
pub(crate) fn differences(wanted: &str, found: &str) -> Vec<String> {
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for pair in aligned_pieces(wanted, found).unwrap_or_default() {
        let wanted = &wanted[pair.one];
        let found = &found[pair.other];
        if wanted != found {
            *all.entry(difference(wanted, found)).or_default() += 1;
        }
    }
    let times = |(words, n): (String, usize)| {
        if n > 1 {
            format!("{words} ({n} times)")
        } else {
            words
        }
    };
    all.into_iter().map(times).collect()
}

fn difference(wanted: &str, found: &str) -> String {
    if has_only_blanks(wanted) && has_only_blanks(found) {
        return match (wanted.contains('\t'), found.contains('\t')) {
            (false, true) => "tabs where you wrote spaces".into(),
            (true, false) => "spaces where you wrote tabs".into(),
            _ if wanted.is_empty() => "spaces where you wrote none".into(),
            _ if found.is_empty() => "no spaces where you wrote some".into(),
            _ => "another number of spaces".into(),
        };
    }
    match (is_decomposed(wanted), is_decomposed(found)) {
        (false, true) => {
            return format!(
                "\"{found}\" in decomposed form (NFD) where you wrote it composed (NFC)"
            );
        }
        (true, false) => {
            return format!(
                "\"{found}\" in composed form (NFC) where you wrote it decomposed (NFD)"
            );
        }
        _ => {}
    }
    let written = match wanted {
        "" => "nothing".to_owned(),
        wanted if wanted.is_ascii() => format!("{wanted:?}"),
        wanted => name_characters(wanted),
    };
    let present = if found.is_empty() {
        "nothing".to_owned()
    } else {
        name_characters(found)
    };
    format!("{present} where you wrote {written}")
}

/// Returns whether a text has a character in decomposed form.
fn is_decomposed(text: &str) -> bool {
    text.chars().any(is_continuation)
}

fn has_only_blanks(text: &str) -> bool {
    text.chars().all(|c| matches!(c, ' ' | '\t'))
}

/// Names characters by code point, and those that are often confused also by name. ASCII text is
/// quoted instead.
fn name_characters(text: &str) -> String {
    if text.is_ascii() {
        return format!("{text:?}");
    }
    let one = |c: char| {
        let name = match c {
            '\u{2018}' | '\u{2019}' => " (typographic single quote)",
            '\u{201c}' | '\u{201d}' => " (typographic quote)",
            '\u{2010}' => " (hyphen)",
            '\u{2011}' => " (non-breaking hyphen)",
            '\u{2013}' => " (en dash)",
            '\u{2014}' => " (em dash)",
            '\u{2212}' => " (minus sign)",
            '\u{2026}' => " (ellipsis)",
            '\u{a0}' | '\u{202f}' => " (no-break space)",
            '\u{ad}' => " (soft hyphen)",
            '\u{200b}' => " (zero width space)",
            '\u{feff}' => " (byte order mark)",
            _ => "",
        };
        format!("U+{:04X}{name}", u32::from(c))
    };
    text.chars().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_equal_from_their_level_on() {
        // One, other, the first level at which they are equal.
        let table = [
            ("a-b", "a\u{2011}b", Some(FoldLevel::Characters)),
            (
                "\"x\" 'y'",
                "\u{201c}x\u{201d} \u{2018}y\u{2019}",
                Some(FoldLevel::Characters),
            ),
            ("wait...", "wait\u{2026}", Some(FoldLevel::Characters)),
            ("caf\u{e9}", "cafe\u{301}", Some(FoldLevel::Characters)),
            (
                "\u{ac00}\u{ac01}",
                "\u{1100}\u{1161}\u{1100}\u{1161}\u{11a8}",
                Some(FoldLevel::Characters),
            ),
            ("a b", "a\u{a0}b", Some(FoldLevel::Characters)),
            ("ab", "a\u{200b}b", Some(FoldLevel::Characters)),
            ("a b", "a  \tb", Some(FoldLevel::Blanks)),
            ("  a\nb", "\ta  \nb ", Some(FoldLevel::Blanks)),
            ("a b", "ab", None),
            ("a\nb", "a b", None),
            ("cafe", "caf\u{e9}", None),
            ("a\u{200d}b", "ab", None),
        ];
        for (one, other, level) in table {
            for tried in [FoldLevel::Characters, FoldLevel::Blanks] {
                let same = FoldedText::of(one, tried).text == FoldedText::of(other, tried).text;
                assert_eq!(
                    same,
                    level.is_some_and(|level| tried >= level),
                    "{one:?} {other:?} {tried:?}"
                );
            }
        }
    }

    #[test]
    fn applied_change_preserves_variants() {
        // Old, new, found, result.
        let table = [
            (
                "say \"hi\"",
                "say \"hello\"",
                "say \u{201c}hi\u{201d}",
                "say \u{201c}hello\u{201d}",
            ),
            ("a-b c", "a-b d", "a\u{2011}b c", "a\u{2011}b d"),
            ("a-b c", "a_b c", "a\u{2011}b c", "a_b c"),
            (
                "wait... now",
                "wait... then",
                "wait\u{2026} now",
                "wait\u{2026} then",
            ),
            ("wait...", "wait..", "wait\u{2026}", "wait.."),
            (
                "caf\u{e9} one",
                "caf\u{e9} two",
                "cafe\u{301} one",
                "cafe\u{301} two",
            ),
            ("a\nb", "a\nc", "a  \nb", "a  \nc"),
            ("a\nb", "a\nx\nb", "a  \nb ", "a  \nx\nb "),
            ("x = 1;", "x = 2;", "x  =\t1;", "x  =\t2;"),
            ("a b", "b", "a\u{a0}b", "b"),
            ("a-b", "", "a\u{2011}b", ""),
            ("other", "new", "found", "new"),
        ];
        for (old, new, found, expected) in table {
            assert_eq!(
                apply_to_variant(old, new, found),
                expected,
                "{old:?} {new:?} {found:?}"
            );
        }
    }

    #[test]
    fn differences_are_named() {
        let table = [
            (
                "a-b",
                "a\u{2011}b",
                "U+2011 (non-breaking hyphen) where you wrote \"-\"",
            ),
            (
                "\"a\"",
                "\u{201c}a\u{201d}",
                "U+201C (typographic quote) where you wrote \"\\\"\"; U+201D (typographic quote) where you wrote \"\\\"\"",
            ),
            (
                "caf\u{e9}",
                "cafe\u{301}",
                "\"e\u{301}\" in decomposed form (NFD) where you wrote it composed (NFC)",
            ),
            (
                "cafe\u{301}",
                "caf\u{e9}",
                "\"\u{e9}\" in composed form (NFC) where you wrote it decomposed (NFD)",
            ),
            ("    a", "\ta", "tabs where you wrote spaces"),
            ("a", "a  ", "spaces where you wrote none"),
            (
                "a-b-c",
                "a\u{2013}b\u{2013}c",
                "U+2013 (en dash) where you wrote \"-\" (2 times)",
            ),
            (
                "a\u{2013}b",
                "a-b",
                "\"-\" where you wrote U+2013 (en dash)",
            ),
            ("a", "b", ""),
            ("a", "a", ""),
        ];
        for (wanted, found, expected) in table {
            assert_eq!(
                differences(wanted, found).join("; "),
                expected,
                "{wanted:?} {found:?}"
            );
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { cases: 10_000, failure_persistence: None, ..Default::default() })]

        /// Applying a change to a variant gives a variant of `new`; applying it to `old` itself gives
        /// `new`.
        #[test]
        fn applied_change_equals_the_change(
            found in "[ab \t\n\u{2011}\u{201c}\u{e9}\u{2026}\u{200b}-]{0,20}",
            cuts in proptest::collection::vec((0_usize..20, "[abx \n-]{0,3}"), 0..3),
        ) {
            let old = FoldedText::of(&found, FoldLevel::Blanks).text;
            let mut new = old.clone();
            for (at, put) in cuts {
                let at = new.char_indices().map(|(at, _)| at).nth(at).unwrap_or(new.len());
                let end = new[at..].chars().next().map_or(at, |c| at + c.len_utf8());
                new.replace_range(at..end, &put);
            }
            proptest::prop_assert_eq!(apply_to_variant(&old, &new, &old), new.as_str());
            proptest::prop_assert_eq!(apply_to_variant(&old, &old, &found), found.as_str());
            let made = apply_to_variant(&old, &new, &found);
            let plain = |text: &str| FoldedText::of(text, FoldLevel::Blanks).text;
            proptest::prop_assert_eq!(plain(&made), plain(&new), "{:?} {:?} {:?} {:?}", old, new, found, made);
        }
    }
}
