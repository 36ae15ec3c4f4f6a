//! Example texts for wildcard patterns: one for every combination of patterns that some text
//! matches.
//!
//! The verdict of a set of rules on a text depends only on which patterns the text matches. So a
//! property that holds for all examples holds for all texts.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::wildcard::{self, fold, slash};

/// The maximum numbers of states and of state positions, after which the search gives up. Ordinary
/// rules need a few hundred.
const MAX_STATES: usize = 4 << 10;
const MAX_POSITIONS: usize = 1 << 20;

/// A pattern, with `true` if it ignores case, as a deny does.
pub(super) type Pattern = (String, bool);

/// A symbol of a parsed pattern.
enum PatternSymbol {
    /// `*`
    Run,
    /// `?`
    One,
    Letter(char),
    FoldedLetter(char),
    /// The end of the pattern with this number.
    End(usize),
}

/// A nondeterministic automaton that runs all patterns in parallel. A state is the sorted list of
/// positions that may have been reached.
struct Machine {
    symbols: Vec<PatternSymbol>,
    /// The number of each symbol's pattern.
    owners: Vec<usize>,
    start: Vec<usize>,
    /// A letter that is in no pattern.
    fresh: char,
}

impl Machine {
    fn new(patterns: &[Pattern]) -> Self {
        let mut machine = Self {
            symbols: Vec::new(),
            owners: Vec::new(),
            start: Vec::new(),
            fresh: fresh(patterns),
        };
        let mut starts = Vec::new();
        for (at, (pattern, folded)) in patterns.iter().enumerate() {
            for text in wildcard::readings(pattern) {
                starts.push(machine.symbols.len());
                machine.symbols.extend(text.chars().map(|c| match slash(c) {
                    '*' => PatternSymbol::Run,
                    '?' => PatternSymbol::One,
                    c if *folded => PatternSymbol::FoldedLetter(fold(c)),
                    c => PatternSymbol::Letter(c),
                }));
                machine.symbols.push(PatternSymbol::End(at));
                machine.owners.resize(machine.symbols.len(), at);
            }
        }
        machine.start = machine.closed(starts);
        machine
    }

