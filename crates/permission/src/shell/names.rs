//! Names that are known, each list of them one text.

/// Whether a name is one of those that stand in a text, with blanks between them.
pub(super) fn among(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|one| one == name)
}
