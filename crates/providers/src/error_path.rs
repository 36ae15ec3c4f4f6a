//! Finds paths of fields in the error messages of providers, in their various notations: the index
//! of the tool or message that an error is about.

/// The characters between the name of a list and an index in it: `tools.3`, `tools[3]`, `/tools/3`,
/// `["tools",3]`, `['tools', 3]`, `tools -> 3`.
const INDEX_PREFIXES: [&str; 9] = [".", "[", "/", "\",", "\", ", "',", "', ", " -> ", "]["];

/// The names of the list of tools in requests.
pub const TOOL_LISTS: [&str; 2] = ["tools", "functions"];

/// The names of the list of declarations in a tool of Gemini, in lower case.
pub const DECLARATION_LISTS: [&str; 2] = ["function_declarations", "functiondeclarations"];

/// The names of the list of messages in requests.
pub(crate) const MESSAGE_LISTS: [&str; 3] = ["messages", "input", "contents"];

/// Returns the first index of the list `list` that a text in lower case contains; `None` if there
/// is none.
pub fn find_index(folded: &str, list: &str) -> Option<usize> {
    INDEX_PREFIXES
        .into_iter()
        .find_map(|step| index_after(folded, &format!("{list}{step}")))
}

fn index_after(folded: &str, before: &str) -> Option<usize> {
    folded.match_indices(before).find_map(|(at, _)| {
        let rest = &folded[at + before.len()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[..digits].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_found_in_every_notation() {
        for (text, expected) in [
            ("tools.3.custom", Some(3)),
            ("tools[3].function", Some(3)),
            ("#/tools/3/function", Some(3)),
            (r#"["tools",3,"function"]"#, Some(3)),
            (r#"["body", "tools", 3]"#, Some(3)),
            ("['tools',3]", Some(3)),
            ("['tools', 3]", Some(3)),
            ("body -> tools -> 3 -> function", Some(3)),
            ("[tools][3]", Some(3)),
            ("tools.custom, tools.12", Some(12)),
            ("too many tools: 130", None),
            ("tools.", None),
        ] {
            assert_eq!(find_index(text, "tools"), expected, "{text}");
        }
    }
}
