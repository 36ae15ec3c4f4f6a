//! Titles taken from a prompt.

use base::text::mark::without_notes;

/// The maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 50;

/// Returns a title taken from a prompt: the beginning of its first line of text, at most 50
/// characters, without Markdown; empty if the prompt has no word. Pure.
pub(super) fn fallback_title(prompt: &str) -> String {
    let prompt = without_notes(prompt);
    let plain: String = subject_line(&prompt)
        .chars()
        .filter(|c| !"`*\"#<>[]".contains(*c) && !c.is_control())
        .collect();
    let text = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.trim_start_matches(['-', ' ', '/', '@']);
    let mut title = base::text::cut_chars(text, MAX_TITLE_CHARS);
    if title != text
        && let Some((words, _)) = title.rsplit_once(' ')
    {
        title.truncate(words.len());
    }
    let title = title.trim_end_matches(['.', ',', ';', ':', '?', '!', ' ', '-']);
    let first = title.split(' ').next().unwrap_or_default();
    let is_name =
        first.contains(['_', '.', '/', ':']) || first.chars().skip(1).any(char::is_uppercase);
    let mut chars = title.chars();
    let raised: String = chars
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    // A name from code keeps its spelling.
    if is_name || raised.chars().count() != 1 {
        return title.to_owned();
    }
    raised + chars.as_str()
}

/// Returns the first line of text outside of code fences, or else the first line of code.
fn subject_line(prompt: &str) -> &str {
    let mut is_code = false;
    let mut code = "";
    for line in prompt.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if line.chars().any(char::is_alphanumeric) {
            if !is_code {
                return line;
            }
            if code.is_empty() {
                code = line;
            }
        }
    }
    code
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
                "fix the **parser** in `src/a.rs`?",
                "Fix the parser in src/a.rs",
            ),
            ("\n\n```rust\nfn a() {}\n```\nexplain this", "Explain this"),
            ("```\nfn main() {}\n```", "Fn main() {}"),
            ("{\"a\": 1}", "{a: 1}"),
            ("", ""),
            ("   \n***\n", ""),
            ("<system-reminder>plan</system-reminder>hello", "Hello"),
            ("src/main.rs is long", "src/main.rs is long"),
            ("étude", "Étude"),
            ("what's new", "What's new"),
            (
                "why does the permission question not appear in the editor when a subagent runs",
                "Why does the permission question not appear in",
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
