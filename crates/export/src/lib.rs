//! Exports of sessions: an HTML page or Markdown for reading, or JSON that can be imported again.
//!
//! - [`conversation`]: a session as Markdown: prompts, answers, and calls with or without their
//!   results. [`html`] renders a session as one page, which needs no network and runs no script;
//!   [`markdown`] and [`chart`] are parts of it.
//! - [`json`]: everything that the store has of a session, written and read message by message, so
//!   that a session of any size needs little memory.
//! - [`file`](mod@file): the file of an export, which never replaces another one.
//!
//! A session is data of strangers: models, web pages, files. All of it is escaped on the page; in
//! Markdown, commands and outputs are code. Undone messages are exported only as JSON;
//! [`undone_note`] counts them.
//!
//! The JSON is the store's own form of a session (`store::StreamedSession`), so this crate builds
//! the store with SQLite and the client of PostgreSQL.

pub mod chart;
pub mod conversation;
pub mod file;
pub mod highlight;
pub mod html;
pub mod json;
pub mod markdown;

use std::path::Path;

use base::text;
use store::StoredSession;

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Markdown,
    Html,
    Json,
}

impl Format {
    /// Returns the format that the ending of a file's name asks for; `None` for any other ending.
    pub fn of_file(file: &Path) -> Option<Self> {
        let extension = file.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "html" | "htm" => Some(Self::Html),
            "json" => Some(Self::Json),
            "md" | "markdown" => Some(Self::Markdown),
            _ => None,
        }
    }

    /// Returns the name of the format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "Markdown",
            Self::Html => "HTML",
            Self::Json => "JSON",
        }
    }
}

/// Removes the messages that are undone.
pub fn visible(mut stored: StoredSession) -> StoredSession {
    stored
        .messages
        .truncate(store::visible(&stored.messages, &stored.record.undone));
    stored
}

/// Returns the number of prompts that are undone and can be redone, and whether anything is: an
/// undo may begin after the prompt of a turn.
pub fn undone_turns(stored: &StoredSession) -> (usize, bool) {
    let shown = store::visible(&stored.messages, &stored.record.undone);
    let hidden = stored.messages.get(shown..).unwrap_or_default();
    let prompts = hidden.iter().filter(|message| message.is_prompt());
    (prompts.count(), !hidden.is_empty())
}

/// Describes the undone turns of a session and the way to restore them, as a sentence in Markdown;
/// `None` if nothing is undone.
pub fn undone_note(stored: &StoredSession) -> Option<String> {
    let (turns, is_undone) = undone_turns(stored);
    if !is_undone {
        return None;
    }
    let id = &stored.record.id;
    let (what, them) = match turns {
        0 => ("The end of a turn".to_owned(), "it"),
        1 => ("1 turn".to_owned(), "it"),
        many => (text::count(many, "turn"), "them"),
    };
    let order = if stored.record.undone.len() > 1 {
        ", the last undo first"
    } else {
        ""
    };
    Some(format!(
        "{what} undone; `/redo`, or `adjutant sessions revert {id} --redo`, restores {them}{order}."
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Format;

    #[test]
    fn name_of_a_file_chooses_the_format() {
        for (name, wanted) in [
            ("a.md", Some(Format::Markdown)),
            ("a.Markdown", Some(Format::Markdown)),
            ("a", None),
            (".md", None),
            ("a.json.txt", None),
            ("a.pdf", None),
            ("a.HTML", Some(Format::Html)),
            ("x/a.htm", Some(Format::Html)),
            ("a.Json", Some(Format::Json)),
        ] {
            assert_eq!(Format::of_file(Path::new(name)), wanted, "{name}");
        }
    }
}
