//! Exports of sessions: an HTML page or Markdown for reading, or JSON that can be imported again.

pub mod chart;
pub mod conversation;
pub mod file;
pub mod html;
pub mod json;
pub mod markdown;

use store::StoredSession;

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Markdown,
    Html,
    Json,
}

impl Format {
    /// Returns the format that the name of a file asks for: Markdown unless it ends like a page or
    /// JSON.
    pub fn of_file(name: &str) -> Self {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("html" | "htm") => Self::Html,
            Some("json") => Self::Json,
            _ => Self::Markdown,
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

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn name_of_a_file_chooses_the_format() {
        for (name, wanted) in [
            ("a.md", Format::Markdown),
            ("a", Format::Markdown),
            ("a.json.txt", Format::Markdown),
            ("a.HTML", Format::Html),
            ("x/a.htm", Format::Html),
            ("a.Json", Format::Json),
        ] {
            assert_eq!(Format::of_file(name), wanted, "{name}");
        }
    }
}
