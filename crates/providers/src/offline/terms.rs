//! The search terms of a question, and their recognition in code: the question has "sessions", the
//! code `SessionId` or `session_id`.

use std::collections::BTreeSet;

use super::code::{CodeLine, words};

/// Words without a meaning of their own in a question about code.
const STOPWORDS: &str = include_str!("stopwords.txt");
/// Synonyms of programmers, and irregular forms, one group per line.
const SYNONYMS: &str = include_str!("synonyms.txt");

/// Whether a word has no meaning of its own.
pub(super) fn is_stopword(word: &str) -> bool {
    word.len() < 2
        || STOPWORDS
            .split_whitespace()
            .any(|stopword| stopword == word)
}

#[derive(Debug, Clone)]
struct Term {
    /// The text that the user wrote.
    shown: String,
    /// The word's stem, then those of its synonyms; for an identifier, the identifier itself.
    stems: Vec<String>,
    is_name: bool,
    weight: f64,
}

/// The search terms of a question.
#[derive(Debug, Clone)]
pub(super) struct Terms(Vec<Term>);

impl Terms {
    pub(super) fn of(names: &[String], words: &[String]) -> Self {
        let name = |name: &String| (name.clone(), vec![name.clone()], true);
        let word = |word: &String| {
            let own = stem(word);
            let synonyms = SYNONYMS
                .lines()
                .filter(|group| group.split_whitespace().any(|other| stem(other) == own));
            let synonyms = synonyms
                .flat_map(str::split_whitespace)
                .map(stem)
                .filter(|other| *other != own);
            (
                word.clone(),
                [own.clone()].into_iter().chain(synonyms).collect(),
                false,
            )
        };
        // More words make a search vaguer, not more precise.
        let all = names.iter().map(name).chain(words.iter().map(word)).take(6);
        Self(
            all.map(|(shown, stems, is_name)| Term {
                shown,
                stems,
                is_name,
                weight: 1.0,
            })
            .collect(),
        )
    }

    /// Lists the terms for display: "`a`, `b`".
    pub(super) fn listed(&self) -> String {
        self.0
            .iter()
            .map(|term| format!("`{}`", term.shown))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Returns a regular expression for each term.
    pub(super) fn patterns(&self) -> Vec<String> {
        let one = |stem: &String| match stem.strip_suffix('y') {
            Some(rest) => format!("{rest}[yi]"),
            None if stem.len() < 4 => format!(r"(?:\b|_){stem}"),
            None => stem.clone(),
        };
        self.0
            .iter()
            .map(|term| {
                format!(
                    "(?:{})",
                    term.stems.iter().map(one).collect::<Vec<_>>().join("|")
                )
            })
            .collect()
    }

    /// Returns a pattern for two of the terms with `between` between them, or for the only term.
    pub(super) fn pairs(&self, between: &str) -> String {
        let patterns = self.patterns();
        let pairs = |one| {
            patterns
                .iter()
                .filter(move |other| *other != one)
                .map(move |other| format!("{one}{between}{other}"))
        };
        let pairs: Vec<String> = patterns.iter().flat_map(pairs).collect();
        if pairs.is_empty() {
            patterns.concat()
        } else {
            pairs.join("|")
        }
    }

    /// Rates the presence of each term in a text: 1 for the word itself, less for a synonym.
    pub(super) fn found(&self, text: &str) -> Vec<f64> {
        let words: Vec<String> = words(text).iter().map(|word| stem(word)).collect();
        let fits = |stem: &String| {
            words
                .iter()
                .any(|word| word == stem || (stem.len() > 4 && word.starts_with(stem)))
        };
        let one = |term: &Term| {
            if term.is_name {
                f64::from(u8::from(text.contains(&term.stems[0])))
            } else if fits(&term.stems[0]) {
                1.0
            } else if term.stems.iter().skip(1).any(fits) {
                0.5
            } else {
                0.0
            }
        };
        self.0.iter().map(one).collect()
    }

    /// Returns the weighted sum of the ratings.
    pub(super) fn sum(&self, found: &[f64]) -> f64 {
        self.0
            .iter()
            .zip(found)
            .map(|(term, found)| term.weight * found)
            .sum()
    }

    /// Sets the weights: rare terms count for more than common ones.
    pub(super) fn weigh(&mut self, lines: &BTreeSet<CodeLine>) {
        let found: Vec<Vec<f64>> = lines.iter().map(|line| self.found(&line.text)).collect();
        for (at, term) in self.0.iter_mut().enumerate() {
            let count: f64 = found.iter().filter_map(|found| found.get(at)).sum();
            term.weight = (1.0 + (lines.len() as f64 + 1.0) / (count + 1.0))
                .ln()
                .clamp(0.4, 3.0);
        }
    }
}

/// Returns the common part of the forms of an English word. It is not always a word.
fn stem(word: &str) -> String {
    let mut word = word.to_lowercase();
    if let Some(start) = word
        .strip_suffix("ies")
        .or_else(|| word.strip_suffix("ied"))
        .filter(|start| start.len() > 1)
    {
        return format!("{start}y");
    }
    if word.len() > 3
        && word.ends_with('s')
        && !["ss", "us", "is"].iter().any(|end| word.ends_with(end))
    {
        word.pop();
    }
    let endings = [
        ("ations", 4),
        ("ation", 4),
        ("ing", 3),
        ("ed", 3),
        ("er", 4),
        ("ment", 4),
        ("ion", 4),
    ];
    let cut = endings
        .iter()
        .find_map(|(end, least)| word.strip_suffix(end).filter(|start| start.len() >= *least));
    let word = cut.unwrap_or(&word);
    word.strip_suffix('e')
        .filter(|start| start.len() > 2)
        .unwrap_or(word)
        .to_owned()
}
