//! Lists of names, each list a text with spaces between the names.

/// Returns whether a name is in a list.
pub(super) fn among(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|listed| listed == name)
}
