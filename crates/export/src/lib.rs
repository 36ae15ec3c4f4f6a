//! Exports of sessions: an HTML page or Markdown for reading, or JSON that can be imported again.

pub mod chart;
pub mod conversation;
pub mod file;
pub mod html;
pub mod json;
pub mod markdown;

use std::path::Path;

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
