//! The nearest of some words, for suggestions.

/// The nearest of some words: at most a third of the letters differ, upper and lower case and
/// `-`, `_` are the same.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| -> String {
        text.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).take(64).collect()
    };
    let word = plain(word);
    let length = word.chars().count();
    // Every letter is near every other.
    let allowed = if length < 2 { 0 } else { (length / 3).max(1) };
    let near = known.into_iter().filter_map(|candidate| {
        let plain = plain(candidate);
        let possible = plain.chars().count().abs_diff(length) <= allowed;
        possible.then(|| (strsim::osa_distance(&word, &plain), candidate))
    });
    near.filter(|(distance, _)| *distance <= allowed).min_by_key(|(distance, _)| *distance).map(|(_, near)| near)
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
