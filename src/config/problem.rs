//! Something in a file that is not as it should be, told so that it can be put right.

use std::fmt;

use super::node::Place;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing: a key that does nothing here.
    Note,
    /// An old spelling that still works.
    Deprecated,
    /// It is used, but probably not as meant.
    Warning,
    /// It is not used; the rest is.
    Error,
}

impl Severity {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Deprecated => "deprecated",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// The way of keys to it, joined by dots; empty for the file as a whole.
    pub key: String,
    /// What was expected and what was found, without a full stop.
    pub message: String,
    /// What to do: mostly the nearest thing that exists. Without a full stop.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem at a place.
    pub fn new(severity: Severity, place: &Place, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity, place: place.clone(), key: key.into(), message: message.into(), hint: None }
    }

    /// An error at a place.
    pub fn error(place: &Place, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, place, key, message)
    }

    /// A warning at a place.
    pub fn warning(place: &Place, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, place, key, message)
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Suggests the nearest of some words, where one is near.
    #[must_use]
    pub fn nearest<'a>(mut self, word: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        if let Some(near) = nearest(word, known) {
            self.hint = Some(format!("did you mean \"{near}\"?"));
        }
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

/// The nearest of some words: at most a third of the letters differ, upper and lower case and
/// `-`, `_` are the same.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).take(64).collect()
    };
    let word = plain(word);
    let allowed = (word.len() / 3).max(1);
    let near = known.into_iter().map(|candidate| (distance(&word, &plain(candidate)), candidate));
    near.filter(|(distance, _)| *distance <= allowed).min_by_key(|(distance, _)| *distance).map(|(_, near)| near)
}

/// Letters to be added, dropped, changed or swapped with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_word() {
        let known = ["permission", "small_model", "default_agent", "mcp", "temperature"];
        let table = [
            ("permissions", Some("permission")),
            ("premission", Some("permission")),
            ("smallModel", Some("small_model")),
            ("defaultAgent", Some("default_agent")),
            ("mpc", Some("mcp")),
            ("temprature", Some("temperature")),
            ("colour", None),
            ("", None),
        ];
        for (word, expected) in table {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}
