//! The words of a question that are worth searching for, and how to recognise them in code: a question says
//! "sessions", the code says `SessionId` or `session_id`.

use std::collections::BTreeSet;

use super::code::{CodeLine, words};

/// Words that carry no meaning of their own in a question about code.
const VAGUE: &str = include_str!("vague.txt");
/// Words that programmers use for one another, and forms that no ending tells, one group a line.
const KIN: &str = include_str!("kin.txt");

/// Whether a word carries no meaning of its own.
pub(super) fn is_vague(word: &str) -> bool {
    word.len() < 2 || VAGUE.split_whitespace().any(|vague| vague == word)
}

#[derive(Debug, Clone)]
struct Term {
    /// As the user wrote it.
    shown: String,
    /// Its stem, then those of its kin; an identifier itself.
    stems: Vec<String>,
    is_name: bool,
    weight: f64,
}

/// What a question is about.
#[derive(Debug, Clone)]
pub(super) struct Terms(Vec<Term>);

impl Terms {
    pub(super) fn of(names: &[String], words: &[String]) -> Self {
        let name = |name: &String| (name.clone(), vec![name.clone()], true);
        let word = |word: &String| {
            let own = stem(word);
            let kin = KIN.lines().filter(|kin| kin.split_whitespace().any(|kin| stem(kin) == own));
            let kin = kin.flat_map(str::split_whitespace).map(stem).filter(|kin| *kin != own);
            (word.clone(), [own.clone()].into_iter().chain(kin).collect(), false)
        };
        // More words make a search vague, not precise.
        let all = names.iter().map(name).chain(words.iter().map(word)).take(6);
        Self(all.map(|(shown, stems, is_name)| Term { shown, stems, is_name, weight: 1.0 }).collect())
    }

    /// "`a`, `b`", for people.
    pub(super) fn listed(&self) -> String {
        self.0.iter().map(|term| format!("`{}`", term.shown)).collect::<Vec<_>>().join(", ")
    }

    /// A regular expression for each.
    pub(super) fn patterns(&self) -> Vec<String> {
        let one = |stem: &String| match stem.strip_suffix('y') {
            Some(rest) => format!("{rest}[yi]"),
            None if stem.len() < 4 => format!(r"(?:\b|_){stem}"),
            None => stem.clone(),
        };
        self.0.iter().map(|term| format!("(?:{})", term.stems.iter().map(one).collect::<Vec<_>>().join("|"))).collect()
    }

    /// A pattern for two of them with `between` between them; for the one there is.
    pub(super) fn pairs(&self, between: &str) -> String {
        let patterns = self.patterns();
        let pairs =
            |one| patterns.iter().filter(move |other| *other != one).map(move |other| format!("{one}{between}{other}"));
        let pairs: Vec<String> = patterns.iter().flat_map(pairs).collect();
        if pairs.is_empty() { patterns.concat() } else { pairs.join("|") }
    }

    /// How much of them is in a text, by term: 1 for the word itself, less for its kin.
    pub(super) fn found(&self, text: &str) -> Vec<f64> {
        let words: Vec<String> = words(text).iter().map(|word| stem(word)).collect();
        let fits = |stem: &String| words.iter().any(|word| word == stem || (stem.len() > 4 && word.starts_with(stem)));
        let one = |term: &Term| match () {
            () if term.is_name => f64::from(u8::from(text.contains(&term.stems[0]))),
            () if fits(&term.stems[0]) => 1.0,
            () if term.stems.iter().skip(1).any(fits) => 0.5,
            () => 0.0,
        };
        self.0.iter().map(one).collect()
    }

    /// What a find is worth.
    pub(super) fn sum(&self, found: &[f64]) -> f64 {
        self.0.iter().zip(found).map(|(term, found)| term.weight * found).sum()
    }

    /// The rare ones count for more than the common ones.
    pub(super) fn weigh(&mut self, lines: &BTreeSet<CodeLine>) {
        let found: Vec<Vec<f64>> = lines.iter().map(|line| self.found(&line.text)).collect();
        for (at, term) in self.0.iter_mut().enumerate() {
            let count: f64 = found.iter().filter_map(|found| found.get(at)).sum();
            term.weight = (1.0 + (lines.len() as f64 + 1.0) / (count + 1.0)).ln().clamp(0.4, 3.0);
        }
    }
}

/// What the forms of an English word have in common. It is not always a word.
fn stem(word: &str) -> String {
    let mut word = word.to_lowercase();
    if let Some(start) = word.strip_suffix("ies").or_else(|| word.strip_suffix("ied")).filter(|start| start.len() > 1) {
        return format!("{start}y");
    }
    if word.len() > 3 && word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end)) {
        word.pop();
    }
    let endings = [("ations", 4), ("ation", 4), ("ing", 3), ("ed", 3), ("er", 4), ("ment", 4), ("ion", 4)];
    let cut = endings.iter().find_map(|(end, least)| word.strip_suffix(end).filter(|start| start.len() >= *least));
    let word = cut.unwrap_or(&word);
    word.strip_suffix('e').filter(|start| start.len() > 2).unwrap_or(word).to_owned()
}
