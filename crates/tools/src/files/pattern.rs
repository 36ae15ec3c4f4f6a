//! Compiles regular expressions of the model within limits, and explains invalid ones.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use crate::Failure;
use base::text;

/// The maximum memory of a compiled pattern, in bytes.
const MAX_PATTERN_MEMORY_BYTES: usize = 10 << 20;

/// The requested way of matching.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MatchOptions {
    pub(crate) ignore_case: bool,
    /// True if only whole words match.
    pub(crate) word: bool,
    /// True if a match may span lines.
    pub(crate) multiline: bool,
}

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct SearchPattern {
    pub(crate) matcher: RegexMatcher,
    /// True if it is matched across lines, by request or because it contains a line break.
    pub(crate) multiline: bool,
}

impl SearchPattern {
    /// Compiles a pattern to be matched line by line, or across lines if that is requested or the
    /// pattern contains a line break. `name` is the argument's name in messages.
    ///
    /// # Errors
    /// A message for the model with the pattern and its mistake.
    pub(crate) fn new(name: &str, written: &str, style: MatchOptions) -> Result<Self, Failure> {
        let mut builder = RegexMatcherBuilder::new();
        builder
            .size_limit(MAX_PATTERN_MEMORY_BYTES)
            .dfa_size_limit(MAX_PATTERN_MEMORY_BYTES)
            .multi_line(true);
        builder.case_insensitive(style.ignore_case).word(style.word);
        if !style.multiline
            && let Ok(matcher) = builder.line_terminator(Some(b'\n')).build(written)
        {
            return Ok(Self {
                matcher,
                multiline: false,
            });
        }
        // In a search across lines, a dot should match line breaks too.
        let matcher = builder
            .line_terminator(None)
            .dot_matches_new_line(style.multiline)
            .build(written);
        let matcher = matcher
            .map_err(|e| Failure::ForModel(invalid_pattern(name, written, &e.to_string())))?;
        Ok(Self {
            matcher,
            multiline: true,
        })
    }
}

/// Returns the message for the model on an invalid pattern.
fn invalid_pattern(name: &str, written: &str, why: &str) -> String {
    let last = why.lines().last().unwrap_or_default();
    let why = last
        .trim()
        .trim_start_matches("error: ")
        .trim_end_matches('.');
    let shown = text::cut_chars(written, 200);
    let mut words =
        format!("{name} is not a valid regular expression: {why}. It was sent as:\n{shown}");
    if written.len() <= 200 && !why.contains("size limit") {
        words.push_str(&format!(
            "\nTo find this very text, send:\n{}",
            literal(written)
        ));
    }
    words
}

/// Returns the pattern that matches exactly this text.
fn literal(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if r"\.+*?()|[]{}^$".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use grep_matcher::Matcher;

    use super::*;

    #[test]
    fn invalid_pattern_is_explained_with_its_literal_form() {
        let table = [
            (
                "foo(",
                "pattern is not a valid regular expression: unclosed group. It was sent as:\nfoo(\n",
                "foo\\(",
            ),
            (
                "a[0",
                "unclosed character class. It was sent as:\na[0\n",
                "a\\[0",
            ),
            (
                "*x",
                "repetition operator missing expression. It was sent as:\n*x\n",
                "\\*x",
            ),
            (
                "(?=a)",
                "look-around, including look-ahead and look-behind, is not supported",
                "\\(\\?=a\\)",
            ),
        ];
        for (written, wanted, right) in table {
            let failure = SearchPattern::new("pattern", written, MatchOptions::default())
                .unwrap_err()
                .to_string();
            assert!(
                failure.contains(wanted) && failure.ends_with(&format!("send:\n{right}")),
                "{failure}"
            );
            let matcher = SearchPattern::new("pattern", right, MatchOptions::default())
                .unwrap()
                .matcher;
            assert!(matcher.is_match(written.as_bytes()).unwrap(), "{right}");
        }
    }

    #[test]
    fn oversized_pattern_is_refused() {
        let failure = SearchPattern::new("pattern", "(x{1000}){1000}", MatchOptions::default())
            .unwrap_err()
            .to_string();
        assert!(failure.contains("size limit"), "{failure}");
    }

    #[test]
    fn pattern_with_line_break_is_matched_across_lines() {
        let all = MatchOptions {
            multiline: true,
            ..MatchOptions::default()
        };
        for (written, style, multiline) in [
            ("fn\\s+\\w+", MatchOptions::default(), false),
            ("\\p{L}{50}", MatchOptions::default(), false),
            ("a\nb", MatchOptions::default(), true),
            ("a\\nb", MatchOptions::default(), true),
            ("^a$", all, true),
        ] {
            assert_eq!(
                SearchPattern::new("pattern", written, style)
                    .unwrap()
                    .multiline,
                multiline,
                "{written}"
            );
        }
    }
}
