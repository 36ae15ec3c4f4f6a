//! Titles taken from a prompt, used until the title agent has answered. Pure.

use base::text::mark::without_notes;

/// The maximum length of a title, in characters.
const MAX_TITLE_CHARS: usize = 50;

/// Returns a title taken from a prompt: its first line of text, without Markdown marks at the
/// beginning and without `.`, `,`, `;` and `:` at the end. The first letter is upper-case unless the
/// first word is a name from code, such as a path. A line of more than 50 characters is cut and ends
/// with `…`. Empty if the prompt has no word.
pub(super) fn fallback_title(prompt: &str) -> String {
    let prompt = without_notes(prompt);
    let plain: String = subject_line(&prompt)
        .chars()
        .filter(|c| c.is_whitespace() || !c.is_control())
        .collect();
    let words: Vec<&str> = plain
        .split_whitespace()
        .skip_while(|word| is_block_mark(word))
        .collect();
    let text = words.join(" ");
    let ends = ['.', ',', ';', ':'];
    let mut title = base::text::cut_chars(&text, MAX_TITLE_CHARS);
    // A cut word is left out, but not a long one, without which little would be left.
    if title != text
        && let Some((words, _)) = title.rsplit_once(' ')
        && words.chars().count() >= MAX_TITLE_CHARS / 2
    {
        title = format!("{}…", words.trim_end_matches(ends));
    }
    let last = title.rsplit(' ').next().unwrap_or_default();
    // In "list ." the full stop is a word.
    let title = if last.trim_matches(ends).is_empty() {
        title.as_str()
    } else {
        title.trim_end_matches(ends)
    };
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

/// True if a word at the beginning of a line marks a heading, a quotation or an item of a list.
fn is_block_mark(word: &str) -> bool {
    matches!(word, "-" | "*" | "+" | ">") || word.trim_matches('#').is_empty()
}

/// Returns the first line with a letter or digit outside of code fences, or else inside of one.
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
            ("where are session ids made?", "Where are session ids made?"),
            (
                "Please, could you fix the bug!",
                "Please, could you fix the bug!",
            ),
            (
                "fix the **parser** in `src/a.rs`?",
                "Fix the **parser** in `src/a.rs`?",
            ),
            (
                "explain @src/main.rs:10-40, then",
                "Explain @src/main.rs:10-40, then",
            ),
            ("@src/lib.rs is long", "@src/lib.rs is long"),
            ("#12 is not fixed by #34", "#12 is not fixed by #34"),
            ("what is Vec<[u8; 4]>", "What is Vec<[u8; 4]>"),
            ("say \"hello\" twice", "Say \"hello\" twice"),
            ("/etc/hosts is wrong", "/etc/hosts is wrong"),
            ("list .", "List ."),
            ("see below:", "See below"),
            ("--help prints nothing", "--help prints nothing"),
            ("## Plan\n\nbuild it", "Plan"),
            ("> - a quoted item", "A quoted item"),
            ("tabs\tand\u{1b}[31m colour", "Tabs and[31m colour"),
            ("\n\n```rust\nfn a() {}\n```\nexplain this", "Explain this"),
            ("```\nfn main() {}\n```", "Fn main() {}"),
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("", ""),
            ("   \n***\n", ""),
            ("<system-reminder>plan</system-reminder>hello", "Hello"),
            ("src/main.rs is long", "src/main.rs is long"),
            ("étude", "Étude"),
            ("what's new", "What's new"),
            (
                "why does the permission question not appear in the editor when a subagent runs",
                "Why does the permission question not appear in…",
            ),
            (
                "fix https://example.com/a/very/long/path/of/a/page?abc=def and mention it",
                "Fix https://example.com/a/very/long/path/of/a/pag…",
            ),
            (
                "Refactor src/components/dashboard/widgets/VeryLongComponentName.tsx to use hooks",
                "Refactor src/components/dashboard/widgets/VeryLon…",
            ),
            (
                "mend the cache of src/app/views/main.rs, please; it is slow",
                "Mend the cache of src/app/views/main.rs, please…",
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
