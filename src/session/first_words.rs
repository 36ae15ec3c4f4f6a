//! A title out of a prompt's own words.

use crate::text::mark::without_notes;

/// Words that a title which was cut does not end in.
const LITTLE: &str = "a all also am an and any are as at be been both but by can did do does each few for from had has \
    have he her him his how i if in into is it its just let like me more most much must my no nor not now of off on \
    once one only onto or our out over own same say see she show so some such than that the them then they this to too \
    up upon us very via was we were what when who whom why will with yet you your";

/// The longest title, in characters.
const LONGEST_TITLE: usize = 50;

/// How a request may begin without saying anything.
const POLITE: &[&str] = &[
    "please ",
    "can you ",
    "could you ",
    "would you ",
    "i want you to ",
    "i'd like you to ",
    "i would like to ",
    "i want to ",
    "help me to ",
    "help me ",
    "let's ",
    "hey ",
    "hi ",
    "hello ",
    "hi, ",
    "hello, ",
    "hey, ",
    "ok ",
    "now ",
    "so ",
];

/// A title from a prompt's own words: at most 50 characters, one line, no Markdown; empty
/// when there is no word in it. Pure.
pub(super) fn first_words(prompt: &str) -> String {
    let prompt = without_notes(prompt);
    let mut fence = false;
    let mut line = "";
    for candidate in prompt.lines() {
        if candidate.trim_start().starts_with("```") {
            fence = !fence;
        } else if !fence && candidate.chars().any(char::is_alphanumeric) {
            line = candidate;
            break;
        }
    }
    let plain: String = line.chars().filter(|c| !"`*\"#<>[]".contains(*c) && !c.is_control()).collect();
    let mut text = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    text = text.trim_start_matches(['-', '>', ' ', '/', '@']).to_owned();
    while let Some(rest) = POLITE.iter().find_map(|start| {
        let head = text.get(..start.len())?;
        (head.eq_ignore_ascii_case(start) && text.len() > start.len())
            .then(|| text[start.len()..].trim_start().to_owned())
    }) {
        text = rest;
    }
    let sentence = text.find(". ").filter(|at| *at >= 8).map_or(text.as_str(), |at| &text[..at]);
    let mut title = String::new();
    for word in sentence.split(' ') {
        let more = if title.is_empty() { 0 } else { 1 };
        if title.chars().count() + more + word.chars().count() > LONGEST_TITLE {
            break;
        }
        if more == 1 {
            title.push(' ');
        }
        title.push_str(word);
    }
    if title.is_empty() {
        title = crate::text::cut_chars(sentence, LONGEST_TITLE);
    }
    let cut = title.len() < sentence.len();
    let title = title.trim_end_matches(['.', ',', ';', ':', '?', '!', ' ', '-']);
    // A title that was cut should not end in "the".
    let mut words: Vec<&str> = title.split(' ').collect();
    while cut
        && words.len() > 2
        && words
            .last()
            .is_some_and(|word| word.len() <= 4 && LITTLE.split(' ').any(|little| word.eq_ignore_ascii_case(little)))
    {
        words.pop();
    }
    let title = words.join(" ");
    let mut chars = title.chars();
    match chars.next() {
        Some(first) if title.chars().any(char::is_alphanumeric) => {
            let mut raised: String = first.to_uppercase().collect();
            // A name in code keeps its spelling.
            let first_word = title.split(' ').next().unwrap_or_default();
            let is_name =
                first_word.contains(['_', '.', '/', ':']) || first_word.chars().skip(1).any(char::is_uppercase);
            if is_name || raised.chars().count() != 1 {
                raised = first.to_string();
            }
            raised.push_str(chars.as_str());
            raised
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prompt_gives_its_first_words() {
        let table = [
            ("where are session ids made?", "Where are session ids made"),
            ("Please, could you fix the bug?", "Please, could you fix the bug"),
            ("please can you fix the **parser** in `src/a.rs`?", "Fix the parser in src/a.rs"),
            ("\n\n```rust\nfn a() {}\n```\nexplain this", "Explain this"),
            ("", ""),
            ("   \n***\n", ""),
            ("<system-reminder>plan</system-reminder>hello", "Hello"),
            ("src/main.rs", "src/main.rs"),
            ("Fix it. And then something else entirely.", "Fix it. And then something else entirely"),
            ("Rework the store. And then something else.", "Rework the store"),
            (
                "why does the permission question not appear in the editor when a subagent runs",
                "Why does the permission question not appear",
            ),
        ];
        for (prompt, expected) in table {
            assert_eq!(first_words(prompt), expected, "{prompt}");
        }
        assert_eq!(first_words(&"x".repeat(200)).chars().count(), 50);
    }

    proptest! {
        #[test]
        fn any_title_is_short(prompt in any::<String>()) {
            let title = first_words(&prompt);
            prop_assert!(title.chars().count() <= LONGEST_TITLE && !title.contains('\n'), "{title}");
        }
    }
}
