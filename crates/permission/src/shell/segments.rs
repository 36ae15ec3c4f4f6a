//! The commands in a text that is not parsed, as far as separators and quotes show them.

use std::borrow::Cow;

/// Splits a text at characters that may end a command, without parsing quotes.
pub(crate) fn split_commands(text: &str) -> impl Iterator<Item = &str> {
    let ends_command = |c: char| matches!(c, ';' | '&' | '|' | '\n' | '(' | ')' | '{' | '}' | '`');
    text.split(ends_command)
        .map(str::trim)
        .filter(|command| !command.is_empty())
}

/// Removes quotes and backslashes from a text.
pub(crate) fn without_quotes(text: &str) -> Cow<'_, str> {
    if text.contains(['\'', '"', '\\']) {
        text.replace("$'", "")
            .replace("$\"", "")
            .replace(['\'', '"', '\\'], "")
            .into()
    } else {
        text.into()
    }
}
