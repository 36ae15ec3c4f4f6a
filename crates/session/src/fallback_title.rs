//! Titles taken from a prompt.

use base::text::mark::without_notes;

/// Words that a shortened title must not end with.
const FUNCTION_WORDS: &str = "a all also am an and any are as at be been both but by can did do does each few for from had has \
    have he her him his how i if in into is it its just let like me more most much must my no nor not now of off on \
    once one only onto or our out over own same say see she show so some such than that the them then they this to too \
    up upon us very via was we were what when who whom why will with yet you your";

/// The maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 50;

/// Beginnings of a request that carry no information.
const POLITE_BEGINNINGS: &[&str] = &[
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

/// Returns a title taken from a prompt: at most 50 characters, one line, no Markdown; empty if the
/// prompt has no word. Pure.
pub(super) fn fallback_title(prompt: &str) -> String {
    let prompt = without_notes(prompt);
    let line = subject_line(&prompt);
    let in_code = is_code(line);
    // In code, the other characters of Markdown have a meaning.
    let signs = if in_code { "`" } else { "`*\"#<>[]" };
    let plain: String = line
        .chars()
        .filter(|c| !signs.contains(*c) && !c.is_control())
        .collect();
    let mut text = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    if !in_code {
        text = bare(&text);
    }
    let sentence = text
        .find(". ")
        .filter(|at| *at >= 8)
        .map_or(text.as_str(), |at| &text[..at]);
    let mut title = String::new();
    for word in sentence.split(' ') {
        let more = if title.is_empty() { 0 } else { 1 };
        if title.chars().count() + more + word.chars().count() > MAX_TITLE_CHARS {
            break;
        }
        if more == 1 {
            title.push(' ');
        }
        title.push_str(word);
    }
    if title.is_empty() {
        title = base::text::cut_chars(sentence, MAX_TITLE_CHARS);
    }
    let cut = title.len() < sentence.len();
    let title = title.trim_end_matches(['.', ',', ';', ':', '?', '!', ' ', '-']);
    // A shortened title should not end in "the".
    let mut words: Vec<&str> = title.split(' ').collect();
    while cut
        && words.len() > 2
        && words.last().is_some_and(|word| {
            word.len() <= 4
                && FUNCTION_WORDS
                    .split(' ')
                    .any(|little| word.eq_ignore_ascii_case(little))
        })
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
            // A name from code keeps its spelling.
            let first_word = title.split(' ').next().unwrap_or_default();
            let is_name = first_word.contains(['_', '.', '/', ':'])
                || first_word.chars().skip(1).any(char::is_uppercase);
            if is_name || raised.chars().count() != 1 {
                raised = first.to_string();
            }
            raised.push_str(chars.as_str());
            raised
        }
        _ => String::new(),
    }
}

/// Returns the line that states the subject of a prompt: the first line of prose outside of code
/// fences, or else the first line of code.
fn subject_line(prompt: &str) -> &str {
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

/// Removes the marks of lists and commands, and polite beginnings.
fn bare(text: &str) -> String {
    let mut text = text.trim_start_matches(['-', '>', ' ', '/', '@']);
    while let Some(rest) = POLITE_BEGINNINGS.iter().find_map(|start| {
        let head = text.get(..start.len())?;
        (head.eq_ignore_ascii_case(start) && text.len() > start.len())
            .then(|| text[start.len()..].trim_start())
    }) {
        text = rest;
    }
    text.to_owned()
}

/// Whether a line looks like code or program output rather than prose.
fn is_code(line: &str) -> bool {
    let line = line.trim();
    // `name(` or `name.name(` before any blank is a function call.
    let first = line.split_whitespace().next().unwrap_or_default();
    let called = first.split_once('(').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || "_.:!".contains(c))
    });
    let starts = [
        "#include ",
        "#!",
        "#[",
        "//",
        "/*",
        "@@ ",
        "$ ",
        "{",
        "}",
        "</",
        "<?",
        "def ",
        "fn ",
        "pub fn ",
    ];
    line.ends_with([';', '{', '}'])
        || line.ends_with("=>")
        || called
        || line
            .split_whitespace()
            .take(4)
            .skip(1)
            .any(|word| ["=", "==", ":=", "+=", "->", "=>"].contains(&word))
        || starts.iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prompt_gives_expected_title() {
        let table = [
            ("where are session ids made?", "Where are session ids made"),
            (
                "Please, could you fix the bug?",
                "Please, could you fix the bug",
            ),
            (
                "please can you fix the **parser** in `src/a.rs`?",
                "Fix the parser in src/a.rs",
            ),
            ("\n\n```rust\nfn a() {}\n```\nexplain this", "Explain this"),
            (
                "fn main() { println!(); }\nwhy does this not print?",
                "Why does this not print",
            ),
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
            (
                "Fix it. And then something else entirely.",
                "Fix it. And then something else entirely",
            ),
            (
                "Rework the store. And then something else.",
                "Rework the store",
            ),
            (
                "why does the permission question not appear in the editor when a subagent runs",
                "Why does the permission question not appear",
            ),
        ];
        for (prompt, expected) in table {
            assert_eq!(fallback_title(prompt), expected, "{prompt}");
        }
        assert_eq!(fallback_title(&"x".repeat(200)).chars().count(), 50);
    }

    proptest! {
        #[test]
        fn any_title_is_short(prompt in any::<String>()) {
            let title = fallback_title(&prompt);
                        prop_assert!(title.chars().count() <= MAX_TITLE_CHARS && !title.contains('\n'), "{title}");
        }
    }
}
