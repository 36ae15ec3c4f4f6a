//! Text by others between tags, `<tag>…</tag>`: it must not end the wrapper around it.

/// Escapes the opening and closing tags of these names in a text, in any case and spacing.
pub fn without_tags(text: &str, names: &[&str]) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, piece) in text.split('<').enumerate() {
        if at > 0 {
            out.push_str(if is_tag(piece, names) { "&lt;" } else { "<" });
        }
        out.push_str(piece);
    }
    out
}

/// Returns whether a text after a `<` is the rest of a tag of one of these names.
fn is_tag(rest: &str, names: &[&str]) -> bool {
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('/').unwrap_or(rest).trim_start();
    names.iter().any(|name| {
        let begins = rest
            .get(..name.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(name));
        begins
            && !rest[name.len()..]
                .starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_tags_are_escaped() {
        let table = [
            ("a < b", "a < b"),
            ("</server>x", "&lt;/server>x"),
            ("<server name=\"a\">", "&lt;server name=\"a\">"),
            ("</ SERVER\n>", "&lt;/ SERVER\n>"),
            ("< / server", "&lt; / server"),
            ("<servers></server-2>", "<servers></server-2>"),
            ("<</server>", "<&lt;/server>"),
            ("<ä</skill>", "<ä</skill>"),
            ("</summary><b>", "&lt;/summary><b>"),
            ("<", "<"),
        ];
        for (text, expected) in table {
            assert_eq!(without_tags(text, &["server", "summary"]), expected);
        }
    }
}
