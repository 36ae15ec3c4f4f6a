//! Colours of code.

use anstyle::{AnsiColor, Style};

use super::style::{BAD, CODE, FAINT, GOOD};
use export::highlight::TokenKind;

/// Returns the style of a token.
pub(super) fn style(kind: TokenKind) -> Style {
    match kind {
        TokenKind::Plain => Style::new(),
        TokenKind::Comment => FAINT,
        TokenKind::Text | TokenKind::Inserted => GOOD,
        TokenKind::Constant => AnsiColor::Yellow.on_default(),
        TokenKind::Keyword => AnsiColor::Magenta.on_default(),
        TokenKind::Function => AnsiColor::Blue.on_default(),
        TokenKind::Name => CODE,
        TokenKind::Deleted => BAD,
    }
}
