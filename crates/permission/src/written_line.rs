//! Rules that allow a command line as it is written: with quotes, redirections or operators.
//!
//! Rules that allow are compared with the words of one command, without their quotes. A pattern
//! that is one command with quoted words and without wildcards also allows exactly these words. Any
//! other pattern with shell syntax in it matches hardly anything, and is reported.

use super::shell::is_harmless_device;
use shell_parser::syntax::{
    Operator, Piece, Redirect, Script, ShellCommand, ShellCommandKind, Word,
};

/// Returns the words of a pattern that is written as one command with quotes. `None` without
/// quotes, with a wildcard or a backslash (which rules read as a slash), or if the pattern is anything but literal words.
pub(super) fn quoted_words(pattern: &str) -> Option<Vec<String>> {
    if !pattern.contains(['\'', '"']) || pattern.contains(['*', '?', '\\']) {
        return None;
    }
    let script = shell_parser::parse(pattern, 0).ok()?;
    let command = only_command(&script)?;
    // A comment or `!`, which the parser leaves out, is no word.
    let is_whole = shell_parser::slice(&script, &command.range) == pattern.trim();
    let ShellCommandKind::Simple { assigns, words } = &command.kind else {
        return None;
    };
    if !is_whole || !assigns.is_empty() || !command.redirects.is_empty() {
        return None;
    }
    words.iter().map(literal).collect()
}

/// Returns the reason why a pattern that is written as a command line allows no such line, with
/// the spelling that does. `None` if it may allow one.
pub(super) fn reason_against_line(pattern: &str) -> Option<&'static str> {
    if pattern == "*" || quoted_words(pattern).is_some() {
        return None;
    }
    let script = shell_parser::parse(pattern, 0).ok()?;
    let is_operator = |word: &str| {
        let word = word.trim_start_matches(|c: char| c.is_ascii_digit());
        word.starts_with(['<', '>', '|', '&', ';']) || word.ends_with(';')
    };
    let has_operator = pattern.split_whitespace().any(is_operator);
    let Some(command) = only_command(&script) else {
        return has_operator.then_some(
            "each command of a line is compared alone; write one rule for each of them",
        );
    };
    if has_operator && command.redirects.iter().any(opens_file) {
        return Some("only \"*\" allows a command whose input or output is a file");
    }
    if has_operator && !command.redirects.is_empty() {
        return Some("words are compared without redirections; leave them out");
    }
    let ShellCommandKind::Simple { words, .. } = &command.kind else {
        return None;
    };
    let is_quoted = |word: &Word| {
        let mut pieces = word.pieces.iter();
        let written = shell_parser::slice(&script, &word.range);
        written.contains(['\'', '"']) && pieces.any(|piece| matches!(piece, Piece::Quoted(_)))
    };
    words
        .iter()
        .any(is_quoted)
        .then_some("words are compared without their quotes; leave the quotes out")
}

/// Returns whether a redirection reads or writes a file, as the analysis of a command decides it.
fn opens_file(redirect: &Redirect) -> bool {
    let target = literal(&redirect.target).unwrap_or_default();
    let is_descriptor = || {
        let digits = target.trim_end_matches('-');
        digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    match redirect.operator {
        Operator::HereDoc | Operator::HereString => false,
        Operator::Duplicate | Operator::DuplicateIn if is_descriptor() => false,
        _ => !is_harmless_device(&target),
    }
}

/// Returns the command of a script that is nothing else.
fn only_command(script: &Script) -> Option<&ShellCommand> {
    let [item] = script.list.as_slice() else {
        return None;
    };
    match item.commands.as_slice() {
        [command] if !item.background => Some(command),
        _ => None,
    }
}

/// Returns the text of a word without expansions.
fn literal(word: &Word) -> Option<String> {
    let text = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Quoted(text) => Some(text.clone()),
        _ => None,
    };
    word.pieces.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_are_read_exactly() {
        let table: [(&str, Option<&[&str]>); 16] = [
            ("git commit -m 'x y'", Some(&["git", "commit", "-m", "x y"])),
            ("echo \"a b\"'c'd", Some(&["echo", "a bcd"])),
            ("echo ''", Some(&["echo", ""])),
            ("echo \"it's so\"", Some(&["echo", "it's so"])),
            ("echo \"a\\nb\"", None),
            ("git commit -m x", None),
            ("git commit -m '*'", None),
            ("ls 'a?'", None),
            ("echo it's", None),
            ("echo \"$HOME\"", None),
            ("echo 'a' $x", None),
            ("echo 'a' > out", None),
            ("echo 'a'; rm x", None),
            ("X='1' make", None),
            ("echo 'a' # b", None),
            ("! grep 'a' b", None),
        ];
        for (pattern, expected) in table {
            let expected = expected.map(|words| words.iter().map(|word| (*word).to_owned()));
            assert_eq!(
                quoted_words(pattern),
                expected.map(Iterator::collect),
                "{pattern}"
            );
        }
    }

    #[test]
    fn patterns_that_allow_no_line_have_a_reason() {
        let table = [
            ("*", None),
            ("git *", None),
            ("git commit -m 'x y'", None),
            ("echo it's *", None),
            ("grep a|b *", None),
            ("git log --format=%h *", None),
            ("git commit -m \"*\"", Some("leave the quotes out")),
            ("echo hi > src/x", Some("is a file")),
            ("sort <in", Some("is a file")),
            ("make >& log", Some("is a file")),
            ("cargo test 2>&1", Some("leave them out")),
            ("cargo test >/dev/null 2>&1", Some("leave them out")),
            ("bc <<< 1+1", Some("leave them out")),
            ("git log | head", Some("one rule for each")),
            ("cd x && make", Some("one rule for each")),
            ("ls; pwd", Some("one rule for each")),
        ];
        for (pattern, expected) in table {
            let reason = reason_against_line(pattern);
            assert_eq!(
                reason.is_some(),
                expected.is_some(),
                "{pattern}: {reason:?}"
            );
            assert!(
                reason.is_none_or(|reason| reason.contains(expected.unwrap_or_default())),
                "{pattern}: {reason:?}"
            );
        }
    }
}