    /// Adds the positions after each `*`, which may match nothing.
    fn closed(&self, mut places: Vec<usize>) -> Vec<usize> {
        let mut at = 0;
        while let Some(position) = places.get(at) {
            if matches!(self.symbols[*position], PatternSymbol::Run) {
                places.push(position + 1);
            }
            at += 1;
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    fn step(&self, state: &[usize], letter: char) -> Vec<usize> {
        let next = |position: &usize| match self.symbols[*position] {
            PatternSymbol::Run => Some(*position),
            PatternSymbol::One => Some(position + 1),
            PatternSymbol::Letter(own) => (own == letter).then_some(position + 1),
            PatternSymbol::FoldedLetter(own) => (own == fold(letter)).then_some(position + 1),
            PatternSymbol::End(_) => None,
        };
        self.closed(state.iter().filter_map(next).collect())
    }

    /// Returns the letters that lead to different states, with one that represents all others.
    fn letters(&self, state: &[usize]) -> Vec<char> {
        let mut letters = vec![self.fresh];
        for position in state {
            match self.symbols[*position] {
                PatternSymbol::Letter(own) => letters.push(own),
                PatternSymbol::FoldedLetter(own) => letters.extend(
                    [own]
                        .into_iter()
                        .chain(own.to_uppercase())
                        .chain(third_variant(own)),
                ),
                _ => {}
            }
        }
        letters.sort_unstable();
        letters.dedup();
        letters
    }

    fn matched(&self, state: &[usize]) -> Vec<usize> {
        let mut matched: Vec<usize> = state
            .iter()
            .filter_map(|position| match self.symbols[*position] {
                PatternSymbol::End(at) => Some(at),
                _ => None,
            })
            .collect();
        matched.sort_unstable();
        matched.dedup();
        matched
    }
}

/// Returns a letter that folds to another one and is not its capital, if there is one.
fn third_variant(letter: char) -> Option<char> {
    Some(match letter {
        'i' => '\u{130}',
        'k' => '\u{212a}',
        'å' => '\u{212b}',
        'ω' => '\u{2126}',
        'θ' => '\u{3f4}',
        'ß' => '\u{1e9e}',
        'ǆ' => '\u{1c5}',
        'ǉ' => '\u{1c8}',
        'ǌ' => '\u{1cb}',
        'ǳ' => '\u{1f2}',
        'ᾀ'..='ᾇ' | 'ᾐ'..='ᾗ' | 'ᾠ'..='ᾧ' => char::from_u32(u32::from(letter) + 8)?,
        'ᾳ' | 'ῃ' | 'ῳ' => char::from_u32(u32::from(letter) + 9)?,
        _ => return None,
    })
}

/// Returns a letter that is in none of the patterns, in either case; preferably one that needs no
/// quoting.
fn fresh(patterns: &[Pattern]) -> char {
    let used: HashSet<char> = patterns
        .iter()
        .flat_map(|(pattern, _)| pattern.chars().map(fold))
        .collect();
    let letters = ('a'..='z')
        .rev()
        .chain('0'..='9')
        .chain('\u{4e00}'..='\u{9fff}');
    letters
        .into_iter()
        .find(|c| !used.contains(c))
        .unwrap_or('\u{e000}')
}

/// Returns the shortest text for every combination of patterns that some text matches. `None` if
/// there are too many combinations.
pub(super) fn of(patterns: &[Pattern]) -> Option<Vec<String>> {
    search(patterns, "", &|_| true)
}

/// Does the same as [`of`] for texts that match at least one of the patterns for which `wanted`
/// holds.
pub(super) fn matching(
    patterns: &[Pattern],
    wanted: &dyn Fn(&Pattern) -> bool,
) -> Option<Vec<String>> {
    let wanted: Vec<bool> = patterns.iter().map(wanted).collect();
    let mut found = search(patterns, "", &|number| wanted[number])?;
    let is_example = |text: &String| {
        patterns
            .iter()
            .zip(&wanted)
            .any(|(pattern, wanted)| *wanted && matches_pattern(pattern, text))
    };
    found.retain(is_example);
    Some(found)
}

fn matches_pattern((pattern, ignores_case): &Pattern, text: &str) -> bool {
    if *ignores_case {
        wildcard::matches_folded(pattern, text)
    } else {
        wildcard::matches(pattern, text)
    }
}

/// Does the same as [`of`] for texts that begin with `beginning`.
pub(super) fn after(patterns: &[Pattern], beginning: &str) -> Option<Vec<String>> {
    search(patterns, beginning, &|_| true)
}

/// Searches breadth-first, and only while a pattern whose number is `alive` can still match.
fn search(
    patterns: &[Pattern],
    beginning: &str,
    alive: &dyn Fn(usize) -> bool,
) -> Option<Vec<String>> {
    let machine = Machine::new(patterns);
    let start = beginning
        .chars()
        .fold(machine.start.clone(), |state, letter| {
            machine.step(&state, slash(letter))
        });
    let mut found: BTreeMap<Vec<usize>, String> = BTreeMap::new();
    let mut seen = HashSet::from([start.clone()]);
    let mut ahead = VecDeque::from([(start, beginning.to_owned())]);
    let mut positions = 0;
    while let Some((state, text)) = ahead.pop_front() {
        found
            .entry(machine.matched(&state))
            .or_insert_with(|| text.clone());
        for letter in machine.letters(&state) {
            let next = machine.step(&state, letter);
            positions += state.len() + 1;
            if seen.len() > MAX_STATES || positions > MAX_POSITIONS {
                return None;
            }
            let open =
                next.is_empty() || next.iter().any(|position| alive(machine.owners[*position]));
            if open && seen.insert(next.clone()) {
                ahead.push_back((next, format!("{text}{letter}")));
            }
        }
    }
    Some(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(patterns: &[&str]) -> Vec<Pattern> {
        patterns
            .iter()
            .map(|pattern| ((*pattern).to_owned(), false))
            .collect()
    }

    #[test]
    fn every_combination_of_patterns_has_an_example() {
        let table: [(&[&str], usize); 6] = [
            (&["*"], 1),
            (&["bash", "ba?h"], 3),
            (&["a*", "*b"], 4),
            (&["git push *", "git *"], 3),
            (&["*.env", "*.env.*", "*.env.example"], 5),
            (&[], 1),
        ];
        for (patterns, ways) in table {
            let found = of(&exact(patterns)).unwrap();
            assert_eq!(found.len(), ways, "{patterns:?}: {found:?}");
        }
        let folded = of(&[("rm".into(), true), ("rm".into(), false)]).unwrap();
        assert_eq!(folded.len(), 3, "{folded:?}");
        assert_eq!(
            after(&exact(&["https://a/*", "*b"]), "https://a/")
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn too_many_combinations_give_none() {
        let patterns: Vec<String> = ('a'..='p').map(|c| format!("*{c}{c}{c}*")).collect();
        let patterns: Vec<Pattern> = patterns
            .into_iter()
            .map(|pattern| (pattern, false))
            .collect();
        assert!(of(&patterns).is_none());
    }

    #[test]
    fn every_variant_of_a_folded_letter_is_tried() {
        let is_tried = |c: char| {
            let machine = Machine::new(&[(fold(c).to_string(), true)]);
            machine.letters(&machine.start).contains(&c)
        };
        let missed: Vec<char> = ('\0'..=char::MAX)
            .filter(|c| fold(*c) != *c && *c != '\\' && !is_tried(*c))
            .collect();
        assert!(missed.is_empty(), "{missed:?}");
    }

    /// The combination of patterns that a random text matches has an example.
    #[test]
    fn random_texts_match_no_new_combination() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let letters = |random: &mut fastrand::Rng, of: &str, most: usize| -> String {
                let of: Vec<char> = of.chars().collect();
                (0..random.usize(..=most))
                    .map(|_| of[random.usize(..of.len())])
                    .collect()
            };
            let patterns: Vec<Pattern> = (0..random.usize(1..5))
                .map(|_| (letters(&mut random, "aAb** ?/", 6), random.bool()))
                .collect();
            let matched = |text: &str| -> Vec<bool> {
                patterns
                    .iter()
                    .map(|pattern| matches_pattern(pattern, text))
                    .collect()
            };
            let known: HashSet<Vec<bool>> = of(&patterns)
                .unwrap()
                .iter()
                .map(|text| matched(text))
                .collect();
            for _ in 0..50 {
                let text = letters(&mut random, "aAbBc /\\*?", 7);
                assert!(known.contains(&matched(&text)), "{patterns:?} on {text:?}");
            }
        }
    }
}
