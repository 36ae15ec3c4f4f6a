//! A title out of a prompt's own words.

use base::text::mark::without_notes;

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
    let line = says(&prompt);
    let in_code = is_code(line);
    // What Markdown adds to words is part of code.
    let signs = if in_code { "`" } else { "`*\"#<>[]" };
    let plain: String = line.chars().filter(|c| !signs.contains(*c) && !c.is_control()).collect();
    let mut text = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    if !in_code {
        text = bare(&text);
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
        title = base::text::cut_chars(sentence, LONGEST_TITLE);
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
    if in_code {
        return title;
    }
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

/// The line that says what a prompt is about: the first in words, outside of fences; else the first of code.
fn says(prompt: &str) -> &str {
    let mut fence = false;
    let mut code = "";
    for line in prompt.lines() {
        if line.trim_start().starts_with("```") {
            fence = !fence;
        } else if !fence && line.chars().any(char::is_alphanumeric) {
            if !is_code(line) {
                return line;
            }
            if code.is_empty() {
                code = line;
            }
        }
    }
    code
}

/// Without marks of lists and commands, and what only greets or asks.
fn bare(text: &str) -> String {
    let mut text = text.trim_start_matches(['-', '>', ' ', '/', '@']);
    while let Some(rest) = POLITE.iter().find_map(|start| {
        let head = text.get(..start.len())?;
        (head.eq_ignore_ascii_case(start) && text.len() > start.len()).then(|| text[start.len()..].trim_start())
    }) {
        text = rest;
    }
    text.to_owned()
}

/// Whether a line was pasted out of a program rather than written to somebody.
fn is_code(line: &str) -> bool {
    let line = line.trim();
    // `name(` or `name.name(`, before any blank, is a call.
    let first = line.split_whitespace().next().unwrap_or_default();
    let called = first
        .split_once('(')
        .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.:!".contains(c)));
    let starts = ["#include ", "#!", "#[", "//", "/*", "@@ ", "$ ", "{", "}", "</", "<?", "def ", "fn ", "pub fn "];
    line.ends_with([';', '{', '}'])
        || line.ends_with("=>")
        || called
        || line.split_whitespace().take(4).skip(1).any(|word| ["=", "==", ":=", "+=", "->", "=>"].contains(&word))
        || starts.iter().any(|start| line.starts_with(start))
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
            ("fn main() { println!(); }\nwhy does this not print?", "Why does this not print"),
            ("fn main() { println!(); }", "fn main() { println!(); }"),
            ("let x = \"a\";\n", "let x = \"a\""),
            ("x = foo(bar);\nwhat is bar?", "What is bar"),
            ("print(\"hello\")", "print(\"hello\")"),
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("$ cargo test\nfails here", "Fails here"),
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
