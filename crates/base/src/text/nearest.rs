//! The most similar of some words, for suggestions.

/// Returns the most similar of some words, if at most a third of its characters differ. Case, `-`
/// and `_` are ignored.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = normalized(word);
    let length = word.chars().count();
    // A single letter would be similar to every other one.
    let allowed = if length < 2 { 0 } else { (length / 3).max(1) };
    let near = known.into_iter().filter_map(|candidate| {
        let candidate_word = normalized(candidate);
        let is_possible = candidate_word.chars().count().abs_diff(length) <= allowed;
        is_possible.then(|| (strsim::osa_distance(&word, &candidate_word), candidate))
    });
    near.filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, near)| near)
}

/// Returns the characters that are compared, at most 64, which bounds the time of a comparison.
fn normalized(text: &str) -> String {
    text.chars()
        .filter(|c| !matches!(c, '-' | '_'))
        .flat_map(char::to_lowercase)
        .take(64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn nearest_word_differs_in_at_most_a_third() {
        let known = [
            "permission",
            "small_model",
            "default_agent",
            "mcp",
            "temperature",
        ];
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
